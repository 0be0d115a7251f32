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
        let triple = flags::probe_target(std::env::consts::ARCH, target_libdir);
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

/// Returns what the compiler beside this cargo writes about the directory of a target's libraries.
fn target_libdir(triple: &str) -> Option<Vec<u8>> {
    let rustc = Invocation::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc.args(["--print", "target-libdir", "--target", triple]).run_ok().ok().map(|done| done.output)
}

/// `weigh` embeds the probe of the same target.
#[test]
fn the_probe_is_built_for_musl_where_the_compiler_has_it() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "\n");
    assert_eq!(flags::probe_target("aarch64", |_| Some(here.into())), "aarch64-unknown-linux-musl");
    for absent in [None, Some("/no/such/directory\n".into())] {
        assert_eq!(flags::probe_target("aarch64", |_| absent), "aarch64-unknown-linux-gnu");
    }
    let installed = target_libdir(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    assert!(installed.is_some(), "the compiler knows the target of these tests");
}
