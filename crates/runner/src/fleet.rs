//! The instances of all environments: at most one of them is awake while a command runs.

use crate::guest_clock::GuestClock;
use crate::parity::{Facts, Subject, gather};
use crate::serve::machine::Machine;
use crate::serve::{LoadedFrom, Scene, ports};
use crate::staging::{self, Words};
use crate::start::crowd::Crowd;
use crate::start::footprint::MostGuests;
use crate::start::system;
use crate::trial::describe;
use crate::{RunStatistics, RunnerError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::accounts::Process;
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, HostFacts, ImageSpec, LoaderMachine, Plan};
use weigh_observe::{Attached, Sensors};
use weigh_platforms::{
    Capabilities, DiskMeter, Guest, GuestRequest, Host, Platform, PlatformError, common_keys, resolve,
};

/// For a guest's own init to bring its services up; an emulated machine is slow.
const SYSTEM_DEADLINE: Duration = Duration::from_secs(120);

/// One environment and its instance.
pub(crate) struct Berth {
    pub(crate) platform: &'static dyn Platform,
    spec: EnvironmentSpec,
    root: Arc<Root>,
    freezes: bool,
    timed: bool,
    /// Its guests have nothing but the probe, and no storage.
    pub(crate) bare: bool,
    /// What the probe was asked about the measured programs counts for all instances.
    described: bool,
    /// Guests beside the measured one that stay from trial to trial.
    pub(crate) neighbours: Option<Crowd>,
    /// Set when the platform could not be prepared: then no instance can be launched.
    unprepared: Option<LaunchFailure>,
    /// The platform's daemons, as its last guest named them.
    pub(crate) daemons: Vec<Process>,
    /// How many guests at once have stood while memory was weighed.
    pub(crate) most: MostGuests,
    pub(crate) state: State,
}

impl Berth {
    /// Ports of its instance.
    fn ports(&self) -> &[u16] {
        match &self.state {
            State::Running(instance) => &instance.ports,
            State::Empty | State::Dead | State::Failed(_) => &[],
        }
    }
}

/// What is there of an environment.
pub(crate) enum State {
    /// Nothing, and nothing has been tried.
    Empty,
    /// An instance, frozen if it can be.
    Running(Instance),
    /// The instance died; the next trial launches another.
    Dead,
    /// It could not be launched.
    Failed(LaunchFailure),
}

/// A running instance.
pub(crate) struct Instance {
    guest: Box<dyn Guest>,
    pub(crate) number: u64,
    /// How the sensors know it; none where they see nothing of it.
    pub(crate) attached: Option<Attached>,
    /// Whose clock it reads.
    pub(crate) clock: GuestClock,
    /// Workloads, by their place in the plan, that have been warmed up in it.
    pub(crate) warm: BTreeSet<usize>,
    /// What it looks like, when it was launched.
    pub(crate) facts: Facts,
    /// Ports that servers in it may listen on.
    pub(crate) ports: Vec<u16>,
    /// Memory that it may use, bytes; 0 where nothing limits it.
    memory_bytes: u64,
    freezes: bool,
}

/// How guests of an environment are started.
pub(crate) struct Recipe {
    pub(crate) host: Arc<Host>,
    pub(crate) platform: &'static dyn Platform,
    pub(crate) can: Capabilities,
    /// The request for the first of them.
    pub(crate) request: GuestRequest,
    /// Ports for what listens in each of them, where something does.
    pub(crate) ports: Vec<u16>,
}

impl Recipe {
    /// Starts the guest of that number among those of the recipe.
    pub(crate) fn launch(&self, number: u32) -> Result<Box<dyn Guest>, PlatformError> {
        let instance = self.request.instance + u64::from(number);
        let mut publish = self.request.publish.clone();
        publish.extend(self.port(number));
        self.platform.launch(&self.host, &GuestRequest { instance, publish, ..self.request.clone() })
    }

    /// The port of that guest.
    pub(crate) fn port(&self, number: u32) -> Option<u16> {
        self.ports.get(number as usize).copied()
    }
}

/// A launch that failed.
#[derive(Debug, Clone)]
pub(crate) struct LaunchFailure {
    /// The number that the instance would have had.
    pub(crate) instance: u64,
    pub(crate) reason: String,
    /// What the platform's tools and the guest said, where the platform keeps it.
    pub(crate) log: Option<PathBuf>,
}

impl LaunchFailure {
    /// `guest_log` is what the guest said so far, for errors that name no log of their own.
    fn new(instance: u64, error: &PlatformError, guest_log: Option<PathBuf>) -> Self {
        let log = match error {
            PlatformError::Launch { log, .. } => log.clone(),
            _ => None,
        };
        Self { instance, reason: describe(error), log: log.or(guest_log) }
    }
}

/// What came of the time in which an instance was awake.
pub(crate) struct Awake<R> {
    /// What the work returned, or why the instance could not be woken.
    pub(crate) value: Result<R, String>,
    /// Whether the instance is of no more use: it died, or cannot be woken or frozen.
    pub(crate) lost: bool,
    /// Why it could not be frozen although its work was done.
    pub(crate) complaint: Option<String>,
    /// What the platform saw of its end, where it died.
    pub(crate) exit_reason: Option<String>,
}

impl Instance {
    /// Wakes the guest, lets it work, and puts it to rest again.
    pub(crate) fn awake<R>(&mut self, work: impl FnOnce(&mut dyn Guest) -> R) -> Awake<R> {
        if self.freezes
            && let Err(error) = self.guest.thaw()
        {
            let exit_reason = self.guest.exit_reason();
            return Awake { value: Err(describe(&error)), lost: true, complaint: None, exit_reason };
        }
        let value = Ok(work(&mut *self.guest));
        if self.guest.session().is_lost() {
            let exit_reason = self.guest.exit_reason();
            return Awake { value, lost: true, complaint: None, exit_reason };
        }
        let complaint = self.rest().err().map(|error| describe(&error));
        Awake { value, lost: complaint.is_some(), complaint, exit_reason: None }
    }

    /// Counts what the guest moves of its disks, where it has any of its own.
    pub(crate) fn disk_meter(&self) -> Option<Box<dyn DiskMeter>> {
        self.guest.disk_meter()
    }

    /// What the run fills in for commands in it. `bare`: it has nothing but the probe.
    pub(crate) fn words(&self, bare: bool, trial: u64, seed: u64) -> Words {
        let words = Words::new(&staging::scratch(&*self.guest, bare), trial, seed);
        let words = words.with(staging::MEMORY, self.memory_bytes.to_string());
        words.with(staging::KERNELS, self.guest.kernels().display().to_string())
    }

    /// What the guest and the platform's tools said.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        self.guest.log()
    }

    /// Freezes the guest, if it can be.
    fn rest(&mut self) -> Result<(), PlatformError> {
        if self.freezes { self.guest.freeze() } else { Ok(()) }
    }
}

/// Root file systems by image: each is prepared once, in a directory of its own.
struct Roots<'a> {
    host: &'a Host,
    prepared: Vec<(ImageSpec, Arc<Root>)>,
}

impl Roots<'_> {
    fn get(&mut self, image: &ImageSpec, directory: Option<&Path>) -> Result<Arc<Root>, RunnerError> {
        if let Some((_, root)) = self.prepared.iter().find(|(known, _)| known == image) {
            return Ok(Arc::clone(root));
        }
        let work = self.host.work.join(format!("root-{}", self.prepared.len()));
        let root = Arc::new(Root::prepare(image, &self.host.programs, &work, directory)?);
        self.prepared.push((image.clone(), Arc::clone(&root)));
        Ok(root)
    }
}

/// The environments of a plan, in its order.
pub(crate) struct Fleet<'a> {
    host: &'a Host,
    /// The same for threads that outlive a trial.
    shared: Arc<Host>,
    pub(crate) host_facts: &'a HostFacts,
    plan: &'a Plan,
    pub(crate) sensors: &'a mut dyn Sensors,
    pub(crate) berths: Vec<Berth>,
    next_instance: u64,
    subject: Subject,
    /// The machine of load generators, where it is not this host.
    loader: Option<Arc<Machine>>,
    /// Whether the pilot goes on, in which nothing is measured.
    pub(crate) piloting: bool,
}

impl<'a> Fleet<'a> {
    /// Looks at the machine of the load generators, makes the root file system and prepares every
    /// platform. A platform that cannot be prepared fails at each launch.
    pub(crate) fn prepare(
        plan: &'a Plan,
        host: &'a Host,
        host_facts: &'a HostFacts,
        sensors: &'a mut dyn Sensors,
        next_instance: u64,
    ) -> Result<Self, RunnerError> {
        let guest = &plan.guest;
        let loads =
            plan.loader.as_ref().filter(|_| plan.workloads.iter().any(|w| w.staging.server.is_some()));
        let loader = loads.map(|spec| Machine::of(spec, host, &host_facts.boot).map(Arc::new)).transpose()?;
        let mut roots = Roots { host, prepared: Vec::new() };
        let mut fleet = Self {
            host,
            shared: Arc::new(host.clone()),
            host_facts,
            plan,
            sensors,
            berths: Vec::new(),
            next_instance,
            subject: Subject::of(plan).seen_from(loader.as_ref().map(|machine| machine.outside())),
            loader,
            piloting: false,
        };
        for environment in &plan.environments {
            let (platform, spec) = resolve(&environment.spec)?;
            let image = common_keys::image(platform, &spec, &guest.image);
            let directory = guest.working_directory.as_deref().filter(|_| image == ImageSpec::Host);
            let root = roots.get(&image, directory)?;
            let request = fleet.request(&spec, &root);
            let prepared = platform.prepare(host, &request);
            let unprepared = prepared.err().map(|error| LaunchFailure::new(next_instance, &error, None));
            let Capabilities { freeze: freezes, timed, .. } = platform.capabilities(&spec);
            let bare = image == ImageSpec::Probe && matches!(spec.get("storage"), None | Some("tmpfs"));
            fleet.berths.push(Berth {
                platform,
                spec,
                root,
                freezes,
                timed,
                bare,
                described: false,
                neighbours: None,
                unprepared,
                daemons: Vec::new(),
                most: MostGuests::default(),
                state: State::Empty,
            });
        }
        Ok(fleet)
    }

    fn request(&self, spec: &EnvironmentSpec, root: &Arc<Root>) -> GuestRequest {
        let request = GuestRequest {
            environment: spec.clone(),
            instance: self.next_instance,
            root: Arc::clone(root),
            cpus: self.plan.guest.cpus.clone(),
            memory_bytes: self.plan.guest.memory_bytes,
            publish: Vec::new(),
            outside: self.loader.as_ref().map(|machine| machine.outside()),
        };
        common_keys::settle_request(request, &self.host_facts.cpus)
    }

    /// Launches a fresh instance, at rest, in place of whatever is there. Returns its number and
    /// how long it took, seconds.
    pub(crate) fn launch(
        &mut self,
        environment: usize,
        statistics: &mut RunStatistics,
    ) -> Result<(u64, f64), LaunchFailure> {
        let started = Instant::now();
        let launched = self.try_launch(environment);
        let took_s = started.elapsed().as_secs_f64();
        statistics.launches += 1;
        statistics.launch_s += took_s;
        let berth = &mut self.berths[environment];
        match launched {
            Ok(instance) => {
                let number = instance.number;
                berth.state = State::Running(instance);
                Ok((number, took_s))
            }
            Err(failure) => {
                berth.state = State::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    fn try_launch(&mut self, environment: usize) -> Result<Instance, LaunchFailure> {
        let berth = &self.berths[environment];
        if let Some(unprepared) = &berth.unprepared {
            return Err(unprepared.clone());
        }
        let number = self.next_instance;
        let ports = self.ports(number)?;
        let mut request = self.request(&berth.spec, &berth.root);
        request.publish.clone_from(&ports);
        self.next_instance += 1;
        let berth = &self.berths[environment];
        let mut guest = berth
            .platform
            .launch(self.host, &request)
            .map_err(|error| LaunchFailure::new(number, &error, None))?;
        let log = guest.log();
        let failed = |error| LaunchFailure::new(number, &error, log.clone());
        // What a system still starts would be measured as the workload's.
        if berth.platform.capabilities(&berth.spec).system {
            system::init_ns(&mut *guest, &berth.platform.capabilities(&berth.spec), SYSTEM_DEADLINE)
                .map_err(|failure| LaunchFailure {
                    instance: number,
                    reason: failure.reason,
                    log: log.clone(),
                })?;
        }
        let clock = GuestClock::identify(guest.session(), berth.timed, &self.host_facts.boot)
            .map_err(|error| failed(error.into()))?;
        let describe = !berth.described && (self.piloting || !self.measures_cold());
        let subject = if describe { self.subject.clone() } else { self.subject.without_programs() };
        let capabilities = berth.platform.capabilities(&berth.spec);
        let facts = gather(&mut *guest, &capabilities, &subject, ports.first().copied())
            .map_err(|error| failed(error.into()))?;
        let freezes = berth.freezes;
        let (attached, warm) = (None, BTreeSet::new());
        let is_limited = capabilities.memory_limit || capabilities.sized_memory;
        let memory_bytes = request.memory_bytes.filter(|_| is_limited).unwrap_or(0);
        let mut instance =
            Instance { guest, number, attached, clock, warm, facts, ports, memory_bytes, freezes };
        instance.rest().map_err(failed)?;
        self.berths[environment].described |= describe;
        let accounts = instance.guest.accounts();
        if !capabilities.elsewhere {
            instance.attached = Some(self.sensors.attach(&accounts, self.cpus(&request)));
        }
        self.berths[environment].daemons = accounts.daemons;
        Ok(instance)
    }

    /// Ports for the servers of an instance, which no other instance has.
    fn ports(&self, instance: u64) -> Result<Vec<u16>, LaunchFailure> {
        let taken: Vec<u16> = self.berths.iter().flat_map(Berth::ports).copied().collect();
        ports::unused(ports::wanted(self.plan), &taken).ok_or_else(|| LaunchFailure {
            instance,
            reason: "no port of the host is free for a server; end what listens on so many".into(),
            log: None,
        })
    }

    /// Ports for so many guests, one each, that neither the host nor an instance has.
    pub(crate) fn ports_of_neighbours(&self, guests: u32) -> Option<Vec<u16>> {
        let taken: Vec<u16> = self.berths.iter().flat_map(Berth::ports).copied().collect();
        ports::unused(guests as usize, &taken)
    }

    /// The CPUs of load generators on this host: those that no guest has, all where guests have
    /// all.
    pub(crate) fn loader_cpus(&self, request: &GuestRequest) -> Vec<u32> {
        let rest = |cpu: &&u32| !request.cpus.contains(cpu);
        let rest: Vec<u32> = self.host_facts.cpus.iter().filter(rest).copied().collect();
        // Where the guest may run everywhere, the loader is among its CPUs.
        if request.cpus.is_empty() || rest.is_empty() { self.host_facts.cpus.clone() } else { rest }
    }

    /// A workload that is a server, in an environment; none where it is another.
    pub(crate) fn scene(&self, environment: usize, workload: usize) -> Option<Scene<'a>> {
        let workload = &self.plan.workloads[workload];
        let berth = &self.berths[environment];
        let request = self.request(&berth.spec, &berth.root);
        let from = match &self.loader {
            Some(machine) => LoadedFrom::There(Arc::clone(machine)),
            None => LoadedFrom::Here(self.loader_cpus(&request)),
        };
        // The user's directory is this host's.
        let here = matches!(from, LoadedFrom::Here(_));
        Some(Scene {
            host: self.host,
            workload,
            server: workload.staging.server.as_ref()?,
            spec: berth.spec.clone(),
            root: Arc::clone(&berth.root),
            can: berth.platform.capabilities(&berth.spec),
            variables: &self.plan.environments[environment].variables,
            directory: self.working_directory(environment),
            loader_directory: self.plan.guest.working_directory.as_deref().filter(|_| here),
            from,
            rate_per_s: None,
        })
    }

    /// The machine of load generators, where it is not this host.
    pub(crate) fn loader(&self) -> Option<&LoaderMachine> {
        self.loader.as_ref().map(|machine| machine.facts())
    }

    /// The CPUs that a guest may use.
    pub(crate) fn cpus<'r>(&self, request: &'r GuestRequest) -> &'r [u32]
    where
        'a: 'r,
    {
        if request.cpus.is_empty() { &self.host_facts.cpus } else { &request.cpus }
    }

    /// What it takes to start so many guests beside the berth. Their numbers are taken.
    pub(crate) fn recipe(&mut self, environment: usize, guests: u32) -> Result<Recipe, LaunchFailure> {
        let berth = &self.berths[environment];
        if let Some(unprepared) = &berth.unprepared {
            return Err(unprepared.clone());
        }
        let recipe = Recipe {
            host: Arc::clone(&self.shared),
            platform: berth.platform,
            can: berth.platform.capabilities(&berth.spec),
            request: self.request(&berth.spec, &berth.root),
            ports: Vec::new(),
        };
        self.next_instance += u64::from(guests);
        Ok(recipe)
    }

    /// Whether some workload is measured in a guest that has never run it. Reading its program
    /// would warm it up.
    fn measures_cold(&self) -> bool {
        self.plan.workloads.iter().any(|workload| workload.warmup == 0)
    }

    /// In what an environment may differ from others because of what it is.
    pub(crate) fn implies(&self, environment: usize) -> Vec<(&'static str, &'static str)> {
        let berth = &self.berths[environment];
        let image = common_keys::image(berth.platform, &berth.spec, &self.plan.guest.image);
        let mut implies = common_keys::implied(&berth.spec, image != self.plan.guest.image);
        let capabilities = berth.platform.capabilities(&berth.spec);
        implies.extend_from_slice(capabilities.implies);
        if capabilities.sized_memory {
            implies.extend_from_slice(common_keys::CARD_OF_ITS_OWN);
        }
        implies
    }

    /// Where the commands of an environment are executed: the user's directory, where its guests
    /// see the host's root.
    pub(crate) fn working_directory(&self, environment: usize) -> Option<&'a Path> {
        let berth = &self.berths[environment];
        let elsewhere = berth.platform.capabilities(&berth.spec).elsewhere;
        self.plan.guest.working_directory.as_deref().filter(|_| berth.root.host && !elsewhere)
    }

    /// Ends the instance of an environment, if there is one, and leaves `state` in its place. What
    /// could not be undone is returned as a sentence; the ledger has it.
    pub(crate) fn stop(
        &mut self,
        environment: usize,
        state: State,
        statistics: &mut RunStatistics,
    ) -> Option<String> {
        let before = std::mem::replace(&mut self.berths[environment].state, state);
        let State::Running(mut instance) = before else { return None };
        if let Some(attached) = instance.attached {
            self.sensors.detach(attached);
        }
        let started = Instant::now();
        let stopped = instance.guest.stop();
        statistics.stop_s += started.elapsed().as_secs_f64();
        let name = &self.plan.environments[environment].name;
        stopped.err().map(|error| format!("an instance of {name} did not end cleanly: {}", describe(&error)))
    }

    /// Ends the neighbours that stayed. Returns what could not be undone.
    pub(crate) fn disperse(&mut self) -> Vec<String> {
        let crowds = self.berths.iter_mut().filter_map(|berth| berth.neighbours.take());
        crowds.flat_map(Crowd::disperse).collect()
    }

    /// Ends every instance. Returns what could not be undone.
    pub(crate) fn stop_all(&mut self, statistics: &mut RunStatistics) -> Vec<String> {
        (0..self.berths.len()).filter_map(|e| self.stop(e, State::Empty, statistics)).collect()
    }
}
