//! `timed`: runs a program whose output is not needed, and times it. This gives a rate for tools
//! that print none.

use super::Tool;
use crate::clock::{now_ns, seconds_since};
use crate::kernel::KernelError;
use crate::options::{OptionSpec, Options};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

pub(super) static TOOL: Tool = Tool {
    name: "timed",
    summary: "runs a command with its output thrown away, and prints how long it took and at what rate it read a file",
    options: &[OptionSpec::text("bytes-of", "")
        .help("file that the command reads; the rate is its size over the time")],
    takes_command: true,
    run,
};

#[expect(
    clippy::disallowed_methods,
    reason = "the guest has no helper that holds a deadline; the run holds that of this program, and ends both"
)]
fn run(options: &Options, command: &[String]) -> Result<Value, KernelError> {
    let path = options.text("bytes-of");
    if path.is_empty() {
        return Err(KernelError::usage("name the file that the command reads: `--bytes-of FILE`"));
    }
    let size = std::fs::metadata(path).map_err(KernelError::system(format!("read the size of {path}")))?;
    let bytes = size.len();
    let [program, arguments @ ..] = command else {
        return Err(KernelError::usage("there is no command to run"));
    };
    let mut program_to_run = Command::new(program);
    program_to_run.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let start = now_ns();
    let mut child =
        program_to_run.spawn().map_err(KernelError::system(format!("start the program `{program}`")))?;
    let status = child.wait().map_err(KernelError::system(format!("wait for the program `{program}`")))?;
    let time = seconds_since(start);
    let statement = if bytes == 0 { format!("{path} is empty") } else { format!("{program}: {status}") };
    Ok(json!({
        "tool": "timed",
        "params": options.to_json(),
        "metrics": {
            "duration": {"value": time, "unit": "s"},
            "rate": {"value": bytes as f64 / time, "unit": "B/s"},
        },
        "operations": bytes,
        "duration": {"value": time, "unit": "s"},
        "check": {"passed": status.success() && bytes > 0, "statement": statement},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &[&str]) -> Result<(Value, bool), KernelError> {
        let arguments = ["--bytes-of", "/etc/passwd", "--"].iter().chain(line);
        TOOL.run(arguments.map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn the_rate_is_the_size_over_the_time() {
        let (line, passed) = run(&["sh", "-c", "echo not seen; sleep 0.05"]).unwrap();
        assert!(passed, "{line}");
        let duration = line["metrics"]["duration"]["value"].as_f64().unwrap();
        assert!(duration >= 0.05, "{line}");
        let bytes = std::fs::metadata("/etc/passwd").unwrap().len();
        assert_eq!(line["operations"], bytes);
        assert_eq!(line["metrics"]["rate"]["value"], bytes as f64 / duration);
    }

    #[test]
    fn a_failed_program_fails_the_check_and_a_missing_one_is_an_error() {
        let (line, passed) = run(&["false"]).unwrap();
        assert!(!passed && line["check"]["statement"].as_str().unwrap().contains("exit status: 1"), "{line}");
        let error = run(&["no-such-program"]).unwrap_err().to_string();
        assert!(error.contains("cannot start the program `no-such-program`"), "{error}");
        let empty = TOOL.run(["--bytes-of", "/dev/null", "--", "true"].map(str::to_owned).to_vec());
        assert!(!empty.unwrap().1, "nothing was read from an empty file");
    }
}
