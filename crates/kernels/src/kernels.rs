//! The kernels, a file each.
//!
//! Some of them are also compiled to WebAssembly; `WITHOUT_WEBASSEMBLY` says why others are not.

#[cfg(not(target_family = "wasm"))]
pub(crate) mod block;
#[cfg(not(target_family = "wasm"))]
mod bulk;
#[cfg(not(target_family = "wasm"))]
mod crew;
#[cfg(not(target_family = "wasm"))]
mod echo;
#[cfg(not(target_family = "wasm"))]
mod fileserver;
mod gups;
#[cfg(not(target_family = "wasm"))]
mod inference;
#[cfg(not(target_family = "wasm"))]
mod load;
#[cfg(not(target_family = "wasm"))]
mod lu;
#[cfg(not(target_family = "wasm"))]
mod lzma;
mod memory_latency;
#[cfg(not(target_family = "wasm"))]
mod noploop;
#[cfg(not(target_family = "wasm"))]
mod null_server;
mod pi;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod place;
#[cfg(not(target_family = "wasm"))]
mod serving;
#[cfg(not(target_family = "wasm"))]
mod spawn;
mod spin;
mod stream;
#[cfg(not(target_family = "wasm"))]
mod syscall;
pub mod text;
#[cfg(not(target_family = "wasm"))]
mod window;

use crate::clock::seconds;
use crate::kernel::Kernel;
use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::thread::ScopedJoinHandle;

#[cfg(not(target_family = "wasm"))]
pub use syscall::QUICK_EXIT;

/// Percentiles of latency, each with the least number of samples that it needs: the least number
/// whose largest sample bounds p99 (p99.9) of the population from above with 97.5 % confidence,
/// ln(.025) / ln(.99) or ln(.025) / ln(.999). With fewer samples a percentile is the noise of the
/// largest few.
const PERCENTILES: [(&str, f64, u64); 3] = [("p50", 0.5, 1), ("p99", 0.99, 368), ("p999", 0.999, 3688)];

/// The longest latency that histograms distinguish from longer ones.
const LONGEST_NS: u64 = 100_000_000_000;

/// Three digits: the buckets of histograms are at most .1 % wide.
const DIGITS: u8 = 3;

/// A number below `bound`, which is not 0, by Lemire's multiplication: the high half of the product
/// needs no division, and its bias is at most `bound` / 2^64.
fn below(random: &mut Pcg64Mcg, bound: usize) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// An empty histogram of latencies.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are constants that tests use")
}

/// Reports the first `count` of the [`PERCENTILES`] as metrics `NAME_p50` and so on, and warns of
/// those for which there are too few `samples`.
fn report_percentiles(
    outcome: &mut Outcome,
    name: &str,
    latency_ns: &Histogram<u64>,
    (count, samples): (usize, &str),
) {
    let length = latency_ns.len();
    for (percentile, quantile, least) in PERCENTILES.into_iter().take(count) {
        let name = format!("{name}_{percentile}");
        if length >= least {
            outcome.metric(name, seconds(latency_ns.value_at_quantile(quantile)), "s");
        } else {
            outcome.warn(format!("{name} needs {least} {samples} and has {length}; it is left out"));
        }
    }
}

/// The result of a thread. A panic of the thread continues here.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// All kernels, in the order of the help.
pub(crate) const ALL: &[&Kernel] = &[
    #[cfg(not(target_family = "wasm"))]
    &noploop::KERNEL,
    &stream::KERNEL,
    &gups::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &lu::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &inference::KERNEL,
    &pi::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &lzma::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &syscall::KERNEL,
    &memory_latency::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &echo::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &bulk::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &load::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &null_server::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &block::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &fileserver::KERNEL,
    &spin::KERNEL,
    #[cfg(not(target_family = "wasm"))]
    &spawn::KERNEL,
];

/// Kernels that are not compiled to WebAssembly, and why not.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) const WITHOUT_WEBASSEMBLY: &[(&str, &str)] = &[
    ("noploop", "compilers of WebAssembly leave out instructions that do nothing"),
    ("lu", MATRICES),
    ("inference", MATRICES),
    ("lzma", "its library is written in C"),
    ("syscall", "a WebAssembly program makes no system calls"),
    ("echo", SOCKETS),
    ("bulk", SOCKETS),
    ("load", SOCKETS),
    ("null-server", SOCKETS),
    ("block", "a WebAssembly program reaches no disk past the page cache"),
    ("fileserver", "it has many threads"),
    ("spawn", "a WebAssembly program starts no programs"),
];
#[cfg(any(test, target_family = "wasm"))]
const MATRICES: &str = "its matrix products are written for the vector instructions of each CPU";
#[cfg(any(test, target_family = "wasm"))]
const SOCKETS: &str = "WASI preview 1 opens no connections";
