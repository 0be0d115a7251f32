//! Runs a fleet on the nodes of a Slurm cluster: one job array with a task for each machine.
//!
//! The directory of the fleet has to be on a file system that the nodes share: it holds `weigh`,
//! the plan and the script of a task, and every run is measured into it. The files that a task
//! writes beside its run (`.slurm/N.node`, `.slurm/N.exit`) record the node that it ran on and how
//! it ended, so that the cluster needs no accounting. A share of the blocks has its plan there
//! (`.slurm/N.plan`). The job's name is the fleet's id, by which a resumed fleet finds the tasks
//! that are still in the queue.

use super::work::{Work, own_program};
use super::{Engine, Failure};
use crate::error::{ExitKind, file_failure};
use crate::ui;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};
use weigh_host::deadlines;
use weigh_model::{EnvironmentSpec, SpecError, did_you_mean, nearest};
use weigh_store::fleet::{Fleet, Machine, MachineState};

/// The script that a task runs.
const TASK: &str = include_str!("slurm-task.sh");
/// The directory in which tasks record where they run and how they ended.
const CONTROL: &str = ".slurm";
const PROGRAM: &str = "weigh";
const SCRIPT: &str = ".slurm/task.sh";
/// The greatest number of machines of a fleet. Slurm's own limit of an array (`MaxArraySize`) is
/// 1,001 by default.
const MOST_MACHINES: u32 = 10_000;
/// Keys that are options of `sbatch(1)` with the same meaning.
const OPTIONS: [&str; 4] = ["account", "constraint", "partition", "time"];
/// Variables of this process that Slurm's programs need; tasks get no others.
const VARIABLES: [&str; 9] =
    ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "SLURM_CONF", "USER"];
/// The deadline for a program of Slurm's to answer. A busy controller takes some seconds.
const ANSWER: Duration = Duration::from_secs(60);
/// The interval between looks at the files of tasks, and between questions to Slurm.
const LOOK: Duration = Duration::from_millis(200);
const ASK: Duration = Duration::from_secs(3);
/// The greatest number of times in a row that Slurm may fail to answer.
const MOST_SILENCES: u32 = 20;
/// How long a task's file may take to be visible here: network file systems cache attributes for up
/// to a minute (`nfs(5)`, acdirmax).
const SEEN: Duration = Duration::from_secs(70);

/// The engine.
pub struct Slurm;

impl Engine for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn machines(&self, spec: &EnvironmentSpec) -> Result<Vec<(String, EnvironmentSpec)>, SpecError> {
        let known = || OPTIONS.into_iter().chain(["exclusive", "nodes"]);
        for (key, value) in &spec.keys {
            if !known().any(|known| known == key) {
                let help = did_you_mean(nearest(key, known()), || {
                    format!("its keys are {}", known().collect::<Vec<_>>().join(", "))
                });
                return Err(spec.key_error(key, format!("slurm has no key `{key}`"), help));
            }
            if value.starts_with('-') || value.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(spec.value_error(
                    key,
                    format!("`{value}` is not valid for {key}"),
                    "as `sbatch` takes it",
                ));
            }
        }
        if !["on", "off"].contains(&spec.get("exclusive").unwrap_or("on")) {
            return Err(spec.value_error("exclusive", "exclusive is `on` or `off`", "`on` is the default"));
        }
        let Some(nodes) = spec.get("nodes") else {
            let help = "as in `slurm:nodes=8`";
            return Err(spec.platform_error("slurm has to be told how many machines to measure", help));
        };
        let number = nodes.parse::<u32>().ok().filter(|number| (1..=MOST_MACHINES).contains(number));
        let Some(number) = number else {
            let help = format!("write a number from 1 to {MOST_MACHINES}");
            return Err(spec.value_error("nodes", format!("`{nodes}` is not a number of nodes"), help));
        };
        Ok((0..number).map(|task| (format!("task-{task}"), spec.without(&["nodes"]))).collect())
    }

    fn chooses_machines(&self) -> bool {
        true
    }

    fn name_of(&self, _machine: &Machine, at: usize) -> String {
        format!("task-{at}")
    }

    fn changes(&self, fleet: &Fleet) -> Vec<String> {
        let tasks = fleet.machines.len();
        vec![format!("in Slurm: submit a job array of {tasks} tasks, each of which runs weigh on a node")]
    }

    fn carry_out(&self, work: &Work<'_>) -> Result<(), Failure> {
        let Some(_) = find_program("sbatch") else {
            return Err(Failure::input("Slurm's `sbatch` is not installed here, or not in PATH")
                .hint("run weigh where you submit jobs"));
        };
        let cluster = Cluster::new(work)?;
        cluster.submit_missing()?;
        cluster.follow()
    }
}

/// The part of the queue that belongs to a fleet.
struct Cluster<'a, 'w> {
    work: &'a Work<'w>,
    path: PathBuf,
    id: String,
}

/// A task as Slurm knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    state: String,
    reason: String,
}

impl Task {
    /// Whether it is running or going to run, or is held or stopped and can go on (`squeue(1)`,
    /// "Job State Codes").
    fn is_alive(&self) -> bool {
        const ALIVE: [&str; 14] = [
            "PENDING",
            "RUNNING",
            "CONFIGURING",
            "COMPLETING",
            "SUSPENDED",
            "RESIZING",
            "REQUEUED",
            "REQUEUE_FED",
            "REQUEUE_HOLD",
            "RESV_DEL_HOLD",
            "SIGNALING",
            "SPECIAL_EXIT",
            "STAGE_OUT",
            "STOPPED",
        ];
        ALIVE.contains(&self.state.as_str())
    }
}

impl<'a, 'w> Cluster<'a, 'w> {
    fn new(work: &'a Work<'w>) -> Result<Self, Failure> {
        let path = work.path();
        let path = path.canonicalize().map_err(|error| file_failure("find", &path, error))?;
        let id = work.with(|directory| directory.fleet().id.clone());
        let cluster = Self { work, path, id };
        let control = cluster.path.join(CONTROL);
        std::fs::create_dir_all(&control)
            .map_err(|error| file_failure("make the directory", &control, error))?;
        for (name, bytes) in [(PROGRAM, own_program()?), ("task.sh", TASK.into())] {
            let directory = if name == PROGRAM { &cluster.path } else { &control };
            let file = directory.join(name);
            // A program that is running on a node must not be replaced: over NFS its file would
            // disappear.
            if std::fs::read(&file).ok().as_ref() != Some(&bytes) {
                weigh_store::write_whole(directory, name, &bytes)?;
            }
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&file, executable)
                .map_err(|error| file_failure("make executable", &file, error))?;
        }
        Ok(cluster)
    }

    /// An invocation of a program of Slurm's, without the variables that tasks must not inherit.
    fn program(&self, name: &str) -> Invocation {
        let is_needed = |name: &str| {
            VARIABLES.contains(&name) || name.starts_with("SLURM_") || name.starts_with("SBATCH_")
        };
        let needed = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_needed));
        let program = Invocation::new(name).env_clear().deadline(ANSWER).current_dir(&self.path);
        needed.fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Submits the machines that are neither done nor in the queue. An incomplete run is resumed on
    /// its node.
    fn submit_missing(&self) -> Result<(), Failure> {
        let queue = self.queue().map_err(|error| refused("asked", &error))?;
        let mut groups: BTreeMap<(String, Option<String>), Vec<usize>> = BTreeMap::new();
        for at in self.work.unfinished() {
            let machine = self.work.machine(at);
            if queue.get(&at).is_some_and(Task::is_alive) || self.exit_code(at).is_some() {
                // Follow it, even if it was recorded as failed before.
                if matches!(machine.state, MachineState::Failed { .. }) {
                    self.work.set(at, MachineState::Waiting { reason: None })?;
                }
                continue;
            }
            let begun = match self.work.with(|directory| directory.run(at)) {
                Ok(run) => run.is_some(),
                Err(error) => {
                    self.work
                        .set(at, MachineState::Failed { reason: weigh_platforms::with_causes(&error) })?;
                    continue;
                }
            };
            groups.entry((machine.via, machine.node.filter(|_| begun))).or_default().push(at);
        }
        for ((via, node), tasks) in groups {
            for task in &tasks {
                self.work.set(*task, MachineState::Waiting { reason: None })?;
                if self.work.machine(*task).share.is_some() {
                    let plan = self.work.with(|directory| directory.plan_text(*task))?;
                    weigh_store::write_whole(&self.path.join(CONTROL), &format!("{task}.plan"), &plan)?;
                }
            }
            let node = match node {
                Some(node) => Some(format!("--nodelist={node}")),
                None => self.work.with(|directory| excluded(directory.fleet(), &tasks)),
            };
            self.submit(&EnvironmentSpec::parse(&via)?, node, &tasks)?;
        }
        Ok(())
    }

    /// Submits tasks. `node` is the option that selects the nodes.
    fn submit(&self, spec: &EnvironmentSpec, node: Option<String>, tasks: &[usize]) -> Result<(), Failure> {
        let mut sbatch = self.program("sbatch").args([
            "--parsable".to_string(),
            format!("--job-name={}", self.id),
            format!("--array={}", ranges(tasks)),
            "--output=task-%a.log".into(),
            "--open-mode=append".into(),
            "--nodes=1".into(),
            "--ntasks=1".into(),
            "--no-requeue".into(),
            // Two minutes before the time limit, a run ends after its current trial, and can be
            // resumed.
            "--signal=B:TERM@120".into(),
        ]);
        if spec.get("exclusive") != Some("off") {
            sbatch = sbatch.arg("--exclusive");
        }
        for key in OPTIONS {
            sbatch = spec.get(key).into_iter().fold(sbatch, |s, value| s.arg(format!("--{key}={value}")));
        }
        sbatch = node.into_iter().fold(sbatch, Invocation::arg);
        let submitted = sbatch.arg(SCRIPT).run_ok().map_err(|error| refused("submitted to", &error))?;
        let job = String::from_utf8_lossy(&submitted.output).trim().to_string();
        ui::note(&format!("Slurm: job {job}, called {}, has {} tasks", self.id, tasks.len()));
        Ok(())
    }

    /// The tasks of the fleet that Slurm knows, including those that ended some minutes ago.
    fn queue(&self) -> Result<BTreeMap<usize, Task>, weigh_host::command::CommandError> {
        let name = format!("--name={}", self.id);
        let asked =
            self.program("squeue").args(["--noheader", "--array", "--states=all", "--format=%K|%T|%r"]);
        let answer = asked.arg(name).run_ok()?;
        Ok(tasks_of(&String::from_utf8_lossy(&answer.output)))
    }

    fn control(&self, at: usize, what: &str) -> Option<String> {
        let name = format!("{CONTROL}/{at}.{what}");
        let bytes = weigh_store::files::read(&self.path, &name, 4096).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// The exit code of a task, if it has ended.
    fn exit_code(&self, at: usize) -> Option<i32> {
        self.control(at, "exit")?.parse().ok()
    }

    /// Follows the tasks until each has ended.
    fn follow(&self) -> Result<(), Failure> {
        let is_followed = |at: &usize| !matches!(self.work.machine(*at).state, MachineState::Failed { .. });
        let mut active: BTreeMap<usize, Follower> = self
            .work
            .unfinished()
            .into_iter()
            .filter(is_followed)
            .map(|at| (at, Follower::default()))
            .collect();
        let (mut asked, mut silences, mut cancelled) = (Instant::now(), 0, false);
        while !active.is_empty() {
            active.retain(|at, follower| !self.look(*at, follower));
            if self.work.is_interrupted() && !cancelled {
                cancelled = true;
                self.cancel();
            }
            if asked.elapsed() >= ASK && !active.is_empty() {
                asked = Instant::now();
                match self.queue() {
                    Ok(queue) => {
                        silences = 0;
                        active.retain(|at, follower| !self.is_lost(*at, follower, queue.get(at)));
                    }
                    Err(error) => {
                        silences += 1;
                        if silences > MOST_SILENCES {
                            return Err(refused("asked", &error));
                        }
                    }
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Reads what a task has written. Returns whether it has ended.
    fn look(&self, at: usize, follower: &mut Follower) -> bool {
        if follower.node.is_none() {
            follower.node = self.control(at, "node").filter(|node| !node.is_empty());
            if let Some(node) = &follower.node {
                let recorded = self.work.update(at, |machine| machine.node = Some(node.clone()));
                complain(recorded.and_then(|()| self.work.set(at, MachineState::Running)));
            }
        }
        let log = self.work.log(at);
        let length = log.metadata().map_or(0, |found| found.len());
        if length != follower.log_bytes {
            follower.log_bytes = length;
            follower.said = lines_of(&log);
            if let Some(line) = follower.said.iter().rev().find(|line| !line.trim().is_empty()) {
                self.work.said(at, line);
            }
        }
        let Some(code) = self.exit_code(at) else { return false };
        let state = self.work.judge(at, Some(code), &lines_of(&log));
        self.forget(at);
        complain(self.work.set(at, state));
        true
    }

    /// Removes the files in which a task recorded its end, so that another can begin.
    fn forget(&self, at: usize) {
        for what in ["exit", "node"] {
            // A file that stays is read again by the next fleet, which judges the same run.
            let _ = std::fs::remove_file(self.path.join(format!("{CONTROL}/{at}.{what}")));
        }
    }

    /// Whether a task has ended without recording its end.
    fn is_lost(&self, at: usize, follower: &mut Follower, task: Option<&Task>) -> bool {
        if let Some(task) = task.filter(|task| task.is_alive()) {
            follower.missed = None;
            if task.state == "PENDING" {
                self.work.said(at, &format!("in the queue: {}", task.reason));
            }
            return false;
        }
        let began = follower.node.is_some();
        let missed = *follower.missed.get_or_insert_with(Instant::now);
        // A task that never began wrote nothing that could arrive late.
        if missed.elapsed() < deadlines::scaled(if began { SEEN } else { ASK }) {
            return false;
        }
        let state = if self.work.is_interrupted() {
            MachineState::Waiting { reason: Some("interrupted".into()) }
        } else {
            let why = task.map_or("Slurm does not know its task any more".into(), |task| {
                format!("Slurm ended its task: {} ({})", task.state, task.reason)
            });
            match self.work.judge(at, None, &follower.said) {
                MachineState::Failed { reason } => {
                    MachineState::Failed { reason: format!("{why}; {reason}") }
                }
                state => state,
            }
        };
        self.forget(at);
        complain(self.work.set(at, state));
        true
    }

    /// Ends running tasks after their current trial, and takes the others out of the queue.
    fn cancel(&self) {
        let name = format!("--name={}", self.id);
        for arguments in [&["--state=PENDING"][..], &["--state=RUNNING", "--batch", "--signal=TERM"]] {
            if let Err(error) = self.program("scancel").args(arguments).arg(&name).run_ok() {
                ui::note(&format!("warning: {error}"));
            }
        }
    }
}

/// The state of a task while it is followed.
#[derive(Debug, Default)]
struct Follower {
    node: Option<String>,
    log_bytes: u64,
    said: Vec<String>,
    /// When Slurm first no longer had it in the queue.
    missed: Option<Instant>,
}

fn complain(recorded: Result<(), weigh_store::StoreError>) {
    if let Err(error) = recorded {
        ui::note(&format!("warning: {}", weigh_platforms::with_causes(&error)));
    }
}

fn refused(what: &str, error: &weigh_host::command::CommandError) -> Failure {
    Failure::new(ExitKind::Failed, format!("Slurm could not be {what}: {error}"))
        .hint("tasks that are in the queue go on; `weigh resume` follows them again")
}

/// The option that keeps the shares of failed machines off the nodes where they failed, unless
/// another machine is done there; none if no task measures such a share.
fn excluded(fleet: &Fleet, tasks: &[usize]) -> Option<String> {
    if !tasks.iter().any(|at| fleet.replaces(&fleet.machines[*at].name).is_some()) {
        return None;
    }
    let is_good = |node: &str| {
        fleet.machines.iter().any(|m| m.state == MachineState::Done && m.node.as_deref() == Some(node))
    };
    let failed = fleet.machines.iter().filter(|machine| machine.replaced_by.is_some());
    let nodes: BTreeSet<&str> =
        failed.filter_map(|machine| machine.node.as_deref()).filter(|node| !is_good(node)).collect();
    let nodes: Vec<&str> = nodes.into_iter().collect();
    (!nodes.is_empty()).then(|| format!("--exclude={}", nodes.join(",")))
}

/// Reads the last lines of a log.
fn lines_of(log: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&weigh_host::log::tail(log, 4096)).into_owned();
    text.lines().map(String::from).collect()
}

/// Reads the tasks in the output of `squeue`. Of several tasks of one number the one that is alive
/// counts: the others belong to earlier submissions.
fn tasks_of(text: &str) -> BTreeMap<usize, Task> {
    let mut tasks: BTreeMap<usize, Task> = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.trim().splitn(3, '|');
        let (Some(at), Some(state)) = (parts.next().and_then(|at| at.parse().ok()), parts.next()) else {
            continue;
        };
        let task = Task { state: state.into(), reason: parts.next().unwrap_or_default().into() };
        if !tasks.get(&at).is_some_and(Task::is_alive) {
            tasks.insert(at, task);
        }
    }
    tasks
}

/// Formats ascending numbers for `--array`: `0-2,5`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_in_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[]), "");
    }

    /// The text is what Slurm 22.05 answers.
    #[test]
    fn the_queue_is_read() {
        let text = "0|COMPLETED|None\n1|RUNNING|None\n2|PENDING|Resources\n2|FAILED|NonZeroExitCode\n3|TIMEOUT|TimeLimit\nN/A|RUNNING|None\n\n";
        let tasks = tasks_of(text);
        assert_eq!(tasks.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(tasks[&2], Task { state: "PENDING".into(), reason: "Resources".into() });
        let alive = |at: usize| tasks[&at].is_alive();
        assert!(!alive(0) && alive(1) && alive(2) && !alive(3));
    }

    /// A task that is held or stopped can go on: submitted again, it would run twice.
    #[test]
    fn held_tasks_are_alive() {
        for state in ["REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STOPPED", "SUSPENDED"] {
            assert!(Task { state: state.into(), reason: String::new() }.is_alive(), "{state}");
        }
        for state in ["CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"] {
            assert!(!Task { state: state.into(), reason: String::new() }.is_alive(), "{state}");
        }
    }

    /// A share is not measured again where it failed; a node on which a machine is done is still
    /// used.
    #[test]
    fn a_share_goes_to_another_node() {
        let machine = |name: &str, node: &str, replaced_by: Option<&str>| Machine {
            node: (!node.is_empty()).then(|| node.into()),
            state: match replaced_by {
                Some(_) => MachineState::Failed { reason: "away".into() },
                None => MachineState::Done,
            },
            replaced_by: replaced_by.map(Into::into),
            ..Machine::new(name.into(), "slurm".into())
        };
        let fleet = |machines: &[Machine]| Fleet::new("", machines.to_vec());
        let (a, next) = (machine("task-0", "a", None), machine("task-2", "", None));
        let failed_on = |node| machine("task-1", node, Some("task-2"));
        let all = fleet(&[a.clone(), failed_on("b"), next.clone()]);
        assert_eq!(excluded(&all, &[2]).as_deref(), Some("--exclude=b"));
        assert_eq!(excluded(&all, &[0]), None, "it measures a share of its own");
        assert_eq!(excluded(&fleet(&[a, failed_on("a"), next]), &[2]), None);
    }

    /// `sbatch` needs the user's token, and passes on whatever it has in its environment.
    #[test]
    fn a_task_keeps_no_token() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join(CONTROL)).unwrap();
        let started = "./weigh \"$@\" < /dev/null &";
        assert_eq!(TASK.matches(started).count(), 1);
        let task = Invocation::new("sh").args(["-c", &TASK.replace(started, "env > seen &")]);
        let task = task.env("SLURM_ARRAY_TASK_ID", "0").env("SLURM_JWT", "a token");
        task.current_dir(place.path()).run_ok().unwrap();
        let seen = std::fs::read_to_string(place.path().join("seen")).unwrap();
        assert!(seen.contains("SLURM_ARRAY_TASK_ID=0") && !seen.contains("a token"), "{seen}");
        let code = std::fs::read_to_string(place.path().join(CONTROL).join("0.exit")).unwrap();
        assert_eq!(code, "0\n");
    }

    #[test]
    fn the_script_of_a_task_is_one_that_shells_take() {
        Invocation::new("sh").args(["-n", "-c", TASK]).run_ok().unwrap();
    }
}
