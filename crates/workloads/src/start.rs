//! Starts as workloads: the plans of `weigh start`.

use std::collections::BTreeMap;
use weigh_model::{
    Better, Caches, Extraction, MetricSource, MetricSpec, Operations, StartPlan, Started, Unit, WorkloadKey,
    WorkloadPlan, format_bytes, stamps, weights,
};

/// Deadline of a guest's service, or of the init of a whole system, seconds.
const DEADLINE_S: f64 = 120.0;

/// Makes the workload for a start. Its id describes it, as in `start`, `start{caches=cold}`,
/// `start{guests=200}`, `start{apart=50ms,guests=20}`, `start-rate{concurrency=4}`,
/// `start-restore`, `exec`, `prompt` and `copy{bytes=16MiB}`.
pub fn start_workload(start: StartPlan) -> WorkloadPlan {
    let mut params = BTreeMap::new();
    if start.caches == Caches::Cold {
        params.insert("caches".to_string(), start.caches.to_string());
    }
    let seconds = |name: &str, primary: bool| metric(name, Unit::second(), Better::Lower, primary);
    let (name, metrics) = match start.what {
        Started::One => (
            "start",
            vec![
                seconds(stamps::INIT, true),
                seconds(stamps::CODE, false),
                seconds(stamps::SERVICE, false),
                seconds(stamps::RESPONSE, false),
                seconds(stamps::STOP, false),
            ],
        ),
        Started::AtOnce { guests } => {
            params.insert("guests".into(), guests.to_string());
            let metrics = vec![
                seconds(stamps::ALL_INIT, true),
                seconds(stamps::INIT, false),
                seconds(stamps::SLOWEST_INIT, false),
                seconds(stamps::ALL_STOP, false),
            ];
            ("start", metrics)
        }
        Started::Staggered { guests, apart_us } => {
            params.insert("guests".into(), guests.to_string());
            params.insert("apart".into(), format!("{}ms", apart_us as f64 / 1000.0));
            let metrics = vec![
                seconds(stamps::INIT, true),
                seconds(stamps::SLOWEST_INIT, false),
                seconds(stamps::ALL_STOP, false),
            ];
            ("start", metrics)
        }
        Started::Churn { concurrency, .. } => {
            params.insert("concurrency".into(), concurrency.to_string());
            let rate = metric(stamps::RATE, Unit::normalise("guest/s").0, Better::Higher, true);
            ("start-rate", vec![rate])
        }
        Started::Restored { guests } => {
            let mut metrics = vec![seconds(stamps::RESTORE, false), seconds(stamps::SAVE, false)];
            if guests > 1 {
                params.insert("guests".into(), guests.to_string());
                metrics.push(seconds(stamps::SLOWEST_RESTORE, false));
            }
            ("start-restore", metrics)
        }
        Started::Exec { .. } => (
            "exec",
            vec![
                seconds(stamps::EXEC_OUTPUT, true),
                seconds(stamps::EXEC, false),
                seconds(stamps::EXEC_END, false),
                seconds(stamps::EXEC_FIRST, false),
                seconds(stamps::EXEC_SLOWEST, false),
            ],
        ),
        Started::Prompt { .. } => {
            ("prompt", vec![seconds(stamps::EXEC_PROMPT, true), seconds(stamps::PROMPT, false)])
        }
        Started::Copy { bytes, .. } => {
            params.insert("bytes".into(), format_bytes(bytes));
            ("copy", vec![seconds(stamps::COPY_IN, true), seconds(stamps::COPY_OUT, false)])
        }
        Started::Footprint { guests, .. } => {
            params.insert("guests".into(), guests.to_string());
            ("footprint", footprint_metrics())
        }
    };
    let key = WorkloadKey { params, ..WorkloadKey::named(name) };
    WorkloadPlan {
        id: key.to_string(),
        params: key.params,
        // Every guest is fresh; only the host is warm, from the pilot and earlier blocks.
        warmup: 1,
        deadline_s: DEADLINE_S,
        operations: operations(start.what)
            .map(|name| Operations { name: name.into(), from: Extraction::Stamp }),
        start: Some(start),
        ..WorkloadPlan::of(name, Vec::new(), metrics)
    }
}

/// What the CPU time is divided by.
fn operations(what: Started) -> Option<&'static str> {
    match what {
        Started::Footprint { .. } => None,
        Started::Exec { .. } => Some("exec"),
        Started::Prompt { .. } => Some("prompt"),
        Started::Copy { .. } => Some("copy"),
        _ => Some("start"),
    }
}

/// Memory per guest and related metrics. The footprint gets the verdict; its parts explain it.
fn footprint_metrics() -> Vec<MetricSource> {
    let byte = || Unit::normalise("B").0;
    let bytes = |name: &str, primary: bool| metric(name, byte(), Better::Lower, primary);
    let seconds = |name: &str| metric(name, Unit::second(), Better::Lower, false);
    vec![
        bytes(weights::FOOTPRINT, true),
        bytes(weights::GUEST, false),
        bytes(weights::HELPERS, false),
        bytes(weights::KERNEL, false),
        bytes(weights::PAGE_TABLES, false),
        bytes(weights::CACHE, false),
        bytes(weights::AVAILABLE, false),
        bytes(weights::DAEMONS, false),
        metric(weights::MERGED, byte(), Better::Higher, false),
        seconds(weights::MERGING_CPU),
        seconds(weights::SETTLING),
    ]
}

/// Adds the stages of a virtual machine's start to the workload that starts one guest; leaves any
/// other workload as it is.
pub fn with_boot_metrics(mut workload: WorkloadPlan) -> WorkloadPlan {
    if workload.start.is_some_and(|start| start.what == Started::One) {
        let parts = stamps::BOOT.map(|name| metric(name, Unit::second(), Better::Lower, false));
        workload.metrics.extend(parts);
    }
    workload
}

/// Adds the stages of a start that platforms report (`Capabilities::stages`) to the workload that
/// starts one guest.
pub fn with_stages(mut workload: WorkloadPlan, stages: &[&str]) -> WorkloadPlan {
    if workload.start.is_some_and(|start| start.what == Started::One) {
        workload.metrics.extend(stages.iter().map(|name| metric(name, Unit::second(), Better::Lower, false)));
    }
    workload
}

/// A metric that the runner measures; no command prints it.
pub(crate) fn metric(name: &str, unit: Unit, better: Better, primary: bool) -> MetricSource {
    let spec = MetricSpec { name: name.into(), unit, better, primary };
    MetricSource { spec, from: Extraction::Stamp, factor: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_the_kind_of_start_and_the_caches() {
        let id = |what, caches| start_workload(StartPlan { what, caches }).id;
        assert_eq!(id(Started::One, Caches::Warm), "start");
        assert_eq!(id(Started::One, Caches::Cold), "start{caches=cold}");
        assert_eq!(id(Started::AtOnce { guests: 9 }, Caches::Warm), "start{guests=9}");
        assert_eq!(id(Started::AtOnce { guests: 9 }, Caches::Cold), "start{caches=cold,guests=9}");
        let staggered = Started::Staggered { guests: 9, apart_us: 2_500 };
        assert_eq!(id(staggered, Caches::Warm), "start{apart=2.5ms,guests=9}");
        let churn = Started::Churn { concurrency: 4, guests: 16 };
        assert_eq!(id(churn, Caches::Warm), "start-rate{concurrency=4}");
        assert_eq!(id(Started::Restored { guests: 1 }, Caches::Warm), "start-restore");
        assert_eq!(id(Started::Restored { guests: 8 }, Caches::Warm), "start-restore{guests=8}");
        assert_eq!(id(Started::Exec { programs: 9 }, Caches::Warm), "exec");
        assert_eq!(id(Started::Prompt { shells: 9 }, Caches::Warm), "prompt");
        assert_eq!(id(Started::Copy { bytes: 1 << 24, copies: 3 }, Caches::Warm), "copy{bytes=16MiB}");
    }

    #[test]
    fn only_the_start_of_one_guest_has_parts() {
        let names = |what| {
            let plan = with_boot_metrics(start_workload(StartPlan { what, caches: Caches::Warm }));
            plan.metrics.into_iter().map(|metric| metric.spec.name).collect::<Vec<_>>()
        };
        assert!(stamps::BOOT.iter().all(|part| names(Started::One).contains(&part.to_string())));
        assert!(!names(Started::Restored { guests: 1 }).contains(&stamps::BOOT_KERNEL.to_string()));
        let staged = |what| {
            let plain = start_workload(StartPlan { what, caches: Caches::Warm });
            with_stages(plain.clone(), &stamps::POD).metrics.len() - plain.metrics.len()
        };
        assert_eq!((staged(Started::One), staged(Started::Restored { guests: 1 })), (stamps::POD.len(), 0));
    }

    #[test]
    fn one_metric_at_most_gets_a_verdict() {
        let churn = Started::Churn { concurrency: 1, guests: 1 };
        for (what, primary) in [
            (Started::One, Some(stamps::INIT)),
            (Started::AtOnce { guests: 2 }, Some(stamps::ALL_INIT)),
            (Started::Staggered { guests: 2, apart_us: 1 }, Some(stamps::INIT)),
            (churn, Some(stamps::RATE)),
            (Started::Restored { guests: 2 }, None),
            (Started::Exec { programs: 9 }, Some(stamps::EXEC_OUTPUT)),
            (Started::Prompt { shells: 9 }, Some(stamps::EXEC_PROMPT)),
            (Started::Copy { bytes: 1, copies: 1 }, Some(stamps::COPY_IN)),
        ] {
            let plan = start_workload(StartPlan { what, caches: Caches::Warm });
            let named: Vec<&str> =
                plan.metrics.iter().filter(|m| m.spec.primary).map(|m| m.spec.name.as_str()).collect();
            assert_eq!(named, primary.into_iter().collect::<Vec<_>>());
            assert_eq!(
                serde_json::from_str::<WorkloadPlan>(&serde_json::to_string(&plan).unwrap()).unwrap(),
                plan
            );
        }
    }
}
