//! The tables that `make life-cycle` writes into the page about start-up.

use super::{no_faults, root};

const PAGE: &str = "docs/start.md";
/// The lines between which `tests/life-cycle` writes.
const BEGIN: &str = "<!-- `make life-cycle` writes what follows. -->";
const END: &str = "<!-- What `make life-cycle` writes ends here. -->";
/// The heads of the table of tails after the environment and the time.
const HEADS: &str = "| succeeded | median | p95 | p95 without the slowest 5 % | slowest |";
/// Fewest starts that a 95 % quantile takes.
const FEWEST_FOR_P95: u32 = 20;

#[test]
fn the_tails_of_the_life_cycle_are_in_order() {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let script = std::fs::read_to_string(root().join("tests/life-cycle")).unwrap();
    for marker in [BEGIN, END] {
        assert_eq!(page.matches(marker).count(), 1, "{PAGE}: {marker}");
        assert!(script.contains(marker), "tests/life-cycle writes elsewhere than at {marker}");
    }
    let section = &page[page.find(BEGIN).unwrap()..page.find(END).unwrap()];
    let Some((_, table)) = section.split_once(HEADS) else {
        eprintln!(
            "SKIPPED the_tails_of_the_life_cycle_are_in_order: {PAGE} has none; `make life-cycle` measures them"
        );
        return;
    };
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 1, "{table}");
    let faults: Vec<String> = rows.iter().filter_map(|row| fault_of(row)).collect();
    no_faults("the tails of the life cycle; `make life-cycle` measures them", &faults);
}

/// What is wrong with a row of the table of tails.
fn fault_of(row: &str) -> Option<String> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [_, _, succeeded, times @ ..] = cells.as_slice() else {
        return Some(format!("{row}: too few cells"));
    };
    let starts = succeeded.split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let times: Option<Vec<f64>> = times.iter().map(|time| time.parse().ok()).collect();
    let sound = match (starts, times.as_deref()) {
        (Some(starts), Some([median, p95, without, slowest])) => {
            starts >= FEWEST_FOR_P95 && median <= without && without <= p95 && p95 <= slowest
        }
        _ => false,
    };
    (!sound).then(|| format!("{row}: not in order, or of too few starts"))
}

#[test]
fn a_row_out_of_order_is_found() {
    assert_eq!(fault_of("| `runc` | `start_to_init` | 60 of 60 | 33 | 41 | 38 | 52 |"), None);
    for wrong in [
        "| `runc` | `start_to_init` | 60 of 60 | 33 | 41 | 42 | 52 |",
        "| `runc` | `start_to_init` | 19 of 60 | 33 | 41 | 38 | 52 |",
        "| `runc` | `start_to_init` | 60 of 60 | 33 | 41 | 38 |",
    ] {
        assert!(fault_of(wrong).is_some(), "{wrong}");
    }
}
