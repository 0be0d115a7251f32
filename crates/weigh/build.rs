//! Builds the two programs that run inside guests and hands their paths to the compiler, which embeds them.
//!
//! Both are static, so that they run in any root file system. The probe uses the musl target where rustup has one (smaller),
//! else gnu with `+crt-static`. The kernels always use gnu: its memory and string functions are the ones that programs of
//! the same distribution use, and liblzma needs a C compiler for the target.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script runs before weigh-host exists; cargo holds the deadline"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

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

    // OUT_DIR is <target>/<profile>/build/<package>/out: the programs are shared by all profiles of weigh.
    let out = PathBuf::from(variable("OUT_DIR"));
    let target =
        out.ancestors().nth(4).expect("OUT_DIR lies four levels below the target directory").join("guest");
    build(&workspace, &target, "weigh-probe", "probe", probe_target);
    build(&workspace, &target, "weigh-kernels", "kernels", &gnu);
}

fn build(workspace: &Path, target: &Path, package: &str, profile: &str, triple: &str) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(workspace).args(["build", "--quiet", "--package", package, "--bin", package]);
    cargo.args(["--profile", profile, "--target", triple, "--target-dir"]).arg(target);
    // What the outer cargo (or clippy, which replaces the compiler) set for this crate is not meant for those.
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
    let program = target.join(triple).join(profile).join(package);
    let name = package.replace('-', "_").to_uppercase();
    println!("cargo::rustc-env={name}_PATH={}", program.display());
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
