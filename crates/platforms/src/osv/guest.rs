//! One machine for each command: it boots, runs the one program, and powers off.

use super::console::Console;
use super::image::{Boot, command_line};
use super::{PLATFORM, Settings};
use crate::guest::{Backend, CoreGuest, GuestCore, with_tail};
use crate::helpers::is_readable;
use crate::host_probe::{CommandRunner, Ended, HostProbe, Job, Progress, Refusal};
use crate::qemu::accel::Acceleration;
use crate::qemu::confine;
use crate::{GuestRequest, Host, PlatformError, Result};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::cgroup::{Cgroup, Freezer, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_host::deadlines;
use weigh_protocol::{Command, GuestFacts, Input, ResourceUse, Status};

/// Time limit for a machine to power off after its program has printed the result.
const POWER_OFF_DEADLINE: Duration = Duration::from_secs(10);
/// How often a machine that should power off is checked.
const LOOK: Duration = Duration::from_millis(200);
/// Time limit for a trial run, without acceleration on a busy host.
pub(super) const TRIAL_DEADLINE: Duration = Duration::from_secs(60);
/// The command of a trial run.
const TRIAL: [&str; 6] = ["weigh-kernels", "noploop", "--nops", "1000000", "--repetitions", "2"];

/// What all machines of a guest share.
pub(super) struct Machine {
    pub(super) binary: PathBuf,
    pub(super) program: String,
    pub(super) boot: Boot,
    pub(super) acceleration: Acceleration,
    pub(super) cpus: usize,
    pub(super) memory_bytes: u64,
    /// Options that make QEMU give up rights.
    pub(super) confinement: Vec<String>,
    pub(super) log: PathBuf,
    /// The control group that every machine joins.
    pub(super) cgroup: Arc<Cgroup>,
    /// The version that the system printed in a trial run.
    pub(super) version: String,
}

impl Machine {
    /// QEMU with a command line for OSv. The machine has only the devices named here, and nothing
    /// is written to the image.
    fn invocation(&self, line: &str) -> std::io::Result<Invocation> {
        let mut words: Vec<String> =
            ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"].map(String::from).into();
        let cpu = if self.acceleration == Acceleration::Kvm { "host" } else { "max" };
        let mut pair = |name: &str, value: String| words.extend([name.to_string(), value]);
        pair("-machine", if cfg!(target_arch = "aarch64") { "virt" } else { "q35" }.into());
        pair("-accel", self.acceleration.argument().into());
        pair("-cpu", cpu.into());
        pair("-smp", self.cpus.to_string());
        pair("-m", format!("{}M", self.memory_bytes >> 20));
        pair("-chardev", "stdio,id=console,signal=off".into());
        pair("-serial", "chardev:console".into());
        pair("-device", "virtio-rng-pci".into());
        if let Some((disk, format)) = &self.boot.disk {
            let file = disk.to_string_lossy().replace(',', ",,");
            pair("-drive", format!("file={file},if=none,id=hd0,format={format},snapshot=on,cache=unsafe"));
            let first = if self.boot.kernel.is_none() { ",bootindex=0" } else { "" };
            pair("-device", format!("virtio-blk-pci,drive=hd0{first}"));
        }
        words.extend_from_slice(&self.confinement);
        words.extend(self.boot.arm(line)?);
        Ok(Invocation::new(&self.binary).args(&words).log_to(&self.log).pre_exec_cgroup(&self.cgroup))
    }

    fn start(&self, line: &str) -> Result<Run, Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::new(format!("{PLATFORM}: {error}"), Errno::IO);
        let invocation = self.invocation(line).map_err(|error| failed(&error))?;
        let mut running = invocation.spawn().map_err(|error| failed(&error))?;
        let (input, output) = (running.take_input(), running.take_output());
        let output = output.ok_or_else(|| failed(&"QEMU has no standard output"))?;
        Ok(Run { running, _input: input, output, console: Console::default(), killed: false })
    }

    /// Boots once and runs the trial command.
    ///
    /// # Errors
    /// The program printed no result in time.
    pub(super) fn try_out(&self, within: Duration) -> Result<Console> {
        let failed = |reason: String| PlatformError::Launch {
            platform: PLATFORM,
            reason,
            log: Some(self.log.clone()),
        };
        let command = Command {
            argv: TRIAL.map(String::from).into(),
            environment: Vec::new(),
            working_directory: None,
            input: Input::Empty,
            output_limit_bytes: 0,
        };
        let line = command_line(&self.program, &command).map_err(|error| failed(error.to_string()))?;
        let mut run = self.start(&line).map_err(|refusal| failed(refusal.reason))?;
        let until = Instant::now() + within;
        let ended = loop {
            match run.take() {
                Progress::Ended(ended) => break ended,
                _ if Instant::now() > until => {
                    run.running.kill_group();
                    let said = run.console.complaint();
                    let within = within.as_secs();
                    return Err(failed(format!(
                        "{} printed no result within {within} s: {said}",
                        self.program
                    )));
                }
                _ => {
                    is_readable(&run.output, Duration::from_millis(100));
                }
            }
        };
        let said = with_tail(&run.console.complaint(), &self.log);
        match ended.status {
            Status::Exited(0) if run.console.duration_ns().is_some() => Ok(run.console),
            Status::Exited(0) => {
                Err(failed(format!("its console does not say when the program begins: {said}")))
            }
            _ => Err(failed(format!("{} gave no result: {said}", self.program))),
        }
    }
}

/// A machine that runs.
struct Run {
    running: Running,
    /// Kept open; otherwise QEMU would read the end of its console.
    _input: Option<OwnedFd>,
    output: OwnedFd,
    console: Console,
    killed: bool,
}

impl Run {
    fn ended(&mut self) -> Progress {
        let _ = self.running.wait(deadlines::death());
        let status = if self.killed { Status::Signalled(libc::SIGKILL) } else { self.console.status() };
        let mut output = self.console.result().map(<[u8]>::to_vec).unwrap_or_default();
        if !output.is_empty() {
            output.push(b'\n');
        }
        // Without both times the duration is unknown: the program has failed, or the console is not
        // OSv's.
        let duration_ns = self.console.duration_ns();
        let status =
            if duration_ns.is_none() && status == Status::Exited(0) { Status::Exited(1) } else { status };
        Progress::Ended(Ended {
            status,
            duration_ns: duration_ns.unwrap_or(0),
            resources: ResourceUse::default(),
            output,
            error: self.console.rest(),
        })
    }
}

impl Job for Run {
    fn process(&self) -> u32 {
        self.running.pid()
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    fn patience(&self) -> Option<Duration> {
        self.console.result_ns().map(|_| LOOK)
    }

    fn take(&mut self) -> Progress {
        let now_ns = monotonic_ns();
        let overdue = |since_ns: u64| now_ns.saturating_sub(since_ns) > POWER_OFF_DEADLINE.as_nanos() as u64;
        if self.console.result_ns().is_some_and(overdue) {
            // The result has arrived; a machine that does not power off has nothing to add.
            self.running.kill_group();
            return self.ended();
        }
        if !is_readable(&self.output, Duration::ZERO) {
            return Progress::Output(Vec::new());
        }
        let mut buffer = [0; 16 << 10];
        match rustix::io::read(&self.output, &mut buffer[..]) {
            Ok(0) | Err(Errno::IO) => self.ended(),
            Ok(n) => {
                self.console.hear(&buffer[..n], now_ns);
                Progress::Output(Vec::new())
            }
            Err(_) => Progress::Output(Vec::new()),
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        self.running.kill_group();
    }
}

impl CommandRunner for Machine {
    fn facts(&self, _: &[String]) -> GuestFacts {
        GuestFacts {
            kernel: self.version.clone(),
            architecture: std::env::consts::ARCH.into(),
            ..GuestFacts::default()
        }
    }

    fn start(&mut self, command: &Command) -> Result<Box<dyn Job>, Refusal> {
        let program = command.argv.first().map_or("", String::as_str);
        if program != "weigh-kernels" {
            let reason = format!(
                "a unikernel runs one program, which is weigh-kernels here; `{program}` is another one"
            );
            return Err(Refusal::new(reason, Errno::NOENT));
        }
        let line = command_line(&self.program, command)
            .map_err(|error| Refusal::new(error.to_string(), Errno::INVAL))?;
        Ok(Box::new(Machine::start(self, &line)?))
    }
}

/// A guest: it runs machines one after another.
pub(super) struct OsvPlace {
    probe: Option<HostProbe>,
    /// Every machine of the guest joins it.
    cgroup: Arc<Cgroup>,
    copy: Option<PathBuf>,
}

/// Makes the guest. Nothing boots before the first command.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    boot: Boot,
    acceleration: Acceleration,
    version: String,
) -> Result<CoreGuest<OsvPlace>> {
    let mut core = GuestCore::new(PLATFORM, host, request);
    core.start_clock();
    let facts = [("acceleration", acceleration.as_str()), ("network", "none")];
    core.facts = facts.map(|(key, value)| (key.into(), value.into())).into();
    let (machine, copy) = machine(host, request, boot, acceleration, version)?;
    let place = OsvPlace { probe: None, cgroup: Arc::clone(&machine.cgroup), copy };
    CoreGuest::launch(core, place, |place, core| {
        let (probe, session) = HostProbe::start(PLATFORM, machine)?;
        (place.probe, core.session) = (Some(probe), Some(session));
        Ok(())
    })
}

/// What a guest's machines need: a control group and, if the command line is stored on the disk, a
/// copy of the disk.
pub(super) fn machine(
    host: &Host,
    request: &GuestRequest,
    boot: Boot,
    acceleration: Acceleration,
    version: String,
) -> Result<(Machine, Option<PathBuf>)> {
    let settings = Settings::of(request)?;
    let confinement = confine::options(&settings.binary, host.is_root, false)?;
    let name = format!("{PLATFORM}-{}", request.instance);
    let (boot, copy) = boot.of_guest(&host.work.join(format!("{name}.img")))?;
    // All of QEMU runs on the guest's CPUs. Its memory is the machine's size and needs no limit.
    let limits = Limits { cpus: settings.cpus.clone(), memory_bytes: None };
    let group = format!("weighbridge-{}/{name}", host.run);
    let cgroup =
        host.hierarchy.create(&host.ledger, &group, &limits).inspect_err(|_| remove(copy.as_deref()))?;
    let machine = Machine {
        binary: settings.binary,
        program: settings.program,
        boot,
        acceleration,
        cpus: settings.cpus.len(),
        memory_bytes: settings.memory_bytes,
        confinement,
        log: host.logs.join(format!("{name}.log")),
        cgroup: Arc::new(cgroup),
        version,
    };
    Ok((machine, copy))
}

fn remove(copy: Option<&Path>) {
    // The copy lies in the run's work directory, which is in the ledger.
    let _ = copy.map(std::fs::remove_file);
}

/// Cleans up after a trial run.
pub(super) fn discard(machine: Machine, copy: Option<PathBuf>) -> Result<()> {
    remove(copy.as_deref());
    Ok(machine.cgroup.remove()?)
}

impl Backend for OsvPlace {
    fn processes(&self, _: &GuestCore) -> Vec<u32> {
        self.cgroup.processes()
    }

    fn cgroup<'a>(&'a self, _: &'a GuestCore) -> Option<&'a Cgroup> {
        Some(&self.cgroup)
    }

    /// None: every program boots its own machine, whose output arrives only after it has ended.
    fn freezer(&self, _: &GuestCore) -> Option<Freezer> {
        None
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if let Some(session) = &mut core.session {
            session.close();
        }
        // The thread ends the machine that it waits for; any other process ends with the group.
        if let Some(probe) = &mut self.probe {
            probe.stop();
        }
        Ok(())
    }

    fn remove_groups(&mut self, _: &GuestCore) -> Result<()> {
        Ok(self.cgroup.remove()?)
    }

    fn release(&mut self, _: &mut GuestCore) -> Result<()> {
        remove(self.copy.as_deref());
        Ok(())
    }
}
