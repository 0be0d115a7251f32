//! The page about the claims of the studies is written from runs of all of them. Once it is in the
//! book, it has every claim of every study.

use super::{no_faults, root};
use crate::support::faults_of_claims;

const PAGE: &str = "docs/studies/claims.md";

#[test]
fn the_page_of_claims_has_every_claim() {
    let Ok(page) = std::fs::read_to_string(root().join(PAGE)) else {
        eprintln!("SKIPPED the_page_of_claims_has_every_claim: there is no {PAGE}");
        return;
    };
    no_faults(
        "claims; `make test-studies` measures the studies, and `make claims-page` puts the page here",
        &faults_of_claims(&page),
    );
}
