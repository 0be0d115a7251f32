//! What QEMU itself may do on the host, and thus a guest that takes QEMU over.
//!
//! QEMU needs no rights once it has opened everything that the machine needs. It then becomes a
//! user who owns nothing, unless it serves files of a root to the guest by 9p. A system call filter
//! keeps it from starting programs and from changing its priority or its CPUs, which weighbridge
//! sets from outside.
//!
//! The options that a QEMU accepts depend on its version and its build, so weighbridge tries them,
//! once per environment, by starting QEMU without a machine. Sources: qemu(1), `-sandbox`,
//! `-run-with` and `-runas`.

use crate::mapped::MONITOR_USER;
use std::path::Path;
use std::time::Duration;
use weigh_host::command::{CommandError, Invocation};

/// What the filter always denies.
const FILTER: &str = "on,obsolete=deny,spawn=deny,resourcecontrol=deny";
/// Time limit for QEMU to start without a machine and to exit.
const DEADLINE: Duration = Duration::from_secs(5);

/// The strictest options that this QEMU accepts; empty if it accepts none. `changes_user` says
/// whether it may give up root.
pub(super) fn options(binary: &Path, changes_user: bool) -> Vec<String> {
    for options in candidates(changes_user) {
        let asked = Invocation::new(binary)
            .args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"])
            .args(&options)
            .input("{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"quit\"}\n")
            .deadline(DEADLINE)
            .run();
        match asked {
            Ok(done) if done.status.success() => return options,
            Ok(_) => {}
            // It does not answer at all; the real start will show why.
            Err(CommandError::Deadline { .. }) => break,
            Err(_) => {}
        }
    }
    Vec::new()
}

/// The options to try, the strictest first. A filter against changing the user would also keep QEMU
/// from giving up root. It is not needed then: a user without rights cannot gain any that way.
fn candidates(changes_user: bool) -> Vec<Vec<String>> {
    let user = format!("{MONITOR_USER}:{MONITOR_USER}");
    let filter = ["-sandbox".to_string(), FILTER.into()];
    let strict = ["-sandbox".to_string(), format!("{FILTER},elevateprivileges=deny")];
    let run_with = ["-run-with".to_string(), format!("user={user}")];
    let run_as = ["-runas".to_string(), user];
    match changes_user {
        true => vec![
            [filter.clone(), run_with.clone()].concat(),
            [filter, run_as.clone()].concat(),
            run_with.into(),
            run_as.into(),
            strict.into(),
        ],
        false => vec![strict.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn options_of(script: &str, changes_user: bool) -> String {
        let base = tempfile::tempdir().unwrap();
        let binary = base.path().join("qemu");
        fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        options(&binary, changes_user).join(" ")
    }

    #[test]
    fn the_strictest_options_that_a_qemu_takes_are_used() {
        let user = format!("{MONITOR_USER}:{MONITOR_USER}");
        assert_eq!(options_of("exit 0", true), format!("-sandbox {FILTER} -run-with user={user}"));
        let old = "case \"$*\" in *-run-with*) exit 1;; esac";
        assert_eq!(options_of(old, true), format!("-sandbox {FILTER} -runas {user}"));
        let unfiltered = "case \"$*\" in *-run-with*|*-sandbox*) exit 1;; esac";
        assert_eq!(options_of(unfiltered, true), format!("-runas {user}"));
        assert_eq!(options_of(old, false), format!("-sandbox {FILTER},elevateprivileges=deny"));
        assert_eq!(options_of("exit 1", true), "");
    }
}
