//! The sentences around the tables: what was asked, what a reader has to know first, how to read
//! the tables.

use crate::Report;
use crate::design;
use crate::differences::{Standing, differences, keys, misnamed};
use crate::quantity::{magnitude, plain_percent};
use crate::results::common_flags;
use std::collections::BTreeMap;
use weigh_model::{Better, HostFacts, NoiseLimits, distinct, format_bytes, number_of};
use weigh_stats::{Cell, EQUIVALENT_FEWEST_BLOCKS, Flag, Warning, WarningKind};

/// The meaning of the column of the smallest effects.
pub(crate) const COULD_SEE: &str = "could see: the smallest effect that this many blocks with this spread would find with 80 % power; where there are verdicts, it is adjusted like them.";

/// The meaning of an overhead of a rate.
pub(crate) const RATES: &str = "For rates it is the extra time per operation: half the rate is +100 %. It is neither a share of throughput nor CPU time.";

/// Whether any metric is a rate.
pub(crate) fn has_rates(report: &Report) -> bool {
    report.analysis.cells.iter().any(|cell| cell.metric.better == Better::Higher)
}

/// Whether the report has no number at all.
pub(crate) fn nothing_measured(report: &Report) -> bool {
    report.analysis.cells.iter().all(|cell| cell.summary.is_none())
}

/// Keeps a number and its per cent sign on one line.
fn bind_units(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}

fn compared(report: &Report) -> impl Iterator<Item = &Cell> {
    report.analysis.cells.iter().filter(|cell| cell.environment != report.analysis.baseline)
}

/// A label that applies to the whole report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Label {
    pub word: String,
    pub meaning: String,
}

/// What was asked, as pairs of a term and its value.
pub(crate) fn subject(report: &Report) -> Vec<(String, String)> {
    let mut subject = Vec::new();
    let mut add = |what: &str, value: String| subject.push((what.to_string(), value));
    if let Some(run) = &report.run {
        add("run", run.clone());
    }
    if let Some(compared) = &report.compared {
        add("before", compared.before.clone());
        add("after", compared.after.clone());
    }
    let (environments, workloads) = match &report.plan {
        Some(plan) => (
            distinct(plan.environments.iter().map(|e| e.name.as_str())),
            distinct(plan.workloads.iter().map(|w| w.id.as_str())),
        ),
        None => (
            distinct(report.analysis.cells.iter().map(|cell| cell.environment.as_str())),
            distinct(report.analysis.cells.iter().map(|cell| cell.workload.as_str())),
        ),
    };
    if !environments.is_empty() {
        add("environments", environments.join(", "));
    }
    add("baseline", report.analysis.baseline.clone());
    if !workloads.is_empty() {
        add("workloads", workloads.join(", "));
    }
    for chosen in &report.circumstances.iterations {
        add("runs per trial", format!("{} of {}, as the pilot chose", chosen.iterations, chosen.workload));
    }
    if let Some(effort) = effort(report) {
        add("effort", effort);
    }
    if let Some(samples) = &report.samples {
        add("samples", samples.clone());
    }
    if let Some(plan) = &report.plan {
        let cpus = match plan.guest.cpus.as_slice() {
            [] => "all CPUs".into(),
            [one] => format!("CPU {one}"),
            several => {
                format!("CPUs {}", several.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
        };
        let memory = plan
            .guest
            .memory_bytes
            .map_or("no memory limit".into(), |m| format!("memory {}", format_bytes(m)));
        add("every guest", format!("{cpus}, {memory}, image {}", plan.guest.image));
    }
    if let Some(host) = &report.host {
        add(
            "host",
            format!(
                "{}, {} CPUs, {:.1} GiB, Linux {}",
                host.cpu(),
                host.cpus.len(),
                host.memory_bytes as f64 / 1_073_741_824.0,
                host.kernel
            ),
        );
    }
    subject
}

fn effort(report: &Report) -> Option<String> {
    if design::looks(report).is_some() {
        // Its comparisons each have their own number of blocks.
        return report.effort_label.clone();
    }
    let blocks = match (report.blocks_done, report.blocks_planned) {
        (Some(done), Some(planned)) if done <= planned => Some(format!("{done} of {planned} blocks done")),
        (Some(done), Some(planned)) => Some(format!("{done} blocks done, {planned} planned at least")),
        (Some(done), None) => Some(format!("{done} blocks done")),
        (None, Some(planned)) => Some(format!("{planned} blocks planned")),
        (None, None) => None,
    };
    match (report.effort_label.clone(), blocks) {
        (Some(label), Some(blocks)) => Some(format!("{label}, {blocks}")),
        (one, other) => one.or(other),
    }
}

/// What a reader has to know before any number. The label for a run without measurements is left
/// out while the run is in progress.
pub(crate) fn labels(report: &Report, going_on: bool) -> Vec<Label> {
    let mut labels = Vec::new();
    let mut add =
        |word: &str, meaning: &str| labels.push(Label { word: word.into(), meaning: meaning.into() });
    if nothing_measured(report) && !going_on {
        add("NOTHING MEASURED", "no environment gave a number; the failures below say why");
    }
    if report.analysis.exploratory {
        add("EXPLORATORY", "a quick run: differences can be found, equivalence cannot");
    }
    let has = |flag: Flag| compared(report).any(|cell| cell.flags.contains(&flag));
    if has(Flag::Unpaired) {
        add(
            "UNPAIRED",
            "the samples name no blocks, so two unpaired groups are compared (Welch on logarithms); what the host did \
             between them is part of the difference",
        );
    }
    if has(Flag::Sequential) || report.compared.is_some() {
        add(
            "SEQUENTIAL",
            "the runs share no time; the change of each environment's ratio to its own baseline is compared \
             (Welch), and what the host did to one environment only is part of it",
        );
    }
    if has(Flag::OneRun) {
        let example = match report.samples {
            Some(_) => "weigh analyse A=1 A=2 A=3 B=4 B=5 B=6",
            None => "weigh compare A1 A2 A3 --with B1 B2 B3",
        };
        add(
            "ONE RUN",
            &format!(
                "one run on a side: intervals are about these runs, and others of the same thing may differ by \
                 more; a verdict takes several on each side ({example})"
            ),
        );
    }
    let incomplete = |warning: &&Warning| matches!(warning.kind, WarningKind::RunIncomplete { .. });
    if let Some(warning) = report.analysis.warnings.iter().find(incomplete)
        && design::looks(report).is_none()
        && !going_on
    {
        add("INCOMPLETE", &warning.kind.to_string());
    }
    if design::looks(report).is_some() && design::open_cells(report) > 0 && !going_on {
        add(
            "INCOMPLETE",
            "some comparisons had not ended when the run was interrupted; their intervals hold at any moment",
        );
    }
    if let Some(plan) = &report.plan {
        if plan.guest.reuse {
            add(
                "REUSED INSTANCES",
                "one instance of each environment served every block: the intervals are about these instances, \
                 others may differ, and there is no verdict",
            );
        }
        if !plan.allow_unequal.is_empty() {
            add(
                "UNEQUAL BY REQUEST",
                &format!("environments may differ in {}", plan.allow_unequal.join(", ")),
            );
        }
    }
    faults(report, &mut labels);
    labels
}

/// The label of results from a host that an emulator executes, and its meaning.
pub const EMULATED_HOST: (&str, &str) = (
    "EMULATED HOST",
    "an emulator executes this host's instructions: the numbers do not apply to real hardware",
);

/// What makes every number doubtful: a host so noisy that voiding was given up, unlike
/// environments, a name that claims another acceleration.
fn faults(report: &Report, labels: &mut Vec<Label>) {
    let mut add = |word: &str, meaning: String| labels.push(Label { word: word.into(), meaning });
    if report.host.as_ref().is_some_and(HostFacts::is_emulated) {
        add(EMULATED_HOST.0, EMULATED_HOST.1.into());
    }
    if let Some(noisy) = &report.circumstances.noisy_host {
        add(
            "NOISY-HOST",
            format!(
                "{} of the first {} units were void, so from block {} on noise voids nothing: what others did on this host is \
                 part of the numbers, and the intervals are wide because of it",
                noisy.void_units, noisy.units, noisy.from_block
            ),
        );
    } else if report.plan.as_ref().is_some_and(|plan| !plan.noise.voiding && report.analysis.exploratory) {
        if compared(report).any(|cell| cell.flags.contains(&Flag::Disturbed)) {
            add(
                "NOISY",
                "a quick run voids nothing: rows that say DISTURBED have the host's noise in them".into(),
            );
        }
    } else if report.plan.as_ref().is_some_and(|plan| !plan.noise.voiding) {
        add(
            "VOIDING OFF",
            "noise on the host voids nothing, as requested: what others did is part of the numbers".into(),
        );
    }
    let found = differences(report);
    let faults = found.iter().filter(|difference| difference.standing == Standing::Fault);
    for environment in distinct(faults.map(|fault| fault.environment.as_str())) {
        add(
            "UNEQUAL",
            format!(
                "{environment} differs from {} in {}, which nothing implies and nobody allowed: its ratios compare unlike \
                 things",
                report.analysis.baseline,
                keys(&found, environment, Standing::Fault).join(", ")
            ),
        );
    }
    for (environment, acceleration) in misnamed(report) {
        add(
            "MISNAMED",
            format!("{environment} ran with acceleration {acceleration}, which differs from its name"),
        );
    }
}

/// The sign convention.
pub(crate) fn convention(report: &Report) -> String {
    if nothing_measured(report) {
        return String::new();
    }
    let baseline = &report.analysis.baseline;
    bind_units(&if report.compared.is_some() {
        format!(
            "+ is worse: the cost relative to {baseline} rose from before to after; brackets hold the 95 % \
             interval in per cent."
        )
    } else {
        format!("+ is worse: it costs more than {baseline}; brackets hold the 95 % interval in per cent.")
    })
}

/// The sign convention in few words.
pub(crate) fn brief_convention(report: &Report) -> String {
    if nothing_measured(report) || report.compared.is_some() {
        return convention(report);
    }
    let baseline = &report.analysis.baseline;
    bind_units(&format!("+ is worse: it costs more than {baseline}; brackets hold the 95 % interval."))
}

/// How to read the tables.
pub(crate) fn reading(report: &Report) -> Vec<String> {
    let analysis = &report.analysis;
    let mut notes: Vec<String> = Vec::new();
    if nothing_measured(report) {
        return notes;
    }
    let loose = common_flags(report).contains(&Flag::Unpaired);
    let over = if loose { "values" } else { "blocks" };
    let mut meaning = String::from(if report.compared.is_some() {
        "The absolute values are medians over blocks, before and after. The change is the ratio of costs to its own \
         baseline after over that before (geometric means over blocks, then over runs), less 1."
    } else if loose {
        "The absolute values are medians. The overhead is the average effect: the ratio of the geometric means of the \
         costs, less 1."
    } else {
        "The absolute values are medians over blocks. The overhead is the average effect: the geometric mean of the ratio \
         of costs, less 1."
    });
    if has_rates(report) {
        meaning.push_str(&format!(" {RATES}"));
    }
    notes.push(meaning);
    if analysis.comparisons > 0 {
        let adjusted = format!(
            "An interval is that of its comparison alone; verdicts are adjusted for {} (Holm).",
            number_of(analysis.comparisons, "comparison")
        );
        let margin = plain_percent(analysis.margin);
        notes.push(if analysis.exploratory {
            format!(
                "{adjusted} A quick run: differences can be found, equivalence cannot (EQUIVALENT, within {margin} of \
                 the baseline, needs {EQUIVALENT_FEWEST_BLOCKS} blocks)."
            )
        } else {
            format!(
                "{adjusted} EQUIVALENT means within {margin} of the baseline, and needs {EQUIVALENT_FEWEST_BLOCKS} {over}."
            )
        });
    }
    if let Some(effort) = effort(report) {
        notes.push(format!("Effort: {effort}."));
    }
    notes.extend(design::sentence(report));
    notes.extend(unseen(report));
    notes.extend(service_demand(report));
    notes.extend(declared(report));
    notes.iter().map(|note| bind_units(note)).collect()
}

/// How the run was made, in short. Nothing is claimed about samples measured elsewhere.
pub(crate) fn method(report: &Report) -> Option<&'static str> {
    let plan = report.plan.as_ref().filter(|_| !nothing_measured(report))?;
    Some(if plan.guest.reuse {
        "One instance of each environment, the baseline included, served every block. In a block the environments ran back \
         to back in random order, and each gave one number; the ratios to the baseline are taken block by block. Warm-up \
         runs are not counted, nothing was repeated because of what it measured, and no outlier is dropped."
    } else {
        "Every block launched a fresh instance of each environment, the baseline included, and ran them back to back in \
         random order. In a block each environment gave one number; the ratios to the baseline are taken block by block. \
         Warm-up runs are not counted, nothing was repeated because of what it measured, and no outlier is dropped."
    })
}

/// The meaning of the column of CPU time.
fn service_demand(report: &Report) -> Option<String> {
    let charges = &report.circumstances.charges;
    charges.first()?;
    let operations = distinct(charges.iter().map(|charge| charge.operation.as_str()));
    let headings: Vec<String> = operations.iter().map(|operation| format!("CPU/{operation}")).collect();
    let mut text = format!(
        "{}: CPU time charged to the environment per operation, the guest's and that of every helper that serves it alone \
         (median over blocks). It is not part of the overhead and has no verdict.",
        headings.join(", ")
    );
    if charges.iter().any(|charge| charge.cycles_per_op.is_some()) {
        text.push_str(" Where the processor counts cycles, cycles replace it.");
    }
    if charges.iter().any(|charge| charge.instructions_per_cycle().is_some()) {
        text.push_str(" More instructions are more work; fewer instructions per cycle are slower work.");
    }
    if charges.iter().any(|charge| !charge.daemons_ns_per_op.is_empty()) {
        text.push_str(" The CPU time of daemons that all guests share is listed separately and not charged.");
    }
    Some(text)
}

/// The noise limits that were declared before the run.
fn declared(report: &Report) -> Option<String> {
    let limits = report.plan.as_ref()?.noise;
    report.circumstances.noise.as_ref()?;
    let own = if limits == NoiseLimits::default() { "" } else { " (set for this run)" };
    let voids = if limits.voiding {
        format!("voids a unit beyond {}", plain_percent(limits.void_share))
    } else {
        "voids nothing".into()
    };
    Some(format!(
        "Steal or foreign CPU is worth a warning beyond {} of the CPUs in use and {voids}{own}; this was declared before the run.",
        plain_percent(limits.warn_share)
    ))
}

/// The bound on an unseen mode, by number of blocks.
fn unseen(report: &Report) -> Option<String> {
    let bounds: BTreeMap<u32, f64> = compared(report)
        .filter(|cell| cell.summary.is_some())
        .filter_map(|cell| cell.unseen_mode_bound.map(|bound| (cell.n, bound)))
        .collect();
    let text: Vec<String> =
        bounds.iter().rev().map(|(n, bound)| format!("{} at n {n}", magnitude(*bound))).collect();
    (!text.is_empty()).then(|| {
        format!(
            "A slow or fast mode in at most this share of blocks may have stayed unseen (95 % confidence): {}.",
            text.join(", ")
        )
    })
}
