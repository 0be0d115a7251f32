//! The machine's network: a virtio card, and what is behind it.
//!
//! ```text
//! none    no card
//! user    QEMU plays a network with a router; published ports are ports of the host's loopback interface
//! tap     a tap device in the client's own namespace: nothing of the host's is between machine and client
//! bridge  a tap device on the run's bridge, where the client is too
//! nat     a tap device on the run's bridge; the client comes through the host's address translation
//! ```
//!
//! A tap's packets are carried by QEMU's main thread, or by vhost-net, a worker of the host's
//! kernel (`net/vhost.rs`). Both are in the guest's control group and charged to the guest.

mod user;
mod vhost;

use super::Qemu;
use super::part::{Line, Part};
use super::qmp::{Qmp, QmpError};
use crate::network::NetworkEnd;
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, Reach, Result, setting};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;
use user::User;
use vhost::Vhost;
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_network::{Hop, hardware_address};

/// Values of the key `net`.
pub(super) const WORDS: &[&str] = &["none", "user", "tap", "bridge", "nat"];
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
        user: User,
        hardware_address: String,
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
        let netdev = match word {
            "user" => Netdev::User {
                user: User::new(&request.publish, request.outside),
                hardware_address: hardware_address(&host.run, request.instance),
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

    /// Configures what only a running QEMU accepts, before the guest starts, and reads back the
    /// result. `pid` is QEMU's process.
    ///
    /// # Errors
    /// QEMU's card is not the one that was asked for.
    pub(super) fn connect(&mut self, qmp: &mut Qmp, pid: u32, until: Instant) -> Result<(), QmpError> {
        let (asked, server) = match &mut self.netdev {
            Netdev::None => return Ok(()),
            Netdev::User { user, hardware_address } => {
                user.forward(qmp, BACKEND, until)?;
                (&*hardware_address, "QEMU's user-mode network".to_string())
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
            Netdev::User { user, .. } => user.reach(port),
            Netdev::Tap { tap, .. } => tap.reach(port),
        }
    }

    fn hops(&self) -> Vec<Hop> {
        match &self.netdev {
            Netdev::None | Netdev::User { .. } => Vec::new(),
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
            Netdev::Tap { tap, backend, .. } => (backend.clone(), tap.hardware_address()),
        };
        line.pair("-netdev", &backend);
        // Nobody boots from the card, so its boot firmware is not loaded.
        line.pair("-device", &format!("{MODEL},id={CARD},netdev={BACKEND},mac={hardware_address},romfile="));
    }

    fn probe_arguments(&self) -> String {
        match &self.netdev {
            Netdev::None => String::new(),
            Netdev::User { .. } => user::PROBE_ARGUMENTS.into(),
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
    !matches!(setting(&Qemu, environment, "net"), "none" | "user")
}

/// The changes that the network makes on the host, in a sentence.
pub(super) fn host_changes(environment: &EnvironmentSpec) -> Option<String> {
    match setting(&Qemu, environment, "net") {
        "user" => {
            Some("listen on a port of the loopback interface for every port that the guest publishes".into())
        }
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
        let netdev =
            Netdev::User { user: User::new(&[7], None), hardware_address: "02:00:00:00:00:01".into() };
        let user = Net { netdev, ..none };
        assert_eq!(
            line_of(&user),
            "-netdev user,id=net -device virtio-net-pci,id=card,netdev=net,mac=02:00:00:00:00:01,romfile= -machine type"
        );
        assert!(user.probe_arguments().contains("--gateway"));
        assert_eq!(user.reach(7), None, "nothing is forwarded before QEMU does");
    }

    #[test]
    fn every_word_is_first_once() {
        assert_eq!(modules(&spec("qemu")), &[] as &[&str]);
        assert_eq!(modules(&spec("qemu:net=user")), ["virtio_net"]);
        assert!(needs_root(&spec("qemu:net=tap")) && !needs_root(&spec("qemu:net=user")));
    }

    #[test]
    fn vhost_serves_taps_alone() {
        for text in ["qemu:vhost=on", "qemu:net=user,vhost=off"] {
            let error = check(&spec(text)).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], "vhost", "{text}");
        }
        check(&spec("qemu:net=nat,vhost=on")).unwrap();
        check(&spec("qemu:net=user")).unwrap();
    }
}
