//! How Firecracker is asked.
//!
//! Source: Firecracker 1.17, `src/firecracker/swagger/firecracker.yaml`. Nothing is asked for that
//! version 1.8 does not have.

use crate::vm::api::{Api, ApiError};
use crate::vm::vmm::{API_SOCKET, Card, Channel, Disk, GUEST_CID, Machine, Monitor, Sizes, VSOCK, number_at};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

/// Name of the file that holds the state of devices and CPUs in a directory of a saved machine.
const STATE: &str = "state";
/// Name of the file that holds its memory, which a restored machine reads as long as it lives.
const MEMORY: &str = "memory";

/// Name of the network card.
const CARD: &str = "eth0";

/// Firecracker's program, asked by its interface.
pub(super) struct ByApi;

impl Monitor for ByApi {
    fn modules(&self) -> &'static [&'static str] {
        &["virtio_mmio"]
    }

    /// Its standard streams are the guest's first serial line.
    fn talks_over_console(&self) -> bool {
        true
    }

    fn arguments(&self, name: &str) -> Vec<OsString> {
        ["--id", name, "--api-sock", API_SOCKET].map(Into::into).into()
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
            // Its CPUs have to be put where they belong first.
            "resume_vm": false,
        });
        api.put("/snapshot/load", Some(body), until).map(|_| ())
    }

    /// There is no such request: Ctrl-Alt-Del would ask the guest, whose init is the probe, which
    /// has been asked.
    fn quit(&self, _: &Api, _: Instant) -> Result<(), ApiError> {
        Ok(())
    }

    /// Its machine cannot be switched off from inside, only reset, and the probe switches off.
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

/// The guest's flushes reach the host's file: a disk that forgot them would be quicker than any
/// other's.
fn drive(disk: &Disk) -> Value {
    json!({
        "drive_id": disk.name,
        "path_on_host": disk.path,
        // The probe makes a disk the root; a kernel that did would not have its modules yet.
        "is_root_device": false,
        "is_read_only": false,
        "cache_type": "Writeback",
    })
}

fn interface(card: &Card) -> Value {
    json!({"iface_id": CARD, "host_dev_name": card.tap, "guest_mac": card.hardware_address})
}

/// `reboot=k` and `panic=-1` let a kernel that panics end the monitor at once. There is no PCI to
/// look for.
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
    fn the_probe_is_told_at_the_end_of_the_command_line() {
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
    fn threads_of_cpus_are_known_by_their_names() {
        assert_eq!(ByApi.cpu_of_thread("fc_vcpu 11"), Some(11));
        assert_eq!(ByApi.cpu_of_thread("fc_vmm"), None);
        assert_eq!(ByApi.cpu_of_thread("fc_vcpu x"), None);
    }
}
