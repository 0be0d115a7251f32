//! Prices of kinds of machines, and of the host by environment.

use crate::cli::PriceArgs;
use crate::error::{Failure, file_failure};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use weigh_model::{EnvironmentSpec, Plan, did_you_mean, nearest};
use weigh_stats::PooledGroup;

/// What has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priced {
    /// Kinds of machines.
    Kinds,
    /// The host, for every environment or for one.
    Environments,
}

impl Priced {
    /// What the option takes.
    fn form(self) -> &'static str {
        match self {
            Self::Kinds => "expected KIND=PRICE/h",
            Self::Environments => "expected PRICE/h or ENVIRONMENT=PRICE/h",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Kinds => "as in `--price small=0.34/h`, in one currency for all kinds",
            Self::Environments => {
                "as in `--price 0.34/h`, or `--price docker=0.34/h` for one environment, in one currency for all"
            }
        }
    }

    /// What a line of a file is for.
    fn line(self) -> &'static str {
        match self {
            Self::Kinds => "a line for each kind of machine says what an hour of it costs: `small = 0.34`",
            Self::Environments => {
                "a line for each environment says what an hour of its host costs: `docker = 0.34`"
            }
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Kinds => "kind",
            Self::Environments => "environment",
        }
    }
}

/// The prices that the user gives.
#[derive(Debug)]
pub struct Prices {
    /// The option or the file that they come from.
    source: String,
    prices: Vec<Price>,
    of: Priced,
    /// Whether every price has to belong to something that is there. A file may list more.
    all_used: bool,
}

/// A price.
#[derive(Debug, Clone)]
struct Price {
    /// The kind or the environment. Empty for the host of all environments that have no price of
    /// their own.
    name: String,
    per_hour: f64,
    /// The text that has the name, and its place there.
    text: String,
    place: Range<usize>,
}

impl Prices {
    /// Reads `KIND=PRICE/h` of the command line, or the file of `--prices`.
    ///
    /// # Errors
    /// A kind has no name; a price is not a positive number; a kind is named twice; the file cannot
    /// be read or is not a table of numbers.
    pub fn of_kinds(texts: &[String], file: Option<&Path>) -> Result<Self, Failure> {
        Self::read(Priced::Kinds, texts, file)
    }

    /// Reads `PRICE/h` and `ENVIRONMENT=PRICE/h` of the command line, or the file of `--prices`.
    ///
    /// # Errors
    /// As [`Self::of_kinds`].
    pub fn of_host(args: &PriceArgs) -> Result<Self, Failure> {
        Self::read(Priced::Environments, &args.price, args.prices.as_deref())
    }

    fn read(of: Priced, texts: &[String], file: Option<&Path>) -> Result<Self, Failure> {
        match file {
            Some(path) => Self::of_file(of, path),
            None => Self::parse(of, texts),
        }
    }

    fn parse(of: Priced, texts: &[String]) -> Result<Self, Failure> {
        let mut prices: Vec<Price> = Vec::new();
        for text in texts {
            let refused =
                |what: &str| Failure::input(what).at("--price", text, 0..text.len()).hint(of.example());
            let (name, price) = match text.rsplit_once('=') {
                Some((name, price)) if !name.is_empty() => (name, price),
                None if of == Priced::Environments => ("", text.as_str()),
                _ => return Err(refused(of.form())),
            };
            let amount = price.strip_suffix("/h").ok_or_else(|| refused("the price must end in /h"))?;
            let amount = amount.trim().parse::<f64>().ok().filter(is_price);
            let per_hour = amount.ok_or_else(|| refused("a price is a number above 0"))?;
            if prices.iter().any(|other| other.name == name) {
                return Err(refused(&match name {
                    "" => "the host has two prices".to_string(),
                    name => format!("the {} `{name}` has two prices", of.noun()),
                }));
            }
            prices.push(Price { name: name.into(), per_hour, text: text.clone(), place: 0..name.len() });
        }
        Ok(Self { source: "--price".into(), prices, of, all_used: true })
    }

    fn of_file(of: Priced, path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| file_failure("read", path, error))?;
        let source = path.display().to_string();
        let refused = |what: String, place: Option<Range<usize>>| {
            let failure = Failure::input(format!("{source}: {what}")).hint(of.line());
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
        if let Some((name, _)) = table.iter().find(|(name, _)| name.get_ref().is_empty()) {
            return Err(refused("a price has no name".into(), Some(name.span())));
        }
        let prices = table.iter().map(|(name, price)| Price {
            name: name.get_ref().clone(),
            per_hour: *price.get_ref(),
            text: text.clone(),
            place: name.span(),
        });
        Ok(Self { prices: prices.collect(), source: source.clone(), of, all_used: false })
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
        self.of_names(&groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>())
    }

    /// Returns the price of the host for each environment of a plan; empty if the user gave none.
    ///
    /// # Errors
    /// A price is for an environment that is not there; an environment has no price.
    pub fn of_environments(&self, plan: &Plan) -> Result<BTreeMap<String, f64>, Failure> {
        let names: Vec<&str> =
            plan.environments.iter().map(|environment| environment.name.as_str()).collect();
        // The user names an environment as they wrote it; in a plan all of its keys are explicit.
        let meant = |price: &Price| {
            let mut fitting = names.iter().filter(|name| fits(&price.name, name));
            match (names.contains(&price.name.as_str()), fitting.next(), fitting.next()) {
                (false, Some(only), None) => (*only).to_string(),
                _ => price.name.clone(),
            }
        };
        let prices: Vec<Price> =
            self.prices.iter().map(|price| Price { name: meant(price), ..price.clone() }).collect();
        let prices = Self { prices, source: self.source.clone(), ..*self }.of_names(&names)?;
        Ok(names.iter().map(ToString::to_string).zip(prices).collect())
    }

    fn of_names(&self, known: &[&str]) -> Result<Vec<f64>, Failure> {
        if self.all_used && self.prices.is_empty() {
            return Ok(Vec::new());
        }
        let is_unknown = |price: &&Price| !price.name.is_empty() && !known.contains(&price.name.as_str());
        if let Some(unknown) = self.prices.iter().find(is_unknown).filter(|_| self.all_used) {
            let near = nearest(&unknown.name, known.iter().copied());
            let hint = did_you_mean(near, || format!("the {}s are {}", self.of.noun(), known.join(", ")));
            let message = match self.of {
                Priced::Kinds => format!("no machine here is of the kind `{}`", unknown.name),
                Priced::Environments => format!("there is no environment `{}` here", unknown.name),
            };
            return Err(self.refused(unknown, &message).hint(hint));
        }
        let named = |name: &str| self.prices.iter().find(|price| price.name == name);
        let of = |name: &&str| {
            let price = named(name).or_else(|| named("")).map(|price| price.per_hour);
            price.ok_or_else(|| {
                let hint = match self.all_used {
                    true => format!("give it, as in `--price '{name}=0.34/h'`"),
                    false => format!("add it to {}, as in `{} = 0.34`", self.source, toml_key(name)),
                };
                let message = match self.of {
                    Priced::Kinds => format!("machines of the kind `{name}` have no price"),
                    Priced::Environments => format!("the environment `{name}` has no price"),
                };
                Failure::input(message).hint(hint)
            })
        };
        known.iter().map(of).collect()
    }

    fn refused(&self, price: &Price, what: &str) -> Failure {
        Failure::input(what).at(&self.source, &price.text, price.place.clone())
    }
}

/// Whether an environment is on the platform of another one, with all of its keys and more.
fn fits(name: &str, environment: &str) -> bool {
    let (Ok(name), Ok(whole)) = (EnvironmentSpec::parse(name), EnvironmentSpec::parse(environment)) else {
        return false;
    };
    name.platform == whole.platform && name.keys.iter().all(|(key, value)| whole.keys.get(key) == Some(value))
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
    use weigh_model::{Effort, EnvironmentPlan};

    fn parsed(texts: &[&str]) -> Result<Prices, Failure> {
        Prices::of_kinds(&texts.iter().map(ToString::to_string).collect::<Vec<_>>(), None)
    }

    fn in_file(text: &str) -> Result<Prices, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Prices::of_kinds(&[], Some(file.path()))
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
            ("\"\" = 1", "a price has no name"),
        ] {
            let error = in_file(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(Prices::of_kinds(&[], Some(Path::new("/nowhere/prices.toml"))).is_err());
        assert_eq!((toml_key("a-b_1"), toml_key("Xeon 2.0")), ("a-b_1".into(), "\"Xeon 2.0\"".into()));
    }

    #[test]
    fn the_host_has_a_price_for_all_environments_or_for_some() {
        let environments = ["native", "docker:net=nat"]
            .map(|name| EnvironmentPlan::from(EnvironmentSpec::parse(name).unwrap()));
        let plan = Plan::of("w", environments.into(), Vec::new(), Effort::Fixed { blocks: 1 });
        let of = |texts: &str| {
            let price = texts.split_whitespace().map(String::from).collect();
            let prices = Prices::of_host(&PriceArgs { price, prices: None })?;
            Ok::<_, Failure>(prices.of_environments(&plan)?.into_values().collect::<Vec<_>>())
        };
        assert_eq!(of("0.34/h").unwrap(), [0.34, 0.34]);
        assert_eq!(of("0.34/h docker:net=nat=0.5/h").unwrap(), [0.5, 0.34], "in the order of names");
        assert_eq!(of("0.34/h docker=0.5/h").unwrap(), [0.5, 0.34], "without the keys");
        assert_eq!(of("").unwrap(), [0.0; 0]);
        for (texts, words) in [
            ("docker:net=nat=0.5/h", "`native` has no price"),
            ("0.34/h docker:net=host=0.5/h", "no environment `docker:net=host`"),
            ("0.34/h 1/h", "the host has two prices"),
            ("native=1/h native=2/h", "the environment `native` has two prices"),
            ("0.34", "must end in /h"),
            ("native", "must end in /h"),
            ("=1/h", "ENVIRONMENT=PRICE/h"),
            ("0/h", "above 0"),
        ] {
            let error = of(texts).unwrap_err().to_string();
            assert!(error.contains(words), "{texts}: {error}");
        }
    }

    #[test]
    fn invalid_prices_are_refused() {
        for (text, words) in [
            ("small", "expected KIND=PRICE/h"),
            ("=1/h", "expected KIND=PRICE/h"),
            ("small=1", "must end in /h"),
            ("small=1/d", "must end in /h"),
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
