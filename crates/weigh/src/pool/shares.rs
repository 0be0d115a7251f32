//! Checks runs that are shares of one plan's blocks.

use super::PoolRun;
use crate::cli::By;
use crate::error::Failure;
use std::collections::BTreeMap;
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

/// Returns a notice if shares are missing.
pub fn missing(share: Share, runs: &[PoolRun]) -> Option<Notice> {
    let there = |number: &u32| runs.iter().any(|run| run.plan.share.is_some_and(|one| one.number == *number));
    let missing: Vec<String> =
        (0..share.shares).filter(|number| !there(number)).map(|number| (number + 1).to_string()).collect();
    let seen = format!("of {} shares these are missing: {}", share.shares, missing.join(", "));
    let then = "`weigh fleet --resume` has them measured; blocks that are missing because their machine is unlike the \
                others bias the average";
    (!missing.is_empty()).then(|| Notice::new(seen, then))
}
