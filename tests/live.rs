//! The report of a run while it goes on: who can see it, who cannot, and that nobody can delay the
//! run.

use crate::support::{Stage, interrupt, shown, wait_for};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Child;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// A run of `blocks` blocks of a tenth of a second each.
fn line(blocks: u32) -> String {
    const FAKE: &str = "null:real=yes,time=40ms";
    format!(
        "run --no-void --on {FAKE};{FAKE},label=b,effect=0.1 --baseline {FAKE} --blocks {blocks} --live \
         --warmup 0 --iterations 1 --out r -- work"
    )
}

/// The address that a spawned run printed.
#[derive(Clone)]
struct Address {
    port: u16,
    /// Without it nothing is shown.
    secret: String,
}

fn address(stage: &Stage) -> Address {
    wait_for("the address", || {
        let said = stage.spawned_said();
        let (_, rest) = said.split_once("live: http://127.0.0.1:")?;
        let (port, rest) = rest.split_once('/')?;
        let (secret, _) = rest.split_once("/ (")?;
        Some(Address { port: port.parse().ok()?, secret: secret.into() })
    })
}

fn ask(port: u16, request: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((head.into(), body.into()))
}

fn get(address: &Address, path: &str) -> std::io::Result<String> {
    let Address { port, secret } = address;
    let request = format!("GET /{secret}{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let (head, body) = ask(*port, &request)?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
    Ok(body)
}

fn state(address: &Address) -> Value {
    serde_json::from_str(&get(address, "/state").unwrap()).unwrap()
}

fn ended(run: &mut Child) -> std::process::ExitStatus {
    wait_for("the end of the run", || run.try_wait().unwrap())
}

/// Addresses of this machine on which somebody listens at a port, according to /proc
/// (proc_pid_net(5)).
fn listening(port: u16) -> Vec<String> {
    const LISTENS: &str = "0A";
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some((address, number)) = words[1].split_once(':')
                && words[3] == LISTENS
                && u16::from_str_radix(number, 16) == Ok(port)
            {
                found.push(address.to_string());
            }
        }
    }
    found
}

#[test]
fn the_report_is_served_while_the_run_goes_on() {
    let stage = Stage::with_fakes();
    let mut run = stage.spawn(&line(20));
    let live = address(&stage);
    let port = live.port;
    // A client that connects and sends nothing stays connected throughout.
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let first = get(&live, "/").unwrap();
    assert!(
        first.contains("data-version=\"1\"") && first.contains("<strong>GOING ON</strong>: 0 of 20 blocks"),
        "{first:.2000}"
    );
    assert!(first.contains("connect-src &#x27;self&#x27;") || first.contains("connect-src 'self'"));
    assert!(!first.contains("INCOMPLETE") && !first.contains("NOTHING MEASURED"), "it goes on");

    assert_eq!(listening(port), ["0100007F"], "nobody else reaches it");
    let (head, body) = ask(port, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 403 ") && body.len() < 100, "{head}\n{body}");
    let (head, _) =
        ask(port, "POST /state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nx=1").unwrap();
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let (head, _) = ask(port, "GET /plan.json HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    // Every user of the machine can connect, but only those who have seen the address see the run.
    for path in ["/", "/state", &format!("/{}/", "0".repeat(live.secret.len()))] {
        let (head, _) = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    let (head, _) = ask(port, "nonsense\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");

    // Because somebody asked, the next block produces a new page, of the blocks so far.
    let told = wait_for("the second page", || Some(state(&live)).filter(|state| state["version"] == 2));
    assert!(told["finished"] == false && told["blocks"] == 20, "{told}");
    let second = get(&live, "/").unwrap();
    assert!(second.contains("data-version=\"2\""), "{second:.2000}");
    let (_, rest) = second.split_once("<strong>GOING ON</strong>: ").unwrap();
    let done: u64 = rest.split_once(" of 20 blocks").unwrap().0.parse().unwrap();
    assert!(done >= 1 && done <= told["blocks_done"].as_u64().unwrap(), "{done}: {told}");
    assert!(second.contains("null:effect=0.1,label=b") && second.contains("data-ended=\"no\""));

    let last = wait_for("the end", || Some(state(&live)).filter(|state| state["finished"] == true));
    let page = get(&live, "/").unwrap();
    assert!(last["version"].as_u64().unwrap() >= 3, "{last}");
    assert!(page.contains("data-ended=\"yes\"") && page.contains("The run has ended"), "{page:.2000}");
    assert!(ended(&mut run).success(), "{}", stage.spawned_said());
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "the server is gone with the run");
    drop(silent);
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 20);
    let file = stage.read("r/report.html");
    assert!(!file.contains("connect-src") && !file.contains("data-version"), "the file asks nobody");
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}

#[test]
fn an_interrupted_run_ends_its_server_and_is_resumed_with_another() {
    let stage = Stage::with_fakes();
    let mut run = stage.spawn(&line(12));
    let first = address(&stage).port;
    wait_for("a block", || stage.spawned_said().contains("block 1/12").then_some(()));
    interrupt(&run);
    ended(&mut run);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, first)).is_err());
    let done = shown(&stage, "r")["blocks"]["done"].as_u64().unwrap();
    assert!((1..12).contains(&done), "{done}");

    let mut run = stage.spawn("resume r --live");
    let second = address(&stage);
    let page = get(&second, "/").unwrap();
    assert!(page.contains(&format!("<strong>GOING ON</strong>: {done} of 12 blocks")), "{page:.2000}");
    wait_for("the end", || Some(state(&second)).filter(|state| state["finished"] == true));
    get(&second, "/").unwrap();
    assert!(ended(&mut run).success());
    assert_eq!(shown(&stage, "r")["blocks"]["done"], 12);
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}

#[test]
fn a_port_that_is_taken_is_reported_first() {
    let stage = Stage::with_fakes();
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    let live = format!("--live={port}");
    let start = format!("start --on null --baseline null --out r {live}");
    for line in [line(2).replace("--live", &live), start] {
        let expected = [&port.to_string(), "in use", "`--live` without a number"];
        stage.run(&line).ends_saying(1, &expected);
        assert!(!stage.here().join("r").exists(), "nothing was begun");
    }
    for wrong in ["--live=70000", "--live=x"] {
        stage.refuses(&line(2).replace("--live", wrong), &[]);
    }
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}
