//! Fleets by a real Slurm: the test's own controller and several nodes on this host, on ports of
//! the loopback interface, with their own keys, state and spool.

use super::{ENGINE_S, state, work};
use crate::support::{Stage, interrupt, is_long, skip, trials, wait_until};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that a few tasks may take.
const FEW: Duration = Duration::from_secs(180);

/// The longest time that two hundred tasks may take.
const MANY: Duration = Duration::from_secs(1800);

const PROGRAMS: [&str; 8] =
    ["slurmctld", "slurmd", "munged", "munge", "sbatch", "squeue", "scancel", "scontrol"];

/// A cluster that runs until it is dropped.
struct Cluster {
    base: tempfile::TempDir,
    daemons: Vec<Child>,
}

/// Starts a cluster of `nodes` nodes. Returns `None`, and says so, where that is not possible.
fn cluster(test: &str, nodes: u16) -> Option<Cluster> {
    let is_there = |name: &&str| find(name).is_some();
    let missing = PROGRAMS.iter().find(|name| !is_there(name));
    let reason = match missing {
        _ if !rustix::process::geteuid().is_root() => "a Slurm of one's own needs root".to_string(),
        Some(name) => format!("{name} is not installed (apt-get install slurm-wlm munge)"),
        None => return Some(Cluster::start(nodes)),
    };
    skip(test, "slurm", &reason);
    None
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|at| at.join(name)).find(|program| program.is_file())
}

/// Ports that are free at the moment.
fn free_ports(number: usize) -> Vec<u16> {
    let held: Vec<TcpListener> = (0..number).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Cluster {
    fn start(nodes: u16) -> Self {
        let base = tempfile::Builder::new().prefix("weigh-test-slurm-").tempdir().unwrap();
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        open(base.path());
        let mut cluster = Self { base, daemons: Vec::new() };
        cluster.munge();
        let ports = free_ports(usize::from(nodes) + 1);
        cluster.configure(&ports);
        let configuration = cluster.path("slurm.conf");
        let flags = ["-D", "-f", configuration.to_str().unwrap()];
        cluster.daemon("slurmctld", &flags, None);
        for node in 1..=nodes {
            let name = format!("n{node}");
            let flags = ["-D", "-N", &name, "-f", configuration.to_str().unwrap()];
            cluster.daemon("slurmd", &flags, None);
        }
        let idle = || {
            let asked =
                cluster.slurm("sinfo").args(["--noheader", "--Node", "--format=%T"]).output().unwrap();
            let states = String::from_utf8_lossy(&asked.stdout).into_owned();
            states.lines().filter(|state| *state == "idle").count() == usize::from(nodes)
        };
        wait_until("the nodes of Slurm", idle);
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// Starts the daemon that signs what Slurm's daemons send. It does not run as root.
    fn munge(&mut self) {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let user = passwd.lines().find(|line| line.starts_with("munge:")).expect("its package made it");
        let id: u32 = user.split(':').nth(2).unwrap().parse().unwrap();
        let place = self.path("munge");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("key"), [7; 1024]).unwrap();
        fs::set_permissions(place.join("key"), fs::Permissions::from_mode(0o400)).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&place, &place.join("key")] {
            chown(path, Some(id), Some(id)).unwrap();
        }
        let file = |what: &str| format!("--{what}-file={}", place.join(what).display());
        let socket = place.join("socket");
        let flags = [
            "--foreground".into(),
            // The directory is below one that everybody may write.
            "--force".into(),
            file("key"),
            file("log"),
            file("pid"),
            file("seed"),
            format!("--socket={}", socket.display()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.daemon("munged", &flags, Some(id));
        wait_until("munged", || socket.exists());
    }

    fn configure(&self, ports: &[u16]) {
        let base = self.base.path().display();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap();
        let prolog = self.path("prolog");
        // Nodes on one host would share one state directory, and its lock.
        let script =
            format!("echo export WEIGH_STATE={base}/state-$SLURMD_NODENAME\nenv >> {base}/environment");
        fs::write(&prolog, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(self.path("controller")).unwrap();
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
AuthType=auth/munge\nAuthInfo=socket={base}/munge/socket\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
SelectType=select/cons_tres\nReturnToService=2\nMpiDefault=none\nSwitchType=switch/none\n\
StateSaveLocation={base}/controller\nSlurmdSpoolDir={base}/spool-%n\nSlurmctldPidFile={base}/controller.pid\n\
SlurmdPidFile={base}/%n.pid\nSlurmctldLogFile={base}/controller.log\nSlurmdLogFile={base}/%n.log\n\
TaskProlog={base}/prolog\nSchedulerParameters=batch_sched_delay=0\nKillWait=30\n",
            ports[0]
        );
        for (node, port) in ports[1..].iter().enumerate() {
            text += &format!(
                "NodeName=n{} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n",
                node + 1
            );
        }
        text += "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        fs::write(self.path("slurm.conf"), text).unwrap();
    }

    fn daemon(&mut self, program: &str, flags: &[&str], user: Option<u32>) {
        use std::os::unix::process::CommandExt;
        let log = || fs::File::options().create(true).append(true).open(self.path("daemons.log")).unwrap();
        let mut command = Command::new(find(program).unwrap());
        command.args(flags).stdin(Stdio::null()).stdout(log()).stderr(log());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        self.daemons.push(command.spawn().unwrap());
    }

    /// A Slurm program, set up for this cluster.
    fn slurm(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        command
    }

    /// The environment in which weigh finds the cluster.
    fn variables(&self) -> [(&'static str, String); 2] {
        [("SLURM_CONF", self.path("slurm.conf").display().to_string()), ("A_SECRET", "of the user's".into())]
    }

    /// Checks that no run left anything where the nodes work.
    fn is_empty(&self) {
        let entries = fs::read_dir(self.base.path()).unwrap().flatten();
        let states = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("state-"));
        let left: Vec<PathBuf> = states.map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.slurm("scancel").args(["--user", "root"]).output();
        // First the nodes, then their controller, then the daemon that signs for both.
        for daemon in self.daemons.iter_mut().rev() {
            if let Some(pid) = rustix::process::Pid::from_raw(daemon.id().cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while matches!(daemon.try_wait(), Ok(None)) && std::time::Instant::now() < end {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for name in ["daemons.log", "controller.log"] {
                let text = fs::read_to_string(self.path(name)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(20).collect();
                eprintln!("{name}:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}

/// Runs weigh, and kills it after `limit`. Returns its status and its standard error.
fn run(stage: &Stage, cluster: &Cluster, line: &str, limit: Duration) -> (Option<i32>, String) {
    let mut child = stage.spawn_with(&crate::support::words(line), &cluster.variables());
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), stage.spawned_said());
        }
        if Instant::now() > end {
            crate::support::kill(&mut child);
            panic!("{line} takes longer than {limit:?}: {}", stage.spawned_said());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each machine is a task, on several nodes; nothing of the user's environment is passed on.
#[test]
fn every_slurm_task_measures_and_its_run_is_fetched() {
    let Some(cluster) = cluster("every_slurm_task_measures_and_its_run_is_fetched", 3) else { return };
    let stage = Stage::with_fakes();
    let line = format!("fleet --via slurm:nodes=5,partition=batch --out f {}", work(2, "1ms"));
    let (code, said) = run(&stage, &cluster, &line, FEW);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("have the same machine id") && said.contains("weigh pool f/*/"), "{said}");
    let fleet = stage.json("show f --format json");
    for task in 0..5 {
        let name = format!("task-{task}");
        assert_eq!(state(&fleet, &name).0, "done", "{fleet}\n{said}");
        assert_eq!(trials(&stage.here().join("f").join(&name)).len(), 4);
        assert!(stage.read(&format!("f/{name}.log")).contains("block 2/2"));
        let node = fleet["machines"][task]["node"].as_str().unwrap();
        assert!(["n1", "n2", "n3"].contains(&node), "{node}");
    }
    let environment = fs::read_to_string(cluster.path("environment")).unwrap();
    assert!(
        environment.contains("SLURM_ARRAY_TASK_ID=4") && !environment.contains("A_SECRET"),
        "{environment}"
    );
    let wrong = format!("fleet --via slurm:nodes=1,partition=nowhere --out g {}", work(1, "1ms"));
    let (code, said) = run(&stage, &cluster, &wrong, FEW);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Slurm could not be submitted to") && said.contains("nowhere"), "{said}");
    cluster.is_empty();
    drop(cluster);
    stage.host_is_as_before();
}

/// Four machines measure the blocks of one plan. Each starts with its share at once, so that all of
/// them take the time of a quarter: no task has more blocks than that.
#[test]
fn tasks_share_blocks() {
    let Some(cluster) = cluster("tasks_share_blocks", 4) else { return };
    let stage = Stage::with_fakes();
    let line = format!("fleet --shard --via slurm:nodes=4 --out f {}", work(12, "20ms"));
    let (code, said) = run(&stage, &cluster, &line, FEW);
    assert_eq!(code, Some(0), "{said}");
    let fleet = stage.json("show f --format json");
    let nodes: std::collections::BTreeSet<String> =
        (0..4).map(|task| fleet["machines"][task]["node"].to_string()).collect();
    assert_eq!(nodes.len(), 4, "every share has a node of its own: {fleet}");
    for task in 0..4 {
        assert_eq!(trials(&stage.here().join(format!("f/task-{task}"))).len(), 6, "{said}");
    }
    let report = stage.json("pool f --format json");
    let cell = &report["cells"][0];
    assert_eq!((&report["scope"], &cell["n"]), (&"these-machines".into(), &12.into()), "{report}");
    cluster.is_empty();
    drop(cluster);
    stage.host_is_as_before();
}

/// Ctrl-C removes waiting tasks from the queue and ends running ones after their trial. A killed
/// weigh leaves them running, and a resumed fleet follows them.
#[test]
fn tasks_go_on_after_their_fleet_ended() {
    let Some(cluster) = cluster("tasks_go_on_after_their_fleet_ended", 2) else { return };
    let stage = Stage::with_fakes();
    let spawn = |line: &str| stage.spawn_with(&crate::support::words(line), &cluster.variables());
    let begun =
        |fleet: &str| (0..3).any(|task| trials(&stage.here().join(format!("{fleet}/task-{task}"))).len() > 2);

    let mut child = spawn(&format!("fleet --via slurm:nodes=3 --out f {}", work(60, "50ms")));
    wait_until("trials", || begun("f"));
    interrupt(&child);
    wait_until("the end of the fleet", || child.try_wait().unwrap().is_some());
    let said = stage.spawned_said();
    assert!(said.contains("the fleet was interrupted"), "{said}");
    let queue = cluster.slurm("squeue").args(["--noheader", "--states=PENDING,RUNNING"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&queue.stdout), "", "{said}");
    let fleet = stage.json("show f --format json");
    let halves: Vec<(usize, String, String)> = (0..3)
        .filter(|task| stage.here().join(format!("f/task-{task}")).exists())
        .map(|task| {
            let node = fleet["machines"][task]["node"].as_str().unwrap().to_string();
            (task, node, stage.read(&format!("f/task-{task}/samples.jsonl")))
        })
        .collect();
    assert!(!halves.is_empty(), "{said}");
    let (code, said) = run(&stage, &cluster, "resume f", FEW);
    assert_eq!(code, Some(0), "{said}");
    let fleet = stage.json("show f --format json");
    for (task, node, half) in halves {
        assert!(stage.read(&format!("f/task-{task}/samples.jsonl")).starts_with(&half));
        assert_eq!(fleet["machines"][task]["node"], node.as_str(), "a run stays on its machine");
    }

    let mut child = spawn(&format!("fleet --via slurm:nodes=3 --out g {}", work(30, "20ms")));
    wait_until("trials", || begun("g"));
    crate::support::kill(&mut child);
    let (code, said) = run(&stage, &cluster, "resume g", FEW);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("Slurm: job"), "nothing is submitted twice: {said}");
    for task in 0..3 {
        assert_eq!(trials(&stage.here().join(format!("g/task-{task}"))).len(), 60);
    }
    cluster.is_empty();
}

/// Of two hundred machines none is lost.
#[test]
fn two_hundred_machines_come_back() {
    if !is_long() {
        return eprintln!("SKIPPED two_hundred_machines_come_back: it takes minutes (make test-fleet)");
    }
    let Some(cluster) = cluster("two_hundred_machines_come_back", 8) else { return };
    let stage = Stage::with_fakes();
    let line = format!("fleet --via slurm:nodes=200 --out f {}", work(1, "1ms"));
    let (code, said) = run(&stage, &cluster, &line, MANY);
    assert_eq!(code, Some(0), "{said}");
    let fleet = stage.json("show f --format json");
    for task in 0..200 {
        assert_eq!(state(&fleet, &format!("task-{task}")).0, "done", "{said}");
        assert_eq!(trials(&stage.here().join(format!("f/task-{task}"))).len(), 2);
    }
    cluster.is_empty();
}

/// Four machines come to the verdict of one in less than half its time, and the engine adds little.
#[test]
fn shares_come_to_a_verdict_sooner() {
    let name = "shares_come_to_a_verdict_sooner";
    if !is_long() {
        return eprintln!("SKIPPED {name}: it takes minutes (make test-fleet)");
    }
    let Some(cluster) = cluster(name, 4) else { return };
    let stage = Stage::with_fakes();
    let work = work(32, "500ms").replace("label=b,", "effect=0.1,label=b,");
    let timed = |line: &str| {
        let start = Instant::now();
        let (code, said) = run(&stage, &cluster, &format!("{line} {work}"), FEW);
        assert_eq!(code, Some(0), "{line}: {said}");
        start.elapsed().as_secs_f64()
    };
    let here = timed("run --out here");
    let alone = timed("fleet --via slurm:nodes=1 --out one");
    let shared = timed("fleet --shard --via slurm:nodes=4 --out four");
    eprintln!("without a fleet {here:.1} s; one machine {alone:.1} s, four machines {shared:.1} s");
    for report in ["show one/task-0", "pool four"] {
        let report = stage.json(&format!("{report} --format json"));
        let cells = report["cells"].as_array().unwrap();
        assert!(cells.iter().any(|cell| cell["verdict"] == "SLOWER"), "{report}");
    }
    assert!(shared < alone / 2.0, "four machines took {shared:.1} s, one {alone:.1} s");
    // Slurm's own queueing is part of it.
    assert!(alone - here <= ENGINE_S, "the engine took {:.1} s", alone - here);
    cluster.is_empty();
}
