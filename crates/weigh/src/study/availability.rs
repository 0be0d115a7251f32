//! Checks which columns of an experiment can be measured on this host.

use crate::error::Failure;
use crate::host::{HostView, LocalHost};
use std::collections::BTreeMap;
use weigh_images::store::Store;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{self as platforms, Availability, Platform};
use weigh_studies::Column;

/// Checks environments on this host, each once.
#[derive(Default)]
pub struct AvailabilityCheck {
    /// The reason why each environment cannot be measured; none if it can.
    environments: BTreeMap<String, Option<String>>,
    /// What identifies each platform, or the reason why it cannot be measured.
    platforms: BTreeMap<String, Result<String, String>>,
}

impl AvailabilityCheck {
    /// Adds the reason to every column that cannot be measured here. Checks the platforms of all
    /// columns side by side.
    ///
    /// # Errors
    /// The host cannot be used.
    pub fn check<'a>(
        &mut self,
        columns: impl IntoIterator<Item = &'a mut Column>,
        host: &mut LocalHost,
    ) -> Result<(), Failure> {
        let columns: Vec<(EnvironmentSpec, &mut Column)> = columns
            .into_iter()
            .filter(|column| column.missing.is_none())
            .filter_map(|column| Some((column.spec.clone()?, column)))
            .collect();
        self.check_platforms(columns.iter().map(|(spec, _)| spec), host)?;
        for (spec, column) in columns {
            let text = spec.to_string();
            if !self.environments.contains_key(&text) {
                let reason = self.missing(&spec, host)?;
                self.environments.insert(text.clone(), reason);
            }
            column.missing = self.environments[&text].clone();
        }
        Ok(())
    }

    /// Checks the platforms of these environments that have not been checked.
    fn check_platforms<'a>(
        &mut self,
        environments: impl Iterator<Item = &'a EnvironmentSpec>,
        host: &mut LocalHost,
    ) -> Result<(), Failure> {
        let mut unknown: Vec<&'static dyn Platform> = Vec::new();
        for platform in environments.filter_map(|spec| usable(spec).ok()).map(|(platform, _)| platform) {
            let name = platform.name();
            if !self.platforms.contains_key(name) && unknown.iter().all(|other| other.name() != name) {
                unknown.push(platform);
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let found = platforms::availabilities(host.host()?, &unknown);
        for (platform, found) in unknown.into_iter().zip(found) {
            let found = match found {
                Availability::Ready { detail } => Ok(detail),
                Availability::Missing { reason, remedy } => Err(with_remedy(&reason, remedy.as_deref())),
            };
            self.platforms.insert(platform.name().to_string(), found);
        }
        Ok(())
    }

    /// The version of each platform of these columns, and what else identifies it. The columns have
    /// been checked; one that cannot be measured does not count.
    pub fn versions(&self, columns: &[Column]) -> BTreeMap<String, String> {
        let measured = columns.iter().filter(|column| column.missing.is_none());
        let platforms = measured.filter_map(|column| usable(column.spec.as_ref()?).ok());
        let version = |(platform, _): (&'static dyn Platform, EnvironmentSpec)| {
            let detail = self.platforms.get(platform.name())?.as_ref().ok()?;
            Some((platform.name().to_string(), detail.clone()))
        };
        platforms.filter_map(version).collect()
    }

    /// The reason why an environment cannot be measured. Its platform has been checked.
    fn missing(&self, spec: &EnvironmentSpec, host: &mut LocalHost) -> Result<Option<String>, Failure> {
        let (platform, resolved) = match usable(spec) {
            Ok(usable) => usable,
            Err(reason) => return Ok(Some(reason)),
        };
        if let Err(missing) = &self.platforms[platform.name()] {
            return Ok(Some(missing.clone()));
        }
        if !platform.capabilities(&resolved).makes_explicit {
            return Ok(None);
        }
        Ok(host.make_explicit(platform, &resolved)?.err().map(|error| platforms::with_causes(&error)))
    }
}

/// Resolves an environment.
///
/// # Errors
/// The reason why it cannot be measured: a wrong key or value, or an image that is not here.
fn usable(spec: &EnvironmentSpec) -> Result<(&'static dyn Platform, EnvironmentSpec), String> {
    let (platform, resolved) =
        platforms::resolve(spec).map_err(|error| with_remedy(&error.message, error.help.as_deref()))?;
    let image = platforms::common_keys::image(platform, &resolved, &ImageSpec::Host);
    Store::check(&image).map_err(|error| platforms::with_causes(&error))?;
    Ok((platform, resolved))
}

fn with_remedy(reason: &str, remedy: Option<&str>) -> String {
    remedy.map_or_else(|| reason.to_string(), |remedy| format!("{reason}; {remedy}"))
}

/// Returns the acceleration that an environment asks for, if it is a VM that has the choice.
pub fn acceleration(spec: &EnvironmentSpec) -> Option<String> {
    let (platform, spec) = platforms::resolve(spec).ok()?;
    let has_key = platform.keys().iter().any(|key| key.name == "accel");
    has_key.then(|| platforms::setting(platform, &spec, "accel").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_studies::{ColumnChoice, library};

    #[test]
    fn emulation_stands_for_no_kvm() {
        let library = library().unwrap();
        let pxz = library.find("felter-2014/table-1/pxz").unwrap()[0].experiment;
        let chosen = |arm: &str| ColumnChoice::parse(&[arm.to_string()], &[], &[pxz], &acceleration);
        for emulated in ["kvm=qemu:accel=tcg", "kvm=tcg", "kvm=qemu", "kvm-tuned=libvirt:accel=tcg"] {
            let refused = chosen(emulated).unwrap_err().to_string();
            assert!(refused.contains("emulation cannot stand in for KVM"), "{emulated}: {refused}");
        }
        for proven in ["kvm=kvm:cpu=host", "kvm=libvirt:accel=kvm", "kvm=ssh:host=192.0.2.7", "docker=podman"]
        {
            assert!(chosen(proven).is_ok(), "{proven}");
        }
    }
}
