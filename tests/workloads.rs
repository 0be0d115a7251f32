//! A workload of the user's own: what stands around its command, and what happens when that goes
//! wrong.

use crate::support::{Stage, ready, shown};
use serde_json::Value;

/// The example of the book, as its reader saves it.
fn example() -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

fn cell<'a>(report: &'a Value, environment: &str, metric: &str) -> &'a Value {
    let mut cells = report["cells"].as_array().unwrap().iter();
    let wanted = |cell: &&Value| cell["environment"] == environment && cell["metric"] == metric;
    cells.find(wanted).unwrap_or_else(|| panic!("no cell {environment} {metric}: {report}"))
}

#[test]
fn the_example_of_the_book_runs() {
    let stage = Stage::new();
    std::fs::write(stage.here().join("sort-lines.toml"), example()).unwrap();
    let mut environments = vec!["native"];
    for platform in ["namespaces", "docker"] {
        if ready(&stage, platform, "the_example_of_the_book_runs") {
            environments.push(platform);
        }
    }
    let on = environments.join(",");
    let run = stage
        .weigh()
        .args(["run", "sort-lines", "--workload", "sort-lines.toml", "--on", &on, "--size", "quick"])
        .args(["--blocks", "2", "--param", "lines=1000,20000", "--out", "run"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report = shown(&stage, "run");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    for environment in environments {
        for metric in ["time", "maximum_resident_set"] {
            let cell = cell(&report, environment, metric);
            assert_eq!(cell["n"], 2, "{cell}");
            assert!(cell["median"].as_f64().unwrap() > 0.0, "{cell}");
        }
    }
    stage.host_is_as_before();
}

#[test]
fn what_goes_wrong_around_a_command_is_told() {
    let stage = Stage::new();
    let write = |name: &str, from: &str, to: &str| {
        let text = example();
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to).replace("sort-lines", name);
        std::fs::write(stage.here().join(format!("{name}.toml")), text).unwrap();
    };
    write("no-setup", "shuf --random-source=/bin/sh", "false; exit 9; cat");
    write("no-program", "command = [\"sh\", \"-c\",", "command = [\"no-such-program\",");
    // The tear-down sees what the failed command left, and says where it ran.
    write("torn-down", "sed 's/^/largest: /'", "false");
    let from = "teardown = [\"rm\", \"-f\", \"{scratch}/lines\"]";
    let text = std::fs::read_to_string(stage.here().join("torn-down.toml")).unwrap();
    let here = stage.here().display().to_string();
    let to =
        format!("teardown = [\"sh\", \"-c\", \"ls -d {{scratch}} >> {here}/torn; rm {{scratch}}/lines\"]");
    std::fs::write(stage.here().join("torn-down.toml"), text.replace(from, &to)).unwrap();
    let mut command = stage.weigh();
    command.args([
        "run",
        "no-setup",
        "no-program",
        "torn-down",
        "--on",
        "native",
        "--size",
        "quick",
        "--blocks",
        "1",
    ]);
    for name in ["no-setup", "no-program", "torn-down"] {
        command.args(["--workload", &format!("{name}.toml")]);
    }
    let run = command.args(["--out", "run"]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    for words in
        ["the set-up: it exited with status 9", "`no-such-program` cannot be run", "in the package coreutils"]
    {
        assert!(said.contains(words), "`{words}` is not said:\n{said}");
    }
    let torn = std::fs::read_to_string(stage.here().join("torn")).unwrap();
    assert!(torn.lines().count() >= 1 && torn.lines().all(|line| line.contains("/weigh-")), "{torn}");
    stage.host_is_as_before();
}
