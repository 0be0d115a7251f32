//! `weigh resume`: continues a run where it ended.

use super::run::{DisplayOptions, OutputFiles, Settings, find, measure};
use crate::cli::OutputFormat;
use crate::error::Failure;
use crate::live::Port;
use crate::{output, ui};
use std::collections::BTreeMap;
use std::path::Path;
use weigh_host::facts;
use weigh_report::Gate;
use weigh_store::RunDirectory;
use weigh_store::fleet::FleetDirectory;
use weigh_studies::StudyDirectory;

/// Continues a run: finished units stay, and an interrupted one is void and measured again.
///
/// # Errors
/// A port is taken; the run does not exist or is damaged; `watch` is set and it is no fleet; those
/// of [`measure`].
pub fn run(run: &Path, gate: Option<Gate>, live: Option<u16>, watch: bool) -> Result<(), Failure> {
    let path = find(run)?;
    output::check(&path)?;
    let is_fleet = FleetDirectory::is_one(&path);
    if watch && !is_fleet {
        return Err(Failure::input("`--watch` is for a fleet, and this is none").hint("leave it out"));
    }
    if StudyDirectory::is_one(&path) {
        super::study::refuse_of_runs(
            "study",
            "DIR/EXPERIMENT",
            &[("--gate", gate.is_some()), ("--live", live.is_some())],
        )?;
        return super::study::resume(&path);
    }
    if is_fleet {
        super::study::refuse_of_runs(
            "fleet",
            "DIR/MACHINE",
            &[("--gate", gate.is_some()), ("--live", live.is_some())],
        )?;
        return super::fleet::resume(&path, watch);
    }
    let live = live.map(Port::take).transpose()?;
    let directory = RunDirectory::open_for_append(&path)?;
    let plan = directory.plan().clone();
    let facts = facts::host_facts();
    if directory.host().identity != facts.identity {
        ui::note(
            "warning: the run was begun on another host; its blocks of both hosts are analysed together",
        );
    }
    let shown = DisplayOptions { format: OutputFormat::Table, details: false };
    let prices = BTreeMap::new();
    let settings = Settings { shown, gate, live, prices, written: &OutputFiles::default() };
    measure(&plan, &facts, directory, settings)
}
