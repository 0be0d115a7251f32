//! A command of the user's own as a workload.

use std::path::Path;
use weigh_model::{Better, Extraction, MetricSource, MetricSpec, SlicedWork, Unit, WorkloadPlan};

/// Unmeasured runs when the user does not say: one (method specification, "Warm-up").
const WARMUP: u32 = 1;
/// Measured runs per block when the user does not say. A kernel repeats its work within one run and
/// takes the best or the median; a user's command does not, so three runs give the block a median
/// that one disturbance cannot move.
const ITERATIONS: u32 = 3;
/// Seconds after which a command is ended when the user does not say.
const DEADLINE_S: f64 = 600.0;
/// Longest id made of a command line, characters.
const LONGEST_ID: usize = 48;

/// What the user may set for a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandOptions {
    /// Unmeasured runs in a fresh instance; 1 when absent.
    pub warmup: Option<u32>,
    /// Measured runs per block; 3 when absent.
    pub iterations: Option<u32>,
    /// Shell script run in the guest before every run, by `/bin/sh -c`.
    pub prepare: Option<String>,
    /// Shell script run in the guest after every run, by `/bin/sh -c`.
    pub cleanup: Option<String>,
    /// Seconds after which a run is ended; 600 when absent.
    pub deadline_s: Option<f64>,
}

/// A workload that runs `argv` as it stands. Metrics: `time` (s, primary), `cpu_time` (s, of the
/// command itself), and `maximum_resident_set` (B). It counts when it exits with 0. Without words
/// in `argv` nothing can be run: the caller sees to that.
pub fn command_workload(argv: &[String], options: &CommandOptions) -> WorkloadPlan {
    let program = argv.first().map_or("command", String::as_str);
    let name =
        Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy().into_owned());
    let shell = |script: &String| vec!["/bin/sh".into(), "-c".into(), script.clone()];
    let metric = |name: &str, unit: &str, from: Extraction| MetricSource {
        spec: MetricSpec {
            name: name.into(),
            unit: Unit::normalise(unit).0,
            better: Better::Lower,
            primary: from == Extraction::Duration,
        },
        from,
        factor: 1.0,
    };
    let metrics = vec![
        metric("time", "s", Extraction::Duration),
        metric("cpu_time", "s", Extraction::CpuTime),
        metric("maximum_resident_set", "B", Extraction::MaximumResidentSet),
    ];
    WorkloadPlan {
        id: id_of(argv, &name),
        prepare: options.prepare.as_ref().map(shell),
        cleanup: options.cleanup.as_ref().map(shell),
        warmup: options.warmup.unwrap_or(WARMUP),
        iterations: options.iterations.unwrap_or(ITERATIONS),
        sliced: (options.prepare.is_none() && options.cleanup.is_none()).then_some(SlicedWork::Iterations),
        deadline_s: options.deadline_s.unwrap_or(DEADLINE_S),
        ..WorkloadPlan::of(name, argv.to_vec(), metrics)
    }
}

/// The command line for people, in one line and not too long.
fn id_of(argv: &[String], name: &str) -> String {
    let words = std::iter::once(name).chain(argv.iter().skip(1).map(String::as_str));
    let line = words.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LONGEST_ID {
        return line;
    }
    let kept: String = line.chars().take(LONGEST_ID - 3).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn a_command_is_timed_as_it_stands() {
        let plan = command_workload(&argv("/usr/bin/sleep 0.1"), &CommandOptions::default());
        assert_eq!((plan.name.as_str(), plan.id.as_str()), ("sleep", "sleep 0.1"));
        assert_eq!((plan.warmup, plan.iterations, plan.deadline_s), (1, 3, 600.0));
        assert_eq!(plan.command, argv("/usr/bin/sleep 0.1"));
        let metrics: Vec<_> = plan
            .metrics
            .iter()
            .map(|m| (m.spec.name.as_str(), m.spec.unit.symbol(), m.spec.primary))
            .collect();
        assert_eq!(
            metrics,
            [("time", "s", true), ("cpu_time", "s", false), ("maximum_resident_set", "B", false)]
        );
    }

    #[test]
    fn options_are_taken_and_scripts_go_through_the_shell() {
        let options = CommandOptions {
            warmup: Some(0),
            iterations: Some(7),
            prepare: Some("sync; true".into()),
            cleanup: Some("rm -f x".into()),
            deadline_s: Some(2.5),
        };
        let plan = command_workload(&argv("make"), &options);
        assert_eq!((plan.warmup, plan.iterations, plan.deadline_s), (0, 7, 2.5));
        assert_eq!(plan.prepare.unwrap(), ["/bin/sh", "-c", "sync; true"]);
        assert_eq!(plan.cleanup.unwrap(), ["/bin/sh", "-c", "rm -f x"]);
    }

    #[test]
    fn long_and_multi_line_commands_get_a_short_id() {
        let long = ["sh".to_string(), "-c".into(), format!("echo\n {}", "é".repeat(100))];
        let id = command_workload(&long, &CommandOptions::default()).id;
        assert_eq!(id.chars().count(), LONGEST_ID);
        assert!(id.starts_with("sh -c echo é") && id.ends_with("..."), "{id}");
    }
}
