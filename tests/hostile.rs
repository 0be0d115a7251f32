//! Names, outputs and files that somebody made to do harm, or that chance made: what they say is
//! shown, what they would do is not.

use crate::support::{Stage, shown};
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use weigh_model::is_harmful;

/// Markup, controls of a terminal, a mark that turns writing round, and what formats take for their
/// own.
const EVIL: &str = "<script>alert(1)</script>&\"'|_%$#{}~^\\\u{1b}[31m\u{9b}2J\u{202e}`*[x](y)";

const FORMATS: [&str; 6] = ["table", "md", "latex", "csv", "html", "json"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what weigh says is UTF-8")
}

/// Fails when a text could do more to a terminal than be read.
fn is_plain(what: &str, text: &str) {
    let harm = text.chars().find(|c| is_harmful(*c) && !matches!(c, '\n' | '\r' | '\t'));
    assert_eq!(harm, None, "{what}: {}", text.chars().take(2000).collect::<String>());
}

/// Shows a run in every format, and looks for what a name could break.
fn shows_in_every_format(stage: &Stage, run: &str) {
    for format in FORMATS {
        let output = stage.weigh().args(["show", run, "--format", format]).output().unwrap();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{format}: {error}");
        is_plain(format, &error);
        is_plain(format, &out);
        assert!(out.len() < 4 << 20, "{format}: {} bytes", out.len());
        match format {
            "json" => {
                let value: serde_json::Value = serde_json::from_str(&out).unwrap();
                assert!(value["cells"].as_array().is_some_and(|cells| !cells.is_empty()));
            }
            "html" => {
                assert_eq!(out.matches("<script").count(), 3, "data, library and script of its own");
                assert!(!out.contains("<script>alert"), "a name became a script");
            }
            "md" => assert!(!out.contains("<script"), "a name became markup"),
            _ => {}
        }
    }
}

/// The most memory that a process has had, bytes, looked at until it ends (`VmHWM` of
/// proc_pid_status(5)).
fn peak_bytes(child: &mut std::process::Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}

/// A gigabyte of zeros, of what is no UTF-8 and of control sequences neither stops a run nor fills
/// memory or disk.
#[test]
fn a_gigabyte_of_output_is_cut_and_said_to_be() {
    let stage = Stage::new();
    let script = "head -c 1073741824 /dev/zero; head -c 67108864 /dev/zero | tr '\\0' '\\377' >&2; \
                  printf '\\033[2J\\033]0;title\\a\\377\\376'; printf '\\033[31m\\342\\200\\256end\\n' >&2";
    let run =
        ["run", "--on", "native", "--blocks", "1", "--warmup", "0", "--out", "r", "--", "sh", "-c", script];
    let mut child = stage.spawn(&run);
    let peak = peak_bytes(&mut child);
    assert!(child.wait().unwrap().success(), "{}", stage.spawned_said());
    eprintln!("most memory: {} MiB", peak >> 20);
    assert!(peak > 0 && peak < MOST_MEMORY, "{} MiB of memory", peak >> 20);
    is_plain("what is said beside the run", &stage.spawned_said());
    let logs: Vec<_> = std::fs::read_dir(stage.here().join("r/logs")).unwrap().flatten().collect();
    let bytes: u64 = logs.iter().map(|log| log.metadata().unwrap().len()).sum();
    assert!(bytes < 100 << 20, "{bytes} bytes of logs");
    let cut = |path: &Path| {
        let log = std::fs::read(path).unwrap();
        String::from_utf8_lossy(&log).contains("bytes, of 1073741")
    };
    assert!(logs.iter().any(|log| cut(&log.path())), "no log says that it is cut");
    shows_in_every_format(&stage, "r");
    stage.host_is_as_before();
}

/// Two times [`OUTPUT_LIMIT_BYTES`] of the runner are held as they come, and once more as the log
/// is put together.
const MOST_MEMORY: u64 = 256 << 20;

/// The last words of a program that fails are in the reason, in the report and on the terminal.
#[test]
fn last_words_do_nothing_to_a_terminal() {
    let stage = Stage::new();
    let words = "printf '<script>alert(1)</script>\\033[2J\\033]0;owned\\a\\302\\233\\342\\200\\256\\377\\376\\000 end\\n' >&2; exit 3";
    let run = [
        "run",
        "--on",
        "native,null",
        "--baseline",
        "null",
        "--blocks",
        "2",
        "--out",
        "r",
        "--",
        "sh",
        "-c",
        words,
    ];
    let output = stage.weigh().args(run).output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    is_plain("the table", &out);
    is_plain("what is said beside the run", &error);
    let report = shown(&stage, "r");
    let failures = report["failures"].as_array().unwrap();
    let reason = failures.iter().find(|f| f["environment"] == "native").unwrap()["reason"].as_str().unwrap();
    for part in ["status 3", "<script>", "\\u{1b}[2J", "\\u{9b}", "\\u{202e}", "\u{fffd}\u{fffd}", "end"] {
        assert!(reason.contains(part), "`{part}` is lost: {reason}");
    }
    let log = std::fs::read_dir(stage.here().join("r/logs")).unwrap().flatten().map(|log| log.path());
    let raw =
        log.map(|path| std::fs::read(path).unwrap()).find(|log| log.windows(4).any(|at| at == b"\x1b[2J"));
    assert!(raw.is_some(), "the log has the output as it was");
    shows_in_every_format(&stage, "r");
    stage.host_is_as_before();
}

/// Labels are words of the user's, of any content and length.
#[test]
fn hostile_labels_are_only_names() {
    let stage = Stage::with_fakes();
    let label = format!("{EVIL}{}", "x".repeat(10_000)).replace([',', ';'], "");
    let on = format!("null;null:label={label}");
    let run = ["run", "--on", &on, "--baseline", "null", "--blocks", "2", "--out", "r", "--", "true"];
    let output = stage.weigh().args(run).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    is_plain("the table", &text(&output.stdout));
    let report = shown(&stage, "r");
    let named = |cell: &&serde_json::Value| cell["environment"].as_str().unwrap().contains(&label);
    assert!(report["cells"].as_array().unwrap().iter().any(|cell| named(&cell) && cell["n"] == 2));
    shows_in_every_format(&stage, "r");
    // A run directory of somebody else's may hold what no command line can.
    for file in ["plan.json", "samples.jsonl", "events.jsonl"] {
        let path = stage.here().join("r").join(file);
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(file == "events.jsonl" || content.contains("<script>"), "{file} names the environment");
        std::fs::write(path, content.replace("<script>", "<script>\\u0000\\u0007\\u2066")).unwrap();
    }
    shows_in_every_format(&stage, "r");
    stage.host_is_as_before();
}

/// A manifest of somebody else's.
#[test]
fn hostile_manifests_are_refused_or_shown_as_they_are() {
    let stage = Stage::new();
    let manifest = |name: &str, summary: &str, unit: &str| {
        let toml = |text: &str| serde_json::to_string(text).unwrap();
        format!(
            "name = {}\nsummary = {}\ndescription = {}\ncommand = [\"printf\", '{{{{\"x\": 1.5}}}}']\n[check]\nstatement = {}\n[[metric]]\nname = \"x\"\nunit = {}\nbetter = \"lower\"\nprimary = true\njson = \"/x\"\n",
            toml(name),
            toml(summary),
            toml(summary),
            toml(summary),
            toml(unit)
        )
    };
    let file = stage.here().join("mine.toml");
    let run = |name: &str| -> Output {
        let run = ["run", name, "--on", "native", "--blocks", "2", "--out", "r", "--workload", "mine.toml"];
        stage.weigh().args(run).output().unwrap()
    };
    // A name is part of file names and of command lines: it is refused.
    for name in ["<b>", "../../x", "a\u{1b}[2J", "\u{202e}abc", ""] {
        std::fs::write(&file, manifest(name, "s", "widgets")).unwrap();
        let output = run("mine");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name:?}: {said}");
        assert!(said.contains("mine.toml:1:"), "{name:?}: {said}");
        is_plain("the refusal", &said);
    }
    std::fs::write(&file, manifest("mine", EVIL, "<b>\u{202e}\u{1b}[1m|_%$")).unwrap();
    let output = run("mine");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    is_plain("the table", &text(&output.stdout));
    is_plain("what is said beside the run", &said);
    shows_in_every_format(&stage, "r");
    std::fs::create_dir_all(stage.config().join("workloads")).unwrap();
    std::fs::copy(&file, stage.config().join("workloads/mine.toml")).unwrap();
    let list = stage.weigh().args(["list", "workloads"]).output().unwrap();
    let list = text(&list.stdout);
    assert!(list.contains("<script>alert(1)</script>"), "the summary is shown:\n{list}");
    is_plain("the list", &list);
    stage.host_is_as_before();
}

/// Logs that a report names and that cannot be read, or are not where a run puts its logs.
#[test]
fn logs_that_cannot_be_shown_are_named() {
    let stage = Stage::new();
    let run = ["run", "--on", "native,null", "--baseline", "null", "--blocks", "2", "--out", "r"];
    let fails = ["--", "sh", "-c", "echo it broke >&2; exit 7"];
    stage.weigh().args(run).args(fails).assert().success();
    let name = shown(&stage, "r")["failures"][0]["log"].as_str().unwrap().to_string();
    let log = stage.here().join("r").join(&name);
    let secret = stage.here().join("secret");
    std::fs::write(&secret, "nobody else's business").unwrap();
    let page = || text(&stage.weigh().args(["show", "r", "--format", "html"]).output().unwrap().stdout);
    assert!(page().contains("the failed command, standard error"), "the end of the log is shown");
    std::fs::remove_file(&log).unwrap();
    let in_place: [fn(&Path, &Path); 3] = [
        |_, _| {},
        |log, secret| std::os::unix::fs::symlink(secret, log).unwrap(),
        |log, _| {
            std::fs::remove_file(log).unwrap();
            std::fs::create_dir(log).unwrap();
        },
    ];
    for put in in_place {
        put(&log, &secret);
        let page = page();
        let file = Path::new(&name).file_name().unwrap().to_str().unwrap();
        assert!(page.contains(file) && page.contains("it broke"), "the log and the reason are named");
        assert!(!page.contains("nobody else's business"), "a link led out of the run");
        assert!(page.contains("</html>"));
    }
    let samples = stage.here().join("r/samples.jsonl");
    let whole = std::fs::read_to_string(&samples).unwrap();
    std::fs::write(&samples, whole.replace(&name, "../secret")).unwrap();
    assert!(!page().contains("nobody else's business"), "a path led out of the run");
    stage.host_is_as_before();
}

/// Runs and compares and resumes; gives back each exit code with what was said.
fn all_commands(stage: &Stage) -> Vec<(String, i32, String)> {
    let commands: [&[&str]; 4] =
        [&["show", "bad"], &["compare", "bad", "good"], &["compare", "good", "bad"], &["resume", "bad"]];
    let outcome = |arguments: &&[&str]| {
        let output = stage.weigh().args(*arguments).output().unwrap();
        (arguments.join(" "), output.status.code().unwrap_or(-1), text(&output.stderr))
    };
    commands.iter().map(outcome).collect()
}

/// What damage is done to a run directory, the exit code, and what has to be said of it.
type Damage = (&'static str, fn(&Path), i32, &'static [&'static str]);

/// Whatever is wrong with a run directory is said, with the file and what to do, by every command
/// that reads it; nothing is changed.
#[test]
fn damaged_run_directories_are_refused_by_every_command() {
    let stage = Stage::with_fakes();
    let run = [
        "run",
        "--on",
        "null;null:label=b",
        "--baseline",
        "null",
        "--blocks",
        "3",
        "--out",
        "good",
        "--",
        "true",
    ];
    stage.weigh().args(run).assert().success();
    let cases: [Damage; 12] = [
        (
            "garbage in the middle",
            |run| edit_line(run, 3, b"\xff\xfe\x00{]"),
            2,
            &["samples.jsonl", "line 3", "copy"],
        ),
        (
            "half a line in the middle",
            |run| edit_line(run, 4, b"{\"record\":\"tri"),
            2,
            &["line 4", "column", "weigh resume"],
        ),
        ("an unknown record", |run| edit_line(run, 4, b"{\"record\":\"new\"}"), 2, &["line 4", "new"]),
        (
            "no samples at all",
            |run| std::fs::write(run.join("samples.jsonl"), "").unwrap(),
            2,
            &["samples.jsonl", "empty", "again"],
        ),
        ("no header", |run| edit_line(run, 1, b"{}"), 2, &["samples.jsonl", "header"]),
        (
            "samples of a newer version",
            |run| edit_line(run, 1, b"{\"record\":\"header\",\"format\":99}"),
            2,
            &["99", "newer"],
        ),
        (
            "no file of samples",
            |run| std::fs::remove_file(run.join("samples.jsonl")).unwrap(),
            2,
            &["samples.jsonl", "again"],
        ),
        ("no plan", |run| std::fs::remove_file(run.join("plan.json")).unwrap(), 2, &["plan.json", "copy"]),
        ("no host", |run| std::fs::remove_file(run.join("host.json")).unwrap(), 2, &["host.json"]),
        ("half a plan", |run| cut(&run.join("plan.json")), 2, &["plan.json", "line", "copy"]),
        (
            "a plan of a newer version",
            |run| {
                std::fs::write(run.join("plan.json"), "{\"format\": 99, \"quite\": \"different\"}").unwrap()
            },
            2,
            &["plan.json", "99", "newer"],
        ),
        ("half a host", |run| cut(&run.join("host.json")), 2, &["host.json", "line", "copy"]),
    ];
    for (what, damage, code, words) in cases {
        copy(&stage.here().join("good"), &stage.here().join("bad"));
        damage(&stage.here().join("bad"));
        let before = content(&stage.here().join("bad"));
        for (command, found, said) in all_commands(&stage) {
            assert_eq!(found, code, "{what}, {command}: {said}");
            let flat = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
            for word in words {
                assert!(flat.contains(word), "{what}, {command} does not say `{word}`:\n{said}");
            }
            is_plain(what, &said);
        }
        assert_eq!(content(&stage.here().join("bad")), before, "{what}: something was changed");
        std::fs::remove_dir_all(stage.here().join("bad")).unwrap();
    }
    stage.host_is_as_before();
}

/// What a crash leaves behind is reported as far as it goes, and says so; it is resumed.
#[test]
fn a_run_that_was_cut_short_is_reported_in_part() {
    let stage = Stage::with_fakes();
    let run = [
        "run",
        "--on",
        "null;null:label=b",
        "--baseline",
        "null",
        "--blocks",
        "3",
        "--out",
        "r",
        "--",
        "true",
    ];
    stage.weigh().args(run).assert().success();
    let samples = stage.here().join("r/samples.jsonl");
    let whole = std::fs::read(&samples).unwrap();
    for tail in [&b""[..], b"\xff\xfe", &[0; 300]] {
        std::fs::write(&samples, [&whole[..whole.len() - 10], tail].concat()).unwrap();
        let output = stage.weigh().args(["show", "r"]).output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for word in ["cut short", "weigh resume", "INCOMPLETE"] {
            assert!(said.contains(word), "`{word}` is not said:\n{said}");
        }
        assert_eq!(shown(&stage, "r")["blocks"]["done"], 2);
    }
    stage.weigh().args(["resume", "r"]).assert().success();
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 3);
    // Events are for people: without them, or with garbage among them, the run is whole.
    std::fs::write(stage.here().join("r/events.jsonl"), b"\xff\xfe\x00\n{").unwrap();
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 3);
    stage.host_is_as_before();
}

/// A directory that somebody else closed is not one that is missing.
#[test]
fn a_run_of_somebody_else_is_not_called_missing() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let stage = Stage::with_fakes();
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED a_run_of_somebody_else_is_not_called_missing: the test drops from root to another user"
        );
        return;
    }
    let run = [
        "run",
        "--on",
        "null;null:label=b",
        "--baseline",
        "null",
        "--blocks",
        "2",
        "--out",
        "r",
        "--",
        "true",
    ];
    stage.weigh().args(run).assert().success();
    let place = stage.here().parent().unwrap().to_path_buf();
    for path in [&place, &stage.here()] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    let binary = place.join("weigh");
    std::fs::copy(assert_cmd::cargo::cargo_bin("weigh"), &binary).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(arguments);
        command
            .current_dir(stage.here())
            .env("WEIGH_STATE", stage.state())
            .env("HOME", &place)
            .env("NO_COLOR", "1");
        let output = command.output().unwrap();
        (output.status.code().unwrap(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let mode =
        |path: &Path, bits: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
    let run = stage.here().join("r");
    let (code, said) = as_nobody(&["show", "r"]);
    assert_eq!(code, 0, "what can be read is shown: {said}");
    let (code, said) = as_nobody(&["resume", "r"]);
    assert!(code == 1 && said.contains("samples.jsonl") && said.contains("denied"), "{code}: {said}");
    for (path, bits, back) in [
        (run.join("samples.jsonl"), 0o600, 0o644),
        (run.join("plan.json"), 0o600, 0o644),
        (run.clone(), 0o700, 0o755),
    ] {
        mode(&path, bits);
        for arguments in [&["show", "r"][..], &["compare", "r", "r"], &["resume", "r"]] {
            let (code, said) = as_nobody(arguments);
            assert_eq!(code, 1, "{arguments:?} with {}: {said}", path.display());
            assert!(said.contains("denied") && said.contains("somebody else"), "{arguments:?}: {said}");
            assert!(
                !said.contains("there is no run") && !said.contains("is not a run"),
                "{arguments:?}: {said}"
            );
        }
        mode(&path, back);
    }
    stage.host_is_as_before();
}

fn edit_line(run: &Path, number: usize, with: &[u8]) {
    let file = run.join("samples.jsonl");
    let whole = std::fs::read(&file).unwrap();
    let mut lines: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    lines[number - 1] = with;
    std::fs::write(&file, lines.join(&b'\n')).unwrap();
}

fn cut(file: &Path) {
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Every file with its bytes.
fn content(directory: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.path().is_dir() {
            true => found.extend(content(&entry.path())),
            false => found.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found.sort();
    found
}
