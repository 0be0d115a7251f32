//! Builds the programs that run inside guests and compresses them for the compiler to embed, with
//! their digests; and computes a digest of the code that reads samples.
//!
//! The two that are programs of the processor are static, so that they run in any root file system.
//! The probe uses the musl target where rustup has one (smaller), else gnu with `+crt-static`. The
//! kernels always use gnu: its memory and string functions are the ones that programs of the same
//! distribution use, and liblzma needs a C compiler for the target. The kernels are built for
//! WebAssembly, too, where rustup has its target; else an empty file stands for them.
//!
//! `OUT_DIR/guest` holds what was made. A copy of it in `build/prebuilt/<architecture>/` beside the
//! manifest is taken in place of a build.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script runs before weigh-host exists; cargo holds the deadline"
)]

#[path = "build/flags.rs"]
mod flags;
#[path = "build/linker.rs"]
mod linker;
#[path = "build/prebuilt.rs"]
mod prebuilt;

use liblzma::read::XzDecoder;
use liblzma::stream::{Check, Filters, LzmaOptions, PRESET_EXTREME, Stream};
use liblzma::write::XzEncoder;
use sha2::{Digest, Sha256};
use std::env;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use twox_hash::XxHash3_128;

/// The sources that decide what the analysis cache of a run holds and how it is written. Only a
/// version with the same sources reads the cache. The last two files name the versions and features
/// of the libraries. If a file were missing here, a later version could show an earlier one's
/// results.
const READERS: [&str; 8] = [
    "crates/model/src",
    "crates/disk/src",
    "crates/store/src",
    "crates/stats/src",
    "crates/weigh/src/outcome/read.rs",
    "crates/weigh/src/facts.rs",
    "Cargo.toml",
    "Cargo.lock",
];

/// Compression level for releases: the programs are compressed once and unpacked by every run, and
/// unpacking takes as long at any level.
const SMALL: u32 = 9 | PRESET_EXTREME;

/// Compression level for development, where every change to the programs would wait for it.
const FAST: u32 = 0;

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let guest = PathBuf::from(variable("OUT_DIR")).join("guest");
    std::fs::create_dir_all(&guest).unwrap_or_else(|error| panic!("{}: {error}", guest.display()));
    // Watch the directory: Cargo reruns this script every time if it watches a path that does not
    // exist.
    println!("cargo::rerun-if-changed={}", manifest.join("build").display());
    let readers = match prebuilt::find(&manifest, &architecture) {
        Ok(Some(prebuilt)) => {
            embed("weigh-probe", &prebuilt.probe);
            embed("weigh-kernels", &prebuilt.kernels);
            embed("weigh-module", &prebuilt.module);
            prebuilt.readers
        }
        Ok(None) => build_all(&manifest, &architecture, &guest),
        Err(error) => panic!("{error}"),
    };
    let path = guest.join("readers");
    std::fs::write(&path, format!("{readers}\n"))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Each target has its own mathematical functions, so the digest includes the target.
    let readers =
        format!("{:032x}", XxHash3_128::oneshot(format!("{readers} {}", variable("TARGET")).as_bytes()));
    println!("cargo::rustc-env=WEIGH_READERS_DIGEST={readers}");
    link_small(&manifest);
}

/// Links a release build with smaller output where the compiler has Rust's own linker and nobody
/// chose another or flags: it merges equal functions, leaves unwind tables out, and packs relative
/// relocations, which the C library resolves since glibc 2.36.
fn link_small(manifest: &Path) {
    let default = variable("CARGO_ENCODED_RUSTFLAGS").is_empty() && env::var_os("RUSTC_LINKER").is_none();
    let target = variable("TARGET") == "x86_64-unknown-linux-gnu";
    if !(default && target && variable("HOST") == variable("TARGET") && variable("PROFILE") == "release") {
        return;
    }
    let sysroot = flags::compiler(&["--print", "sysroot"]);
    let Some(linker) = linker::directory(Path::new(&sysroot), &variable("HOST")) else { return };
    println!("cargo::rustc-link-arg-bins=-B{}", linker.display());
    println!("cargo::rustc-link-arg-bins=-fuse-ld=lld");
    let script = manifest.join("build/discard.ld");
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all,--no-eh-frame-hdr,-T,{}", script.display());
    if c_library_minor().is_some_and(|minor| minor >= 36) {
        println!("cargo::rustc-link-arg-bins=-Wl,-zpack-relative-relocs");
    }
}

/// Returns the minor version of the glibc that this script is linked with, such as 36 for glibc
/// 2.36.
#[cfg(target_env = "gnu")]
fn c_library_minor() -> Option<u32> {
    unsafe extern "C" {
        safe fn gnu_get_libc_version() -> *const std::ffi::c_char;
    }
    // SAFETY: glibc returns a constant that ends with a zero byte.
    let version = unsafe { std::ffi::CStr::from_ptr(gnu_get_libc_version()) };
    version.to_str().ok()?.strip_prefix("2.")?.parse().ok()
}

#[cfg(not(target_env = "gnu"))]
fn c_library_minor() -> Option<u32> {
    None
}

/// Builds the guest programs from the workspace, and returns the digest of the readers.
fn build_all(manifest: &Path, architecture: &str, guest: &Path) -> String {
    let workspace = manifest.join("../..").canonicalize().expect("the workspace holds this crate");
    for part in
        ["crates/probe", "crates/protocol", "crates/links", "crates/kernels", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", workspace.join(part).display());
    }
    let gnu = format!("{architecture}-unknown-linux-gnu");
    let probe_target = flags::probe_target(architecture, flags::compiler);

    // OUT_DIR is <target>/<profile>/build/<package>/out, with a triple before the profile where
    // cargo was given one. The programs are shared by all profiles of weigh.
    let given = PathBuf::from(variable("OUT_DIR"));
    let target = given
        .ancestors()
        .skip(4)
        .find(|directory| !directory.ends_with(variable("TARGET")))
        .expect("OUT_DIR lies below the target directory")
        .join("guest");
    let (probe, kernels) = std::thread::scope(|scope| {
        // Both builds run at once: each ends with one crate that keeps one CPU busy.
        let probe =
            scope.spawn(|| build(&workspace, &target.join("probe"), "weigh-probe", "probe", &probe_target));
        let kernels = build(&workspace, &target.join("kernels"), "weigh-kernels", "kernels", &gnu);
        (probe.join().expect("the probe was built"), kernels)
    });
    embed("weigh-probe", &compress(&probe, architecture, guest));
    embed("weigh-kernels", &compress(&kernels, architecture, guest));
    embed("weigh-module", &module(&workspace, &target.join("module"), guest));
    readers_digest(&workspace)
}

/// Builds the kernels for WebAssembly and returns the compressed module: an empty file where the
/// compiler has no such target.
fn module(workspace: &Path, target: &Path, guest: &Path) -> PathBuf {
    // rustup writes this file when it adds a target.
    let components = Path::new(&flags::compiler(&["--print", "sysroot"])).join("lib/rustlib/components");
    if components.is_file() {
        println!("cargo::rerun-if-changed={}", components.display());
    }
    if flags::has_target(flags::WEBASSEMBLY, flags::compiler) {
        let module = build(workspace, target, "weigh-kernels", "kernels", flags::WEBASSEMBLY);
        return compress(&module.with_extension("wasm"), flags::WEBASSEMBLY, guest);
    }
    let empty = guest.join("weigh-kernels.wasm.xz");
    std::fs::write(&empty, "").unwrap_or_else(|error| panic!("{}: {error}", empty.display()));
    empty
}

/// Digests the [`READERS`], each file with its name in the workspace, in order of the names.
fn readers_digest(workspace: &Path) -> String {
    let mut files = Vec::new();
    for part in READERS {
        println!("cargo::rerun-if-changed={}", workspace.join(part).display());
        files_below(&workspace.join(part), &mut files);
    }
    files.sort();
    let mut text = Vec::new();
    for path in files {
        let content = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(workspace).expect("it was found there").display();
        text.extend(format!("\n{name} {}\n", content.len()).into_bytes());
        text.extend(content);
    }
    format!("{:032x}", XxHash3_128::oneshot(&text))
}

fn files_below(path: &Path, files: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        return files.push(path.into());
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for entry in entries {
        files_below(&entry.unwrap_or_else(|error| panic!("{}: {error}", path.display())).path(), files);
    }
}

/// Builds a guest program and returns its path.
fn build(workspace: &Path, target: &Path, package: &str, profile: &str, triple: &str) -> PathBuf {
    let mut cargo = Command::new(variable("CARGO"));
    // Use only what Cargo.lock names, whose digests it has.
    cargo.current_dir(workspace).args([
        "build",
        "--locked",
        "--quiet",
        "--package",
        package,
        "--bin",
        package,
    ]);
    cargo.args(["--profile", profile, "--target", triple, "--target-dir"]).arg(target);
    // These variables, which the outer cargo (or clippy, which replaces the compiler) set, are
    // meant for this crate only.
    for name in
        ["RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags::flags(workspace, target, triple).join("\x1f"));
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot run cargo for {package}: {error}"));
    assert!(status.success(), "building {package} for {triple} failed: {status}");
    target.join(triple).join(profile).join(package)
}

/// Compresses a program into a directory and returns the path of the result.
fn compress(program: &Path, architecture: &str, directory: &Path) -> PathBuf {
    let bytes = read(program);
    let level = if variable("PROFILE") == "release" { SMALL } else { FAST };
    let mut filters = Filters::new();
    // The filters turn relative calls of one function into the same bytes, which compress better.
    match architecture {
        "x86_64" => _ = filters.x86(),
        "aarch64" => _ = filters.arm64(),
        _ => {}
    }
    filters.lzma2(&LzmaOptions::new_preset(level).expect("xz has the level"));
    let stream = Stream::new_stream_encoder(&filters, Check::Crc32).expect("xz has these filters");
    let mut packed = XzEncoder::new_stream(Vec::new(), stream);
    packed.write_all(&bytes).expect("memory takes all that is written");
    let compressed = packed.finish().expect("memory takes all that is written");
    let mut name = program.file_name().expect("a program has a name").to_os_string();
    name.push(".xz");
    let path = directory.join(name);
    std::fs::write(&path, compressed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// Tells the compiler where a compressed program is and which digest the program has. An empty file
/// stands for one that was not built.
fn embed(name: &str, compressed: &Path) {
    let packed = read(compressed);
    let mut bytes = Vec::new();
    if !packed.is_empty() {
        XzDecoder::new(&packed[..])
            .read_to_end(&mut bytes)
            .unwrap_or_else(|error| panic!("{} cannot be unpacked: {error}", compressed.display()));
    }
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = name.replace('-', "_").to_uppercase();
    println!("cargo::rustc-env={prefix}_XZ={}", compressed.display());
    println!("cargo::rustc-env={prefix}_DIGEST={digest}");
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
