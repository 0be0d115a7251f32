//! Fleets on the nodes of a Kubernetes cluster that is a fake: its pods are sandboxes of this host.
//! It cannot show whether a real cluster behaves the same; `make test-kubernetes` does.

use super::{is_done, state, work};
use crate::support::{Stage, kill, skip, trials, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const KUBECTL: &str = include_str!("../../crates/platforms/tests/common/kubectl.pl");

/// A fake `kubectl`, with a directory for its cluster.
struct Cluster(tempfile::TempDir);

/// Makes a cluster of the nodes `n1`, which has a taint, `n2`, whose pool is `bench`, and `other`,
/// of another architecture. Returns `None`, and says so, where its pods cannot run.
fn cluster(test: &str) -> Option<Cluster> {
    let is_missing = |name: &&str| weigh_host::command::find_program(name).is_none();
    if let Some(name) = ["perl", "bwrap", "setsid"].into_iter().find(is_missing) {
        skip(test, "bubblewrap", &format!("{name} is not installed (apt-get install perl bubblewrap)"));
        return None;
    }
    let directory = tempfile::Builder::new().prefix("weigh-test-kubectl").tempdir_in("/var/tmp").unwrap();
    let cluster = Cluster(directory);
    cluster.say("kubectl", KUBECTL);
    fs::set_permissions(cluster.path("kubectl"), PermissionsExt::from_mode(0o755)).unwrap();
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let node = |number: u32, name: &str, architecture: &str, taints: Value| {
        let info = json!({
            "architecture": architecture, "operatingSystem": "linux", "kernelVersion": "6.1",
            "bootID": format!("6f0c2a4e-0000-4000-8000-{number:012x}"), "machineID": format!("{number:032x}"),
        });
        let labels = json!({"pool": if name == "n2" { "bench" } else { "web" }});
        let object = json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"capacity": {"cpu": "2", "memory": "8000000Ki"}, "nodeInfo": info},
        });
        cluster.say(&format!("node.{name}"), &object.to_string());
    };
    node(1, "n1", here, json!([{"key": "reserved", "effect": "NoSchedule"}]));
    node(2, "n2", here, json!(null));
    node(3, "other", "vax", json!(null));
    Some(cluster)
}

impl Cluster {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes one of the files that it reads.
    fn say(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    /// An argument of `--via` with further keys, each preceded by a comma.
    fn via(&self, keys: &str) -> String {
        format!("kubernetes:binary={},context=fake{keys}", self.path("kubectl").display())
    }

    /// The paths of what is in the cluster.
    fn objects(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path()).unwrap().flatten().map(|entry| entry.path());
        let is_object = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            ["pod.", "namespace.", "volume."].iter().any(|kind| name.starts_with(kind))
        };
        entries.filter(is_object).collect()
    }

    /// A run with some trials in the volume of a pod.
    fn run(&self) -> Option<PathBuf> {
        let volumes = self.objects().into_iter().map(|object| object.join("volume"));
        let made = volumes.flat_map(|volume| fs::read_dir(volume).into_iter().flatten().flatten());
        made.map(|entry| entry.path().join("run")).find(|run| trials(run).len() > 2)
    }
}

/// Every named node measures, whatever its taints; one that cannot is a failure with its reason.
/// Nothing is left in the cluster.
#[test]
fn every_node_measures_and_one_that_cannot_is_a_failure() {
    let Some(cluster) = cluster("every_node_measures_and_one_that_cannot_is_a_failure") else { return };
    let stage = Stage::with_fakes();
    let via = cluster.via(",nodes=n1+n2+other+gone");
    stage.run(&format!("fleet --via '{via}' --out f {}", work(3, "1ms"))).ends_with(1);
    let fleet = stage.json("show f --format json");
    for name in ["n1", "n2"] {
        assert_eq!(state(&fleet, name).0, "done", "{fleet}");
        assert_eq!(trials(&stage.here().join("f").join(name)).len(), 6);
        assert_eq!(stage.read_json(&format!("f/{name}/plan.json")), stage.read_json("f/fleet-plan.json"));
    }
    // The image's machine ID is everywhere the same.
    let host = |name: &str| stage.read_json(&format!("f/{name}/host.json"))["identity"].clone();
    assert_ne!(host("n1"), host("n2"), "each is a machine of its own");
    for (name, words) in [("other", "it is Linux on vax"), ("gone", "the cluster has no node gone")] {
        let (failed, why) = state(&fleet, name);
        assert!(failed == "failed" && why.contains(words), "{why}");
    }
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
    stage.host_is_as_before();
}

/// Each command takes some tenths of a second on a real cluster.
#[test]
fn a_node_takes_ten_commands() {
    let Some(cluster) = cluster("a_node_takes_ten_commands") else { return };
    let stage = Stage::with_fakes();
    let line = format!("fleet --via '{}' --out f {}", cluster.via(",nodes=n2"), work(1, "1ms"));
    stage.run(&line).ends_with(0);
    let calls = fs::read_to_string(cluster.path("calls")).unwrap();
    let count = |verb: &str| calls.lines().filter(|call| *call == verb).count();
    // The node and a watch; rights, a namespace and a pod; program, run, archive and end; all of
    // it.
    let counts = ["get", "create", "exec", "delete"].map(count);
    assert_eq!((counts, calls.lines().count()), ([2, 3, 4, 1], 10), "{calls}");
}

#[test]
fn nodes_are_selected_by_labels_and_taints() {
    let Some(cluster) = cluster("nodes_are_selected_by_labels_and_taints") else { return };
    let stage = Stage::with_fakes();
    let line = |via: &str| format!("fleet --via '{via}' --dry-run --on null --baseline null -- work");
    let dry = stage.stdout(&line(&cluster.via(",selector=pool=bench")));
    for words in ["machine: n2 (kubernetes:", "a privileged pod weighbridge-fleet-... on the node n2"] {
        assert!(dry.contains(words), "`{words}` is not in {dry}");
    }
    assert!(!dry.contains("machine: n1") && !dry.contains("machine: other"), "{dry}");
    let dry = stage.stdout(&line(&cluster.via("")));
    assert!(dry.contains("machine: n2") && !dry.contains("machine: n1"), "a taint keeps pods away: {dry}");
    // The context that is current now may be another one when the fleet goes on.
    let dry = stage.stdout(&line(&cluster.via(",nodes=n1").replace("context=fake,", "")));
    assert!(dry.contains("machine: n1") && dry.contains("context=fake"), "{dry}");
    let words = ["no node of the cluster has the labels pool=none", "--show-labels"];
    stage.refuses(&line(&cluster.via(",selector=pool=none")), &words);
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
}

/// What a cluster does while a node measures is its reason, and the fleet goes on when that is over.
#[test]
fn trouble_of_a_cluster_is_reported_and_the_fleet_goes_on() {
    let Some(cluster) = cluster("trouble_of_a_cluster_is_reported_and_the_fleet_goes_on") else { return };
    let stage = Stage::with_fakes();
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}).to_string();
    let gone = "The connection to the server 192.0.2.1:6443 was refused - did you specify the right host?";
    let cases = [
        ("f", "status", evicted.as_str(), "the node n2 evicted the pod (low on memory)"),
        ("g", "refuse", gone, "the cluster of the context fake does not answer"),
    ];
    for (out, file, said, words) in cases {
        let via = cluster.via(",nodes=n2");
        let line = format!("fleet --watch --via '{via}' --out {out} {}", work(20, "50ms"));
        let mut child = stage.spawn(&line);
        wait_until("a block", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
            stage.spawned_said().contains("n2: block ")
        });
        cluster.say(file, said);
        wait_until("the end of the fleet", || child.try_wait().unwrap().is_some());
        let (failed, why) = state(&stage.json(&format!("show {out} --format json")), "n2");
        assert!(failed == "failed" && why.contains(words), "{why}: {}", stage.spawned_said());
        fs::remove_file(cluster.path(file)).unwrap();
        stage.stdout(&format!("resume {out}"));
        assert!(is_done(&stage, out, "n2"));
        assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
    }
    // What is here counts, even if its pod cannot be deleted, as where a service of the API is down.
    cluster.say("refuse.delete", "error: timed out waiting for the condition on namespaces/a");
    let line = format!("fleet --via '{}' --out h {}", cluster.via(",nodes=n2"), work(1, "1ms"));
    stage
        .run(&line)
        .ends_with(0)
        .says(&["may still be in the cluster: timed out", "`weigh clean` removes it"]);
    assert!(is_done(&stage, "h", "n2"));
    assert_ne!(cluster.objects(), [""; 0].map(PathBuf::from));
    fs::remove_file(cluster.path("refuse.delete")).unwrap();
    clean(&stage, &cluster);
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
    // Nobody asked for what would slow the measurement.
    cluster.say("limits", &json!({"cpu": "500m", "ephemeral-storage": "1Gi", "memory": "1Gi"}).to_string());
    let line = format!("fleet --via '{}' --out i {}", cluster.via(",nodes=n2,memory=1GiB"), work(1, "1ms"));
    stage.run(&line).ends_with(4).says(&["the cluster limits the pod on the node n2 (cpu 500m); say with"]);
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
    fs::remove_file(cluster.path("limits")).unwrap();
    let quota = "Error from server (Forbidden): pods \"a\" is forbidden: exceeded quota: small";
    cluster.say("refuse.create", quota);
    let line = format!("fleet --via '{}' --out j {}", cluster.via(",nodes=n2"), work(1, "1ms"));
    stage.run(&line).ends_with(4).says(&["quota or limits do not allow the pod", "cpus="]);
    clean(&stage, &cluster);
    stage.host_is_as_before();
}

/// Cleans as somebody who has the fake in the path: no program is named in a ledger.
fn clean(stage: &Stage, cluster: &Cluster) {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", cluster.0.path().display());
    let said = stage.weigh().env("PATH", path).arg("clean").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// When weigh is killed, the run in a pod ends after its trial and stays for `weigh resume`, or `weigh
/// clean` deletes the pod with it.
#[test]
fn a_killed_fleet_leaves_its_pods_to_resume_or_clean() {
    let Some(cluster) = cluster("a_killed_fleet_leaves_its_pods_to_resume_or_clean") else { return };
    let stage = Stage::with_fakes();
    let begin = |out: &str| {
        let via = cluster.via(",nodes=n2");
        let mut child = stage.spawn(&format!("fleet --via '{via}' --out {out} {}", work(60, "50ms")));
        wait_until("trials there", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", stage.spawned_said());
            cluster.run().is_some()
        });
        kill(&mut child);
        let run = cluster.run().unwrap();
        wait_until("the end of the run there", || !run.parent().unwrap().join("pid").exists());
        run
    };
    let measured = fs::read_to_string(begin("f").join("samples.jsonl")).unwrap();
    stage.stdout("resume f");
    assert!(is_done(&stage, "f", "n2"));
    assert!(stage.read("f/n2/samples.jsonl").starts_with(&measured), "what was measured there counts");
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));

    begin("g");
    let dry = stage.stdout("clean --dry-run");
    assert!(dry.contains("weighbridge-fleet-"), "{dry}");
    clean(&stage, &cluster);
    assert_eq!(cluster.objects(), [""; 0].map(PathBuf::from));
    stage.stdout("resume g");
    assert!(is_done(&stage, "g", "n2"));
    clean(&stage, &cluster);
    stage.host_is_as_before();
}
