//! Reads the JSON of pytest-benchmark (`pytest --benchmark-json=FILE`).
//!
//! A round is an average over the iterations of that round, in seconds. Files of `--benchmark-save`
//! hold no rounds unless `--benchmark-save-data` is given; without rounds, the mean is used.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile};
use serde::Deserialize;
use serde_json::value::RawValue;
use weigh_model::MetricSpec;

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    benchmarks: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Benchmark<'a> {
    fullname: String,
    #[serde(borrow)]
    stats: &'a RawValue,
}

#[derive(Deserialize)]
struct Stats<'a> {
    mean: f64,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

const ZERO_HELP: &str = "a round must last longer than the timer's step; give the benchmark more iterations";

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let output: Output<'_> = text.json("JSON of pytest-benchmark")?;
    let mut run = Run::default();
    let mut without_rounds = 0;
    for raw in output.benchmarks {
        let benchmark: Benchmark<'_> = text.part(raw, "a benchmark of pytest-benchmark")?;
        let stats: Stats<'_> = text.part(benchmark.stats, "the `stats` of pytest-benchmark")?;
        let rounds: Vec<f64> = match stats.data {
            Some(data) => text.part(data, "a list of times")?,
            None => Vec::new(),
        };
        if let (Some(data), Some(index)) = (stats.data, rounds.iter().position(|value| !is_positive(*value)))
        {
            let message = format!("{} is not a positive number", rounds[index]);
            return Err(text.at_number(data, index, &message, ZERO_HELP));
        }
        let rounds = if rounds.is_empty() {
            if !is_positive(stats.mean) {
                let message = format!("{} is not a positive number", stats.mean);
                return Err(text.at_key(benchmark.stats, "mean", &message, ZERO_HELP));
            }
            without_rounds += 1;
            vec![stats.mean]
        } else {
            rounds
        };
        run.cell(&benchmark.fullname, &MetricSpec::time("time")).values.extend(rounds);
    }
    let mut notices = Vec::new();
    if without_rounds > 0 {
        notices.push((
            format!("{} has only the mean of {without_rounds} benchmarks", text.path.display()),
            "`pytest --benchmark-json=FILE` writes every round".to_string(),
        ));
    }
    Ok(ToolFile { runs: vec![run], notices })
}
