//! A sample of the writes, to be read back: the last write to each of as many places as fit.

use super::content;
use super::job::Job;
use crate::kernel::KernelError;
use crate::kernels::below;
use crate::memory::Region;
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;

/// The most bytes that are read back.
const BYTES: u64 = 16 << 20;

/// The least number of places that are read back, if that many were written.
const LEAST_PLACES: u64 = 16;

/// The last write to a place.
#[derive(Debug, Clone, Copy)]
struct Written {
    place: u64,
    tag: u64,
    slot: usize,
}

/// Places chosen by reservoir sampling (Vitter, 1985), each with its last write.
pub(super) struct Sample {
    capacity: usize,
    seen: u64,
    entries: Vec<Written>,
    index: HashMap<u64, usize>,
    random: Pcg64Mcg,
}

/// The result of reading back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadBack {
    /// Places that were read.
    pub(super) places: u64,
    /// Places that did not hold what was last written to them.
    pub(super) wrong: u64,
}

impl Sample {
    pub(super) fn new(block: usize, seed: u64) -> Self {
        let capacity = (BYTES / block as u64).clamp(LEAST_PLACES, 1 << 16) as usize;
        let random = Pcg64Mcg::new(u128::from(seed) << 1 | 1);
        Self { capacity, seen: 0, entries: Vec::new(), index: HashMap::new(), random }
    }

    /// Records a completed write. Writes to the same place must be recorded in their order.
    pub(super) fn note(&mut self, place: u64, tag: u64, slot: usize) {
        let written = Written { place, tag, slot };
        self.seen += 1;
        if let Some(at) = self.index.get(&place) {
            self.entries[*at] = written;
            return;
        }
        let at = if self.entries.len() < self.capacity {
            self.entries.push(written);
            self.entries.len() - 1
        } else {
            let at = below(&mut self.random, self.seen as usize);
            if at >= self.capacity {
                return;
            }
            self.index.remove(&self.entries[at].place);
            self.entries[at] = written;
            at
        };
        self.index.insert(place, at);
    }

    #[cfg(test)]
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|written| written.tag)
    }

    /// Reads every place of the sample and compares it byte for byte.
    pub(super) fn read_back(&self, job: &Job) -> Result<ReadBack, KernelError> {
        let mut memory = Region::map(2 * job.block, false)?;
        let (expected, found) = memory.as_mut_slice().split_at_mut(job.block);
        let mut entries: Vec<&Written> = self.entries.iter().collect();
        entries.sort_by_key(|written| (written.slot, written.place));
        let mut wrong = 0;
        let mut filled = None;
        for written in &entries {
            if filled != Some(written.slot) {
                content::fill_body(expected, job.seed, written.slot);
                filled = Some(written.slot);
            }
            content::stamp(expected, written.place, written.tag);
            found.fill(0);
            let length = job
                .disk
                .file
                .read_at(found, written.place)
                .map_err(KernelError::system("read a write back"))?;
            wrong += u64::from(length != found.len() || found != expected);
        }
        Ok(ReadBack { places: entries.len() as u64, wrong })
    }
}
