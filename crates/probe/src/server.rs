//! The loop: requests in, commands and files, replies out.

use crate::channel::{Channel, Closed};
use crate::command::Refusal;
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

/// Time for killed processes to go when the probe ends.
const LAST_WAIT_NS: u64 = 2_000_000_000;

/// What this probe says to a host that asks, and over a device without being asked.
pub fn hello() -> Reply {
    Reply::Hello {
        version: VERSION,
        pid: getpid().as_raw_nonzero().get().unsigned_abs(),
        started_ns: clock::started_ns(),
    }
}

/// Serves until the host shuts the guest down, the channel is closed or SIGTERM comes.
pub fn serve(channel: Channel, program: &str) -> Result<(), String> {
    let signals = signals::descriptor().map_err(|errno| format!("cannot wait for signals: {errno}"))?;
    let own_directory = init::own_directory(program);
    let mut server = Server { channel, signals, own_directory, running: None, buffer: Box::new([0; PIECE]) };
    loop {
        match server.turn() {
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

/// What a wait was for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Signals,
    Requests,
    Connection,
    Room,
    Input,
    Stream(usize),
}

impl Server {
    /// Answers what has come, then waits once. `false` when the probe is to end.
    fn turn(&mut self) -> Result<bool, Closed> {
        while let Some(request) = self.channel.next_request() {
            if !self.answer(request)? {
                return Ok(false);
            }
        }
        self.channel.flush()?;
        for source in self.wait()? {
            match source {
                Source::Signals if signals::drain(&self.signals) => return Ok(false),
                Source::Signals => self.reap(),
                Source::Requests => self.channel.receive()?,
                // Whoever connects is the host; a machine that was restored may never learn that
                // its last connection is gone.
                Source::Connection => return Err(Closed),
                Source::Room => self.channel.flush()?,
                Source::Input => {
                    if let Some(running) = &mut self.running {
                        running.write_input(&mut self.channel);
                    }
                }
                Source::Stream(index) => {
                    if let Some(running) = &mut self.running {
                        running.read(index, &mut self.buffer, &mut self.channel);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits without a limit. Signals come first: the end of a command is dated before anything
    /// else is done.
    fn wait(&self) -> Result<Vec<Source>, Closed> {
        let mut waits = vec![
            (Source::Signals, PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)),
            (Source::Requests, PollFd::from_borrowed_fd(self.channel.read_end(), PollFlags::IN)),
        ];
        if let Some(listener) = self.channel.listener() {
            waits.push((Source::Connection, PollFd::from_borrowed_fd(listener, PollFlags::IN)));
        }
        if self.channel.has_pending() {
            let room = PollFd::from_borrowed_fd(self.channel.write_end(), PollFlags::OUT);
            waits.push((Source::Room, room));
        }
        if let Some(running) = &self.running {
            if let Some(input) = running.wanted_input() {
                waits.push((Source::Input, PollFd::from_borrowed_fd(input.as_fd(), PollFlags::OUT)));
            }
            for (index, stream) in running.streams.iter().enumerate() {
                if let Some(stream) = stream.as_ref().filter(|_| running.may_read(index, &self.channel)) {
                    waits.push((
                        Source::Stream(index),
                        PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN),
                    ));
                }
            }
        }
        let (sources, mut fds): (Vec<_>, Vec<_>) = waits.into_iter().unzip();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Closed),
        }
        let ready = sources.into_iter().zip(fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(source, _)| source).collect())
    }

    /// Answers one request; `false` when the probe is to end.
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
            // Their command is gone, which the host does not know yet.
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
            .and_then(|prepared| spawn::spawn(&prepared, command.input));
        match spawned {
            Ok(spawned) => {
                let pid = spawned.pid.as_raw_nonzero().get().unsigned_abs();
                self.channel.send(&Reply::Started { id, pid });
                self.running = Some(Running::new(id, spawned, command.output_limit_bytes));
            }
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Reaps every process that has ended, orphans of the guest among them. A command has ended
    /// when its main process and all that came from it are gone.
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

    /// Ends what runs for a host that has gone, and waits for one to connect. `false` where none
    /// can, or when the probe is to end.
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

    /// Kills what runs and waits a little for it to be gone; says what is left to say.
    fn end(&mut self) {
        self.end_running();
        // The host may be gone; then there is nobody to tell.
        let _ = self.channel.finish();
    }

    fn end_running(&mut self) {
        if let Some(running) = &self.running {
            running.signal(libc::SIGKILL);
        }
        let until_ns = clock::monotonic_ns() + LAST_WAIT_NS;
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
