//! Groups machines by kind.

use crate::cli::By;
use crate::error::Failure;
use weigh_model::{HostFacts, did_you_mean, nearest, number_of};

/// The labels that the user gives to runs.
pub struct Labels(Vec<Label>);

struct Label {
    /// What the user typed.
    text: String,
    run: String,
    name: String,
}

impl Labels {
    /// Parses labels of the form `RUN=NAME`.
    ///
    /// # Errors
    /// A text has no `=`, or nothing on one side of it.
    pub fn parse(texts: &[String]) -> Result<Self, Failure> {
        let label = |text: &String| {
            let parts = text.rsplit_once('=').filter(|(run, name)| !run.is_empty() && !name.is_empty());
            let (run, name) = parts.ok_or_else(|| {
                Failure::input("expected RUN=NAME")
                    .at("--label", text, 0..text.len())
                    .hint("as in `--label host-a=small` or `--label 'fleet/small-*=small'`")
            })?;
            Ok(Label { text: text.clone(), run: run.into(), name: name.into() })
        };
        texts.iter().map(label).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the label of a run, given the name that the user gave it and its own name. The first
    /// label that fits counts.
    fn of(&self, names: [&str; 2]) -> Option<&str> {
        self.0
            .iter()
            .find(|label| names.iter().any(|name| label.is_of(name)))
            .map(|label| label.name.as_str())
    }

    /// Refuses a label that fits no run.
    ///
    /// # Errors
    /// A label fits no run.
    pub fn require_used<'a>(&self, runs: impl Iterator<Item = [&'a str; 2]> + Clone) -> Result<(), Failure> {
        let is_used = |label: &&Label| runs.clone().flatten().any(|name| label.is_of(name));
        let Some(unused) = self.0.iter().find(|label| !is_used(label)) else { return Ok(()) };
        let known: Vec<&str> = runs.map(|[named, _]| named).collect();
        let failure = Failure::input(format!("no run here is named `{}`", unused.run));
        let hint = did_you_mean(nearest(&unused.run, known.iter().copied()), || {
            "name it as it is among the runs, or with a final `*` for any ending".into()
        });
        Err(failure.at("--label", &unused.text, 0..unused.run.len()).hint(hint))
    }
}

impl Label {
    fn is_of(&self, name: &str) -> bool {
        match self.run.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.run.trim_end_matches('/'),
        }
    }
}

/// Returns the kind of the machine of a run.
///
/// # Errors
/// The run has no label.
pub fn group(by: Option<By>, labels: &Labels, names: [&str; 2], host: &HostFacts) -> Result<String, Failure> {
    Ok(match by {
        None => String::new(),
        Some(By::CpuModel) => host.cpu_model.clone(),
        Some(By::Cpus) => number_of(host.cpus.len(), "CPU"),
        Some(By::Memory) => format!("{:.0} GiB", host.memory_bytes as f64 / f64::from(1 << 30)),
        Some(By::Kernel) => host.kernel.clone(),
        Some(By::OperatingSystem) => host.operating_system.clone(),
        Some(By::Architecture) => host.architecture.clone(),
        Some(By::Label) => labels.of(names).map(str::to_string).ok_or_else(|| {
            Failure::input(format!("the run {} has no label", names[0]))
                .hint(format!("give it one, as in `--label {}=NAME`, or leave it out", names[0]))
        })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label_of(label: &str, run: &str) -> Option<String> {
        let labels = Labels::parse(&[label.to_string()]).expect("a label");
        labels.of([run, "run"]).map(str::to_string)
    }

    #[test]
    fn labels_match_runs_by_path_or_name() {
        assert_eq!(label_of("a=small", "a").as_deref(), Some("small"));
        assert_eq!(label_of("fleet/s-*=small", "fleet/s-1").as_deref(), Some("small"));
        assert_eq!(label_of("fleet/a/=small", "fleet/a").as_deref(), Some("small"));
        assert_eq!(label_of("run=small", "fleet/a").as_deref(), Some("small"), "by its own name");
        assert_eq!(label_of("a=b=small", "a=b").as_deref(), Some("small"));
        assert_eq!(label_of("a=small", "ab"), None);
        for bad in ["a", "a=", "=b"] {
            assert!(Labels::parse(&[bad.to_string()]).is_err(), "{bad}");
        }
    }
}
