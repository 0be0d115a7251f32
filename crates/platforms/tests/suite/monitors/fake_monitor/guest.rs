//! A fake monitor's machine: a real probe as an ordinary process of the host, reached over the
//! socket that would lead to vsock.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The file that appears in the monitor's directory when the guest has ignored a connection.
pub const IGNORED: &str = "ignored";
/// The number of a monitor's first connection.
const FIRST: u32 = 1 << 30;

pub struct Guest {
    probe: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// The number of the last connection that the guest accepted.
    connection: Arc<AtomicU32>,
    /// Whether nothing that the host sends reaches the guest any more.
    cut_off: Arc<AtomicBool>,
}

/// How a guest answers to connections.
pub struct Manners {
    /// It listens to nobody.
    pub deaf: bool,
    /// So many connections come before it listens.
    pub refusals: u32,
    /// The number of a connection that it holds since before it was saved.
    pub held: Option<u32>,
}

/// The channel that the kernel's command line gives to the machine's init.
pub fn channel_of(command_line: &str) -> Result<String, String> {
    let (_, init) = command_line.split_once(" -- ").ok_or("nothing is for the init")?;
    if !command_line.contains("rdinit=/.weighbridge/probe") {
        return Err("the init is not the probe".into());
    }
    let mut words = init.split_whitespace();
    match (words.next(), words.next()) {
        (Some("--channel"), Some(channel)) => Ok(channel.into()),
        _ => Err(format!("`{init}` does not begin with a channel")),
    }
}

impl Guest {
    /// Boots: starts threads with the names of CPU threads, and a probe that is reached as the
    /// kernel's command line says, by a port behind the socket or over the standard streams.
    pub fn boot(
        probe: &str,
        cpus: u64,
        thread: fn(u64) -> String,
        socket: Option<&Path>,
        channel: &str,
        manners: Manners,
    ) -> Result<Self, String> {
        for cpu in 0..cpus {
            std::thread::Builder::new()
                .name(thread(cpu))
                .spawn(|| {
                    loop {
                        std::thread::park();
                    }
                })
                .unwrap();
        }
        if channel == "/dev/ttyS0" {
            return Self::over_console(probe);
        }
        let port: u32 = channel
            .strip_prefix("vsock-listen:")
            .and_then(|port| port.parse().ok())
            .ok_or_else(|| format!("the probe is told {channel}"))?;
        Self::over_socket(probe, socket.ok_or("the guest has no vsock")?, port, manners)
    }

    /// Gives the probe a terminal, which a serial line is, after the console has printed something
    /// of its own.
    fn over_console(probe: &str) -> Result<Self, String> {
        let (mut master, mut slave) = (0, 0);
        let nothing = std::ptr::null_mut();
        // SAFETY: both numbers outlive the call, which takes no name, settings or size; the
        // descriptors are new.
        let (master, slave) = unsafe {
            if libc::openpty(&raw mut master, &raw mut slave, nothing, std::ptr::null(), std::ptr::null()) < 0
            {
                return Err(std::io::Error::last_os_error().to_string());
            }
            (File::from_raw_fd(master), File::from_raw_fd(slave))
        };
        let terminal = std::fs::read_link(format!("/proc/self/fd/{}", slave.as_raw_fd())).unwrap();
        let mut console = standard(1);
        console.write_all(b"[    0.000000] Linux version 6.1.0-fake\r\n").unwrap();
        #[expect(clippy::disallowed_methods, reason = "a fake of another program, which is a test")]
        let probe = std::process::Command::new(probe)
            .arg("--channel")
            .arg(terminal)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        // The line stays open after the probe has ended.
        std::mem::forget(slave);
        let mut from = master.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut from, &mut console));
        let mut to = master;
        std::thread::spawn(move || std::io::copy(&mut standard(0), &mut to));
        Ok(Self { probe, input: Arc::default(), connection: Arc::default(), cut_off: Arc::default() })
    }

    /// Gives the probe standard streams, which lead to the current connection.
    fn over_socket(probe: &str, socket: &Path, port: u32, manners: Manners) -> Result<Self, String> {
        #[expect(clippy::disallowed_methods, reason = "a fake of another program, which is a test")]
        let mut probe = std::process::Command::new(probe)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let input = Arc::new(Mutex::new(probe.stdin.take()));
        let mut output = probe.stdout.take().unwrap();
        let connected: Arc<Mutex<Option<UnixStream>>> = Arc::default();
        let listener =
            UnixListener::bind(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        let (to_host, from_host) = (connected.clone(), input.clone());
        let connection: Arc<AtomicU32> = Arc::default();
        let accepted = connection.clone();
        let cut_off: Arc<AtomicBool> = Arc::default();
        let deaf_now = cut_off.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 65536];
            while let Ok(n @ 1..) = output.read(&mut piece) {
                if let Some(stream) = &mut *to_host.lock().unwrap() {
                    let _ = stream.write_all(&piece[..n]);
                }
            }
            // The probe has ended; the connected peer sees the end of the stream.
            if let Some(stream) = to_host.lock().unwrap().take() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        });
        std::thread::spawn(move || {
            let Manners { deaf, mut refusals, held } = manners;
            let (mut next, mut ignored) = (FIRST, Vec::new());
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let asked = line(&mut stream);
                let number = next;
                next += 1;
                if held == Some(number) {
                    std::fs::write(IGNORED, "").unwrap();
                    ignored.push(stream);
                    continue;
                }
                if asked != format!("CONNECT {port}") || deaf || refusals > 0 {
                    refusals = refusals.saturating_sub(1);
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                let mut from = stream.try_clone().unwrap();
                stream.write_all(format!("OK {number}\n").as_bytes()).unwrap();
                accepted.store(number, Ordering::Relaxed);
                *connected.lock().unwrap() = Some(stream);
                let (to, deaf_now) = (from_host.clone(), deaf_now.clone());
                std::thread::spawn(move || {
                    let mut piece = [0; 65536];
                    while let Ok(n @ 1..) = from.read(&mut piece) {
                        if deaf_now.load(Ordering::Relaxed) {
                            continue;
                        }
                        if let Some(input) = &mut *to.lock().unwrap() {
                            let _ = input.write_all(&piece[..n]);
                        }
                    }
                });
            }
        });
        Ok(Self { probe, input, connection, cut_off })
    }

    /// The number of the connection that the guest holds.
    pub fn connection(&self) -> u32 {
        self.connection.load(Ordering::Relaxed)
    }

    /// Stops the machine's CPUs.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP, true);
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT, false);
    }

    /// Loses whatever the host sends over vsock from now on.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }

    /// Sends a signal and returns once the process has stopped, or runs again.
    fn signal(&self, signal: i32, stands: bool) {
        let process = self.probe.id();
        // SAFETY: signals a child that has not been waited for.
        unsafe { libc::kill(process.cast_signed(), signal) };
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        while state() != stands {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the guest has powered its machine off.
    pub fn is_off(&mut self) -> bool {
        matches!(self.probe.try_wait(), Ok(Some(_)))
    }

    /// Pulls the plug.
    pub fn kill(&mut self) {
        self.input.lock().unwrap().take();
        let _ = self.probe.kill();
        let _ = self.probe.wait();
    }
}

/// A standard stream of the monitor, unbuffered.
fn standard(number: i32) -> File {
    // SAFETY: the stream is open as long as the process lives, and only a copy of it is owned here.
    unsafe { File::from_raw_fd(libc::dup(number)) }
}

fn line(stream: &mut UnixStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < 64 && matches!(stream.read(&mut byte), Ok(1)) && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}
