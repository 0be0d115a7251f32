//! Messages between weighbridge on the host and its probe in the guest.
//!
//! The protocol knows no transport: it turns messages into frames and bytes back into messages. The same frames cross a
//! pipe (containers), a virtio-serial port or a serial console (virtual machines).
//!
//! Order: the host says [`Request::Hello`], the probe answers [`Reply::Hello`] with its own version; a host that reads
//! another version stops. After that every request carries an `id` chosen by the host, and every reply the id of its
//! request. One command runs at a time; `Signal`, `Input` and `CloseInput` are the only requests that a probe takes
//! while a command runs, the others it refuses with EBUSY (16). The three are ignored when their command is gone.

#![no_std]

extern crate alloc;

mod frame;
mod message;

pub use frame::{Decoder, FrameError, MAX_PAYLOAD, encode};
pub use message::{
    COMMAND_PATH, ClockReading, Command, EndOfCommand, GuestFacts, INPUT_WINDOW, MountFacts, ProgramFacts,
    Reply, Request, ResourceUse, Status, Stream, VERSION,
};
