//! The neighbours of the measured guest: other guests of the same environment on the same CPUs, and
//! what they do. The constants are the parameters and metrics of workloads that are measured with
//! neighbours, as plans and samples name them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Parameter of a workload: guests in all, the measured one among them.
pub const GUESTS: &str = "guests";
/// Parameter of a workload: what the neighbours do. A guest that is alone has none.
pub const NEIGHBOURS: &str = "neighbours";
/// Parameter of a workload: how CPU time is shared out, where not equally.
pub const SHARES: &str = "shares";
/// Guests that were up while the trial went on, the measured one among them; fewer than asked
/// for where no more could be started.
pub const UP: &str = "guests_up";
/// What all guests together did a second, where all run the workload. Operations, or runs of
/// the command, per second.
pub const SUM: &str = "sum_rate";
/// Jain's index of what the guests did, where all run the workload: 1 when all did the same,
/// 1/n when one did everything. Jain, Chiu, Hawe: A quantitative measure of fairness,
/// DEC-TR-301, 1984.
pub const JAIN: &str = "fairness_jain";
/// What the slowest guest did over what the fastest did.
pub const LEAST_TO_MOST: &str = "least_to_most";
/// CPU time of the neighbours per second of the trial, in CPUs.
pub const NEIGHBOURS_CPU: &str = "neighbours_cpu";
/// What the neighbours did a second: runs of their command, or responses of their servers.
pub const NEIGHBOURS_RATE: &str = "neighbours_rate";

/// Other guests of the environment that are up and awake while one is measured, on the same CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Guests in all, the measured one among them; at least 1.
    pub guests: u32,
    /// What the neighbours do from before the measured guest's warm-up to the end of the trial.
    pub load: Load,
    /// How CPU time is shared out among all of them.
    #[serde(default)]
    pub shares: Shares,
    /// Whether the neighbours stay from trial to trial, at rest while other environments are
    /// measured. They are started for each trial, and ended after it, otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stay: bool,
}

/// What neighbours do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Load {
    /// Nothing.
    Idle,
    /// A command, again and again, in each of them.
    Again {
        /// What it is called: the value of the parameter `neighbours`, as `cpu` and `io`.
        name: String,
        /// Program and arguments, with the words of [`crate::Staging`].
        command: Vec<String>,
    },
    /// A server in each of them, and outside, on the CPUs of load generators, a client of each.
    Serve {
        /// What it is called, as `http`.
        name: String,
        /// Program and arguments of the server, with the words of [`crate::ServerPlan`].
        server: Vec<String>,
        /// Program and arguments of the client, again and again.
        client: Vec<String>,
    },
    /// The workload itself, again and again: then the trial's result has what all did together,
    /// too.
    Same,
}

impl Load {
    /// The value of the parameter `neighbours`.
    pub fn kind(&self) -> LoadKind {
        match self {
            Self::Idle => LoadKind::Idle,
            Self::Again { name, .. } | Self::Serve { name, .. } => name.clone().into(),
            Self::Same => LoadKind::Same,
        }
    }
}

/// A load by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LoadKind {
    /// `idle`: neighbours do nothing.
    Idle,
    /// `same`: neighbours run the workload itself.
    Same,
    /// `cpu`: neighbours spin.
    Cpu,
    /// `http`: neighbours serve HTTP.
    Http,
    /// `io`: neighbours read and write a file.
    Io,
    /// Neighbours run another command or serve another client.
    Named(String),
}

impl From<String> for LoadKind {
    fn from(name: String) -> Self {
        match name.as_str() {
            "idle" => Self::Idle,
            "same" => Self::Same,
            "cpu" => Self::Cpu,
            "http" => Self::Http,
            "io" => Self::Io,
            _ => Self::Named(name),
        }
    }
}

impl From<LoadKind> for String {
    fn from(kind: LoadKind) -> Self {
        kind.to_string()
    }
}

impl fmt::Display for LoadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "idle",
            Self::Same => "same",
            Self::Cpu => "cpu",
            Self::Http => "http",
            Self::Io => "io",
            Self::Named(name) => name,
        })
    }
}

/// Neighbours by what they do and how CPU time is shared with them, whatever their number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NeighbourKind {
    /// What they do.
    #[serde(rename = "neighbours")]
    pub load: LoadKind,
    /// How CPU time is shared out.
    pub shares: Shares,
}

/// The load, and the shares where they are not equal, as in `cpu, weights`.
impl fmt::Display for NeighbourKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shares {
            Shares::Equal => write!(f, "{}", self.load),
            shares => write!(f, "{}, {shares}", self.load),
        }
    }
}

/// How CPU time is shared out among the measured guest and its neighbours, by their control groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// As the platform leaves it.
    #[default]
    Equal,
    /// The measured guest has [`Shares::WEIGHT`] times the weight of a neighbour.
    Weights,
    /// No guest may have more than its part of the CPUs that all may use: CPUs over guests, as a
    /// quota.
    Limits,
}

impl Shares {
    /// How much more the measured guest weighs than each neighbour under [`Shares::Weights`].
    pub const WEIGHT: u32 = 10;
    /// Every word, the default first.
    pub const WORDS: [&'static str; 3] = ["equal", "weights", "limits"];

    /// The one of that name.
    pub fn parse(word: &str) -> Option<Self> {
        crate::spelling::variant(word)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in Shares::WORDS {
            assert_eq!(Shares::parse(word).unwrap().to_string(), word);
        }
        assert_eq!(Shares::parse("fair"), None);
    }

    #[test]
    fn what_stays_is_said_and_what_is_usual_is_not() {
        let idle = Neighbours { guests: 4, load: Load::Idle, shares: Shares::Equal, stay: false };
        let text = serde_json::to_string(&idle).unwrap();
        assert!(!text.contains("stay"), "{text}");
        assert_eq!(serde_json::from_str::<Neighbours>(&text).unwrap(), idle);
        let staying = Neighbours { stay: true, load: Load::Same, ..idle };
        let text = serde_json::to_string(&staying).unwrap();
        assert_eq!(serde_json::from_str::<Neighbours>(&text).unwrap(), staying);
    }
}
