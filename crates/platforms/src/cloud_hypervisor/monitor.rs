//! Requests to Cloud Hypervisor.
//!
//! Source: Cloud Hypervisor, `vmm/src/api/openapi/cloud-hypervisor.yaml`, of the versions 50.2 and
//! 53.0.

use crate::vm::api::{Api, ApiError};
use crate::vm::vmm::{API_SOCKET, Channel, Disk, GUEST_CID, Machine, Monitor, Sizes, VSOCK, number_at};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

/// Cloud Hypervisor, controlled through its API.
pub(super) struct ByApi;

fn at(action: &str) -> String {
    format!("/api/v1/{action}")
}

/// Requests an action that takes no parameters.
fn act(api: &Api, action: &str, until: Instant) -> Result<(), ApiError> {
    api.put(&at(action), None, until).map(|_| ())
}

/// A directory as the monitor's requests name it. The monitor takes the path without decoding it.
fn url(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

impl Monitor for ByApi {
    fn modules(&self) -> &'static [&'static str] {
        &["virtio_pci"]
    }

    /// The serial line can be a file, which is easier to read when something fails.
    fn talks_over_console(&self) -> bool {
        false
    }

    fn vsock_fault(&self, _: &str) -> Option<&'static str> {
        None
    }

    fn restores_huge_pages(&self) -> bool {
        true
    }

    fn arguments(&self, name: &str) -> Vec<OsString> {
        vec!["--api-socket".into(), self.mark(name).into()]
    }

    /// The program takes no name, so its socket's path goes through the machine's directory.
    fn mark(&self, name: &str) -> String {
        format!("../{name}/{API_SOCKET}")
    }

    fn greet(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        api.get(&at("vmm.ping"), until).map(|_| ())
    }

    fn create(&self, api: &Api, machine: &Machine, until: Instant) -> Result<(), ApiError> {
        api.put(&at("vm.create"), Some(config(machine)), until).map(|_| ())
    }

    fn boot(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        act(api, "vm.boot", until)
    }

    fn sizes(&self, api: &Api, until: Instant) -> Result<Sizes, ApiError> {
        let info = api.get(&at("vm.info"), until)?;
        Ok(Sizes {
            cpus: number_at(&info, "/config/cpus/boot_vcpus"),
            memory_bytes: number_at(&info, "/config/memory/size"),
        })
    }

    fn pause(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        act(api, "vm.pause", until)
    }

    fn resume(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        act(api, "vm.resume", until)
    }

    fn save(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError> {
        api.put(&at("vm.snapshot"), Some(json!({"destination_url": url(directory)})), until).map(|_| ())
    }

    fn load(&self, api: &Api, directory: &Path, until: Instant) -> Result<(), ApiError> {
        api.put(&at("vm.restore"), Some(json!({"source_url": url(directory)})), until).map(|_| ())
    }

    fn quit(&self, api: &Api, until: Instant) -> Result<(), ApiError> {
        act(api, "vmm.shutdown", until)
    }

    fn ends_with_guest(&self) -> bool {
        true
    }

    fn cpu_of_thread(&self, name: &str) -> Option<usize> {
        name.strip_prefix("vcpu")?.parse().ok()
    }
}

/// The machine, with only the devices that are named here and those that every machine has.
fn config(machine: &Machine) -> Value {
    let count = machine.cpus.len();
    let affinity: Vec<Value> = (machine.cpus.iter().enumerate())
        .map(|(vcpu, cpu)| json!({"vcpu": vcpu, "host_cpus": [cpu]}))
        .collect();
    let mut config = json!({
        "cpus": {"boot_vcpus": count, "max_vcpus": count, "affinity": affinity},
        // Rounded down to whole huge pages of 2 MiB, even where they are not used.
        "memory": {"size": machine.memory_bytes >> 21 << 21, "hugepages": machine.huge_pages},
        "payload": {
            "kernel": machine.kernel,
            "initramfs": machine.initramfs,
            "cmdline": command_line(machine),
        },
        "serial": {"mode": "File", "file": machine.console},
        "console": {"mode": "Off"},
    });
    if !machine.disks.is_empty() {
        config["disks"] = machine.disks.iter().map(disk).collect();
    }
    if let Some(card) = &machine.card {
        config["net"] = json!([{"tap": card.tap, "mac": card.hardware_address}]);
    }
    if machine.channel == Channel::Vsock {
        config["vsock"] = json!({"cid": GUEST_CID, "socket": VSOCK});
    }
    config
}

/// States the disk's format, because a guest could write a header that looks like another format.
/// Versions before 50.1 do not know the field, and ignore it.
fn disk(disk: &Disk) -> Value {
    json!({"id": disk.name, "path": disk.path, "direct": !disk.cached, "image_type": "Raw"})
}

/// Cloud Hypervisor boots a machine again when it is reset, so a kernel that panics must halt. The
/// probe then never says hello, and the console shows why.
fn command_line(machine: &Machine) -> String {
    format!("console=ttyS0 quiet {}", machine.init_words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_configured_as_requested() {
        let machine = Machine {
            cpus: vec![4, 6],
            memory_bytes: (301 << 20) + 5,
            huge_pages: true,
            kernel: "/k".into(),
            initramfs: "/i".into(),
            channel: Channel::Vsock,
            probe_words: String::new(),
            disks: Vec::new(),
            card: None,
            console: "console".into(),
        };
        let config = config(&machine);
        assert_eq!(config["memory"], json!({"size": 300 << 20, "hugepages": true}));
        assert_eq!(config["cpus"]["affinity"][1], json!({"vcpu": 1, "host_cpus": [6]}));
        assert_eq!(config["serial"]["file"], "console");
        let line = config["payload"]["cmdline"].as_str().unwrap();
        assert!(line.ends_with("-- --channel vsock-listen:1024"), "{line}");
        assert_eq!(config.get("net"), None);
    }

    #[test]
    fn a_machine_is_known_by_the_way_to_its_socket() {
        assert_eq!(ByApi.mark("weighbridge-a-1"), "../weighbridge-a-1/api.sock");
        assert_eq!(ByApi.arguments("b")[1], "../b/api.sock");
        assert_eq!(ByApi.cpu_of_thread("vcpu12"), Some(12));
        assert_eq!(ByApi.cpu_of_thread("vmm"), None);
    }
}
