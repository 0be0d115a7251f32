//! The main loop: it handles requests and sends replies.

use crate::channel::{Channel, Closed};
use crate::command::Refusal;
use crate::error::ProbeError;
use crate::running::{PIECE, Running};
use crate::{clock, command, facts, files, init, processes, signals, spawn};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::getpid;
use weigh_protocol::{Command, Reply, Request, VERSION};

/// How long to wait for killed processes when the probe ends.
const END_DEADLINE_NS: u64 = 2_000_000_000;

/// The hello of this probe.
pub fn hello() -> Reply {
    Reply::Hello {
        version: VERSION,
        pid: getpid().as_raw_nonzero().get().unsigned_abs(),
        started_ns: clock::started_ns(),
    }
}

/// Serves until the host requests a shutdown, the channel is closed or SIGTERM arrives.
pub fn serve(channel: Channel, program: &str) -> Result<(), ProbeError> {
    let signals = signals::descriptor().map_err(ProbeError::system("wait for signals"))?;
    let own_directory = init::own_directory(program);
    let mut server = Server { channel, signals, own_directory, running: None, buffer: Box::new([0; PIECE]) };
    loop {
        match server.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(Closed) if server.take_next_connection() => {}
            Err(Closed) => break,
        }
    }
    server.end();
    Ok(())
}

struct Server {
    channel: Channel,
    signals: OwnedFd,
    own_directory: String,
    running: Option<Running>,
    buffer: Box<[u8; PIECE]>,
}

/// An event for which the probe waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Signals,
    Requests,
    Connection,
    Room,
    Input,
    Stream(usize),
}

impl Server {
    /// Handles the requests that have arrived, then waits once. `false` if the probe must end.
    fn step(&mut self) -> Result<bool, Closed> {
        while let Some(request) = self.channel.next_request() {
            if !self.answer(request)? {
                return Ok(false);
            }
        }
        self.channel.flush()?;
        for event in self.wait()? {
            match event {
                Event::Signals if signals::drain(&self.signals) => return Ok(false),
                Event::Signals => self.reap(),
                Event::Requests => self.channel.receive()?,
                // The host connects again; a restored machine may never notice that its last
                // connection is broken.
                Event::Connection => return Err(Closed),
                Event::Room => self.channel.flush()?,
                Event::Input => {
                    if let Some(running) = &mut self.running {
                        running.write_input(&mut self.channel);
                    }
                }
                Event::Stream(index) => {
                    if let Some(running) = &mut self.running {
                        running.read(index, &mut self.buffer, &mut self.channel);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits without a limit. Signals come first, so that the end of a command is timed before
    /// anything else.
    fn wait(&self) -> Result<Vec<Event>, Closed> {
        let mut waits = vec![
            (Event::Signals, PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)),
            (Event::Requests, PollFd::from_borrowed_fd(self.channel.read_end(), PollFlags::IN)),
        ];
        if let Some(listener) = self.channel.listener() {
            waits.push((Event::Connection, PollFd::from_borrowed_fd(listener, PollFlags::IN)));
        }
        if self.channel.has_pending() {
            let room = PollFd::from_borrowed_fd(self.channel.write_end(), PollFlags::OUT);
            waits.push((Event::Room, room));
        }
        if let Some(running) = &self.running {
            if let Some(input) = running.wanted_input() {
                waits.push((Event::Input, PollFd::from_borrowed_fd(input.as_fd(), PollFlags::OUT)));
            }
            for (index, stream) in running.streams.iter().enumerate() {
                if let Some(stream) = stream.as_ref().filter(|_| running.may_read(index, &self.channel)) {
                    waits.push((
                        Event::Stream(index),
                        PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN),
                    ));
                }
            }
        }
        let (events, mut fds): (Vec<_>, Vec<_>) = waits.into_iter().unzip();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Closed),
        }
        let ready = events.into_iter().zip(fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(event, _)| event).collect())
    }

    /// Handles a request; `false` if the probe must end.
    fn answer(&mut self, request: Request) -> Result<bool, Closed> {
        match (request, &mut self.running) {
            (Request::Hello { .. }, _) => {
                self.channel.send(&hello());
            }
            (Request::Shutdown { id }, _) => {
                self.channel.send(&Reply::Done { id });
                return Ok(false);
            }
            (Request::Signal { id, signal }, Some(running)) if running.id == id => running.signal(signal),
            (Request::Input { id, bytes }, Some(running)) if running.id == id => {
                running.add_input(bytes, &mut self.channel);
            }
            (Request::CloseInput { id }, Some(running)) if running.id == id => running.end_input(),
            // The command has ended, which the host does not know yet.
            (Request::Signal { .. } | Request::Input { .. } | Request::CloseInput { .. }, _) => {}
            (
                Request::Run { id, .. }
                | Request::Put { id, .. }
                | Request::Get { id, .. }
                | Request::Clock { id }
                | Request::Facts { id, .. },
                Some(running),
            ) => {
                let reason = format!("command {} runs", running.id);
                self.refuse(id, Refusal::because(reason, Errno::BUSY));
            }
            (Request::Run { id, command }, None) => self.run(id, &command),
            (Request::Put { id, path, mode, first, bytes }, None) => {
                match files::put(&path, mode, first, &bytes) {
                    Ok(()) => self.channel.send(&Reply::Done { id }),
                    Err(refusal) => self.refuse(id, refusal),
                }
            }
            (Request::Get { id, path, limit_bytes }, None) => {
                files::get(id, &path, limit_bytes, &mut self.channel)?;
            }
            (Request::Clock { id }, None) => {
                self.channel.send(&Reply::Clock { id, reading: clock::read() });
            }
            (Request::Facts { id, about }, None) => {
                let facts = facts::read(&about, &self.own_directory).into();
                self.channel.send(&Reply::Facts { id, facts });
            }
        }
        Ok(true)
    }

    fn refuse(&mut self, id: u32, Refusal { reason, errno }: Refusal) {
        self.channel.send(&Reply::Refused { id, reason, errno });
    }

    fn run(&mut self, id: u32, command: &Command) {
        let spawned = command::prepare(command, &self.own_directory)
            .and_then(|prepared| spawn::spawn(&prepared, &command.input));
        match spawned {
            Ok(spawned) => {
                let pid = spawned.pid.as_raw_nonzero().get().unsigned_abs();
                self.channel.send(&Reply::Started { id, pid });
                self.running = Some(Running::new(id, spawned, command.output_limit_bytes));
            }
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Reaps every process that has ended, including orphans of the guest. A command has ended when
    /// its main process and all descendants have.
    fn reap(&mut self) {
        loop {
            match processes::peek() {
                Ok(Some(pid)) => match &mut self.running {
                    Some(running) if running.pid == pid => running.note_end(),
                    _ => drop(processes::wait4(pid)),
                },
                Ok(None) => {
                    if self.running.as_ref().is_some_and(Running::has_ended) {
                        processes::kill_children();
                    }
                    return;
                }
                Err(_) => {
                    if let Some(running) = self.running.take_if(|running| running.has_ended()) {
                        running.close(&mut self.buffer, &mut self.channel);
                    }
                    return;
                }
            }
        }
    }

    /// Ends the command of a host that has disconnected, and waits for the next connection. `false`
    /// if there is no listener, or the probe must end.
    fn take_next_connection(&mut self) -> bool {
        if self.channel.listener().is_none() {
            return false;
        }
        self.end_running();
        self.running = None;
        while let Some(listener) = self.channel.listener() {
            let mut fds = [
                PollFd::from_borrowed_fd(listener, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            if !matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR)) {
                return false;
            }
            let [connection, signal] = fds.map(|fd| !fd.revents().is_empty());
            if signal {
                if signals::drain(&self.signals) {
                    return false;
                }
                self.reap();
            }
            if connection {
                let accepted = self.channel.accept_next().is_ok();
                self.channel.send(&hello());
                return accepted;
            }
        }
        false
    }

    /// Ends the running command and sends the pending replies.
    fn end(&mut self) {
        self.end_running();
        // The host may have disconnected.
        let _ = self.channel.finish();
    }

    fn end_running(&mut self) {
        if let Some(running) = &self.running {
            running.signal(libc::SIGKILL);
        }
        let until_ns = clock::monotonic_ns() + END_DEADLINE_NS;
        loop {
            processes::kill_children();
            self.reap();
            let left_ns = until_ns.saturating_sub(clock::monotonic_ns());
            if processes::peek().is_err() || left_ns == 0 {
                break;
            }
            let timeout =
                Timespec { tv_sec: (left_ns / 1_000_000_000) as _, tv_nsec: (left_ns % 1_000_000_000) as _ };
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&timeout));
            signals::drain(&self.signals);
        }
    }
}
