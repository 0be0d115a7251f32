//! A study as one page: nothing fetched, everything escaped by the template engine, and every
//! number there without its script.

mod charts;
mod costs;

use super::grid::Grid;
use super::notes;
use super::tally::Tally;
use super::words::{self, GradeWords};
use super::{ClaimReport, ExperimentReport, StudyReport, ViewForm, ViewReport};
use crate::ReportError;
use crate::html::{STYLE, embed, typeset};
use charts::{Chart, Kind};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

/// The parts, which are macros, then the page.
const TEMPLATE: &str =
    concat!(include_str!("../../templates/parts.html"), include_str!("../../templates/study.html"));
const OWN_STYLE: &str = include_str!("../../templates/study.css");

/// The place of a figure, which the script draws when it comes into sight.
#[derive(Debug, Serialize)]
struct Figure {
    kind: Kind,
    index: usize,
    caption: String,
    alt: String,
}

/// An experiment as the page shows it.
#[derive(Debug, Serialize)]
struct ExperimentPage {
    name: String,
    heading: String,
    not_run: Option<String>,
    tally: Tally,
    sentence: String,
    setting: Vec<(&'static str, String)>,
    arms: Vec<(String, String)>,
    instead: Vec<String>,
    costs: Option<Figure>,
    views: Vec<ViewPage>,
    claims: Vec<ClaimPage>,
    remarks: Vec<String>,
}

/// A table or figure.
#[derive(Debug, Serialize)]
struct ViewPage {
    title: String,
    beside: String,
    corner: &'static str,
    figures: Vec<Figure>,
    /// Whether the table is folded under its figures.
    folded: bool,
    grid: Grid,
}

/// A claim.
#[derive(Debug, Serialize)]
struct ClaimPage {
    grade: GradeWords,
    sentence: Option<String>,
    says: String,
    source: String,
    check: String,
    seen: Vec<SeenPage>,
}

/// A ratio that it looked at.
#[derive(Debug, Serialize)]
struct SeenPage {
    what: String,
    estimate: String,
    interval: String,
    n: u32,
}

/// The data of the figures, as the script reads it.
#[derive(Debug, Serialize)]
struct Data {
    charts: Vec<Chart>,
}

impl Data {
    /// Keeps a chart, and gives the place for it.
    fn place(&mut self, chart: Chart, caption: String) -> Figure {
        let (published, measured) = chart.counts();
        let form = match chart.kind {
            Kind::Lines => "lines, one for each platform",
            Kind::Cdf => "a distribution for each platform",
            Kind::Bars => "bars by platform",
            Kind::Boxes => {
                "a box for each platform from the 5 % to the 95 % quantile, its whiskers reaching to the least and the most"
            }
            Kind::Costs => "points with intervals, one pair for each quantity and platform",
        };
        let alt = format!(
            "{caption}: {form}; {published} published numbers are open, {measured} measured ones are filled; all are in the table"
        );
        let kind = chart.kind;
        self.charts.push(chart);
        Figure { kind, index: self.charts.len() - 1, caption, alt }
    }
}

/// The study as a page.
pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    let mut data = Data { charts: Vec::new() };
    let experiments: Vec<ExperimentPage> =
        report.experiments.iter().map(|one| experiment(report, one, &mut data)).collect();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("minus", |text: String| typeset(&text));
    environment.add_filter("plain", |text: String| crate::text::shown(&text));
    environment.add_template("study.html", TEMPLATE)?;
    let page = environment.get_template("study.html")?.render(context! {
        style => Value::from_safe_string(format!("{STYLE}{OWN_STYLE}")),
        script => Value::from_safe_string(embed::STUDY_SCRIPT.to_string()),
        library => Value::from_safe_string(embed::LIBRARY.to_string()),
        policy => Value::from_safe_string(embed::STUDY_POLICY.to_string()),
        data => Value::from_safe_string(embed::data(&data)?),
        title => report.title.clone(),
        name => report.name.clone(),
        size => report.size.clone(),
        tally => Value::from(Serde(Tally::of_study(report))),
        sentence => Tally::of_study(report).sentence(),
        convention => notes::convention(report),
        subject => Value::from(Serde(notes::subject(report))),
        warnings => report.warnings.clone(),
        experiments => Value::from(Serde(&experiments)),
        reading => Value::from(Serde(notes::reading(report))),
        legend => Value::from(Serde(notes::LEGEND)),
    })?;
    Ok(page.trim_end().to_string() + "\n")
}

fn experiment(report: &StudyReport, experiment: &ExperimentReport, data: &mut Data) -> ExperimentPage {
    let tally = Tally::of_experiment(experiment);
    let costs = costs::chart(experiment).map(|chart| {
        data.place(chart, format!("{}: overheads of the paper and those measured here", experiment.name))
    });
    ExperimentPage {
        name: experiment.name.clone(),
        heading: notes::heading(experiment),
        not_run: experiment.not_run.clone(),
        tally,
        sentence: tally.short_sentence(),
        setting: notes::setting(experiment),
        arms: notes::arms(experiment),
        instead: notes::instead(experiment),
        costs,
        views: experiment.views.iter().map(|one| view(report, experiment, one, data)).collect(),
        claims: experiment.claims.iter().map(claim).collect(),
        remarks: experiment.remarks.clone(),
    }
}

fn view(report: &StudyReport, experiment: &ExperimentReport, view: &ViewReport, data: &mut Data) -> ViewPage {
    let grid = Grid::new(experiment, view);
    let figures = charts::of_view(experiment, view).into_iter().map(|chart| {
        let title = [view.id.as_str(), &view.title, &chart.title];
        let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
        let caption = title.join(": ");
        data.place(chart, caption)
    });
    ViewPage {
        title: notes::title(view),
        beside: notes::beside(report, experiment),
        corner: grid.corner(),
        figures: figures.collect(),
        folded: view.form != ViewForm::Table,
        grid,
    }
}

fn claim(claim: &ClaimReport) -> ClaimPage {
    let grade = GradeWords::of_claim(&claim.grade);
    let seen = claim.seen.iter().map(|seen| {
        let (estimate, interval) = words::seen_numbers(seen);
        SeenPage { what: seen.what.clone(), estimate, interval, n: seen.n }
    });
    ClaimPage {
        sentence: grade.sentence(),
        grade,
        says: claim.says.clone(),
        source: claim.source.clone(),
        check: claim.check.clone(),
        seen: seen.collect(),
    }
}
