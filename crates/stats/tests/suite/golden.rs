//! Published figures, through the public interface.

use crate::build::*;
use weigh_stats::Pairing;

/// Extra hours of sleep of ten patients under two drugs (Student, "The probable error of a mean",
/// Biometrika 6, 1908; R's dataset `sleep`).
const SLEEP: [[f64; 10]; 2] = [
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
];

/// Costs whose logarithms are the hours.
fn sleep() -> [Vec<f64>; 2] {
    SLEEP.map(|hours| hours.iter().map(|x| x.exp()).collect())
}

fn about(found: f64, expected: f64, digits: f64) {
    assert!((found - expected).abs() <= 0.51 * digits, "{found} is not {expected}");
}

/// R's documentation of `t.test`: `with(sleep, t.test(extra[group == 2], extra[group == 1], paired
/// = TRUE))`: t = 4.0621, df = 9, p-value = 0.002833, 95 percent confidence interval 0.7001142
/// 2.4598858, mean difference 1.58.
#[test]
fn students_sleep_paired() {
    let [one, two] = sleep();
    let cell = cell_of(pairs(&one, &two));
    let overhead = cell.overhead.unwrap();
    about(overhead.estimate.ln_1p(), 1.58, 1e-7);
    about(overhead.low.ln_1p(), 0.7001142, 1e-7);
    about(overhead.high.ln_1p(), 2.4598858, 1e-7);
    about(cell.p_diff.unwrap(), 0.002833, 1e-6);
    // The median difference is 1.3, and the second and the ninth of ten bound it (below).
    about(cell.typical.unwrap().estimate.ln_1p(), 1.3, 1e-9);
    about(cell.typical.unwrap().low.ln_1p(), 0.8, 1e-9);
    about(cell.typical.unwrap().high.ln_1p(), 2.4, 1e-9);
}

/// `t.test(extra ~ group, data = sleep)`: t = -1.8608, df = 17.776, p-value = 0.07939, interval
/// -3.3654832 0.2054832.
#[test]
fn students_sleep_by_welch() {
    let [one, two] = sleep();
    let cell = cell_of(comparison(vec![series("native", loose(&one)), series("e", loose(&two))]));
    assert_eq!(cell.pairing, Pairing::Unpaired);
    about(cell.overhead.unwrap().low.ln_1p(), -0.2054832, 1e-7);
    about(cell.overhead.unwrap().high.ln_1p(), 3.3654832, 1e-7);
    about(cell.p_diff.unwrap(), 0.07939, 1e-5);
}

/// Two-sided 5 % points of t as printed in tables since Fisher, Statistical Methods for Research
/// Workers (1925), table IV.
#[test]
fn the_table_of_t() {
    let printed = [12.706, 4.303, 3.182, 2.776, 2.571, 2.262, 2.145, 2.093, 2.045];
    for (df, t) in [1, 2, 3, 4, 5, 9, 14, 19, 29].into_iter().zip(printed) {
        // Mean 0 and standard deviation 1: the half width is t / sqrt(k).
        let k = df + 1;
        let interval = cell_of(with_log_ratios(&spread(k, 0.0, 1.0))).overhead.unwrap();
        about(interval.high.ln_1p() * (k as f64).sqrt(), t, 1e-3);
    }
}

/// Ranks of the 95 % interval of a median as printed in tables of the sign test (Dixon and Mood,
/// JASA 41, 1946): the largest number of the less frequent sign that is significant at the
/// two-sided 5 %, plus one.
#[test]
fn the_table_of_the_sign_test() {
    let up_to_twenty = (6..=20).zip([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5]);
    for (k, r) in up_to_twenty.chain([(25, 7), (30, 9), (40, 13), (50, 17)]) {
        let ascending: Vec<f64> = (1..=k).map(|i| 0.001 * f64::from(i)).collect();
        let typical = cell_of(with_log_ratios(&ascending)).typical.unwrap();
        about(typical.low.ln_1p(), 0.001 * f64::from(r + 1), 1e-9);
        about(typical.high.ln_1p(), 0.001 * f64::from(k - r), 1e-9);
    }
    let five = cell_of(with_log_ratios(&[0.1, 0.2, 0.3, 0.4, 0.5]));
    assert_eq!(five.typical, None, "no number of signs is significant");
}
