//! Requests to Firecracker.
//!
//! Source: Firecracker, `src/firecracker/swagger/firecracker.yaml`, of the versions 1.8.0 and 1.16.1.

use crate::vm::api::{Api, ApiError};
use crate::vm::vmm::{API_SOCKET, Card, Channel, Disk, GUEST_CID, Machine, Monitor, Sizes, VSOCK, number_at};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

/// Name of the file, in a saved machine's directory, that holds the state of devices and CPUs.
const STATE: &str = "state";
/// Name of the file that holds the memory. A restored machine reads it throughout its life.
const MEMORY: &str = "memory";

/// Name of the network card.
const CARD: &str = "eth0";

/// Firecracker, controlled through its API.
pub(super) struct ByApi;

impl Monitor for ByApi {
    fn modules(&self) -> &'static [&'static str] {
        &["virtio_mmio"]
    }

    /// The guest's first serial line is connected to Firecracker's standard streams.
    fn talks_over_console(&self) -> bool {
        true
    }

    /// When a machine is resumed, these versions wait for the guest to confirm an event that only
    /// guests of saved machines get (`CHANGELOG.md` of Firecracker).
    fn vsock_fault(&self, version: &str) -> Option<&'static str> {
        let is_faulty = ["v1.16.0", "v1.16.1"].iter().any(|faulty| version.ends_with(faulty));
        is_faulty.then_some("sends nothing over vsock to a guest that was paused")
    }

    /// They can only be served by a program of one's own (`docs/hugepages.md` of Firecracker).
    fn restores_huge_pages(&self) -> bool {
        false
    }

    /// By default the program's log goes to standard output, which may be the channel.
    fn arguments(&self, name: &str) -> Vec<OsString> {
        ["--id", name, "--api-sock", API_SOCKET, "--log-path", "/proc/self/fd/2"].map(Into::into).into()
    }

    fn mark(&self, name: &str) -> String {
        name.into()
    }

    fn greet(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        api.get("/version", until).map(|_| ())
    }

    fn create(&self, api: &Api, machine: &Machine, until: Instant) -> Result<(), ApiError> {
        let put = |path: &str, body: Value| api.put(path, Some(body), until).map(|_| ());
        put("/machine-config", machine_config(machine))?;
        put(
            "/boot-source",
            json!({
                "kernel_image_path": machine.kernel,
                "initrd_path": machine.initramfs,
                "boot_args": command_line(machine),
            }),
        )?;
        for disk in &machine.disks {
            put(&format!("/drives/{}", disk.name), drive(disk))?;
        }
        if let Some(card) = &machine.card {
            put(&format!("/network-interfaces/{CARD}"), interface(card))?;
        }
        if machine.channel == Channel::Vsock {
            put("/vsock", json!({"guest_cid": GUEST_CID, "uds_path": VSOCK}))?;
        }
        Ok(())
    }

    fn boot(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        api.put("/actions", Some(json!({"action_type": "InstanceStart"})), until).map(|_| ())
    }

    fn sizes(&self, api: &Api, until: Instant) -> Result<Sizes, ApiError> {
        let config = api.get("/machine-config", until)?;
        Ok(Sizes {
            cpus: number_at(&config, "/vcpu_count"),
            memory_bytes: number_at(&config, "/mem_size_mib") << 20,
        })
    }

    fn pause(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        api.patch("/vm", json!({"state": "Paused"}), until).map(|_| ())
    }

    fn resume(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        api.patch("/vm", json!({"state": "Resumed"}), until).map(|_| ())
    }

    fn save(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError> {
        let body = json!({
            "snapshot_type": "Full",
            "snapshot_path": directory.join(STATE),
            "mem_file_path": directory.join(MEMORY),
        });
        api.put("/snapshot/create", Some(body), until).map(|_| ())
    }

    fn load(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError> {
        let body = json!({
            "snapshot_path": directory.join(STATE),
            "mem_backend": {"backend_type": "File", "backend_path": directory.join(MEMORY)},
            // The CPUs' threads must be placed first.
            "resume_vm": false,
        });
        api.put("/snapshot/load", Some(body), until).map(|_| ())
    }

    /// Firecracker has no such request. Its Ctrl-Alt-Del request would ask the guest's init, which
    /// is the probe, and the probe has been asked already.
    fn quit(&self, _: &Api, _: Instant) -> Result<(), ApiError> {
        Ok(())
    }

    /// The guest can only reset this machine, not power it off, and the probe powers off.
    fn ends_with_guest(&self) -> bool {
        false
    }

    fn cpu_of_thread(&self, name: &str) -> Option<usize> {
        name.strip_prefix("fc_vcpu ")?.parse().ok()
    }
}

fn machine_config(machine: &Machine) -> Value {
    let mut config = json!({
        "vcpu_count": machine.cpus.len(),
        "mem_size_mib": machine.memory_bytes >> 20,
        "smt": false,
        "track_dirty_pages": false,
    });
    if machine.huge_pages {
        config["huge_pages"] = "2M".into();
    }
    config
}

/// The guest's flushes reach the host's file: a disk that ignored them would be faster than any
/// other platform's.
fn drive(disk: &Disk) -> Value {
    json!({
        "drive_id": disk.name,
        "path_on_host": disk.path,
        // The probe mounts the root. The kernel would do so before its modules are loaded.
        "is_root_device": false,
        "is_read_only": false,
        "cache_type": "Writeback",
    })
}

fn interface(card: &Card) -> Value {
    json!({"iface_id": CARD, "host_dev_name": card.tap, "guest_mac": card.hardware_address})
}

/// `reboot=k` and `panic=-1` make the monitor exit at once when the kernel panics. There is no PCI
/// bus to scan.
fn command_line(machine: &Machine) -> String {
    format!("console=ttyS0 quiet reboot=k panic=-1 pci=off {}", machine.init_words())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(channel: Channel) -> Machine {
        Machine {
            cpus: vec![2, 3],
            memory_bytes: 300 << 20,
            huge_pages: false,
            kernel: "/k".into(),
            initramfs: "/i".into(),
            channel,
            probe_words: "--address 10.0.0.2/24".into(),
            disks: Vec::new(),
            card: None,
            console: "/log".into(),
        }
    }

    #[test]
    fn the_probes_arguments_end_the_command_line() {
        let line = command_line(&machine(Channel::Vsock));
        let end = " rdinit=/.weighbridge/probe -- --channel vsock-listen:1024 --address 10.0.0.2/24";
        assert!(line.ends_with(end), "{line}");
        assert!(command_line(&machine(Channel::Serial)).contains("-- --channel /dev/ttyS0"));
    }

    #[test]
    fn huge_pages_are_asked_for_by_their_size() {
        let plain = machine(Channel::Vsock);
        assert_eq!(machine_config(&plain).get("huge_pages"), None);
        let huge = machine_config(&Machine { huge_pages: true, ..plain });
        assert_eq!(
            (&huge["huge_pages"], &huge["mem_size_mib"], &huge["vcpu_count"]),
            (&json!("2M"), &json!(300), &json!(2))
        );
    }

    #[test]
    fn versions_that_lose_vsock_are_known() {
        for (version, is_faulty) in [
            ("Firecracker v1.15.1", false),
            ("Firecracker v1.16.0", true),
            ("Firecracker v1.16.1", true),
            ("Firecracker v1.17.0", false),
            ("", false),
        ] {
            assert_eq!(ByApi.vsock_fault(version).is_some(), is_faulty, "{version}");
        }
    }

    #[test]
    fn threads_of_cpus_are_known_by_their_names() {
        assert_eq!(ByApi.cpu_of_thread("fc_vcpu 11"), Some(11));
        assert_eq!(ByApi.cpu_of_thread("fc_vmm"), None);
        assert_eq!(ByApi.cpu_of_thread("fc_vcpu x"), None);
    }
}
