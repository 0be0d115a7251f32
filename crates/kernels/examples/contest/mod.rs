//! Runs programs that do the same work, in blocks of random order, and compares their results.

use assert_cmd::Command;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Why a contest has no result.
pub type Failure = Box<dyn std::error::Error>;

/// Values by name.
pub type Metrics = BTreeMap<String, f64>;

/// One program of a contest.
pub struct Program {
    /// The name in the table.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn Fn() -> Result<Metrics, Failure>>,
}

/// Describes what is wrong with a metric, given its name and the ends of its interval.
pub type Judge = Box<dyn Fn(&str, f64, f64) -> Option<String>>;

/// Our program, which comes first, and those that it is compared with.
pub struct Contest {
    /// The name in the table.
    pub name: String,
    /// Whether a metric of this name is better when it is lower.
    pub lower_is_better: fn(&str) -> bool,
    /// Judges the ratio of a metric by the ends of its interval.
    pub judge: Judge,
    /// Ours first.
    pub programs: Vec<Program>,
}

/// Builds `weigh-kernels` as in a release: static, with its own profile, for any CPU.
pub fn build_ours() -> Result<PathBuf, Failure> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(cargo)
        .args(["build", "--quiet", "--profile", "kernels", "-p", "weigh-kernels", "--bin", "weigh-kernels"])
        .args(["--target", &triple])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .timeout(Duration::from_secs(900))
        .ok()?;
    Ok(target.join(triple).join("kernels/weigh-kernels"))
}

/// Ends a program with the outcome of its contests: all passed, some failed, or an error.
pub fn end(program: &str, outcome: Result<bool, Failure>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The random numbers that order the rounds.
pub fn random(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(seed) << 64 | 1)
}

/// The line above the ratios.
pub fn print_head(output: &mut impl Write) -> Result<(), Failure> {
    let (ours, theirs) = ("ours", "theirs");
    Ok(writeln!(output, "{:<40} {:<59} {ours:>11} {theirs:>11}  ratio [95 % interval]", "metric", "against")?)
}

impl Contest {
    /// Runs the contest and prints a line for each metric that all programs have. Returns whether
    /// no metric is judged wrong.
    pub fn run(
        &self,
        output: &mut impl Write,
        blocks: usize,
        random: &mut Pcg64Mcg,
    ) -> Result<bool, Failure> {
        let rounds = self.rounds(blocks, random)?;
        let mut good = true;
        // A metric that the other programs do not measure cannot be compared.
        let everywhere = |metric: &&String| rounds[0].iter().all(|result| result.contains_key(*metric));
        for metric in rounds[0][0].keys().filter(everywhere) {
            for (theirs, program) in self.programs.iter().enumerate().skip(1) {
                let pairs: Vec<(f64, f64)> = rounds
                    .iter()
                    .map(|round| Ok((value(&round[0], metric)?, value(&round[theirs], metric)?)))
                    .collect::<Result<_, Failure>>()?;
                let sign = if (self.lower_is_better)(metric) { -1.0 } else { 1.0 };
                let logs: Vec<f64> = pairs.iter().map(|(ours, theirs)| sign * (ours / theirs).ln()).collect();
                let (mean, half) = t_interval(&logs)?;
                let (low, high) = ((mean - half).exp(), (mean + half).exp());
                let wrong = (self.judge)(metric, low, high);
                good &= wrong.is_none();
                writeln!(
                    output,
                    "{:<40} {:<59} {:>11.4e} {:>11.4e}  {:.3} [{low:.3}, {high:.3}]{}",
                    format!("{} {metric}", self.name),
                    program.name,
                    median(pairs.iter().map(|pair| pair.0)),
                    median(pairs.iter().map(|pair| pair.1)),
                    mean.exp(),
                    wrong.map(|wrong| format!("  {wrong}")).unwrap_or_default()
                )?;
            }
        }
        Ok(good)
    }

    /// One unmeasured round, then `blocks` rounds of all programs in random order. One entry per
    /// round, in program order.
    fn rounds(&self, blocks: usize, random: &mut Pcg64Mcg) -> Result<Vec<Vec<Metrics>>, Failure> {
        for program in &self.programs {
            (program.run)()?;
        }
        let mut rounds = Vec::new();
        for _ in 0..blocks {
            let mut order: Vec<usize> = (0..self.programs.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
            }
            let mut round = vec![Metrics::new(); order.len()];
            for which in order {
                round[which] = (self.programs[which].run)()?;
            }
            rounds.push(round);
        }
        Ok(rounds)
    }
}

fn value(metrics: &Metrics, name: &str) -> Result<f64, Failure> {
    metrics.get(name).copied().ok_or_else(|| format!("a program gives no {name}").into())
}

/// Mean and half-width of the 95 % interval.
fn t_interval(values: &[f64]) -> Result<(f64, f64), Failure> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let quantile = StudentsT::new(0.0, 1.0, n - 1.0)?.inverse_cdf(0.975);
    Ok((mean, quantile * (variance / n).sqrt()))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
