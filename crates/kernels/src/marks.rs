//! The endless form of a kernel: it works without end and reports finished work in lines that the
//! host dates.
//!
//! The clock of a guest runs on while the guest is frozen, so a kernel that is frozen repeatedly
//! cannot time itself. With `--marks TIME` it prints lines to standard output:
//!
//! - `mark`: the time since the previous line does not count as work. The first such line says that
//!   set-up is over. `mark median` also says that the usual cost is to be reported, because the
//!   whole form reports the median or the best of its repetitions. Without this word the mean is
//!   reported.
//! - `mark NAME=AMOUNT [NAME=AMOUNT...]`: the amount of work since the previous line, for each
//!   metric of the kernel that this work is measured by. A metric for which lower is better is the
//!   time divided by the amount; a rate is the amount divided by the time.
//!
//! With `--marks TIME` each line is printed at once, and the host dates it when it arrives. With
//! `--marks TIME,BATCH` lines are printed together, each time that much CPU time has passed, and
//! each ends with `at=NS`: the time on `CLOCK_MONOTONIC` at which the work was finished, for a host
//! that has the same clock. The programs between kernel and host, such as an engine, then run less
//! often beside what is measured.
//!
//! SIGTERM ends the work after the current piece. The check and the usual line follow.

mod option;
mod team;

pub use option::{HELP, MarkInterval, requested};
pub(crate) use team::TeamMarks;

use crate::clock::{cpu_with_children_ns, now_ns};
use crate::kernel::KernelError;
use std::fmt::Write as _;
use std::io::Write;
#[cfg(not(target_family = "wasm"))]
use std::mem::MaybeUninit;
use std::time::Duration;
use weigh_model::PieceStatistic;

/// The most CPU time until the clock is read and the signal checked again. Both are system calls,
/// which some platforms answer a hundred times as slowly as the host: after every piece of work
/// they would be part of what is measured.
const LOOK_NS: u64 = 12_000_000;

/// Length of a turn of one metric, in multiples of the time between two marks.
const TURN: u64 = 2;

/// What a kernel in its endless form reports to, and what tells it when to end.
pub(crate) struct Marks {
    statistic: PieceStatistic,
    every_ns: u64,
    /// When the present turn ends; `None` before the first.
    turn_ends_ns: Option<u64>,
    /// [`LOOK_NS`], or 0 to read the clock after every piece.
    look_ns: u64,
    /// CPU time of the process, and of its children that have ended, at the last mark.
    last_ns: u64,
    /// The same at the last reading of the clock.
    looked_ns: u64,
    /// Pieces since then, and how many there may be until the next reading.
    unseen: u64,
    until_look: u64,
    /// Work that no mark has reported yet.
    pending: Vec<(String, f64)>,
    /// CPU time between two prints; `None` to print each line at once.
    batch_ns: Option<u64>,
    /// Lines that are not printed yet, and the CPU time of the process at the last print.
    lines: String,
    printed_ns: u64,
    output: Box<dyn Write + Send>,
    end_requested: Box<dyn FnMut() -> bool + Send>,
    /// Why a mark could not be written; the work ends then.
    failure: Option<std::io::Error>,
}

impl Marks {
    /// Writes marks to standard output, at the given distances of CPU time. From here on SIGTERM
    /// stays pending in this thread and the threads that it starts.
    pub(crate) fn new(every: MarkInterval, statistic: PieceStatistic) -> Result<Self, KernelError> {
        block_sigterm().map_err(KernelError::system("block SIGTERM"))?;
        let output = Box::new(std::io::stdout());
        let marks = Self::with((every.mark, LOOK_NS), output, Box::new(sigterm_is_pending));
        Ok(Self { batch_ns: every.batch.map(saturating_ns), statistic, ..marks })
    }

    fn with(
        (every, look_ns): (Duration, u64),
        output: Box<dyn Write + Send>,
        end_requested: Box<dyn FnMut() -> bool + Send>,
    ) -> Self {
        let now_ns = cpu_with_children_ns();
        Self {
            statistic: PieceStatistic::Mean,
            every_ns: saturating_ns(every),
            turn_ends_ns: None,
            look_ns,
            last_ns: now_ns,
            looked_ns: now_ns,
            unseen: 0,
            until_look: 1,
            pending: Vec::new(),
            batch_ns: None,
            lines: String::new(),
            printed_ns: now_ns,
            output,
            end_requested,
            failure: None,
        }
    }

    /// Reports that the time since the last mark does not count as work: work begins now.
    pub(crate) fn ready(&mut self) {
        debug_assert!(
            self.pending.is_empty(),
            "work that is pending is printed before other things are done"
        );
        match self.statistic {
            PieceStatistic::Mean => self.add("mark"),
            other => self.add(&format!("mark {}", other.as_str())),
        }
        // The host waits for the first of these lines.
        self.print();
    }

    /// Reports a piece of work: its amount for each metric. Returns whether a mark was printed.
    /// Pieces of other metrics may follow only after [`Self::flush`], or after a mark.
    pub(crate) fn done(&mut self, amounts: &[(&str, f64)]) -> bool {
        if self.pending.is_empty() {
            self.pending.extend(amounts.iter().map(|(name, _)| ((*name).to_owned(), 0.0)));
        }
        debug_assert!(
            self.pending.iter().map(|(name, _)| name.as_str()).eq(amounts.iter().map(|(name, _)| *name))
        );
        for ((_, pending), (_, amount)) in self.pending.iter_mut().zip(amounts) {
            *pending += amount;
        }
        self.unseen += 1;
        if self.unseen < self.until_look {
            return false;
        }
        let now_ns = cpu_with_children_ns();
        let pieces = self.unseen;
        let piece_ns = (now_ns.saturating_sub(self.looked_ns) / pieces).max(1);
        (self.looked_ns, self.unseen) = (now_ns, 0);
        let left_ns = self.every_ns.saturating_sub(now_ns.saturating_sub(self.last_ns));
        if left_ns == 0 {
            self.flush();
            return true;
        }
        // At most twice as many as before: the clock may have ticks of 10 ms and stand still in
        // between.
        self.until_look = (left_ns.min(self.look_ns) / piece_ns).clamp(1, 2 * pieces);
        false
    }

    /// Prints the mark of the pending work, because other work follows.
    pub(crate) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut line = String::from("mark");
        for (name, amount) in self.pending.drain(..) {
            let _ = write!(line, " {name}={amount}");
        }
        self.add(&line);
    }

    /// Whether the work must end. If so, prints the pending work.
    pub(crate) fn stopped(&mut self) -> bool {
        let stopped = self.failure.is_some() || (self.unseen == 0 && (self.end_requested)());
        if stopped {
            self.flush();
            self.print();
        }
        stopped
    }

    /// Whether the turn of a metric is over, after a mark of it was printed. If so, the next turn
    /// begins.
    ///
    /// Turns end at even distances of CPU time, as closely as marks allow. Guests that are compared
    /// begin together, so that all of them work on the same metric in the same slices, and a slow
    /// period affects the same metric in all of them.
    fn turn_is_over(&mut self) -> bool {
        let (now_ns, turn_ns) = (self.last_ns, TURN.saturating_mul(self.every_ns));
        let begun_ns = now_ns.saturating_sub(self.every_ns);
        let ends_ns = self.turn_ends_ns.unwrap_or_else(|| begun_ns.saturating_add(turn_ns));
        let over = now_ns.saturating_add(self.every_ns / 2) >= ends_ns;
        // Long pieces delay the turns.
        let next_ns = if over { ends_ns.max(begun_ns).saturating_add(turn_ns) } else { ends_ns };
        self.turn_ends_ns = Some(next_ns);
        over
    }

    /// Does pieces of work until the turn of their metric is over or the work must end. `piece`
    /// returns the amount.
    pub(crate) fn turn(
        &mut self,
        metric: &str,
        mut piece: impl FnMut() -> Result<f64, KernelError>,
    ) -> Result<(), KernelError> {
        loop {
            let amount = piece()?;
            if self.done(&[(metric, amount)]) && self.turn_is_over() || self.stopped() {
                return Ok(());
            }
        }
    }

    /// Whether all marks were written.
    pub(crate) fn finish(mut self) -> Result<(), KernelError> {
        self.print();
        self.failure.map_or(Ok(()), |error| Err(KernelError::system("write a mark")(error)))
    }

    /// Adds a line to those to print, and prints them when it is time.
    fn add(&mut self, line: &str) {
        self.lines.push_str(line);
        if self.batch_ns.is_some() {
            let _ = write!(self.lines, " at={}", now_ns());
        }
        self.lines.push('\n');
        self.last_ns = cpu_with_children_ns();
        if self.batch_ns.is_none_or(|batch_ns| self.last_ns - self.printed_ns >= batch_ns) {
            self.print();
        }
        // The next work may be of another kind, with longer pieces.
        (self.looked_ns, self.unseen, self.until_look) = (self.last_ns, 0, 1);
    }

    /// Prints the lines. Standard output is line-buffered: whole lines, with nothing before them in
    /// the buffer, are one write(2).
    fn print(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let written = self.output.write_all(self.lines.as_bytes()).and_then(|()| self.output.flush());
        self.failure = self.failure.take().or(written.err());
        self.lines.clear();
        if self.batch_ns.is_none() {
            // The program that passes the line on may wait for this CPU, and the line has no date
            // until then.
            std::thread::yield_now();
        }
        self.last_ns = cpu_with_children_ns();
        self.printed_ns = self.last_ns;
    }
}

fn saturating_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// WASI has no signals.
#[cfg(target_family = "wasm")]
fn block_sigterm() -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(target_family = "wasm")]
fn sigterm_is_pending() -> bool {
    false
}

/// The set that holds only SIGTERM.
#[cfg(not(target_family = "wasm"))]
fn sigterm() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before sigaddset changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}

/// Blocks the signal, which is then polled and not handled. So no call is interrupted, and programs
/// that the kernel starts are spared a signal to the process group, because a blocked signal stays
/// blocked across execve(2).
#[cfg(not(target_family = "wasm"))]
fn block_sigterm() -> std::io::Result<()> {
    // SAFETY: the set lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &sigterm(), std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

#[cfg(not(target_family = "wasm"))]
fn sigterm_is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: sigpending fills the set; it fails for an invalid address only.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGTERM) == 1
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    /// The printed marks, readable while they are being written.
    #[derive(Clone, Default)]
    pub(crate) struct Printed(Arc<Mutex<Vec<u8>>>);

    impl Printed {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Marks in memory that request the end when they have been asked `pieces` times.
    pub(crate) fn marks_of(every: Duration, pieces: u32) -> (Marks, Printed) {
        let (printed, mut asked) = (Printed::default(), 0);
        let end = move || {
            asked += 1;
            asked >= pieces
        };
        (Marks::with((every, 0), Box::new(printed.clone()), Box::new(end)), printed)
    }

    #[test]
    fn each_mark_holds_the_work_since_the_one_before() {
        let (mut marks, printed) = marks_of(Duration::ZERO, 9);
        marks.ready();
        assert!(marks.done(&[("duration", 0.025), ("rate", 2.5e7)]));
        assert!(marks.done(&[("rate", 1.0)]));
        marks.flush();
        assert_eq!(printed.text(), "mark\nmark duration=0.025 rate=25000000\nmark rate=1\n");

        let mut marks = Marks { statistic: PieceStatistic::Median, ..marks };
        marks.ready();
        assert_eq!(printed.text().lines().last(), Some("mark median"));

        let (mut marks, printed) = marks_of(Duration::from_secs(1000), 3);
        assert!(!marks.done(&[("rate", 1e18)]) && !marks.done(&[("rate", 1e18)]));
        assert!(!marks.stopped() && !marks.stopped() && printed.text().is_empty());
        assert!(marks.stopped());
        assert_eq!(printed.text(), "mark rate=2000000000000000000\n");
        marks.finish().unwrap();
    }

    #[test]
    fn marks_that_are_printed_together_have_their_times() {
        let (marks, printed) = marks_of(Duration::ZERO, 9);
        let mut marks = Marks { batch_ns: Some(u64::MAX), ..marks };
        marks.ready();
        assert_eq!(printed.text().lines().count(), 1, "the host waits for the first");
        assert!(marks.done(&[("rate", 1.0)]) && marks.done(&[("rate", 2.0)]));
        assert_eq!(printed.text().lines().count(), 1);
        marks.finish().unwrap();
        let text = printed.text();
        let (words, times): (Vec<_>, Vec<_>) =
            text.lines().map(|line| line.rsplit_once(" at=").unwrap()).unzip();
        assert_eq!(words, ["mark", "mark rate=1", "mark rate=2"]);
        let times: Vec<u64> = times.iter().map(|at| at.parse().unwrap()).collect();
        assert!(times.is_sorted() && times[0] < times[2], "{times:?}");

        let (marks, printed) = marks_of(Duration::ZERO, 9);
        let mut marks = Marks { batch_ns: Some(0), ..marks };
        marks.ready();
        marks.done(&[("rate", 1.0)]);
        assert_eq!(printed.text().lines().count(), 2, "no CPU time is left to wait for");
    }

    #[test]
    fn turns_end_at_even_distances_of_cpu_time() {
        let mut marks = marks_of(Duration::from_nanos(100), 9).0;
        let mut over_at = |ns: u64| {
            marks.last_ns = 1000 + ns;
            marks.turn_is_over()
        };
        // The first mark of the first turn comes after 100, so the turn ends at 200.
        let found = [100, 203, 330, 410, 520, 570, 1500, 1540, 1600].map(&mut over_at);
        assert_eq!(found, [false, true, false, true, false, true, true, false, true]);
        assert!(marks_of(Duration::ZERO, 9).0.turn_is_over(), "each piece is a turn");
    }

    #[test]
    fn a_mark_that_cannot_be_written_ends_the_work() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut marks = Marks::with((Duration::ZERO, 0), Box::new(Closed), Box::new(|| false));
        assert!(!marks.stopped());
        marks.ready();
        assert!(marks.stopped());
        assert!(marks.finish().unwrap_err().to_string().starts_with("cannot write a mark"));
    }

    /// For pieces of microseconds the clock is read only every few milliseconds.
    #[test]
    fn short_pieces_are_not_slowed_down_by_looking() {
        let (printed, asked) = (Printed::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&asked);
        let end = move || count.fetch_add(1, Ordering::Relaxed) > 1000;
        let every = Duration::from_millis(20);
        let mut marks = Marks::with((every, LOOK_NS), Box::new(printed.clone()), Box::new(end));
        marks.ready();
        let mut pieces = 0u64;
        while printed.text().lines().count() < 4 {
            std::hint::black_box((0..1000u64).fold(pieces, |sum, n| sum ^ n.wrapping_mul(sum)));
            marks.done(&[("rate", 1.0)]);
            assert!(!marks.stopped());
            pieces += 1;
        }
        let asked = asked.load(Ordering::Relaxed);
        assert!(pieces > 100 && asked < pieces / 4, "asked {asked} times in {pieces} pieces");
        let printed = printed.text();
        let amounts = printed.lines().filter_map(|line| line.strip_prefix("mark rate="));
        assert_eq!(amounts.map(|amount| amount.parse::<u64>().unwrap()).sum::<u64>(), pieces);
    }
}
