//! What a report takes from the samples of a run: made of them, or as it was kept.

use crate::error::Failure;
use crate::facts::OnRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{Comparison, Effort, Observation, Plan, Record};
use weigh_stats::{Collected, Course, collect, courses};
use weigh_store::RunDirectory;

/// Of the sources that decide what is kept and how: see `build.rs`.
const READER: &str = env!("WEIGH_READERS_DIGEST");

/// What a report takes from the samples of a run.
#[derive(Debug)]
pub struct Read {
    pub collected: Collected,
    pub on_record: OnRecord,
    /// Of a run that was to last for a time: for others, blocks are no matter of time.
    pub courses: Vec<Course>,
    /// A sentence about a last line that a crash cut short.
    pub recovered: Option<String>,
}

impl Read {
    /// From what was kept of these samples, else from the samples.
    ///
    /// # Errors
    /// Samples that cannot be read.
    pub fn of(directory: &RunDirectory) -> Result<Self, Failure> {
        let made = directory.made(READER, |records| Kept::make(directory.plan(), records))?;
        let Kept { mut collected, scans, on_record, courses } = made.value;
        for (summary, scans) in collected.circumstances.duplicates.iter_mut().zip(scans) {
            summary.scans = scans;
        }
        Ok(Self { collected, on_record, courses, recovered: made.recovered })
    }
}

/// What can be kept. It follows from plan and records alone.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    collected: Collected,
    /// [`weigh_stats::DuplicateSummary::scans`], which exports leave out, in the order of the summaries.
    scans: Vec<BTreeMap<String, Vec<Observation>>>,
    on_record: OnRecord,
    courses: Vec<Course>,
}

impl Kept {
    fn make(plan: &Plan, records: Vec<Record>) -> Self {
        let mut collected = collect(plan, &records);
        let on_record = OnRecord::of(plan, &records);
        let courses = over_time(plan, &records, &collected.comparisons);
        // Giving back what a long run has in many small pieces takes a while that nobody needs to wait for. Without a thread it is done here.
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
