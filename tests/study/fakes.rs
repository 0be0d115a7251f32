//! Studies of fakes, whose runs change nothing on the host: these tests run beside others.

use super::{MINE, experiment, file_of, grades, is_whole, shown, slow_study};
use crate::support::{
    Stage, claim_rows, copy, faults_of_claims, interrupt, listed, named, trials, unbroken, wait_until,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weigh_host::lock::HostLock;
use weigh_host::state::StateDirectory;

/// The recorded study.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/study-format-1")
}

/// The list measures nothing: it does without the host while a run has it.
#[test]
fn studies_are_listed_while_another_run_has_the_host() {
    let stage = Stage::with_fakes();
    stage.write("mine.toml", MINE);
    let lock = HostLock::acquire(&StateDirectory::at(stage.state()), "a run").unwrap();
    let untried = "no platform was tried, so what runs here is not known: another run is going on";
    let said = stage.run("study --file mine.toml --json").ends_saying(0, &[untried, "a run"]);
    let all: Value = serde_json::from_str(&said.stdout).unwrap();
    let mine = all.as_array().unwrap().iter().find(|one| one["name"] == "mine/fakes").unwrap();
    assert_eq!((&mine["runs"], listed(mine, "unknown").len()), (&serde_json::json!([]), 3), "{mine}");
    assert!(mine["without"]["jail"].as_str().unwrap().contains("--arm jail=ssh:host="), "{mine}");
    assert!(stage.stdout("study").contains("    not known: native, "));
    drop(lock);
    stage.host_is_as_before();
}

#[test]
fn errors_in_a_study_are_located() {
    let stage = Stage::with_fakes();
    stage.write("mine.toml", MINE);
    stage.write("fault.toml", MINE.replacen("better = \"lower\"", "beter = \"lower\"", 1));
    stage.write("check.toml", MINE.replacen("slow time within", "slwo time within", 1));
    stage.write("torn.toml", "name = \"mine\ntitle");
    std::fs::create_dir(stage.here().join("full")).unwrap();
    stage.write("full/file", "");
    let line = |text: &str| MINE.lines().position(|line| line.contains(text)).unwrap() + 1;
    let beter = format!("fault.toml:{}:", line("better = \"lower\""));
    let slwo = format!("check.toml:{}:", line("slow time within"));
    for (words, expected) in [
        ("felter-2041", &["felter-2041", "did you mean `felter-2014"][..]),
        ("felter-2014/tabel-1", &["tabel-1", "did you mean `felter-2014/table-1"]),
        ("zzzzzz", &["zzzzzz", "weigh list studies"]),
        ("felter-2014 agarwal-2015", &["two studies"]),
        ("felter-2014/table-1/gups --arm docker", &["ARM=ENV"]),
        ("felter-2014/table-1/gups --arm dokcer=runc", &["dokcer", "did you mean `docker`?"]),
        ("felter-2014/table-1/gups --arm docker=dokcer:net", &["--arm", "net"]),
        ("felter-2014/table-1/gups --on docker:net", &["--on", "net"]),
        ("--file none.toml", &["none.toml", "cannot read the study"]),
        ("--file torn.toml", &["torn.toml:2:"]),
        ("--file fault.toml", &[&beter, "beter", "better"]),
        ("--file check.toml", &[&slwo, "slwo", "did you mean `slow`?"]),
        ("mine/fakse --file mine.toml", &["did you mean `mine/fakes`?"]),
        ("mine --file mine.toml --out full", &["not empty", "--out"]),
    ] {
        stage.refuses(&format!("study {words}"), expected);
    }
    assert!(!stage.here().join("weigh-runs").exists(), "what is refused leaves no directory");
    stage.host_is_as_before();
}

#[test]
fn an_interrupted_study_goes_on() {
    let stage = Stage::with_fakes();
    stage.write("slow.toml", slow_study("null:real=yes,time=20ms", "null:real=yes,time=20ms,label=b"));
    let mut child = stage.spawn("study --file slow.toml --blocks 12 --no-void --out s");
    let (first, second) = (stage.here().join("s/first"), stage.here().join("s/second"));
    wait_until("five trials", || trials(&first).len() >= 5);
    interrupt(&child);
    child.wait().unwrap();
    let before = trials(&first);
    assert!(before.len() < 24 && !second.exists(), "{}", before.len());
    stage.host_is_as_before();
    stage.run("show s").ends_with(0).says(&["weigh resume s", "not measured yet"]);
    stage.refuses("resume s --live", &["--live"]);
    stage.stdout("resume s");
    is_whole(&first, &before, 12);
    is_whole(&second, &[], 12);
    let report = shown(&stage, "s");
    assert!(!report["warnings"].to_string().contains("resume"), "{}", report["warnings"]);
    stage.host_is_as_before();
}

#[test]
fn a_change_that_cannot_be_undone_ends_no_study() {
    let stage = Stage::with_fakes();
    stage.write("slow.toml", slow_study("null:time=20ms", "null:time=20ms,undo=fail"));
    let said = stage.run("study --file slow.toml --blocks 3 --no-void --out s");
    let said = said.ends_saying(1, &["could not undo", "`weigh clean`"]);
    assert!(!said.stdout.is_empty(), "the result is shown");
    for name in ["s/first", "s/second"] {
        is_whole(&stage.here().join(name), &[], 3);
        assert!(stage.read(&format!("{name}/report.html")).contains("</html>"));
    }
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
        stage.write("s/study.json", text);
        for command in ["show s", "resume s", "study --claims s"] {
            stage.refuses(command, words);
        }
    }
    stage.host_is_as_before();
}

/// A run becomes a file, the file is measured again, and the numbers of both agree.
#[test]
fn a_run_becomes_a_study_that_repeats_it() {
    let stage = Stage::with_fakes();
    let on = "null:sd=0.001;null:sd=0.001,seed=2,label=same;null:sd=0.001,seed=3,effect=0.1,label=slow";
    let run = stage.measured(&format!(
        "run --on {on} --baseline null:sd=0.001 --no-void --blocks 30 --seed 7 --warmup 2 --iterations 4 \
         --allow-unequal cpus -- sleep 0.5"
    ));
    stage.stdout("study new r --output mine.toml --name mine --authors we");
    let text = stage.read("mine.toml");
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
    let mut slow = listed(&run, "cells")
        .iter()
        .filter(|cell| cell["metric"] == "time" && cell["environment"].to_string().contains("slow"));
    let mean = slow.next().unwrap()["mean"].as_f64().unwrap();
    // Truncated, not rounded: more digits follow.
    let digits = (mean * 1e6).floor() / 1e3;
    assert!(text.contains(&format!("null-slow = [{digits}")), "{mean} in {text}");

    let plan = stage.stdout("study --file mine.toml --dry-run");
    assert!(plan.contains("weigh run --size standard") && plan.contains("-- sleep 0.5"), "{plan}");
    stage.stdout("study --file mine.toml --blocks 30 --no-void --seed 8 --out s");
    let report = shown(&stage, "s");
    let one = named(&report, "experiments", "comparison");
    let grades = grades(one);
    assert_eq!(grades.len(), 2);
    assert!(grades.values().all(|grade| grade == "holds"), "{grades:?}");
    for cell in &listed(&one["views"][0]["rows"][0], "cells")[1..] {
        assert!(cell["agreement"].to_string().to_lowercase().contains("agrees"), "{cell}");
    }
    // The same for the study's directory, whose experiments keep their names.
    let again = stage.stdout("study new s");
    assert!(again.contains("name = \"comparison\"") && again.contains("\"--iterations\", \"4\""), "{again}");
    stage.refuses("study new r --output mine.toml", &["mine.toml exists already", "--output"]);
    stage.refuses("study new r --name 'My Study'", &["My Study", "my-study"]);
    stage.refuses("study new nothing-here", &["nothing-here"]);
    stage.host_is_as_before();
}

/// A figure and a table of one measurement, with different words for its columns.
#[test]
fn experiments_with_one_command_share_a_run() {
    let stage = Stage::with_fakes();
    let experiments = [("fig-1", "a"), ("table-1", "b")];
    let experiments = experiments.map(|(name, arm)| experiment(name, "true", &[(arm, "null")]));
    stage.write("twice.toml", file_of(&experiments));
    stage.stdout("study --file twice.toml --size quick --no-void --out s");
    let report = shown(&stage, "s");
    for at in 0..2 {
        let one = &report["experiments"][at];
        assert_eq!(one["run"], "fig-1", "{one}");
        assert!(one["views"][0]["rows"][0]["cells"][0]["measured"]["value"].is_number(), "{one}");
    }
    assert!(!stage.here().join("s/table-1").exists());
    stage.host_is_as_before();
}

#[test]
fn every_claim_is_on_the_page_of_claims() {
    let stage = Stage::with_fakes();
    copy(&recorded(), &stage.here().join("runs/recorded"));
    let page = stage.stdout("study --claims runs --format md");
    assert_eq!(faults_of_claims(&page), [""; 0]);
    assert_eq!(page, stage.stdout("study --claims runs/recorded runs --format md"));
    assert!(page.contains("was not checked here; no run of it was given"), "{page}");

    // A study that is not built in comes last.
    let rows = claim_rows(&page);
    let (others, measured) = rows.split_at(rows.len() - 4);
    assert!(others.iter().all(|(study, _)| study != "recorded"));
    let graded: Vec<[&str; 3]> =
        measured.iter().map(|(study, row)| [study.as_str(), row[6].as_str(), row[7].as_str()]).collect();
    let b = "null:effect=0.1,label=b,sd=0.01,seed=2; null:sd=0.01";
    let noisy = "null:label=noisy,sd=0.5,seed=3; null:sd=0.01";
    let expected = [
        ["recorded", "HOLDS", b],
        ["recorded", "DIFFERS", b],
        ["recorded", "UNDECIDED (89 blocks)", noisy],
        ["recorded", "NOT RUN", ""],
    ];
    assert_eq!(graded, expected);
    let takeaway = "Time (ms): B still costs 10.0 % [8.7, 11.2] more than A; the study found 10.5 % more, which the interval includes";
    assert_eq!(measured[0].1[1], format!("B costs at least 5 % more: holds here. {takeaway}"));
    assert!(
        measured[3].1[1].ends_with(". Time (ms): Jail took 2.0 % more time than A in the study"),
        "{measured:?}"
    );
    assert!(measured[0].1[4].starts_with("b overhead of time +10.5 %"), "{measured:?}");
    assert!(measured[0].1[5].starts_with("b overhead of time +10.0 % [+8.7, +11.2], n 6"), "{measured:?}");
    let words = unbroken(&stage.stdout("study --claims runs"));
    for part in ["B costs at least 5 % more", "Jail (speed): a machine of yours", "SIZE QUICK"] {
        assert!(words.contains(part), "no `{part}` in {words}");
    }

    // What is missing, or has no such grade, is found.
    let line = page.lines().find(|line| line.starts_with("| table-1/pxz: kvm-slower")).unwrap();
    for (old, new) in [("kvm-slower", "kvm-slowest"), ("NOT RUN", "DONE"), ("no run of it was given", "")] {
        let spoilt = page.replacen(line, &line.replace(old, new), 1);
        assert!(!faults_of_claims(&spoilt).is_empty(), "{old}");
    }

    std::fs::create_dir(stage.here().join("empty")).unwrap();
    for (words, expected) in [
        ("--claims empty", &["empty is no directory of a study", "study.json"][..]),
        ("--claims runs gone", &["gone"]),
        ("--claims runs --format csv", &["claims have no csv output"]),
        ("felter-2014 --claims runs", &["cannot be used with"]),
    ] {
        stage.refuses(&format!("study {words}"), expected);
    }
    stage.host_is_as_before();
}

/// A recorded study is always drawn the same, or the change is reviewed.
#[test]
fn a_recorded_study_is_redrawn() {
    let stage = Stage::with_fakes();
    copy(&recorded(), &stage.here().join("recorded"));
    for format in ["table", "md", "latex"] {
        let text = stage.stdout(&format!("show recorded --format {format}"));
        insta::assert_snapshot!(format!("recorded-{format}"), text);
    }
    stage.host_is_as_before();
}
