//! A cached value is used exactly as long as it is the value that would be derived now.

use super::*;
use crate::fixtures::{host, plan, void};
use crate::{Derived, RunDirectory};
use std::fs;
use std::path::PathBuf;
use weigh_model::Record;

const READER: &str = "00ff";

/// A void unit whose record is long, so that few lines make a long file.
fn heavy(block: u32, bytes: usize) -> Record {
    let Record::Void(mut unit) = void(block) else { unreachable!() };
    unit.detail = Some("x".repeat(bytes));
    Record::Void(unit)
}

/// A run with slightly more samples than are worth a cache.
fn long(parent: &Path) -> RunDirectory {
    let mut run = RunDirectory::create(parent, &plan("long"), &host(), "2026-11-21T05:00:00Z").unwrap();
    for block in 0..9 {
        run.append(&heavy(block, WORTH_CACHING_BYTES / 8)).unwrap();
    }
    run
}

/// The derived value: the number of records, and a number that only 17 decimal digits give exactly.
type Value = (usize, f64);

fn make(records: Vec<Record>) -> Value {
    (records.len(), 0.1 + 0.2)
}

/// The derived value, and whether it was derived now.
fn made_by(run: &RunDirectory, reader: &str) -> (Derived<Value>, bool) {
    let mut now = false;
    let made = run.derived(reader, |records| {
        now = true;
        make(records)
    });
    (made.unwrap(), now)
}

fn is_made_now(path: &Path) -> bool {
    let (made, now) = made_by(&RunDirectory::open(path).unwrap(), READER);
    assert_eq!(made.value, (9, 0.1 + 0.2), "kept or not, it is the same");
    now
}

/// A finished run that has a cache.
fn cached_run(parent: &Path) -> PathBuf {
    let run = long(parent);
    assert!(made_by(&run, READER).1);
    run.path().to_path_buf()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_cached_result_is_used_and_not_computed_again() {
    let parent = tempfile::tempdir().unwrap();
    let path = cached_run(parent.path());
    assert!(!is_made_now(&path));
    // A writer uses the cache too, and does not write it again.
    let before = fs::metadata(path.join(FILE)).unwrap().modified().unwrap();
    let (made, now) = made_by(&RunDirectory::open_for_append(&path).unwrap(), READER);
    assert_eq!((made.value, now, made.recovered), ((9, 0.1 + 0.2), false, None));
    assert_eq!(fs::metadata(path.join(FILE)).unwrap().modified().unwrap(), before);
    // People and their tools can read it.
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path.join(FILE)).unwrap()).unwrap();
    assert_eq!(json["made"][0], 9);
    assert_eq!(json["label"]["reader"], READER);
    assert_eq!(names(&path), [FILE, "events.jsonl", "host.json", "logs", "plan.json", "samples.jsonl"]);
}

#[test]
fn a_reader_caches_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let path = long(parent.path()).path().to_path_buf();
    let before = names(&path);
    assert!(is_made_now(&path) && is_made_now(&path));
    assert_eq!(names(&path), before);
}

#[test]
fn few_samples_are_not_worth_keeping_for() {
    let parent = tempfile::tempdir().unwrap();
    let mut run =
        RunDirectory::create(parent.path(), &plan("short"), &host(), "2026-11-21T05:00:00Z").unwrap();
    run.append(&heavy(0, WORTH_CACHING_BYTES - 1000)).unwrap();
    assert!(made_by(&run, READER).1 && made_by(&run, READER).1);
    assert!(!run.path().join(FILE).exists());
    run.append(&heavy(1, 1000)).unwrap();
    assert!(made_by(&run, READER).1 && !made_by(&run, READER).1);
}

#[test]
fn other_samples_another_plan_and_another_reader_are_not_believed() {
    let parent = tempfile::tempdir().unwrap();
    let path = cached_run(parent.path());
    assert!(made_by(&RunDirectory::open(&path).unwrap(), "00fe").1);
    let plan_file = path.join("plan.json");
    let plan_text = fs::read_to_string(&plan_file).unwrap();
    fs::write(&plan_file, plan_text.replacen("\"long\"", "\"other\"", 1)).unwrap();
    assert!(is_made_now(&path));
    fs::write(&plan_file, plan_text).unwrap();
    assert!(!is_made_now(&path), "it is what it was");

    let mut run = RunDirectory::open_for_append(&path).unwrap();
    run.append(&void(9)).unwrap();
    let (made, now) = made_by(&run, READER);
    assert_eq!((made.value.0, now), (10, true));
    // The cache now holds the new samples.
    let (made, now) = made_by(&RunDirectory::open(&path).unwrap(), READER);
    assert_eq!((made.value.0, now), (10, false));
}

#[test]
fn a_truncated_line_is_reported_and_not_cached() {
    let parent = tempfile::tempdir().unwrap();
    let path = cached_run(parent.path());
    let samples = path.join("samples.jsonl");
    let whole = fs::read(&samples).unwrap();
    fs::write(&samples, [&whole[..], b"{\"record\":\"vo"].concat()).unwrap();
    let (made, now) = made_by(&RunDirectory::open(&path).unwrap(), READER);
    assert!(now && made.recovered.is_some_and(|told| told.contains("cut short")));
    // Once the cut line is set aside, the samples are again those of the cache. The cut line is
    // still reported, this once.
    let (made, now) = made_by(&RunDirectory::open_for_append(&path).unwrap(), READER);
    assert!(!now && made.recovered.is_some_and(|told| told.contains("cut short")));
    let (made, now) = made_by(&RunDirectory::open(&path).unwrap(), READER);
    assert!(!now && made.recovered.is_none());
}

#[test]
fn a_torn_or_edited_cache_file_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let origin = CacheKey { samples: 1, plan: 2, reader: READER };
    let value: Value = (9, 0.1 + 0.2);
    save(directory.path(), &origin, WORTH_CACHING_BYTES, &value);
    let believed = |origin| load::<Value>(directory.path(), &origin, WORTH_CACHING_BYTES);
    assert_eq!(believed(origin), Some(value));
    let file = directory.path().join(FILE);
    let whole = fs::read(&file).unwrap();
    for cut in 0..whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        assert_eq!(believed(origin), None, "cut at {cut}");
    }
    for at in 0..whole.len() {
        let mut edited = whole.clone();
        edited[at] ^= 1;
        fs::write(&file, edited).unwrap();
        assert_eq!(believed(origin), None, "edited at {at}");
    }
    for other in [&[&whole[..], b"\n"].concat()[..], b"\n\n\n", b"null\n", &[0; 4096]] {
        fs::write(&file, other).unwrap();
        assert_eq!(believed(origin), None);
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(believed(origin), Some(value));
    let others = [
        CacheKey { samples: 2, ..origin },
        CacheKey { plan: 1, ..origin },
        CacheKey { reader: "00f", ..origin },
    ];
    assert!(others.into_iter().all(|other| believed(other).is_none()));
}

#[test]
fn caches_that_are_no_files_or_too_long_are_not_opened() {
    let parent = tempfile::tempdir().unwrap();
    let path = cached_run(parent.path());
    let file = path.join(FILE);
    let elsewhere = parent.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(is_made_now(&path), "a link");
    fs::remove_file(&file).unwrap();
    let _nobody_connects = std::os::unix::net::UnixListener::bind(&file).unwrap();
    assert!(is_made_now(&path), "a socket");
    fs::remove_file(&file).unwrap();
    let samples = fs::metadata(path.join("samples.jsonl")).unwrap().len();
    fs::File::create(&file).unwrap().set_len(samples + 1).unwrap();
    assert!(is_made_now(&path), "a hole");
}

#[test]
fn that_it_cannot_be_kept_is_no_error() {
    let parent = tempfile::tempdir().unwrap();
    let run = long(parent.path());
    // A file cannot be renamed over a directory.
    fs::create_dir(run.path().join(FILE)).unwrap();
    let before = names(run.path());
    assert_eq!(made_by(&run, READER).0.value, (9, 0.1 + 0.2));
    assert!(is_made_now(run.path()));
    assert_eq!(names(run.path()), before, "no temporary file stays");
}

#[test]
fn results_that_do_not_read_back_or_are_too_long_are_not_cached() {
    let parent = tempfile::tempdir().unwrap();
    let run = long(parent.path());
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for value in values {
        let made = run.derived(READER, |_| vec![Some(value)]).unwrap();
        assert_eq!(made.value[0].map(f64::to_bits), Some(value.to_bits()));
        assert!(!run.path().join(FILE).exists(), "{value}");
    }
    let samples = fs::metadata(run.path().join("samples.jsonl")).unwrap().len() as usize;
    run.derived(READER, |_| "x".repeat(samples)).unwrap();
    assert!(!run.path().join(FILE).exists());
    run.derived(READER, |_| "x".repeat(samples - 1000)).unwrap();
    assert!(run.path().join(FILE).exists());
}
