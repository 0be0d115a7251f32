//! Input and output.

use crate::driver::{Driver, command, shell};
use std::time::Duration;
use weigh_protocol::{Command, INPUT_WINDOW, Reply, Request, Status, Stream};

#[test]
fn both_streams_are_distinguished() {
    let mut probe = Driver::start();
    let ended = probe.run(shell("echo out; echo err >&2"));
    assert_eq!((ended.output.as_slice(), ended.error.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!((ended.end.output_bytes, ended.end.error_bytes), (4, 4));
}

#[test]
fn output_beyond_the_limit_is_counted_and_discarded() {
    let mut probe = Driver::start();
    let mut flood = shell("head -c 104857600 /dev/zero; echo end >&2");
    flood.output_limit_bytes = 300_000;
    let ended = probe.run(flood);
    assert_eq!(ended.end.status, Status::Exited(0));
    assert_eq!(ended.end.output_bytes, 100 << 20);
    assert_eq!(ended.output.len(), 300_000);
    assert_eq!(ended.error, b"end\n");
    let mut silent = shell("echo hello");
    silent.output_limit_bytes = 0;
    let ended = probe.run(silent);
    assert_eq!((ended.output.len(), ended.end.output_bytes), (0, 6));
}

/// If the host does not read, the command waits, the probe does not grow, and nothing is lost.
#[test]
fn a_slow_host_slows_the_command() {
    let mut probe = Driver::start();
    let mut much = shell("head -c 8388608 /dev/zero");
    much.output_limit_bytes = 16 << 20;
    let (id, _) = probe.begin(much);
    std::thread::sleep(Duration::from_millis(300));
    let kibibytes = probe.number("status", "RssAnon:");
    assert!(kibibytes < 3 << 10, "{kibibytes} KiB");
    let ended = probe.finish(id);
    assert_eq!((ended.output.len() as u64, ended.end.output_bytes), (8 << 20, 8 << 20));
}

fn with_input(mut command: Command) -> Command {
    command.input = weigh_protocol::Input::Pipe;
    command.output_limit_bytes = 64 << 20;
    command
}

#[test]
fn input_comes_out_of_cat() {
    let mut probe = Driver::start();
    let input: Vec<u8> = (0..5_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (id, _) = probe.begin(with_input(command(&["cat"])));
    let (mut pieces, mut under_way, mut closed) = (input.chunks(64 << 10), 0, false);
    let mut output = Vec::new();
    loop {
        while !closed && under_way + (64 << 10) <= INPUT_WINDOW {
            match pieces.next() {
                Some(piece) => {
                    under_way += piece.len();
                    probe.send(&Request::Input { id, bytes: piece.to_vec() });
                }
                None => {
                    closed = true;
                    probe.send(&Request::CloseInput { id });
                }
            }
        }
        match probe.next() {
            Reply::InputTaken { bytes, .. } => under_way -= bytes as usize,
            Reply::Output { stream: Stream::Output, bytes, .. } => output.extend(bytes),
            Reply::Ended { end, .. } => {
                assert_eq!(end.status, Status::Exited(0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(input == output, "the same bytes come back");
}

/// Input that nobody reads is acknowledged, whether the command closes its input, ends, or just
/// does not read.
#[test]
fn unread_input_is_acknowledged() {
    let mut probe = Driver::start();
    let piece = |id| Request::Input { id, bytes: vec![7; 64 << 10] };
    let (id, _) = probe.begin(with_input(shell("exec 0<&-; sleep 0.5")));
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..4 {
        probe.send(&piece(id));
    }
    let mut taken = 0;
    while taken < 256 << 10 {
        match probe.next() {
            Reply::InputTaken { bytes, .. } => taken += bytes,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(probe.finish(id).end.status, Status::Exited(0));
    // A signal gets past a full pipe.
    let (id, _) = probe.begin(with_input(command(&["sleep", "60"])));
    for _ in 0..4 {
        probe.send(&piece(id));
    }
    probe.send(&Request::Signal { id, signal: 9 });
    assert_eq!(probe.finish(id).end.status, Status::Signalled(9));
}

#[test]
fn an_input_that_is_never_fed_stays_open() {
    let mut probe = Driver::start();
    let (id, _) = probe.begin(with_input(command(&["cat"])));
    assert_eq!(probe.wait(Duration::from_millis(200)), None);
    probe.send(&Request::CloseInput { id });
    assert_eq!(probe.finish(id).end.status, Status::Exited(0));
}
