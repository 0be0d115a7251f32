//! Properties of an interface that affect its speed: driver, MTU and offloads.
//!
//! Offloads are read one by one by the older requests of `linux/ethtool.h`, which every kernel has,
//! and which return the setting in effect. They need no privileges.

use crate::{Socket, name, request};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weigh_protocol::LinkFacts;

/// `ETHTOOL_GDRVINFO`.
const DRIVER: u32 = 0x03;
/// Offloads: the request, the bit of its result that counts, and the name.
const OFFLOADS: [(u32, u32, &str); 8] = [
    // ETHTOOL_GTXCSUM, GRXCSUM, GSG, GTSO, GGSO, GGRO
    (0x16, u32::MAX, "tx-checksum"),
    (0x14, u32::MAX, "rx-checksum"),
    (0x18, u32::MAX, "scatter-gather"),
    (0x1e, u32::MAX, "tso"),
    (0x23, u32::MAX, "gso"),
    (0x2b, u32::MAX, "gro"),
    // ETHTOOL_GFLAGS: ETH_FLAG_LRO
    (0x25, 1 << 15, "lro"),
    // ETHTOOL_GUFO; since Linux 4.14 only tun and virtio have it
    (0x21, u32::MAX, "ufo"),
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    _rest: [u8; 160],
}

/// The properties of an interface; `None` if it does not exist. Values that the kernel does not
/// show are absent.
pub fn describe(interface: &str) -> Option<LinkFacts> {
    let socket = Socket::open().ok()?;
    let mut asked = request(name(interface));
    socket.ask(libc::SIOCGIFFLAGS as _, &mut asked).ok()?;
    // SAFETY: the kernel has filled in this member of the union.
    let flags = libc::c_int::from(unsafe { asked.ifr_ifru.ifru_flags });
    let driver = match flags & libc::IFF_LOOPBACK {
        0 => socket.driver(interface),
        _ => Some("loopback".into()),
    };
    let mut asked = request(name(interface));
    // SAFETY: as above.
    let mtu = socket.ask(libc::SIOCGIFMTU as _, &mut asked).ok().map(|()| unsafe { asked.ifr_ifru.ifru_mtu });
    let mtu_bytes = mtu.and_then(|mtu| mtu.try_into().ok());
    Some(LinkFacts { name: interface.into(), driver, mtu_bytes, offloads: socket.offloads(interface) })
}

impl Socket {
    fn driver(&self, interface: &str) -> Option<String> {
        let mut info = DriverInfo { command: DRIVER, driver: [0; 32], _rest: [0; 160] };
        self.ethtool(interface, &mut info)?;
        let end = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
        core::str::from_utf8(&info.driver[..end])
            .ok()
            .map(ToString::to_string)
            .filter(|name| !name.is_empty())
    }

    /// The enabled offloads; `None` if none can be read.
    fn offloads(&self, interface: &str) -> Option<Vec<String>> {
        let mut known = false;
        let on = OFFLOADS.iter().filter(|(command, bit, _)| {
            let mut value = Value { command: *command, data: 0 };
            let answered = self.ethtool(interface, &mut value).is_some();
            known |= answered;
            answered && value.data & bit != 0
        });
        let on = on.map(|(_, _, name)| (*name).to_string()).collect();
        known.then_some(on)
    }

    /// `answer` is a structure of ethtool, which begins with the command that fills it in.
    fn ethtool<T>(&self, interface: &str, answer: &mut T) -> Option<()> {
        let mut asked = request(name(interface));
        asked.ifr_ifru.ifru_data = core::ptr::from_mut(answer).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut asked).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;

    #[test]
    fn every_network_has_a_loopback_interface() {
        let lo = describe("lo").unwrap();
        assert_eq!(lo.driver.as_deref(), Some("loopback"));
        let seen =
            std::fs::read_to_string("/sys/class/net/lo/mtu").ok().and_then(|text| text.trim().parse().ok());
        assert!(seen.is_none() || lo.mtu_bytes == seen, "{lo:?}");
        assert!(lo.offloads.unwrap().iter().any(|word| word == "tx-checksum"));
        assert_eq!(describe("no-such-link"), None);
    }

    #[test]
    fn structures_are_those_of_the_kernel() {
        assert_eq!((size_of::<Value>(), size_of::<DriverInfo>()), (8, 196));
    }

    /// Runs in a network namespace of this thread.
    #[test]
    fn disabled_offloads_are_left_out() {
        // SAFETY: only the network namespace of this thread, which ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            std::eprintln!("SKIPPED what_is_switched_off_is_told: only root makes network namespaces");
            return;
        }
        let run = |tool: &str, words: &str| {
            program(tool).args(words.split(' ')).output().is_ok_and(|output| output.status.success())
        };
        if !run("ip", "link add name here mtu 1400 type veth peer name there") {
            std::eprintln!("SKIPPED what_is_switched_off_is_told: ip makes no veth");
            return;
        }
        let here = describe("here").unwrap();
        assert_eq!((here.driver.as_deref(), here.mtu_bytes), (Some("veth"), Some(1400)));
        let on = here.offloads.unwrap();
        assert!(["tso", "gso", "tx-checksum"].iter().all(|word| on.iter().any(|on| on == word)), "{on:?}");
        if !run("ethtool", "-K here tso off") {
            std::eprintln!("SKIPPED what_is_switched_off_is_told in part: ethtool is not installed");
            return;
        }
        let on = describe("here").unwrap().offloads.unwrap();
        assert!(on.iter().all(|word| word != "tso") && on.iter().any(|word| word == "gso"), "{on:?}");
    }
}
