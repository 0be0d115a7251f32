//! The kernels against the same loops in C, against `xz` and against OpenBLAS: one command, one
//! table.
//!
//! ```text
//! cargo run --release -p weigh-kernels --example versus_c -- [--blocks 15] [--seed 1] [--only stream,gups] [--ours PROGRAM]
//! ```
//!
//! Builds `weigh-kernels` as in a release, compiles `benches-c/*.c` with gcc, and runs all of them
//! in blocks: each block has every program once, in random order. A ratio compares ours with theirs
//! and is above 1 when ours is better; its interval is the t interval of the mean of the logarithms
//! over blocks. Exits with status 1 when an interval lies wholly below its target.

mod contest;

use assert_cmd::Command;
use contest::{Contest, Failure, Metrics, Program};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Long enough for every program on a slow machine; one that hangs must not hang this one.
const DEADLINE: Duration = Duration::from_secs(120);

/// Binds threads to CPUs, as our kernels do: on a busy machine that alone would make a difference.
/// OpenBLAS is compared on one thread.
const ENVIRONMENT: [(&str, &str); 2] = [("OMP_PROC_BIND", "true"), ("OPENBLAS_NUM_THREADS", "1")];

const STREAM_ELEMENTS: u64 = 16 << 20;
const STREAM_REPETITIONS: &str = "20";
const TABLE_BYTES: &str = "67108864";
const UPDATES: &str = "33554432";
const TEXT_BYTES: usize = 12 << 20;
const NATIVE: &[&str] = &["-O3", "-march=native", "-fopenmp"];
const WIDE: &[&str] = &["-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp"];
const PLAIN: &[&str] = &["-O3", "-fopenmp"];
/// The library precedes the source that needs it; without the first flag the linker would drop it.
const BLAS: &[&str] = &["-O3", "-Wl,--no-as-needed", "-lopenblas"];
/// Order of the system of equations: large enough that matrix products are nearly all of the work.
const ORDER: &str = "4000";

struct Arguments {
    blocks: usize,
    seed: u64,
    only: Option<Vec<String>>,
    ours: Option<PathBuf>,
}

fn main() -> ExitCode {
    contest::end("versus_c", contests())
}

fn contests() -> Result<bool, Failure> {
    let arguments = arguments()?;
    let scratch = tempfile::tempdir()?;
    let ours = match &arguments.ours {
        Some(path) => path.clone(),
        None => contest::build_ours()?,
    };
    let mut random = contest::random(arguments.seed);
    let mut output = std::io::stdout();
    writeln!(
        output,
        "{} blocks, seed {}; ratio above 1: ours is better\n",
        arguments.blocks, arguments.seed
    )?;
    contest::print_head(&mut output)?;
    let mut good = true;
    for contest in all(&ours, scratch.path(), arguments.only.as_deref())? {
        good &= contest.run(&mut output, arguments.blocks, &mut random)?;
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

/// Makes the programs of contests.
struct Makers<'a> {
    ours: &'a Path,
    /// The directory for compiled programs and temporary files.
    scratch: &'a Path,
}

impl Makers<'_> {
    /// One of our programs. Its result is its JSON line.
    fn ours(&self, line: &str) -> Program {
        let (ours, arguments) =
            (self.ours.to_owned(), line.split(' ').map(str::to_owned).collect::<Vec<_>>());
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

    /// One of their programs. Its result is lines of name and value.
    fn theirs(&self, source: &str, flags: &[&str], line: &str) -> Result<Program, Failure> {
        let program = compile(self.scratch, source, flags)?;
        let arguments = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
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
}

/// Times `xz` from outside, as a user would, on the text that our kernel makes.
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

/// Makes a contest.
type Make = fn(&Makers<'_>) -> Result<Contest, Failure>;

/// All contests by name.
const CONTESTS: [(&str, Make); 7] = [
    ("stream", stream),
    ("gups", gups),
    ("lzma", lzma),
    ("lu", lu),
    ("noploop", noploop),
    ("memory-latency", memory_latency),
    ("syscall", syscall),
];

fn all(ours: &Path, scratch: &Path, only: Option<&[String]>) -> Result<Vec<Contest>, Failure> {
    let wanted = |name: &str| only.is_none_or(|only| only.iter().any(|wanted| wanted == name));
    let makers = Makers { ours, scratch };
    let mut contests = Vec::new();
    for (name, make) in CONTESTS.into_iter().filter(|(name, _)| wanted(name)) {
        match make(&makers) {
            Ok(contest) => contests.push(contest),
            Err(_) if name == "lu" && only.is_none() => writeln!(
                std::io::stderr(),
                "SKIPPED lu: benches-c/dgesv.c does not link here; install libopenblas-dev"
            )?,
            Err(error) => return Err(error),
        }
    }
    if contests.is_empty() {
        let names = CONTESTS.map(|(name, _)| name).join(", ");
        return Err(format!("`--only` names no contest; there are {names}").into());
    }
    Ok(contests)
}

fn stream(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let bytes = STREAM_ELEMENTS * 8;
    let line = format!("stream --array-bytes {bytes} --repetitions {STREAM_REPETITIONS}");
    let mut programs = vec![makers.ours(&line)];
    for flags in [NATIVE, WIDE, PLAIN] {
        programs.push(makers.theirs("stream", flags, STREAM_REPETITIONS)?);
    }
    Ok(rates("stream", 0.97, programs))
}

fn gups(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let mut programs = vec![makers.ours(&format!("gups --table-bytes {TABLE_BYTES} --updates {UPDATES}"))];
    for flags in [NATIVE, PLAIN] {
        programs.push(makers.theirs("gups", flags, &format!("{TABLE_BYTES} {UPDATES}"))?);
    }
    Ok(rates("gups", 0.97, programs))
}

fn lzma(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let programs = vec![makers.ours(&format!("lzma --bytes {TEXT_BYTES}")), xz(makers.scratch)?];
    Ok(rates("lzma", 0.98, programs))
}

fn lu(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let dgesv = makers.theirs("dgesv", BLAS, &format!("{ORDER} 1"))?;
    let programs = vec![
        makers.ours(&format!("lu --n {ORDER} --threads 1 --repetitions 1")),
        Program { name: "OpenBLAS dgesv, one thread".into(), ..dgesv },
    ];
    Ok(rates("lu", 0.90, programs))
}

fn noploop(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let ours = makers.ours("noploop --nops 1000000000 --repetitions 5");
    Ok(times("noploop", 0.97, vec![ours, makers.theirs("noploop", NATIVE, "1000000000 5")?]))
}

fn memory_latency(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let ours = makers.ours("memory-latency --sizes 256MiB --loads 50000 --batches 11");
    let ours = renamed(ours, "latency_256MiB", "latency");
    let theirs = makers.theirs("chase", NATIVE, "268435456 50000 11")?;
    Ok(times("memory-latency", 0.97, vec![ours, theirs]))
}

fn syscall(makers: &Makers<'_>) -> Result<Contest, Failure> {
    let operations = "syscall --operations getpid,read,mmap_munmap,context_switch";
    let numbers = "--getpid 1000000 --read 500000 --mmap 50000 --switch 50000 --batches 40";
    let ours = makers.ours(&format!("{operations} {numbers}"));
    let theirs = makers.theirs("syscall", NATIVE, "1000000 500000 50000 50000 40")?;
    Ok(times("syscall", 0.97, vec![ours, theirs]))
}

/// A contest of rates. A ratio fails if its whole interval lies below the target.
fn rates(name: &str, target: f64, programs: Vec<Program>) -> Contest {
    let judge = move |_: &str, _, high| (high < target).then(|| format!("below the target of {target}"));
    Contest { name: name.into(), lower_is_better: |_| false, judge: Box::new(judge), programs }
}

/// A contest of times. A ratio fails as in [`rates`].
fn times(name: &str, target: f64, programs: Vec<Program>) -> Contest {
    Contest { lower_is_better: |_| true, ..rates(name, target, programs) }
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
