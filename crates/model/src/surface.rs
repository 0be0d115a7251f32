//! The system calls with which a workload reaches the host's kernel.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The system calls that one run of a workload in an environment made to the host's kernel. The run
/// is not measured (method specification, "System calls that reach the host").
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// Duration of the command while its calls were counted, host's clock, nanoseconds. Counting
    /// slows calls down.
    pub duration_ns: u64,
    /// Operations of the run, if the workload counts them ([`crate::WorkloadPlan::operations`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<f64>,
    /// The calls by who made them; empty if nothing was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallerCalls>,
    /// Why nothing was counted, in words; absent if calls were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// The system calls of one caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerCalls {
    /// Who made them.
    pub caller: Caller,
    /// The program of a helper or daemon; absent for the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Number of calls, exact.
    pub total: u64,
    /// Number of calls by name. A call that the host's table of names lacks is `call NUMBER`, one
    /// of a 32-bit program is `32-bit call NUMBER`, and a number that no kernel has is `no call`.
    pub calls: BTreeMap<String, u64>,
    /// Calls that were counted in `total` but whose numbers were lost.
    #[serde(default)]
    pub lost: u64,
}

/// Who makes the system calls of an instance, as CPU time is charged ([`crate::Charge`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caller {
    /// The guest: its work or, where it has a kernel of its own, the monitor that runs it.
    Guest,
    /// A process that serves only this guest.
    Helper,
    /// A daemon that serves all guests of the platform.
    Daemon,
}

impl Surface {
    /// A cell in which nothing was counted, and why.
    pub fn absent(
        environment: impl Into<String>,
        workload: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let (environment, workload) = (environment.into(), workload.into());
        Self { environment, workload, absent: Some(reason.into()), ..Self::default() }
    }

    /// The number of each call that these callers made, by name.
    pub fn calls_of(&self, wanted: impl Fn(Caller) -> bool) -> BTreeMap<&str, u64> {
        let mut all = BTreeMap::new();
        for (name, count) in self.callers.iter().filter(|of| wanted(of.caller)).flat_map(|of| &of.calls) {
            let sum: &mut u64 = all.entry(name.as_str()).or_default();
            *sum = sum.saturating_add(*count);
        }
        all
    }

    /// The number of all calls of these callers, lost ones included.
    pub fn total_of(&self, wanted: impl Fn(Caller) -> bool) -> u64 {
        self.callers.iter().filter(|of| wanted(of.caller)).fold(0, |sum, of| sum.saturating_add(of.total))
    }

    /// Calls of all callers whose numbers were lost.
    pub fn lost(&self) -> u64 {
        self.callers.iter().fold(0, |sum, of| sum.saturating_add(of.lost))
    }
}
