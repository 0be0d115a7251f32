//! New lines of the kernel's log (`Documentation/ABI/testing/dev-kmsg`).

use crate::sum::KERNEL_LINES;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Priority `warning` (syslog(3)); lower numbers are worse.
const WARNING: u32 = 4;
/// Most characters that are kept of a line.
const LONGEST: usize = 300;
/// Most records that are read at once, whatever their priority: a kernel that floods its log is not
/// followed.
const MOST_RECORDS: usize = 512;

/// The kernel's log, from where it was when a window began.
#[derive(Debug)]
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// None without the right to read it (`dmesg_restrict`).
    pub(crate) fn open(root: &Path) -> Option<Self> {
        let nonblocking = libc::O_NONBLOCK;
        let file =
            OpenOptions::new().read(true).custom_flags(nonblocking).open(root.join("dev/kmsg")).ok()?;
        let mut log = Self(file);
        log.skip();
        Some(log)
    }

    /// What is in it now is not new.
    pub(crate) fn skip(&mut self) {
        // Where it cannot be done, old lines are told, which is better than none.
        let _ = self.0.seek(SeekFrom::End(0));
    }

    /// The first new lines of priority warning or worse.
    pub(crate) fn read(&mut self) -> Vec<String> {
        // One read gives one record; a buffer too small for it would lose it (8 KiB is the kernel's
        // own bound).
        let mut buffer = [0; 8192];
        let mut lines = Vec::new();
        for _ in 0..MOST_RECORDS {
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => lines.extend(message(&buffer[..length])),
                // Overwritten before it was read: the next one is there.
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
    // The upper bits are the facility: also what programs write to the log may tell of trouble.
    let priority = head.split(',').next()?.parse::<u32>().ok()? & 7;
    let line = text.lines().next()?;
    (priority <= WARNING).then(|| line.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_worse_are_told() {
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
    fn a_log_that_may_not_be_read_is_none() {
        assert!(KernelLog::open(tempfile::tempdir().unwrap().path()).is_none());
    }

    #[test]
    fn only_what_is_new_is_told() {
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
        assert!(!log.read().iter().any(|line| line.contains(&word)), "told once");
    }
}
