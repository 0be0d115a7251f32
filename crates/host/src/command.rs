//! Starting external programs. No other module of the workspace does that.
//!
//! Every program gets its own process group and a deadline, after which the whole group gets
//! SIGKILL. Output goes to files in memory, not to pipes, so that weighbridge need not wait for a
//! grandchild that keeps its standard output open.

mod error;
mod group;
mod private;

pub use error::CommandError;

use crate::cgroup::Cgroup;
use crate::clock::monotonic_ns;
use crate::open_files;
use group::Group;
use private::PrivateMounts;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, Signal, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The default deadline of a program.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// How much of the end of an output is quoted in an error message, bytes.
const TAIL: usize = 2000;
/// The most that a program may write to its standard output or error in [`Invocation::run`], bytes.
/// One that writes more is killed.
pub const MOST_OUTPUT_BYTES: u64 = 64 << 20;
/// How often the length of the output is checked.
const LOOK: Duration = Duration::from_millis(20);
/// How much of the end of each output of a finished program goes to its log, bytes.
const LOGGED_BYTES: usize = 1 << 20;

/// The result of a program that ended before its deadline.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
    /// Time from its start to its end.
    pub took: Duration,
}

/// A program to be started, with its arguments and its surroundings.
#[derive(Debug, Default)]
pub struct Invocation {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    clear_environment: bool,
    directory: Option<PathBuf>,
    input: Option<Vec<u8>>,
    deadline: Duration,
    log: Option<PathBuf>,
    output_to_log: bool,
    join: Vec<PathBuf>,
    cpus: Vec<u32>,
    pass: Vec<OwnedFd>,
    mounts: PrivateMounts,
    user: Option<u32>,
    dies_with_caller: bool,
}

impl Invocation {
    /// A program by its name, which is looked up in `PATH`, or by its path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().into(), deadline: DEFAULT_DEADLINE, ..Self::default() }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().into());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().into()));
        self
    }

    /// Sets an environment variable. The program also inherits those of weighbridge.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Does not pass on the environment variables of weighbridge, only those set here.
    pub fn env_clear(mut self) -> Self {
        self.clear_environment = true;
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// Sets the standard input: a file in memory. The default is empty for [`Invocation::run`] and
    /// a pipe for [`Invocation::spawn`].
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Sets the time after which the process group is killed; the default is [`DEFAULT_DEADLINE`].
    /// Only for [`Invocation::run`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Appends the command line, the outputs and the exit status to a file.
    pub fn log_to(mut self, path: &Path) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Appends the standard output to the log, too, instead of making a pipe. Only for
    /// [`Invocation::spawn`].
    pub fn output_to_log(mut self) -> Self {
        self.output_to_log = true;
        self
    }

    /// Moves the program into a control group before it is executed.
    pub fn pre_exec_cgroup(mut self, cgroup: &Cgroup) -> Self {
        self.join = cgroup.join_files();
        self
    }

    /// Runs the program on these CPUs; all that it may use if there are none.
    pub fn on_cpus(mut self, cpus: &[u32]) -> Self {
        self.cpus = cpus.into();
        self
    }

    /// Passes an open descriptor to the program, with the same number. It is closed here once the
    /// program runs.
    pub fn pass(mut self, descriptor: OwnedFd) -> Self {
        self.pass.push(descriptor);
        self
    }

    /// Hides a mount of the host from the program, which gets its own mount namespace and finds an
    /// empty directory there. Needs root. If there is no such directory, that is not an error.
    pub fn without_mount(mut self, mount: &Path) -> Self {
        self.mounts.hide(mount);
        self
    }

    /// Shows a directory of the host as empty to the program, which gets its own mount namespace.
    /// Needs root.
    pub fn with_empty(mut self, directory: &Path) -> Self {
        self.mounts.empty(directory);
        self
    }

    /// Shows `own` in place of a directory of the host to the program, which gets its own mount
    /// namespace. Needs root.
    pub fn with_own(mut self, directory: &Path, own: &Path) -> Self {
        self.mounts.replace(directory, own);
        self
    }

    /// Shows the program a file or directory of the host, with everything mounted in it, read-only
    /// at another place, where one of the same kind must exist. The program gets its own mount
    /// namespace. Needs root, and Linux 5.12.
    pub fn with_read_only(mut self, source: &Path, target: &Path) -> Self {
        self.mounts.show(source, target);
        self
    }

    /// Runs the program as another user, who is in the group of the same number and in no other.
    /// Needs root.
    pub fn as_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Kills the program when the thread that starts it ends, even by SIGKILL
    /// (`PR_SET_PDEATHSIG(2const)`). This is for tools that change the host: a tool that outlived a
    /// killed weighbridge could make its change after weighbridge's changes were undone. Only for
    /// [`Invocation::run`], which waits in that thread.
    pub fn dies_with_caller(mut self) -> Self {
        self.dies_with_caller = true;
        self
    }

    /// The command line, quoted for a shell.
    pub fn command_line(&self) -> String {
        let mut line = quote(&self.program);
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(&quote(argument));
        }
        line
    }

    /// Runs the program to its end. A status other than 0 is not an error.
    ///
    /// # Errors
    /// [`CommandError::NotFound`], [`CommandError::Start`], [`CommandError::Deadline`],
    /// [`CommandError::Output`] or [`CommandError::Io`].
    pub fn run(self) -> Result<Finished, CommandError> {
        let line = self.command_line();
        let failed = |doing| CommandError::io(doing, &line);
        let files = || Ok((memory_file("output")?, memory_file("error")?));
        let (mut output, mut error) = files().map_err(failed("make a file for the output"))?;
        let input = self.input_or(Stdio::null(), &line)?;
        let clone =
            |file: &File| file.try_clone().map(Stdio::from).map_err(failed("make a file for the output"));
        let (stdout, stderr) = (clone(&output)?, clone(&error)?);
        let deadline = crate::deadlines::scaled(self.deadline);
        let started = Instant::now();
        let mut group = self.start(&line, input, stdout, stderr)?;
        let within_bounds = || {
            let length = |file: &File| file.metadata().map_or(0, |found| found.len());
            length(&output).max(length(&error)) <= MOST_OUTPUT_BYTES
        };
        let status = loop {
            let left = deadline.saturating_sub(started.elapsed());
            match group.wait(left.min(LOOK)) {
                Ok(None) if !left.is_zero() && within_bounds() => {}
                status => break status,
            }
        };
        let took = started.elapsed();
        if !matches!(status, Ok(Some(_))) {
            group.kill();
        }
        group.reap();
        let status = status.map_err(failed("wait"))?;
        let is_bounded = within_bounds();
        let output = contents(&mut output).map_err(failed("read the output"))?;
        let error = contents(&mut error).map_err(failed("read the output"))?;
        if let Some(path) = &self.log {
            log(path, &line, &output, &error, status, took).map_err(failed("write the log"))?;
        }
        match status {
            _ if !is_bounded => Err(CommandError::Output { command: line }),
            Some(status) => Ok(Finished { status, output, error, took }),
            None => Err(CommandError::Deadline { command: line, after: deadline, error: tail(&error) }),
        }
    }

    /// Runs the program to its end and expects status 0.
    ///
    /// # Errors
    /// The same as [`Invocation::run`], and [`CommandError::Status`] for any other status.
    pub fn run_ok(self) -> Result<Finished, CommandError> {
        let command = self.command_line();
        let finished = self.run()?;
        if finished.status.success() {
            return Ok(finished);
        }
        let said = if finished.error.is_empty() { &finished.output } else { &finished.error };
        Err(CommandError::Status { command, status: finished.status, error: tail(said) })
    }

    /// Starts the program without waiting for it. Standard output is a pipe, and so is standard
    /// input unless [`Invocation::input`] set it; standard error is appended to the log, whose length
    /// is bounded ([`crate::log`]).
    ///
    /// # Errors
    /// [`CommandError::NotFound`], [`CommandError::Start`] or [`CommandError::Io`].
    pub fn spawn(self) -> Result<Running, CommandError> {
        let line = self.command_line();
        let streams = || -> io::Result<(Stdio, Stdio)> {
            let Some(path) = &self.log else { return Ok((Stdio::piped(), Stdio::null())) };
            crate::log::append(path, format!("$ {line}\n").as_bytes())?;
            let log = crate::log::pipe(path)?;
            let output = if self.output_to_log { log.try_clone()?.into() } else { Stdio::piped() };
            Ok((output, log.into()))
        };
        let (stdout, stderr) = streams().map_err(CommandError::io("write the log", &line))?;
        let input = self.input_or(Stdio::piped(), &line)?;
        let started_ns = monotonic_ns();
        let mut group = self.start(&line, input, stdout, stderr)?;
        let input = group.child.stdin.take().map(OwnedFd::from);
        let output = group.child.stdout.take().map(OwnedFd::from);
        Ok(Running { group, input, output, log: self.log, started_ns })
    }

    /// A file with the input, or `other` where none was set.
    fn input_or(&self, other: Stdio, line: &str) -> Result<Stdio, CommandError> {
        let Some(bytes) = &self.input else { return Ok(other) };
        let file = || {
            let mut file = memory_file("input")?;
            file.write_all(bytes).and_then(|()| file.rewind())?;
            Ok(file.into())
        };
        file().map_err(CommandError::io("prepare the input", line))
    }

    fn start(&self, line: &str, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<Group, CommandError> {
        #[expect(clippy::disallowed_methods, reason = "this is the helper that all others go through")]
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
        if self.clear_environment {
            command.env_clear();
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let start_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound if self.directory.as_deref().is_none_or(Path::is_dir) => {
                CommandError::NotFound { program: self.program.to_string_lossy().into_owned() }
            }
            _ => CommandError::Start { command: line.into(), source },
        };
        self.prepare_child(&mut command).map_err(CommandError::io("open the control group", line))?;
        let child = command.spawn().map_err(start_error)?;
        Group::new(child).map_err(|source| CommandError::Start { command: line.into(), source })
    }

    /// Registers what the child does between fork and exec.
    fn prepare_child(&self, command: &mut Command) -> io::Result<()> {
        if !self.join.is_empty() {
            let open = |path| OpenOptions::new().write(true).open(path);
            let files = self.join.iter().map(open).collect::<io::Result<Vec<File>>>()?;
            // SAFETY: between fork and exec the closure only calls write(2) on files opened before;
            // it allocates nothing.
            unsafe {
                command.pre_exec(move || files.iter().try_for_each(|mut file| file.write_all(b"0")));
            }
        }
        if !self.cpus.is_empty() {
            let mut set = CpuSet::new();
            self.cpus
                .iter()
                .filter(|cpu| **cpu < CpuSet::MAX_CPU as u32)
                .for_each(|cpu| set.set(*cpu as usize));
            // After the group: joining a cpuset resets the affinity.
            // SAFETY: between fork and exec the closure only calls sched_setaffinity(2); it
            // allocates nothing.
            unsafe {
                command.pre_exec(move || Ok(sched_setaffinity(None, &set)?));
            }
        }
        if self.dies_with_caller {
            let caller = rustix::process::getpid();
            // SAFETY: between fork and exec the closure only calls prctl(2) and getppid(2); it
            // allocates nothing.
            unsafe {
                command.pre_exec(move || {
                    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                    // The caller may have been killed before the call above.
                    let is_alive = rustix::process::getppid() == Some(caller);
                    if is_alive { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
                });
            }
        }
        if !self.mounts.is_empty() {
            let mounts = self.mounts.clone();
            // SAFETY: between fork and exec the closure only calls unshare(2), mount(2) and
            // umount2(2); it allocates nothing.
            unsafe {
                command.pre_exec(move || mounts.enter());
            }
        }
        if let Some(user) = self.user {
            // SAFETY: between fork and exec the closure only calls setgroups(2), setresgid(2) and
            // setresuid(2); it allocates nothing.
            unsafe {
                command.pre_exec(move || become_user(user));
            }
        }
        let passed: Vec<i32> = self.pass.iter().map(AsRawFd::as_raw_fd).collect();
        if !passed.is_empty() {
            // SAFETY: between fork and exec the closure only calls fcntl(2), on descriptors that
            // `self` keeps open until the program has been started; it allocates nothing.
            unsafe {
                command.pre_exec(move || {
                    passed.iter().try_for_each(|fd| match libc::fcntl(*fd, libc::F_SETFD, 0) {
                        -1 => Err(io::Error::last_os_error()),
                        _ => Ok(()),
                    })
                });
            }
        }
        if let Some(limit) = open_files::original() {
            // Last, because what is done before may open files.
            // SAFETY: between fork and exec the closure only calls prlimit(2); it allocates
            // nothing.
            unsafe {
                command.pre_exec(move || Ok(setrlimit(Resource::Nofile, limit)?));
            }
        }
        Ok(())
    }
}

/// Makes raw system calls: the functions of the C library would change all threads that the library
/// knows of, and those are the parent's.
fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: only numbers are passed; an empty list of groups needs no address.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, user, user, user),
            libc::syscall(libc::SYS_setresuid, user, user, user),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A running program. Dropping this kills its process group.
#[derive(Debug)]
pub struct Running {
    group: Group,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    log: Option<PathBuf>,
    started_ns: u64,
}

impl Running {
    /// When it was started, host's monotonic clock, nanoseconds.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// The pipe to its standard input; `None` after the first call, and where
    /// [`Invocation::input`] set the input.
    pub fn take_input(&mut self) -> Option<OwnedFd> {
        self.input.take()
    }

    /// The pipe from its standard output; `None` after the first call.
    pub fn take_output(&mut self) -> Option<OwnedFd> {
        self.output.take()
    }

    /// Its process number, which is also the number of its process group.
    pub fn pid(&self) -> u32 {
        self.group.child.id()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The errors of `waitid(2)`.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.group.wait(Duration::ZERO)
    }

    /// Its exit status, if it ends within `time`.
    ///
    /// # Errors
    /// The errors of `waitid(2)`.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        self.group.wait(time)
    }

    /// Kills every process of its group.
    pub fn kill_group(&mut self) {
        self.group.kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.kill();
        self.group.reap();
        // From here on its log holds everything that it wrote.
        if let Some(log) = &self.log {
            crate::log::flush(log);
        }
    }
}

/// Looks a program up in `PATH`, then in the directories of system programs, which the `PATH` of an
/// ordinary user lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(is_program)
}

fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MOST_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn log(
    path: &Path,
    line: &str,
    output: &[u8],
    error: &[u8],
    status: Option<ExitStatus>,
    took: Duration,
) -> io::Result<()> {
    let mut text = format!("$ {line}\n").into_bytes();
    for stream in [output, error] {
        let cut = stream.len().saturating_sub(LOGGED_BYTES);
        if cut > 0 {
            text.extend_from_slice(format!("=== {cut} bytes were left out\n").as_bytes());
        }
        text.extend_from_slice(&stream[cut..]);
        if stream.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
    }
    let end = status.map_or("killed at its deadline".into(), |status| status.to_string());
    text.extend_from_slice(format!("# {end} after {:.3} s\n", took.as_secs_f64()).as_bytes());
    // One write, so that the entries of two programs do not mix.
    crate::log::append(path, &text)
}

/// The end of an output, on one line.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]).into_owned();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
