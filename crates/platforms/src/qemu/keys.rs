//! The keys of a machine.

use super::disks::CACHE_WORDS;
use super::{MACHINES, channel, net};
use crate::axes;
use crate::vm::disk::{DEVICE, SIZE, STORAGE, disk_key};
use crate::vm::{keys, tune};
use crate::{KeySpec, Values};

/// In the order in which they are listed.
pub(super) const KEYS: &[KeySpec] = &[
    keys::ACCEL,
    keys::KERNEL,
    KeySpec {
        name: "machine",
        values: Values::Words(MACHINES),
        default: MACHINES[0],
        summary: "QEMU's type of machine",
    },
    KeySpec {
        name: "channel",
        values: Values::Words(channel::WORDS),
        default: "auto",
        summary: "what host and probe talk over: a port of virtio-serial, which `auto` is, vsock, or a second serial line",
    },
    tune::TUNE,
    tune::PIN,
    tune::CPU,
    tune::TOPOLOGY,
    tune::HUGEPAGES,
    tune::IOTHREAD,
    KeySpec {
        name: "devices",
        values: Values::Words(&["minimal", "default"]),
        default: "minimal",
        summary: "what the machine has beside disk and network: nothing, or the usual video, audio and USB with the usual firmware",
    },
    KeySpec {
        name: "balloon",
        values: Values::Text,
        default: "none",
        summary: "memory that the guest starts with beyond its own, and that a balloon has taken back before anything is measured",
    },
    KeySpec {
        name: "ksm",
        values: Values::Words(&["off", "on"]),
        default: "off",
        summary: "whether the host's kernel merges equal pages of guests",
    },
    disk_key(&["none", "raw", "qcow2", "block"]),
    SIZE,
    DEVICE,
    STORAGE,
    KeySpec {
        name: "cache",
        values: Values::Words(CACHE_WORDS),
        default: CACHE_WORDS[0],
        summary: "whether the host's page cache stands between the guest and its disks, and who flushes, as QEMU names it",
    },
    KeySpec {
        name: "aio",
        values: Values::Words(&["auto", "native", "io_uring", "threads"]),
        default: "auto",
        summary: "how QEMU reads and writes the disks; auto: native past the page cache, else threads",
    },
    KeySpec {
        name: "root",
        values: Values::Words(&["auto", "initramfs", "disk", "virtiofs", "9p"]),
        default: "auto",
        summary: "what holds the root: memory, a disk made of the image, shared files of the host; auto: shared if that can be had",
    },
    KeySpec {
        name: "init",
        values: Values::Words(&["single", "full"]),
        default: "single",
        summary: "what runs inside: one program, or a system with systemd from a disk",
    },
    KeySpec {
        name: "net",
        values: Values::Words(net::WORDS),
        default: net::WORDS[0],
        summary: "network: none, user (QEMU's own, published ports alone), tap (a link with the client alone), bridge (an address on a \
bridge of the run), nat (behind address translation)",
    },
    KeySpec {
        name: "vhost",
        values: Values::Words(net::VHOST_WORDS),
        default: net::VHOST_WORDS[0],
        summary: "whether the host's kernel carries packets between tap and guest instead of QEMU; auto: where it can",
    },
    axes::CPUS,
    axes::MEMORY,
    axes::ROOTFS,
    keys::BINARY,
];
