//! Prints how weighbridge itself compares: both sides of each ratio are measured side by side, in
//! randomised order, in one run.
//!
//! `make bench` builds the product and runs this. A measurement whose program is missing on the
//! host (hyperfine, runc) is skipped, with a message. A word after the program's name selects the
//! measurements with that word in their names.
#![expect(clippy::print_stdout, reason = "a program for the terminal, outside of the product")]

mod analyse;
mod boot;
mod boot_qemu;
mod guests;
mod hyperfine;
mod linking;
mod long_run;
mod pool;
mod precision;
mod probe;
mod sensors;
mod slices;
mod spawn;
mod speeds;

use std::path::PathBuf;
use weigh_model::{Comparison, MetricSpec, Observation, Series};

/// A line of the result: what was measured, its value, the goal, and whether the goal is met.
pub struct Line {
    what: String,
    value: String,
    goal: &'static str,
    met: bool,
}

/// The result of a measurement: lines, or why it was not made.
pub type Outcome = Fallible<Vec<Line>>;

/// The result of a step. A failure skips the measurement, and its text is printed.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A measurement and its name.
type Measurement = (&'static str, fn() -> Outcome);

fn main() {
    let measurements: [Measurement; 13] = [
        ("probe", probe::measure),
        ("start of a guest", spawn::measure),
        ("boot of a machine", boot::measure),
        ("boot of qemu", boot_qemu::measure),
        ("sensors", sensors::measure),
        ("slices", slices::measure),
        ("precision", precision::measure),
        ("analysis", analyse::measure),
        ("pool", pool::measure),
        ("speed of commands", speeds::measure),
        ("static weigh", linking::commands),
        ("static kernels", linking::kernels),
        ("hyperfine", hyperfine::measure),
    ];
    let only = std::env::args().nth(1).unwrap_or_default();
    let mut missed = 0;
    for (name, measure) in measurements.into_iter().filter(|(name, _)| name.contains(&only)) {
        println!("{name}");
        match measure() {
            Ok(lines) => {
                for line in &lines {
                    let mark = if line.met { "met   " } else { "MISSED" };
                    println!("  {mark}  {}: {}  (goal: {})", line.what, line.value, line.goal);
                }
                missed += lines.iter().filter(|line| !line.met).count();
            }
            Err(reason) => println!("  skipped: {reason}"),
        }
    }
    println!("kernels: see `cargo run --release --package weigh-kernels --example versus_c`");
    println!("{missed} goals missed");
}

/// A file of the product's own build, from this program's directory.
fn built(name: &str) -> Fallible<PathBuf> {
    let here = std::env::current_exe()?;
    let release = here.parent().ok_or("this program lies in no directory")?;
    let path = release.join(name);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display()).into()) }
}

/// The guest program that the product's build made.
fn guest_program(name: &str, profile: &str) -> Fallible<PathBuf> {
    let target = built("weigh")?.ancestors().nth(2).ok_or("no target directory")?.join("guest").join(profile);
    let triples = std::fs::read_dir(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    triples
        .flatten()
        .map(|triple| triple.path().join(profile).join(name))
        // A build for another target may have left an older one.
        .max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
        .filter(|path| path.exists())
        .ok_or_else(|| format!("{name} is not below {}", target.display()).into())
}

/// Ratio of `measured` to `reference`, paired by position, as `median [low, high]` of the mean
/// effect.
fn ratio(measured: &[f64], reference: &[f64]) -> Fallible<(f64, String)> {
    let series = |name: &str, values: &[f64]| Series {
        environment: name.into(),
        observations: (0u32..)
            .zip(values)
            .map(|(block, value)| Observation { block: Some(block), value: *value })
            .collect(),
        failed: 0,
        tried: values.len() as u32,
    };
    let comparison = Comparison {
        workload: "bench".into(),
        key: Default::default(),
        metric: MetricSpec::time("time"),
        series: vec![series("reference", reference), series("measured", measured)],
    };
    let analysis = weigh_stats::analyse(&[comparison], &weigh_stats::Options::new("reference"));
    let cell = analysis.cells.iter().find(|cell| cell.environment == "measured").ok_or("no cell")?;
    let overhead = cell.overhead.as_ref().ok_or("too few pairs")?;
    let text = format!(
        "{:.3} [{:.3}, {:.3}] ({} pairs)",
        1.0 + overhead.estimate,
        1.0 + overhead.low,
        1.0 + overhead.high,
        cell.n
    );
    Ok((1.0 + overhead.estimate, text))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
