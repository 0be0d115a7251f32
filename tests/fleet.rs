//! `weigh fleet`: machines by ssh, which are servers in network namespaces here, machines of a Slurm
//! cluster that the tests start, and nodes of a Kubernetes cluster that is a fake. They measure
//! fakes.

#[path = "fleet/kubernetes.rs"]
mod kubernetes;
#[path = "fleet/slurm.rs"]
mod slurm;

use crate::sshd::Machine;
use crate::support::{Said, Stage, interrupt, is_long, kill, skip, trials, wait_until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

/// The longest time that an engine may add to a run, beyond its own queueing, s.
const ENGINE_S: f64 = 5.0;

/// The command line of the work: `blocks` blocks of a fake, each run of which takes `time`.
fn work(blocks: u32, time: &str) -> String {
    format!(
        "--on 'null:time={time},real=yes;null:label=b,time={time},real=yes' --baseline null:time={time},real=yes --blocks {blocks} --warmup 0 --iterations 1 --seed 1 --no-void -- work"
    )
}

/// Starts `number` machines. Returns `None`, and says so, where that is not possible.
fn machines(test: &str, number: usize) -> Option<Vec<Machine>> {
    let Some(reason) = crate::sshd::missing() else {
        return Some((0..number).map(|_| Machine::of_fleet(None)).collect());
    };
    skip(test, "ssh", &reason);
    None
}

fn labelled(machine: &Machine, label: &str) -> String {
    machine.environment_but(&[("label", label)])
}

/// The word for the state of a machine, and its reason.
fn state(fleet: &Value, name: &str) -> (String, String) {
    let machine = fleet["machines"].as_array().unwrap().iter().find(|machine| machine["name"] == name);
    let state = &machine.unwrap_or_else(|| panic!("no {name} in {fleet}"))["state"];
    let text = |key: &str| state[key].as_str().unwrap_or_default().to_string();
    (text("kind"), text("reason"))
}

fn is_done(stage: &Stage, fleet: &str, name: &str) -> bool {
    state(&stage.json(&format!("show {fleet} --format json")), name).0 == "done"
}

/// Checks that the process that measured on a machine is gone, and that its changes there are
/// undone.
fn is_empty(machine: &Machine) {
    machine.assert_empty();
    assert!(!machine.path("state").exists(), "the state directory of the machine is left");
}

/// Every machine measures, and one that is away is a reported failure. Resuming tries it again and
/// leaves the others alone.
#[test]
fn every_machine_measures_and_one_that_is_away_is_a_failure() {
    let stage = Stage::new();
    let Some(machines) = machines("every_machine_measures_and_one_that_is_away_is_a_failure", 2) else {
        return;
    };
    let via = [labelled(&machines[0], "a"), labelled(&machines[1], "b")].join(";");
    let line =
        format!("fleet --via '{via};ssh:host=nowhere.invalid,config=/dev/null' --out f {}", work(3, "1ms"));
    let said = stage.run(&line).ends_with(1);
    let text = said.all();
    for words in ["1 of 3 machines failed", "weigh resume f", "weigh pool f/*/", "write an address"] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
    let fleet = stage.json("show f --format json");
    for name in ["a", "b"] {
        assert_eq!(state(&fleet, name).0, "done", "{fleet}");
        assert_eq!(trials(&stage.here().join("f").join(name)).len(), 6);
        assert_eq!(stage.read_json(&format!("f/{name}/plan.json")), stage.read_json("f/fleet-plan.json"));
        stage.stdout(&format!("show f/{name}"));
    }
    assert_eq!(state(&fleet, "nowhere.invalid").0, "failed");
    let host = |name: &str| stage.read_json(&format!("f/{name}/host.json"))["identity"].clone();
    assert_ne!(host("a"), host("b"), "each is a machine of its own");
    let plan = stage.read_json("f/fleet-plan.json");
    assert!(plan["guest"]["working_directory"].is_null(), "{plan}");
    assert_eq!(plan["command"][0], "run", "{plan}");

    let samples = stage.read("f/a/samples.jsonl");
    stage.run("resume f").ends_with(1).says(&["1 of 3 machines failed"]);
    assert_eq!(stage.read("f/a/samples.jsonl"), samples);
    machines.iter().for_each(is_empty);
    drop(machines);
    stage.host_is_as_before();
}

/// A fleet of one machine takes little more time than the run by itself.
#[test]
fn an_engine_adds_little_to_a_run() {
    let name = "an_engine_adds_little_to_a_run";
    if !is_long() {
        return eprintln!("SKIPPED {name}: it compares times (make test-fleet)");
    }
    let stage = Stage::new();
    let Some(machines) = machines(name, 1) else { return };
    // Whatever else the machine does adds time, and takes none away.
    let least = |line: &str, out: &str| {
        let timed = |number: u32| {
            let start = Instant::now();
            stage.run(&format!("{line} --out {out}-{number} {}", work(10, "100ms"))).ends_with(0);
            start.elapsed().as_secs_f64()
        };
        (0..3).map(timed).fold(f64::INFINITY, f64::min)
    };
    let here = least("run", "here");
    let fleet = least(&format!("fleet --via '{}'", labelled(&machines[0], "a")), "f");
    eprintln!("without a fleet {here:.1} s, by ssh {fleet:.1} s");
    assert!(fleet - here <= ENGINE_S, "the engine took {:.1} s", fleet - here);
    machines.iter().for_each(is_empty);
    drop(machines);
    stage.host_is_as_before();
}

/// The blocks of one plan are distributed, another machine measures the share of one that is away,
/// and one report combines all results.
#[test]
fn blocks_are_shared_out() {
    let stage = Stage::new();
    let Some(machines) = machines("blocks_are_shared_out", 2) else { return };
    let via = [labelled(&machines[0], "a"), labelled(&machines[1], "b")].join(";");
    let line = format!(
        "fleet --shard --via '{via};ssh:host=nowhere.invalid,config=/dev/null' --out f {}",
        work(8, "1ms")
    );
    let said = stage.run(&line).ends_with(0).all();
    for words in ["weigh pool f", "THESE MACHINES", "measure the shares of those"] {
        assert!(said.contains(words), "`{words}` is not in {said}");
    }
    // 8 blocks on 3 machines: 3, 3 and 2, of two trials each.
    for (name, trials_of, number) in [("a", 6, 0), ("b", 6, 1), ("a-2", 4, 2)] {
        assert_eq!(trials(&stage.here().join("f").join(name)).len(), trials_of, "{name}: {said}");
        let plan = stage.read_json(&format!("f/{name}/plan.json"));
        assert_eq!(plan["share"], serde_json::json!({ "number": number, "shares": 3, "blocks": 8 }));
        assert_eq!(plan["seed"], 1 + number);
    }
    let fleet = stage.json("show f --format json");
    assert_eq!(state(&fleet, "nowhere.invalid").0, "failed");
    assert_eq!(fleet["machines"][2]["replaced_by"], "a-2", "{fleet}");
    let table = stage.stdout("show f");
    for words in ["on 3 machines", "3 done, 1 replaced"] {
        assert!(table.contains(words), "`{words}` is not in {table}");
    }
    let report = stage.json("pool f --format json");
    assert_eq!(
        (&report["scope"], &report["cells"][0]["n"]),
        (&"these-machines".into(), &8.into()),
        "{report}"
    );
    stage.run("resume f").ends_with(0);
    machines.iter().for_each(is_empty);
    drop(machines);
    stage.host_is_as_before();
}

/// Ctrl-C ends every run after its trial and brings back its half. The other half is measured
/// later, and no trial twice.
#[test]
fn an_interrupted_fleet_goes_on() {
    let stage = Stage::new();
    let Some(machines) = machines("an_interrupted_fleet_goes_on", 2) else { return };
    let via = [labelled(&machines[0], "a"), labelled(&machines[1], "b")].join(";");
    let mut child = stage.spawn(&format!("fleet --watch --via '{via}' --out f {}", work(60, "100ms")));
    wait_until("blocks of both machines", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
        let said = stage.spawned_said();
        ["a: block ", "b: block "].iter().all(|words| said.contains(words))
    });
    interrupt(&child);
    wait_until("the end of the fleet", || child.try_wait().unwrap().is_some());
    let said = stage.spawned_said();
    assert!(said.contains("the fleet was interrupted: 0 of 2 machines are done"), "{said}");
    let fleet = stage.json("show f --format json");
    let mut halves = Vec::new();
    for name in ["a", "b"] {
        assert_eq!(state(&fleet, name), ("waiting".into(), "interrupted".into()), "{said}");
        let half = stage.read(&format!("f/{name}/samples.jsonl"));
        assert!((1..120).contains(&trials(&stage.here().join("f").join(name)).len()), "{said}");
        halves.push(half);
    }
    machines.iter().for_each(is_empty);
    stage.stdout("resume f");
    for (name, half) in ["a", "b"].iter().zip(&halves) {
        assert!(is_done(&stage, "f", name));
        let whole = stage.read(&format!("f/{name}/samples.jsonl"));
        assert!(whole.starts_with(half.as_str()) && whole.len() > half.len());
        assert_eq!(stage.json(&format!("show f/{name} --format json"))["blocks"]["done"], 60);
    }
    machines.iter().for_each(is_empty);
    drop(machines);
    stage.host_is_as_before();
}

/// When weigh is killed, the run on a machine ends after its trial and stays for `weigh
/// resume`, or `weigh clean` removes it. After `clean` the machine starts again from the beginning.
#[test]
fn a_killed_fleet_goes_on_or_is_cleaned() {
    let stage = Stage::new();
    let Some(machines) = machines("a_killed_fleet_goes_on_or_is_cleaned", 1) else { return };
    let machine = &machines[0];
    let remote = || -> Option<std::path::PathBuf> {
        let made = std::fs::read_dir(machine.path("work here")).unwrap().flatten();
        made.map(|entry| entry.path().join("run")).find(|run| trials(run).len() > 2)
    };
    let begin = |out: &str| {
        let line = format!("fleet --via '{}' --out {out} {}", labelled(machine, "a"), work(60, "50ms"));
        let mut child = stage.spawn(&line);
        wait_until("trials there", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
            remote().is_some()
        });
        kill(&mut child);
    };
    begin("f");
    let half = remote().unwrap();
    assert!(!stage.here().join("f/a").exists());
    wait_until("the end of the run there", || !half.parent().unwrap().join("pid").exists());
    let measured = std::fs::read_to_string(half.join("samples.jsonl")).unwrap();
    stage.stdout("resume f");
    assert!(is_done(&stage, "f", "a"));
    assert!(stage.read("f/a/samples.jsonl").starts_with(&measured), "what was measured there counts");
    machine.assert_empty();

    begin("g");
    let dry = stage.stdout("clean --dry-run");
    assert!(dry.contains("fleet"), "{dry}");
    stage.stdout("clean");
    is_empty(machine);
    stage.stdout("resume g");
    assert!(is_done(&stage, "g", "a"));
    is_empty(machine);
    drop(machines);
    stage.host_is_as_before();
}

/// The connections of a machine end: its run ends after its trial, and continues later.
#[test]
fn a_lost_connection_loses_no_trial() {
    let stage = Stage::new();
    let Some(machines) = machines("a_lost_connection_loses_no_trial", 1) else { return };
    let machine = &machines[0];
    let mut child = stage.spawn(&format!(
        "fleet --watch --via '{}' --out f {}",
        labelled(machine, "a"),
        work(60, "50ms")
    ));
    wait_until("a block", || stage.spawned_said().contains("a: block "));
    machine.link("down");
    wait_until("the end of the fleet", || child.try_wait().unwrap().is_some());
    let said = stage.spawned_said();
    assert!(said.contains("cannot connect to root@") && said.contains("weigh resume"), "{said}");
    assert_eq!(state(&stage.json("show f --format json"), "a").0, "failed", "{said}");
    machine.link("up");
    stage.stdout("resume f");
    assert_eq!(stage.json("show f/a --format json")["blocks"]["done"], 60);
    machine.assert_empty();
    stage.stdout("clean");
    is_empty(machine);
    drop(machines);
    stage.host_is_as_before();
}

/// A directory with a program that replaces one of the machine's. The result is the path to search.
fn with_program(directory: &Path, name: &str, script: &str) -> String {
    let program = directory.join(name);
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.display())
}

/// What a machine sends is unpacked only in its own run directory, and counts as a run only if it
/// is a run of the plan.
#[test]
fn a_hostile_machine_writes_nothing_else() {
    const TEST: &str = "a_hostile_machine_writes_nothing_else";
    let stage = Stage::new();
    if let Some(reason) = crate::sshd::missing() {
        return skip(TEST, "ssh", &reason);
    }
    let programs = tempfile::tempdir().unwrap();
    let archive = |name: &str, kind: tar::EntryType, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    };
    stage.stdout("run --out other --on null --baseline null --blocks 1 -- other");
    let mut other = tar::Builder::new(Vec::new());
    other.append_dir_all(".", stage.here().join("other")).unwrap();
    let cases = [
        (archive("../../planted", tar::EntryType::Regular, b"x"), "leads out of the directory"),
        (archive("plan.json", tar::EntryType::Symlink, b""), "neither a plain file nor a directory"),
        (archive("plan.json", tar::EntryType::Regular, b"{}"), "weigh ended there and left no run directory"),
        (other.into_inner().unwrap(), "is not a run of the fleet's plan"),
    ];
    let path = with_program(programs.path(), "tar", &format!("cat '{}/archive'", programs.path().display()));
    let machine = Machine::of_fleet(Some(Path::new(&path)));
    for (bytes, words) in cases {
        std::fs::write(programs.path().join("archive"), bytes).unwrap();
        let line = format!("fleet --via '{}' --out f {}", labelled(&machine, "a"), work(1, "1ms"));
        let said = stage.run(&line).ends_with(4).says(&[words]);
        assert!(!stage.here().join("f/a").exists(), "{words}: {}", said.all());
        assert!(!stage.here().join("planted").exists() && !stage.here().join("f/planted").exists());
        std::fs::remove_dir_all(stage.here().join("f")).unwrap();
        // What could not be brought back stays there until it is cleaned.
        stage.stdout("clean");
        is_empty(&machine);
    }
    drop(machine);
    stage.host_is_as_before();
}

/// Two names of one machine, and a machine of another kind, are refused before anything runs there.
#[test]
fn machines_that_cannot_be_measured_are_reported() {
    const TEST: &str = "machines_that_cannot_be_measured_are_reported";
    let stage = Stage::new();
    if let Some(reason) = crate::sshd::missing() {
        return skip(TEST, "ssh", &reason);
    }
    let programs = tempfile::tempdir().unwrap();
    let script = "case \"$1\" in -m) echo vax;; *) exec /usr/bin/uname \"$@\";; esac";
    let path = with_program(programs.path(), "uname", script);
    let (machine, other) = (Machine::of_fleet(None), Machine::of_fleet(Some(Path::new(&path))));
    let via = [labelled(&machine, "a"), labelled(&machine, "again"), labelled(&other, "vax")].join(";");
    stage.run(&format!("fleet --via '{via}' --out f {}", work(1, "1ms"))).ends_with(1);
    let fleet = stage.json("show f --format json");
    assert_eq!(state(&fleet, "a").0, "done", "{fleet}");
    let (again, why) = state(&fleet, "again");
    assert!(again == "failed" && why.contains("same kernel as `a`"), "{why}");
    let (vax, why) = state(&fleet, "vax");
    assert!(vax == "failed" && why.contains("it is Linux on vax"), "{why}");
    for machine in [&machine, &other] {
        is_empty(machine);
    }
    drop(other);

    // Machines that share blocks must be alike; one that is not measures nothing, and the first
    // measures its share.
    let path = with_program(programs.path(), "nproc", "echo 4096");
    std::fs::remove_file(programs.path().join("uname")).unwrap();
    let larger = Machine::of_fleet(Some(Path::new(&path)));
    let via = [labelled(&machine, "a"), labelled(&larger, "larger")].join(";");
    stage.run(&format!("fleet --shard --via '{via}' --out g {}", work(4, "1ms"))).ends_with(0);
    let fleet = stage.json("show g --format json");
    let (failed, why) = state(&fleet, "larger");
    assert!(failed == "failed" && why.contains("measured nothing: CPUs 4096, not"), "{why}");
    assert!(why.contains("as on a") && why.contains("leave out --shard"), "{why}");
    assert!(!stage.here().join("g/larger").exists(), "{fleet}");
    assert_eq!(fleet["machines"][1]["replaced_by"], "a-2", "{fleet}");
    [&machine, &larger].into_iter().for_each(is_empty);
    drop((machine, larger));
    stage.host_is_as_before();
}

/// Nothing is measured: these tests run beside others.
mod fakes {
    use super::*;

    #[test]
    fn an_invalid_fleet_is_refused_with_a_remedy() {
        let stage = Stage::with_fakes();
        let on = "--on null --baseline null";
        stage.refuses(&format!("fleet {on} -- work"), &["--via <ENGINE>"]);
        for unfit in ["--gate 2", "--format json", "--live", "--details"] {
            let option = unfit.split(' ').next().unwrap();
            let line = format!("fleet --via ssh:host=a {on} {unfit} -- work");
            stage.refuses(&line, &[option, "cannot be used with"]);
        }
        let via =
            |via: &str, words: &[&str]| stage.refuses(&format!("fleet --via '{via}' {on} -- work"), words);
        via("shs:host=a", &["no engine `shs`", "did you mean `ssh`?"]);
        via("ssh:host=a;slurm:nodes=2", &["one engine", "a fleet of its own"]);
        via("ssh:host=a;ssh:host=a", &["named twice"]);
        via("ssh:host=a,by=shell", &["runs weigh itself"]);
        via("kubernetes:context=a,node=b", &["no key `node`", "did you mean `nodes`?"]);
        via("kubernetes:nodes=a,binary=/no/kubectl", &["/no/kubectl is missing", "kubernetes-client"]);
        via("slurm", &["how many machines", "slurm:nodes=8"]);
        via("slurm:nodes=many", &["not a number of nodes"]);
        via("slurm:nodes=2,partition=-x", &["partition"]);
        stage.refuses(
            &format!("fleet --via ssh:host=a --loader ssh:host=b {on} --workload x.toml"),
            &["x.toml"],
        );
        std::fs::create_dir(stage.here().join("tree")).unwrap();
        stage.refuses(&format!("fleet --via ssh:host=a {on} --image tree -- work"), &["on this host alone"]);
        stage.refuses("resume nowhere", &["no run directory nowhere"]);
        stage.stdout(&format!("run --out r --blocks 1 {on} -- work"));
        stage.refuses("resume r --watch", &["`--watch` is for a fleet"]);
        assert!(!stage.here().join("weigh-runs").exists(), "nothing is made before all is read");
    }

    #[test]
    fn a_dry_run_names_machines_and_changes_nothing() {
        let stage = Stage::with_fakes();
        let line = "fleet --via 'ssh:host=a;ssh:host=b,directory=/var/tmp' --dry-run --seed 3 --on null --baseline null -- work";
        let text = stage.stdout(line);
        for words in ["seed 3", "machine: a (ssh:host=a)", "on b: make /var/tmp/weighbridge-fleet-"] {
            assert!(text.contains(words), "`{words}` is not in {text}");
        }
        let line = "fleet --shard --via slurm:nodes=3 --dry-run --on null --baseline null";
        let text = stage.stdout(&format!("{line} --blocks 10 -- work"));
        assert!(
            text.contains("task-0 (slurm), 4 of the blocks") && text.contains("3 of the blocks"),
            "{text}"
        );
        stage.refuses(&format!("{line} --blocks 5 -- work"), &["too few for 3 machines", "--blocks 6"]);
        stage.refuses(&format!("{line} -- work"), &["a fixed number of blocks", "give --blocks"]);
        let text = stage.stdout("fleet --via slurm:nodes=3 --dry-run --on null --baseline null -- work");
        assert!(text.contains("job array of 3 tasks"), "{text}");
        assert_eq!(std::fs::read_dir(stage.here()).unwrap().count(), 0);
    }

    /// A plan that was made for another host is refused before anything runs.
    #[test]
    fn a_plan_that_the_host_is_too_small_for_is_refused() {
        let stage = Stage::with_fakes();
        stage.stdout("run --out r --blocks 1 --on null --baseline null -- work");
        let plan = stage.read_json("r/plan.json");
        let with = |key: &str, value: Value| {
            let mut plan = plan.clone();
            plan["guest"][key] = value;
            stage.write("p.json", plan.to_string());
        };
        with("cpus", serde_json::json!([0, 4095]));
        stage.refuses("run --plan p.json", &["CPU 4095", "usable CPUs"]);
        with("memory_bytes", serde_json::json!(1_u64 << 50));
        stage.refuses("run --plan p.json", &["every guest 1", "this host has"]);
    }

    /// A fleet as an earlier weigh left it.
    fn stored(stage: &Stage, fleet: Value) {
        stage.stdout("run --out r --blocks 1 --on null --baseline null -- work");
        std::fs::create_dir_all(stage.here().join("f")).unwrap();
        stage.write("f/fleet-plan.json", stage.read("r/plan.json"));
        stage.write("f/fleet.json", fleet.to_string());
    }

    fn fleet(version: &str, name: &str) -> Value {
        serde_json::json!({
            "format": 1, "tool_version": version, "id": "weighbridge-fleet-1",
            "machines": [{ "name": name, "via": "ssh:host=nowhere.invalid,config=/dev/null", "state": { "kind": "running" } }]
        })
    }

    #[test]
    fn fleets_of_others_are_refused_or_shown() {
        let stage = Stage::with_fakes();
        stored(&stage, fleet("0.0.1", "a"));
        stage.refuses("resume f", &["weigh 0.0.1 began the fleet"]);
        assert!(stage.stdout("show f").contains("running"));
        stage.refuses("show f --format csv", &["fleets have no csv output"]);
        stage.refuses("show f --gate 3", &["--gate", "this is a fleet"]);
        stage.refuses("resume f --live", &["--live", "this is a fleet"]);
        stage.write("f/fleet.json", fleet("0.0.1", "../a").to_string());
        stage.refuses("resume f", &["not the name of a machine"]);
        stage.write("f/fleet.json", "{");
        stage.refuses("show f", &["fleet.json", "damaged"]);
        std::fs::remove_file(stage.here().join("f/fleet.json")).unwrap();
        stage.refuses("show f", &["not a run directory"]);
    }

    /// However the fleet ended, the machine is asked again.
    #[test]
    fn a_fleet_that_was_running_goes_on() {
        let stage = Stage::with_fakes();
        let version = stage.stdout("--version").trim().trim_start_matches("weigh ").to_string();
        stored(&stage, fleet(&version, "a"));
        let said: Said = stage.run("resume f").ends_with(4);
        let text = said.says(&["1 of 1 machine failed", "write an address"]).all();
        assert!(!text.contains("weigh pool"), "there is nothing to pool: {text}");
        assert_eq!(state(&stage.json("show f --format json"), "a").0, "failed");
        stage.host_is_as_before();
    }
}
