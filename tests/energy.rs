//! `weigh run --energy` through the command. The counters of a processor are files of the test,
//! which a mount namespace puts in the place of the host's.

use crate::support::{Said, Stage, cell_of, is_root, shown, unbroken};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The power of the processor while the host is idle, and from the beginning of the run on.
const IDLE_W: f64 = 10.0;
const BUSY_W: f64 = 30.0;

/// Makes a directory like the host's `/sys/class`, without counters of energy.
fn classes(stage: &Stage) -> PathBuf {
    let classes = stage.here().join("classes");
    fs::create_dir(&classes).unwrap();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    for class in fs::read_dir("/sys/class").unwrap().flatten().filter(is_directory) {
        if class.file_name() == "powercap" {
            continue;
        }
        let copy = classes.join(class.file_name());
        fs::create_dir(&copy).unwrap();
        for device in fs::read_dir(class.path()).unwrap().flatten() {
            // Links alone: to read one of the files there may do something to the host.
            if let Ok(target) = fs::read_link(device.path()) {
                symlink(target, copy.join(device.file_name())).unwrap();
            }
        }
    }
    classes
}

/// Runs a command line that sees a directory as `/sys/class`.
fn run(stage: &Stage, classes: &Path, line: &str) -> Said {
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /sys/class && exec \"$@\"").arg(classes);
    stage.prepare(&mut command, assert_cmd::cargo::cargo_bin("weigh"), line);
    Said::of(line, command.output().unwrap())
}

/// Counts the energy of the processor until the run has ended.
fn count(counter: &File, samples: &Path, ended: &AtomicBool) {
    let (mut used_uj, mut last) = (0.0, Instant::now());
    while !ended.load(Ordering::Relaxed) {
        // The idle host is observed before anything but the header is recorded, and the events are
        // handed to the system after the first block.
        let has_begun = fs::read_to_string(samples).is_ok_and(|text| text.lines().count() > 1);
        let (power_w, now) = (if has_begun { BUSY_W } else { IDLE_W }, Instant::now());
        used_uj += power_w * now.duration_since(last).as_secs_f64() * 1e6;
        last = now;
        // As many digits every time, so that no reader finds the end of an older number.
        counter.write_all_at(format!("{used_uj:020.0}\n").as_bytes(), 0).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn energy_is_measured_with_and_without_that_of_the_idle_host() {
    const TEST: &str = "energy_is_measured_with_and_without_that_of_the_idle_host";
    if !is_root(TEST, "only root makes a mount namespace") {
        return;
    }
    let stage = Stage::new();
    let classes = classes(&stage);
    let line = "run --on native --blocks 4 --iterations 1 --no-void --energy --out r -- sleep 0.5";
    run(&stage, &classes, line).ends_saying(2, &["`--energy` cannot be measured: ", "(RAPL)"]);
    assert!(!stage.here().join("r").exists(), "it has not begun");

    let zone = classes.join("powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    for (file, content) in
        [("name", "package-0\n"), ("energy_uj", "0\n"), ("max_energy_range_uj", "262143328850\n")]
    {
        fs::write(zone.join(file), content).unwrap();
    }
    let counter = File::options().write(true).open(zone.join("energy_uj")).unwrap();
    let (samples, ended) = (stage.here().join("r/samples.jsonl"), AtomicBool::new(false));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| count(&counter, &samples, &ended));
        let said = run(&stage, &classes, line);
        ended.store(true, Ordering::Relaxed);
        said
    });
    said.ends_with(0);
    let report = shown(&stage, "r");
    let joules = |metric: &str| {
        let cell = cell_of(&report, "native", metric);
        assert_eq!((&cell["unit"], &cell["n"]), (&"J".into(), &4.into()), "{cell}");
        cell["median"].as_f64().unwrap()
    };
    let (whole, above_idle) = (joules("energy_per_run"), joules("energy_above_idle_per_run"));
    // On a busy machine half a second of sleep takes longer.
    let expected = BUSY_W * 0.5;
    assert!((expected * 0.95..expected * 2.0).contains(&whole), "{whole} J");
    let share = above_idle / whole;
    assert!((share - (1.0 - IDLE_W / BUSY_W)).abs() < 0.07, "{above_idle} J of {whole} J");
    let details = unbroken(&stage.stdout("show r --details"));
    for part in ["energy_per_run, lower is better", "energy_above_idle_per_run, lower is better", " J "] {
        assert!(details.contains(part), "no {part}: {details}");
    }
    stage.host_is_as_before();
}
