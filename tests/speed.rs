//! What people wait for is short: help, the table of a long run, the page of a very long one.
//! `make bench` measures the same against its goals; here are bounds that a busy machine keeps,
//! too.
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]
#![allow(clippy::print_stderr, reason = "measured times are shown")]

#[path = "../crates/bench/src/long_run.rs"]
mod long_run;
mod support;

use std::time::{Duration, Instant};
use support::{Stage, shown};

/// Whether to hold commands to their time, which only optimised code can.
fn long() -> bool {
    std::env::var_os("WEIGH_LONG").is_some() && !cfg!(debug_assertions)
}

/// A short run as a long one is made from.
fn stage() -> Stage {
    let stage = Stage::new();
    std::fs::write(stage.here().join("long.toml"), long_run::MANIFEST).unwrap();
    stage
        .weigh()
        .args(long_run::arguments("long.toml", "weigh-runs/20260101T000000Z-long"))
        .assert()
        .success();
    stage
}

fn lengthen(stage: &Stage, blocks: u32) {
    long_run::lengthen(&stage.here().join("weigh-runs/20260101T000000Z-long"), blocks).unwrap();
}

/// Nothing is left to measure, and what is made of the samples is kept.
fn keep(stage: &Stage) {
    stage.weigh().args(["resume", "last"]).assert().success();
    assert!(stage.here().join("weigh-runs/20260101T000000Z-long/collected.json").is_file());
}

/// The shortest of several: the machine's own speed, whatever else it does meanwhile.
fn took(stage: &Stage, arguments: &[&str], times: usize) -> Duration {
    let once = || {
        let begun = Instant::now();
        stage.weigh().args(arguments).assert().success();
        begun.elapsed()
    };
    let shortest = (0..times).map(|_| once()).min().unwrap();
    eprintln!("weigh {}: {shortest:?}", arguments.join(" "));
    shortest
}

#[test]
fn a_run_that_was_made_longer_is_a_run() {
    let stage = stage();
    lengthen(&stage, 12);
    let report = shown(&stage, "last");
    keep(&stage);
    assert_eq!(shown(&stage, "last"), report);
    assert_eq!(report["blocks"]["done"], 12);
    assert_eq!(report["blocks"]["planned"], 12);
    let cells = report["cells"].as_array().unwrap();
    // Without a warm-up. CPU time per operation is beside them, where the host could tell it.
    let times: Vec<_> = cells.iter().filter(|cell| cell["metric"] == "time_cold").collect();
    assert_eq!(times.len(), long_run::TRIALS);
    let short = times.iter().find(|cell| cell["n"] != 12);
    assert!(short.is_none(), "every cell has a value of every block: {short:?}");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0);
    stage.host_is_as_before();
}

#[test]
fn commands_that_people_wait_for_are_quick() {
    if !long() {
        eprintln!("SKIPPED commands_that_people_wait_for_are_quick: WEIGH_LONG=1 and a release build run it");
        return;
    }
    let stage = stage();
    assert!(took(&stage, &["--help"], 10) <= Duration::from_millis(30));
    lengthen(&stage, 100);
    let show = ["show", "last"];
    let from_samples = took(&stage, &show, 10);
    assert!(from_samples <= Duration::from_millis(200));
    keep(&stage);
    let kept = took(&stage, &show, 10);
    assert!(kept <= Duration::from_millis(100) && kept < from_samples);
    lengthen(&stage, 1000);
    let page = ["show", "last", "--format", "html", "--output", "page.html"];
    assert!(took(&stage, &page, 3) <= Duration::from_secs(4));
    let bytes = stage.here().join("page.html").metadata().unwrap().len();
    assert!(bytes <= 8_000_000, "{bytes} bytes");
    stage.host_is_as_before();
}
