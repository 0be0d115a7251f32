//! The machine's disks: one for workloads, and the root of a system.

use super::prepare::Prepared;
use super::xml::Disk;
use super::{Libvirt, PLATFORM};
use crate::vm::disk::{self, DataDisk, DataDiskSpec, GuestRoot};
use crate::{GuestRequest, Host, KeySpec, PlatformError, Result, common_keys, setting};
use serde_json::Value;
use weigh_model::{EnvironmentSpec, SpecError};

/// The key `disk`.
pub(super) const DISK: KeySpec = disk::disk_key(&["none", "raw", "qcow2", "block"]);
/// The key `cache`.
pub(super) const CACHE: KeySpec =
    KeySpec::words("cache", &["none", "directsync", "writeback", "writethrough"]).about(
        "whether the host's page cache stands between the guest and its disks (writeback, \
        writethrough), and whether each write is flushed (directsync, writethrough)",
    );
/// The key `aio`.
pub(super) const AIO: KeySpec = KeySpec::words("aio", &["auto", "native", "threads", "io_uring"])
    .about("how QEMU reads and writes its disks; auto: native without the host's cache, else threads");
/// The key `init`.
pub(super) const INIT: KeySpec = KeySpec::words("init", &["single", "full"])
    .about("the probe alone, or a whole system from a disk, with the probe beside its init");

/// Whether the guest boots a system.
pub(super) fn is_system(environment: &EnvironmentSpec) -> bool {
    setting(&Libvirt, environment, INIT.name) == "full"
}

/// Checks what [`KeySpec`] cannot express about these keys.
///
/// # Errors
/// A key describes a disk that the machine does not have, or that is impossible.
pub(super) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    DataDiskSpec::check(&Libvirt, environment)?;
    let has_disk = setting(&Libvirt, environment, DISK.name) != "none" || is_system(environment);
    for key in [CACHE.name, AIO.name] {
        if environment.get(key).is_some() && !has_disk {
            let message = format!("there is no disk for `{key}` to apply to");
            return Err(environment.key_error(key, message, "name a disk too, as in `disk=raw`"));
        }
    }
    let cache = setting(&Libvirt, environment, CACHE.name);
    if environment.get(AIO.name) == Some("native") && is_cached(cache) {
        let message = format!("`aio=native` bypasses the host's cache, and `cache={cache}` uses it");
        return Err(environment.value_error(AIO.name, message, "write `aio=threads`, or `cache=none`"));
    }
    if is_system(environment) { common_keys::check_system_image(environment) } else { Ok(()) }
}

fn is_cached(cache: &str) -> bool {
    ["writeback", "writethrough"].contains(&cache)
}

/// The disks of one machine.
#[derive(Debug)]
pub(super) struct Storage {
    data: Option<DataDisk>,
    root: Option<GuestRoot>,
    cache: String,
    aio: String,
}

impl Storage {
    /// Takes or makes the disks.
    ///
    /// # Errors
    /// No space is left, or a device is not available.
    pub(super) fn take(host: &Host, request: &GuestRequest, prepared: &Prepared) -> Result<Self> {
        let environment = &request.environment;
        let wanted = DataDiskSpec::of(&Libvirt, environment);
        let data = wanted.map(|wanted| wanted.take(host, request.instance)).transpose()?;
        let overlay = |disk: &_| GuestRoot::overlay(host, disk, request.instance);
        let root = prepared.root.as_ref().map(overlay).transpose()?;
        let cache = setting(&Libvirt, environment, CACHE.name).to_string();
        let aio = match setting(&Libvirt, environment, AIO.name) {
            "auto" if is_cached(&cache) => "threads",
            "auto" => "native",
            word => word,
        };
        Ok(Self { data, root, aio: aio.into(), cache })
    }

    /// The disks, in the order of their names in the guest.
    pub(super) fn disks(&self) -> Vec<Disk> {
        let (cache, aio) = (&self.cache, &self.aio);
        let disk = |path: &std::path::Path, is_device, format, bytes| Disk {
            path: path.into(),
            is_device,
            format,
            bytes,
            cache: cache.clone(),
            aio: aio.clone(),
        };
        let data = self.data.iter().map(|data| {
            let part = (!data.whole).then_some(data.bytes);
            disk(&data.path, data.is_device(), data.format.as_str(), part)
        });
        let root = self.root.iter().map(|root| disk(&root.path, false, root.format.as_str(), None));
        data.chain(root).collect()
    }

    /// The arguments that tell the probe where its root is.
    pub(super) fn probe_words(&self) -> String {
        match (&self.root, &self.data) {
            (None, _) => String::new(),
            (Some(_), None) => disk::probe_words("/dev/vda", true),
            (Some(_), Some(_)) => disk::probe_words("/dev/vdb", true),
        }
    }

    /// Whether there is a disk for workloads.
    pub(super) fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Gives the disk for workloads back after the machine has ended.
    ///
    /// # Errors
    /// A loop device could not be detached; it stays in the ledger.
    pub(super) fn give_back(&mut self) -> Result<()> {
        self.root = None;
        self.data.as_mut().map_or(Ok(()), DataDisk::give_back)
    }
}

/// The fact `cache`: what QEMU's answer to `query-block` shows, not what was asked for.
///
/// # Errors
/// QEMU has no disk.
pub(super) fn cache_fact(answer: &Value) -> Result<String> {
    let disks = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let cache = disks.iter().find_map(|disk| disk.pointer("/inserted/cache"));
    let cache = cache
        .ok_or_else(|| PlatformError::launch(PLATFORM, "QEMU has no disk although one was asked for"))?;
    let is = |name: &str| cache.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(match (is("direct"), is("writeback")) {
        (true, true) => "none",
        (true, false) => "none (directsync)",
        (false, true) => "host's page cache (writeback)",
        (false, false) => "host's page cache (writethrough)",
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cache_mode_is_read_from_qemus_answer() {
        let answer = |direct, writeback| {
            let cache = json!({"no-flush": false, "direct": direct, "writeback": writeback});
            json!([{"device": "", "inserted": {"cache": cache}, "qdev": "/machine/peripheral/virtio-disk0"}])
        };
        assert_eq!(cache_fact(&answer(true, true)).unwrap(), "none");
        assert_eq!(cache_fact(&answer(false, true)).unwrap(), "host's page cache (writeback)");
        assert_eq!(cache_fact(&answer(false, false)).unwrap(), "host's page cache (writethrough)");
        cache_fact(&json!([])).unwrap_err();
    }

    #[test]
    fn disks_that_cannot_be_are_refused() {
        let refused = |text: &str| {
            let error = crate::resolve(&EnvironmentSpec::parse(text).unwrap()).err().unwrap();
            error.text[error.span].to_string()
        };
        assert_eq!(refused("libvirt:cache=none"), "cache");
        assert_eq!(refused("libvirt:size=1GiB"), "size");
        assert_eq!(refused("libvirt:disk=raw,size=big"), "big");
        assert_eq!(refused("libvirt:disk=raw,cache=writeback,aio=native"), "native");
        assert_eq!(refused("libvirt:init=full,rootfs=probe"), "probe");
        for right in ["disk=qcow2,size=8MiB,cache=writeback,aio=threads", "init=full,cache=none"] {
            crate::resolve(&EnvironmentSpec::parse(&format!("libvirt:{right}")).unwrap()).unwrap();
        }
    }
}
