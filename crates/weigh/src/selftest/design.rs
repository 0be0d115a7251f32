//! The comparisons of a selftest: their plans and their order.

use crate::error::{Failure, Kind};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use weigh_model::{
    Effort, EnvironmentPlan, EnvironmentSpec, Extraction, GuestPlan, HostFacts, ImageSpec, MetricSource,
    MetricSpec, Plan, WorkloadPlan,
};
use weigh_workloads::Library;

/// Blocks of one comparison. With ten, a 95 % interval of the mean still has its coverage unless
/// the noise is extreme (method specification, "Intervals"), and a comparison ends in seconds.
pub const BLOCKS: u32 = 10;

/// The injected effects, as fractions.
pub const EFFECTS: [f64; 4] = [0.005, 0.01, 0.02, 0.05];

/// Steps of one spin: 60 to 110 ms on a CPU of these years. Long enough that a launch
/// (milliseconds) and a tick of the kernel's accounting (10 ms at most) are small beside it, short
/// enough for 1,600 of them in two minutes.
const WORK: &str = "75000000";

/// The name of the environment that may be slower.
pub const OTHER_LABEL: &str = "b";

/// What is compared with itself.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The native environment spins; a variable makes one of two spin longer.
    Native {
        /// The CPU of both.
        cpus: Vec<u32>,
    },
    /// Two fakes of the null platform with these keys: nothing is run, and the method is judged
    /// alone.
    Fake {
        /// Keys of both, as in `sd=0.003,drift=ar0.9-0.02`.
        keys: String,
        /// Keys of the second alone, after those of both: a label that changes a result.
        other: String,
    },
}

/// A whole selftest.
#[derive(Debug, Clone)]
pub struct Design {
    /// Seed of orders and generated data.
    pub seed: u64,
    /// Comparisons without an effect.
    pub no_effect: u32,
    /// Comparisons for each of [`EFFECTS`].
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
    /// The effect that is injected, a fraction; 0 for none.
    pub effect: f64,
}

impl Comparison {
    /// Name of its run directory: `012-none`, `013-0.5`.
    pub fn name(&self) -> String {
        match self.effect {
            0.0 => format!("{:03}-none", self.number),
            effect => format!("{:03}-{}", self.number, effect * 100.0),
        }
    }
}

impl Design {
    /// All comparisons in random order, so that whatever changes on the host while they run meets
    /// all kinds alike.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let of_each = EFFECTS.iter().flat_map(|effect| vec![*effect; self.per_effect as usize]);
        let mut effects: Vec<f64> = vec![0.0; self.no_effect as usize].into_iter().chain(of_each).collect();
        let mut random = Pcg64::seed_from_u64(self.seed);
        for last in (1..effects.len()).rev() {
            // Fisher and Yates; the bias of the multiplication is below 2^-50.
            let other = ((u128::from(random.next_u64()) * (last as u128 + 1)) >> 64) as usize;
            effects.swap(last, other);
        }
        (1..).zip(effects).map(|(number, effect)| Comparison { number, effect }).collect()
    }

    /// The plan of a comparison.
    ///
    /// # Errors
    /// Keys of a fake that the null platform does not have.
    pub fn plan(&self, comparison: &Comparison, facts: &HostFacts) -> Result<Plan, Failure> {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(comparison.number));
        let (environments, workload, cpus) = match &self.subject {
            Subject::Native { cpus } => (natives(comparison.effect)?, spin(facts)?, cpus.clone()),
            Subject::Fake { keys, other } => {
                (fakes(keys, other, comparison.effect, seed & 0xFFFF_FFFF)?, fake_work(), Vec::new())
            }
        };
        let name = format!("selftest-{}", comparison.name());
        let plan = Plan::of(name, environments, vec![workload], Effort::Fixed { blocks: BLOCKS });
        let guest = GuestPlan { image: ImageSpec::Probe, cpus, ..plan.guest };
        Ok(Plan { seed, guest, digests: self.digests.clone(), ..plan })
    }
}

/// Native twice. Both have the variable, with values of the same length, so that nothing but the
/// work differs.
fn natives(effect: f64) -> Result<Vec<EnvironmentPlan>, Failure> {
    let environment = |text: &str, effect: f64| -> Result<EnvironmentPlan, Failure> {
        let spec = EnvironmentSpec::parse(text)?;
        let variables = BTreeMap::from([("WEIGH_SPIN".to_string(), format!("{effect:.3}"))]);
        Ok(EnvironmentPlan { name: text.into(), spec, variables })
    };
    Ok(vec![environment("native", 0.0)?, environment(&format!("native:label={OTHER_LABEL}"), effect)?])
}

/// Two fakes that share their drift, as two environments share a host.
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

/// The workload `spin` of the library, without warm-up: it touches no memory and no file but the
/// program, so the time is better spent on more comparisons. Its metrics are filed as cold, like
/// all metrics without warm-up.
fn spin(facts: &HostFacts) -> Result<WorkloadPlan, Failure> {
    let missing = || Failure::new(Kind::Failed, "the workload `spin` is not in the library");
    let library = Library::load(&[], &[])?;
    let workload = library.get("spin").map_err(|_| missing())?;
    let chosen = BTreeMap::from([("work".to_string(), vec![WORK.to_string()])]);
    let plans = workload.plan("quick", &chosen, facts).map_err(|error| missing().because(error))?;
    let mut plan = plans.into_iter().next().ok_or_else(missing)?;
    plan.warmup = 0;
    for metric in &mut plan.metrics {
        metric.spec.name = format!("{}_cold", metric.spec.name);
    }
    Ok(plan)
}

/// The workload of fakes, which answer with the time that their keys say.
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
