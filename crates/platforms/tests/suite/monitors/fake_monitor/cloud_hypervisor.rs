//! Cloud Hypervisor as documented: which request is accepted when, and what it does.

use super::guest::{Guest, Manners, channel_of};
use super::{Asked, Fake, Settings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The first release whose description has all that the driver asks for, and the last.
pub const DESCRIPTIONS: [&str; 2] =
    [include_str!("cloud-hypervisor-50.2.json"), include_str!("cloud-hypervisor-53.0.json")];

/// A monitor with or without a machine.
#[derive(Default)]
pub struct CloudHypervisor {
    config: Option<Value>,
    state: &'static str,
    guest: Option<Guest>,
    shut_down: bool,
}

/// Status of a refusal, and its reason.
type Refused = (u16, String);

fn bad(reason: impl Into<String>) -> Refused {
    (500, reason.into())
}

impl CloudHypervisor {
    /// Parses its arguments.
    pub fn new(arguments: &[String]) -> Result<(Self, String), String> {
        match arguments {
            [option, socket] if option == "--api-socket" && !socket.contains([',', '=']) => {
                Ok((Self::default(), socket.clone()))
            }
            _ => Err(format!("it takes --api-socket: {arguments:?}")),
        }
    }

    fn create(&mut self, config: &Value) -> Result<(), Refused> {
        if self.config.is_some() {
            return Err(bad("there is a machine already"));
        }
        check(config).map_err(bad)?;
        (self.config, self.state) = (Some(config.clone()), "Created");
        Ok(())
    }

    fn boot(&mut self, settings: &Settings) -> Result<(), Refused> {
        let config = self.config.clone().ok_or((404, "there is no machine".to_string()))?;
        if self.state != "Created" {
            return Err(bad("it is booted already"));
        }
        self.run(&config, settings.manners(false, None), settings).map_err(bad)
    }

    fn run(&mut self, config: &Value, manners: Manners, settings: &Settings) -> Result<(), String> {
        let channel = channel_of(config["payload"]["cmdline"].as_str().unwrap_or_default())?;
        let socket = config["vsock"]["socket"].as_str().map(Path::new);
        let cpus = config["cpus"]["boot_vcpus"].as_u64().unwrap();
        let cpus = if settings.fault == "fewer-threads" { cpus - 1 } else { cpus };
        if let Some(file) = config["serial"]["file"].as_str() {
            std::fs::write(file, "the guest's console\n").map_err(|error| format!("{file}: {error}"))?;
        }
        let thread = |cpu| format!("vcpu{cpu}");
        self.guest = Some(Guest::boot(&settings.probe, cpus, thread, socket, &channel, manners)?);
        self.state = "Running";
        Ok(())
    }

    fn turn(&mut self, from: &str, to: &'static str) -> Result<(), Refused> {
        if self.config.is_none() {
            return Err((404, "there is no machine".into()));
        }
        let Some(guest) = self.guest.as_ref().filter(|_| self.state == from) else {
            return Err((405, format!("the machine is {}", self.state)));
        };
        if to == "Paused" {
            guest.pause()
        } else {
            guest.resume()
        }
        self.state = to;
        Ok(())
    }

    fn save(&self, body: &Value) -> Result<(), Refused> {
        let config = self.config.as_ref().ok_or((404, "there is no machine".to_string()))?;
        if self.state != "Paused" {
            return Err((405, format!("the machine is {}", self.state)));
        }
        let directory = directory(&body["destination_url"]).map_err(bad)?;
        let connection = self.guest.as_ref().map(Guest::connection);
        let write = |name: &str, text: String| std::fs::write(directory.join(name), text);
        write("config.json", config.to_string())
            .and_then(|()| write("state.json", json!({ "connection": connection }).to_string()))
            .and_then(|()| write("memory-ranges", "memory".into()))
            .map_err(|error| bad(error.to_string()))
    }

    fn restore(&mut self, body: &Value, settings: &Settings) -> Result<(), Refused> {
        if self.config.is_some() {
            return Err((404, "there is a machine already".into()));
        }
        let directory = directory(&body["source_url"]).map_err(bad)?;
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name)).map_err(|error| bad(format!("{name}: {error}")))
        };
        let state: Value =
            serde_json::from_str(&read("state.json")?).map_err(|error| bad(error.to_string()))?;
        if read("memory-ranges")? != "memory" {
            return Err((400, "that is no memory".into()));
        }
        let config: Value =
            serde_json::from_str(&read("config.json")?).map_err(|error| bad(error.to_string()))?;
        // The monitor forgets the connection, and the guest does not.
        let held = state["connection"].as_u64().and_then(|number| number.try_into().ok());
        self.run(&config, settings.manners(true, held), settings).map_err(bad)?;
        self.config = Some(config);
        match body.get("resume") {
            Some(Value::Bool(true)) => Ok(()),
            _ => self.turn("Running", "Paused"),
        }
    }
}

/// The path of an existing directory in a URL.
fn directory(url: &Value) -> Result<PathBuf, String> {
    let url = url.as_str().unwrap_or_default();
    let path = url.strip_prefix("file://").ok_or_else(|| format!("{url} is no URL of a file"))?;
    if Path::new(path).is_absolute() && Path::new(path).is_dir() {
        return Ok(path.into());
    }
    Err(format!("there is no directory {path}"))
}

fn check(config: &Value) -> Result<(), String> {
    for name in ["kernel", "initramfs"] {
        match config["payload"].get(name).and_then(Value::as_str) {
            Some(path) if Path::new(path).is_file() => {}
            Some(path) => return Err(format!("there is no {path}")),
            None => return Err(format!("there is no {name}")),
        }
    }
    for disk in config["disks"].as_array().into_iter().flatten() {
        super::check_disk(&disk["path"])?;
    }
    for card in config["net"].as_array().into_iter().flatten() {
        super::check_tap(&card["tap"])?;
    }
    let cpus = &config["cpus"];
    if cpus["boot_vcpus"].as_u64() > cpus["max_vcpus"].as_u64() {
        return Err("more CPUs than the most".into());
    }
    for pair in cpus["affinity"].as_array().into_iter().flatten() {
        if pair["vcpu"].as_u64() >= cpus["boot_vcpus"].as_u64() {
            return Err("an affinity of no CPU".into());
        }
    }
    let page = if config["memory"]["hugepages"] == json!(true) { 2 << 20 } else { 4096 };
    if config["memory"]["size"].as_u64().is_none_or(|size| size % page != 0) {
        return Err("the memory is not of whole pages".into());
    }
    if config["serial"]["mode"] == "File" && config["serial"].get("file").is_none() {
        return Err("a console in a file without a name".into());
    }
    Ok(())
}

impl Fake for CloudHypervisor {
    fn act(&mut self, asked: &Asked, settings: &Settings) -> (u16, Option<Value>) {
        let body = asked.body.clone().unwrap_or_default();
        let done = match asked.path.strip_prefix("/api/v1/").unwrap_or_default() {
            "vmm.ping" => return (200, Some(json!({"version": "v0.0-fake", "pid": std::process::id()}))),
            "vm.info" => match self.config.clone() {
                None => Err((404, "there is no machine".into())),
                Some(mut config) => {
                    if settings.fault == "other-size" {
                        config["cpus"]["boot_vcpus"] = 31.into();
                    }
                    return (200, Some(json!({"config": config, "state": self.state})));
                }
            },
            "vm.create" => self.create(&body),
            "vm.boot" => self.boot(settings),
            "vm.pause" => self.turn("Running", "Paused"),
            "vm.resume" => self.turn("Paused", "Running"),
            "vm.snapshot" => self.save(&body),
            "vm.restore" => self.restore(&body, settings),
            "vmm.shutdown" => {
                self.shut_down = true;
                Ok(())
            }
            _ => Err(bad("the fake does not do this")),
        };
        match done {
            Ok(()) => (204, None),
            Err((status, reason)) => (status, (status == 500).then(|| json!([reason]))),
        }
    }

    fn refusal(&self, reason: &str) -> (u16, Value) {
        (500, json!(["the request failed", reason]))
    }

    /// A guest that powers off ends its monitor.
    fn has_ended(&mut self) -> bool {
        self.shut_down || self.guest.as_mut().is_some_and(Guest::is_off)
    }
}
