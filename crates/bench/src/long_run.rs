//! A run directory of any length, made from a short run of the fake platform: it repeats the lines
//! that `weigh` wrote, with other values. A real run of as many trials would wait for the disk
//! after each of them.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The manifest of its workload; the fake platform answers any command with these metrics.
pub const MANIFEST: &str = r#"name = "long"
summary = "a command of a long run"
description = "Nothing is measured: the fake platform says what it took."
command = ["true", "{step}"]

[params.step]
summary = "which command it is"
kind = "count"
default = 1

[check]
statement = "the fake says so"
json = "/check/passed"

[[metric]]
name = "time"
unit = "s"
better = "lower"
primary = true
json = "/metrics/time/value"
"#;

/// Number of environments, and of values of the parameter; a block has a trial for each pair.
const ENVIRONMENTS: usize = 10;
const WORKLOADS: usize = 10;
/// Trials of a block.
pub const TRIALS: usize = ENVIRONMENTS * WORKLOADS;

/// The arguments of `weigh` for making the short run at `out` with the manifest in a file.
pub fn arguments(manifest: &str, out: &str) -> Vec<String> {
    arguments_of((ENVIRONMENTS, WORKLOADS), manifest, out)
}

/// The same with given numbers of environments and of values of the parameter.
pub fn arguments_of((environments, workloads): (usize, usize), manifest: &str, out: &str) -> Vec<String> {
    let others = (1..environments).map(|number| format!("null:effect=0.0{number},label=e{number},sd=0.02"));
    let on: Vec<String> = std::iter::once("null:sd=0.02".into()).chain(others).collect();
    let steps: Vec<String> = (1..=workloads).map(|step| step.to_string()).collect();
    let words = ["run", "long", "--workload", manifest, "--on", &on.join(";"), "--baseline", "null:sd=0.02"];
    let more = [
        "--param",
        &format!("step={}", steps.join(",")),
        "--blocks",
        "2",
        "--warmup",
        "0",
        "--no-void",
        "--out",
        out,
    ];
    words.iter().chain(&more).map(ToString::to_string).collect()
}

/// Repeats the last block of a run until the run has `blocks` blocks, with values that follow from
/// `seed`.
///
/// # Errors
/// The run cannot be read or written, or has no trial.
pub fn lengthen(run: &Path, blocks: u32, seed: u64) -> io::Result<()> {
    let plan = run.join("plan.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&plan)?)?;
    value["effort"]["blocks"] = blocks.into();
    fs::write(&plan, serde_json::to_vec_pretty(&value)?)?;

    let samples = run.join("samples.jsonl");
    let text = fs::read_to_string(&samples)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let trials = || lines.iter().filter(|line| line["record"] == "trial");
    let last = trials().filter_map(|trial| trial["block"].as_u64()).max();
    let last = last.ok_or_else(|| io::Error::other("the short run has no trial"))?;
    let mut block: Vec<Value> = trials().filter(|trial| trial["block"] == last).cloned().collect();
    let mut sequence = trials().count() as u64;
    let mut out = BufWriter::new(File::options().append(true).open(&samples)?);
    let mut state = seed;
    for number in last + 1..u64::from(blocks) {
        for trial in &mut block {
            trial["block"] = number.into();
            trial["sequence"] = sequence.into();
            sequence += 1;
            for iteration in trial["outcome"]["iterations"].as_array_mut().into_iter().flatten() {
                for value in
                    iteration["values"].as_object_mut().into_iter().flat_map(|values| values.values_mut())
                {
                    // A linear congruential generator (Knuth's MMIX) is random enough here, as
                    // nobody judges the values.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let noise = (state >> 40) as f64 / (1u64 << 24) as f64;
                    *value = (value.as_f64().unwrap_or(1.0) * (0.99 + 0.02 * noise)).into();
                }
            }
            serde_json::to_writer(&mut out, trial)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()
}
