//! What a fake guest plays: times, noise, drift and faults, all decided by the keys.

use crate::helpers::fnv_1a;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_model::{EnvironmentSpec, SpecError, parse_duration};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The command exits with status 1.
    Exit,
    /// The command's own check fails: status 3.
    Check,
    /// The output is not what the workload promises.
    Garbage,
    /// There is no such program.
    Missing,
    /// The command runs until it is killed.
    Hang,
    /// The guest stops answering.
    Mute,
    /// The guest is gone.
    Die,
}

/// The parsed keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    pub(super) time: Duration,
    pub(super) real: bool,
    pub(super) refuses_to_launch: bool,
    /// How long the guest's start is said to take; the real time when absent.
    launch_time: Option<Duration>,
    /// The guest says that it has its own boot.
    pub(super) own_kernel: bool,
    /// Rate of the guest's clock.
    pub(super) clock: f64,
    /// CPUs that the guest says it has.
    pub(super) cpus: Option<u32>,
    there: Duration,
    back: Duration,
    jitter: Duration,
    pub(super) seed: u64,
    effect: f64,
    sd: f64,
    drift: Drift,
    fault: Option<Fault>,
    at: Option<u64>,
    every: Option<u64>,
}

impl Script {
    /// Reads the keys; `setting` knows their defaults.
    pub(super) fn read<'a>(
        environment: &EnvironmentSpec,
        setting: impl Fn(&str) -> &'a str,
    ) -> Result<Self, SpecError> {
        let fraction = |key: &str| {
            let number =
                setting(key).parse::<f64>().ok().filter(|number| number.is_finite() && *number > -1.0);
            number.ok_or_else(|| wrong(environment, key, "a fraction", "0.05"))
        };
        let number = |key: &str| match setting(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong(environment, key, "a whole number", "3")),
        };
        let duration = |key: &str| {
            parse_duration(setting(key)).map_err(|_| wrong(environment, key, "a duration", "10ms"))
        };
        let rate = setting("clock").parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 0.0);
        let cpus = number("cpus")?.map(|cpus: u64| u32::try_from(cpus).unwrap_or(u32::MAX).min(4096));
        let fault = match setting("fault") {
            "exit" => Some(Fault::Exit),
            "check" => Some(Fault::Check),
            "garbage" => Some(Fault::Garbage),
            "missing" => Some(Fault::Missing),
            "hang" => Some(Fault::Hang),
            "mute" => Some(Fault::Mute),
            "die" => Some(Fault::Die),
            _ => None,
        };
        Ok(Self {
            time: duration("time")?,
            real: setting("real") == "yes",
            refuses_to_launch: setting("launch") == "fail",
            launch_time: if setting("launch-time").is_empty() {
                None
            } else {
                Some(duration("launch-time")?)
            },
            own_kernel: setting("kernel") == "own",
            clock: rate.ok_or_else(|| wrong(environment, "clock", "a rate, not negative", "1.01"))?,
            cpus,
            there: duration("there")?,
            back: duration("back")?,
            jitter: duration("jitter")?,
            seed: number("seed")?.unwrap_or(1),
            effect: fraction("effect")?,
            sd: fraction("sd")?,
            drift: Drift::read(setting("drift")).ok_or_else(|| {
                wrong(environment, "drift", "none, linear-F, arRHO-SD or step-F", "ar0.9-0.02")
            })?,
            fault,
            at: number("at")?,
            every: number("every")?,
        })
    }

    /// Returns what goes wrong with the command of this number in its instance. Without `at` and
    /// `every` it is the first command.
    pub(super) fn fault(&self, command: u64) -> Option<Fault> {
        let at = self.at.or(if self.every.is_none() { Some(0) } else { None });
        let periodic = self.every.is_some_and(|every| every > 0 && (command + 1).is_multiple_of(every));
        self.fault.filter(|_| at == Some(command) || periodic)
    }

    /// Whether the guest has its own clock.
    pub(super) fn has_own_clock(&self) -> bool {
        self.own_kernel || self.clock != 1.0
    }

    /// Returns how long the next request, or the next answer, is under way.
    pub(super) fn way(&self, answer: bool, noise: &mut Noise) -> Duration {
        let way = if answer { self.back } else { self.there };
        if self.jitter.is_zero() { way } else { way + self.jitter.mul_f64(noise.uniform()) }
    }

    /// Returns how long the start of this guest is said to take, with the noise and the effect that
    /// commands have.
    pub(super) fn launch_time(&self, noise: &mut Noise) -> Option<Duration> {
        let time = self.launch_time?;
        Some(time.mul_f64((1.0 + self.effect) * (self.sd * noise.normal()).exp()))
    }

    /// Returns the time that a command takes.
    pub(super) fn duration(&self, run: &str, noise: &mut Noise) -> Duration {
        let drift = drift_of_next_command(run, self.drift, self.seed);
        self.time.mul_f64((1.0 + self.effect) * (self.sd * noise.normal() + drift).exp())
    }
}

fn wrong(environment: &EnvironmentSpec, key: &str, what: &str, example: &str) -> SpecError {
    let value = environment.get(key).unwrap_or_default();
    let message = format!("{key} must be {what}, not `{value}`");
    environment.value_error(key, message, format!("as in `{key}={example}`"))
}

/// Random numbers from a seed.
#[derive(Debug)]
pub(super) struct Noise(Pcg64);

impl Noise {
    /// Makes the numbers of one environment and instance, which differ from those of others.
    pub(super) fn new(seed: u64, environment: &str, instance: u64) -> Self {
        // Stable over versions of Rust, unlike the standard library's hasher.
        let hash = fnv_1a(environment.bytes().chain(instance.to_le_bytes()));
        Self(Pcg64::seed_from_u64(seed ^ hash))
    }

    fn uniform(&mut self) -> f64 {
        // 53 bits, never 0, so that its logarithm exists.
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Returns a normally distributed number (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A disturbance that all environments of a run share, as a function of the number of the command
/// in the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Drift {
    None,
    Linear { per_command: f64 },
    Autoregressive { rho: f64, sd: f64 },
    Step { height: f64 },
}

impl Drift {
    fn read(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        if text == "none" {
            return Some(Self::None);
        }
        if let Some(fraction) = text.strip_prefix("linear-") {
            return Some(Self::Linear { per_command: number(fraction)?.ln_1p() / 100.0 });
        }
        if let Some(height) = text.strip_prefix("step-") {
            return Some(Self::Step { height: number(height)?.ln_1p() });
        }
        let (rho, sd) = text.strip_prefix("ar")?.split_once('-')?;
        let rho = number(rho).filter(|rho| rho.abs() < 1.0)?;
        Some(Self::Autoregressive { rho, sd: number(sd)? })
    }

    /// Returns the next logarithm after `last`, for command number `count`.
    fn next(self, count: u64, last: f64, noise: &mut Noise) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Linear { per_command } => per_command * count as f64,
            Self::Autoregressive { sd, .. } if count == 0 => sd * noise.normal(),
            Self::Autoregressive { rho, sd } => rho * last + sd * (1.0 - rho * rho).sqrt() * noise.normal(),
            // The level changes once in 40 commands on average, at places that the seed decides.
            Self::Step { height } => match (noise.uniform() < 1.0 / 40.0, last == 0.0) {
                (true, true) => height,
                (true, false) => 0.0,
                (false, _) => last,
            },
        }
    }
}

/// The commands of one run so far, and the drifts that its environments follow.
#[derive(Default)]
struct Shared {
    commands: u64,
    drifts: BTreeMap<String, (Noise, Vec<f64>)>,
}

static RUNS: Mutex<BTreeMap<String, Shared>> = Mutex::new(BTreeMap::new());

/// Returns the logarithm of the drift at the run's next command, counted over all its environments.
fn drift_of_next_command(run: &str, drift: Drift, seed: u64) -> f64 {
    // Nothing is left half done when a holder panics: the numbers are only ever appended.
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = runs.entry(run.into()).or_default();
    let at = shared.commands;
    shared.commands += 1;
    let start = || (Noise::new(seed, "drift", 0), Vec::new());
    let (noise, values) = shared.drifts.entry(format!("{drift:?} {seed}")).or_insert_with(start);
    while values.len() as u64 <= at {
        let last = values.last().copied().unwrap_or(0.0);
        let next = drift.next(values.len() as u64, last, noise);
        values.push(next);
    }
    values.last().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{null::Null, setting};

    fn script(text: &str) -> Result<Script, SpecError> {
        let environment = EnvironmentSpec::parse(text).unwrap();
        Script::read(&environment, |key| setting(&Null, &environment, key))
    }

    fn times(text: &str, run: &str, count: usize) -> Vec<f64> {
        let script = script(text).unwrap();
        let mut noise = Noise::new(script.seed, text, 0);
        (0..count)
            .map(|_| script.duration(run, &mut noise).as_secs_f64() / script.time.as_secs_f64())
            .collect()
    }

    #[test]
    fn faults_strike_the_requested_commands() {
        let struck =
            |text: &str| (0..8).filter(|n| script(text).unwrap().fault(*n).is_some()).collect::<Vec<_>>();
        assert_eq!(struck("null"), Vec::<u64>::new());
        assert_eq!(struck("null:fault=exit"), [0]);
        assert_eq!(struck("null:fault=exit,at=3"), [3]);
        assert_eq!(struck("null:fault=exit,every=3"), [2, 5]);
        assert_eq!(struck("null:fault=exit,at=0,every=4"), [0, 3, 7]);
    }

    #[test]
    fn bad_values_are_underlined() {
        for (text, bad) in [
            ("null:time=soon", "soon"),
            ("null:sd=x", "x"),
            ("null:drift=ar2-0.1", "ar2-0.1"),
            ("null:effect=-1", "-1"),
            ("null:clock=-1", "-1"),
            ("null:jitter=some", "some"),
        ] {
            let error = script(text).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], bad, "{error}");
        }
    }

    #[test]
    fn noise_has_the_spread_that_is_asked_for() {
        let logs: Vec<f64> = times("null:sd=0.1", "noise", 4000).iter().map(|x| x.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let sd = (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64).sqrt();
        // Standard errors at n = 4000: .0016 and .0011.
        assert!(mean.abs() < 0.007, "{mean}");
        assert!((sd - 0.1).abs() < 0.005, "{sd}");
    }

    #[test]
    fn drift_is_shared_within_a_run_and_the_same_in_the_next() {
        let first = times("null:drift=ar0.9-0.02", "drift-a", 50);
        assert_eq!(first, times("null:drift=ar0.9-0.02", "drift-b", 50));
        assert_ne!(first, times("null:drift=ar0.9-0.02,seed=2", "drift-c", 50));
        // Two environments in turns see one sequence.
        let turns: Vec<f64> = (0..50)
            .map(|n| {
                times(["null:drift=ar0.9-0.02", "null:drift=ar0.9-0.02,label=b"][n % 2], "drift-d", 1)[0]
            })
            .collect();
        assert_eq!(first, turns);
    }

    #[test]
    fn linear_drift_and_effect_are_exact() {
        let times = times("null:drift=linear-0.03,effect=0.5", "linear", 101);
        assert!((times[0] - 1.5).abs() < 1e-6);
        assert!((times[100] / times[0] - 1.03).abs() < 1e-6, "{}", times[100] / times[0]);
    }

    #[test]
    fn steps_have_two_levels() {
        let times = times("null:drift=step-0.05", "step", 400);
        let high = times.iter().filter(|x| (**x - 1.05).abs() < 1e-6).count();
        let low = times.iter().filter(|x| (**x - 1.0).abs() < 1e-6).count();
        assert_eq!(high + low, 400);
        assert!(high > 40 && low > 40, "{high} {low}");
    }
}
