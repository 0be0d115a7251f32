//! Prices of kinds of machines.

use crate::error::{Failure, file_failure};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use weigh_stats::PooledGroup;

/// The prices that the user gives.
#[derive(Debug)]
pub struct Prices {
    /// The option or the file that they come from.
    source: String,
    prices: Vec<Price>,
    /// Whether every price has to belong to a machine of the runs. A file may list more.
    all_used: bool,
}

/// The price of a kind of machine.
#[derive(Debug)]
struct Price {
    kind: String,
    per_hour: f64,
    /// The text that names the kind, and its place there.
    text: String,
    place: Range<usize>,
}

impl Prices {
    /// Reads `KIND=PRICE/h` of the command line, or the file of `--prices`.
    ///
    /// # Errors
    /// A kind has no name; a price is not a positive number; a kind is named twice; the file cannot
    /// be read or is not a table of numbers.
    pub fn read(texts: &[String], file: Option<&Path>) -> Result<Self, Failure> {
        match file {
            Some(path) => Self::of_file(path),
            None => Self::parse(texts),
        }
    }

    fn parse(texts: &[String]) -> Result<Self, Failure> {
        let mut prices: Vec<Price> = Vec::new();
        for text in texts {
            let refused = |what: &str| {
                Failure::input(what)
                    .at("--price", text, 0..text.len())
                    .hint("as in `--price small=0.34/h`, in one currency for all kinds")
            };
            let (kind, price) = text
                .rsplit_once('=')
                .filter(|(kind, _)| !kind.is_empty())
                .ok_or_else(|| refused("expected KIND=PRICE/h"))?;
            let amount = price.strip_suffix("/h").ok_or_else(|| refused("the price must end in /h"))?;
            let amount = amount.trim().parse::<f64>().ok().filter(is_price);
            let per_hour = amount.ok_or_else(|| refused("a price is a number above 0"))?;
            if prices.iter().any(|other| other.kind == kind) {
                return Err(refused(&format!("the kind `{kind}` has two prices")));
            }
            prices.push(Price { kind: kind.into(), per_hour, text: text.clone(), place: 0..kind.len() });
        }
        Ok(Self { source: "--price".into(), prices, all_used: true })
    }

    fn of_file(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| file_failure("read", path, error))?;
        let source = path.display().to_string();
        let refused = |what: String, place: Option<Range<usize>>| {
            let failure = Failure::input(format!("{source}: {what}"))
                .hint("a line for each kind of machine says what an hour of it costs: `small = 0.34`");
            match place {
                Some(place) => failure.at(&source, &text, place),
                None => failure,
            }
        };
        let table: BTreeMap<Spanned<String>, Spanned<f64>> =
            toml::from_str(&text).map_err(|error| refused(error.message().into(), error.span()))?;
        if let Some((_, price)) = table.iter().find(|(_, price)| !is_price(price.get_ref())) {
            return Err(refused("a price is a number above 0".into(), Some(price.span())));
        }
        let prices = table.iter().map(|(kind, price)| Price {
            kind: kind.get_ref().clone(),
            per_hour: *price.get_ref(),
            text: text.clone(),
            place: kind.span(),
        });
        Ok(Self { prices: prices.collect(), source: source.clone(), all_used: false })
    }

    /// # Errors
    /// There are prices, but no kinds of machines.
    pub fn require_kinds(&self, has_kinds: bool) -> Result<(), Failure> {
        match self.prices.first() {
            Some(price) if !has_kinds => Err(self
                .refused(price, "prices are for kinds of machines")
                .hint("say what the kinds are: --by cpu-model, or --label RUN=KIND")),
            _ => Ok(()),
        }
    }

    /// Returns the price of each group, in their order; none at all if the user gave none.
    ///
    /// # Errors
    /// A price is for a kind that is not there; a kind has no price.
    pub fn of_groups(&self, groups: &[PooledGroup]) -> Result<Vec<f64>, Failure> {
        if self.all_used && self.prices.is_empty() {
            return Ok(Vec::new());
        }
        let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let unknown = self.prices.iter().find(|price| !known.contains(&price.kind.as_str()));
        if let Some(unknown) = unknown.filter(|_| self.all_used) {
            let hint = match weigh_model::nearest(&unknown.kind, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the kinds are {}", known.join(", ")),
            };
            let message = format!("no machine here is of the kind `{}`", unknown.kind);
            return Err(self.refused(unknown, &message).hint(hint));
        }
        let of = |kind: &&str| {
            let price = self.prices.iter().find(|price| price.kind == **kind).map(|price| price.per_hour);
            price.ok_or_else(|| {
                let hint = match self.all_used {
                    true => format!("give it, as in `--price '{kind}=0.34/h'`"),
                    false => format!("add it to {}, as in `{} = 0.34`", self.source, toml_key(kind)),
                };
                Failure::input(format!("machines of the kind `{kind}` have no price")).hint(hint)
            })
        };
        known.iter().map(of).collect()
    }

    fn refused(&self, price: &Price, what: &str) -> Failure {
        Failure::input(what).at(&self.source, &price.text, price.place.clone())
    }
}

fn is_price(amount: &f64) -> bool {
    amount.is_finite() && *amount > 0.0
}

/// Quotes a name as a key of a TOML file.
fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !name.is_empty() && name.chars().all(is_bare) { name.into() } else { format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Result<Prices, Failure> {
        Prices::read(&texts.iter().map(ToString::to_string).collect::<Vec<_>>(), None)
    }

    fn in_file(text: &str) -> Result<Prices, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Prices::read(&[], Some(file.path()))
    }

    fn groups(names: &[&str]) -> Vec<PooledGroup> {
        names.iter().map(|name| PooledGroup { name: (*name).into(), machines: Vec::new() }).collect()
    }

    #[test]
    fn prices_are_those_of_the_kinds() {
        let prices = parsed(&["a=b=2/h", "small=0.34/h"]).unwrap();
        assert_eq!(prices.of_groups(&groups(&["small", "a=b"])).unwrap(), [0.34, 2.0]);
        assert_eq!(parsed(&[]).unwrap().of_groups(&groups(&["small"])).unwrap(), [0.0; 0]);
        let error = |groups: &[PooledGroup]| prices.of_groups(groups).unwrap_err().to_string();
        assert!(error(&groups(&["smal", "a=b"])).contains("no machine here is of the kind `small`"));
        assert!(error(&groups(&["small", "a=b", "c"])).contains("`c` have no price"));
        assert!(prices.require_kinds(true).is_ok() && parsed(&[]).unwrap().require_kinds(false).is_ok());
        assert!(prices.require_kinds(false).unwrap_err().to_string().contains("kinds of machines"));
    }

    #[test]
    fn a_price_file_may_list_more_kinds_than_the_runs_have() {
        let prices = in_file("# US dollars\nsmall = 0.34\nlarge = 2\n\"AMD EPYC\" = 0.5\n").unwrap();
        assert_eq!(prices.of_groups(&groups(&["AMD EPYC", "large"])).unwrap(), [0.5, 2.0]);
        let error = prices.of_groups(&groups(&["small", "Xeon 2.0"])).unwrap_err();
        assert!(error.to_string().contains("`Xeon 2.0` have no price"), "{error}");
        assert!(in_file("").unwrap().of_groups(&groups(&["small"])).is_err(), "an empty list has no price");
        for (text, words) in [
            ("small = 0", "above 0"),
            ("small = nan", "above 0"),
            ("small = -1.5", "above 0"),
            ("small = '1'", "invalid type"),
            ("small 1", "expected"),
            ("a = 1\na = 2", "duplicate key"),
        ] {
            let error = in_file(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(Prices::read(&[], Some(Path::new("/nowhere/prices.toml"))).is_err());
        assert_eq!((toml_key("a-b_1"), toml_key("Xeon 2.0")), ("a-b_1".into(), "\"Xeon 2.0\"".into()));
    }

    #[test]
    fn invalid_prices_are_refused() {
        for (text, words) in [
            ("small", "a kind of machine and what"),
            ("=1/h", "a kind of machine and what"),
            ("small=1", "for an hour"),
            ("small=1/d", "for an hour"),
            ("small=0/h", "above 0"),
            ("small=-1/h", "above 0"),
            ("small=inf/h", "above 0"),
            ("small=x/h", "above 0"),
        ] {
            let error = parsed(&[text]).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(parsed(&["a=1/h", "a=2/h"]).unwrap_err().to_string().contains("the kind `a` has two prices"));
    }
}
