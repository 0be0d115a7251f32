//! What weighbridge does to the host, and what it reads from it.
//!
//! Every change to the host (a directory, a mount, a control group, a process) goes through the
//! [`ledger`], which is on disk before the change is made, so that it can be undone after any
//! crash. Every external program is started through [`command`], which holds a deadline. Nothing
//! here prints.

pub mod accounts;
pub mod cache;
pub mod cgroup;
pub mod clock;
pub mod command;
pub mod facts;
pub mod ledger;
pub mod lock;
pub mod noise;
pub mod settings;
pub mod state;

mod process;
mod wait;
