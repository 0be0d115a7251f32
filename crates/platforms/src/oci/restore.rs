//! Saving guests and starting them again from what was saved.
//!
//! The channel is the container's standard streams. A runtime passes its own streams to a restored
//! container, so the pipes of the new guest take the place of those of the saved one, and the probe
//! does not notice.

use super::driver::Saving;
use super::runtime::Runtime;
use crate::helpers::version_text;
use crate::{PlatformError, Result};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::{Invocation, find_program};
use weigh_model::EnvironmentSpec;

/// How long writing a guest's memory to a disk may take.
const SAVE_DEADLINE: Duration = Duration::from_secs(120);
/// The first major version of CRIU that works. Older ones cannot restore processes on current
/// kernels, because they do not know how to place the vDSO.
const FIRST_CRIU: u32 = 4;
/// The runtime's image of a guest, in the directory given to [`save`].
const IMAGE: &str = "image";
/// CRIU's logs, beside the image.
const CRIU_LOGS: &str = "criu";

/// Checks that guests can be saved and restored here.
///
/// # Errors
/// They cannot, with the reason as a clause.
pub(super) fn possible(runtime: &Runtime, saving: Saving, environment: &EnvironmentSpec) -> Result<()> {
    let name = runtime.platform;
    let cannot = |why: String| Err(PlatformError::CannotRestore(why));
    match saving {
        Saving::Itself => return Ok(()),
        Saving::No => return cannot(format!("{name} has no command that restores guests")),
        Saving::CriuLibrary => {
            if !version_text(&runtime.binary)?.split_whitespace().any(|word| word == "+CRIU") {
                return cannot(format!("this {name} was built without CRIU"));
            }
        }
        Saving::Criu => {}
    }
    criu_is_usable(name, environment.get("criu").unwrap_or("criu"))
}

/// Checks that there is a CRIU for current kernels, for a platform that saves guests by it.
///
/// # Errors
/// There is none, with the reason as a clause.
pub(crate) fn criu_is_usable(name: &str, criu: &str) -> Result<()> {
    let refused = |found: String| {
        let needed = format!("{name} needs CRIU of version {FIRST_CRIU} or later to save guests");
        PlatformError::CannotRestore(format!("{needed}, and {found}"))
    };
    let program = find_program(criu).ok_or_else(|| refused("none is installed here".into()))?;
    match version(&version_text(&program).map_err(|error| refused(error.to_string()))?) {
        Some((major, _)) if major >= FIRST_CRIU => Ok(()),
        Some((_, version)) => Err(refused(format!("{} is version {version}", program.display()))),
        None => Err(refused(format!("{} does not report its version", program.display()))),
    }
}

/// Returns the version from the output of `criu --version`: its first number, and all of it.
fn version(said: &str) -> Option<(u32, &str)> {
    let version = said.lines().find_map(|line| line.strip_prefix("Version:"))?.trim();
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    Some((version[..digits].parse().ok()?, version))
}

/// Returns the error of a platform that cannot save guests here.
pub(super) fn unavailable(why: &PlatformError) -> PlatformError {
    PlatformError::Unavailable { reason: format!("this guest cannot be restored: {why}"), remedy: None }
}

/// Writes a guest to a directory, which ends its processes.
///
/// # Errors
/// The runtime failed.
pub(super) fn save(runtime: &Runtime, id: &str, directory: &Path, log: &Path) -> Result<()> {
    let image = directory.join(IMAGE);
    std::fs::create_dir_all(&image).map_err(PlatformError::at("make", &image))?;
    let command = with_directories(runtime.command().arg("checkpoint"), directory).arg(id);
    command.deadline(SAVE_DEADLINE).log_to(log).run_ok()?;
    Ok(())
}

/// Returns the beginning of the command that starts a guest from what was saved.
pub(super) fn command(runtime: &Runtime, saved: &Path) -> Invocation {
    with_directories(runtime.command().arg("restore"), saved)
}

fn with_directories(command: Invocation, directory: &Path) -> Invocation {
    let command = command.arg("--image-path").arg(directory.join(IMAGE));
    command.arg("--work-path").arg(directory.join(CRIU_LOGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_criu_is_read() {
        // criu 3.17.1 of Debian 12, and one built from a checkout.
        assert_eq!(version("Version: 3.17.1\n"), Some((3, "3.17.1")));
        assert_eq!(version("Version: 4.1\nGitID: v4.1-1-g0f0b\n"), Some((4, "4.1")));
        assert_eq!(version("something else"), None);
    }
}
