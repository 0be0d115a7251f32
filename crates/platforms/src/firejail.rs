//! Sandboxes by Firejail, the set-user-ID program that confines desktop applications.
//!
//! `firejail --chroot` makes mount, pid, uts and ipc namespaces, a `/dev` and a `/proc`, and stays
//! outside of them until the guest has ended; a second process of it is process 1 inside, and the
//! probe is its child. It is given no profile unless the key `profile` names one: the profiles that
//! it has for each program are what it protects by, and they differ from program to program.
//!
//! `--chroot` is switched off as installed. The guest's firejail reads a copy of the host's
//! configuration that allows it, which nobody else sees. Its directory below `/run` is one in memory
//! that only it sees, so that nothing of it is left, however it ends.

use crate::spawn::{Kind, Made, Making, OwnMount, Sandbox};
use crate::{About, Capabilities, KeySpec, PlatformError, Result, common_keys, network};
use std::ffi::OsString;
use std::path::Path;

/// Configuration of the host (`firejail-config(5)`).
const CONFIGURATION: &str = "/etc/firejail/firejail.config";

const KIND: Kind = Kind {
    about: About {
        name: "firejail",
        summary: "a sandbox by firejail: namespaces by a set-user-ID program, with a profile or without",
        keys: &[
            KeySpec::text("profile").or("none").about(
                "a profile of Firejail's, by name or path, as `default`; none: what every sandbox has alone",
            ),
            KeySpec {
                summary: "Firejail's usual filter of system calls, on or off",
                ..common_keys::SECCOMP_OFF
            },
            common_keys::net(network::WORDS),
            common_keys::STORAGE,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::BINARY,
        ],
    },
    program: "firejail",
    remedy: "install it with `apt-get install firejail`, or name the file with `firejail:binary=PATH`",
    capabilities: || Capabilities { implies: common_keys::OWN_ROOT, ..Capabilities::CONTAINER },
    makes_network: true,
    make,
};

/// The platform `firejail`.
pub const FIREJAIL: Sandbox = Sandbox::new(&KIND);

fn make(making: &Making<'_>) -> Result<Made> {
    making.make_directory()?;
    let configuration = making.directory.join("firejail.config");
    let host =
        std::fs::read_to_string(CONFIGURATION).map_err(PlatformError::at("read", CONFIGURATION.as_ref()))?;
    std::fs::write(&configuration, with_chroot(&host)).map_err(PlatformError::at("write", &configuration))?;
    let option = |name: &str, value: &std::ffi::OsStr| {
        let mut option = OsString::from(name);
        option.push(value);
        option
    };
    let mut arguments: Vec<OsString> =
        ["--quiet", "--private-dev", "--keep-var-tmp", "--deterministic-shutdown"].map(Into::into).into();
    arguments.push(match making.setting("profile") {
        "none" => "--noprofile".into(),
        profile => format!("--profile={profile}").into(),
    });
    if making.setting("seccomp") == "on" {
        arguments.push("--seccomp".into());
    }
    if making.setting("net") == "none" {
        arguments.push("--net=none".into());
    }
    arguments.push(option("--chroot=", making.root().as_os_str()));
    arguments.push("--".into());
    let mounts = vec![
        OwnMount::state_of(Path::new("/run/firejail")),
        OwnMount::Bind(configuration, CONFIGURATION.into()),
    ];
    Ok(Made { arguments, mounts, ..Made::default() })
}

/// A configuration that allows `--chroot` and is the host's else.
fn with_chroot(configuration: &str) -> String {
    let others = configuration.lines().filter(|line| line.split_whitespace().next() != Some("chroot"));
    others.chain(["chroot yes"]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_allows_chroot_and_keeps_the_rest() {
        let host = "# chroot no\nchroot no\nrestricted-network yes\n";
        assert_eq!(with_chroot(host), "# chroot no\nrestricted-network yes\nchroot yes\n");
    }
}
