//! Texts about the events of a run.

use weigh_model::{FinishReason, NoiseSeen, OpenLoopRate, VoidCause, VoidUnit, harmless_lines};

/// Formats a duration for people: `850 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn human(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Formats a large number for people: `118 k`, `2.4 M`.
pub(super) fn amount(number: f64) -> String {
    let prefixes = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (factor, prefix) = prefixes.into_iter().find(|(factor, _)| number >= *factor).unwrap_or((1.0, ""));
    let scaled = number / factor;
    if scaled < 10.0 { format!("{scaled:.1}{prefix}") } else { format!("{scaled:.0}{prefix}") }
}

/// Formats an ordinal number: `1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`.
pub(super) fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Formats a fraction in per cent with about three digits: `1`, `0.25`, `12.3`, `140`.
pub(super) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    let text = match percent.abs() {
        size if size >= 99.95 => format!("{percent:.0}"),
        size if size >= 9.995 => format!("{percent:.1}"),
        _ => format!("{percent:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// The greatest length of a text, characters.
const LONGEST_TEXT: usize = 2000;

/// Makes a text safe to print and not too long to read, because names and reasons may come from
/// anywhere. Line breaks stay.
pub(super) fn printable(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}... (cut, {} bytes in all)", harmless_lines(&text[..end]), text.len()),
        None => harmless_lines(text),
    }
}

/// Describes the estimate before the first trial.
pub(super) fn estimate(fewest_s: f64, most_s: f64) -> String {
    if most_s > fewest_s * 1.05 {
        format!("estimate: {} to {}", human(fewest_s), human(most_s))
    } else {
        format!("estimate: {}", human(fewest_s))
    }
}

/// Describes how the run ended, if users need to know.
pub(super) fn ending(reason: FinishReason, blocks: u32) -> Option<String> {
    match reason {
        FinishReason::Blocks | FinishReason::Precision | FinishReason::Decided | FinishReason::Lasted => None,
        FinishReason::MaximumBlocks => Some(format!(
            "stopped after {blocks} blocks, the most that this run takes: some interval is wider, or some comparison less clear, than asked for (give --blocks for more)"
        )),
        FinishReason::Budget => {
            Some(format!("stopped after {blocks} blocks: the budget is used up; intervals are wider for it"))
        }
        FinishReason::Interrupted => {
            Some(format!("interrupted after {blocks} complete blocks; `weigh resume` continues the run"))
        }
        FinishReason::NothingRuns => Some("no environment can run any of the workloads".into()),
    }
}

/// Describes the rate of an open loop, and how it was decided.
pub(super) fn pace(paced: &OpenLoopRate) -> String {
    let OpenLoopRate { workload, operation, share, rate_per_s, .. } = paced;
    let of = paced.slowest().map(|(slowest, reached)| {
        format!(", {} % of the {} that the slowest, {slowest}, reaches", share * 100.0, amount(reached))
    });
    format!(
        "{workload}: {} {operation}/s are sent in every environment{}",
        amount(*rate_per_s),
        of.unwrap_or_default()
    )
}

/// Describes a void unit in a line: where, why, and what was observed.
pub(super) fn void(unit: &VoidUnit) -> String {
    let place = unit.environment.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    let detail = unit.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("void: block {} of {}, {}{place}{detail}", unit.block, unit.workload, cause(unit.cause))
}

/// Describes noise in a trial: `foreign CPU 3.1 % in native`.
pub(super) fn noise(seen: &NoiseSeen, environment: &str) -> String {
    let share = seen.share.map(|share| format!(" {} %", percent(share))).unwrap_or_default();
    format!("{}{share} in {environment}", cause(seen.cause))
}

/// Names the cause of a void unit.
pub(super) fn cause(cause: VoidCause) -> &'static str {
    match cause {
        VoidCause::Interrupted => "interrupted",
        VoidCause::Steal => "steal",
        VoidCause::ForeignCpu => "foreign CPU",
        VoidCause::Throttle => "throttled",
        VoidCause::Clock => "wrong clock",
        VoidCause::SliceLength => "slices too short",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(human(0.85), "850 ms");
        assert_eq!(human(12.4), "12 s");
        assert_eq!(human(200.0), "3 min 20 s");
        assert_eq!(human(7500.0), "2 h 5 min");
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!([amount(17.0), amount(118_400.0), amount(2.44e6)], ["17", "118 k", "2.4 M"]);
    }

    #[test]
    fn shares_and_counts_read_well() {
        let shares = [0.01, 0.0025, 0.1234, 1.4, 0.031, 1.0].map(percent);
        assert_eq!(shares, ["1", "0.25", "12.3", "140", "3.1", "100"]);
        let counts = [1, 2, 3, 4, 11, 12, 13, 21, 112, 10].map(ordinal);
        assert_eq!(counts, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "10th"]);
        let foreign = NoiseSeen { cause: VoidCause::ForeignCpu, share: Some(0.031) };
        assert_eq!(noise(&foreign, "native"), "foreign CPU 3.1 % in native");
    }

    #[test]
    fn an_estimate_is_a_range_only_when_it_is_one() {
        assert_eq!(estimate(60.0, 60.0), "estimate: 1 min 0 s");
        assert_eq!(estimate(60.0, 120.0), "estimate: 1 min 0 s to 2 min 0 s");
    }

    #[test]
    fn nothing_that_is_printed_moves_the_cursor() {
        let hostile = "a\x1b[2Jb\u{202e}c\r\nd\te\u{9b}";
        assert_eq!(printable(hostile), "a\\u{1b}[2Jb\\u{202e}c\nd e\\u{9b}");
        let long = printable(&"x".repeat(1 << 20));
        assert!(long.len() < 2100 && long.ends_with("x... (cut, 1048576 bytes in all)"));
    }
}
