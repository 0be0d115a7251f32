//! Fixed runs for the tests, computed by the real statistics from seeded samples.

#![allow(dead_code, reason = "every test program uses a part of these")]

pub mod machines;
pub mod neighbours;
pub mod page;
pub mod sliced;
pub mod starts;
pub mod study;
pub mod texts;

use regex::Regex;
use std::collections::BTreeMap;
use weigh_model::{
    Better, Comparison, Effort, EnvironmentPlan, EnvironmentSpec, Extraction, FailureKind, GuestPlan,
    HostFacts, MetricSource, MetricSpec, Observation, Plan, Series, Unit, VoidCause, VoidUnit, WorkloadKey,
    WorkloadPlan,
};
use weigh_report::study::StudyReport;
use weigh_report::{ComparedRuns, EnvironmentFacts, Format, Options, Report, render, render_study};
use weigh_stats::{Analysis, Failure, Notice, analyse, compare_runs};

/// SplitMix64; a normal number is a sum of twelve uniform ones. It is the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

pub fn metric(name: &str, unit: &str, better: Better, primary: bool) -> MetricSpec {
    MetricSpec { name: name.into(), unit: Unit::normalise(unit).0, better, primary }
}

pub fn time(name: &str, primary: bool) -> MetricSpec {
    metric(name, "s", Better::Lower, primary)
}

pub fn rate(name: &str, unit: &str, primary: bool) -> MetricSpec {
    metric(name, unit, Better::Higher, primary)
}

/// How one environment's samples are made: its cost is the baseline's times (1 + effect), with
/// noise on top.
#[derive(Clone, Copy)]
pub struct Shape {
    pub environment: &'static str,
    pub effect: f64,
    pub noise: f64,
    /// The number of failed trials, at the end.
    pub failed: u32,
    /// The period of slow blocks: one block in this many is slower by a third.
    pub slow_every: Option<u32>,
}

pub fn shape(environment: &'static str, effect: f64, noise: f64) -> Shape {
    Shape { environment, effect, noise, failed: 0, slow_every: None }
}

/// Samples of one metric. A random drift of each block moves all its environments alike.
pub fn comparison(
    workload: &str,
    metric: MetricSpec,
    level: f64,
    blocks: u32,
    shapes: &[Shape],
) -> Comparison {
    let seed = workload
        .bytes()
        .chain(metric.name.bytes())
        .fold(7u64, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
    let mut random = Random(seed);
    let drift: Vec<f64> = (0..blocks).map(|_| 0.01 * random.normal()).collect();
    let mut series = Vec::new();
    for shape in shapes {
        let mut value = |block: u32| {
            let slow = shape.slow_every.is_some_and(|every| block % every == every / 2);
            let slow = if slow { 1.33f64.ln() } else { 0.0 };
            let cost = drift[block as usize] + shape.effect.ln_1p() + shape.noise * random.normal() + slow;
            match metric.better {
                Better::Lower => level * cost.exp(),
                Better::Higher => level * (-cost).exp(),
            }
        };
        let observation = |block| Observation { block: Some(block), value: value(block) };
        let observations = (0..blocks.saturating_sub(shape.failed)).map(observation).collect();
        let environment = shape.environment.into();
        series.push(Series { environment, observations, failed: shape.failed, tried: blocks });
    }
    Comparison { workload: workload.into(), key: key(workload), metric, series }
}

/// The key of an id with at most one parameter.
fn key(workload: &str) -> WorkloadKey {
    let Some((name, params)) = workload.split_once('{') else { return WorkloadKey::named(workload) };
    let param = params.trim_end_matches('}').split_once('=');
    let params = param.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    WorkloadKey { params, ..WorkloadKey::named(name) }
}

pub fn plan(name: &str, environments: &[&str], comparisons: &[Comparison], effort: Effort) -> Plan {
    let mut workloads: Vec<WorkloadPlan> = Vec::new();
    for comparison in comparisons {
        let source = MetricSource {
            spec: comparison.metric.clone(),
            from: Extraction::Json { pointer: format!("/metrics/{}/value", comparison.metric.name) },
            factor: 1.0,
        };
        if let Some(known) = workloads.iter_mut().find(|w| w.id == comparison.workload) {
            known.metrics.push(source);
            continue;
        }
        let short = comparison.key.name.clone();
        workloads.push(WorkloadPlan {
            id: comparison.workload.clone(),
            params: comparison.key.params.clone(),
            warmup: 1,
            iterations: 3,
            ..WorkloadPlan::of(short.clone(), vec!["weigh-kernels".into(), short], vec![source])
        });
    }
    let environments = environments.iter().map(|name| environment(name)).collect();
    Plan {
        tool_version: "0.1.0".into(),
        seed: 7,
        guest: GuestPlan { cpus: vec![0, 1], memory_bytes: Some(2 << 30), ..GuestPlan::default() },
        digests: [("probe", "5f2b"), ("kernels", "a91c")]
            .map(|(what, digest)| (what.to_string(), digest.repeat(16)))
            .into(),
        ..Plan::of(name, environments, workloads, effort)
    }
}

pub fn host() -> HostFacts {
    HostFacts {
        identity: "3c9a7be0".into(),
        kernel: "6.1.0-18-amd64".into(),
        architecture: "x86_64".into(),
        operating_system: "Debian GNU/Linux 12".into(),
        cpu_model: "Example CPU 3000 @ 2.50GHz".into(),
        hypervisor: None,
        cpus: vec![0, 1],
        memory_bytes: 8 << 30,
        last_level_cache_bytes: Some(32 << 20),
        cgroups: "v2".into(),
        boot: "b0".into(),
        root: true,
    }
}

fn environment(name: &str) -> EnvironmentPlan {
    let spec = EnvironmentSpec::parse(name).expect("a fixed name");
    EnvironmentPlan { name: name.into(), spec, variables: BTreeMap::new() }
}

/// The analysis of the samples of a plan.
pub fn analysed(comparisons: &[Comparison], plan: &Plan) -> Analysis {
    analyse(comparisons, &weigh_stats::Options::for_plan(plan))
}

/// A complete run of a plan with this number of blocks.
pub fn run(title: &str, name: &str, plan: Plan, analysis: Analysis, blocks: u32, effort: &str) -> Report {
    Report {
        run: Some(name.into()),
        plan: Some(plan),
        host: Some(host()),
        blocks_planned: Some(blocks),
        blocks_done: Some(blocks),
        effort_label: Some(effort.into()),
        ..Report::new(title, analysis)
    }
}

fn facts(name: &str, network: &str) -> EnvironmentFacts {
    let facts = [
        ("kernel", "6.1.0-18-amd64".into()),
        ("cpus", 2.into()),
        ("network", network.into()),
        ("acceleration", serde_json::Value::Null),
    ];
    let intended = (network != "host").then(|| ("network".to_string(), "asked for by net=nat".to_string()));
    EnvironmentFacts {
        name: name.into(),
        facts: facts.map(|(key, value)| (key.to_string(), value)).into(),
        intended: intended.into_iter().collect(),
    }
}

pub fn failure(environment: &str, workload: &str, block: u32, excluded: bool, reason: &str) -> Failure {
    Failure {
        environment: environment.into(),
        workload: workload.into(),
        block,
        excluded,
        kind: FailureKind::ExitStatus,
        reason: reason.into(),
        log: Some(format!("logs/{workload}-{environment}-{block}.log").replace(['{', '}', '=', ':'], "-")),
    }
}

pub fn void(block: u32, workload: &str, cause: VoidCause) -> VoidUnit {
    VoidUnit::of(block, 0, workload, cause)
}

pub const DOCKER: &str = "docker:net=nat";

fn standard_comparisons(blocks: u32) -> Vec<Comparison> {
    let four = |effects: [f64; 3], noise: f64| {
        let [namespaces, runc, docker] = effects;
        let effects = [("native", 0.0), ("namespaces", namespaces), ("runc", runc), (DOCKER, docker)];
        effects.map(|(name, effect)| shape(name, effect, noise))
    };
    let of =
        |workload, metric, level, shapes: [Shape; 4]| comparison(workload, metric, level, blocks, &shapes);
    let mut mmap = four([0.001, 0.002, 0.003], 0.004);
    mmap[2].failed = 3;
    let mut chase = four([0.001, 0.0, 0.002], 0.003);
    chase[3].slow_every = Some(5);
    let mut lzma = four([0.0, 0.002, 0.0], 0.005);
    lzma[3].failed = blocks;
    let mut comparisons = vec![
        of("stream", rate("triad", "B/s", true), 1.23e10, four([0.008, 0.001, 0.031], 0.004)),
        of("stream", rate("copy", "B/s", false), 1.12e10, four([0.004, 0.001, 0.029], 0.004)),
        of("stream", rate("scale", "B/s", false), 1.10e10, four([0.003, 0.002, 0.030], 0.004)),
        of("gups", rate("rate", "update/s", true), 9.6e7, four([0.0, -0.05, 0.0], 0.006)),
        of("syscall", time("fork_exec", true), 1.91e-4, four([0.021, 0.06, 0.12], 0.01)),
        of("syscall", time("mmap_munmap", true), 2.4e-6, mmap),
        of("memory-latency{size=64MiB}", time("latency", true), 8.9e-8, chase),
        of("lzma", rate("rate", "B/s", true), 4.2e6, lzma),
        of("noploop", time("duration", true), 1.4, four([0.0, 0.002, 0.015], 0.09)),
    ];
    // Excluded in the pilot: there was no trial.
    for series in comparisons.iter_mut().filter(|c| c.workload == "lzma").flat_map(|c| &mut c.series) {
        if series.environment == DOCKER {
            (series.failed, series.tried) = (0, 0);
        }
    }
    comparisons
}

/// A standard run with every verdict, failures, voids and flags.
pub fn standard() -> Report {
    let comparisons = standard_comparisons(30);
    let effort = Effort::Precision { minimum: 30, maximum: 60, step: 5, target: 0.01 };
    let plan = plan("compare", &["native", "namespaces", "runc", DOCKER], &comparisons, effort);
    let title = "weigh run stream gups syscall memory-latency lzma noploop --on native;namespaces;runc;docker:net=nat";
    let options = weigh_stats::Options { ended_by_rule: true, ..weigh_stats::Options::for_plan(&plan) };
    let analysis = analyse(&comparisons, &options);
    let mut report = run(title, "20260301T120000Z-compare", plan, analysis, 30, "standard");
    let networks = [("native", "host"), ("namespaces", "host"), ("runc", "host"), (DOCKER, "nat")];
    report.environments = networks.map(|(name, network)| facts(name, network)).into();
    report.voids = vec![
        void(3, "stream", VoidCause::Steal),
        void(4, "stream", VoidCause::Steal),
        void(9, "gups", VoidCause::ForeignCpu),
        void(17, "lzma", VoidCause::Interrupted),
    ];
    report.failures =
        vec![failure(DOCKER, "lzma", 0, true, "weigh-kernels ended with status 1: no space left on device")];
    let killed = "weigh-kernels was ended by signal 9";
    report.failures.extend([27, 28, 29].map(|block| failure("runc", "syscall", block, false, killed)));
    report.warnings = vec![
        Notice::new("the frequency governor is `powersave`", "set it to `performance`"),
        Notice::new("1.1 % of the CPUs in use went to other processes", "stop what else runs on the host"),
    ];
    report
}

/// Ten workloads in ten environments, a thousand blocks.
pub fn hundred_thousand() -> Report {
    const ENVIRONMENTS: [&str; 10] =
        ["native", "namespaces", "bubblewrap", "runc", "crun", "docker", "podman", "lxc", "nspawn", "uml"];
    let shapes: Vec<_> =
        (0..).zip(ENVIRONMENTS).map(|(at, name)| shape(name, 0.01 * f64::from(at), 0.02)).collect();
    let workloads: Vec<String> = (0..10).map(|number| format!("workload-{number}")).collect();
    let of = |name: &String| comparison(name, time("duration", true), 0.0123, 1000, &shapes);
    let comparisons: Vec<_> = workloads.iter().map(of).collect();
    let plan = plan("long", &ENVIRONMENTS, &comparisons, Effort::Fixed { blocks: 1000 });
    let analysis = analysed(&comparisons, &plan);
    let blocks = Some(1000);
    let report = Report::new("weigh run", analysis);
    Report { plan: Some(plan), blocks_planned: blocks, blocks_done: blocks, ..report }
}

/// A quick run.
pub fn quick() -> Report {
    let two = |effect: f64, noise: f64| [shape("native", 0.0, noise), shape("docker", effect, noise)];
    let comparisons = vec![
        comparison("stream", rate("triad", "B/s", true), 1.23e10, 6, &two(0.004, 0.02)),
        comparison("stream", rate("copy", "B/s", false), 1.12e10, 6, &two(0.003, 0.02)),
        comparison("syscall", time("fork_exec", true), 1.91e-4, 6, &two(0.2, 0.01)),
        comparison("syscall", time("getpid", true), 5.1e-8, 6, &two(0.001, 0.003)),
    ];
    let plan = plan("quick", &["native", "docker"], &comparisons, Effort::Quick { blocks: 6 });
    let analysis = analysed(&comparisons, &plan);
    let environments = vec![facts("native", "host"), facts("docker", "host")];
    Report { environments, ..run("weigh", "20260301T130000Z-quick", plan, analysis, 6, "quick") }
}

/// Samples from elsewhere, without blocks.
pub fn unpaired() -> Report {
    let shapes = [shape("old-kernel", 0.0, 0.02), shape("new-kernel", 0.04, 0.02)];
    let mut comparisons = vec![
        comparison("http", time("latency_p50", true), 3.1e-4, 12, &shapes),
        comparison("http", rate("frames", "frames", true), 144.0, 12, &shapes),
    ];
    for observation in comparisons.iter_mut().flat_map(|c| &mut c.series).flat_map(|s| &mut s.observations) {
        observation.block = None;
    }
    Report::new("weigh analyse samples.csv", analyse(&comparisons, &weigh_stats::Options::new("old-kernel")))
}

/// Two runs, before and after.
pub fn sequential() -> Report {
    let run = |docker: f64, level: f64| {
        let shapes = |noise| [shape("native", 0.0, noise), shape("docker", docker, noise)];
        vec![
            comparison("syscall", time("fork_exec", true), level, 30, &shapes(0.01)),
            comparison("stream", rate("triad", "B/s", true), 1.2e10, 30, &shapes(0.3)),
        ]
    };
    let (before, after) = (run(0.05, 1.9e-4), run(0.12, 2.0e-4));
    compared(&[before], &[after])
}

/// Several runs on each side.
pub fn several_runs() -> Report {
    let run = |docker: f64| {
        let shapes = [shape("native", 0.0, 0.01), shape("docker", docker, 0.01)];
        vec![comparison("syscall", time("fork_exec", true), 1.9e-4, 30, &shapes)]
    };
    compared(&[0.05, 0.056, 0.047].map(run), &[0.12, 0.114, 0.123].map(run))
}

fn compared(before: &[Vec<Comparison>], after: &[Vec<Comparison>]) -> Report {
    let plan = plan("after", &["native", "docker"], &after[0], Effort::Fixed { blocks: 30 });
    let options = weigh_stats::Options::for_plan(&plan);
    let [one, other] =
        [before, after].map(|side| side.iter().map(|run| (&run[..], &options)).collect::<Vec<_>>());
    let analysis = compare_runs(&one, &other);
    let names = |day: u32, what: &str, side: &[Vec<Comparison>]| {
        let name = |run: usize| format!("202603{day:02}T12000{run}Z-{what}");
        (0..side.len()).map(name).collect::<Vec<_>>().join(", ")
    };
    let compared = ComparedRuns { before: names(1, "before", before), after: names(2, "after", after) };
    let report = Report::new("weigh compare before after", analysis);
    Report { compared: Some(compared), host: Some(host()), ..report }
}

/// A run in which nothing could be measured.
pub fn nothing() -> Report {
    let empty = |environment: &str| Series {
        environment: environment.into(),
        observations: Vec::new(),
        failed: 0,
        tried: 0,
    };
    let comparisons = vec![Comparison {
        workload: "lzma".into(),
        key: WorkloadKey::default(),
        metric: rate("rate", "B/s", true),
        series: vec![empty("native"), empty("docker")],
    }];
    let plan = plan("nothing", &["native", "docker"], &comparisons, Effort::Quick { blocks: 6 });
    let analysis = analysed(&comparisons, &plan);
    let report = run("weigh run lzma", "20260301T140000Z-nothing", plan, analysis, 6, "quick");
    let failures = vec![
        failure("native", "lzma", 0, true, "weigh-kernels ended with status 1: no space left on device"),
        failure("docker", "lzma", 0, true, "cannot start a guest: the daemon does not answer"),
    ];
    Report { failures, host: None, blocks_done: Some(0), ..report }
}

/// The text that is in every name of a hostile report.
pub const EVIL: &str = "<script>alert(1)</script>&\"'|_%$#{}~^\\\u{1b}[31m\u{202e}`*[x](y)\n=cmd";

/// Names that try to break out of every format.
pub fn hostile() -> Report {
    hostile_of(standard())
}

/// A report with names that try to break out of every format.
pub fn hostile_of(mut report: Report) -> Report {
    report.title = format!("weigh {EVIL}");
    let rename = |text: &mut String| *text = format!("{text}{EVIL}");
    for cell in &mut report.analysis.cells {
        rename(&mut cell.workload);
        rename(&mut cell.metric.name);
        if cell.environment != "native" {
            rename(&mut cell.environment);
        }
    }
    for failure in &mut report.failures {
        rename(&mut failure.reason);
        rename(&mut failure.workload);
        rename(&mut failure.environment);
    }
    for environment in report.environments.iter_mut().filter(|e| e.name != "native") {
        rename(&mut environment.name);
        environment.facts.insert(format!("fact{EVIL}"), EVIL.into());
    }
    report.warnings.iter_mut().take(1).for_each(|notice| rename(&mut notice.action));
    report
}

pub fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("standard", standard()),
        ("quick", quick()),
        ("unpaired", unpaired()),
        ("sequential", sequential()),
        ("several-runs", several_runs()),
        ("nothing", nothing()),
        ("machines", machines::report()),
        ("sliced", sliced::report()),
        ("starts", starts::report()),
        ("density", neighbours::density()),
        ("interference", neighbours::interference()),
        ("soak", neighbours::soak()),
    ]
}

/// The number of rows of CSV that compare an environment with itself.
pub fn rows_beside(report: &Report) -> usize {
    let losses: usize = report.degradations.iter().map(|one| one.steps.len()).sum();
    let sums: usize = report.sums.iter().map(|one| one.steps.len()).sum();
    // Drift, variation, and both sides of each change.
    let courses: usize = report.courses.iter().map(|one| 2 + 2 * one.changes.iter().flatten().count()).sum();
    losses + sums + courses + report.isolations.len()
}

/// A run or a study: the formats keep the same promises for both.
pub trait Shown {
    fn render(&self, format: Format, options: &Options) -> String;

    /// The whole text in a format.
    fn whole(&self, format: Format) -> String {
        self.render(format, &Options { width: 120, ..Options::default() })
    }

    /// The text in a format, without the code of the scripts, which is the same in every page.
    fn text(&self, format: Format) -> String {
        let text = self.whole(format);
        if format == Format::Html { without_code(&text) } else { text }
    }

    fn table(&self, width: usize) -> String {
        self.render(Format::Table, &Options { width, ..Options::default() })
    }
}

impl Shown for Report {
    fn render(&self, format: Format, options: &Options) -> String {
        render(self, format, options).expect("no report fails")
    }
}

impl Shown for StudyReport {
    fn render(&self, format: Format, options: &Options) -> String {
        render_study(self, format, options).expect("no study fails")
    }
}

/// A run or a study.
pub enum Sample {
    Run(Box<Report>),
    Study(Box<StudyReport>),
}

impl Shown for Sample {
    fn render(&self, format: Format, options: &Options) -> String {
        match self {
            Self::Run(report) => report.render(format, options),
            Self::Study(report) => report.render(format, options),
        }
    }
}

/// Every run and every study, by name.
pub fn samples() -> Vec<(&'static str, Sample)> {
    let runs = all().into_iter().map(|(name, report)| (name, Sample::Run(Box::new(report))));
    let studies = [("study", study::everything()), ("study of nothing", study::nothing())];
    let studies = studies.into_iter().map(|(name, report)| (name, Sample::Study(Box::new(report))));
    runs.chain(studies).collect()
}

/// A run and a study with names that try to break out of every format.
pub fn hostile_samples() -> Vec<(&'static str, Sample)> {
    let run = Sample::Run(Box::new(hostile()));
    vec![("hostile", run), ("hostile study", Sample::Study(Box::new(study::hostile())))]
}

/// Every format.
pub const FORMATS: [Format; 7] =
    [Format::Table, Format::Json, Format::Csv, Format::Markdown, Format::Latex, Format::Html, Format::Junit];

/// The matches of a pattern: the first group, or the whole match.
pub fn found(text: &str, pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    let captures = pattern.captures_iter(text);
    captures.map(|c| c.get(1).or(c.get(0)).expect("a match").as_str().to_string()).collect()
}

fn without_code(page: &str) -> String {
    let code = |text: &str, start: &str| {
        let (before, rest) = text.split_once(start).expect("the page has its scripts");
        let (_, after) = rest.split_once("</script>").expect("which end");
        format!("{before}{start}…</script>{after}")
    };
    let page = code(page, "<script type=\"text/plain\" id=\"library\">");
    let (before, after) = page.split_once("sha256-").expect("the policy knows the scripts");
    let (_, after) = after.split_once("\">").expect("and ends");
    code(&format!("{before}…\">{after}"), "<script>")
}
