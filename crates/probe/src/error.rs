//! Why the probe cannot start.

use alloc::string::String;
use rustix::io::Errno;
use weigh_links::AddressError;

/// An error before the probe serves requests.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An argument is not valid.
    #[error("{0}")]
    Usage(String),
    /// The network address is not valid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A device did not appear.
    #[error("{0}")]
    Absent(String),
    /// A system call failed.
    #[error("cannot {doing}: {errno}")]
    System {
        /// The operation.
        doing: String,
        /// The error number.
        errno: Errno,
    },
}

impl ProbeError {
    /// A system call that failed in an operation.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let doing = doing.into();
        move |errno| Self::System { doing, errno }
    }
}
