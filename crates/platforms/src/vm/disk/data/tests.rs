use super::super::undo;
use super::*;
use std::os::unix::fs::{FileExt, MetadataExt};
use weigh_host::cgroup::Hierarchy;
use weigh_host::command::Invocation;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::Programs;

struct Bench {
    host: Host,
    _base: tempfile::TempDir,
}

impl Bench {
    /// On a disk: loop devices with direct access do not work everywhere above memory.
    fn new(name: &str) -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let run = format!("test-disk-{name}-{}", std::process::id());
        let state = StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, &run).unwrap();
        let work = base.path().join("weighbridge-work");
        fs::create_dir(&work).unwrap();
        let programs = Programs { probe: "/bin/true".into(), kernels: "/bin/true".into(), module: None };
        let is_root = weigh_host::facts::is_root();
        let logs = base.path().into();
        let (hierarchy, fetch_until) = (Hierarchy::detect(), None);
        Self {
            host: Host { ledger, hierarchy, work, logs, run, programs, is_root, fetch_until },
            _base: base,
        }
    }
}

fn wanted(keys: &str) -> DataDiskSpec {
    let spec = EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap();
    DataDiskSpec::of(&Disks, &spec).unwrap()
}

/// A platform with all keys of disks.
struct Disks;

impl Platform for Disks {
    fn about(&self) -> &'static crate::About {
        const KEYS: &[KeySpec] = &[disk_key(&["none", "raw", "qcow2", "block"]), SIZE, DEVICE];
        &crate::About { name: "disks", summary: "", keys: KEYS }
    }
    fn capabilities(&self, _: &EnvironmentSpec) -> crate::Capabilities {
        crate::Capabilities::CONTAINER
    }
    fn availability(&self, _: &Host) -> crate::Availability {
        crate::Availability::Ready { detail: String::new() }
    }
    fn prepare(&self, _: &Host, _: &crate::GuestRequest) -> crate::Result<()> {
        Ok(())
    }
    fn launch(&self, _: &Host, _: &crate::GuestRequest) -> crate::Result<Box<dyn crate::Guest>> {
        Err(PlatformError::Unavailable { reason: "nothing is here".into(), remedy: None })
    }
    fn host_changes(&self, _: &crate::GuestRequest) -> Vec<String> {
        Vec::new()
    }
}

/// Whether loop devices work here; if not, prints that the test is skipped.
fn loops(test: &str) -> bool {
    let works = weigh_host::facts::is_root() && Path::new("/dev/loop-control").exists();
    if !works {
        eprintln!("SKIPPED {test}: there are no loop devices here, or not for this user");
    }
    works
}

#[test]
fn keys_without_a_sense_are_underlined() {
    for (keys, wrong) in [
        ("size=1GiB", "size"),
        ("disk=raw,size=0", "0"),
        ("disk=raw,size=5000", "5000"),
        ("disk=raw,size=big", "big"),
        ("disk=raw,device=/dev/null", "device"),
    ] {
        let spec = EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap();
        let error = DataDiskSpec::check(&Disks, &spec).unwrap_err();
        assert_eq!(&error.text[error.span.clone()], wrong, "{keys}");
        assert!(error.help.is_some());
    }
    for keys in ["disk=none", "disk=raw", "disk=qcow2,size=2GiB", "disk=block,device=/dev/null"] {
        let spec = EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap();
        DataDiskSpec::check(&Disks, &spec).unwrap();
    }
    assert_eq!(wanted("disk=qcow2").bytes, 1 << 30);
    assert_eq!(DataDiskSpec::of(&Disks, &EnvironmentSpec::parse("qemu").unwrap()), None);
}

/// Two guests never have the same file at once; a later guest may get it, but never after somebody
/// has written to it.
#[test]
fn a_disk_has_one_guest_at_a_time() {
    let bench = Bench::new("pool");
    let wanted = wanted("disk=raw,size=1MiB");
    wanted.prepare(&bench.host).unwrap();
    wanted.prepare(&bench.host).unwrap();
    let inode = |disk: &DataDisk| disk.path.metadata().unwrap().ino();
    let mut first = wanted.take(&bench.host, 1).unwrap();
    let mut second = wanted.take(&bench.host, 2).unwrap();
    assert_ne!(first.path, second.path);
    assert_eq!((first.bytes, first.whole, first.is_device()), (1 << 20, true, false));
    let as_made = fs::read(&first.path).unwrap();
    assert_eq!(as_made, fs::read(&second.path).unwrap());
    let unwritten = inode(&first);
    first.give_back().unwrap();
    fs::write(&second.path, vec![0; 1 << 20]).unwrap();
    second.give_back().unwrap();
    let third = wanted.take(&bench.host, 3).unwrap();
    assert_eq!(inode(&third), unwritten);
    let fourth = wanted.take(&bench.host, 4).unwrap();
    assert_eq!(fs::read(&fourth.path).unwrap(), as_made);
    drop((third, fourth));
    let pool = wanted.pool(&bench.host).unwrap();
    assert_eq!(fs::read_dir(pool).unwrap().count(), 0, "what is only dropped may have been written to");
}

/// A loop device is in the ledger while it exists, reads the file past the page cache, and can be
/// undone by its file's name alone.
#[test]
fn a_loop_device_comes_and_goes_with_its_guest() {
    if !loops("a_loop_device_comes_and_goes_with_its_guest") {
        return;
    }
    let bench = Bench::new("loop");
    let wanted = wanted("disk=block,size=1MiB");
    let mut disk = wanted.take(&bench.host, 1).unwrap();
    assert!(disk.is_device() && disk.path.starts_with("/dev"), "{disk:?}");
    let standing = bench.host.ledger.standing();
    let [Change::Platform { platform, what, id, .. }] = &standing[..] else { panic!("{standing:?}") };
    assert_eq!((platform.as_str(), what.as_str()), (super::super::PLATFORM, "loop device"));
    let of_kernel = Path::new("/sys/block").join(disk.path.file_name().unwrap());
    assert_eq!(fs::read_to_string(of_kernel.join("loop/dio")).unwrap().trim(), "1");
    let mut page = [0; 4096];
    fs::File::open(&disk.path).unwrap().read_exact_at(&mut page, 8192).unwrap();
    assert_eq!(page, fs::read(id).unwrap()[8192..][..4096]);
    // As after a crash: only the ledger is known.
    undo(what, id).unwrap();
    assert!(!of_kernel.join("loop/backing_file").exists());
    undo(what, id).unwrap();
    disk.give_back().unwrap();
    assert_eq!(bench.host.ledger.standing(), []);
}

#[test]
fn loop_devices_of_others_are_left_alone() {
    for file in ["/srv/no-such-image", "/var/lib/disks-x/no-such-image", "/srv/guest-1", "guest-1", ""] {
        let error = undo("loop device", file).unwrap_err().to_string();
        assert!(error.contains("does not have a name of weighbridge's"), "{file}: {error}");
    }
    undo("loop device", "/no/such/work/disks-raw-1048576-ext4/guest-7").unwrap();
}

/// A user's device that is in use is refused, and only one guest has it at a time.
#[test]
fn a_device_in_use_is_refused() {
    if !loops("a_device_in_use_is_refused") {
        return;
    }
    let bench = Bench::new("device");
    // A loop device plays the user's disk.
    let of_user = wanted("disk=block,size=2MiB").take(&bench.host, 1).unwrap();
    let device = of_user.path.display().to_string();
    let named = |size: &str| wanted(&format!("disk=block,device={device}{size}"));
    let too_large = named(",size=4MiB").prepare(&bench.host).unwrap_err().to_string();
    assert!(too_large.contains("size=2MiB"), "{too_large}");
    let mut disk = named("").take(&bench.host, 2).unwrap();
    assert_eq!((disk.bytes, disk.whole, disk.path.display().to_string()), (2 << 20, true, device.clone()));
    let second = named("").take(&bench.host, 3).unwrap_err().to_string();
    assert!(second.contains("in use") && second.contains("destroyed"), "{second}");
    let marker = bench.host.work.join(format!("disk{}-{}.filled", device.replace('/', "-"), 2 << 20));
    disk.give_back().unwrap();
    assert!(marker.exists(), "it is as it was made");
    let mut written = named("").take(&bench.host, 6).unwrap();
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    file.sync_all().unwrap();
    written.give_back().unwrap();
    assert!(!marker.exists());
    let part = named(",size=1MiB").take(&bench.host, 4).unwrap();
    assert_eq!((part.bytes, part.whole), (1 << 20, false));
    drop(part);
    let whole = named(",size=1MiB").only_whole().take(&bench.host, 7).unwrap_err().to_string();
    assert!(whole.contains("a part of") && whole.contains("size=2MiB"), "{whole}");
    named(",size=2MiB").only_whole().prepare(&bench.host).unwrap();
    // In use by a file system.
    let place = bench.host.work.join("mounted");
    fs::create_dir(&place).unwrap();
    bench.host.ledger.record(Change::Mount { target: place.clone() }).unwrap();
    Invocation::new("/usr/sbin/mke2fs").args(["-q", "-F", &device]).run_ok().unwrap();
    Invocation::new("mount").args([&device]).arg(&place).run_ok().unwrap();
    let error = named("").take(&bench.host, 5).unwrap_err().to_string();
    Invocation::new("umount").arg(&place).run_ok().unwrap();
    assert!(error.contains("mounted"), "{error}");
    let file = wanted(&format!("disk=block,device={}", bench.host.work.display()));
    let error = file.prepare(&bench.host).unwrap_err().to_string();
    assert!(error.contains("is not a block device"), "{error}");
    let said = named("").host_changes().join(" ");
    assert!(said.contains("DESTROY") && said.contains(&device), "{said}");
}
