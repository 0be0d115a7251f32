//! What the platforms without a runtime guarantee beyond `conformance/`: their guests die with
//! weighbridge, a sweep finds everything that a crash leaves, and an ordinary user can use them.

use crate::common::victim::{Killed, kill_and_sweep};
use crate::common::{Bench, MINUTE, command, nothing_is_left, ready, says, shared_turn};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};
use weigh_model::ImageSpec;
use weigh_platforms::{Availability, ExecRequest, Guest, PlatformError, RunOptions};
use weigh_protocol::Status;

/// The platforms that an ordinary user can use.
const FOR_ALL: [&str; 6] = ["native", "namespaces", "bubblewrap", "charliecloud", "apptainer", "proot"];
/// Set for the process that runs as an ordinary user: the state directory, and the run.
const USER: &str = "WEIGH_TEST_USER";

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

/// A run for native guests with their own limits or images, which take root.
fn bench(test: &str) -> Option<Bench> {
    if !weigh_host::facts::is_root() {
        eprintln!("SKIPPED {test}: needs root");
        return None;
    }
    Bench::on(test, "native").filter(|_| ready(test, "namespaces"))
}

#[test]
fn both_are_available_and_leave_nothing() {
    let bench = Bench::alone("local-available");
    for name in ["native", "namespaces"] {
        let found = weigh_platforms::find(name).unwrap().availability(&bench.host);
        if weigh_host::facts::is_root() {
            assert!(matches!(found, Availability::Ready { .. }), "{name}: {found:?}");
        }
    }
    assert!(fs::read_dir(&bench.host.work).unwrap().next().is_none(), "a root is left");
}

#[test]
fn an_image_is_the_same_root_natively_and_isolated() {
    let Some(bench) = bench("local-image") else { return };
    let launch =
        |environment: &str| bench.launch(&bench.request_with(environment, &ImageSpec::Probe, None)).unwrap();
    let seen = |guest: &mut dyn Guest| {
        let facts = guest.session().facts(&[], &[]).unwrap();
        let error = guest.session().run(&command(&["/bin/sh"]), RunOptions::within(MINUTE)).unwrap_err();
        assert!(error.to_string().contains("/bin/sh"), "the image has no shell: {error}");
        facts
    };
    let (mut native, mut isolated) = (launch("native"), launch("namespaces"));
    let (one, other) = (seen(&mut *native), seen(&mut *isolated));
    assert_eq!((one.root_file_system, one.boot), (other.root_file_system, other.boot));
    assert!(!one.init && other.init);
    assert_eq!(other.network_interfaces, ["lo"]);
    native.stop().unwrap();
    isolated.stop().unwrap();
}

#[test]
fn limits_are_the_same_for_both() {
    let Some(bench) = bench("local-limits") else { return };
    for environment in ["native", "namespaces"] {
        let mut request = bench.request(environment);
        let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
        request.cpus = vec![cpu];
        request.memory_bytes = Some(128 << 20);
        let mut guest = bench.launch(&request).unwrap();
        let facts = guest.session().facts(&[], &[]).unwrap();
        assert_eq!((facts.cpus, facts.memory_limit_bytes), (vec![cpu], Some(128 << 20)), "{environment}");
        let hungry = "head -c 400000000 /dev/zero | tail -c 390000000 >/dev/null; echo $?";
        assert_ne!(says(&mut *guest, hungry), "0", "{environment}: no memory limit");
        assert!(guest.cgroup().unwrap().cpu_ns().unwrap() > 0);
        guest.stop().unwrap();
    }
}

#[test]
fn guests_of_a_dead_run_are_swept() {
    let test = "local-swept";
    let Some(_bench) = bench(test) else { return };
    for environment in ["native", "namespaces"] {
        for when in [Killed::Running, Killed::Frozen, Killed::Launching(Duration::from_millis(3))] {
            kill_and_sweep(test, environment, when);
        }
    }
}

/// The part of the test below that runs as an ordinary user.
#[test]
#[ignore = "the ordinary user of another test"]
fn ordinary_user() {
    let Ok(what) = std::env::var(USER) else { return };
    let (state, run) = what.split_once('|').unwrap();
    let bench = Bench::at(Path::new(state), run);
    assert!(!weigh_host::facts::is_root());
    for environment in FOR_ALL {
        if !ready("ordinary_user", environment) {
            assert_ne!(environment, "native");
            continue;
        }
        let mut request = bench.request(environment);
        request.memory_bytes = Some(1 << 28);
        let error = bench.launch(&request).err().unwrap();
        assert!(
            matches!(&error, PlatformError::Unavailable { reason, .. } if reason.contains("memory")),
            "{error}"
        );
        request.memory_bytes = None;
        request.cpus = vec![weigh_host::facts::allowed_cpus()[0]];
        let mut guest = bench.launch(&request).unwrap();
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
            // Stopped, or waiting in the kernel for a stopped vfork(2) child, or held by a stopped
            // tracer.
            assert!(stat.rsplit_once(") ").unwrap().1.starts_with(['T', 'D', 't']), "{environment}: {stat}");
        }
        guest.thaw().unwrap();
        guest.session().signal(id, 9).unwrap();
        let done = guest.session().finish(id, MINUTE).unwrap();
        assert_eq!(done.end.status, Status::Signalled(9));
        assert_eq!(says(&mut *guest, "echo still here"), "still here");
        let argv = ["/bin/echo".into(), "beside it".into()];
        let request =
            ExecRequest { argv: &argv, input: None, most_output: 100, group: None, deadline: MINUTE };
        assert_eq!(guest.exec(&request).unwrap().output, b"beside it\n", "{environment}");
        // Stopping a frozen guest while a command runs.
        guest.session().start(&command(&["/bin/sh", "-c", "sleep 300"])).unwrap();
        guest.freeze().unwrap();
        let pids = guest.processes();
        guest.stop().unwrap();
        guest.stop().unwrap();
        assert!(!pids.iter().any(|pid| alive(*pid)), "{environment}");
    }
    let request = bench.request_with("native", &ImageSpec::Probe, None);
    assert!(matches!(bench.launch(&request), Err(PlatformError::Unavailable { .. })));
    drop(bench);
    println!("\nall well");
}

#[test]
fn an_ordinary_user_can_use_them() {
    let _turn = shared_turn();
    let test = "an_ordinary_user_can_use_them";
    let setpriv = find_program("setpriv").filter(|_| weigh_host::facts::is_root());
    let Some(setpriv) = setpriv else {
        eprintln!("SKIPPED {test}: needs root and setpriv, to be somebody else");
        return;
    };
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    // The user nobody may not read the build directories.
    let place = |from: &Path, name: &str| {
        let to = base.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let test_program = place(&std::env::current_exe().unwrap(), "test");
    let probe = place(crate::static_probe::path(), "probe");
    let home = base.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    let run = format!("test-user-{}", std::process::id());
    let done = Invocation::new(setpriv)
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(test_program)
        .args(["--exact", "local::ordinary_user", "--ignored", "--nocapture"])
        .env(USER, format!("{}|{run}", home.join("state").display()))
        .env("WEIGH_PROBE", probe)
        .current_dir("/")
        .deadline(MINUTE)
        .run_ok()
        .unwrap();
    let text = String::from_utf8_lossy(&done.output);
    assert!(text.contains("all well"), "{text}");
    for line in String::from_utf8_lossy(&done.error).lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{line}");
    }
    nothing_is_left(&run);
}
