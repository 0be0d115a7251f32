//! The programs on the page about notebooks find what the report says.

use crate::support::{Stage, cell_of, has_r, json_of, python_with, shown};
use std::path::Path;

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;
    use serde_json::Value;

    const OTHER: &str = "null:effect=0.1,sd=0.01,seed=2";

    /// The program under a heading of the page.
    fn program(heading: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/notebooks.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        let (_, code) = section.split_once("\n```").unwrap();
        let (code, _) = code.split_once("\n```\n").unwrap();
        code.split_once('\n').unwrap().1.into()
    }

    /// A run of two environments in which the fourth block was measured again: its first attempt
    /// has values that are far off.
    fn measured(stage: &Stage) -> Value {
        stage.stdout(&format!(
            "run --on null:sd=0.01,seed=1 --on {OTHER} --baseline null:sd=0.01,seed=1 --blocks 8 --iterations 4 \
             --no-void --seed 1 --out run -- work"
        ));
        let samples = stage.read("run/samples.jsonl");
        let mut lines: Vec<String> = Vec::new();
        for line in samples.lines() {
            let mut record: Value = serde_json::from_str(line).unwrap();
            if record["record"] == "trial" && record["block"] == 3 {
                let again = record.to_string().replacen("\"attempt\":0", "\"attempt\":1", 1);
                for iteration in record["outcome"]["iterations"].as_array_mut().unwrap() {
                    iteration["values"]["time"] = 3.0.into();
                }
                lines.extend([record.to_string(), again]);
            } else {
                lines.push(line.into());
            }
        }
        lines.push(r#"{"record":"void","block":3,"attempt":0,"workload":"work","cause":"steal"}"#.into());
        stage.write("run/samples.jsonl", lines.join("\n") + "\n");
        cell_of(&shown(stage, "run"), OTHER, "time")["overhead"].clone()
    }

    fn same(found: &Value, expected: &Value) {
        let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
        assert!((found - expected).abs() < 1e-9, "{found} and not {expected}");
    }

    #[test]
    fn pandas_and_polars_find_the_overhead() {
        const TEST: &str = "pandas_and_polars_find_the_overhead";
        let stage = Stage::with_fakes();
        let overhead = measured(&stage);
        for library in ["pandas", "polars"] {
            let Some(python) = python_with(library, TEST) else { continue };
            let found = json_of(&stage, python, &["-c", &program(library)]);
            same(&found[OTHER], &overhead["mean"]);
        }
    }

    /// What polars keeps as Parquet is every iteration of the attempts that count: the void one took
    /// three seconds.
    #[test]
    fn polars_keeps_the_values_as_parquet() {
        const TEST: &str = "polars_keeps_the_values_as_parquet";
        const BACK: &str = "import json, math, polars\n\
            samples = polars.read_parquet('run.parquet')\n\
            print(json.dumps([samples.height, math.exp(samples['log'].max())]))";
        let Some(python) = python_with("polars", TEST) else { return };
        let stage = Stage::with_fakes();
        measured(&stage);
        let both = format!("{}\n{}", program("polars"), program("Parquet"));
        json_of(&stage, python, &["-c", &both]);
        let back = json_of(&stage, python, &["-c", BACK]);
        assert_eq!(back[0], 2 * 8 * 4);
        assert!(back[1].as_f64().unwrap() < 2.9, "{back}");
    }

    #[test]
    fn r_finds_the_overhead_and_its_interval() {
        if !has_r("r_finds_the_overhead_and_its_interval") {
            return;
        }
        let stage = Stage::with_fakes();
        let overhead = measured(&stage);
        let found = json_of(&stage, "Rscript", &["-e", &program("R")]);
        assert_eq!(found[0]["environment"], OTHER);
        for (place, name) in [("1", "mean"), ("2", "ci_low"), ("3", "ci_high")] {
            let value = found[0].as_object().unwrap().values().nth(place.parse().unwrap()).unwrap();
            same(value, &overhead[name]);
        }
    }
}
