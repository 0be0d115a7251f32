//! The machine's network: a virtio card, and what is behind it.
//!
//! ```text
//! none    no card
//! user    QEMU plays a network with a router; published ports are ports of the host's loopback interface
//! passt   the same by a program beside QEMU, from which the guest does not reach that interface
//! tap     a tap device in the client's own namespace: nothing of the host's is between machine and client
//! bridge  a tap device on the run's bridge, where the client is too
//! nat     a tap device on the run's bridge; the client comes through the host's address translation
//! ```
//!
//! A tap's packets are carried by QEMU's main thread, or by vhost-net, a worker of the host's
//! kernel (`net/vhost.rs`). Both are in the guest's control group and charged to the guest.

mod forwards;
mod passt;
mod user;
pub(crate) mod vhost;

use super::Qemu;
use super::part::{Line, Part};
use super::qmp::{Qmp, QmpError};
use crate::guest::GuestCore;
use crate::network::NetworkEnd;
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, Reach, Result, setting};
use forwards::Forwards;
use passt::Passt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;
use vhost::Vhost;
use weigh_host::command::Running;
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_network::{Hop, hardware_address};

/// Values of the key `net`.
pub(super) const WORDS: &[&str] = &["none", "user", "passt", "tap", "bridge", "nat"];
/// Values of the key `vhost`.
pub(super) const VHOST_WORDS: &[&str] = &["auto", "on", "off"];
/// Model of the card, as QEMU names it.
const MODEL: &str = "virtio-net-pci";
/// QEMU's identifiers of the card and of the backend behind it.
const CARD: &str = "card";
const BACKEND: &str = "net";

/// The network of one machine.
#[derive(Debug)]
pub(super) struct Net {
    netdev: Netdev,
    /// Descriptors for QEMU, until it inherits them.
    passed: Vec<OwnedFd>,
    facts: BTreeMap<String, String>,
}

/// What is behind the card.
#[derive(Debug)]
enum Netdev {
    /// There is no card.
    None,
    User {
        forwards: Forwards,
        hardware_address: String,
    },
    Passt {
        passt: Passt,
        hardware_address: String,
        /// The value of `-netdev`, once passt has been started.
        backend: String,
    },
    Tap {
        tap: Tap,
        vhost: Vhost,
        /// The value of `-netdev`.
        backend: String,
    },
}

impl Net {
    /// Makes what the guest's network needs on the host.
    ///
    /// # Errors
    /// It could not be made; partial changes are undone.
    pub(super) fn make(host: &Host, request: &GuestRequest) -> Result<Self> {
        let word = setting(&Qemu, &request.environment, "net");
        let mut passed = Vec::new();
        let forwards = || Forwards::new(&request.publish, request.outside);
        let hardware_address = || hardware_address(&host.run, request.instance);
        let netdev = match word {
            "user" => Netdev::User { forwards: forwards(), hardware_address: hardware_address() },
            "passt" => Netdev::Passt {
                passt: Passt::new(forwards()),
                hardware_address: hardware_address(),
                backend: String::new(),
            },
            _ => match tap::of_guest(host, request, word)? {
                None => Netdev::None,
                Some(tap) => {
                    let (vhost, served) = Vhost::of(setting(&Qemu, &request.environment, "vhost"))?;
                    let queue = tap.queue()?;
                    let mut backend = format!("tap,id={BACKEND},fd={}", queue.as_raw_fd());
                    passed.push(queue);
                    match served {
                        Some(served) => {
                            backend += &format!(",vhost=on,vhostfd={}", served.as_raw_fd());
                            passed.push(served);
                        }
                        None => backend += ",vhost=off",
                    }
                    Netdev::Tap { tap, vhost, backend }
                }
            },
        };
        let facts = [("network".to_string(), word.to_string())].into();
        Ok(Self { netdev, passed, facts })
    }

    /// Starts the program that carries the packets, if any, inside the measured launch: every user of
    /// such a machine pays for it. Returns false if the program did not come up; the guest's log says
    /// why.
    ///
    /// # Errors
    /// The program is not installed, or cannot be executed.
    pub(super) fn serve(&mut self, core: &GuestCore, is_root: bool, until: Instant) -> Result<bool> {
        let Netdev::Passt { passt, backend, .. } = &mut self.netdev else { return Ok(true) };
        let Some(connection) = passt.start(core, is_root, until)? else { return Ok(false) };
        *backend = passt::backend(&connection);
        self.passed.push(connection);
        Ok(true)
    }

    /// The program that carries the packets beside QEMU.
    pub(super) fn carrier(&self) -> Option<&Running> {
        if let Netdev::Passt { passt, .. } = &self.netdev { passt.running.as_ref() } else { None }
    }

    /// The same, to end it.
    pub(super) fn carrier_mut(&mut self) -> Option<&mut Running> {
        if let Netdev::Passt { passt, .. } = &mut self.netdev { passt.running.as_mut() } else { None }
    }

    /// Configures what only a running QEMU accepts, before the guest starts, and reads back the
    /// result. `pid` is QEMU's process.
    ///
    /// # Errors
    /// QEMU's card is not the one that was asked for.
    pub(super) fn connect(&mut self, qmp: &mut Qmp, pid: u32, until: Instant) -> Result<(), QmpError> {
        let (asked, server) = match &mut self.netdev {
            Netdev::None => return Ok(()),
            Netdev::User { forwards, hardware_address } => {
                user::forward(forwards, qmp, BACKEND, until)?;
                (&*hardware_address, "QEMU's user-mode network".to_string())
            }
            Netdev::Passt { hardware_address, .. } => {
                passt::announce(qmp, until)?;
                (&*hardware_address, "passt".to_string())
            }
            Netdev::Tap { tap, vhost, .. } => {
                vhost.check(pid)?;
                (&tap.hardware_address().to_string(), vhost.to_string())
            }
        };
        let card = json!({ "path": format!("/machine/peripheral/{CARD}"), "property": "type" });
        let model = qmp.execute("qom-get", card, until)?;
        let filters = qmp.execute("query-rx-filter", json!({ "name": CARD }), until)?;
        let address = filters.pointer("/0/main-mac").and_then(Value::as_str).unwrap_or_default();
        if address != asked {
            return Err(QmpError::Lost(format!("has a network card {address:?} instead of {asked:?}")));
        }
        let model = model.as_str().unwrap_or("an unknown card");
        self.facts.insert("network-card".into(), format!("{model}, {server}"));
        Ok(())
    }
}

impl NetworkEnd for Net {
    fn reach(&self, port: u16) -> Option<Reach> {
        match &self.netdev {
            Netdev::None => None,
            Netdev::User { forwards, .. } => forwards.reach(port),
            Netdev::Passt { passt, .. } => passt.forwards.reach(port),
            Netdev::Tap { tap, .. } => tap.reach(port),
        }
    }

    fn hops(&self) -> Vec<Hop> {
        match &self.netdev {
            Netdev::None | Netdev::User { .. } | Netdev::Passt { .. } => Vec::new(),
            Netdev::Tap { tap, .. } => tap.hops(),
        }
    }

    fn remove(&mut self) -> Result<()> {
        self.passed.clear();
        match &mut self.netdev {
            Netdev::Tap { tap, .. } => tap.remove(),
            _ => Ok(()),
        }
    }
}

impl Part for Net {
    fn arguments(&self, line: &mut Line) {
        let (backend, hardware_address) = match &self.netdev {
            Netdev::None => return,
            Netdev::User { hardware_address, .. } => {
                (format!("user,id={BACKEND}"), hardware_address.as_str())
            }
            Netdev::Passt { backend, hardware_address, .. } => (backend.clone(), hardware_address.as_str()),
            Netdev::Tap { tap, backend, .. } => (backend.clone(), tap.hardware_address()),
        };
        line.pair("-netdev", &backend);
        // Nobody boots from the card, so its boot firmware is not loaded.
        line.pair("-device", &format!("{MODEL},id={CARD},netdev={BACKEND},mac={hardware_address},romfile="));
    }

    fn probe_arguments(&self) -> String {
        match &self.netdev {
            Netdev::None => String::new(),
            Netdev::User { .. } | Netdev::Passt { .. } => user::PROBE_ARGUMENTS.into(),
            Netdev::Tap { tap, .. } => tap.probe_arguments(),
        }
    }

    fn passed(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.passed)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        self.facts.clone()
    }
}

/// Kernel modules that the guest needs for its network.
pub(super) fn modules(environment: &EnvironmentSpec) -> &'static [&'static str] {
    if setting(&Qemu, environment, "net") == "none" { &[] } else { tap::MODULES }
}

/// Whether the network needs changes on the host, which take root.
pub(super) fn needs_root(environment: &EnvironmentSpec) -> bool {
    !matches!(setting(&Qemu, environment, "net"), "none" | "user" | "passt")
}

/// Checks that the host has what the network needs and weigh does not make.
///
/// # Errors
/// A program is missing, or does not work here.
pub(super) fn available(host: &Host, environment: &EnvironmentSpec) -> Result<()> {
    match setting(&Qemu, environment, "net") {
        "passt" => passt::check(host.is_root),
        _ => Ok(()),
    }
}

/// The changes that the network makes on the host, in a sentence.
pub(super) fn host_changes(environment: &EnvironmentSpec) -> Option<String> {
    match setting(&Qemu, environment, "net") {
        "user" => {
            Some("listen on a port of the loopback interface for every port that the guest publishes".into())
        }
        "passt" => Some(
            "run passt beside the machine, which listens on a port of the loopback interface for every port that the guest publishes"
                .into(),
        ),
        word => tap::host_changes(word),
    }
}

/// Checks the key `vhost`.
///
/// # Errors
/// `vhost` is set without a tap that it could serve.
pub(super) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    if needs_root(environment) || environment.get("vhost").is_none() {
        return Ok(());
    }
    let help = "name a network with a tap device too: `net=tap`, `net=bridge` or `net=nat`";
    Err(environment.key_error("vhost", "there is no tap device to be served by vhost", help))
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;

    fn spec(text: &str) -> EnvironmentSpec {
        EnvironmentSpec::parse(text).unwrap()
    }

    #[test]
    fn a_machine_has_one_card_or_none() {
        let none = Net { netdev: Netdev::None, passed: Vec::new(), facts: BTreeMap::new() };
        assert_eq!((line_of(&none), none.probe_arguments()), ("-machine type".into(), String::new()));
        let netdev = Netdev::User {
            forwards: Forwards::new(&[7], None),
            hardware_address: "02:00:00:00:00:01".into(),
        };
        let user = Net { netdev, ..none };
        assert_eq!(
            line_of(&user),
            "-netdev user,id=net -device virtio-net-pci,id=card,netdev=net,mac=02:00:00:00:00:01,romfile= -machine type"
        );
        assert!(user.probe_arguments().contains("--gateway"));
        assert_eq!(user.reach(7), None, "nothing is forwarded before QEMU does");
    }

    #[test]
    fn passt_is_the_other_end_of_a_pair_of_sockets() {
        let (connection, _theirs) = super::super::guest::pair().unwrap();
        let netdev = Netdev::Passt {
            passt: Passt::new(Forwards::new(&[7], None)),
            hardware_address: "02:00:00:00:00:01".into(),
            backend: passt::backend(&connection),
        };
        let net = Net { netdev, passed: Vec::new(), facts: BTreeMap::new() };
        let (line, number) = (line_of(&net), connection.as_raw_fd());
        let backend = format!("-netdev stream,id=net,server=off,addr.type=fd,addr.str={number} -device");
        assert!(line.starts_with(&backend), "{line}");
        assert!(net.probe_arguments().contains("--gateway"));
        assert!(net.reach(7).is_none() && net.carrier().is_none(), "nothing has been started");
    }

    #[test]
    fn every_word_is_first_once() {
        assert_eq!(modules(&spec("qemu")), &[] as &[&str]);
        assert_eq!(modules(&spec("qemu:net=user")), ["virtio_net"]);
        assert!(needs_root(&spec("qemu:net=tap")));
        assert!(["qemu:net=user", "qemu:net=passt"].iter().all(|text| !needs_root(&spec(text))));
    }

    #[test]
    fn vhost_serves_taps_alone() {
        for text in ["qemu:vhost=on", "qemu:net=user,vhost=off", "qemu:net=passt,vhost=on"] {
            let error = check(&spec(text)).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], "vhost", "{text}");
        }
        check(&spec("qemu:net=nat,vhost=on")).unwrap();
        check(&spec("qemu:net=user")).unwrap();
    }
}
