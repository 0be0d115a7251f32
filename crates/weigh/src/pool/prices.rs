//! What machines of a kind cost.

use crate::error::Failure;
use weigh_stats::PooledGroup;

/// The price of a kind of machine.
#[derive(Debug)]
pub struct Price {
    /// What the user typed.
    text: String,
    kind: String,
    per_hour: f64,
}

/// Reads `KIND=PRICE/h`.
///
/// # Errors
/// A kind without a name, a price that is no positive number, a kind that is named twice.
pub fn parse(texts: &[String]) -> Result<Vec<Price>, Failure> {
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
            .ok_or_else(|| refused("a price is a kind of machine and what an hour of it costs"))?;
        let amount = price.strip_suffix("/h").ok_or_else(|| refused("a price is for an hour"))?;
        let amount = amount.trim().parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount > 0.0);
        let per_hour = amount.ok_or_else(|| refused("a price is a number above 0"))?;
        if prices.iter().any(|other| other.kind == kind) {
            return Err(refused("a kind of machine has one price"));
        }
        prices.push(Price { text: text.clone(), kind: kind.into(), per_hour });
    }
    Ok(prices)
}

/// The price of each group, in their order; none at all where the user gave none.
///
/// # Errors
/// A price of a kind that is not there; a kind without a price.
pub fn of_groups(prices: &[Price], groups: &[PooledGroup]) -> Result<Vec<f64>, Failure> {
    if prices.is_empty() {
        return Ok(Vec::new());
    }
    let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    if let Some(unknown) = prices.iter().find(|price| !known.contains(&price.kind.as_str())) {
        let hint = match weigh_model::nearest(&unknown.kind, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the kinds are {}", known.join(", ")),
        };
        return Err(Failure::input(format!("no machine here is of the kind `{}`", unknown.kind))
            .at("--price", &unknown.text, 0..unknown.kind.len())
            .hint(hint));
    }
    let of = |kind: &&str| {
        let price = prices.iter().find(|price| price.kind == **kind).map(|price| price.per_hour);
        price.ok_or_else(|| {
            Failure::input(format!("machines of the kind `{kind}` have no price"))
                .hint(format!("give it, as in `--price '{kind}=0.34/h'`"))
        })
    };
    known.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Result<Vec<Price>, Failure> {
        parse(&texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn groups(names: &[&str]) -> Vec<PooledGroup> {
        names.iter().map(|name| PooledGroup { name: (*name).into(), machines: Vec::new() }).collect()
    }

    #[test]
    fn prices_are_those_of_the_kinds() {
        let prices = parsed(&["a=b=2/h", "small=0.34/h"]).unwrap();
        assert_eq!(of_groups(&prices, &groups(&["small", "a=b"])).unwrap(), [0.34, 2.0]);
        assert_eq!(of_groups(&[], &groups(&["small"])).unwrap(), [0.0; 0]);
        let error = |groups: &[PooledGroup]| of_groups(&prices, groups).unwrap_err().to_string();
        assert!(error(&groups(&["smal", "a=b"])).contains("no machine here is of the kind `small`"));
        assert!(error(&groups(&["small", "a=b", "c"])).contains("`c` have no price"));
    }

    #[test]
    fn what_is_no_price_is_refused() {
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
        assert!(parsed(&["a=1/h", "a=2/h"]).unwrap_err().to_string().contains("one price"));
    }
}
