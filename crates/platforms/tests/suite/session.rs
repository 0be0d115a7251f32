//! The host's side of the protocol against misbehaving peers, and against the fake platform with
//! its faults.

use crate::common::Bench;
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weigh_model::ImageSpec;
use weigh_platforms::{Availability, Guest, GuestRequest, RunOptions, Session, SessionError, find};
use weigh_protocol::{
    Command, Decoder, EndOfCommand, Reply, Request, ResourceUse, Status, Stream, VERSION, encode,
};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

fn command() -> Command {
    crate::common::command(&["anything"])
}

/// The probe's end, played by a test.
struct Peer {
    stream: UnixStream,
    decoder: Decoder,
}

impl Peer {
    fn receive(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.decoder.next_message().unwrap() {
                return Some(request);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.decoder.push(&buffer[..n]),
                _ => return None,
            }
        }
    }

    fn send(&mut self, reply: &Reply) {
        let mut frame = Vec::new();
        encode(reply, &mut frame).unwrap();
        self.stream.write_all(&frame).unwrap();
    }

    fn hello(&mut self) {
        assert_eq!(self.receive(), Some(Request::Hello { version: VERSION }));
        self.send(&Reply::Hello { version: VERSION, pid: 7, started_ns: 5 });
    }

    /// Takes the request to run a command.
    fn started(&mut self) -> u32 {
        let Some(Request::Run { id, .. }) = self.receive() else { panic!("no command") };
        self.send(&Reply::Started { id, pid: 8 });
        id
    }

    fn ended(&mut self, id: u32) {
        let resources = ResourceUse::default();
        let end = EndOfCommand {
            status: Status::Exited(0),
            duration_ns: 1,
            resources,
            output_bytes: 0,
            error_bytes: 0,
        };
        self.send(&Reply::Ended { id, end });
    }
}

/// A session with a peer; dropping it waits until the peer has played its part.
struct Talk {
    session: Session,
    peer: Option<JoinHandle<()>>,
}

impl Deref for Talk {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Talk {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.peer.take().unwrap().join().unwrap();
        }
    }
}

fn talk(play: impl FnOnce(Peer) + Send + 'static) -> Talk {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let write = ours.try_clone().unwrap();
    let session = Session::new(OwnedFd::from(ours), OwnedFd::from(write));
    let peer = std::thread::spawn(move || play(Peer { stream: theirs, decoder: Decoder::new() }));
    Talk { session, peer: Some(peer) }
}

/// The same after both have said hello.
fn talk_after_hello(play: impl FnOnce(Peer) + Send + 'static) -> Talk {
    let mut session = talk(|mut peer| {
        peer.hello();
        play(peer);
    });
    session.hello(LONG).unwrap();
    session
}

fn lost(error: SessionError) -> String {
    match error {
        SessionError::Lost { reason } => reason,
        other => panic!("not lost: {other}"),
    }
}

#[test]
fn silence_is_a_lost_guest() {
    let mut session = talk(|mut peer| while peer.receive().is_some() {});
    let started = Instant::now();
    assert!(lost(session.hello(SHORT).unwrap_err()).contains("no hello within 0.1 s"));
    assert!(started.elapsed() >= SHORT && started.elapsed() < LONG);
    assert!(session.is_lost());
    // From then on the same error comes at once; the end of the channel has told the other side.
    assert!(lost(session.facts(&[], &[]).unwrap_err()).contains("no hello"));
}

/// The probe reports when it began; the host records when the report arrived.
#[test]
fn an_arrival_is_dated_on_both_sides() {
    let mut session = talk(|mut peer| peer.hello());
    assert_eq!(session.arrival(), None);
    let before_ns = weigh_host::clock::monotonic_ns();
    session.hello(LONG).unwrap();
    let arrival = session.arrival().unwrap();
    assert_eq!((arrival.pid, arrival.started_ns), (7, 5));
    assert!((before_ns..=weigh_host::clock::monotonic_ns()).contains(&arrival.hello_ns));
}

/// A service reports while it runs that it is ready, in any number of pieces.
#[test]
fn a_running_command_is_waited_for_by_its_words() {
    let mut session = talk_after_hello(|mut peer| {
        let id = peer.started();
        for piece in ["starting\nlist", "ening\n"] {
            peer.send(&Reply::Output { id, stream: Stream::Output, bytes: piece.into() });
        }
        peer.ended(id);
        let id = peer.started();
        peer.send(&Reply::Output { id, stream: Stream::Error, bytes: b"address in use".to_vec() });
        peer.ended(id);
        let id = peer.started();
        assert!(matches!(peer.receive(), Some(Request::Signal { signal: 9, .. })), "its time is up");
        peer.ended(id);
    });
    let before_ns = weigh_host::clock::monotonic_ns();
    let id = session.start(&command()).unwrap();
    let at_ns = session.await_output(id, b"listening\n", LONG).unwrap();
    assert!(at_ns > before_ns);
    assert_eq!(session.finish(id, LONG).unwrap().output, b"starting\nlistening\n", "nothing is taken away");

    let id = session.start(&command()).unwrap();
    let error = session.await_output(id, b"listening\n", LONG).unwrap_err();
    assert!(error.to_string().contains("address in use"), "{error}");
    assert!(session.await_output(id, b"x", LONG).is_err(), "it has ended");

    let id = session.start(&command()).unwrap();
    let error = session.await_output(id, b"listening\n", SHORT).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { .. }), "{error}");
    assert!(!session.is_lost());
}

/// A probe on a terminal says hello first; before that the host sends nothing that a terminal could
/// echo.
#[test]
fn a_device_announces_itself() {
    let mut session = talk(|mut peer| {
        peer.stream.write_all(b"Linux version 6\r\n").unwrap();
        std::thread::sleep(SHORT);
        peer.stream.set_nonblocking(true).unwrap();
        assert!(peer.stream.read(&mut [0; 16]).is_err(), "the host spoke first");
        peer.stream.set_nonblocking(false).unwrap();
        peer.send(&Reply::Hello { version: VERSION, pid: 1, started_ns: 5 });
        let id = peer.started();
        peer.ended(id);
    });
    assert_eq!(session.announced(LONG).unwrap(), 1);
    assert_eq!(session.take_noise(), b"Linux version 6\r\n");
    assert_eq!(session.run(&command(), RunOptions::within(LONG)).unwrap().end.status, Status::Exited(0));
}

/// Of a request of any length, only as much is in flight as a terminal holds.
#[test]
fn a_terminal_is_not_flooded() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let write = ours.try_clone().unwrap();
    let mut session = Session::over_terminal(OwnedFd::from(ours), OwnedFd::from(write));
    let peer = std::thread::spawn(move || {
        let mut peer = Peer { stream: theirs, decoder: Decoder::new() };
        let mut portions = Vec::new();
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let mut buffer = [0; 64 << 10];
            let n = peer.stream.read(&mut buffer).unwrap();
            portions.push(n);
            peer.decoder.push(&buffer[..n]);
            if let Some(request) = peer.decoder.next_message::<Request>().unwrap() {
                let Request::Put { id, bytes, .. } = request else { panic!("{request:?}") };
                assert_eq!(bytes, vec![7; 20_000]);
                peer.send(&Reply::Done { id });
                return portions;
            }
            peer.send(&Reply::Taken { bytes: n as u32 });
        }
    });
    session.put("/x", 0o644, &[7; 20_000]).unwrap();
    let portions = peer.join().unwrap();
    assert!(portions.iter().all(|portion| *portion < 4096), "{portions:?}");
    assert!(portions.len() > 5, "{portions:?}");
}

#[test]
fn another_protocol_version_is_reported() {
    let mut session = talk(|mut peer| {
        peer.receive();
        peer.send(&Reply::Hello { version: VERSION + 1, pid: 1, started_ns: 5 });
    });
    let error = session.hello(LONG).unwrap_err();
    assert!(
        matches!(error, SessionError::Version { host: VERSION, probe } if probe == VERSION + 1),
        "{error}"
    );
}

#[test]
fn the_last_words_of_a_console_are_kept() {
    let mut session = talk(|mut peer| {
        peer.stream.write_all(b"[ 0.0] booting\r\n").unwrap();
        peer.hello();
        peer.stream.write_all(b"[ 9.9] Kernel panic - not syncing\r\n").unwrap();
        peer.receive();
    });
    assert_eq!(session.hello(LONG).unwrap(), 7);
    assert!(session.take_noise().starts_with(b"[ 0.0] booting"));
    let reason = lost(session.clock().unwrap_err());
    assert!(reason.contains("died") && reason.contains("Kernel panic"), "{reason}");
}

#[test]
fn a_frame_that_is_no_message_ends_the_talk() {
    let mut session = talk_after_hello(|mut peer| {
        peer.receive();
        let mut frame = Vec::new();
        encode(&u64::MAX, &mut frame).unwrap();
        peer.stream.write_all(&frame).unwrap();
    });
    assert!(matches!(session.clock().unwrap_err(), SessionError::Protocol(_)));
    lost(session.clock().unwrap_err());
}

/// Input that the guest does not read stays on the host; the end of the command is still seen.
#[test]
fn no_more_than_the_window_is_under_way() {
    let mut session = talk_after_hello(|mut peer| {
        let id = peer.started();
        let mut bytes = 0;
        let until = Instant::now() + Duration::from_millis(300);
        peer.stream.set_read_timeout(Some(SHORT)).unwrap();
        while Instant::now() < until {
            match peer.receive() {
                Some(Request::Input { bytes: piece, .. }) => bytes += piece.len(),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        assert_eq!(bytes, weigh_protocol::INPUT_WINDOW);
        peer.ended(id);
    });
    let input = vec![1; 10 << 20];
    let completed = session.run(&command(), RunOptions { deadline: LONG, input: Some(&input) }).unwrap();
    assert_eq!(completed.end.status, Status::Exited(0));
}

/// Both sides have much to write, and the peer does not read before it has written: the host must.
#[test]
fn output_is_read_while_input_is_written() {
    let mut session = talk_after_hello(|mut peer| {
        let id = peer.started();
        for _ in 0..64 {
            peer.send(&Reply::Output { id, stream: Stream::Output, bytes: vec![2; 64 << 10] });
        }
        let mut left = 1 << 20;
        while left > 0 {
            match peer.receive() {
                Some(Request::Input { bytes, .. }) => {
                    left -= bytes.len();
                    peer.send(&Reply::InputTaken { id, bytes: bytes.len() as u32 });
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(peer.receive(), Some(Request::CloseInput { id }));
        peer.ended(id);
    });
    let input = vec![1; 1 << 20];
    let completed = session.run(&command(), RunOptions { deadline: LONG, input: Some(&input) }).unwrap();
    assert_eq!(completed.output.len(), 4 << 20);
}

#[test]
fn answers_to_others_are_passed_over() {
    let mut session = talk_after_hello(|mut peer| {
        let id = peer.started();
        peer.ended(id + 100);
        peer.send(&Reply::Output { id: id + 100, stream: Stream::Error, bytes: b"not mine".to_vec() });
        peer.ended(id);
    });
    let completed = session.run(&command(), RunOptions::within(LONG)).unwrap();
    assert_eq!(completed.error, b"");
    assert!(completed.host_started_ns < completed.host_ended_ns);
    let error = session.finish(99, LONG).unwrap_err();
    assert!(matches!(error, SessionError::Refused { errno: libc::ESRCH, .. }), "{error}");
}

/// Writes until the other side closes the channel.
fn flood(peer: &mut Peer, bytes: &[u8]) {
    while peer.stream.write_all(bytes).is_ok() {}
}

fn frame(reply: &Reply) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(reply, &mut frame).unwrap();
    frame
}

/// Root in a guest can write anything to the channel: the host takes only as much as the command's
/// output limit.
#[test]
fn a_flood_of_output_loses_the_guest() {
    let mut session = talk_after_hello(|mut peer| {
        let id = peer.started();
        let piece = frame(&Reply::Output { id, stream: Stream::Error, bytes: vec![0; 64 << 10] });
        flood(&mut peer, &piece);
    });
    let command = Command { output_limit_bytes: 1 << 20, ..command() };
    let started = Instant::now();
    let reason = lost(session.run(&command, RunOptions::within(LONG)).unwrap_err());
    assert!(reason.contains("more than it was asked for"), "{reason}");
    assert!(started.elapsed() < LONG);
}

/// Endless data gives a guest no more time, whether it is output that it may send, or noise.
#[test]
fn a_deadline_holds_while_a_guest_goes_on_sending() {
    for noise in [false, true] {
        let mut session = talk_after_hello(move |mut peer| {
            let id = peer.started();
            let piece = frame(&Reply::Output { id, stream: Stream::Output, bytes: vec![0; 16] });
            let piece = if noise { b"[ 0.0] said again and again\r\n".to_vec() } else { piece };
            flood(&mut peer, &piece.repeat(64));
        });
        let started = Instant::now();
        let reason = lost(session.run(&command(), RunOptions::within(SHORT)).unwrap_err());
        assert!(reason.contains("5 s more"), "{reason}");
        assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
        session.take_noise();
    }
}

#[test]
fn a_file_is_no_longer_than_was_asked_for() {
    let mut session = talk_after_hello(|mut peer| {
        let Some(Request::Get { id, limit_bytes: 100, .. }) = peer.receive() else { panic!("no request") };
        peer.send(&Reply::File { id, bytes: vec![1; 60] });
        peer.send(&Reply::File { id, bytes: vec![1; 60] });
        peer.receive();
    });
    let reason = lost(session.get("/x", 100).unwrap_err());
    assert!(reason.contains("more than it was asked for"), "{reason}");
}

/// Neither answers to no request nor answers without content can go on for ever.
#[test]
fn a_flood_of_unrequested_answers_loses_the_guest() {
    for empty in [false, true] {
        let mut session = talk_after_hello(move |mut peer| {
            let Some(Request::Get { id, .. }) = peer.receive() else { panic!("no request") };
            let stray =
                if empty { Reply::File { id, bytes: Vec::new() } } else { Reply::Done { id: id + 1 } };
            flood(&mut peer, &frame(&stray).repeat(64));
        });
        let reason = lost(session.get("/x", 100).unwrap_err());
        assert!(reason.contains("nobody asked for"), "{reason}");
    }
}

/// Headers that claim the headers after them as their payload: each would be read repeatedly.
#[test]
fn false_frames_lose_the_guest_before_its_deadline() {
    let mut session = talk_after_hello(|mut peer| {
        peer.started();
        let mut header = frame(&Reply::Taken { bytes: 1 })[..4].to_vec();
        header.extend_from_slice(&(1u32 << 20).to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        flood(&mut peer, &header.repeat(1000));
    });
    let started = Instant::now();
    let error = session.run(&command(), RunOptions::within(LONG)).unwrap_err();
    assert!(error.to_string().contains("wrong check sums"), "{error}");
    assert!(session.is_lost() && started.elapsed() < LONG);
}

#[test]
fn the_reason_of_a_refusal_is_cut() {
    let mut session = talk_after_hello(|mut peer| {
        let Some(Request::Get { id, .. }) = peer.receive() else { panic!("no request") };
        peer.send(&Reply::Refused { id, reason: "\u{e9}".repeat(100_000), errno: 1 });
    });
    let error = session.get("/x", 100).unwrap_err();
    assert!(matches!(&error, SessionError::Refused { reason, .. } if reason.len() <= 2048), "{error:.100}");
}

/// A run, and a request for a fake guest.
fn fake(environment: &str) -> (Bench, GuestRequest) {
    let bench = Bench::new("fakes");
    let request = bench.request_with(environment, &ImageSpec::Probe, None);
    (bench, GuestRequest { cpus: vec![0], ..request })
}

fn fake_guest(environment: &str) -> Box<dyn Guest> {
    let (bench, request) = fake(environment);
    bench.launch(&request).unwrap()
}

#[test]
fn a_scripted_command_takes_its_time_and_returns_at_once() {
    let mut guest = fake_guest("null:time=600,effect=0.5");
    let started = Instant::now();
    let completed = guest.session().run(&command(), RunOptions::within(LONG)).unwrap();
    assert!(started.elapsed() < LONG);
    assert_eq!(completed.end.duration_ns, 900_000_000_000);
    let line: serde_json::Value = serde_json::from_slice(&completed.output).unwrap();
    assert_eq!(line["kernel"], "null");
    assert_eq!(line["metrics"]["time"]["value"], 900.0);
    assert_eq!(line["metrics"]["time"]["unit"], "s");
    assert_eq!(line["check"]["passed"], true);
    let mut real = fake_guest("null:time=150ms,real=yes");
    let started = Instant::now();
    real.session().run(&command(), RunOptions::within(LONG)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(150));
}

#[test]
fn scripted_failures_of_a_command() {
    let run = |environment: &str| fake_guest(environment).session().run(&command(), RunOptions::within(LONG));
    assert_eq!(run("null:fault=exit").unwrap().end.status, Status::Exited(1));
    let failed = run("null:fault=check").unwrap();
    assert_eq!(failed.end.status, Status::Exited(3));
    assert!(String::from_utf8(failed.output).unwrap().contains("\"passed\":false"));
    assert!(serde_json::from_slice::<serde_json::Value>(&run("null:fault=garbage").unwrap().output).is_err());
    let error = run("null:fault=missing").unwrap_err();
    assert!(matches!(error, SessionError::Refused { errno: libc::ENOENT, .. }), "{error}");
    assert_eq!(run("null:fault=exit,at=1").unwrap().end.status, Status::Exited(0));
}

#[test]
fn a_command_that_hangs_is_killed_and_the_guest_goes_on() {
    let mut guest = fake_guest("null:fault=hang");
    let error = guest.session().run(&command(), RunOptions::within(SHORT)).unwrap_err();
    let SessionError::Deadline { after: SHORT, killed } = error else { panic!("{error}") };
    assert_eq!(killed.end.status, Status::Signalled(9));
    assert_eq!(
        guest.session().run(&command(), RunOptions::within(LONG)).unwrap().end.status,
        Status::Exited(0)
    );
}

#[test]
fn a_guest_that_does_not_even_kill_is_lost_after_the_grace() {
    let mut guest = fake_guest("null:fault=mute");
    let started = Instant::now();
    let reason = lost(guest.session().run(&command(), RunOptions::within(SHORT)).unwrap_err());
    assert!(reason.contains("5 s more"), "{reason}");
    assert!(started.elapsed() >= Duration::from_secs(5));
    guest.stop().unwrap();
}

#[test]
fn a_guest_that_dies_is_lost_at_once() {
    let mut guest = fake_guest("null:fault=die,at=1");
    guest.session().run(&command(), RunOptions::within(LONG)).unwrap();
    let started = Instant::now();
    let reason = lost(guest.session().run(&command(), RunOptions::within(LONG)).unwrap_err());
    assert!(reason.contains("died"), "{reason}");
    assert!(started.elapsed() < LONG);
    guest.stop().unwrap();
    guest.stop().unwrap();
}

#[test]
fn a_platform_whose_launch_fails_is_still_available() {
    let (bench, request) = fake("null:launch=fail");
    let Err(error) = bench.launch(&request) else { panic!("it started") };
    assert!(error.to_string().contains("launch=fail"), "{error}");
    let null = find("null").unwrap();
    assert!(matches!(null.availability(&bench.host), Availability::Ready { .. }));
}

#[test]
fn platforms_checked_side_by_side_are_reported_in_their_order() {
    let (bench, _) = fake("null");
    let platforms: Vec<_> = ["null", "native", "containerd", "namespaces", "null"].map(find).into();
    let platforms: Vec<_> = platforms.into_iter().map(Option::unwrap).collect();
    let found = weigh_platforms::availabilities(&bench.host, &platforms);
    let one_by_one: Vec<_> = platforms.iter().map(|platform| platform.availability(&bench.host)).collect();
    assert_eq!(found, one_by_one);
    assert!(matches!(&found[0], Availability::Ready { .. }) && found[0] != found[1], "{found:?}");
    assert_eq!(weigh_platforms::availabilities(&bench.host, &[]), []);
}

#[test]
fn a_fake_is_not_frozen_while_a_command_runs() {
    let mut guest = fake_guest("null:fault=hang");
    let id = guest.session().start(&command()).unwrap();
    assert!(guest.freeze().is_err());
    guest.session().signal(id, 9).unwrap();
    guest.session().finish(id, LONG).unwrap();
    guest.freeze().unwrap();
    assert!(guest.session().run(&command(), RunOptions::within(LONG)).is_err());
    guest.thaw().unwrap();
    guest.session().run(&command(), RunOptions::within(LONG)).unwrap();
}

#[test]
fn shutdown_is_agreed_and_then_the_channel_is_closed() {
    let mut guest = fake_guest("null");
    guest.session().shutdown(LONG).unwrap();
    assert!(guest.session().is_lost());
    guest.stop().unwrap();
    let mut session = talk_after_hello(|mut peer| while peer.receive().is_some() {});
    assert!(lost(session.shutdown(SHORT).unwrap_err()).contains("does not end"));
}
