//! The messages.

use alloc::{boxed::Box, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Version of the protocol; host and probe of different versions do not talk. Changes: 1, first
/// version; 2, facts of programs, mounts and mitigations; 3, when the probe began; 4, facts of
/// network interfaces and kernel settings; 5, a file as standard input.
pub const VERSION: u32 = 5;

/// Bytes after which a probe on a terminal sends [`Reply::Taken`]. A terminal drops bytes that its
/// reader does not take in time (N_TTY of Linux buffers 4095), so the host keeps fewer in flight.
pub const CREDIT: usize = 1 << 10;

/// Bytes of standard input that may be in flight to a command.
pub const INPUT_WINDOW: usize = 256 << 10;

/// Instead of the name of a network interface: that of the default route, or the only one besides
/// `lo` if there is no such route.
pub const DEFAULT_LINK: &str = "";

/// `PATH` of every measured command: the usual path of root. Programs without a slash are also
/// searched for beside the probe.
pub const COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// From the host to the probe. `Hello` stays the first variant in every version, so that two
/// versions can tell each other apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// First message.
    Hello {
        /// [`VERSION`] of the host.
        version: u32,
    },
    /// Run a command. Answered by [`Reply::Started`] or [`Reply::Refused`], any number of
    /// [`Reply::Output`], then [`Reply::Ended`].
    Run {
        /// The id, chosen by the host.
        id: u32,
        /// What to run.
        command: Command,
    },
    /// Bytes for the standard input of the running command. Answered by [`Reply::InputTaken`] as
    /// the command reads them. The host never has more than [`crate::INPUT_WINDOW`] bytes in
    /// flight, so that a command that does not read costs the guest no memory and delays no signal.
    Input {
        /// The id of the running command.
        id: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// End of the standard input. Answered by nothing.
    CloseInput {
        /// The id of the running command.
        id: u32,
    },
    /// Send a signal to the process group of the running command. Answered by nothing but the end
    /// of the command.
    Signal {
        /// The id of the running command.
        id: u32,
        /// Signal number.
        signal: i32,
    },
    /// Write a file; the first part creates or empties it, further parts append. Answered by
    /// [`Reply::Done`] or [`Reply::Refused`].
    Put {
        /// The id, chosen by the host.
        id: u32,
        /// Absolute path in the guest; missing directories are made.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Whether this is the first part.
        first: bool,
        /// The bytes of this part.
        bytes: Vec<u8>,
    },
    /// Read a file. Answered by any number of [`Reply::File`], then [`Reply::Done`] or
    /// [`Reply::Refused`]: EFBIG (27) when the file is larger than the limit.
    Get {
        /// The id, chosen by the host.
        id: u32,
        /// Absolute path in the guest.
        path: String,
        /// The largest size that the host accepts, bytes.
        limit_bytes: u64,
    },
    /// Read the guest's clocks. Answered by [`Reply::Clock`] at once.
    Clock {
        /// The id, chosen by the host.
        id: u32,
    },
    /// Describe the guest from inside. Answered by [`Reply::Facts`].
    Facts {
        /// The id, chosen by the host.
        id: u32,
        /// What to describe in addition to the guest.
        about: Questions,
    },
    /// End: power off as PID 1 of a machine, else exit with status 0. [`Reply::Done`] is sent
    /// first.
    Shutdown {
        /// The id, chosen by the host.
        id: u32,
    },
}

/// Facts of a guest that are described only on request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// Programs, as in [`Command::argv`], looked up in [`COMMAND_PATH`]. The interpreters of
    /// scripts are described after them.
    pub programs: Vec<String>,
    /// Absolute paths whose mounts are described.
    pub paths: Vec<String>,
    /// Network interfaces by name, or [`DEFAULT_LINK`].
    pub links: Vec<String>,
    /// Kernel settings as sysctl(8) names them: `net.core.somaxconn`.
    pub settings: Vec<String>,
}

/// A command to run in the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. A program without a slash is looked up beside the probe first, then
    /// in `PATH` of `environment`.
    pub argv: Vec<String>,
    /// The whole environment of the command.
    pub environment: Vec<(String, String)>,
    /// Working directory; the root when absent.
    pub working_directory: Option<String>,
    /// Its standard input.
    pub input: Input,
    /// Bytes of each of standard output and standard error that are sent. Further output is read,
    /// counted and discarded, so that a verbose command neither blocks nor fills the host's memory.
    pub output_limit_bytes: u64,
}

/// The standard input of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Nothing: `/dev/null`.
    #[default]
    Empty,
    /// A pipe fed by [`Request::Input`].
    Pipe,
    /// A file of the guest, from its beginning; a relative path begins at the working directory.
    File(String),
}

/// From the probe to the host. `Hello` stays the first variant in every version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Answer to [`Request::Hello`].
    Hello {
        /// [`VERSION`] of the probe.
        version: u32,
        /// PID of the probe in its own PID namespace.
        pid: u32,
        /// Start of the probe, before anything else: `CLOCK_MONOTONIC` of the guest, nanoseconds.
        started_ns: u64,
    },
    /// The command runs.
    Started {
        /// The id of the request.
        id: u32,
        /// PID of the command in the guest.
        pid: u32,
    },
    /// The command's standard input took some bytes, or is closed and they were discarded.
    InputTaken {
        /// The id of the request.
        id: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// A piece of the command's output.
    Output {
        /// The id of the request.
        id: u32,
        /// Which stream.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The command and every process of its group have ended, and all output has been sent.
    Ended {
        /// The id of the request.
        id: u32,
        /// How it ended and what it used.
        end: EndOfCommand,
    },
    /// The request could not be done.
    Refused {
        /// The id of the request.
        id: u32,
        /// What failed, for display.
        reason: String,
        /// The error number, 0 when there is none. ENOENT (2) for a program that does not exist.
        errno: i32,
    },
    /// A piece of a file.
    File {
        /// The id of the request.
        id: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The request is done.
    Done {
        /// The id of the request.
        id: u32,
    },
    /// Answer to [`Request::Clock`].
    Clock {
        /// The id of the request.
        id: u32,
        /// The reading.
        reading: ClockReading,
    },
    /// Answer to [`Request::Facts`].
    Facts {
        /// The id of the request.
        id: u32,
        /// The facts.
        facts: Box<GuestFacts>,
    },
    /// Only over a terminal, unsolicited: this many bytes of the channel were read since the last
    /// such reply, [`CREDIT`] or more.
    Taken {
        /// How many.
        bytes: u32,
    },
}

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// How a command ended and what it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndOfCommand {
    /// Exit status or signal.
    pub status: Status,
    /// From just before the process was made to the end of its main process, `CLOCK_MONOTONIC` of
    /// the guest, nanoseconds.
    pub duration_ns: u64,
    /// What the command and its waited-for children used (`wait4(2)`, `getrusage(2)`).
    pub resources: ResourceUse,
    /// Bytes that the command wrote to standard output, sent or not.
    pub output_bytes: u64,
    /// Bytes that the command wrote to standard error, sent or not.
    pub error_bytes: u64,
}

/// `struct rusage` in named units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Largest resident set, bytes.
    pub maximum_resident_set_bytes: u64,
    /// Page faults without input.
    pub minor_faults: u64,
    /// Page faults with input.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// The guest's clocks, read in immediate succession.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`, nanoseconds since the epoch.
    pub realtime_ns: u64,
}

/// The guest as seen from inside. Absent values could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// `/proc/sys/kernel/random/boot_id`: equal to the host's when the kernel is the host's.
    pub boot: Option<String>,
    /// CPUs that the probe may run on (`sched_getaffinity(2)`).
    pub cpus: Vec<u32>,
    /// `MemTotal` of `/proc/meminfo`, bytes.
    pub memory_total_bytes: Option<u64>,
    /// Memory limit of the probe's own cgroup as seen inside, bytes; absent when unlimited or not
    /// visible.
    pub memory_limit_bytes: Option<u64>,
    /// Whether the probe is PID 1.
    pub init: bool,
    /// Effective user id.
    pub user: u32,
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`.
    pub clock_source: Option<String>,
    /// The selected word of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub transparent_huge_pages: Option<String>,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub operating_system: Option<String>,
    /// File system type of `/`.
    pub root_file_system: Option<String>,
    /// Names of network interfaces.
    pub network_interfaces: Vec<String>,
    /// Model of the CPU as `/proc/cpuinfo` names it.
    pub cpu_model: Option<String>,
    /// Files of `/sys/devices/system/cpu/vulnerabilities` and what they say, sorted by name.
    pub mitigations: Vec<(String, String)>,
    /// `/proc/sys/kernel/randomize_va_space`.
    pub aslr: Option<String>,
    /// The requested programs, in that order, then the interpreters of scripts among them.
    pub programs: Vec<ProgramFacts>,
    /// The mounts of the requested paths, in that order; missing paths are left out.
    pub mounts: Vec<MountFacts>,
    /// The requested network interfaces, in that order; missing ones are left out.
    pub links: Vec<LinkFacts>,
    /// The requested kernel settings that can be read, in that order: name and value, with single
    /// spaces between words.
    pub settings: Vec<(String, String)>,
}

/// A network interface. Absent values are not shown by the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// Its name.
    pub name: String,
    /// Its driver (`ETHTOOL_GDRVINFO`): `veth`, `virtio_net`; `loopback` for the loopback
    /// interface, which has none.
    pub driver: Option<String>,
    /// Its MTU, bytes (`SIOCGIFMTU`).
    pub mtu_bytes: Option<u32>,
    /// Offloads that are on (`ETHTOOL_GTSO` and its like): `tx-checksum`, `rx-checksum`,
    /// `scatter-gather`, `tso`, `gso`, `gro`, `lro`, `ufo`.
    pub offloads: Option<Vec<String>>,
}

/// A program that the guest would run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Its name as requested.
    pub name: String,
    /// Its path; absent if it was not found.
    pub path: Option<String>,
    /// SHA-256 of the file, hexadecimal; absent if it cannot be read.
    pub digest: Option<String>,
    /// `static`, or the SHA-256 of the C library that its loader would use, or the reason why there
    /// is none.
    pub libc: Option<String>,
}

/// A mount in the guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MountFacts {
    /// The requested path.
    pub path: String,
    /// File system type.
    pub kind: String,
    /// Mount options, as `/proc/self/mounts` has them.
    pub options: String,
}
