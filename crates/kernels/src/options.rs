//! `--key value` options of the kernels: declared as data, read once, typed.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// How the value of an option is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number: `1000000`, `1_000_000`, `1e6`.
    Count,
    /// A decimal number that is not negative: `10`, `0.5`.
    Decimal,
    /// A number of bytes: `64KiB`, `128MiB`, `4096`.
    Bytes,
    /// Numbers of bytes with commas between: `16KiB,4MiB`.
    ByteList,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words with commas between.
    Choices(&'static [&'static str]),
    /// Anything, such as an address.
    Text,
}

/// One option of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name without the dashes.
    pub name: &'static str,
    /// How its value is written.
    pub kind: Kind,
    /// Its value if it is not given, as a user would write it.
    pub default: &'static str,
    /// One line for `--help`.
    pub summary: &'static str,
}

/// One constructor for each [`Kind`]: name, words to choose from, default, summary.
impl OptionSpec {
    const fn new(name: &'static str, kind: Kind, default: &'static str, summary: &'static str) -> Self {
        Self { name, kind, default, summary }
    }
    pub(crate) const fn count(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Count, default, summary)
    }
    pub(crate) const fn decimal(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Decimal, default, summary)
    }
    pub(crate) const fn bytes(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Bytes, default, summary)
    }
    pub(crate) const fn byte_list(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::ByteList, default, summary)
    }
    pub(crate) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice(words), default, summary)
    }
    pub(crate) const fn choices(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choices(words), default, summary)
    }
    pub(crate) const fn text(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Text, default, summary)
    }
}

/// A command line that cannot be understood: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

#[derive(Debug, Clone, PartialEq)]
enum Setting {
    Number(u64),
    Decimal(f64),
    Numbers(Vec<u64>),
    Text(String),
    Choices(Vec<String>),
}

/// The options of one run: what was given, and the defaults of the rest.
#[derive(Debug, Clone)]
pub struct Options {
    settings: Vec<(&'static str, Setting)>,
}

impl Options {
    /// Reads `--key value` and `--key=value` against the options that `kernel` has.
    pub fn parse(
        kernel: &str,
        specs: &'static [OptionSpec],
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Self, UsageError> {
        let mut options = Self::defaults(specs);
        let mut given: Vec<&str> = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(key) = argument.strip_prefix("--") else {
                return Err(UsageError(format!(
                    "`{argument}` is not an option; write options as `--key value`"
                )));
            };
            let (key, inline) = match key.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (key, None),
            };
            let Some(index) = specs.iter().position(|spec| spec.name == key) else {
                return Err(UsageError(unknown("option", &format!("--{key}"), kernel, specs, key)));
            };
            let spec = &specs[index];
            if given.contains(&spec.name) {
                return Err(UsageError(format!("`--{key}` is given twice; give it once")));
            }
            given.push(spec.name);
            let value = inline.or_else(|| arguments.next()).ok_or_else(|| {
                UsageError(format!("`--{key}` needs a value, such as `--{key} {}`", spec.default))
            })?;
            options.settings[index].1 = read(spec, &value)?;
        }
        Ok(options)
    }

    /// The options when none is given.
    pub fn defaults(specs: &'static [OptionSpec]) -> Self {
        let read_default = |spec: &OptionSpec| {
            read(spec, spec.default).expect("defaults are valid: a test reads all of them")
        };
        Self { settings: specs.iter().map(|spec| (spec.name, read_default(spec))).collect() }
    }

    /// The options as the `params` of the JSON line: numbers as numbers, lists as lists.
    pub fn to_json(&self) -> Map<String, Value> {
        self.settings
            .iter()
            .map(|(name, setting)| {
                let value = match setting {
                    Setting::Number(number) => json!(number),
                    Setting::Decimal(number) => json!(number),
                    Setting::Numbers(numbers) => json!(numbers),
                    Setting::Text(word) => json!(word),
                    Setting::Choices(words) => json!(words),
                };
                ((*name).to_owned(), value)
            })
            .collect()
    }

    fn setting(&self, name: &str) -> &Setting {
        let found = self.settings.iter().find(|(known, _)| *known == name);
        &found.expect("a kernel asks only for options that it declares").1
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.setting(name) {
            Setting::Number(number) => *number,
            other => unreachable!("--{name} is not a number but {other:?}"),
        }
    }

    pub(crate) fn decimal(&self, name: &str) -> f64 {
        match self.setting(name) {
            Setting::Decimal(number) => *number,
            other => unreachable!("--{name} is not a decimal number but {other:?}"),
        }
    }

    pub(crate) fn numbers(&self, name: &str) -> &[u64] {
        match self.setting(name) {
            Setting::Numbers(numbers) => numbers,
            other => unreachable!("--{name} is not a list of numbers but {other:?}"),
        }
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.setting(name) {
            Setting::Text(word) => word,
            other => unreachable!("--{name} is not a text but {other:?}"),
        }
    }

    pub(crate) fn has(&self, name: &str, wanted: &str) -> bool {
        match self.setting(name) {
            Setting::Choices(words) => words.iter().any(|word| word == wanted),
            other => unreachable!("--{name} is not a list of words but {other:?}"),
        }
    }

    /// A number that must be at least `least`.
    pub(crate) fn at_least(&self, name: &str, least: u64) -> Result<u64, UsageError> {
        let number = self.number(name);
        if number < least {
            return Err(UsageError(format!("`--{name} {number}` is too small; the least is {least}")));
        }
        Ok(number)
    }
}

fn unknown(what: &str, written: &str, kernel: &str, specs: &[OptionSpec], key: &str) -> String {
    let mut message = format!("{kernel} has no {what} `{written}`");
    match weigh_model::nearest(key, specs.iter().map(|spec| spec.name)) {
        Some(near) => {
            let _ = write!(message, "; did you mean `--{near}`?");
        }
        None => {
            let _ = write!(message, "; see `weigh-kernels {kernel} --help`");
        }
    }
    message
}

fn read(spec: &OptionSpec, text: &str) -> Result<Setting, UsageError> {
    let wrong = |problem: String| UsageError(format!("cannot read `--{} {text}`: {problem}", spec.name));
    let bytes = |part: &str| weigh_model::parse_bytes(part).map_err(|error| wrong(error.problem));
    let word = |part: &str, words: &[&str]| {
        if words.contains(&part) {
            return Ok(part.to_owned());
        }
        let near =
            weigh_model::nearest(part, words.iter().copied()).map(|near| format!("did you mean `{near}`? "));
        Err(wrong(format!("{}it must be of: {}", near.unwrap_or_default(), words.join(", "))))
    };
    let parts = || text.split(',').map(str::trim);
    Ok(match spec.kind {
        Kind::Count => Setting::Number(
            count(text).ok_or_else(|| wrong("it must be a whole number, as in `1000000` or `1e6`".into()))?,
        ),
        Kind::Decimal => Setting::Decimal(
            text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0).ok_or_else(
                || wrong("it must be a number that is not negative, as in `10` or `0.5`".into()),
            )?,
        ),
        Kind::Bytes => Setting::Number(bytes(text)?),
        Kind::ByteList => Setting::Numbers(parts().map(bytes).collect::<Result<_, _>>()?),
        Kind::Choice(words) => Setting::Text(word(text, words)?),
        Kind::Choices(words) => {
            Setting::Choices(parts().map(|part| word(part, words)).collect::<Result<_, _>>()?)
        }
        Kind::Text => Setting::Text(text.to_owned()),
    })
}

fn count(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    if let Ok(number) = digits.parse() {
        return Some(number);
    }
    let (mantissa, exponent) = digits.split_once('e')?;
    let (mantissa, exponent): (u64, u32) = (mantissa.parse().ok()?, exponent.parse().ok()?);
    mantissa.checked_mul(10u64.checked_pow(exponent)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::count("threads", "0", ""),
        OptionSpec::decimal("seconds", "1", ""),
        OptionSpec::bytes("array-bytes", "1MiB", ""),
        OptionSpec::byte_list("sizes", "1KiB", ""),
        OptionSpec::choice("stores", &["regular", "non-temporal"], "regular", ""),
        OptionSpec::choices("protocols", &["tcp", "udp"], "tcp,udp", ""),
    ];

    fn parse(line: &str) -> Result<Options, UsageError> {
        Options::parse("stream", SPECS, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_are_typed() {
        let options =
            parse("--threads 1e3 --seconds 0.25 --array-bytes=2KiB --sizes 1KiB,3 --protocols udp").unwrap();
        assert_eq!(options.number("threads"), 1000);
        assert_eq!(options.decimal("seconds"), 0.25);
        assert_eq!(options.number("array-bytes"), 2048);
        assert_eq!(options.numbers("sizes"), [1024, 3]);
        assert_eq!(options.text("stores"), "regular");
        assert!(options.has("protocols", "udp") && !options.has("protocols", "tcp"));
        assert_eq!(options.to_json()["array-bytes"], 2048);
    }

    #[test]
    fn errors_say_what_to_write() {
        let message = |line: &str| parse(line).unwrap_err().to_string();
        assert!(message("--thread 2").contains("did you mean `--threads`?"));
        assert!(message("--frobnicate 2").contains("see `weigh-kernels stream --help`"));
        assert!(message("threads 2").contains("write options as `--key value`"));
        assert!(message("--threads").contains("needs a value"));
        assert!(message("--threads two").contains("whole number"));
        assert!(message("--threads -1").contains("whole number"));
        assert!(message("--seconds -1").contains("not negative"));
        assert!(message("--seconds NaN").contains("not negative"));
        assert!(message("--array-bytes 3parsecs").contains("parsecs"));
        assert!(message("--stores reguler").contains("did you mean `regular`?"));
        assert!(message("--protocols tcp,sctp").contains("tcp, udp"));
        assert!(message("--threads 1 --threads 2").contains("given twice"));
        assert!(parse("--threads 3").unwrap().at_least("threads", 4).is_err());
    }

    #[test]
    fn counts_have_three_spellings() {
        assert_eq!(count("1_000"), Some(1000));
        assert_eq!(count("2e3"), Some(2000));
        assert_eq!(count("1e30"), None);
        assert_eq!(count("e3"), None);
    }
}
