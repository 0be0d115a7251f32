//! The daemon of a run.

use super::Flavor;
use crate::guest::with_tail;
use crate::helpers::version_text;
use crate::{Host, PlatformError, Result};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::accounts::Process;
use weigh_host::cgroup::{Hierarchy, Limits};
use weigh_host::command::{Invocation, find_program};
use weigh_images::Root;

/// How long the daemon may take to come up.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// The deadline for importing an image and making a container of it. A slow disk may need minutes.
pub(super) const COPY_DEADLINE: Duration = Duration::from_secs(600);
/// The deadline of any other command.
pub(super) const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
/// Name of the only storage pool.
pub(super) const POOL: &str = "default";

/// The daemon of a run and its programs.
#[derive(Debug)]
pub(super) struct Daemon {
    flavor: &'static Flavor,
    program: PathBuf,
    client: PathBuf,
    /// The directory of its state. The name is short because it holds a socket, whose path may have
    /// 107 bytes (`unix(7)`).
    directory: PathBuf,
    group: String,
    log: PathBuf,
}

impl Daemon {
    /// Finds the programs, whether the daemon runs or not.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(flavor: &'static Flavor, host: &Host, binary: &str) -> Result<Self> {
        let missing = |name: &str| PlatformError::program_missing(name, flavor.remedy);
        host.require_root(&format!("running a daemon of {} requires root", flavor.about.name))?;
        let named = [binary];
        let candidates = if binary.is_empty() { flavor.daemons } else { &named };
        let program = candidates.iter().find_map(|name| find_program(name));
        let program = program.ok_or_else(|| missing(candidates[0]))?;
        // A build usually brings its own client.
        let beside = Path::new(binary).parent().map(|directory| directory.join(flavor.client));
        let beside = beside.filter(|it| it.is_absolute()).and_then(|it| find_program(it.to_str()?));
        let client = beside.or_else(|| find_program(flavor.client));
        let client = client.ok_or_else(|| missing(flavor.client))?;
        // Two builds in one run have a daemon each.
        let build = u32::from(!binary.is_empty());
        let short = flavor.about.name.get(..1).unwrap_or_default();
        Ok(Self {
            flavor,
            program,
            client,
            directory: host.work.join(format!("{short}{build}")),
            group: format!("weighbridge-{}/{}-daemon{build}", host.run, flavor.about.name),
            log: host.logs.join(format!("{}-daemon.log", flavor.about.name)),
        })
    }

    /// Returns the daemon's name and version.
    pub(super) fn version(&self) -> Result<String> {
        Ok(format!("{} {}", self.flavor.about.name, version_text(&self.program)?))
    }

    /// Starts the daemon unless it runs. It ends with its control group when the run's ledger is
    /// closed or swept.
    pub(super) fn start(&self, host: &Host) -> Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if UnixStream::connect(self.directory.join("unix.socket")).is_ok() {
            return Ok(());
        }
        let fresh = !self.directory.exists();
        for directory in [&self.directory, &self.directory.with_extension("conf")] {
            fs::create_dir_all(directory).map_err(PlatformError::at("make the directory", directory))?;
        }
        // Nobody else sees its mounts, and they go with it.
        let private = ["--fork", "unshare", "--mount", "--propagation", "private"];
        let start = self.in_directory(Invocation::new("setsid")).args(private).arg(&self.program);
        let start = start.args(["--group", "root", "--logfile"]).arg(&self.log);
        let group = host.hierarchy.create(&host.ledger, &self.group, &Limits::default())?;
        // An unreachable proxy, because the daemon would download what nobody here needs.
        let start = start.env("HTTPS_PROXY", "http://127.0.0.1:1").pre_exec_cgroup(&group);
        start.deadline(COMMAND_DEADLINE).run_ok()?;
        let ready = self.in_directory(Invocation::new(&self.program)).arg("waitready").arg("--timeout=50");
        ready.deadline(READY_DEADLINE).run_ok().map_err(|error| self.failed(&error.to_string()))?;
        if fresh {
            self.command(&["storage", "create", POOL, "dir"]).run_ok()?;
        }
        Ok(())
    }

    /// Imports the image, unless it is there.
    pub(super) fn import(&self, root: &Root) -> Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let alias = alias(root);
        let known = self.command(&["query", &format!("/1.0/images/aliases/{alias}")]).run()?;
        if known.status.success() {
            return Ok(());
        }
        let place = self.directory.with_extension("image");
        let io = |doing: &str| PlatformError::io(format!("{doing} {}", place.display()));
        fs::create_dir_all(&place).map_err(io("make the directory"))?;
        let metadata = format!(
            "architecture: {}\ncreation_date: 1\nproperties: {{description: root file system of weighbridge}}\n",
            std::env::consts::ARCH
        );
        fs::write(place.join("metadata.yaml"), metadata).map_err(io("write to"))?;
        let pack = Invocation::new("tar").arg("--create").arg("--file").arg(place.join("metadata.tar"));
        pack.arg("--directory").arg(&place).arg("metadata.yaml").run_ok()?;
        let archive = fs::File::create(place.join("rootfs.tar")).map_err(io("write to"))?;
        root.write_tree_tar(std::io::BufWriter::new(archive)).map_err(io("pack the image in"))?;
        let import = self.command(&["image", "import"]).arg(place.join("metadata.tar"));
        let import = import.arg(place.join("rootfs.tar")).args(["--alias", &alias]);
        import.deadline(COPY_DEADLINE).run_ok()?;
        fs::remove_dir_all(&place).map_err(io("remove"))
    }

    /// Returns a command of the client with these arguments.
    pub(super) fn command(&self, arguments: &[&str]) -> Invocation {
        self.in_directory(Invocation::new(&self.client)).args(arguments).deadline(COMMAND_DEADLINE)
    }

    /// Returns the processes that serve all containers.
    pub(super) fn processes(&self) -> Vec<Process> {
        let name = |pid| Process { name: format!("{} daemon", self.flavor.about.name), pid };
        Hierarchy::detect().members(self.group.as_ref()).into_iter().map(name).collect()
    }

    fn in_directory(&self, command: Invocation) -> Invocation {
        let [daemon, client] = self.flavor.variables;
        command.env(daemon, &self.directory).env(client, self.directory.with_extension("conf"))
    }

    fn failed(&self, reason: &str) -> PlatformError {
        let reason = with_tail(reason, &self.log);
        PlatformError::Launch { platform: self.flavor.about.name, reason, log: Some(self.log.clone()) }
    }
}

/// Name of an image at the daemon.
pub(super) fn alias(root: &Root) -> String {
    format!("root-{}", root.digest.chars().take(12).collect::<String>())
}
