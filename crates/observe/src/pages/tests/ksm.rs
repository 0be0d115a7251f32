//! Pages that KSM itself has merged (`Documentation/admin-guide/mm/ksm.rst`).

use super::super::Subject;
use super::guest::{Guest, may_scan, scan_held};
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_model::pages::{KindPairs, Merging, Shared, UnsettledPages};

const KSM: &str = "/sys/kernel/mm/ksm";

/// Runs KSM, and restores its settings when dropped. Only one test run of the host can have it at a
/// time.
struct MergingKernel {
    before: Vec<(&'static str, String)>,
    _lock: File,
}

fn number(name: &str) -> u64 {
    fs::read_to_string(Path::new(KSM).join(name)).unwrap().trim().parse().unwrap()
}

fn set(name: &str, value: &str) {
    fs::write(Path::new(KSM).join(name), value).unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
}

impl MergingKernel {
    /// The error says why KSM cannot be used.
    fn start() -> Result<Self, String> {
        if std::env::var_os("WEIGH_LONG").is_none() {
            return Err("it changes a setting of the whole host; WEIGH_LONG=1 has it".into());
        }
        let lock = File::create("/run/weighbridge-test-ksm.lock").map_err(|error| error.to_string())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err("another run of the tests has KSM".into()),
            Err(TryLockError::Error(error)) => return Err(error.to_string()),
        }
        if !Path::new(KSM).exists() || number("run") != 0 || number("pages_shared") != 0 {
            return Err("the kernel has no KSM, or somebody uses it".into());
        }
        // Settings that depend on others come last, and are restored in the opposite order.
        let wanted = [("run", "1"), ("sleep_millisecs", "5"), ("pages_to_scan", "4000"), ("smart_scan", "0")];
        let mut merging = Self { before: Vec::new(), _lock: lock };
        for (name, value) in wanted.into_iter().rev() {
            let Ok(text) = fs::read_to_string(Path::new(KSM).join(name)) else { continue };
            merging.before.push((name, text.trim().into()));
            set(name, value);
        }
        Ok(merging)
    }
}

impl Drop for MergingKernel {
    fn drop(&mut self) {
        // Nothing was merged before: 2 also unmerges memory of others that was merged meanwhile.
        let _ = fs::write(Path::new(KSM).join("run"), "2");
        for (name, value) in self.before.iter().rev() {
            let _ = fs::write(Path::new(KSM).join(name), value);
        }
    }
}

/// Merged memory is one frame and stays one when it is read, and KSM's settings are restored.
#[test]
fn pages_that_ksm_merged_stay_one_frame() {
    let test = "pages_that_ksm_merged_stay_one_frame";
    let Some(_) = may_scan(test) else { return };
    let _turn = super::turn();
    let settings = || -> Vec<(String, String)> {
        let read = |name: &str| {
            (name.to_string(), fs::read_to_string(Path::new(KSM).join(name)).unwrap_or_default())
        };
        ["run", "sleep_millisecs", "pages_to_scan", "smart_scan"].map(read).into()
    };
    let before = settings();
    let kernel = match MergingKernel::start() {
        Ok(kernel) => kernel,
        Err(reason) => {
            eprintln!("SKIPPED {test}: {reason}");
            return;
        }
    };
    let a = Guest::holding("mergeable:1:60 same:2:5");
    let b = Guest::holding("mergeable:1:40 mergeable:2:1");
    let ranges: Vec<_> = a.held.iter().chain(&b.held).cloned().collect();
    let begin = Instant::now();
    // All hundred pages of content 1 share one frame: `pages_sharing` counts those that were saved.
    while number("pages_sharing") < 99 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let subjects = [Subject::guest("a", a.pids.clone()), Subject::guest("b", b.pids.clone())];
    for round in 0..3 {
        let found = scan_held(&subjects, &ranges, 1, || {}).unwrap();
        let ksm = Shared { frames: 1, places: 100, spared_between_subjects: 1 };
        assert_eq!(
            (found.shared.ksm, found.unsettled),
            (ksm, UnsettledPages::default()),
            "round {round}: {found:#?}"
        );
        // Content 2 is in b's mergeable mapping once, which alone saves nothing.
        assert_eq!(found.merging, Merging { ksm_if_advised_pages: 5, ..Merging::default() });
        assert_eq!(found.matrix.total(), KindPairs { anonymous_pages: 5, ..KindPairs::default() });
    }
    drop((a, b, kernel));
    assert_eq!(settings(), before);
}
