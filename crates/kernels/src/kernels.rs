//! The kernels, a file each.

mod block;
mod echo;
mod gups;
mod lzma;
mod memory_latency;
mod noploop;
mod spawn;
mod spin;
mod stream;
mod syscall;
pub mod text;

use crate::kernel::Kernel;

pub use syscall::QUICK_EXIT;

/// Percentiles of latency with the least number of samples for each. Below so many it is the noise of its largest few: the least
/// number whose largest sample bounds p99 (p99.9) of the population from above with 97.5 % confidence: ln(.025) / ln(.99),
/// ln(.025) / ln(.999).
const PERCENTILES: [(&str, f64, u64); 3] = [("p50", 0.5, 1), ("p99", 0.99, 368), ("p999", 0.999, 3688)];

/// In the order of the help.
pub(crate) const ALL: &[&Kernel] = &[
    &noploop::KERNEL,
    &stream::KERNEL,
    &gups::KERNEL,
    &lzma::KERNEL,
    &syscall::KERNEL,
    &memory_latency::KERNEL,
    &echo::KERNEL,
    &block::KERNEL,
    &spin::KERNEL,
    &spawn::KERNEL,
];
