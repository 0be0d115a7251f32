//! The threads of a [`Team`] as a pool for libraries that use rayon.

use crate::kernel::KernelError;
#[cfg(not(target_family = "wasm"))]
use crate::machine;
use crate::team::Team;
#[cfg(not(target_family = "wasm"))]
use std::sync::{Mutex, PoisonError};

/// Runs `work` on a pool with the threads of the team, each bound to its own CPU (round-robin if
/// there are more threads than CPUs). All threads start before `work`.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn run<T: Send>(team: &Team, work: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
    let refused = Mutex::new(None);
    let lock = || refused.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = team.cpus();
    rayon::ThreadPoolBuilder::new()
        .num_threads(team.threads())
        .build_scoped(
            |thread| {
                let cpu = cpus[thread.index() % cpus.len()];
                if let Err(source) = machine::pin_to(cpu) {
                    *lock() = Some((cpu, source));
                }
                thread.run();
            },
            |pool| {
                pool.broadcast(|_| ());
                match lock().take() {
                    Some((cpu, source)) => {
                        Err(KernelError::System { doing: format!("bind a thread to CPU {cpu}"), source })
                    }
                    None => Ok(pool.install(work)),
                }
            },
        )
        .map_err(|error| KernelError::System {
            doing: format!("start {} threads", team.threads()),
            source: std::io::Error::other(error),
        })?
}

/// WebAssembly has one thread, which rayon takes where none can be started.
#[cfg(target_family = "wasm")]
pub(crate) fn run<T: Send>(team: &Team, work: impl FnOnce() -> T + Send) -> Result<T, KernelError> {
    if team.threads() > 1 {
        let reason = format!("cannot start {} threads: WebAssembly has one", team.threads());
        return Err(KernelError::Unable(reason));
    }
    Ok(work())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn threads_have_cpus_of_their_own() {
        let team = Team::new(0).unwrap();
        let seen = run(&team, || rayon::broadcast(|_| machine::allowed_cpus().unwrap())).unwrap();
        assert!(seen.iter().all(|cpus| cpus.len() == 1), "{seen:?}");
        let cpus: BTreeSet<usize> = seen.into_iter().flatten().collect();
        assert_eq!(cpus.into_iter().collect::<Vec<_>>(), team.cpus());
    }

    #[test]
    fn threads_may_outnumber_the_cpus() {
        let team = Team::new(5).unwrap();
        assert_eq!(run(&team, rayon::current_num_threads).unwrap(), 5);
    }
}
