//! Load generators: a probe of the host's own, in the network from which a guest is reached.
//!
//! It is no platform, because nothing is weighed in it. It is a guest all the same: it talks as they do, is in the ledger and in a
//! control group of its own, and goes with everything that it has started.

use crate::spawn::Start;
use crate::{Guest, Host, PlatformError};
use std::path::Path;

/// Name of it on the host. There is one at a time.
const NAME: &str = "loader";

/// Starts one as an ordinary process of this host, with the host's root. `namespace` is the network namespace that it is in, as
/// [`crate::Reach::from`] has it; `cpus` are those that it may use, all when empty.
///
/// # Errors
/// It did not come up; what was begun has been undone.
pub fn launch(host: &Host, cpus: &[u32], namespace: Option<&Path>) -> Result<Box<dyn Guest>, PlatformError> {
    let start = Start { cpus, network: namespace, ..Start::bare(NAME, NAME.into()) };
    Ok(Box::new(start.launch(host)?))
}
