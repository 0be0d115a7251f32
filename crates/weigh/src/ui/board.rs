//! Shows progress on a terminal: lines at the bottom that are redrawn, and lines above them that
//! stay.
//!
//! ```text
//! void: block 3 of stream, foreign CPU in docker: 3.1 % of 2 CPUs in 1.00 s, ...
//! block 7 of 30 [━━━━━━━━━            ] 12 min 3 s left, until ±1 %: widest ±2.3 %, 1 void
//! ⠹ 12 s stream in docker
//! foreign CPU 3.1 % in native (4th time)
//!   stream triad in docker  +1.23 % [+0.42, +2.04] n 6            │ ──━●━──
//! ```
//!
//! While a trial is measured, a thread redraws the second of these lines twice a second and nothing
//! else happens.

use super::{Size, interval, moves_cursor, size_of_errors, wrapped};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;
use unicode_width::UnicodeWidthStr;
use weigh_model::CellProgress;

/// The largest number of redraws per second.
const RATE_HZ: u8 = 4;
/// Time between two steps of the spinner. The redraws of ten seconds take some milliseconds of CPU
/// time.
const TICK: Duration = Duration::from_millis(500);
/// The largest number of rows of intervals.
const MOST_ROWS: usize = 8;
/// The number of screen lines that rows of intervals leave free.
const OTHER_LINES: usize = 6;
/// The number of columns of the shortest and of the longest bar.
const BAR_COLUMNS: (usize, usize) = (8, 40);
/// The position of the line of notices, after the lines of the blocks and of the cell.
const NOTICE_PLACE: usize = 2;

/// The lines that are redrawn.
pub(super) struct Board {
    all: MultiProgress,
    blocks: ProgressBar,
    cell: ProgressBar,
    notice: Option<ProgressBar>,
    /// All rows of intervals, which are redrawn as one line.
    rows: Option<ProgressBar>,
    size: Box<dyn Fn() -> Size>,
    /// Writes a line that stays.
    write: Box<dyn Fn(&str)>,
    unicode: bool,
}

impl Board {
    /// Makes a board on standard error, if that is a terminal that can move its cursor.
    pub(super) fn on_terminal(unicode: bool) -> Option<Self> {
        let target = moves_cursor().then(|| ProgressDrawTarget::stderr_with_hz(RATE_HZ))?;
        let board = Self::on(target, Box::new(size_of_errors), Box::new(super::note), unicode);
        board.cell.enable_steady_tick(TICK);
        Some(board)
    }

    fn on(
        target: ProgressDrawTarget,
        size: Box<dyn Fn() -> Size>,
        write: Box<dyn Fn(&str)>,
        unicode: bool,
    ) -> Self {
        let all = MultiProgress::with_draw_target(target);
        let blocks = all.add(text_line());
        let cell = all.add(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()));
        let style = ProgressStyle::with_template("{spinner} {running} {wide_msg}")
            .expect("the template is a constant")
            .tick_chars(if unicode { "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ " } else { "|/-\\ " })
            .with_key("running", |state: &ProgressState, out: &mut dyn Write| {
                let _never_fails = out.write_str(&running(state.elapsed()));
            });
        cell.set_style(style);
        Self { all, blocks, cell, notice: None, rows: None, size, write, unicode }
    }

    /// Writes a text above the redrawn lines.
    pub(super) fn line(&self, text: &str) {
        let columns = (self.size)().columns;
        self.all
            .suspend(|| text.lines().flat_map(|line| wrapped(line, columns)).for_each(|l| (self.write)(&l)));
    }

    /// Shows the progress of the run. As many of the texts in `said` as fit come after the bar.
    /// Without blocks there is no bar.
    pub(super) fn progress(&self, what: &str, done: u32, of: u32, said: &[String]) {
        let columns = (self.size)().columns;
        self.blocks.set_message(progress_line(what, done, of, said, columns, self.unicode));
    }

    /// Shows what is being done now.
    pub(super) fn doing(&self, text: &str) {
        self.cell.reset_elapsed();
        self.cell.set_message(text.to_string());
    }

    /// Shows a notice in a line of its own until there is a newer one.
    pub(super) fn notice(&mut self, text: &str) {
        let columns = (self.size)().columns;
        let text = interval::shortened(text, columns, self.unicode);
        let line = self.notice.get_or_insert_with(|| self.all.insert(NOTICE_PLACE, text_line()));
        line.set_message(text);
    }

    /// Shows the widest intervals, as many as the screen has room for.
    pub(super) fn intervals(&mut self, cells: &[CellProgress], target: Option<f64>) {
        let Size { columns, rows } = (self.size)();
        let most = MOST_ROWS.min(rows.saturating_sub(OTHER_LINES));
        let texts = interval::rows(cells, target, columns, most, self.unicode);
        if texts.is_empty() {
            if let Some(rows) = self.rows.take() {
                rows.finish_and_clear();
                self.all.remove(&rows);
            }
            return;
        }
        let rows = self.rows.get_or_insert_with(|| self.all.add(line("{msg}")));
        rows.set_message(texts.join("\n"));
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.cell.disable_steady_tick();
        let lines = [&self.blocks, &self.cell].into_iter().chain(&self.notice).chain(&self.rows);
        lines.for_each(ProgressBar::finish_and_clear);
        let _nothing_to_do_about_it = self.all.clear();
    }
}

/// Makes a line that is cut to the width of the terminal.
fn text_line() -> ProgressBar {
    line("{wide_msg}")
}

fn line(template: &str) -> ProgressBar {
    // Keep it hidden until it has its position, because it would be drawn at once otherwise.
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    line.with_style(ProgressStyle::with_template(template).expect("the template is a constant"))
}

/// Formats the time since something began; under a minute, in whole seconds.
fn running(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { super::human(seconds as f64) }
}

fn progress_line(what: &str, done: u32, of: u32, said: &[String], columns: usize, unicode: bool) -> String {
    let bar_room = if of == 0 { 0 } else { BAR_COLUMNS.0 + 3 };
    let mut end = String::new();
    for part in said {
        let longer = if end.is_empty() { part.clone() } else { format!("{end}, {part}") };
        if what.width() + bar_room + 1 + longer.width() > columns {
            break;
        }
        end = longer;
    }
    let taken = what.width() + end.width() + 4;
    let room = columns.saturating_sub(taken).min(BAR_COLUMNS.1);
    let bar = if of > 0 && room >= BAR_COLUMNS.0 { bar(done, of, room, unicode) } else { String::new() };
    [what, &bar, &end].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Draws a bar such as `[======      ]`.
fn bar(done: u32, of: u32, columns: usize, unicode: bool) -> String {
    let share = f64::from(done.min(of)) / f64::from(of.max(1));
    let full = (share * columns as f64).floor() as usize;
    let mark = if unicode { "━" } else { "=" };
    format!("[{}{}]", mark.repeat(full), " ".repeat(columns - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{InMemoryTerm, TermLike};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn board(columns: u16, rows: u16, unicode: bool) -> (Board, InMemoryTerm) {
        let screen = InMemoryTerm::new(rows, columns);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let size = Size { columns: columns.into(), rows: rows.into() };
        let above = screen.clone();
        let write = move |line: &str| above.write_line(line).unwrap();
        (Board::on(target, Box::new(move || size), Box::new(write), unicode), screen)
    }

    fn cells(count: u32) -> Vec<CellProgress> {
        let cell = |at: u32| CellProgress {
            workload: "a-workload-with-a-name".into(),
            metric: "throughput".into(),
            environment: format!("docker:net=nat,label=number-{at}"),
            overhead: 0.01 * f64::from(at),
            ci_low: 0.005 * f64::from(at),
            ci_high: 0.02 * f64::from(at) + 0.01,
            n: 6,
            look: None,
        };
        (0..count).map(cell).collect()
    }

    fn said() -> Vec<String> {
        ["12 min 3 s left", "until ±1 %: widest ±2.3 %", "3 void"].map(String::from).to_vec()
    }

    /// Fills all lines, twice, and writes a long line in between.
    fn fill(board: &mut Board) {
        board.progress("block 7 of 30", 6, 30, &said());
        board.doing("a-workload-with-a-name in docker:net=nat,label=number-1");
        board.intervals(&cells(12), Some(0.01));
        board.line("warning: other processes ran on the CPUs in use: 3.1 % of 2 CPUs in 1.00 s; end them, or keep them off with --cpus");
        board.notice("foreign CPU 3.1 % in docker:net=nat,label=number-1 (4th time)");
        board.intervals(&cells(12), Some(0.01));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in [40, 80, 200] {
            let (mut board, screen) = board(columns, 30, true);
            fill(&mut board);
            let shown = screen.contents();
            let lines: Vec<&str> = shown.lines().collect();
            let first = lines.iter().position(|line| line.starts_with("block 7 of 30")).unwrap();
            // A line that is too wide would take two lines of the screen.
            assert_eq!(lines.len() - first, 3 + MOST_ROWS, "{columns}:\n{shown}");
            assert!(lines[first + 1].contains("0 s a-workload"), "{shown}");
            assert!(lines[first + 2].starts_with("foreign CPU 3.1 % i"), "{shown}");
            assert!(lines[first + 3..].iter().all(|row| row.contains(" n 6")), "{shown}");
            let above = lines[..first].join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(above.ends_with("end them, or keep them off with --cpus"), "{shown}");
            drop(board);
            let left = screen.contents();
            assert_eq!(left.lines().collect::<Vec<_>>(), lines[..first], "only what was said stays");
        }
    }

    #[test]
    fn a_low_screen_has_fewer_rows() {
        for (rows, shown) in [(24, 8), (10, 4), (6, 0), (3, 0)] {
            let (mut board, screen) = board(80, rows, true);
            board.progress("block 7 of 30", 6, 30, &said());
            board.doing("u in e");
            board.intervals(&cells(12), None);
            let contents = screen.contents();
            assert_eq!(
                contents.lines().filter(|line| line.contains(" n 6")).count(),
                shown,
                "{rows}:\n{contents}"
            );
            assert!(contents.contains("block 7 of 30"), "{contents}");
        }
    }

    #[test]
    fn rows_that_are_no_more_are_gone_and_a_terminal_may_change_its_size() {
        let columns = Arc::new(AtomicUsize::new(80));
        let (mut board, screen) = board(80, 24, true);
        let now = Arc::clone(&columns);
        board.size = Box::new(move || Size { columns: now.load(Ordering::Relaxed), rows: 24 });
        board.progress("block 7 of 30", 6, 30, &said());
        board.doing("u in e");
        board.intervals(&cells(5), None);
        columns.store(40, Ordering::Relaxed);
        board.intervals(&cells(2), None);
        let contents = screen.contents();
        let rows: Vec<&str> = contents.lines().filter(|line| line.contains(" n 6")).collect();
        assert_eq!(rows.len(), 2, "{contents}");
        assert!(rows.iter().all(|row| row.width() <= 40), "{contents}");
    }

    #[test]
    fn without_unicode_all_is_ascii() {
        let (mut board, screen) = board(100, 24, false);
        board.progress("block 7 of 30", 6, 30, &["3 void".into()]);
        board.doing("u in e");
        board.intervals(&cells(3), Some(0.001));
        assert!(screen.contents().is_ascii(), "{}", screen.contents());
    }

    #[test]
    fn a_narrow_progress_line_keeps_the_time_left() {
        let line = |columns| progress_line("block 7 of 30", 15, 30, &said(), columns, false);
        assert_eq!(line(40), "block 7 of 30 [====    ] 12 min 3 s left");
        assert!(line(60).ends_with("] 12 min 3 s left"), "{}", line(60));
        assert!(line(80).ends_with("] 12 min 3 s left, until ±1 %: widest ±2.3 %, 3 void"), "{}", line(80));
        for columns in 20..200 {
            assert!(line(columns).width() <= columns.max(13), "{columns}: {}", line(columns));
        }
        assert_eq!(progress_line("first runs", 0, 0, &[], 40, true), "first runs");
        assert_eq!((bar(0, 30, 10, false), bar(40, 30, 4, false)), ("[          ]".into(), "[====]".into()));
    }

    #[test]
    fn times_are_whole_seconds() {
        let texts = [0, 59, 60, 200].map(|seconds| running(Duration::from_millis(seconds * 1000 + 900)));
        assert_eq!(texts, ["0 s", "59 s", "1 min 0 s", "3 min 20 s"]);
    }
}
