//! What a machine has beside CPUs and memory: disks and a network card. It is made before the
//! monitor is started and lives with the guest.

use super::settings::{CACHE, DISKS, INIT, NET, ROOT};
use crate::network::NetworkEnd;
use crate::vm::disk::{self, DataDisk, GuestRoot, Wanted};
use crate::vm::tap::{self, Tap};
use crate::{GuestRequest, Host, Platform, PlatformError, Result, setting};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_model::{EnvironmentSpec, SpecError};

/// The guest's devices of disks, in the order in which the monitor is told of them.
const DEVICES: [&str; 2] = ["/dev/vda", "/dev/vdb"];

/// A disk as the monitor is told of it: a raw file or a device of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// Whether the host's page cache stands between.
    pub(crate) cached: bool,
}

/// A network card as the monitor is told of it.
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
        /// With an init of its own.
        system: bool,
    },
}

impl RootPlace {
    /// What the keys and the image come to: an image that is a whole root is put on a disk, which
    /// costs the guest no memory.
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

/// Whether guests have an init of their own.
pub(crate) fn boots_system(platform: &dyn Platform, environment: &EnvironmentSpec) -> bool {
    setting(platform, environment, INIT.name) == "full"
}

/// Everything of one machine's.
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
    /// It could not be made; what was begun has been undone.
    pub(crate) fn make(platform: &dyn Platform, host: &Host, request: &GuestRequest) -> Result<Self> {
        let environment = &request.environment;
        let mut parts = Self { cached: is_cached(platform, environment), ..Self::default() };
        if let Some(wanted) = Wanted::of(platform, environment) {
            parts.data = Some(wanted.take(host, request.instance)?);
        }
        if let RootPlace::Disk { system } = RootPlace::of(platform, request) {
            let made = disk::root_disk(host, request, system)?;
            // Neither monitor can be trusted with overlays in every version.
            parts.root = Some(GuestRoot::copy(host, &made, request.instance)?);
            parts.system = system;
        }
        parts.tap = tap::of_guest(host, request, setting(platform, environment, NET.name))?;
        Ok(parts)
    }

    /// The disk for workloads comes first, so that it is the same device whatever holds the root.
    pub(crate) fn disks(&self) -> Vec<Disk> {
        let cached = self.cached;
        let data = self.data.iter().map(|disk| Disk { name: "data", path: disk.path.clone(), cached });
        // Workloads do not measure the root: what of it is in the host's cache is there for all
        // guests.
        let root = self.root.iter().map(|root| Disk { name: "root", path: root.path.clone(), cached: true });
        data.chain(root).collect()
    }

    pub(crate) fn card(&self) -> Option<Card> {
        let tap = self.tap.as_ref()?;
        Some(Card { tap: tap.name().into(), hardware_address: tap.hardware_address().into() })
    }

    /// Words for the probe.
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

    /// Gives everything back, after the machine has ended; again it retries what failed.
    ///
    /// # Errors
    /// What could not be undone; it stays in the ledger.
    pub(crate) fn remove(&mut self) -> Result<()> {
        self.root = None;
        let given = self.data.as_mut().map_or(Ok(()), DataDisk::give_back);
        self.tap.as_mut().map_or(Ok(()), Tap::remove)?;
        given
    }
}

/// A monitor that has no choice keeps disks in the host's cache.
fn is_cached(platform: &dyn Platform, environment: &EnvironmentSpec) -> bool {
    setting(platform, environment, CACHE.name) != "none"
}

/// What the keys cannot say of themselves.
///
/// # Errors
/// An invalid value, underlined.
pub(crate) fn check(platform: &dyn Platform, environment: &EnvironmentSpec) -> Result<(), SpecError> {
    Wanted::check(platform, environment)?;
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

/// Whether a machine can be saved: a restored copy cannot take over disks or addresses of its own.
///
/// # Errors
/// Why not, as a clause.
pub(crate) fn restores(platform: &dyn Platform, request: &GuestRequest) -> Result<()> {
    let environment = &request.environment;
    let name = platform.name();
    if setting(platform, environment, NET.name) != "none" {
        return Err(PlatformError::CannotRestore(format!(
            "a machine of {name} that is restored would have the address of the one that was saved"
        )));
    }
    if Wanted::of(platform, environment).is_some() || RootPlace::of(platform, request) != RootPlace::Memory {
        return Err(PlatformError::CannotRestore(format!(
            "a machine of {name} that is restored would write to the disk of the one that was saved"
        )));
    }
    Ok(())
}

/// What the keys change on the host, one sentence each.
pub(crate) fn host_changes(platform: &dyn Platform, request: &GuestRequest) -> Vec<String> {
    let environment = &request.environment;
    let mut changes: Vec<String> =
        Wanted::of(platform, environment).map(|wanted| wanted.host_changes()).unwrap_or_default();
    if RootPlace::of(platform, request) != RootPlace::Memory {
        changes.push("keep a disk of the image in the cache, and a copy of it for each guest in the run's work directory".into());
    }
    changes.extend(tap::host_changes(setting(platform, environment, NET.name)));
    changes
}
