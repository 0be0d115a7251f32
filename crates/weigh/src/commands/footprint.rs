//! `weigh footprint`: the memory that guests use.

use crate::cli::FootprintArgs;
use crate::error::Failure;
use crate::request::{self, PlanRequest};
use weigh_model::{Caches, Plan, StartPlan, Started, WorkloadPlan, weights};
use weigh_workloads::start_workload;

/// Default number of blocks. Memory use differs little from block to block, and every block waits
/// until it no longer changes.
const BLOCKS: u32 = 6;

/// Turns the arguments of `weigh footprint` into a request.
pub fn request(args: FootprintArgs) -> PlanRequest {
    let common = args.common.with_default_blocks(BLOCKS);
    let prices = args.prices.clone();
    let request = PlanRequest::new(common.clone(), move |facts, host| {
        let workloads = |_: &_| workloads(&args.guests, args.duplicates);
        let plan = request::plan(&common, None, facts, host, &workloads)?;
        let workloads = plan.workloads.iter().map(|workload| without_merging(&plan, workload)).collect();
        Ok(Plan { workloads, ..plan })
    });
    request.pricing(prices)
}

/// Removes the metrics of page merging from the workload, unless the memory of some VM is merged.
fn without_merging(plan: &Plan, workload: &WorkloadPlan) -> WorkloadPlan {
    let merges = plan.environments.iter().any(|environment| environment.spec.get("ksm") == Some("on"));
    let mut workload = workload.clone();
    let of_merging = |name: &str| [weights::MERGED, weights::MERGING_CPU].contains(&name);
    workload.metrics.retain(|metric| merges || !of_merging(&metric.spec.name));
    workload
}

fn workloads(guests: &[u32], duplicates: bool) -> Result<Vec<WorkloadPlan>, Failure> {
    if let Some(twice) = request::first_repeated(guests) {
        return Err(
            Failure::input(format!("{twice} guests would be measured twice")).hint("give every number once")
        );
    }
    let footprint = |guests: &u32| {
        let what = Started::Footprint { guests: *guests, duplicates };
        start_workload(StartPlan { what, caches: Caches::Warm })
    };
    Ok(guests.iter().map(footprint).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(words: &[&str]) -> FootprintArgs {
        let parsed = Cli::try_parse_from(["weigh", "footprint"].iter().chain(words)).unwrap();
        let Some(Command::Footprint(args)) = parsed.command else { panic!("{words:?}") };
        *args
    }

    #[test]
    fn six_blocks_unless_asked_for_others() {
        let blocks = |words: &[&str]| args(words).common.with_default_blocks(BLOCKS).effort.blocks;
        assert_eq!(blocks(&[]), Some(6));
        assert_eq!(blocks(&["--blocks", "3"]), Some(3));
        assert_eq!((blocks(&["--quick"]), blocks(&["--precision", "2"])), (None, None));
    }

    #[test]
    fn every_number_is_a_workload_of_its_own() {
        let ids: Vec<String> =
            workloads(&args(&[]).guests, false).unwrap().into_iter().map(|workload| workload.id).collect();
        assert_eq!(ids, [1, 2, 4, 8, 16, 32].map(|n| format!("footprint{{guests={n}}}")));
        assert!(workloads(&[2, 4, 2], false).is_err());
    }

    #[test]
    fn pages_are_scanned_on_request_only() {
        let scans = |words: &[&str]| {
            let args = args(words);
            let start = workloads(&args.guests, args.duplicates).unwrap()[0].start.unwrap();
            matches!(start.what, Started::Footprint { duplicates: true, .. })
        };
        assert!(!scans(&[]) && scans(&["--duplicates"]));
    }
}
