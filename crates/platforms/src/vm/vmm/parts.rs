//! What a machine has besides CPUs and memory: disks and a network card. They are made before the
//! monitor starts and live as long as the guest.

use super::settings::{CACHE, DISKS, INIT, NET, ROOT};
use crate::network::NetworkEnd;
use crate::vm::disk::{self, DataDisk, DataDiskSpec, GuestRoot};
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, Platform, PlatformError, Result, setting};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_model::{EnvironmentSpec, SpecError};

/// The guest's disk devices, in the order in which the monitor gets them.
const DEVICES: [&str; 2] = ["/dev/vda", "/dev/vdb"];

/// A disk as it is described to the monitor: a raw file or a device of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// Whether it goes through the host's page cache.
    pub(crate) cached: bool,
}

/// A network card as it is described to the monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Card {
    /// Name of the tap device, in the host's network.
    pub(crate) tap: String,
    pub(crate) hardware_address: String,
}

/// Where the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootPlace {
    /// In the machine's memory.
    Memory,
    /// On a disk.
    Disk {
        /// Whether a full system boots from it.
        system: bool,
    },
}

impl RootPlace {
    /// The place that follows from the keys and the image. By default an image that is a whole root
    /// is put on a disk, which costs the guest no memory.
    pub(crate) fn of(platform: &dyn Platform, request: &GuestRequest) -> Self {
        let environment = &request.environment;
        let system = boots_system(platform, environment);
        let on_disk = match setting(platform, environment, ROOT.name) {
            "disk" => true,
            "auto" => request.root.tree.is_some() && !request.root.host,
            _ => false,
        };
        if system || on_disk { Self::Disk { system } } else { Self::Memory }
    }
}

/// Whether guests boot a full system.
pub(crate) fn boots_system(platform: &dyn Platform, environment: &EnvironmentSpec) -> bool {
    setting(platform, environment, INIT.name) == "full"
}

/// The disks and the card of one machine.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    tap: Option<Tap>,
    data: Option<DataDisk>,
    root: Option<GuestRoot>,
    system: bool,
    cached: bool,
}

impl Parts {
    /// Makes what the keys ask for.
    ///
    /// # Errors
    /// Something could not be made; partial changes are undone.
    pub(crate) fn make(platform: &dyn Platform, host: &Host, request: &GuestRequest) -> Result<Self> {
        let environment = &request.environment;
        let mut parts = Self { cached: is_cached(platform, environment), ..Self::default() };
        if let Some(wanted) = data_disk(platform, environment) {
            parts.data = Some(wanted.take(host, request.instance)?);
        }
        if let RootPlace::Disk { system } = RootPlace::of(platform, request) {
            let made = disk::root_disk(host, request, system)?;
            // A copy, because not every version of these monitors handles overlays reliably.
            parts.root = Some(GuestRoot::copy(host, &made, request.instance)?);
            parts.system = system;
        }
        parts.tap = tap::of_guest(host, request, setting(platform, environment, NET.name))?;
        Ok(parts)
    }

    /// The disk for workloads comes first, so that it is the same device wherever the root is.
    pub(crate) fn disks(&self) -> Vec<Disk> {
        let cached = self.cached;
        let data = self.data.iter().map(|disk| Disk { name: "data", path: disk.path.clone(), cached });
        // Always cached: workloads do not measure the root, and all guests share what the host's
        // cache has of it.
        let root = self.root.iter().map(|root| Disk { name: "root", path: root.path.clone(), cached: true });
        data.chain(root).collect()
    }

    pub(crate) fn card(&self) -> Option<Card> {
        let tap = self.tap.as_ref()?;
        Some(Card { tap: tap.name().into(), hardware_address: tap.hardware_address().into() })
    }

    /// Arguments for the probe.
    pub(crate) fn probe_words(&self) -> String {
        let root = self.root.as_ref().map(|_| {
            let device = DEVICES[usize::from(self.data.is_some())];
            disk::probe_words(device, self.system)
        });
        let address = self.tap.as_ref().map(Tap::probe_arguments);
        root.into_iter().chain(address).collect::<Vec<_>>().join(" ")
    }

    /// Facts by parity key.
    pub(crate) fn facts(&self) -> BTreeMap<String, String> {
        let word = self.tap.as_ref().map_or("none", Tap::as_str);
        let mut facts = BTreeMap::from([("network".to_string(), word.to_string())]);
        if self.data.is_some() {
            let cache = if self.cached { "host's page cache (writeback)" } else { "none" };
            facts.insert("cache".into(), cache.into());
        }
        facts
    }

    /// The guest's end of its network.
    pub(crate) fn network(&self) -> Option<&dyn NetworkEnd> {
        self.tap.as_ref().map(|tap| tap as &dyn NetworkEnd)
    }

    /// Gives everything back after the machine has ended; further calls retry what failed.
    ///
    /// # Errors
    /// Something could not be undone; it stays in the ledger.
    pub(crate) fn remove(&mut self) -> Result<()> {
        self.root = None;
        let given = self.data.as_mut().map_or(Ok(()), DataDisk::give_back);
        self.tap.as_mut().map_or(Ok(()), Tap::remove)?;
        given
    }
}

/// The disk for workloads that the keys ask for. These monitors know no part of a device.
pub(crate) fn data_disk(platform: &dyn Platform, environment: &EnvironmentSpec) -> Option<DataDiskSpec> {
    DataDiskSpec::of(platform, environment).map(DataDiskSpec::only_whole)
}

/// Whether disks go through the host's cache, as they do with a monitor that has no choice.
fn is_cached(platform: &dyn Platform, environment: &EnvironmentSpec) -> bool {
    setting(platform, environment, CACHE.name) != "none"
}

/// Checks what the keys themselves cannot express.
///
/// # Errors
/// A value is invalid; the error points at it.
pub(crate) fn check(platform: &dyn Platform, environment: &EnvironmentSpec) -> Result<(), SpecError> {
    DataDiskSpec::check(platform, environment)?;
    if environment.get(CACHE.name).is_some() && setting(platform, environment, DISKS.name) == "none" {
        let help = "name a disk too, as in `disk=raw,size=10GiB`";
        return Err(environment.key_error(CACHE.name, "there is no disk to be cached", help));
    }
    if boots_system(platform, environment) && setting(platform, environment, ROOT.name) == "initramfs" {
        let help = "leave `root` out, or write `root=disk`";
        return Err(environment.value_error(ROOT.name, "a system needs a disk", help));
    }
    Ok(())
}

/// Whether a machine can be saved: a restored copy cannot take over disks or addresses.
///
/// # Errors
/// It cannot; the error says why, as a clause.
pub(crate) fn restores(platform: &dyn Platform, request: &GuestRequest) -> Result<()> {
    let environment = &request.environment;
    let name = platform.name();
    if setting(platform, environment, NET.name) != "none" {
        return Err(PlatformError::CannotRestore(format!(
            "a restored machine of {name} would have the address of the one that was saved"
        )));
    }
    if DataDiskSpec::of(platform, environment).is_some()
        || RootPlace::of(platform, request) != RootPlace::Memory
    {
        return Err(PlatformError::CannotRestore(format!(
            "a restored machine of {name} would write to the disk of the one that was saved"
        )));
    }
    Ok(())
}

/// The changes that the keys make on the host, one sentence each.
pub(crate) fn host_changes(platform: &dyn Platform, request: &GuestRequest) -> Vec<String> {
    let environment = &request.environment;
    let mut changes: Vec<String> =
        DataDiskSpec::of(platform, environment).map(|wanted| wanted.host_changes()).unwrap_or_default();
    if RootPlace::of(platform, request) != RootPlace::Memory {
        changes.push("keep a disk of the image in the cache, and a copy of it for each guest in the run's work directory".into());
    }
    changes.extend(tap::host_changes(setting(platform, environment, NET.name)));
    changes
}
