//! `bulk`: as much data as a path takes, one way, over TCP or UDP.
//!
//! By default both ends are threads of this process that talk over the loopback interface.
//! `--serve ADDRESS` is the server alone and `--connect ADDRESS` the client alone. Bytes are
//! counted where they arrive: over UDP what was sent and did not come is loss, which is stated and
//! no error, as nothing holds the sender back.

mod client;
mod datagrams;
mod server;
mod stream;
mod wire;

use crate::clock::seconds;
use crate::kernel::{Kernel, KernelError};
use crate::machine;
use crate::options::{OptionSpec, Options, UsageError};
use crate::outcome::Outcome;
use client::Transfer;
use server::Served;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Order;

/// Bytes of a message that was told no length: over TCP those of one large write, over UDP what an
/// Ethernet frame holds.
const TCP_MESSAGE_BYTES: u64 = 128 << 10;
const UDP_MESSAGE_BYTES: u64 = 1472;

/// Most streams: each is a thread on either end.
const MOST_STREAMS: u64 = 256;

pub(super) static KERNEL: Kernel = Kernel {
    name: "bulk",
    summary: "throughput of TCP or UDP in one direction, counted where it arrives",
    operation: "byte",
    check: "what arrives is whole messages, and the stamps of a sample of them are those of their places",
    options: &[
        OptionSpec::choice("protocol", &["tcp", "udp"], "tcp", "what carries the messages"),
        OptionSpec::choice("direction", &["to-server", "from-server"], "to-server", "which end sends"),
        OptionSpec::decimal("seconds", "1", "how long to send"),
        OptionSpec::bytes("message-bytes", "0", "bytes of a message; 0 is 128KiB over TCP and 1472 over UDP"),
        OptionSpec::count("streams", "1", "transfers at once, each on a connection and a thread of its own"),
        OptionSpec::choice(
            "placement",
            &["apart", "together", "free"],
            "apart",
            "over loopback: client on the first and server on the last usable CPU, both on the first, or as the scheduler likes",
        ),
        OptionSpec::text(
            "serve",
            "",
            "address to serve at over both protocols, such as 127.0.0.1:7007, until stdin is closed",
        ),
        OptionSpec::text("connect", "", "address of a server to measure"),
    ],
    metrics: &[("throughput", "B/s"), ("sender_cpu", "s"), ("receiver_cpu", "s")],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    match (options.text("serve"), options.text("connect")) {
        ("", "") => over_loopback(options),
        (address, "") => serve(super::echo::resolve("serve", address)?),
        ("", address) => connect(options, super::echo::resolve("connect", address)?),
        _ => {
            Err(UsageError("`--serve` and `--connect` exclude each other; start one process for each".into())
                .into())
        }
    }
}

/// What the options ask for, and how many times at once.
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
            return Err(
                UsageError(format!("`--message-bytes {bytes}` must be from {least} to {most}")).into()
            );
        }
    };
    let streams = options.at_least("streams", 1)?;
    if streams > MOST_STREAMS {
        return Err(
            UsageError(format!("`--streams {streams}` is too many; the most is {MOST_STREAMS}")).into()
        );
    }
    let wanted = options.decimal("seconds");
    let longest = seconds(wire::LONGEST_NS);
    if wanted <= 0.0 || wanted > longest {
        return Err(
            UsageError(format!("`--seconds {wanted}` must be more than 0 and at most {longest}")).into()
        );
    }
    let duration_ns = Duration::from_secs_f64(wanted).as_nanos() as u64;
    let to_server = options.text("direction") == "to-server";
    let token = crate::now_ns();
    Ok((Order { udp, to_server, message_bytes: message_bytes as u32, duration_ns, token }, streams))
}

fn over_loopback(options: &Options) -> Result<Outcome, KernelError> {
    let (order, streams) = order(options)?;
    let cpus = machine::allowed_cpus()?;
    let (client_cpu, server_cpu) = match options.text("placement") {
        "apart" => (Some(cpus[0]), cpus.last().copied()),
        "together" => (Some(cpus[0]), Some(cpus[0])),
        _ => (None, None),
    };
    let (listener, socket) =
        server::bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(super::echo::explain_loopback)?;
    let address = listener.local_addr().map_err(KernelError::system("read the address of a socket"))?;
    let (served, ended) = (&Served::default(), &AtomicBool::new(false));
    let transfer = std::thread::scope(|scope| {
        let server = scope.spawn(|| server::until(&listener, &socket, server_cpu, served, ended));
        let transfer = client::transfer(address, order, streams, client_cpu);
        ended.store(true, Ordering::Relaxed);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What stopped the server is the cause of what the client saw.
        served.and(transfer)
    })
    .map_err(super::echo::explain_loopback)?;
    let mut outcome = Outcome::new();
    outcome.fact("path", "loopback, threads of one process");
    outcome.fact("client_cpu", client_cpu);
    outcome.fact("server_cpu", server_cpu);
    if options.text("placement") == "apart" && cpus.len() < 2 {
        outcome.warn("client and server share the only usable CPU");
    }
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
    // Over UDP nobody else would notice that more came than was sent.
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
