//! The columns of an experiment: the arms of the study, and environments that the user adds.

use crate::study::{Arm, Experiment, Place};
use std::collections::BTreeMap;
use weigh_model::{EnvironmentSpec, SpecError, did_you_mean, nearest, parse_environment_list};

/// A column of an experiment to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Identifier of the arm; for a column that the user adds, its environment in lower-case
    /// letters, digits and hyphens.
    pub id: String,
    /// The paper's name for the arm; for a column that the user adds, its environment.
    pub label: String,
    /// The environment.
    pub spec: Option<EnvironmentSpec>,
    /// Whether the paper has no such column in this experiment.
    pub today: bool,
    /// A remark for the reader.
    pub note: Option<String>,
    /// Why it cannot be measured here.
    pub missing: Option<String>,
}

/// The environments that the user wants as columns, in addition to those of the study.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnChoice {
    /// Environments that replace those of arms, by the identifier of the arm.
    pub arms: BTreeMap<String, EnvironmentSpec>,
    /// Environments to measure as further columns.
    pub on: Vec<EnvironmentSpec>,
}

/// An option that names a column is wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{option}: {}", error.message)]
pub struct ColumnError {
    /// The option.
    pub option: &'static str,
    /// What is wrong in its text, and where.
    pub error: SpecError,
}

/// The name of hardware acceleration. Any other acceleration may emulate.
const KVM: &str = "kvm";

impl ColumnChoice {
    /// Reads words as users type them: `ARM=ENV`, where the arm is one of these experiments', and
    /// lists of environments. `acceleration` says what an environment of a VM asks to run under, if
    /// its platform has such a key.
    ///
    /// # Errors
    /// Text that is not an environment, arms that do not exist, and emulation in place of KVM.
    pub fn parse(
        arms: &[String],
        on: &[String],
        experiments: &[&Experiment],
        acceleration: &dyn Fn(&EnvironmentSpec) -> Option<String>,
    ) -> Result<Self, ColumnError> {
        let arms = arms.iter().map(|text| {
            parse_arm(text, experiments, acceleration).map_err(|error| ColumnError { option: "--arm", error })
        });
        let on = on
            .iter()
            .map(|text| parse_environment_list(text).map_err(|error| ColumnError { option: "--on", error }));
        Ok(Self { arms: arms.collect::<Result<_, _>>()?, on: on.collect::<Result<Vec<_>, _>>()?.concat() })
    }

    /// The columns of an experiment: its arms in their order, then the added environments that are
    /// not among them.
    pub fn columns(&self, experiment: &Experiment) -> Vec<Column> {
        let mut columns: Vec<Column> = experiment.arms.iter().map(|arm| self.column(arm)).collect();
        for spec in &self.on {
            if columns.iter().all(|column| column.spec.as_ref() != Some(spec)) {
                columns.push(added(spec));
            }
        }
        columns
    }

    fn column(&self, arm: &Arm) -> Column {
        let (spec, missing) = match (self.arms.get(&arm.id), &arm.place) {
            (Some(spec), _) | (None, Place::On(spec)) => (Some(spec.clone()), None),
            (None, Place::Ssh) => {
                let reason = format!(
                    "a machine of yours that weigh cannot make; name one: --arm {}=ssh:host=ADDRESS",
                    arm.id
                );
                (None, Some(reason))
            }
        };
        Column {
            id: arm.id.clone(),
            label: arm.label.clone(),
            spec,
            today: arm.today,
            note: arm.note.clone(),
            missing,
        }
    }
}

fn parse_arm(
    text: &str,
    experiments: &[&Experiment],
    acceleration: &dyn Fn(&EnvironmentSpec) -> Option<String>,
) -> Result<(String, EnvironmentSpec), SpecError> {
    let fault = |span, message: String, help: String| SpecError {
        text: text.into(),
        span,
        message,
        help: Some(help),
    };
    let (id, spec) = text.split_once('=').ok_or_else(|| {
        let message = format!("`--arm {text}` is not of the form ARM=ENV");
        fault(0..text.len(), message, "as in --arm jail=ssh:host=192.0.2.7".into())
    })?;
    let arms: Vec<&Arm> = experiments.iter().flat_map(|experiment| &experiment.arms).collect();
    if arms.iter().all(|arm| arm.id != id) {
        let near = nearest(id, arms.iter().map(|arm| arm.id.as_str()));
        let help = did_you_mean(near, || "`weigh study NAME --dry-run` shows the arms".into());
        return Err(fault(0..id.len(), format!("no experiment that is asked for has an arm `{id}`"), help));
    }
    let spec = EnvironmentSpec::parse(spec)?;
    let needs_kvm = |arm: &&Arm| matches!(&arm.place, Place::On(own) if arm.id == id && acceleration(own).as_deref() == Some(KVM));
    let emulates = acceleration(&spec).is_some_and(|name| name != KVM);
    if emulates && arms.iter().any(needs_kvm) {
        return Err(fault(
            id.len() + 1..text.len(),
            format!("`{spec}` may emulate, and emulation cannot stand in for KVM"),
            format!("add it as a column of its own: --on '{spec}'"),
        ));
    }
    Ok((id.into(), spec))
}

fn added(spec: &EnvironmentSpec) -> Column {
    let text = spec.to_string();
    let id: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    Column { id, label: text, spec: Some(spec.clone()), today: true, note: None, missing: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    /// The rule of the platforms: a VM emulates unless it is told to use KVM.
    fn acceleration(spec: &EnvironmentSpec) -> Option<String> {
        match spec.platform.as_str() {
            "kvm" | "kvm-tuned" => Some("kvm".into()),
            "tcg" => Some("tcg".into()),
            "qemu" | "libvirt" => Some(spec.get("accel").unwrap_or("auto").into()),
            _ => None,
        }
    }

    fn experiment(name: &str) -> Experiment {
        library().unwrap().find(name).unwrap()[0].experiment.clone()
    }

    fn choice(arms: &[&str], on: &[&str], name: &str) -> Result<ColumnChoice, ColumnError> {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        ColumnChoice::parse(&words(arms), &words(on), &[&experiment(name)], &acceleration)
    }

    #[test]
    fn a_machine_that_weigh_cannot_make_has_to_be_named() {
        let table = "agarwal-2015/table-3";
        let jail = |choice: &ColumnChoice| {
            let columns = choice.columns(&experiment(table));
            columns.into_iter().find(|column| column.id == "jail").unwrap()
        };
        let without = jail(&ColumnChoice::default());
        assert!(without.missing.unwrap().contains("--arm jail=ssh:host="));
        let named = jail(&choice(&["jail=ssh:host=192.0.2.7"], &[], table).unwrap());
        assert_eq!((named.missing, named.spec.unwrap().to_string()), (None, "ssh:host=192.0.2.7".into()));
    }

    #[test]
    fn added_columns_come_last_and_once() {
        let columns = choice(&[], &["native;podman:net=nat"], "felter-2014/table-1/pxz").unwrap();
        let columns = columns.columns(&experiment("felter-2014/table-1/pxz"));
        let last = columns.last().unwrap();
        assert_eq!((last.id.as_str(), last.today), ("podman-net-nat", true));
        assert_eq!(columns.iter().filter(|column| column.id == "native").count(), 1);
    }

    #[test]
    fn emulation_stands_for_no_kvm() {
        let pxz = "felter-2014/table-1/pxz";
        for emulated in ["kvm=qemu:accel=tcg", "kvm=tcg", "kvm=qemu", "kvm-tuned=libvirt:accel=tcg"] {
            let refused = choice(&[emulated], &[], pxz).unwrap_err().to_string();
            assert!(refused.contains("emulation cannot stand in for KVM"), "{emulated}: {refused}");
        }
        for proven in ["kvm=kvm:cpu=host", "kvm=libvirt:accel=kvm", "kvm=ssh:host=192.0.2.7", "docker=podman"]
        {
            assert!(choice(&[proven], &[], pxz).is_ok(), "{proven}");
        }
        let apart = choice(&[], &["qemu:accel=tcg"], pxz).unwrap();
        let columns = apart.columns(&experiment(pxz));
        assert!(columns.last().is_some_and(|column| column.today && column.label == "qemu:accel=tcg"));
    }

    #[test]
    fn wrong_arms_are_refused() {
        let said = |arms: &[&str]| choice(arms, &[], "felter-2014/table-1/pxz").unwrap_err().to_string();
        assert!(said(&["docker"]).contains("ARM=ENV"));
        assert!(said(&["dokcer=docker"]).contains("no experiment that is asked for has an arm `dokcer`"));
        assert!(!said(&["docker=dokcer:"]).is_empty());
    }
}
