//! What the host sees of a trial: noise, and who used CPU time.
//!
//! ```text
//! attach      when an instance runs: opens what is read again and again
//!   begin     before the measured iterations, the guest awake
//!   end       after them -> Observed
//! detach      before the instance is stopped
//! ```

mod balance;
mod counters;
mod cpu;
mod files;
mod frequency;
mod instance;
mod kernel_log;
mod kernel_threads;
mod loader;
pub mod memory;
mod neighbours;
mod observer;
pub mod pages;
mod perf;
mod pressure;
mod rest;
mod scripted;
mod spent;
mod stat;
mod sum;
mod throttle;
mod tree;

pub use loader::ElsewhereReading;
pub use observer::Observer;
pub use scripted::{Call, Scripted};
pub use spent::spent;
pub use sum::add;

use weigh_host::accounts::Accounts;
use weigh_model::{HostSettings, Observed};

/// An instance that the sensors know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attached(pub u64);

/// The sensors as the runner uses them. Nothing here fails: what cannot be read is absent from what
/// is observed.
pub trait Sensors {
    /// The host's settings now.
    fn settings(&mut self) -> HostSettings;

    /// Gets ready to observe an instance that may use `cpus`.
    fn attach(&mut self, accounts: &Accounts, cpus: &[u32]) -> Attached;

    /// Gets ready for windows in which a load generator runs, which is neither foreign nor charged
    /// to a guest, with the CPUs that it may use; none: there is no more. Sensors that see nothing
    /// of it pass it over.
    fn set_loader(&mut self, loader: Option<(&Accounts, &[u32])>) {
        let _ = loader;
    }

    /// Gets ready for windows in which other guests are awake beside the one that is observed, on
    /// the same CPUs; with the clients of their servers. None of them is foreign or charged to the
    /// observed guest. None at all: there are no more. Sensors that see nothing of them pass them
    /// over.
    fn set_neighbours(&mut self, guests: &[Accounts], clients: &[Accounts], cpus: &[u32]) {
        let _ = (guests, clients, cpus);
    }

    /// CPU time that these guests with their helpers used in the windows since
    /// [`Sensors::set_neighbours`], and how long the windows were, nanoseconds; none where it is
    /// not seen.
    fn neighbours_used(&self) -> Option<(u64, u64)> {
        None
    }

    /// Begins to observe. One instance is observed at a time; a second call begins anew.
    fn begin(&mut self, instance: Attached);

    /// Stops observing and says what was seen since [`Sensors::begin`]. Several windows of one
    /// trial are added up with [`add`].
    fn end(&mut self, instance: Attached) -> Observed;

    /// Forgets an instance.
    fn detach(&mut self, instance: Attached);
}
