//! Limits as seen from inside a guest.

use super::bench::{Bench, MINUTE, command, run, shell};
use super::commands::REQUEST;
use crate::common::threads;
use weigh_platforms::{ExecRequest, PlatformError, RunOptions, SessionError};
use weigh_protocol::Status;

/// The guest has exactly the CPUs that it was given, and so has what the platform's own client starts
/// in it.
pub fn cpus(bench: &Bench) {
    if !bench.capabilities.cpu_limit {
        return;
    }
    let allowed = weigh_host::facts::allowed_cpus();
    for cpus in [vec![*allowed.last().unwrap()], allowed] {
        let mut request = bench.request();
        request.cpus.clone_from(&cpus);
        let mut guest = bench.launch(&request);
        let seen = guest.session().facts(&[], &[]).unwrap().cpus;
        let most = bench.capabilities.most_cpus.map_or(usize::MAX, |most| most as usize);
        let count = cpus.len().min(most);
        if bench.capabilities.shares_kernel {
            assert_eq!(seen, cpus);
        } else {
            assert_eq!(seen.len(), count, "{seen:?}");
            confined(&*guest, &cpus[..count]);
        }
        if bench.executes() {
            let nproc = run(&mut *guest, &command(&["nproc"]));
            assert_eq!(String::from_utf8(nproc.output).unwrap().trim(), count.to_string());
            let argv = ["/usr/bin/nproc".into()];
            match guest.exec(&ExecRequest { argv: &argv, ..REQUEST }) {
                Err(PlatformError::CannotExec(_)) => {}
                ran => assert_eq!(String::from_utf8(ran.unwrap().output).unwrap().trim(), count.to_string()),
            }
        }
        guest.stop().unwrap();
    }
}

/// A machine's process has at least as many threads as CPUs that run only on the CPUs asked for,
/// however the machine numbers its own. Its helpers may run elsewhere.
fn confined(guest: &dyn weigh_platforms::Guest, cpus: &[u32]) {
    let within = |(_, allowed): &(String, Vec<u32>)| allowed.iter().all(|cpu| cpus.contains(cpu));
    let confined = threads(guest).iter().filter(|thread| within(thread)).count();
    assert!(confined >= cpus.len(), "{confined} threads are confined to {cpus:?}");
}

/// A program that touches more memory than the guest has is killed. The guest survives; one with a
/// kernel or an init of its own, which the limit includes, may be lost instead. A guest kernel
/// without swap may search for pages for longer than anyone waits: it drops pages of programs, which
/// are read again at once and dropped again. Then the deadline ends the program instead, and the
/// machine survives or is lost.
pub fn memory(bench: &Bench) {
    if !bench.capabilities.memory_limit {
        return;
    }
    let mut request = bench.request();
    // A machine's memory also holds its kernel.
    request.memory_bytes = Some(if bench.capabilities.sized_memory { 256 << 20 } else { 64 << 20 });
    let mut guest = bench.launch(&request);
    let seen = guest.session().facts(&[], &[]).unwrap().memory_limit_bytes;
    assert!(seen.is_none() || seen == request.memory_bytes, "{seen:?}");
    let swap = std::fs::read_to_string("/proc/meminfo").unwrap();
    let may_be_lost = !bench.capabilities.shares_kernel || bench.capabilities.system;
    if bench.executes() && swap.lines().any(|line| line.starts_with("SwapTotal:") && line.ends_with(" 0 kB"))
    {
        // `tail` keeps the last line, which is the whole input.
        let hungry = shell("head -c 400000000 /dev/zero | tail | wc -c");
        let patience = if bench.capabilities.shares_kernel { MINUTE } else { MINUTE / 2 };
        match guest.session().run(&hungry, RunOptions::within(patience)) {
            Ok(completed) => {
                assert_ne!(completed.output, b"400000000\n", "the limit does not hold");
                assert_eq!(run(&mut *guest, &command(&["true"])).end.status, Status::Exited(0));
            }
            Err(SessionError::Lost { .. }) if may_be_lost => {}
            Err(SessionError::Deadline { killed, .. }) if !bench.capabilities.shares_kernel => {
                assert_ne!(killed.output, b"400000000\n", "the limit does not hold");
            }
            Err(other) => panic!("{other}"),
        }
        let modest = shell("head -c 8000000 /dev/zero | tail | wc -c");
        if !guest.session().is_lost() {
            assert_eq!(run(&mut *guest, &modest).output, b"8000000\n");
        }
    }
    guest.stop().unwrap();
}
