//! What a crash leaves of a container, and how another process removes it.
//!
//! The container's control group has its own ledger entry, made before the container's and so
//! undone after it. This module undoes the rest: the runtime that waits outside of the group, which
//! would go on making a container if only the group were removed, and the runtime's files.

use crate::helpers::{has_argument, processes};
use crate::{PlatformError, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::is_owned;
use weigh_host::deadlines;

/// Removes what a crash left of a container, except what its control group holds.
///
/// # Errors
/// Something is still there.
pub(super) fn undo(what: &str, id: &str, detail: &Value) -> Result<()> {
    let Some(state) = detail.get("state").and_then(Value::as_str).map(PathBuf::from) else {
        let unknown = format!("the ledger does not say where the {what} {id} is");
        return Err(PlatformError::StillThere(unknown));
    };
    // Both become parts of paths that are removed.
    if id.contains('/') || id.is_empty() || id.starts_with('.') || !state.is_absolute() {
        return Err(PlatformError::StillThere(format!("`{id}` in {} names no container", state.display())));
    }
    let group = detail.get("group").and_then(Value::as_str).unwrap_or_default();
    kill_serving(&state, id, group)?;
    remove_files(&state, id)
}

/// Files and directories of a container: of runc and crun, and of runsc.
fn files(state: &Path, id: &str) -> [PathBuf; 4] {
    let of_runsc = |ending: &str| state.join(format!("{id}_sandbox:{id}.{ending}"));
    [state.join(id), of_runsc("state"), of_runsc("lock"), state.join(format!("runsc-{id}.sock"))]
}

/// Whether a runtime may know a container.
pub(super) fn is_known(state: &Path, id: &str) -> bool {
    files(state, id).iter().any(|path| path.symlink_metadata().is_ok())
}

/// Removes the runtime's files of a container that is gone.
///
/// # Errors
/// Something could not be removed.
pub(super) fn remove_files(state: &Path, id: &str) -> Result<()> {
    for path in files(state, id) {
        let removed = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(_) => continue,
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(PlatformError::at("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Kills the processes of a runtime that serve a container: those that have among their arguments
/// its name, which no other container ever has, and the runtime's state directory (for containerd
/// its socket). Those in the container's group may be frozen, and end when the group is undone.
///
/// # Errors
/// Some do not end.
pub(crate) fn kill_serving(state: &Path, id: &str, group: &str) -> Result<()> {
    let until = Instant::now() + deadlines::death();
    loop {
        let mut outside = 0;
        for pid in serving(state, id) {
            let Some(number) = Pid::from_raw(pid.cast_signed()) else { continue };
            let Ok(handle) = pidfd_open(number, PidfdFlags::empty()) else { continue };
            // Checked again: from here on the handle refers to the process that is killed.
            if serves(pid, state, id) {
                outside += usize::from(!is_in(pid, group));
                let _gone_meanwhile = pidfd_send_signal(handle, Signal::KILL);
            }
        }
        if outside == 0 {
            return Ok(());
        }
        if Instant::now() > until {
            let what = format!("{outside} processes of its runtime do not end");
            return Err(PlatformError::StillThere(what));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn serving(state: &Path, id: &str) -> Vec<u32> {
    processes().filter(|pid| serves(*pid, state, id)).collect()
}

/// Whether a process is in a control group of this path, in any hierarchy.
fn is_in(pid: u32, group: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .any(|path| path.trim_start_matches('/') == group)
}

/// Whether a process serves a container. A zombie has no arguments any more, and so serves none. A
/// process of another user does not count, because that user could start new ones for ever.
fn serves(pid: u32, state: &Path, id: &str) -> bool {
    let state = state.as_os_str().as_bytes();
    let is_state = |word: &[u8]| word == state || word.strip_prefix(b"--root=") == Some(state);
    has_argument(pid, |word| word == id.as_bytes()) && has_argument(pid, is_state) && is_owned(pid, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weigh_host::command::Invocation;

    #[test]
    fn runtimes_of_one_container_are_killed_and_its_files_removed() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path();
        for name in ["c-1", "c-10"] {
            fs::create_dir(state.join(name)).unwrap();
            fs::write(state.join(name).join("state.json"), "{}").unwrap();
        }
        fs::write(state.join("c-1_sandbox:c-1.lock"), "").unwrap();
        let waiting = |id: &str| {
            let script = "sleep 60; true";
            let words = ["-c", script, "runtime", "--root", state.to_str().unwrap(), "run", id];
            Invocation::new("sh").args(words).spawn().unwrap()
        };
        let (mut mine, mut other) = (waiting("c-1"), waiting("c-10"));
        assert!(is_known(state, "c-1") && !is_known(state, "c-2"));
        // A shell that has not been executed yet has this test's arguments.
        while serving(state, "c-1").is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let detail = json!({"state": state, "group": "weighbridge-r/c-1"});
        undo("container", "c-1", &detail).unwrap();
        undo("container", "c-1", &detail).unwrap();
        assert!(mine.wait(Duration::from_secs(5)).unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        assert!(!is_known(state, "c-1") && is_known(state, "c-10"));
        assert!(undo("container", "c-1", &json!({})).is_err());
        for elsewhere in ["../c-10", "", "."] {
            assert!(undo("container", elsewhere, &detail).is_err() && is_known(state, "c-10"), "{elsewhere}");
        }
    }

    /// Another user can start processes of any arguments, as many and as often as they like.
    #[test]
    fn processes_of_other_users_keep_nothing_from_being_undone() {
        if !weigh_host::facts::is_root() {
            eprintln!("SKIPPED processes_of_other_users_keep_nothing_from_being_undone: needs root");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let state = base.path().display().to_string();
        let words =
            ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "sleep 60; true", "runtime"];
        let mut theirs =
            Invocation::new("setpriv").args(words).args(["--root", &state, "run", "c-1"]).spawn().unwrap();
        while is_owned(theirs.pid(), &[]) || !has_argument(theirs.pid(), |word| word == b"c-1") {
            std::thread::sleep(Duration::from_millis(1));
        }
        undo("container", "c-1", &json!({"state": state, "group": "weighbridge-r/c-1"})).unwrap();
        assert!(theirs.try_wait().unwrap().is_none(), "it is not ours to kill");
    }
}
