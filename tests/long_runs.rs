//! The benchmarks make a long run out of a short one; it is read as a run of that length.

use crate::long_run;
use crate::support::{Stage, shown};

#[test]
fn a_run_that_was_made_longer_is_a_run() {
    let stage = Stage::with_fakes();
    let run = "weigh-runs/20260101T000000Z-long";
    stage.write("long.toml", long_run::MANIFEST);
    stage.weigh().args(long_run::arguments("long.toml", run)).assert().success();
    long_run::lengthen(&stage.here().join(run), 12, 1).unwrap();
    let report = shown(&stage, "last");
    // Nothing is left to measure, and the analysis is cached.
    stage.stdout("resume last");
    assert!(stage.here().join(run).join("collected.json").is_file());
    assert_eq!(shown(&stage, "last"), report);
    assert_eq!(report["blocks"]["done"], 12);
    assert_eq!(report["blocks"]["planned"], 12);
    let cells = report["cells"].as_array().unwrap();
    // Cells without a warm-up. CPU time per operation may be beside them, if the host can measure
    // it.
    let times: Vec<_> = cells.iter().filter(|cell| cell["metric"] == "time_cold").collect();
    assert_eq!(times.len(), long_run::TRIALS);
    let short = times.iter().find(|cell| cell["n"] != 12);
    assert!(short.is_none(), "every cell has a value of every block: {short:?}");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0);
    stage.host_is_as_before();
}
