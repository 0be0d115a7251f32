//! `weigh study` through the binary: what can be asked for, measured, interrupted, shown again, and
//! made of a run.

use crate::support::{Stage, ready};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

/// Two experiments of fakes, one whose command always fails, one of a workload that there is not,
/// and one of real guests. Claims of every grade by construction: `a` takes 10 ms, `slow` 11 ms,
/// `noisy` anything.
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
[experiment.measure]
command = "run"
arguments = ["--", "true"]
[[experiment.arm]]
id = "a"
label = "A"
on = "null"
[[experiment.arm]]
id = "slow"
label = "Slow"
on = "null:effect=0.1,label=slow"
[[experiment.arm]]
id = "noisy"
label = "Noisy"
on = "null:sd=0.5,label=noisy"
[[experiment.arm]]
id = "jail"
label = "Jail"
reach = "ssh"
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
[[experiment.view]]
id = "table-1"
title = "Table 1"
form = "table"
quantities = ["time"]

[[experiment]]
name = "fails"
title = "What always fails"
source = "table 2"
statistic = "one value"
baseline = "a"
[experiment.measure]
command = "run"
arguments = ["--", "false"]
[[experiment.arm]]
id = "a"
label = "A"
on = "null:fault=exit,every=1"
[[experiment.quantity]]
id = "time"
label = "Time (ms)"
workload = "false"
metric = "time"
unit = "ms"
better = "lower"
[[experiment.view]]
id = "table-2"
title = "Table 2"
form = "table"
quantities = ["time"]

[[experiment]]
name = "unknown"
title = "A workload that is not there"
source = "table 3"
statistic = "one value"
baseline = "a"
[experiment.measure]
command = "run"
arguments = ["nooploop"]
[[experiment.arm]]
id = "a"
label = "A"
on = "null"
[[experiment.quantity]]
id = "time"
label = "Time (ms)"
workload = "nooploop"
metric = "time"
unit = "ms"
better = "lower"
[[experiment.view]]
id = "table-3"
title = "Table 3"
form = "table"
quantities = ["time"]

[[experiment]]
name = "real"
title = "A loop of NOPs"
source = "table 4"
statistic = "one value"
baseline = "native"
[experiment.measure]
command = "run"
arguments = ["noploop"]
[[experiment.arm]]
id = "native"
label = "Native"
on = "native"
[[experiment.arm]]
id = "container"
label = "Container"
on = "namespaces"
[[experiment.quantity]]
id = "noploop"
label = "Loop (ms)"
workload = "noploop"
metric = "duration"
unit = "ms"
better = "lower"
[[experiment.claim]]
id = "containers-compute"
says = "a container does not take ten times as long"
source = "section 5"
check = "container overhead of noploop <= 900 %"
[[experiment.view]]
id = "table-4"
title = "Table 4"
form = "table"
quantities = ["noploop"]
"#;

fn weigh(stage: &Stage, arguments: &[&str]) -> Output {
    stage.weigh().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output of a command that ends well.
fn said(stage: &Stage, arguments: &[&str]) -> String {
    let output = weigh(stage, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(stage: &Stage, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(stage, arguments)).unwrap()
}

fn write(stage: &Stage, name: &str, text: &str) {
    std::fs::write(stage.here().join(name), text).unwrap();
}

/// Fails unless the command is refused as bad input in these words.
fn refused(stage: &Stage, arguments: &[&str], words: &[&str]) {
    let output = weigh(stage, arguments);
    let message = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?} does not say `{word}`: {message}");
    }
}

fn experiment<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut all = report["experiments"].as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// What became of each claim of an experiment, in one word.
fn grades(experiment: &Value) -> BTreeMap<String, String> {
    let word = |grade: &Value| {
        let text = grade.to_string().to_lowercase();
        let words = ["not_run", "undecided", "holds", "differs"];
        words.into_iter().find(|word| text.contains(word)).unwrap_or_else(|| panic!("{grade}")).to_string()
    };
    let claims = experiment["claims"].as_array().unwrap().iter();
    claims.map(|claim| (claim["id"].as_str().unwrap().into(), word(&claim["grade"]))).collect()
}

fn trials(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("samples.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let records = whole.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["record"] == "trial").collect()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(child: &std::process::Child) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
}

/// Every experiment of every study says what of it runs here, and why the rest does not.
#[test]
fn the_list_says_of_everything_what_runs_here() {
    let stage = Stage::new();
    let studies = json(&stage, &["list", "studies", "--json"]);
    let names: Vec<&str> =
        studies.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["felter-2014", "morabito-2015", "agarwal-2015", "cloudspectator-2017"]);
    let experiments: usize =
        studies.as_array().unwrap().iter().map(|one| one["details"].as_array().unwrap().len()).sum();
    // A study of the user's is listed with the others and not measured.
    write(&stage, "mine.toml", MINE);
    let listed = json(&stage, &["study", "--file", "mine.toml", "--json"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), experiments + 4, "{listed:?}");
    for one in listed {
        let (runs, without) = (one["runs"].as_array().unwrap(), one["without"].as_object().unwrap());
        assert!(!runs.is_empty() || !without.is_empty(), "{one}");
        for (arm, reason) in without {
            assert!(reason.as_str().is_some_and(|reason| reason.len() > 10), "{arm} of {one}");
            assert!(!runs.iter().any(|run| run == arm), "{arm} of {one}");
        }
        let study = one["name"].as_str().unwrap().split('/').next().unwrap();
        assert!(names.contains(&study) || study == "mine", "{one}");
    }
    let mine = listed.iter().find(|one| one["name"] == "mine/fakes").unwrap();
    assert_eq!(mine["runs"], serde_json::json!(["a", "slow", "noisy"]));
    assert!(mine["without"]["jail"].as_str().unwrap().contains("--arm jail=ssh:host="), "{mine}");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

#[test]
fn what_is_wrong_is_pointed_at() {
    let stage = Stage::with_fakes();
    write(&stage, "mine.toml", MINE);
    write(&stage, "fault.toml", &MINE.replacen("better = \"lower\"", "beter = \"lower\"", 1));
    write(&stage, "check.toml", &MINE.replacen("slow time within", "slwo time within", 1));
    write(&stage, "torn.toml", "name = \"mine\ntitle");
    let line = |text: &str| MINE.lines().position(|line| line.contains(text)).unwrap() + 1;
    refused(&stage, &["study", "felter-2041"], &["felter-2041", "did you mean `felter-2014"]);
    refused(&stage, &["study", "felter-2014/tabel-1"], &["tabel-1", "did you mean `felter-2014/table-1"]);
    refused(&stage, &["study", "zzzzzz"], &["zzzzzz", "weigh list studies"]);
    refused(&stage, &["study", "felter-2014", "agarwal-2015"], &["two studies"]);
    let gups = "felter-2014/table-1/gups";
    refused(&stage, &["study", gups, "--arm", "docker"], &["ARM=ENV"]);
    refused(&stage, &["study", gups, "--arm", "dokcer=runc"], &["dokcer", "did you mean `docker`?"]);
    refused(&stage, &["study", gups, "--arm", "docker=dokcer:net"], &["--arm", "net"]);
    refused(&stage, &["study", gups, "--on", "docker:net"], &["--on", "net"]);
    refused(&stage, &["study", "--file", "none.toml"], &["none.toml", "cannot read the study"]);
    refused(&stage, &["study", "--file", "torn.toml"], &["torn.toml:2:"]);
    let beter = format!("fault.toml:{}:", line("better = \"lower\""));
    refused(&stage, &["study", "--file", "fault.toml"], &[&beter, "beter", "better"]);
    let slwo = format!("check.toml:{}:", line("slow time within"));
    refused(&stage, &["study", "--file", "check.toml"], &[&slwo, "slwo", "did you mean `slow`?"]);
    refused(&stage, &["study", "mine/fakse", "--file", "mine.toml"], &["did you mean `mine/fakes`?"]);
    std::fs::create_dir(stage.here().join("full")).unwrap();
    write(&stage, "full/file", "");
    refused(&stage, &["study", "mine", "--file", "mine.toml", "--out", "full"], &["not empty", "--out"]);
    assert!(!stage.here().join("weigh-runs").exists(), "what is refused leaves no directory");
    stage.host_is_as_before();
}

/// The commands of all four studies, at every size, without touching anything.
#[test]
fn a_dry_run_prints_the_command_of_every_experiment() {
    let stage = Stage::new();
    for (study, experiments) in
        [("felter-2014", 12), ("morabito-2015", 11), ("agarwal-2015", 8), ("cloudspectator-2017", 2)]
    {
        for size in ["quick", "standard", "paper"] {
            let text = said(&stage, &["study", study, "--size", size, "--dry-run", "--no-void"]);
            let commands = text.lines().filter(|line| line.starts_with("  weigh ")).count();
            assert_eq!(commands, experiments, "{study} at {size}: {text}");
            assert!(text.contains("--no-void") && text.contains(&format!("weigh-runs/{study}/")), "{text}");
        }
    }
    let text = said(&stage, &["study", "agarwal-2015/table-3", "--dry-run"]);
    assert!(text.contains("arm jail (FreeBSD jail): not run: ") && !text.contains("--on ssh"), "{text}");
    let text =
        said(&stage, &["study", "agarwal-2015/table-3", "--dry-run", "--arm", "jail=ssh:host=192.0.2.7"]);
    assert!(text.contains("--on ssh:host=192.0.2.7"), "{text}");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

/// Every grade occurs, what cannot run is said and the rest is measured, and every format tells all
/// of it.
#[test]
fn a_study_of_ones_own_is_measured_and_graded() {
    let stage = Stage::new();
    write(&stage, "mine.toml", MINE);
    let arguments = ["study", "--file", "mine.toml", "--size", "quick", "--blocks", "2", "--no-void"];
    let table = said(&stage, &[&arguments[..], &["--seed", "1", "--out", "s"]].concat());
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("4 claims") || words.contains("5 claims"), "{words}");

    let report = json(&stage, &["show", "s", "--format", "json"]);
    let fakes = experiment(&report, "fakes");
    let expected = [
        ("jail-is-equal", "not_run"),
        ("noisy-is-equal", "undecided"),
        ("slow-is-equal", "differs"),
        ("slow-is-slow", "holds"),
    ];
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(id, grade)| (id.to_string(), grade.to_string())).collect();
    assert_eq!(grades(fakes), expected);
    let cells = &fakes["views"][0]["rows"][0]["cells"];
    assert!(cells[1]["agreement"].to_string().to_lowercase().contains("agrees"), "{}", cells[1]);
    assert!(
        cells[0]["measured"]["value"].as_f64().is_some_and(|ms| (ms - 10.0).abs() < 1e-6),
        "{}",
        cells[0]
    );
    assert!(cells[3]["measured"].is_null(), "{}", cells[3]);
    let jail = fakes["arms"].as_array().unwrap().iter().find(|arm| arm["id"] == "jail").unwrap();
    assert!(jail["not_run"].as_str().unwrap().contains("--arm jail="), "{jail}");

    // The others do not keep it from going on.
    let fails = experiment(&report, "fails");
    assert!(fails.to_string().contains("status 1") || fails.to_string().contains("exit"), "{fails}");
    assert!(experiment(&report, "unknown")["not_run"].as_str().unwrap().contains("noploop"), "{report}");
    let real = experiment(&report, "real");
    if ready(&stage, "namespaces", "a_study_of_ones_own_is_measured_and_graded") {
        assert_ne!(grades(real)["containers-compute"], "not_run", "{real}");
    }
    assert!(real["views"][0]["rows"][0]["cells"][0]["measured"]["value"].as_f64().is_some(), "{real}");

    let page = std::fs::read_to_string(stage.here().join("s/report.html")).unwrap();
    let formats = ["table", "md", "latex", "json", "csv", "junit", "html"];
    let texts = formats.map(|format| said(&stage, &["show", "s", "--format", format]));
    let claims = ["what is slow costs more", "what is slow costs the same", "what is noisy costs the same"];
    for (format, text) in formats.iter().zip(&texts).chain([(&"report.html", &page)]) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (claim, id) in claims.iter().zip(["slow-is-slow", "slow-is-equal", "noisy-is-equal"]) {
            assert!(text.contains(claim) || text.contains(id), "{format} does not name {id}: {text}");
        }
    }
    said(&stage, &["show", "s", "--format", "csv", "--output", "s.csv"]);
    assert_eq!(std::fs::read_to_string(stage.here().join("s.csv")).unwrap(), texts[4]);
    refused(&stage, &["show", "s", "--gate", "5"], &["--gate", "DIR/EXPERIMENT"]);

    // A run of an experiment is a run as any other, and a finished study has nothing left.
    said(&stage, &["show", "s/fakes"]);
    let before = trials(&stage.here().join("s/fakes"));
    said(&stage, &["resume", "s"]);
    assert_eq!(trials(&stage.here().join("s/fakes")), before);
    stage.host_is_as_before();
}

/// Two experiments of guests that take their time, each a time of its own.
fn slow_study(on: [&str; 2]) -> String {
    let experiment = |name: &str, seconds: &str| {
        format!(
            "[[experiment]]\nname = \"{name}\"\ntitle = \"Waiting\"\nsource = \"table\"\nstatistic = \"none\"\nbaseline = \"a\"\n\
             measure = {{ command = \"run\", arguments = [\"--\", \"sleep\", \"{seconds}\"] }}\n\
             [[experiment.arm]]\nid = \"a\"\nlabel = \"A\"\non = \"{}\"\n\
             [[experiment.arm]]\nid = \"b\"\nlabel = \"B\"\non = \"{}\"\n\
             [[experiment.quantity]]\nid = \"time\"\nlabel = \"Time\"\nworkload = \"sleep {seconds}\"\nmetric = \"time\"\nunit = \"ms\"\nbetter = \"lower\"\n\
             [[experiment.view]]\nid = \"table\"\ntitle = \"Table\"\nform = \"table\"\nquantities = [\"time\"]\n",
            on[0], on[1]
        )
    };
    let head =
        "name = \"slow\"\ntitle = \"t\"\nauthors = \"a\"\npublished = \"p\"\nhost = \"h\"\nmethod = \"m\"\n";
    format!("{head}{}{}", experiment("first", "0.03"), experiment("second", "0.031"))
}

/// Every environment once in every block, and nothing that was there before is gone or another.
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
fn an_interrupted_study_goes_on() {
    let stage = Stage::with_fakes();
    write(&stage, "slow.toml", &slow_study(["null:real=yes,time=20ms", "null:real=yes,time=20ms,label=b"]));
    let arguments = ["study", "--file", "slow.toml", "--blocks", "12", "--no-void", "--out", "s"];
    let mut child = stage.spawn(&arguments);
    let (first, second) = (stage.here().join("s/first"), stage.here().join("s/second"));
    wait_until("five trials", || trials(&first).len() >= 5);
    interrupt(&child);
    child.wait().unwrap();
    let before = trials(&first);
    assert!(before.len() < 24 && !second.exists(), "{}", before.len());
    stage.host_is_as_before();
    let shown = said(&stage, &["show", "s"]);
    assert!(shown.contains("weigh resume s") && shown.contains("not measured yet"), "{shown}");
    refused(&stage, &["resume", "s", "--live"], &["--live"]);
    said(&stage, &["resume", "s"]);
    is_whole(&first, &before, 12);
    is_whole(&second, &[], 12);
    let report = json(&stage, &["show", "s", "--format", "json"]);
    assert!(!report["warnings"].to_string().contains("resume"), "{}", report["warnings"]);
    stage.host_is_as_before();
}

#[test]
fn a_killed_study_goes_on_and_clean_restores_the_host() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_killed_study_goes_on_and_clean_restores_the_host") {
        return;
    }
    write(&stage, "slow.toml", &slow_study(["native", "namespaces"]));
    let mut child =
        stage.spawn(&["study", "--file", "slow.toml", "--blocks", "4", "--no-void", "--out", "s"]);
    let (first, second) = (stage.here().join("s/first"), stage.here().join("s/second"));
    let mut kill_at = |run: &Path, count| {
        wait_until("trials", || trials(run).len() >= count);
        child.kill().unwrap();
        child.wait().unwrap();
    };
    kill_at(&second, 3);
    let (done, before) = (trials(&first), trials(&second));
    weigh(&stage, &["clean"]);
    stage.host_is_as_before();
    said(&stage, &["resume", "s"]);
    assert_eq!(trials(&first), done);
    is_whole(&first, &done, 4);
    is_whole(&second, &before, 4);
    stage.host_is_as_before();
}

#[test]
fn a_damaged_directory_is_refused() {
    let stage = Stage::with_fakes();
    copy(&recorded(), &stage.here().join("s"));
    let recorded = std::fs::read_to_string(recorded().join("study.json")).unwrap();
    for (text, words) in [
        (recorded[..recorded.len() / 2].to_string(), &["study.json", "is damaged", "DIR/EXPERIMENT"][..]),
        (recorded.replacen("\"format\": 1", "\"format\": 99", 1), &["format 99", "version"]),
        (recorded.replacen("better = ", "beter = ", 1), &["study.json", "beter"]),
        (recorded.replacen("\"name\": \"speed\"", "\"name\": \"sped\"", 1), &["no experiment `sped`"]),
    ] {
        assert_ne!(text, recorded);
        write(&stage, "s/study.json", &text);
        for command in [&["show", "s"][..], &["resume", "s"]] {
            refused(&stage, command, words);
        }
    }
    stage.host_is_as_before();
}

/// One experiment of each study, in what is ready everywhere: they measure, and every claim has a
/// grade.
#[test]
fn an_experiment_of_every_study_is_measured() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "an_experiment_of_every_study_is_measured") {
        return;
    }
    let common = ["--size", "quick", "--blocks", "2", "--no-void", "--seed", "1", "--out"];
    for (name, out, arms) in [
        ("felter-2014/table-1/gups", "f", &["docker=namespaces"][..]),
        ("morabito-2015/table-3", "m", &["lxc=namespaces", "docker=namespaces"]),
        ("agarwal-2015/fig-3", "a", &["lxc=namespaces:storage=volume"]),
    ] {
        let mut arguments = vec!["study", name];
        arguments.extend(common);
        arguments.push(out);
        arguments.extend(arms.iter().flat_map(|arm| ["--arm", arm]));
        said(&stage, &arguments);
        let report = json(&stage, &["show", out, "--format", "json"]);
        let one = &report["experiments"][0];
        assert!(one["not_run"].is_null() && one["blocks"] == 2, "{one}");
        let cells = one["views"].as_array().unwrap().iter().flat_map(|view| view["rows"].as_array().unwrap());
        let cells = cells.flat_map(|row| row["cells"].as_array().unwrap());
        let measured = cells.filter(|cell| cell["measured"]["value"].as_f64().is_some()).count();
        assert!(measured >= 2, "{name}: {measured} in {one}");
        assert_eq!(grades(one).len(), one["claims"].as_array().unwrap().len());
    }
    stage.host_is_as_before();
}

/// The soak of the fourth study lasts two minutes at least: it is ended early, and shows what it
/// has by then.
#[test]
fn a_soak_of_a_study_is_shown_before_its_end() {
    let stage = Stage::new();
    let arguments = ["study", "cloudspectator-2017/system", "--size", "quick", "--no-void", "--out", "c"];
    let mut child = stage.spawn(&[&arguments[..], &["--arm", "lxc=native:label=again"]].concat());
    let run = stage.here().join("c/system");
    wait_until("trials", || trials(&run).len() >= 3 || child.try_wait().unwrap().is_some());
    interrupt(&child);
    child.wait().unwrap();
    let report = json(&stage, &["show", "c", "--format", "json"]);
    let system = experiment(&report, "system");
    assert!(system["command"].as_str().unwrap().starts_with("weigh soak --size quick "), "{system}");
    assert!(report["warnings"].to_string().contains("weigh resume"), "{}", report["warnings"]);
    stage.host_is_as_before();
}

/// A run becomes a file, the file is measured again, and the numbers of both agree.
#[test]
fn a_run_becomes_a_study_that_repeats_it() {
    let stage = Stage::with_fakes();
    let on = "null:sd=0.001;null:sd=0.001,seed=2,label=same;null:sd=0.001,seed=3,effect=0.1,label=slow";
    let run =
        ["run", "--on", on, "--baseline", "null:sd=0.001", "--no-void", "--blocks", "30", "--seed", "7"];
    let command = ["--warmup", "2", "--iterations", "4", "--allow-unequal", "cpus", "--", "sleep", "0.5"];
    said(&stage, &[&run[..], &["--out", "r"], &command[..]].concat());
    said(&stage, &["study", "new", "r", "--output", "mine.toml", "--name", "mine", "--authors", "we"]);
    let text = std::fs::read_to_string(stage.here().join("mine.toml")).unwrap();
    for line in [
        "#   weigh study --file mine.toml --blocks 30 --no-void",
        "arguments = [\"--warmup\", \"2\", \"--iterations\", \"4\", \"--allow-unequal\", \"cpus\", \"--\", \"sleep\", \"0.5\"]",
        "baseline = \"null-sd-0-001\"",
        "check = \"null-same time within 2 % of null-sd-0-001\"",
        "check = \"null-slow overhead of time >= 5 %\"",
        "unit = \"ms\"",
        "n = 30",
    ] {
        assert!(text.lines().any(|own| own == line), "no `{line}` in {text}");
    }
    let shown = crate::support::shown(&stage, "r");
    let slow = shown["cells"].as_array().unwrap().iter();
    let mut slow =
        slow.filter(|cell| cell["metric"] == "time" && cell["environment"].to_string().contains("slow"));
    let mean = slow.next().unwrap()["mean"].as_f64().unwrap();
    assert!(text.contains(&format!("null-slow = [{:.3}", mean * 1e3)), "{mean} in {text}");

    let plan = said(&stage, &["study", "--file", "mine.toml", "--dry-run"]);
    assert!(plan.contains("weigh run --size standard") && plan.contains("-- sleep 0.5"), "{plan}");
    said(
        &stage,
        &["study", "--file", "mine.toml", "--blocks", "30", "--no-void", "--seed", "8", "--out", "s"],
    );
    let report = json(&stage, &["show", "s", "--format", "json"]);
    let one = experiment(&report, "comparison");
    let grades = grades(one);
    assert_eq!(grades.len(), 2);
    assert!(grades.values().all(|grade| grade == "holds"), "{grades:?}");
    let cells = one["views"][0]["rows"][0]["cells"].as_array().unwrap();
    for cell in &cells[1..] {
        assert!(cell["agreement"].to_string().to_lowercase().contains("agrees"), "{cell}");
    }
    // Again of the study's directory, whose experiments keep their names.
    let again = said(&stage, &["study", "new", "s"]);
    assert!(again.contains("name = \"comparison\"") && again.contains("\"--iterations\", \"4\""), "{again}");
    refused(
        &stage,
        &["study", "new", "r", "--output", "mine.toml"],
        &["mine.toml exists already", "--output"],
    );
    refused(&stage, &["study", "new", "r", "--name", "My Study"], &["My Study", "my-study"]);
    refused(&stage, &["study", "new", "nothing-here"], &["nothing-here"]);
    stage.host_is_as_before();
}

/// Every command that measures is written as it was, sweeps as points, and what cannot be said is
/// refused.
#[test]
fn every_kind_of_run_becomes_a_study() {
    let stage = Stage::new();
    let on = ["--on", "null:launch-time=5ms;null:launch-time=9ms", "--baseline", "null:launch-time=5ms"];
    let effort = ["--no-void", "--blocks", "3"];
    for (words, expected) in [
        (&["start", "--guests", "1,2"][..], &["command = \"start\"", "\"--guests\", \"1,2\""][..]),
        (
            &["density", "--guests", "1,2", "--neighbours", "same", "--", "sleep", "1"],
            &["command = \"density\"", "sweep = \"guests\"", "form = \"lines\"", "at = { guests = \"2\" }"],
        ),
        (
            &["density", "--guests", "2", "--neighbours", "idle,same", "--", "true"],
            &["neighbours = \"idle\""],
        ),
        (
            &["run", "--cpus", "0", "--memory", "64MiB", "--", "true"],
            &["\"--cpus\", \"0\", \"--memory\", \"64MiB\""],
        ),
        (
            &["run", "--prepare", "true a", "--deadline", "9s", "--", "true"],
            &["\"--prepare\", \"true a\", \"--deadline\", \"9s\""],
        ),
        (&["run", "--reuse", "--margin", "3", "--", "true"], &["\"--reuse\", \"--margin\", \"3\""]),
    ] {
        let out = stage.here().join("r");
        said(&stage, &[&words[..1], &on, &effort, &["--out", "r"], &words[1..]].concat());
        let text = said(&stage, &["study", "new", "r"]);
        for part in expected {
            assert!(text.contains(part), "{words:?}: no `{part}` in {text}");
        }
        write(&stage, "r.toml", &text);
        said(&stage, &["study", "--file", "r.toml", "--dry-run"]);
        std::fs::remove_dir_all(out).unwrap();
    }
    let noploop = ["run", "noploop", "--param", "nops=1000,2000", "--on", "native", "--size", "quick"];
    said(&stage, &[&noploop[..], &effort, &["--out", "n"]].concat());
    let text = said(&stage, &["study", "new", "n"]);
    for part in
        ["\"noploop\", \"--param\", \"nops=1000,2000\"", "sweep = \"nops\"", "x = \"nops\"", "--size quick"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }

    // A workload of the user's needs its manifest, the recorded one or another. A plan that was edited
    // has no command line, and a plan of an earlier version does not record one.
    let manifest = "name = \"own\"\nsummary = \"x\"\ndescription = \"x\"\ncommand = [\"true\"]\n[check]\nstatement = \"it ends well\"\n[[metric]]\nname = \"time\"\nunit = \"s\"\n\
                    better = \"lower\"\nprimary = true\nduration = true\n";
    write(&stage, "own.toml", manifest);
    let own = ["run", "own", "--workload", "own.toml", "--on", "native"];
    said(&stage, &[&own[..], &effort, &["--out", "o"]].concat());
    let text = said(&stage, &["study", "new", "o"]);
    assert!(text.contains("arguments = [\"own\", \"--workload\", \"own.toml\"]"), "{text}");
    std::fs::rename(stage.here().join("own.toml"), stage.here().join("moved.toml")).unwrap();
    refused(&stage, &["study", "new", "o"], &["own.toml", "--workload FILE"]);
    let text = said(&stage, &["study", "new", "o", "--workload", "moved.toml"]);
    assert!(text.contains("arguments = [\"own\", \"--workload\", \"moved.toml\"]"), "{text}");
    let plan = stage.here().join("n/plan.json");
    let whole = std::fs::read_to_string(&plan).unwrap();
    let mut edited: Value = serde_json::from_str(&whole).unwrap();
    edited["workloads"].as_array_mut().unwrap()[1]["iterations"] = 77.into();
    std::fs::write(&plan, edited.to_string()).unwrap();
    refused(&stage, &["study", "new", "n"], &["no command line repeats", "--iterations", "--plan"]);
    let mut earlier: Value = serde_json::from_str(&whole).unwrap();
    earlier.as_object_mut().unwrap().remove("command").unwrap();
    earlier["format"] = 7.into();
    std::fs::write(&plan, earlier.to_string()).unwrap();
    refused(&stage, &["study", "new", "n"], &["does not record the command", "type the command again"]);
    stage.host_is_as_before();
}

/// The recorded study.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/study-format-1")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A figure and a table of one measurement, with other words for its columns.
#[test]
fn experiments_with_one_command_share_a_run() {
    let experiment = |name: &str, arm: &str| {
        format!(
            "[[experiment]]\nname = \"{name}\"\ntitle = \"T\"\nsource = \"table 1\"\nstatistic = \"mean\"\nbaseline = \"{arm}\"\n\
             [experiment.measure]\ncommand = \"run\"\narguments = [\"--\", \"true\"]\n\
             [[experiment.arm]]\nid = \"{arm}\"\nlabel = \"A\"\non = \"null\"\n\
             [[experiment.quantity]]\nid = \"time\"\nlabel = \"Time (ms)\"\nworkload = \"true\"\nmetric = \"time\"\nunit = \"ms\"\n\
             better = \"lower\"\n[[experiment.view]]\nid = \"v\"\ntitle = \"V\"\nform = \"table\"\nquantities = [\"time\"]\n"
        )
    };
    let head = "name = \"twice\"\ntitle = \"T\"\nauthors = \"we\"\npublished = \"note\"\nhost = \"h\"\nmethod = \"m\"\n";
    let stage = Stage::with_fakes();
    write(&stage, "twice.toml", &[head, &experiment("fig-1", "a"), &experiment("table-1", "b")].concat());
    said(&stage, &["study", "--file", "twice.toml", "--size", "quick", "--no-void", "--out", "s"]);
    let report = json(&stage, &["show", "s", "--format", "json"]);
    for at in 0..2 {
        let one = &report["experiments"][at];
        assert_eq!(one["run"], "fig-1", "{one}");
        assert!(one["views"][0]["rows"][0]["cells"][0]["measured"]["value"].is_number(), "{one}");
    }
    assert!(!stage.here().join("s/table-1").exists());
    stage.host_is_as_before();
}

/// A study that was measured once is drawn the same for ever, or the change is looked at.
#[test]
fn a_recorded_study_is_redrawn() {
    let stage = Stage::with_fakes();
    copy(&recorded(), &stage.here().join("recorded"));
    for format in ["table", "md", "latex"] {
        let text = said(&stage, &["show", "recorded", "--format", format]);
        insta::assert_snapshot!(format!("recorded-{format}"), text);
    }
    stage.host_is_as_before();
}
