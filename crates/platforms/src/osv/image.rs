//! The user's image: a kernel that QEMU boots directly, a disk that boots by itself, or both; and
//! the command line, which is the only thing in it that changes.

use super::{Osv, PLATFORM};
use crate::helpers::fnv_1a;
use crate::{GuestRequest, Host, PlatformError, Result, setting};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::{Invocation, find_program};
use weigh_protocol::Command;

/// Offset of the command line on a disk that boots by itself. A zero byte ends it
/// (`scripts/imgedit.py` of OSv).
const COMMAND_LINE_AT: u64 = 512;
/// Longest command line that OSv is given, bytes. On a disk, the loader follows it.
const LONGEST: usize = 2048;
/// The first bytes of an ELF kernel, and of a disk in QEMU's own format.
const ELF: &[u8] = b"\x7fELF";
const QCOW: &[u8] = b"QFI\xfb";
/// Time limit for converting a disk of some hundred MB.
const CONVERT_DEADLINE: Duration = Duration::from_secs(300);

/// What a machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    /// Booted directly, with the command line as QEMU's `-append`.
    pub(super) kernel: Option<PathBuf>,
    /// The disk and its format. Without a kernel it is the guest's own copy, with the command line
    /// in it.
    pub(super) disk: Option<(PathBuf, &'static str)>,
}

fn beginning(path: &Path) -> Result<[u8; 4]> {
    let mut bytes = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(PlatformError::at("read", path))
}

impl Boot {
    /// Reads the environment's keys.
    ///
    /// # Errors
    /// The files cannot be read, or do not have the format that their key requires.
    pub(super) fn of(request: &GuestRequest) -> Result<Self> {
        let given = |key| Some(setting(&Osv, &request.environment, key)).filter(|value| !value.is_empty());
        let absolute = |path: &str| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let image = absolute(given("image").unwrap_or_default());
        let kernel = given("kernel").map(absolute);
        let wrong = |reason: String| {
            let remedy = "name OSv's loader.elf as kernel= and a raw or qcow2 disk as image=, or one of both as image=";
            PlatformError::unavailable(reason, remedy)
        };
        let is_kernel = beginning(&image)? == ELF;
        match kernel {
            None if is_kernel => Ok(Self { kernel: Some(image), disk: None }),
            Some(_) if is_kernel => {
                Err(wrong(format!("the image {} is a kernel, not a disk", image.display())))
            }
            Some(kernel) if beginning(&kernel)? != ELF => {
                Err(wrong(format!("the kernel {} is not in ELF's format", kernel.display())))
            }
            kernel => {
                let format = if beginning(&image)? == QCOW { "qcow2" } else { "raw" };
                Ok(Self { kernel, disk: Some((image, format)) })
            }
        }
    }

    /// Converts a disk that boots by itself to a raw one, once in a run, so that the command line
    /// has a fixed place in the file.
    ///
    /// # Errors
    /// `qemu-img` is missing or failed.
    pub(super) fn prepare(mut self, host: &Host) -> Result<Self> {
        let (None, Some((image, "qcow2"))) = (&self.kernel, &self.disk) else { return Ok(self) };
        let raw = host.work.join(format!("{PLATFORM}-{:016x}.raw", fnv_1a(image.to_string_lossy().bytes())));
        if !raw.exists() {
            let program = find_program("qemu-img").ok_or_else(|| {
                PlatformError::unavailable(
                    "qcow2 images need the program qemu-img, which is missing",
                    "install it with `apt-get install qemu-utils`, or name a raw image",
                )
            })?;
            let staging = raw.with_extension("new");
            let convert = Invocation::new(program).args(["convert", "-f", "qcow2", "-O", "raw"]);
            let convert = convert.arg(image).arg(&staging).log_to(&host.logs.join(format!("{PLATFORM}.log")));
            convert.deadline(CONVERT_DEADLINE).run_ok()?;
            fs::rename(&staging, &raw).map_err(PlatformError::at("rename", &staging))?;
        }
        self.disk = Some((raw, "raw"));
        Ok(self)
    }

    /// Gives a guest its own copy of a disk that boots by itself. Also returns the copy's path; the
    /// copy is removed with the guest.
    pub(super) fn of_guest(mut self, place: &Path) -> Result<(Self, Option<PathBuf>)> {
        let (None, Some((disk, format))) = (&self.kernel, &self.disk) else { return Ok((self, None)) };
        fs::copy(disk, place).map_err(PlatformError::at("copy", disk))?;
        self.disk = Some((place.into(), format));
        Ok((self, Some(place.into())))
    }

    /// Puts a command line where the machine finds it. Returns the QEMU arguments that this takes.
    ///
    /// # Errors
    /// The guest's disk could not be written.
    pub(super) fn arm(&self, line: &str) -> std::io::Result<Vec<String>> {
        match (&self.kernel, &self.disk) {
            (Some(kernel), _) => {
                Ok(["-kernel", &kernel.to_string_lossy(), "-append", line].map(String::from).to_vec())
            }
            (None, Some((disk, _))) => {
                let mut file = OpenOptions::new().write(true).open(disk)?;
                file.seek(SeekFrom::Start(COMMAND_LINE_AT))?;
                file.write_all(&[line.as_bytes(), &[0]].concat())?;
                Ok(Vec::new())
            }
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// A command that OSv's command line cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandLineError {
    #[error("`{0}` cannot be put on OSv's command line")]
    Word(String),
    #[error("a command line of {0} bytes is too long for OSv")]
    Length(usize),
}

/// The command line for a command of `weigh-kernels`: options of OSv, the program, its arguments.
///
/// Of the environment the program gets only weighbridge's own short variables. A search path, a
/// home and a padded stack mean nothing to a unikernel.
///
/// # Errors
/// OSv's command line cannot hold one of the words, or all of them.
pub(super) fn command_line(program: &str, command: &Command) -> Result<String, CommandLineError> {
    // OSv itself interprets quotes, command separators and white space.
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
    };
    let own = |name: &str, value: &str| name.starts_with("WEIGH_") && value.len() <= 64;
    let variables = command.environment.iter().filter(|(name, value)| own(name, value) && !value.is_empty());
    let variables = variables.map(|(name, value)| format!("--env={name}={value}"));
    let arguments = command.argv.iter().skip(1).cloned();
    let words: Vec<String> = std::iter::once("--power-off-on-abort".to_string())
        .chain(variables)
        .chain([program.to_string()])
        .chain(arguments)
        .collect();
    if let Some(word) = words.iter().find(|word| !plain(word)) {
        return Err(CommandLineError::Word(word.clone()));
    }
    let line = words.join(" ");
    if line.len() > LONGEST {
        return Err(CommandLineError::Length(line.len()));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command {
            argv: argv.iter().map(ToString::to_string).collect(),
            environment: [("PATH", "/bin"), ("WEIGH_SPIN", "0.05"), ("WEIGH_PADDING", &"x".repeat(100))]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            working_directory: None,
            input: weigh_protocol::Input::Empty,
            output_limit_bytes: 0,
        }
    }

    #[test]
    fn command_lines_hold_plain_words() {
        let line = command_line("/weigh-kernels", &command(&["weigh-kernels", "noploop", "--nops", "1000"]));
        assert_eq!(
            line.unwrap(),
            "--power-off-on-abort --env=WEIGH_SPIN=0.05 /weigh-kernels noploop --nops 1000"
        );
        for word in ["a b", "a;b", "a\"", "", "a&"] {
            assert!(command_line("/p", &command(&["weigh-kernels", word])).is_err(), "{word:?}");
        }
        assert!(command_line("/p", &command(&["weigh-kernels", &"x".repeat(3000)])).is_err());
    }

    #[test]
    fn the_users_disk_is_never_written() {
        let base = tempfile::tempdir().unwrap();
        let (disk, copy) = (base.path().join("usr.img"), base.path().join("copy"));
        fs::write(&disk, vec![7; 4096]).unwrap();
        let boot = Boot { kernel: None, disk: Some((disk.clone(), "raw")) };
        let (boot, own) = boot.of_guest(&copy).unwrap();
        assert_eq!(own.as_deref(), Some(copy.as_path()));
        assert!(boot.arm("/program now").unwrap().is_empty());
        assert_eq!(fs::read(&disk).unwrap(), vec![7; 4096]);
        let written = fs::read(&copy).unwrap();
        assert_eq!(&written[512..525], b"/program now\0");
        assert_eq!((written[511], written[525], written.len()), (7, 7, 4096));
    }
}
