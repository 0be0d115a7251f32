//! The image `debian`: a small Debian system with systemd, built by mmdebstrap(1) from a list of
//! packages.
//!
//! The list, the release, the architecture and the customisation are the recipe; its SHA-256 is the
//! image's identity. The archive is the one that this host's apt(8) knows. Everything is written
//! below the cache, in a mount and process namespace of its own that ends with weighbridge.

mod run;

use crate::digest::ContentDigest;
use crate::making::{KeepError, Watch, refused};
use crate::store::{self, Kept, Record, Store};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::{CommandError, Invocation, find_program};
use weigh_host::ledger::Ledger;

/// For asking apt(8) for the archives that it knows.
const LOOK_UP: Duration = Duration::from_secs(60);

/// The release where the host has none of Debian's.
const RELEASE: &str = "bookworm";
/// What is installed beside the essential packages.
const PACKAGES: [&str; 6] = ["dbus", "iproute2", "procps", "systemd", "systemd-sysv", "xz-utils"];
/// Files of packages that no guest reads.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"];
/// Licences stay with what they are for.
const KEPT: &str = "/usr/share/doc/*/copyright";
/// What is changed of the installed packages.
const CUSTOMISE: &str = include_str!("debian/customise.sh");

/// Why the image cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The program that builds it is missing.
    #[error("the program `{0}` is not installed; `apt-get install mmdebstrap` installs it")]
    NoProgram(String),
    /// Not root.
    #[error(
        "building a Debian system needs root, for it has files of many owners; run `sudo weigh image build debian`"
    )]
    NotRoot,
    /// The build failed.
    #[error("mmdebstrap failed ({status}), see {}: {said}", log.display())]
    Failed {
        /// How it ended.
        status: String,
        /// What it said last.
        said: String,
        /// All that it said.
        log: PathBuf,
    },
    /// The deadline passed.
    #[error("mmdebstrap did not end within {after:?} and was killed, see {}", log.display())]
    Deadline {
        /// The deadline.
        after: Duration,
        /// What it said.
        log: PathBuf,
    },
    /// What it made is no such system.
    #[error("what mmdebstrap made has no {0}; build it again, and see the log if that stays so")]
    Incomplete(&'static str),
    /// A program could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It could not be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

impl BuildError {
    fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        refused(doing, path)
    }
}

/// What decides the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    release: String,
    architecture: &'static str,
    program: OsString,
}

impl Recipe {
    /// The recipe for this host: of its own release of Debian, else of bookworm.
    pub fn here() -> Self {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Self {
            release: release(&system).unwrap_or(RELEASE).into(),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            },
            program: "mmdebstrap".into(),
        }
    }

    /// The same by another program than the `mmdebstrap` in `PATH`; it is no part of the identity.
    #[must_use]
    pub fn by(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    /// SHA-256, hexadecimal, over all that decides the image but the versions of the packages.
    pub fn identity(&self) -> String {
        let mut digest = ContentDigest::new();
        digest.part(CUSTOMISE.as_bytes());
        // The archive is a mirror near the host, and its place in the cache is the host's own.
        for argument in self.arguments(Path::new(""), &[]) {
            digest.part(argument.as_encoded_bytes());
        }
        digest.finish()
    }

    /// Its name in the cache.
    pub(crate) fn entry(&self) -> String {
        Store::entry("debian", &self.identity())
    }

    /// The image, built unless it is there. Two builds at once are one.
    ///
    /// # Errors
    /// [`BuildError`]; then there is no image.
    pub fn build(&self, store: &Store, ledger: &Ledger, watch: &Watch<'_>) -> Result<Kept, BuildError> {
        let entry = self.entry();
        let log = store.beside(&entry, store::LOG);
        // Who waits does so for as long as the other's build may take, and a little for what comes
        // after it.
        let deadline = run::DEADLINE + Duration::from_secs(60);
        store.make(&entry, ledger, watch, deadline, |staging| self.build_in(staging, &log, watch))
    }

    fn build_in(&self, staging: &Path, log: &Path, watch: &Watch<'_>) -> Result<(), BuildError> {
        if !weigh_host::facts::is_root() {
            return Err(BuildError::NotRoot);
        }
        let name = self.program.to_string_lossy();
        let program = find_program(&name).ok_or_else(|| BuildError::NoProgram(name.into_owned()))?;
        for (file, text) in [("customise.sh", CUSTOMISE), ("packages", "")] {
            let path = staging.join(file);
            fs::write(&path, text).map_err(BuildError::io("write", &path))?;
        }
        let scratch = staging.join("scratch");
        fs::create_dir(&scratch).map_err(BuildError::io("make the directory", &scratch))?;
        if log.exists() {
            fs::remove_file(log).map_err(BuildError::io("remove", log))?;
        }
        let arguments = self.arguments(staging, &archives(&self.release));
        run::to_end(run::confined(&program, &arguments).env("TMPDIR", &scratch), log, watch)?;
        finish(self, staging)
    }

    /// Those of mmdebstrap(1).
    fn arguments(&self, staging: &Path, archives: &[String]) -> Vec<OsString> {
        let script = staging.join("customise.sh");
        let mut arguments: Vec<OsString> =
            ["--mode=root", "--format=directory", "--variant=minbase", "--skip=output/dev"]
                .iter()
                .map(Into::into)
                .collect();
        arguments.push(format!("--architectures={}", self.architecture).into());
        arguments.push(format!("--include={}", PACKAGES.join(",")).into());
        arguments.extend(LEFT_OUT.iter().map(|path| format!("--dpkgopt=path-exclude={path}").into()));
        arguments.push(format!("--dpkgopt=path-include={KEPT}").into());
        let mut hook = OsString::from("--customize-hook=/bin/sh '");
        hook.push(script);
        hook.push("' \"$1\"");
        arguments.push(hook);
        arguments.push((&self.release).into());
        arguments.push(staging.join("tree").into());
        // Without any, mmdebstrap takes the one that it knows itself.
        arguments.extend(archives.iter().map(Into::into));
        arguments
    }
}

/// The release of Debian that an os-release(5) file names.
fn release(system: &str) -> Option<&str> {
    let value = |name: &str| {
        let value = system.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"'))
    };
    (value("ID") == Some("debian")).then(|| value("VERSION_CODENAME")).flatten()
}

/// The archives of a release that this host's apt(8) has lists of, as lines of sources.list(5).
fn archives(release: &str) -> Vec<String> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)";
    let targets = Invocation::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .env("LC_ALL", "C")
        .deadline(LOOK_UP)
        .run_ok();
    // A host without apt has no archive of its own choice.
    targets
        .map(|finished| archives_of(&String::from_utf8_lossy(&finished.output), release))
        .unwrap_or_default()
}

fn archives_of(targets: &str, release: &str) -> Vec<String> {
    let suites = [release.to_string(), format!("{release}-updates"), format!("{release}-security")];
    let mut lines = Vec::new();
    for target in targets.lines() {
        let [uri, suite, "main", "Debian"] = target.split_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let line = format!("deb {uri} {suite} main");
        if suites.iter().any(|known| known == suite) && !lines.contains(&line) {
            lines.push(line);
        }
    }
    // Updates alone are no system.
    if lines.iter().any(|line| line.ends_with(&format!(" {release} main"))) { lines } else { Vec::new() }
}

/// Checks what was built, and writes down what it is.
fn finish(recipe: &Recipe, staging: &Path) -> Result<(), BuildError> {
    let tree = staging.join("tree");
    for needed in ["sbin/init", "etc/os-release", "usr/bin/dpkg", ".weighbridge"] {
        if tree.join(needed).symlink_metadata().is_err() {
            return Err(BuildError::Incomplete(needed));
        }
    }
    // Device nodes are made anew in every guest; on the host's own file system they are only
    // dangerous.
    let devices = tree.join("dev");
    for path in [&devices, &staging.join("scratch")] {
        fs::remove_dir_all(path).map_err(BuildError::io("remove", path))?;
    }
    fs::create_dir(&devices).map_err(BuildError::io("make the directory", &devices))?;
    let packages = staging.join("packages");
    let list = fs::read_to_string(&packages).map_err(BuildError::io("read", &packages))?;
    let mut content = ContentDigest::new();
    content.part(list.as_bytes());
    let mut record = Record::new("debian".into(), recipe.identity(), content.finish(), &tree)
        .map_err(BuildError::io("look through", &tree))?;
    record.summary = format!("Debian {}, {} packages", recipe.release, list.lines().count());
    record.write(staging).map_err(BuildError::io("write the record in", staging))
}

#[cfg(test)]
mod tests;
