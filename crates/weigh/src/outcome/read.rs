//! Reads the values that a report needs from the samples of a run, or from the analysis cache.

use crate::error::Failure;
use crate::facts::RecordedFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{Comparison, Effort, Observation, Plan, Record};
use weigh_stats::{Course, RunData, collect, courses};
use weigh_store::RunDirectory;

/// Digest of the sources that decide what is cached and how; see `build.rs`.
const READER: &str = env!("WEIGH_READERS_DIGEST");

/// The values that a report needs from the samples of a run.
#[derive(Debug)]
pub struct Read {
    pub collected: RunData,
    pub on_record: RecordedFacts,
    /// Courses over time, only for a run with a fixed duration: in other runs, blocks do not
    /// represent time.
    pub courses: Vec<Course>,
    /// A sentence about a last line that a crash cut short.
    pub recovered: Option<String>,
}

impl Read {
    /// Reads the cache of these samples, or else the samples.
    ///
    /// # Errors
    /// The samples cannot be read.
    pub fn of(directory: &RunDirectory) -> Result<Self, Failure> {
        let made = directory.derived(READER, |records| CachedAnalysis::make(directory.plan(), records))?;
        let CachedAnalysis { mut collected, scans, on_record, courses } = made.value;
        for (summary, scans) in collected.circumstances.duplicates.iter_mut().zip(scans) {
            summary.scans = scans;
        }
        Ok(Self { collected, on_record, courses, recovered: made.recovered })
    }
}

/// The cached values. They follow from the plan and the records alone.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CachedAnalysis {
    collected: RunData,
    /// [`weigh_stats::DuplicateSummary::scans`], which exports leave out, in the order of the
    /// summaries.
    scans: Vec<BTreeMap<String, Vec<Observation>>>,
    on_record: RecordedFacts,
    courses: Vec<Course>,
}

impl CachedAnalysis {
    fn make(plan: &Plan, records: Vec<Record>) -> Self {
        let mut collected = collect(plan, &records);
        let on_record = RecordedFacts::of(plan, &records);
        let courses = over_time(plan, &records, &collected.comparisons);
        // A long run has many small allocations. Freeing them takes a while, and nobody needs to
        // wait for it. If no thread starts, they are freed here.
        let _ = std::thread::Builder::new().spawn(move || drop(records));
        let summaries = collected.circumstances.duplicates.iter_mut();
        let scans = summaries.map(|summary| std::mem::take(&mut summary.scans)).collect();
        Self { collected, scans, on_record, courses }
    }
}

fn over_time(plan: &Plan, records: &[Record], comparisons: &[Comparison]) -> Vec<Course> {
    match plan.effort {
        Effort::Lasting { .. } => courses(records, comparisons),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::from_run;
    use std::fs;
    use std::path::Path;

    /// Copies a recorded run from `tests/data`, and adds blanks that make its samples long enough
    /// for a cache.
    fn long(name: &str) -> tempfile::TempDir {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name);
        let directory = tempfile::tempdir().unwrap();
        for file in ["plan.json", "host.json"] {
            fs::copy(source.join(file), directory.path().join(file)).unwrap();
        }
        let samples = fs::read_to_string(source.join("samples.jsonl")).unwrap();
        let long = format!("{}{}\n", samples.trim_end(), " ".repeat(1 << 20));
        fs::write(directory.path().join("samples.jsonl"), long).unwrap();
        directory
    }

    #[test]
    fn a_cached_run_gives_the_same_report() {
        for name in ["run-format-1", "study-format-1/speed"] {
            let directory = long(name);
            let opened = || RunDirectory::open(directory.path()).unwrap();
            let from_samples = from_run(&opened()).unwrap();
            Read::of(&opened()).unwrap();
            assert!(!directory.path().join("collected.json").exists(), "{name}: reading writes no cache");
            Read::of(&RunDirectory::open_for_append(directory.path()).unwrap()).unwrap();
            let cached = opened()
                .derived(READER, |_| -> CachedAnalysis { panic!("{name}: it is not cached") })
                .unwrap();
            assert!(cached.value.collected.blocks_done > 0);
            assert_eq!(from_run(&opened()).unwrap(), from_samples, "{name}");
        }
    }

    /// `build.rs` digests these crates. The crates of this workspace that they use decide their
    /// results, too.
    #[test]
    fn crates_that_read_samples_use_only_digested_crates() {
        let digested = ["model", "disk", "store", "stats"];
        for name in digested {
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
            let used = manifest.split("\n[dependencies]\n").nth(1).and_then(|rest| rest.split("\n[").next());
            let own = used.unwrap().lines().filter_map(|line| line.strip_prefix("weigh-"));
            for used in own.filter_map(|rest| rest.split(['.', ' ', '=']).next()) {
                assert!(digested.contains(&used), "weigh-{name} uses weigh-{used}");
            }
        }
    }

    #[test]
    fn the_scans_of_pages_are_cached_though_no_export_has_them() {
        let of = |value| Observation { block: Some(1), value };
        let scans: BTreeMap<String, Vec<Observation>> = [("pages".to_string(), vec![of(0.1)])].into();
        let directory = long("run-format-1");
        let run = RunDirectory::open_for_append(directory.path()).unwrap();
        let make = |records| {
            let mut cached = CachedAnalysis::make(run.plan(), records);
            let summary = serde_json::json!(
                {"workload": "w", "environment": "e", "guests": 2, "n": 1, "amounts": {}}
            );
            cached.collected.circumstances.duplicates = vec![serde_json::from_value(summary).unwrap()];
            cached.scans = vec![scans.clone()];
            cached
        };
        run.derived(READER, make).unwrap();
        let read = Read::of(&run).unwrap();
        assert_eq!(read.collected.circumstances.duplicates[0].scans, scans);
    }
}
