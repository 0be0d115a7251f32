//! Checks runs that are shares of one plan's blocks.

use super::PoolRun;
use crate::cli::By;
use crate::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::Share;
use weigh_stats::Notice;

/// Refuses duplicate shares, and groups of shares. The caller has checked that all shares belong to
/// one plan and that their machines are alike.
///
/// # Errors
/// A share is there twice; the shares are grouped.
pub fn check(share: Share, runs: &[PoolRun], by: Option<By>) -> Result<(), Failure> {
    if by.is_some() {
        return Err(Failure::input("the shares of a plan's blocks come from machines of one kind")
            .hint("leave out --by and --label; kinds are compared by runs of the whole plan"));
    }
    let mut known: BTreeMap<u32, &PoolRun> = BTreeMap::new();
    for run in runs {
        let number = run.plan.share.map_or(0, |share| share.number);
        if let Some(other) = known.insert(number, run) {
            let message = format!(
                "{} and {} are the same share, {} of {}",
                other.named,
                run.named,
                number + 1,
                share.shares
            );
            return Err(
                Failure::input(message).hint("leave one of them out, whichever, before you look at either")
            );
        }
    }
    Ok(())
}

/// The most missing shares that a notice names.
const MOST_NAMED: usize = 20;

/// Returns a notice if shares are missing.
pub fn missing(share: Share, runs: &[PoolRun]) -> Option<Notice> {
    let there = runs.iter().filter_map(|run| Some(run.plan.share?.number)).collect();
    let seen = format!("of {} shares these are missing: {}", share.shares, numbers(share.shares, &there)?);
    let then = "`weigh resume` has them measured; blocks that are missing because their machine is unlike the \
                others bias the average";
    Some(Notice::new(seen, then))
}

/// The numbers, from 1, of the shares that are not there; none if all are. A plan may claim
/// thousands of millions of shares: most of them are counted and not listed.
fn numbers(shares: u32, there: &BTreeSet<u32>) -> Option<String> {
    let missing = (0..shares).filter(|number| !there.contains(number));
    let named: Vec<String> = missing.take(MOST_NAMED).map(|number| (number + 1).to_string()).collect();
    let more = shares as usize - there.range(..shares).count() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_missing_shares_are_counted() {
        let missing = |shares, there: &[u32]| numbers(shares, &there.iter().copied().collect());
        assert_eq!(missing(3, &[1]).unwrap(), "1, 3");
        assert_eq!(missing(2, &[0, 1]), None);
        let many = missing(u32::MAX, &[0, 2]).unwrap();
        assert!(many.starts_with("2, 4, 5, ") && many.ends_with(", 22 and 4294967273 more"), "{many}");
    }
}
