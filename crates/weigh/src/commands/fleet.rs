//! `weigh fleet`: one plan on many machines.

use super::dry_run;
use super::run::{RUNS, catch_signals, request};
use crate::cli::{FleetArgs, OutputFormat};
use crate::error::Failure;
use crate::fleet::{self, Engine, Work, shares};
use crate::host::{LocalHost, NoHost, run_id};
use crate::{output, ui};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use weigh_host::clock;
use weigh_model::grouped;
use weigh_report::FleetRow;
use weigh_store::fleet::{Fleet, FleetDirectory, Machine, MachineState};

/// Makes the plan, has every machine measure it, and shows the state of the machines.
///
/// # Errors
/// Bad input; a host that cannot be used; machines that are not done at the end.
pub fn run(args: FleetArgs, command: Option<Vec<String>>) -> Result<(), Failure> {
    let FleetArgs { via, shard, watch, run } = args;
    let mut fleet = Fleet::new(format!("weighbridge-fleet-{}", run_id()), fleet::machines(&via)?);
    let engine = fleet::engine_of(&fleet)?;
    let request = request(run).recording(command);
    if request.common.dry_run {
        let plan = fleet::portable(request.plan(&mut NoHost::DryRun)?)?;
        if shard {
            shares::share_out(&plan, &mut fleet.machines)?;
        }
        ui::print(&dry_run::describe(&plan, &request.facts));
        let share = |machine: &Machine| {
            let share = plan.of_share(machine.share?, fleet.shares())?;
            Some(format!(", {} of the blocks", share.effort.most_blocks()))
        };
        let names = fleet.machines.iter().map(|machine| {
            format!("machine: {} ({}){}", machine.name, machine.via, share(machine).unwrap_or_default())
        });
        let changes = engine.changes(&fleet).into_iter().map(|change| format!("fleet: {change}"));
        ui::print(&names.chain(changes).collect::<Vec<_>>().join("\n"));
        return Ok(());
    }
    let plan = fleet::portable(LocalHost::ask(|host| request.plan(host))?)?;
    if shard {
        shares::share_out(&plan, &mut fleet.machines)?;
    }
    let path = match &request.common.out {
        Some(path) => {
            output::make_room(path)?;
            path.clone()
        }
        None => {
            output::make_directory(Path::new(RUNS))?;
            let name = format!("{}-fleet", plan.name);
            weigh_store::make_directory(Path::new(RUNS), &clock::utc_now(), &name)?
        }
    };
    continue_fleet(FleetDirectory::create(&path, &plan, fleet)?, watch)
}

/// Resumes the machines of the fleet in a directory that are not done.
///
/// # Errors
/// Its files are damaged; another build of weigh began it; those of [`run`].
pub fn resume(path: &Path, watch: bool) -> Result<(), Failure> {
    continue_fleet(FleetDirectory::open_for_work(path)?, watch)
}

/// Shows the state of the machines of a fleet.
///
/// # Errors
/// A damaged directory, a file that cannot be written.
pub fn show(path: &Path, format: OutputFormat, file: Option<&Path>) -> Result<(), Failure> {
    let directory = FleetDirectory::open(path)?;
    output::write_or_print(file, &rendered(&directory, format)?)
}

fn continue_fleet(mut directory: FleetDirectory, watch: bool) -> Result<(), Failure> {
    fleet::check_build(directory.plan(), directory.fleet())?;
    let engine = fleet::engine_of(directory.fleet())?;
    let interrupt = catch_signals()?;
    let path = directory.path().to_path_buf();
    ui::note(&format!("fleet: {}", path.display()));
    let carried = carry_out(engine, &mut directory, &interrupt, watch);
    ui::print(&rendered(&directory, OutputFormat::Table)?);
    carried?;
    let done = directory.fleet().machines.iter().filter(|machine| machine.state == MachineState::Done);
    let done = done.count();
    if directory.fleet().shares() > 0 && done > 0 {
        ui::note(&format!("one report of all shares: weigh pool {}", path.display()));
        drop(directory);
        let directory = FleetDirectory::open(&path)?;
        super::pool::of_fleet(&path)?;
        return fleet::verdict(directory.fleet(), &path, interrupt.load(Ordering::Relaxed));
    }
    if done > 0 {
        report_shared_machines(&directory);
        ui::note(&format!("one answer from all machines: weigh pool {}/*/", path.display()));
    }
    fleet::verdict(directory.fleet(), &path, interrupt.load(Ordering::Relaxed))
}

/// Has the machines measure that are not done. If the blocks are shared out, machines that are
/// unlike the others are refused, and other machines measure the shares of those that failed, as
/// long as that makes progress.
fn carry_out(
    engine: &dyn Engine,
    directory: &mut FleetDirectory,
    interrupt: &AtomicBool,
    watch: bool,
) -> Result<(), Failure> {
    for round in 0.. {
        let before = shares::done(directory);
        let names = directory.fleet().machines.iter().map(|machine| machine.name.clone()).collect();
        let mut display = ui::FleetProgress::new(names, watch);
        let (tell, told) = sync_channel(fleet::MOST_UPDATES);
        {
            let work = Work::new(directory, interrupt, tell);
            std::thread::scope(|scope| {
                // The loop ends when the engine is done, which then drops the sender.
                let carried = scope.spawn(move || engine.carry_out(&work));
                told.iter().for_each(|(at, update)| display.show(at, &update));
                carried.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
        }
        drop(display);
        if directory.fleet().shares() == 0 {
            break;
        }
        shares::refuse_unlike(directory)?;
        // Shares that fail on every machine are not tried forever.
        let comes_on = round == 0 || shares::done(directory) > before;
        if interrupt.load(Ordering::Relaxed) || !comes_on || !shares::hand_over(directory, engine)? {
            break;
        }
        ui::note("note: machines that are done measure the shares of those that failed");
    }
    Ok(())
}

/// Reports the runs that come from one machine.
fn report_shared_machines(directory: &FleetDirectory) {
    let identified = directory.fleet().machines.iter().enumerate().filter_map(|(at, machine)| {
        let run = directory.run(at).ok()??;
        Some((machine.name.as_str(), run.host().clone()))
    });
    for (_, machines) in grouped(identified, |(_, host)| host.identity.clone()) {
        let known = |boot: &str| !matches!(boot, "" | "unknown");
        let is_one = machines.iter().all(|(_, host)| known(&host.boot) && host.boot == machines[0].1.boot);
        let names: Vec<&str> = machines.into_iter().map(|(name, _)| name).collect();
        if names.len() < 2 {
            continue;
        }
        let listed = if names.len() > 4 {
            format!("{} and {} more", names[..3].join(", "), names.len() - 3)
        } else {
            names.join(", ")
        };
        let why = match is_one {
            true => "they are runs of one machine",
            false => {
                "they are runs of clones, which need an id of their own (systemd-machine-id-setup), or of one machine that was started again"
            }
        };
        ui::note(&format!("note: {listed} have the same machine id: {why}"));
    }
}

/// Renders the machines in a format.
fn rendered(directory: &FleetDirectory, format: OutputFormat) -> Result<String, Failure> {
    if format == OutputFormat::Json {
        return Ok(ui::json(directory.fleet()));
    }
    let rows = directory.fleet().machines.iter().enumerate().map(|(at, machine)| {
        let run = directory.run(at).ok().flatten();
        let host = run.map(|run| run.host().clone());
        let (state, remark) = match &machine.state {
            MachineState::Waiting { reason } => ("waiting", reason.clone()),
            MachineState::Running => ("running", None),
            MachineState::Done => ("done", None),
            MachineState::Failed { reason } => ("failed", Some(reason.clone())),
        };
        let (state, remark) = match &machine.replaced_by {
            Some(other) => {
                ("replaced", Some(format!("{}; {other} measures its share", remark.unwrap_or_default())))
            }
            None => (state, remark),
        };
        let name = machine.name.clone();
        let replacement = directory.fleet().replaces(&name).is_some();
        FleetRow { name, state, replacement, node: machine.node.clone(), host, remark }
    });
    let document = weigh_report::fleet(&directory.plan().name, &rows.collect::<Vec<_>>());
    if format == OutputFormat::Table {
        return Ok(ui::shown(&document));
    }
    weigh_report::render_document(&document, format.into(), &ui::report_options(true, None))
        .map_err(|error| super::study::no_output("fleets", format, error))
}
