//! The words by which guests are compared (method specification, "Parity"): the keys of
//! [`crate::InstanceFacts`] and of `--allow-unequal`.

use crate::nearest;

/// Every parity key and its meaning. A key that ends with a colon is followed by its subject:
/// `binary:fio`, `mounts:/tmp`.
///
/// Values are words for people. Two of them also hold numbers: `cpus` is a count, `memory` is
/// `<bytes> bytes`.
pub const PARITY_KEYS: &[(&str, &str)] = &[
    ("kernel", "release of the kernel that the guest runs on"),
    ("architecture", "machine architecture"),
    ("cpu-model", "model of the CPU as the guest sees it"),
    ("cpus", "number of CPUs that the guest may run on"),
    ("memory", "memory that the guest may use: its limit, or all there is"),
    ("operating-system", "operating system that the guest's root names"),
    ("libc", "C libraries that the measured programs load, by digest, or `static`"),
    ("binary:", "digest of a measured program, or of the interpreter of a script"),
    (
        "transparent-huge-pages",
        "when memory is backed by huge pages without being asked: always, madvise, never, or none in the kernel",
    ),
    (
        "mitigations",
        "CPU vulnerabilities that concern this CPU and what the kernel does about them; they count under the same kernel only",
    ),
    ("clock-source", "where the kernel takes the time from"),
    ("aslr", "how addresses are randomised (kernel.randomize_va_space)"),
    ("user", "user that the measured programs run as"),
    (
        "mounts:",
        "file system and options of the mount that a path lies on: the root, /tmp, the working directory, and `scratch`, where commands make files",
    ),
    ("network", "network as the environment's `net` key names it: host, nat, none..."),
    ("network-card", "a machine's network card, and who carries its packets on the host"),
    (
        "network-interface",
        "what drives the interface that a server is reached over: loopback, veth, virtio_net...",
    ),
    ("network-mtu", "MTU of that interface, bytes"),
    (
        "network-offloads",
        "what that interface takes off the CPU's hands: checksums, segmentation (tso, gso), gro...",
    ),
    (
        "network-path:",
        "the interfaces between a server and its load generator: guest, bridge, client, loader",
    ),
    ("sysctl:", "a setting of the guest's network stack: buffers of sockets, congestion control..."),
    ("cache", "how the host caches the guest's disk"),
    (
        "disk",
        "the machine's disk for workloads: format, file or block device, how the host's kernel is asked for it",
    ),
    ("root", "what holds the machine's root: initramfs, 9p, virtiofs, a disk"),
    ("acceleration", "what executes a virtual machine's instructions: kvm, tcg"),
    (
        "machine:",
        "how a virtual machine is made and placed, read back from it: cpu, placement, topology, caches, pages, iothread, devices, balloon, ksm, and what could not be tuned",
    ),
];

/// Keys that only some platforms report. If such a key is absent, the guest does not have the
/// thing.
pub const PARITY_KEYS_OF_PLATFORMS: &[&str] =
    &["network", "network-card", "network-path:", "cache", "disk", "root", "acceleration", "machine:"];

/// Whether a key is among [`PARITY_KEYS_OF_PLATFORMS`].
pub fn is_parity_key_of_platforms(key: &str) -> bool {
    PARITY_KEYS_OF_PLATFORMS.iter().any(|word| parity_key_matches(word, key))
}

/// Whether a pattern, which is a word of `--allow-unequal` or a key of a platform's `implies`,
/// matches a key. It may be the key itself, the part of it before the colon (`binary` for every
/// `binary:<program>`), or a prefix before a final `*`. `memory_bytes`, as reports call the number,
/// matches like `memory`.
pub fn parity_key_matches(pattern: &str, key: &str) -> bool {
    let key = if key == "memory_bytes" { "memory" } else { key };
    match pattern.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => {
            pattern == key
                || key.strip_prefix(pattern.trim_end_matches(':')).is_some_and(|rest| rest.starts_with(':'))
        }
    }
}

/// Checks a word of `--allow-unequal`.
///
/// # Errors
/// The word is not a key; the error is the nearest key, if one is near.
pub fn check_parity_word(word: &str) -> Result<(), Option<&'static str>> {
    let beginning = word.split_inclusive(':').next().unwrap_or_default();
    let known = PARITY_KEYS.iter().any(|(key, _)| match key.strip_suffix(':') {
        Some(bare) => word == bare || beginning == *key,
        None => word == *key,
    });
    if known {
        return Ok(());
    }
    Err(nearest(
        beginning.trim_end_matches(':'),
        PARITY_KEYS.iter().map(|(key, _)| key.trim_end_matches(':')),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_keys() {
        for (word, key, covers) in [
            ("cpus", "cpus", true),
            ("cpus", "cpu-model", false),
            ("memory", "memory_bytes", true),
            ("binary", "binary:fio", true),
            ("binary:", "binary:fio", true),
            ("binary:fio", "binary:fio", true),
            ("binary:fio", "binary:fio2", false),
            ("binary:fi", "binary:fio", false),
            ("mounts:/", "mounts:/tmp", false),
            ("mounts:*", "mounts:/tmp", true),
            ("*", "kernel", true),
            ("kernel*", "kernel", true),
            ("lib", "libc", false),
        ] {
            assert_eq!(parity_key_matches(word, key), covers, "{word} {key}");
        }
    }

    #[test]
    fn unknown_words_get_the_nearest() {
        for good in ["cpus", "binary", "binary:fio", "mounts:/tmp", "mounts", "transparent-huge-pages"] {
            assert_eq!(check_parity_word(good), Ok(()), "{good}");
        }
        assert_eq!(check_parity_word("cpu"), Err(Some("cpus")));
        assert_eq!(check_parity_word("binry:fio"), Err(Some("binary")));
        assert_eq!(check_parity_word("cpus:3"), Err(Some("cpus")));
        assert_eq!(check_parity_word("weather"), Err(None));
        assert_eq!(check_parity_word(""), Err(None));
    }

    #[test]
    fn every_key_is_a_word() {
        for (key, summary) in PARITY_KEYS {
            assert_eq!(check_parity_word(key.trim_end_matches(':')), Ok(()));
            assert!(!summary.is_empty());
        }
        assert!(PARITY_KEYS_OF_PLATFORMS.iter().all(|key| PARITY_KEYS.iter().any(|(known, _)| known == key)));
    }
}
