//! Guests among others, in words: what neighbours cost, how many a guest bears, how they share, how
//! well it is shielded.

use crate::Report;
use crate::limits::{LimitRow, LimitTable};
use crate::quantity::{Effect, Scale, plain_percent};
use crate::text::join;
use weigh_model::{LoadKind, MetricSpec, Shares, WorkloadKey};
use weigh_stats::{
    Degradation, DegradationStep, Evenness, Interval, Isolation, Knee, Reference, Sum, SumStep,
};

/// From this loss on it is told as a factor: +290 % is hard to read.
const FACTOR_FROM: f64 = 1.0;

/// All tables, in the order in which they are read.
pub(crate) fn tables(report: &Report) -> Vec<LimitTable> {
    let mut tables = knees(report);
    tables.extend(losses(report));
    tables.extend(sums(report));
    tables.extend(isolations(report));
    tables
}

/// Neighbours by what they do, in words.
pub(crate) fn neighbours(count: u32, load: &LoadKind) -> String {
    let s = if count == 1 { "" } else { "s" };
    match load {
        LoadKind::Idle => format!("{count} idle neighbour{s}"),
        LoadKind::Same => {
            format!("{count} neighbour{s} that run{} it too", if count == 1 { "s" } else { "" })
        }
        LoadKind::Named(name) => match name.as_str() {
            "cpu" => format!("{count} spinning neighbour{s}"),
            "io" => format!("{count} neighbour{s} doing I/O"),
            "http" => format!("{count} neighbour{s} serving HTTP"),
            other => format!("{count} neighbour{s} ({other})"),
        },
    }
}

/// A workload with its own parameters and a metric.
fn subject(workload: &WorkloadKey, metric: &str) -> String {
    format!("{workload} {metric}")
}

/// How much more, as per cent or as a factor, with its interval.
pub(crate) fn more(loss: Interval) -> String {
    if loss.estimate < FACTOR_FROM {
        let effect = Effect::new(loss.estimate, loss.low, loss.high);
        return join(&format!("{} {}", effect.estimate, effect.interval));
    }
    join(&format!("×{}", times(loss.map(|loss| 1.0 + loss))))
}

/// A factor with its interval; decimals follow its width.
pub(crate) fn times(amount: Interval) -> String {
    let half = (amount.high - amount.low) / 2.0;
    let decimals = if half > 0.0 && half.is_finite() {
        (-(half / 3.0).log10().floor()).clamp(0.0, 4.0) as usize
    } else {
        2
    };
    let number = |x: f64| format!("{x:.decimals$}");
    format!("{} [{}, {}]", number(amount.estimate), number(amount.low), number(amount.high))
}

/// A value with the unit of a metric.
pub(crate) fn value(metric: &MetricSpec, value: f64) -> String {
    Scale::new(&metric.unit, [value], None).format(value)
}

/// How many guests are borne, in a clause.
pub(crate) fn knee(knee: &Knee, most: u32) -> String {
    let margin = join(&plain_percent(knee.margin));
    let mut words = vec![match (knee.within, knee.beyond) {
        (within, None) if within == most => {
            format!("within {margin} up to {within} guests, the most measured")
        }
        (1, _) => format!("certainly within {margin} only alone"),
        (within, _) => format!("within {margin} up to {within} guests"),
    }];
    if let Some(beyond) = knee.beyond {
        words.push(format!("certainly beyond from {beyond}"));
    }
    if !knee.undecided.is_empty() {
        words.push(format!("undecided at {}", list(&knee.undecided)));
    }
    words.join(", ")
}

fn list(counts: &[u32]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn same_subject(one: &Degradation, other: &Degradation) -> bool {
    one.key == other.key && one.metric == other.metric
}

/// Title of a table of losses.
pub(crate) fn loss_title(one: &Degradation) -> String {
    let subject = subject(&one.key, &one.metric.name);
    format!("{subject} among neighbours: {}", one.neighbours)
}

/// Title of a table of sums.
pub(crate) fn sum_title(one: &Sum) -> String {
    let shares = if one.shares == Shares::Equal { String::new() } else { format!(" ({})", one.shares) };
    format!("{} of all guests, which all run it{shares}", subject(&one.key, "sum"))
}

/// Title of a table of isolation.
pub(crate) fn isolation_title(one: &Isolation) -> String {
    let subject = subject(&one.key, &one.metric.name);
    let s = if one.guests == 2 { "" } else { "s" };
    format!("{subject}: isolation from {} neighbour{s}", one.guests.saturating_sub(1))
}

/// How many guests each environment bears, one table per workload and metric.
fn knees(report: &Report) -> Vec<LimitTable> {
    let all = &report.degradations;
    let mut tables = Vec::new();
    for (at, first) in all.iter().enumerate() {
        if all[..at].iter().any(|before| same_subject(before, first)) {
            continue;
        }
        let of = all.iter().filter(|one| same_subject(one, first));
        let row = |one: &Degradation| {
            let knee = one.knee.as_ref()?;
            let beyond = knee.beyond.map_or("not seen".into(), |beyond| beyond.to_string());
            Some(LimitRow {
                environment: one.environment.clone(),
                cells: vec![
                    one.neighbours.to_string(),
                    knee.within.to_string(),
                    beyond,
                    list(&knee.undecided),
                ],
                remark: None,
            })
        };
        let rows: Vec<LimitRow> = of.filter_map(row).collect();
        if rows.is_empty() {
            continue;
        }
        let margin = plain_percent(Knee::MARGIN);
        tables.push(LimitTable {
            title: format!("{}: how many guests are borne", subject(&first.key, &first.metric.name)),
            note: format!(
                "guests in all, against the same environment alone in the same block; within: the most up to which every whole 95 % interval of \
                 the loss stays at or below {margin}; beyond: the fewest from which every one lies above it; undecided: what lies between, \
                 failed or could not be measured; no verdicts, and nothing is fitted"
            ),
            first: "environment",
            columns: ["neighbours", "within up to", "beyond from", "undecided"].map(String::from).to_vec(),
            rows,
        });
    }
    tables
}

/// What is lost at each number of guests, one table per kind of neighbours.
fn losses(report: &Report) -> Vec<LimitTable> {
    let all = &report.degradations;
    let same = |one: &Degradation, other: &Degradation| {
        same_subject(one, other) && one.neighbours == other.neighbours
    };
    let mut tables = Vec::new();
    for (at, first) in all.iter().enumerate() {
        if all[..at].iter().any(|before| same(before, first)) {
            continue;
        }
        let of: Vec<&Degradation> = all.iter().filter(|one| same(one, first)).collect();
        let fair = of.iter().flat_map(|one| &one.steps).any(|step| step.fair.is_some());
        let rows = of.iter().flat_map(|one| loss_rows(one, fair)).collect();
        tables.push(loss_table(first, fair, rows));
    }
    tables
}

fn loss_table(one: &Degradation, fair: bool, rows: Vec<LimitRow>) -> LimitTable {
    let mut columns: Vec<String> = ["guests", "median", "against alone"].map(String::from).to_vec();
    if one.cpus.is_some() {
        columns.insert(1, "guests per CPU".into());
    }
    if fair {
        columns.push("an equal share leaves".into());
    }
    columns.push("n".into());
    let weights = match one.neighbours.shares {
        Shares::Weights => {
            format!("; the measured guest has {} times the weight of a neighbour", Shares::WEIGHT)
        }
        _ => String::new(),
    };
    let fair = match one.cpus.filter(|_| fair) {
        Some(cpus) => format!(
            "; what an equal share of the {cpus} CPUs leaves is context, told where neighbours use theirs up, and never graded"
        ),
        None => String::new(),
    };
    LimitTable {
        title: loss_title(one),
        note: format!(
            "cost over that of the same environment alone in the same block, mean with its 95 % interval over blocks; + and × above 1 are \
             worse{fair}{weights}"
        ),
        first: "environment",
        columns,
        rows,
    }
}

fn loss_rows(one: &Degradation, has_fair: bool) -> Vec<LimitRow> {
    let row = |guests: String,
               per_cpu: Option<f64>,
               median: Option<f64>,
               loss: String,
               fair: Option<f64>,
               n: String| {
        let mut cells =
            vec![guests, median.map_or("not measured".into(), |median| value(&one.metric, median)), loss];
        if one.cpus.is_some() {
            cells.insert(1, per_cpu.map(per).unwrap_or_default());
        }
        if has_fair {
            cells.push(fair.map(|fair| plain_percent((fair * 1000.0).round() / 1000.0)).unwrap_or_default());
        }
        cells.push(n);
        cells
    };
    let alone = LimitRow {
        environment: one.environment.clone(),
        cells: row(
            "alone".into(),
            one.cpus.map(|cpus| 1.0 / f64::from(cpus)),
            one.alone,
            String::new(),
            None,
            String::new(),
        ),
        remark: None,
    };
    let step = |step: &DegradationStep| LimitRow {
        environment: one.environment.clone(),
        cells: row(
            guests(step.guests, step.up),
            step.guests_per_cpu,
            step.median,
            step.loss.map(more).unwrap_or_default(),
            step.fair,
            step.n.to_string(),
        ),
        remark: remark(step),
    };
    std::iter::once(alone).chain(one.steps.iter().map(step)).collect()
}

/// Guests over CPUs.
fn per(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// As many as asked for, and how many came up where they are fewer.
fn guests(asked: u32, up: Option<u32>) -> String {
    match up.filter(|up| *up < asked) {
        Some(up) => join(&format!("{asked} ({up} up)")),
        None => asked.to_string(),
    }
}

/// What has to be known of a step.
fn remark(step: &DegradationStep) -> Option<String> {
    if let Some(lack) = reached(step.guests, step.up, step.lack.as_deref()) {
        return Some(lack);
    }
    (!step.sound && step.loss.is_some()).then(|| {
        format!(
            "{} guests: trials failed or values were unusable, here or alone, so nothing is certain",
            step.guests
        )
    })
}

/// The number of guests reached, with the reason.
fn reached(asked: u32, up: Option<u32>, lack: Option<&str>) -> Option<String> {
    let fewer = up.filter(|up| *up < asked).map(|up| format!("{up} of {asked} guests were up"));
    match (fewer, lack) {
        (Some(fewer), Some(lack)) if lack.starts_with(&fewer) => Some(lack.into()),
        (Some(fewer), Some(lack)) => Some(format!("{fewer}: {lack}")),
        (Some(fewer), None) => Some(fewer),
        (None, Some(lack)) => Some(format!("{asked} guests: {lack}")),
        (None, None) => None,
    }
}

fn sums(report: &Report) -> Vec<LimitTable> {
    let mut tables: Vec<(LimitTable, &Sum)> = Vec::new();
    for one in &report.sums {
        let same = |(_, first): &&mut (LimitTable, &Sum)| first.key == one.key && first.shares == one.shares;
        let rows = one.steps.iter().map(|step| sum_row(one, step));
        match tables.iter_mut().find(same) {
            Some((table, _)) => table.rows.extend(rows),
            None => {
                let rows = rows.collect();
                tables.push((sum_table(one, rows), one));
            }
        }
    }
    tables.into_iter().map(|(table, _)| table).collect()
}

fn sum_table(one: &Sum, rows: Vec<LimitRow>) -> LimitTable {
    LimitTable {
        title: sum_title(one),
        note: format!(
            "the sum over what one guest does alone, and over the sum of the next smaller number of guests, block by block with 95 % \
             intervals; it grew where the whole interval lies above {}; Jain's index is 1 when all guests do the same and 1/n when one does \
             everything, least/most the slowest guest over the fastest: medians over blocks, and the interval of the mean",
            1.0 + one.margin
        ),
        first: "environment",
        columns: ["guests", "sum", "over one alone", "over fewer guests", "Jain's index", "least/most", "n"]
            .map(String::from)
            .to_vec(),
        rows,
    }
}

fn sum_row(one: &Sum, step: &SumStep) -> LimitRow {
    let even = |even: Option<Evenness>| match even {
        Some(Evenness { median, mean: Some(mean), .. }) => {
            join(&format!("{median:.3} [{:.3}, {:.3}]", mean.low, mean.high))
        }
        Some(Evenness { median, .. }) => format!("{median:.3}"),
        None => String::new(),
    };
    let factor = |amount: Option<Interval>| {
        amount.map(|amount| join(&format!("×{}", times(amount)))).unwrap_or_default()
    };
    LimitRow {
        environment: one.environment.clone(),
        cells: vec![
            guests(step.guests, step.up),
            step.median.map_or("not measured".into(), |median| value(&one.metric, median)),
            factor(step.scale),
            factor(step.growth),
            even(step.jain),
            even(step.least_to_most),
            step.n.to_string(),
        ],
        remark: reached(step.guests, step.up, step.lack.as_deref()),
    }
}

/// What busy neighbours cost beyond idle ones: environments down, kinds across, one table per
/// number of guests.
fn isolations(report: &Report) -> Vec<LimitTable> {
    let all = &report.isolations;
    let same = |one: &Isolation, other: &Isolation| {
        one.key == other.key && one.metric == other.metric && one.guests == other.guests
    };
    let mut tables = Vec::new();
    for (at, first) in all.iter().enumerate() {
        if all[..at].iter().any(|before| same(before, first)) {
            continue;
        }
        let of: Vec<&Isolation> = all.iter().filter(|one| same(one, first)).collect();
        let mut columns: Vec<String> = Vec::new();
        let mut environments: Vec<&str> = Vec::new();
        for one in &of {
            if !columns.contains(&column(one)) {
                columns.push(column(one));
            }
            if !environments.contains(&one.environment.as_str()) {
                environments.push(&one.environment);
            }
        }
        let row = |environment: &&str| {
            let of = || of.iter().filter(|one| one.environment == *environment);
            let cell = |heading: &String| {
                let found = of().find(|one| &column(one) == heading);
                found.map(|one| isolation(one)).unwrap_or_default()
            };
            let unsound: Vec<String> =
                of().filter(|one| !one.sound).map(|one| one.neighbours.to_string()).collect();
            LimitRow {
                environment: (*environment).to_string(),
                cells: columns.iter().map(cell).collect(),
                remark: (!unsound.is_empty())
                    .then(|| format!("trials failed or values were unusable: {}", unsound.join("; "))),
            }
        };
        tables.push(LimitTable {
            title: isolation_title(first),
            note: "cost over that beside as many idle neighbours of the same environment and shares in the same block, mean with its 95 % interval \
                   over blocks, and the median; over idle, equal: idle neighbours with these shares were not measured; over alone: none \
                   were"
                .into(),
            first: "environment",
            rows: environments.iter().map(row).collect(),
            columns,
        });
    }
    tables
}

fn column(one: &Isolation) -> String {
    let over = match one.reference {
        Reference::Idle => "",
        Reference::IdleEqual => " over idle, equal",
        Reference::Alone => " over alone",
    };
    format!("{}{over}", one.neighbours)
}

fn isolation(one: &Isolation) -> String {
    match one.loss {
        Some(loss) => {
            let shown =
                |median: Option<f64>| median.map_or("-".into(), |median| join(&value(&one.metric, median)));
            let n = join(&format!("n {}", one.n));
            format!("{} ({} to {}, {n})", more(loss), shown(one.median), shown(one.reference_median))
        }
        None => "not measured".into(),
    }
}

/// What is answered first for an environment: one clause per workload, metric and kind of
/// neighbours, at the most guests that were compared, the largest loss first; and why there were no
/// more.
pub(crate) fn clauses(report: &Report, environment: &str) -> (Vec<String>, Option<String>) {
    let of = || report.degradations.iter().filter(|one| one.environment == environment);
    let mut losses: Vec<(f64, String)> = of().filter_map(clause).collect();
    losses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sums = report.sums.iter().filter(|one| one.environment == environment).filter_map(sum_clause);
    let steps = of().flat_map(|one| &one.steps);
    let lack = steps.filter_map(|step| reached(step.guests, step.up, step.lack.as_deref())).next();
    (sums.chain(losses.into_iter().map(|(_, text)| text)).collect(), lack)
}

/// A loss and its clause.
fn clause(one: &Degradation) -> Option<(f64, String)> {
    let step = one.steps.iter().rfind(|step| step.loss.is_some())?;
    let loss = step.loss?;
    let name = subject(&one.key, &one.metric.name);
    let shares = match one.neighbours.shares {
        Shares::Equal => String::new(),
        shares => format!(" ({shares})"),
    };
    let (alone, here) = (one.alone?, step.median?);
    let mut text = format!(
        "among {}{shares} {name} {} ({} alone, {} there, {})",
        neighbours(step.guests - 1, &one.neighbours.load),
        comparison(&one.metric, loss),
        join(&value(&one.metric, alone)),
        join(&value(&one.metric, here)),
        join(&format!("n {}", step.n)),
    );
    if let Some(borne) = &one.knee {
        text.push_str(&format!(", {}", knee(borne, one.steps.last()?.guests)));
    }
    Some((loss.estimate, text))
}

/// A loss with the verb that fits the metric.
fn comparison(metric: &MetricSpec, loss: Interval) -> String {
    let bytes = metric.unit.symbol() == "B";
    if loss.estimate >= FACTOR_FROM {
        let factor = more(loss).replace('×', "");
        return if bytes {
            format!("takes {factor} times as much as alone")
        } else {
            format!("is {factor} times slower than alone")
        };
    }
    format!("costs {} against alone", more(loss))
}

fn sum_clause(one: &Sum) -> Option<String> {
    let step = one.steps.iter().rfind(|step| step.scale.is_some())?;
    let grew = match one.grew_up_to {
        None => String::new(),
        Some(1) => ", it certainly grew at no number of guests".into(),
        Some(most) => format!(", it certainly grew up to {most}"),
    };
    let even = step.jain.map_or(String::new(), |jain| format!(", Jain's index {:.3}", jain.median));
    Some(format!(
        "{} guests together do {} times what one does alone of {} ({}, {}){grew}{even}",
        step.guests,
        join(&times(step.scale?)),
        subject(&one.key, "").trim_end(),
        join(&value(&one.metric, step.median?)),
        join(&format!("n {}", step.n)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Unit;

    fn interval(estimate: f64, half: f64) -> Interval {
        Interval { estimate, low: estimate - half, high: estimate + half }
    }

    #[test]
    fn neighbours_are_told_by_what_they_do() {
        assert_eq!(neighbours(1, &LoadKind::from("cpu".to_string())), "1 spinning neighbour");
        assert_eq!(neighbours(7, &LoadKind::from("cpu".to_string())), "7 spinning neighbours");
        assert_eq!(neighbours(1, &LoadKind::from("same".to_string())), "1 neighbour that runs it too");
        assert_eq!(neighbours(3, &LoadKind::from("same".to_string())), "3 neighbours that run it too");
        assert_eq!(neighbours(2, &LoadKind::from("compile".to_string())), "2 neighbours (compile)");
    }

    #[test]
    fn a_large_loss_is_a_factor_and_memory_is_no_speed() {
        assert_eq!(more(interval(0.031, 0.012)).replace('\u{a0}', " "), "+3.1 % [+1.9, +4.3]");
        assert_eq!(more(interval(2.9, 0.15)).replace('\u{a0}', " "), "×3.90 [3.75, 4.05]");
        let metric = |unit: &str| MetricSpec { unit: Unit::normalise(unit).0, ..MetricSpec::time("x") };
        assert!(comparison(&metric("s"), interval(2.9, 0.15)).ends_with("times slower than alone"));
        assert!(comparison(&metric("B"), interval(2.9, 0.15)).ends_with("times as much as alone"));
    }

    #[test]
    fn what_is_not_certain_is_not_said_to_be() {
        let of = |within, beyond, undecided: &[u32]| {
            let found = Knee { margin: 0.05, within, beyond, undecided: undecided.to_vec() };
            knee(&found, 16).replace('\u{a0}', " ")
        };
        assert_eq!(of(16, None, &[]), "within 5 % up to 16 guests, the most measured");
        assert_eq!(
            of(2, Some(8), &[4]),
            "within 5 % up to 2 guests, certainly beyond from 8, undecided at 4"
        );
        assert_eq!(of(1, Some(2), &[]), "certainly within 5 % only alone, certainly beyond from 2");
        assert_eq!(of(1, None, &[2, 16]), "certainly within 5 % only alone, undecided at 2, 16");
    }

    #[test]
    fn the_number_reached_is_told_once() {
        assert_eq!(reached(16, Some(16), None), None);
        let reason = "11 of 16 guests were up: no memory";
        assert_eq!(reached(16, Some(11), Some(reason)).as_deref(), Some(reason));
        assert_eq!(reached(16, Some(11), None).as_deref(), Some("11 of 16 guests were up"));
        assert_eq!(reached(16, None, Some("no image")).as_deref(), Some("16 guests: no image"));
    }
}
