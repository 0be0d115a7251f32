//! What a process may do, for another process that is to be able to do no more.

use super::SpawnError;
use crate::privileges::WITHOUT_DEVICES;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use std::io;
use std::time::{Duration, Instant};
use weigh_host::accounts::process_text;

// Requests of `ptrace(2)`, and the event that shows the stop which INTERRUPT asks for.
const SEIZE: libc::c_long = 0x4206;
const INTERRUPT: libc::c_long = 0x4207;
const DETACH: libc::c_long = 17;
const SECCOMP_GET_FILTER: libc::c_long = 0x420c;
const EVENT_STOP: libc::c_int = 128;

/// Filters that are read of one process at most. The kernel's own limit is on their total length.
const MOST_FILTERS: usize = 64;

/// How long a process may take to stop, for its filters to be read.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// The rights of a process, as far as an exec keeps them: its capability bounding set, whether it
/// may gain privileges, and its filters of system calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    capabilities: CapabilitySet,
    no_new_privileges: bool,
    /// The oldest first, as they have to be installed.
    filters: Vec<Filter>,
}

/// A filter of system calls: instructions, each the eight bytes of a `struct sock_filter`
/// (`seccomp(2)`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter(Vec<u64>);

impl Rights {
    /// The rights of root in a guest for which no program but weighbridge puts up any walls.
    pub(super) const OF_A_GUEST: &'static Self =
        &Self { capabilities: WITHOUT_DEVICES, no_new_privileges: false, filters: Vec::new() };

    /// Returns the rights of a process. If it has filters of system calls, it stands still while
    /// they are read.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not show its filters: it must have been built with
    /// `CONFIG_CHECKPOINT_RESTORE`, and this process must be root and have no filter itself.
    pub(super) fn of(pid: u32) -> Result<Self, SpawnError> {
        let file = format!("/proc/{pid}/status");
        let status = process_text(&file).map_err(SpawnError::at(format!("read {file}")))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim).unwrap_or_default()
        };
        let bits = u64::from_str_radix(field("CapBnd"), 16);
        let bits = bits.map_err(|error| SpawnError::at(format!("read {file}"))(io::Error::other(error)))?;
        let filters = if field("Seccomp") == "2" {
            filters(pid).map_err(SpawnError::at("read the filter of system calls of the guest's init"))?
        } else {
            Vec::new()
        };
        Ok(Self {
            capabilities: CapabilitySet::from_bits_retain(bits),
            no_new_privileges: field("NoNewPrivs") == "1",
            filters,
        })
    }

    /// Takes away from this thread what the process may not do. Makes only system calls.
    ///
    /// What counts is what an exec as root gives: the bounding set and the inheritable set
    /// (`capabilities(7)`).
    pub(super) fn confine(&self) -> Result<(), Errno> {
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if self.capabilities.contains(capability) {
                continue;
            }
            match remove_capability_from_bounding_set(capability) {
                // The kernel does not know it: nobody has it.
                Err(Errno::INVAL) => {}
                other => other?,
            }
        }
        let mut sets = rustix::thread::capabilities(None)?;
        sets.inheritable = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets)?;
        if self.no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
        }
        self.filters.iter().try_for_each(Filter::install)
    }
}

impl Filter {
    fn install(&self) -> Result<(), Errno> {
        let length = u16::try_from(self.0.len()).map_err(|_| Errno::INVAL)?;
        let program = libc::sock_fprog { len: length, filter: self.0.as_ptr().cast_mut().cast() };
        // SAFETY: the program is valid for the call, which copies the instructions.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
        if result == 0 { Ok(()) } else { Err(super::step::last_errno()) }
    }
}

/// Reads the filters of a process, which stands still meanwhile.
fn filters(pid: u32) -> io::Result<Vec<Filter>> {
    let traced = Traced::stop(pid)?;
    let mut filters = Vec::new();
    while filters.len() < MOST_FILTERS {
        match traced.filter(filters.len()) {
            Ok(filter) => filters.push(filter),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("it has more than {MOST_FILTERS} filters")))
}

/// A process that this thread has stopped, and that goes on when this is dropped.
struct Traced {
    pid: libc::pid_t,
    /// A signal that was to be delivered to it.
    signal: libc::c_int,
}

impl Traced {
    fn stop(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
        trace(SEIZE, pid, 0, 0)?;
        trace(INTERRUPT, pid, 0, 0)?;
        let end = Instant::now() + weigh_host::deadlines::scaled(STOP_DEADLINE);
        while Instant::now() < end {
            let mut status = 0;
            // SAFETY: the status is valid for the call.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            match waited {
                0 => std::thread::sleep(Duration::from_micros(100)),
                -1 => return Err(io::Error::last_os_error()),
                _ if libc::WIFSTOPPED(status) => {
                    // Beside the stop that was asked for, it may be one before a signal is
                    // delivered ("PTRACE_EVENT_STOP" in ptrace(2)).
                    let asked_for = status >> 16 == EVENT_STOP;
                    let signal = if asked_for { 0 } else { libc::WSTOPSIG(status) };
                    return Ok(Self { pid, signal });
                }
                _ => return Err(io::Error::from(io::ErrorKind::NotFound)),
            }
        }
        Err(io::Error::from(io::ErrorKind::TimedOut))
    }

    /// Reads a filter; 0 is the oldest.
    fn filter(&self, index: usize) -> io::Result<Filter> {
        // Without an address only the number of instructions is returned.
        let length = trace(SECCOMP_GET_FILTER, self.pid, index, 0)?;
        let mut instructions = vec![0_u64; length];
        // The process stands still, so that its filter is as long as before.
        trace(SECCOMP_GET_FILTER, self.pid, index, instructions.as_mut_ptr() as usize)?;
        Ok(Filter(instructions))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = trace(DETACH, self.pid, 0, self.signal as usize);
    }
}

/// Calls `ptrace(2)`, and returns what the kernel returns.
fn trace(request: libc::c_long, pid: libc::pid_t, address: usize, data: usize) -> io::Result<usize> {
    // SAFETY: of the requests used here only SECCOMP_GET_FILTER writes, to as many instructions at `data` as
    // the filter has.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, pid, address, data) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process with two filters of its own and without one capability, and one that is confined
    /// like it.
    #[test]
    fn a_process_is_confined_to_the_rights_of_another() {
        if !weigh_host::facts::is_root() {
            eprintln!("SKIPPED a_process_is_confined_to_the_rights_of_another: needs root");
            return;
        }
        let instruction = |code: u16, k: u32| {
            let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), k.to_ne_bytes());
            u64::from_ne_bytes([a, b, 0, 0, c, d, e, f])
        };
        // "return" and "jump" of BPF; both filters allow every call.
        let (allow, jump) = (instruction(6, libc::SECCOMP_RET_ALLOW), instruction(5, 0));
        let rights = Rights {
            capabilities: CapabilitySet::all() - CapabilitySet::SYS_BOOT,
            no_new_privileges: true,
            filters: vec![Filter(vec![allow]), Filter(vec![jump, allow])],
        };
        let confined = |rights: &Rights| {
            use std::os::unix::process::CommandExt;
            let rights = rights.clone();
            #[expect(clippy::disallowed_methods, reason = "it acts between fork and exec")]
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null());
            // SAFETY: only system calls are made between fork and exec.
            unsafe { command.pre_exec(move || rights.confine().map_err(Into::into)) };
            command.spawn().unwrap()
        };
        let mut first = confined(&rights);
        let read = Rights::of(first.id()).unwrap();
        assert_eq!(read.filters, rights.filters);
        assert!(read.no_new_privileges);
        assert!(!read.capabilities.contains(CapabilitySet::SYS_BOOT));
        assert!(read.capabilities.contains(CapabilitySet::SYS_ADMIN));
        let mut second = confined(&read);
        assert_eq!(Rights::of(second.id()).unwrap(), read);
        for process in [&mut first, &mut second] {
            // It went on after it was looked at.
            assert_eq!(process.try_wait().unwrap(), None);
            process.kill().unwrap();
            process.wait().unwrap();
        }
        let gone = Rights::of(first.id()).unwrap_err();
        assert!(gone.to_string().contains("status"), "{gone}");
    }
}
