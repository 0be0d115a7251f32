//! The `block` kernel against fio, natively and in one run: one command, one table.
//!
//! ```text
//! cargo run --release -p weigh-kernels --example versus_fio -- [--blocks 15] [--seconds 3] [--seed 1] [--file PATH] [--ours PROGRAM]
//! ```
//!
//! Both read 4 KiB at random places of one file, bypassing the page cache, by io_uring, with 1 and
//! with 32 requests in flight. Each block runs both once, in random order, and records rate and
//! median latency. A ratio compares ours with theirs and is above 1 when ours is better; its
//! interval is the t interval of the mean of the logarithms over blocks. Exits with status 1 when
//! the interval of a rate lies wholly outside of 1 +- .03. Medians are only shown, because they
//! depend on when a program reads the clock.

mod contest;

use assert_cmd::Command;
use contest::{Contest, Failure, Metrics, Program};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How far from 1 a ratio may be.
const MARGIN: f64 = 0.03;

/// Long enough to write the file on a slow disk.
const DEADLINE: Duration = Duration::from_secs(300);

const FILE_BYTES: u64 = 1 << 30;

struct Arguments {
    blocks: usize,
    seconds: u64,
    seed: u64,
    file: PathBuf,
    ours: Option<PathBuf>,
}

fn main() -> ExitCode {
    contest::end("versus_fio", contests())
}

fn contests() -> Result<bool, Failure> {
    let arguments = arguments()?;
    let ours = match &arguments.ours {
        Some(path) => path.clone(),
        None => contest::build_ours()?,
    };
    let file = arguments.file.to_str().ok_or("`--file` must be UTF-8")?;
    let prepare = format!("block --task prepare --path {file} --file-bytes {FILE_BYTES}");
    Command::new(&ours).args(prepare.split(' ')).timeout(DEADLINE).ok()?;
    let mut random = contest::random(arguments.seed);
    let mut output = std::io::stdout();
    let (blocks, seconds) = (arguments.blocks, arguments.seconds);
    writeln!(
        output,
        "{blocks} blocks of {seconds} s, seed {}; ratio above 1: ours is better\n",
        arguments.seed
    )?;
    contest::print_head(&mut output)?;
    let mut good = true;
    for depth in [1, 32] {
        let programs = vec![
            ours_with(&ours, &format!("block --path {file} --depth {depth} --seconds {seconds}")),
            fio(file, depth, seconds),
        ];
        let contest = Contest {
            name: format!("random read, {depth} in flight"),
            lower_is_better: is_latency,
            judge: Box::new(judge),
            programs,
        };
        good &= contest.run(&mut output, blocks, &mut random)?;
    }
    let remove = format!("block --task remove --path {file} --file-bytes {FILE_BYTES}");
    Command::new(&ours).args(remove.split(' ')).timeout(DEADLINE).ok()?;
    Ok(good)
}

fn is_latency(metric: &str) -> bool {
    metric.starts_with("latency")
}

/// A rate fails if its whole interval is farther from 1 than the margin.
fn judge(metric: &str, low: f64, high: f64) -> Option<String> {
    let outside = !is_latency(metric) && (high < 1.0 - MARGIN || low > 1.0 + MARGIN);
    outside.then(|| format!("outside of 1 +- {MARGIN}"))
}

fn arguments() -> Result<Arguments, Failure> {
    let file = "/var/tmp/weigh-versus-fio".into();
    let mut arguments = Arguments { blocks: 15, seconds: 3, seed: 1, file, ours: None };
    let mut words = std::env::args().skip(1);
    while let Some(key) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{key}` needs a value"))?;
        match key.as_str() {
            "--blocks" => arguments.blocks = value.parse()?,
            "--seconds" => arguments.seconds = value.parse()?,
            "--seed" => arguments.seed = value.parse()?,
            "--file" => arguments.file = value.into(),
            "--ours" => arguments.ours = Some(value.into()),
            _ => {
                let known = "--blocks, --seconds, --seed, --file, --ours";
                return Err(format!("no option `{key}`; there are {known}").into());
            }
        }
    }
    if arguments.blocks < 2 || arguments.seconds < 1 {
        return Err("an interval needs two blocks at least, and a block a second".into());
    }
    Ok(arguments)
}

fn ours_with(ours: &Path, line: &str) -> Program {
    let line = format!("{line} --engine io_uring");
    let (ours, arguments) = (ours.to_owned(), line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let run = move || {
        let output = Command::new(&ours).args(&arguments).timeout(DEADLINE).ok()?;
        let line: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let metric = |name: &str| {
            let value = line["metrics"][name]["value"].as_f64();
            value.map(|value| (name.to_owned(), value)).ok_or(format!("no {name}"))
        };
        Ok(Metrics::from([metric("rate")?, metric("latency_p50")?]))
    };
    Program { name: "block --engine io_uring".into(), run: Box::new(run) }
}

fn fio(file: &str, depth: u64, seconds: u64) -> Program {
    let line = format!(
        "--name=j --filename={file} --size={FILE_BYTES} --allow_file_create=0 --rw=randread --bs=4k --direct=1 \
         --ioengine=io_uring --iodepth={depth} --norandommap --randrepeat=0 --time_based --runtime={seconds} \
         --lat_percentiles=1 --output-format=json"
    );
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let run = move || {
        let output = Command::new("fio").args(&arguments).timeout(DEADLINE).ok()?;
        let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let result = &result["jobs"][0]["read"];
        let rate = result["iops"].as_f64().ok_or("fio tells no iops")?;
        let median = result["lat_ns"]["percentile"]["50.000000"].as_f64().ok_or("fio tells no median")?;
        Ok(Metrics::from([("rate".to_owned(), rate), ("latency_p50".to_owned(), median * 1e-9)]))
    };
    Program { name: "fio --ioengine=io_uring".into(), run: Box::new(run) }
}
