//! A machine that runs: how it is started, held, saved, and ended.

use super::channel::{Channel, connect};
use super::{API_SOCKET, Machine, Monitor, Parts, Prepared, Settings, Sizes, kvm, threads};
use crate::platform::remove_directory;
use crate::vm::api::{Api, ApiError};
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_network::Hop;

/// From the start of the monitor to the probe's hello. It takes well under a second; the host may
/// be busy.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For the probe to end its commands.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
/// For the monitor to answer, and to end when it is told to.
const MONITOR_DEADLINE: Duration = Duration::from_secs(5);
/// For writing the guest's memory to a disk.
const SAVE_DEADLINE: Duration = Duration::from_secs(120);
/// For a killed process to be gone.
const DEATH_DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks whether the monitor listens.
const PAUSE: Duration = Duration::from_micros(500);
/// What a monitor itself may take beyond the guest's memory, bytes: some ten MiB as a rule, page
/// tables with it.
const SLACK_BYTES: u64 = 256 << 20;
/// Name in the machine's directory of what its console says. A machine that is restored looks for
/// it in its own, as for its sockets.
const CONSOLE: &str = "console";
/// Longest name that is given to a machine as it is (Firecracker, `--id`).
const LONGEST_NAME: usize = 64;

/// A machine with its monitor.
pub(crate) struct VmmGuest {
    monitor: &'static dyn Monitor,
    place: PathBuf,
    log: PathBuf,
    ledger: Ledger,
    entry: EntryId,
    cgroup: Option<Cgroup>,
    running: Option<Running>,
    spawned_ns: u64,
    api: Option<Api>,
    session: Option<Session>,
    parts: Parts,
    code_ns: Option<u64>,
    frozen: bool,
    saved: bool,
    facts: BTreeMap<String, String>,
}

impl VmmGuest {
    /// Starts a machine, or the one that was saved, and returns when its probe has said hello,
    /// before `until`.
    ///
    /// # Errors
    /// It did not come up; what was begun is undone.
    #[expect(clippy::too_many_arguments, reason = "what a machine is made of, once")]
    pub(crate) fn launch(
        monitor: &'static dyn Monitor,
        host: &Host,
        request: &GuestRequest,
        settings: &Settings,
        prepared: &Prepared,
        parts: Parts,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<Self, PlatformError> {
        let platform = monitor.platform();
        let name = name(&host.run, request.instance);
        // By one of its arguments a monitor is found again after a crash of weigh at any moment.
        let entry = host.ledger.record(Change::Platform {
            platform: platform.into(),
            what: "machine".into(),
            id: monitor.mark(&name),
            detail: json!({}),
        })?;
        let mut guest = Self {
            monitor,
            // Below the run's work directory, which is in the ledger.
            place: host.work.join(&name),
            log: host.logs.join(format!("{platform}-{}.log", request.instance)),
            ledger: host.ledger.clone(),
            entry,
            cgroup: None,
            running: None,
            spawned_ns: 0,
            api: None,
            session: None,
            code_ns: None,
            frozen: false,
            saved: false,
            facts: parts.facts(),
            parts,
        };
        let machine = Machine {
            cpus: settings.cpus.clone(),
            memory_bytes: settings.memory_bytes,
            huge_pages: settings.huge_pages,
            kernel: prepared.kernel.clone(),
            initramfs: prepared.initramfs.clone(),
            channel: prepared.channel,
            probe_words: guest.parts.probe_words(),
            disks: guest.parts.disks(),
            card: guest.parts.card(),
            console: CONSOLE.into(),
        };
        let group = format!("weighbridge-{}/{platform}-{}", host.run, request.instance);
        let started = guest
            .spawn(host, settings, &machine, &name, &group, until)
            .and_then(|()| guest.bring_up(&machine, saved, until));
        // One that did not come up is dropped, and with that undone.
        started.map(|()| guest)
    }

    /// Starts the monitor and waits until it listens.
    fn spawn(
        &mut self,
        host: &Host,
        settings: &Settings,
        machine: &Machine,
        name: &str,
        group: &str,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let making = format!("make the directory {}", self.place.display());
        std::fs::create_dir_all(&self.place).map_err(PlatformError::io(making))?;
        // The monitor truncates it, so that it must not be the log.
        let console = self.log.with_extension("console.log");
        let linked = std::path::absolute(&console)
            .and_then(|console| std::os::unix::fs::symlink(console, self.place.join(CONSOLE)));
        linked.map_err(PlatformError::io("give the guest's console a file"))?;
        if host.is_root {
            // No CPU set: the threads that are the guest's CPUs are pinned one by one, and what
            // serves them may run anywhere.
            let memory_bytes = Some(machine.memory_bytes.saturating_add(SLACK_BYTES));
            let limits = Limits { cpus: Vec::new(), memory_bytes };
            self.cgroup = Some(host.hierarchy.create(&host.ledger, group, &limits)?);
        }
        let api =
            Api::new(&self.place, API_SOCKET).map_err(PlatformError::io("prepare to ask the monitor"))?;
        self.spawned_ns = monotonic_ns();
        let mut command = Invocation::new(&settings.binary)
            .args(self.monitor.arguments(name))
            .current_dir(&self.place)
            .log_to(&self.log);
        if machine.channel != Channel::Serial {
            command = command.output_to_log();
        }
        if let Some(cgroup) = &self.cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        self.running = Some(command.spawn()?);
        loop {
            match self.monitor.greet(&api, until) {
                Ok(()) => break,
                Err(ApiError::Lost { .. }) if !self.has_ended(Duration::ZERO) && Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
        self.api = Some(api);
        Ok(())
    }

    /// Has the monitor make the machine, puts its CPUs where they belong, and waits for the probe.
    fn bring_up(
        &mut self,
        machine: &Machine,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<(), PlatformError> {
        let Some((running, api)) = self.running.as_ref().zip(self.api.as_ref()) else {
            return Err(self.failed("it has been stopped"));
        };
        let (monitor, process) = (self.monitor, running.pid());
        let asked = |done: Result<(), ApiError>| done.map_err(|error| error.to_string());
        let mut begun = None;
        let made = threads::confine(process, &machine.cpus)
            .and_then(|()| match saved {
                Some(directory) => asked(monitor.load(api, directory, until)),
                None => asked(monitor.create(api, machine, until).and_then(|()| monitor.boot(api, until))),
            })
            .inspect(|()| begun = saved.is_none().then(monotonic_ns))
            .and_then(|()| threads::place(process, &machine.cpus, |name| monitor.cpu_of_thread(name)))
            .and_then(|()| check_sizes(monitor, api, machine, until))
            .and_then(|()| match saved {
                Some(_) => asked(monitor.resume(api, until)).inspect(|()| begun = Some(monotonic_ns())),
                None => Ok(()),
            });
        self.code_ns = begun;
        made.map_err(|reason| self.failed(&reason))?;
        // What the kernel says the monitor holds counts, not what it was asked for.
        let acceleration = if kvm::holds_machine(process) { "kvm" } else { "unproven" };
        self.facts.insert("acceleration".into(), acceleration.into());
        let talk = self.talk(machine.channel, saved.is_some(), until);
        talk.map_err(|reason| self.failed(&reason))
    }

    /// Waits for the probe's hello.
    fn talk(&mut self, channel: Channel, restored: bool, until: Instant) -> Result<(), String> {
        let (Some(running), Some(api)) = (&mut self.running, &self.api) else {
            return Err("it has been stopped".into());
        };
        let session = match channel {
            Channel::Vsock => connect(api, until, || matches!(running.try_wait(), Ok(None)))
                .map_err(|error| error.to_string())?,
            Channel::Serial => match (running.take_input(), running.take_output()) {
                (Some(input), Some(output)) => Session::over_terminal(output, input),
                _ => return Err("it has no standard streams".into()),
            },
        };
        let session = self.session.insert(session);
        let left = until.saturating_duration_since(Instant::now());
        // A terminal that is being set up would change or echo what is sent; one that was restored
        // is set up.
        let hello = match channel {
            Channel::Serial if !restored => session.announced(left),
            _ => session.hello(left),
        };
        hello.map(|_| ()).map_err(|error| error.to_string())
    }

    fn failed(&self, reason: &str) -> PlatformError {
        let console = self.log.with_extension("console.log");
        let reason = crate::oci::with_tail(reason, &self.log);
        PlatformError::Launch {
            platform: self.monitor.platform(),
            reason: crate::oci::with_tail(&reason, &console),
            log: Some(self.log.clone()),
        }
    }

    /// Asks the monitor for something that takes a machine.
    fn ask(
        &self,
        doing: &str,
        within: Duration,
        request: impl FnOnce(&Api, Instant) -> Result<(), ApiError>,
    ) -> Result<(), PlatformError> {
        let Some(api) = &self.api else { return Err(self.failed("it has been stopped")) };
        request(api, Instant::now() + within)
            .map_err(|error| PlatformError::io(format!("{doing} the guest"))(std::io::Error::other(error)))
    }

    fn has_ended(&mut self, within: Duration) -> bool {
        self.running.as_mut().is_none_or(|running| matches!(running.wait(within), Ok(Some(_))))
    }

    /// Ends everything that runs: by the probe, by the monitor, by force.
    fn end(&mut self) -> Result<(), String> {
        if self.frozen && !self.saved {
            // A frozen guest hears nothing.
            let _ = self.thaw();
        }
        if let Some(session) = &mut self.session {
            let asked = !self.saved && !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok();
            session.close();
            let powers_off = asked && self.monitor.ends_with_guest();
            if !powers_off || !self.has_ended(MONITOR_DEADLINE) {
                let monitor = self.monitor;
                if self.ask("end", MONITOR_DEADLINE, |api, until| monitor.quit(api, until)).is_ok() {
                    let _in_time_or_killed = monitor.ends_with_guest() && self.has_ended(MONITOR_DEADLINE);
                }
            }
        }
        self.api = None;
        if let Some(running) = &mut self.running {
            running.kill_group();
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all().map_err(|error| error.to_string())?;
        }
        if self.has_ended(DEATH_DEADLINE) {
            return Ok(());
        }
        Err(format!("its monitor lives on {DEATH_DEADLINE:?} after it was killed"))
    }
}

/// A machine that is other than what was asked for measures something else.
fn check_sizes(monitor: &dyn Monitor, api: &Api, asked: &Machine, until: Instant) -> Result<(), String> {
    let is = monitor.sizes(api, until).map_err(|error| error.to_string())?;
    let wanted = Sizes { cpus: asked.cpus.len() as u64, memory_bytes: asked.memory_bytes };
    // Monitors count in MiB or in huge pages.
    if is.cpus == wanted.cpus && is.memory_bytes.abs_diff(wanted.memory_bytes) < 2 << 20 {
        return Ok(());
    }
    Err(format!(
        "it says that the machine has {} CPUs and {} MiB of memory, and not {} and {}",
        is.cpus,
        is.memory_bytes >> 20,
        wanted.cpus,
        wanted.memory_bytes >> 20
    ))
}

/// The machine's name: 64 letters, digits and hyphens at most, which is what Firecracker takes.
fn name(run: &str, instance: u64) -> String {
    let plain = format!("weighbridge-{run}-{instance}");
    let takes = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if plain.len() <= LONGEST_NAME && plain.chars().all(takes) {
        return plain;
    }
    // FNV-1a, 64 bits.
    let hash = run.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("weighbridge-{hash:016x}-{instance}")
}

impl Guest for VmmGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => self.running.iter().map(Running::pid).collect(),
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn accounts(&self) -> Accounts {
        match &self.cgroup {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => Accounts::of_processes(self.processes()),
        }
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.parts.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.parts.hops()
    }

    /// When the monitor said that it had let the machine go.
    fn code_ns(&self) -> Option<u64> {
        self.code_ns
    }

    fn obituary(&mut self) -> Option<String> {
        let ended = self.running.as_mut()?.try_wait().ok()??;
        Some(format!("its monitor ended ({ended})"))
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    /// The machine is written where it stands.
    fn save(&mut self, directory: &Path) -> Result<(), PlatformError> {
        let directory =
            std::path::absolute(directory).map_err(PlatformError::io("tell where the guest is saved"))?;
        self.freeze()?;
        let monitor = self.monitor;
        self.ask("save", SAVE_DEADLINE, |api, until| monitor.save(api, &directory, until))?;
        self.saved = true;
        Ok(())
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        if !self.frozen {
            let monitor = self.monitor;
            self.ask("pause", MONITOR_DEADLINE, |api, until| monitor.pause(api, until))?;
            self.frozen = true;
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        if self.frozen {
            let monitor = self.monitor;
            self.ask("resume", MONITOR_DEADLINE, |api, until| monitor.resume(api, until))?;
            self.frozen = false;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        let platform = self.monitor.platform();
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform, reason });
        // What is stuck does not keep the rest from being undone.
        let removed = self.cgroup.iter().try_for_each(Cgroup::remove);
        ended?;
        self.running = None;
        removed?;
        self.cgroup = None;
        remove_directory(&self.place)?;
        self.parts.remove()?;
        Ok(self.ledger.forget(self.entry)?)
    }
}

impl Drop for VmmGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_firecracker_takes() {
        assert_eq!(name("20260102-030405-ab", 7), "weighbridge-20260102-030405-ab-7");
        for run in ["a_run", "a".repeat(60).as_str()] {
            let (one, other) = (name(run, 1 << 32), name(&format!("{run}b"), 1 << 32));
            assert!(one != other && one.len() <= LONGEST_NAME, "{one}");
            assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{one}");
        }
    }
}
