//! Times `weigh pool` on a thousand runs.

use crate::{Line, Outcome, built, long_run, median};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use weigh_host::command::Invocation;

const MACHINES: usize = 1_000;
/// Environments and workloads: each workload has a cell in each environment but the baseline.
const SIZE: (usize, usize) = (6, 10);
const BLOCKS: u32 = 30;
const GOAL_S: f64 = 2.0;
/// Runs with values of their own: between machines that are all the same, the search for how much
/// they differ ends at once.
const MODELS: usize = 20;
/// The files of a run directory besides its host's; runs share them with their model, to fit on a
/// disk.
const SHARED: [&str; 4] = ["plan.json", "samples.jsonl", "events.jsonl", "collected.json"];

pub fn measure() -> Outcome {
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    let run = |arguments: &[String]| {
        let command = Invocation::new(&weigh).args(arguments).current_dir(scratch.path());
        command.deadline(Duration::from_secs(300)).run_ok()
    };
    fs::write(scratch.path().join("long.toml"), long_run::MANIFEST)?;
    let mut models = Vec::new();
    for number in 0..MODELS {
        let name = format!("model-{number}");
        run(&long_run::arguments_of(SIZE, "long.toml", &name))?;
        let model = scratch.path().join(&name);
        long_run::lengthen(&model, BLOCKS, number as u64 + 1)?;
        // Nothing is left to measure; this only makes the analysis cache, as at the end of a run.
        run(&["resume".into(), name])?;
        models.push(model);
    }
    let mut host: Value = serde_json::from_slice(&fs::read(models[0].join("host.json"))?)?;
    let mut words = vec!["pool".to_string()];
    for machine in 0..MACHINES {
        let name = format!("machine-{machine}");
        let directory = scratch.path().join(&name);
        fs::create_dir(&directory)?;
        for file in SHARED {
            fs::hard_link(models[machine % MODELS].join(file), directory.join(file))?;
        }
        host["identity"] = format!("{machine:032x}").into();
        host["boot"] = format!("boot of {machine}").into();
        fs::write(directory.join("host.json"), serde_json::to_vec(&host)?)?;
        words.push(name);
    }
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(run(&words)?.took.as_secs_f64());
    }
    let time = median(&mut times);
    let what = format!("pool {MACHINES} runs of {} cells", (SIZE.0 - 1) * SIZE.1);
    Ok(vec![Line { what, value: format!("{time:.2} s (median of 5)"), goal: "<= 2 s", met: time <= GOAL_S }])
}
