//! The parts of a machine: each is an axis of the environment, with what it adds to QEMU's command
//! line.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

/// One axis of a machine, made for one guest before QEMU starts. It lives as long as the guest.
pub(super) trait Part {
    /// Adds the part's devices and options.
    fn arguments(&self, line: &mut Line);

    /// Arguments for the probe, which is the machine's init; empty if the part needs none.
    fn probe_arguments(&self) -> String {
        String::new()
    }

    /// Descriptors that QEMU inherits when it starts; their numbers are among [`Part::arguments`].
    fn passed(&mut self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Facts by parity key, available once the guest is up.
    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// A command line under construction.
#[derive(Debug, Default)]
pub(super) struct Line {
    words: Vec<OsString>,
    machine: Vec<String>,
}

impl Line {
    pub(super) fn word(&mut self, word: impl Into<OsString>) {
        self.words.push(word.into());
    }

    pub(super) fn pair(&mut self, option: &str, value: &(impl AsRef<OsStr> + ?Sized)) {
        self.words.push(option.into());
        self.words.push(value.as_ref().into());
    }

    /// An option of `-machine`.
    pub(super) fn machine(&mut self, option: impl Into<String>) {
        self.machine.push(option.into());
    }

    /// All words, with the type of machine and its options.
    pub(super) fn finish(self, kind: &str) -> Vec<OsString> {
        let mut words = self.words;
        let machine = [kind.into()].into_iter().chain(self.machine).collect::<Vec<String>>().join(",");
        words.push("-machine".into());
        words.push(machine.into());
        words
    }
}

/// Doubles each comma, as QEMU's lists of options require.
pub(super) fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

pub(super) fn escape_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

/// The words that a part adds, separated by spaces.
#[cfg(test)]
pub(super) fn line_of(part: &dyn Part) -> String {
    let mut line = Line::default();
    part.arguments(&mut line);
    let words = line.finish("type");
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
