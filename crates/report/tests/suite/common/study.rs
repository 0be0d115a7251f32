//! A study with everything that studies have: tables both ways round, figures of every form, arms
//! and experiments that were not run, numbers that are missing, stand-ins, and every grade.

use super::EVIL;
use weigh_model::Better;
use weigh_report::study::{
    ArmReport, ClaimGrade, ClaimReport, ExperimentReport, Instead, MeasuredNumber, PublishedNumber,
    RowReport, Seen, StudyCell, StudyReport, ViewForm, ViewReport,
};
use weigh_report::{Format, Options, render_study};
use weigh_stats::{Grade, Interval};

/// The reason for which one of the platforms is not here.
pub const NO_KVM: &str = "guests do not start on this host's /dev/kvm";

pub fn arm(id: &str, label: &str, on: Option<&str>) -> ArmReport {
    ArmReport {
        id: id.into(),
        label: label.into(),
        on: on.map(String::from),
        today: false,
        not_run: None,
        note: None,
    }
}

/// Native, Docker, two kinds of KVM that are not here, and LXC of today.
fn arms() -> Vec<ArmReport> {
    let without = |id: &str, label: &str| ArmReport { not_run: Some(NO_KVM.into()), ..arm(id, label, None) };
    vec![
        arm("native", "Native", Some("native")),
        arm("docker", "Docker", Some("docker:net=host")),
        without("kvm", "KVM"),
        ArmReport {
            note: Some("vCPUs pinned, cache topology exposed".into()),
            ..without("kvm-tuned", "KVM (tuned)")
        },
        ArmReport { today: true, ..arm("lxc", "LXC", Some("lxc")) },
    ]
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

/// Published and measured, with the overheads of both.
pub fn both(
    published: PublishedNumber,
    there: Option<(f64, Option<f64>)>,
    measured: MeasuredNumber,
    here: Option<(f64, f64, Grade)>,
) -> StudyCell {
    StudyCell {
        published: Some(published),
        published_overhead: there.map(|(estimate, half)| around(estimate, half.unwrap_or(0.0))),
        published_overhead_has_interval: there.is_some_and(|(_, half)| half.is_some()),
        measured: Some(measured),
        overhead: here.map(|(estimate, half, _)| around(estimate, half)),
        agreement: here.map(|(.., grade)| grade).filter(|_| there.is_some()),
        ..StudyCell::default()
    }
}

fn only_published(number: PublishedNumber, there: Option<(f64, Option<f64>)>) -> StudyCell {
    StudyCell {
        published: Some(number),
        published_overhead: there.map(|(estimate, half)| around(estimate, half.unwrap_or(0.0))),
        published_overhead_has_interval: there.is_some_and(|(_, half)| half.is_some()),
        ..StudyCell::default()
    }
}

fn only_measured(number: MeasuredNumber, overhead: Option<(f64, f64)>) -> StudyCell {
    StudyCell {
        measured: Some(number),
        overhead: overhead.map(|(estimate, half)| around(estimate, half)),
        ..StudyCell::default()
    }
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
        not_measured: None,
        cells,
    }
}

pub fn view(id: &str, title: &str, form: ViewForm, rows: Vec<RowReport>) -> ViewReport {
    ViewReport {
        id: id.into(),
        title: title.into(),
        form,
        arms_down: false,
        x_label: None,
        y_label: None,
        rows,
    }
}

pub fn experiment(name: &str, title: &str, arms: Vec<ArmReport>, views: Vec<ViewReport>) -> ExperimentReport {
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
    }
}

fn claim(id: &str, says: &str, check: &str, grade: ClaimGrade, seen: Vec<Seen>) -> ClaimReport {
    ClaimReport {
        id: id.into(),
        says: says.into(),
        source: "section III.A, p. 4".into(),
        check: check.into(),
        grade,
        seen,
    }
}

fn seen(what: &str, estimate: f64, half: f64, is_overhead: bool) -> Seen {
    Seen { what: what.into(), estimate, low: estimate - half, high: estimate + half, is_overhead, n: 12 }
}

fn not_run(reason: &str) -> ClaimGrade {
    ClaimGrade::NotRun { not_run: reason.into() }
}

/// A table with rows of quantities, an arm of today, and a stand-in.
fn compression() -> ExperimentReport {
    let there = |estimate, half| Some((estimate, Some(half)));
    let pxz = RowReport {
        stands_in: Some("xz".into()),
        ..row(
            "pxz",
            "PXZ (MB/s)",
            "MB/s",
            Better::Higher,
            vec![
                both(published(76.2, Some((0.93, "sd"))), None, measured(11.42, 0.01, 12), None),
                both(
                    published(73.5, Some((0.64, "sd"))),
                    there(0.0367, 0.011),
                    measured(11.31, 0.012, 12),
                    Some((0.0097, 0.0081, Grade::Holds)),
                ),
                only_published(published(59.2, Some((1.88, "sd"))), there(0.287, 0.031)),
                only_published(published(62.2, Some((1.33, "sd"))), there(0.225, 0.022)),
                only_measured(measured(11.38, 0.011, 12), Some((0.0035, 0.0078))),
            ],
        )
    };
    let lapack = RowReport {
        not_measured: Some("the paper's program is not free; give its path with --param binary=".into()),
        ..row(
            "linpack",
            "Linpack (GFLOPS)",
            "GFLOPS",
            Better::Higher,
            vec![
                only_published(published(290.8, Some((1.13, "sd"))), None),
                only_published(published(290.9, Some((0.98, "sd"))), there(-0.0003, 0.0034)),
                only_published(published(241.3, Some((1.18, "sd"))), there(0.205, 0.004)),
                only_published(published(284.2, Some((1.45, "sd"))), there(0.0232, 0.0041)),
                StudyCell::default(),
            ],
        )
    };
    let mut experiment = experiment(
        "table-1/pxz",
        "Compression of Wikipedia",
        arms(),
        vec![view("table-1", "Table I (PXZ, Linpack)", ViewForm::Table, vec![pxz, lapack])],
    );
    experiment.instead = vec![Instead {
        original: "PXZ 4.999 on 1 GB of Wikipedia".into(),
        here: "xz -T of a generated corpus".into(),
    }];
    experiment.claims = vec![
        claim(
            "docker-pxz",
            "Docker is 4 % slower than native",
            "docker overhead of pxz <= 8 %",
            ClaimGrade::Checked(Grade::Holds),
            vec![seen("docker overhead of pxz", 0.0097, 0.0081, true)],
        ),
        claim(
            "kvm-pxz",
            "KVM is a fifth slower",
            "kvm overhead of pxz >= 15 %",
            not_run(&format!("KVM: {NO_KVM}")),
            Vec::new(),
        ),
        claim(
            "order",
            "native before KVM (tuned) before KVM",
            "native pxz > kvm-tuned > kvm",
            not_run(&format!("KVM (tuned), KVM: {NO_KVM}")),
            Vec::new(),
        ),
    ];
    experiment.remarks =
        vec!["exploratory: 12 blocks are fewer than a standard run has; use --size standard".into()];
    experiment
}

/// A table with arms down; a missing cell, a disagreement, an open one, and an overhead without a
/// spread.
fn network() -> ExperimentReport {
    let missing = StudyCell {
        missing: Some("3 of 12 trials failed: connection reset".into()),
        ..only_published(published(3939.44, None), Some((0.7535, None)))
    };
    let tcp = row(
        "tcp",
        "TCP_STREAM (Mb/s)",
        "Mb/s",
        Better::Higher,
        vec![
            both(published(9413.76, None), None, measured(41_250.0, 0.03, 12), None),
            StudyCell {
                flags: vec!["MIXED".into()],
                ..both(
                    published(9412.0, None),
                    Some((0.0002, None)),
                    measured(30_120.0, 0.04, 12),
                    Some((0.37, 0.03, Grade::Differs)),
                )
            },
            only_published(published(6739.01, None), Some((0.397, None))),
        ],
    );
    let udp = row(
        "udp",
        "UDP_STREAM (Mb/s)",
        "Mb/s",
        Better::Higher,
        vec![
            both(published(6907.98, None), None, measured(12_010.0, 0.2, 12), None),
            missing,
            only_published(published(3153.04, None), Some((1.191, None))),
        ],
    );
    let rr = row(
        "rr",
        "TCP_RR (transactions/s)",
        "transactions/s",
        Better::Higher,
        vec![
            both(published(20_742.36, Some((410.0, "ci95"))), None, measured(31_002.0, 0.05, 12), None),
            both(
                published(16_725.26, Some((220.0, "ci95"))),
                Some((0.24, Some(0.03))),
                measured(26_800.0, 0.09, 12),
                Some((0.157, 0.12, Grade::Undecided { blocks: Some(40) })),
            ),
            only_published(published(10_920.48, Some((99.0, "ci95"))), Some((0.9, Some(0.04)))),
        ],
    );
    let table = ViewReport {
        arms_down: true,
        ..view("table-7", "Table VII (netperf)", ViewForm::Table, vec![tcp, udp, rr])
    };
    let three = arms().into_iter().take(3).collect();
    let mut experiment = experiment("table-7", "Throughput and latency of the network", three, vec![table]);
    experiment.claims = vec![
        claim(
            "docker-tcp",
            "Docker's throughput is the native one",
            "docker tcp within 5 % of native",
            ClaimGrade::Checked(Grade::Differs),
            vec![seen("docker tcp / native tcp", 0.73, 0.016, false)],
        ),
        claim(
            "docker-rr",
            "Docker adds a fifth to a transaction",
            "docker overhead of rr <= 30 %",
            ClaimGrade::Checked(Grade::Undecided { blocks: Some(40) }),
            vec![seen("docker overhead of rr", 0.157, 0.12, true)],
        ),
        claim(
            "cv",
            "Docker varies as much as native",
            "docker cv within 10 % of native",
            ClaimGrade::Checked(Grade::Undecided { blocks: None }),
            vec![seen("docker cv / native cv", 1.2, 0.9, false)],
        ),
    ];
    experiment
}

/// Lines over a sweep, with points that were published at one of them, and one quantity against
/// another.
fn database() -> ExperimentReport {
    let clients = [1.0, 10.0, 100.0];
    let point = |x: f64, quantity: &str, label: &str, unit: &str, better, level: f64| {
        let here = |factor: f64| measured(level * factor, 0.02, 12);
        let cells = if x == 100.0 {
            vec![
                both(
                    published((level * 3.1).round(), Some(((level * 0.05).round(), "sd"))),
                    None,
                    here(1.0),
                    None,
                ),
                both(
                    published((level * 3.0).round(), Some(((level * 0.05).round(), "sd"))),
                    Some((0.033, Some(0.02))),
                    here(0.95),
                    Some((0.052, 0.011, Grade::Holds)),
                ),
                only_published(
                    published((level * 1.4).round(), Some(((level * 0.02).round(), "sd"))),
                    Some((1.21, Some(0.04))),
                ),
            ]
        } else {
            vec![
                only_measured(here(1.0), None),
                only_measured(here(0.95), Some((0.052, 0.011))),
                StudyCell::default(),
            ]
        };
        RowReport {
            point: Some(format!("clients={x}")),
            x: Some(x),
            ..row(quantity, label, unit, better, cells)
        }
    };
    let rate = |x: f64| point(x, "tps", "Throughput (tx/s)", "tx/s", Better::Higher, 4300.0 * x / (x + 12.0));
    let delay = |x: f64| point(x, "delay", "Latency (ms)", "ms", Better::Lower, 0.25 * (x + 12.0));
    let against = |x: f64| {
        let mut row = rate(x);
        for (at, cell) in row.cells.iter_mut().enumerate() {
            let place =
                |known: bool, scale: f64| known.then_some(scale * (x + 12.0) * (1.0 + 0.1 * at as f64));
            cell.x = Some((place(cell.published.is_some(), 0.1), place(cell.measured.is_some(), 0.25)));
        }
        row
    };
    let mut lines = view(
        "fig-10",
        "Throughput and latency against clients",
        ViewForm::Lines,
        clients.into_iter().map(rate).chain(clients.into_iter().map(delay)).collect(),
    );
    lines.x_label = Some("clients".into());
    let mut curve = view(
        "fig-13",
        "Throughput against latency",
        ViewForm::Lines,
        clients.into_iter().map(against).collect(),
    );
    (curve.x_label, curve.y_label) = (Some("latency (ms)".into()), Some("transactions per second".into()));
    let mut experiment = experiment(
        "fig-10",
        "A database under load",
        arms().into_iter().take(3).collect(),
        vec![lines, curve],
    );
    experiment.claims = vec![claim(
        "docker-high",
        "Docker costs little at high concurrency",
        "docker overhead of tps@last <= 8 %",
        ClaimGrade::Checked(Grade::Holds),
        vec![seen("docker overhead of tps@100", 0.052, 0.011, true)],
    )];
    experiment
}

/// Bars, a distribution and five numbers.
fn storage() -> ExperimentReport {
    let bar = |id: &str, label: &str, level: f64| {
        row(
            id,
            label,
            "IOPS",
            Better::Higher,
            vec![
                both(published((level * 1.1).round(), None), None, measured(level * 0.4, 0.05, 12), None),
                both(
                    published((level * 1.09).round(), None),
                    Some((0.009, None)),
                    measured(level * 0.39, 0.05, 12),
                    Some((0.025, 0.04, Grade::Undecided { blocks: Some(25) })),
                ),
                only_published(published((level * 0.55).round(), None), Some((1.0, None))),
            ],
        )
    };
    let quantile = |id: &str, label: &str, level: f64| {
        row(
            id,
            label,
            "µs",
            Better::Lower,
            vec![
                both(
                    published(level, None),
                    None,
                    MeasuredNumber { statistic: label.into(), ..measured(level * 0.7, 0.05, 12) },
                    None,
                ),
                only_measured(measured(level * 0.74, 0.05, 12), Some((0.057, 0.04))),
                only_published(published((level * 2.5).round(), None), Some((1.5, None))),
            ],
        )
    };
    let five = |numbers: [f64; 5]| PublishedNumber { five: Some(numbers), ..published(numbers[2], None) };
    let boxes = RowReport {
        stands_in: Some("block".into()),
        ..row(
            "read",
            "Random read (IOPS)",
            "IOPS",
            Better::Higher,
            vec![
                both(
                    five([27009.0, 29134.0, 29711.0, 30074.0, 30252.0]),
                    None,
                    measured(9120.0, 0.02, 12),
                    None,
                ),
                only_measured(measured(8800.0, 0.03, 12), Some((0.036, 0.012))),
                only_published(five([3448.0, 3565.0, 3892.0, 4064.0, 4152.0]), Some((6.63, None))),
            ],
        )
    };
    let views = vec![
        view(
            "fig-6",
            "Random access",
            ViewForm::Bars,
            vec![bar("rr", "Random read", 84_000.0), bar("rw", "Random write", 110_000.0)],
        ),
        view(
            "fig-7",
            "Latency of reads",
            ViewForm::Cdf,
            vec![
                quantile("p05", "5 %", 90.0),
                quantile("p50", "50 %", 120.0),
                quantile("p95", "95 %", 310.0),
            ],
        ),
        view("table-d", "A day under load", ViewForm::Boxes, vec![boxes]),
    ];
    let mut experiment = experiment("fig-6", "Block storage", arms().into_iter().take(3).collect(), views);
    experiment.instead = vec![Instead {
        original: "a solid-state disk of its own".into(),
        here: "a file on this host's disk".into(),
    }];
    experiment
}

/// An experiment that nothing here can run.
fn density() -> ExperimentReport {
    let without = "libquantum of SPEC CPU 2006 is not free; give its path with --param binary=";
    let rows = vec![row(
        "libquantum",
        "libquantum (s)",
        "s",
        Better::Lower,
        vec![
            only_published(published(10.2, None), None),
            only_published(published(10.4, None), Some((0.0196, None))),
            only_published(published(11.1, None), Some((0.088, None))),
        ],
    )];
    let mut experiment = experiment(
        "fig-1",
        "Density of idle guests",
        arms().into_iter().take(3).collect(),
        vec![view("fig-1", "", ViewForm::Table, rows)],
    );
    (experiment.not_run, experiment.run, experiment.blocks) = (Some(without.into()), None, None);
    experiment.arms.iter_mut().for_each(|arm| (arm.not_run, arm.on) = (Some(without.into()), None));
    experiment.claims = vec![claim(
        "equal",
        "containers and machines degrade alike",
        "kvm libquantum within 9 % of docker",
        not_run(without),
        Vec::new(),
    )];
    experiment
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

/// A study of which nothing was run.
pub fn nothing() -> StudyReport {
    StudyReport { experiments: vec![density()], directory: None, warnings: Vec::new(), ..everything() }
}

/// Names that try to break out of every format.
pub fn hostile() -> StudyReport {
    hostile_of(everything())
}

/// A study with names that try to break out of every format.
pub fn hostile_of(mut report: StudyReport) -> StudyReport {
    let rename = |text: &mut String| *text = format!("{text}{EVIL}");
    let maybe = |text: &mut Option<String>| text.iter_mut().for_each(rename);
    for text in [
        &mut report.name,
        &mut report.title,
        &mut report.authors,
        &mut report.published,
        &mut report.host_then,
        &mut report.host_here,
        &mut report.size,
    ] {
        rename(text);
    }
    report.warnings.iter_mut().take(1).for_each(rename);
    for experiment in &mut report.experiments {
        [
            &mut experiment.name,
            &mut experiment.title,
            &mut experiment.source,
            &mut experiment.statistic,
            &mut experiment.command,
        ]
        .into_iter()
        .for_each(rename);
        maybe(&mut experiment.run);
        maybe(&mut experiment.not_run);
        experiment.remarks.iter_mut().for_each(rename);
        for arm in &mut experiment.arms {
            [&mut arm.id, &mut arm.label].into_iter().for_each(rename);
            [&mut arm.on, &mut arm.not_run, &mut arm.note].into_iter().for_each(maybe);
        }
        experiment
            .instead
            .iter_mut()
            .for_each(|one| [&mut one.original, &mut one.here].into_iter().for_each(rename));
        for claim in &mut experiment.claims {
            [&mut claim.id, &mut claim.says, &mut claim.source, &mut claim.check]
                .into_iter()
                .for_each(rename);
            claim.seen.iter_mut().for_each(|seen| rename(&mut seen.what));
            if let ClaimGrade::NotRun { not_run } = &mut claim.grade {
                rename(not_run);
            }
        }
        for view in &mut experiment.views {
            [&mut view.id, &mut view.title].into_iter().for_each(rename);
            [&mut view.x_label, &mut view.y_label].into_iter().for_each(maybe);
            for row in &mut view.rows {
                [&mut row.quantity, &mut row.label, &mut row.unit].into_iter().for_each(rename);
                [&mut row.point, &mut row.not_measured].into_iter().for_each(maybe);
                for cell in &mut row.cells {
                    maybe(&mut cell.missing);
                    cell.flags.iter_mut().for_each(rename);
                    cell.published.iter_mut().for_each(|number| rename(&mut number.source));
                    cell.measured.iter_mut().for_each(|number| rename(&mut number.statistic));
                }
            }
        }
    }
    report
}

pub fn all() -> Vec<(&'static str, StudyReport)> {
    vec![("everything", everything()), ("nothing", nothing())]
}

/// A study in a format.
pub fn whole(report: &StudyReport, format: Format) -> String {
    render_study(report, format, &Options { width: 120, color: false, unicode: true, gate: None })
        .expect("no study fails")
}

/// A study in a format; the page without what is the same in every page.
pub fn text(report: &StudyReport, format: Format) -> String {
    let text = whole(report, format);
    if format == Format::Html { super::without_code(&text) } else { text }
}

pub fn table(report: &StudyReport, width: usize) -> String {
    render_study(report, Format::Table, &Options { width, color: false, unicode: true, gate: None })
        .expect("no study fails")
}
