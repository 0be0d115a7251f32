//! Duplicate pages of settled guests (`docs/design/0034-duplicate-memory-pages.md`): what is
//! scanned.
//!
//! Every guest is a subject by its processes, and every helper is a subject of its own. The rest of
//! the host's part is files in its page cache: the root file system that all guests share, copies
//! of it that they see as their own, and whatever their processes have open or mapped. This finds
//! the disks, kernels and layers of every platform without knowledge of any platform.

use super::StartOutcome;
use crate::trial::Failure;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use weigh_host::accounts::Accounts;
use weigh_images::Root;
use weigh_model::FailureKind;
use weigh_model::duplicates::DUPLICATES;
use weigh_observe::memory::guest_processes;
use weigh_observe::pages::{FileFacts, Options, PagesError, Subject};

/// Scans the pages of all guests. If that fails, the duplicates are absent with the reason.
///
/// # Errors
/// Only when the user interrupts.
pub(super) fn scan(
    root: &Root,
    guests: &[Accounts],
    outcome: &mut StartOutcome,
    interrupt: &AtomicBool,
) -> Result<(), Failure> {
    match weigh_observe::pages::scan(&subjects(root, guests), &Options::new(interrupt)) {
        Ok(found) => outcome.observed.pages = Some(Box::new(found)),
        Err(error @ PagesError::Stopped) => return Err(Failure::new(FailureKind::Check, error.to_string())),
        Err(error) => outcome.mark_absent(DUPLICATES, &error.to_string()),
    }
    Ok(())
}

/// The subjects: guests by their numbers, their helpers, and the files.
fn subjects(root: &Root, guests: &[Accounts]) -> Vec<Subject> {
    let own: Vec<BTreeSet<u32>> = guests.iter().map(guest_processes).collect();
    let mut subjects = Vec::new();
    let mut files = root_files(root);
    for (number, (guest, pids)) in guests.iter().zip(&own).enumerate() {
        let name = format!("guest-{number}");
        subjects.push(Subject::guest(name.clone(), pids.iter().copied().collect()));
        files.extend(own_root(root, pids));
        files.extend(pids.iter().flat_map(|pid| files_of(*pid)));
        for helper in guest.helpers.iter().filter(|helper| !pids.contains(&helper.pid)) {
            subjects.push(Subject::helper(helper.name.clone(), name.clone(), vec![helper.pid]));
            files.extend(files_of(helper.pid));
        }
    }
    subjects.push(Subject::cached_files("cached files", files));
    subjects
}

/// The files of the root file system. The host's own would be too many; of these, only those that
/// the guests have open or mapped are scanned.
fn root_files(root: &Root) -> Vec<PathBuf> {
    let parts = root.binds.iter().map(|bind| &bind.source).chain(&root.tree).chain([&root.skeleton]);
    parts.filter(|path| !root.host && path.exists()).cloned().collect()
}

/// The root that a guest's processes see, if it differs from the host's; it may be a copy.
fn own_root(root: &Root, pids: &BTreeSet<u32>) -> Option<PathBuf> {
    let pid = *pids.last()?;
    let identity = |path: &Path| FileFacts::of(path).ok().map(|found| found.identity);
    let theirs = Path::new("/proc").join(pid.to_string()).join("root");
    let found = identity(&theirs)?;
    (Some(found) != identity(Path::new("/")) && !root.host).then_some(theirs)
}

/// The files that a process has open or mapped, by links of `/proc` that lead to them whatever its
/// root is. Files without a name are memory, which belongs to the process that maps it.
fn files_of(pid: u32) -> Vec<PathBuf> {
    let directories = ["fd", "map_files"].map(|name| Path::new("/proc").join(pid.to_string()).join(name));
    let links = directories.iter().flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten());
    let mut seen = BTreeSet::new();
    let mut is_new = |found: FileFacts| {
        found.is_file() && found.links > 0 && found.bytes > 0 && seen.insert(found.identity)
    };
    let paths = links.flatten().map(|entry| entry.path());
    paths.filter(|path| FileFacts::of(path).is_ok_and(&mut is_new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_host::accounts::Process;
    use weigh_observe::pages::Memory;

    #[test]
    fn files_that_a_process_has_open_are_found_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [1; 5000]).unwrap();
        let _held = std::fs::File::open(&path).unwrap();
        let files = files_of(std::process::id());
        let found: Vec<PathBuf> = files.iter().flat_map(std::fs::canonicalize).collect();
        assert!(found.contains(&path.canonicalize().unwrap()), "{found:?}");
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "each once: {found:?}");
        assert!(files_of(u32::MAX).is_empty());
    }

    #[test]
    fn guests_helpers_and_files_are_subjects() {
        let own = std::process::id();
        let root = Root { skeleton: PathBuf::from("/nowhere"), ..Root::default() };
        let helper = |pid| Process { name: "shim".into(), pid };
        let guest =
            Accounts { processes: vec![own], helpers: vec![helper(own), helper(1)], ..Accounts::default() };
        let subjects = subjects(&root, &[guest.clone(), guest]);
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!(names, ["guest-0", "shim", "guest-1", "shim", "cached files"]);
        assert_eq!(subjects[1].memory, Memory::Helper { guest: "guest-0".into(), pids: vec![1] });
        let Memory::CachedFiles(files) = &subjects[4].memory else { panic!("{subjects:?}") };
        assert!(!files.contains(&root.skeleton), "what is not there is not looked for");
    }
}
