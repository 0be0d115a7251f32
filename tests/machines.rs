//! Virtual machines, end to end: what they report about themselves, what a crash leaves of them,
//! and what their disks hide.

use crate::support::Moment::{Changes, Trials};
use crate::support::{
    Said, Stage, cell, cell_of, is_long, killed_at, known_diagnosis, listed, median, named, ready, shown,
    trials, unbroken, wait_until, words,
};
use serde_json::Value;
use std::time::Duration;
use weigh_host::cache::CacheDirectory;
use weigh_images::kernel::GuestKernel;

/// The machines that are ready here.
fn machines(stage: &Stage, test: &str) -> Vec<&'static str> {
    // Machines that start slowly are left to the long tests.
    let slow = if is_long() { &["libvirt"][..] } else { &[] };
    let all = ["uml", "qemu"].into_iter().chain(slow.iter().copied());
    all.filter(|platform| ready(stage, platform, test)).collect()
}

/// A machine that is tuned in every respect. It has a disk, so that there is something for an I/O
/// thread to serve.
const TUNED: &str = "qemu:accel=tcg,disk=raw,hugepages=off,size=8MiB,tune=on";

/// Checks that the facts read back from a QEMU machine say whether it is tuned.
fn how_it_is_made(name: &str, environment: &Value) {
    let (facts, is_tuned) = (&environment["facts"], name == TUNED);
    let fact =
        |key: &str| facts[format!("machine:{key}")].as_str().unwrap_or_else(|| panic!("{name}: no {key}"));
    let cpus = facts["cpus"].as_u64().unwrap();
    assert_eq!(fact("topology") == format!("{cpus}x1x1"), !is_tuned || cpus == 1, "{name}: {facts}");
    assert_eq!(fact("iothread") == "none", !is_tuned, "{name}: {facts}");
    assert!(fact("pages").starts_with("4 KiB"), "{name}: {facts}");
    if cpus > 1 {
        let word = if is_tuned { "pinned: 0 on " } else { "free on " };
        assert!(fact("placement").starts_with(word), "{name}: {facts}");
    }
    if cfg!(target_arch = "x86_64") && facts["acceleration"] == "tcg" {
        assert_eq!(fact("cpu"), if is_tuned { "max" } else { "qemu64" }, "{name}");
    }
    let reason = environment["intended"]["machine:placement"].as_str();
    assert!(reason.is_some_and(|reason| reason.contains("made and placed")), "{name}: {environment}");
}

/// Whether machines can have taps here.
fn taps_ready() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let ready = rustix::process::geteuid().is_root() && device.is_ok();
    if !ready {
        eprintln!("SKIPPED machines with taps: {:?}", device.err());
    }
    ready
}

/// Whether machines can have passt here.
fn passt_ready() -> bool {
    let ready = weigh_host::command::find_program("passt").is_some();
    if !ready {
        eprintln!("SKIPPED machines with passt: it is not installed");
    }
    ready
}

/// One block is enough to see names, facts, clocks and CPU time.
#[test]
fn names_and_facts_of_machines_match_how_they_run() {
    let stage = Stage::on_disk();
    let machines = machines(&stage, "names_and_facts_of_machines_match_how_they_run");
    if machines.is_empty() {
        return;
    }
    let on = format!("native,{}", machines.join(","));
    let tuned = if machines.contains(&"qemu") { format!("--on {TUNED}") } else { String::new() };
    let report = stage.measured(&format!("run noploop --on {on} --blocks 1 --size quick --no-void {tuned}"));
    for environment in listed(&report, "environments") {
        let name = environment["name"].as_str().unwrap();
        let (facts, clock) = (&environment["facts"], &environment["clock"]);
        assert_eq!(facts["cpus"], report["environments"][0]["facts"]["cpus"], "{name}");
        assert!(clock["states"].is_object(), "{name}: {clock}");
        if name == "native" {
            assert!(clock["states"]["shared"].is_u64(), "{clock}");
            continue;
        }
        // The name says which machine runs how, and no emulation has the name of hardware support.
        match facts["acceleration"].as_str().unwrap() {
            "user-mode" => assert_eq!(name, "uml"),
            word => {
                assert!(name.contains(&format!(":accel={word}")), "{name}: {word}");
                how_it_is_made(name, environment);
            }
        }
        assert_ne!(facts["kernel"], report["environments"][0]["facts"]["kernel"], "{name}");
        assert_eq!(facts["network"], "none", "{name}");
        for key in ["kernel", "acceleration", "network"] {
            let reason = environment["intended"][key].as_str();
            assert!(reason.is_some_and(|reason| !reason.is_empty()), "{name}: no reason for {key}");
        }
        assert!(clock["rate_ppm"].is_f64() && clock["bound_ppm"].is_f64(), "{name}: {clock}");
    }
    let cells = listed(&report, "cells");
    assert!(cells.iter().all(|cell| cell["cpu_ns_per_op"].as_f64().is_some_and(|ns| ns > 0.0)), "{cells:?}");
    stage.host_is_as_before();
}

/// A client reads from a server in a machine through QEMU's own network and through passt, which
/// need no rights, and through a tap.
#[test]
fn machines_answer_over_their_networks() {
    let stage = Stage::on_disk();
    let test = "machines_answer_over_their_networks";
    let mut on = vec!["native"];
    on.extend(ready(&stage, "qemu", test).then_some("qemu:net=user"));
    if passt_ready() {
        on.extend(ready(&stage, "qemu", test).then_some("qemu:net=passt"));
    }
    if taps_ready() {
        on.extend(ready(&stage, "uml", test).then_some("uml:net=nat"));
        on.extend(ready(&stage, "qemu", test).then_some("qemu:net=bridge"));
    }
    if on.len() == 1 {
        return;
    }
    let on: String = on.iter().map(|environment| format!(" --on {environment}")).collect();
    let report = stage.measured(&format!("start --blocks 1 --no-void --image probe{on}"));
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    let median = |name: &str, metric: &str| {
        let cell = cell_of(&report, name, metric);
        cell["median"].as_f64().unwrap_or_else(|| panic!("no {metric} of {name}: {cell}"))
    };
    for environment in listed(&report, "environments") {
        let name = environment["name"].as_str().unwrap();
        assert!(median(name, "start_to_service") < median(name, "start_to_response"), "{name}");
        if name != "native" {
            let (network, card) = (&environment["facts"]["network"], &environment["facts"]["network-card"]);
            assert!(name.contains(&format!("net={}", network.as_str().unwrap())), "{name}: {network}");
            assert!(card.as_str().is_some_and(|card| !card.is_empty()), "{name}: {card}");
        }
    }
    stage.host_is_as_before();
}

/// SIGKILL while machines boot and while they work.
#[test]
fn killed_with_machines_clean_restores_the_host() {
    const TEST: &str = "killed_with_machines_clean_restores_the_host";
    let stage = Stage::on_disk();
    let machines = machines(&stage, TEST);
    if machines.is_empty() {
        return;
    }
    // With their own taps, and with huge pages from the host's pool, if those are available.
    let networks: &[(&str, &str)] = match taps_ready() {
        true => &[
            ("uml", "uml:net=bridge"),
            ("qemu", "qemu:net=nat,tune=on"),
            ("libvirt", "libvirt:accel=tcg,net=nat"),
        ],
        false => &[],
    };
    let with_network = |platform: &str| {
        let found = networks.iter().find(|(name, _)| *name == platform);
        found.map_or(platform, |(_, environment)| environment).to_string()
    };
    let on: Vec<String> = machines.iter().map(|platform| with_network(platform)).collect();
    let on = format!("native;{}", on.join(";"));
    let all = [2, 5, 9, 14].map(Changes).into_iter().chain([Trials(1)]);
    // The default tests take every second moment.
    let step = if is_long() { 1 } else { 2 };
    killed_at(&stage, &format!("run --no-void --on '{on}' --blocks 50 -- sleep 0.02"), all.step_by(step));
}

/// SIGKILL for a machine in the middle of a trial: the trial fails and says so, and everything else
/// continues.
#[test]
fn a_machine_that_is_killed_fails_one_trial() {
    let stage = Stage::on_disk();
    if !ready(&stage, "qemu", "a_machine_that_is_killed_fails_one_trial") {
        return;
    }
    // With this seed the machine's trial of the first block comes after the native one.
    let mut run = stage.spawn("run --no-void --on native,tcg --blocks 2 --seed 1 --out r -- sleep 1.5");
    let trials = || trials(&stage.here().join("r"));
    wait_until("the native trial", || {
        assert!(run.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
        !trials().is_empty()
    });
    assert_eq!(
        trials()[0]["environment"],
        "native",
        "another seed has the machine's trial after the native one"
    );
    let machines = machines_of(run.id());
    assert_eq!(machines.len(), 1, "{machines:?}");
    // Its trial begins at once, and a frozen machine uses no CPU time.
    let before = cpu_ticks(machines[0]);
    wait_until("the trial of the machine", || cpu_ticks(machines[0]) > before + 2);
    let killed = std::process::Command::new("kill").args(["-9", &machines[0].to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(run.wait().unwrap().success(), "{}", stage.spawned_said());
    let report = shown(&stage, "r");
    let failures = listed(&report, "failures");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["environment"], "tcg");
    assert!(failures[0]["reason"].as_str().unwrap().contains("lost"), "{failures:?}");
    assert_eq!(report["blocks"]["done"], 2);
    let of_second = trials().into_iter().filter(|trial| trial["block"] == 1);
    assert_eq!(of_second.filter(|trial| trial["outcome"] == "done" || trial["failure"].is_null()).count(), 2);
    stage.host_is_as_before();
}

/// The QEMU processes that a process has started.
fn machines_of(parent: u32) -> Vec<u32> {
    let read =
        |pid: u32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| read(*pid, "status").lines().any(|line| line == format!("PPid:\t{parent}"));
    ids.filter(is_child).filter(|pid| read(*pid, "cmdline").contains("qemu-system-")).collect()
}

/// CPU time that a process has used, in clock ticks (proc_pid_stat(5)).
fn cpu_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The command may contain blanks; the third field follows its parenthesis.
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// The same disk with and without the host's page cache: the cached one gives no number.
#[test]
fn a_page_cached_disk_is_caught() {
    let stage = Stage::on_disk();
    const TEST: &str = "a_page_cached_disk_is_caught";
    if !ready(&stage, "qemu", TEST) {
        return;
    }
    let (direct, cached) = ("qemu:disk=raw,size=32MiB", "qemu:disk=raw,size=32MiB,cache=writeback");
    let said = stage
        .stdout(&format!(
            "run block --on {direct} --on {cached} --baseline {direct} --param path=/dev/vda --param file-bytes=0 \
             --param operations=12000 --blocks 1 --no-void --out r"
        ));
    let report = shown(&stage, "r");
    let failures = listed(&report, "failures");
    assert!(!failures.is_empty(), "{said}");
    for failure in failures {
        assert!(failure["environment"].as_str().unwrap().contains("cache=writeback"), "{failure}");
        let reason = failure["reason"].as_str().unwrap();
        assert!(reason.contains("a cache of the host") && reason.contains("`cache=none`"), "{reason}");
    }
    for cell in listed(&report, "cells").iter().filter(|cell| cell["metric"] == "latency_p50") {
        let cached = cell["environment"].as_str().unwrap().contains("cache=writeback");
        assert_eq!(cell["n"].as_u64().unwrap() == 0, cached, "{cell}");
    }
    stage.host_is_as_before();
}

/// A device that opens proves nothing: a platform that is requested by name either runs or is
/// refused with what was found.
#[test]
fn kvm_is_proven_or_refused() {
    let stage = Stage::on_disk();
    if !ready(&stage, "qemu", "kvm_is_proven_or_refused") {
        return;
    }
    let run = stage.run("run noploop --on native,kvm --blocks 1 --size quick --out r");
    if run.code == Some(0) {
        let report = shown(&stage, "r");
        let kvm = &report["environments"][1];
        assert_eq!((kvm["name"].as_str(), kvm["facts"]["acceleration"].as_str()), (Some("kvm"), Some("kvm")));
    } else {
        let said = unbroken(&run.stderr);
        assert!(said.contains("kvm"), "{said}");
        if std::fs::File::open("/dev/kvm").is_ok() {
            assert!(said.contains("/dev/kvm opens"), "{said}");
        }
        assert!(!stage.here().join("r").exists(), "a plan that cannot be made leaves no run");
        // The doctor says the same, though nobody has asked for KVM.
        let of_doctor = |name: &str| named(known_diagnosis(&stage), "platforms", name);
        let (kvm, qemu) = (of_doctor("kvm"), of_doctor("qemu"));
        assert_eq!((&kvm["ready"], &qemu["ready"]), (&Value::Bool(false), &Value::Bool(true)), "{kvm}");
        for state in [kvm, qemu] {
            assert!(state["detail"].as_str().unwrap().contains("/dev/kvm"), "{state}");
        }
        assert!(kvm["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{kvm}");
    }
    stage.host_is_as_before();
}

/// The parts of a machine's start add up, are absent with a reason where there is no machine, and a
/// saved machine is back sooner than a fresh one starts.
#[test]
fn the_start_of_a_machine_is_reported_in_phases() {
    let stage = Stage::on_disk();
    const TEST: &str = "the_start_of_a_machine_is_reported_in_phases";
    if !ready(&stage, "qemu", TEST) {
        return;
    }
    let machine = "qemu:accel=tcg";
    let report = stage.measured(&format!(
        "start --on native --on {machine} --image probe --memory 256MiB --restore=1,3 --blocks 1 --no-void"
    ));
    let of = |metric: &str| {
        let cell = cell_of(&report, machine, metric);
        cell["median"].as_f64().unwrap_or_else(|| panic!("{cell}"))
    };
    let parts = ["boot_vmm", "boot_firmware", "boot_kernel", "boot_user"];
    let sum: f64 = parts.iter().map(|part| of(part)).sum();
    assert!((sum - of("start_to_init")).abs() < 1e-6, "{sum} is not {}", of("start_to_init"));
    assert_eq!(of("boot_vmm"), of("start_to_code"));
    assert!(of("boot_kernel") > 0.02 && of("boot_kernel") > of("boot_clock_bound"), "{}", of("boot_kernel"));
    assert!(of("restore_to_init") < of("start_to_init") && of("save") > 0.0);
    let several = |metric: &str| median(&report, "start-restore{guests=3}", machine, metric);
    assert!(several("restore_to_init") <= several("slowest_restore_to_init"));
    assert!(several("slowest_restore_to_init") < of("start_to_init"), "each of them from the same state");
    for part in parts {
        let reason = cell_of(&report, "native", part)["absent"].as_str().unwrap();
        assert!(reason.contains("not a machine"), "{reason}");
    }
    stage.host_is_as_before();
}

/// A machine's agent runs programs and carries files in the same run in which clients do so in
/// containers and sandboxes.
#[test]
fn programs_and_files_reach_machines_through_an_agent() {
    let stage = Stage::on_disk();
    let machines = machines(&stage, "programs_and_files_reach_machines_through_an_agent");
    if machines.is_empty() {
        return;
    }
    let on = format!("native,namespaces,{}", machines.join(","));
    let line = format!("start --on {on} --image probe --exec --prompt --copy=100KiB --blocks 1 --no-void");
    let report = stage.measured(&line);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in listed(&report, "environments") {
        let name = environment["name"].as_str().unwrap();
        for metric in ["start_to_exec", "exec_to_output"] {
            assert!(median(&report, "exec", name, metric) > 0.0, "{name}");
        }
        for metric in ["copy_in", "copy_out"] {
            assert!(median(&report, "copy{bytes=100KiB}", name, metric) > 0.0, "{name}");
        }
        // The image of the probe alone has no shell. It has terminals.
        let prompt = cell(&report, "prompt", name, "start_to_prompt");
        let is_absent = prompt["absent"].as_str().is_some_and(|why| why.contains("no /bin/sh in this guest"));
        assert!(is_absent, "{prompt}");
        let of_exec = |charge: &&Value| charge["environment"] == name && charge["workload"] == "exec";
        let charge = listed(&report, "charges").iter().find(of_exec).unwrap();
        let by_agent = charge["parts_ns_per_op"].to_string().contains("client of the agent");
        let is_machine = machines.iter().any(|machine| name.split(':').next() == Some(*machine));
        assert_eq!(by_agent, is_machine, "{name}: {charge}");
    }
    stage.run("show r --details").says(&["times are start_to_exec"]);
    stage.host_is_as_before();
}

/// Puts the kernel that machines have here into a directory, as the build of one would, and returns
/// its path.
fn build_of_kernel(stage: &Stage, directory: &str) -> String {
    let cache = CacheDirectory::open().unwrap();
    let kernel = GuestKernel::find_local(None, &cache).expect("a machine has started here");
    let modules = stage.here().join(directory).join("lib/modules");
    std::fs::create_dir_all(&modules).unwrap();
    let installed = kernel.modules.as_ref().unwrap().directory().canonicalize().unwrap();
    std::os::unix::fs::symlink(installed, modules.join(&kernel.release)).unwrap();
    let path = format!("{directory}/vmlinuz-{}", kernel.release);
    std::fs::copy(&kernel.boot, stage.here().join(&path)).unwrap();
    path
}

/// Two builds of a kernel, which are alike, in emulated machines.
#[test]
fn a_gate_compares_two_kernels() {
    const TEST: &str = "a_gate_compares_two_kernels";
    if !is_long() {
        eprintln!("SKIPPED {TEST}: it boots thirty machines, in two minutes; WEIGH_LONG=1 runs it");
        return;
    }
    let stage = Stage::on_disk();
    if !ready(&stage, "qemu", TEST) {
        return;
    }
    // The first machine fetches the kernel where the host has none.
    stage.stdout("start --on qemu:accel=tcg --image probe --memory 256MiB --blocks 1 --no-void --out first");
    let builds = ["old", "new"]
        .map(|build| format!("qemu:accel=tcg,kernel={}", build_of_kernel(&stage, build)))
        .join(" ");
    let line = format!(
        "gate {builds} --start --image probe --memory 256MiB --limit 100 --blocks 15 --no-void --out r \
         --comment c.md"
    );
    let output = stage.weigh().args(words(&line)).timeout(Duration::from_secs(1000)).output().unwrap();
    let said = Said::of(&line, output).ends_with(0).all();
    assert!(stage.read("c.md").starts_with("# Gate: pass\n"), "{said}");
    let plan = stage.read_json("r/plan.json");
    let environments = listed(&plan, "environments").iter();
    let names: Vec<&str> = environments.map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names[0].contains("old/vmlinuz-") && names[1].contains("new/vmlinuz-"), "{names:?}");
    let trials = trials(&stage.here().join("r"));
    assert!(names.iter().all(|name| trials.iter().any(|trial| trial["environment"] == *name)), "{names:?}");
    // Reports name the builds by their paths, and have the release that each guest ran. In Markdown
    // some signs follow a backslash.
    let (report, comment) = (shown(&stage, "r"), stage.read("c.md").replace('\\', ""));
    for name in names {
        let (_, release) = name.split_once("/vmlinuz-").unwrap();
        assert_eq!(named(&report, "environments", name)["facts"]["kernel"], release, "{name}");
        assert!(comment.contains(name), "{name}: {comment}");
    }
    stage.host_is_as_before();
}
