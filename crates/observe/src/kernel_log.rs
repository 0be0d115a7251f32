//! New lines of the kernel's log (`Documentation/ABI/testing/dev-kmsg`).

use crate::sum::KERNEL_LINES;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Priority `warning` (syslog(3)); lower numbers are worse.
const WARNING: u32 = 4;
/// Longest part of a line that is recorded, characters.
const LONGEST: usize = 300;
/// The most records that are read at once, of any priority, in case the kernel floods its log.
const MOST_RECORDS: usize = 512;

/// The kernel's log from the begin of a window on.
#[derive(Debug)]
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// Opens the log; `None` if this user may not read it (`dmesg_restrict`).
    pub(crate) fn open(root: &Path) -> Option<Self> {
        let nonblocking = libc::O_NONBLOCK;
        let file =
            OpenOptions::new().read(true).custom_flags(nonblocking).open(root.join("dev/kmsg")).ok()?;
        let mut log = Self(file);
        log.skip();
        Some(log)
    }

    /// Skips the present lines.
    pub(crate) fn skip(&mut self) {
        // If that fails, old lines are reported, which is better than none.
        let _ = self.0.seek(SeekFrom::End(0));
    }

    /// The first new lines of priority warning or worse.
    pub(crate) fn read(&mut self) -> Vec<String> {
        // A read returns one record, and loses it if the buffer is too small; 8 KiB is the kernel's
        // limit.
        let mut buffer = [0; 8192];
        let mut lines = Vec::new();
        for _ in 0..MOST_RECORDS {
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => lines.extend(message(&buffer[..length])),
                // EPIPE: the record was overwritten; the next read continues after it.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
            if lines.len() >= KERNEL_LINES {
                break;
            }
        }
        lines
    }
}

/// The text of a record `priority,sequence,time,flags;text` when it is a warning or worse. Lines
/// after the first are details.
fn message(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';')?;
    // The upper bits are the facility: lines written by programs count, too.
    let priority = head.split(',').next()?.parse::<u32>().ok()? & 7;
    let line = text.lines().next()?;
    (priority <= WARNING).then(|| line.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_errors_are_reported() {
        assert_eq!(
            message(b"4,2,0,-;[Firmware Bug]: TSC; really\n KEY=value\n").as_deref(),
            Some("[Firmware Bug]: TSC; really")
        );
        assert_eq!(message(b"12,2,0,-;by a program\n").as_deref(), Some("by a program"));
        assert_eq!(message(b"6,2,0,-;information\n"), None);
        assert_eq!(message(b"garbage"), None);
        assert_eq!(
            message(format!("0,2,0,-;{}\n", "x".repeat(2 * LONGEST)).as_bytes()).unwrap().len(),
            LONGEST
        );
    }

    #[test]
    fn an_unreadable_log_is_absent() {
        assert!(KernelLog::open(tempfile::tempdir().unwrap().path()).is_none());
    }

    #[test]
    fn only_new_lines_are_reported() {
        let Some(mut log) = KernelLog::open(Path::new("/")) else { return };
        let word = format!("weighbridge test {}", std::process::id());
        let write = |text: String| std::fs::write("/dev/kmsg", text).is_ok();
        if !write(format!("<4>{word} old\n")) {
            return;
        }
        log.skip();
        write(format!("<4>{word} new\n"));
        write(format!("<6>{word} harmless\n"));
        let lines: Vec<String> = log.read().into_iter().filter(|line| line.contains(&word)).collect();
        assert_eq!(lines, [format!("{word} new")]);
        assert!(!log.read().iter().any(|line| line.contains(&word)), "reported once");
    }
}
