//! `room`: a disk to work on, before tools that measure disks start: room, nothing in memory, a file that was written whole, nothing of
//! somebody else's in the way.

use super::Tool;
use crate::kernel::KernelError;
use crate::kernels::{block, place};
use crate::options::{Kind, OptionSpec, Options, UsageError};
use serde_json::{Value, json};
use std::fs::{File, FileType, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use weigh_model::format_bytes;

/// What a file system takes for itself beside a file: ext4 needs less than this share for the map of a large one.
const OVERHEAD: u64 = 64;

pub(super) static TOOL: Tool = Tool {
    name: "room",
    summary: "makes sure that a place lies on a disk and has room, and writes a file of random content there",
    options: &[
        OptionSpec {
            name: "path",
            kind: Kind::Text,
            default: "",
            summary: "a directory, a file in one, or a block device, to which nothing is written",
        },
        OptionSpec { name: "bytes", kind: Kind::Bytes, default: "0", summary: "bytes that are needed" },
        OptionSpec {
            name: "write",
            kind: Kind::Word(&["nothing", "file"]),
            default: "nothing",
            summary: "nothing, or a file of so many bytes at the path, every block of it",
        },
        OptionSpec {
            name: "on",
            kind: Kind::Word(&["disk", "any"]),
            default: "disk",
            summary: "what the place has to lie on: a disk, or anything, memory too",
        },
        OptionSpec {
            name: "job",
            kind: Kind::Text,
            default: "read",
            summary: "what will be done there, in fio's words: it writes unless they are read or randread",
        },
        OptionSpec {
            name: "destroy",
            kind: Kind::Word(&["off", "on"]),
            default: "off",
            summary: "whether the job may overwrite a block device, or a file that was there before",
        },
    ],
    takes_command: false,
    run,
};

fn run(options: &Options, _command: &[String]) -> Result<Value, KernelError> {
    let path = Path::new(options.word("path"));
    if path.as_os_str().is_empty() {
        return Err(UsageError("name the place: `--path FILE`".into()).into());
    }
    let bytes = options.number("bytes");
    let writes = !matches!(options.word("job"), "read" | "randread");
    let kind = std::fs::metadata(path).map(|there| there.file_type()).ok();
    if writes && options.word("destroy") == "off" && is_somebody_elses(path, kind, bytes)? {
        return Err(KernelError::Unable(format!(
            "the job `{}` would overwrite {}, which was there before: say that it may (`--param destroy=on`), or leave it a file of \
             its own",
            options.word("job"),
            path.display()
        )));
    }
    let statement = if kind.is_some_and(|kind| kind.is_block_device()) {
        device(path, bytes, writes)?
    } else {
        file_system(options, path, kind)?
    };
    Ok(json!({
        "tool": "room",
        "params": options.to_json(),
        "check": {"passed": true, "statement": statement},
    }))
}

/// Whether what is there is neither a directory nor a file that this tool wrote.
fn is_somebody_elses(path: &Path, kind: Option<FileType>, bytes: u64) -> Result<bool, KernelError> {
    match kind {
        None => Ok(false),
        Some(kind) if kind.is_dir() => Ok(false),
        Some(kind) if kind.is_file() => Ok(bytes == 0 && !block::is_ours(path)?),
        Some(_) => Ok(true),
    }
}

/// Whether a block device is long enough, and nobody's where it is written to.
fn device(path: &Path, bytes: u64, writes: bool) -> Result<String, KernelError> {
    let failed = || KernelError::system(format!("find the length of {}", path.display()));
    // Exclusive: that fails where the device, or a part of it, is mounted (open(2)).
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

/// Whether a place lies on a disk, unless it need not, and its file system has the room; then writes the file.
fn file_system(options: &Options, path: &Path, kind: Option<FileType>) -> Result<String, KernelError> {
    let bytes = options.number("bytes");
    let directory = match kind {
        Some(kind) if kind.is_dir() => path,
        _ => path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    };
    let shown = directory.display();
    let opened =
        File::open(directory).map_err(KernelError::system(format!("look at the file system of {shown}")))?;
    let anywhere = options.word("on") == "any";
    if let (Some(name), false) = (place::in_memory(&opened), anywhere) {
        return Err(KernelError::Unable(format!(
            "{shown} lies in memory ({name}), and a disk is to be measured: give the guest storage on one (`storage=volume` or \
             `storage=overlay`), or a machine a disk of its own (`disk=raw`, and `--param file=/dev/vda --param file-bytes=0` where \
             the workload has them)"
        )));
    }
    // A file that is there already has its room.
    let has = std::fs::metadata(path).map_or(0, |there| if there.is_file() { there.len() } else { 0 });
    let missing = bytes.saturating_sub(has);
    place::require_space(
        directory,
        missing.saturating_add(missing / OVERHEAD),
        "choose a smaller size (`--size quick`, or the workload's parameter that says how much), or give the guest storage with more \
         room",
    )?;
    // With 0 bytes, what is there is taken as it is.
    if options.word("write") == "file" && bytes > 0 {
        block::provide_file(path, bytes, !anywhere)?;
    }
    Ok(format!("{shown} has room for {}", rounded(bytes)))
}

/// For people: upwards to a whole MiB.
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
        // It is there already: nothing changes, and its room is not asked for twice.
        room(&line).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), written);
        let (_, passed) = room(&["--path", folder.path().to_str().unwrap(), "--on", "any"]).unwrap();
        assert!(passed);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let line = ["--path", path.to_str().unwrap(), "--bytes", "4096TiB", "--write", "file", "--on", "any"];
        let error = room(&line).unwrap_err();
        // The file system takes a 64th for itself.
        assert!(error.contains("4160TiB are needed") && error.contains("smaller size"), "{error}");
        assert!(!path.exists());
        let gone = folder.path().join("gone/file");
        let error = room(&["--path", gone.to_str().unwrap(), "--bytes", "1"]).unwrap_err();
        assert!(error.contains("look at the file system of"), "{error}");
        let error = room(&["--bytes", "1"]).unwrap_err();
        assert!(error.contains("--path FILE"), "{error}");
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
        assert!(error.contains("tmpfs") && error.contains("storage=volume"), "{error}");
        assert!(!path.exists());
        assert!(room(&[line.as_slice(), &["--on", "any"]].concat()).unwrap().1);
    }

    #[test]
    fn somebody_elses_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        let line = ["--path", path.to_str().unwrap(), "--bytes", "1MiB", "--write", "file", "--on", "any"];
        let error = room(&line).unwrap_err();
        assert!(error.contains("somebody else's file"), "{error}");
        // Nor is it given to a job that writes, unless the user says so.
        let as_it_is = ["--path", path.to_str().unwrap(), "--job", "randrw", "--on", "any"];
        let error = room(&as_it_is).unwrap_err();
        assert!(error.contains("destroy=on") && error.contains("`randrw`"), "{error}");
        for (job, destroy) in [("randrw", "on"), ("randread", "off"), ("read", "off")] {
            room(&[&as_it_is[..2], &["--job", job, "--destroy", destroy, "--on", "any"]].concat()).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        // What it wrote itself it gives.
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
