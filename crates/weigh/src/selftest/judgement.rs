//! Judges whether the comparisons found what the method promises.

use super::conduct::{Conducted, Measured};
use super::design::{BLOCKS, Design, EFFECTS, Form};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::SliceChoice;
use weigh_report::Document;
use weigh_report::document::{Audience, Block, Column, Entry, Item, ListKind, Row, Section, Table, Tone};
use weigh_stats::{Band, binomial_band, poisson_binomial_band, power, rejection_by_chance};

/// The level of a difference, for one comparison alone.
const LEVEL: f64 = 0.05;

/// Version of the JSON.
const FORMAT: u32 = 2;

/// The result of a selftest: the JSON of `--format json` and of `selftest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Version of this structure.
    pub format: u32,
    /// Version of weighbridge.
    pub tool_version: String,
    /// Seed of every choice.
    pub seed: u64,
    /// Blocks of each comparison.
    pub blocks: u32,
    /// Comparisons that were meant to be made.
    pub planned: u32,
    /// Comparisons that gave a number.
    pub done: u32,
    /// Why some were not made, if so.
    pub cut_short: Option<String>,
    /// Length of the slices, microseconds; absent where nothing was sliced.
    pub slices_us: Option<u32>,
    /// Why nothing was sliced although it was to be.
    pub unsliced: Option<String>,
    /// The judgement of each form that was to be measured and could be.
    pub forms: Vec<OfForm>,
    /// Void units by cause; each was replaced.
    pub voids: BTreeMap<String, u32>,
    /// Comparisons that continued with voiding off because most of their units would have been
    /// void, or began so because of the ones before them.
    pub noisy_hosts: u32,
    /// Comparisons that gave no number.
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
pub struct OfForm {
    /// The form.
    pub form: Form,
    /// Comparisons that gave a number.
    pub done: u32,
    /// Comparisons without an effect in which a difference was found.
    pub no_effect: Count,
    /// Comparisons with an effect in which a difference was found, by effect.
    pub effects: Vec<EffectCount>,
    /// Intervals, of all comparisons, that hold the truth.
    pub coverage: Count,
    /// The mean log ratio of all comparisons without an effect, as a fraction, with its 99.9 %
    /// interval: does the label alone change a result?
    pub label: Option<LabelEffect>,
    /// The median of the smallest effects that the comparisons could have found with 80 % power.
    pub smallest_detectable: Option<f64>,
}

/// How often something happened, and how often it may happen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Comparisons.
    pub of: u32,
    /// Those in which it happened.
    pub observed: u32,
    /// The number expected.
    pub expected: f64,
    /// The numbers that chance explains, in 99.9 % of selftests.
    pub allowed: Band,
}

impl Count {
    fn is_inside(&self) -> bool {
        self.allowed.holds(self.observed)
    }
}

/// What became of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffectCount {
    /// The effect, a fraction.
    pub effect: f64,
    /// Comparisons that found it; what is expected follows from the smallest effect that each says
    /// it could have found.
    pub found: Count,
    /// Intervals that hold it.
    pub covered: Count,
}

/// The effect of the label alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabelEffect {
    /// Point estimate, a fraction.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl LabelEffect {
    fn is_inside(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// A comparison without a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedComparison {
    /// Position in the selftest.
    pub comparison: u32,
    /// Why.
    pub reason: String,
}

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything is within its band.
    Inside,
    /// Something is not.
    Outside,
}

/// Judges what was measured.
pub fn judge(design: &Design, conducted: Conducted) -> Judgement {
    let measured = &conducted.measured;
    let (slices_us, unsliced) = match conducted.sliced {
        None => (None, None),
        Some(Ok(us)) => (Some(us), None),
        Some(Err(reason)) => (None, Some(reason)),
    };
    let could = |form: Form| unsliced.is_none() || form == Form::Whole;
    let forms: Vec<OfForm> =
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

fn of_form(form: Form, measured: &[Measured]) -> OfForm {
    let all: Vec<&Measured> = measured.iter().filter(|m| m.form == form).collect();
    let with = |effect: f64| all.iter().copied().filter(|m| m.injected == effect).collect::<Vec<_>>();
    let of_effect = |effect: &f64| {
        let with = with(*effect);
        EffectCount { effect: *effect, found: found(&with), covered: coverage(&with) }
    };
    let without = with(0.0);
    let mut smallest: Vec<f64> = all.iter().map(|m| m.smallest_detectable).collect();
    smallest.sort_by(f64::total_cmp);
    OfForm {
        form,
        done: all.len() as u32,
        no_effect: false_positives(&without),
        effects: EFFECTS.iter().map(of_effect).collect(),
        coverage: coverage(&all),
        label: label_effect(&without),
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

fn problems(of: &OfForm) -> Vec<String> {
    let OfForm { no_effect, effects, coverage, label, .. } = of;
    let said = |what: String, count: &Count| {
        let Count { of, observed, allowed: Band { low, high }, .. } = count;
        (!count.is_inside()).then(|| format!("{what} {observed} of {of} times, {low} to {high} are allowed"))
    };
    let percent = |effect: f64| format!("{} %", effect * 100.0);
    let label = label.as_ref().filter(|label| !label.is_inside()).map(|label| {
        format!(
            "the label alone changes the result by {:+.3} % ({:+.3} to {:+.3} %)",
            label.estimate * 100.0,
            label.low * 100.0,
            label.high * 100.0
        )
    });
    let of_effects = effects.iter().flat_map(|count| {
        let found = said(format!("an effect of {} was found", percent(count.effect)), &count.found);
        let covered = said(format!("intervals held the effect of {}", percent(count.effect)), &count.covered);
        [found, covered]
    });
    let ends = [said("intervals held the truth".into(), coverage), label];
    std::iter::once(said("equal environments were called different".into(), no_effect))
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
    (measured.found.low..=measured.found.high).contains(&measured.injected)
}

/// False positives against the level.
fn false_positives(measured: &[&Measured]) -> Count {
    let observed = measured.iter().filter(|m| is_found(m)).count() as u32;
    let (of, by_chance) = (measured.len() as u32, chances_of_a_miss(measured));
    let nominal = binomial_band(of, LEVEL);
    // Noise with rare large spikes makes the test more conservative than its level, which is no
    // fault, and by how much is known exactly.
    let low = nominal.low.min(poisson_binomial_band(&by_chance).low);
    Count { of, observed, expected: LEVEL * f64::from(of), allowed: Band { low, ..nominal } }
}

/// Effects found, against the power that the smallest effects promise.
fn found(measured: &[&Measured]) -> Count {
    let chances: Vec<f64> = measured
        .iter()
        .map(|m| power(m.injected, m.smallest_detectable, f64::from(m.pairs.max(2) - 1)))
        .collect();
    Count {
        of: measured.len() as u32,
        observed: measured.iter().filter(|m| is_found(m)).count() as u32,
        // The sum of nothing is -0.
        expected: chances.iter().sum::<f64>() + 0.0,
        allowed: poisson_binomial_band(&chances),
    }
}

/// Intervals that hold the truth, against 95 %.
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

/// The chance of each comparison to miss the truth, given how much its pairs happen to differ from
/// it.
fn chances_of_a_miss(measured: &[&Measured]) -> Vec<f64> {
    let deviations =
        |m: &Measured| -> Vec<f64> { m.log_ratios.iter().map(|ratio| ratio - m.injected.ln_1p()).collect() };
    measured.iter().map(|m| rejection_by_chance(&deviations(m)).unwrap_or(LEVEL)).collect()
}

/// The mean of the comparisons' means. Its interval treats each comparison as one observation.
fn label_effect(without: &[&Measured]) -> Option<LabelEffect> {
    let means: Vec<f64> = without.iter().map(|m| m.found.estimate.ln_1p()).collect();
    let (mean, half) = weigh_stats::mean_within(&means, 0.999)?;
    Some(LabelEffect { estimate: mean.exp_m1(), low: (mean - half).exp_m1(), high: (mean + half).exp_m1() })
}

/// What is shown of a judgement.
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

fn table(judgement: &Judgement, of: &OfForm) -> Table {
    let form = match (of.form, judgement.slices_us) {
        (Form::Slices, Some(us)) => format!("slices of {}", SliceChoice::Length(us)),
        (Form::Slices, None) => "slices".into(),
        (Form::Whole, _) => "whole trials".into(),
    };
    let OfForm { done, .. } = of;
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
    let rows = [row("none".into(), &of.no_effect, None)].into_iter().chain(effects).collect();
    Table::new(caption, columns, rows)
}

fn mark(count: &Count) -> Entry {
    if count.is_inside() { Entry::flag(Tone::Same, "ok") } else { Entry::flag(Tone::Worse, "OUTSIDE") }
}

/// What was found beside the counts of a form.
fn beside(of: &OfForm) -> Vec<String> {
    let coverage = &of.coverage;
    let mut lines = vec![format!(
        "coverage: {} of {} 95 % intervals hold the truth; {} are allowed",
        coverage.observed,
        coverage.of,
        band(coverage.allowed)
    )];
    lines.extend(of.label.as_ref().map(|label| {
        format!(
            "label: without an effect the second environment differs by {:+.3} % ({:+.3} to {:+.3} %, 99.9 %)",
            label.estimate * 100.0,
            label.low * 100.0,
            label.high * 100.0
        )
    }));
    lines.extend(of.smallest_detectable.map(|smallest| {
        format!("smallest effect: half of the comparisons find {:.2} % with 80 % power", smallest * 100.0)
    }));
    lines
}

/// What was found beside the forms.
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
