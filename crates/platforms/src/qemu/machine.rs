//! The command line of one machine.

use super::accel::Acceleration;
use super::part::{Line, Part, escape, escape_path};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

/// Everything that defines a machine.
#[derive(Clone)]
pub(super) struct Machine<'a> {
    /// Its name among processes and in ledgers.
    pub(super) name: &'a str,
    /// QEMU's type of machine.
    pub(super) kind: &'a str,
    pub(super) acceleration: Acceleration,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// File that the console's output is appended to.
    pub(super) console: &'a Path,
    /// Number of the monitor's descriptor, which QEMU inherits.
    pub(super) qmp: RawFd,
    /// Whether it waits for a saved machine's state instead of booting.
    pub(super) restored: bool,
    pub(super) parts: Vec<&'a dyn Part>,
}

impl Machine<'_> {
    /// QEMU's arguments. There are no default devices: every device is named.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut line = Line::default();
        line.pair("-name", &format!("{},process={}", escape(self.name), "qemu-guest"));
        for alone in ["-nodefaults", "-no-user-config", "-no-reboot", "-S"] {
            line.word(alone);
        }
        if self.restored {
            line.pair("-incoming", "defer");
        }
        line.pair("-display", "none");
        line.pair("-accel", self.acceleration.argument());
        line.pair("-kernel", self.kernel);
        line.pair("-initrd", self.initramfs);
        line.pair("-append", &self.kernel_arguments());
        line.pair("-chardev", &format!("socket,id=qmp,fd={}", self.qmp));
        line.pair("-mon", "chardev=qmp,mode=control");
        line.pair("-chardev", &format!("file,id=console,path={},append=on", escape_path(self.console)));
        line.pair("-serial", "chardev:console");
        if self.kind == "microvm" {
            ["pcie=on", "rtc=on", "auto-kernel-cmdline=off"].iter().for_each(|option| line.machine(*option));
        }
        for part in &self.parts {
            part.arguments(&mut line);
        }
        line.finish(self.kind)
    }

    /// The words after ` -- ` go to the probe. The kernel's mitigations keep their defaults.
    fn kernel_arguments(&self) -> String {
        let console = if cfg!(target_arch = "aarch64") { "ttyAMA0" } else { "ttyS0" };
        let clock = match (self.kind, self.acceleration) {
            // This machine has no timer against which the kernel could calibrate its TSC.
            ("microvm", Acceleration::Tcg) => tsc_khz().map(|khz| format!(" tsc_early_khz={khz}")),
            _ => None,
        };
        let words = self.parts.iter().map(|part| part.probe_arguments()).filter(|words| !words.is_empty());
        let of_parts: String = words.map(|words| format!(" {words}")).collect();
        format!(
            "console={console} quiet panic=-1 reboot=t{} rdinit={} --{of_parts}",
            clock.unwrap_or_default(),
            weigh_images::PROBE
        )
    }
}

/// The rate of this host's TSC, at which a machine without acceleration counts too. It is measured
/// against the monotonic clock for 20 ms; the clock is read to tens of nanoseconds, so the error is
/// a few parts per million.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u64> {
    use weigh_host::clock::monotonic_ns;
    let read = || {
        // Takes the closest of three pairs of readings.
        let tries = (0..3).map(|_| {
            let before = monotonic_ns();
            // SAFETY: the instruction has no preconditions. prctl(2) can forbid it to a process,
            // but weighbridge does not do that.
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
            kernel: Path::new("/k/vmlinux"),
            initramfs: Path::new("/w/initramfs"),
            console: Path::new("/logs/a,b.log"),
            qmp: 8,
            restored: false,
            parts: Vec::new(),
        }
    }

    fn line(machine: &Machine<'_>) -> String {
        machine.arguments().iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_has_only_the_requested_devices() {
        let line = line(&machine());
        for part in [
            "-nodefaults -no-user-config",
            "-S",
            "-accel tcg",
            "-machine q35",
            "socket,id=qmp,fd=8",
            "path=/logs/a,,b.log,append=on",
            "rdinit=/.weighbridge/probe --",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        for absent in
            ["kvm", "mitigations", "memory-backend", "blockdev", "fsdev", "tsc_early_khz", "-incoming"]
        {
            assert!(!line.contains(absent), "{absent} in {line}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_microvm_is_given_its_clock() {
        let micro = line(&Machine { kind: "microvm", ..machine() });
        assert!(micro.contains("tsc_early_khz=") && micro.contains("pcie=on"), "{micro}");
        let kvm = line(&Machine { kind: "microvm", acceleration: Acceleration::Kvm, ..machine() });
        assert!(!kvm.contains("tsc_early_khz="), "{kvm}");
        let (first, second) = (tsc_khz().unwrap(), tsc_khz().unwrap());
        assert!(first.abs_diff(second) * 1000 < first, "{first} and {second} kHz");
    }
}
