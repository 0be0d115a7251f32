//! The mounts of a root as container runtimes and engines take them.
//!
//! A recursive read-only bind leaves the mounts below it writable, unless runtime and kernel are
//! new enough to prevent that. So binds are made one by one: the image's entries, and below them
//! the file systems that are mounted there and that belong to the system. A bind that is not
//! recursive cannot show the mounts of other containers either, nor keep them from being unmounted,
//! nor contain itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use weigh_images::{Bind, Mount, Root};

/// File systems that hold no files of the system: views of the kernel, layers of containers,
/// compressed packages, mounts that only their user may look into.
const NOT_SHOWN: [&str; 25] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "devtmpfs",
    "mqueue",
    "hugetlbfs",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "efivarfs",
    "bpf",
    "configfs",
    "fusectl",
    "binfmt_misc",
    "rpc_pipefs",
    "autofs",
    "nsfs",
    "ramfs",
    "overlay",
    "aufs",
    "squashfs",
    "fuse",
];
/// Where engines keep their own mounts.
const ENGINES: [&str; 5] =
    ["/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/lxc", "/var/snap"];

/// Prefix of the directories, beside a run's work directory, in which an engine keeps what is the
/// run's alone. What any run's engine mounts there is no part of the host's root either.
pub(crate) const OWN_STORE: &str = "weighbridge-engine";

/// One mount of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuestMount {
    /// A file or directory without the mounts below it.
    Bind(Bind),
    /// A private tmpfs.
    Scratch(PathBuf),
}

impl GuestMount {
    /// Absolute path in the guest.
    pub(crate) fn target(&self) -> &Path {
        match self {
            Self::Bind(bind) => &bind.target,
            Self::Scratch(target) => target,
        }
    }
}

/// Permissions of a scratch mount.
pub(crate) fn scratch_mode(target: &Path) -> &'static str {
    if target.ends_with("tmp") { "1777" } else { "755" }
}

/// Returns all mounts of a root in the order in which to make them.
///
/// # Errors
/// The host's mount table cannot be read.
pub(crate) fn of_root(root: &Root) -> io::Result<Vec<GuestMount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(flatten(root, &mount_points(&table)))
}

/// Returns the mounts of a root as the image has them, for recursive binds.
pub(crate) fn whole(root: &Root) -> Vec<GuestMount> {
    let mounts = root.mounts().into_iter().map(|mount| match mount {
        Mount::Bind(bind) => GuestMount::Bind(bind.clone()),
        Mount::Scratch(target) => GuestMount::Scratch(target.into()),
    });
    mounts.collect()
}

fn flatten(root: &Root, mounted: &BTreeSet<PathBuf>) -> Vec<GuestMount> {
    let mut mounts = whole(root);
    let of_root: BTreeSet<PathBuf> = mounts.iter().map(|mount| mount.target().into()).collect();
    for bind in &root.binds {
        for point in mounted.iter().filter(|point| **point != bind.source) {
            let Ok(below) = point.strip_prefix(&bind.source) else { continue };
            let target = bind.target.join(below);
            // A mount that is hidden by one of the root, at its place or above it, must stay
            // hidden; one that cannot be accessed is not seen on the host either.
            let shown_by = target.ancestors().find(|above| of_root.contains(*above));
            if shown_by == Some(&bind.target)
                && point.symlink_metadata().is_ok_and(|found| found.is_dir() || found.is_file())
            {
                let read_only = bind.read_only;
                mounts.push(GuestMount::Bind(Bind { source: point.clone(), target, read_only }));
            }
        }
    }
    mounts.sort_by_key(|mount| mount.target().components().count());
    mounts
}

/// Returns the mount points of the file systems that a guest should see (`proc_pid_mountinfo(5)`).
fn mount_points(table: &[u8]) -> BTreeSet<PathBuf> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(4)?)));
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            let kind = kind.split(|byte| *byte == b'.').next()?;
            let shown = !NOT_SHOWN.iter().any(|name| name.as_bytes() == kind)
                && !ENGINES.iter().any(|directory| point.starts_with(directory))
                && !point.iter().any(|part| part.as_encoded_bytes().starts_with(OWN_STORE.as_bytes()))
                && point.to_str().is_some();
            shown.then_some(point)
        })
        .collect()
}

/// Returns every mount point of a mount table (`proc_pid_mountinfo(5)`), in its order.
pub(crate) fn all_mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(OsString::from_vec(unescape(point))))
    })
}

/// Decodes a field: blanks and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8) + (digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_is_read() {
        let table = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:20 / /proc rw shared:1 - proc proc rw\n\
            24 22 254:1 / /home/some\\040user\\134x rw,nosuid shared:2 master:1 - xfs /dev/vdb rw\n\
            25 22 0:40 / /var/lib/docker/overlay2/abc/merged rw - overlay overlay rw\n\
            26 22 0:41 / /root/mnt rw - fuse.sshfs host: rw\n\
            27 22 254:0 /d /var/lib/docker rw - ext4 /dev/vda rw\n\
            29 22 0:43 / /var/tmp/run/weighbridge-engine/shm rw - tmpfs shm rw\n\
            28 22 0:42 / /boot/efi rw - vfat /dev/sda1 rw\n\
            broken line\n";
        let points: Vec<_> = mount_points(table).into_iter().collect();
        assert_eq!(points, [Path::new("/"), Path::new("/boot/efi"), Path::new("/home/some user\\x")]);
    }

    #[test]
    fn mounts_below_a_bind_are_added_once() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        for directory in ["disk", "disk/inner", "tmp/below"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        let bind = |source: &Path, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            read_only: true,
        };
        let root = Root {
            skeleton: base.path().join("skeleton"),
            binds: vec![bind(&home, "/home"), bind(&home.join("disk/inner"), "/home/disk/inner")],
            scratch: vec!["/home/tmp".into()],
            ..Root::default()
        };
        let mounted =
            ["", "disk/inner", "disk", "gone", "tmp", "tmp/below"].map(|name| home.join(name)).into();
        assert_eq!(
            flatten(&root, &mounted),
            [
                GuestMount::Bind(bind(&home, "/home")),
                GuestMount::Scratch("/home/tmp".into()),
                GuestMount::Bind(bind(&home.join("disk"), "/home/disk")),
                GuestMount::Bind(bind(&home.join("disk/inner"), "/home/disk/inner")),
            ]
        );
    }
}
