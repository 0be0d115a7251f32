//! A fake platform, for tests of weighbridge itself and as a pattern for new platforms.
//!
//! A guest is a thread that answers the protocol from a script. Nothing is executed: a command
//! "takes" the time that the keys say and returns at once, so that scheduling, statistics, faults
//! and resuming are tested without guests and without waiting. The keys decide everything; the same
//! keys, run name and order of commands give the same numbers on every machine.

mod probe;
mod script;

use crate::guest::{Backend, CoreGuest, GuestCore, platform_change};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    Session, Values, setting,
};
use probe::{Fake, Shared};
use script::{Noise, Script};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, SpecError};

const DEADLINE: Duration = Duration::from_secs(5);
const FAULTS: Values = Values::Words(&["none", "exit", "check", "garbage", "missing", "hang", "mute", "die"]);

/// The fake platform.
pub struct Null;

const ABOUT: About = About {
    name: "null",
    summary: "a fake that executes nothing and answers from a script, for tests of weighbridge itself",
    keys: &[
        KeySpec::text("time").or("10ms").about("how long every command is said to take"),
        KeySpec::text("effect").or("0").about("fraction by which this environment is slower"),
        KeySpec::text("sd").or("0").about("standard deviation of the logarithm of the times"),
        KeySpec::text("drift").or("none").about(
            "what all null environments of a run share: none, linear-F (slower by F per 100 \
                commands), arRHO-SD (AR(1) with stationary deviation SD), step-F (now and then \
                slower by F)",
        ),
        KeySpec::number("seed").or("1").about("seed of noise and drift"),
        KeySpec::new("fault", FAULTS).or("none").about(
            "what goes wrong: the exit status, the check, the output, the program, the \
                command, the guest's answers, the guest",
        ),
        KeySpec::number("at").about("the fault strikes this command of an instance, counted from 0"),
        KeySpec::number("every").about("the fault strikes every so many commands of an instance"),
        KeySpec::text("fact")
            .about("parity facts that it shows, `KEY=VALUE` joined by `+`, in place of its own"),
        KeySpec::words("fork", &["no", "yes"])
            .about("whether the guest can run a server: a command called `serve`"),
        KeySpec::new("loader-fault", FAULTS)
            .or("none")
            .about("what goes wrong with the load generator of such a server, as `fault`"),
        KeySpec::number("loader-at").about("the fault strikes this command of a load generator"),
        KeySpec::number("loader-every").about("the fault strikes every so many of its commands"),
        KeySpec::number("fact-from").or("0").about("the first instance that shows them"),
        KeySpec::words("launch", &["ok", "fail"]).about("whether guests start"),
        KeySpec::words("undo", &["ok", "fail"])
            .about("whether the change to the host that it says it makes can be undone"),
        KeySpec::number("last").about("the last instance of a run that starts; default: all start"),
        KeySpec::text("launch-time")
            .about("how long the start of a guest is said to take, with `effect` and `sd`"),
        KeySpec::words("real", &["no", "yes"])
            .about("whether commands really take their time, on a clock that can be checked"),
        KeySpec::words("kernel", &["host", "own"])
            .about("whose boot the guest says it is, and whose clock it reads"),
        KeySpec::text("clock")
            .or("1")
            .about("rate of the guest's clock, as in 1.01; any but 1 gives the guest its own clock"),
        KeySpec::text("there").or("0ms").about("time that a request takes to arrive"),
        KeySpec::text("back").or("0ms").about("time that an answer takes to arrive"),
        KeySpec::text("jitter").or("0ms").about("longest random delay that is added to each way"),
        KeySpec::number("cpus").about("number of CPUs that the guest says it has; default: those asked for"),
    ],
};

impl Platform for Null {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            needs_root: false,
            host_root: false,
            mounts_host_root: false,
            fork: setting(self, environment, "fork") == "yes",
            timed: setting(self, environment, "real") == "yes",
            fake: true,
            ..Capabilities::CONTAINER
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        facts(setting(self, environment, "fact")).map_err(|part| {
            let help = "write `fact=cpus=1`, or `fact=cpus=1+libc=static`";
            environment.value_error("fact", format!("`{part}` is not of the form KEY=VALUE"), help)
        })?;
        Script::read(environment, |key| setting(self, environment, key)).map(|_| ())
    }

    fn availability(&self, host: &Host) -> Availability {
        let environment = EnvironmentSpec::new(self.name(), Default::default());
        let request = GuestRequest::new(environment, 0, Arc::new(Root::default()));
        match self.start(host, Fake { run: "availability".into(), request }) {
            Ok(_) => Availability::Ready { detail: "a fake".into() },
            Err(error) => error.into(),
        }
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        if setting(self, &request.environment, "undo") == "fail" {
            let id = request.environment.to_string();
            host.ledger.record(platform_change(self.name(), "change", &id, serde_json::Value::Null))?;
        }
        Ok(())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let fake = Fake { run: host.run.clone(), request: request.clone() };
        Ok(Box::new(self.start(host, fake)?))
    }

    fn host_changes(&self, _: &GuestRequest) -> Vec<String> {
        Vec::new()
    }
}

/// Returns the environment of a fake guest's load generator: the same times, but its own faults.
pub fn loader_of(environment: &EnvironmentSpec) -> EnvironmentSpec {
    const ALIKE: [&str; 6] = ["time", "effect", "sd", "drift", "seed", "real"];
    let of_loader = |(name, value): (&String, &String)| {
        let own = name.strip_prefix("loader-");
        let name = own.or_else(|| ALIKE.contains(&name.as_str()).then_some(name))?;
        Some((name.to_string(), value.clone()))
    };
    EnvironmentSpec::new(&environment.platform, environment.keys.iter().filter_map(of_loader).collect())
}

/// Returns the facts of the key `fact`, or the part of it that has no value as the error.
fn facts(text: &str) -> Result<BTreeMap<String, String>, &str> {
    let parts = text.split('+').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').map(|(key, value)| (key.into(), value.into())).ok_or(part))
        .collect()
}

impl Null {
    fn start(&self, host: &Host, fake: Fake) -> Result<CoreGuest<FakeGuest>> {
        let failed = |reason: String| PlatformError::launch(self.name(), reason);
        let GuestRequest { environment, instance, .. } = fake.request.clone();
        let script = Script::read(&environment, |key| setting(self, &environment, key))
            .map_err(|error| failed(error.to_string()))?;
        if script.refuses_to_launch {
            return Err(failed("the environment says launch=fail".into()));
        }
        if setting(self, &environment, "last").parse::<u64>().is_ok_and(|last| instance > last) {
            return Err(failed(format!("the environment says that {instance} is one too many")));
        }
        let mut noise = Noise::new(script.seed, &format!("launch {environment}"), instance);
        let launch_time = script.launch_time(&mut noise);
        let mut core = GuestCore::named(self.name(), host, format!("null-{instance}"));
        let from = setting(self, &environment, "fact-from").parse().unwrap_or(0);
        let said = if instance >= from { setting(self, &environment, "fact") } else { "" };
        core.facts = facts(said).unwrap_or_default();
        core.start_clock();
        let (ours, theirs) = UnixStream::pair().map_err(PlatformError::io("make a socket pair"))?;
        let write = ours.try_clone().map_err(PlatformError::io("duplicate a socket"))?;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new()
            .name("null".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || probe::serve(&theirs, script, &fake, &shared)
            })
            .map_err(PlatformError::io("start a thread"))?;
        core.session = Some(Session::new(OwnedFd::from(ours), OwnedFd::from(write)));
        CoreGuest::launch(core, FakeGuest { shared, thread: Some(thread) }, |_, core| {
            let Some(session) = &mut core.session else { return Ok(()) };
            session.hello(DEADLINE)?;
            if let (Some(time), Some(arrival)) = (launch_time, session.arrival()) {
                // Nobody waits: the start is dated back by the time that it is said to take.
                core.spawned_ns =
                    arrival.hello_ns.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(())
        })
    }
}

/// A thread that plays a guest.
struct FakeGuest {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Backend for FakeGuest {
    fn log(&self, _: &GuestCore) -> Option<PathBuf> {
        None
    }

    fn set_frozen(&mut self, _: &mut GuestCore, frozen: bool) -> Result<()> {
        let doing = if frozen { "freeze a fake guest" } else { "thaw a fake guest" };
        self.shared.freeze(frozen).map_err(PlatformError::io(doing))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        // Closing is enough: the thread reads the end of its channel, whatever it was told to play.
        if let Some(session) = &mut core.session {
            session.close();
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(PlatformError::StillThere("its thread panicked".into())),
            _ => Ok(()),
        }
    }
}
