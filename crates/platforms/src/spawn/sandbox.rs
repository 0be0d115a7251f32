//! Sandboxes by one program of the host, without a daemon. Their differences are data.
//!
//! The program finds the guest's root put together at the skeleton, in its own mount namespace, and
//! enters it by its own means. So no program needs to know the mounts of a root, and every guest
//! has the same ones. The program starts in the guest's control group and stays there: all that it
//! costs is charged to the guest.

use super::{OwnMount, Runtime, Start};
use crate::common_keys::{self, Storage};
use crate::helpers::version_text;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, setting,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_model::EnvironmentSpec;

/// The differences between programs.
pub(crate) struct SandboxKind {
    pub(crate) about: About,
    /// The program, where the key `binary` names no other.
    pub(crate) program: &'static str,
    /// What to do when it is missing.
    pub(crate) remedy: &'static str,
    /// What its guests can do, apart from their networks.
    pub(crate) capabilities: fn() -> Capabilities,
    /// How a guest is made.
    pub(crate) make: fn(&LaunchContext<'_>) -> Result<LaunchSpec>,
}

/// A guest that is about to be made.
pub(crate) struct LaunchContext<'a> {
    platform: &'a Sandbox,
    pub(crate) request: &'a GuestRequest,
    /// The guest's directory below the run's work directory, removed with the guest. Not made yet.
    pub(crate) directory: PathBuf,
}

impl LaunchContext<'_> {
    /// The value of a key, or its default.
    pub(crate) fn setting(&self, key: &str) -> &str {
        setting(self.platform, &self.request.environment, key)
    }

    /// Where the guest's root is put together.
    pub(crate) fn root(&self) -> &Path {
        &self.request.root.skeleton
    }

    /// Makes the guest's directory.
    pub(crate) fn make_directory(&self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .map_err(PlatformError::at("make the directory", &self.directory))
    }
}

/// How a guest is made.
#[derive(Default)]
pub(crate) struct LaunchSpec {
    /// Arguments of the program. The probe's place in the guest follows them.
    pub(crate) arguments: Vec<OsString>,
    /// Environment variables of the program, as `NAME=value`.
    pub(crate) variables: Vec<OsString>,
    /// Mounts that only the program and the guest see, beside the root.
    pub(crate) mounts: Vec<OwnMount>,
}

/// The platform of one program.
pub struct Sandbox(&'static SandboxKind);

impl Sandbox {
    pub(crate) const fn new(kind: &'static SandboxKind) -> Self {
        Self(kind)
    }

    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        common_keys::program(self, environment, self.0.program, self.0.remedy)
    }

    /// Returns the program's namespaces. An ordinary user may mount only in a user namespace.
    fn namespaces(&self, environment: &EnvironmentSpec) -> UnshareFlags {
        let mut flags = UnshareFlags::NEWNS;
        flags.set(UnshareFlags::NEWUSER, !weigh_host::facts::is_root());
        let none = setting(self, environment, "net") == "none";
        flags.set(UnshareFlags::NEWNET, none);
        flags
    }
}

impl Platform for Sandbox {
    fn about(&self) -> &'static About {
        &self.0.about
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        (self.0.capabilities)().with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            let version = version_text(&self.program(&request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(format!("{} {}", self.0.program, version_number(&version)))
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        self.program(&request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        if self.capabilities(&request.environment).needs_root {
            host.require_root(&format!("{} requires root", self.0.program))?;
        }
        let program = self.program(&request.environment)?;
        let directory = host.work.join(format!("{}-{}-made", self.name(), request.instance));
        let making = LaunchContext { platform: self, request, directory: directory.clone() };
        let made = (self.0.make)(&making)?;
        let command = |_: Option<&Cgroup>, _: &Storage| -> Vec<OsString> {
            let arguments = made.arguments.iter().cloned();
            std::iter::once(program.clone().into())
                .chain(arguments)
                .chain([weigh_images::PROBE.into()])
                .collect()
        };
        let runtime = Runtime {
            mounts: &made.mounts,
            variables: &made.variables,
            assembled: true,
            directory: Some(directory),
            ..Runtime::new(&command)
        };
        let namespaces = self.namespaces(&request.environment);
        let start = Start { runtime: Some(&runtime), ..Start::new(self.name(), request, namespaces) };
        Ok(Box::new(start.launch_in(host, request, making.setting("net"))?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let net = setting(self, &request.environment, "net");
        Start::new(self.name(), request, UnshareFlags::empty()).host_changes_in(net)
    }
}

/// Returns the first word of a program's answer that begins with a digit.
fn version_number(text: &str) -> &str {
    text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_found_in_program_output() {
        assert_eq!(version_number("0.31\n"), "0.31");
        assert_eq!(version_number("none"), "?");
    }
}
