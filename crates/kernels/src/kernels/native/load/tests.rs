use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn run_with(line: &str) -> Result<Outcome, KernelError> {
    let warmup = if line.contains("--warmup-seconds") { "" } else { "--warmup-seconds 0" };
    let line = format!("{warmup} --seed 7 {line}");
    run(&KERNEL.options_of(&line))
}

fn loaded(line: &str) -> Outcome {
    run_with(line).unwrap()
}

/// Serves every connection on its own thread until the test ends; returns its address.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = std::sync::Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// An echo server that calls `before` with the number of each request before it answers.
fn echo_server(before: impl Fn(u64) + Send + Sync + 'static) -> SocketAddr {
    server(move |mut stream| {
        stream.set_nodelay(true).unwrap();
        let mut greeting = [0; 16];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&greeting).unwrap();
        let (mut request, mut response) = ([0; 100], [0; 200]);
        while stream.read_exact(&mut request).is_ok() {
            before(u64::from_le_bytes(*request.first_chunk().unwrap()));
            response[..8].copy_from_slice(&request[..8]);
            if stream.write_all(&response).is_err() {
                return;
            }
        }
    })
}

#[test]
fn every_protocol_is_loaded_in_a_closed_loop_and_called_that() {
    for protocol in ["echo", "redis", "http"] {
        let line = format!("--protocol {protocol} --clients 7 --pipeline 3 --threads 2 --requests 5000");
        let outcome = loaded(&line);
        KERNEL.assert_complete(&outcome);
        assert_eq!(outcome.facts["load"], "closed loop, 7 clients, pipeline 3");
        assert_eq!((outcome.operations, &outcome.facts["requests"]), (5000, &5000.into()), "{protocol}");
        assert!(!outcome.facts.contains_key("late_to_leave"));
        let loader = outcome.loader.unwrap();
        assert!((0.0..=1.0).contains(&loader["busiest_busy"].as_f64().unwrap()), "{loader:?}");
        assert_eq!(loader["threads_busy"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn an_open_loop_sends_by_the_clock_and_records_its_facts() {
    for arrivals in ["constant", "poisson"] {
        let line = format!("--rate 2000 --arrivals {arrivals} --requests 400 --clients 8 --threads 2");
        let outcome = loaded(&line);
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert!(
            outcome.facts["load"].as_str().unwrap().starts_with("open loop at 2000/s"),
            "{:?}",
            outcome.facts
        );
        assert_eq!((outcome.operations, outcome.histograms[0].1.len()), (400, 400));
        // 400 requests at 2000/s take .2 s, however fast the server is.
        assert!(outcome.value("rate").unwrap() < 4000.0, "{:?}", outcome.metrics);
        for fact in ["late_to_leave", "without_free_connection", "delay_to_leave_p99_s"] {
            assert!(outcome.facts.contains_key(fact), "{fact}");
        }
    }
}

#[test]
fn time_bounds_the_measurement_and_the_warm_up_stays_out_of_it() {
    let outcome = loaded("--warmup-seconds 0.1 --seconds 0.2 --clients 2");
    assert!(outcome.check.passed, "{:?}", outcome.check);
    let measured = outcome.facts["requests"].as_u64().unwrap();
    assert!(measured > 0 && outcome.operations > measured, "{measured} of {}", outcome.operations);
}

/// Method specification, "Tests of the statistics": a server that stalls moves the p99 of an open
/// loop. It does not move that of a closed loop, which sends nothing while the server stalls:
/// coordinated omission.
#[test]
fn a_stalling_server_moves_the_p99_of_the_open_loop_only() {
    const STALL: Duration = Duration::from_millis(400);
    let p99 = |load: &str| {
        let address = echo_server(|number| {
            if number == 100 {
                std::thread::sleep(STALL);
            }
        });
        let outcome = loaded(&format!("--connect {address} --clients 1 --requests 1000 {load}"));
        assert!(outcome.check.passed, "{:?}", outcome.check);
        let late = outcome.facts.get("late_to_leave").and_then(|late| late.as_u64());
        (outcome.value("latency_p99").unwrap(), late)
    };
    let (open, late) = p99("--rate 1000 --arrivals constant");
    let (closed, _) = p99("");
    let half = STALL.as_secs_f64() / 2.0;
    assert!(open > half, "{open} s: those that were to leave while the server stalled waited for it");
    assert!(closed < half, "{closed} s: one of a thousand requests stalled");
    assert!(late.unwrap() >= 200, "{late:?} requests were late to leave");
}

#[test]
fn a_server_that_is_too_slow_for_the_rate_is_reported() {
    let address = echo_server(|_| std::thread::sleep(Duration::from_millis(5)));
    let outcome = loaded(&format!("--connect {address} --clients 2 --rate 5000 --seconds 0.2"));
    assert!(outcome.check.passed, "{:?}", outcome.check);
    let told = |what: &str| outcome.warnings.iter().any(|warning| warning.contains(what));
    assert!(told("cannot keep up") && told("want of a free connection"), "{:?}", outcome.warnings);
    assert!(outcome.facts["without_free_connection"].as_u64().unwrap() > 100);
}

#[test]
fn a_server_that_does_not_answer_fails_the_check() {
    let address = server(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let outcome =
        loaded(&format!("--protocol redis --connect {address} --clients 3 --pipeline 2 --timeout-ms 200"));
    assert!(!outcome.check.passed);
    let statement = &outcome.check.statement;
    assert!(statement.contains("6 requests got no reply within 0.2 s"), "{statement}");
    assert!(statement.contains("no reply came at all"), "{statement}");
    assert_eq!(outcome.facts["errors"], 6);
}

#[test]
fn wrong_replies_fail_the_check_and_the_first_is_shown() {
    let address = server(|mut stream| {
        let mut buffer = [0; 4096];
        // One request at a time: both GET and SET get an error.
        while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(b"-OOM command not allowed\r\n");
        }
    });
    let outcome = loaded(&format!("--protocol redis --connect {address} --clients 1 --requests 20"));
    assert!(!outcome.check.passed);
    let statement = &outcome.check.statement;
    assert!(statement.contains("20 of 20 replies were wrong, the first: error OOM"), "{statement}");
    assert!(outcome.value("latency_p50").is_none(), "errors are no latencies");
}

#[test]
fn another_protocol_or_a_closed_door_is_an_error() {
    let address = server(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let refused = |line: &str| run_with(line).err().unwrap().to_string();
    let message = refused(&format!("--protocol http --connect {address} --clients 1"));
    assert!(message.contains("is that the protocol it speaks?"), "{message}");
    let address = server(drop);
    let message = refused(&format!("--protocol redis --connect {address} --clients 1"));
    assert!(message.contains("closed a connection") || message.contains("cannot"), "{message}");
    let message = refused("--connect 127.0.0.1:1 --timeout-ms 100");
    assert!(message.contains("cannot connect to 127.0.0.1:1"), "{message}");
}

/// The server does what nginx does after `keepalive_requests`.
#[test]
fn a_connection_that_the_server_closes_between_requests_is_made_again() {
    let address = server(|mut stream| {
        for number in 0..10 {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                head.extend_from_slice(&byte);
            }
            let last = if number == 9 { "Connection: close\r\n" } else { "" };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{last}Content-Length: 2\r\n\r\nok");
        }
        // Servers read what was sent in vain, so that it does not reset the connection before the
        // last answer arrives.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    for pipeline in [1, 4] {
        let line =
            format!("--protocol http --connect {address} --clients 2 --pipeline {pipeline} --requests 100");
        let outcome = loaded(&line);
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert!(outcome.facts["reconnects"].as_u64().unwrap() >= 8, "{:?}", outcome.facts);
        assert_eq!(outcome.operations, 100);
    }
}

#[test]
fn a_fill_writes_all_keys_and_nothing_else() {
    let outcome = loaded("--protocol redis --fill yes --keys 3000 --threads 2 --pipeline 16 --rate 10");
    assert!(outcome.check.passed, "{:?}", outcome.check);
    assert_eq!((outcome.operations, &outcome.facts["keys"]), (3000, &3000.into()));
}

#[test]
fn options_that_cannot_be_are_refused() {
    for line in [
        "--clients 0",
        "--pipeline 0",
        "--seconds 0",
        "--seconds 1e9",
        "--protocol redis --value-bytes 9",
        "--protocol redis --keys 2e9",
        "--protocol redis --mix 101",
        "--protocol http --path index.html",
        "--request-bytes 0",
        "--connect nowhere",
    ] {
        assert!(matches!(run_with(line), Err(KernelError::Usage(_))), "{line}");
    }
}
