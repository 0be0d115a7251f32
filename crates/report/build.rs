//! Packs the assets that a page embeds: the plotting library, the script and the style. Computes
//! the digests by which the page's policy admits its scripts.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::{Compression, write::GzEncoder};
use liblzma::{stream::PRESET_EXTREME, write::XzEncoder};
use sha2::{Digest as _, Sha256};
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The parts of a page's script, which is one function: its beginning, the plots of runs, the plots
/// of studies, its end.
const SCRIPTS: [&str; 4] =
    ["templates/page-begin.js", "templates/report.js", "templates/study.js", "templates/page-end.js"];
const LIVE_SCRIPT: &str = "templates/live.js";
const STYLE: &str = "templates/report.css";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    for script in SCRIPTS.into_iter().chain([LIVE_SCRIPT, STYLE]) {
        println!("cargo::rerun-if-changed={script}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let sources = plotly::Plot::offline_js_sources();
    let library = library(&sources).ok_or("the plotly crate gives its library in another form")?;
    // Packed as the page embeds it: packing it for every page took a tenth of a second each.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(library.as_bytes())?;
    fs::write(out.join("plotly.js.gz"), packed.finish()?)?;
    pack(&out, "page.css.xz", &fs::read_to_string(STYLE)?)?;
    digest(&out, "plotly.js.sha256", library)?;
    digest(&out, "live.js.sha256", &fs::read_to_string(LIVE_SCRIPT)?)?;
    let parts: Vec<String> = SCRIPTS.into_iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
    let script = parts.concat();
    pack(&out, "page.js.xz", &script)?;
    digest(&out, "page.js.sha256", &script)
}

/// Returns the first of the scripts that the crate would write into a page. The second typesets
/// formulas, and a report has none.
fn library(sources: &str) -> Option<&str> {
    let (_, rest) = sources.split_once('>')?;
    let (library, _) = rest.split_once("</script>")?;
    library.contains("* plotly.js v").then_some(library)
}

fn pack(out: &Path, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    // A development build does not wait for the best compression.
    let level = if env::var("PROFILE")? == "release" { 9 | PRESET_EXTREME } else { 0 };
    let mut packed = XzEncoder::new(Vec::new(), level);
    packed.write_all(text.as_bytes())?;
    Ok(fs::write(out.join(name), packed.finish()?)?)
}

/// Writes the digest of a script in the form that a content security policy takes.
fn digest(out: &Path, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let digest = BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()));
    Ok(fs::write(out.join(name), format!("sha256-{digest}"))?)
}
