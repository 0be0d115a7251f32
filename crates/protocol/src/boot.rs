//! Two small tables in the initial root of a machine, which its init reads before it can connect.
//!
//! [`MODULES`] has a line for every kernel module, in loading order: the path of the decompressed
//! file, and after a space the module's parameters, if any.
//!
//! [`MOUNTS`] has a line for every mount, in order: type, source, target and options, separated by
//! single spaces. Options are those of mount(8), separated by commas: mount flags, and options that
//! are passed to the file system. A missing target is made as a directory.
//!
//! In paths and options, spaces, tabs, line ends, backslashes and number signs are written as a
//! backslash and three octal digits, as in fstab(5). Empty lines and lines that begin with a number
//! sign are ignored.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Path of the table of modules.
pub const MODULES: &str = "/.weighbridge/modules";
/// Path of the table of mounts.
pub const MOUNTS: &str = "/.weighbridge/mounts";
/// Prefix of the console message that says why the network could not be configured.
pub const NO_NETWORK: &str = "no network: ";

/// A line of the table of mounts without four fields.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not have four fields")]
pub struct MalformedMount(String);

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootMount {
    /// Type of the file system.
    pub kind: String,
    /// A device, a tag, or a meaningless word.
    pub source: String,
    /// Absolute, in the guest.
    pub target: String,
    /// Mount flags and options of the file system, separated by commas.
    pub options: String,
}

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootModule {
    /// Path of the file in the guest, absolute.
    pub path: String,
    /// As for modprobe(8); may be empty.
    pub parameters: String,
}

impl BootMount {
    /// A mount of these four fields.
    pub fn new(kind: &str, source: &str, target: &str, options: &str) -> Self {
        let [kind, source, target, options] = [kind, source, target, options].map(ToString::to_string);
        Self { kind, source, target, options }
    }

    /// Parses the mounts of a table; malformed lines are errors.
    pub fn parse(table: &str) -> Vec<Result<Self, MalformedMount>> {
        let parse = |line: &str| {
            let fields: Vec<String> = line.split(' ').map(unescape).collect();
            match <[String; 4]>::try_from(fields) {
                Ok([kind, source, target, options]) => Ok(Self { kind, source, target, options }),
                Err(_) => Err(MalformedMount(line.into())),
            }
        };
        lines(table).map(parse).collect()
    }
}

impl BootModule {
    /// Parses the modules of a table.
    pub fn parse(table: &str) -> Vec<Self> {
        let parse = |line: &str| {
            let (path, parameters) = line.split_once(' ').unwrap_or((line, ""));
            Self { path: unescape(path), parameters: parameters.into() }
        };
        lines(table).map(parse).collect()
    }
}

/// A line of the table, with a line end.
impl fmt::Display for BootMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, source, target, options] =
            [&self.kind, &self.source, &self.target, &self.options].map(|field| escape(field));
        writeln!(f, "{kind} {source} {target} {options}")
    }
}

/// A line of the table, with a line end.
impl fmt::Display for BootModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.parameters.is_empty() { "" } else { " " };
        writeln!(f, "{}{space}{}", escape(&self.path), self.parameters)
    }
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' | '#' => escaped.push_str(&format!("\\{:03o}", letter as u32)),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Decodes the escapes. A backslash without three octal digits after it is kept as it is.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(code as char);
                plain.push_str(&piece[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_look_as_documented() {
        let mount = BootMount::new("hostfs", "none", "/my files", "ro,/my files");
        assert_eq!(mount.to_string(), "hostfs none /my\\040files ro,/my\\040files\n");
        let table = "# comment\n\nhostfs none /my\\040files ro,/my\\040files\ntmpfs none /tmp\n";
        let parsed = BootMount::parse(table);
        assert_eq!(parsed[0], Ok(mount));
        let error = parsed[1].as_ref().unwrap_err().to_string();
        assert_eq!(error, "`tmpfs none /tmp` does not have four fields");
        let modules = BootModule::parse("/lib/a.ko\n/lib/b\\040c.ko speed=1 name=x\n");
        let fields: Vec<(&str, &str)> =
            modules.iter().map(|module| (module.path.as_str(), module.parameters.as_str())).collect();
        assert_eq!(fields, [("/lib/a.ko", ""), ("/lib/b c.ko", "speed=1 name=x")]);
        assert_eq!(modules[1].to_string(), "/lib/b\\040c.ko speed=1 name=x\n");
    }

    #[test]
    fn a_lonely_backslash_stays() {
        assert_eq!(unescape("a\\b\\999\\04"), "a\\b\\999\\04");
    }

    proptest! {
        #[test]
        fn any_boot_mount_is_read_back(fields in prop::collection::vec("[^\\x00]{0,12}", 4)) {
            let mount = BootMount::new(&fields[0], &fields[1], &fields[2], &fields[3]);
            let parsed = BootMount::parse(&mount.to_string());
            prop_assert_eq!(parsed, [Ok(mount)]);
        }
    }
}
