//! All studies completely, at the quick size, with `WEIGH_STUDIES=1`, or those that it names. Every
//! experiment runs, every platform in it has all its values or says why not, every claim has a
//! grade, and every table and figure is in every format.
//!
//! It takes an hour on two CPUs. The studies stay in `target/tmp/studies`, each with its page, and
//! `claims.md` beside them says what has become of all claims. A study that fails takes no other
//! with it. `WEIGH_STUDIES=continue` goes on after an interruption: it measures what is left of all
//! studies. `WEIGH_STUDIES_BLOCKS` is the number of blocks of each experiment.

use crate::support::{Said, Stage, diagnosis, faults_of_claims, is_ready, words};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weigh_studies::{Arm, Place};

/// Smallest first, so that faults show soon.
const STUDIES: [&str; 10] = [
    "manco-2017",
    "li-2022",
    "agache-2020",
    "anjali-2020",
    "gvisor-guide-2019",
    "young-2019",
    "cloudspectator-2017",
    "agarwal-2015",
    "morabito-2015",
    "felter-2014",
];

/// Two blocks measure everything and conclude little, but conclusions are not what is tested. Nor
/// is how quiet the machine is.
const BLOCKS: u32 = 2;

/// The packages of Debian that have the programs of the studies. Without one its experiments have
/// no values, which would be known only at the end.
const PACKAGES: [&str; 26] = [
    "bonnie++",
    "coreutils",
    "curl",
    "fio",
    "gcc",
    "hpcc",
    "libc6-dev",
    "libnss-wrapper",
    "libopenblas0-pthread",
    "libquantum-dev",
    "mariadb-server",
    "nuttcp",
    "openmpi-bin",
    "python3",
    "python3-django",
    "python3-flask",
    "python3-matplotlib",
    "python3-numpy",
    "python3-requests",
    "python3-setuptools",
    "python3-sqlalchemy",
    "redis-server",
    "redis-tools",
    "sjeng",
    "sysbench",
    "xz-utils",
];
/// The one that is not in Debian's main: its absence is expected.
const ELSEWHERE: &str = "netperf";

/// The value of `WEIGH_STUDIES` for what is left of all studies.
const CONTINUE: &str = "continue";

/// The deadline of the longest study, for every two blocks; with two, all studies must end within an
/// hour and a half.
const DEADLINE: Duration = Duration::from_secs(45 * 60);

/// Why an arm may be left out: a part of the reason, and its kind.
const OF_ARMS: &[(&str, &str)] = &[
    ("KVM does not work", "no KVM"),
    ("gVisor's guests do not start under KVM", "no KVM"),
    ("the Docker engine has no runtime", "a runtime that the engine does not know"),
    ("containerd-shim-kata", "no Kata Containers"),
    ("a machine of yours that weigh cannot make", "a machine to be named"),
    ("there is no loader.elf", "an image to be named"),
];

/// Why a quantity of an arm that was run may have no value: a part of the reason, and its kind.
const OF_CELLS: &[(&str, &str)] = &[
    ("cannot save and restore guests", "nothing to save"),
    ("lxc-checkpoint cannot save a container", "nothing to save"),
    ("needs CRIU of version 4", "no CRIU"),
    ("there is no program `netserver`", "no netperf, which is not in Debian's main"),
    ("it needs a program of your own", "a program to be named"),
    ("this size has no such value", "not at the quick size"),
];

/// The result of a study.
#[derive(Debug, Default)]
struct Tally {
    experiments: usize,
    run: usize,
    possible: usize,
    measured: usize,
    /// How often each kind of reason was given for an arm or a value.
    reasons: BTreeMap<String, usize>,
    faults: Vec<String>,
}

#[test]
fn all_studies_run_whole() {
    let Ok(asked) = std::env::var("WEIGH_STUDIES") else {
        eprintln!("SKIPPED all_studies_run_whole: WEIGH_STUDIES=1 runs it, in an hour");
        return;
    };
    let names: Vec<&str> = asked.split(',').collect();
    let is_all = ["1", CONTINUE].contains(&asked.as_str());
    let unknown = names.iter().find(|name| !is_all && !STUDIES.contains(name));
    assert!(
        unknown.is_none(),
        "no study {unknown:?}: WEIGH_STUDIES is 1, {CONTINUE}, or some of {STUDIES:?}"
    );
    let missing = missing_packages();
    assert!(missing.is_empty(), "the studies measure these: apt-get install {}", missing.join(" "));
    let blocks = blocks();
    let stage = Stage::on_disk();
    let ready = diagnosis(&stage);
    for platform in platforms().iter().filter(|platform| is_known(&ready, platform)) {
        is_ready(&ready, platform, "columns of the studies");
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("studies");
    let mut faults = Vec::new();
    eprintln!("{:<22}{:>14}{:>18}{:>10}", "study", "experiments", "values", "minutes");
    for study in STUDIES.into_iter().filter(|study| is_all || names.contains(study)) {
        let begun = Instant::now();
        let directory = kept.join(study);
        if asked != CONTINUE {
            drop(std::fs::remove_dir_all(&directory));
        }
        if let Err(fault) = measure(&stage, study, &directory, blocks) {
            eprintln!("{study}: {fault}");
            faults.push(format!("{study}: {fault}"));
            continue;
        }
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        let report: Value = serde_json::from_str(&shown(&stage, &directory, "json")).unwrap();
        let mut tally = tally(&report, &ready);
        tally.faults.extend(missing_of_formats(&stage, &directory, &report));
        eprintln!(
            "{study:<22}{:>14}{:>18}{minutes:>10.1}",
            format!("{} of {}", tally.run, tally.experiments),
            format!("{} of {}", tally.measured, tally.possible),
        );
        for (reason, times) in &tally.reasons {
            eprintln!("    {times:>4} x {reason}");
        }
        eprintln!("    {}", directory.join("report.html").display());
        faults.extend(tally.faults.into_iter().map(|fault| format!("{study}: {fault}")));
    }
    let page = stage.stdout(&format!("study --claims {} --format md", kept.display()));
    std::fs::write(kept.join("claims.md"), &page).unwrap();
    eprintln!("{}", kept.join("claims.md").display());
    // What an earlier version measured may have other claims.
    if is_all {
        faults.extend(faults_of_claims(&page));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    stage.host_is_as_before();
}

/// Runs a study into a new directory, or what is left of one that is there.
fn measure(stage: &Stage, study: &str, directory: &Path, blocks: u32) -> Result<(), String> {
    std::fs::create_dir_all(directory.parent().unwrap()).unwrap();
    let place = directory.display();
    let line = if directory.join("study.json").is_file() {
        format!("resume {place}")
    } else {
        format!("study {study} --size quick --blocks {blocks} --no-void --out {place}")
    };
    let mut command = stage.weigh();
    let deadline = DEADLINE * blocks.div_ceil(BLOCKS);
    let output = command.args(words(&line)).timeout(deadline).output().unwrap();
    let said = Said::of(&line, output);
    std::fs::write(kept_log(directory), &said.stderr).unwrap();
    match said.code {
        Some(0) => Ok(()),
        code => {
            let last: Vec<&str> = said.stderr.lines().rev().take(5).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join(" ");
            Err(format!("`weigh {line}` ended with {code:?} (of {deadline:?} at most): {last}"))
        }
    }
}

/// The number of blocks of each experiment.
fn blocks() -> u32 {
    let Ok(asked) = std::env::var("WEIGH_STUDIES_BLOCKS") else { return BLOCKS };
    asked.parse().unwrap_or_else(|_| panic!("WEIGH_STUDIES_BLOCKS={asked} is no number of blocks"))
}

/// The platforms of the columns that weigh makes itself.
fn platforms() -> BTreeSet<String> {
    let library = weigh_studies::library().unwrap();
    let experiments = library.studies().iter().flat_map(|study| &study.experiments);
    let platform = |arm: &Arm| match &arm.place {
        Place::On(environment) => Some(environment.platform.clone()),
        Place::Ssh => None,
    };
    experiments.flat_map(|experiment| &experiment.arms).filter_map(platform).collect()
}

#[test]
fn every_package_of_the_studies_is_looked_for() {
    let workloads = weigh_workloads::Library::load(&[], &[]).unwrap();
    let library = weigh_studies::library().unwrap();
    let experiments = library.studies().iter().flat_map(|study| &study.experiments);
    let words = experiments.flat_map(|experiment| &experiment.measure.arguments);
    let measured = words.filter_map(|word| workloads.get(word).ok());
    let packages: BTreeSet<&str> =
        measured.flat_map(|workload| workload.packages()).map(String::as_str).collect();
    assert!(packages.contains(ELSEWHERE) && packages.len() > PACKAGES.len() / 2, "{packages:?}");
    let unknown: Vec<&str> =
        packages.into_iter().filter(|name| *name != ELSEWHERE && !PACKAGES.contains(name)).collect();
    assert!(unknown.is_empty(), "the list of packages lacks {unknown:?}");
}

/// Where it stands what a study said, beside its directory.
fn kept_log(directory: &Path) -> PathBuf {
    directory.with_extension("log")
}

/// Those of the packages that are not installed; none on other systems than Debian.
fn missing_packages() -> Vec<&'static str> {
    let is_missing = |package: &&str| {
        let asked = Command::new("dpkg-query").args(["--show", "--showformat=${Status}", *package]).output();
        asked.is_ok_and(|output| !String::from_utf8_lossy(&output.stdout).contains("ok installed"))
    };
    PACKAGES.into_iter().filter(is_missing).collect()
}

fn shown(stage: &Stage, directory: &Path, format: &str) -> String {
    stage.stdout(&format!("show {} --format {format}", directory.display()))
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// Counts what was measured, and finds what is missing without a reason that is expected on this
/// machine.
fn tally(report: &Value, ready: &Value) -> Tally {
    let mut tally = Tally::default();
    for experiment in list(report, "experiments") {
        tally.experiments += 1;
        let name = text(experiment, "name");
        let arms = list(experiment, "arms");
        for arm in arms.iter().filter(|arm| arm["not_run"].is_string()) {
            let kind = of_arm(arm, ready);
            tally.explain(kind, &format!("{name}: {}", text(arm, "id")), text(arm, "not_run"));
        }
        if arms.iter().all(|arm| arm["not_run"].is_string()) {
            // Then each of them has a reason, and so must the experiment.
            if text(experiment, "not_run").is_empty() {
                tally.faults.push(format!("{name}: was not run and does not say why"));
            }
            continue;
        }
        tally.run += 1;
        if let Some(reason) = experiment["not_run"].as_str() {
            tally.faults.push(format!("{name}: {reason}"));
        }
        tally.values(name, experiment, arms);
        for claim in list(experiment, "claims") {
            if !is_graded(&claim["grade"]) {
                tally.faults.push(format!("{name}: claim {} has no grade: {}", claim["id"], claim["grade"]));
            }
        }
    }
    tally
}

impl Tally {
    /// Counts every value once, however many tables show it.
    fn values(&mut self, name: &str, experiment: &Value, arms: &[Value]) {
        let mut seen = BTreeSet::new();
        for row in list(experiment, "views").iter().flat_map(|view| list(view, "rows")) {
            // A row that the paper printed and nothing measures says so itself.
            if row["not_measured"].is_string() || !seen.insert((text(row, "quantity"), text(row, "point"))) {
                continue;
            }
            for (arm, cell) in arms.iter().zip(list(row, "cells")) {
                if arm["not_run"].is_string() {
                    continue;
                }
                if cell["measured"].is_object() {
                    self.possible += 1;
                    self.measured += 1;
                    continue;
                }
                let what = format!(
                    "{name}: {} {} of {}",
                    text(row, "quantity"),
                    text(row, "point"),
                    text(arm, "id")
                );
                let reason = text(cell, "missing");
                let kind = OF_CELLS.iter().find(|(part, _)| reason.contains(part)).map(|(_, kind)| *kind);
                self.possible += usize::from(kind.is_none());
                self.explain(kind, &what, reason);
            }
        }
    }

    fn explain(&mut self, kind: Option<&str>, what: &str, reason: &str) {
        match kind {
            Some(kind) => *self.reasons.entry(kind.into()).or_default() += 1,
            None if reason.is_empty() => self.faults.push(format!("{what}: no value, and no reason")),
            None => self.faults.push(format!("{what}: {reason}")),
        }
    }
}

/// The kind of reason that an arm has for not being run, if it is an expected one.
fn of_arm<'a>(arm: &Value, ready: &'a Value) -> Option<&'a str> {
    let reason = text(arm, "not_run");
    if let Some((_, kind)) = OF_ARMS.iter().find(|(part, _)| reason.contains(part)) {
        return Some(kind);
    }
    let platform = text(arm, "on").split(':').next()?;
    (is_known(ready, platform) && !is_ready(ready, platform, &format!("{} of a study", text(arm, "id"))))
        .then_some("no such platform here")
}

/// Whether the doctor knows a platform by this name; it does not know every alias.
fn is_known(ready: &Value, platform: &str) -> bool {
    list(ready, "platforms").iter().any(|state| state["name"] == platform)
}

/// Whether a claim has a grade, or a sentence that says why not.
fn is_graded(grade: &Value) -> bool {
    grade["grade"].as_str().or(grade["not_run"].as_str()).is_some_and(|words| !words.trim().is_empty())
}

/// Finds views that a format lacks, and a document that does not compile.
fn missing_of_formats(stage: &Stage, directory: &Path, report: &Value) -> Vec<String> {
    let page = std::fs::read_to_string(directory.join("report.html")).unwrap();
    let latex = shown(stage, directory, "latex");
    let documents = [("report.html", page), ("md", shown(stage, directory, "md")), ("latex", latex.clone())];
    let mut faults = Vec::new();
    for (format, document) in documents {
        let letters = letters(&document);
        for experiment in list(report, "experiments") {
            for view in list(experiment, "views") {
                let title = format!("{}: {}", text(view, "id"), text(view, "title"));
                if !letters.contains(&self::letters(&title)) {
                    faults.push(format!("{format} has no `{title}` of {}", text(experiment, "name")));
                }
            }
        }
        std::fs::write(
            directory.join("report").with_extension(format.trim_start_matches("report.")),
            &document,
        )
        .unwrap();
    }
    faults.extend(compile(directory, &latex));
    faults
}

/// A text without what formats spell in their own words: entities of HTML, commands of LaTeX.
fn letters(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '&' => rest.find(';').filter(|end| *end <= LONGEST_ENTITY).map(|end| end + 1),
            '\\' => {
                let word = rest[1..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - 1);
                (word > 0).then_some(word + 1)
            }
            _ => None,
        };
        if length.is_none() && next.is_ascii_alphanumeric() {
            left.push(next);
        }
        rest = &rest[length.unwrap_or(next.len_utf8())..];
    }
    left
}

/// The longest entity, such as `&quot;` and `&#x27;`.
const LONGEST_ENTITY: usize = 7;

/// Whether LaTeX has the packages that the document uses.
fn has_packages() -> bool {
    let found = |package: &str| {
        Command::new("kpsewhich").arg(package).output().is_ok_and(|output| !output.stdout.is_empty())
    };
    ["booktabs.sty", "longtable.sty", "siunitx.sty"].into_iter().all(found)
}

/// Compiles a document, if a program for it is installed.
fn compile(directory: &Path, latex: &str) -> Option<String> {
    let is_there = |program: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    let Some(program) = ["pdflatex", "lualatex"].into_iter().find(is_there).filter(|_| has_packages()) else {
        eprintln!(
            "SKIPPED compiling the LaTeX document: no `pdflatex` or `lualatex` with booktabs and siunitx"
        );
        return None;
    };
    let file = directory.join("report.tex");
    std::fs::write(&file, latex).unwrap();
    let output = Command::new("timeout")
        .args(["300", program, "-interaction=nonstopmode", "-halt-on-error", "report.tex"])
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let told: Vec<&str> = said.lines().skip_while(|line| !line.starts_with('!')).take(4).collect();
    (!output.status.success()).then(|| format!("{program}: {}", told.join(" ")))
}
