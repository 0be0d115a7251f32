//! Docker's engine, one blocking call at a time, each with a deadline.

use crate::PlatformError;
use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, RemoveContainerOptions, RemoveImageOptions, TopOptions,
};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use futures_util::TryStreamExt;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use weigh_host::command::find_program;

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// An answer takes milliseconds, a start or a removal on a loaded machine seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// Versions of the engine's interface that were agreed upon: asking again would be a part of every
/// guest's start.
static VERSIONS: Mutex<Vec<(PathBuf, ClientVersion)>> = Mutex::new(Vec::new());

fn version_of(socket: &Path) -> Option<ClientVersion> {
    let versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    versions.iter().find(|(known, _)| known == socket).map(|(_, version)| *version)
}

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    /// There is no usable engine.
    #[error("{what} is missing")]
    Missing { what: String, remedy: Option<String> },
    /// It did not answer in time.
    #[error("the Docker engine did not {doing} within {} s", DEADLINE.as_secs())]
    Silent { doing: &'static str },
    /// It answered with an error.
    #[error("the Docker engine did not {doing}: {reason}")]
    Refused { doing: &'static str, status: Option<u16>, reason: String },
    /// The runtime of its client could not be made.
    #[error("could not make the Docker client: {0}")]
    Client(#[from] io::Error),
}

impl EngineError {
    /// Whether what was asked for does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: Some(404), .. })
    }
}

impl From<EngineError> for PlatformError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Missing { what, remedy } => Self::Missing { what, remedy },
            other => Self::Launch { platform: "docker", reason: other.to_string(), log: None },
        }
    }
}

/// A connection to the engine behind one unix socket.
pub(super) struct Engine {
    runtime: Runtime,
    docker: Docker,
    socket: PathBuf,
}

/// A container that runs.
pub(super) struct Inspected {
    /// PID of its first process, as the engine sees it.
    pub(super) pid: Option<u32>,
    /// Identity in 64 hexadecimal digits.
    pub(super) id: String,
    /// Address in the engine's bridge.
    pub(super) address: Option<IpAddr>,
    /// Ports of the host at which ports of the container are published.
    pub(super) ports: BTreeMap<u16, u16>,
}

/// The socket that `DOCKER_HOST` names, or the default one.
///
/// # Errors
/// [`EngineError::Missing`] for an engine that is not behind a unix socket.
pub(super) fn socket(docker_host: Option<&str>) -> Result<PathBuf, EngineError> {
    match docker_host.filter(|host| !host.is_empty()) {
        None => Ok(DEFAULT_SOCKET.into()),
        Some(host) => match host.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            Some(path) => Ok(path.into()),
            None => Err(EngineError::Missing {
                what: format!("a Docker engine on this host (DOCKER_HOST is {host})"),
                remedy: Some("`unset DOCKER_HOST`, or set it to unix:///path/of/docker.sock".into()),
            }),
        },
    }
}

impl Engine {
    /// Connects to the engine that the user's environment names.
    ///
    /// # Errors
    /// [`EngineError::Missing`] with what to do about it.
    pub(super) fn connect() -> Result<Self, EngineError> {
        Self::connect_to(&socket(std::env::var("DOCKER_HOST").ok().as_deref())?)
    }

    /// Connects to the engine behind a socket.
    ///
    /// # Errors
    /// [`EngineError::Missing`] with what to do about it.
    pub(super) fn connect_to(socket: &Path) -> Result<Self, EngineError> {
        // The plain system call tells the cases apart that the client's library does not.
        UnixStream::connect(socket).map_err(|error| missing(socket, &error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let known = version_of(socket);
        let version = known.as_ref().unwrap_or(API_DEFAULT_VERSION);
        let docker = Docker::connect_with_unix(&socket.to_string_lossy(), DEADLINE.as_secs(), version)
            .map_err(|error| refused("accept a connection", error))?;
        let mut engine = Self { runtime, docker, socket: socket.into() };
        if known.is_none() {
            engine.docker = engine.call("tell its version", engine.docker.clone().negotiate_version())?;
            let mut versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            versions.push((socket.into(), engine.docker.client_version()));
        }
        Ok(engine)
    }

    /// The socket it listens on.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The client itself, for calls of other files.
    pub(super) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// Waits for one answer.
    pub(super) fn call<T>(
        &self,
        doing: &'static str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, EngineError> {
        self.runtime.block_on(call(doing, future))
    }

    /// Version, storage driver, and where the engine's control groups come from.
    pub(super) fn describe(&self) -> Result<String, EngineError> {
        let info = self.call("describe itself", self.docker.info())?;
        let version = info.server_version.unwrap_or_else(|| "of unknown version".into());
        let storage = info.driver.unwrap_or_else(|| "unknown".into());
        Ok(format!("Docker engine {version}, storage driver {storage}"))
    }

    /// Whether an image of this name is there.
    pub(super) fn has_image(&self, name: &str) -> Result<bool, EngineError> {
        match self.call("look for an image", self.docker.inspect_image(name)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes an image of one layer from a tar archive.
    pub(super) fn import(&self, repository: &str, tag: &str, archive: Vec<u8>) -> Result<(), EngineError> {
        let options = CreateImageOptions {
            from_src: Some("-".into()),
            repo: Some(repository.into()),
            tag: Some(tag.into()),
            ..Default::default()
        };
        let body = bollard::body_full(archive.into());
        let progress = self.docker.create_image(Some(options), Some(body), None);
        self.call("import the root file system", progress.try_for_each(|_| async { Ok(()) }))
    }

    /// Removes an image; whether there was one.
    pub(super) fn remove_image(&self, name: &str) -> Result<bool, EngineError> {
        let options = RemoveImageOptions { force: true, noprune: false, ..Default::default() };
        was_there(self.call("remove an image", self.docker.remove_image(name, Some(options), None)))
    }

    /// Makes a container; nothing runs yet.
    pub(super) fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(), EngineError> {
        let options = CreateContainerOptions { name: Some(name.into()), ..Default::default() };
        self.call("make a container", self.docker.create_container(Some(options), body)).map(|_| ())
    }

    /// Starts a container.
    pub(super) fn start(&self, name: &str) -> Result<(), EngineError> {
        self.call("start a container", self.docker.start_container(name, None))
    }

    /// Looks at a container.
    pub(super) fn inspect(&self, name: &str) -> Result<Inspected, EngineError> {
        let found = self.call("describe a container", self.docker.inspect_container(name, None))?;
        let pid = found.state.and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok());
        let settings = found.network_settings.unwrap_or_default();
        let networks = settings.networks.unwrap_or_default();
        let address = networks.values().find_map(|network| network.ip_address.as_ref()?.parse().ok());
        let ports = settings.ports.unwrap_or_default();
        let ports = ports.into_iter().filter_map(|(inside, bindings)| {
            let outside = bindings?.into_iter().find_map(|binding| binding.host_port?.parse().ok())?;
            Some((inside.strip_suffix("/tcp")?.parse().ok()?, outside))
        });
        let pid = pid.filter(|pid| *pid > 0);
        Ok(Inspected { pid, id: found.id.unwrap_or_default(), address, ports: ports.collect() })
    }

    /// PIDs of a container's processes.
    pub(super) fn processes(&self, name: &str) -> Result<Vec<u32>, EngineError> {
        let options = TopOptions { ps_args: "-eo pid".into() };
        let top = self.call("list processes", self.docker.top_processes(name, Some(options)))?;
        let rows = top.processes.unwrap_or_default();
        Ok(rows.iter().filter_map(|row| row.first()?.parse().ok()).collect())
    }

    /// Freezes or thaws a container. One that is as wanted already is fine.
    pub(super) fn set_paused(&self, name: &str, paused: bool) -> Result<(), EngineError> {
        let done = if paused {
            self.call("freeze a container", self.docker.pause_container(name))
        } else {
            self.call("thaw a container", self.docker.unpause_container(name))
        };
        match done {
            Err(EngineError::Refused { reason, .. })
                if reason.contains("already paused") || reason.contains("is not paused") =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Kills and removes a container with its anonymous volumes; whether there was one.
    pub(super) fn remove(&self, name: &str) -> Result<bool, EngineError> {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        match self.call("remove a container", self.docker.remove_container(name, Some(options))) {
            // Somebody else removes it: gone soon, or the next try says why not.
            Err(EngineError::Refused { status: Some(409), .. }) => {
                self.wait_until_removed(name).map(|()| true)
            }
            other => was_there(other),
        }
    }

    fn wait_until_removed(&self, name: &str) -> Result<(), EngineError> {
        let end = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            match self.inspect(name) {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) if std::time::Instant::now() > end => {
                    let reason = format!("the container {name} is being removed, but stays");
                    return Err(EngineError::Refused {
                        doing: "remove a container",
                        status: Some(409),
                        reason,
                    });
                }
                Ok(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Takes the connection apart, for who runs its own futures on it.
    pub(super) fn into_parts(self) -> (Runtime, Docker) {
        (self.runtime, self.docker)
    }
}

/// Awaits one answer of the engine.
pub(super) async fn call<T>(
    doing: &'static str,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(answer) => answer.map_err(|error| refused(doing, error)),
        Err(_) => Err(EngineError::Silent { doing }),
    }
}

/// Of a removal: whether there was something. Nothing is fine.
pub(super) fn was_there<T>(removed: Result<T, EngineError>) -> Result<bool, EngineError> {
    match removed {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

fn refused(doing: &'static str, error: Error) -> EngineError {
    match error {
        Error::DockerResponseServerError { status_code, message } => {
            EngineError::Refused { doing, status: Some(status_code), reason: message.trim().into() }
        }
        Error::RequestTimeoutError => EngineError::Silent { doing },
        other => EngineError::Refused { doing, status: None, reason: other.to_string() },
    }
}

fn missing(socket: &Path, error: &io::Error) -> EngineError {
    let engine = format!("a Docker engine that answers at {}", socket.display());
    let start = "start it with `systemctl start docker` (or `dockerd`)";
    let (what, remedy) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            format!("the right to use the Docker engine at {}", socket.display()),
            "join the group with `usermod -aG docker \"$USER\"` and log in again, or run weigh as root",
        ),
        io::ErrorKind::NotFound if find_program("dockerd").is_none() && find_program("docker").is_none() => {
            (engine, "install it with `apt-get install docker.io`")
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => (engine, start),
        _ => (format!("{engine} ({error})"), start),
    };
    EngineError::Missing { what, remedy: Some(remedy.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn remedy_of(result: Result<Engine, EngineError>) -> (String, String) {
        match result {
            Err(EngineError::Missing { what, remedy }) => (what, remedy.unwrap()),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("an engine answered"),
        }
    }

    #[test]
    fn the_users_engine_is_found() {
        assert_eq!(socket(None).unwrap(), Path::new(DEFAULT_SOCKET));
        assert_eq!(socket(Some("")).unwrap(), Path::new(DEFAULT_SOCKET));
        assert_eq!(socket(Some("unix:///run/x.sock")).unwrap(), Path::new("/run/x.sock"));
        for host in ["tcp://10.0.0.1:2375", "ssh://me@there", "unix://", "unix://relative"] {
            let error = socket(Some(host)).unwrap_err();
            assert!(error.to_string().contains(host), "{error}");
        }
    }

    #[test]
    fn an_engine_that_is_not_there_has_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let nowhere = base.path().join("nowhere.sock");
        let (what, remedy) = remedy_of(Engine::connect_to(&nowhere));
        assert!(
            what.contains("nowhere.sock") && (remedy.contains("start") || remedy.contains("install")),
            "{remedy}"
        );
        let stale = base.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let (_, remedy) = remedy_of(Engine::connect_to(&stale));
        assert!(remedy.contains("start"), "{remedy}");
        let denied = missing(&stale, &io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(
            matches!(denied, EngineError::Missing { remedy: Some(remedy), .. } if remedy.contains("group"))
        );
    }

    #[test]
    fn what_answers_something_else_is_no_engine() {
        use std::io::{Read, Write};
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("other.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream
                    .write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 21\r\n\r\n{\"message\":\"no disk\"}");
            }
        });
        let Err(error) = Engine::connect_to(&path) else { panic!("connected") };
        assert!(error.to_string().contains("no disk"), "{error}");
        server.join().unwrap();
    }
}
