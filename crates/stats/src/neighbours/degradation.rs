//! How much neighbours slow a guest down, and how many of them it can bear.

use super::{Family, Paired, RunFacts, median, series};
use crate::interval::Interval;
use serde::{Deserialize, Serialize};
use weigh_model::{Comparison, LoadKind, MetricSpec, NeighbourKind, WorkloadKey, neighbours};

/// Neighbours that use less than this part of their equal share of the CPUs are not limited by it.
const BOUND: f64 = 0.9;

/// The cost of one kind of neighbours in one environment, by their number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Degradation {
    /// The workload, without its neighbours.
    #[serde(flatten)]
    pub key: WorkloadKey,
    /// The metric of the measured guest.
    pub metric: MetricSpec,
    /// Environment.
    pub environment: String,
    /// The load of the neighbours, and how CPU time is shared with them.
    #[serde(flatten)]
    pub neighbours: NeighbourKind,
    /// Number of CPUs that all guests share, if known.
    pub cpus: Option<u32>,
    /// Median over the blocks of the guest alone, in the unit of the metric.
    pub alone: Option<f64>,
    /// The losses by the number of guests, ascending.
    pub steps: Vec<DegradationStep>,
    /// How many guests the environment bears; none if nothing can be compared.
    pub knee: Option<Knee>,
}

/// The loss at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DegradationStep {
    /// Number of guests that were asked for, the measured one included.
    pub guests: u32,
    /// Guests over CPUs.
    pub guests_per_cpu: Option<f64>,
    /// Fewest guests that were up in any block.
    pub up: Option<u32>,
    /// Blocks that have both the guest among neighbours and the guest alone.
    pub n: u32,
    /// Trials that failed. If any did, nothing is certain here.
    pub failed: u32,
    /// Median over the blocks, in the unit of the metric.
    pub median: Option<f64>,
    /// Cost over the cost alone in the same block, less 1.
    pub loss: Option<Interval>,
    /// The share of CPU time that an equal share of the CPUs would leave: min(1, CPUs / guests).
    /// Present only if the CPUs limit the neighbours. For context: it is never graded.
    pub fair: Option<f64>,
    /// Why there is no value.
    #[serde(rename = "lack", default, skip_serializing_if = "Option::is_none")]
    pub missing_reason: Option<String>,
    /// Whether the interval rests on a fair sample: no failed trials, no blocks without a value, no
    /// unusable values on either side.
    pub sound: bool,
}

/// How many guests an environment bears, as far as the intervals show. No curve is fitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The largest loss that still counts as borne, as a fraction.
    pub margin: f64,
    /// The largest number of guests up to which, at every measured number, the whole interval of
    /// the loss lies at or below the margin. 1 if not even the smallest number qualifies.
    pub within: u32,
    /// The smallest number of guests from which, at every number that was measured, the whole
    /// interval lies above the margin.
    pub beyond: Option<u32>,
    /// Numbers of guests between the two: the interval extends over the margin, trials failed, or
    /// in some blocks or all nothing could be measured.
    pub undecided: Vec<u32>,
}

impl Knee {
    /// A loss of 5 % counts as borne: the noise of most hosts moves a result by more, and
    /// agarwal-2015 calls it equal.
    pub const MARGIN: f64 = 0.05;

    fn of(steps: &[DegradationStep]) -> Option<Self> {
        steps.iter().any(|step| step.loss.is_some()).then(|| {
            let certain = |step: &DegradationStep| step.loss.filter(|_| step.sound);
            let holds = |step: &&DegradationStep| certain(step).is_some_and(|loss| loss.high <= Self::MARGIN);
            let within = steps.iter().take_while(holds).last().map_or(1, |step| step.guests);
            // A number that could not be measured says nothing about what lies beyond it.
            let past = |step: &&&DegradationStep| certain(step).is_some_and(|loss| loss.low > Self::MARGIN);
            let measured: Vec<&DegradationStep> = steps.iter().filter(|step| step.loss.is_some()).collect();
            let beyond = measured.iter().rev().take_while(past).last().map(|step| step.guests);
            let between = |guests: &u32| *guests > within && beyond.is_none_or(|beyond| *guests < beyond);
            let undecided = steps.iter().map(|step| step.guests).filter(between).collect();
            Self { margin: Self::MARGIN, within, beyond, undecided }
        })
    }
}

/// The degradation of every primary metric in every environment, by kind of neighbours and shares:
///
/// ```text
/// d[b] = ln cost among N guests in block b - ln cost alone in block b
/// loss = e^mean(d) - 1, interval e^(mean(d) -+ t(.975, k-1) s / sqrt(k)) - 1
/// ```
///
/// There are no p values and no verdicts: each interval is about one number of guests alone.
pub fn degradations(comparisons: &[Comparison], known: &RunFacts<'_>) -> Vec<Degradation> {
    let mut found = Vec::new();
    for family in Family::all(comparisons) {
        for metric in family.metrics() {
            for kind in family.kinds() {
                let of = |environment: &&str| degradation(&family, metric, kind, environment, known);
                found.extend(family.environments().iter().filter_map(of));
            }
        }
    }
    found
}

fn degradation(
    family: &Family<'_>,
    metric: &str,
    kind: &NeighbourKind,
    environment: &str,
    known: &RunFacts<'_>,
) -> Option<Degradation> {
    let alone = family.alone(metric);
    let mut spec = None;
    let mut steps = Vec::new();
    for guests in family.counts(kind) {
        let Some(at) = family.at(metric, guests, Some(kind)) else { continue };
        let Some(own) = series(at, environment) else { continue };
        spec = Some(at.metric.clone());
        let paired = alone.map(|alone| Paired::of(at, alone, environment));
        let median = median(at, environment);
        let part = known.cpus.map(|cpus| (f64::from(cpus) / f64::from(guests)).min(1.0));
        steps.push(DegradationStep {
            guests,
            guests_per_cpu: known.cpus.map(|cpus| f64::from(guests) / f64::from(cpus)),
            up: family.up(environment, guests, kind),
            n: paired.as_ref().map_or(0, |paired| paired.n),
            failed: own.failed,
            median,
            loss: paired.as_ref().and_then(|paired| paired.estimate).map(|estimate| estimate.interval()),
            fair: part.filter(|part| are_bound(family, environment, guests, kind, *part)),
            missing_reason: median.is_none().then(|| known.missing_reason(at, environment)).flatten(),
            sound: paired.is_some_and(|paired| !paired.impaired),
        });
    }
    Some(Degradation {
        key: family.key.clone(),
        metric: spec?,
        environment: environment.into(),
        neighbours: kind.clone(),
        cpus: known.cpus,
        alone: alone.and_then(|alone| super::median(alone, environment)),
        knee: Knee::of(&steps),
        steps,
    })
}

/// Whether each neighbour used nearly all of its equal share, and so would use more. If their use
/// is not known, this is true of neighbours that spin.
fn are_bound(family: &Family<'_>, environment: &str, guests: u32, kind: &NeighbourKind, part: f64) -> bool {
    let told = family.at(neighbours::NEIGHBOURS_CPU, guests, Some(kind));
    match told.and_then(|told| median(told, environment)) {
        Some(cpus) => cpus >= BOUND * part * f64::from(guests.saturating_sub(1)),
        None => kind.load == LoadKind::Cpu,
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::{around, comparison};
    use super::*;
    use crate::analysis::{CellFlag, Flag};
    use weigh_model::Shares;

    /// A guest takes 1 s alone, and these multiples of it among 2, 4 and 8 guests, with a per cent
    /// of noise that the guest alone does not have.
    fn spinning() -> Vec<Comparison> {
        let mut all = vec![comparison("time", 1, "-", Shares::Equal, &[1.0; 6])];
        for (guests, slow) in [(8, 4.0), (2, 1.01), (4, 2.0)] {
            all.push(comparison("time", guests, "cpu", Shares::Equal, &around(slow)));
        }
        all
    }

    fn known(cpus: u32) -> RunFacts<'static> {
        RunFacts { cpus: Some(cpus), ..RunFacts::default() }
    }

    #[test]
    fn a_guest_is_compared_with_itself_alone() {
        let found = degradations(&spinning(), &known(2));
        let [a, b] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((a.environment.as_str(), b.environment.as_str()), ("a", "b"));
        assert_eq!(a.steps.iter().map(|step| step.guests).collect::<Vec<_>>(), [2, 4, 8]);
        assert_eq!(a.steps[2].loss, b.steps[2].loss, "as slow as alone, whatever that is");
        assert_eq!((a.alone, b.alone), (Some(1.0), Some(2.0)));
        // ln(4 * {.99, 1, 1.01}) twice: mean ln 4 + (ln .99 + ln 1.01) / 3, t(.975, 5) = 2.5705818.
        let logs: Vec<f64> = around(4.0).iter().map(|x| x.ln()).collect();
        let mean = logs.iter().sum::<f64>() / 6.0;
        let sd = (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
        let loss = a.steps[2].loss.unwrap();
        assert!((loss.estimate - mean.exp_m1()).abs() < 1e-12);
        let high = (mean + 2.570_581_835_636_314_6 * sd / 6f64.sqrt()).exp_m1();
        assert!((loss.high - high).abs() < 1e-9, "{loss:?}");
        let fair: Vec<Option<f64>> = a.steps.iter().map(|step| step.fair).collect();
        assert_eq!(fair, [Some(1.0), Some(0.5), Some(0.25)]);
        assert_eq!(a.steps[2].guests_per_cpu, Some(4.0));
    }

    #[test]
    fn the_knee_is_bounded_by_certain_intervals() {
        let knee = |all: &[Comparison]| {
            let Knee { within, beyond, undecided, .. } =
                degradations(all, &known(2))[0].knee.clone().unwrap();
            (within, beyond, undecided)
        };
        assert_eq!(knee(&spinning()), (2, Some(4), vec![]));
        // Among four guests, from 0 to 10 % slower.
        let mut unsure = spinning();
        unsure[3] = comparison("time", 4, "cpu", Shares::Equal, &[1.0, 1.1, 1.0, 1.1, 1.0, 1.1]);
        assert_eq!(knee(&unsure), (2, Some(8), vec![4]));
        // After a failed trial, nothing is certain at that number.
        let mut failed = spinning();
        failed[2].series[0].failed = 1;
        assert_eq!(knee(&failed), (1, Some(4), vec![2]));
        // Slower in the middle only: nothing is certain from there on.
        let mut dip = spinning();
        dip[1] = comparison("time", 8, "cpu", Shares::Equal, &around(1.01));
        assert_eq!(knee(&dip), (2, None, vec![4, 8]));
    }

    #[test]
    fn as_many_as_could_be_is_a_result() {
        let mut all = spinning();
        all.push(comparison("time", 16, "cpu", Shares::Equal, &[]));
        all.push(comparison(neighbours::UP, 16, "cpu", Shares::Equal, &[11.0, 12.0]));
        let flags = [CellFlag {
            workload: Some(all[4].workload.clone()),
            metric: Some("time".into()),
            environment: "a".into(),
            flag: Flag::Absent,
            reason: Some("no memory for more than 11".into()),
        }];
        let found = degradations(&all, &RunFacts { flags: &flags, ..known(2) });
        let last = found[0].steps.last().unwrap();
        assert_eq!((last.guests, last.up, last.median, last.loss), (16, Some(11), None, None));
        assert_eq!(last.missing_reason.as_deref(), Some("no memory for more than 11"));
        let knee = found[0].knee.as_ref().unwrap();
        assert_eq!((knee.within, knee.beyond), (2, Some(4)), "what was not measured says nothing");
    }

    #[test]
    fn nothing_is_certain_where_some_blocks_had_too_few_guests() {
        let mut all = spinning();
        all.push(comparison(neighbours::UP, 4, "cpu", Shares::Equal, &[4.0, 3.0, 4.0, 4.0, 4.0, 4.0]));
        all[3].series[0].observations.remove(1);
        let found = degradations(&all, &known(2));
        let step = &found[0].steps[1];
        assert_eq!((step.guests, step.up, step.n, step.sound), (4, Some(3), 5, false));
        assert!(step.loss.is_some_and(|loss| loss.low > Knee::MARGIN), "the others are shown: {step:?}");
        let knee = found[0].knee.as_ref().unwrap();
        assert_eq!((knee.within, knee.beyond, knee.undecided.as_slice()), (2, Some(8), &[4][..]));
        assert!(found[1].steps[1].sound, "all blocks of the other environment have a value");
    }

    #[test]
    fn neighbours_that_do_not_fill_the_cpus_have_no_fair_part() {
        let mut all = spinning();
        all.push(comparison("time", 8, "io", Shares::Equal, &around(1.2)));
        all.push(comparison(neighbours::NEIGHBOURS_CPU, 8, "cpu", Shares::Equal, &[1.7; 6]));
        let found = degradations(&all, &known(2));
        let fair = |kind: &str| {
            let of = found
                .iter()
                .find(|d| d.neighbours.load == LoadKind::from(kind.to_string()) && d.environment == "a")
                .unwrap();
            of.steps.last().unwrap().fair
        };
        assert_eq!((fair("cpu"), fair("io")), (Some(0.25), None));
        // The shares of seven neighbours are 1.75 CPUs, and those of three are 1.5: with 1, the
        // three were idle at times.
        all.push(comparison(neighbours::NEIGHBOURS_CPU, 4, "cpu", Shares::Equal, &[1.0; 6]));
        let found = degradations(&all, &known(2));
        assert_eq!(found[0].steps.iter().map(|s| s.fair.is_some()).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn other_footprints_have_no_degradation() {
        let footprint = comparison("time", 4, "-", Shares::Equal, &[1.0; 6]);
        assert_eq!(degradations(&[footprint], &known(2)), []);
        // Without a guest alone there are values but no loss.
        let found = degradations(&spinning()[1..], &RunFacts::default());
        assert!(found[0].knee.is_none() && found[0].steps[0].median.is_some());
        assert_eq!((found[0].steps[0].n, found[0].steps[0].loss, found[0].steps[0].fair), (0, None, None));
    }
}
