//! The keys of a machine.

use super::disks::CACHE_WORDS;
use super::{MACHINES, channel, net};
use crate::KeySpec;
use crate::common_keys;
use crate::vm::disk::{DEVICE, SIZE, STORAGE, disk_key};
use crate::vm::{keys, tune};

/// The keys, in the order in which they are listed.
pub(super) const KEYS: &[KeySpec] = &[
    keys::ACCEL,
    keys::KERNEL,
    KeySpec::words("machine", MACHINES).about("QEMU's type of machine"),
    KeySpec::words("channel", channel::WORDS).or("auto").about(
        "what host and probe talk over: a port of virtio-serial (what `auto` means), vsock, or a \
            second serial line",
    ),
    tune::TUNE,
    tune::PIN,
    tune::CPU,
    tune::TOPOLOGY,
    tune::HUGEPAGES,
    tune::IOTHREAD,
    KeySpec::words("devices", &["minimal", "default"]).about(
        "what the machine has besides disk and network: nothing, or the usual video, audio and USB \
            with the usual firmware",
    ),
    KeySpec::text("balloon").or("none").about(
        "memory that the guest starts with beyond its own, and that a balloon has taken back \
            before anything is measured",
    ),
    KeySpec::words("ksm", &["off", "on"]).about("whether the host's kernel merges equal pages of guests"),
    disk_key(&["none", "raw", "qcow2", "block"]),
    SIZE,
    DEVICE,
    STORAGE,
    KeySpec::words("cache", CACHE_WORDS).about(
        "whether the host's page cache stands between the guest and its disks, and who flushes, \
            as QEMU names it",
    ),
    KeySpec::words("aio", &["auto", "native", "io_uring", "threads"])
        .about("how QEMU reads and writes the disks; auto: native without the page cache, else threads"),
    KeySpec::words("root", &["auto", "initramfs", "disk", "virtiofs", "9p"]).about(
        "what holds the root: memory, a disk made from the image, shared files of the host; auto: \
            shared if possible",
    ),
    KeySpec::words("init", &["single", "full"])
        .about("what runs inside: one program, or a system with systemd from a disk"),
    KeySpec::words("net", net::WORDS).about(
        "network: none, user (QEMU's own, published ports only), passt (the same by passt), tap (a \
            link with the client only), bridge (an address on a bridge of the run), nat (behind \
            address translation)",
    ),
    KeySpec::words("vhost", net::VHOST_WORDS).about(
        "whether the host's kernel carries packets between tap and guest instead of QEMU; auto: \
            where it can",
    ),
    common_keys::CPUS,
    common_keys::MEMORY,
    common_keys::ROOTFS,
    keys::BINARY,
];
