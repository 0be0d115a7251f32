//! `weigh footprint`: plan weighings of memory, run them, show them.

use super::run::Carrier;
use crate::cli::{FootprintArgs, MeasureArgs};
use crate::error::Failure;
use crate::request;
use weigh_host::facts;
use weigh_model::{Caches, Plan, StartPlan, Started, WorkloadPlan, weights};
use weigh_workloads::start_workload;

/// Blocks unless the user asks for others: memory differs little from block to block, and every one
/// waits for it to stand still.
const BLOCKS: u32 = 6;

/// Plans and runs a comparison of footprints, or prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate crossed.
pub fn run(args: &FootprintArgs, by: &mut dyn Carrier) -> Result<(), Failure> {
    let facts = facts::host_facts();
    let named = !args.common.on.is_empty();
    let common = with_blocks(&args.common);
    by.carry_out(&common, named, &facts, &|here| {
        let plan =
            request::plan_of(&common, None, &facts, here, &|_| workloads(&args.guests, args.duplicates))?;
        Ok(Plan {
            workloads: plan.workloads.iter().map(|workload| of_merging(&plan, workload)).collect(),
            ..plan
        })
    })
}

fn with_blocks(common: &MeasureArgs) -> MeasureArgs {
    let asked = common.quick || common.precision.is_some();
    let blocks = common.blocks.or((!asked).then_some(BLOCKS));
    MeasureArgs { blocks, ..common.clone() }
}

/// The workload with what is known of merging only where some machine's memory is merged.
fn of_merging(plan: &Plan, workload: &WorkloadPlan) -> WorkloadPlan {
    let merges = plan.environments.iter().any(|environment| environment.spec.get("ksm") == Some("on"));
    let mut workload = workload.clone();
    let of_merging = |name: &str| [weights::MERGED, weights::MERGING_CPU].contains(&name);
    workload.metrics.retain(|metric| merges || !of_merging(&metric.spec.name));
    workload
}

fn workloads(guests: &[u32], duplicates: bool) -> Result<Vec<WorkloadPlan>, Failure> {
    if let Some(twice) = guests.iter().enumerate().find(|(i, n)| guests[..*i].contains(n)) {
        return Err(Failure::input(format!("{} guests would be weighed twice", twice.1))
            .hint("give every number once"));
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
        let blocks = |words: &[&str]| with_blocks(&args(words).common).blocks;
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
    fn pages_are_scanned_where_that_is_asked_for() {
        let scans = |words: &[&str]| {
            let args = args(words);
            let start = workloads(&args.guests, args.duplicates).unwrap()[0].start.unwrap();
            matches!(start.what, Started::Footprint { duplicates: true, .. })
        };
        assert!(!scans(&[]) && scans(&["--duplicates"]));
    }
}
