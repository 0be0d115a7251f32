//! What the network tests share: hosts that they may change, runs, and connections between a client
//! and a guest.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};
use weigh_host::ledger::{Change, Ledger, PlatformUndo, Sweep, UndoError, UndoOutcome, sweep};
use weigh_host::state::StateDirectory;
use weigh_network::{GuestNetwork, Mode, NetworkError, connect, within};

/// Time limit for anything that should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Whether networks can be made here; if not, says why, and fails if `WEIGH_REQUIRE` has `network`.
pub fn ready(test: &str) -> bool {
    let missing = ["ip", "nft", "iptables-nft"].into_iter().find(|name| find_program(name).is_none());
    match missing {
        _ if !weigh_host::facts::is_root() => skip_or_fail(test, "only root makes networks"),
        Some(name) => skip_or_fail(test, &format!("{name} is not installed")),
        None => true,
    }
}

fn skip_or_fail(test: &str, reason: &str) -> bool {
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word == "network"), "networks are required: {reason}");
    eprintln!("SKIPPED {test}: {reason}");
    false
}

/// The same for taps, which need a device.
pub fn taps_ready(test: &str) -> bool {
    let device = || OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let usable = |error| skip_or_fail(test, &format!("/dev/net/tun: {error}"));
    ready(test) && device().map_or_else(usable, |_| true)
}

/// Undoes changes as weigh does.
pub struct Undo;

impl PlatformUndo for Undo {
    fn undo(
        &self,
        platform: &str,
        what: &str,
        id: &str,
        detail: &serde_json::Value,
    ) -> Result<UndoOutcome, UndoError> {
        assert_eq!(platform, weigh_network::PLATFORM);
        weigh_network::undo(what, id, detail).map_err(|error| UndoError::Platform(Box::new(error)))
    }
}

/// A separate run, in its own state directory.
pub struct Run {
    pub ledger: Ledger,
    pub name: String,
    pub work: PathBuf,
    pub state: StateDirectory,
    _base: Option<tempfile::TempDir>,
}

impl Run {
    pub fn new(test: &str) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{test}-{}-{number}", std::process::id());
        let mut run = Self::at(&base.path().join("state of a run"), &name);
        run._base = Some(base);
        run
    }

    /// A run in a state directory that outlives this process.
    pub fn at(state: &Path, name: &str) -> Self {
        let state = StateDirectory::at(state);
        let ledger = Ledger::create(&state, name).unwrap();
        let work = state.path().join("work");
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        Self { ledger, name: name.into(), work, state, _base: None }
    }

    pub fn try_guest(&self, instance: u64, mode: Mode) -> Result<GuestNetwork, NetworkError> {
        GuestNetwork::make(&self.ledger, &self.name, &self.work, instance, mode)
    }

    pub fn guest(&self, instance: u64, mode: Mode) -> GuestNetwork {
        self.try_guest(instance, mode).unwrap()
    }

    pub fn tap(&self, instance: u64, mode: Mode) -> GuestNetwork {
        GuestNetwork::tap(&self.ledger, &self.name, &self.work, instance, mode).unwrap()
    }

    /// Ends the run as weigh does.
    pub fn close(self) {
        self.ledger.close(&Undo).unwrap();
        assert!(!self.state.path().exists(), "the work directory is gone");
    }
}

/// Sweeps what dead runs left, until none seems to live: a newly forked child holds a lock until
/// its exec.
pub fn sweep_dead(state: &Path) -> Sweep {
    let state = StateDirectory::at(state);
    let end = Instant::now() + PATIENCE;
    loop {
        let swept = sweep(&state, &Undo).unwrap();
        if swept.live.is_empty() || Instant::now() > end {
            return swept;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the output of a tool, which must succeed.
pub fn said(program: &str, arguments: &[&str]) -> String {
    let done = Invocation::new(program).args(arguments.iter().copied()).run_ok().unwrap();
    String::from_utf8(done.output).unwrap()
}

/// Does some work on a separate host: a network namespace with a way out, and the rules of Docker's
/// engine, which forwards nothing. Does nothing if `ready` says that this is impossible.
pub fn on_a_host(ready: fn(&str) -> bool, test: &str, work: impl FnOnce() + Send) {
    if !ready(test) {
        return;
    }
    let host = || {
        // SAFETY: only the network namespace is unshared, no descriptors and no memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        said("ip", &["link", "set", "lo", "up"]);
        for rule in
            ["-P FORWARD DROP", "-N DOCKER-USER", "-A DOCKER-USER -j RETURN", "-A FORWARD -j DOCKER-USER"]
        {
            said("iptables-nft", &rule.split(' ').collect::<Vec<_>>());
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(host).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Does some work with a run on a separate host ([`on_a_host`]), and checks that the host is as it
/// was before.
pub fn in_a_run(ready: fn(&str) -> bool, test: &str, work: impl FnOnce(&Run) + Send) {
    on_a_host(ready, test, || {
        let before = picture();
        let run = Run::new(test);
        work(&run);
        is_as_before(&before);
        run.close();
    });
}

/// Everything that runs may change in the host's network, without what changes by itself.
pub fn picture() -> String {
    let rules = said("nft", &["--stateless", "list", "ruleset"]);
    let forward = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    let links = said("ip", &["-oneline", "link", "show"]);
    let addresses = said("ip", &["-oneline", "address", "show"]);
    let routes = said("ip", &["route", "show", "table", "all"]);
    [rules, forward, links, addresses, routes].join("----\n")
}

/// Waits until the kernel has removed what it removes by itself, and compares.
pub fn is_as_before(before: &str) {
    let end = Instant::now() + PATIENCE;
    // Ignores whether the kernel is still checking that an address is unique; until then it has no
    // route to it.
    let of_link = |line: &&str| !line.starts_with("local fe80:");
    let settled = |picture: &str| {
        let picture = picture.replace(" tentative", "");
        picture.lines().filter(of_link).collect::<Vec<_>>().join("\n")
    };
    let before = settled(before);
    let mut now = settled(&picture());
    while now != before && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        now = settled(&picture());
    }
    assert_eq!(now, before);
}

/// Starts a server in a guest's namespace that answers `pong` to one client after another, and
/// reports the first client's address.
pub fn serve(namespace: &Path, port: u16) -> std::sync::mpsc::Receiver<IpAddr> {
    let listener = within(Some(namespace), || TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
    let (send, clients) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, client) = listener.accept().unwrap();
        stream.write_all(b"pong").unwrap();
        let _ = send.send(client.ip());
    });
    clients
}

/// Returns what the server at an address sends.
pub fn ask(address: SocketAddr, from: Option<&Path>) -> String {
    let mut stream: TcpStream = connect(address, from, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A stand-in for a machine at a tap: the kernel of a namespace, which has taken the address, and a
/// relay of its frames.
pub struct Machine {
    kernel: GuestNetwork,
}

impl Machine {
    pub fn boot(run: &Run, instance: u64, network: &GuestNetwork) -> Self {
        let kernel = run.tap(instance, Mode::Tap);
        let (address, gateway) = (network.address().unwrap(), network.gateway().unwrap());
        within(Some(kernel.namespace()), || {
            said("ip", &["address", "flush", "dev", "eth0"]);
            said(
                "ip",
                &["address", "add", &format!("{address}/{}", weigh_network::PREFIX_BITS), "dev", "eth0"],
            );
            said("ip", &["route", "add", "default", "via", &gateway.to_string()]);
        })
        .unwrap();
        let ends = [network.queue().unwrap(), kernel.queue().unwrap()].map(std::fs::File::from);
        let others = [&ends[1], &ends[0]].map(|end| end.try_clone().unwrap());
        for (mut from, mut to) in ends.into_iter().zip(others) {
            // Ends when either tap is removed.
            std::thread::spawn(move || {
                let mut frame = vec![0; 1 << 17];
                while let Ok(length) = from.read(&mut frame) {
                    if length == 0 || to.write_all(&frame[..length]).is_err() {
                        break;
                    }
                }
            });
        }
        Self { kernel }
    }

    /// Connects to the machine as a client does, as the network says.
    pub fn talk(&self, network: &GuestNetwork, port: u16) -> IpAddr {
        talk_to(self.kernel.namespace(), network, port)
    }
}

/// Connects to a guest as a client does, and returns the address that the guest saw.
pub fn talk(guest: &GuestNetwork, port: u16) -> IpAddr {
    talk_to(guest.namespace(), guest, port)
}

fn talk_to(server: &Path, network: &GuestNetwork, port: u16) -> IpAddr {
    let clients = serve(server, port);
    let (address, from) = network.reach(port).unwrap();
    assert_eq!(ask(address, from.as_deref()), "pong");
    clients.recv_timeout(PATIENCE).unwrap()
}
