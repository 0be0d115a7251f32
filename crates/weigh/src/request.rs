//! Makes a plan from the command line.

mod choice;
pub mod commands;
mod environments;
mod file;
mod gate_file;
pub mod loader;
mod workloads;

use crate::cli::{MeasureArgs, PriceArgs};
use crate::embedded;
use crate::error::{ExitKind, Failure};
use crate::host::HostView;
use crate::placement::Placement;
use crate::prices::Prices;
use environments::environments;
use weigh_model::{
    Effort, GuestPlan, HostFacts, ImageSpec, Load, Looks, NoiseLimits, PARITY_KEYS, Plan, SliceChoice,
    WorkloadPlan, check_parity_word, did_you_mean, parse_bytes, parse_cpu_list, parse_duration,
};
use weigh_platforms::loader::RemoteMachine;

pub use environments::{capabilities, make_explicit, with_control, with_label};
pub use file::{check_host, read_plan};
pub use gate_file::{FILE as GATE_FILE, GateFile};
pub use workloads::{first_repeated, library, measure_cold, workloads};

/// Blocks of a quick run (method specification, "Effort").
const QUICK_BLOCKS: u32 = 6;
/// Time budget of a quick run whose environments the user does not name, seconds. With planning and
/// the report, such a run ends within three minutes.
const QUICK_BUDGET_S: f64 = 160.0;
/// The fewest blocks, the most blocks and the step of a run that stops on precision (method
/// specification, "Effort").
const PRECISION_BLOCKS: (u32, u32, u32) = (30, 60, 5);
/// Default half-width at which a run that stops on precision ends, per cent.
const PRECISION_PERCENT: f64 = 1.0;
/// The smallest memory limit, bytes.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;

/// A function that makes a plan with the answers of a host.
type Planner = dyn Fn(&HostFacts, &mut dyn HostView) -> Result<Plan, Failure>;

/// A command that measures, read but not planned yet. Its holder decides which host to plan for and
/// what to do with the plan.
pub struct PlanRequest {
    /// The options that every measuring command has.
    pub common: MeasureArgs,
    /// Whether the user named the environments: those are measured as asked or not at all.
    pub names_environments: bool,
    /// This host.
    pub facts: HostFacts,
    /// The words of the command that the plan records, unless the plan is read from a file and has
    /// its own record.
    recorded: Option<Vec<String>>,
    /// Whether the run may be group-sequential.
    looks: bool,
    /// What an hour of the host costs.
    prices: PriceArgs,
    planner: Box<Planner>,
}

impl PlanRequest {
    /// Makes a request whose plan `planner` makes.
    pub fn new(
        common: MeasureArgs,
        planner: impl Fn(&HostFacts, &mut dyn HostView) -> Result<Plan, Failure> + 'static,
    ) -> Self {
        Self {
            names_environments: common.names_environments(),
            common,
            facts: weigh_host::facts::host_facts(),
            recorded: None,
            looks: true,
            prices: PriceArgs::default(),
            planner: Box::new(planner),
        }
    }

    /// Sets the words that the plan records.
    pub fn recording(self, recorded: Option<Vec<String>>) -> Self {
        Self { recorded, ..self }
    }

    /// Turns looks off: a run that would be group-sequential stops on precision.
    pub fn without_looks(self) -> Self {
        Self { looks: false, ..self }
    }

    /// Marks the environments as named, because a plan file names them.
    pub fn of_plan_file(self) -> Self {
        Self { names_environments: true, ..self }
    }

    /// Sets what an hour of the host costs, for the report.
    pub fn pricing(self, prices: PriceArgs) -> Self {
        Self { prices, ..self }
    }

    /// Reads the prices of the host, before anything is asked of it.
    ///
    /// # Errors
    /// Those of [`Prices::of_host`].
    pub fn prices(&self) -> Result<Prices, Failure> {
        Prices::of_host(&self.prices)
    }

    /// Makes the plan.
    ///
    /// # Errors
    /// Bad input, with its place and remedy; the host cannot be used.
    pub fn plan(&self, host: &mut dyn HostView) -> Result<Plan, Failure> {
        let plan = (self.planner)(&self.facts, host)?;
        let effort = match plan.effort {
            Effort::Sequential { target, .. } if !self.looks => precision(target),
            effort => effort,
        };
        Ok(Plan { effort, command: plan.command.or_else(|| self.recorded.clone()), ..plan })
    }

    /// The plan, with what its run may leave out, which a resumed run has to know.
    pub fn choosing(&self, plan: Plan) -> Plan {
        let chooses = !self.names_environments;
        Plan {
            leave_out_unequal: plan.leave_out_unequal || chooses,
            fit_budget: plan.fit_budget || (chooses && self.common.fits_budget()),
            ..plan
        }
    }
}

/// Makes the plan of these workloads. `workloads` is called again once the CPUs and the memory of
/// guests are known, because default parameters depend on them.
///
/// # Errors
/// Bad input, with its place and remedy; the host cannot be used.
pub fn plan(
    args: &MeasureArgs,
    loader: Option<RemoteMachine>,
    facts: &HostFacts,
    host: &mut dyn HostView,
    workloads: &dyn Fn(&HostFacts) -> Result<Vec<WorkloadPlan>, Failure>,
) -> Result<Plan, Failure> {
    // Check everything that needs no answer of the host before the first question.
    let first = workloads(facts)?;
    let serves = first.iter().any(|workload| workload.staging.server.is_some());
    let (allow_unequal, noise, budget_s) = (allow_unequal(args)?, noise(args)?, budget(args)?);
    let cpus = args.cpus.as_deref().map(|list| cpus(list, facts)).transpose()?.unwrap_or_default();
    loader::check(loader.as_ref(), serves)?;
    // The clients of serving neighbours always run on this host.
    let has_serving_neighbours = |workload: &WorkloadPlan| {
        workload.neighbours.as_ref().is_some_and(|all| matches!(all.load, Load::Serve { .. }))
    };
    let loads_here = (serves && loader.is_none()) || first.iter().any(has_serving_neighbours);
    if loads_here && facts.cpus.len() > 1 && facts.cpus.iter().all(|cpu| cpus.contains(cpu)) {
        return Err(Failure::input("a server is measured, and `--cpus` leaves its load generator none")
            .hint("name fewer CPUs for the guests, or leave --cpus out"));
    }
    let image = ImageSpec::from(args.image.clone());
    host.check_image(&image).map_err(|error| Failure::of_error(ExitKind::Input, &error))?;
    let memory_bytes = args.memory.as_deref().map(memory).transpose()?;
    let (environments, baseline) = environments(args, &image, host)?;
    let loader = loader.map(|machine| loader::make_explicit(&machine, host)).transpose()?;
    let cores = loads_here.then(|| weigh_host::facts::cores(&facts.cpus));
    let capabilities = capabilities(&environments)?;
    let placement = Placement::new(&capabilities, cpus, memory_bytes, facts, cores.as_deref());
    for note in &placement.notes {
        host.note(note);
    }
    let workloads = workloads(&placement.of_host(facts))?;
    Ok(Plan {
        seed: args.effort.seed.unwrap_or_else(random_seed),
        baseline,
        budget_s,
        guest: GuestPlan {
            working_directory: (image == ImageSpec::Host).then(std::env::current_dir).and_then(Result::ok),
            image,
            cpus: placement.cpus,
            memory_bytes: placement.memory_bytes,
            reuse: false,
        },
        margin: args.margin / 100.0,
        allow_unequal,
        digests: embedded::digests(),
        noise,
        loader,
        ..Plan::of(name(&workloads), environments, workloads, effort(args))
    })
}

fn effort(args: &MeasureArgs) -> Effort {
    match (args.quick, args.effort.blocks) {
        (true, _) => Effort::Quick { blocks: QUICK_BLOCKS },
        (_, Some(blocks)) => Effort::Fixed { blocks },
        _ => precision(args.effort.precision.unwrap_or(PRECISION_PERCENT) / 100.0),
    }
}

fn precision(target: f64) -> Effort {
    let (minimum, maximum, step) = PRECISION_BLOCKS;
    Effort::Precision { minimum, maximum, step, target }
}

/// Returns the plan with the energy of every trial, which is then whole: the counters are those of the
/// host, and slices share its time.
///
/// # Errors
/// An environment is on another host.
pub fn with_energy(plan: Plan) -> Result<Plan, Failure> {
    if let Some((name, _)) = capabilities(&plan.environments)?.iter().find(|(_, can)| can.elsewhere) {
        return Err(Failure::input(format!("`--energy` measures this host, and `{name}` is on another"))
            .hint("leave one of them out, or run weigh with --energy there"));
    }
    Ok(Plan { energy: true, slices: SliceChoice::Off, ..plan })
}

/// Returns the plan of `weigh run`. It is group-sequential if the user sets neither its length nor
/// its precision, and if it gives verdicts without a gate (method specification, "Effort").
pub fn with_looks(plan: Plan, args: &MeasureArgs) -> Plan {
    let Effort::Precision { target, .. } = plan.effort else { return plan };
    let is_plain = args.effort.precision.is_none() && args.gate.gate.is_none() && !plan.guest.reuse;
    // The baseline and its control are compared only with each other.
    let arms = plan.environments.len().saturating_sub(1 + usize::from(plan.control.is_some()));
    if !is_plain || arms == 0 {
        return plan;
    }
    Plan { effort: Effort::Sequential { looks: Looks::STANDARD, target }, ..plan }
}

/// Returns the shares of noise above which a unit gets a warning, and above which it is void.
fn noise(args: &MeasureArgs) -> Result<NoiseLimits, Failure> {
    if args.warn_above > args.void_above && !args.effort.no_void {
        let (warn, void) = (args.warn_above, args.void_above);
        return Err(Failure::input(format!(
            "a warning above {warn} % never comes, because a unit is void above {void} %"
        ))
        .hint("give --warn-above less than --void-above, or --no-void"));
    }
    Ok(NoiseLimits {
        warn_share: args.warn_above / 100.0,
        void_share: args.void_above / 100.0,
        // A quick run has no time to wait for a quiet moment: its rows show what was noisy.
        voiding: !args.effort.no_void && !args.quick,
        ..NoiseLimits::default()
    })
}

/// The time limit of the run, seconds.
fn budget(args: &MeasureArgs) -> Result<Option<f64>, Failure> {
    let parsed = args.effort.budget.as_deref().map(parse_duration).transpose();
    let budget = parsed.map_err(|error| Failure::of_size("--budget", &error))?;
    let usual_s = args.fits_budget().then_some(QUICK_BUDGET_S);
    Ok(budget.map(|budget| budget.as_secs_f64()).or(usual_s))
}

fn memory(text: &str) -> Result<u64, Failure> {
    let bytes = parse_bytes(text).map_err(|error| Failure::of_size("--memory", &error))?;
    if bytes < LEAST_MEMORY_BYTES {
        return Err(Failure::input(format!("a memory limit of `{text}` is too small for any guest"))
            .hint("give at least 16MiB, as in --memory 2GiB"));
    }
    Ok(bytes)
}

fn cpus(list: &str, facts: &HostFacts) -> Result<Vec<u32>, Failure> {
    let cpus = parse_cpu_list(list).map_err(|error| Failure::of_size("--cpus", &error))?;
    match cpus.iter().find(|cpu| !facts.cpus.contains(cpu)) {
        Some(cpu) => Err(Failure::new(
            ExitKind::NoSuchCpu,
            format!("CPU {cpu} of `--cpus {list}` is not one that weigh may use"),
        )
        .hint(format!("usable CPUs: {}", join(facts.cpus.iter())))),
        None => Ok(cpus),
    }
}

/// Returns the parity keys that may differ, without repetitions.
fn allow_unequal(args: &MeasureArgs) -> Result<Vec<String>, Failure> {
    let mut words: Vec<String> = Vec::new();
    for word in &args.allow_unequal {
        check_parity_word(word).map_err(|nearest| {
            let keys = || join(PARITY_KEYS.iter().map(|(key, _)| key.trim_end_matches(':')));
            let hint = did_you_mean(nearest, || format!("the keys are {}", keys()));
            Failure::input(format!("guests are not compared by `{word}`"))
                .at("--allow-unequal", word, 0..word.len())
                .hint(hint)
        })?;
        if !words.contains(word) {
            words.push(word.clone());
        }
    }
    Ok(words)
}

fn name(workloads: &[WorkloadPlan]) -> String {
    let mut names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    names.dedup();
    let shown: Vec<String> = names
        .iter()
        .take(3)
        .map(|name| name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(24).collect())
        .collect();
    let more = if names.len() > 3 { format!("-and-{}-more", names.len() - 3) } else { String::new() };
    format!("{}{more}", shown.join("-"))
}

/// Returns a random seed that is short enough to type again and exact in every JSON reader.
pub fn random_seed() -> u64 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u64::from(u32::from_le_bytes(bytes)),
        _ => weigh_host::clock::monotonic_ns() & 0xFFFF_FFFF,
    }
}

/// Joins items into a list for people.
fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommandLine;
    use crate::host::NoHost;

    /// Returns the plan of a command line, and whether it leaves out what does not fit its time.
    fn planned(line: &str) -> (Plan, bool) {
        let request = request(line);
        (request.plan(&mut NoHost::Anywhere).unwrap(), request.common.fits_budget())
    }

    fn request(line: &str) -> PlanRequest {
        let line = CommandLine::parse(line.split(' ')).unwrap();
        crate::commands::request(line.cli.command.unwrap(), line.recorded).unwrap()
    }

    #[test]
    fn energy_is_that_of_whole_trials_on_this_host() {
        let (plan, _) = planned("weigh run noploop --on native,runc --energy");
        assert!(plan.energy && plan.slices.is_off());
        assert!(!planned("weigh run noploop --on native,runc").0.energy);
        let elsewhere = request("weigh run noploop --on native;ssh:host=192.0.2.7 --energy");
        let refused = elsewhere.plan(&mut NoHost::Anywhere).unwrap_err().to_string();
        assert!(refused.contains("`ssh:host=192.0.2.7` is on another"), "{refused}");
    }

    #[test]
    fn a_plan_says_what_its_run_may_leave_out() {
        for (line, unequal, budget) in [
            ("weigh run noploop --on native,runc", false, false),
            ("weigh run noploop --on native,runc --quick", false, false),
            ("weigh run noploop", true, false),
            ("weigh run noploop --quick", true, true),
            ("weigh run noploop --on all --quick", true, false),
        ] {
            let request = request(line);
            let plan = request.choosing(request.plan(&mut NoHost::Anywhere).unwrap());
            assert_eq!((plan.leave_out_unequal, plan.fit_budget), (unequal, budget), "{line}");
            // Whoever repeats the plan gets the same.
            let again = request.of_plan_file().choosing(plan.clone());
            assert_eq!(again, plan, "{line}");
        }
    }

    #[test]
    fn a_quick_run_that_chooses_for_the_user_has_a_budget() {
        let budget = |line: &str| {
            let (plan, fits) = planned(line);
            (plan.budget_s, fits)
        };
        assert_eq!(budget("weigh run --quick"), (Some(QUICK_BUDGET_S), true));
        assert_eq!(budget("weigh run --quick --budget 30s"), (Some(30.0), true));
        assert_eq!(budget("weigh run --quick --on native,runc"), (None, false));
        assert_eq!(budget("weigh run --quick --on all"), (None, false));
        assert_eq!(budget("weigh run --blocks 6"), (None, false));
    }

    #[test]
    fn only_a_quick_run_and_no_void_turn_voiding_off() {
        let voiding = |line: &str| planned(line).0.noise.voiding;
        assert!(voiding("weigh run --on native,runc --blocks 6"));
        assert!(!voiding("weigh run --on native,runc --blocks 6 --no-void"));
        assert!(!voiding("weigh run --on native,runc --quick"));
    }
}
