//! Logs in the forms of the tools and of the scripts around them, with made-up numbers.

use super::*;

fn values(parser: &str, field: &str, section: Option<&str>, text: &str) -> Vec<f64> {
    logged_runs(parser, field, section, text).unwrap().iter().map(|run| run.value).collect()
}

fn fault(parser: &str, field: &str, section: Option<&str>, text: &str) -> (Option<usize>, String) {
    let fault = logged_runs(parser, field, section, text).unwrap_err();
    assert!(!fault.help.is_empty());
    (fault.line, fault.message)
}

fn stream_run(when: &str, triad: f64) -> String {
    format!(
        "----\nRunning stream with numaopts < --interleave=0,1 >, started at {when}\nArray size = 4000, Offset = 0\n----\n\
         Function      Rate (GB/s)   Avg time\nCopy:  1.5  0.1\nScale: 1.6  0.1\nAdd:   1.7  0.1\nTriad: {triad}  0.1\n----\n\
         Solution Validates\n----\n\n"
    )
}

#[test]
fn runs_of_stream_are_selected_by_section() {
    let text = [stream_run("Mon", 2.0), stream_run("Tue", 3.0), stream_run("Wed", 4.0)].concat();
    assert_eq!(values("stream", "triad", None, &text), [2e9, 3e9, 4e9]);
    assert_eq!(values("stream", "triad", Some("started at Tue"), &text), [3e9]);
    let runs = logged_runs("stream", "copy", None, &text).unwrap();
    assert_eq!((runs[1].line, runs[1].value), (16, 1.5e9));
    assert_eq!(
        fault("stream", "triad", Some("Sun"), &text),
        (None, "none of its 3 runs is called `Sun`".into())
    );
}

#[test]
fn a_run_that_was_cut_off_or_failed_is_pointed_at() {
    let whole = [stream_run("Mon", 2.0), stream_run("Tue", 3.0)].concat();
    let cut = whole.rsplit_once("Triad").unwrap().0;
    assert_eq!(
        fault("stream", "triad", None, cut),
        (Some(16), "the run that begins here was cut off before its verdict".into())
    );
    let failed = whole.replacen("Solution Validates", "Failed Validation", 1);
    assert_eq!(
        fault("stream", "triad", None, &failed),
        (Some(3), "the run that begins here failed its own check".into())
    );
    assert_eq!(fault("stream", "triad", None, "nothing"), (None, "it holds no output of stream".into()));
    let mangled = whole.replacen("Triad: 2", "Triad: x", 1);
    assert!(fault("stream", "triad", None, &mangled).1.contains("cut off"));
}

/// A run whose head is lost would be missed, and the runs after it counted in its place.
#[test]
fn a_log_that_begins_within_a_run_is_refused() {
    let stream = [stream_run("Mon", 2.0), stream_run("Tue", 3.0)].concat();
    let fio = [fio_group(0, "fill", 1, 5), fio_group(1, "read", 1, 100)].concat();
    let gups = |rate: f64| {
        format!(
            "Main table size   = 2^10 = 1000 words\n{rate} Billion(10^9) Updates    per second [GUP/s]\nFound 0 errors in 1000 locations (passed).\n"
        )
    };
    let gups = [gups(0.5), gups(0.25)].concat();
    let redis = "====== GET ======\n  500 requests completed in 0.01 seconds\n  4 parallel clients\n\n600.5 requests per second\n\n"
        .repeat(2);
    let sysbench = "sysbench 0.4.12:\n\nNumber of threads: 10\n    transactions:  600  (9.5 per sec.)\n    \
                    execution time (avg/stddev):   59.8/0.00\n"
        .repeat(2);
    let linpack =
        "Size LDA Align. Time(s) GFlops Residual Residual(norm) Check\n900 900 1 2.0 20.5 1e-9 3e-2 pass\n\n\
                   Performance Summary (GFlops)\n\nResidual checks PASSED\n"
            .repeat(2);
    for (parser, field, text, lost) in [
        ("stream", "triad", &stream, "Triad"),
        ("fio", "iops", &fio, "  read"),
        ("fio", "iops", &fio, "     issued"),
        ("fio", "iops", &JSON.repeat(2), "  \"jobs\""),
        ("random-access", "rate", &gups, "0.5 Billion"),
        ("random-access", "rate", &gups, "Found"),
        ("redis-benchmark", "rate", &redis, "  4"),
        ("sysbench", "transaction_rate", &sysbench, "Number"),
        ("sysbench", "transaction_rate", &sysbench, "    execution"),
        ("intel-linpack", "last_rate", &linpack, "900"),
    ] {
        let whole = values(parser, field, None, text).len();
        let rest = &text[text.find(lost).unwrap()..];
        let (line, message) = fault(parser, field, None, rest);
        assert_eq!((line, message.as_str()), (Some(1), "the log begins within a run"), "{parser} {lost}");
        let marked = format!("\u{feff}{text}");
        assert_eq!(values(parser, field, None, &marked).len(), whole, "{parser}");
    }
}

fn fio_group(id: u32, name: &str, jobs: u32, iops: u32) -> String {
    let job = format!(
        "{name}: (groupid={id}, jobs=1): err= 0: pid=7\n  read : io=4096KB, bw=100KB/s, iops={iops} , runt= 1000msec\n    \
         clat (usec): min=1 , max=9 , avg= 4.00, stdev= 1.00\n    clat percentiles (usec):\n     |  1.00th=[    1], 10.00th=[   12],\n     \
         | 50.00th=[  250], 99.90th=[ 1000]\n    bw (KB/s)  : min=1\n  cpu : usr=1%\n     issued    : total=r=1024/w=0/d=0, short=r=0/w=0/d=0\n"
    );
    job.repeat(jobs as usize)
}

#[test]
fn groups_of_fio_are_called_by_their_names() {
    let text = format!(
        "fill: (g=0): rw=write\n2.0.8\n\n{}{}",
        fio_group(0, "fill", 1, 5),
        fio_group(1, "read", 3, 100)
    );
    assert_eq!(values("fio", "iops", Some("fill"), &text), [5.0]);
    assert_eq!(values("fio", "iops", Some("read"), &text), [300.0], "three jobs of a group together");
    let near = |field: &str, seconds: f64| {
        let found = values("fio", field, Some("fill"), &text)[0];
        assert!((found - seconds).abs() < 1e-12, "{field}: {found}");
    };
    near("completion_p10", 12e-6);
    near("completion_p50", 250e-6);
    near("completion_p999", 1000e-6);
    assert!(fault("fio", "completion_p90", Some("fill"), &text).1.contains("no `completion_p90`"));
    let (_, message) = fault("fio", "completion_p50", Some("read"), &text);
    assert!(message.contains("have percentiles of their own"), "{message}");
    assert!(fault("fio", "write_iops", Some("read"), &text).1.contains("is 0, which is no measurement"));
    let cut = text.rsplit_once("issued").unwrap().0;
    assert_eq!(values("fio", "iops", Some("fill"), cut), [5.0], "what was whole before is whole");
    let (line, message) = fault("fio", "iops", Some("read"), cut);
    assert_eq!((line, message.contains("cut off")), (Some(13), true));
    let wrong = text.replacen("err= 0", "err= 5", 1);
    assert!(fault("fio", "iops", Some("fill"), &wrong).1.contains("failed its own check"));
}

/// A run of fio: the list of its jobs, its groups, and their status.
fn fio_run(groups: &str) -> String {
    format!(
        "rr: (g=0): rw=randread, bs=4K-4K/4K-4K, ioengine=libaio, iodepth=16\n2.0.8\nStarting 2 threads\n\n{groups}\n\
         Run status group 0 (all jobs):\n   READ: io=4096KB\n\nDisk stats (read/write):\n  dm-1: ios=1/0\n"
    )
}

#[test]
fn runs_of_fio_in_one_log_are_not_added() {
    // Containers give every run the same process id.
    let text: String = (1..=10).map(|run| fio_run(&fio_group(0, "rr", 2, 100 + run))).collect();
    let expected: Vec<f64> = (1..=10).map(|run| f64::from(2 * (100 + run))).collect();
    assert_eq!(values("fio", "iops", Some("rr"), &text), expected);
    // One of the two signs of another run is enough.
    let process = |id: u32| fio_group(0, "rr", 1, 100 + id).replace("pid=7", &format!("pid={id}"));
    let status = "Run status group 0 (all jobs):\n   READ: io=4096KB\n";
    let text = [process(1), process(2)].join(status);
    assert_eq!(values("fio", "iops", None, &text), [101.0, 102.0]);
    let text = [process(1), process(1)].join("rr: (g=0): rw=randread, bs=4K-4K/4K-4K\n");
    assert_eq!(values("fio", "iops", None, &text), [101.0, 101.0]);
}

#[test]
fn the_last_report_of_a_process_of_fio_counts() {
    let report = |iops: u32| {
        let groups = [fio_group(0, "fill", 2, iops), fio_group(1, "read", 1, 2 * iops)].concat();
        format!("{groups}Run status group 0 (all jobs):\n\nRun status group 1 (all jobs):\n")
    };
    let run = |iops: u32| fio_run(&[report(iops), report(iops + 1), report(iops + 2)].concat());
    let text = [run(10), run(20)].concat();
    assert_eq!(values("fio", "iops", Some("fill"), &text), [24.0, 44.0]);
    assert_eq!(values("fio", "iops", Some("read"), &text), [24.0, 44.0]);
}

#[test]
fn updates_of_random_access_are_read_run_by_run() {
    let run = |rate: f64, errors: u32| {
        format!(
            "Running gups, started at Sat\nSetting up libgomp1 ...\nMain table size   = 2^10 = 1000 words\nNumber of updates = 9\n\
             Real time used = 1.0 seconds\n{rate} Billion(10^9) Updates    per second [GUP/s]\n\
             Found {errors} errors in 1000 locations (passed).\n\n"
        )
    };
    let text = [run(0.5, 0), run(0.25, 10)].concat();
    assert_eq!(values("random-access", "rate", None, &text), [0.5e9, 0.25e9]);
    let text = [run(0.5, 0), run(0.25, 11)].concat();
    assert_eq!(fault("random-access", "rate", None, &text).0, Some(11));
}

#[test]
fn solutions_of_linpack_are_runs() {
    let table = |when: &str, rows: &str| {
        format!(
            "----\nRunning linpack, started at {when}\nNumber of trials to run : 2\n\n\
             Size   LDA    Align. Time(s)    GFlops   Residual     Residual(norm) Check\n{rows}\nPerformance Summary (GFlops)\n\n\
             Size   LDA    Align.  Average  Maximal\n900  900  1  99.0  99.0\n\nResidual checks PASSED\n\n"
        )
    };
    let good = "900  900  1  2.0  20.5 1e-9 3e-2   pass\n900  900  1  2.1  19.5 1e-9 3e-2   pass\n";
    let text = [table("Mon", good), table("Tue", &good.replace("20.5", "30.5"))].concat();
    assert_eq!(values("intel-linpack", "last_rate", Some("Tue"), &text), [30.5e9, 19.5e9]);
    assert_eq!(values("intel-linpack", "last_rate", None, &text).len(), 4);
    let fail = table("Mon", &good.replacen("pass", "fail", 1));
    assert_eq!(fault("intel-linpack", "last_rate", None, &fail).0, Some(6));
    let cut = "Size   LDA    Align. Time(s)    GFlops   Residual\n900  900  1  2.0  2";
    let (line, message) = fault("intel-linpack", "last_rate", None, cut);
    assert_eq!((line, message.contains("cut off")), (Some(2), true));
}

#[test]
fn commands_of_redis_have_their_clients() {
    let command = |name: &str, clients: u32, rate: f64| {
        format!(
            "{name}: 1.00{name}: 2.00====== {name} ======\n  500 requests completed in 0.01 seconds\n  {clients} parallel clients\n  \
             3 bytes payload\n\n99.9% <= 1 milliseconds\n{rate} requests per second\n\n"
        )
    };
    let text = [
        command("SET", 4, 500.5),
        command("GET", 4, 600.0),
        command("GET", 8, 700.0),
        command("MSET (10 keys)", 8, 9.0),
    ]
    .concat();
    let runs = logged_runs("redis-benchmark", "rate", Some("GET"), &text).unwrap();
    let found: Vec<(Option<&str>, f64)> =
        runs.iter().map(|run| (run.point.as_deref(), run.value.round())).collect();
    assert_eq!(found, [(Some("4"), 600.0), (Some("8"), 700.0)]);
    let cut = text.replacen("600 requests per second", "", 1);
    assert!(fault("redis-benchmark", "rate", Some("GET"), &cut).1.contains("no `rate`"));
}

#[test]
fn points_of_sysbench_are_its_threads() {
    let point = |threads: u32, rate: f64| {
        format!(
            "sysbench 0.4.12:  multi-threaded system evaluation benchmark\n\nNumber of threads: {threads}\n\nOLTP test statistics:\n    \
             transactions:                        600  ({rate} per sec.)\n\nTest execution summary:\n    per-request statistics:\n         \
             avg:                                 10.50ms\n         approx.  95 percentile:              24.00ms\n\n"
        )
    };
    let text = [point(10, 900.5), point(20, 1800.0)].concat();
    let runs = logged_runs("sysbench", "transaction_rate", None, &text).unwrap();
    assert_eq!((runs[0].point.as_deref(), runs[0].value), (Some("10"), 900.5));
    assert_eq!((runs[1].point.as_deref(), runs[1].value), (Some("20"), 1800.0));
    assert!((values("sysbench", "latency_mean", None, &text)[0] - 10.5e-3).abs() < 1e-12);
    assert!((values("sysbench", "latency_p95", None, &text)[0] - 24e-3).abs() < 1e-12);
}

#[test]
fn runs_of_sysbench_have_the_headings_of_their_script() {
    let run = |heading: &str, rate: f64| {
        format!(
            "Running {heading}\nsysbench 0.4.12:  multi-threaded system evaluation benchmark\n\nRunning the test with following options:\n\
             Number of threads: 10\n\nDoing OLTP test.\nRunning mixed OLTP test\n    \
             transactions:                        600  ({rate} per sec.)\n\n"
        )
    };
    let text = [run("numa=16, 11 threads", 1.0), run("numa=1, 1 threads", 2.0)].concat();
    for section in ["numa=1", "1 threads", "Running numa=1,"] {
        assert_eq!(values("sysbench", "transaction_rate", Some(section), &text), [2.0], "{section}");
    }
    assert_eq!(values("sysbench", "transaction_rate", Some("=16"), &text), [1.0]);
    assert!(fault("sysbench", "transaction_rate", Some("OLTP"), &text).1.contains("is called `OLTP`"));
    // The command that makes the tables is not a run; one that was cut off is.
    let prepare = "sysbench 0.4.12:  multi-threaded system evaluation benchmark\n\nCreating table 'sbtest'...\n\
                   Creating 2000000 records in table 'sbtest'...\n";
    assert_eq!(values("sysbench", "transaction_rate", None, &format!("{prepare}{text}")), [1.0, 2.0]);
    let cut = format!("{text}sysbench 0.4.12:  multi-threaded system");
    assert!(fault("sysbench", "transaction_rate", None, &cut).1.contains("cut off"));
}

#[test]
fn values_of_a_table_are_called_by_their_other_columns() {
    let text = "\u{feff}bare,4096,2.5e-06\r\nrunc,4096,3.5E-06\n\nrunc,16384,9\nrunc,4096,4.5e-06";
    assert_eq!(values("csv", "seconds", Some("bare,4096"), text), [2.5e-6]);
    assert_eq!(values("csv", "seconds", Some("runc,4096"), text), [3.5e-6, 4.5e-6]);
    assert_eq!(values("csv", "milliseconds", Some("runc,16384"), text), [9e-3]);
    assert_eq!(values("csv", "bytes", Some("runc,16384"), text), [9.0]);
    let header = format!("runtime,metric,result\n{text}");
    assert_eq!(logged_runs("csv", "seconds", Some("runc,16384"), &header).unwrap()[0].line, 5);
    assert!(fault("csv", "seconds", Some("runc"), text).1.contains("none of its 4 runs is called `runc`"));
    let cut = text.replace("3.5E-06", "x");
    assert_eq!(fault("csv", "seconds", Some("runc,4096"), &cut).0, Some(2));
    assert!(fault("csv", "seconds", None, "\n").1.contains("no output of csv"));
    assert!(fault("csv", "seconds", None, "runc;4096;3,5\n").1.contains("has semicolons"));
}

#[test]
fn a_table_that_ends_within_a_line_is_refused() {
    let text = "bare,4096,2.5e-06\nrunc,4096,3.5e-06\nrunc,4096,4.5e-06";
    assert_eq!(values("csv", "seconds", Some("runc,4096"), text), [3.5e-6, 4.5e-6]);
    // A part of the exponent, all of it, and the value with a part of the name.
    for lost in [1, 4, 5, 6, 9] {
        let cut = &text[..text.len() - lost];
        for section in [None, Some("bare,4096"), Some("runc,4096")] {
            let (line, message) = fault("csv", "seconds", section, cut);
            assert_eq!((line, message.contains("within its line")), (Some(3), true), "{cut} {section:?}");
        }
    }
    // Not all programs write two digits of an exponent.
    let short = text.replace("3.5e-06", "3.5e-6").replace("4.5e-06", "4.5e-6");
    assert_eq!(values("csv", "seconds", Some("runc,4096"), &short), [3.5e-6, 4.5e-6]);
    assert_eq!(fault("boot-times", "from_start", None, "161000 106\n162000 110\n163").0, Some(3));
    assert_eq!(values("boot-times", "from_start", None, "161000\n162000"), [0.161, 0.162]);
}

#[test]
fn boot_times_are_read_from_the_start_and_from_the_call() {
    let text = "161000 106\n\n162000 110\n";
    assert_eq!(values("boot-times", "from_start", None, text), [0.161, 0.162]);
    assert_eq!(values("boot-times", "from_call", None, text), [0.106, 0.11]);
    let cut = text.replace(" 110", "");
    assert_eq!(fault("boot-times", "from_call", None, &cut).0, Some(3));
}

#[test]
fn times_of_a_client_say_when_each_began_and_ended() {
    let text = "a1 1000000 1000250 250\nb2 1000900 1001200 300\n";
    assert_eq!(values("client-times", "duration", None, text), [0.25, 0.3]);
    let runs = logged_runs("client-times", "duration", None, text).unwrap();
    assert_eq!((runs[1].line, runs[1].span), (2, Some((1000.9, 1001.2))));
    // A line that lacks its end, an end that lacks a digit, and columns of something else.
    for cut in [&text[..text.len() - 5], &text[..text.len() - 2], "a1 1000000 1000250\n", "a 1 2 3 4\n"] {
        let message = fault("client-times", "duration", None, cut).1;
        assert!(
            message.contains("is not a name, a start") || message.contains("cut off"),
            "{cut}: {message}"
        );
    }
}

/// The JSON of a run of fio 3.33: the ramp, then the group `measured`.
const JSON: &str = include_str!("../../../testdata/fio-3.33-randread.json");

#[test]
fn json_of_fio_is_named_by_its_last_group() {
    let text = JSON;
    assert_eq!(values("fio", "iops", None, text).len(), 1);
    assert_eq!(values("fio", "iops", Some("measured"), text), values("fio", "read_iops", None, text));
    assert!(fault("fio", "iops", Some("other"), text).1.contains("none of its 1 runs"));
    let cut = &text[..text.len() / 2];
    assert_eq!(fault("fio", "iops", None, cut).0, Some(1));
    // Version 3.1 reports only KiB.
    let early = text.replace("\"bw_bytes\"", "\"other\"");
    let [bytes, kib] = [text, &early].map(|text| values("fio", "bandwidth", None, text)[0]);
    assert!(bytes != kib && (bytes / kib - 1.0).abs() < 1e-3, "{bytes} {kib}");
}

#[test]
fn reports_of_fio_in_json_are_runs_of_their_own() {
    // A warning may precede a report (`2>&1`).
    let text = format!("fio: this is a warning\n{JSON}").repeat(10);
    let one = values("fio", "iops", None, JSON)[0];
    assert_eq!(values("fio", "iops", None, &text), [one; 10]);
    assert_eq!(values("fio", "iops", Some("measured"), &text).len(), 10);
    let runs = logged_runs("fio", "iops", None, &text).unwrap();
    let lines = JSON.lines().count() + 1;
    assert_eq!((runs[0].line, runs[1].line), (2, lines + 2));
    // A run that is cut off may have had any name.
    let cut = &text[..text.len() - JSON.len() / 2];
    for section in [None, Some("measured"), Some("other")] {
        let (line, message) = fault("fio", "iops", section, cut);
        assert_eq!((line, message.contains("cut off")), (Some(9 * lines + 2), true), "{section:?}");
    }
    let (line, message) = fault("fio", "iops", Some("measured"), &format!("{JSON}{{\n"));
    assert_eq!((line, message.contains("cut off")), (Some(lines), true));
}

#[test]
fn the_last_report_of_a_process_counts_in_json_too() {
    assert!(JSON.contains("\"timestamp\" : 1795344824,") && JSON.contains("\"elapsed\" : 2,"));
    let after = |seconds: u32, began: u32| {
        JSON.replace("\"elapsed\" : 2,", &format!("\"elapsed\" : {seconds},"))
            .replace("\"timestamp\" : 1795344824,", &format!("\"timestamp\" : {},", began + seconds))
    };
    let lines = JSON.lines().count();
    let began_at = |text: &str| -> Vec<usize> {
        logged_runs("fio", "iops", None, text).unwrap().iter().map(|run| run.line / lines).collect()
    };
    let one = [after(10, 1000), after(20, 1001), after(30, 1000)].concat();
    assert_eq!(began_at(&one), [2], "one run, whose last report begins after two others");
    let two = [after(10, 1000), after(30, 1000), after(10, 1032), after(30, 1032)].concat();
    assert_eq!(began_at(&two), [1, 3]);
    let short = [after(1, 1000), after(1, 1001)].concat();
    assert_eq!(began_at(&short), [0, 1]);
}

#[test]
fn versions_of_fio_that_are_not_read_are_named() {
    let text = include_str!("../../../testdata/fio-3.33.txt");
    let (line, message) = fault("fio", "iops", None, text);
    assert_eq!((line, message.contains("text of fio 3")), (Some(5), true), "{message}");
    let early = JSON.replace("fio-3.33", "fio-2.16").replace("\"clat_ns\"", "\"clat\"");
    assert!(fault("fio", "iops", None, &early).1.contains("JSON of fio 2"));
}

#[test]
fn unknown_parsers_and_fields_are_reported() {
    assert!(fault("fioo", "iops", None, "").1.contains("no parser `fioo`"));
    assert!(fault("fio", "iopz", None, "").1.contains("no field `iopz`"));
    assert!(is_in("stream", "triad", "GB/s") && !is_in("stream", "triad", "IOPS") && !is_in("x", "y", "s"));
    assert!(log_parsers().all(|parser| find(parser).is_some()));
}
