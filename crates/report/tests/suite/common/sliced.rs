//! A run in slices on a host whose noise affects all environments alike, with one workload measured
//! in whole trials.

use super::*;
use weigh_model::{
    Caller, CallerCalls, Iteration, NoiseLimits, Outcome, Record, SliceMark, Slices, Slicing, Surface, Trial,
};
use weigh_stats::collect;

const BLOCKS: u32 = 8;
const ENVIRONMENTS: [&str; 3] = ["native", "namespaces", "runc"];

/// The approximate number of pieces of work that an arm finishes in a unit.
const PIECES: usize = 10;
/// The number of rounds that each piece takes without noise.
const EACH: usize = 5;

/// A unit of the first workload, in rounds of 5 ms. The host is faster or slower for the length of
/// a piece, for all arms alike.
fn sliced(random: &mut Random, block: u32) -> Vec<Trial> {
    let speeds: Vec<f64> = (0..PIECES).map(|_| (0.2 * random.normal()).exp()).collect();
    let costs = [1.0, 1.02, 1.10].map(|cost| cost * (0.01 * random.normal()).exp());
    let cut = |cost: f64, random: &mut Random| {
        let mut slices = Slices { length_us: 5_000, freeze_us: [48.0, 90.0], ..Slices::default() };
        slices.thaw_us = [9.0, 15.0];
        let mut mark = |at_us: f64, amount: Option<f64>| {
            let amounts = amount.map(|amount| ("rate".to_string(), amount)).into_iter().collect();
            slices.marks.push(SliceMark { at_us: at_us as u64, amounts });
        };
        mark(0.0, None);
        let (mut done, mut last) = (0.0, 0.0);
        for (round, at_us) in (0..PIECES * EACH).zip((0..).map(|round| f64::from(round) * 5_000.0)) {
            let rate = speeds[round / EACH] * (0.02 * random.normal()).exp() / cost;
            let piece = 1.0 / PIECES as f64;
            let work = rate / (PIECES * EACH) as f64;
            if done + work >= last + piece {
                last += piece;
                mark(at_us + 5_000.0 * (last - done) / work, Some(1e8));
            }
            done += work;
        }
        slices.thawed_us = vec![5_000; PIECES * EACH];
        slices
    };
    let trial = |(name, cost): (&str, f64), random: &mut Random| Trial {
        slices: Some(Box::new(cut(cost, random))),
        host_ended_ns: 2_000_000_000,
        ..trial("noploop", name, block, &[("rate", 9e7 / cost)])
    };
    ENVIRONMENTS.into_iter().zip(costs).map(|arm| trial(arm, random)).collect()
}

fn trial(workload: &str, environment: &str, block: u32, values: &[(&str, f64)]) -> Trial {
    let iteration = |(name, value): &(&str, f64)| Iteration {
        host_ended_ns: 900_000_000,
        guest_duration_ns: 900_000_000,
        values: [(name.to_string(), *value)].into(),
        ..Iteration::default()
    };
    Trial {
        environment: environment.into(),
        block,
        workload: workload.into(),
        host_ended_ns: 3_000_000_000,
        outcome: Outcome::Measured { iterations: values.iter().map(iteration).collect() },
        ..Trial::default()
    }
}

/// System calls of one workload; those of its last environment could not be counted.
fn surfaces() -> impl Iterator<Item = Surface> {
    let caller = |caller, program: Option<&str>, calls: &[(&str, u64)], lost| CallerCalls {
        caller,
        program: program.map(Into::into),
        total: calls.iter().map(|(_, count)| count).sum::<u64>() + lost,
        calls: calls.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
        lost,
    };
    let counted = |environment: &str, callers| Surface {
        environment: environment.into(),
        workload: "syscall".into(),
        duration_ns: 2_000_000_000,
        operations: None,
        callers,
        absent: None,
    };
    let calls = [("getpid", 200_000), ("read", 100_000), ("mmap", 10_020), ("vfork", 60)];
    let more = [("getpid", 200_000), ("read", 100_040), ("mmap", 10_031), ("seccomp", 1), ("futex", 7)];
    [
        counted("native", vec![caller(Caller::Guest, None, &calls, 0)]),
        Surface::absent("namespaces", "syscall", "the kernel refused to count them: Operation not permitted"),
        counted(
            "runc",
            vec![
                caller(Caller::Guest, None, &more, 1_234),
                caller(Caller::Helper, Some("containerd-shim"), &[("epoll_pwait", 40), ("write", 22)], 0),
            ],
        ),
    ]
    .into_iter()
}

pub fn report() -> Report {
    let mut random = Random(44);
    let mut records = vec![Record::Slicing(Slicing {
        workload: "noploop".into(),
        length_us: Some(5_000),
        reason: "the shortest that freezing does not distort".into(),
        ..Slicing::default()
    })];
    let mut decided = Slicing { workload: "syscall".into(), ..Slicing::default() };
    decided.reason = "it waits: it used a CPU for 61 % of its time".into();
    records.push(Record::Slicing(decided));
    records.extend(surfaces().map(Record::Surface));
    for block in 0..BLOCKS {
        let mut whole = |name, cost: f64| {
            let mut value = || ("fork_exec", 1.9e-4 * cost * (0.02 * random.normal()).exp());
            let values = [value(), value(), value()];
            trial("syscall", name, block, &values)
        };
        let whole = [whole("native", 1.0), whole("namespaces", 1.02), whole("runc", 1.03)];
        let units = sliced(&mut random, block).into_iter().chain(whole);
        let at = |trial: Trial| Trial {
            host_started_ns: u64::from(block) * 30_000_000_000,
            host_ended_ns: u64::from(block) * 30_000_000_000 + trial.host_ended_ns,
            ..trial
        };
        records.extend(units.map(|trial| Record::Trial(at(trial))));
    }
    let shapes = ENVIRONMENTS.map(|name| shape(name, 0.0, 0.0));
    let asked = [
        comparison("noploop", rate("rate", "update/s", true), 1.0, 1, &shapes),
        comparison("syscall", time("fork_exec", true), 1.0, 1, &shapes),
    ];
    let mut plan = plan("sliced", &ENVIRONMENTS, &asked, Effort::Fixed { blocks: BLOCKS });
    plan.noise = NoiseLimits::default();
    plan.slices = weigh_model::SliceChoice::Auto;
    plan.surface = true;
    let collected = collect(&plan, &records);
    let analysis = analyse(&collected.comparisons, &weigh_stats::Options::for_run(&plan, &collected));
    let title = "weigh run noploop syscall --on native,namespaces,runc --slices auto --surface";
    let report = run(title, "20260301T160000Z-sliced", plan, analysis, BLOCKS, "8 blocks");
    Report { circumstances: collected.circumstances, ..report }
}
