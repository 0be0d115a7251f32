//! A pool of runs in every format.

use crate::common::{Random, metric, time};
use weigh_model::{Better, Comparison, HostFacts, Looks, MetricSpec, Observation, Series, WorkloadKey};
use weigh_report::{Format, Gate, Options, PooledMachine, PooledReport, render_pooled};
use weigh_stats::{ConcludedCell, Notice, Options as Analysed, PoolRun, RunEstimates, join_shares, pool};

const BASELINE: &str = "native";

/// A metric of 30 blocks: a baseline of about 1, and environments that cost `factors` times as
/// much.
fn comparison(random: &mut Random, spec: MetricSpec, factors: &[(&str, f64)]) -> Comparison {
    let mut noise = || 1.0 + 0.01 * random.normal();
    let mut series = |environment: &str, factor: f64| {
        let value = |block| {
            let cost = factor * noise();
            Observation {
                block: Some(block),
                value: if spec.better == Better::Lower { cost } else { 1e6 / cost },
            }
        };
        Series::of(environment, (0..30).map(value).collect())
    };
    let all = [(BASELINE, 1.0)].into_iter().chain(factors.iter().copied());
    Comparison {
        workload: "w".into(),
        key: WorkloadKey::named("w"),
        metric: spec.clone(),
        series: all.map(|(environment, factor)| series(environment, factor)).collect(),
    }
}

/// Machines of one kind, or of two.
pub fn report(machines: usize, grouped: bool) -> PooledReport {
    of_scope(machines, grouped, false)
}

/// Machines of two kinds with prices.
pub fn priced() -> PooledReport {
    PooledReport { prices: vec![0.34, 0.17], ..report(6, true) }
}

/// Machines that shared the blocks.
pub fn shared(machines: usize) -> PooledReport {
    of_scope(machines, false, true)
}

fn of_scope(machines: usize, grouped: bool, shared: bool) -> PooledReport {
    let mut random = Random(7);
    let mut runs = Vec::new();
    let mut described = Vec::new();
    for at in 0..machines {
        let own = 1.0 + 0.01 * at as f64;
        let factors = [("docker", 1.02 * own), ("runsc", 1.3 * own), ("none", 1.0)];
        let comparisons = [
            comparison(&mut random, time("time", true), &factors),
            comparison(&mut random, metric("rate", "op/s", Better::Higher, false), &factors[..1]),
        ];
        let group = if !grouped { "" } else { ["small", "large"][at % 2] };
        let name = format!("host-{at}");
        let estimates = RunEstimates::of(&comparisons, &Analysed::new(BASELINE));
        runs.push(PoolRun { machine: name.clone(), group: group.into(), estimates });
        let host = HostFacts {
            identity: format!("{at:032x}"),
            cpu_model: format!("CPU {}", at % 2),
            cpus: vec![0, 1],
            memory_bytes: 8 << 30,
            kernel: "6.1".into(),
            ..HostFacts::default()
        };
        described.push(PooledMachine { runs: vec![format!("runs/{name}")], name, group: group.into(), host });
    }
    PooledReport {
        title: "w in native, docker, runsc, none, on several machines".into(),
        pooled: if shared { join_shares(&runs) } else { pool(&runs) },
        by: grouped.then(|| "label".into()),
        prices: Vec::new(),
        machines: described,
        unequal: Vec::new(),
        tool_version: "1.2.3".into(),
        warnings: vec![Notice::new("host-9 is left out", "`weigh resume` continues it")],
    }
}

fn text(report: &PooledReport, format: Format, options: Options) -> String {
    render_pooled(report, format, &options).expect("a pool renders")
}

fn brief() -> Options {
    Options { details: false, ..Options::default() }
}

#[test]
fn a_pool_reads_well_in_every_format() {
    let five = report(5, false);
    insta::assert_snapshot!("pool.brief-100", text(&five, Format::Table, brief()));
    insta::assert_snapshot!(
        "pool.table-120",
        text(&five, Format::Table, Options { width: 120, ..Options::default() })
    );
    insta::assert_snapshot!("pool.groups-100", text(&report(6, true), Format::Table, brief()));
    for format in [Format::Markdown, Format::Latex, Format::Csv, Format::Junit] {
        let text = text(&five, format, Options::default());
        assert!(text.contains("docker") && text.contains("runsc") && text.ends_with('\n'), "{text}");
    }
}

/// The interval of a machine belongs to the look that concluded it.
#[test]
fn json_has_the_look_of_each_machine() {
    let mut random = Random(7);
    let concluded = ConcludedCell {
        environment: "docker".into(),
        workload: "w".into(),
        from_block: 10,
        blocks: 10,
        baseline_failed: Default::default(),
    };
    let sequential =
        Analysed { looks: Some(Looks::STANDARD), concluded: vec![concluded], ..Analysed::new(BASELINE) };
    for (options, look) in
        [(sequential, serde_json::json!(10)), (Analysed::new(BASELINE), serde_json::Value::Null)]
    {
        let mut run = |at: usize| {
            let comparisons = [comparison(&mut random, time("time", true), &[("docker", 1.3)])];
            let estimates = RunEstimates::of(&comparisons, &options);
            PoolRun { machine: format!("host-{at}"), group: String::new(), estimates }
        };
        let report = PooledReport { pooled: pool(&[run(0), run(1)]), ..report(2, false) };
        let json: serde_json::Value =
            serde_json::from_str(&text(&report, Format::Json, Options::default())).unwrap();
        for at in 0..2 {
            assert_eq!(json["cells"][0]["effects"][at]["look"], look, "{json}");
        }
    }
}

#[test]
fn a_page_draws_every_machine() {
    let page = text(&report(5, false), Format::Html, Options::default());
    assert_eq!(page.matches("data-kind=\"forest\"").count(), 1);
    // The tables have a drawing for each of five machines, the average and another one.
    assert!(page.matches("<svg").count() >= 3 * 7, "{}", page.matches("<svg").count());
    let many = text(&report(120, false), Format::Html, Options::default());
    assert!(!many.contains("data-kind=\"forest\"") && many.contains("20 machines whose effects lie between"));
}

#[test]
fn few_machines_have_their_labels() {
    let one = text(&report(1, false), Format::Table, brief());
    assert!(one.contains("ONE MACHINE") && !one.contains("TWO MACHINES") && !one.contains("SLOWER"), "{one}");
    let two = text(&report(2, false), Format::Table, brief());
    assert!(two.contains("TWO MACHINES") && !two.contains("ONE MACHINE"), "{two}");
}

#[test]
fn a_gate_fails_the_cases_that_it_judges_above() {
    let gate = Gate { percent: 10.0, undecided_fails: false };
    let report = report(5, false);
    let judgement = gate.judge_pooled(&report);
    assert_eq!(judgement.above, ["w time in runsc"]);
    assert!(judgement.below.contains(&"w time in none".to_string()), "{judgement:?}");
    let xml = text(&report, Format::Junit, Options { gate: Some(gate), ..Options::default() });
    assert!(xml.contains("failures=\"1\"") && xml.contains("above the gate of 10 %"), "{xml}");
    let not_judged = gate.judge_pooled(&self::report(1, false)).not_judged;
    assert_eq!(not_judged.len(), 3, "{not_judged:?}");
}

#[test]
fn shared_blocks_are_about_these_machines() {
    let three = shared(3);
    let table = text(&three, Format::Table, brief());
    assert!(table.contains("blocks of these machines") && !table.contains("another machine"), "{table}");
    for format in [Format::Table, Format::Markdown, Format::Latex, Format::Html] {
        let text = text(&three, format, Options { details: true, ..Options::default() });
        assert!(text.contains("THESE MACHINES") && text.contains("stratum"), "{text}");
        assert!(!text.contains("another machine:") && !text.contains("on average"), "{text}");
    }
    let one = text(&shared(1), Format::Table, brief());
    assert!(one.contains("SLOWER") && !one.contains("ONE MACHINE"), "{one}");
    let csv = text(&three, Format::Csv, Options::default());
    assert!(csv.contains("these-machines"), "{csv}");
}

#[test]
fn the_price_of_the_work_is_in_every_format() {
    let priced = priced();
    let table = text(&priced, Format::Table, brief());
    assert!(table.contains("what it costs") && table.contains("price/h"), "{table}");
    for format in [Format::Markdown, Format::Latex, Format::Html] {
        let text = text(&priced, format, Options::default());
        assert!(text.contains("work per unit of price") && text.contains("cost against small"), "{text}");
    }
    let csv = text(&priced, Format::Csv, Options::default());
    let costs = csv.lines().filter(|line| line.starts_with("small,") && line.contains(",0.34,")).count();
    assert_eq!(costs, 4, "four environments of one kind: {csv}");
    let page = text(&priced, Format::Html, Options::default());
    let without = text(&report(6, true), Format::Html, Options::default());
    assert!(page.matches("<svg").count() >= without.matches("<svg").count() + 4, "every cost is drawn");
    let drawn = |page: &str| page.matches("data-kind=\"lines\"").count();
    assert_eq!((drawn(&page), drawn(&without)), (1, 0), "a figure for the one metric that is compared");
}
