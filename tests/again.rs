//! `tests/cargo-test`, which `make test` uses: what fails is tried once more, and nothing that
//! fails twice passes.
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]
#![allow(clippy::disallowed_methods, reason = "the script is what is tested")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// As cargo and libtest print it.
const FAILURE: &str = r#"     Running unittests src/lib.rs (target/debug/deps/weigh_observe-8e20832b8c34e913)

running 2 tests
test tree::tests::of_time ... FAILED
test tree::tests::of_names ... ok

failures:

---- tree::tests::of_time stdout ----
thread 'tree::tests::of_time' panicked at crates/observe/src/tree.rs:1:9:
    0.199

failures:
    tree::tests::of_time

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.02s

error: test failed, to rerun pass `-p weigh-observe --lib`
error: 1 target failed:
    `-p weigh-observe --lib`"#;

/// What tests that pass have said.
fn said() -> &'static str {
    PASSED.split_once("... ok\n\n").unwrap().1.split_once("test result").unwrap().0
}

/// With `--show-output`.
const PASSED: &str = r"running 2 tests
test of_guests ... ok

successes:

---- of_guests stdout ----
SKIPPED of_guests: no such platform here
17 values

successes:
    of_guests
    of_names

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

/// What the script does where cargo says this, first and when it is asked again, and the words of
/// the second call.
fn tried(first: (&str, i32), again: (&str, i32)) -> (Output, String) {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    std::fs::write(file("first"), first.0).unwrap();
    std::fs::write(file("again"), again.0).unwrap();
    // What is called again is called with `--exact`.
    let cargo = format!(
        "#!/bin/sh\ncd {here}\ncase \"$*\" in\n*--exact*) echo \"$*\" >> asked; cat again; exit {};;\n*) cat first; exit {};;\nesac\n",
        again.1,
        first.1,
        here = place.path().display()
    );
    std::fs::write(file("cargo"), cargo).unwrap();
    std::fs::set_permissions(file("cargo"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cargo-test");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(script).args(["--workspace", "--tests"]).env("PATH", path).output().unwrap();
    (output, std::fs::read_to_string(file("asked")).unwrap_or_default())
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_passes_is_not_tried_again() {
    let (output, asked) = tried((PASSED, 0), ("", 1));
    assert!(output.status.success() && asked.is_empty(), "{asked}");
}

#[test]
fn what_was_skipped_is_seen_and_nothing_else_of_what_passed() {
    let (output, _) = tried((PASSED, 0), ("", 1));
    let text = stdout(&output);
    assert!(text.contains("\nSKIPPED of_guests: no such platform here\ntest result: ok. 2 passed"), "{text}");
    assert!(text.starts_with("running 2 tests\n") && !text.contains("17 values"), "{text}");
    // A program with both.
    let mixed = FAILURE.replacen("failures:\n\n----", &format!("{}\nfailures:\n\n----", said()), 1);
    let text = stdout(&tried((&mixed, 101), ("running 1 test\n", 101)).0);
    assert!(text.contains("SKIPPED of_guests") && !text.contains("17 values"), "{text}");
    assert!(text.contains("0.199") && text.contains("== once more, alone: tree::tests::of_time\n"), "{text}");
}

#[test]
fn what_fails_once_is_named_and_passes() {
    let (output, asked) = tried((FAILURE, 101), ("running 1 test\n", 0));
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(
        asked.trim(),
        "test -p weigh-observe --lib -- --exact --test-threads=1 --nocapture tree::tests::of_time"
    );
    let text = stdout(&output);
    assert!(text.ends_with("== passed when tried again, alone: tree::tests::of_time\n"), "{text}");
}

#[test]
fn what_fails_twice_fails() {
    let (output, asked) = tried((FAILURE, 101), ("running 1 test\n", 101));
    assert_eq!(output.status.code(), Some(101));
    assert_eq!(asked.lines().count(), 1, "{asked}");
}

#[test]
fn a_test_that_is_not_found_again_fails() {
    let (output, _) = tried((FAILURE, 101), ("running 0 tests\n", 0));
    assert_eq!(output.status.code(), Some(101));
    // One of two programs that failed ended without a word, as one that is killed does.
    let killed = FAILURE
        .replace("1 target failed", "2 targets failed")
        .replace("    `-p weigh-observe --lib`", "    `-p weigh-observe --lib`\n    `-p weigh --test run`");
    let (output, _) = tried((&killed, 101), ("running 1 test\n", 0));
    assert!(output.status.success(), "both ran something: {}", stdout(&output));
    let (output, _) = tried((&killed, 101), ("running 0 tests\n", 0));
    assert_eq!(output.status.code(), Some(101));
}

#[test]
fn what_does_not_build_and_what_fails_widely_is_not_tried_again() {
    let (output, asked) = tried(("error: could not compile `weigh`\n", 101), ("running 1 test\n", 0));
    assert!(output.status.code() == Some(101) && asked.is_empty(), "{asked}");
    let many: String = (0..6).map(|at| format!("    tests::number_{at}\n")).collect();
    let wide = FAILURE.replace("    tree::tests::of_time\n", &many);
    let (output, asked) = tried((&wide, 101), ("running 6 tests\n", 0));
    assert!(output.status.code() == Some(101) && asked.is_empty(), "{asked}");
}
