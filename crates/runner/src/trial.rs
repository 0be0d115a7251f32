//! One trial: the commands of a workload in a guest that is awake.

use crate::clock::Timed;
use crate::guest_clock::GuestClock;
use crate::logs::CellLog;
use crate::staging::{self, Words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_model::{ClockCheck, ClockState, Extraction, FailureKind, Iteration, Observed, WorkloadPlan};
use weigh_observe::{Attached, Sensors, add};
use weigh_platforms::{Completed, DiskMeter, DiskMoved, Guest, RunOptions, Session, SessionError};
use weigh_protocol::{COMMAND_PATH, Command, Status};
use weigh_workloads::{Ended, RawResult, Resources, extract};

/// Output kept of each stream of a command.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;

/// Bound on every deadline, so that adding it to the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Name of the variable that pads the commands' environment.
const PADDING: &str = "WEIGH_PAD";

/// Name of the variable that tells scripts around a measured command where the builtin kernels are.
const KERNELS: &str = "WEIGH_KERNELS";

/// The whole environment of every command, in every guest alike, so that nothing of the user's shell decides a number:
/// the usual path of root, a home that every guest can write to, the one locale that every image has (numbers in the output
/// of tools then have a point), the padding of the block, and the variables that the plan gives this environment.
fn command_environment(padding_bytes: usize, variables: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let common = vec![
        ("PATH".into(), COMMAND_PATH.into()),
        ("HOME".into(), "/tmp".into()),
        ("LC_ALL".into(), "C".into()),
        (PADDING.into(), "x".repeat(padding_bytes)),
    ];
    let own = variables.iter().map(|(name, value)| (name.clone(), value.clone()));
    common.into_iter().chain(own).collect()
}

/// The share of a workload's random reads that the host's device must have seen (METHOD: per-workload honesty).
const SEEN_BY_DEVICE: f64 = 0.95;

/// Counters of [`weigh_model::Charge::counters`] that say what devices read: the host's for everybody, any for the guest. Others'
/// reads may hide a cache from the first, a device over a cache may hide it from the second: each that is there has to agree.
const DEVICE_READS: [&str; 2] = ["host_device_read_bytes", GUEST_READS];
/// What a machine has read of its virtual disks, below its own caches and above those of the host: it tells whose cache was measured.
const DISK_READS: &str = "guest_disk_read_bytes";
const GUEST_READS: &str = "block_read_bytes";

/// The share, and the bytes beside it for programs that are loaded, by which a guest may have had more read than it asked for. A
/// host that reads ahead of random reads has a page cache in their way, which may also have answered some.
const READ_AHEAD: (f64, f64) = (1.05, 1_048_576.0);

/// Why a trial gives no number, with the output of the command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
    pub(crate) completed: Option<Box<Completed>>,
    /// What the guest said, where it is the guest that failed.
    pub(crate) log: Option<PathBuf>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), completed: None, log: None }
    }

    pub(crate) fn with(mut self, completed: impl Into<Box<Completed>>) -> Self {
        self.completed = Some(completed.into());
        self
    }

    /// The talk with the guest broke off.
    pub(crate) fn lost(error: &SessionError) -> Self {
        Self::new(FailureKind::GuestDied, describe(error))
    }

    /// Names what the guest said, where it is the guest that failed.
    pub(crate) fn in_guest(mut self, log: Option<PathBuf>) -> Self {
        if self.kind == FailureKind::GuestDied {
            self.log = log;
        }
        self
    }

    /// The same, with what the platform saw of the guest's end.
    pub(crate) fn of_guest(mut self, guest: &mut dyn Guest, log: Option<PathBuf>) -> Self {
        if self.kind == FailureKind::GuestDied && guest.session().is_lost() {
            self = self.because(guest.obituary());
        }
        self.in_guest(log)
    }

    /// Adds why the guest ended, where it is the guest that failed.
    pub(crate) fn because(mut self, obituary: Option<String>) -> Self {
        if let (FailureKind::GuestDied, Some(why)) = (self.kind, obituary) {
            self.reason = format!("{}; {why}", self.reason);
        }
        self
    }

    pub(crate) fn during(mut self, part: &str) -> Self {
        self.reason = format!("{part}: {}", self.reason);
        self
    }
}

/// How a workload is run in guests of one block.
pub(crate) struct Performance<'a> {
    workload: &'a WorkloadPlan,
    command: Command,
    prepare: Option<Command>,
    cleanup: Option<Command>,
    setup: Option<Command>,
    teardown: Option<Command>,
    words: Words,
    deadline: Duration,
    /// Where the commands are executed, for failures.
    place: &'static str,
}

/// The iterations of a trial, and what is known of the circumstances.
pub(crate) struct Measured {
    pub(crate) iterations: Vec<Iteration>,
    /// None of a guest on another machine.
    pub(crate) observed: Option<Box<Observed>>,
    /// None for a guest whose durations are made up.
    pub(crate) clock: Option<ClockCheck>,
}

/// The sensors around the measured commands of one trial. Preparation and clean-up are outside of the window.
pub(crate) struct Watch<'a> {
    sensors: &'a mut dyn Sensors,
    /// None where nothing can be seen.
    instance: Option<Attached>,
    /// Counts what the guest moves of its disk, where it has one.
    meter: Option<Box<dyn DiskMeter>>,
    /// What it had moved when the window began.
    moved: Option<DiskMoved>,
    seen: Option<Observed>,
    /// The sensors know of a load generator.
    loaded: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.loaded {
            self.sensors.set_loader(None);
        }
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        sensors: &'a mut dyn Sensors,
        instance: Option<Attached>,
        meter: Option<Box<dyn DiskMeter>>,
    ) -> Self {
        Self { sensors, instance, meter, moved: None, seen: None, loaded: false }
    }

    /// Tells the sensors of a load generator and its CPUs, as long as this lives.
    pub(crate) fn set_loader(&mut self, accounts: &Accounts, cpus: &[u32]) {
        self.sensors.set_loader(Some((accounts, cpus)));
        self.loaded = true;
    }

    fn begin(&mut self) {
        self.moved = self.meter.as_mut().and_then(|meter| meter.read());
        if let Some(instance) = self.instance {
            self.sensors.begin(instance);
        }
    }

    fn end(&mut self) {
        let Some(instance) = self.instance else { return };
        let mut window = self.sensors.end(instance);
        let now = self.meter.as_mut().and_then(|meter| meter.read());
        if let (Some(before), Some(now)) = (self.moved.take(), now) {
            let counters = &mut window.charge.counters;
            counters.insert(DISK_READS.into(), now.read_bytes.saturating_sub(before.read_bytes));
            let written = now.written_bytes.saturating_sub(before.written_bytes);
            counters.insert("guest_disk_written_bytes".into(), written);
        }
        match &mut self.seen {
            Some(total) => add(total, window),
            None => self.seen = Some(window),
        }
    }
}

/// What a trial has around its commands.
pub(crate) struct Setting<'a, 's> {
    pub(crate) session: &'a mut Session,
    pub(crate) clock: GuestClock,
    pub(crate) watch: Watch<'s>,
    /// Whether the guest has not been warmed up for this workload yet.
    pub(crate) warm_up: bool,
    pub(crate) log: &'a mut CellLog,
    /// Which trial it is, for the log.
    pub(crate) label: &'a str,
}

/// What a trial came to.
pub(crate) struct Performed {
    pub(crate) outcome: Result<Measured, Failure>,
    pub(crate) progress: Progress,
}

/// How far a trial came.
#[derive(Default)]
pub(crate) struct Progress {
    /// Commands that ran unmeasured.
    pub(crate) warm_ups: u32,
    /// The guest has had all its warm-up.
    pub(crate) warm: bool,
    /// A log could not be written.
    pub(crate) log_error: Option<std::io::Error>,
}

impl<'a> Performance<'a> {
    pub(crate) fn new(
        workload: &'a WorkloadPlan,
        working_directory: Option<&Path>,
        padding_bytes: usize,
        variables: &BTreeMap<String, String>,
        words: Words,
    ) -> Self {
        let command = |argv: &Vec<String>, environment: Vec<(String, String)>| Command {
            argv: words.fill(argv),
            environment,
            working_directory: working_directory.map(|path| path.display().to_string()),
            input: false,
            output_limit_bytes: OUTPUT_LIMIT_BYTES,
        };
        // What is measured has the same environment everywhere; what stands around it may know where it is.
        let measured = command_environment(padding_bytes, variables);
        let around = |argv: &Option<Vec<String>>| {
            let known = words.get(staging::KERNELS).map(|path| (KERNELS.into(), path.into()));
            argv.as_ref().map(|argv| command(argv, measured.iter().cloned().chain(known).collect()))
        };
        Self {
            workload,
            command: command(&workload.command, measured.clone()),
            prepare: around(&workload.prepare),
            cleanup: around(&workload.cleanup),
            setup: around(&workload.staging.setup),
            teardown: around(&workload.staging.teardown),
            words,
            place: "in the guest",
            deadline: Duration::try_from_secs_f64(workload.deadline_s).map_or(LONGEST, |d| d.min(LONGEST)),
        }
    }

    /// The same for commands that a load generator runs outside of the guest.
    pub(crate) fn of_loader(self) -> Self {
        Self { place: "for the load generator", ..self }
    }

    /// The measured command.
    pub(crate) fn command(&self) -> &Command {
        &self.command
    }

    /// Another command, which stands around the measured one.
    pub(crate) fn command_of(&self, argv: &[String]) -> Command {
        let mut command = Command { argv: self.words.fill(argv), ..self.command.clone() };
        let known = self.words.get(staging::KERNELS).map(|path| (KERNELS.into(), path.into()));
        command.environment.extend(known);
        command
    }

    /// What is filled in.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// A whole trial: warm-up where it is asked for, then the iterations.
    pub(crate) fn perform(&self, mut setting: Setting<'_, '_>) -> Performed {
        let mut progress = Progress::default();
        let outcome = self.set_up(setting.session);
        let outcome = outcome.and_then(|()| self.try_perform(&mut setting, &mut progress));
        let outcome = self.torn_down(setting.session, outcome);
        Performed { outcome, progress }
    }

    /// What stands before the first run of a trial.
    pub(crate) fn set_up(&self, session: &mut Session) -> Result<(), Failure> {
        let workload = self.workload;
        let around = [&workload.prepare, &workload.cleanup, &workload.staging.setup];
        let commands = around.into_iter().flatten().chain([&workload.command]);
        if staging::wants_scratch(commands) {
            staging::make_scratch(session, &self.words)?;
        }
        let Some(setup) = &self.setup else { return Ok(()) };
        let deadline = staging::setup_deadline(&workload.staging);
        self.around(session, setup, deadline).map_err(|failure| failure.during("the set-up"))
    }

    /// What stands after the last run of a trial, however it went: the guest goes on to other workloads.
    pub(crate) fn torn_down<R>(
        &self,
        session: &mut Session,
        outcome: Result<R, Failure>,
    ) -> Result<R, Failure> {
        let Some(teardown) = self.teardown.as_ref().filter(|_| !session.is_lost()) else { return outcome };
        let deadline = staging::setup_deadline(&self.workload.staging);
        let torn_down = self.around(session, teardown, deadline);
        let torn_down = torn_down.map_err(|failure| failure.during("the tear-down"));
        outcome.and_then(|value| torn_down.map(|()| value))
    }

    /// The set-up, one run, and the tear-down.
    pub(crate) fn once_staged(&self, session: &mut Session) -> Result<(Iteration, Completed), Failure> {
        let outcome = self.set_up(session).and_then(|()| self.once(session, None));
        self.torn_down(session, outcome)
    }

    fn try_perform(
        &self,
        setting: &mut Setting<'_, '_>,
        progress: &mut Progress,
    ) -> Result<Measured, Failure> {
        let clock = setting.clock;
        let start = clock.exchange(setting.session).map_err(|error| Failure::lost(&error))?;
        for _ in 0..if setting.warm_up { self.workload.warmup } else { 0 } {
            self.once(setting.session, None).map_err(|failure| failure.during("in the warm-up"))?;
            progress.warm_ups += 1;
        }
        progress.warm = true;
        let mut iterations = self.iterations(setting, progress)?;
        let runs: Vec<Timed> = iterations.iter().map(timed).collect();
        let whose = clock;
        let clock = clock.check(setting.session, start, &runs).map_err(|error| Failure::lost(&error))?;
        if clock.is_some_and(|clock| clock.state == ClockState::Bracket) && whose != GuestClock::TakenHere {
            self.use_brackets(&mut iterations);
        }
        let observed = setting.watch.seen.take().map(Box::new);
        check_device_reads(&iterations, observed.as_deref())?;
        Ok(Measured { iterations, observed, clock })
    }

    /// The measured iterations in one window of the sensors; in a window each where preparation and clean-up lie between.
    fn iterations(
        &self,
        setting: &mut Setting<'_, '_>,
        progress: &mut Progress,
    ) -> Result<Vec<Iteration>, Failure> {
        let window_each = self.prepare.is_some() || self.cleanup.is_some();
        let mut iterations = Vec::with_capacity(self.workload.iterations as usize);
        if !window_each {
            setting.watch.begin();
        }
        for number in 0..self.workload.iterations {
            let watch = window_each.then_some(&mut setting.watch);
            let (iteration, completed) = self.once(setting.session, watch)?;
            iterations.push(iteration);
            let held = setting.log.hold(&format!("{}, iteration {number}", setting.label), &completed);
            progress.log_error = progress.log_error.take().or(held.err());
        }
        if !window_each {
            setting.watch.end();
        }
        Ok(iterations)
    }

    /// Puts the host's bracket in the place of every duration that the guest told.
    fn use_brackets(&self, iterations: &mut [Iteration]) {
        for metric in self.workload.metrics.iter().filter(|metric| metric.from == Extraction::Duration) {
            for iteration in &mut *iterations {
                let seconds = timed(iteration).bracket_ns as f64 * 1e-9;
                iteration.values.insert(metric.spec.name.clone(), seconds * metric.factor);
            }
        }
    }

    /// One iteration: preparation, the command, clean-up. The clean-up is run after a failed command too, because the guest goes
    /// on to other workloads.
    pub(crate) fn once(
        &self,
        session: &mut Session,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, Completed), Failure> {
        if let Some(prepare) = &self.prepare {
            self.around(session, prepare, self.deadline)
                .map_err(|failure| failure.during("the preparation"))?;
        }
        let measured = self.watched(session, watch);
        if let (Some(cleanup), false) = (&self.cleanup, session.is_lost()) {
            let cleaned = self.around(session, cleanup, self.deadline);
            let cleaned = cleaned.map_err(|failure| failure.during("the clean-up"));
            if measured.is_ok() {
                cleaned?;
            }
        }
        measured
    }

    /// A command whose output is of no interest.
    pub(crate) fn around(
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
                Err(Failure::new(FailureKind::Preparation, reason).with(completed))
            }
            None => Ok(()),
        }
    }

    /// The command, in a window of its own where there is a watch.
    fn watched(
        &self,
        session: &mut Session,
        watch: Option<&mut Watch<'_>>,
    ) -> Result<(Iteration, Completed), Failure> {
        let Some(watch) = watch else { return self.measured(session) };
        watch.begin();
        let measured = self.measured(session);
        watch.end();
        measured
    }

    fn measured(&self, session: &mut Session) -> Result<(Iteration, Completed), Failure> {
        let completed = self.execute(session, &self.command, self.deadline)?;
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
        let extracted = match extract(self.workload, &result) {
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
            absent: BTreeMap::new(),
        };
        Ok((iteration, completed))
    }

    fn execute(
        &self,
        session: &mut Session,
        command: &Command,
        deadline: Duration,
    ) -> Result<Completed, Failure> {
        let ended = session.run(command, RunOptions::within(deadline));
        ended.map_err(|error| self.not_executed(command, error))
    }

    /// Why a command did not run to its end.
    pub(crate) fn not_executed(&self, command: &Command, error: SessionError) -> Failure {
        match error {
            SessionError::Refused { reason, errno: _ } => {
                let program = command.argv.first().map_or("", String::as_str);
                let (place, remedy) = (self.place, staging::remedy(&self.workload.staging));
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

/// A run on the clocks that timed it.
pub(crate) fn timed(iteration: &Iteration) -> Timed {
    Timed {
        bracket_ns: iteration.host_ended_ns.saturating_sub(iteration.host_started_ns),
        guest_ns: iteration.guest_duration_ns,
        tool_ns: iteration.tool_duration_ns,
    }
}

/// Whether the host's device saw what the workload says it read at random places of a disk.
fn check_device_reads(iterations: &[Iteration], observed: Option<&Observed>) -> Result<(), Failure> {
    let claimed: Vec<u64> = iterations.iter().filter_map(|iteration| iteration.random_read_bytes).collect();
    if claimed.is_empty() {
        return Ok(());
    }
    let claimed = claimed.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let counters = observed.map(|observed| &observed.charge.counters);
    let seen: Vec<(&str, u64)> =
        DEVICE_READS.iter().filter_map(|name| Some((*name, *counters?.get(*name)?))).collect();
    let failed = |reason| Err(Failure::new(FailureKind::Check, reason));
    if seen.is_empty() {
        return failed(format!(
            "the command says it read {claimed} bytes at random places of a disk, and what the host's device saw cannot be read here: \
             a cache may have been measured"
        ));
    }
    let fits = |(name, seen): &(&str, u64)| {
        let (seen, claimed) = (*seen as f64, claimed as f64);
        let ahead = *name == GUEST_READS && seen > claimed * READ_AHEAD.0 + READ_AHEAD.1;
        seen >= claimed * SEEN_BY_DEVICE && !ahead
    };
    match seen.iter().find(|seen| !fits(seen)) {
        None => Ok(()),
        Some((_, seen)) => {
            let of_machine = counters.and_then(|counters| counters.get(DISK_READS));
            let whose = match of_machine {
                _ if *seen > claimed => "a cache of the host read ahead",
                Some(read) if *read as f64 >= claimed as f64 * SEEN_BY_DEVICE => {
                    "the machine asked its disk for them, and a cache of the host was measured"
                }
                Some(_) => "a cache in the machine was measured",
                None => "a cache was measured",
            };
            failed(format!(
                "the command says it read {claimed} bytes at random places of a disk, the host's device saw {seen}: {whose}; \
                 use a file larger than the caches, direct access, and for a machine `cache=none`"
            ))
        }
    }
}

/// Why a status is not a success.
fn ended_badly(status: Status) -> Option<String> {
    match status {
        Status::Exited(0) => None,
        Status::Exited(status) => Some(format!("it exited with status {status}")),
        Status::Signalled(signal) => Some(format!("signal {signal} ended it")),
    }
}

/// Lines and bytes of a command's last words.
const LAST_LINES: usize = 4;
const LAST_BYTES: usize = 800;

/// The end of what a command said, so that the reason is read where the failure is.
fn last_words(completed: &Completed) -> String {
    let said = if completed.error.is_empty() { &completed.output } else { &completed.error };
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(LAST_BYTES)..]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(LAST_LINES)..] {
        [] => String::new(),
        last => format!("; it said: {}", last.join("; ")),
    }
}

/// An error with all its causes in one sentence.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
