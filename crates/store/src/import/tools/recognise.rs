//! Recognises the tool that wrote a file.

use super::super::BYTE_ORDER_MARK;
use super::{Tool, fio, go};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The greatest number of keys that are read: further keys say no more about who wrote a file.
const MOST_KEYS: usize = 64;

/// Returns the tool that writes such a file.
pub(super) fn tool(bytes: &[u8]) -> Option<Tool> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii_start();
    if !text.starts_with(b"{") {
        let is_fio = fio::json_start(text).is_some();
        return if is_fio { Some(Tool::Fio) } else { go::holds_results(text).then_some(Tool::Go) };
    }
    let keys = Keys::of(text);
    let has = |key: &str| keys.0.iter().any(|(known, _)| known == key);
    match () {
        // This is a row of samples, which may have further keys of any name.
        () if has("environment") && has("value") => None,
        () if has("fio version") => Some(Tool::Fio),
        () if has("git_revision") || has("git_human_readable") => Some(Tool::CloudHypervisor),
        () if has("machine_info") || has("commit_info") => Some(Tool::PytestBenchmark),
        () if has("benchmarks") || has("context") => Some(Tool::GoogleBenchmark),
        () if has("results") => Some(Tool::Hyperfine),
        () if has("metrics") && has("dimensions") => Some(Tool::Firecracker),
        () if keys.0.first().is_some_and(|(_, below)| below.iter().any(|key| key == "values")) => {
            Some(Tool::Firecracker)
        }
        () => None,
    }
}

/// The keys of an object, each with the keys of the object below it. For a text that is cut short,
/// the keys before its end.
#[derive(Default)]
struct Keys(Vec<(String, Vec<String>)>);

impl Keys {
    fn of(text: &[u8]) -> Self {
        let mut keys = Self::default();
        // A fault further on is reported when the file is read.
        let _ = serde_json::Deserializer::from_slice(text).deserialize_map(Top(&mut keys.0));
        keys
    }
}

struct Top<'k>(&'k mut Vec<(String, Vec<String>)>);

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.0.len() == MOST_KEYS {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.0.push((key, Vec::new()));
            let below = self.0.last_mut().map(|(_, below)| below);
            map.next_value_seed(Below(below))?;
        }
        Ok(())
    }
}

/// Collects the keys of a value that is an object, and skips any other value.
struct Below<'k>(Option<&'k mut Vec<String>>);

impl<'de> serde::de::DeserializeSeed<'de> for Below<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Below<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(mut keys) = self;
        while let Some(key) = map.next_key::<String>()? {
            if let Some(keys) = keys.as_mut().filter(|keys| keys.len() < MOST_KEYS) {
                keys.push(key);
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
