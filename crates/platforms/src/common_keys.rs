//! The keys that platforms have in common: a word means the same wherever a platform takes it.
//!
//! A platform lists those that it supports in its `keys`; [`crate::resolve`] refuses any other key
//! and names the supported ones. Drivers need not handle `cpus`, `memory` and `rootfs`: whoever
//! makes a request applies them by [`apply_cpus_and_memory`] and [`image`].

use crate::{GuestRequest, KeySpec, Platform, setting};
use std::path::{Path, PathBuf};
use weigh_images::store::Store;
use weigh_model::{EnvironmentSpec, ImageSpec, SpecError, parse_bytes};

/// `cpus`: how many of the run's CPUs each guest of this environment gets.
pub const CPUS: KeySpec = KeySpec::number("cpus")
    .about("number of CPUs, the first of those that the run uses; default: all of them");

/// `memory`: the memory limit of this environment alone.
pub const MEMORY: KeySpec =
    KeySpec::text("memory").about("memory limit of this environment, as in 512MiB; default: that of the run");

/// `rootfs`: the root file system of this environment alone.
pub const ROOTFS: KeySpec = KeySpec::text("rootfs").about(
    "root file system: host, probe, debian, a directory or tar archive, oci:REF; default: that of the run",
);

/// `seccomp`: whether the platform's usual system call filter is on.
pub const SECCOMP: KeySpec =
    KeySpec::words("seccomp", &["on", "off"]).about("the platform's usual filter of system calls, on or off");

/// `seccomp` of platforms without a filter of their own: `on` has the effect of Docker's filter.
pub const SECCOMP_OFF: KeySpec = KeySpec {
    default: "off",
    summary: "a filter of system calls with the effect of Docker's usual one, on or off",
    ..SECCOMP
};

/// `user`: which user of the host the guest's root is.
pub const USER: KeySpec = KeySpec::words("user", &["root", "mapped"])
    .about("root of the host, or root of a user namespace, without rights outside it");

/// `storage`: what lies behind the guest's `/var/tmp`.
pub const STORAGE: KeySpec = KeySpec::words("storage", &["tmpfs", "volume", "overlay"])
    .about("what holds /var/tmp: memory, a directory of the host, or an overlay file system above one");

/// `binary`: the program of the platform.
pub const BINARY: KeySpec = KeySpec::path("binary")
    .about("the program to use instead of the installed one, so that two builds can be compared");

/// `net` with the modes that a platform has; the first one is the default.
pub const fn net(words: &'static [&'static str]) -> KeySpec {
    KeySpec::words("net", words).about(
        "network: none (only loopback), host (the host's own), bridge (an address on a bridge of \
            its own), nat (behind address translation), proxy (published ports through a user-space proxy)",
    )
}

/// The keys of a platform whose program makes a sandbox or a container without an engine; `words`
/// are the modes of `net`.
pub(crate) const fn of_program(words: &'static [&'static str]) -> [KeySpec; 6] {
    [net(words), STORAGE, CPUS, MEMORY, ROOTFS, BINARY]
}

/// Finds the program of a platform: the file that `binary` names, or the installed one.
///
/// # Errors
/// [`crate::PlatformError::Unavailable`] with the remedy.
pub(crate) fn program(
    platform: &dyn Platform,
    environment: &EnvironmentSpec,
    installed: &str,
    remedy: &str,
) -> crate::Result<PathBuf> {
    let binary = setting(platform, environment, "binary");
    let name = if binary.is_empty() { installed } else { binary };
    let missing = || match name.contains('/') && Path::new(name).is_file() {
        true => crate::PlatformError::unavailable(
            format!("the file {name} may not be executed"),
            format!("make it a program with `chmod +x {name}`"),
        ),
        false => crate::PlatformError::program_missing(name, remedy),
    };
    let found = weigh_host::command::find_program(name).ok_or_else(missing)?;
    // It may be run in another directory.
    found.canonicalize().map_err(crate::PlatformError::io(format!("resolve {name}")))
}

/// How a guest whose root is put together from binds, with a network by the key `net`, differs from
/// the host by design: pairs of parity key and reason.
pub(crate) const OWN_ROOT: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds"),
    ("network", "a network namespace of its own, as `net` says"),
];

/// [`OWN_ROOT`] for a guest of an ordinary user.
pub(crate) const OWN_ROOT_MAPPED: &[(&str, &str)] = &[
    OWN_ROOT[0],
    OWN_ROOT[1],
    OWN_ROOT[2],
    ("user", "an ordinary user is root in a user namespace of its own"),
];

/// Returns [`OWN_ROOT`] for root and [`OWN_ROOT_MAPPED`] for an ordinary user.
pub(crate) fn own_root() -> &'static [(&'static str, &'static str)] {
    if weigh_host::facts::is_root() { OWN_ROOT } else { OWN_ROOT_MAPPED }
}

/// Adds a remedy for ordinary users where the host refuses them namespaces.
pub(crate) fn with_namespaces_remedy(found: crate::Availability, host: &crate::Host) -> crate::Availability {
    match found {
        crate::Availability::Missing { reason, remedy: None } if !host.is_root => {
            crate::Availability::Missing {
                reason,
                remedy: Some(crate::remedy::for_namespaces(Path::new("/"))),
            }
        }
        other => other,
    }
}

/// Refuses images without an init for guests that boot a system.
///
/// # Errors
/// An invalid `rootfs`, underlined.
pub(crate) fn check_system_image(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    match environment.get("rootfs") {
        Some(word @ ("host" | "probe")) => {
            let message = format!("the image `{word}` has no system that could be started");
            let help = "write `rootfs=debian`, a directory or an archive with systemd in it";
            Err(environment.value_error("rootfs", message, help))
        }
        _ => Ok(()),
    }
}

/// Refuses the host's network for guests that boot a system.
///
/// # Errors
/// An invalid `net`, underlined.
pub(crate) fn check_system_network(
    platform: &dyn Platform,
    environment: &EnvironmentSpec,
) -> Result<(), SpecError> {
    if setting(platform, environment, "net") != "host" {
        return Ok(());
    }
    let message = "a system would set up the host's own network as it starts";
    let help =
        "write `net=none`, `net=bridge` or `net=nat`, or `init=single` for one program in the host's network";
    Err(environment.value_error("net", message, help))
}

/// Checks what [`KeySpec`] cannot express about the common keys. Called for every environment.
///
/// # Errors
/// An invalid value, underlined.
pub(crate) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    if environment.get("cpus") == Some("0") {
        return Err(environment.value_error("cpus", "an environment needs at least 1 CPU", "as in `cpus=1`"));
    }
    if let Some(text) = environment.get("memory") {
        let too_small = |message: String| {
            environment.value_error("memory", message, "give at least 16MiB, as in `memory=512MiB`")
        };
        match parse_bytes(text) {
            Ok(bytes) if bytes >= 16 << 20 => {}
            Ok(_) => return Err(too_small(format!("`{text}` is too small for any guest"))),
            Err(error) => return Err(too_small(error.to_string())),
        }
    }
    if let Some(image) = rootfs(environment)
        && let Err(error) = Store::check(&image)
    {
        let help = "write `host`, `probe`, `debian`, `oci:REF`, or the path of a directory or a tar archive";
        return Err(environment.value_error("rootfs", error.to_string(), help));
    }
    Ok(())
}

/// Returns the image that an environment names itself, if any.
pub fn rootfs(environment: &EnvironmentSpec) -> Option<ImageSpec> {
    environment.get("rootfs").map(|text| match ImageSpec::from(text.to_string()) {
        // The run may be resumed from another directory.
        ImageSpec::Path(path) => ImageSpec::Path(std::path::absolute(&path).unwrap_or(path)),
        other => other,
    })
}

/// Returns the image of an environment: its own if it names one, else the run's. A guest with its
/// own init boots the Debian image if the run's image holds no system.
pub fn image(platform: &dyn Platform, environment: &EnvironmentSpec, of_run: &ImageSpec) -> ImageSpec {
    let boots = || platform.capabilities(environment).system;
    match rootfs(environment) {
        Some(own) => own,
        None if matches!(of_run, ImageSpec::Host | ImageSpec::Probe) && boots() => ImageSpec::Debian,
        None => of_run.clone(),
    }
}

/// Applies the environment's own `cpus` and `memory` to a request of the run. `all_cpus` are the
/// host's, for a run that names none.
pub fn apply_cpus_and_memory(mut request: GuestRequest, all_cpus: &[u32]) -> GuestRequest {
    if let Some(count) = request.environment.get("cpus").and_then(|text| text.parse::<usize>().ok()) {
        if request.cpus.is_empty() {
            request.cpus = all_cpus.to_vec();
        }
        request.cpus.truncate(count.max(1));
    }
    if let Some(bytes) = request.environment.get("memory").and_then(|text| parse_bytes(text).ok()) {
        request.memory_bytes = Some(bytes);
    }
    request
}

/// The reason for a difference in memory by the key `memory`, which may be of any amount.
pub const MEMORY_BY_KEY: &str = "its key `memory` says so";

/// How a machine's network differs from that of guests on the host's kernel, and from another
/// machine's.
pub const VIRTUAL_NIC_DIFFERENCES: &[(&str, &str)] = &[
    ("network-interface", "a card of the machine's own"),
    ("network-offloads", "what the machine's card and its driver agree on"),
    ("network-path:guest", "what the machine's card and its driver agree on"),
    ("sysctl:net.ipv4.tcp_rmem", "its kernel sizes it by the memory that it finds"),
    ("sysctl:net.ipv4.tcp_wmem", "its kernel sizes it by the memory that it finds"),
];

/// The reason why guests on another machine differ. They may differ in anything that depends on the
/// machine, including mitigations and the amount of memory.
pub const ANOTHER_MACHINE: &str = "another machine";

/// Returns why a guest on another machine differs by its nature: (parity key, reason). The
/// arguments are the reasons for another user, another network and another acceleration.
pub const fn on_another_machine(
    user: &'static str,
    network: &'static str,
    acceleration: &'static str,
) -> [(&'static str, &'static str); 16] {
    [
        ("kernel", ANOTHER_MACHINE),
        ("architecture", ANOTHER_MACHINE),
        ("cpu-model", ANOTHER_MACHINE),
        ("cpus", ANOTHER_MACHINE),
        ("memory", ANOTHER_MACHINE),
        ("operating-system", ANOTHER_MACHINE),
        ("libc", ANOTHER_MACHINE),
        ("binary:", ANOTHER_MACHINE),
        ("transparent-huge-pages", ANOTHER_MACHINE),
        ("mitigations", ANOTHER_MACHINE),
        ("clock-source", ANOTHER_MACHINE),
        ("aslr", ANOTHER_MACHINE),
        ("mounts:*", ANOTHER_MACHINE),
        ("user", user),
        ("network", network),
        ("acceleration", acceleration),
    ]
}

/// Returns how an environment's common keys make it differ from others: (parity key, reason).
///
/// `own_image`: whether its image is another one than the run's.
pub fn implied(environment: &EnvironmentSpec, own_image: bool) -> Vec<(&'static str, &'static str)> {
    const BY_KEY: &[(&str, &[(&str, &str)])] = &[
        ("cpus", &[("cpus", "its key `cpus` says so")]),
        ("memory", &[("memory", MEMORY_BY_KEY)]),
        (
            "storage",
            &[
                ("mounts:scratch", "its key `storage` says so"),
                ("mounts:/var/tmp", "its key `storage` says so"),
            ],
        ),
        ("user", &[("user", "its key `user` says so")]),
    ];
    const BY_IMAGE: &[(&str, &str)] = &[
        ("operating-system", "a root file system of its own"),
        ("libc", "a root file system of its own"),
        ("binary:", "a root file system of its own"),
        ("mounts:", "a root file system of its own"),
    ];
    let has = |key: &&(&str, &[(&'static str, &'static str)])| environment.get(key.0).is_some();
    let by_key = BY_KEY.iter().filter(has).flat_map(|(_, implied)| implied.iter().copied());
    by_key.chain(BY_IMAGE.iter().copied().filter(|_| own_image)).collect()
}

/// What holds a guest's `/var/tmp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A tmpfs of the guest's own.
    Tmpfs,
    /// An empty directory of the host with mode 1777.
    Volume(PathBuf),
    /// An overlay of these directories of the host, which all exist and are empty.
    Overlay {
        /// Lowest layer.
        lower: PathBuf,
        /// The layer that takes writes; mode 1777.
        upper: PathBuf,
        /// The kernel's work directory, on the same file system as `upper`.
        work: PathBuf,
    },
}

impl Storage {
    /// Where the storage is mounted in the guest.
    pub const TARGET: &'static str = "/var/tmp";

    /// Whether a place in the guest lies below [`Storage::TARGET`], so that it is mounted after the
    /// storage.
    pub fn holds(place: &std::path::Path) -> bool {
        place.starts_with(Self::TARGET) && place != std::path::Path::new(Self::TARGET)
    }

    /// Makes the directories of a guest's storage below the run's work directory, which is in the
    /// ledger already and must lie on a disk. A driver removes `<work>/<name>-storage` when the
    /// guest has ended. That directory is closed to others, because a guest's root may leave
    /// programs with set-user-ID bits in it.
    ///
    /// # Errors
    /// They could not be made.
    pub fn make(word: &str, work: &std::path::Path, name: &str) -> std::io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let base = work.join(format!("{name}-storage"));
        let make = |part: &str| {
            let path = base.join(part);
            weigh_host::private::close(&base).map_err(std::io::Error::other)?;
            std::fs::create_dir_all(&path)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777))?;
            Ok::<_, std::io::Error>(path)
        };
        Ok(match word {
            "volume" => Self::Volume(make("volume")?),
            "overlay" => {
                make("merged")?;
                Self::Overlay { lower: make("lower")?, upper: make("upper")?, work: make("work")? }
            }
            _ => Self::Tmpfs,
        })
    }

    /// Makes sure that a root has a mount point for the storage ([`Storage::make_target`]). A tmpfs
    /// needs none: it is one of the root's own scratch mounts, or absent.
    ///
    /// # Errors
    /// The errors of [`Storage::make_target`].
    pub fn place(&self, root: &weigh_images::Root) -> std::io::Result<()> {
        if *self == Self::Tmpfs { Ok(()) } else { Self::make_target(root) }
    }

    /// Makes sure that a root has something at [`Storage::TARGET`]: a scratch mount of the root, or
    /// a directory of the skeleton.
    ///
    /// # Errors
    /// The image has a `/var` without a `tmp`, and none can be made below a read-only bind; or a
    /// directory could not be made.
    pub fn make_target(root: &weigh_images::Root) -> std::io::Result<()> {
        let target = std::path::Path::new(Self::TARGET);
        if root.scratch.iter().any(|path| path == target) {
            return Ok(());
        }
        if root.binds.iter().any(|bind| target.starts_with(&bind.target)) {
            return Err(std::io::Error::other(format!("the image has no {}", Self::TARGET)));
        }
        std::fs::create_dir_all(root.skeleton.join("var/tmp"))
    }

    /// Returns where an overlay is mounted for a program that takes only directories, else `None`.
    pub fn merged(&self) -> Option<PathBuf> {
        match self {
            Self::Overlay { lower, .. } => Some(lower.with_file_name("merged")),
            _ => None,
        }
    }

    /// Returns the directory of the host that holds the whole storage, if there is one.
    pub fn directory(&self) -> Option<&std::path::Path> {
        match self {
            Self::Tmpfs => None,
            Self::Volume(part) | Self::Overlay { lower: part, .. } => part.parent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> EnvironmentSpec {
        EnvironmentSpec::parse(text).unwrap()
    }

    #[test]
    fn bad_values_are_underlined() {
        for (text, wrong) in [
            ("runc:cpus=0", "0"),
            ("runc:memory=much", "much"),
            ("runc:memory=1KiB", "1KiB"),
            ("runc:rootfs=/nowhere/at/all", "/nowhere/at/all"),
        ] {
            let error = check(&spec(text)).unwrap_err();
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
            assert!(
                error.help.is_some() || error.message.contains(": give "),
                "{text}: no remedy in {}",
                error.message
            );
        }
        check(&spec("runc:cpus=2,memory=1GiB,rootfs=probe")).unwrap();
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_not_called_missing() {
        let directory = tempfile::tempdir().unwrap();
        let built = directory.path().join("runc");
        let found = || {
            let environment = spec(&format!("runc:binary={}", built.display()));
            program(crate::find("runc").unwrap(), &environment, "runc", "build it").map_err(|e| e.to_string())
        };
        assert!(found().unwrap_err().contains("is missing"));
        std::fs::write(&built, "").unwrap();
        assert!(found().unwrap_err().contains("may not be executed"));
        std::fs::set_permissions(&built, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(found(), Ok(built.canonicalize().unwrap()));
    }

    #[test]
    fn differences_that_the_keys_ask_for_are_intended() {
        assert!(implied(&spec("runc"), false).is_empty());
        let keys: Vec<&str> =
            implied(&spec("runc:cpus=1,rootfs=debian"), true).iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["cpus", "operating-system", "libc", "binary:", "mounts:"]);
    }

    #[test]
    fn full_init_boots_a_system_image() {
        let image = |text: &str, of_run: &str| {
            let platform = crate::find("lxc").unwrap();
            super::image(platform, &spec(text), &ImageSpec::from(of_run.to_string())).to_string()
        };
        assert_eq!(image("lxc", "host"), "host");
        assert_eq!(image("lxc:rootfs=probe", "host"), "probe");
        assert_eq!(image("lxc:init=full", "host"), "debian");
        assert_eq!(image("lxc:init=full", "/a/system"), "/a/system");
        assert_eq!(image("lxc:init=full,rootfs=/another", "host"), "/another");
    }

    #[test]
    fn storage_has_its_directories() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(Storage::make("tmpfs", base.path(), "a").unwrap(), Storage::Tmpfs);
        let Storage::Overlay { lower, upper, work } = Storage::make("overlay", base.path(), "a").unwrap()
        else {
            panic!()
        };
        assert!(lower.is_dir() && upper.is_dir() && work.is_dir());
        let Storage::Volume(volume) = Storage::make("volume", base.path(), "a").unwrap() else { panic!() };
        assert!(volume.starts_with(base.path().join("a-storage")));
        let mode = |path: &std::path::Path| std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
        assert_eq!((mode(&base.path().join("a-storage")) & 0o7777, mode(&volume) & 0o7777), (0o700, 0o1777));
    }
}
