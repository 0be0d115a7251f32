//! The kernels that are not compiled to WebAssembly, a file each, and what they share.

pub(crate) mod block;
mod bulk;
mod crew;
mod echo;
mod fileserver;
mod inference;
mod load;
mod lu;
mod lzma;
mod noploop;
mod null_server;
pub(crate) mod place;
mod serving;
mod spawn;
mod syscall;
mod window;

use super::{gups, memory_latency, pi, spin, stream};
use crate::kernel::Kernel;

pub use syscall::QUICK_EXIT;

/// All kernels, in the order of the help.
pub(crate) const ALL: &[&Kernel] = &[
    &noploop::KERNEL,
    &stream::KERNEL,
    &gups::KERNEL,
    &lu::KERNEL,
    &inference::KERNEL,
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
