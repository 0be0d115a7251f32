//! Text that is both OpenMetrics (version 1.0 of the specification) and the older text format of
//! Prometheus, which the node exporter reads from its textfile directory, and the push gateway.
//! Readers of the older format ignore units and the end mark, but refuse a text with a type that
//! they do not know, such as `info`: everything is a gauge.

use crate::text::shown_name;
use crate::{Report, ReportError};
use std::fmt::Write;
use weigh_stats::{Cell, Interval};

/// A family of gauges: name, unit, help, and the value of a cell.
type Family = (&'static str, &'static str, &'static str, fn(&Cell) -> Option<f64>);

/// Metrics differ in their base unit, so a label of each value holds it.
const FAMILIES: [Family; 8] = [
    ("weigh_median", "", "Median of a metric, in the unit of the label.", |cell| Some(cell.summary?.median)),
    ("weigh_p05", "", "5 % quantile of a metric, in the unit of the label.", |cell| Some(cell.summary?.p05)),
    ("weigh_p95", "", "95 % quantile of a metric, in the unit of the label.", |cell| Some(cell.summary?.p95)),
    ("weigh_blocks", "", "What the interval rests on: blocks, values or runs.", |cell| {
        Some(f64::from(cell.n))
    }),
    ("weigh_failed_trials", "", "Trials that failed.", |cell| Some(f64::from(cell.failed))),
    (
        "weigh_overhead_ratio",
        "ratio",
        "Geometric mean of the ratio of costs to the baseline, less 1; + is worse.",
        |cell| overhead(cell, |i| i.estimate),
    ),
    ("weigh_overhead_low_ratio", "ratio", "Lower end of the 95 % interval of the overhead.", |cell| {
        overhead(cell, |i| i.low)
    }),
    ("weigh_overhead_high_ratio", "ratio", "Upper end of the 95 % interval of the overhead.", |cell| {
        overhead(cell, |i| i.high)
    }),
];

fn overhead(cell: &Cell, part: fn(Interval) -> f64) -> Option<f64> {
    cell.overhead.map(part)
}

/// Medians, quantiles, overheads with their intervals, and verdicts.
pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    let mut text = String::new();
    let cells = || report.analysis.cells.iter();
    for (family, unit, help, value) in FAMILIES {
        let _ = writeln!(text, "# TYPE {family} gauge");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        let _ = writeln!(text, "# HELP {family} {help}");
        for (cell, value) in cells().filter_map(|cell| Some((cell, value(cell)?))) {
            let _ = writeln!(text, "{family}{{{}}} {value}", labels(cell));
        }
    }
    let _ = writeln!(text, "# TYPE weigh_comparison_info gauge");
    let _ = writeln!(text, "# HELP weigh_comparison_info Verdict of a comparison with the baseline.");
    let baseline = escaped(&report.analysis.baseline);
    for (cell, verdict) in cells().filter_map(|cell| Some((cell, cell.verdict?))) {
        let labels = labels(cell);
        let _ = writeln!(
            text,
            "weigh_comparison_info{{{labels},baseline=\"{baseline}\",verdict=\"{verdict}\"}} 1"
        );
    }
    text.push_str("# EOF\n");
    Ok(text)
}

fn labels(cell: &Cell) -> String {
    let labels = [
        ("workload", cell.workload.as_str()),
        ("metric", &cell.metric.name),
        ("unit", cell.metric.unit.symbol()),
        ("environment", &cell.environment),
    ];
    labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",")
}

fn escaped(text: &str) -> String {
    shown_name(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
