//! Another machine for tests: an `sshd(8)` in its own network namespace, connected by a pair of
//! links, with its own keys, configuration and work directory. Its kernel, its accounts and its
//! programs are this host's.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running, find_program};

/// The port of the machine's server.
const PORT: u16 = 2222;
/// The programs that a machine needs.
const PROGRAMS: &[&str] = &["ssh", "sshd", "ssh-keygen", "ip", "unshare", "mount"];

/// A machine that exists until it is dropped.
pub struct Machine {
    base: tempfile::TempDir,
    namespace: String,
    link: String,
    address: String,
    server: Option<Running>,
}

/// Why no machine can be made here.
pub fn missing() -> Option<String> {
    if !weigh_host::facts::is_root() {
        return Some("a machine to enter by ssh needs root, to make a network namespace".into());
    }
    let missing = PROGRAMS.iter().find(|name| find_program(name).is_none())?;
    Some(format!("{missing} is not installed (apt-get install openssh-server openssh-client)"))
}

fn run(program: &str, arguments: &[&str]) {
    Invocation::new(program).args(arguments).run_ok().unwrap();
}

impl Machine {
    /// `path` is where commands find programs, if not in the usual places.
    pub fn start(path: Option<&Path>) -> Self {
        Self::start_as(path, None, None)
    }

    /// A machine that runs its own weigh: it reports its own boot ID and machine ID, and has its
    /// own state directory.
    pub fn of_fleet(path: Option<&Path>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let boot = format!("6f0c2a4e-{:04x}-4000-8000-{process:012x}\n", number & 0xffff);
        let machine = format!("{process:08x}{number:024x}\n");
        Self::start_as(path, Some(&boot), Some(&machine))
    }

    /// A machine that reports its own boot ID, so that nobody takes its clock for this host's.
    pub fn apart(path: Option<&Path>) -> Self {
        Self::start_as(path, Some("6f0c2a4e-0000-4000-8000-5f5f5f5f5f5f\n"), None)
    }

    fn start_as(path: Option<&Path>, boot: Option<&str>, id: Option<&str>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let base = tempfile::Builder::new().prefix("weigh test-ssh ").tempdir_in("/var/tmp").unwrap();
        // From the range for tests between networks (RFC 2544), with four addresses per machine.
        let place = (process.wrapping_mul(64).wrapping_add(number)) & 0x7fff;
        let address = |host: u32| {
            let low = place * 4 + host;
            format!("198.{}.{}.{}", 18 + (low >> 16), (low >> 8) & 255, low & 255)
        };
        let machine = Self {
            base,
            namespace: format!("wbs{process}-{number}"),
            link: format!("wbs{process}x{number}"),
            address: address(2),
            server: None,
        };
        machine.network(&address(1));
        machine.keys();
        for (name, text) in [("boot", boot), ("machine id", id)] {
            text.into_iter().for_each(|text| fs::write(machine.path(name), text).unwrap());
        }
        machine.serve(path)
    }

    fn network(&self, ours: &str) {
        let (namespace, link) = (self.namespace.as_str(), self.link.as_str());
        run("ip", &["netns", "add", namespace]);
        run("ip", &["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace]);
        run("ip", &["address", "add", &format!("{ours}/30"), "dev", link]);
        run("ip", &["link", "set", link, "up"]);
        run("ip", &["-n", namespace, "address", "add", &format!("{}/30", self.address), "dev", "eth0"]);
        run("ip", &["-n", namespace, "link", "set", "eth0", "up"]);
        run("ip", &["-n", namespace, "link", "set", "lo", "up"]);
    }

    fn keys(&self) {
        for name in ["host key", "user key", "stranger"] {
            let path = self.path(name);
            let generate = Invocation::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            generate.arg(&path).run_ok().unwrap();
        }
        let public = |name: &str| fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        fs::write(self.path("authorized keys"), public("user key")).unwrap();
        let known = |key: String| format!("[{}]:{PORT} {key}", self.address);
        fs::write(self.path("known hosts"), known(public("host key"))).unwrap();
        fs::write(self.path("wrong hosts"), known(public("stranger"))).unwrap();
        // A user's settings that would accept any machine's key.
        let careless = "StrictHostKeyChecking no\nUpdateHostKeys yes\nVerifyHostKeyDNS yes\n";
        fs::write(self.path("client config"), careless).unwrap();
        fs::create_dir(self.path("work here")).unwrap();
    }

    fn serve(mut self, path: Option<&Path>) -> Self {
        let quoted = |name: &str| format!("\"{}\"", self.path(name).display());
        let path = path.map(|path| format!("\"PATH={}\"", path.display()));
        let state =
            self.path("machine id").exists().then(|| quoted("state").replacen('"', "\"WEIGH_STATE=", 1));
        let variables: Vec<String> = path.into_iter().chain(state).collect();
        let path = match &variables[..] {
            [] => String::new(),
            variables => format!("SetEnv {}\n", variables.join(" ")),
        };
        let config = format!(
            "ListenAddress {}:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
PasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\nMaxStartups 100\n{path}",
            self.address,
            quoted("host key"),
            quoted("authorized keys")
        );
        fs::write(self.path("server config"), config).unwrap();
        // The server insists on a directory in /run, so it gets a private /run.
        let script = "mount -t tmpfs none /run && mkdir /run/sshd || exit 1; \
[ ! -e \"$2\" ] || mount --bind \"$2\" /proc/sys/kernel/random/boot_id || exit 1; \
[ ! -e \"$3\" ] || mount --bind \"$3\" /etc/machine-id || exit 1; exec \"$0\" -D -e -f \"$1\"";
        let server = Invocation::new("ip")
            .args(["netns", "exec", &self.namespace, "unshare", "--mount", "sh", "-c", script])
            .arg(find_program("sshd").unwrap())
            .arg(self.path("server config"))
            .arg(self.path("boot"))
            .arg(self.path("machine id"))
            .log_to(&self.path("server log"));
        self.server = Some(server.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        let address: SocketAddr = format!("{}:{PORT}", self.address).parse().unwrap();
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            let log = || fs::read_to_string(self.path("server log")).unwrap_or_default();
            assert!(Instant::now() < end, "no server: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// This host's address, as the machine sees it.
    pub fn seen_host(&self) -> String {
        let (net, last) = self.address.rsplit_once('.').unwrap();
        format!("{net}.{}", last.parse::<u8>().unwrap() - 1)
    }

    /// An environment that reaches the machine.
    pub fn environment(&self) -> String {
        self.environment_but(&[])
    }

    /// The same with other values of some keys, or with further keys.
    pub fn environment_but(&self, other: &[(&str, &str)]) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        let mut keys = vec![
            ("host", format!("root@{}", self.address)),
            ("port", PORT.to_string()),
            ("identity", path("user key")),
            ("known-hosts", path("known hosts")),
            ("config", path("client config")),
            ("directory", path("work here")),
        ];
        for (name, value) in other {
            keys.retain(|(key, _)| key != name);
            keys.push((name, (*value).into()));
        }
        let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("ssh:{}", keys.join(","))
    }

    /// Takes the link down, or up again.
    pub fn link(&self, state: &str) {
        run("ip", &["link", "set", &self.link, state]);
    }

    /// The server's processes for its connections, and all their descendants.
    pub fn sessions(&self) -> Vec<u32> {
        let server = self.server.as_ref().unwrap().pid();
        let parents: Vec<(u32, u32)> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut found = vec![server];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        found.split_off(1)
    }

    /// What runs for a run on the machine: processes whose command line names the work directory.
    pub fn workers(&self) -> Vec<String> {
        let needle = self.path("work here").display().to_string();
        let line = |pid: u32| {
            let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let client = |line: &str| line.contains("BatchMode") || line.contains("--exact");
        processes().map(line).filter(|line| line.contains(&needle) && !client(line)).collect()
    }

    /// Asserts that nothing of any run is left on the machine, now or soon.
    pub fn assert_empty(&self) {
        let left = || -> Vec<String> {
            let files = fs::read_dir(self.path("work here")).unwrap().flatten();
            files.map(|file| file.path().display().to_string()).chain(self.workers()).collect()
        };
        let end = Instant::now() + Duration::from_secs(15);
        while !left().is_empty() {
            assert!(Instant::now() < end, "left on the other machine: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let sessions = if self.server.is_some() { self.sessions() } else { Vec::new() };
        for pid in sessions {
            if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        self.server = None;
        // The namespace takes the other end of the link, and so the link, with it.
        let _ = Invocation::new("ip").args(["link", "delete", &self.link]).run();
        let _ = Invocation::new("ip").args(["netns", "delete", &self.namespace]).run();
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}
