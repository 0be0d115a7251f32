//! Chooses one of the ready platforms of each kind for a quick run.

use weigh_model::EnvironmentSpec;

/// A platform of a kind of isolation.
enum Candidate {
    Any(&'static str),
    /// Only where the host's processor runs the guest: emulation costs a hundred times as much, and
    /// its numbers say nothing about virtual machines.
    Accelerated(&'static str),
}

use Candidate::{Accelerated, Any};

/// The platforms of each kind of isolation, in order of preference.
const KINDS: [&[Candidate]; 3] = [
    // Containers: those that most people use come first, then bare runtimes, then whole systems.
    &[
        Any("docker"),
        Any("podman"),
        Any("containerd"),
        Any("runc"),
        Any("crun"),
        Any("youki"),
        Any("incus"),
        Any("lxd"),
        Any("lxc"),
        Any("nspawn"),
        Any("bubblewrap"),
        Any("charliecloud"),
        Any("minijail"),
        Any("firejail"),
        Any("apptainer"),
        Any("namespaces"),
        Any("proot"),
    ],
    // Sandboxes.
    &[Any("runsc")],
    // Machines.
    &[
        Accelerated("qemu"),
        Any("firecracker"),
        Any("cloud-hypervisor"),
        Accelerated("libvirt"),
        Any("uml"),
        Any("qemu"),
        Any("libvirt"),
        Any("osv"),
    ],
];

/// The baseline of quick runs, which belongs to no kind.
const NATIVE: &str = "native";

/// Whether an explicit environment runs by emulation.
pub(super) fn is_emulated(explicit: &EnvironmentSpec) -> bool {
    explicit.get("accel") == Some("tcg")
}

/// Returns one ready platform of each kind, and those that are left out. `accelerated` says whether
/// the host's processor runs the guests of a platform; it is called only if that decides.
pub(super) fn one_of_each<E>(
    ready: Vec<String>,
    mut accelerated: impl FnMut(&str) -> Result<bool, E>,
) -> Result<(Vec<String>, Vec<String>), E> {
    let mut chosen = vec![NATIVE.to_string()];
    for kind in KINDS {
        for candidate in kind {
            let (name, takes) = match candidate {
                Any(name) => (name, ready.iter().any(|ready| ready == name)),
                Accelerated(name) => (name, ready.iter().any(|ready| ready == name) && accelerated(name)?),
            };
            if takes {
                chosen.push((*name).to_string());
                break;
            }
        }
    }
    let (chosen, left_out) = ready.into_iter().partition(|name| chosen.contains(name));
    Ok((chosen, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use weigh_platforms as platforms;

    fn choose(ready: &[&str], accelerated: bool) -> (Vec<String>, Vec<String>) {
        let ready = ready.iter().map(ToString::to_string).collect();
        one_of_each(ready, |_| Ok::<_, Infallible>(accelerated)).unwrap_or_else(|never| match never {})
    }

    #[test]
    fn one_of_each_kind_is_taken_in_order_of_preference() {
        let ready = ["native", "namespaces", "runc", "docker", "runsc", "uml", "qemu"];
        let (chosen, left_out) = choose(&ready, false);
        assert_eq!(chosen, ["native", "docker", "runsc", "uml"]);
        assert_eq!(left_out, ["namespaces", "runc", "qemu"]);
        assert_eq!(choose(&ready, true).0, ["native", "docker", "runsc", "qemu"]);
    }

    #[test]
    fn emulation_is_chosen_only_without_another_machine() {
        assert_eq!(choose(&["native", "qemu"], false).0, ["native", "qemu"]);
        assert_eq!(choose(&["native", "namespaces"], false).0, ["native", "namespaces"]);
        assert_eq!(choose(&["native"], false), (vec!["native".into()], Vec::new()));
    }

    /// A new platform must belong to a kind, or no quick run uses it.
    #[test]
    fn every_platform_that_needs_no_key_is_of_a_kind() {
        for platform in platforms::defaults().map(|platform| platform.name()) {
            let of_a_kind = KINDS.into_iter().flatten().any(|candidate| match candidate {
                Any(name) => *name == platform,
                Accelerated(_) => false,
            });
            assert!(of_a_kind || platform == NATIVE, "{platform}");
        }
    }
}
