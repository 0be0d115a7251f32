use super::*;
use crate::tests::common::{fixed, plan};
use weigh_model::{Exclusion, Slicing};

const ENVIRONMENTS: [&str; 2] = ["null", "null:label=b"];

fn failed(kind: FailureKind) -> Outcome {
    Outcome::Failed(TrialFailure { kind, reason: "so".into(), log: None })
}

fn trial(sequence: u64, block: u32, attempt: u32, environment: &str, outcome: Outcome) -> Record {
    Record::Trial(Trial {
        sequence,
        block,
        attempt,
        workload: "u".into(),
        environment: environment.into(),
        instance: sequence,
        host_ended_ns: 500_000_000,
        outcome,
        ..Trial::default()
    })
}

fn measured(sequence: u64, block: u32, attempt: u32, environment: &str) -> Record {
    trial(sequence, block, attempt, environment, Outcome::Measured { iterations: Vec::new() })
}

fn void(block: u32, attempt: u32, cause: VoidCause) -> Record {
    Record::Void(VoidUnit::of(block, attempt, "u", cause))
}

fn excluded(environment: &str, from_block: u32) -> Record {
    let failure = TrialFailure { kind: FailureKind::Launch, reason: "no".into(), log: None };
    let (environment, workload) = (environment.into(), "u".into());
    Record::Excluded(Exclusion { environment, workload, from_block, failure })
}

#[test]
fn a_concluded_cell_has_no_further_trials_unless_its_slices_change() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(3));
    let id = plan.workloads[0].id.clone();
    let concluded = Record::Concluded(weigh_model::Conclusion {
        environment: ENVIRONMENTS[1].into(),
        workload: id.clone(),
        from_block: 1,
        blocks: 1,
        reason: ConclusionReason::Decided,
    });
    let mut history = History::new(&plan, &[measured(0, 0, 0, ENVIRONMENTS[0])]);
    history.add(&measured(1, 0, 0, ENVIRONMENTS[1]));
    assert_eq!(history.block_after(0), 1);
    history.add(&concluded);
    history.add(&measured(2, 1, 0, ENVIRONMENTS[0]));
    assert_eq!((history.active(1, 1, 0), history.active(0, 1, 0), history.valid(0)), (false, true, 2));
    assert_eq!(history.conclusions(0).collect::<Vec<_>>(), [ConclusionReason::Decided]);
    history.add(&Record::Slicing(Slicing { workload: id, ..Slicing::default() }));
    assert_eq!((history.active(1, 1, 0), history.valid(0)), (true, 1));
}

fn sliced(sequence: u64, block: u32, environment: &str) -> Record {
    let Record::Trial(trial) = measured(sequence, block, 0, environment) else { unreachable!() };
    let slices = weigh_model::Slices { length_us: 5_000, ..Default::default() };
    Record::Trial(Trial { slices: Some(Box::new(slices)), ..trial })
}

#[test]
fn a_whole_trial_beside_slices_needs_one_of_the_baseline() {
    const THREE: [&str; 3] = ["null", "null:label=b", "null:label=c"];
    let plan = plan(&THREE, &["u"], fixed(2));
    let decided = |whole: &[&str]| {
        let whole = whole.iter().map(|name| name.to_string()).collect();
        Record::Slicing(Slicing { workload: "u".into(), length_us: Some(5_000), whole, ..Slicing::default() })
    };
    let mut history = History::new(&plan, &[decided(&[THREE[2]])]);
    assert!(history.is_whole(2, 0) && !history.is_whole(1, 0));
    history.add(&sliced(0, 0, THREE[0]));
    history.add(&sliced(1, 0, THREE[1]));
    history.add(&measured(2, 0, 0, THREE[2]));
    assert_eq!(history.unit(0, 0), Unit::Cut { attempt: 0 });
    let Record::Trial(beside) = measured(3, 0, 0, THREE[0]) else { unreachable!() };
    history.add(&Record::WholeBaseline(beside));
    assert_eq!((history.unit(0, 0), history.trials()), (Unit::Complete, 4));
    // What is whole from now on was sliced there.
    assert_eq!(history.superseded_units(), []);
    history.add(&decided(&THREE[1..]));
    assert_eq!(history.superseded_units().len(), 1);
}

#[test]
fn units_in_slices_of_another_length_are_superseded() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(2));
    let id = plan.workloads[0].id.clone();
    let decided =
        |length_us| Record::Slicing(Slicing { workload: id.clone(), length_us, ..Slicing::default() });
    let mut history = History::new(&plan, &[decided(Some(5_000))]);
    for (sequence, environment) in (0..).zip(ENVIRONMENTS) {
        history.add(&sliced(sequence, 0, environment));
    }
    assert_eq!((history.superseded_units(), history.valid(0)), (Vec::new(), 1));
    for instead in [Some(20_000), None] {
        history.add(&decided(instead));
        let void = VoidUnit::of(0, 0, &id, VoidCause::SliceLength);
        assert_eq!(history.superseded_units(), [void], "{instead:?}");
    }
    history.add(&void(0, 0, VoidCause::SliceLength));
    assert_eq!((history.superseded_units(), history.valid(0)), (Vec::new(), 0));
    assert_eq!(history.superseded_blocks(), 1);
    assert_eq!(history.unit(0, 0), Unit::Void, "another block replaces it");
}

#[test]
fn a_unit_goes_from_open_to_complete_or_void() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(3));
    let mut history = History::new(&plan, &[]);
    assert_eq!(history.unit(0, 0), Unit::Open { attempt: 0 });
    assert_eq!(history.last_block(), None);
    history.add(&measured(0, 0, 0, "null"));
    assert_eq!(history.unit(0, 0), Unit::Cut { attempt: 0 });
    assert_eq!(history.cut_units().len(), 1);
    history.add(&void(0, 0, VoidCause::Interrupted));
    assert_eq!(history.unit(0, 0), Unit::Open { attempt: 1 });
    assert!(history.cut_units().is_empty());
    history.add(&measured(1, 0, 1, "null:label=b"));
    history.add(&trial(2, 0, 1, "null", failed(FailureKind::Check)));
    // A failed trial is a trial.
    assert_eq!(history.unit(0, 0), Unit::Complete);
    assert_eq!(history.valid(0), 1);
    history.add(&void(0, 1, VoidCause::Steal));
    assert_eq!(history.unit(0, 0), Unit::Void);
    assert_eq!(history.valid(0), 0);
    assert_eq!((history.trials(), history.next_instance(), history.trial_s()), (3, 3, 1.5));
}

#[test]
fn an_exclusion_counts_from_its_block() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(3));
    let records = [
        measured(0, 0, 0, "null"),
        measured(1, 0, 0, "null:label=b"),
        measured(2, 1, 0, "null"),
        excluded("null:label=b", 1),
    ];
    let history = History::new(&plan, &records);
    assert_eq!([history.unit(0, 0), history.unit(1, 0)], [Unit::Complete, Unit::Complete]);
    assert!(history.active(0, 1, 0) && !history.active(1, 1, 0));
    assert!(history.alive(1, 0));
    let history = History::new(&plan, &[excluded("null:label=b", 1), excluded("null", 2)]);
    assert!(history.alive(1, 0) && !history.alive(2, 0));
}

#[test]
fn patience_is_for_failures_in_a_row_that_cost_time() {
    let plan = plan(&ENVIRONMENTS, &["u"], fixed(9));
    let cells_to_give_up = |kinds: &[Option<FailureKind>]| {
        let records: Vec<Record> = kinds
            .iter()
            .zip(0..)
            .map(|(kind, n)| match kind {
                Some(kind) => trial(n, n as u32, 0, "null", failed(*kind)),
                None => measured(n, n as u32, 0, "null"),
            })
            .collect();
        History::new(&plan, &records).cells_to_give_up().len()
    };
    use FailureKind::{Deadline, ExitStatus, GuestDied};
    assert_eq!(cells_to_give_up(&[Some(Deadline), Some(GuestDied), Some(Deadline)]), 1);
    assert_eq!(cells_to_give_up(&[Some(Deadline), Some(GuestDied)]), 0);
    assert_eq!(cells_to_give_up(&[Some(Deadline), None, Some(GuestDied), Some(Deadline)]), 0);
    assert_eq!(cells_to_give_up(&[Some(Deadline), Some(ExitStatus), Some(GuestDied), Some(Deadline)]), 0);
    assert_eq!(cells_to_give_up(&[Some(ExitStatus); 9]), 0);
}
