//! The option `--marks TIME[,BATCH]`.

use crate::kernel::{Kernel, all};
use crate::options::UsageError;
use std::time::Duration;

/// How often marks are made and printed, in CPU time of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkInterval {
    /// The least time between marks.
    pub mark: Duration,
    /// The least time between two prints; `None` to print each mark at once, without its time.
    pub batch: Option<Duration>,
}

impl MarkInterval {
    fn parse(value: &str) -> Result<Self, weigh_model::SizeError> {
        let (mark, batch) = value.split_once(',').map_or((value, None), |(mark, batch)| (mark, Some(batch)));
        let batch = batch.map(weigh_model::parse_duration).transpose()?;
        Ok(Self { mark: weigh_model::parse_duration(mark)?, batch })
    }
}

/// The option without its dashes.
const OPTION: &str = "marks";

/// The line of `--help` of kernels that have the endless form.
pub const HELP: &str = "  --marks             work until SIGTERM, and print what was done after every piece of work that \
                        completes so much CPU time, such as 25ms; 25ms,100ms prints that every \
                        100ms, with times of the monotonic clock; without it the kernel ends by itself and prints \
                        what it measured\n";

/// Removes `--marks TIME[,BATCH]` from a command line. Returns the times and the other arguments.
///
/// # Errors
/// A time cannot be read, or `kernel` has no endless form.
pub fn requested(
    kernel: &Kernel,
    arguments: Vec<String>,
) -> Result<(Option<MarkInterval>, Vec<String>), UsageError> {
    let (mut every, mut others) = (None, Vec::new());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--").and_then(|option| option.strip_prefix(OPTION)) {
            Some("") => arguments.next(),
            Some(value) if value.starts_with('=') => Some(value[1..].to_owned()),
            _ => {
                others.push(argument);
                continue;
            }
        };
        if cfg!(target_family = "wasm") {
            let reason = "a WebAssembly program cannot read its CPU time and gets no signal";
            return Err(UsageError(format!("{} has no `--{OPTION}` here: {reason}", kernel.name)));
        }
        if !kernel.is_endless() {
            let known: Vec<_> =
                all().iter().filter(|kernel| kernel.is_endless()).map(|kernel| kernel.name).collect();
            return Err(UsageError(format!(
                "{} has no endless form and no `--{OPTION}`; the kernels that have it are: {}",
                kernel.name,
                known.join(", ")
            )));
        }
        let value = value
            .ok_or_else(|| UsageError(format!("`--{OPTION}` needs a value, such as `--{OPTION} 25ms`")))?;
        let time = MarkInterval::parse(&value)
            .map_err(|error| UsageError(format!("cannot read `--{OPTION} {value}`: {}", error.problem)))?;
        if every.replace(time).is_some() {
            return Err(UsageError(format!("`--{OPTION}` is given twice; give it once")));
        }
    }
    Ok((every, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_read_wherever_it_stands() {
        let kernel = |name| crate::find(name).unwrap();
        let read = |kernel, line: &str| {
            requested(kernel, line.split_whitespace().map(str::to_owned).collect())
                .map_err(|error| error.to_string())
        };
        let (every, others) = read(kernel("noploop"), "--nops 5 --marks 25ms --repetitions 1").unwrap();
        assert_eq!(every, Some(MarkInterval { mark: Duration::from_millis(25), batch: None }));
        assert_eq!(others, ["--nops", "5", "--repetitions", "1"]);
        let [second, batch] = [1, 2].map(Duration::from_secs);
        let batched = MarkInterval { mark: second, batch: Some(batch) };
        assert_eq!(read(kernel("spin"), "--marks=1s,2s").unwrap().0, Some(batched));
        let nothing = read(kernel("block"), "--path x").unwrap();
        assert_eq!(nothing, (None, vec!["--path".to_owned(), "x".to_owned()]));
        assert!(read(kernel("block"), "--marks 5ms").unwrap_err().contains("are: noploop, stream, gups"));
        assert!(read(kernel("spin"), "--marks").unwrap_err().contains("such as `--marks 25ms`"));
        assert!(read(kernel("spin"), "--marks 5x").unwrap_err().contains("`x` is not a unit"));
        assert!(read(kernel("spin"), "--marks 5ms,5x").unwrap_err().contains("`x` is not a unit"));
        assert!(read(kernel("spin"), "--marks 5ms --marks 6ms").unwrap_err().contains("twice"));
    }
}
