//! When a run stops, and shares of a run.

use crate::Looks;
use serde::{Deserialize, Serialize};

/// When a run stops (method specification, "Effort", "Stopping").
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Effort {
    /// A few blocks, labelled exploratory; never EQUIVALENT.
    Quick {
        /// Number of blocks, 6 by default.
        blocks: u32,
    },
    /// A fixed number of blocks.
    Fixed {
        /// Number of blocks.
        blocks: u32,
    },
    /// Runs until every primary cell is precise enough; looks only every `step` blocks from
    /// `minimum` on.
    Precision {
        /// Fewest blocks, 30.
        minimum: u32,
        /// Most blocks, 60.
        maximum: u32,
        /// Blocks between two looks, 5.
        step: u32,
        /// Target half-width of the overhead's interval, as a fraction: .01 is one per cent.
        target: f64,
    },
    /// Group-sequential: at every look the arms that are decided drop out, and from the look at 30
    /// blocks on a workload also ends when it is precise (method specification, "Group-sequential
    /// runs").
    Sequential {
        /// When it looks.
        looks: Looks,
        /// Target half-width of the overhead's interval, as a fraction.
        target: f64,
    },
    /// Runs for a fixed time, however many blocks that makes. The block under way is completed.
    Lasting {
        /// The duration in seconds, without interruptions.
        seconds: f64,
    },
}

impl Effort {
    /// The bound for runs of fixed duration; none of them reaches it.
    pub const MOST_BLOCKS: u32 = 1_000_000;

    /// The largest number of blocks that the run can have, not counting replacements of void units.
    pub fn most_blocks(self) -> u32 {
        match self {
            Self::Quick { blocks } | Self::Fixed { blocks } => blocks,
            Self::Precision { maximum, .. } => maximum,
            Self::Sequential { looks, .. } => looks.last(),
            Self::Lasting { .. } => Self::MOST_BLOCKS,
        }
    }

    /// The number of blocks, if it is fixed beforehand.
    pub fn fixed_blocks(self) -> Option<u32> {
        match self {
            Self::Quick { blocks } | Self::Fixed { blocks } => Some(blocks),
            Self::Precision { .. } | Self::Sequential { .. } | Self::Lasting { .. } => None,
        }
    }

    /// This effort with another number of blocks, for one whose number is fixed.
    pub(crate) fn with_blocks(self, blocks: u32) -> Self {
        match self {
            Self::Quick { .. } => Self::Quick { blocks },
            _ => Self::Fixed { blocks },
        }
    }

    /// The fewest blocks after which the run may be complete.
    pub fn fewest_blocks(self) -> u32 {
        match self {
            Self::Quick { blocks } | Self::Fixed { blocks } => blocks,
            Self::Precision { minimum, .. } => minimum,
            Self::Sequential { looks, .. } => looks.first(),
            Self::Lasting { .. } => 1,
        }
    }

    /// The number of blocks that a run with this many still aims at: the fewest after which it may
    /// be complete, and then the most, if a rule decides where between the two it ends.
    pub fn planned_blocks(self, done: u32) -> u32 {
        match self {
            Self::Precision { .. } | Self::Sequential { .. } if done >= self.fewest_blocks() => {
                self.most_blocks()
            }
            _ => self.fewest_blocks(),
        }
    }
}

/// A share of the blocks of a plan: several machines of the same kind measure one share each
/// (method specification, "Shared blocks").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ShareFields")]
pub struct Share {
    /// Number of the share, from 0.
    pub number: u32,
    /// Number of shares.
    pub shares: u32,
    /// Number of blocks of all shares together.
    pub blocks: u32,
}

#[derive(Deserialize)]
struct ShareFields {
    number: u32,
    shares: u32,
    blocks: u32,
}

impl TryFrom<ShareFields> for Share {
    type Error = String;

    fn try_from(ShareFields { number, shares, blocks }: ShareFields) -> Result<Self, String> {
        Self::new(number, shares, blocks).ok_or_else(|| {
            format!(
                "there is no share number {number}, counted from 0, of {shares} shares of {blocks} blocks"
            )
        })
    }
}

impl Share {
    /// The fewest blocks of a share: the error of a single block would be unknown.
    pub const FEWEST_BLOCKS: u32 = 2;

    /// Makes the share with this number, from 0. Returns none if there are not so many shares, or
    /// if a share would have fewer than [`Self::FEWEST_BLOCKS`].
    pub fn new(number: u32, shares: u32, blocks: u32) -> Option<Self> {
        let possible = number < shares && blocks / shares >= Self::FEWEST_BLOCKS;
        possible.then_some(Self { number, shares, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_cannot_be_is_no_share() {
        let read = |number: u32, shares: u32, blocks: u32| {
            let fields = serde_json::json!({ "number": number, "shares": shares, "blocks": blocks });
            serde_json::from_value::<Share>(fields)
        };
        let share = read(2, 3, 8).unwrap();
        assert_eq!((share.number, share.shares, share.blocks), (2, 3, 8));
        for (number, shares, blocks) in
            [(3, 3, 8), (0, 0, 8), (0, 4, 7), (0, u32::MAX, 8), (0, u32::MAX, u32::MAX)]
        {
            let error = read(number, shares, blocks).unwrap_err().to_string();
            assert!(error.contains(&format!("of {shares} shares of {blocks} blocks")), "{error}");
        }
    }
}
