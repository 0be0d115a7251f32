//! `kubectl`, for one cluster: how it is called, and what its errors mean.

use super::{PLATFORM, Pod};
use crate::helpers::fnv_1a;
use crate::{Host, PlatformError, Result, common_keys, setting};
use serde_json::{Deserializer, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weigh_host::command::{CommandError, Finished, Invocation};
use weigh_host::private::{check_input, invoking_user};
use weigh_model::EnvironmentSpec;

/// Time limit for a request to the cluster.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// What kubectl says about a command in a pod that failed, before the command's exit code.
const ENDED: &str = "command terminated with exit code ";
/// Longest label of a name in a cluster (RFC 1123), bytes.
const LONGEST_NAME: usize = 63;

/// The client that this process used last, by context and configuration.
static USED: Mutex<BTreeMap<(String, Option<String>), PathBuf>> = Mutex::new(BTreeMap::new());

/// The client for one cluster, as one user of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kubectl {
    binary: PathBuf,
    /// The list of kubeconfig files, if there is any.
    kubeconfig: Option<String>,
    /// The kubeconfig's name for cluster and user together; empty for the current one.
    pub(super) context: String,
}

impl Kubectl {
    /// # Errors
    /// There is no client.
    pub(super) fn find(environment: &EnvironmentSpec) -> Result<Self> {
        let remedy = "install it with `apt-get install kubernetes-client`, or name it with `binary=PATH`";
        let binary = common_keys::program(&Pod, environment, "kubectl", remedy)?;
        let kubeconfig = files(std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"));
        let context = setting(&Pod, environment, "context").to_string();
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert((context.clone(), kubeconfig.clone()), binary.clone());
        Ok(Self { binary, kubeconfig, context })
    }

    /// What a ledger keeps of this client, so that another process can find the cluster.
    pub(super) fn detail(&self) -> Value {
        json!({"context": self.context, "kubeconfig": self.kubeconfig})
    }

    /// The client for what [`Kubectl::detail`] wrote: the program that this process last used for
    /// the cluster, else the installed one, but never one named in a ledger. Rejects a
    /// configuration that another user could have written, because it can name programs.
    pub(super) fn of_detail(detail: &Value) -> Option<Self> {
        let kubeconfig = match detail.get("kubeconfig")? {
            Value::Null => None,
            Value::String(list) => {
                // kubectl reads the user's own without being told to.
                let own = std::env::var_os("HOME").and_then(default_file);
                let trusted = |path: PathBuf| {
                    own.as_ref() == Some(&path) || check_input(&path, invoking_user()).is_ok()
                };
                Some(list.clone()).filter(|list| std::env::split_paths(list).all(trusted))?.into()
            }
            _ => return None,
        };
        let context = detail.get("context")?.as_str()?.to_string();
        let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        let binary = used.get(&(context.clone(), kubeconfig.clone())).cloned();
        Some(Self { binary: binary.unwrap_or_else(|| "kubectl".into()), kubeconfig, context })
    }

    /// The context that is used if none is named.
    ///
    /// # Errors
    /// No context is current.
    pub(super) fn current_context(&self) -> Result<String> {
        let said =
            self.command(&[]).args(["config", "current-context"]).run_ok().map_err(|error| match error {
                CommandError::Status { .. } => PlatformError::unavailable(
                    "kubectl has no current context",
                    "name one of `kubectl config get-contexts` with `context=NAME`, or set KUBECONFIG",
                ),
                other => other.into(),
            })?;
        Ok(String::from_utf8_lossy(&said.output).trim().into())
    }

    /// A command with these global options.
    pub(super) fn command(&self, global: &[&str]) -> Invocation {
        let command = Invocation::new(&self.binary).args(global).deadline(REQUEST_DEADLINE);
        let command = match self.context.as_str() {
            "" => command,
            context => command.args(["--context", context]),
        };
        // Set even if it is empty: this process may undo what another one did, whose cluster is not
        // that of this environment.
        command.env("KUBECONFIG", self.kubeconfig.as_deref().unwrap_or_default())
    }

    /// A command in a namespace.
    pub(super) fn within(&self, namespace: &str) -> Invocation {
        self.command(&["--namespace", namespace])
    }

    /// Returns what a command prints.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy if the cluster cannot be reached or refuses the
    /// user; otherwise the cluster's own message.
    pub(super) fn run(&self, command: Invocation, log: Option<&Path>) -> Result<Vec<u8>> {
        let command = match log {
            Some(log) => command.log_to(log),
            None => command,
        };
        // A client that outlived a killed weigh would make its object after all others were deleted.
        self.answer(command.dies_with_caller().run_ok())
    }

    fn answer(&self, asked: Result<Finished, CommandError>) -> Result<Vec<u8>> {
        match asked {
            Ok(done) => Ok(done.output),
            Err(CommandError::Status { error, .. }) => Err(self.refused(&error)),
            Err(CommandError::Deadline { after, .. }) => {
                Err(self.unreachable(&format!("no answer within {} s", after.as_secs())))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Checks that the cluster answers, before commands that would wait longer for it, and that it
    /// accepts the user's credentials. Without them nothing could be deleted either. A user who may
    /// not see the cluster's version may still make pods.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`].
    pub(super) fn reach(&self) -> Result<()> {
        let answers = |said: &str| !is_away(said) && !is_logged_out(said);
        match self.command(&[]).args(["get", "--raw", "/version"]).dies_with_caller().run_ok() {
            Err(CommandError::Status { error, .. }) if answers(&one_line(&error)) => Ok(()),
            asked => self.answer(asked).map(drop),
        }
    }

    /// Returns the JSON document that a command prints.
    pub(super) fn json(&self, command: Invocation) -> Result<Value> {
        let mut documents = self.documents(command)?.into_iter();
        documents.next().ok_or_else(|| PlatformError::launch(PLATFORM, "kubectl printed no JSON"))
    }

    /// Returns the JSON documents that a command prints, one for each object.
    pub(super) fn documents(&self, command: Invocation) -> Result<Vec<Value>> {
        let output = self.run(command.args(["--output", "json"]), None)?;
        let documents: Result<Vec<Value>, _> =
            Deserializer::from_slice(&output).into_iter::<Value>().collect();
        documents
            .map_err(|error| PlatformError::launch(PLATFORM, format!("kubectl printed no JSON: {error}")))
    }

    /// Turns an error message of kubectl into an error of the platform.
    pub(super) fn refused(&self, said: &str) -> PlatformError {
        // A command that ran in a pod has failed, and may have printed anything.
        let is_of_a_command = said.lines().any(|line| line.trim().starts_with(ENDED));
        let said = one_line(said);
        if is_of_a_command {
            return PlatformError::launch(PLATFORM, said);
        }
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if says(&["exceeded quota", "failed quota", " usage per "]) {
            return PlatformError::unavailable(
                format!("the namespace's quota or limits do not allow the pod: {said}"),
                "give `cpus=` and `memory=` that they allow, change them, or name another namespace with `namespace=`",
            );
        }
        if says(&[
            "violates PodSecurity",
            "PodSecurityPolicy",
            "security context constraint",
            "denied the request",
            "denied request",
        ]) {
            return PlatformError::unavailable(
                format!("the cluster's rules do not admit the pod: {said}"),
                "name a namespace with `namespace=` for which they do, or have them changed; the pods of a fleet are privileged",
            );
        }
        if says(&["RuntimeClass", "runtimeclass"]) {
            return PlatformError::unavailable(
                format!("the cluster does not have the runtime class: {said}"),
                "name one that `kubectl get runtimeclasses` lists, or leave `runtimeClass=` out",
            );
        }
        if is_logged_out(&said) {
            return PlatformError::unavailable(
                format!("the cluster does not accept this user's credentials: {said}"),
                "log in again, or name another `context=`",
            );
        }
        if says(&["(Forbidden)", "is forbidden"]) {
            return PlatformError::unavailable(
                format!("this user lacks a permission in the cluster: {said}"),
                "weighbridge makes and deletes pods, and a namespace unless `namespace=` names one: ask for these rights, or name another `context=`",
            );
        }
        if is_away(&said) {
            return self.unreachable(&said);
        }
        PlatformError::launch(PLATFORM, said)
    }

    fn unreachable(&self, said: &str) -> PlatformError {
        let name = match self.context.as_str() {
            "" => "kubectl's current context".into(),
            context => format!("the context {context}"),
        };
        PlatformError::unavailable(
            format!("the cluster of {name} does not answer: {said}"),
            format!("make sure that `{} get nodes` works, and try again", self.for_users()),
        )
    }

    /// The beginning of a command that a user may type for this cluster.
    pub(super) fn for_users(&self) -> String {
        match self.context.as_str() {
            "" => "kubectl".into(),
            context => format!("kubectl --context {context}"),
        }
    }
}

/// The list of files that kubectl reads with these values of KUBECONFIG, which is a list like PATH,
/// and HOME. Their paths are absolute, so that a process elsewhere finds the same cluster.
fn files(kubeconfig: Option<OsString>, home: Option<OsString>) -> Option<String> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let list = match kubeconfig.filter(|list| !list.is_empty()) {
        Some(list) => {
            let files: Vec<_> = std::env::split_paths(&list).map(absolute).collect();
            std::env::join_paths(files).unwrap_or(list)
        }
        None => home.and_then(default_file)?.into(),
    };
    Some(list.to_string_lossy().into_owned())
}

/// The file that kubectl reads if KUBECONFIG does not name any, if it exists.
fn default_file(home: OsString) -> Option<PathBuf> {
    let file = std::path::absolute(Path::new(&home).join(".kube/config")).ok()?;
    (!home.is_empty() && file.exists()).then_some(file)
}

/// A name that a cluster accepts as a DNS label; any other name is replaced by a hash.
pub(super) fn name_of(text: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let lower = text.to_ascii_lowercase();
    if lower.len() <= LONGEST_NAME && lower.chars().all(plain) && !lower.ends_with('-') {
        return lower;
    }
    format!("weighbridge-{:016x}", fnv_1a(text.bytes()))
}

/// Name of a run's namespace.
pub(super) fn namespace_of(host: &Host) -> String {
    name_of(&format!("weighbridge-{}", host.run))
}

/// Whether kubectl says that no server answered.
fn is_away(said: &str) -> bool {
    let words = [
        "Unable to connect",
        "Error in configuration",
        "refused",
        "no such host",
        "timeout",
        "i/o timeout",
        "EOF",
        "does not exist",
        "no configuration",
        "ServiceUnavailable",
    ];
    words.iter().any(|word| said.contains(word))
}

/// Whether kubectl says that the cluster does not accept the user's credentials.
fn is_logged_out(said: &str) -> bool {
    ["Unauthorized", "must be logged in"].iter().any(|words| said.contains(words))
}

/// The last line that says why, without its prefix: after it kubectl may print warnings, messages of
/// its log, and the exit code of a command in a pod.
fn one_line(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_logged = |line: &str| {
        line.starts_with(['I', 'W', 'E', 'F'])
            && line.get(1..5).is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let says_why =
        |line: &&&str| !line.starts_with("Warning: ") && !line.starts_with(ENDED) && !is_logged(line);
    let last = lines.iter().rfind(says_why).or(lines.last()).copied().unwrap_or("it did not say why");
    last.trim_start_matches("Error from server ").trim_start_matches("error: ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubectl() -> Kubectl {
        Kubectl { binary: "kubectl".into(), kubeconfig: None, context: "here".into() }
    }

    #[test]
    fn errors_of_kubectl_have_a_remedy() {
        for (said, remedy) in [
            (
                "Error from server (Forbidden): error when creating \"STDIN\": pods \"a\" is forbidden: exceeded quota: small, requested: limits.cpu=2, used: limits.cpu=0, limited: limits.cpu=1\n",
                "cpus=",
            ),
            (
                "Error from server (Forbidden): error when creating \"STDIN\": pods \"a\" is forbidden: pod rejected: RuntimeClass \"kata\" not found\n",
                "get runtimeclasses",
            ),
            (
                "Error from server (Forbidden): error when creating \"STDIN\": pods \"a\" is forbidden: failed quota: small: must specify requests.cpu for: guest\n",
                "cpus=",
            ),
            (
                "Error from server (Forbidden): error when creating \"STDIN\": pods \"a\" is forbidden: minimum cpu usage per Container is 100m, but request is 10m\n",
                "cpus=",
            ),
            (
                "Error from server (Forbidden): error when creating \"STDIN\": pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"guest\" must not set securityContext.privileged=true)\n",
                "privileged",
            ),
            (
                "Error from server (Forbidden): error when creating \"STDIN\": admission webhook \"a.b\" denied the request: no\n",
                "have them changed",
            ),
            (
                "Error from server (Forbidden): namespaces is forbidden: User \"me\" cannot create resource \"namespaces\"\n",
                "ask for these rights",
            ),
            ("error: You must be logged in to the server (Unauthorized)\n", "log in again"),
            (
                "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?\n",
                "--context here get nodes",
            ),
            (
                "E1126 memcache.go:265] couldn't get\nUnable to connect to the server: dial tcp: i/o timeout\n",
                "get nodes",
            ),
        ] {
            let error = kubectl().refused(said);
            let PlatformError::Unavailable { remedy: Some(found), .. } = &error else { panic!("{error}") };
            assert!(found.contains(remedy), "{said}: {error}");
        }
        for (said, reason) in [
            (
                "Error from server (AlreadyExists): pods \"a\" already exists\n",
                "(AlreadyExists): pods \"a\" already exists",
            ),
            // What a command in a pod says is not about the cluster.
            (
                "tar: Unexpected EOF in archive\ncommand terminated with exit code 2\n",
                "tar: Unexpected EOF in archive",
            ),
        ] {
            let other = kubectl().refused(said);
            assert_eq!(other.to_string(), format!("a guest of pod did not start: {reason}"));
        }
    }

    #[test]
    fn the_reason_is_found_among_warnings() {
        for (said, reason) in [
            (
                "cat: write error: No space left on device\ncommand terminated with exit code 1\n",
                "cat: write error: No space left on device",
            ),
            (
                "Error from server (NotFound): no\nWarning: v1 is deprecated\nE1126 14:00:00.000000   7 websocket.go:296] Unknown stream\n",
                "(NotFound): no",
            ),
            ("command terminated with exit code 3\n", "command terminated with exit code 3"),
            ("", "it did not say why"),
        ] {
            assert_eq!(one_line(said), reason);
        }
    }

    #[test]
    fn names_are_such_that_a_cluster_takes_them() {
        assert_eq!(name_of("weighbridge-20261126T140000Z-1"), "weighbridge-20261126t140000z-1");
        for other in ["weighbridge-run_1".to_string(), format!("weighbridge-{}", "x".repeat(60)), "a-".into()]
        {
            let name = name_of(&other);
            assert!(name.len() <= LONGEST_NAME && name.starts_with("weighbridge-"), "{name}");
            assert_eq!(name, name_of(&other));
        }
    }

    /// `weigh clean` may run in another directory, in another environment.
    #[test]
    fn another_process_asks_the_same_cluster() {
        let home = tempfile::tempdir().unwrap();
        let of = |kubeconfig: Option<&str>| files(kubeconfig.map(Into::into), Some(home.path().into()));
        assert_eq!((of(None), of(Some(""))), (None, None));
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        let file = home.path().join(".kube/config");
        std::fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap().to_string();
        assert_eq!((of(None), of(Some(""))), (Some(file.clone()), Some(file)));
        let here = std::env::current_dir().unwrap();
        assert_eq!(of(Some("/a:b")).unwrap(), format!("/a:{}", here.join("b").display()));
        // A program that fails if the variable is unset.
        let print = Kubectl { binary: "printenv".into(), kubeconfig: None, context: String::new() };
        assert_eq!(print.command(&["KUBECONFIG"]).run_ok().unwrap().output, b"\n");
    }

    #[test]
    fn a_forged_ledger_starts_no_program() {
        let read = Kubectl::of_detail(&kubectl().detail()).unwrap();
        assert_eq!(read, kubectl());
        assert_eq!(Kubectl::of_detail(&json!({"context": "a"})), None);
        assert_eq!(Kubectl::of_detail(&json!({"context": "a", "kubeconfig": "/no/such/file"})), None);
        if weigh_host::facts::is_root() {
            let base = tempfile::tempdir().unwrap();
            let config = base.path().join("config");
            std::fs::write(&config, "users: []\n").unwrap();
            let detail = json!({"context": "a", "kubeconfig": config});
            assert!(Kubectl::of_detail(&detail).is_some(), "it is root's own");
            std::os::unix::fs::chown(&config, Some(65534), Some(65534)).unwrap();
            assert_eq!(Kubectl::of_detail(&detail), None);
        }
    }
}
