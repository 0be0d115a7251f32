//! One plan on many machines.
//!
//! ```text
//! plan --engine--> weigh on every machine --> run directories --> the directory of the fleet
//! ```
//!
//! An engine, one file each, has `weigh` itself run the plan on every machine. Each engine decides
//! how the program and the plan get there, how the run is started and stopped, and how the run
//! directory comes back. The result of that run is judged here.

mod connected;
mod kubernetes;
pub mod shares;
mod slurm;
mod ssh;
mod work;

pub use work::{MOST_UPDATES, Update, Work};

use crate::embedded;
use crate::error::{ExitKind, Failure};
use std::path::Path;
use weigh_model::{EnvironmentSpec, ImageSpec, Plan, SpecError, number_of, parse_environment_list};
use weigh_store::fleet::{Fleet, Machine, machine_names};

/// Runs a plan on many machines.
pub trait Engine: Sync {
    /// The first word of `--via`.
    fn name(&self) -> &'static str;

    /// Returns the machines that one environment string names, each with a suggested name and an
    /// environment string of its own.
    ///
    /// # Errors
    /// The word that is wrong, underlined.
    fn machines(&self, spec: &EnvironmentSpec) -> Result<Vec<(String, EnvironmentSpec)>, SpecError>;

    /// Whether a scheduler chooses the machines, so that one environment string stands for several.
    fn chooses_machines(&self) -> bool {
        false
    }

    /// Names a further run on a machine, at index `at` of the fleet. A number is added to make it
    /// unique.
    fn name_of(&self, machine: &Machine, _at: usize) -> String {
        machine.name.clone()
    }

    /// Describes, in sentences, what the engine changes elsewhere.
    fn changes(&self, fleet: &Fleet) -> Vec<String>;

    /// Has the machines that are not done measure until each has ended, and reports their states.
    /// The engine leaves nothing of the fleet elsewhere but what [`Machine::directory`] names.
    ///
    /// When [`Work::is_interrupted`] turns true, every run ends after its trial.
    ///
    /// # Errors
    /// Errors that concern all machines. An error of one machine is recorded in its state.
    fn carry_out(&self, work: &Work<'_>) -> Result<(), Failure>;
}

const ENGINES: [&dyn Engine; 3] = [&ssh::Ssh, &slurm::Slurm, &kubernetes::Kubernetes];

/// Finds the engine with a name.
fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.into_iter().find(|engine| engine.name() == name)
}

/// Returns the engine of the machines of a fleet.
///
/// # Errors
/// No engine, or more than one, has the machines.
pub fn engine_of(fleet: &Fleet) -> Result<&'static dyn Engine, Failure> {
    let name = |machine: &Machine| machine.via.split(':').next().unwrap_or_default().to_string();
    let mut names: Vec<String> = fleet.machines.iter().map(name).collect();
    names.dedup();
    match &names[..] {
        [name] => find(name).ok_or_else(|| unknown(name)),
        names => Err(Failure::input(format!("a fleet has one engine, not `{}`", names.join("` and `")))
            .hint("give each engine a fleet of its own; `weigh pool` takes runs of several fleets")),
    }
}

fn unknown(name: &str) -> Failure {
    Failure::input(format!("there is no engine `{name}`")).at_word("--via", name, &ENGINES.map(Engine::name))
}

/// Returns the machines that `--via` names.
///
/// # Errors
/// A word is wrong (underlined); a machine is named twice.
pub fn machines(texts: &[String]) -> Result<Vec<Machine>, Failure> {
    let of_spec = |error: SpecError| Failure::of_spec("--via", &error);
    let mut found: Vec<(String, EnvironmentSpec)> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    let mut once = |spec: &EnvironmentSpec| {
        let text = spec.to_string();
        if known.contains(&text) {
            return Err(Failure::input(format!("`{text}` is named twice"))
                .at("--via", &text, 0..text.len())
                .hint("name every machine once: it runs one thing at a time"));
        }
        known.push(text);
        Ok(())
    };
    for text in texts {
        for spec in parse_environment_list(text).map_err(of_spec)? {
            let engine = find(&spec.platform).ok_or_else(|| unknown(&spec.platform))?;
            let named = engine.machines(&spec).map_err(of_spec)?;
            match engine.chooses_machines() {
                true => once(&spec)?,
                false => named.iter().try_for_each(|(_, own)| once(own))?,
            }
            found.extend(named);
        }
    }
    let names = machine_names(found.iter().map(|(name, _)| name.as_str()));
    let machines = names.into_iter().zip(&found).map(|(name, (_, via))| Machine::new(name, via.to_string()));
    let machines: Vec<Machine> = machines.collect();
    if machines.is_empty() {
        return Err(Failure::input("`--via` names no machine").hint("as in --via 'ssh:host=a;ssh:host=b'"));
    }
    Ok(machines)
}

/// Returns the plan as every machine gets it, without what only this host has.
///
/// # Errors
/// The plan cannot be carried out on another machine.
pub fn portable(mut plan: Plan) -> Result<Plan, Failure> {
    if let ImageSpec::Path(path) = &plan.guest.image {
        let message = format!("the image {} is on this host alone", path.display());
        return Err(Failure::input(message)
            .hint("give --image debian or --image oci:REF, which `weigh image build` gets on each machine"));
    }
    if plan.loader.is_some() {
        return Err(Failure::input("the machines of a fleet cannot share a load generator")
            .hint("leave --loader out: each machine loads its own servers"));
    }
    if plan.gate.is_some() {
        return Err(Failure::input("a gate of two builds judges one run, and this plan is for a fleet")
            .hint("run `weigh gate` on one machine, or plan the comparison with `weigh run`"));
    }
    plan.guest.working_directory = None;
    Ok(plan)
}

/// Refuses to resume a fleet with another build, whose machines would not measure the same.
///
/// # Errors
/// Another build of weigh began the fleet.
pub fn check_build(plan: &Plan, fleet: &Fleet) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if fleet.tool_version == version && plan.digests == embedded::digests() {
        return Ok(());
    }
    let began = &fleet.tool_version;
    let which = if began == version { "another build of it".into() } else { format!("weigh {began}") };
    Err(Failure::input(format!("this is weigh {version}, and {which} began the fleet"))
        .hint("continue with the program that began it, or start a new fleet"))
}

/// Returns how the fleet ended, for the exit code.
///
/// # Errors
/// Not every machine is done.
pub fn verdict(fleet: &Fleet, path: &Path, interrupted: bool) -> Result<(), Failure> {
    use weigh_store::fleet::MachineState::{Done, Failed};
    let count = |is: fn(&Machine) -> bool| fleet.machines.iter().filter(|machine| is(machine)).count();
    let is_replaced = |machine: &Machine| machine.replaced_by.is_some();
    let all = fleet.machines.iter().filter(|machine| !is_replaced(machine)).count();
    let done = count(|machine| machine.state == Done);
    let failed = count(|machine| matches!(machine.state, Failed { .. }) && machine.replaced_by.is_none());
    let resume = format!("`weigh resume {}` continues it", path.display());
    if done == all {
        return Ok(());
    }
    let kind = if done == 0 { ExitKind::NothingMeasured } else { ExitKind::Failed };
    let message = match interrupted {
        true => format!("the fleet was interrupted: {done} of {all} machines are done"),
        false if failed == 0 => format!("{} of {all} machines did not finish", all - done),
        false => format!("{failed} of {} failed", number_of(all, "machine")),
    };
    Err(Failure::new(kind, message).hint(resume))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Effort, GateLimits, GuestPlan};
    use weigh_store::fleet::MachineState;

    fn named(texts: &[&str]) -> Result<Vec<Machine>, Failure> {
        machines(&texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn names(texts: &[&str]) -> Vec<String> {
        named(texts).unwrap().into_iter().map(|machine| machine.name).collect()
    }

    #[test]
    fn machines_have_names_of_their_own() {
        assert_eq!(
            names(&["ssh:host=root@a;ssh:host=b,label=big", "ssh:host=a,port=2222"]),
            ["a", "big", "a-2"]
        );
        assert_eq!(names(&["slurm:nodes=3,partition=x"]), ["task-0", "task-1", "task-2"]);
        assert_eq!(names(&["kubernetes:context=lab,nodes=n1+n2.lan"]), ["n1", "n2.lan"]);
        let via = &named(&["slurm:nodes=1,partition=x"]).unwrap()[0].via;
        assert_eq!(via, "slurm:partition=x", "how many there are is not how one is reached");
    }

    #[test]
    fn invalid_arguments_of_via_are_refused() {
        for (text, words) in [
            ("shs:host=a", "no engine `shs`"),
            ("ssh", "needs a machine"),
            ("ssh:host=a,by=probe", "runs weigh itself"),
            ("ssh:host=a,prot=1", "no key `prot`"),
            ("ssh:host=a;ssh:host=a", "named twice"),
            ("kubernetes:context=lab,nodes=n1+n2+n1", "nodes=n1` is named twice"),
            (
                "kubernetes:context=lab,nodes=n1;kubernetes:context=lab,nodes=n2+n1",
                "nodes=n1` is named twice",
            ),
            ("slurm:nodes=1;slurm:nodes=1", "named twice"),
            ("slurm", "how many"),
            ("slurm:nodes=0", "nodes"),
            ("slurm:nodes=2,exclusive=maybe", "exclusive"),
            ("slurm:nodes=2,partion=x", "partion"),
            ("slurm:nodes=2,partition=-x", "partition"),
            ("kubernetes:context=lab,node=n1", "no key `node`"),
            ("kubernetes:context=lab,nodes=n1+", "does not name nodes"),
            ("kubernetes:nodes=n1,selector=a=b", "exclude each other"),
            (";", "names no machine"),
        ] {
            let error = named(&[text]).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let fleet = |texts: &[&str]| Fleet::new("", named(texts).unwrap());
        assert!(engine_of(&fleet(&["ssh:host=a"])).is_ok());
        let error = engine_of(&fleet(&["ssh:host=a", "slurm:nodes=1"])).err().unwrap().to_string();
        assert!(error.contains("`ssh` and `slurm`"), "{error}");
    }

    #[test]
    fn plans_for_a_fleet_drop_or_refuse_paths_of_this_host() {
        let plan = |image| Plan {
            guest: GuestPlan { image, working_directory: Some("/home/me".into()), ..GuestPlan::default() },
            ..Plan::of("work", Vec::new(), Vec::new(), Effort::Quick { blocks: 6 })
        };
        assert_eq!(portable(plan(ImageSpec::Host)).unwrap().guest.working_directory, None);
        let error = portable(plan(ImageSpec::Path("/root/tree".into()))).unwrap_err().to_string();
        assert!(error.contains("/root/tree"), "{error}");
        let loader = Some(EnvironmentSpec::parse("ssh:host=x").unwrap());
        assert!(portable(Plan { loader, ..plan(ImageSpec::Host) }).is_err());
        // Machines that find a regression would end with its exit code, and be left out.
        let gate = Some(GateLimits::all(0.03));
        let error = portable(Plan { gate, ..plan(ImageSpec::Host) }).unwrap_err().to_string();
        assert!(error.contains("a gate of two builds judges one run"), "{error}");
    }

    #[test]
    fn another_build_goes_on_with_no_fleet() {
        let plan = Plan {
            digests: embedded::digests(),
            ..Plan::of("work", Vec::new(), Vec::new(), Effort::Quick { blocks: 6 })
        };
        let fleet = Fleet::new("", Vec::new());
        assert!(check_build(&plan, &fleet).is_ok());
        let older = Fleet { tool_version: "0.0.1".into(), ..fleet.clone() };
        assert!(check_build(&plan, &older).unwrap_err().to_string().contains("weigh 0.0.1 began"));
        let other = Plan { digests: [("probe".to_string(), "0".to_string())].into(), ..plan };
        assert!(check_build(&other, &fleet).unwrap_err().to_string().contains("another build"));
    }

    #[test]
    fn a_machine_that_is_not_done_is_a_failure() {
        let machine = |state: &MachineState| Machine {
            state: state.clone(),
            ..Machine::new("a".into(), "ssh:host=a".into())
        };
        let fleet = |states: &[MachineState]| Fleet::new("", states.iter().map(machine).collect());
        let failed = || MachineState::Failed { reason: "away".into() };
        let waiting = || MachineState::Waiting { reason: None };
        let code = |states: &[MachineState], interrupted| {
            verdict(&fleet(states), Path::new("f"), interrupted)
                .map_or_else(|failure| failure.exit_code(), |()| 0)
        };
        assert_eq!(code(&[MachineState::Done, MachineState::Done], false), 0);
        assert_eq!(code(&[MachineState::Done, failed()], false), 1);
        assert_eq!(code(&[failed(), failed()], false), 4);
        assert_eq!(code(&[MachineState::Done, waiting()], true), 1);
        assert_eq!(code(&[waiting()], true), 4);
        let text = verdict(&fleet(&[MachineState::Done, failed()]), Path::new("f"), false).unwrap_err();
        assert_eq!(text.to_string(), "1 of 2 machines failed");
    }
}
