//! Equal pages of guests in the form of table 1 of Agarwal and others (2015). Amounts that the
//! study does not have follow below it.

use crate::Report;
use crate::document::{Entry, Section, Table};
use crate::own::{self, OwnRow};
use crate::quantity::{Quantity, Scale, share};
use weigh_model::Unit;
use weigh_model::duplicates::{
    CHANGED, GUEST_GUEST, GUEST_HOST, GUESTS_MEMORY, HOST_HOST, HOST_MEMORY, MERGEABLE, MERGEABLE_BY_FILE,
    MERGEABLE_IF_ADVISED, SPARED_BY_FILES, SPARED_BY_FILES_BETWEEN, SPARED_BY_FORKS, SPARED_BY_MERGING,
    UNIQUE, UNKNOWN, WITHIN_GUEST, ZERO_ANONYMOUS, ZERO_FILE,
};
use weigh_stats::DuplicateSummary;

/// Headings of the columns after the first, which says where the equal page is.
const COLUMNS: [&str; 5] =
    ["anonymous/anonymous", "anonymous/file", "file/file", "in all", "of the guests' memory"];

/// Amounts of all kinds together, and what each of them means.
const AMOUNTS: [(&str, &str); 10] = [
    (UNIQUE, "no equal page anywhere"),
    (MERGEABLE, "duplicates that KSM could merge now"),
    (MERGEABLE_IF_ADVISED, "more, if all memory were advised"),
    (MERGEABLE_BY_FILE, "only by comparing files"),
    (SPARED_BY_MERGING, "already saved by KSM"),
    (SPARED_BY_FILES, "already saved by common files"),
    (SPARED_BY_FILES_BETWEEN, "of that between guests"),
    (SPARED_BY_FORKS, "already saved since a fork"),
    (CHANGED, "changed while it was scanned"),
    (UNKNOWN, "not known: swapped or gone"),
];

/// One table per workload and environment.
pub(crate) fn sections(report: &Report) -> Vec<Section> {
    report.circumstances.duplicates.iter().map(|summary| own::section(table(summary), Vec::new())).collect()
}

fn table(summary: &DuplicateSummary) -> Table {
    let caption = format!("duplicate pages: {} in {}", summary.workload, summary.environment);
    let rows = if summary.n == 0 { vec![nothing(summary)] } else { rows(summary) };
    own::table(caption, note(summary), "the equal page is", &COLUMNS, rows)
}

fn note(summary: &DuplicateSummary) -> String {
    let of = |name: &str| shown(mean(summary, &[name]));
    let scans = if summary.n == 1 { "one scan".into() } else { format!("means of {} scans", summary.n) };
    if summary.n == 0 {
        return "pages are scanned where this host holds them and shows its frames".into();
    }
    format!(
        "{scans}; of k equal pages k - 1 are duplicates, each in one cell; the guests have {} of memory, helpers and cached files of the \
         host {} more; pages of zeros do not count as duplicates; anonymous/anonymous is what KSM could merge at best",
        of(GUESTS_MEMORY),
        of(HOST_MEMORY)
    )
}

fn nothing(summary: &DuplicateSummary) -> OwnRow {
    OwnRow {
        name: Entry::text("not scanned"),
        entries: COLUMNS.map(|_| Entry::nothing()).to_vec(),
        remark: summary.absent.clone(),
    }
}

fn rows(summary: &DuplicateSummary) -> Vec<OwnRow> {
    let guests = [WITHIN_GUEST, GUEST_HOST, GUEST_GUEST];
    let of_guests = [0, 1, 2].map(|kind| guests.map(|row| row[kind]));
    let of_guests = of_guests.each_ref().map(|names| &names[..]);
    let matrix =
        [("in the same guest", WITHIN_GUEST), ("the host's", GUEST_HOST), ("in another guest", GUEST_GUEST)];
    let mut rows: Vec<OwnRow> = matrix
        .iter()
        // With one guest there is no other guest to share with.
        .filter(|(_, names)| summary.guests > 1 || *names != GUEST_GUEST)
        .map(|(name, names)| by_kind(summary, name, names.each_ref().map(std::slice::from_ref)))
        .collect();
    rows.push(by_kind(summary, "any of these", of_guests));
    rows.push(by_kind(summary, "both are the host's", HOST_HOST.each_ref().map(std::slice::from_ref)));
    let zeros: [&[&str]; 3] = [&[ZERO_ANONYMOUS], &[], &[ZERO_FILE]];
    rows.push(by_kind(summary, "pages of zeros", zeros));
    rows.extend(AMOUNTS.iter().map(|(amount, name)| in_all(summary, name, &[*amount])));
    rows
}

/// A row with a cell for each kind of the two pages. A cell is empty if its kind cannot occur.
fn by_kind(summary: &DuplicateSummary, name: &str, kinds: [&[&str]; 3]) -> OwnRow {
    let mut row = in_all(summary, name, &kinds.concat());
    for (entry, names) in row.entries.iter_mut().zip(kinds) {
        if !names.is_empty() {
            *entry = Entry::quantity(shown(mean(summary, names)));
        }
    }
    row
}

fn in_all(summary: &DuplicateSummary, name: &str, amounts: &[&str]) -> OwnRow {
    let bytes = mean(summary, amounts);
    let memory = mean(summary, &[GUESTS_MEMORY]);
    let part = bytes / memory;
    let part = match memory > 0.0 {
        true => Entry { sort: Some(part), ..Entry::text(share(part)) },
        false => Entry::nothing(),
    };
    let none = Entry::nothing;
    let entries = vec![none(), none(), none(), Entry::quantity(shown(bytes)), part];
    OwnRow { name: Entry::text(name), entries, remark: None }
}

fn mean(summary: &DuplicateSummary, names: &[&str]) -> f64 {
    names.iter().filter_map(|name| summary.amounts.get(*name)).map(|amount| amount.mean).sum()
}

fn shown(bytes: f64) -> Quantity {
    match bytes == 0.0 {
        true => Quantity::new(0.0, "0", "B"),
        false => Scale::new(&Unit::normalise("B").0, [bytes], None).quantity(bytes),
    }
}

/// A row for a spreadsheet: (workload, environment, amount, unit, n, [mean, least, most]).
pub(crate) type AmountRow<'a> = (&'a str, &'a str, &'a str, &'a str, u32, [f64; 3]);

/// A row per amount.
pub(crate) fn amounts(report: &Report) -> impl Iterator<Item = AmountRow<'_>> {
    report.circumstances.duplicates.iter().flat_map(|summary| {
        summary.amounts.iter().map(|(name, amount)| {
            let values = [amount.mean, amount.least, amount.most];
            (summary.workload.as_str(), summary.environment.as_str(), name.as_str(), "B", summary.n, values)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Row;
    use weigh_stats::DuplicateAmount;

    fn summary(guests: u32, amounts: &[(&str, f64)]) -> DuplicateSummary {
        let amount = |(name, mean): &(&str, f64)| {
            (name.to_string(), DuplicateAmount { mean: *mean, least: *mean, most: *mean })
        };
        DuplicateSummary {
            workload: format!("footprint{{guests={guests}}}"),
            environment: "qemu".into(),
            guests,
            n: 2,
            absent: None,
            amounts: amounts.iter().map(amount).collect(),
            scans: std::collections::BTreeMap::new(),
        }
    }

    const MIB: f64 = 1_048_576.0;

    /// Table 1 of the study, MB: its rows and columns.
    #[test]
    fn the_study_is_shown_in_its_own_form() {
        let study = [
            (WITHIN_GUEST, [28.0, 0.5, 0.5]),
            (GUEST_HOST, [18.0, 12.0, 2.0]),
            (GUEST_GUEST, [48.0, 3.0, 8.0]),
        ];
        let mut amounts = vec![(GUESTS_MEMORY, 240.0 * MIB), (ZERO_ANONYMOUS, 60.0 * MIB)];
        for (names, values) in study {
            amounts.extend(names.into_iter().zip(values.map(|value| value * MIB)));
        }
        let table = table(&summary(2, &amounts));
        let cells = |name: &str| {
            let row = table.rows.iter().find(|row| row.cells[0].only().words() == name).unwrap();
            row.cells[1..].iter().map(|cell| cell.only().words()).collect::<Vec<_>>().join(" | ")
        };
        assert_eq!(cells("in another guest"), "48.0 MiB | 3.00 MiB | 8.00 MiB | 59.0 MiB | 25 %");
        let last = |row: &Row| row.cells.last().and_then(|cell| cell.only().sort);
        assert!(table.rows.iter().all(|row| last(row).is_some()), "shares are sorted as numbers");
        assert_eq!(cells("any of these"), "94.0 MiB | 15.5 MiB | 10.5 MiB | 120 MiB | 50 %");
        assert_eq!(cells("both are the host's"), "0 B | 0 B | 0 B | 0 B | 0 %");
        assert!(cells("pages of zeros").starts_with("60.0 MiB |  | 0 B | 60.0 MiB | 25"));
        assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
        assert!(table.note.contains("means of 2 scans") && table.note.contains("240 MiB"), "{}", table.note);
    }

    #[test]
    fn one_guest_has_no_other_and_a_missing_scan_has_a_reason() {
        let alone = table(&summary(1, &[(GUESTS_MEMORY, MIB)]));
        assert!(!alone.rows.iter().any(|row| row.cells[0].only().words() == "in another guest"));
        let none = DuplicateSummary { n: 0, absent: Some("no root".into()), ..summary(2, &[]) };
        let table = table(&none);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0].cells.last().unwrap().only().all_remarks(), "no root");
    }
}
