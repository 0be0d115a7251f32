//! The report of a study: published numbers beside those measured here.

use crate::columns::Column;
use crate::command::{experiment_command, shell_quoted};
use crate::directory::{DirectoryError, ExperimentState, StudyDirectory};
use crate::grade::{cost, grade};
use crate::overhead::PublishedOverhead;
use crate::study::{self, Experiment, Origin, PublishedValue, Quantity, Spread, Statistic, Study, View};
use crate::values::{
    Measured, Unavailable, Values, is_same_point, is_turned, number, statistic_name, statistic_of,
};
use std::collections::BTreeMap;
use weigh_model::{HostFacts, Unit};
use weigh_report::study::{
    ArmReport, ExperimentReport, MeasuredNumber, PublishedNumber, RowReport, StudyCell, StudyReport,
    ViewReport,
};
use weigh_report::{EMULATED_HOST, Report};
use weigh_stats::{Interval, Ratio, Summary};
use weigh_store::RunDirectory;

impl Study {
    /// Returns a report of these experiments that says nothing yet about this host.
    pub(crate) fn report(&self, experiments: Vec<ExperimentReport>) -> StudyReport {
        StudyReport {
            name: self.name.clone(),
            title: self.title.clone(),
            authors: self.authors.clone(),
            published: self.published.clone(),
            host_then: self.host.clone(),
            method_then: self.method.clone(),
            host_here: String::new(),
            size: String::new(),
            directory: None,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            experiments,
            warnings: Vec::new(),
            raw_logs: None,
        }
    }
}

/// The report of what a study has measured so far. `report` makes the report of a run.
///
/// # Errors
/// A run cannot be read; the state is damaged.
pub fn report_of_directory<E: From<DirectoryError>>(
    directory: &StudyDirectory,
    report: impl Fn(&RunDirectory) -> Result<Report, E>,
) -> Result<StudyReport, E> {
    report_of_experiments(directory, |_| true, report)
}

/// The same of some of the experiments, chosen by their places in the state, as if there were no
/// others.
pub(crate) fn report_of_experiments<E: From<DirectoryError>>(
    directory: &StudyDirectory,
    is_chosen: impl Fn(usize) -> bool,
    report: impl Fn(&RunDirectory) -> Result<Report, E>,
) -> Result<StudyReport, E> {
    let (state, study) = (directory.state(), directory.study());
    let choice = directory.columns()?;
    let mut hosts = Vec::new();
    let (mut is_emulated, mut left) = (false, 0);
    let mut experiments = Vec::new();
    for (at, experiment_state) in state.experiments.iter().enumerate().filter(|(at, _)| is_chosen(*at)) {
        left += usize::from(experiment_state.is_left());
        let run = experiment_state.run.as_ref().map(|run| RunDirectory::open(&directory.path().join(run)));
        let run = run.transpose().map_err(DirectoryError::from)?;
        if let Some(run) = &run {
            hosts.push((experiment_state.name.as_str(), run.host().clone()));
            is_emulated |= run.host().is_emulated();
        }
        let report = run.as_ref().map(&report).transpose()?;
        let experiment = directory.experiment(at)?;
        let run = ExperimentRun {
            experiment,
            state: experiment_state,
            columns: choice.columns(experiment),
            report: report.as_ref(),
        };
        experiments.push(run.report(&state.size));
    }
    Ok(StudyReport {
        host_here: describe_hosts(&hosts),
        size: state.size.clone(),
        directory: Some(directory.path().display().to_string()),
        tool_version: state.tool_version.clone(),
        warnings: warnings(directory, left, is_emulated),
        ..study.report(experiments)
    })
}

/// What the reader should know of experiments of which `left` are still to be measured.
fn warnings(directory: &StudyDirectory, left: usize, is_emulated: bool) -> Vec<String> {
    let what = if left == 1 {
        "1 experiment has not ended".into()
    } else {
        format!("{left} experiments have not ended")
    };
    let them = if left == 1 { "it" } else { "them" };
    let text = format!("{what}; `weigh resume {}` continues {them}", directory.path().display());
    let emulated = is_emulated.then(|| format!("{}: {}", EMULATED_HOST.0, EMULATED_HOST.1));
    emulated.into_iter().chain((left > 0).then_some(text)).collect()
}

/// A host in one line.
pub(crate) fn describe_host(facts: &HostFacts) -> String {
    format!(
        "{}, {} CPUs, {:.1} GiB, {}, Linux {}",
        facts.cpu(),
        facts.cpus.len(),
        facts.memory_bytes as f64 / f64::from(1 << 30),
        facts.operating_system,
        facts.kernel
    )
}

/// The machines of experiments in one line. If there are several, each is followed by the
/// experiments that ran on it.
fn describe_hosts(ran: &[(&str, HostFacts)]) -> String {
    let mut hosts: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for &(experiment, ref facts) in ran {
        let host = describe_host(facts);
        let known =
            hosts.iter_mut().find(|(identity, known, _)| *identity == facts.identity && *known == host);
        match known {
            Some((_, _, experiments)) => experiments.push(experiment),
            None => hosts.push((facts.identity.as_str(), host, vec![experiment])),
        }
    }
    if let [(_, host, _)] = hosts.as_slice() {
        return host.clone();
    }
    let each = hosts.iter().map(|(_, host, experiments)| format!("{host} ({})", experiments.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

/// An experiment with its run, if there is one.
pub(crate) struct ExperimentRun<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) state: &'a ExperimentState,
    pub(crate) columns: Vec<Column>,
    pub(crate) report: Option<&'a Report>,
}

impl ExperimentRun<'_> {
    pub(crate) fn report(&self, size: &str) -> ExperimentReport {
        let experiment = self.experiment;
        let not_run = self.not_run();
        let measured = Measured {
            experiment,
            report: self.report,
            environments: &self.state.environments,
            without: &self.state.without,
            not_run: not_run.as_deref(),
            ended: self.state.done,
        };
        let baseline = self.columns.iter().position(|column| column.id == experiment.baseline).unwrap_or(0);
        ExperimentReport {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            source: experiment.source.clone(),
            statistic: experiment.statistic.clone(),
            command: self.command(size),
            run: self.state.run.clone(),
            blocks: self.report.and_then(|report| report.blocks_done),
            instead: experiment.instead.clone(),
            arms: self.columns.iter().map(|column| self.arm(column)).collect(),
            baseline,
            views: experiment.views.iter().map(|view| self.view(&measured, view)).collect(),
            claims: experiment.claims.iter().map(|claim| grade(&measured, claim)).collect(),
            remarks: self.remarks(),
            platforms: self.state.platforms.clone(),
            not_run,
        }
    }

    /// Why nothing was run.
    fn not_run(&self) -> Option<String> {
        match (&self.state.not_run, self.report) {
            (Some(reason), _) => Some(reason.clone()),
            (None, None) => Some("not measured yet".into()),
            (None, Some(_)) => None,
        }
    }

    fn command(&self, size: &str) -> String {
        let planned = || experiment_command(self.experiment, &self.columns, size, &[]).unwrap_or_default();
        let words = if self.state.command.is_empty() { planned() } else { self.state.command.clone() };
        if words.is_empty() { String::new() } else { format!("weigh {}", shell_quoted(&words)) }
    }

    fn arm(&self, column: &Column) -> ArmReport {
        let on = self.state.environments.get(&column.id).cloned();
        let spec = || column.spec.as_ref().map(ToString::to_string);
        ArmReport {
            id: column.id.clone(),
            label: column.label.clone(),
            on: on.or_else(spec),
            today: column.today,
            not_run: self.state.without.get(&column.id).cloned().or_else(|| column.missing.clone()),
            note: column.note.clone(),
        }
    }

    /// What a reader should know about the run.
    fn remarks(&self) -> Vec<String> {
        let Some(report) = self.report else { return Vec::new() };
        let mut remarks = Vec::new();
        if report.analysis.exploratory {
            remarks.push("EXPLORATORY: a quick run of few blocks".into());
        }
        if let Some(noisy) = &report.circumstances.noisy_host {
            remarks.push(format!("NOISY-HOST: from block {} on noise voids nothing", noisy.from_block));
        }
        let mut failed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for failure in &report.failures {
            *failed.entry((failure.environment.as_str(), failure.reason.as_str())).or_default() += 1;
        }
        remarks.extend(failed.into_iter().map(|((environment, reason), times)| {
            let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
            format!("{environment}: {reason}{times}")
        }));
        if !self.state.done {
            remarks.push(
                "the run has not ended, so the intervals of its overheads and claims hold at any moment"
                    .into(),
            );
        }
        remarks
    }

    fn view(&self, measured: &Measured<'_>, view: &View) -> ViewReport {
        let rows = view.quantities.iter().filter_map(|id| self.experiment.quantity(id));
        ViewReport {
            id: view.id.clone(),
            title: view.title.clone(),
            form: view.form,
            arms_down: view.arms_down,
            x_label: view.x_label.clone(),
            y_label: view.y_label.clone(),
            rows: rows.flat_map(|quantity| self.rows(measured, view, quantity)).collect(),
        }
    }

    /// The rows of a quantity: one for each point if it is swept.
    fn rows(&self, measured: &Measured<'_>, view: &View, quantity: &Quantity) -> Vec<RowReport> {
        let Some(sweep) = &quantity.sweep else { return vec![self.row(measured, view, quantity, None)] };
        let mut points = measured.points(quantity);
        for point in self.experiment.published_points(&quantity.id) {
            if !points.iter().any(|other| is_same_point(other, point)) {
                points.push(point.into());
            }
        }
        points.sort_by(|a, b| number(a).total_cmp(&number(b)));
        if points.is_empty() {
            return vec![self.row(measured, view, quantity, None)];
        }
        points.iter().map(|point| self.row(measured, view, quantity, Some((sweep, point)))).collect()
    }

    fn row(
        &self,
        measured: &Measured<'_>,
        view: &View,
        quantity: &Quantity,
        point: Option<(&String, &String)>,
    ) -> RowReport {
        let at = point.map(|(_, point)| point.as_str());
        let other = view.x.as_ref().and_then(|x| self.experiment.quantity(x));
        let why = match &quantity.from {
            Origin::Text { why } => Some(why.clone()),
            _ => None,
        };
        RowReport {
            quantity: quantity.id.clone(),
            label: quantity.label.clone(),
            unit: quantity.unit.clone(),
            better: quantity.better,
            stands_in: quantity
                .from
                .measurand()
                .filter(|_| quantity.stands_in)
                .map(|measurand| measurand.workload.clone()),
            point: point.map(|(sweep, point)| format!("{sweep}={point}")),
            x: at.map(number).filter(|x| *x < f64::MAX),
            percentile: quantity.percentile,
            not_measured: why,
            cells: self
                .columns
                .iter()
                .map(|column| self.cell(measured, quantity, column, at, other))
                .collect(),
        }
    }

    fn cell(
        &self,
        measured: &Measured<'_>,
        quantity: &Quantity,
        column: &Column,
        at: Option<&str>,
        x: Option<&Quantity>,
    ) -> StudyCell {
        let published = self.experiment.published_value(&quantity.id, &column.id, at);
        let published_overhead = self.experiment.published_overhead(&quantity.id, &column.id, at);
        let values = measured.values(quantity, &column.id, at);
        let costs = self.costs(measured, quantity, column, at, &values);
        let published_costs = published_overhead.map(published_ratio);
        let agreement =
            costs.as_ref().zip(published_costs.as_ref()).map(|(ours, theirs)| ours.is_like(theirs));
        let on_x = x.map(|x| {
            let printed =
                self.experiment.published_value(&x.id, &column.id, at).map(|(_, value)| value.center());
            let seen = measured.values(x, &column.id, at).ok();
            (printed, seen.and_then(|values| number_of(x, &values)).map(|number| number.value))
        });
        StudyCell {
            published: published.map(|(block, value)| printed(block, value)),
            published_overhead: published_overhead.map(|published| {
                let (low, high) = published.interval.unwrap_or((published.overhead, published.overhead));
                Interval { estimate: published.overhead, low, high }
            }),
            published_overhead_has_interval: published_overhead
                .is_some_and(|published| published.interval.is_some()),
            measured: values.as_ref().ok().and_then(|values| number_of(quantity, values)),
            overhead: costs.map(|costs| costs.effect()),
            agreement,
            x: on_x,
            flags: match &values {
                Ok(Values::Cell(cell, _)) => cell.flags.iter().map(ToString::to_string).collect(),
                _ => Vec::new(),
            },
            // If the arm was not run, the arm has the reason; if nothing measures the quantity, the
            // row has it.
            missing: values.err().map(|reason| reason.to_string()).filter(|_| {
                !self.state.without.contains_key(&column.id) && !matches!(quantity.from, Origin::Text { .. })
            }),
        }
    }

    /// The cost in a column relative to the baseline's.
    fn costs(
        &self,
        measured: &Measured<'_>,
        quantity: &Quantity,
        column: &Column,
        at: Option<&str>,
        values: &Result<Values<'_>, Unavailable>,
    ) -> Option<Ratio> {
        if column.id == self.experiment.baseline {
            return None;
        }
        let statistic = statistic_of(quantity);
        // A spread or a quantile is not a cost.
        if !matches!(statistic, Some(Statistic::Mean | Statistic::Median)) {
            return None;
        }
        let base = measured.values(quantity, &self.experiment.baseline, at).ok()?;
        let found = measured.ratio((values.as_ref().ok()?, statistic), (&base, statistic)).ok()?;
        Some(cost(found, quantity.better))
    }
}

/// A published overhead as a ratio of costs, with the interval that the printed numbers give.
fn published_ratio(published: PublishedOverhead) -> Ratio {
    let spread = published.interval.map(|(low, high)| (high.ln_1p() - low.ln_1p()) / 2.0 / NORMAL);
    Ratio::published(published.overhead.ln_1p(), spread.map(|error| (error, MANY)))
}

/// The 97.5 % quantile of the normal distribution, and a number of degrees of freedom at which
/// Student's t has the same.
const NORMAL: f64 = 1.959_963_984_540_054;
const MANY: f64 = 1e6;

fn printed(block: &study::Published, value: &PublishedValue) -> PublishedNumber {
    let (spread, five) = match *value {
        PublishedValue::Single { spread, .. } => (spread, None),
        PublishedValue::Box { min, p05, median, p95, max } => (None, Some([min, p05, median, p95, max])),
    };
    let kind = match block.spread {
        Spread::Sd => "sd",
        Spread::Ci95 => "ci95",
        Spread::None | Spread::Box => "",
    };
    PublishedNumber {
        value: value.center(),
        spread: spread.map(|spread| (spread, kind.to_string())),
        n: block.n,
        five,
        source: block.source.clone(),
    }
}

/// A measured number in the unit of the quantity, or in its own unit if that is of another kind.
/// A rate that stands for a time is shown as the rate that was measured.
fn number_of(quantity: &Quantity, values: &Values<'_>) -> Option<MeasuredNumber> {
    let turned = matches!(values, Values::Cell(cell, _) if is_turned(cell, quantity));
    let statistic = match statistic_of(quantity).unwrap_or_default() {
        Statistic::Min if turned => Statistic::Max,
        Statistic::P05 if turned => Statistic::P95,
        Statistic::P95 if turned => Statistic::P05,
        Statistic::Max if turned => Statistic::Min,
        other => other,
    };
    let (unit, factor) = Unit::normalise(&quantity.unit);
    let share = matches!(statistic, Statistic::Cv);
    let inverse = matches!(values, Values::Cell(cell, _) if cell.metric.better != quantity.better) && !share;
    let own = !share && (unit != values.unit() || inverse);
    let scale = if own { 1.0 } else { 1.0 / factor };
    let all: Vec<f64> = match values {
        Values::Cell(_, values) if turned => values.iter().map(|o| 1.0 / o.value).collect(),
        Values::Cell(_, values) | Values::Pages(values) => values.iter().map(|o| o.value).collect(),
        Values::Limit(each, n, _) => {
            let value = each.estimate * scale;
            let ends = [each.low, each.low, each.estimate, each.high, each.high].map(|end| end * scale);
            return Some(MeasuredNumber {
                value,
                sd: None,
                n: *n,
                five: ends,
                statistic: "what one more takes, with its interval".into(),
                unit: own.then(|| values.unit().to_string()),
            });
        }
    };
    let summary = Summary::of(&all)?;
    let sd = summary.sd.unwrap_or(0.0);
    let value = match statistic {
        Statistic::Mean => summary.mean,
        Statistic::Median => summary.median,
        Statistic::Min => summary.min,
        Statistic::P05 => summary.p05,
        Statistic::P95 => summary.p95,
        Statistic::Max => summary.max,
        Statistic::Sd => sd,
        Statistic::Cv => sd / summary.mean,
    };
    let few = matches!(statistic, Statistic::Sd | Statistic::Cv) && summary.sd.is_none();
    (!few).then(|| MeasuredNumber {
        value: value * scale,
        sd: summary.sd.filter(|_| !share).map(|sd| sd * scale),
        n: all.len() as u32,
        five: [summary.min, summary.p05, summary.median, summary.p95, summary.max].map(|value| value * scale),
        statistic: statistic_name(statistic).into(),
        unit: own.then(|| values.unit().to_string()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::directory::{StudyState, run_name};
    use crate::study::Measurand;
    use std::path::Path;
    use weigh_model::{Better, Comparison, Effort, MetricSpec, Observation, Plan, Series, WorkloadKey};
    use weigh_stats::{Options, analyse};

    /// A directory with experiments of a study: the name of each, the machine on which it began, if
    /// it did, and whether it is complete. No run has a block.
    pub(crate) fn directory(path: &Path, experiments: &[(&str, Option<&str>, bool)]) -> StudyDirectory {
        let library = crate::library().unwrap();
        let study = library.find("felter-2014").unwrap()[0].study;
        let mut state = StudyState::new(study, "quick");
        for &(name, machine, done) in experiments {
            let run = machine.map(|_| run_name(name));
            state.experiments.push(ExperimentState { name: name.into(), done, run, ..Default::default() });
        }
        let directory = StudyDirectory::create(path, study, state).unwrap();
        for (name, machine, _) in experiments {
            let Some(machine) = machine else { continue };
            let facts =
                HostFacts { identity: (*machine).into(), kernel: "6.1".into(), ..HostFacts::default() };
            let plan = Plan::of("x", Vec::new(), Vec::new(), Effort::Fixed { blocks: 1 });
            RunDirectory::create_at(&path.join(run_name(name)), &plan, &facts).unwrap();
        }
        directory
    }

    #[test]
    fn the_machines_are_those_that_ran_something() {
        let here = |experiments: &[(&str, Option<&str>, bool)]| {
            let base = tempfile::tempdir().unwrap();
            let report = |_: &RunDirectory| Ok::<_, DirectoryError>(Report::default());
            report_of_directory(&directory(base.path(), experiments), report).unwrap().host_here
        };
        let (pxz, gups, linpack) = ("table-1/pxz", "table-1/gups", "table-1/linpack");
        let host = describe_host(&HostFacts { kernel: "6.1".into(), ..HostFacts::default() });
        assert_eq!(here(&[(pxz, None, false), (gups, None, false)]), "");
        assert_eq!(here(&[(pxz, None, false), (gups, Some("a"), true), (linpack, Some("a"), false)]), host);
        let several = here(&[(pxz, Some("a"), true), (gups, Some("b"), true), (linpack, Some("a"), true)]);
        assert_eq!(several, format!("{host} ({pxz}, {linpack}); {host} ({gups})"));
    }

    #[test]
    fn a_rate_that_stands_for_a_time_is_shown_as_it_was_measured() {
        let library = crate::library().unwrap();
        let experiment = library.find("felter-2014/table-1/pxz").unwrap()[0].experiment;
        let pxz = experiment.quantity("pxz").unwrap();
        let Origin::Cells(measurand) = &pxz.from else { panic!("{pxz:?}") };
        let metric = MetricSpec {
            name: measurand.metric.clone(),
            unit: Unit::normalise("op/s").0,
            better: Better::Higher,
            primary: true,
        };
        let series = |name: &str| Series::of(name, Observation::in_blocks(&[100.0, 200.0, 300.0]));
        let comparison = Comparison {
            workload: measurand.workload.clone(),
            key: WorkloadKey::named(&measurand.workload),
            metric,
            series: vec![series("native"), series("docker")],
        };
        let report = Report::new("", analyse(&[comparison], &Options::new("native")));
        let environments = [("native".to_string(), "native".to_string())].into();
        let measured = Measured {
            experiment,
            report: Some(&report),
            environments: &environments,
            without: &BTreeMap::new(),
            not_run: None,
            ended: true,
        };
        let shown = |statistic| {
            let from = Origin::Cells(Measurand { statistic, ..measurand.clone() });
            let time = Quantity { from, better: Better::Lower, unit: "s".into(), ..pxz.clone() };
            number_of(&time, &measured.values(&time, "native", None).unwrap()).unwrap()
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
        let mean = shown(Statistic::Mean);
        assert!(near(mean.value, 200.0) && near(mean.sd.unwrap(), 100.0), "{mean:?}");
        assert!(near(mean.five[0], 100.0) && near(mean.five[4], 300.0), "{mean:?}");
        assert_eq!(mean.unit.as_deref(), Some("op/s"));
        // The longest times are those of the lowest rates.
        let longest = shown(Statistic::Max);
        assert!(near(longest.value, 100.0), "{longest:?}");
        assert_eq!(longest.statistic, statistic_name(Statistic::Min));
        assert!(near(shown(Statistic::Sd).value, 100.0));
    }
}
