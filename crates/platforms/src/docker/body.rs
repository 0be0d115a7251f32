//! What the engine is told of a container: what users say to it, and no more.

use crate::common_keys::Storage;
use crate::oci::access::Access;
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::{GuestRequest, Host, PlatformError, Result};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountBindOptions, MountType, PortBinding,
    PortMap,
};
use std::collections::HashMap;
use weigh_images::Root;

/// What the keys of an environment say that is the engine's to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerOptions<'a> {
    /// The engine's name of the network.
    pub(super) network: &'a str,
    /// Value of `storage`.
    pub(super) storage: &'a str,
    /// The engine's system call filter is on.
    pub(super) filtered: bool,
    /// Another runtime than the engine's default.
    pub(super) runtime: Option<&'a str>,
    /// Root of the host, also on an engine that would map it.
    pub(super) unmapped: bool,
}

/// Name of a request's container.
pub(super) fn container_name(host: &Host, request: &GuestRequest) -> String {
    format!("weighbridge-{}-{}", host.run, request.instance)
}

/// The body of the call that makes a container. `root` is the request's, maybe laid out anew.
///
/// # Errors
/// The host's mounts cannot be read.
pub(super) fn of(
    host: &Host,
    request: &GuestRequest,
    root: &Root,
    access: &Access,
    options: &ContainerOptions<'_>,
) -> Result<ContainerCreateBody> {
    let (repository, tag) = image_name(&host.run, root);
    let all = mounts::of_root(root).map_err(PlatformError::io("read the host's mounts"))?;
    let memory = request.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let cpus: Vec<String> = request.cpus.iter().map(u32::to_string).collect();
    let mut mounts: Vec<Mount> = all.iter().filter_map(bind).collect();
    if options.storage == "volume" {
        mounts.push(Mount {
            typ: Some(MountType::VOLUME),
            source: Some(container_name(host, request)),
            target: Some(Storage::TARGET.into()),
            ..Default::default()
        });
    }
    let ports = ports(access);
    let limits = HostConfig {
        cpuset_cpus: (!cpus.is_empty()).then(|| cpus.join(",")),
        memory,
        // The same number means no swap beyond the memory.
        memory_swap: memory,
        ..Default::default()
    };
    Ok(ContainerCreateBody {
        image: Some(format!("{repository}:{tag}")),
        cmd: Some(vec![weigh_images::PROBE.into()]),
        labels: Some(HashMap::from([("weighbridge.run".into(), host.run.clone())])),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // The container's standard input ends with the connection: a probe does not outlive
        // weighbridge.
        stdin_once: Some(true),
        tty: Some(false),
        exposed_ports: ports.as_ref().map(|ports| ports.keys().cloned().collect()),
        host_config: Some(HostConfig {
            network_mode: Some(options.network.into()),
            port_bindings: ports,
            readonly_rootfs: Some(options.storage != "overlay"),
            mounts: Some(mounts),
            tmpfs: Some(all.iter().filter_map(scratch).collect()),
            security_opt: (!options.filtered).then(|| vec!["seccomp=unconfined".into()]),
            runtime: options.runtime.map(Into::into),
            userns_mode: options.unmapped.then(|| "host".into()),
            // The output is the protocol; nobody needs it a second time in a log of the engine's.
            log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
            ..limits
        }),
        ..Default::default()
    })
}

/// The volume of a container's own that its body names.
pub(super) fn volume_of(body: &ContainerCreateBody) -> Option<String> {
    let mounts = body.host_config.as_ref()?.mounts.as_ref()?;
    mounts.iter().find(|mount| mount.typ == Some(MountType::VOLUME))?.source.clone()
}

/// Ports as users publish them, for both protocols.
fn ports(access: &Access) -> Option<PortMap> {
    let (address, ports) = access.published()?;
    // The engine chooses where the address is everybody's; but a server of several ports tells its
    // clients their numbers.
    let same = !address.is_loopback() || ports.len() > 1;
    let number = |port: &u16| same.then(|| port.to_string());
    let binding = |port| PortBinding { host_ip: Some(address.to_string()), host_port: number(port) };
    let both =
        |port| ["tcp", "udp"].map(|protocol| (format!("{port}/{protocol}"), Some(vec![binding(port)])));
    Some(ports.iter().flat_map(both).collect())
}

/// Name and tag of the image. Names of images allow less than names of runs.
pub(super) fn image_name(run: &str, root: &Root) -> (String, String) {
    let lower = run.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let digest: String = root.digest.chars().take(12).collect();
    (format!("weighbridge/{}", words.join("-")), format!("root-{digest}"))
}

fn bind(mount: &GuestMount) -> Option<Mount> {
    let GuestMount::Bind(bind) = mount else { return None };
    Some(Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.source.to_str()?.into()),
        target: Some(bind.target.to_str()?.into()),
        read_only: Some(bind.read_only),
        // Engines before 25 leave what is mounted below a recursive bind writable.
        bind_options: Some(MountBindOptions { non_recursive: Some(true), ..Default::default() }),
        ..Default::default()
    })
}

fn scratch(mount: &GuestMount) -> Option<(String, String)> {
    let GuestMount::Scratch(target) = mount else { return None };
    // The engine's own default is `noexec`; programs are put here and run.
    Some((target.to_str()?.into(), format!("rw,exec,nosuid,nodev,mode={}", scratch_mode(target))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    fn root() -> Root {
        Root {
            skeleton: "/none".into(),
            binds: Vec::new(),
            scratch: Vec::new(),
            digest: "0123456789abcdef".into(),
            host: true,
            notes: Vec::new(),
            tree: None,
            lock: None,
        }
    }

    #[test]
    fn images_get_names_that_engines_take() {
        let name = |run| image_name(run, &root()).0;
        assert_eq!(name("20260102T030405Z-Quick_run..x"), "weighbridge/20260102t030405z-quick-run-x");
        assert_eq!(name("-a-"), "weighbridge/a");
        assert_eq!(image_name("a", &root()).1, "root-0123456789ab");
    }

    #[test]
    fn mounts_are_translated() {
        let usr = GuestMount::Bind(Bind { source: "/a/usr".into(), target: "/usr".into(), read_only: true });
        let tmp = GuestMount::Scratch("/tmp".into());
        let mount = bind(&usr).unwrap();
        assert_eq!((mount.source.as_deref(), mount.target.as_deref()), (Some("/a/usr"), Some("/usr")));
        assert_eq!((mount.read_only, mount.bind_options.unwrap().non_recursive), (Some(true), Some(true)));
        assert!(bind(&tmp).is_none() && scratch(&usr).is_none());
        assert_eq!(scratch(&tmp).unwrap(), ("/tmp".into(), "rw,exec,nosuid,nodev,mode=1777".into()));
    }
}
