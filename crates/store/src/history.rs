//! A history: what many runs found, in a directory with a small file for each run, which can be
//! kept beside the code that is measured.
//!
//! ```text
//! .weigh/history/
//!   20261121T050000Z-1f3870be.json   a run: its version, its machine, and its effects
//! ```
//!
//! A file is written once and never changed, so two branches that add runs can be merged.

use crate::directory::{pretty, read_versioned};
use crate::durable::{make_directories, write_whole};
use crate::naming::safe_file_name;
use crate::{StoreError, analysis_cache};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use weigh_model::{MetricSpec, WorkloadKey};

/// Version of a run's file. Changes: 1, first version.
pub const HISTORY_FORMAT: u32 = 1;
const ENDING: &str = ".json";
const REMEDY: &str = "restore the file, or remove it: its run can be added again";

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRun {
    /// [`HISTORY_FORMAT`].
    pub format: u32,
    /// Version of what was measured, as the user calls it: a commit, a release.
    pub version: String,
    /// When the run began, UTC, RFC 3339.
    pub began: String,
    /// Name of the run.
    pub run: String,
    /// Version of weigh that measured.
    pub tool_version: String,
    /// Identity of the machine.
    pub machine: String,
    /// Its CPU.
    pub cpu_model: String,
    /// Its kernel.
    pub kernel: String,
    /// Name of the environment that the others are compared with.
    pub baseline: String,
    /// The effects.
    pub cells: Vec<HistoryCell>,
}

/// The effect of an environment on a metric of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryCell {
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric.
    pub metric: MetricSpec,
    /// Environment name.
    pub environment: String,
    /// Digest of all other conditions that decide the effect: the work, the guest, the programs in
    /// it. Effects under other conditions belong to another series.
    pub conditions: String,
    /// Number of blocks.
    pub n: u32,
    /// Median of the environment, in the base unit of the metric.
    pub median: f64,
    /// The ratio of its cost to that of the baseline, less 1.
    pub effect: f64,
    /// The lower end of its 95 % interval over the blocks of the run.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Adds a run to the history in a directory, which is made if it does not exist. Returns false if
/// the same run is in it already, under whatever version and name: a machine makes one run at a
/// time, so its identity and the time tell runs apart.
///
/// # Errors
/// As [`read`]; [`StoreError::Unkeepable`]; errors of the file system.
pub fn add(directory: &Path, run: &HistoryRun) -> Result<bool, StoreError> {
    let known = read(directory)?;
    if let Some(problem) = problem_of(run) {
        return Err(StoreError::Unkeepable { run: run.run.clone(), problem });
    }
    let is_same = |other: &HistoryRun| (&other.machine, &other.began) == (&run.machine, &run.began);
    if known.iter().any(is_same) {
        return Ok(false);
    }
    make_directories(directory)?;
    let anonymous = HistoryRun { version: String::new(), ..run.clone() };
    let digest = analysis_cache::digest(&pretty(&anonymous)) >> 96;
    let stamp: String = run.began.chars().filter(|c| !"-:".contains(*c)).collect();
    let name = format!("{}-{digest:08x}{ENDING}", safe_file_name(&stamp));
    write_whole(directory, &name, &pretty(run))?;
    Ok(true)
}

/// Reads the runs of the history in a directory, in the order in which they began. Returns none if
/// there is no such directory.
///
/// # Errors
/// [`StoreError::NewerFormat`], [`StoreError::Damaged`], and errors of the file system.
pub fn read(directory: &Path) -> Result<Vec<HistoryRun>, StoreError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("list", directory, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| StoreError::io("list", directory, error))?;
        names.extend(entry.file_name().into_string().ok().filter(|name| is_run(name)));
    }
    names.sort_unstable();
    let mut runs = Vec::with_capacity(names.len());
    for name in &names {
        let read = read_versioned(directory, name, Some(HISTORY_FORMAT));
        let (run, _): (HistoryRun, _) = read.map_err(|error| match error {
            StoreError::Damaged { path, line, problem, .. } => {
                StoreError::Damaged { path, line, problem, remedy: REMEDY }
            }
            other => other,
        })?;
        if let Some(problem) = problem_of(&run) {
            let path = directory.join(name);
            return Err(StoreError::Damaged { path, line: 1, problem, remedy: REMEDY });
        }
        runs.push(run);
    }
    runs.sort_by_key(began);
    Ok(runs)
}

/// Returns the newest run of the same machine among the runs that [`read`] returned, if it began
/// after this one.
pub fn newest_after<'a>(run: &HistoryRun, known: &'a [HistoryRun]) -> Option<&'a HistoryRun> {
    let newest = known.iter().rfind(|other| other.machine == run.machine)?;
    (began(newest) > began(run)).then_some(newest)
}

/// When a run began; none if that is no time.
fn began(run: &HistoryRun) -> Option<jiff::Timestamp> {
    run.began.parse().ok()
}

/// Whether a name is that of a run's file. A leading dot marks a file that is being written.
fn is_run(name: &str) -> bool {
    name.ends_with(ENDING) && !name.starts_with('.')
}

/// Says what is impossible in a run, if anything is.
fn problem_of(run: &HistoryRun) -> Option<String> {
    if began(run).is_none() {
        return Some(format!("`{}` is not a time", run.began));
    }
    let is_effect =
        |cell: &HistoryCell| -1.0 < cell.low && cell.low <= cell.effect && cell.effect <= cell.high;
    let odd = run.cells.iter().find(|cell| !is_effect(cell))?;
    Some(format!("{} {} has no interval that contains its effect", odd.workload, odd.metric.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(version: &str, began: &str, effect: f64) -> HistoryRun {
        HistoryRun {
            format: HISTORY_FORMAT,
            version: version.into(),
            began: began.into(),
            run: "r".into(),
            tool_version: "1".into(),
            machine: "m".into(),
            cpu_model: "a CPU".into(),
            kernel: "6.1".into(),
            baseline: "native".into(),
            cells: vec![HistoryCell {
                workload: "w".into(),
                key: WorkloadKey::named("w"),
                metric: MetricSpec::time("time"),
                environment: "runc".into(),
                conditions: "c".into(),
                n: 30,
                median: 1.0,
                effect,
                low: effect - 0.01,
                high: effect + 0.01,
            }],
        }
    }

    #[test]
    fn runs_are_kept_once_each_and_read_in_their_order() {
        let parent = tempfile::tempdir().unwrap();
        let history = parent.path().join(".weigh/history");
        assert_eq!(read(&history).unwrap(), []);
        let (late, latest) =
            (run("b", "2026-11-22T05:00:00Z", 0.2), run("a", "2026-11-21T23:30:00-08:00", 0.1));
        assert!(add(&history, &late).unwrap());
        let first = run("a", "2026-11-21T05:00:00Z", 0.1);
        assert!(add(&history, &first).unwrap());
        assert!(!add(&history, &first).unwrap());
        assert!(!add(&history, &HistoryRun { version: "again".into(), ..first.clone() }).unwrap());
        // A copy under another name, which was resumed.
        let copy = HistoryRun { run: "copy".into(), ..run("a", "2026-11-21T05:00:00Z", 0.11) };
        assert!(!add(&history, &copy).unwrap());
        assert_eq!(read(&history).unwrap(), [first.clone(), late.clone()]);
        assert!(add(&history, &latest).unwrap(), "times of other zones are times");
        assert_eq!(read(&history).unwrap(), [first, late, latest.clone()]);
        let known = read(&history).unwrap();
        assert_eq!(newest_after(&known[1], &known), Some(&latest));
        assert_eq!(newest_after(&latest, &known), None);
        let another = HistoryRun { machine: "another".into(), ..latest };
        assert_eq!(newest_after(&another, &known), None);
        assert!(add(&history, &another).unwrap());
    }

    #[test]
    fn a_run_that_could_not_be_read_back_is_not_added() {
        let history = tempfile::tempdir().unwrap();
        let history = history.path();
        add(history, &run("a", "2026-11-21T05:00:00Z", 0.1)).unwrap();
        for (wrong, words) in [
            (run("b", "yesterday", 0.1), "the run r cannot be kept in a history: `yesterday` is not a time"),
            (run("b", "2026-11-22T05:00:00Z", -1.5), "has no interval"),
        ] {
            let error = add(history, &wrong).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
            assert_eq!(read(history).unwrap().len(), 1);
        }
    }

    #[test]
    fn damage_is_reported_with_its_file() {
        let history = tempfile::tempdir().unwrap();
        let history = history.path();
        add(history, &run("a", "2026-11-21T05:00:00Z", 0.1)).unwrap();
        std::fs::write(history.join("notes.txt"), "not a run").unwrap();
        std::fs::write(history.join(".x.json.new"), "half").unwrap();
        assert_eq!(read(history).unwrap().len(), 1);
        for (bytes, words) in [
            (b"{\"format\": 1".to_vec(), "bad.json, line 1 is damaged"),
            (b"{\"format\": 1,\n\"version\": 3}".to_vec(), "bad.json, line 2 is damaged"),
            (pretty(&HistoryRun { format: 9, ..run("a", "2026-11-21T05:00:00Z", 0.1) }), "9"),
            (pretty(&run("a", "yesterday", 0.1)), "`yesterday` is not a time"),
            (pretty(&run("a", "2026-11-21T05:00:00Z", -1.5)), "has no interval"),
        ] {
            std::fs::write(history.join("bad.json"), bytes).unwrap();
            let error = read(history).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
