//! What the records say beside the values: noise, clocks, charges, differences.

use crate::build::{close, metric};
use crate::records::*;
use weigh_model::{
    Better, Charge, ClockCheck, ClockState, CpuTime, Extraction, HOST_ENERGY, HOST_ENERGY_ABOVE_IDLE,
    HostSettings, Iteration, NoiseLimits, NoisyHost, Observed, Operations, Plan, Pressure, Record,
};
use weigh_stats::{Analysis, Flag, RunData, Verdict, WarningKind, collect};

/// Blocks of the workload `w` with a small spread; `see` gives observation and clock.
fn run(blocks: u32, see: impl Fn(u32, &str) -> (Option<Observed>, Option<ClockCheck>)) -> Vec<Record> {
    file((0..blocks).map(|block| {
        let trial = |(i, environment): (usize, &'static str)| {
            let time = 1.0 + 0.5 * i as f64 + 0.001 * f64::from(block % 5 + i as u32);
            let (observed, clock) = see(block, environment);
            let mut record = seen(measured(At(block, 0, "w", environment), &[time]), observed, clock);
            let Record::Trial(trial) = &mut record else { unreachable!() };
            trial.sequence = u64::from(block) * 3 + i as u64;
            record
        };
        ENVIRONMENTS.into_iter().enumerate().map(trial).collect()
    }))
}

fn busy(ns: u64) -> CpuTime {
    CpuTime { ns, uncertainty_ns: 0 }
}

#[test]
fn a_run_without_observations_reports_none() {
    let collected = collect(&time_plan(), &run(3, |_, _| (None, None)));
    assert_eq!(collected.circumstances, Default::default());
    assert_eq!((collected.comparisons.len(), collected.flags.len(), collected.warnings.len()), (1, 0, 0));
}

#[test]
fn noise_is_summed_over_the_trials_that_count() {
    let see = |block: u32, environment: &str| {
        let mut observed = quiet(500_000_000);
        observed.cpus = vec![0, 1];
        observed.pressure = Some(Pressure { cpu_some_ns: 100_000_000, ..Pressure::default() });
        observed.frequency_khz = Some((2_000_000 + u64::from(block), 3_000_000));
        observed.charge.unattributed_ns = 30_000_000;
        observed.sensors_ns = 1_000_000;
        if (block, environment) == (1, "e") {
            observed.steal = busy(30_000_000); // 1.5 % of two CPUs
            observed.foreign = CpuTime { ns: 80_000_000, uncertainty_ns: 79_000_000 };
            observed.throttled_periods = 3;
            observed.kernel_log = vec!["oops".into(), "oops".into()];
        }
        (Some(observed), None)
    };
    let mut records = run(4, see);
    // A void unit does not count, however noisy it was.
    records.push(void(3, 0, "w"));
    let collected = collect(&time_plan(), &records);
    let noise = collected.circumstances.noise.clone().unwrap();
    assert_eq!((noise.trials, noise.disturbed, noise.throttled), (9, 1, 1));
    assert_eq!((noise.steal_share_max, noise.foreign_share_max), (0.015, 0.0005));
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    near(noise.steal_share, 0.03 / 18.0);
    near(noise.foreign_share, 0.08 / 18.0);
    let (cpu, memory, io) = noise.pressure_shares.unwrap();
    near(cpu, 0.1);
    assert_eq!((memory, io), (0.0, 0.0));
    assert_eq!(noise.frequency_khz, Some((2_000_000, 3_000_000)));
    near(noise.unattributed_share.unwrap(), 0.03);
    near(noise.sensors_share, 0.001);
    assert_eq!(noise.kernel_log, ["oops"]);
    let kinds = kinds_of(&collected);
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert!(matches!(kinds[0], WarningKind::Disturbed { disturbed: 1, trials: 9, .. }));
    assert!(matches!(kinds[1], WarningKind::Unattributed { share } if (share - 0.03).abs() < 1e-9));
    assert_eq!(kinds[2], WarningKind::KernelLog { count: 1, first: "oops".into() });
    // The flag is on the cell of that trial, and on no other.
    let analysis = analysed_run(&time_plan(), &collected);
    let disturbed: Vec<&str> = analysis
        .cells
        .iter()
        .filter(|c| c.metric.name == "time" && c.flags.contains(&Flag::Disturbed))
        .map(|c| c.environment.as_str())
        .collect();
    assert_eq!(disturbed, ["e"]);
    assert!(cell_in(&analysis, "time", "e").verdict.is_some(), "noise that does not void takes no verdict");
}

#[test]
fn four_seconds_are_too_short_to_reconcile() {
    let see = |_, _: &str| {
        let mut observed = quiet(1);
        observed.charge.unattributed_ns = 500_000_000;
        (Some(observed), None)
    };
    let noise = |blocks| collect(&time_plan(), &run(blocks, see)).circumstances.noise.unwrap();
    assert_eq!(noise(1).unattributed_share, None);
    assert_eq!(noise(2).unattributed_share, Some(0.5));
}

#[test]
fn a_disturbed_baseline_disturbs_every_ratio() {
    let see = |block: u32, environment: &str| {
        let mut observed = quiet(1_000);
        if (block, environment) == (0, "native") {
            observed.foreign = busy(6_000_000);
        }
        (Some(observed), None)
    };
    let flags = |limits: NoiseLimits| {
        let plan = Plan { noise: limits, ..time_plan() };
        let analysis = analysed_run(&plan, &collect(&plan, &run(3, see)));
        ENVIRONMENTS.map(|e| cell_in(&analysis, "time", e).flags.contains(&Flag::Disturbed))
    };
    assert_eq!(flags(NoiseLimits::default()), [true; 3]);
    assert_eq!(flags(NoiseLimits { warn_share: 0.007, ..NoiseLimits::default() }), [false; 3]);
}

#[test]
fn settings_and_a_noisy_host_are_warned_of() {
    let see = |block: u32, _: &str| {
        let mut observed = quiet(1_000);
        observed.settings = HostSettings {
            governors: vec![if block < 2 { "performance" } else { "powersave" }.into()],
            turbo: Some(true),
            ksm: None,
            ..HostSettings::default()
        };
        (Some(observed), None)
    };
    let mut records = run(4, see);
    records.push(Record::NoisyHost(NoisyHost { from_block: 2, void_units: 5, units: 6 }));
    let collected = collect(&time_plan(), &records);
    let changes = vec!["frequency governor: performance -> powersave".to_string()];
    assert_eq!(
        kinds_of(&collected),
        [
            WarningKind::NoisyHost { from_block: 2, void_units: 5, units: 6 },
            WarningKind::Governor { governors: vec!["powersave".into()] },
            WarningKind::Turbo,
            WarningKind::SettingsChanged { changes: changes.clone() },
        ]
    );
    let noise = collected.circumstances.noise.unwrap();
    assert_eq!((noise.changed_settings, noise.settings.governors), (changes, vec!["powersave".to_string()]));
    assert_eq!(collected.circumstances.noisy_host.unwrap().void_units, 5);
    for warning in &collected.warnings {
        let sentence = warning.to_string();
        assert!(sentence.contains(';') || sentence.contains(", "), "what to do next: {sentence}");
    }
}

/// A trial in which no guest could be started records no settings, which is not a change of them.
#[test]
fn trials_without_recorded_settings_are_no_change_of_settings() {
    let see = |block: u32, environment: &str| {
        let mut observed = quiet(1_000);
        if block > 0 && environment == ENVIRONMENTS[0] {
            observed.settings = HostSettings { aslr: Some(2), ..HostSettings::default() };
        }
        (Some(observed), None)
    };
    let noise = collect(&time_plan(), &run(3, see)).circumstances.noise.unwrap();
    assert_eq!((noise.changed_settings, noise.settings.aslr), (Vec::new(), Some(2)));
    let untold = collect(&time_plan(), &run(3, |_, _| (Some(quiet(1_000)), None)));
    assert_eq!(untold.circumstances.noise.unwrap().settings, HostSettings::default());
}

/// A metric that weighbridge times, one that the tool times, and an amount.
fn three_metrics() -> Plan {
    let mut plan = plan_of(vec![
        metric("time", Better::Lower, true),
        metric("rate", Better::Higher, true),
        metric("size", Better::Lower, true),
    ]);
    let pointer = |name: &str| Extraction::Json { pointer: format!("/{name}") };
    plan.workloads[0].metrics[1].from = pointer("rate");
    plan.workloads[0].metrics[2].from = pointer("size");
    plan.workloads[0].metrics[2].spec.unit = weigh_model::Unit::normalise("MiB").0;
    plan
}

/// Records for [`three_metrics`]: `see` gives the clock of a trial, and the duration of its
/// iteration on that clock.
fn timed(see: impl Fn(u32, &str) -> (ClockCheck, u64)) -> Vec<Record> {
    file((0..8).map(|block| {
        let trial = |e: &'static str| {
            let x = if e == "native" { 1.0 } else { 2.0 } + 0.001 * f64::from(block % 3);
            let (clock, guest_duration_ns) = see(block, e);
            let values = iteration(&[("time", x), ("rate", 1.0 / x), ("size", x)]);
            let iterations = vec![Iteration { guest_duration_ns, ..values }];
            seen(trial_of(At(block, 0, "w", e), iterations), None, Some(clock))
        };
        ENVIRONMENTS.map(trial).to_vec()
    }))
}

/// A run in which the clocks are in these states.
fn with_clock(state_of: impl Fn(u32, &str) -> ClockState) -> (RunData, Analysis) {
    concluded(&three_metrics(), &timed(|block, e| (clock(state_of(block, e)), 1_000_000_000)))
}

#[test]
fn an_unproven_clock_removes_the_verdict_of_metrics_timed_by_the_tool() {
    let (collected, analysis) = with_clock(|block, e| match (block, e) {
        (_, "native") => ClockState::Shared,
        (3, "e") => ClockState::Bracket,
        _ => ClockState::Proven,
    });
    let of = |metric: &str, e: &str| {
        let cell = cell_in(&analysis, metric, e);
        (cell.flags, cell.verdict)
    };
    assert_eq!(of("time", "e"), (vec![Flag::HostClock], Some(Verdict::Slower)));
    assert_eq!(of("rate", "e"), (vec![Flag::ClockUnproven], None));
    assert_eq!(of("size", "e"), (vec![], Some(Verdict::Slower)));
    assert_eq!(of("rate", "f"), (vec![], Some(Verdict::Slower)));
    assert_eq!(analysis.comparisons, 6, "the family stays what was planned");
    assert_eq!(kinds_of(&collected), [WarningKind::ClockUnproven { unproven: 1, trials: 8 }]);
    let [native, e, f] = &collected.circumstances.clocks[..] else { panic!("three clocks") };
    assert_eq!(e.states, [(ClockState::Proven, 7), (ClockState::Bracket, 1)].into());
    assert_eq!((e.rate_ppm, e.bound_ppm, e.round_trip_ns), (Some(500.0), Some(25.0), Some(30_000.0)));
    assert_eq!((native.round_trip_ns, f.environment.as_str()), (None, "f"));
}

#[test]
fn a_misfit_takes_no_verdict_where_the_clock_cannot_have_strayed() {
    let flags_at = |bound_ppm: f64| {
        let records = timed(|_, e| {
            let state = if e == "native" { ClockState::Shared } else { ClockState::Bracket };
            let bounds = ClockCheck { rate_ppm: Some(100.0), bound_ppm: Some(bound_ppm), ..clock(state) };
            (bounds, 500_000_000)
        });
        let cell = cell_in(&concluded(&three_metrics(), &records).1, "rate", "e");
        (cell.flags, cell.verdict)
    };
    // The guest is awake for one second; half a per cent of half a second is 2500 ppm of that.
    assert_eq!(flags_at(2399.0), (vec![Flag::ClockWarning], Some(Verdict::Slower)));
    assert_eq!(flags_at(2401.0), (vec![Flag::ClockUnproven], None));
}

#[test]
fn the_baselines_clock_is_part_of_every_ratio() {
    let (_, analysis) =
        with_clock(|_, e| if e == "native" { ClockState::Bracket } else { ClockState::Shared });
    for e in ["e", "f"] {
        assert_eq!(cell_in(&analysis, "rate", e).verdict, None);
        assert!(cell_in(&analysis, "rate", e).flags.contains(&Flag::ClockUnproven));
        assert_eq!(cell_in(&analysis, "time", e).flags, [Flag::HostClock]);
    }
}

#[test]
fn a_clock_that_is_off_is_flagged_on_its_metrics_and_keeps_the_verdict() {
    let (collected, analysis) =
        with_clock(|_, e| if e == "e" { ClockState::Warned } else { ClockState::Shared });
    for (metric, flags) in
        [("time", vec![Flag::ClockWarning]), ("rate", vec![Flag::ClockWarning]), ("size", vec![])]
    {
        let cell = cell_in(&analysis, metric, "e");
        assert_eq!((cell.flags, cell.verdict), (flags, Some(Verdict::Slower)), "{metric}");
    }
    assert_eq!(kinds_of(&collected), [WarningKind::ClockOff { off: 8, trials: 8, rate_ppm: 500.0 }]);
}

/// The charge includes a helper beside the guest and softirqs, but no shared daemon, per operation
/// of all iterations together.
#[test]
fn cpu_per_operation_is_charged_with_every_helper() {
    let mut plan = time_plan();
    plan.workloads[0].operations =
        Some(Operations { name: "request".into(), from: Extraction::Json { pointer: "/operations".into() } });
    let records = |with_cycles: bool| {
        file((0..7).map(|block: u32| {
            let trial = |e: &'static str| {
                let guest_ns = if e == "e" { 2_000 } else { 1_000 } * 50 + u64::from(block);
                let mut observed = quiet(guest_ns);
                observed.charge = Charge {
                    guest_ns,
                    helpers_ns: if e == "e" { [("proxy".into(), 50_000)].into() } else { Default::default() },
                    softirq_ns: 10_000,
                    daemons_ns: [("daemon".into(), 5_000_000)].into(),
                    cycles: (with_cycles || e == "native").then_some(guest_ns * 3),
                    instructions: (with_cycles || e == "native").then_some(guest_ns * 6),
                    counters: [("vm_exits".into(), 100)].into(),
                    ..Charge::default()
                };
                let mut iterations = vec![iteration(&[("time", 1.0)]), iteration(&[("time", 1.0)])];
                iterations[0].operations = Some(20.0);
                iterations[1].operations = Some(30.0);
                seen(trial_of(At(block, 0, "w", e), iterations), Some(observed), None)
            };
            ENVIRONMENTS.map(trial).to_vec()
        }))
    };
    let collected = collect(&plan, &records(false));
    let e = &collected.circumstances.charges[1];
    assert_eq!((e.environment.as_str(), e.operation.as_str()), ("e", "request"));
    assert_eq!(e.cpu_ns_per_op, (100_003.0 + 50_000.0 + 10_000.0) / 50.0);
    let part = |name: &str| e.parts_ns_per_op[name];
    assert_eq!((part("guest"), part("proxy"), part("softirq")), (100_003.0 / 50.0, 1_000.0, 200.0));
    assert_eq!((e.daemons_ns_per_op["daemon"], e.counters_per_op["vm_exits"]), (100_000.0, 2.0));
    assert_eq!((e.cycles_per_op, e.instructions_per_op, e.instructions_per_cycle()), (None, None, None));
    let native = &collected.circumstances.charges[0];
    assert_eq!((native.cycles_per_op, native.instructions_per_op), (Some(3_000.18), Some(6_000.36)));
    assert_eq!(native.instructions_per_cycle(), Some(2.0));

    let analysis = analysed_run(&plan, &collected);
    let demand = cell_in(&analysis, "cpu_per_request", "e");
    assert_eq!((demand.metric.unit.symbol(), demand.metric.better), ("s", Better::Lower));
    assert_eq!((demand.primary, demand.verdict, demand.n), (false, None, 7));
    let expected = (160_003.0_f64 / 60_003.0) - 1.0;
    let overhead = demand.overhead.unwrap();
    close(e.difference.unwrap().low, overhead.low);
    close(e.difference.unwrap().high, overhead.high);
    assert_eq!(e.n, 7);
    assert_eq!(collected.circumstances.charges[0].difference, None);
    assert!(overhead.low < expected && expected < overhead.high, "{overhead:?} {expected}");
    assert_eq!(analysis.comparisons, 2, "service demand is descriptive");
    // The charge is in cycles as soon as every trial has them.
    let analysis = analysed_run(&plan, &collect(&plan, &records(true)));
    let demand = cell_in(&analysis, "cpu_per_request", "e");
    assert_eq!((demand.metric.unit.symbol(), demand.values[0].value), ("cycle", 300_000.0 / 50.0));
}

/// The energy of the host is a descriptive metric where it was counted: per operation, paired by
/// block, with and without what an idle host takes.
#[test]
fn energy_per_operation_is_compared_where_it_was_counted() {
    let plan = time_plan();
    let records = run(6, |block, environment| {
        let mut observed = quiet(4_000);
        let used_uj = if environment == "e" { 33_000 } else { 30_000 } + u64::from(block);
        let above_uj = used_uj - 20_000;
        observed.charge.counters =
            [(HOST_ENERGY.into(), used_uj), (HOST_ENERGY_ABOVE_IDLE.into(), above_uj)].into();
        (Some(observed), None)
    });
    let collected = collect(&plan, &records);
    let analysis = analysed_run(&plan, &collected);
    let energy = cell_in(&analysis, "energy_per_run", "e");
    assert_eq!((energy.metric.unit.symbol(), energy.metric.better), ("J", Better::Lower));
    assert_eq!((energy.primary, energy.verdict, energy.n), (false, None, 6));
    close(energy.values[0].value, 0.033);
    assert!((energy.overhead.unwrap().estimate - 0.1).abs() < 1e-4, "{energy:?}");
    let above = cell_in(&analysis, "energy_above_idle_per_run", "e");
    assert!((above.overhead.unwrap().estimate - 0.3).abs() < 1e-3, "{above:?}");
    assert_eq!(analysis.comparisons, 2, "energy is descriptive");
    let without = collect(&plan, &run(6, |_, _| (Some(quiet(4_000)), None)));
    assert!(!without.comparisons.iter().any(|one| one.metric.name.starts_with("energy")));
}

/// If nothing finer is counted, the operation is a run of the command.
#[test]
fn a_run_is_the_operation_of_a_workload_that_counts_none() {
    let records = run(3, |_, _| (Some(quiet(4_000)), None));
    let collected = collect(&time_plan(), &records);
    assert_eq!(collected.comparisons[1].metric.name, "cpu_per_run");
    assert_eq!(collected.circumstances.charges[0].cpu_ns_per_op, 4_000.0);
    let analysis = analysed_run(&time_plan(), &collected);
    assert!(
        cell_in(&analysis, "cpu_per_run", "e").is_charged_cpu()
            && !cell_in(&analysis, "time", "e").is_charged_cpu()
    );
    // If nothing is accounted, there is no charge.
    let unaccounted = collect(&time_plan(), &run(3, |_, _| (Some(quiet(0)), None)));
    assert_eq!((unaccounted.comparisons.len(), unaccounted.circumstances.charges.len()), (1, 0));
    assert!(unaccounted.circumstances.noise.is_some());
    // A trial with an unknown number of operations has no charge per operation.
    let mut plan = time_plan();
    plan.workloads[0].operations =
        Some(Operations { name: "byte".into(), from: Extraction::Json { pointer: "/operations".into() } });
    let collected = collect(&plan, &records);
    assert_eq!((collected.comparisons.len(), collected.circumstances.charges.len()), (1, 0));
}

#[test]
fn allowed_differences_are_reported_at_every_ratio() {
    let plan = Plan { allow_unequal: vec!["libc".into(), "binary".into(), "kernel".into()], ..time_plan() };
    let mut records = run(3, |_, _| (None, None));
    records.push(facts("native", &[("libc", "glibc"), ("kernel", "6.1"), ("binary:fio", "aa")], &[]));
    records.push(facts(
        "e",
        &[("libc", "glibc"), ("kernel", "6.9"), ("binary:fio", "bb"), ("cpus", "2")],
        &["kernel"],
    ));
    records.push(facts("f", &[("libc", "glibc"), ("kernel", "6.1"), ("binary:fio", "aa")], &[]));
    let (collected, analysis) = concluded(&plan, &records);
    let unequal = |analysis: &Analysis| {
        ENVIRONMENTS.map(|e| cell_in(analysis, "time", e).flags.contains(&Flag::Unequal))
    };
    assert_eq!(unequal(&analysis), [false, true, false]);
    assert_eq!(kinds_of(&collected), [WarningKind::Unequal { keys: vec!["binary:fio".into()] }]);
    // An instance whose facts change later differs too. Differences that nobody allowed are not for
    // the statistics to judge.
    records.push(facts("f", &[("libc", "musl"), ("kernel", "6.1"), ("binary:fio", "aa")], &[]));
    assert_eq!(unequal(&analysed_run(&plan, &collect(&plan, &records))), [false, true, true]);
    let strict = time_plan();
    assert_eq!(unequal(&analysed_run(&strict, &collect(&strict, &records))), [false; 3]);
}

/// A run of containers whose guests state these times: durations, and CPU time. Each iteration took
/// a second between request and answer, and the host charged the given CPU time.
fn stated(duration_ns: u64, user_ns: u64, charged_ns: u64) -> (RunData, Analysis) {
    let records = file((0..8).map(|block| {
        let trial = |e: &'static str| {
            let forges = e == "e";
            let x = if forges { 0.5 } else { 1.0 } + 0.001 * f64::from(block % 3);
            let values = iteration(&[("time", x), ("rate", 1.0 / x), ("size", x)]);
            let honest = Iteration { guest_duration_ns: 999_000_000, user_ns: 990_000_000, ..values.clone() };
            let forged = Iteration { guest_duration_ns: duration_ns, user_ns, ..values };
            let iterations = vec![if forges { forged } else { honest }];
            let observed = quiet(if forges { charged_ns } else { 995_000_000 });
            seen(trial_of(At(block, 0, "w", e), iterations), Some(observed), Some(clock(ClockState::Shared)))
        };
        ENVIRONMENTS.map(trial).to_vec()
    }));
    concluded(&three_metrics(), &records)
}

#[test]
fn honest_times_of_a_container_are_believed() {
    let (collected, analysis) = stated(998_000_000, 990_000_000, 996_000_000);
    assert_eq!(kinds_of(&collected), []);
    assert!(cell_in(&analysis, "time", "e").verdict.is_some());
}

/// Root in a container answers in place of the probe and halves its times; the host's accounting of
/// CPU time shows how long it really worked.
#[test]
fn a_container_that_halves_its_times_is_found_out() {
    let forged = stated(500_000_000, 495_000_000, 995_000_000);
    let impossible = WarningKind::ImpossibleTimes { impossible: 8, trials: 8 };
    assert_eq!(kinds_of(&forged.0), std::slice::from_ref(&impossible));
    for metric in ["time", "rate"] {
        let cell = cell_in(&forged.1, metric, "e");
        assert!(cell.flags.contains(&Flag::ClockUnproven) && cell.verdict.is_none(), "{metric}");
    }
    assert!(cell_in(&forged.1, "size", "e").flags.is_empty(), "no clock measures it");
    assert!(cell_in(&forged.1, "time", "f").verdict.is_some());
    // More CPU time than elapsed time is a contradiction.
    assert_eq!(kinds_of(&stated(999_000_000, 1_500_000_000, 900_000_000).0), [impossible]);
    // A guest that hardly works is found out by the missing time.
    let kinds = kinds_of(&stated(500_000_000, 0, 1_000_000).0);
    assert!(
        matches!(kinds[..], [WarningKind::TimeMissing { missing_share, trials: 8 }] if (missing_share - 0.5).abs() < 1e-9),
        "{kinds:?}"
    );
}
