//! A file system that never answers: a process that looks at a file in it waits until it is killed,
//! and meanwhile no freezer stops that process.

use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// From `linux/fuse.h`: `FUSE_INIT`, the version of the interface, the lengths of its messages.
const INIT: u32 = 26;
const VERSION: [u32; 2] = [7, 31];
const HEADER: usize = 16;
const ANSWER: usize = 64;

/// The mounted file system. Dropping this ends it.
pub struct StuckFiles {
    directory: PathBuf,
    _server: File,
}

impl StuckFiles {
    /// Mounts it on an empty directory; `None` if this user or this kernel cannot.
    pub fn mount(directory: &Path) -> Option<Self> {
        let mut server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", server.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).ok()?;
        rustix::mount::mount("weigh-test", directory, "fuse", MountFlags::empty(), options).ok()?;
        // The kernel's first request is answered, and no other one is ever read: a process whose
        // request was read could not even be killed.
        let mut question = vec![0; 1 << 16];
        let length = server.read(&mut question).unwrap();
        let word = |at: usize| u32::from_ne_bytes(question[at..at + 4].try_into().unwrap());
        assert_eq!(word(4), INIT, "{length} bytes");
        let mut answer = vec![0; HEADER + ANSWER];
        answer[..4].copy_from_slice(&((HEADER + ANSWER) as u32).to_ne_bytes());
        answer[8..16].copy_from_slice(&question[8..16]);
        answer[16..20].copy_from_slice(&VERSION[0].to_ne_bytes());
        answer[20..24].copy_from_slice(&VERSION[1].to_ne_bytes());
        server.write_all(&answer).unwrap();
        Some(Self { directory: directory.into(), _server: server })
    }
}

impl Drop for StuckFiles {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
    }
}
