//! What only pods guarantee: what a cluster refuses or removes is reported, and nothing is left in
//! it.

use crate::common::kubernetes::{Fake, assert_empty, create, environment, kubectl, link, missing};
use crate::common::network::talk;
use crate::common::victim::{Killed, kill_and_sweep};
use crate::common::{Bench, MINUTE, command, says, skip_or_fail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weigh_model::{EnvironmentSpec, stamps};
use weigh_platforms::{Guest, PlatformError, RunOptions, SessionError, resolve};
use weigh_protocol::Status;

/// A run, if there is a cluster.
fn bench(test: &str) -> Option<Bench> {
    if let Some(reason) = missing() {
        skip_or_fail(test, "pod", &reason);
        return None;
    }
    Some(Bench::alone(test))
}

fn failure(bench: &Bench, keys: &str) -> PlatformError {
    bench.launch(&bench.request(&environment(keys))).err().unwrap()
}

/// Kills processes while a command runs in a guest, and returns why the platform says that it
/// ended.
fn exit_reason_of_killed(guest: &mut dyn Guest, processes: &[u32]) -> String {
    let id = guest.session().start(&command(&["sleep", "300"])).unwrap();
    assert!(!processes.is_empty());
    for process in processes {
        // The end of the first process ends the others.
        let _ = kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL);
    }
    let error = guest.session().finish(id, MINUTE).unwrap_err();
    assert!(matches!(error, SessionError::Lost { .. }), "{error}");
    guest.exit_reason().unwrap()
}

/// What a cluster says of a pod whose container has ended for a reason.
fn ended(reason: &str) -> Value {
    let ended = json!({"name": "guest", "state": {"terminated": {"reason": reason, "exitCode": 137}}});
    json!({"phase": "Failed", "containerStatuses": [ended]})
}

#[test]
fn a_pod_follows_its_keys() {
    let Some(bench) = bench("pod-keys") else { return };
    let request = bench.request(&environment(",runtimeClass=runc,cpus=0.5,memory=256MiB"));
    let mut guest = bench.launch(&request).unwrap();
    let namespace = kubectl(&["get", "namespaces", "--selector", "weighbridge/run", "--output", "name"]);
    let namespace = namespace.strip_prefix("namespace/").unwrap();
    let pod = kubectl(&["--namespace", namespace, "get", "pods", "--output", "json"]);
    let pod = &serde_json::from_str::<serde_json::Value>(&pod).unwrap()["items"][0];
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
    assert_eq!((&pod["spec"]["runtimeClassName"], &pod["spec"]["nodeName"]), (&json!("runc"), &json!("n1")));
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert_eq!(says(&mut *guest, "ls /run/secrets /var/run/secrets 2>/dev/null | wc -l"), "0");
    assert_eq!(guest.session().facts(&[], &[]).unwrap().memory_limit_bytes, Some(256 << 20));
    talk(&mut *guest);
    let accounts = guest.accounts();
    assert_eq!(accounts.groups.len(), 1, "{accounts:?}");
    let before = accounts.groups[0].cpu_ns().unwrap();
    says(&mut *guest, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
    assert!(accounts.groups[0].cpu_ns().unwrap() > before + 10_000_000);
    guest.stop().unwrap();
    drop(bench);
    assert_empty();
}

#[test]
fn the_node_of_a_pod_is_made_explicit() {
    let Some(bench) = bench("pod-auto") else { return };
    let image = environment("");
    let image = image.split("image=").nth(1).unwrap();
    let spec = EnvironmentSpec::parse(&format!("pod:cpus=1,image={image}")).unwrap();
    let (platform, resolved) = resolve(&spec).unwrap();
    assert!(platform.capabilities(&resolved).makes_explicit);
    let explicit = platform.make_explicit(&bench.host, &resolved).unwrap();
    assert_eq!(explicit.to_string(), format!("pod:context=weigh,cpus=1,here=yes,image={image},node=n1"));
    assert!(!platform.capabilities(&explicit).makes_explicit);
    // Placed by the scheduler, and treated as if it ran elsewhere.
    let mut guest =
        bench.guest(&format!("pod:context=weigh,cpus=1,here=no,image={image},node=n1,scheduler=on"));
    assert!(guest.accounts().groups.is_empty() && guest.freezer().is_none());
    assert_eq!(says(&mut *guest, "echo on"), "on");
    guest.stop().unwrap();
    drop(bench);
    assert_empty();
}

#[test]
fn a_refusal_of_the_cluster_has_a_remedy() {
    let Some(bench) = bench("pod-refused") else { return };
    create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "weigh-small"}}));
    create(
        &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": "weigh-small"},
        "spec": {"hard": {"limits.cpu": "500m"}}}),
    );
    // The quota takes effect once its controller has seen it.
    kubectl(&["--namespace", "weigh-small", "wait", "--for=jsonpath={.status.hard}", "quota/small"]);
    for (keys, remedy) in [
        (",cpus=1,namespace=weigh-small", "quota"),
        (",runtimeClass=nosuch", "get runtimeclasses"),
        (",cpus=400", "cpus="),
        (",namespace=nosuch", "nosuch"),
    ] {
        let said = failure(&bench, keys).to_string();
        assert!(said.contains(remedy), "{keys}: {said}");
    }
    let said = bench
        .launch(&bench.request("pod:context=weigh,node=n1,cpus=1,image=localhost/nosuch:1"))
        .err()
        .unwrap()
        .to_string();
    assert!(said.contains("weigh image pack"), "{said}");
    let said = bench.launch(&bench.request("pod:context=nosuch")).err().unwrap().to_string();
    assert!(said.contains("--context nosuch"), "{said}");
    kubectl(&["delete", "namespace", "weigh-small"]);
    drop(bench);
    assert_empty();
}

/// The kernel kills a program that needs more memory than its pod may have, and the pod goes on.
/// Under control groups of version 2 newer kubelets have it kill the whole container, as is done
/// here.
#[test]
fn a_pod_without_memory_names_its_limit() {
    const TEST: &str = "a_pod_without_memory_names_its_limit";
    let Some(bench) = bench("pod-memory") else { return };
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    if !memory.lines().any(|line| line.starts_with("SwapTotal:") && line.ends_with(" 0 kB")) {
        return eprintln!("SKIPPED {TEST}: what does not fit into memory is swapped out");
    }
    let mut guest = bench.guest(&environment(",cpus=1,memory=64MiB"));
    // The program reads a whole block into its memory.
    let hungry = command(&["dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1"]);
    let done = guest.session().run(&hungry, RunOptions::within(MINUTE)).unwrap();
    assert_eq!(done.end.status, Status::Signalled(9), "{}", String::from_utf8_lossy(&done.error));
    assert_eq!(says(&mut *guest, "echo on"), "on");
    let inside = guest.accounts().groups[0].processes();
    let reason = exit_reason_of_killed(&mut *guest, &inside);
    assert!(reason.contains("give it more with `memory=`"), "{reason}");
    // Once the kubelet has told the cluster, it is the cluster that says so.
    let end = Instant::now() + MINUTE;
    while !guest.exit_reason().is_some_and(|reason| reason.contains("OOMKilled")) {
        assert!(Instant::now() < end, "{:?}", guest.exit_reason());
        std::thread::sleep(Duration::from_millis(200));
    }
    guest.stop().unwrap();
    drop(bench);
    assert_empty();
}

#[test]
fn a_drained_node_is_reported_as_the_exit_reason() {
    let Some(bench) = bench("pod-drained") else { return };
    let mut guest = bench.guest(&environment(",cpus=1"));
    let id = guest.session().start(&command(&["sleep", "100"])).unwrap();
    kubectl(&["drain", "n1", "--force", "--delete-emptydir-data", "--ignore-daemonsets"]);
    kubectl(&["uncordon", "n1"]);
    let error = guest.session().finish(id, MINUTE).unwrap_err();
    assert!(matches!(error, SessionError::Lost { .. }), "{error}");
    let reason = guest.exit_reason().unwrap();
    assert!(reason.contains("draining the node n1"), "{reason}");
    guest.stop().unwrap();
    drop(bench);
    assert_empty();
}

#[test]
fn a_cluster_that_is_lost_leaves_the_rest_to_the_ledger() {
    let Some(bench) = bench("pod-lost") else { return };
    let mut guest = bench.guest(&environment(",cpus=1"));
    link("down");
    let started = Instant::now();
    let error = guest.stop().unwrap_err().to_string();
    link("up");
    assert!(started.elapsed() < MINUTE * 3, "{:?}", started.elapsed());
    assert!(error.contains("weigh clean") && error.contains("get nodes"), "{error}");
    guest.stop().unwrap();
    drop(bench);
    assert_empty();
}

#[test]
fn killed_at_any_instant_nothing_is_left() {
    if bench("pod-killed").is_none() {
        return;
    }
    let _turn = crate::common::exclusive_turn();
    let cases = [
        Killed::Running,
        Killed::Frozen,
        Killed::Launching(Duration::from_millis(150)),
        Killed::Launching(Duration::from_millis(900)),
        Killed::Launching(Duration::from_millis(2500)),
    ];
    for (number, when) in cases.into_iter().enumerate() {
        kill_and_sweep(&format!("pod-{number}"), &environment(",cpus=1"), when);
        assert_empty();
    }
}

/// What the cluster tells of a start is in its order; processes on another machine are not seen.
#[test]
fn the_stages_of_a_start_are_told() {
    if let Some(reason) = Fake::missing() {
        return skip_or_fail("pod-stages", "pod", &reason);
    }
    let (fake, bench) = (Fake::new(), Bench::new("pod-stages"));
    let mut guest = bench.guest(&fake.environment(""));
    let mut stages: BTreeMap<_, _> = guest.stages().into_iter().collect();
    stages.insert("spawned", Ok(guest.spawned_ns()));
    guest.stop().unwrap();
    let told = ["spawned", stamps::POD_CREATED, stamps::POD_SCHEDULED, stamps::POD_RUNNING];
    let at_ns = told.map(|name| stages.remove(name).unwrap().unwrap());
    assert!(at_ns.is_sorted() && at_ns[0] < at_ns[1], "{at_ns:?}");
    let unseen = [stamps::POD_SANDBOX, stamps::POD_STARTED];
    assert!(unseen.iter().all(|name| stages.remove(name).unwrap().is_err()));
    assert!(stages.is_empty(), "{stages:?}");
    drop(bench);
    assert_eq!(fake.objects(), [""; 0]);
}

/// Situations that a real cluster can hardly be brought into on demand.
#[test]
fn errors_and_pod_states_of_a_cluster_are_reported() {
    if let Some(reason) = Fake::missing() {
        return skip_or_fail("pod-fake", "pod", &reason);
    }
    let (fake, bench) = (Fake::new(), Bench::new("pod-fake"));
    fake.say("interactive", "");
    let mut guest = bench.guest(&fake.environment(""));
    assert!(fake.objects().iter().any(|name| name.starts_with("pod.weighbridge-")), "{:?}", fake.objects());
    // Its pods are gone, and cannot be deleted either.
    fake.say(
        "refuse",
        "The connection to the server 192.0.2.1:6443 was refused - did you specify the right host or port?",
    );
    let error = guest.stop().unwrap_err().to_string();
    assert!(error.contains("weigh clean") && error.contains("--context fake get nodes"), "{error}");
    fake.unsay("refuse");
    guest.stop().unwrap();
    let state = json!({"waiting": {"reason": "ErrImagePull", "message": "no such host"}});
    let waiting = json!({"containerStatuses": [{"name": "guest", "state": state}]});
    for (status, word) in [
        (ended("OOMKilled"), "memory="),
        (ended("Error"), "exit code 137"),
        (json!({"phase": "Failed", "reason": "OutOfcpu", "message": "requested: 4000"}), "cpus="),
        (json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}), "evicted"),
        (waiting, "weigh image pack"),
    ] {
        fake.say("status", &status.to_string());
        let error = bench.launch(&bench.request(&fake.environment(""))).err().unwrap();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(matches!(error, PlatformError::NoRoom(_)), word == "cpus=", "{error}");
    }
    fake.unsay("status");
    // The probe in the image is not this weighbridge's.
    fake.say("kernels", "/bin/false");
    let error = bench.launch(&bench.request(&fake.environment(",cpus=3"))).err().unwrap().to_string();
    assert!(error.contains("weigh image pack") && error.contains("weigh-kernels"), "{error}");
    drop(bench);
    assert_eq!(fake.objects(), [""; 0]);
}

/// What ends a pod while a command runs in it is the guest's exit reason.
#[test]
fn what_ends_a_pod_is_its_exit_reason() {
    if let Some(reason) = Fake::missing() {
        return skip_or_fail("pod-ended", "pod", &reason);
    }
    let (fake, bench) = (Fake::new(), Bench::new("pod-ended"));
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}).to_string();
    let away =
        "The connection to the server 192.0.2.1:6443 was refused - did you specify the right host or port?";
    for (file, said, words) in [
        ("status", ended("OOMKilled").to_string().as_str(), "give it more with `memory=`"),
        ("status", evicted.as_str(), "the node n1 evicted the pod (low on memory)"),
        ("refuse", away, "`kubectl --context fake get nodes`"),
    ] {
        let mut guest = bench.guest(&fake.environment(""));
        fake.say(file, said);
        let client = guest.processes();
        let reason = exit_reason_of_killed(&mut *guest, &client);
        assert!(reason.contains(words), "{reason}");
        fake.unsay(file);
        guest.stop().unwrap();
    }
    let mut guest = bench.guest(&fake.environment(""));
    let is_pod = |name: &String| name.starts_with("pod.") && !name.ends_with(".running");
    fake.unsay(&fake.objects().into_iter().find(is_pod).unwrap());
    let client = guest.processes();
    let reason = exit_reason_of_killed(&mut *guest, &client);
    assert!(reason.contains("somebody deleted the pod, as draining the node n1 does"), "{reason}");
    guest.stop().unwrap();
    drop(bench);
    assert_eq!(fake.objects(), [""; 0]);
}
