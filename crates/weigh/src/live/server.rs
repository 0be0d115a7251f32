//! Threads that reply to requests from memory. The run never waits for one.

use super::http::{self, Answer, LONGEST_HEAD, Refusal, answer};
use super::{LOOKING, Standing, lower_priority};
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The largest number of connections at a time. A browser has two or three.
const MOST_CONNECTIONS: usize = 8;
/// Time limit for the head of a request.
const TO_ASK: Duration = Duration::from_secs(5);
/// Time limit for a reply, which lets a page of a few megabytes through a slow tunnel.
const TO_TAKE: Duration = Duration::from_secs(60);
/// How long the browser has after a reply to close the connection.
const TO_LEAVE: Duration = Duration::from_millis(500);
/// Size of the parts in which a page is sent, bytes; the time limit is checked between them.
const PART: usize = 64 << 10;

/// State that the run and the threads of the server share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    content: Mutex<Content>,
    connections: AtomicUsize,
    /// Whether the server has stopped accepting connections.
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Content {
    page: Arc<str>,
    version: u64,
    standing: Standing,
    finished: bool,
    /// Whether a browser has asked since the page was rendered.
    wanted: bool,
    asked_at: Option<Instant>,
    /// The version of the newest page that a browser has received completely.
    taken_version: u64,
}

impl Shared {
    fn content(&self) -> MutexGuard<'_, Content> {
        // Every change is one assignment, so a thread that panics leaves a consistent state.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, standing: Standing) {
        self.content().standing = standing;
    }

    pub(super) fn version(&self) -> u64 {
        self.content().version
    }

    pub(super) fn publish(&self, version: u64, page: String) {
        let mut content = self.content();
        content.page = page.into();
        content.version = version;
        content.wanted = false;
    }

    pub(super) fn finish(&self) {
        self.content().finished = true;
    }

    /// Whether a browser has asked since the last page was rendered.
    pub(super) fn is_wanted(&self) -> bool {
        self.content().wanted
    }

    /// Whether a browser is looking that does not have the newest page.
    pub(super) fn is_awaited(&self) -> bool {
        let content = self.content();
        let looks = content.asked_at.is_some_and(|at| at.elapsed() < LOOKING);
        looks && content.taken_version < content.version
    }

    /// Stops accepting connections. The accepting thread waits for one, which this method makes.
    pub(super) fn close(&self, address: SocketAddr) {
        self.closed.store(true, Ordering::Relaxed);
        let _gone_already = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    }

    fn asked(&self) -> MutexGuard<'_, Content> {
        let mut content = self.content();
        content.wanted = true;
        content.asked_at = Some(Instant::now());
        content
    }

    fn state(&self) -> String {
        let content = self.asked();
        let standing = &content.standing;
        json!({
            "version": content.version,
            "finished": content.finished,
            "blocks_done": standing.blocks_done,
            "blocks": standing.blocks,
            "doing": if content.finished { "" } else { standing.doing.as_str() },
            "remaining_s": standing.remaining_s,
        })
        .to_string()
    }
}

/// Starts the server.
///
/// # Errors
/// No thread can be started.
pub(super) fn start(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let accept = move || {
        // Its threads inherit the priority, and also the CPUs, which are not those of guests if
        // there are others.
        lower_priority();
        loop {
            let taken = listener.accept();
            if shared.closed.load(Ordering::Relaxed) {
                return;
            }
            match taken {
                Ok((stream, _)) => serve(stream, &shared),
                // Out of descriptors, or the connection was closed before it was accepted. A later
                // one may work.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    std::thread::Builder::new().name("live".into()).spawn(accept).map(drop)
}

/// Replies in a thread of its own, unless there are too many already.
fn serve(mut stream: TcpStream, shared: &Arc<Shared>) {
    if shared.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        let short = Duration::from_millis(100);
        let _told_if_it_listens = refuse(&mut stream, Refusal::TooMany, Instant::now() + short);
        return;
    }
    let mine = Arc::clone(shared);
    let talk = move || {
        // A browser that closes the connection early does not want the rest.
        let _gone = converse(&mut stream, &mine);
        mine.connections.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("live answer".into()).spawn(talk).is_err() {
        shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let asked = read_request(stream)?;
    let end = Instant::now() + TO_TAKE;
    match asked {
        Answer::Page => {
            let content = shared.asked();
            let (page, version) = (Arc::clone(&content.page), content.version);
            drop(content);
            write(stream, "200 OK", "text/html", page.as_bytes(), end)?;
            leave(stream)?;
            let mut content = shared.content();
            content.taken_version = content.taken_version.max(version);
            return Ok(());
        }
        Answer::State => write(stream, "200 OK", "application/json", shared.state().as_bytes(), end)?,
        Answer::Nothing => write(stream, "204 No Content", "text/plain", b"", end)?,
        Answer::Refused(refusal) => refuse(stream, refusal, end)?,
    }
    leave(stream)
}

fn read_request(stream: &mut TcpStream) -> io::Result<Answer> {
    let end = Instant::now() + TO_ASK;
    let mut head = Vec::with_capacity(1024);
    let mut part = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        let room = part.len().min(LONGEST_HEAD - head.len());
        match stream.read(&mut part[..room])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
        if let Some(answer) = answer(&head) {
            return Ok(answer);
        }
    }
}

fn refuse(stream: &mut TcpStream, refusal: Refusal, end: Instant) -> io::Result<()> {
    let (status, sentence) = refusal.words();
    write(stream, status, "text/plain", format!("{sentence}\n").as_bytes(), end)
}

fn write(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8], end: Instant) -> io::Result<()> {
    let head = http::head(status, kind, body.len());
    for part in std::iter::once(head.as_bytes()).chain(body.chunks(PART)) {
        stream.set_write_timeout(Some(left(end)?))?;
        stream.write_all(part)?;
    }
    Ok(())
}

/// Closes a connection so that everything sent arrives. With unread input it would be reset.
fn leave(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let end = Instant::now() + TO_LEAVE;
    let mut unread = [0; 1024];
    while let Ok(time) = left(end) {
        stream.set_read_timeout(Some(time))?;
        match stream.read(&mut unread) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Time left until a deadline.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn server() -> (Arc<Shared>, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.publish(1, "the page".repeat(100_000));
        start(listener, Arc::clone(&shared)).unwrap();
        (shared, address)
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const STATE: &str = "GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[test]
    fn pages_and_states_are_given_and_wants_are_noted() {
        let (shared, address) = server();
        assert!(!shared.is_wanted() && !shared.is_awaited());
        let page = ask(address, GET);
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 800000\r\n"),
            "{head}"
        );
        assert_eq!(body.len(), 800_000);
        assert!(shared.is_wanted(), "who looks wants the next one");
        shared.publish(2, "x".into());
        assert!(!shared.is_wanted() && shared.is_awaited(), "and has not got it yet");
        let state = ask(address, STATE);
        assert!(state.contains("\"version\":2") && state.contains("\"finished\":false"), "{state}");
        assert!(shared.is_wanted() && shared.is_awaited());
        ask(address, GET);
        let end = Instant::now() + Duration::from_secs(10);
        while shared.is_awaited() {
            assert!(Instant::now() < end, "who got the newest page waits for nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        shared.close(address);
    }

    #[test]
    fn a_body_that_nobody_reads_does_not_take_the_answer_away() {
        let (shared, address) = server();
        let body = "x".repeat(30_000);
        let answer = ask(
            address,
            &format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        );
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        shared.close(address);
    }

    #[test]
    fn who_sends_nothing_holds_up_nobody_and_too_many_are_told() {
        let (shared, address) = server();
        let open = |wanted: usize| {
            let end = Instant::now() + Duration::from_secs(10);
            while shared.connections.load(Ordering::Relaxed) != wanted {
                assert!(Instant::now() < end, "{wanted} connections");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let mut silent: Vec<TcpStream> =
            (1..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, STATE).contains("200 OK"));
        open(MOST_CONNECTIONS - 1);
        silent.push(TcpStream::connect(address).unwrap());
        open(MOST_CONNECTIONS);
        assert!(ask(address, "").starts_with("HTTP/1.1 503 "));
        drop(silent);
        open(0);
        assert!(ask(address, STATE).contains("200 OK"));
        shared.close(address);
    }
}
