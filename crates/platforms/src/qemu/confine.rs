//! What QEMU itself may do on the host, and thus a guest that takes QEMU over.
//!
//! QEMU needs no rights once it has opened everything that the machine needs. It then becomes a
//! user who owns nothing, unless it serves files of a root to the guest by 9p. A system call filter
//! keeps it from starting programs and from changing its priority or its CPUs, which weighbridge
//! sets from outside.
//!
//! The options that a QEMU accepts depend on its version and its build, so weighbridge tries them,
//! once per program, by starting QEMU without a machine. Sources: qemu(1), `-sandbox`, `-run-with`
//! and `-runas`.

use crate::mapped::MONITOR_USER;
use crate::{PlatformError, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::command::{CommandError, Invocation};

/// What the filter always denies.
const FILTER: &str = "on,obsolete=deny,spawn=deny,resourcecontrol=deny";
/// Time limit for QEMU to start without a machine and to exit. That takes a tenth of a second; on a
/// busy host it must not decide what QEMU may do.
const DEADLINE: Duration = Duration::from_secs(60);

/// The strictest options that this QEMU accepts. `serves_files` says that it serves files by 9p, for
/// which it has to keep its user. For QEMU of an ordinary user they may be empty.
///
/// # Errors
/// QEMU does not start or does not answer; or it is root's, and does not filter its system calls or
/// give up root.
pub(crate) fn options(binary: &Path, is_root: bool, serves_files: bool) -> Result<Vec<String>> {
    static KNOWN: Mutex<BTreeMap<(PathBuf, bool), Vec<String>>> = Mutex::new(BTreeMap::new());
    let changes_user = is_root && !serves_files;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (binary.to_path_buf(), changes_user);
    if let Some(options) = known.get(&key) {
        return Ok(options.clone());
    }
    let mut said = String::new();
    for options in candidates(changes_user) {
        let asked = Invocation::new(binary)
            .args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"])
            .args(&options)
            .input("{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"quit\"}\n")
            .deadline(DEADLINE)
            .run_ok();
        match asked {
            Ok(_) => {
                known.insert(key, options.clone());
                return Ok(options);
            }
            Err(CommandError::Status { error, .. }) => said = error,
            Err(error) => return Err(error.into()),
        }
    }
    if !is_root {
        return Ok(Vec::new());
    }
    let what = if changes_user { "give up root and filter" } else { "filter" };
    Err(PlatformError::unavailable(
        format!("{} cannot {what} its system calls: {said}", binary.display()),
        "install `qemu-system` from your distribution, or build QEMU with libseccomp",
    ))
}

/// The options to try, the strictest first. A filter against changing the user would also keep QEMU
/// from giving up root. It is not needed then: a user without rights cannot gain any that way.
fn candidates(changes_user: bool) -> Vec<Vec<String>> {
    let user = format!("{MONITOR_USER}:{MONITOR_USER}");
    let sandbox = |denied: &str| ["-sandbox".to_string(), format!("{FILTER}{denied}")];
    let run_with = ["-run-with".to_string(), format!("user={user}")];
    let run_as = ["-runas".to_string(), user];
    match changes_user {
        true => [run_with, run_as].map(|user| [sandbox(""), user].concat()).into(),
        false => vec![sandbox(",elevateprivileges=deny").into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn options_of(script: &str, is_root: bool, serves_files: bool) -> Result<String> {
        let base = tempfile::tempdir().unwrap();
        let binary = base.path().join("qemu");
        fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        Ok(options(&binary, is_root, serves_files)?.join(" "))
    }

    #[test]
    fn the_strictest_options_that_a_qemu_takes_are_used() {
        let user = format!("{MONITOR_USER}:{MONITOR_USER}");
        let taken = |script, is_root, serves_files| options_of(script, is_root, serves_files).unwrap();
        assert_eq!(taken("exit 0", true, false), format!("-sandbox {FILTER} -run-with user={user}"));
        let old = "case \"$*\" in *-run-with*) exit 1;; esac";
        assert_eq!(taken(old, true, false), format!("-sandbox {FILTER} -runas {user}"));
        for is_root in [true, false] {
            let strict = format!("-sandbox {FILTER},elevateprivileges=deny");
            assert_eq!(taken(old, is_root, true), strict);
        }
        assert_eq!(taken("exit 1", false, false), "", "an ordinary user's QEMU has that user's rights");
    }

    #[test]
    fn a_qemu_that_keeps_root_or_is_not_filtered_is_refused() {
        let refused = |option: &str, serves_files| {
            let script = format!("case \"$*\" in *{option}*) echo no $0 >&2; exit 1;; esac");
            let Err(error) = options_of(&script, true, serves_files) else { panic!("{option} is taken") };
            error.to_string()
        };
        assert!(refused("-sandbox", false).contains("cannot give up root and filter its system calls"));
        assert!(refused("-run", false).contains("system calls: no /"), "it says why");
        assert!(refused("-sandbox", true).contains("cannot filter its system calls"));
    }
}
