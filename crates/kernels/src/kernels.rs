//! The kernels, a file each.

pub(crate) mod block;
mod bulk;
mod crew;
mod echo;
mod fileserver;
mod gups;
mod load;
mod lu;
mod lzma;
mod memory_latency;
mod noploop;
mod null_server;
mod pi;
pub(crate) mod place;
mod serving;
mod spawn;
mod spin;
mod stream;
mod syscall;
pub mod text;
mod window;

use crate::kernel::Kernel;

pub use syscall::QUICK_EXIT;

/// Percentiles of latency with the least number of samples for each. Below so many it is the noise
/// of its largest few: the least number whose largest sample bounds p99 (p99.9) of the population
/// from above with 97.5 % confidence: ln(.025) / ln(.99), ln(.025) / ln(.999).
const PERCENTILES: [(&str, f64, u64); 3] = [("p50", 0.5, 1), ("p99", 0.99, 368), ("p999", 0.999, 3688)];

/// In the order of the help.
pub(crate) const ALL: &[&Kernel] = &[
    &noploop::KERNEL,
    &stream::KERNEL,
    &gups::KERNEL,
    &lu::KERNEL,
    &pi::KERNEL,
    &lzma::KERNEL,
    &syscall::KERNEL,
    &memory_latency::KERNEL,
    &echo::KERNEL,
    &bulk::KERNEL,
    &load::KERNEL,
    &null_server::KERNEL,
    &block::KERNEL,
    &fileserver::KERNEL,
    &spin::KERNEL,
    &spawn::KERNEL,
];
