//! What the kernels must know about the machine: its CPUs, its caches, its vector instructions.

use crate::kernel::KernelError;
#[cfg(not(target_family = "wasm"))]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::path::Path;

/// The CPUs that this process may use, in ascending order.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, KernelError> {
    let set = sched_getaffinity(None).map_err(KernelError::system("read the CPU affinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// WebAssembly shows a program no CPUs. It has one thread, which counts as one CPU here.
#[cfg(target_family = "wasm")]
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, KernelError> {
    Ok(vec![0])
}

/// Binds the calling thread to one CPU.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn pin_to(cpu: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Does nothing: only the runtime's user can bind it to a CPU.
#[cfg(target_family = "wasm")]
pub(crate) fn pin_to(_: usize) -> std::io::Result<()> {
    Ok(())
}

/// Lets the calling thread run on all of `cpus` again.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn pin_to_all(cpus: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Does nothing, as [`pin_to`] has done nothing.
#[cfg(target_family = "wasm")]
pub(crate) fn pin_to_all(_: &[usize]) -> std::io::Result<()> {
    Ok(())
}

/// Bytes of all last-level caches that `cpus` can reach, each counted once, for STREAM's size rule.
///
/// Read from `/sys` or, without it, from the C library (the CPUID of one CPU). `None` if neither
/// reports it.
pub(crate) fn last_level_cache_bytes(cpus: &[usize]) -> Option<u64> {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for cpu in cpus {
        if let Some((owner, bytes)) = last_cache_of(&format!("/sys/devices/system/cpu/cpu{cpu}/cache"))
            && seen.insert(owner)
        {
            total += bytes;
        }
    }
    if total > 0 { Some(total) } else { cache_by_c_library() }
}

/// The list of CPUs that share the highest cache below `directory`, and its size.
fn last_cache_of(directory: &str) -> Option<(String, u64)> {
    let mut last: Option<(u32, String, u64)> = None;
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let found = (|| {
            if read("type")?.trim() == "Instruction" {
                return None;
            }
            let level: u32 = read("level")?.trim().parse().ok()?;
            let bytes = weigh_model::parse_bytes(read("size")?.trim()).ok()?;
            Some((level, read("shared_cpu_list")?, bytes))
        })();
        if let Some(cache) = found
            && last.as_ref().is_none_or(|(level, ..)| cache.0 > *level)
        {
            last = Some(cache);
        }
    }
    last.map(|(_, owner, bytes)| (owner, bytes))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn cache_by_c_library() -> Option<u64> {
    [libc::_SC_LEVEL4_CACHE_SIZE, libc::_SC_LEVEL3_CACHE_SIZE, libc::_SC_LEVEL2_CACHE_SIZE]
        .into_iter()
        // SAFETY: sysconf takes no pointer.
        .map(|name| unsafe { libc::sysconf(name) })
        .find(|bytes| *bytes > 0)
        .map(|bytes| bytes as u64)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn cache_by_c_library() -> Option<u64> {
    None
}

/// The widest vector instructions that the kernels have code for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vector {
    /// The compiler's code for plain loops: NEON on aarch64, SSE2 on x86-64, 16-byte vectors in
    /// WebAssembly.
    Portable,
    /// 16-byte vectors of every x86-64.
    Sse2,
    /// 32-byte vectors.
    Avx2,
    /// 64-byte vectors.
    Avx512f,
}

impl Vector {
    /// All of them, with their names in options.
    pub(crate) const NAMES: [(&str, Self); 4] = [
        ("portable", Self::Portable),
        ("sse2", Self::Sse2),
        ("avx2", Self::Avx2),
        ("avx512f", Self::Avx512f),
    ];

    /// The widest that this CPU has.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                Self::Avx512f
            } else if is_x86_feature_detected!("avx2") {
                Self::Avx2
            } else {
                Self::Sse2
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::Portable
    }

    /// The vector instructions of `--vector`; an error if this CPU does not have them.
    pub(crate) fn choose(word: &str) -> Result<Self, KernelError> {
        let widest = Self::detect();
        match Self::NAMES.iter().find(|(name, _)| *name == word) {
            None => Ok(widest),
            Some((_, vector)) if *vector <= widest => Ok(*vector),
            Some(_) => Err(KernelError::Unable(format!(
                "this CPU has no {word}; the widest it has is {}: leave `--vector` out",
                widest.name()
            ))),
        }
    }

    /// The name in the facts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable if cfg!(target_arch = "aarch64") => "neon",
            Self::Portable if cfg!(target_feature = "simd128") => "simd128",
            other => {
                Self::NAMES.iter().find(|(_, vector)| *vector == other).map_or("portable", |(name, _)| name)
            }
        }
    }
}

/// Whether a path is visible: guests often lack /dev or /proc.
pub(crate) fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cpus() {
        let cpus = allowed_cpus().unwrap();
        assert!(!cpus.is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(cpus[cpus.len() - 1]).unwrap();
                assert_eq!(allowed_cpus().unwrap(), [cpus[cpus.len() - 1]]);
                pin_to_all(&cpus).unwrap();
                assert_eq!(allowed_cpus().unwrap(), cpus);
            });
        });
    }

    #[test]
    fn shared_caches_count_once() {
        let cpus = allowed_cpus().unwrap();
        if let (Some(one), Some(twice)) =
            (last_level_cache_bytes(&cpus[..1]), last_level_cache_bytes(&[cpus[0], cpus[0]]))
        {
            assert_eq!(one, twice);
        }
        assert_eq!(last_cache_of("/nowhere"), None);
    }

    #[test]
    fn vectors_are_refused_where_the_cpu_lacks_them() {
        let widest = Vector::detect();
        assert_eq!(Vector::choose("auto").unwrap(), widest);
        for (name, vector) in Vector::NAMES {
            assert_eq!(Vector::choose(name).is_ok(), vector <= widest, "{name}");
        }
    }
}
