//! What surrounds the command of a workload: set-up, clean-up, a server.

use serde::{Deserialize, Serialize};

/// Placeholders, written in braces, that the run fills in when it executes a command. A parameter
/// of the same name takes precedence.
pub const RUN_WORDS: &[&str] =
    &["scratch", "seed", "memory", "listen", "address", "port", "port2", "port3", "rate"];

/// What is done around the iterations of a trial, unmeasured.
///
/// Commands may contain, in braces: `scratch`, a directory in the guest for files, empty before the
/// set-up and removed with the guest; `seed`, a number that all environments of a block share and
/// no other block has; `memory`, the bytes of memory that the guest may use, or 0 without a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Staging {
    /// Command run in the guest once before the warm-up of a fresh instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Vec<String>>,
    /// Command run in the guest once when the instance no longer needs what `setup` made; after
    /// failures too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<Vec<String>>,
    /// Deadline of the set-up, the server's start and its filling, seconds; 600 when absent. What
    /// takes longer is ended, and the trial fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_deadline_s: Option<f64>,
    /// Debian packages with what the commands need, to be named when a guest lacks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The server that is measured, if the workload is one. The workload's command is then the load
    /// generator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
}

impl Staging {
    /// Whether nothing surrounds the command.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A server in the guest, and the load generator that drives it from outside.
///
/// Commands may contain, in addition to those of [`Staging`]: `listen`, the address that the server
/// binds; `address`, where a client finds it; `port`, `port2` and `port3`. Commands on the loader's
/// side have their own `scratch` there, and `rate` if there is a [`Pace`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerPlan {
    /// Program and arguments of the server, in the guest. It runs until it is told to end (SIGTERM,
    /// then SIGKILL).
    pub command: Vec<String>,
    /// Number of ports it listens on, 1 to 3.
    pub ports: u8,
    /// Transport protocols of these ports.
    pub transport: Vec<Transport>,
    /// Command on the loader's side, repeated until it exits with 0; then the server is up. When
    /// absent, a TCP connection to `port` is tried instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Vec<String>>,
    /// Command on the loader's side that fills the server with data once, when it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Vec<String>>,
    /// A server in the guest that answers at once: the rate of the loader against it is the limit
    /// of the loader and the path themselves (method specification, "Loader headroom").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<Vec<String>>,
    /// The load generator's command against `null`, if it is not the workload's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_load: Option<Vec<String>>,
    /// How requests are sent.
    #[serde(rename = "loop")]
    pub kind: LoadLoop,
    /// How the rate of an open loop follows from what the environments can do. When absent, the
    /// rate is in the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
}

/// A rate that is proven possible: the pilot saturates the server in every environment in the
/// closed loop, and a share of the slowest environment's rate is used in all of them (method
/// specification, "Latency").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The share, above 0 and at most 1.
    pub share: f64,
    /// The load generator's command that saturates the server.
    pub saturate: Vec<String>,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// `tcp` or `udp`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// How a load generator sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadLoop {
    /// The next request is sent when a response has arrived: client and server are measured as a
    /// whole, and the tail is not that of a loaded service.
    Closed,
    /// Requests are sent by a schedule, whatever the server does; latency counts from the intended
    /// send.
    Open,
}
