//! Malicious or accidental names, outputs and files: their text is shown, but they do no harm.

use crate::support::{Said, Stage, copy, is_root, listed, shown, words};
use std::path::Path;
use std::time::Duration;
use weigh_model::is_harmful;

/// Markup, terminal control sequences, a mark that reverses the writing direction, and special
/// characters of formats.
const EVIL: &str = "<script>alert(1)</script>&\"'|_%$#{}~^\\\u{1b}[31m\u{9b}2J\u{202e}`*[x](y)";

const FORMATS: [&str; 6] = ["table", "md", "latex", "csv", "html", "json"];

/// Fails if a terminal would do more with a text than display it.
fn is_plain(what: &str, text: &str) {
    let harm = text.chars().find(|c| is_harmful(*c) && !matches!(c, '\n' | '\r' | '\t'));
    assert_eq!(harm, None, "{what}: {}", text.chars().take(2000).collect::<String>());
}

/// Shows a run in every format, and looks for what a name could break.
fn shows_in_every_format(stage: &Stage, run: &str) {
    for format in FORMATS {
        let said = stage.run(&format!("show {run} --format {format}")).ends_with(0);
        let out = said.stdout;
        is_plain(format, &said.stderr);
        is_plain(format, &out);
        assert!(out.len() < 4 << 20, "{format}: {} bytes", out.len());
        match format {
            "json" => {
                let value: serde_json::Value = serde_json::from_str(&out).unwrap();
                assert!(!listed(&value, "cells").is_empty());
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

/// The most memory that a process has used, bytes, polled until it ends (`VmHWM` of
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

/// A gigabyte of zeros, of bytes that are not UTF-8 and of control sequences neither stops a run
/// nor fills memory or disk.
#[test]
fn a_gigabyte_of_output_is_cut_and_reported_as_cut() {
    let stage = Stage::new();
    let script = "head -c 1073741824 /dev/zero; head -c 67108864 /dev/zero | tr '\\0' '\\377' >&2; \
                  printf '\\033[2J\\033]0;title\\a\\377\\376'; printf '\\033[31m\\342\\200\\256end\\n' >&2";
    let mut arguments = words("run --on native --blocks 1 --warmup 0 --out r -- sh -c");
    arguments.push(script.into());
    let mut child = stage.spawn_with(&arguments, &[]);
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

/// The runner's [`OUTPUT_LIMIT_BYTES`] are held twice as they arrive, and once more while the log
/// is assembled.
const MOST_MEMORY: u64 = 256 << 20;

/// The last words of a program that fails appear in the reason, in the report and on the terminal.
#[test]
fn last_words_do_nothing_to_a_terminal() {
    let stage = Stage::new();
    let script = "printf '<script>alert(1)</script>\\033[2J\\033]0;owned\\a\\302\\233\\342\\200\\256\\377\\376\\000 end\\n' >&2; exit 3";
    let run = words("run --on native,null --baseline null --blocks 2 --out r -- sh -c");
    let said = Said::of("run", stage.weigh().args(run).arg(script).output().unwrap()).ends_with(0);
    is_plain("the table", &said.stdout);
    is_plain("what is said beside the run", &said.stderr);
    let report = shown(&stage, "r");
    let failures = listed(&report, "failures");
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

/// A manifest that somebody else wrote.
#[test]
fn hostile_manifests_are_refused_or_shown_as_they_are() {
    let stage = Stage::new();
    let manifest = |name: &str, summary: &str, unit: &str| {
        let toml = |text: &str| serde_json::to_string(text).unwrap();
        let (name, summary, unit) = (toml(name), toml(summary), toml(unit));
        format!(
            "name = {name}\nsummary = {summary}\ndescription = {summary}\ncommand = [\"printf\", '{{{{\"x\": 1.5}}}}']\n\
             [check]\nstatement = {summary}\n\
             [[metric]]\nname = \"x\"\nunit = {unit}\nbetter = \"lower\"\nprimary = true\njson = \"/x\"\n"
        )
    };
    let run = "run mine --on native --blocks 2 --out r --workload mine.toml";
    // A name becomes part of file names and command lines, so these are refused.
    for name in ["<b>", "../../x", "a\u{1b}[2J", "\u{202e}abc", ""] {
        stage.write("mine.toml", manifest(name, "s", "widgets"));
        let said = stage.run(run).ends_saying(2, &["mine.toml:1:"]);
        is_plain("the refusal", &said.stderr);
    }
    stage.write("mine.toml", manifest("mine", EVIL, "<b>\u{202e}\u{1b}[1m|_%$"));
    let said = stage.run(run).ends_with(0);
    is_plain("the table", &said.stdout);
    is_plain("what is said beside the run", &said.stderr);
    shows_in_every_format(&stage, "r");
    std::fs::create_dir_all(stage.config().join("workloads")).unwrap();
    std::fs::copy(stage.here().join("mine.toml"), stage.config().join("workloads/mine.toml")).unwrap();
    let list = stage.stdout("list workloads");
    assert!(list.contains("<script>alert(1)</script>"), "the summary is shown:\n{list}");
    is_plain("the list", &list);
    is_plain("the list as JSON", &stage.stdout("list workloads --json"));
    stage.write("evil.toml", evil_study());
    let studies = stage.stdout("study --file evil.toml --json");
    assert!(studies.contains("<script>alert(1)</script>"), "the title is shown:\n{studies}");
    is_plain("the studies", &studies);
    stage.host_is_as_before();
}

/// Logs that a report names but that cannot be read, or are not where a run puts its logs.
#[test]
fn unreadable_and_outside_logs_are_named_but_not_shown() {
    let stage = Stage::new();
    let run = "run --on native,null --baseline null --blocks 2 -- sh -c 'echo it broke >&2; exit 7'";
    let name = stage.measured(run)["failures"][0]["log"].as_str().unwrap().to_string();
    let log = stage.here().join("r").join(&name);
    let secret = stage.here().join("secret");
    std::fs::write(&secret, "nobody else's business").unwrap();
    let page = || stage.stdout("show r --format html");
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
    // Opening a pipe would wait for a writer.
    std::fs::remove_dir(&log).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(page().contains("it broke"));
    // The directory of logs is a link to another place, where a file of that name exists.
    let logs = log.parent().unwrap();
    std::fs::remove_dir_all(logs).unwrap();
    let elsewhere = stage.here().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::copy(&secret, elsewhere.join(log.file_name().unwrap())).unwrap();
    std::os::unix::fs::symlink(&elsewhere, logs).unwrap();
    assert!(!page().contains("nobody else's business"), "the logs of the run led out of it");
    stage.run("resume r").ends_with(1).says(&["logs"]);
    stage.write("r/samples.jsonl", stage.read("r/samples.jsonl").replace(&name, "../secret"));
    assert!(!page().contains("nobody else's business"), "a path led out of the run");
    stage.host_is_as_before();
}

/// A study of one experiment.
pub const STUDY: &str = r#"
name = "mine"
title = "What fakes cost"
authors = "we"
published = "internal note"
host = "a machine"
method = "by hand"
[[experiment]]
name = "one"
title = "Fakes"
source = "table 1"
statistic = "mean"
baseline = "a"
measure = { command = "run", arguments = ["--", "true"] }
arm = [{ id = "a", label = "A", on = "null" }, { id = "b", label = "B", on = "null:label=b" }]
view = [{ id = "table-1", title = "Table 1", form = "table", quantities = ["time"] }]
[[experiment.quantity]]
id = "time"
label = "Time (ms)"
workload = "true"
metric = "time"
unit = "ms"
better = "lower"
[[experiment.published]]
quantity = "time"
source = "table 1"
values = { a = [20], b = [22] }
"#;

/// [`STUDY`] with evil titles, labels and sources.
fn evil_study() -> String {
    let evil = serde_json::to_string(EVIL).unwrap();
    let texts = ["What fakes cost", "Fakes", "A", "Table 1", "Time (ms)", "table 1"];
    texts.iter().fold(STUDY.to_string(), |study, text| study.replace(&format!("\"{text}\""), &evil))
}

/// The commands that read the directory `bad`.
const READERS: [&str; 4] = ["show bad", "compare bad good", "compare good bad", "resume bad"];

/// A way to damage a run directory, and what must be said about it.
type Damage = (&'static str, fn(&Path), &'static [&'static str]);

/// Runs two fakes in `blocks` blocks.
fn run_fakes(stage: &Stage, out: &str, blocks: u32) {
    stage
        .stdout(&format!("run --on null;null:label=b --baseline null --blocks {blocks} --out {out} -- true"));
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

fn replace(run: &Path, file: &str, content: &str) {
    std::fs::write(run.join(file), content).unwrap();
}

fn remove(run: &Path, file: &str) {
    std::fs::remove_file(run.join(file)).unwrap();
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

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// A study that somebody else wrote, on standard output and beside it.
    #[test]
    fn hostile_studies_and_fleets_do_nothing_to_a_terminal() {
        let stage = Stage::with_fakes();
        stage.write("evil.toml", evil_study());
        for line in [
            "study --file evil.toml --dry-run",
            "study --file evil.toml --blocks 2 --no-void --out s",
            "show s",
            "show s --format md",
            "show s --format json",
        ] {
            let said = stage.run(line).ends_with(0);
            is_plain(line, &said.stdout);
            is_plain(line, &said.stderr);
            assert!(said.stdout.contains("alert"), "{line} shows the title: {}", said.stdout);
        }
        assert_eq!(shown(&stage, "s")["title"], EVIL, "JSON has what the file says");
        std::fs::create_dir(stage.here().join("f")).unwrap();
        stage.write("f/fleet-plan.json", stage.read("s/one/plan.json"));
        let state = serde_json::json!({ "kind": "failed", "reason": EVIL });
        let machine = serde_json::json!({ "name": "a", "via": "ssh:host=x", "state": state, "node": EVIL });
        let fleet = serde_json::json!({ "format": 2, "tool_version": "1", "id": "f", "machines": [machine] });
        stage.write("f/fleet.json", fleet.to_string());
        for format in ["table", "md", "json"] {
            is_plain(format, &stage.stdout(&format!("show f --format {format}")));
        }
        assert_eq!(shown(&stage, "f"), fleet, "JSON has what the file says");
        stage.host_is_as_before();
    }

    /// Labels are the user's words, of any content and length.
    #[test]
    fn hostile_labels_are_only_names() {
        let stage = Stage::with_fakes();
        let label = format!("{EVIL}{}", "x".repeat(10_000)).replace([',', ';'], "");
        let on = format!("null;null:label={label}");
        let run = ["run", "--on", &on, "--baseline", "null", "--blocks", "2", "--out", "r", "--", "true"];
        let said = Said::of("run", stage.weigh().args(run).output().unwrap()).ends_with(0);
        is_plain("the table", &said.stdout);
        let report = shown(&stage, "r");
        let named = |cell: &serde_json::Value| cell["environment"].as_str().unwrap().contains(&label);
        assert!(listed(&report, "cells").iter().any(|cell| named(cell) && cell["n"] == 2));
        shows_in_every_format(&stage, "r");
        // A run directory from somebody else may hold what no command line can contain.
        for file in ["plan.json", "samples.jsonl", "events.jsonl"] {
            let file = format!("r/{file}");
            let content = stage.read(&file);
            assert!(file == "r/events.jsonl" || content.contains("<script>"), "{file} names the environment");
            stage.write(&file, content.replace("<script>", "<script>\\u0000\\u0007\\u2066"));
        }
        shows_in_every_format(&stage, "r");
        stage.host_is_as_before();
    }

    /// Every command that reads a run directory reports whatever is wrong with it, with the file
    /// and what to do. Nothing is changed.
    #[test]
    fn damaged_run_directories_are_refused_by_every_command() {
        let stage = Stage::with_fakes();
        run_fakes(&stage, "good", 3);
        let cases: [Damage; 12] = [
            (
                "garbage in the middle",
                |run| edit_line(run, 3, b"\xff\xfe\x00{]"),
                &["samples.jsonl", "line 3", "copy"],
            ),
            (
                "half a line in the middle",
                |run| edit_line(run, 4, b"{\"record\":\"tri"),
                &["line 4", "column", "weigh resume"],
            ),
            ("an unknown record", |run| edit_line(run, 4, b"{\"record\":\"new\"}"), &["line 4", "new"]),
            (
                "no samples at all",
                |run| replace(run, "samples.jsonl", ""),
                &["samples.jsonl", "empty", "again"],
            ),
            ("no header", |run| edit_line(run, 1, b"{}"), &["samples.jsonl", "header"]),
            (
                "samples of a newer version",
                |run| edit_line(run, 1, b"{\"record\":\"header\",\"format\":99}"),
                &["99", "newer"],
            ),
            ("no file of samples", |run| remove(run, "samples.jsonl"), &["samples.jsonl", "again"]),
            ("no plan", |run| remove(run, "plan.json"), &["plan.json", "copy"]),
            ("no host", |run| remove(run, "host.json"), &["host.json"]),
            ("half a plan", |run| cut(&run.join("plan.json")), &["plan.json", "line", "copy"]),
            (
                "a plan of a newer version",
                |run| replace(run, "plan.json", "{\"format\": 99, \"quite\": \"different\"}"),
                &["plan.json", "99", "newer"],
            ),
            ("half a host", |run| cut(&run.join("host.json")), &["host.json", "line", "copy"]),
        ];
        for (what, damage, expected) in cases {
            copy(&stage.here().join("good"), &stage.here().join("bad"));
            damage(&stage.here().join("bad"));
            let before = content(&stage.here().join("bad"));
            for command in READERS {
                is_plain(what, &stage.run(command).ends_saying(2, expected).stderr);
            }
            assert_eq!(content(&stage.here().join("bad")), before, "{what}: something was changed");
            std::fs::remove_dir_all(stage.here().join("bad")).unwrap();
        }
        stage.host_is_as_before();
    }

    /// What a crash leaves behind is reported as far as possible, which the report says; it can be
    /// resumed.
    #[test]
    fn a_run_that_was_cut_short_is_reported_in_part() {
        let stage = Stage::with_fakes();
        run_fakes(&stage, "r", 3);
        let samples = stage.here().join("r/samples.jsonl");
        let whole = std::fs::read(&samples).unwrap();
        for tail in [&b""[..], b"\xff\xfe", &[0; 300]] {
            std::fs::write(&samples, [&whole[..whole.len() - 10], tail].concat()).unwrap();
            stage.run("show r").ends_with(0).says(&["cut short", "weigh resume", "INCOMPLETE"]);
            assert_eq!(shown(&stage, "r")["blocks"]["done"], 2);
        }
        stage.stdout("resume r");
        assert_eq!(shown(&stage, "r")["blocks"]["done"], 3);
        // Events are for people: without them, or with garbage among them, the run is complete.
        stage.write("r/events.jsonl", b"\xff\xfe\x00\n{");
        assert_eq!(shown(&stage, "r")["blocks"]["done"], 3);
        stage.host_is_as_before();
    }

    /// A directory that another user closed is not reported as missing.
    #[test]
    fn a_run_that_another_user_closed_is_reported_as_denied() {
        const TEST: &str = "a_run_that_another_user_closed_is_reported_as_denied";
        use std::os::unix::fs::PermissionsExt;
        let stage = Stage::with_fakes();
        if !is_root(TEST, "the test drops from root to another user") {
            return;
        }
        run_fakes(&stage, "r", 2);
        let mode =
            |path: &Path, bits: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
        let run = stage.here().join("r");
        stage.run_as_nobody("show r").ends_with(0);
        stage.run_as_nobody("resume r").ends_with(1).says(&["samples.jsonl", "denied"]);
        for (path, bits, back) in [
            (run.join("samples.jsonl"), 0o600, 0o644),
            (run.join("plan.json"), 0o600, 0o644),
            (run.clone(), 0o700, 0o755),
        ] {
            mode(&path, bits);
            for command in ["show r", "compare r r", "resume r"] {
                let said = stage.run_as_nobody(command).ends_with(1).says(&["denied", "somebody else"]).all();
                assert!(
                    !said.contains("there is no run") && !said.contains("is not a run"),
                    "{command}: {said}"
                );
            }
            mode(&path, back);
        }
        stage.host_is_as_before();
    }

    /// The state of a study names the runs of its experiments. A name that leads elsewhere is
    /// refused.
    #[test]
    fn a_study_shows_no_run_of_another_directory() {
        let stage = Stage::with_fakes();
        run_fakes(&stage, "private", 2);
        let private = stage.here().join("private").display().to_string();
        std::fs::create_dir(stage.here().join("s")).unwrap();
        std::os::unix::fs::symlink(&private, stage.here().join("s/link")).unwrap();
        for run in [private.as_str(), "../private", "link", "."] {
            let state = serde_json::json!({
                "format": 1, "tool_version": "1", "study": STUDY, "size": "quick", "options": [], "arms": {}, "on": [],
                "experiments": [{"name": "one", "run": run, "done": true}],
            });
            stage.write("s/study.json", state.to_string());
            for command in ["show s", "resume s"] {
                let said = stage.run(command).ends_saying(2, &["study.json", run]);
                assert!(!said.all().contains("median"), "{run}: {}", said.all());
            }
        }
        stage.write("s/study.json", "{}");
        std::fs::File::options()
            .append(true)
            .open(stage.here().join("s/study.json"))
            .unwrap()
            .set_len(40 << 30)
            .unwrap();
        stage.run("show s").ends_with(1).says(&["study.json", "MiB"]);
        stage.host_is_as_before();
    }
}
