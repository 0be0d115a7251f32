//! Where guests run: one file per platform behind one trait, and the host's side of the session
//! with the probe.
//!
//! To add a platform, copy `null.rs`, fill it in, and add one word to the list `ALL`. No platform
//! knows a workload; what its guests can do is data in [`Capabilities`].

pub mod common_keys;
mod enter;
mod exec;
pub mod fleet;
mod guest;
mod helpers;
mod host_probe;
mod link;
pub mod loader;
mod mapped;
mod network;
mod oci;
mod platform;
mod privileges;
mod process_tracker;
mod registry;
pub mod remedy;
pub mod session;
mod vm;

pub mod apptainer;
pub mod bubblewrap;
pub mod charliecloud;
pub mod cloud_hypervisor;
pub mod containerd;
pub mod crun;
pub mod docker;
pub mod firecracker;
pub mod firejail;
pub mod incus;
pub mod libvirt;
pub mod lxc;
pub mod minijail;
pub mod namespaces;
pub mod native;
pub mod nspawn;
pub mod null;
pub mod osv;
pub mod pod;
pub mod podman;
pub mod proot;
pub mod qemu;
pub mod runc;
pub mod runsc;
pub mod spawn;
pub mod ssh;
pub mod uml;
pub mod wasmtime;
pub mod youki;

pub use exec::{ExecRequest, ExecResult};
pub use oci::{Oci, with_causes};
pub use platform::{
    About, Availability, Capabilities, DiskMeter, DiskMoved, Guest, GuestRequest, Host, KeySpec, Platform,
    PlatformError, Reach, Result, Values,
};
pub use registry::{ALIASES, Undoers, all, availabilities, defaults, find, local, resolve, setting};
pub use session::{Arrival, CompletedCommand, Progress, RunOptions, Session, SessionError};
pub use vm::vmm::Vmm;

/// Parsers for the output of programs that run guests, for fuzzing.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::osv::fuzz_console as console;
    pub use crate::qemu::fuzz_qmp as qmp;
}

/// Every platform, in the order in which tables show them. One word each.
const ALL: &[&dyn Platform] = &[
    &native::Native,
    &namespaces::Namespaces,
    &bubblewrap::Bubblewrap,
    &charliecloud::Charliecloud,
    &minijail::Minijail,
    &firejail::Firejail,
    &apptainer::Apptainer,
    &proot::Proot,
    &runc::RUNC,
    &crun::CRUN,
    &youki::YOUKI,
    &containerd::Containerd,
    &docker::Docker,
    &podman::Podman,
    &lxc::Lxc,
    &incus::INCUS,
    &incus::LXD,
    &nspawn::Nspawn,
    &runsc::RUNSC,
    &uml::Uml,
    &wasmtime::Wasmtime,
    &qemu::Qemu,
    &libvirt::Libvirt,
    &firecracker::FIRECRACKER,
    &cloud_hypervisor::CLOUD_HYPERVISOR,
    &osv::Osv,
    &pod::Pod,
    &ssh::Ssh,
    &null::Null,
];
