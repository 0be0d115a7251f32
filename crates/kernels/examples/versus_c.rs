//! The kernels against the same loops in C, against `xz` and against OpenBLAS: one command, one table.
//!
//! ```text
//! cargo run --release -p weigh-kernels --example versus_c -- [--blocks 15] [--seed 1] [--only stream,gups] [--ours PROGRAM]
//! ```
//!
//! Builds `weigh-kernels` as it is shipped, compiles `benches-c/*.c` with gcc, and runs all of them in blocks: each block
//! has every program once, in random order. A ratio is ours to theirs, above 1 when ours is better; its interval is the
//! t interval of the mean of the logarithms over blocks. Exit code 1 when an interval lies wholly below its target.

use assert_cmd::Command;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;
type Metrics = BTreeMap<String, f64>;

/// Long enough for every program on a slow machine; one that hangs must not hang this one.
const DEADLINE: Duration = Duration::from_secs(120);

/// Threads bound to CPUs as ours are: on a busy machine that alone would make a difference. OpenBLAS is compared on one thread.
const ENVIRONMENT: [(&str, &str); 2] = [("OMP_PROC_BIND", "true"), ("OPENBLAS_NUM_THREADS", "1")];

const STREAM_ELEMENTS: u64 = 16 << 20;
const STREAM_REPETITIONS: &str = "20";
const TABLE_BYTES: &str = "67108864";
const UPDATES: &str = "33554432";
const TEXT_BYTES: usize = 12 << 20;
const NATIVE: &[&str] = &["-O3", "-march=native", "-fopenmp"];
const WIDE: &[&str] = &["-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp"];
const PLAIN: &[&str] = &["-O3", "-fopenmp"];
/// The library stands before the source that needs it; without the first flag the linker would drop it.
const BLAS: &[&str] = &["-O3", "-Wl,--no-as-needed", "-lopenblas"];
/// Order of the system of equations: large enough that products of matrices are nearly all of it.
const ORDER: &str = "4000";

/// One program of a contest.
struct Program {
    name: String,
    run: Box<dyn Fn() -> Result<Metrics, Failure>>,
}

/// Ours, which comes first, and what it is compared with.
struct Contest {
    name: &'static str,
    /// Ratios of which the whole interval lies below this fail.
    target: f64,
    /// Whether the metrics are times.
    lower_is_better: bool,
    programs: Vec<Program>,
}

struct Arguments {
    blocks: usize,
    seed: u64,
    only: Option<Vec<String>>,
    ours: Option<PathBuf>,
}

fn main() -> ExitCode {
    match contests() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "versus_c: {error}");
            ExitCode::FAILURE
        }
    }
}

fn contests() -> Result<bool, Failure> {
    let arguments = arguments()?;
    let scratch = tempfile::tempdir()?;
    let ours = match &arguments.ours {
        Some(path) => path.clone(),
        None => build_ours()?,
    };
    let mut random = Pcg64Mcg::new(u128::from(arguments.seed) << 64 | 1);
    let mut output = std::io::stdout();
    writeln!(
        output,
        "{} blocks, seed {}; ratio above 1: ours is better\n",
        arguments.blocks, arguments.seed
    )?;
    writeln!(
        output,
        "{:<32} {:<59} {:>11} {:>11}  ratio [95 % interval]",
        "metric", "against", "ours", "theirs"
    )?;
    let mut good = true;
    for contest in all(&ours, scratch.path(), arguments.only.as_deref())? {
        let blocks = run_blocks(&contest, arguments.blocks, &mut random)?;
        good &= print(&mut output, &contest, &blocks)?;
    }
    Ok(good)
}

fn arguments() -> Result<Arguments, Failure> {
    let mut arguments = Arguments { blocks: 15, seed: 1, only: None, ours: None };
    let mut words = std::env::args().skip(1);
    while let Some(key) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{key}` needs a value"))?;
        match key.as_str() {
            "--blocks" => arguments.blocks = value.parse()?,
            "--seed" => arguments.seed = value.parse()?,
            "--only" => arguments.only = Some(value.split(',').map(str::to_owned).collect()),
            "--ours" => arguments.ours = Some(value.into()),
            _ => return Err(format!("no option `{key}`; there are --blocks, --seed, --only, --ours").into()),
        }
    }
    if arguments.blocks < 2 {
        return Err("an interval needs two blocks at least".into());
    }
    Ok(arguments)
}

/// Builds the program as it is shipped: static, with its own profile, for any CPU.
fn build_ours() -> Result<PathBuf, Failure> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = [
        "build",
        "--quiet",
        "--profile",
        "kernels",
        "-p",
        "weigh-kernels",
        "--bin",
        "weigh-kernels",
        "--target",
    ];
    Command::new(cargo)
        .args(build)
        .arg(&triple)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .timeout(Duration::from_secs(900))
        .ok()?;
    Ok(target.join(triple).join("kernels/weigh-kernels"))
}

fn compile(scratch: &Path, source: &str, flags: &[&str]) -> Result<PathBuf, Failure> {
    let program = scratch.join(format!("{source}{}", flags.concat().replace('=', "_")));
    Command::new("gcc")
        .args(flags)
        .arg(format!("-DELEMENTS={STREAM_ELEMENTS}"))
        .arg("-o")
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches-c").join(format!("{source}.c")))
        .timeout(DEADLINE)
        .ok()?;
    Ok(program)
}

/// A program of ours, whose result is its JSON line.
fn our_program(ours: &Path, line: &str) -> Program {
    let (ours, arguments) = (ours.to_owned(), line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let run = move || {
        let output = Command::new(&ours).args(&arguments).timeout(DEADLINE).ok()?;
        let line: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let metrics = line["metrics"].as_object().ok_or("no metrics")?;
        Ok(metrics
            .iter()
            .filter_map(|(name, metric)| Some((name.clone(), metric["value"].as_f64()?)))
            .collect())
    };
    Program { name: "ours".into(), run: Box::new(run) }
}

/// A program of theirs, whose result is lines of name and value.
fn c_program(scratch: &Path, source: &str, flags: &[&str], line: &str) -> Result<Program, Failure> {
    let (program, arguments) =
        (compile(scratch, source, flags)?, line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let run = move || {
        let output = Command::new(&program).args(&arguments).envs(ENVIRONMENT).timeout(DEADLINE).ok()?;
        let mut metrics = Metrics::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let (name, value) = line.split_once(' ').ok_or("a line without a value")?;
            metrics.insert(name.to_owned(), value.parse()?);
        }
        Ok(metrics)
    };
    Ok(Program { name: format!("gcc {}", flags.join(" ")), run: Box::new(run) })
}

/// `xz` on the text that our kernel makes, timed from outside as a user would.
fn xz(scratch: &Path) -> Result<Program, Failure> {
    let text = scratch.join("text");
    std::fs::write(&text, weigh_kernels::english_like(1, TEXT_BYTES))?;
    let threads = std::thread::available_parallelism()?;
    let run = move || {
        let start = Instant::now();
        Command::new("xz")
            .arg(format!("-T{threads}"))
            .args(["-2", "--keep", "--stdout"])
            .arg(&text)
            .timeout(DEADLINE)
            .ok()?;
        Ok(Metrics::from([("rate".to_owned(), TEXT_BYTES as f64 / start.elapsed().as_secs_f64())]))
    };
    Ok(Program { name: format!("xz -T{threads} -2"), run: Box::new(run) })
}

fn all(ours: &Path, scratch: &Path, only: Option<&[String]>) -> Result<Vec<Contest>, Failure> {
    let wanted = |name: &str| only.is_none_or(|only| only.iter().any(|wanted| wanted == name));
    let ours = |line: &str| our_program(ours, line);
    let theirs = |source: &str, flags: &[&str], line: &str| c_program(scratch, source, flags, line);
    let mut contests = Vec::new();
    if wanted("stream") {
        let bytes = STREAM_ELEMENTS * 8;
        let mut programs =
            vec![ours(&format!("stream --array-bytes {bytes} --repetitions {STREAM_REPETITIONS}"))];
        for flags in [NATIVE, WIDE, PLAIN] {
            programs.push(theirs("stream", flags, STREAM_REPETITIONS)?);
        }
        contests.push(Contest { name: "stream", target: 0.97, lower_is_better: false, programs });
    }
    if wanted("gups") {
        let mut programs = vec![ours(&format!("gups --table-bytes {TABLE_BYTES} --updates {UPDATES}"))];
        for flags in [NATIVE, PLAIN] {
            programs.push(theirs("gups", flags, &format!("{TABLE_BYTES} {UPDATES}"))?);
        }
        contests.push(Contest { name: "gups", target: 0.97, lower_is_better: false, programs });
    }
    if wanted("lzma") {
        let programs = vec![ours(&format!("lzma --bytes {TEXT_BYTES}")), xz(scratch)?];
        contests.push(Contest { name: "lzma", target: 0.98, lower_is_better: false, programs });
    }
    if wanted("lu") {
        match theirs("dgesv", BLAS, &format!("{ORDER} 1")) {
            Ok(program) => {
                let programs = vec![
                    ours(&format!("lu --n {ORDER} --threads 1 --repetitions 1")),
                    Program { name: "OpenBLAS dgesv, one thread".into(), ..program },
                ];
                contests.push(Contest { name: "lu", target: 0.90, lower_is_better: false, programs });
            }
            Err(error) if only.is_some() => return Err(error),
            Err(_) => writeln!(
                std::io::stderr(),
                "SKIPPED lu: benches-c/dgesv.c does not link here; install libopenblas-dev"
            )?,
        }
    }
    if wanted("noploop") {
        let programs = vec![
            ours("noploop --nops 1000000000 --repetitions 5"),
            theirs("noploop", NATIVE, "1000000000 5")?,
        ];
        contests.push(Contest { name: "noploop", target: 0.97, lower_is_better: true, programs });
    }
    if wanted("memory-latency") {
        let programs = vec![
            renamed(
                ours("memory-latency --sizes 256MiB --loads 50000 --batches 11"),
                "latency_256MiB",
                "latency",
            ),
            theirs("chase", NATIVE, "268435456 50000 11")?,
        ];
        contests.push(Contest { name: "memory-latency", target: 0.97, lower_is_better: true, programs });
    }
    if wanted("syscall") {
        let operations = "syscall --operations getpid,read,mmap_munmap,context_switch";
        let programs = vec![
            ours(&format!(
                "{operations} --getpid 1000000 --read 500000 --mmap 50000 --switch 50000 --batches 40"
            )),
            theirs("syscall", NATIVE, "1000000 500000 50000 50000 40")?,
        ];
        contests.push(Contest { name: "syscall", target: 0.97, lower_is_better: true, programs });
    }
    if contests.is_empty() {
        return Err(
            "`--only` names no contest; there are stream, gups, lzma, lu, noploop, memory-latency, syscall"
                .into(),
        );
    }
    Ok(contests)
}

fn renamed(program: Program, from: &'static str, to: &'static str) -> Program {
    let inner = program.run;
    let run = move || {
        let mut metrics = inner()?;
        let value = metrics.remove(from).ok_or("the metric is missing")?;
        Ok(Metrics::from([(to.to_owned(), value)]))
    };
    Program { name: program.name, run: Box::new(run) }
}

/// One unmeasured round, then `blocks` rounds of all programs in random order. One entry per round, in program order.
fn run_blocks(contest: &Contest, blocks: usize, random: &mut Pcg64Mcg) -> Result<Vec<Vec<Metrics>>, Failure> {
    for program in &contest.programs {
        (program.run)()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..blocks {
        let mut order: Vec<usize> = (0..contest.programs.len()).collect();
        for last in (1..order.len()).rev() {
            let other = random.next_u64() % (last as u64 + 1);
            order.swap(last, other as usize);
        }
        let mut round = vec![Metrics::new(); order.len()];
        for which in order {
            round[which] = (contest.programs[which].run)()?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// Whether no interval lies below the target.
fn print(
    output: &mut impl std::io::Write,
    contest: &Contest,
    rounds: &[Vec<Metrics>],
) -> Result<bool, Failure> {
    let mut good = true;
    // What the counterparts do not measure has nothing to be compared with.
    for metric in
        rounds[0][0].keys().filter(|metric| rounds[0].iter().all(|result| result.contains_key(*metric)))
    {
        for (theirs, program) in contest.programs.iter().enumerate().skip(1) {
            let value = |round: &Vec<Metrics>, which: usize| {
                round[which].get(metric).copied().ok_or_else(|| format!("{} gives no {metric}", program.name))
            };
            let pairs: Vec<(f64, f64)> = rounds
                .iter()
                .map(|round| Ok((value(round, 0)?, value(round, theirs)?)))
                .collect::<Result<_, String>>()?;
            let sign = if contest.lower_is_better { -1.0 } else { 1.0 };
            let logs: Vec<f64> = pairs.iter().map(|(ours, theirs)| sign * (ours / theirs).ln()).collect();
            let (mean, half) = t_interval(&logs)?;
            let below = (mean + half).exp() < contest.target;
            good &= !below;
            writeln!(
                output,
                "{:<32} {:<59} {:>11.4e} {:>11.4e}  {:.3} [{:.3}, {:.3}]{}",
                format!("{} {metric}", contest.name),
                program.name,
                median(pairs.iter().map(|pair| pair.0)),
                median(pairs.iter().map(|pair| pair.1)),
                mean.exp(),
                (mean - half).exp(),
                (mean + half).exp(),
                if below { format!("  below the target of {}", contest.target) } else { String::new() }
            )?;
        }
    }
    Ok(good)
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
