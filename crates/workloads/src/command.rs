//! A user's command as a workload.

use crate::planning::{ParamError, check_values, combinations};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weigh_model::{
    Better, Extraction, MetricSource, MetricSpec, SlicedWork, Staging, Unit, WorkloadKey, WorkloadPlan,
};

/// Unmeasured runs in a fresh instance (method specification, "Warm-up").
const WARMUP: u32 = 1;
/// The fewest measured runs per block. A kernel repeats its work within one run and takes the best
/// or the median. A user's command does not, so three runs give the block a median that one
/// disturbance cannot move.
const ITERATIONS: u32 = 3;
/// How long the measured runs of a trial are to take together, seconds: a quick command runs more
/// often, so that launches, which take some ten milliseconds, are not most of what a run takes.
const TRIAL_S: f64 = 0.1;
/// Deadline of a command, seconds.
const DEADLINE_S: f64 = 600.0;
/// Longest id derived from a command line, characters.
const LONGEST_ID: usize = 48;
/// The names of several commands have all their words if none is longer, characters: so much fits a
/// line of a heading.
const SHORT: usize = 16;
/// What stands for the words that several commands share.
const LEFT_OUT: &str = "…";
/// Shared words that are shorter are not left out, characters: they take hardly more space.
const LEAST_LEFT_OUT: usize = 8;

/// Makes a workload that runs `argv` unchanged, once unmeasured in a fresh instance and then three
/// times per block, or more often if the pilot finds that it is quick. Metrics: `time` (s, primary),
/// `cpu_time` (s, of the command itself), and `maximum_resident_set` (B). A run counts if it exits
/// with 0. The caller has to ensure that `argv` is not empty.
pub fn command_workload(argv: &[String]) -> WorkloadPlan {
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
        id: command_line(argv),
        warmup: WARMUP,
        iterations: ITERATIONS,
        trial_s: Some(TRIAL_S),
        sliced: Some(SlicedWork::Iterations),
        deadline_s: DEADLINE_S,
        ..WorkloadPlan::of(program(argv), argv.to_vec(), metrics)
    }
}

/// Makes one workload per combination of values. The values replace their names in braces in the
/// workload's commands, in those around them and in the path of its input.
///
/// # Errors
/// A value that is given twice, and too many combinations.
pub fn sweep(
    plan: &WorkloadPlan,
    params: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<WorkloadPlan>, ParamError> {
    for (name, values) in params {
        check_values(name, values)?;
    }
    let swept = |name: &str| params.get(name).is_some_and(|values| values.len() > 1);
    let one = |combination: BTreeMap<&str, &str>| {
        let fill = |word: &mut String| {
            for (name, value) in &combination {
                *word = word.replace(&format!("{{{name}}}"), value);
            }
        };
        let mut plan = plan.clone();
        words(&mut plan).for_each(fill);
        let shown = combination.iter().filter(|(name, _)| swept(name));
        let shown = shown.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        plan.id = WorkloadKey { params: shown, ..WorkloadKey::named(&plan.id) }.to_string();
        plan.params = combination.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        plan
    };
    Ok(combinations(params)?.into_iter().map(one).collect())
}

/// Whether the workload's words contain a parameter of this name.
pub fn has_parameter(plan: &WorkloadPlan, name: &str) -> bool {
    let word = format!("{{{name}}}");
    words(&mut plan.clone()).any(|text| text.contains(&word))
}

/// Every word that may contain a parameter.
fn words(plan: &mut WorkloadPlan) -> impl Iterator<Item = &mut String> {
    let Staging { setup, teardown, .. } = &mut plan.staging;
    let around = [&mut plan.prepare, &mut plan.cleanup, setup, teardown];
    let own = std::iter::once(&mut plan.command).chain(plan.commands.values_mut());
    own.chain(around.into_iter().flatten()).flatten().chain(&mut plan.input)
}

/// The name of the program.
fn program(argv: &[String]) -> String {
    let program = argv.first().map_or("command", String::as_str);
    Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy().into_owned())
}

/// A short form of a command for people, in one line: the program without its directory, and its
/// arguments.
///
/// ```
/// let argv = ["/usr/bin/sleep", "0.1"].map(String::from);
/// assert_eq!(weigh_workloads::command_line(&argv), "sleep 0.1");
/// ```
pub fn command_line(argv: &[String]) -> String {
    one_line(&with_plain_program(argv))
}

/// Short forms of several commands, by which people tell them apart. Where one of them is long, the
/// words that all have in common at the beginning and at the end are left out. Programs of the same
/// name keep their directories.
///
/// ```
/// let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
/// let [gzip, pigz] = ["gzip -k -c some/file", "pigz -k -c some/file"].map(words);
/// assert_eq!(weigh_workloads::command_lines(&[&gzip, &pigz]), ["gzip …", "pigz …"]);
/// ```
pub fn command_lines(commands: &[&[String]]) -> Vec<String> {
    let mut words: Vec<Vec<String>> = commands.iter().map(|argv| with_plain_program(argv)).collect();
    let distinct = words.iter().collect::<BTreeSet<_>>().len();
    if distinct < commands.iter().collect::<BTreeSet<_>>().len() {
        words = commands.iter().map(|argv| argv.to_vec()).collect();
    }
    let lines: Vec<String> = words.iter().map(|words| one_line(words)).collect();
    if commands.len() < 2 || lines.iter().all(|line| line.chars().count() <= SHORT) {
        return lines;
    }
    let (before, after) = shared(&words);
    let left_out = |count: usize| (count > 0).then(|| LEFT_OUT.to_string());
    let name = |words: &Vec<String>| {
        let own = words[before..words.len() - after].iter().cloned();
        one_line(&left_out(before).into_iter().chain(own).chain(left_out(after)).collect::<Vec<_>>())
    };
    words.iter().map(name).collect()
}

/// The numbers of words to leave out at the beginning and at the end of these commands. Some word
/// of each is left, and an option stays with its value.
fn shared(commands: &[Vec<String>]) -> (usize, usize) {
    let Some(first) = commands.first() else { return (0, 0) };
    let fewest = commands.iter().map(Vec::len).min().unwrap_or(0);
    let at_the_beginning = |at: &usize| commands.iter().all(|words| words[*at] == first[*at]);
    let mut before = (0..fewest).take_while(at_the_beginning).count();
    let at_the_end =
        |at: &usize| commands.iter().all(|words| words[words.len() - at] == first[first.len() - at]);
    let mut after = (1..=fewest - before).take_while(at_the_end).count();
    let is_all = commands.iter().any(|words| words.len() == before + after);
    let is_option = before > 0 && first[before - 1].starts_with('-');
    if is_all && before == 0 {
        after = after.saturating_sub(1);
    } else if is_all || is_option {
        before -= 1;
    }
    let is_long = |words: &[String]| words.join(" ").chars().count() >= LEAST_LEFT_OUT;
    (
        if is_long(&first[..before]) { before } else { 0 },
        if is_long(&first[first.len() - after..]) { after } else { 0 },
    )
}

/// The words of a command, with its program without the directory.
fn with_plain_program(argv: &[String]) -> Vec<String> {
    std::iter::once(program(argv)).chain(argv.iter().skip(1).cloned()).collect()
}

/// Words in one line, of which the beginning is kept if it is long.
fn one_line(words: &[String]) -> String {
    let line = words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
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
        let plan = command_workload(&argv("/usr/bin/sleep 0.1"));
        assert_eq!((plan.name.as_str(), plan.id.as_str()), ("sleep", "sleep 0.1"));
        assert_eq!((plan.warmup, plan.iterations, plan.deadline_s), (1, 3, 600.0));
        assert_eq!(plan.trial_s, Some(0.1));
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
    fn long_and_multi_line_commands_get_a_short_id() {
        let long = ["sh".to_string(), "-c".into(), format!("echo\n {}", "é".repeat(100))];
        let id = command_workload(&long).id;
        assert_eq!(id.chars().count(), LONGEST_ID);
        assert!(id.starts_with("sh -c echo é") && id.ends_with("..."), "{id}");
    }

    #[test]
    fn commands_are_called_by_what_differs() {
        let of = |lines: &[&str]| {
            let commands: Vec<Vec<String>> = lines.iter().map(|line| argv(line)).collect();
            command_lines(&commands.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        for (lines, names) in [
            (["sleep 0.1", "sleep 0.25"], ["sleep 0.1", "sleep 0.25"]),
            (["gzip -k -c some/file", "/bin/pigz -k -c some/file"], ["gzip …", "pigz …"]),
            (
                ["tool --level 1 corpus.tar", "tool --level 9 corpus.tar"],
                ["tool --level 1 …", "tool --level 9 …"],
            ),
            (
                ["run.py --size 100 --mode fast", "run.py --size 100 --mode slow"],
                ["… --mode fast", "… --mode slow"],
            ),
            (["gzip some/long/file", "gzip -9 some/long/file"], ["gzip …", "gzip -9 …"]),
            (
                ["sort some/long/file", "sort some/long/file -n"],
                ["sort some/long/file", "sort some/long/file -n"],
            ),
            // Two builds of a program.
            (["old/tool input", "new/tool input"], ["old/tool input", "new/tool input"]),
            (["old/tool an/input", "new/tool an/input"], ["old/tool …", "new/tool …"]),
        ] {
            assert_eq!(of(&lines), names);
        }
        assert_eq!(of(&["gzip -k -c some/file"]), ["gzip -k -c some/file"]);
        assert_eq!(
            of(&["a -k -c some/file", "b -k -c some/file", "c -k -1 some/file"]),
            ["a -k -c …", "b -k -c …", "c -k -1 …"]
        );
        // What differs is not cut off.
        let long = "x".repeat(60);
        let [one, other] = [1, 2].map(|number| format!("tool --input {long} {number}"));
        assert_eq!(of(&[one.as_str(), other.as_str()]), ["… 1", "… 2"]);
    }

    fn params(given: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let values = |list: &str| list.split(',').map(str::to_string).collect();
        given.iter().map(|(name, list)| ((*name).to_string(), values(list))).collect()
    }

    #[test]
    fn a_sweep_fills_every_word_in() {
        let plan = WorkloadPlan {
            commands: [("old".into(), argv("old -{level}"))].into(),
            prepare: Some(argv("rm {file}.gz")),
            input: Some("{file}".into()),
            staging: Staging { setup: Some(argv("make {file}")), ..Staging::default() },
            ..command_workload(&argv("gzip -{level} {file} {other}"))
        };
        assert!(has_parameter(&plan, "file") && !has_parameter(&plan, "fil"));
        let swept = sweep(&plan, &params(&[("level", "1,9"), ("file", "a")])).unwrap();
        assert_eq!(swept.len(), 2);
        let last = &swept[1];
        assert_eq!(last.command, argv("gzip -9 a {other}"));
        assert_eq!(last.commands["old"], argv("old -9"));
        assert_eq!(last.prepare, Some(argv("rm a.gz")));
        assert_eq!(last.staging.setup, Some(argv("make a")));
        assert_eq!(last.input.as_deref(), Some("a"));
        // A parameter with one value is the same everywhere and need not be shown.
        assert_eq!(last.id, "gzip -{level} {file} {other}{level=9}");
        assert_eq!(WorkloadKey::of(last).to_string(), "gzip -{level} {file} {other}{file=a,level=9}");
    }

    #[test]
    fn values_that_are_given_twice_are_refused() {
        let plan = command_workload(&argv("sleep {s}"));
        let error = sweep(&plan, &params(&[("s", "1,1")])).unwrap_err();
        assert!(error.message.contains("given twice"), "{error}");
        let many: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        assert!(sweep(&plan, &params(&[("s", &many.join(","))])).is_err());
    }
}
