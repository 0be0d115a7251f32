//! Containers by Charliecloud, as computing centres have them: `ch-run` gives a program its own
//! root in a user and a mount namespace, and nothing else.
//!
//! `ch-run` makes the namespaces and becomes the probe, so none of its own processes remains.
//! Processes, devices and, unless the key `net` says otherwise, the network are the host's. If the
//! host's root starts such a guest, the guest's root can reach the host's disks through `/dev`.

use crate::common_keys::{self, Storage};
use crate::helpers::version_text;
use crate::spawn::{OwnMount, Runtime};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result,
    namespaces, network,
};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_images::Mount;
use weigh_model::EnvironmentSpec;

const PROGRAM: &str = "ch-run";
const REMEDY: &str =
    "install it with `apt-get install charliecloud`, or name the file with `charliecloud:binary=PATH`";

/// How a guest differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds"),
    ("network", "the network that `net` says"),
    ("user", "root of a user namespace of its own"),
];

/// The platform `charliecloud`.
pub struct Charliecloud;

const ABOUT: About = About {
    name: "charliecloud",
    summary: "a container by Charliecloud's ch-run: a root of its own by user and mount namespaces, no more",
    keys: &common_keys::of_program(network::WORDS_FROM_HOST),
};

impl Platform for Charliecloud {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { keeps_secrets: false, implies: IMPLIES, ..namespaces::capabilities() }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            let version = version_text(&self.program(&request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(format!("{PROGRAM} {}", version_number(&version)))
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        self.program(&request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(&request.environment)?;
        let directory = Runtime::place(self, host, request);
        let (line, mounts) = command_line(&program, request, &directory)?;
        let command = |_: Option<&Cgroup>, _: &Storage| -> Vec<OsString> { line.clone() };
        let variables = [OsString::from("USER=root")];
        let runtime = Runtime {
            mounts: &mounts,
            variables: &variables,
            assembled: true,
            directory: Some(directory),
            ..Runtime::new(&command)
        };
        runtime.launch(self, host, request, namespaces::around(self, &request.environment))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Runtime::host_changes(self, request)
    }
}

impl Charliecloud {
    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        common_keys::program(self, environment, PROGRAM, REMEDY)
    }
}

/// Returns the command line of `ch-run`, and the mounts that only it and the guest see beside the
/// root. The guest's directory is made if these mounts need it.
fn command_line(
    program: &Path,
    request: &GuestRequest,
    directory: &Path,
) -> Result<(Vec<OsString>, Vec<OwnMount>)> {
    // Without `--private-tmp` the guest would see the host's /tmp.
    let mut line: Vec<OsString> = vec![program.into(), "--private-tmp".into(), "--no-passwd".into()];
    let mut own_mounts = Vec::new();
    // The private /tmp hides what the root has below its own /tmp. Those files are shown there once
    // more, read-only, from places outside of the root.
    let binds = request.root.mounts().into_iter().filter_map(|mount| match mount {
        Mount::Bind(bind) if bind.target.starts_with("/tmp") => Some(bind),
        _ => None,
    });
    for (number, bind) in binds.enumerate() {
        let place = directory.join(number.to_string());
        fs::create_dir_all(directory).map_err(PlatformError::at("make the directory", directory))?;
        let made_place = if bind.source.is_dir() { fs::create_dir(&place) } else { fs::write(&place, "") };
        made_place.map_err(PlatformError::at("make", &place))?;
        line.extend(["--bind".into(), pair(&place, &bind.target)?]);
        own_mounts.push(OwnMount::Bind(bind.source.clone(), place));
    }
    line.extend([request.root.skeleton.clone().into(), "--".into(), weigh_images::PROBE.into()]);
    Ok((line, own_mounts))
}

/// Returns a bind in the form that `ch-run` takes, `SOURCE:TARGET`.
fn pair(source: &Path, target: &Path) -> Result<OsString> {
    let has_colon = |path: &&Path| path.as_os_str().as_encoded_bytes().contains(&b':');
    if let Some(path) = [source, target].into_iter().find(has_colon) {
        let reason = format!("ch-run takes no path with a colon, as in {}", path.display());
        return Err(PlatformError::unavailable(
            reason,
            "start weigh in a directory without a colon in its name",
        ));
    }
    let mut pair = source.as_os_str().to_os_string();
    pair.push(":");
    pair.push(target);
    Ok(pair)
}

/// Returns the first word of a program's answer that begins with a digit.
fn version_number(text: &str) -> &str {
    text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_ends_a_path_for_ch_run() {
        assert_eq!(pair(Path::new("/work/0"), Path::new("/tmp/mine")).unwrap(), "/work/0:/tmp/mine");
        let error = pair(Path::new("/work/0"), Path::new("/tmp/a:b")).unwrap_err();
        assert!(matches!(&error, PlatformError::Unavailable { remedy: Some(_), .. }), "{error}");
    }

    #[test]
    fn version_numbers_are_found_in_program_output() {
        assert_eq!(version_number("0.31\n"), "0.31");
        assert_eq!(version_number("none"), "?");
    }
}
