//! The tracepoint that fires on entry to each system call that seccomp allows.

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::{self, File};
use std::io::{self, Read};

/// Where the file system is mounted by convention.
const TRACING: &str = "/sys/kernel/tracing";
/// The number of the tracepoint and the fields of its samples
/// (`Documentation/trace/events.rst`, "Event formats").
const FORMAT: &str = "events/raw_syscalls/sys_enter/format";

/// The tracepoint `raw_syscalls:sys_enter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tracepoint {
    /// Its number for `perf_event_open(2)`.
    pub(super) number: u64,
    /// Offset of the number of the call in the raw data of a sample, bytes. It is not the same in all
    /// kernels: those with fields for preemption put these before it.
    pub(super) call_at: usize,
}

impl Tracepoint {
    /// Looks the tracepoint up. Where tracefs is not mounted, its file is read from a mount that is
    /// attached nowhere, and that the kernel drops when its descriptor is closed.
    ///
    /// # Errors
    /// The right to mount is missing, the kernel has no such tracepoint or gives it no number of the
    /// call, or it is older than Linux 5.2.
    pub(super) fn find() -> io::Result<Self> {
        let text = match fs::read_to_string(format!("{TRACING}/{FORMAT}")) {
            Ok(text) => text,
            Err(_) => read_detached()?,
        };
        let incomplete = || io::Error::new(io::ErrorKind::InvalidData, "its format lacks `ID` or `id`");
        Self::parse(&text).ok_or_else(incomplete)
    }

    fn parse(format: &str) -> Option<Self> {
        let number = format.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok())?;
        let field = format.lines().find(|line| line.contains(" id;"))?;
        let offset = field.split(';').find_map(|part| part.trim().strip_prefix("offset:"))?;
        Some(Self { number, call_at: offset.parse::<u16>().ok()?.into() })
    }
}

fn read_detached() -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    let mut text = String::new();
    let file = openat(&mount, FORMAT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Linux 6.18, and, with the first of the fields before `id`, from the kernel of RHEL 9.
    #[test]
    fn the_place_of_the_call_is_found() {
        let format = |more: &str, call_at: u64| {
            format!(
                "name: sys_enter\nID: 351\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                 {more}\n\
                 \tfield:long id;\toffset:{call_at};\tsize:8;\tsigned:1;\n\
                 \tfield:unsigned long args[6];\toffset:{};\tsize:48;\tsigned:0;\n\n\
                 print fmt: \"NR %ld\", REC->id\n",
                call_at + 8
            )
        };
        let usual = Tracepoint::parse(&format("", 8));
        assert_eq!(usual, Some(Tracepoint { number: 351, call_at: 8 }));
        let more = "\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\tsigned:0;\n";
        let later = Tracepoint::parse(&format(more, 16));
        assert_eq!(later, Some(Tracepoint { number: 351, call_at: 16 }));
        let nameless = format("", 8).replace("long id;", "long nr;");
        assert_eq!(Tracepoint::parse(&nameless), None);
        assert_eq!(Tracepoint::parse(""), None);
    }
}
