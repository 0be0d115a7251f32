//! Requests by io_uring, any number in flight from one thread.
//!
//! The content of a read is checked after the next request is submitted, so that the disk does not
//! wait for the check.

use super::content;
use super::job::{Job, Request, Tally};
use crate::clock::now_ns;
use crate::kernel::KernelError;
use crate::memory::Region;
use io_uring::register::Probe;
use io_uring::{Builder, IoUring, opcode, types};
use std::os::fd::AsRawFd;

/// Additional buffers, for reads whose content is not checked yet.
const MOST_SPARE: usize = 32;

/// Why io_uring cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum UringError {
    #[error("this kernel has no io_uring")]
    Missing,
    #[error("io_uring is forbidden here, by a seccomp filter or by the sysctl kernel.io_uring_disabled")]
    Forbidden,
    #[error("the limit of locked memory (`ulimit -l`) is too low for io_uring")]
    LockedMemory,
    #[error("io_uring of this kernel has no plain reads and writes, which came with Linux 5.6")]
    NoPlainReads,
    #[error("io_uring cannot be set up: {0}")]
    Setup(std::io::Error),
}

impl From<std::io::Error> for UringError {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Self::Missing,
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden,
            Some(libc::ENOMEM) => Self::LockedMemory,
            _ => Self::Setup(error),
        }
    }
}

/// Opens a ring for `depth` requests.
pub(super) fn open(depth: usize) -> Result<IoUring, UringError> {
    // Settings that make completions cheaper, the newest first (io_uring_setup(2)). Kernels reject
    // unknown ones with EINVAL; without settings EINVAL is an error.
    let settings: [fn(&mut Builder); 3] = [
        // Linux 6.1.
        |builder| {
            builder.setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun();
        },
        // Linux 5.19.
        |builder| {
            builder.setup_coop_taskrun();
        },
        |_| {},
    ];
    let mut built = Err(std::io::ErrorKind::Unsupported.into());
    for setting in settings {
        let mut builder = IoUring::builder();
        setting(&mut builder);
        built = builder.build(depth as u32);
        if !built.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            break;
        }
    }
    let ring = built?;
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    if known && probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE) {
        return Ok(ring);
    }
    Err(UringError::NoPlainReads)
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    request: Request,
    buffer: usize,
    start_ns: u64,
}

/// Memory of the requests: a pool for reads, and one buffer per slot for writes.
struct Buffers {
    region: Region,
    block: usize,
    stride: usize,
    free: Vec<usize>,
    /// The first buffer for writes.
    writes: usize,
}

impl Buffers {
    fn new(job: &Job) -> Result<Self, KernelError> {
        let pool = job.depth + job.depth.min(MOST_SPARE);
        let stride = job.block.next_multiple_of(4096);
        let count = pool + if job.writes() { job.depth } else { 0 };
        let region = Region::map(count * stride, false)?;
        let mut buffers =
            Self { region, block: job.block, stride, free: (0..pool).rev().collect(), writes: pool };
        if job.writes() {
            for slot in 0..job.depth {
                content::fill_body(buffers.slice(pool + slot), job.seed, slot);
            }
        }
        Ok(buffers)
    }

    fn start(&self, buffer: usize) -> *mut u8 {
        // SAFETY: buffers are numbered so that all of them lie inside the region.
        unsafe { self.region.start().add(buffer * self.stride) }
    }

    /// A buffer that is not in flight.
    fn slice(&mut self, buffer: usize) -> &mut [u8] {
        let (start, length) = (buffer * self.stride, self.block);
        // SAFETY: inside the region, as above. The borrow excludes other slices, and the kernel
        // only uses buffers in flight, of which no slice is made.
        unsafe { std::slice::from_raw_parts_mut(self.region.start().add(start), length) }
    }
}

/// Completed reads that are not checked yet.
type Pending = Vec<(Request, usize, usize)>;

/// Issues all requests of the job, until its window closes.
pub(super) fn run(job: &Job, mut ring: IoUring) -> Result<Tally, KernelError> {
    let mut buffers = Buffers::new(job)?;
    let mut random = job.random(0);
    let mut tally = Tally::new();
    let nothing = Request { writes: false, place: 0, tag: 0 };
    let mut flights = vec![Flight { request: nothing, buffer: 0, start_ns: 0 }; job.depth];
    let mut idle: Vec<usize> = (0..job.depth).collect();
    let mut pending = Pending::with_capacity(job.depth);
    let mut failure = None;
    job.window.begin();
    loop {
        if !job.window.is_over() {
            // One call per request, as fio does it: in a batch a request would wait for those
            // before it, and the wait would count as its latency.
            for slot in idle.drain(..) {
                let request = job.next(&mut random, slot);
                let buffer = if request.writes {
                    let buffer = buffers.writes + slot;
                    content::stamp(buffers.slice(buffer), request.place, request.tag);
                    buffer
                } else {
                    free_buffer(job, &mut tally, &mut buffers, &mut pending)
                };
                flights[slot] = Flight { request, buffer, start_ns: now_ns() };
                push(job, &mut ring, &buffers, slot, flights[slot]);
                enter(&ring, 0).map_err(|error| lost(&mut buffers, error))?;
            }
        }
        if idle.len() == job.depth {
            break;
        }
        while let Some(read) = pending.pop() {
            look_at(job, &mut tally, &mut buffers, read);
        }
        enter(&ring, 1).map_err(|error| lost(&mut buffers, error))?;
        let now_ns = now_ns();
        for entry in ring.completion() {
            let slot = entry.user_data() as usize;
            let Flight { request, buffer, start_ns } = flights[slot];
            idle.push(slot);
            let Ok(length) = usize::try_from(entry.result()) else {
                let error = std::io::Error::from_raw_os_error(-entry.result());
                failure.get_or_insert(job.failed(request, error));
                // Wait for the rest: the kernel must not write to memory that has been unmapped.
                job.window.close(now_ns);
                continue;
            };
            job.complete(&mut tally, request, slot, length, (start_ns, now_ns));
            if !request.writes {
                pending.push((request, buffer, length));
            }
        }
    }
    for read in pending {
        look_at(job, &mut tally, &mut buffers, read);
    }
    failure.map_or(Ok(tally), Err)
}

fn push(job: &Job, ring: &mut IoUring, buffers: &Buffers, slot: usize, flight: Flight) {
    let (file, start, length) =
        (types::Fd(job.disk.file.as_raw_fd()), buffers.start(flight.buffer), job.block as u32);
    let entry = if flight.request.writes {
        opcode::Write::new(file, start, length).offset(flight.request.place).build()
    } else {
        opcode::Read::new(file, start, length).offset(flight.request.place).build()
    };
    // SAFETY: the file stays open and the buffer mapped, and untouched, until the completion is
    // seen: `run` waits for all of them.
    unsafe { ring.submission().push(&entry.user_data(slot as u64)) }
        .expect("the ring has room for as many as may be in flight");
}

/// A buffer to read into. If none is free, checks a pending read and reuses its buffer.
fn free_buffer(job: &Job, tally: &mut Tally, buffers: &mut Buffers, pending: &mut Pending) -> usize {
    if buffers.free.is_empty()
        && let Some(read) = pending.pop()
    {
        look_at(job, tally, buffers, read);
    }
    buffers
        .free
        .pop()
        .expect("a buffer is in flight, is pending or is free, and there are more than may be in flight")
}

fn look_at(job: &Job, tally: &mut Tally, buffers: &mut Buffers, read: (Request, usize, usize)) {
    let (request, buffer, length) = read;
    job.look_at(tally, request, length, buffers.slice(buffer));
    buffers.free.push(buffer);
}

/// Submits the queued requests, and waits for `wanted` completions.
fn enter(ring: &IoUring, wanted: usize) -> std::io::Result<()> {
    loop {
        match ring.submitter().submit_and_wait(wanted) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The ring failed while the kernel may be using buffers: their memory is never unmapped.
fn lost(buffers: &mut Buffers, error: std::io::Error) -> KernelError {
    if let Ok(other) = Region::map(0, false) {
        std::mem::forget(std::mem::replace(&mut buffers.region, other));
    }
    KernelError::System { doing: "hand requests to io_uring".into(), source: error }
}
