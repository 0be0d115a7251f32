//! The body of the request that makes a container: what users would tell the engine, and no more.

use crate::common_keys::Storage;
use crate::oci::access::Access;
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::{GuestRequest, Host, PlatformError, Result};
use serde_json::{Map, Value, json};
use weigh_images::Root;

/// The engine's word for a mount of a volume.
const VOLUME: &str = "volume";

/// What the keys of an environment ask of the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerOptions<'a> {
    /// The engine's name of the network.
    pub(super) network: &'a str,
    /// Value of `storage`.
    pub(super) storage: &'a str,
    /// Whether the engine's system call filter is on.
    pub(super) filtered: bool,
    /// A runtime other than the engine's default.
    pub(super) runtime: Option<&'a str>,
    /// Whether the container's root is the host's, even on an engine that maps users.
    pub(super) unmapped: bool,
}

/// Name of a request's container.
pub(super) fn container_name(host: &Host, request: &GuestRequest) -> String {
    format!("weighbridge-{}-{}", host.run, request.instance)
}

/// Returns the body of the call that makes a container. `root` may have a new layout.
///
/// # Errors
/// The host's mounts cannot be read.
pub(super) fn of(
    host: &Host,
    request: &GuestRequest,
    root: &Root,
    access: &Access,
    options: &ContainerOptions<'_>,
) -> Result<Value> {
    let (repository, tag) = image_name(&host.run, root);
    let all = mounts::of_root(root).map_err(PlatformError::io("read the host's mounts"))?;
    let cpus: Vec<String> = request.cpus.iter().map(u32::to_string).collect();
    let mut mounts: Vec<Value> = all.iter().filter_map(bind).collect();
    if options.storage == "volume" {
        mounts.push(json!({
            "Type": VOLUME,
            "Source": container_name(host, request),
            "Target": Storage::TARGET,
        }));
    }
    let ports = ports(access);
    let exposed = ports.iter().flat_map(Map::keys).map(|port| (port.clone(), json!({})));
    let exposed: Map<String, Value> = exposed.collect();
    // The engine treats null as absent.
    Ok(json!({
        "Image": format!("{repository}:{tag}"),
        "Cmd": [weigh_images::PROBE],
        "Labels": { "weighbridge.run": host.run },
        "AttachStdin": true,
        "AttachStdout": true,
        "AttachStderr": true,
        "OpenStdin": true,
        // The container's standard input ends with the connection: a probe does not outlive
        // weighbridge.
        "StdinOnce": true,
        "Tty": false,
        "ExposedPorts": exposed,
        "HostConfig": {
            "NetworkMode": options.network,
            "PortBindings": ports,
            "ReadonlyRootfs": options.storage != "overlay",
            "Mounts": mounts,
            "Tmpfs": all.iter().filter_map(scratch).collect::<Map<_, _>>(),
            "SecurityOpt": (!options.filtered).then_some(["seccomp=unconfined"]),
            "Runtime": options.runtime,
            "UsernsMode": options.unmapped.then_some("host"),
            // The output is the protocol, which the engine need not log again.
            "LogConfig": { "Type": "none" },
            "CpusetCpus": (!cpus.is_empty()).then(|| cpus.join(",")),
            "Memory": request.memory_bytes,
            // The same number means no swap beyond the memory.
            "MemorySwap": request.memory_bytes,
        },
    }))
}

/// Returns the container's own volume that its body names, if any.
pub(super) fn volume_of(body: &Value) -> Option<String> {
    let mounts = body["HostConfig"]["Mounts"].as_array()?;
    Some(mounts.iter().find(|mount| mount["Type"] == VOLUME)?["Source"].as_str()?.into())
}

/// Ports as users publish them, for both protocols.
fn ports(access: &Access) -> Option<Map<String, Value>> {
    let (address, ports) = access.published()?;
    // The engine chooses the host's ports on the shared loopback address. But a server with several
    // ports tells its clients their numbers, so those must not change.
    let same = !address.is_loopback() || ports.len() > 1;
    let number = |port: &u16| same.then(|| port.to_string());
    let binding = |port| json!([{ "HostIp": address, "HostPort": number(port) }]);
    let both = |port| ["tcp", "udp"].map(|protocol| (format!("{port}/{protocol}"), binding(port)));
    Some(ports.iter().flat_map(both).collect())
}

/// Returns name and tag of the image. Names of images allow fewer characters than names of runs.
pub(super) fn image_name(run: &str, root: &Root) -> (String, String) {
    let lower = run.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let digest: String = root.digest.chars().take(12).collect();
    (format!("weighbridge/{}", words.join("-")), format!("root-{digest}"))
}

fn bind(mount: &GuestMount) -> Option<Value> {
    let GuestMount::Bind(bind) = mount else { return None };
    Some(json!({
        "Type": "bind",
        "Source": bind.source.to_str()?,
        "Target": bind.target.to_str()?,
        "ReadOnly": bind.read_only,
        // Engines before 25 leave what is mounted below a recursive bind writable.
        "BindOptions": { "NonRecursive": true },
    }))
}

fn scratch(mount: &GuestMount) -> Option<(String, Value)> {
    let GuestMount::Scratch(target) = mount else { return None };
    // The engine's own default is `noexec`; programs are put here and run.
    Some((target.to_str()?.into(), format!("rw,exec,nosuid,nodev,mode={}", scratch_mode(target)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    fn root() -> Root {
        Root { skeleton: "/none".into(), digest: "0123456789abcdef".into(), host: true, ..Root::default() }
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
        assert_eq!((&mount["Source"], &mount["Target"]), (&json!("/a/usr"), &json!("/usr")));
        assert_eq!((&mount["ReadOnly"], &mount["BindOptions"]["NonRecursive"]), (&json!(true), &json!(true)));
        assert!(bind(&tmp).is_none() && scratch(&usr).is_none());
        assert_eq!(scratch(&tmp).unwrap(), ("/tmp".into(), "rw,exec,nosuid,nodev,mode=1777".into()));
    }
}
