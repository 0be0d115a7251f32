//! Checks that a disk workload measured a disk.

use super::Failure;
use super::watch::DISK_READS;
use weigh_model::{FailureKind, Iteration, Observed};

/// The share of a workload's random reads that the host's device must have seen (method
/// specification, "Workload checks").
const SEEN_BY_DEVICE: f64 = 0.95;

/// Counters of [`weigh_model::Charge::counters`] of what devices read: the host's for everybody,
/// and any for the guest. Reads by others can make the first too large, and a device that is itself
/// cached can make the second too large. So every counter that exists must show the reads.
const DEVICE_READS: [&str; 2] = ["host_device_read_bytes", GUEST_READS];
const GUEST_READS: &str = "block_read_bytes";

/// The factor, and the additional bytes for programs that are loaded, by which the device's reads
/// for a guest may exceed what its commands report to have read. If a host reads ahead of random
/// reads, they pass through its page cache, which may also have answered some.
const READ_AHEAD: (f64, f64) = (1.05, 1_048_576.0);

/// Whether the host's device saw what the workload says it read at random places of a disk.
pub(super) fn check_device_reads(
    iterations: &[Iteration],
    observed: Option<&Observed>,
) -> Result<(), Failure> {
    let claimed: Vec<u64> = iterations.iter().filter_map(|iteration| iteration.random_read_bytes).collect();
    if claimed.is_empty() {
        return Ok(());
    }
    let claimed = claimed.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let counters = observed.map(|observed| &observed.charge.counters);
    let seen: Vec<(&str, u64)> =
        DEVICE_READS.iter().filter_map(|name| Some((*name, *counters?.get(*name)?))).collect();
    let failed = |reason| Err(Failure::new(FailureKind::Check, reason));
    if seen.is_empty() {
        return failed(format!(
            "the command reports {claimed} bytes of random reads, but what the host's device saw cannot be read here: \
             a cache may have been measured"
        ));
    }
    let fits = |(name, seen): &(&str, u64)| {
        let (seen, claimed) = (*seen as f64, claimed as f64);
        let ahead = *name == GUEST_READS && seen > claimed * READ_AHEAD.0 + READ_AHEAD.1;
        seen >= claimed * SEEN_BY_DEVICE && !ahead
    };
    match seen.iter().find(|seen| !fits(seen)) {
        None => Ok(()),
        Some((_, seen)) => {
            let of_machine = counters.and_then(|counters| counters.get(DISK_READS));
            let whose = match of_machine {
                _ if *seen > claimed => "a cache of the host read ahead",
                Some(read) if *read as f64 >= claimed as f64 * SEEN_BY_DEVICE => {
                    "the machine asked its disk for them, and a cache of the host was measured"
                }
                Some(_) => "a cache in the machine was measured",
                None => "a cache was measured",
            };
            failed(format!(
                "the command reports {claimed} bytes of random reads, but the host's device saw {seen}: {whose}; \
                 use a file larger than the caches, direct access, and for a machine `cache=none`"
            ))
        }
    }
}
