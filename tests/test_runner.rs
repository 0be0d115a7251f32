//! `tests/run`, which `make test` uses: skipped tests are listed, and failures stay failures. And what
//! make says where cargo is too old.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A report in nextest's format: each test's output, escaped.
const REPORT: &str = r#"<testsuites name="nextest-run"><testsuite name="weigh-observe">
<testcase name="live" classname="weigh-observe"><system-out>
running 1 test
SKIPPED live on uml: no &quot;linux&quot; &amp; no kernel
3 trials, 1 skipped by a limit
test live ... ok</system-out><system-err>skipped frames: only root reads &lt;/proc/kpagemap&gt;
SKIPPED live on uml: no &quot;linux&quot; &amp; no kernel</system-err></testcase>
<testcase name="tree"><system-out>test tree ... SKIPPED tree: no root
ok</system-out></testcase>
</testsuite></testsuites>
"#;

/// Runs the script with a cargo that writes a report and ends with a status. Its target directory is
/// not `target` but `built`. Its arguments are in the file `asked`, its path in `path`.
fn run(here: &Path, report: &str, status: i32) -> Output {
    let cargo = here.join("cargo");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {0}/asked\necho \"$PATH\" > {0}/path\n\
         case \"$1 $2\" in\n\"nextest --version\") [ -e {0}/present ];;\n\
         \"metadata --no-deps\") echo '{{\"packages\":[],\"target_directory\":\"{0}/built\",\"version\":1}}';;\n\
         \"nextest run\") mkdir -p {0}/built/nextest/default; cp {0}/report {0}/built/nextest/default/junit.xml; exit {status};;\nesac\n",
        here.display()
    );
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(here.join("report"), report).unwrap();
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/run"))
        .arg("--workspace")
        .current_dir(here)
        .env("PATH", format!("{}:/usr/bin:/bin", here.display()))
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn each_skipped_test_is_listed_once_however_it_spells_the_word() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("present"), "").unwrap();
    let output = run(here.path(), REPORT, 0);
    assert_eq!(output.status.code(), Some(0));
    let expected = "\n== skipped here: 3\nSKIPPED tree: no root\nSKIPPED live on uml: no \"linux\" & no kernel\n\
                    skipped frames: only root reads </proc/kpagemap>\n";
    let mut lines: Vec<String> = said(&output).lines().map(str::to_string).collect();
    let mut wanted: Vec<&str> = expected.lines().collect();
    // The order of capital and small letters depends on the locale.
    lines.sort();
    wanted.sort();
    assert_eq!(lines, wanted);
}

#[test]
fn without_a_skipped_test_there_is_no_list() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("present"), "").unwrap();
    let output = run(here.path(), "<testsuites></testsuites>", 0);
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
}

#[test]
fn a_failed_run_keeps_its_exit_code_and_lists_skipped_tests() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("present"), "").unwrap();
    let output = run(here.path(), REPORT, 100);
    assert_eq!(output.status.code(), Some(100));
    assert!(said(&output).contains("== skipped here: 3"), "{}", said(&output));
}

#[test]
fn nextest_is_installed_where_it_is_missing() {
    let here = tempfile::tempdir().unwrap();
    let output = run(here.path(), REPORT, 0);
    assert_eq!(output.status.code(), Some(0));
    let tools = here.path().join("built/tools");
    let tools = tools.display();
    assert!(said(&output).contains(&format!("installing it into {tools}")), "{}", said(&output));
    let asked = std::fs::read_to_string(here.path().join("asked")).unwrap();
    let install = format!("install --locked --quiet --debug --root {tools} cargo-nextest\n");
    assert!(asked.contains(&install), "{asked}");
    let path = std::fs::read_to_string(here.path().join("path")).unwrap();
    assert!(path.ends_with(&format!(":{tools}/bin\n")), "{path}");
    assert!(asked.ends_with("nextest run --workspace\n"), "{asked}");
}

/// A profile without a default filter has that of `default`, which leaves out the tests that the
/// other profiles are for.
#[test]
fn every_other_profile_has_a_default_filter_of_its_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.config/nextest.toml");
    let config: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let profiles = config["profile"].as_table().unwrap();
    let others = profiles.iter().filter(|(name, _)| *name != "default");
    let (own, inherited): (Vec<_>, Vec<_>) =
        others.partition(|(_, profile)| profile.get("default-filter").is_some());
    assert!(own.len() > 1 && inherited.is_empty(), "{inherited:?}");
}

/// The list accepts a line that begins with the word, the test and the reason; other lines are
/// ignored.
#[test]
fn skip_messages_of_tests_have_one_form() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let searched = Command::new("grep")
        .args(["-rniE", "--include=*.rs", r#"println!\("[^"]*skipped"#, crates])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests"))
        .output()
        .unwrap();
    let lines = said(&searched);
    assert!(lines.contains("SKIPPED"), "{}", String::from_utf8_lossy(&searched.stderr));
    let other: Vec<&str> = lines.lines().filter(|line| !is_in_form(line)).collect();
    assert_eq!(other, Vec::<&str>::new());
}

/// The form: `SKIPPED`, what, a colon, why.
fn is_in_form(line: &str) -> bool {
    // The benchmarks are not tests.
    line.contains("/bench/src/") || line.split_once("\"SKIPPED ").is_some_and(|(_, rest)| rest.contains(": "))
}

/// Runs `make run` with a cargo that prints this as its version, and its arguments otherwise. Returns
/// nothing where there is no make.
fn make_run(here: &Path, version: &str) -> Option<Output> {
    let cargo = here.join("cargo");
    let script =
        format!("#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}'; else echo \"$*\"; fi\n");
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
    let mut make = Command::new("make");
    make.arg("run").current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env_remove("MAKEFLAGS");
    make.env("PATH", format!("{}:/usr/bin:/bin", here.display())).output().ok()
}

#[test]
fn an_old_cargo_is_not_asked_to_build() {
    let here = tempfile::tempdir().unwrap();
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    let present = format!("cargo {oldest}.0 (f2d3ce0bd 2026-03-21)");
    for (version, builds) in [
        ("cargo 1.65.0", false),
        ("cargo 1.85.0-nightly (86d69c705 2024-12-28)", false),
        (present.as_str(), true),
        ("cargo 1.1000.0", true),
        ("cargo 2.0.0", true),
        ("something else", true),
    ] {
        let Some(output) = make_run(here.path(), version) else {
            return eprintln!("SKIPPED an_old_cargo_is_not_asked_to_build: no make");
        };
        assert_eq!(output.status.success(), builds, "{version}");
        let built = said(&output).lines().any(|line| line == "run --release --package weighbridge");
        let told = String::from_utf8_lossy(&output.stderr).contains(&format!("needs Rust {oldest} or later"));
        assert_eq!((built, told), (builds, !builds), "{version}: {output:?}");
    }
}
