//! Devices that no workload needs: those that machines have by custom besides disks and networks,
//! and the firmware that looks for them.
//!
//! Agarwal, Jain and Porter (*Containing the Hype*, APSys 2015, section 4.2 and table 2) compare a
//! machine as the usual tools configure it, with video, audio and USB, with one without these.

use super::Qemu;
use super::part::{Line, Part};
use crate::setting;
use crate::vm::readback;
use std::collections::BTreeMap;
use weigh_model::{EnvironmentSpec, SpecError};

/// Firmware that only starts the kernel it is given; part of QEMU for x86.
const QBOOT: &str = "qboot.rom";
/// Types of machine that usually have such devices.
const CUSTOMARY: &[&str] = &["q35", "pc"];

/// The customary devices of one machine.
#[derive(Debug)]
pub(super) struct Devices {
    kind: String,
    is_default: bool,
}

impl Devices {
    pub(super) fn of(environment: &EnvironmentSpec) -> Self {
        let kind = setting(&Qemu, environment, "machine").into();
        Self { kind, is_default: setting(&Qemu, environment, "devices") == "default" }
    }

    /// The fact about the devices that the machine really has.
    pub(super) fn read_back(&self, monitor: readback::Monitor<'_>) -> BTreeMap<String, String> {
        let list = match readback::devices(monitor) {
            Ok(list) => format!("{}: {list}", self.kind),
            Err(why) => format!("not known: {why}"),
        };
        BTreeMap::from([("machine:devices".into(), list)])
    }
}

/// Checks that customary devices are only asked for in machines that usually have them.
///
/// # Errors
/// The type of machine is another one.
pub(super) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    let kind = setting(&Qemu, environment, "machine");
    if setting(&Qemu, environment, "devices") != "default" || CUSTOMARY.contains(&kind) {
        return Ok(());
    }
    let message = format!("a machine of type {kind} has no devices by default");
    let help = format!("use devices=minimal, or machine={}", CUSTOMARY.join(" or machine="));
    Err(environment.value_error("devices", message, help))
}

impl Part for Devices {
    fn arguments(&self, line: &mut Line) {
        if self.is_default {
            // The chipset's controllers, and QEMU's usual firmware, which initialises the screen.
            line.machine("usb=on");
            for device in ["VGA", "intel-hda", "hda-duplex,audiodev=sound", "usb-tablet"] {
                line.pair("-device", device);
            }
            return line.pair("-audiodev", "none,id=sound");
        }
        // Controllers without a device only cost boot time.
        let off: &[&str] = match self.kind.as_str() {
            "q35" => &["sata=off", "smbus=off", "usb=off", "vmport=off"],
            "pc" => &["usb=off", "vmport=off"],
            _ => return,
        };
        off.iter().for_each(|option| line.machine(*option));
        line.pair("-bios", QBOOT);
    }
}

/// Kernel modules that the guest needs for its devices.
pub(super) fn modules(environment: &EnvironmentSpec) -> &'static [&'static str] {
    if setting(&Qemu, environment, "balloon") == "none" { &[] } else { &["virtio_balloon"] }
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;

    fn line(keys: &str) -> String {
        line_of(&Devices::of(&EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap()))
    }

    #[test]
    fn a_minimal_machine_has_no_controllers() {
        assert!(line("machine=q35").contains("-bios qboot.rom"), "{}", line("machine=q35"));
        assert!(line("machine=q35").contains("sata=off,smbus=off,usb=off"), "{}", line("machine=q35"));
        assert!(line("machine=pc").contains("-bios qboot.rom"), "{}", line("machine=pc"));
        assert_eq!(line("machine=microvm"), "-machine type");
    }

    #[test]
    fn a_customary_machine_has_video_audio_and_usb() {
        for kind in CUSTOMARY {
            let line = line(&format!("machine={kind},devices=default"));
            for part in ["-device VGA", "hda-duplex", "usb-tablet", "usb=on"] {
                assert!(line.contains(part), "{part} in {line}");
            }
            assert!(!line.contains("-bios") && !line.contains("sata=off"), "{line}");
        }
        let spec = EnvironmentSpec::parse("qemu:machine=microvm,devices=default").unwrap();
        let error = check(&spec).unwrap_err();
        assert_eq!(&error.text[error.span], "default");
    }
}
