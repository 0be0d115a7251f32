//! The scheduled times of the requests of an open loop.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// How requests of an open loop are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// Gaps are exponential and independent, like those of many unrelated users.
    Poisson,
    /// All gaps are the same.
    Constant,
}

/// The times at which one of several threads must send, in order, without end.
///
/// They do not depend on the server: that is what makes the loop open.
pub(super) struct Arrivals {
    random: Pcg64Mcg,
    spread: Spread,
    start_ns: u64,
    mean_gap_ns: f64,
    /// The time of the next one since the start. Exact to a nanosecond for the first hundred days.
    next_ns: f64,
}

impl Arrivals {
    /// `rate` is the rate of all threads together, per second. The Poisson processes of the threads
    /// add up to one; constant ones take turns.
    pub(super) fn new(
        spread: Spread,
        rate: f64,
        (thread, threads): (usize, usize),
        start_ns: u64,
        random: Pcg64Mcg,
    ) -> Self {
        let mean_gap_ns = 1e9 * threads as f64 / rate;
        let mut arrivals = Self { random, spread, start_ns, mean_gap_ns, next_ns: 0.0 };
        match spread {
            Spread::Poisson => arrivals.advance(),
            Spread::Constant => arrivals.next_ns = mean_gap_ns * (thread + 1) as f64 / threads as f64,
        }
        arrivals
    }

    /// The scheduled time of the next request, on the clock of the start.
    pub(super) fn next_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.next_ns as u64)
    }

    /// Advances to the next request.
    pub(super) fn advance(&mut self) {
        self.next_ns += match self.spread {
            Spread::Constant => self.mean_gap_ns,
            // A number of 53 random bits below 1, so that the argument of the logarithm is above 0.
            Spread::Poisson => {
                let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                -(1.0 - uniform).ln() * self.mean_gap_ns
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(spread: Spread, (thread, threads): (usize, usize), number: usize) -> Vec<u64> {
        let random = Pcg64Mcg::new(7 + thread as u128);
        let mut arrivals = Arrivals::new(spread, 1e6, (thread, threads), 5_000, random);
        let next = |_| {
            let next = arrivals.next_ns();
            arrivals.advance();
            next
        };
        (0..number).map(next).collect()
    }

    #[test]
    fn constant_threads_take_turns() {
        assert_eq!(times(Spread::Constant, (0, 1), 3), [6_000, 7_000, 8_000]);
        assert_eq!(times(Spread::Constant, (0, 2), 2), [6_000, 8_000]);
        assert_eq!(times(Spread::Constant, (1, 2), 2), [7_000, 9_000]);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_the_exponential() {
        const NUMBER: usize = 200_000;
        let times = times(Spread::Poisson, (0, 1), NUMBER);
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Six standard errors of 200,000 gaps. The seed is fixed, so that this passes always or
        // never.
        assert!((mean - 1000.0).abs() < 14.0, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
        assert!(times.is_sorted());
    }

    #[test]
    fn the_seed_decides() {
        let (once, again) = (times(Spread::Poisson, (0, 2), 50), times(Spread::Poisson, (0, 2), 50));
        assert_eq!(once, again);
        assert_ne!(once, times(Spread::Poisson, (1, 2), 50));
    }
}
