//! A study from runs: what they measured as published numbers, what they showed as claims, and the
//! commands that measure it again.

mod claims;
mod numbers;
mod words;

use super::directory::StudyDirectory;
use super::measure::{host_in_words, quoted};
use crate::error::{Failure, Kind};
use crate::outcome;
use numbers::Row;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weigh_model::{Effort, EnvironmentPlan, EnvironmentSpec, Plan};
use weigh_report::Report;
use weigh_store::RunDirectory;
use weigh_studies::{Arm, Claim, Experiment, Form, Place, Study, View};

/// What the user says of the study.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Name by which it is asked for; what was measured otherwise.
    pub name: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Who measured it.
    pub authors: Option<String>,
}

/// Runs that become experiments.
pub struct Source {
    /// Each with the name of its experiment.
    runs: Vec<(String, RunDirectory)>,
}

impl Source {
    /// A run, or every run of a study's directory.
    ///
    /// # Errors
    /// What cannot be read; a study of which nothing was measured.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if !StudyDirectory::is_one(path) {
            let run = RunDirectory::open(path)?;
            return Ok(Self { runs: vec![("comparison".into(), run)] });
        }
        let directory = StudyDirectory::open(path)?;
        let mut runs = Vec::new();
        for state in &directory.state().experiments {
            if let Some(run) = &state.run {
                runs.push((state.name.clone(), RunDirectory::open(&path.join(run))?));
            }
        }
        if runs.is_empty() {
            return Err(nothing(path));
        }
        Ok(Self { runs })
    }
}

fn nothing(path: &Path) -> Failure {
    Failure::new(Kind::NothingMeasured, format!("nothing was measured in {}", path.display()))
        .hint("a study is written of what a run measured: `weigh show RUN` shows what there is")
}

/// The text of the study's file, with the command that repeats it in its first lines; `file` is
/// where it will be.
///
/// # Errors
/// A run that cannot be read, that has measured nothing, or whose command no command line says; a
/// name that a study cannot have.
pub fn as_file(source: &Source, head: &Head, manifests: &[PathBuf], file: &str) -> Result<String, Failure> {
    let study = study(source, head, manifests)?;
    let text = study.to_toml();
    // What is wrong here would otherwise be found by whoever has only the file.
    let read = weigh_studies::read_study(Path::new(file), &text)?;
    debug_assert_eq!(read, study, "what is written is read as the same");
    let plan = source.runs.first().expect("there is a run").1.plan();
    let mut repeat = vec!["study".to_string(), "--file".into(), file.into()];
    repeat.extend(effort(plan));
    let of = source.runs.iter().map(|(_, run)| run.name()).collect::<Vec<_>>().join(", ");
    Ok(format!(
        "# Written by `weigh study new` from {of}. As it was measured, it is measured again by\n#   weigh {}\n\n{text}",
        quoted(&repeat)
    ))
}

/// What whoever repeats a run gives `weigh study` to have the same.
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
        Effort::Precision { target, .. } => add("--precision", ((target * 1e6).round() / 1e4).to_string()),
        Effort::Lasting { .. } => {}
    }
    if !plan.noise.voiding {
        words.push("--no-void".into());
    }
    words
}

fn study(source: &Source, head: &Head, manifests: &[PathBuf]) -> Result<Study, Failure> {
    let (_, first) = source.runs.first().expect("there is a run");
    let of_runs = source.runs.iter().map(|(_, run)| run.name()).collect::<Vec<_>>().join(", ");
    let experiments: Result<Vec<Experiment>, Failure> =
        source.runs.iter().map(|(name, run)| experiment(name, run, manifests)).collect();
    let experiments = experiments?;
    Ok(Study {
        name: name(head, first.plan())?,
        title: head.title.clone().unwrap_or_else(|| experiments[0].title.clone()),
        authors: head.authors.clone().unwrap_or_else(|| "not named".into()),
        published: format!("measured by weigh {}: {of_runs}", first.plan().tool_version),
        host: host_in_words(first.host()),
        method: method(first.plan()),
        experiments,
    })
}

/// The name that the user gives, if it can be one; else that of the plan, as it can be one.
fn name(head: &Head, plan: &Plan) -> Result<String, Failure> {
    let Some(name) = &head.name else { return Ok(slug(&plan.name)) };
    if slug(name) == *name {
        return Ok(name.clone());
    }
    Err(Failure::input(format!("`{name}` cannot be the name of a study"))
        .at("--name", name, 0..name.len())
        .hint(format!("use small letters, digits and hyphens, as in {}", slug(name))))
}

fn method(plan: &Plan) -> String {
    let size = plan.workloads.first().map_or("standard", |workload| workload.size.as_str());
    let guests =
        if plan.guest.reuse { "one guest of each for all blocks" } else { "fresh guests in every block" };
    let order = "interleaved blocks: in each, every workload on all environments, both in random order";
    let what = "value of a block: the median of its runs; printed: mean of the blocks, standard deviation";
    format!("{order}; {guests}; {what}; size {size}, seed {}", plan.seed)
}

fn experiment(name: &str, run: &RunDirectory, manifests: &[PathBuf]) -> Result<Experiment, Failure> {
    let plan = run.plan();
    let report = outcome::from_run(run)?;
    let arms = arms(plan);
    let rows = numbers::rows(plan, &report);
    if rows.is_empty() {
        return Err(nothing(run.path()));
    }
    let base = arms.iter().find(|arm| arm.label == plan.baseline).unwrap_or(&arms[0]).id.clone();
    let source = format!("run {}", run.name());
    let blocks = report.blocks_done.unwrap_or_default();
    let plural = if blocks == 1 { "" } else { "s" };
    Ok(Experiment {
        name: name.into(),
        also: Vec::new(),
        reanalyse: Vec::new(),
        title: report.title.clone(),
        source: source.clone(),
        statistic: format!("mean of {blocks} block{plural}; standard deviation"),
        baseline: base.clone(),
        measure: words::measure(plan, manifests)?,
        instead: Vec::new(),
        published: rows.iter().flat_map(|row| row.published(&arms, &source)).collect(),
        claims: distinct_claims(
            rows.iter().flat_map(|row| claims::of(row, &arms, &base, plan.margin, &source)),
        ),
        views: views(&rows, &report),
        quantities: rows.into_iter().map(|row| row.quantity).collect(),
        arms,
    })
}

/// Claims whose identifiers are all different.
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
        // The name keeps what the user typed, and what must not be hidden.
        place: Place::On(canonical(&environment.name).unwrap_or_else(|| environment.spec.clone())),
        note: None,
        today: false,
    };
    plan.environments.iter().map(arm).collect()
}

/// What tells an environment from others in few words: the label where the user gave one.
fn short(environment: &EnvironmentPlan) -> String {
    match environment.spec.get("label") {
        Some(label) => format!("{}-{label}", environment.spec.platform),
        None => environment.name.clone(),
    }
}

/// As a file of a study is read.
fn canonical(name: &str) -> Option<EnvironmentSpec> {
    let spec = EnvironmentSpec::parse(name).ok()?;
    EnvironmentSpec::parse(&spec.to_string()).ok()
}

/// A table for each workload, and lines for what is swept.
fn views(rows: &[Row<'_>], report: &Report) -> Vec<View> {
    let mut taken = BTreeSet::new();
    let mut views: Vec<View> = Vec::new();
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.quantity.from.measurand().is_some()) {
        if !workloads.contains(&row.workload) {
            workloads.push(row.workload);
        }
    }
    let plan = report.plan.as_ref();
    // Coming up has no size.
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
        views.push(view(fresh(&mut taken, workload), title, Form::Table, all));
        for row in of {
            let Some(sweep) = &row.quantity.sweep else { continue };
            let title = format!("{} over {sweep}", row.quantity.label);
            let id = fresh(&mut taken, &format!("{}-over-{sweep}", row.quantity.id));
            let lines = view(id, title, Form::Lines, vec![row.quantity.id.clone()]);
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

/// An identifier that none of its kind has yet.
fn fresh(taken: &mut BTreeSet<String>, text: &str) -> String {
    let first = slug(text);
    let others = (2..).map(|i| format!("{first}-{i}"));
    let id = std::iter::once(first.clone()).chain(others).find(|id| !taken.contains(id));
    let id = id.expect("numbers do not end");
    taken.insert(id.clone());
    id
}

/// A text as names of studies and words of checks are: small letters, digits and single hyphens.
fn slug(text: &str) -> String {
    /// Words that a check reads otherwise.
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
    fn names_are_those_that_checks_read() {
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
