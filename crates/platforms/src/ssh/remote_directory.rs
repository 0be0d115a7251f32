//! A run's directory on another machine: it has the programs and is held by its own connection.
//!
//! The connection lives as long as weigh, whatever ends weigh. Then the script at its other end
//! ends what runs there and removes the directory. The ledger records the directory anyway, because
//! the machine may be out of reach at that moment.

use super::guest::{CommandTransport, launch_by_probe};
use super::scripts::Script;
use super::target::Target;
use super::{PLATFORM, Ssh, by};
use crate::guest::platform_change;
use crate::helpers::{fnv_1a, is_readable};
use crate::{Guest, GuestRequest, Host, PlatformError, Result, setting};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weigh_host::command::Running;
use weigh_images::{KERNELS, PROBE};
use weigh_model::EnvironmentSpec;

/// Time limit for connecting and making the directory.
const CREATE_DEADLINE: Duration = Duration::from_secs(40);
/// Time limit for the script to remove the directory.
const RELEASE_DEADLINE: Duration = Duration::from_secs(20);
/// What the script prints once the directory exists.
const CREATED: &[u8] = b"kept\n";

/// What a machine reports about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// `uname -s`.
    pub(super) system: String,
    /// `uname -m`.
    pub(super) architecture: String,
    /// `uname -r`.
    pub(super) release: String,
    /// `id -u`.
    pub(super) user: u32,
    /// CPUs online; 0 if the machine does not report them.
    pub(super) cpus: u32,
    /// The address that the connection comes from, as the machine sees it.
    pub(super) client: Option<IpAddr>,
    /// The name in `/etc/os-release`, else the kernel's name and release.
    pub(super) operating_system: String,
}

impl Machine {
    /// Asks the machine for facts about itself.
    ///
    /// # Errors
    /// The machine cannot be reached or does not answer properly.
    pub(super) fn ask(target: &Target, log: Option<&Path>) -> Result<Self> {
        let output = target.run(&Script::Ask, log)?;
        let text = String::from_utf8_lossy(&output).into_owned();
        Self::read(&text).ok_or_else(|| target.failed(&format!("all it says of itself is `{}`", text.trim())))
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| line.trim().to_string());
        Some(Self {
            system: lines.next().filter(|line| !line.is_empty())?,
            architecture: lines.next()?,
            release: lines.next()?,
            user: lines.next()?.parse().ok()?,
            cpus: lines.next()?.parse().ok()?,
            client: lines.next()?.parse().ok().map(|address: IpAddr| address.to_canonical()),
            operating_system: lines.next().unwrap_or_default(),
        })
    }

    /// Whether this weighbridge's programs can run there.
    pub(super) fn takes_programs(&self) -> bool {
        self.system == "Linux" && self.architecture == std::env::consts::ARCH
    }
}

/// A directory on a machine, held for a run.
pub(super) struct RemoteDirectory {
    pub(super) target: Target,
    pub(super) machine: Machine,
    pub(super) directory: String,
    pub(super) by: CommandTransport,
    connection: Mutex<Connection>,
}

struct Connection {
    running: Running,
    /// Closing it ends the script.
    input: Option<OwnedFd>,
}

/// The directories that this process holds, by machine and directory. Another process of the same
/// run finds them only in the ledger.
static HELD: Mutex<BTreeMap<String, Arc<RemoteDirectory>>> = Mutex::new(BTreeMap::new());

impl RemoteDirectory {
    /// The directory for an environment of a run; it is made if this process does not hold it or
    /// its connection was lost.
    ///
    /// # Errors
    /// The machine cannot be reached, has no room for a directory, or does not support what the
    /// environment asks for.
    pub(super) fn of(host: &Host, request: &GuestRequest) -> Result<Arc<Self>> {
        let environment = &request.environment;
        let target = Target::of(environment)?;
        let directory = directory(host, environment);
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(&target, &directory);
        match held.get(&key) {
            Some(remote) if remote.is_alive() => return Ok(Arc::clone(remote)),
            _ => held.remove(&key),
        };
        let log = host.logs.join(format!("{PLATFORM}.log"));
        let machine = Machine::ask(&target, Some(&log))?;
        let by = by(environment, &target, &machine)?;
        let change = platform_change(PLATFORM, "directory", &directory, target.detail());
        if !host.ledger.standing().contains(&change) {
            host.ledger.record(change)?;
        }
        let connection = Mutex::new(hold(&target, &directory, &log)?);
        let remote = Arc::new(Self { target, machine, directory, by, connection });
        if by == CommandTransport::Probe {
            remote.equip(host, request, &log)?;
        }
        held.insert(key, Arc::clone(&remote));
        Ok(remote)
    }

    fn is_alive(&self) -> bool {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(connection.running.try_wait(), Ok(None))
    }

    /// Copies the programs, and starts a guest to verify that they are intact and run there.
    fn equip(&self, host: &Host, request: &GuestRequest, log: &Path) -> Result<()> {
        let programs = [(&host.programs.probe, PROBE), (&host.programs.kernels, KERNELS)];
        let mut expected = Vec::new();
        for (from, to) in programs {
            let bytes = fs::read(from).map_err(PlatformError::at("read", from))?;
            let digest = weigh_model::hex(&Sha256::digest(&bytes)[..]);
            let name = Path::new(to).file_name().unwrap_or_default().to_string_lossy();
            let path = format!("{}/{name}", self.directory);
            self.target.feed(&Script::Take(&path), bytes, log)?;
            expected.push((path, digest));
        }
        let request = GuestRequest { instance: u64::MAX, ..request.clone() };
        let mut guest = launch_by_probe(host, &request, self)?;
        let paths: Vec<String> = expected.iter().map(|(path, _)| path.clone()).collect();
        let facts = guest.session().facts(&paths, &[])?;
        guest.stop()?;
        for ((path, digest), seen) in expected.iter().zip(&facts.programs) {
            if seen.digest.as_ref() != Some(digest) {
                return Err(self.target.failed(&format!("its copy {path} is not what was sent")));
            }
        }
        Ok(())
    }

    /// Lets go of the directory; returns whether the script there confirmed its removal.
    fn release(&self) -> bool {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.input = None;
        matches!(connection.running.wait(RELEASE_DEADLINE), Ok(Some(status)) if status.success())
    }
}

/// Makes the directory and returns the connection that holds it.
fn hold(target: &Target, directory: &str, log: &Path) -> Result<Connection> {
    let mut running = target.invocation(&Script::Keep(directory)).log_to(log).spawn()?;
    let (input, output) = (running.take_input(), running.take_output());
    let output = output.ok_or_else(|| target.failed("ssh has no standard output"))?;
    if answers(&output, CREATED, Instant::now() + CREATE_DEADLINE) {
        return Ok(Connection { running, input });
    }
    let said = crate::guest::with_tail("the work directory could not be made there", log);
    Err(target.failed(&format!("{said}; directory= names another place")))
}

/// Whether exactly these bytes arrive in time.
fn answers(output: &OwnedFd, expected: &[u8], until: Instant) -> bool {
    let (mut seen, mut buffer) = (Vec::new(), [0; 64]);
    while seen.len() < expected.len() {
        if !is_readable(output, until.saturating_duration_since(Instant::now())) {
            return false;
        }
        match rustix::io::read(output, &mut buffer[..]) {
            Ok(0) | Err(_) => return false,
            Ok(n) => seen.extend_from_slice(&buffer[..n]),
        }
    }
    seen == expected
}

/// The path of the directory of a run's environment. Runs of the same name on two hosts get
/// different ones.
fn directory(host: &Host, environment: &EnvironmentSpec) -> String {
    let place = setting(&Ssh, environment, "directory").trim_end_matches('/');
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let text = format!("{boot} {} {environment}", host.work.display());
    let hash = fnv_1a(text.bytes());
    format!("{place}/weighbridge-{}-{:06x}", host.run, hash >> 40)
}

fn key(target: &Target, directory: &str) -> String {
    format!("{} {directory}", target.detail())
}

/// Ends whatever runs in a directory on the machine and removes it.
///
/// # Errors
/// The machine cannot be reached, or the directory remains.
pub(super) fn undo(directory: &str, target: &Target) -> Result<()> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(target, directory));
    if held.is_some_and(|remote| remote.release()) {
        return Ok(());
    }
    let ended = target.run(&Script::EndAll(directory), None);
    ended
        .map(|_| ())
        .map_err(|error| PlatformError::StillThere(format!("{directory} on {}: {error}", target.host)))
}

/// The log of a guest's client and probe.
pub(super) fn log_of(host: &Host, instance: u64) -> PathBuf {
    match instance {
        u64::MAX => host.logs.join(format!("{PLATFORM}-copy.log")),
        instance => host.logs.join(format!("{PLATFORM}-{instance}.log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_the_scripts_output() {
        let text = "FreeBSD\namd64\n14.1-RELEASE\n1001\n4\n::ffff:192.0.2.1\nFreeBSD 14.1-RELEASE\n";
        let machine = Machine::read(text).unwrap();
        assert_eq!((machine.user, machine.cpus), (1001, 4));
        assert_eq!(machine.client, Some([192, 0, 2, 1].into()));
        assert_eq!(machine.operating_system, "FreeBSD 14.1-RELEASE");
        assert!(!machine.takes_programs());
        let here = format!("Linux\n{}\n6.1\n0\n2\n\n", std::env::consts::ARCH);
        assert!(Machine::read(&here).unwrap().takes_programs());
        for text in ["", "\n", "Welcome to this machine\n", "Linux\nx86_64\n6.1\nroot\n2\n"] {
            assert_eq!(Machine::read(text), None, "{text:?}");
        }
    }
}
