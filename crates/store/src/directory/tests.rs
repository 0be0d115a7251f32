//! Tests of run directories that were made, cut short, damaged or written by a newer version.

use super::*;
use crate::fixtures::{host, measured, plan, void};
use proptest::prelude::*;
use std::fs;
use weigh_model::Event;

const STARTED: &str = "2026-11-21T05:00:00Z";

fn created(parent: &Path) -> RunDirectory {
    RunDirectory::create(parent, &plan("stream"), &host(), STARTED).unwrap()
}

/// Makes a run with these records, and returns its directory.
fn stored(parent: &Path, records: &[Record]) -> PathBuf {
    let mut run = created(parent);
    for record in records {
        run.append(record).unwrap();
    }
    run.path().to_path_buf()
}

#[test]
fn stored_values_are_read_back() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = created(parent.path());
    let records = [measured(0, 1.25e10), void(0), measured(1, 0.1 + 0.2)];
    for record in &records {
        run.append(record).unwrap();
    }
    run.append_event(&event("seen")).unwrap();
    run.flush_events().unwrap();
    assert_eq!(run.name(), "20261121T050000Z-stream");
    assert_eq!(run.logs(), run.path().join("logs"));

    let read = RunDirectory::open(run.path()).unwrap();
    assert_eq!(read.plan(), &plan("stream"));
    assert_eq!(read.host(), &host());
    let found = read.records().unwrap();
    assert_eq!(found.records, records);
    assert_eq!(found.recovered, None);
    assert_eq!(read.events().unwrap().events, [event("seen")]);
    let first = fs::read_to_string(run.path().join(SAMPLES)).unwrap();
    assert_eq!(first.lines().next(), Some(r#"{"record":"header","format":12}"#));
    let left_over: Vec<_> = fs::read_dir(run.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left_over, [""; 0], "no temporary file stays");
}

/// In a run directory that somebody else made, one of the files is a link to elsewhere.
#[test]
fn no_file_of_a_run_leads_out_of_it() {
    let parent = tempfile::tempdir().unwrap();
    let victim = parent.path().join("victim");
    let secret = "secret without a newline";
    fs::write(&victim, secret).unwrap();
    for name in [PLAN, HOST, SAMPLES, EVENTS, analysis_cache::FILE, ".collected.json.new"] {
        let path = stored(parent.path(), &[measured(0, 1.0)]);
        let _ = fs::remove_file(path.join(name));
        std::os::unix::fs::symlink(&victim, path.join(name)).unwrap();
        let opened = RunDirectory::open(&path);
        let shown = opened.and_then(|run| run.records().map(drop).and_then(|()| run.events().map(drop)));
        assert_eq!(shown.is_err(), [PLAN, HOST, SAMPLES, EVENTS].contains(&name), "{name}");
        let appended = RunDirectory::open_for_append(&path);
        let appended =
            appended.and_then(|mut run| run.append_event(&event("x")).and_then(|()| run.flush_events()));
        assert_eq!(appended.is_err(), [PLAN, HOST, SAMPLES, EVENTS].contains(&name), "{name}");
        if let Err(error) = appended {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            assert!(source.unwrap().contains("not a regular file in this directory"), "{name}: {error}");
        }
        write_whole(&path, "collected.json", b"{}").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), secret, "{name}");
    }
}

/// Where the directory of logs is a link to elsewhere, nothing is read or written there.
#[test]
fn logs_are_in_the_run() {
    let parent = tempfile::tempdir().unwrap();
    let path = stored(parent.path(), &[measured(0, 1.0)]);
    let victim = parent.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("shadow"), "secret").unwrap();
    fs::remove_dir(path.join(LOGS)).unwrap();
    std::os::unix::fs::symlink(&victim, path.join(LOGS)).unwrap();
    assert!(RunDirectory::open(&path).unwrap().open_file("logs/shadow").is_err());
    let error = RunDirectory::open_for_append(&path).unwrap_err();
    assert!(error.to_string().contains("logs"), "{error}");
    fs::remove_file(path.join(LOGS)).unwrap();
    RunDirectory::open_for_append(&path).unwrap();
    assert!(path.join(LOGS).is_dir(), "missing ones are made");
}

/// Sparse files are long without taking room.
#[test]
fn a_sparse_file_is_refused_and_not_read() {
    let parent = tempfile::tempdir().unwrap();
    for name in [PLAN, HOST, SAMPLES, EVENTS] {
        let path = stored(parent.path(), &[measured(0, 1.0)]);
        let file = fs::OpenOptions::new().append(true).open(path.join(name)).unwrap();
        file.set_len(40 << 30).unwrap();
        let opened = RunDirectory::open(&path);
        let shown = opened.and_then(|run| run.records().map(drop).and_then(|()| run.events().map(drop)));
        let error = std::error::Error::source(&shown.unwrap_err()).map(ToString::to_string);
        assert!(error.unwrap().contains("MiB"), "{name}");
        assert!(RunDirectory::open_for_append(&path).is_err() || name == EVENTS, "{name}");
    }
}

#[test]
fn two_runs_of_one_second_get_two_directories() {
    let parent = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3).map(|_| created(parent.path()).name()).collect();
    let expected = ["", "-2", "-3"].map(|end| format!("20261121T050000Z-stream{end}"));
    assert_eq!(names, expected);
    let last = crate::resolve(parent.path(), "last").unwrap();
    assert!(last.ends_with("20261121T050000Z-stream-3"));
}

#[test]
fn a_run_can_be_created_in_a_named_empty_directory() {
    let parent = tempfile::tempdir().unwrap();
    let place = parent.path().join("a/b");
    RunDirectory::create_at(&place, &plan("x"), &host()).unwrap();
    assert!(RunDirectory::open(&place).is_ok());
    let taken = RunDirectory::create_at(&place, &plan("x"), &host());
    assert!(matches!(taken, Err(StoreError::Exists(_))));
    let empty = parent.path().join("empty");
    fs::create_dir(&empty).unwrap();
    RunDirectory::create_at(&empty, &plan("x"), &host()).unwrap();
}

/// In a directory where everybody may make files, another user may have been faster.
#[test]
fn links_and_foreign_directories_are_not_used_for_a_run() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    let base = tempfile::tempdir().unwrap();
    let (empty, link) = (base.path().join("empty"), base.path().join("link"));
    std::fs::create_dir(&empty).unwrap();
    symlink(&empty, &link).unwrap();
    let at = |path: &Path| RunDirectory::create_at(path, &plan("x"), &host());
    assert!(matches!(at(&link), Err(StoreError::Exists(_))));
    if base.path().metadata().unwrap().uid() != 0 {
        eprintln!(
            "SKIPPED links_and_foreign_directories_are_not_used_for_a_run: only root can give one away"
        );
        return;
    }
    chown(&empty, Some(65534), Some(65534)).unwrap();
    assert!(matches!(at(&empty), Err(StoreError::Exists(_))));
    assert!(std::fs::read_dir(&empty).unwrap().next().is_none());
    // The owner of the directory above could put anything there anyway.
    chown(base.path(), Some(65534), Some(65534)).unwrap();
    at(&empty).unwrap();
}

#[test]
fn one_writer_at_a_time_and_any_number_of_readers() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = created(parent.path());
    let path = run.path().to_path_buf();
    assert!(matches!(RunDirectory::open_for_append(&path), Err(StoreError::Busy(_))));
    run.append(&measured(0, 1.0)).unwrap();
    let mut reader = RunDirectory::open(&path).unwrap();
    assert!(reader.is_going_on() && !run.is_going_on());
    assert_eq!(reader.records().unwrap().records.len(), 1);
    assert!(matches!(reader.append(&measured(1, 1.0)), Err(StoreError::ReadOnly(_))));
    assert!(matches!(reader.append_event(&event("x")), Err(StoreError::ReadOnly(_))));
    let lock = path.join("lock");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&fs::metadata(&lock).unwrap()) & 0o777, 0o600);
    drop(run);
    assert!(!reader.is_going_on() && !lock.exists());
    // Everybody who may read a file can hold its lock. That stops nobody from resuming the run.
    let samples = fs::File::open(path.join("samples.jsonl")).unwrap();
    samples.lock().unwrap();
    // A crash leaves the lock file, but no lock.
    fs::write(&lock, "").unwrap();
    assert!(!reader.is_going_on());
    let mut again = RunDirectory::open_for_append(&path).unwrap();
    again.append(&measured(1, 2.0)).unwrap();
    assert_eq!(reader.records().unwrap().records, [measured(0, 1.0), measured(1, 2.0)]);
}

#[test]
fn a_value_that_json_cannot_hold_is_refused_before_it_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = created(parent.path());
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = run.append(&measured(0, value)).unwrap_err();
        assert!(matches!(error, StoreError::NotFinite { .. }), "{error}");
    }
    run.append(&measured(0, 1.0)).unwrap();
    assert_eq!(run.records().unwrap().records.len(), 1);
}

#[test]
fn a_file_cut_anywhere_gives_back_its_whole_lines_and_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let records = [void(0), measured(1, 1.5), void(2)];
    let path = stored(parent.path(), &records);
    let file = path.join(SAMPLES);
    let whole = fs::read(&file).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in 0..=whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let is_whole = cut == 0 || whole[cut - 1] == b'\n';
        let opened = RunDirectory::open(&path).unwrap();
        if cut < header {
            let error = opened.records().unwrap_err();
            let is_expected = match error {
                StoreError::EmptySamples(_) => cut == 0,
                StoreError::MissingHeader(_) => cut > 0,
                _ => false,
            };
            assert!(is_expected, "cut at {cut}: {error}");
            assert!(RunDirectory::open_for_append(&path).is_err());
            assert_eq!(
                fs::read(&file).unwrap(),
                &whole[..cut],
                "nothing is changed where nothing can be recovered"
            );
            continue;
        }
        let read = opened.records().unwrap();
        assert_eq!(read.records, records[..lines - 1], "cut at {cut}");
        assert_eq!(read.recovered.is_none(), is_whole, "cut at {cut}");
        assert_eq!(fs::metadata(&file).unwrap().len(), cut as u64, "reading changes nothing");

        let mut run = RunDirectory::open_for_append(&path).unwrap();
        run.append(&measured(9, 9.0)).unwrap();
        let after = run.records().unwrap();
        let expected: Vec<_> = records[..lines - 1].iter().cloned().chain([measured(9, 9.0)]).collect();
        assert_eq!(after.records, expected, "cut at {cut}");
        assert_eq!(after.recovered.is_none(), is_whole);
        if !is_whole {
            let start = whole[..cut].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
            let cut_line = path.join(format!("logs/cut-line-at-{start}.txt"));
            assert_eq!(fs::read(&cut_line).unwrap(), &whole[start..cut], "the cut bytes are kept");
            assert!(after.recovered.unwrap().contains(&format!("logs/cut-line-at-{start}.txt")));
            fs::remove_file(cut_line).unwrap();
        }
    }
}

#[test]
fn a_tail_of_zeros_is_a_cut_line() {
    // A power failure leaves zeros when the file's length was on disk before its data.
    let parent = tempfile::tempdir().unwrap();
    let path = stored(parent.path(), &[measured(0, 1.5)]);
    let mut bytes = fs::read(path.join(SAMPLES)).unwrap();
    bytes.extend([0; 300]);
    fs::write(path.join(SAMPLES), bytes).unwrap();
    let read = RunDirectory::open(&path).unwrap().records().unwrap();
    assert_eq!((read.records.len(), read.recovered.is_some()), (1, true));
}

#[test]
fn damage_inside_is_refused_with_its_line() {
    let parent = tempfile::tempdir().unwrap();
    let path = stored(parent.path(), &[0, 1, 2].map(|sequence| measured(sequence, 1.5)));
    let file = path.join(SAMPLES);
    let text = fs::read_to_string(&file).unwrap();
    let with_line = |number: usize, line: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines[number - 1] = line;
        lines.join("\n") + "\n"
    };
    for damage in
        ["{\"record\":\"trial\"", "", "null", r#"{"record":"header","format":5}"#, r#"{"record":"new"}"#]
    {
        for line in [3, 4] {
            fs::write(&file, with_line(line, damage)).unwrap();
            for error in [
                RunDirectory::open(&path).unwrap().records().err(),
                RunDirectory::open_for_append(&path).err(),
            ] {
                match error.unwrap() {
                    StoreError::Damaged { line: found, .. } => assert_eq!(found, line as u64, "{damage}"),
                    other => panic!("{damage}: {other}"),
                }
            }
        }
    }
}

#[test]
fn newer_formats_are_reported_with_both_versions() {
    let parent = tempfile::tempdir().unwrap();
    let path = created(parent.path()).path().to_path_buf();
    let newer = SAMPLES_FORMAT + 1;
    let text = format!("{{\"record\":\"header\",\"format\":{newer},\"more\":[]}}\n{{\"record\":\"new\"}}\n");
    fs::write(path.join(SAMPLES), text).unwrap();
    let error = RunDirectory::open(&path).unwrap().records().unwrap_err();
    assert!(
        matches!(error, StoreError::NewerFormat { found, supported: SAMPLES_FORMAT, .. } if found == u64::from(newer))
    );
    let said = error.to_string();
    let supported = format!("up to {SAMPLES_FORMAT}");
    assert!(said.contains(&format!("format {newer}")) && said.contains(&supported), "{said}");

    let newer = PLAN_FORMAT + 1;
    fs::write(path.join(PLAN), format!("{{\"format\": {newer}, \"quite\": \"different\"}}")).unwrap();
    let error = RunDirectory::open(&path).unwrap_err();
    let is_told = |found: u64, supported: u32| found == u64::from(newer) && supported == PLAN_FORMAT;
    assert!(
        matches!(error, StoreError::NewerFormat { found, supported, .. } if is_told(found, supported)),
        "{error}"
    );
}

#[test]
fn a_file_without_a_header_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = stored(parent.path(), &[measured(0, 1.5)]);
    let text = fs::read_to_string(path.join(SAMPLES)).unwrap();
    let body = text.split_once('\n').unwrap().1;
    for bad in [body, "hello\n", "{\"record\":\"header\"}\n", "{\"record\":\"header\",\"format\":0}\n", "\n"]
    {
        fs::write(path.join(SAMPLES), bad).unwrap();
        let error = RunDirectory::open(&path).unwrap().records().unwrap_err();
        assert!(matches!(error, StoreError::MissingHeader(_)), "{bad}: {error}");
    }
}

#[test]
fn a_directory_without_a_run_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let error = |path: &Path| RunDirectory::open(path).unwrap_err();
    assert!(matches!(error(&parent.path().join("none")), StoreError::NotFound(_)));
    assert!(matches!(error(parent.path()), StoreError::Foreign(_)));
    for (file, hint) in [(PLAN, "copy"), (HOST, "start it again"), (SAMPLES, "start it again")] {
        let path = created(parent.path()).path().to_path_buf();
        fs::remove_file(path.join(file)).unwrap();
        let error = error(&path);
        assert!(matches!(error, StoreError::Missing { file: found, .. } if found == file), "{error}");
        assert!(error.to_string().contains(file) && error.to_string().contains(hint), "{error}");
    }
    let path = created(parent.path()).path().to_path_buf();
    fs::write(path.join(PLAN), "{\n\"format\": 1,\n}").unwrap();
    assert!(matches!(error(&path), StoreError::Damaged { line: 3, .. }));
}

#[test]
fn events_survive_a_cut_and_an_unknown_kind() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = created(parent.path());
    let path = run.path().to_path_buf();
    run.append_event(&event("one")).unwrap();
    drop(run);
    let file = path.join(EVENTS);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}{{\"at\":\"x\",\"event\":\"from-the-future\"}}\n{{\"at\":\"cu")).unwrap();
    let mut run = RunDirectory::open_for_append(&path).unwrap();
    run.append_event(&event("two")).unwrap();
    drop(run);
    let read = RunDirectory::open(&path).unwrap().events().unwrap();
    assert_eq!(read.events, [event("one"), event("two")]);
    assert_eq!(read.unreadable_lines, 2);
}

#[test]
fn logs_have_safe_names_and_relative_paths() {
    let parent = tempfile::tempdir().unwrap();
    let run = created(parent.path());
    let (absolute, relative) = run.log_path("docker:net=nat/../b3 stream.txt");
    assert_eq!(relative, "logs/docker-net=nat-..-b3-stream.txt");
    assert_eq!(absolute, run.path().join(&relative));
    assert!(absolute.is_absolute());
}

fn event(message: &str) -> Timestamped {
    Timestamped { at: STARTED.into(), event: Event::Warning { message: message.into() } }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_record_survives(
        values in proptest::collection::btree_map("\\PC{0,12}", any::<f64>().prop_filter("JSON holds finite numbers", |v| v.is_finite()), 0..5),
        words in proptest::collection::vec("\\PC{0,20}|[\n\t\"\\\\\u{0}]{1,4}", 4),
        numbers in proptest::collection::vec(any::<u64>(), 8),
    ) {
        let mut record = measured(numbers[0], 1.0);
        let Record::Trial(trial) = &mut record else { unreachable!() };
        trial.workload = words[0].clone();
        trial.environment = words[1].clone();
        trial.host = words[2].clone();
        trial.started = words[3].clone();
        trial.host_started_ns = numbers[1];
        trial.host_ended_ns = numbers[2];
        let weigh_model::Outcome::Measured { iterations } = &mut trial.outcome else { unreachable!() };
        iterations[0].values = values;
        iterations[0].user_ns = numbers[3];
        let line = samples::line_of(&record).unwrap();
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one record is one line");
        let mut file = samples::line_of(&Record::Header { format: SAMPLES_FORMAT }).unwrap();
        file.extend(&line);
        let parsed = samples::parse(Path::new("x"), &file).unwrap();
        prop_assert_eq!(parsed.records, vec![record]);
        prop_assert_eq!(parsed.whole_bytes, file.len());
    }
}
