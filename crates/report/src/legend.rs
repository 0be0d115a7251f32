//! The meanings of the flags in the rows.

use crate::Report;
use crate::notes::nothing_measured;
use crate::results::common_flags;
use crate::rows::flag_word;
use std::collections::BTreeSet;
use weigh_stats::Flag;

/// The flags that occur, with their meanings.
pub(crate) fn legend(report: &Report) -> Vec<(String, String)> {
    if nothing_measured(report) {
        return Vec::new();
    }
    let common = common_flags(report);
    let occurring: BTreeSet<Flag> =
        report.analysis.cells.iter().flat_map(|cell| cell.flags.iter().copied()).collect();
    let mut legend: Vec<(String, String)> = occurring
        .into_iter()
        .filter(|flag| !common.contains(flag))
        .map(|flag| (legend_word(flag), meaning(flag).into()))
        .collect();
    if report
        .analysis
        .cells
        .iter()
        .any(|cell| cell.primary && cell.verdict.is_none() && cell.summary.is_some())
        && report.compared.is_none()
    {
        legend.push((
            "NO VERDICT".into(),
            "failed trials could change it, values were unusable or rounded too coarsely, the clock is unproven, the load generator was the limit, or there was nothing to compare \
             with"
            .into(),
        ));
    }
    legend
}

/// A flag as it appears in the rows: with its numbers or names, if it has any.
fn legend_word(flag: Flag) -> String {
    match flag {
        Flag::Failed => "failed k/n".into(),
        Flag::Unequal => "unequal by request".into(),
        other => flag_word(other),
    }
}

fn meaning(flag: Flag) -> &'static str {
    match flag {
        Flag::Failed => {
            "k of n trials failed; their pairs are missing, and there is a verdict only where no worst case of them changes it"
        }
        Flag::BaselineFailed => {
            "trials of the baseline failed or were unusable, so pairs are missing, and there is a verdict only where no worst case of them changes it"
        }
        Flag::UnusableValues => "some values are zero, negative or not a number; there is no verdict",
        Flag::NotMeasured => "nothing was measured",
        Flag::Mixed => {
            "average and typical effect disagree: the effect sits in some blocks and not in others, look at each block"
        }
        Flag::Outliers => "some blocks lie far from the others; they are part of every number",
        Flag::WideSpread => "the standard deviation is at least 10 % of the mean",
        Flag::NoSpread => "all ratios are exactly equal; the interval does not measure precision",
        Flag::Rounded => {
            "values are rounded to steps of more than a quarter of the margin and hardly spread over more than a step; there is no verdict"
        }
        Flag::OneInstance => {
            "one instance of each environment was measured and others may differ; there is no verdict"
        }
        Flag::OneRun => {
            "one run was compared with one other; nothing more is concluded than that these two differ"
        }
        Flag::Control => {
            "a second instance of the baseline in every block: its interval should hold 0; there is no verdict, and the others are not adjusted for it"
        }
        Flag::CorrelatedBlocks => {
            "the ratios of neighbouring blocks are alike (level .01), so that blocks tell less than their number suggests; the interval is at least as wide as their slow movements make it"
        }
        Flag::ShortMeasurement => {
            "a timed interval is shorter than 1 ms, where the overhead of starting and timing matters"
        }
        Flag::Unpaired => "compared without pairs",
        Flag::Sequential => "compared with other runs, which share no time with these",
        Flag::NoReference => {
            "the raw change between the runs, not relative to a baseline: whatever changed on the host is in it"
        }
        Flag::Disturbed => {
            "other work or the hypervisor took more than the warning share of the CPUs in some trials"
        }
        Flag::HostClock => {
            "durations of some trials are the host's bracket, because the guest's clock could not be proven there"
        }
        Flag::ClockWarning => {
            "the guest's clock is off by 200 to 1000 parts per million, or proven only to half a per cent of the duration"
        }
        Flag::ClockUnproven => {
            "the tool timed itself by a clock of the guest that could not be proven, or more CPU time was used than the stated times have room for; there is no verdict"
        }
        Flag::LoaderBound => {
            "a CPU of the load generator was busy for more than 70 % of the time, here or in the baseline; there is no verdict on throughput"
        }
        Flag::NotSteady => "iterations within a trial do not reach a steady state",
        Flag::TooFewForQuantile => "too few samples for the quantile; there is no value",
        Flag::Unequal => "the environment differs from the baseline in something that was allowed by name",
        Flag::Absent => {
            "the environment cannot have this metric, for the reason given; this does not count as a failure"
        }
        Flag::Exploratory => "from a quick run",
    }
}
