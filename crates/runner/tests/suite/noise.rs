//! Effects of the host's noise on a run: warnings, void units, noisy hosts. The sensors are
//! scripted.

use crate::common::{
    Bench, Now, Outing, assert_complete, copy_run, failure, fixed, foreign, has_done, is_measured,
    lengths_with_whole_lines, plan, quiet, records, trials, valid_trials, voids, warnings,
};
use std::collections::BTreeSet;
use weigh_model::{
    Charge, CpuTime, Event, Extraction, FailureKind, FinishReason, NoiseSeen, NoisyHost, Observed, Outcome,
    Plan, Pressure, Record, VoidCause,
};
use weigh_stats::{Options, Verdict, analyse, collect};
use weigh_store::RunDirectory;

const ENVIRONMENTS: [&str; 2] = ["null", "null:label=b"];

fn bench(weather: impl Fn(&Now) -> Observed + 'static) -> Bench {
    let mut bench = Bench::without_pilot();
    bench.weather = Box::new(weather);
    bench
}

fn run(plan: &Plan, weather: impl Fn(&Now) -> Observed + 'static) -> (Outing, RunDirectory, Bench) {
    let bench = bench(weather);
    let (outing, store) = bench.run(plan);
    (outing, store, bench)
}

fn noisy_host(store: &RunDirectory) -> Option<NoisyHost> {
    records(store).into_iter().find_map(|record| match record {
        Record::NoisyHost(noisy) => Some(noisy),
        _ => None,
    })
}

/// The units that count, as (block, workload).
fn counting(store: &RunDirectory) -> BTreeSet<(u32, String)> {
    valid_trials(store).into_iter().map(|trial| (trial.block, trial.workload)).collect()
}

#[test]
fn observations_are_recorded() {
    let (outing, store, _bench) = run(&plan(&ENVIRONMENTS, &["u"], fixed(2)), |_| foreign(0.001));
    assert!(trials(&store).iter().all(|trial| trial.observed.as_deref() == Some(&foreign(0.001))));
    assert!(voids(&store).is_empty() && warnings(&outing).is_empty());
    // A failed trial has no signals.
    let (_, store, _bench) = run(&plan(&["null:fault=exit"], &["u"], fixed(1)), |_| foreign(0.5));
    assert!(trials(&store)[0].observed.is_none() && voids(&store).is_empty());
}

#[test]
fn preparation_and_clean_up_are_not_observed() {
    let mut plan = plan(&["null"], &["u"], fixed(1));
    plan.workloads[0].warmup = 2;
    plan.workloads[0].iterations = 3;
    let window_ns = |plan: &Plan| {
        let (_, store, _bench) = run(plan, |_| quiet());
        trials(&store)[0].observed.as_ref().unwrap().window_ns
    };
    // The script observes one second per window.
    assert_eq!(window_ns(&plan), 1_000_000_000);
    plan.workloads[0].cleanup = Some(vec!["clean".into()]);
    assert_eq!(window_ns(&plan), 3_000_000_000);
}

#[test]
fn noise_in_one_arm_voids_the_whole_unit_and_ends_it() {
    let plan = plan(&["null", "null:label=b", "null:label=c"], &["u", "v"], fixed(6));
    let loud = |now: &Now| now.workload == "v" && now.environment == "null:label=b" && now.block % 3 == 1;
    let (outing, store, _bench) = run(&plan, move |now| if loud(now) { foreign(0.05) } else { quiet() });
    assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, 6));
    let void = voids(&store);
    let places: Vec<(u32, &str)> = void.iter().map(|void| (void.block, void.workload.as_str())).collect();
    // Blocks 1 and 4 of `v` are replaced by 6 and 7; block 7 is void again and replaced by 8.
    assert_eq!(places, [(1, "v"), (4, "v"), (7, "v")]);
    for unit in &void {
        assert_eq!((unit.cause, unit.environment.as_deref()), (VoidCause::ForeignCpu, Some("null:label=b")));
        assert_eq!(
            unit.detail.as_deref(),
            Some("5 % of 1 CPU in 1.00 s, 5 % of that certain; the limit is 2 %")
        );
        // The trial with the signal is the last one of its unit.
        let of_unit: Vec<_> = trials(&store)
            .into_iter()
            .filter(|trial| (trial.block, &trial.workload) == (unit.block, &unit.workload))
            .collect();
        assert_eq!(of_unit.last().unwrap().environment, "null:label=b");
    }
    // Every unit that counts is whole.
    let valid = valid_trials(&store);
    assert_eq!(valid.len(), 2 * 6 * 3);
    let collected = collect(&plan, &records(&store));
    assert_eq!(collected.blocks_done, 6);
    assert!(collected.incomplete.is_empty());
    assert_eq!(collected.voids.len(), 3);
    let of_v = collected.comparisons.iter().find(|c| c.workload == "v" && c.metric.name == "time").unwrap();
    for series in &of_v.series {
        let blocks: Vec<u32> = series.observations.iter().map(|o| o.block.unwrap()).collect();
        assert_eq!(blocks, [0, 2, 3, 5, 6, 8]);
    }
}

#[test]
fn each_signal_voids_under_its_own_name_and_pressure_never_does() {
    let share = |share: f64| CpuTime { ns: (share * 1e9) as u64, uncertainty_ns: 0 };
    let cases = [
        (Observed { steal: share(0.03), ..quiet() }, Some(VoidCause::Steal)),
        (Observed { foreign: share(0.03), ..quiet() }, Some(VoidCause::ForeignCpu)),
        (Observed { throttled_periods: 1, throttled_ns: 1, ..quiet() }, Some(VoidCause::Throttle)),
        // Only certain noise counts.
        (Observed { foreign: CpuTime { ns: 40_000_000, uncertainty_ns: 20_000_000 }, ..quiet() }, None),
        (
            Observed {
                pressure: Some(Pressure {
                    cpu_some_ns: 1_000_000_000,
                    io_full_ns: 900_000_000,
                    ..Pressure::default()
                }),
                context_switches: 1_000_000,
                kernel_log: vec!["something".into()],
                ..quiet()
            },
            None,
        ),
    ];
    for (seen, cause) in cases {
        let strikes = seen.clone();
        let plan = plan(&ENVIRONMENTS, &["u"], fixed(4));
        let (_, store, _bench) =
            run(&plan, move |now| if now.block == 1 { strikes.clone() } else { quiet() });
        let void = voids(&store);
        assert_eq!(void.len(), usize::from(cause.is_some()), "{seen:?}");
        assert!(void.iter().all(|void| Some(void.cause) == cause && void.block == 1));
        assert_eq!(collect(&plan, &records(&store)).blocks_done, 4);
    }
}

#[test]
fn limits_are_the_plans() {
    let mut plan = plan(&ENVIRONMENTS, &["u"], fixed(4));
    plan.noise.void_share = 0.5;
    let (outing, store, _bench) = run(&plan, |_| foreign(0.4));
    assert!(voids(&store).is_empty());
    // One warning per environment, not per trial.
    assert_eq!(warnings(&outing).len(), 2, "{:?}", warnings(&outing));
    assert!(warnings(&outing)[0].contains("40 % of 1 CPU"), "{:?}", warnings(&outing));
    plan.noise.warn_share = 0.45;
    let (outing, _, _bench) = run(&plan, |_| foreign(0.4));
    assert!(warnings(&outing).is_empty());
}

#[test]
fn without_voiding_nothing_is_void_and_nothing_called_noisy() {
    let mut plan = plan(&ENVIRONMENTS, &["u"], fixed(8));
    plan.noise.voiding = false;
    let (outing, store, _bench) = run(&plan, |_| Observed { throttled_periods: 3, ..foreign(0.9) });
    assert_complete(&plan, &store, 8);
    assert!(noisy_host(&store).is_none());
    assert_eq!(warnings(&outing).len(), 4, "{:?}", warnings(&outing));
}

#[test]
fn a_host_on_which_most_units_would_be_void_is_measured_all_the_same() {
    for (planned, from_block) in [(12, 6), (6, 6), (2, 2), (1, 1)] {
        let plan = plan(&ENVIRONMENTS, &["u"], fixed(planned));
        let (outing, store, _bench) = run(&plan, |_| foreign(0.1));
        let noisy = noisy_host(&store).unwrap();
        assert_eq!(noisy, NoisyHost { from_block, void_units: from_block, units: from_block });
        assert_eq!(voids(&store).len(), from_block as usize);
        assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Blocks, planned));
        let told = format!("NOISY-HOST: noise voided {from_block} of {from_block} units");
        assert!(
            warnings(&outing).iter().any(|message| message.starts_with(&told)),
            "{:?}",
            warnings(&outing)
        );
        let collected = collect(&plan, &records(&store));
        assert_eq!(collected.blocks_done, planned);
        assert_eq!(collected.circumstances.noisy_host, Some(noisy));
    }
}

#[test]
fn half_of_the_units_are_not_most() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(6));
    let (outing, store, _bench) = run(&plan, |now| if now.block % 2 == 0 { quiet() } else { foreign(0.1) });
    assert_eq!(noisy_host(&store), None);
    assert_eq!(voids(&store).len(), 5);
    assert_eq!(outing.finish.blocks_done, 6);
}

#[test]
fn a_budget_holds_on_a_noisy_host() {
    let mut plan = plan(&["null:real=yes,time=20ms", "null:real=yes,time=20ms,label=b"], &["u"], fixed(100));
    plan.budget_s = Some(0.4);
    let (outing, store, _bench) = run(&plan, |now| if now.block < 3 { foreign(0.1) } else { quiet() });
    assert_eq!(outing.finish.reason, FinishReason::Budget);
    assert!(voids(&store).len() <= 3 && trials(&store).len() <= 22, "{}", trials(&store).len());
    assert_eq!(counting(&store).len() as u32, outing.finish.blocks_done);
    // A budget that is spent on void units ends the run too.
    plan.budget_s = Some(0.1);
    let (outing, store, _bench) = run(&plan, |_| foreign(0.1));
    assert_eq!((outing.finish.reason, outing.finish.blocks_done), (FinishReason::Budget, 0));
    assert!(!voids(&store).is_empty());
}

/// Foreign CPU time in one arm. It depends only on block and environment, so that a run sees the
/// same noise after it was cut.
fn patchy(now: &Now) -> Observed {
    let loud = match now.block {
        0 => now.workload == "u" && now.environment == "null",
        2 | 3 => now.environment == "null:label=b",
        _ => false,
    };
    if loud { foreign(0.3) } else { quiet() }
}

/// Noise that voids most units, so that voiding ends.
fn bad(now: &Now) -> Observed {
    if now.block == 1 { quiet() } else { foreign(0.3) }
}

/// A run that was cut and resumed has the same result as an uninterrupted one.
fn assert_same_end(plan: &Plan, store: &RunDirectory, whole: &RunDirectory, when: &str) {
    assert_eq!(counting(store), counting(whole), "{when}");
    assert_eq!(noisy_host(store), noisy_host(whole), "{when}");
    let noise = |store: &RunDirectory| -> Vec<(u32, String, VoidCause)> {
        let mut voids = voids(store);
        voids.retain(|void| void.cause != VoidCause::Interrupted);
        voids.into_iter().map(|void| (void.block, void.workload, void.cause)).collect()
    };
    assert_eq!(noise(store), noise(whole), "{when}");
    let (mine, theirs) = (collect(plan, &records(store)), collect(plan, &records(whole)));
    assert_eq!(mine.blocks_done, theirs.blocks_done, "{when}");
    assert!(mine.incomplete.is_empty(), "{when}");
}

#[test]
fn interrupted_at_any_event_a_noisy_run_goes_on_to_the_same_end() {
    for weather in [patchy, bad] {
        let plan = plan(&ENVIRONMENTS, &["u", "v"], fixed(4));
        let (outing, whole, _bench) = run(&plan, weather);
        assert_eq!(outing.finish.blocks_done, 4);
        for strike in 0..outing.events.len() {
            let bench = bench(weather);
            let mut store = bench.create(&plan);
            let mut seen = 0;
            bench.go_on_until(&plan, &mut store, |_| {
                seen += 1;
                seen > strike
            });
            bench.finish(&plan, &mut store);
            assert_same_end(&plan, &store, &whole, &format!("event {strike}"));
        }
    }
}

#[test]
fn cut_at_any_record_a_noisy_run_goes_on_to_the_same_end() {
    for weather in [patchy, bad] {
        let plan = plan(&ENVIRONMENTS, &["u", "v"], fixed(4));
        let (_, whole, home) = run(&plan, weather);
        let (ends, samples) = lengths_with_whole_lines(whole.path());
        for length in ends {
            let path = home.path().join(format!("20261121T050000Z-cut-{length}"));
            let mut store = copy_run(whole.path(), &path, &samples[..length]);
            home.finish(&plan, &mut store);
            assert_same_end(&plan, &store, &whole, &format!("byte {length}"));
        }
    }
}

#[test]
fn a_resumed_run_repeats_no_warning() {
    let mut plan = plan(&ENVIRONMENTS, &["u"], fixed(6));
    plan.noise.voiding = false;
    let bench = bench(|_| foreign(0.1));
    let mut store = bench.create(&plan);
    let mut told = Vec::new();
    for blocks in 1..=6 {
        let outing = bench.go_on_until(&plan, &mut store, |event| blocks < 6 && has_done(event, blocks));
        told.extend(warnings(&outing).into_iter().map(str::to_string));
    }
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_warning_is_given_once_and_the_noise_of_every_trial_is_reported() {
    let mut plan = plan(&ENVIRONMENTS, &["u"], fixed(4));
    plan.noise.voiding = false;
    let (outing, _, _bench) = run(&plan, |_| foreign(0.1));
    assert_eq!(warnings(&outing).iter().filter(|text| text.contains("other processes")).count(), 2);
    let seen = outing.events.iter().filter_map(|event| match event {
        Event::TrialFinished { noise, .. } => Some(noise.as_slice()),
        _ => None,
    });
    let foreign = NoiseSeen { cause: VoidCause::ForeignCpu, share: Some(0.1) };
    assert_eq!(seen.collect::<Vec<_>>(), [[foreign].as_slice(); 8]);
}

/// Native against native under noise that slows the affected trials by the time that it takes.
/// Returns the number of runs with a verdict of a difference.
fn false_verdicts(runs: u64, voiding: bool, share: fn(u64, &Now) -> f64) -> u32 {
    let mut found = 0;
    for seed in 0..runs {
        let environments =
            [format!("null:sd=0.003,seed={}", 2 * seed + 1), format!("null:sd=0.003,seed={}", 2 * seed + 2)];
        let mut plan = plan(&[&environments[0], &environments[1]], &["u"], fixed(8));
        plan.seed = seed;
        plan.noise.voiding = voiding;
        let (_, store, _bench) = run(&plan, move |now| foreign(share(seed, now)));
        let mut records = records(&store);
        for record in &mut records {
            let Record::Trial(trial) = record else { continue };
            let Outcome::Measured { iterations } = &mut trial.outcome else { continue };
            let now =
                Now { block: trial.block, workload: String::new(), environment: trial.environment.clone() };
            for value in iterations.iter_mut().flat_map(|iteration| iteration.values.values_mut()) {
                *value /= 1.0 - share(seed, &now);
            }
        }
        let analysis = analyse(&collect(&plan, &records).comparisons, &Options::for_plan(&plan));
        found += u32::from(
            analysis.cells.iter().any(|cell| matches!(cell.verdict, Some(Verdict::Slower | Verdict::Faster))),
        );
    }
    found
}

/// Whether noise strikes a block, with probability `share`. A multiplier makes neighbouring blocks
/// and seeds unrelated.
fn strikes(seed: u64, block: u32, share: f64) -> bool {
    let mixed = (seed << 32 | u64::from(block)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed >> 11) as f64) < share * (1u64 << 53) as f64
}

/// Whether it is the first of the two environments, whose seed is odd.
fn is_first(now: &Now) -> bool {
    now.environment.ends_with(['1', '3', '5', '7', '9'])
}

#[test]
fn noise_never_makes_native_differ_from_native() {
    // At 5 %, 100 runs give at most 13 with probability 99.9 %.
    let half_of_the_units = |seed: u64, now: &Now| if strikes(seed, now.block, 0.5) { 0.3 } else { 0.0 };
    for voiding in [true, false] {
        let found = false_verdicts(100, voiding, half_of_the_units);
        assert!(found <= 13, "{found} of 100, voiding {voiding}");
    }
    // Noise in one arm only would look like a difference, so its units are void.
    let one_arm =
        |seed: u64, now: &Now| if is_first(now) && strikes(seed, now.block, 0.25) { 0.3 } else { 0.0 };
    let found = false_verdicts(100, true, one_arm);
    assert!(found <= 13, "{found} of 100");
    // The test can fail: noise that always strikes one arm and voids nothing is found.
    let always = |_: u64, now: &Now| if is_first(now) { 0.3 } else { 0.0 };
    assert_eq!(false_verdicts(20, false, always), 20);
}

#[test]
fn random_reads_have_to_reach_the_hosts_device() {
    let mut plan = plan(&["null:time=1000s"], &["u"], fixed(1));
    plan.workloads[0].iterations = 2;
    plan.workloads[0].random_read_bytes = Some(Extraction::Json { pointer: "/metrics/time/value".into() });
    // What the sensors read: the counters of the guest, and of the host's devices.
    let outcome = |counters: &[(&str, u64)]| {
        let counters = counters.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect();
        let seen = Observed { charge: Charge { counters, ..Charge::default() }, ..quiet() };
        let (_, store, _bench) = run(&plan, move |_| seen.clone());
        trials(&store).remove(0)
    };
    const HOST: &str = "host_device_read_bytes";
    // Two runs of 1000 bytes: 95 % are 1900.
    for (name, bytes, passes) in [
        (HOST, 1900, true),
        (HOST, 1899, false),
        ("block_read_bytes", 2000, true),
        ("block_read_bytes", 1899, false),
        ("block_read_bytes", 2000 + (1 << 20), true),
        ("page_faults", 5000, false),
    ] {
        let trial = outcome(&[(name, bytes)]);
        assert_eq!(is_measured(&trial), passes, "{name} {bytes}: {:?}", trial.outcome);
        if let Some(failure) = failure(&trial) {
            assert_eq!(failure.kind, FailureKind::Check);
            assert!(failure.reason.contains("reports 2000 bytes of random reads"), "{}", failure.reason);
            assert!(name == "page_faults" || failure.reason.contains("1899"), "{}", failure.reason);
        }
    }
    for (counters, word) in [
        // A machine's own disk shows whose cache it was, and is not a proof by itself.
        (&[("guest_disk_read_bytes", 2000), (HOST, 100)][..], "a cache of the host"),
        (&[("guest_disk_read_bytes", 100), (HOST, 100)], "a cache in the machine"),
        (&[("guest_disk_read_bytes", 2000)], "cannot be read"),
        // Neither reads of others nor a host that reads ahead hide a cache.
        (&[("block_read_bytes", 0), (HOST, 9_000_000)], "saw 0"),
        (&[("block_read_bytes", 2_000_000), (HOST, 2_000_000)], "read ahead"),
    ] {
        let trial = outcome(counters);
        let failure = failure(&trial).expect("a cache was measured");
        assert!(failure.reason.contains(word), "{}", failure.reason);
    }
}
