//! The intervals and the changes of a course, under autoregressive noise.

use super::*;
use crate::records::{At, measured};
use weigh_model::Record;
use weigh_stats::{Course, courses};

/// Stationary normal noise of standard deviation 1 whose neighbours in time are correlated by
/// `memory`.
fn remembering(random: &mut Random, n: usize, memory: f64) -> Vec<f64> {
    let mut last = random.normal();
    let fresh = (1.0 - memory * memory).sqrt();
    (0..n)
        .map(|_| {
            last = memory * last + fresh * random.normal();
            last
        })
        .collect()
}

/// The course of values a minute apart.
fn course(values: &[f64]) -> Course {
    let trial = |(block, value): (u32, &f64)| {
        let Record::Trial(mut trial) = measured(At(block, 0, "w", "e"), &[*value]) else {
            panic!("a trial was measured")
        };
        trial.started = String::new();
        trial.host_started_ns = u64::from(block) * 60_000_000_000;
        Record::Trial(trial)
    };
    let records: Vec<Record> = (0..).zip(values).map(trial).collect();
    courses(&records, &[comparison(vec![series("e", in_blocks(values))])]).remove(0)
}

/// Blocks, correlation of neighbours, and how often nominal 95 % intervals cover a drift of 0, and
/// the coefficient of variation. These simulated figures belong to the documentation of the method.
const COVERAGE: [(usize, f64, f64, f64); 6] = [
    (30, 0.0, 0.95, 0.95),
    (30, 0.5, 0.93, 0.89),
    (100, 0.0, 0.95, 0.95),
    (100, 0.5, 0.95, 0.92),
    (400, 0.0, 0.95, 0.95),
    (400, 0.5, 0.95, 0.95),
];

#[test]
fn intervals_of_a_course_cover_under_memory() {
    for (n, memory, drift, variation) in COVERAGE {
        let found = rates(1_200, 7_000 + n as u64 + (memory * 10.0) as u64, |random| {
            let noise = remembering(random, n, memory);
            let values: Vec<f64> = noise.iter().map(|z| 10.0 * (1.0 + 0.05 * z)).collect();
            let course = course(&values);
            let cv = course.cv_interval.expect("there is spread");
            [holds(course.drift_per_hour, 0.0), (cv.low..=cv.high).contains(&0.05)]
        });
        near(&format!("n = {n}, AR({memory}), drift"), found[0], drift, 0.01);
        near(&format!("n = {n}, AR({memory}), CV"), found[1], variation, 0.01);
    }
}

#[test]
fn changes_are_found_and_not_made_up() {
    for (memory, least) in [(0.0, 0.98), (0.5, 0.95), (0.9, 0.0)] {
        let [invented, found] = rates_of([500, COSTLY], 7_900 + (memory * 10.0) as u64, |random| {
            let noise = remembering(random, 200, memory);
            let at = |step: f64| -> Vec<f64> {
                let level = |i: usize| if i < 120 { 0.0 } else { step };
                noise.iter().enumerate().map(|(i, z)| 10.0 * (0.01 * z + level(i)).exp()).collect()
            };
            let changes = |step: f64| course(&at(step)).changes.expect("200 are enough");
            let near_the_step = |block: u32| block.abs_diff(120) <= 3;
            [!changes(0.0).is_empty(), changes(0.05).iter().any(|change| near_the_step(change.block))]
        });
        at_most(&format!("AR({memory}), changes where there are none"), invented, 0.001);
        at_least(&format!("AR({memory}), steps of five standard deviations found"), found, least);
    }
}

/// Values just above ten, printed whole: nearly all are 10, and none of the others is a change. A
/// step to 13 is one.
#[test]
fn rounded_values_without_a_change_show_none() {
    for level in [10.0, 10.4, 10.5] {
        for sd in [0.01, 0.02] {
            let [invented, found] =
                rates_of([100, COSTLY], 7_950 + (level * 1000.0 + sd * 100.0) as u64, |random| {
                    let printed = |random: &mut Random, step: f64| -> Vec<f64> {
                        let value =
                            |i: usize, z: f64| level * (1.0 + sd * z) + if i < 120 { 0.0 } else { step };
                        (0..200).map(|i| value(i, random.normal()).round()).collect()
                    };
                    let changes = |values: &[f64]| course(values).changes.expect("200 are enough");
                    let near_the_step = |block: u32| block.abs_diff(120) <= 3;
                    let step = changes(&printed(random, 3.0));
                    [
                        !changes(&printed(random, 0.0)).is_empty(),
                        step.len() == 1 && near_the_step(step[0].block),
                    ]
                });
            let what = format!("{level} with sd {sd}, printed whole");
            at_most(&format!("{what}, changes where there are none"), invented, 0.001);
            at_least(&format!("{what}, steps of 3 found"), found, 0.98);
        }
    }
}
