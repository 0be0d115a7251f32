//! The probe as the product embeds it: static, and built once per run of the tests.

#[path = "../../../weigh/build/flags.rs"]
mod flags;

use crate::common::processes;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use weigh_host::command::Invocation;

/// The probe's path. `WEIGH_PROBE` names one that is already built.
pub fn path() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| {
        if let Some(path) = std::env::var_os("WEIGH_PROBE") {
            return PathBuf::from(path);
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        // The build script of `weigh` uses the same target directory: nothing is built twice.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("guest/probe");
        let triple = flags::probe_target(std::env::consts::ARCH, flags::compiler);
        let build = || {
            Invocation::new(env!("CARGO"))
                .args([
                    "build",
                    "--locked",
                    "--quiet",
                    "--package",
                    "weigh-probe",
                    "--bin",
                    "weigh-probe",
                    "--profile",
                    "probe",
                    "--target",
                    &triple,
                ])
                .arg("--target-dir")
                .arg(&target)
                .env("CARGO_ENCODED_RUSTFLAGS", flags::flags(&workspace, &target).join("\x1f"))
                .current_dir(&workspace)
                .deadline(Duration::from_secs(600))
                .run_ok()
                .unwrap();
            serde_json::Value::Null
        };
        processes::once_per_run(env!("CARGO_TARGET_TMPDIR"), "probe", build);
        target.join(triple).join("probe/weigh-probe")
    })
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
