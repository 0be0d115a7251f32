//! The live report: the report of a run in progress, for browsers on this machine.
//!
//! ```text
//! Event --Live::show--> how far the run is --GET /state--> the page's script
//!            |
//!            +-- between blocks, when somebody asks: records on disk --> page --GET /--> browser
//! ```
//!
//! The page is rendered while nothing is measured, before the first block and between blocks. The
//! run waits for it, and it is only rendered if a browser has asked since the last time. Threads of
//! the lowest priority reply to requests at any time from memory.

mod http;
mod server;

use crate::error::{ExitKind, Failure};
use crate::outcome;
use server::Shared;
use std::borrow::Borrow;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_host::clock::utc_now;
use weigh_model::Event;
use weigh_report::{LivePage, Report, render_live};
use weigh_store::RunDirectory;

/// The shortest time between two pages.
const BETWEEN_PAGES: Duration = Duration::from_secs(10);
/// The pause after a page is at least this many times the time that the page took, so that pages
/// take at most 5 % of a run.
const REST_PER_PAGE: u32 = 19;
/// A browser counts as present for this long after a request. The script asks every two seconds.
const LOOKING: Duration = Duration::from_secs(5);
/// How long weigh waits at the end for browsers to ask for the last page: the script asks once more
/// in that time. Those that are receiving it then get the time of any reply.
const LAST_PAGE: Duration = Duration::from_secs(3);
/// The lowest priority (`setpriority(2)`).
const LOWEST_PRIORITY: i32 = 19;

/// A port of this machine's loopback interface, held for a run.
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Takes a port; 0 takes any that is free.
    ///
    /// # Errors
    /// The port is taken, or this user may not take it.
    pub fn take(port: u16) -> Result<Self, Failure> {
        // Bind only this interface, which nobody can reach from another machine.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        });
        taken.map_err(|error| {
            Failure::new(
                ExitKind::Failed,
                format!("cannot serve the live report on port {port} of 127.0.0.1"),
            )
            .because(error)
            .hint("`--live` without a number takes a free port")
        })
    }
}

/// The progress of the run.
#[derive(Debug, Clone, Default)]
struct Standing {
    blocks_done: u32,
    blocks: u32,
    doing: String,
    remaining_s: Option<f64>,
}

/// The live report of one run.
pub struct Live {
    shared: Arc<Shared>,
    address: SocketAddr,
    directory: PathBuf,
    standing: Standing,
    /// When the next page may be rendered.
    next: Instant,
    /// Whether the user was told that a page could not be rendered.
    complained: bool,
}

impl Live {
    /// Renders the first page from the run directory, and serves it.
    ///
    /// # Errors
    /// The page cannot be rendered; no thread can be started.
    pub fn serve(port: Port, directory: &Path) -> Result<Self, Failure> {
        let refused = |error| Failure::new(ExitKind::Failed, "cannot serve the live report").because(error);
        let shared = Arc::new(Shared::new().map_err(refused)?);
        let mut live = Self {
            shared: Arc::clone(&shared),
            address: port.address,
            directory: directory.into(),
            standing: Standing::default(),
            next: Instant::now(),
            complained: false,
        };
        live.publish(false, || read(directory))?;
        // The next page is rendered as soon as a browser asks, because this one usually has no
        // values.
        live.next = Instant::now();
        server::start(port.listener, shared).map_err(refused)?;
        Ok(live)
    }

    /// The address, which is a secret, and how to view it without disturbing the run.
    pub fn announcement(&self) -> String {
        let port = self.address.port();
        format!(
            "live: http://{}{} (a browser on this host disturbs the measurement; to view from elsewhere: ssh -L \
             {port}:127.0.0.1:{port} HOST)",
            self.address,
            self.shared.path()
        )
    }

    /// Follows an event, and between blocks renders a page if a browser has asked for one. Returns
    /// a warning for the user.
    pub fn show(&mut self, event: &Event) -> Option<String> {
        let standing = &mut self.standing;
        let mut measures_nothing = false;
        match event {
            Event::PilotStarted => standing.doing = "every workload once in every environment".into(),
            Event::PilotCellStarted { environment, workload } => {
                standing.doing = format!("{workload} in {environment}, once and unmeasured");
            }
            Event::SurfaceCellStarted { environment, workload } => {
                standing.doing = format!("{workload} in {environment}, while its system calls are counted");
            }
            Event::BlockStarted { of, .. } => {
                standing.blocks = standing.blocks.max(*of);
                standing.doing = "launching guests".into();
            }
            Event::TrialStarted { workload, environment, .. } => {
                standing.doing = format!("{workload} in {environment}");
            }
            Event::Progress { blocks_done, of, remaining_s, .. } => {
                standing.blocks_done = *blocks_done;
                standing.blocks = (*of).max(*blocks_done);
                standing.remaining_s = Some(*remaining_s);
                standing.doing = "between two blocks".into();
                measures_nothing = true;
            }
            _ => return None,
        }
        self.shared.tell(self.standing.clone());
        if !measures_nothing || Instant::now() < self.next || !self.shared.is_wanted() {
            return None;
        }
        let directory = self.directory.clone();
        let failure = self.publish(false, || read(&directory)).err()?;
        let first = !std::mem::replace(&mut self.complained, true);
        first.then(|| format!("the live report could not be updated: {failure}"))
    }

    /// Serves the report of the finished run until the browsers that are looking have had the time to
    /// fetch it.
    pub fn finish(mut self, report: &Report, interrupt: &AtomicBool) {
        // A page that cannot be rendered must not hide the result; browsers still learn that the
        // run has ended.
        let _kept_the_one_before = self.publish(true, || Ok(report));
        self.shared.finish();
        let ended = Instant::now();
        let was = interrupt.load(Ordering::Relaxed);
        while self.shared.is_needed(ended.elapsed()) {
            // The first Ctrl-C after the result ends the wait; a second one ends weigh itself.
            if interrupt.load(Ordering::Relaxed) != was {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Renders a page in a thread of the lowest priority and waits for it. Where panics unwind, as
    /// in tests, a panic ends the page and not the run; a release, in which they abort, ends with
    /// its run, which `weigh resume` continues.
    fn publish<R: Borrow<Report>>(
        &mut self,
        ended: bool,
        report: impl FnOnce() -> Result<R, Failure> + Send,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let page = LivePage { version: self.shared.version() + 1, made: clock_time(), ended };
        let failed = || Failure::new(ExitKind::Failed, "the page of the live report cannot be made");
        let make = || {
            lower_priority();
            render_live(report()?.borrow(), &page).map_err(|error| failed().because(error))
        };
        let made = std::thread::scope(|scope| {
            std::thread::Builder::new().name("live page".into()).spawn_scoped(scope, make).map(|it| it.join())
        });
        let html = match made {
            Ok(Ok(made)) => made?,
            Ok(Err(_panicked)) => return Err(failed()),
            Err(error) => return Err(failed().because(error)),
        };
        self.shared.publish(page.version, html);
        self.next = Instant::now() + BETWEEN_PAGES.max(begun.elapsed() * REST_PER_PAGE);
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.finish();
        self.shared.close(self.address);
    }
}

/// Makes the report from the samples on disk.
fn read(directory: &Path) -> Result<Report, Failure> {
    outcome::from_run(&RunDirectory::open(directory)?)
}

/// Returns the time in UTC, as in `2026-11-22 19:03:12`.
fn clock_time() -> String {
    utc_now().chars().take(19).collect::<String>().replace('T', " ")
}

/// Gives this thread the lowest priority.
fn lower_priority() {
    // At the usual priority the page still works, so a failure is ignored.
    let _as_it_was = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
}
