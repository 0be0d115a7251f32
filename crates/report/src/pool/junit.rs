//! A pool as JUnit XML: a suite for each workload of each group, a test case for each comparison
//! that gets a verdict. Cases fail for the same reasons as those of a run.

use super::{PooledReport, words};
use crate::junit::{Case, Outcome, Suite, behind, name, write};
use crate::quantity::Effect;
use crate::{Gate, ReportError};
use weigh_model::grouped;
use weigh_stats::{GateOutcome, PooledCell, Verdict, gate_pooled};

pub(super) fn render(report: &PooledReport, gate: Option<Gate>) -> Result<String, ReportError> {
    let gated =
        gate.map(|gate| (gate, gate_pooled(&report.pooled, gate.percent / 100.0, gate.undecided_fails)));
    let mut properties =
        vec![("baseline", name(&report.pooled.baseline)), ("machines", report.machines.len().to_string())];
    properties.extend(gate.map(|gate| ("gate", format!("{} %", gate.percent))));
    let family = report.pooled.cells.iter().filter(|cell| cell.is_in_family());
    let suites = grouped(family, |cell| (cell.group, cell.workload.clone())).into_iter();
    let suites: Vec<Suite> = suites
        .map(|((_, workload), cells)| {
            let group = words::group_of(report, cells[0]).map(|group| format!("{group}: "));
            let cases = cells.into_iter().map(|cell| {
                let of = |(gate, found): &(Gate, Vec<(&PooledCell, GateOutcome)>)| {
                    let own = found.iter().find(|(other, _)| std::ptr::eq(*other, cell));
                    own.map(|(_, outcome)| (*gate, *outcome))
                };
                case(cell, gated.as_ref().and_then(of))
            });
            let cases = cases.collect();
            Suite {
                name: format!("{}{workload}", group.unwrap_or_default()),
                properties: properties.clone(),
                cases,
            }
        })
        .collect();
    write(&name(&report.title), &suites)
}

fn case(cell: &PooledCell, gate: Option<(Gate, GateOutcome)>) -> Case {
    let effect = cell.overhead.map(|of| Effect::from(of).to_string());
    let verdict = words::verdict(cell);
    let mut said: Vec<String> = Vec::new();
    said.extend(effect.as_ref().map(|effect| format!("overhead {effect} (95 % interval; + is worse)")));
    said.extend(cell.prediction.map(|of| format!("another machine {}", Effect::from(of).interval())));
    said.push(verdict.clone());
    said.push(format!("{}, n {}", words::machines(cell.machines.len()), cell.n));
    said.extend(words::remarks(cell));
    let outcome = match (gate, effect, cell.verdict) {
        _ if cell.is_absent() => Outcome::Skipped(words::why_no_verdict(cell)),
        (Some((gate, outcome)), effect, _) => {
            let (why, effect) = (words::why_no_verdict(cell), effect.unwrap_or_default());
            behind(gate, outcome, &why, &effect, words::units(cell.scope()))
        }
        (None, None, _) => Outcome::Error(words::why_no_verdict(cell)),
        (None, Some(_), None) if cell.machines.len() > 1 && cell.failed > 0 => {
            Outcome::Error(words::why_no_verdict(cell))
        }
        (None, Some(effect), None | Some(Verdict::Inconclusive)) => {
            Outcome::Skipped(format!("{effect}: {verdict}"))
        }
        (None, Some(_), Some(_)) => Outcome::Passed,
    };
    Case {
        class: format!("{}.{}", name(&cell.workload), name(&cell.metric.name)),
        name: name(&cell.environment),
        outcome,
        said,
        tolerates_failures: false,
    }
}
