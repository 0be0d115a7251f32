//! The directory of a study: which experiments, and a run directory for each.
//!
//! ```text
//! weigh-runs/<UTC time>-<study>/
//!   study.json     what was asked, and how far it came; replaced as a whole
//!   report.html    the study redrawn
//!   table-1-pxz/   the run directory of an experiment
//! ```

use crate::error::{Failure, file_failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weigh_studies::Study;

/// Version of `study.json`.
const FORMAT: u32 = 1;
const STATE: &str = "study.json";

/// What was asked, and how far it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of weigh that began it.
    pub tool_version: String,
    /// The whole study as a file, so that what was asked stays what it was.
    pub study: String,
    /// `quick`, `standard` or `paper`.
    pub size: String,
    /// Options that every experiment's command has further, as words.
    pub options: Vec<String>,
    /// Environments in the place of the arms', by the identifier of the arm.
    pub arms: BTreeMap<String, String>,
    /// Environments of today that every experiment has further.
    pub on: Vec<String>,
    /// The experiments that were asked for, in the order in which they are measured.
    pub experiments: Vec<ExperimentState>,
}

/// How far an experiment came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentState {
    /// Its name in the study.
    pub name: String,
    /// The command that measures it, as words, without `weigh` and without the directory.
    #[serde(default)]
    pub command: Vec<String>,
    /// Its run directory below the study's, once there is one.
    #[serde(default)]
    pub run: Option<String>,
    /// Whether the run has ended by itself.
    #[serde(default)]
    pub done: bool,
    /// Why it was not run, where it could not be.
    #[serde(default)]
    pub not_run: Option<String>,
    /// The environment of each arm that was run.
    #[serde(default)]
    pub environments: BTreeMap<String, String>,
    /// Why an arm was not run.
    #[serde(default)]
    pub without: BTreeMap<String, String>,
}

/// The directory of a study.
#[derive(Debug)]
pub struct StudyDirectory {
    path: PathBuf,
    state: State,
    study: Study,
}

impl StudyDirectory {
    /// Whether a directory is one of a study.
    pub fn is_one(path: &Path) -> bool {
        path.join(STATE).is_file()
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// It exists and is not empty; the file system's own.
    pub fn create(path: &Path, study: &Study, state: State) -> Result<Self, Failure> {
        let occupied = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        if occupied {
            return Err(Failure::input(format!("{} is there already and not empty", path.display()))
                .hint("give --out another directory, or go on with this study: `weigh resume DIR`"));
        }
        std::fs::create_dir_all(path).map_err(|error| file_failure("make the directory", path, error))?;
        let made = Self { path: path.into(), state, study: study.clone() };
        made.save()?;
        Ok(made)
    }

    /// Opens a directory that [`Self::create`] made.
    ///
    /// # Errors
    /// It cannot be read, is damaged or of a newer version.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = path.join(STATE);
        let text = std::fs::read_to_string(&file).map_err(|error| file_failure("read", &file, error))?;
        let damaged = |error: serde_json::Error| {
            Failure::input(format!("{} is damaged", file.display()))
                .because(error)
                .hint("the runs of its experiments are whole: `weigh show DIR/EXPERIMENT` shows each")
        };
        let loose: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
        if let Some(format) = loose["format"].as_u64().filter(|format| *format > u64::from(FORMAT)) {
            return Err(Failure::input(format!(
                "{} has format {format}, and this weigh reads up to {FORMAT}",
                file.display()
            ))
            .hint("use the version of weigh that made it, or a newer one"));
        }
        let state: State = serde_json::from_str(&text).map_err(damaged)?;
        let study = weigh_studies::read_study(Path::new(STATE), &state.study)?;
        Ok(Self { path: path.into(), state, study })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was asked, and how far it came.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The study as it was when it was asked for.
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// Changes the state of an experiment and writes it down.
    ///
    /// # Errors
    /// The file system's own.
    pub fn update(&mut self, at: usize, change: impl FnOnce(&mut ExperimentState)) -> Result<(), Failure> {
        change(&mut self.state.experiments[at]);
        self.save()
    }

    fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(&self.state).expect("plain data becomes JSON");
        Ok(weigh_store::write_whole(&self.path, STATE, &text)?)
    }
}

impl State {
    /// A study that was just asked for.
    pub fn new(study: String, size: &str) -> Self {
        Self {
            format: FORMAT,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            study,
            size: size.into(),
            options: Vec::new(),
            arms: BTreeMap::new(),
            on: Vec::new(),
            experiments: Vec::new(),
        }
    }
}

/// The name of an experiment as that of a directory: a slash becomes a dash.
pub fn slug(experiment: &str) -> String {
    experiment.replace('/', "-")
}
