//! Programs in other languages that read what weigh writes.

use super::{Stage, skip};
use serde_json::Value;
use std::process::Command;
use std::sync::LazyLock;

/// The Python that `WEIGH_PYTHON` names, with modules that no package of the system has.
static NAMED_PYTHON: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WEIGH_PYTHON").ok());

/// The Python that has a module: the one that `WEIGH_PYTHON` names, the first of `PATH`, or the
/// system's own, which has the modules of its packages. If none has it, the test is skipped.
pub fn python_with(module: &str, test: &str) -> Option<&'static str> {
    let probe = format!("import {module}");
    let mut known = NAMED_PYTHON.as_deref().into_iter().chain(["python3", "/usr/bin/python3"]);
    let python = known.find(|python| succeeds(python, &["-c", &probe]));
    if python.is_none() {
        skip(test, module, &format!("`python3` does not run `{probe}`"));
    }
    python
}

/// Whether R is installed with jsonlite. If not, the test is skipped.
pub fn has_r(test: &str) -> bool {
    let probe = "library(jsonlite)";
    let has_r = succeeds("Rscript", &["-e", probe]);
    if !has_r {
        skip(test, "R", &format!("`Rscript` does not run `{probe}`"));
    }
    has_r
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
}

/// What a program prints that succeeds within five minutes, in the directory of the stage's
/// commands.
pub fn output_of(stage: &Stage, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    let output = command.args(["300", program]).args(arguments).current_dir(stage.here()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// [`output_of`] a program that prints JSON.
pub fn json_of(stage: &Stage, program: &str, arguments: &[&str]) -> Value {
    let text = output_of(stage, program, arguments);
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{program}: {error}: {text}"))
}
