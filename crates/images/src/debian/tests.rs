use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_host::cache::CacheDirectory;
use weigh_host::facts::is_root;
use weigh_host::state::StateDirectory;
use weigh_model::ImageSpec;

/// A program in place of mmdebstrap.
const FAKE: &str = include_str!("fake.sh");

struct Bench {
    base: tempfile::TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let store = Store::at(CacheDirectory::at(base.path().join("cache")));
        Self { base, store }
    }

    fn ledger(&self, run: &str) -> Ledger {
        Ledger::create(&StateDirectory::at(self.base.path().join("state")), run).unwrap()
    }

    /// A recipe whose program runs a shell command in the middle of its work.
    fn recipe(&self, step: &str) -> Recipe {
        let path = self.base.path().join("mmdebstrap");
        let text = FAKE.replace("$COUNT", &self.count().display().to_string()).replace("$STEP", step);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Recipe::for_this_host().with_program(path)
    }

    fn count(&self) -> PathBuf {
        self.base.path().join("count")
    }

    fn build(&self, run: &str, recipe: &Recipe) -> Result<CachedImage, BuildError> {
        recipe.build(&self.store, &self.ledger(run), &Progress::new(&mut |_| {}, &AtomicBool::new(false)))
    }

    /// The names in the directory of the images.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.base.path().join("cache/images")).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn the_identity_of_a_recipe_ignores_the_path_of_its_program() {
    let here = Recipe::for_this_host();
    assert_eq!(here.identity(), here.clone().with_program("/elsewhere/mmdebstrap").identity());
    let other = Recipe { release: "trixie".into(), ..here.clone() };
    assert_ne!(here.identity(), other.identity());
    // The identity of a published recipe must not change by accident. Whoever means to change it
    // changes this line.
    let known = Recipe { release: "bookworm".into(), architecture: "amd64", program: "mmdebstrap".into() };
    assert_eq!(known.identity(), "13f147d0b7075e668babe586eacfa3372392663c8ac414d25078076923e1ac23");
}

#[test]
fn the_release_is_the_hosts_own_only_on_debian() {
    assert_eq!(release("ID=debian\nVERSION_CODENAME=\"trixie\"\n"), Some("trixie"));
    assert_eq!(release("ID=ubuntu\nVERSION_CODENAME=noble\n"), None);
    assert_eq!(release("ID=debian\nVERSION_ID=12\n"), None);
}

#[test]
fn archives_are_those_of_the_release_and_of_debian() {
    let targets = "http://mirror.example/debian/ bookworm main Debian\n\
        http://mirror.example/debian/ bookworm main Debian\n\
        http://mirror.example/debian/ bookworm contrib Debian\n\
        http://mirror.example/debian/ bookworm-backports main Debian Backports\n\
        http://mirror.example/security/ bookworm-security main Debian\n\
        http://other.example/tools/ bookworm main Tools\n";
    assert_eq!(
        archives_of(targets, "bookworm"),
        [
            "deb http://mirror.example/debian/ bookworm main",
            "deb http://mirror.example/security/ bookworm-security main"
        ]
    );
    assert!(archives_of(targets, "trixie").is_empty());
    assert!(archives_of("http://m.example/ trixie-updates main Debian\n", "trixie").is_empty());
}

#[test]
fn a_missing_build_program_is_named() {
    let bench = Bench::new();
    let error = bench.build("a", &Recipe::for_this_host().with_program("/nowhere/mmdebstrap")).unwrap_err();
    let remedy = if is_root() { "apt-get install mmdebstrap" } else { "sudo weigh" };
    assert!(error.to_string().contains(remedy), "{error}");
    assert!(bench.store.list().is_empty());
}

/// Without access to the system that is being made, apt(8) would download as root.
#[test]
fn the_downloader_comes_to_the_system_while_it_is_made() {
    let Some(user) = downloader().filter(|_| is_root()) else {
        eprintln!(
            "SKIPPED the_downloader_comes_to_the_system_while_it_is_made: needs root and the user _apt"
        );
        return;
    };
    let bench = Bench::new();
    fs::set_permissions(bench.base.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let images = bench.base.path().join("cache/images");
    let comes = |user: u32| {
        let place = format!("\"$(echo {}/*.new)\"/customise.sh", images.display());
        format!("setpriv --reuid={user} --regid={user} --clear-groups test -e {place}")
    };
    bench.build("a", &bench.recipe(&format!("{} && ! {} || exit 9", comes(user), comes(12345)))).unwrap();
    let modes =
        [bench.base.path().join("cache"), images, bench.store.list()[0].tree().parent().unwrap().into()]
            .map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes, [0o700; 3]);
}

#[test]
fn two_builds_at_once_are_one() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let recipe = bench.recipe("sleep 0.3");
    let images: Vec<CachedImage> = std::thread::scope(|scope| {
        let builds = ["a", "b"].map(|run| scope.spawn(|| bench.build(run, &recipe).unwrap()));
        builds.map(|build| build.join().unwrap()).into()
    });
    assert_eq!(images[0], images[1]);
    assert_eq!(fs::read_to_string(bench.count()).unwrap(), "once\n");
    assert_eq!(images[0].record.identity, recipe.identity());
    assert!(images[0].record.summary.contains("1 packages"), "{:?}", images[0].record);
    assert_eq!(
        fs::read_dir(images[0].tree().join("dev")).unwrap().count(),
        0,
        "no device of the build is kept"
    );
    assert_eq!(bench.store.find(&ImageSpec::Debian), Some(images[0].clone()));
}

#[test]
fn a_failed_build_reports_the_reason_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let error = bench.build("a", &bench.recipe("echo 'E: no network' >&2; exit 7")).unwrap_err();
    assert!(
        error.to_string().contains("E: no network") && error.to_string().contains("exit status: 7"),
        "{error}"
    );
    assert!(bench.store.list().is_empty());
    assert!(
        bench.names().iter().all(|name| name.ends_with(".lock") || name.ends_with(".log")),
        "{:?}",
        bench.names()
    );
    // It does not block the next one.
    bench.build("b", &bench.recipe("true")).unwrap();
    assert_eq!(bench.store.list().len(), 1);
}

#[test]
fn its_steps_are_reported() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let mut told = Vec::new();
    let recipe = bench.recipe("true");
    let mut say = |step: &str| told.push(step.to_string());
    recipe
        .build(&bench.store, &bench.ledger("a"), &Progress::new(&mut say, &AtomicBool::new(false)))
        .unwrap();
    assert_eq!(told, ["making a fake"]);
}

#[test]
fn a_build_that_is_interrupted_leaves_nothing() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let recipe = bench.recipe("sleep 600");
    let ledger = bench.ledger("a");
    let interrupt = AtomicBool::new(false);
    let mut say = |_: &str| interrupt.store(true, Ordering::Relaxed);
    let result = recipe.build(&bench.store, &ledger, &Progress::new(&mut say, &interrupt));
    assert!(matches!(result, Err(BuildError::Make(MakeError::Interrupted))), "{result:?}");
    assert_eq!(ledger.standing(), []);
    assert!(
        bench.names().iter().all(|name| name.ends_with(".lock") || name.ends_with(".log")),
        "{:?}",
        bench.names()
    );
}
