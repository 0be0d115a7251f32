//! The comparisons of a selftest: their plans and their order.

use crate::error::{ExitKind, Failure};
use crate::request::{measure_cold, with_control};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use weigh_model::{
    Effort, EnvironmentPlan, EnvironmentSpec, Extraction, GuestPlan, HostFacts, ImageSpec, MetricSource,
    MetricSpec, Plan, SliceChoice, WorkloadPlan,
};
use weigh_workloads::Library;

/// Blocks of one comparison. With ten, a 95 % interval of the mean still has its coverage unless
/// the noise is extreme (method specification, "Intervals"), and a comparison ends in seconds.
pub const BLOCKS: u32 = 10;

/// The injected effects, as fractions.
pub const EFFECTS: [f64; 4] = [0.005, 0.01, 0.02, 0.05];

/// Steps of one spin, which takes 60 to 110 ms on a current CPU. That is long enough that a launch
/// (milliseconds) and a tick of the kernel's accounting (10 ms at most) are small beside it, and
/// short enough for 1,800 spins in about six minutes.
const WORK: &str = "75000000";

/// Thawed time of a spin in slices in one block. It ends between the first two batches of marks,
/// which are printed once in 100 ms: printing takes 100 µs, and if it ended near them, those of one
/// side alone would count.
pub const SLICED_TIME: Duration = Duration::from_millis(160);

/// The name of the environment that may be slower.
pub const OTHER_LABEL: &str = "b";

/// The variable that makes a spin longer.
const VARIABLE: &str = "WEIGH_SPIN";

/// How comparisons are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Both environments at once, each thawed for some milliseconds in turn.
    Slices,
    /// One trial after the other.
    Whole,
}

impl Form {
    /// The name of the form within a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Slices => "in slices",
            Self::Whole => "in whole trials",
        }
    }

    /// The name of the form on its own, with the length of its slices, microseconds, if known.
    pub fn title(self, slices_us: Option<u32>) -> String {
        match (self, slices_us) {
            (Self::Slices, Some(us)) => format!("slices of {}", SliceChoice::Length(us)),
            (Self::Slices, None) => "slices".into(),
            (Self::Whole, _) => "whole trials".into(),
        }
    }
}

/// What is compared with itself.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The native environment spins; a variable makes one of two spin longer.
    Native {
        /// The CPU of both.
        cpus: Vec<u32>,
    },
    /// Two fakes of the null platform with these keys. Nothing is run, and the method is judged
    /// alone.
    Fake {
        /// Keys of both fakes, as in `sd=0.003,drift=ar0.9-0.02`.
        keys: String,
        /// Keys of the second fake alone, after those of both: a label that changes a result.
        other: String,
    },
}

/// A whole selftest.
#[derive(Debug, Clone)]
pub struct Design {
    /// Seed of orders and generated data.
    pub seed: u64,
    /// The forms of comparisons. Each form gets the same number of every kind of comparison.
    pub forms: Vec<Form>,
    /// The length of slices: as the pilot finds it, or a fixed one.
    pub slices: SliceChoice,
    /// Number of comparisons without an effect in each form.
    pub no_effect: u32,
    /// Number of comparisons for each of [`EFFECTS`] in each form.
    pub per_effect: u32,
    /// What is compared.
    pub subject: Subject,
    /// Digests of the guest programs, for the plans.
    pub digests: BTreeMap<String, String>,
}

/// One comparison: a run of its own, with its own baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Position in the selftest, from 1.
    pub number: u32,
    /// How it is measured.
    pub form: Form,
    /// The effect that is injected, a fraction; 0 for none.
    pub effect: f64,
}

impl Comparison {
    /// The name of its run directory, such as `012-whole-none` or `013-slices-0.5`.
    pub fn name(&self) -> String {
        let form = match self.form {
            Form::Slices => "slices",
            Form::Whole => "whole",
        };
        match self.effect {
            0.0 => format!("{:03}-{form}-none", self.number),
            effect => format!("{:03}-{form}-{}", self.number, effect * 100.0),
        }
    }
}

impl Design {
    /// Returns all comparisons in random order, so that changes of the host while they run affect
    /// all kinds alike.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let of_each = EFFECTS.iter().flat_map(|effect| vec![*effect; self.per_effect as usize]);
        let effects: Vec<f64> = vec![0.0; self.no_effect as usize].into_iter().chain(of_each).collect();
        let in_form = |form: &Form| effects.iter().map(|effect| (*form, *effect)).collect::<Vec<_>>();
        let mut kinds: Vec<(Form, f64)> = self.forms.iter().flat_map(in_form).collect();
        let mut random = Pcg64::seed_from_u64(self.seed);
        for last in (1..kinds.len()).rev() {
            // This is the Fisher-Yates shuffle; the bias of the multiplication is below 2^-50.
            let other = ((u128::from(random.next_u64()) * (last as u128 + 1)) >> 64) as usize;
            kinds.swap(last, other);
        }
        (1..).zip(kinds).map(|(number, (form, effect))| Comparison { number, form, effect }).collect()
    }

    /// Makes the plan of a comparison.
    ///
    /// # Errors
    /// The null platform does not have a key of a fake.
    pub fn plan(&self, comparison: &Comparison, facts: &HostFacts) -> Result<Plan, Failure> {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(comparison.number));
        let (environments, workload, cpus) = match &self.subject {
            Subject::Native { cpus } => {
                (natives(comparison.effect)?, spin(facts, comparison.form)?, cpus.clone())
            }
            // Nothing freezes a fake: its trials are whole, whatever form they represent.
            Subject::Fake { keys, other } => {
                (fakes(keys, other, comparison.effect, seed & 0xFFFF_FFFF)?, fake_work(), Vec::new())
            }
        };
        let slices = match (comparison.form, &self.subject) {
            (Form::Slices, Subject::Native { .. }) => self.slices,
            _ => SliceChoice::Off,
        };
        let name = format!("selftest-{}", comparison.name());
        let plan = Plan::of(name, environments, vec![workload], Effort::Fixed { blocks: BLOCKS });
        let guest = GuestPlan { image: ImageSpec::Probe, cpus, ..plan.guest };
        with_control(Plan { seed, guest, slices, digests: self.digests.clone(), ..plan })
    }
}

/// Returns an environment whose spin is longer by `effect`. The variable is also set without an
/// effect, with a value of the same length, so that nothing but the work differs.
pub fn spinning(name: String, spec: EnvironmentSpec, effect: f64) -> EnvironmentPlan {
    let variables = BTreeMap::from([(VARIABLE.to_string(), format!("{effect:.3}"))]);
    EnvironmentPlan { name, spec, variables }
}

/// Returns two native environments, the second with the effect.
fn natives(effect: f64) -> Result<Vec<EnvironmentPlan>, Failure> {
    let environment = |text: &str, effect: f64| -> Result<EnvironmentPlan, Failure> {
        Ok(spinning(text.into(), EnvironmentSpec::parse(text)?, effect))
    };
    Ok(vec![environment("native", 0.0)?, environment(&format!("native:label={OTHER_LABEL}"), effect)?])
}

/// Returns two fakes that share their drift, as two environments share a host.
fn fakes(keys: &str, other: &str, effect: f64, seed: u64) -> Result<Vec<EnvironmentPlan>, Failure> {
    let environment = |own: String| -> Result<EnvironmentPlan, Failure> {
        let settings: Vec<&str> = [keys, own.as_str()].into_iter().filter(|keys| !keys.is_empty()).collect();
        let spec = EnvironmentSpec::parse(&format!("null:seed={seed},{}", settings.join(",")))?;
        let (_, resolved) = weigh_platforms::resolve(&spec)?;
        Ok(EnvironmentPlan { name: spec.to_string(), spec: resolved, variables: BTreeMap::new() })
    };
    let own = [other, &format!("effect={effect}"), &format!("label={OTHER_LABEL}")];
    let own: Vec<&str> = own.into_iter().filter(|keys| !keys.is_empty()).collect();
    Ok(vec![environment(String::new())?, environment(own.join(","))?])
}

/// Returns the workload `spin` of the library, without warm-up: it touches no memory and no file
/// but the program, so the time is better spent on more comparisons. The metrics of whole trials
/// are named as cold, like all metrics without warm-up; in slices the kernel sets itself up first.
///
/// # Errors
/// The library has no such workload.
pub fn spin(facts: &HostFacts, form: Form) -> Result<WorkloadPlan, Failure> {
    let missing = || Failure::new(ExitKind::Failed, "the workload `spin` is not in the library");
    let library = Library::load(&[], &[])?;
    let workload = library.get("spin").map_err(|_| missing())?;
    let chosen = BTreeMap::from([("work".to_string(), vec![WORK.to_string()])]);
    let plans = workload.plan("quick", &chosen, facts).map_err(|error| missing().because(error))?;
    let mut plan = plans.into_iter().next().ok_or_else(missing)?;
    plan.warmup = 0;
    if form == Form::Whole {
        measure_cold(&mut plan);
    }
    Ok(plan)
}

/// Returns the workload of fakes, which answer with the time that their keys give.
fn fake_work() -> WorkloadPlan {
    let time = MetricSource {
        spec: MetricSpec::time("time"),
        from: Extraction::Json { pointer: "/metrics/time/value".into() },
        factor: 1.0,
    };
    WorkloadPlan {
        size: "quick".into(),
        deadline_s: 10.0,
        check: Some(Extraction::Json { pointer: "/check/passed".into() }),
        ..WorkloadPlan::of("fake", vec!["fake".into()], vec![time])
    }
}
