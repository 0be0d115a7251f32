//! Runs of one plan on several machines. They are copies of one run of fakes, with other hosts and
//! values.

use crate::support::{Stage, cell_of, listed, unbroken};
use serde_json::Value;

const BASELINE: &str = "null:sd=0.01,seed=1";
const OTHER: &str = "null:effect=0.05,label=x,sd=0.01,seed=2";

/// A stage with a run of 30 blocks in `model`.
fn stage() -> Stage {
    let stage = Stage::with_fakes();
    stage.stdout(&format!(
        "run --on {BASELINE};{OTHER} --baseline {BASELINE} --blocks 30 --out model -- true"
    ));
    stage
}

/// Edits a JSON file.
fn edit(stage: &Stage, file: &str, change: impl Fn(&mut Value)) {
    let mut value = stage.read_json(file);
    change(&mut value);
    stage.write(file, serde_json::to_vec(&value).unwrap());
}

/// A copy of the run as if another machine had made it, on which the other environment takes
/// `times` times as long.
fn copy(stage: &Stage, run: &str, machine: &str, times: f64) {
    std::fs::create_dir_all(stage.here().join(run)).unwrap();
    for file in ["plan.json", "host.json", "samples.jsonl", "events.jsonl"] {
        stage.write(&format!("{run}/{file}"), stage.read(&format!("model/{file}")));
    }
    edit(stage, &format!("{run}/host.json"), |host| {
        host["identity"] = machine.into();
        host["boot"] = format!("boot of {machine}").into();
    });
    edit(stage, &format!("{run}/plan.json"), |plan| plan["seed"] = run.len().into());
    stage.edit_records(run, |record| {
        let own = record["environment"] == OTHER;
        for iteration in record["outcome"]["iterations"].as_array_mut().into_iter().flatten().filter(|_| own)
        {
            let time = iteration["values"]["time"].as_f64().unwrap();
            iteration["values"]["time"] = (time * times).into();
        }
    });
}

/// Four machines, on which the other environment costs about 5, 6, 7 and 8 % more.
fn four() -> Stage {
    let stage = stage();
    for (at, run) in ["a", "b", "c", "d"].into_iter().enumerate() {
        copy(&stage, run, &format!("machine-{run}"), 1.0 + 0.01 * at as f64);
    }
    stage
}

#[test]
fn machines_are_pooled_to_one_answer() {
    let stage = four();
    let report = stage.json("pool a b c d --format json");
    assert_eq!((&report["baseline"], &report["comparisons"]), (&BASELINE.into(), &1.into()));
    let names: Vec<&Value> = listed(&report, "machines").iter().map(|machine| &machine["name"]).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let cell = cell_of(&report, OTHER, "time");
    let number = |pointer: &str| cell.pointer(pointer).and_then(Value::as_f64).unwrap();
    assert_eq!((&cell["machines"], &cell["n"], &cell["verdict"]), (&4.into(), &30.into(), &"SLOWER".into()));
    assert!((number("/overhead/mean") - 0.065).abs() < 0.01, "{cell}");
    assert!(number("/overhead/ci_low") > number("/prediction/low"), "{cell}");
    assert!((number("/tau/estimate") - 0.0123).abs() < 0.003, "{cell}");
    assert_eq!(listed(cell, "effects").len(), 4);
    let brief = unbroken(&stage.stdout("pool a b c d"));
    for part in ["4 runs on 4 machines", "another machine", "SLOWER", "--details"] {
        assert!(brief.contains(part), "{part}: {brief}");
    }
    let details = unbroken(&stage.stdout("pool a b c d --details"));
    for part in ["Machine by machine", "on average", "I^2", "How to read this", "machine-"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    for (format, word) in [
        ("csv", "prediction_low"),
        ("md", "| on average"),
        ("latex", "\\toprule"),
        ("html", "data-kind=\"forest\""),
        ("junit", "<testcase"),
    ] {
        let text = stage.stdout(&format!("pool a b c d --format {format}"));
        assert!(text.contains(word), "{format}: {text}");
    }
    stage.stdout("pool a/ b/ c/ d/ --format html --output page.html");
    assert!(stage.read("page.html").contains("</html>"));
}

#[test]
fn a_gate_judges_the_average() {
    let stage = four();
    stage.run("pool a b c d --gate 50").ends_with(0);
    stage.run("pool a b c d --gate 1").ends_saying(3, &["the overhead lies above 1 %"]);
    stage.run("pool a --gate 50").ends_saying(4, &["one machine says nothing of others"]);
    let junit = stage.stdout("pool a b c d --gate 50 --format junit");
    assert!(junit.contains("failures=\"0\"") && junit.contains("errors=\"0\""), "{junit}");
}

#[test]
fn few_machines_are_reported_as_few() {
    let stage = four();
    let one = unbroken(&stage.stdout("pool a"));
    assert!(one.contains("ONE MACHINE") && one.contains("nothing is known of others"), "{one}");
    let two = unbroken(&stage.stdout("pool a b"));
    assert!(
        two.contains("TWO MACHINES") && two.contains("two hardly show how much machines differ"),
        "{two}"
    );
    let report = stage.json("pool a b --format json");
    assert!(cell_of(&report, OTHER, "time")["prediction"].is_null());
}

#[test]
fn runs_of_one_machine_are_one_observation() {
    let stage = four();
    copy(&stage, "again", "machine-a", 1.002);
    let report = stage.json("pool a again b c --format json");
    assert_eq!(listed(&report, "machines").len(), 3);
    let effects = listed(cell_of(&report, OTHER, "time"), "effects");
    assert_eq!((&effects[0]["machine"], &effects[0]["runs"]), (&"a".into(), &2.into()));
    let said = unbroken(&stage.stdout("pool a again b c"));
    assert!(said.contains("one observation: a (2 runs)"), "{said}");
    stage.refuses("pool a b ./a", &["is named twice"]);
    copy(&stage, "copy", "machine-a", 1.0);
    stage.refuses("pool a copy b", &["the run copy is a copy of a"]);
    edit(&stage, "again/host.json", |host| host["identity"] = "".into());
    stage.refuses("pool a again", &["does not say which machine made it"]);
}

/// Machines that were made from one image can have one machine id, and containers on one machine
/// can have several.
#[test]
fn machines_are_told_apart_by_more_than_their_ids() {
    let stage = four();
    let pooled = |runs: &str| {
        let report = stage.json(&format!("pool {runs} --format json"));
        (listed(&report, "machines").len(), report["warnings"].to_string())
    };
    let host = |run: &str, key: &str, value: Value| {
        edit(&stage, &format!("{run}/host.json"), |host| host[key] = value.clone());
    };
    let (machines, warnings) = pooled("a b c d");
    assert!(machines == 4 && !warnings.contains("machine id"), "{warnings}");
    // One machine, which was started again between its runs.
    copy(&stage, "again", "machine-a", 1.002);
    host("again", "boot", "a later one".into());
    let session = |run: &str, from: u32, to: u32| {
        let event =
            |hour: u32| format!("{{\"at\":\"2026-11-21T{hour}:00:00Z\",\"event\":\"pilot-started\"}}\n");
        stage.write(&format!("{run}/events.jsonl"), event(from) + &event(to));
    };
    session("a", 12, 14);
    session("again", 15, 16);
    let (machines, warnings) = pooled("a again b");
    assert!(machines == 2 && warnings.contains("a, again have one machine id"), "{warnings}");
    assert!(warnings.contains("in several boots: they count as one machine"), "{warnings}");
    // No machine is in two boots at a time, or in one that has other hardware.
    let are_several = || {
        let (machines, warnings) = pooled("a again b");
        assert!(machines == 3 && warnings.contains("a, again have one machine id and cannot"), "{warnings}");
    };
    session("again", 13, 15);
    are_several();
    session("again", 15, 16);
    for (key, value) in [("cpu_model", Value::from("another")), ("memory_bytes", Value::from(1u64 << 20))] {
        let before = stage.read_json("again/host.json")[key].clone();
        host("again", key, value);
        are_several();
        host("again", key, before);
    }
    assert_eq!(pooled("a again b").0, 2);
    // A kernel runs on one machine, whatever the files in a container say.
    host("b", "boot", "boot of machine-c".into());
    let (machines, warnings) = pooled("a b c");
    assert!(machines == 2 && warnings.contains("b, c have several machine ids"), "{warnings}");
}

/// Runs whose paths end the same are named by their whole paths.
#[test]
fn machines_are_named_by_their_runs() {
    let stage = stage();
    for machine in ["x", "y"] {
        copy(&stage, &format!("{machine}/run"), machine, 1.0);
    }
    let report = stage.json("pool x/run/ y/run --format json");
    let names: Vec<&Value> = listed(&report, "machines").iter().map(|machine| &machine["name"]).collect();
    assert_eq!(names, ["x/run", "y/run"]);
}

#[test]
fn runs_of_other_plans_are_refused_with_the_differences() {
    let stage = four();
    edit(&stage, "b/plan.json", |plan| {
        plan["workloads"][0]["iterations"] = 7.into();
        plan["tool_version"] = "0.0.1".into();
        plan["digests"]["kernels"] = "00".into();
    });
    let said = [
        "workloads:true:iterations: 3 (a), 7 (b)",
        "tool_version: ",
        "0.0.1 (b)",
        "digests:kernels: ",
        "--plan FILE",
    ];
    stage.refuses("pool a b", &said);
    stage.refuses("pool a b --allow-unequal digests,tool_version", &["workloads:true:iterations"]);
    stage
        .refuses("pool a b --allow-unequal digest", &["not compared by `digest`", "did you mean `digests`?"]);
    let allowed = unbroken(&stage.stdout("pool a b --allow-unequal digests,tool_version,workloads"));
    assert!(allowed.contains("UNEQUAL BY REQUEST") && allowed.contains("0.0.1 (b)"), "{allowed}");
}

#[test]
fn guests_that_are_not_alike_are_refused() {
    let stage = four();
    // On one machine the guests of the other environment have another library.
    stage.edit_records("c", |record| {
        if record["record"] == "facts" && record["environment"] == OTHER {
            record["facts"]["libc"] = "another".into();
            record["facts"]["user"] = "nobody".into();
        }
    });
    let key = format!("facts:{OTHER}:user: as the baseline's (a), unlike the baseline's (c)");
    stage.refuses("pool a b c d", &["libc", "another (c)", &key]);
    let said = unbroken(&stage.stdout("pool a b c d --allow-unequal facts"));
    assert!(said.contains("UNEQUAL BY REQUEST"), "{said}");
}

/// Kernels and other facts of hosts may differ: machines are expected to differ in them.
#[test]
fn hosts_may_differ() {
    let stage = four();
    stage.edit_records("c", |record| {
        if record["record"] == "facts" {
            record["facts"]["kernel"] = "9.9".into();
        }
    });
    edit(&stage, "c/host.json", |host| host["kernel"] = "9.9".into());
    stage.stdout("pool a b c d");
}

#[test]
fn architectures_are_pooled_apart() {
    let stage = four();
    for run in ["c", "d"] {
        edit(&stage, &format!("{run}/host.json"), |host| host["architecture"] = "elsewhere".into());
        edit(&stage, &format!("{run}/plan.json"), |plan| plan["digests"]["kernels"] = "00".into());
    }
    stage.refuses("pool a b c d", &["architecture: ", "elsewhere (c and 1 more)", "digests:kernels"]);
    let report = stage.json("pool a b c d --by architecture --format json");
    let difference = &listed(&report, "differences")[0];
    assert_eq!(difference["other"], "elsewhere");
    assert!((difference["difference"]["mean"].as_f64().unwrap() - 0.02).abs() < 0.01, "{difference}");
    assert!(
        report["warnings"].to_string().contains("the groups also differ in architecture, digests"),
        "{report}"
    );
    // Within a kind the programs must be the same.
    edit(&stage, "d/plan.json", |plan| plan["digests"]["kernels"] = "11".into());
    stage.refuses("pool a b c d --by architecture", &["digests:kernels", "11 (d)"]);
}

#[test]
fn machines_are_grouped_by_label_or_host_fact() {
    let stage = four();
    let line = "pool a b c d --label a=small --label b=small --label c=large --label d=large";
    let said = unbroken(&stage.stdout(line));
    for part in ["2 groups by label", "Between groups", "against small", "large: true time"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (at, model) in ["one", "one", "two", "two"].into_iter().enumerate() {
        edit(&stage, &format!("{}/host.json", ["a", "b", "c", "d"][at]), |host| {
            host["cpu_model"] = model.into()
        });
    }
    let report = stage.json("pool a b c d --by cpu-model --format json");
    assert_eq!(cell_of(&report, OTHER, "time")["group"], "one");
    let models = unbroken(&stage.stdout("pool a b c d --details"));
    assert!(models.contains("2 CPU models"), "{models}");
    stage.refuses("pool a b --label a=small", &["the run b has no label"]);
    // weigh does not know what a provider calls a machine.
    stage.refuses("pool a b --by instance-type", &["the run a has no label", "--label a=NAME"]);
    stage.refuses("pool a b --label a", &["expected RUN=NAME"]);
    stage
        .refuses("pool a b --label 'a*=x' --label bb=y", &["no run here is named `bb`", "did you mean `b`?"]);
    stage.refuses("pool a b --by kernel --label a=x", &["leave out --label, or --by"]);
    copy(&stage, "again", "machine-a", 1.002);
    stage.refuses("pool a again --label a=x --label again=y", &["are of one machine and in two groups"]);
}

/// Somebody may have stopped the run because of what it showed.
#[test]
fn a_run_that_is_incomplete_is_left_out() {
    let stage = four();
    let whole = stage.read("b/samples.jsonl");
    let half: Vec<&str> = whole.lines().take(20).collect();
    stage.write("b/samples.jsonl", half.join("\n") + "\n");
    stage.write("b/events.jsonl", "");
    let report = stage.json("pool a b c d --format json");
    assert_eq!(listed(&report, "machines").len(), 3);
    assert!(report["warnings"].to_string().contains("b is left out"), "{report}");
    stage.refuses("pool b", &["no run here is complete", "weigh resume"]);
    // A last line that a crash cut short is reported.
    stage.write("c/samples.jsonl", stage.read("c/samples.jsonl") + "{\"record\":");
    let report = stage.json("pool a c d --format json");
    assert!(report["warnings"].to_string().contains("cut short by a crash"), "{report}");
}

/// From 30 blocks on a run to a precision may end, but only its rule ends it: somebody who ended it
/// at 43 of 60 blocks may have done so because of what it showed.
#[test]
fn a_run_to_a_precision_is_complete_by_its_rule_only() {
    let stage = Stage::with_fakes();
    let on = format!("--on {BASELINE};{OTHER} --baseline {BASELINE}");
    stage.stdout(&format!("run {on} --precision 0.05 --out model -- true"));
    copy(&stage, "a", "machine-a", 1.0);
    copy(&stage, "b", "machine-b", 1.0);
    assert_eq!(stage.json("pool a b --format json")["machines"].as_array().unwrap().len(), 2);
    let is_early = |line: &&str| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["block"].as_u64().is_none_or(|block| block < 43)
    };
    let early: String =
        stage.read("b/samples.jsonl").lines().filter(is_early).map(|line| format!("{line}\n")).collect();
    stage.write("b/samples.jsonl", early);
    stage.write("b/events.jsonl", "");
    let shown = unbroken(&stage.stdout("show b"));
    let done = shown
        .split_once(" of 60 planned blocks are done")
        .and_then(|(before, _)| before.rsplit_once("INCOMPLETE: ")?.1.parse::<u32>().ok())
        .unwrap_or_else(|| panic!("{shown}"));
    // Blocks that noise made void are not among them: their replacements came after block 43.
    assert!((30..=43).contains(&done), "{shown}");
    let report = stage.json("pool a b --format json");
    let left_out = format!("b is left out: it has {done} of 60 planned");
    assert!(report["warnings"].to_string().contains(&left_out), "{report}");
    stage.refuses("history b --version v0", &["the run b is incomplete"]);
    stage.refuses("compare a b", &["the run b is incomplete", "weigh resume b"]);
    stage.refuses("compare b a", &["the run b is incomplete"]);
}

#[test]
fn a_run_that_is_no_whole_directory_is_refused() {
    let stage = four();
    stage.refuses("pool a nowhere", &["there is no run directory nowhere"]);
    std::fs::create_dir(stage.here().join("empty")).unwrap();
    stage.refuses("pool a empty", &["empty is not a run directory"]);
    std::fs::remove_file(stage.here().join("b/samples.jsonl")).unwrap();
    stage.refuses("pool a b", &["b has no samples.jsonl"]);
    std::fs::remove_file(stage.here().join("c/host.json")).unwrap();
    stage.refuses("pool a c", &["c has no host.json"]);
    stage.write("d/host.json", "{");
    stage.refuses("pool a d", &["host.json, line 1 is damaged"]);
    stage.run("pool").ends_saying(2, &["RUN"]);
}

#[test]
fn a_run_that_goes_on_is_refused() {
    let stage = four();
    let lock = std::fs::File::create(stage.here().join("b/lock")).unwrap();
    lock.lock().unwrap();
    stage.refuses("pool a b", &["the run b is still going on"]);
    stage.refuses("compare a b", &["the run b is still going on"]);
    drop(lock);
    stage.stdout("pool a b");
}

/// No time of one machine is compared with a time of another.
#[test]
fn clocks_that_are_hours_apart_change_nothing() {
    let stage = four();
    let before = stage.stdout("pool a b c d --details");
    stage.edit_records("b", |record| {
        if record["record"] == "trial" {
            record["started"] = "1970-01-01T05:00:00Z".into();
        }
    });
    assert_eq!(stage.stdout("pool a b c d --details"), before);
}

#[test]
fn runs_without_an_effect_leave_nothing_to_pool() {
    let stage = Stage::with_fakes();
    let line = "run --on null;null:label=x,fault=exit --baseline null --blocks 6 --out r -- true";
    stage.stdout(line);
    stage.run("pool r").ends_saying(4, &["no run here has an effect to pool"]);
}

/// Three equal machines that each measured 30 of 90 blocks.
fn shared() -> Stage {
    let stage = four();
    for (number, run) in ["a", "b", "c"].into_iter().enumerate() {
        edit(&stage, &format!("{run}/plan.json"), |plan| {
            plan["share"] = serde_json::json!({ "number": number, "shares": 3, "blocks": 90 });
        });
    }
    stage
}

#[test]
fn shares_of_one_plan_are_joined() {
    let stage = shared();
    let report = stage.json("pool a b c --format json");
    let cell = cell_of(&report, OTHER, "time");
    assert_eq!(report["scope"], "these-machines");
    assert_eq!((&cell["n"], &cell["machines"], &cell["verdict"]), (&90.into(), &3.into(), &"SLOWER".into()));
    assert!(cell["prediction"].is_null(), "{cell}");
    assert!((cell["overhead"]["mean"].as_f64().unwrap() - 0.06).abs() < 0.01, "{cell}");
    let said = unbroken(&stage.stdout("pool a b c"));
    for part in ["THESE MACHINES", "blocks shared out", "the machines differ"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A verdict needs no second machine, and a missing share is reported.
    let said = unbroken(&stage.stdout("pool b"));
    assert!(said.contains("of 3 shares these are missing: 1, 3") && said.contains("SLOWER"), "{said}");
    stage.run("pool a b c --gate 1").ends_with(3);
}

#[test]
fn shares_that_do_not_fit_are_refused() {
    let stage = shared();
    stage.refuses("pool a b c d", &["shares: 3 (a), none (d)"]);
    stage.refuses("pool a b c --by kernel", &["machines of one kind", "leave out --by"]);
    edit(&stage, "c/host.json", |host| {
        host["kernel"] = "9.9".into();
        host["cpu_model"] = "another".into();
    });
    stage.refuses("pool a b c", &["machine:CPU model: ", "another (c)", "machine:kernel: ", "9.9 (c)"]);
    let said = unbroken(&stage.stdout("pool a b c --allow-unequal machine"));
    assert!(said.contains("UNEQUAL BY REQUEST") && said.contains("9.9 (c)"), "{said}");
    edit(&stage, "b/plan.json", |plan| plan["share"]["number"] = 0.into());
    stage.refuses("pool a b", &["a and b are the same share, 1 of 3"]);
    edit(&stage, "a/plan.json", |plan| plan["share"]["shares"] = u32::MAX.into());
    stage.refuses("pool a b", &["plan.json", "of 4294967295 shares of 90 blocks"]);
}

/// A fleet means the runs of its machines that are done.
#[test]
fn a_fleet_is_pooled_by_its_name() {
    let stage = four();
    let machine =
        |name: &str, state: Value| serde_json::json!({ "name": name, "via": "ssh:host=x", "state": state });
    let done = || serde_json::json!({ "kind": "done" });
    let fleet = |machines: Vec<Value>| {
        serde_json::json!({ "format": 2, "tool_version": "1", "id": "f", "machines": machines }).to_string()
    };
    stage.write("fleet-plan.json", stage.read("a/plan.json"));
    let failed = serde_json::json!({ "kind": "failed", "reason": "away" });
    stage.write(
        "fleet.json",
        fleet(vec![machine("a", done()), machine("b", done()), machine("c", failed.clone())]),
    );
    let report = stage.json("pool . --format json");
    let names: Vec<&Value> = listed(&report, "machines").iter().map(|machine| &machine["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(stage.json("pool . d --format json")["machines"].as_array().unwrap().len(), 3);
    // A name of a fleet that is no path of it.
    let newest = "weigh-runs/20991121T050000Z-fleet";
    std::fs::create_dir_all(stage.here().join(newest)).unwrap();
    for name in ["a", "b", "fleet-plan.json", "fleet.json"] {
        std::fs::rename(stage.here().join(name), stage.here().join(newest).join(name)).unwrap();
    }
    assert_eq!(listed(&stage.json("pool last --format json"), "machines").len(), 2);
    stage.write(&format!("{newest}/fleet.json"), fleet(vec![machine("a", failed)]));
    stage.refuses("pool last", &["no machine of the fleet", "weigh resume"]);
}

#[test]
fn a_price_gives_a_run_the_cost_of_operations() {
    let stage = four();
    let report = stage.json("show a --price 0.36/h --format json");
    let cost_of = |report: &Value, environment: &str| {
        listed(report, "costs").iter().find(|cost| cost["environment"] == environment).unwrap().clone()
    };
    assert_eq!(listed(&report, "costs").len(), 2, "one metric in two environments: {report}");
    // A second costs .0001.
    let median = cell_of(&report, BASELINE, "time")["median"].as_f64().unwrap();
    let per_million = cost_of(&report, BASELINE)["per_million"].as_f64().unwrap();
    assert!((per_million / (100.0 * median) - 1.0).abs() < 0.05, "{per_million} at {median} s");
    let dearer = stage.json(&format!("show a --price 0.36/h --price {OTHER}=0.72/h --format json"));
    let [same, twice] = [&report, &dearer]
        .map(|report| 1.0 + cost_of(report, OTHER)["against_baseline"]["mean"].as_f64().unwrap());
    assert!((twice / same - 2.0).abs() < 1e-9, "{same} {twice}");
    assert!(unbroken(&stage.stdout("show a --price 0.36/h")).contains("what it costs"));
    stage.refuses("show a --price 0.36", &["the price must end in /h", "0.34/h"]);
    stage.refuses("show a --price nowhere=1/h", &["no environment `nowhere`"]);
}

#[test]
fn kinds_of_machines_are_compared_by_cost_of_the_work() {
    let stage = four();
    let kinds = "pool a b c d --label a=small --label b=small --label c=large --label d=large";
    let line = format!("{kinds} --price small=0.5/h --price large=1/h");
    let said = unbroken(&stage.stdout(&line));
    for part in ["what it costs", "against small", "price/h"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let report = stage.json(&format!("{line} --format json"));
    let costs = listed(&report, "costs");
    assert_eq!(costs.len(), 4, "two kinds in two environments: {report}");
    let large =
        costs.iter().find(|cost| cost["group"] == "large" && cost["environment"] == BASELINE).unwrap();
    let mean = large["cost_against_first"]["mean"].as_f64().unwrap();
    assert!((mean - 1.0).abs() < 1e-9, "the same time at twice the price: {large}");
    let page = stage.stdout(&format!("{line} --format html"));
    assert!(page.contains("id=\"prices\""), "the costs have a place of their own");
    stage.write("prices.toml", "# the dearest is not here\nsmall = 0.5\nlarge = 1\nhuge = 9.5\n");
    let listed = stage.json(&format!("{kinds} --prices prices.toml --format json"));
    assert_eq!(listed["costs"], report["costs"], "a file says the same");
    stage.write("wrong.toml", "small = 0.5\nlarge = -1\n");
    stage.refuses(&format!("{kinds} --prices wrong.toml"), &["wrong.toml", "above 0", "large = -1"]);
    stage.refuses(&format!("{kinds} --prices nowhere.toml"), &["nowhere.toml"]);
    stage.refuses("pool a b --price small=1/h", &["kinds of machines", "--by cpu-model"]);
    stage.refuses(&format!("{kinds} --price smal=1/h"), &["`smal`", "did you mean `small`?"]);
    stage.refuses(&format!("{kinds} --price small=1/h"), &["kind `large` have no price"]);
    stage.refuses(&format!("{kinds} --price small=1"), &["the price must end in /h", "small=0.34/h"]);
}
