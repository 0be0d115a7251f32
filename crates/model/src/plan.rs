//! `plan.json`: everything that decides a run.

use crate::{
    Better, Effort, EnvironmentSpec, GateLimits, Iteration, MetricSpec, Neighbours, NoiseLimits, Share,
    SliceChoice, SlicedWork, Staging, StartPlan,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Version of the plan file. Changes: 1, first version; 2, noise limits, operations, and variables
/// of an environment; 3, starts; 4, staging; 5, the load generator's machine; 6, footprints; 7,
/// neighbours and runs of fixed duration; 8, the command that made it; 9, slices; 10,
/// group-sequential runs, balanced orders and a control; 11, commands of environments, standard
/// input from a file, failures that are ignored, gates of two builds, and shares; 12, energy
/// and counting system calls; 13, neighbours of another environment; 14, numbers of runs that the
/// pilot chooses.
pub const PLAN_FORMAT: u32 = 14;

/// Everything that decides a run: the same plan can be run again, here or on another host.
///
/// Nothing in it depends on the host that made it, apart from paths that the user gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_FORMAT`].
    pub format: u32,
    /// Short name for people, part of the run directory's name.
    pub name: String,
    /// Version of weighbridge that made the plan.
    pub tool_version: String,
    /// The command that made the plan, as words without `weigh`: its name, then every argument that
    /// the user gave, apart from environments, baseline, size, effort, seed and output, which are
    /// elsewhere in the plan or the report. Absent from plans of formats before 8 and from those
    /// that no command made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Seed of every random choice: order of environments and workloads, generated data,
    /// environment size.
    pub seed: u64,
    /// Environments in the order asked for, including the baseline.
    pub environments: Vec<EnvironmentPlan>,
    /// Name of the environment that the others are compared with.
    pub baseline: String,
    /// Name of the environment that is a second instance of the baseline, to check that the method
    /// finds it equal; absent from plans without one and of formats before 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// How the environments of a unit are put in order; shuffled in plans of formats before 10.
    #[serde(default, skip_serializing_if = "Orders::are_shuffled")]
    pub orders: Orders,
    /// Workloads, one entry per combination of swept parameters.
    pub workloads: Vec<WorkloadPlan>,
    /// When the run stops.
    pub effort: Effort,
    /// The limits by which the looks of a group-sequential run decide, if a gate compares two
    /// builds; absent from other plans, whose looks decide by the verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateLimits>,
    /// Bound on the whole run, in seconds.
    pub budget_s: Option<f64>,
    /// What every guest gets.
    pub guest: GuestPlan,
    /// Equivalence margin as a fraction; [`Plan::MARGIN`] unless the user says otherwise.
    pub margin: f64,
    /// Parity keys that may differ even if no environment implies the difference.
    pub allow_unequal: Vec<String>,
    /// When noise warns and when it voids.
    #[serde(default)]
    pub noise: NoiseLimits,
    /// Whether workloads that can be measured in slices are.
    #[serde(default, skip_serializing_if = "SliceChoice::is_off")]
    pub slices: SliceChoice,
    /// Whether the energy that the host takes is counted in every trial; not so in plans of formats
    /// before 12.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub energy: bool,
    /// Whether the system calls that reach the host are counted, in an unmeasured run of each
    /// workload in each environment; not so in plans of formats before 12.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub surface: bool,
    /// Whether an environment with unintended differences is left out, because the user named none;
    /// it ends the run otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave_out_unequal: bool,
    /// Whether a quick run measures what fits its budget, because the user named no environments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fit_budget: bool,
    /// The machine on which the load generators of servers run, as an environment; this host when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<EnvironmentSpec>,
    /// The share of a larger plan's blocks that this plan measures; absent from whole plans and
    /// from those of formats before 11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// SHA-256 digests (hexadecimal) of what runs in the guests: `probe`, `kernels`, `image`.
    pub digests: BTreeMap<String, String>,
}

impl Plan {
    /// Makes a plan of the first environment against the others, with the host's root in every
    /// guest and the defaults for everything else.
    pub fn of(
        name: impl Into<String>,
        environments: Vec<EnvironmentPlan>,
        workloads: Vec<WorkloadPlan>,
        effort: Effort,
    ) -> Self {
        Self {
            format: PLAN_FORMAT,
            name: name.into(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            command: None,
            seed: 0,
            baseline: environments.first().map(|first| first.name.clone()).unwrap_or_default(),
            environments,
            workloads,
            effort,
            gate: None,
            control: None,
            orders: Orders::Balanced,
            budget_s: None,
            guest: GuestPlan::default(),
            margin: Self::MARGIN,
            allow_unequal: Vec::new(),
            noise: NoiseLimits::default(),
            loader: None,
            share: None,
            slices: SliceChoice::Off,
            energy: false,
            surface: false,
            leave_out_unequal: false,
            fit_budget: false,
            digests: BTreeMap::new(),
        }
    }

    /// The default equivalence margin, as a fraction.
    pub const MARGIN: f64 = 0.02;

    /// Whether the load generator's machine, and not a guest, times the trials of this workload.
    pub fn is_timed_by_loader(&self, workload: &str) -> bool {
        let serves = |of: &WorkloadPlan| of.id == workload && of.staging.server.is_some();
        self.loader.is_some() && self.workloads.iter().any(serves)
    }

    /// The plan of a share of this plan's blocks. Each share has its own seed, so that no two have
    /// the same orders. Returns none if the number of blocks is not fixed, or if there is no such
    /// share ([`Share::new`]).
    pub fn of_share(&self, number: u32, shares: u32) -> Option<Self> {
        let all = self.effort.fixed_blocks().filter(|_| self.share.is_none())?;
        let share = Some(Share::new(number, shares, all)?);
        let effort = self.effort.with_blocks(all / shares + u32::from(number < all % shares));
        let seed = self.seed.wrapping_add(u64::from(number));
        Some(Self { effort, share, seed, ..self.clone() })
    }

    /// The plan that this is a share of, with that plan's number of blocks; the plan itself if it
    /// is whole. All shares of one plan return the same, apart from the seed.
    pub fn whole(&self) -> Self {
        let Some(Share { blocks, .. }) = self.share else { return self.clone() };
        let effort = self.effort.with_blocks(blocks);
        Self { effort, share: None, ..self.clone() }
    }
}

/// How the environments of a unit are put in order (method specification, "Randomised complete
/// blocks").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Orders {
    /// Every block is shuffled by itself.
    #[default]
    Shuffled,
    /// Successive blocks are the rows of a Williams square with random labels: every environment
    /// has every place, and follows every other, equally often.
    Balanced,
}

impl Orders {
    fn are_shuffled(&self) -> bool {
        *self == Self::Shuffled
    }
}

/// One environment of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentPlan {
    /// The name under which samples are filed and that tables show: the user's text in canonical
    /// form, with what must not be hidden made explicit (a virtual machine's acceleration).
    pub name: String,
    /// Platform and keys, aliases resolved.
    pub spec: EnvironmentSpec,
    /// Variables of commands in this environment, which override the common ones: the user's, the
    /// same in every environment, or those by which `weigh selftest` injects an effect of a known
    /// size, with values of the same length in every environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

impl From<EnvironmentSpec> for EnvironmentPlan {
    /// Names the environment by its canonical form, without variables.
    fn from(spec: EnvironmentSpec) -> Self {
        Self { name: spec.to_string(), spec, variables: BTreeMap::new() }
    }
}

/// What every guest gets, including native. The default is the host's root without limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// Root file system.
    pub image: ImageSpec,
    /// CPUs that every guest's work is confined to; empty means all that weighbridge may use.
    pub cpus: Vec<u32>,
    /// Memory limit, bytes.
    pub memory_bytes: Option<u64>,
    /// Keeps one instance per environment for the whole run instead of a fresh one per block; every
    /// table says so.
    pub reuse: bool,
    /// Working directory of the commands inside the guest.
    pub working_directory: Option<PathBuf>,
}

/// The root file system of the guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ImageSpec {
    /// A read-only view of the host's own root, where the platform can share it.
    #[default]
    Host,
    /// The probe and the kernels alone.
    Probe,
    /// The Debian system that `weigh image build debian` makes.
    Debian,
    /// An image of a registry, by its reference as in `registry.example/name:tag`.
    Oci(String),
    /// A directory or tar archive of the user.
    Path(PathBuf),
}

impl From<String> for ImageSpec {
    fn from(text: String) -> Self {
        match text.as_str() {
            "host" => Self::Host,
            "probe" => Self::Probe,
            "debian" => Self::Debian,
            reference if reference.starts_with("oci:") => Self::Oci(reference["oci:".len()..].into()),
            _ => Self::Path(text.into()),
        }
    }
}

impl From<ImageSpec> for String {
    fn from(image: ImageSpec) -> Self {
        image.to_string()
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Probe => f.write_str("probe"),
            Self::Debian => f.write_str("debian"),
            Self::Oci(reference) => write!(f, "oci:{reference}"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One workload with every parameter decided: a command and how its output is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// Unique in the plan: the name, and the swept parameters in braces, as in
    /// `memory-latency{size=64MiB}`.
    pub id: String,
    /// Name of the manifest, or of the user's command.
    pub name: String,
    /// Parameters that the user set or swept; part of every cell.
    pub params: BTreeMap<String, String>,
    /// `quick`, `standard` or `paper`.
    pub size: String,
    /// Program and arguments; a name without a slash is looked up in the guest, `weigh-kernels`
    /// beside the probe. Empty for a start.
    pub command: Vec<String>,
    /// Commands that replace `command` in some environments, by the name of the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, Vec<String>>,
    /// The file in the guest that is the standard input of the command; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Whether the command counts whatever its exit status is, unless a signal ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_failure: bool,
    /// Command run before every measured or warm-up iteration.
    pub prepare: Option<Vec<String>>,
    /// Command run after every measured or warm-up iteration.
    pub cleanup: Option<Vec<String>>,
    /// Unmeasured runs in a fresh instance.
    pub warmup: u32,
    /// Measured runs per block, summarised as one number.
    pub iterations: u32,
    /// How long the measured runs of a whole trial are to take together, seconds: the pilot chooses
    /// their number, which is `iterations` at least ([`crate::ChosenIterations`]). `iterations` is
    /// their number when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_s: Option<f64>,
    /// Deadline of one iteration, seconds: a longer one is ended and the trial fails.
    pub deadline_s: f64,
    /// How long one iteration is expected to take, seconds, where the manifest knows.
    pub expected_s: Option<f64>,
    /// What the output must contain for the result to count.
    pub check: Option<Extraction>,
    /// The metrics and where their values are read.
    pub metrics: Vec<MetricSource>,
    /// The unit of work by which charged CPU time is divided; one run of the command when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
    /// Where the command reports how long it ran by its own clock, seconds, for comparison with the
    /// host's. It may be shorter than the whole run, never longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_duration: Option<Extraction>,
    /// Where the command reports how many bytes it read at random places of a disk, bypassing the
    /// guest's own cache. The host's device must have seen at least 95 % of them; otherwise the
    /// trial fails, because a cache was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_read_bytes: Option<Extraction>,
    /// How pieces of its work are told apart while it runs, if it may be measured in slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sliced: Option<SlicedWork>,
    /// What is started, if the start of guests is measured and not a command in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartPlan>,
    /// What is run around the command.
    #[serde(default, skip_serializing_if = "Staging::is_empty")]
    pub staging: Staging,
    /// The guests beside the measured one, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbours>,
}

impl WorkloadPlan {
    /// Makes a workload that runs a command once per block, within a minute and with nothing around
    /// it. The name is also the id.
    pub fn of(name: impl Into<String>, command: Vec<String>, metrics: Vec<MetricSource>) -> Self {
        let name = name.into();
        Self {
            id: name.clone(),
            name,
            params: BTreeMap::new(),
            size: "standard".into(),
            command,
            commands: BTreeMap::new(),
            input: None,
            ignore_failure: false,
            prepare: None,
            cleanup: None,
            warmup: 0,
            iterations: 1,
            trial_s: None,
            deadline_s: 60.0,
            expected_s: None,
            check: None,
            metrics,
            operations: None,
            tool_duration: None,
            random_read_bytes: None,
            sliced: None,
            start: None,
            staging: Staging::default(),
            neighbours: None,
        }
    }

    /// The command in an environment.
    pub fn command_in(&self, environment: &str) -> &[String] {
        self.commands.get(environment).unwrap_or(&self.command)
    }

    /// The counted operation or unit, and its rate per second in these runs: operations, if the
    /// workload counts them, by the command's own clock if it reports one; otherwise the median of
    /// the first rate metric, a primary one if there is one.
    pub fn reached(&self, iterations: &[Iteration]) -> Option<(&str, f64)> {
        if let Some(counted) = &self.operations {
            let operations = iterations.iter().map(|iteration| iteration.operations).sum::<Option<f64>>()?;
            let ns =
                iterations.iter().map(|i| i.tool_duration_ns.unwrap_or(i.guest_duration_ns)).sum::<u64>();
            return (ns > 0).then(|| (counted.name.as_str(), operations / (ns as f64 * 1e-9)));
        }
        let rates =
            self.metrics.iter().map(|metric| &metric.spec).filter(|spec| spec.better == Better::Higher);
        let first = rates.min_by_key(|spec| !spec.primary)?;
        let values = iterations.iter().map(|iteration| iteration.values.get(&first.name).copied());
        let mut values = values.collect::<Option<Vec<f64>>>()?;
        values.sort_by(f64::total_cmp);
        let unit = first.unit.symbol();
        Some((unit.strip_suffix("/s").unwrap_or(unit), *values.get(values.len() / 2)?))
    }
}

/// The unit of work that CPU time is charged per.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// Name of one operation, in the singular: `request`, `update`, `byte`.
    pub name: String,
    /// Where the number of operations of one run of the command is read.
    pub from: Extraction,
}

/// A metric and where its value is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSource {
    /// Name, unit, direction.
    #[serde(flatten)]
    pub spec: MetricSpec,
    /// Where the value is read.
    pub from: Extraction,
    /// Factor that converts the value as written to the base unit.
    pub factor: f64,
}

/// Where a value is read after a command has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Extraction {
    /// Time from before the start of the command to its end, taken by the probe, seconds.
    Duration,
    /// CPU time of the command and its children in user mode, seconds.
    UserTime,
    /// CPU time of the command and its children in the kernel, seconds.
    SystemTime,
    /// CPU time of the command and its children, in user mode and in the kernel, seconds.
    CpuTime,
    /// Largest resident set of the command, bytes.
    MaximumResidentSet,
    /// A JSON pointer (RFC 6901) into the last line of the standard output.
    Json {
        /// The pointer; as a check it must lead to `true`.
        pointer: String,
    },
    /// First group of a regular expression over standard output.
    Regex {
        /// The expression, multi-line mode; as a check it must match.
        pattern: String,
    },
    /// A quantile of a latency histogram that the command printed. Histograms of the iterations of
    /// a trial are merged first; quantiles are never averaged.
    Quantile {
        /// JSON pointer (RFC 6901) into the last line of the standard output: an HdrHistogram in
        /// its V2 encoding, base64, with values in nanoseconds.
        histogram: String,
        /// The quantile, from 0 to 1.
        quantile: f64,
    },
    /// The time or rate that the metric's name identifies, taken by the runner: for starting
    /// guests, and for the neighbours of a measured guest.
    Stamp,
    /// A field of a parser of the workloads crate, for tools whose output needs one.
    Parser {
        /// Name of the parser.
        parser: String,
        /// Name of the field.
        field: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_only_shares_that_can_be() {
        let plan = Plan::of("work", Vec::new(), Vec::new(), Effort::Fixed { blocks: 7 });
        assert_eq!(plan.of_share(0, 3).unwrap().effort, Effort::Fixed { blocks: 3 });
        assert_eq!(plan.of_share(2, 3).unwrap().effort, Effort::Fixed { blocks: 2 });
        assert!(
            plan.of_share(3, 3).is_none() && plan.of_share(0, 4).is_none() && plan.of_share(0, 0).is_none()
        );
    }
}
