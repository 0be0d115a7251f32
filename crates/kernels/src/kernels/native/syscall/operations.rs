//! The operations, each with the resources that it needs.

use super::QUICK_EXIT;
use crate::kernel::KernelError;
use crate::machine;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::pipe::pipe;
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};
use std::ffi::CString;

/// The number of this process, requested from the kernel each time: the C library used to cache it.
pub(super) fn get_pid() -> u32 {
    // SAFETY: getpid takes nothing and changes nothing.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// Reads that always have something to read.
pub(super) struct Reader {
    source: OwnedFd,
    zero: bool,
    /// The result of the last read. Checked once at the end: checking each would cost more than a
    /// cheap system call varies, because the CPU waits until the kernel's write is visible.
    buffer: [u8; 8],
}

impl Reader {
    /// Opens `/dev/zero`, which is read one byte at a time; without /dev, an event counter that
    /// returns 1 and counts down.
    pub(super) fn open() -> Result<Self, KernelError> {
        let zero = machine::exists("/dev/zero");
        let source = if zero {
            std::fs::File::open("/dev/zero").map_err(KernelError::system("open /dev/zero"))?.into()
        } else {
            eventfd(u32::MAX, EventfdFlags::SEMAPHORE)
                .map_err(KernelError::system("make an event counter"))?
        };
        Ok(Self { source, zero, buffer: [0xff; 8] })
    }

    /// The name of the source, for the facts.
    pub(super) fn source(&self) -> &'static str {
        if self.zero { "/dev/zero" } else { "eventfd" }
    }

    /// Whether the read returned the right number of bytes.
    pub(super) fn read_one(&mut self) -> Result<bool, KernelError> {
        let wanted = if self.zero { 1 } else { 8 };
        let length = rustix::io::read(&self.source, &mut self.buffer[..wanted])
            .map_err(KernelError::system("read"))?;
        Ok(length == wanted)
    }

    /// Whether the last read returned the right value: a zero byte, or the number 1.
    pub(super) fn ended_right(&self) -> bool {
        if self.zero { self.buffer[0] == 0 } else { u64::from_ne_bytes(self.buffer) == 1 }
    }
}

/// A page that is mapped, touched and unmapped.
pub(super) struct MapAndUnmap {
    page_bytes: usize,
}

impl MapAndUnmap {
    pub(super) fn new() -> Self {
        Self { page_bytes: rustix::param::page_size() }
    }

    pub(super) fn once(&self) -> Result<bool, KernelError> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), self.page_bytes, access, flags) }
            .map_err(KernelError::system("map a page"))?
            .cast::<u8>();
        // The write comes first: a read of an untouched page would be a separate page fault.
        // SAFETY: the page was just mapped, readable and writable. The accesses are volatile, or
        // the compiler would know the answer.
        let good = unsafe {
            page.write_volatile(7);
            page.read_volatile() == 7 && page.add(1).read_volatile() == 0
        };
        // SAFETY: the page is this function's own, and the last access to it was above.
        unsafe { munmap(page.cast(), self.page_bytes) }.map_err(KernelError::system("unmap a page"))?;
        Ok(good)
    }
}

/// How a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Way {
    /// The child has a copy of everything until its execve.
    Fork,
    /// The child borrows the parent's memory until its execve, and the parent waits (vfork(2)).
    Vfork,
    /// The C library's own way.
    PosixSpawn,
}

/// Starts a program and waits for it.
pub(in crate::kernels) struct Forker {
    program: CString,
    argument: CString,
}

impl Forker {
    /// Starts this program, through `/proc/self/exe` or, without /proc, through the path under
    /// which the kernel started it.
    pub(in crate::kernels) fn of_this_program() -> Result<Self, KernelError> {
        if machine::exists("/proc/self/exe") {
            return Ok(Self::of("/proc/self/exe"));
        }
        // SAFETY: getauxval takes a number.
        let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        if path.is_null() {
            return Err(KernelError::Unable(
                "neither /proc nor the kernel says where this program lies; leave out the operations that start programs"
                    .into(),
            ));
        }
        // SAFETY: the kernel put that string on this process's stack, where it stays.
        let program = unsafe { std::ffi::CStr::from_ptr(path) }.to_owned();
        Ok(Self { program, argument: Self::argument() })
    }

    /// The program at `path`.
    pub(in crate::kernels) fn of(path: &str) -> Self {
        let program = CString::new(path).expect("paths in this program have no zero bytes");
        Self { program, argument: Self::argument() }
    }

    fn argument() -> CString {
        CString::new(QUICK_EXIT).expect("the argument has no zero bytes")
    }

    /// Runs the program once. Returns whether it ended successfully.
    pub(in crate::kernels) fn once(&self, way: Way) -> Result<bool, KernelError> {
        let child = match way {
            Way::Fork => self.fork()?,
            Way::Vfork => self.vfork()?,
            Way::PosixSpawn => self.spawn()?,
        };
        Ok(wait(child)?.exit_status() == Some(0))
    }

    fn arguments(&self) -> [*const libc::c_char; 3] {
        [self.program.as_ptr(), self.argument.as_ptr(), std::ptr::null()]
    }

    fn fork(&self) -> Result<Pid, KernelError> {
        let (arguments, environment) = (self.arguments(), [std::ptr::null()]);
        let child = fork("start a process")?;
        let Some(child) = child else {
            // SAFETY: the child of a fork may call these two; the strings and arrays live until
            // then.
            unsafe {
                libc::execve(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(127)
            }
        };
        Ok(child)
    }

    /// Uses clone(2) with the flags of vfork and a separate stack for the child: vfork(2) itself
    /// returns twice on one stack, which Rust cannot promise to survive.
    fn vfork(&self) -> Result<Pid, KernelError> {
        /// What the child needs: program, arguments, environment.
        struct Borrowed(*const libc::c_char, *const *const libc::c_char, *const *const libc::c_char);
        extern "C" fn child(borrowed: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the parent waits in clone until the execve or the exit, so that what it lent
            // lives.
            unsafe {
                let Borrowed(program, arguments, environment) = &*borrowed.cast::<Borrowed>();
                libc::execve(*program, *arguments, *environment);
                libc::_exit(127)
            }
        }
        const STACK_BYTES: usize = 64 << 10;
        let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
        let (arguments, environment) = (self.arguments(), [std::ptr::null()]);
        let mut borrowed = Borrowed(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        // SAFETY: the stack is the child's alone, aligned and large enough for one call of execve,
        // and lives until clone returns, which is when the child has left it; the stack grows down
        // from its end on every machine that this is built for.
        let pid = unsafe {
            let top = stack.as_mut_ptr().byte_add(STACK_BYTES).cast();
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(child, top, flags, (&raw mut borrowed).cast())
        };
        Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(|| KernelError::System {
            doing: "start a process".into(),
            source: std::io::Error::last_os_error(),
        })
    }

    fn spawn(&self) -> Result<Pid, KernelError> {
        let arguments = self.arguments().map(<*const libc::c_char>::cast_mut);
        let environment = [std::ptr::null_mut()];
        let mut pid = 0;
        // SAFETY: the strings and arrays live until the call returns; neither actions nor
        // attributes are given.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.program.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            )
        };
        Pid::from_raw(pid).filter(|_| error == 0).ok_or_else(|| KernelError::System {
            doing: "start a process".into(),
            source: std::io::Error::from_raw_os_error(error),
        })
    }
}

/// Forks. Returns `None` in the child, which may then only make calls that are safe after a fork of
/// a process with threads.
fn fork(doing: &str) -> Result<Option<Pid>, KernelError> {
    // SAFETY: every caller restricts what the child does.
    match unsafe { libc::fork() } {
        -1 => Err(KernelError::System { doing: doing.into(), source: std::io::Error::last_os_error() }),
        0 => Ok(None),
        child => Ok(Pid::from_raw(child)),
    }
}

fn wait(child: Pid) -> Result<WaitStatus, KernelError> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Ok(Some((_, status))) => return Ok(status),
            Err(error) => {
                return Err(KernelError::System { doing: "wait for a child".into(), source: error.into() });
            }
        }
    }
}

/// A child process that sends back each byte plus one.
pub(super) struct PingPong {
    child: Pid,
    /// Closed first when this is dropped, which ends the child.
    to_child: Option<OwnedFd>,
    from_child: OwnedFd,
    byte: u8,
}

impl PingPong {
    /// Starts the child, which inherits the CPU of the caller. The caller must be bound to one.
    pub(super) fn start() -> Result<Self, KernelError> {
        let (child_reads, to_child) = pipe().map_err(KernelError::system("make a pipe"))?;
        let (from_child, child_writes) = pipe().map_err(KernelError::system("make a pipe"))?;
        match fork("start the second process")? {
            Some(child) => Ok(Self { child, to_child: Some(to_child), from_child, byte: 0 }),
            None => {
                // SAFETY: only system calls on descriptors that the child has, and a byte on its
                // stack. The ends of the parent are closed, so that its death is seen as the end of
                // the pipe.
                unsafe {
                    libc::close(to_child.as_raw_fd());
                    libc::close(from_child.as_raw_fd());
                    let mut byte = 0u8;
                    while libc::read(child_reads.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 {
                        byte = byte.wrapping_add(1);
                        if libc::write(child_writes.as_raw_fd(), (&raw const byte).cast(), 1) != 1 {
                            break;
                        }
                    }
                    libc::_exit(0)
                }
            }
        }
    }

    /// Makes two switches: to the child and back.
    pub(super) fn round_trip(&mut self) -> Result<bool, KernelError> {
        self.byte = self.byte.wrapping_add(3);
        let to_child = self.to_child.as_ref().expect("the pipe is closed by stop and drop only");
        rustix::io::write(to_child, &[self.byte])
            .map_err(KernelError::system("write to the second process"))?;
        let mut answer = [0];
        let length = rustix::io::read(&self.from_child, &mut answer)
            .map_err(KernelError::system("read from the second process"))?;
        if length == 0 {
            return Err(KernelError::Unable("the second process is gone".into()));
        }
        Ok(answer[0] == self.byte.wrapping_add(1))
    }

    /// Ends the child.
    pub(super) fn stop(mut self) -> Result<(), KernelError> {
        self.to_child = None;
        let status = wait(self.child)?;
        if status.exit_status() == Some(0) {
            return Ok(());
        }
        Err(KernelError::Unable(format!("the second process ended with {status:?}")))
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        if self.to_child.take().is_some() {
            // Reached only after an error, which is the one that is reported.
            let _ = wait(self.child);
        }
    }
}
