//! A test bench for whole runs: fake guests, a real run directory in memory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::Ledger;
use weigh_host::state::StateDirectory;
use weigh_images::Programs;
use weigh_model::{
    Caller, CallerCalls, CpuTime, Effort, EnvironmentPlan, EnvironmentSpec, Event, Exclusion, Extraction,
    GuestPlan, HostFacts, HostSettings, ImageSpec, Iteration, MetricSource, MetricSpec, Observed, Outcome,
    Plan, Record, Trial, VoidUnit, WorkloadPlan,
};
use weigh_observe::{CallsError, CountCalls, InstanceId, Sensors};
use weigh_platforms::Host;
use weigh_runner::order;
use weigh_runner::{Finish, Run, RunOptions, RunnerError, run};
use weigh_store::RunDirectory;

/// A directory in memory, a host, and a run directory below it.
pub struct Bench {
    directory: tempfile::TempDir,
    pub options: RunOptions,
    /// The observations of the sensors in a trial.
    pub weather: Weather,
}

/// The trial that the sensors look at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Now {
    pub block: u32,
    pub workload: String,
    pub environment: String,
}

/// The observations of the sensors in a trial.
pub type Weather = Box<dyn Fn(&Now) -> Observed>;

/// A second on one otherwise idle CPU.
pub fn quiet() -> Observed {
    Observed { window_ns: 1_000_000_000, cpus: vec![0], ..Observed::default() }
}

/// Like [`quiet`], with this share of the CPU taken by others.
pub fn foreign(share: f64) -> Observed {
    Observed { foreign: CpuTime { ns: (share * 1e9) as u64, uncertainty_ns: 0 }, ..quiet() }
}

/// Sensors with scripted observations, which fail if they are used out of order.
pub struct Scripted<'a> {
    now: &'a RefCell<Now>,
    weather: &'a Weather,
    attached: BTreeSet<InstanceId>,
    next: u64,
    begun: Option<InstanceId>,
    /// Number of windows so far.
    pub windows: u64,
}

impl<'a> Scripted<'a> {
    pub fn new(now: &'a RefCell<Now>, weather: &'a Weather) -> Self {
        Self { now, weather, attached: BTreeSet::new(), next: 0, begun: None, windows: 0 }
    }
}

impl Sensors for Scripted<'_> {
    fn settings(&mut self) -> HostSettings {
        HostSettings::default()
    }
    fn attach(&mut self, _: &Accounts, cpus: &[u32]) -> InstanceId {
        assert_eq!(cpus, [0], "all CPUs of the host, as the plan names none");
        self.next += 1;
        self.attached.insert(InstanceId(self.next));
        InstanceId(self.next)
    }
    fn begin(&mut self, instance: InstanceId) {
        assert!(self.attached.contains(&instance), "{instance:?} is not attached");
        self.begun = Some(instance);
    }
    fn end(&mut self, instance: InstanceId) -> Observed {
        assert_eq!(self.begun.take(), Some(instance));
        self.windows += 1;
        (self.weather)(&self.now.borrow())
    }
    fn count_calls(&mut self, _: &Accounts) -> Result<Box<dyn CountCalls>, CallsError> {
        Ok(Box::new(ScriptedCalls::default()))
    }
    fn detach(&mut self, instance: InstanceId) {
        assert!(self.attached.remove(&instance), "{instance:?} is detached twice");
    }
}

impl Drop for Scripted<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.attached.is_empty(), "{:?} are still attached", self.attached);
        }
    }
}

impl Scripted<'_> {
    /// The calls of `getpid` in a window of the counter.
    pub const CALLS: u64 = 100;
}

/// Counts [`Scripted::CALLS`] in each window, and fails if it is used out of order.
#[derive(Default)]
struct ScriptedCalls {
    begun: bool,
    windows: u64,
}

impl CountCalls for ScriptedCalls {
    fn begin(&mut self) {
        assert!(!std::mem::replace(&mut self.begun, true));
    }
    fn end(&mut self) {
        assert!(std::mem::take(&mut self.begun));
        self.windows += 1;
    }
    fn finish(self: Box<Self>) -> Result<Vec<CallerCalls>, CallsError> {
        assert!(!self.begun);
        let total = self.windows * Scripted::CALLS;
        let calls = [("getpid".into(), total)].into();
        Ok(vec![CallerCalls { caller: Caller::Guest, program: None, total, calls, lost: 0 }])
    }
}

/// The result of one call of the runner.
pub struct Outing {
    pub finish: Finish,
    pub events: Vec<Event>,
}

impl Bench {
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("weigh-runner-").tempdir_in(parent).unwrap();
        Self { directory, options: RunOptions::default(), weather: Box::new(|_| quiet()) }
    }

    /// Makes a bench without a pilot, so that faults strike in the blocks, and the numbers of
    /// instances are known.
    pub fn without_pilot() -> Self {
        Self { options: RunOptions { skip_pilot: true, ..RunOptions::default() }, ..Self::new() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A run directory for `plan`, open for writing.
    pub fn create(&self, plan: &Plan) -> RunDirectory {
        RunDirectory::create(self.path(), plan, &facts(), "2026-11-21T05:00:00Z").unwrap()
    }

    /// Runs `plan` in a new run directory.
    pub fn run(&self, plan: &Plan) -> (Outing, RunDirectory) {
        let mut store = self.create(plan);
        let outing = self.go_on(plan, &mut store, |_, _| {}).unwrap();
        (outing, store)
    }

    /// Runs or resumes in an open run directory. `watch` sees each event and may interrupt.
    pub fn go_on(
        &self,
        plan: &Plan,
        store: &mut RunDirectory,
        watch: impl FnMut(&Event, &AtomicBool),
    ) -> Result<Outing, RunnerError> {
        go_on(self.path(), plan, store, self.options, &self.weather, watch)
    }

    /// Resumes to the end.
    pub fn finish(&self, plan: &Plan, store: &mut RunDirectory) -> Outing {
        self.go_on(plan, store, |_, _| {}).unwrap()
    }

    /// Resumes until an event is `last`, and interrupts the run there.
    pub fn go_on_until(
        &self,
        plan: &Plan,
        store: &mut RunDirectory,
        mut last: impl FnMut(&Event) -> bool,
    ) -> Outing {
        let watch = |event: &Event, interrupt: &AtomicBool| {
            if last(event) {
                interrupt.store(true, Ordering::Relaxed);
            }
        };
        self.go_on(plan, store, watch).unwrap()
    }
}

/// Whether the event reports that this many blocks are done.
pub fn has_done(event: &Event, blocks: u32) -> bool {
    matches!(event, Event::Progress { blocks_done, .. } if *blocks_done >= blocks)
}

/// Like [`Bench::go_on`], for a process that has only the path of the bench.
pub fn go_on(
    directory: &Path,
    plan: &Plan,
    store: &mut RunDirectory,
    options: RunOptions,
    weather: &Weather,
    watch: impl FnMut(&Event, &AtomicBool),
) -> Result<Outing, RunnerError> {
    go_on_by(run, directory, plan, store, options, weather, watch)
}

/// The same by another function than [`run`].
pub fn go_on_by(
    run: impl FnOnce(Run<'_>) -> Result<Finish, RunnerError>,
    directory: &Path,
    plan: &Plan,
    store: &mut RunDirectory,
    options: RunOptions,
    weather: &Weather,
    mut watch: impl FnMut(&Event, &AtomicBool),
) -> Result<Outing, RunnerError> {
    let host = host(directory);
    let interrupt = AtomicBool::new(false);
    let mut events = Vec::new();
    let now = RefCell::new(Now::default());
    let mut sensors = Scripted::new(&now, weather);
    let mut emit = |event: Event| {
        if let Event::TrialStarted { block, workload, environment } = &event {
            *now.borrow_mut() =
                Now { block: *block, workload: workload.clone(), environment: environment.clone() };
        }
        watch(&event, &interrupt);
        events.push(event);
    };
    let finish = run(Run {
        plan,
        host: &host,
        host_facts: &facts(),
        store,
        sensors: &mut sensors,
        interrupt: &interrupt,
        emit: &mut emit,
        options,
    })?;
    Ok(Outing { finish, events })
}

/// A host with a new run name for every process and call, because the fakes count commands per run.
pub fn host(directory: &Path) -> Host {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let name = format!("r{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let file = |name: &str| -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, name).unwrap();
        path
    };
    let programs = Programs { probe: file("probe"), kernels: file("kernels"), module: None };
    let work = directory.join(&name);
    std::fs::create_dir_all(&work).unwrap();
    let state = StateDirectory::at(directory.join("state"));
    Host {
        ledger: Ledger::create(&state, &name).unwrap(),
        hierarchy: Hierarchy::detect(),
        logs: work.clone(),
        work,
        run: name,
        programs,
        is_root: false,
        fetch_until: None,
    }
}

pub fn facts() -> HostFacts {
    HostFacts {
        identity: "bench".into(),
        cpus: vec![0],
        memory_bytes: 1 << 30,
        // The fakes that claim to share the kernel name the one that the tests run on.
        boot: weigh_host::facts::host_facts().boot,
        ..HostFacts::default()
    }
}

/// A plan over fakes. The first environment is the baseline.
pub fn plan(environments: &[&str], workloads: &[&str], effort: Effort) -> Plan {
    let environment = |text: &&str| {
        let spec = EnvironmentSpec::parse(text).unwrap();
        EnvironmentPlan { name: (*text).into(), ..spec.into() }
    };
    let environments = environments.iter().map(environment).collect();
    let workloads = workloads.iter().map(|name| workload(name)).collect();
    Plan {
        seed: 7,
        guest: GuestPlan { image: ImageSpec::Probe, ..GuestPlan::default() },
        ..Plan::of("bench", environments, workloads, effort)
    }
}

pub fn fixed(blocks: u32) -> Effort {
    Effort::Fixed { blocks }
}

pub fn workload(name: &str) -> WorkloadPlan {
    let time = MetricSource {
        spec: MetricSpec::time("time"),
        from: Extraction::Json { pointer: "/metrics/time/value".into() },
        factor: 1.0,
    };
    WorkloadPlan {
        size: "quick".into(),
        // Nothing here takes long by itself, but the machine may be busy.
        deadline_s: 10.0,
        check: Some(Extraction::Json { pointer: "/check/passed".into() }),
        ..WorkloadPlan::of(name, vec![name.into()], vec![time])
    }
}

pub fn records(store: &RunDirectory) -> Vec<Record> {
    store.records().unwrap().records
}

/// The records of one kind.
fn of_kind<T>(store: &RunDirectory, kind: impl Fn(Record) -> Option<T>) -> Vec<T> {
    records(store).into_iter().filter_map(kind).collect()
}

pub fn trials(store: &RunDirectory) -> Vec<Trial> {
    of_kind(store, |record| if let Record::Trial(trial) = record { Some(trial) } else { None })
}

pub fn voids(store: &RunDirectory) -> Vec<VoidUnit> {
    of_kind(store, |record| if let Record::Void(void) = record { Some(void) } else { None })
}

pub fn exclusions(store: &RunDirectory) -> Vec<Exclusion> {
    of_kind(store, |record| if let Record::Excluded(exclusion) = record { Some(exclusion) } else { None })
}

/// Trials that are in no void unit.
pub fn valid_trials(store: &RunDirectory) -> Vec<Trial> {
    let void: BTreeSet<(u32, u32, String)> =
        voids(store).into_iter().map(|void| (void.block, void.attempt, void.workload)).collect();
    let valid = |trial: &Trial| !void.contains(&(trial.block, trial.attempt, trial.workload.clone()));
    trials(store).into_iter().filter(valid).collect()
}

/// Every (block, workload, environment) of `blocks` blocks has exactly one trial that counts, all
/// were measured in the order of the seed, and no trial number is used twice.
pub fn assert_complete(plan: &Plan, store: &RunDirectory, blocks: u32) {
    let valid = valid_trials(store);
    let mut expected = Vec::new();
    for block in 0..blocks {
        let order = order::of_block(plan, block);
        for workload in order.workloads {
            for environment in &order.environments[workload] {
                let environment = plan.environments[*environment].name.clone();
                expected.push((block, plan.workloads[workload].id.clone(), environment));
            }
        }
    }
    let place = |trial: &Trial| (trial.block, trial.workload.clone(), trial.environment.clone());
    assert_eq!(valid.iter().map(place).collect::<Vec<_>>(), expected);
    let sequences: Vec<u64> = trials(store).iter().map(|trial| trial.sequence).collect();
    assert_eq!(sequences, (0..sequences.len() as u64).collect::<Vec<_>>());
    for trial in valid {
        let attempts: BTreeSet<u32> = valid_trials(store)
            .iter()
            .filter(|other| (other.block, &other.workload) == (trial.block, &trial.workload))
            .map(|other| other.attempt)
            .collect();
        assert_eq!(attempts.len(), 1, "a unit is of one attempt");
    }
}

/// The estimated times of a run, seconds: for the fewest blocks, and for the most.
pub fn estimate(outing: &Outing) -> Option<(f64, f64)> {
    outing.events.iter().find_map(|event| match event {
        Event::Estimated { fewest_s, most_s } => Some((*fewest_s, *most_s)),
        _ => None,
    })
}

/// Lengths at which the samples file of a run has only whole lines, and its bytes.
pub fn lengths_with_whole_lines(run: &Path) -> (Vec<usize>, Vec<u8>) {
    let samples = std::fs::read(run.join("samples.jsonl")).unwrap();
    let ends = samples.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(i, _)| i + 1);
    (ends.collect(), samples)
}

/// Copies a run with these samples, and opens it for resuming.
pub fn copy_run(source: &Path, target: &Path, samples: &[u8]) -> RunDirectory {
    std::fs::create_dir_all(target.join("logs")).unwrap();
    for name in ["plan.json", "host.json"] {
        std::fs::copy(source.join(name), target.join(name)).unwrap();
    }
    std::fs::write(target.join("samples.jsonl"), samples).unwrap();
    RunDirectory::open_for_append(target).unwrap()
}

/// The warnings that a run gave its user.
pub fn warnings(outing: &Outing) -> Vec<&str> {
    let told = outing.events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    told.collect()
}

/// The first iteration of a trial that was measured.
pub fn only(trial: &Trial) -> &Iteration {
    match &trial.outcome {
        Outcome::Measured { iterations } => &iterations[0],
        Outcome::Failed(failure) => panic!("{failure:?}"),
    }
}

pub fn is_measured(trial: &Trial) -> bool {
    matches!(trial.outcome, Outcome::Measured { .. })
}

pub fn failure(trial: &Trial) -> Option<&weigh_model::TrialFailure> {
    match &trial.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Measured { .. } => None,
    }
}
