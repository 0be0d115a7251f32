//! Runs a fleet by connections, of `ssh` or `kubectl`, with a thread for each machine and one
//! connection for each run.

use super::work::{LastLines, Work, own_program, shortened};
use super::{Failure, shares};
use crate::host::{close_ledger, ledger_failure, run_id, state_directory};
use crate::ui;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use weigh_host::command::Running;
use weigh_host::ledger::Ledger;
use weigh_images::transfer;
use weigh_model::EnvironmentSpec;
use weigh_platforms::fleet::{FleetMachine, MachineFacts};
use weigh_platforms::with_causes;
use weigh_store::StoreError;
use weigh_store::fleet::MachineState;

/// How many copies of the program are sent at once.
const COPIES: usize = 4;
/// The interval at which a run checks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// The deadline for the client to end after its streams have.
const EXIT: Duration = Duration::from_secs(20);
/// The longest line that a machine may print, bytes.
const LONGEST_LINE: usize = 1 << 16;
/// How many lines wait to be logged. A machine that prints more waits, too.
const MOST_LINES: usize = 64;
/// The longest fact about a machine that is recorded, characters.
const LONGEST_FACT: usize = 200;
/// The greatest number of files that a machine may send, and of bytes of logs.
const MOST_FILES: u64 = 20_000;
const MOST_LOG_BYTES: u64 = 2 << 30;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Has the machines measure that are not done, until each has ended.
///
/// # Errors
/// The ledger or the program cannot be read or written.
pub fn carry_out(work: &Work<'_>) -> std::result::Result<(), Failure> {
    let ledger = Ledger::create(&state_directory()?, &format!("fleet-{}", run_id()));
    let ledger = ledger.map_err(ledger_failure)?;
    let conduct = Conduct::new(work, &ledger, own_program()?);
    let unfinished = work.unfinished();
    // Ask all machines before the first is measured: of two names of one machine the first counts.
    let asked: Vec<(usize, Result<(FleetMachine, MachineFacts)>)> = std::thread::scope(|scope| {
        let ask = |at| (at, scope.spawn(move || Conduct::ask(work, at)));
        let asked: Vec<_> = unfinished.into_iter().map(ask).collect();
        asked.into_iter().map(|(at, thread)| (at, joined(thread.join()))).collect()
    });
    std::thread::scope(|scope| {
        for (at, asked) in asked {
            let checked = asked.and_then(|(machine, facts)| {
                conduct.check(at, &facts)?;
                Ok((machine, facts))
            });
            let conduct = &conduct;
            scope.spawn(move || {
                let state = checked.and_then(|(machine, facts)| conduct.one(at, &machine, &facts));
                let failed = |error: Box<dyn Error + Send + Sync>| MachineState::Failed {
                    reason: with_causes(&*error),
                };
                if let Err(error) = work.set(at, state.unwrap_or_else(failed)) {
                    ui::note(&format!("warning: {}", with_causes(&error)));
                }
            });
        }
    });
    if ledger.standing().is_empty() {
        return close_ledger(&ledger);
    }
    ui::note(
        "note: machines that could not be reached still hold a part of the fleet; `weigh resume` brings back what is not here, `weigh clean` removes it",
    );
    Ok(())
}

/// Returns the result of a thread. If the thread panicked, resumes the panic.
fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The state that all machines share.
struct Conduct<'a, 'w> {
    work: &'a Work<'w>,
    ledger: &'a Ledger,
    program: Vec<u8>,
    /// Permits to copy; a machine that copies holds one of them.
    copies: [Mutex<()>; COPIES],
    /// The index of the machine of each running kernel.
    kernels: Mutex<BTreeMap<String, usize>>,
    /// The name and the facts of the first machine, or of one that is done, which the others must
    /// be like if they share the blocks of one plan.
    first: Mutex<Option<(String, BTreeMap<String, String>)>>,
}

impl<'a, 'w> Conduct<'a, 'w> {
    fn new(work: &'a Work<'w>, ledger: &'a Ledger, program: Vec<u8>) -> Self {
        let first = Mutex::new(work.with(|directory| shares::first_done(directory.fleet())));
        Self { work, ledger, program, copies: Default::default(), kernels: Mutex::default(), first }
    }

    fn ask(work: &Work<'_>, at: usize) -> Result<(FleetMachine, MachineFacts)> {
        let spec = EnvironmentSpec::parse(&work.machine(at).via)?;
        FleetMachine::check(&spec)?;
        let machine = FleetMachine::of(&spec)?;
        let facts = machine.ask(&work.log(at))?;
        Ok((machine, facts))
    }

    /// Refuses a machine that cannot run this program, that is in the fleet under another name, or
    /// that is unlike the first one although they share the blocks of one plan.
    fn check(&self, at: usize, facts: &MachineFacts) -> Result<()> {
        if !facts.takes_programs() {
            let MachineFacts { system, architecture, .. } = facts;
            let here = std::env::consts::ARCH;
            return Err(format!(
                "it is {system} on {architecture}, and this weigh is for Linux on {here}; give machines of another kind a fleet of their own, from a host of that kind"
            )
            .into());
        }
        if self.work.with(|fleet| fleet.fleet().shares() > 0) {
            let name = self.work.machine(at).name;
            let kept = |fact: &String| shortened(fact.clone(), LONGEST_FACT);
            let own = facts.kind.iter().map(|(what, fact)| ((*what).to_string(), kept(fact)));
            let own: BTreeMap<String, String> = own.collect();
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            let (of, facts_of) = first.get_or_insert_with(|| (name, own.clone()));
            let differences = shares::differences(&own, facts_of, of);
            if !differences.is_empty() {
                return Err(format!(
                    "it is not like the others and measured nothing: {}; {}",
                    differences.join(", "),
                    shares::IF_UNLIKE
                )
                .into());
            }
            self.work.update(at, |machine| machine.facts = own)?;
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        match kernels.get(&facts.boot).filter(|_| !facts.boot.is_empty()) {
            Some(first) => {
                let first = self.work.machine(*first).name;
                Err(format!("it runs the same kernel as `{first}`, so that they are one machine; leave one of them out").into())
            }
            None => {
                kernels.insert(facts.boot.clone(), at);
                Ok(())
            }
        }
    }

    /// Measures on one machine, and returns its state.
    fn one(&self, at: usize, machine: &FleetMachine, facts: &MachineFacts) -> Result<MachineState> {
        let (work, log) = (self.work, self.work.log(at));
        if let Some(left) = work.machine(at).directory {
            work.said(at, "bringing back what an earlier connection left there");
            let back = self.bring_back(at, machine, &left);
            back.map_err(|error| format!("{}; `weigh clean` removes what is there", with_causes(&*error)))?;
            self.remove(at, machine, &left)?;
        }
        if work.is_interrupted() {
            return Ok(MachineState::Waiting { reason: Some("interrupted".into()) });
        }
        let half = work.with(|directory| directory.run(at))?;
        if half.as_ref().is_some_and(|run| run.host().identity != facts.identity) {
            return Err("its unfinished run was measured on a different machine from the one that now has this name; move its directory away to start again".into());
        }
        let directory = machine.directory(&format!("weighbridge-{}-{at}", self.ledger.run()));
        let entry = self.ledger.record(machine.change(&directory))?;
        work.update(at, |machine| machine.directory = Some(directory.clone()))?;
        if let Err(error) = self.prepare(at, machine, &directory, half.is_some()) {
            // Nothing runs there yet. A directory that cannot be removed stays recorded.
            if machine.remove(&directory, Some(&log)).is_ok() {
                work.update(at, |machine| machine.directory = None)?;
                self.ledger.forget(entry)?;
            }
            return Err(error);
        }
        let (code, said) = self.measure(at, machine, &directory, half.is_some())?;
        if self.bring_back(at, machine, &directory).map_err(|error| match code {
            Some(_) => error,
            None => machine.lost(&log).map_or(error, Into::into),
        })? {
            work.said(at, "its run is here");
        }
        let state = work.judge(at, code, said.lines());
        let fault = if state == MachineState::Done { None } else { machine.fault(&directory) };
        if self.remove(at, machine, &directory)? {
            self.ledger.forget(entry)?;
        }
        Ok(match (state, fault) {
            (MachineState::Failed { reason }, Some(fault)) => {
                MachineState::Failed { reason: format!("{fault}; {reason}") }
            }
            (MachineState::Waiting { .. }, Some(fault)) => MachineState::Waiting { reason: Some(fault) },
            (state, _) => state,
        })
    }

    /// Removes a directory on the machine whose run is here, and returns whether that succeeded. What
    /// was measured counts if not: a ledger has the directory, for `weigh clean`.
    fn remove(&self, at: usize, machine: &FleetMachine, directory: &str) -> Result<bool> {
        let removed = machine.remove(directory, Some(&self.work.log(at)));
        match &removed {
            Ok(()) => self.work.update(at, |machine| machine.directory = None)?,
            Err(error) => {
                let name = self.work.machine(at).name;
                ui::note(&format!("warning: {name}: {}", with_causes(error)));
            }
        }
        Ok(removed.is_ok())
    }

    /// Makes a directory on the machine with the program, the plan, and the incomplete run if there
    /// is one.
    fn prepare(&self, at: usize, machine: &FleetMachine, directory: &str, goes_on: bool) -> Result<()> {
        let (work, log) = (self.work, self.work.log(at));
        machine.make(directory, &log)?;
        let _turn = self.copies[at % COPIES].lock().unwrap_or_else(PoisonError::into_inner);
        work.said(at, "copying weigh and the plan");
        let plan = work.with(|fleet| fleet.plan_text(at))?;
        let version = machine.equip(directory, &self.program, &plan, &log)?;
        if version != format!("weigh {}", env!("CARGO_PKG_VERSION")) {
            return Err(format!(
                "weigh does not run there, it says `{version}`; a static build, as in the packages, runs on every Linux"
            )
            .into());
        }
        if goes_on {
            let run = work.with(|fleet| fleet.run_path(at));
            machine.send_run(directory, &log, |output| transfer::pack(&run, output))?;
        }
        Ok(())
    }

    /// Runs the plan on the machine, or resumes the incomplete run. Returns the exit code, if the
    /// connection held, and the last lines that were printed.
    fn measure(
        &self,
        at: usize,
        machine: &FleetMachine,
        directory: &str,
        goes_on: bool,
    ) -> Result<(Option<i32>, LastLines)> {
        let (work, log) = (self.work, self.work.log(at));
        let inside = |name: &str| format!("{directory}/{name}");
        let arguments = match goes_on {
            true => vec!["resume".into(), inside("run")],
            false => vec!["run".into(), "--plan".into(), inside("plan.json"), "--out".into(), inside("run")],
        };
        let mut running = machine.start(directory, &arguments, &log)?;
        work.set(at, MachineState::Running)?;
        let said = self.listen(at, &mut running, &log);
        let code = running.wait(EXIT)?.and_then(|status| status.code());
        drop(running);
        Ok((machine.exit_code(code, &log), said))
    }

    /// Follows a run until it has ended. Ends it if the fleet is interrupted.
    fn listen(&self, at: usize, running: &mut Running, log: &Path) -> LastLines {
        let mut last = LastLines::default();
        let (mut input, output) = (running.take_input(), running.take_output());
        let Some(output) = output else { return last };
        std::thread::scope(|scope| {
            let (tell, lines) = sync_channel(MOST_LINES);
            scope.spawn(move || read_lines(output, &tell));
            loop {
                match lines.recv_timeout(LOOK) {
                    Ok(line) => {
                        let _only_for_people = weigh_host::log::append(log, format!("{line}\n").as_bytes());
                        self.work.said(at, &line);
                        last.add(&line);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if self.work.is_interrupted() {
                    input = None;
                }
            }
        });
        drop(input);
        last
    }

    /// Copies the run in a directory on the machine into the directory of the fleet. Returns
    /// whether there was a run.
    fn bring_back(&self, at: usize, machine: &FleetMachine, directory: &str) -> Result<bool> {
        let (work, log) = (self.work, self.work.log(at));
        let (mut files, mut log_bytes) = (MOST_FILES, MOST_LOG_BYTES);
        let found = machine.collect::<Box<dyn Error + Send + Sync>>(directory, &log, |archive| {
            let room = work.with(|fleet| fleet.make_room(at))?;
            transfer::unpack(archive, &room, |path| {
                let longest = weigh_store::longest_bytes(path)?;
                files = files.checked_sub(1)?;
                let Ok(_) = path.strip_prefix("logs") else { return Some(longest) };
                let longest = longest.min(log_bytes);
                log_bytes -= longest.min(log_bytes);
                Some(longest)
            })?;
            Ok(())
        })?;
        if !found {
            return Ok(false);
        }
        match work.with(|fleet| fleet.accept(at)) {
            // The run ended while its directory was being made, and holds no sample.
            Err(StoreError::Missing { .. } | StoreError::Foreign(_)) => Ok(false),
            accepted => Ok(accepted.map(|_| true)?),
        }
    }
}

/// Sends the lines of a stream until it ends. A line that is too long is sent in pieces.
fn read_lines(output: OwnedFd, tell: &SyncSender<String>) {
    let mut output = BufReader::new(File::from(output));
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = output.read(&mut buffer).unwrap_or(0);
        for byte in &buffer[..read] {
            if *byte != b'\n' {
                line.push(*byte);
            }
            if *byte == b'\n' || line.len() >= LONGEST_LINE {
                let _nobody_listens = tell.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
        }
        if read == 0 {
            if !line.is_empty() {
                let _nobody_listens = tell.send(String::from_utf8_lossy(&line).into_owned());
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;
    use weigh_host::state::StateDirectory;
    use weigh_model::{Effort, Plan};
    use weigh_store::fleet::{Fleet, FleetDirectory, Machine};

    /// A machine that goes on is refused before it measures, not when all is measured.
    #[test]
    fn machines_that_go_on_are_compared_with_one_that_is_done() {
        let parent = tempfile::tempdir().unwrap();
        let plan = Plan::of("work", Vec::new(), Vec::new(), Effort::Fixed { blocks: 12 });
        let named = |name: &str| Machine::new(name.into(), format!("ssh:host={name}"));
        let mut machines = ["a", "b", "c"].map(named).to_vec();
        shares::share_out(&plan, &mut machines).unwrap();
        let fleet = Fleet::new("fleet-1", machines);
        let mut directory = FleetDirectory::create(&parent.path().join("f"), &plan, fleet).unwrap();
        let ledger = Ledger::create(&StateDirectory::at(parent.path().join("state")), "fleet-1").unwrap();
        let interrupt = AtomicBool::new(false);
        // Each time as another process.
        let check = |directory: &mut FleetDirectory, at: usize, kernel: &str| {
            let facts = MachineFacts {
                system: "Linux".into(),
                architecture: std::env::consts::ARCH.into(),
                kind: BTreeMap::from([("kernel", kernel.to_string())]),
                ..MachineFacts::default()
            };
            let work = Work::new(directory, &interrupt, sync_channel(1).0);
            let checked = Conduct::new(&work, &ledger, Vec::new()).check(at, &facts);
            checked.map_err(|error| error.to_string())
        };
        check(&mut directory, 1, "6.1").unwrap();
        check(&mut directory, 0, "6.2").unwrap();
        directory.update(1, |machine| machine.state = MachineState::Done).unwrap();
        let why = check(&mut directory, 0, "6.2").unwrap_err();
        assert!(why.contains("kernel 6.2, not 6.1 as on b"), "{why}");
        check(&mut directory, 2, "6.1").unwrap();
        // What a machine says cannot fill the record.
        check(&mut directory, 2, &"x".repeat(1 << 20)).unwrap_err();
        directory.update(1, |machine| machine.state = MachineState::Running).unwrap();
        check(&mut directory, 2, &"x".repeat(1 << 20)).unwrap();
        assert!(directory.fleet().machines[2].facts["kernel"].len() < 1000);
    }

    #[test]
    fn lines_have_an_end() {
        let (read, mut write) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            write.write_all(b"one\ntwo\n").unwrap();
            write.write_all(&vec![b'x'; LONGEST_LINE + 3]).unwrap();
        });
        let (tell, lines) = sync_channel(MOST_LINES);
        read_lines(read.into(), &tell);
        drop(tell);
        writer.join().unwrap();
        let lengths: Vec<usize> = lines.iter().map(|line| line.len()).collect();
        assert_eq!(lengths, [3, 3, LONGEST_LINE, 3]);
    }
}
