//! Guests with unintended differences: refused, allowed by name, left out, or failed when the
//! differences appear during a run.
use crate::common::{Bench, Outing, exclusions, failure, fixed, is_measured, plan, records, trials};
use weigh_model::{Event, FailureKind, InstanceFacts, Plan, Record};
use weigh_runner::RunnerError;
use weigh_store::RunDirectory;

fn facts(store: &RunDirectory) -> Vec<InstanceFacts> {
    let facts = |record| match record {
        Record::Facts(facts) => Some(facts),
        _ => None,
    };
    records(store).into_iter().filter_map(facts).collect()
}

/// Two environments, each with its own facts in the syntax of the fake.
fn two(baseline: &str, other: &str, blocks: u32) -> Plan {
    plan(
        &[&format!("null:fact={baseline}"), &format!("null:fact={other},label=other")],
        &["u", "v"],
        fixed(blocks),
    )
}

fn attempt(bench: &Bench, plan: &Plan) -> (Result<Outing, RunnerError>, RunDirectory) {
    let mut store = bench.create(plan);
    let outing = bench.go_on(plan, &mut store, |_, _| {});
    (outing, store)
}

#[test]
fn a_guest_with_a_cpu_less_is_refused_with_the_list() {
    let bench = Bench::new();
    let plan = two("cpus=2+binary:u=sha256:1+libc=static", "cpus=1+binary:u=sha256:2+libc=static", 3);
    let (outing, mut store) = attempt(&bench, &plan);
    let Err(RunnerError::Unequal { baseline, unequal }) = outing.map(|_| ()) else { panic!("not refused") };
    assert_eq!((baseline.as_str(), unequal.len()), (plan.baseline.as_str(), 1));
    let differences: Vec<_> = unequal[0]
        .differences
        .iter()
        .map(|d| (d.key.as_str(), d.value.as_str(), d.baseline_value.as_str()))
        .collect();
    assert_eq!(differences, [("binary:u", "sha256:2", "sha256:1"), ("cpus", "1", "2")]);
    assert!(trials(&store).is_empty(), "nothing is measured");
    let of: Vec<String> = facts(&store).into_iter().map(|facts| facts.environment).collect();
    assert_eq!(
        of,
        [plan.environments[0].name.clone(), plan.environments[1].name.clone()],
        "the reason is on record"
    );
    // Resuming changes nothing as long as they differ, and records nothing twice.
    let again = bench.go_on(&plan, &mut store, |_, _| {});
    assert!(matches!(again.map(|_| ()), Err(RunnerError::Unequal { .. })));
    assert_eq!(facts(&store).len(), 2);
}

#[test]
fn every_environment_that_differs_is_in_the_list() {
    let bench = Bench::new();
    let plan = plan(
        &[
            "null:fact=cpus=1,label=a",
            "null:fact=cpus=2,label=b",
            "null:fact=cpus=1,label=c",
            "null:fact=libc=x+cpus=3,label=d",
        ],
        &["u"],
        fixed(3),
    );
    let error = attempt(&bench, &plan).0.map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "guests differ from the baseline null:fact=cpus=1,label=a\n  \
         null:fact=cpus=2,label=b: cpus is 2 (null:fact=cpus=1,label=a: 1)\n  \
         null:fact=libc=x+cpus=3,label=d: cpus is 3 (null:fact=cpus=1,label=a: 1)"
    );
}

#[test]
fn a_difference_that_is_allowed_by_name_runs() {
    let bench = Bench::new();
    let mut plan = two("cpus=2", "cpus=1", 3);
    plan.allow_unequal = vec!["cpus".into()];
    let (outing, store) = attempt(&bench, &plan);
    outing.unwrap();
    assert_eq!(trials(&store).iter().filter(|trial| is_measured(trial)).count(), 12);
    let facts = facts(&store);
    assert_eq!([facts[0].facts["cpus"].as_str(), facts[1].facts["cpus"].as_str()], ["2", "1"]);
    assert!(facts[1].intended.is_empty(), "allowed is not intended: {:?}", facts[1].intended);
}

#[test]
fn an_allowed_network_difference_covers_its_dependent_facts() {
    const HOST: &str = "network=host+network-interface=loopback+network-mtu=65536";
    const BRIDGE: &str = "network=bridge+network-interface=veth+network-mtu=1500";
    const CONTROL: &str = "sysctl:net.ipv4.tcp_congestion_control";
    let bench = Bench::new();
    let refused = |baseline: &str, other: &str| {
        let mut plan = two(baseline, other, 1);
        // A fake implies nothing by its network.
        plan.allow_unequal = vec!["network".into()];
        match attempt(&bench, &plan) {
            (Ok(_), store) => (Vec::new(), facts(&store)[1].intended.keys().cloned().collect::<Vec<_>>()),
            (Err(RunnerError::Unequal { unequal, .. }), _) => {
                (unequal[0].differences.iter().map(|d| d.key.clone()).collect(), Vec::new())
            }
            (Err(error), _) => panic!("{error}"),
        }
    };
    let (keys, intended) = refused(HOST, BRIDGE);
    assert!(keys.is_empty(), "{keys:?}");
    assert_eq!(intended, ["network-interface", "network-mtu"]);
    // A setting that was changed by hand.
    assert_eq!(refused(BRIDGE, &BRIDGE.replace("1500", "1400")).0, ["network-mtu"]);
    let controls = ["cubic", "bbr"].map(|word| format!("{CONTROL}={word}"));
    assert_eq!(
        refused(&format!("{HOST}+{}", controls[0]), &format!("{BRIDGE}+{}", controls[1])).0,
        [CONTROL]
    );
}

#[test]
fn an_unequal_environment_that_was_not_named_is_left_out() {
    let bench = Bench::new();
    for blocks in [1, 3] {
        // A run of one block has no pilot.
        let plan = Plan { leave_out_unequal: true, ..two("cpus=2", "cpus=1", blocks) };
        let (outing, store) = attempt(&bench, &plan);
        outing.unwrap();
        let left_out = exclusions(&store);
        assert_eq!(left_out.len(), 2, "{left_out:?}");
        for exclusion in left_out {
            assert_eq!((exclusion.failure.kind, exclusion.from_block), (FailureKind::Unequal, 0));
            assert_eq!(exclusion.environment, plan.environments[1].name);
            let reason = exclusion.failure.reason;
            assert!(reason.contains("cpus is 1, not 2"), "{reason}");
            assert!(reason.contains("--allow-unequal cpus"), "{reason}");
        }
        let trials = trials(&store);
        assert_eq!(trials.len(), 2 * blocks as usize);
        assert!(trials.iter().all(|trial| trial.environment == plan.baseline && is_measured(trial)));
    }
}

#[test]
fn a_run_without_a_pilot_is_refused_in_its_first_block() {
    let bench = Bench::new();
    let (outing, store) = attempt(&bench, &two("cpus=2", "cpus=1", 1));
    assert!(matches!(outing.map(|_| ()), Err(RunnerError::Unequal { .. })));
    assert!(trials(&store).is_empty());
}

#[test]
fn an_instance_that_comes_to_differ_fails_its_trials() {
    let bench = Bench::new();
    // Two instances in the pilot and two in each block: the difference begins in the second block.
    let plan = plan(&["null", "null:fact=architecture=vax,fact-from=4,label=other"], &["u"], fixed(4));
    let (outing, store) = attempt(&bench, &plan);
    let outing = outing.unwrap();
    let other: Vec<_> = trials(&store).into_iter().filter(|trial| trial.environment != "null").collect();
    let kinds: Vec<_> = other.iter().map(|trial| failure(trial).map(|failure| failure.kind)).collect();
    assert_eq!(
        kinds,
        [None, Some(FailureKind::Unequal), Some(FailureKind::Unequal), Some(FailureKind::Unequal)]
    );
    let reason = &failure(&other[1]).unwrap().reason;
    assert_eq!(
        reason,
        format!("the guest is not like null: architecture is vax, not {}", std::env::consts::ARCH).as_str()
    );
    assert!(trials(&store).iter().filter(|trial| trial.environment == "null").all(is_measured));
    assert_eq!(facts(&store).len(), 3, "once for each environment and once for the change");
    let warned = |event: &Event| matches!(event, Event::Warning { message } if message.contains("has changed: architecture is vax"));
    assert_eq!(outing.events.iter().filter(|event| warned(event)).count(), 1);
}

#[test]
fn facts_that_all_guests_share_may_change() {
    let bench = Bench::new();
    let of = |label: &str| format!("null:fact=transparent-huge-pages=never,fact-from=4,label={label}");
    let plan = plan(&[&of("a"), &of("b")], &["u"], fixed(3));
    let (outing, store) = attempt(&bench, &plan);
    outing.unwrap();
    assert!(trials(&store).iter().all(is_measured), "the pairs of a block are alike");
    assert_eq!(facts(&store).len(), 4);
}
