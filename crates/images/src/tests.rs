use crate::store::{Record, Store};
use crate::{Bind, ImageError, KERNELS, Mount, PROBE, Programs, Root};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weigh_host::cache::CacheDirectory;
use weigh_host::ledger::Ledger;
use weigh_host::state::StateDirectory;
use weigh_model::ImageSpec;

struct Bench {
    directory: TempDir,
    programs: Programs,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (probe, kernels) = (directory.path().join("p"), directory.path().join("k"));
        let programs = Programs { probe, kernels, module: None };
        fs::write(&programs.probe, "the probe").unwrap();
        fs::write(&programs.kernels, "the kernels").unwrap();
        Self { directory, programs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn prepare(&self, image: &ImageSpec, work: &str) -> Result<Root, ImageError> {
        Root::prepare(image, &self.programs, &self.path(work), None)
    }

    /// A small image: a merged-/usr link, a directory, a file, private entries, and an `/etc`.
    fn image(&self, name: &str) -> PathBuf {
        let image = self.path(name);
        for directory in ["usr/bin", "etc", "var/tmp", "tmp", "proc", "dev", "home/user"] {
            fs::create_dir_all(image.join(directory)).unwrap();
        }
        symlink("usr/bin", image.join("bin")).unwrap();
        fs::write(image.join("usr/bin/tool"), "a tool").unwrap();
        fs::write(image.join("vmlinuz"), "a file at the top").unwrap();
        for file in ["hosts", "hostname", "resolv.conf"] {
            fs::write(image.join("etc").join(file), "the image's").unwrap();
        }
        image
    }

    fn archive(&self, name: &str, fill: impl FnOnce(&mut tar::Builder<fs::File>)) -> PathBuf {
        let path = self.path(name);
        let mut builder = tar::Builder::new(fs::File::create(&path).unwrap());
        fill(&mut builder);
        builder.into_inner().unwrap();
        path
    }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn targets(root: &Root) -> Vec<&str> {
    root.binds.iter().map(|bind| bind.target.to_str().unwrap()).collect()
}

/// An entry whose name the library's own builder would refuse to write.
fn raw_entry(
    builder: &mut tar::Builder<fs::File>,
    name: &str,
    kind: tar::EntryType,
    link: &str,
    content: &[u8],
) {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

#[test]
fn probe_alone_is_a_whole_skeleton() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Probe, "work").unwrap();
    assert!(root.binds.is_empty() && !root.host && root.notes.is_empty());
    for directory in ["proc", "sys", "dev", "run", "etc", ".weighbridge"] {
        assert_eq!(mode(&root.skeleton.join(directory)), 0o755, "{directory}");
    }
    assert_eq!(mode(&root.skeleton.join("tmp")), 0o1777);
    assert_eq!(fs::read_to_string(root.skeleton.join(&PROBE[1..])).unwrap(), "the probe");
    assert_eq!(mode(&root.skeleton.join(&PROBE[1..])), 0o755);
    assert_eq!(fs::read_to_string(root.skeleton.join(&KERNELS[1..])).unwrap(), "the kernels");
    assert!(fs::read_to_string(root.skeleton.join("etc/passwd")).unwrap().starts_with("root:"));
    assert_eq!(root.scratch, [Path::new("/tmp"), Path::new("/run")]);
}

#[test]
fn directory_is_bound_entry_by_entry() {
    let bench = Bench::new();
    let image = bench.image("image");
    let root = bench.prepare(&ImageSpec::Path(image.clone()), "work").unwrap();
    assert_eq!(targets(&root), ["/etc", "/home", "/usr", "/var", "/vmlinuz"]);
    assert!(root.binds.iter().all(|bind| bind.read_only));
    assert_eq!(
        root.binds[4],
        Bind {
            source: image.canonicalize().unwrap().join("vmlinuz"),
            target: "/vmlinuz".into(),
            read_only: true
        }
    );
    assert_eq!(fs::read_link(root.skeleton.join("bin")).unwrap(), Path::new("usr/bin"));
    assert!(root.skeleton.join("usr").is_dir() && root.skeleton.join("vmlinuz").is_file());
    assert!(!root.skeleton.join("etc/passwd").exists(), "the image has its own");
    assert_eq!(root.scratch.last().unwrap(), Path::new("/var/tmp"));
    let order: Vec<_> = root.mounts().iter().map(|mount| mount.target().to_path_buf()).collect();
    assert_eq!(order.last().unwrap(), Path::new("/var/tmp"), "below a bind, so after it");
    assert!(matches!(root.mounts().last(), Some(Mount::Scratch(_))));
}

#[test]
fn etc_without_the_files_of_engines_is_placed_entry_by_entry() {
    let bench = Bench::new();
    let image = bench.image("image");
    fs::remove_file(image.join("etc/hostname")).unwrap();
    symlink("/usr/share/zone", image.join("etc/localtime")).unwrap();
    let root = bench.prepare(&ImageSpec::Path(image.clone()), "work").unwrap();
    assert!(targets(&root).contains(&"/etc/hosts") && !targets(&root).contains(&"/etc"));
    assert!(root.skeleton.join("etc/hostname").is_file());
    assert!(root.skeleton.join("etc/localtime").is_symlink());
    assert!(!image.join("etc/hostname").exists(), "the user's directory is left as it is");
}

/// The thread of the test gets its own mounts, in which `/etc` has neither a host name nor a
/// resolver.
#[test]
fn a_bare_etc_of_the_host_is_shown_as_a_copy_alone() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED a_bare_etc_of_the_host_is_shown_as_a_copy_alone: needs root");
        return;
    }
    let bare = |bench: &Bench| {
        // SAFETY: the thread was made for this and shares no file system state afterwards.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        mount("none", "/etc", "tmpfs", MountFlags::empty(), None).unwrap();
        for (name, mode) in [("passwd", 0o644), ("shadow", 0o600)] {
            fs::write(Path::new("/etc").join(name), "").unwrap();
            fs::set_permissions(Path::new("/etc").join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        bench.prepare(&ImageSpec::Host, "work").unwrap()
    };
    let bench = Bench::new();
    let root = std::thread::scope(|scope| scope.spawn(|| bare(&bench)).join().unwrap());
    let of_etc: Vec<&Bind> = root.binds.iter().filter(|bind| bind.target.starts_with("/etc")).collect();
    let [copy] = of_etc[..] else { panic!("{of_etc:?}") };
    assert_eq!(copy.target, Path::new("/etc"));
    let mut names: Vec<_> = fs::read_dir(&copy.source).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["hostname", "hosts", "passwd", "resolv.conf"]);
}

#[test]
fn image_without_etc_gets_a_small_one() {
    let bench = Bench::new();
    let image = bench.image("image");
    fs::remove_dir_all(image.join("etc")).unwrap();
    let root = bench.prepare(&ImageSpec::Path(image), "work").unwrap();
    assert!(root.skeleton.join("etc/passwd").is_file());
}

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
fn a_path_that_is_no_image_is_reported() {
    let bench = Bench::new();
    let missing = bench.prepare(&ImageSpec::Path(bench.path("nowhere")), "a").unwrap_err();
    assert!(matches!(missing, ImageError::NotFound { .. }), "{missing}");
    let junk = bench.path("junk");
    fs::write(&junk, "x".repeat(2000)).unwrap();
    let error = bench.prepare(&ImageSpec::Path(junk.clone()), "b").unwrap_err();
    assert!(matches!(error, ImageError::NotAnImage { .. }), "{error}");
    fs::write(&junk, "").unwrap();
    assert!(matches!(
        bench.prepare(&ImageSpec::Path(junk.clone()), "c").unwrap_err(),
        ImageError::NotAnImage { .. }
    ));
    fs::write(&junk, b"BZh9rest").unwrap();
    let error = bench.prepare(&ImageSpec::Path(junk.clone()), "d").unwrap_err();
    assert!(error.to_string().contains(&format!("`bzip2 -dk {}`", junk.display())), "{error}");
    fs::write(&junk, b"\x1f\x8b\x08rest").unwrap();
    assert!(bench.prepare(&ImageSpec::Path(junk.clone()), "g").is_err(), "damaged");
    let node = bench.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert!(matches!(bench.prepare(&ImageSpec::Path(node), "e").unwrap_err(), ImageError::NotAnImage { .. }));
    let cut = bench.path("cut.tar");
    let whole = bench.archive("whole.tar", |builder| {
        raw_entry(builder, "file", tar::EntryType::Regular, "", &[1; 4000]);
    });
    fs::write(&cut, &fs::read(whole).unwrap()[..2000]).unwrap();
    assert!(bench.prepare(&ImageSpec::Path(cut), "f").is_err(), "a cut archive is not half an image");
}

#[test]
fn a_missing_program_and_an_occupied_place_are_reported() {
    let mut bench = Bench::new();
    bench.prepare(&ImageSpec::Probe, "work").unwrap();
    assert!(matches!(bench.prepare(&ImageSpec::Probe, "work"), Err(ImageError::Occupied { .. })));
    bench.programs.kernels = bench.path("nowhere");
    assert!(matches!(bench.prepare(&ImageSpec::Probe, "other"), Err(ImageError::ProgramMissing { .. })));
}

#[test]
fn host_root_of_guests_that_mount_nothing_is_not_copied() {
    let bench = Bench::new();
    let root = Root::of_host(&bench.programs, &bench.path("work")).unwrap();
    assert!(root.host && root.binds.is_empty(), "{root:?}");
    assert!(!bench.path("work").join("etc").exists());
}

#[test]
fn host_root_hides_directories_outside_of_the_system() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Host, "work").unwrap();
    assert!(root.host);
    let targets = targets(&root);
    assert!(targets.contains(&"/usr"), "{targets:?}");
    let hidden =
        ["proc", "sys", "dev", "tmp", "run", "mnt", "media", "root", "home", "lost+found", ".weighbridge"];
    for hidden in hidden {
        assert!(!targets.contains(&&*format!("/{hidden}")), "{hidden}");
    }
    for bind in root.binds.iter().filter(|bind| bind.target.components().count() == 2) {
        let is_copied = bind.target == Path::new("/etc");
        assert!(!bind.source.is_symlink() && (bind.source == bind.target) != is_copied, "{bind:?}");
        let place = root.skeleton.join(bind.target.strip_prefix("/").unwrap());
        assert_eq!(place.is_dir(), bind.source.is_dir(), "{bind:?}");
    }
    for entry in
        fs::read_dir("/").unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_symlink())
    {
        let link = root.skeleton.join(entry.strip_prefix("/").unwrap());
        assert_eq!(fs::read_link(link).unwrap(), fs::read_link(&entry).unwrap());
    }
    let slash = bench.prepare(&ImageSpec::Path("/".into()), "slash").unwrap();
    assert_eq!((slash.host, &slash.digest), (true, &root.digest));
}

#[test]
fn host_root_hides_files_that_users_cannot_read() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Host, "work").unwrap();
    let seen = |path: &str| -> PathBuf {
        let path = Path::new(path);
        let bind = root.mounts().into_iter().rev().find(|mount| path.starts_with(mount.target())).unwrap();
        let Mount::Bind(bind) = bind else { panic!("{bind:?}") };
        bind.source.join(path.strip_prefix(&bind.target).unwrap())
    };
    assert_eq!(fs::read(seen("/etc/passwd")).unwrap(), fs::read("/etc/passwd").unwrap());
    assert!(Path::new("/etc/shadow").exists() && !seen("/etc/shadow").exists());
    for engines in ["hosts", "hostname", "resolv.conf"] {
        assert!(seen(&format!("/etc/{engines}")).symlink_metadata().is_ok(), "{engines}");
    }
    let log = seen("/var/log");
    assert!(log.starts_with(bench.directory.path()) && fs::read_dir(&log).unwrap().next().is_none());
    assert_eq!(mode(&log), 0o755);
}

#[test]
fn closed_directories_are_found() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Probe, "work").unwrap();
    let base = bench.path("var");
    for (name, mode) in [("closed/below", 0o755), ("closed", 0o711), ("open/secret", 0o700), ("empty", 0o700)]
    {
        fs::create_dir_all(base.join(name)).unwrap();
        fs::set_permissions(base.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(base.join("open/secret/key"), "").unwrap();
    let find = |depth| {
        let mut found = Vec::new();
        crate::host::closed(&base, depth, &root, &mut found);
        found.sort();
        found
    };
    assert_eq!(find(2), [base.join("closed"), base.join("open/secret")]);
    assert_eq!(find(1), [base.join("closed")]);
    for (name, mode) in [("swapfile", 0o600), ("readable", 0o644)] {
        fs::write(base.join(name), "").unwrap();
        fs::set_permissions(base.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut names = crate::host::closed_names(&base).unwrap();
    names.sort();
    assert_eq!(names, ["closed", "empty", "swapfile"]);
}

#[test]
fn swap_files_are_found() {
    let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                /dev/vda2                               partition\t1048572\t0\t-2\n\
                /swap/the\\040file                       file\t\t524284\t\t0\t\t-3\n";
    assert_eq!(crate::host::swap_files(text), [Path::new("/swap/the file")]);
    assert!(crate::host::swap_files("").is_empty());
}

#[test]
fn a_copy_has_only_world_readable_files() {
    let bench = Bench::new();
    let (from, to) = (bench.path("from"), bench.path("to"));
    for directory in ["open/below", "closed"] {
        fs::create_dir_all(from.join(directory)).unwrap();
    }
    for (name, mode) in
        [("open/file", 0o644), ("open/program", 0o755), ("key", 0o640), ("closed/open", 0o644)]
    {
        fs::write(from.join(name), name).unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(from.join("closed"), fs::Permissions::from_mode(0o711)).unwrap();
    symlink("key", from.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    fs::create_dir(&to).unwrap();
    crate::host::copy_readable(&from, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("open/file")).unwrap(), "open/file");
    assert_eq!((mode(&to.join("open/program")), mode(&to.join("closed"))), (0o755, 0o700));
    assert!(to.join("open/below").is_dir() && to.join("link").is_symlink());
    for absent in ["key", "closed/open", "socket"] {
        assert!(to.join(absent).symlink_metadata().is_err(), "{absent}");
    }
}

#[test]
fn hidden_working_directory_is_bound() {
    let bench = Bench::new();
    let below = |directory: &Path, work: &str| {
        Root::prepare(&ImageSpec::Host, &bench.programs, &bench.path(work), Some(directory)).unwrap()
    };
    for (place, work) in [("/tmp", "a"), ("/var/tmp", "a-var")] {
        let project = tempfile::tempdir_in(place).unwrap();
        let root = below(project.path(), work);
        let bind = root.binds.iter().find(|bind| bind.source == project.path()).unwrap();
        assert!(bind.target == project.path() && bind.read_only);
        let mounts = root.mounts();
        let at = |path: &Path| mounts.iter().position(|mount| mount.target() == path).unwrap();
        assert!(at(Path::new(place)) < at(project.path()));
        assert!(root.outer_mounts().contains(&Mount::Bind(bind)), "a scratch mount hides what is below");
        assert!(!root.outer_mounts().iter().any(|mount| mount.target() == Path::new("/var/log")));
    }
    // A working directory below a cover, which has a mount point for it.
    let root = below(Path::new("/var/log"), "log");
    assert!(!targets(&root).contains(&"/var/log"), "seen through /var");
    let project = tempfile::tempdir_in("/var/cache").unwrap();
    let root = below(project.path(), "cache");
    let at = |path: &Path| root.binds.iter().find(|bind| bind.target == path).unwrap();
    let name = project.path().file_name().unwrap();
    assert!(at(Path::new("/var/cache")).source.join(name).is_dir());
    assert_eq!(at(project.path()).source, project.path());
    let root = below(Path::new("/usr/bin"), "b");
    assert!(!targets(&root).contains(&"/usr/bin"), "seen through /usr");
    for hidden in ["/tmp", "/var/tmp", "/dev"] {
        let root = below(Path::new(hidden), &format!("c{}", hidden.replace('/', "-")));
        assert!(root.notes[0].starts_with(hidden) && !targets(&root).contains(&hidden));
    }
}

#[test]
fn the_bind_that_holds_the_skeleton_is_first() {
    let bench = Bench::new();
    let image = bench.image("image");
    let root =
        Root::prepare(&ImageSpec::Path(image.clone()), &bench.programs, &image.join("var/lib/work"), None)
            .unwrap();
    assert_eq!(targets(&root)[0], "/var");
    assert_eq!(root.mounts()[0].target(), Path::new("/var"));
}

#[test]
fn digest_follows_the_content() {
    let bench = Bench::new();
    let image = bench.image("image");
    let spec = ImageSpec::Path(image.clone());
    let first = bench.prepare(&spec, "a").unwrap().digest;
    assert_eq!(first.len(), 64);
    assert_eq!(bench.prepare(&spec, "b").unwrap().digest, first);
    fs::write(image.join("usr/bin/tool"), "another tool").unwrap();
    let second = bench.prepare(&spec, "c").unwrap().digest;
    assert_ne!(second, first);
    fs::rename(image.join("usr/bin/tool"), image.join("usr/bin/other")).unwrap();
    assert_ne!(bench.prepare(&spec, "d").unwrap().digest, second);
    fs::rename(image.join("usr/bin/other"), image.join("usr/bin/tool")).unwrap();
    // Entries that the guest replaces with its own, and the work directory itself, are not part of
    // the image.
    fs::write(image.join("proc/1"), "").unwrap();
    let work = image.join("var/lib/work");
    fs::create_dir_all(image.join("var/lib")).unwrap();
    let third = bench.prepare(&spec, "g").unwrap().digest;
    fs::write(image.join("tmp/x"), "").unwrap();
    assert_eq!(Root::prepare(&spec, &bench.programs, &work, None).unwrap().digest, third);
    let probe = bench.prepare(&ImageSpec::Probe, "e").unwrap().digest;
    fs::write(&bench.programs.probe, "another probe").unwrap();
    assert_ne!(bench.prepare(&ImageSpec::Probe, "f").unwrap().digest, probe);
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

/// A store with one image, as if pulled from a registry.
fn store_with(bench: &Bench, name: &str) -> Store {
    let store = Store::at(CacheDirectory::at(bench.path("cache")));
    let ledger = Ledger::create(&StateDirectory::at(bench.path("state")), "make").unwrap();
    let image = bench.image("source");
    store
        .cache()
        .directory(&Store::entry("oci", "0123456789abcdef0123"), &ledger, |staging| {
            fs::rename(&image, staging.join("tree"))?;
            let identity = "0123456789abcdef0123".to_string();
            Record::new(name.into(), identity, "content".into(), &staging.join("tree"))?.write(staging)
        })
        .unwrap();
    store
}

#[test]
fn an_image_in_the_store_is_used_in_place() {
    let bench = Bench::new();
    let store = store_with(&bench, "oci:example.test/a:1");
    let image = ImageSpec::Oci("example.test/a:1".into());
    let prepare = |work: &str| {
        Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path(work), None).unwrap()
    };
    let root = prepare("work");
    let tree = root.tree.clone().unwrap();
    assert!(tree.join("usr/bin/tool").is_file());
    assert_eq!(targets(&root), ["/etc", "/home", "/usr", "/var", "/vmlinuz"]);
    assert_eq!(root.digest, prepare("again").digest);
    let tar = |root: &Root| {
        let mut bytes = Vec::new();
        root.write_tree_tar(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(tar(&root), tar(&root));
}

#[test]
fn an_image_in_use_is_not_removed() {
    let bench = Bench::new();
    let store = store_with(&bench, "oci:example.test/a:1");
    let image = ImageSpec::Oci("example.test/a:1".into());
    let ledger = Ledger::create(&StateDirectory::at(bench.path("state")), "remove").unwrap();
    let root = Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path("work"), None).unwrap();
    let copy = root.clone();
    drop(root);
    assert!(matches!(store.remove("oci:example.test/a:1", &ledger), Err(ImageError::InUse { .. })));
    drop(copy);
    assert!(matches!(store.remove("oci:example.test/b", &ledger), Err(ImageError::NotCached { .. })));
    assert_eq!(store.remove("0123456789", &ledger).unwrap().len(), 1);
    assert!(store.list().is_empty());
    let error =
        Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path("later"), None).unwrap_err();
    assert!(error.to_string().contains("`weigh image build oci:example.test/a:1`"), "{error}");
    assert!(!bench.path("later").exists(), "refused before anything is made");
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
