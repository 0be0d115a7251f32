//! Looks of a group-sequential run: when they take place, and what they conclude.

use serde::{Deserialize, Serialize};

/// Numbers of blocks at which a group-sequential run looks at its results: `first`, and every
/// `step` from there up to `last` (method specification, "Group-sequential runs").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "LooksFields")]
pub struct Looks {
    first: u32,
    step: u32,
    last: u32,
}

#[derive(Deserialize)]
struct LooksFields {
    first: u32,
    step: u32,
    last: u32,
}

impl TryFrom<LooksFields> for Looks {
    type Error = String;

    fn try_from(LooksFields { first, step, last }: LooksFields) -> Result<Self, String> {
        Self::new(first, step, last).ok_or_else(|| {
            format!(
                "looks from {first} to {last} blocks, {step} apart, are impossible or more than {}",
                Self::MOST
            )
        })
    }
}

impl Looks {
    /// The most looks that a design may have: the computation integrates over each of them.
    pub const MOST: u32 = 64;

    /// The looks of a run unless the user says otherwise: 10, 15, ... 60 blocks.
    pub const STANDARD: Self = Self { first: 10, step: 5, last: 60 };

    /// Makes a design with looks at these numbers of blocks. Returns none if `first` is less than
    /// 2, `step` is 0, `last` is before `first`, or there are more than [`Self::MOST`] looks.
    pub fn new(first: u32, step: u32, last: u32) -> Option<Self> {
        let possible = first >= 2 && step >= 1 && last >= first && (last - first).div_ceil(step) < Self::MOST;
        possible.then_some(Self { first, step, last })
    }

    /// Number of blocks at the first look.
    pub fn first(self) -> u32 {
        self.first
    }

    /// Blocks between two looks.
    pub fn step(self) -> u32 {
        self.step
    }

    /// Number of blocks at the last look.
    pub fn last(self) -> u32 {
        self.last
    }

    /// The first look with at least this many blocks, or the last look.
    pub fn next(self, blocks: u32) -> u32 {
        let steps = blocks.saturating_sub(self.first).div_ceil(self.step);
        self.first.saturating_add(steps.saturating_mul(self.step)).min(self.last)
    }

    /// The looks with fewer blocks than this, in order.
    pub fn before(self, blocks: u32) -> impl Iterator<Item = u32> {
        let all = (self.first..self.last).step_by(self.step as usize).chain(std::iter::once(self.last));
        all.take_while(move |look| *look < blocks)
    }
}

/// The end of a cell of a group-sequential run at a look: it has no trials from a block on, and its
/// result rests on those that it has. This is not an [`crate::Exclusion`]: nothing failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// [`crate::EnvironmentPlan::name`].
    pub environment: String,
    /// [`crate::WorkloadPlan::id`].
    pub workload: String,
    /// First block without a trial of the cell.
    pub from_block: u32,
    /// Units of the workload that counted at the look.
    pub blocks: u32,
    /// Why.
    pub reason: ConclusionReason,
}

/// Why a cell was concluded at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConclusionReason {
    /// It has its verdict.
    Decided,
    /// All cells of its workload that were still measured were as precise as asked, or could not
    /// get a verdict.
    Precise,
    /// The remaining blocks would hardly show whether it lies above or below its limit.
    Futile,
    /// It was the last look.
    LastLook,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_at_their_numbers_of_blocks() {
        let looks = Looks::STANDARD;
        assert_eq!([0, 10, 11, 15, 16, 59, 60, 61].map(|n| looks.next(n)), [10, 10, 15, 15, 20, 60, 60, 60]);
        assert_eq!(looks.before(26).collect::<Vec<_>>(), [10, 15, 20, 25]);
        assert_eq!(looks.before(10).count(), 0);
        let uneven = Looks::new(10, 20, 60).unwrap();
        assert_eq!(uneven.before(100).collect::<Vec<_>>(), [10, 30, 50, 60]);
        assert_eq!(uneven.next(51), 60);
    }

    #[test]
    fn a_design_without_looks_or_with_too_many_is_refused() {
        let read = |text: &str| serde_json::from_str::<Looks>(text);
        assert_eq!(read(r#"{"first": 10, "step": 5, "last": 60}"#).unwrap(), Looks::STANDARD);
        let most = Looks::new(10, 5, 325).unwrap();
        assert_eq!(most.before(most.last() + 1).count(), Looks::MOST as usize);
        for (first, step, last) in
            [(1, 5, 60), (10, 0, 60), (10, 5, 9), (10, 5, 326), (10, 1, 4_000_000_000_u32)]
        {
            let error =
                read(&format!(r#"{{"first": {first}, "step": {step}, "last": {last}}}"#)).unwrap_err();
            assert!(error.to_string().contains("looks from"), "{error}");
        }
    }
}
