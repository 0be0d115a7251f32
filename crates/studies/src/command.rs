//! The command of weigh that measures an experiment.

use crate::columns::Column;
use crate::study::{Command, Experiment, Quantity, Statistic};
use std::collections::BTreeMap;
use weigh_model::Plan;

/// Options that a soak does not take, because it has a fixed duration.
const NOT_FOR_SOAK: [&str; 3] = ["--blocks", "--precision", "--budget"];

/// The command that measures an experiment in these columns, as words without `weigh`. The study's
/// own arguments follow the added ones. `None` if no column can be measured.
pub fn experiment_command(
    experiment: &Experiment,
    columns: &[Column],
    size: &str,
    options: &[String],
) -> Option<Vec<String>> {
    let specs = environments(columns.iter().filter(|column| column.missing.is_none()));
    let first = specs.first()?;
    let measure = &experiment.measure;
    let baseline = columns.iter().find(|column| column.id == experiment.baseline && column.missing.is_none());
    let baseline =
        baseline.and_then(|column| column.spec.as_ref()).map_or(first.clone(), ToString::to_string);
    let of_size = match size {
        "quick" => &measure.quick,
        "paper" => &measure.paper,
        _ => &measure.standard,
    };
    let mut words = vec![measure.command.name().to_string()];
    if measure.command != Command::Footprint {
        words.extend(["--size".into(), size.into()]);
    }
    words.extend(specs.iter().flat_map(|spec| ["--on".into(), spec.clone()]));
    words.extend(["--baseline".into(), baseline]);
    words.extend(effort(measure.command, size, options));
    if measure.command == Command::Run && experiment.quantities.iter().any(is_of_a_distribution) {
        words.extend(["--slices".into(), "off".into()]);
    }
    // The order matters, because a command for the guest ends the words.
    words.extend(of_size.iter().cloned());
    words.extend(measure.arguments.iter().cloned());
    Some(words)
}

/// The environment in the plan of an experiment for each measured column, by the identifier of the
/// column. The plan has them in the order in which they were given.
pub fn environment_names(
    columns: &[Column],
    without: &BTreeMap<String, String>,
    plan: &Plan,
) -> BTreeMap<String, String> {
    let measured = || columns.iter().filter(|column| !without.contains_key(&column.id));
    let specs = environments(measured());
    let name = |column: &Column| {
        let spec = column.spec.as_ref()?.to_string();
        let place = specs.iter().position(|other| *other == spec)?;
        Some((column.id.clone(), plan.environments.get(place)?.name.clone()))
    };
    measured().filter_map(name).collect()
}

/// Whether a quantity describes the distribution of the blocks' values. Slices share the noise of
/// the host, so they spread differently from the whole trials of a paper.
fn is_of_a_distribution(quantity: &Quantity) -> bool {
    let statistic = quantity.from.measurand().map(|measurand| measurand.statistic);
    !matches!(statistic, None | Some(Statistic::Mean | Statistic::Median))
}

/// The environments of columns, without repetitions.
fn environments<'a>(columns: impl Iterator<Item = &'a Column>) -> Vec<String> {
    let mut specs: Vec<String> = Vec::new();
    for column in columns {
        specs.extend(column.spec.as_ref().map(ToString::to_string).filter(|spec| !specs.contains(spec)));
    }
    specs
}

/// The user's options that the command takes, and `--quick` at that size unless they say how many
/// blocks.
fn effort(command: Command, size: &str, options: &[String]) -> Vec<String> {
    let soaks = command == Command::Soak;
    let mut taken: Vec<String> = Vec::new();
    let mut left = options.iter();
    while let Some(option) = left.next() {
        // Every option but this one has a value, which is the next word.
        let value = (option != "--no-void").then(|| left.next()).flatten();
        if !(soaks && NOT_FOR_SOAK.contains(&option.as_str())) {
            taken.push(option.clone());
            taken.extend(value.cloned());
        }
    }
    let has = |name: &str| options.iter().any(|option| option == name);
    if size == "quick" && !soaks && !has("--blocks") && !has("--precision") {
        taken.push("--quick".into());
    }
    taken
}

/// Words, quoted for a shell.
pub fn shell_quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::ColumnChoice;
    use crate::library;

    #[test]
    fn options_go_to_the_commands_that_take_them() {
        let library = library().unwrap();
        let of = |name: &str, options: &[&str]| {
            let experiment = library.find(name).unwrap()[0].experiment;
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            let columns = ColumnChoice::default().columns(experiment);
            experiment_command(experiment, &columns, "quick", &options).unwrap().join(" ")
        };
        let pxz = of("felter-2014/table-1/pxz", &["--seed", "7", "--no-void"]);
        assert!(pxz.starts_with("run --size quick --on native "), "{pxz}");
        assert!(pxz.contains(" --seed 7 --no-void --quick") && pxz.ends_with(" xz"), "{pxz}");
        assert!(!of("felter-2014/table-1/pxz", &["--blocks", "3"]).contains("--quick"));
        let soak = of("cloudspectator-2017/disk", &["--blocks", "3", "--budget", "5m", "--seed", "7"]);
        assert!(
            soak.contains("--seed 7") && !soak.contains("--blocks") && !soak.contains("--budget"),
            "{soak}"
        );
    }

    #[test]
    fn spreads_are_those_of_whole_trials() {
        let library = library().unwrap();
        let of = |name: &str| {
            let experiment = library.find(name).unwrap()[0].experiment;
            let columns = ColumnChoice::default().columns(experiment);
            experiment_command(experiment, &columns, "standard", &[]).unwrap().join(" ")
        };
        assert!(of("morabito-2015/table-5").contains(" --slices off"));
        assert!(!of("felter-2014/table-1/gups").contains("--slices"));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["a=b", "c d", "it's", ""].map(String::from);
        assert_eq!(shell_quoted(&words), r"a=b 'c d' 'it'\''s' ''");
    }
}
