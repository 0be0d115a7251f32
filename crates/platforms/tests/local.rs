//! What the platforms without a runtime promise beyond `conformance.rs`: their guests die with weighbridge, a crash leaves
//! nothing that a sweep does not find, and an ordinary user can use them.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "helpers of tests")]

mod static_probe;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Hierarchy;
use weigh_host::command::{Invocation, find_program};
use weigh_host::ledger::{Change, Ledger, sweep};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{
    Availability, Guest, GuestRequest, Host, Platform, PlatformError, RunOptions, Undoers, resolve,
};
use weigh_protocol::{Command, Status};

const MINUTE: Duration = Duration::from_secs(60);
/// Set for a process of a test: what it is to do.
const ACT: &str = "WEIGH_TEST_LOCAL";

/// A run of its own in a directory of its own.
struct Bench {
    host: Host,
    state: StateDirectory,
}

impl Bench {
    fn new(base: &Path, probe: &Path, run: &str) -> Self {
        let state = StateDirectory::at(base.join("state"));
        let ledger = Ledger::create(&state, run).unwrap();
        let work = base.join("work");
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        fs::create_dir_all(&work).unwrap();
        let logs = base.join("logs");
        fs::create_dir_all(&logs).unwrap();
        let host = Host {
            ledger,
            hierarchy: Hierarchy::detect(),
            work,
            logs,
            run: run.into(),
            programs: Programs { probe: probe.into(), kernels: probe.into() },
            is_root: weigh_host::facts::is_root(),
        };
        Self { host, state }
    }

    fn request(&self, environment: &str, image: &ImageSpec) -> (&'static dyn Platform, GuestRequest) {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let instance = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (platform, environment) = resolve(&EnvironmentSpec::parse(environment).unwrap()).unwrap();
        let work = self.host.work.join(format!("root-{instance}"));
        let root = Arc::new(Root::prepare(image, &self.host.programs, &work, None).unwrap());
        (
            platform,
            GuestRequest {
                environment,
                instance,
                root,
                cpus: Vec::new(),
                memory_bytes: None,
                publish: Vec::new(),
            },
        )
    }

    fn launch(&self, environment: &str, image: &ImageSpec) -> Box<dyn Guest> {
        let (platform, request) = self.request(environment, image);
        platform.prepare(&self.host, &request).unwrap();
        platform.launch(&self.host, &request).unwrap()
    }

    fn close(self) {
        self.host.ledger.close(&Undoers).unwrap();
        assert!(!self.state.path().exists() && !self.host.work.exists());
    }
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: false,
        output_limit_bytes: 1 << 20,
    }
}

fn shell(guest: &mut dyn Guest, script: &str) -> String {
    let done = guest.session().run(&command(&["/bin/sh", "-c", script]), RunOptions::within(MINUTE)).unwrap();
    assert_eq!(done.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&done.error));
    String::from_utf8(done.output).unwrap()
}

fn run_name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Whether a test that needs root has to be left out.
fn skipped(test: &str) -> bool {
    let skip = !weigh_host::facts::is_root();
    if skip {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| ["native", "namespaces"].contains(&name)),
            "{test} needs root"
        );
        eprintln!("SKIPPED {test}: needs root");
    }
    skip
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn no_groups(run: &str) {
    for mount in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        assert!(
            !mount.path().join(format!("weighbridge-{run}")).exists(),
            "{} is left",
            mount.path().display()
        );
    }
    assert!(!Path::new("/sys/fs/cgroup").join(format!("weighbridge-{run}")).exists());
}

#[test]
fn both_are_available_and_leave_nothing() {
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let run = run_name("available");
    let bench = Bench::new(base.path(), static_probe::path(), &run);
    for name in ["native", "namespaces"] {
        let found = weigh_platforms::find(name).unwrap().availability(&bench.host);
        if weigh_host::facts::is_root() {
            assert!(matches!(found, Availability::Ready { .. }), "{name}: {found:?}");
        }
    }
    assert!(fs::read_dir(&bench.host.work).unwrap().next().is_none(), "a root is left");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*base.path().to_string_lossy()), "a mount is left: {mounts}");
    bench.close();
    no_groups(&run);
}

#[test]
fn an_image_is_the_same_root_natively_and_isolated() {
    if skipped("an_image_is_the_same_root_natively_and_isolated") {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let bench = Bench::new(base.path(), static_probe::path(), &run_name("image"));
    let seen = |guest: &mut dyn Guest| {
        let facts = guest.session().facts(&[], &[]).unwrap();
        let error = guest.session().run(&command(&["/bin/sh"]), RunOptions::within(MINUTE)).unwrap_err();
        assert!(error.to_string().contains("/bin/sh"), "the image has no shell: {error}");
        facts
    };
    let mut native = bench.launch("native", &ImageSpec::Probe);
    let mut isolated = bench.launch("namespaces", &ImageSpec::Probe);
    let (one, other) = (seen(&mut *native), seen(&mut *isolated));
    assert_eq!((one.root_file_system, one.boot), (other.root_file_system, other.boot));
    assert!(!one.init && other.init);
    assert_eq!(other.network_interfaces, ["lo"]);
    native.stop().unwrap();
    isolated.stop().unwrap();
    bench.close();
}

#[test]
fn what_is_separated_is_what_the_keys_say() {
    if skipped("what_is_separated_is_what_the_keys_say") {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let bench = Bench::new(base.path(), static_probe::path(), &run_name("keys"));
    let ours = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
    let shared = |environment: &str| -> Vec<&str> {
        let mut guest = bench.launch(environment, &ImageSpec::Host);
        let names = ["mnt", "pid", "net", "uts", "ipc", "cgroup", "user"];
        let shared = names
            .into_iter()
            .filter(|name| shell(&mut *guest, &format!("readlink /proc/self/ns/{name}")).trim() == ours(name))
            .collect();
        guest.stop().unwrap();
        shared
    };
    assert_eq!(shared("native"), ["mnt", "pid", "net", "uts", "ipc", "cgroup", "user"]);
    assert_eq!(shared("namespaces"), ["user"]);
    assert_eq!(shared("namespaces:net=host"), ["net", "user"]);
    assert!(shared("namespaces:user=mapped").is_empty());
    assert_eq!(shared("namespaces:user=mapped,net=host"), ["net"]);
    bench.close();
}

#[test]
fn limits_are_the_same_for_both() {
    if skipped("limits_are_the_same_for_both") {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let run = run_name("limits");
    let bench = Bench::new(base.path(), static_probe::path(), &run);
    for environment in ["native", "namespaces"] {
        let (platform, mut request) = bench.request(environment, &ImageSpec::Host);
        let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
        request.cpus = vec![cpu];
        request.memory_bytes = Some(128 << 20);
        let mut guest = platform.launch(&bench.host, &request).unwrap();
        let facts = guest.session().facts(&[], &[]).unwrap();
        assert_eq!((facts.cpus, facts.memory_limit_bytes), (vec![cpu], Some(128 << 20)), "{environment}");
        let mut hungry =
            command(&["/bin/sh", "-c", "head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null"]);
        hungry.argv[2].push_str("; echo $?");
        let done = guest.session().run(&hungry, RunOptions::within(MINUTE)).unwrap();
        assert_ne!(String::from_utf8_lossy(&done.output).trim(), "0", "{environment}: no memory limit");
        assert!(guest.cgroup().unwrap().cpu_ns().unwrap() > 0);
        guest.stop().unwrap();
    }
    bench.close();
    no_groups(&run);
}

/// What a process of the tests below does: launches guests that are busy in some way, names them, and waits to be killed.
#[test]
fn child_with_guests() {
    let Ok(order) = std::env::var(ACT) else { return };
    let mut words = order.split('|');
    let mut next = || words.next().unwrap().to_string();
    let (act, base, probe, run) = (next(), PathBuf::from(next()), PathBuf::from(next()), next());
    let bench = Bench::new(&base, &probe, &run);
    if act == "user" {
        return as_an_ordinary_user(bench);
    }
    let mut guests = Vec::new();
    for environment in ["native", "namespaces"] {
        let mut guest = bench.launch(environment, &ImageSpec::Host);
        // A command that ignores what can be ignored, with a child in a session of its own.
        let script = "trap '' HUP TERM INT; setsid sleep 300 & while :; do sleep 1; done";
        guest.session().start(&command(&["/bin/sh", "-c", script])).unwrap();
        until("the command starts its child", || guest.processes().len() >= 4);
        if act == "frozen" {
            guest.freeze().unwrap();
        }
        guests.push(guest);
    }
    let pids = guests.iter().flat_map(|guest| guest.processes()).map(|pid| pid.to_string());
    println!("\nready {}", pids.collect::<Vec<_>>().join(" "));
    std::thread::sleep(Duration::from_secs(300));
}

/// Kills weighbridge without a warning while it has guests; returns their processes.
fn kill_with_guests(act: &str, base: &Path, run: &str) -> Vec<u32> {
    let order = format!("{act}|{}|{}|{run}", base.display(), static_probe::path().display());
    let mut child = Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_guests", "--nocapture"])
        .env(ACT, order)
        .log_to(&base.join("child.log"))
        .spawn()
        .unwrap();
    let output = BufReader::new(fs::File::from(child.take_output().unwrap()));
    let ready =
        output.lines().map_while(Result::ok).find_map(|line| Some(line.strip_prefix("ready ")?.to_string()));
    let ready = ready.unwrap_or_else(|| panic!("{}", fs::read_to_string(base.join("child.log")).unwrap()));
    let pids: Vec<u32> = ready.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| alive(*pid)));
    // Its process group is its own: the guests are in others.
    child.kill_group();
    child.wait(Duration::from_secs(10)).unwrap().unwrap();
    pids
}

#[test]
fn guests_die_with_weighbridge_and_a_sweep_finds_the_rest() {
    if skipped("guests_die_with_weighbridge_and_a_sweep_finds_the_rest") {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let run = run_name("killed");
    let pids = kill_with_guests("busy", base.path(), &run);
    until("guests outlive weighbridge", || !pids.iter().any(|pid| alive(*pid)));
    let state = StateDirectory::at(base.path().join("state"));
    let result = sweep(&state, &Undoers).unwrap();
    assert!(result.failed.is_empty() && result.live.is_empty(), "{result:?}");
    assert!(!state.path().exists() && !base.path().join("work").exists());
    no_groups(&run);
}

#[test]
fn frozen_guests_of_a_dead_run_are_swept() {
    if skipped("frozen_guests_of_a_dead_run_are_swept") {
        return;
    }
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let run = run_name("frozen");
    let pids = kill_with_guests("frozen", base.path(), &run);
    let result = sweep(&StateDirectory::at(base.path().join("state")), &Undoers).unwrap();
    assert!(result.failed.is_empty(), "{result:?}");
    assert!(!pids.iter().any(|pid| alive(*pid)));
    no_groups(&run);
}

/// The part of the test below that runs as somebody else than root.
fn as_an_ordinary_user(bench: Bench) {
    assert!(!weigh_host::facts::is_root());
    for environment in ["native", "namespaces"] {
        let (platform, mut request) = bench.request(environment, &ImageSpec::Host);
        if let Availability::Missing { reason, .. } = platform.availability(&bench.host) {
            assert_eq!(environment, "namespaces", "{reason}");
            println!("SKIPPED an_ordinary_user_can_use_both: {environment}: {reason}");
            continue;
        }
        request.memory_bytes = Some(1 << 28);
        let error = platform.launch(&bench.host, &request).err().unwrap();
        assert!(matches!(&error, PlatformError::Missing { what, .. } if what.contains("memory")), "{error}");
        request.memory_bytes = None;
        request.cpus = vec![weigh_host::facts::allowed_cpus()[0]];
        let mut guest = platform.launch(&bench.host, &request).unwrap();
        assert_eq!(guest.session().facts(&[], &[]).unwrap().cpus, request.cpus);
        assert!(guest.cgroup().is_none());
        let id = guest
            .session()
            .start(&command(&["/bin/sh", "-c", "setsid sleep 300 & while :; do :; done"]))
            .unwrap();
        until("the command starts its child", || guest.processes().len() >= 3);
        let pids = guest.processes();
        guest.freeze().unwrap();
        for pid in &pids {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            // Stopped, or waiting in the kernel for a child in vfork(2) that is.
            assert!(stat.rsplit_once(") ").unwrap().1.starts_with(['T', 'D']), "{environment}: {stat}");
        }
        guest.thaw().unwrap();
        guest.session().signal(id, 9).unwrap();
        let done = guest.session().finish(id, MINUTE).unwrap();
        assert_eq!(done.end.status, Status::Signalled(9));
        assert_eq!(shell(&mut *guest, "echo still here"), "still here\n");
        // Stopped while frozen, with a command that is running.
        guest.session().start(&command(&["/bin/sh", "-c", "sleep 300"])).unwrap();
        guest.freeze().unwrap();
        let pids = guest.processes();
        guest.stop().unwrap();
        guest.stop().unwrap();
        assert!(!pids.iter().any(|pid| alive(*pid)), "{environment}");
    }
    if let Some((platform, request)) = Some(bench.request("native", &ImageSpec::Probe)) {
        assert!(matches!(platform.launch(&bench.host, &request), Err(PlatformError::Missing { .. })));
    }
    bench.close();
    println!("\nall well");
}

#[test]
fn an_ordinary_user_can_use_both() {
    if skipped("an_ordinary_user_can_use_both") {
        return;
    }
    let Some(setpriv) = find_program("setpriv") else {
        eprintln!("SKIPPED an_ordinary_user_can_use_both: setpriv is not installed");
        return;
    };
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    // Nobody may read the places where things are built.
    let place = |from: &Path, name: &str| {
        let to = base.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let (test, probe) =
        (place(&std::env::current_exe().unwrap(), "test"), place(static_probe::path(), "probe"));
    let home = base.path().join("home");
    fs::create_dir(&home).unwrap();
    for directory in [base.path(), &home] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let done = Invocation::new(setpriv)
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(test)
        .args(["--exact", "child_with_guests", "--nocapture"])
        .env(ACT, format!("user|{}|{}|{}", home.display(), probe.display(), run_name("user")))
        .current_dir("/")
        .deadline(MINUTE)
        .run_ok()
        .unwrap();
    let text = String::from_utf8_lossy(&done.output);
    assert!(text.contains("all well"), "{text}");
    for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{line}");
    }
}
