//! A registry client for pulling public images (OCI distribution specification 1.1).

use super::PullError;
use super::manifest::{ACCEPTED, Descriptor};
use super::reference::{Reference, SHA256, is_loopback};
use crate::FileError;
use crate::bounds::has_room;
use crate::make::{MakeError, Progress};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use ureq::http::header::WWW_AUTHENTICATE;
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Deadline of a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// Deadline of a response, and of every read after that.
const ANSWER: Duration = Duration::from_secs(60);
/// Deadline of a blob.
const BLOB: Duration = Duration::from_secs(30 * 60);
/// Longest manifest (the specification requires registries to accept 4 MiB) and longest response of
/// a token server, bytes.
pub(super) const LONGEST_DOCUMENT: u64 = 4 << 20;

/// One repository of a registry.
pub(super) struct Registry<'a> {
    reference: &'a Reference,
    agent: Agent,
    token: Option<String>,
}

/// The response of a token server. It has the token by either name, or by both.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Token {
    /// Reads the token of a response, if it has one.
    fn read(response: &[u8]) -> Option<String> {
        let Self { token, access_token } = serde_json::from_slice(response).ok()?;
        token.or(access_token)
    }
}

impl<'a> Registry<'a> {
    /// A client, not yet connected.
    pub(super) fn new(reference: &'a Reference) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!reference.is_loopback())
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(ANSWER))
            .timeout_global(Some(BLOB))
            .user_agent("weighbridge")
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
        if reference.is_loopback() {
            config = config.proxy(None);
        }
        Self { reference, agent: config.build().new_agent(), token: None }
    }

    /// Downloads a manifest by tag or digest. Returns it with its digest.
    pub(super) fn manifest(&mut self, version: &str) -> Result<(Vec<u8>, String), PullError> {
        let mut answer = self.get(&format!("manifests/{version}"))?;
        let read = answer.body_mut().with_config().limit(LONGEST_DOCUMENT).read_to_vec();
        let bytes = read.map_err(|error| self.failed(error))?;
        let digest = digest(&bytes);
        if version.starts_with(SHA256) && version != digest {
            return Err(PullError::Digest { expected: version.into(), found: digest });
        }
        Ok((bytes, digest))
    }

    /// Downloads a blob to a file, and verifies its length and its digest.
    pub(super) fn blob(
        &mut self,
        blob: &Descriptor,
        into: &Path,
        progress: &Progress<'_>,
    ) -> Result<(), PullError> {
        let directory = into.parent().unwrap_or(Path::new("."));
        has_room(blob.size, directory).map_err(FileError::of("download a blob to", into))?;
        let answer = self.get(&format!("blobs/{}", blob.digest))?;
        // Read one byte more than allowed, to notice a longer blob.
        let mut body = answer.into_body().into_reader().take(blob.size.saturating_add(1));
        let mut file = File::create(into).map_err(FileError::of("write", into))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 17];
        loop {
            if progress.interrupted() {
                return Err(MakeError::Interrupted.into());
            }
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(PullError::Interrupted { digest: blob.digest.clone(), source }),
            };
            hash.update(&buffer[..read]);
            file.write_all(&buffer[..read]).map_err(FileError::of("write", into))?;
        }
        let found = digest_of(hash);
        if found == blob.digest {
            Ok(())
        } else {
            Err(PullError::Digest { expected: blob.digest.clone(), found })
        }
    }

    fn get(&mut self, path: &str) -> Result<Response<Body>, PullError> {
        let scheme = if self.reference.is_loopback() { "http" } else { "https" };
        let Reference { registry, repository, .. } = self.reference;
        let address = format!("{scheme}://{registry}/v2/{repository}/{path}");
        let mut answer = self.ask(&address)?;
        if answer.status() == StatusCode::UNAUTHORIZED && self.token.is_none() {
            let challenge = answer.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            self.token = Some(self.log_in(challenge.unwrap_or_default())?);
            answer = self.ask(&address)?;
        }
        match answer.status() {
            StatusCode::OK => Ok(answer),
            // Registries do not distinguish private images from missing ones.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.locked()),
            StatusCode::NOT_FOUND => Err(PullError::NotThere(self.reference.to_string())),
            status => Err(PullError::Status { address, status: status.as_u16() }),
        }
    }

    fn ask(&self, address: &str) -> Result<Response<Body>, PullError> {
        let mut request = self.agent.get(address).header("Accept", ACCEPTED);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| self.failed(error))
    }

    /// Gets an anonymous token (distribution project, "Token
    /// authentication specification").
    fn log_in(&self, challenge: &str) -> Result<String, PullError> {
        let parameter = |name| parameter(challenge, name);
        let (Some(realm), true) = (parameter("realm"), challenge.starts_with("Bearer ")) else {
            return Err(self.locked());
        };
        // A remote registry must not redirect us to this host, nor to a server without TLS.
        let authority = realm.parse::<Uri>().ok().and_then(|uri| uri.authority().map(ToString::to_string));
        let safe =
            realm.starts_with("https://") || authority.is_some_and(|authority| is_loopback(&authority));
        if !safe {
            return Err(self.locked());
        }
        let scope =
            parameter("scope").unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository));
        let mut request = self.agent.get(realm).query("scope", scope);
        if let Some(service) = parameter("service") {
            request = request.query("service", service);
        }
        let mut answer = request.call().map_err(|error| self.failed(error))?;
        if answer.status() != StatusCode::OK {
            return Err(self.locked());
        }
        let text = answer.body_mut().with_config().limit(LONGEST_DOCUMENT).read_to_vec();
        let text = text.map_err(|error| self.failed(error))?;
        Token::read(&text).ok_or_else(|| self.locked())
    }

    fn locked(&self) -> PullError {
        PullError::Locked(self.reference.to_string())
    }

    fn failed(&self, error: ureq::Error) -> PullError {
        PullError::Transport { registry: self.reference.registry.clone(), source: Box::new(error) }
    }
}

/// A parameter of a challenge: `name="value"` between commas (RFC 9110, section 11.6.1).
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let start = challenge.match_indices(name).map(|(at, _)| &challenge[at + name.len()..]);
    let mut values = start.filter_map(|rest| rest.strip_prefix("=\"")?.split_once('"'));
    values.next().map(|(value, _)| value.to_string())
}

/// The digest of some bytes, with its prefix.
pub(super) fn digest(bytes: &[u8]) -> String {
    digest_of(Sha256::new_with_prefix(bytes))
}

/// The digest of what was hashed, with its prefix.
pub(super) fn digest_of(hash: Sha256) -> String {
    format!("{SHA256}{}", weigh_model::hex(&hash.finalize()[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let text = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a,b:pull""#;
        assert_eq!(parameter(text, "realm").as_deref(), Some("https://auth.example/token"));
        assert_eq!(parameter(text, "service").as_deref(), Some("registry.example"));
        assert_eq!(parameter(text, "scope").as_deref(), Some("repository:a,b:pull"));
        assert_eq!(parameter(text, "error"), None);
    }

    #[test]
    fn tokens_have_either_name_or_both() {
        for response in [
            r#"{"token":"t","expires_in":300}"#,
            r#"{"access_token":"t"}"#,
            r#"{"token":"t","access_token":"t","issued_at":"2026-01-01T00:00:00Z"}"#,
            r#"{"token":null,"access_token":"t"}"#,
        ] {
            assert_eq!(Token::read(response.as_bytes()).as_deref(), Some("t"), "{response}");
        }
        assert_eq!(Token::read(br#"{"expires_in":300}"#), None);
        assert_eq!(Token::read(b"no JSON"), None);
    }

    #[test]
    fn token_servers_must_use_tls() {
        let reference: Reference = "registry.example/a".parse().unwrap();
        let registry = Registry::new(&reference);
        for challenge in ["", "Basic realm=\"x\"", r#"Bearer realm="http://auth.example/token""#] {
            assert!(matches!(registry.log_in(challenge), Err(PullError::Locked(_))), "{challenge}");
        }
    }
}
