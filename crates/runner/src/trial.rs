//! One trial: the commands of a workload in a guest that is awake.

use crate::clock::Timed;
use crate::guest_clock::GuestClock;
use crate::logs::CellLog;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_model::{ClockCheck, ClockState, Extraction, FailureKind, Iteration, Observed, WorkloadPlan};
use weigh_observe::{Attached, Sensors, add};
use weigh_platforms::{Completed, RunOptions, Session, SessionError};
use weigh_protocol::{COMMAND_PATH, Command, Status};
use weigh_workloads::{Ended, RawResult, Resources, extract};

/// Output kept of each stream of a command.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;

/// Bound on every deadline, so that adding it to the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Name of the variable that pads the commands' environment.
const PADDING: &str = "WEIGH_PAD";

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

    fn with(mut self, completed: impl Into<Box<Completed>>) -> Self {
        self.completed = Some(completed.into());
        self
    }

    /// The talk with the guest broke off.
    fn lost(error: &SessionError) -> Self {
        Self::new(FailureKind::GuestDied, describe(error))
    }

    /// Names what the guest said, where it is the guest that failed.
    pub(crate) fn in_guest(mut self, log: Option<PathBuf>) -> Self {
        if self.kind == FailureKind::GuestDied {
            self.log = log;
        }
        self
    }

    fn during(mut self, part: &str) -> Self {
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
    deadline: Duration,
}

/// The iterations of a trial, and what is known of the circumstances.
pub(crate) struct Measured {
    pub(crate) iterations: Vec<Iteration>,
    pub(crate) observed: Box<Observed>,
    /// None for a guest whose durations are made up.
    pub(crate) clock: Option<ClockCheck>,
}

/// The sensors around the measured commands of one trial. Preparation and clean-up are outside of the window.
pub(crate) struct Watch<'a> {
    sensors: &'a mut dyn Sensors,
    instance: Attached,
    seen: Option<Observed>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(sensors: &'a mut dyn Sensors, instance: Attached) -> Self {
        Self { sensors, instance, seen: None }
    }

    fn begin(&mut self) {
        self.sensors.begin(self.instance);
    }

    fn end(&mut self) {
        let window = self.sensors.end(self.instance);
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
    ) -> Self {
        let command = |argv: &Vec<String>| Command {
            argv: argv.clone(),
            environment: command_environment(padding_bytes, variables),
            working_directory: working_directory.map(|path| path.display().to_string()),
            input: false,
            output_limit_bytes: OUTPUT_LIMIT_BYTES,
        };
        Self {
            workload,
            command: command(&workload.command),
            prepare: workload.prepare.as_ref().map(command),
            cleanup: workload.cleanup.as_ref().map(command),
            deadline: Duration::try_from_secs_f64(workload.deadline_s).map_or(LONGEST, |d| d.min(LONGEST)),
        }
    }

    /// A whole trial: warm-up where it is asked for, then the iterations.
    pub(crate) fn perform(&self, mut setting: Setting<'_, '_>) -> Performed {
        let mut progress = Progress::default();
        let outcome = self.try_perform(&mut setting, &mut progress);
        Performed { outcome, progress }
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
        let clock = clock.check(setting.session, start, &runs).map_err(|error| Failure::lost(&error))?;
        if clock.is_some_and(|clock| clock.state == ClockState::Bracket) {
            self.use_brackets(&mut iterations);
        }
        let observed = Box::new(setting.watch.seen.take().unwrap_or_default());
        check_device_reads(&iterations, &observed)?;
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
            self.around(session, prepare).map_err(|failure| failure.during("the preparation"))?;
        }
        let measured = self.watched(session, watch);
        if let (Some(cleanup), false) = (&self.cleanup, session.is_lost()) {
            let cleaned = self.around(session, cleanup).map_err(|failure| failure.during("the clean-up"));
            if measured.is_ok() {
                cleaned?;
            }
        }
        measured
    }

    /// A preparation or a clean-up.
    fn around(&self, session: &mut Session, command: &Command) -> Result<(), Failure> {
        let of_command = |failure: Failure| match failure.kind {
            FailureKind::GuestDied => failure,
            _ => Failure { kind: FailureKind::Preparation, ..failure },
        };
        let completed = self.execute(session, command).map_err(of_command)?;
        match ended_badly(completed.end.status) {
            Some(reason) => Err(Failure::new(FailureKind::Preparation, reason).with(completed)),
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
        let completed = self.execute(session, &self.command)?;
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

    fn execute(&self, session: &mut Session, command: &Command) -> Result<Completed, Failure> {
        session.run(command, RunOptions::within(self.deadline)).map_err(|error| match error {
            SessionError::Refused { reason, errno: _ } => {
                let program = command.argv.first().map_or("", String::as_str);
                Failure::new(
                    FailureKind::CommandNotFound,
                    format!("`{program}` cannot be run in the guest: {reason}"),
                )
            }
            SessionError::Deadline { after, killed } => {
                let reason = format!("it did not end within {} s and was killed", after.as_secs_f64());
                Failure::new(FailureKind::Deadline, reason).with(killed)
            }
            lost => Failure::lost(&lost),
        })
    }
}

/// A run on the clocks that timed it.
fn timed(iteration: &Iteration) -> Timed {
    Timed {
        bracket_ns: iteration.host_ended_ns.saturating_sub(iteration.host_started_ns),
        guest_ns: iteration.guest_duration_ns,
        tool_ns: iteration.tool_duration_ns,
    }
}

/// Whether the host's device saw what the workload says it read at random places of a disk.
fn check_device_reads(iterations: &[Iteration], observed: &Observed) -> Result<(), Failure> {
    let claimed: Vec<u64> = iterations.iter().filter_map(|iteration| iteration.random_read_bytes).collect();
    if claimed.is_empty() {
        return Ok(());
    }
    let claimed = claimed.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let counters = &observed.charge.counters;
    let seen: Vec<(&str, u64)> =
        DEVICE_READS.iter().filter_map(|name| Some((*name, *counters.get(*name)?))).collect();
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
        Some((_, seen)) => failed(format!(
            "the command says it read {claimed} bytes at random places of a disk, the host's device saw {seen}: {}; \
             use a file larger than the caches, direct access, and for a machine `cache=none`",
            if *seen > claimed { "a cache of the host read ahead" } else { "a cache was measured" }
        )),
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
