//! The archive, read by a separate reader and by cpio(1), and its errors.

use super::*;
use crate::Programs;
use proptest::prelude::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use weigh_model::ImageSpec;

/// An entry as it is in an archive.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    name: String,
    inode: u32,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    modified: u32,
    device: (u32, u32),
    content: Vec<u8>,
}

/// A reader that follows the kernel's document and nothing else.
fn read(archive: &[u8]) -> Vec<Seen> {
    let mut at = 0;
    let mut seen = Vec::new();
    loop {
        assert_eq!(at % 4, 0, "an entry begins between words");
        let field = |n: usize| {
            let text = std::str::from_utf8(&archive[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
            u32::from_str_radix(text, 16).unwrap()
        };
        assert_eq!(&archive[at..at + 6], b"070701");
        let (size, name_size) = (field(6) as usize, field(11) as usize);
        let name = &archive[at + 110..at + 110 + name_size];
        assert_eq!(name.last(), Some(&0));
        let content_at = (at + 110 + name_size).next_multiple_of(4);
        let entry = Seen {
            name: String::from_utf8(name[..name_size - 1].to_vec()).unwrap(),
            inode: field(0),
            mode: field(1),
            owner: (field(2), field(3)),
            links: field(4),
            modified: field(5),
            device: (field(9), field(10)),
            content: archive[content_at..content_at + size].to_vec(),
        };
        at = (content_at + size).next_multiple_of(4);
        if entry.name == "TRAILER!!!" {
            assert!(archive[at..].iter().all(|byte| *byte == 0), "nothing follows the trailer");
            assert_eq!(archive.len() % 512, 0);
            return seen;
        }
        seen.push(entry);
    }
}

fn written(archive: &Initramfs) -> Vec<u8> {
    let mut bytes = Vec::new();
    archive.write(&mut bytes).unwrap();
    bytes
}

fn find<'a>(seen: &'a [Seen], name: &str) -> &'a Seen {
    seen.iter().find(|entry| entry.name == name).unwrap_or_else(|| panic!("{name} is missing in {seen:?}"))
}

fn programs(directory: &Path) -> Programs {
    let (probe, kernels) = (directory.join("probe"), directory.join("kernels"));
    fs::write(&probe, "a probe").unwrap();
    fs::write(&kernels, "the kernels").unwrap();
    Programs { probe, kernels, module: None }
}

/// A system with special entries: links of both kinds, modes, a pipe, a socket.
fn system(directory: &Path) -> PathBuf {
    let root = directory.join("system");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(root.join("var/tmp")).unwrap();
    fs::write(root.join("usr/bin/tool"), vec![7; 70_001]).unwrap();
    fs::set_permissions(root.join("usr/bin/tool"), Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/also")).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    symlink("../../etc/passwd", root.join("usr/bin/link")).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("usr/pipe"), pipe, 0o640.into(), 0).unwrap();
    std::os::unix::net::UnixListener::bind(root.join("usr/socket")).unwrap();
    root
}

#[test]
fn an_archive_of_an_image_has_the_content_of_its_directory() {
    let base = tempfile::tempdir().unwrap();
    let image = system(base.path());
    let work = base.path().join("work");
    let root = Root::prepare(&ImageSpec::Path(image.clone()), &programs(base.path()), &work, None).unwrap();
    let mut archive = Initramfs::new();
    archive.skeleton(&root).unwrap().image(&root).unwrap();
    let bytes = written(&archive);
    assert_eq!(bytes, written(&archive), "the same content gives the same bytes");
    let seen = read(&bytes);
    assert_eq!(find(&seen, ".weighbridge/probe").content, b"a probe");
    assert_eq!(find(&seen, ".weighbridge/probe").mode, 0o100_755);
    assert_eq!((find(&seen, "tmp").mode, find(&seen, "proc").mode), (0o041_777, 0o040_755));
    assert_eq!(find(&seen, "bin").content, b"usr/bin");
    assert_eq!(find(&seen, "usr/bin/link").content, b"../../etc/passwd");
    assert_eq!((find(&seen, "usr/pipe").mode, find(&seen, "bin").mode), (0o010_640, 0o120_777));
    assert!(!seen.iter().any(|entry| entry.name == "usr/socket"));
    let (also, tool) = (find(&seen, "usr/bin/also"), find(&seen, "usr/bin/tool"));
    assert_eq!((also.inode, also.links, tool.links), (tool.inode, 2, 2));
    assert!(also.content.is_empty() && tool.content == vec![7; 70_001], "content comes with the last name");
    assert_eq!(tool.mode, 0o104_755);
    let metadata = image.join("usr/bin/tool").metadata().unwrap();
    assert_eq!(tool.owner, (metadata.uid(), metadata.gid()));
    assert_eq!(i64::from(tool.modified), metadata.mtime());
    let inodes: std::collections::BTreeSet<u32> = seen.iter().map(|entry| entry.inode).collect();
    assert_eq!(inodes.len(), seen.len() - 1, "only hard links share a number");
}

/// The `cpio` of this machine unpacks an archive to the directory that it was made from.
#[test]
fn cpio_unpacks_it() {
    let base = tempfile::tempdir().unwrap();
    let root = Root::prepare(
        &ImageSpec::Path(system(base.path())),
        &programs(base.path()),
        &base.path().join("work"),
        None,
    )
    .unwrap();
    let mut archive = Initramfs::new();
    archive.skeleton(&root).unwrap().image(&root).unwrap();
    let long = format!("/deep/{}/{}", "d".repeat(200), "n".repeat(250));
    archive.bytes(&long, "far below", 0o600).unwrap();
    let (file, into) = (base.path().join("archive.cpio"), base.path().join("into"));
    archive.write_file(&file).unwrap();
    fs::create_dir(&into).unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "this crate starts no program but here, to be checked by it"
    )]
    let cpio = std::process::Command::new("cpio")
        .args(["--extract", "--quiet", "--preserve-modification-time", "--no-absolute-filenames", "-F"])
        .arg(&file)
        .current_dir(&into)
        .output();
    match cpio {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("SKIPPED cpio_unpacks_it: there is no cpio here");
            return;
        }
        cpio => {
            let cpio = cpio.unwrap();
            assert!(cpio.status.success(), "{}", String::from_utf8_lossy(&cpio.stderr));
            assert!(cpio.stderr.is_empty(), "{}", String::from_utf8_lossy(&cpio.stderr));
        }
    }
    assert_eq!(fs::read_to_string(into.join(&long[1..])).unwrap(), "far below");
    assert_eq!(fs::read(into.join("usr/bin/also")).unwrap(), vec![7; 70_001]);
    let inode = |name: &str| into.join(name).metadata().unwrap().ino();
    assert_eq!(inode("usr/bin/also"), inode("usr/bin/tool"));
    assert_eq!(fs::read_link(into.join("bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(into.join("tmp").metadata().unwrap().mode(), 0o041_777);
    assert_eq!(into.join("usr/bin/tool").metadata().unwrap().mode(), 0o104_755);
}

#[test]
fn devices_parent_directories_and_replaced_entries_are_archived() {
    let mut archive = Initramfs::new();
    archive.bytes("/a/b/c", "first", 0o644).unwrap();
    archive.bytes("/a/b/c", "second", 0o600).unwrap();
    archive.directory("/a/b", 0o700).unwrap();
    archive.character_device("/dev/console", 0o600, (5, 1)).unwrap();
    archive.symlink("/a/link", "/b/\u{e4}").unwrap();
    let seen = read(&written(&archive));
    let names: Vec<&str> = seen.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a", "a/b", "a/b/c", "a/link", "dev", "dev/console"]);
    assert_eq!((seen[0].mode, seen[1].mode, seen[2].mode), (0o040_755, 0o040_700, 0o100_600));
    assert_eq!(seen[2].content, b"second");
    assert_eq!((seen[5].mode, seen[5].device), (0o020_600, (5, 1)));
    assert_eq!(seen[3].content, "/b/\u{e4}".as_bytes());
}

#[test]
fn files_that_cannot_be_archived_are_refused() {
    let base = tempfile::tempdir().unwrap();
    for name in ["", "/", "/../x", "/a/../b", "/a\0b"] {
        assert!(Initramfs::new().bytes(name, "", 0o644).is_err(), "{name:?}");
    }
    let mut below_a_file = Initramfs::new();
    below_a_file.bytes("/a", "", 0o644).unwrap().bytes("/a/b", "", 0o644).unwrap();
    let error = below_a_file.write(io::sink()).unwrap_err();
    assert!(format!("{:?}", error).contains("a is no directory"), "{error:?}");
    let mut long = Initramfs::new();
    long.bytes(&format!("/{}", "x/".repeat(2049)), "", 0o644).unwrap();
    assert!(long.write(io::sink()).is_err());
    assert!(Initramfs::new().file("/x", base.path(), 0o644).is_err(), "a directory is no file");
    // A file that changes its size would corrupt everything after it.
    let path = base.path().join("changing");
    fs::write(&path, "1234567").unwrap();
    let mut archive = Initramfs::new();
    archive.file("/x", &path, 0o644).unwrap();
    fs::write(&path, "123").unwrap();
    assert!(archive.write(io::sink()).is_err());
    fs::write(&path, "123456789").unwrap();
    assert_eq!(find(&read(&written(&archive)), "x").content, b"1234567");
    // The file is sparse: it takes no space here, but is too large for an archive.
    File::create(&path).unwrap().set_len(1 << 32).unwrap();
    let mut large = Initramfs::new();
    large.file("/x", &path, 0o644).unwrap();
    assert!(large.write(io::sink()).is_err());
    let target = base.path().join("archive");
    assert!(large.write_file(&target).is_err());
    assert!(!target.exists() && !base.path().join("archive.new").exists(), "a part of an archive is left");
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-z\u{e4}\u{4e2d} .\\\\]{1,40}", 1..4)
        .prop_map(|parts| format!("/{}", parts.join("/")))
        .prop_filter("plain", |name| !name.split('/').any(|part| part == "." || part == ".."))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any names, sizes, modes and links are read back as they were given.
    #[test]
    fn written_entries_are_read_back(
        entries in prop::collection::btree_map(
            name(), (prop::collection::vec(any::<u8>(), 0..600), 0u32..0o10000, any::<bool>()), 0..12),
    ) {
        let mut archive = Initramfs::new();
        for (name, (content, mode, link)) in &entries {
            if *link {
                let target = format!("t{}", content.len());
                archive.symlink(name, &target).unwrap();
            } else {
                archive.bytes(name, content.clone(), *mode).unwrap();
            }
        }
        let mut bytes = Vec::new();
        if archive.write(&mut bytes).is_ok() {
            let seen = read(&bytes);
            for (name, (content, mode, link)) in &entries {
                let entry = find(&seen, &name[1..]);
                if *link {
                    let target = format!("t{}", content.len()).into_bytes();
                    prop_assert_eq!(&entry.content, &target);
                } else {
                    prop_assert_eq!((&entry.content, entry.mode), (content, 0o100_000 | mode));
                }
            }
            let names: Vec<&str> = seen.iter().map(|entry| entry.name.as_str()).collect();
            for name in &names {
                if let Some((parent, _)) = name.rsplit_once('/') {
                    let before = &names[..names.iter().position(|other| other == name).unwrap()];
                    prop_assert!(before.contains(&parent), "{} comes before its directory", name);
                }
            }
        } else {
            let below = |name: &String| entries.keys().any(|other| name.starts_with(&format!("{other}/")));
            prop_assert!(entries.keys().any(below), "refused without a reason");
        }
    }
}
