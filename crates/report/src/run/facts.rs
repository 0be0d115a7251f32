//! The facts of a run: its environments, its plan, its host.

use super::UNEQUAL;
use crate::differences::{self, Difference, readable_fact, sentences};
use crate::document::{Audience, Block, Cell, Column, Entry, Item, ListKind, Row, Section, Table};
use crate::quantity::plain_percent;
use crate::{Report, circumstances};
use weigh_model::format_bytes;

/// The facts of each environment, and its differences from the baseline.
pub(super) fn environments(report: &Report) -> Section {
    let found = differences::differences(report);
    let item = |environment: &crate::EnvironmentFacts, short: bool| {
        let clock = circumstances::clock(report, &environment.name);
        let clock = clock.map(|clock| match short {
            true => circumstances::clock_words(clock),
            false => circumstances::clock_detail(clock),
        });
        let own: Vec<Difference> =
            found.iter().filter(|difference| difference.environment == environment.name).cloned().collect();
        let differs = sentences(&own, |difference| match short {
            true => difference.short_sentence(),
            false => difference.sentence(),
        });
        let facts = differences::compact(&environment.facts);
        let lines = [facts]
            .into_iter()
            .filter(|facts| !facts.is_empty())
            .chain(differences::network_line(&environment.facts))
            .chain(clock.map(|clock| format!("clock: {clock}")))
            .chain(differs.into_iter().map(|sentence| format!("{UNEQUAL} {sentence}")));
        Item::new(environment.name.clone(), lines.collect())
    };
    let list = |short: bool| {
        let items = report.environments.iter().map(|environment| item(environment, short));
        let told = items.filter(|item| !item.lines.is_empty());
        Block::list(ListKind::Named, told)
    };
    let mut section = Section::new("Environments")
        .id("environments")
        .listed()
        .with(Audience::TERMINAL, list(true))
        .with(Audience::PAPER, list(false));
    if report.environments.iter().any(|environment| !environment.facts.is_empty()) {
        if !found.is_empty() {
            section.push(Audience::PAGE, Block::table(differing(report, &found)));
        }
        section.push(Audience::PAGE, Block::table(all_facts(report)));
    }
    section
}

fn differing(report: &Report, found: &[Difference]) -> Table {
    let baseline = report.analysis.baseline.as_str();
    let row = |difference: &Difference| {
        let texts = [&difference.key, &difference.value, &difference.baseline_value, &difference.why()];
        let entries = texts.map(Entry::text).into_iter();
        let cells = [Entry::name(&difference.environment)].into_iter().chain(entries).map(Cell::from);
        Row { cells: cells.collect(), fault: difference.standing == differences::Standing::Fault }
    };
    Table {
        caption: format!("Where an environment differs from {baseline}, and why"),
        columns: ["environment", "fact", "here", baseline, "why"].map(Column::text).to_vec(),
        rows: found.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Facts of the environments: one row per fact, one column per environment.
fn all_facts(report: &Report) -> Table {
    let clock = |environment: &crate::EnvironmentFacts| circumstances::clock(report, &environment.name);
    let known = report.environments.iter().any(|environment| clock(environment).is_some());
    let clocks = report.environments.iter().map(|environment| {
        Entry::text(clock(environment).map_or("not checked".into(), circumstances::clock_detail))
    });
    let clocks = known.then(|| Row::new([Entry::text("clock")].into_iter().chain(clocks)));
    let keys: std::collections::BTreeSet<&String> =
        report.environments.iter().flat_map(|environment| environment.facts.keys()).collect();
    let row = |key: &String| {
        let values = report.environments.iter().map(|e| Entry::text(readable_fact(key, e.facts.get(key))));
        Row::new([Entry::text(key)].into_iter().chain(values))
    };
    let names = report.environments.iter().map(|environment| Column::text(&environment.name));
    Table {
        caption: "What was found in each environment".into(),
        columns: [Column::text("fact")].into_iter().chain(names).collect(),
        rows: keys.into_iter().map(row).chain(clocks).collect(),
        ..Table::default()
    }
}

pub(super) fn plan_facts(report: &Report) -> Vec<(String, String)> {
    let Some(plan) = &report.plan else { return Vec::new() };
    let mut facts = vec![
        ("weighbridge".to_string(), plan.tool_version.clone()),
        ("seed".into(), plan.seed.to_string()),
        ("margin of equivalence".into(), plain_percent(plan.margin)),
    ];
    facts.extend(plan.budget_s.map(|budget| ("budget".into(), format!("{budget} s"))));
    for workload in &plan.workloads {
        if workload.commands.is_empty() {
            facts.push((format!("command of {}", workload.id), workload.command.join(" ")));
        }
        for environment in plan.environments.iter().filter(|_| !workload.commands.is_empty()) {
            let command = workload.command_in(&environment.name).join(" ");
            facts.push((format!("command of {}, {}", workload.id, environment.name), command));
        }
        facts.extend(workload.input.iter().map(|input| (format!("input of {}", workload.id), input.clone())));
        if workload.ignore_failure {
            facts.push((format!("exit status of {}", workload.id), "ignored".into()));
        }
        facts.push((
            format!("runs of {}", workload.id),
            format!(
                "{} unmeasured, then {} measured per block, summarised to one number; size {}",
                workload.warmup,
                report.circumstances.iterations_of(workload),
                workload.size
            ),
        ));
    }
    facts.extend(plan.digests.iter().map(|(what, digest)| (format!("SHA-256 of {what}"), digest.clone())));
    facts
}

pub(super) fn host_facts(report: &Report) -> Vec<(String, String)> {
    let Some(host) = &report.host else { return Vec::new() };
    let cpus: Vec<String> = host.cpus.iter().map(ToString::to_string).collect();
    vec![
        ("CPU".to_string(), host.cpu_model.clone()),
        ("hypervisor".into(), host.hypervisor.clone().unwrap_or("none is known".into())),
        ("architecture".into(), host.architecture.clone()),
        ("CPUs that may be used".into(), cpus.join(", ")),
        ("memory".into(), readable_fact("memory_bytes", Some(&host.memory_bytes.into()))),
        ("last-level cache".into(), host.last_level_cache_bytes.map_or("unknown".into(), format_bytes)),
        ("operating system".into(), host.operating_system.clone()),
        ("kernel".into(), host.kernel.clone()),
        ("control groups".into(), host.cgroups.clone()),
        ("run as root".into(), if host.root { "yes" } else { "no" }.into()),
        ("identity".into(), host.identity.clone()),
    ]
}
