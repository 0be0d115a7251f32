//! Builds the two programs that run inside guests and compresses them for the compiler to embed,
//! with their digests; and computes a digest of the code that reads samples.
//!
//! Both are static, so that they run in any root file system. The probe uses the musl target where
//! rustup has one (smaller), else gnu with `+crt-static`. The kernels always use gnu: its memory
//! and string functions are the ones that programs of the same distribution use, and liblzma needs
//! a C compiler for the target.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script runs before weigh-host exists; cargo holds the deadline"
)]

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use twox_hash::XxHash3_128;

/// The sources that decide what the analysis cache of a run has and how it is written. Only a
/// version with the same sources reads the cache. The last two have the versions and features of
/// the libraries. If a file were missing here, a later version could show an earlier one's results.
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

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = manifest.join("../..").canonicalize().expect("the workspace holds this crate");
    for part in
        ["crates/probe", "crates/protocol", "crates/links", "crates/kernels", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", workspace.join(part).display());
    }
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let gnu = format!("{architecture}-unknown-linux-gnu");
    let musl = format!("{architecture}-unknown-linux-musl");
    let probe_target = if has_target(&musl) { &musl } else { &gnu };

    // OUT_DIR is <target>/<profile>/build/<package>/out: the programs are shared by all profiles of
    // weigh.
    let out = PathBuf::from(variable("OUT_DIR"));
    let target =
        out.ancestors().nth(4).expect("OUT_DIR lies four levels below the target directory").join("guest");
    // Both at once: each ends with one crate that keeps one CPU busy.
    std::thread::scope(|scope| {
        scope.spawn(|| build(&workspace, &target.join("probe"), "weigh-probe", "probe", probe_target));
        build(&workspace, &target.join("kernels"), "weigh-kernels", "kernels", &gnu);
    });

    println!("cargo::rustc-env=WEIGH_READERS_DIGEST={}", readers_digest(&workspace));
}

/// Files by their names in the workspace, in order; and what they are compiled for, which has its
/// own mathematical functions.
fn readers_digest(workspace: &Path) -> String {
    let mut files = Vec::new();
    for part in READERS {
        println!("cargo::rerun-if-changed={}", workspace.join(part).display());
        files_below(&workspace.join(part), &mut files);
    }
    files.sort();
    let mut text = variable("TARGET").into_bytes();
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

fn build(workspace: &Path, target: &Path, package: &str, profile: &str, triple: &str) {
    let mut cargo = Command::new(variable("CARGO"));
    // Nothing but what Cargo.lock names, whose digests it has.
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
    // The variables that the outer cargo (or clippy, which replaces the compiler) set are meant for
    // this crate only.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot run cargo for {package}: {error}"));
    assert!(status.success(), "building {package} for {triple} failed: {status}");
    embed(package, &target.join(triple).join(profile).join(package));
}

/// Compresses a program, and tells the compiler where the result is and which digest the program has.
fn embed(name: &str, program: &Path) {
    let bytes = std::fs::read(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    // In development the code that decompresses is not optimised, and every run of a test would wait.
    let level = if variable("PROFILE") == "release" { Compression::best() } else { Compression::none() };
    let mut compressed = GzEncoder::new(Vec::new(), level);
    compressed.write_all(&bytes).expect("memory takes all that is written");
    let compressed = compressed.finish().expect("memory takes all that is written");
    let path = PathBuf::from(variable("OUT_DIR")).join(format!("{name}.gz"));
    std::fs::write(&path, compressed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = name.replace('-', "_").to_uppercase();
    println!("cargo::rustc-env={prefix}_GZ={}", path.display());
    println!("cargo::rustc-env={prefix}_DIGEST={digest}");
}

fn has_target(triple: &str) -> bool {
    let output =
        Command::new(variable("RUSTC")).args(["--print", "target-libdir", "--target", triple]).output();
    output.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    })
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
