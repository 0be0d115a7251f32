//! Changes to the host, and facts about it.
//!
//! Every change to the host (a directory, a mount, a control group, a process) is recorded in the
//! [`ledger`] on disk before it is made, so that it can be undone after any crash. Every external
//! program is started through [`command`], which enforces a deadline. Nothing here prints.

pub mod accounts;
pub mod cache;
pub mod cgroup;
pub mod clock;
pub mod command;
pub mod deadlines;
pub mod energy;
pub mod facts;
pub mod ledger;
pub mod lock;
pub mod log;
pub mod noise;
pub mod open_files;
pub mod private;
pub mod settings;
pub mod state;
pub mod virtualisation;

#[cfg(test)]
mod fixtures;
mod process;
mod wait;
