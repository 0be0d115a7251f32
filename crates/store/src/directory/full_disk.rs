//! Tests on a real file system that has no room.

use super::*;
use crate::fixtures::{host, measured, plan, void};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use std::fs;

/// Runs `test` with a tmpfs of `bytes` at `place`, in a mount namespace of its own thread. The
/// mount ends with the thread, whatever the outcome of the test. Returns `None` without the right
/// to mount.
fn on_a_small_disk(bytes: u64, place: &Path, test: impl FnOnce() + Send) -> Option<()> {
    let mounted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread leaves the shared mount namespace and working directory; the
            // file descriptor table stays shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private)?;
            let size = std::ffi::CString::new(format!("size={bytes}")).unwrap();
            mount("tmpfs", place, "tmpfs", MountFlags::empty(), Some(size.as_c_str()))?;
            test();
            Ok::<_, rustix::io::Errno>(())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    mounted.ok()
}

#[test]
fn a_full_disk_loses_nothing_and_goes_on_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let done = on_a_small_disk(256 << 10, place.path(), || {
        let ballast = place.path().join("ballast");
        fs::write(&ballast, vec![1; 64 << 10]).unwrap();
        let mut run =
            RunDirectory::create(place.path(), &plan("full"), &host(), "2026-11-21T05:00:00Z").unwrap();
        let mut stored = Vec::new();
        let error = loop {
            let record = measured(stored.len() as u64, 1.5);
            match run.append(&record) {
                Ok(_) => stored.push(record),
                Err(error) => break error,
            }
            assert!(stored.len() < 2000, "the disk never filled");
        };
        assert!(error.is_full(), "{error}");
        assert!(error.to_string().contains("weigh resume"), "{error}");
        let file = fs::read(run.path().join(SAMPLES)).unwrap();
        assert_eq!(file.last(), Some(&b'\n'), "the part of a line that fitted is taken back");
        assert_eq!(run.records().unwrap().records, stored);

        // A new run does not fit either, and says so.
        let another = RunDirectory::create(place.path(), &plan("more"), &host(), "2026-11-21T05:00:01Z");
        assert!(another.unwrap_err().is_full());
        let at = place.path().join("new/at");
        assert!(RunDirectory::create_at(&at, &plan("more"), &host()).unwrap_err().is_full());
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let expected = [run.path(), &ballast, &place.path().join("new")];
        assert!(left.iter().all(|path| expected.contains(&path.as_path())), "half a run is left: {left:?}");
        assert!(!at.exists());

        fs::remove_file(&ballast).unwrap();
        let record = measured(stored.len() as u64, 1.5);
        run.append(&record).unwrap();
        stored.push(record);
        let path = run.path().to_path_buf();
        drop(run);
        let read = RunDirectory::open_for_append(&path).unwrap().records().unwrap();
        assert_eq!(read.records, stored);
        assert_eq!(read.recovered, None);
    });
    skipped_without_root(done, "a_full_disk_loses_nothing_and_goes_on_when_there_is_room");
}

#[test]
fn a_result_that_does_not_fit_on_disk_is_returned_uncached() {
    let place = tempfile::tempdir().unwrap();
    let done = on_a_small_disk(2 << 20, place.path(), || {
        let mut run =
            RunDirectory::create(place.path(), &plan("full"), &host(), "2026-11-21T05:00:00Z").unwrap();
        let Record::Void(mut unit) = void(0) else { unreachable!() };
        unit.detail = Some("x".repeat(3 << 19));
        run.append(&Record::Void(unit)).unwrap();
        // The samples are long enough for a cache, but the value is longer than the room on disk.
        let long = "x".repeat(1 << 20);
        assert_eq!(run.derived("00ff", |_| long.clone()).unwrap().value, long);
        let names: Vec<_> =
            fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("collected")), "{names:?}");
        // A value for which there is room is cached.
        run.derived("00ff", |_| 1).unwrap();
        assert_eq!(run.derived("00ff", |_| 2).unwrap().value, 1);
    });
    skipped_without_root(done, "a_result_that_does_not_fit_on_disk_is_returned_uncached");
}

fn skipped_without_root(done: Option<()>, test: &str) {
    if done.is_none() {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "root"), "mounting a tmpfs is not permitted here");
        eprintln!("SKIPPED {test}: it mounts a tmpfs, which needs root");
    }
}
