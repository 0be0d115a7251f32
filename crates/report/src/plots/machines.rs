//! The forest plot of a pool: a table for each cell, with a row for each machine and one for the
//! result over all of them.

use super::{Plots, RowPlot, TablePlot, rounded};
use crate::document::Tone;
use crate::pool::PooledReport;
use crate::rows::{tone_of, verdict_words};
use crate::text::shown_name;
use weigh_stats::{Interval, PooledCell, Scope};

impl Plots {
    /// The plots of a pool. The baseline is the first name that rows refer to by index, because the
    /// axis names it.
    pub(crate) fn of_machines(report: &PooledReport) -> Self {
        let pooled = &report.pooled;
        let average = match pooled.scope {
            Scope::LikeThese => "on average",
            Scope::TheseAlone => "all blocks",
        };
        let fixed = [pooled.baseline.as_str(), average, "another machine"];
        let machines = report.machines.iter().map(|machine| machine.name.as_str());
        let names: Vec<&str> = fixed.into_iter().chain(machines).collect();
        let place = |name: &str| names.iter().skip(fixed.len()).position(|known| *known == name);
        let table = |cell: &PooledCell| {
            let group = report.by.as_ref().map(|_| shown_name(&pooled.groups[cell.group].name));
            let row = |environment: usize, n: u32, effect: Interval, tone: Tone, verdict: String| RowPlot {
                environment,
                n,
                effect: Some([effect.estimate, effect.low, effect.high].map(finite)),
                tone,
                verdict,
                values: Vec::new(),
                blocks: Vec::new(),
            };
            let own = cell.machines.iter().filter_map(|machine| {
                let at = place(&machine.machine)? + fixed.len();
                Some(row(at, machine.n, machine.overhead, Tone::Plain, "one machine".into()))
            });
            let verdict = cell.verdict.map(verdict_words).unwrap_or_default();
            let mean = cell.overhead.filter(|_| cell.machines.len() > 1);
            let mean = mean.map(|mean| row(1, cell.n, mean, tone_of(cell.verdict), verdict));
            let another = cell
                .prediction
                .map(|of| row(2, cell.n, of, Tone::Plain, "where 95 % of machines lie".into()));
            TablePlot {
                workload: group
                    .into_iter()
                    .chain([shown_name(&cell.workload)])
                    .collect::<Vec<_>>()
                    .join(": "),
                metric: format!("{}, {}", shown_name(&cell.metric.name), shown_name(&cell.environment)),
                unit: shown_name(cell.metric.unit.symbol()),
                direction: String::new(),
                primary: cell.metric.primary,
                rows: own.chain(mean).chain(another).collect(),
            }
        };
        Self {
            margin: pooled.margin,
            tables: pooled.cells.iter().map(table).collect(),
            environments: names.iter().map(|name| shown_name(name)).collect(),
            ..Self::default()
        }
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then(|| rounded(value))
}
