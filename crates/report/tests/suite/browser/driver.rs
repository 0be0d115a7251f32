//! A headless browser, driven over loopback by the WebDriver protocol.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running, find_program};

/// How long anything may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 2] = ["chromedriver", "chromium"];

/// A browser with one window. Dropping it asks the browser to end and kills its process group.
pub struct Browser {
    port: u16,
    session: String,
    directory: tempfile::TempDir,
    _driver: Running,
}

impl Browser {
    /// `None`, with a message, if there is no browser; fails if `WEIGH_REQUIRE` names it.
    pub fn new(test: &str) -> Option<Self> {
        if let Some(missing) = PROGRAMS.iter().find(|program| find_program(program).is_none()) {
            let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "browser"), "{missing} is required and missing");
            skip(&format!("SKIPPED {test}: {missing} is not installed"));
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("driver.log");
        let home = directory.path().join("home");
        std::fs::create_dir(&home).expect("a home");
        let driver = Invocation::new(PROGRAMS[0])
            .arg("--port=0")
            .env("HOME", &home)
            .env("TMPDIR", directory.path())
            .log_to(&log)
            .output_to_log()
            .dies_with_caller()
            .spawn()
            .expect("the driver starts");
        let port = wait_for("the driver's port", || port(&std::fs::read_to_string(&log).ok()?));
        let mut browser = Self { port, session: String::new(), directory, _driver: driver };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            // The browser ends when the driver does, however that ends.
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-breakpad",
            "--disable-crash-reporter",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }}});
        let made = browser.call("POST", "/session", &capabilities);
        browser.session = made["sessionId"].as_str().expect("a session").into();
        Some(browser)
    }

    /// The path of a file in the browser's own directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens a page from a file, and waits until its script is done.
    pub fn open(&self, file: &Path) {
        self.visit(&format!("file://{}", file.display()));
    }

    /// Opens a page from a server, and waits until its script is done.
    pub fn visit(&self, url: &str) {
        self.entries("browser");
        self.entries("performance");
        self.post("/url", json!({"url": url}));
        self.wait("the page's script", "return document.documentElement.dataset.ready === 'yes'");
    }

    /// Sets the size of the window and the colour scheme.
    pub fn screen(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Sets the directory for files that the page saves.
    pub fn save_to(&self, directory: &Path) {
        let behaviour = json!({"behavior": "allow", "downloadPath": directory});
        self.devtools("Browser.setDownloadBehavior", behaviour);
    }

    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// The value that a function body returns.
    pub fn evaluate(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
    }

    /// Waits until a function body returns true.
    pub fn wait(&self, what: &str, script: &str) {
        wait_for(what, || (self.evaluate(script) == true).then_some(()));
    }

    /// Presses keys where the focus is; the return key is `\u{e007}`.
    pub fn press(&self, key: &str) {
        let keys = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": keys}]}));
    }

    /// The entries of a log since the last call.
    pub fn entries(&self, log: &str) -> Vec<String> {
        let entries = self.post("/se/log", json!({"type": log}));
        let entries = entries.as_array().expect("a log");
        entries.iter().map(|entry| entry["message"].as_str().expect("a message").to_string()).collect()
    }

    /// The URLs requested since the page was opened.
    pub fn requests(&self) -> Vec<String> {
        let messages = self.entries("performance");
        let parsed = messages.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
        parsed
            .filter(|event| event["message"]["method"] == "Network.requestWillBeSent")
            .filter_map(|event| {
                Some(event["message"]["params"]["request"]["url"].as_str()?.chars().take(100).collect())
            })
            .collect()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), &body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.exchange(method, path, body).expect("the driver answers");
        assert!(value["value"]["error"].is_null(), "{path}: {}", value["value"]);
        value["value"].clone()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        // The driver keeps the connection open, so read only as much as it announces.
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            line.clear();
        }
        let mut content = vec![0; length];
        reader.read_exact(&mut content)?;
        serde_json::from_slice(&content).map_err(std::io::Error::other)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &json!({}));
    }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skip(why: &str) {
    eprintln!("{why}");
}

fn port(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once("successfully on port ")?;
    let (digits, _) = rest.split_once('.')?;
    digits.parse().ok()
}

/// Repeats `ask` until there is an answer.
pub fn wait_for<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
