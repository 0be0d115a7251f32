//! Configuring the network of a machine from inside: the loopback interface, and one address and
//! one default route given by the host. It uses the ioctls of netdevice(7) and `SIOCADDRT`, as
//! route(8) does.

use crate::{Socket, last_errno, name, request};
use alloc::string::String;
use core::net::Ipv4Addr;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// How long to wait for the interface, seconds: its driver may probe for devices in the background.
const DEADLINE_S: i64 = 10;
/// Interval of polling for it.
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// The name that the interface gets.
const NAME: &str = "eth0";
/// Highest interface index that is examined. They begin at 1 after boot.
const LAST_INDEX: libc::c_int = 64;

/// Why an address is not valid, or could not be configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `--gateway` without `--address`.
    #[error("--gateway needs --address")]
    GatewayAlone,
    /// The value of `--address` is not valid.
    #[error("--address takes an address with its prefix, such as 10.0.0.2/24, not `{0}`")]
    Address(String),
    /// The value of `--gateway` is not valid.
    #[error("--gateway takes an address, such as 10.0.0.1, not `{0}`")]
    Gateway(String),
    /// The gateway cannot be reached.
    #[error("the gateway {gateway} is not in the subnet of {address}/{bits}")]
    OtherSubnet {
        /// The gateway.
        gateway: Ipv4Addr,
        /// The address of the machine.
        address: Ipv4Addr,
        /// Its prefix length.
        bits: u32,
    },
    /// The machine has no network card.
    #[error("there is no network interface but lo")]
    NoCard,
    /// A system call failed.
    #[error("cannot {doing}: {errno}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The error number.
        errno: Errno,
    },
}

/// The address and gateway that the host gives a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    address: Ipv4Addr,
    /// Prefix length.
    bits: u32,
    gateway: Option<Ipv4Addr>,
}

impl Address {
    /// Parses the values of `--address` and `--gateway`.
    ///
    /// # Errors
    /// A value is not valid.
    pub fn parse(address: Option<&str>, gateway: Option<&str>) -> Result<Option<Self>, AddressError> {
        let (Some(text), gateway) = (address, gateway) else {
            return match gateway {
                Some(_) => Err(AddressError::GatewayAlone),
                None => Ok(None),
            };
        };
        let bad = || AddressError::Address(text.into());
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let address = address.parse().map_err(|_| bad())?;
        let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits)).ok_or_else(bad)?;
        let mut it = Self { address, bits, gateway: None };
        if let Some(text) = gateway {
            let gateway: Ipv4Addr = text.parse().map_err(|_| AddressError::Gateway(text.into()))?;
            if gateway.to_bits() & it.mask().to_bits() != address.to_bits() & it.mask().to_bits() {
                return Err(AddressError::OtherSubnet { gateway, address, bits });
            }
            it.gateway = Some(gateway);
        }
        Ok(Some(it))
    }

    fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - self.bits).unwrap_or(0))
    }

    /// Names the first network card `eth0` and gives it the address, and adds a default route by
    /// the gateway.
    ///
    /// # Errors
    /// [`AddressError::NoCard`] or [`AddressError::System`].
    pub fn configure(self) -> Result<(), AddressError> {
        let failed = |doing| move |errno| AddressError::System { doing, errno };
        let socket = Socket::open().map_err(failed("open a socket"))?;
        let found = socket.card().ok_or(AddressError::NoCard)?;
        if found != name(NAME) {
            let mut request = request(found);
            request.ifr_ifru.ifru_newname = name(NAME);
            socket.ask(libc::SIOCSIFNAME as _, &mut request).map_err(failed("name the interface eth0"))?;
        }
        for (what, number, address) in [
            ("give eth0 its address", libc::SIOCSIFADDR, self.address),
            ("give eth0 its subnet", libc::SIOCSIFNETMASK, self.mask()),
        ] {
            let mut request = request(name(NAME));
            request.ifr_ifru.ifru_addr = socket_address(address);
            socket.ask(number as _, &mut request).map_err(failed(what))?;
        }
        socket.raise(NAME).map_err(failed("raise eth0"))?;
        if let Some(gateway) = self.gateway {
            socket.route(gateway).map_err(failed("route by the gateway"))?;
        }
        Ok(())
    }
}

/// Raises `lo`, without which nothing in the guest can connect to itself.
///
/// # Errors
/// The errors of socket(2) and of `SIOCSIFFLAGS`.
pub fn raise_loopback() -> Result<(), Errno> {
    Socket::open()?.raise("lo")
}

impl Socket {
    fn raise(&self, interface: &str) -> Result<(), Errno> {
        let mut request = request(name(interface));
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        self.ask(libc::SIOCSIFFLAGS as _, &mut request)
    }

    /// The first network card, if it appears in time.
    fn card(&self) -> Option<[libc::c_char; libc::IFNAMSIZ]> {
        let now_s = || clock_gettime(ClockId::Monotonic).tv_sec;
        let until_s = now_s() + DEADLINE_S;
        loop {
            let found = (1..=LAST_INDEX).find_map(|index| self.card_at(index));
            if found.is_some() || now_s() > until_s {
                return found;
            }
            let _ = rustix::thread::nanosleep(&PAUSE);
        }
    }

    /// The interface of this index, if it is an Ethernet card that uses ARP: not lo, and no tunnel
    /// or dummy, which a kernel may have built in.
    fn card_at(&self, index: libc::c_int) -> Option<[libc::c_char; libc::IFNAMSIZ]> {
        let mut named = request(name(""));
        named.ifr_ifru.ifru_ifindex = index;
        self.ask(libc::SIOCGIFNAME as _, &mut named).ok()?;
        let mut asked = request(named.ifr_name);
        self.ask(libc::SIOCGIFHWADDR as _, &mut asked).ok()?;
        // SAFETY: the kernel has filled in this member of the union.
        if unsafe { asked.ifr_ifru.ifru_hwaddr.sa_family } != libc::ARPHRD_ETHER {
            return None;
        }
        let mut asked = request(named.ifr_name);
        self.ask(libc::SIOCGIFFLAGS as _, &mut asked).ok()?;
        // SAFETY: as above.
        let flags = libc::c_int::from(unsafe { asked.ifr_ifru.ifru_flags });
        (flags & libc::IFF_NOARP == 0).then_some(named.ifr_name)
    }

    fn route(&self, gateway: Ipv4Addr) -> Result<(), Errno> {
        // SAFETY: all members may be zero; the structure outlives the call, which only reads it.
        let result = unsafe {
            let mut route: libc::rtentry = core::mem::zeroed();
            route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
            route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
            route.rt_gateway = socket_address(gateway);
            route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
            libc::ioctl(self.0.as_raw_fd(), libc::SIOCADDRT as _, &raw const route)
        };
        if result < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

/// `sockaddr_in`: family, port, address in network byte order.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: all members may be zero.
    let mut to: libc::sockaddr = unsafe { core::mem::zeroed() };
    to.sa_family = libc::AF_INET as _;
    for (to, from) in to.sa_data[2..].iter_mut().zip(address.octets()) {
        *to = from as _;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;
    use std::string::String;

    #[test]
    fn addresses_are_parsed() {
        let parse = |address, gateway| Address::parse(address, gateway);
        assert_eq!(parse(None, None), Ok(None));
        let all = parse(Some("10.1.2.3/24"), Some("10.1.2.1")).unwrap().unwrap();
        assert_eq!((all.bits, all.mask()), (24, Ipv4Addr::new(255, 255, 255, 0)));
        assert_eq!(all.gateway, Some(Ipv4Addr::new(10, 1, 2, 1)));
        let alone = parse(Some("10.1.2.3/32"), None).unwrap().unwrap();
        assert_eq!((alone.mask(), alone.gateway), (Ipv4Addr::BROADCAST, None));
        for (address, gateway, said) in [
            (None, Some("10.1.2.1"), "--address"),
            (Some("10.1.2.3"), None, "10.0.0.2/24"),
            (Some("10.1.2.3/0"), None, "10.1.2.3/0"),
            (Some("10.1.2.3/33"), None, "10.1.2.3/33"),
            (Some("10.1.2/24"), None, "10.1.2/24"),
            (Some("10.1.2.3/24"), Some("gateway"), "gateway"),
            (Some("10.1.2.3/24"), Some("10.1.3.1"), "not in the subnet"),
        ] {
            let error = std::format!("{}", parse(address, gateway).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }

    /// Runs in a network namespace of this thread, which has only the interfaces of the test.
    #[test]
    fn the_first_card_gets_the_address() {
        // SAFETY: only the network namespace of this thread, which ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            std::eprintln!("SKIPPED the_first_card_gets_the_address: only root makes network namespaces");
            return;
        }
        if program("ip").arg("-V").output().is_err() {
            std::eprintln!("SKIPPED the_first_card_gets_the_address: ip is not installed");
            return;
        }
        let ip = |words: &str| {
            let output = program("ip").args(words.split(' ')).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "ip {words}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // Interfaces without ARP are skipped, like dummies.
        ip("link add name quiet type veth peer name silent");
        ip("link set dev quiet arp off");
        ip("link set dev silent arp off");
        ip("link add name card type veth peer name other");
        // The kernel numbers the two in its own order.
        let links = ip("-o link show");
        let first = links.lines().find(|line| line.contains("card@") || line.contains("other@")).unwrap();
        let second = if first.contains("other@") { "card@eth0" } else { "other@eth0" };
        raise_loopback().unwrap();
        let address = Address::parse(Some("10.77.0.2/30"), Some("10.77.0.1")).unwrap().unwrap();
        address.configure().unwrap();
        let seen = ip("-o address show");
        assert!(seen.contains("eth0    inet 10.77.0.2/30 brd 10.77.0.3"), "{seen}");
        assert!(seen.contains("lo    inet 127.0.0.1/8"), "{seen}");
        assert!(ip("-o link show").contains(second), "{links}");
        let route = ip("route show default");
        assert!(route.starts_with("default via 10.77.0.1 dev eth0"), "{route}");
    }
}
