//! The channel between host and probe.
//!
//! ```text
//! port     a named port of virtio-serial, a socket here: no address, no console, and it goes on where a saved machine does
//! vsock    a port of the machine's socket address (vhost-vsock of the host's kernel); the probe listens and weighbridge connects
//! serial   a second serial line, for kernels without virtio; the console stays with the kernel
//! ```

use super::Qemu;
use super::guest::pair;
use super::part::{Line, Part};
use crate::{PlatformError, Result, Session, SessionError, setting};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_model::EnvironmentSpec;

/// Values of the key `channel`. Arm machines have one serial line, which is the console's.
pub(super) const WORDS: &[&str] = if cfg!(target_arch = "aarch64") {
    &["auto", "port", "vsock"]
} else {
    &["auto", "port", "vsock", "serial"]
};
/// Name of the virtio port.
const PORT: &str = "weighbridge";
/// The kernel's name for a PC's second serial line.
const LINE: &str = "/dev/ttyS1";
/// The vsock port that the probe listens on.
const VSOCK_PORT: u32 = 1024;
/// The device of the host's half of vsock.
const VHOST: &str = "/dev/vhost-vsock";
/// `_IOW(VHOST_VIRTIO, 0x60, __u64)` of linux/vhost.h.
const VHOST_VSOCK_SET_GUEST_CID: libc::Ioctl = 0x4008_AF60;
/// The first free address: lower ones mean the hypervisor, the machine itself, the host (vsock(7)).
const FIRST_CID: u32 = 3;
/// How many addresses are tried, starting at one that depends on the guest's name.
const CIDS: u32 = 1 << 20;
/// Pause between two attempts to reach a probe that does not listen yet.
const PAUSE: Duration = Duration::from_millis(1);

/// The channel of one machine.
#[derive(Debug)]
pub(super) struct Channel {
    transport: Transport,
    /// QEMU's end, until it is handed to QEMU.
    theirs: Option<OwnedFd>,
    /// The descriptor number of QEMU's end.
    number: i32,
}

#[derive(Debug)]
enum Transport {
    /// weighbridge's end, until a session takes it.
    Port(Option<OwnedFd>),
    Serial(Option<OwnedFd>),
    /// The machine's vsock address.
    Vsock(u32),
}

impl Channel {
    /// Makes the channel that the environment asks for; `name` is the guest's.
    ///
    /// # Errors
    /// The host has no vsock for guests, or no free descriptors.
    pub(super) fn make(environment: &EnvironmentSpec, name: &str) -> Result<Self> {
        let (transport, theirs) = match setting(&Qemu, environment, "channel") {
            "vsock" => {
                let (cid, device) = vsock_device(Path::new(VHOST), name)?;
                (Transport::Vsock(cid), device)
            }
            "serial" => {
                let (ours, theirs) = pair()?;
                (Transport::Serial(Some(ours)), theirs)
            }
            _ => {
                let (ours, theirs) = pair()?;
                (Transport::Port(Some(ours)), theirs)
            }
        };
        Ok(Self { transport, number: theirs.as_raw_fd(), theirs: Some(theirs) })
    }

    /// Waits for the probe: for its announcement or, with `restored`, for its answer, because it
    /// announced itself before it was saved.
    ///
    /// # Errors
    /// The probe says nothing before `until`, or the machine has ended. A vsock channel does not
    /// show the latter, so `lives` says whether the machine still runs.
    pub(super) fn session(
        &mut self,
        restored: bool,
        until: Instant,
        lives: impl FnMut() -> bool,
    ) -> (Option<Session>, Result<u32, SessionError>) {
        let lost = |reason: String| (None, Err(SessionError::Lost { reason }));
        let terminal = matches!(self.transport, Transport::Serial(_));
        let ours = match &mut self.transport {
            Transport::Port(ours) | Transport::Serial(ours) => match ours.take() {
                Some(ours) => Ok(ours),
                None => return lost("its channel is in use already".into()),
            },
            Transport::Vsock(cid) => connect(*cid, until, lives),
        };
        let ends = ours.and_then(|ours| Ok((ours.try_clone()?, ours)));
        let (read, write) = match ends {
            Ok(ends) => ends,
            Err(error) => return lost(format!("its channel cannot be opened: {error}")),
        };
        let mut session =
            if terminal { Session::over_terminal(read, write) } else { Session::new(read, write) };
        let left = until.saturating_duration_since(Instant::now());
        let hello = if terminal && !restored { session.announced(left) } else { session.hello(left) };
        (Some(session), hello)
    }

    /// Modules that the guest's kernel needs for the channel.
    pub(super) fn modules(environment: &EnvironmentSpec) -> &'static [&'static str] {
        match setting(&Qemu, environment, "channel") {
            "vsock" => &["vmw_vsock_virtio_transport"],
            "serial" => &[],
            _ => &["virtio_console"],
        }
    }

    /// Checks that the host supports the environment's channel.
    ///
    /// # Errors
    /// The support is missing.
    pub(super) fn check(environment: &EnvironmentSpec) -> Result<()> {
        match setting(&Qemu, environment, "channel") {
            "vsock" => open(Path::new(VHOST)).map(drop),
            _ => Ok(()),
        }
    }
}

impl Part for Channel {
    fn arguments(&self, line: &mut Line) {
        let fd = self.number;
        if let Transport::Vsock(cid) = self.transport {
            line.pair("-device", &format!("vhost-vsock-pci,guest-cid={cid},vhostfd={fd}"));
            return;
        }
        line.pair("-chardev", &format!("socket,id=channel,fd={fd}"));
        match self.transport {
            Transport::Serial(_) => line.pair("-device", "isa-serial,chardev=channel"),
            _ => {
                line.pair("-device", "virtio-serial-pci,max_ports=2");
                line.pair("-device", &format!("virtserialport,chardev=channel,name={PORT}"));
            }
        }
    }

    fn probe_arguments(&self) -> String {
        let word = match self.transport {
            Transport::Port(_) => format!("port:{PORT}"),
            Transport::Serial(_) => LINE.into(),
            Transport::Vsock(_) => format!("vsock-listen:{VSOCK_PORT}"),
        };
        format!("--channel {word}")
    }

    fn passed(&mut self) -> Vec<OwnedFd> {
        self.theirs.take().into_iter().collect()
    }
}

/// Opens the host's half of vsock.
fn open(device: &Path) -> Result<File> {
    File::options().read(true).write(true).open(device).map_err(|error| {
        PlatformError::unavailable(
            format!("cannot open {} for vsock: {error}", device.display()),
            "load the module: `modprobe vhost_vsock`, or use channel=port",
        )
    })
}

/// Opens the host's half of vsock and gives it an address that no other machine has. QEMU sets the
/// same address again, which the kernel allows its owner.
fn vsock_device(device: &Path, name: &str) -> Result<(u32, OwnedFd)> {
    let file = open(device)?;
    // FNV-1a, so that guests of different runs rarely try the same address.
    let start =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    for attempt in 0..CIDS {
        let cid = FIRST_CID + start.wrapping_add(attempt) % CIDS;
        let wanted = u64::from(cid);
        // SAFETY: the request reads one 64-bit number, which outlives the call.
        let set = unsafe { libc::ioctl(file.as_raw_fd(), VHOST_VSOCK_SET_GUEST_CID, &raw const wanted) };
        if set == 0 {
            return Ok((cid, file.into()));
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EADDRINUSE) {
            return Err(PlatformError::io(format!("give a guest the vsock address {cid}"))(error));
        }
    }
    Err(PlatformError::unavailable(
        "other machines use all vsock addresses that weigh tried",
        "stop other machines that use vsock, or use channel=port",
    ))
}

/// Connects to a machine's probe, retrying until it listens. The kernel itself gives up an attempt
/// after two seconds.
fn connect(cid: u32, until: Instant, mut lives: impl FnMut() -> bool) -> std::io::Result<OwnedFd> {
    loop {
        match try_connect(cid) {
            Ok(socket) => return Ok(socket),
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) if !lives() => return Err(std::io::Error::other("the machine has ended")),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn try_connect(cid: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: all fields of the address are numbers; its size is passed correctly and it outlives
    // the call. The descriptor is new and owned from here on.
    unsafe {
        let socket = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut to: libc::sockaddr_vm = std::mem::zeroed();
        to.svm_family = libc::AF_VSOCK as libc::sa_family_t;
        to.svm_cid = cid;
        to.svm_port = VSOCK_PORT;
        let size = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
        match libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size) {
            0 => Ok(socket),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;

    fn made(keys: &str) -> Channel {
        Channel::make(&EnvironmentSpec::parse(keys).unwrap(), "guest").unwrap()
    }

    #[test]
    fn every_way_has_its_device_and_its_word() {
        for (keys, device, word) in [
            ("qemu", "virtserialport,chardev=channel,name=weighbridge", "--channel port:weighbridge"),
            ("qemu:channel=port", "virtio-serial-pci", "--channel port:weighbridge"),
            ("qemu:channel=serial", "isa-serial,chardev=channel", "--channel /dev/ttyS1"),
        ] {
            let mut channel = made(keys);
            let line = line_of(&channel);
            assert!(line.contains(device) && line.contains("socket,id=channel,fd="), "{keys}: {line}");
            assert_eq!(channel.probe_arguments(), word);
            assert_eq!((channel.passed().len(), channel.passed().len()), (1, 0));
        }
        let vsock = Channel { transport: Transport::Vsock(77), theirs: None, number: 9 };
        assert!(line_of(&vsock).contains("vhost-vsock-pci,guest-cid=77,vhostfd=9"), "{}", line_of(&vsock));
        assert_eq!(vsock.probe_arguments(), "--channel vsock-listen:1024");
    }

    #[test]
    fn a_host_without_vsock_for_guests_is_reported() {
        for device in ["/no/such/device", "/dev/null"] {
            let error = vsock_device(Path::new(device), "guest").unwrap_err().to_string();
            assert!(error.contains("vsock"), "{error}");
        }
    }

    #[test]
    fn a_machine_that_has_ended_is_not_waited_for() {
        let mut channel = Channel { transport: Transport::Port(None), theirs: None, number: 9 };
        let (session, hello) = channel.session(false, Instant::now() + Duration::from_secs(60), || false);
        assert!(session.is_none() && hello.unwrap_err().to_string().contains("in use"));
    }
}
