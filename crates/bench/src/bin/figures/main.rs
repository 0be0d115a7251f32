//! Makes the figures of the book: `cargo run -p weigh-bench --bin figures -- docs/method/figures`.
//!
//! Every number in them comes from seeded simulations that the product's own statistics analyse, so
//! every machine makes the same figures; a test compares them with those in the book.
#![expect(clippy::print_stdout, reason = "a program for the terminal, outside of the product")]

mod charts;
mod simulate;
mod style;

use std::path::PathBuf;

fn main() -> Result<(), style::Failed> {
    let directory =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or("name the directory for the pictures")?;
    for (name, svg) in charts::all()? {
        std::fs::write(directory.join(name), svg)?;
        println!("{name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_books_figures_match_the_generated_ones() {
        let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/method/figures");
        for (name, svg) in super::charts::all().unwrap() {
            let filed = std::fs::read_to_string(book.join(name)).unwrap_or_default();
            assert!(
                filed == svg,
                "{name} is not what is made now: run `cargo run -p weigh-bench --bin figures -- docs/method/figures` and look at it"
            );
        }
    }
}
