//! What slices gain: the half-widths of intervals after the same machine time in slices and in
//! whole trials, for native against itself and docker against native, beside a process that keeps a
//! CPU busy intermittently.

use crate::{Fallible, Line, Outcome, built};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};

/// The workloads, some with the only metric considered; else all primary metrics are.
const WORKLOADS: [(&str, Option<&str>); 8] = [
    ("noploop", None),
    ("spin", None),
    ("memory-latency", None),
    ("gups", None),
    ("syscall", Some("getpid")),
    ("lzma", None),
    ("lu", None),
    ("stream", None),
];
/// Machine time of each run, including its pilot.
const BUDGET: &str = "60s";
/// Least ratio of a half-width in whole trials to that in slices.
const GAIN_GOAL: f64 = 8.0;
/// Largest half-width in slices, per cent.
const WIDTH_GOAL_PERCENT: f64 = 1.0;
const WORKLOADS_GOAL: usize = 6;

/// The results of one run.
struct Found {
    blocks: u64,
    /// Half the width of the widest interval of a primary metric, per cent: of native against
    /// itself, and of docker against native.
    itself_percent: f64,
    docker_percent: f64,
}

impl Found {
    fn widest_percent(&self) -> f64 {
        self.itself_percent.max(self.docker_percent)
    }
}

/// Runs each workload in slices and in whole trials, in alternating order.
pub fn measure() -> Outcome {
    find_program("docker").ok_or("docker is not installed")?;
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_busy(&stop));
        let lines = compare(&weigh, scratch.path());
        stop.store(true, Ordering::Relaxed);
        Ok(lines)
    })
}

fn compare(weigh: &Path, scratch: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut narrow = 0;
    for (position, (name, metric)) in WORKLOADS.into_iter().enumerate() {
        let run =
            |slices: &str| run(weigh, &scratch.join(format!("{name}-{slices}")), (name, metric), slices);
        let both = || match position % 2 {
            0 => run("off").and_then(|whole| Ok((run("auto")?, whole))),
            _ => Ok((run("auto")?, run("off")?)),
        };
        lines.push(match both() {
            Ok((sliced, whole)) => {
                narrow += usize::from(sliced.widest_percent() <= WIDTH_GOAL_PERCENT);
                line(name, &sliced, &whole)
            }
            // Fewer than three blocks fit the time.
            Err(reason) => Line { what: name.into(), value: reason.to_string(), goal: ">= 8", met: false },
        });
    }
    lines.push(Line {
        what: "workloads with intervals of at most +- 1 % in slices".into(),
        value: format!("{narrow} of {}", WORKLOADS.len()),
        goal: ">= 6",
        met: narrow >= WORKLOADS_GOAL,
    });
    lines
}

fn line(name: &str, sliced: &Found, whole: &Found) -> Line {
    let gain =
        f64::min(whole.itself_percent / sliced.itself_percent, whole.docker_percent / sliced.docker_percent);
    Line {
        what: format!(
            "{name}: native against itself +- {:.2} % in slices, +- {:.1} % whole; docker +- {:.2} % and \
             +- {:.1} % ({} and {} blocks)",
            sliced.itself_percent,
            whole.itself_percent,
            sliced.docker_percent,
            whole.docker_percent,
            sliced.blocks,
            whole.blocks,
        ),
        value: format!("{gain:.1} times as narrow at least"),
        goal: ">= 8",
        met: gain >= GAIN_GOAL,
    }
}

fn run(weigh: &Path, out: &Path, (workload, metric): (&str, Option<&str>), slices: &str) -> Fallible<Found> {
    let finished = Invocation::new(weigh)
        .args(["run", workload])
        .args(["--on", "native;native:label=again;docker", "--no-void", "--size", "quick"])
        .args(["--blocks", "10000", "--budget", BUDGET, "--slices", slices, "--format", "json"])
        .args(["--out", &out.display().to_string()])
        .deadline(Duration::from_secs(300))
        .run_ok()?;
    let report: Value = serde_json::from_slice(&finished.output)?;
    let half_width = |environment: &str| {
        report["cells"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|cell| cell["environment"] == environment && cell["primary"] == true)
            .filter(|cell| metric.is_none_or(|metric| cell["metric"] == metric))
            .filter_map(|cell| {
                let overhead = &cell["overhead"];
                Some((overhead["ci_high"].as_f64()? - overhead["ci_low"].as_f64()?) / 2.0 * 100.0)
            })
            .reduce(f64::max)
            .ok_or_else(|| format!("{}: no interval of {environment}", out.display()))
    };
    Ok(Found {
        blocks: report["blocks"]["done"].as_u64().unwrap_or_default(),
        itself_percent: half_width("native:label=again")?,
        docker_percent: half_width("docker")?,
    })
}

/// Uses a CPU for .05 to .5 s, then rests for .05 to 1 s, until told to stop.
fn keep_busy(stop: &AtomicBool) {
    let mut random = Pcg64Mcg::new(1);
    let mut between = |low_s: f64, high_s: f64| {
        let share = random.next_u32() as f64 / f64::from(u32::MAX);
        Duration::from_secs_f64(low_s + share * (high_s - low_s))
    };
    while !stop.load(Ordering::Relaxed) {
        let (busy, rest) = (between(0.05, 0.5), between(0.05, 1.0));
        let began = Instant::now();
        while began.elapsed() < busy {
            std::hint::spin_loop();
        }
        std::thread::sleep(rest);
    }
}
