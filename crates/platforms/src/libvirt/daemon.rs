//! The daemon that a run uses: one of its own, or one that the user names.
//!
//! The system's libvirtd(8) has its paths built in. The run's own daemon finds directories of the
//! run at those paths, in a private mount namespace: it has none of the user's networks, pools and
//! domains, starts none, and leaves none. Even `/run` is the run's, so the daemon finds no system
//! bus on which to announce its guests to other daemons.

use super::virsh::{COMMAND_DEADLINE, Virsh};
use super::{PLATFORM, REMEDY};
use crate::guest::with_tail;
use crate::{Host, PlatformError, Result};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::accounts::Process;
use weigh_host::cache::CacheDirectory;
use weigh_host::cgroup::{Hierarchy, Limits};
use weigh_host::command::{Invocation, find_program};

/// Name of the daemon's program.
const DAEMON: &str = "libvirtd";
/// Time limit for the daemon to start.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Time limit for probing a QEMU's capabilities, for which the daemon starts it several times.
const PROBE_DEADLINE: Duration = Duration::from_secs(180);
/// Directories that are built into the daemon, each with its place below the daemon's own
/// directory. `/run` and the cache are handled separately.
const BUILT_IN: [(&str, &str); 3] =
    [("/etc/libvirt", "etc"), ("/var/lib/libvirt", "lib"), ("/var/log/libvirt", "log")];
/// Where the daemon caches the capabilities of QEMUs.
const CACHE: &str = "/var/cache/libvirt";
/// Where the daemon keeps its sockets.
const RUN: &str = "/run";
/// The longest path that a Unix socket can have (`unix(7)`, `sun_path`), bytes.
pub(super) const LONGEST_SOCKET: usize = 107;

/// Configuration of the daemon itself. Only root can open its socket, so it authenticates nobody.
const LIBVIRTD_CONF: &str = "unix_sock_group = \"root\"\nunix_sock_rw_perms = \"0700\"\nauth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\n";

/// Configuration of the daemon's QEMUs. If they ran as another user than root, the daemon would
/// probe QEMU's capabilities again at every call. weighbridge manages the control groups itself.
const QEMU_CONF: &str = "user = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\nremember_owner = 0\nsecurity_driver = \"none\"\n\
namespaces = []\ncgroup_controllers = []\nhugetlbfs_mount = []\nstdio_handler = \"file\"\nmax_core = 0\n";

/// A daemon, with the client for it.
#[derive(Debug, Clone)]
pub(super) struct Daemon {
    pub(super) virsh: Virsh,
    /// Set if the daemon is the run's own.
    own: Option<Own>,
}

/// A daemon of the run's own.
#[derive(Debug, Clone)]
struct Own {
    program: PathBuf,
    /// Holds the daemon's state. The name is short, because it is part of a socket's path.
    directory: PathBuf,
    group: String,
    log: PathBuf,
}

impl Daemon {
    /// Finds the programs, whether or not the daemon runs. An empty `uri` means a daemon of the
    /// run's own.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(host: &Host, uri: &str) -> Result<Self> {
        let log = host.logs.join(format!("{PLATFORM}-daemon.log"));
        if !uri.is_empty() {
            return Ok(Self { virsh: Virsh::find(uri, Some(&log))?, own: None });
        }
        if !host.is_root {
            return Err(PlatformError::unavailable(
                "running a libvirt daemon requires root",
                format!("{}; or name your own daemon, as in `uri=qemu:///session`", crate::remedy::AS_ROOT),
            ));
        }
        let program = find_program(DAEMON).ok_or_else(|| PlatformError::program_missing(DAEMON, REMEDY))?;
        let paths = BUILT_IN.iter().map(|(path, _)| *path).chain([CACHE, RUN]);
        if let Some(path) = paths.into_iter().find(|path| !Path::new(path).is_dir()) {
            let reason = format!("the directory {path}, which is built into {DAEMON}, is missing");
            return Err(PlatformError::unavailable(reason, REMEDY));
        }
        if host.work.starts_with(RUN) {
            return Err(PlatformError::unavailable(
                format!(
                    "the working directory is in {RUN}, which a daemon of the run's own needs for itself"
                ),
                "set WEIGH_STATE to a directory of root's on a disk: `export WEIGH_STATE=/var/lib/weighbridge`",
            ));
        }
        let directory = host.work.join("lv");
        let own = Own {
            program,
            group: format!("weighbridge-{}/{PLATFORM}-daemon", host.run),
            log: log.clone(),
            directory,
        };
        let uri = format!("qemu+unix:///system?socket={}", encoded(&own.socket()));
        Ok(Self { virsh: Virsh::find(&uri, Some(&log))?, own: Some(own) })
    }

    /// Starts the daemon if it is the run's own and does not run yet.
    ///
    /// # Errors
    /// The daemon does not start.
    pub(super) fn start(&self, host: &Host) -> Result<()> {
        if let Some(own) = &self.own {
            own.start(host)?;
        }
        Ok(())
    }

    /// Has the daemon probe what a QEMU can do with a machine type; the first time takes seconds.
    ///
    /// # Errors
    /// The daemon cannot run that QEMU; the error has libvirt's words.
    pub(super) fn probe(&self, emulator: &Path, machine: &str) -> Result<()> {
        let emulator = emulator.to_string_lossy();
        let words = ["domcapabilities", "--emulatorbin", &emulator, "--machine", machine];
        self.virsh.run(None, &words, PROBE_DEADLINE).map(|_| ()).map_err(|said| PlatformError::Launch {
            platform: PLATFORM,
            reason: format!("libvirt has no machine {machine} with {emulator}: {said}"),
            log: self.own.as_ref().map(|own| own.log.clone()),
        })
    }

    /// The version that the daemon reports.
    pub(super) fn version(&self) -> Result<String> {
        let said = self
            .virsh
            .run(None, &["version", "--daemon"], COMMAND_DEADLINE)
            .map_err(|error| PlatformError::launch(PLATFORM, error.to_string()))?;
        let of = |mark: &str| said.lines().find_map(|line| Some(line.split_once(mark)?.1.trim().to_string()));
        let library = of("Running against daemon:").unwrap_or_else(|| "of an unknown version".into());
        let emulator = of("Running hypervisor:").map(|words| format!(", {words}")).unwrap_or_default();
        Ok(format!("libvirt {library}{emulator}"))
    }

    /// The last line that the run's own daemon has logged about a domain's QEMU.
    pub(super) fn logged_end(&self, domain: &str) -> Option<String> {
        let log = self.own.as_ref()?.directory.join(format!("log/qemu/{domain}.log"));
        let text = String::from_utf8_lossy(&weigh_host::log::tail(&log, 16 << 10)).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        // As in `2026-01-01 00:00:00.000+0000: shutting down, reason=crashed`.
        Some(line.split_once("+0000: ").map_or(line, |(_, words)| words).trim().into())
    }

    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Processes that serve all guests.
    pub(super) fn processes(&self) -> Vec<Process> {
        match &self.own {
            Some(own) => {
                let members = Hierarchy::detect().members(own.group.as_ref());
                members.into_iter().map(|pid| Process { name: DAEMON.into(), pid }).collect()
            }
            None => [DAEMON, "virtqemud", "virtlogd"].iter().flat_map(|name| Process::named(name)).collect(),
        }
    }
}

impl Own {
    fn socket(&self) -> PathBuf {
        self.directory.join("libvirt-sock")
    }

    fn start(&self, host: &Host) -> Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if UnixStream::connect(self.socket()).is_ok() {
            return Ok(());
        }
        check_length(&self.socket())?;
        let make =
            |path: &Path| fs::create_dir_all(path).map_err(PlatformError::at("make the directory", path));
        let write = |name: &str, text: &str| {
            let path = self.directory.join("etc").join(name);
            fs::write(&path, text).map_err(PlatformError::at("write", &path))
        };
        let cache = CacheDirectory::open().map(|cache| cache.path().join(PLATFORM));
        // The capabilities of a QEMU stay valid while that program is unchanged, which the daemon
        // checks itself.
        let cache = cache.unwrap_or_else(|| self.directory.join("cache"));
        let run = self.directory.join("run");
        let mut mounts = vec![(Path::new(RUN), run.clone()), (Path::new(CACHE), cache)];
        mounts.extend(BUILT_IN.iter().map(|(path, own)| (Path::new(*path), self.directory.join(own))));
        for (_, own) in &mounts {
            make(own)?;
        }
        // The default directory's path is too long for the names of some sockets.
        let sockets = format!("unix_sock_dir = \"{}\"\n", self.directory.display());
        write("libvirtd.conf", &(sockets + LIBVIRTD_CONF))?;
        write("qemu.conf", QEMU_CONF)?;
        let group = host.hierarchy.create(&host.ledger, &self.group, &Limits::default())?;
        // Warnings and errors.
        let output = format!("3:file:{}", self.log.display());
        let mut command = Invocation::new(&self.program).arg("--daemon");
        command = command.arg("--config").arg("/etc/libvirt/libvirtd.conf").arg("--pid-file");
        command = command.arg(run.join("libvirtd.pid")).env("LIBVIRT_LOG_OUTPUTS", output);
        for (path, own) in &mounts {
            command = command.with_own(path, own);
        }
        // The socket exists by the time that the command, which goes into the background, returns.
        let started = command.pre_exec_cgroup(&group).deadline(READY_DEADLINE).log_to(&self.log).run_ok();
        let connected = started.map_err(|error| error.to_string()).and_then(|_| {
            UnixStream::connect(self.socket()).map_err(|error| format!("it does not listen: {error}"))
        });
        connected.map(|_| ()).map_err(|reason| PlatformError::Launch {
            platform: PLATFORM,
            reason: with_tail(&format!("a daemon of the run's own did not come up: {reason}"), &self.log),
            log: Some(self.log.clone()),
        })
    }
}

/// Checks that a Unix socket can have this path.
///
/// # Errors
/// The path is too long.
pub(super) fn check_length(socket: &Path) -> Result<()> {
    let length = socket.as_os_str().len();
    if length <= LONGEST_SOCKET {
        return Ok(());
    }
    Err(PlatformError::unavailable(
        format!("the path {} is too long: {length} bytes, limit {LONGEST_SOCKET}", socket.display()),
        "set WEIGH_STATE to a directory of root's with a short path: `export WEIGH_STATE=/var/lib/wb`",
    ))
}

/// A path in the query of a URI (RFC 3986, section 2.1).
fn encoded(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _never_fails = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_into_uris_and_sockets() {
        assert_eq!(encoded(Path::new("/a b/c&d?-.sock")), "/a%20b/c%26d%3F-.sock");
        check_length(Path::new(&"x".repeat(LONGEST_SOCKET))).unwrap();
        let error = check_length(Path::new(&"x".repeat(LONGEST_SOCKET + 1))).unwrap_err().to_string();
        assert!(error.contains("WEIGH_STATE"), "{error}");
    }
}
