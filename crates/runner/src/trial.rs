//! One trial: the commands of a workload in a guest that is awake.

use crate::logs::CellLog;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weigh_model::{FailureKind, Iteration, WorkloadPlan};
use weigh_platforms::{Completed, Guest, RunOptions, Session, SessionError};
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

/// Why a trial gives no number, with the output of the command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
    pub(crate) completed: Option<Box<Completed>>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), completed: None }
    }

    fn with(mut self, completed: impl Into<Box<Completed>>) -> Self {
        self.completed = Some(completed.into());
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

/// What a trial came to.
pub(crate) struct Performed {
    pub(crate) outcome: Result<Vec<Iteration>, Failure>,
    /// Commands that ran unmeasured.
    pub(crate) warm_ups: u32,
    /// The guest has had all its warm-up.
    pub(crate) warm: bool,
    /// A log could not be written.
    pub(crate) log_error: Option<std::io::Error>,
}

impl Performed {
    /// Nothing was run.
    pub(crate) fn nothing(outcome: Result<Vec<Iteration>, Failure>) -> Self {
        Self { outcome, warm_ups: 0, warm: false, log_error: None }
    }
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
    pub(crate) fn perform(
        &self,
        guest: &mut dyn Guest,
        warm_up: bool,
        log: &mut CellLog,
        label: &str,
    ) -> Performed {
        let mut performed = Performed::nothing(Ok(Vec::new()));
        performed.outcome = self.try_perform(guest, warm_up, log, label, &mut performed);
        performed
    }

    fn try_perform(
        &self,
        guest: &mut dyn Guest,
        warm_up: bool,
        log: &mut CellLog,
        label: &str,
        performed: &mut Performed,
    ) -> Result<Vec<Iteration>, Failure> {
        for _ in 0..if warm_up { self.workload.warmup } else { 0 } {
            self.once(guest.session()).map_err(|failure| failure.during("in the warm-up"))?;
            performed.warm_ups += 1;
        }
        performed.warm = true;
        let mut iterations = Vec::with_capacity(self.workload.iterations as usize);
        for number in 0..self.workload.iterations {
            let (iteration, completed) = self.once(guest.session())?;
            iterations.push(iteration);
            let held = log.hold(&format!("{label}, iteration {number}"), &completed);
            performed.log_error = performed.log_error.take().or(held.err());
        }
        Ok(iterations)
    }

    /// One iteration: preparation, the command, clean-up. The clean-up is run after a failed command too, because the guest goes
    /// on to other workloads.
    pub(crate) fn once(&self, session: &mut Session) -> Result<(Iteration, Completed), Failure> {
        if let Some(prepare) = &self.prepare {
            self.around(session, prepare).map_err(|failure| failure.during("the preparation"))?;
        }
        let measured = self.measured(session);
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
            lost => Failure::new(FailureKind::GuestDied, describe(&lost)),
        })
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
