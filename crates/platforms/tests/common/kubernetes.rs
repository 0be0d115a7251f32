//! The cluster that `tests/kubernetes` starts: one node, which is this host, in its own network
//! namespace. And a fake cluster.

use super::processes::once_per_run;
use std::fs;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use weigh_host::command::{Invocation, find_program};
use weigh_images::oci::{Layer, write_layout};
use weigh_images::{Programs, Root};
use weigh_model::ImageSpec;

/// Variable that names the cluster's directory.
const CLUSTER: &str = "WEIGH_CLUSTER";
/// The tests' image, which has their programs.
const IMAGE: &str = "localhost/weighbridge/conformance:latest";
/// The cluster's network namespace.
const NETWORK: &str = "weigh-k8s";

/// Why no pods can run here.
pub fn missing() -> Option<String> {
    if std::env::var_os(CLUSTER).is_none() {
        return Some("no cluster is named; `make test-kubernetes` starts one".into());
    }
    super::system_image("pods").is_none().then(|| "there is no image of a system".into())
}

/// A pod with one CPU on the cluster's node, with further keys, each preceded by a comma.
pub fn environment(keys: &str) -> String {
    once_per_run(env!("CARGO_TARGET_TMPDIR"), "pod-image", || {
        import();
        serde_json::Value::Null
    });
    format!("pod:context=weigh,node=n1,here=yes,image={IMAGE}{keys}")
}

/// Imports a system's image with the programs of these tests into the node.
fn import() {
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let probe = crate::static_probe::path().into();
    let programs = Programs { probe, kernels: "/bin/true".into(), module: None };
    let image = ImageSpec::from(super::system_image("pods").unwrap());
    let root = Root::prepare(&image, &programs, &base.path().join("root"), None).unwrap();
    let tree: Layer<'_> = &|output| root.write_tree_tar(output);
    let own: Layer<'_> = &|output| programs.write_tar(output);
    let archive = base.path().join("image.tar");
    write_layout(&[tree, own], IMAGE, &mut BufWriter::new(fs::File::create(&archive).unwrap())).unwrap();
    let socket = PathBuf::from(std::env::var_os(CLUSTER).unwrap()).join("containerd.sock");
    let import = Invocation::new("ctr").arg("--address").arg(socket).args([
        "--namespace",
        "k8s.io",
        "images",
        "import",
    ]);
    import.arg(&archive).deadline(super::MINUTE * 5).run_ok().unwrap();
}

/// Returns what `kubectl` prints.
pub fn kubectl(arguments: &[&str]) -> String {
    let done = Invocation::new("kubectl").args(arguments).deadline(super::MINUTE * 2).run_ok().unwrap();
    String::from_utf8(done.output).unwrap().trim().into()
}

/// Makes an object.
pub fn create(object: &serde_json::Value) {
    let create = Invocation::new("kubectl").args(["create", "--filename", "-"]);
    create.input(object.to_string()).run_ok().unwrap();
}

/// Takes the cluster's only link down, or up again.
pub fn link(state: &str) {
    Invocation::new("ip").args(["-n", NETWORK, "link", "set", "eth0", state]).run_ok().unwrap();
}

/// Asserts that nothing of any run is left in the cluster.
pub fn assert_empty() {
    let ours = ["--selector", "app.kubernetes.io/managed-by=weighbridge", "--output", "name"];
    let all = kubectl(&[&["get", "pods,namespaces", "--all-namespaces"][..], &ours].concat());
    assert_eq!(all, "", "left in the cluster");
}

/// A fake `kubectl` with a cluster whose pods are sandboxes of this host that claim to be
/// elsewhere. It cannot show whether a real cluster behaves the same.
pub struct Fake(tempfile::TempDir);

impl Fake {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("weigh-test-kubectl").tempdir_in("/var/tmp").unwrap();
        let fake = Self(directory);
        fake.say("probe", &crate::static_probe::path().display().to_string());
        fake.say("kernels", "/bin/true");
        fake.say("kubectl", include_str!("kubectl.pl"));
        fs::set_permissions(fake.0.path().join("kubectl"), PermissionsExt::from_mode(0o755)).unwrap();
        fake
    }

    /// Why it cannot run here.
    pub fn missing() -> Option<String> {
        let missing = ["perl", "bwrap"].into_iter().find(|name| find_program(name).is_none())?;
        Some(format!("{missing} is not installed (apt-get install perl bubblewrap)"))
    }

    /// Writes one of the files that it reads.
    pub fn say(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }

    /// Removes such a file again.
    pub fn unsay(&self, file: &str) {
        fs::remove_file(self.0.path().join(file)).unwrap();
    }

    /// A pod with further keys, each preceded by a comma.
    pub fn environment(&self, keys: &str) -> String {
        let kubectl = self.0.path().join("kubectl");
        format!("pod:binary={},context=fake,node=n1,here=no{keys}", kubectl.display())
    }

    /// The names of the objects that it has.
    pub fn objects(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("pod.") || name.starts_with("namespace.")).collect()
    }
}
