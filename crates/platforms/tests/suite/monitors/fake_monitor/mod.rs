//! Fake monitors of machines: programs that check every request against the published descriptions
//! of the API, accept requests only in the documented order, answer as documented, and boot a real
//! probe as a process of the host.
//!
//! The program is the test program itself: a script that `binary=` names executes its ignored test
//! `fake_monitor`, with the monitor's arguments where the test runner accepts any text.

#![allow(dead_code, reason = "no test file needs all of it")]
pub mod cloud_hypervisor;
pub mod description;
pub mod firecracker;
pub mod guest;
pub mod http;

use description::Description;
pub use http::Asked;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Set for the process that is a monitor: its kind, its fault, the file that records requests, and
/// the probe.
const MONITOR: &str = "WEIGH_TEST_MONITOR";

/// What a fake is started with.
pub struct Settings {
    pub kind: String,
    /// The fault: empty, or `refuse`, `hang`, `end`, `garbage` with a request after a colon, `version`
    /// with one that has faults, or a word of the monitor's own.
    pub fault: String,
    record: PathBuf,
    pub probe: String,
}

impl Settings {
    /// How a guest answers that boots, or that is restored and may hold a connection.
    fn manners(&self, restored: bool, held: Option<u32>) -> guest::Manners {
        // A guest does not listen as soon as its machine runs.
        let refusals = if restored || self.fault == "eager" { 0 } else { 3 };
        guest::Manners { deaf: self.fault == "deaf", refusals, held }
    }
}

/// One kind of monitor.
pub trait Fake: Send {
    /// Carries out a request that is in the description; returns the answer's status and body.
    fn act(&mut self, asked: &Asked, settings: &Settings) -> (u16, Option<Value>);

    /// Returns the answer for a refusal.
    fn refusal(&self, reason: &str) -> (u16, Value);

    /// Whether the monitor has ended by itself.
    fn has_ended(&mut self) -> bool;
}

/// A monitor for `binary=`, in an existing directory.
pub struct Program {
    pub path: PathBuf,
    record: PathBuf,
}

impl Program {
    pub fn new(directory: &Path, kind: &str, fault: &str, probe: &Path) -> Self {
        let (path, record) = (directory.join(kind), directory.join("requests"));
        let test = std::env::current_exe().unwrap();
        let value = format!("{kind}|{fault}|{}|{}", record.display(), probe.display());
        let version = fault.strip_prefix("version:").unwrap_or("0.0-fake");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo '{kind} v{version}' && exit\nexport {MONITOR}='{value}'\n\
             for word; do set -- \"$@\" --skip \"$word\"; shift; done\n\
             exec '{}' --exact monitors::fake_monitor --ignored --nocapture \"$@\"\n",
            test.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { path, record }
    }

    /// The settings with which a monitor of this program would start.
    pub fn settings(&self, kind: &str, fault: &str) -> Settings {
        let probe = crate::static_probe::path().display().to_string();
        Settings { kind: kind.into(), fault: fault.into(), record: self.record.clone(), probe }
    }

    /// All requests to monitors of this program, as `METHOD PATH` with the status of the answer.
    pub fn requests(&self) -> Vec<(String, u64)> {
        self.lines()
            .into_iter()
            .map(|line| (line["request"].as_str().unwrap().into(), line["status"].as_u64().unwrap()))
            .collect()
    }

    /// The bodies that a request was sent with.
    pub fn bodies(&self, request: &str) -> Vec<Value> {
        self.lines()
            .into_iter()
            .filter(|line| line["request"] == request)
            .map(|line| line["body"].clone())
            .collect()
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.record).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Plays the monitor, for an ignored test `fake_monitor` at the root of a test file. Does nothing
/// in any other process.
pub fn play() {
    let Ok(value) = std::env::var(MONITOR) else { return };
    let words: Vec<String> = value.split('|').map(String::from).collect();
    let [kind, fault, record, probe] = words.try_into().unwrap();
    let settings = Settings { kind, fault, record: record.into(), probe };
    let own: Vec<String> = std::env::args().collect();
    let arguments: Vec<String> =
        own.windows(2).filter(|pair| pair[0] == "--skip").map(|pair| pair[1].clone()).collect();
    let (fake, socket, descriptions): (Box<dyn Fake>, _, _) = match settings.kind.as_str() {
        "firecracker" => {
            let (fake, socket) = firecracker::Firecracker::new(&arguments).unwrap();
            (Box::new(fake), socket, firecracker::DESCRIPTIONS)
        }
        "cloud-hypervisor" => {
            let (fake, socket) = cloud_hypervisor::CloudHypervisor::new(&arguments).unwrap();
            (Box::new(fake), socket, cloud_hypervisor::DESCRIPTIONS)
        }
        other => panic!("there is no fake of {other}"),
    };
    if settings.fault == "end" {
        eprintln!("the fake ends before it listens");
        std::process::exit(9);
    }
    serve(fake, &socket, &descriptions.map(Description::parse), &settings);
}

fn serve(fake: Box<dyn Fake>, socket: &str, releases: &[Description], settings: &Settings) {
    let listener = UnixListener::bind(socket).unwrap();
    let fake = Arc::new(Mutex::new(fake));
    let watched = fake.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(5));
            if watched.lock().unwrap().has_ended() {
                std::process::exit(0);
            }
        }
    });
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        while let Ok(Some(asked)) = http::read(&mut stream) {
            let answered = match asked {
                Ok(asked) => one(&fake, releases, settings, &asked, &mut stream),
                Err(reason) => refuse(&fake, settings, "unreadable", None, &reason, &mut stream),
            };
            if answered.is_err() {
                break;
            }
        }
    }
}

type Shared = Arc<Mutex<Box<dyn Fake>>>;

fn one(
    fake: &Shared,
    releases: &[Description],
    settings: &Settings,
    asked: &Asked,
    stream: &mut UnixStream,
) -> std::io::Result<()> {
    let request = format!("{} {}", asked.method, asked.path);
    if let Err(reason) = description::check_request(releases, asked) {
        return refuse(
            fake,
            settings,
            &request,
            asked.body.as_ref(),
            &format!("not as described: {reason}"),
            stream,
        );
    }
    match settings.fault.split_once(':').filter(|(_, at)| *at == request).map(|(fault, _)| fault) {
        Some("refuse") => {
            return refuse(
                fake,
                settings,
                &request,
                asked.body.as_ref(),
                "the fake was told to refuse",
                stream,
            );
        }
        Some("hang") => std::thread::sleep(Duration::from_secs(600)),
        Some("end") => std::process::exit(9),
        Some("garbage") => return stream.write_all(b"\x00\x01 this is no HTTP \r\n\r\n"),
        _ => {}
    }
    let (status, body) = fake.lock().unwrap().act(asked, settings);
    // The fake's answers are those of the last release, except refusals, of which Cloud Hypervisor's
    // description lacks most.
    let last = releases.last().unwrap();
    let known = last.request(&asked.method, &asked.path).unwrap();
    if status < 400 || known.has_answer(status) {
        last.check_answer(&known, status, body.as_ref()).unwrap();
    }
    record(settings, &request, asked.body.as_ref(), status);
    http::answer(stream, status, body.as_ref())
}

/// Checks that a path is a file or device that can be opened for writing.
fn check_disk(path: &Value) -> Result<(), String> {
    let path = path.as_str().ok_or("a disk of nothing")?;
    let opened = std::fs::File::options().read(true).write(true).open(path);
    opened.map(|_| ()).map_err(|error| format!("{path}: {error}"))
}

/// Checks that a name is a tap device in this network namespace.
fn check_tap(name: &Value) -> Result<(), String> {
    let name = name.as_str().ok_or("a card of nothing")?;
    let flags = Path::new("/sys/class/net").join(name).join("tun_flags");
    std::fs::metadata(flags).map(|_| ()).map_err(|error| format!("{name} is no tap device: {error}"))
}

fn refuse(
    fake: &Shared,
    settings: &Settings,
    request: &str,
    asked: Option<&Value>,
    reason: &str,
    stream: &mut UnixStream,
) -> std::io::Result<()> {
    let (status, body) = fake.lock().unwrap().refusal(reason);
    record(settings, request, asked, status);
    http::answer(stream, status, Some(&body))
}

fn record(settings: &Settings, request: &str, body: Option<&Value>, status: u16) {
    let mut file = std::fs::File::options().create(true).append(true).open(&settings.record).unwrap();
    let line = json!({"request": request, "body": body, "status": status});
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
