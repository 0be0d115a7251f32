//! Packages of the archive configured on the host, downloaded by apt(8) and unpacked by dpkg-deb(1)
//! into the cache. Nothing is ever installed.

use crate::FileError;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::cache::{CacheDirectory, CacheError};
use weigh_host::command::{CommandError, Invocation, find_program};
use weigh_host::ledger::Ledger;

/// Deadline of a lookup in apt's lists.
const LOOK_UP: Duration = Duration::from_secs(60);
/// Deadline of a download of about 30 MB.
const FETCH: Duration = Duration::from_secs(300);
/// Deadline for unpacking it.
const UNPACK: Duration = Duration::from_secs(120);

/// Debian's package of the user-mode kernel, and the program in it.
const USER_MODE: (&str, &str) = ("user-mode-linux", "usr/bin/linux.uml");

/// How packages are fetched.
#[derive(Debug, Clone, Copy)]
pub struct Fetching<'a> {
    /// A file that gets the output of the programs used.
    pub log: &'a Path,
    /// The moment at which a download is given up, and after which none begins. Without one, only
    /// the deadline of each program counts.
    pub until: Option<Instant>,
}

impl Fetching<'_> {
    /// What is left of the deadline of a program.
    fn left(&self, deadline: Duration) -> Result<Duration, PackageError> {
        let left = self.until.map_or(deadline, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() { Err(PackageError::Late) } else { Ok(left.min(deadline)) }
    }

    /// The error of a program, which may have been killed because the time was over.
    fn failed(&self, error: CommandError) -> PackageError {
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        match error {
            CommandError::Deadline { .. } if is_over => PackageError::Late,
            other => other.into(),
        }
    }
}

/// Why a package is not available.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The host has no apt(8) or no dpkg-deb(1).
    #[error("this host has no {0}, which is needed to download Debian packages")]
    NoProgram(&'static str),
    /// apt does not know the package.
    #[error("apt knows no {0}")]
    Unknown(String),
    /// The moment of [`Fetching::until`] has come.
    #[error("there was no more time to fetch it")]
    Late,
    /// apt-get succeeded, and there is no file.
    #[error("apt-get downloaded no file for the package {0}")]
    Nothing(String),
    /// The package lacks a needed file.
    #[error("the package {package} does not contain {file}")]
    Without {
        /// Its name.
        package: String,
        /// The missing file.
        file: &'static str,
    },
    /// A program failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The cache cannot be used.
    #[error(
        "the cache cannot be used: {0}; set WEIGH_CACHE to a directory of yours that nobody else may write"
    )]
    Cache(String),
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<CacheError<PackageError>> for PackageError {
    fn from(error: CacheError<PackageError>) -> Self {
        match error {
            CacheError::Make(error) => error,
            other => Self::Cache(other.to_string()),
        }
    }
}

/// A version of a package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl Package {
    /// The version of a package that apt(8) would install.
    pub(crate) fn candidate(name: &str, fetching: Fetching<'_>) -> Result<Self, PackageError> {
        let paragraph = show(name, fetching)?;
        let unknown = || PackageError::Unknown(format!("version of the package {name}"));
        let version = field(&paragraph, "Version").ok_or_else(unknown)?.to_string();
        Ok(Self { name: name.into(), version })
    }

    /// Its name in the cache, with the version and without colons.
    pub(crate) fn label(&self) -> String {
        format!("{}_{}", self.name, self.version.replace(':', "%3a"))
    }

    /// Downloads the package, which apt(8) verifies by the archive's signature, and unpacks it into
    /// a directory, without its documentation.
    pub(crate) fn unpack(&self, staging: &Path, fetching: Fetching<'_>) -> Result<(), PackageError> {
        let download = staging.join("download");
        fs::create_dir(&download).map_err(FileError::of("make the directory", &download))?;
        Invocation::new("apt-get")
            .args(["-q", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "download"])
            .arg(format!("{}={}", self.name, self.version))
            .env("LC_ALL", "C")
            .current_dir(&download)
            .deadline(fetching.left(FETCH)?)
            .log_to(fetching.log)
            .run_ok()
            .map_err(|error| fetching.failed(error))?;
        let entry = fs::read_dir(&download).ok().and_then(|mut entries| entries.next()?.ok());
        let nothing = || PackageError::Nothing(self.name.clone());
        let package = entry.map(|entry| entry.path()).ok_or_else(nothing)?;
        Invocation::new("dpkg-deb")
            .arg("--extract")
            .arg(&package)
            .arg(staging)
            .env("LC_ALL", "C")
            .deadline(UNPACK)
            .log_to(fetching.log)
            .run_ok()?;
        for rest in [download, staging.join("usr/share")] {
            if rest.exists() {
                fs::remove_dir_all(&rest).map_err(FileError::of("remove", &rest))?;
            }
        }
        Ok(())
    }
}

/// The metadata of the candidate of a package; empty if apt(8) does not know it.
pub(crate) fn show(package: &str, fetching: Fetching<'_>) -> Result<String, PackageError> {
    let deadline = fetching.left(LOOK_UP)?;
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if find_program(program).is_none() {
            return Err(PackageError::NoProgram(program));
        }
    }
    let show = Invocation::new("apt-cache").args(["show", "--no-all-versions", package]);
    let show = show.env("LC_ALL", "C").deadline(deadline).log_to(fetching.log);
    let finished = show.run().map_err(|error| fetching.failed(error))?;
    Ok(String::from_utf8_lossy(&finished.output).into_owned())
}

/// A field of the first paragraph (deb822(5)).
pub(crate) fn field<'a>(paragraph: &'a str, name: &str) -> Option<&'a str> {
    let lines = paragraph.lines().take_while(|line| !line.is_empty());
    lines.into_iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Debian's user-mode kernel, if it is in the cache.
pub fn cached_user_mode_kernel(cache: &CacheDirectory) -> Option<PathBuf> {
    let (package, program) = USER_MODE;
    let entries = fs::read_dir(cache.path()).ok()?.flatten();
    let mut programs: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&format!("{package}_")) && !name.ends_with(".new")
        })
        .map(|entry| entry.path().join(program))
        .filter(|program| program.is_file())
        .collect();
    programs.sort();
    programs.pop()
}

/// Debian's user-mode kernel, downloaded into the cache if it is not there.
///
/// # Errors
/// It is not available, for example without a network.
pub fn user_mode_kernel(
    cache: &CacheDirectory,
    ledger: &Ledger,
    fetching: Fetching<'_>,
) -> Result<PathBuf, PackageError> {
    if let Some(program) = cached_user_mode_kernel(cache) {
        return Ok(program);
    }
    let (name, program) = USER_MODE;
    let package = Package::candidate(name, fetching)?;
    let directory = cache.directory(&package.label(), ledger, |staging| {
        package.unpack(staging, fetching)?;
        // An unsuitable package must not stay in the cache.
        let without = || PackageError::Without { package: name.into(), file: program };
        if staging.join(program).is_file() { Ok(()) } else { Err(without()) }
    })?;
    Ok(directory.join(program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_host::state::StateDirectory;

    #[test]
    fn nothing_is_begun_when_the_time_is_over() {
        let base = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(&StateDirectory::at(base.path().join("state")), "run").unwrap();
        let log = base.path().join("log");
        let fetching = Fetching { log: &log, until: Some(Instant::now()) };
        let found = user_mode_kernel(&CacheDirectory::at(base.path()), &ledger, fetching);
        assert!(matches!(found, Err(PackageError::Late)), "{found:?}");
        assert!(!log.exists());
    }

    #[test]
    fn only_complete_entries_are_used() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path());
        assert_eq!(cached_user_mode_kernel(&cache), None);
        for name in ["user-mode-linux_6.1um4+b13", "user-mode-linux_6.1um9.new", "user-mode-linux_6.1um3"] {
            let bin = base.path().join(name).join("usr/bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("linux.uml"), "").unwrap();
        }
        fs::create_dir_all(base.path().join("user-mode-linux_9")).unwrap();
        let found = cached_user_mode_kernel(&cache).unwrap();
        assert!(found.ends_with("user-mode-linux_6.1um4+b13/usr/bin/linux.uml"), "{}", found.display());
    }

    #[test]
    fn fields_are_those_of_the_first_paragraph() {
        let text = "Package: a\nVersion: 1:2-3\n\nPackage: b\nSection: kernel\n";
        assert_eq!(field(text, "Version"), Some("1:2-3"));
        assert_eq!(field(text, "Section"), None);
        let package = Package { name: "a".into(), version: "1:2-3".into() };
        assert_eq!(package.label(), "a_1%3a2-3");
    }
}
