//! Tests of the ledger.

mod changes;
mod damage;
mod kills;
mod others;

use super::*;
use std::fs;
use std::time::Duration;

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
