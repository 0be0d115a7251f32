//! Threads that mostly wait for the disk. There are more of them than CPUs, they are not bound to
//! CPUs, and they start together.

use crate::kernel::KernelError;
use crate::kernels::join;
use std::sync::{PoisonError, RwLock};
use std::thread::Builder;

/// Runs `work` with each number below `threads` on its own thread. None begins before all have
/// started and `begin` has been called.
///
/// # Errors
/// The first error of a thread, or why a thread could not be started. Then `stop` is called, which
/// must make every `work` return.
pub(super) fn run_together<T: Send>(
    threads: usize,
    begin: impl FnOnce(),
    stop: impl Fn() + Sync,
    work: impl Fn(usize) -> Result<T, KernelError> + Sync,
) -> Result<Vec<T>, KernelError> {
    let gate = RwLock::new(());
    let wait_and_work = |index| {
        drop(gate.read().unwrap_or_else(PoisonError::into_inner));
        let result = work(index);
        if result.is_err() {
            stop();
        }
        result
    };
    std::thread::scope(|scope| {
        let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut handles = Vec::with_capacity(threads);
        let mut refused = None;
        for index in 0..threads {
            let wait_and_work = &wait_and_work;
            match Builder::new().spawn_scoped(scope, move || wait_and_work(index)) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    let doing = format!("start thread {} of {threads}", index + 1);
                    refused = Some(KernelError::System { doing, source });
                    stop();
                    break;
                }
            }
        }
        begin();
        drop(closed);
        let results: Vec<_> = handles.into_iter().map(join).collect();
        match refused {
            Some(error) => Err(error),
            None => results.into_iter().collect(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn all_begin_after_the_word_is_given() {
        let begun = AtomicBool::new(false);
        let seen = run_together(
            5,
            || begun.store(true, Ordering::SeqCst),
            || {},
            |index| Ok((index, begun.load(Ordering::SeqCst))),
        );
        assert_eq!(seen.unwrap(), (0..5).map(|index| (index, true)).collect::<Vec<_>>());
    }

    #[test]
    fn one_failure_stops_all() {
        let stopped = AtomicBool::new(false);
        let result = run_together(
            3,
            || {},
            || stopped.store(true, Ordering::SeqCst),
            |index| {
                if index == 1 {
                    return Err(KernelError::Unable("the disk is gone".into()));
                }
                while !stopped.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                Ok(())
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "the disk is gone");
    }
}
