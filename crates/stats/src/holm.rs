//! Holm's adjustment for several comparisons.

/// Returns the p values adjusted by Holm (1979), in the order given.
///
/// With p sorted upwards, the i-th (from 0) of m becomes the largest of (m - j) p_j over j <= i, at
/// most 1. Comparing the result with alpha bounds the chance of any false finding in the family by
/// alpha, whatever the dependence.
pub(crate) fn adjust(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &place) in ascending(p).iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[place]).min(1.0);
        adjusted[place] = largest;
    }
    adjusted
}

/// Returns the factor by which Holm's method would multiply a small p in each place: the number of
/// values less those of the others that are below the level after adjustment. A value is below the
/// level after adjustment if, and only if, its product with this factor is.
pub(crate) fn factors(p: &[f64], level: f64) -> Vec<f64> {
    let factor = |place: usize| {
        let mut others = p.to_vec();
        others[place] = 1.0;
        let found = adjust(&others).iter().filter(|adjusted| **adjusted < level).count();
        (p.len() - found) as f64
    };
    (0..p.len()).map(factor).collect()
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..p.len()).collect();
    places.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    /// Computed by hand from the definition; the same as R's `p.adjust(p, "holm")`.
    #[test]
    fn examples() {
        // 4 * .005, then 3 * .01 = .03, then 2 * .03 = .06, then max(.06, 1 * .04) = .06.
        close(&adjust(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]);
        close(&adjust(&[0.5, 0.6]), &[1.0, 1.0]);
        close(&adjust(&[0.02]), &[0.02]);
        close(&adjust(&[]), &[]);
        close(&adjust(&[0.02, 0.02, 0.02]), &[0.06, 0.06, 0.06]);
        // `p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")` of R prints 0.05 0.08 0.09 0.09 0.09.
        close(&adjust(&[0.01, 0.02, 0.03, 0.04, 0.05]), &[0.05, 0.08, 0.09, 0.09, 0.09]);
        // Without a finding among the others all of them count. Of two findings each lowers the
        // other's factor by one, unless it depends on it.
        close(&factors(&[0.2, 0.04, 0.03, 0.6], 0.05), &[4.0; 4]);
        close(&factors(&[0.001, 0.04, 0.002, 0.6], 0.05), &[3.0, 2.0, 3.0, 2.0]);
        close(&factors(&[0.001, 0.04], 0.05), &[2.0, 1.0]);
    }

    proptest! {
        #[test]
        fn a_factor_decides_as_the_adjusted_value_does(p in proptest::collection::vec((0.0..=1.0f64).prop_map(|p| p.powi(3)), 1..12)) {
            for ((p, adjusted), factor) in p.iter().zip(adjust(&p)).zip(factors(&p, 0.05)) {
                prop_assert_eq!(p * factor < 0.05, adjusted < 0.05);
            }
        }

        #[test]
        fn adjusted_values_are_ordered_as_the_raw_and_never_smaller(p in proptest::collection::vec(0.0..=1.0f64, 0..40)) {
            let adjusted = adjust(&p);
            for i in 0..p.len() {
                prop_assert!(adjusted[i] >= p[i] && adjusted[i] <= 1.0);
                prop_assert!(adjusted[i] <= (p[i] * p.len() as f64).min(1.0) + 1e-15, "Holm is never worse than Bonferroni");
                for j in 0..p.len() {
                    prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
                }
            }
        }
    }
}
