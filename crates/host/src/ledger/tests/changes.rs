//! How each kind of change is undone.

use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;

#[test]
fn settings_of_an_earlier_boot_are_not_set_back() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("cgroup.subtree_control");
    let change = Change::SubtreeControl { file: file.clone(), added: vec!["cpu".into()] };
    for (this_boot, then) in [(false, "cpu memory"), (true, "-cpu")] {
        fs::write(&file, "cpu memory").unwrap();
        assert_eq!(change.undo(base.path(), &NoPlatforms, this_boot).unwrap(), UndoOutcome::Restored);
        assert_eq!(fs::read_to_string(&file).unwrap(), then, "this boot: {this_boot}");
    }
}

#[test]
fn a_link_in_place_of_a_control_file_is_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let (file, theirs) = (base.path().join("cgroup.subtree_control"), base.path().join("theirs"));
    fs::write(&theirs, "cpu memory").unwrap();
    symlink(&theirs, &file).unwrap();
    let change = Change::SubtreeControl { file, added: vec!["cpu".into()] };
    change.undo(base.path(), &NoPlatforms, true).unwrap_err();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "cpu memory");
}

#[test]
fn controllers_by_which_others_have_set_limits_stay_on() {
    let base = tempfile::tempdir().unwrap();
    let (file, slice) = (base.path().join("cgroup.subtree_control"), base.path().join("user.slice"));
    let own = base.path().join("weighbridge-run");
    for group in [&slice, &own] {
        fs::create_dir(group).unwrap();
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(group.join("cpu.weight"), "100\n").unwrap();
    }
    fs::write(own.join("cpu.max"), "50000 100000\n").unwrap();
    fs::write(slice.join("memory.max"), "4096\n").unwrap();
    let change = Change::SubtreeControl { file: file.clone(), added: vec!["cpu".into()] };
    fs::write(&file, "cpu memory").unwrap();
    assert_eq!(change.undo(base.path(), &NoPlatforms, true).unwrap(), UndoOutcome::Restored);
    assert_eq!(fs::read_to_string(&file).unwrap(), "-cpu");
    fs::write(&file, "cpu memory").unwrap();
    fs::write(slice.join("cpu.max"), "20000 100000\n").unwrap();
    let UndoOutcome::Left(reason) = change.undo(base.path(), &NoPlatforms, true).unwrap() else {
        panic!("it is taken away")
    };
    assert!(reason.contains("user.slice/cpu.max limits another group by cpu"), "{reason}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "cpu memory");
}

/// A guest's user can make a tree that is deeper than the number of files a process may open.
#[test]
fn trees_of_any_depth_are_removed() {
    let (base, _state, ledger) = begun();
    let ours = base.path().join("weighbridge-ours");
    ledger.record(Change::Directory { path: ours.clone() }).unwrap();
    fs::create_dir(&ours).unwrap();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    let mut at = rustix::fs::open(&ours, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    // More levels than one round moves up, and not a multiple of that number.
    for level in 0..limit.clamp(1500, 5000) {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkdirat(&at, "d", mode).unwrap();
        if level % 7 == 0 {
            rustix::fs::mkdirat(&at, "e", mode).unwrap();
            rustix::fs::symlinkat("/etc", &at, "link").unwrap();
        }
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    drop(at);
    ledger.close(&NoPlatforms).unwrap();
    assert!(!ours.exists());
}

/// A guest's root may set attributes that forbid removing a file even to the host's root.
#[test]
fn trees_with_immutable_files_are_removed() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    use rustix::io::Errno;
    const TEST: &str = "trees_with_immutable_files_are_removed";
    let Some(()) = as_root(TEST) else { return };
    let (base, _state, ledger) = begun();
    let ours = base.path().join("weighbridge-ours");
    ledger.record(Change::Directory { path: ours.clone() }).unwrap();
    for directory in ["shut/below", "grows"] {
        fs::create_dir_all(ours.join(directory)).unwrap();
    }
    for file in ["file", "log", "shut/below/file", "grows/file"] {
        fs::write(ours.join(file), "").unwrap();
    }
    let (immutable, append) = (IFlags::IMMUTABLE, IFlags::APPEND);
    for (name, flag) in [
        ("file", immutable),
        ("log", append),
        ("grows", append),
        ("shut/below", immutable),
        ("shut", immutable),
        ("", immutable),
    ] {
        let file = fs::File::open(ours.join(name)).unwrap();
        match ioctl_getflags(&file).and_then(|flags| ioctl_setflags(&file, flags | flag)) {
            Err(error @ (Errno::OPNOTSUPP | Errno::NOTTY | Errno::PERM)) => {
                eprintln!("SKIPPED {TEST}: no such attributes here: {error}");
                return;
            }
            set => set.unwrap(),
        }
    }
    ledger.close(&NoPlatforms).unwrap();
    assert!(!ours.exists());
}

#[test]
fn removing_a_directory_follows_no_link() {
    let (base, state) = state();
    let outside = precious(&base, "outside");
    let ledger = Ledger::create(&state, "run").unwrap();
    let ours = base.path().join("weighbridge-ours");
    ledger.record(Change::Directory { path: ours.clone() }).unwrap();
    fs::create_dir(&ours).unwrap();
    symlink(&outside, ours.join("link")).unwrap();
    symlink("/nowhere", ours.join("dangling")).unwrap();
    // The recorded place itself becomes a link to something else.
    let swapped = base.path().join("weighbridge-swapped");
    ledger.record(Change::Directory { path: swapped.clone() }).unwrap();
    symlink(&outside, &swapped).unwrap();
    let Err(LedgerError::Undo(failed)) = ledger.close(&NoPlatforms) else {
        panic!("a link is not the directory")
    };
    assert_eq!(failed.len(), 1);
    assert!(matches!(failed[0].1, UndoError::NotADirectory(_)), "{}", failed[0].1);
    assert!(!ours.exists() && outside.join("precious").exists());
}

#[test]
fn mounts_are_undone_and_never_crossed() {
    let Some(()) = as_root("mounts_are_undone_and_never_crossed") else { return };
    let (base, _, ledger) = begun();
    let outside = precious(&base, "outside");
    let ours = base.path().join("weighbridge-ours");
    let directory = ledger.record(Change::Directory { path: ours.clone() }).unwrap();
    let target = ours.join("a/target");
    let mount = ledger.record(Change::Mount { target: target.clone() }).unwrap();
    // It is not mounted yet, and its directory does not exist: there is nothing to undo.
    ledger.undo(mount, &NoPlatforms).unwrap();
    fs::create_dir_all(&target).unwrap();
    let mount = ledger.record(Change::Mount { target: target.clone() }).unwrap();
    rustix::mount::mount_bind(&outside, &target).unwrap();
    // Both are on the same file system, so only the mount itself distinguishes them.
    let error = ledger.undo(directory, &NoPlatforms).unwrap_err().to_string();
    assert!(error.contains("mounted"), "{error}");
    assert!(outside.join("precious").exists());
    assert!(matches!(
        ledger.record(Change::Mount { target: target.clone() }),
        Err(LedgerError::Refused { .. })
    ));
    // The mount is in use: it is detached now, and the kernel frees it once nobody uses it.
    let busy = fs::File::open(target.join("precious")).unwrap();
    ledger.undo(mount, &NoPlatforms).unwrap();
    drop(busy);
    ledger.close(&NoPlatforms).unwrap();
    assert!(!ours.exists() && outside.join("precious").exists());
}

#[test]
fn a_process_is_known_by_its_start_and_goes_with_its_session() {
    let shell = || {
        crate::command::Invocation::new("setsid")
            .args(["sh", "-c", "sleep 60 & echo $$; wait"])
            .spawn()
            .unwrap()
    };
    let (_base, _, ledger) = begun();
    let mut running = shell();
    let mut lines = BufReader::new(fs::File::from(running.take_output().unwrap())).lines();
    let pid: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    let start = crate::process::start_ticks(pid).unwrap();
    let wrong = ledger.record(Change::Process { pid, start_ticks: start + 1 }).unwrap();
    ledger.undo(wrong, &NoPlatforms).unwrap();
    assert!(crate::process::is_alive(pid, start), "another process of that number must live");
    let members = crate::process::of_session(pid);
    assert_eq!(members.len(), 2, "{members:?}");
    let right = ledger.record(Change::process(pid).unwrap()).unwrap();
    ledger.undo(right, &NoPlatforms).unwrap();
    assert!(crate::process::of_session(pid).is_empty());
    assert!(!crate::process::is_alive(pid, start));
    ledger.close(&NoPlatforms).unwrap();
}

#[test]
fn a_process_of_an_earlier_boot_is_gone() {
    let (_base, state) = state();
    let mut running = crate::command::Invocation::new("sleep").arg("60").spawn().unwrap();
    let ledger = Ledger::create(&state, "run").unwrap();
    ledger.record(Change::process(running.pid()).unwrap()).unwrap();
    let path = ledger.path().to_path_buf();
    abandon(ledger);
    let text = fs::read_to_string(&path).unwrap().replace(&crate::facts::boot_id(), "another-boot");
    fs::write(&path, text).unwrap();
    assert_eq!(sweep_dead(&state, &NoPlatforms).unwrap().undone.len(), 1);
    assert!(running.try_wait().unwrap().is_none(), "it was killed although the number is of another boot");
}
