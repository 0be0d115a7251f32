//! Comparisons with a known true effect on any platform. One run for each platform compares it with
//! itself, and with itself with more work, in slices and whole.
//!
//! ```text
//! environments   the platform; the same under another label; the same with 3 % more work
//! workloads      a spin in slices, the same spin whole
//! ```

use super::conduct::{Measured, SelftestRunner, read, slicing};
use super::design::{Comparison, Form, spin, spinning};
use super::judgement::{holds, is_found, length_or_reason, mean_effect};
use crate::error::{ExitKind, Failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weigh_model::{
    Effort, EnvironmentSpec, FinishReason, GuestPlan, HostFacts, ImageSpec, Plan, Record, SliceChoice,
};
use weigh_observe::Sensors;
use weigh_report::Document;
use weigh_report::document::{Audience, Block, Column, Entry, Item, ListKind, Row, Section, Table, Tone};
use weigh_runner::RunOptions;
use weigh_stats::{Interval, Options, analyse, collect};
use weigh_store::RunDirectory;

/// The injected effect, a fraction.
pub const EFFECT: f64 = 0.03;

/// Number of blocks of each run.
pub const BLOCKS: u32 = 10;
/// Number of blocks of each run with `--long`.
pub const LONG_BLOCKS: u32 = 30;

/// Labels of the environments beside the platform itself, and the effect that is injected in each.
pub const OTHERS: [(&str, f64); 2] = [("b", 0.0), ("c", EFFECT)];

/// The chance that all true values of a selftest lie within their bounds if the method keeps its
/// promises.
const CONFIDENCE: f64 = 0.999;

/// Version of the JSON format.
const FORMAT: u32 = 1;

/// A platform, with the environments of [`OTHERS`]: names and specifications.
#[derive(Debug, Clone)]
pub struct Target {
    /// The platform itself, which is the baseline.
    pub itself: (String, EnvironmentSpec),
    /// The other environments.
    pub others: [(String, EnvironmentSpec); 2],
}

/// A selftest of platforms.
#[derive(Debug, Clone)]
pub struct Design {
    /// Seed of every choice.
    pub seed: u64,
    /// Number of blocks of each run.
    pub blocks: u32,
    /// The forms to measure.
    pub forms: Vec<Form>,
    /// The length of slices.
    pub slices: SliceChoice,
    /// CPUs of all guests.
    pub cpus: Vec<u32>,
    /// The platforms.
    pub targets: Vec<Target>,
    /// Digests of the guest programs, for the plans.
    pub digests: BTreeMap<String, String>,
}

/// The id of the workload that is measured in a form.
fn workload_id(form: Form) -> &'static str {
    match form {
        Form::Slices => "spin-slices",
        Form::Whole => "spin-whole",
    }
}

impl Design {
    /// Makes the plan of a platform.
    ///
    /// # Errors
    /// The library lacks the workload.
    pub fn plan(&self, target: &Target, facts: &HostFacts) -> Result<Plan, Failure> {
        let (name, spec) = target.itself.clone();
        let mut environments = vec![spinning(name, spec, 0.0)];
        for ((name, spec), (_, effect)) in target.others.iter().zip(OTHERS) {
            environments.push(spinning(name.clone(), spec.clone(), effect));
        }
        let workload = |form: &Form| -> Result<_, Failure> {
            Ok(weigh_model::WorkloadPlan { id: workload_id(*form).into(), ..spin(facts, *form)? })
        };
        let workloads = self.forms.iter().map(workload).collect::<Result<Vec<_>, _>>()?;
        let effort = Effort::Fixed { blocks: self.blocks };
        let plan = Plan::of(format!("selftest-{}", target.itself.0), environments, workloads, effort);
        let slices = if self.forms.contains(&Form::Slices) { self.slices } else { SliceChoice::Off };
        let guest = GuestPlan { image: ImageSpec::Probe, cpus: self.cpus.clone(), ..plan.guest };
        let digests = self.digests.clone();
        Ok(Plan { seed: self.seed, guest, slices, digests, leave_out_unequal: true, ..plan })
    }
}

/// The results of a platform.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlatformResults {
    /// The platform as the user named it.
    pub platform: String,
    /// The comparisons that gave a value.
    pub measured: Vec<Measured>,
    /// Length of the slices, microseconds, or the reason why nothing can be sliced; none if no
    /// slices were wanted.
    pub sliced: Option<Result<u32, String>>,
    /// Comparisons that gave no value, in words.
    pub failed: Vec<String>,
}

impl SelftestRunner<'_> {
    /// Runs all platforms, and tells `progress` after each how many are done. Returns the reason
    /// why some were not measured, if any.
    ///
    /// # Errors
    /// A plan is invalid; a directory cannot be written.
    pub fn conduct_platforms(
        &self,
        design: &Design,
        sensors: &mut dyn Sensors,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<(Vec<PlatformResults>, Option<&'static str>), Failure> {
        let mut done = Vec::new();
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        for (number, target) in (1..).zip(&design.targets) {
            if let Some(why) = self.cut_short(started, longest) {
                return Ok((done, Some(why)));
            }
            let began = Instant::now();
            let Some(of) = self.of_platform(design, number, target, sensors)? else {
                return Ok((done, Some("interrupted")));
            };
            done.push(of);
            longest = longest.max(began.elapsed());
            progress(number, design.targets.len() as u32);
        }
        Ok((done, None))
    }

    /// Runs one platform; returns none if it was interrupted.
    fn of_platform(
        &self,
        design: &Design,
        number: u32,
        target: &Target,
        sensors: &mut dyn Sensors,
    ) -> Result<Option<PlatformResults>, Failure> {
        let plan = design.plan(target, self.facts)?;
        let name = format!("{number:03}-{}", target.itself.1.platform);
        let mut store = RunDirectory::create_at(&self.directory.join(&name), &plan, self.facts)?;
        let (finish, records) = self.run(&plan, &mut store, &name, sensors, RunOptions::default())?;
        if finish == FinishReason::Interrupted {
            return Ok(None);
        }
        Ok(Some(read_platform(design, target, &plan, &records)))
    }
}

/// Reads the records of a platform's run.
fn read_platform(design: &Design, target: &Target, plan: &Plan, records: &[Record]) -> PlatformResults {
    let mut of = PlatformResults { platform: target.itself.0.clone(), ..PlatformResults::default() };
    let excluded = records.iter().find_map(|record| match record {
        Record::Excluded(excluded) => Some(&excluded.failure.reason),
        _ => None,
    });
    if design.forms.contains(&Form::Slices) {
        of.sliced = Some(slicing(records, workload_id(Form::Slices)));
    }
    let cells = analyse(&collect(plan, records).comparisons, &Options::for_plan(plan)).cells;
    for form in design.forms.iter().copied() {
        if form == Form::Slices && matches!(of.sliced, Some(Err(_))) {
            continue;
        }
        for ((name, _), (number, (_, effect))) in target.others.iter().zip((1..).zip(OTHERS)) {
            let is_it = |cell: &&weigh_stats::Cell| {
                cell.primary && cell.workload == workload_id(form) && cell.environment == *name
            };
            let cell = cells.iter().find(is_it);
            match read(&Comparison { number, form, effect }, cell) {
                Ok(measured) => of.measured.push(measured),
                Err(reason) => {
                    let reason = excluded.map_or_else(|| reason.to_string(), String::clone);
                    of.failed.push(format!("{name} {}: {reason}", form.words()));
                }
            }
        }
    }
    of
}

/// The result of a selftest of platforms: the JSON of `--format json` and of `platforms.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlatformsJudgement {
    /// Version of this structure.
    pub format: u32,
    /// Version of weighbridge.
    pub tool_version: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Number of blocks of each run.
    pub blocks: u32,
    /// The reason why some platforms were not measured, if any.
    pub cut_short: Option<String>,
    /// The judgement of each platform.
    pub platforms: Vec<PlatformJudgement>,
}

/// The judgement of a platform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlatformJudgement {
    /// The platform as the user named it.
    pub platform: String,
    /// The verdict of its comparisons.
    pub verdict: PlatformVerdict,
    /// Length of the slices, microseconds.
    pub slices_us: Option<u32>,
    /// The reason why nothing was sliced although slices were wanted.
    pub unsliced: Option<String>,
    /// Comparisons that gave no value, in words.
    pub failed: Vec<String>,
    /// The comparisons.
    pub comparisons: Vec<Judged>,
}

/// A comparison, and whether it found the true effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The result.
    #[serde(flatten)]
    pub measured: Measured,
    /// The effect with an interval as wide as chance explains in 99.9 % of selftests, for all
    /// comparisons of a selftest together (Bonferroni).
    pub bounds: Interval,
    /// Whether the bounds hold the true effect.
    pub holds: bool,
    /// Whether a difference was found, by the p of this comparison alone.
    pub differs: bool,
}

/// The verdict of the comparisons of a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlatformVerdict {
    /// Every true effect lies within its bounds, and the injected effect was found.
    Inside,
    /// Some true effect lies outside its bounds.
    Outside,
    /// Every true effect lies within its bounds, but the noise hid the injected effect in all
    /// forms.
    Inconclusive,
    /// No comparison gave a value.
    Failed,
}

/// Judges the results of the platforms.
pub fn judge(
    design: &Design,
    platforms: Vec<PlatformResults>,
    cut_short: Option<&str>,
) -> PlatformsJudgement {
    let family = platforms.iter().map(|of| of.measured.len()).sum::<usize>().max(1);
    let confidence = 1.0 - (1.0 - CONFIDENCE) / family as f64;
    PlatformsJudgement {
        format: FORMAT,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        seed: design.seed,
        blocks: design.blocks,
        cut_short: cut_short.map(str::to_owned),
        platforms: platforms.into_iter().map(|of| judge_platform(of, confidence)).collect(),
    }
}

fn judge_platform(of: PlatformResults, confidence: f64) -> PlatformJudgement {
    let PlatformResults { platform, measured, sliced, failed } = of;
    let (slices_us, unsliced) = length_or_reason(sliced);
    let comparisons: Vec<Judged> = measured.into_iter().map(|m| judge_comparison(m, confidence)).collect();
    let finds = |judged: &Judged| judged.measured.injected > 0.0 && judged.differs;
    let verdict = match comparisons.as_slice() {
        [] => PlatformVerdict::Failed,
        all if all.iter().any(|judged| !judged.holds) => PlatformVerdict::Outside,
        all if all.iter().any(finds) => PlatformVerdict::Inside,
        _ => PlatformVerdict::Inconclusive,
    };
    PlatformJudgement { platform, verdict, slices_us, unsliced, failed, comparisons }
}

fn judge_comparison(measured: Measured, confidence: f64) -> Judged {
    // With fewer than two pairs there is no interval, and so no comparison.
    let unbounded = Interval { estimate: 0.0, low: -1.0, high: f64::INFINITY };
    let bounds = mean_effect(&measured.log_ratios, confidence).unwrap_or(unbounded);
    let holds = holds(bounds, measured.injected);
    let differs = is_found(&measured);
    Judged { measured, bounds, holds, differs }
}

impl PlatformsJudgement {
    /// Checks that the selftest succeeded.
    ///
    /// # Errors
    /// A true effect lies outside its bounds; a platform gave no value, or none did.
    pub fn ended(&self) -> Result<(), Failure> {
        let with = |verdict: PlatformVerdict| -> Vec<&str> {
            let with = self.platforms.iter().filter(|of| of.verdict == verdict);
            with.map(|of| of.platform.as_str()).collect()
        };
        let (outside, failed) = (with(PlatformVerdict::Outside), with(PlatformVerdict::Failed));
        if failed.len() == self.platforms.len() {
            let reason = self.platforms.iter().find_map(|of| of.failed.first().or(of.unsliced.as_ref()));
            return Err(Failure::new(ExitKind::NothingMeasured, "no platform of the selftest gave a number")
                .maybe_hint(reason.cloned().or_else(|| self.cut_short.clone())));
        }
        if !outside.is_empty() {
            let failure = format!("the method does not keep its promises on {}", outside.join(", "));
            return Err(Failure::new(ExitKind::Failed, failure).hint(
                "chance does this in one of a thousand selftests: run it again with --long; if it fails again, trust no \
                 verdict on these platforms",
            ));
        }
        if !failed.is_empty() {
            let failure = format!("not measured: {}", failed.join(", "));
            return Err(Failure::new(ExitKind::Failed, failure)
                .hint("the table says why; the logs are in the directory of the selftest"));
        }
        Ok(())
    }
}

/// Arranges a judgement for display.
pub fn document(judgement: &PlatformsJudgement) -> Document {
    let cut_short = judgement.cut_short.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    let caption = format!(
        "each platform against itself, and with {} % more work: {} blocks, seed {}{cut_short}",
        EFFECT * 100.0,
        judgement.blocks,
        judgement.seed
    );
    let more = format!("{} % more", EFFECT * 100.0);
    let columns = ["platform", "form", "the same", "", more.as_str(), ""].map(Column::text).into();
    let rows = judgement.platforms.iter().flat_map(rows).collect();
    let beside = judgement.platforms.iter().flat_map(|of| {
        let unsliced = of.unsliced.iter().map(|reason| format!("{} is not sliced: {reason}", of.platform));
        let failed = of.failed.iter().map(|failed| format!("failed: {failed}"));
        unsliced.chain(failed).collect::<Vec<_>>()
    });
    let beside: Vec<String> = beside.collect();
    let verdicts = judgement.platforms.iter().map(|of| {
        let (word, tone, statement) = of.verdict.words();
        Item::new(word, vec![format!("{}: {statement}", of.platform)]).tone(tone)
    });
    let mut document = Document::default();
    document.add(Section::plain().with(Audience::ALL, Block::table(Table::new(caption, columns, rows))));
    if !beside.is_empty() {
        document.add(Section::plain().with(Audience::ALL, Block::bullets(beside)));
    }
    document.add(Section::plain().with(Audience::ALL, Block::list(ListKind::Labels, verdicts)));
    document
}

impl PlatformVerdict {
    fn words(self) -> (&'static str, Tone, &'static str) {
        match self {
            Self::Inside => ("INSIDE", Tone::Same, "every truth lies within its bounds"),
            Self::Outside => ("OUTSIDE", Tone::Worse, "a truth lies outside its bounds"),
            Self::Inconclusive => (
                "INCONCLUSIVE",
                Tone::Open,
                "every truth lies within its bounds, but the noise hides the effect",
            ),
            Self::Failed => ("FAILED", Tone::Worse, "no comparison gave a number"),
        }
    }
}

/// Returns a row for each form of a platform.
fn rows(of: &PlatformJudgement) -> Vec<Row> {
    let percent = |value: f64| format!("{:+.2}", value * 100.0);
    let entries = |form: Form, effect: f64| {
        let is_it = |judged: &&Judged| judged.measured.form == form && judged.measured.injected == effect;
        let Some(judged) = of.comparisons.iter().find(is_it) else {
            return [Entry::nothing(), Entry::nothing()];
        };
        let Interval { estimate, low, high } = judged.measured.found;
        let found = format!("{} % [{}, {}]", percent(estimate), percent(low), percent(high));
        let mark = match (judged.holds, effect > 0.0 && !judged.differs) {
            (false, _) => Entry::flag(Tone::Worse, "OUTSIDE"),
            (true, true) => Entry::flag(Tone::Open, "not found"),
            (true, false) => Entry::flag(Tone::Same, "ok"),
        };
        [Entry::text(found), mark]
    };
    let forms = [Form::Slices, Form::Whole].into_iter();
    let measured = forms.filter(|form| of.comparisons.iter().any(|judged| judged.measured.form == *form));
    measured
        .map(|form| {
            let head = [Entry::name(of.platform.clone()), Entry::text(form.title(of.slices_us))];
            Row::new(head.into_iter().chain(entries(form, 0.0)).chain(entries(form, EFFECT)))
        })
        .collect()
}

#[cfg(test)]
mod tests;
