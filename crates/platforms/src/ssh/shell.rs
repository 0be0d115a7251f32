//! Commands that each have their own connection, for machines on which the probe does not run.
//!
//! A script on the other machine prints, around the command's own output, when the command begins
//! and how it ended. The command's duration is the time between these lines on this host's clock.
//! The latency to the machine is in both and cancels out, except for its variation.

use super::remote_directory::{Machine, RemoteDirectory};
use super::scripts::Script;
use super::target::Target;
use crate::helpers::is_readable;
use crate::host_probe::{CommandRunner, Ended, Job, Progress, Refusal};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::Running;
use weigh_protocol::{COMMAND_PATH, Command, GuestFacts, ResourceUse, Status};

/// Time limit for connecting and starting the command; shorter than a session waits.
const BEGIN_DEADLINE: Duration = Duration::from_secs(25);
/// Time limit for `ssh` to exit after its last output.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// What shells add to the number of the signal that ended a command to get its status (POSIX, Shell
/// Command Language, 2.8.2).
const SIGNALLED: i32 = 128;
/// Upper limit of signal numbers.
const SIGNALS: i32 = 64;
/// Longest last line of the script.
const LAST_LINE: usize = 200;
/// How much is read at once, bytes.
const PIECE: usize = 64 << 10;

/// A guest that runs each command through its own `ssh`.
pub(super) struct Shell {
    target: Target,
    machine: Machine,
    directory: String,
    name: String,
    log: PathBuf,
}

impl Shell {
    pub(super) fn new(remote: &RemoteDirectory, name: &str, log: &Path) -> Self {
        let (target, machine) = (remote.target.clone(), remote.machine.clone());
        Self { target, machine, directory: remote.directory.clone(), name: name.into(), log: log.into() }
    }

    /// Why the machine does not have the builtin kernels.
    fn no_kernels(&self) -> Refusal {
        let Machine { system, architecture, .. } = &self.machine;
        let reason = if self.machine.takes_programs() {
            "the builtin programs are not copied with by=shell; by=probe copies them".into()
        } else {
            let here = std::env::consts::ARCH;
            format!(
                "the builtin programs are for Linux on {here}, and the machine is {system} on {architecture}"
            )
        };
        Refusal::new(reason, Errno::NOENT)
    }
}

impl CommandRunner for Shell {
    fn facts(&self, _: &[String]) -> GuestFacts {
        let machine = &self.machine;
        GuestFacts {
            kernel: machine.release.clone(),
            architecture: machine.architecture.clone(),
            cpus: (0..machine.cpus).collect(),
            user: machine.user,
            operating_system: Some(machine.operating_system.clone()).filter(|name| !name.is_empty()),
            ..GuestFacts::default()
        }
    }

    fn start(&mut self, command: &Command) -> Result<Box<dyn Job>, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let program = command.argv.first().cloned().unwrap_or_default();
        if program == "weigh-kernels" {
            return Err(self.no_kernels());
        }
        // No output of a command begins like this, unless the command knows the time.
        let mark = format!("weighbridge-{}-{}", monotonic_ns(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = command.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(COMMAND_PATH, |(_, path)| path);
        let place = command.working_directory.as_deref().unwrap_or("/");
        let mut words: Vec<String> =
            [&self.directory, &self.name, &mark, place, &program, path].map(str::to_string).into();
        words.extend(["env".into(), "-i".into()]);
        words.extend(command.environment.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(command.argv.iter().cloned());
        let io = |error: &dyn std::fmt::Display| Refusal::new(format!("{program}: {error}"), Errno::IO);
        let log = self.log.with_extension("stderr");
        // Keeps earlier commands' errors out of this command's.
        let _ = std::fs::remove_file(&log);
        let invocation = self.target.invocation(&Script::Run(&words)).log_to(&log);
        let line = invocation.command_line();
        let mut running = invocation.spawn().map_err(|error| io(&error))?;
        let (input, output) = (running.take_input(), running.take_output());
        let output = output.ok_or_else(|| io(&"ssh has no standard output"))?;
        let mut job = RemoteJob {
            running,
            input,
            output,
            mark,
            log,
            header: format!("$ {line}\n"),
            seen: Vec::new(),
            began_ns: 0,
        };
        job.begin(&self.target)?;
        Ok(Box::new(job))
    }
}

/// A command on the other machine.
struct RemoteJob {
    running: Running,
    /// Closing it ends the command.
    input: Option<OwnedFd>,
    output: OwnedFd,
    mark: String,
    log: PathBuf,
    /// The line that the log begins with, which is not the command's.
    header: String,
    /// What was read and not passed on yet.
    seen: Vec<u8>,
    began_ns: u64,
}

/// The result of reading.
enum Read {
    Some,
    None,
    End,
}

impl RemoteJob {
    /// Waits for the script's line that the command begins.
    fn begin(&mut self, target: &Target) -> Result<(), Refusal> {
        let until = Instant::now() + BEGIN_DEADLINE;
        let line = loop {
            if let Some(end) = self.seen.iter().position(|byte| *byte == b'\n') {
                let rest = self.seen.split_off(end + 1);
                break std::mem::replace(&mut self.seen, rest);
            }
            let left = until.saturating_duration_since(Instant::now());
            let is_endless = self.seen.len() > PIECE;
            if is_endless || !is_readable(&self.output, left) || matches!(self.read(), Read::End) {
                let _ = self.running.wait(EXIT_DEADLINE);
                let said = String::from_utf8_lossy(&self.errors()).into_owned();
                return Err(Refusal::new(target.unreachable(&said).to_string(), Errno::HOSTUNREACH));
            }
        };
        self.began_ns = monotonic_ns();
        let line = String::from_utf8_lossy(&line).into_owned();
        match line.trim_end().strip_prefix(&self.mark).map(str::trim) {
            Some("started") => Ok(()),
            Some(refused) => {
                let reason = refused.strip_prefix("refused ").unwrap_or(refused);
                Err(Refusal::new(reason, Errno::NOENT))
            }
            None => Err(Refusal::new(
                format!(
                    "{} prints `{}` before anything else; its login shell must print nothing",
                    target.host,
                    line.trim()
                ),
                Errno::PROTO,
            )),
        }
    }

    fn read(&mut self) -> Read {
        let mut buffer = vec![0; PIECE];
        match rustix::io::read(&self.output, &mut buffer[..]) {
            Ok(0) => Read::End,
            Ok(n) => {
                self.seen.extend_from_slice(&buffer[..n]);
                Read::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::None,
            Err(_) => Read::End,
        }
    }

    /// The standard error of the command and of `ssh`.
    fn errors(&self) -> Vec<u8> {
        let said = weigh_host::log::tail(&self.log, weigh_host::log::LONGEST_BYTES);
        said.strip_prefix(self.header.as_bytes()).map_or_else(|| said.clone(), <[u8]>::to_vec)
    }

    /// How the command ended, if the script's last line has arrived; the command's own output stays
    /// in `seen`.
    fn last_line(&mut self) -> Option<Ended> {
        let mark = format!("\n{} ended ", self.mark);
        let at = self.seen.windows(mark.len()).rposition(|window| window == mark.as_bytes())?;
        let line = String::from_utf8_lossy(&self.seen[at + mark.len()..]).into_owned();
        let mut words = line.strip_suffix('\n')?.split_whitespace();
        let duration_ns = monotonic_ns().saturating_sub(self.began_ns);
        let status: i32 = words.next()?.parse().ok()?;
        let mut time = || words.next().and_then(clock_time_ns).unwrap_or(0);
        let resources = ResourceUse { user_ns: time(), system_ns: time(), ..ResourceUse::default() };
        self.seen.truncate(at);
        let status = match status {
            number if (SIGNALLED + 1..SIGNALLED + SIGNALS).contains(&number) => {
                Status::Signalled(number - SIGNALLED)
            }
            number => Status::Exited(number),
        };
        Some(Ended {
            status,
            duration_ns,
            resources,
            output: std::mem::take(&mut self.seen),
            error: Vec::new(),
        })
    }
}

impl Job for RemoteJob {
    fn process(&self) -> u32 {
        self.running.pid()
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    fn take(&mut self) -> Progress {
        if !is_readable(&self.output, Duration::ZERO) {
            return Progress::Output(Vec::new());
        }
        let read = self.read();
        if let Some(ended) = self.last_line() {
            self.input = None;
            // Standard error is complete once it has ended.
            let _ = self.running.wait(EXIT_DEADLINE);
            return Progress::Ended(Ended { error: self.errors(), ..ended });
        }
        if matches!(read, Read::End) {
            return Progress::Lost;
        }
        // Keeps back what may be the beginning of the last line.
        let ready = self.seen.len().saturating_sub(LAST_LINE);
        Progress::Output(self.seen.drain(..ready).collect())
    }

    fn kill(&mut self) {
        self.input = None;
    }
}

/// Parses a time in the format of the shell's `times`: `1m2.345s`.
fn clock_time_ns(text: &str) -> Option<u64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    // Some locales use a comma as decimal point.
    let seconds: f64 = seconds.replace(',', ".").parse().ok()?;
    let whole = minutes.parse::<u64>().ok()? as f64 * 60.0 + seconds;
    whole.is_finite().then_some((whole.max(0.0) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_shells_are_read() {
        assert_eq!(clock_time_ns("0m0.000000s"), Some(0));
        assert_eq!(clock_time_ns("1m2.5s"), Some(62_500_000_000));
        assert_eq!(clock_time_ns("0m0,25s"), Some(250_000_000));
        for text in ["", "1.5", "xm1s", "1m-", "m1s"] {
            assert_eq!(clock_time_ns(text), None, "{text}");
        }
    }
}
