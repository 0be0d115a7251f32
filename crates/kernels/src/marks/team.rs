//! Marks of a team.

use super::Marks;
use crate::team::Member;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// [`Marks`] for work that a team does together. The first member prints them, with the work that
/// all members have finished by then. Members do not wait for each other after each piece.
pub(crate) struct TeamMarks<'a> {
    marks: Mutex<&'a mut Marks>,
    /// Finished work that is not reported yet.
    amount: AtomicU64,
    total: AtomicU64,
    /// Whether the turn was found to be over since the members last met.
    over: AtomicBool,
    stopped: AtomicBool,
    /// What all members are told when they meet; it changes at their next meeting.
    turn_is_over: AtomicBool,
    work_is_over: AtomicBool,
}

/// What all members of a team are told when they meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnState {
    /// The turn is over, or the work is.
    pub(crate) turn_is_over: bool,
    /// The work must end.
    pub(crate) work_is_over: bool,
}

impl<'a> TeamMarks<'a> {
    pub(crate) fn new(marks: &'a mut Marks) -> Self {
        let [over, stopped, turn_is_over, work_is_over] = [const { AtomicBool::new(false) }; 4];
        let [amount, total] = [const { AtomicU64::new(0) }; 2];
        Self { marks: Mutex::new(marks), amount, total, over, stopped, turn_is_over, work_is_over }
    }

    /// Calls [`Marks::ready`] once all members have arrived here. None continues before.
    pub(crate) fn ready(&self, member: &Member<'_>) {
        self.together(member, |marks| marks.ready());
    }

    /// Reports a piece of work of `member`. Returns whether the work must end.
    pub(crate) fn done(&self, member: &Member<'_>, metric: &str, amount: u64) -> bool {
        self.amount.fetch_add(amount, Ordering::Relaxed);
        if member.index == 0 {
            let mut marks = self.lock();
            self.report(&mut marks, metric);
            if marks.stopped() {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for all members and prints all pending work. Returns whether the work must end.
    pub(crate) fn finish_turn(&self, member: &Member<'_>, metric: &str) -> bool {
        self.over.store(true, Ordering::Relaxed);
        self.meet(member, metric).work_is_over
    }

    /// Waits for all members. If the turn of `metric` is over then, its pending work is printed.
    pub(crate) fn meet(&self, member: &Member<'_>, metric: &str) -> TurnState {
        self.together(member, |marks| {
            self.report(marks, metric);
            let stopped = self.stopped.load(Ordering::Relaxed);
            let over = stopped || self.over.load(Ordering::Relaxed);
            self.turn_is_over.store(over, Ordering::Relaxed);
            self.work_is_over.store(stopped, Ordering::Relaxed);
            if over {
                marks.flush();
                self.over.store(false, Ordering::Relaxed);
            }
        });
        TurnState {
            turn_is_over: self.turn_is_over.load(Ordering::Relaxed),
            work_is_over: self.work_is_over.load(Ordering::Relaxed),
        }
    }

    /// All reported work.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Reports what all members have finished so far.
    fn report(&self, marks: &mut Marks, metric: &str) {
        let amount = self.amount.swap(0, Ordering::Relaxed);
        self.total.fetch_add(amount, Ordering::Relaxed);
        if amount > 0 && marks.done(&[(metric, amount as f64)]) && marks.turn_is_over() {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    fn together(&self, member: &Member<'_>, report: impl FnOnce(&mut Marks)) {
        member.barrier.wait();
        if member.index == 0 {
            report(&mut self.lock());
        }
        member.barrier.wait();
    }

    fn lock(&self) -> MutexGuard<'_, &'a mut Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    #[test]
    fn a_team_reports_as_one() {
        let (mut marks, printed) = marks_of(Duration::from_secs(1000), 3);
        let marks = TeamMarks::new(&mut marks);
        let pieces = crate::team::Team::new(3).unwrap().run(|member| {
            marks.ready(&member);
            let pieces = (1u64..).find(|_| marks.done(&member, "rate", 1)).unwrap();
            assert!(marks.meet(&member, "rate").work_is_over);
            pieces
        });
        let pieces = pieces.unwrap();
        assert_eq!(pieces[0], 3);
        assert_eq!(marks.total(), pieces.iter().sum::<u64>());
        // What the first member knew when it was told to end, and what the others finished
        // afterwards.
        let printed = printed.text();
        let amounts = printed.lines().filter_map(|line| line.strip_prefix("mark rate="));
        assert_eq!(amounts.map(|amount| amount.parse::<u64>().unwrap()).sum::<u64>(), marks.total());
        assert!(printed.starts_with("mark\nmark rate="));
    }
}
