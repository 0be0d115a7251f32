//! Tools for workloads of other programs: checks of memory and disk space, input files, a terminal,
//! and a clock for programs that report no time.
//!
//! Tools measure nothing themselves, so they are not kernels, and no workload is named after one.
//! They take options as kernels do and print one JSON line.

#[cfg(not(target_family = "wasm"))]
mod copy;
#[cfg(not(target_family = "wasm"))]
mod listens;
#[cfg(not(target_family = "wasm"))]
mod prompt;
#[cfg(not(target_family = "wasm"))]
mod room;
#[cfg(not(target_family = "wasm"))]
mod text;
#[cfg(not(target_family = "wasm"))]
mod timed;

use crate::kernel::KernelError;
use crate::options::{OptionSpec, Options};
use serde_json::Value;

/// A tool: its description and the function that runs it.
pub struct Tool {
    /// Name on the command line.
    pub name: &'static str,
    /// A summary of one line.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Whether it takes a command after `--`.
    pub takes_command: bool,
    pub(crate) run: fn(&Options, &[String]) -> Result<Value, KernelError>,
}

impl Tool {
    /// Runs the tool with these arguments. Returns the line that it prints, and whether its check
    /// passed.
    ///
    /// # Errors
    /// An argument is not valid, or the operating system refused something.
    pub fn run(&self, arguments: Vec<String>) -> Result<(Value, bool), KernelError> {
        let mut options = arguments;
        let mut command = Vec::new();
        if self.takes_command {
            let at = options.iter().position(|argument| argument == "--");
            command = at.map(|at| options.split_off(at).split_off(1)).unwrap_or_default();
            if command.is_empty() {
                let message = format!("`{}` needs a command after `--`", self.name);
                return Err(KernelError::usage(message));
            }
        }
        let line = (self.run)(&Options::parse(self.name, self.options, options)?, &command)?;
        let passed = line.pointer("/check/passed") == Some(&Value::Bool(true));
        Ok((line, passed))
    }
}

/// All tools, in the order of the help.
#[cfg(not(target_family = "wasm"))]
static ALL: &[&Tool] = &[&copy::TOOL, &listens::TOOL, &prompt::TOOL, &room::TOOL, &text::TOOL, &timed::TOOL];

/// They need files, sockets and programs, which a WebAssembly program is not given.
#[cfg(target_family = "wasm")]
static ALL: &[&Tool] = &[];

/// All tools.
pub fn tools() -> &'static [&'static Tool] {
    ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_not_named_as_kernels_and_have_valid_defaults() {
        for tool in tools() {
            assert!(crate::names().all(|name| name != tool.name), "{}", tool.name);
            assert_eq!(Options::defaults(tool.options).to_json().len(), tool.options.len());
        }
    }

    #[test]
    fn the_timed_tool_is_refused_without_a_command() {
        for line in [vec!["--bytes-of", "/etc/passwd"], vec!["--bytes-of", "/etc/passwd", "--"]] {
            let error = timed::TOOL.run(line.into_iter().map(str::to_owned).collect()).unwrap_err();
            assert!(error.to_string().contains("needs a command after `--`"), "{error}");
        }
    }
}
