//! virsh(1), the client.

use crate::vm::readback::MonitorError;
use crate::{PlatformError, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::cgroup::Cgroup;
use weigh_host::command::{CommandError, Finished, Invocation, find_program};

/// Time limit for a quick command.
pub(super) const COMMAND_DEADLINE: Duration = Duration::from_secs(30);
/// The prefix of virsh's error messages.
const MARK: &str = "error: ";
/// virsh's messages for a domain that does not exist (`VIR_ERR_NO_DOMAIN`).
const NO_DOMAIN: [&str; 2] = ["failed to get domain", "Domain not found"];
/// virsh's message where no daemon listens.
const NO_DAEMON: &str = "Failed to connect socket";
/// virsh's message for a domain that exists and does not run.
const NOT_RUNNING: &str = "domain is not running";

/// A command that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum VirshError {
    /// Nothing listens where the daemon would, in libvirt's words.
    #[error("{0}")]
    NoDaemon(String),
    /// Anything else, in libvirt's words.
    #[error("{0}")]
    Failed(String),
}

impl VirshError {
    fn said(error: &str) -> Self {
        let said = said(error);
        if said.contains(NO_DAEMON) { Self::NoDaemon(said) } else { Self::Failed(said) }
    }
}

impl From<VirshError> for MonitorError {
    fn from(error: VirshError) -> Self {
        Self(error.to_string())
    }
}

/// A client of one daemon.
#[derive(Debug, Clone)]
pub(super) struct Virsh {
    program: PathBuf,
    uri: String,
    log: Option<PathBuf>,
}

/// The outcome of a command about a domain that may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The command was carried out.
    Done,
    /// The domain does not exist or does not run.
    Gone,
}

impl Virsh {
    /// The installed client, for the daemon behind a URI.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(uri: &str, log: Option<&Path>) -> Result<Self> {
        let missing = || PlatformError::program_missing("virsh", super::REMEDY);
        let program = find_program("virsh").ok_or_else(missing)?;
        Ok(Self { program, uri: uri.into(), log: log.map(Into::into) })
    }

    /// The same client, logged elsewhere.
    pub(super) fn logged_to(&self, log: &Path) -> Self {
        Self { log: Some(log.into()), ..self.clone() }
    }

    /// The URI, which the ledger keeps to find the daemon again.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// Runs a command, in a control group if one is given.
    ///
    /// # Errors
    /// The command failed; the error has libvirt's words.
    pub(super) fn run(
        &self,
        cgroup: Option<&Cgroup>,
        arguments: &[&str],
        deadline: Duration,
    ) -> Result<String, VirshError> {
        let done = self.finish(cgroup, arguments, deadline)?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.output).trim().into());
        }
        Err(VirshError::said(&String::from_utf8_lossy(&done.error)))
    }

    /// Runs a command about a domain that may be gone.
    ///
    /// # Errors
    /// The command failed otherwise; the error has libvirt's words.
    pub(super) fn run_if_there(&self, arguments: &[&str], deadline: Duration) -> Result<Ended, VirshError> {
        let done = self.finish(None, arguments, deadline)?;
        if done.status.success() {
            return Ok(Ended::Done);
        }
        let error = String::from_utf8_lossy(&done.error).into_owned();
        if NO_DOMAIN.iter().any(|words| error.contains(words)) || error.contains(NOT_RUNNING) {
            return Ok(Ended::Gone);
        }
        Err(VirshError::said(&error))
    }

    fn finish(
        &self,
        cgroup: Option<&Cgroup>,
        arguments: &[&str],
        deadline: Duration,
    ) -> Result<Finished, VirshError> {
        let command = Invocation::new(&self.program).args(["--connect", &self.uri, "--quiet"]);
        let mut command = command.args(arguments).env("LC_ALL", "C").deadline(deadline);
        if let Some(log) = &self.log {
            command = command.log_to(log);
        }
        if let Some(cgroup) = cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        command.run().map_err(|error| {
            VirshError::Failed(match error {
                CommandError::Deadline { after, error, .. } => {
                    let words = if error.is_empty() { String::new() } else { format!(": {}", said(&error)) };
                    format!("virsh {} got no answer within {after:?}{words}", arguments[0])
                }
                other => other.to_string(),
            })
        })
    }
}

/// The first line of libvirt's own error message, which follows virsh's line about what it tried.
fn said(error: &str) -> String {
    let lines: Vec<&str> = error.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    let words = lines.get(1).or(lines.first()).copied().unwrap_or(error);
    words.lines().next().unwrap_or_default().trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of libvirt 9.0.0.
    #[test]
    fn libvirts_error_is_quoted() {
        let refused = "error: Failed to create domain from /w/x.xml\n\
error: XML document failed to validate against schema: Unable to validate doc against /usr/share/libvirt/schemas/domain.rng\n\
Element domain has extra content: devices\n";
        assert!(said(refused).starts_with("XML document failed to validate"), "{}", said(refused));
        assert!(!said(refused).contains("extra content"));
        assert_eq!(said("error: failed to get domain 'x'\n"), "failed to get domain 'x'");
        assert_eq!(said("virsh: no such thing\nmore"), "virsh: no such thing");
        assert_eq!(said(""), "");
    }
}
