//! The flags with which guest programs are compiled, and the target of the probe. The tests of
//! `weigh-platforms` compile the probe with the same flags for the same target, and so find it
//! already built.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the target of the probe: musl where the compiler has it (smaller), else gnu.
/// `target_libdir` returns what `rustc --print target-libdir --target TRIPLE` writes, or none if
/// that fails.
pub fn probe_target(architecture: &str, target_libdir: impl FnOnce(&str) -> Option<Vec<u8>>) -> String {
    let musl = format!("{architecture}-unknown-linux-musl");
    let has_musl = target_libdir(&musl)
        .is_some_and(|written| Path::new(String::from_utf8_lossy(&written).trim()).is_dir());
    if has_musl { musl } else { format!("{architecture}-unknown-linux-gnu") }
}

/// Returns the flags. The programs hold no path of the machine that built them, so that they are
/// the same wherever they are built.
pub fn flags(workspace: &Path, target: &Path) -> Vec<String> {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_string()];
    let home = env::var("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|_| env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    // The last prefix that fits is used.
    if let Ok(home) = home {
        remap(&home, "/cargo");
    }
    remap(workspace, "/weighbridge");
    remap(target, "/weighbridge/target");
    flags
}
