//! Time from the call to the probe's hello: machines as the platforms launch them, against the
//! shortest manual command line that does the same with the same kernel and initial RAM file
//! system.

use crate::guests::{launch, request, with_host};
use crate::{Fallible, Line, Outcome, median, ratio};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};
use weigh_images::Root;
use weigh_model::ImageSpec;
use weigh_platforms::{Host, Session};

const PAIRS: u64 = 15;
/// Time limit for a hello.
const DEADLINE: Duration = Duration::from_secs(60);

/// A machine whose launch is timed.
struct Machine {
    /// Environment, as users write it.
    environment: &'static str,
    /// The program that must be installed.
    program: &'static str,
    /// Longest time that a launch may take, seconds.
    goal_s: f64,
    /// The manual command line, given the archive of the same root and a directory for its files.
    by_hand: fn(archive: &Path, directory: &Path) -> Invocation,
    /// The archive that the platform made for a root.
    archive: fn(&Root) -> PathBuf,
}

const MACHINES: &[Machine] = &[Machine {
    environment: "uml",
    program: "linux.uml",
    goal_s: 3.5,
    by_hand: uml_by_hand,
    archive: |root| root.skeleton.with_file_name("uml.cpio"),
}];

/// The command line of the kernel's own guide, with the options that make it fast; nothing is
/// confined or recorded.
fn uml_by_hand(archive: &Path, directory: &Path) -> Invocation {
    Invocation::new("linux.uml")
        .args(["mem=512M", "rdinit=/.weighbridge/probe", "uml_dir=./", "umid=hand", "quiet"])
        .arg(format!("initrd={}", archive.display()))
        .args(["con=null", "ssl0=fd:0,fd:1", "--", "--channel", "/dev/ttyS0"])
        .env("TMPDIR", "/dev/shm")
        .current_dir(directory)
}

pub fn measure() -> Outcome {
    if !weigh_host::facts::is_root() {
        return Err("it needs root".into());
    }
    let mut lines = Vec::new();
    let mut skipped = Vec::new();
    for machine in MACHINES {
        match find_program(machine.program) {
            Some(_) => lines.extend(with_host("bench-boot", &ImageSpec::Host, |host, root| {
                measure_machine(machine, host, root)
            })?),
            None => skipped.push(format!("{} is not installed", machine.program)),
        }
    }
    if lines.is_empty() { Err(skipped.join(", ").into()) } else { Ok(lines) }
}

fn measure_machine(machine: &Machine, host: &Host, root: &Arc<Root>) -> Outcome {
    // One unmeasured launch makes the archive and brings the kernel's file into the page cache.
    launch(host, &request(root, machine.environment, 0)?)?;
    let archive = (machine.archive)(root);
    let directory = host.work.join("by-hand");
    std::fs::create_dir_all(&directory)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for i in 0..2 {
            if (pair + i) % 2 == 0 {
                ours.push(launch(host, &request(root, machine.environment, 1 + pair)?)?);
            } else {
                theirs.push(launch_by_hand((machine.by_hand)(&archive, &directory))?);
            }
        }
    }
    let (value, text) = ratio(&ours, &theirs)?;
    let name = machine.environment;
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let what = format!("{name} {ours:.3} s, by hand {theirs:.3} s (medians)");
    Ok(vec![
        Line { what, value: text, goal: "<= 1.1", met: value <= 1.1 },
        Line {
            what: format!("{name}, launch to the probe's hello"),
            value: format!("{ours:.3} s"),
            goal: "<= 3.5 s",
            met: ours <= machine.goal_s,
        },
    ])
}

/// Returns the time to the hello; the machine powers off when its channel is closed.
fn launch_by_hand(invocation: Invocation) -> Fallible<f64> {
    let start = Instant::now();
    let mut running = invocation.spawn()?;
    let ends: Option<(OwnedFd, OwnedFd)> = running.take_output().zip(running.take_input());
    let (output, input) = ends.ok_or("no standard streams")?;
    let mut session = Session::over_terminal(output, input);
    session.announced(DEADLINE)?;
    let took = start.elapsed().as_secs_f64();
    session.shutdown(DEADLINE)?;
    running.wait(DEADLINE)?.ok_or("it does not power off")?;
    Ok(took)
}
