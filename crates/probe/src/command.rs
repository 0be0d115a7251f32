//! Preparing the arguments of `execve(2)` for a command.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rustix::fs::{Access, FileType, access, stat};
use rustix::io::Errno;
use weigh_protocol::Command;

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What failed.
    pub reason: String,
    /// The error number, 0 when there is none.
    pub errno: i32,
}

impl Refusal {
    /// A system call failed; `doing` is the operation or the path.
    pub fn of(doing: &str, errno: Errno) -> Self {
        Self { reason: format!("{doing}: {}", describe(errno)), errno: errno.raw_os_error() }
    }

    /// Another reason, with the error number that fits.
    pub fn because(reason: impl ToString, errno: Errno) -> Self {
        Self { reason: reason.to_string(), errno: errno.raw_os_error() }
    }
}

/// The C library's message for an error number.
fn describe(errno: Errno) -> String {
    let mut buffer = [0u8; 128];
    // SAFETY: the buffer is that long; strerror_r ends what it writes with a zero byte.
    unsafe { libc::strerror_r(errno.raw_os_error(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(0);
    let words = String::from_utf8_lossy(&buffer[..end]);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The arguments of `execve(2)`, and the working directory.
pub struct Prepared {
    /// Path of the program.
    pub program: CString,
    /// Arguments, including the name of the program.
    pub arguments: Vec<CString>,
    /// `NAME=value`.
    pub environment: Vec<CString>,
    /// The working directory.
    pub working_directory: CString,
}

/// Finds the program and makes C strings. `own_directory` is the directory of the probe, with a
/// slash at the end.
pub fn prepare(command: &Command, own_directory: &str) -> Result<Prepared, Refusal> {
    let name = command.argv.first().ok_or_else(|| Refusal::because("the command is empty", Errno::INVAL))?;
    let directory = command.working_directory.as_deref().unwrap_or("/");
    match stat(directory) {
        Ok(status) if FileType::from_raw_mode(status.st_mode) != FileType::Directory => {
            return Err(Refusal::of(&format!("the working directory {directory}"), Errno::NOTDIR));
        }
        Ok(_) => {}
        Err(errno) => return Err(Refusal::of(&format!("the working directory {directory}"), errno)),
    }
    let path = if name.contains('/') {
        name.clone()
    } else {
        look_up(name, directory, path_of(command), own_directory)?
    };
    let environment = command.environment.iter().map(|(name, value)| text(format!("{name}={value}")));
    Ok(Prepared {
        program: text(path)?,
        arguments: command.argv.iter().map(|argument| text(argument.clone())).collect::<Result<_, _>>()?,
        environment: environment.collect::<Result<_, _>>()?,
        working_directory: text(directory.into())?,
    })
}

fn text(text: String) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::because("a text of the command holds a zero byte", Errno::INVAL))
}

/// `PATH` of the environment of the command.
fn path_of(command: &Command) -> &str {
    command.environment.iter().find(|(key, _)| key == "PATH").map_or("", |(_, value)| value.as_str())
}

/// Finds a program without a slash: beside the probe first, then in `path`.
pub fn look_up(
    name: &str,
    working_directory: &str,
    path: &str,
    own_directory: &str,
) -> Result<String, Refusal> {
    let mut denied = None;
    let beside = Some(own_directory).filter(|directory| !directory.is_empty());
    for directory in beside.into_iter().chain(path.split(':').filter(|_| !path.is_empty())) {
        let slash = if directory.ends_with('/') { "" } else { "/" };
        let candidate = match directory {
            // An empty entry is the working directory, and entries may be relative to it (POSIX).
            "" => format!("{working_directory}/{name}"),
            directory if directory.starts_with('/') => format!("{directory}{slash}{name}"),
            directory => format!("{working_directory}/{directory}{slash}{name}"),
        };
        let is_file =
            stat(&candidate).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
        match access(&candidate, Access::EXEC_OK) {
            Ok(()) if is_file => return Ok(candidate),
            Err(Errno::ACCESS) if is_file => denied = Some(candidate),
            _ => {}
        }
    }
    if let Some(path) = denied {
        return Err(Refusal::of(&path, Errno::ACCESS));
    }
    let places =
        if path.is_empty() { "and no PATH is given".to_string() } else { format!("or in PATH {path}") };
    Err(Refusal::because(format!("there is no program `{name}` beside the probe {places}"), Errno::NOENT))
}
