//! The loop of one thread: waits for its connections, reads replies, sends requests.

mod receiving;

use super::arrivals::Arrivals;
use super::client::{Client, Waiting};
use super::plan::{Pace, Plan, Until};
use super::protocol::Protocol;
use super::tally::{LATE_NS, Tally};
use crate::clock::now_ns;
use crate::kernel::KernelError;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest sleep: bounds how late a thread notices that another one failed, or that its time is
/// over.
const LOOK_NS: u64 = 50_000_000;

/// The most bytes that one read can return.
const BUFFER: usize = 64 << 10;

/// The most events that one wait can return.
const EVENTS: usize = 256;

/// The server will send nothing more.
const ENDED: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// What the threads of one run share.
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    /// When all threads begin.
    pub(super) start_ns: u64,
    /// Set when a thread fails: the others need not continue.
    pub(super) failed: AtomicBool,
}

/// One thread's part of the load.
pub(super) struct Worker<'a, P: Protocol> {
    plan: &'a Plan,
    shared: &'a Shared,
    protocol: P,
    clients: Vec<Client<P>>,
    epoll: OwnedFd,
    tally: Tally,
    /// The measurement: requests that are sent, or scheduled, between these times.
    opens_ns: u64,
    closes_ns: u64,
    /// Requests of the measurement that are still to be made.
    left: u64,
    in_flight: usize,
    /// When the last reply arrived, or when the first request in flight was sent.
    progress_ns: u64,
    arrivals: Option<Arrivals>,
    /// Requests of an open loop that are due and have no connection yet: their scheduled times, and
    /// whether they are measured.
    due: VecDeque<(u64, bool)>,
    /// Connections that may send, in order. Open loop only.
    free: VecDeque<usize>,
    buffer: Vec<u8>,
}

impl<'a, P: Protocol> Worker<'a, P> {
    pub(super) fn new(
        plan: &'a Plan,
        shared: &'a Shared,
        index: usize,
        protocol: P,
        clients: Vec<Client<P>>,
        arrivals: Option<Arrivals>,
    ) -> Result<Self, KernelError> {
        let failed = || KernelError::system::<std::io::Error>("wait for connections with epoll");
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| failed()(error.into()))?;
        for (number, client) in clients.iter().enumerate() {
            client.register(&epoll, number).map_err(failed())?;
        }
        let opens_ns = shared.start_ns + plan.warmup.as_nanos() as u64;
        let (closes_ns, left) = match plan.until {
            Until::Time(time) => (opens_ns + time.as_nanos() as u64, u64::MAX),
            Until::Requests(requests) => {
                let share = plan.share(requests, index);
                (u64::MAX, share.end - share.start)
            }
        };
        let free = if arrivals.is_some() { (0..clients.len()).collect() } else { VecDeque::new() };
        let mut worker = Self {
            plan,
            shared,
            protocol,
            clients,
            epoll,
            tally: Tally::new(),
            opens_ns,
            closes_ns,
            left,
            in_flight: 0,
            progress_ns: shared.start_ns,
            arrivals,
            due: VecDeque::new(),
            free,
            buffer: vec![0; BUFFER],
        };
        worker.clients.iter_mut().for_each(|client| client.queued = true);
        Ok(worker)
    }

    /// Loads the server until the measurement is over and every request has its reply, or no more
    /// replies arrive.
    pub(super) fn run(mut self) -> Result<Tally, KernelError> {
        if matches!(self.plan.pace, Pace::Open { .. }) {
            // Timers of a thread fire up to 50 us late by default (PR_SET_TIMERSLACK of prctl(2)),
            // which would be in every latency. Where that cannot be changed, the reported delays
            // show it.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        std::thread::sleep(std::time::Duration::from_nanos(self.shared.start_ns.saturating_sub(now_ns())));
        if self.arrivals.is_none() {
            for number in 0..self.clients.len() {
                self.send_batch(number, now_ns())?;
            }
        }
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            let now = now_ns();
            self.note(now);
            self.admit(now)?;
            if self.is_over(now) || self.shared.failed.load(Ordering::Relaxed) {
                break;
            }
            self.wait(now, &mut events)?;
            for event in &events {
                let (number, flags) = (event.data.u64() as usize, event.flags);
                self.serve(number, flags)?;
            }
        }
        self.tally.unanswered = (self.in_flight + self.due.len()) as u64;
        if self.tally.opened.is_none() {
            self.tally.opened = Some(self.tally.mark());
        }
        if self.tally.closed.is_none() {
            self.tally.closed = Some(self.tally.mark());
        }
        Ok(self.tally)
    }

    /// Records the marks at the beginning and end of the measurement.
    fn note(&mut self, now: u64) {
        if self.tally.opened.is_none() && now >= self.opens_ns {
            self.tally.opened = Some(self.tally.mark());
        }
        if self.tally.closed.is_none() && now >= self.closes_ns {
            self.tally.closed = Some(self.tally.mark());
        }
    }

    /// Whether no more requests are to be made.
    fn all_made(&self, now: u64) -> bool {
        match &self.arrivals {
            _ if self.left == 0 => true,
            None => now >= self.closes_ns,
            Some(arrivals) => arrivals.next_ns() >= self.closes_ns,
        }
    }

    fn is_over(&self, now: u64) -> bool {
        let outstanding = self.in_flight > 0 || !self.due.is_empty();
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        if self.all_made(now) && !outstanding {
            // An idle period at the end still belongs to the requested time.
            return self.closes_ns == u64::MAX || now >= self.closes_ns;
        }
        let hangs = outstanding && now.saturating_sub(self.progress_ns) > timeout_ns;
        hangs || now.saturating_sub(timeout_ns) > self.closes_ns
    }

    /// Sleeps until there is something to read, or until the next request of an open loop is due.
    fn wait(&self, now: u64, events: &mut Vec<Event>) -> Result<(), KernelError> {
        let failed = |error: Errno| KernelError::system("wait for connections with epoll")(error);
        let look = |events: &mut Vec<Event>, timeout: Option<&Timespec>| {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(error) => Err(failed(error)),
            }
        };
        let span =
            |ns: u64| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
        let Some(arrivals) = &self.arrivals else { return look(events, Some(&span(LOOK_NS))) };
        look(events, Some(&span(0)))?;
        let sleep_ns = arrivals.next_ns().saturating_sub(now).min(LOOK_NS);
        if !events.is_empty() || sleep_ns == 0 {
            return Ok(());
        }
        // The timeout of epoll_wait is in milliseconds; that of ppoll is in nanoseconds, on every
        // kernel.
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&span(sleep_ns))) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => look(events, Some(&span(0))),
            Err(error) => Err(failed(error)),
        }
    }

    fn serve(&mut self, number: usize, flags: EventFlags) -> Result<(), KernelError> {
        self.flush(number)?;
        if flags.intersects(ENDED | EventFlags::IN) {
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.receive(number, &mut buffer, flags.intersects(ENDED));
            self.buffer = buffer;
            let now = received?;
            let client = &mut self.clients[number];
            if self.arrivals.is_none() {
                if client.waiting.is_empty() {
                    self.send_batch(number, now)?;
                }
            } else {
                if !client.queued && client.waiting.len() < self.plan.pipeline {
                    client.queued = true;
                    self.free.push_back(number);
                }
                // A request that becomes due while replies are read does not wait for the last of
                // them.
                self.admit(now)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> Result<(), KernelError> {
        let sent = self.clients[number].flush().map_err(|error| self.failed("send to", error))?;
        self.tally.bytes_out += sent as u64;
        Ok(())
    }

    fn failed(&self, doing: &str, source: std::io::Error) -> KernelError {
        KernelError::System { doing: format!("{doing} {}", self.shared.address), source }
    }

    /// Closed loop: sends the next requests of a client, all that it may have in flight, at once.
    fn send_batch(&mut self, number: usize, now: u64) -> Result<(), KernelError> {
        if self.all_made(now) {
            return Ok(());
        }
        let measured = now >= self.opens_ns;
        let mut requests = self.plan.pipeline as u64;
        if measured {
            requests = requests.min(self.left);
            self.left = if self.left == u64::MAX { u64::MAX } else { self.left - requests };
            self.tally.due += requests;
        }
        let client = &mut self.clients[number];
        for _ in 0..requests {
            let expected = self.protocol.request(&mut client.out);
            client.waiting.push_back(Waiting { from_ns: 0, measured, expected });
        }
        // Read last, so that no latency includes the time to make the requests.
        let sent_ns = now_ns();
        client.waiting.iter_mut().for_each(|waiting| waiting.from_ns = sent_ns);
        if self.in_flight == 0 {
            self.progress_ns = sent_ns;
        }
        self.in_flight += requests as usize;
        self.flush(number)
    }

    /// Open loop: sends every request that is due, as far as there are connections for them.
    fn admit(&mut self, now: u64) -> Result<(), KernelError> {
        let Some(arrivals) = &mut self.arrivals else { return Ok(()) };
        let mut came = 0;
        loop {
            let next = arrivals.next_ns();
            if next > now || next >= self.closes_ns || self.left == 0 {
                break;
            }
            let measured = next >= self.opens_ns;
            if measured {
                self.tally.due += 1;
                self.left = if self.left == u64::MAX { u64::MAX } else { self.left - 1 };
                came += 1;
            }
            self.due.push_back((next, measured));
            arrivals.advance();
        }
        while let Some(&(from_ns, measured)) = self.due.front()
            && let Some(number) = self.free.pop_front()
        {
            self.due.pop_front();
            let client = &mut self.clients[number];
            let expected = self.protocol.request(&mut client.out);
            client.waiting.push_back(Waiting { from_ns, measured, expected });
            client.queued = client.waiting.len() < self.plan.pipeline;
            if client.queued {
                self.free.push_back(number);
            }
            if self.in_flight == 0 {
                self.progress_ns = now;
            }
            self.in_flight += 1;
            if measured {
                let delay_ns = now_ns().saturating_sub(from_ns);
                self.tally.delay_ns.saturating_record(delay_ns);
                self.tally.late += u64::from(delay_ns > LATE_NS);
            }
            self.flush(number)?;
        }
        // First come, first served: the last to become due are those that remain.
        self.tally.had_to_wait += came.min(self.due.len()) as u64;
        Ok(())
    }
}
