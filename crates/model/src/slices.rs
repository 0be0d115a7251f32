//! Trials in slices: all environments of a unit under way at once, one thawed at a time.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Shortest and longest slice that can be asked for, microseconds.
pub const SLICE_BOUNDS_US: (u32, u32) = (500, 1_000_000);

/// How the work of a command is told apart into pieces while it runs (method specification,
/// "Slices").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlicedWork {
    /// With `--marks TIME` the command works without end and reports finished work in lines that
    /// begin with `mark`; SIGTERM ends it.
    Marks,
    /// The command is run again and again; every end finishes one piece.
    Iterations,
}

/// Whether a run measures in slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SliceChoice {
    /// Where the pilot finds that it may, with a length that the pilot chooses.
    Auto,
    /// Never: every trial is whole. What plans of formats before 9 say.
    #[default]
    Off,
    /// Where it may, in slices of this many microseconds.
    Length(u32),
}

impl SliceChoice {
    /// Whether every trial is whole.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

impl fmt::Display for SliceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Length(us) if us % 1000 == 0 => write!(f, "{}ms", us / 1000),
            Self::Length(us) => write!(f, "{us}us"),
        }
    }
}

impl From<SliceChoice> for String {
    fn from(choice: SliceChoice) -> Self {
        choice.to_string()
    }
}

impl TryFrom<String> for SliceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for SliceChoice {
    type Err = String;

    /// ```
    /// use weigh_model::SliceChoice;
    /// assert_eq!("5ms".parse(), Ok(SliceChoice::Length(5000)));
    /// assert_eq!("2.5ms".parse::<SliceChoice>().unwrap().to_string(), "2500us");
    /// assert!("5".parse::<SliceChoice>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let (number, unit_us) = match (text.strip_suffix("ms"), text.strip_suffix("us")) {
            (Some(number), _) => (number, 1000.0),
            (None, Some(number)) => (number, 1.0),
            (None, None) => return Err(format!("`{text}` is not auto, off or a length such as 5ms")),
        };
        let us = number.trim().parse::<f64>().ok().map(|number| (number * unit_us).round());
        let (shortest, longest) = SLICE_BOUNDS_US;
        match us {
            Some(us) if us >= f64::from(shortest) && us <= f64::from(longest) => Ok(Self::Length(us as u32)),
            Some(_) => Err(format!(
                "`{text}` is out of bounds: a slice lasts from {shortest}us to {}s",
                longest / 1_000_000
            )),
            None => Err(format!("`{text}` is not auto, off or a length such as 5ms")),
        }
    }
}

/// What the pilot decided about slices for a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slicing {
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// Length of a slice, microseconds; absent where trials are whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_us: Option<u32>,
    /// Why trials are whole, or why the slices have this length.
    pub reason: String,
}

/// The slices of one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slices {
    /// Nominal length of a slice, microseconds. Each is drawn from half of it to one and a half.
    pub length_us: u32,
    /// How long the guest was thawed in each round, microseconds.
    pub thawed_us: Vec<u32>,
    /// What was finished, and when on the guest's clock of thawed time.
    pub marks: Vec<SliceMark>,
    /// Median and 95th percentile of the time from the order to freeze until the guest stood still,
    /// microseconds. It counts as thawed: the guest works in most of it.
    pub freeze_us: [f32; 2],
    /// The same from the order to thaw until the kernel said that the guest was thawed.
    pub thaw_us: [f32; 2],
}

/// Work that was finished since the mark before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceMark {
    /// Thawed time since the first slice, microseconds.
    pub at_us: u64,
    /// The amount of work, by metric. None for the first mark: work begins there.
    pub amounts: BTreeMap<String, f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for choice in
            [SliceChoice::Auto, SliceChoice::Off, SliceChoice::Length(5000), SliceChoice::Length(750)]
        {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for wrong in ["", "5", "ms", "-1ms", "0ms", "100us", "2000ms", "nanms", "on"] {
            assert!(wrong.parse::<SliceChoice>().is_err(), "{wrong}");
        }
    }
}
