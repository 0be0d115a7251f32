//! The last selftest of this host, which `weigh doctor` shows. Runs say if it failed or is out of
//! date. It is kept in the cache: if a user deletes it, a new selftest takes three minutes.

use serde::{Deserialize, Serialize};
use std::path::Path;
use weigh_host::cache::CacheDirectory;
use weigh_host::{clock, private};
use weigh_model::HostFacts;

const FILE: &str = "selftest.json";
const LONGEST_BYTES: u64 = 64 << 10;

/// Days for which a result holds while the host stays the same.
const VALID_DAYS: u64 = 90;

/// How a selftest ended, and on which host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSelftest {
    /// When it ended, UTC, RFC 3339.
    pub at: String,
    /// Version of weigh.
    pub tool_version: String,
    /// Identity of the machine: several may share a cache.
    pub machine: String,
    pub kernel: String,
    pub cpu_model: String,
    /// Whether every count was inside its band.
    pub passed: bool,
    /// The verdict in a sentence.
    pub statement: String,
}

impl LastSelftest {
    /// Makes the record of a selftest that has just ended on this host.
    pub fn now(host: &HostFacts, passed: bool, statement: &str) -> Self {
        Self {
            at: clock::utc_now(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            machine: host.identity.clone(),
            kernel: host.kernel.clone(),
            cpu_model: host.cpu_model.clone(),
            passed,
            statement: statement.into(),
        }
    }

    /// Remembers it. Returns whether that was possible. A failure loses only the record.
    pub fn keep(&self) -> bool {
        CacheDirectory::open().is_some_and(|cache| self.keep_in(cache.path()))
    }

    /// Returns the last selftest of this host, if one is remembered.
    pub fn of(host: &HostFacts) -> Option<Self> {
        Self::in_directory(CacheDirectory::open()?.path(), host)
    }

    fn keep_in(&self, directory: &Path) -> bool {
        let text = serde_json::to_vec_pretty(self).expect("plain data becomes JSON");
        private::prepare(directory).is_ok() && weigh_store::write_whole(directory, FILE, &text).is_ok()
    }

    fn in_directory(directory: &Path, host: &HostFacts) -> Option<Self> {
        private::check(directory).ok()?;
        let bytes = weigh_store::files::read(directory, FILE, LONGEST_BYTES).ok()?;
        let last: Self = serde_json::from_slice(&bytes).ok()?;
        (last.machine == host.identity).then_some(last)
    }

    /// Returns the day on which it ended.
    pub fn day(&self) -> &str {
        self.at.split('T').next().unwrap_or(&self.at)
    }

    /// Describes why the result may no longer hold, a phrase each; nothing if it is up to date.
    pub fn outdated(&self, host: &HostFacts) -> Vec<String> {
        let days = clock::days_since(&self.at).filter(|days| *days > VALID_DAYS);
        let passed = days.map(|days| format!("{days} days have passed"));
        passed.into_iter().chain(self.changed_since(host)).collect()
    }

    /// Describes what has changed since, a phrase each.
    fn changed_since(&self, host: &HostFacts) -> Vec<String> {
        let version = env!("CARGO_PKG_VERSION");
        let changed = [
            ("weigh", self.tool_version.as_str(), version),
            ("the kernel", &self.kernel, &host.kernel),
            ("the CPU", &self.cpu_model, &host.cpu_model),
        ];
        let changed = changed.into_iter().filter(|(_, then, now)| then != now);
        changed.map(|(what, then, now)| format!("{what} was {then} and is {now}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kernel: &str) -> HostFacts {
        HostFacts { identity: "m".into(), kernel: kernel.into(), ..HostFacts::default() }
    }

    #[test]
    fn the_last_one_of_this_host_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        assert_eq!(LastSelftest::in_directory(&cache, &host("6.1")), None);
        let failed = LastSelftest::now(&host("6.1"), false, "three of twenty");
        assert!(failed.keep_in(&cache));
        assert_eq!(LastSelftest::in_directory(&cache, &host("6.1")), Some(failed));
        let passed = LastSelftest::now(&host("6.1"), true, "none of twenty");
        assert!(passed.keep_in(&cache));
        let last = LastSelftest::in_directory(&cache, &host("6.2")).unwrap();
        assert!(last.passed && last.day().len() == 10, "{last:?}");
        assert_eq!(last.outdated(&host("6.1")), Vec::<String>::new());
        assert_eq!(last.outdated(&host("6.2")), ["the kernel was 6.1 and is 6.2"]);
        let old = LastSelftest { at: "2020-02-03T04:05:06Z".into(), ..last };
        let outdated = old.outdated(&host("6.1"));
        assert!(outdated.len() == 1 && outdated[0].ends_with(" days have passed"), "{outdated:?}");
        let other = HostFacts { identity: "another".into(), ..host("6.1") };
        assert_eq!(LastSelftest::in_directory(&cache, &other), None, "the cache may be shared");
    }

    #[test]
    fn nonsense_is_no_selftest() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(LastSelftest::in_directory(directory.path(), &host("6.1")), None);
        assert!(!LastSelftest::now(&host("6.1"), true, "").keep_in(&directory.path().join(FILE)));
    }
}
