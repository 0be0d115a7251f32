//! The built-in workloads, and users' own.

use super::*;
use crate::workload::Size;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Extraction, HostFacts, RUN_WORDS};

pub(crate) fn host(last_level_cache_bytes: Option<u64>) -> HostFacts {
    HostFacts { last_level_cache_bytes, ..HostFacts::default() }
}

#[test]
fn every_file_of_the_folder_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let in_folder: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = EMBEDDED.iter().map(|name| format!("{name}.toml")).collect();
    assert_eq!(in_folder, listed, "add a new manifest to EMBEDDED");
}

#[test]
fn built_in_manifests_are_complete() {
    let library = Library::load(&[], &[]).unwrap();
    for (listed, workload) in EMBEDDED.iter().zip(library.workloads()) {
        assert_eq!(workload.name(), *listed, "a file is named after its workload");
        assert!(workload.check.is_some(), "{listed}: a built-in workload proves its work");
        let mut is_kernel = false;
        for size in Size::ALL {
            assert!(workload.expected_s(size).is_some(), "{listed} {size}");
            let required = workload.params().iter().filter(|param| param.required.is_some());
            let given = required.map(|param| (param.name.clone(), vec!["/opt/own".into()])).collect();
            let plans = workload.plan(size.as_str(), &given, &host(Some(1 << 20))).unwrap();
            let [plan] = plans.as_slice() else { panic!("{listed}: one plan without a sweep") };
            assert_eq!(plan.id, *listed);
            let words = plan.command.iter().chain(plan.staging.setup.iter().flatten());
            for word in words {
                let known = RUN_WORDS
                    .iter()
                    .fold(word.clone(), |word, known| word.replace(&format!("{{{known}}}"), ""));
                let param =
                    workload.params().iter().find(|param| known.contains(&format!("{{{}}}", param.name)));
                assert!(param.is_none(), "{listed}: {word}");
            }
            is_kernel = plan.command[0] == "weigh-kernels" && plan.command[1] == *listed;
        }
        if let Some(other) = workload.substitute() {
            assert!(library.get(other).is_ok_and(|other| other.substitute().is_none()), "{listed}: {other}");
        }
        if !is_kernel {
            continue;
        }
        for metric in workload.metrics() {
            let (name, from) = (&metric.spec.name, &metric.from);
            let expected = match name.rsplit_once("latency_p") {
                Some((beginning, percentile)) => Extraction::Quantile {
                    histogram: format!("/histograms/{beginning}latency"),
                    quantile: format!("0.{percentile}").parse().unwrap(),
                },
                None => Extraction::Json { pointer: format!("/metrics/{name}/value") },
            };
            assert_eq!(*from, expected, "{listed}: a kernel's metric has the same name here and there");
        }
    }
}

#[test]
fn the_default_set_and_primary_metrics_are_fixed() {
    let library = Library::load(&[], &[]).unwrap();
    let set: Vec<&str> = library.workloads().iter().filter(|w| w.default_set()).map(Workload::name).collect();
    assert_eq!(set, ["noploop", "syscall", "stream", "memory-latency", "lzma"]);
    let primary = |name: &str| -> Vec<String> {
        let metrics = library.get(name).unwrap().metrics();
        metrics.iter().filter(|m| m.spec.primary).map(|m| m.spec.name.clone()).collect()
    };
    assert_eq!(primary("noploop"), ["duration"]);
    assert_eq!(primary("syscall"), ["getpid", "fork_exec", "context_switch"]);
    assert_eq!(primary("stream"), ["triad"]);
    assert_eq!(primary("memory-latency"), ["latency_64MiB"]);
    assert_eq!(primary("lzma"), ["rate"]);
    assert_eq!(primary("gups"), ["rate"]);
    assert_eq!(primary("echo"), ["tcp_latency_p50"]);
    assert_eq!(primary("bulk"), ["throughput"]);
    assert_eq!(primary("block"), ["latency_p50"]);
    assert_eq!(primary("spin"), ["duration"]);
}

/// A user's manifest.
fn manifest(name: &str, summary: &str) -> String {
    format!(
        r#"name = "{name}"
summary = "{summary}"
description = "Something of mine."
command = ["true"]
check = {{ statement = "exit status 0" }}

[[metric]]
name = "time"
unit = "s"
better = "lower"
primary = true
duration = true
"#
    )
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().into()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn users_bring_their_own_without_compiling() {
    let folder = Folder::with(&[
        ("b.toml", manifest("mine", "one")),
        ("a.toml", manifest("yours", "two")),
        ("notes.txt", "not a manifest".into()),
    ]);
    let elsewhere = Folder::with(&[("c.toml", manifest("third", "three"))]);
    let directories = [PathBuf::from("/nonexistent"), folder.path()];
    let library = Library::load(&directories, &[elsewhere.file("c.toml")]).unwrap();
    assert_eq!(library.names()[EMBEDDED.len()..], ["yours", "mine", "third"]);
    let plan = &library.get("mine").unwrap().plan("paper", &BTreeMap::new(), &host(None)).unwrap()[0];
    assert_eq!((plan.command.as_slice(), plan.deadline_s), (["true".to_string()].as_slice(), 600.0));
    let unknown = library.get("steam").unwrap_err();
    assert_eq!((unknown.name.as_str(), unknown.nearest.as_deref()), ("steam", Some("stream")));
    assert_eq!(library.get("zzzzzz").unwrap_err().nearest, None);
}

#[test]
fn built_in_names_are_reserved() {
    let folder = Folder::with(&[("x.toml", manifest("stream", "mine"))]);
    for error in [
        Library::load(&[folder.path()], &[]).unwrap_err(),
        Library::load(&[], &[folder.file("x.toml")]).unwrap_err(),
    ] {
        assert_eq!(&error.text[error.span.clone().unwrap()], "\"stream\"");
        assert!(
            error.message.contains("built-in") && error.help.unwrap().contains("rename"),
            "{}",
            error.message
        );
        assert_eq!(error.file, folder.file("x.toml"));
    }
}

#[test]
fn a_file_named_explicitly_replaces_the_users_own_and_nothing_else_does() {
    let folder = Folder::with(&[("x.toml", manifest("mine", "old"))]);
    let file = Folder::with(&[("y.toml", manifest("mine", "new"))]);
    let library = Library::load(&[folder.path()], &[file.file("y.toml")]).unwrap();
    assert_eq!(library.get("mine").unwrap().summary(), "new");
    assert_eq!(library.names().iter().filter(|name| **name == "mine").count(), 1);
    let error = Library::load(&[folder.path(), file.path()], &[]).unwrap_err();
    assert!(error.message.contains("also the name in") && error.message.contains("x.toml"), "{error}");
}

#[test]
fn a_wrong_or_missing_manifest_is_reported_with_its_path() {
    let folder = Folder::with(&[("x.toml", "nme = 3".into())]);
    let error = Library::load(&[folder.path()], &[]).unwrap_err();
    assert_eq!((error.file, error.span), (folder.file("x.toml"), Some(0..3)));
    let gone = folder.file("gone.toml");
    let error = Library::load(&[], std::slice::from_ref(&gone)).unwrap_err();
    assert_eq!(error.file, gone);
    assert!(error.message.contains("cannot read the manifest"), "{error}");
}
