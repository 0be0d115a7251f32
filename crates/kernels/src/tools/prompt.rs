//! `prompt`: starts a shell on a terminal of its own and waits for its prompt. This is the guest's
//! end of an interactive session, so that guests need no other program for it.

use super::Tool;
use crate::kernel::KernelError;
use crate::options::Options;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write, stdout};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Room for what a shell writes at once.
const SHOWN_BYTES: usize = 4096;

pub(super) static TOOL: Tool = Tool {
    name: "prompt",
    summary: "starts a shell on a terminal of its own, prints what it first writes there, and ends it",
    options: &[],
    takes_command: true,
    run,
};

/// The line has `absent` where there can be no prompt, because the guest has no terminals or no
/// such shell.
fn run(options: &Options, command: &[String]) -> Result<Value, KernelError> {
    let [shell, arguments @ ..] = command else {
        return Err(KernelError::usage("there is no shell to start"));
    };
    let (absent, statement) = match interact(shell, arguments, &mut stdout().lock()) {
        Ok(bytes) => (None, format!("{shell} wrote {bytes} bytes to its terminal")),
        Err(KernelError::Unable(reason)) => (Some(reason.clone()), reason),
        Err(error) => return Err(error),
    };
    Ok(json!({
        "tool": "prompt",
        "params": options.to_json(),
        "absent": absent,
        "check": {"passed": true, "statement": statement},
    }))
}

/// Starts a shell on a new terminal, writes what it first writes there to `out` at once, and ends
/// the shell. Returns the number of bytes.
fn interact(shell: &str, arguments: &[String], out: &mut impl Write) -> Result<usize, KernelError> {
    let opened = open_terminal();
    let (mut terminal, device) = opened
        .map_err(|error| KernelError::Unable(format!("no terminal can be opened in this guest: {error}")))?;
    let mut child = start(shell, arguments, device).map_err(|error| match error.kind() {
        ErrorKind::NotFound => KernelError::Unable(format!("there is no {shell} in this guest")),
        _ => KernelError::system(format!("start {shell}"))(error),
    })?;
    let mut shown = [0; SHOWN_BYTES];
    // An error says that nobody has the device open any more.
    let bytes = terminal.read(&mut shown).unwrap_or_default();
    let passed_on = out.write_all(&shown[..bytes]).and_then(|()| out.flush());
    child.kill().and_then(|()| child.wait()).map_err(KernelError::system(format!("end {shell}")))?;
    passed_on.map_err(KernelError::system("print what the shell wrote"))?;
    if bytes == 0 {
        let ended = io::Error::other("it ended without one");
        return Err(KernelError::system(format!("read the prompt of {shell}"))(ended));
    }
    Ok(bytes)
}

/// Opens a new pseudo-terminal: the end of the user, and the device of the shell.
fn open_terminal() -> io::Result<(File, File)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&terminal)?;
    let path = ptsname(&terminal, Vec::<u8>::new())?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let device = options.open(OsStr::from_bytes(path.as_bytes()))?;
    Ok((File::from(terminal), device))
}

/// Starts a shell as the leader of a session with this terminal. Nobody else has the device open
/// when it returns.
#[expect(
    clippy::disallowed_methods,
    reason = "the guest has no helper that holds a deadline; the run holds that of this program, and ends both"
)]
fn start(shell: &str, arguments: &[String], device: File) -> io::Result<std::process::Child> {
    let mut command = Command::new(shell);
    // Some shells take an empty prompt from the environment, and look up what the terminal can do.
    command.args(arguments).env("PS1", "$ ").env("TERM", "linux");
    command.stdin(device.try_clone()?).stdout(device.try_clone()?).stderr(device);
    // SAFETY: the closure makes two system calls and allocates nothing. It runs when the standard
    // streams are those of the shell, so descriptor 0 is open.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(BorrowedFd::borrow_raw(0))?;
            Ok(())
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(shell: &str, arguments: &[&str]) -> Result<String, KernelError> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut out = Vec::new();
        let bytes = interact(shell, &arguments, &mut out)?;
        assert_eq!(bytes, out.len());
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn a_shell_shows_its_prompt_on_a_terminal() {
        assert!(!shown("/bin/sh", &["-i"]).unwrap().is_empty());
        let streams = "test -t 0 && test -t 1 && test -t 2 && echo terminal";
        assert_eq!(shown("/bin/sh", &["-c", streams]).unwrap(), "terminal\r\n");
        assert_eq!(shown("/bin/sh", &["-c", "echo its own > /dev/tty"]).unwrap(), "its own\r\n");
    }

    #[test]
    fn a_shell_that_is_missing_is_absent_and_one_that_says_nothing_has_failed() {
        let (line, passed) = TOOL.run(["--", "/no/such/shell"].map(str::to_owned).to_vec()).unwrap();
        assert!(passed && line["absent"] == "there is no /no/such/shell in this guest", "{line}");
        let error = shown("/bin/sh", &["-c", ":"]).unwrap_err().to_string();
        assert!(error.contains("cannot read the prompt of /bin/sh: it ended without one"), "{error}");
    }
}
