//! The tables that `tests/measured` writes into the book.

use super::{no_faults, root};

/// What it measures, and the page with the tables.
const MEASURED: [(&str, &str); 2] = [("life-cycle", "docs/start.md"), ("neighbours", "docs/density.md")];
/// The heads of the table of tails after the environment and the time.
const HEADS: &str = "| succeeded | median | p95 | p95 without the slowest 5 % | slowest |";
/// Fewest starts that a 95 % quantile takes.
const FEWEST_FOR_P95: u32 = 20;

/// The part of a page that is written.
fn section(name: &str, page: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (begin, end) = (
        format!("<!-- `make {name}` writes what follows. -->"),
        format!("<!-- What `make {name}` writes ends here. -->"),
    );
    for marker in [&begin, &end] {
        assert_eq!(text.matches(marker.as_str()).count(), 1, "{page}: {marker}");
    }
    text[text.find(&begin).unwrap()..text.find(&end).unwrap()].to_string()
}

#[test]
fn pages_have_a_place_for_what_is_measured() {
    let script = std::fs::read_to_string(root().join("tests/measured")).unwrap();
    for (name, page) in MEASURED {
        assert!(section(name, page).len() > 100, "{page}");
        assert!(script.contains(&format!("\"{name}\"")) && script.contains(page), "{name}");
    }
}

#[test]
fn the_tails_of_the_life_cycle_are_in_order() {
    let (name, page) = MEASURED[0];
    let section = section(name, page);
    let Some((_, table)) = section.split_once(HEADS) else {
        eprintln!(
            "SKIPPED the_tails_of_the_life_cycle_are_in_order: {page} has none; `make {name}` measures them"
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
