//! Trials in slices: all environments of a unit are under way at once, and one at a time is thawed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Shortest and longest slice that can be asked for, microseconds.
pub const SLICE_BOUNDS_US: (u32, u32) = (500, 1_000_000);

/// How the work of a command is divided into pieces while it runs (method specification, "Slices").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlicedWork {
    /// With `--marks TIME` the command works without end and reports finished work in lines that
    /// begin with `mark`. SIGTERM ends it.
    Marks,
    /// The command is repeated; each run is one piece.
    Iterations,
}

/// The statistic of the cost of its work that a sliced trial reports. It is the one that the whole
/// form of the same work reports of its repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PieceStatistic {
    /// All time over all work.
    #[default]
    Mean,
    /// The typical cost: the difference from the other environments is averaged between the
    /// quartiles of that difference. Also used where the whole form reports the best repetition,
    /// because the best of all pieces would only show how late marks can be dated.
    // Samples of format 6 may have `best` of work whose whole form reports the best repetition.
    #[serde(alias = "best")]
    Median,
}

impl PieceStatistic {
    /// Every statistic.
    pub const ALL: [Self; 2] = [Self::Mean, Self::Median];

    /// The name of the statistic in the first line of marks.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
        }
    }

    /// Whether it is the mean.
    pub fn is_mean(&self) -> bool {
        *self == Self::Mean
    }
}

/// Whether a run measures in slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SliceChoice {
    /// Each workload that the pilot finds suitable, with a length that the pilot chooses.
    Auto,
    /// Never: every trial is whole. This is the meaning of plans of formats before 9.
    #[default]
    Off,
    /// Each suitable workload, in slices of this many microseconds.
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slicing {
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// Length of a slice, microseconds; absent where trials are whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_us: Option<u32>,
    /// Environments whose trials are whole although the others' are not, each of them compared with
    /// a whole trial of the baseline ([`crate::Record::WholeBaseline`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whole: Vec<String>,
    /// Why trials are whole, or why the slices have this length.
    pub reason: String,
}

/// The slices of one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slices {
    /// Nominal length of a slice, microseconds. Actual lengths are from 0.5 to 1.5 times this.
    pub length_us: u32,
    /// How long the guest was thawed in each round, microseconds.
    pub thawed_us: Vec<u32>,
    /// The first of the rounds whose slices are four times as long, to show whether the length
    /// matters; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_from: Option<u32>,
    /// The finished work, dated by the guest's clock of thawed time. Files hold it by columns, as
    /// [`MarkColumns`]; lists of marks are read as well.
    #[serde(with = "columns")]
    pub marks: Vec<SliceMark>,
    /// The statistic of the pieces of work between the marks.
    #[serde(default, skip_serializing_if = "PieceStatistic::is_mean")]
    pub statistic: PieceStatistic,
    /// Median and 95th percentile of the time from the request to freeze until the guest was
    /// frozen, microseconds. It counts as thawed until all processes had been told to stop.
    pub freeze_us: [f32; 2],
    /// The same from the request to thaw until the kernel reported that the guest was thawed.
    pub thaw_us: [f32; 2],
}

/// Work that was finished since the previous mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceMark {
    /// Thawed time since the first slice, microseconds.
    pub at_us: u64,
    /// The amount of work, by metric. Empty for the first mark, at which work begins.
    pub amounts: BTreeMap<String, f64>,
}

/// Marks as files hold them: by columns, because the names of metrics are longer than most numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MarkColumns {
    /// Thawed time since the previous mark, or for the first since the first slice, microseconds.
    pub after_us: Vec<u64>,
    /// Amounts of every mark, by metric; none if a mark has no amount of this metric.
    pub amounts: BTreeMap<String, Vec<Option<f64>>>,
}

impl From<&[SliceMark]> for MarkColumns {
    fn from(marks: &[SliceMark]) -> Self {
        let before = [0].into_iter().chain(marks.iter().map(|mark| mark.at_us));
        let after_us = marks.iter().zip(before).map(|(mark, before)| mark.at_us.saturating_sub(before));
        let mut amounts: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
        for (at, mark) in marks.iter().enumerate() {
            for (metric, amount) in &mark.amounts {
                let column = amounts.entry(metric.clone()).or_insert_with(|| vec![None; marks.len()]);
                column[at] = Some(*amount);
            }
        }
        Self { after_us: after_us.collect(), amounts }
    }
}

impl From<MarkColumns> for Vec<SliceMark> {
    fn from(MarkColumns { after_us, amounts }: MarkColumns) -> Self {
        let mut at_us = 0;
        let mark = |(at, after_us): (usize, u64)| {
            at_us += after_us;
            let amount = |(metric, column): (&String, &Vec<Option<f64>>)| {
                Some((metric.clone(), column.get(at).copied().flatten()?))
            };
            SliceMark { at_us, amounts: amounts.iter().filter_map(amount).collect() }
        };
        after_us.into_iter().enumerate().map(mark).collect()
    }
}

/// Writes marks by columns; reads them by columns or as a list.
mod columns {
    use super::{MarkColumns, SliceMark};
    use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
    use serde::de::{MapAccess, SeqAccess, Visitor};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use std::fmt;

    pub(super) fn serialize<S: Serializer>(marks: &[SliceMark], serializer: S) -> Result<S::Ok, S::Error> {
        MarkColumns::from(marks).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SliceMark>, D::Error> {
        struct Marks;
        impl<'de> Visitor<'de> for Marks {
            type Value = Vec<SliceMark>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("marks by columns, or a list of them")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
                MarkColumns::deserialize(MapAccessDeserializer::new(fields)).map(Vec::from)
            }
        }
        from.deserialize_any(Marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at_us: u64, amounts: &[(&str, f64)]) -> SliceMark {
        SliceMark { at_us, amounts: amounts.iter().map(|(name, x)| (name.to_string(), *x)).collect() }
    }

    #[test]
    fn marks_are_written_by_columns_and_read_from_lists_too() {
        let marks =
            vec![mark(7, &[]), mark(40, &[("copy", 4.5)]), mark(100, &[("all", 1.0), ("triad", 0.0)])];
        let slices = Slices { length_us: 5, thawed_us: vec![60, 60], marks, ..Slices::default() };
        let text = serde_json::to_string(&slices).unwrap();
        let columns = concat!(
            r#""marks":{"after_us":[7,33,60],"amounts":{"all":[null,null,1.0],"#,
            r#""copy":[null,4.5,null],"triad":[null,null,0.0]}}"#
        );
        assert!(text.contains(columns), "{text}");
        assert_eq!(serde_json::from_str::<Slices>(&text).unwrap(), slices);
        let list = r#"[{"at_us":7,"amounts":{}},{"at_us":40,"amounts":{"copy":4.5}},
            {"at_us":100,"amounts":{"all":1.0,"triad":0.0}}]"#;
        let before = text.replace(columns, &format!(r#""marks":{list}"#));
        assert_eq!(serde_json::from_str::<Slices>(&before).unwrap(), slices);
        for wrong in ["7", "[7]", r#"{"after_us":7}"#, r#"{"amounts":{}}"#] {
            let wrong = text.replace(columns, &format!(r#""marks":{wrong}"#));
            assert!(serde_json::from_str::<Slices>(&wrong).is_err(), "{wrong}");
        }
    }

    /// A second of a kernel that reports two metrics, in slices of 5 ms: the slices of a unit of
    /// six environments take less than 20 kB.
    #[test]
    fn slices_are_kept_compactly() {
        let amounts = [("duration", 0.110_000_000_000_000_08), ("rate", 1_100_000_000.0)];
        let slices = Slices {
            length_us: 5_000,
            thawed_us: (0..200).map(|round| 2_500 + 25 * round).collect(),
            longer_from: Some(150),
            marks: (0..40).map(|at| mark(25_000 * (at + 1), &amounts)).collect(),
            statistic: PieceStatistic::Median,
            freeze_us: [48.125, 91.5],
            thaw_us: [9.25, 15.75],
        };
        let bytes = serde_json::to_string(&slices).unwrap().len();
        assert!(6 * bytes < 20_000, "{bytes} bytes for an environment");
    }

    /// Samples of format 6 have a word that is no longer written.
    #[test]
    fn the_best_of_earlier_samples_is_the_median() {
        let read = |word: &str| serde_json::from_value::<PieceStatistic>(word.into());
        assert_eq!(read("best").unwrap(), PieceStatistic::Median);
        for statistic in PieceStatistic::ALL {
            assert_eq!(read(statistic.as_str()).unwrap(), statistic);
        }
        assert!(read("worst").is_err());
    }

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
