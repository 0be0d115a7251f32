//! The scripts of `packaging/`, with stubs in place of what takes minutes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Writes a program for the shell, and the directories above it.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A script of the project.
fn script(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Runs `packaging/twice` in a repository whose `packaging/dist` is `dist`.
fn build_twice(here: &Path, dist: &str) -> Output {
    program(&here.join("packaging/twice"), &script("twice"));
    program(&here.join("packaging/dist"), dist);
    std::fs::write(here.join(".gitignore"), "target\n").unwrap();
    let commit = "git init --quiet && git add . && \
                  git -c user.name=a -c user.email=a@localhost commit --quiet --message=a && packaging/twice";
    Command::new("sh").args(["-c", commit]).current_dir(here).output().unwrap()
}

#[test]
fn two_builds_that_are_equal_pass() {
    let here = tempfile::tempdir().unwrap();
    let dist = "#!/bin/sh\nmkdir -p target/packages && echo \"0 $1\" > target/packages/SHA256SUMS\n";
    let output = build_twice(here.path(), dist);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed, "0 amd64\nboth builds gave the same 1 files\n");
    assert!(!here.path().join("target/packages/twice").exists());
}

#[test]
fn two_builds_that_differ_fail() {
    let here = tempfile::tempdir().unwrap();
    let dist = "#!/bin/sh\nmkdir -p target/packages && pwd > target/packages/SHA256SUMS\n";
    let output = build_twice(here.path(), dist);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the two builds differ"));
}
