//! The raw logs of a study, analysed by our statistics.
//!
//! Nothing is measured. The values of the logs replace those of a run, without blocks. Everything
//! else is as in a study that was measured here: the same tables, the same grades.

use crate::columns::{Column, ColumnChoice};
use crate::directory::ExperimentState;
use crate::redraw::ExperimentRun;
use crate::study::{Arm, Experiment, Measurand, Origin, Quantity, RawLogSource, Study};
use crate::values::number;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use weigh_model::{Comparison, MetricSpec, Observation, Series, Unit, WorkloadKey, number_of};
use weigh_report::Report;
use weigh_report::study::{ExperimentReport, StudyReport};
use weigh_stats::{Analysis, Cell, CellFlag, Flag, Options, analyse};
use weigh_workloads::parsers::{LogFault, LoggedRun, is_in, log_unit, logged_runs};

/// The largest file that is read. The logs of the studies are below one megabyte.
const LARGEST_BYTES: u64 = 256 << 20;

/// The result of reanalysing the logs of a study.
pub struct ReanalysisResult {
    /// The report, in the form of a measured study's.
    pub report: StudyReport,
    /// Logs that cannot be used. The report lacks their values and nothing else.
    pub damaged: Vec<LogError>,
}

/// A log that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LogError {
    /// What is wrong, and with which file.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Why the file cannot be read.
    pub source: Option<io::Error>,
    /// The file, and the line that is wrong.
    pub line: Option<(String, String)>,
}

/// Reads the logs of these experiments below `directory` and analyses them.
pub fn reanalyse(study: &Study, names: &[&str], directory: &Path) -> ReanalysisResult {
    let mut damaged = Vec::new();
    let asked = study.experiments.iter().filter(|one| names.contains(&one.name.as_str()));
    let experiments: Vec<ExperimentReport> =
        asked.map(|one| Logs::read(one, directory, &mut damaged).report()).collect();
    let report = StudyReport {
        size: "of the study".into(),
        warnings: warnings(&damaged),
        raw_logs: Some(directory.display().to_string()),
        ..study.report(experiments)
    };
    ReanalysisResult { report, damaged }
}

fn warnings(damaged: &[LogError]) -> Vec<String> {
    let unpaired = "UNPAIRED: the platforms were measured one after the other; any drift of the machine in the meantime is part of every \
                    difference, and no statistic can take it out; weigh study measures in blocks";
    let of_log = |error: &LogError| format!("not used: {error}; {}", error.help);
    std::iter::once(unpaired.to_string()).chain(damaged.iter().map(of_log)).collect()
}

/// Why an arm has no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoValues {
    /// The study has no such log.
    #[error("the study names no raw log of it")]
    NoLogNamed,
    /// The user does not have the file.
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    /// The file cannot be used, for this reason.
    #[error("{0}")]
    Damaged(String),
}

/// The values of an arm by point.
type Values = Result<BTreeMap<Option<String>, Vec<f64>>, NoValues>;

/// The contents of the logs of an experiment.
struct Logs<'a> {
    experiment: &'a Experiment,
    /// The values by quantity and arm, for those whose logs the study names.
    values: BTreeMap<(String, String), Values>,
    /// Why a point of a quantity and an arm has no value, where others have, by all three.
    gaps: BTreeMap<(String, String, String), NoValues>,
    /// Which files were read, and what a reader should know about them.
    remarks: Vec<String>,
}

impl<'a> Logs<'a> {
    fn read(experiment: &'a Experiment, directory: &Path, damaged: &mut Vec<LogError>) -> Self {
        let (values, gaps) = (BTreeMap::new(), BTreeMap::new());
        let mut logs = Self { experiment, values, gaps, remarks: Vec::new() };
        for named in &experiment.reanalyse {
            let Some(quantity) = experiment.quantity(&named.quantity) else { continue };
            let of_arm = |arm: &'a Arm| named.files.contains_key(&arm.id).then_some(&arm.id);
            for arm in experiment.arms.iter().filter_map(of_arm) {
                let values = match of_files(named, quantity, arm, directory) {
                    Ok(runs) => Ok(by_point(named, quantity, runs)),
                    Err(FileError::Missing(path)) => Err(NoValues::Missing(path)),
                    Err(FileError::Damaged(error)) => {
                        let reason = error.to_string();
                        // A log may hold several quantities, but each of its faults is reported
                        // once.
                        if damaged.iter().all(|known| known.message != reason) {
                            damaged.push(*error);
                        }
                        Err(NoValues::Damaged(reason))
                    }
                };
                logs.remarks.extend(of_runs(named, arm, &values));
                logs.add(named, arm, values);
            }
            logs.remarks.extend(named.note.iter().map(|note| format!("{}: {note}", named.quantity)));
        }
        let mut known = BTreeSet::new();
        logs.remarks.retain(|remark| known.insert(remark.clone()));
        logs
    }

    /// Adds the values of an arm's logs. Those of one point may be missing where others are there.
    fn add(&mut self, named: &RawLogSource, arm: &str, values: Values) {
        let (quantity, arm) = (named.quantity.clone(), arm.to_string());
        if let (Some(at), Err(reason)) = (&named.at, &values) {
            self.gaps.insert((quantity.clone(), arm.clone(), at.clone()), reason.clone());
        }
        match self.values.entry((quantity, arm)) {
            Entry::Vacant(place) => _ = place.insert(values),
            Entry::Occupied(mut known) => match (known.get_mut(), values) {
                (Ok(all), Ok(more)) => all.extend(more),
                (known, Ok(more)) => *known = Ok(more),
                (_, Err(_)) => {}
            },
        }
    }

    /// The report, in the form of a measured experiment's.
    fn report(self) -> ExperimentReport {
        let experiment = self.as_measured();
        let analysis = self.analysis(&experiment);
        let reason = |arm: &Arm| Some((arm.id.clone(), self.no_values(&arm.id)?.to_string()));
        let without: BTreeMap<String, String> = experiment.arms.iter().filter_map(reason).collect();
        let not_run = (without.len() == experiment.arms.len()).then(|| self.not_run());
        let own = |arm: &Arm| (arm.id.clone(), arm.id.clone());
        let state = ExperimentState {
            name: experiment.name.clone(),
            done: true,
            not_run: not_run.clone(),
            environments: experiment.arms.iter().map(own).collect(),
            without,
            ..ExperimentState::default()
        };
        let columns = ColumnChoice::default().columns(&experiment).into_iter();
        let columns = columns.map(|column| Column { missing: None, spec: None, ..column });
        let report = Report::new(&experiment.name, analysis);
        let run = ExperimentRun {
            experiment: &experiment,
            state: &state,
            columns: columns.collect(),
            report: not_run.is_none().then_some(&report),
        };
        let mut drawn = run.report("");
        drawn.command = String::new();
        // These describe how the arm is measured here, which it was not.
        drawn.arms.iter_mut().for_each(|arm| (arm.on, arm.note) = (None, None));
        // The sentences compare a study with other measurements, and not with itself.
        drawn.claims.iter_mut().for_each(|claim| claim.takeaway.clear());
        drawn.remarks =
            self.remarks.iter().cloned().chain(of_analysis(&experiment, &report.analysis)).collect();
        drawn
    }

    /// The experiment with its logs instead of workloads. The programs are the study's own, so
    /// nothing replaces them. Each quantity is a workload, since several quantities may come from
    /// one workload here.
    fn as_measured(&self) -> Experiment {
        let from = |quantity: &Quantity| match quantity.from.measurand() {
            Some(measurand) if self.names(&quantity.id) => Origin::Cells(Measurand {
                workload: quantity.id.clone(),
                metric: quantity.id.clone(),
                params: BTreeMap::new(),
                statistic: measurand.statistic,
                best_over: measurand.best_over.clone(),
            }),
            Some(_) => Origin::Text { why: NoValues::NoLogNamed.to_string() },
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

    /// Why an arm has no values; `None` if it has some.
    fn no_values(&self, arm: &str) -> Option<NoValues> {
        let mut of_arm = self.values.iter().filter(|((_, of), _)| of == arm).map(|(_, values)| values);
        if of_arm.clone().any(Result::is_ok) {
            return None;
        }
        Some(of_arm.find_map(|values| values.clone().err()).unwrap_or(NoValues::NoLogNamed))
    }

    /// Why there are no values at all. The reason of the baseline comes first.
    fn not_run(&self) -> String {
        if self.experiment.reanalyse.is_empty() {
            return "the study names no raw logs of this experiment".into();
        }
        let arms = self.experiment.arms.iter().map(|arm| &arm.id);
        std::iter::once(&self.experiment.baseline)
            .chain(arms)
            .filter_map(|arm| self.no_values(arm))
            .find(|reason| *reason != NoValues::NoLogNamed)
            .unwrap_or(NoValues::NoLogNamed)
            .to_string()
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
                    Some(Err(reason)) => reason.to_string(),
                    None => NoValues::NoLogNamed.to_string(),
                };
                for point in self.points(quantity) {
                    let has = |values: &Values| matches!(values, Ok(values) if values.contains_key(&point));
                    if !values.is_some_and(has) {
                        let at = point.clone().unwrap_or_default();
                        let gap = self.gaps.get(&(quantity.id.clone(), arm.id.clone(), at));
                        options.flags.push(CellFlag {
                            workload: Some(named(quantity, point.as_deref())),
                            metric: Some(quantity.id.clone()),
                            environment: arm.id.clone(),
                            flag: Flag::Absent,
                            reason: Some(gap.map_or_else(|| reason.clone(), ToString::to_string)),
                        });
                    }
                }
            }
        }
        analyse(&comparisons, &options)
    }

    /// The points at which any arm has values; a single unnamed one if none has.
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
            Series::of(&arm.id, values.into_iter().map(|value| Observation { block: None, value }).collect())
        });
        Comparison {
            workload: named(quantity, point.map(String::as_str)),
            key: WorkloadKey {
                params: quantity.over().cloned().into_iter().zip(point.cloned()).collect(),
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

/// The workload id of a quantity at a point.
fn named(quantity: &Quantity, point: Option<&str>) -> String {
    match (quantity.over(), point) {
        (Some(over), Some(point)) => format!("{}{{{over}={point}}}", quantity.id),
        _ => quantity.id.clone(),
    }
}

fn place(point: Option<&str>) -> f64 {
    point.map_or(f64::MIN, number)
}

/// Why a log gives no values.
enum FileError {
    Missing(PathBuf),
    Damaged(Box<LogError>),
}

/// The counted runs of an arm.
fn of_files(
    named: &RawLogSource,
    quantity: &Quantity,
    arm: &str,
    directory: &Path,
) -> Result<Vec<LoggedRun>, FileError> {
    let mut all: Vec<LoggedRun> = Vec::new();
    for (number, file) in named.files_of(arm).iter().enumerate() {
        let runs = of_file(named, quantity, arm, directory, file)?;
        if !named.clients || number == 0 {
            all.extend(runs);
            continue;
        }
        let fault = |message: String| fault_of(&directory.join(&named.folders[0]).join(file), "", message);
        if runs.len() != all.len() {
            let runs = number_of(runs.len(), "run");
            return Err(fault(format!("it has {runs}, and the first client has {}", all.len())));
        }
        for (round, run) in all.iter_mut().zip(runs) {
            let spans = round.span.zip(run.span);
            let Some(((first, last), (start, end))) = spans else {
                return Err(fault("its runs do not say when they began and ended".into()));
            };
            let (first, last) = (first.min(start), last.max(end));
            *round = LoggedRun { value: last - first, span: Some((first, last)), ..run };
        }
    }
    Ok(all)
}

/// The counted runs of one file.
fn of_file(
    named: &RawLogSource,
    quantity: &Quantity,
    arm: &str,
    directory: &Path,
    file: &str,
) -> Result<Vec<LoggedRun>, FileError> {
    let candidates: Vec<PathBuf> = named.folders.iter().map(|folder| Path::new(folder).join(file)).collect();
    let found = candidates.iter().find(|path| directory.join(path).exists());
    let Some(found) = found else { return Err(FileError::Missing(directory.join(&candidates[0]))) };
    let path = &directory.join(found);
    let text = read_log(directory, found).map_err(|error| FileError::Damaged(Box::new(error)))?;
    let fault = |fault: LogFault| FileError::Damaged(Box::new(at(path, &text, fault)));
    let runs = logged_runs(&named.parser, &named.value, named.section_of(arm), &text).map_err(fault)?;
    if !is_in(&named.parser, &named.value, &quantity.unit) {
        let unit = log_unit(&named.parser, &named.value).unwrap_or("another unit");
        return Err(fault_of(
            path,
            &text,
            format!(
                "`{}` is in {unit}, and `{}` of the study in {}",
                named.value, quantity.id, quantity.unit
            ),
        ));
    }
    if let (Some(over), Some(run)) = (quantity.best_over(), runs.iter().find(|run| run.point.is_none())) {
        let message = format!("the run that begins here does not say its `{over}`");
        let help = format!("name a log of another parser, or a quantity without `best_over = \"{over}\"`");
        return Err(fault(LogFault { line: Some(run.line), message, help }));
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

fn fault_of(path: &Path, text: &str, message: String) -> FileError {
    let help = "is it the file of another experiment, or was it cut off? fetch it again".into();
    FileError::Damaged(Box::new(at(path, text, LogFault { line: None, message, help })))
}

/// A fault with its place in the file.
fn at(path: &Path, text: &str, fault: LogFault) -> LogError {
    let name = path.display().to_string();
    let place = fault.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let line = fault.line.and_then(|line| text.lines().nth(line - 1)).map(str::to_string);
    LogError {
        message: format!("{name}{place}: {}", fault.message),
        help: fault.help,
        source: None,
        line: line.map(|line| (name, line)),
    }
}

/// The text of a file of the directory, up to the size limit of logs. Logs come from others, so
/// neither they nor the study that names them may lead outside the directory.
fn read_log(directory: &Path, log: &Path) -> Result<String, LogError> {
    let bytes = weigh_store::files::read(directory, &log.to_string_lossy(), LARGEST_BYTES);
    let unreadable = |source: io::Error| LogError {
        message: format!("cannot read {}", directory.join(log).display()),
        help: "fetch the file again, as a file of this directory that you can read".into(),
        source: Some(source),
        line: None,
    };
    Ok(String::from_utf8_lossy(&bytes.map_err(unreadable)?).into_owned())
}

fn by_point(
    named: &RawLogSource,
    quantity: &Quantity,
    runs: Vec<LoggedRun>,
) -> BTreeMap<Option<String>, Vec<f64>> {
    let mut values: BTreeMap<Option<String>, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let point = named.at.clone().or(run.point.filter(|_| quantity.over().is_some()));
        values.entry(point).or_default().push(run.value);
    }
    values
}

/// The source of an arm's values, and their number if the study states another.
fn of_runs(named: &RawLogSource, arm: &str, values: &Values) -> Vec<String> {
    let Ok(values) = values else { return Vec::new() };
    let counts: BTreeSet<usize> = values.values().map(Vec::len).collect();
    let (Some(fewest), Some(most)) = (counts.first(), counts.last()) else { return Vec::new() };
    let runs = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
    let files = match &named.files[arm][..] {
        [first, .., last] => format!("{} files from {first} to {last}", named.files[arm].len()),
        files => files.join(", "),
    };
    let section = named.section_of(arm).into_iter().map(|section| format!(", of {section}"));
    let which = named.runs.iter().map(|(first, last)| format!(", runs {first} to {last}"));
    let which: String = section.chain(which).collect();
    let folders = named.folders.join(" or ");
    let mut remarks = vec![format!("{arm}: {} in {folders}: {files}{which}", named.parser)];
    if let Some(n) = named.n.filter(|n| *fewest != *n as usize || *most != *n as usize) {
        remarks.push(format!("{arm}: runs of {} in the logs: {runs}; the study has {n}", named.quantity));
    }
    remarks
}

/// Limits of the conclusions that the statistics find, and that the paper does not mention.
fn of_analysis(experiment: &Experiment, analysis: &Analysis) -> Vec<String> {
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
    // The points from which the best is taken are not results of their own.
    let is_result = |cell: &&Cell| {
        experiment.quantity(&cell.key.name).is_none_or(|quantity| quantity.best_over().is_none())
    };
    for cell in analysis.cells.iter().filter(is_result) {
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
