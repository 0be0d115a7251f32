//! Judges whether the comparisons found what the method promises.

use super::conduct::{Measured, SelftestResults};
use super::design::{BLOCKS, Design, EFFECTS, Form};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_report::Document;
use weigh_report::document::{Audience, Block, Column, Entry, Item, ListKind, Row, Section, Table, Tone};
use weigh_stats::{Band, Interval, binomial_band, poisson_binomial_band, power, rejection_by_chance};

/// The significance level of a difference, for one comparison alone.
const LEVEL: f64 = 0.05;

/// Version of the JSON format.
const FORMAT: u32 = 3;

/// The result of a selftest: the JSON of `--format json` and of `selftest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Version of this structure.
    pub format: u32,
    /// Version of weighbridge.
    pub tool_version: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Number of blocks of each comparison.
    pub blocks: u32,
    /// Number of comparisons that were planned.
    pub planned: u32,
    /// Number of comparisons that gave a value.
    pub done: u32,
    /// The reason why some were not made, if any.
    pub cut_short: Option<String>,
    /// Length of the slices, microseconds; absent if nothing was sliced.
    pub slices_us: Option<u32>,
    /// The reason why nothing was sliced although slices were wanted.
    pub unsliced: Option<String>,
    /// The judgement of each form that was wanted and could be measured.
    pub forms: Vec<FormJudgement>,
    /// Void units by cause; each was replaced.
    pub voids: BTreeMap<String, u32>,
    /// Number of comparisons that continued with voiding off because most of their units would have
    /// been void, or that began so because of the comparisons before them.
    pub noisy_hosts: u32,
    /// Comparisons that gave no value.
    pub failed: Vec<FailedComparison>,
    /// `inside` or `outside`.
    pub verdict: Verdict,
    /// The verdict in a sentence.
    pub statement: String,
    /// Every comparison.
    pub comparisons: Vec<Measured>,
}

/// The judgement of the comparisons of one form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormJudgement {
    /// The form.
    pub form: Form,
    /// Number of comparisons that gave a value.
    pub done: u32,
    /// Comparisons without an effect in which a difference was found.
    pub no_effect: Count,
    /// Comparisons, of all, whose baseline was found to differ from its second instance in the same
    /// blocks.
    pub control: Count,
    /// Comparisons with an effect in which a difference was found, by effect.
    pub effects: Vec<EffectCount>,
    /// Intervals, of all comparisons, that hold the truth.
    pub coverage: Count,
    /// The mean log ratio of all comparisons without an effect, as a fraction, with its 99.9 %
    /// interval. It shows whether the label alone changes a result.
    pub label: Option<Interval>,
    /// The mean log ratio of the baseline's second instance to the baseline, with the same
    /// interval.
    pub control_effect: Option<Interval>,
    /// By how much the effects that were found differ from those that were injected: the mean log
    /// ratio of the two, as a fraction, with the same interval. Intervals that miss the truth on one
    /// side alone show here.
    pub bias: Option<Interval>,
    /// The median of the smallest effects that the comparisons could have found with 80 % power.
    pub smallest_detectable: Option<f64>,
}

/// How often something happened, and how often it may happen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Number of comparisons.
    pub of: u32,
    /// Number of comparisons in which it happened.
    pub observed: u32,
    /// The number expected.
    pub expected: f64,
    /// The range of numbers that chance explains in 99.9 % of selftests.
    pub allowed: Band,
}

impl Count {
    fn is_inside(&self) -> bool {
        self.allowed.holds(self.observed)
    }
}

/// How often an effect was found and covered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffectCount {
    /// The effect, a fraction.
    pub effect: f64,
    /// Comparisons that found it. The expected number follows from the smallest effect that each
    /// comparison claims it could have found.
    pub found: Count,
    /// Intervals that hold the effect.
    pub covered: Count,
}

/// A comparison that gave no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedComparison {
    /// Position in the selftest.
    pub comparison: u32,
    /// The reason.
    pub reason: String,
}

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every count is inside its band.
    Inside,
    /// Some count is outside its band.
    Outside,
}

/// Judges the results.
pub fn judge(design: &Design, conducted: SelftestResults) -> Judgement {
    let measured = &conducted.measured;
    let (slices_us, unsliced) = length_or_reason(conducted.sliced);
    let could = |form: Form| unsliced.is_none() || form == Form::Whole;
    let forms: Vec<FormJudgement> =
        design.forms.iter().filter(|form| could(**form)).map(|form| of_form(*form, measured)).collect();
    let problems: Vec<String> = forms.iter().flat_map(problems).collect();
    let planned = design.comparisons().iter().filter(|comparison| could(comparison.form)).count() as u32;
    let done = measured.len() as u32;
    Judgement {
        format: FORMAT,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        seed: design.seed,
        blocks: BLOCKS,
        planned,
        done,
        cut_short: conducted.cut_short.map(str::to_owned),
        slices_us,
        unsliced,
        forms,
        voids: conducted.voids,
        noisy_hosts: conducted.noisy_hosts,
        failed: conducted
            .failed
            .into_iter()
            .map(|(comparison, reason)| FailedComparison { comparison, reason })
            .collect(),
        verdict: if problems.is_empty() { Verdict::Inside } else { Verdict::Outside },
        statement: statement(&problems, done, planned),
        comparisons: conducted.measured,
    }
}

/// The length of the slices, microseconds, and the reason why nothing was sliced.
pub(super) fn length_or_reason(sliced: Option<Result<u32, String>>) -> (Option<u32>, Option<String>) {
    match sliced {
        None => (None, None),
        Some(Ok(us)) => (Some(us), None),
        Some(Err(reason)) => (None, Some(reason)),
    }
}

fn of_form(form: Form, measured: &[Measured]) -> FormJudgement {
    let all: Vec<&Measured> = measured.iter().filter(|m| m.form == form).collect();
    let with = |effect: f64| all.iter().copied().filter(|m| m.injected == effect).collect::<Vec<_>>();
    let of_effect = |effect: &f64| {
        let with = with(*effect);
        EffectCount { effect: *effect, found: found(&with), covered: coverage(&with) }
    };
    let without = with(0.0);
    let controls = || all.iter().filter_map(|m| m.control.as_ref());
    let chances = controls().map(|control| chance_of_a_miss(&control.log_ratios, 0.0)).collect();
    let mut smallest: Vec<f64> = all.iter().map(|m| m.smallest_detectable).collect();
    smallest.sort_by(f64::total_cmp);
    FormJudgement {
        form,
        done: all.len() as u32,
        no_effect: false_positives(without.iter().map(|m| is_found(m)), chances_of_a_miss(&without)),
        control: false_positives(controls().map(|control| !holds(control.found, 0.0)), chances),
        effects: EFFECTS.iter().map(of_effect).collect(),
        coverage: coverage(&all),
        label: mean_of_means(without.iter().map(|m| m.found)),
        control_effect: mean_of_means(controls().map(|control| control.found)),
        bias: mean_of_means(all.iter().filter(|m| m.injected > 0.0).map(|m| beyond(m.found, m.injected))),
        smallest_detectable: smallest.get(smallest.len() / 2).copied(),
    }
}

fn statement(problems: &[String], done: u32, planned: u32) -> String {
    match (problems, done < planned) {
        ([], false) => "everything lies within its band".into(),
        ([], true) => {
            format!("everything lies within its band, as far as {done} of {planned} comparisons say")
        }
        (problems, _) => problems.join("; "),
    }
}

fn problems(of: &FormJudgement) -> Vec<String> {
    let FormJudgement { no_effect, control, effects, coverage, label, control_effect, bias, .. } = of;
    let said = |what: String, count: &Count| {
        let Count { of, observed, allowed: Band { low, high }, .. } = count;
        (!count.is_inside()).then(|| format!("{what} {observed} of {of} times, {low} to {high} are allowed"))
    };
    let percent = |effect: f64| format!("{} %", effect * 100.0);
    let changes = |what: &str, effect: &Option<Interval>| {
        let effect = effect.as_ref().filter(|effect| !holds(**effect, 0.0))?;
        Some(format!("{what} by {}", in_percent(effect, "")))
    };
    let label = changes("the label alone changes the result", label);
    let control_effect = changes("the second instance of the baseline differs from it", control_effect);
    let bias = changes("the effects that are found differ from those that were injected", bias);
    let of_effects = effects.iter().flat_map(|count| {
        let found = said(format!("an effect of {} was found", percent(count.effect)), &count.found);
        let covered = said(format!("intervals held the effect of {}", percent(count.effect)), &count.covered);
        [found, covered]
    });
    let ends = [said("intervals held the truth".into(), coverage), label, control_effect, bias];
    [
        said("equal environments were called different".into(), no_effect),
        said("the baseline was called different from itself".into(), control),
    ]
    .into_iter()
    .chain(of_effects)
    .chain(ends)
    .flatten()
    .map(|problem| format!("{}: {problem}", of.form.words()))
    .collect()
}

pub(super) fn is_found(measured: &Measured) -> bool {
    measured.p < LEVEL
}

fn is_covered(measured: &Measured) -> bool {
    holds(measured.found, measured.injected)
}

/// Whether an interval holds an effect.
pub(super) fn holds(found: Interval, effect: f64) -> bool {
    (found.low..=found.high).contains(&effect)
}

/// Counts false positives against the level, given the chance of each comparison to be one.
fn false_positives(found: impl Iterator<Item = bool>, by_chance: Vec<f64>) -> Count {
    let observed = found.filter(|found| *found).count() as u32;
    let of = by_chance.len() as u32;
    let nominal = binomial_band(of, LEVEL);
    // Noise with rare large spikes makes the test more conservative than its level. That is no
    // fault, and its extent is known exactly.
    let low = nominal.low.min(poisson_binomial_band(&by_chance).low);
    Count { of, observed, expected: LEVEL * f64::from(of), allowed: Band { low, ..nominal } }
}

/// Counts effects found, against the power that the smallest detectable effects promise.
fn found(measured: &[&Measured]) -> Count {
    let chances: Vec<f64> = measured
        .iter()
        .map(|m| power(m.injected, m.smallest_detectable, f64::from(m.pairs.max(2) - 1)))
        .collect();
    Count {
        of: measured.len() as u32,
        observed: measured.iter().filter(|m| is_found(m)).count() as u32,
        // The sum of no values is -0.
        expected: chances.iter().sum::<f64>() + 0.0,
        allowed: poisson_binomial_band(&chances),
    }
}

/// Counts intervals that hold the truth, against 95 %.
fn coverage(measured: &[&Measured]) -> Count {
    let of = measured.len() as u32;
    let holds: Vec<f64> = chances_of_a_miss(measured).iter().map(|chance| 1.0 - chance).collect();
    let nominal = binomial_band(of, 1.0 - LEVEL);
    // As for false positives, being more conservative is no fault.
    let high = nominal.high.max(poisson_binomial_band(&holds).high);
    Count {
        of,
        observed: measured.iter().filter(|m| is_covered(m)).count() as u32,
        expected: (1.0 - LEVEL) * f64::from(of),
        allowed: Band { high, ..nominal },
    }
}

/// Returns the chance of each comparison to miss the truth, given how much its pairs happen to
/// differ from it.
fn chances_of_a_miss(measured: &[&Measured]) -> Vec<f64> {
    measured.iter().map(|m| chance_of_a_miss(&m.log_ratios, m.injected)).collect()
}

fn chance_of_a_miss(log_ratios: &[f64], effect: f64) -> f64 {
    let deviations: Vec<f64> = log_ratios.iter().map(|ratio| ratio - effect.ln_1p()).collect();
    rejection_by_chance(&deviations).unwrap_or(LEVEL)
}

/// Returns what is found beyond an effect, as a fraction of the time with that effect.
fn beyond(found: Interval, effect: f64) -> Interval {
    found.map(|found| (1.0 + found) / (1.0 + effect) - 1.0)
}

/// Returns the mean of the comparisons' means. Its 99.9 % interval treats each comparison as one
/// observation.
fn mean_of_means(found: impl Iterator<Item = Interval>) -> Option<Interval> {
    mean_effect(&found.map(|found| found.estimate.ln_1p()).collect::<Vec<f64>>(), 0.999)
}

/// Returns the mean of log ratios as an effect, with its interval; none for fewer than two.
pub(super) fn mean_effect(log_ratios: &[f64], confidence: f64) -> Option<Interval> {
    let (mean, half) = weigh_stats::mean_within(log_ratios, confidence)?;
    Some(Interval { estimate: mean, low: mean - half, high: mean + half }.map(f64::exp_m1))
}

/// Formats an effect and its interval, in per cent, followed by `confidence`.
fn in_percent(effect: &Interval, confidence: &str) -> String {
    let Interval { estimate, low, high } = effect.map(|effect| effect * 100.0);
    format!("{estimate:+.3} % ({low:+.3} to {high:+.3} %{confidence})")
}

/// Arranges a judgement for display.
pub fn document(judgement: &Judgement) -> Document {
    let (word, tone) = match judgement.verdict {
        Verdict::Inside => ("INSIDE", Tone::Same),
        Verdict::Outside => ("OUTSIDE", Tone::Worse),
    };
    let verdict = Item::new(word, vec![judgement.statement.clone()]).tone(tone);
    let mut document = Document::default();
    for of in &judgement.forms {
        document.add(Section::plain().with(Audience::ALL, Block::table(table(judgement, of))));
        document.add(Section::plain().with(Audience::ALL, Block::bullets(beside(of))));
    }
    document.add(Section::plain().with(Audience::ALL, Block::bullets(beside_all(judgement))));
    document.add(Section::plain().with(Audience::ALL, Block::list(ListKind::Labels, [verdict])));
    document
}

fn table(judgement: &Judgement, of: &FormJudgement) -> Table {
    let form = of.form.title(judgement.slices_us);
    let FormJudgement { done, .. } = of;
    let Judgement { blocks, seed, .. } = judgement;
    let caption = format!("{form}: {done} comparisons of {blocks} blocks each, seed {seed}");
    let texts = ["effect", "expected", "allowed", "", "intervals hold it", "allowed", ""].map(Column::text);
    let [effect, expected, allowed, inside, held, range, holds] = texts;
    let found = |count: &Count| {
        [
            Entry::count(count.of),
            Entry::count(count.observed),
            Entry::text(format!("{:.1}", count.expected)),
            Entry::text(band(count.allowed)),
            mark(count),
        ]
    };
    let covered = |count: Option<&Count>| match count {
        Some(count) => [Entry::count(count.observed), Entry::text(band(count.allowed)), mark(count)],
        None => [Entry::nothing(), Entry::nothing(), Entry::nothing()],
    };
    let row = |effect: String, count: &Count, held: Option<&Count>| {
        Row::new([Entry::text(effect)].into_iter().chain(found(count)).chain(covered(held)))
    };
    let effects = of
        .effects
        .iter()
        .map(|count| row(format!("{} %", count.effect * 100.0), &count.found, Some(&count.covered)));
    let (number, hits) = (Column::number("of"), Column::number("found"));
    let columns = vec![effect, number, hits, expected, allowed, inside, held, range, holds];
    let without = [row("none".into(), &of.no_effect, None), row("control".into(), &of.control, None)];
    let rows = without.into_iter().chain(effects).collect();
    Table::new(caption, columns, rows)
}

fn mark(count: &Count) -> Entry {
    if count.is_inside() { Entry::flag(Tone::Same, "ok") } else { Entry::flag(Tone::Worse, "OUTSIDE") }
}

/// Describes the results of a form other than its counts.
fn beside(of: &FormJudgement) -> Vec<String> {
    let coverage = &of.coverage;
    let mut lines = vec![format!(
        "coverage: {} of {} 95 % intervals hold the truth; {} are allowed",
        coverage.observed,
        coverage.of,
        band(coverage.allowed)
    )];
    let differs = |what: &str, effect: &Option<Interval>| {
        effect.as_ref().map(|effect| format!("{what} differs by {}", in_percent(effect, ", 99.9 %")))
    };
    lines.extend(differs("label: without an effect the second environment", &of.label));
    lines.extend(differs("control: a second instance of the baseline", &of.control_effect));
    lines.extend(differs("bias: an effect that is found", &of.bias));
    lines.extend(of.smallest_detectable.map(|smallest| {
        format!("smallest effect: half of the comparisons find {:.2} % with 80 % power", smallest * 100.0)
    }));
    lines
}

/// Describes the results that belong to no form.
fn beside_all(judgement: &Judgement) -> Vec<String> {
    let unsliced = judgement.unsliced.iter();
    let mut lines: Vec<String> =
        unsliced.map(|reason| format!("slices: nothing can be sliced here: {reason}")).collect();
    let Judgement { done, planned, .. } = judgement;
    let cut_short = judgement.cut_short.iter();
    lines
        .extend(cut_short.map(|why| format!("cut short: {done} comparisons, {planned} were planned: {why}")));
    lines.push(noise_line(judgement));
    let failed = judgement.failed.iter().take(3);
    lines.extend(failed.map(|failed| format!("failed: comparison {}: {}", failed.comparison, failed.reason)));
    lines
}

fn noise_line(judgement: &Judgement) -> String {
    let causes: Vec<String> =
        judgement.voids.iter().map(|(cause, count)| format!("{count} by {cause}")).collect();
    let voids = if causes.is_empty() {
        "no unit was void".into()
    } else {
        format!("void units: {}", causes.join(", "))
    };
    format!(
        "noise: {voids}; {} comparisons on a NOISY-HOST; {} failed",
        judgement.noisy_hosts,
        judgement.failed.len()
    )
}

fn band(band: Band) -> String {
    format!("{} to {}", band.low, band.high)
}
