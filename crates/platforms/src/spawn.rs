//! Starting a process in new namespaces, with a root of its own, without any other program.
//!
//! The child between `clone3(2)` and `execve(2)` is a copy of one thread of a program with many: a
//! lock that another thread held stays locked there for ever. So everything is prepared before the
//! clone (names, descriptors, the list of steps), and the child only makes system calls. The first
//! one that fails is reported through a pipe with its step.

mod child;
mod family;
mod guest;
mod inside;
mod rights;
mod step;

pub(crate) use guest::{LocalGuest, Runtime, Start};
pub use inside::Inside;
pub(crate) use inside::is_first;
pub(crate) use step::shown_groups;

use crate::common_keys::Storage;
use crate::helpers::is_readable;
use child::Prepared;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::UnshareFlags;
use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use step::Step;
use weigh_host::cgroup::Cgroup;
use weigh_images::Root;

/// How long the child may take from its clone to its exec.
const EXEC_DEADLINE: Duration = Duration::from_secs(10);

/// `CLONE_INTO_CGROUP` of `clone3(2)`. (The type in the C library's binding is too narrow.)
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A process to start.
#[derive(Debug, Clone, Copy)]
pub struct SpawnRequest<'a> {
    /// New namespaces, as [`UnshareFlags`]; the mount namespace is needed for a root.
    pub namespaces: UnshareFlags,
    /// Root file system; the host's own when absent.
    pub root: Option<&'a Root>,
    /// The program enters the root by itself: the root is put together at its skeleton, without
    /// `/proc`, `/sys` and `/dev`, and the program is started outside of it.
    pub outside: bool,
    /// Control group, joined before anything else is done.
    pub cgroup: Option<&'a Cgroup>,
    /// CPUs; empty means all.
    pub cpus: &'a [u32],
    /// File of the network namespace to be in, instead of the present one or a new one.
    pub network: Option<&'a Path>,
    /// What holds [`Storage::TARGET`] of the root. Without a root an overlay is mounted at
    /// [`Storage::merged`], for the program to pass on; that takes a mount namespace.
    pub storage: &'a Storage,
    /// Mounts that only this process and its children see; they take a mount namespace.
    pub mounts: &'a [OwnMount],
    /// The running system in which the process is started beside the init, with no more rights than
    /// the init. Its groups are joined first, its namespaces and root last.
    pub inside: Option<&'a Inside>,
    /// Program, by its absolute path in the root, and arguments.
    pub argv: &'a [OsString],
    /// A static program of the host that is executed instead of the one that `argv` names; the guest
    /// cannot write to it.
    pub program: Option<&'a Path>,
    /// Environment variables beside `PATH`, as `NAME=value`.
    pub variables: &'a [OsString],
    /// The log that standard error is appended to, bounded.
    pub log: &'a Path,
    /// Standard output goes to the log as well, and [`Spawned::output`] is at its end from the
    /// beginning.
    pub quiet: bool,
}

impl<'a> SpawnRequest<'a> {
    /// Returns a request for a program with nothing of its own.
    pub fn new(argv: &'a [OsString], log: &'a Path) -> Self {
        Self {
            namespaces: UnshareFlags::empty(),
            root: None,
            outside: false,
            cgroup: None,
            cpus: &[],
            network: None,
            storage: &Storage::Tmpfs,
            mounts: &[],
            inside: None,
            argv,
            program: None,
            variables: &[],
            log,
            quiet: false,
        }
    }
}

/// A mount that only a process and its children see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnMount {
    /// An empty directory in memory over this one.
    Empty(PathBuf),
    /// This directory, read-only with everything below it.
    ReadOnly(PathBuf),
    /// A directory or file at another place, read-only.
    Bind(PathBuf, PathBuf),
    /// An overlay file system.
    Overlay {
        /// The lower layer, read-only.
        lower: PathBuf,
        /// The layer that takes writes.
        upper: PathBuf,
        /// The kernel's work directory.
        work: PathBuf,
        /// Where it is mounted.
        target: PathBuf,
    },
}

impl OwnMount {
    /// Returns an empty directory for the state that a program keeps below `/run`: at its place, or
    /// at the nearest directory above that the host has, where the program makes the rest.
    pub(crate) fn state_of(directory: &Path) -> Self {
        let there = directory.ancestors().find(|place| place.is_dir());
        Self::Empty(there.unwrap_or(directory).into())
    }
}

/// A process that was started. Dropping it neither ends nor reaps it.
#[derive(Debug)]
pub struct Spawned {
    /// Its PID as this process sees it; also the ID of its session and process group.
    pub pid: u32,
    /// A handle that never refers to another process.
    pub pidfd: OwnedFd,
    /// Pipe to its standard input.
    pub input: OwnedFd,
    /// Pipe from its standard output.
    pub output: OwnedFd,
}

/// A process that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct SpawnError {
    /// What was being done, as in `mount proc`.
    pub step: String,
    /// Why it failed.
    pub source: io::Error,
}

impl SpawnError {
    fn at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        |source| Self { step, source: source.into() }
    }
}

/// Starts a process. `on_created` is called with its PID before it does anything; if that fails,
/// the process is ended, and has done nothing.
///
/// # Errors
/// The step that failed, on either side. No process is left then.
pub fn spawn(
    request: &SpawnRequest<'_>,
    on_created: impl FnOnce(u32) -> io::Result<()>,
) -> Result<Spawned, SpawnError> {
    let pipe =
        |what: &str| pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::at(format!("make a pipe for {what}")));
    let (input_read, input) = pipe("the input")?;
    let (output, output_write) = pipe("the output")?;
    let (report_read, report) = pipe("the report of the start")?;
    let (wait, go) = pipe("the word to start")?;
    let log = weigh_host::log::pipe(request.log).map_err(SpawnError::at("make a pipe for the log"))?;
    let argv = request.argv.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let (joins, into) = open_groups(request)?;
    let steps = step::all(request, &joins)?;
    let variables = request.variables.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let program = request.program.map(step::open_read_only).transpose()?;
    let prepared = Prepared::new(
        &steps,
        (program.as_ref().map(AsFd::as_fd), [argv, variables]),
        (wait.as_fd(), go.as_fd()),
        input_read.as_fd(),
        if request.quiet { log.as_fd() } else { output_write.as_fd() },
        log.as_fd(),
        report.as_fd(),
    );
    let _entered = request.inside.map(Inside::enter_processes).transpose()?;
    // This thread enters the network, for the child to be born there: in its own user namespace the
    // child would have no right to enter it.
    let there = request.network.map(weigh_network::NamespaceVisit::begin).transpose();
    let there =
        there.map_err(|error| SpawnError::at("enter the guest's network")(io::Error::other(error)))?;
    let (pid, pidfd) = clone(request.namespaces, into.as_ref(), &prepared)
        .map_err(SpawnError::at("start a process (clone3)"))?;
    drop(there);
    let mut unstarted = UnstartedChild { pidfd: Some(pidfd) };
    drop(prepared);
    // Closes the child's ends: an end of file must be seen when the child alone closes them.
    drop((wait, input_read, output_write, report, log));
    if request.namespaces.contains(UnshareFlags::NEWUSER) {
        map_users(pid).map_err(SpawnError::at("map the user into a user namespace"))?;
    }
    on_created(pid).map_err(SpawnError::at("write down the new process"))?;
    rustix::io::write(&go, b"!").map_err(SpawnError::at("let the new process go on"))?;
    started(report_read, &steps)?;
    let pidfd = unstarted.pidfd.take().expect("it is taken only here");
    Ok(Spawned { pid, pidfd, input, output })
}

/// A child that is ended and reaped unless it reaches its exec.
struct UnstartedChild {
    pidfd: Option<OwnedFd>,
}

impl Drop for UnstartedChild {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// Opens the files by which the child joins its control group: one per v1 hierarchy, or the v2
/// group to be born into.
fn open_groups(request: &SpawnRequest<'_>) -> Result<(Vec<File>, Option<OwnedFd>), SpawnError> {
    let open = |path: PathBuf| {
        OpenOptions::new().write(true).open(&path).map_err(SpawnError::at(format!("open {}", path.display())))
    };
    if let Some(inside) = request.inside {
        let files = inside.join_files()?.into_iter().map(open).collect::<Result<_, _>>()?;
        return Ok((files, None));
    }
    let Some(cgroup) = request.cgroup else { return Ok((Vec::new(), None)) };
    if let Some(directory) = cgroup.v2_directory() {
        let file = File::open(&directory).map_err(SpawnError::at(format!("open {}", directory.display())))?;
        return Ok((Vec::new(), Some(file.into())));
    }
    Ok((cgroup.join_files().into_iter().map(open).collect::<Result<_, _>>()?, None))
}

fn c_string(text: &OsString) -> Result<CString, SpawnError> {
    CString::new(text.clone().into_vec()).map_err(|error| SpawnError {
        step: format!("pass `{}` to a program", text.display()),
        source: error.into(),
    })
}

/// Clones this thread into the new namespaces; the child never returns.
fn clone(
    namespaces: UnshareFlags,
    into: Option<&OwnedFd>,
    prepared: &Prepared<'_>,
) -> io::Result<(u32, OwnedFd)> {
    // The cgroup namespace is entered by its own step, after the child has joined its group: its
    // root is the group that the process is in when the namespace is made.
    let namespaces = namespaces - UnshareFlags::NEWCGROUP;
    let mut pidfd: RawFd = -1;
    // SAFETY: all fields are integers, for which zero is a value, and the one the kernel takes as
    // "not given".
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(namespaces.bits()) | libc::CLONE_PIDFD as u64;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(into) = into {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = into.as_raw_fd() as u64;
    }
    let blocked = child::block_signals();
    // SAFETY: without CLONE_VM the child has its own copy of the memory and goes on on its own copy
    // of this stack. `arguments` and `pidfd` outlive the call.
    let mut pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    // The filters of containers deny clone3, whose flags no filter sees, and allow clone(2), which
    // takes no group to be born into.
    if pid < 0 && into.is_none() && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        let flags = arguments.flags | arguments.exit_signal;
        // SAFETY: as above. The third argument is where the descriptor goes; the last two, whose order
        // depends on the architecture, are not used.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) };
    }
    if pid == 0 {
        prepared.run();
    }
    let error = io::Error::last_os_error();
    child::restore_signals(&blocked);
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel has stored a new descriptor here that nobody else owns (CLONE_PIDFD).
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((u32::try_from(pid).map_err(io::Error::other)?, pidfd))
}

/// Maps users so that the user is root inside the user namespace: the host's root has all the users
/// there that it has here, anybody else only itself, which is all that `user_namespaces(7)` lets an
/// ordinary user map.
fn map_users(pid: u32) -> io::Result<()> {
    let write = |file: &str, text: &str| {
        OpenOptions::new().write(true).open(format!("/proc/{pid}/{file}"))?.write_all(text.as_bytes())
    };
    if weigh_host::facts::is_root() {
        // In a container, root itself may have only some users.
        for file in ["uid_map", "gid_map"] {
            write(file, &same_users(&std::fs::read_to_string(format!("/proc/self/{file}"))?))?;
        }
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    write("setgroups", "deny")?;
    write("uid_map", &format!("0 {user} 1"))?;
    write("gid_map", &format!("0 {group} 1"))
}

/// Returns a map of all users that the namespace of this map has, each to itself.
fn same_users(map: &str) -> String {
    let same = |line: &str| {
        let mut fields = line.split_whitespace();
        let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some(format!("{first} {first} {count}\n"))
    };
    map.lines().filter_map(same).collect()
}

/// Waits until the child's report says that a step failed, or is closed by its exec.
fn started(report: OwnedFd, steps: &[Step]) -> Result<(), SpawnError> {
    let deadline = weigh_host::deadlines::scaled(EXEC_DEADLINE);
    if !is_readable(&report, deadline) {
        let late = io::Error::new(io::ErrorKind::TimedOut, format!("it took more than {deadline:?}"));
        return Err(SpawnError { step: "start the program".into(), source: late });
    }
    let mut bytes = Vec::new();
    File::from(report).read_to_end(&mut bytes).map_err(SpawnError::at("read the report of the start"))?;
    let Some((index, errno)) = child::read_report(&bytes) else { return Ok(()) };
    let step = match index {
        child::EXEC => "execute the program".into(),
        child::STDIO => "set up standard input and output".into(),
        child::OPEN_FILES => "restore the limit of open files".into(),
        index => steps.get(index).map_or_else(|| format!("step {index}"), |step| step.what.clone()),
    };
    Err(SpawnError { step, source: io::Error::from_raw_os_error(errno) })
}

#[cfg(test)]
mod tests;
