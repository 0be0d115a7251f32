//! A running machine.

use super::MEMORY_PLACE;
use super::root::init_argument;
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE};
use crate::mapped::{MONITOR_USER, grant_traverse};
use crate::qemu::share::with_parts;
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, PlatformError, Result, Session};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::command::Invocation;

/// Time limit for the probe to agree to end and for the machine to power off.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit for the kernel's processes to end after that, or after they were killed.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// The first serial line in the guest.
const CHANNEL: &str = "/dev/ttyS0";
/// The device that opens taps.
const TUN: &str = "/dev/net/tun";
/// How much of a console's end is read, bytes: all of a boot.
const CONSOLE_BYTES: u64 = 256 << 10;

/// A machine to start.
pub(super) struct Machine<'a> {
    pub(super) program: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) memory_bytes: u64,
    pub(super) cpu: Option<u32>,
    /// Value of the key `net`.
    pub(super) network: &'a str,
}

impl Machine<'_> {
    /// Starts it and waits for its probe's hello.
    pub(super) fn launch(&self, host: &Host, request: &GuestRequest) -> Result<CoreGuest<UmlMachine>> {
        let mut core = GuestCore::new("uml", host, request);
        // Holds the kernel's management console; below the run's work directory, which is in the
        // ledger.
        let directory = host.work.join(&core.short_name);
        core.directories = vec![directory.clone()];
        CoreGuest::launch(core, UmlMachine, |_, core| {
            std::fs::create_dir_all(&directory)
                .map_err(PlatformError::at("make the directory", &directory))?;
            let user = MONITOR_USER;
            chown(&directory, Some(user), Some(user)).map_err(PlatformError::at("give away", &directory))?;
            for path in [&self.program, &self.initramfs, &directory] {
                grant_traverse(host, user, path.parent().unwrap_or(path))?;
            }
            core.make_cgroup(host, &Limits { cpus: self.cpu.into_iter().collect(), memory_bytes: None })?;
            let tap = tap::of_guest(host, request, self.network)?;
            let invocation = self.invocation(&directory, tap.as_ref()).as_user(user);
            let mut invocation = with_parts(invocation, &request.root);
            if let Some(tap) = &tap {
                tap.give(user)?;
                let device = own_device(&directory, user)
                    .map_err(PlatformError::io("make a device of the user-mode kernel's own"))?;
                invocation = invocation.with_own(Path::new(TUN), &device);
            }
            let network = tap.as_ref().map_or("none", Tap::as_str);
            core.facts = [("acceleration", "user-mode"), ("network", network)]
                .map(|(k, v)| (k.into(), v.into()))
                .into();
            if tap.is_some() {
                core.facts.insert("network-card".into(), "vector, on a tap".into());
            }
            core.network = tap.map(|tap| Box::new(tap) as _);
            self.start(core, invocation)
        })
    }

    fn start(&self, core: &mut GuestCore, invocation: Invocation) -> Result<()> {
        let cgroup = core.cgroup.as_ref().expect("the control group is made before the start");
        let unconfined = self.cpu.filter(|_| cgroup.unlimited().contains(&"cpuset"));
        let invocation = invocation.log_to(&core.log).pre_exec_cgroup(cgroup);
        core.start_clock();
        let running = core.program.insert(invocation.spawn()?);
        if let Some(cpu) = unconfined {
            pin(running.pid(), cpu)?;
        }
        let announced = core
            .open_session(Session::over_terminal)?
            .announced(weigh_host::deadlines::scaled(HELLO_DEADLINE));
        announced.map_err(|error| core.failed(&error))?;
        let console = weigh_host::log::tail(&core.log, CONSOLE_BYTES);
        match tap::missing_network(&String::from_utf8_lossy(&console)) {
            Some(reason) => Err(core.failed(&reason)),
            None => Ok(()),
        }
    }

    /// Paths are relative: the management console's socket has room for a hundred bytes (unix(7)).
    fn invocation(&self, directory: &Path, tap: Option<&Tap>) -> Invocation {
        let probe_arguments = tap.map(Tap::probe_arguments).unwrap_or_default();
        Invocation::new(&self.program)
            .arg(format!("mem={}K", self.memory_bytes >> 10))
            .arg(format!("initrd={}", self.initramfs.display()))
            .arg(init_argument())
            .args(["uml_dir=./", "umid=machine", "con=null", "con0=null,fd:2", "ssl=null", "ssl0=fd:0,fd:1"])
            .args(tap.map(card))
            // A panic ends the machine at once instead of leaving it until its deadline.
            .args(["quiet", "panic=-1", "--", "--channel", CHANNEL])
            .args(probe_arguments.split_whitespace())
            .env_clear()
            .env("TMPDIR", MEMORY_PLACE)
            .current_dir(directory)
    }
}

/// Makes a device that opens taps, for a user who may not open the host's.
fn own_device(directory: &Path, user: u32) -> std::io::Result<PathBuf> {
    let device = directory.join("tun");
    let number = std::fs::metadata(TUN)?.rdev();
    rustix::fs::mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, number)?;
    chown(&device, Some(user), Some(user))?;
    Ok(device)
}

/// The machine's card. It moves up to `depth` frames at a time and joins small incoming ones that
/// belong together (`user_mode_linux_howto_v2.rst`, "Vector transports").
fn card(tap: &Tap) -> String {
    format!("vec0:transport=tap,ifname={},depth=128,gro=1,mac={}", tap.name(), tap.hardware_address())
}

/// Pins the kernel's process, and so all that it starts, where control groups cannot.
fn pin(pid: u32, cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    sched_setaffinity(pid, &set).map_err(PlatformError::io(format!("confine a guest to CPU {cpu}")))
}

/// A machine: the kernel's process, and one process for every address space inside it, all in the
/// machine's control group.
pub(super) struct UmlMachine;

impl Backend for UmlMachine {
    const AGENT: bool = true;

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if core.shut_down(SHUTDOWN_DEADLINE) && core.program_ended(EXIT_DEADLINE) {
            return Ok(());
        }
        core.cgroup.iter().try_for_each(Cgroup::kill_all)?;
        if core.program_ended(EXIT_DEADLINE) {
            return Ok(());
        }
        let what = format!("its kernel did not end within {EXIT_DEADLINE:?} of being killed");
        Err(PlatformError::StillThere(what))
    }
}
