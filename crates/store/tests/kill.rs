//! A writer that is killed in the middle of its appends loses nothing that it was promised.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weigh_model::{Effort, HostFacts, Plan, Record, VoidCause, VoidUnit};
use weigh_store::RunDirectory;

/// The environment variable that names the run directory to the child.
const CHILD: &str = "WEIGH_STORE_TEST_APPENDS_TO";
/// How long a child lives if nobody kills it.
const CHILD_LIVES: Duration = Duration::from_secs(30);

fn record(number: u32) -> Record {
    // Long lines cross page boundaries.
    let workload = "w".repeat(number as usize % 3000);
    Record::Void(VoidUnit::of(number, 0, workload, VoidCause::Steal))
}

#[test]
fn nothing_acknowledged_is_lost_when_the_writer_is_killed() {
    if let Some(path) = std::env::var_os(CHILD) {
        return append_until_killed(Path::new(&path));
    }
    let parent = tempfile::tempdir().unwrap();
    let plan = Plan::of("kill", Vec::new(), Vec::new(), Effort::Quick { blocks: 6 });
    let host = HostFacts::default();
    let run = RunDirectory::create(parent.path(), &plan, &host, "2026-11-21T05:00:00Z").unwrap();
    let path = run.path().to_path_buf();
    drop(run);
    let mut on_disk = 0;
    for round in 0..4u32 {
        let (mut child, mut lines) = start(&path);
        let mut acknowledged = None;
        for line in lines.by_ref() {
            acknowledged = Some(line);
            if line >= on_disk + 150 + 37 * round {
                break;
            }
        }
        child.kill().unwrap();
        // Records that the child acknowledged before it died count too.
        let acknowledged = lines.last().or(acknowledged).expect("the child appended");
        child.wait().unwrap();

        let records = RunDirectory::open(&path).unwrap().records().unwrap().records;
        let expected: Vec<Record> = (0..records.len() as u32).map(record).collect();
        assert_eq!(records, expected, "every line is whole and in order");
        let found = records.len() as u32;
        assert!(
            found == acknowledged + 1 || found == acknowledged + 2,
            "{found} records on disk, {} acknowledged",
            acknowledged + 1
        );
        on_disk = found;
    }
    // The lock of the last child ended with it.
    RunDirectory::open_for_append(&path).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test starts itself again as the writer to be killed")]
fn start(path: &PathBuf) -> (Child, impl Iterator<Item = u32>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["nothing_acknowledged_is_lost_when_the_writer_is_killed", "--exact", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let numbers = output
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("appended ").and_then(|number| number.parse().ok()));
    (child, numbers)
}

fn append_until_killed(path: &Path) {
    let mut run = RunDirectory::open_for_append(path).unwrap();
    let first = run.records().unwrap().records.len() as u32;
    let mut output = std::io::stdout();
    writeln!(output).unwrap();
    let start = Instant::now();
    for number in first.. {
        run.append(&record(number)).unwrap();
        writeln!(output, "appended {number}").unwrap();
        output.flush().unwrap();
        if start.elapsed() > CHILD_LIVES {
            break;
        }
    }
}
