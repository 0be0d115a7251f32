//! The manifests of servers and of tools for networks, against outputs of the real programs in
//! `testdata/servers`; the README there says which versions printed them and where.

use crate::common::{plan, read};
use std::collections::BTreeSet;
use weigh_model::{Extraction, LoadLoop};
use weigh_workloads::{Library, Size};

/// A workload, what its tool printed, and outputs of it that are no measurement.
struct Recorded {
    workload: &'static str,
    good: &'static str,
    /// Each with the status with which the tool ended.
    bad: &'static [(&'static str, i32)],
}

const RECORDED: &[Recorded] = &[
    Recorded { workload: "echo-remote", good: "echo-remote.json", bad: &[] },
    Recorded { workload: "echo-remote-udp", good: "echo-remote-udp.json", bad: &[] },
    Recorded { workload: "bulk-remote", good: "bulk-remote.json", bad: &[] },
    Recorded { workload: "redis", good: "redis.json", bad: &[] },
    Recorded { workload: "redis-open", good: "redis-open.json", bad: &[] },
    Recorded { workload: "nginx", good: "nginx.json", bad: &[] },
    Recorded { workload: "nginx-open", good: "nginx-open.json", bad: &[] },
    Recorded { workload: "nuttcp-transmit", good: "nuttcp-transmit.txt", bad: &[("nuttcp-refused.txt", 1)] },
    Recorded {
        workload: "nuttcp-receive",
        good: "nuttcp-receive.txt",
        bad: &[("nuttcp-refused.txt", 1), ("nuttcp-server-died.txt", 1)],
    },
    Recorded {
        workload: "netperf-tcp-rr",
        good: "netperf-tcp-rr.txt",
        bad: &[("netperf-refused.txt", 255), ("netperf-server-died.txt", 1)],
    },
    Recorded { workload: "netperf-udp-rr", good: "netperf-udp-rr.txt", bad: &[("netperf-refused.txt", 255)] },
    Recorded {
        workload: "netperf-tcp-stream",
        good: "netperf-tcp-stream.txt",
        bad: &[("netperf-refused.txt", 255)],
    },
    Recorded {
        workload: "netperf-udp-stream",
        good: "netperf-udp-stream.txt",
        bad: &[("netperf-refused.txt", 255)],
    },
    Recorded { workload: "sockperf-tcp", good: "sockperf-tcp.txt", bad: &[("sockperf-refused.txt", 0)] },
    Recorded { workload: "sockperf-udp", good: "sockperf-udp.txt", bad: &[("sockperf-no-server.txt", 0)] },
    Recorded { workload: "sockperf-load", good: "sockperf-load.txt", bad: &[("sockperf-no-server.txt", 0)] },
    Recorded { workload: "qperf-tcp-lat", good: "qperf-tcp-lat.txt", bad: &[("qperf-refused.txt", 1)] },
    Recorded { workload: "qperf-udp-lat", good: "qperf-udp-lat.txt", bad: &[("qperf-refused.txt", 1)] },
    Recorded { workload: "qperf-tcp-bw", good: "qperf-tcp-bw.txt", bad: &[("qperf-refused.txt", 1)] },
    Recorded { workload: "qperf-udp-bw", good: "qperf-udp-bw.txt", bad: &[("qperf-refused.txt", 1)] },
    Recorded {
        workload: "redis-benchmark",
        good: "redis-benchmark.txt",
        bad: &[("redis-benchmark-error.txt", 1)],
    },
    Recorded { workload: "mariadb", good: "sysbench.txt", bad: &[("sysbench-refused.txt", 1)] },
    Recorded {
        workload: "nginx-wrk",
        good: "wrk.txt",
        bad: &[("wrk-refused.txt", 1), ("wrk-not-found.txt", 0), ("wrk-server-died.txt", 0)],
    },
];

fn recorded(name: &str) -> String {
    crate::common::recorded(&format!("servers/{name}"))
}

#[test]
fn recorded_outputs_give_every_metric() {
    let library = Library::load(&[], &[]).unwrap();
    for Recorded { workload: name, good, .. } in RECORDED {
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
fn what_is_no_measurement_gives_no_numbers() {
    let library = Library::load(&[], &[]).unwrap();
    for Recorded { workload: name, good, bad } in RECORDED {
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

/// A server is bound to what the run says, writes nowhere but in its scratch directory, and says
/// how its load leaves.
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
            // A proxy takes connections before the server does, and over UDP there are none.
            let speaks = server.command[0] == "weigh-kernels" || server.ready.is_some();
            assert!(speaks, "{name} needs to say when its server answers");
            assert!(workload.operation().is_some(), "{name} has no service demand");
            assert_eq!(workload.packages().is_empty(), server.command[0] == "weigh-kernels", "{name}");
        }
    }
}
