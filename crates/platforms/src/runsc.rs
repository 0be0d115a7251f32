//! Sandboxes by gVisor: a kernel in user space, the sentry, between the guest's programs and the
//! host's kernel.
//!
//! Sentry, file server and the guest's processes are in the guest's control group, so they are
//! charged to the guest and confined with it; the runtime that waits for them is a helper outside
//! of it.

use crate::oci::{Oci, RuntimeKind, Saving};
use crate::{About, KeySpec, Values, common_keys};
use weigh_model::EnvironmentSpec;

/// How a sandbox differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a kernel of its own, in user space"),
    ("cpu-model", "the CPU that its kernel shows"),
    ("memory", "its kernel reports a memory of its own"),
    ("transparent-huge-pages", "decided by its own kernel"),
    ("mitigations", "its kernel does not report them"),
    ("clock-source", "its kernel takes the time from the host's clock"),
    ("aslr", "decided by its own kernel"),
    ("mounts:*", "files by a server outside, scratch in its own memory"),
    ("network", "a network stack of its own, unless `net` says otherwise"),
    ("network-interface", "a network stack of its own, unless `net` says otherwise"),
    ("network-offloads", "a network stack of its own, unless `net` says otherwise"),
    ("sysctl:", "a network stack of its own, unless `net` says otherwise"),
    ("acceleration", "system calls by its own kernel, as `platform` says"),
];

const KIND: RuntimeKind = RuntimeKind {
    about: About {
        name: "runsc",
        summary: "a sandbox by gVisor's runsc: the guest's system calls are served by a kernel in user space",
        keys: &[
            KeySpec::words("platform", &["systrap", "ptrace", "kvm"]).about(
                "how its kernel gets hold of system calls: systrap, ptrace, or kvm, which is proven by \
                    starting a guest",
            ),
            common_keys::net(&["none", "host", "bridge", "nat"]),
            KeySpec {
                values: Values::Words(&["tmpfs", "volume"]),
                summary: "what holds /var/tmp: its own memory, or a directory of the host through the file server",
                ..common_keys::STORAGE
            },
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::BINARY,
        ],
    },
    install: "apt-get install runsc",
    implies: IMPLIES,
    own_kernel: true,
    filters_devices: true,
    refuses_hybrid: false,
    flags,
    emptied: |environment| (network(environment) == "sandbox").then_some(SETTINGS),
    needs_kvm: |environment| {
        (environment.get("platform") == Some("kvm")).then_some("gVisor's guests do not start under KVM")
    },
    saving: Saving::Itself,
};

/// The platform `runsc`.
pub const RUNSC: Oci = Oci::new(&KIND);

/// Settings of the host's network. Versions before August 2024 mistake a namespace for the host's
/// own when they find `core/rmem_default` there, and give it no network (gVisor, issue 10704);
/// since Linux 6.11 every namespace has it. A network of gVisor's own needs none of the host's
/// settings.
const SETTINGS: &str = "/proc/sys/net";

/// Returns the network stack as runsc names it.
fn network(environment: &EnvironmentSpec) -> &'static str {
    match environment.get("net").unwrap_or("none") {
        "none" => "none",
        "host" => "host",
        _ => "sandbox",
    }
}

/// Returns the options that every command must repeat, because the sandbox takes them from there.
fn flags(environment: &EnvironmentSpec) -> Vec<String> {
    let network = network(environment);
    let platform = environment.get("platform").unwrap_or("systrap");
    // By default runsc keeps what a guest writes to its root in a file of the skeleton, which all
    // guests share.
    vec![format!("--network={network}"), format!("--platform={platform}"), "--overlay2=none".into()]
}
