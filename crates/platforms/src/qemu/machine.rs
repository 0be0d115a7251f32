//! The command line of one machine.

use super::accel::Acceleration;
use super::share::Share;
use serde_json::json;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Name of the virtio port over which host and probe talk.
const PORT: &str = "weighbridge";
/// Tag of the host's files in the guest.
pub(super) const TAG: &str = "weighbridge";
/// Firmware that only starts a kernel that is handed to it; part of QEMU for x86.
const QBOOT: &str = "qboot.rom";

/// Everything that decides a machine.
#[derive(Debug, Clone)]
pub(super) struct Machine<'a> {
    /// As processes and ledgers name it.
    pub(super) name: &'a str,
    /// QEMU's type of machine.
    pub(super) kind: &'a str,
    pub(super) acceleration: Acceleration,
    /// QEMU's model of CPU.
    pub(super) cpu: &'a str,
    pub(super) cpus: usize,
    pub(super) memory_bytes: u64,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// File that the console's output is appended to.
    pub(super) console: &'a Path,
    /// Our ends are elsewhere; these numbers QEMU inherits.
    pub(super) channel: RawFd,
    pub(super) qmp: RawFd,
    pub(super) share: Option<SharedFiles<'a>>,
    pub(super) disk: Option<Disk>,
}

/// Files of the host in the guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedFiles<'a> {
    pub(super) kind: Share,
    /// Root of what is shared.
    pub(super) path: &'a Path,
    /// The connection to the daemon that serves them, for virtiofs.
    pub(super) connection: Option<RawFd>,
}

/// A disk of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    /// Whether the host's page cache stands between guest and disk.
    pub(super) cached: bool,
}

impl Machine<'_> {
    /// QEMU's arguments. Nothing is there by default: every device is named.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut line = Line::default();
        line.pair("-name", &format!("{},process={}", escape(self.name), "qemu-guest"));
        for alone in ["-nodefaults", "-no-user-config", "-no-reboot", "-S"] {
            line.0.push(alone.into());
        }
        line.pair("-display", "none");
        line.pair("-machine", &self.machine());
        line.pair("-accel", self.acceleration.argument());
        line.pair("-cpu", self.cpu);
        line.pair("-smp", &format!("{0},maxcpus={0},sockets=1,cores={0},threads=1", self.cpus));
        line.pair("-m", &format!("{}k", self.memory_bytes >> 10));
        if self.has_qboot() {
            line.pair("-bios", QBOOT);
        }
        line.pair("-kernel", self.kernel);
        line.pair("-initrd", self.initramfs);
        line.pair("-append", &self.kernel_arguments());
        line.pair("-chardev", &format!("socket,id=qmp,fd={}", self.qmp));
        line.pair("-mon", "chardev=qmp,mode=control");
        line.pair("-chardev", &format!("file,id=console,path={},append=on", escape_path(self.console)));
        line.pair("-serial", "chardev:console");
        line.pair("-chardev", &format!("socket,id=channel,fd={}", self.channel));
        line.pair("-device", "virtio-serial-pci,max_ports=2");
        line.pair("-device", &format!("virtserialport,chardev=channel,name={PORT}"));
        self.shared_files(&mut line);
        self.disk(&mut line);
        line.0
    }

    fn machine(&self) -> String {
        let options = match self.kind {
            // Controllers without a device behind them cost boot time and nothing else.
            "q35" => ",sata=off,smbus=off,usb=off,vmport=off",
            "microvm" => ",pcie=on,rtc=on,auto-kernel-cmdline=off",
            _ => "",
        };
        let shared = match self.share {
            Some(SharedFiles { kind: Share::Virtiofs, .. }) => ",memory-backend=memory",
            _ => "",
        };
        format!("{}{options}{shared}", self.kind)
    }

    fn has_qboot(&self) -> bool {
        self.kind == "q35"
    }

    /// What is after ` -- ` is handed to the probe. Mitigations are the kernel's own defaults.
    fn kernel_arguments(&self) -> String {
        let console = if cfg!(target_arch = "aarch64") { "ttyAMA0" } else { "ttyS0" };
        let clock = match (self.kind, self.acceleration) {
            // It has no timer that the kernel could measure its TSC against.
            ("microvm", Acceleration::Tcg) => tsc_khz().map(|khz| format!(" tsc_early_khz={khz}")),
            _ => None,
        };
        format!(
            "console={console} quiet panic=-1 reboot=t{} rdinit={} -- --channel port:{PORT}",
            clock.unwrap_or_default(),
            weigh_images::PROBE
        )
    }

    fn shared_files(&self, line: &mut Line) {
        let Some(share) = &self.share else { return };
        match share.kind {
            Share::NineP => {
                let path = escape_path(share.path);
                line.pair(
                    "-fsdev",
                    &format!("local,id=files,path={path},security_model=none,readonly=on,multidevs=remap"),
                );
                line.pair("-device", &format!("virtio-9p-pci,fsdev=files,mount_tag={TAG}"));
            }
            Share::Virtiofs => {
                // Its daemon reads and writes the guest's memory.
                let size = self.memory_bytes >> 10;
                line.pair("-object", &format!("memory-backend-memfd,id=memory,size={size}k,share=on"));
                if let Some(fd) = share.connection {
                    line.pair("-chardev", &format!("socket,id=files,fd={fd}"));
                }
                line.pair("-device", &format!("vhost-user-fs-pci,chardev=files,tag={TAG}"));
            }
        }
    }

    fn disk(&self, line: &mut Line) {
        let Some(disk) = &self.disk else { return };
        let file = json!({
            "driver": "file", "node-name": "file", "filename": disk.path, "locking": "on",
            "aio": if disk.cached { "threads" } else { "native" },
            "cache": {"direct": !disk.cached, "no-flush": false},
        });
        let raw = json!({
            "driver": "raw", "node-name": "disk", "file": "file",
            "cache": {"direct": !disk.cached, "no-flush": false},
        });
        line.pair("-blockdev", &file.to_string());
        line.pair("-blockdev", &raw.to_string());
        line.pair("-device", "virtio-blk-pci,drive=disk,serial=weighbridge");
    }
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn pair(&mut self, option: &str, value: &(impl AsRef<std::ffi::OsStr> + ?Sized)) {
        self.0.push(option.into());
        self.0.push(value.as_ref().into());
    }
}

/// In QEMU's lists of options a comma in a value is written twice.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

fn escape_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

/// How fast this host's TSC counts, which is how fast that of a machine without acceleration does. Counted against the monotonic clock
/// for 20 ms; the clock is read to tens of nanoseconds, so that the error is a few parts per million.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u64> {
    use weigh_host::clock::monotonic_ns;
    let read = || {
        // The two are read as close together as three tries give.
        let tries = (0..3).map(|_| {
            let before = monotonic_ns();
            // SAFETY: the instruction has no preconditions; a process that may not execute it has been told so by prctl(2), which
            // weighbridge does not call.
            let ticks = unsafe { core::arch::x86_64::_rdtsc() };
            (monotonic_ns() - before, before, ticks)
        });
        tries.min_by_key(|(width, ..)| *width)
    };
    let (width, start_ns, start) = read()?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (other_width, end_ns, end) = read()?;
    let elapsed_ns = (end_ns + other_width / 2).checked_sub(start_ns + width / 2)?;
    let khz = u128::from(end.checked_sub(start)?) * 1_000_000 / u128::from(elapsed_ns);
    u64::try_from(khz).ok()
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_khz() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine<'static> {
        Machine {
            name: "weighbridge-run-1",
            kind: "q35",
            acceleration: Acceleration::Tcg,
            cpu: "max",
            cpus: 2,
            memory_bytes: 512 << 20,
            kernel: Path::new("/k/vmlinux"),
            initramfs: Path::new("/w/initramfs"),
            console: Path::new("/logs/a,b.log"),
            channel: 7,
            qmp: 8,
            share: None,
            disk: None,
        }
    }

    fn line(machine: &Machine<'_>) -> String {
        machine.arguments().iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_has_what_is_named_and_nothing_else() {
        let line = line(&machine());
        for part in [
            "-nodefaults -no-user-config",
            "-S",
            "-accel tcg",
            "-cpu max",
            "-smp 2,maxcpus=2",
            "-m 524288k",
            "socket,id=channel,fd=7",
            "socket,id=qmp,fd=8",
            "path=/logs/a,,b.log,append=on",
            "rdinit=/.weighbridge/probe -- --channel port:weighbridge",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        for absent in ["kvm", "mitigations", "memory-backend", "blockdev", "fsdev", "tsc_early_khz"] {
            assert!(!line.contains(absent), "{absent} in {line}");
        }
    }

    #[test]
    fn shared_files_are_read_only_or_their_daemons() {
        let share = |kind, connection| SharedFiles { kind, path: Path::new("/x,y"), connection };
        let nine_p = line(&Machine { share: Some(share(Share::NineP, None)), ..machine() });
        assert!(nine_p.contains("path=/x,,y,security_model=none,readonly=on"), "{nine_p}");
        let virtiofs = line(&Machine { share: Some(share(Share::Virtiofs, Some(9))), ..machine() });
        assert!(virtiofs.contains("memory-backend-memfd,id=memory,size=524288k,share=on"), "{virtiofs}");
        assert!(virtiofs.contains("memory-backend=memory") && virtiofs.contains("fd=9"), "{virtiofs}");
    }

    #[test]
    fn a_disk_bypasses_the_hosts_cache_unless_told() {
        let disk = |cached| Some(Disk { path: "/w/di\"sk".into(), cached });
        let direct = line(&Machine { disk: disk(false), ..machine() });
        assert!(direct.contains(r#""aio":"native""#) && direct.contains(r#""direct":true"#), "{direct}");
        assert!(direct.contains(r#"/w/di\"sk"#), "{direct}");
        let cached = line(&Machine { disk: disk(true), ..machine() });
        assert!(cached.contains(r#""aio":"threads""#) && cached.contains(r#""direct":false"#), "{cached}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_microvm_is_told_its_clock() {
        let micro = line(&Machine { kind: "microvm", ..machine() });
        assert!(micro.contains("tsc_early_khz=") && !micro.contains("-bios"), "{micro}");
        let kvm = line(&Machine { kind: "microvm", acceleration: Acceleration::Kvm, ..machine() });
        assert!(!kvm.contains("tsc_early_khz="), "{kvm}");
        let (first, second) = (tsc_khz().unwrap(), tsc_khz().unwrap());
        assert!(first.abs_diff(second) * 1000 < first, "{first} and {second} kHz");
    }
}
