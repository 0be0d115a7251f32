//! The images that this host keeps, from building to removing them.

use crate::support::{Said, Stage, is_long, is_root, kill, wait_until, words};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that replaces mmdebstrap.
const FAKE: &str = include_str!("../crates/images/src/debian/fake.sh");

/// A stage with its own cache and its own mmdebstrap.
struct Shop {
    stage: Stage,
}

impl Shop {
    fn new() -> Self {
        Self { stage: Stage::new() }
    }

    fn cache(&self) -> PathBuf {
        self.stage.here().join("cache")
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let programs = self.stage.here().join("bin");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        vec![("WEIGH_CACHE", self.cache().display().to_string()), ("PATH", path)]
    }

    /// Replaces mmdebstrap by the fake, which runs `step` in the middle of its work.
    fn fake(&self, step: &str) {
        let programs = self.stage.here().join("bin");
        fs::create_dir_all(&programs).unwrap();
        let count = self.stage.here().join("count").display().to_string();
        let path = programs.join("mmdebstrap");
        fs::write(&path, FAKE.replace("$COUNT", &count).replace("$STEP", step)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, line: &str) -> Said {
        let mut command = self.stage.weigh();
        Said::of(line, command.envs(self.environment()).args(words(line)).output().unwrap())
    }

    fn listed(&self) -> Vec<Value> {
        serde_json::from_str(&self.run("image list --json").stdout).unwrap()
    }
}

fn root(test: &str) -> bool {
    is_root(test, "building an image needs root")
}

#[test]
fn missing_images_are_refused_before_anything_is_done() {
    let shop = Shop::new();
    for (arguments, remedy) in [
        ("--image debian", "weigh image build debian"),
        ("--image oci:localhost:5000/a", "weigh image build oci:localhost:5000/a"),
        ("--image oci:alpine", "name the registry"),
        ("--image /not/there", "there is no image at /not/there"),
        ("--on runc:rootfs=debian", "weigh image build debian"),
        ("--on runc:rootfs=/not/there", "there is no image at /not/there"),
    ] {
        shop.run(&format!("run noploop --out out {arguments}")).ends_saying(2, &[remedy]);
    }
    shop.run("image build debain").ends_saying(2, &["did you mean `debian`?"]);
    for line in ["image build host", "image build oci:alpine", "image remove debian"] {
        shop.run(line).ends_with(2);
    }
    assert!(!shop.stage.here().join("out").exists() && !shop.cache().exists());
    shop.stage.host_is_as_before();
}

#[test]
fn an_image_is_built_listed_and_removed() {
    if !root("an_image_is_built_listed_and_removed") {
        return;
    }
    let shop = Shop::new();
    shop.fake("true");
    shop.run("image build debian").ends_with(0).says(&["making a fake"]);
    // The image exists now, so it is not built again.
    shop.run("image build debian").ends_with(0);
    assert_eq!(shop.stage.read("count"), "once\n");
    let listed = shop.listed();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "debian");
    assert!(Path::new(listed[0]["tree"].as_str().unwrap()).join("usr/bin/dpkg").exists());
    let digest = &listed[0]["identity"].as_str().unwrap()[..12];
    shop.run("image list").says(&[digest]);
    shop.run("image remove debian").says(&[digest]);
    assert!(shop.listed().is_empty());
    shop.stage.host_is_as_before();
}

/// Nothing of a build outlives weighbridge, and its unfinished output is not an image.
#[test]
fn a_build_that_is_killed_leaves_nothing_that_looks_finished() {
    if !root("a_build_that_is_killed_leaves_nothing_that_looks_finished") {
        return;
    }
    let shop = Shop::new();
    // No other sleep has this length.
    let sleep = format!("sleep 4321.{}", std::process::id());
    shop.fake(&sleep);
    let mut child = shop.stage.spawn_with(&words("image build debian"), &shop.environment());
    let sleeps = || processes_with(&sleep.replace(' ', "\0"));
    wait_until("the build goes on", || sleeps() > 0);
    kill(&mut child);
    wait_until("the build ends with weigh", || sleeps() == 0);
    assert!(shop.listed().is_empty());
    shop.run("clean").ends_with(0);
    let left: Vec<_> =
        fs::read_dir(shop.cache().join("images")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.is_file()), "{left:?}");
    shop.fake("true");
    shop.run("image build debian").ends_with(0);
    assert_eq!(shop.listed().len(), 1);
    shop.stage.host_is_as_before();
}

/// Uses the real image if it is already kept, or on request.
#[test]
fn guests_have_the_image_as_their_root() {
    let test = "guests_have_the_image_as_their_root";
    let stage = Stage::new();
    let required =
        std::env::var("WEIGH_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == "debian"));
    if is_long() || required {
        let mut build = stage.weigh();
        build.args(["image", "build", "debian"]).timeout(Duration::from_secs(2400));
        Said::of("image build debian", build.output().unwrap()).ends_with(0);
    } else if !stage.stdout("image list").contains("Debian") {
        eprintln!("SKIPPED {test}: the image debian is not kept here; `weigh image build debian`");
        return;
    }
    let said = stage.run(
        "run --on namespaces --baseline namespaces --image debian --blocks 2 -- /bin/sh -c \
         'test -d /.weighbridge && test -e /lib/systemd/systemd && ! test -w /usr && dpkg --status xz-utils'",
    );
    let said = said.ends_with(0).all();
    assert!(!said.contains("failed"), "{said}");
    stage.host_is_as_before();
}

/// How many processes have a command line that begins with `words`.
fn processes_with(words: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    // A shell that was asked to start such a program has the words later in its own command line.
    lines.filter(|line| String::from_utf8_lossy(line).starts_with(words)).count()
}
