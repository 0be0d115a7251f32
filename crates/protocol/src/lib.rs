//! Messages between weighbridge on the host and its probe in the guest.
//!
//! The protocol does no I/O: it encodes messages as frames and decodes them. The same frames are
//! sent over a pipe (containers), a virtio-serial port, a socket or a serial console (virtual
//! machines).
//!
//! The host sends [`Request::Hello`], and the probe answers [`Reply::Hello`] with its version; the
//! host stops if that differs from its own. Every later request has an `id` chosen by the host, and
//! every reply the id of its request. One command runs at a time. While it runs, the probe accepts
//! only `Signal`, `Input` and `CloseInput`, and refuses other requests with EBUSY (16). These three
//! are ignored when their command has ended.
//!
//! Over a device the probe sends a hello on its own as soon as the device is in raw mode: before
//! that a terminal could change or echo what the host sends.

#![no_std]

extern crate alloc;

pub mod boot;
mod frame;
mod message;

pub use frame::{Decoder, FrameError, MAX_PAYLOAD, encode};
pub use message::{
    COMMAND_PATH, CREDIT, ClockReading, Command, DEFAULT_LINK, EndOfCommand, GuestFacts, INPUT_WINDOW, Input,
    LinkFacts, MountFacts, ProgramFacts, Questions, Reply, Request, ResourceUse, Status, Stream, VERSION,
};
