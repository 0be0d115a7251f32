//! What `weigh start` measures: a workload that is not a command in a guest, but the start of
//! guests.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names of the metrics of a start, as plans and samples have them.
pub mod stamps {
    /// From the start of the platform's first program to weighbridge's first instruction in the
    /// guest, seconds.
    pub const CODE: &str = "start_to_code";
    /// From the same start to the guest being initialised: the probe answers and, if the guest has
    /// its own init, its services are up. Seconds.
    pub const INIT: &str = "start_to_init";
    /// From the same start to a server in the guest reporting that it listens, seconds.
    pub const SERVICE: &str = "start_to_service";
    /// From the same start to its first response, read by a client outside of the guest over the
    /// platform's own network, seconds.
    pub const RESPONSE: &str = "start_to_response";
    /// From the request to stop the guest to everything of it being gone, seconds.
    pub const STOP: &str = "stop";
    /// For guests that are started at once: from the first start to the last guest's init, seconds.
    pub const ALL_INIT: &str = "all_to_init";
    /// The slowest of several guests, from its own start to its init, seconds.
    pub const SLOWEST_INIT: &str = "slowest_to_init";
    /// From the request to stop all of them to everything being gone, seconds.
    pub const ALL_STOP: &str = "all_stop";
    /// Guests started and removed per second.
    pub const RATE: &str = "guest_rate";
    /// From the start of the platform's first program to the answer of a guest that is restored
    /// from its saved state, seconds.
    pub const RESTORE: &str = "restore_to_init";
    /// The slowest of several restored guests, seconds.
    pub const SLOWEST_RESTORE: &str = "slowest_restore_to_init";
    /// Saving the state of a guest, seconds.
    pub const SAVE: &str = "save";
    /// In a running guest: from the start of the platform's own client, or the request to the agent
    /// of a machine, to the first output of the program that it runs there, seconds.
    pub const EXEC_OUTPUT: &str = "exec_to_output";
    /// From the same start to the end of the program and the client, seconds.
    pub const EXEC_END: &str = "exec_to_end";
    /// From the start of the platform's first program to the first output of the first program that
    /// the client runs in the guest, seconds: [`INIT`] and [`EXEC_FIRST`] of one guest, without what
    /// weighbridge does between the two. Elsewhere called time to interactive (TTI).
    pub const EXEC: &str = "start_to_exec";
    /// [`EXEC_OUTPUT`] of the first program in a fresh guest.
    pub const EXEC_FIRST: &str = "first_exec_to_output";
    /// The slowest [`EXEC_OUTPUT`] of the others in the guest.
    pub const EXEC_SLOWEST: &str = "slowest_exec_to_output";
    /// In a running guest: from the start of the platform's own client, or the request to the agent
    /// of a machine, to the first output of a shell that is started there on a terminal, seconds.
    pub const EXEC_PROMPT: &str = "exec_to_prompt";
    /// From the start of the platform's first program to the first output of a shell on a terminal,
    /// where it is the first program that the client runs in the guest, seconds: a sum, as [`EXEC`]
    /// is.
    pub const PROMPT: &str = "start_to_prompt";
    /// In a running guest: from the start of the platform's own client to the end of a program that
    /// writes the client's input to a file, seconds.
    pub const COPY_IN: &str = "copy_in";
    /// From the same start to the end of a program that writes the file to the client's output,
    /// seconds.
    pub const COPY_OUT: &str = "copy_out";
    /// Stage of a virtual machine: from the start of the platform's first program to the start of
    /// the machine's execution, seconds.
    pub const BOOT_VMM: &str = "boot_vmm";
    /// From there to the start of the kernel's clock, seconds.
    pub const BOOT_FIRMWARE: &str = "boot_firmware";
    /// From there to the first instruction of the first program, by the guest's own clock, seconds.
    pub const BOOT_KERNEL: &str = "boot_kernel";
    /// From there to the guest being initialised, seconds.
    pub const BOOT_USER: &str = "boot_user";
    /// Uncertainty of the two boundaries that are known in the guest's clock, seconds: half of the
    /// best round trip.
    pub const BOOT_BOUND: &str = "boot_clock_bound";
    /// The stages of a virtual machine's boot, in order, and [`BOOT_BOUND`].
    pub const BOOT: [&str; 5] = [BOOT_VMM, BOOT_FIRMWARE, BOOT_KERNEL, BOOT_USER, BOOT_BOUND];
    /// Stage of a pod: from the start of the platform's first program to the cluster having
    /// accepted the pod, seconds. The other stages of a pod begin there, too.
    pub const POD_CREATED: &str = "pod_created";
    /// To the cluster reporting the pod's node, seconds.
    pub const POD_SCHEDULED: &str = "pod_scheduled";
    /// To the first process of its sandbox, seconds.
    pub const POD_SANDBOX: &str = "pod_sandbox";
    /// To the first process of its container, seconds.
    pub const POD_STARTED: &str = "pod_started";
    /// To the cluster reporting that the pod's container runs, seconds.
    pub const POD_RUNNING: &str = "pod_running";
    /// The stages of a pod's start, in order.
    pub const POD: [&str; 5] = [POD_CREATED, POD_SCHEDULED, POD_SANDBOX, POD_STARTED, POD_RUNNING];
}

/// Names of the metrics of a footprint in plans and samples. All are per guest unless they say
/// otherwise.
pub mod weights {
    /// The charged memory: proportional set size of the guest and its helpers, and the kernel
    /// memory of its control group. Bytes.
    pub const FOOTPRINT: &str = "footprint";
    /// Proportional set size of the guest: of its processes, or of a virtual machine's VMM with all
    /// the machine's memory. Bytes.
    pub const GUEST: &str = "guest_pss";
    /// Proportional set size of the helpers that serve only this guest: shims, proxies, monitors.
    /// Bytes.
    pub const HELPERS: &str = "helpers_pss";
    /// Kernel memory of the guest's control group. Bytes.
    pub const KERNEL: &str = "kernel_memory";
    /// Page tables of guest and helpers, a part of the kernel memory. Bytes.
    pub const PAGE_TABLES: &str = "page_tables";
    /// Page cache charged to the guest's control group; it is not in the footprint. Bytes.
    pub const CACHE: &str = "page_cache";
    /// Drop of the host's available memory. Bytes.
    pub const AVAILABLE: &str = "available_drop";
    /// Proportional set size of the platform's daemons, in total and not per guest. Bytes.
    pub const DAEMONS: &str = "daemons_pss";
    /// Memory that the kernel's merging of equal pages saves, in total and not per guest. Bytes.
    pub const MERGED: &str = "merged";
    /// CPU time of the kernel's merging between the last guest being up and the reading, in total.
    /// Seconds.
    pub const MERGING_CPU: &str = "merging_cpu";
    /// From the last guest being up to their memory having settled, seconds.
    pub const SETTLING: &str = "settle_time";
}

/// The actions of one trial of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPlan {
    /// What is started.
    pub what: Started,
    /// What the host's page cache may hold of it.
    pub caches: Caches,
}

/// The largest file that is copied into a guest, bytes: it is held in memory.
pub const LARGEST_COPY: u64 = 128 << 20;

/// The number of guests restored by plans that name none.
fn one() -> u32 {
    1
}

/// What a trial starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Started {
    /// One fresh guest, with timestamps up to the first response of a service, and its end.
    One,
    /// Guests that start at once, up to the init of the last, and their end.
    AtOnce {
        /// How many.
        guests: u32,
    },
    /// Guests that start one after the other at a fixed pace, whether the earlier ones are up or
    /// not, and their end.
    Staggered {
        /// How many.
        guests: u32,
        /// From one start to the next, microseconds.
        apart_us: u64,
    },
    /// Guests one after the other in several lanes, each removed as soon as it is up.
    Churn {
        /// Number of lanes.
        concurrency: u32,
        /// Number of guests in all.
        guests: u32,
    },
    /// Guests restored one after the other from one saved state; all of them stay up to the end.
    Restored {
        /// How many.
        #[serde(default = "one")]
        guests: u32,
    },
    /// Programs in a running guest, one after the other, by the platform's own client or the agent
    /// of a machine, and a first one.
    Exec {
        /// How many after the first.
        programs: u32,
    },
    /// Shells on terminals in a running guest, one after the other, each up to its prompt, started
    /// as the programs of `Exec` are, and a first one.
    Prompt {
        /// How many after the first.
        shells: u32,
    },
    /// Copies of a file into a running guest and back out, by the platform's own client or the
    /// agent of a machine, and a first one.
    Copy {
        /// Bytes of the file, from 1 to [`LARGEST_COPY`].
        bytes: u64,
        /// How many after the first.
        copies: u32,
    },
    /// Guests that start at once and are left alone until their memory has settled; then it is
    /// read.
    Footprint {
        /// How many.
        guests: u32,
        /// Whether their pages are then scanned for duplicates.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        duplicates: bool,
    },
}

/// What the host's page cache may hold when a guest is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Whatever earlier starts left there.
    Warm,
    /// Nothing: it is dropped before every trial, in every environment.
    Cold,
}

impl Caches {
    /// Every word, the default first.
    pub const WORDS: [&'static str; 2] = ["warm", "cold"];

    /// Returns the variant of this name.
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
