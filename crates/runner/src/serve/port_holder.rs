//! Finds other processes that hold a server's ports, if its guest uses the host's own network.
//!
//! A port that was free when the run chose it may be taken when the server needs it. Then the
//! server cannot start, and whatever answers on the port must never be mistaken for it.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weigh_model::Transport;

/// `TCP_LISTEN` and `TCP_CLOSE`, the state of a UDP socket without a peer
/// (`include/net/tcp_states.h` of the kernel).
const LISTENS: [&str; 2] = ["0A", "07"];

/// Another process that holds a port of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortHolder {
    pub(super) port: u16,
    /// Its program and process id, if they can be seen.
    pub(super) process: Option<(String, u32)>,
}

impl PortHolder {
    /// The process that holds one of the ports at an address where clients look for the server, and
    /// does not belong to the guest. Also none if that cannot be found out.
    pub(super) fn on(ports: &[u16], transport: &[Transport], guest: &[u32]) -> Option<Self> {
        let bound: Vec<(u16, u64)> =
            tables(transport).iter().flat_map(|table| sockets(table, ports)).collect();
        if bound.is_empty() {
            return None;
        }
        let mut own = Vec::new();
        for process in guest {
            // A process that has ended holds nothing; one that is off limits may hold anything.
            match held(*process) {
                Ok(inodes) => own.extend(inodes),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
                Err(_) => {}
            }
        }
        let (port, inode) = bound.into_iter().find(|(_, inode)| !own.contains(inode))?;
        Some(Self { port, process: holder(inode) })
    }

    /// The problem and a remedy, in a sentence.
    pub(super) fn reason(&self) -> String {
        let who = match &self.process {
            Some((name, pid)) => format!("another process ({name}, {pid})"),
            None => "another process".into(),
        };
        format!(
            "port {} of the host is held by {who}, so that the server cannot be reached there; end that process, or give the guest a \
             network of its own, as in net=bridge",
            self.port
        )
    }
}

/// The kernel's tables of sockets in this process's network namespace (proc_pid_net(5)).
fn tables(transport: &[Transport]) -> Vec<String> {
    let names = transport.iter().flat_map(|transport| match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    });
    names.filter_map(|name| fs::read_to_string(Path::new("/proc/self/net").join(name)).ok()).collect()
}

/// Ports and inodes of the sockets bound to these ports where a client on the host reaches them.
fn sockets(table: &str, ports: &[u16]) -> Vec<(u16, u64)> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok().filter(|port| ports.contains(port))?;
        let waits = LISTENS.contains(fields.get(3)?) && is_near(address);
        fields.get(9)?.parse().ok().filter(|_| waits).map(|inode| (port, inode))
    };
    table.lines().skip(1).filter_map(of).collect()
}

/// Whether a connection to the host's loopback interface may reach an address, which is given as
/// 32-bit words in this machine's byte order.
fn is_near(address: &str) -> bool {
    let words = address.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let Some(bytes) = words.collect::<Option<Vec<[u8; 4]>>>().map(|words| words.concat()) else {
        return false;
    };
    let near = |v4: Ipv4Addr| v4.is_loopback() || v4.is_unspecified();
    match (<[u8; 4]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
        (Ok(v4), _) => near(v4.into()),
        (_, Ok(v6)) => {
            let v6 = Ipv6Addr::from(v6);
            v6.is_unspecified() || v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(near)
        }
        _ => false,
    }
}

/// Inodes of the sockets that a process holds.
fn held(process: u32) -> std::io::Result<Vec<u64>> {
    let open = fs::read_dir(format!("/proc/{process}/fd"))?;
    let inode = |entry: std::io::Result<fs::DirEntry>| {
        let target = fs::read_link(entry.ok()?.path()).ok()?;
        let text = target.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
        std::str::from_utf8(text).ok()?.parse().ok()
    };
    Ok(open.filter_map(inode).collect())
}

/// The process that holds a socket.
fn holder(inode: u64) -> Option<(String, u32)> {
    let processes =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut holding = processes.filter(|process| held(*process).is_ok_and(|inodes| inodes.contains(&inode)));
    let process: u32 = holding.next()?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some((name.trim().into(), process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn addresses_are_near_or_not() {
        // As little-endian and big-endian machines print them.
        let v4 = |a: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(a));
        for (address, near) in [
            (v4([127, 0, 0, 1]), true),
            (v4([0; 4]), true),
            (v4([10, 0, 0, 2]), false),
            ("0".repeat(32), true),
            (format!("{}{}{}", "0".repeat(16), v4([0, 0, 255, 255]), v4([127, 0, 0, 1])), true),
            (format!("{}{}{}", "0".repeat(16), v4([0, 0, 255, 255]), v4([10, 0, 0, 2])), false),
            ("x".into(), false),
        ] {
            assert_eq!(is_near(&address), near, "{address}");
        }
    }

    #[test]
    fn a_port_of_another_is_a_strangers() {
        let own = std::process::id();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        for (port, transport) in [
            (tcp.local_addr().unwrap().port(), Transport::Tcp),
            (udp.local_addr().unwrap().port(), Transport::Udp),
        ] {
            assert_eq!(PortHolder::on(&[port], &[transport], &[own]), None);
            let found = PortHolder::on(&[1, port], &[transport], &[]).unwrap();
            assert_eq!(found.port, port);
            assert_eq!(found.process.as_ref().map(|(_, process)| *process), Some(own));
            assert!(found.reason().contains(&format!("port {port} of the host")), "{}", found.reason());
        }
        let port = tcp.local_addr().unwrap().port();
        assert_eq!(PortHolder::on(&[port], &[Transport::Udp], &[]), None, "over the other transport");
        drop(tcp);
        assert_eq!(PortHolder::on(&[port], &[Transport::Tcp], &[]), None);
    }
}
