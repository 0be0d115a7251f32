//! A study with everything that studies have: tables in both orientations, figures of every form,
//! arms and experiments that were not run, missing numbers, stand-ins, and every grade.

use super::EVIL;
use serde_json::Value;
use std::collections::BTreeMap;
use weigh_model::Better;
use weigh_report::study::{
    ArmReport, CheckedRatio, ClaimGrade, ClaimReport, ExperimentReport, MeasuredNumber, PublishedNumber,
    PublishedRatio, Replacement, RowReport, StudyCell, StudyReport, ViewForm, ViewReport,
};
use weigh_stats::{Grade, Interval};

/// The reason why one of the platforms is missing here.
pub const NO_KVM: &str = "guests do not start on this host's /dev/kvm";

fn arm(id: &str, label: &str, on: Option<&str>) -> ArmReport {
    let not_run = on.is_none().then(|| NO_KVM.into());
    ArmReport {
        id: id.into(),
        label: label.into(),
        on: on.map(String::from),
        today: false,
        not_run,
        note: None,
    }
}

/// Native, Docker, two kinds of KVM that are missing here, and LXC, a platform of today.
fn arms() -> Vec<ArmReport> {
    let mut arms = vec![
        arm("native", "Native", Some("native")),
        arm("docker", "Docker", Some("docker:net=host")),
        arm("kvm", "KVM", None),
        arm("kvm-tuned", "KVM (tuned)", None),
        arm("lxc", "LXC", Some("lxc")),
    ];
    arms[3].note = Some("vCPUs pinned, cache topology exposed".into());
    arms[4].today = true;
    arms
}

fn three_arms() -> Vec<ArmReport> {
    arms().into_iter().take(3).collect()
}

pub fn published(value: f64, spread: Option<(f64, &str)>) -> PublishedNumber {
    PublishedNumber {
        value,
        spread: spread.map(|(spread, kind)| (spread, kind.into())),
        n: spread.map(|_| 10),
        five: None,
        source: "table I, p. 4".into(),
    }
}

pub fn measured(value: f64, relative_sd: f64, n: u32) -> MeasuredNumber {
    let sd = value * relative_sd;
    MeasuredNumber {
        value,
        sd: Some(sd),
        n,
        five: [-2.0, -1.6, 0.0, 1.6, 2.0].map(|at| value + at * sd),
        statistic: "mean".into(),
        unit: None,
    }
}

fn around(estimate: f64, half: f64) -> Interval {
    Interval { estimate, low: estimate - half, high: estimate + half }
}

/// A builder of cells: what was published and measured, with the overheads of both.
pub trait InTheMaking: Sized {
    /// Sets the published overhead, with half the width of its interval if it has one.
    fn costs(self, estimate: f64, half: Option<f64>) -> Self;
    /// Sets the measured number, over twelve blocks.
    fn here(self, value: f64, relative_sd: f64) -> Self;
    /// Sets the measured overhead, with half the width of its interval.
    fn costs_here(self, estimate: f64, half: f64) -> Self;
    fn agreeing(self, grade: Grade) -> Self;
}

impl InTheMaking for StudyCell {
    fn costs(self, estimate: f64, half: Option<f64>) -> Self {
        let published_overhead = Some(around(estimate, half.unwrap_or(0.0)));
        Self { published_overhead, published_overhead_has_interval: half.is_some(), ..self }
    }

    fn here(self, value: f64, relative_sd: f64) -> Self {
        Self { measured: Some(measured(value, relative_sd, 12)), ..self }
    }

    fn costs_here(self, estimate: f64, half: f64) -> Self {
        Self { overhead: Some(around(estimate, half)), ..self }
    }

    fn agreeing(self, grade: Grade) -> Self {
        Self { agreement: Some(grade), ..self }
    }
}

/// A number of the paper alone.
pub fn plain(value: f64) -> StudyCell {
    StudyCell { published: Some(published(value, None)), ..StudyCell::default() }
}

/// A number of the paper with its standard deviation.
fn sd(value: f64, sd: f64) -> StudyCell {
    StudyCell { published: Some(published(value, Some((sd, "sd")))), ..StudyCell::default() }
}

/// A number of the paper with half the width of its interval.
fn ci95(value: f64, half: f64) -> StudyCell {
    StudyCell { published: Some(published(value, Some((half, "ci95")))), ..StudyCell::default() }
}

/// Five numbers of the paper; the value is their median.
fn five(numbers: [f64; 5]) -> StudyCell {
    let number = PublishedNumber { five: Some(numbers), ..published(numbers[2], None) };
    StudyCell { published: Some(number), ..StudyCell::default() }
}

/// A cell that is not in the paper.
fn unpublished() -> StudyCell {
    StudyCell::default()
}

pub fn row(quantity: &str, label: &str, unit: &str, better: Better, cells: Vec<StudyCell>) -> RowReport {
    RowReport {
        quantity: quantity.into(),
        label: label.into(),
        unit: unit.into(),
        better,
        stands_in: None,
        point: None,
        x: None,
        percentile: None,
        not_measured: None,
        cells,
    }
}

pub fn view(id: &str, title: &str, form: ViewForm, rows: Vec<RowReport>) -> ViewReport {
    let (id, title) = (id.into(), title.into());
    ViewReport { id, title, form, arms_down: false, x_label: None, y_label: None, rows }
}

fn experiment(name: &str, title: &str, arms: Vec<ArmReport>, views: Vec<ViewReport>) -> ExperimentReport {
    ExperimentReport {
        name: name.into(),
        title: title.into(),
        source: format!("section III, {}, p. 4", name.split('/').next().unwrap_or(name)),
        statistic: "mean of 10 runs; standard deviation".into(),
        command: format!("weigh run {} --size quick", name.split('/').next_back().unwrap_or(name)),
        run: Some(name.replace('/', "-")),
        blocks: Some(12),
        not_run: None,
        instead: Vec::new(),
        arms,
        baseline: 0,
        views,
        claims: Vec::new(),
        remarks: Vec::new(),
        platforms: BTreeMap::new(),
    }
}

fn instead(original: &str, here: &str) -> Vec<Replacement> {
    vec![Replacement { original: original.into(), here: here.into() }]
}

fn claim(id: &str, says: &str, check: &str, grade: ClaimGrade) -> ClaimReport {
    ClaimReport {
        id: id.into(),
        says: says.into(),
        source: "section III.A, p. 4".into(),
        check: check.into(),
        grade,
        seen: Vec::new(),
        published: Vec::new(),
        arms: Vec::new(),
        takeaway: String::new(),
    }
}

fn not_run(reason: &str) -> ClaimGrade {
    ClaimGrade::NotRun { not_run: reason.into() }
}

const HOLDS: ClaimGrade = ClaimGrade::Checked(Grade::Holds);
const DIFFERS: ClaimGrade = ClaimGrade::Checked(Grade::Differs);

fn undecided(blocks: Option<u32>) -> ClaimGrade {
    ClaimGrade::Checked(Grade::Undecided { blocks })
}

/// A claim with the ratio, or the overhead, that it was checked on.
fn seen(claim: ClaimReport, what: &str, estimate: f64, half: f64) -> ClaimReport {
    let is_overhead = what.contains("overhead");
    let Interval { low, high, .. } = around(estimate, half);
    let seen = CheckedRatio { what: what.into(), estimate, low, high, is_overhead, n: 12 };
    ClaimReport { seen: vec![seen], ..claim }
}

/// A table with quantities as rows, an arm of today, and a stand-in.
fn compression() -> ExperimentReport {
    let cells = vec![
        sd(76.2, 0.93).here(11.42, 0.01),
        sd(73.5, 0.64)
            .costs(0.0367, Some(0.011))
            .here(11.31, 0.012)
            .costs_here(0.0097, 0.0081)
            .agreeing(Grade::Holds),
        sd(59.2, 1.88).costs(0.287, Some(0.031)),
        sd(62.2, 1.33).costs(0.225, Some(0.022)),
        unpublished().here(11.38, 0.011).costs_here(0.0035, 0.0078),
    ];
    let pxz = row("pxz", "PXZ (MB/s)", "MB/s", Better::Higher, cells);
    let pxz = RowReport { stands_in: Some("xz".into()), ..pxz };
    let cells = vec![
        sd(290.8, 1.13),
        sd(290.9, 0.98).costs(-0.0003, Some(0.0034)),
        sd(241.3, 1.18).costs(0.205, Some(0.004)),
        sd(284.2, 1.45).costs(0.0232, Some(0.0041)),
        unpublished(),
    ];
    let lapack = row("linpack", "Linpack (GFLOPS)", "GFLOPS", Better::Higher, cells);
    let why = "the paper's program is not free; give its path with --param binary=";
    let lapack = RowReport { not_measured: Some(why.into()), ..lapack };
    let view = view("table-1", "Table I (PXZ, Linpack)", ViewForm::Table, vec![pxz, lapack]);
    let (kvm, both) = (not_run(&format!("KVM: {NO_KVM}")), not_run(&format!("KVM (tuned), KVM: {NO_KVM}")));
    let docker =
        claim("docker-pxz", "Docker is 4 % slower than native", "docker overhead of pxz <= 8 %", HOLDS);
    let order = "native before KVM (tuned) before KVM";
    ExperimentReport {
        instead: instead("PXZ 4.999 on 1 GB of Wikipedia", "xz -T of a generated corpus"),
        claims: vec![
            seen(docker, "docker overhead of pxz", 0.0097, 0.0081),
            claim("kvm-pxz", "KVM is a fifth slower", "kvm overhead of pxz >= 15 %", kvm),
            claim("order", order, "native pxz > kvm-tuned > kvm", both),
        ],
        remarks: vec!["exploratory: 12 blocks are fewer than a standard run has; use --size standard".into()],
        ..experiment("table-1/pxz", "Compression of Wikipedia", arms(), vec![view])
    }
}

/// A table with arms as rows: a missing cell, a disagreement, an open one, and an overhead without
/// a spread.
fn network() -> ExperimentReport {
    let mixed = plain(9412.0).costs(0.0002, None).here(30_120.0, 0.04).costs_here(0.37, 0.03);
    let missing = StudyCell {
        missing: Some("3 of 12 trials failed: connection reset".into()),
        ..plain(3939.44).costs(0.7535, None)
    };
    let tcp = vec![
        plain(9413.76).here(41_250.0, 0.03),
        StudyCell { flags: vec!["MIXED".into()], ..mixed.agreeing(Grade::Differs) },
        plain(6739.01).costs(0.397, None),
    ];
    let udp = vec![plain(6907.98).here(12_010.0, 0.2), missing, plain(3153.04).costs(1.191, None)];
    let rr = vec![
        ci95(20_742.36, 410.0).here(31_002.0, 0.05),
        ci95(16_725.26, 220.0)
            .costs(0.24, Some(0.03))
            .here(26_800.0, 0.09)
            .costs_here(0.157, 0.12)
            .agreeing(Grade::Undecided { blocks: Some(40) }),
        ci95(10_920.48, 99.0).costs(0.9, Some(0.04)),
    ];
    let rows = vec![
        row("tcp", "TCP_STREAM (Mb/s)", "Mb/s", Better::Higher, tcp),
        row("udp", "UDP_STREAM (Mb/s)", "Mb/s", Better::Higher, udp),
        row("rr", "TCP_RR (transactions/s)", "transactions/s", Better::Higher, rr),
    ];
    let view = view("table-7", "Table VII (netperf)", ViewForm::Table, rows);
    let view = ViewReport { arms_down: true, ..view };
    let (forty, never) = (undecided(Some(40)), undecided(None));
    let tcp = "Docker's throughput is the native one";
    let tcp = claim("docker-tcp", tcp, "docker tcp within 5 % of native", DIFFERS);
    let rr = "Docker adds a fifth to a transaction";
    let rr = claim("docker-rr", rr, "docker overhead of rr <= 30 %", forty);
    let cv = claim("cv", "Docker varies as much as native", "docker cv within 10 % of native", never);
    let title = "Throughput and latency of the network";
    ExperimentReport {
        claims: vec![
            seen(tcp, "docker tcp / native tcp", 0.73, 0.016),
            seen(rr, "docker overhead of rr", 0.157, 0.12),
            seen(cv, "docker cv / native cv", 1.2, 0.9),
        ],
        ..experiment("table-7", title, three_arms(), vec![view])
    }
}

/// Lines over a sweep, with points published at one of them, and one quantity against another.
fn database() -> ExperimentReport {
    let clients = [1.0, 10.0, 100.0];
    let point = |x: f64, level: f64, row: RowReport| {
        let there = |factor: f64, spread: f64| sd((level * factor).round(), (level * spread).round());
        let [native, docker, kvm] = match x {
            100.0 => [
                there(3.1, 0.05),
                there(3.0, 0.05).costs(0.033, Some(0.02)).agreeing(Grade::Holds),
                there(1.4, 0.02).costs(1.21, Some(0.04)),
            ],
            _ => [unpublished(), unpublished(), unpublished()],
        };
        let docker = docker.here(level * 0.95, 0.02).costs_here(0.052, 0.011);
        let cells = vec![native.here(level * 1.0, 0.02), docker, kvm];
        RowReport { point: Some(format!("clients={x}")), x: Some(x), cells, ..row }
    };
    let rate = |x: f64| {
        let row = row("tps", "Throughput (tx/s)", "tx/s", Better::Higher, Vec::new());
        point(x, 4300.0 * x / (x + 12.0), row)
    };
    let delay =
        |x: f64| point(x, 0.25 * (x + 12.0), row("delay", "Latency (ms)", "ms", Better::Lower, Vec::new()));
    let against = |x: f64| {
        let mut row = rate(x);
        for (at, cell) in row.cells.iter_mut().enumerate() {
            let place =
                |known: bool, scale: f64| known.then_some(scale * (x + 12.0) * (1.0 + 0.1 * at as f64));
            cell.x = Some((place(cell.published.is_some(), 0.1), place(cell.measured.is_some(), 0.25)));
        }
        row
    };
    let rows = clients.into_iter().map(rate).chain(clients.into_iter().map(delay)).collect();
    let mut lines = view("fig-10", "Throughput and latency against clients", ViewForm::Lines, rows);
    lines.x_label = Some("clients".into());
    let rows = clients.into_iter().map(against).collect();
    let mut curve = view("fig-13", "Throughput against latency", ViewForm::Lines, rows);
    (curve.x_label, curve.y_label) = (Some("latency (ms)".into()), Some("transactions per second".into()));
    let high = "Docker costs little at high concurrency";
    let high = claim("docker-high", high, "docker overhead of tps@last <= 8 %", HOLDS);
    ExperimentReport {
        claims: vec![seen(high, "docker overhead of tps@100", 0.052, 0.011)],
        ..experiment("fig-10", "A database under load", three_arms(), vec![lines, curve])
    }
}

/// Bars, a distribution and five numbers.
fn storage() -> ExperimentReport {
    let bar = |id: &str, label: &str, level: f64| {
        let docker = plain((level * 1.09).round()).costs(0.009, None).here(level * 0.39, 0.05);
        let cells = vec![
            plain((level * 1.1).round()).here(level * 0.4, 0.05),
            docker.costs_here(0.025, 0.04).agreeing(Grade::Undecided { blocks: Some(25) }),
            plain((level * 0.55).round()).costs(1.0, None),
        ];
        row(id, label, "IOPS", Better::Higher, cells)
    };
    let percentile = |percentile: f64, level: f64| {
        let label = format!("{percentile} %");
        let mut native = plain(level).here(level * 0.7, 0.05);
        native.measured.iter_mut().for_each(|number| number.statistic.clone_from(&label));
        let docker = unpublished().here(level * 0.74, 0.05).costs_here(0.057, 0.04);
        let cells = vec![native, docker, plain((level * 2.5).round()).costs(1.5, None)];
        let row = row(&format!("p{percentile:02}"), &label, "µs", Better::Lower, cells);
        RowReport { percentile: Some(percentile), ..row }
    };
    let cells = vec![
        five([27009.0, 29134.0, 29711.0, 30074.0, 30252.0]).here(9120.0, 0.02),
        unpublished().here(8800.0, 0.03).costs_here(0.036, 0.012),
        five([3448.0, 3565.0, 3892.0, 4064.0, 4152.0]).costs(6.63, None),
    ];
    let boxes = row("read", "Random read (IOPS)", "IOPS", Better::Higher, cells);
    let boxes = RowReport { stands_in: Some("block".into()), ..boxes };
    let bars = vec![bar("rr", "Random read", 84_000.0), bar("rw", "Random write", 110_000.0)];
    let percentiles = vec![percentile(5.0, 90.0), percentile(50.0, 120.0), percentile(95.0, 310.0)];
    let views = vec![
        view("fig-6", "Random access", ViewForm::Bars, bars),
        view("fig-7", "Latency of reads", ViewForm::Cdf, percentiles),
        view("table-d", "A day under load", ViewForm::Boxes, vec![boxes]),
    ];
    ExperimentReport {
        instead: instead("a solid-state disk of its own", "a file on this host's disk"),
        ..experiment("fig-6", "Block storage", three_arms(), views)
    }
}

/// An experiment that nothing here can run.
fn density() -> ExperimentReport {
    let without = "libquantum of SPEC CPU 2006 is not free; give its path with --param binary=";
    let cells = vec![plain(10.2), plain(10.4).costs(0.0196, None), plain(11.1).costs(0.088, None)];
    let rows = vec![row("libquantum", "libquantum (s)", "s", Better::Lower, cells)];
    let view = view("fig-1", "", ViewForm::Table, rows);
    let mut arms = three_arms();
    arms.iter_mut().for_each(|arm| (arm.not_run, arm.on) = (Some(without.into()), None));
    let says = "containers and machines degrade alike";
    ExperimentReport {
        not_run: Some(without.into()),
        run: None,
        blocks: None,
        claims: vec![claim("equal", says, "kvm libquantum within 9 % of docker", not_run(without))],
        ..experiment("fig-1", "Density of idle guests", arms, vec![view])
    }
}

/// The whole study.
pub fn everything() -> StudyReport {
    StudyReport {
        name: "example-2016".into(),
        title: "A Comparison of Platforms for the Tests of a Program".into(),
        authors: "Weber, Waage".into(),
        published: "Report 7, 2016".into(),
        host_then: "2 x Xeon, 16 cores, 256 GB; Linux 3.11".into(),
        method_then: "one platform after the other; mean of 10 runs, standard deviation".into(),
        host_here: "AMD EPYC, 2 CPUs, 4 GiB; Linux 6.1".into(),
        size: "quick".into(),
        directory: Some("weigh-runs/20260301T120000Z-example-2016".into()),
        tool_version: "0.1.0".into(),
        experiments: vec![compression(), network(), database(), storage(), density()],
        warnings: vec!["KVM is not ready; run weigh doctor".into()],
        raw_logs: None,
    }
}

/// What a reader takes away from a claim.
const TAKEAWAY: &str = "PXZ (MB/s): Docker still costs 1.0 % [0.2, 1.8] more than Native; the study found a larger difference, 3.7 % more";

/// The whole study, with what a page about its claims has besides.
pub fn claimed() -> StudyReport {
    let mut report = everything();
    let compression = &mut report.experiments[0];
    compression.platforms = [("docker".to_string(), "Docker 26.1.4".to_string())].into();
    let what = "docker overhead of pxz".to_string();
    compression.claims[0].published = vec![PublishedRatio { what, estimate: 0.0367, is_overhead: true }];
    compression.claims[0].takeaway = TAKEAWAY.into();
    let arms = ["docker native", "kvm native", "native kvm-tuned kvm"];
    for (claim, arms) in compression.claims.iter_mut().zip(arms) {
        claim.arms = arms.split(' ').map(String::from).collect();
    }
    report
}

/// A study of which nothing was run.
pub fn nothing() -> StudyReport {
    StudyReport { experiments: vec![density()], directory: None, warnings: Vec::new(), ..everything() }
}

/// Names that try to break out of every format.
pub fn hostile() -> StudyReport {
    hostile_of(everything())
}

/// A study with names that try to break out of every format.
pub fn hostile_of(report: StudyReport) -> StudyReport {
    let mut json = serde_json::to_value(report).expect("a study is JSON");
    rename(&mut json, false);
    let mut report: StudyReport = serde_json::from_value(json).expect("it stays a study");
    report.warnings.iter_mut().take(1).for_each(|text| text.push_str(EVIL));
    report
}

/// Changes every text in a field that holds names or words from outside.
fn rename(value: &mut Value, outside: bool) {
    const OUTSIDE: &str = "name title authors published host_then host_here size source statistic command run \
                           not_run remarks id label on note original here says check takeaway what x_label y_label \
                           quantity unit point not_measured missing flags";
    match value {
        Value::String(text) if outside => text.push_str(EVIL),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, outside)),
        Value::Object(fields) => {
            fields
                .iter_mut()
                .for_each(|(key, value)| rename(value, OUTSIDE.split(' ').any(|name| name == key)));
        }
        _ => {}
    }
}

pub fn all() -> Vec<(&'static str, StudyReport)> {
    vec![("everything", everything()), ("nothing", nothing())]
}
