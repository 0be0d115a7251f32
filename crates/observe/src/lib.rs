//! Observing a trial from the host: noise, and who used CPU time.
//!
//! ```text
//! attach      when an instance runs: opens the files that are read repeatedly
//!   begin     before the measured iterations, with the guest awake
//!   end       after them -> Observed
//! detach      before the instance is stopped
//! ```

mod balance;
mod calls;
mod counters;
mod cpu;
mod files;
#[cfg(test)]
mod fixtures;
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
mod softirq_baseline;
mod stat;
mod sum;
mod throttle;
mod total;
mod tree;

pub use calls::{CallsError, CountCalls};
pub use loader::RemoteLoaderReading;
pub use observer::Observer;
pub use sum::add;
pub use total::cpu_use_since_start;

use std::path::Path;
use weigh_host::accounts::Accounts;
use weigh_model::{HostSettings, Observed};

/// Returns an upper estimate of the files that are open while this number of instances is observed
/// on this host.
pub fn open_files(instances: usize) -> u64 {
    /// Files of a process that observes nothing, and of an instance beside its events.
    const OTHERS: [usize; 2] = [256, 64];
    // An event has a file for each CPU, and one for each thread of the helpers: for each CPU of a
    // virtual machine, at most.
    let cpus = perf::online_cpus(Path::new("/")).unwrap_or_default();
    let events = perf::EVENTS.len() * 2 * cpus.len();
    (OTHERS[0] + instances * (events + OTHERS[1])) as u64
}

/// Identifies an instance that was attached to the sensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// The sensors as the runner uses them. Nothing here fails: values that cannot be read are absent
/// from the observation.
pub trait Sensors {
    /// The current settings of the host.
    fn settings(&mut self) -> HostSettings;

    /// Prepares to observe an instance that may use `cpus`.
    fn attach(&mut self, accounts: &Accounts, cpus: &[u32]) -> InstanceId;

    /// Sets the load generator of the following windows, with the CPUs that it may use, or that
    /// there is none. It is neither foreign nor charged to a guest. By default it is ignored.
    fn set_loader(&mut self, loader: Option<(&Accounts, &[u32])>) {
        let _ = loader;
    }

    /// Sets the neighbours of the following windows: guests that are awake on the same CPUs beside
    /// the observed one, and the clients of their servers. None of them is foreign or charged to
    /// the observed guest. By default they are ignored.
    fn set_neighbours(&mut self, guests: &[Accounts], clients: &[Accounts], cpus: &[u32]) {
        let _ = (guests, clients, cpus);
    }

    /// CPU time of the neighbours and their helpers in the windows since
    /// [`Sensors::set_neighbours`], and the length of these windows, nanoseconds; `None` if it is
    /// not measured.
    fn neighbours_used(&self) -> Option<(u64, u64)> {
        None
    }

    /// Begins a window. Only one instance is observed at a time; a second call begins again.
    fn begin(&mut self, instance: InstanceId);

    /// Ends the window and returns what was observed since [`Sensors::begin`]. Several windows of a
    /// trial are added up by [`add`].
    fn end(&mut self, instance: InstanceId) -> Observed;

    /// Opens a counter of the system calls that an instance makes to the host's kernel. It slows
    /// every system call of the host down as long as it exists. By default there is none.
    ///
    /// # Errors
    /// The calls of the instance, or of a part of it, cannot be counted here.
    fn count_calls(&mut self, accounts: &Accounts) -> Result<Box<dyn CountCalls>, CallsError> {
        let _ = accounts;
        Err(CallsError::NoSensor)
    }

    /// Forgets an instance.
    fn detach(&mut self, instance: InstanceId);
}
