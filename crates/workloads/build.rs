//! Packs the built-in manifests into one compressed file, a fifth of their size.

use liblzma::write::XzEncoder;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "manifests";
/// The xz level above which texts of this size do not get smaller.
const LEVEL: u32 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}");
    let entries = fs::read_dir(FOLDER)?.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    paths.sort();
    let mut packed = XzEncoder::new(Vec::new(), LEVEL);
    for path in paths {
        // The format that `unpack` in src/packed.rs reads.
        write!(packed, "{}\0{}\0", path.display(), fs::read_to_string(&path)?)?;
    }
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("manifests.xz"), packed.finish()?)?)
}
