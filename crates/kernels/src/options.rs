//! `--key value` options of the kernels: declared as data, read once, typed.

use serde_json::{Map, Value};

/// How the value of an option is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// A whole number: `1000000`, `1_000_000`, `1e6`.
    Count,
    /// A decimal number that is not negative: `10`, `0.5`.
    Decimal,
    /// A number of bytes: `64KiB`, `128MiB`, `4096`.
    Bytes,
    /// Numbers of bytes, separated by commas: `16KiB,4MiB`.
    ByteList,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, separated by commas.
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
    pub kind: OptionKind,
    /// Its value if it is not given, as a user would write it.
    pub default: &'static str,
    /// One line for `--help`.
    pub summary: &'static str,
}

/// One constructor per [`OptionKind`], from name and default.
impl OptionSpec {
    const fn new(name: &'static str, kind: OptionKind, default: &'static str) -> Self {
        Self { name, kind, default, summary: "" }
    }
    pub(crate) const fn count(name: &'static str, default: &'static str) -> Self {
        Self::new(name, OptionKind::Count, default)
    }
    pub(crate) const fn decimal(name: &'static str, default: &'static str) -> Self {
        Self::new(name, OptionKind::Decimal, default)
    }
    pub(crate) const fn bytes(name: &'static str, default: &'static str) -> Self {
        Self::new(name, OptionKind::Bytes, default)
    }
    pub(crate) const fn byte_list(name: &'static str, default: &'static str) -> Self {
        Self::new(name, OptionKind::ByteList, default)
    }
    pub(crate) const fn text(name: &'static str, default: &'static str) -> Self {
        Self::new(name, OptionKind::Text, default)
    }
    /// The first word is the default.
    pub(crate) const fn choice(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, OptionKind::Choice(words), words[0])
    }
    pub(crate) const fn choices(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Self::new(name, OptionKind::Choices(words), default)
    }
    /// The same option with its line for `--help`.
    pub(crate) const fn help(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }
}

/// A command line that cannot be understood: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The options of one run: the given ones, and the defaults of the others.
#[derive(Debug, Clone)]
pub struct Options {
    settings: Map<String, Value>,
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
            let Some(spec) = specs.iter().find(|spec| spec.name == key) else {
                return Err(UsageError(unknown(kernel, specs, key)));
            };
            if given.contains(&spec.name) {
                return Err(UsageError(format!("`--{key}` is given twice; give it once")));
            }
            given.push(spec.name);
            let value = inline.or_else(|| arguments.next()).ok_or_else(|| {
                UsageError(format!("`--{key}` needs a value, such as `--{key} {}`", spec.default))
            })?;
            options.settings[key] = read(spec, &value)?;
        }
        Ok(options)
    }

    /// The default options.
    pub fn defaults(specs: &'static [OptionSpec]) -> Self {
        let read_default = |spec: &OptionSpec| {
            read(spec, spec.default).expect("defaults are valid: a test reads all of them")
        };
        Self { settings: specs.iter().map(|spec| (spec.name.to_owned(), read_default(spec))).collect() }
    }

    /// The options as the `params` of the JSON line: numbers as numbers, lists as lists.
    pub fn to_json(&self) -> Map<String, Value> {
        self.settings.clone()
    }

    /// The value of an option, read as the kind that the kernel declared.
    fn setting<'s, T>(&'s self, name: &str, read: impl FnOnce(&'s Value) -> Option<T>) -> T {
        let value = self.settings.get(name).and_then(read);
        value.expect("a kernel reads only options that it declares, by their kind")
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.setting(name, Value::as_u64)
    }

    /// A number, or `other` if it is 0.
    pub(crate) fn or(&self, name: &str, other: u64) -> u64 {
        Some(self.number(name)).filter(|number| *number > 0).unwrap_or(other)
    }

    /// The value of `--seed`; if it is 0, a different one each time.
    pub(crate) fn seed(&self) -> u64 {
        self.or("seed", crate::now_ns())
    }

    pub(crate) fn decimal(&self, name: &str) -> f64 {
        self.setting(name, Value::as_f64)
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<u64> {
        self.setting(name, |value| value.as_array()?.iter().map(Value::as_u64).collect())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.setting(name, Value::as_str)
    }

    pub(crate) fn has(&self, name: &str, wanted: &str) -> bool {
        self.setting(name, Value::as_array).iter().any(|word| word == wanted)
    }

    /// A number that must be at least `least`.
    pub(crate) fn at_least(&self, name: &str, least: u64) -> Result<u64, UsageError> {
        let number = self.number(name);
        if number < least {
            return Err(UsageError(format!("`--{name} {number}` is too small; the least is {least}")));
        }
        Ok(number)
    }

    /// A number from `least` to `most`. A larger one is "too `excess`", as in "too many".
    pub(crate) fn within(&self, name: &str, least: u64, most: u64, excess: &str) -> Result<u64, UsageError> {
        let number = self.at_least(name, least)?;
        if number > most {
            return Err(UsageError(format!("`--{name} {number}` is too {excess}; the most is {most}")));
        }
        Ok(number)
    }
}

fn unknown(kernel: &str, specs: &[OptionSpec], key: &str) -> String {
    let help = match weigh_model::nearest(key, specs.iter().map(|spec| spec.name)) {
        Some(near) => format!("did you mean `--{near}`?"),
        None => format!("see `weigh-kernels {kernel} --help`"),
    };
    format!("{kernel} has no option `--{key}`; {help}")
}

fn read(spec: &OptionSpec, text: &str) -> Result<Value, UsageError> {
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
        OptionKind::Count => count(text)
            .ok_or_else(|| wrong("it must be a whole number, as in `1000000` or `1e6`".into()))?
            .into(),
        OptionKind::Decimal => text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| wrong("it must be a number that is not negative, as in `10` or `0.5`".into()))?
            .into(),
        OptionKind::Bytes => bytes(text)?.into(),
        OptionKind::ByteList => parts().map(bytes).collect::<Result<Vec<_>, _>>()?.into(),
        OptionKind::Choice(words) => word(text, words)?.into(),
        OptionKind::Choices(words) => {
            parts().map(|part| word(part, words)).collect::<Result<Vec<_>, _>>()?.into()
        }
        OptionKind::Text => text.into(),
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
        OptionSpec::count("threads", "0"),
        OptionSpec::decimal("seconds", "1"),
        OptionSpec::bytes("array-bytes", "1MiB"),
        OptionSpec::byte_list("sizes", "1KiB"),
        OptionSpec::choice("stores", &["regular", "non-temporal"]),
        OptionSpec::choices("protocols", &["tcp", "udp"], "tcp,udp"),
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
    fn option_errors_include_a_suggestion() {
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
