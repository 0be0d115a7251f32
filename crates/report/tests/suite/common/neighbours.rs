//! Made-up runs of guests among neighbours and of a day: neighbours that spin and neighbours that
//! do nothing, of each environment, weights, guests that could not be started, a drift and a step.

use super::{Shape, analysed, comparison, metric, plan, rate, run, shape};
use weigh_model::{
    Better, Comparison, Effort, Load, NeighbourKind, Neighbours, Plan, Record, Shares, Trial, WorkloadKey,
    neighbours,
};
use weigh_report::Report;
use weigh_stats::{CellFlag, Flag, Options, RunFacts, analyse, courses, degradations, isolations, sums};

const ENVIRONMENTS: [&str; 3] = ["native", "docker:net=host", "qemu:accel=kvm"];
const BLOCKS: u32 = 12;
const NO_MEMORY: &str = "11 of 16 guests were up: 498 MiB of memory were left, of which 512 MiB are kept";

fn id(workload: &str, params: &[(&str, String)]) -> String {
    let words: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{workload}{{{}}}", words.join(","))
}

/// A metric of `spin` among this many guests. The effects are the costs of the environments
/// relative to the level, less 1.
fn of(
    name: &str,
    guests: u32,
    kind: Option<(&str, Shares)>,
    level: f64,
    effects: [f64; 3],
    noise: f64,
) -> Comparison {
    let mut params = vec![(neighbours::GUESTS, guests.to_string())];
    if let Some((kind, shares)) = kind {
        params.push((neighbours::NEIGHBOURS, kind.to_string()));
        if shares != Shares::Equal {
            params.push((neighbours::SHARES, shares.to_string()));
        }
    }
    let shapes: Vec<Shape> =
        ENVIRONMENTS.iter().zip(effects).map(|(name, effect)| shape(name, effect, noise)).collect();
    let (unit, better) = match name {
        "time" => ("s", Better::Lower),
        neighbours::NEIGHBOURS_CPU => ("CPU", Better::Lower),
        neighbours::UP => ("guest", Better::Higher),
        neighbours::JAIN | neighbours::LEAST_TO_MOST => ("1", Better::Higher),
        _ => ("op/s", Better::Higher),
    };
    let primary = name == "time" || name == neighbours::SUM;
    let mut made =
        comparison(&id("spin", &params), metric(name, unit, better, primary), level, BLOCKS, &shapes);
    made.key = WorkloadKey {
        params: params.into_iter().map(|(key, value)| (key.to_string(), value)).collect(),
        guests: Some(guests),
        neighbours: kind.map(|(load, shares)| NeighbourKind {
            load: load.to_string().into(),
            shares,
            environment: None,
        }),
        ..WorkloadKey::named("spin")
    };
    made
}

/// The same beside neighbours of an environment that the plan names.
fn of_beside(name: &str, guests: u32, (kind, beside): (&str, &str), effects: [f64; 3]) -> Comparison {
    let plain = of(name, guests, Some((kind, Shares::Equal)), 1.0, effects, 0.01);
    let mut key = plain.key;
    key.params.insert(neighbours::BESIDE.into(), beside.into());
    key.neighbours.as_mut().expect("neighbours").environment = Some(beside.into());
    Comparison { workload: key.to_string(), key, ..plain }
}

/// Adds the neighbours to the workloads of a plan, as their parameters name them.
fn plan_neighbours(plan: &mut Plan) {
    for workload in &mut plan.workloads {
        let guests = workload.params[neighbours::GUESTS].parse().expect("a number");
        let shares =
            workload.params.get(neighbours::SHARES).and_then(|word| Shares::parse(word)).unwrap_or_default();
        let load = match workload.params.get(neighbours::NEIGHBOURS).map(String::as_str) {
            Some("same") => Load::Same,
            Some(name @ ("cpu" | "io")) => {
                Load::Again { name: name.into(), command: vec!["weigh-kernels".into(), name.into()] }
            }
            _ => Load::Idle,
        };
        let environment = workload.params.get(neighbours::BESIDE).cloned();
        workload.neighbours = Some(Neighbours { guests, load, shares, environment, stay: false });
    }
}

/// Two CPUs and up to sixteen guests: more parameters would only add rows of the same kinds.
pub fn density() -> Report {
    let alone = [0.0, 0.01, 0.06];
    let mut all = vec![of("time", 1, None, 1.0, alone, 0.01)];
    for guests in [2, 4, 8, 16] {
        let slow = (f64::from(guests) / 2.0).max(1.0);
        let among = |kind: &str, shares: Shares, slow: f64, worse: [f64; 3]| {
            let effects = [0, 1, 2].map(|e| (1.0 + alone[e]) * (1.0 + worse[e]) - 1.0);
            let mut time = of("time", guests, Some((kind, shares)), slow, effects, 0.01);
            let mut up = of(neighbours::UP, guests, Some((kind, shares)), f64::from(guests), [0.0; 3], 0.0);
            for observation in up.series.iter_mut().flat_map(|series| &mut series.observations) {
                observation.value = f64::from(guests);
            }
            if guests == 16 {
                time.series[2].observations.clear();
                up.series[2].observations.iter_mut().for_each(|observation| observation.value = 11.0);
            }
            [time, up]
        };
        all.extend(among("idle", Shares::Equal, 1.0, [0.0, 0.001, 0.01 * f64::from(guests)]));
        all.extend(among("cpu", Shares::Equal, slow, [0.02, 0.03, 0.12]));
        let (cpu, same) = (Some(("cpu", Shares::Equal)), Some(("same", Shares::Equal)));
        let used = f64::from(guests - 1) / slow.max(1.0);
        all.push(of(neighbours::NEIGHBOURS_CPU, guests, cpu, used, [0.0; 3], 0.002));
        all.extend(among("cpu", Shares::Weights, 1.0 + 0.05 * slow, [0.0, 0.0, 0.04]));
        all.extend(among("same", Shares::Equal, slow, [0.02, 0.025, 0.1]));
        let machine = 0.1 + 0.01 * f64::from(guests);
        let mut sum = of(neighbours::SUM, guests, same, 2.0, [0.02, 0.03, machine], 0.01);
        let mut jain = of(neighbours::JAIN, guests, same, 0.99, [0.0, 0.001, 0.05], 0.001);
        let mut least = of(neighbours::LEAST_TO_MOST, guests, same, 0.93, [0.0, 0.01, 0.2], 0.01);
        for comparison in [&mut sum, &mut jain, &mut least] {
            let most = if comparison.metric.name == neighbours::SUM { f64::INFINITY } else { 1.0 };
            for observation in comparison.series.iter_mut().flat_map(|series| &mut series.observations) {
                observation.value = observation.value.min(most);
            }
            if guests == 16 {
                comparison.series[2].observations.clear();
            }
        }
        all.extend([sum, jain, least]);
    }
    let mut plan = plan("density", &ENVIRONMENTS, &all, Effort::Fixed { blocks: BLOCKS });
    plan_neighbours(&mut plan);
    let mut options = Options::for_plan(&plan);
    let lacking = all.iter().filter(|comparison| comparison.series[2].observations.is_empty());
    options.flags = lacking
        .map(|comparison| CellFlag {
            workload: Some(comparison.workload.clone()),
            metric: Some(comparison.metric.name.clone()),
            environment: ENVIRONMENTS[2].into(),
            flag: Flag::Absent,
            reason: Some(NO_MEMORY.into()),
        })
        .collect();
    let known = RunFacts { cpus: Some(2), flags: &options.flags, failures: &[] };
    let mut rate = of(neighbours::SUM, 1, None, 1.0, alone, 0.01);
    rate.metric.primary = true;
    let (degradations, isolations) = (degradations(&all, &known), isolations(&all));
    let sums = sums(&all, &[rate], &known);
    let title = "weigh density spin --on native,docker,qemu";
    let analysis = analyse(&all, &options);
    let report = run(title, "20260301T170000Z-density", plan, analysis, BLOCKS, "12 blocks");
    Report { degradations, isolations, sums, ..report }
}

/// Three environments beside each other. The machine is disturbed least; beside machines that do I/O
/// the container could not be measured.
pub fn interference() -> Report {
    let alone = [0.0, 0.01, 0.06];
    let mut all = vec![of("time", 1, None, 1.0, alone, 0.01)];
    for (kind, worse) in [("cpu", [0.9, 0.95, 0.5]), ("io", [0.2, 0.04, 0.01])] {
        for (at, beside) in ENVIRONMENTS.into_iter().enumerate() {
            let more = 1.0 + 0.5 * at as f64;
            let effects = [0, 1, 2].map(|e| (1.0 + alone[e]) * (1.0 + more * worse[e]) - 1.0);
            let mut time = of_beside("time", 4, (kind, beside), effects);
            if (kind, at) == ("io", 2) {
                time.series[1].observations.clear();
            }
            all.push(time);
        }
    }
    let mut plan = plan("density", &ENVIRONMENTS, &all, Effort::Fixed { blocks: BLOCKS });
    plan_neighbours(&mut plan);
    let mut options = Options::for_plan(&plan);
    options.flags = vec![CellFlag {
        workload: all.last().map(|comparison| comparison.workload.clone()),
        metric: Some("time".into()),
        environment: ENVIRONMENTS[1].into(),
        flag: Flag::Absent,
        reason: Some("1 of 4 guests were up: the machine did not start".into()),
    }];
    let known = RunFacts { cpus: Some(2), flags: &options.flags, failures: &[] };
    let (degradations, isolations) = (degradations(&all, &known), isolations(&all));
    let title = "weigh density spin --on native,docker,qemu --beside native,docker,qemu";
    let analysis = analyse(&all, &options);
    let report = run(title, "20260301T180000Z-interference", plan, analysis, BLOCKS, "12 blocks");
    Report { degradations, isolations, ..report }
}

/// A day with a block every quarter of an hour: docker is slower from the sixtieth block on, qemu
/// drifts.
pub fn soak() -> Report {
    const QUARTERS: u32 = 96;
    let [native, docker, qemu] = ENVIRONMENTS;
    let shapes = [shape(native, 0.0, 0.01), shape(docker, 0.02, 0.01), shape(qemu, 0.1, 0.02)];
    let mut system = comparison("lu", rate("rate", "GFLOPS", true), 12e9, QUARTERS, &shapes);
    for observation in &mut system.series[1].observations {
        if observation.block >= Some(60) {
            observation.value *= 0.85;
        }
    }
    for observation in &mut system.series[2].observations {
        observation.value *= (-0.004 * f64::from(observation.block.unwrap_or(0)) / 4.0).exp();
    }
    let short = comparison("fio", rate("random_read", "IOPS", true), 4000.0, 40, &shapes[..2]);
    let all = [system, short];
    let plan = plan("soak", &ENVIRONMENTS, &all, Effort::Lasting { seconds: 86_400.0 });
    let trial = |block: u32, workload: &str, at: usize| {
        Record::Trial(Trial {
            block,
            workload: workload.into(),
            environment: ENVIRONMENTS[at].into(),
            host: "h".into(),
            host_started_ns: u64::from(block * 900 + at as u32 * 100) * 1_000_000_000,
            ..Trial::default()
        })
    };
    let records: Vec<Record> = (0..QUARTERS)
        .flat_map(|block| (0..3).flat_map(move |at| ["lu", "fio"].map(|workload| trial(block, workload, at))))
        .collect();
    let analysis = analysed(&all, &plan);
    let courses = courses(&records, &all);
    let title = "weigh soak --for 24h --on native,docker,qemu";
    let report = run(title, "20260301T180000Z-soak", plan, analysis, 1, "for 24 h");
    Report { courses, blocks_done: Some(40), ..report }
}
