//! Divides the blocks of one plan into shares, one for each machine of a fleet: which machine
//! measures which share, which machines are alike, and who measures the share of one that failed.

use super::{Engine, Failure};
use std::collections::BTreeMap;
use std::fmt::Display;
use weigh_model::{HostFacts, Plan, Share};
use weigh_store::StoreError;
use weigh_store::fleet::{Fleet, FleetDirectory, Machine, MachineState, machine_names};

/// Gives every machine a share of the plan's blocks.
///
/// # Errors
/// The plan has no fixed number of blocks, or too few for so many machines.
pub fn share_out(plan: &Plan, machines: &mut [Machine]) -> Result<(), Failure> {
    let count = u32::try_from(machines.len()).unwrap_or(u32::MAX);
    let Some(blocks) = plan.effort.fixed_blocks() else {
        return Err(Failure::input("only a fixed number of blocks can be shared out").hint(
            "give --blocks: if the results decide when a run ends, one machine has to see all of them",
        ));
    };
    let fewest = count.saturating_mul(Share::FEWEST_BLOCKS);
    if blocks < fewest {
        let message = format!("{blocks} blocks are too few for {count} machines");
        return Err(Failure::input(message).hint(format!(
            "give --blocks {fewest} or more, or name fewer machines: a share has at least {} blocks, and its error is \
             well known from 5 on",
            Share::FEWEST_BLOCKS
        )));
    }
    (0..).zip(machines).for_each(|(number, machine)| machine.share = Some(number));
    Ok(())
}

/// Returns, by name, the facts that machines that share blocks must have in common.
pub fn fingerprint(host: &HostFacts) -> BTreeMap<&'static str, String> {
    let memory = host.memory_bytes as f64 / f64::from(1 << 30);
    BTreeMap::from([
        ("CPU model", host.cpu_model.clone()),
        ("CPUs", host.cpus.len().to_string()),
        ("architecture", host.architecture.clone()),
        ("kernel", host.kernel.clone()),
        // The kernel reserves a part, which differs a little from boot to boot.
        ("memory", format!("{memory:.0} GiB")),
    ])
}

/// What to do with machines that differ.
pub const IF_UNLIKE: &str =
    "measure the whole plan on machines that differ (leave out --shard) and pool them";

/// Returns the facts in which a machine differs from the machine `name`, a phrase each. A fact that
/// only one of them has is no difference.
pub fn differences<K: Display + Ord>(
    own: &BTreeMap<K, String>,
    other: &BTreeMap<K, String>,
    name: &str,
) -> Vec<String> {
    let both = own.iter().filter_map(|(what, own)| Some((what, own, other.get(what)?)));
    let differing = both.filter(|(_, own, other)| own != other);
    differing.map(|(what, own, other)| format!("{what} {own}, not {other} as on {name}")).collect()
}

/// Returns the name and the facts of the first machine that is done. Those that go on measuring
/// shares must be like it.
pub fn first_done(fleet: &Fleet) -> Option<(String, BTreeMap<String, String>)> {
    let is_known = |machine: &&Machine| machine.state == MachineState::Done && !machine.facts.is_empty();
    fleet.machines.iter().find(is_known).map(|machine| (machine.name.clone(), machine.facts.clone()))
}

/// Refuses finished machines that are unlike the first finished one: their shares are not of one
/// population.
///
/// # Errors
/// The refusal cannot be recorded.
pub fn refuse_unlike(directory: &mut FleetDirectory) -> Result<(), StoreError> {
    let mut first: Option<(String, HostFacts)> = None;
    for at in 0..directory.fleet().machines.len() {
        let machine = directory.fleet().machines[at].clone();
        if machine.share.is_none() || machine.state != MachineState::Done {
            continue;
        }
        let Some(host) = directory.run(at)?.map(|run| run.host().clone()) else { continue };
        let Some((name, of_first)) = &first else {
            first = Some((machine.name, host));
            continue;
        };
        let differences = differences(&fingerprint(&host), &fingerprint(of_first), name);
        if !differences.is_empty() {
            let reason = format!(
                "it is not like the others, so its blocks do not count: {}; {IF_UNLIKE}",
                differences.join(", ")
            );
            directory.update(at, |machine| machine.state = MachineState::Failed { reason })?;
        }
    }
    Ok(())
}

/// Gives the shares of machines that failed to machines that are done, at most one to each. Returns
/// whether any was given.
///
/// # Errors
/// The change cannot be recorded.
pub fn hand_over(directory: &mut FleetDirectory, engine: &dyn Engine) -> Result<bool, StoreError> {
    let machines = &directory.fleet().machines;
    let mut able: Vec<Machine> = Vec::new();
    for machine in machines.iter().filter(|machine| machine.state == MachineState::Done) {
        // One machine measures one share at a time.
        if !able.iter().any(|other| (&other.via, &other.node) == (&machine.via, &machine.node)) {
            able.push(machine.clone());
        }
    }
    let is_open = |machine: &Machine| {
        machine.share.is_some()
            && machine.replaced_by.is_none()
            && matches!(machine.state, MachineState::Failed { .. })
    };
    let open: Vec<usize> = (0..machines.len()).filter(|at| is_open(&machines[*at])).collect();
    let pairs: Vec<(usize, Machine)> = open.into_iter().zip(able).collect();
    for (at, able) in &pairs {
        let machines = &directory.fleet().machines;
        let wanted = engine.name_of(able, machines.len());
        let taken = machines.iter().map(|machine| machine.name.as_str());
        let name = machine_names(taken.chain([wanted.as_str()])).pop().unwrap_or(wanted);
        directory.replace(*at, Machine::new(name, able.via.clone()))?;
    }
    Ok(!pairs.is_empty())
}

/// The number of shares that are done.
pub fn done(directory: &FleetDirectory) -> usize {
    let machines = &directory.fleet().machines;
    machines.iter().filter(|machine| machine.share.is_some() && machine.state == MachineState::Done).count()
}

#[cfg(test)]
mod tests {
    use super::super::slurm::Slurm;
    use super::super::ssh::Ssh;
    use super::*;
    use weigh_model::{Effort, Event, FinishReason, Timestamped};
    use weigh_store::RunDirectory;

    fn plan(effort: Effort) -> Plan {
        Plan::of("work", Vec::new(), Vec::new(), effort)
    }

    fn machines(names: &[&str]) -> Vec<Machine> {
        names.iter().map(|name| Machine::new((*name).into(), format!("ssh:host={name}"))).collect()
    }

    /// Makes a fleet whose blocks are shared out.
    fn shared(parent: &std::path::Path, names: &[&str]) -> FleetDirectory {
        let plan = plan(Effort::Fixed { blocks: 10 });
        let mut machines = machines(names);
        share_out(&plan, &mut machines).unwrap();
        FleetDirectory::create(&parent.join("f"), &plan, Fleet::new("fleet-1", machines)).unwrap()
    }

    /// Makes a complete run of the share of a machine.
    fn measured(directory: &mut FleetDirectory, at: usize, host: &HostFacts) {
        let plan = directory.plan_of(at).unwrap();
        let mut run = RunDirectory::create_at(&directory.run_path(at), &plan, host).unwrap();
        let event = Event::Finished { reason: FinishReason::Blocks, blocks_done: 5 };
        run.append_event(&Timestamped { at: "2026-11-21T05:00:00Z".into(), event }).unwrap();
        run.flush_events().unwrap();
        drop(run);
        directory.update(at, |machine| machine.state = MachineState::Done).unwrap();
    }

    fn failed(directory: &mut FleetDirectory, at: usize) {
        let state = MachineState::Failed { reason: "away".into() };
        directory.update(at, |machine| machine.state = state).unwrap();
    }

    fn host() -> HostFacts {
        HostFacts {
            cpu_model: "X".into(),
            kernel: "6.1".into(),
            memory_bytes: 8 << 30,
            ..HostFacts::default()
        }
    }

    #[test]
    fn shares_make_up_the_plan() {
        let whole = plan(Effort::Fixed { blocks: 10 });
        let shares: Vec<Plan> = (0..3).map(|number| whole.of_share(number, 3).unwrap()).collect();
        let blocks: Vec<u32> = shares.iter().map(|share| share.effort.most_blocks()).collect();
        assert_eq!(blocks, [4, 3, 3]);
        assert!(
            shares.iter().all(|share| share.whole().effort == whole.effort && share.whole().share.is_none())
        );
        assert!(shares[0].seed != shares[1].seed && shares[1].seed != shares[2].seed);
        assert_eq!(
            (whole.of_share(3, 3), whole.of_share(5, 6), shares[0].of_share(0, 1)),
            (None, None, None)
        );
        assert!(matches!(
            plan(Effort::Quick { blocks: 6 }).of_share(1, 2).unwrap().effort,
            Effort::Quick { blocks: 3 }
        ));
    }

    #[test]
    fn only_a_fixed_number_of_blocks_is_shared_out() {
        let error = |effort, count: usize| {
            share_out(&plan(effort), &mut machines(&["a", "b", "c"][..count])).unwrap_err().to_string()
        };
        let precision = Effort::Precision { minimum: 30, maximum: 60, step: 5, target: 0.01 };
        assert!(error(precision, 2).contains("fixed number of blocks"));
        assert!(error(Effort::Fixed { blocks: 5 }, 3).contains("5 blocks are too few for 3 machines"));
    }

    #[test]
    fn a_machine_that_is_not_like_the_others_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = shared(parent.path(), &["a", "b", "c"]);
        measured(&mut directory, 0, &host());
        measured(&mut directory, 1, &HostFacts { memory_bytes: (8 << 30) - (9 << 20), ..host() });
        measured(&mut directory, 2, &HostFacts { kernel: "6.2".into(), cpu_model: "Y".into(), ..host() });
        refuse_unlike(&mut directory).unwrap();
        let machines = &directory.fleet().machines;
        assert_eq!((&machines[0].state, &machines[1].state), (&MachineState::Done, &MachineState::Done));
        let MachineState::Failed { reason } = &machines[2].state else { panic!("{:?}", machines[2]) };
        for words in ["CPU model Y, not X as on a", "kernel 6.2, not 6.1 as on a"] {
            assert!(reason.contains(words), "{reason}");
        }
        assert_eq!(done(&directory), 2);
    }

    /// The share of a machine that failed goes to one that is done, at most one to each, and the
    /// machine that failed is not tried again.
    #[test]
    fn the_share_of_a_machine_that_failed_is_handed_over() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = shared(parent.path(), &["a", "b", "c"]);
        failed(&mut directory, 1);
        failed(&mut directory, 2);
        assert!(!hand_over(&mut directory, &Ssh).unwrap(), "nobody is there to measure them");
        measured(&mut directory, 0, &host());
        assert!(hand_over(&mut directory, &Ssh).unwrap());
        let machines = directory.fleet().machines.clone();
        assert_eq!(machines[1].replaced_by.as_deref(), Some("a-2"));
        let next = &machines[3];
        assert_eq!((next.name.as_str(), next.via.as_str(), next.share), ("a-2", "ssh:host=a", Some(1)));
        assert_eq!((machines.len(), machines[2].replaced_by.as_deref()), (4, None), "one at a time");
        measured(&mut directory, 3, &host());
        assert_eq!(directory.run(3).unwrap().unwrap().plan().share.unwrap().number, 1);
        assert!(hand_over(&mut directory, &Ssh).unwrap());
        assert_eq!(directory.fleet().machines[4].share, Some(2));
        measured(&mut directory, 4, &host());
        assert!(!hand_over(&mut directory, &Ssh).unwrap());
        assert_eq!((done(&directory), directory.fleet().shares()), (3, 3));
        drop(directory);
        assert_eq!(FleetDirectory::open(&parent.path().join("f")).unwrap().fleet().machines.len(), 5);
    }

    /// Slurm's tasks are found by their index.
    #[test]
    fn a_slurm_task_is_named_by_its_index() {
        let machine = Machine::new("task-0".into(), "slurm:partition=x".into());
        assert_eq!(Slurm.name_of(&machine, 3), "task-3");
        assert_eq!(Ssh.name_of(&Machine::new("a".into(), "ssh:host=a".into()), 3), "a");
    }
}
