//! What every platform guarantees, written once and run for each.
//!
//! A platform that is missing here is skipped with a message, unless `WEIGH_REQUIRE` (a
//! comma-separated list of platform names) names it. The capabilities say what a guest cannot do;
//! no check knows a platform's name. `WEIGH_PROBE` names a probe that is already built.

mod awake;
mod bench;
mod commands;
mod ending;
mod limits;
mod secrets;

macro_rules! checks {
    ($environment:expr; $($file:ident: $($check:ident)*;)*) => {
        $($(
            #[test]
            fn $check() {
                crate::conformance::bench::check(stringify!($check), $environment, crate::conformance::$file::$check);
            }
        )*)*
    };
}

macro_rules! environments {
    ($($module:ident $environment:literal)*) => {
        /// Every tested environment, with a module of tests for each.
        const ENVIRONMENTS: &[&str] = &[$($environment),*];

        $(
            mod $module {
                checks! { $environment;
                    commands: commands_and_files;
                    awake: clocks_and_freezing two_guests_at_once the_probe_alone the_users_files;
                    secrets: secrets_of_the_host_stay_on_the_host disks_of_the_host_stay_on_the_host;
                    limits: cpus memory;
                    ending: dropped busy hung dead frozen deadline availability_leaves_nothing;
                }
            }
        )*
    };
}

environments! {
    native "native"
    namespaces "namespaces"
    namespaces_mapped "namespaces:user=mapped"
    bubblewrap "bubblewrap"
    bubblewrap_mapped "bubblewrap:user=mapped"
    charliecloud "charliecloud"
    minijail "minijail"
    firejail "firejail"
    apptainer "apptainer"
    proot "proot"
    nspawn "nspawn"
    nspawn_full "nspawn:init=full"
    runc "runc"
    runc_mapped "runc:user=mapped"
    crun "crun"
    youki "youki"
    runsc "runsc"
    lxc "lxc"
    lxc_full "lxc:init=full"
    incus "incus"
    lxd "lxd"
    containerd "containerd"
    docker "docker"
    docker_without_network "docker:net=none"
    docker_on_the_hosts_network "docker:net=host"
    podman "podman"
    podman_mapped "podman:user=mapped,storage=overlay"
    uml "uml"
    wasmtime "wasmtime"
    qemu "qemu:accel=tcg"
    firecracker "firecracker"
    libvirt "libvirt:accel=tcg"
    cloud_hypervisor "cloud-hypervisor"
    osv "osv"
    pod "pod"
    pod_of_a_fake "pod:context=fake"
    ssh "ssh"
    null "null"
}

/// Every platform is among the tested environments.
#[test]
fn every_platform_is_tested() {
    for platform in weigh_platforms::all() {
        let tested =
            ENVIRONMENTS.iter().any(|environment| environment.split(':').next() == Some(platform.name()));
        assert!(tested, "add {} to ENVIRONMENTS", platform.name());
    }
}
