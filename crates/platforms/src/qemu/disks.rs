//! Disks on QEMU's command line: nodes of files and formats, cache modes, and I/O modes.

use super::part::Line;
use crate::vm::disk::{DataDisk, Format, GuestRoot};
use crate::{PlatformError, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;

/// Node name of the disk for workloads. It comes first, so that it is `/dev/vda` wherever the root
/// is.
pub(super) const DATA: &str = "data";
/// Node name of the root.
pub(super) const ROOT: &str = "root";
/// Time limit for QEMU to open a file and exit.
const PROOF_DEADLINE: Duration = Duration::from_secs(20);

/// A value of `cache` (qemu(1), `-drive`): which caches are between the guest and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) word: &'static str,
    /// Whether the guest's disk reports a cache that the guest must flush.
    writeback: bool,
    /// Whether it bypasses the host's page cache.
    pub(super) direct: bool,
    /// Whether the guest's flushes are ignored.
    no_flush: bool,
}

const fn cache(word: &'static str, writeback: bool, direct: bool, no_flush: bool) -> Cache {
    Cache { word, writeback, direct, no_flush }
}

const CACHES: [Cache; 5] = [
    cache("none", true, true, false),
    cache("writeback", true, false, false),
    cache("writethrough", false, false, false),
    cache("directsync", false, true, false),
    cache("unsafe", true, false, true),
];

/// Values of `cache`, the default first.
pub(super) const CACHE_WORDS: &[&str] =
    &[CACHES[0].word, CACHES[1].word, CACHES[2].word, CACHES[3].word, CACHES[4].word];

impl Cache {
    pub(super) fn of(word: &str) -> Self {
        CACHES.into_iter().find(|cache| cache.word == word).unwrap_or(CACHES[0])
    }

    /// The cache mode that QEMU reports for an open disk.
    fn of_qemu(said: &Value) -> Option<Self> {
        let flag = |name: &str| said.get(name).and_then(Value::as_bool);
        let seen = (flag("writeback")?, flag("direct")?, flag("no-flush")?);
        CACHES.into_iter().find(|cache| (cache.writeback, cache.direct, cache.no_flush) == seen)
    }

    /// A description for the fact `cache`.
    fn described(self) -> String {
        match (self.direct, self.word) {
            (true, "none") => "none".into(),
            (true, word) => format!("none ({word})"),
            (false, word) => format!("host's page cache ({word})"),
        }
    }

    fn options(self) -> Value {
        json!({"direct": self.direct, "no-flush": self.no_flush})
    }
}

/// The I/O mode that follows from the key `aio` and the cache mode.
pub(super) fn aio(word: &str, cache: Cache) -> &str {
    match word {
        // Linux's native asynchronous reads block unless they bypass the page cache.
        "auto" if cache.direct => "native",
        "auto" => "threads",
        word => word,
    }
}

/// How the disks of a machine are opened.
#[derive(Debug, Clone)]
pub(super) struct DiskOptions {
    pub(super) cache: Cache,
    pub(super) aio: String,
    /// The object of a separate thread that serves the disks, instead of QEMU's main thread.
    pub(super) iothread: Option<&'static str>,
}

impl DiskOptions {
    /// Adds the disk for workloads.
    pub(super) fn data(&self, disk: &DataDisk, line: &mut Line) {
        let driver = if disk.is_device() { "host_device" } else { "file" };
        self.file(line, "data-file", driver, &disk.path, false);
        let mut node = json!({
            "driver": disk.format.as_str(), "node-name": DATA, "file": "data-file", "cache": self.cache.options(),
        });
        if !disk.whole {
            node["size"] = disk.bytes.into();
        }
        line.pair("-blockdev", &node.to_string());
        self.device(line, DATA);
    }

    /// Adds the root: the guest's own image above the system's, which is opened read-only.
    pub(super) fn root(&self, own: &GuestRoot, below: &Path, line: &mut Line) {
        let options = self.cache.options();
        self.file(line, "below-file", "file", below, true);
        let below = json!({
            "driver": "raw", "node-name": "below", "file": "below-file", "read-only": true, "cache": options,
        });
        line.pair("-blockdev", &below.to_string());
        self.file(line, "root-file", "file", &own.path, false);
        let mut root = json!({
            "driver": own.format.as_str(), "node-name": ROOT, "file": "root-file", "cache": options,
        });
        if own.format == Format::Qcow2 {
            root["backing"] = "below".into();
        }
        line.pair("-blockdev", &root.to_string());
        self.device(line, ROOT);
    }

    fn file(&self, line: &mut Line, node: &str, driver: &str, path: &Path, read_only: bool) {
        let node = json!({
            "driver": driver, "node-name": node, "filename": path, "aio": self.aio, "read-only": read_only,
            // A file that nobody writes to may have many readers.
            "locking": if read_only { "auto" } else { "on" },
            "cache": self.cache.options(),
        });
        line.pair("-blockdev", &node.to_string());
    }

    fn device(&self, line: &mut Line, node: &str) {
        let write_cache = if self.cache.writeback { "on" } else { "off" };
        let thread = self.iothread.map(|id| format!(",iothread={id}")).unwrap_or_default();
        line.pair(
            "-device",
            &format!(
                "virtio-blk-pci,drive={node},serial=weighbridge-{node},write-cache={write_cache}{thread}"
            ),
        );
    }
}

/// What an answer to `query-block` says about this node's disk: its format, and its cache in words.
pub(super) fn seen(answer: &Value, node: &str) -> Option<(String, String)> {
    let inserted = inserted(answer, node)?;
    let format = inserted.get("drv")?.as_str()?.to_string();
    let cache = inserted.get("cache")?;
    let described = Cache::of_qemu(cache).map_or_else(|| format!("unknown ({cache})"), Cache::described);
    Some((format, described))
}

fn inserted<'a>(answer: &'a Value, node: &str) -> Option<&'a Value> {
    let devices = answer.as_array()?.iter().filter_map(|device| device.get("inserted"));
    devices.into_iter().find(|inserted| inserted.get("node-name").and_then(Value::as_str) == Some(node))
}

/// Bytes that the guest has read from and written to this node's disk, from an answer to
/// `query-blockstats`.
pub(super) fn moved(answer: &Value, node: &str) -> Option<(u64, u64)> {
    let mut devices = answer.as_array()?.iter();
    let device = devices.find(|device| device.get("node-name").and_then(Value::as_str) == Some(node))?;
    let number = |name: &str| device.get("stats")?.get(name)?.as_u64();
    Some((number("rd_bytes")?, number("wr_bytes")?))
}

/// Checks that this QEMU can open a file by io_uring on this kernel, by making it open one.
///
/// # Errors
/// It cannot; the error has its message.
pub(super) fn check_io_uring(binary: &Path) -> Result<()> {
    let file = json!({
        "driver": "file", "node-name": "file", "filename": "/proc/self/exe", "read-only": true, "aio": "io_uring",
    });
    let run = Invocation::new(binary)
        .args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"])
        .args(["-blockdev", &file.to_string()])
        .input("{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"quit\"}\n")
        .deadline(PROOF_DEADLINE);
    let done = run.run()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.error).into_owned();
    let said = said.lines().last().unwrap_or("it ended without a word").trim().to_string();
    Err(PlatformError::unavailable(
        format!("QEMU cannot use io_uring for disks: {said}"),
        "write aio=native or aio=threads; where the kernel has it switched off, `sysctl kernel.io_uring_disabled=0` allows it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_distinguished_by_qemus_report() {
        for (word, said, described) in [
            ("none", (true, true, false), "none"),
            ("writeback", (true, false, false), "host's page cache (writeback)"),
            ("writethrough", (false, false, false), "host's page cache (writethrough)"),
            ("directsync", (false, true, false), "none (directsync)"),
            ("unsafe", (true, false, true), "host's page cache (unsafe)"),
        ] {
            let said = json!({"writeback": said.0, "direct": said.1, "no-flush": said.2});
            assert_eq!(Cache::of_qemu(&said), Some(Cache::of(word)));
            assert_eq!(Cache::of(word).described(), described);
        }
        let strange = json!({"writeback": false, "direct": true, "no-flush": true});
        assert_eq!(Cache::of_qemu(&strange), None);
    }

    #[test]
    fn the_way_to_the_kernel_follows_the_cache() {
        assert_eq!(aio("auto", Cache::of("none")), "native");
        assert_eq!(aio("auto", Cache::of("unsafe")), "threads");
        assert_eq!(aio("io_uring", Cache::of("writeback")), "io_uring");
    }

    /// Answers of QEMU 7.2.
    #[test]
    fn answers_are_read_by_node() {
        let block = json!([
            {"io-status": "ok", "device": "", "inserted": {"node-name": "root", "drv": "qcow2",
                "cache": {"no-flush": false, "direct": true, "writeback": true}}, "qdev": "/machine/1"},
            {"device": "", "inserted": {"node-name": "data", "drv": "raw",
                "cache": {"no-flush": false, "direct": false, "writeback": false}}},
        ]);
        assert_eq!(seen(&block, "root"), Some(("qcow2".into(), "none".into())));
        assert_eq!(seen(&block, "data"), Some(("raw".into(), "host's page cache (writethrough)".into())));
        assert_eq!(seen(&block, "other"), None);
        let stats = json!([{"device": "", "node-name": "data", "stats": {"rd_bytes": 4096, "wr_bytes": 7}}]);
        assert_eq!(moved(&stats, "data"), Some((4096, 7)));
        assert_eq!(moved(&stats, "root"), None);
    }
}
