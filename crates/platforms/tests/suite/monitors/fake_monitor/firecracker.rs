//! Firecracker as documented: which request is accepted when, and what it does.

use super::guest::{Guest, channel_of};
use super::{Asked, Fake, Settings};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// The first release that the driver supports, and the last.
pub const DESCRIPTIONS: [&str; 2] =
    [include_str!("firecracker-1.8.0.json"), include_str!("firecracker-1.16.1.json")];

/// A machine before, while and after it runs.
#[derive(Default)]
pub struct Firecracker {
    id: String,
    /// Where its log goes; to standard output if nowhere else.
    log: Option<String>,
    /// Bodies of PUT requests, by path.
    put: Vec<(String, Value)>,
    state: State,
    guest: Option<Guest>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    #[default]
    NotStarted,
    Running,
    Paused,
}

impl Firecracker {
    /// Parses its arguments.
    pub fn new(arguments: &[String]) -> Result<(Self, String), String> {
        let (arguments, log) = match arguments {
            [rest @ .., option, path] if option == "--log-path" => (rest, Some(path.clone())),
            all => (all, None),
        };
        let [id_option, id, socket_option, socket] = arguments else {
            return Err(format!("it takes --id and --api-sock: {arguments:?}"));
        };
        if id_option != "--id" || socket_option != "--api-sock" {
            return Err(format!("it takes --id and --api-sock: {arguments:?}"));
        }
        let takes = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.is_empty() || id.len() > 64 || !id.chars().all(takes) {
            return Err(format!("`{id}` is no id"));
        }
        Ok((Self { id: id.clone(), log, ..Self::default() }, socket.clone()))
    }

    fn log(&self, asked: &Asked) {
        let line = format!("The API server received a {} request on {}.\n", asked.method, asked.path);
        let path = self.log.as_deref().unwrap_or("/proc/self/fd/1");
        let mut log = std::fs::File::options().append(true).open(path).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }

    fn of(&self, path: &str) -> Option<&Value> {
        self.put.iter().rev().find(|(known, _)| known == path).map(|(_, value)| value)
    }

    fn machine(&self) -> Value {
        self.of("/machine-config").cloned().unwrap_or_else(|| json!({"vcpu_count": 1, "mem_size_mib": 128}))
    }

    fn configure(&mut self, asked: &Asked) -> Result<(), String> {
        if self.state != State::NotStarted {
            return Err(format!("PUT {} is for before the start", asked.path));
        }
        let body = asked.body.clone().unwrap();
        match asked.path.as_str() {
            "/boot-source" => check_files(&body)?,
            "/machine-config" => check_machine(&body)?,
            path if path.starts_with("/drives/") => super::check_disk(&body["path_on_host"])?,
            path if path.starts_with("/network-interfaces/") => super::check_tap(&body["host_dev_name"])?,
            _ => {}
        }
        self.put.push((asked.path.clone(), body));
        Ok(())
    }

    fn start(&mut self, settings: &Settings) -> Result<(), String> {
        if self.state != State::NotStarted {
            return Err("it has been started".into());
        }
        let source = self.of("/boot-source").ok_or("there is no boot source")?;
        let line = source["boot_args"].as_str().unwrap_or_default().to_string();
        self.run(&line, settings, false)
    }

    /// A guest that is restored has been told that its connections are lost.
    fn run(&mut self, line: &str, settings: &Settings, restored: bool) -> Result<(), String> {
        let channel = channel_of(line)?;
        let socket = self.of("/vsock").map(|vsock| vsock["uds_path"].as_str().unwrap().to_string());
        let cpus = self.machine()["vcpu_count"].as_u64().unwrap();
        let cpus = if settings.fault == "fewer-threads" { cpus - 1 } else { cpus };
        let manners = settings.manners(restored, None);
        let thread = |cpu| format!("fc_vcpu {cpu}");
        self.guest = Some(Guest::boot(
            &settings.probe,
            cpus,
            thread,
            socket.as_deref().map(Path::new),
            &channel,
            manners,
        )?);
        self.state = State::Running;
        Ok(())
    }

    fn set_state(&mut self, state: &str, settings: &Settings) -> Result<(), String> {
        let guest = self.guest.as_ref().ok_or("the machine does not run")?;
        match state {
            "Paused" => guest.pause(),
            _ => {
                guest.resume();
                if settings.fault == "version:1.16.1" {
                    guest.cut_off();
                }
            }
        }
        self.state = if state == "Paused" { State::Paused } else { State::Running };
        Ok(())
    }

    fn save(&self, body: &Value) -> Result<(), String> {
        if self.state != State::Paused {
            return Err("the machine is not paused".into());
        }
        let write = |name: &str, content: String| {
            std::fs::write(body[name].as_str().unwrap(), content).map_err(|error| error.to_string())
        };
        let put: Vec<Value> = self.put.iter().map(|(path, value)| json!([path, value])).collect();
        write("snapshot_path", Value::from(put).to_string())?;
        write("mem_file_path", "memory".into())
    }

    fn load(&mut self, body: &Value, settings: &Settings) -> Result<(), String> {
        let only_logs = self.put.iter().all(|(path, _)| path == "/logger" || path == "/metrics");
        if self.state != State::NotStarted || !only_logs {
            return Err("a snapshot is loaded by a fresh monitor alone".into());
        }
        let from_file = body.get("mem_backend").is_none_or(|backend| backend["backend_type"] == "File");
        let memory = match (body.get("mem_backend"), body.get("mem_file_path")) {
            (Some(backend), None) => backend["backend_path"].clone(),
            (None, Some(path)) => path.clone(),
            _ => return Err("one of mem_backend and mem_file_path is taken".into()),
        };
        let read =
            |path: &Value| std::fs::read_to_string(path.as_str().unwrap()).map_err(|error| error.to_string());
        if read(&memory)? != "memory" {
            return Err("that is no memory".into());
        }
        let put: Value =
            serde_json::from_str(&read(&body["snapshot_path"])?).map_err(|error| error.to_string())?;
        self.put = put
            .as_array()
            .ok_or("that is no snapshot")?
            .iter()
            .map(|pair| (pair[0].as_str().unwrap().into(), pair[1].clone()))
            .collect();
        if from_file && self.machine()["huge_pages"] == "2M" {
            return Err("cannot restore hugetlbfs backed snapshot by mapping the memory file".into());
        }
        let line = self.of("/boot-source").unwrap()["boot_args"].as_str().unwrap().to_string();
        self.run(&line, settings, true)?;
        let resumed = body.get("resume_vm") == Some(&json!(true));
        self.set_state(if resumed { "Resumed" } else { "Paused" }, settings)
    }
}

fn check_files(source: &Value) -> Result<(), String> {
    let kernel = source["kernel_image_path"].as_str().unwrap();
    let image = std::fs::read(kernel).map_err(|error| format!("{kernel}: {error}"))?;
    if !image.starts_with(b"\x7fELF") {
        return Err(format!("{kernel} is not uncompressed"));
    }
    match source.get("initrd_path").and_then(Value::as_str) {
        Some(path) if !Path::new(path).is_file() => Err(format!("there is no {path}")),
        _ => Ok(()),
    }
}

fn check_machine(machine: &Value) -> Result<(), String> {
    let number = |name: &str| machine[name].as_u64().unwrap();
    if machine.get("smt") == Some(&json!(true)) && number("vcpu_count") > 1 && number("vcpu_count") % 2 == 1 {
        return Err("with threads the number of CPUs is 1 or even".into());
    }
    if machine.get("huge_pages") == Some(&json!("2M")) && number("mem_size_mib") % 2 == 1 {
        return Err("pages of 2 MiB hold an even number of MiB".into());
    }
    Ok(())
}

impl Fake for Firecracker {
    fn act(&mut self, asked: &Asked, settings: &Settings) -> (u16, Option<Value>) {
        self.log(asked);
        let body = asked.body.clone().unwrap_or_default();
        let done = match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/version") => return (200, Some(json!({"firecracker_version": "1.17.0"}))),
            ("GET", "/") => {
                let state = match self.state {
                    State::NotStarted => "Not started",
                    State::Running => "Running",
                    State::Paused => "Paused",
                };
                let info = json!({"app_name": "Firecracker", "id": self.id, "state": state, "vmm_version": "1.17.0"});
                return (200, Some(info));
            }
            ("GET", "/machine-config") if settings.fault == "other-size" => {
                return (200, Some(json!({"vcpu_count": 31, "mem_size_mib": 128})));
            }
            ("GET", "/machine-config") => return (200, Some(self.machine())),
            ("PUT", "/actions") => match body["action_type"].as_str().unwrap() {
                "InstanceStart" => self.start(settings),
                _ if self.guest.is_none() => Err("the machine does not run".into()),
                _ => Ok(()),
            },
            ("PATCH", "/vm") => self.set_state(body["state"].as_str().unwrap(), settings),
            ("PUT", "/snapshot/create") => self.save(&body),
            ("PUT", "/snapshot/load") => self.load(&body, settings),
            ("PUT", _) => self.configure(asked),
            _ => Err("the fake does not do this".into()),
        };
        match done {
            Ok(()) => (204, None),
            Err(reason) => (400, Some(json!({ "fault_message": reason }))),
        }
    }

    fn refusal(&self, reason: &str) -> (u16, Value) {
        (400, json!({ "fault_message": reason }))
    }

    /// A guest that powers off leaves its monitor running.
    fn has_ended(&mut self) -> bool {
        false
    }
}
