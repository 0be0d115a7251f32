//! Messages between weighbridge on the host and its probe in the guest.
//!
//! The protocol knows no transport: it turns messages into frames and bytes back into messages. The
//! same frames cross a pipe (containers), a virtio-serial port or a serial console (virtual
//! machines).
//!
//! Order: the host says [`Request::Hello`], the probe answers [`Reply::Hello`] with its own
//! version; a host that reads another version stops. After that every request carries an `id`
//! chosen by the host, and every reply the id of its request. One command runs at a time; `Signal`,
//! `Input` and `CloseInput` are the only requests that a probe takes while a command runs, the
//! others it refuses with EBUSY (16). The three are ignored when their command is gone.
//!
//! A probe that is told to talk over a device says hello by itself as soon as the device passes
//! every byte as it is: a host that speaks earlier may find its words changed or echoed by a
//! terminal's settings.

#![no_std]

extern crate alloc;

pub mod boot;
mod frame;
mod message;

pub use frame::{Decoder, FrameError, MAX_PAYLOAD, encode};
pub use message::{
    COMMAND_PATH, CREDIT, ClockReading, Command, DEFAULT_LINK, EndOfCommand, GuestFacts, INPUT_WINDOW,
    LinkFacts, MountFacts, ProgramFacts, Questions, Reply, Request, ResourceUse, Status, Stream, VERSION,
};
