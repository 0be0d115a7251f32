//! Attacks by another user of the host on weigh, which runs as root, have no effect. The other user
//! is `nobody`, who has no rights at all.

use crate::support::{Said, Stage, is_root, kill, ready, shown, wait_until, words};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NOBODY: u32 = 65534;
/// A run of fakes, which changes nothing but the state directory and the run directory.
const RUN: &str = "run --on null;null:label=b --baseline null --blocks 1 --out r -- true";

/// A program run as the other user.
fn as_nobody(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
    command
}

/// A program that runs until this is dropped.
struct Going(Child);

impl Going {
    /// Starts a program as the other user, and waits until it says that it is ready.
    fn on(script: &str) -> Self {
        let mut child = as_nobody(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().is_some_and(|line| line.unwrap() == "ready"), "{script}");
        Self(child)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(bits)).unwrap();
}

/// Makes a directory that belongs to the other user.
fn theirs(path: &Path) -> PathBuf {
    std::fs::create_dir_all(path).unwrap();
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    path.into()
}

/// A stage that other users may enter, so that nothing above weigh's own directories keeps them
/// out, and a directory in it in which everybody may create files, as in `/tmp`.
fn open(stage: &Stage) -> PathBuf {
    let (here, state) = (stage.here(), stage.state());
    let shared = here.with_file_name("shared");
    std::fs::create_dir(&shared).unwrap();
    let states = state.parent().unwrap();
    for path in [here.parent(), Some(states), states.parent()].into_iter().flatten() {
        mode(path, 0o755);
    }
    mode(&shared, 0o1777);
    shared
}

/// The stage, if this user is root.
fn stage(test: &str, stage: fn() -> Stage) -> Option<(Stage, PathBuf)> {
    is_root(test, "the tests of other users drop from root to one of them").then(|| {
        let stage = stage();
        let shared = open(&stage);
        (stage, shared)
    })
}

/// Runs a command line with other directories for weigh.
fn run_with(stage: &Stage, line: &str, variables: &[(&str, &Path)]) -> Said {
    let mut command = stage.weigh();
    for (name, path) in variables {
        command.env(name, path);
    }
    Said::of(line, command.args(words(line)).output().unwrap())
}

/// Everything below a directory.
fn paths(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            paths(&entry.path(), found);
        }
    }
}

/// Those of these paths that the other user can see, each with the rights that it has.
fn reached(paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    const LOOK: &str = r#"while IFS= read -r p; do if [ -e "$p" ] || [ -L "$p" ]; then
        r=; [ -r "$p" ] && r=r; [ -w "$p" ] && r=${r}w; [ -x "$p" ] && r=${r}x; printf '%s\t%s\n' "$p" "$r"; fi; done"#;
    let mut child = as_nobody(LOOK).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let list: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    let feed = std::thread::spawn(move || input.write_all(list.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let reached = lines.lines().filter_map(|line| line.split_once('\t'));
    reached.map(|(path, rights)| (path.into(), rights.into())).collect()
}

/// Runs guests in which root leaves a program with set-user-ID bits in its storage, and calls
/// `look` with all paths below the state directory while all these guests exist.
fn while_guests_have_programs(stage: &Stage, on: &str, look: impl FnOnce(&[PathBuf])) {
    let leave =
        "cd /var/tmp && rm -f sh pipe && cp /bin/sh sh && chmod 6755 sh && mkfifo -m 666 pipe && sleep 0.5";
    // Not natively, because the files would be on the host.
    let line = format!(
        "run --on {on} --baseline null --blocks 50 --warmup 0 --no-void --slices off --out r -- sh -c '{leave}'"
    );
    // The run is ended whatever happens to the test.
    let mut child = Going(stage.spawn(&line));
    let guests = on.matches("storage=volume").count();
    let mut found = Vec::new();
    wait_until("programs in the storage of guests", || {
        assert!(child.0.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
        found.clear();
        paths(&stage.state(), &mut found);
        found.iter().filter(|path| path.ends_with("volume/sh")).count() == guests
    });
    // Stop the run, so that the guests stay.
    let process = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    look(&found);
    drop(child);
    stage.stdout("clean");
    std::fs::remove_dir_all(stage.here().join("r")).unwrap();
}

/// During a run other users cannot reach anything in its directories: neither programs that guests
/// left with set-user-ID bits nor sockets, disks and ledgers.
#[test]
fn directories_of_a_run_are_closed_to_other_users() {
    const TEST: &str = "directories_of_a_run_are_closed_to_other_users";
    let Some((stage, _)) = stage(TEST, Stage::new) else { return };
    let runc = ready(&stage, "runc", TEST);
    for mapped in [false, true] {
        let environments = match (runc, mapped) {
            (_, false) => "null;namespaces:storage=volume",
            (true, true) => "null;runc:storage=volume,user=mapped;runc:storage=volume",
            (false, true) => continue,
        };
        while_guests_have_programs(&stage, environments, |found| {
            let own = [vec![stage.state()], found.to_vec()].concat();
            let expected = [(stage.state(), String::new())];
            assert_eq!(reached(&own), expected, "{environments}");
            assert!(found.iter().any(|path| path.ends_with("weigh-probe")), "{found:?}");
        });
    }
    stage.host_is_as_before();
}

/// Podman opens the path to its storage to everybody when root is mapped. What other guests have is
/// elsewhere.
#[test]
fn podman_opens_nothing_but_its_own() {
    const TEST: &str = "podman_opens_nothing_but_its_own";
    let Some((stage, _)) = stage(TEST, Stage::new) else { return };
    if !ready(&stage, "podman", TEST) {
        return;
    }
    let environments = "null;podman:net=none,user=mapped;namespaces:storage=volume";
    while_guests_have_programs(&stage, environments, |found| {
        let of_engine = |path: &Path| path.to_string_lossy().contains("weighbridge-engine");
        for (path, rights) in reached(found) {
            let found = path.symlink_metadata().unwrap();
            let as_root = found.is_file() && found.uid() == 0 && found.mode() & 0o6000 != 0;
            assert!(!as_root, "{} runs as root", path.display());
            assert!(of_engine(&path) || rights.is_empty(), "{}: {rights}", path.display());
            let socket = found.file_type().is_socket() && rights.contains('w');
            assert!(!socket, "{} talks to everybody", path.display());
        }
    });
    stage.host_is_as_before();
}

/// A run directory is for reading: its files have the rights that the umask leaves, none is
/// executable, and nobody else may write one.
#[test]
fn run_directories_hold_nothing_to_execute_or_to_write() {
    const TEST: &str = "run_directories_hold_nothing_to_execute_or_to_write";
    let Some((stage, _)) = stage(TEST, Stage::new) else { return };
    stage.run("run --on native,namespaces --blocks 1 --out r -- sh -c 'echo out; echo err >&2'").ends_with(0);
    let mut found = Vec::new();
    paths(&stage.here().join("r"), &mut found);
    assert!(found.iter().any(|path| path.ends_with("samples.jsonl")));
    for (path, rights) in reached(&found) {
        let expected = if path.is_dir() { "rx" } else { "r" };
        assert_eq!(rights, expected, "{}", path.display());
    }
    stage.host_is_as_before();
}

/// Plants a ledger that would make root start a program and remove a directory.
fn plant(state: &Path, program: &Path, victim: &Path) {
    std::fs::create_dir_all(state.join("ledger")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let header = serde_json::json!({"ledger": 1, "run": "x", "pid": 4_000_000_000_u32, "start_ticks": 1, "boot": boot.trim(), "since": ""});
    let directory = serde_json::json!({"entry": 0, "change": {"kind": "directory", "path": victim}});
    // A store that looks as if it held a container.
    let store = state.join("weighbridge-engine-x");
    std::fs::create_dir_all(store.join("root/overlay-containers")).unwrap();
    std::fs::write(store.join("containers.conf"), "").unwrap();
    std::fs::write(
        store.join("root/overlay-containers/containers.json"),
        "[{\"names\":[\"weighbridge-x\"]}]",
    )
    .unwrap();
    let of_store = serde_json::json!({"entry": 1, "change": {"kind": "directory", "path": store}});
    let of_podman = |entry: u32, what: &str, id: &str, detail: serde_json::Value| serde_json::json!({"entry": entry, "change": {"kind": "platform", "platform": "podman", "what": what, "id": id, "detail": detail}});
    let mounts = of_podman(2, "store", &store.display().to_string(), serde_json::json!({}));
    let detail = serde_json::json!({"binary": program, "runtime": program, "directory": store, "groups": []});
    let container = of_podman(3, "container", "weighbridge-x", detail);
    let lines = [header, directory, of_store, mounts, container];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(state.join("ledger/x.jsonl"), text).unwrap();
}

/// A program that leaves a mark when it is started.
fn marking(stage: &Stage) -> (PathBuf, PathBuf) {
    let place = stage.here();
    let (program, mark) = (place.join("evil"), place.join("mark"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    mode(&program, 0o755);
    (program, mark)
}

/// Whatever another user prepares in place of the state directory is refused before it is trusted.
#[test]
fn state_directories_that_others_made_or_may_write_are_refused() {
    const TEST: &str = "state_directories_that_others_made_or_may_write_are_refused";
    let Some((stage, shared)) = stage(TEST, Stage::with_fakes) else { return };
    let (program, mark) = marking(&stage);
    let victim = stage.here().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("precious"), "x").unwrap();
    let give = |path: &Path| {
        let mut all = vec![path.to_path_buf()];
        paths(path, &mut all);
        all.iter().for_each(|path| lchown(path, Some(NOBODY), Some(NOBODY)).unwrap());
    };
    type Case<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>, &'a str);
    let cases: [Case<'_>; 7] = [
        (
            "theirs",
            Box::new(|state| {
                plant(state, &program, &victim);
                give(state)
            }),
            "belongs to user 65534",
        ),
        (
            "below-theirs",
            Box::new(|state| {
                plant(&state.join("deep"), &program, &victim);
                give(state);
                chown(state.join("deep"), Some(0), Some(0)).unwrap()
            }),
            "belongs to user 65534",
        ),
        (
            "open",
            Box::new(|state| {
                plant(state, &program, &victim);
                mode(state, 0o777)
            }),
            "mode is 0777",
        ),
        (
            "open-ledgers",
            Box::new(|state| {
                plant(state, &program, &victim);
                mode(&state.join("ledger"), 0o1777)
            }),
            "mode is 1777",
        ),
        (
            "link",
            Box::new(|state| {
                let to = state.with_extension("to");
                plant(&to, &program, &victim);
                symlink(&to, state).unwrap();
                lchown(state, Some(NOBODY), Some(NOBODY)).unwrap()
            }),
            "belongs to user 65534",
        ),
        (
            "pipe",
            Box::new(|state| {
                assert!(as_nobody(&format!("mkfifo {}", state.display())).status().unwrap().success())
            }),
            "belongs to user 65534",
        ),
        (
            "file",
            Box::new(|state| {
                assert!(as_nobody(&format!(": > {}", state.display())).status().unwrap().success())
            }),
            "belongs to user 65534",
        ),
    ];
    for (name, make, expected) in cases {
        let place = shared.join(name);
        make(&place);
        let state = if name == "below-theirs" { place.join("deep") } else { place };
        for line in [RUN, "clean", "clean --dry-run", "image remove debian"] {
            let said = run_with(&stage, line, &[("WEIGH_STATE", &state)]).ends_with(1);
            said.says(&[expected, "another user could write", "WEIGH_STATE", "nobody else may write"]);
            assert!(!mark.exists(), "{name}: {line} started a planted program");
            assert!(victim.join("precious").exists(), "{name}: {line} removed what a ledger names");
            std::fs::remove_dir_all(stage.here().join("r")).unwrap_or_default();
        }
    }
    // The same ledger in a directory of root's is trusted, but starts none of the programs that it
    // names, and removes nothing of others.
    let state = stage.here().join("own-state");
    plant(&state, &program, &victim);
    let said = run_with(&stage, "clean", &[("WEIGH_STATE", &state)]).ends_with(1);
    said.says(&["could not be undone", "a name of weighbridge's"]);
    assert!(!mark.exists(), "a program of a ledger was started");
    assert!(victim.join("precious").exists());
    stage.host_is_as_before();
}

/// Below a directory such as `/tmp` root's own state directory is accepted, and is closed.
#[test]
fn a_directory_of_roots_own_below_a_shared_one_serves() {
    const TEST: &str = "a_directory_of_roots_own_below_a_shared_one_serves";
    let Some((stage, shared)) = stage(TEST, Stage::with_fakes) else { return };
    let state = shared.join("root's/state");
    run_with(&stage, RUN, &[("WEIGH_STATE", &state)]).ends_with(0);
    assert_eq!(shared.join("root's").metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 1);
    stage.host_is_as_before();
}

/// The same applies to the cache, whose programs would be started.
#[test]
fn caches_that_others_made_or_may_write_are_refused() {
    const TEST: &str = "caches_that_others_made_or_may_write_are_refused";
    let Some((stage, shared)) = stage(TEST, Stage::with_fakes) else { return };
    let open = shared.join("open");
    std::fs::create_dir(&open).unwrap();
    mode(&open, 0o777);
    for cache in [theirs(&shared.join("theirs")), theirs(&shared.join("above")).join("images"), open] {
        std::fs::create_dir_all(&cache).unwrap();
        for line in [RUN, "image list", "image build debian", "doctor"] {
            let said = run_with(&stage, line, &[("WEIGH_CACHE", &cache)]).ends_with(1);
            said.says(&["cache is not used", "WEIGH_CACHE", "nobody else may write"]);
            std::fs::remove_dir_all(stage.here().join("r")).unwrap_or_default();
        }
        assert!(std::fs::read_dir(&cache).unwrap().next().is_none(), "something was written there");
    }
    stage.host_is_as_before();
}

/// Images that an earlier version unpacked where everybody could reach their programs.
#[test]
fn images_of_earlier_versions_are_closed() {
    const TEST: &str = "images_of_earlier_versions_are_closed";
    let Some((stage, _)) = stage(TEST, Stage::with_fakes) else { return };
    let cache = stage.here().join("cache");
    let program = cache.join("images/oci-0123456789abcdef/tree/bin/su");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy("/bin/sh", &program).unwrap();
    mode(&program, 0o4755);
    let programs = [program];
    assert_eq!(reached(&programs).len(), 1);
    for line in ["image list", RUN] {
        mode(&cache.join("images"), 0o755);
        run_with(&stage, line, &[("WEIGH_CACHE", &cache)]).ends_with(0);
        assert_eq!(reached(&programs), [], "{line}");
    }
    stage.host_is_as_before();
}

/// Files that everybody may open, as earlier versions made them: if another user locks them, they
/// stop neither runs nor cleaning.
#[test]
fn locks_that_others_hold_stop_nothing() {
    const TEST: &str = "locks_that_others_hold_stop_nothing";
    let Some((stage, _)) = stage(TEST, Stage::with_fakes) else { return };
    let (state, victim) = (stage.state(), stage.here().join("weighbridge-left"));
    plant(&state, Path::new("/bin/false"), &victim);
    std::fs::remove_dir_all(state.join("weighbridge-engine-x")).unwrap();
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(state.join("lock"), "{\"pid\":1,\"run\":\"somebody's\",\"since\":\"x\"}").unwrap();
    let (lock, ledger) = (state.join("lock"), state.join("ledger/x.jsonl"));
    for (path, bits) in [(&state, 0o755), (&state.join("ledger"), 0o755), (&lock, 0o644), (&ledger, 0o644)] {
        mode(path, bits);
    }
    let hold = |path: &Path| {
        Going::on(&format!("exec 9< {}; flock -x 9; echo ready; exec sleep 100", path.display()))
    };
    let _held = [hold(&lock), hold(&ledger)];
    stage.run(RUN).ends_with(0);
    stage.run("clean").ends_with(0).says(&["undone"]);
    assert!(!victim.exists());
    stage.host_is_as_before();
}

/// Root works in a directory of another user, who could redirect any name in it at any time.
#[test]
fn root_refuses_outputs_that_other_users_could_redirect() {
    const TEST: &str = "root_refuses_outputs_that_other_users_could_redirect";
    let Some((stage, shared)) = stage(TEST, Stage::with_fakes) else { return };
    let run = |line: &str, here: &Path, sudo: Option<&str>| {
        let mut command = stage.weigh();
        command.current_dir(here).env_remove("SUDO_UID");
        if let Some(user) = sudo {
            command.env("SUDO_UID", user);
        }
        Said::of(line, command.args(words(line)).output().unwrap())
    };
    stage.stdout(RUN);
    let good = stage.here().join("r").display().to_string();
    let precious = stage.here().join("precious");
    std::fs::write(&precious, "x").unwrap();
    let home = theirs(&shared.join("home"));
    symlink(&precious, home.join("report.html")).unwrap();
    symlink(stage.here(), home.join("weigh-runs")).unwrap();
    let link = shared.join("report.html");
    symlink(&precious, &link).unwrap();
    lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    let in_shared = link.display().to_string();
    let lines = [
        (RUN.replace("--out r ", ""), &home),
        (RUN.to_string(), &home),
        (RUN.replace("--out r", "--out deep/r"), &home),
        (format!("show {good} --format html --output report.html"), &home),
        (format!("show {good} --format html --output {in_shared}"), &stage.here()),
        ("man man".to_string(), &home),
        (format!("study new {good} --name s --title t --output s.toml"), &home),
        ("selftest --fake seed=1 --out self".to_string(), &home),
    ];
    for (line, here) in &lines {
        run(line, here, None).ends_with(2).says(&["another user", "sudo"]);
        run(line, here, Some("1000")).ends_with(2);
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "x");
    let mut left = Vec::new();
    paths(&home, &mut left);
    assert_eq!(left.len(), 2, "{left:?}");
    // A run that belongs to another user is not resumed.
    std::fs::rename(&good, home.join("r")).unwrap();
    chown(home.join("r"), Some(NOBODY), Some(NOBODY)).unwrap();
    run("resume r", &home, None).ends_with(2).says(&["another user"]);
    // A user who may become root by sudo does not count as another user.
    std::fs::remove_file(home.join("weigh-runs")).unwrap();
    run(&RUN.replace("--out r ", ""), &home, Some("65534")).ends_with(0);
    run("show last --format html --output mine.html", &home, Some("65534")).ends_with(0);
    assert!(home.join("mine.html").is_file());
    // To a device, and to a new file where everybody may create files.
    run("show last --output /dev/stdout", &home, None).ends_with(0).says(&["null"]);
    std::fs::remove_file(&link).unwrap();
    run(&format!("show last --format html --output {in_shared}"), &home, None).ends_with(0);
    assert!(std::fs::read_to_string(&link).unwrap().contains("</html>"));
    stage.host_is_as_before();
}

/// A guest's root makes a tree that is deeper than the number of files a process may open.
#[test]
fn deep_directories_in_a_guest_are_removed() {
    const TEST: &str = "deep_directories_in_a_guest_are_removed";
    let Some((stage, _)) = stage(TEST, Stage::new) else { return };
    let dig = "mkdir /var/tmp/$$ && cd /var/tmp/$$ && i=0 && while [ $i -lt 1200 ]; do mkdir d && cd -P d || exit 1; i=$((i+1)); done";
    // Not natively, because the tree would be on the host.
    let dug = stage.run(&format!(
        "run --on null;namespaces:storage=volume --baseline null --blocks 1 --warmup 0 --out r -- sh -c '{dig}'"
    ));
    dug.ends_with(0);
    stage.host_is_as_before();
}

/// A run without space for the programs of its guests leaves nothing behind.
#[test]
fn a_disk_that_is_full_at_the_start_is_left_clean() {
    const TEST: &str = "a_disk_that_is_full_at_the_start_is_left_clean";
    let Some((stage, _)) = stage(TEST, Stage::new) else { return };
    let small = stage.here().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        assert!(
            Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success(),
            "{arguments:?}"
        );
    };
    let path = small.display().to_string();
    for size in ["8k", "200k"] {
        mount(&["mount", "-t", "tmpfs", "-o", &format!("size={size},mode=755"), "weigh-test", &path]);
        let said = run_with(&stage, RUN, &[("WEIGH_STATE", &small.join("state"))]);
        let mut left = Vec::new();
        paths(&small, &mut left);
        mount(&["umount", &path]);
        said.ends_with(1).says(&["space"]);
        assert!(left.is_empty(), "{size}: {left:?}");
        std::fs::remove_dir_all(stage.here().join("r")).unwrap_or_default();
    }
    stage.host_is_as_before();
}
