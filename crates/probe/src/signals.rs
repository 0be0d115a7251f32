//! Signals of the probe, which arrive through a descriptor.

use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};

/// Ignored signals: those that a terminal sends, because a guest must not die of the user's Ctrl-C,
/// and SIGPIPE, which the channel reports as an error.
pub const IGNORED: [libc::c_int; 7] =
    [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
const AWAITED: [libc::c_int; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// Sets every disposition to a known state: if an inherited one ignored SIGCHLD, the kernel would
/// discard the exit status of commands.
pub fn initialise() {
    for signal in 1..=64 {
        set(signal, libc::SIG_DFL);
    }
    for signal in IGNORED {
        set(signal, libc::SIG_IGN);
    }
}

/// Restores the signals ignored by [`initialise`], before this process executes another program.
pub fn restore() {
    for signal in IGNORED {
        set(signal, libc::SIG_DFL);
    }
}

/// Sets a disposition to the default or to ignore, by the raw system call: it is also called
/// between clone and exec, and for signals that the C library reserves. SIGKILL and SIGSTOP cannot
/// be set.
pub fn set(signal: libc::c_int, disposition: libc::sighandler_t) {
    // The kernel's sigaction begins with the handler on every architecture; flags, restorer and
    // mask are 0.
    let mut action = [0usize; 8];
    action[0] = disposition;
    // SAFETY: the kernel reads at most the array, and no handler is installed. Its signal sets have
    // 8 bytes (rt_sigaction(2)).
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), core::ptr::null::<usize>(), 8usize)
    };
}

/// A descriptor that becomes readable when a child has ended or SIGTERM has arrived.
pub fn descriptor() -> Result<OwnedFd> {
    let mask = mask_of(&AWAITED);
    // SAFETY: the mask is initialised; signalfd returns a new descriptor or -1.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, core::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const mask, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(last_errno()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Reads the pending signals; returns whether SIGTERM is among them.
pub fn drain(descriptor: &OwnedFd) -> bool {
    let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>() * 4];
    let mut asked_to_end = false;
    while let Ok(n) = rustix::io::read(descriptor, &mut buffer) {
        for info in buffer[..n].chunks_exact(size_of::<libc::signalfd_siginfo>()) {
            // ssi_signo is the first field (signalfd(2)).
            let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
            asked_to_end |= number == libc::SIGTERM as u32;
        }
        if n == 0 {
            break;
        }
    }
    asked_to_end
}

/// Unblocks all signals, for a command, between clone and exec.
pub fn unblock_all() {
    let mask = mask_of(&[]);
    // SAFETY: the mask is initialised.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, core::ptr::null_mut()) };
}

fn mask_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, sigaddset takes valid signal numbers.
    unsafe {
        let mut mask: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        for signal in signals {
            libc::sigaddset(&raw mut mask, *signal);
        }
        mask
    }
}

/// The error number of the C library's last call, which failed.
pub fn last_errno() -> Errno {
    // SAFETY: the C library gives every thread its own, always valid.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
