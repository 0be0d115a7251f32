//! The smaller commands.

use crate::support::{Stage, known_diagnosis};
use serde_json::Value;

fn stdout(stage: &Stage, arguments: &[&str]) -> String {
    let output = stage.weigh().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn doctor_names_every_platform_and_leaves_nothing() {
    let stage = Stage::new();
    let diagnosis = known_diagnosis(&stage);
    let names: Vec<&str> =
        diagnosis["platforms"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    for name in ["native", "namespaces", "runc", "docker", "uml"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"null"), "a fake is no platform of anyone's");
    for platform in diagnosis["platforms"].as_array().unwrap() {
        assert!(platform["ready"] == true || !platform["detail"].as_str().unwrap().is_empty());
        let remedy = platform["remedy"].as_str().unwrap_or_default();
        assert!(
            platform["ready"] == true || platform["command"].is_string() || remedy.contains("no command"),
            "what is missing has a command that helps, or says that none does: {platform}"
        );
    }
    let text = stdout(&stage, &["doctor"]);
    for heading in ["Platforms", "Host", "Noise"] {
        assert!(text.contains(heading), "{text}");
    }
    for finding in diagnosis["noise"].as_array().unwrap() {
        assert!(
            finding["command"].is_string() || finding["remedy"].to_string().contains("no command"),
            "{finding}"
        );
    }
    let wanted = diagnosis["platforms"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|state| state["command"].is_string())
        .count();
    let shown = text.lines().filter(|line| line.trim().starts_with("$ ")).count();
    assert!(shown >= wanted, "every command has a line of its own:\n{text}");
    stage.host_is_as_before();
}

#[test]
fn lists_are_complete() {
    let stage = Stage::with_fakes();
    let platforms = stdout(&stage, &["list", "platforms"]);
    let workloads = stdout(&stage, &["list", "workloads"]);
    for name in ["native", "namespaces", "runc", "docker", "uml", "null", "docker-host"] {
        assert!(platforms.contains(name), "{name}:\n{platforms}");
    }
    for name in
        ["noploop", "stream", "gups", "lzma", "syscall", "memory-latency", "echo", "block", "spin", "spawn"]
    {
        assert!(workloads.contains(name), "{name}:\n{workloads}");
    }
    assert!(stdout(&stage, &["list", "images"]).contains("probe"));
    let json: Value = serde_json::from_str(&stdout(&stage, &["list", "workloads", "--json"])).unwrap();
    assert!(json.as_array().unwrap().len() >= 9);
}

/// A dry run says what would be done and does nothing.
#[test]
fn a_dry_run_does_nothing() {
    let stage = Stage::new();
    let arguments = ["run", "stream", "--on", "native;docker:net=nat", "--dry-run", "--seed", "7", "--quick"];
    let text = stdout(&stage, &arguments);
    for word in ["seed 7", "stream", "docker:net=nat", "order", "host changes", "image"] {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
    assert_eq!(text, stdout(&stage, &arguments), "the order must follow from the seed");
    assert!(!stage.here().join("weigh-runs").exists());
    stage.host_is_as_before();
}

#[test]
fn completions_and_manual_pages_come_from_the_binary() {
    let stage = Stage::with_fakes();
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&stage, &["completions", shell]).contains("weigh"));
    }
    stdout(&stage, &["man", "pages"]);
    let page = std::fs::read_to_string(stage.here().join("pages/weigh-run.1")).unwrap();
    assert!(page.contains("blocks") && page.starts_with(".ie"), "{page}");
    assert!(stdout(&stage, &["man"]).contains("weigh"));
}

/// Every format of one run, and `last`.
#[test]
fn a_run_is_shown_in_every_format() {
    let stage = Stage::with_fakes();
    stdout(
        &stage,
        &[
            "run",
            "--on",
            "null;null:effect=0.1,label=slow",
            "--baseline",
            "null",
            "--blocks",
            "6",
            "--seed",
            "1",
            "--",
            "true",
        ],
    );
    for (format, word) in [
        ("table", "null:effect"),
        ("json", "\"verdict\""),
        ("csv", "environment,"),
        ("md", "| "),
        ("latex", "\\toprule"),
        ("html", "</html>"),
    ] {
        let text = stdout(&stage, &["show", "last", "--format", format]);
        assert!(text.contains(word), "{format}: {text}");
    }
    stdout(&stage, &["show", "--format", "html", "--output", "page.html"]);
    assert!(std::fs::read_to_string(stage.here().join("page.html")).unwrap().contains("</html>"));
}

/// Before and after are compared, labelled sequential.
#[test]
fn two_runs_are_compared_as_sequential() {
    let stage = Stage::with_fakes();
    let run = |effect: &str, seed: &str, out: &str| {
        let on = format!("null:sd=0.01,seed=1;null:sd=0.01,effect={effect},label=x,seed={seed}");
        stdout(
            &stage,
            &[
                "run",
                "--on",
                &on,
                "--baseline",
                "null:sd=0.01,seed=1",
                "--blocks",
                "30",
                "--out",
                out,
                "--",
                "true",
            ],
        );
    };
    run("0.02", "2", "a");
    run("0.02", "2", "b");
    let same = stdout(&stage, &["compare", "a", "b"]);
    assert!(same.to_lowercase().contains("sequential"), "{same}");
}
