//! The `customSmallerIsBetter` and `customBiggerIsBetter` formats of github-action-benchmark: a
//! list of names with a value and a unit. A file holds metrics of one direction.

use super::{benchmark, measured};
use crate::json::to_json;
use crate::quantity::Effect;
use crate::text::{JOINER, shown_name};
use crate::{Report, ReportError};
use serde_json::{Value, json};
use weigh_model::Better;

/// The medians of the metrics of one direction; the action refuses an empty list.
pub(crate) fn render(report: &Report, better: Better) -> Result<String, ReportError> {
    let of_direction = measured(report).filter(|(cell, _)| cell.metric.better == better);
    let entries: Vec<Value> = of_direction
        .map(|(cell, summary)| {
            let mut extra = format!("n {}", cell.n);
            if let Some(overhead) = cell.overhead {
                let baseline = shown_name(&report.analysis.baseline);
                extra.push_str(&format!("\noverhead {} over {baseline}", Effect::from(overhead)));
            }
            if let Some(verdict) = cell.verdict {
                extra.push_str(&format!("\n{verdict}"));
            }
            let mut entry = json!({
                "name": format!("{} {}", benchmark(cell), shown_name(&cell.metric.name)),
                "unit": shown_name(cell.metric.unit.symbol()),
                "value": summary.median,
            });
            if let Some(sd) = summary.sd {
                entry["range"] = format!("± {sd}").into();
            }
            entry["extra"] = extra.replace(JOINER, " ").into();
            entry
        })
        .collect();
    if entries.is_empty() {
        let holds = match better {
            Better::Lower => "metrics of which less is better",
            Better::Higher => "metrics of which more is better",
        };
        return Err(ReportError::NoMetric { holds });
    }
    Ok(to_json(&entries)?)
}
