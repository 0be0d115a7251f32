//! Checks which columns of an experiment can be measured on this host.

use crate::error::Failure;
use crate::host::{HostView, LocalHost};
use std::collections::BTreeMap;
use weigh_images::store::Store;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{self as platforms, Availability};
use weigh_studies::Column;

/// Checks environments on this host, each once.
#[derive(Default)]
pub struct AvailabilityCheck {
    /// The reason why each environment cannot be measured; none if it can.
    environments: BTreeMap<String, Option<String>>,
    /// The reason why each platform cannot be measured; none if it can.
    platforms: BTreeMap<String, Option<String>>,
}

impl AvailabilityCheck {
    /// Adds the reason to every column that cannot be measured here.
    ///
    /// # Errors
    /// The host cannot be used.
    pub fn check(&mut self, columns: &mut [Column], host: &mut LocalHost) -> Result<(), Failure> {
        for column in columns.iter_mut().filter(|column| column.missing.is_none()) {
            let Some(spec) = &column.spec else { continue };
            let text = spec.to_string();
            if !self.environments.contains_key(&text) {
                let reason = self.missing(spec, host)?;
                self.environments.insert(text.clone(), reason);
            }
            column.missing = self.environments[&text].clone();
        }
        Ok(())
    }

    fn missing(&mut self, spec: &EnvironmentSpec, host: &mut LocalHost) -> Result<Option<String>, Failure> {
        let (platform, resolved) = match platforms::resolve(spec) {
            Ok(found) => found,
            Err(error) => return Ok(Some(with_remedy(&error.message, error.help.as_deref()))),
        };
        let image = platforms::common_keys::image(platform, &resolved, &ImageSpec::Host);
        if let Err(error) = Store::check(&image) {
            return Ok(Some(platforms::with_causes(&error)));
        }
        let name = platform.name().to_string();
        if !self.platforms.contains_key(&name) {
            let missing = match platform.availability(host.host()?) {
                Availability::Ready { .. } => None,
                Availability::Missing { reason, remedy } => Some(with_remedy(&reason, remedy.as_deref())),
            };
            self.platforms.insert(name.clone(), missing);
        }
        if let Some(missing) = &self.platforms[&name] {
            return Ok(Some(missing.clone()));
        }
        if !platform.capabilities(&resolved).settles {
            return Ok(None);
        }
        Ok(host.settle(platform, &resolved)?.err().map(|error| platforms::with_causes(&error)))
    }
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
