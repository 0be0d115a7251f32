//! What is made of a long run's samples is kept by who measures, believed by who looks, and changes
//! nothing that is shown.

use crate::support::{Stage, ready, shown};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

const KEPT: &str = "collected.json";
/// Fewer bytes of samples are not worth keeping anything for.
const WORTH_KEEPING_BYTES: u64 = 1 << 20;
const ON: &str = "null:sd=0.02;null:effect=0.1,label=b,sd=0.02";
/// With so many iterations, few trials are a long file.
const LONG: [&str; 6] = ["--blocks", "15", "--iterations", "150", "--warmup", "0"];

fn measure(stage: &Stage, out: &str, more: &[&str]) {
    let run = ["run", "--on", ON, "--baseline", "null:sd=0.02", "--no-void", "--out", out];
    stage.weigh().args(run).args(more).args(["--", "true"]).assert().success();
}

/// A run that was worth keeping something of.
fn long(stage: &Stage, out: &str) {
    measure(stage, out, &LONG);
    let samples = stage.here().join(out).join("samples.jsonl").metadata().unwrap().len();
    assert!(samples >= WORTH_KEEPING_BYTES, "{samples} bytes are too few for this test");
}

fn stdout(stage: &Stage, arguments: &[&str]) -> String {
    let output = stage.weigh().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a file of samples long and says nothing else: blanks at the end of a line are no part of
/// it.
fn pad(run: &Path) {
    let samples = run.join("samples.jsonl");
    let text = fs::read_to_string(&samples).unwrap();
    let blanks = " ".repeat(WORTH_KEEPING_BYTES as usize);
    fs::write(&samples, format!("{}{blanks}\n", text.trim_end())).unwrap();
}

/// Every report of a run is to the byte what the samples alone give.
fn says_what_the_samples_say(stage: &Stage, run: &str) {
    let kept = stage.here().join(run).join(KEPT);
    let show = |format: &str| stdout(stage, &["show", run, "--format", format]);
    let formats = ["json", "csv", "html", "table"];
    let with = formats.map(show);
    let aside = stage.here().join("aside");
    fs::rename(&kept, &aside).unwrap();
    let without = formats.map(show);
    for ((format, with), without) in formats.iter().zip(with).zip(without) {
        assert!(with == without, "{run} as {format}:\n{with}\n{without}");
    }
    fs::rename(aside, kept).unwrap();
}

/// Names, lengths and times of all that is in a directory.
fn contents(directory: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let of = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        (entry.file_name().into_string().unwrap(), (found.len(), found.modified().unwrap()))
    };
    fs::read_dir(directory).unwrap().map(|entry| of(entry.unwrap())).collect()
}

/// Changes what is kept and its label with it, as nobody does; only so can be seen that it is read.
/// The number of blocks done gets one more.
fn forge(run: &Path) {
    let text = fs::read_to_string(run.join(KEPT)).unwrap();
    let (label, made) = text.split_once('\n').unwrap();
    let made = made.strip_prefix("\"made\":").unwrap().strip_suffix("}\n").unwrap();
    let digest = |made: &str| format!("{:032x}", twox_hash::XxHash3_128::oneshot(made.as_bytes()));
    let value: Value = serde_json::from_str(made).unwrap();
    let done = value["collected"]["blocks_done"].as_u64().unwrap();
    let mut series = value["collected"]["comparisons"][0]["series"][1]["observations"].clone();
    let other =
        made.replacen(&format!("\"blocks_done\":{done}"), &format!("\"blocks_done\":{}", done + 1), 1);
    // A cell that `compare` looks at, too.
    let observations = series.to_string();
    series[0]["value"] = 77.0.into();
    let other = other.replacen(&observations, &series.to_string(), 1);
    assert_ne!(other.len(), made.len());
    let label = label.replacen(&digest(made), &digest(&other), 1);
    fs::write(run.join(KEPT), format!("{label}\n\"made\":{other}}}\n")).unwrap();
}

fn done(stage: &Stage, run: &str) -> u64 {
    shown(stage, run)["blocks"]["done"].as_u64().unwrap()
}

#[test]
fn a_long_run_is_kept_and_who_looks_writes_nothing() {
    let stage = Stage::with_fakes();
    long(&stage, "a");
    long(&stage, "b");
    let (a, b) = (stage.here().join("a"), stage.here().join("b"));
    assert!(a.join(KEPT).is_file() && b.join(KEPT).is_file());
    says_what_the_samples_say(&stage, "a");

    // With it, without it, and with one that is of no use.
    let compare = ["compare", "a", "b", "--format", "json"];
    let look = || {
        let before = (contents(&a), contents(&b));
        let shown = stdout(&stage, &["show", "a", "--format", "json"]);
        let compared = stdout(&stage, &compare);
        assert_eq!((contents(&a), contents(&b)), before);
        (shown, compared)
    };
    let with = look();
    let kept = fs::read(a.join(KEPT)).unwrap();
    fs::remove_file(a.join(KEPT)).unwrap();
    assert!(look() == with);
    assert!(!a.join(KEPT).exists());
    fs::write(a.join(KEPT), &kept[..kept.len() / 2]).unwrap();
    assert!(look() == with);
    fs::write(a.join(KEPT), kept).unwrap();

    // It is what is read.
    forge(&a);
    assert_eq!(done(&stage, "a"), 16);
    assert_ne!(stdout(&stage, &compare), with.1);
    stage.host_is_as_before();
}

#[test]
fn a_short_run_keeps_nothing() {
    let stage = Stage::with_fakes();
    measure(&stage, "a", &["--blocks", "3"]);
    assert!(!stage.here().join("a").join(KEPT).exists());
    stage.weigh().args(["resume", "a"]).assert().success();
    assert!(!stage.here().join("a").join(KEPT).exists());
    stage.host_is_as_before();
}

/// Whatever happens to the samples, the plan or the file itself, what is shown is what the samples
/// say; `resume` keeps it again.
#[test]
fn what_is_not_of_these_samples_is_not_believed() {
    let stage = Stage::with_fakes();
    long(&stage, "a");
    let run = stage.here().join("a");
    forge(&run);
    let forged = fs::read(run.join(KEPT)).unwrap();
    assert_eq!(done(&stage, "a"), 16, "as long as nothing else changes");
    let samples = fs::read_to_string(run.join("samples.jsonl")).unwrap();

    // Samples that were appended, and a last line that a crash cut.
    let void = r#"{"record":"void","block":14,"attempt":0,"workload":"true","cause":"steal"}"#;
    fs::write(run.join("samples.jsonl"), format!("{samples}{void}\n")).unwrap();
    let report = shown(&stage, "a");
    assert_eq!((report["blocks"]["done"].clone(), report["voids"].as_array().unwrap().len()), (14.into(), 1));
    fs::write(run.join("samples.jsonl"), &samples[..samples.len() - 9]).unwrap();
    let report = shown(&stage, "a");
    assert_eq!(report["blocks"]["done"], 14);
    assert!(report["warnings"].to_string().contains("cut short"), "{}", report["warnings"]);

    // Damage is found as without it.
    fs::write(run.join("samples.jsonl"), samples.replacen("\"sequence\":7,", "\"sequence\";7,", 1)).unwrap();
    let output = stage.weigh().args(["show", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(run.join("samples.jsonl"), &samples).unwrap();
    assert_eq!(done(&stage, "a"), 16);

    // Another plan; digests that somebody edited.
    let plan = fs::read_to_string(run.join("plan.json")).unwrap();
    fs::write(run.join("plan.json"), format!("{plan}\n")).unwrap();
    assert_eq!(done(&stage, "a"), 15);
    fs::write(run.join("plan.json"), &plan).unwrap();
    for name in ["samples", "plan", "reader", "made"] {
        let text = String::from_utf8(forged.clone()).unwrap();
        let at = text.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
        let other = if &text[at..=at] == "0" { "1" } else { "0" };
        let edited = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        fs::write(run.join(KEPT), edited).unwrap();
        assert_eq!(done(&stage, "a"), 15, "{name}");
    }

    // The one who measures again keeps again: first of a block that is void, and so measured once
    // more.
    fs::write(run.join("samples.jsonl"), format!("{samples}{void}\n")).unwrap();
    fs::write(run.join(KEPT), &forged).unwrap();
    stage.weigh().args(["resume", "a"]).assert().success();
    assert_ne!(fs::read(run.join(KEPT)).unwrap(), forged);
    assert_eq!(done(&stage, "a"), 15);
    says_what_the_samples_say(&stage, "a");
    // And where it was lost, though there is nothing left to measure.
    fs::remove_file(run.join(KEPT)).unwrap();
    let before = fs::read(run.join("samples.jsonl")).unwrap();
    stage.weigh().args(["resume", "a"]).assert().success();
    assert!(fs::read(run.join("samples.jsonl")).unwrap() == before);
    forge(&run);
    assert_eq!(done(&stage, "a"), 16, "it is read");
    stage.host_is_as_before();
}

/// A directory where nothing can be kept is measured into, and shown, all the same.
#[test]
fn that_nothing_can_be_kept_is_no_error() {
    let stage = Stage::with_fakes();
    measure(&stage, "a", &["--blocks", "3"]);
    let run = stage.here().join("a");
    pad(&run);
    // Whoever is root may write everywhere; but nothing takes the place of a directory.
    fs::create_dir_all(run.join(KEPT).join("in-the-way")).unwrap();
    stage.weigh().args(["resume", "a"]).assert().success();
    assert_eq!(done(&stage, "a"), 3);
    assert!(run.join(KEPT).join("in-the-way").is_dir());
    assert!(!contents(&run).keys().any(|name| name.ends_with(".new")));
    stage.host_is_as_before();
}

/// Runs with all that records can say: failures, cells that are not measured, voids, latencies, CPU
/// time, starts, courses, equal pages.
#[test]
fn rich_runs_say_what_their_samples_say() {
    const TEST: &str = "rich_runs_say_what_their_samples_say";
    let stage = Stage::new();
    let failing = "null:sd=0.02;null:fault=exit,every=5,label=b;null:label=c,launch=fail";
    let fake = ["--baseline", "null:sd=0.02"];
    let guests = ["--guests", "1,2", "--blocks", "1", "--no-void"];
    let mut runs: Vec<(&str, Vec<&str>)> = vec![
        ("latencies", vec!["run", "echo", "--on", "native", "--size", "quick", "--blocks", "1", "--no-void"]),
        ("failures", ["run", "--on", failing, fake[0], fake[1], "--blocks", "9", "--iterations", "3"].into()),
        ("starts", vec!["start", "--on", "native", "--blocks", "2", "--no-void"]),
        (
            "courses",
            ["soak", "--on", ON, fake[0], fake[1], "--guests", "1", "--for", "3s", "--no-void"].into(),
        ),
    ];
    if ready(&stage, "namespaces", TEST) {
        let on = ["footprint", "--duplicates", "--on", "namespaces", "--baseline", "namespaces"];
        runs.push(("pages", [&on[..], &guests].concat()));
    }
    for (name, arguments) in runs {
        let command: &[&str] = if matches!(name, "failures" | "courses") { &["--", "true"] } else { &[] };
        stage.weigh().args(arguments).args(["--out", name]).args(command).assert().success();
        let run = stage.here().join(name);
        if name == "failures" {
            let samples = fs::read_to_string(run.join("samples.jsonl")).unwrap();
            let void = r#"{"record":"void","block":8,"attempt":0,"workload":"true","cause":"steal"}"#;
            fs::write(run.join("samples.jsonl"), format!("{samples}{void}\n")).unwrap();
        }
        pad(&run);
        stage.weigh().args(["resume", name]).assert().success();
        says_what_the_samples_say(&stage, name);
        let all: Value = serde_json::from_slice(&fs::read(run.join(KEPT)).unwrap()).unwrap();
        let expected: &[&str] = match name {
            "latencies" => &["/collected/circumstances/latencies", "/collected/circumstances/charges"],
            "failures" => &["/collected/failures", "/collected/voids", "/on_record/seen"],
            "courses" => &["/courses"],
            "pages" => &["/collected/circumstances/duplicates", "/scans"],
            _ => &["/collected/comparisons"],
        };
        for place in expected {
            let found = all["made"].pointer(place).and_then(Value::as_array);
            assert!(found.is_some_and(|found| !found.is_empty()), "{name}: nothing at {place}");
        }
    }
    stage.host_is_as_before();
}
