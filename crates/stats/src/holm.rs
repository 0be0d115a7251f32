//! Holm's adjustment for several comparisons.

/// P values adjusted by Holm (1979), in the order given.
///
/// With p sorted upwards, the i-th (from 0) of m becomes the largest of (m - j) p_j over j <= i, at most 1. Comparing
/// the result with alpha bounds the chance of any false finding in the family by alpha, whatever the dependence.
pub(crate) fn adjust(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &place) in ascending(p).iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[place]).min(1.0);
        adjusted[place] = largest;
    }
    adjusted
}

/// The factor that each p is multiplied with, in the order given: m for the smallest, 1 for the largest.
pub(crate) fn factors(p: &[f64]) -> Vec<f64> {
    let mut factors = vec![1.0; p.len()];
    for (rank, &place) in ascending(p).iter().enumerate() {
        factors[place] = (p.len() - rank) as f64;
    }
    factors
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..p.len()).collect();
    places.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    places
}
