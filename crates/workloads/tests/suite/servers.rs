//! The manifests of servers and network tools against outputs of the real programs in
//! `testdata/servers`; the README there says which versions printed them and where.

use crate::common::{plan, read};
use std::collections::BTreeSet;
use weigh_model::{Extraction, LoadLoop};
use weigh_workloads::{Library, Size};

/// A workload, its tool's output, and outputs that are not measurements, each with the tool's exit
/// status.
type Recorded = (&'static str, &'static str, &'static [(&'static str, i32)]);

const RECORDED: &[Recorded] = &[
    ("echo-remote", "echo-remote.json", &[]),
    ("echo-remote-udp", "echo-remote-udp.json", &[]),
    ("bulk-remote", "bulk-remote.json", &[]),
    ("redis", "redis.json", &[]),
    ("redis-open", "redis-open.json", &[]),
    ("nginx", "nginx.json", &[]),
    ("nginx-open", "nginx-open.json", &[]),
    ("nuttcp-transmit", "nuttcp-transmit.txt", &[("nuttcp-refused.txt", 1)]),
    ("nuttcp-receive", "nuttcp-receive.txt", &[("nuttcp-refused.txt", 1), ("nuttcp-server-died.txt", 1)]),
    ("netperf-tcp-rr", "netperf-tcp-rr.txt", &[("netperf-refused.txt", 255), ("netperf-server-died.txt", 1)]),
    ("netperf-udp-rr", "netperf-udp-rr.txt", &[("netperf-refused.txt", 255)]),
    ("netperf-tcp-stream", "netperf-tcp-stream.txt", &[("netperf-refused.txt", 255)]),
    ("netperf-udp-stream", "netperf-udp-stream.txt", &[("netperf-refused.txt", 255)]),
    ("sockperf-tcp", "sockperf-tcp.txt", &[("sockperf-refused.txt", 0)]),
    ("sockperf-udp", "sockperf-udp.txt", &[("sockperf-no-server.txt", 0)]),
    ("sockperf-load", "sockperf-load.txt", &[("sockperf-no-server.txt", 0)]),
    ("qperf-tcp-lat", "qperf-tcp-lat.txt", &[("qperf-refused.txt", 1)]),
    ("qperf-udp-lat", "qperf-udp-lat.txt", &[("qperf-refused.txt", 1)]),
    ("qperf-tcp-bw", "qperf-tcp-bw.txt", &[("qperf-refused.txt", 1)]),
    ("qperf-udp-bw", "qperf-udp-bw.txt", &[("qperf-refused.txt", 1)]),
    ("redis-benchmark", "redis-benchmark.txt", &[("redis-benchmark-error.txt", 1)]),
    ("mariadb", "sysbench.txt", &[("sysbench-refused.txt", 1)]),
    ("postgres", "pgbench.txt", &[("pgbench-refused.txt", 1)]),
    ("download", "download.json", &[("download-refused.txt", 1)]),
    ("nginx-wrk", "wrk.txt", &[("wrk-refused.txt", 1), ("wrk-not-found.txt", 0), ("wrk-server-died.txt", 0)]),
    (
        "nginx-tls",
        "wrk-tls.txt",
        &[("wrk-refused.txt", 1), ("wrk-not-found.txt", 0), ("wrk-server-died.txt", 0)],
    ),
];

fn recorded(name: &str) -> String {
    crate::common::recorded(&format!("servers/{name}"))
}

#[test]
fn recorded_outputs_give_every_metric() {
    let library = Library::load(&[], &[]).unwrap();
    for (name, good, _) in RECORDED {
        let workload = library.get(name).unwrap();
        let plan = plan(workload, Size::Quick);
        let found = read(&plan, &recorded(good), 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut values, mut histograms) = (BTreeSet::new(), BTreeSet::new());
        for metric in &plan.metrics {
            match &metric.from {
                Extraction::Quantile { histogram, .. } => histograms.insert(histogram.clone()),
                _ => values.insert(metric.spec.name.clone()),
            };
        }
        assert_eq!(found.values.keys().cloned().collect::<BTreeSet<_>>(), values, "{name}");
        assert_eq!(found.histograms.keys().cloned().collect::<BTreeSet<_>>(), histograms, "{name}");
        assert!(found.operations.unwrap() > 100.0, "{name}: {:?}", found.operations);
        assert_eq!(found.tool_duration_ns.is_some(), plan.tool_duration.is_some(), "{name}");
        let seconds = found.tool_duration_ns.map_or(1.0, |ns| ns as f64 * 1e-9);
        assert!((0.1..20.0).contains(&seconds), "{name}: {seconds} s");
    }
}

#[test]
fn output_without_a_measurement_gives_no_numbers() {
    let library = Library::load(&[], &[]).unwrap();
    for (name, good, bad) in RECORDED {
        let plan = plan(library.get(name).unwrap(), Size::Quick);
        for (output, status) in *bad {
            assert!(read(&plan, &recorded(output), *status).is_err(), "{name}: {output}");
            // The check alone catches it, whatever the status.
            assert!(read(&plan, &recorded(output), 0).is_err(), "{name}: {output} with status 0");
        }
        assert!(read(&plan, "", 0).is_err(), "{name}: nothing printed");
        let whole = recorded(good);
        assert!(read(&plan, &whole, 1).is_err(), "{name}: status 1");
        let lines: Vec<&str> = whole.lines().collect();
        let cut = lines[..lines.len() / 2].join("\n");
        assert!(read(&plan, &cut, 0).is_err(), "{name}: cut off");
    }
}

/// A server binds the address from the run, writes only to its scratch directory, and says how its
/// requests are sent.
#[test]
fn servers_take_addresses_and_places_from_the_run() {
    let library = Library::load(&[], &[]).unwrap();
    for workload in library.workloads() {
        for size in Size::ALL {
            let plan = plan(workload, size);
            let Some(server) = &plan.staging.server else { continue };
            let name = workload.name();
            let all = |commands: &[&Vec<String>]| {
                commands.iter().flat_map(|c| c.iter()).cloned().collect::<String>()
            };
            let setup: Vec<&Vec<String>> = plan.staging.setup.iter().collect();
            let serving = all(&[&server.command]) + &all(&setup);
            assert!(serving.contains("{port}"), "{name}: {serving}");
            assert!(plan.command.concat().contains("{address}"), "{name}: {:?}", plan.command);
            assert!(plan.command.concat().contains("{port}"), "{name}: {:?}", plan.command);
            let open = plan.command.iter().any(|word| word == "--rate" || word == "under-load");
            assert_eq!(server.kind == LoadLoop::Open, open, "{name}: {:?}", plan.command);
            assert_eq!(name.ends_with("-open") || name.ends_with("-load"), open, "{name}");
            // A proxy accepts connections before the server does, and UDP has no connections.
            let speaks = server.command[0] == "weigh-kernels" || server.ready.is_some();
            assert!(speaks, "{name} needs to say when its server answers");
            assert!(workload.operation().is_some(), "{name} has no service demand");
            assert_eq!(workload.packages().is_empty(), server.command[0] == "weigh-kernels", "{name}");
        }
    }
}
