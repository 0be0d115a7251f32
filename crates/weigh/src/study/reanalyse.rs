//! The raw numbers of a study again: its own logs, where the user has them, by our statistics.
//!
//! Nothing is measured. The values of the logs take the place of those of a run, without blocks,
//! and everything else is as in a study that was measured here: the same tables, the same grades.

use super::columns::Wanted;
use super::directory::ExperimentState;
use super::redraw::One;
use super::values::number;
use crate::error::Failure;
use miette::Diagnostic as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weigh_model::{Comparison, MetricSpec, Observation, Series, Unit, WorkloadKey};
use weigh_report::Report;
use weigh_report::study::{ExperimentReport, StudyReport};
use weigh_stats::{Analysis, Cell, CellFlag, Flag, Options, analyse};
use weigh_studies::{Experiment, Measurand, Origin, Quantity, Reanalyse, Study};
use weigh_workloads::parsers::{LogFault, LoggedRun, is_in, log_fields, logged_runs};

/// The largest file that is read. The logs of the studies are below one megabyte.
const LARGEST_BYTES: u64 = 256 << 20;

/// Why the study says nothing of logs.
const NAMED_NOWHERE: &str = "the study names no raw log of it";

/// A study from its logs.
pub struct Reanalysed {
    /// The study as of measured ones.
    pub report: StudyReport,
    /// Logs that cannot be used; what they hold is missing and nothing else.
    pub damaged: Vec<Failure>,
}

/// Reads the logs of experiments below `directory`, and says what they show.
///
/// # Errors
/// `directory` is none.
pub fn reanalyse(study: &Study, names: &[&str], directory: &Path) -> Result<Reanalysed, Failure> {
    if !directory.is_dir() {
        return Err(Failure::input(format!("there is no directory {}", directory.display()))
            .hint("give --reanalyse the directory with the study's raw logs, laid out as its authors published them"));
    }
    let mut damaged = Vec::new();
    let asked = study.experiments.iter().filter(|one| names.contains(&one.name.as_str()));
    let experiments: Vec<ExperimentReport> =
        asked.map(|one| Logs::read(one, directory, &mut damaged).report()).collect();
    let report = StudyReport {
        name: study.name.clone(),
        title: study.title.clone(),
        authors: study.authors.clone(),
        published: study.published.clone(),
        host_then: study.host.clone(),
        method_then: study.method.clone(),
        host_here: String::new(),
        size: "of the study".into(),
        directory: None,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        warnings: warnings(&damaged),
        experiments,
        raw_logs: Some(directory.display().to_string()),
    };
    Ok(Reanalysed { report, damaged })
}

fn warnings(damaged: &[Failure]) -> Vec<String> {
    let unpaired = "UNPAIRED: the platforms were measured one after the other; whatever the machine drifted meanwhile is part of every \
                    difference, and no statistic can take it out; weigh study measures in blocks";
    let of_log = |failure: &Failure| {
        let help = failure.help().map(|help| format!("; {help}")).unwrap_or_default();
        format!("not used: {failure}{help}")
    };
    std::iter::once(unpaired.to_string()).chain(damaged.iter().map(of_log)).collect()
}

/// Values of an arm by point, or why there are none.
type Values = Result<BTreeMap<Option<String>, Vec<f64>>, String>;

/// What the logs of an experiment hold.
struct Logs<'a> {
    experiment: &'a Experiment,
    /// By quantity and arm, of those that the study names logs of.
    values: BTreeMap<(String, String), Values>,
    /// Which files, and what should be known of them.
    remarks: Vec<String>,
}

impl<'a> Logs<'a> {
    fn read(experiment: &'a Experiment, directory: &Path, damaged: &mut Vec<Failure>) -> Self {
        let mut logs = Self { experiment, values: BTreeMap::new(), remarks: Vec::new() };
        for named in &experiment.reanalyse {
            let Some(quantity) = experiment.quantity(&named.quantity) else { continue };
            let of_arm = |arm: &'a weigh_studies::Arm| Some((&arm.id, named.files.get(&arm.id)?));
            for (arm, files) in experiment.arms.iter().filter_map(of_arm) {
                let read = files.iter().map(|file| of_file(named, quantity, directory, file));
                let values = match read.collect::<Result<Vec<_>, Lack>>() {
                    Ok(runs) => Ok(by_point(quantity, runs.into_iter().flatten())),
                    Err(Lack::Missing(path)) => Err(format!("{} is missing", path.display())),
                    Err(Lack::Damaged(failure)) => {
                        let reason = failure.to_string();
                        // One log may hold several quantities, and is said to be damaged once for
                        // each fault.
                        if damaged.iter().all(|known| known.to_string() != reason) {
                            damaged.push(*failure);
                        }
                        Err(reason)
                    }
                };
                logs.remarks.extend(of_runs(named, arm, &values));
                logs.values.insert((named.quantity.clone(), arm.clone()), values);
            }
            logs.remarks.extend(named.note.iter().map(|note| format!("{}: {note}", named.quantity)));
        }
        let mut said = BTreeSet::new();
        logs.remarks.retain(|remark| said.insert(remark.clone()));
        logs
    }

    /// The experiment as one that was measured.
    fn report(self) -> ExperimentReport {
        let experiment = self.as_measured();
        let analysis = self.analysis(&experiment);
        let without: BTreeMap<String, String> =
            experiment.arms.iter().filter_map(|arm| Some((arm.id.clone(), self.lack(&arm.id)?))).collect();
        let all_lack = without.len() == experiment.arms.len();
        let not_run = all_lack.then(|| self.reason());
        let own = |arm: &weigh_studies::Arm| (arm.id.clone(), arm.id.clone());
        let state = ExperimentState {
            name: experiment.name.clone(),
            done: true,
            not_run: not_run.clone(),
            environments: experiment.arms.iter().map(own).collect(),
            without,
            ..ExperimentState::default()
        };
        let columns = Wanted::default().columns(&experiment);
        let columns = columns.into_iter().map(|column| super::Column { missing: None, spec: None, ..column });
        let report = Report::new(&experiment.name, analysis);
        let one = One {
            experiment: &experiment,
            state: &state,
            columns: columns.collect(),
            report: not_run.is_none().then_some(&report),
        };
        let mut drawn = one.redraw("");
        drawn.command = String::new();
        // What stands there is how the arm is measured here.
        drawn.arms.iter_mut().for_each(|arm| (arm.on, arm.note) = (None, None));
        drawn.remarks = self.remarks.iter().cloned().chain(of_analysis(&report.analysis)).collect();
        drawn
    }

    /// The experiment whose quantities come from its logs. The programs are the study's own, and
    /// nothing stands for them; each quantity is a workload of its own, since several may be the
    /// same workload here.
    fn as_measured(&self) -> Experiment {
        let from = |quantity: &Quantity| match quantity.from.measurand() {
            Some(measurand) if self.names(&quantity.id) => Origin::Cells(Measurand {
                workload: quantity.id.clone(),
                metric: quantity.id.clone(),
                params: BTreeMap::new(),
                statistic: measurand.statistic,
                best_over: None,
            }),
            Some(_) => Origin::Text { why: NAMED_NOWHERE.into() },
            None => quantity.from.clone(),
        };
        let mut experiment = self.experiment.clone();
        experiment.instead.clear();
        experiment.quantities = experiment
            .quantities
            .iter()
            .map(|quantity| Quantity { from: from(quantity), stands_in: false, ..quantity.clone() })
            .collect();
        experiment
    }

    fn names(&self, quantity: &str) -> bool {
        self.experiment.reanalyse.iter().any(|named| named.quantity == quantity)
    }

    /// Why there is nothing of an arm; none where there is something.
    fn lack(&self, arm: &str) -> Option<String> {
        let mut of_arm = self.values.iter().filter(|((_, of), _)| of == arm).map(|(_, values)| values);
        if of_arm.clone().any(Result::is_ok) {
            return None;
        }
        Some(of_arm.find_map(|values| values.clone().err()).unwrap_or_else(|| NAMED_NOWHERE.into()))
    }

    /// Why there is nothing at all: of the baseline first.
    fn reason(&self) -> String {
        if self.experiment.reanalyse.is_empty() {
            return "the study names no raw logs of this experiment".into();
        }
        self.lack(&self.experiment.baseline)
            .into_iter()
            .chain(self.experiment.arms.iter().filter_map(|arm| self.lack(&arm.id)))
            .find(|reason| reason != NAMED_NOWHERE)
            .unwrap_or_else(|| NAMED_NOWHERE.into())
    }

    fn analysis(&self, experiment: &Experiment) -> Analysis {
        let mut options = Options::new(&experiment.baseline);
        let mut comparisons = Vec::new();
        for quantity in experiment.quantities.iter().filter(|quantity| self.names(&quantity.id)) {
            for point in self.points(quantity) {
                comparisons.push(self.comparison(experiment, quantity, point.as_ref()));
            }
            for arm in &experiment.arms {
                let values = self.values.get(&(quantity.id.clone(), arm.id.clone()));
                let reason = match values {
                    Some(Ok(_)) => "the logs have no run at this point".to_string(),
                    Some(Err(reason)) => reason.clone(),
                    None => NAMED_NOWHERE.into(),
                };
                for point in self.points(quantity) {
                    let has = |values: &Values| matches!(values, Ok(values) if values.contains_key(&point));
                    if !values.is_some_and(has) {
                        options.flags.push(CellFlag {
                            workload: Some(named(quantity, point.as_deref())),
                            metric: Some(quantity.id.clone()),
                            environment: arm.id.clone(),
                            flag: Flag::Absent,
                            reason: Some(reason.clone()),
                        });
                    }
                }
            }
        }
        analyse(&comparisons, &options)
    }

    /// The points of which any arm has values; the one without a name where none has.
    fn points(&self, quantity: &Quantity) -> Vec<Option<String>> {
        let of_quantity = self.values.iter().filter(|((id, _), _)| *id == quantity.id);
        let points: BTreeSet<Option<String>> = of_quantity
            .filter_map(|(_, values)| values.as_ref().ok())
            .flat_map(|values| values.keys().cloned())
            .collect();
        let mut points: Vec<Option<String>> = points.into_iter().collect();
        points.sort_by(|a, b| place(a.as_deref()).total_cmp(&place(b.as_deref())));
        if points.is_empty() { vec![None] } else { points }
    }

    fn comparison(&self, experiment: &Experiment, quantity: &Quantity, point: Option<&String>) -> Comparison {
        let of_arm = |arm: &str| {
            let values = self.values.get(&(quantity.id.clone(), arm.to_string()));
            values.and_then(|values| values.as_ref().ok()?.get(&point.cloned())).cloned().unwrap_or_default()
        };
        let series = experiment.arms.iter().map(|arm| {
            let values = of_arm(&arm.id);
            Series {
                environment: arm.id.clone(),
                failed: 0,
                tried: values.len() as u32,
                observations: values.into_iter().map(|value| Observation { block: None, value }).collect(),
            }
        });
        Comparison {
            workload: named(quantity, point.map(String::as_str)),
            key: WorkloadKey {
                params: quantity.sweep.iter().cloned().zip(point.cloned()).collect(),
                ..WorkloadKey::named(&quantity.id)
            },
            metric: MetricSpec {
                name: quantity.id.clone(),
                unit: Unit::normalise(&quantity.unit).0,
                better: quantity.better,
                primary: true,
            },
            series: series.collect(),
        }
    }
}

/// A quantity at a point as the id of a workload.
fn named(quantity: &Quantity, point: Option<&str>) -> String {
    match (&quantity.sweep, point) {
        (Some(sweep), Some(point)) => format!("{}{{{sweep}={point}}}", quantity.id),
        _ => quantity.id.clone(),
    }
}

fn place(point: Option<&str>) -> f64 {
    point.map_or(f64::MIN, number)
}

/// Why a log gives no values.
enum Lack {
    Missing(PathBuf),
    Damaged(Box<Failure>),
}

/// The runs of one file that count.
fn of_file(
    named: &Reanalyse,
    quantity: &Quantity,
    directory: &Path,
    file: &str,
) -> Result<Vec<LoggedRun>, Lack> {
    let candidates: Vec<PathBuf> =
        named.folders.iter().map(|folder| directory.join(folder).join(file)).collect();
    let found = candidates.iter().find(|path| path.exists());
    let Some(path) = found else { return Err(Lack::Missing(candidates[0].clone())) };
    let text = text_of(path).map_err(|failure| Lack::Damaged(Box::new(failure)))?;
    let fault = |fault: LogFault| Lack::Damaged(Box::new(at(path, &text, &fault)));
    let runs = logged_runs(&named.parser, &named.value, named.section.as_deref(), &text).map_err(fault)?;
    if !is_in(&named.parser, &named.value, &quantity.unit) {
        let fields = log_fields(&named.parser).unwrap_or_default();
        let unit =
            fields.iter().find(|(field, _)| *field == named.value).map_or("another unit", |(_, unit)| unit);
        return Err(fault_of(
            path,
            &text,
            format!(
                "`{}` is in {unit}, and `{}` of the study in {}",
                named.value, quantity.id, quantity.unit
            ),
        ));
    }
    let Some((first, last)) = named.runs else { return Ok(runs) };
    let count = runs.len();
    if count < last as usize {
        return Err(fault_of(
            path,
            &text,
            format!("it has {count} runs, and runs {first} to {last} are asked for"),
        ));
    }
    Ok(runs.into_iter().skip(first as usize - 1).take((last - first) as usize + 1).collect())
}

fn fault_of(path: &Path, text: &str, message: String) -> Lack {
    let help = "is it the file of another experiment, or was it cut off? fetch it again".into();
    Lack::Damaged(Box::new(at(path, text, &LogFault { line: None, message, help })))
}

/// A fault at its place.
fn at(path: &Path, text: &str, fault: &LogFault) -> Failure {
    let name = path.display().to_string();
    let place = fault.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let failure = Failure::input(format!("{name}{place}: {}", fault.message)).hint(fault.help.clone());
    match fault.line.and_then(|line| text.lines().nth(line - 1)) {
        Some(line) => failure.at(&name, line, 0..line.len()),
        None => failure,
    }
}

/// The text of a regular file of a size that logs have.
fn text_of(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let unread = |error: std::io::Error| {
        Failure::input(format!("cannot read {name}")).because(error).hint("see to it that you may read it")
    };
    let about = std::fs::metadata(path).map_err(unread)?;
    if !about.is_file() || about.len() > LARGEST_BYTES {
        return Err(Failure::input(format!("{name} is no log: no regular file, or larger than 256 MiB"))
            .hint("fetch the file again"));
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn by_point(
    quantity: &Quantity,
    runs: impl Iterator<Item = LoggedRun>,
) -> BTreeMap<Option<String>, Vec<f64>> {
    let mut values: BTreeMap<Option<String>, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let point = run.point.filter(|_| quantity.sweep.is_some());
        values.entry(point).or_default().push(run.value);
    }
    values
}

/// Where the values of an arm come from, and how many they are where the study has another number.
fn of_runs(named: &Reanalyse, arm: &str, values: &Values) -> Vec<String> {
    let Ok(values) = values else { return Vec::new() };
    let counts: BTreeSet<usize> = values.values().map(Vec::len).collect();
    let (Some(fewest), Some(most)) = (counts.first(), counts.last()) else { return Vec::new() };
    let runs = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
    let files = match &named.files[arm][..] {
        [first, .., last] => format!("{} files from {first} to {last}", named.files[arm].len()),
        files => files.join(", "),
    };
    let section = named.section.iter().map(|section| format!(", of {section}"));
    let which = named.runs.iter().map(|(first, last)| format!(", runs {first} to {last}"));
    let which: String = section.chain(which).collect();
    let folders = named.folders.join(" or ");
    let mut remarks = vec![format!("{arm}: {} in {folders}: {files}{which}", named.parser)];
    if let Some(n) = named.n.filter(|n| *fewest != *n as usize || *most != *n as usize) {
        remarks.push(format!("{arm}: runs of {} in the logs: {runs}; the study has {n}", named.quantity));
    }
    remarks
}

/// What the statistics say that the paper could not have concluded.
fn of_analysis(analysis: &Analysis) -> Vec<String> {
    let mut remarks = Vec::new();
    let once = |cell: &&Cell| cell.n == 1 && cell.environment != analysis.baseline;
    let single: Vec<&str> = analysis.cells.iter().filter(once).map(|cell| cell.workload.as_str()).collect();
    if !single.is_empty() {
        let distinct: BTreeSet<&str> = single.into_iter().collect();
        remarks.push(format!(
            "one run of each platform: {}; without a repetition no difference has an interval, and nothing can be concluded from it",
            distinct.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    for cell in &analysis.cells {
        let (Some(overhead), Some(least)) = (cell.overhead, cell.smallest_detectable) else { continue };
        let is_seen = overhead.low > 0.0 || overhead.high < 0.0;
        if !is_seen && least > 0.0 {
            remarks.push(format!(
                "{} of {}: a cost of {:+.2} % cannot be told from none; the smallest that these runs would likely have shown is {:.2} %",
                cell.workload,
                cell.environment,
                overhead.estimate * 100.0,
                least * 100.0
            ));
        }
    }
    remarks
}

#[cfg(test)]
mod tests;
