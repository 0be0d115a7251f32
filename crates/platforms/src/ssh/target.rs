//! A machine as `ssh` knows it: how it is reached, and what errors mean when it cannot be.

use super::scripts::Script;
use super::{PLATFORM, REMEDY, Ssh};
use crate::{PlatformError, Result, common_keys, setting};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::{CommandError, Invocation};
use weigh_host::private::{check_input, invoking_user};
use weigh_model::EnvironmentSpec;

/// Name of the client's program.
const CLIENT: &str = "ssh";
/// Time limit for connecting, seconds.
const CONNECT_S: u32 = 10;
/// After how many silent seconds the client asks whether a connection is alive.
const ALIVE_S: u32 = 4;
/// After how many such questions without an answer it gives the connection up.
const ALIVE_COUNT: u32 = 3;
/// Time limit for a short script, including the connection and ending guests on the other machine.
pub(crate) const SCRIPT_DEADLINE: Duration = Duration::from_secs(60);
/// Exit code of `ssh` when it fails itself, and not the remote command (`ssh(1)`).
pub(crate) const CONNECTION_FAILED: i32 = 255;

/// The keys of an environment that say how a machine is reached, except the client itself.
const WAY: [&str; 5] = ["host", "port", "identity", "config", "known-hosts"];
/// Those keys whose values are paths.
const PATHS: [&str; 3] = ["identity", "config", "known-hosts"];

/// How a machine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    program: PathBuf,
    pub(crate) host: String,
    /// The keys that are given, with absolute paths.
    way: BTreeMap<String, String>,
}

impl Target {
    /// # Errors
    /// There is no client.
    pub(crate) fn of(environment: &EnvironmentSpec) -> Result<Self> {
        let program = common_keys::program(&Ssh, environment, CLIENT, REMEDY)?;
        let given = |key| Some(setting(&Ssh, environment, key)).filter(|value| !value.is_empty());
        let way = WAY.into_iter().filter_map(|key| {
            let value = given(key)?;
            let value = if PATHS.contains(&key) { absolute(value) } else { value.into() };
            Some((key.to_string(), value))
        });
        let host = given("host").unwrap_or_default().to_string();
        Ok(Self { program, host, way: way.collect() })
    }

    /// What a ledger keeps of the target, so that another process can reach it.
    pub(crate) fn detail(&self) -> Value {
        json!(self.way)
    }

    /// The target that [`Target::detail`] wrote, with the installed client: never a program from a
    /// ledger, nor a configuration that another user could have written, as it can name programs.
    pub(super) fn read(detail: &Value) -> Option<Self> {
        let detail = detail.as_object()?;
        let way: BTreeMap<String, String> = detail
            .iter()
            .map(|(key, value)| Some((key.clone(), value.as_str()?.to_string())))
            .collect::<Option<_>>()?;
        let known = way.keys().all(|key| WAY.contains(&key.as_str()));
        let trusted = |path: &String| check_input(Path::new(path), invoking_user()).is_ok();
        if !known || !way.get("config").is_none_or(trusted) {
            return None;
        }
        Some(Self { program: CLIENT.into(), host: way.get("host")?.clone(), way })
    }

    /// Options of the client.
    fn options(&self) -> Vec<String> {
        let given = |key: &str| self.way.get(key).cloned();
        let mut options = Vec::new();
        if let Some(config) = given("config") {
            options.extend(["-F".into(), config]);
        }
        if let Some(port) = given("port") {
            options.extend(["-p".into(), port]);
        }
        if let Some(identity) = given("identity") {
            options.extend(["-i".into(), identity, "-o".into(), "IdentitiesOnly=yes".into()]);
        }
        if let Some(known) = given("known-hosts") {
            options.extend(["-o".into(), format!("UserKnownHostsFile=\"{known}\"")]);
        }
        options
    }

    /// The client with a script for the machine. It asks the user nothing, leaves nothing of the
    /// user's own settings running behind it, and gives up a silent connection.
    pub(crate) fn invocation(&self, script: &Script<'_>) -> Invocation {
        let options = [
            "BatchMode=yes".to_string(),
            // An option's first value counts, and these come before those of any file: no setting
            // of the user's makes ssh accept, or store, an unknown key.
            "StrictHostKeyChecking=yes".into(),
            "VerifyHostKeyDNS=no".into(),
            "UpdateHostKeys=no".into(),
            "NoHostAuthenticationForLocalhost=no".into(),
            format!("ConnectTimeout={CONNECT_S}"),
            format!("ServerAliveInterval={ALIVE_S}"),
            format!("ServerAliveCountMax={ALIVE_COUNT}"),
            "ControlMaster=no".into(),
            "ControlPath=none".into(),
            "ClearAllForwardings=yes".into(),
            "ForwardAgent=no".into(),
            "ForwardX11=no".into(),
            "PermitLocalCommand=no".into(),
            "RemoteCommand=none".into(),
            "LogLevel=ERROR".into(),
        ];
        let mut command = Invocation::new(&self.program).arg("-T");
        for option in options {
            command = command.args(["-o".into(), option]);
        }
        command.args(self.options()).args(["--", self.host.as_str(), script.line().as_str()])
    }

    /// Runs a script to its end and returns what it printed.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the message of `ssh` if the machine cannot be reached,
    /// otherwise the script's message.
    pub(crate) fn run(&self, script: &Script<'_>, log: Option<&Path>) -> Result<Vec<u8>> {
        self.finish(self.invocation(script), log, SCRIPT_DEADLINE)
    }

    /// Runs a script with standard input.
    pub(super) fn feed(&self, script: &Script<'_>, input: Vec<u8>, log: &Path) -> Result<()> {
        self.finish(self.invocation(script).input(input), Some(log), SCRIPT_DEADLINE).map(|_| ())
    }

    /// Runs a client with a given deadline.
    pub(crate) fn finish(
        &self,
        mut command: Invocation,
        log: Option<&Path>,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        if let Some(log) = log {
            command = command.log_to(log);
        }
        let done = match command.deadline(deadline).run() {
            Ok(done) => done,
            Err(CommandError::Deadline { after, .. }) => {
                let said = format!("it did not answer within {} s", after.as_secs());
                return Err(self.unreachable(&said));
            }
            Err(error) => return Err(error.into()),
        };
        let said = String::from_utf8_lossy(&done.error).into_owned();
        match done.status.code() {
            Some(0) => Ok(done.output),
            Some(CONNECTION_FAILED) => Err(self.unreachable(&said)),
            _ => Err(self.failed(&said)),
        }
    }

    /// The error for something that the other machine refused.
    pub(crate) fn failed(&self, said: &str) -> PlatformError {
        let said = one_line(said);
        let reason = if said.is_empty() { "it did not say why".into() } else { said };
        let reason = format!("{}: {reason}", self.host);
        PlatformError::launch(PLATFORM, reason)
    }

    /// The error for a connection that could not be made, or did not hold.
    pub(crate) fn unreachable(&self, said: &str) -> PlatformError {
        let said = one_line(said);
        let remedy = remedy(&said, &self.host);
        let why = if said.is_empty() { said } else { format!(": {said}") };
        PlatformError::unavailable(format!("cannot connect to {}{why}", self.host), remedy)
    }
}

/// Makes a path absolute.
fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.into(), |path| path.display().to_string())
}

/// The message of `ssh`, without the frames that it draws around warnings.
fn one_line(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('@'));
    let lines: Vec<&str> = lines.collect();
    // The last lines say why it ended; a changed key is explained at length before them.
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// The remedy, by OpenSSH's own words (`ssh(1)`).
fn remedy(said: &str, host: &str) -> String {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["Host key verification failed", "host key is known", "IDENTIFICATION HAS CHANGED"]) {
        return format!(
            "compare its key with what the machine itself says, then accept it once by `ssh {host}`, or name the file that holds it with known-hosts="
        );
    }
    if says(&["Permission denied", "Too many authentication failures"]) {
        return "name by identity= a key that the machine takes without a prompt, or load it into ssh-agent"
            .into();
    }
    if says(&["Could not resolve hostname", "Name or service not known"]) {
        return "write an address, or a name that ssh knows by its configuration".into();
    }
    format!("make sure that `ssh {host} true` works without a prompt, and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::of(&EnvironmentSpec::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn keys_become_options_and_the_host_is_no_option() {
        let target =
            target("ssh:host=me@there,port=2222,identity=/a key,config=/c f,known-hosts=/k h,directory=/x");
        assert_eq!(
            target.options(),
            [
                "-F",
                "/c f",
                "-p",
                "2222",
                "-i",
                "/a key",
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "UserKnownHostsFile=\"/k h\""
            ]
        );
        let line = target.invocation(&Script::Ask).command_line();
        assert!(line.contains(" -- me@there 'exec sh -c "), "{line}");
        assert!(line.contains("BatchMode=yes") && line.contains("ControlMaster=no"), "{line}");
        let (strict, file) = (line.find("StrictHostKeyChecking=yes").unwrap(), line.find("-F").unwrap());
        assert!(strict < file, "what ssh reads first counts: {line}");
    }

    #[test]
    fn a_forged_ledger_starts_no_program() {
        let target = target("ssh:host=me@there,port=2222,identity=/a key,known-hosts=/k h");
        let read = Target::read(&target.detail()).unwrap();
        assert_eq!((&read.way, &read.host, read.program), (&target.way, &target.host, PathBuf::from(CLIENT)));
        let of = |detail: Value| Target::read(&detail);
        assert!(of(json!({"host": "x"})).is_some() && of(json!({"port": "1"})).is_none());
        assert_eq!(of(json!({"host": "x", "program": "/tmp/evil"})), None);
        assert_eq!(of(json!({"host": "x", "options": ["-o", "ProxyCommand=/tmp/evil"]})), None);
        assert_eq!(of(json!({"host": ["x"]})), None);
        if weigh_host::facts::is_root() {
            let base = tempfile::tempdir().unwrap();
            let config = base.path().join("config");
            std::fs::write(&config, "ProxyCommand /tmp/evil\n").unwrap();
            assert!(of(json!({"host": "x", "config": config})).is_some(), "it is root's own");
            std::os::unix::fs::chown(&config, Some(65534), Some(65534)).unwrap();
            assert_eq!(of(json!({"host": "x", "config": config})), None);
        }
    }

    #[test]
    fn errors_of_ssh_have_a_remedy() {
        let target = target("ssh:host=there");
        for (said, expected) in [
            (
                "No ED25519 host key is known for x and you have requested strict checking.\r\nHost key verification failed.\r\n",
                "known-hosts=",
            ),
            ("me@there: Permission denied (publickey).\r\n", "identity="),
            ("ssh: Could not resolve hostname there: Name or service not known\r\n", "address"),
            ("ssh: connect to host there port 22: Connection refused\r\n", "`ssh there true`"),
        ] {
            let error = target.unreachable(said).to_string();
            assert!(
                error.contains(expected) && error.contains(said.split('.').next().unwrap().trim()),
                "{error}"
            );
        }
    }
}
