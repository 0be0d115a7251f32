//! A machine that runs its own `weigh` as part of a fleet: this host only starts and ends it.
//!
//! `weigh` itself and the plan are copied into a directory of the account that `ssh` enters, or of a
//! pod that is made for it; the run directory is copied back. The connection holds the run: when it
//! ends, the run ends after its current trial, as by Ctrl-C, and can be continued later.

use crate::pod::fleet::NodePod;
use crate::ssh::scripts::{NO_RUN, Script};
use crate::ssh::target::{CONNECTION_FAILED, SCRIPT_DEADLINE, Target};
use crate::ssh::{PLATFORM, Ssh};
use crate::{PlatformError, Result, resolve, setting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running};
use weigh_host::deadlines;
use weigh_host::facts::identity;
use weigh_host::ledger::Change;
use weigh_model::{EnvironmentSpec, SpecError};

/// The ledger's word for a fleet's directory on a machine.
pub(crate) const DIRECTORY: &str = "fleet";
/// Keys of the platform that do not apply to a machine of a fleet.
const UNFIT: [(&str, &str); 2] = [
    ("by", "a machine of a fleet runs weigh itself"),
    ("cpus", "the plan says which CPUs guests have: give --cpus"),
];
/// Time limit for copying the programs, the plan or a run over a slow line.
const TRANSFER_DEADLINE: Duration = Duration::from_secs(1800);
/// Time limit for a run to end its trial after it is told to.
const END: Duration = Duration::from_secs(600);
/// The same while `weigh clean` waits.
const CLEAN_END: Duration = Duration::from_secs(20);
/// What the errors say was attempted if the client's pipe cannot be read, or the client does not
/// end.
const READ: &str = "read from the machine";
const WAIT: &str = "wait for the connection to end";

/// A machine of a fleet.
#[derive(Debug, Clone)]
pub struct FleetMachine {
    way: Way,
    parent: String,
}

/// How a machine is reached.
#[derive(Debug, Clone)]
enum Way {
    /// By an account that `ssh` enters.
    Ssh(Target),
    /// By a pod on a node of a cluster.
    Pod(NodePod),
}

/// What a machine reports about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// `uname -s`.
    pub system: String,
    /// `uname -m`.
    pub architecture: String,
    /// Identifies the boot of its kernel; empty if the machine does not report it.
    pub boot: String,
    /// Equals [`weigh_model::HostFacts::identity`] of a run that is made there.
    pub identity: String,
    /// What machines that measure shares of one plan must have in common, by name: architecture,
    /// kernel, CPUs, memory (rounded to GiB) and CPU model. What the machine does not report is
    /// absent.
    pub kind: BTreeMap<&'static str, String>,
}

impl FleetMachine {
    /// Checks the environment that says how a machine is reached.
    ///
    /// # Errors
    /// A key or value is wrong; the error points at it.
    pub fn check(spec: &EnvironmentSpec) -> std::result::Result<(), SpecError> {
        if spec.platform != PLATFORM {
            return NodePod::check(spec);
        }
        if let Some((key, why)) = UNFIT.iter().find(|(key, _)| spec.get(key).is_some()) {
            return Err(spec.key_error(key, *why, "leave it out"));
        }
        resolve(spec).map(drop)
    }

    /// The machine that an environment string names.
    ///
    /// # Errors
    /// The client, `ssh` or `kubectl`, is not installed.
    pub fn of(spec: &EnvironmentSpec) -> Result<Self> {
        if spec.platform != PLATFORM {
            return Ok(Self { way: Way::Pod(NodePod::of(spec)?), parent: NodePod::PARENT.into() });
        }
        let parent = setting(&Ssh, spec, "directory").trim_end_matches('/').to_string();
        Ok(Self { way: Way::Ssh(Target::of(spec)?), parent })
    }

    /// Asks the machine for facts about itself.
    ///
    /// # Errors
    /// The machine cannot be reached or does not answer properly.
    pub fn ask(&self, log: &Path) -> Result<MachineFacts> {
        let target = match &self.way {
            Way::Ssh(target) => target,
            Way::Pod(pod) => return pod.ask(),
        };
        let output = target.run(&Script::FleetAsk, Some(log))?;
        let text = String::from_utf8_lossy(&output).into_owned();
        let facts = MachineFacts::read(&text);
        facts.ok_or_else(|| target.failed(&format!("all it says of itself is `{}`", text.trim())))
    }

    /// The client with a script for the directory.
    fn invocation(&self, directory: &str, script: &Script<'_>) -> Invocation {
        match &self.way {
            Way::Ssh(target) => target.invocation(script),
            Way::Pod(pod) => pod.invocation(directory, script),
        }
    }

    /// Runs a client to its end and returns what it printed.
    fn finish(&self, command: Invocation, log: Option<&Path>, deadline: Duration) -> Result<Vec<u8>> {
        match &self.way {
            Way::Ssh(target) => target.finish(command, log, deadline),
            Way::Pod(pod) => pod.finish(command, log, deadline),
        }
    }

    /// The error for something that the machine refused.
    fn failed(&self, said: &str) -> PlatformError {
        match &self.way {
            Way::Ssh(target) => target.failed(said),
            Way::Pod(pod) => pod.failed(said),
        }
    }

    /// The path of the directory of this name on the machine.
    pub fn directory(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    /// The ledger's entry for the directory, by which `weigh clean` removes it.
    pub fn change(&self, directory: &str) -> Change {
        match &self.way {
            Way::Ssh(target) => Change::Platform {
                platform: PLATFORM.into(),
                what: DIRECTORY.into(),
                id: directory.into(),
                detail: target.detail(),
            },
            Way::Pod(pod) => pod.change(directory),
        }
    }

    /// Makes the pod of a directory, if the machine is reached by one, and returns when it runs. The
    /// caller has recorded the directory.
    ///
    /// # Errors
    /// The cluster refuses, or the pod does not run.
    pub fn make(&self, directory: &str, log: &Path) -> Result<()> {
        match &self.way {
            Way::Ssh(_) => Ok(()),
            Way::Pod(pod) => pod.make(directory, log),
        }
    }

    /// Makes the directory and copies `weigh` and the plan into it. The caller has recorded the
    /// directory. Returns the output of `weigh --version` there.
    ///
    /// # Errors
    /// The machine refuses, or does not run the program.
    pub fn equip(&self, directory: &str, weigh: &[u8], plan: &[u8], log: &Path) -> Result<String> {
        let script = Script::FleetEquip(directory, plan.len());
        let client = match &self.way {
            Way::Ssh(target) => target.invocation(&script),
            Way::Pod(pod) => pod.first_invocation(directory, &script)?,
        };
        let equip = client.input([plan, weigh].concat());
        let said = self.finish(equip, Some(log), TRANSFER_DEADLINE).map_err(|error| match &self.way {
            Way::Ssh(_) => error,
            Way::Pod(pod) => pod.not_entered(directory, error),
        })?;
        Ok(String::from_utf8_lossy(&said).trim().into())
    }

    /// Sends an unfinished run into the directory, as an archive that `write` writes.
    ///
    /// # Errors
    /// The connection ends, or the machine refuses.
    pub fn send_run(
        &self,
        directory: &str,
        log: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let mut running = self.spawn(directory, &Script::FleetSend(directory), log)?;
        let input = running.take_input();
        let written = input.map_or(Ok(()), |input| write(&mut Until::new(input, TRANSFER_DEADLINE)?));
        let status = running.wait(deadlines::scaled(SCRIPT_DEADLINE)).map_err(PlatformError::io(WAIT))?;
        if written.is_ok() && status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let said = crate::guest::with_tail("its unfinished run could not be copied there", log);
        Err(self.failed(&said))
    }

    /// Runs `weigh` in the directory; what it prints on both streams is on the returned process's
    /// standard output. When its standard input is closed, the run ends after its trial.
    ///
    /// # Errors
    /// The client does not start.
    pub fn start(&self, directory: &str, arguments: &[String], log: &Path) -> Result<Running> {
        let all: Vec<String> = std::iter::once(directory.to_string()).chain(arguments.to_vec()).collect();
        self.spawn(directory, &Script::FleetRun(&all), log)
    }

    /// The exit code of `weigh`, from that of the client which ran it; `None` if the connection did
    /// not hold. The client has ended, and its log is whole.
    pub fn exit_code(&self, code: Option<i32>, log: &Path) -> Option<i32> {
        match &self.way {
            Way::Ssh(_) => code.filter(|code| *code != CONNECTION_FAILED),
            Way::Pod(_) => NodePod::exit_code(code, log),
        }
    }

    /// Why the machine is not there any more, if that is known: its pod was evicted, deleted or
    /// killed.
    pub fn fault(&self, directory: &str) -> Option<String> {
        match &self.way {
            Way::Ssh(_) => None,
            Way::Pod(pod) => pod.fault(directory),
        }
    }

    /// Ends what runs in the directory, and passes its run directory to `read` as an archive.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// The machine cannot be reached, or `read` fails.
    pub fn collect<E: From<PlatformError>>(
        &self,
        directory: &str,
        log: &Path,
        read: impl FnOnce(&mut dyn Read) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        let mut running = self.spawn(directory, &Script::FleetCollect(directory, END.as_secs()), log)?;
        let output = running.take_output();
        let output = output.ok_or_else(|| self.failed("its connection has no standard output"))?;
        let mut output = Until::new(output, TRANSFER_DEADLINE).map_err(PlatformError::io(READ))?;
        let mut first = [0; 1];
        let begun = output.read(&mut first).map_err(PlatformError::io(READ))? > 0;
        let is_there = begun && first != [NO_RUN];
        if is_there {
            read(&mut (&first[..]).chain(&mut output))?;
        }
        let status = running.wait(deadlines::scaled(SCRIPT_DEADLINE)).map_err(PlatformError::io(WAIT))?;
        if !begun || !status.is_some_and(|status| status.success()) {
            // What was in a pod is gone with it.
            if let Way::Pod(pod) = &self.way
                && !begun
                && pod.has_ended(directory)?
            {
                return Ok(false);
            }
            let said = crate::guest::with_tail("its run could not be read", log);
            return Err(self.failed(&said).into());
        }
        Ok(is_there)
    }

    /// Removes the directory, in which nothing may run any more, and its pod.
    ///
    /// # Errors
    /// The machine cannot be reached, or the directory remains.
    pub fn remove(&self, directory: &str, log: Option<&Path>) -> Result<()> {
        let script = Script::FleetRemove(directory);
        let removed = self.finish(self.invocation(directory, &script), log, SCRIPT_DEADLINE);
        match &self.way {
            Way::Ssh(_) => removed.map(drop),
            // A directory that cannot be removed goes with its pod.
            Way::Pod(pod) => pod.delete(directory),
        }
    }

    fn end(&self, directory: &str, within: Duration, log: Option<&Path>) -> Result<()> {
        let script = Script::FleetEnd(directory, within.as_secs());
        self.finish(self.invocation(directory, &script), log, within + SCRIPT_DEADLINE).map(drop)
    }

    fn spawn(&self, directory: &str, script: &Script<'_>, log: &Path) -> Result<Running> {
        Ok(self.invocation(directory, script).log_to(log).spawn()?)
    }

    /// The error for an ended connection: the client's message, and what to do; `None` for a pod, of
    /// which the cluster knows more.
    pub fn lost(&self, log: &Path) -> Option<PlatformError> {
        let Way::Ssh(target) = &self.way else { return None };
        let said = String::from_utf8_lossy(&weigh_host::log::tail(log, 600)).into_owned();
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with(['$', '#'])).collect();
        Some(target.unreachable(said.last().copied().unwrap_or_default()))
    }
}

impl MachineFacts {
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| line.trim().to_string());
        let (system, architecture) = (lines.next().filter(|line| !line.is_empty())?, lines.next()?);
        let boot = lines.next().unwrap_or_default();
        // As on this host, the boot identifies a machine without a machine ID.
        let machine = lines.next().filter(|id| !id.is_empty()).unwrap_or_else(|| boot.clone());
        let mut line = || lines.next().filter(|line| !line.is_empty());
        let (kernel, cpus, memory, model) = (line(), line(), line(), line());
        let kind = [
            ("CPU model", model),
            ("CPUs", cpus),
            ("architecture", Some(architecture.clone())),
            ("kernel", kernel),
            ("memory", memory.and_then(|kib| gibibytes(&kib))),
        ];
        let kind = kind.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect();
        Some(Self { system, architecture, boot, identity: identity(&machine), kind })
    }

    /// Whether this host's `weigh` can run there.
    pub fn takes_programs(&self) -> bool {
        self.system == "Linux" && self.architecture == std::env::consts::ARCH
    }
}

/// Formats an amount of memory in KiB. The kernel reserves a part of it, which differs a little from
/// boot to boot.
pub(crate) fn gibibytes(kib: &str) -> Option<String> {
    Some(format!("{:.0} GiB", kib.parse::<f64>().ok()? / f64::from(1 << 20)))
}

/// Returns the machines that an environment string names: the nodes of a cluster, each with the
/// string by which it alone is reached.
///
/// # Errors
/// A key or value is wrong; the error points at it. The cluster has no such nodes, or has to be
/// asked for them and does not answer.
pub fn nodes(spec: &EnvironmentSpec) -> std::result::Result<Vec<(String, EnvironmentSpec)>, SpecError> {
    NodePod::each(spec)
}

/// Ends what runs in a directory on the machine and removes it, for `weigh clean`.
///
/// # Errors
/// The machine cannot be reached, or the directory remains.
pub(crate) fn undo(directory: &str, target: Target) -> Result<()> {
    let host = target.host.clone();
    let machine = FleetMachine { way: Way::Ssh(target), parent: String::new() };
    let ended = machine.end(directory, CLEAN_END, None).and_then(|()| machine.remove(directory, None));
    ended.map_err(|error| PlatformError::StillThere(format!("{directory} on {host}: {error}")))
}

/// Ends what runs in a directory in a pod and deletes the pod, for `weigh clean`. A pod whose
/// directory is gone does not wait for its run to be collected.
///
/// # Errors
/// The cluster cannot be reached, or the pod remains.
pub(crate) fn undo_pod(directory: &str, pod: &NodePod) -> Result<()> {
    let machine = FleetMachine { way: Way::Pod(pod.clone()), parent: String::new() };
    match machine.end(directory, CLEAN_END, None) {
        Ok(()) => machine.remove(directory, None),
        // What is in the pod goes with it.
        Err(_) => pod.delete(directory),
    }
}

/// A pipe to a program, with a deadline for reading and writing.
struct Until {
    file: File,
    end: Instant,
}

impl Until {
    fn new(pipe: OwnedFd, within: Duration) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { file: pipe.into(), end: Instant::now() + deadlines::scaled(within) })
    }

    /// Retries an action that would block once the pipe is ready.
    fn when_ready<T>(
        &mut self,
        ready: PollFlags,
        mut action: impl FnMut(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match action(&mut self.file) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let left = self.end.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.file, ready)], Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Until {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::IN, |file| file.read(buffer))
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::OUT, |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_facts_are_read_from_the_scripts_output() {
        let here = format!("Linux\n{}\nboot\nmachine\n", std::env::consts::ARCH);
        let facts = MachineFacts::read(&here).unwrap();
        assert!(facts.takes_programs());
        assert_eq!((facts.boot.as_str(), &facts.identity), ("boot", &identity("machine")));
        let without = MachineFacts::read("Linux\nriscv64\nboot\n\n").unwrap();
        assert_eq!(without.identity, identity("boot"));
        assert_eq!(without.kind, BTreeMap::from([("architecture", "riscv64".to_string())]));
        assert!(!without.takes_programs());
        let whole = "Linux\nx86_64\nboot\nid\n6.1.0\n8\n16303428\nModel X \n";
        let kind = MachineFacts::read(whole).unwrap().kind;
        let kind: Vec<(&str, &str)> = kind.iter().map(|(name, fact)| (*name, fact.as_str())).collect();
        let expected = [
            ("CPU model", "Model X"),
            ("CPUs", "8"),
            ("architecture", "x86_64"),
            ("kernel", "6.1.0"),
            ("memory", "16 GiB"),
        ];
        assert_eq!(kind, expected);
        assert_eq!(MachineFacts::read("Welcome\n"), None);
    }

    #[test]
    fn keys_that_mean_nothing_to_a_fleet_are_refused() {
        let check = |text: &str| FleetMachine::check(&EnvironmentSpec::parse(text).unwrap());
        assert!(check("ssh:host=x,label=a,directory=/var/tmp").is_ok());
        for (text, wrong) in [("ssh:host=x,by=shell", "by"), ("ssh:host=x,cpus=1", "cpus"), ("ssh", "ssh")] {
            let error = check(text).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
    }

    /// `kubectl exec` may end with 0 although nothing of what was printed has arrived.
    #[test]
    fn a_connection_without_an_answer_does_not_mean_that_there_is_no_run() {
        let base = tempfile::tempdir().unwrap();
        let collect = |client: &str| {
            let spec = EnvironmentSpec::parse(&format!("ssh:host=x,binary={client}")).unwrap();
            let machine = FleetMachine::of(&spec).unwrap();
            machine.collect::<PlatformError>("/d", &base.path().join("log"), |archive| {
                io::copy(archive, &mut io::sink()).map(drop).map_err(PlatformError::io(READ))
            })
        };
        assert!(collect("/bin/echo").unwrap(), "something was sent");
        let error = collect("/bin/true").unwrap_err().to_string();
        assert!(error.contains("its run could not be read"), "{error}");
    }

    #[test]
    fn reading_a_silent_pipe_times_out() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let error = Until::new(read, Duration::from_millis(20)).unwrap().read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
