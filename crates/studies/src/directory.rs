//! The directory of a study that is measured: its state, and a run directory for each experiment.
//!
//! ```text
//! weigh-runs/<UTC time>-<study>/
//!   study.json     what was asked for, and how far it came; replaced as a whole
//!   report.html    the study redrawn
//!   table-1-pxz/   the run directory of an experiment
//! ```

use crate::columns::ColumnChoice;
use crate::file::read_study;
use crate::study::{Experiment, Study};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_store::StoreError;
use weigh_workloads::FileError;

/// Version of `study.json`.
const FORMAT: u32 = 1;
const STATE: &str = "study.json";
/// The longest state, bytes.
const LONGEST_BYTES: u64 = 64 << 20;

/// The request for a study, and its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyState {
    /// Version of the file.
    pub format: u32,
    /// Version of weigh that began the study.
    pub tool_version: String,
    /// The whole study as the text of a file, so that a later version measures and shows the same.
    pub study: String,
    /// `quick`, `standard` or `paper`.
    pub size: String,
    /// Options that are added to the command of every experiment, as words.
    pub options: Vec<String>,
    /// Environments that replace those of arms, by the identifier of the arm.
    pub arms: BTreeMap<String, String>,
    /// Environments that every experiment has as further columns.
    pub on: Vec<String>,
    /// The experiments that were asked for, in the order in which they are measured.
    pub experiments: Vec<ExperimentState>,
}

/// The progress of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentState {
    /// Its name in the study.
    pub name: String,
    /// The command that measures it, as words without `weigh` and without `--out`.
    #[serde(default)]
    pub command: Vec<String>,
    /// Its run directory below the study's, once there is one.
    #[serde(default)]
    pub run: Option<String>,
    /// Whether the run was completed.
    #[serde(default)]
    pub done: bool,
    /// Why it could not be run.
    #[serde(default)]
    pub not_run: Option<String>,
    /// The environment of each arm that was run.
    #[serde(default)]
    pub environments: BTreeMap<String, String>,
    /// Why an arm was not run, by its identifier.
    #[serde(default)]
    pub without: BTreeMap<String, String>,
    /// The platforms of the arms that can be run, each with its version and what else identified it
    /// when the experiment began.
    #[serde(default)]
    pub platforms: BTreeMap<String, String>,
}

impl ExperimentState {
    /// Whether it is still to be measured. One that could not be planned is not; one whose run
    /// began and failed is, because the run can be resumed.
    pub fn is_left(&self) -> bool {
        !self.done && (self.not_run.is_none() || self.run.is_some())
    }
}

/// A directory of a study cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// There are files in it already.
    #[error("{} exists and is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The file system reported an error.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What failed, as a verb with its object.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state is not what weigh wrote.
    #[error("{} is damaged", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A newer version wrote the state.
    #[error("{} has format {found}, and this weigh reads up to {FORMAT}", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The state names an experiment that its study does not have.
    #[error("{}: the study has no experiment `{name}`", path.display())]
    NoExperiment {
        /// The directory.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The state names a run that is not in the directory.
    #[error("{}: `{run}` is not a run directory inside the study's", file.display())]
    Outside {
        /// The file.
        file: PathBuf,
        /// Its name in the state.
        run: String,
    },
    /// The study in the state is wrong.
    #[error(transparent)]
    Study(#[from] FileError),
    /// An environment in the state is wrong.
    #[error("{}", .0.message)]
    Environment(SpecError),
    /// A run directory or the state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DirectoryError {
    /// What to do about it, if that is known.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotEmpty(_) => {
                Some("give --out another directory, or continue this study: `weigh resume DIR`")
            }
            Self::Damaged { .. } => {
                Some("the runs of its experiments are intact: `weigh show DIR/EXPERIMENT` shows each")
            }
            Self::Newer { .. } => Some("use the version of weigh that made it, or a newer one"),
            Self::NoExperiment { .. } | Self::Outside { .. } => {
                Some("restore study.json from a copy, or measure the study again")
            }
            _ => None,
        }
    }
}

/// The directory of a study.
#[derive(Debug)]
pub struct StudyDirectory {
    path: PathBuf,
    state: StudyState,
    study: Study,
}

impl StudyDirectory {
    /// Whether a directory belongs to a study.
    pub fn is_one(path: &Path) -> bool {
        path.join(STATE).is_file()
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// It exists and is not empty; errors of the file system.
    pub fn create(path: &Path, study: &Study, state: StudyState) -> Result<Self, DirectoryError> {
        if std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(DirectoryError::NotEmpty(path.into()));
        }
        let failed = |source| DirectoryError::Io { action: "make the directory", path: path.into(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let made = Self { path: path.into(), state, study: study.clone() };
        made.save()?;
        Ok(made)
    }

    /// Opens a directory that [`Self::create`] made.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or was made by a newer version.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let file = path.join(STATE);
        let failed = |source| DirectoryError::Io { action: "read", path: file.clone(), source };
        let text = weigh_store::files::read(path, STATE, LONGEST_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
            .map_err(failed)?;
        let damaged = |source| DirectoryError::Damaged { file: file.clone(), source };
        // A newer format may have another shape, which is not damage.
        let loose: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
        if let Some(found) = loose["format"].as_u64().filter(|format| *format > u64::from(FORMAT)) {
            return Err(DirectoryError::Newer { file, found });
        }
        let state: StudyState = serde_json::from_str(&text).map_err(damaged)?;
        for one in &state.experiments {
            let run = run_name(&one.name);
            if let Some(run) = one.run.iter().chain([&run]).find(|run| !is_below(path, run)) {
                return Err(DirectoryError::Outside { file, run: run.clone() });
            }
        }
        let study = read_study(Path::new(STATE), &state.study)?;
        Ok(Self { path: path.into(), state, study })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The request for the study, and its progress.
    pub fn state(&self) -> &StudyState {
        &self.state
    }

    /// The study as it was when it was requested.
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// The columns that the user wanted.
    ///
    /// # Errors
    /// An environment in the state is wrong.
    pub fn columns(&self) -> Result<ColumnChoice, DirectoryError> {
        let parse = |text: &String| EnvironmentSpec::parse(text).map_err(DirectoryError::Environment);
        let arms = self.state.arms.iter().map(|(id, text)| Ok((id.clone(), parse(text)?)));
        Ok(ColumnChoice {
            arms: arms.collect::<Result<_, DirectoryError>>()?,
            on: self.state.on.iter().map(parse).collect::<Result<_, _>>()?,
        })
    }

    /// The data of the experiment at a place in the state.
    ///
    /// # Errors
    /// The study does not have it.
    pub fn experiment(&self, at: usize) -> Result<&Experiment, DirectoryError> {
        let name = &self.state.experiments[at].name;
        let missing = || DirectoryError::NoExperiment { path: self.path.clone(), name: name.clone() };
        self.study.experiment(name).ok_or_else(missing)
    }

    /// Changes the state of an experiment and saves it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn update(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut ExperimentState),
    ) -> Result<(), DirectoryError> {
        change(&mut self.state.experiments[at]);
        self.save()
    }

    fn save(&self) -> Result<(), DirectoryError> {
        let text = serde_json::to_vec_pretty(&self.state).expect("plain data becomes JSON");
        Ok(weigh_store::write_whole(&self.path, STATE, &text)?)
    }
}

impl StudyState {
    /// The state of a study that was just requested.
    pub fn new(study: &Study, size: &str) -> Self {
        Self {
            format: FORMAT,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            study: study.to_toml(),
            size: size.into(),
            options: Vec::new(),
            arms: BTreeMap::new(),
            on: Vec::new(),
            experiments: Vec::new(),
        }
    }
}

/// Whether a name can be that of an entry of the directory, and no symbolic link has it.
fn is_below(directory: &Path, name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    is_plain && !directory.join(name).is_symlink()
}

/// The name of the run directory of an experiment: a slash becomes a hyphen.
pub fn run_name(experiment: &str) -> String {
    experiment.replace('/', "-")
}
