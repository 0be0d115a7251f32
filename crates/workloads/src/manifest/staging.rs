//! What surrounds the command: set-up, clean-up, packages, a server.

use super::validate::seconds;
use super::{Fault, Manifest, ManifestServer};
use std::ops::Range;
use toml::Spanned;
use weigh_model::{LoadLoop, Pace, ServerPlan, Staging};

/// A command of a manifest, and where it is executed.
pub(super) type Command<'a> = (&'a Words, Side);
type Words = Spanned<Vec<Spanned<String>>>;

/// The largest number of ports of a server.
const MOST_PORTS: u8 = 3;

/// Where a command is executed, which decides which placeholders the run fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// In the guest.
    Guest,
    /// In the guest, which serves on this many ports.
    Server(u8),
    /// Outside, as a client of this many ports.
    Loader(u8),
}

/// Every command of the manifest, and where it is executed.
pub(super) fn commands(manifest: &Manifest) -> Vec<Command<'_>> {
    let server = manifest.server.as_ref().map(Spanned::get_ref);
    let ports = server.map_or(0, |server| *server.ports.get_ref());
    let (driving, inside) = match server {
        Some(_) => (Side::Loader(ports), Side::Server(ports)),
        None => (Side::Guest, Side::Guest),
    };
    let mut commands = vec![(&manifest.command, driving)];
    let around = [
        (&manifest.prepare, driving),
        (&manifest.cleanup, driving),
        (&manifest.setup, inside),
        (&manifest.teardown, inside),
    ];
    commands.extend(around.into_iter().filter_map(|(command, side)| Some((command.as_ref()?, side))));
    if let Some(server) = server {
        commands.push((&server.command, inside));
        let around = [
            (&server.null, inside),
            (&server.ready, driving),
            (&server.fill, driving),
            (&server.null_load, driving),
            (&server.saturate, driving),
        ];
        commands.extend(around.into_iter().filter_map(|(command, side)| Some((command.as_ref()?, side))));
    }
    commands
}

/// Checks that the run fills in this placeholder where the command is executed.
pub(super) fn check_run_word(name: &str, side: Side, span: Range<usize>) -> Result<(), Fault> {
    let ports = match side {
        Side::Guest => 0,
        Side::Server(ports) | Side::Loader(ports) => ports,
    };
    let help = match name {
        "scratch" | "seed" => return Ok(()),
        "memory" if !matches!(side, Side::Loader(_)) => return Ok(()),
        "listen" if matches!(side, Side::Server(_)) => return Ok(()),
        "address" if matches!(side, Side::Loader(_)) => return Ok(()),
        "port" if ports >= 1 => return Ok(()),
        "port2" if ports >= 2 => return Ok(()),
        "port3" if ports >= 3 => return Ok(()),
        "memory" => "only the guest's commands have it, and a load generator is not one of them",
        "listen" => "only the server's commands have it: [server] command and null, setup, teardown",
        "rate" => "add `[params.rate]` with kind = \"rate\", and `saturate` to [server]",
        "address" => {
            "only the loader's commands have it: command, prepare, cleanup, [server] ready, fill, null_load and saturate"
        }
        _ => "say how many ports the server has, as in [server] ports = 2",
    };
    Err(Fault::new(span, format!("the run does not fill in `{{{name}}}` here"), help))
}

/// Checks the rows of studies, `study/row`.
pub(super) fn serves(rows: &[Spanned<String>]) -> Result<Vec<String>, Fault> {
    let sound =
        |row: &str| row.split_once('/').is_some_and(|(study, row)| !study.is_empty() && !row.is_empty());
    match rows.iter().find(|row| !sound(row.get_ref())) {
        None => Ok(rows.iter().map(|row| row.get_ref().clone()).collect()),
        Some(row) => {
            let message = format!("`{}` is not a row of a study", row.get_ref());
            Err(Fault::new(row.span(), message, "write it as in felter-2014/fig-6"))
        }
    }
}

pub(super) fn staging(manifest: &Manifest) -> Result<Staging, Fault> {
    let package = |name: &Spanned<String>| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        let sound = name.get_ref().len() >= 2 && name.get_ref().chars().all(known);
        let fault = || {
            Fault::new(
                name.span(),
                format!("`{}` is not the name of a package", name.get_ref()),
                "as apt(8) knows it",
            )
        };
        sound.then(|| name.get_ref().clone()).ok_or_else(fault)
    };
    Ok(Staging {
        setup: manifest.setup.as_ref().map(words),
        teardown: manifest.teardown.as_ref().map(words),
        setup_deadline_s: manifest.setup_deadline.as_ref().map(seconds).transpose()?,
        packages: manifest.packages.iter().map(package).collect::<Result<_, _>>()?,
        server: manifest.server.as_ref().map(|server| server_plan(server.get_ref())).transpose()?,
    })
}

fn server_plan(server: &ManifestServer) -> Result<ServerPlan, Fault> {
    let ports = *server.ports.get_ref();
    if !(1..=MOST_PORTS).contains(&ports) {
        let message = format!("a server has 1 to {MOST_PORTS} ports");
        return Err(Fault::new(server.ports.span(), message, "write how many it listens on"));
    }
    if server.transport.get_ref().is_empty() {
        let help = "write [\"tcp\"], [\"udp\"] or both";
        return Err(Fault::new(server.transport.span(), "a server without a transport protocol", help));
    }
    if let (Some(load), None) = (&server.null_load, &server.null) {
        let message = "a load for a null server that is not there";
        return Err(Fault::new(load.span(), message, "add `null`, or remove `null_load`"));
    }
    if let (Some(saturate), LoadLoop::Closed) = (&server.saturate, server.kind) {
        let message = "a closed loop has no rate that would follow from saturating the server";
        return Err(Fault::new(saturate.span(), message, "write loop = \"open\", or remove `saturate`"));
    }
    Ok(ServerPlan {
        command: words(&server.command),
        ports,
        transport: server.transport.get_ref().clone(),
        ready: server.ready.as_ref().map(words),
        fill: server.fill.as_ref().map(words),
        null: server.null.as_ref().map(words),
        null_load: server.null_load.as_ref().map(words),
        kind: server.kind,
        pace: server.saturate.as_ref().map(|saturate| Pace { share: 1.0, saturate: words(saturate) }),
    })
}

fn words(command: &Words) -> Vec<String> {
    command.get_ref().iter().map(|word| word.get_ref().clone()).collect()
}
