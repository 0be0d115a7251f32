//! From the call to the probe's hello: a machine of QEMU's without acceleration as the platform launches it, against command lines that
//! do the same by hand with the same kernel, the same initial RAM file system, CPU and memory.
//!
//! By hand there are two: the type of machine that is the platform's default, with the firmware that QEMU gives it, and the one that
//! QEMU has for quick boots. The platform is held to the quicker of them.

use crate::guests::{launch, request, with_host};
use crate::{Line, Outcome, median, ratio};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::command::{Invocation, find_program};
use weigh_images::Root;
use weigh_model::ImageSpec;
use weigh_platforms::{GuestRequest, Host, Session};

const ROUNDS: u64 = 10;
const DEADLINE: Duration = Duration::from_secs(60);
const MEMORY_BYTES: u64 = 512 << 20;
const BINARY: &str = "qemu-system-x86_64";
/// Types of machine and what has to be said with them.
const BY_HAND: [(&str, &str); 2] =
    [("q35", ""), ("microvm,pcie=on,rtc=on,auto-kernel-cmdline=off", "tsc_early_khz=")];

pub fn measure() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err("the lines by hand are those of x86-64".into());
    }
    find_program(BINARY).ok_or("QEMU is not installed (apt-get install qemu-system-x86)")?;
    with_host("bench-qemu", &ImageSpec::Probe, compare)
}

fn compare(host: &Host, root: &Arc<Root>) -> Outcome {
    // Once unmeasured: everything is prepared, and the kernel's file is in the page cache.
    launch(host, &machine(root, 0)?)?;
    let (kernel, archive) = prepared(host)?;
    let mut times = [const { Vec::new() }; 1 + BY_HAND.len()];
    for round in 0..ROUNDS {
        for turn in 0..times.len() {
            let which = (turn + round as usize) % times.len();
            times[which].push(match which.checked_sub(1) {
                None => launch(host, &machine(root, 1 + round)?)?,
                Some(line) => by_hand(&kernel, &archive, BY_HAND[line])?,
            });
        }
    }
    let [ours, q35, microvm] = times;
    let seconds = |times: &[f64]| median(&mut times.to_vec());
    let quicker = if seconds(&q35) < seconds(&microvm) { &q35 } else { &microvm };
    let (value, text) = ratio(&ours, quicker)?;
    let what = format!(
        "qemu:accel=tcg {:.2} s, by hand q35 {:.2} s, microvm {:.2} s (medians)",
        seconds(&ours),
        seconds(&q35),
        seconds(&microvm)
    );
    Ok(vec![Line { what, value: text, goal: "<= 1.1", met: value <= 1.1 }])
}

/// The machine that the lines by hand make, too.
fn machine(root: &Arc<Root>, instance: u64) -> Result<GuestRequest, String> {
    let cpus = weigh_host::facts::allowed_cpus().into_iter().rev().take(1).collect();
    let request = request(root, "qemu:accel=tcg", instance)?;
    Ok(GuestRequest { cpus, memory_bytes: Some(MEMORY_BYTES), ..request })
}

/// Kernel and archive that the platform boots.
fn prepared(host: &Host) -> Result<(PathBuf, PathBuf), String> {
    let entries = std::fs::read_dir(&host.work).map_err(|error| error.to_string())?;
    let place = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("prepared.json").exists())
        .ok_or("the platform prepared nothing")?;
    let text = std::fs::read_to_string(place.join("prepared.json")).map_err(|error| error.to_string())?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let path =
        |name: &str| value[name].as_str().map(PathBuf::from).ok_or_else(|| format!("no {name} is prepared"));
    Ok((path("kernel")?, path("initramfs")?))
}

/// Time to the hello over standard streams; the machine powers off when it is told to.
fn by_hand(
    kernel: &std::path::Path,
    archive: &std::path::Path,
    machine: (&str, &str),
) -> Result<f64, String> {
    let (kind, clock) = machine;
    let clock = if clock.is_empty() { String::new() } else { format!(" {clock}{}", khz()?) };
    let invocation = Invocation::new(BINARY)
        .args(["-M", kind, "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512"])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "null", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(archive)
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 reboot=t{clock} rdinit=/.weighbridge/probe -- --channel port:weighbridge"
        ))
        .args(["-chardev", "stdio,id=channel,signal=off", "-device", "virtio-serial-pci"])
        .args(["-device", "virtserialport,chardev=channel,name=weighbridge"]);
    let start = Instant::now();
    let mut running = invocation.spawn().map_err(|error| error.to_string())?;
    let (output, input) = running.take_output().zip(running.take_input()).ok_or("no standard streams")?;
    let mut session = Session::new(output, input);
    session.hello(DEADLINE).map_err(|error| error.to_string())?;
    let took = start.elapsed().as_secs_f64();
    session.shutdown(DEADLINE).map_err(|error| error.to_string())?;
    running.wait(DEADLINE).map_err(|error| error.to_string())?.ok_or("it does not power off")?;
    Ok(took)
}

/// As a user has it from `/proc/cpuinfo`, where the kernel tells nominal frequencies: near enough for a boot.
fn khz() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").map_err(|error| error.to_string())?;
    let line =
        text.lines().find(|line| line.starts_with("cpu MHz")).ok_or("no frequency in /proc/cpuinfo")?;
    let megahertz = line.split(':').nth(1).and_then(|value| value.trim().parse::<f64>().ok());
    megahertz.map(|value| (value * 1e3) as u64).ok_or_else(|| "the frequency is no number".into())
}
