//! A run with everything besides numbers: virtual machines with other kernels, an allowed
//! inequality, units void by every cause, a noisy host, clocks in every state, CPU time with
//! helpers and shared daemons, counters, lines of the kernel's log.

use super::{analysed, comparison, failure, plan, rate, run, shape, time, void};
use std::collections::BTreeMap;
use weigh_model::{ClockState, Comparison, Effort, Extraction, HostSettings, NoisyHost, VoidCause, VoidUnit};
use weigh_report::{EnvironmentFacts, Report};
use weigh_stats::{
    ChargeSummary, Circumstances, ClockSummary, DisturbedTrial, Flag, Interval, LatencySummary,
    LoaderSummary, NoiseSummary, Notice, Verdict,
};

pub const DOCKER: &str = "docker:net=nat";
pub const UML: &str = "uml";
pub const QEMU: &str = "qemu:accel=tcg";
const BLOCKS: u32 = 30;

fn comparisons() -> Vec<Comparison> {
    let of = |workload: &str, spec, level, [docker, uml, qemu]: [f64; 3]| {
        let effects = [("native", 0.0), (DOCKER, docker), (UML, uml), (QEMU, qemu)];
        let shapes = effects.map(|(name, effect)| shape(name, effect, 0.004));
        comparison(workload, spec, level, BLOCKS, &shapes)
    };
    vec![
        of("lu", rate("rate", "FLOP/s", true), 4.1e9, [0.001, 0.002, 11.0]),
        of("noploop", time("duration", true), 0.84, [0.0, 0.003, 6.2]),
        of("echo", rate("rate", "op/s", true), 71_000.0, [0.09, 1.8, 24.0]),
        of("echo", time("latency_p99", false), 2.1e-5, [0.11, 2.1, 30.0]),
    ]
}

fn facts(name: &str, own: &[(&str, &str)], intended: &[(&str, &str)]) -> EnvironmentFacts {
    let common = [
        ("kernel", "6.18.5"),
        ("cpus", "1"),
        ("memory", "536870912 bytes"),
        ("network", "none"),
        ("mounts:/", "ext4 rw,relatime"),
        ("libc", "none: a static binary"),
        ("binary:weigh-kernels", "a91ca91c"),
        ("clock-source", "tsc"),
        ("transparent-huge-pages", "madvise"),
        ("mitigations", "spectre_v2: Retpolines"),
    ];
    let facts = common.iter().chain(own).map(|(key, value)| ((*key).to_string(), (*value).into())).collect();
    let intended = intended.iter().map(|(key, why)| ((*key).to_string(), (*why).to_string())).collect();
    EnvironmentFacts { name: name.into(), facts, intended }
}

fn clock(environment: &str, states: &[(ClockState, u32)], rate: Option<(f64, f64)>) -> ClockSummary {
    ClockSummary {
        environment: environment.into(),
        states: states.iter().copied().collect(),
        rate_ppm: rate.map(|(rate, _)| rate),
        bound_ppm: rate.map(|(_, bound)| bound),
        round_trip_ns: rate.map(|_| 36_000.0),
    }
}

fn named(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(name, value)| ((*name).to_string(), *value)).collect()
}

/// A charge with consistent parts and difference.
fn charge(
    (workload, operation, baseline_ns, half_width): (&str, &str, f64, f64),
    environment: &str,
    parts: &[(&str, f64)],
    daemons: &[(&str, f64)],
    counters: &[(&str, f64)],
) -> ChargeSummary {
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    let ratio = total / baseline_ns;
    let difference = (environment != "native").then_some(Interval {
        estimate: ratio - 1.0,
        low: ratio * (1.0 - half_width) - 1.0,
        high: ratio * (1.0 + half_width) - 1.0,
    });
    ChargeSummary {
        workload: workload.into(),
        environment: environment.into(),
        operation: operation.into(),
        cpu_ns_per_op: total,
        n: BLOCKS,
        difference,
        cycles_per_op: None,
        instructions_per_op: None,
        parts_ns_per_op: named(parts),
        daemons_ns_per_op: named(daemons),
        counters_per_op: named(counters),
    }
}

fn charges() -> Vec<ChargeSummary> {
    let (lu, echo) = (("lu", "run", 1.62e9, 0.004), ("echo", "request", 1.31e4, 0.01));
    let events = |faults: f64, switches: f64, read: f64| {
        [("page_faults", faults), ("context_switches", switches), ("block_read_bytes", read)]
    };
    let shim = [("guest", 1.621e9), ("containerd-shim", 4.1e5), ("softirq", 1.1e6)];
    let proxy = [("guest", 1.36e4), ("docker-proxy", 2.2e3), ("softirq", 4.1e2)];
    let daemons = [("dockerd", 8.3e5), ("containerd", 2.2e5)];
    let machine = [("guest", 19.1e9), ("qemu", 0.4e9), ("vhost", 2.0e6)];
    let rare = |switches: f64, faults: f64| [("context_switches", switches), ("page_faults", faults)];
    vec![
        charge(lu, "native", &[("guest", 1.62e9)], &[], &events(12.0, 21.0, 0.0)),
        charge(lu, DOCKER, &shim, &daemons, &events(14.0, 24.0, 0.0)),
        // The same result at a higher price.
        charge(lu, UML, &[("guest", 2.19e9)], &[], &events(480.0, 1890.0, 65_536.0)),
        charge(lu, QEMU, &machine, &[], &events(9100.0, 5200.0, 131_072.0)),
        charge(echo, "native", &[("guest", 1.31e4)], &[], &rare(2.0, 1.5e-6)),
        charge(echo, DOCKER, &proxy, &[("dockerd", 31.0)], &rare(2.0, 4.8e-5)),
        charge(echo, UML, &[("guest", 5.2e4)], &[], &rare(9.0, 1.6e-6)),
        charge(echo, QEMU, &[("guest", 3.4e5), ("qemu", 1.2e4)], &[], &[("context_switches", 2.5)]),
    ]
}

fn loader(environment: &str, busiest_share: f64, headroom: Option<f64>, reached: f64) -> LoaderSummary {
    LoaderSummary {
        workload: "echo".into(),
        environment: environment.into(),
        closed: true,
        trials: 30,
        busiest_share,
        operation: "request".into(),
        headroom_per_s: headroom,
        reached_per_s: Some(reached),
        paced: None,
    }
}

/// A curve with a long tail, with enough samples for the 99.9th percentile.
fn latency(environment: &str, median: f64) -> LatencySummary {
    let shares = [0.95, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001];
    LatencySummary {
        workload: "echo".into(),
        environment: environment.into(),
        histogram: "/latency".into(),
        samples: 118_400,
        curve: shares.map(|slower: f64| (slower, median * (0.8 + 0.1 / slower.sqrt()))).into(),
        max_s: median * 40.0,
    }
}

fn disturbed(environment: &str, block: u32) -> DisturbedTrial {
    DisturbedTrial { workload: "echo".into(), environment: environment.into(), block }
}

fn circumstances() -> Circumstances {
    let emulated = [(ClockState::Proven, 60), (ClockState::Bracket, 29), (ClockState::Wrong, 1)];
    Circumstances {
        noise: Some(NoiseSummary {
            trials: 360,
            disturbed: 41,
            steal_share_max: 0.031,
            foreign_share_max: 0.012,
            steal_share: 0.0042,
            foreign_share: 0.0007,
            pressure_shares: Some((0.021, 0.0, 0.0034)),
            throttled: 1,
            frequency_khz: Some((2_100_000, 3_400_000)),
            unattributed_share: Some(0.014),
            sensors_share: 0.0011,
            settings: HostSettings {
                governors: vec!["powersave".into()],
                turbo: Some(true),
                clock_source: Some("tsc".into()),
                transparent_huge_pages: Some("madvise".into()),
                smt: Some(true),
                numa_nodes: Some(1),
                numa_balancing: None,
                ksm: Some(false),
                aslr: Some(2),
            },
            changed_settings: vec!["governor: powersave, then performance from block 12 on".into()],
            kernel_log: vec![
                "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate"
                    .into(),
                "TCP: request_sock_TCP: Possible SYN flooding on port 7777".into(),
            ],
        }),
        clocks: vec![
            clock("native", &[(ClockState::Shared, 90)], None),
            clock(DOCKER, &[(ClockState::Shared, 90)], None),
            clock(UML, &[(ClockState::Proven, 81), (ClockState::Warned, 9)], Some((12.4, 40.0))),
            clock(QEMU, &emulated, Some((-31.0, 610.0))),
        ],
        charges: charges(),
        loaders: vec![
            loader("native", 0.55, Some(412_000.0), 118_400.0),
            loader(DOCKER, 0.92, None, 104_000.0),
        ],
        latencies: [("native", 9.0e-5), (DOCKER, 1.3e-4), (UML, 4.1e-4), (QEMU, 1.9e-3)]
            .map(|(name, median)| latency(name, median))
            .into(),
        disturbed: [(DOCKER, 3), (DOCKER, 4), (DOCKER, 11), (UML, 11)]
            .map(|(name, block)| disturbed(name, block))
            .into(),
        noisy_host: Some(NoisyHost { from_block: 7, void_units: 12, units: 21 }),
        ..Circumstances::default()
    }
}

fn seen(block: u32, workload: &str, cause: VoidCause, environment: &str, detail: &str) -> VoidUnit {
    VoidUnit {
        environment: Some(environment.into()),
        detail: Some(detail.into()),
        ..void(block, workload, cause)
    }
}

fn voids() -> Vec<VoidUnit> {
    let mut voids = vec![
        void(2, "lu", VoidCause::Interrupted),
        seen(3, "lu", VoidCause::Steal, UML, "3.1 % of CPU 1 for 1.4 s, the limit is 2 %"),
        seen(4, "echo", VoidCause::ForeignCpu, "native", "2.8 % of CPU 1 for 0.9 s, the limit is 2 %"),
        seen(5, "lu", VoidCause::Throttle, DOCKER, "held up 3 times for 41 ms"),
        seen(6, "noploop", VoidCause::Clock, QEMU, "rate +4100 ± 600 ppm, the limit is 1000 ppm"),
    ];
    voids.extend((0..6).map(|attempt| VoidUnit {
        attempt,
        ..seen(1, "echo", VoidCause::Steal, "native", "2.4 % of CPU 1 for 0.9 s, the limit is 2 %")
    }));
    // A block that nothing replaced.
    voids.push(seen(31, "echo", VoidCause::Steal, QEMU, "5.0 % of CPU 1 for 22 s, the limit is 2 %"));
    voids
}

pub fn report() -> Report {
    let comparisons = comparisons();
    let mut plan =
        plan("machines", &["native", DOCKER, UML, QEMU], &comparisons, Effort::Fixed { blocks: BLOCKS });
    plan.allow_unequal = vec!["memory".into()];
    plan.guest.cpus = vec![1];
    plan.guest.memory_bytes = Some(512 << 20);
    let quantile =
        plan.workloads.iter_mut().flat_map(|w| &mut w.metrics).find(|m| m.spec.name == "latency_p99");
    quantile.expect("a metric of the run").from =
        Extraction::Quantile { histogram: "/latency".into(), quantile: 0.99 };
    let title = "weigh run lu noploop echo --on native;docker:net=nat;uml;qemu:accel=tcg";
    let analysis = analysed(&comparisons, &plan);
    let mut report = run(title, "20260301T150000Z-machines", plan, analysis, BLOCKS, "30 blocks");
    for cell in report.analysis.cells.iter_mut().filter(|cell| cell.environment != "native") {
        match cell.environment.as_str() {
            UML => cell.flags.extend([Flag::ClockWarning, Flag::Unequal]),
            // The tool timed itself by an unproven clock.
            QEMU if cell.workload == "lu" => {
                cell.flags.push(Flag::ClockUnproven);
                (cell.verdict, cell.blocks_to_decide) = (None, None);
            }
            QEMU => cell.flags.push(Flag::HostClock),
            _ => {}
        }
        if cell.workload == "echo" && cell.metric.name == "rate" {
            cell.flags.push(Flag::Disturbed);
        }
        cell.flags.sort_unstable();
    }
    assert!(
        report.analysis.cells.iter().any(|c| c.verdict == Some(Verdict::Equivalent) && c.environment == UML)
    );
    let machine = ("kernel", "a virtual machine boots its own");
    report.environments = vec![
        facts("native", &[], &[]),
        facts(DOCKER, &[("network", "nat")], &[("network", "asked for by net=nat")]),
        facts(
            UML,
            &[
                ("kernel", "6.1.0-uml"),
                ("memory", "503533568 bytes"),
                ("mounts:/", "hostfs rw"),
                ("mitigations", "none"),
            ],
            &[
                ("kernel", "user-mode Linux is a kernel of its own"),
                ("mounts:/", "hostfs reaches the host's files"),
                ("mitigations", "those of another kernel"),
            ],
        ),
        facts(
            QEMU,
            &[
                ("kernel", "6.12.48-cloud-amd64"),
                ("acceleration", "tcg"),
                ("mounts:/", "rootfs rw"),
                ("clock-source", "hpet"),
                ("mitigations", "spectre_v2: IBRS"),
                ("transparent-huge-pages", "always"),
            ],
            &[
                machine,
                ("acceleration", "asked for by accel=tcg"),
                ("mounts:/", "a virtual machine without a disk"),
                ("clock-source", "an emulated processor"),
                ("mitigations", "those of another kernel"),
                ("transparent-huge-pages", "those of another kernel"),
            ],
        ),
    ];
    report.circumstances = circumstances();
    report.voids = voids();
    report.failures = vec![failure(QEMU, "echo", 31, false, "weigh-kernels did not end within 60 s")];
    report.warnings = vec![Notice::new("the frequency governor is `powersave`", "set it to `performance`")];
    report
}
