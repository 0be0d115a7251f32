//! Overheads of printed numbers, with intervals that were computed elsewhere.

use super::*;
use std::path::Path;

fn study(published: &str, better: &str) -> Study {
    let text = format!(
        r#"
name = "s"
title = "t"
authors = "a"
published = "p"
host = "h"
method = "m"
[[experiment]]
name = "e"
title = "t"
source = "p. 1"
statistic = "mean"
baseline = "native"
measure = {{ command = "run" }}
arm = [{{ id = "native", label = "n", on = "native" }}, {{ id = "kvm", label = "k", on = "kvm" }}]
quantity = [{{ id = "q", label = "q", workload = "w", metric = "m", unit = "s", better = "{better}" }}]
published = [{published}]
view = [{{ id = "v", title = "t", form = "table", quantities = ["q"] }}]
"#
    );
    crate::file::read_study(Path::new("s.toml"), &text).unwrap()
}

fn overhead(published: &str, better: &str) -> PublishedOverhead {
    study(published, better).published_overhead("e", "q", "kvm", None).unwrap()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

#[test]
fn a_positive_overhead_is_worse_in_both_directions() {
    let values = "{ quantity = 'q', source = 'p. 1', values = { native = [8], kvm = [10] } }";
    near(overhead(values, "lower").overhead, 0.25);
    near(overhead(values, "higher").overhead, -0.2);
    assert_eq!(overhead(values, "lower").interval, None);
}

/// The expected limits were computed independently, with quantiles by numerical integration of the
/// density.
#[test]
fn intervals_are_those_of_welch_on_logarithms() {
    let of = |published: &str, better: &str, low: f64, high: f64| {
        let found = overhead(published, better).interval.unwrap();
        near(found.0, low);
        near(found.1, high);
    };
    let pxz = "{ quantity = 'q', source = 'p. 1', n = 10, spread = 'sd', values = { native = [76.2, 0.93], kvm = [59.2, 1.88] } }";
    near(overhead(pxz, "higher").overhead, 76.2 / 59.2 - 1.0);
    of(pxz, "higher", 0.257_228_503_997, 0.317_808_518_049);
    // 15 runs on one side, 30 on the other.
    let two = |spread: &str| {
        format!(
            "{{ quantity = 'q', source = 'p. 1', n = 30, spread = '{spread}', values = {{ native = [10, 0.1] }} }}, \
             {{ quantity = 'q', source = 'p. 2', n = 15, spread = '{spread}', values = {{ kvm = [10.5, 0.3] }} }}"
        )
    };
    of(&two("sd"), "lower", 0.033_196_947_851, 0.067_076_322_953);
    of(&two("ci95"), "lower", 0.019_142_768_380, 0.081_791_515_582);
}

#[test]
fn the_interval_is_that_of_the_logs_behind_the_table() {
    // STREAM Triad of felter-2014: the ten values of each give a ratio of rates of .9873, .9837 to
    // .9909. The table rounds to .1 %.
    let triad = "{ quantity = 'q', source = 'p. 1', n = 10, spread = 'sd', values = { native = [45.6, 0.12], kvm = [45.0, 0.20] } }";
    let found = overhead(triad, "higher");
    assert!((1.0 / (1.0 + found.overhead) - 0.9873).abs() < 1e-3, "{found:?}");
    let (low, high) = found.interval.unwrap();
    assert!(
        (1.0 / (1.0 + high) - 0.9837).abs() < 1e-3 && (1.0 / (1.0 + low) - 0.9909).abs() < 1e-3,
        "{found:?}"
    );
}

#[test]
fn without_spread_and_runs_of_both_there_is_no_interval() {
    for published in [
        "{ quantity = 'q', source = 'p. 1', n = 10, spread = 'sd', values = { native = [8], kvm = [10, 1] } }",
        "{ quantity = 'q', source = 'p. 1', spread = 'sd', values = { native = [8, 1], kvm = [10, 1] } }",
        "{ quantity = 'q', source = 'p. 1', n = 1, spread = 'sd', values = { native = [8, 1], kvm = [10, 1] } }",
        "{ quantity = 'q', source = 'p. 1', n = 10, spread = 'sd', values = { native = [8, 0], kvm = [10, 0] } }",
        "{ quantity = 'q', source = 'p. 1', n = 9, spread = 'box', values = { native = [6, 7, 8, 9, 9], kvm = [9, 9, 10, 11, 12] } }",
    ] {
        let found = overhead(published, "lower");
        near(found.overhead, 0.25);
        assert_eq!(found.interval, None, "{published}");
    }
    // A spread of 0 on one side only was rounded away beside a larger one.
    let one = "{ quantity = 'q', source = 'p. 1', n = 10, spread = 'sd', values = { native = [8, 0], kvm = [10, 1] } }";
    assert!(overhead(one, "lower").interval.is_some());
}

#[test]
fn unpublished_values_have_no_overhead() {
    let study = study("{ quantity = 'q', source = 'p. 1', values = { kvm = [10] } }", "lower");
    for (experiment, quantity, arm, at) in [
        ("e", "q", "kvm", None),
        ("e", "q", "native", None),
        ("e", "q", "x", None),
        ("e", "x", "kvm", None),
        ("x", "q", "kvm", None),
        ("e", "q", "kvm", Some("4")),
    ] {
        assert_eq!(
            study.published_overhead(experiment, quantity, arm, at),
            None,
            "{experiment} {quantity} {arm}"
        );
    }
}

#[test]
fn quantiles_are_right_for_few_and_many() {
    for (df, expected) in [
        (1.0, 12.706_204_736_174),
        (9.0, 2.262_157_162_798),
        (500.0, 1.964_719_837_469),
        (2_000.0, 1.961_150_826_094),
        (100_000.0, 1.959_987_707_703),
    ] {
        assert!((quantile(df) - expected).abs() < 1e-7, "t(.975, {df}) = {}, not {expected}", quantile(df));
    }
}
