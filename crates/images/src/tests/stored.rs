//! Images of the store.

use super::*;
use crate::store::{Record, Store};
use weigh_host::cache::CacheDirectory;
use weigh_host::ledger::Ledger;
use weigh_host::state::StateDirectory;

/// A store with one image, as if pulled from a registry.
fn store_with(bench: &Bench, name: &str) -> Store {
    let store = Store::at(CacheDirectory::at(bench.path("cache")));
    let ledger = Ledger::create(&StateDirectory::at(bench.path("state")), "make").unwrap();
    let image = bench.image("source");
    store
        .cache()
        .directory(&Store::entry("oci", "0123456789abcdef0123"), &ledger, |staging| {
            fs::rename(&image, staging.join("tree"))?;
            let identity = "0123456789abcdef0123".to_string();
            Record::new(name.into(), identity, "content".into(), &staging.join("tree"))?.write(staging)
        })
        .unwrap();
    store
}

#[test]
fn an_image_in_the_store_is_used_in_place() {
    let bench = Bench::new();
    let store = store_with(&bench, "oci:example.test/a:1");
    let image = ImageSpec::Oci("example.test/a:1".into());
    let prepare = |work: &str| {
        Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path(work), None).unwrap()
    };
    let root = prepare("work");
    let tree = root.tree.clone().unwrap();
    assert!(tree.join("usr/bin/tool").is_file());
    assert_eq!(targets(&root), ["/etc", "/home", "/usr", "/var", "/vmlinuz"]);
    assert_eq!(root.digest, prepare("again").digest);
    let tar = |root: &Root| {
        let mut bytes = Vec::new();
        root.write_tree_tar(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(tar(&root), tar(&root));
}

#[test]
fn an_image_in_use_is_not_removed() {
    let bench = Bench::new();
    let store = store_with(&bench, "oci:example.test/a:1");
    let image = ImageSpec::Oci("example.test/a:1".into());
    let ledger = Ledger::create(&StateDirectory::at(bench.path("state")), "remove").unwrap();
    let root = Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path("work"), None).unwrap();
    let copy = root.clone();
    drop(root);
    assert!(matches!(store.remove("oci:example.test/a:1", &ledger), Err(ImageError::InUse { .. })));
    drop(copy);
    assert!(matches!(store.remove("oci:example.test/b", &ledger), Err(ImageError::NotCached { .. })));
    assert_eq!(store.remove("0123456789", &ledger).unwrap().len(), 1);
    assert!(store.list().is_empty());
    let error =
        Root::prepare_with(Some(&store), &image, &bench.programs, &bench.path("later"), None).unwrap_err();
    assert!(error.to_string().contains("`weigh image build oci:example.test/a:1`"), "{error}");
    assert!(!bench.path("later").exists(), "refused before anything is made");
}
