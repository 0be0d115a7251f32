//! When a guest with its own init is up.

use crate::trial::{Failure, describe};
use std::time::Duration;
use weigh_model::FailureKind;
use weigh_platforms::{Capabilities, Guest, RunOptions, SessionError};
use weigh_protocol::{COMMAND_PATH, Command, Input, Status};

/// Waits for the system to be up, then checks the target, because a system with a failed unit is up
/// too. Before its bus exists systemctl fails at once, hence the loop (systemctl(1),
/// `is-system-running --wait`).
const WAIT: &str = "while :; do systemctl is-system-running --wait >/dev/null 2>&1; \
systemctl is-active --quiet multi-user.target && exit 0; sleep 0.01; done";

/// When the guest was initialised, host's monotonic clock, nanoseconds: when its probe said hello,
/// or when its own init reached `multi-user.target`.
pub(crate) fn init_ns(guest: &mut dyn Guest, can: &Capabilities, deadline: Duration) -> Result<u64, Failure> {
    let hello_ns = hello_ns(guest)?;
    if !can.system {
        return Ok(hello_ns);
    }
    let command = Command {
        argv: ["/bin/sh", "-c", WAIT].map(String::from).to_vec(),
        environment: vec![("PATH".into(), COMMAND_PATH.into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: 64 << 10,
    };
    match guest.session().run(&command, RunOptions::within(deadline)) {
        Ok(completed) if completed.end.status == Status::Exited(0) => Ok(completed.host_ended_ns),
        Ok(completed) => {
            let said = String::from_utf8_lossy(&completed.error).trim().to_string();
            let reason = format!("the state of multi-user.target cannot be read: {said}");
            Err(Failure::new(FailureKind::Check, reason))
        }
        Err(error) => Err(of_session(&error, "multi-user.target was not reached")),
    }
}

/// When the probe said hello, host's monotonic clock, nanoseconds.
pub(super) fn hello_ns(guest: &mut dyn Guest) -> Result<u64, Failure> {
    let arrival = guest.session().arrival();
    arrival.map(|arrival| arrival.hello_ns).ok_or_else(|| {
        Failure::new(FailureKind::Launch, "the guest was handed out before its probe said hello")
    })
}

/// Converts a failed session to the failure of a trial.
pub(super) fn of_session(error: &SessionError, what: &str) -> Failure {
    let kind = match error {
        SessionError::Deadline { .. } => FailureKind::Deadline,
        SessionError::Refused { .. } => FailureKind::Check,
        _ => FailureKind::GuestDied,
    };
    Failure::new(kind, format!("{what}: {}", describe(error)))
}
