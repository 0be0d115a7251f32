//! Logs in the format of a study, with invented numbers.

use super::*;
use crate::study::numbered;
use std::fmt::Write;
use weigh_report::study::{ClaimGrade, StudyCell};
use weigh_stats::Grade;

const STUDY: &str = r#"
name = "mine"
title = "t"
authors = "a"
published = "p"
host = "h"
method = "one after the other"
[[experiment]]
name = "table"
title = "t"
source = "s"
statistic = "mean of 4 runs"
baseline = "native"
measure = { command = "run", arguments = ["stream"] }
instead = [{ original = "STREAM", here = "stream" }]
arm = [
  { id = "native", label = "Native", on = "native" },
  { id = "docker", label = "Docker", on = "docker" },
  { id = "kvm", label = "KVM", on = "kvm" },
]
view = [{ id = "table", title = "t", form = "table", quantities = ["triad", "copy"] }]
[[experiment.quantity]]
id = "triad"
label = "Triad"
workload = "stream"
metric = "triad"
unit = "GB/s"
better = "higher"
stands_in = true
[[experiment.quantity]]
id = "copy"
label = "Copy"
workload = "stream"
metric = "copy"
unit = "GB/s"
better = "higher"
stands_in = true
[[experiment.published]]
quantity = "triad"
source = "table 1"
n = 4
spread = "sd"
values = { native = [10.0, 0.1], docker = [10.0, 0.1], kvm = [5.0, 0.1] }
[[experiment.claim]]
id = "kvm-half"
says = "half"
source = "s"
check = "kvm triad <= 0.6 x native"
[[experiment.claim]]
id = "docker-little"
says = "little"
source = "s"
check = "docker overhead of triad <= 0.5 %"
[[experiment.claim]]
id = "copies"
says = "same"
source = "s"
check = "docker copy within 5 % of native"
[[experiment.reanalyse]]
quantity = "triad"
parser = "stream"
value = "triad"
folders = ["results", "flat"]
files = { native = ["native.log"], docker = ["docker.log"], kvm = ["kvm.log"] }
n = 4
"#;

fn log(triads: &[f64]) -> String {
    let mut text = String::new();
    for triad in triads {
        write!(
            text,
            "Array size = 4000, Offset = 0\nFunction      Rate (GB/s)   Avg time\nCopy:  1.5  0.1\nScale: 1.6  0.1\nAdd:   1.7  0.1\n\
             Triad: {triad}  0.1\nSolution Validates\n"
        )
        .unwrap();
    }
    text
}

/// Reanalyses the study in `text` with these logs in the folder `flat`.
fn reanalysed(text: &str, logs: &[(&str, String)]) -> ReanalysisResult {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("flat")).unwrap();
    for (name, text) in logs {
        std::fs::write(directory.path().join("flat").join(name), text).unwrap();
    }
    let study = crate::read_study(Path::new("mine.toml"), text).unwrap();
    reanalyse(&study, &["table"], directory.path())
}

fn good() -> Vec<(&'static str, String)> {
    vec![
        ("native.log", log(&[10.0, 10.1, 9.9, 10.0])),
        ("docker.log", log(&[9.9, 10.2, 9.8, 10.1])),
        ("kvm.log", log(&[5.0, 5.05, 4.95, 5.0])),
    ]
}

fn cell(of: &ReanalysisResult, row: usize, arm: usize) -> &StudyCell {
    &of.report.experiments[0].views[0].rows[row].cells[arm]
}

fn grades(of: &ReanalysisResult) -> Vec<&ClaimGrade> {
    of.report.experiments[0].claims.iter().map(|claim| &claim.grade).collect()
}

#[test]
fn the_logs_take_the_place_of_a_run() {
    let found = reanalysed(STUDY, &good());
    assert!(found.damaged.is_empty());
    let native = cell(&found, 0, 0).measured.as_ref().unwrap();
    assert!((native.value - 10.0).abs() < 1e-9 && native.n == 4 && native.unit.is_none(), "{native:?}");
    let kvm = cell(&found, 0, 2);
    let overhead = kvm.overhead.unwrap();
    assert!(
        (overhead.estimate - 1.0).abs() < 0.01 && overhead.low > 0.9 && overhead.high < 1.1,
        "{overhead:?}"
    );
    assert_eq!(kvm.agreement, Some(Grade::Holds));
    assert!(kvm.flags.contains(&"UNPAIRED".to_string()), "{:?}", kvm.flags);
    let experiment = &found.report.experiments[0];
    assert!(experiment.instead.is_empty() && experiment.command.is_empty() && experiment.not_run.is_none());
    assert_eq!(experiment.views[0].rows[0].stands_in, None, "it is the study's own program");
    assert!(matches!(grades(&found)[0], ClaimGrade::Checked(Grade::Holds)));
    assert!(
        matches!(grades(&found)[1], ClaimGrade::Checked(Grade::Undecided { .. })),
        "the spread is too wide"
    );
    assert!(
        matches!(grades(&found)[2], ClaimGrade::NotRun { not_run } if not_run.contains("names no raw log"))
    );
    let remarks = experiment.remarks.join("\n");
    assert!(
        remarks.contains("triad of docker: a cost of") && !remarks.contains("triad of kvm: a cost"),
        "{remarks}"
    );
    assert!(remarks.contains("native: stream in results or flat: native.log"), "{remarks}");
    assert!(found.report.warnings[0].starts_with("UNPAIRED"));
}

#[test]
fn a_missing_file_takes_its_arm_only() {
    let mut logs = good();
    logs.remove(1);
    let found = reanalysed(STUDY, &logs);
    let docker = &found.report.experiments[0].arms[1];
    assert!(docker.not_run.as_ref().unwrap().ends_with("results/docker.log is missing"), "{docker:?}");
    assert!(cell(&found, 0, 1).measured.is_none() && cell(&found, 0, 2).overhead.is_some());
    assert!(matches!(grades(&found)[0], ClaimGrade::Checked(Grade::Holds)));
    assert!(matches!(grades(&found)[1], ClaimGrade::NotRun { .. }));
    let none = reanalysed(STUDY, &[]);
    assert!(none.report.experiments[0].not_run.as_ref().unwrap().ends_with("results/native.log is missing"));
}

#[test]
fn a_damaged_log_is_pointed_at_and_nothing_else_is_lost() {
    let mut logs = good();
    logs[1].1 = logs[1].1.replacen("Solution Validates", "", 2);
    let found = reanalysed(STUDY, &logs);
    assert_eq!(found.damaged.len(), 1);
    let message = found.damaged[0].to_string();
    assert!(message.contains("flat/docker.log, line 1: the run that begins here was cut off"), "{message}");
    assert!(found.report.warnings[1].contains("docker.log, line 1"));
    assert!(cell(&found, 0, 1).measured.is_none() && cell(&found, 0, 2).overhead.is_some());
}

/// A file from elsewhere is not shown, whether a log or the study leads to it.
#[test]
fn a_log_outside_the_directory_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, elsewhere) = (directory.path().join("logs"), directory.path().join("elsewhere"));
    for place in [&logs.join("flat"), &elsewhere] {
        std::fs::create_dir_all(place).unwrap();
    }
    for (name, text) in good() {
        std::fs::write(logs.join("flat").join(name), &text).unwrap();
        std::fs::write(elsewhere.join(name), text.replace("Solution", "secret")).unwrap();
    }
    let docker = logs.join("flat/docker.log");
    std::fs::remove_file(&docker).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("docker.log"), &docker).unwrap();
    let study = crate::read_study(Path::new("mine.toml"), STUDY).unwrap();
    let found = reanalyse(&study, &["table"], &logs);
    let [error] = &found.damaged[..] else { panic!("{:?}", found.damaged) };
    let source = std::error::Error::source(error).unwrap().to_string();
    assert!(source.contains("not a regular file in this directory"), "{error}: {source}");
    assert!(error.line.is_none(), "nothing of it is shown");

    let absolute = format!("[\"{}\"]", elsewhere.display());
    let study = STUDY.replace("[\"results\", \"flat\"]", &absolute);
    assert!(crate::read_study(Path::new("mine.toml"), &study).is_err(), "{absolute}");
}

#[test]
fn one_run_concludes_nothing() {
    let logs = [("native.log", log(&[10.0])), ("docker.log", log(&[10.0])), ("kvm.log", log(&[5.0]))];
    let found = reanalysed(STUDY, &logs);
    assert!(cell(&found, 0, 2).measured.is_some() && cell(&found, 0, 2).overhead.is_none());
    assert!(matches!(grades(&found)[0], ClaimGrade::Checked(Grade::Undecided { blocks: None })));
    let remarks = found.report.experiments[0].remarks.join("\n");
    assert!(remarks.contains("one run of each platform: triad;"), "{remarks}");
    assert!(remarks.contains("docker: runs of triad in the logs: 1; the study has 4"), "{remarks}");
}

/// One table of all arms, each under its own name.
#[test]
fn arms_are_distinguished_by_section() {
    let one = STUDY
        .replace("parser = \"stream\"\nvalue = \"triad\"", "parser = \"csv\"\nvalue = \"bytes_per_second\"")
        .replace(
            "files = { native = [\"native.log\"], docker = [\"docker.log\"], kvm = [\"kvm.log\"] }",
            "files = { native = [\"all.csv\"], docker = [\"all.csv\"], kvm = [\"all.csv\"] }\n\
             section = \"bare,1\"\nsections = { docker = \"runc,1\", kvm = \"kvm,1\" }",
        );
    let rows = [("bare", [10.0, 10.1]), ("runc", [9.9, 10.2]), ("kvm", [5.0, 5.1]), ("kvm,2", [1.0, 2.0])];
    let line = |(name, values): &(&str, [f64; 2])| {
        let name = if name.contains(',') { (*name).to_string() } else { format!("{name},1") };
        values.map(|value| format!("{name},{}\n", value * 1e9)).concat()
    };
    let found = reanalysed(&one, &[("all.csv", rows.iter().map(line).collect())]);
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    for (arm, mean) in [(0, 10.05), (1, 10.05), (2, 5.05)] {
        let measured = cell(&found, 0, arm).measured.as_ref().unwrap();
        assert!((measured.value - mean).abs() < 1e-9 && measured.n == 2, "{measured:?}");
    }
    let remarks = found.report.experiments[0].remarks.join("\n");
    assert!(remarks.contains("docker: csv in results or flat: all.csv, of runc,1"), "{remarks}");
    let gone = one.replace("kvm,1\"", "kvm,3\"");
    let found = reanalysed(&gone, &[("all.csv", rows.iter().map(line).collect())]);
    assert!(found.damaged[0].to_string().contains("is called `kvm,3`"), "{:?}", found.damaged);
}

#[test]
fn runs_are_picked_and_units_compared() {
    let second = STUDY
        .replace("n = 4\n\"#", "")
        .replace("folders = [\"results\"", "runs = [3, 4]\nfolders = [\"results\"");
    let found = reanalysed(&second, &good());
    let native = cell(&found, 0, 0).measured.as_ref().unwrap();
    assert!((native.value - 9.95).abs() < 1e-9 && native.n == 2, "{native:?}");
    let too_many = second.replace("[3, 4]", "[3, 5]");
    assert!(reanalysed(&too_many, &good()).damaged[0].to_string().contains("it has 4 runs, and runs 3 to 5"));
    let wrong = STUDY.replacen("unit = \"GB/s\"", "unit = \"s\"", 1);
    assert!(
        reanalysed(&wrong, &good()).damaged[0]
            .to_string()
            .contains("`triad` is in B/s, and `triad` of the study in s")
    );
}

/// Measured values of a quantity of a built-in study, by arm, from logs in its authors' formats.
fn of_built_in(study: &str, experiment: &str, logs: &[(&str, String)]) -> BTreeMap<String, (f64, u64)> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in logs {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let library = crate::library().unwrap();
    let found = reanalyse(library.get(study).unwrap(), &[experiment], directory.path());
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    let drawn = &found.report.experiments[0];
    let cells = drawn.views[0].rows[0].cells.iter().zip(&drawn.arms);
    let measured = cells.filter_map(|(cell, arm)| Some((arm.id.clone(), cell.measured.as_ref()?)));
    measured.map(|(arm, value)| (arm, (value.value, value.n as u64))).collect()
}

#[test]
fn tables_of_gvisors_studies_are_read() {
    let file = "Results/openclose_throughput/openclose_tmpfs_results.csv";
    let rows = [("vol_tmpfs_kvm", 5e-4), ("bare", 9.0), ("tmpfs_bare", 2e-6), ("tmpfs_runc", 25e-7)];
    let kvm = "tmpfs_runsc_kvm,0,2.7e-05\ntmpfs_runsc_kvm,0,2.9e-05\n".to_string();
    let text = rows.map(|(name, value)| format!("{name},0,{value:e}\n")).concat() + &kvm;
    let found = of_built_in("young-2019", "open-close", &[(file, text)]);
    let near = |arm: &str, expected: f64, n: u64| {
        let (value, runs) = found[arm];
        assert!((value / expected - 1.0).abs() < 1e-9 && runs == n, "{arm}: {value} of {runs}");
    };
    near("gvisor-external", 500.0, 1);
    near("native", 2.0, 1);
    near("runc", 2.5, 1);
    near("gvisor", 28.0, 2);
    assert!(!found.contains_key("systrap"), "{found:?}");
    let text = "runtime,metric,result\nrunc,syscall_time_ns,100.0\nrunsc,syscall_time_ns,2000.0\n";
    let text = format!("{text}runsc-kvm,syscall_time_ns,50.0\n");
    let found = of_built_in("gvisor-guide-2019", "syscall", &[("website/performance/syscall.csv", text)]);
    let values: Vec<f64> = ["runc", "ptrace", "kvm"].map(|arm| found[arm].0.round()).to_vec();
    assert_eq!(values, [100.0, 2000.0, 50.0]);
}

#[test]
fn boot_times_and_disks_of_firecrackers_study_are_read() {
    let raw = |name: &str| format!("data/m5d.metal/raw/{name}");
    let boots = [("fc-api", "161000 106\n163000 110\n"), ("chv", "102000\n"), ("qemu", "243000\n")];
    let files = boots.map(|(name, text)| (raw(&format!("boot-serial-{name}.dat")), text.to_string()));
    let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (&**name, text.clone())).collect();
    let found = of_built_in("agache-2020", "boot-serial", &files);
    assert_eq!(found["fc"].1, 2);
    assert!((found["fc"].0 - 162.0).abs() < 1e-9 && (found["chv"].0 - 102.0).abs() < 1e-9, "{found:?}");
    assert!(!found.contains_key("microvm"), "{found:?}");

    // Version 3.1 has no `bw_bytes`.
    let job = r#"{
        "fio version": "fio-3.1", "jobs": [{"jobname": "rand-read-4k", "groupid": 0, "error": 0,
        "read": {"io_bytes": 40960, "bw": 4, "iops": 250.5, "runtime": 1000, "total_ios": 10, "short_ios": 0,
        "clat_ns": {"mean": 1000.0}, "lat_ns": {"mean": 1000.0}},
        "write": {"io_bytes": 0, "bw": 0, "iops": 0, "runtime": 0, "total_ios": 0, "short_ios": 0,
        "clat_ns": {"mean": 0.0}, "lat_ns": {"mean": 0.0}}}]}"#;
    let name = raw("fio-fc-rand-read-4k.json");
    let found = of_built_in("agache-2020", "disk", &[(&name, job.to_string())]);
    assert!((found["fc"].0 - 250.5).abs() < 1e-9 && found.len() == 1, "{found:?}");
}

/// Times of a client of RunD's study, which starts a container in each round and waits for it.
fn client(rounds: &[(u64, u64)]) -> String {
    rounds.iter().map(|(start, end)| format!("a0 {start} {end} {}\n", end - start)).collect()
}

/// The logs of two rounds of clients of a runtime. The first begins and the fifth is ready last; in
/// the second round the second client begins.
fn rounds(runtime: &str, clients: usize) -> Vec<(String, String)> {
    let name = |number: usize| format!("paper_data/time_{runtime}/con_{clients:03}/client{number:03}.txt");
    let times = |number: usize| match number {
        1 => client(&[(1000, 1080), (5010, 5090)]),
        2 => client(&[(1005, 1090), (5000, 5100)]),
        5 => client(&[(1010, 1120), (5020, 5140)]),
        _ => client(&[(1005, 1085), (5010, 5095)]),
    };
    (1..=clients).map(|number| (name(number), times(number))).collect()
}

/// Reanalyses the starts of RunD's study with these logs, and returns the cells of starts at once
/// by number and runtime.
fn starts_at_once(logs: &[(String, String)]) -> (ReanalysisResult, BTreeMap<(String, String), StudyCell>) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in logs {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let library = crate::library().unwrap();
    let found = reanalyse(library.get("li-2022").unwrap(), &["start"], directory.path());
    let drawn = &found.report.experiments[0];
    let rows = drawn.views.iter().flat_map(|view| &view.rows).filter(|row| row.quantity == "all");
    let mut cells = BTreeMap::new();
    for row in rows {
        for (arm, cell) in drawn.arms.iter().zip(&row.cells) {
            cells.insert((row.point.clone().unwrap_or_default(), arm.id.clone()), cell.clone());
        }
    }
    (found, cells)
}

#[test]
fn a_round_of_clients_lasts_until_the_last_is_ready() {
    let (runtime, ten) = ("rund_12291801", ("guests=10".to_string(), "rund".to_string()));
    let logs = rounds(runtime, 10);
    let (found, cells) = starts_at_once(&logs);
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    let measured = cells[&ten].measured.as_ref().unwrap();
    // 120 ms and 140 ms.
    assert!((measured.value - 130.0).abs() < 1e-3 && measured.n == 2, "{measured:?}");
    let (_, cells) = starts_at_once(&logs[..9]);
    assert!(cells[&ten].measured.is_none(), "a round without one of its clients is none");
    let mut short = logs;
    short[3].1 = client(&[(1005, 1085)]);
    let (found, cells) = starts_at_once(&short);
    let message = found.damaged[0].to_string();
    assert!(message.contains("client004.txt: it has 1 run, and the first client has 2"), "{message}");
    assert!(cells[&ten].measured.is_none());
}

#[test]
fn a_point_without_its_logs_says_so_beside_others() {
    let kata = "kata_12252108";
    let logs = [rounds(kata, 10), rounds(kata, 20), rounds("rund_12291801", 10)].concat();
    let (found, cells) = starts_at_once(&logs);
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    let cell = |guests: &str, arm: &str| &cells[&(format!("guests={guests}"), arm.to_string())];
    for (guests, arm) in [("10", "kata"), ("20", "kata"), ("10", "rund")] {
        assert!(cell(guests, arm).measured.is_some(), "{guests} {arm}");
    }
    let missing = cell("20", "rund").missing.as_ref().unwrap();
    assert!(missing.ends_with("con_020/client001.txt is missing"), "{missing}");
}

#[test]
fn ranges_of_files_and_points_are_checked() {
    assert_eq!(numbered("a{09..11}.txt").unwrap(), ["a09.txt", "a10.txt", "a11.txt"]);
    assert_eq!(numbered("a.txt").unwrap(), ["a.txt"]);
    for (from, to, expected) in [
        ("\"native.log\"", "\"native{3..2}.log\"", "no valid range between its braces"),
        ("\"native.log\"", "\"native{3..}.log\"", "no valid range between its braces"),
        ("\"native.log\"", "\"native{0..4000000000}.log\"", "no valid range between its braces"),
        ("folders = ", "at = { clients = 1 }\nfolders = ", "is not swept"),
    ] {
        let error = crate::read_study(Path::new("mine.toml"), &STUDY.replacen(from, to, 1)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// A log of sysbench with a rate for each number of clients.
fn sysbench(rates: &[(u32, f64)]) -> String {
    let run = |(clients, rate): &(u32, f64)| {
        format!(
            "sysbench 0.4.12:  multi-threaded system evaluation benchmark\n\nNumber of threads: {clients}\n\n    \
             transactions:                        600  ({rate} per sec.)\n         avg:                     10.50ms\n\n"
        )
    };
    rates.iter().map(run).collect()
}

#[test]
fn a_peak_is_the_best_point_of_the_logs() {
    let library = crate::library().unwrap();
    let study = library.get("felter-2014").unwrap();
    let table = study.experiments.iter().find(|one| one.name == "table-3").unwrap();
    let named = table.reanalyse.iter().find(|one| one.quantity == "peak").unwrap();
    let mut logs = Vec::new();
    for (arm, files) in &named.files {
        let share = if arm == "kvm" { 0.5 } else { 1.0 };
        for (file, run) in files.iter().zip(0u32..) {
            let rates =
                [(10, 100), (30, 200), (50, 150)].map(|(at, rate)| (at, f64::from(rate + run) * share));
            logs.push((format!("{}/{file}", named.folders[0]), sysbench(&rates)));
        }
    }
    let logs: Vec<(&str, String)> = logs.iter().map(|(name, text)| (&**name, text.clone())).collect();
    let found = of_built_in("felter-2014", "table-3", &logs);
    for (arm, peak) in [("native", 204.5), ("docker-nat-volume", 204.5), ("kvm", 102.25)] {
        let (value, runs) = found[arm];
        assert!((value - peak).abs() < 1e-9 && runs == 10, "{arm}: {value} of {runs}");
    }
}

#[test]
fn a_peak_needs_the_points_of_its_logs() {
    let peak = STUDY.replacen("metric = \"triad\"", "metric = \"triad\"\nbest_over = \"clients\"", 1);
    let found = reanalysed(&peak, &good());
    let message = found.damaged[0].to_string();
    assert!(message.contains("native.log, line 1: the run that begins here does not say"), "{message}");

    let copies = "[[experiment.reanalyse]]\nquantity = \"copy\"\nparser = \"stream\"\nvalue = \"copy\"\nfolders = [\"flat\"]\n\
                  files = { docker = [\"docker.copy\"] }\n";
    let of_sysbench = peak
        .replace(
            "parser = \"stream\"\nvalue = \"triad\"",
            "parser = \"sysbench\"\nvalue = \"transaction_rate\"",
        )
        .replacen("unit = \"GB/s\"", "unit = \"op/s\"", 1);
    let whole = sysbench(&[(1, 10.0), (2, 20.0)]);
    let logs = [
        ("native.log", whole.clone()),
        ("docker.log", whole.replacen("(20 per sec.)", "", 1)),
        ("kvm.log", sysbench(&[(1, 6.0), (2, 4.0)])),
        ("docker.copy", log(&[10.0])),
    ];
    let found = reanalysed(&format!("{of_sysbench}{copies}"), &logs);
    let measured = |arm: usize| cell(&found, 0, arm).measured.as_ref().map(|number| number.value);
    assert_eq!((measured(0), measured(1), measured(2)), (Some(20.0), None, Some(6.0)));
    let missing = cell(&found, 0, 1).missing.as_ref().unwrap();
    assert!(missing.contains("docker.log, line 8") && missing.contains("cut off"), "{missing}");
}

/// Only users who have the logs would notice a parser or a field that does not exist.
#[test]
fn the_built_in_studies_name_parsers_and_fields_of_their_units() {
    let mut seen = 0;
    for study in crate::library().unwrap().studies() {
        for experiment in &study.experiments {
            for named in &experiment.reanalyse {
                let unit = &experiment.quantity(&named.quantity).unwrap().unit;
                assert!(is_in(&named.parser, &named.value, unit), "{}: {named:?} in {unit}", experiment.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}
