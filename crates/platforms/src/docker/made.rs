//! What the engine makes beside containers and images: networks and volumes; and what it tells of
//! itself.

use super::engine::{Engine, EngineError, was_there};
use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest, VolumeCreateRequest};
use bollard::query_parameters::{InspectNetworkOptions, RemoveVolumeOptions};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// What the engine tells of itself.
pub(super) struct Described {
    /// Names of the runtimes that it knows.
    pub(super) runtimes: Vec<String>,
    /// Root of its containers is nobody outside (`userns-remap`).
    pub(super) remaps: bool,
    /// Its experimental features are on.
    pub(super) experimental: bool,
}

impl Engine {
    /// What it can do.
    pub(super) fn abilities(&self) -> Result<Described, EngineError> {
        let info = self.call("describe itself", self.docker().info())?;
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let remaps =
            info.security_options.unwrap_or_default().iter().any(|option| option.contains("name=userns"));
        Ok(Described { runtimes, remaps, experimental: info.experimental_build.unwrap_or(false) })
    }

    /// The gateway of a network, if it is there.
    pub(super) fn gateway(&self, name: &str) -> Result<Option<Ipv4Addr>, EngineError> {
        let options = None::<InspectNetworkOptions>;
        match self.call("describe a network", self.docker().inspect_network(name, options)) {
            Ok(found) => {
                let pools = found.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
                Ok(pools.into_iter().find_map(|pool| pool.gateway?.parse().ok()))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a bridge network of 256 addresses; the last ones are for clients.
    pub(super) fn make_network(
        &self,
        name: &str,
        bridge: &str,
        gateway: Ipv4Addr,
    ) -> Result<(), EngineError> {
        let [a, b, c, _] = gateway.octets();
        let pool = IpamConfig {
            subnet: Some(format!("{a}.{b}.{c}.0/24")),
            ip_range: Some(format!("{a}.{b}.{c}.0/25")),
            gateway: Some(gateway.to_string()),
            ..Default::default()
        };
        let request = NetworkCreateRequest {
            name: name.into(),
            driver: Some("bridge".into()),
            ipam: Some(Ipam { config: Some(vec![pool]), ..Default::default() }),
            options: Some(HashMap::from([("com.docker.network.bridge.name".into(), bridge.into())])),
            ..Default::default()
        };
        self.call("make a network", self.docker().create_network(request)).map(|_| ())
    }

    /// Removes a network; whether there was one.
    pub(super) fn remove_network(&self, name: &str) -> Result<bool, EngineError> {
        was_there(self.call("remove a network", self.docker().remove_network(name)))
    }

    /// Makes a volume in the engine's own place.
    pub(super) fn make_volume(&self, name: &str) -> Result<(), EngineError> {
        let request = VolumeCreateRequest { name: Some(name.into()), ..Default::default() };
        self.call("make a volume", self.docker().create_volume(request)).map(|_| ())
    }

    /// Removes a volume; whether there was one.
    pub(super) fn remove_volume(&self, name: &str) -> Result<bool, EngineError> {
        let options = Some(RemoveVolumeOptions { force: true });
        was_there(self.call("remove a volume", self.docker().remove_volume(name, options)))
    }
}
