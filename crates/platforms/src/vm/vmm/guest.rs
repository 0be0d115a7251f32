//! A running machine: how it is started, held, saved, and ended.

use super::channel::{Channel, connect};
use super::{API_SOCKET, Machine, Monitor, Parts, Prepared, Settings, Sizes, Vmm, kvm, threads};
use crate::guest::{Backend, CoreGuest, GuestCore, with_tail};
use crate::helpers::fnv_1a;
use crate::network::NetworkEnd;
use crate::vm::SHUTDOWN_DEADLINE;
use crate::vm::api::{Api, ApiError};
use crate::{GuestRequest, Host, Platform, PlatformError, Result, Session};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_host::deadlines;
use weigh_host::log::NamedPipe;

/// Time limit for the monitor to answer, and to exit when it is told to.
const MONITOR_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for writing the guest's memory to a disk.
const SAVE_DEADLINE: Duration = Duration::from_secs(120);
/// Pause between two checks whether the monitor listens.
const PAUSE: Duration = Duration::from_micros(500);
/// What a monitor itself may take beyond the guest's memory, bytes: usually some ten MiB, including
/// page tables.
const SLACK_BYTES: u64 = 256 << 20;
/// Name of the console's file in the machine's directory. A restored machine looks for it in its
/// own directory, like for its sockets.
const CONSOLE: &str = "console";
/// Longest name that a machine gets unchanged (Firecracker, `--id`).
const LONGEST_NAME: usize = 64;

/// A machine with its monitor.
pub(crate) struct VmmMachine {
    monitor: &'static dyn Monitor,
    api: Option<Api>,
    /// The pipe that the monitor writes the console to, as if to a file.
    console: Option<NamedPipe>,
    parts: Parts,
}

/// Why a machine does not come up.
type Failure = Box<dyn std::error::Error>;

/// Starts a machine, or restores the one that was saved, and returns when its probe has said hello,
/// before `until`.
///
/// # Errors
/// The machine did not come up; everything that was started is undone.
#[expect(clippy::too_many_arguments, reason = "what a machine is made of, once")]
pub(crate) fn launch(
    platform: &Vmm,
    host: &Host,
    request: &GuestRequest,
    settings: &Settings,
    prepared: &Prepared,
    parts: Parts,
    saved: Option<&Path>,
    until: Instant,
) -> Result<CoreGuest<VmmMachine>> {
    let (monitor, mut core) = (platform.monitor(), GuestCore::new(platform.name(), host, request));
    core.name = name(&host.run, request.instance);
    // The monitor can be found by this argument after a crash of weigh at any moment.
    let mark = monitor.mark(&core.name);
    core.record("machine", &mark, json!({}))?;
    core.facts = parts.facts();
    // The monitor's directory, below the run's work directory, which is in the ledger.
    core.directories = vec![host.work.join(&core.name)];
    let machine = Machine {
        cpus: settings.cpus.clone(),
        memory_bytes: settings.memory_bytes,
        huge_pages: settings.huge_pages,
        kernel: prepared.kernel.clone(),
        initramfs: prepared.initramfs.clone(),
        channel: prepared.channel,
        probe_words: parts.probe_words(),
        disks: parts.disks(),
        card: parts.card(),
        console: CONSOLE.into(),
    };
    CoreGuest::launch(core, VmmMachine { monitor, api: None, console: None, parts }, |vmm, core| {
        vmm.spawn(core, host, settings, &machine, until)?;
        let up = vmm.bring_up(core, &machine, saved, until);
        up.map_err(|reason| failed(core, &reason))
    })
}

/// A failed launch, with the ends of the log and of the console.
fn failed(core: &GuestCore, reason: &dyn std::fmt::Display) -> PlatformError {
    let reason = with_tail(&reason.to_string(), &core.log);
    core.failed_as(with_tail(&reason, &core.log.with_extension("console.log")))
}

impl VmmMachine {
    /// Starts the monitor and waits until it listens.
    fn spawn(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        settings: &Settings,
        machine: &Machine,
        until: Instant,
    ) -> Result<()> {
        let place = &core.directories[0];
        let making = format!("make the directory {}", place.display());
        std::fs::create_dir_all(place).map_err(PlatformError::io(making))?;
        let console = core.log.with_extension("console.log");
        let console = NamedPipe::make(&place.join(CONSOLE), &console);
        self.console = Some(console.map_err(PlatformError::io("make a pipe for the guest's console"))?);
        let api = Api::new(place, API_SOCKET).map_err(PlatformError::io("prepare to ask the monitor"))?;
        core.make_machine_cgroup(host, machine.memory_bytes.saturating_add(SLACK_BYTES))?;
        core.start_clock();
        let mut command = Invocation::new(&settings.binary)
            .args(self.monitor.arguments(&core.name))
            .current_dir(&core.directories[0])
            .log_to(&core.log);
        if machine.channel != Channel::Serial {
            command = command.output_to_log();
        }
        if let Some(cgroup) = &core.cgroup {
            command = command.pre_exec_cgroup(cgroup);
        }
        core.program = Some(command.spawn()?);
        loop {
            match self.monitor.greet(&api, until) {
                Ok(()) => break,
                Err(ApiError::Lost { .. })
                    if !core.program_ended(Duration::ZERO) && Instant::now() < until =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(failed(core, &error)),
            }
        }
        self.api = Some(api);
        Ok(())
    }

    /// Has the monitor make the machine, places the threads of its CPUs, and waits for the probe.
    fn bring_up(
        &self,
        core: &mut GuestCore,
        machine: &Machine,
        saved: Option<&Path>,
        until: Instant,
    ) -> Result<(), Failure> {
        let (Some(running), Some(api)) = (&core.program, &self.api) else {
            return Err("it has been stopped".into());
        };
        let (monitor, process) = (self.monitor, running.pid());
        threads::confine(process, &machine.cpus)?;
        match saved {
            Some(directory) => monitor.load(api, directory, until)?,
            None => {
                monitor.create(api, machine, until)?;
                monitor.boot(api, until)?;
                core.code_ns = Some(monotonic_ns());
            }
        }
        threads::place(process, &machine.cpus, |name| monitor.cpu_of_thread(name))?;
        check_sizes(monitor, api, machine, until)?;
        if saved.is_some() {
            monitor.resume(api, until)?;
            core.code_ns = Some(monotonic_ns());
        }
        // Reports what the kernel says the monitor holds, not what was asked for.
        let acceleration = if kvm::holds_machine(process) { "kvm" } else { "unproven" };
        core.facts.insert("acceleration".into(), acceleration.into());
        self.greet(core, api, machine.channel, saved.is_some(), until)
    }

    /// Waits for the probe's hello.
    fn greet(
        &self,
        core: &mut GuestCore,
        api: &Api,
        channel: Channel,
        restored: bool,
        until: Instant,
    ) -> Result<(), Failure> {
        if channel == Channel::Vsock {
            let program = &mut core.program;
            let lives = || program.as_mut().is_some_and(|program| matches!(program.try_wait(), Ok(None)));
            // Monitors of restored machines number their connections from the first number on
            // (Firecracker until 1.14, Cloud Hypervisor), and a guest ignores a request with the
            // number of a connection that it holds: the one of the machine that was saved.
            core.session = Some(connect(api, until, !restored, lives)?);
        } else {
            core.open_session(Session::over_terminal)?;
        }
        let Some(session) = &mut core.session else { return Err("it has been stopped".into()) };
        let left = until.saturating_duration_since(Instant::now());
        // A terminal that is still being set up would change or echo what is sent, so the host
        // waits for an announcement. A restored one is set up already.
        match channel {
            Channel::Serial if !restored => session.announced(left)?,
            _ => session.hello(left)?,
        };
        Ok(())
    }

    /// Sends the monitor a request that needs a machine.
    fn ask(
        &self,
        core: &GuestCore,
        doing: &str,
        within: Duration,
        request: impl FnOnce(&dyn Monitor, &Api, Instant) -> Result<(), ApiError>,
    ) -> Result<()> {
        let Some(api) = &self.api else { return Err(failed(core, &"it has been stopped")) };
        request(self.monitor, api, Instant::now() + within)
            .map_err(|error| PlatformError::io(format!("{doing} the guest"))(std::io::Error::other(error)))
    }
}

/// Checks the machine's size, because a machine of another size would measure something else.
fn check_sizes(monitor: &dyn Monitor, api: &Api, asked: &Machine, until: Instant) -> Result<(), Failure> {
    let is = monitor.sizes(api, until)?;
    let wanted = Sizes { cpus: asked.cpus.len() as u64, memory_bytes: asked.memory_bytes };
    // Monitors round to MiB or to huge pages.
    if is.cpus == wanted.cpus && is.memory_bytes.abs_diff(wanted.memory_bytes) < 2 << 20 {
        return Ok(());
    }
    let (has, asked) = (is.memory_bytes >> 20, wanted.memory_bytes >> 20);
    Err(format!(
        "it says that the machine has {} CPUs and {has} MiB of memory, and not {} and {asked}",
        is.cpus, wanted.cpus
    )
    .into())
}

/// The machine's name: at most 64 letters, digits and hyphens, which is what Firecracker accepts.
fn name(run: &str, instance: u64) -> String {
    let plain = format!("weighbridge-{run}-{instance}");
    let takes = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if plain.len() <= LONGEST_NAME && plain.chars().all(takes) {
        return plain;
    }
    let hash = fnv_1a(run.bytes());
    format!("weighbridge-{hash:016x}-{instance}")
}

impl Backend for VmmMachine {
    const AGENT: bool = true;

    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        match &core.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => core.program.iter().map(Running::pid).collect(),
        }
    }

    fn network<'a>(&'a self, _: &'a GuestCore) -> Option<&'a dyn NetworkEnd> {
        self.parts.network()
    }

    fn exit_reason(&mut self, core: &mut GuestCore) -> Option<String> {
        let ended = core.program.as_mut()?.try_wait().ok()??;
        Some(format!("its monitor ended ({ended})"))
    }

    /// Pauses the machine and writes its state.
    fn save(&mut self, core: &mut GuestCore, directory: &Path) -> Result<()> {
        let directory =
            std::path::absolute(directory).map_err(PlatformError::io("tell where the guest is saved"))?;
        if !core.frozen {
            self.set_frozen(core, true)?;
            core.frozen = true;
        }
        self.ask(core, "save", SAVE_DEADLINE, |monitor, api, until| monitor.save(api, &directory, until))?;
        core.saved = true;
        Ok(())
    }

    fn set_frozen(&mut self, core: &mut GuestCore, frozen: bool) -> Result<()> {
        let doing = if frozen { "pause" } else { "resume" };
        self.ask(core, doing, MONITOR_DEADLINE, |monitor, api, until| {
            if frozen { monitor.pause(api, until) } else { monitor.resume(api, until) }
        })
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if core.session.is_some() {
            let powers_off = core.shut_down(SHUTDOWN_DEADLINE) && self.monitor.ends_with_guest();
            if !powers_off || !core.program_ended(MONITOR_DEADLINE) {
                let quit =
                    self.ask(core, "end", MONITOR_DEADLINE, |monitor, api, until| monitor.quit(api, until));
                if quit.is_ok() && self.monitor.ends_with_guest() {
                    let _in_time_or_killed = core.program_ended(MONITOR_DEADLINE);
                }
            }
        }
        self.api = None;
        core.program.iter_mut().for_each(Running::kill_group);
        core.cgroup.iter().try_for_each(Cgroup::kill_all)?;
        let deadline = deadlines::death();
        if core.program_ended(deadline) {
            return Ok(());
        }
        let what = format!("its monitor is still running {deadline:?} after it was killed");
        Err(PlatformError::StillThere(what))
    }

    fn release(&mut self, _: &mut GuestCore) -> Result<()> {
        self.parts.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_for_firecracker_and_differ() {
        assert_eq!(name("20260102-030405-ab", 7), "weighbridge-20260102-030405-ab-7");
        for run in ["a_run", "a".repeat(60).as_str()] {
            let (one, other) = (name(run, 1 << 32), name(&format!("{run}b"), 1 << 32));
            assert!(one != other && one.len() <= LONGEST_NAME, "{one}");
            assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{one}");
        }
    }
}
