//! passt(1) between the machine and the host's network: a program that translates the guest's
//! packets into sockets, which needs no privileges.
//!
//! The guest has the addresses that it has in QEMU's own network, so that the two differ only in
//! who carries the packets. As there, it is reached only through ports of the host, and reaches
//! whatever the host can, but not the host's loopback interface.
//!
//! QEMU and passt are the two ends of a pair of sockets, which nobody else can connect to. passt
//! ends with QEMU: it serves one connection, and that only once. The machine's name is among its
//! arguments, so that it is found with the machine after a crash of weigh.
//!
//! passt takes the address, the mask, the router and the hardware address of its own end from the
//! host's interface with the default route, unless all four are given. They are given here, so a
//! host without a route has this network too. Sources: passt(1), and `conf.c` of passt.

use super::super::guest::pair;
use super::super::qmp::{Qmp, QmpError};
use super::BACKEND;
use super::forwards::Forwards;
use super::user::{GUEST, ROUTER, monitor};
use crate::guest::GuestCore;
use crate::mapped::MONITOR_USER;
use crate::{PlatformError, Result};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weigh_host::accounts::process_text;
use weigh_host::command::{CommandError, Invocation, Running, find_program};

/// The program.
const PROGRAM: &str = "passt";
/// How it is installed.
const REMEDY: &str = "install it with `apt-get install passt`, or write `net=user`";
/// What helps where it is installed and does not work.
const REMEDY_BROKEN: &str =
    "allow ordinary users to make user namespaces, which it makes its sandbox of, or write `net=user`";
/// The hardware address of the router. It is the same for all machines, because a machine that is
/// restored remembers it.
const ROUTER_HARDWARE: &str = "02:00:0a:00:02:02";
/// Name in the place of a machine's when passt is only tried out.
const TRIAL: &str = "weighbridge-trial";
/// Time limit of a trial, which takes a hundredth of a second.
const TRIAL_DEADLINE: Duration = Duration::from_secs(20);
/// Room for frames on their way from passt to QEMU, bytes; the kernel makes it twice as large.
const BUFFER_BYTES: usize = 4 << 20;
/// How often other ports are tried if somebody else took the chosen ones first.
const ATTEMPTS: u32 = 8;
/// How often it is checked whether something is ready.
const LOOK: Duration = Duration::from_millis(1);

/// The passt of one machine.
#[derive(Debug)]
pub(super) struct Passt {
    pub(super) forwards: Forwards,
    /// The program, once it has been started.
    pub(super) running: Option<Running>,
}

/// Checks that passt is installed, and that it starts here and makes its sandbox.
///
/// # Errors
/// It is not installed, or does not start.
pub(super) fn check(is_root: bool) -> Result<()> {
    static WORKS: OnceLock<()> = OnceLock::new();
    if WORKS.get().is_none() {
        try_out(&program()?, is_root)?;
        let _ = WORKS.set(());
    }
    Ok(())
}

fn program() -> Result<PathBuf> {
    find_program(PROGRAM).ok_or_else(|| PlatformError::program_missing(PROGRAM, REMEDY))
}

/// Starts the program with a connection that is closed already, so that it ends once it is ready.
fn try_out(program: &Path, is_root: bool) -> Result<()> {
    let (ours, theirs) = connection()?;
    drop(ours);
    match command(program, TRIAL, theirs, is_root).deadline(TRIAL_DEADLINE).run_ok() {
        Ok(_) => Ok(()),
        Err(CommandError::Status { error, .. }) => {
            Err(PlatformError::unavailable(format!("{PROGRAM} does not start: {error}"), REMEDY_BROKEN))
        }
        Err(error) => Err(error.into()),
    }
}

/// QEMU's end of the connection, and that of passt.
///
/// passt drops the frames for which its end has no room, and then streams stand still; that of 2023
/// even loses the end of some. It makes room itself only where it accepts the connection. Ordinary
/// users get no more than `net.core.wmem_max`.
fn connection() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair()?;
    set_socket_send_buffer_size_force(&theirs, BUFFER_BYTES)
        .or_else(|_| set_socket_send_buffer_size(&theirs, BUFFER_BYTES))
        .map_err(PlatformError::io("make room for the frames of passt"))?;
    Ok((ours, theirs))
}

/// The command without forwarded ports. `name` is the machine's.
fn command(program: &Path, name: &str, connection: OwnedFd, is_root: bool) -> Invocation {
    let command = Invocation::new(program)
        .args(["--foreground", "--quiet", "--ipv4-only", "--no-map-gw", "--no-dhcp", "--no-icmp"])
        .args(["--interface", "lo", "--address", GUEST, "--netmask", "24", "--gateway", ROUTER])
        .args(["--mac-addr", ROUTER_HARDWARE, "--dns", "none"])
        // The domain that passt would search for names in, if it answered DHCP: its only option of
        // any text, here the name by which it is found.
        .args(["--search", name])
        .arg("--fd")
        .arg(connection.as_raw_fd().to_string())
        .pass(connection);
    // As root passt would change its user only once it has opened its sockets.
    if is_root { command.as_user(MONITOR_USER) } else { command }
}

impl Passt {
    pub(super) fn new(forwards: Forwards) -> Self {
        Self { forwards, running: None }
    }

    /// Starts passt in the guest's control group, and waits until it has the host's ports. Returns
    /// QEMU's end of the connection; `None` if passt ended or was not ready before `until`. The
    /// guest's log says why.
    ///
    /// # Errors
    /// It is not installed, or cannot be executed.
    pub(super) fn start(
        &mut self,
        core: &GuestCore,
        is_root: bool,
        until: Instant,
    ) -> Result<Option<OwnedFd>> {
        let program = program()?;
        for _ in 0..ATTEMPTS {
            let ports = self.choose().map_err(PlatformError::io("find a port of the host for the guest"))?;
            let (ours, theirs) = connection()?;
            let mut command = command(&program, &core.name, theirs, is_root).log_to(&core.log);
            for (port, host_port) in &ports {
                let rule = format!("{}/{host_port}:{port}", self.forwards.at);
                command = command.args(["--tcp-ports", &rule, "--udp-ports", &rule]);
            }
            if let Some(cgroup) = &core.cgroup {
                command = command.pre_exec_cgroup(cgroup);
            }
            let mut running = command.spawn()?;
            if is_up(&mut running, until).map_err(PlatformError::io("wait for passt"))? {
                self.forwards.forwarded = ports;
                self.running = Some(running);
                return Ok(Some(ours));
            }
            if Instant::now() >= until {
                break;
            }
        }
        Ok(None)
    }

    /// The host's port for each port of the guest. Unless it has to be a certain one, the kernel
    /// chooses one that is free for TCP.
    fn choose(&self) -> std::io::Result<BTreeMap<u16, u16>> {
        let one = |(port, wanted): (u16, u16)| match wanted {
            0 => TcpListener::bind((self.forwards.at, 0))?.local_addr().map(|free| (port, free.port())),
            _ => Ok((port, wanted)),
        };
        self.forwards.wanted().into_iter().map(one).collect()
    }
}

/// The value of QEMU's `-netdev` for its end of the connection.
pub(super) fn backend(connection: &OwnedFd) -> String {
    format!("stream,id={BACKEND},server=off,addr.type=fd,addr.str={}", connection.as_raw_fd())
}

/// Waits until passt is behind a filter of system calls of its own, which it puts up last; its ports
/// listen then. Returns whether it got there before it ended and before `until`.
fn is_up(passt: &mut Running, until: Instant) -> std::io::Result<bool> {
    let ours = filters(std::process::id());
    while Instant::now() < until {
        if filters(passt.pid()) > ours {
            return Ok(true);
        }
        if passt.wait(LOOK)?.is_some() {
            break;
        }
    }
    Ok(false)
}

/// How many filters of system calls a process is behind; `None` before Linux 5.9, and for a process
/// that has ended (`proc_pid_status(5)`).
fn filters(pid: u32) -> Option<u32> {
    let status = process_text(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

/// Has QEMU send a frame of the card, from which passt learns the card's hardware address. It drops
/// what clients send to the guest until then, and lets them wait for 10 s.
///
/// # Errors
/// QEMU refuses, or does not take the connection before `until`.
pub(super) fn announce(qmp: &mut Qmp, until: Instant) -> Result<(), QmpError> {
    // QEMU takes the connection in another thread, and drops frames until then.
    while !monitor(qmp, "info network", until)?.contains("unix:") {
        if Instant::now() >= until {
            return Err(QmpError::Lost("does not take the connection to passt".into()));
        }
        std::thread::sleep(LOOK);
    }
    let once = json!({ "initial": 1, "max": 1, "rounds": 1, "step": 0 });
    qmp.execute("announce-self", once, until).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program in the place of passt, which other users may execute.
    fn script(base: &Path, text: &str) -> PathBuf {
        let path = base.join(PROGRAM);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_passt_that_does_not_start_is_missing_with_its_reason() {
        let base = tempfile::tempdir().unwrap();
        let broken = script(base.path(), "echo no user namespace >&2; exit 1");
        let error = try_out(&broken, false).unwrap_err();
        assert!(error.to_string().contains("passt does not start: no user namespace"), "{error}");
        try_out(&script(base.path(), "[ $1 = --foreground ]"), false).unwrap();
    }

    #[test]
    fn the_guest_does_not_reach_the_loopback_interface_and_asks_for_nothing() {
        let (_ours, theirs) = pair().unwrap();
        let line = command(Path::new("/x/passt"), "weighbridge-run-1", theirs, false).command_line();
        for part in ["--no-map-gw", "--no-dhcp", "--dns none", "--address 10.0.2.15", "--interface lo"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(line.contains("--search weighbridge-run-1 "), "{line}");
    }

    #[test]
    fn passt_has_more_room_for_frames_than_sockets_have_by_themselves() {
        let (ours, theirs) = connection().unwrap();
        let room = |end: &OwnedFd| rustix::net::sockopt::socket_send_buffer_size(end).unwrap();
        assert!(room(&theirs) > room(&ours), "{} and {} bytes", room(&theirs), room(&ours));
    }

    #[test]
    fn only_a_process_with_a_filter_of_its_own_is_up() {
        let soon = || Instant::now() + Duration::from_millis(50);
        let mut ended = Invocation::new("false").spawn().unwrap();
        assert!(!is_up(&mut ended, Instant::now() + Duration::from_secs(10)).unwrap());
        assert!(ended.try_wait().unwrap().is_some(), "it is not waited for until the deadline");
        let mut unfiltered = Invocation::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_up(&mut unfiltered, soon()).unwrap());
    }

    #[test]
    fn a_single_port_is_chosen_by_the_kernel() {
        let chosen = |published: &[u16]| Passt::new(Forwards::new(published, None)).choose().unwrap();
        let one = chosen(&[7]);
        assert!(one.len() == 1 && one[&7] > 1023, "{one:?}");
        assert_eq!(chosen(&[7007, 7008]), BTreeMap::from([(7007, 7007), (7008, 7008)]));
    }
}
