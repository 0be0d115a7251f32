//! What is put around the command of a workload: set-up, clean-up, a server.

use serde::{Deserialize, Serialize};

/// Words that the run fills in when a command is executed, each in braces. A parameter
/// of such a name takes its place.
pub const RUN_WORDS: &[&str] =
    &["scratch", "seed", "memory", "listen", "address", "port", "port2", "port3", "rate"];

/// What is done around the iterations of a trial, and is not measured.
///
/// Commands may hold, in braces: `scratch`, a directory in the guest for files, empty before the
/// set-up and removed with the guest; `seed`, a number that all environments of a block share and
/// no other block has; `memory`, the bytes of memory that the guest may use, 0 where nothing limits
/// it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Staging {
    /// Command run in the guest once before the warm-up of a fresh instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Vec<String>>,
    /// Command run in the guest once when the instance has no more use for what `setup` made; after
    /// failures too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teardown: Option<Vec<String>>,
    /// A set-up, a server's coming up or its filling that takes longer is ended and the trial
    /// failed, seconds; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_deadline_s: Option<f64>,
    /// Debian packages that have what the commands need, for people whose guest lacks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The server that is measured, where it is one. The workload's command is then the load
    /// generator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
}

impl Staging {
    /// Whether nothing is put around the command.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A server in the guest, and what drives it from outside.
///
/// Commands may hold, beside those of [`Staging`]: `listen`, the address that the server binds;
/// `address`, where a client finds it; `port`, `port2` and `port3`. Commands on the loader's side
/// have a `scratch` of their own there, and `rate` where there is a [`Pace`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerPlan {
    /// Program and arguments of the server, in the guest. It runs until it is told to end (SIGTERM,
    /// then SIGKILL).
    pub command: Vec<String>,
    /// How many ports it listens on, 1 to 3.
    pub ports: u8,
    /// What they are.
    pub transport: Vec<Transport>,
    /// Command on the loader's side, repeated until it exits with 0: then the server is up. A TCP
    /// connection to `port` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Vec<String>>,
    /// Command on the loader's side that fills the server with data, once, when it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Vec<String>>,
    /// A server that answers at once, in the guest: what the loader reaches against it is the
    /// loader's and the path's own limit (method specification, "Loader headroom").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<Vec<String>>,
    /// The load generator's command against `null`, where it is not the workload's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_load: Option<Vec<String>>,
    /// How requests leave.
    #[serde(rename = "loop")]
    pub kind: LoadLoop,
    /// How the rate of an open loop follows from what the environments can do; it is in the command
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
}

/// A rate that is a share of what was proven possible: in the pilot every environment is saturated
/// in the closed loop, and the share of what the slowest reached is the rate in all of them
/// (method specification, "Latency").
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

/// How requests leave a load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadLoop {
    /// The next request leaves when a response is there: what is measured is the whole of client
    /// and server, and the tail is none of a loaded service.
    Closed,
    /// Requests leave by a schedule, whatever the server does; latency counts from the intended
    /// send.
    Open,
}
