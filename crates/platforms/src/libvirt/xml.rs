//! A machine as a libvirt domain document.

use crate::qemu::accel::Acceleration;
use crate::qemu::share::Share;
use crate::vm::tune::{Model, Tuning};
use quick_xml::Writer;
use quick_xml::events::BytesText;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the virtio port that is the channel to the probe.
pub(super) const PORT: &str = "weighbridge";
/// The number of the disks' I/O thread, and, as there is only one, also the count of such threads.
const IOTHREAD: &str = "1";
/// A document under construction.
type Document = Writer<Vec<u8>>;

/// Host files that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedFiles {
    pub(super) kind: Share,
    /// For 9p the root of what is shared; for virtiofs the socket of the daemon that serves it.
    pub(super) source: PathBuf,
    /// Its tag in the guest.
    pub(super) tag: &'static str,
}

/// The machine's network card, which is a tap of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) tap: String,
    pub(super) hardware_address: String,
    /// Whether the host's kernel carries the packets, instead of QEMU; `None`: the kernel if it
    /// can.
    pub(super) vhost: Option<bool>,
}

/// A disk of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    /// The file or device that QEMU opens.
    pub(super) path: PathBuf,
    /// Whether the path is a block device.
    pub(super) is_device: bool,
    /// The format's name in QEMU.
    pub(super) format: &'static str,
    /// How many bytes of it the guest sees, if not all.
    pub(super) bytes: Option<u64>,
    /// libvirt's words for the host's cache mode and the I/O mode.
    pub(super) cache: String,
    pub(super) aio: String,
}

/// Everything that defines a machine.
#[derive(Clone)]
pub(super) struct Domain<'a> {
    /// Its name in libvirt, in QEMU's command line and in ledgers.
    pub(super) name: &'a str,
    pub(super) acceleration: Acceleration,
    /// QEMU's type of machine.
    pub(super) machine: &'a str,
    pub(super) emulator: &'a Path,
    pub(super) memory_bytes: u64,
    pub(super) tuning: &'a Tuning,
    /// Whether the guest's memory consists of reserved large pages.
    pub(super) hugepages: bool,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Arguments for the probe, appended to the kernel's command line.
    pub(super) probe_words: &'a str,
    /// File that the console's output is appended to.
    pub(super) console: &'a Path,
    /// Socket that QEMU listens on for the host's end of the channel.
    pub(super) channel: &'a Path,
    pub(super) share: Option<&'a SharedFiles>,
    pub(super) card: Option<&'a Card>,
    /// In the order of their names in the guest: `vda`, `vdb`.
    pub(super) disks: &'a [Disk],
    /// Whether a separate thread serves the disks.
    pub(super) iothread: bool,
    /// Whether QEMU runs as root regardless of the daemon's configuration, and no file changes its
    /// owner for it.
    pub(super) as_root: bool,
}

impl Domain<'_> {
    /// Returns the document's text.
    pub(super) fn text(&self) -> String {
        let mut document = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.domain(&mut document).expect("writing to memory does not fail");
        String::from_utf8_lossy(&document.into_inner()).into_owned()
    }

    fn domain(&self, document: &mut Document) -> io::Result<()> {
        let kind = match self.acceleration {
            Acceleration::Kvm => "kvm",
            Acceleration::Tcg => "qemu",
        };
        let domain = document.create_element("domain").with_attribute(("type", kind));
        domain.write_inner_content(|inner| {
            text(inner, "name", &[], self.name)?;
            text(inner, "memory", &[("unit", "KiB")], &(self.memory_bytes >> 10).to_string())?;
            self.backing(inner)?;
            self.cpus(inner)?;
            self.boot(inner)?;
            // Arm machines have ACPI tables only with a firmware that makes them.
            if cfg!(target_arch = "x86_64") {
                inner.create_element("features").write_inner_content(|features| {
                    empty(features, "acpi", &[])?;
                    empty(features, "apic", &[])
                })?;
            }
            self.model(inner)?;
            empty(inner, "clock", &[("offset", "utc")])?;
            for event in ["on_poweroff", "on_reboot", "on_crash"] {
                text(inner, event, &[], "destroy")?;
            }
            inner.create_element("devices").write_inner_content(|devices| self.devices(devices))?;
            if self.as_root {
                let label = inner.create_element("seclabel");
                let label = label.with_attributes([("type", "static"), ("model", "dac"), ("relabel", "no")]);
                label.write_inner_content(|label| text(label, "label", &[], "+0:+0"))?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// How the guest's memory is backed. A daemon that serves files reads and writes it. Large
    /// pages also use a memory file, which needs no mount of hugetlbfs.
    fn backing(&self, document: &mut Document) -> io::Result<()> {
        let is_shared = self.share.is_some_and(|share| share.kind == Share::Virtiofs);
        if !is_shared && !self.hugepages {
            return Ok(());
        }
        document.create_element("memoryBacking").write_inner_content(|backing| {
            if self.hugepages {
                empty(backing, "hugepages", &[])?;
            }
            empty(backing, "source", &[("type", "memfd")])?;
            if is_shared {
                empty(backing, "access", &[("mode", "shared")])?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The count of CPUs and their placement. Guest CPUs that are not pinned may run on any CPU of
    /// the run; QEMU's other threads may run anywhere.
    fn cpus(&self, document: &mut Document) -> io::Result<()> {
        let count = self.tuning.cpus.len();
        text(document, "vcpu", &[("placement", "static")], &count.to_string())?;
        if self.iothread {
            text(document, "iothreads", &[], IOTHREAD)?;
        }
        let all = list(&self.tuning.cpus);
        document.create_element("cputune").write_inner_content(|tune| {
            for guest in 0..count {
                let pinned = self.tuning.pin.iter().find(|(vcpu, _)| usize::try_from(*vcpu) == Ok(guest));
                let place = pinned.map_or_else(|| all.clone(), |(_, cpu)| cpu.to_string());
                empty(tune, "vcpupin", &[("vcpu", &guest.to_string()), ("cpuset", &place)])?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn boot(&self, document: &mut Document) -> io::Result<()> {
        let console = if cfg!(target_arch = "aarch64") { "ttyAMA0" } else { "ttyS0" };
        // The words after ` -- ` go to the probe. The kernel's mitigations keep their defaults.
        let line = format!(
            "console={console} quiet panic=-1 reboot=t rdinit={} -- --channel port:{PORT} {}",
            weigh_images::PROBE,
            self.probe_words
        );
        document.create_element("os").write_inner_content(|os| {
            let kind = [("arch", std::env::consts::ARCH), ("machine", self.machine)];
            text(os, "type", &kind, "hvm")?;
            text(os, "kernel", &[], &self.kernel.to_string_lossy())?;
            text(os, "initrd", &[], &self.initramfs.to_string_lossy())?;
            text(os, "cmdline", &[], line.trim_end())
        })?;
        Ok(())
    }

    /// Model and topology of the CPU. Writes nothing where the daemon's default is meant.
    fn model(&self, document: &mut Document) -> io::Result<()> {
        let (mode, name) = match (&self.tuning.model, self.acceleration) {
            // The default CPU of Arm machines has 32 bits.
            (Model::Default, _) if cfg!(target_arch = "x86_64") => (None, None),
            (Model::Default | Model::Host, Acceleration::Kvm) => (Some("host-passthrough"), None),
            (Model::Default | Model::Host, Acceleration::Tcg) => (Some("maximum"), None),
            (Model::Named(name), _) => match name.as_str() {
                "host" => (Some("host-passthrough"), None),
                "max" => (Some("maximum"), None),
                "host-model" => (Some("host-model"), None),
                name => (Some("custom"), Some(name)),
            },
        };
        let topology = self.tuning.topology;
        // One socket for each CPU is the default.
        let is_flat = topology.cores == 1 && topology.threads == 1;
        if mode.is_none() && is_flat {
            return Ok(());
        }
        let mut cpu = document.create_element("cpu");
        if let Some(mode) = mode {
            cpu = cpu.with_attribute(("mode", mode));
        }
        if name.is_some() {
            cpu = cpu.with_attributes([("match", "exact"), ("check", "none")]);
        }
        cpu.write_inner_content(|cpu| {
            if let Some(name) = name {
                text(cpu, "model", &[("fallback", "forbid")], name)?;
            }
            if !is_flat {
                let numbers = [topology.sockets, 1, topology.cores, topology.threads].map(|n| n.to_string());
                let words = ["sockets", "dies", "cores", "threads"];
                let attributes: Vec<(&str, &str)> =
                    words.into_iter().zip(numbers.iter().map(String::as_str)).collect();
                empty(cpu, "topology", &attributes)?;
            }
            // Without KVM there are no host caches to pass through.
            if self.tuning.caches && mode == Some("host-passthrough") {
                empty(cpu, "cache", &[("mode", "passthrough")])?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The devices: only those named here, and those that the daemon adds to every machine.
    fn devices(&self, devices: &mut Document) -> io::Result<()> {
        text(devices, "emulator", &[], &self.emulator.to_string_lossy())?;
        empty(devices, "controller", &[("type", "usb"), ("model", "none")])?;
        devices.create_element("serial").with_attribute(("type", "file")).write_inner_content(|serial| {
            empty(serial, "source", &[("path", &self.console.to_string_lossy()), ("append", "on")])?;
            empty(serial, "target", &[("port", "0")])
        })?;
        devices.create_element("channel").with_attribute(("type", "unix")).write_inner_content(
            |channel| {
                empty(channel, "source", &[("mode", "bind"), ("path", &self.channel.to_string_lossy())])?;
                empty(channel, "target", &[("type", "virtio"), ("name", PORT)])
            },
        )?;
        if let Some(share) = self.share {
            shared_files(devices, share)?;
        }
        if let Some(card) = self.card {
            network_card(devices, card)?;
        }
        for (disk, letter) in self.disks.iter().zip('a'..='z') {
            self.disk(devices, disk, &format!("vd{letter}"))?;
        }
        empty(devices, "memballoon", &[("model", "none")])
    }

    fn disk(&self, devices: &mut Document, disk: &Disk, name: &str) -> io::Result<()> {
        let (kind, source) = if disk.is_device { ("block", "dev") } else { ("file", "file") };
        let element = devices.create_element("disk").with_attributes([("type", kind), ("device", "disk")]);
        element.write_inner_content(|inner| {
            let mut driver = vec![("name", "qemu"), ("type", disk.format)];
            driver.extend([("cache", disk.cache.as_str()), ("io", disk.aio.as_str())]);
            if self.iothread {
                driver.push(("iothread", IOTHREAD));
            }
            empty(inner, "driver", &driver)?;
            let path = disk.path.to_string_lossy();
            match disk.bytes {
                None => empty(inner, "source", &[(source, &path)])?,
                Some(bytes) => {
                    let element = inner.create_element("source").with_attribute((source, &*path));
                    element.write_inner_content(|source| {
                        source.create_element("slices").write_inner_content(|slices| {
                            let size = bytes.to_string();
                            empty(slices, "slice", &[("type", "storage"), ("offset", "0"), ("size", &size)])
                        })?;
                        Ok(())
                    })?;
                }
            }
            empty(inner, "target", &[("dev", name), ("bus", "virtio")])
        })?;
        Ok(())
    }
}

/// The tap exists already; libvirt neither sets it up nor removes it.
fn network_card(devices: &mut Document, card: &Card) -> io::Result<()> {
    let element = devices.create_element("interface").with_attribute(("type", "ethernet"));
    element.write_inner_content(|inner| {
        empty(inner, "mac", &[("address", &card.hardware_address)])?;
        empty(inner, "target", &[("dev", &card.tap), ("managed", "no")])?;
        empty(inner, "model", &[("type", "virtio")])?;
        match card.vhost {
            Some(true) => empty(inner, "driver", &[("name", "vhost")]),
            Some(false) => empty(inner, "driver", &[("name", "qemu")]),
            None => Ok(()),
        }
    })?;
    Ok(())
}

fn shared_files(devices: &mut Document, share: &SharedFiles) -> io::Result<()> {
    let source = share.source.to_string_lossy();
    let files = devices.create_element("filesystem").with_attribute(("type", "mount"));
    match share.kind {
        Share::NineP => {
            let files = files.with_attributes([("accessmode", "passthrough"), ("multidevs", "remap")]);
            files.write_inner_content(|files| {
                empty(files, "driver", &[("type", "path")])?;
                empty(files, "source", &[("dir", &source)])?;
                empty(files, "target", &[("dir", share.tag)])?;
                empty(files, "readonly", &[])
            })
        }
        // The same daemon serves it in the same way as for the platform `qemu`.
        Share::Virtiofs => files.write_inner_content(|files| {
            empty(files, "driver", &[("type", "virtiofs")])?;
            empty(files, "source", &[("socket", &source)])?;
            empty(files, "target", &[("dir", share.tag)])
        }),
    }?;
    Ok(())
}

fn empty(document: &mut Document, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    document.create_element(name).with_attributes(attributes.iter().copied()).write_empty()?;
    Ok(())
}

fn text(document: &mut Document, name: &str, attributes: &[(&str, &str)], content: &str) -> io::Result<()> {
    let element = document.create_element(name).with_attributes(attributes.iter().copied());
    element.write_text_content(BytesText::new(content))?;
    Ok(())
}

/// A list of CPUs in libvirt's notation.
fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
