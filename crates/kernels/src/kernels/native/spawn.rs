//! `spawn`: the time to start a process and see it end.
//!
//! Every way of starting a process runs in batches; the result is the median over batches of the
//! time of one process.

use super::syscall::operations::{Forker, Way};
use super::syscall::{Tally, repeat};
use crate::kernel::{Kernel, KernelError};
use crate::machine;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;

/// The ways of starting a process, each with a description.
const WAYS: &[(&str, Way, &str)] = &[
    ("fork_exec", Way::Fork, "fork, execve of a static program that ends at once, wait"),
    ("vfork_exec", Way::Vfork, "vfork, execve of a static program that ends at once, wait"),
    ("posix_spawn", Way::PosixSpawn, "posix_spawn of a static program that ends at once, wait"),
];

pub(super) static KERNEL: Kernel = Kernel {
    name: "spawn",
    summary: "time of starting a program and waiting for its end, by fork, by vfork, by posix_spawn",
    operation: "process",
    check: "every child ended with success",
    options: &[
        OptionSpec::count("processes", "200").help("number of processes to start in each way"),
        OptionSpec::count("batches", "20").help("batches into which the number is divided"),
    ],
    metrics: &[("fork_exec", "s"), ("vfork_exec", "s"), ("posix_spawn", "s")],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, &Forker::of_this_program()?)
}

fn measure(options: &Options, forker: &Forker) -> Result<Outcome, KernelError> {
    let batches = options.at_least("batches", 1)?;
    let count = options.at_least("processes", 1)?.div_ceil(batches);
    let cpus = machine::allowed_cpus()?;
    // Use a single CPU throughout; children inherit it.
    machine::pin_to(cpus[0]).map_err(KernelError::system("bind the process to a CPU"))?;
    let mut outcome = Outcome::new();
    outcome.fact("cpu", cpus[0]);
    let mut tally = Tally::new();
    for (name, way, is) in WAYS {
        outcome.fact(&format!("{name}_is"), *is);
        repeat(&mut outcome, &mut tally, name, batches, count, 1, || forker.once(*way))?;
    }
    machine::pin_to_all(&cpus).map_err(KernelError::system("unbind the process from its CPU"))?;
    tally.conclude(&mut outcome);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let line = "--processes 8 --batches 4";
        KERNEL.options_of(line)
    }

    #[test]
    fn every_way_starts_processes() {
        let outcome = measure(&options(), &Forker::of("/bin/true")).unwrap();
        KERNEL.assert_complete(&outcome);
        // One batch of the warm-up, and four measured batches, of two processes each.
        assert_eq!(outcome.operations, 3 * 9);
    }

    #[test]
    fn a_child_that_fails_fails_the_check() {
        let outcome = measure(&options(), &Forker::of("/bin/false")).unwrap();
        assert!(!outcome.check.passed, "{:?}", outcome.check);
        for (_, way, _) in WAYS {
            // posix_spawn itself reports that there is no such program; with the other ways the
            // child does.
            let started = Forker::of("/nowhere").once(*way);
            assert!(started.map_or(*way == Way::PosixSpawn, |good| !good), "{way:?}");
        }
    }
}
