//! What is written, what is read back, and what is never written.

use super::*;

fn job_on(disk: &Disk, depth: usize) -> Job<'_> {
    Job::new(disk, (4096, depth), (Mix::Write, false), Window::new(0, End::Operations(1)), 9).unwrap()
}

fn writable(path: &Path) -> Disk {
    content::provide(path, 256 << 10, CACHED).unwrap();
    disk::open(path, Access { writes: true, ..CACHED }).unwrap()
}

#[test]
fn wrong_bytes_and_lost_writes_are_found_by_reading_back() {
    let folder = folder();
    let disk = writable(&folder.path().join("disk"));
    let job = job_on(&disk, 1);
    let mut tally = Tally::new();
    let mut random = job.random(0);
    let mut body = vec![0; 4096];
    content::fill_body(&mut body, job.seed, 0);
    for _ in 0..20 {
        let request = job.next(&mut random, 0);
        content::stamp(&mut body, request.place, request.tag);
        std::os::unix::fs::FileExt::write_all_at(&disk.file, &body, request.place).unwrap();
        job.complete(&mut tally, request, 0, 4096, (1, 2));
    }
    let sample = job.sample.lock().unwrap();
    let good = sample.read_back(&job).unwrap();
    assert!(good.wrong == 0 && good.places > 5, "{good:?}");
    // Change one byte between the stamps of a place that was written last.
    let request = {
        drop(sample);
        let request = job.next(&mut random, 0);
        content::stamp(&mut body, request.place, request.tag);
        body[2000] ^= 1;
        std::os::unix::fs::FileExt::write_all_at(&disk.file, &body, request.place).unwrap();
        job.complete(&mut tally, request, 0, 4096, (1, 2));
        request
    };
    let sample = job.sample.lock().unwrap();
    assert_eq!(sample.read_back(&job).unwrap().wrong, 1);
    // The right bytes of an earlier write imitate a lost write.
    body[2000] ^= 1;
    content::stamp(&mut body, request.place, request.tag.wrapping_sub(1));
    std::os::unix::fs::FileExt::write_all_at(&disk.file, &body, request.place).unwrap();
    assert_eq!(sample.read_back(&job).unwrap().wrong, 1);
}

#[test]
fn two_requests_in_flight_never_meet() {
    let folder = folder();
    let disk = writable(&folder.path().join("disk"));
    let job = job_on(&disk, 32);
    let mut random = job.random(0);
    let mut tally = Tally::new();
    for _ in 0..100 {
        let requests: Vec<_> = (0..32).map(|slot| job.next(&mut random, slot)).collect();
        let mut places: Vec<u64> = requests.iter().map(|request| request.place).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 32, "of 64 places");
        for (slot, request) in requests.into_iter().enumerate() {
            job.complete(&mut tally, request, slot, 4096, (1, 2));
        }
    }
}

#[test]
fn a_sample_is_bounded_and_spread() {
    let mut sample = sample::Sample::new(1 << 20, 4);
    for write in 0..1000u64 {
        sample.note(write << 20, write, 0);
    }
    let late = sample.tags().filter(|tag| *tag >= 500).count();
    assert_eq!(sample.tags().count(), 16, "sixteen of a megabyte each");
    assert!((1..16).contains(&late), "{late} of the later half");
}

#[test]
fn foreign_files_and_block_devices_are_not_written() {
    let folder = folder();
    let path = folder.path().join("data");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    for mix in ["write", "mixed"] {
        let error = read(&path, &format!("--direct off --mix {mix} --operations 10")).unwrap_err();
        assert!(error.to_string().contains("somebody else's file"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 << 10]);
    let devices = std::fs::read_dir("/dev").unwrap().flatten();
    let is_disk = |entry: &std::fs::DirEntry| {
        std::os::unix::fs::FileTypeExt::is_block_device(&entry.file_type().unwrap())
    };
    let Some(device) = devices.filter(is_disk).map(|entry| entry.path()).next() else {
        eprintln!("SKIPPED foreign_files_and_block_devices_are_not_written: there is no block device");
        return;
    };
    let error = read(&device, "--mix write --operations 1").unwrap_err();
    assert!(error.to_string().contains("allow that with `--destroy on`"), "{error}");
}

#[test]
fn a_file_is_prepared_and_removed_without_measuring() {
    let (_folder, path) = nothing();
    let task = |path: &Path, task: &str, bytes: &str| {
        read(path, &format!("--file-bytes {bytes} --direct off --task {task}")).unwrap()
    };
    let outcome = task(&path, "prepare", "1MiB");
    assert!(outcome.check.passed && outcome.metrics.is_empty() && outcome.operations == 0);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
    task(&path, "remove", "0");
    assert!(path.exists(), "what had to be there stays there");
    task(&path, "remove", "1MiB");
    assert!(!path.exists());
    let other = path.with_file_name("data");
    std::fs::write(&other, b"somebody else's").unwrap();
    assert!(task(&other, "remove", "1MiB").check.statement.contains("stays as it is"));
    assert!(other.exists());
}

#[test]
fn memory_is_no_disk() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED memory_is_no_disk: there is no /dev/shm");
        return;
    };
    let path = folder.path().join("disk");
    let message = read(&path, "--file-bytes 64KiB").unwrap_err().to_string();
    assert!(message.contains("O_DIRECT") && message.contains("name a file on a disk"), "{message}");
    assert!(read(&path, "--direct off --file-bytes 64KiB --operations 100").unwrap().check.passed);
}

#[test]
fn a_file_that_does_not_fit_is_reported_before_it_is_written() {
    let (_folder, path) = nothing();
    let message = read(&path, "--file-bytes 1000TiB").unwrap_err().to_string();
    assert!(message.contains("1000TiB are needed") && message.contains("--file-bytes"), "{message}");
    assert!(!path.exists());
}
