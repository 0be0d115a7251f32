//! A user's own workload: what surrounds its command, and what happens when that fails.

use crate::support::{Stage, cell_of, listed, with_native};

/// The example of the book, as a reader saves it.
fn example() -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

#[test]
fn the_example_of_the_book_runs() {
    let stage = Stage::new();
    stage.write("sort-lines.toml", example());
    let on = with_native(&stage, &["namespaces", "docker"], "the_example_of_the_book_runs");
    let report = stage.measured(&format!(
        "run sort-lines --workload sort-lines.toml --on {on} --size quick --blocks 2 --param lines=1000,20000"
    ));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in on.split(',') {
        for metric in ["time", "maximum_resident_set"] {
            let cell = cell_of(&report, environment, metric);
            assert_eq!(cell["n"], 2, "{cell}");
            assert!(cell["median"].as_f64().unwrap() > 0.0, "{cell}");
        }
    }
    stage.host_is_as_before();
}

#[test]
fn faults_around_a_command_are_reported() {
    let stage = Stage::new();
    let write = |name: &str, from: &str, to: &str| {
        let text = example();
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to).replace("sort-lines", name);
        stage.write(&format!("{name}.toml"), text);
    };
    write("no-setup", "shuf --random-source=/bin/sh", "false; exit 9; cat");
    write("no-program", "command = [\"sh\", \"-c\",", "command = [\"no-such-program\",");
    // The tear-down sees what the failed command left, and says where it ran.
    write("torn-down", "sed 's/^/largest: /'", "false");
    let from = "teardown = [\"rm\", \"-f\", \"{scratch}/lines\"]";
    let text = stage.read("torn-down.toml");
    let here = stage.here().display().to_string();
    let to =
        format!("teardown = [\"sh\", \"-c\", \"ls -d {{scratch}} >> {here}/torn; rm {{scratch}}/lines\"]");
    stage.write("torn-down.toml", text.replace(from, &to));
    let names = ["no-setup", "no-program", "torn-down"];
    let files = names.map(|name| format!("{name} --workload {name}.toml")).join(" ");
    let run = stage.run(&format!("run {files} --on native --size quick --blocks 1 --out run"));
    run.says(&[
        "the set-up: it exited with status 9",
        "`no-such-program` cannot be run",
        "in the package coreutils",
    ]);
    let torn = stage.read("torn");
    assert!(torn.lines().count() >= 1 && torn.lines().all(|line| line.contains("/weigh-")), "{torn}");
    stage.host_is_as_before();
}
