//! The kernels, a file each.

mod echo;
mod gups;
mod lzma;
mod memory_latency;
mod noploop;
mod stream;
mod syscall;
pub mod text;

use crate::kernel::Kernel;

pub use syscall::QUICK_EXIT;

/// In the order of the help.
pub(crate) const ALL: &[&Kernel] = &[
    &noploop::KERNEL,
    &stream::KERNEL,
    &gups::KERNEL,
    &lzma::KERNEL,
    &syscall::KERNEL,
    &memory_latency::KERNEL,
    &echo::KERNEL,
];
