//! The proof that a monitor executes guests by KVM. The monitor's own claim is not enough: the
//! proof is a guest that has answered while its monitor holds a KVM machine.

use super::{Parts, Prepared, Settings, Vmm, guest, prepare};
use crate::helpers::version_line;
use crate::qemu::accel::{self, Subject};
use crate::{Availability, Guest, GuestRequest, Host, Platform, PlatformError, Result};
use std::path::Path;
use std::time::Instant;
use weigh_host::cache::CacheDirectory;
use weigh_model::EnvironmentSpec;

/// The kernel's name for a machine's descriptor (virt/kvm/kvm_main.c).
const MACHINE: &str = "anon_inode:kvm-vm";

/// Whether a process holds a KVM machine.
pub(super) fn holds_machine(process: u32) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target == Path::new(MACHINE))
}

/// Implements [`crate::Platform::make_explicit`]: `accel=kvm` is in the name once a guest has
/// proven it.
///
/// # Errors
/// No guest has proven it, or the monitor or a kernel is missing.
pub(super) fn make_explicit(
    platform: &Vmm,
    host: &Host,
    environment: &EnvironmentSpec,
) -> Result<EnvironmentSpec> {
    // These keys do not affect the proof, and some would take time.
    const UNRELATED: &[&str] =
        &["label", "disk", "size", "device", "cache", "net", "root", "init", "rootfs", "cpus", "memory"];
    let plain = environment.without(UNRELATED);
    crate::oci::with_probe(host, plain, |request| prove(platform, host, request).map(|_| ()))?;
    Ok(environment.with(super::ACCEL.name, "kvm"))
}

/// Implements [`crate::Platform::availability`].
pub(super) fn availability(platform: &Vmm, host: &Host) -> Availability {
    crate::oci::availability(platform, host, |request| {
        let (settings, prepared) = prove(platform, host, request)?;
        let version = version_line(&settings.binary)?;
        Ok(format!("{version}, kernel {}, KVM proven by a guest", prepared.source))
    })
}

/// Proves KVM; returns the settings and the files that the guest ran with.
fn prove(platform: &Vmm, host: &Host, request: &GuestRequest) -> Result<(Settings, Prepared)> {
    let request = accel::proof_request(request);
    // A failure here has nothing to do with acceleration, and disproves nothing.
    let settings = platform.settings(&request)?;
    let prepared = prepare(platform, host, &request, &settings)?;
    let subject =
        Subject { binary: &settings.binary, kernel: &prepared.kernel, kind: platform.name(), cpu: "" };
    let boot = || {
        let until = Instant::now() + weigh_host::deadlines::scaled(accel::PROOF_DEADLINE);
        let parts = Parts::default();
        let mut guest = guest::launch(platform, host, &request, &settings, &prepared, parts, None, until)?;
        let seen = guest.facts().remove("acceleration");
        guest.stop()?;
        if seen.as_deref() == Some("kvm") {
            return Ok(());
        }
        let reason = format!("{} runs no machine under KVM", settings.binary.display());
        Err(PlatformError::launch(platform.name(), reason))
    };
    accel::prove(host, CacheDirectory::open().as_ref(), &subject, boot).required()?;
    Ok((settings, prepared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weigh_host::command::Invocation;

    /// A machine is seen while it exists. Does nothing where `/dev/kvm` makes no machines.
    #[test]
    fn a_machine_is_seen_while_it_is_held() {
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
        /// `_IO(KVMIO, 0x01)` of `include/uapi/linux/kvm.h`.
        const KVM_CREATE_VM: libc::Ioctl = 0xAE01;
        let Ok(device) = std::fs::File::options().read(true).write(true).open("/dev/kvm") else { return };
        // SAFETY: the request takes a number and returns a new descriptor, which is owned from here
        // on.
        let machine = unsafe {
            let machine = libc::ioctl(device.as_raw_fd(), KVM_CREATE_VM, 0);
            if machine < 0 {
                return;
            }
            OwnedFd::from_raw_fd(machine)
        };
        // A separate process, so that machines of other tests in this process do not count.
        let mut holder = Invocation::new("sleep").arg("60").pass(machine).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !holds_machine(holder.pid()) {
            assert!(Instant::now() < until, "it holds a machine");
            std::thread::sleep(Duration::from_millis(1));
        }
        holder.kill_group();
        holder.wait(Duration::from_secs(10)).unwrap().unwrap();
        assert!(!holds_machine(holder.pid()));
    }

    #[test]
    fn a_process_without_a_machine_holds_none() {
        let mut other = Invocation::new("sleep").arg("60").spawn().unwrap();
        // Before exec it has this process's descriptors.
        crate::vm::processes::tests::until(|| !holds_machine(other.pid()));
        other.kill_group();
        assert!(!holds_machine(0));
    }
}
