//! A mount namespace for a program, in which some mounts of the host are hidden.

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The changes to make in the mount namespace of a program.
///
/// Later mounts and unmounts of the host propagate into the namespace, so that a long-lived program
/// keeps no mount of the host busy. The program's own do not propagate out.
#[derive(Debug, Clone, Default)]
pub(super) struct PrivateMounts {
    hidden: Vec<CString>,
    emptied: Vec<CString>,
    /// The directory to show, and where.
    replaced: Vec<(CString, CString)>,
    /// What to show read-only, and where.
    shown: Vec<(CString, CString)>,
}

impl PrivateMounts {
    /// Covers a mount with an empty directory of the program's own. What the program writes there
    /// is gone with it; without the mount, it would be written into the directory of the host
    /// below. A path with a zero byte cannot exist and is ignored, here and below.
    pub(super) fn hide(&mut self, mount: &Path) {
        self.hidden.extend(CString::new(mount.as_os_str().as_bytes()));
    }

    /// Covers a directory with an empty one.
    pub(super) fn empty(&mut self, directory: &Path) {
        self.emptied.extend(CString::new(directory.as_os_str().as_bytes()));
    }

    /// Covers a directory with another one.
    pub(super) fn replace(&mut self, directory: &Path, by: &Path) {
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
        if let (Ok(directory), Ok(by)) = (path(directory), path(by)) {
            self.replaced.push((by, directory));
        }
    }

    /// Shows a file or directory, with all that is mounted in it, at another place, read-only.
    pub(super) fn show(&mut self, source: &Path, target: &Path) {
        let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
        if let (Ok(source), Ok(target)) = (path(source), path(target)) {
            self.shown.push((source, target));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.emptied.is_empty() && self.replaced.is_empty() && self.shown.is_empty()
    }

    /// Creates and enters the namespace. Runs between fork and exec: it only makes system calls and
    /// allocates nothing.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: only the mount namespace is unshared, no descriptors and no memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        for hidden in &self.hidden {
            match mount(c"none", hidden.as_c_str(), c"tmpfs", MountFlags::empty(), None) {
                // There is nothing to hide.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for directory in &self.emptied {
            mount(c"none", directory.as_c_str(), c"tmpfs", MountFlags::RDONLY, None)?;
        }
        for (by, directory) in &self.replaced {
            mount_bind(by.as_c_str(), directory.as_c_str())?;
        }
        for (source, target) in &self.shown {
            mount_bind_recursive(source.as_c_str(), target.as_c_str())?;
            // Otherwise what the host mounts there later would not be read-only.
            mount_change(target.as_c_str(), MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            set_read_only(target)?;
        }
        Ok(())
    }
}

/// Makes a mount and all that is mounted in it read-only.
fn set_read_only(target: &CStr) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path and the attributes are valid for the call, and the size is that of the
    // attributes (mount_setattr(2)).
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use crate::command::Invocation;
    use std::path::Path;

    #[test]
    fn a_hidden_mount_is_hidden_from_the_program_alone() {
        if !crate::facts::is_root() {
            eprintln!(
                "SKIPPED a_hidden_mount_is_hidden_from_the_program_alone: only root can have mounts of its own"
            );
            return;
        }
        // Only mounts at these places: other tests mount elsewhere meanwhile
        // (`proc_pid_mountinfo(5)`, field 5).
        let mounts = || {
            let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            let is_here = |line: &&str| {
                let place = Path::new(line.split(' ').nth(4).unwrap());
                ["/proc", "/usr"].iter().any(|here| place.starts_with(here))
            };
            all.lines().filter(is_here).map(String::from).collect::<Vec<_>>()
        };
        let before = mounts();
        assert!(before.iter().any(|line| line.contains(" /proc ")), "{before:?}");
        let below = || {
            let look = ["--mount", "sh", "-c", "umount -l /proc && ls -A /proc"];
            Invocation::new("unshare").args(look).run_ok().unwrap().output
        };
        let found_below = below();
        let script = "test ! -e /proc/self && touch /proc/mine && echo hidden";
        let hide = |path: &str| Invocation::new("sh").args(["-c", script]).without_mount(Path::new(path));
        assert_eq!(hide("/proc").run_ok().unwrap().output, b"hidden\n");
        assert_eq!(mounts(), before, "the host's mounts are as they were");
        assert_eq!(below(), found_below, "nothing is written below the mount");
        let seen = Invocation::new("test").args(["-e", "/proc/self"]).without_mount(Path::new("/no/mount"));
        seen.run_ok().unwrap();
        let empty =
            Invocation::new("ls").args(["-A", "/etc", "/usr/share"]).with_empty(Path::new("/usr/share"));
        let listed = String::from_utf8(empty.run_ok().unwrap().output).unwrap();
        assert!(listed.contains("passwd") && listed.ends_with("/usr/share:\n"), "{listed}");
        let own = tempfile::tempdir().unwrap();
        std::fs::write(own.path().join("file"), "own").unwrap();
        let list = Invocation::new("ls").args(["-A", "/usr/share"]);
        let listed = list.with_own(Path::new("/usr/share"), own.path()).run_ok().unwrap();
        assert_eq!(listed.output, b"file\n");
        let script = "cat /usr/share/file && ! touch /usr/share/other 2>/dev/null";
        let shown =
            Invocation::new("sh").args(["-c", script]).with_read_only(own.path(), Path::new("/usr/share"));
        assert_eq!(shown.run_ok().unwrap().output, b"own");
        assert_eq!(mounts(), before, "the host's mounts are as they were");
    }
}
