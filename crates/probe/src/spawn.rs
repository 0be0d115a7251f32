//! Starting a command.
//!
//! The child shares the probe's memory until it executes the program, and the probe waits for that
//! (`CLONE_VM | CLONE_VFORK`), as in posix_spawn of the C libraries: no page table is copied, and
//! failures in the child are known at once.

use crate::command::{Prepared, Refusal};
use crate::signals;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use weigh_protocol::Input;

/// Stack of the child until it executes the program; it calls a dozen functions of the C library.
const STACK_BYTES: usize = 32 << 10;

/// A started command.
pub struct Spawned {
    /// PID, also of its process group and its session.
    pub pid: Pid,
    /// Time just before the process was made, `CLOCK_MONOTONIC`, nanoseconds.
    pub started_ns: u64,
    /// Its standard input, if that is a pipe. All streams are non-blocking.
    pub input: Option<OwnedFd>,
    /// Its standard output and standard error.
    pub streams: [OwnedFd; 2],
}

/// Data of the child, prepared because nothing may be allocated between clone and exec.
struct Child<'a> {
    command: &'a Prepared,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    streams: [BorrowedFd<'a>; 3],
    parent: libc::pid_t,
    /// The step that failed and its error number, 0 while nothing has.
    failed_step: AtomicI32,
    errno: AtomicI32,
}

const STEP_DIRECTORY: i32 = 1;
const STEP_EXECUTE: i32 = 2;
const STEP_OTHER: i32 = 3;

/// Starts a command in its own session. The kernel kills it when the probe ends.
pub fn spawn(command: &Prepared, with: &Input) -> Result<Spawned, Refusal> {
    let failed = |doing: &'static str| move |errno| Refusal::of(doing, errno);
    let (output, output_end) = pipe().map_err(failed("a pipe for the output"))?;
    let (error, error_end) = pipe().map_err(failed("a pipe for the errors"))?;
    let (input_end, input) = match with {
        Input::Empty => nothing().map(|theirs| (theirs, None)).map_err(failed("the standard input"))?,
        Input::Pipe => pipe().map(|(theirs, ours)| (theirs, Some(ours))).map_err(failed("a pipe"))?,
        Input::File(path) => (file(path, &command.working_directory)?, None),
    };
    for fd in [Some(&output), Some(&error), input.as_ref()].into_iter().flatten() {
        rustix::io::ioctl_fionbio(fd, true).map_err(failed("a pipe"))?;
    }
    let child = Child {
        command,
        arguments: pointers(&command.arguments),
        environment: pointers(&command.environment),
        streams: [input_end.as_fd(), output_end.as_fd(), error_end.as_fd()],
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        failed_step: AtomicI32::new(0),
        errno: AtomicI32::new(0),
    };
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let started_ns = crate::clock::monotonic_ns();
    // SAFETY: the stack grows down from its end, which is aligned to 16 bytes, on all targets of
    // this project. `child` and what it points to outlive the call: CLONE_VFORK returns when the
    // child has executed the program or ended. The child only makes system calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        libc::clone(execute, top, flags, (&raw const child).cast_mut().cast::<c_void>())
    };
    let Some(pid) = Pid::from_raw(pid.max(0)) else {
        return Err(Refusal::of("a new process", signals::last_errno()));
    };
    let step = child.failed_step.load(Ordering::Relaxed);
    if step == 0 {
        return Ok(Spawned { pid, started_ns, input, streams: [output, error] });
    }
    let errno = Errno::from_raw_os_error(child.errno.load(Ordering::Relaxed));
    let program = command.program.to_string_lossy();
    let refusal = match step {
        STEP_DIRECTORY => Refusal::of(
            &format!("the working directory {}", command.working_directory.to_string_lossy()),
            errno,
        ),
        STEP_EXECUTE if errno == Errno::NOEXEC => Refusal::because(
            format!("{program} cannot run in this guest; a script begins with `#!` and its interpreter"),
            errno,
        ),
        STEP_EXECUTE
            if errno == Errno::NOENT
                && rustix::fs::access(&*command.program, rustix::fs::Access::EXISTS).is_ok() =>
        {
            Refusal::because(
                format!("the interpreter or loader that {program} names is not in this guest"),
                errno,
            )
        }
        STEP_EXECUTE => Refusal::of(&program, errno),
        _ => Refusal::of("setting up the process", errno),
    };
    // The child has ended already; its status is not needed.
    let _ = crate::processes::wait4(pid);
    Err(refusal)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe_with(PipeFlags::CLOEXEC)
}

/// A standard input that reads as empty.
fn nothing() -> Result<OwnedFd, Errno> {
    // Where there are no devices: a pipe without a writer also reads as empty.
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    null.or_else(|_| pipe().map(|(theirs, _)| theirs))
}

/// Opens a file as standard input. A named pipe or a socket is refused: it would give the first run
/// everything and the next ones nothing.
fn file(path: &str, working_directory: &CStr) -> Result<OwnedFd, Refusal> {
    let doing = format!("the standard input {path}");
    let failed = |errno| Refusal::of(&doing, errno);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(working_directory, directory, Mode::empty()).map_err(failed)?;
    let file = rustix::fs::openat(&directory, path, flags, Mode::empty()).map_err(failed)?;
    let status = rustix::fs::fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile | FileType::CharacterDevice => Ok(file),
        _ => Err(Refusal::because(format!("{doing} is neither a file nor a character device"), Errno::INVAL)),
    }
}

fn pointers(texts: &[alloc::ffi::CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([core::ptr::null()]).collect()
}

/// Runs in the child.
extern "C" fn execute(child: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `Child` that lives until this process has executed or
    // ended.
    let child = unsafe { &*child.cast_const().cast::<Child<'_>>() };
    let (step, errno) = become_command(child);
    child.errno.store(errno.raw_os_error(), Ordering::Relaxed);
    child.failed_step.store(step, Ordering::Relaxed);
    127
}

/// Becomes the command. Returns only on failure: the step that failed and why.
fn become_command(child: &Child<'_>) -> (i32, Errno) {
    let chdir = |path: &CStr| {
        // SAFETY: the path is a C string.
        unsafe { libc::chdir(path.as_ptr()) }
    };
    // SAFETY: system calls with valid arguments.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The probe may have ended before the prctl.
        if libc::getppid() != child.parent {
            return (STEP_OTHER, Errno::SRCH);
        }
        for (number, fd) in (0..).zip(child.streams) {
            if libc::dup2(fd.as_raw_fd(), number) < 0 {
                return (STEP_OTHER, signals::last_errno());
            }
        }
    }
    if chdir(&child.command.working_directory) < 0 {
        return (STEP_DIRECTORY, signals::last_errno());
    }
    for signal in signals::IGNORED {
        signals::set(signal, libc::SIG_DFL);
    }
    signals::unblock_all();
    // SAFETY: C strings, and arrays of them that end with a null pointer.
    unsafe {
        libc::execve(child.command.program.as_ptr(), child.arguments.as_ptr(), child.environment.as_ptr());
    }
    (STEP_EXECUTE, signals::last_errno())
}
