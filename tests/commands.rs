//! The smaller commands.

use crate::support::{Stage, cell_of, known_diagnosis, listed, shown};

#[test]
fn doctor_names_every_platform_and_leaves_nothing() {
    let stage = Stage::new();
    let diagnosis = known_diagnosis(&stage);
    let platforms = listed(diagnosis, "platforms");
    let names: Vec<&str> = platforms.iter().map(|platform| platform["name"].as_str().unwrap()).collect();
    for name in ["native", "namespaces", "runc", "docker", "uml"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"null"), "a fake is no platform of anyone's");
    for platform in platforms {
        assert!(platform["ready"] == true || !platform["detail"].as_str().unwrap().is_empty());
        let remedy = platform["remedy"].as_str().unwrap_or_default();
        assert!(
            platform["ready"] == true || platform["command"].is_string() || remedy.contains("no command"),
            "what is missing has a command that helps, or says that none does: {platform}"
        );
    }
    let text = stage.stdout("doctor");
    for heading in ["Platforms", "Host", "Noise"] {
        assert!(text.contains(heading), "{text}");
    }
    for finding in listed(diagnosis, "noise") {
        assert!(
            finding["command"].is_string() || finding["remedy"].to_string().contains("no command"),
            "{finding}"
        );
    }
    let wanted = platforms.iter().filter(|state| state["command"].is_string()).count();
    let shown = text.lines().filter(|line| line.trim().starts_with("$ ")).count();
    assert!(shown >= wanted, "every command has a line of its own:\n{text}");
    stage.host_is_as_before();
}

/// Where the host counts its energy, a run compares it. Elsewhere weigh says why not before it does
/// anything, and the doctor says the same.
#[test]
fn energy_is_measured_or_refused_with_the_reason() {
    let stage = Stage::new();
    let state = known_diagnosis(&stage)["energy"].as_str().unwrap();
    let run = "run --energy --on native;native:label=again --blocks 3 --no-void --out r -- sleep 0.2";
    if state.contains("--energy") {
        stage.run(run).ends_with(0);
        let report = shown(&stage, "r");
        let cell = cell_of(&report, "native:label=again", "energy_per_run");
        assert_eq!((&cell["n"], &cell["unit"]), (&3.into(), &"J".into()), "{cell}");
    } else {
        let refused = stage.run(run).ends_with(2);
        // The message is broken into lines.
        let said = refused.stderr.replace('│', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(state), "{state}:\n{said}");
        assert!(!stage.here().join("r").exists());
    }
    stage.host_is_as_before();
}

/// A dry run says what it would do and does nothing.
#[test]
fn a_dry_run_does_nothing() {
    let stage = Stage::new();
    let run = "run stream --on native;docker:net=nat --dry-run --seed 7 --quick";
    let text = stage.stdout(run);
    for word in ["seed 7", "stream", "docker:net=nat", "order", "host changes", "image"] {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
    assert_eq!(text, stage.stdout(run), "the order must follow from the seed");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    #[test]
    fn lists_are_complete() {
        let stage = Stage::with_fakes();
        let platforms = stage.stdout("list platforms");
        let workloads = stage.stdout("list workloads");
        for name in ["native", "namespaces", "runc", "docker", "uml", "null", "docker-host"] {
            assert!(platforms.contains(name), "{name}:\n{platforms}");
        }
        for name in [
            "noploop",
            "stream",
            "gups",
            "lzma",
            "syscall",
            "memory-latency",
            "echo",
            "block",
            "spin",
            "spawn",
        ] {
            assert!(workloads.contains(name), "{name}:\n{workloads}");
        }
        assert!(stage.json("list workloads --json").as_array().unwrap().len() >= 9);
        // A line for each, unless somebody asks for more.
        assert!(!platforms.contains("key "), "{platforms}");
        let all = stage.stdout("list platforms --details");
        for said in ["runc ", "key seccomp=on|off", "Keys that several have"] {
            assert!(all.contains(said), "{said}:\n{all}");
        }
        let one = stage.stdout("list workloads gups");
        assert!(one.contains("param table-bytes") && !one.contains("stream"), "{one}");
        stage.refuses("list workloads strem", &["there is no workload `strem`", "stream"]);
        stage.refuses("list", &["platforms|workloads|studies"]);
    }

    #[test]
    fn completions_and_manual_pages_come_from_the_binary() {
        let stage = Stage::with_fakes();
        for shell in ["bash", "zsh", "fish"] {
            assert!(stage.stdout(&format!("completions {shell}")).contains("weigh"));
        }
        stage.stdout("man pages");
        let page = stage.read("pages/weigh-run.1");
        assert!(page.contains("blocks") && page.starts_with(".ie"), "{page}");
        assert!(stage.stdout("man").contains("weigh"));
    }

    /// Every format of one run, and `last`.
    #[test]
    fn a_run_is_shown_in_every_format() {
        let stage = Stage::with_fakes();
        stage.stdout("run --on null;null:effect=0.1,label=slow --baseline null --blocks 6 --seed 1 -- true");
        for (format, word) in [
            ("table", "null:effect"),
            ("json", "\"verdict\""),
            ("csv", "environment,"),
            ("md", "| "),
            ("latex", "\\toprule"),
            ("html", "</html>"),
        ] {
            let text = stage.stdout(&format!("show last --format {format}"));
            assert!(text.contains(word), "{format}: {text}");
        }
        stage.stdout("show --format html --output page.html");
        assert!(stage.read("page.html").contains("</html>"));
    }

    /// Two runs are compared as before and after, and labelled sequential.
    #[test]
    fn runs_are_compared_as_sequential() {
        let stage = Stage::with_fakes();
        for out in ["a", "b"] {
            stage.stdout(&format!(
            "run --on null:sd=0.002,seed=1;null:sd=0.002,effect=0.02,label=x,seed=2 --baseline null:sd=0.002,seed=1 \
             --blocks 30 --out {out} -- true"
        ));
        }
        let same = stage.stdout("compare a b");
        assert!(same.to_lowercase().contains("sequential") && same.contains("ONE RUN"), "{same}");
        // Nothing is concluded from one run on each side, so nothing passes a gate.
        stage.run("compare a b --gate 50").ends_saying(4, &["one run on a side"]);
        // The run is the unit: with several runs on each side there are verdicts and gates.
        for to in ["c", "d", "copy"] {
            std::fs::create_dir(stage.here().join(to)).unwrap();
            for file in ["plan.json", "host.json", "samples.jsonl", "events.jsonl"] {
                stage.write(&format!("{to}/{file}"), stage.read(&format!("a/{file}")));
            }
        }
        for (run, times) in [("b", 1.001), ("c", 0.9995), ("d", 1.0005)] {
            stage.edit_records(run, |record| {
                let own = record["environment"].as_str().is_some_and(|name| name.contains("label=x"));
                for iteration in record["outcome"]["iterations"].as_array_mut().into_iter().flatten() {
                    let time = iteration["values"]["time"].as_f64().unwrap();
                    iteration["values"]["time"] = (time * if own { times } else { 1.0 }).into();
                }
            });
        }
        let report = stage.json("compare a b --with c d --format json");
        assert_eq!(report["compared"]["before"], "a, b");
        let cell = listed(&report, "cells").iter().find(|cell| cell["verdict"].is_string()).unwrap();
        assert_eq!((&cell["verdict"], &cell["n"]), (&"EQUIVALENT".into(), &30.into()), "{cell}");
        assert_eq!(cell["runs"]["after"]["each"].as_array().unwrap().len(), 2);
        stage.run("compare a b --with c d --gate 3").ends_with(0);
        stage.refuses("compare a b --with c", &["one run is compared with several"]);
        stage.refuses("compare a b c", &["without --with"]);
        // However it is spelled, and wherever it is.
        stage.refuses("compare a b --with c a", &["named twice"]);
        stage.refuses("compare a b --with c ./c/../a", &["named twice"]);
        stage.refuses("compare a b --with c copy", &["the run copy is a copy of a"]);
    }

    /// The baseline is measured once more in every block, labelled, without a verdict.
    #[test]
    fn a_control_is_measured_beside_its_baseline() {
        let stage = Stage::with_fakes();
        let line = "run --on null:sd=0.001;null:sd=0.001,effect=0.1,label=x --baseline null:sd=0.001 --control \
                    --seed 1 --blocks 6 --out r -- true";
        let said = stage.stdout(line);
        assert!(said.contains("control (the baseline again): 1 of 1 interval contains 0"), "{said}");
        let plan = stage.read_json("r/plan.json");
        let control = plan["control"].as_str().unwrap();
        assert!(control.ends_with("label=control") && plan["orders"] == "balanced", "{plan}");
        let report = stage.json("show r --format json");
        let cell = listed(&report, "cells").iter().find(|cell| cell["environment"] == control).unwrap();
        assert!(cell["verdict"].is_null() && cell["flags"].to_string().contains("CONTROL"), "{cell}");
        assert_eq!(report["comparisons"], 1);
    }

    /// The counters are those of this host.
    #[test]
    fn the_energy_of_another_host_is_refused() {
        let stage = Stage::with_fakes();
        let run = "run noploop --on native;ssh:host=192.0.2.7 --energy --dry-run";
        stage.refuses(run, &["`ssh:host=192.0.2.7` is on another", "run weigh with --energy there"]);
    }
}
