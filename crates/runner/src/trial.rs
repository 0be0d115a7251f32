//! One trial: the commands of a workload in a guest that is awake.

mod device_reads;
mod failure;
mod watch;

pub(crate) use failure::{Failure, describe};
pub(crate) use watch::Watch;

use crate::clock::CommandTimes;
use crate::guest_clock::GuestClock;
use crate::logs::CellLog;
use crate::neighbours::work::StopToken;
use crate::staging::{self, Placeholders};
use device_reads::check_device_reads;
use failure::{ended_badly, last_words};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weigh_model::{
    ClockCheck, ClockState, EnvironmentPlan, Extraction, FailureKind, Iteration, Observed, WorkloadPlan,
    format_bytes,
};
use weigh_platforms::{CompletedCommand, RunOptions, Session, SessionError};
use weigh_protocol::{COMMAND_PATH, Command, Input, Status};
use weigh_workloads::{Ended, RawResult, Resources, extract};

/// Output kept of each stream of a command.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;

/// Bound on every deadline, so that adding it to the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The signal by which the kernel ends a process if there is no memory left (`signal(7)`).
const SIGKILL: i32 = 9;

/// Name of the variable that pads the commands' environment.
const PADDING: &str = "WEIGH_PAD";

/// Name of the variable that tells scripts around a measured command where the builtin kernels are.
const KERNELS: &str = "WEIGH_KERNELS";

/// The whole environment of every command, the same in every guest, so that the user's shell has no
/// influence on the numbers: the usual path of root, a home that every guest can write to, the one
/// locale that every image has (so that tools print numbers with a decimal point), the padding of
/// the block, and the variables that the plan gives this environment, which override the others.
fn command_environment(padding_bytes: usize, variables: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let common: [(String, String); 4] = [
        ("PATH".into(), COMMAND_PATH.into()),
        ("HOME".into(), "/tmp".into()),
        ("LC_ALL".into(), "C".into()),
        (PADDING.into(), "x".repeat(padding_bytes)),
    ];
    let common = common.into_iter().filter(|(name, _)| !variables.contains_key(name));
    let own = variables.iter().map(|(name, value)| (name.clone(), value.clone()));
    common.chain(own).collect()
}

/// The commands of a workload with everything filled in for the guests of one block.
pub(crate) struct WorkloadCommands<'a> {
    workload: &'a WorkloadPlan,
    command: Command,
    prepare: Option<Command>,
    cleanup: Option<Command>,
    setup: Option<Command>,
    teardown: Option<Command>,
    placeholders: Placeholders,
    deadline: Duration,
    /// Measured runs of a trial.
    iterations: u32,
    /// Where the commands are executed, for the texts of failures.
    place: String,
    /// Ends its commands early.
    stop: Option<&'a StopToken>,
}

/// The iterations of a trial, with the host's observations and the clock check.
pub(crate) struct Measured {
    pub(crate) iterations: Vec<Iteration>,
    /// None for a guest on another machine.
    pub(crate) observed: Option<Box<Observed>>,
    /// None for a guest whose durations are made up.
    pub(crate) clock: Option<ClockCheck>,
}

/// What a trial needs besides its commands.
pub(crate) struct TrialContext<'a, 's> {
    pub(crate) session: &'a mut Session,
    pub(crate) clock: GuestClock,
    pub(crate) watch: Watch<'s>,
    /// Whether the guest has yet to be warmed up for this workload.
    pub(crate) warm_up: bool,
    pub(crate) log: &'a mut CellLog,
    /// Label of the trial in the log.
    pub(crate) label: &'a str,
}

/// The result of a trial.
pub(crate) struct TrialResult {
    pub(crate) outcome: Result<Measured, Failure>,
    pub(crate) progress: Progress,
}

impl TrialResult {
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { outcome: Err(failure), progress: Progress::default() }
    }
}

/// How far a trial got.
#[derive(Default)]
pub(crate) struct Progress {
    /// Number of commands that ran unmeasured.
    pub(crate) warm_ups: u32,
    /// Whether the guest has had all its warm-up.
    pub(crate) warm: bool,
    /// Set if a log could not be written.
    pub(crate) log_error: Option<std::io::Error>,
}

impl<'a> WorkloadCommands<'a> {
    pub(crate) fn new(
        workload: &'a WorkloadPlan,
        working_directory: Option<&Path>,
        padding_bytes: usize,
        variables: &BTreeMap<String, String>,
        placeholders: Placeholders,
    ) -> Self {
        let command = |argv: &Vec<String>, environment: Vec<(String, String)>| Command {
            argv: placeholders.fill(argv),
            environment,
            working_directory: working_directory.map(|path| path.display().to_string()),
            input: Input::Empty,
            output_limit_bytes: OUTPUT_LIMIT_BYTES,
        };
        // The measured command has the same environment everywhere; commands around it may depend
        // on the place.
        let measured = command_environment(padding_bytes, variables);
        let around = |argv: &Option<Vec<String>>| {
            let known = placeholders.get(staging::KERNELS).map(|path| (KERNELS.into(), path.into()));
            argv.as_ref().map(|argv| command(argv, measured.iter().cloned().chain(known).collect()))
        };
        let input = workload.input.clone().map_or(Input::Empty, Input::File);
        Self {
            workload,
            command: Command { input, ..command(&workload.command, measured.clone()) },
            prepare: around(&workload.prepare),
            cleanup: around(&workload.cleanup),
            setup: around(&workload.staging.setup),
            teardown: around(&workload.staging.teardown),
            placeholders,
            place: "in the guest".into(),
            stop: None,
            iterations: workload.iterations,
            deadline: Duration::try_from_secs_f64(workload.deadline_s).map_or(LONGEST, |d| d.min(LONGEST)),
        }
    }

    /// The commands of a workload in an environment of the plan, which may have one of its own.
    pub(crate) fn in_environment(
        workload: &'a WorkloadPlan,
        environment: &EnvironmentPlan,
        working_directory: Option<&Path>,
        padding_bytes: usize,
        placeholders: Placeholders,
    ) -> Self {
        let variables = &environment.variables;
        let mut own = Self::new(workload, working_directory, padding_bytes, variables, placeholders);
        own.command.argv = own.placeholders.fill(workload.command_in(&environment.name));
        own
    }

    /// Adapts the commands to a load generator outside of the guest, possibly on another machine.
    pub(crate) fn of_loader(self, machine: Option<&str>) -> Self {
        let machine = machine.map(|machine| format!(" on {machine}")).unwrap_or_default();
        Self { place: format!("for the load generator{machine}"), ..self }
    }

    /// Sets the number of measured runs of a trial, if the pilot chose it.
    pub(crate) fn repeated(self, iterations: u32) -> Self {
        Self { iterations, ..self }
    }

    /// Lets the token stop the commands, for a neighbour of a measured guest.
    pub(crate) fn held_by(self, stop: &'a StopToken) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The measured command.
    pub(crate) fn command(&self) -> &Command {
        &self.command
    }

    /// Another command, which runs around the measured one.
    pub(crate) fn command_of(&self, argv: &[String]) -> Command {
        let mut command = Command { argv: self.placeholders.fill(argv), ..self.command.clone() };
        let known = self.placeholders.get(staging::KERNELS).map(|path| (KERNELS.into(), path.into()));
        command.environment.extend(known);
        command
    }

    /// The values of placeholders.
    pub(crate) fn placeholders(&self) -> &Placeholders {
        &self.placeholders
    }

    /// Runs a whole trial: warm-up if it is needed, then the iterations.
    pub(crate) fn run_trial(&self, mut context: TrialContext<'_, '_>) -> TrialResult {
        let mut progress = Progress::default();
        let outcome = self.set_up(context.session);
        let outcome = outcome.and_then(|()| self.try_trial(&mut context, &mut progress));
        let outcome = self.tear_down(context.session, outcome);
        TrialResult { outcome, progress }
    }

    /// Runs the set-up before the first run of a trial.
    pub(crate) fn set_up(&self, session: &mut Session) -> Result<(), Failure> {
        let workload = self.workload;
        let around = [&workload.prepare, &workload.cleanup, &workload.staging.setup];
        let own = workload.commands.values().chain([&workload.command]);
        let commands = around.into_iter().flatten().chain(own);
        if staging::wants_scratch(commands) {
            staging::make_scratch(session, &self.placeholders)?;
        }
        let Some(setup) = &self.setup else { return Ok(()) };
        let deadline = staging::setup_deadline(&workload.staging);
        self.run_unread(session, setup, deadline).map_err(|failure| failure.during("the set-up"))
    }

    /// Runs the tear-down after the last run of a trial, whatever its outcome, because the guest
    /// goes on to other workloads.
    pub(crate) fn tear_down<R>(
        &self,
        session: &mut Session,
        outcome: Result<R, Failure>,
    ) -> Result<R, Failure> {
        let Some(teardown) = self.teardown.as_ref().filter(|_| !session.is_lost()) else { return outcome };
        let deadline = staging::setup_deadline(&self.workload.staging);
        let torn_down = self.run_unread(session, teardown, deadline);
        let torn_down = torn_down.map_err(|failure| failure.during("the tear-down"));
        outcome.and_then(|value| torn_down.map(|()| value))
    }

    /// Runs the set-up, the command once, and the tear-down.
    pub(crate) fn once_staged(
        &self,
        session: &mut Session,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        let outcome = self.set_up(session).and_then(|()| self.run_iteration(session, watch));
        self.tear_down(session, outcome)
    }

    fn try_trial(
        &self,
        context: &mut TrialContext<'_, '_>,
        progress: &mut Progress,
    ) -> Result<Measured, Failure> {
        let clock = context.clock;
        let start = clock.exchange(context.session).map_err(|error| Failure::lost(&error))?;
        for _ in 0..if context.warm_up { self.workload.warmup } else { 0 } {
            self.run_iteration(context.session, None).map_err(|failure| failure.during("in the warm-up"))?;
            progress.warm_ups += 1;
        }
        progress.warm = true;
        let mut iterations = self.iterations(context, progress)?;
        let runs: Vec<CommandTimes> = iterations.iter().map(timed).collect();
        let whose = clock;
        let clock = clock.check(context.session, start, &runs).map_err(|error| Failure::lost(&error))?;
        if clock.is_some_and(|clock| clock.state == ClockState::Bracket) && whose != GuestClock::HostTimed {
            self.use_brackets(&mut iterations);
        }
        let observed = context.watch.seen.take().map(Box::new);
        check_device_reads(&iterations, observed.as_deref())?;
        Ok(Measured { iterations, observed, clock })
    }

    /// Runs the measured iterations in one window of the sensors, or each in its own window if
    /// preparation and clean-up lie between.
    fn iterations(
        &self,
        context: &mut TrialContext<'_, '_>,
        progress: &mut Progress,
    ) -> Result<Vec<Iteration>, Failure> {
        let window_each = self.prepare.is_some() || self.cleanup.is_some();
        let mut iterations = Vec::with_capacity(self.iterations as usize);
        if !window_each {
            context.watch.begin(context.session);
        }
        for number in 0..self.iterations {
            let watch = window_each.then_some(&mut context.watch);
            let (iteration, completed) = self.run_iteration(context.session, watch)?;
            iterations.push(iteration);
            let held = context.log.hold(&format!("{}, iteration {number}", context.label), &completed);
            progress.log_error = progress.log_error.take().or(held.err());
        }
        if !window_each {
            context.watch.end(context.session);
        }
        Ok(iterations)
    }

    /// Replaces every duration that the guest reported by the host's bracket.
    fn use_brackets(&self, iterations: &mut [Iteration]) {
        for metric in self.workload.metrics.iter().filter(|metric| metric.from == Extraction::Duration) {
            for iteration in &mut *iterations {
                let seconds = timed(iteration).bracket_ns as f64 * 1e-9;
                iteration.values.insert(metric.spec.name.clone(), seconds * metric.factor);
            }
        }
    }

    /// Runs one iteration: preparation, the command, clean-up. The clean-up also runs after a
    /// failed command, because the guest goes on to other workloads.
    pub(crate) fn run_iteration(
        &self,
        session: &mut Session,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        if let Some(prepare) = &self.prepare {
            self.run_unread(session, prepare, self.deadline)
                .map_err(|failure| failure.during("the preparation"))?;
        }
        let measured = self.watched(session, watch);
        if let (Some(cleanup), false) = (&self.cleanup, session.is_lost()) {
            let cleaned = self.run_unread(session, cleanup, self.deadline);
            let cleaned = cleaned.map_err(|failure| failure.during("the clean-up"));
            if measured.is_ok() {
                cleaned?;
            }
        }
        measured
    }

    /// Runs a command whose output is not read.
    pub(crate) fn run_unread(
        &self,
        session: &mut Session,
        command: &Command,
        deadline: Duration,
    ) -> Result<(), Failure> {
        let of_command = |failure: Failure| match failure.kind {
            FailureKind::GuestDied => failure,
            _ => Failure { kind: FailureKind::Preparation, ..failure },
        };
        let completed = self.execute(session, command, deadline).map_err(of_command)?;
        match ended_badly(completed.end.status) {
            Some(reason) => {
                let reason = format!("{reason}{}", last_words(&completed));
                Err(self.naming_limit(Failure::new(FailureKind::Preparation, reason).with(completed)))
            }
            None => Ok(()),
        }
    }

    /// Runs the command, in its own window if there is a watch.
    fn watched(
        &self,
        session: &mut Session,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        let Some(watch) = watch else { return self.measured(session) };
        watch.begin(session);
        let measured = self.measured(session);
        watch.end(session);
        measured
    }

    fn measured(&self, session: &mut Session) -> Result<(Iteration, CompletedCommand), Failure> {
        let completed = self.execute(session, &self.command, self.deadline)?;
        self.iteration_of(completed)
    }

    /// Reads the result of a command that has ended.
    pub(crate) fn iteration_of(
        &self,
        completed: CompletedCommand,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        read(self.workload, completed).map_err(|failure| self.naming_limit(failure))
    }

    /// The same without its metrics, if they are taken otherwise.
    pub(crate) fn checked(
        &self,
        completed: CompletedCommand,
    ) -> Result<(Iteration, CompletedCommand), Failure> {
        let unread = WorkloadPlan { metrics: Vec::new(), ..self.workload.clone() };
        read(&unread, completed).map_err(|failure| self.naming_limit(failure))
    }

    /// Names the guest's memory limit, if it has one, in the failure of a command that SIGKILL
    /// ended.
    fn naming_limit(&self, failure: Failure) -> Failure {
        let ended = failure.completed.as_ref().map(|completed| completed.end.status);
        let limit_bytes = self.placeholders.get(staging::MEMORY).and_then(|bytes| bytes.parse::<u64>().ok());
        match (ended, limit_bytes) {
            (Some(Status::Signalled(SIGKILL)), Some(bytes @ 1..)) => {
                let limit = format_bytes(bytes);
                let reason = format!(
                    "{}; the guest's memory limit is {limit}, by `memory=` or `--memory`",
                    failure.reason
                );
                Failure { reason, ..failure }
            }
            _ => failure,
        }
    }

    /// The deadline of the command.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn execute(
        &self,
        session: &mut Session,
        command: &Command,
        deadline: Duration,
    ) -> Result<CompletedCommand, Failure> {
        let ended = match self.stop {
            Some(stop) => stop.run(session, command, deadline),
            None => session.run(command, RunOptions::within(deadline)),
        };
        ended.map_err(|error| self.not_executed(command, error))
    }

    /// The failure of a command that did not run to its end.
    pub(crate) fn not_executed(&self, command: &Command, error: SessionError) -> Failure {
        match error {
            SessionError::Refused { reason, errno } => {
                let program = command.argv.first().map_or("", String::as_str);
                let place = &self.place;
                // A package does not help where the program is there and cannot run.
                let is_missing = errno == rustix::io::Errno::NOENT.raw_os_error();
                let remedy = if is_missing { staging::remedy(&self.workload.staging) } else { String::new() };
                let reason = format!("`{program}` cannot be run {place}: {reason}{remedy}");
                Failure::new(FailureKind::CommandNotFound, reason)
            }
            SessionError::Deadline { after, killed } => {
                let reason = format!("it did not end within {} s and was killed", after.as_secs_f64());
                Failure::new(FailureKind::Deadline, reason).with(killed)
            }
            lost => Failure::lost(&lost),
        }
    }
}

/// Reads what a command printed and used.
fn read(
    workload: &WorkloadPlan,
    completed: CompletedCommand,
) -> Result<(Iteration, CompletedCommand), Failure> {
    let resources = completed.end.resources;
    let result = RawResult {
        status: match completed.end.status {
            Status::Exited(status) => Ended::Exited(status),
            Status::Signalled(signal) => Ended::Signalled(signal),
        },
        output: &completed.output,
        error: &completed.error,
        duration_ns: completed.end.duration_ns,
        resources: Resources {
            user_ns: resources.user_ns,
            system_ns: resources.system_ns,
            maximum_resident_set_bytes: resources.maximum_resident_set_bytes,
        },
    };
    let extracted = match extract(workload, &result) {
        Ok(extracted) => extracted,
        Err(error) => return Err(Failure::new(error.kind(), describe(&error)).with(completed)),
    };
    let iteration = Iteration {
        host_started_ns: completed.host_started_ns,
        host_ended_ns: completed.host_ended_ns,
        guest_duration_ns: completed.end.duration_ns,
        user_ns: resources.user_ns,
        system_ns: resources.system_ns,
        maximum_resident_set_bytes: resources.maximum_resident_set_bytes,
        minor_faults: resources.minor_faults,
        major_faults: resources.major_faults,
        voluntary_switches: resources.voluntary_switches,
        involuntary_switches: resources.involuntary_switches,
        values: extracted.values,
        operations: extracted.operations,
        tool_duration_ns: extracted.tool_duration_ns,
        random_read_bytes: extracted.random_read_bytes,
        histograms: extracted.histograms,
        absent: extracted.refused,
    };
    Ok((iteration, completed))
}

/// The durations of a run on all clocks that timed it.
pub(crate) fn timed(iteration: &Iteration) -> CommandTimes {
    CommandTimes {
        bracket_ns: iteration.host_ended_ns.saturating_sub(iteration.host_started_ns),
        guest_ns: iteration.guest_duration_ns,
        tool_ns: iteration.tool_duration_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Staging;

    #[test]
    fn a_package_is_named_only_where_a_program_is_missing() {
        let staging = Staging { packages: vec!["fio".into()], ..Staging::default() };
        let plan = WorkloadPlan { staging, ..weigh_workloads::command_workload(&["fio".into()]) };
        let commands = WorkloadCommands::new(&plan, None, 0, &BTreeMap::new(), Placeholders::default());
        let said = |errno| {
            let refused = SessionError::Refused { reason: "that is why".into(), errno };
            commands.not_executed(commands.command(), refused).reason
        };
        assert_eq!(said(8), "`fio` cannot be run in the guest: that is why");
        assert!(said(2).ends_with("that is why; on Debian it is in the package fio"), "{}", said(2));
    }

    #[test]
    fn an_environment_has_its_variables_beside_the_common_ones() {
        let own = BTreeMap::from([("WEIGH_SPIN".to_string(), "0.050".to_string())]);
        let variables = command_environment(3, &own);
        let value = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(
            (value(PADDING), value("LC_ALL"), value("WEIGH_SPIN")),
            (Some("xxx"), Some("C"), Some("0.050"))
        );
        assert_eq!(command_environment(3, &BTreeMap::new()).len() + 1, variables.len());
    }
}
