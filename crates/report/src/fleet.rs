//! The state of the machines of a fleet.

use crate::Document;
use crate::document::{Audience, Block, Column, Entry, Fit, Piece, Row, Section, Table, Tone};
use crate::text::shown_name;
use weigh_model::HostFacts;

/// A machine of a fleet.
#[derive(Debug, Clone)]
pub struct FleetRow {
    /// Its name in the fleet.
    pub name: String,
    /// `waiting`, `running`, `done`, `failed`, or `replaced`: it failed, and another machine took
    /// its share.
    pub state: &'static str,
    /// Whether it measures the share of a machine that was replaced.
    pub replacement: bool,
    /// The scheduler's name for it.
    pub node: Option<String>,
    /// The machine's facts, if its run has been collected.
    pub host: Option<HostFacts>,
    /// Why it is not done.
    pub remark: Option<String>,
}

/// The document on the state of a fleet. `plan` is the name of what is measured.
pub fn fleet(plan: &str, machines: &[FleetRow]) -> Document {
    let asked = machines.iter().filter(|machine| !machine.replacement).count();
    let mut document = Document::new(&match asked {
        1 => format!("{} on one machine", shown_name(plan)),
        many => format!("{} on {many} machines", shown_name(plan)),
    });
    let count = |state: &str| machines.iter().filter(|machine| machine.state == state).count();
    let states = ["done", "failed", "replaced", "running", "waiting"].map(|state| (count(state), state));
    let counted =
        states.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}"));
    let nodes = machines.iter().any(|machine| machine.node.is_some());
    let remarks = machines.iter().any(|machine| machine.remark.is_some());
    let columns = [Column::text("machine"), Column::text("state")]
        .into_iter()
        .chain(nodes.then(|| Column::text("node")))
        .chain([Column::text("CPU"), Column::number("CPUs"), Column::text("kernel")])
        .chain(remarks.then(|| Column::text("remarks").fit(Fit::Remarks)));
    let rows = machines.iter().map(|machine| row(machine, nodes, remarks)).collect();
    let section = Section::plain()
        .with(Audience::ALL, Block::table(Table::new("Machines", columns.collect(), rows)))
        .with(Audience::ALL, Block::prose(counted.collect::<Vec<_>>().join(", ")));
    document.add(section);
    document
}

fn row(machine: &FleetRow, nodes: bool, remarks: bool) -> Row {
    let tone = match machine.state {
        "done" => Tone::Same,
        "failed" | "replaced" => Tone::Worse,
        _ => Tone::Plain,
    };
    let text = |text: Option<&str>| text.map_or_else(Entry::nothing, Entry::text);
    let host = machine.host.as_ref();
    let remark = machine.remark.as_ref().map(|text| Piece::Remark { text: text.clone(), aside: false });
    let entries = [Entry::name(machine.name.as_str()), Entry::flag(tone, machine.state)]
        .into_iter()
        .chain(nodes.then(|| text(machine.node.as_deref())))
        .chain([
            text(host.map(|host| host.cpu_model.as_str())),
            host.map_or_else(Entry::nothing, |host| Entry::count(host.cpus.len() as u64)),
            text(host.map(|host| host.kernel.as_str())),
        ])
        .chain(remarks.then(|| Entry::of(remark.into_iter().collect())));
    Row { fault: machine.state == "failed", ..Row::new(entries) }
}
