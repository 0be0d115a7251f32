//! The endless form of the kernels, as its users start and end it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use predicates::prelude::{Predicate as _, PredicateBooleanExt as _};
use predicates::str::contains;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Amounts by metric.
type Amounts = BTreeMap<String, f64>;

/// A kernel that works without end, in its own process group.
struct Endless {
    child: Child,
    lines: Receiver<String>,
}

impl Endless {
    fn start(line: &str) -> Self {
        Self::start_with(line, &[])
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it is signalled while it runs, which assert_cmd cannot do"
    )]
    fn start_with(line: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weigh-kernels"))
            .args(line.split_whitespace())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line.unwrap())));
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    /// The amounts of the next mark that has any.
    fn mark(&self) -> Amounts {
        std::iter::repeat_with(|| amounts(&self.line()).unwrap()).find(|amounts| !amounts.is_empty()).unwrap()
    }

    /// Signals the whole group, as the probe does.
    fn ask_to_end(&self) {
        kill_process_group(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// The marks that were still printed, the result, and the exit code.
    fn end(mut self) -> (Vec<Amounts>, Value, Option<i32>) {
        let mut marks = Vec::new();
        loop {
            let line = self.line();
            match amounts(&line) {
                Some(amounts) => marks.push(amounts),
                None => {
                    let result = serde_json::from_str(&line).unwrap();
                    return (marks, result, self.child.wait().unwrap().code());
                }
            }
        }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The amounts of a mark; `None` for other lines.
fn amounts(line: &str) -> Option<Amounts> {
    let mut words = line.split(' ');
    if words.next() != Some("mark") {
        return None;
    }
    let amount = |word: &str| {
        let (name, amount) = word.split_once('=').unwrap();
        (name.to_owned(), amount.parse().unwrap())
    };
    let words = words.filter(|word| !["median", "best"].contains(word) && !word.starts_with("at="));
    Some(words.map(amount).collect())
}

/// Kernel and options, the metrics of its marks, and the number of operations, set-up included,
/// that a sum of reported work stands for; `None` if the kernel does more than it reports.
type Case = (&'static str, &'static [&'static str], fn(&Amounts) -> Option<f64>);

const CASES: &[Case] = &[
    ("noploop --nops 1e9", &["duration", "rate"], |sums| {
        assert!((sums["duration"] * 1e9 / sums["rate"] - 1.0).abs() < 1e-9, "{sums:?}");
        Some(2e7 + sums["rate"])
    }),
    ("spin --work 4e6", &["duration"], |sums| Some(sums["duration"] * 4e6)),
    ("memory-latency --sizes 4KiB,2MiB", &["latency_2MiB", "latency_4KiB"], |_| None),
    ("stream --array-bytes 1MiB --threads 2", &["add", "copy", "scale", "triad"], |sums| {
        Some(sums.values().sum())
    }),
    ("gups --table-bytes 1MiB --threads 2", &["rate"], |sums| Some(sums["rate"])),
    ("lzma --bytes 200000 --block-bytes 50000 --level 0 --threads 2", &["rate"], |sums| {
        Some(100_000.0 + sums["rate"])
    }),
    ("lu --n 60 --threads 2", &["rate"], |sums| {
        let flops = |n: f64| 2.0 / 3.0 * n * n * n + 2.0 * n * n;
        Some((flops(60.0) + sums["rate"]).round())
    }),
    ("pi --digits 1000", &["computation_time", "total_time"], |sums| {
        Some(sums.values().sum::<f64>() * 1000.0)
    }),
    ("syscall", &["context_switch", "fork_exec", "getpid", "mmap_munmap", "read"], |sums| {
        Some(2401.0 + sums.values().sum::<f64>())
    }),
];

#[test]
fn every_endless_kernel_reports_its_work_and_ends_when_it_is_asked_to() {
    // With marks printed at once, and in batches.
    let cases = CASES.iter().flat_map(|case| ["5ms", "5ms,20ms"].map(|marks| (case, marks)));
    for ((line, metrics, operations), marks) in cases {
        let kernel = Endless::start(&format!("{line} --marks {marks}"));
        assert!(kernel.line().starts_with("mark"), "{line}: set-up is over");
        let mut marks = Vec::new();
        let mut seen = Amounts::new();
        // Wait until every metric has had its turn.
        while marks.len() < 3 || seen.len() < metrics.len() {
            let mark = kernel.mark();
            seen.extend(mark.clone());
            marks.push(mark);
        }
        assert!(seen.keys().eq(metrics.iter()), "{line}: {seen:?}");
        kernel.ask_to_end();
        let (last, result, code) = kernel.end();
        assert_eq!(code, Some(0), "{line}: {result}");
        assert_eq!(result["check"]["passed"], true, "{result}");
        assert_eq!(result["params"]["marks"], 0.005);
        assert_eq!(result["metrics"].as_object().unwrap().len(), 0, "a frozen clock measures nothing");
        assert!(result["facts"]["architecture"].is_string());
        let mut sums = Amounts::new();
        for (name, amount) in marks.into_iter().chain(last).flatten() {
            assert!(amount > 0.0, "{line}: {name}");
            *sums.entry(name).or_default() += amount;
        }
        let counted = result["operations"].as_u64().unwrap() as f64;
        match operations(&sums) {
            // Fractions of a repetition are rounded.
            Some(reported) => assert!((reported / counted - 1.0).abs() < 1e-9, "{line}: {reported} {result}"),
            None => assert!(sums.values().sum::<f64>() < counted, "{line}: {result}"),
        }
    }
    let endless = weigh_kernels::all().iter().filter(|kernel| kernel.is_endless());
    assert_eq!(endless.count(), CASES.len());
}

#[test]
fn every_endless_kernel_ends_well_when_it_is_asked_to_in_its_set_up() {
    for (line, ..) in CASES {
        let kernel = Endless::start(&format!("{line} --marks 5ms"));
        // Wait until the kernel blocks the signal; before that, it would just be killed.
        let status = format!("/proc/{}/status", kernel.child.id());
        let blocks = || {
            let status = std::fs::read_to_string(&status).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() >> (Signal::TERM.as_raw() - 1) & 1 == 1
        };
        while !blocks() {
            std::thread::yield_now();
        }
        kernel.ask_to_end();
        let (_, result, code) = kernel.end();
        assert_eq!((code, &result["check"]["passed"]), (Some(0), &true.into()), "{result}");
        assert!(result["operations"].as_u64().unwrap() > 0, "{result}");
    }
}

/// The variable by which `weigh selftest` injects effects: more steps for the same reported work.
#[test]
fn an_endless_spin_has_more_steps_in_every_piece() {
    let kernel = Endless::start_with("spin --work 1e6 --marks 1ms", &[("WEIGH_SPIN", "0.030")]);
    let mut reported: f64 = (0..5).map(|_| kernel.mark()["duration"]).sum();
    kernel.ask_to_end();
    let (last, result, code) = kernel.end();
    assert_eq!(code, Some(0), "{result}");
    assert_eq!(result["check"]["passed"], true, "{result}");
    reported += last.iter().filter_map(|amounts| amounts.get("duration")).sum::<f64>();
    let operations = result["operations"].as_f64().unwrap();
    assert!((reported * 1e6 - operations).abs() < 1.0, "{reported} of 1e6 steps against {operations}");
    assert_eq!(result["facts"]["steps"].as_f64().unwrap(), (operations * 1.03).round());
}

#[test]
fn marks_agree_with_the_time_that_a_kernel_measures_itself() {
    for (line, metric, is_rate) in
        [("noploop --nops 1e7", "rate", true), ("spin --work 1e5", "duration", false)]
    {
        // The best of ten, each much shorter than a time slice of the scheduler: on a busy machine
        // the time that a kernel measures is longer than its CPU time.
        let timed = || {
            let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_weigh-kernels"))
                .args(line.split_whitespace())
                .output()
                .unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            let value = result["metrics"][metric]["value"].as_f64().unwrap();
            if is_rate { value } else { 1.0 / value }
        };
        let timed = std::iter::repeat_with(timed).take(10).fold(0.0, f64::max);
        let kernel = Endless::start(&format!("{line} --marks 10ms"));
        let amounts: Vec<f64> = (0..6).map(|_| kernel.mark()[metric]).collect();
        kernel.ask_to_end();
        assert_eq!(kernel.end().2, Some(0));
        // The best of six: an amount is the work of 10 ms of CPU time, plus at most one piece.
        let rate = amounts.into_iter().fold(0.0, f64::max) / 0.010;
        assert!((0.5..2.0).contains(&(rate / timed)), "{line}: {rate} {timed}");
    }
}

#[test]
fn a_kernel_without_a_reader_exits_with_1() {
    let mut kernel = Endless::start("noploop --marks 1ms");
    let (_, closed) = channel();
    kernel.lines = closed;
    assert_eq!(kernel.child.wait().unwrap().code(), Some(1), "a mark cannot be written");
}

#[test]
fn other_kernels_refuse_marks_and_do_not_offer_them() {
    for kernel in weigh_kernels::all() {
        let program = |argument: &[&str]| {
            let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_weigh-kernels"));
            command.arg(kernel.name).args(argument).timeout(PATIENCE);
            command
        };
        let help = program(&["--help"]).output().unwrap().stdout;
        let help = String::from_utf8(help).unwrap();
        assert_eq!(contains("--marks ").eval(&help), kernel.is_endless(), "{help}");
        if kernel.is_endless() {
            let refused = program(&["--marks", "5 moons"]).assert().code(2).stdout("");
            refused.stderr(contains("`moons` is not a unit"));
        } else {
            let refused = program(&["--marks", "5ms"]).assert().code(2).stdout("");
            refused.stderr(
                contains("has no endless form").and(contains("the kernels that have it are: noploop")),
            );
        }
    }
}
