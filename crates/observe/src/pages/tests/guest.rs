//! A process with known memory: this test program again, which is told what to hold.

use super::super::mapped::Mapped;
use super::super::scan::{Kernel, look_twice};
use super::super::sources::{PageRange, Source, Sources};
use super::super::{Options, PagesError, Subject, scan};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use weigh_model::pages::PageScan;

/// The variable with the memory to hold, separated by spaces: `KIND:CONTENT:COUNT`, or `file:PATH`.
const HOLD: &str = "WEIGH_TEST_PAGES";

/// A page with this content; 0 is a page of zeros.
pub(super) fn page(content: u64) -> Vec<u8> {
    let page_bytes = rustix::param::page_size();
    if content == 0 {
        return vec![0; page_bytes];
    }
    let mut state = content;
    let mut next = || {
        // splitmix64, so that pages differ everywhere.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    (0..page_bytes / 8).flat_map(|_| next().to_ne_bytes()).collect()
}

/// A running guest. It ends when it is dropped.
pub(super) struct Guest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Its processes: one, or two with the same memory if it was told to fork.
    pub(super) pids: Vec<u32>,
    /// The pages that it was told to hold, without its other pages.
    pub(super) held: Vec<Range<u64>>,
}

impl Guest {
    #[expect(clippy::disallowed_methods, reason = "the test starts itself again as the guest")]
    pub(super) fn holding(what: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["pages::tests::guest::child_holds_the_requested_pages", "--exact", "--nocapture"])
            .env(HOLD, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let pids = vec![child.id()];
        let mut guest = Self { child, input, output: BufReader::new(output), pids, held: Vec::new() };
        guest.listen();
        guest
    }

    /// Asks for something and waits until it is done.
    pub(super) fn ask(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
        self.listen();
    }

    fn listen(&mut self) {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the guest ended");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["held", start, end] => self.held.push(start.parse().unwrap()..end.parse().unwrap()),
                ["forked", pid] => self.pids.push(pid.parse().unwrap()),
                ["done"] => return self.wait_until_it_waits(),
                _ => {}
            }
        }
    }

    /// Waits until all threads of the guest wait, because until then it maps more pages of its
    /// program.
    fn wait_until_it_waits(&self) {
        let is_waiting = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses and may hold any character.
            text.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('S'))
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        while !std::fs::read_dir(&tasks).unwrap().flatten().all(is_waiting) {
            std::thread::yield_now();
        }
    }

    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// Scans subjects, limited to the memory that the guests were told to hold.
pub(super) fn scan_held(
    subjects: &[Subject],
    held: &[Range<u64>],
    threads: usize,
    between: impl FnOnce(),
) -> Result<PageScan, PagesError> {
    let stop = AtomicBool::new(false);
    let kernel = Kernel::ask()?;
    let mut sources = Sources::find(subjects, kernel.split_options(&stop))?;
    let is_file: Vec<bool> = sources.list.iter().map(|source| matches!(source, Source::File(_))).collect();
    let clipped = |range: &PageRange| -> Vec<PageRange> {
        if is_file[range.source as usize] {
            return vec![*range];
        }
        let clip = |part: &Range<u64>| {
            let first = part.start.max(range.first);
            let end = part.end.min(range.first + range.pages);
            (first < end).then(|| PageRange { first, pages: end - first, ..*range })
        };
        held.iter().filter_map(clip).collect()
    };
    sources.ranges = sources.ranges.iter().flat_map(clipped).collect();
    look_twice(&kernel, sources, &Options { threads, stop: &stop }, between)
}

/// The kernel, if this user may scan; otherwise prints that the test is skipped.
pub(super) fn may_scan(test: &str) -> Option<Kernel> {
    Kernel::ask().inspect_err(|error| eprintln!("SKIPPED {test}: {error}")).ok()
}

/// Scans all memory of the subjects.
pub(super) fn scan_whole(subjects: &[Subject], threads: usize) -> Result<PageScan, PagesError> {
    scan(subjects, &Options { threads, stop: &AtomicBool::new(false) })
}

/// Memory that was asked for, and the part of it that counts.
struct Held {
    mapped: Mapped,
    first: u64,
    pages: usize,
}

impl Held {
    fn new(word: &str) -> Self {
        let page_bytes = rustix::param::page_size();
        let mut parts = word.split(':');
        let kind = parts.next().unwrap();
        if kind == "file" {
            let file = File::open(parts.next().unwrap()).unwrap();
            return Self::of_file(&file);
        }
        let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
        let (content, pages) = (number(), number() as usize);
        let bytes = pages * page_bytes;
        // Kinds: pages of one content (`same`), mergeable ones, pages that all differ, pages in
        // huge pages, pages of a memory file, and pages that are only read.
        if kind == "memory-file" {
            let file = rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let file = File::from(file);
            file.write_all_at(&page(content).repeat(pages), 0).unwrap();
            return Self::of_file(&file);
        }
        let huge = 2 << 20;
        let room = if kind == "huge" { bytes + huge } else { bytes };
        let mut mapped = Mapped::anonymous(room).unwrap();
        let address = mapped.address() as usize;
        let start = if kind == "huge" { address.next_multiple_of(huge) - address } else { 0 };
        match kind {
            "huge" => mapped.advise(libc::MADV_HUGEPAGE).unwrap(),
            // A kernel without huge pages refuses the advice.
            _ => drop(mapped.advise(libc::MADV_NOHUGEPAGE)),
        }
        if kind == "mergeable" {
            mapped.advise(libc::MADV_MERGEABLE).unwrap();
        }
        if kind == "read" {
            mapped.populate(0, bytes).unwrap();
        } else {
            let differ = matches!(kind, "unique" | "huge");
            let memory = mapped.bytes_mut()[start..start + bytes].chunks_exact_mut(page_bytes);
            for (index, there) in memory.enumerate() {
                there.copy_from_slice(&page(if differ { content << 32 | index as u64 } else { content }));
            }
        }
        Self { mapped, first: ((address + start) / page_bytes) as u64, pages }
    }

    fn of_file(file: &File) -> Self {
        let (page_bytes, bytes) = (rustix::param::page_size(), file.metadata().unwrap().len() as usize);
        let mapped = Mapped::file(file, 0, bytes).unwrap();
        mapped.populate(0, bytes).unwrap();
        Self { first: mapped.address() / page_bytes as u64, pages: bytes / page_bytes, mapped }
    }
}

/// The main function of the child process. When run as a test it does nothing.
#[test]
fn child_holds_the_requested_pages() {
    let Ok(what) = std::env::var(HOLD) else { return };
    let page_bytes = rustix::param::page_size();
    let forks = what.split(' ').any(|word| word == "fork");
    let words = what.split(' ').filter(|word| !word.is_empty() && *word != "fork");
    let mut held: Vec<Held> = words.map(Held::new).collect();
    println!();
    for part in &held {
        println!("held {} {}", part.first, part.first + part.pages as u64);
    }
    if forks {
        println!("forked {}", fork());
    }
    println!("done");
    let (send, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|line| send.send(line.unwrap())));
    for line in &requests {
        let words: Vec<&str> = line.split(' ').collect();
        let bytes = words[1].parse::<usize>().unwrap() * page_bytes;
        match words[0] {
            // Gives that many of the first pages other contents, all different.
            "rewrite" => {
                let memory = held[0].mapped.bytes_mut()[..bytes].chunks_exact_mut(page_bytes);
                memory
                    .enumerate()
                    .for_each(|(index, there)| there.copy_from_slice(&page(77 << 40 | index as u64)));
            }
            // Gives that many of the first pages back to the kernel.
            "forget" => {
                let start = (held[0].first * page_bytes as u64) as *mut libc::c_void;
                // SAFETY: the pages are ours, and read as zeros afterwards.
                assert_eq!(unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) }, 0);
            }
            // Changes that many of the first pages together, again and again. Any request is
            // answered after the next change.
            "keep-writing" => {
                let mut asked = true;
                for round in 0u64.. {
                    let memory = held[0].mapped.bytes_mut()[..bytes].chunks_exact_mut(page_bytes);
                    let contents = page(99 << 40 | round);
                    memory.for_each(|there| there.copy_from_slice(&contents));
                    if asked {
                        println!("done");
                    }
                    // This is also the pause between two changes.
                    asked = match requests.recv_timeout(Duration::from_millis(2)) {
                        Ok(_) => true,
                        Err(RecvTimeoutError::Timeout) => false,
                        Err(RecvTimeoutError::Disconnected) => return,
                    };
                }
            }
            other => panic!("cannot {other}"),
        }
        println!("done");
    }
}

/// Starts a process with the same memory that does nothing and ends with this one.
fn fork() -> libc::pid_t {
    // SAFETY: the new process calls only what is allowed after a fork of a threaded program.
    unsafe {
        let parent = libc::getpid();
        match libc::fork() {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have ended before the signal was requested.
                if libc::getppid() != parent {
                    libc::_exit(0);
                }
                loop {
                    libc::pause();
                }
            }
            pid => {
                assert!(pid > 0);
                pid
            }
        }
    }
}
