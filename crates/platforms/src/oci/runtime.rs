//! A runtime's program and how it is called.

use super::driver::Oci;
use crate::{Host, Result, common_keys};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_model::EnvironmentSpec;

/// The deadline of any command of a runtime.
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

/// One runtime, as one environment uses it.
#[derive(Debug, Clone)]
pub(super) struct Runtime {
    /// Name of the platform.
    pub(super) platform: &'static str,
    /// The program.
    pub(super) binary: PathBuf,
    /// Where it keeps its state.
    pub(super) state: PathBuf,
    /// Options before every command.
    flags: Vec<String>,
    /// A mount of the host that it must not see.
    hidden: Option<PathBuf>,
    /// A directory of the host that it must find empty.
    emptied: Option<&'static str>,
}

impl Runtime {
    /// Finds the runtime of an environment: the binary that its keys name, or the installed one.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(driver: &Oci, host: &Host, environment: &EnvironmentSpec) -> Result<Self> {
        let kind = driver.kind();
        let platform = kind.about.name;
        host.require_root(&format!("{platform} containers require root"))?;
        let remedy =
            format!("install it with `{}`, or name the file with `{platform}:binary=PATH`", kind.install);
        // Absolute, because it may run in another directory.
        let binary = common_keys::program(driver, environment, platform, &remedy)?;
        Ok(Self {
            platform,
            binary,
            state: host.work.join(format!("{platform}-state")),
            flags: (kind.flags)(environment),
            emptied: (kind.emptied)(environment),
            hidden: host.hierarchy.unified().filter(|_| kind.refuses_hybrid).map(Into::into),
        })
    }

    /// A command of the runtime.
    pub(super) fn command(&self) -> Invocation {
        let command = Invocation::new(&self.binary).arg("--root").arg(&self.state).args(&self.flags);
        let command = command.deadline(COMMAND_DEADLINE);
        let command = match &self.hidden {
            Some(mount) => command.without_mount(mount),
            None => command,
        };
        match self.emptied {
            Some(directory) => command.with_empty(Path::new(directory)),
            None => command,
        }
    }

    /// Returns what another process needs to undo a container that is in this control group.
    pub(super) fn detail(&self, group: &str) -> Value {
        json!({"state": self.state, "group": group})
    }

    /// Has the runtime remove what is left of a container whose processes have ended.
    ///
    /// # Errors
    /// Something of it is still there.
    pub(super) fn delete(&self, id: &str) -> Result<()> {
        if !super::leftovers::is_known(&self.state, id) {
            return Ok(());
        }
        self.command().args(["delete", "--force", id]).run_ok()?;
        super::leftovers::remove_files(&self.state, id)
    }
}
