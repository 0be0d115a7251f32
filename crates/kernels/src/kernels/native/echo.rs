//! `echo`: request and response over TCP and UDP, one request in flight.
//!
//! By default server and client are two threads of this process on the loopback interface. `--serve
//! ADDRESS` runs only the server and `--connect ADDRESS` only the client, for paths between
//! machines or guests. The load is a closed loop: the next request is sent after the response, so a
//! slow server slows the load, and the percentiles are not those of a service under a fixed load.

pub(super) mod client;
mod server;
pub(super) mod wire;

use super::serving::{PLACEMENTS, Placement, Role, explain_loopback};
use crate::kernel::{Kernel, KernelError};
use crate::kernels::join;
use crate::machine;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use client::{Exchange, Talk};
use server::Served;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;
use wire::Shape;

/// Default number of requests of a client.
const DEFAULT_REQUESTS: u64 = 10_000;

/// Share of lost UDP requests above which the result is not valid.
const MOST_LOST: f64 = 0.01;

pub(super) static KERNEL: Kernel = Kernel {
    name: "echo",
    summary: "latency and rate of TCP and UDP request-response, one in flight",
    operation: "request",
    check: "every response has the length that was asked for and begins as its request did; at most 1 % of UDP requests got none",
    options: &[
        OptionSpec::choices("protocols", &["tcp", "udp"], "tcp,udp")
            .help("protocols to measure, or to serve"),
        OptionSpec::count("requests", "0")
            .help("requests per protocol, 0: 10000; for `--serve`: requests before the end, 0: no end"),
        OptionSpec::count("warmup", "500").help("requests before the clock starts"),
        OptionSpec::bytes("request-bytes", "100").help("bytes of a request"),
        OptionSpec::bytes("response-bytes", "200").help("bytes of a response"),
        OptionSpec::choice("placement", PLACEMENTS)
            .help("CPUs: client on the first and server on the last, both on the first, or any"),
        OptionSpec::count("timeout-ms", "2000").help("timeout of a connection or a response"),
        OptionSpec::text("serve", "")
            .help("address to serve at until stdin is closed, such as 127.0.0.1:7007"),
        OptionSpec::text("connect", "").help("address of a server to measure"),
    ],
    metrics: &[
        ("tcp_latency_p50", "s"),
        ("tcp_latency_p99", "s"),
        ("tcp_latency_p999", "s"),
        ("tcp_rate", "op/s"),
        ("udp_latency_p50", "s"),
        ("udp_latency_p99", "s"),
        ("udp_latency_p999", "s"),
        ("udp_rate", "op/s"),
    ],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    match Role::of(options)? {
        Role::Both => over_loopback(options, server::AS_IT_IS),
        Role::Server(address) => serve(options, address),
        Role::Client(address) => connect(options, address),
    }
}

/// The settings of a client.
struct Load {
    shape: Shape,
    requests: u64,
    warmup: u64,
    timeout: Duration,
}

impl Load {
    fn of(options: &Options) -> Result<Self, KernelError> {
        let largest =
            if options.has("protocols", "udp") { wire::LARGEST_DATAGRAM } else { wire::LARGEST_MESSAGE };
        let shape = Shape::of(options, largest)?;
        let requests = options.or("requests", DEFAULT_REQUESTS);
        let timeout = Duration::from_millis(options.at_least("timeout-ms", 1)?);
        Ok(Self { shape, requests, warmup: options.number("warmup"), timeout })
    }
}

fn state_load(outcome: &mut Outcome, load: &Load) {
    outcome.fact("load", "closed loop, one request in flight");
    outcome.fact("request_bytes", load.shape.request_bytes);
    outcome.fact("response_bytes", load.shape.response_bytes);
    outcome.fact("requests", load.requests);
}

fn over_loopback(options: &Options, inject: server::FaultInjector) -> Result<Outcome, KernelError> {
    let load = Load::of(options)?;
    let placement = Placement::of(options)?;
    let mut outcome = Outcome::new();
    state_load(&mut outcome, &load);
    placement.state(&mut outcome, "loopback, two threads of one process");
    let mut talks = Vec::new();
    for protocol in ["tcp", "udp"] {
        if options.has("protocols", protocol) {
            let talk = talk_over_loopback(protocol, &load, &placement, inject);
            talks.push((protocol, talk.map_err(explain_loopback)?));
        }
    }
    conclude(&mut outcome, &load, talks);
    Ok(outcome)
}

fn talk_over_loopback(
    protocol: &str,
    load: &Load,
    placement: &Placement,
    inject: server::FaultInjector,
) -> Result<Talk, KernelError> {
    let here = (Ipv4Addr::LOCALHOST, 0);
    let address_of = |address: std::io::Result<SocketAddr>| {
        address.map_err(KernelError::system("read the address of a socket"))
    };
    let served = &Served::default();
    if protocol == "tcp" {
        let listener = TcpListener::bind(here).map_err(KernelError::system("listen for TCP at 127.0.0.1"))?;
        let address = address_of(listener.local_addr())?;
        let server = || server::tcp_once(&listener, served, inject);
        in_two_threads(placement, served, server, || client::tcp(address, load))
    } else {
        let socket = UdpSocket::bind(here).map_err(KernelError::system("receive UDP at 127.0.0.1"))?;
        let address = address_of(socket.local_addr())?;
        let server = || server::udp(&socket, served, inject);
        in_two_threads(placement, served, server, || client::udp(address, load))
    }
}

/// Runs client and server on their own threads and CPUs, and ends the server after the client.
fn in_two_threads(
    placement: &Placement,
    served: &Served,
    server: impl FnOnce() -> Result<(), KernelError> + Send,
    client: impl FnOnce() -> Result<Talk, KernelError> + Send,
) -> Result<Talk, KernelError> {
    let pin = |cpu: Option<usize>| match cpu {
        Some(cpu) => machine::pin_to(cpu).map_err(KernelError::system(format!("bind a thread to CPU {cpu}"))),
        None => Ok(()),
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(placement.server)?;
            server()
        });
        let client = scope.spawn(move || {
            let talk = pin(placement.client).and_then(|()| client());
            served.stop();
            talk
        });
        let talk = join(client);
        // An error of the server is the cause of the client's.
        join(server).and(talk)
    })
}

/// Measures one protocol.
type Client = fn(SocketAddr, &Load) -> Result<Talk, KernelError>;

fn connect(options: &Options, address: SocketAddr) -> Result<Outcome, KernelError> {
    let load = Load::of(options)?;
    let mut outcome = Outcome::new();
    state_load(&mut outcome, &load);
    outcome.fact("path", format!("to {address}"));
    let mut talks = Vec::new();
    for (protocol, talk) in [("tcp", client::tcp as Client), ("udp", client::udp)] {
        if options.has("protocols", protocol) {
            talks.push((protocol, talk(address, &load)?));
        }
    }
    conclude(&mut outcome, &load, talks);
    Ok(outcome)
}

fn serve(options: &Options, address: SocketAddr) -> Result<Outcome, KernelError> {
    let protocols = [options.has("protocols", "tcp"), options.has("protocols", "udp")];
    let served = server::until_stdin_closes(address, protocols, options.number("requests"))?;
    let mut outcome = Outcome::new();
    outcome.fact("path", format!("at {address}"));
    outcome.operations = served.requests();
    outcome.fact("served", served.requests());
    let malformed = served.malformed();
    outcome.checked(
        malformed == 0,
        format!("{malformed} messages were not requests, {} were answered", served.requests()),
    );
    Ok(outcome)
}

fn conclude(outcome: &mut Outcome, load: &Load, talks: Vec<(&'static str, Talk)>) {
    let mut problems = Vec::new();
    let mut answered = 0;
    for (protocol, talk) in &talks {
        report(outcome, protocol, &talk.exchange);
        outcome.operations += load.warmup + load.requests;
        answered += talk.exchange.latency_ns.len();
        if talk.wrong > 0 {
            problems.push(format!("{} wrong {protocol} responses", talk.wrong));
        }
        if talk.lost as f64 > MOST_LOST * load.requests as f64 {
            problems.push(format!("{} of {} {protocol} requests got no response", talk.lost, load.requests));
        } else if talk.lost > 0 {
            outcome.warn(format!("{} of {} {protocol} requests got no response", talk.lost, load.requests));
        }
    }
    let statement = match problems.as_slice() {
        [] => format!("{answered} responses had the right length and beginning"),
        problems => problems.join(", "),
    };
    outcome.checked(problems.is_empty(), statement);
}

fn report(outcome: &mut Outcome, protocol: &str, exchange: &Exchange) {
    let samples = exchange.latency_ns.len();
    let name = format!("{protocol}_latency");
    crate::kernels::report_percentiles(outcome, &name, &exchange.latency_ns, (3, "requests"));
    if samples > 0 {
        outcome.metric(format!("{protocol}_rate"), samples as f64 / exchange.seconds, "op/s");
        outcome.histograms.push((name, exchange.latency_ns.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!("--warmup 10 --timeout-ms 500 {line}"))
    }

    #[test]
    fn all_metrics_come_with_enough_requests() {
        let outcome = run(&options("--requests 4000")).unwrap();
        KERNEL.assert_complete(&outcome);
        assert_eq!(outcome.facts["load"], "closed loop, one request in flight");
        assert!(outcome.value("tcp_latency_p50") <= outcome.value("tcp_latency_p99"));
    }

    #[test]
    fn tails_are_refused_below_their_least_number() {
        for (requests, p99, p999) in
            [(367, false, false), (368, true, false), (3687, true, false), (3688, true, true)]
        {
            let outcome = run(&options(&format!("--protocols tcp --requests {requests}"))).unwrap();
            assert_eq!(outcome.value("tcp_latency_p99").is_some(), p99, "{requests}");
            assert_eq!(outcome.value("tcp_latency_p999").is_some(), p999, "{requests}");
            assert_eq!(outcome.warnings.iter().any(|warning| warning.contains("left out")), !p999);
        }
    }

    #[test]
    fn one_byte_messages_and_large_ones() {
        for (request, response) in [(1, 1), (1, 60_000), (60_000, 1)] {
            let line = format!(
                "--requests 50 --request-bytes {request} --response-bytes {response} --placement free"
            );
            let outcome = run(&options(&line)).unwrap();
            assert!(outcome.check.passed, "{request} {response}: {:?}", outcome.check);
        }
        assert!(run(&options("--request-bytes 0")).is_err());
        assert!(run(&options("--request-bytes 70000")).is_err());
    }

    #[test]
    fn wrong_responses_and_lost_requests_fail_the_check() {
        let outcome = over_loopback(&options("--requests 30"), |_, response| {
            response[0] ^= 1;
            true
        })
        .unwrap();
        assert!(!outcome.check.passed, "{:?}", outcome.check);
        let line = "--requests 10 --protocols udp";
        let outcome = over_loopback(&options(line), |request, _| !request[0].is_multiple_of(5)).unwrap();
        assert!(
            !outcome.check.passed && outcome.check.statement.contains("no response"),
            "{:?}",
            outcome.check
        );
    }

    #[test]
    fn a_server_of_its_own_serves_a_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let server =
            std::thread::spawn(move || server::serve(address, [true, true], 2 * (20 + 10), || false));
        let outcome = run(&options(&format!("--connect {address} --requests 20"))).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert!(outcome.value("udp_rate").unwrap() > 0.0);
        assert_eq!(server.join().unwrap().unwrap().requests(), 60);
    }

    #[test]
    fn a_refused_connection_is_an_error_and_not_a_measurement() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = run(&options(&format!("--connect {address}"))).unwrap_err();
        assert!(error.to_string().contains("cannot connect"), "{error}");
        for line in
            ["--connect nowhere", "--connect 127.0.0.1:0", "--serve 127.0.0.1:1 --connect 127.0.0.1:1"]
        {
            assert!(matches!(run(&options(line)), Err(KernelError::Usage(_))), "{line}");
        }
    }
}
