//! System calls of an instance, by name and by who makes them.
//!
//! The tracepoint `raw_syscalls:sys_enter` is opened for every control group of the instance, and
//! for every thread of its helpers and daemons, on every CPU. The events count, so totals are exact,
//! and write a sample of each call into one ring buffer per CPU, which a thread reads. While they
//! are open, every system call of the host takes the kernel's slow path, so nothing is measured
//! meanwhile. The kernel drops all of it with the descriptors.

mod ring;
mod tracepoint;

use crate::perf::{Attributes, CGROUP, CLOSE_ON_EXEC, directory, online_cpus, perf_event_open};
use ring::{Call, NO_CALL, Ring, calls};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracepoint::Tracepoint;
use weigh_host::accounts::Accounts;
use weigh_model::{Caller, CallerCalls};

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// `PERF_SAMPLE_IDENTIFIER`, `PERF_SAMPLE_RAW` for the number of the call, and
/// `PERF_SAMPLE_REGS_USER`, which says whether the program is a 32-bit one.
const SAMPLE_TYPE: u64 = 1 << 16 | 1 << 10 | 1 << 12;
/// `PERF_FORMAT_ID`.
const WITH_ID: u64 = 4;
/// Flags `disabled` and `inherit` of `struct perf_event_attr`.
const DISABLED: u64 = 1;
const INHERIT: u64 = 2;
/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_OUTPUT`.
const ENABLE: u32 = 0x2400;
const DISABLE: u32 = 0x2401;
const SET_OUTPUT: u32 = 0x2405;
/// Pause of the reader, in which a buffer does not fill.
const PAUSE: Duration = Duration::from_millis(2);
/// The highest priority of a time-sharing thread (`nice(2)`): the reader shares CPUs with the guest.
const NICE: i32 = -20;

/// Counts the system calls of an instance.
pub trait CountCalls {
    /// Starts to count, or goes on.
    fn begin(&mut self);

    /// Pauses.
    fn end(&mut self);

    /// The calls that were counted, by caller.
    ///
    /// # Errors
    /// A counter could not be controlled or read.
    fn finish(self: Box<Self>) -> Result<Vec<CallerCalls>, CallsError>;
}

/// Why system calls cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// The sensors do not count.
    #[error("these sensors do not count system calls")]
    NoSensor,
    /// The accounts are empty.
    #[error("the platform names neither a control group nor a process of the guest on this host")]
    NoGuest,
    /// The tracepoint is not there or may not be used.
    #[error(
        "the tracepoint raw_syscalls:sys_enter cannot be found ({0}); it takes root, and a kernel with CONFIG_FTRACE_SYSCALLS"
    )]
    Tracepoint(io::Error),
    /// The kernel refused an event.
    #[error("the kernel refused to count system calls of {0}: {1}")]
    Event(String, io::Error),
    /// A counter that was open failed.
    #[error("a counter of system calls failed: {0}")]
    Counter(io::Error),
}

/// A caller and the program that it is, as [`CallerCalls`] has them.
type Source = (Caller, Option<String>);

/// The open events of an instance.
#[derive(Debug)]
pub(crate) struct CallCounter {
    /// The events with their numbers, and whose calls they count, as a place in `sources`.
    events: Vec<(File, u64, usize)>,
    sources: Vec<Source>,
    reader: Reader,
    /// The first failure of a control.
    failed: Option<io::Error>,
}

impl CallCounter {
    /// Opens the events, which do not count yet.
    pub(crate) fn open(root: &Path, accounts: &Accounts) -> Result<Self, CallsError> {
        let Tracepoint { number, call_at } = Tracepoint::find().map_err(CallsError::Tracepoint)?;
        let cpus = online_cpus(root).ok_or_else(|| CallsError::Counter(io::ErrorKind::NotFound.into()))?;
        let mut opening = Opening {
            tracepoint: number,
            cpus,
            events: Vec::new(),
            sources: Vec::new(),
            rings: BTreeMap::new(),
        };
        for group in &accounts.groups {
            let guest = (Caller::Guest, None);
            match directory(group).and_then(|directory| File::open(directory).ok()) {
                Some(directory) => opening.group(guest, &directory)?,
                // Whatever these processes start belongs to them.
                None => group.processes().iter().try_for_each(|pid| opening.process(guest.clone(), *pid))?,
            }
        }
        for pid in &accounts.processes {
            opening.process((Caller::Guest, None), *pid)?;
        }
        if opening.events.is_empty() {
            return Err(CallsError::NoGuest);
        }
        for (caller, processes) in [(Caller::Helper, &accounts.helpers), (Caller::Daemon, &accounts.daemons)]
        {
            for process in processes {
                opening.process((caller, Some(process.name.clone())), process.pid)?;
            }
        }
        let Opening { events, sources, rings, .. } = opening;
        let reader = Reader::start(rings.into_values().map(|(_, ring)| ring).collect(), call_at);
        Ok(Self { events, sources, reader: reader.map_err(CallsError::Counter)?, failed: None })
    }

    fn control(&mut self, request: u32) {
        for (event, _, _) in &self.events {
            if let Err(error) = control(event, request, 0) {
                self.failed.get_or_insert(error);
            }
        }
    }
}

impl CountCalls for CallCounter {
    fn begin(&mut self) {
        self.control(ENABLE);
    }

    fn end(&mut self) {
        self.control(DISABLE);
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<CallerCalls>, CallsError> {
        self.control(DISABLE);
        if let Some(error) = self.failed.take() {
            return Err(CallsError::Counter(error));
        }
        let Self { events, sources, mut reader, .. } = *self;
        let counts = events.iter().map(|(event, id, source)| Ok((*id, *source, count(event)?.0)));
        let counts = counts.collect::<io::Result<Vec<_>>>().map_err(CallsError::Counter)?;
        Ok(callers(sources, &counts, reader.stop()))
    }
}

/// The calls of each source. `counts` has the number of each event, the place of its source, and its
/// exact count; `named` has the calls that the buffers held.
fn callers(
    sources: Vec<Source>,
    counts: &[(u64, usize, u64)],
    named: BTreeMap<Call, u64>,
) -> Vec<CallerCalls> {
    let none = |(caller, program)| CallerCalls { caller, program, total: 0, calls: BTreeMap::new(), lost: 0 };
    let mut found: Vec<CallerCalls> = sources.into_iter().map(none).collect();
    for (_, source, count) in counts {
        found[*source].total += count;
    }
    let owners: HashMap<u64, usize> = counts.iter().map(|(id, source, _)| (*id, *source)).collect();
    for (call, count) in named {
        if let Some(source) = owners.get(&call.event) {
            *found[*source].calls.entry(name(call)).or_default() += count;
        }
    }
    for caller in &mut found {
        caller.lost = caller.total.saturating_sub(caller.calls.values().sum());
    }
    found
}

/// Events that are being opened.
struct Opening {
    tracepoint: u64,
    cpus: Vec<i32>,
    events: Vec<(File, u64, usize)>,
    sources: Vec<Source>,
    /// The buffer of each CPU, and the place of the event that has it.
    rings: BTreeMap<i32, (usize, Ring)>,
}

impl Opening {
    /// Opens events for a control group and the groups below it.
    fn group(&mut self, source: Source, directory: &File) -> Result<(), CallsError> {
        let of_source = self.place(source);
        for cpu in self.cpus.clone() {
            let attributes = self.attributes(DISABLED);
            let opened = perf_event_open(attributes, directory.as_raw_fd(), cpu, CGROUP);
            opened
                .and_then(|event| self.add(event, cpu, of_source))
                .map_err(|error| CallsError::Event("the guest's control group".into(), error))?;
        }
        Ok(())
    }

    /// Opens events for the threads of a process and everything that they will start. A thread that
    /// has ended is no error.
    fn process(&mut self, source: Source, pid: u32) -> Result<(), CallsError> {
        let of_source = self.place(source);
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let threads: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        for thread in threads {
            for cpu in self.cpus.clone() {
                let attributes = self.attributes(DISABLED | INHERIT);
                match perf_event_open(attributes, thread, cpu, CLOSE_ON_EXEC) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                    opened => opened
                        .and_then(|event| self.add(event, cpu, of_source))
                        .map_err(|error| CallsError::Event(format!("process {pid}"), error))?,
                }
            }
        }
        Ok(())
    }

    fn attributes(&self, flags: u64) -> Attributes {
        Attributes {
            kind: TRACEPOINT,
            config: self.tracepoint,
            sample_period: 1,
            flags,
            sample_type: SAMPLE_TYPE,
            read_format: WITH_ID,
            // Any register will do.
            sample_regs_user: 1,
            ..Attributes::default()
        }
    }

    fn place(&mut self, source: Source) -> usize {
        self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        })
    }

    /// Adds an event, whose samples go into the buffer of its CPU.
    fn add(&mut self, event: File, cpu: i32, source: usize) -> io::Result<()> {
        match self.rings.get(&cpu) {
            Some((first, _)) => control(&event, SET_OUTPUT, self.events[*first].0.as_raw_fd())?,
            None => {
                let ring = Ring::map(&event)?;
                self.rings.insert(cpu, (self.events.len(), ring));
            }
        }
        let (_, id) = count(&event)?;
        self.events.push((event, id, source));
        Ok(())
    }
}

/// The thread that reads the buffers.
#[derive(Debug)]
struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeMap<Call, u64>>>,
}

impl Reader {
    /// `call_at` is the offset of the number of the call in the raw data of a sample.
    fn start(rings: Vec<Ring>, call_at: usize) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let read = move || {
            // Without the right to it, the thread has the usual priority, and may lose calls.
            let _ = rustix::process::setpriority_process(None, NICE);
            let mut counts = HashMap::new();
            let mut records = Vec::new();
            loop {
                // What comes before the order to stop is in the buffers by then.
                let last = told.load(Ordering::Acquire);
                for ring in &rings {
                    records.clear();
                    ring.drain(&mut records);
                    calls(&records, call_at).for_each(|call| *counts.entry(call).or_default() += 1);
                }
                if last {
                    return counts.into_iter().collect();
                }
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("weigh-calls".into()).spawn(read)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread, and returns how often it read each call.
    fn stop(&mut self) -> BTreeMap<Call, u64> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The count of an event and its number.
fn count(mut event: &File) -> io::Result<(u64, u64)> {
    let mut record = [0; 16];
    event.read_exact(&mut record)?;
    let [count, id] = [0, 8].map(|at| record[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes));
    Ok((count, id))
}

fn control(event: &File, request: u32, argument: i32) -> io::Result<()> {
    // SAFETY: these requests take a number and no pointer, and the descriptor is open.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The name of a call on this architecture.
fn name(call: Call) -> String {
    let Call { number, is_32_bit, .. } = call;
    let known = usize::try_from(number).ok().and_then(syscalls::Sysno::new);
    match known {
        _ if number >= NO_CALL => "no call".into(),
        _ if is_32_bit => format!("32-bit call {number}"),
        Some(known) => known.name().into(),
        None => format!("call {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_this_architecture() {
        let name = |number: i64, is_32_bit| name(Call { event: 0, number: number as u64, is_32_bit });
        assert_eq!(name(libc::SYS_getppid, false), "getppid");
        assert_eq!(name(libc::SYS_clone3, false), "clone3");
        assert_eq!(name(1_000, false), "call 1000");
        assert_eq!(name(1_024, false), "no call");
        assert_eq!(name(20, true), "32-bit call 20");
    }

    #[test]
    fn what_the_buffers_lost_is_the_rest_of_the_exact_count() {
        let sources = vec![(Caller::Guest, None), (Caller::Helper, Some("shim".to_string()))];
        let call = |event, number: i64| Call { event, number: number as u64, is_32_bit: false };
        let named = BTreeMap::from([
            (call(1, libc::SYS_read), 5),
            (call(2, libc::SYS_read), 3),
            (call(3, libc::SYS_write), 2),
            (call(99, libc::SYS_write), 7),
        ]);
        let found = callers(sources, &[(1, 0, 6), (2, 0, 3), (3, 1, 2)], named);
        let [guest, helper] = &found[..] else { panic!("{found:?}") };
        assert_eq!((guest.total, guest.lost, &guest.calls), (9, 1, &BTreeMap::from([("read".into(), 8)])));
        assert_eq!((helper.total, helper.lost, helper.program.as_deref()), (2, 0, Some("shim")));
    }

    #[test]
    fn an_instance_without_processes_cannot_be_counted() {
        let opened = CallCounter::open(Path::new("/"), &Accounts::default());
        assert!(matches!(opened, Err(CallsError::NoGuest | CallsError::Tracepoint(_))), "{opened:?}");
    }
}
