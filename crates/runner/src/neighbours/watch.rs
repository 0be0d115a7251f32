//! Watches the host's memory while neighbours are up: all of them are stopped before the kernel
//! would have to choose a process to kill.

use crate::start::footprint::shown;
use crate::start::guest_pool::Request;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weigh_observe::memory::available_bytes;

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(250);

/// A thread that checks the available memory as long as this value lives.
pub(super) struct MemoryWatch {
    /// Dropping it ends the watch.
    go_on: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl MemoryWatch {
    /// Calls `stop` and then stops the guests of all `request_channels` when less than the floor is
    /// available. If no thread can be started, nothing is watched.
    pub(super) fn begin(
        floor: u64,
        guests: u32,
        request_channels: Vec<Sender<Request>>,
        stop: impl Fn() + Send + 'static,
    ) -> Self {
        Self::looking(available_bytes, floor, guests, request_channels, stop)
    }

    fn looking(
        available: fn() -> Option<u64>,
        floor: u64,
        guests: u32,
        request_channels: Vec<Sender<Request>>,
        stop: impl Fn() + Send + 'static,
    ) -> Self {
        let (go_on, over) = channel::<()>();
        let watch = move || loop {
            if let Some(available) = available().filter(|available| *available < floor) {
                stop();
                for ear in &request_channels {
                    // A thread that has ended needs no request.
                    let _ = ear.send(Request::Stop);
                }
                return Some(format!("{}; all neighbours were ended", too_little(available, floor, guests)));
            }
            if over.recv_timeout(PERIOD) == Err(RecvTimeoutError::Disconnected) {
                return None;
            }
        };
        let thread =
            std::thread::Builder::new().name("memory".into()).stack_size(256 << 10).spawn(watch).ok();
        Self { go_on: Some(go_on), thread }
    }

    /// Ends the watch. Returns why memory was short, if it was.
    pub(super) fn end(mut self) -> Option<String> {
        self.join()
    }

    fn join(&mut self) -> Option<String> {
        self.go_on = None;
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.join();
    }
}

/// Explains why the host has no room for more guests.
pub(super) fn too_little(available: u64, floor: u64, up: u32) -> String {
    format!(
        "the host has only {} of memory available with {up} guests up, and keeps {}",
        shown(available),
        shown(floor)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn at_the_memory_floor_every_neighbour_is_stopped() {
        let (ear, told) = channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = {
            let stopped = Arc::clone(&stopped);
            move || stopped.store(true, Ordering::Relaxed)
        };
        let watch = MemoryWatch::looking(|| Some(1 << 20), 2 << 20, 7, vec![ear], stop);
        assert!(matches!(told.recv(), Ok(Request::Stop)));
        let reason = watch.end().unwrap();
        assert!(reason.contains("1MiB of memory available with 7 guests up, and keeps 2MiB"), "{reason}");
        assert!(stopped.load(Ordering::Relaxed));
    }

    #[test]
    fn above_the_floor_nothing_is_reported() {
        let (ear, told) = channel();
        let watch = MemoryWatch::looking(|| Some(2 << 20), 2 << 20, 7, vec![ear], || panic!("stopped"));
        assert_eq!(watch.end(), None);
        assert!(told.recv().is_err(), "the channel is closed, and nothing was sent");
        drop(MemoryWatch::looking(|| None, 1, 1, Vec::new(), || {}));
    }
}
