//! The server of a neighbour, and its client.

use super::route::Route;
use super::server::Server;
use crate::neighbours::work::{Task, TaskResult, repeat};
use crate::pool::Recipe;
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, WorkloadCommands, describe};
use weigh_host::accounts::Accounts;
use weigh_model::{FailureKind, Iteration, Transport, WorkloadPlan};
use weigh_platforms::{Guest, Session, loader};

/// Serves under load until the token is set. `runs` is called once: with the client's accounts when
/// its first run has succeeded, or with the reason why it cannot.
pub(crate) fn serve(
    guest: &mut dyn Guest,
    of: (&Recipe, u32),
    (task, client): (&Task, &WorkloadPlan),
    placeholders: Placeholders,
    runs: impl FnOnce(Result<Option<Box<Accounts>>, Failure>),
) -> TaskResult {
    let mut runs = Some(runs);
    let mut done = TaskResult::default();
    let outcome = try_serve(guest, of, (task, client), placeholders, &mut done.runs, &mut |accounts| {
        if let Some(runs) = runs.take() {
            runs(Ok(Some(Box::new(accounts))));
        }
    });
    let failure = outcome.err().map(|failure| failure.during("the server of a neighbour"));
    if let Some(runs) = runs.take() {
        let why = failure.as_ref().map_or((FailureKind::Check, "it was over before it began"), |failure| {
            (failure.kind, failure.reason.as_str())
        });
        runs(Err(Failure::new(why.0, why.1)));
    }
    TaskResult { failure, ..done }
}

fn try_serve(
    guest: &mut dyn Guest,
    (recipe, number): (&Recipe, u32),
    (task, client): (&Task, &WorkloadPlan),
    placeholders: Placeholders,
    done: &mut Vec<Iteration>,
    runs: &mut dyn FnMut(Accounts),
) -> Result<(), Failure> {
    if !recipe.can.fork {
        let reason = "the guest runs only its one program, and no server beside it";
        return Err(Failure::new(FailureKind::Preparation, reason));
    }
    let ports: Vec<u16> = recipe.port(number).into_iter().collect();
    let way = Route::to(guest, &recipe.can, &ports, None)?;
    let instance = recipe.request.instance + u64::from(number);
    let launched =
        loader::launch_for_neighbour(&recipe.host, &task.client_cpus, way.from.as_deref(), instance);
    let mut outside = launched.map_err(|error| {
        let reason = format!("its client does not start: {}", describe(&error));
        Failure::new(FailureKind::Preparation, reason)
    })?;
    let outer = Placeholders::new(&staging::scratch(&*outside, false), task.trial, task.seed);
    let outer = outer.with(staging::KERNELS, outside.kernels().display().to_string());
    let of = |plan, placeholders| {
        WorkloadCommands::new(plan, None, task.padding_bytes, &task.variables, placeholders)
    };
    let inside = WorkloadCommands::new(
        &task.plan,
        task.directory.as_deref(),
        task.padding_bytes,
        &task.variables,
        way.inside(placeholders),
    );
    let loads = of(client, way.outside(outer)).of_loader(None).held_by(&task.stop);
    let accounts = outside.accounts();
    let outcome = inside.set_up(guest.session()).and_then(|()| {
        let mut server = Server::start(guest.session(), &inside)?;
        let deadline = staging::setup_deadline(&task.plan.staging);
        let outcome = server
            .listens(guest.session(), &way, &[Transport::Tcp], deadline)
            .and_then(|()| load(&loads, outside.session(), task, done, &mut || runs(accounts.clone())));
        server.end(guest.session(), outcome)
    });
    let outcome = inside.tear_down(guest.session(), outcome);
    let ended = outside.stop();
    outcome?;
    ended.map_err(|error| {
        Failure::new(FailureKind::Preparation, format!("its client does not end: {}", describe(&error)))
    })
}

/// Runs the client once and, if that succeeds, repeatedly.
fn load(
    loads: &WorkloadCommands<'_>,
    session: &mut Session,
    task: &Task,
    done: &mut Vec<Iteration>,
    runs: &mut dyn FnMut(),
) -> Result<(), Failure> {
    loads.set_up(session)?;
    let (first, _) = loads.run_iteration(session, None)?;
    done.push(first);
    runs();
    repeat(loads, session, &task.stop, done)
}
