//! Time from the call to the probe's hello: QEMU machines without acceleration as the platform
//! launches them, against the fastest manual command line for the same type of machine, with the
//! same kernel, initial RAM file system, CPUs and memory; and saved machines, against the same done
//! manually.
//!
//! The manual command line for q35 has the firmware for direct boots and leaves out unused
//! controllers, like that of somebody who wants a fast boot; nothing is confined, recorded or read
//! back.

use crate::guests::{launch, request, with_host};
use crate::{Fallible, Line, Outcome, median, ratio};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, Running, find_program};
use weigh_images::Root;
use weigh_model::ImageSpec;
use weigh_platforms::{GuestRequest, Host, Session, find};

const ROUNDS: u64 = 10;
const DEADLINE: Duration = Duration::from_secs(60);
const MEMORY_BYTES: u64 = 256 << 20;
const BINARY: &str = "qemu-system-x86_64";
/// Longest time that a restore of such a machine may take, seconds.
const RESTORE_GOAL_S: f64 = 0.5;

/// A type of machine.
struct Kind {
    environment: &'static str,
    /// Options of the manual command line.
    options: &'static [&'static str],
    /// Whether the kernel must be given the TSC's frequency.
    told_clock: bool,
}

const Q35: Kind = Kind {
    environment: "qemu:accel=tcg,machine=q35",
    options: &["-M", "q35,sata=off,smbus=off,usb=off,vmport=off", "-bios", "qboot.rom"],
    told_clock: false,
};
const MICROVM: Kind = Kind {
    environment: "qemu:accel=tcg,machine=microvm",
    options: &["-M", "microvm,pcie=on,rtc=on,auto-kernel-cmdline=off"],
    told_clock: true,
};

pub fn measure() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err("the lines by hand are those of x86-64".into());
    }
    find_program(BINARY).ok_or("QEMU is not installed (apt-get install qemu-system-x86)")?;
    with_host("bench-qemu", &ImageSpec::Probe, compare)
}

fn compare(host: &Host, root: &Arc<Root>) -> Outcome {
    // One unmeasured launch of each prepares everything and fills the page cache.
    for (number, kind) in [Q35, MICROVM].iter().enumerate() {
        launch(host, &machine(root, kind, number as u64)?)?;
    }
    let hand = Hand::new(host)?;
    hand.save()?;
    let saved = save(host, root)?;
    let mut instance = 10;
    let mut next = || {
        instance += 1;
        instance
    };
    let mut times = [const { Vec::new() }; 6];
    for round in 0..ROUNDS {
        for turn in 0..times.len() {
            let which = (turn + round as usize) % times.len();
            times[which].push(match which {
                0 => launch(host, &machine(root, &Q35, next())?)?,
                1 => hand.boot(&Q35)?,
                2 => launch(host, &machine(root, &MICROVM, next())?)?,
                3 => hand.boot(&MICROVM)?,
                4 => restore(host, &machine(root, &Q35, next())?, &saved)?,
                _ => hand.restore()?,
            });
        }
    }
    let seconds = |times: &[f64]| median(&mut times.to_vec());
    let mut lines = Vec::new();
    for (name, pair) in ["q35", "microvm", "q35, saved and restored"].into_iter().zip(times.chunks(2)) {
        let [ours, theirs] = pair else { continue };
        let (value, text) = ratio(ours, theirs)?;
        let what = format!("{name} {:.3} s, by hand {:.3} s (medians)", seconds(ours), seconds(theirs));
        lines.push(Line { what, value: text, goal: "<= 1.1", met: value <= 1.1 });
    }
    let restored = seconds(&times[4]);
    lines.push(Line {
        what: "a saved machine of 256 MiB, restore to the probe's hello".into(),
        value: format!("{restored:.3} s"),
        goal: "<= 0.5 s",
        met: restored <= RESTORE_GOAL_S,
    });
    Ok(lines)
}

/// The request for a machine like those of the manual command lines.
fn machine(root: &Arc<Root>, kind: &Kind, instance: u64) -> Fallible<GuestRequest> {
    let cpus = weigh_host::facts::allowed_cpus().into_iter().rev().take(1).collect();
    let request = request(root, kind.environment, instance)?;
    Ok(GuestRequest { cpus, memory_bytes: Some(MEMORY_BYTES), ..request })
}

/// Saves a machine through the platform; returns the directory.
fn save(host: &Host, root: &Arc<Root>) -> Fallible<PathBuf> {
    let saved = host.work.join("bench-saved");
    std::fs::create_dir(&saved)?;
    let platform = find("qemu").ok_or("no platform qemu")?;
    let mut guest = platform.launch(host, &machine(root, &Q35, 9)?)?;
    guest.save(&saved).and_then(|()| guest.stop())?;
    Ok(saved)
}

/// Returns the time to the hello of a restored machine, seconds.
fn restore(host: &Host, request: &GuestRequest, saved: &Path) -> Fallible<f64> {
    let platform = find("qemu").ok_or("no platform qemu")?;
    let start = Instant::now();
    let mut guest = platform.restore(host, request, saved)?;
    let took = start.elapsed().as_secs_f64();
    guest.stop()?;
    Ok(took)
}

/// The kernel and the archive that the platform boots.
fn prepared(host: &Host) -> Fallible<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(&host.work)?;
    let place = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("prepared.json").exists())
        .ok_or("the platform prepared nothing")?;
    let text = std::fs::read_to_string(place.join("prepared.json"))?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let path =
        |name: &str| value[name].as_str().map(PathBuf::from).ok_or_else(|| format!("no {name} is prepared"));
    Ok((path("kernel")?, path("initramfs")?))
}

/// Machines started by manual command lines.
struct Hand {
    kernel: PathBuf,
    archive: PathBuf,
    /// Directory for their files.
    directory: PathBuf,
}

impl Hand {
    fn new(host: &Host) -> Fallible<Self> {
        let (kernel, archive) = prepared(host)?;
        let directory = host.work.join("by-hand");
        std::fs::create_dir_all(&directory)?;
        Ok(Self { kernel, archive, directory })
    }

    fn state(&self) -> String {
        self.directory.join("state").display().to_string()
    }

    fn line(&self, kind: &Kind) -> Fallible<Invocation> {
        let clock = if kind.told_clock { format!(" tsc_early_khz={}", khz()?) } else { String::new() };
        Ok(Invocation::new(BINARY)
            .args(kind.options)
            .args(["-accel", "tcg", "-smp", "1", "-m", "256"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "null"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.archive)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 reboot=t{clock} rdinit=/.weighbridge/probe -- --channel port:weighbridge"
            ))
            .args(["-chardev", "stdio,id=channel,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", "virtserialport,chardev=channel,name=weighbridge"]))
    }

    /// Returns the time to the hello; the machine is told to power off.
    fn boot(&self, kind: &Kind) -> Fallible<f64> {
        let (took, running, mut session) = come_up(self.line(kind)?)?;
        end(running, &mut session)?;
        Ok(took)
    }

    /// Saves a machine through its monitor, as in QEMU's own guide.
    fn save(&self) -> Fallible<()> {
        let socket = self.directory.join("qmp");
        let line = self.line(&Q35)?.arg("-qmp").arg(format!("unix:{},server=on,wait=off", socket.display()));
        let (_, mut running, _session) = come_up(line)?;
        let mut monitor = UnixStream::connect(&socket)?;
        let mut say = |line: String| monitor.write_all(line.as_bytes());
        // The machine is not stopped first: it would be restored as stopped.
        say("{\"execute\": \"qmp_capabilities\"}\n".into())?;
        let uri = format!("exec:cat > {}", self.state());
        say(format!("{{\"execute\": \"migrate\", \"arguments\": {{\"uri\": \"{uri}\"}}}}\n"))?;
        let until = Instant::now() + DEADLINE;
        let mut heard = String::new();
        let mut piece = [0; 4096];
        while !heard.contains("\"completed\"") {
            if Instant::now() > until {
                return Err(format!("a machine by hand is not saved: {heard}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
            monitor.write_all(b"{\"execute\": \"query-migrate\"}\n")?;
            let n = monitor.read(&mut piece)?;
            heard += &String::from_utf8_lossy(&piece[..n]);
        }
        monitor.write_all(b"{\"execute\": \"quit\"}\n")?;
        running.wait(DEADLINE)?.ok_or("it does not quit")?;
        Ok(())
    }

    /// Returns the time to the hello of the saved machine.
    fn restore(&self) -> Fallible<f64> {
        let line = self.line(&Q35)?.arg("-incoming").arg(format!("exec:cat {}", self.state()));
        let (took, running, mut session) = come_up(line)?;
        end(running, &mut session)?;
        Ok(took)
    }
}

/// Starts a machine and waits for its hello over standard streams; returns the time, seconds.
fn come_up(line: Invocation) -> Fallible<(f64, Running, Session)> {
    let start = Instant::now();
    let mut running = line.spawn()?;
    let (output, input) = running.take_output().zip(running.take_input()).ok_or("no standard streams")?;
    let mut session = Session::new(output, input);
    session.hello(DEADLINE)?;
    Ok((start.elapsed().as_secs_f64(), running, session))
}

fn end(mut running: Running, session: &mut Session) -> Fallible<()> {
    session.shutdown(DEADLINE)?;
    running.wait(DEADLINE)?.ok_or("it does not power off")?;
    Ok(())
}

/// The frequency in `/proc/cpuinfo`, where a user would look. The kernel shows nominal frequencies
/// there, which are close enough for a boot.
fn khz() -> Fallible<u64> {
    let text = std::fs::read_to_string("/proc/cpuinfo")?;
    let line =
        text.lines().find(|line| line.starts_with("cpu MHz")).ok_or("no frequency in /proc/cpuinfo")?;
    let megahertz = line.split(':').nth(1).and_then(|value| value.trim().parse::<f64>().ok());
    megahertz.map(|value| (value * 1e3) as u64).ok_or_else(|| "the frequency is no number".into())
}
