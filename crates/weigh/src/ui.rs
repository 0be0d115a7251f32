//! The only place that writes to the terminal.

use crate::error::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{GraphicalReportHandler, GraphicalTheme};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use weigh_model::{CellProgress, Event, FinishReason, Paced, VoidCause, VoidUnit};

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Columns.
    pub width: usize,
    /// Whether colour is wanted and possible (`NO_COLOR`, not a terminal).
    pub color: bool,
    /// Whether the locale shows more than ASCII.
    pub unicode: bool,
}

/// The terminal on standard output. `COLUMNS` overrides its width; without a terminal it is 120 columns.
pub fn terminal() -> Terminal {
    let output = io::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let measured =
        rustix::termios::tcgetwinsize(&output).ok().map(|size| usize::from(size.ws_col)).filter(|w| *w > 0);
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    Terminal {
        width: columns.or(measured).unwrap_or(120).max(40),
        color: !no_color && (forced || output.is_terminal()),
        unicode: is_utf8(),
    }
}

fn is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale =
        set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_uppercase();
    // Without any locale the terminal is more likely UTF-8 than not; an explicit C or POSIX is believed.
    locale.is_empty() || locale.contains("UTF-8") || locale.contains("UTF8")
}

/// Prints a result to standard output. A closed pipe (`weigh show | head`) ends it quietly.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _closed_pipe = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
}

/// Says something beside the result, on standard error.
pub fn note(text: &str) {
    let _closed = writeln!(io::stderr(), "{text}");
}

/// Shows a failure with its place, causes and hint.
pub fn failure(failure: &Failure) {
    let color =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let theme = match (color, is_utf8()) {
        (true, true) => GraphicalTheme::unicode(),
        (false, true) => GraphicalTheme::unicode_nocolor(),
        (_, false) => GraphicalTheme::none(),
    };
    let mut text = String::new();
    if GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, failure).is_err() {
        text = failure.to_string();
    }
    let _closed = write!(io::stderr(), "{text}");
}

/// Shows a run's events: a bar on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    blocks: (u32, u32),
    current: String,
    intervals: String,
    remaining: Option<Duration>,
}

impl Progress {
    /// A display on standard error.
    pub fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{spinner} block {pos}/{len} [{bar:24}] {wide_msg}")
                .expect("the template is a constant")
                .progress_chars("=> ");
            bar.set_style(style);
            bar
        });
        Self { bar, blocks: (0, 0), current: String::new(), intervals: String::new(), remaining: None }
    }

    /// Shows one event.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Started { trials_done, resumed: true } => {
                self.line(&format!("going on after {trials_done} trials"))
            }
            Event::Started { .. } => {}
            Event::PilotStarted => self.line("trying every workload once in every environment"),
            Event::PilotCell { environment, workload, result } => match result {
                Ok(_) => self.cell(workload, environment),
                Err(failure) => {
                    self.line(&format!("{environment} cannot run {workload}: {}", failure.reason))
                }
            },
            Event::Headroom(headroom) => self.line(&format!(
                "{} in {}: the load generator reaches {} {}/s against a server that answers at once",
                headroom.workload,
                headroom.environment,
                amount(headroom.rate_per_s),
                headroom.operation
            )),
            Event::Paced(paced) => self.line(&pace(paced)),
            Event::Loader(machine) => self.line(&format!(
                "load generators run on {} (kernel {}, {} CPUs) and reach this host at {}",
                machine.environment,
                machine.kernel,
                machine.cpus.len(),
                machine.host_address
            )),
            Event::Estimated { fewest_s, most_s } => self.line(&estimate(*fewest_s, *most_s)),
            Event::BlockStarted { block, of } => {
                self.blocks = (*block, *of);
                self.draw();
            }
            Event::InstanceLaunched { .. } => {}
            Event::TrialStarted { workload, environment, .. } => self.cell(workload, environment),
            Event::TrialFinished { workload, environment, failure: Some(failure), .. } => {
                self.line(&format!("failed: {workload} in {environment}: {}", failure.reason));
            }
            Event::TrialFinished { .. } => {}
            Event::UnitVoid(unit) => {
                self.line(&void(unit));
            }
            Event::Progress { blocks_done, cells, remaining_s } => {
                self.blocks.0 = *blocks_done;
                self.remaining = Duration::try_from_secs_f64(*remaining_s).ok();
                self.intervals = widest(cells);
                if self.bar.is_none() {
                    self.line(&format!(
                        "block {blocks_done}/{}{}{}",
                        self.blocks.1,
                        self.left(),
                        self.intervals
                    ));
                }
                self.draw();
            }
            Event::Warning { message } => self.line(&format!("warning: {message}")),
            Event::Finished { reason, blocks_done } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                if let Some(text) = ending(*reason, *blocks_done) {
                    note(&text);
                }
            }
        }
    }

    fn cell(&mut self, workload: &str, environment: &str) {
        self.current = format!("{workload} in {environment}");
        self.draw();
    }

    fn left(&self) -> String {
        self.remaining.map(|left| format!(", about {} left", human(left.as_secs_f64()))).unwrap_or_default()
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            // A bar of no length shows as full: during the pilot no block is done of at least one.
            bar.set_length(u64::from(self.blocks.1.max(self.blocks.0).max(1)));
            bar.set_position(u64::from(self.blocks.0));
            bar.set_message(format!("{}{}{}", self.current, self.left(), self.intervals));
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }
}

/// Shows how many of many equal steps are done: a bar on a terminal, a line now and then elsewhere.
pub struct Steps {
    bar: Option<ProgressBar>,
    what: &'static str,
    started: Instant,
}

/// Lines of [`Steps`] where there is no terminal.
const LINES_OF_STEPS: u32 = 10;

impl Steps {
    /// A display on standard error of steps that are each called `what`.
    pub fn new(what: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{spinner} {prefix} {pos}/{len} [{bar:24}] {wide_msg}")
                .expect("the template is a constant")
                .progress_chars("=> ");
            bar.set_style(style);
            bar.set_prefix(what);
            bar
        });
        Self { bar, what, started: Instant::now() }
    }

    /// Shows that `done` of `of` steps are done.
    pub fn show(&mut self, done: u32, of: u32) {
        let left_s = self.started.elapsed().as_secs_f64() / f64::from(done.max(1)) * f64::from(of - done);
        let left = format!("about {} left", human(left_s));
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(of));
                bar.set_position(u64::from(done));
                bar.set_message(left);
            }
            None if done.is_multiple_of(of.div_ceil(LINES_OF_STEPS)) && done < of => {
                note(&format!("{} {done}/{of}, {left}", self.what));
            }
            None => {}
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The estimate before the first trial.
fn estimate(fewest_s: f64, most_s: f64) -> String {
    if most_s > fewest_s * 1.05 {
        format!("estimate: {} to {}", human(fewest_s), human(most_s))
    } else {
        format!("estimate: {}", human(fewest_s))
    }
}

fn ending(reason: FinishReason, blocks: u32) -> Option<String> {
    match reason {
        FinishReason::Blocks | FinishReason::Precision => None,
        FinishReason::MaximumBlocks => Some(format!(
            "stopped after {blocks} blocks, the most a run takes: some interval is wider than asked (give --blocks for more)"
        )),
        FinishReason::Budget => {
            Some(format!("stopped after {blocks} blocks: the budget is used up; intervals are wider for it"))
        }
        FinishReason::Interrupted => {
            Some(format!("interrupted after {blocks} complete blocks; `weigh resume` goes on"))
        }
        FinishReason::NothingRuns => Some("no environment can run any of the workloads".into()),
    }
}

/// The widest interval so far: the one that decides how long the run takes.
fn widest(cells: &[CellProgress]) -> String {
    let width = |cell: &CellProgress| cell.ci_high - cell.ci_low;
    cells
        .iter()
        .filter(|cell| width(cell).is_finite())
        .max_by(|a, b| width(a).total_cmp(&width(b)))
        .map(|cell| {
            format!(
                "; widest: {} {} {:+.1} % [{:+.1}, {:+.1}]",
                cell.workload,
                cell.environment,
                cell.overhead * 100.0,
                cell.ci_low * 100.0,
                cell.ci_high * 100.0
            )
        })
        .unwrap_or_default()
}

/// A duration for people: `850 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn human(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The rate of an open loop, and what it follows from.
fn pace(paced: &Paced) -> String {
    let Paced { workload, operation, share, rate_per_s, .. } = paced;
    let of = paced.slowest().map(|(slowest, reached)| {
        format!(", {} % of the {} that the slowest, {slowest}, reaches", share * 100.0, amount(reached))
    });
    format!(
        "{workload}: {} {operation}/s leave in every environment{}",
        amount(*rate_per_s),
        of.unwrap_or_default()
    )
}

/// A large number for people: `118 k`, `2.4 M`.
fn amount(number: f64) -> String {
    let prefixes = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (factor, prefix) = prefixes.into_iter().find(|(factor, _)| number >= *factor).unwrap_or((1.0, ""));
    let scaled = number / factor;
    if scaled < 10.0 { format!("{scaled:.1}{prefix}") } else { format!("{scaled:.0}{prefix}") }
}

/// A void unit in a line: where, why, and what was seen.
fn void(unit: &VoidUnit) -> String {
    let cause = match unit.cause {
        VoidCause::Interrupted => "interrupted",
        VoidCause::Steal => "steal",
        VoidCause::ForeignCpu => "foreign CPU",
        VoidCause::Throttle => "throttled",
        VoidCause::Clock => "wrong clock",
    };
    let place = unit.environment.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    let detail = unit.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("void: block {} of {}, {cause}{place}{detail}", unit.block, unit.workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(human(0.85), "850 ms");
        assert_eq!(human(12.4), "12 s");
        assert_eq!(human(200.0), "3 min 20 s");
        assert_eq!(human(7500.0), "2 h 5 min");
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!([amount(17.0), amount(118_400.0), amount(2.44e6)], ["17", "118 k", "2.4 M"]);
    }

    #[test]
    fn an_estimate_is_a_range_only_when_it_is_one() {
        assert_eq!(estimate(60.0, 60.0), "estimate: 1 min 0 s");
        assert_eq!(estimate(60.0, 120.0), "estimate: 1 min 0 s to 2 min 0 s");
    }
}
