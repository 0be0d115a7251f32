//! The limit of open files of this process, `RLIMIT_NOFILE`.
//!
//! Counting events for several guests on many CPUs takes more files than the usual soft limit of
//! 1,024, so this process may raise its own. The programs that it starts get the limit that it was
//! started with: many close or poll as many descriptors as the soft limit allows, and would be
//! slower than where nobody measures.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard limit unless it allows this number of files already. Where the
/// kernel refuses, it stays as it is.
pub fn allow(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) && limit.current != limit.maximum {
        // Before the limit changes, for threads that start a program at the same time.
        ORIGINAL.get_or_init(|| limit);
        let _unchanged = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Returns the limit that this process was started with, if it is not the present one: a program
/// that it starts gets it just before its exec.
pub fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Invocation;
    use std::fs::File;

    /// The limit belongs to the process, so this test runs in its own.
    #[test]
    #[ignore = "run by programs_keep_the_original_limit"]
    fn a_process_with_a_raised_limit() {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
        allow(200);
        assert_eq!(original(), None, "200 files are allowed already");
        allow(201);
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
        // More than the program may open.
        let files: Vec<File> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
        let shown = Invocation::new("sh").args(["-c", "ulimit -Sn"]).run_ok().unwrap();
        assert_eq!(String::from_utf8(shown.output).unwrap(), "200\n");
        drop(files);
    }

    #[test]
    fn programs_keep_the_original_limit() {
        let process = Invocation::new(std::env::current_exe().unwrap());
        let test = "open_files::tests::a_process_with_a_raised_limit";
        let done = process.args(["--exact", test, "--ignored"]).run_ok().unwrap();
        assert!(String::from_utf8_lossy(&done.output).contains("1 passed"), "{test} did not run");
    }
}
