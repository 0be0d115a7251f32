//! The flags with which guest programs are compiled, and the target of the probe. The tests of
//! `weigh-platforms` compile the probe with the same flags for the same target, and so find it
//! already built.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns what the compiler prints for the arguments, without white space around it: nothing if
/// the compiler cannot be run.
#[expect(clippy::disallowed_methods, reason = "build scripts run this, too, before weigh-host exists")]
pub fn compiler(arguments: &[&str]) -> String {
    let printed = Command::new(rustc()).args(arguments).output().map(|output| output.stdout);
    String::from_utf8_lossy(&printed.unwrap_or_default()).trim().to_string()
}

/// Cargo names the compiler to build scripts. Tests take the one of their toolchain.
fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// The target of the kernels in WebAssembly.
pub const WEBASSEMBLY: &str = "wasm32-wasip1";

/// Returns the target of the probe: musl where the compiler has it (smaller), else gnu.
/// `compiler` runs the compiler, as the function of that name does.
pub fn probe_target(architecture: &str, compiler: impl FnOnce(&[&str]) -> String) -> String {
    let musl = format!("{architecture}-unknown-linux-musl");
    if has_target(&musl, compiler) { musl } else { format!("{architecture}-unknown-linux-gnu") }
}

/// Whether the compiler has the standard library of a target.
pub fn has_target(target: &str, compiler: impl FnOnce(&[&str]) -> String) -> bool {
    Path::new(&compiler(&["--print", "target-libdir", "--target", target])).is_dir()
}

/// Returns the flags for a target. The programs hold no path of the machine that built them, so that
/// they are the same wherever they are built.
pub fn flags(workspace: &Path, target: &Path, triple: &str) -> Vec<String> {
    // Runtimes have WebAssembly's vectors of 16 bytes, and compilers do not use them unasked.
    let vectors = if triple == WEBASSEMBLY { ",+simd128" } else { "" };
    let mut flags = vec![format!("-Ctarget-feature=+crt-static{vectors}")];
    let home = env::var("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|_| env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    // The last prefix that fits is used.
    if let Ok(home) = home {
        remap(&home, "/cargo");
    }
    // The name that the standard library's sources have where rustup's component rust-src is absent.
    let (sysroot, version) = (compiler(&["--print", "sysroot"]), compiler(&["--version", "--verbose"]));
    if let Some(commit) = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")) {
        remap(&Path::new(&sysroot).join("lib/rustlib/src/rust"), &format!("/rustc/{commit}"));
    }
    remap(workspace, "/weighbridge");
    remap(target, "/weighbridge/target");
    flags
}
