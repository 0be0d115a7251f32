//! One environment of a sliced unit.

use super::Stretch;
use super::thawed::ThawedTime;
use crate::guest_clock::GuestClock;
use crate::pool::{GuestEnd, Instance};
use crate::trial::{Failure, WorkloadCommands, describe};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weigh_host::cgroup::OpenFreezer;
use weigh_host::clock::monotonic_ns;
use weigh_model::{FailureKind, Iteration, PieceStatistic, SliceMark, SlicedWork, Slices};
use weigh_platforms::{CompletedCommand, Progress};
use weigh_protocol::{Command, Stream};
use weigh_stats::slices::ITERATION;

/// Time for a command to end after the request.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// Signals of Linux, even if the guest runs another system (`signal(7)`).
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The longest line that may be a mark.
const LONGEST_LINE: usize = 4096;

/// Something that works while it is thawed.
pub(crate) trait Arm {
    /// Whether it takes slices.
    fn is_open(&self) -> bool;

    /// Whether it has had its time and finished its work in this stretch.
    fn has(&self, stretch: Stretch) -> bool;

    /// Begins the stretch with longer slices.
    fn begin_longer(&mut self);

    /// Lets it work for this long. With `last` it begins nothing new: it is closed when its piece
    /// of work is finished.
    fn slice(&mut self, length: Duration, last: bool);
}

fn unreached(wanted: &str, error: &std::io::Error) -> Failure {
    let reason = format!("the guest could not be {wanted}: {}", describe(error));
    Failure::new(FailureKind::GuestDied, reason)
}

/// The median and the 95th percentile of some durations, microseconds.
fn median_and_p95(ns: &mut [u64]) -> [f32; 2] {
    ns.sort_unstable();
    let at = |share: f64| ns.get((share * ns.len() as f64) as usize).copied().unwrap_or(0) as f32 / 1000.0;
    [at(0.5), at(0.95)]
}

/// The guest of an environment, with the command measured in it.
pub(crate) struct GuestArm<'u> {
    instance: &'u mut Instance,
    freezer: Option<OpenFreezer>,
    commands: WorkloadCommands<'u>,
    work: SlicedWork,
    command: Command,
    /// The command that is under way.
    running: Option<u32>,
    /// The beginning of an unfinished line of the command's output.
    line: Vec<u8>,
    /// Whether the command dates its marks by the host's clock.
    dated: bool,
    thawed: ThawedTime,
    /// Thawed time before the present stretch.
    before_ns: u64,
    slices: Slices,
    freeze_ns: Vec<u64>,
    thaw_ns: Vec<u64>,
    finished: Vec<(Iteration, CompletedCommand)>,
    closed: bool,
    failure: Option<Failure>,
    warm_ups: u32,
}

impl<'u> GuestArm<'u> {
    /// Wakes the guest, warms it up, and leaves it frozen by its control group. An arm for which
    /// that fails is closed from the beginning.
    pub(crate) fn begin(
        instance: &'u mut Instance,
        commands: WorkloadCommands<'u>,
        (work, length_us): (SlicedWork, u32),
        warm_up: u32,
    ) -> Self {
        let mut command = commands.command().clone();
        let dated = instance.clock == GuestClock::Shared;
        command.argv.extend(super::further_arguments(work, dated));
        let mut arm = Self {
            freezer: None,
            instance,
            commands,
            work,
            command,
            running: None,
            line: Vec::new(),
            dated,
            thawed: ThawedTime::default(),
            before_ns: 0,
            slices: Slices { length_us, ..Slices::default() },
            freeze_ns: Vec::new(),
            thaw_ns: Vec::new(),
            finished: Vec::new(),
            closed: false,
            failure: None,
            warm_ups: 0,
        };
        let begun = arm.try_begin(warm_up);
        arm.close_if_failed(begun);
        arm
    }

    fn try_begin(&mut self, warm_up: u32) -> Result<(), Failure> {
        self.instance.wake()?;
        self.commands.set_up(self.instance.session())?;
        match self.work {
            SlicedWork::Iterations => {
                for _ in 0..warm_up {
                    self.commands
                        .run_iteration(self.instance.session(), None)
                        .map_err(|failure| failure.during("in the warm-up"))?;
                    self.warm_ups += 1;
                }
            }
            SlicedWork::Marks => self.await_ready()?,
        }
        self.freezer = match self.instance.freezer().map(|freezer| freezer.open()).transpose() {
            Ok(freezer) => freezer,
            Err(error) => {
                let reason = format!("its control group cannot be frozen: {}", describe(&error));
                return Err(Failure::new(FailureKind::GuestDied, reason));
            }
        };
        self.freeze().map(|_| ())
    }

    /// Freezes the guest by its control group. Returns when all of it had been told to stop.
    fn freeze(&self) -> Result<u64, Failure> {
        self.open_freezer()?.freeze().map_err(|error| unreached("frozen", &error))
    }

    fn thaw(&self) -> Result<(), Failure> {
        self.open_freezer()?.thaw().map_err(|error| unreached("thawed", &error))
    }

    fn open_freezer(&self) -> Result<&OpenFreezer, Failure> {
        self.freezer.as_ref().ok_or_else(|| {
            let reason = "it has no control group that freezes it; --slices off measures whole trials";
            Failure::new(FailureKind::Check, reason)
        })
    }

    /// Starts the endless work and waits until its set-up is over.
    fn await_ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.commands.deadline();
        let id = self.start()?;
        while self.slices.marks.is_empty() {
            match self.instance.session().next_progress(id, deadline) {
                Ok(Some(Progress::Output { stream: Stream::Output, bytes })) => self.read(&bytes, Some(0)),
                Ok(Some(Progress::Output { .. })) => {}
                Ok(Some(Progress::Ended(completed))) => {
                    self.running = None;
                    return Err(self.ended_early(*completed));
                }
                Ok(None) => return Err(self.overdue("did not set itself up")),
                Err(error) => return Err(Failure::lost(&error)),
            }
        }
        // Work begins with the first mark within the rounds; earlier work is the warm-up.
        self.slices.marks.clear();
        Ok(())
    }

    fn start(&mut self) -> Result<u32, Failure> {
        let started = self.instance.session().start(&self.command);
        let id = started.map_err(|error| self.commands.not_executed(&self.command, error))?;
        self.running = Some(id);
        Ok(id)
    }

    /// Closes the arm after a failure.
    fn close_if_failed(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.closed = true;
            self.failure = Some(failure);
        }
    }

    /// Runs one slice. The guest is frozen again even if something failed in it.
    fn try_slice(&mut self, length: Duration, last: bool) -> Result<(), Failure> {
        let began_ns = monotonic_ns();
        self.thawed.begin(began_ns);
        self.thaw()?;
        self.thaw_ns.push(monotonic_ns() - began_ns);
        let mut idle_ns = 0;
        let worked = self.work_until(Instant::now() + length, began_ns, &mut idle_ns, last);
        let ordered_ns = monotonic_ns();
        let frozen = self.freeze();
        let frozen_ns = monotonic_ns();
        self.freeze_ns.push(frozen_ns - ordered_ns);
        self.slices.thawed_us.push(self.thawed.end(*frozen.as_ref().unwrap_or(&frozen_ns), idle_ns));
        worked.and(frozen.map(|_| ()))
    }

    /// Reads the command's output until a moment. Adds to `idle_ns` the time between two runs of a
    /// command, which counts for neither.
    fn work_until(
        &mut self,
        until: Instant,
        began_ns: u64,
        idle_ns: &mut u64,
        last: bool,
    ) -> Result<(), Failure> {
        let at_us = |arm: &Self, idle_ns: u64| {
            (arm.thawed.total_ns() + (monotonic_ns() - began_ns).saturating_sub(idle_ns)) / 1000
        };
        let mut ended_ns = began_ns;
        while Instant::now() < until {
            let id = match self.running {
                Some(id) => id,
                None if last || self.work == SlicedWork::Marks => {
                    self.closed = true;
                    return Ok(());
                }
                None => {
                    *idle_ns += monotonic_ns() - ended_ns;
                    if self.slices.marks.is_empty() {
                        self.mark(at_us(self, *idle_ns), BTreeMap::new());
                    }
                    self.start()?
                }
            };
            match self.instance.session().next_progress(id, until) {
                Ok(None) => {}
                Ok(Some(Progress::Output { stream: Stream::Output, bytes }))
                    if self.work == SlicedWork::Marks =>
                {
                    self.read(&bytes, Some(at_us(self, *idle_ns)));
                }
                Ok(Some(Progress::Output { .. })) => {}
                Ok(Some(Progress::Ended(completed))) => {
                    self.running = None;
                    if self.work == SlicedWork::Marks {
                        return Err(self.ended_early(*completed));
                    }
                    self.mark(at_us(self, *idle_ns), BTreeMap::from([(ITERATION.into(), 1.0)]));
                    ended_ns = monotonic_ns();
                    self.finished.push(self.commands.iteration_of(*completed)?);
                }
                Err(error) => return Err(Failure::lost(&error)),
            }
        }
        Ok(())
    }

    fn mark(&mut self, at_us: u64, amounts: BTreeMap<String, f64>) {
        self.slices.marks.push(SliceMark { at_us, amounts });
    }

    /// Takes the lines that begin with `mark` from a command's output. `arrived_us` is the thawed
    /// time at its arrival; none after the last slice.
    fn read(&mut self, bytes: &[u8], arrived_us: Option<u64>) {
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < LONGEST_LINE {
                    self.line.push(*byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let Some(read) = MarkLine::parse(&line) else { continue };
            self.slices.statistic = read.statistic.unwrap_or(self.slices.statistic);
            if let Some(at_us) = self.date(read.at_ns, arrived_us) {
                self.mark(at_us, read.amounts);
            }
        }
    }

    /// The thawed time at which the work of a mark was finished. A guest that reads the host's
    /// clock reports this itself, more exactly than the time of arrival. Its report is used only if
    /// it is not later than the arrival, and is never dated before the previous mark. Returns none
    /// if the work was finished before the first slice or after the last one.
    fn date(&self, at_ns: Option<u64>, arrived_us: Option<u64>) -> Option<u64> {
        let believed = |at_ns: &u64| self.dated && !self.thawed.is_none() && *at_ns <= monotonic_ns();
        let Some(at_ns) = at_ns.filter(believed) else {
            return arrived_us;
        };
        let thawed_us = self.thawed.at_ns(at_ns)? / 1000;
        Some(self.slices.marks.last().map_or(thawed_us, |last| thawed_us.max(last.at_us)))
    }

    fn ended_early(&self, completed: CompletedCommand) -> Failure {
        match self.commands.checked(completed) {
            Ok((_, completed)) => {
                Failure::new(FailureKind::Check, "it ended although its work has no end").with(completed)
            }
            Err(failure) => failure,
        }
    }

    /// Kills a command that takes too long.
    fn overdue(&mut self, what: &str) -> Failure {
        let reason = format!("it {what} in time and was killed");
        let failure = Failure::new(FailureKind::Deadline, reason);
        match self.kill() {
            Some(completed) => failure.with(completed),
            None => failure,
        }
    }

    /// Thaws the guest for good, ends its command, and checks the result. With `give_up` the
    /// command is killed and its result does not matter.
    pub(crate) fn end(mut self, give_up: bool) -> ArmResult {
        let thawed = self.freezer.as_ref().map_or(Ok(()), |_| self.thaw());
        let ended = match self.failure.take() {
            None if !give_up => thawed.and_then(|()| self.try_end()),
            failure => {
                self.kill();
                failure.map_or(Ok(()), Err)
            }
        };
        let finished = self.commands.tear_down(self.instance.session(), ended);
        let lost = finished.as_ref().is_err_and(|failure| failure.kind == FailureKind::GuestDied);
        let end = self.instance.freeze_unless_lost(lost);
        self.slices.freeze_us = median_and_p95(&mut self.freeze_ns);
        self.slices.thaw_us = median_and_p95(&mut self.thaw_ns);
        let outcome = finished.map(|()| self.finished);
        ArmResult { slices: self.slices, outcome, warm_ups: self.warm_ups, end }
    }

    /// Kills the command that is under way. Returns none if there is none, or if it is lost.
    fn kill(&mut self) -> Option<CompletedCommand> {
        let id = self.running.take()?;
        let session = self.instance.session();
        session.signal(id, SIGKILL).ok()?;
        session.finish(id, END_DEADLINE).ok()
    }

    /// Ends the command. Its last reports of work within the slices count.
    fn try_end(&mut self) -> Result<(), Failure> {
        let Some(id) = self.running.take() else { return Ok(()) };
        self.instance.session().signal(id, SIGTERM).map_err(|error| Failure::lost(&error))?;
        let deadline = Instant::now() + END_DEADLINE;
        loop {
            match self.instance.session().next_progress(id, deadline) {
                Ok(Some(Progress::Output { stream: Stream::Output, bytes })) if self.dated => {
                    self.read(&bytes, None);
                }
                Ok(Some(Progress::Output { .. })) => {}
                Ok(Some(Progress::Ended(completed))) => {
                    self.finished.push(self.commands.checked(*completed)?);
                    return Ok(());
                }
                Ok(None) => {
                    self.running = Some(id);
                    return Err(self.overdue("did not end"));
                }
                Err(error) => return Err(self.commands.not_executed(&self.command, error)),
            }
        }
    }
}

/// The result of an arm.
pub(crate) struct ArmResult {
    pub(crate) slices: Slices,
    /// Every run of the command with its output.
    pub(crate) outcome: Result<Vec<(Iteration, CompletedCommand)>, Failure>,
    pub(crate) warm_ups: u32,
    /// How the guest was left.
    pub(crate) end: GuestEnd,
}

impl Arm for GuestArm<'_> {
    fn is_open(&self) -> bool {
        !self.closed
    }

    fn has(&self, stretch: Stretch) -> bool {
        let marks = self.slices.marks.iter().rev();
        let marks = marks.take_while(|mark| mark.at_us >= self.before_ns / 1000).count();
        // The first mark finishes nothing, or work that began before.
        let pieces = marks.saturating_sub(1);
        let thawed_ns = self.thawed.total_ns() - self.before_ns;
        thawed_ns >= stretch.each.as_nanos() as u64 && pieces >= stretch.pieces
    }

    fn begin_longer(&mut self) {
        self.before_ns = self.thawed.total_ns();
        self.slices.longer_from = Some(self.slices.thawed_us.len() as u32);
    }

    fn slice(&mut self, length: Duration, last: bool) {
        if last && self.work == SlicedWork::Marks {
            self.closed = true;
            return;
        }
        let mut result = self.try_slice(length, last);
        if result.is_ok() && Duration::from_nanos(self.thawed.total_ns()) > self.commands.deadline() {
            result = Err(self.thaw().map_or_else(|failure| failure, |()| self.overdue("did not end")));
        }
        self.close_if_failed(result);
    }
}

/// A line in which a command reports its finished work.
#[derive(Debug, PartialEq, Default)]
struct MarkLine {
    /// The statistic of its pieces that the command asks for.
    statistic: Option<PieceStatistic>,
    amounts: BTreeMap<String, f64>,
    /// When the work was finished, by the command's clock.
    at_ns: Option<u64>,
}

impl MarkLine {
    /// Parses a line such as `mark rate=1e6 at=12` or `mark median`; none if it is not a mark.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        if words.next()? != "mark" {
            return None;
        }
        let mut read = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("at", ns)) => read.at_ns = Some(ns.parse().ok()?),
                Some((name, amount)) => {
                    let amount = amount.parse::<f64>().ok();
                    let amount = amount.filter(|amount| amount.is_finite() && *amount >= 0.0)?;
                    read.amounts.insert(name.into(), amount);
                }
                None => {
                    let named = |statistic: &PieceStatistic| statistic.as_str() == word;
                    read.statistic = Some(PieceStatistic::ALL.into_iter().find(named)?);
                }
            }
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_distinguished_from_other_lines() {
        let read = |line: &str| MarkLine::parse(line.as_bytes());
        assert_eq!(read("mark"), Some(MarkLine::default()));
        let amounts = BTreeMap::from([("duration".into(), 0.5), ("rate".into(), 1e6)]);
        let plain = MarkLine { amounts, ..MarkLine::default() };
        assert_eq!(read("mark rate=1e6 duration=0.5").as_ref(), Some(&plain));
        let dated = MarkLine { at_ns: Some(17), ..plain };
        assert_eq!(read("mark rate=1e6 duration=0.5 at=17"), Some(dated));
        for statistic in PieceStatistic::ALL {
            let line = format!("mark {}", statistic.as_str());
            assert_eq!(read(&line), Some(MarkLine { statistic: Some(statistic), ..MarkLine::default() }));
        }
        let others = [
            "",
            "marks",
            "mark rate",
            "mark rate=x",
            "mark rate=NaN",
            "mark rate=-1",
            "mark mode",
            "median",
            "mark median=x",
            "mark rate=1 at=-5",
            "{\"mark\":1}",
        ];
        for line in others {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn latencies_are_summarised() {
        let mut ns: Vec<u64> = (0..100).rev().map(|n| n * 1000).collect();
        assert_eq!(median_and_p95(&mut ns), [50.0, 95.0]);
        assert_eq!(median_and_p95(&mut []), [0.0, 0.0]);
    }
}
