//! Good and bad outputs.

use super::*;
use crate::command::command_workload;
use weigh_model::{Better, MetricSpec, Unit};

fn metric(name: &str, from: Extraction, factor: f64) -> MetricSource {
    let unit = Unit::normalise("op/s").0;
    MetricSource {
        spec: MetricSpec { name: name.into(), unit, better: Better::Higher, primary: true },
        from,
        factor,
    }
}

fn plan(check: Option<Extraction>, metrics: Vec<MetricSource>) -> WorkloadPlan {
    let command = command_workload(&["x".into()]);
    WorkloadPlan { check, metrics, ..command }
}

fn result<'a>(status: Ended, output: &'a str, error: &'a str) -> RawResult<'a> {
    let resources = Resources { user_ns: 1_500_000, system_ns: 0, maximum_resident_set_bytes: 2 << 20 };
    RawResult {
        status,
        output: output.as_bytes(),
        error: error.as_bytes(),
        duration_ns: 2_500_000_000,
        resources,
    }
}

const ENDED_WELL: Ended = Ended::Exited(0);

fn json(pointer: &str) -> Extraction {
    Extraction::Json { pointer: pointer.into() }
}

fn regex(pattern: &str) -> Extraction {
    Extraction::Regex { pattern: pattern.into() }
}

#[test]
fn a_command_gives_its_time_and_resource_use() {
    let plan = command_workload(&["x".into()]);
    let values = extract(&plan, &result(ENDED_WELL, "", "")).unwrap().values;
    let expected = [("time", 2.5), ("cpu_time", 0.0015), ("maximum_resident_set", 2_097_152.0)];
    assert_eq!(values, expected.map(|(name, value)| (name.to_string(), value)).into());

    // A verdict needs a ratio, so 0 is not a measurement of a primary metric.
    let mut idle = result(ENDED_WELL, "", "");
    idle.resources.maximum_resident_set_bytes = 0;
    assert_eq!(extract(&plan, &idle).unwrap().values["maximum_resident_set"], 0.0);
    let mut plan = plan;
    plan.metrics[2].spec.primary = true;
    let error = extract(&plan, &idle).unwrap_err();
    assert_eq!(error.to_string(), "the value of maximum_resident_set is 0, which is not a positive number");
}

#[test]
fn a_kernel_gives_a_reason_in_place_of_a_value() {
    let metrics =
        ["total_time", "efficiency"].map(|name| metric(name, json(&format!("/metrics/{name}/value")), 1.0));
    let plan = plan(None, metrics.to_vec());
    let line = r#"{"metrics": {"total_time": {"value": 2.0}, "efficiency": {"refused": "no clock"}}}"#;
    let extracted = extract(&plan, &result(ENDED_WELL, line, "")).unwrap();
    assert_eq!(extracted.values, [("total_time".to_string(), 2.0)].into());
    assert_eq!(extracted.refused, [("efficiency".to_string(), "no clock".to_string())].into());
}

#[test]
fn values_come_from_the_last_line_by_pointer_and_from_anywhere_by_pattern() {
    let plan = plan(
        Some(json("/check/passed")),
        vec![metric("a", json("/metrics/a/value"), 1.0), metric("b", regex(r"^b = ([0-9.]+) k$"), 1e3)],
    );
    let output =
        "noise {\n b = 1 k\nb = 2.5 k\r\n{\"metrics\":{\"a\":{\"value\":7}},\"check\":{\"passed\":true}}\n\n";
    let output = output.replace("k\r", "k");
    let values = extract(&plan, &result(ENDED_WELL, &output, "")).unwrap().values;
    assert_eq!(values, [("a".to_string(), 7.0), ("b".to_string(), 2500.0)].into());
}

#[test]
fn a_bad_exit_is_an_error_with_the_commands_output() {
    let plan = plan(None, Vec::new());
    let error = extract(&plan, &result(Ended::Exited(2), "out", "first\nno such file\n")).unwrap_err();
    assert_eq!(error.to_string(), "the command exited with status 2; it said: first\nno such file");
    assert_eq!(error.kind(), FailureKind::ExitStatus);
    let error = extract(&plan, &result(Ended::Signalled(9), "last words", " \n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the command was ended by signal 9 (SIGKILL), as when memory runs out; it said: last words"
    );
    assert_eq!(
        extract(&plan, &result(Ended::Exited(1), "", "")).unwrap_err().to_string(),
        "the command exited with status 1"
    );
}

#[test]
fn only_the_end_of_a_long_output_is_shown() {
    let long = (0..10_000).map(|line| format!("line {line} é\n")).collect::<String>();
    let error =
        extract(&plan(None, Vec::new()), &result(Ended::Exited(1), "", &long)).unwrap_err().to_string();
    assert!(error.ends_with("line 9999 é") && error.len() < 900, "{error}");
    assert_eq!(error.lines().count(), TAIL_LINES);
}

#[test]
fn a_failed_check_is_a_failed_trial_whatever_the_status() {
    let plan = plan(Some(json("/check/passed")), vec![metric("a", json("/a"), 1.0)]);
    let output = r#"{"a":1,"check":{"passed":false,"statement":"7 words are wrong"}}"#;
    for status in [Ended::Exited(3), ENDED_WELL] {
        let error = extract(&plan, &result(status, output, "")).unwrap_err();
        assert_eq!(error.to_string(), "the check failed: 7 words are wrong");
        assert_eq!(error.kind(), FailureKind::Check);
    }
    // Without a failed check the status remains the failure.
    let passed = output.replace("false", "true");
    assert_eq!(
        extract(&plan, &result(Ended::Exited(3), &passed, "")).unwrap_err().kind(),
        FailureKind::ExitStatus
    );
    let error = extract(&plan, &result(ENDED_WELL, "{\"a\":1}", "")).unwrap_err().to_string();
    assert!(
        error.contains("has to pass `/check/passed` in a last line that is JSON; it said: {\"a\":1}"),
        "{error}"
    );
    for word in ["\"yes\"", "1", "null"] {
        let output = format!("{{\"a\":1,\"check\":{{\"passed\":{word}}}}}");
        assert!(extract(&plan, &result(ENDED_WELL, &output, "")).is_err(), "{word} is not true");
    }
}

#[test]
fn checks_by_pattern_and_by_parser() {
    let by_pattern = plan(Some(regex("^OK$")), Vec::new());
    assert!(extract(&by_pattern, &result(ENDED_WELL, "x\nOK\n", "")).is_ok());
    let error = extract(&by_pattern, &result(ENDED_WELL, "NOT OK\n", "")).unwrap_err().to_string();
    assert_eq!(
        error,
        "the check failed: the output has to pass the regular expression `^OK$`; it said: NOT OK"
    );
    let parser = Extraction::Parser { parser: "stream".into(), field: "validates".into() };
    let by_parser = plan(Some(parser), Vec::new());
    assert!(extract(&by_parser, &result(ENDED_WELL, "", "")).is_err());
}

#[test]
fn values_that_are_missing_or_no_measurement_name_their_metric() {
    let one = |from: Extraction, output: &str| {
        extract(&plan(None, vec![metric("rate", from, 1.0)]), &result(ENDED_WELL, output, "")).unwrap_err()
    };
    for (from, output) in [
        (json("/a"), "{\"b\":1}"),
        (json("/a"), "text"),
        (json("/a"), "{\"a\":1}\nafter"),
        (json("/a"), ""),
        (regex("a=([0-9]+)"), "b=1"),
        (Extraction::Parser { parser: "stream".into(), field: "triad".into() }, "Triad: 1"),
        (Extraction::Parser { parser: "gone".into(), field: "x".into() }, ""),
    ] {
        let error = one(from, output);
        assert!(matches!(error, ExtractError::Missing { .. }), "{error}");
        assert!(error.to_string().starts_with("no value of rate in the output: looked for "), "{error}");
        assert_eq!(error.kind(), FailureKind::Check);
    }
    for (from, output, found) in [
        (json("/a"), "{\"a\":0}", "0"),
        (json("/a"), "{\"a\":-2.5}", "-2.5"),
        (json("/a"), "{\"a\":\"12\"}", "`\"12\"`"),
        (json("/a"), "{\"a\":null}", "`null`"),
        (regex("a=(.*)"), "a=nan", "NaN"),
        (regex("a=(.*)"), "a=inf", "inf"),
        (regex("a=(.*)"), "a=twelve", "`twelve`"),
        (regex("a=(.*)"), "a=", "``"),
    ] {
        let error = one(from, output);
        assert!(
            error.to_string().starts_with(&format!("the value of rate is {found}, which")),
            "{output}: {error}"
        );
    }
    let nothing = RawResult { duration_ns: 0, ..result(ENDED_WELL, "", "") };
    let timed = plan(None, vec![metric("time", Extraction::Duration, 1.0)]);
    assert!(extract(&timed, &nothing).is_err(), "a duration of nothing is a clock that stands");
}

#[test]
fn output_that_is_no_text_is_read_as_far_as_it_is() {
    let plan = plan(None, vec![metric("a", regex("a=([0-9]+)"), 1.0)]);
    let raw = RawResult { output: b"\xff\xfea=12\xff\n", ..result(ENDED_WELL, "", "") };
    assert_eq!(extract(&plan, &raw).unwrap().values["a"], 12.0);
}

/// Ten values of 1 to 10 us, as the kernels print them.
fn histogram() -> String {
    use hdrhistogram::serialization::{Serializer as _, V2Serializer};
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for us in 1..=10 {
        histogram.record(us * 1000).unwrap();
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
    BASE64_STANDARD.encode(bytes)
}

#[test]
fn amounts_and_histograms_are_kept_beside_the_values() {
    let quantile = |quantile| Extraction::Quantile { histogram: "/h/latency".into(), quantile };
    let mut plan = plan(None, vec![metric("p50", quantile(0.5), 1.0), metric("p99", quantile(0.99), 1.0)]);
    plan.operations = Some(weigh_model::Operations { name: "x".into(), from: json("/operations") });
    plan.tool_duration = Some(json("/duration"));
    plan.random_read_bytes = Some(regex("^read ([0-9]+)$"));
    let text = histogram();
    let output =
        format!("read 4096\n{{\"h\":{{\"latency\":\"{text}\"}},\"operations\":10,\"duration\":1.5}}");
    let extracted = extract(&plan, &result(ENDED_WELL, &output, "")).unwrap();
    assert!(extracted.values.is_empty(), "a quantile has no value before histograms are merged");
    assert_eq!(extracted.histograms, [("/h/latency".to_string(), text)].into());
    assert_eq!(
        (extracted.operations, extracted.tool_duration_ns, extracted.random_read_bytes),
        (Some(10.0), Some(1_500_000_000), Some(4096))
    );
    // A job that only wrote reports no reads.
    let wrote = extract(&plan, &result(ENDED_WELL, &output.replace("read 4096", "read 0"), "")).unwrap();
    assert_eq!(wrote.random_read_bytes, None);
    for (from, to, words) in [
        ("10,", "0,", "the value of operations is 0"),
        ("operations", "operation", "no value of operations"),
        ("1.5", "-1", "the tool's own duration is -1"),
        ("read 4096", "read", "no value of bytes read at random places"),
    ] {
        let error = extract(&plan, &result(ENDED_WELL, &output.replace(from, to), "")).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.kind(), FailureKind::Check);
    }
}

#[test]
fn an_invalid_histogram_is_named() {
    let from = Extraction::Quantile { histogram: "/h".into(), quantile: 0.99 };
    let plan = plan(None, vec![metric("p99", from, 1.0)]);
    let cut = histogram()[..60].to_string();
    for (value, words) in [
        ("7".to_string(), "is not text"),
        ("\"???\"".into(), "is not base64"),
        ("\"AAAA\"".into(), "cannot be read"),
        (format!("\"{cut}\""), "cannot be read"),
        (format!("\"{}\"", "A".repeat(1 << 20)), "has 1048576 bytes"),
    ] {
        let error = extract(&plan, &result(ENDED_WELL, &format!("{{\"h\":{value}}}"), "")).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("the histogram at `/h` ") && said.contains(words), "{said}");
        assert_eq!(error.kind(), FailureKind::Check);
    }
    let error = extract(&plan, &result(ENDED_WELL, "{}", "")).unwrap_err().to_string();
    assert!(error.contains("no value of p99 in the output: looked for the quantile 0.99"), "{error}");
}
