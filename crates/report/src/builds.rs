//! The report of a gate of two builds: one sentence, one table, what to do.

use crate::document::{Audience, Block, Document, Entry, Section, Tone};
use crate::gate::{GatedCell, Judgement, of_builds};
use crate::own::{self, OwnRow};
use crate::quantity::{Effect, Quantity, Scale};
use crate::text::{join, shown_name};
use crate::{Gate, Report};
use weigh_stats::{Cell, GateOutcome};

/// The most reasons that a sentence of the document names.
const MOST_REASONS: usize = 5;

/// The decision of a gate of two builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Every comparison is shown to lie below its limit.
    Pass,
    /// Some comparison is shown to lie above its limit.
    Regression,
    /// Some comparison is shown to lie neither above its limit nor below it.
    Undecided,
    /// Some comparison could not be measured or judged.
    NotJudged,
}

impl Judgement {
    /// The decision of a gate of two builds (method specification, "Gates of two builds"). A
    /// regression takes precedence over a comparison that cannot be judged, and that over one that
    /// is undecided.
    pub fn decision(&self) -> Decision {
        let nothing = self.below.is_empty() && self.undecided.is_empty();
        match self {
            _ if !self.above.is_empty() => Decision::Regression,
            _ if !self.not_judged.is_empty() || nothing => Decision::NotJudged,
            _ if !self.undecided.is_empty() => Decision::Undecided,
            _ => Decision::Pass,
        }
    }
}

/// The document of a run that compares two builds by a gate; none for other runs.
pub(crate) fn document(report: &Report) -> Option<Document> {
    let gated = of_builds(report)?;
    let judgement = Judgement::of_builds(report)?;
    let decision = judgement.decision();
    let word = match decision {
        Decision::Pass => "pass",
        Decision::Regression => "slower",
        Decision::Undecided => "undecided",
        Decision::NotJudged => "not judged",
    };
    let mut document = Document::new(&format!("Gate: {word}"));
    let sentence = Block::Prose(tone(decision), sentence(decision, &judgement));
    document.add(Section::plain().with(Audience::ALL, sentence));
    if !gated.is_empty() {
        let rows = gated.iter().map(|of| row(report, of)).collect();
        let columns = ["old", "new", "change", "limit", "blocks", "outcome"];
        let table = own::table("Comparisons".into(), NOTE.into(), "comparison", &columns, rows);
        document.add(Section::plain().with(Audience::ALL, Block::table(table)));
    }
    let reasons = judgement.not_judged.iter().take(MOST_REASONS).cloned();
    let left = judgement.not_judged.len().saturating_sub(MOST_REASONS);
    let more = (left > 0).then(|| format!("and {left} more"));
    document.add(Section::new("Not judged").with(Audience::ALL, Block::bullets(reasons.chain(more))));
    document.add(Section::new("What to do").with(Audience::ALL, Block::bullets(advice(report, decision))));
    document.add(Section::plain().with(Audience::ALL, Block::facts(facts(report))));
    Some(document)
}

/// What the columns of the table mean.
const NOTE: &str = "change of the cost, new against old in the same blocks, with its 95 % interval over all looks; + is worse";

fn tone(decision: Decision) -> Tone {
    match decision {
        Decision::Pass => Tone::Same,
        Decision::Regression => Tone::Worse,
        Decision::Undecided | Decision::NotJudged => Tone::Open,
    }
}

fn sentence(decision: Decision, judgement: &Judgement) -> String {
    let Judgement { above, below, undecided, not_judged } = judgement;
    let all = above.len() + below.len() + undecided.len() + not_judged.len();
    let of = |some: &[String], what: &str| match (some.len(), all) {
        (1, 1) => format!("the comparison {what}"),
        (some, all) => format!("{some} of {all} comparisons {what}"),
    };
    match decision {
        Decision::Pass if all == 1 => {
            "The new build passes: the change is shown to lie below its limit.".into()
        }
        Decision::Pass => {
            format!("The new build passes: all {all} changes are shown to lie below their limits.")
        }
        Decision::Regression => {
            let what = if above.len() == 1 { "lies above its limit" } else { "lie above their limits" };
            format!("The new build is slower: {}.", of(above, what))
        }
        Decision::Undecided => {
            let what = match undecided.len() {
                1 => "is shown to lie neither above its limit nor below it",
                _ => "are shown to lie neither above their limits nor below them",
            };
            format!("It is not decided whether the new build is slower: {}.", of(undecided, what))
        }
        Decision::NotJudged if all == 0 => "Nothing was measured that the gate could judge.".into(),
        Decision::NotJudged => {
            format!("The gate cannot judge the new build: {}.", of(not_judged, "could not be judged"))
        }
    }
}

fn row(report: &Report, of: &GatedCell<'_>) -> OwnRow {
    let GatedCell { cell, gate: Gate { percent, .. }, outcome } = *of;
    let is_old = |other: &&Cell| {
        other.environment == report.analysis.baseline
            && (&other.workload, &other.metric.name) == (&cell.workload, &cell.metric.name)
    };
    let old = report.analysis.cells.iter().find(is_old);
    let medians = [old, Some(cell)].map(|side| side.and_then(|side| Some(side.summary?.median)));
    let scale = Scale::new(&cell.metric.unit, medians.iter().flatten().copied(), None);
    let [old, new] = medians
        .map(|median| median.map_or_else(Entry::nothing, |value| Entry::quantity(scale.quantity(value))));
    let (tone, word) = match outcome {
        GateOutcome::Above => (Tone::Worse, "above"),
        GateOutcome::Below => (Tone::Same, "below"),
        GateOutcome::Undecided => (Tone::Open, "undecided"),
        GateOutcome::NotJudged => (Tone::Open, "not judged"),
    };
    OwnRow {
        name: Entry::name(format!("{} {}", cell.workload, cell.metric.name)),
        entries: vec![
            old,
            new,
            cell.overhead.map_or_else(Entry::nothing, |overhead| Entry::effect(Effect::from(overhead))),
            Entry::quantity(Quantity::new(percent, percent.to_string(), "%")),
            Entry::count(cell.n),
            Entry::flag(tone, word),
        ],
        remark: (cell.failed > 0).then(|| join(&format!("{} of {} trials failed", cell.failed, cell.tried))),
    }
}

fn advice(report: &Report, decision: Decision) -> Vec<String> {
    let show =
        format!("`weigh show {} --details` shows every block", report.run.as_deref().unwrap_or("last"));
    match decision {
        Decision::Pass => Vec::new(),
        Decision::Regression => vec![
            format!("Find the cause of the largest change first; {show}."),
            "Do not repeat the gate until it passes: a repeated gate has no error rate. If the cost is \
             accepted, raise the limit in the change that causes it."
                .into(),
        ],
        Decision::Undecided => vec![
            "Give the gate more blocks (`--blocks`), longer trials (`--iterations`) or a quieter machine; \
             or raise limits that lie within its noise."
                .into(),
            format!("Repeating it on the same terms would decide no more; {show}."),
        ],
        Decision::NotJudged => vec![format!(
            "Correct what is named above, and run the gate again; what was measured is kept, and {show}."
        )],
    }
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let environments = report.plan.iter().flat_map(|plan| &plan.environments);
    // Of two commands in one environment the names say no more than `old` and `new`.
    let commands = || report.plan.iter().flat_map(|plan| &plan.workloads).map(|workload| &workload.commands);
    let build = |name: &String| match commands().find_map(|commands| commands.get(name)) {
        Some(command) => shown_name(&command.join(" ")),
        None => shown_name(name),
    };
    let mut facts: Vec<(&'static str, String)> =
        ["old", "new"].into_iter().zip(environments.map(|environment| build(&environment.name))).collect();
    if let Some(run) = &report.run {
        facts.push(("run", shown_name(run)));
    }
    facts
}
