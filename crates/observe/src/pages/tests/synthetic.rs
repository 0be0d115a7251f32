//! Guests with known memory, and what the scan has to find in them.

use super::super::mapped::Mapped;
use super::super::{Options, PagesError, Subject, scan};
use super::guest::{Guest, may_scan, page, scan_held, scan_whole};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_model::pages::{DuplicateMatrix, KindPairs, Merging, PageScan, Shared, UnsettledPages};

fn row(anonymous_pages: u64, file_pages: u64, mixed_pages: u64) -> KindPairs {
    KindPairs { anonymous_pages, file_pages, mixed_pages }
}

fn write_pages(path: PathBuf, contents: &[u64]) -> PathBuf {
    fs::write(&path, contents.iter().flat_map(|content| page(*content)).collect::<Vec<u8>>()).unwrap();
    path
}

fn held(guests: &[&Guest]) -> Vec<std::ops::Range<u64>> {
    guests.iter().flat_map(|guest| guest.held.clone()).collect()
}

/// Two guests, a helper and a file of the host, page by page.
#[test]
fn every_page_is_in_its_cell() {
    let Some(_) = may_scan("every_page_is_in_its_cell") else { return };
    if !Path::new("/sys/kernel/mm/ksm").exists() {
        eprintln!(
            "SKIPPED every_page_is_in_its_cell: this kernel merges no pages, so that none are mergeable"
        );
        return;
    }
    let _unmerged = super::turn();
    let base = tempfile::tempdir().unwrap();
    let common = write_pages(base.path().join("common"), &[6, 7]);
    let own = write_pages(base.path().join("own"), &[5]);
    let host = write_pages(base.path().join("host"), &[2, 4, 5, 5]);
    let (common_file, own_file) = (format!("file:{}", common.display()), format!("file:{}", own.display()));
    let a = Guest::holding(&format!(
        "same:1:5 mergeable:2:3 unique:8:10 same:0:4 read:0:7 memory-file:9:2 {own_file} {common_file}"
    ));
    let b = Guest::holding(&format!("same:1:2 same:3:1 unique:9:10 {common_file}"));
    let helper = Guest::holding("same:3:1 mergeable:2:1");
    let subjects = [
        Subject::cached_files("host", vec![host]),
        Subject::guest("a", a.pids.clone()),
        Subject::helper("helper", "b", helper.pids.clone()),
        Subject::guest("b", b.pids.clone()),
    ];
    for threads in [1, 3] {
        let found = scan_held(&subjects, &held(&[&a, &b, &helper]), threads, || {}).unwrap();
        let matrix = DuplicateMatrix {
            // Content 1: four within a, one within b. 2: two within a. 9: the memory file.
            within_guest: row(7, 1, 0),
            // 2: a's and the helper's, and those against the host's file. 3: b's and the helper's.
            // 5: a's file and the host's.
            guest_host: row(2, 1, 1),
            // 1: a's and b's.
            guest_guest: row(1, 0, 0),
            // 5: twice in the host's file.
            host_host: row(0, 1, 0),
        };
        assert_eq!(found.matrix, matrix, "{found:#?}");
        let merging = Merging { ksm_pages: 3, ksm_if_advised_pages: 7, by_file_content_pages: 4 };
        assert_eq!(found.merging, merging);
        assert_eq!((found.zero.kernel_places, found.zero.anonymous, found.zero.file), (7, 4, 0));
        let common = Shared { frames: 2, places: 4, spared_between_subjects: 2 };
        assert_eq!(found.shared.file, common, "{found:#?}");
        assert_eq!(found.shared.forked, Shared::default());
        assert_eq!(found.frames.memory_file, 2);
        assert_eq!(found.unsettled, UnsettledPages::default());
        // a: 5 + 3 + 10 + 4 + 2 + 1 + 2; b: 2 + 1 + 10, because the common file is a's; helper: 2;
        // host: 4.
        let frames: Vec<_> =
            found.subjects.iter().map(|subject| (subject.name.as_str(), subject.frames)).collect();
        assert_eq!(frames, [("a", 27), ("b", 13), ("helper", 2), ("host", 4)]);
        assert_eq!(found.subject("b").unwrap().frames_with_others, 2);
        assert_eq!(found.subject("b").unwrap().places, 15);
        // The ten and ten that all differ, the two of the common file, and content 4 of the host.
        assert_eq!((found.frames.total, found.frames.unique), (46, 23));
        assert_eq!((found.unread.vanished, found.unread.refused, found.unread.ended_processes), (0, 0, 0));
        assert_eq!(found.cost.first_look_pages, 48);
    }
}

/// Pages that a guest writes during the scan are in no cell, and all others are.
#[test]
fn pages_that_change_are_counted_separately() {
    let Some(_) = may_scan("pages_that_change_are_counted_separately") else { return };
    let mut a = Guest::holding("same:1:20");
    let mut b = Guest::holding("same:1:20");
    let subjects = [Subject::guest("a", a.pids.clone()), Subject::guest("b", b.pids.clone())];
    let ranges = held(&[&a, &b]);
    let found = scan_held(&subjects, &ranges, 1, || {
        a.ask("rewrite 5");
        b.ask("forget 3");
    })
    .unwrap();
    assert_eq!(found.unsettled, UnsettledPages { rewritten: 5, moved: 3 });
    assert_eq!((found.matrix.within_guest, found.matrix.guest_guest), (row(14 + 16, 0, 0), row(1, 0, 0)));
    assert_eq!(found.frames.total, 32);
}

/// Scans a guest that writes all the time.
#[test]
fn a_guest_that_keeps_writing_is_scanned() {
    let Some(_) = may_scan("a_guest_that_keeps_writing_is_scanned") else { return };
    let mut writer = Guest::holding("same:1:64 same:2:10");
    writer.ask("keep-writing 64");
    let subjects = [Subject::guest("writer", writer.pids.clone())];
    let held = writer.held.clone();
    // The pages change between the looks.
    let found = scan_held(&subjects, &held, 1, || writer.ask("tell 0")).unwrap();
    // Pages that were read between two writes were equal at the first look, and all of them have
    // changed since.
    assert!(found.unsettled.rewritten >= 32 && found.unsettled.moved == 0, "{:?}", found.unsettled);
    assert_eq!(found.matrix.within_guest, row(9, 0, 0), "{found:?}");
}

#[test]
fn a_process_that_ends_meanwhile_does_no_harm() {
    let Some(_) = may_scan("a_process_that_ends_meanwhile_does_no_harm") else { return };
    let a = Guest::holding("same:1:4");
    let mut b = Guest::holding("same:1:6");
    let subjects = [Subject::guest("a", a.pids.clone()), Subject::guest("b", b.pids.clone())];
    let ranges = held(&[&a, &b]);
    let found = scan_held(&subjects, &ranges, 1, || b.end()).unwrap();
    assert_eq!((found.unread.ended_processes, found.unsettled.moved), (1, 6), "{found:?}");
    assert_eq!((found.matrix.total(), found.frames.total), (row(3, 0, 0), 4));
    let later = scan_whole(&subjects, 1).unwrap();
    assert_eq!((later.unread.ended_processes, later.subject("b").unwrap().places), (1, 0));
    assert!(later.matrix.within_guest.anonymous_pages >= 3);
}

/// Pages shared since a fork are one frame, and stay one after they were read.
#[test]
fn reading_takes_nothing_apart() {
    let Some(_) = may_scan("reading_takes_nothing_apart") else { return };
    let guest = Guest::holding("unique:1:40 huge:2:512 fork");
    let subjects = [Subject::guest("forked", guest.pids.clone())];
    for round in 0..2 {
        let found = scan_held(&subjects, &guest.held, 1, || {}).unwrap();
        let all = Shared { frames: 552, places: 1104, spared_between_subjects: 0 };
        assert_eq!(found.shared.forked, all, "round {round}");
        assert_eq!((found.matrix.total(), found.unsettled), (row(0, 0, 0), UnsettledPages::default()));
    }
}

/// A huge page counts as its small pages, and one of these may equal another small page.
#[test]
fn huge_pages_count_by_their_pieces() {
    let Some(_) = may_scan("huge_pages_count_by_their_pieces") else { return };
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.is_empty() || enabled.contains("[never]") || rustix::param::page_size() != 4096 {
        eprintln!("SKIPPED huge_pages_count_by_their_pieces: no transparent huge pages of 2 MiB here");
        return;
    }
    // The pages of `small` equal the first pieces of the huge pages.
    let huge = Guest::holding("huge:5:1024");
    let small = Guest::holding("unique:5:100");
    let subjects = [Subject::guest("huge", huge.pids.clone()), Subject::guest("small", small.pids.clone())];
    let found = scan_held(&subjects, &held(&[&huge, &small]), 1, || {}).unwrap();
    // A huge page may be missing if free memory is fragmented, which is no fault of the scan.
    assert!(found.frames.huge == 1024 || found.frames.huge == 512, "{:?}", found.frames);
    assert_eq!((found.frames.total, found.matrix.guest_guest), (1124, row(100, 0, 0)));
}

/// A tree of ten thousand files is read, and no mapping is left behind.
#[test]
fn a_tree_of_ten_thousand_files_is_read() {
    let Some(_) = may_scan("a_tree_of_ten_thousand_files_is_read") else { return };
    // In memory if possible: some file systems take seconds to create so many files.
    let base = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let pages: Vec<Vec<u8>> = (1..=100).map(page).collect();
    for number in 0..10_000 {
        let directory = base.path().join((number % 20).to_string());
        if number < 20 {
            fs::create_dir(&directory).unwrap();
        }
        fs::write(directory.join(number.to_string()), &pages[number % 100]).unwrap();
    }
    let mappings =
        || fs::read_to_string("/proc/self/maps").unwrap().matches(&*base.path().to_string_lossy()).count();
    let subjects = [Subject::cached_files("tree", vec![base.path().into()])];
    let found = scan_whole(&subjects, 2).unwrap();
    assert_eq!((found.frames.total, found.frames.file), (10_000, 10_000), "{:?}", found.unread);
    assert_eq!((found.matrix.host_host, found.matrix.of_guests()), (row(0, 9900, 0), row(0, 0, 0)));
    assert_eq!((found.shared.file, mappings()), (Shared::default(), 0));
    assert!(found.cost.table_bytes <= 40 * 8 * 16384 && found.cost.cpu_ns > 0, "{:?}", found.cost);
}

/// Pages that are not in the page cache are not read in.
#[test]
fn absent_pages_are_not_read_in() {
    let Some(_) = may_scan("absent_pages_are_not_read_in") else { return };
    // The test program is on a disk; files in /tmp may exist in memory only.
    let program = std::env::current_exe().unwrap();
    let base = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = base.path().join("file");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    // Written page by page, so that the kernel keeps the pages separate and can evict some.
    (1..=64).for_each(|content| file.write_all(&page(content)).unwrap());
    let page_bytes = rustix::param::page_size() as u64;
    rustix::fs::fsync(&file).unwrap();
    let behind = std::num::NonZeroU64::new(32 * page_bytes);
    rustix::fs::fadvise(&file, 32 * page_bytes, behind, rustix::fs::Advice::DontNeed).unwrap();
    let cached = |path: &Path| {
        let mut resident = Vec::new();
        let mapped = Mapped::file(&File::open(path).unwrap(), 0, 64 * page_bytes as usize).unwrap();
        mapped.resident(page_bytes, &mut resident).unwrap();
        resident.iter().filter(|byte| **byte & 1 == 1).count() as u64
    };
    let before = cached(&path);
    if before == 64 {
        eprintln!("SKIPPED absent_pages_are_not_read_in: the file system keeps all files in memory");
        return;
    }
    let subjects = [Subject::cached_files("file", vec![path.clone()])];
    let found = scan_whole(&subjects, 1).unwrap();
    assert_eq!((found.frames.total, found.frames.unique, cached(&path)), (before, before, before));
}

/// Whole processes are scanned, with all mappings that a process has.
#[test]
fn whole_processes_are_scanned() {
    let Some(_) = may_scan("whole_processes_are_scanned") else { return };
    let (a, b) = (Guest::holding("same:1:300"), Guest::holding("same:1:200"));
    let subjects = [Subject::guest("a", a.pids.clone()), Subject::guest("b", b.pids.clone())];
    let found = scan_whole(&subjects, 2).unwrap();
    let resident = |pid: u32| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    };
    for (name, pid) in [("a", a.pids[0]), ("b", b.pids[0])] {
        let (places, resident) = (found.subject(name).unwrap().places, resident(pid) / found.page_bytes);
        assert!(places.abs_diff(resident) <= resident / 50, "{places} of {resident} pages: {found:#?}");
    }
    assert!(found.matrix.within_guest.anonymous_pages >= 299 + 199);
    assert!(found.matrix.guest_guest.anonymous_pages >= 1);
    // Both run the same program.
    assert!(found.shared.file.spared_between_subjects > 100, "{:?}", found.shared);
    assert!(found.unread.special > 0 && found.unread.refused <= 8, "{:?}", found.unread);
}

#[test]
fn a_scan_stops_on_request() {
    let Some(_) = may_scan("a_scan_stops_on_request") else { return };
    let stop = AtomicBool::new(true);
    let subjects = [Subject::guest("self", vec![std::process::id()])];
    for threads in [1, 2] {
        let error = scan(&subjects, &Options { threads, stop: &stop }).unwrap_err();
        assert!(matches!(error, PagesError::Stopped), "{error}");
    }
    stop.store(false, Ordering::Relaxed);
    assert!(scan(&[], &Options::new(&stop)).is_ok_and(|found: PageScan| found.frames.total == 0));
}

/// Without the necessary rights there is no result; the error names the remedy.
#[test]
fn a_user_without_the_right_gets_a_remedy() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Some(_) = may_scan("a_user_without_the_right_gets_a_remedy") else { return };
    let guest = Guest::holding("same:1:4");
    let without = |dropped: CapabilitySet| {
        let subjects = [Subject::guest("guest", guest.pids.clone())];
        let scanning = move || {
            // Drops the capability of this thread alone.
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(dropped);
            set_capabilities(None, sets).unwrap();
            scan_whole(&subjects, 1).unwrap_err()
        };
        std::thread::spawn(scanning).join().unwrap()
    };
    let error = without(CapabilitySet::SYS_ADMIN);
    assert!(matches!(error, PagesError::Hidden) && error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    let error = without(CapabilitySet::SYS_PTRACE);
    let told = error.to_string();
    assert!(matches!(error, PagesError::Denied { .. }) && told.contains("CAP_SYS_PTRACE"), "{told}");
    assert!(told.contains(&guest.pids[0].to_string()), "{told}");
}
