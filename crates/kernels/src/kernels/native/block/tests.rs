mod engines;
mod writes;

use super::*;
use std::path::Path;

const CACHED: Access = Access { direct: false, writes: false, destroy: false };

/// A directory on a disk: /tmp may be in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// A path without a file, in its own directory.
fn nothing() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("disk");
    (folder, path)
}

/// The kernel's file with that length.
fn disk(bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = nothing();
    content::provide(&path, bytes, CACHED).unwrap();
    (folder, path)
}

fn options(path: &Path, line: &str) -> Options {
    let line = format!("--warmup 3 --path {} {line}", path.display());
    KERNEL.options_of(&line)
}

fn read(path: &Path, line: &str) -> Result<Outcome, KernelError> {
    run(&options(path, line))
}

#[test]
fn direct_reads_give_every_metric_and_the_right_sectors() {
    let (_folder, path) = nothing();
    let outcome = match read(&path, "--file-bytes 1MiB --operations 4000") {
        Err(KernelError::Unable(reason)) if reason.contains("O_DIRECT") => {
            eprintln!("SKIPPED direct_reads_give_every_metric_and_the_right_sectors: {reason}");
            return;
        }
        outcome => outcome.unwrap(),
    };
    assert!(outcome.check.passed, "{:?}", outcome.check);
    assert!(outcome.check.statement.starts_with("4003 of 4003 reads gave 4096 bytes of the right sectors"));
    KERNEL.assert_complete(&outcome);
    assert_eq!(outcome.operations, 4003);
    assert_eq!(outcome.random_read_bytes, Some(4003 * 4096));
    assert_eq!(outcome.histograms[0].1.len(), 4000);
}

#[test]
fn a_read_of_the_wrong_place_fails_the_check() {
    let (_folder, path) = disk(64 << 10);
    let written = std::fs::read(&path).unwrap();
    // The second half of the file holds what belongs in the first.
    let mut wrong = written[..32 << 10].to_vec();
    wrong.extend_from_slice(&written[..32 << 10]);
    std::fs::write(&path, wrong).unwrap();
    let outcome = read(&path, "--direct off --operations 200").unwrap();
    assert!(
        !outcome.check.passed && !outcome.check.statement.contains(" 0 gave other sectors"),
        "{:?}",
        outcome.check
    );
}

#[test]
fn short_reads_fail_the_check() {
    let (_folder, path) = disk(64 << 10);
    let settings = Settings::of(&options(&path, "--operations 200")).unwrap();
    let mut disk = disk::open(&path, CACHED).unwrap();
    // Imitates a truncated disk image, which is shorter than it claims.
    disk.bytes *= 2;
    let outcome = measure(&settings, &disk, (Engine::Pread, None)).unwrap();
    let check = outcome.check;
    assert!(!check.passed && !check.statement.contains("; 0 gave fewer"), "{check:?}");
}

#[test]
fn a_foreign_file_is_read_and_never_written() {
    let folder = folder();
    let path = folder.path().join("data");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let error = read(&path, "--file-bytes 1MiB").unwrap_err();
    assert!(error.to_string().contains("somebody else's file"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 << 10]);
    let outcome = read(&path, "--direct off --operations 10").unwrap();
    assert!(outcome.check.passed, "{:?}", outcome.check);
}

#[test]
fn the_file_is_written_once() {
    let (_folder, path) = disk(64 << 10);
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    content::provide(&path, 32 << 10, CACHED).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written);
    content::provide(&path, 128 << 10, CACHED).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 128 << 10);
}

#[test]
fn another_seed_reads_other_places() {
    let (_folder, path) = disk(64 << 10);
    let seed = |line: &str| {
        read(&path, &format!("--direct off --operations 5 {line}")).unwrap().facts["seed"].clone()
    };
    assert_eq!(seed("--seed 3"), 3);
    assert_ne!(seed(""), seed(""));
}

#[test]
fn unreadable_files_are_refused_in_words() {
    let folder = folder();
    let message = |path: &Path, line: &str| read(path, line).unwrap_err().to_string();
    let missing = folder.path().join("nothing");
    assert!(message(&missing, "").contains("--file-bytes 1GiB"));
    assert!(message(&missing, "--bytes 1000").contains("multiple of the sector"));
    assert!(message(folder.path(), "--direct off").contains("neither a file nor a block device"));
    assert!(message(folder.path(), "--file-bytes 1MiB").contains("is not a file"));
    let small = folder.path().join("small");
    content::provide(&small, 4096, CACHED).unwrap();
    assert!(message(&small, "--direct off").contains("too little"));
    // procfs does not support direct access.
    assert!(message(Path::new("/proc/self/maps"), "").contains("O_DIRECT"));
}
