//! `load`: many clients that load a server over TCP, in a closed loop or in an open one.
//!
//! Closed, each client sends its next requests when the replies to its last are there, so that a
//! slow server slows the load and its latencies are not those of a service. Open, requests leave by
//! the clock whatever the server does, and each is timed from when it was to leave, so that a
//! server that stalls is charged with all that had to wait (G. Tene's "coordinated omission").
//! Without `--connect` the server is one of this process that answers at once: what comes out then
//! is what the load generator itself can do here.

mod arrivals;
mod client;
mod echo;
pub(super) mod http;
mod plan;
mod protocol;
mod redis;
mod report;
pub(super) mod resp;
mod tally;
mod worker;

use super::echo::wire::{LARGEST_MESSAGE, Shape};
use super::null_server;
use crate::kernel::{Kernel, KernelError};
use crate::machine;
use crate::options::{OptionSpec, Options, UsageError};
use crate::outcome::Outcome;
use arrivals::Arrivals;
use client::Client;
use plan::{Pace, Plan, between};
use protocol::Protocol;
use rand_pcg::Pcg64Mcg;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use tally::Tally;
use worker::{Shared, Worker};

/// Time between the last connection and the first request: all threads are there by then.
const HEAD_START_NS: u64 = 2_000_000;

pub(super) static KERNEL: Kernel = Kernel {
    name: "load",
    summary: "load generator for servers: rate and latency of many clients, closed or open loop",
    operation: "request",
    check: "every request got a reply of the right kind and content",
    options: &[
        OptionSpec::choice("protocol", &["echo", "redis", "http"], "echo", "what the server speaks"),
        OptionSpec::text(
            "connect",
            "",
            "address of the server; without it one of this process that answers at once",
        ),
        OptionSpec::count("clients", "50", "connections"),
        OptionSpec::count(
            "pipeline",
            "1",
            "most requests of a connection in flight; closed loop: sent in one piece",
        ),
        OptionSpec::decimal("seconds", "1", "how long to measure"),
        OptionSpec::count("requests", "0", "measure so many requests instead; 0 is by time"),
        OptionSpec::decimal("warmup-seconds", "0.1", "load before the measurement begins"),
        OptionSpec::count("threads", "1", "threads that share the clients"),
        OptionSpec::decimal("rate", "0", "requests per second of an open loop; 0 is a closed loop"),
        OptionSpec::choice(
            "arrivals",
            &["poisson", "constant"],
            "poisson",
            "gaps between the requests of an open loop: exponential, or all the same",
        ),
        OptionSpec::count("seed", "0", "seed of arrivals, keys and sizes; 0 is another one each time"),
        OptionSpec::count("timeout-ms", "10000", "how long to wait for a connection or a reply"),
        OptionSpec::bytes("request-bytes", "100", "echo: bytes of a request"),
        OptionSpec::bytes("response-bytes", "200", "echo: bytes of a response"),
        OptionSpec::count("keys", "100000", "redis: keys that there are"),
        OptionSpec::count("mix", "50", "redis: GETs of 100 requests, the rest SETs"),
        OptionSpec::bytes(
            "value-bytes",
            "50",
            "redis: mean bytes of a value, drawn evenly from 10 to as much above the mean",
        ),
        OptionSpec::choice("fill", &["no", "yes"], "no", "redis: write every key once, and no more"),
        OptionSpec::text("path", "/", "http: what to get"),
        OptionSpec::bytes(
            "body-bytes",
            "0",
            "http: bytes that every body must have; 0: as many as the first",
        ),
    ],
    metrics: &[
        ("rate", "op/s"),
        ("latency_p50", "s"),
        ("latency_p99", "s"),
        ("latency_p999", "s"),
        ("received", "B/s"),
        ("sent", "B/s"),
    ],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    let address = options.text("connect");
    if !address.is_empty() {
        return load(options, super::echo::resolve("connect", address)?);
    }
    let protocol = null_server::Protocol::named(options.text("protocol"));
    let value_bytes = options.number("value-bytes") as usize;
    let sizes = null_server::Sizes { value: value_bytes, body: options.number("body-bytes") as usize };
    let mut outcome = null_server::beside(protocol, sizes, |address| load(options, address))?;
    outcome.fact("path", "loopback, to a server of this process that answers at once");
    Ok(outcome)
}

fn load(options: &Options, address: SocketAddr) -> Result<Outcome, KernelError> {
    let plan = Plan::of(options)?;
    match options.text("protocol") {
        "redis" => {
            let mix = mix(options)?;
            let (plan, fill) = match options.text("fill") {
                "yes" => (plan.clone().filling(mix.keys), true),
                _ => (plan.clone(), false),
            };
            let mut outcome = drive(&plan, address, &|index| {
                let part = plan.share(u64::from(mix.keys), index);
                let fill = fill.then_some(part.start as u32..part.end as u32);
                redis::Redis::new(mix.clone(), fill, random(&plan, index, 1))
            })?;
            outcome.fact("keys", mix.keys);
            Ok(outcome)
        }
        "http" => {
            let path = options.text("path");
            if !path.starts_with('/') || path.contains(|letter: char| !letter.is_ascii_graphic()) {
                return Err(UsageError(format!(
                    "`--path {path}` is no path of a URL; write it as `/index.html`, with %20 for a space"
                ))
                .into());
            }
            let body_bytes = Some(options.number("body-bytes")).filter(|bytes| *bytes > 0);
            drive(&plan, address, &|_| http::Http::new(&address.to_string(), path, body_bytes))
        }
        _ => {
            let bytes = |name| between(options, name, 1, LARGEST_MESSAGE).map(|bytes| bytes as u32);
            let shape =
                Shape { request_bytes: bytes("request-bytes")?, response_bytes: bytes("response-bytes")? };
            drive(&plan, address, &|_| echo::Echo::new(shape))
        }
    }
}

fn mix(options: &Options) -> Result<redis::Mix, KernelError> {
    let keys = between(options, "keys", 1, resp::MOST_KEYS)? as u32;
    let reads_percent = between(options, "mix", 0, 100)? as u32;
    let value_bytes = between(options, "value-bytes", resp::KEY_BYTES as u64, 64 << 20)? as usize;
    Ok(redis::Mix { keys, reads_percent, value_bytes })
}

/// The random numbers of a thread for one of several purposes.
fn random(plan: &Plan, index: usize, purpose: u128) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(plan.seed) << 64 | (index as u128) << 8 | purpose << 1 | 1)
}

/// Connects all clients, has all threads run the plan, and reports.
fn drive<P: Protocol>(
    plan: &Plan,
    address: SocketAddr,
    protocol: &dyn Fn(usize) -> P,
) -> Result<Outcome, KernelError> {
    super::serving::allow_sockets(plan.clients as u64);
    let mut teams = Vec::new();
    for index in 0..plan.threads {
        let protocol = protocol(index);
        let clients = plan
            .share(plan.clients as u64, index)
            .map(|_| Client::connect(address, plan, &protocol))
            .collect::<Result<Vec<_>, _>>()?;
        teams.push((index, protocol, clients));
    }
    let start_ns = crate::now_ns() + HEAD_START_NS;
    let shared = Shared { address, start_ns, failed: AtomicBool::new(false) };
    let tallies = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, protocol, clients) in teams {
            let shared = &shared;
            threads.push(scope.spawn(move || {
                let arrivals = match plan.pace {
                    Pace::Closed => None,
                    Pace::Open { rate, spread } => Some(Arrivals::new(
                        spread,
                        rate,
                        (index, plan.threads),
                        start_ns,
                        random(plan, index, 0),
                    )),
                };
                let worker = Worker::new(plan, shared, index, protocol, clients, arrivals);
                let tally = worker.and_then(Worker::run);
                if tally.is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                tally
            }));
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<Tally>, KernelError>>()
    })?;
    let mut outcome = Outcome::new();
    outcome.fact("path", format!("to {address}"));
    report::report(&mut outcome, plan, start_ns, machine::allowed_cpus()?.len(), &tallies);
    Ok(outcome)
}

#[cfg(test)]
mod tests;
