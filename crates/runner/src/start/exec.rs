//! Programs that the platform's own client, or an agent in a machine, runs in a running guest.

use super::system::init_ns;
use super::{StartOutcome, Window, not_launched, since, used_by};
use crate::pool::{EnvironmentPool, Recipe};
use crate::staging::{self, Placeholders};
use crate::trial::{Failure, describe};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_model::{Charge, FailureKind, Iteration, stamps};
use weigh_platforms::{ExecRequest, ExecResult, Guest, PlatformError};

/// The name under which helpers have the clients' CPU time.
const CLIENT: &str = "client";
/// The same where an agent in the guest runs the programs. Its own CPU time is the guest's.
const CLIENT_OF_AGENT: &str = "client of the agent";

/// The most bytes that a program prints beside the content of a file: a line.
const MOST_WORDS: usize = 64 << 10;

/// What the client runs, as arguments of the program with the kernels: a program that prints a
/// line, and a shell on a terminal.
const PROGRAM: &[&str] = &["--version"];
const SHELL: &[&str] = &["prompt", "--", "/bin/sh", "-i"];

/// What the client does in a guest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    /// Runs a static program that prints one line at once.
    Program,
    /// Starts a shell on a terminal, up to its prompt.
    Prompt,
    /// Copies a file into the guest and back out.
    Copy {
        /// Bytes of the file.
        bytes: u64,
    },
}

impl Task {
    fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Program => &[
                stamps::EXEC_OUTPUT,
                stamps::EXEC,
                stamps::EXEC_END,
                stamps::EXEC_FIRST,
                stamps::EXEC_SLOWEST,
            ],
            Self::Prompt => &[stamps::EXEC_PROMPT, stamps::PROMPT],
            Self::Copy { .. } => &[stamps::COPY_IN, stamps::COPY_OUT],
        }
    }
}

/// A task that is repeated in one guest.
pub(super) struct Job {
    pub(super) task: Task,
    /// How often after the first time.
    pub(super) number: u32,
    /// Time limit of the guest's init, and of each program.
    pub(super) deadline: Duration,
}

/// Starts a guest, has the platform's client or the guest's agent do a task in it once and then as
/// often as the job says, and stops it. If nothing runs programs in such a guest, the metrics are
/// absent with the reason.
pub(super) fn use_client(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    job: &Job,
) -> Result<StartOutcome, Failure> {
    let mut guest = recipe.launch(0).map_err(|error| not_launched(&error))?;
    let log = guest.log();
    let clients = client_group(recipe)?;
    let measured = measure(pool, environment, recipe, job, &mut *guest, clients.as_ref());
    // A client that was still running has been killed.
    let removed = clients.as_ref().map_or(Ok(()), Cgroup::remove);
    let mut outcome = measured.map_err(|failure| failure.of_guest(&mut *guest, log.clone()))?;
    guest
        .stop()
        .map_err(|error| Failure { log, ..Failure::new(FailureKind::GuestDied, describe(&error)) })?;
    outcome.bracket.1 = monotonic_ns();
    outcome.complaints.extend(removed.err().map(|error| error.to_string()));
    Ok(outcome)
}

/// Makes the control group of the clients, if this host has control groups.
fn client_group(recipe: &Recipe) -> Result<Option<Cgroup>, Failure> {
    let (host, instance) = (&recipe.host, recipe.request.instance);
    if host.hierarchy.usable().is_err() {
        return Ok(None);
    }
    let name = format!("weighbridge-{}/exec-{instance}", host.run);
    let made = host.hierarchy.create(&host.ledger, &name, &Limits::default());
    made.map(Some).map_err(|error| Failure::new(FailureKind::Preparation, describe(&error)))
}

fn measure(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    job: &Job,
    guest: &mut dyn Guest,
    clients: Option<&Cgroup>,
) -> Result<StartOutcome, Failure> {
    let up_ns = init_ns(guest, &recipe.can, job.deadline)?;
    let mut outcome = StartOutcome { guests: job.number, ..StartOutcome::default() };
    outcome.bracket = (guest.spawned_ns(), guest.spawned_ns());
    let kernels = guest.kernels().display().to_string();
    let request = ExecRequest {
        argv: &[],
        input: None,
        most_output: MOST_WORDS,
        group: clients,
        deadline: job.deadline,
    };
    let mut has_place = Ok(());
    let client = match job.task {
        Task::Program => Client { request, kernels, words: PROGRAM, file: None },
        Task::Prompt => Client { request, kernels, words: SHELL, file: None },
        Task::Copy { bytes } => {
            let bare = pool.entries[environment].bare;
            let place = Placeholders::new(&staging::scratch(guest, bare), recipe.request.instance, 0);
            has_place = staging::make_scratch(guest.session(), &place);
            let path = format!("{}/copied", place.get("scratch").unwrap_or(staging::USUAL));
            Client { request, kernels, words: &[], file: Some((path, random_bytes(bytes))) }
        }
    };
    let first = match job.task {
        Task::Prompt if !recipe.can.fork => {
            Err(PlatformError::CannotExec("a program in this guest cannot start a shell".into()))
        }
        _ => client.perform(guest),
    };
    let first = match first {
        Err(PlatformError::CannotExec(reason)) => {
            for metric in job.task.metrics() {
                outcome.mark_absent(metric, &reason);
            }
            return Ok(outcome);
        }
        first => has_place.and(first.map_err(|error| not_run(&error)))?,
    };
    let (before, accounts) = used_by(guest);
    let clients_before_ns = cpu_ns(clients);
    pool.entries[environment].daemons = accounts.daemons;
    let window = Window::open(pool, environment, &recipe.request);
    let operations: Result<Vec<Operation>, PlatformError> =
        (0..job.number).map(|_| client.perform(guest)).collect();
    let (after, _) = used_by(guest);
    let mut used = growth(&before, after);
    let of_programs_ns = cpu_ns(clients).saturating_sub(clients_before_ns);
    let of_this_thread_ns: u64 = operations.iter().flatten().map(Operation::client_cpu_ns).sum();
    let helper = if recipe.can.agent { CLIENT_OF_AGENT } else { CLIENT };
    used.helpers_ns.insert(helper.into(), of_programs_ns + of_this_thread_ns);
    outcome.observed = window.close(pool, used);
    let operations = operations.map_err(|error| not_run(&error))?;
    let slowest_ns = operations.iter().map(Operation::output_ns).max().unwrap_or_default();
    // A sum, because no user pays for what was prepared here between the two.
    let start_to_exec_ns = since(guest.spawned_ns(), up_ns) + first.output_ns();
    let once = match job.task {
        Task::Program => vec![
            (stamps::EXEC, start_to_exec_ns),
            (stamps::EXEC_FIRST, first.output_ns()),
            (stamps::EXEC_SLOWEST, slowest_ns),
        ],
        Task::Prompt => vec![(stamps::PROMPT, start_to_exec_ns)],
        Task::Copy { .. } => Vec::new(),
    };
    let iteration = |operation: &Operation| operation.iteration(job.task, &once);
    outcome.iterations = operations.iter().map(iteration).collect();
    Ok(outcome)
}

/// The platform's client, and what it does each time.
struct Client<'a> {
    /// The request of every program; each fills in its arguments and its input.
    request: ExecRequest<'a>,
    /// The program with the builtin kernels, as the guest sees it.
    kernels: String,
    /// The arguments of that program where no file is copied.
    words: &'static [&'static str],
    /// The file that is copied, as the guest sees it, and its content.
    file: Option<(String, Vec<u8>)>,
}

impl Client<'_> {
    /// Does the task once.
    fn perform(&self, guest: &mut dyn Guest) -> Result<Operation, PlatformError> {
        let argv = |words: &[&str]| {
            let words = words.iter().map(ToString::to_string);
            [self.kernels.clone()].into_iter().chain(words).collect::<Vec<String>>()
        };
        let Some((path, content)) = &self.file else {
            let program = guest.exec(&ExecRequest { argv: &argv(self.words), ..self.request })?;
            return match absent(&program.output) {
                Some(reason) => Err(PlatformError::CannotExec(reason)),
                None => Ok(Operation::Program(timed(program))),
            };
        };
        let to = argv(&["copy", "--to", path]);
        let inward = guest.exec(&ExecRequest { argv: &to, input: Some(content), ..self.request })?;
        let from = argv(&["copy", "--from", path]);
        let most_output = content.len() + MOST_WORDS;
        let outward = guest.exec(&ExecRequest { argv: &from, most_output, ..self.request })?;
        if !outward.output.starts_with(content) {
            let reason = format!("the {} bytes that were copied to {path} came back changed", content.len());
            return Err(PlatformError::Exec(reason));
        }
        Ok(Operation::Copy { inward: timed(inward), outward: timed(outward) })
    }
}

/// Why a program could not do its task in this guest, if it says so.
fn absent(output: &[u8]) -> Option<String> {
    let line: serde_json::Value = serde_json::from_slice(output).ok()?;
    Some(line.get("absent")?.as_str()?.to_string())
}

/// A program that ran, without its output: that of all copies would be much to keep.
fn timed(program: ExecResult) -> ExecResult {
    ExecResult { output: Vec::new(), ..program }
}

/// What the client did once.
enum Operation {
    Program(ExecResult),
    Copy { inward: ExecResult, outward: ExecResult },
}

impl Operation {
    /// Time to the first output of its first program.
    fn output_ns(&self) -> u64 {
        let (Self::Program(program) | Self::Copy { inward: program, .. }) = self;
        since(program.started_ns, program.output_ns)
    }

    /// CPU time of this thread as the client, nanoseconds.
    fn client_cpu_ns(&self) -> u64 {
        match self {
            Self::Program(program) => program.client_cpu_ns,
            Self::Copy { inward, outward } => inward.client_cpu_ns + outward.client_cpu_ns,
        }
    }

    /// The record. `once` has the values of a guest that every record repeats.
    fn iteration(&self, task: Task, once: &[(&str, u64)]) -> Iteration {
        let whole_ns = |program: &ExecResult| since(program.started_ns, program.ended_ns);
        let (first, last, mut values) = match self {
            Self::Program(program) => {
                let values = match task {
                    Task::Prompt => vec![(stamps::EXEC_PROMPT, self.output_ns())],
                    _ => vec![(stamps::EXEC_OUTPUT, self.output_ns()), (stamps::EXEC_END, whole_ns(program))],
                };
                (program, program, values)
            }
            Self::Copy { inward, outward } => {
                let values = vec![(stamps::COPY_IN, whole_ns(inward)), (stamps::COPY_OUT, whole_ns(outward))];
                (inward, outward, values)
            }
        };
        values.extend(once);
        Iteration {
            host_started_ns: first.started_ns,
            host_ended_ns: last.ended_ns,
            guest_duration_ns: since(first.started_ns, last.ended_ns),
            operations: Some(1.0),
            values: values.into_iter().map(|(name, ns)| (name.into(), ns as f64 * 1e-9)).collect(),
            ..Iteration::default()
        }
    }
}

/// Bytes that no client can compress, the same each time.
fn random_bytes(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; number as usize];
    Pcg64Mcg::seed_from_u64(0).fill_bytes(&mut bytes);
    bytes
}

fn cpu_ns(group: Option<&Cgroup>) -> u64 {
    group.and_then(|group| group.cpu_ns().ok()).unwrap_or_default()
}

/// What guest and helpers have used since an earlier reading.
fn growth(before: &Charge, after: Charge) -> Charge {
    let earlier = |name: &String| before.helpers_ns.get(name).copied().unwrap_or_default();
    let helpers_ns =
        after.helpers_ns.into_iter().map(|(name, ns)| (name.clone(), ns.saturating_sub(earlier(&name))));
    Charge {
        guest_ns: after.guest_ns.saturating_sub(before.guest_ns),
        helpers_ns: helpers_ns.collect(),
        ..Charge::default()
    }
}

fn not_run(error: &PlatformError) -> Failure {
    Failure::new(FailureKind::Check, describe(error))
}
