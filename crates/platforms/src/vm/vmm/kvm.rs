//! The proof that a monitor executes guests by KVM. Its own word for it is not enough: only a guest
//! that has answered, under a monitor that holds a machine of KVM's, proves it.

use super::{Parts, Prepared, Settings, Vmm, guest, prepare};
use crate::helpers::version_line;
use crate::qemu::accel::{self, Subject};
use crate::{Availability, Guest, GuestRequest, Host, Platform, PlatformError, Result};
use std::path::Path;
use std::time::Instant;
use weigh_host::cache::CacheDirectory;
use weigh_model::EnvironmentSpec;

/// What the kernel calls the descriptor of a machine (virt/kvm/kvm_main.c).
const MACHINE: &str = "anon_inode:kvm-vm";

/// Whether a process has a machine of KVM's.
pub(super) fn holds_machine(process: u32) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target == Path::new(MACHINE))
}

/// [`crate::Platform::settle`]: `accel=kvm` is in the name when a guest has proven it.
///
/// # Errors
/// None has, or the monitor or a kernel is missing.
pub(super) fn settle(platform: &Vmm, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
    // They prove nothing, and take time to make.
    const UNRELATED: &[&str] =
        &["label", "disk", "size", "device", "cache", "net", "root", "init", "rootfs", "cpus", "memory"];
    let plain = environment.without(UNRELATED);
    crate::oci::with_probe(host, plain, |request| prove(platform, host, request).map(|_| ()))?;
    Ok(environment.with(super::ACCEL.name, "kvm"))
}

/// [`crate::Platform::availability`].
pub(super) fn availability(platform: &Vmm, host: &Host) -> Availability {
    crate::oci::availability(platform, host, |request| {
        let (settings, prepared) = prove(platform, host, request)?;
        let version = version_line(&settings.binary)?;
        Ok(format!("{version}, kernel {}, KVM proven by a guest", prepared.source))
    })
}

/// What a guest was proven to run under.
fn prove(platform: &Vmm, host: &Host, request: &GuestRequest) -> Result<(Settings, Prepared)> {
    let request = accel::proof_request(request);
    // What has nothing to do with acceleration fails here, and is no disproof.
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
        let reason = format!("{} holds no machine of KVM's", settings.binary.display());
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

    /// Where `/dev/kvm` makes machines, a machine is seen as long as it is there; elsewhere there
    /// is nothing to see.
    #[test]
    fn a_machine_is_seen_while_it_is_held() {
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
        /// `_IO(KVMIO, 0x01)` of `include/uapi/linux/kvm.h`.
        const KVM_CREATE_VM: libc::Ioctl = 0xAE01;
        let Ok(device) = std::fs::File::options().read(true).write(true).open("/dev/kvm") else { return };
        // SAFETY: the request takes a number and gives a new descriptor, which is owned from here
        // on.
        let machine = unsafe {
            let machine = libc::ioctl(device.as_raw_fd(), KVM_CREATE_VM, 0);
            if machine < 0 {
                return;
            }
            OwnedFd::from_raw_fd(machine)
        };
        // A process of its own: what another test here holds is not its.
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
        // Until it is executed it has what this process has.
        crate::vm::processes::tests::until(|| !holds_machine(other.pid()));
        other.kill_group();
        assert!(!holds_machine(0));
    }
}
