//! The commands behind names that leave words out.

use crate::Report;
use crate::document::{Audience, Block, Item, ListKind, Section};
use crate::results::assignments;
use crate::text::{shown, shown_name};
use weigh_model::WorkloadPlan;

/// What a name has in place of the words that several commands share.
const LEFT_OUT: char = '…';

/// The whole command for each name that leaves words out; empty if there is none. Of a sweep, the
/// commands have the first values.
pub(crate) fn section(report: &Report) -> Section {
    let Some(plan) = &report.plan else { return Section::plain() };
    let compared = plan.workloads.iter().find(|workload| !workload.commands.is_empty());
    let items: Vec<Item> = match compared {
        Some(workload) => {
            let names = plan.environments.iter().map(|environment| environment.name.as_str());
            names.filter_map(|name| item(name, workload, workload.command_in(name))).collect()
        }
        None => plan.workloads.iter().filter_map(|of| item(&of.id, of, &of.command)).collect(),
    };
    Section::plain().with(Audience::ALL, Block::list(ListKind::Named, items))
}

fn item(name: &str, workload: &WorkloadPlan, command: &[String]) -> Option<Item> {
    let values = assignments(&workload.params).join(", ");
    let values = if values.is_empty() { values } else { format!(" ({values})") };
    let line = || format!("{}{values}", shown(&command.join(" ")));
    name.contains(LEFT_OUT).then(|| Item::new(shown_name(name), vec![line()]))
}
