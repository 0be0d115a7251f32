//! A system call filter with the effect of Docker's default profile.
//!
//! Docker's profile lists what is allowed; this one lists what is not, so that calls newer than the
//! list are allowed here and refused there. The list is ours, made after Docker's documentation
//! ("Seccomp security profiles for Docker", significant system calls that are blocked) for a
//! container with [Docker's capabilities](super::bundle).

use serde_json::{Value, json};

/// Names of system calls, one a line, with remarks after `#`.
const DENIED: &str = include_str!("denied-system-calls.txt");
/// Flags of `clone(2)` that make namespaces: cgroup, mount, UTS, IPC, user, PID, network.
const NAMESPACE_FLAGS: [u64; 7] =
    [0x0200_0000, 0x0002_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// The flag of `personality(2)` that turns address space randomisation off.
const ADDR_NO_RANDOMIZE: u64 = 0x0040_0000;
/// The argument of `personality(2)` that only queries the present one.
const PERSONALITY_QUERY: u64 = 0xffff_ffff;

/// Names of the calls that are denied whatever their arguments.
fn denied() -> impl Iterator<Item = &'static str> {
    DENIED.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next())
}

/// Returns `linux.seccomp` of a bundle.
pub(super) fn filter() -> Value {
    let flag = |name: &str, flag: u64| {
        let argument = json!({"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"});
        json!({"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM, "args": [argument]})
    };
    let mut calls = vec![
        json!({"names": denied().collect::<Vec<_>>(), "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM}),
        // No filter sees its flags, which are in memory. So programs use clone instead, as on a
        // kernel without clone3.
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS}),
    ];
    calls.extend(NAMESPACE_FLAGS.map(|value| flag("clone", value)));
    calls.push(json!({"names": ["personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM, "args": [
        {"index": 0, "value": ADDR_NO_RANDOMIZE, "valueTwo": ADDR_NO_RANDOMIZE, "op": "SCMP_CMP_MASKED_EQ"},
        {"index": 0, "value": PERSONALITY_QUERY, "op": "SCMP_CMP_NE"},
    ]}));
    let mut filter = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls});
    let architectures: &[&str] = match std::env::consts::ARCH {
        "x86_64" => &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "aarch64" => &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
        // The runtime uses its own.
        _ => &[],
    };
    if !architectures.is_empty() {
        filter["architectures"] = json!(architectures);
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_is_one_of_names_and_has_none_twice() {
        let all: Vec<&str> = denied().collect();
        let names: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), names.len());
        assert!(["unshare", "mount", "keyctl", "bpf", "reboot"].iter().all(|name| names.contains(name)));
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        assert!(names.iter().all(|name| plain(name)), "{names:?}");
        // What programs cannot do without.
        assert!(
            !["read", "execve", "clone", "socket", "chroot", "ptrace"]
                .iter()
                .any(|name| names.contains(name))
        );
        assert_eq!(filter()["syscalls"][1]["errnoRet"], libc::ENOSYS);
    }
}
