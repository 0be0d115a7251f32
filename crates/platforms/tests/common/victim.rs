//! A process that is killed while it has guests.

use super::{Bench, MINUTE, command, nothing_is_left, processes, traces};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_host::ledger::{Sweep, sweep};
use weigh_host::state::StateDirectory;
use weigh_platforms::{GuestRequest, Undoers};

/// Set for the process that is killed: environment, state directory, run, and what it does.
const VICTIM: &str = "WEIGH_TEST_VICTIM";

/// When the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// Its guest runs a command.
    Running,
    /// Its guest is frozen.
    Frozen,
    /// This long after it began to launch.
    Launching(Duration),
}

/// Called by the ignored test `victim`. Does nothing in any other process.
pub fn play() {
    let Ok(what) = std::env::var(VICTIM) else { return };
    let words: Vec<&str> = what.split('|').collect();
    let bench = Bench::at(Path::new(words[1]), words[2]);
    println!("\nbegins");
    let request = GuestRequest { publish: vec![7001], ..bench.request(words[0]) };
    // On a busy host, an emulated machine is sometimes lost. What a kill leaves can be tested with
    // a second one just as well.
    let mut guest = bench.launch(&request).or_else(|lost| {
        println!("{lost}");
        bench.launch(&GuestRequest { instance: request.instance + 1000, ..request.clone() })
    });
    let guest = guest.as_mut().unwrap();
    // A root without programs has no sleep; the guest runs even so.
    let _ = guest.session().start(&command(&["sleep", "1000"]));
    if words[3] == "frozen" {
        guest.freeze().unwrap();
    }
    println!("\nready");
    std::thread::sleep(Duration::from_secs(120));
}

/// Kills a process that has a guest of the environment with SIGKILL, sweeps, and asserts that
/// nothing is left and that a second sweep has nothing to do. Returns the number of undone changes.
pub fn kill_and_sweep(test: &str, environment: &str, when: Killed) -> usize {
    let base = tempfile::tempdir_in(processes::place()).unwrap();
    std::fs::set_permissions(base.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let run = format!("test-{test}-{}", std::process::id());
    let ledgers = base.path().join("state");
    let state = if when == Killed::Frozen { "frozen" } else { "running" };
    let mut child = Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture"])
        .env(VICTIM, format!("{environment}|{}|{run}|{state}", ledgers.display()))
        .log_to(&base.path().join("victim.log"))
        .spawn()
        .unwrap();
    let output = BufReader::new(std::fs::File::from(child.take_output().unwrap()));
    let mut lines = output.lines().map_while(Result::ok);
    let mut until = |word: &str| {
        let log = || std::fs::read_to_string(base.path().join("victim.log")).unwrap_or_default();
        assert!(lines.any(|line| line == word), "{environment}: never {word}: {}", log());
    };
    match when {
        Killed::Launching(after) => {
            until("begins");
            std::thread::sleep(after);
        }
        _ => {
            until("ready");
            assert!(!traces(&run).is_empty(), "{environment}: the search for traces finds nothing at all");
        }
    }
    child.kill_group();
    child.wait(MINUTE).unwrap().unwrap();
    let swept = sweep_dead(&StateDirectory::at(&ledgers));
    assert!(swept.failed.is_empty(), "{environment} {when:?}: {:?}", swept.failed);
    assert!(!swept.undone.is_empty(), "{environment} {when:?}");
    nothing_is_left(&run);
    assert!(!ledgers.exists(), "{environment} {when:?}");
    let again = sweep(&StateDirectory::at(&ledgers), &Undoers).unwrap();
    assert!(again.undone.is_empty() && again.failed.is_empty());
    swept.undone.len()
}

/// The same for a process that is killed the given milliseconds after it began to launch.
pub fn kill_while_launching(test: &str, environment: &str, after_ms: &[u64]) {
    for after_ms in after_ms {
        let when = Killed::Launching(Duration::from_millis(*after_ms));
        kill_and_sweep(&format!("{test}-{after_ms}ms"), environment, when);
    }
}

/// Sweeps what a dead process left. A newly forked child of it holds the ledger a moment longer,
/// until its exec.
fn sweep_dead(state: &StateDirectory) -> Sweep {
    let end = Instant::now() + MINUTE;
    loop {
        let swept = sweep(state, &Undoers).unwrap();
        if swept.live.is_empty() || Instant::now() > end {
            return swept;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
