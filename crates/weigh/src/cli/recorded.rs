//! The words of a command line that its plan records.

use super::Cli;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory};

/// Options that say where and how long a run measures and how it is shown. The plan holds the first
/// elsewhere, and `weigh study` adds its own to the recorded command.
const NOT_RECORDED: [&str; 22] = [
    "on",
    "baseline",
    "size",
    "quick",
    "blocks",
    "precision",
    "budget",
    "no_void",
    "dry_run",
    "seed",
    "out",
    "gate",
    "gate_undecided",
    "format",
    "details",
    "price",
    "prices",
    "live",
    "via",
    "comment",
    "junit",
    "watch",
];

/// Options of `plan` that the planned run does not have.
const OF_THE_PILOT: [&str; 3] = ["detect", "json", "dry_run"];

/// Returns the command and its arguments as the user gave them, in one spelling. `None` without a
/// command, or with a plan file, which has its own record. For `plan`, they are the whole command
/// of the run that it plans.
pub fn words(matches: &ArgMatches) -> Option<Vec<String>> {
    let (name, given) = matches.subcommand()?;
    let command = Cli::command();
    let definition = command.find_subcommand(name)?;
    let is_given = |arg: &&Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let mut arguments: Vec<&Arg> = definition.get_arguments().filter(is_given).collect();
    if arguments.iter().any(|arg| arg.get_id() == "plan") {
        return None;
    }
    let (name, left_out): (&str, &[&str]) = match name {
        "plan" => ("run", &OF_THE_PILOT),
        // What each of its machines does.
        "fleet" => ("run", &NOT_RECORDED),
        name => (name, &NOT_RECORDED),
    };
    arguments.retain(|arg| !left_out.contains(&arg.get_id().as_str()));
    // In the order of the command line, but a command of the guest stays at the end.
    arguments.sort_by_key(|arg| (arg.is_last_set(), given.index_of(arg.get_id().as_str())));
    let mut words = vec![name.to_string()];
    for argument in arguments {
        write(&mut words, argument, given);
    }
    Some(words)
}

fn write(words: &mut Vec<String>, argument: &Arg, given: &ArgMatches) {
    let option = argument.get_long().map(|name| format!("--{name}"));
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        words.extend(option);
        return;
    }
    let occurrences = given.get_raw_occurrences(argument.get_id().as_str()).into_iter().flatten();
    let separator = argument.get_value_delimiter().map(String::from);
    if argument.is_last_set() {
        words.push("--".into());
    }
    for values in occurrences {
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let values = match &separator {
            Some(separator) => vec![values.join(separator)],
            None => values,
        };
        match &option {
            Some(option) if argument.is_require_equals_set() => {
                words.push(format!("{option}={}", values.concat()));
            }
            option => words.extend(option.iter().cloned().chain(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::CommandLine;

    fn recorded(line: &str) -> Option<String> {
        let line = CommandLine::parse(std::iter::once("weigh").chain(line.split(' '))).unwrap();
        line.recorded.map(|words| words.join(" "))
    }

    #[test]
    fn the_recorded_command_leaves_out_the_options_that_a_study_adds() {
        let run = "run stream gups --on native --size quick --param a=1,2 --blocks 3 --param stream.b=2 --reuse --seed 1 \
                   --no-void --out o --margin 3 --format json --live --gate 5 --gate-undecided fail --baseline native";
        let expected = "run stream gups --param a=1,2 --param stream.b=2 --reuse --margin 3";
        assert_eq!(recorded(run).unwrap(), expected);
        assert_eq!(
            recorded("run --warmup 2 --on a:b=c --iterations 4 -- sleep --on 1").unwrap(),
            "run --warmup 2 --iterations 4 -- sleep --on 1"
        );
        assert_eq!(recorded("run --quick").unwrap(), "run");
    }

    #[test]
    fn lists_and_optional_values_have_one_spelling() {
        assert_eq!(
            recorded("start --rate --guests=1,2 --spawn").unwrap(),
            "start --rate=1,2,4,8 --guests 1,2 --spawn"
        );
        assert_eq!(recorded("start --rate=3").unwrap(), "start --rate=3");
        assert_eq!(
            recorded("density --guests 1 --guests 2 --cpus 0").unwrap(),
            "density --guests 1 --guests 2 --cpus 0"
        );
        assert_eq!(recorded("footprint --guests 1,2 --price 0.34/h").unwrap(), "footprint --guests 1,2");
        assert_eq!(recorded("soak --for 2h --neighbours idle").unwrap(), "soak --for 2h --neighbours idle");
    }

    #[test]
    fn a_pilot_records_the_whole_command_of_the_run_that_it_plans() {
        assert_eq!(
            recorded(
                "plan --detect 1% stream --on native,runc --size quick --seed 3 --iterations 5 --cpus 1"
            )
            .unwrap(),
            "run stream --on native,runc --size quick --seed 3 --iterations 5 --cpus 1"
        );
    }

    #[test]
    fn a_fleet_records_the_run_of_each_machine() {
        let line = "fleet noploop --via ssh:host=a --watch --on native --iterations 2";
        assert_eq!(recorded(line).unwrap(), "run noploop --iterations 2");
    }

    #[test]
    fn a_run_of_a_plan_file_records_no_command() {
        assert_eq!(recorded("run --plan plan.json"), None);
    }
}
