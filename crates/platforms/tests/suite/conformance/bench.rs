//! The environment of every check, and which checks are deferred.

use crate::common::{self, containerd, kubernetes, osv, skip_or_fail, sshd};
use std::ops::Deref;
use std::path::Path;

use weigh_host::ledger::Change;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{
    Capabilities, CompletedCommand, Guest, GuestRequest, Platform, RunOptions, SessionError, common_keys,
    resolve,
};
use weigh_protocol::Command;

pub use crate::common::{MINUTE, command};

/// The name of a check that shares its guest with others, and the check.
pub type Check = (&'static str, fn(&Bench, &mut dyn Guest));

/// A separate run, for the guests of one environment.
pub struct Bench {
    pub platform: &'static dyn Platform,
    pub environment: EnvironmentSpec,
    pub capabilities: Capabilities,
    run: crate::common::Bench,
    _turn: std::fs::File,
}

impl Deref for Bench {
    type Target = crate::common::Bench;

    fn deref(&self) -> &crate::common::Bench {
        &self.run
    }
}

/// Runs a check for an environment, or skips it if the platform is missing here. A platform that
/// must be told where its guests run gets a place made for it.
pub fn check(name: &str, environment: &str, check: fn(&Bench)) {
    if let Some(reason) = put_off(name, environment) {
        eprintln!("SKIPPED {name} on {environment}: {reason}");
    } else if environment == "ssh" {
        match sshd::missing() {
            Some(reason) => skip_or_fail(&format!("{name} on ssh"), environment, &reason),
            None => {
                let machine = sshd::Machine::start(None);
                check_at(name, &machine.environment(), check);
                machine.assert_empty();
            }
        }
    } else if environment == "containerd" {
        match containerd::missing() {
            Some(reason) => skip_or_fail(&format!("{name} on containerd"), environment, &reason),
            None => {
                let daemon = containerd::Daemon::start();
                check_at(name, &daemon.environment(""), check);
                daemon.assert_empty();
            }
        }
    } else if environment == "pod" {
        match kubernetes::missing() {
            Some(reason) => skip_or_fail(&format!("{name} on pod"), environment, &reason),
            None => {
                check_at(name, &kubernetes::environment(",cpus=1"), check);
                kubernetes::assert_empty();
            }
        }
    } else if environment == "pod:context=fake" {
        match kubernetes::Fake::missing() {
            Some(reason) => skip_or_fail(&format!("{name} on a fake cluster"), environment, &reason),
            None => {
                let fake = kubernetes::Fake::new();
                check_at(name, &fake.environment(""), check);
                assert_eq!(fake.objects(), [""; 0]);
            }
        }
    } else if environment == "osv" {
        let fake = osv::Fake::new(None);
        check_at(name, &fake.environment("runs", "loader.elf"), check);
    } else {
        check_at(name, environment, check);
    }
}

fn check_at(name: &str, environment: &str, check: fn(&Bench)) {
    let spec = EnvironmentSpec::parse(&common::accelerated(environment)).unwrap();
    let Ok((platform, resolved)) = resolve(&spec) else {
        // Not in the registry, which `every_platform_is_tested` and the registry's own test check.
        eprintln!("SKIPPED {name} on {environment}: this weighbridge has no such platform");
        return;
    };
    let _turn = common::shared_turn();
    let can = platform.capabilities(&resolved);
    if !can.fork && !can.fake && !OF_ONE_PROGRAM.contains(&name) {
        eprintln!("SKIPPED {name} on {environment}: its guests run one program and have tests of their own");
        return;
    }
    if let Some(reason) = missing(platform, &resolved) {
        return skip_or_fail(&format!("{name} on {environment}"), platform.name(), &reason);
    }
    // A machine that sees none of the host's programs needs others.
    let resolved = if can.fork && can.sized_memory && !can.host_root {
        let Some(image) = common::system_image(&format!("{name} on {environment}")) else { return };
        resolved.with("rootfs", &image)
    } else {
        resolved
    };
    let bench = Bench::new(platform, resolved);
    check(&bench);
    bench.assert_no_guest_in_the_ledger();
}

/// Environments with slow guests, and variants of an environment that runs every check: each is a
/// platform, or a key with its value.
const SLOW: &[&str] = &["podman", "incus", "lxd", "init=full", "libvirt", "ssh", "net=none", "net=host"];
/// The checks that say most about a guest.
const TELLING: &[&str] = &[
    "commands_and_files",
    "clocks_and_freezing",
    "statuses",
    "programs_beside_the_probe",
    "surroundings",
    "input",
    "files",
    "clock_and_identity",
    "two_guests_at_once",
    "frozen_guests_stand_still",
    "the_freezer_stops_guests",
    "clocks_survive_slices",
    "cpus",
    "memory",
    "secrets_of_the_host_stay_on_the_host",
    "disks_of_the_host_stay_on_the_host",
    "dropped",
    "dead",
];

/// The checks that need no program of a system.
const OF_ONE_PROGRAM: &[&str] =
    &["memory", "dropped", "busy", "hung", "dead", "frozen", "deadline", "availability_leaves_nothing"];

/// Why a check is deferred in this run of the tests: slow environments run only the telling checks,
/// but all of them with `WEIGH_LONG`.
fn put_off(name: &str, environment: &str) -> Option<&'static str> {
    let is_slow = environment.split([':', ',']).any(|part| SLOW.contains(&part));
    let waits = is_slow && !TELLING.contains(&name) && std::env::var_os("WEIGH_LONG").is_none();
    waits.then_some("its guests are slow; WEIGH_LONG=1 (`make test-long`) has it")
}

/// Why a platform cannot run here; found out once.
fn missing(platform: &'static dyn Platform, environment: &EnvironmentSpec) -> Option<String> {
    let needs_root = platform.capabilities(environment).needs_root;
    if needs_root && !weigh_host::facts::is_root() {
        return Some("needs root".into());
    }
    if must_be_told(platform) || ["address", "context"].iter().any(|key| environment.get(key).is_some()) {
        return None;
    }
    crate::common::missing(platform, || {
        let bench = Bench::new(platform, environment.clone());
        let found = platform.availability(&bench.run.host);
        bench.assert_no_guest_in_the_ledger();
        found
    })
}

/// Whether the platform cannot be used without some key, so that its readiness cannot be asked for.
pub fn must_be_told(platform: &dyn Platform) -> bool {
    platform.check(&EnvironmentSpec::new(platform.name(), Default::default())).is_err()
}

impl Bench {
    fn new(platform: &'static dyn Platform, environment: EnvironmentSpec) -> Self {
        let capabilities = platform.capabilities(&environment);
        let run = crate::common::Bench::new("conformance");
        Self { platform, environment, capabilities, run, _turn: crate::common::shared_turn() }
    }

    /// Whether commands are really executed, which a fake platform does not do.
    pub fn executes(&self) -> bool {
        !self.capabilities.fake && self.capabilities.fork
    }

    /// A request for a guest with the host's root, or the root that its keys ask for.
    pub fn request(&self) -> GuestRequest {
        self.request_with(&common_keys::image(self.platform, &self.environment, &ImageSpec::Host), None)
    }

    pub fn request_with(&self, image: &ImageSpec, working_directory: Option<&Path>) -> GuestRequest {
        self.run.request_with(&self.environment.to_string(), image, working_directory)
    }

    /// Prepares twice, as a resumed run does, and launches.
    pub fn launch(&self, request: &GuestRequest) -> Box<dyn Guest> {
        self.platform.prepare(&self.host, request).unwrap();
        self.run.launch(request).unwrap()
    }

    pub fn guest(&self) -> Box<dyn Guest> {
        self.launch(&self.request())
    }

    /// Runs these checks one after another on the same guest: most take less time than starting a
    /// guest. Prints the name of each, so that a failed test shows which of them it was.
    pub fn check_one_guest(&self, checks: &[Check]) {
        let mut guest = self.guest();
        for (name, check) in checks {
            if let Some(reason) = put_off(name, &self.environment.to_string()) {
                eprintln!("SKIPPED {name} on {}: {reason}", self.environment);
            } else {
                eprintln!("{name}");
                check(self, &mut *guest);
            }
        }
        guest.stop().unwrap();
    }

    /// Asserts that the ledger has nothing of a guest; a daemon of the run's own may be in it.
    pub fn assert_no_guest_in_the_ledger(&self) {
        let daemon = |change: &Change| matches!(change, Change::Cgroup { path } if path.to_string_lossy().contains("-daemon"));
        for change in self.host.ledger.standing().into_iter().filter(|change| !daemon(change)) {
            let of_a_guest =
                matches!(change, Change::Process { .. } | Change::Cgroup { .. } | Change::Mount { .. });
            assert!(!of_a_guest, "still in the ledger after the guests have ended: {change}");
        }
    }
}

/// A command that runs a shell script.
pub fn shell(script: &str) -> Command {
    command(&["/bin/sh", "-c", script])
}

pub fn run(guest: &mut dyn Guest, command: &Command) -> CompletedCommand {
    guest.session().run(command, RunOptions::within(common::patience(MINUTE))).unwrap()
}

/// Returns what a shell script prints.
pub fn output(guest: &mut dyn Guest, script: &str) -> String {
    let completed = run(guest, &shell(script));
    assert_eq!(completed.error, b"", "{script}: {}", String::from_utf8_lossy(&completed.error));
    String::from_utf8(completed.output).unwrap()
}

/// The reason and the error number of a refusal.
pub fn refusal(result: Result<CompletedCommand, SessionError>) -> (String, i32) {
    match result {
        Err(SessionError::Refused { reason, errno }) => (reason, errno),
        other => panic!("not refused: {other:?}"),
    }
}
