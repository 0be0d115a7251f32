//! Shows the progress of the machines of a fleet: a line for each on a watched terminal, or else a
//! line for each change.

use super::interval::shortened;
use super::{Size, is_utf8, moves_cursor, note, size_of_errors};
use crate::fleet::Update;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use weigh_model::harmless;
use weigh_store::fleet::MachineState;

/// The largest number of redraws per second.
const RATE_HZ: u8 = 4;
/// The number of screen lines that machines leave free.
const OTHER_LINES: usize = 4;

/// Shows the progress of machines.
pub struct FleetProgress {
    names: Vec<String>,
    watch: bool,
    /// The lines of all machines, redrawn as one.
    table: Option<(MultiProgress, ProgressBar)>,
    /// State and last output line of each machine.
    machines: Vec<(&'static str, String)>,
    unicode: bool,
}

impl FleetProgress {
    /// Makes a display on standard error of machines with these names. If `watch` is set, it also
    /// shows what they print.
    pub fn new(names: Vec<String>, watch: bool) -> Self {
        let target = (watch && moves_cursor()).then(|| ProgressDrawTarget::stderr_with_hz(RATE_HZ));
        let table = target.map(|target| {
            let all = MultiProgress::with_draw_target(target);
            let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style);
            let bar = all.add(bar);
            (all, bar)
        });
        let machines = names.iter().map(|_| ("waiting", String::new())).collect();
        Self { names, watch, table, machines, unicode: is_utf8() }
    }

    /// Shows a change of the machine at an index.
    pub fn show(&mut self, at: usize, update: &Update) {
        let name = &self.names[at];
        let line = match update {
            Update::Said(text) => {
                self.machines[at].1.clone_from(text);
                self.watch.then(|| format!("{name}: {text}")).filter(|_| self.table.is_none())
            }
            Update::State(state) => {
                let (word, reason) = words(state);
                self.machines[at] = (word, reason.clone());
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                Some(format!("{name}: {word}{reason}"))
            }
        };
        match (&self.table, line) {
            (None, line) => line.into_iter().for_each(|line| note(&harmless(&line))),
            (Some((all, bar)), line) => {
                if let Some(line) = line {
                    all.suspend(|| note(&harmless(&line)));
                }
                let size = size_of_errors();
                bar.set_message(table(&self.names, &self.machines, size, self.unicode).join("\n"));
            }
        }
    }
}

impl Drop for FleetProgress {
    fn drop(&mut self) {
        if let Some((_, bar)) = &self.table {
            bar.finish_and_clear();
        }
    }
}

fn words(state: &MachineState) -> (&'static str, String) {
    match state {
        MachineState::Waiting { reason } => ("waiting", reason.clone().unwrap_or_default()),
        MachineState::Running => ("running", String::new()),
        MachineState::Done => ("done", String::new()),
        MachineState::Failed { reason } => ("failed", reason.clone()),
    }
}

/// Returns a line for each machine that the screen has room for: those under way first, then those
/// that wait. The last line counts all.
fn table(names: &[String], machines: &[(&'static str, String)], size: Size, unicode: bool) -> Vec<String> {
    let room = size.rows.saturating_sub(OTHER_LINES).max(1);
    let widest = names.iter().map(String::len).max().unwrap_or(0).min(size.columns / 3);
    let rank = |state: &str| ["running", "waiting", "failed", "done"].iter().position(|it| *it == state);
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|at| (rank(machines[*at].0), *at));
    let line = |at: &usize| {
        let (state, said) = &machines[*at];
        let name = shortened(&names[*at], widest.max(8), unicode);
        shortened(&harmless(&format!("{name:widest$}  {state:7}  {said}")), size.columns, unicode)
    };
    let mut lines: Vec<String> = order.iter().take(room).map(line).collect();
    let count = |state: &str| machines.iter().filter(|(it, _)| *it == state).count();
    let counts = ["done", "failed", "running", "waiting"].map(|state| format!("{} {state}", count(state)));
    lines.push(counts.join(", "));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_shows_those_under_way_and_counts_all() {
        let names: Vec<String> = (0..30).map(|at| format!("machine-{at}")).collect();
        let mut machines = vec![("done", String::new()); 30];
        machines[17] = ("running", "block 3/6, about 12 s left, which is more than fits the line".into());
        machines[3] = ("failed", "away\u{1b}[2J".into());
        let lines = table(&names, &machines, Size { columns: 60, rows: 10 }, true);
        assert_eq!(lines.len(), 7);
        assert!(lines[0].starts_with("machine-17  running  block 3/"), "{lines:?}");
        assert!(lines[1].starts_with("machine-3   failed   away\\u{1b}"), "{lines:?}");
        assert_eq!(lines[6], "28 done, 1 failed, 1 running, 0 waiting");
        assert!(
            lines.iter().all(|line| unicode_width::UnicodeWidthStr::width(line.as_str()) <= 60),
            "{lines:?}"
        );
    }
}
