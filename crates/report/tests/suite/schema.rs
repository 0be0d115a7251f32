//! The JSON of every run, study, pool and history conforms to its published schema.
//!
//! The schemas use few keywords, and this checker knows exactly those: a validator crate would add
//! sixty more crates to every build of the tests. An unknown keyword is a failure, so nothing in a
//! schema goes unchecked.

use crate::common::{self, Shown, study};
use serde_json::{Value, json};
use weigh_model::{Better, ChosenIterations, MetricSpec, WorkloadKey};
use weigh_report::{
    Format, HistoryEffect, HistoryPoint, HistoryReport, HistorySeries, Options, Report, render_history,
    render_pooled,
};
use weigh_stats::{Interval, Limit, Notice, Shift};

struct Schema(Value);

impl Schema {
    fn of_runs() -> Self {
        Self(serde_json::from_str(include_str!("../../schema/show.schema.json")).expect("a schema"))
    }

    fn of_studies() -> Self {
        Self(serde_json::from_str(include_str!("../../schema/study.schema.json")).expect("a schema"))
    }

    fn of_pools() -> Self {
        Self(serde_json::from_str(include_str!("../../schema/pool.schema.json")).expect("a schema"))
    }

    fn of_histories() -> Self {
        Self(serde_json::from_str(include_str!("../../schema/history.schema.json")).expect("a schema"))
    }

    /// Asserts that replacing the value at each of these places is a fault.
    fn finds(&self, good: &Value, spoilt: impl IntoIterator<Item = (&'static str, Value)>) {
        for (pointer, value) in spoilt {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).expect("a place in the document") = value;
            assert!(!self.faults(&bad).is_empty(), "{pointer}");
        }
    }

    fn faults(&self, value: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(&self.0, value, "", &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let keywords = schema.as_object().expect("a schema is an object");
        for (keyword, wanted) in keywords {
            let holds = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    let name =
                        wanted.as_str().and_then(|text| text.strip_prefix("#/")).expect("a local reference");
                    let target =
                        self.0.pointer(&format!("/{name}")).expect("a reference that leads somewhere");
                    self.check(target, value, at, faults);
                    true
                }
                "type" => match wanted {
                    Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                    kind => is(value, kind),
                },
                "const" => value == wanted,
                "enum" => wanted.as_array().expect("a list").contains(value),
                "minimum" => value.as_f64().is_none_or(|x| x >= wanted.as_f64().expect("a number")),
                "maximum" => value.as_f64().is_none_or(|x| x <= wanted.as_f64().expect("a number")),
                "required" => value.as_object().is_none_or(|object| {
                    wanted.as_array().expect("a list").iter().all(|name| {
                        let there = object.contains_key(name.as_str().expect("a name"));
                        if !there {
                            faults.push(format!("{at}/{name} is missing"));
                        }
                        there
                    })
                }),
                "properties" => {
                    for (name, schema) in wanted.as_object().expect("an object") {
                        if let Some(inner) = value.get(name) {
                            self.check(schema, inner, &format!("{at}/{name}"), faults);
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    let known = keywords.get("properties").and_then(Value::as_object);
                    for (name, inner) in value.as_object().into_iter().flatten() {
                        if known.is_some_and(|known| known.contains_key(name)) {
                            continue;
                        }
                        match wanted {
                            Value::Bool(allowed) if *allowed => {}
                            Value::Bool(_) => faults.push(format!("{at}/{name} is not in the schema")),
                            schema => self.check(schema, inner, &format!("{at}/{name}"), faults),
                        }
                    }
                    true
                }
                "items" => {
                    for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, inner, &format!("{at}/{i}"), faults);
                    }
                    true
                }
                "anyOf" => wanted.as_array().expect("a list").iter().any(|schema| {
                    let mut inner = Vec::new();
                    self.check(schema, value, at, &mut inner);
                    inner.is_empty()
                }),
                other => panic!("the schema uses `{other}`, which this test does not check"),
            };
            if !holds {
                faults.push(format!("{at}: `{keyword}` does not hold for {value}"));
            }
        }
    }
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("the schema uses the type `{other}`"),
    }
}

fn document(report: &impl Shown) -> Value {
    serde_json::from_str(&report.text(Format::Json)).expect("the report is JSON")
}

#[test]
fn every_run_fits_the_schema() {
    let schema = Schema::of_runs();
    let of_tool = Report { samples: Some("hyperfine: each value is a run".into()), ..common::unpaired() };
    let mut priced = common::standard();
    priced.prices = [("native".to_string(), 0.34), ("runc".to_string(), 0.5)].into();
    let about = Interval { estimate: 2e6, low: 1.9e6, high: 2.1e6 };
    priced.limits = vec![Limit {
        key: WorkloadKey::named("footprint"),
        metric: common::metric("footprint", "B", Better::Lower, true),
        environment: "runc".into(),
        counts: vec![1, 2],
        n: 6,
        each: about,
        common: about,
        worst_misfit: 0.0,
    }];
    let json = document(&priced);
    let bought = &json["guests_bought"][0]["guests"];
    assert!(bought["low"].as_f64() < bought["high"].as_f64(), "{bought}");
    let mut repeated = common::standard();
    let workload = repeated.plan.as_ref().expect("a plan").workloads[0].id.clone();
    repeated.circumstances.iterations = vec![ChosenIterations { workload, iterations: 48 }];
    let details = repeated.text(Format::Markdown);
    assert!(details.contains("as the pilot chose"), "{details}");
    assert!(repeated.text(Format::Html).contains("then 48 measured per block"));
    let further = [
        ("numbers of runs", repeated),
        ("hostile", common::hostile()),
        ("looks", crate::looks::report(true)),
        ("files of a tool", of_tool),
        ("prices", priced),
    ];
    for (name, report) in common::all().into_iter().chain(further) {
        assert_eq!(schema.faults(&document(&report)), [""; 0], "{name}");
    }
}

#[test]
fn the_checker_finds_violations_of_the_run_schema() {
    let spoilt = [
        ("/format", json!(2)),
        ("/cells/1/verdict", json!("slower")),
        ("/cells/1/overhead/mean", json!("1 %")),
        ("/cells/1/overhead", json!({})),
        ("/cells/1/p_diff", json!(1.5)),
        ("/voids/0/block", json!(-1)),
        ("/voids/0", json!({"block": 1, "more": true})),
    ];
    Schema::of_runs().finds(&document(&common::standard()), spoilt);
}

#[test]
fn every_study_fits_the_schema() {
    let schema = Schema::of_studies();
    let mut odd = study::everything();
    let cell = &mut odd.experiments[0].views[0].rows[0].cells[0];
    cell.measured = Some(study::measured(f64::INFINITY, f64::NAN, 1));
    for report in [study::everything(), study::claimed(), study::nothing(), odd] {
        assert_eq!(schema.faults(&document(&report)), [""; 0]);
    }
}

#[test]
fn the_checker_finds_violations_of_the_study_schema() {
    let spoilt = [
        ("/format", json!(2)),
        ("/summary/claims/hold", json!(-1)),
        ("/experiments/0/claims/0/grade", json!({"grade": "MAYBE"})),
        ("/experiments/0/views/0/form", json!("pie")),
        ("/experiments/0/views/0/rows/0/cells/0", json!({"measured": null})),
        ("/experiments/0/arms/0/on", json!(1)),
    ];
    Schema::of_studies().finds(&document(&study::everything()), spoilt);
}

#[test]
fn every_pool_fits_the_schema() {
    let document = |machines, grouped| -> Value {
        let report = crate::pool::report(machines, grouped);
        let text = render_pooled(&report, Format::Json, &Options::default()).expect("a pool renders");
        serde_json::from_str(&text).expect("the pool is JSON")
    };
    let json = |report: weigh_report::PooledReport| -> Value {
        let text = render_pooled(&report, Format::Json, &Options::default()).expect("a pool renders");
        serde_json::from_str(&text).expect("the pool is JSON")
    };
    let schema = Schema::of_pools();
    assert_eq!(schema.faults(&json(crate::pool::priced())), [""; 0]);
    assert_eq!(schema.faults(&json(crate::pool::shared(3))), [""; 0]);
    for (machines, grouped) in [(1, false), (2, false), (5, false), (6, true)] {
        assert_eq!(schema.faults(&document(machines, grouped)), [""; 0], "{machines}");
    }
    let spoilt = [
        ("/format", json!(2)),
        ("/cells/0/verdict", json!("RUNS_DIFFER")),
        ("/cells/0/prediction", json!({"low": 1})),
        ("/cells/0/effects/0/weight", json!(2)),
        ("/machines/0/host", json!({})),
        ("/differences/0/difference", json!(1)),
    ];
    schema.finds(&document(6, true), spoilt);
}

/// The fields that scripts rely on, in the order of the documentation of the command line.
#[test]
fn fixed_fields_come_first_and_in_order() {
    let document = document(&common::standard());
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let begins = |value: &Value, fixed: &str| {
        let fixed: Vec<&str> = fixed.split(' ').collect();
        assert_eq!(keys(value)[..fixed.len()], fixed);
    };
    begins(&document, "format run seed baseline blocks voids environments cells failures warnings");
    let cell = "workload params metric unit better environment n median mean sd min p05 p95 max overhead typical \
                primary verdict p_diff_holm p_eq_holm smallest_detectable unseen_mode_bound cpu_ns_per_op flags";
    begins(&document["cells"][1], cell);
    assert_eq!(keys(&document["cells"][1]["overhead"]), ["mean", "ci_low", "ci_high"]);
    assert_eq!(keys(&document["cells"][1]["typical"]), ["median", "ci_low", "ci_high"]);
    begins(&document["voids"][0], "block workload cause");
    begins(&document["failures"][0], "environment workload reason log");
    assert!(document["cells"][0]["overhead"].is_null(), "the baseline has no overhead");
}

#[test]
fn numbers_are_not_rounded() {
    // The JSON parser of the test may be off by the last bit.
    let same =
        |text: &Value, value: f64| (text.as_f64().unwrap_or(f64::NAN) - value).abs() <= 1e-15 * value.abs();
    let report = common::standard();
    let document = document(&report);
    for (cell, row) in report.analysis.cells.iter().zip(document["cells"].as_array().expect("a list")) {
        if let Some(summary) = cell.summary {
            assert!(same(&row["median"], summary.median));
        }
        if let Some(overhead) = cell.overhead {
            assert!(same(&row["overhead"]["mean"], overhead.estimate));
            assert!(same(&row["overhead"]["ci_low"], overhead.low));
        }
    }
}

#[test]
fn numbers_that_are_not_finite_are_null() {
    let mut report = common::quick();
    for cell in &mut report.analysis.cells {
        cell.smallest_detectable = Some(f64::INFINITY);
        cell.p_diff = Some(f64::NAN);
    }
    let document = document(&report);
    assert!(document["cells"][1]["smallest_detectable"].is_null());
    assert_eq!(Schema::of_runs().faults(&document), [""; 0]);
}

#[test]
fn every_history_fits_the_schema() {
    let interval = |estimate: f64| Interval { estimate, low: estimate - 0.01, high: estimate + 0.01 };
    let run = |version: &str| HistoryPoint {
        version: version.into(),
        began: "2026-11-01T05:00:00Z".into(),
        run: format!("run-{version}"),
        machine: "0123".into(),
        cpu_model: "a CPU".into(),
    };
    let point = |run| HistoryEffect { run, overhead: interval(0.1 * run as f64), median: 0.0012, n: 30 };
    let series = HistorySeries {
        workload: "syscall{call=getpid}".into(),
        key: WorkloadKey::named("syscall"),
        metric: MetricSpec::time("duration"),
        environment: "runc".into(),
        baseline: "native".into(),
        points: vec![point(0), point(1)],
        shifts: vec![Shift { at: 1, change: interval(0.1), p: 0.002 }],
        now: Some(interval(0.1)),
        left_out: 2,
    };
    let history = HistoryReport {
        runs: vec![run("v1"), run("v2")],
        series: vec![series],
        notices: vec![Notice::new("seen", "done")],
    };
    let json = |report: &HistoryReport| -> Value {
        let text = render_history(report, Format::Json, &Options::default()).expect("a history renders");
        serde_json::from_str(&text).expect("the history is JSON")
    };
    let schema = Schema::of_histories();
    let mut unknown = history.clone();
    unknown.series[0].now = None;
    unknown.series[0].shifts[0].change.high = f64::INFINITY;
    for report in [&history, &unknown, &HistoryReport::default()] {
        assert_eq!(schema.faults(&json(report)), [""; 0]);
    }
    let spoilt = [
        ("/format", json!(2)),
        ("/runs/0", json!({"version": "v1"})),
        ("/series/0/points/0/n", json!(-1)),
        ("/series/0/changes/0/p", json!(1.5)),
        ("/series/0/now", json!({"mean": 1})),
        ("/warnings", json!("none")),
    ];
    schema.finds(&json(&history), spoilt);
}
