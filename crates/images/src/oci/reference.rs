//! Names of images in registries.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Length limits of repositories and tags (OCI distribution specification 1.1, "Pulling
/// manifests").
const LONGEST: (usize, usize) = (255, 128);
/// The tag of a reference that has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";
/// Prefix of digests; no other algorithm is in use.
pub(super) const SHA256: &str = "sha256:";

/// Why a reference is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the name of an image of a registry: {fault}")]
pub struct ReferenceError {
    text: String,
    fault: &'static str,
}

/// `REGISTRY/REPOSITORY[:TAG][@sha256:DIGEST]`. The registry is mandatory: there is no default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The host, with a port if there is one.
    pub(super) registry: String,
    /// The components, separated by slashes.
    pub(super) repository: String,
    /// The name of a version; `latest` if there is no digest either.
    pub(super) tag: Option<String>,
    /// `sha256:` and 64 hexadecimal digits.
    pub(super) digest: Option<String>,
}

impl Reference {
    /// The version in URLs of a registry.
    pub(super) fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or(DEFAULT_TAG)
    }

    /// The same image by its digest.
    pub(super) fn pinned(&self, digest: &str) -> Self {
        Self { tag: None, digest: Some(digest.into()), ..self.clone() }
    }

    /// Whether the registry is on this host. Only then is TLS not used.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.registry)
    }
}

/// Whether `host[:port]` is this host.
pub(super) fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let fault = |fault| ReferenceError { text: text.into(), fault };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(fault("after `@` there must be `sha256:` and 64 hexadecimal digits"));
        }
        let missing = "name the registry, too, as in `registry.example/name:tag` or `localhost:5000/name`";
        let (registry, path) = rest.split_once('/').ok_or_else(|| fault(missing))?;
        if !registry.contains(['.', ':']) && registry != "localhost" {
            return Err(fault(missing));
        }
        let of_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        if !registry.chars().all(of_host) {
            return Err(fault("the registry must be a host name or an address, with an optional port"));
        }
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if repository.len() > LONGEST.0 || !repository.split('/').all(is_word) {
            return Err(fault(
                "a repository consists of lower-case letters and digits, in words separated by `/`, `.`, `_` or `-`",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(fault("a tag consists of at most 128 letters, digits, `_`, `.` and `-`"));
        }
        let tag = tag.or(if digest.is_none() { Some(DEFAULT_TAG) } else { None });
        Ok(Self {
            registry: registry.into(),
            repository: repository.into(),
            tag: tag.map(Into::into),
            digest: digest.map(Into::into),
        })
    }
}

/// Whether a text is a digest with its prefix.
pub(super) fn is_digest(word: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    word.strip_prefix(SHA256).is_some_and(|digits| digits.len() == 64 && digits.bytes().all(digit))
}

fn is_word(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    word.starts_with(plain) && word.ends_with(plain) && word.chars().all(|c| plain(c) || "._-".contains(c))
}

fn is_tag(tag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.starts_with(plain) && tag.len() <= LONGEST.1 && tag.chars().all(|c| plain(c) || ".-".contains(c))
}

/// Shows the implied tag, so that every image has one name.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        text.parse::<Reference>().unwrap().to_string()
    }

    #[test]
    fn the_implied_tag_is_shown() {
        assert_eq!(parsed("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(parsed("registry.example/a/b-c:1.0"), "registry.example/a/b-c:1.0");
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(parsed(&format!("[::1]:5000/a@{digest}")), format!("[::1]:5000/a@{digest}"));
        assert_eq!(parsed(&format!("127.0.0.1/a:1@{digest}")), format!("127.0.0.1/a:1@{digest}"));
    }

    #[test]
    fn faults_of_a_reference_are_reported() {
        for (text, word) in [
            ("alpine", "registry"),
            ("library/alpine:3", "registry"),
            ("registry.example/", "repository"),
            ("registry.example/A", "repository"),
            ("registry.example/a//b", "repository"),
            ("registry.example/../a", "repository"),
            ("registry.example/a:", "tag"),
            ("registry.example/a:b/c", "tag"),
            ("registry.example/a@sha256:12", "64"),
            ("user@registry.example/a", "64"),
            ("registry.example?x=/a", "host name"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn only_this_host_needs_no_tls() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry.example", "10.0.0.1:5000", "localhost.example:5000", "127.0.0.1.example"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
