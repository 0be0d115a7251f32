//! `weigh density`: a guest measured beside others.

use crate::cli::{CommandArgs, DensityArgs, WorkArgs};
use crate::error::Failure;
use crate::host::HostView;
use crate::request::{self, PlanRequest, commands, first_repeated};
use weigh_model::{
    EnvironmentSpec, HostFacts, Load, Neighbours, Plan, Shares, WorkloadPlan, neighbours,
    parse_environment_list,
};
use weigh_platforms as platforms;
use weigh_workloads::{LOADS, Library, load, with_neighbours};

/// Default number of blocks: each has a trial for every number of guests, load and share.
const BLOCKS: u32 = 6;
/// Default workload.
const WORKLOAD: &str = "spin";

/// Turns the arguments of `weigh density` into a request.
///
/// # Errors
/// Guests, neighbours, their environments or shares that are wrong or given twice.
pub fn request(args: DensityArgs) -> Result<PlanRequest, Failure> {
    let sweep = Sweep::of(&args)?;
    let beside = beside_specs(&args.beside)?;
    let args = with_defaults(args);
    Ok(PlanRequest::new(args.common.clone(), move |facts, host| {
        let library = request::library(&args.work.workload)?;
        let loader = request::loader::parse(&args.trial.loader)?;
        if !beside.is_empty() {
            // The names of environments may need answers of the host; bad input comes first.
            workloads(&args, &sweep, &library, facts)?;
        }
        let sweep = Sweep { beside: names(&beside, host)?, ..sweep.clone() };
        let workloads = |facts: &HostFacts| workloads(&args, &sweep, &library, facts);
        let plan = request::plan(&args.common, loader, facts, host, &workloads)?;
        require_hosts(&sweep.beside, &plan)?;
        Ok(Plan { name: format!("density-{}", plan.name), ..plan })
    }))
}

fn with_defaults(args: DensityArgs) -> DensityArgs {
    let WorkArgs { workloads, command, workload, .. } = &args.work;
    let names_none = workloads.is_empty() && command.is_empty() && workload.is_empty();
    let workloads = if names_none { vec![WORKLOAD.into()] } else { workloads.clone() };
    DensityArgs {
        common: args.common.with_default_blocks(BLOCKS),
        work: WorkArgs { workloads, ..args.work },
        ..args
    }
}

/// Reads the environments of the neighbours.
fn beside_specs(texts: &[String]) -> Result<Vec<EnvironmentSpec>, Failure> {
    let wrong = |error: weigh_model::SpecError| Failure::of_spec("--beside", &error);
    let mut specs = Vec::new();
    for text in texts {
        specs.extend(parse_environment_list(text).map_err(wrong)?);
    }
    for spec in &specs {
        platforms::resolve(spec).map_err(wrong)?;
    }
    refuse_repeated("--beside", &specs)?;
    Ok(specs)
}

/// Returns the names that the environments of the neighbours have in a plan.
fn names(specs: &[EnvironmentSpec], host: &mut dyn HostView) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for spec in specs {
        names.extend(request::make_explicit(spec, true, host)?.map(|(name, _)| name));
    }
    Ok(names)
}

/// Refuses environments of neighbours that the plan does not measure: only what is measured is known
/// to work, and compared with the baseline. Guests on another machine disturb nobody here.
fn require_hosts(beside: &[String], plan: &Plan) -> Result<(), Failure> {
    let is_measured = |name: &str| plan.environments.iter().any(|environment| environment.name == name);
    if let Some(other) = beside.iter().find(|name| !is_measured(name)) {
        return Err(Failure::input(format!("neighbours cannot be of `{other}`, which is not measured"))
            .hint("name it in --on, too: every environment of --beside is also measured"));
    }
    if beside.is_empty() {
        return Ok(());
    }
    match request::capabilities(&plan.environments)?.iter().find(|(_, can)| can.elsewhere) {
        Some((name, _)) => {
            Err(Failure::input(format!("`{name}` is on another machine: it has no neighbours here"))
                .hint("leave it out, or leave --beside out"))
        }
        None => Ok(()),
    }
}

/// The numbers of guests, loads of neighbours, their environments and shares that each workload is
/// measured with.
#[derive(Clone)]
struct Sweep {
    /// Numbers of guests, without 1, which is always measured.
    guests: Vec<u32>,
    loads: Vec<Load>,
    /// Names of the neighbours' environments; without any they are of the measured guest's own.
    beside: Vec<String>,
    shares: Vec<Shares>,
}

impl Sweep {
    fn of(args: &DensityArgs) -> Result<Self, Failure> {
        refuse_repeated("--guests", &args.guests)?;
        refuse_repeated("--neighbours", &args.neighbours)?;
        refuse_repeated("--shares", &args.shares)?;
        Ok(Self {
            guests: args.guests.iter().copied().filter(|guests| *guests > 1).collect(),
            loads: args.neighbours.iter().map(|word| known_load(word)).collect::<Result<_, _>>()?,
            beside: Vec::new(),
            shares: args.shares.iter().map(|word| known_shares(word)).collect::<Result<_, _>>()?,
        })
    }

    /// All combinations. The guest alone comes first, because the others are compared with it.
    fn all(&self) -> Vec<Neighbours> {
        let of = |guests, load: &Load, environment: &Option<String>, shares| Neighbours {
            guests,
            load: load.clone(),
            shares,
            environment: environment.clone(),
            stay: false,
        };
        let mut environments: Vec<Option<String>> = self.beside.iter().cloned().map(Some).collect();
        if environments.is_empty() {
            environments.push(None);
        }
        let mut all = vec![of(1, &Load::Idle, &None, Shares::Equal)];
        for &guests in &self.guests {
            for load in &self.loads {
                for environment in &environments {
                    all.extend(self.shares.iter().map(|shares| of(guests, load, environment, *shares)));
                }
            }
        }
        all
    }
}

fn refuse_repeated<T: PartialEq + ToString>(option: &str, given: &[T]) -> Result<(), Failure> {
    match first_repeated(given) {
        Some(twice) => Err(Failure::input(format!("`{}` is given twice in {option}", twice.to_string()))
            .hint("give each one once")),
        None => Ok(()),
    }
}

fn known_load(word: &str) -> Result<Load, Failure> {
    load(word).ok_or_else(|| {
        Failure::input(format!("neighbours cannot be `{word}`")).at_word("--neighbours", word, &LOADS)
    })
}

fn known_shares(word: &str) -> Result<Shares, Failure> {
    Shares::parse(word).ok_or_else(|| {
        Failure::input(format!("shares cannot be `{word}`")).at_word("--shares", word, &Shares::WORDS)
    })
}

fn workloads(
    args: &DensityArgs,
    sweep: &Sweep,
    library: &Library,
    facts: &HostFacts,
) -> Result<Vec<WorkloadPlan>, Failure> {
    let size = args.common.default_size();
    let commands = commands::workloads(&args.work.command, &CommandArgs::default(), false)?;
    let plans = request::workloads(&args.work, &args.trial, commands, (size, library), facts)?;
    let server = plans.iter().find(|plan| plan.staging.server.is_some());
    if let Some(server) = server.filter(|_| sweep.loads.contains(&Load::Same)) {
        return Err(Failure::input(format!(
            "`{}` is a server: neighbours that do the same would need load generators of their own",
            server.id
        ))
        .hint("leave `same` out; `--neighbours http` has neighbours that serve HTTP under load"));
    }
    let all = sweep.all();
    let with_each = |plan: WorkloadPlan| {
        let all = all.clone().into_iter();
        all.map(move |neighbours| beside(&plan, neighbours, args.work.deadline.is_some()))
    };
    plans.into_iter().flat_map(with_each).collect()
}

/// Returns a workload with neighbours. A deadline of the user's own stays the same for any number
/// of guests.
///
/// # Errors
/// A parameter of the user's own has the name of one that neighbours add, which would replace it.
pub(super) fn beside(
    plan: &WorkloadPlan,
    wanted: Neighbours,
    own_deadline: bool,
) -> Result<WorkloadPlan, Failure> {
    if let Some(taken) = neighbours::PARAMETERS.into_iter().find(|name| plan.params.contains_key(*name)) {
        let message = format!("`{}` has a parameter `{taken}`, as runs with neighbours have", plan.name);
        return Err(Failure::input(message).hint("give it another name in the command or the manifest"));
    }
    let with = with_neighbours(plan.clone(), wanted);
    Ok(if own_deadline { WorkloadPlan { deadline_s: plan.deadline_s, ..with } } else { with })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::host::NoHost;
    use clap::Parser;

    fn args(words: &[&str]) -> DensityArgs {
        let parsed = Cli::try_parse_from(["weigh", "density"].iter().chain(words)).unwrap();
        let Some(Command::Density(args)) = parsed.command else { panic!("{words:?}") };
        *args
    }

    fn ids(words: &[&str]) -> Result<Vec<String>, Failure> {
        let args = with_defaults(args(words));
        let (library, facts) = (request::library(&[])?, weigh_host::facts::host_facts());
        let plans = workloads(&args, &Sweep::of(&args)?, &library, &facts)?;
        Ok(plans.into_iter().map(|plan| plan.id).collect())
    }

    fn planned(words: &[&str]) -> Result<Plan, Failure> {
        request(args(words))?.plan(&mut NoHost::Anywhere)
    }

    #[test]
    fn the_guest_alone_is_always_measured() {
        let with = |n| format!("spin{{guests={n},neighbours=cpu}}");
        assert_eq!(ids(&[]).unwrap(), ["spin{guests=1}".to_string(), with(2), with(4), with(8)]);
        assert_eq!(ids(&["--guests", "3"]).unwrap(), ["spin{guests=1}".to_string(), with(3)]);
        let all =
            ids(&["--guests", "1,2", "--neighbours", "idle,same", "--shares", "equal,limits", "--", "true"]);
        let among = |what: &str| format!("true{{guests=2,neighbours={what}}}");
        assert_eq!(
            all.unwrap(),
            [
                "true{guests=1}".to_string(),
                among("idle"),
                among("idle,shares=limits"),
                among("same"),
                among("same,shares=limits")
            ]
        );
    }

    #[test]
    fn each_environment_of_the_neighbours_is_a_workload() {
        let words = ["noploop", "--on", "native,runc", "--beside", "native,runc", "--guests", "4"];
        let plan = planned(&words).unwrap();
        let ids: Vec<&str> = plan.workloads.iter().map(|workload| workload.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "noploop{guests=1}",
                "noploop{beside=native,guests=4,neighbours=cpu}",
                "noploop{beside=runc,guests=4,neighbours=cpu}",
            ]
        );
        let beside = |at: usize| plan.workloads[at].neighbours.as_ref().unwrap().environment.as_deref();
        assert_eq!((beside(0), beside(1), beside(2)), (None, Some("native"), Some("runc")));
        // Without --beside the plan names none, as plans of earlier formats.
        let own = planned(&["noploop", "--on", "native,runc", "--guests", "4"]).unwrap();
        let text = serde_json::to_string(&own.workloads).unwrap();
        assert!(!text.contains(r#""environment""#), "{text}");
    }

    #[test]
    fn neighbours_are_of_environments_that_are_measured_here() {
        let refused = |words: &[&str]| format!("{:?}", planned(words).unwrap_err());
        let other = refused(&["--on", "native,runc", "--beside", "runc,runsc"]);
        assert!(other.contains("neighbours cannot be of `runsc`, which is not measured"), "{other}");
        // The baseline is measured without being named.
        assert!(planned(&["--on", "runc", "--beside", "native"]).is_ok());
        assert!(refused(&["--on", "runc", "--beside", "runc,runc"]).contains("given twice in --beside"));
        assert!(refused(&["--on", "runc", "--beside", "runcc"]).contains("did you mean `runc`?"));
        let there = refused(&["--on", "native;ssh:host=192.0.2.7", "--beside", "native"]);
        assert!(there.contains("`ssh:host=192.0.2.7` is on another machine"), "{there}");
    }

    #[test]
    fn six_blocks_unless_asked_for_others() {
        let blocks = |words: &[&str]| with_defaults(args(words)).common.effort.blocks;
        assert_eq!((blocks(&[]), blocks(&["--blocks", "3"]), blocks(&["--quick"])), (Some(6), Some(3), None));
    }

    #[test]
    fn no_parameter_of_a_command_is_replaced() {
        for name in neighbours::PARAMETERS {
            let (given, word) = (format!("{name}=1"), format!("{{{name}}}"));
            let refused = format!("{:?}", ids(&["--param", &given, "--", "echo", &word]).unwrap_err());
            assert!(refused.contains(&format!("has a parameter `{name}`")), "{refused}");
        }
    }

    #[test]
    fn unknown_and_repeated_values_are_refused_with_those_that_exist() {
        let said = |words: &[&str]| format!("{:?}", ids(words).unwrap_err());
        assert!(said(&["--neighbours", "cpus"]).contains("did you mean `cpu`?"));
        assert!(said(&["--neighbours", "stream"]).contains("idle, cpu, io, http, same"));
        assert!(said(&["--shares", "weight"]).contains("did you mean `weights`?"));
        assert!(said(&["--guests", "2,2"]).contains("given twice in --guests"));
        assert!(said(&["--neighbours", "io,io"]).contains("given twice"));
        let server = said(&["redis", "--neighbours", "same"]);
        assert!(server.contains("is a server") && server.contains("--neighbours http"), "{server}");
        for guests in ["0", "4097", "some"] {
            assert!(Cli::try_parse_from(["weigh", "density", "--guests", guests]).is_err(), "{guests}");
        }
    }
}
