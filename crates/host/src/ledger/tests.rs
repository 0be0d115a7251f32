//! Tests of the ledger, including one that kills a process.

use super::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::time::Duration;

/// Environment variable of a test's child process: the state directory, the base of what it
/// changes, and where it stops.
const CHILD: &str = "WEIGH_TEST_LEDGER_CHILD";
/// The line with which the child process reports that it has stopped there.
const READY: &str = "ready to be killed";

fn state() -> (tempfile::TempDir, StateDirectory) {
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(base.path().join("state"));
    (base, state)
}

/// A state directory with the ledger of a run.
fn begun() -> (tempfile::TempDir, StateDirectory, Ledger) {
    let (base, state) = state();
    let ledger = Ledger::create(&state, "run").unwrap();
    (base, state, ledger)
}

/// The file of a ledger with these platform changes, whose process has died.
fn dead(ids: &[&str]) -> (tempfile::TempDir, StateDirectory, PathBuf) {
    let (base, state, ledger) = begun();
    for id in ids {
        ledger.record(of_platform(id)).unwrap();
    }
    let path = ledger.path().to_path_buf();
    abandon(ledger);
    (base, state, path)
}

/// Remembers what it was asked to undo, and fails for ids that say so.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl PlatformUndo for Recorder {
    fn undo(&self, _: &str, _: &str, id: &str, _: &serde_json::Value) -> Result<UndoOutcome, UndoError> {
        self.0.lock().unwrap().push(id.into());
        match id {
            _ if id.starts_with("stuck") => Err(UndoError::Platform("it is stuck".into())),
            _ if id.starts_with("taken") => Ok(UndoOutcome::Left("somebody has it".into())),
            _ => Ok(UndoOutcome::Restored),
        }
    }
}

fn of_platform(id: &str) -> Change {
    Change::Platform {
        platform: "p".into(),
        what: "thing".into(),
        id: id.into(),
        detail: serde_json::json!({"n": 1}),
    }
}

/// Makes a directory with a file that nothing may remove.
fn precious(base: &tempfile::TempDir, name: &str) -> PathBuf {
    let directory = base.path().join(name);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("precious"), "x").unwrap();
    directory
}

/// Ends a ledger as the death of its process would: the lock goes, the file stays.
fn abandon(ledger: Ledger) {
    assert_eq!(Arc::strong_count(&ledger.0), 1);
    drop(ledger);
}

#[test]
fn a_closed_ledger_leaves_nothing() {
    let (base, state, ledger) = begun();
    let directory = base.path().join("weighbridge-d");
    ledger.record(Change::Directory { path: directory.clone() }).unwrap();
    fs::create_dir_all(directory.join("deep/er")).unwrap();
    fs::write(directory.join("deep/file"), "x").unwrap();
    let file = base.path().join("weighbridge-f");
    let entry = ledger.record(Change::File { path: file.clone() }).unwrap();
    fs::write(&file, "x").unwrap();
    ledger.undo(entry, &NoPlatforms).unwrap();
    assert!(!file.exists());
    ledger.undo(entry, &NoPlatforms).unwrap();
    assert_eq!(ledger.standing().len(), 1);
    ledger.close(&NoPlatforms).unwrap();
    assert!(!directory.exists() && !state.path().exists());
    ledger.close(&NoPlatforms).unwrap();
    assert!(matches!(ledger.record(of_platform("late")), Err(LedgerError::Closed(_))));
}

#[test]
fn names_that_could_leave_the_directory_are_refused() {
    let (_base, state) = state();
    for name in ["", "../x", "a/b", ".hidden", "a b"] {
        assert!(matches!(Ledger::create(&state, name), Err(LedgerError::Name(_))), "{name}");
    }
    let first = Ledger::create(&state, "run").unwrap();
    assert!(matches!(Ledger::create(&state, "run"), Err(LedgerError::Exists { .. })));
    first.close(&NoPlatforms).unwrap();
    Ledger::create(&state, "run").unwrap().close(&NoPlatforms).unwrap();
}

#[test]
fn the_newest_change_is_undone_first_and_failed_ones_stay() {
    let (_base, state, ledger) = begun();
    for id in ["first", "stuck", "forgotten", "last"] {
        let entry = ledger.record(of_platform(id)).unwrap();
        if id == "forgotten" {
            ledger.forget(entry).unwrap();
        }
    }
    let recorder = Recorder::default();
    let Err(LedgerError::Undo(failed)) = ledger.close(&recorder) else {
        panic!("the stuck one must be reported")
    };
    let [(change, error)] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!((change, error.to_string().as_str()), (&of_platform("stuck"), "it is stuck"));
    assert_eq!(*recorder.0.lock().unwrap(), ["last", "stuck", "first"]);
    assert_eq!(pending(&state).unwrap().runs, [("run".to_string(), vec![of_platform("stuck")])]);
    drop(ledger);
    let again = sweep_dead(&state, &Recorder::default()).unwrap();
    assert_eq!((again.undone.len(), again.failed.len()), (0, 1));
    assert!(state.ledger_dir().join("run.jsonl").exists());
}

#[test]
fn changes_that_are_recorded_together_are_undone_one_by_one() {
    let (_base, state, ledger) = begun();
    let ids = ledger.record_all(["a", "b", "c"].map(of_platform).to_vec()).unwrap();
    assert_eq!(ids.len(), 3);
    ledger.forget(ids[1]).unwrap();
    let outside = Change::Directory { path: "relative".into() };
    assert!(ledger.record_all(vec![of_platform("d"), outside]).is_err());
    assert_eq!(ledger.standing(), [of_platform("a"), of_platform("c")]);
    assert_eq!(ledger.record_all(Vec::new()).unwrap(), []);
    abandon(ledger);
    let recorder = Recorder::default();
    sweep(&state, &recorder).unwrap();
    assert_eq!(*recorder.0.lock().unwrap(), ["c", "a"]);
}

/// Machines that do not answer are waited for at once, and none of them hides what has become of the
/// others. What is here keeps its order.
#[test]
fn changes_elsewhere_are_undone_at_once_and_recorded_one_by_one() {
    struct Elsewhere<'a> {
        ledger: &'a Path,
        begun: Mutex<Vec<String>>,
    }

    impl PlatformUndo for Elsewhere<'_> {
        fn undo(&self, _: &str, _: &str, id: &str, _: &serde_json::Value) -> Result<UndoOutcome, UndoError> {
            self.begun.lock().unwrap().push(id.into());
            let begun = || self.begun.lock().unwrap().len();
            let recorded = || fs::read_to_string(self.ledger).unwrap().matches("undone").count();
            let in_time = |is_so: &dyn Fn() -> bool| crate::wait::until(Duration::from_secs(20), is_so);
            let in_turn = match id {
                "newest" => begun() == 1,
                "oldest" => begun() == 5,
                "late" => in_time(&|| begun() == 4 && recorded() == 2),
                _ => in_time(&|| begun() == 4),
            };
            let failed = |why: &str| Err(UndoError::Platform(why.into()));
            match id {
                _ if !in_turn => failed("it is not its turn"),
                "stuck" => failed("it is stuck"),
                _ => Ok(UndoOutcome::Restored),
            }
        }

        fn is_elsewhere(&self, platform: &str) -> bool {
            platform == "elsewhere"
        }
    }

    let elsewhere = |id: &str| Change::Platform {
        platform: "elsewhere".into(),
        what: "thing".into(),
        id: id.into(),
        detail: serde_json::json!({}),
    };
    for is_swept in [false, true] {
        let (_base, state, ledger) = begun();
        ledger.record(of_platform("oldest")).unwrap();
        ledger.record_all(["late", "stuck", "soon"].map(elsewhere).to_vec()).unwrap();
        ledger.record(of_platform("newest")).unwrap();
        let path = ledger.path().to_path_buf();
        let undoer = Elsewhere { ledger: &path, begun: Mutex::default() };
        let failed = if is_swept {
            abandon(ledger);
            sweep_dead(&state, &undoer).unwrap().failed
        } else {
            let Err(LedgerError::Undo(failed)) = ledger.close(&undoer) else {
                panic!("the stuck one must be reported")
            };
            failed
        };
        let [(change, error)] = &failed[..] else { panic!("{failed:?}") };
        assert_eq!((change, error.to_string().as_str()), (&elsewhere("stuck"), "it is stuck"));
        assert_eq!(pending(&state).unwrap().runs, [("run".to_string(), vec![elsewhere("stuck")])]);
    }
}

#[test]
fn a_live_ledger_is_never_swept() {
    let (_base, state) = state();
    let ledger = Ledger::create(&state, "alive").unwrap();
    ledger.record(of_platform("thing")).unwrap();
    let recorder = Recorder::default();
    let sweep = sweep(&state, &recorder).unwrap();
    assert_eq!(sweep.live, ["alive"]);
    assert!(recorder.0.lock().unwrap().is_empty());
    abandon(ledger);
    let sweep = sweep_dead(&state, &recorder).unwrap();
    assert_eq!(sweep.undone, [of_platform("thing")]);
    assert!(!state.path().exists());
}

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
fn changes_that_others_took_over_are_left_and_reported() {
    let (_base, state, ledger) = begun();
    for id in ["a", "taken", "b", "taken again"] {
        ledger.record(of_platform(id)).unwrap();
    }
    let recorder = Recorder::default();
    ledger.close(&recorder).unwrap();
    let reason = |id| (of_platform(id), "somebody has it".to_string());
    assert_eq!(ledger.left_in_place(), [reason("taken again"), reason("taken")]);
    assert!(!state.path().exists(), "it is in no ledger any more");
    let (_base, state, _path) = dead(&["taken"]);
    let sweep = sweep_dead(&state, &recorder).unwrap();
    assert_eq!((sweep.undone.len(), sweep.left), (0, vec![reason("taken")]));
    assert!(!state.path().exists());
}

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

/// Whether this user is root; the test is skipped if not.
pub(super) fn as_root(test: &str) -> Option<()> {
    if !crate::facts::is_root() {
        assert!(!std::env::var("WEIGH_REQUIRE").unwrap_or_default().contains("native"), "{test} needs root");
        eprintln!("SKIPPED {test}: needs root");
        return None;
    }
    Some(())
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

/// The child process of the test below. It records and makes changes, and reports its progress
/// until it is killed.
#[test]
fn child_that_changes_things() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (base, stop) = order.split_once('|').unwrap();
    let (base, stop) = (PathBuf::from(base), stop.parse::<usize>().unwrap());
    let state = StateDirectory::at(base.join("state"));
    let ledger = Ledger::create(&state, "killed").unwrap();
    let mut done = 0;
    let mut reached = move || {
        if done == stop {
            // The test waits for this line, then kills this process.
            println!("\n{READY}");
            loop {
                std::thread::park();
            }
        }
        done += 1;
    };
    let work = state.path().parent().unwrap().join("weighbridge-work");
    reached();
    ledger.record(Change::Directory { path: work.clone() }).unwrap();
    reached();
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), "x").unwrap();
    reached();
    let target = work.join("mnt");
    let root = crate::facts::is_root();
    let mount = ledger.record(Change::Mount { target: target.clone() }).unwrap();
    reached();
    fs::create_dir(&target).unwrap();
    if root {
        rustix::mount::mount("none", &target, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        fs::write(target.join("inside"), "x").unwrap();
    }
    reached();
    let mut sleeper = crate::command::Invocation::new("sleep").arg("60").spawn().unwrap();
    fs::write(state.path().parent().unwrap().join("pid"), sleeper.pid().to_string()).unwrap();
    ledger.record(Change::process(sleeper.pid()).unwrap()).unwrap();
    reached();
    // Half undone: the change is undone, but its line is not written.
    sleeper.kill_group();
    if root {
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    reached();
    ledger.forget(mount).unwrap();
    reached();
    fs::remove_dir_all(&work).unwrap();
    reached();
    std::process::exit(7);
}

#[test]
fn killed_at_any_point_everything_is_swept() {
    for stop in 0..9 {
        let (base, state) = state();
        let mut child = crate::command::Invocation::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::tests::child_that_changes_things", "--nocapture"])
            .env(CHILD, format!("{}|{stop}", base.path().display()))
            .log_to(&base.path().join("log"))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(fs::File::from(child.take_output().unwrap())).lines();
        let is_ready = lines.any(|line| line.unwrap() == READY);
        let log = || fs::read_to_string(base.path().join("log")).unwrap();
        assert!(is_ready, "the child ended before {stop}: {}", log());
        assert_eq!(sweep(&state, &NoPlatforms).unwrap().live, ["killed"], "it lives at {stop}");
        // Kills only the child, as `kill -9` would: what it started goes on.
        let handle = crate::process::handle(child.pid()).unwrap().unwrap();
        crate::process::kill(&handle).unwrap();
        assert!(crate::process::wait_end(&handle, Duration::from_secs(5)));
        let result = sweep_dead(&state, &NoPlatforms).unwrap();
        assert!(result.failed.is_empty() && result.live.is_empty(), "at {stop}: {result:?}");
        assert!(!base.path().join("weighbridge-work").exists(), "at {stop} the directory is left");
        assert!(!state.path().exists(), "at {stop} the state directory is left");
        if let Ok(pid) = fs::read_to_string(base.path().join("pid")) {
            let pid: u32 = pid.parse().unwrap();
            let alive =
                crate::process::start_ticks(pid).is_some_and(|start| crate::process::is_alive(pid, start));
            assert!(!alive, "at {stop} the process is left");
        }
        let again = sweep_dead(&state, &NoPlatforms).unwrap();
        assert!(again.undone.is_empty(), "a second sweep finds nothing");
    }
}

#[test]
fn sweeps_do_no_harm_to_runs_that_start_and_end_meanwhile() {
    let (_base, state) = state();
    let over = std::sync::atomic::AtomicBool::new(false);
    let swept = std::thread::scope(|scope| {
        let sweepers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut undone = 0;
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let recorder = Recorder::default();
                        // A ledger may vanish between being listed and opened; that is not an error
                        // either.
                        sweep(&state, &recorder).unwrap();
                        undone += recorder.0.lock().unwrap().len();
                    }
                    undone
                })
            })
            .collect();
        /// Stops the sweepers when the test ends, even by a panic.
        struct Over<'a>(&'a std::sync::atomic::AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let end = Over(&over);
        for run in 0..50 {
            let ledger = Ledger::create(&state, &format!("run-{run}")).unwrap();
            ledger.record(of_platform("thing")).unwrap();
            let recorder = Recorder::default();
            ledger.close(&recorder).unwrap();
            assert_eq!(*recorder.0.lock().unwrap(), ["thing"]);
        }
        drop(end);
        sweepers.into_iter().map(|sweeper| sweeper.join().unwrap()).sum::<usize>()
    });
    assert_eq!(swept, 0, "a live run was swept");
}

#[test]
fn many_threads_share_a_ledger() {
    let (_base, state, ledger) = begun();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ledger = ledger.clone();
            scope.spawn(move || {
                for n in 0..20 {
                    let entry = ledger.record(of_platform(&format!("{thread}-{n}"))).unwrap();
                    if n % 2 == 0 {
                        ledger.forget(entry).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(pending(&state).unwrap().runs[0].1.len(), 40);
    let recorder = Recorder::default();
    ledger.close(&recorder).unwrap();
    assert_eq!(recorder.0.lock().unwrap().len(), 40);
}

#[test]
fn a_disk_that_is_full_spoils_no_line() {
    let Some(()) = as_root("a_disk_that_is_full_spoils_no_line") else { return };
    let base = tempfile::tempdir().unwrap();
    let disk = base.path().join("disk");
    fs::create_dir(&disk).unwrap();
    rustix::mount::mount("none", &disk, "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=16k"))
        .unwrap();
    let _unmount = Unmount(disk.clone());
    let state = StateDirectory::at(disk.join("state"));
    let ledger = Ledger::create(&state, "run").unwrap();
    let mut recorded = 0;
    let error = loop {
        match ledger.record(of_platform(&format!("{recorded}-{}", "x".repeat(500)))) {
            Ok(_) => recorded += 1,
            Err(error) => break error,
        }
        assert!(recorded < 1000, "the disk is never full");
    };
    assert!(
        matches!(&error, LedgerError::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC)),
        "{error}"
    );
    let text = fs::read(ledger.path()).unwrap();
    assert_eq!(text.last(), Some(&b'\n'), "half a line was left");
    let recorder = Recorder::default();
    // There may be no room to record the undo either; undoing goes on all the same.
    let closed = ledger.close(&recorder);
    drop(ledger);
    assert!(recorded > 0 && recorder.0.lock().unwrap().len() == recorded, "{closed:?}");
    assert!(closed.is_ok(), "{closed:?}");
}

/// Unmounts when the test ends, even by a panic.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
