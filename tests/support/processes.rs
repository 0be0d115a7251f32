//! What the tests of one run share although each is its own process: turns on the host, the place
//! of their files, and answers that do not change while tests run.

use serde_json::Value;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// A turn for a test that must have the host to itself: it compares what is on the host under names
/// that do not contain its run's, measures, or mounts a file system, which would become part of the
/// root of other tests' guests. Waits until no other test that has a turn runs on this machine, in
/// any checkout. Dropping the file ends the turn.
pub fn exclusive_turn() -> File {
    let file = turn();
    file.lock().unwrap();
    file
}

/// A turn for a test with guests that other guests do not disturb: it looks for what its own run
/// leaves, and for nothing else. Waits until no test has an exclusive turn. Tests with shared turns
/// run side by side.
pub fn shared_turn() -> File {
    let file = turn();
    file.lock_shared().unwrap();
    file
}

fn turn() -> File {
    let path = std::env::temp_dir().join("weigh-test-turn");
    // The first process made the file, perhaps as another user.
    let file = File::open(&path).or_else(|_| {
        File::options().create(true).append(true).open(&path)?;
        File::open(&path)
    });
    file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where tests that need a disk make their directories.
pub const DISK: &str = "/var/tmp";

/// Where other tests make their directories: in memory, if the host lets programs run from there
/// and has 2 GiB of it to spare. Every run with the host's root copies more than a thousand links
/// and files of `/etc`; on some disks, tests would spend most of their time on making and removing
/// them. (An ext4 file system without a journal does not reuse an inode for a minute, and looks at
/// every one that was freed meanwhile.)
pub fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let fits = rustix::fs::statvfs(memory).is_ok_and(|system| {
        let runs = !system.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC);
        runs && system.f_bavail * system.f_frsize >= 2 << 30
    });
    if fits { memory.into() } else { DISK.into() }
}

/// The nextest run that this test belongs to.
pub fn run() -> Option<String> {
    std::env::var("NEXTEST_RUN_ID").ok()
}

/// An answer that all tests of one nextest run need: the first asks, the others wait for its answer
/// and read it in `directory`. Without nextest, and where a test that gave up root may not write,
/// every process asks.
pub fn once_per_run(directory: &str, name: &str, ask: impl FnOnce() -> Value) -> Value {
    let Some(run) = run() else { return ask() };
    let path = Path::new(directory).join(format!("{name}.once.json"));
    let file = match File::options().create(true).truncate(false).read(true).write(true).open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return ask(),
        opened => opened.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    };
    file.lock().unwrap();
    let mut known: Value = serde_json::from_reader(&file).unwrap_or_default();
    if known["run"] == run.as_str() {
        return known["answer"].take();
    }
    let answer = ask();
    file.set_len(0).unwrap();
    (&file).rewind().unwrap();
    (&file).write_all(serde_json::json!({"run": run, "answer": answer}).to_string().as_bytes()).unwrap();
    answer
}
