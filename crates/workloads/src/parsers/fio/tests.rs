use super::*;

/// fio 3.33, JSON+: a ramp and 4 kB reads at random places, 16 in flight.
const READS: &str = include_str!("../../../testdata/fio-3.33-randread.json");
/// The same version: a ramp and a mix of two jobs of 4 kB each, reported separately, with
/// `lat_percentiles`.
const MIX: &str = include_str!("../../../testdata/fio-3.33-randrw-2-jobs.json");
/// The same version: an operation that the kernel refuses.
const REFUSED: &str = include_str!("../../../testdata/fio-3.33-refused.json");
/// The same version, text for people.
const OTHER_TEXT: &str = include_str!("../../../testdata/fio-3.33.txt");

fn fields(text: &str) -> BTreeMap<&'static str, f64> {
    PARSER.fields.iter().filter_map(|(field, ..)| Some((*field, PARSER.value(text, field)?))).collect()
}

#[test]
fn json_is_read_with_the_last_group_measured_and_all_groups_counted() {
    let groups = fio_groups(READS);
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["ramp", "measured"]);
    let [ramp, measured] = groups.as_slice() else { panic!("two groups") };
    let fields = fields(READS);
    assert_eq!(fields["iops"], measured.read.iops);
    assert_eq!(fields["write_iops"], 0.0);
    let operations = ramp.read.operations + measured.read.operations;
    assert_eq!(fields["operations"], operations as f64);
    assert_eq!(fields["read_bytes"], (operations * 4096) as f64);
    assert_eq!(fields["duration"], ramp.read.runtime_s + measured.read.runtime_s);
    // fio's own numbers are consistent: bytes follow from operations, rates are over the time that
    // it measured.
    let rate = measured.read.operations as f64 / measured.read.runtime_s;
    assert!((fields["read_iops"] / rate - 1.0).abs() < 0.01, "{rate}");
    assert!((fields["read_bandwidth"] / 4096.0 / rate - 1.0).abs() < 0.01, "{rate}");
    // Little's law: the reads in flight are rate times latency.
    let in_flight = fields["read_iops"] * fields["read_latency_mean"];
    assert!((14.0..=16.5).contains(&in_flight), "{in_flight}");
    assert_eq!(PARSER.passes(READS, "complete"), Some(true));
    assert_eq!(PARSER.passes(READS, "other"), None);
    assert_eq!(PARSER.value(READS, "write_latency_mean"), None);
}

#[test]
fn histograms_hold_every_operation_of_the_measured_group() {
    let measured = &fio_groups(READS)[1].read;
    let completions = PARSER.histogram(READS, "read_completion").unwrap();
    assert_eq!(completions.len(), measured.operations);
    // The bins and the mean refer to the same operations; the bins are 1.6 % wide at most.
    let mean_s = PARSER.histogram(MIX, "read_latency").unwrap().mean() * 1e-9;
    let told_s = PARSER.value(MIX, "read_latency_mean").unwrap();
    assert!((mean_s / told_s - 1.0).abs() < 0.02, "{mean_s} {told_s}");
    assert!(
        PARSER.histogram(MIX, "write_completion").unwrap().mean()
            <= PARSER.histogram(MIX, "write_latency").unwrap().mean()
    );
    assert_eq!(PARSER.histogram(READS, "write_completion"), None);
    assert_eq!(PARSER.histogram(READS, "bandwidth"), None);
}

#[test]
fn jobs_of_a_group_are_added() {
    let report: serde_json::Value = serde_json::from_str(MIX).unwrap();
    let measured: Vec<_> =
        report["jobs"].as_array().unwrap().iter().filter(|job| job["jobname"] == "measured").collect();
    assert_eq!(measured.len(), 2);
    let sum = |pointer: &str| {
        measured.iter().map(|job| job.pointer(pointer).unwrap().as_f64().unwrap()).sum::<f64>()
    };
    let fields = fields(MIX);
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    near(fields["read_iops"], sum("/read/iops"));
    near(fields["write_iops"], sum("/write/iops"));
    near(fields["iops"], sum("/read/iops") + sum("/write/iops"));
    near(fields["bandwidth"], sum("/read/bw_bytes") + sum("/write/bw_bytes"));
    let latencies = PARSER.histogram(MIX, "write_latency").unwrap();
    near(latencies.len() as f64, sum("/write/total_ios"));
    let share = fields["read_iops"] / fields["iops"];
    assert!((0.6..0.8).contains(&share), "70 % of the mix are reads: {share}");
    assert!(fields["written_bytes"] > 0.0 && fields["read_bytes"] > fields["written_bytes"]);
}

#[test]
fn an_error_inside_the_output_fails_the_check() {
    assert_eq!(PARSER.passes(REFUSED, "complete"), Some(false));
    assert_eq!(fio_groups(REFUSED)[0].error, 22);
    // One job's error is not hidden by the others', nor is an operation that was short.
    let failed = MIX.replacen("\"error\" : 0", "\"error\" : 5", 1);
    assert_eq!(PARSER.passes(&failed, "complete"), Some(false));
    let short = READS.replacen("\"short_ios\" : 0", "\"short_ios\" : 1", 1);
    assert_eq!(PARSER.passes(&short, "complete"), Some(false));
}

#[test]
fn truncated_and_foreign_output_gives_nothing() {
    let half = &READS[..READS.len() / 2];
    for text in
        ["", "{", "fio: something went wrong\n", half, OTHER_TEXT, &READS.replace("\"groupid\"", "\"grp\"")]
    {
        assert_eq!(fio_groups(text), []);
        assert_eq!((PARSER.value(text, "iops"), PARSER.passes(text, "complete")), (None, None));
        assert_eq!(PARSER.histogram(text, "read_completion"), None);
    }
    // Text in front of the report, and reports before the last, do not count.
    let warned = format!("fio: this is a warning {{\n{MIX}\n{READS}\n");
    assert_eq!(fields(&warned), fields(READS));
}

/// A job of fio 2.0.8, as its source prints it, that read nothing.
const FAILED_TEXT: &str =
    "seq: (groupid=0, jobs=1): err=22 (file:engines/libaio.c, func=queue, error=Invalid argument): pid=7\n";

#[test]
fn text_that_failed_is_distinguished_from_text_that_is_cut_off() {
    assert_eq!(PARSER.passes(FAILED_TEXT, "complete"), Some(false));
    assert_eq!(fio_groups(&FAILED_TEXT.replace("err=22", "err= 0")), []);
}

/// The logs of RC25482 (fio 2.0.8), from the directory that `WEIGH_REFERENCE` names: the source of
/// the report's figure 6.
#[test]
fn the_logs_of_a_study_give_its_figure() {
    const LOGS: [(&str, [f64; 3]); 3] = [
        ("linux", [84_044.0, 112_034.0, 104_553.0]),
        ("docker", [84_092.0, 112_048.0, 104_518.0]),
        ("vm", [42_543.0, 56_160.0, 49_218.0]),
    ];
    let Some(reference) = std::env::var_os("WEIGH_REFERENCE") else {
        eprintln!(
            "SKIPPED the_logs_of_a_study_give_its_figure: WEIGH_REFERENCE names no directory of reference data"
        );
        return;
    };
    let directory = std::path::PathBuf::from(reference).join("felter-2014/fio");
    let mut latency_s = Vec::new();
    for (name, figure) in LOGS {
        let path = directory.join(format!("{name}.log"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let groups = fio_groups(&text);
        assert_eq!(groups.len(), 8, "{name}");
        assert_eq!(PARSER.passes(&text, "complete"), Some(true), "{name}");
        let group = |wanted: &str| groups.iter().find(|group| group.name == wanted).unwrap();
        let iops = |wanted: &str| group(wanted).read.iops + group(wanted).write.iops;
        assert_eq!(
            ["random-read-16x8", "random-write-16x8", "mixed-random-rw-32x8"].map(iops),
            figure,
            "{name}"
        );
        // The last group is the mix, which a manifest would get.
        assert_eq!(PARSER.value(&text, "iops"), Some(figure[2]), "{name}");
        for group in &groups {
            for direction in
                [&group.read, &group.write].into_iter().filter(|direction| direction.operations > 0)
            {
                let bytes = direction.operations as f64
                    * if group.name.starts_with("seq") { 1e6 * 1.048_576 } else { 4096.0 };
                assert!((direction.bytes / bytes - 1.0).abs() < 1e-3, "{name} {}", group.name);
                let rate = direction.bytes / direction.runtime_s;
                assert!((direction.bandwidth / rate - 1.0).abs() < 1e-3, "{name} {}", group.name);
            }
        }
        let sequential = group("seq-read-1");
        assert_eq!((sequential.read.operations, sequential.write.operations), (16_384, 0));
        latency_s.push(group("random-read-16").read.latency_mean_s.unwrap());
    }
    // Figure 7: KVM's latency is twice to three times the others'.
    assert!((latency_s[1] / latency_s[0] - 1.0).abs() < 0.02, "{latency_s:?}");
    assert!((2.0..3.0).contains(&(latency_s[2] / latency_s[0])), "{latency_s:?}");
}
