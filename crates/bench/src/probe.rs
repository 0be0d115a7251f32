//! The probe: size, start, memory while idle, CPU time while a workload runs.

use crate::{Line, Outcome, guest_program, median};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running};
use weigh_platforms::{RunOptions, Session};
use weigh_protocol::Command;

const STARTS: usize = 50;
const WORKLOAD_S: u64 = 10;

pub fn measure() -> Outcome {
    let program = guest_program("weigh-probe", "probe")?;
    let size = std::fs::metadata(&program).map_err(|error| error.to_string())?.len();
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let (running, mut session) = start_probe(&program)?;
        starts.push(start.elapsed().as_secs_f64());
        end(running, &mut session)?;
    }
    let start_s = median(&mut starts);

    let (running, mut session) = start_probe(&program)?;
    let memory = proportional_set_size(running.pid())?;
    let before = cpu_time(running.pid())?;
    let command = Command {
        argv: vec!["sleep".into(), WORKLOAD_S.to_string()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: false,
        output_limit_bytes: 1 << 20,
    };
    let options = RunOptions::within(Duration::from_secs(WORKLOAD_S * 2));
    session.run(&command, options).map_err(|error| error.to_string())?;
    let cpu = cpu_time(running.pid())? - before;
    end(running, &mut session)?;

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

fn start_probe(program: &Path) -> Result<(Running, Session), String> {
    let mut running = Invocation::new(program).spawn().map_err(|error| error.to_string())?;
    let (input, output) = (running.take_input(), running.take_output());
    let (input, output) = input.zip(output).ok_or("a fresh process has both pipes")?;
    let mut session = Session::new(output, input);
    session.hello(Duration::from_secs(5)).map_err(|error| error.to_string())?;
    Ok((running, session))
}

fn end(mut running: Running, session: &mut Session) -> Result<(), String> {
    session.shutdown(Duration::from_secs(5)).map_err(|error| error.to_string())?;
    running
        .wait(Duration::from_secs(5))
        .map_err(|error| error.to_string())?
        .ok_or("the probe did not end")?;
    Ok(())
}

fn proportional_set_size(pid: u32) -> Result<u64, String> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss in smaps_rollup")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| "Pss is no number")?;
    Ok(kib * 1024)
}

/// CPU time of a process's only thread, seconds; `schedstat` counts nanoseconds (proc(5)).
fn cpu_time(pid: u32) -> Result<f64, String> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/schedstat")).map_err(|error| error.to_string())?;
    let first = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    first.map(|ns| ns / 1e9).ok_or_else(|| "schedstat cannot be read".into())
}
