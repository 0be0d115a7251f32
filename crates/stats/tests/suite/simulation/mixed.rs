//! How often cells are flagged as mixtures.

use super::coverage::{FAMILIES, bimodal};
use super::*;
use weigh_stats::Flag;

fn is_mixed(logs: Vec<f64>) -> bool {
    has(&described(with_logs(&[logs])), Flag::Mixed)
}

/// Equal environments with symmetric log ratios that have a standard deviation of 1 %.
#[test]
fn equal_environments_are_no_mixture() {
    for family in FAMILIES.iter().filter(|family| family.median == 0.0) {
        for k in [6, 10, 30, 60] {
            let [mixed] = rates(4_000, 9_000 + k as u64, |random| {
                [is_mixed((0..k).map(|_| 0.01 * (family.draw)(random)).collect())]
            });
            at_most(&format!("{k} blocks of equal environments, {}, MIXED", family.name), mixed, 0.003);
        }
    }
}

/// A mode of slow blocks beside an effect of the same sign, which signs alone miss.
#[test]
fn a_slow_mode_is_a_mixture() {
    for (k, least) in [(30, 0.62), (60, 0.965)] {
        let [mixed] = rates(2_000, 9_100 + k as u64, |random| {
            [is_mixed((0..k).map(|_| 0.05 + 0.03 * bimodal(random)).collect())]
        });
        at_least(&format!("{k} blocks, 15 % of them slow, MIXED"), mixed, least);
    }
}
