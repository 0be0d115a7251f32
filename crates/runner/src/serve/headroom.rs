//! The rate of a load generator against a server that answers at once (method specification,
//! "Loader headroom").

use super::{Served, ServerWorkload, TrialInput};
use crate::trial::Failure;
use weigh_model::Headroom;
use weigh_platforms::Guest;

impl ServerWorkload<'_> {
    /// Runs the load once against the null server in the guest; returns none if the workload has no
    /// such server, or counts nothing.
    pub(crate) fn headroom(
        &self,
        guest: &mut dyn Guest,
        input: &TrialInput,
        environment: &str,
    ) -> Result<Option<Headroom>, Failure> {
        if self.server.null.is_none() {
            return Ok(None);
        }
        let (iteration, _) = self.with_server(guest, input, Served::Null, |loader, outside| {
            outside.once_staged(loader.session(), None)
        })?;
        Ok(self.workload.reached(&[iteration]).map(|(operation, rate_per_s)| Headroom {
            environment: environment.into(),
            workload: self.workload.id.clone(),
            operation: operation.into(),
            rate_per_s,
        }))
    }
}
