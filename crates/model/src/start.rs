//! What `weigh start` measures: a workload that is no command in a guest, but the coming up of
//! guests.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names of the metrics of a start, as plans and samples have them.
pub mod stamps {
    /// From the start of the platform's first program to the first instruction of ours in the
    /// guest, seconds.
    pub const CODE: &str = "start_to_code";
    /// To the guest being initialised: the probe answers, and where the guest has an init of its
    /// own, its services are up. Seconds.
    pub const INIT: &str = "start_to_init";
    /// To a server in the guest saying that it listens, seconds.
    pub const SERVICE: &str = "start_to_service";
    /// To its first response, read by a client outside of the guest over the platform's own
    /// network, seconds.
    pub const RESPONSE: &str = "start_to_response";
    /// From asking for the guest's end to everything of it being gone, seconds.
    pub const STOP: &str = "stop";
    /// Of guests that are started at once: from the first start to the last guest's init, seconds.
    pub const ALL_INIT: &str = "all_to_init";
    /// The slowest of them, from its own start to its init, seconds.
    pub const SLOWEST_INIT: &str = "slowest_to_init";
    /// From asking for the end of all of them to everything being gone, seconds.
    pub const ALL_STOP: &str = "all_stop";
    /// Guests started and removed per second.
    pub const RATE: &str = "guest_rate";
    /// From the start of the platform's first program to the answer of a guest that is restored
    /// from its saved state, seconds.
    pub const RESTORE: &str = "restore_to_init";
    /// Saving the state of a guest, seconds.
    pub const SAVE: &str = "save";
    /// Of a machine: from the start of the platform's first program to the machine being let go,
    /// seconds.
    pub const BOOT_VMM: &str = "boot_vmm";
    /// From there to the start of the kernel's clock, seconds.
    pub const BOOT_FIRMWARE: &str = "boot_firmware";
    /// From there to the first instruction of the first program, by the guest's own clock, seconds.
    pub const BOOT_KERNEL: &str = "boot_kernel";
    /// From there to the guest being initialised, seconds.
    pub const BOOT_USER: &str = "boot_user";
    /// How far off the two borders may be that are known in the guest's clock, seconds: half of the
    /// best round trip.
    pub const BOOT_BOUND: &str = "boot_clock_bound";
    /// What a machine's coming up is made of, in order, and the bound of its inner borders.
    pub const BOOT: [&str; 5] = [BOOT_VMM, BOOT_FIRMWARE, BOOT_KERNEL, BOOT_USER, BOOT_BOUND];
    /// Of a pod: from the start of the platform's first program to the cluster having taken the pod,
    /// seconds. The other stages of a pod begin there, too.
    pub const POD_CREATED: &str = "pod_created";
    /// To the cluster saying which node has it, seconds.
    pub const POD_SCHEDULED: &str = "pod_scheduled";
    /// To the first process of its sandbox, seconds.
    pub const POD_SANDBOX: &str = "pod_sandbox";
    /// To the first process of its container, seconds.
    pub const POD_STARTED: &str = "pod_started";
    /// To the cluster saying that its container runs, seconds.
    pub const POD_RUNNING: &str = "pod_running";
    /// The stages of a pod's coming up, in order.
    pub const POD: [&str; 5] = [POD_CREATED, POD_SCHEDULED, POD_SANDBOX, POD_STARTED, POD_RUNNING];
}

/// Names of the metrics of a footprint, as plans and samples have them. All are per guest unless
/// they say otherwise.
pub mod weights {
    /// What is charged: proportional set size of the guest and its helpers, and what the kernel
    /// keeps for its control group. Bytes.
    pub const FOOTPRINT: &str = "footprint";
    /// Proportional set size of the guest: of its processes, or of the monitor of a machine with
    /// all the machine's memory. Bytes.
    pub const GUEST: &str = "guest_pss";
    /// Proportional set size of the helpers that serve this guest alone: shims, proxies, monitors.
    /// Bytes.
    pub const HELPERS: &str = "helpers_pss";
    /// What the kernel keeps for the guest's control group. Bytes.
    pub const KERNEL: &str = "kernel_memory";
    /// Page tables of guest and helpers, a part of the former. Bytes.
    pub const PAGE_TABLES: &str = "page_tables";
    /// Page cache charged to the guest's control group; it is not in the footprint. Bytes.
    pub const CACHE: &str = "page_cache";
    /// How much less memory the host has available. Bytes.
    pub const AVAILABLE: &str = "available_drop";
    /// Proportional set size of the platform's daemons, all together and not per guest. Bytes.
    pub const DAEMONS: &str = "daemons_pss";
    /// Memory that the kernel's merging of equal pages saves, all together and not per guest.
    /// Bytes.
    pub const MERGED: &str = "merged";
    /// CPU time of the kernel's merging from the last guest being up to the reading, all together.
    /// Seconds.
    pub const MERGING_CPU: &str = "merging_cpu";
    /// From the last guest being up to their memory standing still, seconds.
    pub const SETTLING: &str = "settle_time";
}

/// What is done in one trial of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPlan {
    /// What is started.
    pub what: Started,
    /// What of it the host's page cache may hold.
    pub caches: Caches,
}

/// What a trial starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Started {
    /// One fresh guest, stamp by stamp up to the first response of a service, and its end.
    One,
    /// Guests at once, up to the init of the last, and their end.
    AtOnce {
        /// How many.
        guests: u32,
    },
    /// Guests one after the other in several lanes, each removed as soon as it is up.
    Churn {
        /// Lanes.
        concurrency: u32,
        /// Guests in all.
        guests: u32,
    },
    /// A guest that was saved before.
    Restored,
    /// Guests that come up at once and are left alone until their memory stands still; then it is
    /// read.
    Footprint {
        /// How many.
        guests: u32,
        /// Whether their pages are then scanned for equal ones.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        duplicates: bool,
    },
}

/// What the host's page cache may hold when a guest is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Whatever the starts before left there.
    Warm,
    /// Nothing: it is dropped before every trial, in every environment.
    Cold,
}

impl Caches {
    /// Every word, the default first.
    pub const WORDS: [&'static str; 2] = ["warm", "cold"];

    /// The one of that name.
    pub fn parse(word: &str) -> Option<Self> {
        crate::spelling::variant(word)
    }
}

impl fmt::Display for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in Caches::WORDS {
            assert_eq!(Caches::parse(word).unwrap().to_string(), word);
        }
        assert_eq!(Caches::parse("tepid"), None);
    }
}
