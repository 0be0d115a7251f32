//! SIGKILL at system calls that change the host, spread over whole runs on every platform that is
//! ready: nothing is left after `weigh clean`, and `weigh resume` loses no trial.
//!
//! `WEIGH_KILLS` (`make test-kills`) sets the total number of kills. strace(1) sends the signal when
//! `weigh` is about to make a call. Each time the test draws other calls.
//!
//! `WEIGH_FAULTS` (`make test-faults`) is a number of minutes in which runs on all these platforms
//! are killed and interrupted at random moments, get a full disk, or lose the daemons that serve
//! them.

use crate::support::{
    Stage, interrupt, is_ready, is_root, known_diagnosis, shown, skip, trials, wait_for, with_out,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_128;

/// One environment for each way in which platforms change the host.
const ENVIRONMENTS: [&str; 26] = [
    "native",
    "namespaces",
    "namespaces:user=mapped",
    "namespaces:net=nat",
    "bubblewrap",
    "charliecloud",
    "minijail",
    "firejail",
    "apptainer",
    "proot",
    "nspawn",
    "runc",
    "runc:user=mapped",
    "runc:net=bridge",
    "crun",
    "youki",
    "runsc",
    "lxc",
    "incus",
    "docker",
    "docker:net=nat",
    "podman",
    "uml",
    "qemu:accel=tcg",
    "qemu:accel=tcg,disk=qcow2,net=nat",
    "libvirt:accel=tcg",
];

/// Calls that change files, mounts, processes or networks, or that ask a daemon to do so.
const CALLS: &str = "mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,\
                     mknod,mknodat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,ftruncate,fsync,fdatasync,\
                     mount,umount2,mount_setattr,move_mount,setxattr,fsetxattr,clone,clone3,fork,vfork,kill,\
                     write,pwrite64,sendto,sendmsg,flock,fcntl";

/// A workload in slices and one in whole trials, which together cover most of what a run does. Both
/// are short, because the work inside the trials changes nothing on the host.
fn line(environment: &str) -> String {
    let on = if environment == "native" { "" } else { "--on native " };
    let work = "noploop spawn --param noploop.nops=2e7 --param spawn.processes=5";
    format!("run --no-void --blocks 2 --size quick {on}--on {environment} --image probe {work}")
}

/// `weigh` under strace, which follows its first thread.
fn traced(stage: &Stage, line: &str, options: &[String]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-qq", "-e", &format!("trace={CALLS}")]).args(options).arg("--");
    stage.prepare(&mut command, assert_cmd::cargo::cargo_bin("weigh"), line);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The calls that a run makes, in order: each with its name and how often that name occurred so
/// far, because strace counts each name separately.
fn calls(stage: &Stage, line: &str) -> Vec<(String, usize)> {
    let log = stage.here().join("calls");
    let options = ["-o".to_string(), log.display().to_string()];
    let done = traced(stage, &with_out(line, "whole"), &options).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    std::fs::remove_dir_all(stage.here().join("whole")).unwrap();
    let mut counts = BTreeMap::new();
    let log = std::fs::read_to_string(log).unwrap();
    let names = log.lines().filter_map(|line| Some(line.split_once('(')?.0.to_string()));
    names
        .map(|name| {
            let count = counts.entry(name.clone()).or_insert(0);
            *count += 1;
            (name, *count)
        })
        .collect()
}

/// The environments whose platforms are ready.
fn ready(test: &str) -> Vec<&'static str> {
    let stage = Stage::on_disk();
    let diagnosis = known_diagnosis(&stage);
    let is_here = |environment: &&str| is_ready(diagnosis, environment.split(':').next().unwrap(), test);
    ENVIRONMENTS.into_iter().filter(is_here).collect()
}

/// Continues a run to its end, if it has begun, and fails if it loses one of these trials.
fn resumes(stage: &Stage, out: &str, before: &[Value], what: &str) -> bool {
    let run = stage.here().join(out);
    // Without one of them the directory was being made, and `resume` says so.
    let files = ["plan.json", "host.json", "samples.jsonl"];
    let has_begun = files.iter().all(|file| run.join(file).exists());
    if has_begun {
        stage.run(&format!("resume {out}")).ends_with(0);
        assert!(trials(&run).starts_with(before), "{what}: a finished trial was lost or rewritten");
        assert_eq!(shown(stage, out)["blocks"]["done"], 2, "{what}");
    } else {
        assert!(before.is_empty(), "{what}");
        stage.run(&format!("resume {out}")).ends_with(2);
    }
    has_begun
}

/// Whether a run that ended early had begun, so that it was continued. The host must be as before.
/// Removes the run.
fn recovers(stage: &Stage, is_cleaned_first: bool, what: &str) -> bool {
    let run = stage.here().join("r");
    let before = trials(&run);
    eprintln!("{what}: {} trials", before.len());
    if is_cleaned_first {
        stage.stdout("clean");
        stage.host_is_as_before();
    }
    let has_begun = resumes(stage, "r", &before, what);
    stage.stdout("clean");
    stage.host_is_as_before();
    std::fs::remove_dir_all(&run).unwrap_or_default();
    has_begun
}

#[test]
fn after_sigkill_at_any_call_clean_restores_and_resume_continues() {
    const TEST: &str = "after_sigkill_at_any_call_clean_restores_and_resume_continues";
    let Some(points) = std::env::var("WEIGH_KILLS").ok().and_then(|number| number.parse::<usize>().ok())
    else {
        eprintln!("SKIPPED {TEST}: takes two hours; WEIGH_KILLS=1000 (`make test-kills`) asks for it");
        return;
    };
    if !is_root(TEST, "only root has all platforms") {
        return;
    }
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(TEST, "strace", "strace is missing; apt-get install strace");
    }
    let ready = ready(TEST);
    let each = points.div_ceil(ready.len());
    for environment in ready {
        // What an engine makes once and keeps must exist before the first look at the host. Of two
        // runs, the shorter has fewer calls that other runs lack: beside other work there are more
        // slices, and more trials.
        let all = {
            let stage = Stage::on_disk();
            let [one, other] = [(); 2].map(|()| calls(&stage, &line(environment)));
            if one.len() < other.len() { one } else { other }
        };
        let stage = Stage::on_disk();
        let (mut killed, mut resumed) = (0, 0);
        // Other calls each time.
        let offset = f64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_micros()) / 1e6;
        for point in 0..each {
            let at = ((point as f64 + offset) / each as f64 * all.len() as f64) as usize;
            let (call, nth) = &all[at];
            let what = format!("{environment}, call {at} of {}, {call} {nth}", all.len());
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let options = ["-o", "/dev/null", "-e", &inject].map(str::to_string);
            let ended = traced(&stage, &with_out(&line(environment), "r"), &options).output().unwrap();
            killed += usize::from(!ended.status.success());
            // Every second run continues without a `clean`, as a user's may.
            resumed += usize::from(recovers(&stage, point % 2 == 0, &what));
        }
        eprintln!("{environment}: {killed} of {each} runs killed, {resumed} resumed, at {} calls", all.len());
        // Beside other work a run makes fewer calls while it waits.
        assert!(killed * 2 >= each, "{environment}: the signal did not come");
    }
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Interrupt,
    FullDisk,
    DeadDaemons,
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Interrupt, Fault::FullDisk, Fault::DeadDaemons];

/// Programs that a run has for itself, and without which its guests are lost, by the 15 bytes that
/// the kernel keeps of a name.
const DAEMONS: [&str; 9] = [
    "incusd",
    "lxd",
    "libvirtd",
    "virtqemud",
    "conmon",
    "lxc-start",
    "systemd-nspawn",
    "bwrap",
    "qemu-system-x86",
];

/// The platforms with such programs.
const SERVED: [&str; 7] = ["bubblewrap", "nspawn", "lxc", "incus", "podman", "qemu", "libvirt"];

/// Kills the programs that serve the guests of a run, and returns their names.
fn kill_daemons(stage: &Stage, weigh: &Child) -> Vec<String> {
    let name_and_parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        Some((name.to_string(), rest.split(' ').nth(1)?.parse::<u32>().ok()?))
    };
    let place = stage.state().ancestors().nth(2).unwrap().file_name().unwrap().to_os_string();
    // Some become children of init; these have the test's directory in their words.
    let names_place = |pid: u32| {
        let parts = ["environ", "cmdline"].map(|part| std::fs::read(format!("/proc/{pid}/{part}")));
        parts.iter().flatten().any(|part| String::from_utf8_lossy(part).contains(place.to_str().unwrap()))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut killed = Vec::new();
    for pid in all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Some((name, parent)) = name_and_parent(pid) else { continue };
        if DAEMONS.contains(&&*name) && (parent == weigh.id() || names_place(pid)) {
            let process = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            if rustix::process::kill_process(process, rustix::process::Signal::KILL).is_ok() {
                killed.push(name);
            }
        }
    }
    killed
}

fn succeeds(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{words:?}");
}

#[test]
fn a_soak_of_faults_loses_nothing_and_leaves_nothing() {
    const TEST: &str = "a_soak_of_faults_loses_nothing_and_leaves_nothing";
    let Some(minutes) = std::env::var("WEIGH_FAULTS").ok().and_then(|number| number.parse::<u64>().ok())
    else {
        eprintln!("SKIPPED {TEST}: WEIGH_FAULTS=60 (`make test-faults`) takes an hour");
        return;
    };
    if !is_root(TEST, "only root has all platforms") {
        return;
    }
    let ready = ready(TEST);
    // What engines make once and keep must exist before the first look at the host; and how long a
    // run takes bounds the moments.
    let lengths: Vec<Duration> = ready
        .iter()
        .map(|environment| {
            let stage = Stage::on_disk();
            let begun = Instant::now();
            stage.stdout(&with_out(&line(environment), "whole"));
            begun.elapsed()
        })
        .collect();
    let stage = Stage::on_disk();
    let small = stage.here().join("small");
    std::fs::create_dir(&small).unwrap();
    let small = small.to_str().unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut rounds = BTreeMap::<Fault, [usize; 3]>::new();
    for round in 0_u64.. {
        if Instant::now() > end {
            break;
        }
        let draw = |what: &str| XxHash3_128::oneshot_with_seed(round, what.as_bytes()) as usize;
        let fault = FAULTS[draw("fault") % FAULTS.len()];
        let is_served = |at: &usize| SERVED.contains(&ready[*at].split(':').next().unwrap());
        let possible: Vec<usize> =
            (0..ready.len()).filter(|at| fault != Fault::DeadDaemons || is_served(at)).collect();
        let at = possible[draw("environment") % possible.len()];
        let environment = ready[at];
        let moment = lengths[at] * (draw("moment") % 1000) as u32 / 1000;
        let out = if fault == Fault::FullDisk {
            let size = format!("size={}k", 16 + draw("size") % 200);
            succeeds(&["mount", "-t", "tmpfs", "-o", &size, "weigh-test", small]);
            "small/r"
        } else {
            "r"
        };
        let mut what = format!("round {round}: {environment}, {fault:?} after {moment:?}");
        let mut weigh = stage.spawn(&with_out(&line(environment), out));
        if fault != Fault::FullDisk {
            std::thread::sleep(moment);
        }
        let mut killed = Vec::new();
        match fault {
            Fault::Kill => weigh.kill().unwrap(),
            // It may have ended by itself.
            Fault::Interrupt if weigh.try_wait().unwrap().is_none() => interrupt(&weigh),
            Fault::DeadDaemons => {
                killed = kill_daemons(&stage, &weigh);
                what += &format!(", {killed:?}");
            }
            Fault::Interrupt | Fault::FullDisk => {}
        }
        let status = wait_for(&format!("the end of {what}"), || weigh.try_wait().unwrap());
        if fault == Fault::FullDisk {
            succeeds(&["mount", "-o", "remount,size=64m", small]);
        }
        let resumed = if fault == Fault::FullDisk {
            let resumed = resumes(&stage, out, &trials(&stage.here().join(out)), &what);
            stage.stdout("clean");
            // The host is compared when the file system is gone again.
            succeeds(&["umount", small]);
            stage.host_is_as_before();
            resumed
        } else {
            recovers(&stage, draw("clean") % 2 == 0, &what)
        };
        let counts = rounds.entry(fault).or_default();
        counts[0] += 1;
        // A run goes on without the guests that it lost.
        counts[1] += usize::from(!status.success() || !killed.is_empty());
        counts[2] += usize::from(resumed);
        assert_eq!(descriptors(), before, "{what}");
    }
    for (fault, [rounds, met, resumed]) in rounds {
        eprintln!("{fault:?}: {rounds} runs, {met} met it, {resumed} resumed");
        assert!(met > 0 || rounds < 10, "no run met {fault:?}");
    }
}
