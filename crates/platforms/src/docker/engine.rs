//! Docker's engine, one blocking call at a time, each with a deadline.

use super::channel;
use super::client::{Client, ClientError, Content};
use crate::PlatformError;
use crate::exec::{self, ExecRequest, ExecResult};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use weigh_host::clock::{monotonic_ns, thread_cpu_ns};
use weigh_host::command::find_program;

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The deadline of a call. An answer takes milliseconds, a start or a removal on a loaded machine
/// seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// The agreed versions of the engine's interface, by socket: asking again would be a part of every
/// guest's start.
static VERSIONS: Mutex<Vec<(PathBuf, (u32, u32))>> = Mutex::new(Vec::new());

fn version_of(socket: &Path) -> Option<(u32, u32)> {
    let versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    versions.iter().find(|(known, _)| known == socket).map(|(_, version)| *version)
}

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    /// There is no usable engine.
    #[error("{reason}")]
    Unavailable { reason: String, remedy: Option<String> },
    /// It did not answer in time.
    #[error("the Docker engine did not {doing} within {after:?}")]
    Silent { doing: &'static str, after: Duration },
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

    /// Whether the engine may yet do what it was asked.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Silent { .. })
    }
}

impl From<EngineError> for PlatformError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unavailable { reason, remedy } => Self::Unavailable { reason, remedy },
            other => Self::Launch { platform: "docker", reason: other.to_string(), log: None },
        }
    }
}

/// A connection to the engine behind one unix socket.
pub(super) struct Engine {
    runtime: Runtime,
    client: Client,
    socket: PathBuf,
}

/// A running container.
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
/// [`EngineError::Unavailable`] for an engine that is not behind a unix socket.
pub(super) fn socket(docker_host: Option<&str>) -> Result<PathBuf, EngineError> {
    match docker_host.filter(|host| !host.is_empty()) {
        None => Ok(DEFAULT_SOCKET.into()),
        Some(host) => match host.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            Some(path) => Ok(path.into()),
            None => Err(EngineError::Unavailable {
                reason: format!("DOCKER_HOST is {host}, which is no Docker engine on this host"),
                remedy: Some("`unset DOCKER_HOST`, or set it to unix:///path/of/docker.sock".into()),
            }),
        },
    }
}

impl Engine {
    /// Connects to the engine that the user's environment names.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what to do about it.
    pub(super) fn connect() -> Result<Self, EngineError> {
        Self::connect_to(&socket(std::env::var("DOCKER_HOST").ok().as_deref())?)
    }

    /// Connects to the engine behind a socket.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what to do about it.
    pub(super) fn connect_to(socket: &Path) -> Result<Self, EngineError> {
        // The plain system call tells cases apart that the client's library does not.
        UnixStream::connect(socket).map_err(|error| unavailable(socket, &error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let known = version_of(socket);
        let client = runtime.block_on(call("tell its version", Client::connect(socket, known)))?;
        if known.is_none() {
            let mut versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            versions.push((socket.into(), client.version()));
        }
        Ok(Self { runtime, client, socket: socket.into() })
    }

    /// The socket it listens on.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for what is at a path.
    pub(super) fn get(&self, doing: &'static str, path: &str) -> Result<Value, EngineError> {
        self.ask(doing, Method::GET, path, Content::Nothing)
    }

    /// The same; `None` if nothing is there.
    pub(super) fn find(&self, doing: &'static str, path: &str) -> Result<Option<Value>, EngineError> {
        match self.get(doing, path) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Requests an action, or that the engine makes what `content` describes.
    pub(super) fn post(
        &self,
        doing: &'static str,
        path: &str,
        content: Content,
    ) -> Result<Value, EngineError> {
        self.ask(doing, Method::POST, path, content)
    }

    /// Removes what is at a path. Returns whether it existed.
    pub(super) fn delete(&self, doing: &'static str, path: &str) -> Result<bool, EngineError> {
        match self.ask(doing, Method::DELETE, path, Content::Nothing) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ask(
        &self,
        doing: &'static str,
        method: Method,
        path: &str,
        content: Content,
    ) -> Result<Value, EngineError> {
        self.runtime.block_on(call(doing, self.client.ask(method, path, content)))
    }

    /// Returns the engine's version and storage driver.
    pub(super) fn describe(&self) -> Result<String, EngineError> {
        let info = self.get("describe itself", "/info")?;
        let version = info["ServerVersion"].as_str().unwrap_or("of unknown version");
        let storage = info["Driver"].as_str().unwrap_or("unknown");
        Ok(format!("Docker engine {version}, storage driver {storage}"))
    }

    /// Whether an image of this name exists.
    pub(super) fn has_image(&self, name: &str) -> Result<bool, EngineError> {
        Ok(self.find("look for an image", &format!("/images/{name}/json"))?.is_some())
    }

    /// Makes an image of one layer from a tar archive.
    pub(super) fn import(&self, repository: &str, tag: &str, archive: Vec<u8>) -> Result<(), EngineError> {
        let path = format!("/images/create?fromSrc=-&repo={repository}&tag={tag}");
        self.post("import the root file system", &path, Content::Archive(archive)).map(|_| ())
    }

    /// Removes an image. Returns whether it existed.
    pub(super) fn remove_image(&self, name: &str) -> Result<bool, EngineError> {
        self.delete("remove an image", &format!("/images/{name}?force=true&noprune=false"))
    }

    /// Makes a container; nothing runs yet.
    pub(super) fn create(&self, name: &str, body: Value) -> Result<(), EngineError> {
        let path = format!("/containers/create?name={name}");
        self.post("make a container", &path, Content::Json(body)).map(|_| ())
    }

    /// Starts a container.
    pub(super) fn start(&self, name: &str) -> Result<(), EngineError> {
        self.act("start a container", name, "start")
    }

    /// Looks at a container.
    pub(super) fn inspect(&self, name: &str) -> Result<Inspected, EngineError> {
        let found = self.get("describe a container", &format!("/containers/{name}/json"))?;
        let pid = found["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let settings = &found["NetworkSettings"];
        let networks = settings["Networks"].as_object().into_iter().flatten();
        let address = networks.filter_map(|(_, network)| network["IPAddress"].as_str()?.parse().ok()).next();
        let ports = settings["Ports"].as_object().into_iter().flatten();
        let ports = ports.filter_map(|(inside, bindings)| {
            let mut bindings = bindings.as_array()?.iter();
            let outside = bindings.find_map(|binding| binding["HostPort"].as_str()?.parse().ok())?;
            Some((inside.strip_suffix("/tcp")?.parse().ok()?, outside))
        });
        let pid = pid.filter(|pid| *pid > 0);
        let id = found["Id"].as_str().unwrap_or_default().into();
        Ok(Inspected { pid, id, address, ports: ports.collect() })
    }

    /// Runs a program in a container and waits for its end. The client is this thread.
    pub(super) fn exec(&self, name: &str, request: &ExecRequest<'_>) -> Result<ExecResult, EngineError> {
        let doing = "run a program in a container";
        let (started_ns, cpu_before_ns) = (monotonic_ns(), thread_cpu_ns());
        let (argv, has_input) = (request.argv, request.input.is_some());
        let program =
            json!({"AttachStdin": has_input, "AttachStdout": true, "AttachStderr": true, "Cmd": argv});
        let made = self.post(doing, &format!("/containers/{name}/exec"), Content::Json(program))?;
        let id = made["Id"].as_str().unwrap_or_default();
        let path = format!("/exec/{id}/start");
        let options = json!({"Detach": false, "Tty": false});
        let said = self.runtime.block_on(call_within(doing, request.deadline, async {
            let attached = self.client.upgrade(&path, Content::Json(options)).await?;
            Ok(channel::program(attached, request).await)
        }))?;
        let found = self.get(doing, &format!("/exec/{id}/json"))?;
        let ended_ns = monotonic_ns();
        let mut what = match (said.output_ns, found["ExitCode"].as_i64()) {
            _ if said.too_much => exec::too_much(request),
            (Some(output_ns), Some(0)) => {
                let client_cpu_ns = thread_cpu_ns().saturating_sub(cpu_before_ns);
                return Ok(ExecResult {
                    started_ns,
                    output_ns,
                    ended_ns,
                    client_cpu_ns,
                    output: said.output,
                });
            }
            (None, Some(0)) => "printed nothing".into(),
            (_, Some(code)) => format!("failed (exit status: {code})"),
            (_, None) => "has not ended".into(),
        };
        if !said.error.is_empty() {
            what = format!("{what}: {}", said.error);
        }
        let reason = format!("`{}` {what}", argv.join(" "));
        Err(EngineError::Refused { doing, status: None, reason })
    }

    /// PIDs of a container's processes.
    pub(super) fn processes(&self, name: &str) -> Result<Vec<u32>, EngineError> {
        let top = self.get("list processes", &format!("/containers/{name}/top?ps_args=-eo%20pid"))?;
        let rows = top["Processes"].as_array().into_iter().flatten();
        Ok(rows.filter_map(|row| row[0].as_str()?.parse().ok()).collect())
    }

    /// Freezes or thaws a container, unless it is so already.
    pub(super) fn set_paused(&self, name: &str, paused: bool) -> Result<(), EngineError> {
        let done = if paused {
            self.act("freeze a container", name, "pause")
        } else {
            self.act("thaw a container", name, "unpause")
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

    /// Kills and removes a container with its anonymous volumes. Returns whether it existed.
    pub(super) fn remove(&self, name: &str) -> Result<bool, EngineError> {
        match self.delete("remove a container", &format!("/containers/{name}?v=true&force=true")) {
            // Another client is removing it.
            Err(EngineError::Refused { status: Some(409), .. }) => {
                self.wait_until_removed(name).map(|()| true)
            }
            other => other,
        }
    }

    fn act(&self, doing: &'static str, name: &str, action: &str) -> Result<(), EngineError> {
        self.post(doing, &format!("/containers/{name}/{action}"), Content::Nothing).map(|_| ())
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

    /// Takes the connection apart, for a caller that runs its own futures on it.
    pub(super) fn into_parts(self) -> (Runtime, Client) {
        (self.runtime, self.client)
    }
}

/// Awaits one answer of the engine.
pub(super) async fn call<T>(
    doing: &'static str,
    future: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, EngineError> {
    call_within(doing, DEADLINE, future).await
}

async fn call_within<T>(
    doing: &'static str,
    deadline: Duration,
    future: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, EngineError> {
    let after = weigh_host::deadlines::scaled(deadline);
    match tokio::time::timeout(after, future).await {
        Ok(answer) => answer.map_err(|error| refused(doing, error)),
        Err(_) => Err(EngineError::Silent { doing, after }),
    }
}

fn refused(doing: &'static str, error: ClientError) -> EngineError {
    match error {
        ClientError::Refused { status, reason } => {
            EngineError::Refused { doing, status: Some(status), reason }
        }
        other => EngineError::Refused { doing, status: None, reason: other.to_string() },
    }
}

fn unavailable(socket: &Path, error: &io::Error) -> EngineError {
    let silent = format!("no Docker engine answers at {}", socket.display());
    let start = "start it with `systemctl start docker` (or `dockerd`)";
    let (reason, remedy) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            format!("this user may not use the Docker engine at {}", socket.display()),
            "join the group with `usermod -aG docker \"$USER\"` and log in again, or run weigh as root",
        ),
        io::ErrorKind::NotFound if find_program("dockerd").is_none() && find_program("docker").is_none() => {
            (silent, "install it with `apt-get install docker.io`")
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => (silent, start),
        _ => (format!("{silent}: {error}"), start),
    };
    EngineError::Unavailable { reason, remedy: Some(remedy.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn remedy_of(result: Result<Engine, EngineError>) -> (String, String) {
        match result {
            Err(EngineError::Unavailable { reason, remedy }) => (reason, remedy.unwrap()),
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
    fn a_missing_engine_is_reported_with_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let nowhere = base.path().join("nowhere.sock");
        let (reason, remedy) = remedy_of(Engine::connect_to(&nowhere));
        assert!(
            reason.contains("nowhere.sock") && (remedy.contains("start") || remedy.contains("install")),
            "{remedy}"
        );
        let stale = base.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let (_, remedy) = remedy_of(Engine::connect_to(&stale));
        assert!(remedy.contains("start"), "{remedy}");
        let denied = unavailable(&stale, &io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(
            matches!(denied, EngineError::Unavailable { remedy: Some(remedy), .. } if remedy.contains("group"))
        );
    }

    #[test]
    fn a_server_with_other_answers_is_no_engine() {
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
