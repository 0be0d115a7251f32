//! A study from runs: their values as published numbers, their verdicts as claims, and the commands
//! that measure them again.

mod claims;
mod numbers;

use crate::command::shell_quoted;
use crate::file::read_study;
use crate::redraw::describe_host;
use crate::study::{Arm, Claim, Experiment, Measure, Place, Study, View};
use numbers::Row;
use std::collections::BTreeSet;
use std::path::Path;
use weigh_model::{Effort, EnvironmentPlan, EnvironmentSpec, HostFacts, Plan, distinct, number_of};
use weigh_report::Report;
use weigh_report::study::ViewForm;
use weigh_workloads::FileError;

/// The user's description of the study.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The name of the study; by default that of the plan.
    pub name: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// The authors.
    pub authors: Option<String>,
}

/// A run that becomes an experiment.
pub struct RunSource<'a> {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the run.
    pub run: String,
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The host that it was measured on.
    pub host: &'a HostFacts,
    /// The report of the run.
    pub report: Report,
    /// The command that measures it again.
    pub measure: Measure,
}

/// No study can be written from runs.
#[derive(Debug, thiserror::Error)]
pub enum FromRunsError {
    /// A study cannot have the name that the user gives.
    #[error("`{name}` cannot be the name of a study")]
    Name {
        /// The name.
        name: String,
        /// A similar name that is allowed.
        like: String,
    },
    /// The run has no value.
    #[error("nothing was measured in {run}")]
    NothingMeasured {
        /// The run.
        run: String,
    },
    /// The written text is not a study: a defect.
    #[error(transparent)]
    Study(#[from] FileError),
}

/// The text of a study's file. Its first lines have the command that repeats the runs; `file` is
/// the path that the study will have.
///
/// # Errors
/// A run without values; a name that no study can have.
///
/// # Panics
/// If there is no run.
pub fn study_file(runs: &[RunSource<'_>], header: &Header, file: &str) -> Result<String, FromRunsError> {
    let study = study(runs, header)?;
    let text = study.to_toml();
    // Otherwise, a fault would be found by somebody who has only the file.
    let read = read_study(Path::new(file), &text)?;
    debug_assert_eq!(read, study, "what is written is read as the same");
    let mut repeat = vec!["study".to_string(), "--file".into(), file.into()];
    repeat.extend(effort(runs[0].plan));
    let names = names(runs);
    Ok(format!(
        "# Written by `weigh study new` from {names}. As it was measured, it is measured again by\n#   weigh {}\n\n{text}",
        shell_quoted(&repeat)
    ))
}

fn names(runs: &[RunSource<'_>]) -> String {
    runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>().join(", ")
}

/// The options of `weigh study` that repeat a run with the same effort.
fn effort(plan: &Plan) -> Vec<String> {
    let size = plan.workloads.first().map_or("standard", |workload| workload.size.as_str());
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    if size != "standard" {
        add("--size", size.into());
    }
    match plan.effort {
        Effort::Quick { .. } if size == "quick" => {}
        Effort::Quick { blocks } | Effort::Fixed { blocks } => add("--blocks", blocks.to_string()),
        Effort::Precision { target, .. } | Effort::Sequential { target, .. } => {
            add("--precision", ((target * 1e6).round() / 1e4).to_string())
        }
        Effort::Lasting { .. } => {}
    }
    if !plan.noise.voiding {
        words.push("--no-void".into());
    }
    words
}

fn study(runs: &[RunSource<'_>], header: &Header) -> Result<Study, FromRunsError> {
    let first = &runs[0];
    let experiments = runs.iter().map(experiment).collect::<Result<Vec<_>, _>>()?;
    Ok(Study {
        name: name(header, first.plan)?,
        title: header.title.clone().unwrap_or_else(|| experiments[0].title.clone()),
        authors: header.authors.clone().unwrap_or_else(|| "not named".into()),
        published: format!("measured by weigh {}: {}", first.plan.tool_version, names(runs)),
        host: describe_host(first.host),
        method: method(first.plan),
        experiments,
    })
}

/// The name that the user gives, or else that of the plan, spelled like names of studies.
fn name(header: &Header, plan: &Plan) -> Result<String, FromRunsError> {
    let Some(name) = &header.name else { return Ok(slug(&plan.name)) };
    let like = slug(name);
    if like == *name { Ok(like) } else { Err(FromRunsError::Name { name: name.clone(), like }) }
}

fn method(plan: &Plan) -> String {
    let size = plan.workloads.first().map_or("standard", |workload| workload.size.as_str());
    let guests =
        if plan.guest.reuse { "one guest of each for all blocks" } else { "fresh guests in every block" };
    let order = "interleaved blocks: in each, every workload on all environments, both in random order";
    let what = "value of a block: the median of its runs; printed: mean of the blocks, standard deviation";
    format!("{order}; {guests}; {what}; size {size}, seed {}", plan.seed)
}

fn experiment(run: &RunSource<'_>) -> Result<Experiment, FromRunsError> {
    let RunSource { plan, report, .. } = run;
    let arms = arms(plan);
    let rows = numbers::rows(plan, report);
    if rows.is_empty() {
        return Err(FromRunsError::NothingMeasured { run: run.run.clone() });
    }
    let baseline = arms.iter().find(|arm| arm.label == plan.baseline).unwrap_or(&arms[0]).id.clone();
    let source = format!("run {}", run.run);
    let blocks = report.blocks_done.unwrap_or_default();
    let claims = rows.iter().flat_map(|row| claims::of(row, &arms, &baseline, plan.margin, &source));
    Ok(Experiment {
        name: run.experiment.clone(),
        also: Vec::new(),
        reanalyse: Vec::new(),
        title: report.title.clone(),
        source: source.clone(),
        statistic: format!("mean of {}; standard deviation", number_of(blocks, "block")),
        baseline: baseline.clone(),
        measure: run.measure.clone(),
        instead: Vec::new(),
        published: rows.iter().flat_map(|row| row.published(&arms, &source)).collect(),
        claims: distinct_claims(claims),
        views: views(&rows, report),
        quantities: rows.into_iter().map(|row| row.quantity).collect(),
        arms,
    })
}

/// The claims, each with an identifier of its own.
fn distinct_claims(claims: impl Iterator<Item = Claim>) -> Vec<Claim> {
    let mut taken = BTreeSet::new();
    claims.map(|claim| Claim { id: fresh(&mut taken, &claim.id), ..claim }).collect()
}

/// The environments in their order. The label of each is its name in the plan.
fn arms(plan: &Plan) -> Vec<Arm> {
    let mut taken = BTreeSet::new();
    let arm = |environment: &EnvironmentPlan| Arm {
        id: fresh(&mut taken, &short(environment)),
        label: environment.name.clone(),
        // The name contains what the user typed, and states explicitly what must not be hidden.
        place: Place::On(canonical(&environment.name).unwrap_or_else(|| environment.spec.clone())),
        note: None,
        today: false,
    };
    plan.environments.iter().map(arm).collect()
}

/// A short name that distinguishes an environment from others: its label if the user gave one.
fn short(environment: &EnvironmentPlan) -> String {
    match environment.spec.get("label") {
        Some(label) => format!("{}-{label}", environment.spec.platform),
        None => environment.name.clone(),
    }
}

/// The environment in the form in which the file of a study is read.
fn canonical(name: &str) -> Option<EnvironmentSpec> {
    let spec = EnvironmentSpec::parse(name).ok()?;
    EnvironmentSpec::parse(&spec.to_string()).ok()
}

/// A table for each workload, and a line chart for each swept quantity.
fn views(rows: &[Row<'_>], report: &Report) -> Vec<View> {
    let mut taken = BTreeSet::new();
    let mut views: Vec<View> = Vec::new();
    let measured = rows.iter().filter(|row| row.quantity.from.measurand().is_some());
    let workloads = distinct(measured.map(|row| row.workload));
    let plan = report.plan.as_ref();
    // A start has no size.
    let sized = plan.and_then(|plan| plan.workloads.iter().find(|workload| workload.start.is_none()));
    let size = sized.map_or(String::new(), |workload| format!(" at size {}", workload.size));
    for workload in workloads {
        let of: Vec<&Row<'_>> = rows.iter().filter(|row| row.workload == workload).collect();
        let view = |id: String, title: String, form, quantities: Vec<String>| View {
            id,
            title,
            form,
            quantities,
            x: None,
            arms_down: false,
            x_label: None,
            y_label: None,
        };
        let all = of.iter().map(|row| row.quantity.id.clone()).collect();
        let title = format!("{workload}{size}");
        views.push(view(fresh(&mut taken, workload), title, ViewForm::Table, all));
        for row in of {
            let Some(sweep) = &row.quantity.sweep else { continue };
            let title = format!("{} over {sweep}", row.quantity.label);
            let id = fresh(&mut taken, &format!("{}-over-{sweep}", row.quantity.id));
            let lines = view(id, title, ViewForm::Lines, vec![row.quantity.id.clone()]);
            views.push(View {
                x: Some(sweep.clone()),
                x_label: Some(sweep.clone()),
                y_label: Some(row.quantity.label.clone()),
                ..lines
            });
        }
    }
    views
}

/// An identifier that is not taken yet.
fn fresh(taken: &mut BTreeSet<String>, text: &str) -> String {
    let first = slug(text);
    let others = (2..).map(|i| format!("{first}-{i}"));
    let id = std::iter::once(first.clone()).chain(others).find(|id| !taken.contains(id));
    let id = id.expect("numbers do not end");
    taken.insert(id.clone());
    id
}

/// A text spelled like names of studies and identifiers in checks: lower-case letters, digits and
/// single hyphens.
fn slug(text: &str) -> String {
    /// Words with a meaning of their own in a check.
    const RESERVED: [&str; 5] = ["and", "of", "overhead", "within", "x"];
    let mut slug = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => slug.push(c),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() || RESERVED.contains(&slug) || slug.chars().all(|c| c.is_ascii_digit()) {
        return format!("the-{slug}").trim_end_matches('-').into();
    }
    slug.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_spelled_as_checks_read_them() {
        assert_eq!(slug("docker:net=nat,storage=overlay"), "docker-net-nat-storage-overlay");
        assert_eq!(slug("start_to_init"), "start-to-init");
        assert_eq!(slug("--X--"), "the-x");
        assert_eq!(slug("12"), "the-12");
        assert_eq!(slug("{}"), "the");
        let mut taken = BTreeSet::new();
        let ids = ["a:b", "a=b", "a-b"].map(|text| fresh(&mut taken, text));
        assert_eq!(ids, ["a-b", "a-b-2", "a-b-3"]);
    }
}
