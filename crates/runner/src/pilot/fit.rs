//! Which part of a quick run fits its budget (method specification, "Effort").
//!
//! The environment, such as an emulated machine, or workload that costs the most time for each
//! comparison is left out until the planned blocks fit. The decision uses only times of the pilot,
//! which are not results, and is made before the first block.

/// Factor by which blocks take longer than in the pilot, as guests are frozen and checked.
const RESERVE: f64 = 1.15;

/// The time of a block in one environment, seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Cost {
    /// Launching and stopping the instance.
    pub(super) launch_s: f64,
    /// Each workload; none for one that cannot run.
    pub(super) workloads: Vec<Option<f64>>,
}

/// What is left out of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    Environment(usize),
    Workload(usize),
}

/// The workloads that need not be tried beyond the baseline, where they took these times: it cannot
/// run them, or they would not fit if all environments were as fast, while another workload does.
pub(super) fn hopeless(
    baseline: &[Option<f64>],
    environments: usize,
    (blocks, left_s): (u32, f64),
) -> Vec<usize> {
    let fits = |took_s: f64| took_s * f64::from(blocks) * environments as f64 * RESERVE <= left_s;
    let any_fits = baseline.iter().flatten().any(|took_s| fits(*took_s));
    let is_hopeless = |took_s: Option<f64>| took_s.is_none_or(|took_s| any_fits && !fits(took_s));
    (0..baseline.len()).filter(|at| is_hopeless(baseline[*at])).collect()
}

/// What must be left out so that this many blocks fit into this many seconds, in the order of the
/// decisions. The baseline stays, and so do one other environment and one workload.
pub(super) fn left_out(costs: &[Cost], baseline: usize, (blocks, left_s): (u32, f64)) -> Vec<LeftOut> {
    let most = costs.iter().map(|cost| cost.workloads.len()).max().unwrap_or(0);
    let runs = |cost: &Cost| cost.workloads.iter().any(Option::is_some);
    let mut environments: Vec<usize> = (0..costs.len()).filter(|at| runs(&costs[*at])).collect();
    let compared =
        |at: &usize| costs.iter().filter(|cost| cost.workloads.get(*at).is_some_and(Option::is_some)).count();
    let mut workloads: Vec<usize> = (0..most).filter(|at| compared(at) > 0).collect();
    let cell = |environment: usize, workload: usize| {
        costs[environment].workloads.get(workload).copied().flatten().unwrap_or(0.0)
    };
    let mut out = Vec::new();
    loop {
        let of_environment = |at: usize| {
            costs[at].launch_s + workloads.iter().map(|workload| cell(at, *workload)).sum::<f64>()
        };
        let of_workload =
            |at: usize| environments.iter().map(|environment| cell(*environment, at)).sum::<f64>();
        let block_s: f64 = environments.iter().map(|at| of_environment(*at)).sum();
        if block_s * f64::from(blocks) * RESERVE <= left_s {
            return out;
        }
        // Time per comparison that would be lost.
        let mut dearest: Option<(f64, LeftOut)> = None;
        let mut offer = |price: f64, what: LeftOut| {
            if dearest.is_none_or(|(highest, _)| price > highest) {
                dearest = Some((price, what));
            }
        };
        let others: Vec<usize> = environments.iter().copied().filter(|at| *at != baseline).collect();
        if others.len() > 1 {
            let price = |at: usize| of_environment(at) / workloads.len() as f64;
            others.iter().for_each(|at| offer(price(*at), LeftOut::Environment(*at)));
        }
        if workloads.len() > 1 {
            let price = |at: usize| of_workload(at) / others.len().max(1) as f64;
            workloads.iter().for_each(|at| offer(price(*at), LeftOut::Workload(*at)));
        }
        let Some((_, what)) = dearest else { return out };
        match what {
            LeftOut::Environment(at) => environments.retain(|other| *other != at),
            LeftOut::Workload(at) => workloads.retain(|other| *other != at),
        }
        out.push(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(table: &[&[f64]]) -> Vec<Cost> {
        let cost = |row: &&[f64]| Cost { launch_s: 0.1, workloads: row.iter().map(|s| Some(*s)).collect() };
        table.iter().map(cost).collect()
    }

    #[test]
    fn what_the_baseline_rules_out_is_hopeless_everywhere() {
        // Six blocks of 2 s in four environments take 48 s, and some more.
        let costs = [Some(0.1), None, Some(2.0), Some(1.0)];
        assert_eq!(hopeless(&costs, 4, (6, 50.0)), [1, 2]);
        assert_eq!(hopeless(&costs, 4, (6, 60.0)), [1]);
        assert_eq!(hopeless(&[Some(9.0), Some(8.0)], 4, (6, 50.0)), [0; 0], "one has to stay");
    }

    #[test]
    fn no_cell_is_left_out_of_a_run_that_fits_its_budget() {
        let costs = costs(&[&[1.0, 1.0], &[1.0, 1.0]]);
        assert_eq!(left_out(&costs, 0, (6, 30.0)), []);
        assert_eq!(left_out(&[], 0, (6, 30.0)), []);
    }

    /// 6 blocks of 4.3 s fit into 30 s, but not with an emulated machine.
    #[test]
    fn a_slow_environment_goes_before_workloads_that_all_run_alike() {
        let costs = costs(&[&[1.0, 1.0], &[1.0, 1.0], &[30.0, 20.0]]);
        assert_eq!(left_out(&costs, 0, (6, 30.0)), [LeftOut::Environment(2)]);
    }

    #[test]
    fn a_slow_workload_goes_before_environments_that_all_run_it() {
        let costs = costs(&[&[0.2, 9.0, 0.2], &[0.2, 9.0, 0.2], &[0.2, 9.0, 0.2]]);
        assert_eq!(left_out(&costs, 0, (6, 30.0)), [LeftOut::Workload(1)]);
    }

    #[test]
    fn the_baseline_one_other_and_one_workload_stay() {
        let costs = costs(&[&[500.0, 1.0], &[10.0, 10.0], &[10.0, 20.0]]);
        let out = left_out(&costs, 0, (6, 0.0));
        assert_eq!(out.len(), 2, "{out:?}");
        assert!(!out.contains(&LeftOut::Environment(0)), "{out:?}");
        let environments = out.iter().filter(|what| matches!(what, LeftOut::Environment(_))).count();
        assert_eq!(environments, 1, "{out:?}");
    }

    #[test]
    fn a_cell_that_cannot_run_costs_and_loses_nothing() {
        let mut costs = costs(&[&[1.0, 1.0], &[1.0, 1.0], &[30.0, 1.0]]);
        costs[2] = Cost { launch_s: 0.0, workloads: vec![None, None] };
        assert_eq!(left_out(&costs, 0, (6, 30.0)), []);
    }
}
