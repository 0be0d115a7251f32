//! Tests with a registry on loopback: Debian's `docker-registry`, if it is installed.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use super::layers::tests::Item;
use super::registry::digest;
use super::*;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weigh_host::cache::CacheDirectory;
use weigh_host::command::{Invocation, Running, find_program};
use weigh_host::state::StateDirectory;
use weigh_model::ImageSpec;

/// The program of the registry, and its name in `WEIGH_REQUIRE`.
const PROGRAM: &str = "docker-registry";

struct Bench {
    base: tempfile::TempDir,
    authority: String,
    store: Store,
    agent: ureq::Agent,
    _server: Running,
}

impl Bench {
    /// A new registry, or `None` if its program is not installed.
    fn new(test: &str) -> Option<Self> {
        if find_program(PROGRAM).is_none() {
            let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == PROGRAM), "{PROGRAM} is required and missing");
            eprintln!("SKIPPED {test}: {PROGRAM} is not installed");
            return None;
        }
        let base = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let authority = format!("127.0.0.1:{port}");
        let blobs = base.path().join("registry");
        let config = json!({
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": blobs}},
            "http": {"addr": authority},
        });
        // JSON is valid YAML.
        let file = base.path().join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        let server = Invocation::new(PROGRAM)
            .arg("serve")
            .arg(&file)
            .log_to(&base.path().join("log"))
            .spawn()
            .unwrap();
        let agent = ureq::Agent::config_builder().proxy(None).build().new_agent();
        let store = Store::at(CacheDirectory::at(base.path().join("cache")));
        let bench = Self { base, authority, store, agent, _server: server };
        let end = Instant::now() + Duration::from_secs(30);
        while bench.agent.get(bench.url("")).call().is_err() {
            assert!(Instant::now() < end, "the registry does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(bench)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.authority)
    }

    /// Puts a blob into the repository `a/system` and describes it.
    fn push_blob(&self, kind: &str, bytes: &[u8]) -> serde_json::Value {
        let started = self.agent.post(self.url("a/system/blobs/uploads/")).send_empty().unwrap();
        let location = started.headers().get("Location").unwrap().to_str().unwrap();
        let digest = digest(bytes);
        self.agent.put(location).query("digest", &digest).send(bytes).unwrap();
        json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
    }

    /// Puts a manifest under a tag and describes it.
    fn push_manifest(&self, tag: &str, manifest: &serde_json::Value) -> serde_json::Value {
        let kind = manifest["mediaType"].as_str().unwrap();
        let text = manifest.to_string();
        let address = self.url(&format!("a/system/manifests/{tag}"));
        self.agent.put(address).header("Content-Type", kind).send(&text).unwrap();
        json!({"mediaType": kind, "digest": digest(text.as_bytes()), "size": text.len()})
    }

    /// Puts an image with these layers under a tag.
    fn push_image(&self, tag: &str, architecture: &str, layers: &[Vec<u8>]) -> serde_json::Value {
        let config = json!({"os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []}});
        let config =
            self.push_blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let kind = "application/vnd.oci.image.layer.v1.tar";
        let layers: Vec<_> = layers.iter().map(|layer| self.push_blob(kind, layer)).collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.push_manifest(
            tag,
            &json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}),
        )
    }

    fn reference(&self, version: &str) -> Reference {
        format!("{}/a/system{version}", self.authority).parse().unwrap()
    }

    fn pull(&self, version: &str) -> Result<CachedImage, PullError> {
        let run = format!("pull-{:?}", Instant::now()).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let ledger = Ledger::create(&StateDirectory::at(self.base.path().join("state")), &run).unwrap();
        pull_quietly(&self.store, &ledger, &self.reference(version))
    }

    /// The file in which the registry stores a blob.
    fn blob_file(&self, digest: &str) -> PathBuf {
        let digits = digest.trim_start_matches(SHA256);
        let blobs = self.base.path().join("registry/docker/registry/v2/blobs/sha256");
        blobs.join(&digits[..2]).join(digits).join("data")
    }
}

fn pull_quietly(store: &Store, ledger: &Ledger, reference: &Reference) -> Result<CachedImage, PullError> {
    pull(store, ledger, reference, &Progress::new(&mut |_| {}, &AtomicBool::new(false)))
}

/// A layer with one file.
fn layer(name: &str, content: &str) -> Vec<u8> {
    super::layers::tests::layer(&[(name, Item::File(content))])
}

#[test]
fn an_image_of_several_machines_is_pulled_once() {
    let Some(bench) = Bench::new("an_image_of_several_machines_is_pulled_once") else { return };
    let layers = [layer("bin/a", "lower"), layer("bin/b", "upper"), layer("bin/.wh.a", "")];
    let mut here = bench.push_image("here", manifest::architecture(), &layers);
    let mut there = bench.push_image("there", "s390x", &[layer("bin/c", "")]);
    here["platform"] = json!({"os": "linux", "architecture": manifest::architecture()});
    there["platform"] = json!({"os": "linux", "architecture": "s390x"});
    let kind = "application/vnd.oci.image.index.v1+json";
    bench.push_manifest(
        "latest",
        &json!({"schemaVersion": 2, "mediaType": kind, "manifests": [there, here.clone()]}),
    );

    let kept = bench.pull("").unwrap();
    assert_eq!(fs::read_to_string(kept.tree().join("bin/b")).unwrap(), "upper");
    assert!(!kept.tree().join("bin/a").exists());
    let digest = here["digest"].as_str().unwrap();
    assert_eq!(format!("{SHA256}{}", kept.record.identity), digest);
    // Another reference to it is another name, not another image.
    assert_eq!(bench.pull(":here").unwrap().tree(), kept.tree());
    assert_eq!(bench.pull(&format!("@{digest}")).unwrap().tree(), kept.tree());
    assert_eq!(bench.store.list().len(), 1);
    for version in ["", ":latest", ":here", &format!("@{digest}")] {
        let image = ImageSpec::Oci(format!("{}/a/system{version}", bench.authority));
        assert_eq!(bench.store.find(&image).map(|kept| kept.tree()), Some(kept.tree()), "{version}");
    }
    assert!(matches!(bench.pull(":there"), Err(PullError::OtherPlatform { .. })));
    assert!(matches!(bench.pull(":nothing"), Err(PullError::NotThere(_))));
    assert_eq!(bench.store.list().len(), 1, "what failed has no name");
}

#[test]
fn a_tag_that_moves_leaves_the_old_image_its_digest() {
    let Some(bench) = Bench::new("a_tag_that_moves_leaves_the_old_image_its_digest") else { return };
    bench.push_image("1", manifest::architecture(), &[layer("a", "old")]);
    let old = bench.pull(":1").unwrap();
    bench.push_image("1", manifest::architecture(), &[layer("a", "new")]);
    let new = bench.pull(":1").unwrap();
    assert_ne!(old.tree(), new.tree());
    let found = |text: &str| bench.store.find(&ImageSpec::Oci(text.trim_start_matches("oci:").into()));
    assert_eq!(found(&bench.reference(":1").to_string()).unwrap().tree(), new.tree());
    assert_eq!(found(&old.record.name).unwrap().tree(), old.tree());
}

#[test]
fn content_that_the_registry_changed_is_refused() {
    let Some(bench) = Bench::new("content_that_the_registry_changed_is_refused") else { return };
    let bytes = layer("a", "good");
    bench.push_image("1", manifest::architecture(), std::slice::from_ref(&bytes));
    let mut bad = bytes.clone();
    bad[0] = b'b';
    fs::write(bench.blob_file(&digest(&bytes)), bad).unwrap();
    assert!(matches!(bench.pull(":1"), Err(PullError::Digest { .. })));
    assert!(bench.store.list().is_empty());
}

/// Answers requests one after the other. `answer` makes the response from the request line and the
/// headers.
fn serve(listener: &TcpListener, answer: impl Fn(&str) -> String) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap() == 0 {
                break;
            }
            request.push(byte[0]);
        }
        let request = String::from_utf8(request).unwrap();
        if request.starts_with("GET /end ") {
            return;
        }
        stream.write_all(answer(&request).as_bytes()).unwrap();
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

/// The behaviour of public registries: nothing without a token, and a token for everybody.
#[test]
fn a_token_is_fetched_when_the_registry_asks_for_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let manifest =
        json!({"schemaVersion": 2, "layers": [], "config": {"digest": digest(b"x"), "size": 1}}).to_string();
    let challenge = format!(
        "WWW-Authenticate: Bearer realm=\"http://{authority}/token\",service=\"here\",scope=\"repository:a/b:pull\"\r\n"
    );
    let answer = |request: &str| {
        let line = request.lines().next().unwrap();
        let known = request.to_lowercase().contains("authorization: bearer secret");
        if line.starts_with("GET /token?") {
            assert!(line.contains("service=here") && line.contains("repository"), "{line}");
            response("200 OK", "", r#"{"access_token": "secret"}"#)
        } else if line.starts_with("GET /v2/a/b/manifests/latest ") && known {
            response("200 OK", "", &manifest)
        } else {
            response("401 Unauthorized", &challenge, "")
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, answer));
        let reference: Reference = format!("{authority}/a/b").parse().unwrap();
        let found = Registry::new(&reference).manifest("latest");
        let hidden = Registry::new(&reference).manifest("other");
        let _ended = ureq::get(format!("http://{authority}/end")).call();
        assert_eq!(found.unwrap(), (manifest.clone().into_bytes(), digest(manifest.as_bytes())));
        assert!(matches!(hidden, Err(PullError::Locked(_))), "{hidden:?}");
    });
}

#[test]
fn a_missing_registry_is_reported() {
    let base = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = Store::at(CacheDirectory::at(base.path().join("cache")));
    let ledger = Ledger::create(&StateDirectory::at(base.path().join("state")), "pull").unwrap();
    let reference = format!("127.0.0.1:{port}/a").parse().unwrap();
    let error = pull_quietly(&store, &ledger, &reference).unwrap_err();
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
}
