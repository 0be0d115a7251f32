//! `weigh image`: the root file systems that this host keeps for guests.

use crate::cli::ImageCommand;
use crate::error::{ExitKind, Failure, file_failure};
use crate::host::{check_cache, close_ledger, ledger_failure, run_id, scratch, state_directory};
use crate::{output, ui};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::{fs, io};
use weigh_host::ledger::Ledger;
use weigh_host::private::open_regular;
use weigh_images::debian::{BuildError, Recipe};
use weigh_images::oci::{self, Layer, PullError, Reference, ReferenceError};
use weigh_images::store::{CachedImage, Record, Store};
use weigh_images::{ImageError, Progress, Root};
use weigh_model::{ImageSpec, did_you_mean, nearest};

/// The number of digits of a digest that lists for people show.
const SHOWN_DIGITS: usize = 12;

/// Builds, packs, lists or removes images.
///
/// # Errors
/// Bad input; an image that cannot be built, or that is in use.
pub fn run(what: ImageCommand) -> Result<(), Failure> {
    match what {
        ImageCommand::Build { name } => build(&name),
        ImageCommand::Pack { name, file, tag } => pack(&name, &file, tag),
        ImageCommand::List(arg) => list(arg.json),
        ImageCommand::Remove { name } => remove(&name),
    }
}

/// Returns the images on this host.
///
/// # Errors
/// Another user could change the cache.
fn kept() -> Result<Vec<CachedImage>, Failure> {
    check_cache()?;
    Ok(Store::open().map(|store| store.list()).unwrap_or_default())
}

/// Describes an image in one line, without its name.
fn about(record: &Record) -> String {
    let digest = &record.identity[..SHOWN_DIGITS.min(record.identity.len())];
    let mebibytes = record.bytes as f64 / f64::from(1 << 20);
    let other = record.name == "debian" && record.identity != Recipe::for_this_host().identity();
    let note = if other { ", by the recipe of another version: not used" } else { "" };
    format!("sha256:{digest}  {mebibytes:.1} MiB  {}  {}{note}", record.made, record.summary)
}

fn line(kept: &CachedImage) -> String {
    format!("{}  {}", kept.name(), about(&kept.record))
}

fn build(name: &str) -> Result<(), Failure> {
    let store = store()?;
    let mut say = |step: &str| ui::note(step);
    let interrupt = super::run::catch_signals()?;
    let watch = Progress::new(&mut say, &interrupt);
    let kept = match ImageSpec::from(name.to_string()) {
        ImageSpec::Debian => {
            let build = |ledger: &Ledger| {
                Recipe::for_this_host().build(&store, ledger, &watch).map_err(build_failure)
            };
            recorded(build)?
        }
        ImageSpec::Oci(text) => {
            let reference: Reference = text.parse().map_err(reference_failure)?;
            recorded(|ledger| {
                oci::pull(&store, ledger, &reference, &watch).map_err(|e| pull_failure(name, e))
            })?
        }
        ImageSpec::Host | ImageSpec::Probe => {
            return Err(Failure::input(format!("the image `{name}` is always there"))
                .hint(format!("there is nothing to build: use it as `--image {name}`")));
        }
        ImageSpec::Path(_) => return Err(unknown(name)),
    };
    ui::print(&format!("{}\n{}", line(&kept), kept.tree().display()));
    Ok(())
}

fn reference_failure(error: ReferenceError) -> Failure {
    Failure::input(error.to_string())
}

fn pull_failure(name: &str, error: PullError) -> Failure {
    let kind = match error {
        PullError::NotThere(_) | PullError::OtherPlatform { .. } | PullError::Locked(_) => ExitKind::Input,
        _ => ExitKind::Failed,
    };
    Failure::new(kind, format!("the image `{name}` is not available")).because(error)
}

fn unknown(name: &str) -> Failure {
    let hint = did_you_mean(nearest(name, ["debian"]), || {
        "`debian` is built, `oci:REF` is pulled; `--image` takes a directory or a tar archive as it is".into()
    });
    Failure::input(format!("there is no image `{name}` to build")).at("image", name, 0..name.len()).hint(hint)
}

fn build_failure(error: BuildError) -> Failure {
    let kind = match error {
        BuildError::NoProgram(_) | BuildError::NotRoot => ExitKind::Input,
        _ => ExitKind::Failed,
    };
    Failure::new(kind, "the image `debian` cannot be built").because(error)
}

/// An image as `--json` lists it.
#[derive(Serialize)]
struct ImageEntry<'a> {
    #[serde(flatten)]
    record: &'a Record,
    tags: &'a [String],
    tree: PathBuf,
}

fn list(json: bool) -> Result<(), Failure> {
    let kept = kept()?;
    if json {
        let listed: Vec<ImageEntry<'_>> = kept
            .iter()
            .map(|kept| ImageEntry { record: &kept.record, tags: &kept.tags, tree: kept.tree() })
            .collect();
        ui::print(&ui::json(&listed));
    } else if kept.is_empty() {
        ui::print("no image is kept here; `weigh image build debian` makes one");
    } else {
        let width = kept.iter().map(|kept| kept.name().len()).max().unwrap_or(0);
        let lines = kept.iter().map(|kept| format!("{:width$}  {}", kept.name(), about(&kept.record)));
        ui::print(&lines.collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

fn remove(name: &str) -> Result<(), Failure> {
    let store = store()?;
    let removed = recorded(|ledger| {
        store.remove(name, ledger).map_err(|error| match error {
            ImageError::NotCached { .. } | ImageError::Reference(_) => Failure::input(error.to_string()),
            other => Failure::of_error(ExitKind::Failed, &other),
        })
    })?;
    for kept in removed {
        ui::print(&format!("removed {}", line(&kept)));
    }
    Ok(())
}

/// Writes an image with the guest programs into an archive.
fn pack(name: &str, file: &Path, tag: Option<String>) -> Result<(), Failure> {
    let image = ImageSpec::from(name.to_string());
    let tag = match (&image, tag) {
        (ImageSpec::Host, _) => {
            return Err(Failure::input("the host's own root cannot be packed: it is not an image").hint(
                "pack `debian` or `oci:REF`, which `weigh image build` makes, `probe`, or a directory",
            ));
        }
        (_, Some(tag)) => tag,
        (ImageSpec::Debian | ImageSpec::Probe, None) => format!("localhost/weighbridge/{name}:latest"),
        (ImageSpec::Oci(_) | ImageSpec::Path(_), None) => {
            return Err(Failure::input(format!("the image `{name}` needs a name of its own"))
                .hint("name it with `--tag`, as in `--tag localhost/mine:latest`"));
        }
    };
    output::check(file)?;
    recorded(|ledger| {
        let (work, _, programs) = scratch(&state_directory()?, ledger, None)?;
        let prepared = Root::prepare(&image, &programs, &work.join("root"), None);
        let root = prepared.map_err(|error| Failure::of_error(ExitKind::Input, &error))?;
        let skeleton: Layer<'_> = &|output| root.write_tar(output);
        let tree: Layer<'_> = &|output| root.write_tree_tar(output);
        let own: Layer<'_> = &|output| programs.write_tar(output);
        let layers = if root.tree.is_some() { vec![tree, own] } else { vec![skeleton] };
        let mut options = fs::OpenOptions::new();
        let opened = open_regular(file, options.write(true).create(true).truncate(true));
        opened
            .and_then(|archive| oci::write_layout(&layers, &tag, &mut io::BufWriter::new(archive)))
            .map_err(|error| file_failure("write the image to", file, error))
    })?;
    ui::print(&format!("{tag}\n{}", file.display()));
    Ok(())
}

fn store() -> Result<Store, Failure> {
    check_cache()?;
    Store::open().ok_or_else(|| {
        Failure::input("there is no place for weighbridge's cache: neither XDG_CACHE_HOME nor HOME is set")
            .hint("set WEIGH_CACHE to a directory")
    })
}

/// Runs `act` with a ledger of its own, but without the host's lock: a build takes minutes, and
/// disturbs runs no more than any other program.
fn recorded<T>(act: impl FnOnce(&Ledger) -> Result<T, Failure>) -> Result<T, Failure> {
    let ledger = Ledger::create(&state_directory()?, &run_id()).map_err(ledger_failure)?;
    let done = act(&ledger);
    let closed = close_ledger(&ledger);
    let done = done?;
    closed?;
    Ok(done)
}
