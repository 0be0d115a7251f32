//! Tests of what only this crate can see: which instances are awake when.

#[path = "../tests/suite/common/mod.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
pub(crate) mod common;

use crate::pool::PoolEntry;
use crate::run::Runner;
use crate::{Finish, Run, RunnerError};
use common::{Bench, Outing, assert_complete, failure, fixed, go_on_by, plan, trials, warnings};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use weigh_host::cgroup::Cgroup;
use weigh_model::{EnvironmentSpec, FinishReason, Plan, TrialFailure};
use weigh_platforms::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Session, find,
};

/// The fake platform with room for so many guests, which checks that nothing else is awake during a
/// guest's call or launch.
struct Watched {
    room: usize,
    up: Up,
}

/// Guests that have not been stopped, each with whether it is awake.
type Up = Arc<Mutex<BTreeMap<u64, bool>>>;

struct WatchedGuest {
    inner: Box<dyn Guest>,
    instance: u64,
    up: Up,
}

fn fake() -> &'static dyn Platform {
    find("null").expect("the fake platform is always there")
}

fn watched(room: usize) -> &'static Watched {
    Box::leak(Box::new(Watched { room, up: Up::default() }))
}

/// The guests that are awake.
fn awake(up: &Up) -> Vec<u64> {
    let up = up.lock().unwrap();
    up.iter().filter(|(_, is_awake)| **is_awake).map(|(instance, _)| *instance).collect()
}

impl WatchedGuest {
    fn note(&self, is_awake: bool) {
        self.up.lock().unwrap().insert(self.instance, is_awake);
    }
}

impl Platform for Watched {
    fn about(&self) -> &'static About {
        &About { name: "watched", summary: "", keys: &[] }
    }
    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        fake().capabilities(environment)
    }
    fn availability(&self, host: &Host) -> Availability {
        fake().availability(host)
    }
    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        fake().prepare(host, request)
    }
    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        if self.up.lock().unwrap().len() >= self.room {
            let (platform, reason) = ("watched", "there is no room".into());
            let failed = PlatformError::Launch { platform, reason, log: None };
            return Err(PlatformError::NoRoom(Box::new(failed)));
        }
        let inner = fake().launch(host, request)?;
        assert_eq!(awake(&self.up), [0; 0], "awake during a launch");
        let guest = WatchedGuest { inner, instance: request.instance, up: Arc::clone(&self.up) };
        guest.note(true);
        Ok(Box::new(guest))
    }
    fn host_changes(&self, _: &GuestRequest) -> Vec<String> {
        Vec::new()
    }
}

impl Guest for WatchedGuest {
    fn session(&mut self) -> &mut Session {
        assert_eq!(awake(&self.up), [self.instance]);
        self.inner.session()
    }
    fn processes(&self) -> Vec<u32> {
        self.inner.processes()
    }
    fn cgroup(&self) -> Option<&Cgroup> {
        self.inner.cgroup()
    }
    fn log(&self) -> Option<PathBuf> {
        Some("/console.log".into())
    }
    fn spawned_ns(&self) -> u64 {
        self.inner.spawned_ns()
    }
    fn address(&self) -> Option<IpAddr> {
        self.inner.address()
    }
    fn freeze(&mut self) -> Result<(), PlatformError> {
        self.note(false);
        self.inner.freeze()
    }
    fn thaw(&mut self) -> Result<(), PlatformError> {
        self.note(true);
        self.inner.thaw()
    }
    fn stop(&mut self) -> Result<(), PlatformError> {
        self.up.lock().unwrap().remove(&self.instance);
        self.inner.stop()
    }
}

/// Runs a plan of three blocks without a pilot, after `change` to its environments. Also returns the
/// failures.
fn complete(plan: &Plan, change: impl FnOnce(&mut [PoolEntry])) -> (Outing, Vec<TrialFailure>) {
    let bench = Bench::without_pilot();
    let mut store = bench.create(plan);
    let run = |run: Run<'_>| -> Result<Finish, RunnerError> {
        let options = run.options;
        let mut runner = Runner::begin(run)?;
        change(&mut runner.pool.entries);
        let reason = runner.complete(options)?;
        Ok(Finish { reason, blocks_done: runner.blocks_done(), statistics: runner.statistics })
    };
    let (options, weather) = (bench.options, &bench.weather);
    let outing = go_on_by(run, bench.path(), plan, &mut store, options, weather, |_, _| {}).unwrap();
    assert_eq!(outing.finish.reason, FinishReason::Blocks);
    assert_complete(plan, &store, 3);
    let failures = trials(&store).iter().filter_map(failure).cloned().collect();
    (outing, failures)
}

/// Two environments whose guests reserve what they may use find no room beside each other: each is
/// up for its trials alone, and nothing fails.
#[test]
fn guests_without_room_beside_each_other_are_measured_in_turn() {
    let narrow = watched(1);
    let plan = plan(&["null", "null:label=b", "null:label=c"], &["u", "v"], fixed(3));
    let (outing, failures) = complete(&plan, |entries| {
        for entry in &mut entries[1..] {
            entry.platform = narrow;
            entry.can.reserves = true;
        }
    });
    assert!(failures.is_empty(), "{failures:?}");
    let warnings = warnings(&outing);
    let of_room = warnings.iter().filter(|warning| warning.contains("finds no room"));
    assert_eq!(of_room.count(), 1, "{warnings:?}");
    assert!(narrow.up.lock().unwrap().is_empty(), "every guest was stopped");
}

/// A guest that does not start for another cause than room is not launched a second time, and the
/// others stay up.
#[test]
fn guests_that_fail_for_another_cause_are_launched_once() {
    let plan = plan(&["null", "null:label=b", "null:label=c", "null:launch=fail"], &["u", "v"], fixed(3));
    let (outing, failures) =
        complete(&plan, |entries| entries.iter_mut().for_each(|entry| entry.can.reserves = true));
    let launches = outing.finish.statistics.launches;
    assert_eq!((failures.len(), launches), (3 * 2, 3 * 4), "{failures:?}");
}

#[test]
fn only_one_instance_is_awake() {
    for reuse in [false, true] {
        let roomy = watched(usize::MAX);
        // One environment loses its instance in each block, so that instances are launched between
        // trials too.
        let mut plan = plan(&["null", "null:fault=die,at=1", "null:label=c"], &["u", "v", "w"], fixed(3));
        plan.guest.reuse = reuse;
        plan.workloads[1].warmup = 1;
        let (outing, failures) =
            complete(&plan, |entries| entries.iter_mut().for_each(|entry| entry.platform = roomy));
        let launches = outing.finish.statistics.launches;
        assert!(launches > if reuse { 3 } else { 9 }, "{launches}");
        // The last words of a guest that died are reported.
        assert!(!failures.is_empty());
        let has_log = |failure: &TrialFailure| failure.log.as_deref() == Some("/console.log");
        assert!(failures.iter().all(has_log), "{failures:?}");
        assert!(roomy.up.lock().unwrap().is_empty(), "every guest was stopped");
    }
}
