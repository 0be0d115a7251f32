//! Writes what users ask for: run directories, reports, other files.
//!
//! Root may work in a directory of another user, who could replace a part of the path by a link
//! while root writes. Root would then overwrite one of its own files. So root writes only where no
//! other user can do that. The user who became root by sudo(8) does not count as another.

use crate::error::{ExitKind, Failure, file_failure};
use crate::ui;
use std::io::ErrorKind;
use std::path::Path;
use weigh_host::facts::is_root;
use weigh_host::private::{self, UnsafePath, invoking_user};

/// Checks a path before a file or a directory is written there.
///
/// # Errors
/// Another user could redirect the write.
pub fn check(path: &Path) -> Result<(), Failure> {
    if is_root() && !is_device(path) {
        private::check_output(path, invoking_user()).map_err(|error| refused(path, error))?;
    }
    Ok(())
}

/// Checks that a file can be written, before the work whose result it will hold.
///
/// # Errors
/// As [`check`]; the path is that of a directory, or there is none to write the file to.
pub fn check_file(path: &Path) -> Result<(), Failure> {
    let failure = |error| file_failure("write", path, error);
    if path.is_dir() {
        return Err(failure(ErrorKind::IsADirectory.into()));
    }
    // With the dot, only a directory has metadata.
    std::fs::metadata(path.parent().unwrap_or(path).join(".")).map_err(failure)?;
    check(path)
}

/// Makes a directory, or checks it.
///
/// # Errors
/// As [`check`]; the directory cannot be made.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    if is_root() {
        return private::prepare_output(path, invoking_user()).map_err(|error| refused(path, error));
    }
    std::fs::create_dir_all(path).map_err(|error| file_failure("make the directory", path, error))
}

/// Checks the path of a new directory, and makes its parents.
///
/// # Errors
/// As [`make_directory`].
pub fn make_room(path: &Path) -> Result<(), Failure> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.exists() => make_directory(parent)?,
        _ => {}
    }
    check(path)
}

/// Writes a file.
///
/// # Errors
/// As [`check`]; the file cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    if is_root() && !is_device(path) {
        return private::write_output(path, bytes.as_ref(), invoking_user())
            .map_err(|error| refused(path, error));
    }
    std::fs::write(path, bytes).map_err(|error| file_failure("write", path, error))
}

/// Writes a text to a file, or prints it if there is no file.
///
/// # Errors
/// As [`write()`].
pub fn write_or_print(file: Option<&Path>, text: &str) -> Result<(), Failure> {
    match file {
        Some(file) => write(file, text),
        None => {
            ui::print(text);
            Ok(())
        }
    }
}

/// Whether a path belongs to a device or to an open stream, which only root can have made.
fn is_device(path: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|top| path.starts_with(top)) && !path.starts_with("/dev/shm")
}

fn refused(path: &Path, error: UnsafePath) -> Failure {
    if let UnsafePath::Io { doing, path, source } = error {
        return file_failure(doing, &path, source);
    }
    Failure::new(
        ExitKind::Input,
        format!("root does not write to {}, where another user could lead it to other files", path.display()),
    )
    .because(error)
    .hint("write to a directory of your own, or run weigh by sudo from one of yours")
}
