//! `weigh analyse`: result files of other tools, and results in their formats.

use crate::support::{Stage, cell_of};
use serde_json::{Value, json};
use std::fmt::Write;

/// A file of hyperfine with one command.
fn hyperfine(command: &str, times: &[f64]) -> String {
    let codes = vec![0; times.len()];
    json!({ "results": [{ "command": command, "times": times, "exit_codes": codes }] }).to_string()
}

/// Times around a level, the same in every call.
fn around(level: f64) -> Vec<f64> {
    [0.99, 1.01, 1.0, 0.995, 1.005, 0.992].map(|part| level * part).to_vec()
}

#[test]
fn two_files_of_one_run_each_get_no_verdict_but_runs_differ() {
    let stage = Stage::with_fakes();
    stage.write("a.json", hyperfine("sort", &around(0.2)));
    stage.write("b.json", hyperfine("sort", &around(0.24)));
    let report = stage.json("analyse old=a.json new=b.json --format json");
    assert_eq!(report["baseline"], "old");
    let new = cell_of(&report, "new", "time");
    assert_eq!(new["verdict"], "RUNS_DIFFER");
    assert!(new["flags"].to_string().contains("ONE_RUN"), "{new}");
    assert!((new["overhead"]["mean"].as_f64().unwrap() - 0.2).abs() < 1e-9, "{new}");
    assert!(report["samples"].as_str().unwrap().contains("one run each"), "{report}");
    assert_eq!(cell_of(&report, "old", "time")["verdict"], "BASELINE");
    stage.run("analyse old=a.json new=b.json --gate 3").ends_saying(4, &["one run on a side"]);
    let shown = stage.stdout("analyse old=a.json new=b.json");
    for words in ["hyperfine: one run each", "RUNS DIFFER", "weigh analyse A=1"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    // With the roles exchanged, and with equal files.
    let report = stage.json("analyse old=a.json new=b.json --baseline new --format json");
    assert!(cell_of(&report, "old", "time")["overhead"]["mean"].as_f64().unwrap() < -0.16);
    let report = stage.json("analyse old=a.json a.json --format json");
    assert_eq!(cell_of(&report, "a", "time")["verdict"], Value::Null);
}

#[test]
fn several_files_of_a_name_are_runs_and_get_a_verdict() {
    let stage = Stage::with_fakes();
    let mut line = String::from("analyse --format json");
    for run in 0..4 {
        let level = 1.0 + 0.01 * f64::from(run);
        stage.write(&format!("a{run}"), hyperfine("sort", &around(0.2 * level)));
        stage.write(&format!("b{run}"), hyperfine("sort", &around(0.24 * level)));
        write!(line, " old=a{run} new=b{run}").unwrap();
    }
    let report = stage.json(&line);
    let new = cell_of(&report, "new", "time");
    assert_eq!((&new["n"], &new["verdict"]), (&json!(4), &json!("SLOWER")), "{new}");
    assert!(!new["flags"].to_string().contains("ONE_RUN"), "{new}");
    assert!(report["samples"].as_str().unwrap().contains("each value is a run"), "{report}");
    stage.run(&format!("{line} --gate 3")).ends_with(3);
    stage.refuses(
        "analyse old=a0 old=a1 new=b0",
        &["one run of `new` is compared with 2 of `old`", "old=1.json"],
    );
}

/// The geometric means of the runs, compared by `scipy.stats.ttest_ind(log(new), log(old),
/// equal_var=False)` with its interval, scipy 1.17.1.
#[test]
fn runs_agree_with_welch_on_the_geometric_means() {
    let stage = Stage::with_fakes();
    let runs: [(&str, [&[f64]; 3]); 2] = [
        ("old", [&[1.0, 1.02, 0.99], &[1.05, 1.04], &[0.98, 1.0, 1.01]]),
        ("new", [&[1.2, 1.22, 1.19], &[1.26, 1.25], &[1.17, 1.2, 1.21]]),
    ];
    let mut line = String::from("analyse --format json");
    for (name, times) in runs {
        for (run, times) in times.iter().enumerate() {
            stage.write(&format!("{name}{run}"), hyperfine("sort", times));
            write!(line, " {name}={name}{run}").unwrap();
        }
    }
    let report = stage.json(&line);
    let new = cell_of(&report, "new", "time");
    let close = |key: &str, expected: f64| {
        let got = new.pointer(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
        assert!((got - expected).abs() < 1e-9, "{key}: {got} is not {expected}");
    };
    close("/overhead/mean", 0.1992061365982591);
    close("/overhead/ci_low", 0.1295476395942089);
    close("/overhead/ci_high", 0.2731604295783041);
    close("/p_diff", 0.0010937051780068796);
}

#[test]
fn commands_of_hyperfine_are_environments_and_several_files_are_blocks() {
    let stage = Stage::with_fakes();
    for run in 0..8 {
        let level = 1.0 + f64::from(run);
        let result = |command: &str, level: f64| json!({"command": command, "times": around(level), "exit_codes": [0, 0, 0, 0, 0, 0]});
        let slower = 1.05 + 0.001 * f64::from(run % 3);
        let file = json!({ "results": [result("x --old", level), result("x --new", level * slower)] });
        stage.write(&format!("r{run}.json"), file.to_string());
    }
    let report = stage.json("analyse r0.json --format json");
    assert_eq!(report["baseline"], "x --old");
    assert_eq!(cell_of(&report, "x --new", "time")["verdict"], "RUNS_DIFFER");
    let report =
        stage.json("analyse r0.json r1.json r2.json r3.json r4.json r5.json r6.json r7.json --format json");
    let new = cell_of(&report, "x --new", "time");
    // Files differ by a factor of eight: the difference shows only in pairs.
    assert_eq!(
        (&new["pairing"], &new["n"], &new["verdict"]),
        (&json!("paired"), &json!(8), &json!("SLOWER"))
    );
    stage.refuses("analyse r0.json --baseline 'x --odl'", &["x --odl", "x --old"]);
}

#[test]
fn unusable_files_of_other_tools_are_refused_with_a_remedy() {
    let stage = Stage::with_fakes();
    stage.write("h.json", hyperfine("sort", &[0.1, 0.0]));
    stage.refuses("analyse h.json", &["h.json", "line 1", "0.0", "--shell=none"]);
    stage.write("cut.json", &hyperfine("sort", &[0.1, 0.2])[..40]);
    stage.refuses("analyse cut.json", &["cut.json", "cut short"]);
    stage.write("g.txt", "BenchmarkX 1 2 ns/op\n");
    stage.write("a.json", hyperfine("sort", &[0.1, 0.2]));
    stage.refuses("analyse g.txt a.json", &["g.txt is a file of Go", "a.json one of hyperfine"]);
    stage.refuses("analyse a.json --from go", &["a.json", "no result of a benchmark", "a file of hyperfine"]);
    stage.write("s.csv", "environment,workload,metric,unit,better,value\nnative,w,m,s,lower,1\n");
    stage.write("s.txt", "environment,workload,metric,unit,better,value\nnative,w,m,s,lower,1\n");
    stage.run("analyse s.txt --from csv").ends_with(0);
    stage.refuses("analyse s.txt --from json-lines", &["s.txt", "line 1"]);
    stage.refuses("analyse s.csv s.csv", &["one file", "environment"]);
    stage.refuses("analyse x=s.csv", &["s.csv", "leave `x=` out"]);
    stage.refuses("analyse x=gone.json", &["gone.json", "cannot read it"]);
    let said = stage.run("analyse a.json").ends_with(0);
    assert!(said.stdout.contains("nothing to compare"), "{}", said.stdout);
    // A file whose name has an equals sign goes by its whole name.
    stage.write("x=a.json", hyperfine("sort", &[0.1, 0.2]));
    let report = stage.json("analyse x=a.json --format json");
    assert_eq!(report["baseline"], "x=a");
}

/// Everything that is written in the format of a tool that weigh can read comes back unchanged.
#[test]
fn exported_files_are_read_back() {
    let stage = Stage::with_fakes();
    stage.stdout("run --on null:sd=0.02;null:label=b,effect=0.1,sd=0.02 --baseline null:sd=0.02 --blocks 6 --seed 7 --out r -- true");
    let report = stage.json("show r --format json");
    for (format, benchmark, metric) in
        [("go", "/environment=", "time"), ("google-benchmark", "/time/", "real_time")]
    {
        let file = format!("{format}.out");
        stage.stdout(&format!("show r --format {format} --output {file}"));
        let back = stage.json(&format!("analyse {file} --format json"));
        for environment in ["null:sd=0.02", "null:effect=0.1,label=b,sd=0.02"] {
            let name = format!("true{benchmark}{environment}");
            let cells = back["cells"].as_array().unwrap();
            let same = |cell: &&Value| cell["workload"] == name.as_str() && cell["metric"] == metric;
            let found = cells.iter().find(same).unwrap_or_else(|| panic!("{name}: {cells:?}"));
            let original = cell_of(&report, environment, "time");
            assert_eq!(found["n"], 6);
            let scale = original["mean"].as_f64().unwrap();
            for key in ["median", "mean", "min", "max", "sd"] {
                let (got, was) = (found[key].as_f64().unwrap(), original[key].as_f64().unwrap());
                assert!((got - was).abs() <= 1e-9 * scale, "{format} {key}: {got} is not {was}");
            }
        }
    }
    let bencher = stage.json("show r --format bencher");
    let of = &bencher["true in null:effect=0.1,label=b,sd=0.02"];
    assert_eq!(
        of["time (s)"]["value"],
        cell_of(&report, "null:effect=0.1,label=b,sd=0.02", "time")["median"]
    );
    assert!(of["time overhead (%)"]["lower_value"].as_f64().unwrap() > 5.0, "{bencher}");
    let smaller = stage.json("show r --format github-smaller");
    let names: Vec<&str> =
        smaller.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"true in null:sd=0.02 time"), "{names:?}");
    stage.refuses("show r --format github-bigger", &["metrics of which more is better"]);
    stage.stdout("run --on null:sd=0.02;null:label=b,effect=0.1,sd=0.02 --baseline null:sd=0.02 --blocks 6 --seed 8 --out q -- true");
    stage.refuses("compare r q --format go", &["comparison of runs", "weigh show RUN --format go"]);
}

/// Exports are read by programs that they are made for. Runs of fakes change nothing on the host:
/// these tests run beside others.
mod fakes {
    use super::*;
    use crate::support::{has_r, json_of, listed, output_of, python_with, shown, skip};
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    const BASELINE: &str = "null:sd=0.02";
    const OTHER: &str = "null:effect=0.1,label=b,sd=0.02";

    /// The report of a run of two environments, in the directory `r`.
    fn measured(stage: &Stage) -> Value {
        stage.stdout(&format!(
            "run --on {BASELINE};{OTHER} --baseline {BASELINE} --blocks 8 --seed 7 --out r -- work"
        ));
        shown(stage, "r")
    }

    fn close(found: &Value, expected: &Value) {
        let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
    }

    /// The answer of a node exporter that reads the files of the stage; `None` if it is not
    /// installed.
    fn exported(stage: &Stage) -> Option<String> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut exporter = Command::new("prometheus-node-exporter")
            .args(["--collector.disable-defaults", "--collector.textfile"])
            .arg(format!("--collector.textfile.directory={}", stage.here().display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let page = (0..300).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            fetched(address).ok()
        });
        exporter.kill().unwrap();
        exporter.wait().unwrap();
        Some(page.expect("the exporter answers within half a minute"))
    }

    fn fetched(address: SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The parsers of both text formats, and a node exporter, find the same samples under a name
    /// with every character that has a meaning in them.
    #[test]
    fn prometheus_reads_openmetrics() {
        const TEST: &str = "prometheus_reads_openmetrics";
        const WORKLOAD: &str = r#"a "b" \c # {d}="e",f"#;
        const SAMPLES: &str = r#"
import importlib, json, sys
text = open(sys.argv[2], encoding="utf-8").read()
families = importlib.import_module(sys.argv[1]).text_string_to_metric_families(text)
samples = [[s.name, f.type, s.labels, float(s.value)] for f in families for s in f.samples]
ours = [sample for sample in samples if sample[0].startswith("weigh_")]
print(json.dumps(sorted(ours, key=lambda sample: json.dumps(sample, sort_keys=True))))
"#;
        let Some(python) = python_with("prometheus_client", TEST) else { return };
        let stage = Stage::with_fakes();
        let mut rows = String::from("environment,workload,metric,unit,better,value,block\n");
        let workload = WORKLOAD.replace('"', "\"\"");
        for block in 0..8 {
            let level = 0.2 + 0.01 * f64::from(block);
            for (environment, factor) in [("old", 1.0), ("new", 1.05 + 0.001 * f64::from(block % 3))] {
                let value = level * factor;
                writeln!(rows, "{environment},\"{workload}\",time,s,lower,{value},{block}").unwrap();
            }
        }
        stage.write("s.csv", rows);
        let report = stage.json("analyse s.csv --baseline old --format json");
        stage.stdout("analyse s.csv --baseline old --format openmetrics --output weigh.prom");

        let read = |parser: &str, file: &str| json_of(&stage, python, &["-c", SAMPLES, parser, file]);
        let samples = read("prometheus_client.openmetrics.parser", "weigh.prom");
        let new = cell_of(&report, "new", "time");
        let sample = |family: &str| {
            let is = |sample: &&Value| sample[0] == family && sample[2]["environment"] == "new";
            let sample = samples.as_array().unwrap().iter().find(is);
            let sample = sample.unwrap_or_else(|| panic!("no {family}: {samples}"));
            assert_eq!((&sample[1], &sample[2]["workload"]), (&json!("gauge"), &json!(WORKLOAD)));
            sample
        };
        for (family, value) in [
            ("weigh_median", &new["median"]),
            ("weigh_overhead_ratio", &new["overhead"]["mean"]),
            ("weigh_overhead_low_ratio", &new["overhead"]["ci_low"]),
            ("weigh_overhead_high_ratio", &new["overhead"]["ci_high"]),
        ] {
            close(&sample(family)[3], value);
        }
        let comparison = &sample("weigh_comparison_info")[2];
        assert_eq!((&comparison["baseline"], &comparison["verdict"]), (&json!("old"), &json!("SLOWER")));

        assert_eq!(read("prometheus_client.parser", "weigh.prom"), samples);
        let Some(page) = exported(&stage) else {
            return skip(TEST, "node-exporter", "`prometheus-node-exporter` is not installed");
        };
        stage.write("page", page.split_once("\r\n\r\n").unwrap().1);
        assert_eq!(read("prometheus_client.parser", "page"), samples);
    }

    #[test]
    fn pandas_and_r_read_the_csv() {
        const TEST: &str = "pandas_and_r_read_the_csv";
        const PANDAS: &str = "import pandas\n\
            print(pandas.read_csv('r.csv').to_json(orient='records', double_precision=15))";
        const R: &str = "cat(jsonlite::toJSON(read.csv('r.csv'), digits = NA))";
        let stage = Stage::with_fakes();
        let report = measured(&stage);
        stage.stdout("show r --format csv --output r.csv");
        let pandas = python_with("pandas", TEST).map(|python| json_of(&stage, python, &["-c", PANDAS]));
        let r = has_r(TEST).then(|| json_of(&stage, "Rscript", &["-e", R]));
        for table in [pandas, r].into_iter().flatten() {
            let is = |row: &&Value| row["environment"] == OTHER && row["metric"] == "time";
            let row = table.as_array().unwrap().iter().find(is).unwrap_or_else(|| panic!("{table}"));
            let cell = cell_of(&report, OTHER, "time");
            for (column, value) in [
                ("n", &cell["n"]),
                ("median", &cell["median"]),
                ("sd", &cell["sd"]),
                ("overhead_mean", &cell["overhead"]["mean"]),
                ("overhead_ci_low", &cell["overhead"]["ci_low"]),
                ("overhead_ci_high", &cell["overhead"]["ci_high"]),
            ] {
                close(&row[column], value);
            }
            assert_eq!((&row["workload"], &row["baseline"]), (&json!("work"), &json!(BASELINE)));
            assert_eq!(row["verdict"], cell["verdict"]);
        }
    }

    #[test]
    fn benchstat_reads_go() {
        const TEST: &str = "benchstat_reads_go";
        if Command::new("benchstat").arg("-h").output().is_err() {
            return skip(TEST, "benchstat", "there is no program `benchstat`");
        }
        let stage = Stage::with_fakes();
        let report = measured(&stage);
        stage.stdout("show r --format go --output r.txt");
        let arguments = ["-format", "csv", "-col", "/environment", "r.txt"];
        let tables = output_of(&stage, "benchstat", &arguments);
        // Tables follow each other, each with the environments, the unit and a row per workload.
        let lines: Vec<&str> = tables.lines().collect();
        let at =
            lines.iter().position(|line| line.starts_with(",sec/op,")).unwrap_or_else(|| panic!("{tables}"));
        let quoted = format!(",{BASELINE},,\"{OTHER}\",,,");
        assert_eq!(lines[at - 1], quoted, "the environments are the columns");
        let row: Vec<&str> = lines[at + 1].split(',').collect();
        let ["work", old, _, new, _, change, p] = row.as_slice() else { panic!("{tables}") };
        for (found, environment) in [(old, BASELINE), (new, OTHER)] {
            let median: f64 = found.parse().unwrap();
            close(&median.into(), &cell_of(&report, environment, "time")["median"]);
        }
        assert!(change.starts_with('+') && p.ends_with("n=8"), "every value counts: {tables}");
    }

    #[test]
    fn compare_py_reads_google_benchmark() {
        const TEST: &str = "compare_py_reads_google_benchmark";
        // Where Debian's libbenchmark-tools has it.
        const COMPARE: &str = "/usr/share/benchmark/compare.py";
        if !Path::new(COMPARE).exists() {
            return skip(TEST, "compare.py", &format!("there is no {COMPARE}"));
        }
        let Some(python) = python_with("scipy", TEST) else { return };
        let stage = Stage::with_fakes();
        let report = measured(&stage);
        stage.stdout("show r --format google-benchmark --output r.json");
        // The filters are regular expressions.
        let filters = [BASELINE, OTHER].map(|environment| format!("/time/{environment}$"));
        let arguments = [COMPARE, "--dump_to_json", "d.json", "filters", "r.json", &filters[0], &filters[1]];
        output_of(&stage, python, &arguments);
        let differences = stage.read_json("d.json");
        let [work, mean] = differences.as_array().unwrap().as_slice() else { panic!("{differences}") };
        assert_eq!(listed(work, "measurements").len(), 8, "{work}");
        assert_eq!(mean["name"], "OVERALL_GEOMEAN");
        close(&mean["measurements"][0]["time"], &cell_of(&report, OTHER, "time")["overhead"]["mean"]);
    }
}
