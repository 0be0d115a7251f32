//! Ledgers that are cut, damaged, or of a newer format.

use super::*;
use std::os::unix::fs::symlink;

#[test]
fn a_truncated_last_line_is_ignored() {
    let (_base, state, path) = dead(&["whole"]);
    let whole = fs::read(&path).unwrap();
    let recorder = Recorder::default();
    // Cut the second entry at every byte.
    let second = b"{\"entry\":1,\"change\":{\"kind\":\"file\",\"path\":\"/nowhere/x\"}}\n";
    for length in 0..second.len() {
        fs::create_dir_all(state.ledger_dir()).unwrap();
        fs::write(&path, [&whole[..], &second[..length]].concat()).unwrap();
        recorder.0.lock().unwrap().clear();
        let sweep = sweep_dead(&state, &recorder).unwrap();
        assert_eq!(sweep.undone, [of_platform("whole")], "cut at {length}");
        assert!(sweep.damaged.is_empty() && sweep.failed.is_empty() && !path.exists());
    }
    fs::create_dir_all(state.ledger_dir()).unwrap();
    fs::write(&path, "").unwrap();
    assert!(sweep_dead(&state, &recorder).unwrap().undone.is_empty());
    assert!(!path.exists(), "a ledger that died before its first line is taken away");
}

#[test]
fn damage_is_reported_and_the_rest_is_undone() {
    let (_base, state, path) = dead(&["a", "b"]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\n", "\njunk\n", 1)).unwrap();
    let recorder = Recorder::default();
    let sweep = sweep_dead(&state, &recorder).unwrap();
    assert_eq!(*recorder.0.lock().unwrap(), ["b", "a"]);
    assert_eq!(sweep.damaged.len(), 1);
    assert!(sweep.damaged[0].1.contains("line 2") && sweep.damaged[0].0.exists());
    assert!(sweep_dead(&state, &recorder).unwrap().damaged.is_empty(), "reported once");
}

#[test]
fn changes_to_undo_outlive_damage() {
    let (_base, state, path) = dead(&["a", "stuck", "c"]);
    let text = fs::read_to_string(&path).unwrap();
    let damaged = text.replacen("\n", "\n{\"entry\":\n", 1);
    fs::write(&path, &damaged).unwrap();
    for round in 0..2 {
        let recorder = Recorder::default();
        let sweep = sweep_dead(&state, &recorder).unwrap();
        assert_eq!(sweep.failed.len(), 1, "round {round}: {sweep:?}");
        let (asked, reported) = [(&["c", "stuck", "a"][..], 1), (&["stuck"], 0)][round];
        assert_eq!(*recorder.0.lock().unwrap(), asked, "round {round}");
        assert_eq!(sweep.damaged.len(), reported, "round {round}: {sweep:?}");
    }
    assert_eq!(pending(&state).unwrap().runs, [("run".to_string(), vec![of_platform("stuck")])]);
    assert_eq!(fs::read_to_string(path.with_extension("damaged")).unwrap(), damaged);
    let header: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(kept.lines().next().unwrap()).unwrap(), header);
}

/// Without its first line a ledger does not show which boot it belongs to.
#[test]
fn nothing_that_runs_is_touched_by_a_ledger_without_a_boot() {
    let (_base, state, ledger) = begun();
    let mut running = crate::command::Invocation::new("sleep").arg("60").spawn().unwrap();
    ledger.record(Change::process(running.pid()).unwrap()).unwrap();
    let path = ledger.path().to_path_buf();
    abandon(ledger);
    let text = fs::read_to_string(&path).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    fs::write(&path, format!("junk\n{rest}")).unwrap();
    let sweep = sweep_dead(&state, &NoPlatforms).unwrap();
    assert_eq!((sweep.undone.len(), sweep.damaged.len()), (1, 1), "{sweep:?}");
    assert!(running.try_wait().unwrap().is_none(), "it was killed");
}

#[test]
fn an_unreadable_entry_does_not_keep_others_from_being_undone() {
    let (_base, state, path) = dead(&["thing"]);
    let beside = |name: &str| state.ledger_dir().join(name);
    // These names sort first, so that all others come after one of them.
    fs::create_dir(beside("a-directory.jsonl")).unwrap();
    symlink("/etc/passwd", beside("a-link.jsonl")).unwrap();
    symlink("nowhere", beside("a-loose-link.jsonl")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, beside("a-pipe.jsonl"), rustix::fs::Mode::RWXU).unwrap();
    fs::write(beside("no-utf-8.jsonl"), b"\xff\xfe\n\0\n").unwrap();
    let pending = pending(&state).unwrap();
    let names: Vec<&str> = pending.runs.iter().map(|(run, _)| run.as_str()).collect();
    assert_eq!((names, pending.unreadable.len()), (vec!["no-utf-8", "run"], 4), "{pending:?}");
    let recorder = Recorder::default();
    let sweep = sweep_dead(&state, &recorder).unwrap();
    assert_eq!(*recorder.0.lock().unwrap(), ["thing"]);
    assert!(!path.exists() && sweep.undone.len() == 1);
    assert_eq!(sweep.damaged.len(), 5, "{sweep:?}");
    assert!(fs::read_to_string("/etc/passwd").is_ok_and(|text| text.contains("root")));
}

#[test]
fn a_newer_format_is_left_alone() {
    let (_base, state, path) = dead(&["a"]);
    let text = fs::read_to_string(&path).unwrap().replace("\"ledger\":1", "\"ledger\":99");
    fs::write(&path, &text).unwrap();
    let recorder = Recorder::default();
    let sweep = sweep_dead(&state, &recorder).unwrap();
    assert!(recorder.0.lock().unwrap().is_empty() && sweep.damaged[0].1.contains("99"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
