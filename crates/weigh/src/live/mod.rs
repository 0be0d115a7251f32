//! The report of a run while it goes on, for browsers on this machine.
//!
//! ```text
//! Event --Live::show--> how far the run is --GET /state--> the page's script
//!            |
//!            +-- between blocks, when somebody asks: records on disk --> page --GET /--> browser
//! ```
//!
//! The page is made when nothing is measured: before the first block and between blocks, while the
//! run waits for it, and only if somebody has asked since the last one. Requests are answered at
//! any time by threads of the lowest priority, from what is in memory.

mod http;
mod server;

use crate::error::{Failure, Kind};
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

/// The least time between two pages.
const BETWEEN_PAGES: Duration = Duration::from_secs(10);
/// And at least so many times what making one took: 5 % of a run at most go into its pages.
const REST_PER_PAGE: u32 = 19;
/// Somebody who asked this long ago still looks. The script asks every two seconds.
const LOOKING: Duration = Duration::from_secs(5);
/// How long the last page waits for who looks: the script asks once more in that time.
const LAST_PAGE: Duration = Duration::from_secs(3);
/// The lowest priority that there is (`setpriority(2)`).
const LOWEST_PRIORITY: i32 = 19;

/// A port of this machine's loopback interface, held for a run.
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Takes a port, 0 for any that is free, before anything else is done.
    ///
    /// # Errors
    /// It is taken, or not for this user.
    pub fn take(port: u16) -> Result<Self, Failure> {
        // Never another interface: whoever reaches this one is on this machine already.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        });
        taken.map_err(|error| {
            Failure::new(Kind::Failed, format!("cannot serve the live report on port {port} of 127.0.0.1"))
                .because(error)
                .hint("`--live` without a number takes a port that is free")
        })
    }
}

/// How far the run is.
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
    /// No page is made before.
    next: Instant,
    /// Whether it was said that a page could not be made.
    complained: bool,
}

impl Live {
    /// Makes the first page from what the run directory holds, and begins to serve it.
    ///
    /// # Errors
    /// The page cannot be made, or no thread be started.
    pub fn serve(port: Port, directory: &Path) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let mut live = Self {
            shared: Arc::clone(&shared),
            address: port.address,
            directory: directory.into(),
            standing: Standing::default(),
            next: Instant::now(),
            complained: false,
        };
        live.publish(false, || read(directory))?;
        // The next one comes as soon as it is wanted: this one mostly says that there is nothing
        // yet.
        live.next = Instant::now();
        server::start(port.listener, shared)
            .map_err(|error| Failure::new(Kind::Failed, "cannot serve the live report").because(error))?;
        Ok(live)
    }

    /// Where it is, and what to heed.
    pub fn announcement(&self) -> String {
        let port = self.address.port();
        format!(
            "live: http://{}/ (a browser on this machine takes CPU time from what is measured; from another one: ssh -L \
             {port}:127.0.0.1:{port} HOST)",
            self.address
        )
    }

    /// Takes note of an event. Between blocks it makes a page, if one is wanted. What it returns is
    /// to be told.
    pub fn show(&mut self, event: &Event) -> Option<String> {
        let standing = &mut self.standing;
        let mut measures_nothing = false;
        match event {
            Event::PilotStarted => standing.doing = "every workload once in every environment".into(),
            Event::PilotCellStarted { environment, workload } => {
                standing.doing = format!("{workload} in {environment}, once and unmeasured");
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
        first.then(|| format!("the live report could not be made anew: {failure}"))
    }

    /// The run has ended: its report is the last page, and who looks gets it.
    pub fn finish(mut self, report: &Report, interrupt: &AtomicBool) {
        // A page that cannot be made must not hide the result: who looks is told that the run has
        // ended.
        let _kept_the_one_before = self.publish(true, || Ok(report));
        self.shared.finish();
        let end = Instant::now() + LAST_PAGE;
        let was = interrupt.load(Ordering::Relaxed);
        while self.shared.is_awaited() && Instant::now() < end {
            // A second Ctrl-C ends weigh by itself; the first after the result ends the waiting.
            if interrupt.load(Ordering::Relaxed) != was {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a page in a thread of the lowest priority, so that a defect in it ends the page and
    /// not the run, and waits for it.
    fn publish<R: Borrow<Report>>(
        &mut self,
        ended: bool,
        report: impl FnOnce() -> Result<R, Failure> + Send,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let page = LivePage { version: self.shared.version() + 1, made: clock_time(), ended };
        let failed = || Failure::new(Kind::Failed, "the page of the live report cannot be made");
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

/// The report of what is on disk so far.
fn read(directory: &Path) -> Result<Report, Failure> {
    outcome::from_run(&RunDirectory::open(directory)?)
}

/// `2026-11-22 19:03:12`, UTC.
fn clock_time() -> String {
    utc_now().chars().take(19).collect::<String>().replace('T', " ")
}

/// What else wants the CPU goes first.
fn lower_priority() {
    // Without it the thread is one like others, which is no reason to go without the page.
    let _as_it_was = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
}
