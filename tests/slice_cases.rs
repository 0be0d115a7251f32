//! `weigh run --slices` with guests that do not freeze, die while frozen, or have two hundred
//! threads, and with weigh itself frozen or killed.

use crate::support::{
    Stage, cell_of, interrupt, kill, records, shown, trials, wait_for, wait_until, with_native,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use stuck_files::StuckFiles;

#[path = "support/stuck_files.rs"]
mod stuck_files;

/// The control groups of the running guests of a platform, in the version 1 hierarchy with the
/// freezer or in that of version 2.
fn groups(stage: &Stage, platform: &str) -> Vec<PathBuf> {
    let ledgers = std::fs::read_dir(stage.state().join("ledger")).into_iter().flatten().flatten();
    let run = ledgers.filter_map(|it| Some(it.path().file_stem()?.to_str()?.to_string())).next();
    let Some(run) = run else { return Vec::new() };
    let mut found: Vec<PathBuf> = if platform == "docker" {
        let named = format!("name={run}");
        let mut docker = std::process::Command::new("docker");
        let said = docker.args(["ps", "--no-trunc", "-q", "-f", &named]).output().unwrap().stdout;
        let id = String::from_utf8(said).unwrap().trim().to_string();
        below(&root()).into_iter().filter(|group| !id.is_empty() && group.ends_with(&id)).collect()
    } else {
        let parent = root().join(format!("weighbridge-{run}"));
        let named = |group: &PathBuf| {
            let name = group.file_name().unwrap_or_default().to_string_lossy();
            group.parent() == Some(&parent) && name.starts_with(platform) && !name.ends_with("-monitor")
        };
        below(&parent).into_iter().filter(named).collect()
    };
    found.sort();
    found
}

fn root() -> PathBuf {
    let v1 = PathBuf::from("/sys/fs/cgroup/freezer");
    if v1.is_dir() { v1 } else { "/sys/fs/cgroup".into() }
}

/// A group and all groups below it.
fn below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    std::iter::once(group.to_path_buf()).chain(inner.flat_map(|entry| below(&entry.path()))).collect()
}

fn is_frozen(group: &Path) -> bool {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    read("freezer.state").trim() == "FROZEN" || read("cgroup.events").contains("frozen 1")
}

/// Sends SIGKILL to all processes of a group and of the groups below it.
fn kill_all(group: &Path) {
    let read = |group: PathBuf| std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let text: String = below(group).into_iter().map(read).collect();
    for process in
        text.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw)
    {
        let _gone_already = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Waits until a guest of a platform is being sliced: it is frozen and thawed repeatedly, faster
/// than between units. Returns its group, which was frozen when last checked.
fn sliced(stage: &Stage, child: &mut Child, platform: &str) -> PathBuf {
    const CHANGES: usize = 8;
    const AT_MOST: Duration = Duration::from_secs(1);
    let mut group = wait_for(&format!("a guest of {platform}"), || groups(stage, platform).pop());
    let mut changes: Vec<Instant> = Vec::new();
    let mut was = is_frozen(&group);
    wait_until(&format!("slices of {platform}"), || {
        assert!(child.try_wait().unwrap().is_none(), "the run is over: {}", stage.spawned_said());
        if !group.exists()
            && let Some(next) = groups(stage, platform).pop()
        {
            (group, changes) = (next, Vec::new());
        }
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            let now = is_frozen(&group);
            if now != was {
                changes.push(Instant::now());
                was = now;
            }
        }
        was && changes.len() >= CHANGES && changes[changes.len() - CHANGES].elapsed() < AT_MOST
    });
    group
}

/// A command that counts; `before` runs first.
fn work(stage: &Stage, name: &str, before: &str) -> PathBuf {
    stage.write(name, format!("#!/bin/sh\n{before}\ni=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n"));
    let path = stage.here().join(name);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// How the trials of each environment ended, in the order of the blocks.
fn outcomes(run: &Path) -> BTreeMap<String, Vec<Value>> {
    let mut outcomes: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for trial in trials(run) {
        outcomes.entry(trial["environment"].as_str().unwrap().into()).or_default().push(trial);
    }
    outcomes
}

fn is_failure(trial: &Value) -> bool {
    trial["outcome"]["kind"] == "failed"
}

/// Checks that where one environment failed, the others of its unit were measured, and that it was
/// itself measured in a later block.
fn failed_alone_and_came_back(run: &Path, environment: &str) -> Value {
    let all = trials(run);
    let of = |trial: &&Value| trial["environment"] == *environment;
    let failure = all.iter().filter(of).find(|trial| is_failure(trial)).expect("it failed").clone();
    let unit = |trial: &&Value| ["block", "workload", "attempt"].iter().all(|key| trial[key] == failure[key]);
    let others: Vec<&Value> = all.iter().filter(unit).filter(|trial| !of(trial)).collect();
    assert!(!others.is_empty() && !others.iter().any(|trial| is_failure(trial)), "{others:?}");
    let block = |trial: &Value| trial["block"].as_u64().unwrap();
    let later = all.iter().filter(of).any(|trial| !is_failure(trial) && block(trial) > block(&failure));
    assert!(later, "{environment} was not launched again");
    failure
}

/// Waits until an environment has been measured in a block after one in which it failed, then ends
/// the run.
fn until_back(stage: &Stage, child: &mut Child, environment: &str, failed: impl FnOnce()) {
    let run = stage.here().join("r");
    let of = |run: &Path| outcomes(run).remove(environment).unwrap_or_default();
    wait_until("a trial that failed", || of(&run).iter().any(is_failure));
    failed();
    wait_until("a trial after that", || {
        of(&run).iter().skip_while(|trial| !is_failure(trial)).any(|trial| !is_failure(trial))
    });
    interrupt(child);
    child.wait().unwrap();
}

#[test]
fn a_guest_that_cannot_be_frozen_fails_alone() {
    let stage = Stage::new();
    let (files, flag) = (stage.here().join("files"), stage.here().join("stuck"));
    std::fs::create_dir(&files).unwrap();
    let Some(mounted) = StuckFiles::mount(&files) else {
        eprintln!("SKIPPED a_guest_that_cannot_be_frozen_fails_alone: no FUSE");
        return;
    };
    // Only native guests share the PID namespace with this test.
    let native = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let elsewhere = format!("[ $(readlink /proc/self/ns/pid) != '{}' ]", native.display());
    let stuck = format!("cat {}/x </dev/null >/dev/null 2>&1 &", files.display());
    let stuck = format!("[ ! -e {} ] || {elsewhere} || {stuck}", flag.display());
    let command = work(&stage, "work", &stuck);
    let line = "run --slices 5ms --no-void --on native,namespaces --blocks 60 --out r --";
    let mut child = stage.spawn(&format!("{line} {}", command.display()));
    sliced(&stage, &mut child, "native");
    std::fs::write(&flag, "").unwrap();
    until_back(&stage, &mut child, "native", || std::fs::remove_file(&flag).unwrap());
    drop(mounted);
    stage.host_is_as_before();
    let failure = failed_alone_and_came_back(&stage.here().join("r"), "native");
    let reason = failure["outcome"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("could not be frozen") && reason.contains("did not stop within 2s"), "{failure}");
}

#[test]
fn a_guest_that_is_killed_while_it_stands_frozen_fails_alone() {
    const TEST: &str = "a_guest_that_is_killed_while_it_stands_frozen_fails_alone";
    let stage = Stage::new();
    for platform in ["namespaces", "runc", "docker"] {
        if with_native(&stage, &[platform], TEST) == "native" {
            continue;
        }
        killed_while_frozen(&stage, platform);
    }
}

fn killed_while_frozen(stage: &Stage, platform: &str) {
    let run = stage.here().join("r");
    let line = format!("run --slices 5ms --no-void --on native,{platform} --blocks 60 --out r");
    let mut child = stage.spawn(&format!("{line} noploop --size quick"));
    let group = sliced(stage, &mut child, platform);
    match platform {
        // A user of the host ends it; the engine's signal waits until the guest is thawed.
        "docker" => {
            let id = group.file_name().expect("the group has the name of the container");
            let killed = std::process::Command::new("docker").arg("kill").arg(id).status().unwrap();
            assert!(killed.success(), "docker kill: {killed}");
        }
        _ => kill_all(&group),
    }
    until_back(stage, &mut child, platform, || {});
    stage.host_is_as_before();
    let failure = failed_alone_and_came_back(&run, platform);
    assert_eq!(failure["outcome"]["failure"], "guest-died", "{failure}");
    assert!(!failure["outcome"]["reason"].as_str().unwrap().is_empty(), "{failure}");
    std::fs::remove_dir_all(&run).unwrap();
}

const THREADS: usize = 200;

/// The command of [`two_hundred_threads_are_sliced`]: each thread counts for a few milliseconds.
#[test]
#[ignore = "run by another test, in guests"]
fn count_in_two_hundred_threads() {
    let count = || (0..500_000u64).fold(0, |sum, n| std::hint::black_box(sum + n));
    let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(count)).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// All threads stop when their guest does: otherwise they would use more CPU time than the thawed
/// periods provide.
#[test]
fn two_hundred_threads_are_sliced() {
    let stage = Stage::new();
    // Guests see the working directory, but not every place where a checkout may be.
    let itself = stage.here().join("itself");
    std::fs::copy(std::env::current_exe().unwrap(), &itself).unwrap();
    let command = format!("{} --exact --ignored slice_cases::count_in_two_hundred_threads", itself.display());
    let line = "run --slices 5ms --no-void --on native,namespaces --blocks 2 --warmup 1 --out r --";
    stage.stdout(&format!("{line} {command}"));
    let run = stage.here().join("r");
    let slicing = records(&run, "slicing");
    assert_eq!(slicing[0]["length_us"], 5000, "{slicing:?}");
    let trials = trials(&run);
    assert_eq!(trials.len(), 4);
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    for trial in trials {
        assert_eq!(trial["outcome"]["kind"], "measured", "{trial}");
        let seconds = |value: &Value| value.as_f64().unwrap() / 1e9;
        let thawed = trial["slices"]["thawed_us"].as_array().unwrap();
        let thawed: f64 = thawed.iter().map(|us| us.as_f64().unwrap() / 1e6).sum();
        let iterations = trial["outcome"]["iterations"].as_array().unwrap();
        let used = |run: &Value| seconds(&run["user_ns"]) + seconds(&run["system_ns"]);
        let all: f64 = iterations.iter().map(used).sum();
        assert!(all < 1.1 * cpus * thawed, "{all} s of CPU time in {thawed} s: {trial}");
        // The value is the time of one run: no less than its CPU time divided by the number of
        // CPUs.
        let value = iterations[0]["values"]["time"].as_f64().unwrap_or_else(|| panic!("{trial}"));
        let least = all / iterations.len() as f64 / cpus;
        assert!(value > 0.8 * least && value < 20.0 * least, "{value} s, at least {least} s: {trial}");
    }
    stage.host_is_as_before();
}

/// If somebody freezes weigh itself, the run continues when it is thawed, after any time.
#[test]
fn weigh_may_be_frozen_itself() {
    let stage = Stage::new();
    let v1 = root().join("tasks").exists();
    let parent = root().join(format!("weigh-test-above-{}", std::process::id()));
    if std::fs::create_dir(&parent).is_err() {
        eprintln!("SKIPPED weigh_may_be_frozen_itself: no control group can be made");
        return;
    }
    let (file, words) =
        if v1 { ("freezer.state", ["FROZEN", "THAWED"]) } else { ("cgroup.freeze", ["1", "0"]) };
    let line = "run --slices 5ms --no-void --on native,namespaces --blocks 3 --out r noploop --size quick";
    let mut child = stage.spawn(line);
    std::fs::write(parent.join("cgroup.procs"), child.id().to_string()).unwrap();
    sliced(&stage, &mut child, "namespaces");
    // The longest of these exceeds the time that any guest may take to freeze.
    for ms in [20, 50, 100, 2500] {
        std::fs::write(parent.join(file), words[0]).unwrap();
        wait_until("weigh is frozen", || is_frozen(&parent));
        std::thread::sleep(Duration::from_millis(ms));
        std::fs::write(parent.join(file), words[1]).unwrap();
        wait_until("weigh goes on", || !is_frozen(&parent));
    }
    assert!(child.wait().unwrap().success(), "{}", stage.spawned_said());
    std::fs::remove_dir(&parent).unwrap();
    let outcomes = trials(&stage.here().join("r"));
    assert!(outcomes.len() >= 6 && !outcomes.iter().any(is_failure), "{outcomes:?}");
    stage.host_is_as_before();
}

/// The ledger also thaws and removes groups that an engine made.
#[test]
fn clean_thaws_groups_that_a_killed_run_left_frozen() {
    const TEST: &str = "clean_thaws_groups_that_a_killed_run_left_frozen";
    let stage = Stage::new();
    for platform in ["namespaces", "docker", "podman", "lxc"] {
        if with_native(&stage, &[platform], TEST) == "native" {
            continue;
        }
        let line =
            format!("run --slices 20ms --no-void --on native,{platform} --blocks 60 --out r-{platform}");
        let mut child = stage.spawn(&format!("{line} noploop --size quick"));
        // Podman names the group of a container itself.
        sliced(&stage, &mut child, if platform == "podman" { "native" } else { platform });
        kill(&mut child);
        // Of two guests in a unit, one is frozen at any time.
        let left = [groups(&stage, "native"), groups(&stage, platform)].concat();
        assert!(left.iter().any(|group| is_frozen(group)), "{platform}: {left:?}");
        stage.stdout("clean");
        stage.host_is_as_before();
    }
}

/// In namespaces this work is ten times as slow for 15 ms after every pause, as if a switch had
/// emptied all caches. So it is slower the shorter its slices are; whole trials never pause it.
const AFTER_A_PAUSE: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
slow = os.readlink("/proc/self/ns/pid") != "HERE"
clock, own = time.monotonic, time.process_time
endless = "--marks" in sys.argv
if endless:
    print("mark mean", flush=True)
done, marked, began = 0, own(), clock()
last, cold_until = began, 0
while not asked if endless else last - began < 0.1:
    now = clock()
    if slow and now - last > 0.003:
        cold_until = own() + 0.015
    last = now
    for _ in range(10000 if own() < cold_until else 1000):
        pass
    done += 1
    if endless and own() - marked > 0.005:
        print(f"mark time={done}", flush=True)
        done, marked = 0, own()
print(json.dumps({"time": (last - began) / max(done, 1), "passed": True}))
"#;

/// The manifest of that program in a stage; none without python3.
fn after_a_pause(stage: &Stage, test: &str) -> Option<&'static str> {
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        eprintln!("SKIPPED {test}: there is no python3");
        return None;
    }
    let here = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let program = stage.here().join("after-a-pause");
    stage.write("after-a-pause", AFTER_A_PAUSE.replace("HERE", here.to_str().unwrap()));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    stage.write(
        "after-a-pause.toml",
        format!(
            r#"
name = "after-a-pause"
summary = "work that is slow after every pause"
description = "A loop that sees by the clock that it stood still."
command = ["{}"]
sliced = "marks"

[check]
statement = "it worked"
json = "/passed"

[[metric]]
name = "time"
unit = "s"
better = "lower"
primary = true
json = "/time"
"#,
            program.display()
        ),
    );
    Some("after-a-pause.toml")
}

/// Slices that distort the result are replaced by longer ones, and those by whole trials.
#[test]
fn slices_that_are_too_short_give_way() {
    let stage = Stage::new();
    let Some(manifest) = after_a_pause(&stage, "slices_that_are_too_short_give_way") else { return };
    let said = stage
        .run(&format!(
            "run after-a-pause --on native,namespaces --blocks 13 --no-void --out r --workload {manifest}"
        ))
        .ends_with(0);
    assert!(said.stderr.contains("replace its units so far"), "{}", said.stderr);
    let run = stage.here().join("r");
    let lengths: Vec<Option<u64>> =
        records(&run, "slicing").iter().map(|decision| decision["length_us"].as_u64()).collect();
    let [Some(first), .., None] = lengths[..] else { panic!("{lengths:?}") };
    assert!(first < 20_000 && lengths.iter().rev().skip(1).any(|us| *us == Some(20_000)), "{lengths:?}");
    let voids = records(&run, "void");
    let sliced: Vec<Value> = trials(&run).into_iter().filter(|trial| trial.get("slices").is_some()).collect();
    assert!(voids.iter().all(|void| void["cause"] == "slice-length"), "{voids:?}");
    assert_eq!(2 * voids.len(), sliced.len(), "every unit in slices was replaced");
    let shown = shown(&stage, "r");
    // A run has at most twice the planned number of blocks.
    assert!(shown["blocks"]["done"].as_u64().unwrap() >= 3, "{shown}");
    let overhead = cell_of(&shown, "namespaces", "time")["overhead"]["mean"].as_f64().unwrap();
    assert!(overhead.abs() < 0.5, "a loss in every slice would be more: {overhead}");
    stage.host_is_as_before();
}

/// Among several environments, the one whose slices are too short has whole trials beside whole
/// trials of the baseline, and the others stay in slices.
#[test]
fn slices_that_are_too_short_for_one_environment_give_way_there() {
    let stage = Stage::new();
    let Some(manifest) =
        after_a_pause(&stage, "slices_that_are_too_short_for_one_environment_give_way_there")
    else {
        return;
    };
    stage.stdout(&format!(
        "run after-a-pause --on native;native:label=again;namespaces --blocks 13 --no-void --out r --workload \
         {manifest}"
    ));
    let run = stage.here().join("r");
    let decisions = records(&run, "slicing");
    let last = decisions.last().unwrap();
    assert_eq!((&last["length_us"], &last["whole"]), (&20_000.into(), &serde_json::json!(["namespaces"])));
    let shown = shown(&stage, "r");
    assert!(shown["blocks"]["done"].as_u64().unwrap() >= 3, "{shown}");
    let counted = |environment: &str| -> Vec<Value> {
        let done = shown["blocks"]["done"].as_u64().unwrap() as usize;
        let of_environment = trials(&run).into_iter().filter(|trial| trial["environment"] == environment);
        let mut of_environment: Vec<Value> = of_environment.collect();
        of_environment.split_off(of_environment.len() - done)
    };
    assert!(counted("namespaces").iter().all(|trial| trial.get("slices").is_none()), "{decisions:?}");
    assert!(counted("native:label=again").iter().all(|trial| trial["slices"].is_object()), "{decisions:?}");
    let overhead = cell_of(&shown, "namespaces", "time")["overhead"]["mean"].as_f64().unwrap();
    assert!(overhead.abs() < 0.5, "a loss in every slice would be more: {overhead}");
    stage.host_is_as_before();
}

/// An environment that is decided at a look takes no part in later units, and the others go on in
/// slices.
#[test]
fn a_decided_environment_leaves_the_units() {
    let stage = Stage::new();
    let here = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let here = here.display();
    // Half as much again in another namespace.
    let more = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done";
    let work =
        work(&stage, "work", &format!("[ $(readlink /proc/self/ns/pid) = '{here}' ] || {{ {more}; }}"));
    stage.stdout(&format!(
        "run --slices 5ms --on native;native:label=again;namespaces --margin 0.5 --no-void --budget 60s \
         --out r -- {}",
        work.display()
    ));
    let trials = trials(&stage.here().join("r"));
    assert!(trials.iter().all(|trial| trial["outcome"]["kind"] == "measured"), "{trials:?}");
    assert!(trials.iter().all(|trial| trial["slices"].is_object()), "{trials:?}");
    let blocks_of = |environment: &str| -> Vec<u64> {
        let trials = trials.iter().filter(|trial| trial["environment"] == environment);
        trials.map(|trial| trial["block"].as_u64().unwrap()).collect()
    };
    assert_eq!(blocks_of("namespaces"), (0..10).collect::<Vec<_>>());
    let all = blocks_of("native");
    assert!(all.len() > 10, "the others went on: {all:?}");
    assert_eq!(blocks_of("native:label=again"), all);
    let shown = shown(&stage, "r");
    let slower = cell_of(&shown, "namespaces", "time");
    assert_eq!((&slower["verdict"], &slower["n"]), (&"SLOWER".into(), &10.into()), "{slower}");
    assert_eq!(cell_of(&shown, "native:label=again", "time")["n"], all.len());
    stage.host_is_as_before();
}
