//! Archives of root file systems, read and written.

use super::*;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

#[test]
fn archive_gives_the_same_guest_as_its_directory() {
    let bench = Bench::new();
    let image = bench.image("image");
    let archive = bench.archive("image.tar", |builder| {
        builder.follow_symlinks(false);
        builder.append_dir_all(".", &image).unwrap();
        // Old images contain device nodes; guests have their own /dev.
        raw_entry(builder, "dev/null", tar::EntryType::Char, "", b"");
        // A leading slash is read as the root of the archive.
        raw_entry(builder, "/usr/bin/absolute", tar::EntryType::Regular, "", b"absolute");
    });
    let from_archive = bench.prepare(&ImageSpec::Path(archive.clone()), "a").unwrap();
    let from_directory = bench.prepare(&ImageSpec::Path(image), "b").unwrap();
    assert_eq!(targets(&from_archive), targets(&from_directory));
    let usr = &from_archive.binds.iter().find(|bind| bind.target == Path::new("/usr")).unwrap().source;
    assert_eq!(fs::read_to_string(usr.join("bin/tool")).unwrap(), "a tool");
    assert_eq!(fs::read_to_string(usr.join("bin/absolute")).unwrap(), "absolute");
    assert!(usr.starts_with(bench.directory.path().canonicalize().unwrap()));
    assert!(!usr.parent().unwrap().join("dev/null").exists());
    let again = bench.prepare(&ImageSpec::Path(archive), "c").unwrap();
    assert_eq!(again.digest, from_archive.digest);
}

#[test]
fn archives_cannot_write_outside() {
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    type Entry = (&'static str, tar::EntryType, &'static str);
    let attacks: [(&str, &[Entry]); 6] = [
        ("parent", &[("../victim/new", Regular, "")]),
        ("hidden parent", &[("usr/../../victim/new", Regular, "")]),
        ("absolute link", &[("usr", Symlink, "VICTIM"), ("usr/new", Regular, "")]),
        ("relative link", &[("usr", Symlink, "../../victim"), ("usr/new", Regular, "")]),
        // This would change the permissions of the link's target.
        ("directory over a link", &[("usr", Symlink, "VICTIM"), ("usr", Directory, "")]),
        ("hard link", &[("secret", Link, "../../victim/secret")]),
    ];
    for (name, entries) in attacks {
        let bench = Bench::new();
        let victim = bench.path("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("secret"), "secret").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
        let archive = bench.archive("evil.tar", |builder| {
            for (path, kind, link) in entries {
                raw_entry(builder, path, *kind, &link.replace("VICTIM", victim.to_str().unwrap()), b"");
            }
        });
        let error = bench.prepare(&ImageSpec::Path(archive), "work").unwrap_err();
        assert!(matches!(error, ImageError::Unsafe { .. }), "{name}: {error}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1, "{name}");
        assert_eq!(mode(&victim), 0o700, "{name}");
    }
}

/// A user's archive that exceeds a limit is refused, and the error names the entry.
#[test]
fn archives_that_are_too_much_are_refused() {
    type Fill = fn(&mut tar::Builder<fs::File>);
    fn claim(builder: &mut tar::Builder<fs::File>, kind: tar::EntryType, size: u64, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..4].copy_from_slice(b"file");
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(size);
        header.set_cksum();
        builder.get_mut().write_all(header.as_bytes()).unwrap();
        builder.get_mut().write_all(content).unwrap();
    }
    let attacks: [(&str, Fill); 6] = [
        ("256 GiB together", |builder| claim(builder, tar::EntryType::Regular, 1 << 50, &[0; 1024])),
        ("headers of more than", |builder| {
            claim(builder, tar::EntryType::GNULongName, 8 << 20, &vec![b'x'; 8 << 20]);
        }),
        ("headers of more than", |builder| {
            claim(builder, tar::EntryType::XHeader, 8 << 20, &vec![b'x'; 8 << 20]);
        }),
        ("headers of more than", |builder| {
            // The extension's size counts, not the header's.
            let mut extension = [0; 512];
            extension[..10].copy_from_slice(b"10 size=0\n");
            claim(builder, tar::EntryType::XHeader, 10, &extension);
            claim(builder, tar::EntryType::Regular, 16 << 20, b"");
            claim(builder, tar::EntryType::XHeader, 8 << 20, &vec![b'x'; 8 << 20]);
        }),
        ("two sizes", |builder| {
            let mut extension = [0; 512];
            extension[..10].copy_from_slice(b"10 size=0\n");
            claim(builder, tar::EntryType::XHeader, 10, &extension);
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().realsize[..11].copy_from_slice(b"00000000000");
            header.set_entry_type(tar::EntryType::GNUSparse);
            header.set_size(16 << 20);
            header.set_cksum();
            builder.get_mut().write_all(header.as_bytes()).unwrap();
        }),
        ("256 directories", |builder| {
            let name = format!("{}x", "d/".repeat(300));
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            builder.append_data(&mut header, &name, std::io::empty()).unwrap();
        }),
    ];
    for (what, fill) in attacks {
        let bench = Bench::new();
        let archive = bench.archive("evil.tar", |builder| {
            raw_entry(builder, "usr/first", tar::EntryType::Regular, "", b"");
            fill(builder);
        });
        let error = bench.prepare(&ImageSpec::Path(archive), "work").unwrap_err();
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        assert!(text.contains(what) && text.len() < 2000, "{text:.2000}");
    }
}

#[test]
fn hard_link_to_an_absolute_path_stays_inside() {
    let bench = Bench::new();
    let archive = bench.archive("evil.tar", |builder| {
        raw_entry(builder, "shadow", tar::EntryType::Link, "/etc/passwd", b"");
    });
    assert!(
        bench.prepare(&ImageSpec::Path(archive), "work").is_err(),
        "there is no etc/passwd in the archive"
    );
}

#[test]
fn skeleton_as_an_archive() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Path(bench.image("image")), "work").unwrap();
    let write = || {
        let mut bytes = Vec::new();
        root.write_tar(&mut bytes).unwrap();
        bytes
    };
    let bytes = write();
    assert_eq!(bytes, write());
    let mut archive = tar::Archive::new(&bytes[..]);
    let mut seen = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        let name = entry.path().unwrap().display().to_string();
        seen.insert(name.trim_end_matches('/').to_string(), (entry.header().mode().unwrap(), content));
    }
    assert_eq!(seen[&PROBE[1..]], (0o755, "the probe".into()));
    assert_eq!(seen["tmp"].0, 0o1777);
    assert!(seen.contains_key("bin") && seen.contains_key("usr") && seen.contains_key("vmlinuz"));
    assert!(!seen.keys().any(|name| name.starts_with("usr/")), "only the mount point");
}

/// Files with several names stay one file, owners and times are preserved, and entries that do not
/// belong to a system's files are left out.
#[test]
fn a_tree_becomes_an_archive_and_a_tree_again() {
    let bench = Bench::new();
    let image = bench.image("image");
    fs::hard_link(image.join("usr/bin/tool"), image.join("usr/bin/other")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, image.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let root = bench.prepare(&ImageSpec::Path(image.clone()), "work").unwrap();
    let mut bytes = Vec::new();
    root.write_tree_tar(&mut bytes).unwrap();
    fs::write(bench.path("image.tar"), bytes).unwrap();
    let again = bench.prepare(&ImageSpec::Path(bench.path("image.tar")), "again").unwrap();
    let tree = again.tree.unwrap();
    let inode = |name: &str| tree.join("usr/bin").join(name).metadata().unwrap().ino();
    assert_eq!(inode("tool"), inode("other"));
    assert_eq!(fs::read_to_string(tree.join("usr/bin/other")).unwrap(), "a tool");
    let time = |tree: &Path| tree.join("vmlinuz").metadata().unwrap().mtime();
    assert_eq!(time(&tree), time(&image));
    assert!(!tree.join("pipe").exists());
}

#[test]
fn a_compressed_archive_is_the_same_image() {
    let bench = Bench::new();
    let plain = bench.archive("plain.tar", |builder| {
        raw_entry(builder, "bin/tool", tar::EntryType::Regular, "", b"a tool");
    });
    let bytes = fs::read(plain).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&bytes).unwrap();
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    for (name, packed) in [("gz", gzip.finish().unwrap()), ("xz", xz.finish().unwrap()), ("zst", zstd)] {
        let path = bench.path(&format!("image.tar.{name}"));
        fs::write(&path, packed).unwrap();
        let root = bench.prepare(&ImageSpec::Path(path), name).unwrap();
        assert_eq!(fs::read_to_string(root.tree.unwrap().join("bin/tool")).unwrap(), "a tool", "{name}");
    }
}
