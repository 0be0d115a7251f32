//! What a machine is put together from: an axis of the environment each, with what it adds to
//! QEMU's command line.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

/// One axis of a machine, made for one guest. It is made before QEMU is started and lives as long
/// as the guest.
pub(super) trait Part {
    /// Adds its devices and options.
    fn arguments(&self, line: &mut Line);

    /// Words for the probe, which is the machine's init; empty when it needs none.
    fn probe_arguments(&self) -> String {
        String::new()
    }

    /// Descriptors that QEMU inherits, handed over when it is started; their numbers are among
    /// [`Part::arguments`].
    fn passed(&mut self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// Facts by parity key, known when the guest is up.
    fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// A command line as it grows.
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

/// In QEMU's lists of options a comma in a value is written twice.
pub(super) fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

pub(super) fn escape_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

/// The words of what parts add, with spaces between.
#[cfg(test)]
pub(super) fn line_of(part: &dyn Part) -> String {
    let mut line = Line::default();
    part.arguments(&mut line);
    let words = line.finish("type");
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
