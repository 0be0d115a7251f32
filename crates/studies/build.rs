//! Packs the files of the built-in studies into one compressed file, a fifth of their size.

use liblzma::write::XzEncoder;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "studies";
/// The level of xz beyond which texts of this size get no smaller.
const LEVEL: u32 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut packed = XzEncoder::new(Vec::new(), LEVEL);
    for study in sorted(Path::new(FOLDER))? {
        for path in sorted(&study)? {
            // In the format that `unpack` of weigh-workloads reads.
            write!(packed, "{}\0{}\0", path.display(), fs::read_to_string(&path)?)?;
        }
    }
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("studies.xz"), packed.finish()?)?)
}

fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
