//! Tests of control groups: version 2 on a tree of ordinary files, everything else on this host's
//! own control groups.

use super::*;
use crate::command::{Invocation, Running};
use crate::ledger::{Change, Ledger, NoPlatforms, sweep_dead};
use crate::state::StateDirectory;
use crate::wait::until;
use procfs::FromRead;
use procfs::process::MountInfos;
use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

pub(super) fn ledger(base: &tempfile::TempDir, run: &str) -> Ledger {
    Ledger::create(&StateDirectory::at(base.path().join("state")), run).unwrap()
}

/// A run name that no other test, and no other process of the tests, uses.
pub(super) fn run_name(test: &str) -> String {
    format!("test-{test}-{}", std::process::id())
}

fn detect(mountinfo: &str) -> Hierarchy {
    Hierarchy::from_mounts(MountInfos::from_read(mountinfo.as_bytes()).unwrap().into_iter())
}

#[test]
fn layouts_are_distinguished() {
    let v1 = "\
31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
";
    let hierarchy = detect(v1);
    assert_eq!(hierarchy.layout(), Layout::V1);
    assert_eq!(hierarchy.v1("cpu"), hierarchy.v1("cpuacct"));
    assert_eq!(hierarchy.v1("freezer"), None);
    assert_eq!((hierarchy.mounts.len(), hierarchy.used().count()), (3, 2));

    let hybrid = detect(&format!("{v1}35 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"));
    assert_eq!(hybrid.layout(), Layout::Hybrid);
    assert_eq!((hybrid.mounts.len(), hybrid.used().count()), (4, 2));

    let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
              90 80 0:26 /x /container/sys/fs/cgroup ro - cgroup2 cgroup2 rw,nsdelegate\n";
    let hierarchy = detect(v2);
    assert_eq!(hierarchy.layout(), Layout::V2);
    assert_eq!(hierarchy.mounts.len(), 1, "a second mount of the same tree is not a second tree");
    assert_eq!(hierarchy.mounts[0].path, Path::new("/sys/fs/cgroup"));

    // A version 1 mount that only names a hierarchy has no controllers: the layout stays version 2.
    let named = "31 30 0:40 / /sys/fs/cgroup/x rw - cgroup cgroup rw,name=elogind\n";
    assert_eq!(detect(&format!("{v2}{named}")).layout(), Layout::V2);
    assert_eq!(detect("1 0 8:1 / / rw - ext4 /dev/sda rw\n").layout(), Layout::Missing);
    assert!(detect("").usable().is_err());
    assert!(matches!(
        detect("").create(&ledger(&tempfile::tempdir().unwrap(), "r"), "weighbridge-r/g", &Limits::default()),
        Err(CgroupError::NotMounted)
    ));
}

/// A tree of version 2 made of ordinary files. The files that the kernel would put into a new
/// directory are put there beforehand.
fn fake_v2(root: &Path, name: &str, controllers: &str) {
    for directory in [root.to_path_buf(), root.join(name).parent().unwrap().into()] {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.controllers"), controllers).unwrap();
        fs::write(directory.join("cgroup.subtree_control"), "").unwrap();
    }
}

#[test]
fn version_2_switches_controllers_on_level_by_level() {
    let base = tempfile::tempdir().unwrap();
    let (root, name) = (base.path().join("cgroup"), "weighbridge-r/g");
    fake_v2(&root, name, "cpuset cpu io memory hugetlb pids rdma\n");
    fs::write(root.join("cgroup.subtree_control"), "memory\n").unwrap();
    let ledger = ledger(&base, "r");
    let hierarchy = Hierarchy::at(&root, Layout::V2);
    let limits = Limits { cpus: vec![0, 2], memory_bytes: Some(1 << 20) };
    let cgroup = hierarchy.create(&ledger, name, &limits).unwrap();
    // A write replaces a file's content, so the file shows the last controller that was enabled.
    assert_eq!(fs::read_to_string(root.join("cgroup.subtree_control")).unwrap(), "+pids");
    assert_eq!(fs::read_to_string(root.join("weighbridge-r/cgroup.subtree_control")).unwrap(), "+pids");
    let expected = Change::SubtreeControl {
        file: root.join("cgroup.subtree_control"),
        added: ["cpuset", "cpu", "io", "pids"].map(String::from).to_vec(),
    };
    assert_eq!(ledger.standing(), [expected, Change::Cgroup { path: name.into() }]);
    assert!(root.join(name).is_dir());
    // The new directory has no cgroup.controllers, as if the kernel had refused them: nothing is
    // limited, and that is reported.
    assert_eq!(cgroup.unlimited(), ["cpuset", "memory"]);
    assert_eq!(cgroup.procs_files(), [root.join(name).join("cgroup.procs")]);
    assert_eq!(cgroup.join_files(), cgroup.procs_files());
    assert_eq!(cgroup.v2_directory(), Some(root.join(name)));
    assert!(matches!(hierarchy.create(&ledger, name, &limits), Err(CgroupError::Exists { .. })));
    // A real group would take its files with it; here they are removed by hand.
    fs::remove_file(root.join("weighbridge-r/cgroup.controllers")).unwrap();
    fs::remove_file(root.join("weighbridge-r/cgroup.subtree_control")).unwrap();
    cgroup.remove().unwrap();
    assert!(!root.join("weighbridge-r").exists(), "the empty parent is left");
    cgroup.remove().unwrap();
}

#[test]
fn version_2_sets_the_limits_of_available_controllers_only() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("cgroup");
    fake_v2(&root, "weighbridge-r/g", "memory\n");
    let ledger = ledger(&base, "r");
    // Kernels fill a new directory at once; here a thread does.
    let leaf = root.join("weighbridge-r/g");
    let kernel = std::thread::spawn({
        let leaf = leaf.clone();
        move || {
            let end = Instant::now() + Duration::from_secs(10);
            while !leaf.is_dir() && Instant::now() < end {}
            fs::write(leaf.join("cgroup.controllers"), "memory\n").unwrap();
        }
    });
    let hierarchy = Hierarchy::at(&root, Layout::V2);
    let limits = Limits { cpus: vec![0], memory_bytes: Some(1 << 20) };
    let cgroup = hierarchy.create(&ledger, "weighbridge-r/g", &limits).unwrap();
    kernel.join().unwrap();
    // The thread may have been too late; then the limit is reported as missing. It is never absent
    // without notice.
    let limited = fs::read_to_string(leaf.join("memory.max")).is_ok_and(|text| text == "1048576");
    assert_eq!(limited, !cgroup.unlimited().contains(&"memory"));
    assert!(cgroup.unlimited().contains(&"cpuset") && !leaf.join("cpuset.cpus").exists());
    fs::write(leaf.join("cpu.stat"), "usage_usec 12\nuser_usec 5\n").unwrap();
    assert_eq!(cgroup.cpu_ns().unwrap(), 12_000);
    assert!(matches!(cgroup.memory_bytes(), Err(CgroupError::Missing { .. })));
    fs::write(leaf.join("memory.current"), "4096\n").unwrap();
    assert_eq!(cgroup.memory_bytes().unwrap(), 4096);
    fs::write(leaf.join("cgroup.procs"), "0\n").unwrap();
    assert!(cgroup.processes().is_empty(), "0 is a process of another namespace");
}

#[test]
fn controllers_are_switched_off_again_but_for_those_that_were_on() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("cgroup.subtree_control");
    fs::write(&file, "memory pids\n").unwrap();
    let ledger = ledger(&base, "r");
    let change = Change::SubtreeControl { file: file.clone(), added: vec!["cpu".into(), "pids".into()] };
    ledger.record(change).unwrap();
    ledger.close(&NoPlatforms).unwrap();
    // `cpu` is not on any more, so only `pids` was switched off.
    assert_eq!(fs::read_to_string(&file).unwrap(), "-pids");
}

#[test]
fn groups_deeper_than_a_path_can_be_are_removed() {
    use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, unlinkat};
    use std::os::fd::AsRawFd;
    let base = tempfile::tempdir().unwrap();
    let (root, relative) = (base.path().join("cgroup"), Path::new("weighbridge-r/g"));
    fs::create_dir_all(root.join(relative).join("beside")).unwrap();
    let name = "n".repeat(250);
    let mut at = open(root.join(relative), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20 {
        mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = openat(&at, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    // A real group would take its files with it; here they are removed by hand.
    fs::write(format!("/proc/self/fd/{}/cgroup.procs", at.as_raw_fd()), "77\n").unwrap();
    let hierarchy = Hierarchy::at(&root, Layout::V2);
    assert_eq!(hierarchy.members(relative), [77]);
    unlinkat(&at, "cgroup.procs", AtFlags::empty()).unwrap();
    hierarchy.remove_tree(relative).unwrap();
    assert!(!root.join("weighbridge-r").exists());
    hierarchy.remove_tree(relative).unwrap();
}

/// This host's control groups, if tests may use them.
pub(super) fn usable(test: &str) -> Option<Hierarchy> {
    let hierarchy = Hierarchy::detect();
    match hierarchy.usable() {
        Ok(()) => Some(hierarchy),
        Err(reason) => {
            assert!(
                !std::env::var("WEIGH_REQUIRE").unwrap_or_default().contains("native"),
                "{test}: {reason}"
            );
            eprintln!("SKIPPED {test}: {reason}");
            None
        }
    }
}

/// A version 2 tree of this host, with or without controllers.
pub(super) fn version_2(test: &str) -> Option<Hierarchy> {
    let detected = usable(test)?;
    let mount = detected.mounts.iter().find(|mount| mount.kind == layout::MountKind::V2);
    match mount {
        Some(mount) => Some(Hierarchy::at(&mount.path, Layout::V2)),
        None => {
            eprintln!("SKIPPED {test}: no control groups of version 2 are mounted");
            None
        }
    }
}

pub(super) fn shell(cgroup: &Cgroup, script: &str) -> Running {
    Invocation::new("sh").args(["-c", script]).pre_exec_cgroup(cgroup).spawn().unwrap()
}

pub(super) fn read_line(running: &mut Running) -> String {
    let mut output = fs::File::from(running.take_output().unwrap());
    let mut line = Vec::new();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn user_ticks(pid: u32) -> u64 {
    procfs::process::Process::new(pid as i32).unwrap().stat().unwrap().utime
}

fn lives_and_dies(hierarchy: &Hierarchy, test: &str) {
    let base = tempfile::tempdir().unwrap();
    let run = run_name(test);
    let ledger = ledger(&base, &run);
    let name = format!("weighbridge-{run}/guest");
    let cgroup = hierarchy.create(&ledger, &name, &Limits::default()).unwrap();
    let other = hierarchy.create(&ledger, &format!("weighbridge-{run}/other"), &Limits::default()).unwrap();
    assert_eq!(cgroup.relative_path(), Path::new(&name));
    assert!(cgroup.processes().is_empty());

    let mut running = shell(&cgroup, "sleep 60 & echo ready; while :; do :; done");
    assert_eq!(read_line(&mut running), "ready");
    let members = cgroup.processes();
    assert!(members.contains(&running.pid()) && members.len() == 2, "{members:?}");
    let of_process = fs::read_to_string(format!("/proc/{}/cgroup", running.pid())).unwrap();
    let joined = of_process.lines().filter(|line| line.ends_with(&name)).count();
    assert_eq!(joined, cgroup.procs_files().len(), "{of_process}");

    let mut shells = shell(&other, "echo ready; while :; do /bin/true; done");
    assert_eq!(read_line(&mut shells), "ready");
    cgroup.freeze().unwrap();
    cgroup.freeze().unwrap();
    let (before, charged) = (user_ticks(running.pid()), cgroup.cpu_ns().unwrap());
    // Processes that come and go by vfork(2) do not keep the other group from freezing.
    for _ in 0..300 {
        other.freeze().unwrap();
        other.thaw().unwrap();
    }
    assert_eq!(user_ticks(running.pid()), before, "a frozen process uses no CPU time");
    assert!(cgroup.cpu_ns().unwrap() - charged < 5_000_000);
    cgroup.thaw().unwrap();
    let continues = || cgroup.cpu_ns().unwrap() > charged;
    assert!(until(Duration::from_secs(10), continues), "it does not continue");

    // Kill the group while it is frozen.
    cgroup.freeze().unwrap();
    cgroup.remove().unwrap();
    assert!(running.wait(Duration::from_secs(5)).unwrap().is_some());
    for mount in &hierarchy.mounts {
        assert!(!mount.path.join(&name).exists());
    }
    assert!(other.directories().iter().all(|directory| directory.is_dir()), "the other guest's is gone");
    cgroup.remove().unwrap();
    other.remove().unwrap();
    for mount in &hierarchy.mounts {
        assert!(!mount.path.join(format!("weighbridge-{run}")).exists(), "an empty parent is left");
    }
    assert!(ledger.standing().iter().all(|change| matches!(change, Change::SubtreeControl { .. })));
    ledger.close(&NoPlatforms).unwrap();
}

#[test]
fn a_group_lives_and_dies_on_this_host() {
    if let Some(hierarchy) = usable("a_group_lives_and_dies_on_this_host") {
        lives_and_dies(&hierarchy, "own");
    }
}

#[test]
fn a_group_lives_and_dies_in_version_2() {
    if let Some(hierarchy) = version_2("a_group_lives_and_dies_in_version_2") {
        lives_and_dies(&hierarchy, "v2");
    }
}

#[test]
fn limits_are_in_force() {
    let Some(hierarchy) = usable("limits_are_in_force") else { return };
    let base = tempfile::tempdir().unwrap();
    let run = run_name("limits");
    let ledger = ledger(&base, &run);
    let cpu = *crate::facts::allowed_cpus().last().unwrap();
    let limits = Limits { cpus: vec![cpu], memory_bytes: Some(64 << 20) };
    let cgroup = hierarchy.create(&ledger, &format!("weighbridge-{run}/guest"), &limits).unwrap();
    if cgroup.unlimited().is_empty() {
        let mut running = shell(&cgroup, "grep Cpus_allowed_list /proc/self/status; sleep 60");
        assert_eq!(read_line(&mut running).split_whitespace().last(), Some(cpu.to_string().as_str()));
        assert!(cgroup.memory_bytes().unwrap() > 0);
        // The command needs more than the limit: it is killed, or fails to allocate; it does not
        // succeed.
        let done = Invocation::new("sh")
            .args(["-c", "head -c 300000000 /dev/zero | tail -c 290000000 | wc -c"])
            .pre_exec_cgroup(&cgroup)
            .run()
            .unwrap();
        assert_ne!(
            String::from_utf8_lossy(&done.output).trim(),
            "290000000",
            "the memory limit is not in force"
        );
    } else {
        eprintln!("SKIPPED limits_are_in_force: no {:?}", cgroup.unlimited());
    }
    let refused = Limits { cpus: vec![100_000], ..Limits::default() };
    let name = format!("weighbridge-{run}/refused");
    if hierarchy.v1("cpuset").is_some() {
        assert!(matches!(hierarchy.create(&ledger, &name, &refused), Err(CgroupError::Io { .. })));
        assert!(
            hierarchy.mounts.iter().all(|mount| !mount.path.join(&name).exists()),
            "half a group is left"
        );
    }
    cgroup.remove().unwrap();
    ledger.close(&NoPlatforms).unwrap();
}

#[test]
fn a_sweep_removes_groups_with_all_that_is_in_them() {
    let Some(hierarchy) = usable("a_sweep_removes_groups_with_all_that_is_in_them") else { return };
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(base.path().join("state"));
    let run = run_name("sweep");
    let ledger = ledger(&base, &run);
    let name = format!("weighbridge-{run}/guest");
    let cgroup = hierarchy.create(&ledger, &name, &Limits::default()).unwrap();
    // A process forks as fast as it can in a group below, which is frozen, as a crash may leave it.
    for directory in cgroup.directories() {
        fs::create_dir(directory.join("below")).unwrap();
        for file in ["cpuset.cpus", "cpuset.mems"]
            .map(|file| (directory.join(file), directory.join("below").join(file)))
        {
            // Version 1 has them in every group, and takes no process before they are set.
            if let (Ok(value), true) = (fs::read_to_string(file.0), file.1.exists()) {
                fs::write(file.1, value.trim()).unwrap();
            }
        }
    }
    let mut running = shell(&cgroup, "echo ready; while :; do sleep 30 & sleep 0.01; kill $!; done");
    assert_eq!(read_line(&mut running), "ready");
    let mut below = shell(&cgroup, "read word; echo moved; sleep 60");
    for directory in cgroup.directories() {
        fs::write(directory.join("below/cgroup.procs"), below.pid().to_string()).unwrap();
    }
    fs::File::from(below.take_input().unwrap()).write_all(b"go\n").unwrap();
    assert_eq!(read_line(&mut below), "moved");
    cgroup.freeze().unwrap();
    // The run dies: its lock goes, and nothing else does.
    drop((cgroup, ledger));
    let result = sweep_dead(&state, &NoPlatforms).unwrap();
    assert!(result.failed.is_empty(), "{:?}", result.failed);
    assert!(result.undone.contains(&Change::Cgroup { path: name.clone().into() }));
    for mount in &hierarchy.mounts {
        assert!(!mount.path.join(format!("weighbridge-{run}")).exists());
    }
    assert!(
        running.wait(Duration::from_secs(5)).unwrap().is_some()
            && below.wait(Duration::from_secs(5)).unwrap().is_some()
    );
}

#[test]
fn half_made_groups_are_swept() {
    let Some(hierarchy) = usable("half_made_groups_are_swept") else { return };
    let base = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(base.path().join("state"));
    let run = run_name("half");
    let path = format!("weighbridge-{run}/guest");
    // The change is recorded, but only the parent was made, and only in one hierarchy.
    let ledger = ledger(&base, &run);
    ledger.record(Change::Cgroup { path: path.clone().into() }).unwrap();
    let parent = hierarchy.used().next().unwrap().path.join(format!("weighbridge-{run}"));
    fs::create_dir(&parent).unwrap();
    drop(ledger);
    assert_eq!(sweep_dead(&state, &NoPlatforms).unwrap().undone.len(), 1);
    assert!(!parent.exists());
}
