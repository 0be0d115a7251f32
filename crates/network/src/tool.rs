//! The programs `ip` and `nft`, and their output.

use crate::subnet::Subnet;
use crate::{NetworkError, Result};
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use weigh_host::command::{CommandError, Finished, Invocation};

/// Deadline of a tool, which may wait for other programs that change rules.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long to wait for another run that changes the network.
const LOCK_DEADLINE: Duration = Duration::from_secs(20);

/// An invocation of a tool.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> Invocation {
    Invocation::new(program).args(arguments.iter().copied()).deadline(DEADLINE).dies_with_caller()
}

/// Runs these commands by one `ip`, in the network namespace of this thread, up to the first that
/// fails.
pub(crate) fn ip(commands: &[String]) -> Result<()> {
    let invocation = tool("ip", &["-batch", "-"]).input(commands.join("\n") + "\n");
    invocation.run_ok().map(drop).map_err(missing("ip"))
}

/// Runs an `nft` script, which is atomic.
pub(crate) fn nft(script: &str) -> Result<()> {
    tool("nft", &["-f", "-"]).input(script).run_ok().map(drop).map_err(missing("nft"))
}

/// Turns the absence of a program into advice on installing it.
pub(crate) fn missing(program: &'static str) -> impl FnOnce(CommandError) -> NetworkError {
    move |error| match error {
        CommandError::NotFound { .. } => NetworkError::Missing {
            program,
            remedy: match program {
                "ip" => "install it with `apt-get install iproute2`",
                "nft" => "install it with `apt-get install nftables`",
                _ => "install it with `apt-get install iptables`",
            },
        },
        other => other.into(),
    }
}

/// A network interface as `ip -details -json address` shows it; the alias is one of the details.
#[derive(Debug, Deserialize)]
pub(crate) struct Link {
    #[serde(rename = "ifname")]
    pub(crate) name: String,
    #[serde(rename = "ifalias", default)]
    pub(crate) alias: String,
    /// Only virtual links have it.
    #[serde(default)]
    pub(crate) linkinfo: LinkInfo,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct LinkInfo {
    /// `bridge`, `tun`.
    #[serde(rename = "info_kind")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Address {
    family: String,
    local: Option<String>,
    /// The other end of a point-to-point link.
    address: Option<String>,
    prefixlen: u8,
}

#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

/// The interfaces and routes of the network namespace of this thread.
#[derive(Debug)]
pub(crate) struct NetworkState {
    /// Its interfaces.
    pub(crate) links: Vec<Link>,
    routes: Vec<Route>,
}

impl NetworkState {
    /// Reads the current state.
    pub(crate) fn now() -> Result<Self> {
        Ok(Self {
            links: list(&["-details", "-json", "address", "show"])?,
            routes: list(&["-json", "-4", "route", "show", "table", "all"])?,
        })
    }

    /// The subnets in use, except those of the interface `own`: of addresses, routes, and name
    /// servers, which may be behind the default route.
    pub(crate) fn taken(&self, own: &str) -> Vec<Subnet> {
        let addresses = self.links.iter().filter(|link| link.name != own).flat_map(|link| {
            let version4 = link.addr_info.iter().filter(|address| address.family == "inet");
            version4.flat_map(|address| {
                let ends = [&address.local, &address.address].into_iter().flatten();
                ends.filter_map(|end| Some(Subnet::new(end.parse().ok()?, address.prefixlen)))
            })
        });
        let routes = self.routes.iter().filter(|route| route.dev != own && route.dst != "default");
        let routes = routes.filter_map(|route| Subnet::parse(&route.dst)).filter(|subnet| subnet.bits > 0);
        addresses.chain(routes).chain(name_servers()).collect()
    }
}

fn list<T: for<'a> Deserialize<'a>>(arguments: &[&str]) -> Result<Vec<T>> {
    let invocation = tool("ip", arguments);
    let command = invocation.command_line();
    let Finished { output, .. } = invocation.run_ok().map_err(missing("ip"))?;
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output).map_err(|source| NetworkError::Output { command, source })
}

fn name_servers() -> Vec<Subnet> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| Some(Subnet::new(server.trim().parse::<Ipv4Addr>().ok()?, 32))).collect()
}

/// Whether an interface of this name exists.
pub(crate) fn link_exists(name: &str) -> Result<bool> {
    let finished = tool("ip", &["link", "show", "dev", name]).run().map_err(missing("ip"))?;
    Ok(finished.status.success())
}

/// A file that the kernel has in every network namespace and that only its root may open, so that
/// nobody else can hold its lock (ip-sysctl.rst, "tcp_fastopen_key"). Its content is of no
/// interest.
const LOCK: &str = "/proc/sys/net/ipv4/tcp_fastopen_key";

/// A lock of the network namespace, held while subnets are chosen and shared settings are changed.
/// It is the flock(2) of a file of the kernel, which has exactly this scope, leaves nothing behind,
/// and is released when the process ends.
#[derive(Debug)]
pub(crate) struct NetworkLock(#[expect(dead_code, reason = "held, not used")] File);

impl NetworkLock {
    /// Waits for the lock.
    pub(crate) fn take() -> Result<Self> {
        let failed = || NetworkError::io(format!("lock {LOCK}"));
        let file = File::open(LOCK).map_err(failed())?;
        let end = Instant::now() + LOCK_DEADLINE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(failed()(error)),
                Err(TryLockError::WouldBlock) if Instant::now() > end => {
                    return Err(NetworkError::Busy(LOCK_DEADLINE));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}
