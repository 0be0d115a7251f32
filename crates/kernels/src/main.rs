//! `weigh-kernels KERNEL [--key value]...` prints one JSON line, as does `weigh-kernels TOOL`.
//!
//! Exit codes: 0; 1 when the kernel could not run; 2 for a command line that cannot be understood;
//! 3 when the check failed (the line is still printed, so that the reason can be read).

use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use weigh_kernels::{
    Kernel, KernelError, OptionSpec, Options, Tool, UsageError, all, find, marks, now_ns, tools,
};

const CANNOT_RUN: u8 = 1;
const USAGE: u8 = 2;
const CHECK_FAILED: u8 = 3;

fn main() -> ExitCode {
    let started_ns = now_ns();
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    match first.as_deref() {
        // The fork_exec operation starts this: it must end at once.
        #[cfg(not(target_family = "wasm"))]
        Some(weigh_kernels::QUICK_EXIT) => ExitCode::SUCCESS,
        None => fail(USAGE, &format!("name a kernel\n\n{}", help())),
        Some("--help" | "-h" | "help") => print(&help()),
        Some("--version" | "-V") => print(concat!("weigh-kernels ", env!("CARGO_PKG_VERSION"), "\n")),
        Some(name) => {
            let arguments = arguments.collect();
            match (tools().iter().find(|tool| tool.name == name), find(name)) {
                (Some(tool), _) => run(name, arguments, || tool_help(tool), |words| tool.run(words)),
                (None, Ok(kernel)) => {
                    run(name, arguments, || kernel_help(kernel), |words| measure(kernel, words, started_ns))
                }
                (None, Err(error)) => fail(USAGE, &error.to_string()),
            }
        }
    }
}

/// Runs a kernel or a tool, and prints its line. `execute` returns the line and whether the check
/// passed.
fn run(
    name: &str,
    arguments: Vec<String>,
    help: impl FnOnce() -> String,
    execute: impl FnOnce(Vec<String>) -> Result<(Value, bool), KernelError>,
) -> ExitCode {
    // What follows `--` are the arguments of another program.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    if own.into_iter().any(|argument| argument == "--help" || argument == "-h") {
        return print(&help());
    }
    match execute(arguments) {
        Ok((line, passed)) => {
            let printed = print(&format!("{line}\n"));
            if passed { printed } else { ExitCode::from(CHECK_FAILED) }
        }
        Err(KernelError::Usage(UsageError(message))) => fail(USAGE, &message),
        Err(error) => fail(CANNOT_RUN, &format!("{name}: {error}")),
    }
}

/// The line of a kernel, and whether its check passed.
fn measure(kernel: &Kernel, words: Vec<String>, started_ns: u64) -> Result<(Value, bool), KernelError> {
    let (every, words) = marks::requested(kernel, words)?;
    let options = Options::parse(kernel.name, kernel.options, words)?;
    let mut params = options.to_json();
    let outcome = match every {
        Some(every) => {
            params.insert("marks".into(), every.mark.as_secs_f64().into());
            kernel.run_endless(&options, every)?
        }
        None => kernel.run(&options)?,
    };
    let duration_s = (now_ns() - started_ns) as f64 * 1e-9;
    Ok((outcome.to_json(kernel.name, params, duration_s), outcome.check.passed))
}

fn print(text: &str) -> ExitCode {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(CANNOT_RUN, &format!("cannot write the result: {error}")),
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    // If stderr is closed, the message is lost; the exit code remains.
    let _ = writeln!(std::io::stderr(), "weigh-kernels: {message}");
    ExitCode::from(code)
}

fn help() -> String {
    let mut text = String::from(
        "Micro-benchmarks that check their own work. Prints one JSON line.\n\n\
         Usage: weigh-kernels KERNEL [--key value]...\n       weigh-kernels TOOL [--key value]... [-- COMMAND]\n       \
         weigh-kernels KERNEL --help\n\nKernels:\n",
    );
    for kernel in all() {
        let _ = writeln!(text, "  {:<16}{}", kernel.name, kernel.summary);
    }
    text.push_str("\nTools, which measure nothing of their own:\n");
    for tool in tools() {
        let _ = writeln!(text, "  {:<16}{}", tool.name, tool.summary);
    }
    text.push_str(
        "\nExit codes: 0; 1 the kernel could not run; 2 the command line is wrong; 3 the check failed, the result does not count.\n",
    );
    text
}

fn kernel_help(kernel: &Kernel) -> String {
    let mut text = options_help(kernel.name, kernel.summary, "", kernel.options);
    if kernel.is_endless() {
        text.push_str(marks::HELP);
    }
    text.push_str("\nMetrics:\n");
    for (name, unit) in kernel.metrics {
        let _ = writeln!(text, "  {name:<20}{unit}");
    }
    let _ = writeln!(text, "\nOperation: {}\nCheck: {}", kernel.operation, kernel.check);
    text
}

fn tool_help(tool: &Tool) -> String {
    let command = if tool.takes_command { " -- COMMAND [ARGUMENT]..." } else { "" };
    options_help(tool.name, tool.summary, command, tool.options)
}

fn options_help(name: &str, summary: &str, command: &str, options: &[OptionSpec]) -> String {
    let mut text =
        format!("{summary}\n\nUsage: weigh-kernels {name} [--key value]...{command}\n\nOptions:\n");
    for option in options {
        let default =
            if option.default.is_empty() { String::new() } else { format!(" [{}]", option.default) };
        let _ = writeln!(text, "  --{:<18}{}{default}", option.name, option.summary);
    }
    text
}
