//! The columns of an experiment, and which of them can run here.

use crate::commands::run::Here;
use crate::error::Failure;
use crate::request::Surroundings;
use std::collections::BTreeMap;
use weigh_images::store::Store;
use weigh_model::{EnvironmentSpec, ImageSpec, nearest};
use weigh_platforms::{self as platforms, Availability};
use weigh_studies::{Arm, Experiment, Place};

/// A column of an experiment, as it is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Identifier of the arm; of a column that the user adds, its environment in letters, digits
    /// and dashes.
    pub id: String,
    /// The paper's word; of a column that the user adds, its environment.
    pub label: String,
    /// The environment.
    pub spec: Option<EnvironmentSpec>,
    /// Of which the paper says nothing in this experiment.
    pub today: bool,
    /// What should be known of it.
    pub note: Option<String>,
    /// Why it is not run here.
    pub missing: Option<String>,
}

/// What the user wants of columns beside what the study has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Environments in the place of the arms', by the identifier of the arm.
    pub arms: BTreeMap<String, EnvironmentSpec>,
    /// Further columns.
    pub on: Vec<EnvironmentSpec>,
}

impl Wanted {
    /// Of words as they are typed: `ARM=ENV`, and lists of environments. Arms are those of these
    /// experiments.
    ///
    /// # Errors
    /// What is no environment, and arms that there are not.
    pub fn parse(arms: &[String], on: &[String], experiments: &[&Experiment]) -> Result<Self, Failure> {
        let mut wanted = Self::default();
        let known = |id: &str| experiments.iter().any(|experiment| experiment.arm(id).is_some());
        for text in arms {
            let (id, spec) = text.split_once('=').ok_or_else(|| {
                Failure::input(format!("`--arm {text}` is not of the form ARM=ENV"))
                    .at("--arm", text, 0..text.len())
                    .hint("as in --arm jail=ssh:host=192.0.2.7")
            })?;
            if !known(id) {
                let ids: Vec<&str> =
                    experiments.iter().flat_map(|e| &e.arms).map(|arm| arm.id.as_str()).collect();
                return Err(Failure::input(format!("no experiment that is asked for has an arm `{id}`"))
                    .at("--arm", text, 0..id.len())
                    .hint(match nearest(id, ids.iter().copied()) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "`weigh study NAME --dry-run` shows the arms".into(),
                    }));
            }
            let spec = parse_spec("--arm", spec)?;
            let of_id = |experiment: &&Experiment| experiment.arm(id).map(|arm| arm.place.clone());
            let is_of_kvm =
                |place: Place| matches!(place, Place::On(own) if acceleration(&own).as_deref() == Some(KVM));
            let emulates = acceleration(&spec).is_some_and(|word| word != KVM);
            if emulates && experiments.iter().filter_map(of_id).any(is_of_kvm) {
                return Err(Failure::input(format!("`{spec}` may emulate, and emulation stands for no KVM"))
                    .at("--arm", text, id.len() + 1..text.len())
                    .hint(format!("add it as a column of its own: --on '{spec}'")));
            }
            wanted.arms.insert(id.into(), spec);
        }
        for text in on {
            let specs = weigh_model::parse_environment_list(text)
                .map_err(|error| Failure::of_spec("--on", &error))?;
            wanted.on.extend(specs);
        }
        Ok(wanted)
    }

    /// The columns of an experiment: its arms in their order, then what is added that is none of
    /// them.
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
        let named = self.arms.get(&arm.id).cloned();
        let reach = match &arm.place {
            Place::On(spec) => Ok(spec.clone()),
            Place::Reach(reach) => Err(format!(
                "a machine of yours that weigh cannot make; name one: --arm {}={}:host=ADDRESS",
                arm.id,
                reach.word()
            )),
        };
        let (spec, missing) = match named.map_or(reach, Ok) {
            Ok(spec) => (Some(spec), None),
            Err(reason) => (None, Some(reason)),
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

fn added(spec: &EnvironmentSpec) -> Column {
    let text = spec.to_string();
    let id: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    Column { id, label: text, spec: Some(spec.clone()), today: true, note: None, missing: None }
}

/// The acceleration that is proven by booting.
const KVM: &str = "kvm";

/// What an environment of a machine is asked to run under; none of what has no such key.
fn acceleration(spec: &EnvironmentSpec) -> Option<String> {
    let (platform, spec) = platforms::resolve(spec).ok()?;
    let has_key = platform.keys().iter().any(|key| key.name == "accel");
    has_key.then(|| platforms::setting(platform, &spec, "accel").to_string())
}

/// An environment where an option names it.
fn parse_spec(option: &str, text: &str) -> Result<EnvironmentSpec, Failure> {
    EnvironmentSpec::parse(text).map_err(|error| Failure::of_spec(option, &error))
}

/// Finds out what can run here, each environment once.
#[derive(Default)]
pub struct Prover {
    known: BTreeMap<String, Option<String>>,
    platforms: BTreeMap<String, Option<String>>,
}

impl Prover {
    /// Says of every column that cannot run here why.
    ///
    /// # Errors
    /// The host cannot be used.
    pub fn prove(&mut self, columns: &mut [Column], here: &mut Here) -> Result<(), Failure> {
        for column in columns.iter_mut().filter(|column| column.missing.is_none()) {
            let Some(spec) = &column.spec else { continue };
            let text = spec.to_string();
            if !self.known.contains_key(&text) {
                let reason = self.why_not(spec, here)?;
                self.known.insert(text.clone(), reason);
            }
            column.missing = self.known[&text].clone();
        }
        Ok(())
    }

    fn why_not(&mut self, spec: &EnvironmentSpec, here: &mut Here) -> Result<Option<String>, Failure> {
        let (platform, resolved) = match platforms::resolve(spec) {
            Ok(found) => found,
            Err(error) => return Ok(Some(said(&error.message, error.help.as_deref()))),
        };
        let image = platforms::common_keys::image(platform, &resolved, &ImageSpec::Host);
        if let Err(error) = Store::check(&image) {
            return Ok(Some(platforms::with_causes(&error)));
        }
        let name = platform.name().to_string();
        if !self.platforms.contains_key(&name) {
            let missing = match platform.availability(here.host()?) {
                Availability::Ready { .. } => None,
                Availability::Missing { reason, remedy } => {
                    Some(said(&reason, remedy.map(|remedy| remedy.to_string()).as_deref()))
                }
            };
            self.platforms.insert(name.clone(), missing);
        }
        if let Some(missing) = &self.platforms[&name] {
            return Ok(Some(missing.clone()));
        }
        if !platform.capabilities(&resolved).settles {
            return Ok(None);
        }
        Ok(here.settle(platform, &resolved)?.err().map(|error| platforms::with_causes(&error)))
    }
}

fn said(reason: &str, remedy: Option<&str>) -> String {
    remedy.map_or_else(|| reason.to_string(), |remedy| format!("{reason}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_studies::library;

    fn experiment(name: &str) -> Experiment {
        library().unwrap().find(name).unwrap()[0].experiment.clone()
    }

    fn wanted(arms: &[&str], on: &[&str], name: &str) -> Result<Wanted, Failure> {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        Wanted::parse(&words(arms), &words(on), &[&experiment(name)])
    }

    #[test]
    fn a_machine_of_the_users_is_asked_for() {
        let table = "agarwal-2015/table-3";
        let jail = |wanted: &Wanted| {
            let columns = wanted.columns(&experiment(table));
            columns.into_iter().find(|column| column.id == "jail").unwrap()
        };
        let without = jail(&Wanted::default());
        assert!(without.missing.unwrap().contains("--arm jail=ssh:host="));
        let named = jail(&wanted(&["jail=ssh:host=192.0.2.7"], &[], table).unwrap());
        assert_eq!((named.missing, named.spec.unwrap().to_string()), (None, "ssh:host=192.0.2.7".into()));
    }

    #[test]
    fn columns_of_today_come_last_and_once() {
        let columns = wanted(&[], &["native;podman:net=nat"], "felter-2014/table-1/pxz").unwrap();
        let columns = columns.columns(&experiment("felter-2014/table-1/pxz"));
        let last = columns.last().unwrap();
        assert_eq!((last.id.as_str(), last.today), ("podman-net-nat", true));
        assert_eq!(columns.iter().filter(|column| column.id == "native").count(), 1);
    }

    #[test]
    fn emulation_stands_for_no_kvm() {
        let pxz = "felter-2014/table-1/pxz";
        for emulated in ["kvm=qemu:accel=tcg", "kvm=tcg", "kvm=qemu", "kvm-tuned=libvirt:accel=tcg"] {
            let refused = wanted(&[emulated], &[], pxz).unwrap_err().to_string();
            assert!(refused.contains("emulation stands for no KVM"), "{emulated}: {refused}");
        }
        for proven in ["kvm=kvm:cpu=host", "kvm=libvirt:accel=kvm", "kvm=ssh:host=192.0.2.7", "docker=podman"]
        {
            assert!(wanted(&[proven], &[], pxz).is_ok(), "{proven}");
        }
        let apart = wanted(&[], &["qemu:accel=tcg"], pxz).unwrap();
        let columns = apart.columns(&experiment(pxz));
        assert!(columns.last().is_some_and(|column| column.today && column.label == "qemu:accel=tcg"));
    }

    #[test]
    fn bad_arms_are_pointed_at() {
        let said = |arms: &[&str]| wanted(arms, &[], "felter-2014/table-1/pxz").unwrap_err().to_string();
        assert!(said(&["docker"]).contains("ARM=ENV"));
        assert!(said(&["dokcer=docker"]).contains("no experiment that is asked for has an arm `dokcer`"));
        assert!(!said(&["docker=dokcer:"]).is_empty());
    }
}
