//! What the conformance suite cannot test of a machine: its acceleration, its types, its disk.

use crate::common::network::passt_ready;
use crate::common::{self, Bench, MINUTE, acceleration, command, patience, status};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weigh_host::command::find_program;
use weigh_host::ledger::Change;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{Guest, GuestRequest, PlatformError, RunOptions, resolve};
use weigh_protocol::{Command, Input};

/// A run; `None`, with a message, if there is no QEMU.
fn bench(test: &str) -> Option<Bench> {
    let binary = format!("qemu-system-{}", std::env::consts::ARCH);
    if find_program(&binary).is_none() {
        common::skip_or_fail(test, "qemu", &format!("{binary} is not installed"));
        return None;
    }
    Some(Bench::with_turn(&format!("qemu-{test}"), common::shared_turn()))
}

/// A request for a guest with one CPU and only the probe.
fn request(bench: &Bench, environment: &str) -> GuestRequest {
    let cpus = weigh_host::facts::allowed_cpus().into_iter().take(1).collect();
    let request = bench.request_with(environment, &ImageSpec::Probe, None);
    GuestRequest { cpus, memory_bytes: Some(256 << 20), ..request }
}

fn launch(bench: &Bench, environment: &str) -> Box<dyn Guest> {
    bench.launch(&request(bench, environment)).unwrap()
}

fn make_explicit(bench: &Bench, environment: &str) -> Result<String, PlatformError> {
    let (platform, environment) = resolve(&EnvironmentSpec::parse(environment).unwrap()).unwrap();
    platform.make_explicit(&bench.host, &environment).map(|explicit| explicit.to_string())
}

/// The installed QEMU under a new name, about which nothing is cached.
fn fresh_qemu(bench: &Bench) -> PathBuf {
    let link = bench.host.work.join("qemu");
    let binary = find_program(&format!("qemu-system-{}", std::env::consts::ARCH)).unwrap();
    std::os::unix::fs::symlink(binary, &link).unwrap();
    link
}

/// Ends a run, and asserts that its guests have left only directories in the ledger.
fn close(bench: Bench) {
    let standing = bench.host.ledger.standing();
    assert!(standing.iter().all(|change| matches!(change, Change::Directory { .. })), "{standing:?}");
}

/// KVM is proven by a guest, or not at all. Whatever `/dev/kvm` can do here, it is found out within
/// the deadline and cached; `auto` means the result, and a value that is asked for by name is never
/// replaced.
#[test]
fn acceleration_is_proven_by_booting() {
    let Some(bench) = bench("proof") else { return };
    // Any processor can be the model `qemu64`; with it a guest starts even where it then hangs.
    let keys = format!("binary={},cpu=qemu64", fresh_qemu(&bench).display());
    let started = Instant::now();
    let first = make_explicit(&bench, &format!("kvm:{keys}"));
    // The proof's deadline, and the time that killing takes on a busy host.
    assert!(started.elapsed() < patience(Duration::from_secs(20)), "{:?}", started.elapsed());
    let auto = make_explicit(&bench, &format!("qemu:{keys}")).unwrap();
    assert_eq!(
        make_explicit(&bench, &format!("qemu:accel=tcg,{keys}")).unwrap(),
        format!("qemu:accel=tcg,{keys}")
    );
    match first {
        Ok(explicit) => {
            assert_eq!(explicit, format!("qemu:accel=kvm,{keys}"));
            assert_eq!(auto, explicit);
        }
        Err(error) => {
            assert_eq!(auto, format!("qemu:accel=tcg,{keys}"));
            let text = error.to_string();
            assert!(text.contains("/dev/kvm"), "{text}");
            eprintln!("KVM here: {text}");
            let started = Instant::now();
            let again = make_explicit(&bench, &format!("kvm:{keys}")).unwrap_err().to_string();
            assert!(
                started.elapsed() < patience(Duration::from_secs(3)),
                "it is kept: {:?}",
                started.elapsed()
            );
            // The remedy names the cache entry; without a device there is none.
            if let Some(place) = again.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next())
            {
                assert!(again.contains("no guest answered"), "{again}");
                std::fs::remove_dir_all(place).unwrap();
                std::fs::remove_file(format!("{place}.lock")).unwrap();
            }
        }
    }
    close(bench);
}

fn number(path: &str) -> u64 {
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// The CPUs to which threads of a guest's processes are pinned.
#[cfg(target_arch = "x86_64")]
fn pinned(guest: &dyn Guest) -> Vec<u32> {
    let allowed = common::threads(guest).into_iter().map(|(_, cpus)| cpus);
    let mut cpus: Vec<u32> = allowed.filter(|cpus| cpus.len() == 1).flatten().collect();
    cpus.sort_unstable();
    cpus
}

/// A running machine has everything that is tuned, and the host is as before after it has ended.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_tuned_machine_has_its_tuning_and_restores_the_host() {
    let Some(bench) = bench("tuned") else { return };
    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let can_reserve = bench.host.is_root && std::path::Path::new(POOL).exists();
    let before = if can_reserve { number(POOL) } else { 0 };
    let cpus: Vec<u32> = weigh_host::facts::allowed_cpus().into_iter().take(2).collect();
    let environment = "qemu:accel=tcg,tune=on,disk=raw,size=8MiB";
    let mut guest =
        bench.launch(&GuestRequest { cpus: cpus.clone(), ..request(&bench, environment) }).unwrap();
    let facts = guest.read_back().unwrap();
    assert_eq!(
        (&facts["machine:cpu"][..], &facts["machine:iothread"][..]),
        (if acceleration() == "kvm" { "host" } else { "max" }, "disk-thread"),
        "{facts:?}"
    );
    assert!(facts["machine:placement"].starts_with("pinned: 0 on "), "{facts:?}");
    if cpus.len() > 1 {
        assert_eq!(pinned(&*guest), cpus, "{facts:?}");
    }
    if can_reserve {
        // On a busy host no large page may be free: that is reported, and nothing is changed.
        let (pages, now) = (&facts["machine:pages"][..], number(POOL));
        match facts.get("machine:not-tuned") {
            None => assert_eq!((pages, now), ("2 MiB, reserved", before + 128)),
            Some(why) => assert!(why.contains("no large pages: ") && now == before, "{why}"),
        }
    }
    guest.stop().unwrap();
    if can_reserve {
        assert_eq!(number(POOL), before);
    }
    // Sizes that are no whole pages.
    let error = bench
        .launch(&GuestRequest { cpus, ..request(&bench, "qemu:accel=tcg,topology=3x1x1") })
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("topology=3x1x1") && error.contains("CPUs"), "{error}");
    close(bench);
}

/// A machine with `tune=custom` has what its keys ask for, and nothing else of a tuned one.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_custom_machine_has_what_its_keys_ask_for() {
    let Some(bench) = bench("custom") else { return };
    let cpus: Vec<u32> = weigh_host::facts::allowed_cpus().into_iter().take(2).collect();
    let topology = format!("1x{}x1", cpus.len());
    let keys = format!("tune=custom,pin=on,cpu=max,topology={topology},iothread=on,disk=raw,size=1MiB");
    let request = request(&bench, &format!("qemu:accel=tcg,{keys}"));
    let mut guest = bench.launch(&GuestRequest { cpus: cpus.clone(), ..request }).unwrap();
    let facts = guest.read_back().unwrap();
    let facts_of = ["machine:cpu", "machine:topology", "machine:iothread"].map(|key| &*facts[key]);
    assert_eq!(facts_of, ["max", &*topology, "disk-thread"], "{facts:?}");
    assert!(facts["machine:placement"].starts_with("pinned: 0 on "), "{facts:?}");
    if cpus.len() > 1 {
        assert_eq!(pinned(&*guest), cpus, "{facts:?}");
    }
    assert!(facts["machine:pages"].starts_with("4 KiB"), "{facts:?}");
    guest.stop().unwrap();
    close(bench);
}

/// An untuned machine as the usual tools configure it, with a balloon: it has what its keys say,
/// and its guest has its final memory.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_untuned_machine_has_its_devices_and_its_balloon() {
    let Some(bench) = bench("untuned") else { return };
    let cpus: Vec<u32> = weigh_host::facts::allowed_cpus().into_iter().take(2).collect();
    let environment = "qemu:accel=tcg,machine=pc,devices=default,balloon=128MiB,tune=off";
    let mut guest =
        bench.launch(&GuestRequest { cpus: cpus.clone(), ..request(&bench, environment) }).unwrap();
    let facts = guest.read_back().unwrap();
    assert_eq!(facts["machine:cpu"], "qemu64");
    assert_eq!(facts["machine:topology"], format!("{}x1x1", cpus.len()));
    assert_eq!(facts["machine:balloon"], format!("holds {} of {} bytes", 128 << 20, 384 << 20));
    let devices = &facts["machine:devices"];
    for device in ["pc: ", "VGA", "intel-hda", "hda-duplex", "usb-tablet", "virtio-balloon-pci"] {
        assert!(devices.contains(device), "{device} in {devices}");
    }
    assert!(facts["machine:pages"].starts_with("4 KiB"), "{facts:?}");
    assert!(!facts.contains_key("machine:ksm") && !facts.contains_key("machine:not-tuned"), "{facts:?}");
    if cpus.len() > 1 {
        assert_eq!(pinned(&*guest), Vec::<u32>::new());
        assert!(facts["machine:placement"].starts_with("free on "), "{facts:?}");
    }
    // The balloon has taken its part: the guest's kernel has less than 256 of 384 MiB.
    let total = guest.session().facts(&[], &[]).unwrap().memory_total_bytes.unwrap();
    assert!(((128 << 20)..(256 << 20)).contains(&total), "{total}");
    guest.stop().unwrap();
    close(bench);
}

/// Equal pages of two guests are merged, and the host's setting is restored after the last guest.
#[test]
fn equal_pages_are_merged() {
    let Some(bench) = bench("ksm") else { return };
    const RUN: &str = "/sys/kernel/mm/ksm/run";
    if !bench.host.is_root || !std::path::Path::new(RUN).exists() {
        common::skip_or_fail("equal_pages_are_merged", "ksm", "needs root and a kernel with KSM");
        return close(bench);
    }
    let (before, shared) = (number(RUN), || number("/sys/kernel/mm/ksm/pages_sharing"));
    // Pages of ended guests count until the kernel scans again, which it does not do while merging
    // is off: this unmerges all of them.
    if before == 0 {
        std::fs::write(RUN, "2").unwrap();
        std::fs::write(RUN, "0").unwrap();
    }
    let earlier = shared();
    let environment = "qemu:accel=tcg,ksm=on";
    let mut guests = [launch(&bench, environment), launch(&bench, environment)];
    assert_eq!(number(RUN), 1);
    let facts = guests[1].read_back().unwrap();
    assert!(facts["machine:ksm"].starts_with("on, "), "{facts:?}");
    let started = Instant::now();
    while shared() < earlier + 1000 {
        assert!(started.elapsed() < patience(Duration::from_secs(60)), "{} pages", shared());
        std::thread::sleep(Duration::from_millis(50));
    }
    guests[0].stop().unwrap();
    assert_eq!(number(RUN), 1, "the other guest needs it");
    guests[1].stop().unwrap();
    assert_eq!(number(RUN), before);
    close(bench);
}

/// A guest's clock stops while it is frozen, and its kernel does not complain. A kernel panic is
/// reported as such, and at once.
#[test]
fn a_frozen_guest_does_not_see_the_time_and_a_panic_is_quoted() {
    let Some(bench) = bench("frozen") else { return };
    let mut guest = launch(&bench, "qemu:accel=tcg");
    let read = |guest: &mut dyn Guest| guest.session().clock().unwrap().0;
    let before = read(&mut *guest);
    for _ in 0..3 {
        guest.freeze().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        guest.thaw().unwrap();
    }
    let after = read(&mut *guest);
    for (before, after) in
        [(before.monotonic_ns, after.monotonic_ns), (before.realtime_ns, after.realtime_ns)]
    {
        assert!(after - before < 3_000_000_000, "{before} ns, then {after} ns");
    }
    let version = command(&[weigh_images::PROBE, "--version"]);
    guest.session().run(&version, RunOptions::within(MINUTE)).unwrap();
    let log = std::fs::read_to_string(guest.log().unwrap()).unwrap();
    for word in ["stall", "lockup", "unstable", "Marking TSC", "WARNING", "BUG"] {
        assert!(!log.contains(word), "{log}");
    }
    let asked = Instant::now();
    let error = guest.session().put("/proc/sysrq-trigger", 0o200, b"c").unwrap_err().to_string();
    let told = guest.exit_reason().unwrap();
    assert!(asked.elapsed() < patience(Duration::from_secs(20)), "{:?}", asked.elapsed());
    assert!(error.contains("lost"), "{error}");
    assert!(told.contains("its kernel panicked: sysrq triggered crash"), "{told}");
    guest.stop().unwrap();
    close(bench);
}

/// The probe, as a command that runs until its input ends.
fn waiting() -> Command {
    Command { input: Input::Pipe, ..command(&[weigh_images::PROBE]) }
}

/// A machine saved once is restored twice: its files in memory, its first process and a running
/// command are there, and its kernel noticed nothing. Another machine does not accept its state.
#[test]
fn a_saved_machine_goes_on_where_it_was() {
    let Some(bench) = bench("restore") else { return };
    let saved = bench.host.work.join("saved");
    std::fs::create_dir(&saved).unwrap();
    let request = request(&bench, "qemu:accel=tcg");
    let (platform, _) = resolve(&request.environment).unwrap();
    platform.prepare(&bench.host, &request).unwrap();
    platform.restores(&bench.host, &request).unwrap();
    let mut guest = platform.launch(&bench.host, &request).unwrap();
    let began = |guest: &mut dyn Guest| {
        let stat = String::from_utf8(guest.session().get("/proc/1/stat", 1000).unwrap()).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().to_string()
    };
    let before = began(&mut *guest);
    guest.session().put("/note", 0o600, b"kept").unwrap();
    let read = guest.session().clock().unwrap().0.monotonic_ns;
    let started_ns = guest.session().arrival().unwrap().started_ns;
    let id = guest.session().start(&waiting()).unwrap();
    guest.save(&saved).unwrap();
    guest.stop().unwrap();
    for instance in [11, 12] {
        let request = GuestRequest { instance, ..request.clone() };
        let asked = Instant::now();
        let mut again = platform.restore(&bench.host, &request, &saved).unwrap();
        eprintln!("restored within {:?} by {}", asked.elapsed(), request.environment);
        assert_eq!(again.session().arrival().unwrap().started_ns, started_ns, "the probe is another one");
        let error = again.session().get("/note", 10).unwrap_err().to_string();
        assert!(error.contains(&format!("command {id} runs")), "{error}");
        again.session().signal(id, 9).unwrap();
        let until = Instant::now() + patience(Duration::from_secs(30));
        let note = loop {
            match again.session().get("/note", 10) {
                Ok(note) => break note,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        assert_eq!(note, b"kept");
        assert_eq!(began(&mut *again), before);
        assert!(again.session().clock().unwrap().0.monotonic_ns > read);
        again.freeze().unwrap();
        again.thaw().unwrap();
        let log = std::fs::read_to_string(again.log().unwrap()).unwrap();
        for word in ["stall", "lockup", "unstable", "WARNING", "BUG"] {
            assert!(!log.contains(word), "{log}");
        }
        again.stop().unwrap();
    }
    let other = GuestRequest { instance: 13, memory_bytes: Some(320 << 20), ..request.clone() };
    let error = platform.restore(&bench.host, &other, &saved).err().unwrap().to_string();
    assert!(error.contains("memory_bytes") && error.contains("the same machine"), "{error}");
    // An invalid state is reported at once, in QEMU's words.
    std::fs::write(saved.join("machine.state"), "rubbish").unwrap();
    let asked = Instant::now();
    let error = platform.restore(&bench.host, &request, &saved).err().unwrap().to_string();
    assert!(error.contains("migration") && asked.elapsed() < patience(Duration::from_secs(20)), "{error}");
    close(bench);
}

/// A machine that is not all in memory is not saved; the reason is given before anything starts.
#[test]
fn machines_that_cannot_be_saved_are_refused_with_the_reason() {
    let Some(bench) = bench("unsaved") else { return };
    let request = request(&bench, "qemu:accel=tcg,disk=raw,size=1MiB");
    let (platform, _) = resolve(&request.environment).unwrap();
    platform.prepare(&bench.host, &request).unwrap();
    let reason = platform.restores(&bench.host, &request).unwrap_err().to_string();
    assert!(reason.contains("disk"), "{reason}");
    let error = platform.restore(&bench.host, &request, &bench.host.work).err().unwrap();
    assert!(
        matches!(error, PlatformError::Unavailable { .. }) && error.to_string().contains("disk"),
        "{error}"
    );
    close(bench);
}

/// The host's files reach the guest in the way that `root` names.
#[test]
fn files_are_shared_as_the_root_key_says() {
    let Some(bench) = bench("files") else { return };
    let ways = ["virtiofs", "9p"];
    for way in ways {
        let kernel = if way == "9p" { kernel_with_9p() } else { String::new() };
        let environment = format!("qemu:accel=tcg,root={way}{kernel}");
        let request = bench.request_with(&environment, &ImageSpec::Host, None);
        let mut guest = match bench.launch(&GuestRequest { memory_bytes: Some(512 << 20), ..request }) {
            Ok(guest) => guest,
            // The guest's kernel or the host lacks it.
            Err(error @ PlatformError::Unavailable { .. }) => {
                let test = format!("files_are_shared_as_the_root_key_says with root={way}");
                common::skip_or_fail(&test, way, &error.to_string());
                continue;
            }
            Err(error) => panic!("{environment}: {error}"),
        };
        assert_eq!(guest.facts()["root"], way);
        let mounted = common::says(&mut *guest, "cut -d ' ' -f 3 /proc/mounts | sort -u");
        let shared: Vec<&str> = mounted.lines().filter(|kind| ways.contains(kind)).collect();
        assert_eq!(shared, [way], "{mounted}");
        guest.stop().unwrap();
    }
    close(bench);
}

/// The key for an installed kernel that has 9p, which kernels for clouds lack; empty without one.
fn kernel_with_9p() -> String {
    let releases = std::fs::read_dir("/lib/modules").into_iter().flatten().flatten();
    let releases = releases.filter(|release| release.path().join("kernel/fs/9p").exists());
    let mut images = releases.map(|release| format!("/boot/vmlinuz-{}", release.file_name().display()));
    let image = images.find(|image| std::path::Path::new(image).exists());
    image.map(|image| format!(",kernel={image}")).unwrap_or_default()
}

/// KVM's counts of a machine are read: work has exits, and halts are some of them.
#[test]
fn exits_of_a_machine_are_counted() {
    let Some(bench) = bench("exits") else { return };
    if acceleration() != "kvm" {
        eprintln!("SKIPPED exits_of_a_machine_are_counted: emulation has no exits (make test-kvm)");
        return close(bench);
    }
    let mut guest = bench.launch(&bench.request_with("qemu:accel=tcg", &ImageSpec::Host, None)).unwrap();
    let mut observer = Observer::new();
    let instance = observer.attach(&guest.accounts(), &weigh_host::facts::allowed_cpus());
    observer.begin(instance);
    common::says(&mut *guest, "dd if=/dev/zero of=/dev/null bs=1 count=3000");
    let counters = observer.end(instance).charge.counters;
    assert!(counters["vm_exits"] > 0 && counters["vm_halts"] <= counters["vm_exits"], "{counters:?}");
    guest.stop().unwrap();
    close(bench);
}

/// A static program for x86-64 that does the same so many times and ends with status 0. Its sixteen
/// bytes of data are at address 0x400078, before its code.
#[cfg(target_arch = "x86_64")]
fn repeating(count: u32, data: [u64; 2], first: &[u8], each: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    // The lengths of the header and of the one program header behind it (elf(5)).
    const HEADERS: [u16; 2] = [64, 56];
    let back = u8::try_from(256 - (each.len() + 4)).unwrap();
    let mut image = data.map(u64::to_le_bytes).concat();
    image.extend(first);
    image.push(0xbb); // mov count, %ebx
    image.extend(count.to_le_bytes());
    image.extend(each);
    image.extend([0xff, 0xcb, 0x75, back]); // dec %ebx; jnz each
    image.extend([0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // _exit(0)
    let begin = u64::from(HEADERS[0] + HEADERS[1]);
    let length = begin + image.len() as u64;
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(16, 0);
    let halves =
        |numbers: &[u16]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    // An executable (2) for x86-64 (62), whose code follows the data.
    program.extend(halves(&[2, 62]));
    program.extend(words(&[1]));
    program.extend(longs(&[BASE + begin + 16, HEADERS[0].into(), 0]));
    program.extend(words(&[0]));
    program.extend(halves(&[HEADERS[0], HEADERS[1], 1, 64, 0, 0]));
    // All of it is loaded (1), to be read and executed (5).
    program.extend(words(&[1, 5]));
    program.extend(longs(&[0, BASE, BASE, length, length, 0x1000]));
    program.extend(image);
    program
}

/// KVM's counts are what arithmetic says of a program: an exit for every write to an I/O port, a
/// halt for every sleep of a machine that has nothing else to do.
#[cfg(target_arch = "x86_64")]
#[test]
fn exits_are_as_many_as_port_writes_and_halts_as_many_as_sleeps() {
    const TEST: &str = "exits_are_as_many_as_port_writes_and_halts_as_many_as_sleeps";
    const WRITES: u64 = 20_000;
    const SLEEPS: u64 = 100;
    let Some(bench) = bench("arithmetic") else { return };
    if acceleration() != "kvm" {
        eprintln!("SKIPPED {TEST}: emulation has no exits (make test-kvm)");
        return close(bench);
    }
    // ioperm(0x80, 1, 1); then each time `out %al, $0x80`, the port of the self-test's codes, which
    // does nothing.
    let permit = [0xbf, 0x80, 0, 0, 0, 0xbe, 1, 0, 0, 0, 0xba, 1, 0, 0, 0, 0xb8, 173, 0, 0, 0, 0x0f, 0x05];
    let writes = repeating(WRITES as u32, [0, 0], &permit, &[0xe6, 0x80]);
    // nanosleep({0 s, 10 ms}, NULL)
    let sleep = [0xbf, 0x78, 0, 0x40, 0, 0x31, 0xf6, 0xb8, 35, 0, 0, 0, 0x0f, 0x05];
    let sleeps = repeating(SLEEPS as u32, [0, 10_000_000], &[], &sleep);
    let mut guest = launch(&bench, "qemu:accel=tcg");
    let mut observer = Observer::new();
    let instance = observer.attach(&guest.accounts(), &weigh_host::facts::allowed_cpus());
    let mut counters_of = |path: &str, program: &[u8]| {
        guest.session().put(path, 0o755, program).unwrap();
        observer.begin(instance);
        let done = guest.session().run(&command(&[path]), RunOptions::within(patience(MINUTE))).unwrap();
        let counters = observer.end(instance).charge.counters;
        assert_eq!(done.end.status, weigh_protocol::Status::Exited(0), "{path}");
        eprintln!("{path}: {counters:?}");
        counters
    };
    let (writing, sleeping) = (counters_of("/writes", &writes), counters_of("/sleeps", &sleeps));
    // The kernel may print a line meanwhile, and writes each of its characters to a port.
    let few = WRITES / 20;
    assert!((WRITES..WRITES + few).contains(&writing["vm_port_exits"]), "{writing:?}");
    assert!(writing["vm_exits"] >= writing["vm_port_exits"] && writing["vm_halts"] < few, "{writing:?}");
    assert!(sleeping["vm_port_exits"] < few, "{sleeping:?}");
    assert!((SLEEPS..=sleeping["vm_exits"]).contains(&sleeping["vm_halts"]), "{sleeping:?}");
    guest.stop().unwrap();
    close(bench);
}

/// A microvm boots as other machines do. Its probe works over a second serial line, also after a
/// restore, and the console stays separate. If the host has no vsock for guests, asking for it
/// reports that.
#[cfg(target_arch = "x86_64")]
#[test]
fn channels_follow_the_channel_key() {
    let Some(bench) = bench("channel") else { return };
    let request = request(&bench, "qemu:accel=tcg,channel=serial,machine=microvm");
    let (platform, _) = resolve(&request.environment).unwrap();
    platform.prepare(&bench.host, &request).unwrap();
    let mut guest = platform.launch(&bench.host, &request).unwrap();
    assert_eq!(guest.facts()["acceleration"], acceleration());
    assert_eq!(guest.session().facts(&[], &[]).unwrap().cpus, [0]);
    let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i * 31 % 256) as u8).collect();
    guest.session().put("/bytes", 0o600, &bytes).unwrap();
    assert_eq!(guest.session().get("/bytes", 1 << 20).unwrap(), bytes);
    let log = std::fs::read_to_string(guest.log().unwrap()).unwrap();
    assert!(log.contains("weigh-probe: init at"), "the console is the kernel's and the probe's: {log}");
    let saved = bench.host.work.join("saved");
    std::fs::create_dir(&saved).unwrap();
    guest.save(&saved).unwrap();
    guest.stop().unwrap();
    let again = GuestRequest { instance: 11, ..request };
    let mut again = platform.restore(&bench.host, &again, &saved).unwrap();
    assert_eq!(again.session().get("/bytes", 1 << 20).unwrap(), bytes);
    again.stop().unwrap();
    match (
        make_explicit(&bench, "qemu:accel=tcg,channel=vsock"),
        std::path::Path::new("/dev/vhost-vsock").exists(),
    ) {
        (Ok(_), true) => {
            let mut guest = launch(&bench, "qemu:accel=tcg,channel=vsock");
            assert_eq!(guest.session().facts(&[], &[]).unwrap().cpus, [0]);
            guest.stop().unwrap();
        }
        (Err(error), _) => assert!(error.to_string().contains("/dev/vhost-vsock"), "{error}"),
        (Ok(explicit), false) => panic!("{explicit} without a device"),
    }
    close(bench);
}

/// A guest that takes QEMU over is not root on the host, starts no program there, gains no rights.
#[test]
fn qemu_gives_up_root_and_is_filtered() {
    let Some(bench) = bench("confined") else { return };
    let is_root = weigh_host::facts::is_root();
    let mut requests =
        vec![request(&bench, "qemu:accel=tcg"), request(&bench, "qemu:accel=tcg,net=user,machine=microvm")];
    if is_root {
        requests.push(bench.request_with("qemu:accel=tcg,disk=raw,size=8MiB", &ImageSpec::Host, None));
    }
    if passt_ready("confined") {
        requests.push(request(&bench, "qemu:accel=tcg,net=passt"));
    }
    for request in requests {
        let mut guest = bench.launch(&request).unwrap();
        let name = |process: &u32| status(*process, "Name") == "qemu-guest";
        let qemu = guest.processes().into_iter().find(name).expect("QEMU is a process of the guest's");
        let environment = &request.environment;
        // The process that serves its files is filtered, too. Threads of the kernel run no program.
        let runs_program = |process: &u32| std::fs::read_link(format!("/proc/{process}/exe")).is_ok();
        for process in guest.processes().into_iter().filter(runs_program) {
            let name = status(process, "Name");
            assert_eq!(status(process, "Seccomp"), "2", "{environment}: {name}");
            let users = status(process, "Uid");
            assert!(!is_root || !name.starts_with("passt") || users.starts_with("165535"), "{name}: {users}");
        }
        assert!(
            !is_root || status(qemu, "Uid").split_whitespace().all(|user| user == "165535"),
            "{environment}"
        );
        for field in ["CapPrm", "CapEff"] {
            assert_eq!(u64::from_str_radix(&status(qemu, field), 16).unwrap(), 0, "{environment}: {field}");
        }
        assert!(guest.session().clock().is_ok(), "it works all the same");
        guest.stop().unwrap();
    }
    close(bench);
}
