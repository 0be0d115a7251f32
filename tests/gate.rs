//! `weigh gate`: two builds, one answer, and what continuous integration receives.

use crate::support::{Stage, listed, ready, trials};

/// Two builds with noise of one per cent; the second one costs more by `effect`.
fn builds(effect: &str) -> String {
    format!("null:sd=0.01,seed=1 null:effect={effect},sd=0.01,seed=2")
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;
    use crate::support::{Said, is_root, skip};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    const REST: &str = "--no-void --seed 1 --limit 3 -- work";

    /// The words of a text, joined by single spaces, because tables have no fixed width.
    fn words(text: &str) -> String {
        text.replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The three answers, the output of each, and how early they come.
    #[test]
    fn a_gate_passes_fails_or_is_undecided() {
        let stage = Stage::with_fakes();
        let cases = [
            ("0", 0, "Gate: pass", 15, ["failures=\"0\"", "errors=\"0\""]),
            ("0.3", 3, "Gate: slower", 10, ["failures=\"1\"", "above the gate of 3 %"]),
            ("0.03", 4, "Gate: undecided", 30, ["failures=\"1\"", "undecided"]),
        ];
        for (effect, code, title, most, junit) in cases {
            let out = format!("r{code}");
            let line = format!("gate {} --out {out} --comment c.md --junit j.xml {REST}", builds(effect));
            let said = stage.run(&line).ends_with(code);
            assert!(said.stdout.contains(title), "{}", said.stdout);
            let comment = stage.read("c.md");
            assert!(comment.starts_with(&format!("# {title}\n")), "{comment}");
            assert!(comment.contains("| work time "), "{comment}");
            assert!(!comment.contains("weigh-test"), "paths of this machine have no place: {comment}");
            let cases = stage.read("j.xml");
            junit.iter().for_each(|part| assert!(cases.contains(part), "{part}: {cases}"));
            let trials = trials(&stage.here().join(&out)).len();
            assert!(trials <= 2 * most, "{effect}: {trials} trials");
            // It ends by its limits: no precision is told.
            let events = stage.read(&format!("{out}/events.jsonl"));
            assert!(events.contains("\"target\":null") && !events.contains("\"target\":0"), "{events}");
            let details = stage.run(&format!("show {out} --details")).ends_with(code).stdout;
            assert!(details.contains("gate of two builds, up to 30 blocks"), "{details}");
            for words in ["to within", "wider than asked"] {
                assert!(
                    !details.contains(words) && !said.stderr.contains(words),
                    "{details} {}",
                    said.stderr
                );
            }
            // The answer of the run is final: showing or resuming it gives the same.
            assert!(words(&stage.run(&format!("show {out}")).ends_with(code).stdout).contains(title));
            stage.run(&format!("resume {out}")).ends_with(code);
            assert_eq!(shown_code(&stage, &out), code);
        }
        stage.host_is_as_before();
    }

    /// The exit code of an export of a gate.
    fn shown_code(stage: &Stage, run: &str) -> i32 {
        let said = stage.weigh().args(["show", run, "--format", "junit"]).output().unwrap();
        said.status.code().unwrap()
    }

    /// One build does not start, one crashes half of the time, and one prints nonsense.
    #[test]
    fn a_build_that_does_not_work_passes_no_gate() {
        let stage = Stage::with_fakes();
        let cases = [
            ("null:launch=fail", "the gate cannot judge work"),
            ("null:fault=exit,every=2", "failed"),
            ("null:fault=missing", "the gate cannot judge work"),
        ];
        for (at, (new, reason)) in cases.into_iter().enumerate() {
            let line = format!("gate null:sd=0.01 {new} --out r{at} --comment c{at}.md {REST}");
            let said = stage.run(&line).ends_with(4);
            assert!(said.stderr.contains(reason), "{}", said.stderr);
            assert!(stage.read(&format!("c{at}.md")).contains("Gate: not judged"), "{}", said.stdout);
            assert!(stage.here().join(format!("r{at}/samples.jsonl")).exists(), "nothing is lost");
        }
        for run in ["r0", "r2"] {
            assert_eq!(trials(&stage.here().join(run)).len(), 0, "the old build alone decides nothing");
            for command in ["show", "resume"] {
                stage.run(&format!("{command} {run}")).ends_saying(4, &["the gate cannot judge work"]);
            }
        }
        // The old build must work as well.
        let said = stage.run(&format!("gate null:launch=fail null:sd=0.01 --out old {REST}"));
        said.ends_saying(4, &["the gate cannot judge work", "nothing was measured (null:launch=fail: "]);
        assert_eq!(trials(&stage.here().join("old")).len(), 0);
        stage.host_is_as_before();
    }

    /// A gate of an hour does not end with an answer that has no place.
    #[test]
    fn files_that_cannot_be_written_are_refused_before_the_run() {
        let stage = Stage::with_fakes();
        let gate = "gate null:sd=0.001 null:label=b,sd=0.001 --no-void --seed 1 --out r";
        stage.write("file", "");
        for (option, code) in [("--comment nowhere/c.md", 2), ("--junit .", 1), ("--junit file/j.xml", 1)] {
            stage.run(&format!("{gate} {option} -- work")).ends_with(code).says(&["cannot write"]);
            assert!(!stage.here().join("r").exists(), "{option}: it has not begun");
        }
        stage.run(&format!("{gate} --comment r/c.md -- work")).ends_with(0);
        assert!(stage.read("r/c.md").starts_with("# Gate: pass\n"));
    }

    #[test]
    fn equal_environments_are_distinguished_by_labels() {
        let stage = Stage::with_fakes();
        stage.stdout(&format!("gate null:sd=0.001 null:sd=0.001 --out r {REST}"));
        let names: Vec<String> = listed(&stage.read_json("r/plan.json"), "environments")
            .iter()
            .map(|environment| environment["name"].as_str().unwrap().to_string())
            .collect();
        assert_eq!(names, ["null:label=old,sd=0.001", "null:label=new,sd=0.001"]);
    }

    /// The two builds are commands in the same environment.
    #[test]
    fn two_commands_are_compared_in_one_environment() {
        let stage = Stage::with_fakes();
        let rest = "--no-void --seed 1 --limit 3 --env N=1 -- one --- two";
        let said = stage.run(&format!("gate null:sd=0.001 --out r --comment c.md {rest}")).ends_with(0);
        assert!(said.stdout.contains("Gate: pass"), "{}", said.stdout);
        let comment = stage.read("c.md");
        for part in ["| command time ", "- old: one\n", "- new: two\n"] {
            assert!(comment.contains(part), "{part}: {comment}");
        }
        let plan = stage.read_json("r/plan.json");
        let names: Vec<&str> = listed(&plan, "environments")
            .iter()
            .map(|environment| environment["name"].as_str().unwrap())
            .collect();
        assert_eq!((names.as_slice(), &plan["baseline"]), (&["old", "new"][..], &"old".into()));

        let both = ["two environments take at most one command, not 2", "weigh gate runc -- old/tool"];
        stage.refuses("gate null null:label=b -- one --- two", &both);
        stage.refuses("gate -- one --- two --- three", &["compares two commands, and here are 3"]);
        stage.refuses("gate null -- one", &["no second build", "weigh gate OLD NEW"]);
        stage.refuses("gate --start -- one --- two", &["compares two environments, not two commands"]);
        stage.refuses("gate --quick -- one --- two", &["--quick"]);
        stage.refuses("gate null", &["NEW"]);
    }

    /// The values of a parameter are comparisons of one family, all of which have to pass.
    #[test]
    fn every_value_of_a_parameter_has_to_pass() {
        let stage = Stage::with_fakes();
        let builds = "null:sd=0.001 null:label=b,sd=0.001";
        let line = format!("gate {builds} --no-void --seed 1 --param n=1,2 --comment c.md -- work {{n}}");
        stage.run(&line).ends_with(0);
        let comment = words(&stage.read("c.md"));
        assert!(comment.contains("all 2 changes are shown to lie below their limits"), "{comment}");
    }

    /// A file provides what the command line leaves open, including limits of metrics.
    #[test]
    fn settings_are_read_from_a_file() {
        let stage = Stage::with_fakes();
        std::fs::create_dir(stage.here().join(".weigh")).unwrap();
        stage.write(".weigh/gate.toml", "start = true\nblocks = 20\n\n[limits]\nstart_to_init = 60\n");
        let gate = "gate null:launch-time=10ms,sd=0.01 null:effect=0.5,launch-time=10ms,sd=0.01,seed=2 --no-void --seed 1";
        stage.run(&format!("{gate} --out a --dry-run")).ends_with(0);
        let said = stage.run(&format!("{gate} --out a"));
        let plan = stage.read_json("a/plan.json");
        assert_eq!(plan["gate"]["of"]["start_to_init"], 0.6, "{}", said.stderr);
        assert_eq!(plan["effort"]["looks"]["last"], 20);
        // The command line takes precedence over the file.
        stage.run(&format!("{gate} --blocks 25 --limit 90 --out b"));
        let plan = stage.read_json("b/plan.json");
        assert_eq!((&plan["gate"]["limit"], &plan["effort"]["looks"]["last"]), (&0.9.into(), &25.into()));
        // The new build has to be faster by that much.
        let said = stage.run(&format!("{gate} --limit -2.5 --dry-run")).ends_with(0);
        assert!(said.stdout.contains("limits: -2.5 %, start_to_init 60 %"), "{}", said.stdout);
    }

    /// Thirty blocks would take twelve seconds. What is not decided when the time is over is
    /// undecided.
    #[test]
    fn a_budget_ends_the_gate() {
        let stage = Stage::with_fakes();
        stage.write("g.toml", "budget = \"2s\"\n");
        let real = "effect=0.03,real=yes,sd=0.05,time=50ms";
        let gate =
            format!("gate null:{real},seed=1 null:label=b,{real},seed=2 --config g.toml --no-void --seed 1");
        let said = stage.run(&format!("{gate} --out r --comment c.md -- work")).ends_with(4);
        assert_eq!(stage.read_json("r/plan.json")["budget_s"], 2.0);
        let blocks = trials(&stage.here().join("r")).len() / 2;
        assert!((1..15).contains(&blocks), "{blocks} blocks: {}", said.stderr);
        assert!(stage.read("r/events.jsonl").contains("\"reason\":\"budget\""));
        // One block has no interval, and a busy machine has no time for another.
        let answer = if blocks > 1 { "# Gate: undecided\n" } else { "# Gate: not judged\n" };
        assert!(stage.read("c.md").starts_with(answer), "{}", stage.read("c.md"));
        // The command line takes precedence over the file.
        stage.run("gate null null:label=b --config g.toml --budget 1h --no-void --out b -- work");
        assert_eq!(stage.read_json("b/plan.json")["budget_s"], 3600.0);
    }

    /// The settings on the page are for all that they name, and for a part of it.
    #[test]
    fn the_settings_of_the_page_are_taken() {
        let stage = Stage::with_fakes();
        let page = file("docs/gate.md");
        let (_, settings) = page.split_once("\n```toml\n").unwrap();
        stage.write("g.toml", settings.split_once("```").unwrap().0);
        let gate = "gate null null:label=b --config g.toml --dry-run";
        let said = stage.run(gate).ends_with(0);
        assert!(!said.stderr.contains("note:"), "{}", said.stderr);
        let limits = "limits: 3 %, spawn.fork_exec 10 %, start_to_init 5 %";
        assert!(said.stdout.contains(limits) && !said.stdout.contains("within"), "{}", said.stdout);
        let said = stage.run(&format!("{gate} spawn")).ends_with(0);
        let note = "limits in g.toml of what is not measured now: start_to_init";
        assert!(said.stderr.contains(note), "{}", said.stderr);
    }

    /// Invalid settings are refused, with their place and what to do.
    #[test]
    fn wrong_settings_are_refused_with_their_place() {
        let stage = Stage::with_fakes();
        let gate = "gate null null:label=b --config g.toml";
        let cases = [
            (
                "workloads = [\"spin\"]\nlimmit = 3\n",
                ["unknown key `limmit`", "did you mean `limit`?", "g.toml:2"],
            ),
            (
                "workloads = [\"spin\"]\nlimit = -100.0\n",
                ["a limit cannot be -100 %", "g.toml:2", "above -100"],
            ),
            (
                "workloads = [\"spin\"]\n[limits]\nduratoin = 3.0\n",
                ["no metric `duratoin`", "g.toml:3", "did you mean"],
            ),
            ("limit = \"3\"\n", ["g.toml:1", "invalid type", "`limit = 3`"]),
            ("iterations = 0\n", ["g.toml:1", "integer `0`", "nonzero"]),
            ("start = true\nbudget = \"soon\"\n", ["g.toml:2", "cannot read duration `soon`", "10m"]),
        ];
        for (text, expected) in cases {
            stage.write("g.toml", text);
            stage.refuses(gate, &expected);
        }
        stage.refuses("gate null null:label=b --config no.toml", &["cannot read no.toml"]);
        stage.refuses("gate null null:label=b", &["nothing to measure", "name workloads"]);
        for blocks in [9, 326] {
            let refused = format!("gate null null:label=b --blocks {blocks} -- true");
            stage.refuses(&refused, &[&format!("a gate takes 15 to 325 blocks, not {blocks}")]);
        }
        stage.refuses("gate null null:label=b --quick -- true", &["--quick"]);
    }

    /// A fault in a build is underlined in the argument that has it.
    #[test]
    fn a_wrong_build_is_refused_at_its_place() {
        let stage = Stage::with_fakes();
        stage.write("vmlinuz", "");
        let (is_here, is_gone) = ("qemu:kernel=vmlinuz", "qemu:kernel=gone/vmlinuz");
        let gone = [is_gone, "there is no gone/vmlinuz"];
        let misspelt = ["nul", "there is no platform `nul`"];
        for (builds, place, expected) in [
            (format!("{is_here} {is_gone} --start"), "NEW:1", gone),
            (format!("{is_gone} {is_here} --start"), "OLD:1", gone),
            ("null nul -- true".into(), "NEW:1", misspelt),
            ("nul -- one --- two".into(), "OLD:1", misspelt),
        ] {
            stage.refuses(&format!("gate {builds}"), &[place, expected[0], expected[1]]);
        }
    }

    /// The block of a key in a YAML file, without its indentation. These files need no real parser.
    fn block(text: &str, key: &str) -> Vec<String> {
        let lines: Vec<&str> = text.lines().collect();
        let indent = |line: &str| line.len() - line.trim_start().len();
        let at = lines.iter().position(|line| line.trim_start() == key).unwrap_or_else(|| panic!("no {key}"));
        let below =
            lines[at + 1..].iter().take_while(|line| line.is_empty() || indent(line) > indent(lines[at]));
        let below: Vec<&str> = below.copied().collect();
        let least = below.iter().filter(|line| !line.is_empty()).map(|line| indent(line)).min().unwrap();
        below.iter().map(|line| line.get(least..).unwrap_or_default().to_string()).collect()
    }

    fn file(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    /// A shell in the stage's directory, with the binary as `weigh`.
    fn shell(stage: &Stage, script: &str, variables: &BTreeMap<String, String>) -> (i32, String) {
        let mut command = Command::new("timeout");
        stage.prepare(&mut command, "300".into(), "bash -c");
        command.arg(script).envs(variables);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs the step of the composite action for several jobs in the same directory, as a self-hosted
    /// runner does, with the inputs that its variables name.
    #[test]
    fn the_action_of_github_runs_the_gate() {
        let stage = Stage::with_fakes();
        let action = file("action.yml");
        let inputs = block(&action, "inputs:").join("\n");
        let binary = assert_cmd::cargo::cargo_bin("weigh").display().to_string();
        for (id, new, decision, code) in [
            ("41", "null:sd=0.01,seed=2", "pass", 0),
            ("42", "null:effect=0.3,sd=0.01", "slower", 3),
            ("43", "nul", "failed", 2),
        ] {
            let given = BTreeMap::from([
                ("old", "null:label=$(touch injected),sd=0.01,seed=1".to_string()),
                ("new", new.to_string()),
                ("arguments", "--no-void --seed 1\n--limit 3\n-- work".to_string()),
                ("weigh", binary.clone()),
                ("directory", "answer".to_string()),
            ]);
            let mut variables = BTreeMap::from([
                ("GITHUB_RUN_ID".to_string(), id.to_string()),
                ("GITHUB_RUN_ATTEMPT".to_string(), "1".to_string()),
            ]);
            for line in block(&action, "env:") {
                let (name, value) = line.split_once(": ").unwrap();
                let input = value.trim_start_matches("${{ inputs.").trim_end_matches(" }}");
                assert!(inputs.lines().any(|line| line == format!("{input}:")), "no input {input}");
                variables.insert(name.to_string(), given[input].clone());
            }
            for name in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"] {
                variables.insert(name.into(), format!("{name}-{decision}"));
            }
            let script = block(&action, "run: |").join("\n");
            // GitHub starts a step of `shell: bash` this way.
            let (found, said) = shell(&stage, &format!("set -eo pipefail\n{script}"), &variables);
            assert_eq!(found, code, "{said}");
            let outputs = format!("decision={decision}\nrun=answer-{id}-1\n");
            assert_eq!(stage.read(&format!("GITHUB_OUTPUT-{decision}")), outputs);
            if code == 2 {
                for written in ["answer.md", "answer.xml", "GITHUB_STEP_SUMMARY-failed"] {
                    assert!(!stage.here().join(written).exists(), "{written} is that of an earlier job");
                }
            } else {
                let title = format!("# Gate: {decision}\n");
                assert!(stage.read("answer.md").starts_with(&title), "{}", stage.read("answer.md"));
                assert!(stage.read(&format!("GITHUB_STEP_SUMMARY-{decision}")).starts_with(&title));
                assert!(stage.read("answer.xml").contains("<testsuites"));
                assert!(stage.here().join(format!("answer-{id}-1/samples.jsonl")).exists());
            }
        }
        assert!(!stage.here().join("injected").exists(), "an input is no code");
    }

    /// A `weigh` that measures nothing: twenty blocks of two trials, of which five are void, and the
    /// answer and the code of its environment.
    const ANSWERING: &str = r#"
    case $1 in
    gate)
      while [ "$1" != --out ]; do shift; done
      mkdir "$2" && touch "$2/plan.json"
      for block in $(seq 0 19) $(seq 0 19); do
        unit="\"workload\":\"w\",\"block\":$block,\"attempt\":0"
        echo "{\"record\":\"trial\",$unit,\"host_started_ns\":5,\"host_ended_ns\":1005}"
        [ "$block" -lt 15 ] || echo "{\"record\":\"void\",$unit,\"cause\":\"steal\"}"
      done > "$2/samples.jsonl" ;;
    show) printf '# Gate: %s\n\nA sentence.\n' "$ANSWER" ;;
    resume) echo continued ;;
    esac
    exit "$CODE""#;

    /// `tests/gates`: what it makes of the answers, and that it goes on with what was interrupted.
    #[test]
    fn the_script_of_real_gates_judges_their_answers() {
        const TEST: &str = "the_script_of_real_gates_judges_their_answers";
        if !is_root(TEST, "the script takes root") {
            return;
        }
        if Command::new("python3").arg("--version").output().is_err() {
            return skip(TEST, "python3", "there is no program `python3`");
        }
        let stage = Stage::with_fakes();
        let weigh = program(&stage, "weigh", ANSWERING);
        let gates = |case: &str, answer: &str, code: i32| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gates");
            let mut command = Command::new("bash");
            command.arg(script).arg(case).env("WEIGH", &weigh).env("WEIGH_GATES", stage.here().join("gates"));
            let output = command.env("ANSWER", answer).env("CODE", code.to_string()).output().unwrap();
            let said = Said::of(case, output);
            (said.code, words(&said.stdout), said.stderr)
        };
        let line = |mark: &str, case: &str, code: i32, answer: &str| {
            format!("{mark} {case} exit {code} 15 blocks 50 % of the time of 30 {answer}: A sentence.")
        };
        for (case, answer, code, mark) in [
            ("self", "pass", 0, "ok"),
            ("self", "slower", 3, "FAILED"),
            ("runc-crun", "undecided", 4, "ok"),
            ("runc-crun", "not judged", 4, "FAILED"),
            ("crun-runc", "slower", 3, "ok"),
            ("crun-runc", "undecided", 4, "FAILED"),
            ("null-10", "pass", 0, "ok"),
        ] {
            let (status, said, errors) = gates(case, answer, code);
            assert_eq!(said, line(mark, case, code, answer), "{errors}");
            assert_eq!(status, Some(i32::from(mark == "FAILED")), "{errors}");
        }
        let log = || stage.read("gates/self/log");
        assert!(!log().contains("continued"), "{}", log());
        std::fs::remove_file(stage.here().join("gates/self/line")).unwrap();
        assert_eq!(gates("self", "undecided", 4).1, line("ok", "self", 4, "undecided"));
        assert!(log().contains("continued"), "{}", log());
        let (status, said, errors) = gates("sefl", "pass", 0);
        assert_eq!((status, said.as_str()), (Some(2), ""), "{errors}");
    }

    /// GitLab cleans a checkout that it uses again, but Git still knows the tree of the earlier job.
    #[test]
    fn the_recipe_of_gitlab_adds_the_old_tree_to_a_used_checkout() {
        const TEST: &str = "the_recipe_of_gitlab_adds_the_old_tree_to_a_used_checkout";
        if Command::new("git").arg("--version").output().is_err() {
            return skip(TEST, "git", "there is no program `git`");
        }
        let stage = Stage::with_fakes();
        let page = file("docs/gate.md");
        let add = page.lines().find_map(|line| line.trim_start().strip_prefix("- git worktree ")).unwrap();
        let script = format!(
            "set -e; git init -q; \
             git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m one; \
             for job in 1 2; do git clean -ffdxq; git worktree {add}; test -e old/.git; done"
        );
        let base = BTreeMap::from([("CI_MERGE_REQUEST_DIFF_BASE_SHA".to_string(), "HEAD".to_string())]);
        let (code, said) = shell(&stage, &script, &base);
        assert_eq!(code, 0, "{said}");
    }

    /// Runs the script of the template with its variables, as the job of a fresh checkout does.
    #[test]
    fn the_template_of_gitlab_runs_the_gate() {
        let template = file("packaging/gitlab/gate.yml");
        let binary = assert_cmd::cargo::cargo_bin("weigh").display().to_string();
        for (effect, title, code) in [("0", "pass", 0), ("0.3", "slower", 3), ("0.03", "undecided", 4)] {
            let stage = Stage::with_fakes();
            let mut variables: BTreeMap<String, String> = BTreeMap::new();
            for line in block(&template, "variables:").iter().filter(|line| !line.starts_with('#')) {
                let (name, value) = line.split_once(": ").unwrap();
                variables.insert(name.into(), value.trim_matches('"').into());
            }
            let builds = builds(effect);
            let (old, new) = builds.split_once(' ').unwrap();
            for (name, value) in [
                ("WEIGH_GATE_COMMAND", binary.as_str()),
                ("WEIGH_GATE_OLD", old),
                ("WEIGH_GATE_NEW", new),
                ("WEIGH_GATE_ARGUMENTS", "--no-void --seed 1 --limit 3 -- work *.a"),
            ] {
                assert!(variables.insert(name.into(), value.into()).is_some(), "no variable {name}");
            }
            stage.write("file.a", "");
            let script = block(&template, "- |").join("\n");
            let (found, said) = shell(&stage, &script, &variables);
            assert_eq!(found, code, "{said}");
            assert_eq!(stage.read_json("weigh-gate/plan.json")["workloads"][0]["command"][1], "*.a");
            assert!(stage.here().join("weigh-gate/samples.jsonl").exists());
            // What the artifacts of the job are made of.
            let comment = stage.read("weigh-gate.md");
            assert!(comment.starts_with(&format!("# Gate: {title}\n")), "{comment}");
            assert_eq!(stage.read("weigh-gate.xml").contains("<failure"), code != 0, "{title}");
            let after = block(&template, "after_script:").join("\n");
            let after: Vec<&str> = after.lines().filter_map(|line| line.strip_prefix("- ")).collect();
            assert_eq!(shell(&stage, &after.join("\n"), &variables).0, 0);
        }
    }
}

/// Writes a program that is a script of the shell, and returns its path.
fn program(stage: &Stage, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    stage.write(name, format!("#!/bin/sh\n{script}\n"));
    let path = stage.here().join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// A wrapper of runc that runs `turns` turns of a loop before it starts the real one.
fn wrapper(stage: &Stage, turns: u32) -> String {
    let script = format!("i=0\nwhile [ $i -lt {turns} ]; do i=$((i+1)); done\nexec runc \"$@\"");
    program(stage, &format!("runc-{turns}"), &script)
}

/// runc against itself, and against itself behind a wrapper that does more work.
#[test]
fn runc_equals_itself_and_more_work_is_found() {
    let stage = Stage::new();
    if !ready(&stage, "runc", "runc_equals_itself_and_more_work_is_found") {
        return;
    }
    let (same, slow) = (wrapper(&stage, 0), wrapper(&stage, 20_000));
    let gate = |new: &str, out: &str| {
        let line = format!(
            "gate runc:binary={same} runc:binary={new} --start --limit 10 --out {out} --comment {out}.md"
        );
        stage.run(&line)
    };
    let equal = gate(&same, "equal");
    assert!([Some(0), Some(4)].contains(&equal.code), "{}\n{}", equal.stdout, equal.stderr);
    // A build that could not be measured ends with 4 as well, and is called `not judged`.
    let answer = stage.read("equal.md");
    assert!(
        ["# Gate: pass\n", "# Gate: undecided\n"].iter().any(|title| answer.starts_with(title)),
        "{answer}"
    );
    gate(&slow, "slow").ends_saying(3, &["slower by more than the limit"]);
    assert!(stage.read("slow.md").contains("Gate: slower"));
    stage.host_is_as_before();
}

/// The new build is another program: it prints its version and ends, whatever it is asked for.
#[test]
fn a_build_that_prints_a_wrong_version_is_no_pass() {
    const TEST: &str = "a_build_that_prints_a_wrong_version_is_no_pass";
    let stage = Stage::new();
    if !ready(&stage, "runc", TEST) {
        return;
    }
    let other = program(&stage, "not-runc", "echo not-runc version 1.0");
    let gate =
        format!("gate runc runc:binary={other} --start --limit 10 --out r --comment c.md --junit j.xml");
    let reasons =
        ["the gate cannot judge start start_to_init in runc:binary=", "did not start", "version 1.0"];
    stage.run(&gate).ends_saying(4, &reasons);
    let comment = stage.read("c.md");
    assert!(comment.starts_with("# Gate: not judged\n") && comment.contains("version 1.0"), "{comment}");
    assert!(stage.read("j.xml").contains("<error"), "{}", stage.read("j.xml"));
    assert_eq!(trials(&stage.here().join("r")).len(), 0, "the old build alone decides nothing");
    stage.host_is_as_before();
}
