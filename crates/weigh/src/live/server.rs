//! Threads that reply to requests from memory. The run never waits for one.

use super::http::{self, Answer, LONGEST_HEAD, Refusal, answer};
use super::{LAST_PAGE, LOOKING, Standing, lower_priority};
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The largest number of connections at a time; one more closes the oldest that has not shown the
/// secret. A browser has two or three, and each asks at once, so a connection that shows nothing
/// belongs to a client that does not know the address.
const MOST_CONNECTIONS: usize = 16;
/// Time limit for the head of a request.
const TO_ASK: Duration = Duration::from_secs(5);
/// Time limit for a reply, long enough for a page of a few megabytes to pass a slow tunnel.
const TO_TAKE: Duration = Duration::from_secs(60);
/// How long the browser has after a reply to close the connection.
const TO_LEAVE: Duration = Duration::from_millis(500);
/// Size of the parts in which a page is sent, bytes; the time limit is checked between them.
const PART: usize = 64 << 10;

/// State that the run and the threads of the server share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    content: Mutex<Content>,
    /// The first part of every path: see [`http::answer`].
    secret: String,
    connections: Mutex<Connections>,
    /// Whether the server has stopped accepting connections.
    closed: AtomicBool,
}

/// The connections that are served, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    last: u64,
    open: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    stream: TcpStream,
    /// Whether its request was below the secret.
    admitted: bool,
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
    /// The number of browsers that are receiving a page.
    receiving: usize,
}

impl Shared {
    /// Makes the state with a new secret.
    pub(super) fn new() -> io::Result<Self> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let secret = weigh_model::hex(&random);
        Ok(Self { secret, ..Self::default() })
    }

    /// The path of the page.
    pub(super) fn path(&self) -> String {
        format!("/{}/", self.secret)
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a connection. If there are too many, closes the oldest that has not shown the secret,
    /// which is the new one if all others have. Returns its number.
    fn connected(&self, stream: &TcpStream) -> io::Result<u64> {
        let mut connections = self.connections();
        connections.last += 1;
        let number = connections.last;
        connections.open.push(Connection { number, stream: stream.try_clone()?, admitted: false });
        if connections.open.len() > MOST_CONNECTIONS
            && let Some(at) = connections.open.iter().position(|one| !one.admitted)
        {
            // The thread of that connection reads its end, and exits.
            let _gone_already = connections.open.remove(at).stream.shutdown(Shutdown::Both);
        }
        Ok(number)
    }

    /// Notes that a connection has shown the secret.
    fn admit(&self, number: u64) {
        self.connections()
            .open
            .iter_mut()
            .filter(|one| one.number == number)
            .for_each(|one| one.admitted = true);
    }

    fn disconnected(&self, number: u64) {
        self.connections().open.retain(|one| one.number != number);
    }

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

    /// Whether a server that has had the last page for this long is still needed: by browsers that
    /// are looking and may not have asked since, or by one that is receiving a page.
    pub(super) fn is_needed(&self, since: Duration) -> bool {
        let content = self.content();
        let looks = content.asked_at.is_some_and(|at| at.elapsed() < LOOKING);
        looks && since < LAST_PAGE || content.receiving > 0 && since < TO_TAKE
    }

    /// Stops accepting connections. The accepting thread waits for a connection, so this method
    /// makes one.
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
        // Its threads inherit the priority, and also the CPUs, which are not those of guests if the
        // host has others.
        lower_priority();
        loop {
            let taken = listener.accept();
            if shared.closed.load(Ordering::Relaxed) {
                return;
            }
            match taken {
                Ok((stream, _)) => serve(stream, &shared),
                // There are no descriptors left, or the connection was closed before it was
                // accepted. A later one may work.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    std::thread::Builder::new().name("live".into()).spawn(accept).map(drop)
}

/// Replies to a connection in a thread of its own.
fn serve(mut stream: TcpStream, shared: &Arc<Shared>) {
    // Without a descriptor for the clone, the connection is closed.
    let Ok(number) = shared.connected(&stream) else { return };
    let mine = Arc::clone(shared);
    let talk = move || {
        // A browser that closes the connection early does not want the rest.
        let _gone = converse(&mut stream, number, &mine);
        mine.disconnected(number);
    };
    if std::thread::Builder::new().name("live answer".into()).spawn(talk).is_err() {
        shared.disconnected(number);
    }
}

fn converse(stream: &mut TcpStream, number: u64, shared: &Shared) -> io::Result<()> {
    let asked = read_request(stream, &shared.secret)?;
    if matches!(asked, Answer::Page | Answer::State) {
        shared.admit(number);
    }
    let end = Instant::now() + TO_TAKE;
    match asked {
        Answer::Page => {
            let mut content = shared.asked();
            content.receiving += 1;
            let page = Arc::clone(&content.page);
            drop(content);
            let sent = write(stream, "200 OK", "text/html", page.as_bytes(), end);
            let sent = sent.and_then(|()| leave(stream));
            shared.content().receiving -= 1;
            return sent;
        }
        Answer::State => write(stream, "200 OK", "application/json", shared.state().as_bytes(), end)?,
        Answer::Nothing => write(stream, "204 No Content", "text/plain", b"", end)?,
        Answer::Refused(refusal) => refuse(stream, refusal, end)?,
    }
    leave(stream)
}

fn read_request(stream: &mut TcpStream, secret: &str) -> io::Result<Answer> {
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
        if let Some(answer) = answer(&head, secret) {
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

/// Closes a connection so that everything sent arrives. Unread input would reset it.
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

/// Returns the time left until a deadline.
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
        let shared = Arc::new(Shared { secret: "secret".into(), ..Shared::default() });
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

    /// More than the buffers of a connection hold, bytes.
    const LONG: usize = 64 << 20;
    const GET: &str = "GET /secret/ HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const STATE: &str = "GET /secret/state HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[test]
    fn pages_and_states_are_given_and_wants_are_noted() {
        let (shared, address) = server();
        assert!(!shared.is_wanted() && !shared.is_needed(Duration::ZERO));
        let page = ask(address, GET);
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 800000\r\n"),
            "{head}"
        );
        assert_eq!(body.len(), 800_000);
        assert!(shared.is_wanted(), "who looks wants the next one");
        shared.publish(2, "x".into());
        assert!(!shared.is_wanted(), "until there is a newer one");
        let state = ask(address, STATE);
        assert!(state.contains("\"version\":2") && state.contains("\"finished\":false"), "{state}");
        assert!(shared.is_wanted());
        shared.close(address);
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks for a page that no buffer holds, and reads none of it yet.
    fn begin(shared: &Shared, address: SocketAddr) -> TcpStream {
        shared.publish(2, "x".repeat(LONG));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        until("the page is being sent", || shared.content().receiving > 0);
        stream
    }

    fn rest(mut stream: TcpStream) -> usize {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer.len()
    }

    #[test]
    fn the_end_of_a_run_waits_for_everybody() {
        let (shared, address) = server();
        ask(address, GET);
        shared.publish(2, "the last page".into());
        shared.finish();
        ask(address, GET);
        assert!(shared.is_needed(Duration::ZERO), "another browser may be looking");
        until("the page has arrived", || shared.content().receiving == 0);
        assert!(!shared.is_needed(LAST_PAGE), "who looks has asked by then");
        let slow = begin(&shared, address);
        assert!(shared.is_needed(LAST_PAGE), "the page is on its way");
        assert!(!shared.is_needed(TO_TAKE), "but nobody is waited for without end");
        assert!(rest(slow) > LONG);
        until("the page has arrived", || !shared.is_needed(LAST_PAGE));
        drop(begin(&shared, address));
        until("a browser that has gone takes nothing", || !shared.is_needed(LAST_PAGE));
        shared.close(address);
    }

    #[test]
    fn a_request_with_an_unread_body_is_answered() {
        let (shared, address) = server();
        let body = "x".repeat(30_000);
        let answer = ask(
            address,
            &format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        );
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        shared.close(address);
    }

    /// Any user of the machine can open any number of connections and send nothing.
    #[test]
    fn a_silent_client_delays_no_other() {
        let (shared, address) = server();
        let mut silent: Vec<TcpStream> = Vec::new();
        for round in 1..=4 {
            silent.extend((0..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()));
            let started = Instant::now();
            assert!(ask(address, STATE).contains("200 OK"), "{round}");
            assert!(ask(address, GET).contains("200 OK"), "{round}");
            assert!(started.elapsed() < TO_ASK, "nobody waited for their time to be up");
        }
        // The oldest connections were closed.
        let mut end = [0];
        silent[0].set_read_timeout(Some(TO_ASK)).unwrap();
        assert_eq!(silent[0].read(&mut end).unwrap(), 0);
        assert!(shared.connections().open.len() <= MOST_CONNECTIONS);
        drop(silent);
        until("connections are forgotten when they are closed", || shared.connections().open.is_empty());
        shared.close(address);
    }

    /// Nor do they end the connections of clients that know the secret.
    #[test]
    fn silent_clients_take_no_page_away() {
        let (shared, address) = server();
        let slow = begin(&shared, address);
        let silent: Vec<TcpStream> =
            (0..2 * MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        until("all are accepted", || shared.connections().last > 2 * MOST_CONNECTIONS as u64);
        assert!(rest(slow) > LONG, "the whole page");
        assert!(shared.connections().open.len() <= MOST_CONNECTIONS);
        drop(silent);
        shared.close(address);
    }

    #[test]
    fn secrets_are_new_and_long() {
        let (one, other) = (Shared::new().unwrap().path(), Shared::new().unwrap().path());
        assert!(one != other && one.len() == 34, "{one} {other}");
    }
}
