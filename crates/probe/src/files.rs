//! Reading and writing files.

use crate::channel::{Channel, Closed};
use crate::command::Refusal;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Mode, OFlags, RawMode};
use rustix::io::Errno;
use weigh_protocol::Reply;

/// Bytes of a file in one frame.
const PIECE: usize = 64 << 10;
/// Longest kernel file that is read for facts, bytes.
const SMALL: usize = 64 << 10;
/// Longest kernel list that is read for facts, bytes: a host of containers has thousands of mounts.
pub const LARGE: usize = 4 << 20;

/// Writes a part of a file; the first part creates or empties it.
pub fn put(path: &str, mode: u32, first: bool, mut bytes: &[u8]) -> Result<(), Refusal> {
    if !path.starts_with('/') {
        return Err(Refusal::because(format!("{path} is not an absolute path"), Errno::INVAL));
    }
    let failed = |errno| Refusal::of(path, errno);
    if first {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        make_directories(parent).map_err(|(directory, errno)| Refusal::of(directory, errno))?;
    }
    let how = if first { OFlags::CREATE | OFlags::TRUNC } else { OFlags::APPEND };
    let mode = Mode::from_raw_mode(mode as RawMode & 0o7777);
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | how, mode).map_err(failed)?;
    if first {
        // The file may have existed with another mode, and the umask restricted it.
        rustix::fs::fchmod(&file, mode).map_err(failed)?;
    }
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}

/// Makes a directory and its missing parents; an error comes with the directory that failed.
pub fn make_directories(path: &str) -> Result<(), (&str, Errno)> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).filter(|end| *end > 0);
    for directory in ends.map(|end| &path[..end]) {
        match rustix::fs::mkdir(directory, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            // On a read-only file system EROFS takes precedence over EEXIST.
            Err(Errno::ROFS) if rustix::fs::stat(directory).is_ok() => {}
            Err(errno) => return Err((directory, errno)),
        }
    }
    Ok(())
}

/// The names in a directory, without `.` and `..`; empty if it cannot be read.
pub fn names(directory: &str) -> Vec<String> {
    let Ok(entries) = open(directory).and_then(Dir::new) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_string()));
    names.filter(|name| name != "." && name != "..").collect()
}

/// Sends a file in pieces, then the reply that it is done, or a refusal.
pub fn get(id: u32, path: &str, limit_bytes: u64, channel: &mut Channel) -> Result<(), Closed> {
    let reply = match send_pieces(id, path, limit_bytes, channel)? {
        Ok(()) => Reply::Done { id },
        Err(Refusal { reason, errno }) => Reply::Refused { id, reason, errno },
    };
    channel.send(&reply);
    Ok(())
}

fn send_pieces(
    id: u32,
    path: &str,
    limit: u64,
    channel: &mut Channel,
) -> Result<Result<(), Refusal>, Closed> {
    let file = match open(path) {
        Ok(file) => file,
        Err(errno) => return Ok(Err(Refusal::of(path, errno))),
    };
    let mut buffer = vec![0; PIECE];
    let mut sent = 0;
    loop {
        match rustix::io::read(&file, &mut buffer[..]) {
            Ok(0) => return Ok(Ok(())),
            Ok(n) => {
                sent += n as u64;
                if sent > limit {
                    let reason = format!("{path} is longer than {limit} bytes");
                    return Ok(Err(Refusal::because(reason, Errno::FBIG)));
                }
                channel.send(&Reply::File { id, bytes: buffer[..n].to_vec() });
                channel.make_room()?;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Ok(Err(Refusal::of(path, errno))),
        }
    }
}

/// Opens a file, non-blocking, so that a named pipe cannot block the probe.
pub fn open(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// The beginning of a kernel file, as text; `None` if it cannot be read.
pub fn read_small(path: &str) -> Option<String> {
    read_text(path, SMALL)
}

/// The beginning of a file, at most a few KiB more than the limit, as text; `None` if it cannot be
/// read.
pub fn read_text(path: &str, limit: usize) -> Option<String> {
    let file = open(path).ok()?;
    let mut content = Vec::new();
    let mut buffer = [0; 4 << 10];
    while content.len() < limit {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => break,
            Ok(n) => content.extend_from_slice(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&content).into_owned())
}
