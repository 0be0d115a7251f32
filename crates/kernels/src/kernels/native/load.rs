//! `load`: many clients that load a server over TCP, in a closed loop or in an open one.
//!
//! In a closed loop each client sends its next requests when the replies to its last ones have
//! arrived, so a slow server slows the load, and its latencies are not those of a service. In an
//! open loop requests are sent at scheduled times whatever the server does, and each is timed from
//! its scheduled time, so a server that stalls is charged with all requests that had to wait (G.
//! Tene's "coordinated omission"). Without `--connect` the server is one of this process that
//! answers at once: the result then shows what the load generator itself can do here.

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
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use arrivals::Arrivals;
use client::Client;
use plan::{Pace, Plan};
use protocol::Protocol;
use rand_pcg::Pcg64Mcg;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use tally::Tally;
use worker::{Shared, Worker};

/// Time between the last connection and the first request, in which all threads get ready.
const HEAD_START_NS: u64 = 2_000_000;

pub(super) static KERNEL: Kernel = Kernel {
    name: "load",
    summary: "load generator for servers: rate and latency of many clients, closed or open loop",
    operation: "request",
    check: "every request got a reply of the right kind and content",
    options: &[
        OptionSpec::choice("protocol", &["echo", "redis", "http"]).help("protocol of the server"),
        OptionSpec::text("connect", "")
            .help("address of the server; empty: a server in this process that answers at once"),
        OptionSpec::count("clients", "50").help("connections"),
        OptionSpec::count("pipeline", "1")
            .help("most requests in flight per connection; closed loop: sent in one piece"),
        OptionSpec::decimal("seconds", "1").help("seconds to measure"),
        OptionSpec::count("requests", "0").help("requests to measure, instead of `--seconds`; 0: by time"),
        OptionSpec::decimal("warmup-seconds", "0.1").help("seconds of load before the measurement"),
        OptionSpec::count("threads", "1").help("threads that share the clients"),
        OptionSpec::decimal("rate", "0").help("requests per second of an open loop; 0: a closed loop"),
        OptionSpec::choice("arrivals", &["poisson", "constant"])
            .help("gaps between the requests of an open loop: exponential, or constant"),
        OptionSpec::count("seed", "0").help("seed of arrivals, keys and sizes; 0: a new one for each run"),
        OptionSpec::count("timeout-ms", "10000").help("timeout of a connection or a reply"),
        OptionSpec::bytes("request-bytes", "100").help("echo: bytes of a request"),
        OptionSpec::bytes("response-bytes", "200").help("echo: bytes of a response"),
        OptionSpec::count("keys", "100000").help("redis: number of keys"),
        OptionSpec::count("mix", "50").help("redis: GETs per 100 requests; the rest are SETs"),
        OptionSpec::bytes("value-bytes", "50")
            .help("redis: mean bytes of a value; uniformly distributed around it, from 10 bytes on"),
        OptionSpec::choice("fill", &["no", "yes"]).help("redis: only write every key once"),
        OptionSpec::text("path", "/").help("http: path to get"),
        OptionSpec::bytes("body-bytes", "0")
            .help("http: required bytes of every body; 0: those of the first"),
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
        return load(options, super::serving::resolve("connect", address)?);
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
                return Err(KernelError::usage(format!(
                    "`--path {path}` is not the path of a URL; write it as `/index.html`, with %20 for a space"
                )));
            }
            let body_bytes = Some(options.number("body-bytes")).filter(|bytes| *bytes > 0);
            drive(&plan, address, &|_| http::Http::new(&address.to_string(), path, body_bytes))
        }
        _ => {
            let shape = Shape::of(options, LARGEST_MESSAGE)?;
            drive(&plan, address, &|_| echo::Echo::new(shape))
        }
    }
}

fn mix(options: &Options) -> Result<redis::Mix, KernelError> {
    let keys = options.within("keys", 1, resp::MOST_KEYS, "large")? as u32;
    let reads_percent = options.within("mix", 0, 100, "large")? as u32;
    let value_bytes = options.within("value-bytes", resp::KEY_BYTES as u64, 64 << 20, "large")? as usize;
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
        threads.into_iter().map(crate::kernels::join).collect::<Result<Vec<Tally>, KernelError>>()
    })?;
    let mut outcome = Outcome::new();
    outcome.fact("path", format!("to {address}"));
    report::report(&mut outcome, plan, start_ns, machine::allowed_cpus()?.len(), &tallies);
    Ok(outcome)
}

#[cfg(test)]
mod tests;
