//! SIGKILL at system calls that change the host, spread over whole runs on every platform that is
//! ready: nothing is left after `weigh clean`, and `weigh resume` loses no trial.
//!
//! `WEIGH_KILLS` (`make test-kills`) sets the total number of kills. strace(1) sends the signal
//! when `weigh` is about to make a call, so that the same call is hit in every run.

use crate::support::{Stage, is_ready, is_root, known_diagnosis, skip, trials, with_out};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// One environment for each way in which platforms change the host.
const ENVIRONMENTS: [&str; 21] = [
    "native",
    "namespaces",
    "namespaces:user=mapped",
    "namespaces:net=nat",
    "bubblewrap",
    "charliecloud",
    "nspawn",
    "runc",
    "runc:user=mapped",
    "runc:net=bridge",
    "crun",
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

/// A short run in slices and one in whole trials, which together cover most of what a run does.
fn line(environment: &str) -> String {
    let on = if environment == "native" { "" } else { "--on native " };
    format!("run --no-void --blocks 2 --size quick {on}--on {environment} --image probe noploop spawn")
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

#[test]
fn after_sigkill_at_any_call_clean_restores_and_resume_continues() {
    const TEST: &str = "after_sigkill_at_any_call_clean_restores_and_resume_continues";
    let Some(points) = std::env::var("WEIGH_KILLS").ok().and_then(|number| number.parse::<usize>().ok())
    else {
        eprintln!("SKIPPED {TEST}: takes three hours; WEIGH_KILLS=1000 (`make test-kills`) asks for it");
        return;
    };
    if !is_root(TEST, "only root has all platforms") {
        return;
    }
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip(TEST, "strace", "strace is missing; apt-get install strace");
    }
    let ready: Vec<&str> = {
        let stage = Stage::on_disk();
        let diagnosis = known_diagnosis(&stage);
        let is_here = |environment: &&str| is_ready(diagnosis, environment.split(':').next().unwrap(), TEST);
        ENVIRONMENTS.into_iter().filter(is_here).collect()
    };
    let each = points.div_ceil(ready.len());
    for environment in ready {
        // What an engine makes once and keeps must exist before the first look at the host.
        let all = {
            let stage = Stage::on_disk();
            calls(&stage, &line(environment))
        };
        let stage = Stage::on_disk();
        let (mut killed, mut resumed) = (0, 0);
        for point in 0..each {
            let at = all.len() * (2 * point + 1) / (2 * each);
            let (call, nth) = &all[at];
            let what = format!("{environment}, call {at} of {}, {call} {nth}", all.len());
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let options = ["-o", "/dev/null", "-e", &inject].map(str::to_string);
            let ended = traced(&stage, &with_out(&line(environment), "r"), &options).output().unwrap();
            killed += usize::from(!ended.status.success());
            let run = stage.here().join("r");
            let before = trials(&run);
            eprintln!("{what}: {} trials", before.len());
            // Every second run continues without a `clean`, as a user's may.
            if point % 2 == 0 {
                stage.stdout("clean");
                stage.host_is_as_before();
            }
            if run.join("plan.json").exists() {
                stage.run("resume r").ends_with(0);
                let after = trials(&run);
                assert!(after.starts_with(&before), "{what}: a finished trial was lost or rewritten");
                let report = crate::support::shown(&stage, "r");
                assert_eq!(report["blocks"]["done"], 2, "{what}");
                resumed += 1;
            }
            stage.stdout("clean");
            stage.host_is_as_before();
            std::fs::remove_dir_all(&run).unwrap_or_default();
        }
        eprintln!("{environment}: {killed} of {each} runs killed, {resumed} resumed, at {} calls", all.len());
        assert!(killed * 10 >= each * 8, "{environment}: the signal did not come");
    }
}
