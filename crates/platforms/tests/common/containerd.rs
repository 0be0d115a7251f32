//! A separate containerd for a test, with its root, its state and its socket in one directory,
//! beside any other containerd of the host.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running, find_program};

/// The programs that it needs.
const PROGRAMS: &[&str] = &["containerd", "ctr", "containerd-shim-runc-v2", "runc"];

/// A daemon that runs until it is dropped.
pub struct Daemon {
    base: tempfile::TempDir,
    server: Option<Running>,
}

/// Why no daemon can run here.
pub fn missing() -> Option<String> {
    if !weigh_host::facts::is_root() {
        return Some("a containerd needs root".into());
    }
    let missing = PROGRAMS.iter().find(|name| find_program(name).is_none())?;
    Some(format!("{missing} is not installed (apt-get install containerd runc)"))
}

impl Daemon {
    pub fn start() -> Self {
        let base = tempfile::Builder::new().prefix("weigh-test-containerd").tempdir_in("/var/tmp").unwrap();
        let mut daemon = Self { base, server: None };
        daemon.serve();
        daemon
    }

    /// Starts the daemon, or starts it again.
    pub fn serve(&mut self) {
        let quoted = |name: &str| format!("\"{}\"", self.path(name).display());
        let config = format!(
            "version = 2\nroot = {}\nstate = {}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {}\n[plugins.\"io.containerd.internal.v1.opt\"]\npath = {}\n",
            quoted("root"),
            quoted("state"),
            quoted("socket"),
            quoted("opt")
        );
        fs::write(self.path("config.toml"), config).unwrap();
        let server = Invocation::new("containerd").arg("--config").arg(self.path("config.toml"));
        self.server = Some(server.log_to(&self.path("log")).output_to_log().spawn().unwrap());
        let end = Instant::now() + super::patience(Duration::from_secs(20));
        while UnixStream::connect(self.path("socket")).is_err() {
            let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < end, "no containerd: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the daemon; the shims of its containers live on.
    pub fn kill(&mut self) {
        self.server = None;
        fs::remove_file(self.path("socket")).unwrap();
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// An environment of this daemon with further keys, each preceded by a comma.
    pub fn environment(&self, keys: &str) -> String {
        format!("containerd:address={}{keys}", self.path("socket").display())
    }

    /// Returns what a `ctr` command prints.
    pub fn says(&self, arguments: &[&str]) -> String {
        let ctr = Invocation::new("ctr").arg("--address").arg(self.path("socket")).args(arguments);
        String::from_utf8(ctr.run_ok().unwrap().output).unwrap().trim().into()
    }

    /// Asserts that nothing of any run is left in it, now or soon: no namespace, no shim, no mount.
    pub fn assert_empty(&self) {
        let left = || {
            let state = self.base.path().display().to_string();
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let mounts = mounts.lines().filter(|line| line.contains(&state)).map(String::from);
            let shims = weigh_host::accounts::Process::named("containerd-shim");
            let shims =
                shims.iter().filter(|shim| shim.has_argument(&self.path("socket").display().to_string()));
            let shims = shims.map(|shim| format!("{shim:?}"));
            mounts
                .chain(shims)
                .chain(Some(self.says(&["namespaces", "list", "--quiet"])))
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
        };
        let end = Instant::now() + Duration::from_secs(10);
        while !left().is_empty() {
            assert!(Instant::now() < end, "left in containerd: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
