//! Runs the selftest over fakes, which is seeded and so has the same counts on every machine. A
//! selftest that cannot fail is worth nothing, so most of these tests break the method and expect a
//! failure.

use super::conduct::{Analyse, Constant, SelftestResults, SelftestRunner, analyse_as_run};
use super::design::{BLOCKS, Design, EFFECTS, Form, Subject};
use super::judgement::{FormJudgement, Judgement, Verdict, document, judge};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weigh_host::cgroup::Hierarchy;
use weigh_host::facts::host_facts;
use weigh_host::ledger::Ledger;
use weigh_host::state::StateDirectory;
use weigh_images::Programs;
use weigh_model::{Comparison, CpuTime, Observation, Observed, Plan, Record, SliceChoice, SlicedWork};
use weigh_observe::Sensors;
use weigh_platforms::Host;
use weigh_stats::{Analysis, Options, analyse, collect};

/// Renders a judgement as a terminal shows it.
fn table(judgement: &Judgement) -> String {
    let options = weigh_report::Options::default();
    weigh_report::render_document(&document(judgement), weigh_report::Format::Table, &options).unwrap()
}

/// Designs a selftest of fakes whose trials are whole.
fn fakes(no_effect: u32, per_effect: u32, keys: &str, other: &str) -> Design {
    Design {
        seed: 3,
        forms: vec![Form::Whole],
        slices: SliceChoice::Auto,
        no_effect,
        per_effect,
        subject: Subject::Fake { keys: keys.into(), other: other.into() },
        digests: BTreeMap::new(),
    }
}

/// Designs a selftest of fakes in which half of the comparisons represent sliced ones.
fn fakes_in_both_forms(no_effect: u32, per_effect: u32, keys: &str) -> Design {
    Design { forms: vec![Form::Slices, Form::Whole], ..fakes(no_effect, per_effect, keys, "") }
}

/// Returns the judgement of one form.
fn of(judgement: &Judgement, form: Form) -> &FormJudgement {
    judgement.forms.iter().find(|of| of.form == form).unwrap()
}

/// Runs a selftest in memory.
fn conduct(
    design: &Design,
    analyse: Analyse,
    interrupt: &AtomicBool,
    budget: Option<Duration>,
) -> SelftestResults {
    conduct_with(design, analyse, &mut Constant::default(), interrupt, budget)
}

fn conduct_with(
    design: &Design,
    analyse: Analyse,
    sensors: &mut dyn Sensors,
    interrupt: &AtomicBool,
    budget: Option<Duration>,
) -> SelftestResults {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new().prefix("weigh-test-").tempdir_in(parent).unwrap();
    let host = host(directory.path());
    let conductor = SelftestRunner {
        host: &host,
        facts: &host_facts(),
        directory: directory.path(),
        interrupt,
        budget,
        analyse,
    };
    conductor.conduct(design, sensors, &mut |done, of| assert!(done <= of)).unwrap()
}

fn judged(design: &Design, analyse: Analyse) -> Judgement {
    judge(design, conduct(design, analyse, &AtomicBool::new(false), None))
}

/// Runs a selftest whose method is broken, which has to be outside its bands and say all of `said`.
fn reported(design: &Design, analyse: Analyse, said: &[&str]) -> Judgement {
    let judgement = judged(design, analyse);
    assert_eq!(judgement.verdict, Verdict::Outside, "{}", table(&judgement));
    for part in said {
        assert!(judgement.statement.contains(part), "{part}: {}", judgement.statement);
    }
    judgement
}

/// Makes a host whose every selftest is another run, because the fakes count commands per run.
fn host(directory: &Path) -> Host {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = format!("t{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let file = |name: &str| {
        let path = directory.join(name);
        std::fs::write(&path, name).unwrap();
        path
    };
    let programs = Programs { probe: file("probe"), kernels: file("kernels"), module: None };
    let work = directory.join("work");
    std::fs::create_dir(&work).unwrap();
    Host {
        ledger: Ledger::create(&StateDirectory::at(directory.join("state")), &run).unwrap(),
        hierarchy: Hierarchy::detect(),
        logs: work.clone(),
        work,
        run,
        programs,
        is_root: false,
        fetch_until: None,
    }
}

#[test]
fn the_method_stays_inside_its_bands_under_every_drift() {
    for drift in ["none", "linear-0.5", "ar0.9-0.02", "step-0.05"] {
        let judgement = judged(&fakes(40, 10, &format!("sd=0.01,drift={drift}"), ""), analyse_as_run);
        assert_eq!(judgement.verdict, Verdict::Inside, "{drift}:\n{}", table(&judgement));
        assert_eq!((judgement.planned, judgement.done), (80, 80));
        assert_eq!(judgement.failed, []);
        // The bands must not be too wide: large effects are found, and small ones are not.
        let found: Vec<u32> =
            of(&judgement, Form::Whole).effects.iter().map(|count| count.found.observed).collect();
        assert!(found[3] >= 9 && found[0] <= 5, "{drift}: {found:?}");
    }
}

#[test]
fn a_label_that_changes_the_result_is_reported() {
    // The second environment takes 0.4 % longer, whatever is injected.
    let design = fakes(40, 10, "sd=0.01", "time=10.04ms");
    reported(&design, analyse_as_run, &["the label alone changes the result by +0."]);
}

/// Analyses the same records after their comparison was changed.
fn changed(plan: &Plan, records: &[Record], change: impl Fn(&mut Comparison)) -> Analysis {
    let mut comparisons = collect(plan, records).comparisons;
    comparisons.iter_mut().for_each(&change);
    analyse(&comparisons, &Options::for_plan(plan))
}

/// The same after every observation, given with its environment, was changed.
fn with_observations(plan: &Plan, records: &[Record], change: impl Fn(&str, &mut Observation)) -> Analysis {
    changed(plan, records, |comparison| {
        for series in &mut comparison.series {
            series.observations.iter_mut().for_each(|one| change(&series.environment, one));
        }
    })
}

#[test]
fn a_method_that_ignores_pairs_is_reported() {
    fn without_pairs(_: Form, plan: &Plan, records: &[Record]) -> Analysis {
        with_observations(plan, records, |_, one| one.block = None)
    }
    // Its intervals are far too wide under a drift that both environments share: they hardly miss.
    let design = fakes(200, 0, "sd=0.003,drift=ar0.9-0.05", "");
    reported(&design, without_pairs, &["intervals held the truth 199 of 200 times"]);
}

/// Breaks the analysis: it takes blocks that are copies for units of replication.
fn with_every_block_four_times(plan: &Plan, records: &[Record]) -> Analysis {
    changed(plan, records, |comparison| {
        for series in &mut comparison.series {
            let blocks = series.observations.clone();
            for copy in 1..4 {
                series.observations.extend(blocks.iter().map(|observation| {
                    let block = observation.block.map(|block| block + 1000 * copy);
                    Observation { block, ..*observation }
                }));
            }
        }
    })
}

#[test]
fn a_method_that_takes_repetitions_for_samples_is_reported() {
    fn every_block_four_times(_: Form, plan: &Plan, records: &[Record]) -> Analysis {
        with_every_block_four_times(plan, records)
    }
    let said = ["equal environments were called different"];
    reported(&fakes(40, 10, "sd=0.01", ""), every_block_four_times, &said);
}

/// This error is easy to make with slices, because every block has many of them.
#[test]
fn slices_that_are_taken_for_samples_are_reported() {
    fn slices_for_samples(form: Form, plan: &Plan, records: &[Record]) -> Analysis {
        match form {
            Form::Slices => with_every_block_four_times(plan, records),
            Form::Whole => analyse_as_run(form, plan, records),
        }
    }
    let said = ["in slices: equal environments were called different"];
    let judgement = reported(&fakes_in_both_forms(40, 10, "sd=0.01"), slices_for_samples, &said);
    assert!(!judgement.statement.contains("whole"), "{}", judgement.statement);
}

/// If marks reported the work that was done instead of the work that was asked for, the effect
/// would be lost.
#[test]
fn slices_that_lose_the_effect_are_reported() {
    fn lost(form: Form, plan: &Plan, records: &[Record]) -> Analysis {
        let spec = &plan.environments[1].spec;
        let effect: f64 = spec.get("effect").unwrap().parse().unwrap();
        let share = if form == Form::Slices { 1.0 + effect } else { 1.0 };
        with_observations(plan, records, |environment, one| {
            if environment == plan.environments[1].name {
                one.value /= share;
            }
        })
    }
    let said = ["1 %", "2 %", "5 %"].map(|effect| format!("in slices: an effect of {effect} was found "));
    let design = fakes_in_both_forms(10, 10, "sd=0.003");
    let judgement = reported(&design, lost, &said.each_ref().map(String::as_str));
    assert!(!judgement.statement.contains("whole"), "{}", judgement.statement);
    assert_eq!(of(&judgement, Form::Whole).effects[3].found.observed, 10);
}

#[test]
fn both_forms_are_judged_apart_and_shown_apart() {
    let judgement = judged(&fakes_in_both_forms(20, 5, "sd=0.01"), analyse_as_run);
    assert_eq!(judgement.verdict, Verdict::Inside, "{}", table(&judgement));
    assert_eq!((judgement.planned, judgement.done), (80, 80));
    for form in [Form::Slices, Form::Whole] {
        let of = of(&judgement, form);
        assert_eq!((of.done, of.no_effect.of, of.effects[3].found.of, of.coverage.of), (40, 20, 5, 40));
        assert!(of.smallest_detectable.unwrap() > 0.0);
    }
    let shown = table(&judgement);
    assert!(shown.contains("slices: 40 comparisons") && shown.contains("whole trials: 40 comparisons"));
}

#[test]
fn without_slices_whole_trials_are_judged_alone() {
    let design = fakes_in_both_forms(6, 1, "sd=0.01");
    let mut conducted = conduct(&design, analyse_as_run, &AtomicBool::new(false), None);
    conducted.measured.retain(|measured| measured.form == Form::Whole);
    conducted.sliced = Some(Err("there is no group".into()));
    let judgement = judge(&design, conducted);
    assert_eq!((judgement.planned, judgement.done, judgement.forms.len()), (10, 10, 1));
    assert!(table(&judgement).contains("nothing can be sliced here: there is no group"));
}

#[test]
fn a_smallest_effect_that_promises_too_much_is_reported() {
    fn boastful(form: Form, plan: &Plan, records: &[Record]) -> Analysis {
        let mut analysis = analyse_as_run(form, plan, records);
        for cell in &mut analysis.cells {
            cell.smallest_detectable = cell.smallest_detectable.map(|smallest| smallest / 3.0);
        }
        analysis
    }
    reported(&fakes(0, 20, "sd=0.01", ""), boastful, &["an effect of"]);
}

/// If the control is not the baseline, the fault is found although the compared environments have
/// none.
#[test]
fn a_control_that_differs_is_reported() {
    fn slow_control(_: Form, plan: &Plan, records: &[Record]) -> Analysis {
        with_observations(plan, records, |environment, one| {
            if plan.control.as_deref() == Some(environment) {
                one.value *= 1.02;
            }
        })
    }
    let said = [
        "the baseline was called different from itself",
        "the second instance of the baseline differs from it by +",
    ];
    let judgement = reported(&fakes(10, 5, "sd=0.01", ""), slow_control, &said);
    let whole = of(&judgement, Form::Whole);
    assert_eq!((whole.no_effect.of, whole.control.of), (10, 30), "every comparison has a control");
    let statement = &judgement.statement;
    assert!(!statement.contains("label") && !statement.contains("effect of"), "{statement}");
}

#[test]
fn effects_that_are_found_too_large_are_reported() {
    fn exaggerated(_: Form, plan: &Plan, records: &[Record]) -> Analysis {
        with_observations(plan, records, |environment, one| {
            if environment.contains("effect=0.") {
                one.value *= 1.01;
            }
        })
    }
    let said = ["the effects that are found differ from those that were injected by +"];
    let judgement = reported(&fakes(10, 10, "sd=0.01", ""), exaggerated, &said);
    let bias = of(&judgement, Form::Whole).bias.unwrap();
    assert!((bias.estimate - 0.01).abs() < 0.004, "{bias:?}");
}

#[test]
fn failed_comparisons_are_counted_and_not_judged() {
    let judgement = judged(&fakes(6, 1, "sd=0.01", "fault=exit,every=1"), analyse_as_run);
    assert_eq!((judgement.done, judgement.failed.len()), (0, 10));
    assert!(judgement.failed[0].reason.contains("10 of 10 trials failed"), "{:?}", judgement.failed[0]);
}

#[test]
fn a_selftest_that_is_cut_short_is_judged_by_its_comparisons() {
    let design = fakes(6, 1, "sd=0.01", "");
    let none = conduct(&design, analyse_as_run, &AtomicBool::new(true), None);
    assert!(none.measured.is_empty() && none.cut_short == Some("interrupted"));
    let some = conduct(&design, analyse_as_run, &AtomicBool::new(false), Some(Duration::from_nanos(1)));
    assert_eq!(some.measured.len(), 0, "a budget of nothing leaves no room");
    let judgement = judge(&design, some);
    assert_eq!(judgement.cut_short.as_deref(), Some("the budget is used up"));
    assert!(judgement.statement.contains("as far as 0 of 10 comparisons say"));
    assert!(table(&judgement).contains("0 comparisons, 10 were planned: the budget is used up"));
}

#[test]
fn a_noisy_host_is_found_out_a_few_times_and_judged_all_the_same() {
    let design = fakes(12, 3, "sd=0.01", "");
    // Half of every window is foreign CPU time.
    let foreign = CpuTime { ns: 500_000_000, uncertainty_ns: 0 };
    let mut loud =
        Constant(Observed { window_ns: 1_000_000_000, cpus: vec![0], foreign, ..Observed::default() });
    let conducted = conduct_with(&design, analyse_as_run, &mut loud, &AtomicBool::new(false), None);
    assert_eq!((conducted.measured.len(), conducted.noisy_hosts), (24, 24));
    // Comparisons 1 to 3 find the noise, and 11 and 21 try again. Each takes the same number of
    // void units to be sure.
    let voids = conducted.voids["foreign-cpu"];
    assert!(voids > 0 && voids.is_multiple_of(5), "{voids}");
    assert!(conducted.measured.iter().all(|measured| measured.pairs == BLOCKS));
    let judgement = judge(&design, conducted);
    assert_eq!(judgement.verdict, Verdict::Inside, "{}", table(&judgement));
}

#[test]
fn comparisons_come_in_a_random_order_that_the_seed_decides() {
    let design = fakes(40, 10, "", "");
    let order = |seed| -> Vec<f64> {
        let design = Design { seed, ..design.clone() };
        design.comparisons().iter().map(|comparison| comparison.effect).collect()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    for (effect, times) in [(0.0, 40)].into_iter().chain(EFFECTS.map(|effect| (effect, 10))) {
        assert_eq!(order(1).iter().filter(|e| **e == effect).count(), times);
    }
    // The kinds are interleaved: neither half has all of one kind.
    let first = order(1)[..40].iter().filter(|effect| **effect == 0.0).count();
    assert!((10..=30).contains(&first), "{first}");
    // So are the forms.
    let both = fakes_in_both_forms(20, 5, "").comparisons();
    for form in [Form::Slices, Form::Whole] {
        let kinds = both.iter().filter(|comparison| comparison.form == form);
        assert_eq!(kinds.clone().filter(|comparison| comparison.effect == 0.0).count(), 20);
        let first = kinds.filter(|comparison| comparison.number <= 40).count();
        assert!((10..=30).contains(&first), "{first}");
    }
}

#[test]
fn both_natives_have_variables_of_the_same_length() {
    let design = Design { subject: Subject::Native { cpus: vec![1] }, ..fakes_in_both_forms(1, 1, "") };
    for comparison in design.comparisons() {
        let plan = design.plan(&comparison, &host_facts()).unwrap();
        let values: Vec<&String> = plan.environments.iter().map(|e| &e.variables["WEIGH_SPIN"]).collect();
        assert_eq!((values.len(), values[0].as_str(), values[2].as_str()), (3, "0.000", "0.000"));
        assert_eq!(values[1].len(), values[0].len());
        assert_eq!(values[1].parse::<f64>().unwrap(), comparison.effect);
        assert_eq!(plan.control.as_deref(), Some("native:label=control"));
        assert_eq!(plan.workloads[0].command[..2], ["weigh-kernels", "spin"]);
        let (slices, work) = (plan.slices, plan.workloads[0].sliced);
        match comparison.form {
            Form::Slices => assert_eq!((slices, work), (SliceChoice::Auto, Some(SlicedWork::Marks))),
            Form::Whole => assert_eq!((slices, work), (SliceChoice::Off, None)),
        }
    }
}

#[test]
fn the_json_reads_back_as_it_was() {
    let judgement = judged(&fakes(2, 1, "sd=0.01", ""), analyse_as_run);
    let json = serde_json::to_string(&judgement).unwrap();
    assert_eq!(serde_json::from_str::<Judgement>(&json).unwrap(), judgement);
    assert!(json.starts_with("{\"format\":3,"));
}
