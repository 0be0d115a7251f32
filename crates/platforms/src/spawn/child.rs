//! The child between its clone and its exec. Nothing here may allocate, lock, or run a destructor.

use super::step::Step;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Index in a report: not a step but the exec.
pub(super) const EXEC: usize = usize::MAX;
/// Index in a report: not a step but the redirection of standard input and output.
pub(super) const STDIO: usize = usize::MAX - 1;
/// Index in a report: not a step but the limit of open files.
pub(super) const OPEN_FILES: usize = usize::MAX - 2;

/// A report: the index and the error number, both in native order; it never leaves this machine.
const REPORT: usize = size_of::<usize>() + size_of::<i32>();

/// Environment of the first program; commands get theirs by the protocol.
const ENVIRONMENT: [&CStr; 1] = [c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];

/// Everything that the child uses.
pub(super) struct Prepared<'a> {
    steps: &'a [Step<'a>],
    /// Instead of the file that `argv` names.
    program: Option<BorrowedFd<'a>>,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    wait: BorrowedFd<'a>,
    /// The other end of `wait`, which is the parent's.
    go: BorrowedFd<'a>,
    input: BorrowedFd<'a>,
    output: BorrowedFd<'a>,
    error: BorrowedFd<'a>,
    report: BorrowedFd<'a>,
    /// The limit of open files that weighbridge was started with, if it has raised its own.
    open_files: Option<Rlimit>,
    /// Keeps alive what `argv` and `environment` point to.
    _words: [Vec<CString>; 2],
}

impl<'a> Prepared<'a> {
    pub(super) fn new(
        steps: &'a [Step<'a>],
        (program, [words, variables]): (Option<BorrowedFd<'a>>, [Vec<CString>; 2]),
        (wait, go): (BorrowedFd<'a>, BorrowedFd<'a>),
        input: BorrowedFd<'a>,
        output: BorrowedFd<'a>,
        error: BorrowedFd<'a>,
        report: BorrowedFd<'a>,
    ) -> Self {
        let list =
            |words: &mut dyn Iterator<Item = *const c_char>| words.chain([ptr::null()]).collect::<Vec<_>>();
        let argv = list(&mut words.iter().map(|word| word.as_ptr()));
        let variables_too = variables.iter().map(|word| word.as_ptr());
        let environment = list(&mut ENVIRONMENT.iter().map(|word| word.as_ptr()).chain(variables_too));
        let _words = [words, variables];
        let open_files = weigh_host::open_files::original();
        Self { steps, program, argv, environment, wait, go, input, output, error, report, open_files, _words }
    }

    /// The child's whole life until its exec.
    pub(super) fn run(&self) -> ! {
        let Err((index, errno)) = self.try_run();
        let mut report = [0; REPORT];
        let (first, second) = report.split_at_mut(size_of::<usize>());
        first.copy_from_slice(&index.to_ne_bytes());
        second.copy_from_slice(&errno.raw_os_error().to_ne_bytes());
        let _ = rustix::io::write(self.report, &report);
        exit()
    }

    fn try_run(&self) -> Result<Infallible, (usize, Errno)> {
        // In case weighbridge dies meanwhile. The signal comes at the death of the calling thread,
        // which waits for the exec.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // SAFETY: this process never uses its copy of the parent's end again. The copy would hide
        // the end of file, and the parent may have died before the line above.
        unsafe { rustix::io::close(self.go.as_raw_fd()) };
        // At an end of file the parent is gone without a "go", and the child ends too.
        let mut word = [0_u8; 1];
        loop {
            match rustix::io::read(self.wait, &mut word) {
                Ok(1) => break,
                Err(Errno::INTR) => {}
                _ => exit(),
            }
        }
        // A session, and so a process group, of its own: no terminal reaches it, and it can be
        // signalled as a whole.
        let _ = rustix::process::setsid();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0));
        for (index, step) in self.steps.iter().enumerate() {
            step.act.run().map_err(|errno| (index, errno))?;
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        rustix::process::chdir(c"/").map_err(|errno| (STDIO, errno))?;
        rustix::stdio::dup2_stdin(self.input).map_err(|errno| (STDIO, errno))?;
        rustix::stdio::dup2_stdout(self.output).map_err(|errno| (STDIO, errno))?;
        rustix::stdio::dup2_stderr(self.error).map_err(|errno| (STDIO, errno))?;
        close_the_rest_at_exec();
        // After the steps, which open files.
        if let Some(limit) = self.open_files {
            setrlimit(Resource::Nofile, limit).map_err(|errno| (OPEN_FILES, errno))?;
        }
        default_signals();
        // From here on, the end of its standard input tells the program that weighbridge is gone.
        let _ = rustix::process::set_parent_process_death_signal(None);
        let (directory, path, flags) = match &self.program {
            Some(program) => (program.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH),
            None => (libc::AT_FDCWD, self.argv[0], 0),
        };
        let (argv, environment) = (self.argv.as_ptr(), self.environment.as_ptr());
        // SAFETY: both lists end in a null pointer, and what they point to lives in `self`.
        unsafe { libc::syscall(libc::SYS_execveat, directory, path, argv, environment, flags) };
        Err((EXEC, Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)))
    }
}

fn exit() -> ! {
    // SAFETY: ends the process without running anything of the parent's: no destructors, no
    // handlers.
    unsafe { libc::_exit(127) }
}

/// Reads a report; `None` for an empty one.
pub(super) fn read_report(bytes: &[u8]) -> Option<(usize, i32)> {
    let (index, errno) = bytes.split_first_chunk()?;
    Some((usize::from_ne_bytes(*index), i32::from_ne_bytes(*errno.first_chunk()?)))
}

/// Blocks all signals, so that no handler of the parent's runs in the child.
pub(super) fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are valid for the calls; a zeroed set is a value of the type.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Undoes [`block_signals`].
pub(super) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is valid for the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// `struct sigaction` of the kernel, not of the C library: handler, flags, restorer, mask. Zero is
/// the default action.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
/// Size of the kernel's signal set.
const SIGNAL_SET: usize = size_of::<u64>();

/// Resets all signals: an exec keeps ignored ones ignored and blocked ones blocked, and a program
/// expects neither. (Rust ignores SIGPIPE.)
///
/// Both calls go to the kernel itself: the C library's own refuse the two signals that it keeps for
/// its threads.
fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the action is valid for the call, which does not return the former one. SIGKILL
        // and SIGSTOP are refused.
        unsafe {
            let action = DEFAULT_ACTION.as_ptr();
            libc::syscall(libc::SYS_rt_sigaction, signal, action, ptr::null_mut::<u64>(), SIGNAL_SET)
        };
    }
    let none: u64 = 0;
    // SAFETY: the set is valid for the call, which does not return the former one.
    unsafe {
        let (how, former) = (libc::SIG_SETMASK, ptr::null_mut::<u64>());
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const none, former, SIGNAL_SET)
    };
}

/// Keeps from the guest whatever weighbridge itself was started with beyond the standard three.
fn close_the_rest_at_exec() {
    let last = libc::c_uint::MAX;
    // SAFETY: only marks descriptors (close_range(2)). Before Linux 5.11 it fails, and what is
    // inherited stays open.
    unsafe { libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, last, libc::CLOSE_RANGE_CLOEXEC) };
}
