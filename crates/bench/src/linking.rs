//! Static against dynamic linking: the commands of a package's `weigh`, which has musl, against those
//! of the product's own build, and the kernels that guests run against the same with shared libraries.

use crate::{Fallible, Line, Outcome, analyse, built, guest_program, median, ratio};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weigh_host::command::{Finished, Invocation};

/// Names a static `weigh`.
const VARIABLE: &str = "WEIGH_STATIC";
const ROUNDS: usize = 10;
const HELP: &str = "help";
/// Those that call the C library or the kernel, or are large enough for their place in memory to
/// matter.
const KERNELS: [&str; 5] = [
    "noploop --nops 100000000 --repetitions 5",
    "stream --array-bytes 67108864 --repetitions 10",
    "gups --table-bytes 67108864 --updates 8388608",
    "lzma --bytes 4194304",
    "syscall --operations getpid,read,mmap_munmap,context_switch --batches 10",
];

/// Times the help and an analysis of a million samples.
pub fn commands() -> Outcome {
    let packaged = std::env::var_os(VARIABLE)
        .ok_or_else(|| format!("{VARIABLE} names no weigh; `packaging/dist` makes one, below target"))?;
    let (packaged, own) = (Path::new(&packaged), built("weigh")?);
    let mut samples = tempfile::Builder::new().suffix(".csv").tempfile()?;
    analyse::write(samples.as_file_mut())?;
    let samples = samples.into_temp_path();
    let samples = samples.to_str().ok_or("the path is no text")?;
    let mut lines = Vec::new();
    for (what, line) in [(HELP, vec!["--help"]), ("analyse 1000000 samples", vec!["analyse", samples])] {
        let time = |program: &Path| -> Fallible<f64> { Ok(run(program, &line)?.took.as_secs_f64()) };
        let (mut fixed, mut shared) = alternate(|| time(packaged), || time(&own))?;
        let (value, text) = ratio(&fixed, &shared)?;
        let (fixed, shared) = (median(&mut fixed) * 1e3, median(&mut shared) * 1e3);
        if what == HELP {
            let what = format!("{what}, static (median)");
            lines.push(Line { what, value: format!("{fixed:.1} ms"), goal: "<= 10 ms", met: fixed <= 10.0 });
        }
        let what = format!("{what}: static {fixed:.1} ms, dynamic {shared:.1} ms (medians)");
        lines.push(Line { what, value: text, goal: "<= 1.1", met: value <= 1.1 });
    }
    Ok(lines)
}

/// Compares every metric of the kernels.
pub fn kernels() -> Outcome {
    let target = built("weigh")?;
    let own = target.ancestors().nth(2).ok_or("no target directory")?.join("kernels/weigh-kernels");
    let embedded = guest_program("weigh-kernels", "kernels")?;
    let mut lines = Vec::new();
    for kernel in KERNELS {
        let line: Vec<&str> = kernel.split(' ').collect();
        let (fixed, shared) = alternate(|| metrics(&embedded, &line), || metrics(&own, &line))?;
        for name in fixed[0].keys() {
            let values = |all: &[BTreeMap<String, f64>]| -> Vec<f64> {
                all.iter().filter_map(|metrics| metrics.get(name).copied()).collect()
            };
            let (value, text) = ratio(&values(&fixed), &values(&shared))?;
            let what = format!("{} {name}", line[0]);
            lines.push(Line { what, value: text, goal: "0.97 to 1.03", met: (value - 1.0).abs() <= 0.03 });
        }
    }
    Ok(lines)
}

/// Takes both measurements in every round, in alternating order. Returns those of the first and
/// those of the second, after a round that is not kept.
fn alternate<T>(
    first: impl Fn() -> Fallible<T>,
    second: impl Fn() -> Fallible<T>,
) -> Fallible<(Vec<T>, Vec<T>)> {
    first()?;
    second()?;
    let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            firsts.push(first()?);
        }
        seconds.push(second()?);
        if round % 2 != 0 {
            firsts.push(first()?);
        }
    }
    Ok((firsts, seconds))
}

fn metrics(program: &Path, line: &[&str]) -> Fallible<BTreeMap<String, f64>> {
    let printed: serde_json::Value = serde_json::from_slice(&run(program, line)?.output)?;
    let metrics = printed["metrics"].as_object().ok_or("no metrics")?;
    let number =
        |(name, metric): (&String, &serde_json::Value)| Some((name.clone(), metric["value"].as_f64()?));
    Ok(metrics.iter().filter_map(number).collect())
}

fn run(program: &Path, line: &[&str]) -> Fallible<Finished> {
    Ok(Invocation::new(program).args(line).deadline(Duration::from_secs(120)).run_ok()?)
}
