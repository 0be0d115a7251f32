//! The programs that run inside guests, compressed and embedded by the build script.

use crate::error::{Failure, file_failure};
use liblzma::read::XzDecoder;
use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};
use weigh_images::Programs;

static PROBE: &[u8] = include_bytes!(env!("WEIGH_PROBE_XZ"));
static KERNELS: &[u8] = include_bytes!(env!("WEIGH_KERNELS_XZ"));
/// The kernels in WebAssembly; empty where the compiler had no target for them.
static MODULE: &[u8] = include_bytes!(env!("WEIGH_MODULE_XZ"));

/// SHA-256 of each program, in hexadecimal. Every plan records them. Few plans run the module, whose
/// digest is among the facts of its environment.
pub fn digests() -> BTreeMap<String, String> {
    let digests = [("probe", env!("WEIGH_PROBE_DIGEST")), ("kernels", env!("WEIGH_KERNELS_DIGEST"))];
    digests.map(|(name, digest)| (name.to_string(), digest.to_string())).into()
}

/// Decompresses the programs into a directory that is already in the ledger.
///
/// Native environments run the programs from there, and guests run copies of these files. So each
/// of these files is a copy, too: the larger the writes to a file are, the larger are the folios in
/// which the page cache holds it (ext4, XFS), and a program of 5 MB that was written by 8 KiB took
/// a tenth longer to fork and execute than its copy.
///
/// # Errors
/// The directory cannot be written.
pub fn write_out(directory: &Path) -> Result<Programs, Failure> {
    let write = |name: &str, compressed: &[u8]| -> Result<PathBuf, Failure> {
        let path = directory.join(name);
        let unpacked = directory.join(format!("{name}.unpacked"));
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&unpacked)
            .and_then(|mut file| io::copy(&mut XzDecoder::new(compressed), &mut file))
            .and_then(|_| fs::copy(&unpacked, &path))
            .and_then(|_| fs::remove_file(&unpacked))
            .map_err(|error| file_failure("write the guest program", &path, error))?;
        Ok(path)
    };
    Ok(Programs {
        probe: write("weigh-probe", PROBE)?,
        kernels: write("weigh-kernels", KERNELS)?,
        module: (!MODULE.is_empty()).then(|| write("weigh-kernels.wasm", MODULE)).transpose()?,
    })
}

#[cfg(test)]
#[path = "../build/flags.rs"]
#[expect(dead_code, reason = "only the build script and the tests of the platforms choose targets")]
mod flags;
#[cfg(test)]
#[path = "../build/linker.rs"]
mod linker;
#[cfg(test)]
#[path = "../build/prebuilt.rs"]
mod prebuilt;

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::FileExt;

    #[test]
    fn written_programs_match_their_digests() {
        let directory = tempfile::tempdir().unwrap();
        let programs = write_out(directory.path()).unwrap();
        let digest = |path: &Path| weigh_model::hex(&Sha256::digest(fs::read(path).unwrap())[..]);
        let digests = digests();
        assert_eq!(digest(&programs.probe), digests["probe"]);
        assert_eq!(digest(&programs.kernels), digests["kernels"]);
        let module = programs.module.as_deref().map(digest);
        assert!(module.is_none_or(|module| module == env!("WEIGH_MODULE_DIGEST")));
    }

    /// The number of cached pages of a file at which a folio of several pages begins; `None` if the
    /// kernel does not report it (Documentation/admin-guide/mm/pagemap.rst).
    fn large_folios(path: &Path) -> Option<usize> {
        const COMPOUND_HEAD: u64 = 1 << 15;
        let file = fs::File::open(path).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (read, private) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: a new mapping, which nobody else uses, of a file that stays as it is.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, read, private, &file, 0) };
        let start = start.unwrap() as usize;
        let entry = |file: &fs::File, index: usize| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, index as u64 * 8).ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let places = fs::File::open("/proc/self/pagemap").ok()?;
        let flags = fs::File::open("/proc/kpageflags").ok()?;
        let mut heads = 0;
        for at in (start..start + length).step_by(4096) {
            // SAFETY: the address lies in the mapping; the read brings the page in.
            unsafe { (at as *const u8).read_volatile() };
            let frame = usize::try_from(entry(&places, at / 4096)? & ((1 << 55) - 1)).unwrap();
            heads += usize::from(frame != 0 && entry(&flags, frame)? & COMPOUND_HEAD != 0);
        }
        Some(heads)
    }

    #[test]
    fn the_page_cache_holds_programs_as_it_holds_their_copies() {
        let directory = tempfile::tempdir().unwrap();
        let kernels = write_out(directory.path()).unwrap().kernels;
        let copy = directory.path().join("copy");
        fs::copy(&kernels, &copy).unwrap();
        match (large_folios(&kernels), large_folios(&copy)) {
            (Some(program), Some(copy)) => {
                assert!(program.abs_diff(copy) <= 8, "{program} and {copy} large folios")
            }
            _ => eprintln!(
                "SKIPPED the_page_cache_holds_programs_as_it_holds_their_copies: needs root and /proc/kpageflags"
            ),
        }
    }

    #[test]
    fn programs_hold_no_path_of_the_machine_that_built_them() {
        let directory = tempfile::tempdir().unwrap();
        let programs = write_out(directory.path()).unwrap();
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let home = std::env::var("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
        let homes = home.into_iter().map(|home| home.join("registry"));
        for path in homes.chain([workspace.into()]) {
            for program in [&programs.probe, &programs.kernels].into_iter().chain(&programs.module) {
                let bytes = fs::read(program).unwrap();
                let needle = path.to_str().unwrap().as_bytes();
                let found = bytes.windows(needle.len()).position(|window| window == needle);
                let near = found.map(|at| String::from_utf8_lossy(&bytes[at..(at + 200).min(bytes.len())]));
                assert_eq!(near, None, "{}", program.display());
            }
        }
    }

    #[test]
    fn cargo_watches_paths_that_exist_so_that_it_builds_once() {
        let output = fs::read_to_string(Path::new(env!("OUT_DIR")).with_file_name("output")).unwrap();
        let watched = output.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        let (here, gone): (Vec<&str>, Vec<&str>) = watched.partition(|path| Path::new(path).exists());
        assert!(!here.is_empty() && gone.is_empty(), "Cargo looks in vain for {gone:?}");
    }

    #[test]
    fn prebuilt_programs_are_used_only_if_complete() {
        let workspace = tempfile::tempdir().unwrap();
        let manifest = workspace.path().join("weigh");
        let directory = manifest.join("build/prebuilt/x86_64");
        fs::create_dir_all(&directory).unwrap();
        let refused = || prebuilt::find(&manifest, "x86_64").err().unwrap().to_string();
        assert!(refused().ends_with("readers is missing"), "{}", refused());
        fs::write(directory.join("readers"), "no digest").unwrap();
        assert!(refused().contains("holds no digest"), "{}", refused());
        fs::write(directory.join("readers"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(directory.join("weigh-probe.xz"), "probe").unwrap();
        assert!(refused().ends_with("weigh-kernels.xz is missing"), "{}", refused());
        fs::write(directory.join("weigh-kernels.xz"), "kernels").unwrap();
        assert!(refused().ends_with("weigh-kernels.wasm.xz is missing"), "{}", refused());
        fs::write(directory.join("weigh-kernels.wasm.xz"), "").unwrap();
        let found = prebuilt::find(&manifest, "x86_64").unwrap().unwrap();
        assert_eq!(found.readers, "0123456789abcdef0123456789abcdef");
        assert_eq!(found.probe, directory.join("weigh-probe.xz"));
        assert_eq!(found.kernels, directory.join("weigh-kernels.xz"));
        assert_eq!(found.module, directory.join("weigh-kernels.wasm.xz"));
        let other = || prebuilt::find(&manifest, "aarch64");
        let reason = other().err().unwrap().to_string();
        assert!(reason.contains("no guest programs for aarch64"), "{reason}");
        // The sources of the probe, from which it is built.
        fs::create_dir(workspace.path().join("probe")).unwrap();
        assert!(other().unwrap().is_none());
    }

    #[test]
    fn guest_programs_hold_no_path_of_the_standard_librarys_sources() {
        let triple = "x86_64-unknown-linux-gnu";
        let flags = flags::flags(Path::new("/workspace"), Path::new("/workspace/target"), triple);
        let sysroot = flags::compiler(&["--print", "sysroot"]);
        let remap = format!("--remap-path-prefix={sysroot}/lib/rustlib/src/rust=/rustc/");
        assert!(flags.iter().any(|flag| flag.len() > remap.len() && flag.starts_with(&remap)), "{flags:?}");
    }

    #[test]
    fn rusts_own_linker_is_used_only_if_the_compiler_comes_with_it() {
        let sysroot = tempfile::tempdir().unwrap();
        let host = "x86_64-unknown-linux-gnu";
        assert_eq!(linker::directory(sysroot.path(), host), None);
        let directory = sysroot.path().join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld");
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(linker::directory(sysroot.path(), host), None);
        fs::write(directory.join("ld.lld"), "").unwrap();
        assert_eq!(linker::directory(sysroot.path(), host), Some(directory));
        assert_eq!(linker::directory(sysroot.path(), "aarch64-unknown-linux-gnu"), None);
    }
}
