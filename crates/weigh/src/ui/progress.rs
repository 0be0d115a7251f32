//! Shows the events of a run as they come, in redrawn lines on a terminal and in plain lines
//! elsewhere.

use super::board::Board;
use super::interval::{signed, widest_of};
use super::lines::Lines;
use super::words::{self, amount, human, ordinal, percent, printable};
use super::{is_utf8, sentence};
use std::collections::BTreeMap;
use std::time::Instant;
use weigh_model::{CellProgress, Event, NoiseSeen, TrialFailure, VoidUnit, harmless};

/// Shows a run's events.
pub struct Progress {
    view: View,
    unicode: bool,
    /// The number of completed blocks, and of expected blocks in all.
    blocks: (u32, u32),
    /// The environment that the pilot has come to.
    piloted: String,
    /// Whether blocks have begun; the pilot comes before them.
    blocks_began: bool,
    /// Number of void units.
    voids: u32,
    /// Texts that come after the number of blocks.
    said: Vec<String>,
    /// How often each message came.
    times: BTreeMap<String, u32>,
}

enum View {
    Board(Box<Board>),
    Lines(Lines),
}

impl Progress {
    /// Makes a display on standard error.
    pub fn new() -> Self {
        let unicode = is_utf8();
        let view = match Board::on_terminal(unicode) {
            Some(board) => View::Board(Box::new(board)),
            None => View::Lines(Lines::new(Box::new(sentence))),
        };
        Self::on(view, unicode)
    }

    fn on(view: View, unicode: bool) -> Self {
        Self {
            view,
            unicode,
            blocks: (0, 0),
            piloted: String::new(),
            blocks_began: false,
            voids: 0,
            said: Vec::new(),
            times: BTreeMap::new(),
        }
    }

    /// Shows one event.
    pub fn show(&mut self, event: &Event) {
        self.show_at(event, Instant::now());
    }

    fn show_at(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Started { trials_done, resumed: true } => {
                self.line(&format!("continuing after {trials_done} trials"));
            }
            Event::Started { .. } => {}
            Event::PilotStarted => {
                if let View::Lines(lines) = &mut self.view {
                    lines.line("trying every workload once in every environment");
                }
                self.draw();
            }
            Event::PilotCellStarted { environment, workload } => {
                self.pilot(environment);
                self.cell(workload, environment);
            }
            Event::PilotCell { environment, workload, result } => {
                if let Err(failure) = result {
                    self.line(&format!("{environment} cannot run {workload}: {}", failure.reason));
                }
            }
            Event::SurfaceCellStarted { environment, workload } => self.cell(workload, environment),
            Event::Headroom(headroom) => self.line(&format!(
                "{} in {}: the load generator reaches {} {}/s against the null server",
                headroom.workload,
                headroom.environment,
                amount(headroom.rate_per_s),
                headroom.operation
            )),
            Event::Paced(paced) => self.line(&words::pace(paced)),
            Event::Loader(machine) => self.line(&format!(
                "load generators run on {} (kernel {}, {} CPUs) and reach this host at {}",
                machine.environment,
                machine.kernel,
                machine.cpus.len(),
                machine.host_address
            )),
            Event::Estimated { fewest_s, most_s } => self.line(&words::estimate(*fewest_s, *most_s)),
            Event::BlockStarted { of, .. } => {
                // An estimate from measurements is better than the plan's.
                self.blocks.1 = self.blocks.1.max(*of);
                self.blocks_began = true;
                self.doing("launching guests");
                self.draw();
            }
            Event::InstanceLaunched { environment, .. } => {
                self.doing(&format!("launching guests: {environment} is up"));
            }
            Event::TrialStarted { workload, environment, .. } => self.cell(workload, environment),
            Event::TrialFinished { workload, environment, failure, noise, .. } => {
                if let Some(failure) = failure {
                    self.failed(workload, environment, failure);
                }
                noise.iter().for_each(|seen| self.noise(seen, environment));
            }
            Event::UnitVoid(unit) => self.void(unit),
            Event::Progress { blocks_done, of, cells, remaining_s, target, budget_left_s } => {
                self.blocks = (*blocks_done, (*of).max(*blocks_done));
                let left = left(*remaining_s, *budget_left_s);
                self.said = left.iter().cloned().chain(self.goal(cells, *target)).collect();
                self.block(left, cells, *target, now);
            }
            Event::Warning { message } => self.repeated(message, &format!("warning: {message}")),
            Event::Finished { reason, blocks_done } => {
                match &mut self.view {
                    // The redrawn lines are removed before the last line.
                    View::Board(_) => self.view = View::Lines(Lines::new(Box::new(sentence))),
                    View::Lines(lines) => lines.finish(),
                }
                if let Some(text) = words::ending(*reason, *blocks_done) {
                    self.line(&text);
                }
            }
        }
    }

    /// Writes a line that stays.
    fn line(&mut self, text: &str) {
        let text = printable(text);
        match &mut self.view {
            View::Board(board) => board.line(&text),
            View::Lines(lines) => lines.line(&text),
        }
    }

    /// Says which environment the pilot has come to, where nothing can be redrawn.
    fn pilot(&mut self, environment: &str) {
        if self.piloted == environment {
            return;
        }
        self.piloted = environment.to_string();
        if let View::Lines(lines) = &mut self.view {
            lines.line(&printable(&format!("trying {environment}")));
        }
    }

    fn cell(&mut self, workload: &str, environment: &str) {
        self.doing(&format!("{workload} in {environment}"));
    }

    fn doing(&mut self, text: &str) {
        if let View::Board(board) = &self.view {
            board.doing(&harmless(text));
        }
    }

    /// Redraws the line of the blocks.
    fn draw(&mut self) {
        let View::Board(board) = &self.view else { return };
        let (done, of) = self.blocks;
        let voids = (self.voids > 0).then(|| format!("{} void", self.voids));
        let said: Vec<String> = self.said.iter().cloned().chain(voids).collect();
        match self.blocks_began || done > 0 {
            true => board.progress(&format!("block {} of {of}", (done + 1).min(of)), done, of, &said),
            false => board.progress("every workload once in every environment", 0, 0, &said),
        }
    }

    /// Shows that a block is done.
    fn block(&mut self, left: Option<String>, cells: &[CellProgress], target: Option<f64>, now: Instant) {
        let (done, of) = self.blocks;
        let voids = if self.voids > 0 { format!(", {} void", self.voids) } else { String::new() };
        match &mut self.view {
            View::Board(board) => board.intervals(cells, target),
            View::Lines(lines) => {
                let left = left.map(|left| format!(", about {left}")).unwrap_or_default();
                let text = format!("block {done}/{of}{left}{}{voids}", widest(cells, target));
                lines.block(printable(&text), now);
            }
        }
        self.draw();
    }

    /// Describes the precision that was asked for, and the widest interval so far.
    fn goal(&self, cells: &[CellProgress], target: Option<f64>) -> Option<String> {
        let either_way = if self.unicode { "±" } else { "+-" };
        let target = target?;
        let widest = widest_of(cells)?.log_half_width().exp_m1();
        let concluded = cells.iter().filter(|cell| cell.look.is_some()).count();
        let done =
            if concluded > 0 { format!("{concluded} of {} done, ", cells.len()) } else { String::new() };
        Some(format!(
            "{done}until {either_way}{} %: widest {either_way}{} %",
            percent(target),
            percent(widest)
        ))
    }

    fn failed(&mut self, workload: &str, environment: &str, failure: &TrialFailure) {
        let text = format!("failed: {workload} in {environment}: {}", failure.reason);
        self.repeated(&text, &text);
    }

    fn void(&mut self, unit: &VoidUnit) {
        self.voids += 1;
        let place = unit.environment.as_deref().unwrap_or_default();
        self.repeated(&format!("void {} {place}", words::cause(unit.cause)), &words::void(unit));
        self.draw();
    }

    /// Shows noise in a trial. The runner warns about the first one, with what to do.
    fn noise(&mut self, seen: &NoiseSeen, environment: &str) {
        let times = self.count(&format!("noise {} {environment}", words::cause(seen.cause)));
        let text = format!("{} ({} time)", words::noise(seen, environment), ordinal(times));
        if times > 1 && is_told(times) { self.line(&text) } else { self.notice(&text) }
    }

    /// Shows a message that may come often. It gets a line the first, the tenth and the hundredth
    /// time, and is only counted in between.
    fn repeated(&mut self, what: &str, text: &str) {
        match self.count(what) {
            1 => self.line(text),
            times => {
                let text = format!("{text} ({} time)", ordinal(times));
                if is_told(times) { self.line(&text) } else { self.notice(&text) }
            }
        }
    }

    fn count(&mut self, what: &str) -> u32 {
        let times = self.times.entry(what.to_string()).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// Shows a notice until a newer one comes. It is not shown where nothing can be redrawn.
    fn notice(&mut self, text: &str) {
        if let View::Board(board) = &mut self.view {
            board.notice(&harmless(text));
        }
    }
}

/// Whether a message gets a line at this count.
fn is_told(times: u32) -> bool {
    times.checked_ilog10().is_some_and(|digits| times == 10u32.pow(digits))
}

/// Describes the time left, and whether it is the budget's; none after the last block.
fn left(remaining_s: f64, budget_left_s: Option<f64>) -> Option<String> {
    /// Less would be shown as 0 ms.
    const LEAST_S: f64 = 0.5e-3;
    let of_budget = budget_left_s.is_some_and(|budget_s| remaining_s >= budget_s);
    let text = || format!("{} left{}", human(remaining_s), if of_budget { " of the budget" } else { "" });
    (remaining_s > LEAST_S).then(text)
}

/// Describes the widest interval so far, which decides how long the run takes, and the width that
/// was asked for.
fn widest(cells: &[CellProgress], target: Option<f64>) -> String {
    let Some(cell) = widest_of(cells) else { return String::new() };
    let asked = target.map(|target| format!(", asked: to within {} %", percent(target))).unwrap_or_default();
    format!(
        "; widest: {} {} {} % [{}, {}], n {}{asked}",
        cell.workload,
        cell.environment,
        signed(cell.overhead),
        signed(cell.ci_low),
        signed(cell.ci_high),
        cell.n
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;
    use weigh_model::{FailureKind, FinishReason, VoidCause};

    /// Makes a display that keeps its lines.
    fn kept() -> (Progress, Rc<RefCell<Vec<String>>>) {
        let kept = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&kept);
        let lines = Lines::new(Box::new(move |text| sink.borrow_mut().push(text.to_string())));
        (Progress::on(View::Lines(lines), true), kept)
    }

    fn trial(noise: Vec<NoiseSeen>, failure: Option<TrialFailure>) -> Event {
        Event::TrialFinished {
            sequence: 0,
            block: 0,
            workload: "stream".into(),
            environment: "native".into(),
            took_s: 1.0,
            failure,
            noise,
        }
    }

    fn done(blocks_done: u32, target: Option<f64>, budget_left_s: Option<f64>) -> Event {
        let cell = CellProgress {
            workload: "stream".into(),
            metric: "triad".into(),
            environment: "docker".into(),
            overhead: 0.0123,
            ci_low: 0.0041,
            ci_high: 0.0205,
            n: blocks_done,
            look: None,
        };
        Event::Progress { blocks_done, of: 30, cells: vec![cell], remaining_s: 200.0, target, budget_left_s }
    }

    #[test]
    fn the_pilot_has_a_line_for_each_environment() {
        let (mut progress, lines) = kept();
        progress.show(&Event::PilotStarted);
        for (environment, workload) in [("native", "spin"), ("native", "stream"), ("docker", "spin")] {
            let (environment, workload) = (environment.into(), workload.into());
            progress.show(&Event::PilotCellStarted { environment, workload });
        }
        let expected = ["trying every workload once in every environment", "trying native", "trying docker"];
        assert_eq!(lines.take(), expected);
    }

    #[test]
    fn a_block_line_has_the_time_left_and_the_widest_interval() {
        let (mut progress, lines) = kept();
        progress.show(&Event::BlockStarted { block: 0, of: 30 });
        progress.show(&done(1, Some(0.01), None));
        assert_eq!(
            lines.take(),
            [
                "block 1/30, about 3 min 20 s left; widest: stream docker +1.23 % [+0.41, +2.05], n 1, asked: to within 1 %"
            ]
        );
        let (mut progress, lines) = kept();
        progress.show(&done(1, None, Some(200.0)));
        assert!(lines.take()[0].starts_with("block 1/30, about 3 min 20 s left of the budget; widest"));
    }

    #[test]
    fn nothing_is_said_of_time_after_the_last_block() {
        let (mut progress, lines) = kept();
        let Event::Progress { cells, .. } = done(30, None, None) else { unreachable!() };
        progress.show(&Event::Progress {
            blocks_done: 30,
            of: 30,
            cells,
            remaining_s: 0.0,
            target: None,
            budget_left_s: Some(0.0),
        });
        assert_eq!(lines.take(), ["block 30/30; widest: stream docker +1.23 % [+0.41, +2.05], n 30"]);
        assert!(progress.said.is_empty(), "the board says what comes after the blocks: {:?}", progress.said);
    }

    #[test]
    fn a_concluded_cell_is_counted_and_is_not_the_widest() {
        let (progress, _) = kept();
        let Event::Progress { cells, .. } = done(12, None, None) else { unreachable!() };
        let wide = CellProgress { ci_high: 0.4, look: Some(10), n: 10, ..cells[0].clone() };
        let all = [cells[0].clone(), wide];
        let said = progress.goal(&all, Some(0.01)).unwrap();
        assert!(said.starts_with("1 of 2 done, until ") && !said.contains("40"), "{said}");
        assert!(!progress.goal(&all[..1], Some(0.01)).unwrap().contains("done"));
    }

    #[test]
    fn a_thousand_short_blocks_are_few_lines_and_the_last_is_among_them() {
        let (mut progress, lines) = kept();
        let begun = Instant::now();
        for block in 1..=1000 {
            let now = begun + Duration::from_millis(20 * u64::from(block));
            progress.show_at(&Event::BlockStarted { block: block - 1, of: 1000 }, now);
            progress.show_at(&done(block, None, None), now);
        }
        progress.show(&Event::Finished { reason: FinishReason::Budget, blocks_done: 1000 });
        let lines = lines.take();
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert!(lines[4].starts_with("block 1000/1000,") && lines[5].contains("budget"), "{lines:?}");
    }

    #[test]
    fn noise_is_warned_of_once_and_then_counted() {
        let (mut progress, lines) = kept();
        let foreign = NoiseSeen { cause: VoidCause::ForeignCpu, share: Some(0.031) };
        progress.show(&Event::Warning { message: "other processes ran".into() });
        for _ in 0..12 {
            progress.show(&trial(vec![foreign], None));
        }
        let lines = lines.take();
        assert_eq!(lines, ["warning: other processes ran", "foreign CPU 3.1 % in native (10th time)"]);
    }

    #[test]
    fn a_repeated_event_is_reported_once() {
        let (mut progress, lines) = kept();
        let failure =
            TrialFailure { kind: FailureKind::Check, reason: "the sum is\x1b[2J wrong".into(), log: None };
        for block in 0..25 {
            progress.show(&trial(Vec::new(), Some(failure.clone())));
            progress.show(&Event::UnitVoid(VoidUnit {
                environment: Some("docker".into()),
                detail: Some("2.5 %".into()),
                ..VoidUnit::of(block, 0, "stream", VoidCause::Steal)
            }));
        }
        progress.show(&done(1, None, None));
        let failed = "failed: stream in native: the sum is\\u{1b}[2J wrong";
        let lines = lines.take();
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[0], failed);
        assert_eq!(lines[1], "void: block 0 of stream, steal in docker: 2.5 %");
        assert_eq!(lines[2], format!("{failed} (10th time)"));
        assert_eq!(lines[3], "void: block 9 of stream, steal in docker: 2.5 % (10th time)");
        assert!(lines[4].ends_with(", 25 void"), "{}", lines[4]);
        // Another place or another cause makes a new message.
        progress.show(&Event::UnitVoid(VoidUnit {
            environment: Some("native".into()),
            ..VoidUnit::of(30, 0, "stream", VoidCause::Steal)
        }));
        assert_eq!(progress.voids, 26);
    }

    #[test]
    fn lines_come_at_powers_of_ten() {
        let told: Vec<u32> = (0..=1000).filter(|times| is_told(*times)).collect();
        assert_eq!(told, [1, 10, 100, 1000]);
    }
}
