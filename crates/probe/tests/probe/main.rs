//! Tests of the probe as a process, over pipes and a pseudo terminal. `WEIGH_PROBE` names another
//! build to test, such as the release build.

#![expect(clippy::unwrap_used, reason = "what these helpers unwrap is what the tests are about")]

mod commands;
mod cost;
mod driver;
mod ends;
mod facts;
mod files;
mod streams;
