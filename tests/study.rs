//! `weigh study` through the binary: requesting, measuring, interrupting and showing studies, and
//! making one of a run.

#[path = "study/fakes.rs"]
mod fakes;

use crate::support::{Stage, interrupt, kill, listed, named, ready, trials, unbroken, wait_until, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Two experiments of fakes, one whose command always fails, one of a workload that does not exist,
/// and one of real guests. The claims have every grade by construction: `a` takes 10 ms, `slow` 11
/// ms, `noisy` anything.
const MINE: &str = r#"
name = "mine"
title = "What fakes cost"
authors = "we"
published = "internal note"
host = "a machine"
method = "by hand"

[[experiment]]
name = "fakes"
title = "Fakes with effects"
source = "table 1"
statistic = "mean of 5 runs; standard deviation"
baseline = "a"
measure = { command = "run", arguments = ["--", "true"] }
arm = [
  { id = "a", label = "A", on = "null:sd=0.0001" },
  { id = "slow", label = "Slow", on = "null:effect=0.1,label=slow,sd=0.0001,seed=2" },
  { id = "noisy", label = "Noisy", on = "null:sd=0.5,label=noisy" },
  { id = "jail", label = "Jail", reach = "ssh" },
]
view = [{ id = "table-1", title = "Table 1", form = "table", quantities = ["time"] }]
[[experiment.quantity]]
id = "time"
label = "Time (ms)"
workload = "true"
metric = "time"
unit = "ms"
better = "lower"
[[experiment.published]]
quantity = "time"
source = "table 1"
n = 5
spread = "sd"
values = { a = [20, 0.1], slow = [22, 0.1], noisy = [40, 0.1], jail = [20, 0.1] }
[[experiment.claim]]
id = "slow-is-slow"
says = "what is slow costs more"
source = "section 1"
check = "slow overhead of time >= 5 %"
[[experiment.claim]]
id = "slow-is-equal"
says = "what is slow costs the same"
source = "section 2"
check = "slow time within 2 % of a"
[[experiment.claim]]
id = "noisy-is-equal"
says = "what is noisy costs the same"
source = "section 3"
check = "noisy time within 2 % of a"
[[experiment.claim]]
id = "jail-is-equal"
says = "a jail costs the same"
source = "section 4"
check = "jail time within 2 % of a"

[[experiment]]
name = "fails"
title = "What always fails"
source = "table 2"
statistic = "one value"
baseline = "a"
measure = { command = "run", arguments = ["--", "false"] }
arm = [{ id = "a", label = "A", on = "null:fault=exit,every=1" }]
quantity = [{ id = "time", label = "Time", workload = "false", metric = "time", unit = "ms", better = "lower" }]
view = [{ id = "table-2", title = "Table 2", form = "table", quantities = ["time"] }]

[[experiment]]
name = "unknown"
title = "A workload that is not there"
source = "table 3"
statistic = "one value"
baseline = "a"
measure = { command = "run", arguments = ["nooploop"] }
arm = [{ id = "a", label = "A", on = "null" }]
quantity = [{ id = "time", label = "Time", workload = "nooploop", metric = "time", unit = "ms", better = "lower" }]
view = [{ id = "table-3", title = "Table 3", form = "table", quantities = ["time"] }]

[[experiment]]
name = "real"
title = "A loop of NOPs"
source = "table 4"
statistic = "one value"
baseline = "native"
measure = { command = "run", arguments = ["noploop"] }
arm = [
  { id = "native", label = "Native", on = "native" },
  { id = "container", label = "Container", on = "namespaces" },
]
quantity = [{ id = "loop", label = "Loop", workload = "noploop", metric = "duration", unit = "ms", better = "lower" }]
view = [{ id = "table-4", title = "Table 4", form = "table", quantities = ["loop"] }]
[[experiment.claim]]
id = "containers-compute"
says = "a container does not take ten times as long"
source = "section 5"
check = "container overhead of loop <= 900 %"
"#;

/// The report of a study.
fn shown(stage: &Stage, study: &str) -> Value {
    stage.json(&format!("show {study} --format json"))
}

/// The grade of each claim of an experiment, in one word.
fn grades(experiment: &Value) -> BTreeMap<String, String> {
    let word = |grade: &Value| {
        let text = grade.to_string().to_lowercase();
        let words = ["not_run", "undecided", "holds", "differs"];
        words.into_iter().find(|word| text.contains(word)).unwrap_or_else(|| panic!("{grade}")).to_string()
    };
    listed(experiment, "claims")
        .iter()
        .map(|claim| (claim["id"].as_str().unwrap().into(), word(&claim["grade"])))
        .collect()
}

/// Every experiment of every study says which of its arms run here, and why the others do not.
#[test]
fn the_list_of_studies_has_the_arms_that_run_and_reasons_for_others() {
    let stage = Stage::new();
    let studies = stage.json("list studies --json");
    let studies = studies.as_array().unwrap();
    let names: Vec<&str> = studies.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "felter-2014",
            "morabito-2015",
            "agarwal-2015",
            "cloudspectator-2017",
            "manco-2017",
            "young-2019",
            "agache-2020",
            "anjali-2020",
            "gvisor-guide-2019",
            "li-2022"
        ]
    );
    let experiments: usize = studies.iter().map(|one| listed(one, "details").len()).sum();
    // A study of the user's is listed with the others but not measured.
    stage.write("mine.toml", MINE);
    let all = stage.json("study --file mine.toml --json");
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), experiments + 4, "{all:?}");
    for one in all {
        let (runs, without) = (listed(one, "runs"), one["without"].as_object().unwrap());
        assert!(!runs.is_empty() || !without.is_empty(), "{one}");
        for (arm, reason) in without {
            assert!(reason.as_str().is_some_and(|reason| reason.len() > 10), "{arm} of {one}");
            assert!(!runs.iter().any(|run| run == arm), "{arm} of {one}");
        }
        let study = one["name"].as_str().unwrap().split('/').next().unwrap();
        assert!(names.contains(&study) || study == "mine", "{one}");
    }
    let mine = all.iter().find(|one| one["name"] == "mine/fakes").unwrap();
    assert_eq!(mine["runs"], serde_json::json!(["a", "slow", "noisy"]));
    assert!(mine["without"]["jail"].as_str().unwrap().contains("--arm jail=ssh:host="), "{mine}");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

/// Prints the commands of all studies, at every size, without changing anything.
#[test]
fn a_dry_run_prints_the_command_of_every_experiment() {
    let stage = Stage::new();
    for (study, experiments) in [
        ("felter-2014", 12),
        ("morabito-2015", 11),
        ("agarwal-2015", 8),
        ("cloudspectator-2017", 2),
        ("manco-2017", 3),
        ("young-2019", 8),
        ("agache-2020", 5),
        ("anjali-2020", 6),
        ("gvisor-guide-2019", 7),
        ("li-2022", 3),
    ] {
        for size in ["quick", "standard", "paper"] {
            let text = stage.stdout(&format!("study {study} --size {size} --dry-run --no-void"));
            let commands = text.lines().filter(|line| line.starts_with("  weigh ")).count();
            assert_eq!(commands, experiments, "{study} at {size}: {text}");
            assert!(text.contains("--no-void") && text.contains(&format!("weigh-runs/{study}/")), "{text}");
        }
    }
    let text = stage.stdout("study agarwal-2015/table-3 --dry-run");
    assert!(text.contains("arm jail (FreeBSD jail): not run: ") && !text.contains("--on ssh"), "{text}");
    let text = stage.stdout("study agarwal-2015/table-3 --dry-run --arm jail=ssh:host=192.0.2.7");
    assert!(text.contains("--on ssh:host=192.0.2.7"), "{text}");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

/// Every grade occurs, what cannot run is reported and the rest is measured, and every format shows
/// all of it.
#[test]
fn a_study_of_ones_own_is_measured_and_graded() {
    let stage = Stage::new();
    stage.write("mine.toml", MINE);
    let study = "study --file mine.toml --size quick --blocks 2 --no-void --seed 1 --out s";
    let words = unbroken(&stage.stdout(study));
    assert!(words.contains("4 claims") || words.contains("5 claims"), "{words}");

    let report = shown(&stage, "s");
    let fakes = named(&report, "experiments", "fakes");
    let expected = [
        ("jail-is-equal", "not_run"),
        ("noisy-is-equal", "undecided"),
        ("slow-is-equal", "differs"),
        ("slow-is-slow", "holds"),
    ];
    let expected = BTreeMap::from(expected.map(|(id, grade)| (id.to_string(), grade.to_string())));
    assert_eq!(grades(fakes), expected);
    let cells = &fakes["views"][0]["rows"][0]["cells"];
    assert!(cells[1]["agreement"].to_string().to_lowercase().contains("agrees"), "{}", cells[1]);
    let ms = cells[0]["measured"]["value"].as_f64().unwrap();
    assert!((ms - 10.0).abs() < 0.01, "{}", cells[0]);
    assert!(cells[3]["measured"].is_null(), "{}", cells[3]);
    assert_eq!(fakes["platforms"], serde_json::json!({ "null": "a fake" }));
    let jail = listed(fakes, "arms").iter().find(|arm| arm["id"] == "jail").unwrap();
    assert!(jail["not_run"].as_str().unwrap().contains("--arm jail="), "{jail}");

    // The others do not prevent it from continuing.
    let fails = named(&report, "experiments", "fails");
    assert!(fails.to_string().contains("status 1") || fails.to_string().contains("exit"), "{fails}");
    let unknown = named(&report, "experiments", "unknown");
    assert!(unknown["not_run"].as_str().unwrap().contains("noploop"), "{report}");
    let real = named(&report, "experiments", "real");
    if ready(&stage, "namespaces", "a_study_of_ones_own_is_measured_and_graded") {
        assert_ne!(grades(real)["containers-compute"], "not_run", "{real}");
    }
    assert!(real["views"][0]["rows"][0]["cells"][0]["measured"]["value"].as_f64().is_some(), "{real}");

    let page = stage.read("s/report.html");
    let formats = ["table", "md", "latex", "json", "csv", "junit", "html"];
    let texts = formats.map(|format| stage.stdout(&format!("show s --format {format}")));
    let claims = ["what is slow costs more", "what is slow costs the same", "what is noisy costs the same"];
    for (format, text) in formats.iter().zip(&texts).chain([(&"report.html", &page)]) {
        let text = unbroken(text);
        for (claim, id) in claims.iter().zip(["slow-is-slow", "slow-is-equal", "noisy-is-equal"]) {
            assert!(text.contains(claim) || text.contains(id), "{format} does not name {id}: {text}");
        }
    }
    stage.stdout("show s --format csv --output s.csv");
    assert_eq!(stage.read("s.csv"), texts[4]);
    stage.refuses("show s --gate 5", &["--gate", "DIR/EXPERIMENT"]);

    // A run of an experiment is a run like any other, and a finished study has nothing left to do.
    stage.stdout("show s/fakes");
    let before = trials(&stage.here().join("s/fakes"));
    stage.stdout("resume s");
    assert_eq!(trials(&stage.here().join("s/fakes")), before);
    stage.host_is_as_before();
}

/// The file of a study with these experiments.
fn file_of(experiments: &[String]) -> String {
    let keys = ["name", "title", "authors", "published", "host", "method"];
    keys.map(|key| format!("{key} = \"small\"\n")).concat() + &experiments.concat()
}

/// An experiment that runs a command in environments, the first of which is the baseline.
fn experiment(name: &str, command: &str, arms: &[(&str, &str)]) -> String {
    let arm = |(id, on): &(&str, &str)| format!("{{ id = \"{id}\", label = \"{id}\", on = \"{on}\" }}");
    let (baseline, arms) = (arms[0].0, arms.iter().map(arm).collect::<Vec<_>>().join(", "));
    let arguments = words(command);
    format!(
        r#"
[[experiment]]
name = "{name}"
title = "Waiting"
source = "table"
statistic = "none"
baseline = "{baseline}"
measure = {{ command = "run", arguments = ["--", {}] }}
arm = [{arms}]
quantity = [{{ id = "time", label = "Time", workload = "{command}", metric = "time", unit = "ms", better = "lower" }}]
view = [{{ id = "table", title = "Table", form = "table", quantities = ["time"] }}]
"#,
        arguments.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
    )
}

/// Two experiments of guests that take real time, a different time for each.
fn slow_study(a: &str, b: &str) -> String {
    let waits = |name, command| experiment(name, command, &[("a", a), ("b", b)]);
    file_of(&[waits("first", "sleep 0.03"), waits("second", "sleep 0.031")])
}

/// Checks that every environment is in every block once, and that what was there before is
/// unchanged.
fn is_whole(run: &Path, before: &[Value], blocks: usize) {
    let all = trials(run);
    assert_eq!(&all[..before.len()], before, "what was measured is kept");
    let mut last: BTreeMap<String, (u64, usize)> = BTreeMap::new();
    for trial in &all {
        let attempt = trial["attempt"].as_u64().unwrap();
        let seen = last.entry(trial["block"].to_string()).or_insert((attempt, 0));
        if attempt > seen.0 {
            *seen = (attempt, 0);
        }
        seen.1 += 1;
    }
    assert_eq!(last.len(), blocks);
    assert!(last.values().all(|(_, trials)| *trials == 2), "{last:?}");
}

#[test]
fn a_killed_study_goes_on_and_clean_restores_the_host() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_killed_study_goes_on_and_clean_restores_the_host") {
        return;
    }
    stage.write("slow.toml", slow_study("native", "namespaces"));
    let mut child = stage.spawn("study --file slow.toml --blocks 4 --no-void --out s");
    let (first, second) = (stage.here().join("s/first"), stage.here().join("s/second"));
    wait_until("three trials of the second", || trials(&second).len() >= 3);
    kill(&mut child);
    let (done, before) = (trials(&first), trials(&second));
    stage.run("clean");
    stage.host_is_as_before();
    stage.stdout("resume s");
    assert_eq!(trials(&first), done);
    is_whole(&first, &done, 4);
    is_whole(&second, &before, 4);
    stage.host_is_as_before();
}

/// One experiment of each study, in environments that are ready everywhere: they measure, and every
/// claim has a grade.
#[test]
fn an_experiment_of_every_study_is_measured() {
    let stage = Stage::on_disk();
    if !ready(&stage, "namespaces", "an_experiment_of_every_study_is_measured") {
        return;
    }
    for (name, out, arms) in [
        ("felter-2014/table-1/gups", "f", "--arm docker=namespaces"),
        ("morabito-2015/table-3", "m", "--arm lxc=namespaces --arm docker=namespaces"),
        ("agarwal-2015/fig-3", "a", "--arm lxc=namespaces:storage=volume"),
    ] {
        stage.stdout(&format!("study {name} --size quick --blocks 2 --no-void --seed 1 --out {out} {arms}"));
        let report = shown(&stage, out);
        let one = &report["experiments"][0];
        assert!(one["not_run"].is_null() && one["blocks"] == 2, "{one}");
        let rows = listed(one, "views").iter().flat_map(|view| listed(view, "rows"));
        let cells = rows.flat_map(|row| listed(row, "cells"));
        let measured = cells.filter(|cell| cell["measured"]["value"].as_f64().is_some()).count();
        assert!(measured >= 2, "{name}: {measured} in {one}");
        assert_eq!(grades(one).len(), listed(one, "claims").len());
    }
    stage.host_is_as_before();
}

/// The soak of the fourth study lasts at least two minutes. It is ended early, and shows what it
/// has.
#[test]
fn a_soak_of_a_study_is_shown_before_its_end() {
    let stage = Stage::new();
    let mut child = stage.spawn(
        "study cloudspectator-2017/system --size quick --no-void --out c --arm lxc=native:label=again",
    );
    let run = stage.here().join("c/system");
    wait_until("trials", || trials(&run).len() >= 3 || child.try_wait().unwrap().is_some());
    interrupt(&child);
    child.wait().unwrap();
    let report = shown(&stage, "c");
    let system = named(&report, "experiments", "system");
    assert!(system["command"].as_str().unwrap().starts_with("weigh soak --size quick "), "{system}");
    assert!(report["warnings"].to_string().contains("weigh resume"), "{}", report["warnings"]);
    stage.host_is_as_before();
}

/// Every command that measures is written as it was, sweeps become points, and what cannot be
/// expressed is refused.
#[test]
fn every_kind_of_run_becomes_a_study() {
    let stage = Stage::new();
    let common =
        "--on null:launch-time=5ms;null:launch-time=9ms --baseline null:launch-time=5ms --no-void --blocks 3";
    for (command, words, expected) in [
        ("start", "--guests 1,2", &["command = \"start\"", "\"--guests\", \"1,2\""][..]),
        (
            "density",
            "--guests 1,2 --neighbours same -- sleep 1",
            &["command = \"density\"", "sweep = \"guests\"", "form = \"lines\"", "at = { guests = \"2\" }"],
        ),
        ("density", "--guests 2 --neighbours idle,same -- true", &["neighbours = \"idle\""]),
        ("run", "--cpus 0 --memory 64MiB -- true", &["\"--cpus\", \"0\", \"--memory\", \"64MiB\""]),
        (
            "run",
            "--prepare 'true a' --deadline 9s -- true",
            &["\"--prepare\", \"true a\", \"--deadline\", \"9s\""],
        ),
        ("run", "--reuse --margin 3 -- true", &["\"--reuse\", \"--margin\", \"3\""]),
    ] {
        stage.measured(&format!("{command} {common} {words}"));
        let text = stage.stdout("study new r");
        for part in expected {
            assert!(text.contains(part), "{command} {words}: no `{part}` in {text}");
        }
        stage.write("r.toml", text);
        stage.stdout("study --file r.toml --dry-run");
        std::fs::remove_dir_all(stage.here().join("r")).unwrap();
    }
    stage.stdout("run noploop --param nops=1000,2000 --on native --size quick --no-void --blocks 3 --out n");
    let text = stage.stdout("study new n");
    for part in
        ["\"noploop\", \"--param\", \"nops=1000,2000\"", "sweep = \"nops\"", "x = \"nops\"", "--size quick"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }

    // A user's workload needs its manifest, the recorded one or another. A plan that was edited has
    // no command line, and a plan of an earlier version does not record one.
    let manifest = "name = \"own\"\nsummary = \"x\"\ndescription = \"x\"\ncommand = [\"true\"]\n[check]\nstatement = \"it ends well\"\n[[metric]]\nname = \"time\"\nunit = \"s\"\n\
                    better = \"lower\"\nprimary = true\nduration = true\n";
    stage.write("own.toml", manifest);
    stage.stdout("run own --workload own.toml --on native --no-void --blocks 3 --out o");
    let text = stage.stdout("study new o");
    assert!(text.contains("arguments = [\"own\", \"--workload\", \"own.toml\"]"), "{text}");
    std::fs::rename(stage.here().join("own.toml"), stage.here().join("moved.toml")).unwrap();
    stage.refuses("study new o", &["own.toml", "--workload FILE"]);
    let text = stage.stdout("study new o --workload moved.toml");
    assert!(text.contains("arguments = [\"own\", \"--workload\", \"moved.toml\"]"), "{text}");
    let whole = stage.read("n/plan.json");
    let mut edited: Value = serde_json::from_str(&whole).unwrap();
    edited["workloads"].as_array_mut().unwrap()[1]["iterations"] = 77.into();
    stage.write("n/plan.json", edited.to_string());
    stage.refuses("study new n", &["no command line repeats", "--iterations", "--plan"]);
    let mut earlier: Value = serde_json::from_str(&whole).unwrap();
    earlier.as_object_mut().unwrap().remove("command").unwrap();
    earlier["format"] = 7.into();
    stage.write("n/plan.json", earlier.to_string());
    stage.refuses("study new n", &["does not record the command", "type the command again"]);
    stage.host_is_as_before();
}
