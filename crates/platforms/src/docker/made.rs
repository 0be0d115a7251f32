//! What the engine makes beside containers and images: networks and volumes; and what it tells of
//! itself.

use super::client::Content;
use super::engine::{Engine, EngineError};
use serde_json::json;
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
        let info = self.get("describe itself", "/info")?;
        let mut runtimes: Vec<String> =
            info["Runtimes"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        let mut options = info["SecurityOptions"].as_array().into_iter().flatten();
        let remaps =
            options.any(|option| option.as_str().is_some_and(|option| option.contains("name=userns")));
        let experimental = info["ExperimentalBuild"].as_bool().unwrap_or(false);
        Ok(Described { runtimes, remaps, experimental })
    }

    /// The gateway of a network, if it is there.
    pub(super) fn gateway(&self, name: &str) -> Result<Option<Ipv4Addr>, EngineError> {
        match self.get("describe a network", &format!("/networks/{name}")) {
            Ok(found) => {
                let mut pools = found["IPAM"]["Config"].as_array().into_iter().flatten();
                Ok(pools.find_map(|pool| pool["Gateway"].as_str()?.parse().ok()))
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
        let pool = json!({
            "Subnet": format!("{a}.{b}.{c}.0/24"),
            "IPRange": format!("{a}.{b}.{c}.0/25"),
            "Gateway": gateway,
        });
        let network = json!({
            "Name": name,
            "Driver": "bridge",
            "IPAM": { "Config": [pool] },
            "Options": { "com.docker.network.bridge.name": bridge },
        });
        self.post("make a network", "/networks/create", Content::Json(network)).map(|_| ())
    }

    /// Removes a network; whether there was one.
    pub(super) fn remove_network(&self, name: &str) -> Result<bool, EngineError> {
        self.delete("remove a network", &format!("/networks/{name}"))
    }

    /// Makes a volume in the engine's own place.
    pub(super) fn make_volume(&self, name: &str) -> Result<(), EngineError> {
        let volume = Content::Json(json!({ "Name": name }));
        self.post("make a volume", "/volumes/create", volume).map(|_| ())
    }

    /// Removes a volume; whether there was one.
    pub(super) fn remove_volume(&self, name: &str) -> Result<bool, EngineError> {
        self.delete("remove a volume", &format!("/volumes/{name}?force=true"))
    }
}
