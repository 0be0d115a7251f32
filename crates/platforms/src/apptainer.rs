//! Containers by Apptainer, as computing centres have them: one program starts the guest's, in
//! namespaces and a root of its own, without a daemon.
//!
//! Apptainer takes a directory as its root without what is mounted in it. So weighbridge puts the
//! root together at the skeleton, and tells Apptainer of every mount there. Apptainer waits outside
//! of the namespaces for the probe, which is process 1 inside, and which dies with it.

use crate::common_keys::{self, Storage};
use crate::helpers::version_line;
use crate::privileges::{self, WITHOUT_DEVICES};
use crate::spawn::Runtime;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, Result, namespaces, network,
};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_images::{Mount, Root};
use weigh_model::EnvironmentSpec;

const PROGRAM: &str = "apptainer";
const REMEDY: &str = "install it with `apt-get install apptainer` (Debian unstable), or name the file with `apptainer:binary=PATH`";

/// Nothing of the host in the guest, and the probe as the first process. The system's configuration
/// would add some files and a `/tmp` of 64 MiB.
const OPTIONS: [&str; 12] = [
    "--silent",
    "exec",
    "--containall",
    "--no-init",
    "--no-home",
    "--no-mount",
    "tmp,bind-paths",
    "--hostname",
    "weigh",
    "--cwd",
    "/",
    "--no-privs",
];

/// The platform `apptainer`.
pub struct Apptainer;

const ABOUT: About = About {
    name: "apptainer",
    summary: "a container by Apptainer, contained in all: mount, pid, uts and ipc namespaces, no daemon",
    keys: &common_keys::of_program(network::WORDS_FROM_HOST),
};

impl Platform for Apptainer {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        namespaces::capabilities().with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            let version = version_line(&self.program(&request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        self.program(&request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(&request.environment)?;
        let command = |_: Option<&Cgroup>, storage: &Storage| command_line(&program, &request.root, storage);
        // It would make a directory in the user's home.
        let directory = Runtime::place(self, host, request);
        let variables = ["APPTAINER_CONFIGDIR=", "APPTAINER_CACHEDIR="].map(|name| {
            let mut variable = OsString::from(name);
            variable.push(&directory);
            variable
        });
        let runtime = Runtime {
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

impl Apptainer {
    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        common_keys::program(self, environment, PROGRAM, REMEDY)
    }
}

/// Returns the command line of Apptainer for a root that is put together.
fn command_line(program: &Path, root: &Root, storage: &Storage) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec![program.into()];
    line.extend(OPTIONS.map(OsString::from));
    line.extend(["--add-caps".into(), OsString::from(privileges::names(WITHOUT_DEVICES).join(","))]);
    for (place, read_only) in mount_points(&root.mounts(), storage) {
        let source = root.skeleton.join(place.strip_prefix("/").unwrap_or(place));
        line.extend(["--mount".into(), mount_option(&source, place, read_only)]);
    }
    line.extend([root.skeleton.clone().into(), OsString::from(weigh_images::PROBE)]);
    line
}

/// Returns the places in the root where something is mounted, and whether it is read-only. What is
/// mounted below such a place comes with it.
fn mount_points<'m>(mounts: &'m [Mount<'_>], storage: &Storage) -> Vec<(&'m Path, bool)> {
    let is_below = |place: &Path| {
        mounts.iter().any(|other| other.target() != place && place.starts_with(other.target()))
    };
    let mut points: Vec<(&Path, bool)> = mounts
        .iter()
        .filter(|mount| !is_below(mount.target()))
        .map(|mount| (mount.target(), matches!(mount, Mount::Bind(bind) if bind.read_only)))
        .collect();
    let target = Path::new(Storage::TARGET);
    let is_mounted = mounts.iter().any(|mount| target.starts_with(mount.target()));
    if *storage != Storage::Tmpfs && !is_mounted {
        points.push((target, false));
    }
    points
}

/// Returns a bind as `--mount` takes it: comma-separated values, quoted for names with a comma.
fn mount_option(source: &Path, target: &Path, read_only: bool) -> OsString {
    let mut option = b"type=bind".to_vec();
    for (name, path) in [("source", source), ("destination", target)] {
        option.extend_from_slice(format!(",\"{name}=").as_bytes());
        for byte in path.as_os_str().as_bytes() {
            if *byte == b'"' {
                option.push(b'"');
            }
            option.push(*byte);
        }
        option.push(b'"');
    }
    if read_only {
        option.extend_from_slice(b",ro");
    }
    OsString::from_vec(option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    #[test]
    fn names_may_have_commas_and_quotes() {
        let option = mount_option(Path::new("/work/a,b"), Path::new("/c\"d"), true);
        assert_eq!(option, r#"type=bind,"source=/work/a,b","destination=/c""d",ro"#);
        let option = mount_option(Path::new("/work/tmp"), Path::new("/tmp"), false);
        assert_eq!(option, r#"type=bind,"source=/work/tmp","destination=/tmp""#);
    }

    #[test]
    fn every_outer_mount_is_named_and_inner_ones_come_with_it() {
        let bind = |target: &str| Bind { source: "/any".into(), target: target.into(), read_only: true };
        let (usr, mine) = (bind("/usr"), bind("/tmp/mine"));
        let mounts = [Mount::Bind(&usr), Mount::Scratch(Path::new("/tmp")), Mount::Bind(&mine)];
        let [usr, tmp] = [(Path::new("/usr"), true), (Path::new("/tmp"), false)];
        assert_eq!(mount_points(&mounts, &Storage::Tmpfs), [usr, tmp]);
        let volume = Storage::Volume("/any".into());
        assert_eq!(mount_points(&mounts, &volume), [usr, tmp, (Path::new("/var/tmp"), false)]);
        let var = bind("/var");
        let mounts = [Mount::Bind(&var), Mount::Scratch(Path::new("/var/tmp"))];
        assert_eq!(mount_points(&mounts, &volume), [(Path::new("/var"), true)]);
    }
}
