//! The tables that `tests/measured` writes into the book.

use super::{Stage, no_faults, root};
use crate::support::{Said, is_root, skip};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use weigh_model::{Caches, StartPlan, Started};
use weigh_workloads::start_workload;

/// What it measures, and the page with the tables.
const MEASURED: [(&str, &str); 2] = [("life-cycle", "docs/start.md"), ("neighbours", "docs/density.md")];
/// The heads of the table of tails after the environment and the time.
const HEADS: &str = "| succeeded [95 % interval] | median | p95 | p95 without the slowest 5 % | slowest |";
/// Fewest starts that a 95 % quantile takes.
const FEWEST_FOR_P95: f64 = 20.0;

/// The part of a page that is written.
fn section(name: &str, page: &str) -> String {
    section_of(&std::fs::read_to_string(root().join(page)).unwrap(), name, page)
}

fn section_of(text: &str, name: &str, page: &str) -> String {
    let (begin, end) = (
        format!("<!-- `make {name}` writes what follows. -->"),
        format!("<!-- What `make {name}` writes ends here. -->"),
    );
    for marker in [&begin, &end] {
        assert_eq!(text.matches(marker.as_str()).count(), 1, "{page}: {marker}");
    }
    text[text.find(&begin).unwrap()..text.find(&end).unwrap()].to_string()
}

#[test]
fn pages_have_a_place_for_what_is_measured() {
    let script = std::fs::read_to_string(root().join("tests/measured")).unwrap();
    for (name, page) in MEASURED {
        assert!(section(name, page).len() > 100, "{page}");
        assert!(script.contains(&format!("\"{name}\"")) && script.contains(page), "{name}");
    }
}

#[test]
fn the_tails_of_the_life_cycle_are_in_order() {
    let (name, page) = MEASURED[0];
    match faults_of_tails(&section(name, page)) {
        None => eprintln!(
            "SKIPPED the_tails_of_the_life_cycle_are_in_order: {page} has none; `make {name}` measures them"
        ),
        Some(faults) => no_faults("the tails of the life cycle; `make life-cycle` measures them", &faults),
    }
}

/// What is wrong with the table of tails; none if there is no table.
fn faults_of_tails(section: &str) -> Option<Vec<String>> {
    let (_, table) = section.split_once(HEADS)?;
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let lacks = |time: &&str| !rows.iter().any(|row| row.contains(&format!("| `{time}` |")));
    let lacking = ["start_to_init", "start_to_exec", "start_to_prompt"].into_iter().filter(lacks);
    let lacking = lacking.map(|time| format!("there is no row of {time}"));
    Some(rows.iter().filter_map(|row| fault_of(row)).chain(lacking).collect())
}

/// What is wrong with a row of the table of tails.
fn fault_of(row: &str) -> Option<String> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [_, _, succeeded, times @ ..] = cells.as_slice() else {
        return Some(format!("{row}: too few cells"));
    };
    let numbers = succeeded.split(|c: char| !c.is_ascii_digit() && c != '.');
    let numbers: Vec<f64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let [starts, tried, share, low, high] = numbers[..] else {
        return Some(format!("{row}: no share with its interval"));
    };
    let is_share = starts <= tried && low <= share && share <= high && high <= 100.0;
    let times: Vec<Option<f64>> = times.iter().map(|time| time.parse().ok()).collect();
    let are_times = match times[..] {
        [Some(median), Some(p95), Some(without), Some(slowest)] => {
            starts >= FEWEST_FOR_P95 && median <= without && without <= p95 && p95 <= slowest
        }
        [None, None, None, None] => starts < FEWEST_FOR_P95,
        _ => false,
    };
    (!is_share || !are_times).then(|| format!("{row}: not in order, or of too few starts"))
}

#[test]
fn a_row_out_of_order_is_found() {
    let row = |succeeded: &str, times: &str| format!("| `runc` | `start_to_init` | {succeeded} | {times} |");
    let all = "60 of 60: 100.0 % [94.0, 100.0]";
    assert_eq!(fault_of(&row(all, "33 | 41 | 38 | 52")), None);
    assert_eq!(fault_of(&row("3 of 60: 5.0 % [1.0, 13.9]", "| | |")), None);
    for (succeeded, times) in [
        (all, "33 | 41 | 42 | 52"),
        (all, "33 | 41 | 38"),
        (all, "| | |"),
        ("19 of 60: 31.7 % [20.3, 45.0]", "33 | 41 | 38 | 52"),
        ("60 of 60", "33 | 41 | 38 | 52"),
        ("60 of 60: 100.0 % [100.0, 94.0]", "33 | 41 | 38 | 52"),
    ] {
        let wrong = row(succeeded, times);
        assert!(fault_of(&wrong).is_some(), "{wrong}");
    }
}

/// A `weigh` that has a report, of which the first part is there before `resume`.
const ANSWERING: &str = r#"#!/bin/sh
run=target/measured/life-cycle
case "$1" in
  doctor) cat doctor.json ;;
  show) if [ -e resumed ]; then cat report.json; else cat partial.json; fi ;;
  start) printf '%s\n' "$*" > line; mkdir -p $run; cp samples.jsonl $run; echo '{}' > $run/plan.json ;;
  resume) touch resumed ;;
esac
"#;
/// The environments of that report.
const MEASURED_HERE: [&str; 2] = ["native", "qemu:accel=tcg,root=initramfs"];
const BLOCKS: u32 = 20;
const CANNOT: &str = "native cannot save and restore guests";

/// What the life cycle starts: the name of each workload, and its metrics.
fn workloads() -> Vec<(String, Vec<String>)> {
    let all = [
        Started::One,
        Started::AtOnce { guests: 4 },
        Started::Staggered { guests: 4, apart_us: 100_000 },
        Started::Restored { guests: 1 },
        Started::Restored { guests: 4 },
        Started::Exec { programs: 9 },
        Started::Prompt { shells: 9 },
        Started::Copy { bytes: 1 << 20, copies: 3 },
    ];
    let named = |what| {
        let plan = start_workload(StartPlan { what, caches: Caches::Warm });
        let metrics = plan.metrics.into_iter().map(|metric| metric.spec.name);
        (plan.id, metrics.collect::<Vec<String>>())
    };
    all.into_iter().map(named).collect()
}

/// The value of every metric in a block, seconds.
fn value(block: u32) -> f64 {
    0.0102 + 0.001 * f64::from(block)
}

fn is_absent(environment: &str, workload: &str) -> bool {
    environment == "native" && workload.starts_with("start-restore")
}

/// The report of a run of so many blocks.
fn report(done: u32) -> Value {
    let mut cells = Vec::new();
    for environment in MEASURED_HERE {
        for (workload, metrics) in workloads() {
            for metric in metrics {
                let absent = is_absent(environment, &workload);
                let shown = |ms: f64| (!absent).then_some(ms * 1e-3);
                let mut cell = json!({
                    "workload": workload, "metric": metric, "environment": environment,
                    "median": shown(19.7), "p95": shown(28.25), "max": shown(29.2),
                    "tried": BLOCKS, "failed": 0, "absent": absent.then_some(CANNOT),
                    "success": { "share": 1.0, "ci_low": 0.8316, "ci_high": 1.0 },
                    "overhead": Value::Null,
                });
                if environment != "native" {
                    cell["overhead"] = json!({ "mean": 1.5, "ci_low": 1.24, "ci_high": 1.76 });
                }
                cells.push(cell);
            }
        }
    }
    json!({
        "blocks": { "planned": BLOCKS, "done": done },
        "host": { "cpus": [0, 1] },
        "environments": MEASURED_HERE.map(|name| json!({ "name": name })),
        "cells": cells,
    })
}

/// The samples of that run. Its last unit is void.
fn samples() -> String {
    let mut lines = Vec::new();
    for block in 0..=BLOCKS {
        for environment in MEASURED_HERE {
            for (workload, metrics) in workloads() {
                let measured = metrics.into_iter().filter(|_| !is_absent(environment, &workload));
                let values: Value = measured.map(|metric| (metric, json!(value(block)))).collect();
                lines.push(json!({
                    "record": "trial", "block": block, "attempt": 0, "workload": workload,
                    "environment": environment, "outcome": { "iterations": [{ "values": values }] },
                }));
            }
        }
    }
    for (workload, _) in workloads() {
        lines.push(json!({ "record": "void", "block": BLOCKS, "attempt": 0, "workload": workload }));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The script asks weigh for what it has, goes on after an interruption, writes no page before the
/// run is complete, and finds every number of its tables under the names that weigh gives them.
#[test]
fn the_script_measures_the_life_cycle_and_writes_its_page() {
    const TEST: &str = "the_script_measures_the_life_cycle_and_writes_its_page";
    if !is_root(TEST, "the script takes root") {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return skip(TEST, "python3", "there is no program `python3`");
    }
    let stage = Stage::with_fakes();
    let (name, page) = MEASURED[0];
    for directory in ["tests", "docs", "target/release"] {
        std::fs::create_dir_all(stage.here().join(directory)).unwrap();
    }
    for file in ["tests/measured", page] {
        std::fs::copy(root().join(file), stage.here().join(file)).unwrap();
    }
    stage.write("target/release/weigh", ANSWERING);
    let weigh = stage.here().join("target/release/weigh");
    std::fs::set_permissions(weigh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = |platform: &&str| {
        let ready = ["native", "qemu"].contains(platform);
        let remedy = "install it";
        json!({ "name": platform, "ready": ready, "detail": "is absent", "remedy": remedy, "command": null })
    };
    let platforms = ["native", "bubblewrap", "crun", "youki", "runc", "docker", "runsc", "uml", "qemu"];
    let states: Vec<Value> = platforms.iter().map(state).collect();
    stage.write("doctor.json", json!({ "platforms": states }).to_string());
    stage.write("report.json", report(BLOCKS).to_string());
    stage.write("partial.json", report(7).to_string());
    stage.write("samples.jsonl", samples());
    let before = stage.read(page);
    let script = || {
        let mut command = Command::new("python3");
        command.arg(stage.here().join("tests/measured")).arg(name).env_remove("CARGO_TARGET_DIR");
        Said::of(name, command.output().unwrap())
    };

    let said = script().ends_with(1);
    assert!(said.stderr.contains("left out: youki: is absent (install it)"), "{}", said.stderr);
    assert!(said.stderr.contains("is not complete"), "{}", said.stderr);
    assert_eq!(stage.read(page), before);
    script().ends_with(0);

    let line = stage.read("line");
    let mut asked: Vec<&str> = line.split_whitespace().collect();
    for environment in MEASURED_HERE {
        let at = asked.iter().position(|word| *word == environment).unwrap();
        drop(asked.drain(at - 1..=at));
    }
    let out = asked.iter().position(|word| *word == "--out").unwrap();
    drop(asked.drain(out..=out + 1));
    let workloads = workloads();
    let ids: Vec<&str> = workloads.iter().map(|(id, _)| id.as_str()).collect();
    stage.run(&format!("{} --on native --dry-run", asked.join(" "))).ends_with(0).says(&ids);

    let section = section_of(&stage.read(page), name, page);
    assert_eq!(faults_of_tails(&section), Some(Vec::new()), "{section}");
    for part in [
        "One run of 20 blocks on a machine with 2 CPUs",
        "| `native` | `start_to_prompt` | 20 of 20: 100.0 % [83.2, 100.0] | 20 | 28 | 27 | 29 |",
        "| `qemu:accel=tcg,root=initramfs` | 20 | ×2.5 [2.2, 2.8] | 20 |",
        "- `native`, restore, slowest of 4 restores: native cannot save and restore guests",
    ] {
        assert!(section.contains(part), "{part}: {section}");
    }
    let joined = section.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("Not ready on that machine: `bubblewrap`, `crun`, `youki`,"), "{section}");
}
