//! The guest side of weighbridge: runs commands, moves files and reads clocks for the host.
//!
//! ```text
//! weigh-probe                       communicate over standard input and output
//! weigh-probe --channel PATH        over a device: a serial port or console
//! weigh-probe --channel port:NAME   over the virtio port of that name, waiting for it
//! weigh-probe --channel vsock:PORT  over a socket to that port of the host (vsock(7)); vsock:CID:PORT to that of a machine
//! weigh-probe --channel vsock-listen:PORT   over connections to that port of this machine, one at a time
//! weigh-probe --version
//! ```
//!
//! The probe has one thread and one `poll(2)`: while a workload runs it sleeps, without timers. It
//! is small because it is part of every measured guest: built with `+crt-static` and `panic =
//! "abort"` (the profile `probe`) it is linked without Rust's standard library. Other builds, such
//! as tests, link the library only for its panic handler.
//!
//! The probe ends on request, when the channel is closed, or on SIGTERM. With `vsock-listen` it
//! waits for another connection instead, because a restored machine has lost its connections. When
//! it ends it kills the process group of its command and all descendants. As PID 1 of a machine,
//! that is, of the kernel's first PID namespace, it powers the machine off; as PID 1 of a container
//! it exits.
//!
//! As init of a machine it first loads the kernel modules and makes the mounts listed in the tables
//! of [`weigh_protocol::boot`], and writes the time since boot to the console. The kernel runs it
//! by `rdinit=/.weighbridge/probe`; its arguments follow ` -- ` on the kernel's command line.
//! `--address A.B.C.D/24 --gateway A.B.C.E` configure the first network card before the hello.
//! `--root DEVICE` makes the ext4 file system of that disk the root before the mounts. With `--init
//! PROGRAM` PID 1 becomes that program of the root, the init of a system; the probe continues as
//! its child, and still powers the machine off.

#![no_std]
#![cfg_attr(not(test), no_main)]

extern crate alloc;
#[cfg(not(all(target_feature = "crt-static", panic = "abort", not(test))))]
extern crate std;

mod boot;
mod channel;
mod clock;
mod command;
mod error;
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
use error::ProbeError;
use rustix::fd::BorrowedFd;
use rustix::process::getpid;
use weigh_links::Address;

/// Exit status for bad usage, as in shells.
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
    // SAFETY: guaranteed by the caller.
    let arguments: Vec<String> = (0..count)
        .map(|i| unsafe { CStr::from_ptr(*arguments.add(i)) }.to_string_lossy().into_owned())
        .collect();
    match run(&arguments) {
        Ok(()) => 0,
        Err(error) => {
            say(standard(2), &format!("weigh-probe: {error}\n"));
            USAGE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), ProbeError> {
    let init = getpid().is_init();
    let mut path = None;
    let (mut address, mut gateway) = (None, None);
    let (mut disk, mut system) = (None, None);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| ProbeError::Usage(format!("{argument} takes a value")));
        match argument.as_str() {
            "--channel" => path = Some(value()?),
            "--address" => address = Some(value()?),
            "--gateway" => gateway = Some(value()?),
            "--root" => disk = Some(value()?),
            "--init" => system = Some(value()?),
            "--version" => {
                let (version, protocol) = (env!("CARGO_PKG_VERSION"), weigh_protocol::VERSION);
                say(standard(1), &format!("weigh-probe {version} (protocol {protocol})\n"));
                return Ok(());
            }
            // The kernel passes arguments that it does not know to init.
            _ if init => {}
            other => {
                let message = format!("unknown argument `{other}`; use --channel PATH or --version");
                return Err(ProbeError::Usage(message));
            }
        }
    }
    let address = Address::parse(address.map(String::as_str), gateway.map(String::as_str))?;
    init::set_up_process();
    let machine = init && init::set_up_system();
    let given = [("--address", address.is_some()), ("--root", disk.is_some()), ("--init", system.is_some())];
    if let (false, Some((option, _))) = (machine, given.iter().find(|(_, given)| *given)) {
        return Err(ProbeError::Usage(format!("{option} is for the init of a machine")));
    }
    let program = arguments.first().map_or("", String::as_str);
    let started = if machine {
        boot::boot(address, disk.map(String::as_str))
            .and_then(|()| system.map_or(Ok(()), |system| root::start_system(system)))
    } else {
        Ok(())
    };
    let ended = started
        .and_then(|()| open(path.map(String::as_str), machine))
        .and_then(|channel| server::serve(channel, program));
    if machine {
        if let Err(error) = &ended {
            boot::say(&format!("{error}"));
        }
        // The kernel panics if its init returns.
        init::power_off();
    }
    ended
}

/// Opens the channel. A hello is sent at once unless it is standard input and output.
fn open(path: Option<&str>, machine: bool) -> Result<Channel, ProbeError> {
    let Some(path) = path else {
        return Channel::standard().map_err(ProbeError::system("communicate over standard input"));
    };
    let mut channel = open_device(path, machine)?;
    channel.send(&server::hello());
    Ok(channel)
}

fn open_device(path: &str, machine: bool) -> Result<Channel, ProbeError> {
    let failed = || ProbeError::system(format!("communicate over {path}"));
    if let Some(port) = path.strip_prefix("vsock-listen:") {
        let number = port.parse().map_err(|_| ProbeError::Usage(format!("`{port}` is not a port number")))?;
        let accepted = vsock::listen(number).and_then(Channel::accepted_by);
        return accepted.map_err(ProbeError::system(format!("accept connections to vsock port {number}")));
    }
    if let Some(address) = path.strip_prefix("vsock:") {
        let address = vsock::Address::parse(address)
            .ok_or_else(|| ProbeError::Usage(format!("`{path}` is not vsock:PORT or vsock:CID:PORT")))?;
        return Channel::over(vsock::connect(address)?).map_err(failed());
    }
    let device = match path.strip_prefix("port:") {
        Some(name) => boot::port(name, machine)?,
        None => path.into(),
    };
    Channel::open(&device).map_err(failed())
}

/// A standard stream by its number.
fn standard(number: c_int) -> BorrowedFd<'static> {
    // SAFETY: nothing closes the streams; `init::set_up_process` opens those that are closed at the
    // start, and using one before that fails with EBADF.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Writes a message; errors are ignored, because there is nobody to report them to.
fn say(to: BorrowedFd<'_>, line: &str) {
    let _ = rustix::io::write(to, line.as_bytes());
}
