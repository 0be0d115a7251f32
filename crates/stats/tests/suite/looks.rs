//! The effect of the looks of a group-sequential run on cells.

use crate::build::*;
use crate::records::*;
use weigh_model::{
    Comparison, Conclusion, ConclusionReason, Effort, GateLimits, Looks, Plan, Record, Slicing,
};
use weigh_stats::{
    ConcludedCell, DueWorkload, Flag, Options, PoolRun, PooledCell, RunEstimates, Verdict, WarningKind,
    analyse, collect, compare_runs, conclusions, pool,
};

fn options() -> Options {
    Options { looks: Some(Looks::STANDARD), planned_blocks: Some(10), ..Options::new("native") }
}

fn concluded(environment: &str, blocks: u32) -> ConcludedCell {
    ConcludedCell {
        environment: environment.into(),
        workload: "w".into(),
        from_block: blocks,
        blocks,
        baseline_failed: Default::default(),
    }
}

fn cell(comparison: &Comparison, options: &Options) -> weigh_stats::Cell {
    environment(&analyse(std::slice::from_ref(comparison), options), "e")
}

/// The first look has a 36th of the level: with 9 degrees of freedom t(1 - .025 / 36) is 4.548514,
/// by numerical integration of the density.
#[test]
fn an_interval_is_that_of_the_look() {
    let comparison = with_log_ratios(&spread(10, 0.3, 0.01));
    let at_look = cell(&comparison, &Options { concluded: vec![concluded("e", 10)], ..options() });
    let fixed = cell(&comparison, &Options::new("native"));
    let wider = |cell: &weigh_stats::Cell| cell.overhead.unwrap().log_half_width();
    assert!((wider(&at_look) / wider(&fixed) - 4.548514 / 2.262157).abs() < 1e-4);
    assert_eq!(at_look.look.map(|look| look.blocks), Some(10));
    assert_eq!(at_look.verdict, Some(Verdict::Slower));
    assert!(fixed.p_diff < at_look.p_diff);
    assert!(at_look.typical.is_none(), "ten values do not cover so much");
}

/// Before any other look, one look with all of the error equals the fixed design.
#[test]
fn a_run_that_ended_by_its_budget_spends_the_remaining_error() {
    let looked = |k: usize| {
        let comparison = with_log_ratios(&spread(k, 0.3, 0.01));
        let ended = cell(&comparison, &Options { ended_by_rule: true, ..options() });
        let fixed = cell(&comparison, &Options::new("native"));
        let width = |cell: &weigh_stats::Cell| cell.overhead.unwrap().log_half_width();
        (ended.look.map(|look| look.blocks), width(&ended) / width(&fixed))
    };
    assert_eq!(looked(8), (None, 1.0));
    let (look, wider) = looked(12);
    assert_eq!(look, Some(12));
    assert!(wider > 1.0 && wider < 1.02, "{wider}");
}

/// A run by itself has the interval of its look in a pool and in a comparison, too, whether a look
/// concluded the cell or the run ended by its budget. Runs together are combined by their errors.
#[test]
fn one_run_beside_others_keeps_the_interval_of_its_look() {
    let runs = [0.3, 0.31].map(|mean| vec![with_log_ratios(&spread(15, mean, 0.01))]);
    let fixed = Options::new("native");
    for concluded in [vec![concluded("e", 15)], Vec::new()] {
        let options = Options { concluded, ..options() };
        let ended = Options { ended_by_rule: true, ..options.clone() };
        let own = cell(&runs[0][0], &ended).overhead.unwrap();
        assert_ne!(Some(own), cell(&runs[0][0], &fixed).overhead);
        let pooled = |runs: &[Vec<Comparison>], options: &Options| {
            let run = |(at, run): (usize, &Vec<Comparison>)| {
                let estimates = RunEstimates::of(run, options);
                PoolRun { machine: at.to_string(), group: String::new(), estimates }
            };
            pool(&runs.iter().enumerate().map(run).collect::<Vec<_>>()).cells.remove(0)
        };
        assert_eq!(pooled(&runs[..1], &options).overhead, Some(own));
        let both = pooled(&runs, &options);
        assert_eq!(both.machines[0].overhead, own);
        let looks = |cell: &PooledCell| cell.machines.iter().map(|machine| machine.look).collect::<Vec<_>>();
        assert_eq!(looks(&both), [Some(15), Some(15)]);
        assert_eq!(looks(&pooled(&runs, &fixed)), [None::<u32>; 2]);
        let twice = [0, 1].map(|at| PoolRun {
            machine: "one".into(),
            group: String::new(),
            estimates: RunEstimates::of(&runs[at], &options),
        });
        assert_eq!(looks(&pool(&twice).cells[0]), [None::<u32>], "several runs are combined by their errors");
        assert_eq!(both.overhead, pooled(&runs, &fixed).overhead);
        let compared = |options: &Options| {
            let [before, after] = runs.each_ref().map(|run| (&run[..], options));
            environment(&compare_runs(&[before], &[after]), "e")
        };
        let change = compared(&options);
        assert_eq!((change.overhead, change.look), (compared(&fixed).overhead, None));
        assert_eq!(change.runs.unwrap().before.overhead, Some(own));
    }
}

#[test]
fn an_open_cell_holds_at_any_moment() {
    let comparison = with_log_ratios(&spread(12, 0.3, 0.01));
    let open = analyse(std::slice::from_ref(&comparison), &options());
    assert_eq!(kinds(&open), [WarningKind::RunIncomplete { done: 12, planned: 60 }]);
    assert_eq!(environment(&open, "e").look, None);
    let other = Options { looks: None, planned_blocks: Some(30), ..options() };
    assert_eq!(environment(&open, "e").overhead, cell(&comparison, &other).overhead);
}

/// Later failures of the baseline do not matter, because both sides end with the conclusion.
#[test]
fn later_failures_of_the_baseline_do_not_affect_a_conclusion() {
    let mut comparison = with_log_ratios(&spread(20, 0.3, 0.01));
    comparison.series[1].observations.truncate(10);
    comparison.series[1].tried = 10;
    comparison.series[0].observations.remove(15);
    comparison.series[0].failed = 1;
    let mut of = concluded("e", 10);
    let later = cell(&comparison, &Options { concluded: vec![of.clone()], ..options() });
    assert_eq!((later.n, later.verdict), (10, Some(Verdict::Slower)));
    assert!(!has(&later, Flag::BaselineFailed));
    of.baseline_failed.insert("time".into(), 1);
    let before = cell(&comparison, &Options { concluded: vec![of], ..options() });
    assert!(has(&before, Flag::BaselineFailed));
}

/// The conclusion of a look at `blocks` blocks about environment `e`.
fn at_look(blocks: usize, mean: f64, sd: f64) -> Option<ConclusionReason> {
    let comparison = with_log_ratios(&spread(blocks, mean, sd));
    let due = [DueWorkload { workload: "w", blocks: blocks as u32 }];
    let all = [comparison];
    conclusions(&all, &options(), 0.01, &due, &|_, _| true).first().map(|(_, reason)| *reason)
}

#[test]
fn before_thirty_blocks_only_effects_beyond_the_margin_are_decided() {
    assert_eq!(at_look(10, 0.1, 0.01), Some(ConclusionReason::Decided));
    assert_eq!(at_look(10, -0.1, 0.01), Some(ConclusionReason::Decided));
    // Clearly slower, and clearly equivalent, but not beyond the margin.
    assert_eq!((at_look(25, 0.015, 0.001), at_look(25, 0.0, 0.001)), (None, None));
    assert_eq!(at_look(30, 0.015, 0.001), Some(ConclusionReason::Decided));
    assert_eq!(at_look(30, 0.0, 0.001), Some(ConclusionReason::Decided));
    assert_eq!((at_look(55, 0.0, 0.1), at_look(60, 0.0, 0.1)), (None, Some(ConclusionReason::LastLook)));
}

/// The p of this arm is small enough once another is found. While that one is measured further it
/// may still change, so it does not help.
#[test]
fn a_cell_still_being_measured_does_not_help_other_cells() {
    let of = |name: &str, mean: f64, sd: f64| {
        let logs = spread(30, mean, sd);
        series(name, in_blocks(&logs.iter().map(|d| d.exp()).collect::<Vec<_>>()))
    };
    // The helper is clearly different; the other is found only if the helper counts.
    let arms = |helper: f64| {
        let native = series("native", in_blocks(&[1.0; 30]));
        vec![comparison(vec![native, of("helper", helper, 0.05), of("weak", 0.0271, 0.05)])]
    };
    let due = [DueWorkload { workload: "w", blocks: 30 }];
    let found = |helper: f64, measured: &dyn Fn(&str, &str) -> bool| {
        let all = arms(helper);
        let found = conclusions(&all, &options(), 1e-6, &due, measured);
        found.into_iter().map(|((_, environment), _)| environment.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(0.3, &|_, _| true), ["helper", "weak"]);
    assert_eq!(found(0.3, &|_, environment| environment == "weak"), [""; 0], "the helper may still change");
}

/// A look counts the units, not the pairs.
#[test]
fn a_failure_of_the_baseline_leaves_a_decided_run_complete() {
    let mut comparison = with_log_ratios(&spread(10, 0.3, 0.01));
    comparison.series[0].observations.truncate(9);
    comparison.series[0].failed = 1;
    let baseline_failed = [("time".to_string(), 1)].into();
    let decided = ConcludedCell { baseline_failed, ..concluded("e", 10) };
    let analysis = analyse(&[comparison], &Options { concluded: vec![decided], ..options() });
    assert_eq!((kinds(&analysis), environment(&analysis, "e").n), (vec![], 9));
}

fn sequential_plan() -> Plan {
    Plan { effort: Effort::Sequential { looks: Looks::STANDARD, target: 0.01 }, ..time_plan() }
}

fn conclusion(environment: &str, from_block: u32) -> Record {
    Record::Concluded(Conclusion {
        environment: environment.into(),
        workload: "w".into(),
        from_block,
        blocks: from_block,
        reason: ConclusionReason::Decided,
    })
}

/// Units without a concluded environment are complete; a new length of slices reopens it.
#[test]
fn units_after_a_conclusion_are_complete_without_it() {
    let plan = sequential_plan();
    let without = |block: u32| {
        ["native", "f"].map(|environment| measured(At(block, 0, "w", environment), &[1.0])).to_vec()
    };
    let failed =
        |block: u32| vec![failed(At(block, 0, "w", "native")), measured(At(block, 0, "w", "f"), &[1.0])];
    let records =
        file([unit(0, 0, "w", 1.0), unit(1, 0, "w", 1.0), vec![conclusion("e", 2)], without(2), failed(3)]);
    let collected = collect(&plan, &records);
    assert_eq!((collected.blocks_done, collected.incomplete.len()), (4, 0));
    let tried: Vec<u32> = collected.comparisons[0].series.iter().map(|series| series.tried).collect();
    assert_eq!(tried, [4, 2, 4]);
    let [one] = &collected.concluded[..] else { panic!("{:?}", collected.concluded) };
    assert_eq!((one.environment.as_str(), one.blocks, one.baseline_failed.len()), ("e", 2, 0));
    let early = file([failed_unit(0), unit(1, 0, "w", 1.0), vec![conclusion("e", 2)], without(2)]);
    assert_eq!(collect(&plan, &early).concluded[0].baseline_failed["time"], 1);

    let slicing = Record::Slicing(Slicing { workload: "w".into(), ..Slicing::default() });
    let taken_back: Vec<Record> = records.into_iter().chain([slicing]).collect();
    let collected = collect(&plan, &taken_back);
    assert_eq!((collected.concluded.len(), collected.blocks_done), (0, 2));
}

/// A unit in which the baseline failed.
fn failed_unit(block: u32) -> Vec<Record> {
    let others = ["e", "f"].map(|environment| measured(At(block, 0, "w", environment), &[1.0]));
    [failed(At(block, 0, "w", "native"))].into_iter().chain(others).collect()
}

/// The conclusion of a gate with a limit of 3 % at a look at `blocks` of 30 blocks.
fn gated(blocks: usize, mean: f64, sd: f64) -> Option<ConclusionReason> {
    let comparison = with_log_ratios(&spread(blocks, mean, sd));
    let due = [DueWorkload { workload: "w", blocks: blocks as u32 }];
    let gate = Some(GateLimits { of: [("other".to_string(), 1.0)].into(), ..GateLimits::all(0.03) });
    let options = Options { looks: Looks::new(10, 5, 30), gate, ..options() };
    conclusions(&[comparison], &options, 0.01, &due, &|_, _| true).first().map(|(_, reason)| *reason)
}

#[test]
fn a_gate_decides_by_its_limit_in_place_of_the_margin() {
    use ConclusionReason::{Decided, Futile, LastLook};
    assert_eq!(gated(10, 0.1, 0.01), Some(Decided), "above");
    // A difference beyond the margin of 2 % that is not shown to lie above the limit.
    assert_eq!(gated(10, 0.028, 0.001), None);
    assert_eq!((gated(10, 0.0, 0.001), gated(15, 0.0, 0.001)), (None, Some(Decided)), "below, from 15 on");
    // At the limit the remaining blocks would decide nothing; below it by a fifth of the spread
    // they may.
    let limit = 0.03_f64.ln_1p();
    assert_eq!((gated(15, limit - 0.004, 0.02), gated(15, limit, 0.02)), (None, Some(Futile)));
    assert_eq!(gated(25, limit - 0.008, 0.02), None);
    assert_eq!(gated(30, limit, 0.02), Some(LastLook));
}
