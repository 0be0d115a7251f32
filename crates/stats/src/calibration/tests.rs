use super::*;
use crate::noise::Noise;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 2e-6, "{found} is not {expected}");
}

/// A shift of 0 gives the level itself, and with many degrees of freedom the tail is that of a
/// shifted normal distribution.
#[test]
fn the_noncentral_tail_has_its_limits() {
    for df in [2.0, 9.0, 29.0, 400.0] {
        close(beyond(student::quantile(0.975, df), 0.0, df), 0.05);
        assert!(beyond(student::quantile(0.975, df), 40.0, df) > 0.999);
    }
    let normal = Normal::standard();
    let shifted = normal.cdf(2.0 - 1.959_963_985) + normal.cdf(-2.0 - 1.959_963_985);
    assert!((beyond(student::quantile(0.975, 1e5), 2.0, 1e5) - shifted).abs() < 1e-4);
}

#[test]
fn the_smallest_effect_is_found_about_four_times_in_five() {
    // The printed formula shifts the central distribution; the noncentral one differs from that by
    // some per cent at few blocks.
    for (df, least, most) in [(5.0, 0.78, 0.86), (9.0, 0.78, 0.83), (29.0, 0.79, 0.815), (59.0, 0.795, 0.81)]
    {
        let found = power(0.01, 0.01, df);
        assert!((least..most).contains(&found), "{df}: {found}");
    }
    assert!(power(0.002, 0.01, 9.0) < 0.2);
    assert!(power(0.03, 0.01, 9.0) > 0.999);
    close(power(0.0, 0.01, 9.0), 0.05);
    assert_eq!((power(0.01, 0.0, 9.0), power(0.0, 0.0, 9.0)), (1.0, 0.0));
}

#[test]
fn a_mean_has_an_interval_of_any_confidence() {
    let values = [0.1, 0.2, 0.3, 0.2];
    let (mean, half) = mean_within(&values, 0.95).unwrap();
    let estimate = Estimate::of(&values).unwrap();
    close(mean, 0.2);
    close(half, estimate.half_width(student::quantile(0.975, 3.0)));
    assert!(mean_within(&values, 0.999).unwrap().1 > 3.0 * half);
    assert_eq!(mean_within(&[1.0], 0.95), None);
}

#[test]
fn bands_hold_all_but_a_thousandth() {
    // Exact sums for 40 trials: P(X >= 8) = .00071 and P(X >= 9) = .00013; P(X = 0) = .129.
    assert_eq!(binomial_band(40, 0.05), Band { low: 0, high: 8 });
    // For 200: P(X <= 1) = .00040, P(X <= 2) = .0023; P(X >= 21) = .0011, P(X >= 22) = .00048.
    assert_eq!(binomial_band(200, 0.05), Band { low: 2, high: 21 });
    assert_eq!(binomial_band(0, 0.05), Band { low: 0, high: 0 });
    assert_eq!(binomial_band(10, 1.0), Band { low: 10, high: 10 });
    assert_eq!(poisson_binomial_band(&[0.0, 1.0, 1.0]), Band { low: 2, high: 2 });
    let mixed = poisson_binomial_band(&[0.9999, 0.9999, 0.5]);
    assert_eq!(mixed, Band { low: 2, high: 3 });
    assert!(mixed.holds(2) && !mixed.holds(1));
}

#[test]
fn chance_rejects_as_often_as_the_level_says_for_normal_noise_and_less_with_spikes() {
    let mut noise = Noise::new(5);
    let mean = |values: &mut dyn FnMut() -> Vec<f64>| {
        (0..400).map(|_| rejection_by_chance(&values()).unwrap()).sum::<f64>() / 400.0
    };
    let normal = mean(&mut || (0..10).map(|_| noise.normal()).collect());
    assert!((normal - 0.05).abs() < 0.01, "{normal}");
    let mut noise = Noise::new(6);
    let spiky = mean(&mut || {
        (0..10).map(|_| noise.normal() * if noise.uniform() < 0.15 { 30.0 } else { 1.0 }).collect()
    });
    assert!(spiky < 0.04, "{spiky}");
    assert_eq!(rejection_by_chance(&[1.0]), None);
    assert_eq!(rejection_by_chance(&[1.0, 1.0]), Some(0.5));
    assert_eq!(rejection_by_chance(&[0.1; 21]), None);
}

/// Simulates the whole judgement: comparisons of 10 pairs, an effect of known size, noise of an
/// unknown and changing size. The number found stays inside the band that follows from what each
/// comparison says about its own power.
#[test]
fn detection_rates_agree_with_the_promised_smallest_effects() {
    let quiet = |noise: &mut Noise, _: f64| noise.normal();
    let changing = |noise: &mut Noise, level: f64| level * noise.normal();
    let burned = |noise: &mut Noise, level: f64| {
        let hit = if noise.uniform() < 0.1 * level { 15.0 * noise.uniform() } else { 0.0 };
        let sign = if noise.uniform() < 0.5 { -1.0 } else { 1.0 };
        noise.normal() + sign * hit
    };
    type Draw = fn(&mut Noise, f64) -> f64;
    for (name, draw) in [("quiet", quiet as Draw), ("changing", changing), ("burned", burned)] {
        for (effect, n) in [(1.0, 10), (0.7, 50)] {
            let mut noise = Noise::new(11);
            let outside = (0..100).filter(|_| !is_inside(&mut noise, draw, effect, n)).count();
            assert!(outside <= 2, "{name}, effect of {effect} sd, {n} comparisons: {outside} of 100 outside");
        }
    }
}

/// Whether one set of `n` comparisons of ten pairs lies within its band. An effect of 1 is one
/// standard deviation of a pair.
fn is_inside(noise: &mut Noise, draw: fn(&mut Noise, f64) -> f64, effect: f64, n: u32) -> bool {
    let (mut found, mut chances) = (0, Vec::new());
    for _ in 0..n {
        let level = 0.5 + 2.0 * noise.uniform();
        let pairs: Vec<f64> = (0..10).map(|_| 0.01 * (effect + draw(noise, level))).collect();
        let estimate = Estimate::of(&pairs).unwrap();
        found += u32::from(estimate.p_diff() < 0.05);
        chances.push(power((0.01 * effect).exp_m1(), estimate.smallest_detectable(1.0), 9.0));
    }
    poisson_binomial_band(&chances).holds(found)
}
