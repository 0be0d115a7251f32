//! Published STREAM rates: ten runs of each of Linux, Docker and KVM in IBM's report RC25482
//! (2014). The logs are in the directory that `WEIGH_REFERENCE` names, and not part of this
//! project.

use crate::build::*;
use std::path::PathBuf;
use weigh_model::{Better, Comparison};
use weigh_stats::{Pairing, Verdict};

/// The directory with the logs. Without it the test is skipped, or fails if the data are required.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn logs(test: &str) -> Option<PathBuf> {
    let directory = std::env::var_os("WEIGH_REFERENCE").map(|d| PathBuf::from(d).join("felter-2014/stream"));
    let directory = directory.filter(|d| d.is_dir());
    if directory.is_none() {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|what| what == "reference"),
            "WEIGH_REFERENCE names no directory with the logs"
        );
        eprintln!("SKIPPED {test}: WEIGH_REFERENCE names no directory with felter-2014/stream");
    }
    directory
}

/// The rates of a kernel, GB/s as printed: the second column of the lines that start with its name.
fn rates(file: &std::path::Path, kernel: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(file).expect("the log can be read");
    let lines = text.lines().filter_map(|line| line.strip_prefix(kernel)?.strip_prefix(':'));
    lines.map(|rest| rest.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a rate")).collect()
}

const KERNELS: [&str; 4] = ["Copy", "Scale", "Add", "Triad"];

/// Means of the ten runs, GB/s, as the data's own notes give them.
const MEANS: [(&str, [f64; 4]); 6] = [
    ("linux.two-socket.interleavedalloc", [41.27, 41.25, 45.79, 45.60]),
    ("docker.two-socket.interleavedalloc", [41.20, 41.23, 45.62, 45.63]),
    ("vm.two-socket.interleavedalloc", [40.05, 40.01, 44.99, 45.02]),
    ("linux.single-socket.localalloc", [22.53, 22.53, 25.12, 25.15]),
    ("docker.single-socket.localalloc", [22.52, 22.52, 25.12, 25.14]),
    ("vm.single-socket.localalloc", [22.28, 22.28, 24.85, 24.87]),
];

#[test]
fn the_means_of_the_published_logs() {
    let Some(directory) = logs("the_means_of_the_published_logs") else { return };
    for (log, means) in MEANS {
        for (kernel, expected) in KERNELS.into_iter().zip(means) {
            let values = rates(&directory.join(format!("{log}.log")), kernel);
            assert_eq!(values.len(), 10, "{log} {kernel}");
            let whole = comparison(vec![series("native", loose(&values))]);
            let mean = environment(&analysed(&[whole]), "native").summary.unwrap().mean;
            assert!((mean - expected).abs() <= 0.0051, "{log} {kernel}: {mean}, not {expected}");
        }
    }
}

#[test]
fn the_ratios_of_the_published_logs() {
    let Some(directory) = logs("the_ratios_of_the_published_logs") else { return };
    let triad =
        |name: &str| rates(&directory.join(format!("{name}.two-socket.interleavedalloc.log")), "Triad");
    let whole = Comparison {
        metric: metric("triad", Better::Higher, true),
        ..comparison(vec![
            series("native", loose(&triad("linux"))),
            series("docker", loose(&triad("docker"))),
            series("vm", loose(&triad("vm"))),
        ])
    };
    let analysis = analysed(&[whole]);
    for (name, ratio, low, high) in [("vm", 0.9873, 0.9837, 0.9909), ("docker", 1.0006, 0.9925, 1.0088)] {
        let cell = environment(&analysis, name);
        assert_eq!((cell.n, cell.pairing), (10, Pairing::Unpaired));
        // The overhead is a ratio of costs; the published ratio is one of rates.
        let cost = cell.overhead.unwrap();
        let found = [1.0 / (1.0 + cost.estimate), 1.0 / (1.0 + cost.high), 1.0 / (1.0 + cost.low)];
        for (found, expected) in found.into_iter().zip([ratio, low, high]) {
            assert!((found - expected).abs() <= 0.000_051, "{name}: {found}, not {expected}");
        }
    }
    assert_eq!(environment(&analysis, "vm").verdict, Some(Verdict::Slower));
    // Ten runs show no difference for Docker, and are too few to show equivalence.
    assert_eq!(environment(&analysis, "docker").verdict, Some(Verdict::Inconclusive));
}
