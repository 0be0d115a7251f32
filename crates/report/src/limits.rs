//! What one more guest takes, in words: for whatever was taken at several numbers of guests.

use crate::Report;
use crate::quantity::{Scale, plain_percent};
use serde::Serialize;
use weigh_stats::{Interval, Limit};

/// One GiB, bytes.
const GIB: f64 = 1_073_741_824.0;
/// A line that misses the measured totals by more than this is said to be none.
const MISFIT: f64 = 0.05;

/// The limits of one workload and metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LimitTable {
    pub title: String,
    /// How it was found.
    pub note: String,
    /// Heading of what the rows are.
    pub first: &'static str,
    /// Headings of everything beside the environment.
    pub columns: Vec<String>,
    pub rows: Vec<LimitRow>,
}

/// The limit in one environment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LimitRow {
    pub environment: String,
    /// In the order of the columns.
    pub cells: Vec<String>,
    /// What has to be known beside them.
    pub remark: Option<String>,
}

impl LimitRow {
    /// All of it in a sentence.
    pub(crate) fn sentence(&self, columns: &[String]) -> String {
        let told = columns.iter().zip(&self.cells).filter(|(_, cell)| !cell.is_empty());
        let mut parts: Vec<String> = told.map(|(column, cell)| format!("{column} {cell}")).collect();
        parts.extend(self.remark.clone());
        parts.join("; ")
    }
}

pub(crate) fn tables(report: &Report) -> Vec<LimitTable> {
    let mut tables: Vec<(LimitTable, &Limit)> = Vec::new();
    for limit in &report.limits {
        let same =
            |(_, first): &&mut (LimitTable, &Limit)| first.key == limit.key && first.metric == limit.metric;
        let row = row(limit);
        match tables.iter_mut().find(same) {
            Some((table, _)) => table.rows.push(row),
            None => tables.push((table(limit, row), limit)),
        }
    }
    tables.into_iter().map(|(table, _)| table).collect()
}

fn is_bytes(limit: &Limit) -> bool {
    limit.metric.unit.symbol() == "B"
}

fn table(limit: &Limit, first: LimitRow) -> LimitTable {
    let params: Vec<String> = limit.key.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let params = if params.is_empty() { String::new() } else { format!(" ({})", params.join(", ")) };
    let mut columns: Vec<String> = ["one more guest takes", "all have in common"].map(String::from).to_vec();
    if is_bytes(limit) {
        columns.insert(1, "guests per GiB".into());
    }
    columns.extend(["numbers of guests", "n"].map(String::from));
    LimitTable {
        title: format!("{} {}{params} in the limit", limit.key.name, limit.metric.name),
        note: "the total over the number of guests is taken for a line, one per block; its slope is what one more guest takes, what it \
               begins with is what all have in common; brackets hold the 95 % interval over blocks"
            .into(),
        first: "environment",
        columns,
        rows: vec![first],
    }
}

fn row(limit: &Limit) -> LimitRow {
    let shown = |amount: Interval| {
        let half = (amount.high - amount.low) / 2.0;
        let scale = Scale::new(&limit.metric.unit, [amount.estimate], Some(half / amount.estimate.abs()));
        let number = |value: f64| {
            let text = scale.format(value);
            text.strip_suffix(scale.symbol()).map_or(text.clone(), |number| number.trim_end().to_string())
        };
        format!("{} [{}, {}]", scale.format(amount.estimate), number(amount.low), number(amount.high))
    };
    let mut cells = vec![shown(limit.each), shown(limit.common)];
    if is_bytes(limit) {
        let fit = limit
            .fit_into(GIB)
            .map(|fit| format!("{} [{}, {}]", whole(fit.estimate), whole(fit.low), whole(fit.high)));
        cells.insert(1, fit.unwrap_or_default());
    }
    let counts: Vec<String> = limit.counts.iter().map(ToString::to_string).collect();
    cells.extend([counts.join(", "), limit.n.to_string()]);
    let remark = (limit.worst_misfit > MISFIT).then(|| {
        let misfit = plain_percent(limit.worst_misfit);
        format!("the line misses the measured totals by up to {misfit}: what one more guest takes depends on how many there are")
    });
    LimitRow { environment: limit.environment.clone(), cells, remark }
}

/// Three digits are enough to plan by.
fn whole(number: f64) -> String {
    let decimals = (2 - number.abs().max(1e-9).log10().floor() as i32).max(0) as usize;
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Better, MetricSpec, Unit, WorkloadKey};

    fn limit(unit: &str, each: f64, misfit: f64) -> Limit {
        let about = |x: f64, half: f64| Interval { estimate: x, low: x - half, high: x + half };
        Limit {
            key: WorkloadKey::named("footprint"),
            metric: MetricSpec {
                name: "footprint".into(),
                unit: Unit::normalise(unit).0,
                better: Better::Lower,
                primary: true,
            },
            environment: "runc".into(),
            counts: vec![1, 2, 4],
            n: 6,
            each: about(each, each / 100.0),
            common: about(-1024.0, 2048.0),
            worst_misfit: misfit,
        }
    }

    #[test]
    fn what_one_more_takes_is_told_with_what_fits() {
        let row = row(&limit("B", 2.0 * 1_048_576.0, 0.001));
        assert_eq!(row.cells[0], "2.00 MiB [1.98, 2.02]");
        assert_eq!(row.cells[1], "512 [507, 517]");
        assert!(row.cells[2].starts_with("-1.00 KiB [-3.00, 1.00"), "{row:?}");
        assert_eq!((row.cells[3].as_str(), row.cells[4].as_str(), &row.remark), ("1, 2, 4", "6", &None));
        let table = table(&limit("B", 1e6, 0.0), row.clone());
        assert_eq!(table.columns.len(), row.cells.len());
        assert!(
            row.sentence(&table.columns)
                .starts_with("one more guest takes 2.00 MiB [1.98, 2.02]; guests per GiB 512")
        );
    }

    #[test]
    fn what_is_no_line_says_so() {
        let row = row(&limit("B", 1e6, 0.2));
        assert!(row.remark.as_ref().unwrap().contains("20"), "{row:?}");
    }

    #[test]
    fn only_bytes_fit_into_a_gib() {
        let (limit, other) = (limit("s", 1.0, 0.0), limit("B", 1.0, 0.0));
        assert_eq!(row(&limit).cells.len() + 1, row(&other).cells.len());
        assert_eq!(table(&limit, row(&limit)).columns.len(), 4);
    }
}
