//! The start of one guest with all its timestamps.

use super::boot::{BootTimestamps, NOT_TOLD};
use super::client::Client;
use super::system::{init_ns, of_session};
use super::{StartOutcome, Window, not_launched, since, used_by};
use crate::guest_clock::GuestClock;
use crate::pool::{EnvironmentPool, Recipe};
use crate::serve::route::{listen_at, network, reach, unreachable_reason};
use crate::trial::{Failure, describe};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;
use weigh_model::{FailureKind, stamps};
use weigh_platforms::{Capabilities, Guest};
use weigh_protocol::{COMMAND_PATH, Command, Input};

/// What the server in the guest prints when it accepts connections.
const LISTENING: &[u8] = b"listening\n";
/// How long the server may take to print it, and to send its first response.
const SERVICE_DEADLINE: Duration = Duration::from_secs(30);
/// How long the server may take to end when it is killed.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// What to measure of a start.
pub(super) struct Wanted<'a> {
    pub(super) deadline: Duration,
    /// Whether the stages of a virtual machine's start are measured, too.
    pub(super) boot: bool,
    /// Stages that platforms report, by the names of their metrics.
    pub(super) stages: &'a [String],
}

/// Starts a guest, takes its timestamps and stops it.
pub(super) fn start_guest(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    mut recipe: Recipe,
    wanted: Wanted<'_>,
) -> Result<StartOutcome, Failure> {
    let Wanted { deadline, boot, stages } = wanted;
    let port = free_port();
    recipe.request.publish = port.into_iter().collect();
    let window = Window::open(pool, environment, &recipe.request);
    let mut guest = match recipe.launch(0) {
        Ok(guest) => guest,
        Err(error) => {
            window.abandon(pool);
            return Err(not_launched(&error));
        }
    };
    let log = guest.log();
    let spawned_ns = guest.spawned_ns();
    let mut outcome = StartOutcome { guests: 1, ..StartOutcome::default() };
    let init = first_instruction_ns(&mut *guest, &recipe.can)
        .and_then(|code_ns| Ok((code_ns, init_ns(&mut *guest, &recipe.can, deadline)?)));
    let (code_ns, init_ns) = match init {
        Ok(stamps) => stamps,
        Err(failure) => {
            window.abandon(pool);
            return Err(failure.of_guest(&mut *guest, log));
        }
    };
    outcome.put(stamps::CODE, since(spawned_ns, code_ns));
    outcome.put(stamps::INIT, since(spawned_ns, init_ns));
    outcome.duration_ns = since(spawned_ns, init_ns);
    put_stages(&*guest, stages, &mut outcome);
    let pause_ns = monotonic_ns();
    let (used, accounts) = used_by(&*guest);
    outcome.observed = window.close(pool, used);
    pool.entries[environment].daemons = accounts.daemons;
    if boot {
        boot_parts(&mut *guest, &recipe.can, init_ns, &mut outcome)
            .map_err(|failure| failure.of_guest(&mut *guest, log.clone()))?;
    }
    // The accounting just now took time that no user of the platform pays for.
    let origin_ns = spawned_ns + since(pause_ns, monotonic_ns());
    serve(&mut *guest, &recipe.can, port, origin_ns, &mut outcome)
        .map_err(|failure| failure.of_guest(&mut *guest, log.clone()))?;
    let asked_ns = monotonic_ns();
    guest
        .stop()
        .map_err(|error| Failure { log, ..Failure::new(FailureKind::GuestDied, describe(&error)) })?;
    let ended_ns = monotonic_ns();
    outcome.put(stamps::STOP, since(asked_ns, ended_ns));
    outcome.bracket = (spawned_ns, ended_ns);
    Ok(outcome)
}

/// When the guest's code began to run: when the platform began to execute a virtual machine;
/// otherwise when the probe began, by its own clock if that is the host's; otherwise when its hello
/// arrived. A timestamp counts only if it lies between the spawn and the hello.
fn first_instruction_ns(guest: &mut dyn Guest, can: &Capabilities) -> Result<u64, Failure> {
    let spawned_ns = guest.spawned_ns();
    let hello_ns = super::system::hello_ns(guest)?;
    let started_ns = guest.session().arrival().map(|arrival| arrival.started_ns);
    let own = started_ns.filter(|_| can.shares_kernel);
    let within = |ns: &u64| (spawned_ns..=hello_ns).contains(ns);
    Ok(guest.code_ns().or(own).filter(within).unwrap_or(hello_ns))
}

/// Adds the stages of a start that its platform reports; they are absent if it reports none.
fn put_stages(guest: &dyn Guest, stages: &[String], outcome: &mut StartOutcome) {
    let told = guest.stages();
    for stage in stages {
        match told.iter().find(|(name, _)| name == stage) {
            Some((_, Ok(at_ns))) => outcome.put(stage, since(guest.spawned_ns(), *at_ns)),
            Some((_, Err(reason))) => outcome.mark_absent(stage, reason),
            None => outcome.mark_absent(stage, "the guest is not a pod"),
        }
    }
}

/// Adds the stages of a virtual machine's start; they are absent for other guests.
fn boot_parts(
    guest: &mut dyn Guest,
    can: &Capabilities,
    init_ns: u64,
    outcome: &mut StartOutcome,
) -> Result<(), Failure> {
    if !can.sized_memory {
        let reason = "the guest is not a machine that boots its own kernel";
        stamps::BOOT.iter().for_each(|metric| outcome.mark_absent(metric, reason));
        return Ok(());
    }
    let lost = |error| of_session(&error, "the guest's clock could not be read");
    let exchanged = GuestClock::Own.exchange(guest.session()).map_err(lost)?;
    let (Some(exchanged), Some(arrival)) = (exchanged, guest.session().arrival()) else {
        let reason = "the guest's clock could not be read";
        stamps::BOOT.iter().for_each(|metric| outcome.mark_absent(metric, reason));
        return Ok(());
    };
    let (spawned_ns, code_ns) = (guest.spawned_ns(), guest.code_ns());
    let parts = BootTimestamps { code_ns, started_ns: arrival.started_ns, init_ns }.parts(&exchanged);
    let vmm_ns = code_ns.map(|code_ns| since(spawned_ns, code_ns)).ok_or(NOT_TOLD);
    for (metric, part) in [
        (stamps::BOOT_VMM, vmm_ns),
        (stamps::BOOT_FIRMWARE, parts.firmware_ns),
        (stamps::BOOT_KERNEL, Ok(parts.kernel_ns)),
        (stamps::BOOT_USER, parts.user_ns),
        (stamps::BOOT_BOUND, Ok(parts.bound_ns)),
    ] {
        match part {
            Ok(ns) => outcome.put(metric, ns),
            Err(reason) => outcome.mark_absent(metric, reason),
        }
    }
    Ok(())
}

/// Starts a server in the guest and waits for its first response. If the guest cannot run one, the
/// timestamps are absent.
fn serve(
    guest: &mut dyn Guest,
    can: &Capabilities,
    port: Option<u16>,
    origin_ns: u64,
    outcome: &mut StartOutcome,
) -> Result<(), Failure> {
    if !can.fork {
        let reason = "the guest runs only its one program, and no server beside it";
        outcome.mark_absent(stamps::SERVICE, reason);
        outcome.mark_absent(stamps::RESPONSE, reason);
        return Ok(());
    }
    let port = port.ok_or_else(|| Failure::new(FailureKind::Preparation, "no port of the host is free"))?;
    let reach = reach(guest, can, port);
    let client = match &reach {
        Some(reach) => Some(Client::new(reach.from.as_deref()).map_err(|error| unreachable_by(&error))?),
        None => None,
    };
    let at = listen_at(guest, can, reach.as_ref());
    let id = guest.session().start(&server(at, port)).map_err(|error| not_served(&error))?;
    let served = guest.session().await_output(id, LISTENING, SERVICE_DEADLINE);
    let listening_ns = served.map_err(|error| not_served(&error))?;
    outcome.put(stamps::SERVICE, since(origin_ns, listening_ns));
    match client.zip(reach) {
        Some((client, reach)) => {
            let until = Instant::now() + SERVICE_DEADLINE;
            let response_ns =
                client.first_response_ns(reach.address, until).map_err(|error| unreachable_by(&error))?;
            outcome.put(stamps::RESPONSE, since(origin_ns, response_ns));
        }
        None => {
            outcome.mark_absent(stamps::RESPONSE, &unreachable_reason(&network(guest, can), can.networks))
        }
    }
    // A server that does not end goes with its guest.
    let session = guest.session();
    let _ = session.signal(id, 9).and_then(|()| session.finish(id, END_DEADLINE).map(drop));
    Ok(())
}

fn not_served(error: &weigh_platforms::SessionError) -> Failure {
    of_session(error, "the service did not come up")
}

fn unreachable_by(error: &std::io::Error) -> Failure {
    Failure::new(FailureKind::Check, format!("the service gave no response: {error}"))
}

/// The server: it lives until it is killed, because its standard input stays open.
fn server(at: IpAddr, port: u16) -> Command {
    let address = SocketAddr::new(at, port).to_string();
    let argv = ["weigh-kernels", "echo", "--protocols", "tcp", "--serve", &address];
    Command {
        argv: argv.map(String::from).to_vec(),
        environment: vec![("PATH".into(), COMMAND_PATH.into())],
        working_directory: None,
        input: Input::Pipe,
        output_limit_bytes: 64 << 10,
    }
}

/// A port that nobody on the host listens on: some guests share the host's network, and some
/// publish their port on it.
fn free_port() -> Option<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}
