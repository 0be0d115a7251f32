//! Requests by `pread` and `pwrite`: one in flight per thread. A single request in flight starts no
//! thread, for systems that have none.

use super::content;
use super::job::{Job, Tally};
use crate::clock::now_ns;
use crate::kernel::KernelError;
use crate::kernels::native::crew;
use crate::memory::Region;
use std::os::unix::fs::FileExt;

/// One request in flight, on this thread.
pub(super) fn one(job: &Job) -> Result<Tally, KernelError> {
    job.window.begin();
    issue(job, 0)
}

/// A thread per request in flight.
pub(super) fn threads(job: &Job) -> Result<Tally, KernelError> {
    let stop = || job.window.close(now_ns());
    let tallies = crew::run_together(job.depth, || job.window.begin(), stop, |slot| issue(job, slot))?;
    let mut all = Tally::new();
    tallies.iter().for_each(|tally| all.merge(tally));
    Ok(all)
}

/// The requests of one slot, until the window closes.
fn issue(job: &Job, slot: usize) -> Result<Tally, KernelError> {
    // O_DIRECT needs memory that is aligned like the device's sectors: the region is, and so is its
    // middle.
    let mut memory = Region::map(2 * job.block, false)?;
    let (read, written) = memory.as_mut_slice().split_at_mut(job.block);
    if job.writes() {
        content::fill_body(written, job.seed, slot);
    }
    let mut random = job.random(slot);
    let mut tally = Tally::new();
    while !job.window.is_over() {
        let request = job.next(&mut random, slot);
        if request.writes {
            content::stamp(written, request.place, request.tag);
        }
        let start_ns = now_ns();
        let moved = if request.writes {
            job.disk.file.write_at(written, request.place)
        } else {
            job.disk.file.read_at(read, request.place)
        };
        let now_ns = now_ns();
        let length = moved.map_err(|error| job.failed(request, error))?;
        job.complete(&mut tally, request, slot, length, (start_ns, now_ns));
        if !request.writes {
            job.look_at(&mut tally, request, length, read);
        }
    }
    Ok(tally)
}
