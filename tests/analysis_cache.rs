//! The analysis cache of a long run: `weigh run` and `weigh resume` write it, reports read it, and
//! it changes nothing in what they show.

use crate::support::{Stage, listed, ready, shown, with_out};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

const CACHE: &str = "collected.json";
/// A run with fewer bytes of samples has no analysis cache.
const LEAST_BYTES: u64 = 1 << 20;
const ON: &str = "null:sd=0.02;null:effect=0.1,label=b,sd=0.02";
/// A record of another attempt at block 14, which was void.
const VOID: &str = r#"{"record":"void","block":14,"attempt":0,"workload":"true","cause":"steal"}"#;

fn measure(stage: &Stage, out: &str, effort: &str) {
    stage.stdout(&format!("run --on {ON} --baseline null:sd=0.02 --no-void --out {out} {effort} -- true"));
}

/// A run that is long enough for an analysis cache: with this many iterations, a few trials make a
/// long file.
fn long(stage: &Stage, out: &str) {
    measure(stage, out, "--blocks 15 --iterations 150 --warmup 0");
    let samples = stage.here().join(out).join("samples.jsonl").metadata().unwrap().len();
    assert!(samples >= LEAST_BYTES, "{samples} bytes are too few for this test");
}

/// Makes a file of samples longer without changing what it says: blanks at the end of a line are
/// ignored.
fn pad(run: &Path) {
    let samples = run.join("samples.jsonl");
    let text = fs::read_to_string(&samples).unwrap();
    let blanks = " ".repeat(LEAST_BYTES as usize);
    fs::write(&samples, format!("{}{blanks}\n", text.trim_end())).unwrap();
}

/// Checks that every report of a run is byte for byte what the samples alone give.
fn says_what_the_samples_say(stage: &Stage, run: &str) {
    let cache = stage.here().join(run).join(CACHE);
    let show = |format: &str| stage.stdout(&format!("show {run} --format {format}"));
    let formats = ["json", "html"];
    let with = formats.map(show);
    let aside = stage.here().join("aside");
    fs::rename(&cache, &aside).unwrap();
    let without = formats.map(show);
    for ((format, with), without) in formats.iter().zip(with).zip(without) {
        assert!(with == without, "{run} as {format}:\n{with}\n{without}");
    }
    fs::rename(aside, cache).unwrap();
}

/// Names, lengths and times of everything in a directory.
fn contents(directory: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let of = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        (entry.file_name().into_string().unwrap(), (found.len(), found.modified().unwrap()))
    };
    fs::read_dir(directory).unwrap().map(|entry| of(entry.unwrap())).collect()
}

/// Changes the cache together with its digests, which nobody would do, to show that the cache is
/// read. The number of blocks done grows by one.
fn forge(run: &Path) {
    let text = fs::read_to_string(run.join(CACHE)).unwrap();
    let (label, made) = text.split_once('\n').unwrap();
    let made = made.strip_prefix("\"made\":").unwrap().strip_suffix("}\n").unwrap();
    let digest = |made: &str| format!("{:032x}", twox_hash::XxHash3_128::oneshot(made.as_bytes()));
    let value: Value = serde_json::from_str(made).unwrap();
    let done = value["collected"]["blocks_done"].as_u64().unwrap();
    let mut series = value["collected"]["comparisons"][0]["series"][1]["observations"].clone();
    let other =
        made.replacen(&format!("\"blocks_done\":{done}"), &format!("\"blocks_done\":{}", done + 1), 1);
    // Also change a cell that `compare` reads.
    let observations = series.to_string();
    series[0]["value"] = 77.0.into();
    let other = other.replacen(&observations, &series.to_string(), 1);
    assert_ne!(other.len(), made.len());
    let label = label.replacen(&digest(made), &digest(&other), 1);
    fs::write(run.join(CACHE), format!("{label}\n\"made\":{other}}}\n")).unwrap();
}

fn done(stage: &Stage, run: &str) -> u64 {
    shown(stage, run)["blocks"]["done"].as_u64().unwrap()
}

/// Runs with everything that records can hold: failures, cells that are not measured, voids,
/// latencies, CPU time, starts, courses, equal pages.
#[test]
fn caches_of_rich_runs_match_their_samples() {
    const TEST: &str = "caches_of_rich_runs_match_their_samples";
    let stage = Stage::new();
    let failing = "null:sd=0.02;null:fault=exit,every=5,label=b;null:label=c,launch=fail";
    let fake = "--baseline null:sd=0.02";
    let mut runs = vec![
        ("latencies", "run echo --on native --size quick --blocks 1 --no-void".to_string()),
        ("failures", format!("run --on {failing} {fake} --blocks 9 --iterations 3 -- true")),
        ("starts", "start --on native --blocks 2 --no-void".into()),
        ("courses", format!("soak --on {ON} {fake} --guests 1 --for 3s --no-void -- true")),
    ];
    if ready(&stage, "namespaces", TEST) {
        let on = "--on namespaces --baseline namespaces";
        runs.push(("pages", format!("footprint --duplicates {on} --guests 1 --blocks 1 --no-void")));
    }
    for (name, line) in runs {
        stage.stdout(&with_out(&line, name));
        let run = stage.here().join(name);
        if name == "failures" {
            let samples = stage.read("failures/samples.jsonl");
            let void = VOID.replace("14", "8");
            stage.write("failures/samples.jsonl", format!("{samples}{void}\n"));
        }
        pad(&run);
        stage.stdout(&format!("resume {name}"));
        says_what_the_samples_say(&stage, name);
        let all: Value = serde_json::from_slice(&fs::read(run.join(CACHE)).unwrap()).unwrap();
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

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    #[test]
    fn a_long_run_has_a_cache_and_reading_writes_nothing() {
        let stage = Stage::with_fakes();
        long(&stage, "a");
        long(&stage, "b");
        let (a, b) = (stage.here().join("a"), stage.here().join("b"));
        assert!(a.join(CACHE).is_file() && b.join(CACHE).is_file());
        says_what_the_samples_say(&stage, "a");

        // With the cache, without it, and with a useless one.
        let compare = "compare a b --format json";
        let look = || {
            let before = (contents(&a), contents(&b));
            let shown = stage.stdout("show a --format json");
            let compared = stage.stdout(compare);
            assert_eq!((contents(&a), contents(&b)), before);
            (shown, compared)
        };
        let with = look();
        let cache = fs::read(a.join(CACHE)).unwrap();
        fs::remove_file(a.join(CACHE)).unwrap();
        assert!(look() == with);
        assert!(!a.join(CACHE).exists());
        fs::write(a.join(CACHE), &cache[..cache.len() / 2]).unwrap();
        assert!(look() == with);
        fs::write(a.join(CACHE), cache).unwrap();

        // The cache is what reports read.
        forge(&a);
        assert_eq!(done(&stage, "a"), 16);
        assert_ne!(stage.stdout(compare), with.1);
        stage.host_is_as_before();
    }

    #[test]
    fn a_short_run_has_no_cache() {
        let stage = Stage::with_fakes();
        measure(&stage, "a", "--blocks 3");
        assert!(!stage.here().join("a").join(CACHE).exists());
        stage.stdout("resume a");
        assert!(!stage.here().join("a").join(CACHE).exists());
        stage.host_is_as_before();
    }

    /// Whatever happens to the samples, the plan or the cache itself, reports show what the samples
    /// say; `resume` writes the cache again.
    #[test]
    fn a_cache_of_other_samples_is_not_read() {
        let stage = Stage::with_fakes();
        long(&stage, "a");
        let run = stage.here().join("a");
        forge(&run);
        let forged = fs::read(run.join(CACHE)).unwrap();
        assert_eq!(done(&stage, "a"), 16, "as long as nothing else changes");
        let samples = stage.read("a/samples.jsonl");
        let write = |samples: &str| stage.write("a/samples.jsonl", samples);

        // Appended samples, and a last line that a crash cut short.
        write(&format!("{samples}{VOID}\n"));
        let report = shown(&stage, "a");
        assert_eq!((report["blocks"]["done"].clone(), listed(&report, "voids").len()), (14.into(), 1));
        write(&samples[..samples.len() - 9]);
        let report = shown(&stage, "a");
        assert_eq!(report["blocks"]["done"], 14);
        assert!(report["warnings"].to_string().contains("cut short"), "{}", report["warnings"]);

        // Damage is found as it is without a cache.
        write(&samples.replacen("\"sequence\":7,", "\"sequence\";7,", 1));
        stage.refuses("show a", &[]);
        write(&samples);
        assert_eq!(done(&stage, "a"), 16);

        // Another plan, then digests that somebody edited.
        let plan = stage.read("a/plan.json");
        stage.write("a/plan.json", format!("{plan}\n"));
        assert_eq!(done(&stage, "a"), 15);
        stage.write("a/plan.json", plan);
        for name in ["samples", "plan", "reader", "made"] {
            let text = String::from_utf8(forged.clone()).unwrap();
            let at = text.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
            let other = if &text[at..=at] == "0" { "1" } else { "0" };
            let edited = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            fs::write(run.join(CACHE), edited).unwrap();
            assert_eq!(done(&stage, "a"), 15, "{name}");
        }

        // `resume` writes the cache again: first for a block that is void, and so is measured once
        // more.
        write(&format!("{samples}{VOID}\n"));
        fs::write(run.join(CACHE), &forged).unwrap();
        stage.stdout("resume a");
        assert_ne!(fs::read(run.join(CACHE)).unwrap(), forged);
        assert_eq!(done(&stage, "a"), 15);
        says_what_the_samples_say(&stage, "a");
        // And if it was lost, even if nothing is left to measure.
        fs::remove_file(run.join(CACHE)).unwrap();
        let before = stage.read("a/samples.jsonl");
        stage.stdout("resume a");
        assert!(stage.read("a/samples.jsonl") == before);
        forge(&run);
        assert_eq!(done(&stage, "a"), 16, "it is read");
        stage.host_is_as_before();
    }

    /// A directory in which no cache can be written still takes a run, and is shown.
    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let stage = Stage::with_fakes();
        measure(&stage, "a", "--blocks 3");
        let run = stage.here().join("a");
        pad(&run);
        // Root may write everywhere, but no file can replace a directory.
        fs::create_dir_all(run.join(CACHE).join("in-the-way")).unwrap();
        stage.stdout("resume a");
        assert_eq!(done(&stage, "a"), 3);
        assert!(run.join(CACHE).join("in-the-way").is_dir());
        assert!(!contents(&run).keys().any(|name| name.ends_with(".new")));
        stage.host_is_as_before();
    }
}
