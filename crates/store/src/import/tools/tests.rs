//! Tests with real files of every tool that was available (see `testdata/`), and with files written
//! after the source of the other tools.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use weigh_model::Observation;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)).unwrap()
}

fn file(environment: Option<&str>, path: &str) -> NamedFile {
    NamedFile { environment: environment.map(Into::into), path: path.into() }
}

/// Parses files, with the names of their environments, as files of the tool that their content
/// shows.
fn samples(files: &[(Option<&str>, &str)]) -> Result<ToolSamples, ImportError> {
    let files: Vec<_> = files
        .iter()
        .zip(1..)
        .map(|((name, text), n): (_, u32)| (file(*name, &format!("{n}.json")), text.as_bytes().to_vec()))
        .collect();
    parse_tool(recognise(&files[0].1).expect("a tool"), &files)
}

fn one(text: &str) -> ToolSamples {
    samples(&[(None, text)]).unwrap()
}

fn fault(result: Result<ToolSamples, ImportError>) -> (String, String, String) {
    let error = result.expect_err("it is refused");
    (
        error.to_string(),
        error.place.map(|place| place.text).unwrap_or_default(),
        error.help.unwrap_or_default(),
    )
}

fn values(samples: &ToolSamples, comparison: usize, series: usize) -> Vec<f64> {
    samples.comparisons[comparison].series[series].observations.iter().map(|o| o.value).collect()
}

fn names(samples: &ToolSamples) -> Vec<(&str, &str, &str, bool)> {
    samples
        .comparisons
        .iter()
        .map(|c| (c.workload.as_str(), c.metric.name.as_str(), c.metric.unit.symbol(), c.metric.primary))
        .collect()
}

const TWO_COMMANDS: &str = r#"{ "results": [
  { "command": "a", "times": [ 1.0, 2.0, 4.0 ], "exit_codes": [ 0, 0, 0 ] },
  { "command": "b", "times": [ 2.0,
      4.0, 8.0 ], "exit_codes": [ 0, 1, 0 ] } ] }"#;

#[test]
fn the_commands_of_one_hyperfine_are_its_environments() {
    let real = String::from_utf8(data("hyperfine-1.15.json")).unwrap();
    let samples = one(&real);
    assert_eq!(samples.environments, ["sleep 0.002", "sleep 0.003", "sh -c \"exit 3\""]);
    assert_eq!(names(&samples), [("command", "time", "s", true)]);
    assert_eq!(values(&samples, 0, 0)[..2], [0.0029574420000000002, 0.003045569]);
    assert!(!samples.each_is_a_run);
    let failing = &samples.comparisons[0].series[2];
    assert_eq!((failing.tried, failing.failed, failing.observations.len()), (6, 6, 0));
    assert!(samples.notices[0].0.contains("that failed: 6, the first of"), "{:?}", samples.notices);
    let samples = one(TWO_COMMANDS);
    assert_eq!((values(&samples, 0, 0), values(&samples, 0, 1)), (vec![1.0, 2.0, 4.0], vec![2.0, 8.0]));
}

#[test]
fn several_files_of_the_same_commands_are_blocks() {
    let second = TWO_COMMANDS.replace("[ 0, 1, 0 ]", "[ 0, 0, 0 ]");
    let samples = samples(&[(None, TWO_COMMANDS), (None, &second)]).unwrap();
    assert!(samples.each_is_a_run);
    let [a, b] = samples.comparisons[0].series.as_slice() else { panic!("two commands") };
    let two = (2.0f64.ln()).exp();
    assert_eq!(
        a.observations,
        [Observation { block: Some(0), value: two }, Observation { block: Some(1), value: two }]
    );
    // The run in which an execution failed counts as failed, and the other keeps its block.
    assert_eq!((b.tried, b.failed, b.observations.len()), (2, 1, 1));
    assert_eq!(b.observations[0].block, Some(1));
}

#[test]
fn the_second_version_of_hyperfine_has_an_object_per_execution() {
    let execution = |value: &str, code: &str| {
        format!(r#"{{"time_wall_clock": {{"value": {value}, "unit": "second"}}, "exit_code": {code}}}"#)
    };
    let text = format!(
        "{{\"metadata\": {{\"hyperfine_version\": \"2.0.0\"}}, \"results\": [{{\"command\": \"x\", \"name\": \"n\", \"measurements\": [{}, {},\n{}]}}]}}",
        execution("0.5", "0"),
        execution("0.1", "null"),
        execution("0.25", "0")
    );
    let samples = one(&text);
    assert_eq!((values(&samples, 0, 0), samples.comparisons[0].series[0].failed), (vec![0.5, 0.25], 1));
    assert_eq!(samples.comparisons[0].workload, "n");
    let (message, line, help) = fault(super::parse_tool(
        Tool::Hyperfine,
        &[(file(None, "2.json"), text.replace("0.25", "0").into_bytes())],
    ));
    assert!(message.starts_with("2.json:2:") && message.ends_with("0 is not a positive number"), "{message}");
    assert!(line.starts_with("{\"time_wall_clock\"") && help.contains("--shell=none"), "{line} {help}");
}

#[test]
fn runs_of_a_name_are_the_units_and_one_beside_several_is_refused() {
    let of = |times: &str| {
        format!("{{\"results\": [{{\"command\": \"c\", \"times\": [{times}], \"exit_codes\": []}}]}}")
    };
    let (a, b, c, d) = (of("1, 4"), of("3"), of("2"), of("8, 2"));
    let two = [(Some("old"), a.as_str()), (Some("old"), &b), (Some("new"), &c), (Some("new"), &d)];
    let runs = samples(&two).unwrap();
    assert!(runs.each_is_a_run);
    assert_eq!(runs.environments, ["old", "new"]);
    let rounded = |values: Vec<f64>| values.iter().map(|v| (v * 1e9).round() / 1e9).collect::<Vec<_>>();
    assert_eq!(rounded(values(&runs, 0, 0)), [2.0, 3.0]);
    assert_eq!(rounded(values(&runs, 0, 1)), [2.0, 4.0]);
    assert_eq!(runs.comparisons[0].series[0].observations[0].block, None);
    let (message, _, help) = fault(samples(&two[..3]));
    assert_eq!(message, "3.json: one run of `new` is compared with 2 of `old`");
    assert!(help.contains("old=1.json old=2.json"), "{help}");
    // As far as anybody knows, files that each hold one different command do the same work.
    let other = c.replace("\"c\"", "\"other\"");
    let runs = samples(&[(Some("old"), &a), (Some("new"), &other)]).unwrap();
    assert_eq!((runs.each_is_a_run, runs.comparisons[0].series.len()), (false, 2));
    assert!(runs.notices[0].0.contains("`c`; `other`"), "{:?}", runs.notices);
    // Without names, the environments go by the names of the files, which must be distinct.
    assert_eq!(samples(&[(None, &a), (None, &b)]).unwrap().environments, ["1", "2"]);
    let same = [(file(None, "x/r.json"), a.into_bytes()), (file(None, "y/r.json"), b.into_bytes())];
    let (message, _, help) = fault(parse_tool(Tool::Hyperfine, &same));
    assert_eq!((message.as_str(), help.contains("NAME=FILE")), ("y/r.json: two files are named `r`", true));
}

#[test]
fn faults_of_hyperfine_have_their_places() {
    let wrong = |from: &str, to: &str| fault(samples(&[(None, &TWO_COMMANDS.replace(from, to))]));
    let (message, line, help) = wrong("8.0 ]", "0 ]");
    assert_eq!(message, "1.json:4:12: 0 is not a positive number");
    assert!(line.contains("4.0, 0") && help.contains("--shell=none"), "{line} {help}");
    let (message, ..) = wrong("[ 0, 1, 0 ]", "[ 0, 1 ]");
    assert!(message.starts_with("1.json:4:") && message.ends_with("3 times and 2 exit codes"), "{message}");
    let (message, ..) = wrong("\"times\": [ 1.0", "\"mean\": [ 1.0");
    assert!(message.contains("the result has no individual times"), "{message}");
    let (message, _, help) = wrong("8.0 ], \"exit_codes\": [ 0, 1, 0 ] } ] }", "8.0");
    assert!(message.starts_with("1.json:4:") && help.contains("cut short"), "{message} {help}");
    let (message, ..) = wrong("8.0", "\"fast\"");
    assert!(message.starts_with("1.json:4:") && message.contains("expected f64"), "{message}");
}

const GO: &str = "goos: linux\ngoarch: amd64\npkg: example.org/p\ncpu: A CPU\n\
    BenchmarkSum-2         \t     100\t        10.00 ns/op\t      16 B/op\t       0 allocs/op\n\
    BenchmarkSum-2         \t     100\t        12.50 ns/op\t      16 B/op\t       0 allocs/op\n\
    BenchmarkCopy/size=1k-2\t     100\t      1000 ns/op\t64.00 MB/s\nPASS\nok  \texample.org/p\t1.2s\n";

#[test]
fn result_lines_of_go_are_repetitions_and_packages_again_are_runs() {
    let samples = one(GO);
    assert_eq!(
        names(&samples),
        [
            ("example.org/p.Sum-2", "time", "s", true),
            ("example.org/p.Sum-2", "B/op", "B", false),
            ("example.org/p.Copy/size=1k-2", "time", "s", true),
            ("example.org/p.Copy/size=1k-2", "MB/s", "B/s", false),
        ]
    );
    assert_eq!(values(&samples, 0, 0), [10.0 * 1e-9, 12.5 * 1e-9]);
    assert_eq!(samples.comparisons[3].metric.better, Better::Higher);
    assert!(samples.notices[0].0.contains("values of 0"), "{:?}", samples.notices);
    let twice = format!("{GO}{GO}");
    let runs = super::tests::samples(&[(Some("old"), &twice), (Some("new"), &twice)]).unwrap();
    assert!(runs.each_is_a_run);
    assert_eq!(runs.comparisons[0].series[0].observations.len(), 2);
}

#[test]
fn units_of_go_give_metrics_their_names_and_directions() {
    let text = "Unit ops/s better=higher\nUnit hits-1 better=higher\nBenchmarkA 1 5 ops/s 2 hits-1 7 p99-ns\n\
                --- FAIL: BenchmarkA\n";
    let samples = one(text);
    assert_eq!(
        names(&samples),
        [("A", "ops/s", "ops/s", true), ("A", "hits", "1", true), ("A", "p99", "s", false)]
    );
    assert_eq!(samples.comparisons[1].metric.better, Better::Higher);
    let failed: Vec<u32> = samples.comparisons.iter().map(|one| one.series[0].failed).collect();
    assert_eq!((failed, values(&samples, 2, 0)[0]), (vec![1, 1, 0], 7.0 * 1e-9));
    let broken = one("BenchmarkA\nBenchmarkA 1 5 ns/op\nBenchmarkB-2 a word\n     100 7 ns/op\n");
    assert_eq!(broken.comparisons.len(), 1);
    assert!(broken.notices[0].0.ends_with("but are not one in 1.json: 1"), "{:?}", broken.notices);
    // If no unit is a time and none is declared, all of them matter.
    assert_eq!(names(&one("BenchmarkA 1 7 p99-ns 2 hits/s\n")).iter().filter(|name| name.3).count(), 2);
}

#[test]
fn failures_of_go_are_counted_in_every_form() {
    const RESULT: &str = "BenchmarkA-8   \t     100\t        10.00 ns/op\t      16 B/op\n";
    let counted = |failure: &str| {
        let samples = one(&format!("{RESULT}{failure}{RESULT}"));
        assert!(samples.notices.iter().all(|(seen, _)| !seen.contains("not one")), "{:?}", samples.notices);
        let counted = samples.comparisons.iter().map(|one| (one.workload.clone(), one.series[0].failed));
        counted.collect::<Vec<_>>()
    };
    let of =
        |counts: &[(&str, u32)]| counts.iter().map(|(name, n)| (name.to_string(), *n)).collect::<Vec<_>>();
    // A repetition, without -v and with it; the time gets a verdict and the memory does not.
    for failure in [
        "BenchmarkA-8   \t--- FAIL: BenchmarkA-8\n    a_test.go:28: on purpose\n",
        "--- FAIL: BenchmarkA-8\n    a_test.go:28: on purpose\n",
        "BenchmarkA-8   \t--- FAIL: BenchmarkA\n",
        "--- FAIL: BenchmarkA\n",
    ] {
        assert_eq!(counted(failure), of(&[("A-8", 1), ("A-8", 0)]), "{failure}");
    }
    // A benchmark without any result.
    for failure in ["BenchmarkB-8   \t--- FAIL: BenchmarkB-8\n", "--- FAIL: BenchmarkB\n"] {
        assert_eq!(counted(failure), of(&[("A-8", 0), ("A-8", 0), ("B-8", 1)]), "{failure}");
    }
    assert_eq!(counted("a word --- FAIL: BenchmarkA-8\n"), of(&[("A-8", 0), ("A-8", 0)]));
}

#[test]
fn faults_of_go_have_their_places() {
    let (message, line, help) = fault(samples(&[(None, &GO[..GO.find(" B/op").unwrap()])]));
    assert_eq!(message, "1.json:5:1: the result has a value without a unit");
    assert!(line.starts_with("BenchmarkSum") && help.contains("cut short"), "{line} {help}");
    let (message, ..) = fault(samples(&[(None, &GO.replace("12.50", "fast"))]));
    assert!(message.starts_with("1.json:6:") && message.ends_with("`fast` is not a number"), "{message}");
    let (message, ..) = fault(samples(&[(None, &GO.replace("12.50", "0.0"))]));
    assert!(message.ends_with("0.0 is not a positive number"), "{message}");
    let events = "{\"Action\":\"output\",\"Output\":\"BenchmarkSum 1 2 ns/op\"}\n";
    let (message, _, help) = fault(parse_tool(Tool::Go, &[(file(None, "x"), events.into())]));
    assert!(message.contains("-json") && help.contains("without -json"), "{message} {help}");
    let (message, ..) = fault(parse_tool(Tool::Go, &[(file(None, "x"), b"PASS\n".to_vec())]));
    assert_eq!(message, "x: the file holds no result of a benchmark");
}

const GOOGLE: &str = r#"{ "context": { "executable": "b" }, "benchmarks": [
  { "name": "f/8", "run_name": "f/8", "run_type": "iteration", "repetitions": 2, "repetition_index": 0, "real_time": 2.0e+01, "cpu_time": 1.9e+01, "time_unit": "ns", "bytes_per_second": 4e9 },
  { "name": "f/8", "run_name": "f/8", "run_type": "iteration", "repetitions": 2, "repetition_index": 1, "real_time": 2.5e+01, "cpu_time": 2.4e+01, "time_unit": "ns", "bytes_per_second": 3e9 },
  { "name": "g", "run_name": "g", "run_type": "iteration", "error_occurred": true, "error_message": "no", "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ns" },
  { "name": "f/8_mean", "run_name": "f/8", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 2.2e+01, "cpu_time": 2.1e+01, "time_unit": "ns" } ] }"#;

#[test]
fn repetitions_of_google_benchmark_count_and_aggregates_do_not() {
    let samples = one(GOOGLE);
    assert_eq!(
        names(&samples),
        [
            ("f/8", "real_time", "s", true),
            ("f/8", "cpu_time", "s", false),
            ("f/8", "bytes_per_second", "B/s", false),
            ("g", "real_time", "s", true),
        ]
    );
    assert_eq!(values(&samples, 0, 0), [20.0 * 1e-9, 25.0 * 1e-9]);
    assert_eq!((samples.comparisons[3].series[0].failed, samples.comparisons[3].series[0].tried), (1, 1));
    let (message, _, help) =
        fault(super::tests::samples(&[(None, &GOOGLE.replace("\"iteration\"", "\"aggregate\""))]));
    assert!(message.contains("aggregates only"), "{message}");
    assert!(help.contains("--benchmark_report_aggregates_only=false"), "{help}");
    let (message, ..) = fault(super::tests::samples(&[(
        None,
        &GOOGLE.replace("\"ns\", \"bytes", "\"fortnights\", \"bytes"),
    )]));
    assert!(message.starts_with("1.json:2:") && message.contains("`fortnights`"), "{message}");
}

/// Google Benchmark 1.7 divides 0 by 0 for the variation of a counter that is always 0.
#[test]
fn a_value_that_is_no_number_is_none() {
    let odd = GOOGLE.replace("\"real_time\": 2.2e+01", "\"zeros\": -NaN, \"real_time\": Infinity");
    let odd = odd.replace("4e9", "NaN").replace("3e9", "-Infinity").replace("f/8", "f/\\\\\\\"NaN");
    let samples = one(&odd);
    let name = "f/\\\"NaN";
    let expected = [(name, "real_time", "s", true), (name, "cpu_time", "s", false)];
    assert_eq!(names(&samples)[..2], expected);
    assert!(samples.comparisons.iter().all(|of| of.metric.name != "bytes_per_second"), "{samples:?}");
    let (message, ..) = fault(super::tests::samples(&[(None, &GOOGLE.replace("2.0e+01", "NaN"))]));
    assert!(message.contains("the benchmark has no `real_time`"), "{message}");
    // The text of Go is left alone.
    let (message, ..) = fault(super::tests::samples(&[(None, &GO.replace("12.50", "NaN"))]));
    assert!(message.ends_with("NaN is not a positive number"), "{message}");
}

#[test]
fn rounds_of_pytest_benchmark_are_seconds() {
    let text = "{\"machine_info\": {}, \"benchmarks\": [\n{\"fullname\": \"t.py::a\", \"stats\": {\"mean\": 2.0, \"data\": [1.5,\n 2.5]}},\n{\"fullname\": \"t.py::b\", \"stats\": {\"mean\": 3.0}}]}";
    let samples = one(text);
    assert_eq!((values(&samples, 0, 0), values(&samples, 1, 0)), (vec![1.5, 2.5], vec![3.0]));
    assert!(samples.notices[0].1.contains("--benchmark-json"), "{:?}", samples.notices);
    let (message, line, _) = fault(super::tests::samples(&[(None, &text.replace("2.5", "-2.5"))]));
    assert_eq!((message.as_str(), line.as_str()), ("1.json:3:2: -2.5 is not a positive number", " -2.5]}},"));
}

#[test]
fn jobs_of_fio_that_ran_together_are_one() {
    let real = String::from_utf8(data("fio-3.33.json")).unwrap();
    let samples = one(&real);
    assert_eq!(
        names(&samples)[..3],
        [
            ("seq", "read_bandwidth", "B/s", true),
            ("seq", "read_latency", "s", true),
            ("seq", "read_iops", "op/s", false)
        ]
    );
    assert_eq!(samples.comparisons.len(), 6);
    let parsed: serde_json::Value = serde_json::from_str(&real).unwrap();
    let sum = |key: &str| -> f64 {
        parsed["jobs"].as_array().unwrap().iter().map(|job| job["read"][key].as_f64().unwrap()).sum()
    };
    assert_eq!(values(&samples, 0, 0), [sum("bw_bytes")]);
    assert_eq!(values(&samples, 2, 0), [sum("iops")]);
    // Text before and after it, as fio prints it beside its other formats.
    let around = format!("fio: a note\n{real}\n\nRun status group 0\n");
    assert_eq!(one(&around).comparisons, samples.comparisons);
    // If one of the jobs fails, or all, nothing of what they did together counts.
    for times in [1, 2] {
        let failed = one(&real.replacen("\"error\" : 0", "\"error\" : 5", times));
        assert_eq!(names(&failed), names(&samples));
        let series = failed.comparisons.iter().map(|one| &one.series[0]);
        assert!(series.clone().all(|of| of.failed == 1 && of.observations.is_empty()), "{failed:?}");
    }
    let (message, _, help) = fault(super::tests::samples(&[(None, &real[..real.len() / 2])]));
    assert!(message.contains("EOF") && help.contains("cut short"), "{message} {help}");
}

#[test]
fn a_job_of_fio_that_failed_at_once_is_no_job_that_was_not_there() {
    let job = |group: u32, error: u32, ios: u32| {
        format!(
            r#"{{"jobname": "a", "groupid": {group}, "error": {error}, "read": {{"total_ios": {ios}, "bw_bytes": 5, "iops": 2.0, "lat_ns": {{"mean": 7.0}}}}}}"#
        )
    };
    let counted = |jobs: &[String]| {
        let samples = one(&format!("{{\"fio version\": \"fio-3.33\", \"jobs\": [{}]}}", jobs.join(", ")));
        let counts = samples.comparisons.iter().map(|one| &one.series[0]);
        counts.map(|series| (series.failed, series.observations.len())).collect::<Vec<_>>()
    };
    assert_eq!(counted(&[job(0, 0, 10), job(0, 0, 10)]), [(0, 1); 3]);
    assert_eq!(counted(&[job(0, 5, 0), job(0, 0, 10)]), [(1, 0); 3]);
    assert_eq!(counted(&[job(0, 0, 10), job(0, 5, 0)]), [(1, 0); 3]);
    assert_eq!(counted(&[job(0, 0, 10), job(1, 5, 3)]), [(1, 1); 3], "another group is another measurement");
}

#[test]
fn metrics_of_firecracker_have_units_of_cloudwatch() {
    let text = r#"{"metrics": {"boot_time": {"unit": "Milliseconds", "values": [120, 130.5]},
      "bw_read": {"unit": "Kilobytes/Second", "values": [1000]}, "cpu_utilization_vmm": {"unit": "Percent", "values": [0]}},
      "dimensions": {"performance_test": "test_boottime", "vcpus": "2", "instance": "m5d.metal", "guest_kernel": "linux-6.1"}}"#;
    let samples = one(text);
    let test = "test_boottime{guest_kernel=linux-6.1,vcpus=2}";
    assert_eq!(names(&samples), [(test, "boot_time", "s", true), (test, "bw_read", "B/s", true)]);
    assert_eq!((values(&samples, 0, 0), values(&samples, 1, 0)), (vec![0.12, 0.1305], vec![1e6]));
    // Older versions did not write the dimensions.
    let old = r#"{"restore_latency": {"unit": "Microseconds", "values": [5, 6]}}"#;
    assert_eq!(names(&one(old)), [("metrics", "restore_latency", "s", true)]);
    let (message, ..) = fault(super::tests::samples(&[(None, &old.replace("Micro", "Pico"))]));
    assert!(message.contains("the unit `Picoseconds` of `restore_latency` is not known"), "{message}");
    assert_eq!(names(&one(&old.replace("Microseconds", "Megabits/Second")))[0].2, "B/s");
}

#[test]
fn tests_of_cloud_hypervisor_have_one_value_a_run() {
    let text = r#"{"git_human_readable": "v50", "git_revision": "abc", "git_commit_date": "d", "date": "d", "results": [
      {"name": "boot_time_ms", "mean": 80.5, "std_dev": 2.0, "max": 84.0, "min": 78.0},
      {"name": "block_read_MiBps", "mean": 2.0, "std_dev": 0.5, "max": 3.0, "min": 1.0}]}"#;
    let samples = one(text);
    assert_eq!(
        names(&samples),
        [("boot_time_ms", "time", "s", true), ("block_read_MiBps", "throughput", "B/s", true)]
    );
    assert_eq!((values(&samples, 0, 0), values(&samples, 1, 0)), (vec![80.5 * 1e-3], vec![2_097_152.0]));
    let (message, line, help) = fault(super::tests::samples(&[(None, &text.replace("MiBps", "parsecs"))]));
    assert!(message.starts_with("1.json:3:8: the name `block_read_parsecs`"), "{message}");
    assert!(line.contains("parsecs") && help.contains("_MiBps"), "{line} {help}");
    // A test that failed has a mean of 0.
    let failed = text.replace("\"mean\": 80.5", "\"status\": \"FAILED\", \"mean\": 0.0");
    let samples = one(&failed.replace("\"mean\": 2.0", "\"status\": \"PASSED\", \"mean\": 2.0"));
    let boot = &samples.comparisons[0].series[0];
    assert_eq!((boot.tried, boot.failed, boot.observations.len()), (1, 1, 0));
    assert_eq!(values(&samples, 1, 0), [2_097_152.0]);
    assert!(samples.notices[0].0.contains("that failed: 1, the first of boot_time_ms"), "{samples:?}");
}

/// The files that hyperfine 2.0, Go 1.19, Google Benchmark 1.7.1 and pytest-benchmark 5.3.1 wrote here.
#[test]
fn real_files_are_read() {
    let read = |name: &str| {
        let bytes = data(name);
        parse_tool(recognise(&bytes).expect("a tool"), &[(file(None, name), bytes)])
    };
    let hyperfine = read("hyperfine-2.0.json").unwrap();
    assert_eq!(hyperfine.environments, ["short", "failing"]);
    assert_eq!(names(&hyperfine), [("command", "time", "s", true)]);
    assert_eq!(values(&hyperfine, 0, 0), [0.0035324960000000004, 0.005542977]);
    let failing = &hyperfine.comparisons[0].series[1];
    assert_eq!((failing.tried, failing.failed, failing.observations.len()), (2, 2, 0));
    let go = read("go-1.19.txt").unwrap();
    let times: Vec<(&str, u32, usize)> = go
        .comparisons
        .iter()
        .filter(|of| of.metric.name == "time")
        .map(|of| (of.workload.as_str(), of.series[0].failed, of.series[0].observations.len()))
        .collect();
    assert_eq!(
        times,
        [
            ("example.org/sum.Sum-2", 0, 3),
            ("example.org/sum.Copy/size=1k-2", 0, 3),
            ("example.org/sum.Fails-2", 1, 0)
        ]
    );
    let google = read("google-benchmark-1.7.1.json").unwrap();
    assert_eq!(names(&google)[0], ("copy/64", "real_time", "s", true));
    assert_eq!(values(&google, 0, 0).len(), 3);
    let refused = google.comparisons.iter().find(|of| of.workload == "refuses").unwrap();
    assert_eq!((refused.series[0].failed, refused.series[0].tried), (3, 3));
    let aggregates = fault(read("google-benchmark-1.7.1-aggregates.json"));
    assert!(aggregates.0.contains("aggregates only"), "{}", aggregates.0);
    let pytest = read("pytest-benchmark-5.3.1.json").unwrap();
    assert_eq!(pytest.comparisons[0].workload, "test_b.py::test_sum");
    assert_eq!((values(&pytest, 0, 0).len(), values(&pytest, 0, 0)[0]), (5, 9.620999981052591e-6));
    assert_eq!(pytest.notices, []);
}

#[test]
fn files_are_recognised_by_their_content() {
    assert_eq!(recognise(&data("hyperfine-1.15.json")), Some(Tool::Hyperfine));
    assert_eq!(recognise(&data("fio-3.33.json")), Some(Tool::Fio));
    assert_eq!(recognise(GO.as_bytes()), Some(Tool::Go));
    assert_eq!(recognise(GOOGLE.as_bytes()), Some(Tool::GoogleBenchmark));
    // If the file is cut in the middle, the keys at the beginning still show the tool.
    assert_eq!(recognise(&GOOGLE.as_bytes()[..300]), Some(Tool::GoogleBenchmark));
    for other in [
        "environment,workload,metric,unit,better,value\n",
        "{\"environment\":\"n\",\"value\":1,\"results\":2}",
        "",
        "{}",
        "[]",
        "{\"a\": 1}",
    ] {
        assert_eq!(recognise(other.as_bytes()), None, "{other}");
    }
    // If --from names the wrong tool, the error names the right one.
    let wrong = parse_tool(Tool::Fio, &[(file(None, "x.json"), TWO_COMMANDS.into())]);
    assert!(fault(wrong).2.contains("a file of hyperfine"));
    let (message, ..) = fault(parse_tool(Tool::Fio, &[(file(None, "x.gz"), b"\x1f\x8b\x08".to_vec())]));
    assert_eq!(message, "x.gz: the file is compressed");
    let (message, ..) = fault(parse_tool(Tool::Hyperfine, &[(file(None, "x"), b" \n".to_vec())]));
    assert_eq!(message, "x: the file is empty");
    let (message, ..) =
        fault(parse_tool(Tool::Hyperfine, &[(file(None, "x"), b"{\"results\": []}".to_vec())]));
    assert_eq!(message, "x: the file holds no result");
}

#[test]
fn files_that_share_no_benchmark_and_units_that_differ_are_refused() {
    let other = GO.replace("Sum", "Product").replace("Copy", "Move");
    let (message, ..) = fault(samples(&[(Some("old"), GO), (Some("new"), &other)]));
    assert!(
        message.contains("`old` (`example.org/p.Sum-2`) and `new` (`example.org/p.Product-2`)"),
        "{message}"
    );
    let firecracker = |unit: &str| format!("{{\"m\": {{\"unit\": \"{unit}\", \"values\": [1]}}}}");
    let (a, b) = (firecracker("Seconds"), firecracker("Bytes"));
    let (message, ..) = fault(samples(&[(Some("a"), &a), (Some("b"), &b)]));
    assert!(message.contains("`m` of `metrics` is in `B`") && message.contains("in 1.json"), "{message}");
}

#[test]
fn thousands_of_benchmarks_are_read_in_time_that_grows_with_their_number() {
    let lines = (0..20_000).map(|n| format!("Benchmark{n} 1 {}.5 ns/op\n", n + 1));
    let text: String = lines.collect();
    let samples = samples(&[(Some("a"), &text), (Some("b"), &text)]).unwrap();
    assert_eq!((samples.comparisons.len(), samples.comparisons[9].series.len()), (20_000, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Real files with some bytes replaced and cut anywhere are read as files of any tool.
    #[test]
    fn no_bytes_make_it_panic(
        which in 0usize..6,
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        cut in any::<Index>(),
        whole in any::<bool>(),
    ) {
        let names = [
            "hyperfine-1.15.json",
            "hyperfine-2.0.json",
            "fio-3.33.json",
            "go-1.19.txt",
            "google-benchmark-1.7.1.json",
            "pytest-benchmark-5.3.1.json",
        ];
        let mut bytes = data(names[which]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        for tool in Tool::ALL {
            let files = [(file(Some("a"), "a"), bytes.clone()), (file(Some("b"), "b"), bytes.clone())];
            let _ = parse_tool(tool, &files);
        }
    }
}
