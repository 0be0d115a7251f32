//! Removing trees where openat2(2) is missing, as in QEMU's user-mode emulation.

use super::remove_tree;
use super::tests::as_root;
use crate::ledger::UndoError;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Runs `work` in a thread in which openat2(2) fails with ENOSYS.
fn without_openat2<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = u32::try_from(libc::SYS_openat2).unwrap();
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let mut install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: both calls concern this thread alone; the program outlives the second.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
        }
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            install();
            work()
        });
        thread.join().unwrap()
    })
}

fn removed(path: &Path) -> Result<(), UndoError> {
    without_openat2(|| remove_tree(path))
}

#[test]
fn a_tree_is_removed_and_no_link_is_followed() {
    let base = tempfile::tempdir().unwrap();
    let outside = base.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "").unwrap();
    let ours = base.path().join("ours");
    fs::create_dir_all(ours.join("a/b")).unwrap();
    fs::write(ours.join("a/b/file"), "").unwrap();
    symlink(&outside, ours.join("a/link")).unwrap();
    removed(&ours).unwrap();
    assert!(!ours.exists());
    removed(&ours).unwrap();
    symlink(&outside, &ours).unwrap();
    let error = removed(&ours).unwrap_err();
    assert!(matches!(error, UndoError::NotADirectory(_)), "{error}");
    assert!(outside.join("precious").exists());
}

#[test]
fn a_mount_of_the_same_file_system_is_not_entered() {
    let Some(()) = as_root("a_mount_of_the_same_file_system_is_not_entered") else { return };
    let base = tempfile::tempdir().unwrap();
    let outside = base.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "").unwrap();
    let target = base.path().join("ours/target");
    fs::create_dir_all(&target).unwrap();
    rustix::mount::mount_bind(&outside, &target).unwrap();
    let error = removed(&base.path().join("ours"));
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    let error = error.unwrap_err();
    assert!(matches!(error, UndoError::MountedOn(_)), "{error}");
    assert!(outside.join("precious").exists());
}
