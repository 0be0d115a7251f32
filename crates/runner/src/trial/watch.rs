//! The sensors around the measured commands.

use crate::serve::machine::Machine;
use std::sync::Arc;
use weigh_host::accounts::Accounts;
use weigh_model::Observed;
use weigh_observe::{CountCalls, InstanceId, RemoteLoaderReading, Sensors, add};
use weigh_platforms::{DiskMeter, DiskMoved, Session};

/// Bytes that a machine has read from its virtual disks, below its own caches and above those of
/// the host: this shows whose cache was measured.
pub(super) const DISK_READS: &str = "guest_disk_read_bytes";

/// The sensors around the measured commands of one trial. Preparation and clean-up are outside of
/// the window.
pub(crate) struct Watch<'a> {
    sensors: &'a mut dyn Sensors,
    /// None if the sensors see nothing of the guest.
    instance: Option<InstanceId>,
    /// Counts the input and output of the guest's own disk, if it has one.
    meter: Option<Box<dyn DiskMeter>>,
    /// The reading of this meter when the window began.
    moved: Option<DiskMoved>,
    pub(super) seen: Option<Observed>,
    /// Whether the sensors have been given a load generator.
    loaded: bool,
    /// The machine of the load generator, which reports its own use, and its reading when the
    /// window began.
    machine: Option<Arc<Machine>>,
    asked: Option<RemoteLoaderReading>,
    /// Counts the system calls of the guest in the window.
    calls: Option<&'a mut dyn CountCalls>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.loaded {
            self.sensors.set_loader(None);
        }
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        sensors: &'a mut dyn Sensors,
        instance: Option<InstanceId>,
        meter: Option<Box<dyn DiskMeter>>,
    ) -> Self {
        Self {
            sensors,
            instance,
            meter,
            moved: None,
            seen: None,
            loaded: false,
            machine: None,
            asked: None,
            calls: None,
        }
    }

    /// Counts system calls in the window, too.
    pub(crate) fn count(&mut self, calls: &'a mut dyn CountCalls) {
        self.calls = Some(calls);
    }

    /// Gives the sensors a load generator and its CPUs, for the lifetime of this value.
    pub(crate) fn set_loader(&mut self, accounts: &Accounts, cpus: &[u32]) {
        self.sensors.set_loader(Some((accounts, cpus)));
        self.loaded = true;
    }

    /// Asks the machine of the load generator how busy it is, through the session of the commands.
    pub(crate) fn ask(&mut self, machine: Arc<Machine>) {
        self.machine = Some(machine);
    }

    pub(super) fn begin(&mut self, session: &mut Session) {
        self.asked = self.machine.as_ref().and_then(|machine| machine.read(session));
        self.moved = self.meter.as_mut().and_then(|meter| meter.read());
        if let Some(instance) = self.instance {
            self.sensors.begin(instance);
        }
        if let Some(calls) = &mut self.calls {
            calls.begin();
        }
    }

    pub(super) fn end(&mut self, session: &mut Session) {
        if let Some(calls) = &mut self.calls {
            calls.end();
        }
        let Some(instance) = self.instance else { return };
        let mut window = self.sensors.end(instance);
        if let Some(machine) = &self.machine {
            // The sensors saw only its client on this host.
            let ends = self.asked.take().zip(machine.read(session));
            window.loader = ends.map(|(begun, ended)| begun.until(&ended, &machine.facts().cpus));
        }
        let now = self.meter.as_mut().and_then(|meter| meter.read());
        if let (Some(before), Some(now)) = (self.moved.take(), now) {
            let counters = &mut window.charge.counters;
            counters.insert(DISK_READS.into(), now.read_bytes.saturating_sub(before.read_bytes));
            let written = now.written_bytes.saturating_sub(before.written_bytes);
            counters.insert("guest_disk_written_bytes".into(), written);
        }
        match &mut self.seen {
            Some(total) => add(total, window),
            None => self.seen = Some(window),
        }
    }
}
