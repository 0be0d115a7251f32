//! The order in which changes are undone.

use super::{Change, EntryId, PlatformUndo, UndoError, UndoOutcome};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

/// How many changes elsewhere are undone at once: each takes a client on this host.
const AT_ONCE: usize = 32;

/// Undoes changes in this order, and passes each with its outcome to `done` as soon as that is
/// known. Successive changes that are elsewhere are undone at once.
pub(super) fn undo_all(
    changes: &[(EntryId, Change)],
    state: &Path,
    platforms: &dyn PlatformUndo,
    this_boot: bool,
    mut done: impl FnMut(EntryId, &Change, Result<UndoOutcome, UndoError>),
) {
    let is_elsewhere = |change: &Change| match change {
        Change::Platform { platform, .. } => platforms.is_elsewhere(platform),
        _ => false,
    };
    for group in changes.chunk_by(|(_, one), (_, next)| is_elsewhere(one) && is_elsewhere(next)) {
        if let [(id, change)] = group {
            done(*id, change, change.undo(state, platforms, this_boot));
            continue;
        }
        let left = Mutex::new(group.iter());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let (tell, outcomes) = channel();
        std::thread::scope(|scope| {
            for _ in 0..group.len().min(AT_ONCE) {
                let (tell, next) = (tell.clone(), &next);
                scope.spawn(move || {
                    while let Some((id, change)) = next() {
                        let outcome = change.undo(state, platforms, this_boot);
                        let _nobody_listens = tell.send((*id, change, outcome));
                    }
                });
            }
            drop(tell);
            outcomes.iter().for_each(|(id, change, outcome)| done(id, change, outcome));
        });
    }
}
