//! What one more guest takes, in words, for resources measured at several numbers of guests.

use crate::document::{Entry, Section};
use crate::own::{self, OwnRow};
use crate::quantity::{Quantity, Scale, plain_percent};
use crate::results::assignments;
use crate::{Report, costs};
use weigh_model::{WorkloadKey, grouped};
use weigh_stats::{Interval, Limit};

/// One GiB, bytes.
const GIB: f64 = 1_073_741_824.0;
/// The relative error of the fitted line from which on a remark reports it.
const MISFIT: f64 = 0.05;

/// One table per workload and metric.
pub(crate) fn sections(report: &Report) -> Vec<Section> {
    let same = |limit: &&Limit| (limit.key.clone(), limit.metric.name.clone());
    let section = |((key, metric), limits): ((WorkloadKey, String), Vec<&Limit>)| {
        let params = match assignments(&key.params).join(", ").as_str() {
            "" => String::new(),
            params => format!(" ({params})"),
        };
        let mut columns = vec!["one more guest takes", "all have in common"];
        if is_bytes(limits[0]) {
            columns.insert(1, "guests per GiB");
        }
        let priced = is_bytes(limits[0]) && report.host.is_some() && !report.prices.is_empty();
        if priced {
            columns.insert(2, "guests per unit of price");
        }
        columns.extend(["numbers of guests", "n"]);
        let mut note = "a line is fitted to the total against the number of guests in each block; its slope is what one more guest takes, its \
             intercept is what all have in common; brackets hold the 95 % interval over blocks"
            .to_string();
        if priced {
            note.push_str("; guests per unit of price: how many guests fit into the memory of the host, divided by the price of an hour");
        }
        let caption = format!("{} {metric}{params} in the limit", key.name);
        let with_price = |limit: &Limit| {
            let mut row = row(limit);
            if priced {
                row.entries.insert(2, costs::bought(report, limit).map(whole_numbers).unwrap_or_default());
            }
            row
        };
        let rows = limits.into_iter().map(with_price).collect();
        own::section(own::table(caption, note, "environment", &columns, rows), Vec::new())
    };
    grouped(&report.limits, same).into_iter().map(section).collect()
}

fn is_bytes(limit: &Limit) -> bool {
    limit.metric.unit.symbol() == "B"
}

fn row(limit: &Limit) -> OwnRow {
    let shown = |amount: Interval| {
        let half = (amount.high - amount.low) / 2.0;
        let scale = Scale::new(&limit.metric.unit, [amount.estimate], Some(half / amount.estimate.abs()));
        let [estimate, low, high] = scale.interval(amount);
        Entry::estimate(estimate, low, high)
    };
    let mut entries = vec![shown(limit.each)];
    if is_bytes(limit) {
        entries.push(limit.fit_into(GIB).map(whole_numbers).unwrap_or_default());
    }
    entries.push(shown(limit.common));
    let counts: Vec<String> = limit.counts.iter().map(ToString::to_string).collect();
    entries.extend([Entry::text(counts.join(", ")), Entry::count(limit.n)]);
    let remark = (limit.worst_misfit > MISFIT).then(|| {
        let misfit = plain_percent(limit.worst_misfit);
        format!("the line misses the measured totals by up to {misfit}: what one more guest takes depends on how many there are")
    });
    OwnRow { name: Entry::name(&limit.environment), entries, remark }
}

fn whole_numbers(amount: Interval) -> Entry {
    let [estimate, low, high] = [amount.estimate, amount.low, amount.high].map(whole);
    Entry::estimate(estimate, low, high)
}

/// A number with three digits, which is enough for planning.
fn whole(number: f64) -> Quantity {
    let decimals = (2 - number.abs().max(1e-9).log10().floor() as i32).max(0) as usize;
    Quantity::new(number, format!("{number:.decimals$}"), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Better, MetricSpec, Unit};

    fn limit(unit: &str, each: f64, misfit: f64) -> Limit {
        let about = |x: f64, half: f64| Interval { estimate: x, low: x - half, high: x + half };
        Limit {
            key: WorkloadKey::named("footprint"),
            metric: MetricSpec {
                name: "footprint".into(),
                unit: Unit::normalise(unit).0,
                better: Better::Lower,
                primary: true,
            },
            environment: "runc".into(),
            counts: vec![1, 2, 4],
            n: 6,
            each: about(each, each / 100.0),
            common: about(-1024.0, 2048.0),
            worst_misfit: misfit,
        }
    }

    #[test]
    fn the_cost_of_one_more_guest_is_reported_with_the_limit() {
        let row = row(&limit("B", 2.0 * 1_048_576.0, 0.001));
        let words: Vec<String> = row.entries.iter().map(Entry::words).collect();
        assert_eq!(words[0], "2.00 MiB [1.98, 2.02]");
        assert_eq!(words[1], "512 [507, 517]");
        assert!(words[2].starts_with("-1.00 KiB [-3.00, 1.00"), "{words:?}");
        assert_eq!((words[3].as_str(), words[4].as_str(), &row.remark), ("1, 2, 4", "6", &None));
    }

    #[test]
    fn a_unit_of_the_price_buys_guests() {
        let one = limit("B", 2.0 * 1_048_576.0, 0.001);
        let host = weigh_model::HostFacts { memory_bytes: 4 << 30, ..weigh_model::HostFacts::default() };
        let prices = [("runc".to_string(), 0.5)].into();
        let report = Report { limits: vec![one.clone()], host: Some(host), prices, ..Report::default() };
        // 2,048 guests of 2 MiB for half a unit an hour.
        let bought = costs::bought(&report, &one).unwrap();
        assert!((bought.estimate - 4096.0).abs() < 1e-6 && bought.low < 4096.0, "{bought:?}");
        let words = format!("{:?}", sections(&report));
        assert!(words.contains("guests per unit of price") && words.contains("4096"), "{words}");
        let without = Report { prices: Default::default(), ..report };
        assert!(!format!("{:?}", sections(&without)).contains("per unit of price"));
        assert_eq!(costs::bought(&without, &one), None);
    }

    #[test]
    fn costs_that_are_not_linear_are_reported() {
        let row = row(&limit("B", 1e6, 0.2));
        assert!(row.remark.as_ref().unwrap().contains("20"), "{row:?}");
    }

    #[test]
    fn only_bytes_fit_into_a_gib() {
        let (limit, other) = (limit("s", 1.0, 0.0), limit("B", 1.0, 0.0));
        assert_eq!(row(&limit).entries.len() + 1, row(&other).entries.len());
    }
}
