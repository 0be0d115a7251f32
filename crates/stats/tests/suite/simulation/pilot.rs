//! Runs that a pilot plans have the promised power, and the proposed number of iterations is the
//! best (method specification, "Planning a run").

use super::*;
use std::collections::BTreeMap;
use weigh_model::{
    Effort, EnvironmentSpec, Extraction, Iteration, MetricSource, MetricSpec, Outcome, Plan, Record, Trial,
    WorkloadPlan,
};
use weigh_stats::{Options, PILOT_BLOCKS, PilotSpread, PlannedRun, analyse, collect, planned_run};

const PILOT: usize = PILOT_BLOCKS as usize;
/// The difference to find.
const DETECT: f64 = 0.01;

/// Whether a run of `blocks` blocks finds an effect of `DETECT` in the first of its environments.
fn finds(random: &mut Random, blocks: u32, sd: f64, environments: usize) -> bool {
    let mean = |at: usize| if at == 0 { DETECT.ln_1p() } else { 0.0 };
    let logs: Vec<Vec<f64>> =
        (0..environments).map(|at| random.normals(blocks as usize, mean(at), sd)).collect();
    is_different(&family(&logs).cells[1])
}

/// A pilot whose bound on the spread is exactly the truth.
#[test]
fn a_spread_at_the_bound_is_found_with_the_power_that_is_promised() {
    for (environments, sd, repetitions) in [(1, 0.01, 8_000), (1, 0.03, 4_000), (12, 0.02, 1_000)] {
        let seen = PilotSpread::of(&spread(PILOT, 0.0, 1.0)).unwrap();
        let pilot = PilotSpread::of(&spread(PILOT, 0.0, sd / seen.bound)).unwrap();
        let blocks = pilot.blocks_to_detect(DETECT, environments).unwrap();
        let [found] = rates(repetitions, 401, |random| [finds(random, blocks, sd, environments)]);
        near(&format!("power at the bound, {blocks} blocks, {environments} comparisons"), found, 0.80, 0.003);
    }
}

/// Random pilots: four of five have a bound that holds, and their runs find the difference more
/// often than promised. Without the bound they find it less often. Expected: means over the
/// distribution of the spread of six blocks, with the noncentral t distribution of scipy 1.17.1.
#[test]
fn runs_that_a_pilot_plans_find_what_they_promise() {
    const SD: f64 = 0.02;
    let [bounded, found, unbounded] = rates(4_000, 402, |random| {
        let pilot = PilotSpread::of(&random.normals(PILOT, 0.0, SD)).unwrap();
        let blocks = pilot.blocks_to_detect(DETECT, 1).unwrap();
        let naive = PilotSpread { bound: pilot.sd, ..pilot }.blocks_to_detect(DETECT, 1).unwrap();
        [pilot.bound >= SD, finds(random, blocks, SD, 1), finds(random, naive, SD, 1)]
    });
    near("pilots whose bound holds", bounded, 0.80, 0.0);
    near("runs that find the difference", found, 0.892, 0.004);
    near("runs without the bound that find it", unbounded, 0.711, 0.005);
}

/// The effect does not enter the plan.
#[test]
fn a_plan_does_not_depend_on_the_effect() {
    let plan = |mean| PilotSpread::of(&spread(PILOT, mean, 0.01)).unwrap().blocks_to_detect(DETECT, 4);
    // The formula with the quantiles of scipy 1.17.1.
    assert_eq!(plan(0.0), Some(28));
    assert_eq!(plan(0.5), plan(0.0));
    assert_eq!(plan(-0.2), plan(0.0));
}

/// Standard deviation of an iteration of both environments together.
const WITHIN: f64 = 0.04;

/// For a given time, sqrt(9 / 1) .04 / .01 = 12 iterations give the mean of the blocks the least
/// variance. The expected variances are (sb^2 + sw^2 / n) / K.
#[test]
fn the_best_number_of_iterations_has_the_least_variance_for_its_time() {
    const BETWEEN: f64 = 0.01;
    const LAUNCH_S: u32 = 9;
    const ITERATION_S: u32 = 1;
    const TIME_S: u32 = 1_155;
    let repetitions = if is_long() { COSTLY } else { 4_000 };
    let found = [6, 12, 24].map(|iterations: u32| {
        let blocks = TIME_S / (LAUNCH_S + ITERATION_S * iterations);
        let mut random = Random::new(403);
        let mut squares = 0.0;
        for _ in 0..repetitions {
            let mut sum = 0.0;
            for _ in 0..blocks {
                sum += BETWEEN * random.normal();
                sum += random.normals(iterations as usize, 0.0, WITHIN).iter().sum::<f64>()
                    / f64::from(iterations);
            }
            squares += (sum / f64::from(blocks)).powi(2);
        }
        let variance = squares / f64::from(repetitions);
        let expected = (BETWEEN.powi(2) + WITHIN.powi(2) / f64::from(iterations)) / f64::from(blocks);
        let tolerance = chance(std::f64::consts::SQRT_2, repetitions);
        near(
            &format!("variance, {iterations} iterations, of the formula"),
            variance / expected,
            1.0,
            tolerance,
        );
        variance
    });
    let [fewer, best, more] = found;
    assert!(best < fewer && best < more, "{found:?}");
}

/// Records of whole trials, with iterations of a second and launches of a minute per trial.
fn records(random: &mut Random, plan: &Plan, (blocks, effect, between): (u32, f64, f64)) -> Vec<Record> {
    let iterations = plan.workloads[0].iterations;
    let each_ns = 1_000_000_000;
    let span_ns = u64::from(iterations) * each_ns;
    let mut at_ns = 0;
    let mut records = Vec::new();
    for block in 0..blocks {
        let own = effect + between * random.normal();
        for (environment, own) in [("native", 0.0), ("e", own)] {
            let iteration = |log: f64| Iteration {
                host_ended_ns: each_ns,
                values: BTreeMap::from([("time".to_string(), log.exp())]),
                ..Iteration::default()
            };
            let values = random.normals(iterations as usize, own, WITHIN / 2.0_f64.sqrt());
            records.push(Record::Trial(Trial {
                environment: environment.into(),
                block,
                workload: "w".into(),
                host_started_ns: at_ns,
                host_ended_ns: at_ns + span_ns,
                outcome: Outcome::Measured { iterations: values.into_iter().map(iteration).collect() },
                ..Trial::default()
            }));
            at_ns += span_ns;
        }
        at_ns += 120 * each_ns;
    }
    records
}

fn plan(iterations: u32, blocks: u32) -> Plan {
    let metric = MetricSource {
        spec: MetricSpec { primary: true, ..MetricSpec::time("time") },
        from: Extraction::Duration,
        factor: 1.0,
    };
    let environments = ["native", "e"].map(|name| EnvironmentSpec::new(name, BTreeMap::new()).into());
    let workload = WorkloadPlan { iterations, ..WorkloadPlan::of("w", Vec::new(), vec![metric]) };
    Plan::of("p", environments.into(), vec![workload], Effort::Fixed { blocks })
}

fn planned(random: &mut Random, iterations: u32, (effect, between): (f64, f64)) -> PlannedRun {
    let plan = plan(iterations, PILOT_BLOCKS);
    planned_run(&plan, &records(random, &plan, (PILOT_BLOCKS, effect, between)), DETECT)
}

/// Goes from the records of a pilot of three iterations to a run of as many blocks and iterations
/// as it proposes, whose values are medians.
#[test]
fn runs_with_the_proposed_iterations_find_what_they_promise() {
    let [found, iterated, saving] = rates(400, 404, |random| {
        let proposed = planned(random, 3, (DETECT.ln_1p(), 0.004));
        let (iterations, expense) =
            proposed.better.map_or((3, proposed.present), |better| (better.iterations, better.expense));
        let blocks = expense.blocks.unwrap();
        let run = plan(iterations, blocks);
        let records = records(random, &run, (blocks, DETECT.ln_1p(), 0.004));
        let collected = collect(&run, &records);
        let analysis = analyse(&collected.comparisons, &Options::for_run(&run, &collected));
        let quarter = expense.seconds.unwrap() < 0.75 * proposed.present.seconds.unwrap();
        [is_different(&analysis.cells[1]), proposed.better.is_some(), quarter]
    });
    near("runs that find the difference", found, 0.96, 0.005);
    near("pilots that propose other iterations", iterated, 0.597, 0.01);
    near("pilots that save a quarter of the time by that", saving, 0.272, 0.01);
}

/// Launches of a minute beside iterations of a second: if only iterations differ, many of them pay,
/// as far as a pilot can tell; if blocks differ by ten times as much, none do.
#[test]
fn the_level_of_variation_says_whether_iterations_pay() {
    let [alike, apart, many] = rates(400, 405, |random| {
        let alike = planned(random, 3, (0.3, 0.0));
        assert!((alike.block_s.unwrap() - 126.0).abs() < 1e-9, "{alike:?}");
        if let Some(better) = alike.better {
            assert!(better.expense.seconds.unwrap() < 0.9 * alike.present.seconds.unwrap(), "{alike:?}");
            assert!(better.expense.blocks.unwrap() < alike.present.blocks.unwrap(), "{alike:?}");
            assert!(better.iterations > 3, "{alike:?}");
        }
        let apart = planned(random, 3, (0.3, 0.4));
        let many = apart.present.blocks.unwrap() > 10 * alike.present.blocks.unwrap();
        [alike.better.is_some(), apart.better.is_some(), many]
    });
    near("proposed where iterations differ", alike, 0.602, 0.01);
    at_most("proposed where blocks differ", apart, 1e-4);
    at_least("more than ten times as many blocks", many, 0.95);
}
