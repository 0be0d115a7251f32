//! `weigh study --reanalyse`: analyses the raw logs of a study again.

use crate::support::{Said, Stage, listed, named, reference, unbroken, words};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The logs of IBM RC25482. Without them a test is skipped, or fails if they are required.
fn logs(test: &str) -> Option<PathBuf> {
    reference(test).map(|directory| directory.join("felter-2014"))
}

/// Runs `weigh study` with this line on the logs in a directory.
fn reanalyse(stage: &Stage, line: &str, directory: &Path) -> Said {
    let mut command = stage.weigh();
    command.arg("study").args(words(line)).arg("--reanalyse").arg(directory);
    Said::of(line, command.output().unwrap())
}

fn json(stage: &Stage, name: &str, directory: &Path) -> Value {
    let said = reanalyse(stage, &format!("{name} --format json"), directory);
    serde_json::from_str(&said.ends_with(0).stdout).unwrap()
}

fn experiment<'a>(report: &'a Value, name: &str) -> &'a Value {
    named(report, "experiments", name)
}

/// The cells of a quantity, by arm.
fn cells<'a>(experiment: &'a Value, quantity: &str) -> &'a [Value] {
    let mut rows = listed(experiment, "views").iter().flat_map(|view| listed(view, "rows"));
    listed(rows.find(|row| row["quantity"] == quantity).unwrap(), "cells")
}

fn grade(experiment: &Value, claim: &str) -> String {
    listed(experiment, "claims").iter().find(|one| one["id"] == claim).unwrap()["grade"].to_string()
}

#[test]
fn the_logs_of_stream_give_the_table() {
    let Some(directory) = logs("the_logs_of_stream_give_the_table") else { return };
    let stage = Stage::with_fakes();
    let report = json(&stage, "felter-2014/table-1/stream", &directory);
    let stream = experiment(&report, "table-1/stream");
    // Native, Docker, KVM; GB/s.
    for (quantity, means) in [
        ("copy", [41.27, 41.20, 40.05]),
        ("scale", [41.25, 41.23, 40.01]),
        ("add", [45.79, 45.62, 44.99]),
        ("triad", [45.60, 45.63, 45.02]),
        ("copy-one-socket", [22.53, 22.52, 22.28]),
        ("scale-one-socket", [22.53, 22.52, 22.28]),
        ("add-one-socket", [25.12, 25.12, 24.85]),
        ("triad-one-socket", [25.15, 25.14, 24.87]),
    ] {
        for (cell, mean) in cells(stream, quantity).iter().zip(means) {
            let found = cell["measured"]["value"].as_f64().unwrap();
            assert!((found - mean).abs() <= 0.0051, "{quantity}: {found} instead of {mean}");
            assert_eq!(cell["measured"]["n"], 10);
        }
    }
    // Ratios of rates that were computed elsewhere; costs are their inverse.
    for (arm, ratio, low, high) in [(2, 0.9873, 0.9837, 0.9909), (1, 1.0006, 0.9925, 1.0088)] {
        let cell = &cells(stream, "triad")[arm];
        let of = |key: &str| 1.0 / (1.0 + cell["overhead"][key].as_f64().unwrap());
        for (found, expected) in [(of("estimate"), ratio), (of("high"), low), (of("low"), high)] {
            assert!((found - expected).abs() < 0.000_06, "{arm}: {found} is not {expected}");
        }
        assert_eq!(cell["agreement"]["grade"], "AGREES");
        assert!(cell["flags"].to_string().contains("UNPAIRED"), "{cell}");
    }
    assert!(grade(stream, "almost-identical").contains("HOLDS"));
    let remarks = stream["remarks"].to_string();
    assert!(
        remarks.contains("triad of docker: a cost of") && remarks.contains("cannot be told from none"),
        "{remarks}"
    );
    assert!(report["warnings"].to_string().contains("UNPAIRED"), "{report}");
    assert_eq!(stream["arms"][3]["not_run"], "the study names no raw log of it");
}

#[test]
fn one_run_of_fio_decides_nothing() {
    let Some(directory) = logs("one_run_of_fio_decides_nothing") else { return };
    let stage = Stage::with_fakes();
    let report = json(&stage, "felter-2014", &directory);
    let random = experiment(&report, "fig-6");
    for (quantity, rates) in [
        ("randread", [84_044.0, 84_092.0, 42_543.0]),
        ("randwrite", [112_034.0, 112_048.0, 56_160.0]),
        ("mixed", [104_553.0, 104_518.0, 49_218.0]),
    ] {
        for (cell, rate) in cells(random, quantity).iter().zip(rates) {
            assert_eq!((cell["measured"]["value"].as_f64(), &cell["measured"]["n"]), (Some(rate), &1.into()));
            assert!(cell["overhead"].is_null(), "{cell}");
        }
    }
    assert!(grade(random, "kvm-half").contains("UNDECIDED"), "{random}");
    assert!(random["remarks"].to_string().contains("one run of each platform"), "{random}");
    let latency = experiment(&report, "fig-7");
    for (quantity, microseconds) in
        [("latency-p50", [258.0, 262.0, 620.0]), ("latency-p999", [692.0, 402.0, 1384.0])]
    {
        for (cell, expected) in cells(latency, quantity).iter().zip(microseconds) {
            let found = cell["measured"]["value"].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-6, "{quantity}: {found} instead of {expected}");
        }
    }
    // Missing logs are reported, and do not prevent the others from being read.
    let pxz = experiment(&report, "table-1/pxz")["not_run"].to_string();
    assert!(pxz.contains("names no raw logs"), "{pxz}");
    let gups = experiment(&report, "table-1/gups")["not_run"].to_string();
    assert!(gups.contains("RandomAccess/results/linux.log is missing"), "{gups}");
}

#[test]
fn every_format_notes_that_nothing_was_measured_and_only_out_writes() {
    let Some(directory) = logs("every_format_notes_that_nothing_was_measured_and_only_out_writes") else {
        return;
    };
    let stage = Stage::with_fakes();
    let name = "felter-2014/table-1/stream";
    for format in ["table", "md", "latex", "html"] {
        let said = reanalyse(&stage, &format!("{name} --format {format}"), &directory).ends_with(0);
        assert!(unbroken(&said.stdout).contains("Nothing was measured"), "{format}");
    }
    assert_eq!(std::fs::read_dir(stage.here()).unwrap().count(), 0);
    let again = format!("{name} --out again");
    reanalyse(&stage, &again, &directory).ends_with(0);
    assert!(stage.read("again/report.html").contains("Nothing was measured"));
    reanalyse(&stage, &again, &directory).ends_saying(2, &["not empty"]);
}

#[test]
fn a_damaged_log_is_shown_with_its_line_and_the_rest_is_whole() {
    let Some(directory) = logs("a_damaged_log_is_shown_with_its_line_and_the_rest_is_whole") else { return };
    let stage = Stage::with_fakes();
    let copy = stage.here().join("logs/fio");
    std::fs::create_dir_all(&copy).unwrap();
    for name in ["linux.log", "docker.log", "vm.log"] {
        std::fs::copy(directory.join("fio").join(name), copy.join(name)).unwrap();
    }
    let text = std::fs::read_to_string(copy.join("vm.log")).unwrap();
    let (kept, _) = text.rsplit_once("issued").unwrap();
    std::fs::write(copy.join("vm.log"), kept).unwrap();
    let said = reanalyse(&stage, "felter-2014/fig-6 --format json", &stage.here().join("logs"));
    let said = said.ends_saying(2, &["vm.log, line ", "mixed-random-rw-32x8", "fetch"]);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let random = experiment(&report, "fig-6");
    assert_eq!(cells(random, "randread")[2]["measured"]["value"], 42_543.0);
    assert!(cells(random, "mixed")[2]["missing"].to_string().contains("cut off"));
    assert_eq!(cells(random, "mixed")[1]["measured"]["value"], 104_518.0);
}

#[test]
fn impossible_arguments_are_refused() {
    let stage = Stage::with_fakes();
    let here = Path::new(".");
    let nowhere = reanalyse(&stage, "felter-2014", Path::new("nowhere"));
    nowhere.ends_saying(2, &["there is no directory nowhere"]);
    let missing = reanalyse(&stage, "felter-2014/table-1", here).ends_with(4);
    missing.says(&["Stream/results/linux.two-socket.interleavedalloc.log is missing"]);
    reanalyse(&stage, "", here).ends_saying(2, &["without a study"]);
    for option in ["--size quick", "--on native", "--arm kvm=native", "--blocks 6", "--seed 1"] {
        let line = format!("felter-2014 {option}");
        reanalyse(&stage, &line, here).ends_saying(2, &["cannot be used with"]);
    }
}
