//! The mounts of paths.

use crate::files::{LARGE, read_text};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use weigh_protocol::MountFacts;

/// Describes the mounts of existing paths.
///
/// The mount of an open path is taken from the kernel (`mnt_id`, proc_pid_fdinfo(5)), because later
/// mounts may hide the mount point that the path begins with.
pub fn describe(paths: &[String]) -> Vec<MountFacts> {
    if paths.is_empty() {
        return Vec::new();
    }
    let table = read_text("/proc/self/mountinfo", LARGE).unwrap_or_default();
    let described = paths.iter().filter_map(|path| {
        let file = rustix::fs::open(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let about = read_text(&format!("/proc/self/fdinfo/{}", file.as_raw_fd()), LARGE)?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let (kind, options) = table.lines().find_map(|line| mount(line, id))?;
        Some(MountFacts { path: path.clone(), kind, options })
    });
    described.collect()
}

/// Type and options on a line of `/proc/self/mountinfo`, if it is that of this mount.
fn mount(line: &str, id: &str) -> Option<(String, String)> {
    let (of_mount, of_system) = line.split_once(" - ")?;
    let mut fields = of_mount.split(' ');
    if fields.next()? != id {
        return None;
    }
    let options = fields.nth(4)?;
    let mut fields = of_system.split(' ');
    let kind = fields.next()?;
    Some((kind.to_string(), merged(options, fields.nth(1).unwrap_or_default())))
}

/// Merges the options of a mount and of its file system as `/proc/self/mounts` does: read-only if
/// either is, each option once.
fn merged(of_mount: &str, of_system: &str) -> String {
    let read_only =
        [of_mount, of_system].iter().any(|options| options.split(',').any(|option| option == "ro"));
    let mut merged: Vec<&str> = Vec::new();
    merged.push(if read_only { "ro" } else { "rw" });
    for option in of_mount.split(',').chain(of_system.split(',')) {
        if !option.is_empty() && !matches!(option, "ro" | "rw") && !merged.contains(&option) {
            merged.push(option);
        }
    }
    merged.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_mount_is_parsed() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let of = |id: &str| mount(line, id);
        assert_eq!(of("36"), Some(("ext3".into(), "rw,noatime,errors=continue".into())));
        assert_eq!(of("3"), None);
        assert_eq!(mount("37 1 0:5 / /tmp rw,nosuid - tmpfs tmpfs rw", "37").unwrap().1, "rw,nosuid");
        assert_eq!(mount("broken", "broken"), None);
    }

    #[test]
    fn a_mount_is_read_only_if_either_is() {
        assert_eq!(merged("ro,relatime", "rw,discard"), "ro,relatime,discard");
        assert_eq!(merged("rw", "ro"), "ro");
        assert_eq!(merged("rw,relatime", "rw,relatime"), "rw,relatime");
    }

    #[test]
    fn this_machine_has_a_root() {
        let facts = describe(&["/".into(), "/not/there".into(), "/proc".into()]);
        assert_eq!(facts.iter().map(|mount| mount.path.as_str()).collect::<Vec<_>>(), ["/", "/proc"]);
        assert_eq!(facts[1].kind, "proc");
    }
}
