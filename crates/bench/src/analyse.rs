//! Times `weigh analyse` on a million samples.

use crate::{Line, Outcome, built, median};
use std::io::Write;
use std::time::Duration;
use weigh_host::command::Invocation;

const SAMPLES: u32 = 1_000_000;
const GOAL_S: f64 = 2.0;

pub fn measure() -> Outcome {
    let weigh = built("weigh")?;
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile()?;
    write(file.as_file_mut())?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let finished = Invocation::new(&weigh)
            .args(["analyse", &file.path().display().to_string()])
            .deadline(Duration::from_secs(60))
            .run_ok()?;
        times.push(finished.took.as_secs_f64());
    }
    let time = median(&mut times);
    let what = format!("analyse {SAMPLES} samples");
    Ok(vec![Line { what, value: format!("{time:.2} s (median of 5)"), goal: "<= 2 s", met: time <= GOAL_S }])
}

/// Four environments, fifty workloads, five thousand blocks.
pub fn write(file: &mut std::fs::File) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(file);
    writeln!(out, "environment,workload,metric,unit,better,value,block")?;
    let mut state = 1u64;
    for i in 0..SAMPLES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (state >> 40) as f64 / (1u64 << 24) as f64;
        let (environment, workload, block) = (i % 4, i / 4 % 50, i / 200);
        let name = ["native", "runc", "docker", "namespaces"][environment as usize];
        writeln!(out, "{name},w{workload},time,ms,lower,{:.6},{block}", 10.0 + noise)?;
    }
    out.flush()
}
