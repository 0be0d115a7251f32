//! The command that a plan stands for, without what `weigh study` adds: environments, baseline,
//! size, directory, seed and effort.

use crate::commands::run::{Carrier, Planner};
use crate::error::Failure;
use crate::request::{self, Surroundings};
use crate::study::measure::{parse, quoted};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_model::neighbours::{GUESTS, NEIGHBOURS, SHARES};
use weigh_model::{
    Caches, Effort, EnvironmentSpec, HostFacts, ImageSpec, NoiseLimits, Plan, Started, WorkloadPlan,
};
use weigh_platforms::loader::Elsewhere;
use weigh_platforms::{Platform, PlatformError};
use weigh_stats::Options;
use weigh_studies::{Command, Measure};
use weigh_workloads::{CommandOptions, Library, command_workload};

/// The command of a plan. That it means the same is proven: it is planned again and compared.
///
/// # Errors
/// What no command line says: a plan that was edited, workloads of manifests that are not given.
pub fn measure(plan: &Plan, manifests: &[PathBuf]) -> Result<Measure, Failure> {
    if plan.environments.iter().any(|environment| !environment.variables.is_empty()) {
        return Err(untellable("its environments have variables of their own, as those of `weigh selftest`"));
    }
    let library = request::library(manifests)?;
    let command = command(plan);
    let mut words = Words { before: common(plan, manifests), behind: Vec::new() };
    words.own(plan, command, &library)?;
    // What is not the default is known by what comes out without it.
    if let Some(made) = planned(plan, command, &words)? {
        words.before.extend(differences(plan, &made));
        if let Some(made) = planned(plan, command, &words)? {
            prove(plan, &made)?;
        }
    }
    Ok(Measure {
        command,
        arguments: words.all(),
        quick: Vec::new(),
        standard: Vec::new(),
        paper: Vec::new(),
        needs: None,
    })
}

/// Words before and behind `--`.
struct Words {
    before: Vec<String>,
    behind: Vec<String>,
}

impl Words {
    fn all(&self) -> Vec<String> {
        let mut all = self.before.clone();
        if !self.behind.is_empty() {
            all.push("--".into());
            all.extend(self.behind.iter().cloned());
        }
        all
    }

    fn add(&mut self, option: &str, value: impl ToString) {
        self.before.extend([option.to_string(), value.to_string()]);
    }

    /// What the command itself takes.
    fn own(&mut self, plan: &Plan, command: Command, library: &Library) -> Result<(), Failure> {
        match command {
            Command::Start => self.start(plan),
            Command::Footprint => self.footprint(plan),
            Command::Run | Command::Density | Command::Soak => self.workloads(plan, library)?,
        }
        match command {
            Command::Density => self.density(plan),
            Command::Soak => self.soak(plan),
            Command::Run if plan.guest.reuse => self.before.push("--reuse".into()),
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, plan: &Plan) {
        let (mut guests, mut lanes) = (Vec::new(), Vec::new());
        let starts = plan.workloads.iter().filter_map(|workload| workload.start);
        for start in starts.clone() {
            match start.what {
                Started::One => guests.push(1),
                Started::AtOnce { guests: several } => guests.push(several),
                Started::Churn { concurrency, .. } => lanes.push(concurrency),
                Started::Restored => self.before.push("--restore".into()),
                Started::Footprint { .. } => {}
            }
        }
        if guests != [1] {
            self.add("--guests", list(&guests));
        }
        if !lanes.is_empty() {
            self.before.push(format!("--rate={}", list(&lanes)));
        }
        if starts.clone().any(|start| start.caches == Caches::Cold) {
            self.add("--caches", Caches::Cold);
        }
        if plan.workloads.iter().any(|workload| workload.start.is_none()) {
            self.before.push("--spawn".into());
        }
    }

    fn footprint(&mut self, plan: &Plan) {
        let (mut numbers, mut scans) = (Vec::new(), false);
        for start in plan.workloads.iter().filter_map(|workload| workload.start) {
            if let Started::Footprint { guests, duplicates } = start.what {
                numbers.push(guests);
                scans |= duplicates;
            }
        }
        self.add("--guests", list(&numbers));
        if scans {
            self.before.push("--duplicates".into());
        }
    }

    fn density(&mut self, plan: &Plan) {
        let among: Vec<_> =
            plan.workloads.iter().filter_map(|workload| workload.neighbours.as_ref()).collect();
        let beside = || among.iter().filter(|neighbours| neighbours.guests > 1);
        self.add("--guests", list(&distinct(among.iter().map(|neighbours| neighbours.guests))));
        if beside().next().is_some() {
            self.add(
                "--neighbours",
                list(&distinct(beside().map(|neighbours| neighbours.load.kind().to_string()))),
            );
            self.add("--shares", list(&distinct(beside().map(|neighbours| neighbours.shares.to_string()))));
        }
    }

    fn soak(&mut self, plan: &Plan) {
        if let Effort::Lasting { seconds } = plan.effort {
            self.add("--for", format!("{seconds}s"));
        }
        let among = plan.workloads.iter().find_map(|workload| workload.neighbours.as_ref());
        self.add("--guests", among.map_or(1, |neighbours| neighbours.guests));
        if let Some(neighbours) = among {
            self.add("--neighbours", neighbours.load.kind().to_string());
        }
    }

    /// Names of workloads with their parameters, and a command.
    fn workloads(&mut self, plan: &Plan, library: &Library) -> Result<(), Failure> {
        let names = distinct(plan.workloads.iter().map(|workload| workload.name.as_str()));
        let mut named = Vec::new();
        for name in names.iter().copied() {
            let first = plan.workloads.iter().find(|workload| workload.name == name).expect("it is named");
            if is_command(first) {
                self.behind.clone_from(&first.command);
            } else if library.get(name).is_ok() {
                named.push(name.to_string());
                self.params(plan, name, names.len() > 1);
            } else {
                return Err(Failure::input(format!("weigh knows no workload `{name}`")).hint(
                    "give its manifest by --workload FILE, or keep it in ~/.config/weighbridge/workloads",
                ));
            }
        }
        self.before.splice(0..0, named);
        Ok(())
    }

    /// The parameters that were set or swept; with the workload's name where several may have them.
    fn params(&mut self, plan: &Plan, name: &str, several: bool) {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for workload in plan.workloads.iter().filter(|workload| workload.name == name) {
            for (key, value) in own_params(workload) {
                let known = values.entry(key).or_default();
                if !known.contains(&value) {
                    known.push(value);
                }
            }
        }
        let of = if several { format!("{name}.") } else { String::new() };
        for (key, values) in values {
            self.add("--param", format!("{of}{key}={}", values.join(",")));
        }
    }
}

/// Parameters of the workload itself, without those of neighbours.
fn own_params(workload: &WorkloadPlan) -> impl Iterator<Item = (&str, &str)> {
    let of_neighbours =
        |key: &str| workload.neighbours.is_some() && [GUESTS, NEIGHBOURS, SHARES].contains(&key);
    let params = workload.params.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    params.filter(move |(key, _)| !of_neighbours(key))
}

/// The command that made the plan.
fn command(plan: &Plan) -> Command {
    let starts = |what: fn(Started) -> bool| {
        plan.workloads.iter().any(|workload| workload.start.is_some_and(|start| what(start.what)))
    };
    if matches!(plan.effort, Effort::Lasting { .. }) {
        Command::Soak
    } else if starts(|what| matches!(what, Started::Footprint { .. })) {
        Command::Footprint
    } else if starts(|_| true) {
        Command::Start
    } else if plan.workloads.iter().any(|workload| workload.neighbours.is_some()) {
        Command::Density
    } else {
        Command::Run
    }
}

/// Whether it is a command of the user's, and no manifest.
fn is_command(workload: &WorkloadPlan) -> bool {
    if workload.command.is_empty() {
        return false;
    }
    let made = command_workload(&workload.command, &CommandOptions::default());
    let from = |plan: &WorkloadPlan| {
        plan.metrics.iter().take(made.metrics.len()).map(|metric| metric.from.clone()).collect::<Vec<_>>()
    };
    made.name == workload.name && from(&made) == from(workload) && own_params(workload).next().is_none()
}

/// Options of everything that measures, where they are not the default.
fn common(plan: &Plan, manifests: &[PathBuf]) -> Vec<String> {
    let usual = NoiseLimits::default();
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    for manifest in manifests {
        add("--workload", manifest.display().to_string());
    }
    if plan.guest.image != ImageSpec::Host {
        add("--image", plan.guest.image.to_string());
    }
    if !plan.allow_unequal.is_empty() {
        add("--allow-unequal", plan.allow_unequal.join(","));
    }
    if let Some(loader) = &plan.loader {
        add("--loader", loader.to_string());
    }
    if plan.margin != Options::MARGIN {
        add("--margin", percent(plan.margin));
    }
    // With --no-void, which is the user's, there is nothing above which something is void.
    if plan.noise.voiding && plan.noise.void_share != usual.void_share {
        add("--void-above", percent(plan.noise.void_share));
    }
    if plan.noise.warn_share != usual.warn_share {
        add("--warn-above", percent(plan.noise.warn_share));
    }
    words
}

/// A fraction in per cent, without the digits that binary numbers add.
fn percent(fraction: f64) -> String {
    ((fraction * 1e8).round() / 1e6).to_string()
}

/// Options that bring a plan nearer to the one that is asked for.
fn differences(asked: &Plan, made: &Plan) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_string(), value]);
    if asked.guest.cpus != made.guest.cpus && !asked.guest.cpus.is_empty() {
        add("--cpus", list(&asked.guest.cpus));
    }
    if let Some(bytes) =
        asked.guest.memory_bytes.filter(|_| asked.guest.memory_bytes != made.guest.memory_bytes)
    {
        add("--memory", weigh_model::format_bytes(bytes));
    }
    let pairs = || asked.workloads.iter().zip(&made.workloads);
    if let Some((one, _)) = pairs().find(|(one, other)| one.warmup != other.warmup) {
        add("--warmup", one.warmup.to_string());
    }
    if let Some((one, _)) = pairs().find(|(one, other)| one.iterations != other.iterations) {
        add("--iterations", one.iterations.to_string());
    }
    if let Some((one, _)) = pairs().find(|(one, other)| one.deadline_s != other.deadline_s) {
        add("--deadline", format!("{}s", one.deadline_s));
    }
    let script = |of: fn(&WorkloadPlan) -> &Option<Vec<String>>| {
        let (one, _) = pairs().find(|(one, other)| of(one) != of(other))?;
        match of(one).as_deref() {
            Some([shell, option, script]) if shell == "/bin/sh" && option == "-c" => Some(script.clone()),
            _ => None,
        }
    };
    if let Some(script) = script(|workload| &workload.prepare) {
        add("--prepare", script);
    }
    if let Some(script) = script(|workload| &workload.cleanup) {
        add("--cleanup", script);
    }
    words
}

/// Fails where the command would measure something else.
fn prove(asked: &Plan, made: &Plan) -> Result<(), Failure> {
    let ids = |plan: &Plan| plan.workloads.iter().map(|workload| workload.id.clone()).collect::<Vec<_>>();
    if ids(asked) != ids(made) {
        let reason = format!(
            "its workloads are {}, and those of the command {}",
            ids(asked).join(", "),
            ids(made).join(", ")
        );
        return Err(untellable(&reason));
    }
    for (one, other) in asked.workloads.iter().zip(&made.workloads) {
        let differs = [
            ("--warmup", one.warmup != other.warmup),
            ("--iterations", one.iterations != other.iterations),
            ("--deadline", one.deadline_s != other.deadline_s),
            ("--prepare", one.prepare != other.prepare),
            ("--cleanup", one.cleanup != other.cleanup),
            ("the metrics", names(one) != names(other)),
        ];
        if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(untellable(&format!("{what} of `{}` is one of its own", one.id)));
        }
    }
    if (&asked.guest.cpus, asked.guest.memory_bytes, asked.guest.reuse)
        != (&made.guest.cpus, made.guest.memory_bytes, made.guest.reuse)
    {
        return Err(untellable("its guests get what no option gives"));
    }
    Ok(())
}

fn names(workload: &WorkloadPlan) -> Vec<&str> {
    workload.metrics.iter().map(|metric| metric.spec.name.as_str()).collect()
}

fn untellable(reason: &str) -> Failure {
    Failure::input(format!("no command line says what this run measured: {reason}"))
        .hint("`weigh run --plan RUN/plan.json` repeats it exactly; a study holds what can be typed")
}

/// The plan that the words make here. None where this host lacks CPUs that they name.
fn planned(plan: &Plan, command: Command, words: &Words) -> Result<Option<Plan>, Failure> {
    let mut all = vec![command.word().to_string()];
    // A start has no size; what is measured beside it has.
    let mut sized = plan.workloads.iter().filter(|workload| workload.start.is_none());
    if let Some(first) = sized.next() {
        all.extend(["--size".into(), first.size.clone()]);
    }
    all.extend(plan.environments.iter().flat_map(|one| ["--on".into(), one.name.clone()]));
    all.extend(["--baseline".into(), plan.baseline.clone()]);
    all.extend(words.all());
    let mut carrier = Planned::default();
    match crate::commands::measuring(parse(&all)?, &mut carrier) {
        Ok(()) => Ok(carrier.0),
        Err(failure) if failure.to_string().contains("is not one that weigh may use") => Ok(None),
        Err(failure) => Err(untellable(&failure.to_string()).because(Told(quoted(&all)))),
    }
}

/// The command that was tried.
#[derive(Debug)]
struct Told(String);

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "weigh {}", self.0)
    }
}

impl std::error::Error for Told {}

/// Makes plans and does nothing with them.
#[derive(Default)]
struct Planned(Option<Plan>);

impl Carrier for Planned {
    fn carry_out(
        &mut self,
        _: &crate::cli::MeasureArgs,
        _: bool,
        _: &HostFacts,
        plan: Planner<'_>,
    ) -> Result<(), Failure> {
        self.0 = Some(plan(&mut Silent)?);
        Ok(())
    }
}

/// A host that is not touched, and says nothing of what is decided for the user: that was said when
/// the run was made.
struct Silent;

impl Surroundings for Silent {
    fn ready(&mut self) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn settle(
        &mut self,
        _: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(environment.clone()))
    }

    fn settle_loader(
        &mut self,
        machine: &Elsewhere,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(machine.environment()))
    }

    fn note(&mut self, _: &str) {}
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Each once, in the order in which they come first.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut all, item| {
        if !all.contains(&item) {
            all.push(item);
        }
        all
    })
}
