//! The guest side of weighbridge: runs commands, moves files and reads clocks for the host.
//!
//! ```text
//! weigh-probe                       talk over standard input and output
//! weigh-probe --channel PATH        over a device: a serial port or console
//! weigh-probe --channel port:NAME   over the virtio port of that name, which is waited for
//! weigh-probe --channel vsock:PORT  over a socket to that port of the host (vsock(7)); vsock:CID:PORT to that of a machine
//! weigh-probe --channel vsock-listen:PORT   over sockets that are connected to that port of this machine, one at a time
//! weigh-probe --version
//! ```
//!
//! One thread and one `poll(2)`: while a workload runs the probe sleeps, without timers. It is
//! small because it is part of every guest that is weighed: built with `+crt-static` and
//! `panic = "abort"` (the profile `probe`) it is linked without Rust's standard library; every
//! other build, tests among them, links it for its panic handler only.
//!
//! The probe ends when it is told to, when the channel is closed, or on SIGTERM; where it is
//! connected to it waits for another connection instead of ending, because a machine that is
//! restored has lost those that it had. It takes its command along: the command's process group and
//! everything that descends from it are killed. Ended as PID 1 of a machine it powers the machine
//! off. It is that when it is PID 1 of the kernel's first PID namespace; PID 1 of a container's
//! namespace just exits. As init of a machine it first loads the kernel modules and makes the
//! mounts that the tables of [`weigh_protocol::boot`] list, and writes the time since boot to the
//! console. A kernel is told to run it by `rdinit=/.weighbridge/probe`, and its arguments stand
//! after ` -- ` on the kernel's command line. `--address A.B.C.D/24 --gateway A.B.C.E` among them
//! are what its first network card has before the probe says hello. `--root DEVICE` makes the ext4
//! file system of that disk the root before the mounts are made. With `--init PROGRAM` PID 1
//! becomes that program of the root, the init of a system; the probe goes on as its child, and
//! still powers the machine off.

#![no_std]
#![cfg_attr(not(test), no_main)]

extern crate alloc;
#[cfg(not(all(target_feature = "crt-static", panic = "abort", not(test))))]
extern crate std;

mod boot;
mod channel;
mod clock;
mod command;
mod facts;
mod files;
#[cfg(all(target_feature = "crt-static", panic = "abort", not(test)))]
mod freestanding;
mod init;
mod processes;
mod root;
mod running;
mod server;
mod signals;
mod spawn;
mod vsock;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use channel::Channel;
use core::ffi::{CStr, c_char, c_int};
use rustix::fd::BorrowedFd;
use rustix::process::getpid;
use weigh_links::Address;

/// Bad usage, as the shells have it.
const USAGE: c_int = 2;

/// Called by the C library's start code.
///
/// # Safety
/// `arguments` must be an array of `count` strings that live as long as the process, as C has it
/// (C17 5.1.2.2.1).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    clock::begin();
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: as the caller promises.
    let arguments: Vec<String> = (0..count)
        .map(|i| unsafe { CStr::from_ptr(*arguments.add(i)) }.to_string_lossy().into_owned())
        .collect();
    match run(&arguments) {
        Ok(()) => 0,
        Err(message) => {
            say(standard(2), &format!("weigh-probe: {message}\n"));
            USAGE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let init = getpid().is_init();
    let mut path = None;
    let (mut address, mut gateway) = (None, None);
    let (mut disk, mut system) = (None, None);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--channel" => path = Some(rest.next().ok_or("--channel takes the path of a device")?),
            "--address" => address = Some(rest.next().ok_or("--address takes an address")?),
            "--gateway" => gateway = Some(rest.next().ok_or("--gateway takes an address")?),
            "--root" => disk = Some(rest.next().ok_or("--root takes the path of a disk")?),
            "--init" => system = Some(rest.next().ok_or("--init takes the path of a program")?),
            "--version" => {
                let (version, protocol) = (env!("CARGO_PKG_VERSION"), weigh_protocol::VERSION);
                say(standard(1), &format!("weigh-probe {version} (protocol {protocol})\n"));
                return Ok(());
            }
            // A kernel hands to its init what it does not understand itself.
            _ if init => {}
            other => return Err(format!("unknown argument `{other}`; it takes --channel PATH or --version")),
        }
    }
    let address = Address::parse(address.map(String::as_str), gateway.map(String::as_str))?;
    init::set_up_process();
    let machine = init && init::set_up_system();
    let given = [("--address", address.is_some()), ("--root", disk.is_some()), ("--init", system.is_some())];
    if let (false, Some((word, _))) = (machine, given.iter().find(|(_, given)| *given)) {
        return Err(format!("{word} is for the init of a machine"));
    }
    let program = arguments.first().map_or("", String::as_str);
    let begun = if machine {
        boot::boot(address, disk.map(String::as_str))
            .and_then(|()| system.map_or(Ok(()), |system| root::start_system(system)))
    } else {
        Ok(())
    };
    let ended = begun
        .and_then(|()| open(path.map(String::as_str), machine))
        .and_then(|channel| server::serve(channel, program));
    if machine {
        if let Err(message) = &ended {
            boot::say(message);
        }
        // An init that returned would make the kernel panic.
        init::power_off();
    }
    ended
}

/// The channel, over which hello is said already when it is a device.
fn open(path: Option<&str>, machine: bool) -> Result<Channel, String> {
    let Some(path) = path else {
        return Channel::standard().map_err(|errno| format!("cannot talk over standard input: {errno}"));
    };
    if let Some(port) = path.strip_prefix("vsock-listen:") {
        let number = port.parse().map_err(|_| format!("`{port}` is no port of a machine"))?;
        let accepted = vsock::listen(number).and_then(Channel::accepted_by);
        let mut channel =
            accepted.map_err(|errno| format!("cannot be reached at port {number} by vsock: {errno}"))?;
        channel.send(&server::hello());
        return Ok(channel);
    }
    if let Some(address) = path.strip_prefix("vsock:") {
        let address = vsock::Address::parse(address)
            .ok_or_else(|| format!("`{path}` is not vsock:PORT or vsock:CID:PORT"))?;
        let mut channel = Channel::over(vsock::connect(address)?)
            .map_err(|errno| format!("cannot talk over {path}: {errno}"))?;
        channel.send(&server::hello());
        return Ok(channel);
    }
    let device = match path.strip_prefix("port:") {
        Some(name) => boot::port(name, machine)?,
        None => path.into(),
    };
    let mut channel =
        Channel::open(&device).map_err(|errno| format!("cannot talk over {device}: {errno}"))?;
    channel.send(&server::hello());
    Ok(channel)
}

/// A standard stream by its number.
fn standard(number: c_int) -> BorrowedFd<'static> {
    // SAFETY: the streams are open when the process starts, or `init::set_up_process` puts
    // something in their place, and nothing closes them; where one is closed before that, using it
    // fails with EBADF.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Writes a line for people; there is nobody to tell when that fails.
fn say(to: BorrowedFd<'_>, line: &str) {
    let _ = rustix::io::write(to, line.as_bytes());
}
