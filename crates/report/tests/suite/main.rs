//! All integration tests of the crate in one program: linking takes longer than most of them.

mod brief;
mod browser;
mod common;
mod exchange;
mod formats;
mod gate;
mod junit;
mod looks;
mod pages;
mod planned;
mod pool;
mod prohibitions;
mod schema;
mod snapshots;
mod study;
mod successes;
mod terminal;
