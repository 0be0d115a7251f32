//! `null-server`: a server that answers immediately, with the least possible work.
//!
//! It stores nothing and looks nothing up. A load generator that is not faster with it than with
//! the server under test measures itself: the null server shows the headroom of a loader on a path
//! (method specification, "Loader headroom").

mod answers;
mod commands;
mod mysql;
mod serve;

use super::echo::wire::LARGEST_MESSAGE;
use super::serving::{explain_loopback, resolve};
use crate::kernel::{Kernel, KernelError};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use serve::Counts;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

/// Default length of a body or value, bytes: a small page.
const BODY_BYTES: usize = 1024;

/// Connections for which the limit of open files is raised.
const MOST_CONNECTIONS: u64 = 50_000;

pub(super) static KERNEL: Kernel = Kernel {
    name: "null-server",
    summary: "server that answers at once: echo, redis, http or mysql, to prove what a load generator can do",
    operation: "request",
    check: "every connection spoke the protocol that was asked for",
    options: &[
        OptionSpec::choice("protocol", &["echo", "redis", "http", "mysql"])
            .help("protocol to serve; mysql: every query returns the same rows, prepared or not"),
        OptionSpec::text("listen", "").help(
            "address to serve at until stdin is closed (/dev/null: until killed), such as 127.0.0.1:7007",
        ),
        OptionSpec::bytes("value-bytes", "50").help("redis: bytes of a value, which begins with its key"),
        OptionSpec::bytes("body-bytes", "1KiB").help("http: bytes of a body"),
    ],
    metrics: &[],
    run,
    endless: None,
};

/// The protocols of the null server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// The protocol of the kernel `echo`.
    Echo,
    /// RESP.
    Redis,
    /// HTTP/1.1 and 1.0.
    Http,
    /// The client/server protocol of MySQL.
    Mysql,
}

impl Protocol {
    /// The protocol of this name.
    pub(super) fn named(word: &str) -> Self {
        match word {
            "redis" => Self::Redis,
            "http" => Self::Http,
            "mysql" => Self::Mysql,
            _ => Self::Echo,
        }
    }
}

/// The lengths of replies, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// The length of a redis value.
    pub(super) value: usize,
    /// The length of an http body; 0 selects a small page.
    pub(super) body: usize,
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    let address = options.text("listen");
    if address.is_empty() {
        return Err(KernelError::usage("name an address with `--listen 127.0.0.1:7007`"));
    }
    let address = resolve("listen", address)?;
    let bytes = |name| options.within(name, 0, LARGEST_MESSAGE, "large").map(|bytes| bytes as usize);
    let sizes = Sizes { value: bytes("value-bytes")?, body: bytes("body-bytes")? };
    super::serving::allow_sockets(MOST_CONNECTIONS);
    let listener = TcpListener::bind(address)
        .map_err(KernelError::system(format!("listen for TCP at {address}; is the port free?")))?;
    let ended = super::serving::ends_with_stdin();
    super::serving::say_listening()?;
    let counts = serve(&listener, Protocol::named(options.text("protocol")), sizes, &ended)?;
    let mut outcome = Outcome::new();
    outcome.operations = counts.requests;
    outcome.fact("path", format!("at {address}"));
    outcome.fact("served", counts.requests);
    outcome.fact("connections", counts.connections);
    outcome.checked(
        counts.malformed == 0,
        format!(
            "{} of {} connections did not speak the protocol, {} requests were answered",
            counts.malformed, counts.connections, counts.requests
        ),
    );
    Ok(outcome)
}

fn serve(
    listener: &TcpListener,
    protocol: Protocol,
    sizes: Sizes,
    ended: &AtomicBool,
) -> Result<Counts, KernelError> {
    let body = if sizes.body == 0 { BODY_BYTES } else { sizes.body };
    match protocol {
        Protocol::Echo => serve::until(listener, answers::Echo, ended),
        Protocol::Redis => serve::until(listener, commands::Redis::new(sizes.value), ended),
        Protocol::Http => serve::until(listener, answers::Http::new(body), ended),
        Protocol::Mysql => serve::until(listener, mysql::Mysql::new(), ended),
    }
}

/// Ends a server when dropped.
struct EndsAtLast<'a>(&'a AtomicBool);

impl Drop for EndsAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `client` beside a null server on the loopback interface.
pub(super) fn beside(
    protocol: Protocol,
    sizes: Sizes,
    client: impl FnOnce(SocketAddr) -> Result<Outcome, KernelError>,
) -> Result<Outcome, KernelError> {
    let failed = || KernelError::system::<std::io::Error>("listen for TCP at 127.0.0.1");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed()).map_err(explain_loopback)?;
    let address = listener.local_addr().map_err(failed())?;
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, protocol, sizes, ended));
        // Ends the server when the client is done, and also when it panics.
        let guard = EndsAtLast(ended);
        let outcome = client(address);
        drop(guard);
        // An error of the server is the cause of the client's.
        crate::kernels::join(server).and(outcome)
    })
}

#[cfg(test)]
mod tests;
