//! Workloads in a guest with neighbours: the plans of `weigh density`, and the loads of neighbours.

use crate::start::metric;
use std::collections::BTreeMap;
use weigh_model::{
    Better, Extraction, Load, MetricSource, Neighbours, Shares, Unit, WorkloadKey, WorkloadPlan, neighbours,
};

/// Every load by its word, in the order in which help shows them.
pub const LOADS: [&str; 5] = ["idle", "cpu", "io", "http", "same"];

/// Steps of one run of the load `cpu`: a fifth of a second of one thread on an ordinary machine, so
/// that runs are counted finely and the time between two of them is a few per cent at most.
const STEPS: &str = "100000000";
/// The load `io`: number of files, their average size in bytes, and operations of one run. 4 MiB
/// are written and read repeatedly.
const FILES: (&str, &str, &str) = ("64", "65536", "2000");
/// Bytes of a response body of the load `http`: the default size of the workload nginx.
const BODY_BYTES: &str = "1024";
/// Connections of each client of the load `http`, enough that its server is never idle.
const CLIENTS: &str = "4";
/// Seconds of one run of a client of the load `http`, after which it reports and starts over.
const CLIENT_S: &str = "0.5";
/// Rough time to launch one neighbour, seconds: that of a container.
const LAUNCH_S: f64 = 0.1;

/// Returns the load of this name, if there is one.
pub fn load(word: &str) -> Option<Load> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
    let again = |command: &[&str]| Load::Again { name: word.into(), command: words(command) };
    let (files, bytes, operations) = FILES;
    match word {
        "idle" => Some(Load::Idle),
        "cpu" => Some(again(&["weigh-kernels", "spin", "--work", STEPS])),
        "io" => Some(again(&[
            "weigh-kernels",
            "fileserver",
            "--directory",
            "{scratch}",
            "--files",
            files,
            "--file-bytes",
            bytes,
            "--threads",
            "1",
            "--warmup",
            "0",
            "--operations",
            operations,
        ])),
        "http" => Some(Load::Serve {
            name: word.into(),
            server: words(&[
                "weigh-kernels",
                "null-server",
                "--protocol",
                "http",
                "--listen",
                "{listen}:{port}",
                "--body-bytes",
                BODY_BYTES,
            ]),
            client: words(&[
                "weigh-kernels",
                "load",
                "--protocol",
                "http",
                "--connect",
                "{address}:{port}",
                "--body-bytes",
                BODY_BYTES,
                "--clients",
                CLIENTS,
                "--seconds",
                CLIENT_S,
                "--warmup-seconds",
                "0",
            ]),
        }),
        "same" => Some(Load::Same),
        _ => None,
    }
}

/// Makes the workload in a guest with these neighbours, or alone if there is one guest. Its id says
/// how many guests there are, what the neighbours do and, if they name it, what their environment
/// is, as in `spin{guests=8,neighbours=cpu}` and `spin{beside=runc,guests=8,neighbours=cpu}`. In
/// addition to its own metrics it has those of [`weigh_model::neighbours`] that apply.
pub fn with_neighbours(mut plan: WorkloadPlan, neighbours: Neighbours) -> WorkloadPlan {
    let Neighbours { guests, load, shares, environment, .. } = &neighbours;
    let (guests, alone) = (*guests, *guests <= 1);
    let mut added = BTreeMap::from([(neighbours::GUESTS, guests.to_string())]);
    if !alone {
        added.insert(neighbours::NEIGHBOURS, load.kind().to_string());
        if *shares != Shares::Equal {
            added.insert(neighbours::SHARES, shares.to_string());
        }
        if let Some(environment) = environment {
            added.insert(neighbours::BESIDE, environment.clone());
        }
        plan.metrics.extend(metrics(load));
        let works = *load != Load::Idle;
        if works {
            // All of them may have to share one CPU.
            plan.deadline_s *= f64::from(guests);
        }
        let runs = f64::from((plan.warmup + plan.iterations).max(1));
        let slower = if works { f64::from(guests) } else { 1.0 };
        plan.expected_s = plan.expected_s.map(|s| s * slower + LAUNCH_S * f64::from(guests - 1) / runs);
    } else {
        plan.metrics.push(up());
    }
    plan.id = id_with(&plan, &added);
    plan.params.extend(added.into_iter().map(|(name, value)| (name.to_string(), value)));
    // The pilot would choose another number of runs for each number of guests.
    plan.trial_s = None;
    plan.neighbours = Some(neighbours);
    plan
}

/// The workload as a neighbour runs it: without the metrics that exist only with neighbours.
pub fn without_neighbours(plan: &WorkloadPlan) -> WorkloadPlan {
    let mut own = WorkloadPlan { neighbours: None, ..plan.clone() };
    own.metrics.retain(|metric| metric.from != Extraction::Stamp);
    own
}

/// The id with further parameters in its braces, all in alphabetical order.
fn id_with(plan: &WorkloadPlan, added: &BTreeMap<&str, String>) -> String {
    let name = WorkloadKey::of(plan).name;
    let inner = plan.id[name.len()..].strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let shown = inner.into_iter().flat_map(|inner| inner.split(',')).map(str::to_string);
    let mut shown: Vec<String> =
        shown.chain(added.iter().map(|(name, value)| format!("{name}={value}"))).collect();
    shown.sort();
    format!("{name}{{{}}}", shown.join(","))
}

/// Metrics that a trial with neighbours has in addition to the workload's own.
fn metrics(load: &Load) -> Vec<MetricSource> {
    let rate = || Unit::normalise("op/s").0;
    let ratio = || Unit::normalise("1").0;
    let mut all = vec![up()];
    if *load != Load::Idle {
        all.push(metric(neighbours::NEIGHBOURS_CPU, Unit::normalise("CPU").0, Better::Lower, false));
    }
    match load {
        Load::Idle => {}
        Load::Again { .. } | Load::Serve { .. } => {
            all.push(metric(neighbours::NEIGHBOURS_RATE, rate(), Better::Higher, false));
        }
        Load::Same => all.extend([
            metric(neighbours::SUM, rate(), Better::Higher, true),
            metric(neighbours::JAIN, ratio(), Better::Higher, false),
            metric(neighbours::LEAST_TO_MOST, ratio(), Better::Higher, false),
        ]),
    }
    all
}

fn up() -> MetricSource {
    metric(neighbours::UP, Unit::normalise("guest").0, Better::Higher, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Library, command_workload};
    use weigh_model::HostFacts;

    fn spin(params: &[(&str, &[&str])]) -> Vec<WorkloadPlan> {
        let given = params
            .iter()
            .map(|(name, values)| ((*name).into(), values.iter().map(|value| (*value).into()).collect()))
            .collect();
        let host: HostFacts = crate::library::tests::host(None);
        Library::load(&[], &[]).unwrap().get("spin").unwrap().plan("quick", &given, &host).unwrap()
    }

    fn with(guests: u32, word: &str, shares: Shares) -> Neighbours {
        Neighbours { guests, load: load(word).unwrap(), shares, environment: None, stay: false }
    }

    fn names(plan: &WorkloadPlan) -> Vec<(&str, bool)> {
        plan.metrics.iter().map(|m| (m.spec.name.as_str(), m.spec.primary)).collect()
    }

    #[test]
    fn every_word_has_its_load() {
        for word in LOADS {
            assert_eq!(load(word).unwrap().kind().to_string(), word);
        }
        assert_eq!(load("disk"), None);
        let Some(Load::Again { command, .. }) = load("io") else { panic!() };
        assert!(command.contains(&"{scratch}".to_string()), "its files go with the guest");
        let Some(Load::Serve { server, client, .. }) = load("http") else { panic!() };
        assert!(server.contains(&"{listen}:{port}".to_string()), "{server:?}");
        assert!(client.contains(&"{address}:{port}".to_string()), "{client:?}");
    }

    #[test]
    fn ids_hold_the_kind_and_number_of_neighbours() {
        let plan = &spin(&[])[0];
        let alone = with_neighbours(plan.clone(), with(1, "idle", Shares::Equal));
        assert_eq!((alone.id.as_str(), alone.params.len()), ("spin{guests=1}", 1));
        assert_eq!((alone.expected_s, alone.deadline_s), (plan.expected_s, plan.deadline_s));
        let eight = with_neighbours(plan.clone(), with(8, "cpu", Shares::Equal));
        assert_eq!(eight.id, "spin{guests=8,neighbours=cpu}");
        assert_eq!(eight.params[neighbours::NEIGHBOURS], "cpu");
        assert_eq!(eight.deadline_s, 8.0 * plan.deadline_s, "eight may share one CPU");
        assert!(eight.expected_s > plan.expected_s.map(|s| s * 8.0), "they have to come up, too");
        let weighted = with_neighbours(plan.clone(), with(2, "idle", Shares::Weights));
        assert_eq!(weighted.id, "spin{guests=2,neighbours=idle,shares=weights}");
        assert_eq!(weighted.deadline_s, plan.deadline_s);
    }

    #[test]
    fn ids_hold_the_environment_of_the_neighbours_where_it_is_named() {
        let plan = &spin(&[])[0];
        let of = |guests, name: &str| {
            let neighbours =
                Neighbours { environment: Some(name.into()), ..with(guests, "cpu", Shares::Equal) };
            with_neighbours(plan.clone(), neighbours)
        };
        let four = of(4, "qemu:accel=kvm,net=nat");
        assert_eq!(four.id, "spin{beside=qemu:accel=kvm,net=nat,guests=4,neighbours=cpu}");
        assert_eq!(four.params[neighbours::BESIDE], "qemu:accel=kvm,net=nat");
        let key = WorkloadKey::of(&four);
        assert_eq!((key.name.as_str(), key.without_guests().to_string().as_str()), ("spin", "spin"));
        assert_eq!(of(1, "runc").id, "spin{guests=1}", "a guest alone is beside nobody");
    }

    #[test]
    fn swept_parameters_and_commands_keep_their_ids() {
        let swept = &spin(&[("work", &["5e6", "5e7"])])[1];
        let eight = with_neighbours(swept.clone(), with(8, "same", Shares::Equal));
        assert_eq!(eight.id, "spin{guests=8,neighbours=same,work=5e7}");
        let command = command_workload(&["awk".into(), "{print}".into()]);
        let two = with_neighbours(command, with(2, "idle", Shares::Equal));
        assert_eq!(two.id, "awk {print}{guests=2,neighbours=idle}");
        assert_eq!((two.iterations, two.trial_s), (3, None), "the same beside any number of guests");
    }

    #[test]
    fn metrics_follow_from_the_work_of_the_neighbours() {
        let plan = &spin(&[])[0];
        let of = |guests, word| with_neighbours(plan.clone(), with(guests, word, Shares::Equal));
        let own = names(plan);
        let added = |plan: &WorkloadPlan| -> Vec<String> {
            names(plan)[own.len()..].iter().map(|(name, _)| (*name).to_string()).collect()
        };
        assert_eq!(added(&of(1, "idle")), [neighbours::UP]);
        assert_eq!(added(&of(2, "idle")), [neighbours::UP]);
        assert_eq!(
            added(&of(2, "http")),
            [neighbours::UP, neighbours::NEIGHBOURS_CPU, neighbours::NEIGHBOURS_RATE]
        );
        let same = of(2, "same");
        assert_eq!(added(&same)[2..], [neighbours::SUM, neighbours::JAIN, neighbours::LEAST_TO_MOST]);
        let primary: Vec<&str> = names(&same).iter().filter(|(_, p)| *p).map(|(name, _)| *name).collect();
        assert_eq!(primary, ["duration", neighbours::SUM]);
        let own = without_neighbours(&same);
        assert_eq!((own.metrics, own.neighbours), (plan.metrics.clone(), None));
        assert_eq!(
            serde_json::from_str::<WorkloadPlan>(&serde_json::to_string(&same).unwrap()).unwrap(),
            same
        );
    }
}
