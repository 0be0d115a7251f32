//! Plans, hosts and records for the tests of this crate.

use weigh_model::{
    Effort, GuestPlan, HostFacts, Iteration, Outcome, Plan, Record, Trial, VoidCause, VoidUnit,
};

pub(crate) fn plan(name: &str) -> Plan {
    Plan {
        seed: u64::MAX,
        baseline: "native".into(),
        budget_s: Some(0.1),
        guest: GuestPlan { cpus: vec![0], ..GuestPlan::default() },
        ..Plan::of(name, Vec::new(), Vec::new(), Effort::Quick { blocks: 6 })
    }
}

pub(crate) fn host() -> HostFacts {
    HostFacts {
        identity: "abc".into(),
        kernel: "6.1".into(),
        architecture: "x86_64".into(),
        operating_system: "Debian".into(),
        cpu_model: "cpu".into(),
        hypervisor: None,
        cpus: vec![0, 1],
        memory_bytes: 1 << 34,
        last_level_cache_bytes: None,
        cgroups: "v2".into(),
        boot: "b".into(),
        root: true,
    }
}

pub(crate) fn measured(sequence: u64, value: f64) -> Record {
    Record::Trial(Trial {
        sequence,
        workload: "stream".into(),
        environment: "docker:net=nat".into(),
        host: "abc".into(),
        instance: 3,
        started: "2026-11-21T05:00:00Z".into(),
        host_started_ns: 1,
        host_ended_ns: 2,
        outcome: Outcome::Measured {
            iterations: vec![Iteration {
                host_started_ns: 1,
                host_ended_ns: 2,
                guest_duration_ns: 1,
                user_ns: 1,
                maximum_resident_set_bytes: 4096,
                minor_faults: 1,
                values: [("triad".to_string(), value)].into(),
                ..Iteration::default()
            }],
        },
        ..Trial::default()
    })
}

pub(crate) fn void(block: u32) -> Record {
    Record::Void(VoidUnit::of(block, 0, "stream", VoidCause::Steal))
}
