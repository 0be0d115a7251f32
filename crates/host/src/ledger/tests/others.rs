//! What other users, and what they may have written, cannot bring about.

use super::*;
use std::os::unix::fs::symlink;

/// Another user can lock a file that everybody may open, such as one of an earlier version.
#[test]
fn a_lock_that_others_may_hold_keeps_nothing_from_being_undone() {
    use std::os::unix::fs::PermissionsExt;
    let (_base, state, path) = dead(&["thing"]);
    let text = fs::read_to_string(&path).unwrap();
    let pid = format!("\"pid\":{}", std::process::id());
    assert!(text.contains(&pid));
    let ended = text.replace(&pid, "\"pid\":4294967295");
    fs::write(&path, &ended).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let held = fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(!is_live(&state, "run"), "the process that wrote it has ended");
    let recorder = Recorder::default();
    let swept = sweep(&state, &recorder).unwrap();
    assert_eq!((swept.live, &*recorder.0.lock().unwrap()), (vec![], &vec!["thing".to_string()]));
    // While its process lives, the ledger is left alone.
    fs::create_dir_all(state.ledger_dir()).unwrap();
    fs::write(&path, &text).unwrap();
    let held = fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(sweep(&state, &recorder).unwrap().live, ["run"]);
}

#[test]
fn directories_that_others_may_write_are_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let (base, state, path) = dead(&["thing"]);
    let recorder = Recorder::default();
    for directory in [base.path(), state.path(), &state.ledger_dir()] {
        let before = fs::metadata(directory).unwrap().permissions();
        fs::set_permissions(directory, PermissionsExt::from_mode(0o777)).unwrap();
        for refused in [
            sweep(&state, &recorder).map(|_| ()),
            pending(&state).map(|_| ()),
            Ledger::create(&state, "new").map(|_| ()),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, LedgerError::Unsafe(_)), "{}: {error}", directory.display());
        }
        fs::set_permissions(directory, before).unwrap();
    }
    assert!(recorder.0.lock().unwrap().is_empty() && path.exists());
    assert_eq!(sweep_dead(&state, &recorder).unwrap().undone.len(), 1);
}

#[test]
fn files_and_directories_are_closed_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let (_base, state) = state();
    fs::create_dir_all(state.ledger_dir()).unwrap();
    fs::set_permissions(state.ledger_dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let ledger = Ledger::create(&state, "run").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state.ledger_dir()), mode(ledger.path())), (0o700, 0o600));
    ledger.close(&NoPlatforms).unwrap();
}

#[test]
fn changes_that_are_not_safe_to_undo_are_refused() {
    let (base, _, ledger) = begun();
    let full = precious(&base, "weighbridge-full");
    let link = base.path().join("weighbridge-link");
    symlink(&full, &link).unwrap();
    let refused = [
        Change::Directory { path: full.clone() },
        Change::Directory { path: link.clone() },
        Change::Directory { path: "/".into() },
        Change::Directory { path: "relative".into() },
        Change::Directory { path: base.path().join("new/../weighbridge-full") },
        Change::File { path: full.join("precious") },
        Change::Mount { target: "/proc".into() },
        Change::Directory { path: base.path().join("new") },
        Change::File { path: base.path().join("new") },
        Change::Mount { target: base.path().join("new") },
        Change::Cgroup { path: "user.slice".into() },
        Change::Cgroup { path: "weighbridge-x/../..".into() },
        Change::SubtreeControl { file: "/etc/passwd".into(), added: vec![] },
        Change::Process { pid: 1, start_ticks: 0 },
    ];
    for change in refused {
        assert!(matches!(ledger.record(change.clone()), Err(LedgerError::Refused { .. })), "{change}");
    }
    let empty = base.path().join("weighbridge-empty");
    fs::create_dir(&empty).unwrap();
    ledger.record(Change::Directory { path: empty }).unwrap();
    ledger.close(&NoPlatforms).unwrap();
    assert!(full.join("precious").exists());
}

/// A ledger may be damaged, or somebody else's work.
#[test]
fn nothing_of_others_is_undone_whatever_a_ledger_says() {
    let (base, state, ledger) = begun();
    // Another path of the state directory, as in the environment of another process.
    let link = base.path().join("link");
    symlink(state.path(), &link).unwrap();
    let ours = [state.path().join("work-run"), link.join("other"), base.path().join("cache/k.by-run.new")];
    for path in &ours {
        ledger.record(Change::Directory { path: path.clone() }).unwrap();
        fs::create_dir_all(path).unwrap();
    }
    let path = ledger.path().to_path_buf();
    abandon(ledger);
    let theirs = precious(&base, "theirs");
    let foreign = [
        Change::Directory { path: theirs.clone() },
        Change::File { path: theirs.join("precious") },
        Change::Mount { target: theirs.clone() },
        Change::Cgroup { path: "user.slice".into() },
        Change::Process { pid: 1, start_ticks: 0 },
    ];
    let mut text = fs::read_to_string(&path).unwrap();
    for (entry, change) in (3..).zip(&foreign) {
        text += &serde_json::to_string(&Line::Change { entry, change: change.clone() }).unwrap();
        text.push('\n');
    }
    fs::write(&path, text).unwrap();
    let sweep = sweep_dead(&state, &NoPlatforms).unwrap();
    let mut refused: Vec<Change> = sweep.failed.iter().map(|(change, _)| change.clone()).collect();
    refused.reverse();
    assert_eq!((refused.as_slice(), sweep.undone.len()), (&foreign[..], 3), "{sweep:?}");
    assert!(theirs.join("precious").exists() && !ours.iter().any(|path| path.exists()));
}
