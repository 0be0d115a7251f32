//! A run of starts: stamps one after the other, one that an environment cannot have, and the CPU
//! time of helpers.

use super::{comparison, metric, plan, run, shape};
use std::collections::BTreeMap;
use weigh_model::{Better, Caches, Comparison, Effort, Extraction, StartPlan, Started, stamps};
use weigh_report::Report;
use weigh_stats::{CellFlag, ChargeSummary, Flag, Options, analyse};

const BLOCKS: u32 = 30;
const ENVIRONMENTS: [&str; 3] = ["native", "namespaces", "docker:net=nat"];

/// Every stamp, with the time of native in seconds and the effects of the others.
const STAMPS: [(&str, f64, [f64; 2]); 5] = [
    (stamps::INIT, 0.0011, [1.2, 260.0]),
    (stamps::CODE, 0.0009, [1.1, 300.0]),
    (stamps::SERVICE, 0.0023, [0.7, 120.0]),
    (stamps::RESPONSE, 0.0026, [0.6, 110.0]),
    (stamps::STOP, 0.0014, [0.3, 130.0]),
];

fn comparisons() -> Vec<Comparison> {
    let of = |(name, level, effects): (&str, f64, [f64; 2])| {
        let spec = metric(name, "s", Better::Lower, name == stamps::INIT);
        let shapes = [0.0, effects[0], effects[1]];
        let shapes: Vec<_> =
            ENVIRONMENTS.iter().zip(shapes).map(|(name, effect)| shape(name, effect, 0.03)).collect();
        let mut comparison = comparison("start", spec, level, BLOCKS, &shapes);
        if name == stamps::RESPONSE {
            comparison.series[1].observations.clear();
        }
        comparison
    };
    STAMPS.map(of).into()
}

fn charge(
    environment: &str,
    guest_ns: f64,
    helpers: &[(&str, f64)],
    daemons: &[(&str, f64)],
) -> ChargeSummary {
    let named = |all: &[(&str, f64)]| all.iter().map(|(name, ns)| ((*name).to_string(), *ns)).collect();
    let mut parts: BTreeMap<String, f64> = named(helpers);
    parts.insert("guest".into(), guest_ns);
    ChargeSummary {
        workload: "start".into(),
        environment: environment.into(),
        operation: "start".into(),
        cpu_ns_per_op: parts.values().sum(),
        n: BLOCKS,
        difference: None,
        cycles_per_op: None,
        instructions_per_op: None,
        parts_ns_per_op: parts,
        daemons_ns_per_op: named(daemons),
        counters_per_op: BTreeMap::new(),
    }
}

pub fn report() -> Report {
    let comparisons = comparisons();
    let mut plan = plan("start", &ENVIRONMENTS, &comparisons, Effort::Fixed { blocks: BLOCKS });
    plan.workloads[0].command = Vec::new();
    plan.workloads[0].start = Some(StartPlan { what: Started::One, caches: Caches::Warm });
    for metric in &mut plan.workloads[0].metrics {
        metric.from = Extraction::Stamp;
    }
    let mut options = Options::for_plan(&plan);
    options.flags.push(CellFlag {
        workload: Some("start".into()),
        metric: Some(stamps::RESPONSE.into()),
        environment: ENVIRONMENTS[1].into(),
        flag: Flag::Absent,
        reason: Some("the guest has no network to answer over".into()),
    });
    let title = "weigh start --on native,namespaces,docker:net=nat";
    let analysis = analyse(&comparisons, &options);
    let mut report = run(title, "20260301T160000Z-start", plan, analysis, BLOCKS, "30 blocks");
    let daemons = [("containerd", 14e6), ("dockerd", 93e6)];
    report.circumstances.charges = vec![
        charge(ENVIRONMENTS[0], 0.9e6, &[], &[]),
        charge(ENVIRONMENTS[1], 1.3e6, &[], &[]),
        charge(ENVIRONMENTS[2], 29e6, &[("containerd-shim", 86e6)], &daemons),
    ];
    report
}
