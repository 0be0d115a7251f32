//! `weigh soak` through the binary, with real guests: for seconds, not hours.

use crate::support::{Stage, kill, listed, ready, shown, trials, wait_for, wait_until, with_native};
use serde_json::Value;
use std::collections::BTreeSet;

/// It lasts as long as requested, in guests that stay. It can be shown while it goes on, and says
/// so. If killed, it resumes for the remaining time, also in another boot. A day of it fits on a
/// disk.
#[test]
fn a_soak_lasts_is_shown_and_goes_on() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces"], "a_soak_lasts_is_shown_and_goes_on");
    let environments = on.split(',').count();
    let mut child = stage
        .spawn(&format!("soak spin syscall --on {on} --guests 1 --size quick --no-void --for 8s --out r"));
    let run = stage.here().join("r");
    wait_until("a block", || trials(&run).len() >= 4 * environments);
    stage.run("show r").ends_with(0).says(&["the run is still going on"]);
    kill(&mut child);
    let before = trials(&run);
    stage.stdout("clean");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let host = std::fs::read_to_string(run.join("host.json")).unwrap();
    std::fs::write(run.join("host.json"), host.replace(boot.trim(), "another-boot")).unwrap();

    stage.stdout("resume r");
    let all = trials(&run);
    assert_eq!(all[..before.len()], before[..]);
    // At least one block of two workloads.
    assert!(all.len() >= before.len() + 2 * environments, "{} and {}", before.len(), all.len());
    // One guest of each before, one of each after.
    let of = |trials: &[Value]| {
        let instance = |trial: &Value| trial["instance"].as_u64().unwrap();
        trials.iter().map(instance).collect::<BTreeSet<u64>>().len()
    };
    assert_eq!((of(&before), of(&all[before.len()..])), (environments, environments));
    let report = shown(&stage, "r");
    assert!(!report["warnings"].to_string().contains("still going on"), "{}", report["warnings"]);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    // Only lines per trial and per block grow: 8640 trials of each of two environments.
    let grows = ["samples.jsonl", "events.jsonl"];
    let bytes: u64 = grows.iter().map(|file| run.join(file).metadata().unwrap().len()).sum();
    let each = bytes as f64 / all.len() as f64;
    eprintln!("a_soak_lasts_is_shown_and_goes_on: {} trials, {each:.0} bytes each", all.len());
    assert!(each * 2.0 * 8640.0 < 140e6, "{each} bytes a trial");
    stage.host_is_as_before();
}

/// Killing the guest costs a trial, and the soak continues in another guest.
#[test]
fn a_guest_that_is_killed_is_replaced() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_guest_that_is_killed_is_replaced") {
        return;
    }
    let mut child = stage.spawn(
        "soak --on namespaces --baseline namespaces --guests 1 --no-void --for 5s --out r -- sleep 0.3171",
    );
    let run = stage.here().join("r");
    wait_until("two trials", || trials(&run).len() >= 2);
    // The first program of the guest, which is in its command's PID namespace and the parent of all
    // others there.
    let victim = wait_for("the command", || init_of("sleep\u{0}0.3171\u{0}", child.id()));
    let victim = rustix::process::Pid::from_raw(victim as i32).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    assert!(child.wait().unwrap().success(), "{}", stage.spawned_said());
    let all = trials(&run);
    let failed: Vec<&Value> = all.iter().filter(|trial| trial["outcome"]["kind"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["outcome"]["failure"], "guest-died");
    let last = all.last().unwrap();
    assert!(last["outcome"]["kind"] == "measured" && last["instance"] != failed[0]["instance"], "{last}");
    stage.host_is_as_before();
}

/// The process with number 1 in the PID namespace in which a command line runs, unless that is the
/// host's.
fn init_of(command: &str, weigh: u32) -> Option<u32> {
    let pids = || {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let line = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let space = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let running = pids().find(|pid| line(*pid) == command.as_bytes())?;
    let theirs = space(running).filter(|theirs| Some(theirs) != space(weigh).as_ref())?;
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_first = |pid: u32| {
        let text = status(pid);
        let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:").map(str::to_string));
        numbers.is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
    };
    pids().find(|pid| is_first(*pid) && space(*pid).as_ref() == Some(&theirs))
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// What would end a soak early, and what makes no sense, is refused before anything is done.
    #[test]
    fn invalid_soaks_are_refused() {
        let stage = Stage::with_fakes();
        for (words, said) in [
            ("--for 0s", "measures nothing"),
            ("--for soon", "soon"),
            ("--quick", "--for"),
            ("--blocks 3", "--for"),
            ("--gate 5", "weigh run --gate"),
            ("--neighbours htpp", "did you mean `http`?"),
            ("nginx", "--guests 1"),
        ] {
            stage.refuses(&format!("soak --on null {words}"), &[said]);
        }
        assert!(!stage.here().join("weigh-runs").exists());
        stage.host_is_as_before();
    }
}
