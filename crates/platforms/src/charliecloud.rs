//! Containers by Charliecloud, as computing centres have them: `ch-run` gives a program its own
//! root in a user and a mount namespace, and nothing else.
//!
//! `ch-run` makes the namespaces and becomes the probe, so none of its own processes remains.
//! Processes, devices and, unless the key `net` says otherwise, the network are the host's. If the
//! host's root starts such a guest, the guest's root can reach the host's disks through `/dev`.

use crate::spawn::{LaunchContext, LaunchSpec, OwnMount, Sandbox, SandboxKind};
use crate::{About, Capabilities, PlatformError, Result, common_keys};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use weigh_images::Mount;

/// How a guest differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds"),
    ("network", "the network that `net` says"),
    ("user", "root of a user namespace of its own"),
];

const KIND: SandboxKind = SandboxKind {
    about: About {
        name: "charliecloud",
        summary: "a container by Charliecloud's ch-run: a root of its own by user and mount namespaces, no more",
        keys: &[
            common_keys::net(&["host", "none", "bridge", "nat"]),
            common_keys::STORAGE,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::BINARY,
        ],
    },
    program: "ch-run",
    remedy: "install it with `apt-get install charliecloud`, or name the file with `charliecloud:binary=PATH`",
    capabilities: || Capabilities {
        keeps_secrets: false,
        implies: IMPLIES,
        ..crate::namespaces::capabilities()
    },
    make,
};

/// The platform `charliecloud`.
pub const CHARLIECLOUD: Sandbox = Sandbox::new(&KIND);

fn make(making: &LaunchContext<'_>) -> Result<LaunchSpec> {
    // Without `--private-tmp` the guest would see the host's /tmp.
    let mut made = LaunchSpec {
        arguments: ["--private-tmp", "--no-passwd"].map(Into::into).into(),
        variables: vec!["USER=root".into()],
        ..LaunchSpec::default()
    };
    // The private /tmp hides what the root has below its own /tmp. Those files are shown there once
    // more, read-only, from places outside of the root.
    let mounts = making.request.root.mounts();
    let binds = mounts.into_iter().filter_map(|mount| match mount {
        Mount::Bind(bind) if bind.target.starts_with("/tmp") => Some(bind),
        _ => None,
    });
    for (number, bind) in binds.enumerate() {
        let place = making.directory.join(number.to_string());
        making.make_directory()?;
        let made_place = if bind.source.is_dir() { fs::create_dir(&place) } else { fs::write(&place, "") };
        made_place.map_err(PlatformError::at("make", &place))?;
        made.arguments.extend(["--bind".into(), pair(&place, &bind.target)?]);
        made.mounts.push(OwnMount::Bind(bind.source.clone(), place));
    }
    made.arguments.extend([making.root().into(), "--".into()]);
    Ok(made)
}

/// Returns a bind in the form that `ch-run` takes, `SOURCE:TARGET`.
fn pair(source: &Path, target: &Path) -> Result<OsString> {
    let has_colon = |path: &&Path| path.as_os_str().as_encoded_bytes().contains(&b':');
    if let Some(path) = [source, target].into_iter().find(has_colon) {
        let reason = format!("ch-run takes no path with a colon, as in {}", path.display());
        return Err(PlatformError::unavailable(
            reason,
            "start weigh in a directory without a colon in its name",
        ));
    }
    let mut pair = source.as_os_str().to_os_string();
    pair.push(":");
    pair.push(target);
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_ends_a_path_for_ch_run() {
        assert_eq!(pair(Path::new("/work/0"), Path::new("/tmp/mine")).unwrap(), "/work/0:/tmp/mine");
        let error = pair(Path::new("/work/0"), Path::new("/tmp/a:b")).unwrap_err();
        assert!(matches!(&error, PlatformError::Unavailable { remedy: Some(_), .. }), "{error}");
    }
}
