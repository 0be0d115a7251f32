//! Measures how fast pages are scanned, against plain reading of the same memory in the same run.
//!
//! `cargo run --release -p weigh-observe --example pages [MIB [KIND]]` as root. A process with MIB
//! of memory, by default 1024, is read in pieces of 1 MiB by `process_vm_readv(2)` and by
//! `/proc/PID/mem`, and scanned by one thread, in turns; medians of five. Rates are bytes per CPU
//! time, so that they do not depend on how busy the machine is.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "an example prints, starts itself again as the process with memory, and has nothing to do about errors"
)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use weigh_model::pages::PageScan;
use weigh_observe::pages::{Options, Subject, scan};

const PIECE: usize = 1 << 20;
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, kind, mib] = &arguments[..]
        && word == "hold"
    {
        return hold(kind, mib.parse().unwrap());
    }
    let mib = arguments.first().map_or(1024, |word| word.parse().unwrap());
    println!(
        "{mib} MiB, GB per second of CPU time, medians of {ROUNDS}; ratio of hashed to the faster of readv and mem"
    );
    println!("{:<22}{:>8}{:>8}{:>8}{:>8}{:>10}", "memory", "readv", "mem", "hashed", "ratio", "whole");
    for (kind, name) in [
        ("small", "small pages, unique"),
        ("huge", "huge pages, unique"),
        ("twice", "small pages, each twice"),
    ] {
        if arguments.get(1).is_none_or(|only| only == kind) {
            compare(kind, name, mib);
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
}

fn compare(kind: &str, name: &str, mib: usize) {
    let (mut child, address) = start(kind, mib);
    let mem = File::open(format!("/proc/{}/mem", child.id())).unwrap();
    let bytes = mib << 20;
    let page_bytes = rustix::param::page_size();
    let mut buffer = vec![0; PIECE + page_bytes];
    // A copy takes twice as long if its target is a few bytes further in its page than its source.
    let aligned = buffer.as_ptr().align_offset(page_bytes);
    let buffer = &mut buffer[aligned..][..PIECE];
    let stop = AtomicBool::new(false);
    let subjects = [Subject::guest("memory", vec![child.id()])];
    let (mut readv, mut plain, mut hashed, mut whole) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut last = PageScan::default();
    for _ in 0..ROUNDS {
        let begin = cpu_ns();
        for offset in (0..bytes).step_by(PIECE) {
            assert_eq!(read_pinned(child.id(), address + offset, buffer), PIECE as isize);
        }
        readv.push(rate(bytes as u64, cpu_ns() - begin));
        let begin = cpu_ns();
        for offset in (0..bytes).step_by(PIECE) {
            mem.read_exact_at(buffer, (address + offset) as u64).unwrap();
        }
        plain.push(rate(bytes as u64, cpu_ns() - begin));
        last = scan(&subjects, &Options::new(&stop)).unwrap();
        let scanned = last.bytes(last.cost.first_look_pages);
        hashed.push(rate(scanned, last.cost.first_look_cpu_ns));
        whole.push(rate(scanned, last.cost.cpu_ns));
    }
    let [readv, plain, hashed, whole] = [readv, plain, hashed, whole].map(median);
    println!(
        "{name:<22}{readv:>8.2}{plain:>8.2}{hashed:>8.2}{:>8.2}{whole:>10.2}   {:.1} bytes a page, {} equal",
        hashed / readv.max(plain),
        last.cost.table_bytes as f64 / last.cost.first_look_pages as f64,
        last.matrix.total().total_pages(),
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / ns as f64
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn read_pinned(pid: u32, address: usize, buffer: &mut [u8]) -> isize {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the buffer is valid for writes of its length; the kernel checks the other address.
    unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const here, 1, &raw const there, 1, 0) }
}

fn start(kind: &str, mib: usize) -> (Child, usize) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["hold", kind, &mib.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

/// Holds memory until the other end of the pipe is closed.
fn hold(kind: &str, mib: usize) {
    let (bytes, huge) = (mib << 20, 2 << 20);
    let advice = if kind == "huge" { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the kernel chooses the address, and the memory is written within its bounds.
    let memory = unsafe {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let base = libc::mmap(std::ptr::null_mut(), bytes + huge, rights, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        let aligned = base.byte_add(base.align_offset(huge));
        libc::madvise(aligned, bytes, advice);
        std::slice::from_raw_parts_mut(aligned.cast::<u64>(), bytes / 8)
    };
    let words = rustix::param::page_size() / 8;
    let pages = memory.len() / words;
    for (number, page) in memory.chunks_exact_mut(words).enumerate() {
        let content = if kind == "twice" { number % (pages / 2) } else { number };
        let mut state = content as u64 | 1 << 63;
        for word in page {
            // xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state;
        }
    }
    println!("{}", memory.as_ptr() as usize);
    let _ = std::io::stdin().lines().next();
}
