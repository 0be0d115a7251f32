//! What guests can do.

use super::{Platform, Values};
use weigh_model::EnvironmentSpec;

/// What a guest of an environment can do. It is data, so that callers ask for abilities and never
/// for names of platforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Networks that the platform's key `net` offers; empty when there is no choice.
    pub networks: &'static [&'static str],
    /// The guest's network, as a value of that key.
    pub network: &'static str,
    /// The guest has an init of its own that brings services up beside the probe;
    /// [`Platform::launch`] returns when the probe answers, which may be before `multi-user.target`
    /// is reached.
    pub system: bool,
    /// The guest's processes run on the host's kernel: clocks and boot identity are the host's.
    pub shares_kernel: bool,
    /// [`super::Guest::freeze`] works.
    pub freeze: bool,
    /// Nothing works without root.
    pub needs_root: bool,
    /// The guest is confined to [`super::GuestRequest::cpus`].
    pub cpu_limit: bool,
    /// The guest is confined to [`super::GuestRequest::memory_bytes`].
    pub memory_limit: bool,
    /// The guest can run more than one program.
    pub fork: bool,
    /// The guest can have the host's own root file system, read-only.
    pub host_root: bool,
    /// Guests mount what is prepared of the host's root. Otherwise they see the host as it is,
    /// another machine, or nothing at all, and nothing is prepared.
    pub mounts_host_root: bool,
    /// Guests with the host's root see nothing that the host keeps from its users, nor
    /// weighbridge's own directories ([`weigh_images`], "The host's root"); and none reads the
    /// host's disks as devices. Not so for the host itself, for virtual machines of an ordinary
    /// user, which share files with all of that user's rights, and for systems whose root may mount
    /// while nothing filters its devices, or while it can undo what does.
    pub keeps_secrets: bool,
    /// Most CPUs that a guest can have, where there is such a bound.
    pub most_cpus: Option<u32>,
    /// The guest is a virtual machine: it must be given a size of memory, and sees that less what
    /// its kernel keeps.
    pub sized_memory: bool,
    /// Programs in a running guest are started by the guest's probe, as an agent in a machine does,
    /// because the platform has no client for it ([`super::Guest::exec`]).
    pub agent: bool,
    /// [`super::Platform::make_explicit`] makes something explicit, for which it may have to
    /// launch a guest.
    pub makes_explicit: bool,
    /// Parity keys ([`weigh_model::PARITY_KEYS`]) in which a guest differs from the host because of
    /// what the platform and these keys are, each with the reason in words: (`kernel`, "a machine
    /// of its own"). A key that ends with `*` matches all that begin so.
    pub implies: &'static [(&'static str, &'static str)],
    /// Commands take the time that the guest says they took. Not so for a fake that makes its
    /// durations up, whose clock cannot be checked.
    pub timed: bool,
    /// A guest reserves what it may use, so that others may not find room beside it although it
    /// does nothing.
    pub reserves: bool,
    /// Guests run on another machine. The sensors of this host see nothing of them, so that nothing
    /// is charged to them and no noise of this host concerns them; their files are their own.
    pub elsewhere: bool,
    /// Stages of a guest's start that only such guests have, by the names of their metrics
    /// ([`weigh_model::stamps`]).
    pub stages: &'static [&'static str],
    /// Nothing is executed: answers come from a script, for tests of weighbridge itself. Never
    /// among the defaults.
    pub fake: bool,
}

impl Capabilities {
    /// A guest on the host's kernel that can do everything; a starting point for containers.
    pub const CONTAINER: Self = Self {
        networks: &[],
        network: "host",
        system: false,
        shares_kernel: true,
        freeze: true,
        needs_root: true,
        cpu_limit: true,
        memory_limit: true,
        fork: true,
        host_root: true,
        mounts_host_root: true,
        keeps_secrets: true,
        most_cpus: None,
        sized_memory: false,
        agent: false,
        makes_explicit: false,
        implies: &[],
        timed: true,
        reserves: false,
        elsewhere: false,
        stages: &[],
        fake: false,
    };
    /// A virtual machine that can do everything; a starting point for those.
    pub(crate) const MACHINE: Self =
        Self { shares_kernel: false, sized_memory: true, agent: true, ..Self::CONTAINER };

    /// Adds the networks that the platform's key `net` offers, and the one of the environment.
    pub(crate) fn with_networks(self, platform: &dyn Platform, environment: &EnvironmentSpec) -> Self {
        let Some(Values::Words(networks)) =
            platform.keys().iter().find(|key| key.name == "net").map(|key| key.values)
        else {
            return self;
        };
        let given = crate::setting(platform, environment, "net");
        let network = networks.iter().copied().find(|word| *word == given).unwrap_or(networks[0]);
        Self { networks, network, ..self }
    }
}
