//! The requests of a run, whichever engine issues them: their places, their content, and which
//! count.

use super::content;
use super::disk::Disk;
use super::sample::Sample;
use crate::kernel::KernelError;
use crate::kernels::native::window::{Stage, Window};
use crate::kernels::{below, latencies};
use hdrhistogram::Histogram;
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Reads among a hundred requests of a mix: 70 reads to 30 writes, as in the scripts of felter-2014
/// for figure 6.
const READS_OF_MIX: usize = 70;

/// Nothing is in flight for this slot.
const NOWHERE: u64 = u64::MAX;

/// What the requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    Read,
    Write,
    Mixed,
}

impl Mix {
    pub(super) fn of(word: &str) -> Self {
        match word {
            "write" => Self::Write,
            "mixed" => Self::Mixed,
            _ => Self::Read,
        }
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) writes: bool,
    /// Offset in bytes.
    pub(super) place: u64,
    /// Distinguishes this write from all others.
    pub(super) tag: u64,
}

/// One run, shared by all threads that issue its requests. A slot is one of the requests that may
/// be in flight.
pub(super) struct Job<'a> {
    pub(super) disk: &'a Disk,
    /// Bytes of a request.
    pub(super) block: usize,
    pub(super) depth: usize,
    pub(super) seed: u64,
    pub(super) window: Window,
    pub(super) sample: Mutex<Sample>,
    pub(super) mix: Mix,
    sequential: bool,
    places: u64,
    next_place: AtomicU64,
    next_tag: AtomicU64,
    /// The place that each slot writes or reads, when there are writes: two requests in flight must
    /// not use the same place.
    busy: Vec<AtomicU64>,
}

impl<'a> Job<'a> {
    /// # Errors
    /// The disk is too short for this many requests in flight at different places.
    pub(super) fn new(
        disk: &'a Disk,
        (block, depth): (usize, usize),
        (mix, sequential): (Mix, bool),
        window: Window,
        seed: u64,
    ) -> Result<Self, KernelError> {
        let places = disk.bytes / block as u64;
        if places < 2 * depth as u64 {
            let format = weigh_model::format_bytes;
            return Err(KernelError::Unable(format!(
                "{} holds {}, too little for {depth} of {} at once at different places; it needs at least {}",
                disk.path.display(),
                format(disk.bytes),
                format(block as u64),
                format(2 * depth as u64 * block as u64)
            )));
        }
        let busy = if mix.writes() { depth } else { 0 };
        Ok(Self {
            disk,
            block,
            depth,
            seed,
            window,
            sample: Mutex::new(Sample::new(block, seed)),
            mix,
            sequential,
            places,
            next_place: AtomicU64::new(0),
            // Data of an earlier run with the same seed must not pass for data of this one.
            next_tag: AtomicU64::new(seed ^ crate::clock::now_ns()),
            busy: (0..busy).map(|_| AtomicU64::new(NOWHERE)).collect(),
        })
    }

    pub(super) fn writes(&self) -> bool {
        self.mix.writes()
    }

    /// Random numbers for the requests of `slot`.
    pub(super) fn random(&self, slot: usize) -> Pcg64Mcg {
        Pcg64Mcg::new(u128::from(self.seed) << 64 | (0x5851_f42d_4c95_7f2d ^ (slot as u128) << 1))
    }

    /// The next request of `slot`, whose last one is completed.
    pub(super) fn next(&self, random: &mut Pcg64Mcg, slot: usize) -> Request {
        let writes = match self.mix {
            Mix::Read => false,
            Mix::Write => true,
            Mix::Mixed => below(random, 100) >= READS_OF_MIX,
        };
        let place = loop {
            let index = if self.sequential {
                self.next_place.fetch_add(1, Ordering::Relaxed) % self.places
            } else {
                below(random, self.places as usize) as u64
            };
            let place = index * self.block as u64;
            if self.claim(slot, place) {
                break place;
            }
        };
        let tag = if writes { self.next_tag.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Request { writes, place, tag }
    }

    /// Claims `place` for this slot. Returns whether no other slot uses it. Two slots that claim a
    /// place at the same moment both see the other and choose another place.
    fn claim(&self, slot: usize, place: u64) -> bool {
        let Some(own) = self.busy.get(slot) else { return true };
        own.store(place, Ordering::SeqCst);
        let mut others = self.busy.iter().enumerate().filter(|(other, _)| *other != slot);
        !others.any(|(_, other)| other.load(Ordering::SeqCst) == place)
    }

    /// Counts a request of `slot` that moved `length` bytes.
    pub(super) fn complete(
        &self,
        tally: &mut Tally,
        request: Request,
        slot: usize,
        length: usize,
        (start_ns, now_ns): (u64, u64),
    ) {
        if request.writes {
            let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
            sample.note(request.place, request.tag, slot);
        }
        if let Some(own) = self.busy.get(slot) {
            own.store(NOWHERE, Ordering::SeqCst);
        }
        let direction = &mut tally.directions[usize::from(request.writes)];
        direction.requests += 1;
        direction.short += u64::from(length != self.block);
        if self.window.completed(now_ns) == Stage::Measured {
            direction.latency_ns.saturating_record(now_ns.saturating_sub(start_ns));
        }
    }

    /// Checks the content of a read.
    pub(super) fn look_at(&self, tally: &mut Tally, request: Request, length: usize, bytes: &[u8]) {
        if self.disk.stamped && length == bytes.len() && !content::belongs(bytes, request.place) {
            tally.misplaced += 1;
        }
    }

    /// Why a request failed, in words.
    pub(super) fn failed(&self, request: Request, source: std::io::Error) -> KernelError {
        let verb = if request.writes { "write" } else { "read" };
        let (block, path) = (weigh_model::format_bytes(self.block as u64), self.disk.path.display());
        let doing = format!("{verb} {block} at byte {} of {path}", request.place);
        if source.raw_os_error() == Some(libc::EINVAL) && self.disk.direct && !self.block.is_multiple_of(4096)
        {
            return KernelError::Unable(format!(
                "cannot {doing} past the page cache: its sectors are longer; give `--bytes` a multiple of 4096"
            ));
        }
        KernelError::System { doing, source }
    }
}

/// The results of the requests in one direction.
#[derive(Clone)]
pub(super) struct Direction {
    /// All completed requests, including those of the warm-up.
    pub(super) requests: u64,
    /// Requests that moved fewer bytes than they should.
    pub(super) short: u64,
    /// Latencies of the measured requests, from before submission to completion.
    pub(super) latency_ns: Histogram<u64>,
}

/// The results of one thread that issues requests.
#[derive(Clone)]
pub(super) struct Tally {
    /// Reads, then writes.
    pub(super) directions: [Direction; 2],
    /// Reads that returned other sectors than those they asked for.
    pub(super) misplaced: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        let direction = || Direction { requests: 0, short: 0, latency_ns: latencies() };
        Self { directions: [direction(), direction()], misplaced: 0 }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.directions.iter_mut().zip(&other.directions) {
            own.requests += other.requests;
            own.short += other.short;
            own.latency_ns += &other.latency_ns;
        }
        self.misplaced += other.misplaced;
    }
}
