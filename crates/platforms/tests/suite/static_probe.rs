//! Guest programs as the product embeds them, built once per run of the tests: the static probe, and
//! the kernels in WebAssembly.

#[path = "../../../weigh/build/flags.rs"]
mod flags;

use crate::common::processes;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use weigh_host::command::{Invocation, find_program};

/// The probe's path. `WEIGH_PROBE` names one that is already built.
pub fn path() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| {
        if let Some(path) = std::env::var_os("WEIGH_PROBE") {
            return PathBuf::from(path);
        }
        build("weigh-probe", "probe", &flags::probe_target(std::env::consts::ARCH, flags::compiler), "probe")
    })
}

/// The path of the kernels in WebAssembly, where something here can run them and the compiler has
/// their target.
pub fn module() -> Option<&'static Path> {
    static MODULE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = || {
        find_program("wasmtime")?;
        let has_target = flags::has_target(flags::WEBASSEMBLY, flags::compiler);
        has_target
            .then(|| build("weigh-kernels", "kernels", flags::WEBASSEMBLY, "module").with_extension("wasm"))
    };
    MODULE.get_or_init(built).as_deref()
}

/// Builds a program, and returns its path. The build script of `weigh` uses the same target
/// directory: nothing is built twice.
fn build(package: &str, profile: &str, triple: &str, directory: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("guest").join(directory);
    let run = || {
        Invocation::new(env!("CARGO"))
            .args(["build", "--locked", "--quiet", "--package", package, "--bin", package])
            .args(["--profile", profile, "--target", triple])
            .arg("--target-dir")
            .arg(&target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags::flags(&workspace, &target, triple).join("\x1f"))
            .current_dir(&workspace)
            .deadline(Duration::from_secs(600))
            .run_ok()
            .unwrap();
        serde_json::Value::Null
    };
    processes::once_per_run(env!("CARGO_TARGET_TMPDIR"), directory, run);
    target.join(triple).join(profile).join(package)
}

/// `weigh` embeds the probe of the same target.
#[test]
fn the_probe_is_built_for_musl_where_the_compiler_has_it() {
    let chosen = |libraries: &str| flags::probe_target("aarch64", |_| libraries.into());
    assert_eq!(chosen(env!("CARGO_MANIFEST_DIR")), "aarch64-unknown-linux-musl");
    for absent in ["", "/no/such/directory"] {
        assert_eq!(chosen(absent), "aarch64-unknown-linux-gnu");
    }
    let installed = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let libraries = flags::compiler(&["--print", "target-libdir", "--target", &installed]);
    assert!(Path::new(&libraries).is_dir(), "the compiler has the target of these tests: {libraries}");
}
