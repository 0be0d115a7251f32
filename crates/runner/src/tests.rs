//! Tests of what only this crate can see: which instances are awake when.

#[path = "../tests/suite/common/mod.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
pub(crate) mod common;

use crate::run::Runner;
use crate::{Run, RunOptions};
use common::{Bench, assert_complete, facts, fixed, plan};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use weigh_host::cgroup::Cgroup;
use weigh_model::{EnvironmentSpec, Event, FinishReason};
use weigh_platforms::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Session, find,
};

/// Instances that are not frozen.
static AWAKE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The fake platform, which checks that nothing else is awake during a guest's call or launch.
struct Watched;

struct WatchedGuest {
    inner: Box<dyn Guest>,
    instance: u64,
}

fn fake() -> &'static dyn Platform {
    find("null").expect("the fake platform is always there")
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
        let inner = fake().launch(host, request)?;
        let mut awake = AWAKE.lock().unwrap();
        assert!(awake.is_empty(), "launched while {awake:?} were awake");
        awake.insert(request.instance);
        Ok(Box::new(WatchedGuest { inner, instance: request.instance }))
    }
    fn host_changes(&self, _: &GuestRequest) -> Vec<String> {
        Vec::new()
    }
}

impl Guest for WatchedGuest {
    fn session(&mut self) -> &mut Session {
        assert_eq!(*AWAKE.lock().unwrap(), BTreeSet::from([self.instance]));
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
        AWAKE.lock().unwrap().remove(&self.instance);
        self.inner.freeze()
    }
    fn thaw(&mut self) -> Result<(), PlatformError> {
        AWAKE.lock().unwrap().insert(self.instance);
        self.inner.thaw()
    }
    fn stop(&mut self) -> Result<(), PlatformError> {
        AWAKE.lock().unwrap().remove(&self.instance);
        self.inner.stop()
    }
}

/// The number of guests that [`Narrow`] has room for: one.
static ROOM: AtomicU32 = AtomicU32::new(1);

/// The fake platform with room for one guest.
struct Narrow;

struct NarrowGuest {
    inner: Box<dyn Guest>,
}

impl Platform for Narrow {
    fn about(&self) -> &'static About {
        &About { name: "narrow", summary: "", keys: &[] }
    }
    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { reserves: true, ..fake().capabilities(environment) }
    }
    fn availability(&self, host: &Host) -> Availability {
        fake().availability(host)
    }
    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        fake().prepare(host, request)
    }
    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let took = ROOM.fetch_update(SeqCst, SeqCst, |room| room.checked_sub(1));
        let full =
            |_| PlatformError::Launch { platform: "narrow", reason: "there is no room".into(), log: None };
        took.map_err(full)?;
        Ok(Box::new(NarrowGuest { inner: fake().launch(host, request)? }))
    }
    fn host_changes(&self, _: &GuestRequest) -> Vec<String> {
        Vec::new()
    }
}

impl Guest for NarrowGuest {
    fn session(&mut self) -> &mut Session {
        self.inner.session()
    }
    fn processes(&self) -> Vec<u32> {
        self.inner.processes()
    }
    fn cgroup(&self) -> Option<&Cgroup> {
        self.inner.cgroup()
    }
    fn log(&self) -> Option<PathBuf> {
        self.inner.log()
    }
    fn spawned_ns(&self) -> u64 {
        self.inner.spawned_ns()
    }
    fn address(&self) -> Option<IpAddr> {
        self.inner.address()
    }
    fn freeze(&mut self) -> Result<(), PlatformError> {
        self.inner.freeze()
    }
    fn thaw(&mut self) -> Result<(), PlatformError> {
        self.inner.thaw()
    }
    fn stop(&mut self) -> Result<(), PlatformError> {
        ROOM.fetch_add(1, SeqCst);
        self.inner.stop()
    }
}

/// Two environments whose guests reserve what they may use find no room beside each other: each is
/// up for its trials alone, and nothing fails.
#[test]
fn guests_without_room_beside_each_other_are_measured_in_turn() {
    let bench = Bench::new();
    let plan = plan(&["null", "null:label=b", "null:label=c"], &["u", "v"], fixed(3));
    let mut store = bench.create(&plan);
    let host = common::host(bench.path());
    let (facts, interrupt) = (facts(), AtomicBool::new(false));
    let (now, weather): (_, common::Weather) = (Default::default(), Box::new(|_| common::quiet()));
    let mut sensors = common::Scripted::new(&now, &weather);
    let mut warnings = Vec::new();
    let mut emit = |event: Event| {
        if let Event::Warning { message } = event {
            warnings.push(message);
        }
    };
    let mut runner = Runner::begin(Run {
        plan: &plan,
        host: &host,
        host_facts: &facts,
        store: &mut store,
        sensors: &mut sensors,
        interrupt: &interrupt,
        emit: &mut emit,
        options: RunOptions::default(),
    })
    .unwrap();
    for entry in &mut runner.pool.entries[1..] {
        entry.platform = &Narrow;
        entry.can.reserves = true;
    }
    let reason = runner.complete(RunOptions { skip_pilot: true, ..RunOptions::default() }).unwrap();
    assert_eq!(reason, FinishReason::Blocks);
    assert!(runner.pool.crowded);
    drop(runner);
    assert_complete(&plan, &store, 3);
    let failures: Vec<_> = common::trials(&store).iter().filter_map(common::failure).cloned().collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(
        warnings.iter().filter(|warning| warning.contains("finds no room")).count(),
        1,
        "{warnings:?}"
    );
    assert_eq!(ROOM.load(SeqCst), 1, "every guest was stopped");
}

#[test]
fn only_one_instance_is_awake() {
    for reuse in [false, true] {
        let bench = Bench::new();
        // One environment loses its instance in each block, so that instances are launched between
        // trials too.
        let mut plan = plan(&["null", "null:fault=die,at=1", "null:label=c"], &["u", "v", "w"], fixed(3));
        plan.guest.reuse = reuse;
        plan.workloads[1].warmup = 1;
        let mut store = bench.create(&plan);
        let host = common::host(bench.path());
        let (facts, interrupt) = (facts(), AtomicBool::new(false));
        let (now, weather): (_, common::Weather) = (Default::default(), Box::new(|_| common::quiet()));
        let mut sensors = common::Scripted::new(&now, &weather);
        let mut emit = |_| {};
        let mut runner = Runner::begin(Run {
            plan: &plan,
            host: &host,
            host_facts: &facts,
            store: &mut store,
            sensors: &mut sensors,
            interrupt: &interrupt,
            emit: &mut emit,
            options: RunOptions::default(),
        })
        .unwrap();
        for entry in &mut runner.pool.entries {
            entry.platform = &Watched;
        }
        let reason = runner.complete(RunOptions { skip_pilot: true, ..RunOptions::default() }).unwrap();
        assert_eq!(reason, FinishReason::Blocks);
        let launches = runner.statistics.launches;
        assert!(launches > if reuse { 3 } else { 9 }, "{launches}");
        drop(runner);
        assert_complete(&plan, &store, 3);
        // The last words of a guest that died are reported.
        let failures: Vec<_> = common::trials(&store).iter().filter_map(common::failure).cloned().collect();
        assert!(!failures.is_empty());
        assert!(
            failures.iter().all(|failure| failure.log.as_deref() == Some("/console.log")),
            "{failures:?}"
        );
        assert!(AWAKE.lock().unwrap().is_empty());
    }
}
