//! The neighbours of the measured guest: other guests that are up beside it, of its own environment
//! or of another, and what they do. The constants name the parameters and metrics of workloads with
//! neighbours in plans and samples.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Parameter of a workload: number of guests, including the measured one.
pub const GUESTS: &str = "guests";
/// Parameter of a workload: what the neighbours do. A guest that is alone has none.
pub const NEIGHBOURS: &str = "neighbours";
/// Parameter of a workload: how CPU time is shared out, if not equally.
pub const SHARES: &str = "shares";
/// Parameter of a workload: the environment of the neighbours, if the plan names one.
pub const BESIDE: &str = "beside";
/// All these parameters.
pub const PARAMETERS: [&str; 4] = [GUESTS, NEIGHBOURS, SHARES, BESIDE];
/// Metric: guests that were up during the trial, including the measured one; fewer than asked for
/// if no more could be started.
pub const UP: &str = "guests_up";
/// Metric: rate of all guests together, if all run the workload. Operations, or runs of the
/// command, per second.
pub const SUM: &str = "sum_rate";
/// Metric: Jain's index of the guests' rates, if all run the workload: 1 when all rates are the
/// same, 1/n when one guest did everything. Jain, Chiu, Hawe: A quantitative measure of fairness,
/// DEC-TR-301, 1984.
pub const JAIN: &str = "fairness_jain";
/// Metric: rate of the slowest guest divided by that of the fastest.
pub const LEAST_TO_MOST: &str = "least_to_most";
/// Metric: CPU time of the neighbours per second of the trial, in CPUs.
pub const NEIGHBOURS_CPU: &str = "neighbours_cpu";
/// Metric: runs of the neighbours' command, or responses of their servers, per second.
pub const NEIGHBOURS_RATE: &str = "neighbours_rate";

/// Other guests that are up and awake while one is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Number of guests, including the measured one; at least 1.
    pub guests: u32,
    /// What the neighbours do from before the measured guest's warm-up until the end of the trial.
    pub load: Load,
    /// How CPU time is shared out among all of them.
    #[serde(default)]
    pub shares: Shares,
    /// Name of the neighbours' environment, one of the plan's; that of the measured guest when
    /// absent, as in plans of formats before 13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Whether the neighbours stay from trial to trial, at rest while other environments are
    /// measured. Otherwise they are started for each trial and stopped after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stay: bool,
}

/// What neighbours do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Load {
    /// Nothing.
    Idle,
    /// Each neighbour repeats a command.
    Again {
        /// Its name, which is the value of the parameter `neighbours`, such as `cpu` and `io`.
        name: String,
        /// Program and arguments, with the words of [`crate::Staging`].
        command: Vec<String>,
    },
    /// Each neighbour runs a server with a client outside, on the CPUs of load generators.
    Serve {
        /// Its name, such as `http`.
        name: String,
        /// Program and arguments of the server, with the words of [`crate::ServerPlan`].
        server: Vec<String>,
        /// Program and arguments of the client, which is repeated.
        client: Vec<String>,
    },
    /// Each neighbour repeats the workload itself. The trial's result then also has the rate of all
    /// guests together.
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

/// Neighbours by what they do, how CPU time is shared with them and what they run on, whatever their
/// number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NeighbourKind {
    /// What they do.
    #[serde(rename = "neighbours")]
    pub load: LoadKind,
    /// How CPU time is shared out.
    pub shares: Shares,
    /// Their environment, if the plan names one; that of the measured guest when absent.
    #[serde(rename = "beside", default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

/// Writes the load, the environment if there is one, and the shares if they are not equal, as in
/// `cpu in runc, weights`.
impl fmt::Display for NeighbourKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.load)?;
        if let Some(environment) = &self.environment {
            write!(f, " in {environment}")?;
        }
        match self.shares {
            Shares::Equal => Ok(()),
            shares => write!(f, ", {shares}"),
        }
    }
}

/// How CPU time is shared out among the measured guest and its neighbours, by their control groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// The platform's default.
    #[default]
    Equal,
    /// The measured guest has [`Shares::WEIGHT`] times the weight of a neighbour.
    Weights,
    /// No guest may use more than its part of the common CPUs: a quota of CPUs divided by guests.
    Limits,
}

impl Shares {
    /// The measured guest's weight as a multiple of a neighbour's under [`Shares::Weights`].
    pub const WEIGHT: u32 = 10;
    /// Every word, the default first.
    pub const WORDS: [&'static str; 3] = ["equal", "weights", "limits"];

    /// Returns the variant of this name.
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
    fn the_stay_flag_is_written_only_for_lasting_neighbours() {
        let idle =
            Neighbours { guests: 4, load: Load::Idle, shares: Shares::Equal, environment: None, stay: false };
        let text = serde_json::to_string(&idle).unwrap();
        assert!(!text.contains("stay"), "{text}");
        assert_eq!(serde_json::from_str::<Neighbours>(&text).unwrap(), idle);
        let staying = Neighbours { stay: true, load: Load::Same, ..idle };
        let text = serde_json::to_string(&staying).unwrap();
        assert_eq!(serde_json::from_str::<Neighbours>(&text).unwrap(), staying);
    }

    /// Plans of earlier formats have no environment of neighbours, and mean that of the guest.
    #[test]
    fn the_environment_is_written_only_where_the_plan_names_one() {
        let earlier = r#"{"guests":4,"load":{"kind":"idle"},"shares":"equal"}"#;
        let own = serde_json::from_str::<Neighbours>(earlier).unwrap();
        assert_eq!(own.environment, None);
        assert_eq!(serde_json::to_string(&own).unwrap(), earlier);
        let others = Neighbours { environment: Some("runc".into()), ..own };
        let text = serde_json::to_string(&others).unwrap();
        assert!(text.contains(r#""environment":"runc""#), "{text}");
        assert_eq!(serde_json::from_str::<Neighbours>(&text).unwrap(), others);
    }

    #[test]
    fn a_kind_names_its_environment_and_its_shares() {
        let kind = |environment: Option<&str>, shares| NeighbourKind {
            load: LoadKind::Cpu,
            shares,
            environment: environment.map(str::to_string),
        };
        assert_eq!(kind(None, Shares::Equal).to_string(), "cpu");
        assert_eq!(kind(None, Shares::Weights).to_string(), "cpu, weights");
        assert_eq!(kind(Some("runc"), Shares::Equal).to_string(), "cpu in runc");
        assert_eq!(kind(Some("runc"), Shares::Limits).to_string(), "cpu in runc, limits");
    }
}
