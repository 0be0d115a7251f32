//! `weigh footprint` through the binary, with real guests.

use crate::support::{Stage, cell, listed, ready, shown, unbroken, with_native};
use serde_json::Value;
use std::path::Path;

/// The cell for a number of guests.
fn of_guests<'a>(report: &'a Value, guests: u32, environment: &str, metric: &str) -> &'a Value {
    cell(report, &format!("footprint{{guests={guests}}}"), environment, metric)
}

/// Turns a run of one block into a run of two. In a real run of two blocks, and in its pilot, every
/// cell would wait for five seconds of rest.
fn repeat_block(run: &Path) {
    let samples = run.join("samples.jsonl");
    let mut text = std::fs::read_to_string(&samples).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sequences = records.len() as u64..;
    let trials = records.into_iter().filter(|record| record["record"] == "trial");
    for (mut trial, sequence) in trials.zip(sequences) {
        (trial["block"], trial["sequence"]) = (1.into(), sequence.into());
        text.push_str(&format!("{trial}\n"));
    }
    std::fs::write(samples, text).unwrap();
}

/// Memory and its parts are reported, what is impossible says why, and several numbers of guests
/// give the memory of one more.
#[test]
fn guests_are_weighed_and_the_cost_of_one_more_is_reported() {
    let stage = Stage::new();
    let on = with_native(&stage, &["namespaces"], "guests_are_weighed_and_the_cost_of_one_more_is_reported");
    stage.measured(&format!("footprint --on {on} --guests 1,3 --blocks 1 --no-void"));
    repeat_block(&stage.here().join("r"));
    let report = shown(&stage, "r");
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in on.split(',') {
        for guests in [1, 3] {
            let of = |metric| of_guests(&report, guests, environment, metric)["median"].as_f64();
            let (whole, guest) = (of("footprint").unwrap(), of("guest_pss").unwrap());
            assert!((20e3..50e6).contains(&whole) && guest <= whole, "{environment}: {guest} of {whole}");
            assert!(of("page_tables").unwrap() < whole, "{environment}");
            assert!(of("settle_time").unwrap() >= 5.0, "{environment}: it was waited for");
            if let Some(kernel) = of("kernel_memory") {
                assert!((guest + kernel - whole).abs() < 0.5 * whole, "{environment}: {guest} and {kernel}");
            }
            let daemons = of_guests(&report, guests, environment, "daemons_pss");
            let told = daemons["absent"].as_str().is_some_and(|reason| !reason.is_empty());
            assert!(told && daemons["median"].is_null(), "{daemons}");
        }
        let limits = listed(&report, "limits");
        let limit = limits.iter().find(|limit| limit["environment"] == environment).unwrap();
        assert_eq!((limit["counts"].clone(), limit["n"].clone()), (serde_json::json!([1, 3]), 2.into()));
        let each = limit["each"]["estimate"].as_f64().unwrap();
        assert!((20e3..50e6).contains(&each), "{limit}");
    }
    stage.run("show r").says(&["one more guest takes", "guests per GiB"]);
    let priced = unbroken(&stage.stdout("show r --price 0.5/h"));
    assert!(priced.contains("guests per unit of price"), "{priced}");
    let priced = stage.json("show r --price 0.5/h --format json");
    assert_eq!(listed(&priced, "guests_bought").len(), listed(&report, "limits").len(), "{priced}");
    for format in ["md", "latex", "html", "csv", "junit"] {
        stage.stdout(&format!("show r --format {format}"));
    }
    stage.host_is_as_before();
}

/// Pages are scanned while the guests stand still: the parts add up, pages shared between guests
/// are found, and a single guest shares none.
#[test]
fn equal_pages_of_guests_are_reported() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "equal_pages_of_guests_are_reported") {
        return;
    }
    let report = stage.measured(
        "footprint --duplicates --on namespaces --baseline namespaces --guests 1,2 --blocks 1 --no-void",
    );
    let all = listed(&report, "duplicates");
    assert_eq!(all.len(), 2, "{all:?}");
    for found in all {
        if let Some(reason) = found["absent"].as_str() {
            eprintln!("SKIPPED equal_pages_of_guests_are_reported: {reason}");
            return;
        }
        let guests = found["guests"].as_u64().unwrap();
        let of = |name: &str| found["amounts"][name]["mean"].as_f64().unwrap();
        let matrix: f64 = ["within_guest", "guest_host", "guest_guest", "host_host"]
            .iter()
            .flat_map(|row| ["anonymous", "mixed", "file"].map(|kind| of(&format!("{row}_{kind}"))))
            .sum();
        let who = of("mergeable") + of("mergeable_if_advised") + of("mergeable_by_file_content");
        assert_eq!(matrix, who, "{found}");
        assert!(matrix <= of("guests_memory") + of("host_memory"), "{found}");
        // The host's cache holds more of the programs than guests have mapped; of a small probe
        // they map little.
        assert!(of("guests_memory") > 50e3 && of("host_memory") > 0.0, "{found}");
        // Two guests run the same program, whose file is already shared.
        assert_eq!(guests > 1, of("spared_by_files_between") > 50e3, "{found}");
        if guests == 1 {
            assert_eq!(of("guest_guest_anonymous") + of("guest_guest_file"), 0.0, "{found}");
        }
    }
    let shows = |format: &str| stage.stdout(&format!("show r --format {format}"));
    assert!(shows("table").contains("duplicate pages: footprint{guests=2} in namespaces"));
    assert!(shows("csv").contains(",guest_guest_anonymous,B,"));
    for format in ["md", "latex", "html"] {
        assert!(shows(format).contains("only by comparing files"), "{format}");
    }
    stage.host_is_as_before();
}

/// Containers with copies of one root have equal files in the host's cache; with a common root they
/// have the same files.
#[test]
fn a_copied_root_is_a_duplicate_and_a_common_one_is_not() {
    const BYTES: usize = 4 << 20;
    let stage = Stage::new();
    if !ready(&stage, "lxc", "a_copied_root_is_a_duplicate_and_a_common_one_is_not") {
        return;
    }
    let image = stage.here().join("image");
    std::fs::create_dir_all(image.join("usr")).unwrap();
    let words = (0..BYTES as u32 / 4).flat_map(|word| word.wrapping_mul(0x9E37_79B9).to_le_bytes());
    std::fs::write(image.join("usr/data"), words.collect::<Vec<u8>>()).unwrap();
    let report = stage.measured(
        "footprint --duplicates --on lxc --on lxc:root=copied --image image --baseline lxc --guests 2 --blocks 1 \
         --no-void",
    );
    let found = listed(&report, "duplicates");
    assert_eq!(found.len(), 2, "{} {}", report["failures"], report["warnings"]);
    if let Some(reason) = found[0]["absent"].as_str() {
        eprintln!("SKIPPED a_copied_root_is_a_duplicate_and_a_common_one_is_not: {reason}");
        return;
    }
    let of = |at: usize, name: &str| found[at]["amounts"][name]["mean"].as_f64().unwrap();
    let equal = |at| of(at, "host_host_file");
    // The image's file and two copies of it.
    let two = 2.0 * BYTES as f64;
    assert!(equal(0) < 0.1 * two && (0.9 * two..1.1 * two).contains(&equal(1)), "{found:?}");
    // Some pages of the probes may be equal.
    let mapped = of(1, "mergeable") + of(1, "guest_guest_file");
    assert!(mapped < 0.1 * BYTES as f64, "no guest has it mapped: {found:?}");
    stage.host_is_as_before();
}

/// A machine that could fill more memory than there is is not even started, and the cell says so.
#[test]
fn more_machines_than_the_host_holds_are_not_started() {
    let stage = Stage::new();
    if !ready(&stage, "qemu", "more_machines_than_the_host_holds_are_not_started") {
        return;
    }
    let run = stage.run(
        "footprint --on qemu:accel=tcg --baseline qemu:accel=tcg --guests 4000 --memory 256MiB --blocks 1 \
         --no-void --out r",
    );
    run.ends_with(4);
    let report = shown(&stage, "r");
    let absent = of_guests(&report, 4000, "qemu:accel=tcg", "footprint");
    let reason = absent["absent"].as_str().unwrap();
    assert!(reason.contains("4000 guests of 256MiB could fill"), "{reason}");
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// Invalid numbers of guests are refused before anything is done.
    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let stage = Stage::with_fakes();
        for (numbers, said) in [("0", "0 is not in"), ("2,2", "twice"), ("many", "many")] {
            stage.refuses(&format!("footprint --on null --guests {numbers}"), &[said]);
        }
        assert!(!stage.here().join("weigh-runs").exists());
        stage.host_is_as_before();
    }
}
