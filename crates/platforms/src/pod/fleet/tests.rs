//! Tests of the pods of a fleet; a script takes the place of kubectl.

use super::*;

fn spec(text: &str) -> EnvironmentSpec {
    EnvironmentSpec::parse(text).unwrap()
}

#[test]
fn keys_and_values_are_checked() {
    let good = "kubernetes:context=lab,namespace=b,image=r.example/i:1,nodes=n1+n-2.lan,cpus=4,memory=8GiB";
    NodePod::check(&spec(good)).unwrap();
    NodePod::check(&spec("kubernetes:selector=pool=bench+disk=nvme")).unwrap();
    for (text, wrong) in [
        ("kubernetes:node=a", "node"),
        ("kubernetes:runtimeClass=kata", "runtimeClass"),
        ("kubernetes:context=--kubeconfig", "--kubeconfig"),
        ("kubernetes:image=-x", "-x"),
        ("kubernetes:memory=1KiB", "1KiB"),
        ("kubernetes:nodes=a++b", "a++b"),
        ("kubernetes:nodes=-a", "-a"),
        ("kubernetes:nodes=a b", "a b"),
        ("kubernetes:selector=--all", "--all"),
        ("kubernetes:nodes=a,selector=b=c", "selector"),
    ] {
        let error = NodePod::check(&spec(text)).unwrap_err();
        assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
    }
}

#[test]
fn each_node_has_a_string_of_its_own() {
    let named = NodePod::each(&spec("kubernetes:nodes=b+a,context=lab,cpus=2")).unwrap();
    let named: Vec<(&str, String)> =
        named.iter().map(|(node, spec)| (node.as_str(), spec.to_string())).collect();
    assert_eq!(
        named,
        [
            ("b", "kubernetes:context=lab,cpus=2,nodes=b".to_string()),
            ("a", "kubernetes:context=lab,cpus=2,nodes=a".into())
        ]
    );
    let error = NodePod::each(&spec("kubernetes:nodes=a,binary=/no/such/kubectl")).unwrap_err();
    assert!(error.message.contains("/no/such/kubectl is missing"), "{error}");
}

fn pod(keys: &str) -> NodePod {
    let spec = spec(&format!("kubernetes:context=lab,nodes=n1,binary=/bin/true{keys}"));
    NodePod::of(&spec).unwrap()
}

/// Nothing but pods and namespaces of weighbridge's own is named, whatever a record says.
#[test]
fn a_directory_stands_for_a_pod() {
    let directory = "/weighbridge/weighbridge-fleet-20261126T140000Z-1f-0";
    let name = "weighbridge-fleet-20261126t140000z-1f-0";
    assert_eq!(pod("").pod_of(directory), (name.to_string(), name.to_string()));
    assert_eq!(pod(",namespace=lab").pod_of(directory), ("lab".to_string(), name.to_string()));
    assert_eq!(pod("").pod_of("/weighbridge/kube-system").1, "weighbridge-kube-system");
    for (keys, expected) in [("", "namespace"), (",namespace=lab", POD)] {
        let Change::Platform { platform, what, id, detail } = pod(keys).change(directory) else { panic!() };
        assert_eq!((platform.as_str(), what.as_str(), id.as_str()), (PLATFORM, expected, name));
        assert_eq!(detail["context"], "lab");
        assert_eq!(detail.get("namespace").is_some(), expected == POD);
    }
}

/// Makes a client that is a script, which runs in the directory that it lies in.
fn client(place: &Path, script: &str) -> String {
    let client = place.join("kubectl");
    let script = format!("#!/bin/sh\ncd '{}' || exit 1\n{script}\n", place.display());
    std::fs::write(&client, script).unwrap();
    std::fs::set_permissions(&client, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    client.display().to_string()
}

#[test]
fn rights_are_asked_for_before_anything_is_made() {
    let base = tempfile::tempdir().unwrap();
    let client = client(
        base.path(),
        r#"case "$*" in *' create '*) cat > asked; [ -s answers ] && cat answers;; *) echo '{"status":{}}';; esac"#,
    );
    let ask = |keys: &str, answers: &str| {
        std::fs::write(base.path().join("answers"), answers).unwrap();
        let pod = spec(&format!("kubernetes:context=rights,nodes=n1,binary={client}{keys}"));
        NodePod::of(&pod).unwrap().ask().map_err(|error| error.to_string())
    };
    let all_but = |denied: usize| {
        let answer = |at: usize| json!({"status": {"allowed": at != denied}}).to_string();
        [0, 1, 2].map(answer).join("\n")
    };
    for (keys, namespace, object) in [("", "", "namespaces"), (",namespace=lab", "lab", "pods")] {
        ask(keys, &all_but(3)).unwrap();
        let asked: Value =
            serde_json::from_slice(&std::fs::read(base.path().join("asked")).unwrap()).unwrap();
        let rights = [("create", object, ""), ("delete", object, ""), ("create", "pods", "exec")];
        assert_eq!(asked["items"].as_array().unwrap().len(), rights.len());
        for (at, (verb, resource, subresource)) in rights.into_iter().enumerate() {
            let right = json!({"namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource});
            assert_eq!(asked["items"][at]["spec"]["resourceAttributes"], right);
            let why = ask(keys, &all_but(at)).unwrap_err();
            let denied = format!("{verb} {resource}/{subresource}");
            let denied = denied.trim_end_matches('/');
            assert!(why.contains(&format!("this user may not {denied} in the cluster")), "{why}");
        }
    }
    // If the cluster does not say what this user may do, it is tried.
    ask("", "").unwrap();
}

/// `weigh clean` ends the run first, so that the pod need not wait for its run to be collected.
#[test]
fn a_pod_that_is_cleaned_up_is_deleted_at_once() {
    let base = tempfile::tempdir().unwrap();
    let client = client(
        base.path(),
        r#"printf '%s\n' "$*" >> said; [ ! -e away ] || { cat away >&2; exit 1; }; case "$*" in *' exec '*) [ ! -e shut ];; esac"#,
    );
    let undo = |keys: &str| {
        let pod = spec(&format!("kubernetes:context=cleaned-up,nodes=n1,binary={client}{keys}"));
        let directory = "/weighbridge/weighbridge-fleet-20261126T140000Z-1f-0";
        let change = NodePod::of(&pod).unwrap().change(directory);
        let Change::Platform { what, id, detail, .. } = change else { panic!() };
        let undone = Pod.undo(&what, &id, &detail).map_err(|error| error.to_string());
        let said = std::fs::read_to_string(base.path().join("said")).unwrap();
        std::fs::remove_file(base.path().join("said")).unwrap();
        (undone, said.lines().map(String::from).collect::<Vec<_>>())
    };
    let name = "weighbridge-fleet-20261126t140000z-1f-0";
    let pod = format!("pod/{name}");
    for (keys, deleted) in [("", format!("{pod} namespace/{name}")), (",namespace=lab", pod)] {
        let (undone, said) = undo(keys);
        undone.unwrap();
        let [reach, end, remove, delete] = &said[..] else { panic!("{said:?}") };
        assert!(reach.ends_with(" get --raw /version"), "{reach}");
        assert!(end.contains(" exec ") && end.contains("/weigh\" clean"), "{end}");
        assert!(remove.contains(" exec ") && remove.contains("rm -rf"), "{remove}");
        assert!(delete.contains(&format!(" delete {deleted} --ignore-not-found --wait ")), "{delete}");
    }
    // One that cannot be entered is deleted all the same.
    std::fs::write(base.path().join("shut"), "").unwrap();
    let (undone, said) = undo("");
    undone.unwrap();
    assert_eq!((said.len(), said[2].contains(" delete pod/")), (3, true), "{said:?}");
    // A cluster that is away is asked nothing else; one that refuses is there.
    let away = |said: &str| std::fs::write(base.path().join("away"), said).unwrap();
    away("Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout\n");
    let (undone, said) = undo("");
    let why = undone.unwrap_err();
    assert!(
        said.len() == 1
            && why.contains(
                "may still be in the cluster: the cluster of the context cleaned-up does not answer"
            ),
        "{why}: {said:?}"
    );
    away("Error from server (Forbidden): forbidden: User \"me\" cannot get path \"/version\"\n");
    assert_eq!(undo("").1.len(), 3);
    away("error: You must be logged in to the server (Unauthorized)\n");
    let (undone, said) = undo("");
    let why = undone.unwrap_err();
    assert!(said.len() == 1 && why.contains("log in again"), "{why}: {said:?}");
    // What does not go in time says where to look.
    away("error: timed out waiting for the condition on namespaces/x\n");
    for (keys, describe) in [("", "describe namespace"), (",namespace=lab", "--namespace lab describe pod")] {
        let why = undo(keys).0.unwrap_err();
        assert!(why.contains(&format!("{name} may still be in the cluster: timed out waiting")), "{why}");
        let described = format!("`kubectl --context cleaned-up {describe} {name}` says what keeps it");
        assert!(why.contains(&described), "{why}");
    }
}

/// A limit that kills the run kills the whole container, and the connection ends before the
/// cluster knows why.
#[test]
fn nothing_is_collected_from_a_container_that_has_ended() {
    let base = tempfile::tempdir().unwrap();
    let client = client(
        base.path(),
        r#"case "$*" in *' exec '*) echo 'error: container not found' >&2; : > ended; exit 1;; esac
        state=running; if [ -e learnt ]; then state=terminated; elif [ -e ended ]; then : > learnt; fi
        echo '{"status":{"containerStatuses":[{"name":"guest","state":{"'$state'":{}}}]}}'"#,
    );
    let spec = spec(&format!("kubernetes:context=ended,nodes=n1,binary={client}"));
    let machine = crate::fleet::FleetMachine::of(&spec).unwrap();
    let log = base.path().join("log");
    let collect =
        |directory| machine.collect::<PlatformError>(directory, &log, |_| panic!("nothing was sent"));
    assert!(!collect("/weighbridge/weighbridge-x").unwrap());
    assert!(base.path().join("ended").exists(), "it was tried");
}

#[test]
fn the_pod_is_privileged_on_its_node_and_holds_no_token() {
    let leave = entered(&Script::FleetLeave("/weighbridge/d", END_S, COLLECT_S));
    let made = |keys: &str| manifest::fleet_pod(&pod(keys).spec, "n1", "p", NodePod::PARENT, &leave);
    let (plain, limited) = (made(""), made(",cpus=2,memory=1GiB,image=i"));
    let spec = &plain["spec"];
    assert_eq!((&spec["nodeName"], &spec["restartPolicy"]), (&json!("n1"), &json!("Never")));
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
    let container = &spec["containers"][0];
    assert_eq!(container["securityContext"], json!({"privileged": true, "runAsUser": 0}));
    assert_eq!(container["env"], json!([{"name": "WEIGH_STATE", "value": "/weighbridge/state"}]));
    assert_eq!(container["resources"], json!({"requests": {}, "limits": {}}));
    // What the shell said becomes the reason why the container ended.
    assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError");
    assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"][8], "/weighbridge/d");
    // A run has its whole time to end, and to be collected.
    assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() > END_S + COLLECT_S + 20);
    let container = &limited["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"], json!({"cpu": "2", "memory": "1073741824"}));
    assert_eq!(container["resources"]["requests"], container["resources"]["limits"]);
    assert_eq!(container["image"], "i");
    let namespace = manifest::fleet_namespace("p");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
}

/// The control groups of a pod, which is a group of this host here. Its processes enter a group
/// below it, as a group with processes cannot give controllers to others; everything that is
/// made lies in the pod's own group; and runtimes start further commands in that group itself,
/// or where the first process is.
#[test]
fn control_groups_of_version_2_are_those_of_the_pod() {
    const TEST: &str = "control_groups_of_version_2_are_those_of_the_pod";
    /// `$1` and `$2` are what the pod's first process runs and what enters it.
    const AS_A_POD: &str = r#"
        cd "$0" && mkfifo input || exit 1
        g=/sys/fs/cgroup
        [ -e $g/cgroup.controllers ] || mount --bind $g/unified $g || exit 77
        own=$g/weigh-test-$$
        mkdir $own || exit 77
        trap 'exec 3>&-; wait; rmdir $(find $own -depth -type d)' EXIT
        (echo 0 > $own/cgroup.procs; exec sh -c "$1" "$0" < input) &
        exec 3> input
        i=0; until [ -e first ]; do [ $i != 100 ] || exit 1; i=$((i+1)); sleep 0.1; done
        for from in $own $own/init; do
            (echo 0 > $from/cgroup.procs; exec sh -c "$2" "$0" sh -c '
                grep ^0: /proc/self/cgroup; mkdir -p /sys/fs/cgroup/made; echo "not in a group: $(cat /sys/fs/cgroup/cgroup.procs)"')
        done
        [ -d $own/made ] && [ -z "$(cat $own/cgroup.procs)" ] && echo "all is there"
    "#;
    if !weigh_host::facts::is_root() {
        return eprintln!("SKIPPED {TEST}: needs root");
    }
    let volume = tempfile::tempdir().unwrap();
    let volume = volume.path().to_str().unwrap();
    let made = manifest::fleet_pod(&pod("").spec, "n1", "p", volume, &[]);
    let wait = made["spec"]["containers"][0]["command"][2].as_str().unwrap();
    let run = Invocation::new("unshare").args(["--mount", "--propagation", "private"]);
    let run = run.args(["sh", "-c", AS_A_POD, volume, wait, ENTER]).deadline(Duration::from_secs(60));
    let done = run.run().unwrap();
    let said = String::from_utf8_lossy(&[done.output, done.error].concat()).into_owned();
    if done.status.code() == Some(77) {
        return eprintln!("SKIPPED {TEST}: there are no control groups of version 2 to write to: {said}");
    }
    let entered = "0::/init\nnot in a group: \n";
    assert_eq!(said, format!("{entered}{entered}all is there\n"));
}

/// `kubectl exec` ends with 1 when weigh did, and when it failed itself.
#[test]
fn a_lost_connection_is_no_exit_code_of_weigh() {
    let base = tempfile::tempdir().unwrap();
    let log = base.path().join("log");
    let code = |said: &str, code| {
        std::fs::write(&log, said).unwrap();
        NodePod::exit_code(Some(code), &log)
    };
    assert_eq!(code("block 1\ncommand terminated with exit code 1\n", 1), Some(1));
    assert_eq!(code("error: unable to upgrade connection: EOF\n", 1), None);
    let earlier = "command terminated with exit code 1\n# exit status: 1 after 0.100 s\n$ kubectl exec";
    assert_eq!(code(&format!("{earlier}\nerror: EOF\n"), 1), None, "that was another one");
    assert_eq!(code(&format!("{earlier}\nx\ncommand terminated with exit code 1\n"), 1), Some(1));
    assert_eq!(code("command terminated with exit code 137\n", 137), Some(137));
    assert_eq!(code("", 0), Some(0));
}
