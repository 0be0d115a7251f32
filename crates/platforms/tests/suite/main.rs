//! The tests of real guests, in one program; a filter selects some of them, as in `cargo test
//! --package weigh-platforms --test suite conformance::`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "all of this is for tests")]

mod charge;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod containerd;
mod containers;
mod disks;
mod engines;
mod libvirt;
mod local;
mod lxc;
mod monitors;
mod networks;
mod osv;
mod plain;
mod pod;
mod qemu;
mod runtimes;
mod session;
mod ssh;
mod static_probe;
mod wasmtime;

/// The process that other tests kill ([`common::victim::kill_and_sweep`]).
#[test]
#[ignore = "killed by other tests"]
fn victim() {
    common::victim::play();
}
