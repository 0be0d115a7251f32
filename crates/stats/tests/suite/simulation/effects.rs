//! Equivalence, power, and the printed bounds on effects and modes that a run could have missed.

use super::*;

/// Ratios whose mean and standard deviation are exactly these, as in a pilot that saw the truth.
fn seen(k: usize, mean: f64, sd: f64) -> Cell {
    cell_of(with_log_ratios(&spread(k, mean, sd)))
}

/// An effect of exactly the margin is called equivalent in 2.5 % of the runs, however narrow the
/// interval.
#[test]
fn an_effect_of_exactly_the_margin_is_equivalent_as_rarely_as_the_level_says() {
    for k in [30, 60] {
        for (i, margin) in [-(1.02_f64.ln()), 1.02_f64.ln()].into_iter().enumerate() {
            let [wrong] = rates(8_000, 20 + 2 * k as u64 + i as u64, |random| {
                [is_within_margin(&judged(random.normals(k, margin, 0.01)))]
            });
            near(&format!("equivalent at the margin {margin:.4}, k = {k}"), wrong, 0.025, 0.001);
        }
    }
}

/// Fewer blocks than 30 are never called equivalent, and neither is a wide interval.
#[test]
fn equivalence_needs_its_blocks_and_its_precision() {
    let [few, wide] = rates(1_000, 30, |random| {
        let few = judged(random.normals(29, 0.0, 1e-4));
        [is_within_margin(&few), is_within_margin(&judged(random.normals(30, 0.0, 0.2)))]
    });
    assert_eq!((few.share, wide.share), (0.0, 0.0));
}

/// The power of EQUIVALENT for equal environments: 2 F(ln 1.02 / e - t.975) - 1 with F the t
/// distribution and e the standard error: F(ln 1.02 / (sd / sqrt(30)) - 2.0452296) with 29 degrees
/// of freedom, by numerical integration of the density.
#[test]
fn equal_environments_are_found_equivalent_as_often_as_the_formula_says() {
    for (sd, f) in [(0.02, 0.998_951), (0.03, 0.936_394), (0.035, 0.849_646)] {
        let [found] = rates(6_000, 40, |random| [is_within_margin(&judged(random.normals(30, 0.0, sd)))]);
        // The formula shifts t, although the distribution is the noncentral one.
        near(&format!("equivalent, sd {sd}"), found, 2.0 * f - 1.0, 0.002);
    }
}

/// The effect that is printed as the smallest detectable one is found in 80 % of the runs.
#[test]
fn power_is_what_the_smallest_detectable_effect_says() {
    for k in [15, 30, 60] {
        let sd = 0.02;
        let effect = seen(k, 0.0, sd).smallest_detectable.unwrap().ln_1p();
        let [up, down] = rates(8_000, 100 + k as u64, |random| {
            let mut found = |mean| !holds(described(with_logs(&[random.normals(k, mean, sd)])).overhead, 0.0);
            [found(effect), found(-effect)]
        });
        near(&format!("power of a slowdown, k = {k}"), up, 0.80, 0.007);
        near(&format!("power of a speedup, k = {k}"), down, 0.80, 0.007);
    }
}

/// In a family the promise holds for the verdict, not for the interval of a cell by itself: twelve
/// cells, of which one differs by the smallest effect that is printed.
#[test]
fn power_in_a_family_is_what_the_smallest_detectable_effect_says() {
    const CELLS: usize = 12;
    let (k, sd) = (30, 0.02);
    let printed = family(&std::array::from_fn::<_, CELLS, _>(|_| spread(k, 0.0, sd)));
    let effect = printed.cells[1].smallest_detectable.unwrap().ln_1p();
    let alone = seen(k, 0.0, sd).smallest_detectable.unwrap().ln_1p();
    let [found, promised_alone] = rates(2_000, 150, |random| {
        let mut environments: [Vec<f64>; CELLS] = std::array::from_fn(|_| random.normals(k, 0.0, sd));
        let own = environments[0].clone();
        let mut found = |effect: f64| {
            environments[0] = own.iter().map(|d| d + effect).collect();
            is_different(&family(&environments).cells[1])
        };
        [found(effect), found(alone)]
    });
    near("power in a family of 12", found, 0.80, 0.014);
    near("power in a family of 12 of what one cell could see", promised_alone, 0.433, 0.005);
}

/// With the proposed number of blocks, the verdict comes in at least 80 % of the runs wherever the
/// effect lies; half way to the margin is the hardest.
#[test]
fn the_proposed_blocks_decide() {
    for (mean, sd) in [(0.0, 0.05), (0.005, 0.03), (0.0099, 0.03), (0.0099, 0.05), (0.02, 0.05)] {
        let blocks = seen(6, 0.0, sd).blocks_to_decide.unwrap();
        let [decided] = rates(2_000, 200 + u64::from(blocks), |random| {
            let cell = judged(random.normals(blocks as usize, mean, sd));
            [is_within_margin(&cell) || is_different(&cell)]
        });
        at_least(&format!("decided with {blocks} blocks, mean {mean}, sd {sd}"), decided, 0.80);
    }
}

/// The proposal after a quick run depends on the spread, not on where chance put the mean.
#[test]
fn a_lucky_mean_proposes_no_fewer_blocks() {
    let blocks = |mean| seen(6, mean, 0.05).blocks_to_decide.unwrap();
    assert_eq!(blocks(0.0), blocks(0.03));
}

/// The effects that six blocks exclude at several spreads: the median of the bound, and how rarely
/// the truth lies beyond it.
#[test]
fn the_bound_of_an_open_verdict_is_narrow_and_holds() {
    for (sd, median) in [(0.01, 0.013), (0.02, 0.026), (0.03, 0.039)] {
        let [below, wrong] = rates(4_000, 400 + (sd * 100.0) as u64, |random| {
            let effect = 0.005_f64;
            let around = judged(random.normals(6, effect.ln_1p(), sd));
            let bound = |cell: &Cell| {
                let farther = |i: Interval| i.low.abs().max(i.high.abs());
                assert!(cell.bound.is_none() || cell.bound == cell.overhead.map(farther));
                cell.overhead.map_or(f64::INFINITY, farther)
            };
            let cell = judged(random.normals(6, 0.0, sd));
            [bound(&cell) < median, around.bound.is_some_and(|bound| bound < effect)]
        });
        near(&format!("bounds below {median} with six blocks, sd {sd}"), below, 0.5, 0.006);
        at_most(&format!("an effect of .5 % beyond the bound, sd {sd}"), wrong, 0.005);
    }
}

/// A mode as frequent as the bound stays unseen in 5 % of the runs.
#[test]
fn a_mode_at_the_bound_stays_unseen_as_rarely_as_it_says() {
    for k in [6, 15, 30, 60] {
        let bound = seen(k, 0.0, 0.01).unseen_mode_bound.unwrap();
        let [unseen] = rates(20_000, 300 + k as u64, |random| [(0..k).all(|_| !random.happens(bound))]);
        near(&format!("unseen in {k} blocks, frequency {bound:.4}"), unseen, 0.05, 0.0);
    }
}
