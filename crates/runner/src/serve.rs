//! Trials of a server, which runs in the guest and is loaded from outside.
//!
//! ```text
//! load generator             a probe in the network from which the guest is reached, or on another machine
//!   set-up                   in the guest
//!     server                 started in the guest; it is up when the loader says so; filled once
//!       warm-up, loads       as the runs of any command, by the loader, each measured one in a window of the sensors
//!     end of the server      SIGTERM, then SIGKILL; after failures, too
//!   tear-down                in the guest
//! end of the load generator
//! ```
//!
//! The load generator takes the durations, by the host's clock or by the clock of its own machine,
//! which is compared with the host's as a guest's is. CPU time is charged to the guest as usual.
//! Every trial starts its own server, so no server keeps state from another trial.

mod headroom;
mod loader;
pub(crate) mod machine;
pub(crate) mod neighbour;
mod port_holder;
pub(crate) mod ports;
pub(crate) mod route;
mod server;

use crate::clock;
use crate::logs::CellLog;
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, Measured, Progress, TrialContext, TrialResult, Watch, WorkloadCommands, timed};
use loader::Loader;
use machine::Machine;
use port_holder::PortHolder;
use route::Route;
use server::Server;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weigh_images::Root;
use weigh_model::{
    ClockState, EnvironmentSpec, FailureKind, Iteration, ServerPlan, Staging, Transport, WorkloadPlan,
};
use weigh_platforms::{Capabilities, CompletedCommand, Guest, Host, Session};

/// How often a server is started on other ports because another program has taken its ports.
const TRIES: u32 = 3;
/// The load generator's command that checks whether a server takes connections.
const LISTENS: [&str; 4] = ["weigh-kernels", "listens", "--connect", "{address}:{port}"];

/// A server workload in one environment: the part that is the same in all its trials.
pub(crate) struct ServerWorkload<'a> {
    pub(crate) host: &'a Host,
    pub(crate) workload: &'a WorkloadPlan,
    pub(crate) server: &'a ServerPlan,
    /// The environment, for the load generator of a fake platform.
    pub(crate) spec: EnvironmentSpec,
    pub(crate) root: Arc<Root>,
    pub(crate) can: Capabilities,
    /// Variables of the environment's commands.
    pub(crate) variables: &'a BTreeMap<String, String>,
    /// Working directory of commands in the guest.
    pub(crate) directory: Option<&'a Path>,
    /// Working directory of the load generator's commands.
    pub(crate) loader_directory: Option<&'a Path>,
    /// The rate at which requests are sent, operations per second, if the pilot decided it.
    pub(crate) rate_per_s: Option<f64>,
    /// Where the load generator runs.
    pub(crate) from: LoadedFrom,
}

/// Where load generators run.
pub(crate) enum LoadedFrom {
    /// On these CPUs of this host.
    Here(Vec<u32>),
    /// On another machine.
    There(Arc<Machine>),
}

impl LoadedFrom {
    /// The address at which the other machine reaches this host.
    fn outside(&self) -> Option<std::net::Ipv4Addr> {
        match self {
            Self::Here(_) => None,
            Self::There(machine) => Some(machine.outside()),
        }
    }
}

/// The input that differs from trial to trial.
pub(crate) struct TrialInput {
    /// The guest's ports.
    pub(crate) ports: Vec<u16>,
    /// The placeholders of commands in the guest.
    pub(crate) placeholders: Placeholders,
    pub(crate) padding_bytes: usize,
    /// Number that identifies the trial in the run.
    pub(crate) trial: u64,
    /// The seed of the block.
    pub(crate) seed: u64,
}

/// Which server runs in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The measured one.
    Server,
    /// The measured one, saturated.
    Saturated,
    /// A server that answers at once.
    Null,
}

impl ServerWorkload<'_> {
    /// A whole trial.
    pub(crate) fn run_trial(
        &self,
        guest: &mut dyn Guest,
        input: &TrialInput,
        mut watch: Watch<'_>,
        log: &mut CellLog,
        label: &str,
    ) -> TrialResult {
        let mut progress = Progress::default();
        let load = |loader: &mut Loader, outside: &WorkloadCommands<'_>| {
            loader.shown_to(&mut watch, &self.from);
            let clock = loader.clock();
            let session = loader.session();
            let context = TrialContext { session, clock, watch, warm_up: true, log, label };
            let result = outside.run_trial(context);
            progress = result.progress;
            result.outcome.and_then(|measured| loader.check(measured))
        };
        let outcome = self.with_server(guest, input, Served::Server, load);
        TrialResult { outcome, progress }
    }

    /// The same workload with this rate of requests.
    pub(crate) fn paced(self, rate_per_s: Option<f64>) -> Self {
        Self { rate_per_s, ..self }
    }

    /// Runs the load once, unmeasured, with its server and all set-up and tear-down. If the rate is
    /// still to be found, the load saturates the server.
    pub(crate) fn run_unmeasured(
        &self,
        guest: &mut dyn Guest,
        input: &TrialInput,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        let seeks = self.server.pace.is_some() && self.rate_per_s.is_none();
        let served = if seeks { Served::Saturated } else { Served::Server };
        self.with_server(guest, input, served, |loader, outside| outside.once_staged(loader.session(), watch))
    }

    /// Runs a server in the guest while `load` works. If another process of the host holds a port
    /// of the server, the server is started on other ports, because nothing has been measured yet.
    fn with_server<R>(
        &self,
        guest: &mut dyn Guest,
        input: &TrialInput,
        served: Served,
        load: impl FnOnce(&mut Loader, &WorkloadCommands<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut load = Some(load);
        let mut ports = self.ports(guest, &input.ports);
        for _ in 1..TRIES {
            let outcome = self.with_server_at(&ports, guest, input, served, &mut load);
            if outcome.is_ok() || load.is_none() || self.holder(guest, &ports).is_none() {
                return outcome;
            }
            ports = self.ports(guest, &ports);
        }
        let outcome = self.with_server_at(&ports, guest, input, served, &mut load);
        let holder =
            outcome.as_ref().err().filter(|_| load.is_some()).and_then(|_| self.holder(guest, &ports));
        outcome.map_err(|failure| match holder {
            Some(holder) => Failure { kind: FailureKind::Preparation, reason: holder.reason(), ..failure },
            None => failure,
        })
    }

    /// Ports for a server: those of its instance, or other free ports of the host if another
    /// process holds one of them.
    fn ports(&self, guest: &dyn Guest, ports: &[u16]) -> Vec<u16> {
        match self.holder(guest, ports) {
            Some(_) => ports::unused(ports.len(), ports).unwrap_or_else(|| ports.into()),
            None => ports.into(),
        }
    }

    /// The process that holds a port of a guest on the host's own network. Guests on other networks
    /// have their own ports, or their platform holds them.
    fn holder(&self, guest: &dyn Guest, ports: &[u16]) -> Option<PortHolder> {
        let shared = route::is_on_host(guest, &self.can) && !self.can.fake && !self.can.elsewhere;
        shared.then(|| PortHolder::on(ports, &self.server.transport, &guest.processes())).flatten()
    }

    /// Runs the server at these ports. `load` is taken when it begins.
    fn with_server_at<R>(
        &self,
        ports: &[u16],
        guest: &mut dyn Guest,
        input: &TrialInput,
        served: Served,
        load: &mut Option<impl FnOnce(&mut Loader, &WorkloadCommands<'_>) -> Result<R, Failure>>,
    ) -> Result<R, Failure> {
        if !self.can.fork {
            let reason = "the guest runs only its one program, and no server beside it";
            return Err(Failure::new(FailureKind::Preparation, reason));
        }
        let way = Route::to(guest, &self.can, ports, self.from.outside())?;
        let mut loader = Loader::launch(self, input, way.from.as_deref())?;
        let (inside, outside) = (self.inside(served), self.outside(served));
        let (inner, mut outer) = (input.placeholders.clone(), loader.placeholders(input));
        if let Some(rate) = self.rate_per_s {
            outer = outer.with("rate", rate.to_string());
        }
        let of = |workload, directory, placeholders| {
            WorkloadCommands::new(workload, directory, input.padding_bytes, self.variables, placeholders)
        };
        let inside = of(&inside, self.directory, way.inside(inner));
        let outside = of(&outside, self.loader_directory, way.outside(outer));
        let outside = outside.of_loader(loader.machine().map(|machine| machine.name()));
        let outcome = inside.set_up(guest.session()).and_then(|()| {
            let mut server = Server::start(guest.session(), &inside)?;
            let outcome = self
                .bring_up(served, guest.session(), &mut server, (&way, &mut loader, &outside))
                .and_then(|()| match self.holder(guest, ports) {
                    Some(holder) => Err(Failure::new(FailureKind::Preparation, holder.reason())),
                    None => self.fill(served, &mut loader, &outside),
                })
                .and_then(|()| match load.take() {
                    Some(load) => load(&mut loader, &outside),
                    None => Err(Failure::new(FailureKind::Preparation, "the load has been tried before")),
                })
                .map_err(|failure| loader.own(failure));
            server.end(guest.session(), outcome)
        });
        let outcome = inside.tear_down(guest.session(), outcome);
        let ended = loader.end();
        outcome.and_then(|value| ended.map(|()| value))
    }

    /// Waits until the server is up.
    fn bring_up(
        &self,
        served: Served,
        session: &mut Session,
        server: &mut Server,
        (way, loader, outside): (&Route, &mut Loader, &WorkloadCommands<'_>),
    ) -> Result<(), Failure> {
        let deadline = staging::setup_deadline(&self.workload.staging);
        let (ready, fill) = self.questions(served);
        if staging::wants_scratch(ready.into_iter().chain(fill)) {
            staging::make_scratch(loader.session(), outside.placeholders())?;
        }
        match ready {
            Some(ready) => {
                server.answers(session, loader.session(), (outside, &outside.command_of(ready)), deadline)?;
            }
            // Nothing listens if nothing is executed.
            None if self.can.fake => {}
            // The loader's machine has to see whether it can be reached.
            None if loader.machine().is_some() && self.server.transport.contains(&Transport::Tcp) => {
                let question = outside.command_of(&LISTENS.map(String::from));
                server.answers(session, loader.session(), (outside, &question), deadline)?;
            }
            None => server.listens(session, way, &self.server.transport, deadline)?,
        }
        Ok(())
    }

    /// The commands that check whether a server is ready, and that fill it.
    fn questions(&self, served: Served) -> (Option<&Vec<String>>, Option<&Vec<String>>) {
        match served {
            Served::Server | Served::Saturated => (self.server.ready.as_ref(), self.server.fill.as_ref()),
            Served::Null => (None, None),
        }
    }

    /// Fills a server that is up.
    fn fill(
        &self,
        served: Served,
        loader: &mut Loader,
        outside: &WorkloadCommands<'_>,
    ) -> Result<(), Failure> {
        let Some(fill) = self.questions(served).1 else { return Ok(()) };
        let deadline = staging::setup_deadline(&self.workload.staging);
        let filled = outside.run_unread(loader.session(), &outside.command_of(fill), deadline);
        filled.map_err(|failure| failure.during("filling the server"))
    }

    /// The part of the workload that runs in the guest.
    fn inside(&self, served: Served) -> WorkloadPlan {
        let Staging { setup, teardown, .. } = self.workload.staging.clone();
        let (command, setup, teardown) = match served {
            Served::Server | Served::Saturated => (self.server.command.clone(), setup, teardown),
            Served::Null => (self.server.null.clone().unwrap_or_default(), None, None),
        };
        let staging = Staging { setup, teardown, ..self.workload.staging.clone() };
        WorkloadPlan { command, prepare: None, cleanup: None, staging, ..self.workload.clone() }
    }

    /// The part of the workload that runs in the loader.
    fn outside(&self, served: Served) -> WorkloadPlan {
        let own = || self.workload.command.clone();
        let saturate = || self.server.pace.as_ref().map_or_else(own, |pace| pace.saturate.clone());
        let command = match served {
            Served::Server => own(),
            Served::Saturated => saturate(),
            Served::Null => self.server.null_load.clone().unwrap_or_else(saturate),
        };
        let staging = Staging { setup: None, teardown: None, ..self.workload.staging.clone() };
        WorkloadPlan { command, staging, ..self.workload.clone() }
    }
}

/// Checks that the loader's own durations fit into the time that it had. It reads the host's clock,
/// which cannot be wrong, but what it reports can be.
fn check_durations(measured: Measured) -> Result<Measured, Failure> {
    let runs: Vec<_> = measured.iterations.iter().map(timed).collect();
    match clock::check_host_durations(&runs) {
        check if check.state == ClockState::Wrong => Err(Failure::new(
            FailureKind::Check,
            format!(
                "the load generator says that it worked {:.1} ms longer than it ran",
                check.misfit_ns as f64 * 1e-6
            ),
        )),
        _ => Ok(measured),
    }
}
