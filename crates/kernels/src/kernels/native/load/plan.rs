//! What a load generator is asked to do.

use super::arrivals::Spread;
use crate::kernel::KernelError;
use crate::options::{Options, UsageError};
use std::time::Duration;

/// What determines when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// The replies to earlier requests: a slow server slows the load.
    Closed,
    /// The clock, at a fixed number of requests per second.
    Open {
        /// Requests per second of all threads together.
        rate: f64,
        /// How they are spread over time.
        spread: Spread,
    },
}

/// When the measurement ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Until {
    /// After this time.
    Time(Duration),
    /// After this many requests of all threads together.
    Requests(u64),
}

/// What all threads do together, whatever the protocol.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: usize,
    /// Most requests of one client in flight.
    pub(super) pipeline: usize,
    pub(super) threads: usize,
    pub(super) pace: Pace,
    pub(super) warmup: Duration,
    pub(super) until: Until,
    /// How long to wait for a connection or a reply.
    pub(super) timeout: Duration,
    pub(super) seed: u64,
}

/// Most clients: more need more ports than one address has.
const MOST_CLIENTS: u64 = 50_000;

/// Longest warm-up or measurement, s.
const LONGEST_S: f64 = 1e6;

impl Plan {
    pub(super) fn of(options: &Options) -> Result<Self, KernelError> {
        let clients = options.within("clients", 1, MOST_CLIENTS, "large")? as usize;
        let pipeline = options.within("pipeline", 1, 100_000, "large")? as usize;
        let threads = (options.within("threads", 1, 1024, "large")? as usize).min(clients);
        let rate = options.decimal("rate");
        let spread = match options.text("arrivals") {
            "constant" => Spread::Constant,
            _ => Spread::Poisson,
        };
        let pace = if rate > 0.0 { Pace::Open { rate, spread } } else { Pace::Closed };
        let until = match options.number("requests") {
            0 => Until::Time(duration(options, "seconds")?),
            requests => Until::Requests(requests),
        };
        if until == Until::Time(Duration::ZERO) {
            let message = "`--seconds 0` measures nothing; give it a time, or a number with `--requests`";
            return Err(KernelError::usage(message));
        }
        let seed = options.seed();
        let warmup = duration(options, "warmup-seconds")?;
        let timeout = Duration::from_millis(options.at_least("timeout-ms", 1)?);
        Ok(Self { clients, pipeline, threads, pace, warmup, until, timeout, seed })
    }

    /// A plan that writes `keys` keys once, as fast as it can.
    pub(super) fn filling(mut self, keys: u32) -> Self {
        self.pace = Pace::Closed;
        self.warmup = Duration::ZERO;
        self.until = Until::Requests(u64::from(keys));
        self
    }

    /// Thread `index`'s part of `whole`. The parts of all threads together are `whole`.
    pub(super) fn share(&self, whole: u64, index: usize) -> std::ops::Range<u64> {
        let edge = |index: usize| (u128::from(whole) * index as u128 / self.threads as u128) as u64;
        edge(index)..edge(index + 1)
    }

    /// A label for the results, so that nobody mistakes a closed loop for an open one.
    pub(super) fn label(&self) -> String {
        let (clients, pipeline) = (self.clients, self.pipeline);
        match self.pace {
            Pace::Closed => format!("closed loop, {clients} clients, pipeline {pipeline}"),
            Pace::Open { rate, spread } => {
                let arrivals = match spread {
                    Spread::Poisson => "Poisson",
                    Spread::Constant => "evenly spaced",
                };
                format!(
                    "open loop at {rate}/s, {arrivals} arrivals, at most {pipeline} in flight on each of {clients} connections"
                )
            }
        }
    }
}

fn duration(options: &Options, name: &str) -> Result<Duration, UsageError> {
    let seconds = options.decimal(name);
    if seconds > LONGEST_S {
        return Err(UsageError(format!("`--{name} {seconds}` is too long; the most is {LONGEST_S}")));
    }
    Ok(Duration::from_secs_f64(seconds))
}
