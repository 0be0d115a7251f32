//! The probe: its size, start time, memory while idle, and CPU time while a workload runs.

use crate::{Fallible, Line, Outcome, guest_program, median};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use weigh_platforms::{RunOptions, Session};
use weigh_protocol::{Command, Input};

const STARTS: usize = 50;
const WORKLOAD_S: u64 = 10;

pub fn measure() -> Outcome {
    let program = guest_program("weigh-probe", "probe")?;
    let size = std::fs::metadata(&program)?.len();
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let (child, mut session) = start_probe(&program)?;
        starts.push(start.elapsed().as_secs_f64());
        end(child, &mut session)?;
    }
    let start_s = median(&mut starts);

    let (child, mut session) = start_probe(&program)?;
    let memory = proportional_set_size(child.id())?;
    let before = cpu_time(child.id())?;
    let command = Command {
        argv: vec!["sleep".into(), WORKLOAD_S.to_string()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: 1 << 20,
    };
    let options = RunOptions::within(Duration::from_secs(WORKLOAD_S * 2));
    session.run(&command, options)?;
    let cpu = cpu_time(child.id())? - before;
    end(child, &mut session)?;

    let line = |what: &str, value: String, goal, met| Line { what: what.into(), value, goal, met };
    Ok(vec![
        line("size", format!("{} bytes", size), "<= 1 MB", size <= 1_000_000),
        line(
            "start to first answer",
            format!("{:.3} ms (median of {STARTS})", start_s * 1e3),
            "<= 1 ms",
            start_s <= 1e-3,
        ),
        line("memory while idle (PSS)", format!("{memory} bytes"), "<= 1 MB", memory <= 1_000_000),
        line("CPU time while a 10 s workload runs", format!("{:.3} ms", cpu * 1e3), "<= 1 ms", cpu <= 1e-3),
    ])
}

/// Starts the probe by the standard library's `posix_spawn(3)`, to time the probe and not weigh's
/// own launcher.
#[expect(clippy::disallowed_methods, reason = "the launcher with its logs and groups would be timed as well")]
fn start_probe(program: &Path) -> Fallible<(Child, Session)> {
    let mut command = std::process::Command::new(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (input, output) = input.zip(output).ok_or("a fresh process has both pipes")?;
    let mut session = Session::new(output.into(), input.into());
    session.hello(Duration::from_secs(5))?;
    Ok((child, session))
}

fn end(mut child: Child, session: &mut Session) -> Fallible<()> {
    session.shutdown(Duration::from_secs(5))?;
    child.wait()?;
    Ok(())
}

fn proportional_set_size(pid: u32) -> Fallible<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss in smaps_rollup")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| "Pss is no number")?;
    Ok(kib * 1024)
}

/// CPU time of a process's only thread, seconds; `schedstat` counts nanoseconds (proc(5)).
fn cpu_time(pid: u32) -> Fallible<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let first = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    first.map(|ns| ns / 1e9).ok_or_else(|| "schedstat cannot be read".into())
}
