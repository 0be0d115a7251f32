//! Programs that do the same, in blocks of random order, and the ratios between them.

use assert_cmd::Command;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why there is no result.
pub type Failure = Box<dyn std::error::Error>;

/// Values by name. Those whose name begins with `latency` are better when they are lower.
pub type Metrics = BTreeMap<String, f64>;

/// One program of a contest.
pub struct Program {
    /// As the table calls it.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn Fn() -> Result<Metrics, Failure>>,
}

/// Ours, which comes first, and what it is compared with.
pub struct Contest {
    /// As the table calls it.
    pub name: String,
    /// A rate fails whose whole interval is farther from 1 than this.
    pub margin: f64,
    /// Ours first.
    pub programs: Vec<Program>,
}

/// Builds `weigh-kernels` as it is shipped: static, with its own profile, for any CPU.
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

/// The line above the ratios.
pub fn print_head(output: &mut impl std::io::Write) -> Result<(), Failure> {
    let (ours, theirs) = ("ours", "theirs");
    Ok(writeln!(output, "{:<40} {:<24} {ours:>11} {theirs:>11}  ratio [95 % interval]", "metric", "against")?)
}

impl Contest {
    /// Runs it and prints a line for each metric. Whether no interval lies outside of the margin.
    pub fn run(
        &self,
        output: &mut impl std::io::Write,
        blocks: usize,
        random: &mut Pcg64Mcg,
    ) -> Result<bool, Failure> {
        let rounds = self.rounds(blocks, random)?;
        let mut good = true;
        for metric in rounds[0][0].keys() {
            for (theirs, program) in self.programs.iter().enumerate().skip(1) {
                let pairs: Vec<(f64, f64)> = rounds
                    .iter()
                    .map(|round| Ok((value(&round[0], metric)?, value(&round[theirs], metric)?)))
                    .collect::<Result<_, Failure>>()?;
                let is_latency = metric.starts_with("latency");
                let sign = if is_latency { -1.0 } else { 1.0 };
                let logs: Vec<f64> = pairs.iter().map(|(ours, theirs)| sign * (ours / theirs).ln()).collect();
                let (mean, half) = t_interval(&logs)?;
                let (low, high) = ((mean - half).exp(), (mean + half).exp());
                let judged = !is_latency;
                let outside = judged && (high < 1.0 - self.margin || low > 1.0 + self.margin);
                good &= !outside;
                writeln!(
                    output,
                    "{:<40} {:<24} {:>11.4e} {:>11.4e}  {:.3} [{low:.3}, {high:.3}]{}",
                    format!("{} {metric}", self.name),
                    program.name,
                    median(pairs.iter().map(|pair| pair.0)),
                    median(pairs.iter().map(|pair| pair.1)),
                    mean.exp(),
                    if outside { format!("  outside of 1 +- {}", self.margin) } else { String::new() }
                )?;
            }
        }
        Ok(good)
    }

    /// One unmeasured round, then `blocks` rounds of all programs in random order. One entry per round, in program order.
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
