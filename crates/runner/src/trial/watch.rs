//! The sensors around what is measured.

use crate::serve::machine::Machine;
use std::sync::Arc;
use weigh_host::accounts::Accounts;
use weigh_model::Observed;
use weigh_observe::{InstanceId, RemoteLoaderReading, Sensors, add};
use weigh_platforms::{DiskMeter, DiskMoved, Session};

/// What a machine has read from its virtual disks, below its own caches and above those of the
/// host: it shows whose cache was measured.
pub(super) const DISK_READS: &str = "guest_disk_read_bytes";

/// The sensors around the measured commands of one trial. Preparation and clean-up are outside of
/// the window.
pub(crate) struct Watch<'a> {
    sensors: &'a mut dyn Sensors,
    /// None where the sensors see nothing of the guest.
    instance: Option<InstanceId>,
    /// Counts what the guest moves of its disk, where it has one.
    meter: Option<Box<dyn DiskMeter>>,
    /// What it had moved when the window began.
    moved: Option<DiskMoved>,
    pub(super) seen: Option<Observed>,
    /// The sensors have been told of a load generator.
    loaded: bool,
    /// The machine of the load generator, which reports its own use, and its reading when the
    /// window began.
    machine: Option<Arc<Machine>>,
    asked: Option<RemoteLoaderReading>,
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
        Self { sensors, instance, meter, moved: None, seen: None, loaded: false, machine: None, asked: None }
    }

    /// Tells the sensors of a load generator and its CPUs, as long as this lives.
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
    }

    pub(super) fn end(&mut self, session: &mut Session) {
        let Some(instance) = self.instance else { return };
        let mut window = self.sensors.end(instance);
        if let Some(machine) = &self.machine {
            // What the sensors saw of it is its client here.
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
