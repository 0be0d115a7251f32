//! The rows of a run: its primary metrics, with its values as published numbers.

use super::fresh;
use crate::study::{Arm, Measurand, Origin, Published, PublishedValue, Quantity, Spread, Statistic};
use crate::values::number;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Better, Plan, WorkloadKey, distinct};
use weigh_report::Report;
use weigh_stats::{Cell, Limit};

/// Significant digits of a published value and of its spread.
const DIGITS: i32 = 6;
const DIGITS_OF_SPREAD: i32 = 3;

/// A quantity with all its values.
pub struct Row<'a> {
    pub quantity: Quantity,
    /// Name of the workload.
    pub workload: &'a str,
    /// Its points; a single one without a name if it is not swept.
    pub points: Vec<Point<'a>>,
    /// The limits (what one more guest takes), for a quantity of that kind.
    limits: Vec<&'a Limit>,
    /// The factor from the base unit to the quantity's.
    scale: f64,
}

/// The cells of a row at a point, for the environments that have a value.
pub struct Point<'a> {
    pub at: Option<String>,
    pub cells: Vec<&'a Cell>,
}

/// The rows of a run, in the order of its plan.
pub fn rows<'a>(plan: &Plan, report: &'a Report) -> Vec<Row<'a>> {
    let mut taken = BTreeSet::new();
    let mut rows = Vec::new();
    let cells: Vec<&Cell> =
        report.analysis.cells.iter().filter(|cell| cell.primary && mean(cell).is_some()).collect();
    let workloads = distinct(cells.iter().map(|cell| cell.key.name.as_str()));
    for workload in &workloads {
        let of: Vec<&Cell> =
            cells.iter().copied().filter(|cell| cell.key.name.as_str() == *workload).collect();
        let varying = varying(plan, workload);
        for metric in distinct(of.iter().map(|cell| cell.metric.name.as_str())) {
            let of: Vec<&Cell> = of.iter().copied().filter(|cell| cell.metric.name == metric).collect();
            let prefix = if workloads.len() > 1 { format!("{workload} ") } else { String::new() };
            let name = format!("{prefix}{}", metric.replace('_', " "));
            match varying.as_slice() {
                [] => rows.push(row(&mut taken, name, workload, &of, &BTreeMap::new())),
                [sweep] if is_swept(&of, sweep) => rows.push(swept(&mut taken, name, workload, &of, sweep)),
                several => {
                    for params in distinct(of.iter().map(|cell| chosen(cell, several))) {
                        let of: Vec<&Cell> =
                            of.iter().copied().filter(|cell| chosen(cell, several) == params).collect();
                        let values: Vec<String> =
                            params.iter().map(|(key, value)| format!("{key}={value}")).collect();
                        let name = format!("{name}, {}", values.join(" "));
                        rows.push(row(&mut taken, name, workload, &of, &params));
                    }
                }
            }
        }
        let limits = report.limits.iter().filter(|limit| limit.key.name == *workload && limit.metric.primary);
        let limits: Vec<&Limit> = limits.filter(|limit| limit.each.low > 0.0).collect();
        for metric in distinct(limits.iter().map(|limit| limit.metric.name.as_str())) {
            let of: Vec<&Limit> =
                limits.iter().copied().filter(|limit| limit.metric.name == metric).collect();
            let prefix = if workloads.len() > 1 { format!("{workload} ") } else { String::new() };
            let name = format!("{prefix}{} of one more", metric.replace('_', " "));
            rows.push(limit_row(&mut taken, name, workload, of));
        }
    }
    rows
}

fn mean(cell: &Cell) -> Option<f64> {
    let mean = cell.summary.as_ref()?.mean;
    // Only positive values have ratios.
    (mean.is_finite() && mean > 0.0).then_some(mean)
}

/// Parameters of a workload that have several values in the plan.
fn varying(plan: &Plan, workload: &str) -> Vec<String> {
    let mut values: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for one in plan.workloads.iter().filter(|one| WorkloadKey::of(one).name == workload) {
        for (key, value) in &one.params {
            values.entry(key).or_default().insert(value);
        }
    }
    values.into_iter().filter(|(_, values)| values.len() > 1).map(|(key, _)| key.clone()).collect()
}

/// Whether every cell has a numeric value of the parameter that a check can spell.
fn is_swept(cells: &[&Cell], sweep: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let sound = |value: &String| number(value) < f64::MAX && value.chars().all(plain);
    cells.iter().all(|cell| cell.key.params.get(sweep).is_some_and(sound))
}

fn chosen(cell: &Cell, keys: &[String]) -> BTreeMap<String, String> {
    keys.iter().filter_map(|key| Some((key.clone(), cell.key.params.get(key)?.clone()))).collect()
}

fn row<'a>(
    taken: &mut BTreeSet<String>,
    name: String,
    workload: &'a str,
    cells: &[&'a Cell],
    params: &BTreeMap<String, String>,
) -> Row<'a> {
    let metric = &cells[0].metric;
    let largest = cells.iter().filter_map(|cell| mean(cell)).fold(0.0, f64::max);
    let (unit, scale) = readable(metric.unit.symbol(), largest);
    let measurand = measurand(workload, &metric.name, params.clone());
    let quantity = quantity(taken, &name, Origin::Cells(measurand), unit, metric.better);
    Row {
        quantity,
        workload,
        points: vec![Point { at: None, cells: cells.to_vec() }],
        limits: Vec::new(),
        scale,
    }
}

fn swept<'a>(
    taken: &mut BTreeSet<String>,
    name: String,
    workload: &'a str,
    cells: &[&'a Cell],
    sweep: &str,
) -> Row<'a> {
    let one = row(taken, name, workload, cells, &BTreeMap::new());
    let mut values = distinct(cells.iter().map(|cell| cell.key.params[sweep].clone()));
    values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let at = |value: &String| cells.iter().copied().filter(|cell| cell.key.params[sweep] == *value).collect();
    let points = values.iter().map(|value| Point { at: Some(value.clone()), cells: at(value) }).collect();
    Row { quantity: Quantity { sweep: Some(sweep.into()), ..one.quantity }, points, ..one }
}

fn limit_row<'a>(
    taken: &mut BTreeSet<String>,
    name: String,
    workload: &'a str,
    limits: Vec<&'a Limit>,
) -> Row<'a> {
    let metric = &limits[0].metric;
    let largest = limits.iter().map(|limit| limit.each.estimate).fold(0.0, f64::max);
    let (unit, scale) = readable(metric.unit.symbol(), largest);
    let measurand = measurand(workload, &metric.name, BTreeMap::new());
    let quantity = quantity(taken, &name, Origin::Limits(measurand), unit, metric.better);
    Row { quantity, workload, points: Vec::new(), limits, scale }
}

fn measurand(workload: &str, metric: &str, params: BTreeMap<String, String>) -> Measurand {
    Measurand {
        workload: workload.into(),
        metric: metric.into(),
        params,
        statistic: Statistic::Mean,
        best_over: None,
    }
}

fn quantity(taken: &mut BTreeSet<String>, name: &str, from: Origin, unit: &str, better: Better) -> Quantity {
    Quantity {
        id: fresh(taken, name),
        label: format!("{name} ({unit})"),
        from,
        sweep: None,
        unit: unit.into(),
        better,
        stands_in: false,
        percentile: None,
    }
}

impl Row<'_> {
    /// The values as published numbers: mean and standard deviation of the blocks. Arms with
    /// another number of blocks have a list of their own.
    pub fn published(&self, arms: &[Arm], source: &str) -> Vec<Published> {
        let mut all = Vec::new();
        for point in &self.points {
            let mut by_n: BTreeMap<u32, BTreeMap<String, PublishedValue>> = BTreeMap::new();
            for cell in &point.cells {
                let Some((arm, summary)) = arm(arms, &cell.environment).zip(cell.summary.as_ref()) else {
                    continue;
                };
                let spread = summary.sd.map(|sd| rounded(sd * self.scale, DIGITS_OF_SPREAD));
                let value = rounded(summary.mean * self.scale, DIGITS);
                let n = cell.values.len() as u32;
                by_n.entry(n).or_default().insert(arm.into(), PublishedValue::Single { value, spread });
            }
            for (n, values) in by_n {
                let spread = if n > 1 { Spread::Sd } else { Spread::None };
                all.push(self.block(source, n, spread, values, point.at.clone()));
            }
        }
        for limit in &self.limits {
            let Some(arm) = arm(arms, &limit.environment) else { continue };
            let half = (limit.each.high - limit.each.low) / 2.0;
            let value = PublishedValue::Single {
                value: rounded(limit.each.estimate * self.scale, DIGITS),
                spread: Some(rounded(half * self.scale, DIGITS_OF_SPREAD)),
            };
            all.push(self.block(source, limit.n, Spread::Ci95, BTreeMap::from([(arm.into(), value)]), None));
        }
        all
    }

    fn block(
        &self,
        source: &str,
        n: u32,
        spread: Spread,
        values: BTreeMap<String, PublishedValue>,
        at: Option<String>,
    ) -> Published {
        let quantity = self.quantity.id.clone();
        Published { quantity, source: source.into(), n: Some(n), spread, values, at }
    }
}

/// The arm of an environment.
pub fn arm<'a>(arms: &'a [Arm], environment: &str) -> Option<&'a str> {
    arms.iter().find(|arm| arm.label == environment).map(|arm| arm.id.as_str())
}

/// A unit that makes the largest value easy to read, and the factor from the base unit.
fn readable(base: &str, largest: f64) -> (&str, f64) {
    /// The units from the largest on, each with its size in the base unit.
    const UNITS: [(&str, &[(&str, f64)]); 5] = [
        ("s", &[("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)]),
        ("B", &[("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1024.0)]),
        ("B/s", &[("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)]),
        ("FLOP/s", &[("GFLOPS", 1e9), ("MFLOPS", 1e6)]),
        ("update/s", &[("GUPS", 1e9)]),
    ];
    let units = UNITS.iter().find(|(of, _)| *of == base).map_or(&[][..], |(_, units)| units);
    // Most machines reach thousandths of a GUPS, which is still the usual unit.
    let fits = units.iter().find(|(unit, factor)| largest >= *factor || *unit == "GUPS" && largest >= 1e6);
    fits.map_or((base, 1.0), |(unit, factor)| (unit, 1.0 / factor))
}

/// A number with this many significant digits.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.*e}", digits.max(1) as usize - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_make_numbers_easy_to_read() {
        assert_eq!(readable("s", 0.011), ("ms", 1e3));
        assert_eq!(readable("s", 12.0), ("s", 1.0));
        assert_eq!(readable("update/s", 1.2e7), ("GUPS", 1e-9));
        assert_eq!(readable("request/s", 1e5), ("request/s", 1.0));
        assert_eq!(readable("B", 512.0), ("B", 1.0));
        for (base, largest) in [("s", 3e-5), ("B", 5e6), ("B/s", 5e9), ("FLOP/s", 2e9)] {
            let (unit, factor) = readable(base, largest);
            let (normal, back) = weigh_model::Unit::normalise(unit);
            assert_eq!(normal.symbol(), base);
            assert!((back * factor - 1.0).abs() < 1e-12, "{unit}");
        }
    }

    #[test]
    fn numbers_keep_their_significant_digits() {
        assert_eq!(rounded(0.012_345_678, 6), 0.012_345_7);
        assert_eq!(rounded(123_456_789.0, 6), 123_457_000.0);
        assert_eq!(rounded(0.0, 3), 0.0);
    }
}
