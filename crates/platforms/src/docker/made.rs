//! The engine's networks and volumes, and its description of itself.

use super::client::Content;
use super::engine::{Engine, EngineError};
use serde_json::json;
use std::net::Ipv4Addr;

/// The engine's description of itself.
pub(super) struct EngineInfo {
    /// Names of the runtimes that it knows.
    pub(super) runtimes: Vec<String>,
    /// Whether the root of its containers is an ordinary user outside (`userns-remap`).
    pub(super) remaps: bool,
    /// Whether its experimental features are on.
    pub(super) experimental: bool,
}

impl Engine {
    /// Asks the engine what it can do.
    pub(super) fn engine_info(&self) -> Result<EngineInfo, EngineError> {
        let info = self.get("describe itself", "/info")?;
        let mut runtimes: Vec<String> =
            info["Runtimes"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        let mut options = info["SecurityOptions"].as_array().into_iter().flatten();
        let remaps =
            options.any(|option| option.as_str().is_some_and(|option| option.contains("name=userns")));
        let experimental = info["ExperimentalBuild"].as_bool().unwrap_or(false);
        Ok(EngineInfo { runtimes, remaps, experimental })
    }

    /// Returns the gateway of a network, if the network exists.
    pub(super) fn gateway(&self, name: &str) -> Result<Option<Ipv4Addr>, EngineError> {
        let found = self.find("describe a network", &format!("/networks/{name}"))?.unwrap_or_default();
        let mut pools = found["IPAM"]["Config"].as_array().into_iter().flatten();
        Ok(pools.find_map(|pool| pool["Gateway"].as_str()?.parse().ok()))
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

    /// Removes a network. Returns whether it existed.
    pub(super) fn remove_network(&self, name: &str) -> Result<bool, EngineError> {
        self.delete("remove a network", &format!("/networks/{name}"))
    }

    /// Makes a volume in the engine's own directory.
    pub(super) fn make_volume(&self, name: &str) -> Result<(), EngineError> {
        let volume = Content::Json(json!({ "Name": name }));
        self.post("make a volume", "/volumes/create", volume).map(|_| ())
    }

    /// Removes a volume. Returns whether it existed.
    pub(super) fn remove_volume(&self, name: &str) -> Result<bool, EngineError> {
        self.delete("remove a volume", &format!("/volumes/{name}?force=true"))
    }
}
