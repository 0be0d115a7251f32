//! Remedies for what is missing, and the commands in them.
//!
//! Remedies are sentences, because there may be a choice. The command that helps is between
//! backticks, so that it can be shown by itself, to be copied. A remedy without one says what else
//! helps, or that no command does.

use std::path::Path;

/// The remedy for what only root may do.
pub(crate) const AS_ROOT: &str = "run weigh as root; `sudo weigh doctor` shows what is ready then";

/// The remedy for a guest's kernel that was not fetched before [`crate::Host::fetch_until`].
pub const FETCH: &str = "give it more time: `weigh doctor` waits for it and keeps it";

/// Returns the command of a remedy: the first text in backticks that has two words or more and
/// begins with a program's name, which keys and options do not.
pub fn command(remedy: &str) -> Option<&str> {
    remedy.split('`').skip(1).step_by(2).find(|text| {
        let program = text.split_once(' ').map_or("", |(program, _)| program);
        !program.is_empty() && !program.starts_with('-') && !program.contains(['=', ':'])
    })
}

/// Returns the remedy for an ordinary user without namespaces, as read below a root directory: to
/// switch on what the host has switched off, else to be root.
pub(crate) fn for_namespaces(root: &Path) -> String {
    const SWITCHES: [(&str, &str, &str); 3] = [
        ("user.max_user_namespaces", "0", "15000"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ];
    let is = |key: &str, wrong: &str| {
        let path = root.join("proc/sys").join(key.replace('.', "/"));
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == wrong)
    };
    let off: Vec<String> = SWITCHES
        .iter()
        .filter(|(key, wrong, _)| is(key, wrong))
        .map(|(key, _, right)| format!("{key}={right}"))
        .collect();
    if off.is_empty() {
        return AS_ROOT.into();
    }
    format!(
        "`sysctl {}` lets ordinary users have namespaces until the host restarts; or run weigh as root",
        off.join(" ")
    )
}

/// Returns the remedy for a machine without `/dev/kvm`, as read below a root directory.
pub(crate) fn for_kvm(root: &Path) -> String {
    let cpu = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    // Flags of x86 as the kernel names them (arch/x86/include/asm/cpufeatures.h); no other
    // architecture has KVM as modules.
    let has = |flag: &str| {
        let flags = cpu.lines().filter(|line| line.starts_with("flags"));
        flags.flat_map(str::split_whitespace).any(|word| word == flag)
    };
    match (has("vmx"), has("svm"), has("hypervisor")) {
        (true, ..) => "load the module: `modprobe kvm_intel`".into(),
        (_, true, _) => "load the module: `modprobe kvm_amd`".into(),
        (_, _, true) => {
            "no command gives this virtual machine KVM: have nested virtualisation switched on for it where it runs, or use a physical \
             machine"
                .into()
        }
        _ => "no command gives this machine KVM: switch virtualisation (VT-x, AMD-V) on in its firmware, or use a machine that has it"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_distinguished_from_keys_and_options() {
        for (remedy, expected) in [
            (
                "install it with `apt-get install lxc`, or name it with `lxc:binary=PATH`",
                Some("apt-get install lxc"),
            ),
            (
                "write `rootfs=debian`, or build it with `weigh image build debian`",
                Some("weigh image build debian"),
            ),
            (
                "give `--memory 2GiB`, or `mount -o remount,exec /dev/shm`",
                Some("mount -o remount,exec /dev/shm"),
            ),
            ("write `net=none` or `net=bridge`", None),
            ("add `DOCKER_HOST=unix:///x y`", None),
            ("the `dockerd` alone is no command line", None),
            ("no command helps", None),
            (AS_ROOT, Some("sudo weigh doctor")),
        ] {
            assert_eq!(command(remedy), expected, "{remedy}");
        }
    }

    fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn disabled_settings_are_named_with_their_values() {
        let root = with(&[
            ("proc/sys/user/max_user_namespaces", "0\n"),
            ("proc/sys/kernel/unprivileged_userns_clone", "1\n"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"),
        ]);
        let remedy = for_namespaces(root.path());
        let expected = "sysctl user.max_user_namespaces=15000 kernel.apparmor_restrict_unprivileged_userns=0";
        assert_eq!(command(&remedy), Some(expected));
        assert_eq!(for_namespaces(with(&[]).path()), AS_ROOT);
    }

    #[test]
    fn kvm_has_a_command_where_one_helps() {
        let of =
            |flags: &str| for_kvm(with(&[("proc/cpuinfo", &format!("flags\t\t: fpu {flags}\n"))]).path());
        assert_eq!(command(&of("vmx hypervisor")), Some("modprobe kvm_intel"));
        assert_eq!(command(&of("svm")), Some("modprobe kvm_amd"));
        for (flags, word) in [("hypervisor", "nested"), ("", "firmware")] {
            let remedy = of(flags);
            assert!(
                command(&remedy).is_none() && remedy.contains("no command") && remedy.contains(word),
                "{remedy}"
            );
        }
    }
}
