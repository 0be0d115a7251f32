//! The host's own root as an image.

use super::*;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

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
