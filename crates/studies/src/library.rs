//! All studies: the built-in ones and the user's.

use crate::file;
use crate::study::{Experiment, Study};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weigh_model::nearest;
use weigh_workloads::{Fault, FileError};

macro_rules! embedded {
    ($($study:literal: [$($experiment:literal),* $(,)?]),* $(,)?) => {
        &[$(Embedded {
            name: $study,
            experiments: &[$(concat!("studies/", $study, "/", $experiment, ".toml")),*],
        }),*]
    };
}

/// The texts of the built-in studies.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/studies.xz"));

/// The files of a built-in study.
struct Embedded {
    name: &'static str,
    /// Names of the files.
    experiments: &'static [&'static str],
}

/// The built-in studies and their experiments, in the order in which they are listed.
const EMBEDDED: &[Embedded] = embedded![
    "felter-2014": [
        "table-1-pxz",
        "table-1-linpack",
        "table-1-stream",
        "table-1-gups",
        "fig-2",
        "fig-3",
        "fig-5",
        "fig-6",
        "fig-7",
        "fig-8",
        "table-3",
        "text-start-up",
    ],
    "morabito-2015": [
        "fig-2",
        "fig-3",
        "text-geekbench",
        "table-3",
        "fig-4",
        "fig-6",
        "table-4",
        "table-5",
        "fig-7",
        "table-7",
        "table-8",
    ],
    "agarwal-2015": [
        "fig-1",
        "fig-3",
        "text-io-neighbours",
        "fig-4",
        "table-1",
        "text-ksm-kernels",
        "table-2",
        "table-3",
    ],
    "cloudspectator-2017": [
        "system",
        "disk",
    ],
    "manco-2017": [
        "start",
        "restore",
        "memory",
    ],
    "young-2019": [
        "system-calls",
        "open-close",
        "read",
        "write",
        "import",
        "download",
        "allocation",
        "start-up",
    ],
    "agache-2020": [
        "boot-serial",
        "boot-parallel",
        "disk",
        "memory",
        "network",
    ],
    "anjali-2020": [
        "fig-5",
        "fig-8",
        "table-3",
        "fig-14",
        "fig-16",
        "fig-19",
    ],
    "gvisor-guide-2019": [
        "syscall",
        "density",
        "start-up",
        "redis",
        "network",
        "fio",
        "cpu",
    ],
    "li-2022": [
        "start",
        "rate",
        "memory",
    ],
];

/// All studies that a user can name.
///
/// # A study
/// A study is one TOML file. A built-in study is a folder instead: `study.toml` has the first part,
/// and a file for each experiment has the contents of `[[experiment]]` at its top level.
/// ```toml
/// name = "mine-2026"                       # small letters, digits, hyphens
/// title = "What our build server costs"
/// authors = "we"
/// published = "internal note, 2026"
/// host = "2 x CPU, 64 GB; kernel, versions of the platforms"
/// method = "one platform after the other; mean of 10 runs, standard deviation"
///
/// [[experiment]]
/// name = "table-1/build"                   # small letters, digits, hyphens, slashes
/// also = ["fig-1"]                         # optional: further names under which it is asked for
/// title = "Building the product"
/// source = "section 2, table 1"
/// statistic = "mean of 10 runs; standard deviation"    # what the printed numbers are
/// baseline = "native"                      # identifier of the arm that overheads are of
///
/// [experiment.measure]                     # the command of weigh, without --on, --baseline, --size, --out, --seed and effort
/// command = "run"                          # run, start, footprint, density, soak
/// arguments = ["xz"]                       # its arguments at every size
/// quick = ["--param", "threads=1"]         # optional: further arguments at one size; also `standard`, `paper`
/// needs = "a program to install"           # optional
///
/// [[experiment.instead]]                   # optional: what weigh uses instead of the study's program
/// original = "a compiler of 2014"
/// here = "compression by xz"
///
/// [[experiment.arm]]                       # the columns
/// id = "native"
/// label = "Native"
/// on = "native"                            # an environment, as after --on
/// note = "a remark for the reader"         # optional
/// [[experiment.arm]]
/// id = "jail"
/// label = "FreeBSD jail"
/// reach = "ssh"                            # instead of `on`: a machine that the user must name
/// [[experiment.arm]]
/// id = "lxc"
/// label = "LXC"
/// on = "lxc"
/// today = true                             # the paper has no such column in this experiment
///
/// [[experiment.quantity]]                  # the rows
/// id = "rate"
/// label = "rate (MB/s)"
/// workload = "xz"
/// metric = "rate"
/// params = { threads = "1" }               # optional: parameters that select the cell
/// # sweep = "clients"                      # optional: a point for each value of this parameter
/// # best_over = "clients"                  # optional: the value of this parameter that is best on average
/// statistic = "mean"                       # optional, of the blocks: mean, median, min, p05, p95, max, sd, cv
/// unit = "MB/s"                            # of the printed numbers
/// better = "higher"
/// stands_in = true                         # optional: measured by another program than the study's
/// # percentile = 99                        # optional: which percentile it is, for its place in a view of the form `cdf`
/// # from = "cells"                         # optional: cells, limits (of footprints: one more guest), duplicates (of footprints: equal
/// #                                        # pages), text (published only: no workload, metric; `why` says why)
///
/// [[experiment.published]]                 # printed numbers
/// quantity = "rate"
/// source = "table 1, p. 2"
/// n = 10                                   # optional: runs
/// spread = "sd"                            # optional: sd, ci95, none; or `box` for min, p05, median, p95, max
/// values = { native = [76.2, 0.93], jail = [73.5, 0.64] }
/// # at = { clients = 4 }                   # the point, if the quantity is swept
///
/// [[experiment.claim]]                     # optional: what the text claims
/// id = "jail-costs-little"
/// says = "a jail is 4 % slower"
/// source = "section 2, p. 3"
/// check = "jail overhead of rate <= 8 %"
///
/// [[experiment.view]]                      # how it is drawn
/// id = "table-1"
/// title = "Table 1 (build)"
/// form = "table"                           # table, bars, lines, cdf, boxes
/// quantities = ["rate"]
/// # x = "clients"                          # lines: the swept parameter, or another quantity
/// arms_down = false                        # optional: a table with arms as rows
/// # x_label, y_label                       # optional
///
/// [[experiment.reanalyse]]                 # optional: where the raw numbers are in the study's logs, for `--reanalyse DIR`
/// quantity = "rate"
/// parser = "stream"                        # a parser of logs of several runs
/// value = "triad"                          # a field of it
/// # section = "random-read-16"             # optional: the name of the runs that count in the log
/// # sections = { jail = "jail,4096" }      # optional: the same of single arms, where one log has several
/// # runs = [11, 20]                        # optional: the first and the last run that count
/// folders = ["Stream/results", "stream"]   # below DIR; a file is read from the first folder that has it
/// files = { native = ["linux.log"], jail = ["jail{1..9}.log"] }   # a file, or one for each number
/// # clients = true                         # optional: each file is of a client; their n-th runs together are one
/// # at = { clients = 4 }                   # optional: the point, where the logs do not say it
/// n = 10                                   # optional: runs of each arm
/// # note = "a remark for the reader"       # optional
/// ```
///
/// [`Check`](crate::Check) describes how `check` is written. The names of built-in studies are
/// reserved.
#[derive(Debug, Clone)]
pub struct Library {
    studies: Vec<Study>,
}

/// An experiment and its study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoundExperiment<'a> {
    /// The study.
    pub study: &'a Study,
    /// The experiment.
    pub experiment: &'a Experiment,
}

impl FoundExperiment<'_> {
    /// The full name of exactly this experiment, such as `felter-2014/table-1/pxz`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.study.name, self.experiment.name)
    }
}

/// No study or experiment has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no study or experiment `{name}`")]
pub struct UnknownExperiment {
    /// The name as given.
    pub name: String,
    /// The name that was probably meant.
    pub nearest: Option<String>,
}

/// The built-in studies.
///
/// # Errors
/// The first fault in the built-in files, which is a defect of this crate that its tests find.
pub fn library() -> Result<Library, FileError> {
    Library::load(&[])
}

impl Library {
    /// Reads the built-in studies, and a study from each of the user's `files`.
    ///
    /// # Errors
    /// The first study that is wrong or has the name of another.
    pub fn load(files: &[PathBuf]) -> Result<Self, FileError> {
        let texts = weigh_workloads::unpack(PACKED);
        let studies = EMBEDDED.iter().map(|files| embedded(files, &texts)).collect::<Result<_, _>>()?;
        let mut library = Self { studies };
        for path in files {
            let text = std::fs::read_to_string(path).map_err(|error| {
                FileError::of_file(
                    path,
                    format!("cannot read the study: {error}"),
                    "name a TOML file in UTF-8",
                )
            })?;
            library.add(path, &text)?;
        }
        Ok(library)
    }

    /// Adds the study in the text of a file. Errors name the file `file`.
    ///
    /// # Errors
    /// The study is wrong, or another study has its name.
    pub fn add(&mut self, file: &Path, text: &str) -> Result<&Study, FileError> {
        let study = file::read_study(file, text)?;
        if self.get(&study.name).is_some() {
            let message = format!("`{}` is the name of another study", study.name);
            return Err(Fault::at_value(text, "name", message, "rename yours").in_file(file, text));
        }
        self.studies.push(study);
        Ok(self.studies.last().expect("it was just added"))
    }

    /// All studies, the built-in ones first.
    pub fn studies(&self) -> &[Study] {
        &self.studies
    }

    /// The study with exactly this name.
    pub fn get(&self, name: &str) -> Option<&Study> {
        self.studies.iter().find(|study| study.name == name)
    }

    /// The experiments that a name refers to, in the order of the study: all of a study
    /// (`felter-2014`), the one with that name (`felter-2014/table-1/pxz`), or else those of the
    /// group with that name (`felter-2014/table-1`) and those that have it as a further name.
    ///
    /// # Errors
    /// [`UnknownExperiment`] with the nearest name.
    pub fn find(&self, name: &str) -> Result<Vec<FoundExperiment<'_>>, UnknownExperiment> {
        let unknown = || UnknownExperiment { name: name.into(), nearest: self.nearest(name) };
        let (study, wanted) = name.split_once('/').map_or((name, None), |(study, rest)| (study, Some(rest)));
        let study = self.get(study).ok_or_else(unknown)?;
        let found: Vec<FoundExperiment<'_>> = named(study, wanted)
            .into_iter()
            .map(|experiment| FoundExperiment { study, experiment })
            .collect();
        if found.is_empty() { Err(unknown()) } else { Ok(found) }
    }

    /// Every name that [`Self::find`] takes: for each study its own, then those of its experiments
    /// and groups.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for study in &self.studies {
            let mut of_study = vec![study.name.clone()];
            for experiment in &study.experiments {
                for name in std::iter::once(&experiment.name).chain(&experiment.also) {
                    let groups = name.match_indices('/').map(|(at, _)| &name[..at]);
                    of_study
                        .extend(groups.chain([name.as_str()]).map(|name| format!("{}/{name}", study.name)));
                }
            }
            let mut seen = std::collections::BTreeSet::new();
            names.extend(of_study.into_iter().filter(|name| seen.insert(name.clone())));
        }
        names
    }

    /// The name that was probably meant: a similar one, or the only one with this ending.
    fn nearest(&self, name: &str) -> Option<String> {
        let names = self.names();
        if let Some(near) = nearest(name, names.iter().map(String::as_str)) {
            return Some(near.into());
        }
        let ending = format!("/{name}");
        let mut ending_so = names.iter().filter(|known| known.ends_with(&ending));
        ending_so.next().filter(|_| ending_so.next().is_none()).cloned()
    }
}

/// The experiments of a study that a name refers to.
fn named<'a>(study: &'a Study, wanted: Option<&str>) -> Vec<&'a Experiment> {
    let Some(wanted) = wanted else { return study.experiments.iter().collect() };
    if let Some(exact) = study.experiment(wanted) {
        return vec![exact];
    }
    let is_meant =
        |name: &String| name == wanted || name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('/'));
    let names = |experiment: &'a Experiment| std::iter::once(&experiment.name).chain(&experiment.also);
    study.experiments.iter().filter(|experiment| names(experiment).any(is_meant)).collect()
}

fn embedded(files: &Embedded, texts: &BTreeMap<String, String>) -> Result<Study, FileError> {
    let head = format!("studies/{}/study.toml", files.name);
    let experiments: Vec<(&Path, &str)> =
        files.experiments.iter().map(|file| (Path::new(*file), &*texts[*file])).collect();
    file::read_folder((Path::new(&head), &texts[&head]), &experiments)
}

#[cfg(test)]
mod tests;
