//! The image `debian`: a small Debian system with systemd, built by mmdebstrap(1) from a list of
//! packages.
//!
//! The recipe is the list, the release, the architecture and the customisation; its SHA-256 is the
//! image's identity. The archive is the one configured for this host's apt(8). Everything is
//! written below the cache, in a mount and process namespace that ends with weighbridge.

mod run;

use crate::FileError;
use crate::digest::ContentDigest;
use crate::make::{MakeError, Progress};
use crate::store::{self, CachedImage, Record, Store};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::{CommandError, Invocation, find_program};
use weigh_host::ledger::Ledger;
use weigh_host::private::SearchPermission;

/// Deadline for listing the archives of apt(8).
const LOOK_UP: Duration = Duration::from_secs(60);

/// The default release, on hosts that do not run Debian.
const RELEASE: &str = "bookworm";
/// Packages installed in addition to the essential ones.
const PACKAGES: [&str; 6] = ["dbus", "iproute2", "procps", "systemd", "systemd-sysv", "xz-utils"];
/// Files of packages that are not installed.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"];
/// Licences are installed nevertheless.
const LICENCES: &str = "/usr/share/doc/*/copyright";
/// The script that customises the installed packages.
const CUSTOMISE: &str = include_str!("debian/customise.sh");

/// Why the image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The program that builds it is missing.
    #[error("the program `{0}` is not installed; `apt-get install mmdebstrap` installs it")]
    NoProgram(String),
    /// The user is not root.
    #[error(
        "building a Debian system needs root, because its files have many owners; run `sudo weigh image build debian`"
    )]
    NotRoot,
    /// The build failed.
    #[error("mmdebstrap failed ({status}), see {}: {said}", log.display())]
    Failed {
        /// How it ended.
        status: String,
        /// Its last lines of output.
        said: String,
        /// The log of its output.
        log: PathBuf,
    },
    /// The deadline passed.
    #[error("mmdebstrap did not end within {after:?} and was killed, see {}", log.display())]
    Deadline {
        /// The deadline.
        after: Duration,
        /// The log of its output.
        log: PathBuf,
    },
    /// The result is incomplete.
    #[error(
        "the system made by mmdebstrap has no {0}; build it again, and see the log if that does not help"
    )]
    Incomplete(&'static str),
    /// A program could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It could not be put into the cache.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The input that determines the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    release: String,
    architecture: &'static str,
    program: OsString,
}

impl Recipe {
    /// The recipe for this host: its own release of Debian, else bookworm.
    pub fn for_this_host() -> Self {
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

    /// Uses another program than the `mmdebstrap` in `PATH`. The program is not part of the
    /// identity.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    /// SHA-256, hexadecimal, of everything that determines the image except the versions of
    /// packages.
    pub fn identity(&self) -> String {
        let mut digest = ContentDigest::new();
        digest.part(CUSTOMISE.as_bytes());
        // The mirror and the path of the cache are not part of it.
        for argument in self.arguments(Path::new(""), &[]) {
            digest.part(argument.as_encoded_bytes());
        }
        digest.finish()
    }

    /// Its name in the cache.
    pub(crate) fn entry(&self) -> String {
        Store::entry("debian", &self.identity())
    }

    /// The image, built if it does not exist. Two concurrent builds do the work once.
    ///
    /// # Errors
    /// [`BuildError`]; then the image does not exist.
    pub fn build(
        &self,
        store: &Store,
        ledger: &Ledger,
        progress: &Progress<'_>,
    ) -> Result<CachedImage, BuildError> {
        let entry = self.entry();
        let log = store.beside(&entry, store::LOG);
        // Another build may take up to its deadline, and a little more to finish.
        let deadline = run::DEADLINE + Duration::from_secs(60);
        let cache = store.cache().path();
        store.make(&entry, ledger, progress, deadline, |staging| {
            // apt(8) downloads as an unprivileged user if it can, otherwise as root.
            let way = staging.ancestors().take_while(|at| at.starts_with(cache));
            let _admission = downloader().map(|user| SearchPermission::to(way, user));
            self.build_in(staging, &log, progress)
        })
    }

    fn build_in(&self, staging: &Path, log: &Path, progress: &Progress<'_>) -> Result<(), BuildError> {
        if !weigh_host::facts::is_root() {
            return Err(BuildError::NotRoot);
        }
        let name = self.program.to_string_lossy();
        let program = find_program(&name).ok_or_else(|| BuildError::NoProgram(name.into_owned()))?;
        for (file, text) in [("customise.sh", CUSTOMISE), ("packages", "")] {
            let path = staging.join(file);
            fs::write(&path, text).map_err(FileError::of("write", &path))?;
        }
        let scratch = staging.join("scratch");
        fs::create_dir(&scratch).map_err(FileError::of("make the directory", &scratch))?;
        if log.exists() {
            fs::remove_file(log).map_err(FileError::of("remove", log))?;
        }
        let arguments = self.arguments(staging, &archives(&self.release));
        run::to_end(run::confined(&program, &arguments).env("TMPDIR", &scratch), log, progress)?;
        finish(self, staging)
    }

    /// The arguments of mmdebstrap(1).
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
        arguments.push(format!("--dpkgopt=path-include={LICENCES}").into());
        let mut hook = OsString::from("--customize-hook=/bin/sh '");
        hook.push(script);
        hook.push("' \"$1\"");
        arguments.push(hook);
        arguments.push((&self.release).into());
        arguments.push(staging.join("tree").into());
        // Without archives, mmdebstrap uses its default one.
        arguments.extend(archives.iter().map(Into::into));
        arguments
    }
}

/// The user that apt(8) downloads as, if this host has one.
fn downloader() -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| line.strip_prefix("_apt:")?.split(':').nth(1)?.parse().ok())
}

/// The release of Debian in an os-release(5) file.
fn release(system: &str) -> Option<&str> {
    let value = |name: &str| {
        let value = system.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"'))
    };
    (value("ID") == Some("debian")).then(|| value("VERSION_CODENAME")).flatten()
}

/// The archives of a release for which this host's apt(8) has package lists, as lines of
/// sources.list(5).
fn archives(release: &str) -> Vec<String> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)";
    let targets = Invocation::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .env("LC_ALL", "C")
        .deadline(LOOK_UP)
        .run_ok();
    // A host without apt has none.
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
    // Updates alone do not make a system.
    if lines.iter().any(|line| line.ends_with(&format!(" {release} main"))) { lines } else { Vec::new() }
}

/// Checks the built system, and writes its record.
fn finish(recipe: &Recipe, staging: &Path) -> Result<(), BuildError> {
    let tree = staging.join("tree");
    for needed in ["sbin/init", "etc/os-release", "usr/bin/dpkg", ".weighbridge"] {
        if tree.join(needed).symlink_metadata().is_err() {
            return Err(BuildError::Incomplete(needed));
        }
    }
    // Every guest gets its own device nodes; on the host's file system they are only dangerous.
    let devices = tree.join("dev");
    for path in [&devices, &staging.join("scratch")] {
        fs::remove_dir_all(path).map_err(FileError::of("remove", path))?;
    }
    fs::create_dir(&devices).map_err(FileError::of("make the directory", &devices))?;
    let packages = staging.join("packages");
    let list = fs::read_to_string(&packages).map_err(FileError::of("read", &packages))?;
    let mut content = ContentDigest::new();
    content.part(list.as_bytes());
    let mut record = Record::new("debian".into(), recipe.identity(), content.finish(), &tree)
        .map_err(FileError::of("look through", &tree))?;
    record.summary = format!("Debian {}, {} packages", recipe.release, list.lines().count());
    Ok(record.write(staging).map_err(FileError::of("write the record in", staging))?)
}

#[cfg(test)]
mod tests;
