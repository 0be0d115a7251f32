//! Undoing ledger entries, in whatever process.

use crate::tool::{link_exists, nft, tool};
use crate::{NetworkError, Result, firewall, nat};
use serde_json::Value;
use weigh_host::ledger::UndoOutcome;

/// Undoes a `Change::Platform` of the platform [`crate::PLATFORM`]. It is no error if the change is
/// undone already or was never made.
///
/// # Errors
/// [`NetworkError::Foreign`] for an entry that weighbridge did not make, or the error of the
/// command that failed; then the change is still there.
pub fn undo(what: &str, id: &str, detail: &Value) -> Result<UndoOutcome> {
    match what {
        "link" => link(id)?,
        "table" => table(id)?,
        "rule" => firewall::undo(id, detail)?,
        "forwarding" => return own_link(id).and_then(|()| nat::stop_forwarding(id, detail)),
        _ => return Err(NetworkError::Foreign(format!("the {what} {id}"))),
    }
    Ok(UndoOutcome::Restored)
}

/// Checks that a link has one of weighbridge's names.
fn own_link(name: &str) -> Result<()> {
    match name.starts_with("wb") {
        true => Ok(()),
        false => Err(NetworkError::Foreign(format!("the interface {name}"))),
    }
}

/// Deletes a link; its other end, addresses and routes go with it.
fn link(name: &str) -> Result<()> {
    own_link(name)?;
    match tool("ip", &["link", "delete", "dev", name]).run_ok() {
        Err(error) if link_exists(name).unwrap_or(true) => Err(error.into()),
        _ => Ok(()),
    }
}

fn table(name: &str) -> Result<()> {
    // It becomes part of a script.
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !name.starts_with("weighbridge-") || !is_name {
        return Err(NetworkError::Foreign(format!("the table {name}")));
    }
    // Added first, so that deleting a missing table is no error.
    nft(&format!("add table ip {name}\ndelete table ip {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_is_undone_whatever_a_ledger_says() {
        let earlier = serde_json::json!({"boot": "an earlier one", "idle": []});
        for what in ["link", "table", "rule", "forwarding", "bridge"] {
            for id in ["", "no-such-thing", "weighbridge-x; flush ruleset"] {
                let undone = undo(what, id, &earlier);
                assert!(matches!(undone, Err(NetworkError::Foreign(_))), "{what} `{id}`: {undone:?}");
            }
        }
        assert_eq!(undo("forwarding", "wb01234567n", &earlier).unwrap(), UndoOutcome::Restored);
    }
}
