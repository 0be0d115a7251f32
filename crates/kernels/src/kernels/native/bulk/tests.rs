use super::*;

fn moved(line: &str) -> Result<Outcome, KernelError> {
    let seconds = if line.contains("--seconds") { "" } else { "--seconds 0.1" };
    let line = format!("{seconds} --placement free {line}");
    run(&KERNEL.options_of(&line))
}

#[test]
fn both_protocols_move_data_both_ways() {
    for protocol in ["tcp", "udp"] {
        for direction in ["to-server", "from-server"] {
            let outcome =
                moved(&format!("--protocol {protocol} --direction {direction} --streams 2")).unwrap();
            KERNEL.assert_complete(&outcome);
            assert_eq!(outcome.operations, outcome.facts["bytes_received"].as_u64().unwrap());
            assert_eq!(outcome.value("loss").is_some(), protocol == "udp");
        }
    }
}

#[test]
fn messages_have_the_length_that_was_asked_for() {
    for (line, bytes) in
        [("", 128 << 10), ("--message-bytes 8", 8), ("--protocol udp --message-bytes 9000", 9000)]
    {
        let outcome = moved(line).unwrap();
        assert!(outcome.check.passed, "{line}: {:?}", outcome.check);
        assert_eq!(outcome.operations % bytes, 0, "{line}");
    }
}

#[test]
fn a_server_of_its_own_serves_clients_and_refuses_other_protocols() {
    let (listener, socket) = server::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let (served, ended) = (&Served::default(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server::until(&listener, &socket, None, served, ended));
        {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(&[b'?'; wire::ORDER_BYTES]).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
        for line in ["--protocol tcp", "--protocol udp --direction from-server"] {
            let outcome = moved(&format!("{line} --connect {address}"));
            assert!(outcome.as_ref().is_ok_and(|outcome| outcome.check.passed), "{line}: {outcome:?}");
        }
        ended.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
    });
    assert_eq!((served.streams.load(Ordering::Relaxed), served.failed.load(Ordering::Relaxed)), (2, 1));
}

#[test]
fn transfers_that_are_impossible_are_refused() {
    for line in [
        "--seconds 0",
        "--streams 0",
        "--streams 1000",
        "--message-bytes 7",
        "--protocol udp --message-bytes 15",
        "--protocol udp --message-bytes 65508",
        "--serve 127.0.0.1:1 --connect 127.0.0.1:1",
        "--connect 127.0.0.1:0",
    ] {
        assert!(matches!(moved(line), Err(KernelError::Usage(_))), "{line}");
    }
}
