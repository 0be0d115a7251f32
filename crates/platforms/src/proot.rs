//! Roots by PRoot, for users who have neither privileges nor user namespaces: it traces every
//! process of the guest (`ptrace(2)`) and rewrites the paths in its system calls. So a program pays
//! for each call with a path, or for every call where PRoot has no filter in the kernel.
//!
//! It isolates nothing: processes, devices and, unless the key `net` says otherwise, the network
//! are the host's, and a call that it does not know, such as `openat2(2)`, is given the host's
//! files. The kernel knows nothing of the guest's root, so another PRoot starts further programs in
//! it.
//!
//! weighbridge puts the root together as for other platforms, so that it can be read-only and have
//! a `/tmp` of its own.

use crate::common_keys::{self, Storage};
use crate::helpers::version_text;
use crate::spawn::Runtime;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result,
    namespaces, network,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_model::EnvironmentSpec;

const PROGRAM: &str = "proot";
const REMEDY: &str = "install PRoot 5.4 or later with `apt-get install proot` (Debian unstable), or name the file with `proot:binary=PATH`";

/// The oldest version that translates `statx(2)`, without which programs see the host's files.
const OLDEST: [u32; 2] = [5, 4];

/// The platform `proot`.
pub struct Proot;

const ABOUT: About = About {
    name: "proot",
    summary: "a root by PRoot, which traces every process and rewrites paths; isolates nothing else",
    keys: &common_keys::of_program(network::WORDS_FROM_HOST),
};

impl Platform for Proot {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { keeps_secrets: false, ..namespaces::capabilities() }.with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            let build = Build::of(&self.program(&request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(build.to_string())
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        self.program(&request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(&request.environment)?;
        let build = Build::of(&program)?;
        // For a file that it would leave in the host's /tmp when it is killed.
        let directory = Runtime::place(self, host, request);
        fs::create_dir_all(&directory).map_err(PlatformError::at("make the directory", &directory))?;
        let mut own = OsString::from("PROOT_TMP_DIR=");
        own.push(&directory);
        // Without the filter it waits for what the filter would report, and translates nothing.
        let unfiltered = (!build.filters).then(|| OsString::from("PROOT_NO_SECCOMP=1"));
        let variables: Vec<OsString> = [own].into_iter().chain(unfiltered).collect();
        let entry = entry(&program, &request.root.skeleton);
        let command = |_: Option<&Cgroup>, _: &Storage| -> Vec<OsString> {
            entry.iter().cloned().chain([weigh_images::PROBE.into()]).collect()
        };
        let runtime = Runtime {
            variables: &variables,
            assembled: true,
            entry: &entry,
            directory: Some(directory),
            ..Runtime::new(&command)
        };
        runtime.launch(self, host, request, namespaces::around(self, &request.environment))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Runtime::host_changes(self, request)
    }
}

impl Proot {
    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        common_keys::program(self, environment, PROGRAM, REMEDY)
    }
}

/// Returns the command line, without the program's, that starts a program in a root that is put
/// together.
fn entry(program: &Path, root: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec![program.into(), "-r".into(), root.into()];
    line.extend(["-w", "/", "-b", "/proc", "-b", "/sys", "-b", "/dev"].map(OsString::from));
    line
}

/// A build of PRoot.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    /// As it says it. Debian's build of 5.4.0 does not.
    version: Option<String>,
    /// It can have the kernel report only the system calls that it rewrites (`seccomp(2)`).
    filters: bool,
}

impl Build {
    /// Asks a program.
    fn of(program: &Path) -> Result<Self> {
        let build = Self::read(&version_text(program)?);
        match &build.version {
            Some(version) if is_too_old(version) => {
                let reason = format!(
                    "PRoot {version} does not translate statx(2), so that programs see the host's files"
                );
                Err(PlatformError::unavailable(reason, REMEDY))
            }
            _ => Ok(build),
        }
    }

    /// Reads what `--version` prints: a drawing with the version in it, and properties.
    fn read(text: &str) -> Self {
        // Not that of its licence, "v2".
        let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
        let is_version = |word: &&str| word.strip_prefix('v').is_some_and(is_number);
        Self {
            version: text.split_whitespace().find(is_version).map(|word| word[1..].into()),
            filters: !text.contains("seccomp_filter = no"),
        }
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "PRoot {version}")?,
            None => write!(f, "PRoot, which does not tell its version")?,
        }
        if self.filters { Ok(()) } else { write!(f, ", built without seccomp_filter") }
    }
}

fn is_too_old(version: &str) -> bool {
    let numbers: Vec<u32> = version.split(['.', '-']).map_while(|number| number.parse().ok()).collect();
    numbers.as_slice() < OLDEST.as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Debian's build of 5.4.0 prints.
    const OF_DEBIAN: &str = r" _____ _____              ___
|  __ \  __ \_____  _____|   |_
|   __/     /  _  \/  _  \    _|
|__|  |__|__\_____/\_____/\____| -

built-in accelerators: process_vm = yes, seccomp_filter = no

Visit https://proot-me.github.io for help, bug reports, suggestions, patches, ...
Copyright (C) 2023 PRoot Developers, licensed under GPL v2 or later.";

    #[test]
    fn builds_are_read() {
        let debian = Build::read(OF_DEBIAN);
        assert_eq!(debian, Build { version: None, filters: false });
        assert_eq!(
            debian.to_string(),
            "PRoot, which does not tell its version, built without seccomp_filter"
        );
        let text = OF_DEBIAN.replace("____| -", "____| v5.4.0-1-gabc").replace("= no", "= yes");
        let other = Build::read(&text);
        assert_eq!(other, Build { version: Some("5.4.0-1-gabc".into()), filters: true });
        assert_eq!(other.to_string(), "PRoot 5.4.0-1-gabc");
    }

    #[test]
    fn builds_that_show_the_hosts_files_are_too_old() {
        for old in ["5.1.0", "5.3.1-99a84175", "4.9"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["5.4.0", "5.4.0-1-gabc", "6.0"] {
            assert!(!is_too_old(new), "{new}");
        }
    }
}
