//! `room`: prepares a disk before tools that measure disks start: there must be space, the place
//! must not be in memory, the file must be written completely, and nothing that belongs to somebody
//! else may be in the way. It also checks memory before a server is filled.

use super::Tool;
use crate::kernel::KernelError;
use crate::kernels::native::{block, place};
use crate::options::{OptionSpec, Options};
use serde_json::{Value, json};
use std::fs::{File, FileType, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use weigh_model::format_bytes;

/// The share of a file's size that a file system needs for itself: ext4 needs less than this for
/// the block map of a large file.
const OVERHEAD: u64 = 64;

/// Bytes that a key of ten bytes takes in Redis besides its value: its entry, its own bytes, its
/// place in two tables while the larger one takes over. Redis 7.0.15 with jemalloc took 150 bytes a
/// key at 1,050,000 keys with values of 50 bytes, 422 with 300, 1185 with 1000.
const KEY_BYTES: u64 = 100;

/// Bytes that Redis needs without any keys.
const STORE_BYTES: u64 = 16 << 20;

pub(super) static TOOL: Tool = Tool {
    name: "room",
    summary: "makes sure that a place lies on a disk and has room, and writes a file of random content there; or that memory is there",
    options: &[
        OptionSpec::text("path", "")
            .help("a directory, a file in one, or a block device, which is not written to"),
        OptionSpec::bytes("bytes", "0").help("required bytes"),
        OptionSpec::choice("write", &["nothing", "file"])
            .help("what to write to the path: nothing, or every block of a file of `--bytes`"),
        OptionSpec::choice("on", &["disk", "direct", "any"])
            .help("required storage: a disk, a disk within reach of direct access, or any, memory included"),
        OptionSpec::text("job", "read")
            .help("the job that follows, in fio's words; all jobs but read and randread write"),
        OptionSpec::choice("destroy", &["off", "on"])
            .help("whether the job may overwrite a block device or an existing file"),
        OptionSpec::bytes("memory", "0").help("required bytes of memory"),
        OptionSpec::count("keys", "0").help("keys that a server keeps in memory in addition"),
        OptionSpec::bytes("value-bytes", "0").help("mean bytes of the keys' values"),
        OptionSpec::bytes("memory-limit", "0")
            .help("limit of usable memory in bytes, besides the system's own; 0: none"),
    ],
    takes_command: false,
    run,
};

fn run(options: &Options, _command: &[String]) -> Result<Value, KernelError> {
    let memory = memory(options)?;
    let path = Path::new(options.text("path"));
    let statement = match (path.as_os_str().is_empty(), memory) {
        (true, None) => return Err(KernelError::usage("name the place: `--path FILE`")),
        (true, Some(memory)) => memory,
        (false, memory) => {
            [at_place(options, path)?].into_iter().chain(memory).collect::<Vec<_>>().join("; ")
        }
    };
    Ok(json!({
        "tool": "room",
        "params": options.to_json(),
        "check": {"passed": true, "statement": statement},
    }))
}

/// Checks whether the requested memory is available; `None` if none is requested.
fn memory(options: &Options) -> Result<Option<String>, KernelError> {
    let (memory, keys) = (options.number("memory"), options.number("keys"));
    let value = options.number("value-bytes");
    // The size classes of an allocator are an eighth apart on average.
    let key = KEY_BYTES.saturating_add(value).saturating_add(value / 8);
    let store = if keys > 0 { STORE_BYTES.saturating_add(keys.saturating_mul(key)) } else { 0 };
    let needed = memory.saturating_add(store);
    if needed == 0 {
        return Ok(None);
    }
    let remedy = if keys > 0 { "give it fewer keys (`--param keys=`)" } else { "give it less to keep" };
    let remedy = format!("{remedy}, a smaller `--size`, or raise `--memory`");
    place::require_memory(needed, options.number("memory-limit"), &remedy)?;
    Ok(Some(format!("{} of memory is available", rounded(needed))))
}

/// Checks and prepares the place.
fn at_place(options: &Options, path: &Path) -> Result<String, KernelError> {
    let bytes = options.number("bytes");
    let writes = !matches!(options.text("job"), "read" | "randread");
    let kind = std::fs::metadata(path).map(|there| there.file_type()).ok();
    if writes && options.text("destroy") == "off" && is_somebody_elses(path, kind, bytes)? {
        return Err(KernelError::Unable(format!(
            "the job `{}` would overwrite {}, which was there before: say that it may (`--param destroy=on`), or give it a file of \
             its own",
            options.text("job"),
            path.display()
        )));
    }
    if kind.is_some_and(|kind| kind.is_block_device()) {
        device(path, bytes, writes)
    } else {
        file_system(options, path, kind)
    }
}

/// Whether the place holds something other than a directory or a file that this tool wrote.
fn is_somebody_elses(path: &Path, kind: Option<FileType>, bytes: u64) -> Result<bool, KernelError> {
    match kind {
        None => Ok(false),
        Some(kind) if kind.is_dir() => Ok(false),
        Some(kind) if kind.is_file() => Ok(bytes == 0 && !block::is_ours(path)?),
        Some(_) => Ok(true),
    }
}

/// Checks whether a block device is long enough and, before it is written to, not in use.
fn device(path: &Path, bytes: u64, writes: bool) -> Result<String, KernelError> {
    let failed = || KernelError::system(format!("find the length of {}", path.display()));
    // An exclusive open fails if the device, or a part of it, is mounted (open(2)).
    let flags = if writes { libc::O_EXCL } else { 0 };
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let has = opened.and_then(|mut device| device.seek(SeekFrom::End(0))).map_err(|error| {
        if error.raw_os_error() == Some(libc::EBUSY) {
            let message = format!("{} is mounted or in use; name a disk that nobody uses", path.display());
            return KernelError::Unable(message);
        }
        failed()(error)
    })?;
    let (length, needed) = (rounded(has), rounded(bytes));
    if has < bytes {
        return Err(KernelError::Unable(format!(
            "{} has {length}, and {needed} are needed: give the machine a larger disk (`size={needed}`), or the workload less to do \
             (`--param file-bytes=0` takes the whole of the device)",
            path.display()
        )));
    }
    Ok(format!("the device has {length}, of which {needed} are needed"))
}

/// Checks that a place lies on a disk, unless it need not, and that its file system has the space;
/// then writes the file.
fn file_system(options: &Options, path: &Path, kind: Option<FileType>) -> Result<String, KernelError> {
    let bytes = options.number("bytes");
    let directory = match kind {
        Some(kind) if kind.is_dir() => path,
        _ => path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let shown = directory.display();
    let opened =
        File::open(directory).map_err(KernelError::system(format!("look at the file system of {shown}")))?;
    let anywhere = options.text("on") == "any";
    if let (Some(name), false) = (place::in_memory(&opened), anywhere) {
        return Err(KernelError::Unable(format!(
            "{shown} is in memory ({name}), but this workload measures a disk: give the guest storage on one (`storage=volume` or \
             `storage=overlay`), or a machine a disk of its own (`disk=raw,storage=disk`; or `disk=raw`, and \
             `--param file=/dev/vda --param file-bytes=0` where the workload has them)"
        )));
    }
    if options.text("on") == "direct" && place::in_user_space(&opened) {
        return Err(KernelError::Unable(format!(
            "{shown} is on FUSE (for example fuse-overlayfs), where direct I/O reaches the host's page cache, not the disk; use \
             `storage=volume`, an overlay of another platform (`namespaces:storage=overlay`), or an engine with the storage driver overlay2"
        )));
    }
    // An existing file already has its space.
    let has = std::fs::metadata(path).map_or(0, |there| if there.is_file() { there.len() } else { 0 });
    let missing = bytes.saturating_sub(has);
    place::require_space(
        directory,
        missing.saturating_add(missing / OVERHEAD),
        "choose a smaller size (`--size quick`, or the workload's parameter that says how much), or give the guest storage with more \
         room",
    )?;
    // With 0 bytes, an existing file is used as it is.
    if options.text("write") == "file" && bytes > 0 {
        block::provide_file(path, bytes, !anywhere)?;
    }
    Ok(format!("{shown} has room for {}", rounded(bytes)))
}

/// A size for people, rounded up to a whole MiB.
fn rounded(bytes: u64) -> String {
    format_bytes(bytes.div_ceil(1 << 20).saturating_mul(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(line: &[&str]) -> Result<(Value, bool), String> {
        TOOL.run(line.iter().map(|word| (*word).to_owned()).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_written_whole_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let line = ["--path", path.to_str().unwrap(), "--bytes", "1MiB", "--write", "file", "--on", "any"];
        let (told, passed) = room(&line).unwrap();
        assert!(passed, "{told}");
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written.len(), 1 << 20);
        assert!(written.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
        // The file exists already: nothing changes, and its space is not required twice.
        room(&line).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), written);
        let (_, passed) = room(&["--path", folder.path().to_str().unwrap(), "--on", "any"]).unwrap();
        assert!(passed);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_with_its_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let line = ["--path", path.to_str().unwrap(), "--bytes", "4096TiB", "--write", "file", "--on", "any"];
        let error = room(&line).unwrap_err();
        // The file system needs a 64th for itself.
        assert!(error.contains("4160TiB are needed") && error.contains("smaller size"), "{error}");
        assert!(!path.exists());
        let gone = folder.path().join("gone/file");
        let error = room(&["--path", gone.to_str().unwrap(), "--bytes", "1"]).unwrap_err();
        assert!(error.contains("look at the file system of"), "{error}");
        let error = room(&["--bytes", "1"]).unwrap_err();
        assert!(error.contains("--path FILE"), "{error}");
    }

    #[test]
    fn keys_that_do_not_fit_are_refused_with_the_memory_they_need() {
        let error = room(&["--keys", "150e6", "--value-bytes", "50", "--memory-limit", "2GiB"]).unwrap_err();
        // Each key takes 156 bytes.
        assert!(error.contains("22332MiB of memory are needed and the guest may use 2GiB"), "{error}");
        assert!(error.contains("--param keys=") && error.contains("or raise `--memory`"), "{error}");
        assert!(room(&["--keys", "1e19", "--value-bytes", "1e18"]).is_err(), "no overflow");
        let (told, passed) =
            room(&["--keys", "1000", "--value-bytes", "50", "--memory-limit", "64MiB"]).unwrap();
        assert!(passed && told["check"]["statement"] == "17MiB of memory is available", "{told}");
        // Memory can be checked together with a place.
        let both = ["--path", "/", "--on", "any", "--memory", "100MiB", "--memory-limit", "99MiB"];
        assert!(room(&both).unwrap_err().contains("100MiB of memory"));
        assert!(room(&both[..4]).unwrap().1);
    }

    #[test]
    fn memory_is_no_disk() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIPPED memory_is_no_disk: there is no /dev/shm");
            return;
        };
        if place::in_memory(&File::open(folder.path()).unwrap()).is_none() {
            eprintln!("SKIPPED memory_is_no_disk: /dev/shm is no tmpfs here");
            return;
        }
        let path = folder.path().join("file");
        let line = ["--path", path.to_str().unwrap(), "--bytes", "1MiB", "--write", "file"];
        let error = room(&line).unwrap_err();
        assert!(
            error.contains("is in memory (tmpfs), but this workload measures a disk")
                && error.contains("storage=volume"),
            "{error}"
        );
        assert!(!path.exists());
        assert!(room(&[line.as_slice(), &["--on", "any"]].concat()).unwrap().1);
    }

    #[test]
    fn a_foreign_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        let line = ["--path", path.to_str().unwrap(), "--bytes", "1MiB", "--write", "file", "--on", "any"];
        let error = room(&line).unwrap_err();
        assert!(error.contains("somebody else's file"), "{error}");
        // Nor may a job write to it, unless the user says so.
        let as_it_is = ["--path", path.to_str().unwrap(), "--job", "randrw", "--on", "any"];
        let error = room(&as_it_is).unwrap_err();
        assert!(error.contains("destroy=on") && error.contains("`randrw`"), "{error}");
        for (job, destroy) in [("randrw", "on"), ("randread", "off"), ("read", "off")] {
            room(&[&as_it_is[..2], &["--job", job, "--destroy", destroy, "--on", "any"]].concat()).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        // The tool gives away a file that it wrote itself.
        let own = folder.path().join("own");
        let own = [
            "--path",
            own.to_str().unwrap(),
            "--bytes",
            "1MiB",
            "--write",
            "file",
            "--on",
            "any",
            "--job",
            "write",
        ];
        room(&own).unwrap();
        room(&own).unwrap();
    }
}
