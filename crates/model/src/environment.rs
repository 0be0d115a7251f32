//! Environment strings: `platform[:key=value,...]`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// One environment as the user names it: a platform and its keys.
///
/// The platforms crate knows which platforms and keys exist; here it is only a string with a shape.
/// The text is kept, with the place of every word, so that an error can underline what is wrong. Two
/// spellings of the same environment are equal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EnvironmentSpec {
    /// Name of the platform or of an alias.
    pub platform: String,
    /// Keys and values in alphabetical order of the keys.
    pub keys: BTreeMap<String, String>,
    text: String,
    platform_span: Range<usize>,
    key_spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
}

impl PartialEq for EnvironmentSpec {
    fn eq(&self, other: &Self) -> bool {
        (&self.platform, &self.keys) == (&other.platform, &other.keys)
    }
}

impl Eq for EnvironmentSpec {}

/// An environment string that is wrong, with the place of the fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SpecError {
    /// The whole environment string.
    pub text: String,
    /// Byte range of the fault within `text`.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl EnvironmentSpec {
    /// Reads one environment.
    ///
    /// ```
    /// use weigh_model::EnvironmentSpec;
    ///
    /// let spec = EnvironmentSpec::parse("docker:net=nat,cpus=2").unwrap();
    /// assert_eq!((spec.platform.as_str(), spec.get("net")), ("docker", Some("nat")));
    /// assert_eq!(spec.to_string(), "docker:cpus=2,net=nat", "the canonical form");
    /// let error = EnvironmentSpec::parse("docker:net").unwrap_err();
    /// assert_eq!(&error.text[error.span.clone()], "net");
    /// ```
    ///
    /// # Errors
    /// A part without a name, a key without a value, a key given twice.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let fault = |span: Range<usize>, message: String, help: &str| SpecError {
            text: text.into(),
            span,
            message,
            help: Some(help.into()),
        };
        let (platform, rest) = text.split_once(':').map_or((text, None), |(p, r)| (p, Some(r)));
        if let Some(name) = platform.split([',', '=']).next().filter(|name| *name != platform) {
            return Err(fault(
                name.len()..platform.len(),
                "the keys of an environment follow a colon".into(),
                "as in `docker:net=nat,storage=volume`",
            ));
        }
        if platform.is_empty() || !platform.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            let span = 0..platform.len().max(usize::from(!text.is_empty()));
            return Err(fault(
                span,
                "an environment starts with the name of a platform".into(),
                "as in `docker:net=nat`",
            ));
        }
        let mut keys = BTreeMap::new();
        let mut key_spans = BTreeMap::new();
        let mut at = platform.len() + 1;
        if rest == Some("") {
            return Err(fault(0..text.len(), "no key follows the colon".into(), "as in `docker:net=nat`"));
        }
        for part in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let end = at + part.len();
            let Some((key, value)) = part.split_once('=') else {
                return Err(fault(at..end, format!("`{part}` has no value"), "write `key=value`"));
            };
            if key.is_empty() || value.is_empty() {
                return Err(fault(at..end, "a key or its value is empty".into(), "write `key=value`"));
            }
            if keys.insert(key.to_string(), value.to_string()).is_some() {
                return Err(fault(
                    at..at + key.len(),
                    format!("the key `{key}` is given twice"),
                    "keep one of them",
                ));
            }
            key_spans.insert(key.to_string(), (at..at + key.len(), at + key.len() + 1..end));
            at = end + 1;
        }
        Ok(Self {
            platform: platform.into(),
            keys,
            text: text.into(),
            platform_span: 0..platform.len(),
            key_spans,
        })
    }

    /// Makes an environment from a platform and keys instead of from a user's text.
    pub fn new(platform: &str, keys: BTreeMap<String, String>) -> Self {
        let mut text = platform.to_string();
        for (i, (key, value)) in keys.iter().enumerate() {
            text.push(if i == 0 { ':' } else { ',' });
            text.push_str(&format!("{key}={value}"));
        }
        Self {
            platform: platform.into(),
            keys,
            text,
            platform_span: 0..platform.len(),
            key_spans: BTreeMap::new(),
        }
    }

    /// The value of a key, if given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    /// The environment with another value of a key.
    pub fn with(&self, key: &str, value: &str) -> Self {
        let mut keys = self.keys.clone();
        keys.insert(key.into(), value.into());
        Self::new(&self.platform, keys)
    }

    /// The environment without some keys.
    pub fn without(&self, keys: &[&str]) -> Self {
        let mut left = self.keys.clone();
        left.retain(|key, _| !keys.contains(&key.as_str()));
        Self::new(&self.platform, left)
    }

    /// An error that underlines the platform's name. `help` says what to write instead; it is empty
    /// where there is nothing to say.
    pub fn platform_error(&self, message: impl Into<String>, help: impl Into<String>) -> SpecError {
        self.error(self.platform_span.clone(), message.into(), help.into())
    }

    /// An error that underlines a key.
    pub fn key_error(&self, key: &str, message: impl Into<String>, help: impl Into<String>) -> SpecError {
        let span = self.key_spans.get(key).map_or(&self.platform_span, |(key, _)| key);
        self.error(span.clone(), message.into(), help.into())
    }

    /// An error that underlines the value of a key.
    pub fn value_error(&self, key: &str, message: impl Into<String>, help: impl Into<String>) -> SpecError {
        let span = self.key_spans.get(key).map_or(&self.platform_span, |(_, value)| value);
        self.error(span.clone(), message.into(), help.into())
    }

    fn error(&self, span: Range<usize>, message: String, help: String) -> SpecError {
        let help = Some(help).filter(|help| !help.is_empty());
        SpecError { text: self.text.clone(), span, message, help }
    }
}

/// Writes the canonical form: keys in alphabetical order. Two environments are the same when their
/// canonical forms are.
impl fmt::Display for EnvironmentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.platform)?;
        for (i, (key, value)) in self.keys.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for EnvironmentSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::parse(&text)
    }
}

impl From<EnvironmentSpec> for String {
    fn from(spec: EnvironmentSpec) -> Self {
        spec.to_string()
    }
}

/// Reads the value of one `--on`: environments separated by commas or `;`. After a comma, a key of the
/// environment before it has a `=` and no `:` before that.
///
/// # Errors
/// As [`EnvironmentSpec::parse`], for the first environment that is wrong.
pub fn parse_environment_list(text: &str) -> Result<Vec<EnvironmentSpec>, SpecError> {
    let mut environments = Vec::new();
    for list in text.split(';') {
        let mut start = 0;
        for (comma, _) in list.match_indices(',') {
            if begins_environment(&list[comma + 1..]) {
                environments.push(&list[start..comma]);
                start = comma + 1;
            }
        }
        environments.push(&list[start..]);
    }
    environments
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(EnvironmentSpec::parse)
        .collect()
}

/// Whether the text behind a comma begins with an environment, and not with a key.
fn begins_environment(rest: &str) -> bool {
    let part = rest.split(',').next().unwrap_or(rest);
    part.split_once('=').is_none_or(|(name, _)| name.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_with_and_without_keys() {
        let names =
            |text| parse_environment_list(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names("native,docker,kvm"), ["native", "docker", "kvm"]);
        assert_eq!(
            names("native; docker:storage=overlay,net=nat"),
            ["native", "docker:net=nat,storage=overlay"]
        );
        assert_eq!(
            names("native,docker:storage=overlay,net=nat,runc,lxc:rootfs=oci:debian:12,init=full,kvm"),
            ["native", "docker:net=nat,storage=overlay", "runc", "lxc:init=full,rootfs=oci:debian:12", "kvm"]
        );
        assert_eq!(
            names("ssh:host=me@[fe80::1],port=22;native,"),
            ["ssh:host=me@[fe80::1],port=22", "native"]
        );
        let fault = |text| parse_environment_list(text).unwrap_err();
        let error = fault("native,docker:net");
        assert_eq!((error.text.as_str(), &error.text[error.span.clone()]), ("docker:net", "net"));
        let error = fault("native,net=host");
        assert_eq!(&error.text[error.span.clone()], ",net=host");
        assert!(error.message.contains("follow a colon"), "{error}");
        assert!(fault("runc,docker:").message.contains("no key"));
    }

    #[test]
    fn the_order_of_keys_makes_no_difference() {
        let spec = |text| EnvironmentSpec::parse(text).unwrap();
        assert_eq!(spec("docker:storage=overlay,net=nat"), spec("docker:net=nat,storage=overlay"));
        assert_ne!(spec("docker:storage=overlay,net=nat"), spec("docker:storage=overlay,net=host"));
    }

    #[test]
    fn faults_are_located() {
        let error = EnvironmentSpec::parse("docker:net=nat,storage").unwrap_err();
        assert_eq!(&error.text[error.span], "storage");
        let error = EnvironmentSpec::parse("docker:net=nat,net=host").unwrap_err();
        assert_eq!(error.span, 15..18);
        assert!(EnvironmentSpec::parse(":net=nat").is_err());
        assert!(EnvironmentSpec::parse("").is_err());
        let spec = EnvironmentSpec::parse("docker:net=nta").unwrap();
        let error = spec.value_error("net", "unknown value", "");
        assert_eq!(&error.text[error.span], "nta");
    }

    proptest! {
        #[test]
        fn canonical_form_survives(platform in "[a-z][a-z0-9_-]{0,8}", keys in proptest::collection::btree_map("[a-z]{1,6}", "[a-z0-9./@]{1,8}", 0..4)) {
            let spec = EnvironmentSpec::new(&platform, keys);
            let again = EnvironmentSpec::parse(&spec.to_string()).unwrap();
            prop_assert_eq!(again.to_string(), spec.to_string());
        }
    }
}
