//! Rust's own linker, where the compiler comes with it.

use std::path::{Path, PathBuf};

/// Returns the directory that has Rust's own linker under the name by which a C compiler looks for
/// it, `ld.lld`. Compilers of rustup have one; those of distributions have none, and link with the
/// linker of the C compiler.
pub fn directory(sysroot: &Path, host: &str) -> Option<PathBuf> {
    let directory = sysroot.join("lib/rustlib").join(host).join("bin/gcc-ld");
    directory.join("ld.lld").is_file().then_some(directory)
}
