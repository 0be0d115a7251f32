use super::*;

fn serve_in(directory: &Path, line: &str) -> Result<Outcome, KernelError> {
    let line = format!("--directory {} {line}", directory.display());
    run(&KERNEL.options_of(&line))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const SMALL: &str = "--files 40 --threads 4 --file-bytes 6000 --append-bytes 5000 --io-bytes 8KiB";

#[test]
fn all_operations_are_done_and_everything_is_gone_after() {
    let folder = folder();
    let outcome = serve_in(folder.path(), &format!("{SMALL} --operations 5000 --warmup 20")).unwrap();
    KERNEL.assert_complete(&outcome);
    let measured: Vec<u64> = outcome.histograms.iter().map(|(_, histogram)| histogram.len()).collect();
    assert_eq!(measured.iter().sum::<u64>(), 5000);
    // Of the eleven operations of a loop two open and three close. The first and last loops are cut
    // off.
    let [create, open, write, append, read, close, stat, delete] = measured[..] else {
        panic!("{measured:?}")
    };
    for of_loop in [create, write, append, read, stat, delete] {
        assert!(of_loop.abs_diff(5000 / 11) < 20, "{measured:?}");
    }
    assert!(open.abs_diff(2 * 5000 / 11) < 20 && close.abs_diff(3 * 5000 / 11) < 20, "{measured:?}");
    // The four threads finish the loops that they began.
    assert!(outcome.operations >= 5020, "{}", outcome.operations);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn time_ends_it_too() {
    let folder = folder();
    let outcome =
        serve_in(folder.path(), &format!("{SMALL} --sizes fixed --seconds 1 --operations 1 --warmup 0"))
            .unwrap();
    assert!(outcome.check.passed, "{:?}", outcome.check);
    assert!(outcome.operations > 1);
}

fn small(folder: &Path) -> (Settings, Tree, Content) {
    let line = format!("{SMALL} --operations 2000 --seed 3 --threads 1");
    let line = line.replacen("--threads 4", "", 1);
    let options = Options::parse("fileserver", KERNEL.options, line.split_whitespace().map(str::to_owned));
    let settings = Settings::of(&options.unwrap()).unwrap();
    let mut content = settings.content();
    let mut random = Pcg64Mcg::new(7);
    let tree =
        Tree::make(folder, settings.files, settings.sizes, &mut random, &mut content, settings.io_bytes);
    (settings, tree.unwrap(), content)
}

#[test]
fn changed_and_additional_files_fail_the_check() {
    let spoil = |damage: &dyn Fn(&Path, &[u8])| {
        let folder = folder();
        let (settings, tree, mut content) = small(folder.path());
        for known in tree.files() {
            let path = tree.path(known.file);
            damage(path, &std::fs::read(path).unwrap());
        }
        let outcome = serve(&settings, &tree, &mut content).unwrap();
        tree.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        outcome.check
    };
    let untouched = spoil(&|_, _| {});
    assert!(untouched.passed, "{untouched:?}");
    let shorter = spoil(&|path, bytes| std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap());
    assert!(!shorter.passed && !shorter.statement.contains(" 0 of them too short"), "{shorter:?}");
    let longer = spoil(&|path, bytes| std::fs::write(path, [bytes, b"x"].concat()).unwrap());
    assert!(!longer.passed && !longer.statement.contains(" 0 wrong"), "{longer:?}");
    let zeros = spoil(&|path, bytes| std::fs::write(path, vec![0; bytes.len()]).unwrap());
    assert!(!zeros.passed && !zeros.statement.contains(" 0 with content"), "{zeros:?}");
    let strangers = spoil(&|path, _| std::fs::write(path.with_extension("stranger"), b"").unwrap());
    assert!(!strangers.passed && strangers.statement.contains("0 of 33 compared differ"), "{strangers:?}");
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let folder = folder();
    let (settings, tree, mut content) = small(folder.path());
    let known = tree.files();
    known.iter().for_each(|known| std::fs::remove_file(tree.path(known.file)).unwrap());
    let error = serve(&settings, &tree, &mut content).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    drop(tree);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn lengths_have_the_mean_that_was_asked_for() {
    let mut random = Pcg64Mcg::new(5);
    let draws: Vec<f64> = (0..50_000).map(|_| Sizes::Gamma(10_000).draw(&mut random) as f64).collect();
    let mean = draws.iter().sum::<f64>() / 50_000.0;
    let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 50_000.0;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.03, "{mean}");
    // The variance of a gamma distribution is the square of its mean by its shape.
    assert!((variance / (mean * mean / 1.5) - 1.0).abs() < 0.08, "{variance}");
    assert_eq!(Sizes::Fixed(77).draw(&mut random), 77);
}

#[test]
fn impossible_requests_are_refused_in_words() {
    let folder = folder();
    let message = |line: &str| serve_in(folder.path(), line).unwrap_err().to_string();
    assert!(message("--files 40").contains("250 at least"));
    assert!(message("--io-bytes 5000").contains("multiple of 4096"));
    assert!(message("--append-bytes 1GiB").contains("the most is"));
    assert!(message("--file-bytes 1000TiB").contains("are needed: use fewer `--files`"));
    let missing = folder.path().join("nothing");
    let error = serve_in(&missing, SMALL).unwrap_err().to_string();
    assert!(error.contains("make the directory") && error.contains("nothing"), "{error}");
}
