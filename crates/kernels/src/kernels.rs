//! The kernels, a file each: those that are also compiled to WebAssembly, and below `native` the
//! others; `WITHOUT_WEBASSEMBLY` says why not.

mod gups;
mod memory_latency;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod native;
mod pi;
mod spin;
mod stream;
pub mod text;

use crate::clock::seconds;
use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::thread::ScopedJoinHandle;

#[cfg(not(target_family = "wasm"))]
pub(crate) use native::ALL;

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

/// The kernels that are compiled to WebAssembly, in the order of the help.
#[cfg(target_family = "wasm")]
pub(crate) const ALL: &[&crate::kernel::Kernel] =
    &[&stream::KERNEL, &gups::KERNEL, &pi::KERNEL, &memory_latency::KERNEL, &spin::KERNEL];

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
