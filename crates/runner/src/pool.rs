//! The pool of instances, one per environment: at most one is awake while a command runs.

mod instance;

use crate::guest_clock::GuestClock;
use crate::parity::{Subject, gather};
use crate::serve::machine::Machine;
use crate::serve::{LoadedFrom, ServerWorkload, ports};
use crate::start::footprint::MostGuests;
use crate::start::guest_pool::GuestPool;
use crate::start::system;
use crate::trial::describe;
use crate::{RunStatistics, RunnerError};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::accounts::Process;
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, HostFacts, ImageSpec, LoaderMachine, Neighbours, Plan};
use weigh_observe::Sensors;
use weigh_platforms::{Capabilities, GuestRequest, Host, Platform, common_keys, resolve};

pub(crate) use instance::{GuestEnd, Instance, LaunchFailure, Recipe};

/// Deadline for a guest's own init to start its services; an emulated machine is slow.
const SYSTEM_DEADLINE: Duration = Duration::from_secs(120);

/// One environment and its instance.
pub(crate) struct PoolEntry {
    pub(crate) platform: &'static dyn Platform,
    spec: EnvironmentSpec,
    root: Arc<Root>,
    pub(crate) can: Capabilities,
    /// Whether its guests have nothing but the probe, and no storage.
    pub(crate) bare: bool,
    /// Whether the probe has described the measured programs, which are the same in all instances.
    described: bool,
    /// Neighbours that stay from trial to trial.
    pub(crate) neighbours: Option<GuestPool>,
    /// Set when the platform could not be prepared: then no instance can be launched.
    unprepared: Option<LaunchFailure>,
    /// The platform's daemons, as its last guest reported them.
    pub(crate) daemons: Vec<Process>,
    /// The largest number of guests that were up at once while memory was measured.
    pub(crate) most: MostGuests,
    pub(crate) state: State,
}

impl PoolEntry {
    /// Ports of its instance.
    fn ports(&self) -> &[u16] {
        match &self.state {
            State::Running(instance) => &instance.ports,
            State::Empty | State::Dead | State::Failed(_) => &[],
        }
    }
}

/// The state of an environment's instance.
pub(crate) enum State {
    /// There is no instance, and none has been launched.
    Empty,
    /// An instance, frozen if it can be.
    Running(Instance),
    /// The instance died; the next trial launches another.
    Dead,
    /// The instance could not be launched.
    Failed(LaunchFailure),
}

/// Root file systems by image and by whether guests mount them. Each is prepared once, in its own
/// directory.
struct Roots<'a> {
    host: &'a Host,
    prepared: Vec<((ImageSpec, bool), Arc<Root>)>,
}

impl Roots<'_> {
    fn get(
        &mut self,
        image: &ImageSpec,
        can: &Capabilities,
        directory: Option<&Path>,
    ) -> Result<Arc<Root>, RunnerError> {
        let is_mounted = *image != ImageSpec::Host || can.mounts_host_root;
        let key = (image.clone(), is_mounted);
        if let Some((_, root)) = self.prepared.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(root));
        }
        let work = self.host.work.join(format!("root-{}", self.prepared.len()));
        let root = match is_mounted {
            true => Root::prepare(image, &self.host.programs, &work, directory)?,
            false => Root::of_host(),
        };
        let root = Arc::new(root);
        self.prepared.push((key, Arc::clone(&root)));
        Ok(root)
    }
}

/// The environments of a plan, in its order.
pub(crate) struct EnvironmentPool<'a> {
    host: &'a Host,
    /// The host again, for threads that outlive a trial.
    shared: Arc<Host>,
    pub(crate) host_facts: &'a HostFacts,
    plan: &'a Plan,
    pub(crate) sensors: &'a mut dyn Sensors,
    pub(crate) entries: Vec<PoolEntry>,
    next_instance: u64,
    subject: Subject,
    /// The machine of load generators, if it is not this host.
    loader: Option<Arc<Machine>>,
    /// Whether the pilot is running, in which nothing is measured.
    pub(crate) piloting: bool,
    /// Whether guests that reserve resources have found no room beside each other: since then at
    /// most one of them is up.
    pub(crate) crowded: bool,
}

impl<'a> EnvironmentPool<'a> {
    /// Describes the machine of the load generators, makes the root file system and prepares every
    /// platform. If a platform cannot be prepared, each of its launches fails.
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
        let mut pool = Self {
            host,
            shared: Arc::new(host.clone()),
            host_facts,
            plan,
            sensors,
            entries: Vec::new(),
            next_instance,
            subject: Subject::of(plan).seen_from(loader.as_ref().map(|machine| machine.outside())),
            loader,
            piloting: false,
            crowded: false,
        };
        for environment in &plan.environments {
            let (platform, spec) = resolve(&environment.spec)?;
            let image = common_keys::image(platform, &spec, &guest.image);
            let directory = guest.working_directory.as_deref().filter(|_| image == ImageSpec::Host);
            let can = platform.capabilities(&spec);
            let root = roots.get(&image, &can, directory)?;
            let request = pool.request(&spec, &root);
            let prepared = platform.prepare(host, &request);
            let unprepared = prepared.err().map(|error| LaunchFailure::new(next_instance, &error, None));
            let bare = image == ImageSpec::Probe && matches!(spec.get("storage"), None | Some("tmpfs"));
            pool.entries.push(PoolEntry {
                platform,
                spec,
                root,
                can,
                bare,
                described: false,
                neighbours: None,
                unprepared,
                daemons: Vec::new(),
                most: MostGuests::default(),
                state: State::Empty,
            });
        }
        Ok(pool)
    }

    fn request(&self, spec: &EnvironmentSpec, root: &Arc<Root>) -> GuestRequest {
        let request = GuestRequest {
            cpus: self.plan.guest.cpus.clone(),
            memory_bytes: self.plan.guest.memory_bytes,
            outside: self.loader.as_ref().map(|machine| machine.outside()),
            ..GuestRequest::new(spec.clone(), self.next_instance, Arc::clone(root))
        };
        common_keys::apply_cpus_and_memory(request, &self.host_facts.cpus)
    }

    /// The request for a guest of an environment, without ports.
    pub(crate) fn request_of(&self, environment: usize) -> GuestRequest {
        let entry = &self.entries[environment];
        self.request(&entry.spec, &entry.root)
    }

    /// The environment of the neighbours of a guest of `measured`, by its place in the plan.
    pub(crate) fn home_of(&self, neighbours: &Neighbours, measured: usize) -> usize {
        let place = |name: &String| self.plan.environments.iter().position(|known| known.name == *name);
        neighbours.environment.as_ref().and_then(place).unwrap_or(measured)
    }

    /// Launches a fresh instance and freezes it, in place of the previous one. Returns its number
    /// and how long the launch took, seconds.
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
        let entry = &mut self.entries[environment];
        match launched {
            Ok(instance) => {
                let number = instance.number;
                entry.state = State::Running(instance);
                Ok((number, took_s))
            }
            Err(failure) => {
                entry.state = State::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    fn try_launch(&mut self, environment: usize) -> Result<Instance, LaunchFailure> {
        let entry = &self.entries[environment];
        if let Some(unprepared) = &entry.unprepared {
            return Err(unprepared.clone());
        }
        let number = self.next_instance;
        let ports = self.ports(number)?;
        let mut request = self.request(&entry.spec, &entry.root);
        request.publish.clone_from(&ports);
        let can = entry.can;
        self.next_instance += 1;
        let mut guest = entry
            .platform
            .launch(self.host, &request)
            .map_err(|error| LaunchFailure::new(number, &error, None))?;
        let log = guest.log();
        let failed = |error| LaunchFailure::new(number, &error, log.clone());
        // Whatever the guest's init still starts would be measured as part of the workload.
        if can.system {
            let deadline = weigh_host::deadlines::scaled(SYSTEM_DEADLINE);
            system::init_ns(&mut *guest, &can, deadline).map_err(|failure| LaunchFailure {
                instance: number,
                reason: failure.reason,
                log: log.clone(),
                lacks_room: false,
            })?;
        }
        let clock = GuestClock::identify(guest.session(), can.timed, &self.host_facts.boot)
            .map_err(|error| failed(error.into()))?;
        let describe = !entry.described && (self.piloting || !self.measures_cold());
        let subject = if describe { self.subject.clone() } else { self.subject.without_programs() };
        let facts = gather(&mut *guest, &can, &subject, ports.first().copied())
            .map_err(|error| failed(error.into()))?;
        let freezes = can.freeze;
        let (attached, warm) = (None, BTreeSet::new());
        let is_limited = can.memory_limit || can.sized_memory;
        let memory_bytes = request.memory_bytes.filter(|_| is_limited).unwrap_or(0);
        let mut instance =
            Instance { guest, number, attached, clock, warm, facts, ports, memory_bytes, freezes };
        instance.rest().map_err(failed)?;
        self.entries[environment].described |= describe;
        let accounts = instance.guest.accounts();
        if !can.elsewhere {
            instance.attached = Some(self.sensors.attach(&accounts, self.cpus(&request)));
        }
        self.entries[environment].daemons = accounts.daemons;
        Ok(instance)
    }

    /// Ports for the servers of an instance, which no other instance has.
    fn ports(&self, instance: u64) -> Result<Vec<u16>, LaunchFailure> {
        self.unused_ports(ports::wanted(self.plan)).ok_or_else(|| LaunchFailure {
            instance,
            reason: "no port of the host is free for a server; end some of what listens on ports".into(),
            log: None,
            lacks_room: false,
        })
    }

    /// This many ports, used neither by the host nor by an instance.
    pub(crate) fn unused_ports(&self, wanted: usize) -> Option<Vec<u16>> {
        let taken: Vec<u16> = self.entries.iter().flat_map(PoolEntry::ports).copied().collect();
        ports::unused(wanted, &taken)
    }

    /// The CPUs of load generators on this host: those that no guest uses, or all if guests use
    /// all.
    pub(crate) fn loader_cpus(&self, request: &GuestRequest) -> Vec<u32> {
        let rest = |cpu: &&u32| !request.cpus.contains(cpu);
        let rest: Vec<u32> = self.host_facts.cpus.iter().filter(rest).copied().collect();
        // If the guest may run everywhere, it shares its CPUs with the loader.
        if request.cpus.is_empty() || rest.is_empty() { self.host_facts.cpus.clone() } else { rest }
    }

    /// The server workload in an environment; none if the workload is not a server.
    pub(crate) fn server(&self, environment: usize, workload: usize) -> Option<ServerWorkload<'a>> {
        let workload = &self.plan.workloads[workload];
        let entry = &self.entries[environment];
        let request = self.request_of(environment);
        let from = match &self.loader {
            Some(machine) => LoadedFrom::There(Arc::clone(machine)),
            None => LoadedFrom::Here(self.loader_cpus(&request)),
        };
        // The user's directory exists on this host only.
        let here = matches!(from, LoadedFrom::Here(_));
        Some(ServerWorkload {
            host: self.host,
            workload,
            server: workload.staging.server.as_ref()?,
            spec: entry.spec.clone(),
            root: Arc::clone(&entry.root),
            can: entry.can,
            variables: &self.plan.environments[environment].variables,
            directory: self.working_directory(environment),
            loader_directory: self.plan.guest.working_directory.as_deref().filter(|_| here),
            from,
            rate_per_s: None,
        })
    }

    /// The machine of load generators, if it is not this host.
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

    /// Makes the recipe for this many guests of an environment. Reserves their numbers.
    pub(crate) fn recipe(&mut self, environment: usize, guests: u32) -> Result<Recipe, LaunchFailure> {
        let entry = &self.entries[environment];
        if let Some(unprepared) = &entry.unprepared {
            return Err(unprepared.clone());
        }
        let recipe = Recipe {
            host: Arc::clone(&self.shared),
            platform: entry.platform,
            can: entry.can,
            request: self.request_of(environment),
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

    /// Whether the guests of an environment are on another machine.
    pub(crate) fn is_elsewhere(&self, environment: usize) -> bool {
        self.entries[environment].can.elsewhere
    }

    /// The parity keys in which the platform and the keys of an environment imply a difference.
    pub(crate) fn implies(&self, environment: usize) -> Vec<(&'static str, &'static str)> {
        let entry = &self.entries[environment];
        let image = common_keys::image(entry.platform, &entry.spec, &self.plan.guest.image);
        let mut implies = common_keys::implied(&entry.spec, image != self.plan.guest.image);
        implies.extend_from_slice(entry.can.implies);
        if entry.can.sized_memory {
            implies.extend_from_slice(common_keys::VIRTUAL_NIC_DIFFERENCES);
        }
        implies
    }

    /// Working directory of an environment's commands: the user's, if its guests see the host's
    /// root.
    pub(crate) fn working_directory(&self, environment: usize) -> Option<&'a Path> {
        let entry = &self.entries[environment];
        let sees_host = entry.root.host && (entry.can.host_root || entry.can.fake);
        self.plan.guest.working_directory.as_deref().filter(|_| sees_host)
    }

    /// Whether the guests of an environment find no room beside others that reserve resources.
    pub(crate) fn is_crowded(&self, environment: usize) -> bool {
        self.crowded && self.entries[environment].can.reserves
    }

    /// The other environments whose instances may leave no room for one of `environment`.
    pub(crate) fn in_the_way(&self, environment: usize) -> Vec<usize> {
        let reserves = |entry: &PoolEntry| entry.can.reserves;
        let runs = |entry: &PoolEntry| matches!(entry.state, State::Running(_));
        let others = self.entries.iter().enumerate().filter(|(other, _)| *other != environment);
        let others = others.filter(|(_, entry)| reserves(entry) && runs(entry)).map(|(other, _)| other);
        if reserves(&self.entries[environment]) { others.collect() } else { Vec::new() }
    }

    /// Stops the instance of an environment, if there is one, and sets `state`. Returns a sentence
    /// about what could not be undone; it stays in the ledger.
    pub(crate) fn stop(
        &mut self,
        environment: usize,
        state: State,
        statistics: &mut RunStatistics,
    ) -> Option<String> {
        let before = std::mem::replace(&mut self.entries[environment].state, state);
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

    /// Stops the neighbours that stayed. Returns what could not be undone.
    pub(crate) fn stop_neighbours(&mut self) -> Vec<String> {
        let pools = self.entries.iter_mut().filter_map(|entry| entry.neighbours.take());
        pools.flat_map(|mut pool| pool.stop_all()).collect()
    }

    /// Stops every instance. Returns what could not be undone.
    pub(crate) fn stop_all(&mut self, statistics: &mut RunStatistics) -> Vec<String> {
        (0..self.entries.len()).filter_map(|e| self.stop(e, State::Empty, statistics)).collect()
    }
}
