//! What surrounds the command of a workload in a guest: a directory for its files, a seed, set-up
//! and tear-down.

use crate::trial::{Failure, describe};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_model::{FailureKind, Staging};
use weigh_platforms::{Guest, Session};

/// The directory for commands' files in guests without another place: private to them, in memory or
/// where their `storage` says.
pub(crate) const USUAL: &str = "/var/tmp";
/// The directory for commands' files in guests without a system.
pub(crate) const BARE: &str = "/tmp";
/// The placeholder for the program with the builtin kernels.
pub(crate) const KERNELS: &str = "kernels";
/// The placeholder for the memory that a guest may use.
pub(crate) const MEMORY: &str = "memory";
/// The default deadline of a set-up, seconds.
const SETUP_DEADLINE_S: f64 = 600.0;

/// The values that the run fills in for one trial, by their placeholders in braces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placeholders(Vec<(&'static str, String)>);

impl Placeholders {
    /// `seed` belongs to the block, `trial` identifies the trial in the run. All numbers are
    /// written with the same length, because the arguments of a command move its stack.
    pub(crate) fn new(scratch: &Path, trial: u64, seed: u64) -> Self {
        let directory = scratch.join(format!("weigh-{:06}", trial % 1_000_000));
        Self(vec![("scratch", directory.display().to_string()), ("seed", format!("{}", seed_of(seed)))])
    }

    /// Adds or replaces a placeholder.
    pub(crate) fn with(mut self, word: &'static str, value: impl Into<String>) -> Self {
        self.0.retain(|(known, _)| *known != word);
        self.0.push((word, value.into()));
        self
    }

    /// The value of a placeholder.
    pub(crate) fn get(&self, word: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == word).map(|(_, value)| value.as_str())
    }

    /// A command with all placeholders filled in.
    pub(crate) fn fill(&self, command: &[String]) -> Vec<String> {
        let fill = |word: &String| {
            self.0
                .iter()
                .fold(word.clone(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
        };
        command.iter().map(fill).collect()
    }
}

/// A number of nine digits, the first not 0, so that it takes the same space in every block; tools
/// take it as a 32-bit number.
fn seed_of(random: u64) -> u64 {
    100_000_000 + random % 900_000_000
}

/// The directory in which commands may make files in a guest.
pub(crate) fn scratch(guest: &dyn Guest, bare: bool) -> PathBuf {
    let own = guest.scratch().map(Path::to_path_buf);
    own.unwrap_or_else(|| if bare { BARE.into() } else { USUAL.into() })
}

/// Whether any of these commands makes files.
pub(crate) fn wants_scratch<'c>(commands: impl IntoIterator<Item = &'c Vec<String>>) -> bool {
    commands.into_iter().flatten().any(|word| word.contains("{scratch}"))
}

/// Makes the directory for files.
///
/// # Errors
/// The guest has no place that can be written to.
pub(crate) fn make_scratch(session: &mut Session, placeholders: &Placeholders) -> Result<(), Failure> {
    let directory = placeholders.get("scratch").unwrap_or(USUAL);
    // Only files can be written; their directories are made on the way.
    let made = session.put(&format!("{directory}/.weighbridge"), 0o600, b"");
    made.map_err(|error| {
        let reason = format!(
            "no directory for files can be made in the guest at {directory}: {}; give it a `storage`, or an image with {USUAL}",
            describe(&error)
        );
        let kind = if session.is_lost() { FailureKind::GuestDied } else { FailureKind::Preparation };
        Failure::new(kind, reason)
    })
}

/// The deadline of a set-up.
pub(crate) fn setup_deadline(staging: &Staging) -> Duration {
    Duration::try_from_secs_f64(staging.setup_deadline_s.unwrap_or(SETUP_DEADLINE_S))
        .unwrap_or(Duration::from_secs(SETUP_DEADLINE_S as u64))
}

/// A remedy for a missing program: the packages that have it.
pub(crate) fn remedy(staging: &Staging) -> String {
    match staging.packages.as_slice() {
        [] => String::new(),
        [one] => format!("; on Debian it is in the package {one}"),
        several => format!("; on Debian it is in one of the packages {}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_filled_in_and_others_stay() {
        let placeholders = Placeholders::new(Path::new("/var/tmp"), 7, u64::MAX).with("port", "4711");
        let command: Vec<String> =
            ["tool", "{scratch}/f", "--seed={seed}", "{port}:{port}", "{other}"].map(String::from).to_vec();
        let filled = placeholders.fill(&command);
        assert_eq!(filled[1], "/var/tmp/weigh-000007/f");
        assert_eq!(filled[3..], ["4711:4711", "{other}"]);
        assert_eq!(placeholders.clone().with("port", "1").get("port"), Some("1"));
        assert!(wants_scratch([&command]) && !wants_scratch([&filled]));
    }

    #[test]
    fn placeholders_are_filled_in_at_one_length() {
        for (trial, seed) in [(0, 0), (999_999, 899_999_999), (1_000_000, u64::MAX)] {
            let placeholders = Placeholders::new(Path::new("/s"), trial, seed);
            assert_eq!(placeholders.get("scratch").unwrap().len(), "/s/weigh-000000".len());
            assert_eq!(placeholders.get("seed").unwrap().len(), 9);
            assert!(placeholders.get("seed").unwrap().parse::<i32>().is_ok());
        }
    }

    #[test]
    fn a_missing_program_has_its_package() {
        let of = |packages: &[&str]| {
            remedy(&Staging {
                packages: packages.iter().map(|p| (*p).into()).collect(),
                ..Staging::default()
            })
        };
        assert_eq!(of(&[]), "");
        assert!(of(&["fio"]).ends_with("in the package fio"));
        assert!(of(&["redis-server", "redis-tools"]).ends_with("redis-server, redis-tools"));
    }
}
