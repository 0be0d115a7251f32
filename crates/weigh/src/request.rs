//! From the command line to a plan.

use crate::cli::{MeasureArgs, RunArgs, Size};
use crate::embedded;
use crate::error::{Failure, Kind, file_failure};
use crate::loading;
use crate::placement::Placement;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_images::store::Store;
use weigh_model::{
    Effort, EnvironmentPlan, EnvironmentSpec, GuestPlan, HostFacts, ImageSpec, Load, NoiseLimits,
    PARITY_KEYS, PLAN_FORMAT, Plan, WorkloadPlan, check_parity_word, nearest, parse_bytes, parse_cpu_list,
    parse_duration, parse_environment_list,
};
use weigh_platforms::loader::Elsewhere;
use weigh_platforms::{self as platforms, Capabilities, Platform, PlatformError};
use weigh_workloads::{CommandOptions, Library, command_workload};

/// Blocks of a quick run (method specification, "Effort").
const QUICK_BLOCKS: u32 = 6;
/// Fewest, most and step of a run that stops on precision (method specification, "Effort").
const PRECISION_BLOCKS: (u32, u32, u32) = (30, 60, 5);
/// Target half-width of a run that stops on precision, per cent, unless the user says otherwise.
const PRECISION_PERCENT: f64 = 1.0;

/// What making a plan needs of the host, so that bad input is refused before the host is touched.
pub trait Surroundings {
    /// The environments to use when none is named.
    ///
    /// # Errors
    /// The host cannot be used.
    fn ready(&mut self) -> Result<Vec<String>, Failure>;

    /// [`Platform::settle`].
    ///
    /// # Errors
    /// The host cannot be used, or inside, the platform's own.
    fn settle(
        &mut self,
        platform: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure>;

    /// [`Elsewhere::settle`].
    ///
    /// # Errors
    /// The host cannot be used, or inside, why the machine cannot.
    fn settle_loader(
        &mut self,
        machine: &Elsewhere,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure>;

    /// Tells the user something.
    fn note(&mut self, text: &str);
}

/// Makes the plan that the arguments ask for.
///
/// # Errors
/// Bad input, each with its place and remedy.
pub fn plan(args: &RunArgs, facts: &HostFacts, here: &mut dyn Surroundings) -> Result<Plan, Failure> {
    if let Some(file) = &args.plan {
        return read_plan(file);
    }
    let library = library(&args.workload)?;
    let loader = loading::named(&args.loader)?;
    let plan = plan_of(&args.common, loader, facts, here, &|facts| workloads(args, &library, facts))?;
    Ok(Plan { guest: GuestPlan { reuse: args.reuse, ..plan.guest }, ..plan })
}

/// Makes the plan of what `make` gives, which is called twice: its parameters are decided again
/// when it is known what guests get.
///
/// # Errors
/// Bad input, each with its place and remedy.
pub fn plan_of(
    args: &MeasureArgs,
    loader: Option<Elsewhere>,
    facts: &HostFacts,
    here: &mut dyn Surroundings,
    make: &dyn Fn(&HostFacts) -> Result<Vec<WorkloadPlan>, Failure>,
) -> Result<Plan, Failure> {
    // Bad input first.
    let serves = make(facts)?.iter().any(|workload| workload.staging.server.is_some());
    let allow_unequal = allow_unequal(args)?;
    let cpus = args.cpus.as_deref().map(|list| cpus(list, facts)).transpose()?.unwrap_or_default();
    loading::check(loader.as_ref(), serves)?;
    // The clients of neighbours that serve are on this host in any case.
    let beside = |workload: &WorkloadPlan| {
        workload.neighbours.as_ref().is_some_and(|all| matches!(all.load, Load::Serve { .. }))
    };
    let loads_here = (serves && loader.is_none()) || make(facts)?.iter().any(beside);
    if loads_here && facts.cpus.len() > 1 && facts.cpus.iter().all(|cpu| cpus.contains(cpu)) {
        let hint = "name fewer CPUs for the guests, or leave --cpus out";
        return Err(
            Failure::input("a server is measured, and `--cpus` leaves its load generator none").hint(hint)
        );
    }
    let image = ImageSpec::from(args.image.clone());
    check_image(&image)?;
    let memory_bytes = args.memory.as_deref().map(memory).transpose()?;
    let (environments, baseline) = environments(args, &image, here)?;
    let loader = loader.map(|machine| loading::settle(&machine, here)).transpose()?;
    let cores = loads_here.then(|| weigh_host::facts::cores(&facts.cpus));
    let placement = Placement::new(&abilities(&environments)?, cpus, memory_bytes, facts, cores.as_deref());
    for note in &placement.notes {
        here.note(note);
    }
    let workloads = make(&placement.of_host(facts))?;
    Ok(Plan {
        format: PLAN_FORMAT,
        name: name(&workloads),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        seed: args.seed.unwrap_or_else(random_seed),
        environments,
        baseline,
        workloads,
        effort: effort(args),
        budget_s: budget(args)?,
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
        noise: noise(args)?,
        loader,
    })
}

/// Whether guests can have this image.
fn check_image(image: &ImageSpec) -> Result<(), Failure> {
    Store::check(image).map_err(|error| Failure::of_error(Kind::Input, &error))
}

fn effort(args: &MeasureArgs) -> Effort {
    let (minimum, maximum, step) = PRECISION_BLOCKS;
    match (args.quick, args.blocks) {
        (true, _) => Effort::Quick { blocks: QUICK_BLOCKS },
        (_, Some(blocks)) => Effort::Fixed { blocks },
        _ => Effort::Precision {
            minimum,
            maximum,
            step,
            target: args.precision.unwrap_or(PRECISION_PERCENT) / 100.0,
        },
    }
}

/// When noise warns and when it voids.
fn noise(args: &MeasureArgs) -> Result<NoiseLimits, Failure> {
    if args.warn_above > args.void_above && !args.no_void {
        let (warn, void) = (args.warn_above, args.void_above);
        return Err(Failure::input(format!(
            "a warning above {warn} % comes after the unit is void above {void} %"
        ))
        .hint("give --warn-above less than --void-above, or --no-void"));
    }
    Ok(NoiseLimits {
        warn_share: args.warn_above / 100.0,
        void_share: args.void_above / 100.0,
        voiding: !args.no_void,
        ..NoiseLimits::default()
    })
}

/// Seconds that the run may take.
fn budget(args: &MeasureArgs) -> Result<Option<f64>, Failure> {
    let parsed = args.budget.as_deref().map(parse_duration).transpose();
    let budget = parsed.map_err(|error| Failure::of_size("--budget", &error))?;
    Ok(budget.map(|budget| budget.as_secs_f64()))
}

fn memory(text: &str) -> Result<u64, Failure> {
    let bytes = parse_bytes(text).map_err(|error| Failure::of_size("--memory", &error))?;
    if bytes < 16 << 20 {
        return Err(Failure::input(format!("a memory limit of `{text}` is too small for any guest"))
            .hint("give at least 16MiB, as in --memory 2GiB"));
    }
    Ok(bytes)
}

fn cpus(list: &str, facts: &HostFacts) -> Result<Vec<u32>, Failure> {
    let cpus = parse_cpu_list(list).map_err(|error| Failure::of_size("--cpus", &error))?;
    match cpus.iter().find(|cpu| !facts.cpus.contains(cpu)) {
        Some(cpu) => {
            Err(Failure::input(format!("CPU {cpu} of `--cpus {list}` is not one that weigh may use"))
                .hint(format!("usable CPUs: {}", join(facts.cpus.iter()))))
        }
        None => Ok(cpus),
    }
}

/// The manifests: embedded ones, the user's directory, and files named on the command line.
///
/// # Errors
/// A manifest that is wrong, with file, line and column.
pub fn library(files: &[PathBuf]) -> Result<Library, Failure> {
    let directory = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .map(|config| config.join("weighbridge/workloads"));
    let directories: Vec<PathBuf> = directory.into_iter().filter(|directory| directory.is_dir()).collect();
    Library::load(&directories, files).map_err(Failure::from)
}

/// The workloads of a run.
///
/// # Errors
/// Names and parameters that there are not.
pub fn workloads(args: &RunArgs, library: &Library, facts: &HostFacts) -> Result<Vec<WorkloadPlan>, Failure> {
    let size = args.size.unwrap_or(if args.common.quick { Size::Quick } else { Size::Standard }).word();
    let mut names: Vec<String> = Vec::new();
    for name in &args.workloads {
        if names.contains(name) {
            return Err(Failure::input(format!("the workload `{name}` is named twice")).hint("name it once"));
        }
        names.push(name.clone());
    }
    if names.is_empty() && args.command.is_empty() {
        let defaults = library.workloads().iter().filter(|workload| workload.default_set());
        names = defaults.map(|workload| workload.name().to_string()).collect();
    }
    let mut parameters = Parameters::parse(&args.param)?;
    let mut plans = Vec::new();
    for name in &names {
        let workload = library.get(name).map_err(|unknown| {
            Failure::input(format!("there is no workload `{name}`")).at("workload", name, 0..name.len()).hint(
                match unknown.nearest {
                    Some(nearest) => format!("did you mean `{nearest}`? `weigh list workloads` shows all"),
                    None => "`weigh list workloads` shows all; a command of your own goes after `--`".into(),
                },
            )
        })?;
        let known: Vec<&str> = workload
            .params()
            .iter()
            .filter(|param| param.settable)
            .map(|param| param.name.as_str())
            .collect();
        let chosen = parameters.take(name, &known);
        plans.extend(workload.plan(size, &chosen, facts).map_err(|error| {
            let hint = error.nearest.as_ref().map(|nearest| format!("did you mean `{nearest}`?"));
            let text = format!("{}={}", error.param, error.value);
            Failure::input(error.message.clone()).at("--param", &text, error.span()).maybe_hint(hint)
        })?);
    }
    if !args.command.is_empty() {
        plans.push(command_workload(&args.command, &CommandOptions::default()));
    }
    parameters.all_taken(library, &names)?;
    for plan in &mut plans {
        adjust(plan, args)?;
    }
    Ok(plans)
}

/// What the user's options change of a workload.
fn adjust(plan: &mut WorkloadPlan, args: &RunArgs) -> Result<(), Failure> {
    plan.warmup = args.warmup.unwrap_or(plan.warmup);
    plan.iterations = args.iterations.unwrap_or(plan.iterations);
    let shell = |script: &String| vec!["/bin/sh".to_string(), "-c".into(), script.clone()];
    plan.prepare = args.prepare.as_ref().map(shell).or_else(|| plan.prepare.take());
    plan.cleanup = args.cleanup.as_ref().map(shell).or_else(|| plan.cleanup.take());
    if let Some(deadline) = &args.deadline {
        let parsed = parse_duration(deadline).map_err(|error| Failure::of_size("--deadline", &error))?;
        plan.deadline_s = parsed.as_secs_f64();
        if plan.deadline_s <= 0.0 {
            return Err(Failure::input("a deadline of nothing ends every run").hint("as in --deadline 90s"));
        }
    }
    if plan.warmup == 0 {
        // Cold runs are a metric of their own name (method specification, "Warm-up"), so that no
        // one files them with warm ones.
        for metric in &mut plan.metrics {
            metric.spec.name = format!("{}_cold", metric.spec.name);
        }
    }
    Ok(())
}

/// Parameters as given, and which of them some workload took.
struct Parameters {
    given: Vec<Parameter>,
}

struct Parameter {
    text: String,
    workload: Option<String>,
    key: String,
    values: Vec<String>,
    taken: bool,
}

impl Parameters {
    fn parse(texts: &[String]) -> Result<Self, Failure> {
        let mut given: Vec<Parameter> = Vec::new();
        for text in texts {
            let fault = || {
                Failure::input(format!("`--param {text}` is not of the form key=value"))
                    .at("--param", text, 0..text.len())
                    .hint("as in --param size=64MiB, or stream.repetitions=5; a list a,b,c sweeps")
            };
            let (key, value) = text.split_once('=').ok_or_else(fault)?;
            if key.is_empty() || value.is_empty() {
                return Err(fault());
            }
            let (workload, key) = key.split_once('.').map_or((None, key), |(w, k)| (Some(w.to_string()), k));
            if given.iter().any(|other| other.workload == workload && other.key == key) {
                return Err(Failure::input(format!("the parameter `{key}` is given twice"))
                    .hint("a list sweeps: --param key=a,b,c"));
            }
            let values = value.split(',').map(str::to_string).collect();
            given.push(Parameter { text: text.clone(), workload, key: key.into(), values, taken: false });
        }
        Ok(Self { given })
    }

    fn take(&mut self, workload: &str, known: &[&str]) -> BTreeMap<String, Vec<String>> {
        let mut chosen = BTreeMap::new();
        for parameter in &mut self.given {
            let addressed = parameter.workload.as_deref().is_none_or(|name| name == workload);
            if addressed && known.contains(&parameter.key.as_str()) {
                parameter.taken = true;
                chosen.insert(parameter.key.clone(), parameter.values.clone());
            }
        }
        chosen
    }

    fn all_taken(&self, library: &Library, names: &[String]) -> Result<(), Failure> {
        let Some(lost) = self.given.iter().find(|parameter| !parameter.taken) else { return Ok(()) };
        let known: Vec<String> = names
            .iter()
            .filter_map(|name| library.get(name).ok())
            .flat_map(|workload| {
                workload
                    .params()
                    .iter()
                    .filter(|param| param.settable)
                    .map(|param| param.name.clone())
                    .collect::<Vec<_>>()
            })
            .collect();
        let start = lost.text.find(&lost.key).unwrap_or(0);
        let hint = match nearest(&lost.key, known.iter().map(String::as_str)) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None if known.is_empty() => "the workloads of this run have no parameters".into(),
            None => format!("parameters of these workloads: {}", join(known.iter())),
        };
        Err(Failure::input(format!("no workload of this run has a parameter `{}`", lost.key))
            .at("--param", &lost.text, start..start + lost.key.len())
            .hint(hint))
    }
}

/// Parity keys that may differ, each once.
fn allow_unequal(args: &MeasureArgs) -> Result<Vec<String>, Failure> {
    let mut words: Vec<String> = Vec::new();
    for word in &args.allow_unequal {
        check_parity_word(word).map_err(|nearest| {
            let hint = match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!(
                    "the keys are {}",
                    join(PARITY_KEYS.iter().map(|(key, _)| key.trim_end_matches(':')))
                ),
            };
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

/// What guests of the environments can do.
fn abilities(environments: &[EnvironmentPlan]) -> Result<Vec<(String, Capabilities)>, Failure> {
    let of = |environment: &EnvironmentPlan| {
        let (platform, spec) = platforms::resolve(&environment.spec)?;
        Ok((environment.name.clone(), platform.capabilities(&spec)))
    };
    environments.iter().map(of).collect()
}

/// The environments to compare and the baseline's name. All of them are checked before the first is
/// settled.
fn environments(
    args: &MeasureArgs,
    image: &ImageSpec,
    here: &mut dyn Surroundings,
) -> Result<(Vec<EnvironmentPlan>, String), Failure> {
    let mut specs: Vec<EnvironmentSpec> = Vec::new();
    for text in &args.on {
        specs.extend(parse_environment_list(text)?);
    }
    if specs.is_empty() {
        for name in here.ready()? {
            specs.push(EnvironmentSpec::parse(&name)?);
        }
    }
    let baseline = match &args.baseline {
        Some(text) => EnvironmentSpec::parse(text)?,
        None => EnvironmentSpec::parse("native")?,
    };
    if !specs.iter().any(|spec| spec.to_string() == baseline.to_string()) {
        specs.insert(0, baseline.clone());
    }
    for spec in &specs {
        platforms::resolve(spec)?;
    }
    let mut plans: Vec<EnvironmentPlan> = Vec::new();
    let mut baseline_name = baseline.to_string();
    for spec in specs {
        let is_baseline = spec.to_string() == baseline.to_string();
        let named = is_baseline || !args.on.is_empty();
        let (platform, resolved) = platforms::resolve(&spec)?;
        if let Err(error) = Store::check(&platforms::common_keys::image(platform, &resolved, image)) {
            if named {
                return Err(Failure::input(format!("{spec} has no root file system")).because(error));
            }
            here.note(&format!("without {spec}: {}", platforms::with_causes(&error)));
            continue;
        }
        let Some((name, settled)) = settle(&spec, named, here)? else { continue };
        if is_baseline {
            baseline_name.clone_from(&name);
        }
        if plans.iter().any(|plan| plan.name == name) {
            return Err(Failure::input(format!("the environment `{name}` is named twice")).hint(format!(
                "to run it twice give one a label: `{name}{}label=again`",
                if name.contains(':') { ',' } else { ':' }
            )));
        }
        plans.push(EnvironmentPlan { name, spec: settled, variables: Default::default() });
    }
    Ok((plans, baseline_name))
}

/// The name and the settled form of an environment. One that nobody named and that cannot be
/// settled is left out with a note.
fn settle(
    spec: &EnvironmentSpec,
    named: bool,
    here: &mut dyn Surroundings,
) -> Result<Option<(String, EnvironmentSpec)>, Failure> {
    let (platform, resolved) = platforms::resolve(spec)?;
    if !platform.capabilities(&resolved).settles {
        return Ok(Some((spec.to_string(), resolved)));
    }
    match here.settle(platform, &resolved)? {
        // What was explicit already keeps the name that the user gave it.
        Ok(settled) if settled.to_string() == resolved.to_string() => Ok(Some((spec.to_string(), settled))),
        Ok(settled) => Ok(Some((settled.to_string(), settled))),
        Err(error) if named => {
            Err(Failure::new(Kind::Failed, format!("{spec} cannot be had here")).because(error))
        }
        Err(error) => {
            here.note(&format!("without {spec}: {}", platforms::with_causes(&error)));
            Ok(None)
        }
    }
}

/// Reads a plan and checks what a hand-edited one could have wrong.
///
/// # Errors
/// Unreadable, of a newer format, or naming what does not exist.
pub fn read_plan(file: &std::path::Path) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| file_failure("read the plan", file, error))?;
    let name = file.display().to_string();
    let damaged = |error: serde_json::Error| {
        let offset = offset_of(&text, error.line(), error.column());
        Failure::input(format!("the plan is damaged at line {}, column {}", error.line(), error.column()))
            .at(&name, &text, offset..(offset + 1).min(text.len()))
            .because(error)
            .hint("make one with `weigh run ... --out DIR`; the directory holds plan.json")
    };
    // What a newer version writes may have another shape, and is no damage.
    let loose: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    if let Some(format) = loose["format"].as_u64().filter(|format| *format > u64::from(PLAN_FORMAT)) {
        return Err(Failure::input(format!(
            "{name} has plan format {format}, and this weigh reads up to {PLAN_FORMAT}"
        ))
        .hint("use the version of weigh that made it, or a newer one"));
    }
    let plan: Plan = serde_json::from_str(&text).map_err(damaged)?;
    for environment in &plan.environments {
        platforms::resolve(&environment.spec).map_err(|error| Failure::of_spec(&name, &error))?;
    }
    loading::read(plan.loader.as_ref())?;
    check_image(&plan.guest.image)?;
    if !plan.environments.iter().any(|environment| environment.name == plan.baseline) {
        return Err(Failure::input(format!(
            "{name}: the plan's baseline `{}` is none of its environments",
            plan.baseline
        ))
        .hint("give `baseline` the `name` of one of its `environments`"));
    }
    if plan.workloads.is_empty() {
        return Err(Failure::input(format!("{name}: the plan has no workloads"))
            .hint("take a plan.json as `weigh run` made it; a run without workloads measures nothing"));
    }
    Ok(plan)
}

fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len().saturating_sub(1))
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

/// Small enough to be typed again by a person, and exact in every JSON reader.
pub fn random_seed() -> u64 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u64::from(u32::from_le_bytes(bytes)),
        _ => weigh_host::clock::monotonic_ns() & 0xFFFF_FFFF,
    }
}

fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
