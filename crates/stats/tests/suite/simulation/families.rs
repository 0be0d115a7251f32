//! Several comparisons in one run: how often any of them is wrong.

use super::*;

const CELLS: usize = 10;

fn any<'a>(cells: impl IntoIterator<Item = &'a Cell>, is: fn(&Cell) -> bool) -> bool {
    cells.into_iter().any(is)
}

/// Ten environments without any difference: in at most 5 % of the runs one of them is found
/// different.
#[test]
fn a_family_without_differences_is_wrong_as_rarely_as_one_cell() {
    let [adjusted, raw] = rates(2_000, 3, |random| {
        let analysis = family(&std::array::from_fn::<_, CELLS, _>(|_| random.normals(15, 0.0, 0.02)));
        let cells = &analysis.cells[1..];
        [any(cells, is_different), any(cells, |c| c.p_diff.is_some_and(|p| p < 0.05))]
    });
    // Independent cells: Holm's first step is 1 - (1 - .05 / 10)^10.
    near("any of 10 found different, adjusted", adjusted, 1.0 - 0.995_f64.powi(10), 0.001);
    near("any of 10 found different, raw", raw, 1.0 - 0.95_f64.powi(10), 0.003);
}

/// Half of the environments differ by 5 % and are found. The others, which share the baseline's
/// noise, are found no more often than the level says.
#[test]
fn real_effects_beside_it_do_not_loosen_the_level() {
    let [wrong, all_found] = rates(2_000, 4, |random| {
        let native = random.normals(15, 0.0, 0.014);
        let environments: Vec<Vec<f64>> = (0..CELLS)
            .map(|i| {
                let effect = if i < CELLS / 2 { 0.05 } else { 0.0 };
                let own = random.normals(15, effect, 0.014);
                own.iter().zip(&native).map(|(own, native)| own - native).collect()
            })
            .collect();
        let analysis = family(&environments);
        let (real, nothing) = analysis.cells[1..].split_at(CELLS / 2);
        [any(nothing, is_different), real.iter().all(is_different)]
    });
    at_most("any of 5 without effect found different beside 5 with one", wrong, 0.05);
    at_least("the adjustment is not for nothing", wrong, 0.04);
    at_least("all 5 with an effect found", all_found, 0.95);
}

/// Ten environments at exactly the margin: in at most 2.5 % of the runs one of them is called
/// equivalent.
#[test]
fn equivalence_is_adjusted_for_the_family_too() {
    let [adjusted, raw] = rates(2_000, 5, |random| {
        let at_margin = 1.02_f64.ln();
        let analysis = family(&std::array::from_fn::<_, CELLS, _>(|_| random.normals(30, at_margin, 0.02)));
        let cells = &analysis.cells[1..];
        [any(cells, is_within_margin), any(cells, |c| c.p_eq.is_some_and(|p| p < 0.025))]
    });
    at_most("any of 10 at the margin equivalent, adjusted", adjusted, 0.025);
    near("any of 10 at the margin equivalent, raw", raw, 1.0 - 0.975_f64.powi(10), 0.002);
}
