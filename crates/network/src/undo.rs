//! Taking away what a ledger entry says, in whatever process.

use crate::tool::{link_exists, nft, tool};
use crate::{firewall, nat};
use serde_json::Value;

/// Undoes a `Change::Platform` of the platform [`crate::PLATFORM`]. What is gone already, or was
/// never made, is fine.
///
/// # Errors
/// Why it is still there, for people.
pub fn undo(what: &str, id: &str, detail: &Value) -> Result<(), String> {
    match what {
        "link" => link(id),
        "table" => table(id),
        "rule" => firewall::undo(id, detail),
        "forwarding" => nat::stop_forwarding(id, detail),
        _ => Err(format!("this version of weighbridge makes no {what} of a network")),
    }
}

/// With a link go its other end, wherever that is, its addresses and its routes.
fn link(name: &str) -> Result<(), String> {
    if !name.starts_with("wb") {
        return Err(format!("{name} is no interface of weighbridge's"));
    }
    let deleted = tool("ip", &["link", "delete", "dev", name]).run_ok();
    match deleted {
        Ok(_) => Ok(()),
        Err(error) => match link_exists(name) {
            Ok(false) => Ok(()),
            _ => Err(error.to_string()),
        },
    }
}

fn table(name: &str) -> Result<(), String> {
    if !name.starts_with("weighbridge-") {
        return Err(format!("{name} is no table of weighbridge's"));
    }
    // Made first, so that one that is not there is no error.
    nft(&format!("add table ip {name}\ndelete table ip {name}\n")).map_err(|error| error.to_string())
}
