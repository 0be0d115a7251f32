//! Bad input gets an error that points at the place, names the remedy and loses nothing.

use crate::support::{Stage, shown};

/// Runs and returns exit code and standard error.
fn refused(stage: &Stage, arguments: &[&str]) -> (i32, String) {
    let output = stage.weigh().args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Each line: arguments, and what the message has to contain.
#[test]
fn words_that_do_not_exist_are_underlined_with_the_nearest() {
    let stage = Stage::with_fakes();
    let cases: &[(&[&str], &[&str])] = &[
        (&["run", "noploop", "--on", "dokcer"], &["dokcer", "docker", "here"]),
        (&["run", "noploop", "--on", "docker:nett=nat"], &["nett", "net", "here"]),
        (&["run", "noploop", "--on", "docker:net=nta"], &["nta", "nat", "here"]),
        (&["run", "noploop", "--on", "docker:net"], &["no value"]),
        (&["run", "nooploop", "--on", "null"], &["nooploop", "noploop"]),
        (&["run", "stream", "--on", "null", "--param", "repetition=3"], &["repetition", "repetitions"]),
        (&["run", "stream", "--on", "null", "--param", "repetitions"], &["key=value"]),
        (&["run", "noploop", "--on", "null", "--cpus", "9999"], &["9999", "usable CPUs"]),
        (&["run", "noploop", "--on", "null", "--memory", "12parsecs"], &["--memory", "parsecs", "MiB"]),
        (&["run", "noploop", "--on", "null", "--memory", "1KiB"], &["too small"]),
        (&["run", "noploop", "--on", "null", "--budget", "soon"], &["--budget", "soon", "10m"]),
        (&["run", "noploop", "--on", "null", "--memory", ""], &["--memory", "512MiB"]),
        (&["run", "noploop", "--on", "null", "--cpus", "0-x"], &["--cpus", "0-x"]),
        (&["run", "noploop", "--on", "null", "--deadline", "later"], &["--deadline", "later"]),
        (&["run", "noploop", "--on", "null;null"], &["twice", "label="]),
        (&["run", "noploop", "noploop", "--on", "null"], &["twice"]),
        (&["run", "--on", "null", "--workload", "missing.toml"], &["missing.toml"]),
        (&["run", "--plan", "missing.json"], &["missing.json"]),
        (&["run", "noploop", "--on", "native", "--image", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["show", "nothing-here"], &["nothing-here"]),
        (&["show"], &["weigh-runs"]),
        (&["resume", "nothing-here"], &["nothing-here"]),
        (&["analyse", "nothing.csv"], &["nothing.csv"]),
        (&["run", "noploop", "--precision", "0"], &["between 0 and 100"]),
        (&["run", "noploop", "--void-above", "lots"], &["between 0 and 100"]),
        (&["run", "noploop", "--warn-above", "5"], &["5 %", "2 %", "--void-above"]),
        (&["run", "noploop", "--void-above", "5", "--no-void"], &["--no-void", "cannot be used"]),
        (&["frobnicate"], &["frobnicate"]),
    ];
    for (arguments, expected) in cases {
        let (code, message) = refused(&stage, arguments);
        assert_eq!(code, 2, "{arguments:?}: {message}");
        for word in *expected {
            assert!(message.contains(word), "{arguments:?} does not say `{word}`:\n{message}");
        }
    }
    assert!(!stage.here().join("weigh-runs").exists(), "a refused run left a run directory");
    stage.host_is_as_before();
}

#[test]
fn a_malformed_manifest_is_shown_with_file_line_and_column() {
    let stage = Stage::with_fakes();
    let file = stage.here().join("mine.toml");
    std::fs::write(&file, "name = \"mine\"\nsummary = \"x\"\ncomand = [\"true\"]\n").unwrap();
    let (code, message) = refused(&stage, &["run", "mine", "--on", "null", "--workload", "mine.toml"]);
    assert_eq!(code, 2, "{message}");
    for word in ["mine.toml:3:1", "comand", "command"] {
        assert!(message.contains(word), "does not say `{word}`:\n{message}");
    }
    std::fs::write(&file, "name = \"mine\nsummary").unwrap();
    let (code, message) = refused(&stage, &["run", "mine", "--on", "null", "--workload", "mine.toml"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("mine.toml:2:"), "{message}");
    stage.host_is_as_before();
}

/// A plan from elsewhere: what is wrong with it is said with its file.
#[test]
fn plans_that_cannot_be_run_are_refused() {
    let stage = Stage::with_fakes();
    let run = ["run", "--on", "null", "--blocks", "2", "--out", "r", "--", "true"];
    stage.weigh().args(run).assert().success();
    let plan = std::fs::read_to_string(stage.here().join("r/plan.json")).unwrap();
    let half = &plan[..plan.len() / 2];
    let without = plan.replace("\"baseline\": \"native\"", "\"baseline\": \"nowhere\"");
    for (content, expected) in [
        ("", &["plan.json", "line 1"][..]),
        (half, &["plan.json", "line", "--out"]),
        ("{\"format\": 99, \"quite\": \"different\"}", &["plan.json", "99", "newer"]),
        (&without, &["plan.json", "nowhere", "baseline"]),
        (&plan.replace("\"spec\": \"null\"", "\"spec\": \"nul\""), &["plan.json", "nul"]),
    ] {
        assert_ne!(content, plan, "something is wrong with it");
        std::fs::write(stage.here().join("plan.json"), content).unwrap();
        let (code, message) = refused(&stage, &["run", "--plan", "plan.json", "--out", "again"]);
        assert_eq!(code, 2, "{message}");
        for word in expected {
            assert!(message.contains(word), "does not say `{word}`:\n{message}");
        }
    }
    assert!(!stage.here().join("again").exists(), "a refused run left a run directory");
    stage.host_is_as_before();
}

/// Failing commands fail their own cell; exit code 4 only when nothing at all was measured.
#[test]
fn commands_that_fail_are_reported_and_the_others_go_on() {
    let stage = Stage::new();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--", "no-such-program-anywhere"], &["no-such-program-anywhere"]),
        (&["--", "sh", "-c", "echo it broke >&2; exit 7"], &["7", "it broke"]),
        (&["--deadline", "200ms", "--", "sleep", "600"], &["did not end within", "0.2 s"]),
        (&["--", "sh", "-c", "kill -9 $$"], &["signal"]),
        (&["--prepare", "exit 3", "--", "true"], &["prepar"]),
    ];
    for (arguments, expected) in cases {
        let run = ["run", "--on", "native,null", "--baseline", "native", "--blocks", "2", "--out", "r"];
        let (code, message) = refused(&stage, &[&run[..], arguments].concat());
        assert_eq!(code, 0, "{arguments:?}: {message}");
        let report = shown(&stage, "r");
        let failure = report["failures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["environment"] == "native")
            .unwrap()
            .clone();
        for word in *expected {
            assert!(
                failure["reason"].to_string().contains(word),
                "{arguments:?} does not say `{word}`: {failure}"
            );
        }
        let other =
            report["cells"].as_array().unwrap().iter().find(|cell| cell["environment"] == "null").unwrap();
        assert!(other["median"].is_number(), "{arguments:?}: the fake platform was not measured: {other}");
        std::fs::remove_dir_all(stage.here().join("r")).unwrap();
    }
    let nothing = ["run", "--on", "native", "--blocks", "2", "--out", "n", "--", "no-such-program"];
    let (code, message) = refused(&stage, &nothing);
    let shown = stage.weigh().args(["show", "n"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("weigh resume"), "going on would not help");
    assert_eq!(code, 4, "{message}");
    stage.host_is_as_before();
}

/// A guest that dies in the middle of a trial.
#[test]
fn a_guest_that_dies_fails_its_cell_only() {
    let stage = Stage::with_fakes();
    let on = "null;null:fault=die,at=1,label=dies";
    stage
        .weigh()
        .args(["run", "--on", on, "--baseline", "null", "--blocks", "4", "--out", "r", "--", "true"])
        .assert()
        .success();
    let report = shown(&stage, "r");
    let cells = report["cells"].as_array().unwrap();
    let healthy = cells.iter().find(|cell| cell["environment"] == "null").unwrap();
    assert_eq!(healthy["n"], 4);
    let dying = report["failures"].as_array().unwrap();
    assert!(
        dying.iter().any(|failure| failure["environment"] == "null:at=1,fault=die,label=dies"),
        "{report}"
    );
    for cell in cells.iter().filter(|cell| cell["environment"] == "null:at=1,fault=die,label=dies") {
        assert!(cell["verdict"].is_null(), "a failed cell got a verdict: {cell}");
    }
    stage.host_is_as_before();
}

/// A full disk ends the run with what is kept and what to do; the run goes on when there is room.
#[test]
fn a_full_disk_loses_nothing() {
    let stage = Stage::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED a_full_disk_loses_nothing: a small file system can only be mounted by root");
        return;
    }
    let small = stage.here().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let path = small.display().to_string();
    mount(&["mount", "-t", "tmpfs", "-o", "size=128k", "weigh-test", &path]);
    let run = [
        "run",
        "--on",
        "null;null:label=b",
        "--baseline",
        "null",
        "--blocks",
        "400",
        "--seed",
        "1",
        "--out",
        "small/r",
        "--",
        "true",
    ];
    let (code, message) = refused(&stage, &run);
    let trials = std::fs::read_to_string(small.join("r/samples.jsonl")).unwrap().lines().count();
    mount(&["mount", "-o", "remount,size=64m", &path]);
    let resumed = stage.weigh().args(["resume", "small/r"]).output().unwrap();
    let report = shown(&stage, "small/r");
    mount(&["umount", &path]);
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("space") && message.contains("weigh resume"), "{message}");
    assert!(trials > 10, "{trials}");
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert_eq!(report["blocks"]["done"], 400);
    stage.host_is_as_before();
}

/// Without root, what needs root is said and the rest runs.
#[test]
fn without_root_the_rest_runs() {
    let stage = Stage::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED without_root_the_rest_runs: the test drops from root to another user");
        return;
    }
    let place = stage.here().parent().unwrap().to_path_buf();
    for path in [place.clone(), stage.here(), place.join("state")] {
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    }
    let binary = place.join("weigh");
    std::fs::copy(assert_cmd::cargo::cargo_bin("weigh"), &binary).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(arguments);
        command
            .current_dir(stage.here())
            .env("WEIGH_STATE", stage.state())
            .env("HOME", &place)
            .env("NO_COLOR", "1");
        command.output().unwrap()
    };
    let output = run(&["run", "--on", "native,namespaces,runc", "--blocks", "2", "--out", "r", "--", "true"]);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("root"), "{said}");
    let report = shown(&stage, "r");
    let cells = report["cells"].as_array().unwrap();
    for environment in ["native", "namespaces"] {
        assert!(
            cells.iter().any(|cell| cell["environment"] == environment && cell["n"] == 2),
            "{environment}: {said}"
        );
    }
    assert!(report["failures"].as_array().unwrap().iter().any(|f| f["environment"] == "runc"), "{report}");
    stage.host_is_as_before();
}
