//! What only containers promise: their limits, their network, their mounts, and that nothing of them outlives a crash.
//!
//! The same for every platform with a bundle or an engine; what all platforms promise is in `conformance.rs`.

#![expect(clippy::unwrap_used, reason = "all of this file is a test, its helpers too")]
#![expect(clippy::print_stderr, reason = "what is skipped must be seen")]

mod static_probe;

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weigh_host::cgroup::Hierarchy;
use weigh_host::command::Invocation;
use weigh_host::ledger::{Change, Ledger, sweep};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{
    Availability, Completed, Guest, GuestRequest, Host, PlatformError, RunOptions, SessionError, Undoers,
    resolve,
};
use weigh_protocol::{Command, Status};

const MINUTE: Duration = Duration::from_secs(60);
/// Set for the process that is killed in the middle: environment, state directory, run.
const VICTIM: &str = "WEIGH_TEST_VICTIM";

/// One test at a time: they look at the host's links and mounts, and a file system that one of them mounts for a moment
/// belongs to the root that the guests of the others are given.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run of its own, in a state directory of its own.
struct Bench {
    host: Host,
    state: StateDirectory,
    _base: Option<tempfile::TempDir>,
}

impl Bench {
    fn new(run: &str) -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut bench = Self::at(&base.path().join("state"), run);
        bench._base = Some(base);
        bench
    }

    fn at(state: &Path, run: &str) -> Self {
        let state = StateDirectory::at(state);
        let ledger = Ledger::create(&state, run).unwrap();
        let work = state.path().join(format!("work-{run}"));
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        let logs = state.path().parent().unwrap().join("logs");
        std::fs::create_dir_all(&logs).unwrap();
        let host = Host {
            ledger,
            hierarchy: Hierarchy::detect(),
            work,
            logs,
            run: run.into(),
            programs: Programs { probe: static_probe::path().into(), kernels: "/bin/true".into() },
            is_root: weigh_host::facts::is_root(),
        };
        Self { host, state, _base: None }
    }

    fn request(&self, environment: &str, instance: u64, working_directory: Option<&Path>) -> GuestRequest {
        self.request_with(&ImageSpec::Host, environment, instance, working_directory)
    }

    fn request_with(
        &self,
        image: &ImageSpec,
        environment: &str,
        instance: u64,
        working_directory: Option<&Path>,
    ) -> GuestRequest {
        let spec = EnvironmentSpec::parse(environment).unwrap();
        let (_, environment) = resolve(&spec).unwrap();
        let work = self.host.work.join(format!("root-{instance}"));
        let root = Root::prepare(image, &self.host.programs, &work, working_directory).unwrap();
        GuestRequest {
            environment,
            instance,
            root: Arc::new(root),
            cpus: Vec::new(),
            memory_bytes: None,
            publish: Vec::new(),
        }
    }

    fn launch(&self, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let (platform, _) = resolve(&request.environment).unwrap();
        platform.prepare(&self.host, request)?;
        platform.launch(&self.host, request)
    }

    fn guest(&self, environment: &str) -> Box<dyn Guest> {
        self.launch(&self.request(environment, 1, None)).unwrap()
    }

    /// Ends the run as weigh does; nothing may be left.
    fn close(self) {
        self.host.ledger.close(&Undoers).unwrap();
        assert!(
            !self.state.path().exists(),
            "{:?}",
            std::fs::read_dir(self.state.path()).map(Iterator::collect::<Vec<_>>)
        );
    }
}

/// The platforms of this file that work here, with what each is called in an environment string.
fn platforms(test: &str) -> Vec<&'static str> {
    static READY: OnceLock<Vec<(&'static str, Option<String>)>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        ["runc", "docker"]
            .map(|name| {
                let bench = Bench::new(&format!("available-{name}-{}", std::process::id()));
                let found = weigh_platforms::find(name).unwrap().availability(&bench.host);
                bench.close();
                match found {
                    Availability::Ready { .. } => (name, None),
                    Availability::Missing { reason, remedy } => {
                        (name, Some(format!("{reason}; {}", remedy.unwrap_or_default())))
                    }
                }
            })
            .to_vec()
    });
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    ready
        .iter()
        .filter_map(|(name, missing)| match missing {
            None => Some(*name),
            Some(reason) => {
                assert!(!required.split(',').any(|word| word == *name), "{name} is required: {reason}");
                eprintln!("SKIPPED {test} on {name}: {reason}");
                None
            }
        })
        .collect()
}

fn run_name(test: &str, platform: &str) -> String {
    format!("test-{test}-{platform}-{}", std::process::id())
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|word| (*word).into()).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin:/usr/sbin:/sbin".into())],
        working_directory: None,
        input: false,
        output_limit_bytes: 1 << 30,
    }
}

fn shell(guest: &mut dyn Guest, script: &str) -> Completed {
    guest.session().run(&command(&["sh", "-c", script]), RunOptions::within(MINUTE)).unwrap()
}

fn says(guest: &mut dyn Guest, script: &str) -> String {
    let done = shell(guest, script);
    assert_eq!(done.end.status, Status::Exited(0), "{script}: {}", String::from_utf8_lossy(&done.error));
    String::from_utf8(done.output).unwrap().trim().into()
}

/// Everything on the host that carries the run's name: containers, images, control groups, processes' mounts.
fn traces(run: &str) -> BTreeSet<String> {
    let mut traces = BTreeSet::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(run) {
                    traces.insert(entry.path().display().to_string());
                }
                pending.push(entry.path());
            }
        }
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let text = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        // The test's own victim, dead but not yet waited for, has an empty line.
        if text.contains(run) && !text.contains("--exact") {
            traces.insert(text);
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    traces.extend(mounts.lines().filter(|line| line.contains(run)).map(Into::into));
    for what in [&["ps", "--all", "--format", "{{.Names}}"][..], &["images", "--format", "{{.Repository}}"]] {
        if let Ok(done) = Invocation::new("docker").args(what).run() {
            let text = String::from_utf8(done.output).unwrap();
            traces.extend(text.lines().filter(|line| line.contains(run)).map(Into::into));
        }
    }
    traces
}

#[test]
fn host_root_is_seen_and_cannot_be_written() {
    let _turn = turn();
    for platform in platforms("host_root_is_seen_and_cannot_be_written") {
        let bench = Bench::new(&run_name("root", platform));
        let project = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::write(project.path().join("file"), "the user's").unwrap();
        let request = bench.request(platform, 1, Some(project.path()));
        let mut guest = bench.launch(&request).unwrap();
        let guest = &mut *guest;
        assert_eq!(says(guest, "cat /etc/passwd"), std::fs::read_to_string("/etc/passwd").unwrap().trim());
        assert_eq!(says(guest, &format!("cat {}/file", project.path().display())), "the user's");
        for place in ["/", "/usr", "/etc", "/var", "/.weighbridge", project.path().to_str().unwrap()] {
            let done = shell(guest, &format!("touch {place}/written-by-a-guest"));
            assert_ne!(done.end.status, Status::Exited(0), "{platform}: {place} can be written");
        }
        // Nor the file systems that the host mounts below.
        let writable = says(
            guest,
            "grep -E ' (ext[234]|xfs|btrfs|vfat|nfs4?) ' /proc/self/mounts | grep -v ' ro[ ,]' || true",
        );
        let engines_own = |line: &str| {
            ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"].iter().any(|file| line.contains(file))
        };
        assert_eq!(writable.lines().find(|line| !engines_own(line)), None, "{platform}");
        for place in ["/tmp", "/run", "/var/tmp"] {
            says(guest, &format!("cp /bin/true {place}/x && {place}/x && rm {place}/x"));
        }
        assert_eq!(says(guest, "ls -A /tmp"), project.path().file_name().unwrap().to_str().unwrap());
        let mounts: usize = says(guest, "wc -l < /proc/self/mounts").parse().unwrap();
        assert!(mounts < 100, "{platform}: {mounts} mounts, the binds hold each other");
        guest.stop().unwrap();
        bench.close();
    }
}

#[test]
fn other_images_are_seen_with_what_is_mounted_in_them() {
    let _turn = turn();
    if !weigh_host::facts::is_root() {
        eprintln!("SKIPPED other_images_are_seen_with_what_is_mounted_in_them: only root can mount");
        return;
    }
    for platform in platforms("other_images_are_seen_with_what_is_mounted_in_them") {
        let bench = Bench::new(&run_name("image", platform));
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let image = base.path().join("image");
        for directory in ["etc", "data", "disk", "tmp"] {
            std::fs::create_dir_all(image.join(directory)).unwrap();
        }
        // Nothing that an engine could mount its own /etc/hosts over, and a link to where nothing is.
        std::fs::write(image.join("etc/only"), "the image's").unwrap();
        std::os::unix::fs::symlink("../run/nowhere/resolv.conf", image.join("etc/resolv.conf")).unwrap();
        std::fs::write(image.join("data/file"), "data").unwrap();
        std::fs::write(image.join("tmp/hidden"), "").unwrap();
        let disk = Disk::mount(&image.join("disk"));
        std::fs::write(image.join("disk/file"), "on the disk").unwrap();
        let archive = base.path().join("image.tar");
        Invocation::new("tar").arg("-C").arg(&image).arg("-cf").arg(&archive).arg(".").run_ok().unwrap();
        for (instance, image) in [(1, &image), (2, &archive)] {
            let request = bench.request_with(&ImageSpec::Path(image.clone()), platform, instance, None);
            let mut guest = bench.launch(&request).unwrap();
            let session = guest.session();
            assert_eq!(session.get("/etc/only", 100).unwrap(), b"the image's", "{platform}");
            assert_eq!(session.get("/data/file", 100).unwrap(), b"data", "{platform}");
            assert_eq!(session.get("/disk/file", 100).unwrap(), b"on the disk", "{platform}");
            session.get("/etc/hosts", 10_000).unwrap();
            for path in ["/data/new", "/disk/new", "/etc/new", "/new"] {
                let refused = session.put(path, 0o644, b"x");
                assert!(
                    matches!(refused, Err(SessionError::Refused { .. })),
                    "{platform}: {path} can be written"
                );
            }
            assert!(session.get("/tmp/hidden", 100).is_err(), "{platform}");
            session.put("/tmp/new", 0o644, b"x").unwrap();
            let version = session
                .run(&command(&[weigh_images::PROBE, "--version"]), RunOptions::within(MINUTE))
                .unwrap();
            assert_eq!(version.end.status, Status::Exited(0), "{platform}");
            guest.stop().unwrap();
        }
        drop(disk);
        bench.close();
    }
}

/// A tmpfs that is unmounted at the end of the test.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        Invocation::new("mount").args(["-t", "tmpfs", "weighbridge-test"]).arg(at).run_ok().unwrap();
        Self(at.into())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Invocation::new("umount").arg(&self.0).run_ok().unwrap();
    }
}

#[test]
fn guests_of_one_root_run_side_by_side() {
    let _turn = turn();
    for platform in platforms("guests_of_one_root_run_side_by_side") {
        let bench = Bench::new(&run_name("many", platform));
        let request = bench.request_with(&ImageSpec::Probe, platform, 1, None);
        let mut guests: Vec<_> = (1..=3)
            .map(|instance| bench.launch(&GuestRequest { instance, ..request.clone() }).unwrap())
            .collect();
        for guest in &mut guests {
            guest.session().put("/tmp/mine", 0o600, b"mine").unwrap();
        }
        let (left, right) = guests.split_at_mut(1);
        left[0].freeze().unwrap();
        right[0].session().facts(&[], &[]).unwrap();
        // Stopped in another order than started, one of them by dropping it.
        drop(guests.remove(1));
        guests[1].session().get("/tmp/mine", 10).unwrap();
        guests[1].stop().unwrap();
        guests[0].thaw().unwrap();
        guests[0].session().facts(&[], &[]).unwrap();
        guests[0].stop().unwrap();
        bench.close();
    }
}

#[test]
fn limits_hold() {
    let _turn = turn();
    for platform in platforms("limits_hold") {
        let bench = Bench::new(&run_name("limits", platform));
        let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
        let limit = 256u64 << 20;
        let mut request = bench.request(platform, 1, None);
        request.cpus = vec![cpu];
        request.memory_bytes = Some(limit);
        let mut guest = bench.launch(&request).unwrap();
        let facts = guest.session().facts(&[], &[]).unwrap();
        assert_eq!(facts.cpus, [cpu], "{platform}");
        assert!(facts.init, "{platform}: the probe is the first process");
        let hungry = "head -c 600000000 /dev/zero | tail -c 500000000 | wc -c";
        assert_ne!(says(&mut *guest, hungry), "500000000", "{platform}: the memory limit does not hold");
        // The guest itself lives on.
        says(&mut *guest, "true");
        assert!(guest.processes().len() >= 2, "{platform}: the probe and a helper");
        guest.stop().unwrap();
        bench.close();
    }
}

#[test]
fn networks_are_what_their_key_says() {
    let _turn = turn();
    let interfaces = |text: &str| text.split_whitespace().map(String::from).collect::<BTreeSet<_>>();
    let of_host: BTreeSet<String> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    for platform in platforms("networks_are_what_their_key_says") {
        let bench = Bench::new(&run_name("net", platform));
        let inside = |instance, net: &str| {
            let mut guest =
                bench.launch(&bench.request(&format!("{platform}:net={net}"), instance, None)).unwrap();
            let seen = interfaces(&says(&mut *guest, "sed -n 's/^ *\\([^:]*\\):.*/\\1/p' /proc/net/dev"));
            let address = guest.address();
            guest.stop().unwrap();
            (seen, address)
        };
        let (none, address) = inside(1, "none");
        assert!(none.contains("lo") && !none.contains("eth0") && address.is_none(), "{platform}: {none:?}");
        let (host, address) = inside(2, "host");
        assert!(of_host.is_subset(&host) && address.is_none(), "{platform}: {host:?}");
        if platform == "docker" {
            let (nat, address) = inside(3, "nat");
            assert!(nat.contains("eth0"), "{nat:?}");
            assert!(address.is_some_and(|address| !address.is_loopback()), "{address:?}");
        }
        bench.close();
    }
}

#[test]
fn much_output_comes_through() {
    let _turn = turn();
    const BYTES: usize = 100_000_000;
    for platform in platforms("much_output_comes_through") {
        let bench = Bench::new(&run_name("output", platform));
        let mut guest = bench.guest(platform);
        let started = Instant::now();
        let script = format!("head -c {BYTES} /dev/zero | tr '\\0' x; echo said >&2");
        let done = shell(&mut *guest, &script);
        assert_eq!((done.output.len(), done.end.output_bytes), (BYTES, BYTES as u64), "{platform}");
        assert!(done.output.iter().all(|byte| *byte == b'x'), "{platform}");
        assert_eq!(done.error, b"said\n", "{platform}");
        eprintln!(
            "{platform}: {:.0} MB/s through the channel",
            BYTES as f64 / started.elapsed().as_secs_f64() / 1e6
        );
        let input = vec![b'y'; 20_000_000];
        let counted = guest
            .session()
            .run(
                &Command { input: true, ..command(&["wc", "-c"]) },
                RunOptions { deadline: MINUTE, input: Some(&input) },
            )
            .unwrap();
        assert_eq!(counted.output, b"20000000\n", "{platform}");
        guest.stop().unwrap();
        bench.close();
    }
}

#[test]
fn frozen_guests_stand_still_and_can_be_stopped() {
    let _turn = turn();
    for platform in platforms("frozen_guests_stand_still_and_can_be_stopped") {
        let bench = Bench::new(&run_name("freeze", platform));
        let mut guest = bench.guest(platform);
        let ticks = |guest: &dyn Guest| -> u64 {
            let stat = |pid: &u32| -> u64 {
                let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                // After the name the state, field 3 of proc_pid_stat(5); the times are 14 and 15.
                let fields = text.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
                fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
            };
            guest.processes().iter().map(stat).sum()
        };
        let id = guest.session().start(&command(&["sh", "-c", "while :; do :; done"])).unwrap();
        guest.freeze().unwrap();
        guest.freeze().unwrap();
        let before = ticks(&*guest);
        std::thread::sleep(Duration::from_millis(300));
        assert!(ticks(&*guest) <= before + 1, "{platform}: it goes on");
        guest.thaw().unwrap();
        guest.thaw().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while ticks(&*guest) <= before + 5 {
            assert!(Instant::now() < deadline, "{platform}: it stands");
            std::thread::sleep(Duration::from_millis(20));
        }
        guest.session().signal(id, 9).unwrap();
        assert_eq!(guest.session().finish(id, MINUTE).unwrap().end.status, Status::Signalled(9));
        guest.freeze().unwrap();
        let started = Instant::now();
        guest.stop().unwrap();
        guest.stop().unwrap();
        assert!(started.elapsed() < Duration::from_secs(8), "{platform}: {:?}", started.elapsed());
        assert!(guest.processes().is_empty(), "{platform}");
        assert!(matches!(guest.session().facts(&[], &[]), Err(SessionError::Lost { .. })), "{platform}");
        bench.close();
    }
}

#[test]
fn a_guest_killed_from_outside_is_lost_and_cleaned() {
    let _turn = turn();
    for platform in platforms("a_guest_killed_from_outside_is_lost_and_cleaned") {
        let bench = Bench::new(&run_name("killed", platform));
        let mut guest = bench.guest(platform);
        let id = guest.session().start(&command(&["sleep", "100"])).unwrap();
        // The first process of its PID namespace takes all others along.
        let pids = guest.processes();
        let first = pids.iter().find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(weigh_images::PROBE)
        });
        Invocation::new("kill").args(["-9", &first.unwrap().to_string()]).run_ok().unwrap();
        let started = Instant::now();
        let error = guest.session().finish(id, MINUTE).unwrap_err();
        assert!(matches!(error, SessionError::Lost { .. }), "{platform}: {error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{platform}: {:?}", started.elapsed());
        guest.stop().unwrap();
        bench.close();
    }
}

#[test]
fn a_guest_whose_helpers_stand_still_can_be_stopped() {
    let _turn = turn();
    for platform in platforms("a_guest_whose_helpers_stand_still_can_be_stopped") {
        let bench = Bench::new(&run_name("stopped", platform));
        let mut guest = bench.guest(platform);
        let pids: Vec<String> = guest.processes().iter().map(u32::to_string).collect();
        assert!(pids.len() >= 2, "{platform}: the probe and a helper");
        Invocation::new("kill").arg("-STOP").args(&pids).run_ok().unwrap();
        let started = Instant::now();
        guest.stop().unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "{platform}: {:?}", started.elapsed());
        bench.close();
    }
}

#[test]
fn a_guest_that_does_not_come_up_says_why_and_leaves_nothing() {
    let _turn = turn();
    for platform in platforms("a_guest_that_does_not_come_up_says_why_and_leaves_nothing") {
        let run = run_name("broken", platform);
        let mut bench = Bench::new(&run);
        let garbage = bench.host.work.join("garbage");
        std::fs::write(&garbage, "this is no program").unwrap();
        bench.host.programs.probe = garbage;
        let request = bench.request(platform, 1, None);
        let error = bench.launch(&request).err().unwrap().to_string();
        assert!(error.to_lowercase().contains("exec"), "{platform}: {error}");
        let left: Vec<_> =
            bench.host.ledger.standing().into_iter().map(|change| change.to_string()).collect();
        assert!(
            left.iter().all(|change| !change.contains("container") && !change.contains("control group")),
            "{left:?}"
        );
        bench.close();
        assert_eq!(traces(&run), BTreeSet::new(), "{platform}");
    }
}

#[test]
fn a_missing_runtime_has_a_remedy() {
    let _turn = turn();
    let bench = Bench::new(&run_name("missing", "runc"));
    let empty = bench.host.work.join("no-runtime");
    std::fs::write(&empty, "").unwrap();
    let request = bench.request(&format!("runc:binary={}", empty.display()), 1, None);
    let error = bench.launch(&request).err().unwrap();
    assert!(matches!(&error, PlatformError::Missing { remedy: Some(_), .. }), "{error}");
    bench.close();
}

/// Run by the tests below in a process of its own, which they kill.
#[test]
#[ignore = "the victim of another test"]
fn victim() {
    let Ok(what) = std::env::var(VICTIM) else { return };
    let words: Vec<&str> = what.split('|').collect();
    let bench = Bench::at(Path::new(words[1]), words[2]);
    let mut guest = bench.guest(words[0]);
    guest.session().start(&command(&["sleep", "1000"])).unwrap();
    if words[3] == "frozen" {
        guest.freeze().unwrap();
    }
    println!("\nready");
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn nothing_outlives_a_killed_run() {
    let _turn = turn();
    for platform in platforms("nothing_outlives_a_killed_run") {
        for state in ["running", "frozen"] {
            let base = tempfile::tempdir_in("/var/tmp").unwrap();
            let run = run_name(state, platform);
            let ledgers = base.path().join("state");
            let mut child = Invocation::new(std::env::current_exe().unwrap())
                .args(["--exact", "victim", "--ignored", "--nocapture"])
                .env(VICTIM, format!("{platform}|{}|{run}|{state}", ledgers.display()))
                .log_to(&base.path().join("victim.log"))
                .spawn()
                .unwrap();
            let output = BufReader::new(std::fs::File::from(child.take_output().unwrap()));
            let ready = output.lines().map_while(Result::ok).any(|line| line == "ready");
            assert!(
                ready,
                "{platform}: {}",
                std::fs::read_to_string(base.path().join("victim.log")).unwrap()
            );
            assert!(!traces(&run).is_empty(), "{platform}: the search for traces finds nothing at all");
            child.kill_group();
            child.wait(MINUTE).unwrap().unwrap();
            let swept = sweep(&StateDirectory::at(&ledgers), &Undoers).unwrap();
            assert!(swept.failed.is_empty(), "{platform} {state}: {:?}", swept.failed);
            assert!(!swept.undone.is_empty(), "{platform} {state}");
            let deadline = Instant::now() + Duration::from_secs(5);
            while !traces(&run).is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(traces(&run), BTreeSet::new(), "{platform} {state}");
            assert!(!ledgers.exists(), "{platform} {state}");
            let again = sweep(&StateDirectory::at(&ledgers), &Undoers).unwrap();
            assert!(again.undone.is_empty() && again.failed.is_empty());
        }
    }
}

#[test]
fn undoing_twice_is_success() {
    let _turn = turn();
    let socket = "/var/run/docker.sock";
    for platform in platforms("undoing_twice_is_success") {
        let platform = weigh_platforms::find(platform).unwrap();
        let detail: Value =
            serde_json::json!({"socket": socket, "binary": "/usr/sbin/runc", "state": "/nowhere"});
        platform.undo("container", "weighbridge-never-was", &detail).unwrap();
    }
}

/// Not a check: prints the figures that `docs` and comparisons between versions need.
#[test]
#[ignore = "a measurement"]
fn start_time() {
    for platform in platforms("start_time") {
        let bench = Bench::new(&run_name("start", platform));
        let request = bench.request(platform, 1, None);
        let (found, _) = resolve(&request.environment).unwrap();
        found.prepare(&bench.host, &request).unwrap();
        let mut times: Vec<(Duration, Duration)> = (0..10)
            .map(|instance| {
                let request = GuestRequest { instance, ..request.clone() };
                let started = Instant::now();
                let mut guest = found.launch(&bench.host, &request).unwrap();
                let up = started.elapsed();
                guest.stop().unwrap();
                (up, started.elapsed() - up)
            })
            .collect();
        times.sort();
        let stop: Duration = times.iter().map(|(_, stop)| *stop).sum::<Duration>() / 10;
        eprintln!(
            "{platform}: start to hello, median {:?} (from {:?} to {:?}); stop, mean {stop:?}",
            times[5].0, times[0].0, times[9].0
        );
        bench.close();
    }
}
