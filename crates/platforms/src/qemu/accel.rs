//! What executes a machine's instructions, and the proof of it.
//!
//! Some hosts open `/dev/kvm` and make machines in which no guest ever starts, such as those with
//! broken nested virtualisation. So KVM counts only once a guest with nothing but the probe has
//! answered under it. The result is cached for this boot of the host, this QEMU (or another program
//! that uses KVM) and this kernel.

use crate::remedy::for_kvm;
use crate::{GuestRequest, Host, PlatformError, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use weigh_host::cache::CacheDirectory;

/// Time limit from the start of QEMU to the hello of a guest under KVM, which takes well under a
/// second where KVM works.
pub(crate) const PROOF_DEADLINE: Duration = Duration::from_secs(10);
/// Memory of a guest that is booted only as a proof, bytes.
pub(crate) const PROOF_MEMORY_BYTES: u64 = 256 << 20;
/// `_IO(KVMIO, 0x01)` of `include/uapi/linux/kvm.h`.
const KVM_CREATE_VM: libc::Ioctl = 0xAE01;
/// Directory of the proofs in the cache.
const CACHE: &str = "acceleration";
/// Name of the result's file in a cache entry.
const RESULT: &str = "result.json";

/// What executes the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acceleration {
    /// The processor, by Linux's KVM.
    Kvm,
    /// QEMU's translator: emulation, whose results say nothing about virtual machines under KVM.
    Tcg,
}

impl Acceleration {
    /// The acceleration that QEMU's answer to `query-kvm` reports.
    pub(crate) fn reported(answer: &Value) -> Self {
        match answer.get("enabled").and_then(Value::as_bool) {
            Some(true) => Self::Kvm,
            _ => Self::Tcg,
        }
    }

    /// The word in `accel=` and in facts.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// The words in which an available platform describes it.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Kvm => "KVM proven by a guest",
            Self::Tcg => "by emulation (accel=tcg), which says nothing about machines under KVM",
        }
    }

    /// QEMU's option. Every CPU of the guest gets a thread. There is no fallback.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }
}

/// Whether KVM works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A guest has answered under KVM.
    Proven,
    /// No guest has.
    Disproven {
        /// What was observed, in words.
        seen: String,
        /// What to do, in words.
        remedy: String,
    },
}

impl Proof {
    /// Turns missing KVM into an error.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with what was observed and what to do.
    pub(crate) fn required(self) -> Result<()> {
        match self {
            Self::Proven => Ok(()),
            Self::Disproven { seen, remedy } => {
                Err(PlatformError::unavailable(format!("KVM does not work: {seen}"), remedy))
            }
        }
    }
}

/// Chooses what executes guests, by the value of `accel`. Where that is emulation because KVM is
/// missing, also returns why. `proof` finds out whether KVM works.
///
/// # Errors
/// KVM is asked for by name and does not work, or `proof` failed.
pub(crate) fn choose(
    asked: &str,
    proof: impl FnOnce() -> Result<Proof>,
) -> Result<(Acceleration, Option<String>)> {
    if asked == "tcg" {
        return Ok((Acceleration::Tcg, None));
    }
    match proof()? {
        Proof::Proven => Ok((Acceleration::Kvm, None)),
        Proof::Disproven { seen, .. } if asked == "auto" => Ok((Acceleration::Tcg, Some(seen))),
        Proof::Disproven { seen, remedy } => {
            let remedy = format!("{remedy}; accel=tcg emulates instead");
            Proof::Disproven { seen, remedy }.required().map(|()| (Acceleration::Kvm, None))
        }
    }
}

/// A request for a guest that proves KVM: one CPU, little memory.
pub(crate) fn proof_request(request: &GuestRequest) -> GuestRequest {
    GuestRequest {
        cpus: weigh_host::facts::allowed_cpus().into_iter().take(1).collect(),
        memory_bytes: Some(PROOF_MEMORY_BYTES),
        ..request.clone()
    }
}

/// What a proof is about. The host's boot is always part of it.
pub(crate) struct Subject<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) kernel: &'a Path,
    /// Type of machine and model of CPU, which also affect the result.
    pub(crate) kind: &'a str,
    pub(crate) cpu: &'a str,
}

impl Subject<'_> {
    /// The name of its cache entry, which changes when a file does.
    fn name(&self, boot: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (self.kind, self.cpu).hash(&mut hasher);
        for path in [self.binary, self.kernel] {
            path.hash(&mut hasher);
            if let Ok(metadata) = path.metadata() {
                (metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
            }
        }
        format!("{CACHE}/{boot}-{:016x}", hasher.finish())
    }
}

/// Returns whether KVM works here. Calls `boot_guest`, which boots a guest within a deadline such as
/// [`PROOF_DEADLINE`], only if no result is cached.
pub(crate) fn prove(
    host: &Host,
    cache: Option<&CacheDirectory>,
    subject: &Subject<'_>,
    boot_guest: impl Fn() -> Result<()>,
) -> Proof {
    if let Err(proof) = try_device(Path::new("/dev/kvm")) {
        // Never cached: it is cheap to check again, and can be fixed without a restart.
        return proof;
    }
    let run = || match boot_guest() {
        Ok(()) => Proof::Proven,
        Err(error) => disproven(&error),
    };
    let Some(cache) = cache else { return run() };
    let boot = weigh_host::facts::host_facts().boot;
    let name = subject.name(&boot);
    let mut fresh = None;
    let entry = cache.directory(&name, &host.ledger, |staging| {
        let proof = run();
        let written = std::fs::write(staging.join(RESULT), to_json(&proof).to_string());
        fresh = Some(proof);
        written
    });
    if let Some(proof) = fresh {
        forget_other_boots(cache, &boot);
        return proof;
    }
    match entry.ok().and_then(|entry| read(&entry)) {
        Some(Proof::Disproven { seen, remedy }) => {
            let place = cache.path().join(&name);
            let remedy = format!("{remedy}, then remove {} or restart the host", place.display());
            Proof::Disproven { seen: format!("{seen} (seen earlier since the host started)"), remedy }
        }
        Some(proof) => proof,
        // Without a usable cache, every call costs a proof.
        None => run(),
    }
}

/// The remedy where KVM makes machines and no guest starts.
const NESTED: &str = "no command makes it work: have nested virtualisation switched on, or repaired, on the machine that this one runs on";

fn disproven(error: &PlatformError) -> Proof {
    let said = match error {
        PlatformError::Launch { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    Proof::Disproven {
        seen: format!("/dev/kvm opens and makes a machine, yet no guest answered: {said}"),
        remedy: NESTED.into(),
    }
}

/// Opens the device and makes a machine with it.
fn try_device(device: &Path) -> Result<(), Proof> {
    let fault = |seen: String, remedy: &str| Proof::Disproven { seen, remedy: remedy.into() };
    let file = File::options().read(true).write(true).open(device).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "join the group with `usermod -aG kvm \"$USER\"` and log in again, or run weigh as root"
                    .into()
            }
            _ => for_kvm(Path::new("/")),
        };
        fault(format!("{} cannot be opened: {error}", device.display()), &remedy)
    })?;
    // SAFETY: the request takes a number and returns a new descriptor, which is closed at once; it
    // touches no memory.
    let machine = unsafe { libc::ioctl(file.as_raw_fd(), KVM_CREATE_VM, 0) };
    if machine < 0 {
        let error = std::io::Error::last_os_error();
        let seen = format!("{} opens, but makes no machine: {error}", device.display());
        return Err(fault(seen, "see what the kernel says of it: `dmesg | grep -i kvm`"));
    }
    // SAFETY: the descriptor is new and has no other owner.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(machine) });
    Ok(())
}

fn to_json(proof: &Proof) -> Value {
    match proof {
        Proof::Proven => json!({"proven": true}),
        // The remedy is left out: the version that reads the entry words it.
        Proof::Disproven { seen, .. } => json!({"proven": false, "seen": seen}),
    }
}

fn read(entry: &Path) -> Option<Proof> {
    let value: Value = serde_json::from_slice(&std::fs::read(entry.join(RESULT)).ok()?).ok()?;
    let text = |name: &str| value.get(name)?.as_str().map(String::from);
    match value.get("proven")?.as_bool()? {
        true => Some(Proof::Proven),
        false => Some(Proof::Disproven { seen: text("seen")?, remedy: NESTED.into() }),
    }
}

/// Removes proofs of earlier boots, which are no longer valid.
fn forget_other_boots(cache: &CacheDirectory, boot: &str) {
    let entries = std::fs::read_dir(cache.path().join(CACHE)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with(boot)) {
        // Ignores errors: entries that stay cost a few bytes.
        let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_none_is_reported() {
        let Err(Proof::Disproven { seen, remedy }) = try_device(Path::new("/no/such/device")) else {
            panic!("it opens")
        };
        let remedy = remedy.to_lowercase();
        assert!(seen.contains("/no/such/device") && remedy.contains("kvm"), "{seen}; {remedy}");
        let Err(Proof::Disproven { seen, .. }) = try_device(Path::new("/dev/null")) else {
            panic!("a machine")
        };
        assert!(seen.contains("makes no machine"), "{seen}");
    }

    #[test]
    fn results_read_back() {
        let base = tempfile::tempdir().unwrap();
        for proof in [Proof::Proven, Proof::Disproven { seen: "silence".into(), remedy: NESTED.into() }] {
            std::fs::write(base.path().join(RESULT), to_json(&proof).to_string()).unwrap();
            assert_eq!(read(base.path()), Some(proof));
        }
        std::fs::write(base.path().join(RESULT), "{}").unwrap();
        assert_eq!(read(base.path()), None);
    }

    #[test]
    fn another_program_is_another_subject() {
        let base = tempfile::tempdir().unwrap();
        let binary = base.path().join("qemu");
        std::fs::write(&binary, "1").unwrap();
        let subject = Subject { binary: &binary, kernel: Path::new("/k"), kind: "q35", cpu: "" };
        let (first, other_boot) = (subject.name("boot"), subject.name("another"));
        assert_eq!(first, subject.name("boot"));
        std::fs::write(&binary, "22").unwrap();
        assert!(first != subject.name("boot") && first != other_boot);
    }
}
