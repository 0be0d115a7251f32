//! `bulk`: as much data as a path carries, in one direction, over TCP or UDP.
//!
//! By default both ends are threads of this process that communicate over the loopback interface.
//! `--serve ADDRESS` runs only the server and `--connect ADDRESS` only the client. Bytes are
//! counted where they arrive. Over UDP, what was sent and did not arrive is loss, which is reported
//! and is not an error, because nothing limits the sender.

mod client;
mod datagrams;
mod server;
mod stream;
mod wire;

use super::serving::{PLACEMENTS, Placement, Role, explain_loopback};
use crate::clock::seconds;
use crate::kernel::{Kernel, KernelError};
use crate::kernels::join;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use client::Transfer;
use server::Served;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Order;

/// Default length of a message: over TCP that of one large write, over UDP what an Ethernet frame
/// holds.
const TCP_MESSAGE_BYTES: u64 = 128 << 10;
const UDP_MESSAGE_BYTES: u64 = 1472;

/// Most streams: each is a thread on either end.
const MOST_STREAMS: u64 = 256;

pub(super) static KERNEL: Kernel = Kernel {
    name: "bulk",
    summary: "throughput of TCP or UDP in one direction, counted where it arrives",
    operation: "byte",
    check: "whole messages arrive, and the stamps of a sample of them match their positions",
    options: &[
        OptionSpec::choice("protocol", &["tcp", "udp"]).help("protocol that carries the messages"),
        OptionSpec::choice("direction", &["to-server", "from-server"]).help("the end that sends"),
        OptionSpec::decimal("seconds", "1").help("seconds to send"),
        OptionSpec::bytes("message-bytes", "0")
            .help("bytes of a message; 0: 128KiB over TCP and 1472 over UDP"),
        OptionSpec::count("streams", "1")
            .help("simultaneous transfers, each with its own connection and thread"),
        OptionSpec::choice("placement", PLACEMENTS)
            .help("CPUs on loopback: client on the first and server on the last, both on the first, or any"),
        OptionSpec::text("serve", "")
            .help("address to serve at over both protocols until stdin is closed, such as 127.0.0.1:7007"),
        OptionSpec::text("connect", "").help("address of a server to measure"),
    ],
    metrics: &[("throughput", "B/s"), ("sender_cpu", "s"), ("receiver_cpu", "s")],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    match Role::of(options)? {
        Role::Both => over_loopback(options),
        Role::Server(address) => serve(address),
        Role::Client(address) => connect(options, address),
    }
}

/// The order that the options ask for, and the number of streams.
fn order(options: &Options) -> Result<(Order, u64), KernelError> {
    let udp = options.text("protocol") == "udp";
    let (usual, least, most) = if udp {
        (UDP_MESSAGE_BYTES, wire::STAMP_BYTES as u64, wire::LARGEST_DATAGRAM)
    } else {
        (TCP_MESSAGE_BYTES, wire::NUMBER_BYTES as u64, wire::LARGEST_MESSAGE)
    };
    let message_bytes = match options.number("message-bytes") {
        0 => usual,
        bytes if (least..=most).contains(&bytes) => bytes,
        bytes => {
            let message = format!("`--message-bytes {bytes}` must be from {least} to {most}");
            return Err(KernelError::usage(message));
        }
    };
    let streams = options.within("streams", 1, MOST_STREAMS, "many")?;
    let wanted = options.decimal("seconds");
    let longest = seconds(wire::LONGEST_NS);
    if wanted <= 0.0 || wanted > longest {
        let message = format!("`--seconds {wanted}` must be more than 0 and at most {longest}");
        return Err(KernelError::usage(message));
    }
    let duration_ns = Duration::from_secs_f64(wanted).as_nanos() as u64;
    let to_server = options.text("direction") == "to-server";
    let token = crate::now_ns();
    Ok((Order { udp, to_server, message_bytes: message_bytes as u32, duration_ns, token }, streams))
}

fn over_loopback(options: &Options) -> Result<Outcome, KernelError> {
    let (order, streams) = order(options)?;
    let placement = Placement::of(options)?;
    let (listener, socket) = server::bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(explain_loopback)?;
    let address = listener.local_addr().map_err(KernelError::system("read the address of a socket"))?;
    let (served, ended) = (&Served::default(), &AtomicBool::new(false));
    let transfer = std::thread::scope(|scope| {
        let server = scope.spawn(|| server::until(&listener, &socket, placement.server, served, ended));
        let transfer = client::transfer(address, order, streams, placement.client);
        ended.store(true, Ordering::Relaxed);
        // An error of the server is the cause of the client's.
        join(server).and(transfer)
    })
    .map_err(explain_loopback)?;
    let mut outcome = Outcome::new();
    placement.state(&mut outcome, "loopback, threads of one process");
    report(&mut outcome, order, streams, &transfer);
    let (client, server) = (seconds(transfer.cpu_ns), seconds(served.cpu_ns.load(Ordering::Relaxed)));
    let (sender, receiver) = if order.to_server { (client, server) } else { (server, client) };
    outcome.metric("sender_cpu", sender, "s");
    outcome.metric("receiver_cpu", receiver, "s");
    Ok(outcome)
}

fn connect(options: &Options, address: SocketAddr) -> Result<Outcome, KernelError> {
    let (order, streams) = order(options)?;
    let transfer = client::transfer(address, order, streams, None)?;
    let mut outcome = Outcome::new();
    outcome.fact("path", format!("to {address}"));
    outcome.fact("client_cpu_s", seconds(transfer.cpu_ns));
    report(&mut outcome, order, streams, &transfer);
    Ok(outcome)
}

fn serve(address: SocketAddr) -> Result<Outcome, KernelError> {
    let (listener, socket) = server::bind(address)?;
    let ended = super::serving::ends_with_stdin();
    super::serving::say_listening()?;
    let served = Served::default();
    server::until(&listener, &socket, None, &served, &ended)?;
    let mut outcome = Outcome::new();
    let (streams, failed) = (served.streams.into_inner(), served.failed.into_inner());
    outcome.operations = served.bytes.into_inner();
    outcome.fact("path", format!("at {address}"));
    outcome.fact("served", streams);
    outcome.checked(failed == 0, format!("{streams} transfers were carried out, {failed} broke"));
    Ok(outcome)
}

fn report(outcome: &mut Outcome, order: Order, streams: u64, transfer: &Transfer) {
    let (sent, received) = (transfer.sent, transfer.received);
    let duration_s = seconds(received.elapsed_ns.max(1));
    outcome.operations = received.bytes;
    outcome.metric("throughput", received.bytes as f64 / duration_s, "B/s");
    outcome.fact("load", format!("{streams} streams, as fast as they go"));
    outcome.fact("message_bytes", order.message_bytes);
    outcome.fact("bytes_received", received.bytes);
    if order.udp {
        let lost = sent.messages.saturating_sub(received.messages);
        let loss = lost as f64 / sent.messages.max(1) as f64;
        outcome.metric("loss", loss, "1");
        outcome.fact("messages_sent", sent.messages);
        outcome.fact("messages_lost", lost);
        if lost > 0 {
            outcome.warn(format!(
                "{lost} of {} datagrams ({:.1} %) did not arrive; the throughput is that of the others",
                sent.messages,
                loss * 100.0
            ));
        }
    }
    outcome.warn_when_short("the transfer", duration_s);
    // Over UDP nothing else would notice that more arrived than was sent.
    let too_many = order.udp && received.messages > sent.messages;
    let came = received.bytes > 0;
    let statement = match (came, received.wrong, too_many) {
        (false, ..) => "nothing arrived".to_owned(),
        (true, 0, false) => format!("{} messages arrived whole and with the right stamps", received.messages),
        (true, 0, true) => {
            format!("{} messages arrived of {} that were sent", received.messages, sent.messages)
        }
        (true, wrong, _) => format!("{wrong} of {} messages were wrong", received.messages),
    };
    outcome.checked(came && received.wrong == 0 && !too_many, statement);
}

#[cfg(test)]
mod tests;
