//! `weigh analyse`: samples measured elsewhere.

use crate::support::{Stage, cell_of, reference};
use serde_json::Value;
use std::fmt::Write;

fn analyse(stage: &Stage, csv: &str) -> Value {
    stage.write("samples.csv", csv);
    stage.json("analyse samples.csv --format json")
}

/// The raw STREAM logs of IBM RC25482 give the ratios and intervals that were computed from them
/// independently.
#[test]
fn the_published_stream_logs_give_their_known_ratios() {
    let Some(reference) = reference("the_published_stream_logs_give_their_known_ratios") else { return };
    let stage = Stage::with_fakes();
    let mut csv = String::from("environment,workload,metric,unit,better,value\n");
    for (environment, log) in [("native", "linux"), ("docker", "docker"), ("kvm", "vm")] {
        let path = reference.join(format!("felter-2014/stream/{log}.two-socket.interleavedalloc.log"));
        let text = std::fs::read_to_string(path).unwrap();
        let rates: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("Triad:"))
            .filter_map(|rest| rest.split_whitespace().next())
            .collect();
        assert_eq!(rates.len(), 10);
        for rate in rates {
            writeln!(csv, "{environment},stream,triad,GB/s,higher,{rate}").unwrap();
        }
    }
    let report = analyse(&stage, &csv);
    // The reference gives ratios of rates; the report gives overheads of cost: 1 / ratio - 1, with
    // the ends swapped.
    for (environment, ratio, low, high) in
        [("kvm", 0.9873, 0.9837, 0.9909), ("docker", 1.0006, 0.9925, 1.0088)]
    {
        let cell = cell_of(&report, environment, "triad");
        let overhead = |key: &str| 1.0 / (1.0 + cell["overhead"][key].as_f64().unwrap());
        for (got, expected) in
            [(overhead("mean"), ratio), (overhead("ci_high"), low), (overhead("ci_low"), high)]
        {
            assert!((got - expected).abs() < 0.000_06, "{environment}: {got} is not {expected}");
        }
        assert!(cell["flags"].to_string().contains("UNPAIRED"), "{cell}");
    }
    let native = cell_of(&report, "native", "triad");
    assert!((native["mean"].as_f64().unwrap() / 1e9 - 45.60).abs() < 0.005, "{native}");
}

#[test]
fn paired_samples_are_paired() {
    let stage = Stage::with_fakes();
    // Blocks differ by a factor of three; the environment is 1 to 3 % slower in each. Without
    // pairing this would be lost in the noise.
    let mut csv = String::from("block,environment,workload,metric,unit,better,value\n");
    for block in 0..12 {
        let level = 1.0 + 2.0 * f64::from(block % 4) / 3.0;
        writeln!(csv, "{block},native,w,time,ms,lower,{level}").unwrap();
        writeln!(csv, "{block},guest,w,time,ms,lower,{}", level * (1.02 + 0.01 * f64::from(block % 3 - 1)))
            .unwrap();
    }
    let report = analyse(&stage, &csv);
    let guest = cell_of(&report, "guest", "time");
    assert_eq!(guest["n"], 12);
    assert_eq!(guest["unit"], "s");
    let low = guest["overhead"]["ci_low"].as_f64().unwrap();
    assert!(low > 0.01, "{guest}");
    assert!(guest["verdict"].as_str().unwrap().contains("SLOWER"), "{guest}");
}

#[test]
fn errors_in_a_file_are_located() {
    let stage = Stage::with_fakes();
    for (csv, words) in [
        ("environment,workload,metric,unit,better,valu\nnative,w,m,s,lower,1\n", &["value", "1"][..]),
        (
            "environment,workload,metric,unit,better,value\nnative,w,m,s,lower,1\nguest,w,m,s,lower,fast\n",
            &["line 3", "bad.csv:3:", "fast"],
        ),
        ("environment,workload,metric,unit,better,value\nnative,w,m,s,upwards,1\n", &["line 2", "upwards"]),
        ("environment,workload,metric,unit,better,value\nnative,w,m,s,lower\n", &["line 2"]),
    ] {
        stage.write("bad.csv", csv);
        stage.refuses("analyse bad.csv", &[words, &["bad.csv"]].concat());
    }
}

#[test]
fn a_baseline_that_is_not_in_the_file_is_refused() {
    let stage = Stage::with_fakes();
    stage.write("s.csv", "environment,workload,metric,unit,better,value\nnative,w,m,s,lower,1\n");
    stage.refuses("analyse s.csv --baseline natvie", &["natvie", "native"]);
}
