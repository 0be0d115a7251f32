//! Tests of choosing a kernel.

use super::payload::tests::image;
use super::*;
use crate::modules::tests::object;
use std::io::Write;
use weigh_host::state::StateDirectory;

struct Base(tempfile::TempDir);

impl Base {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A kernel of the host with these modules.
    fn kernel(&self, release: &str, modules: &[&str]) {
        self.file(&format!("boot/vmlinuz-{release}"), image(&packed()));
        for module in modules {
            self.file(&format!("modules/{release}/kernel/{module}.ko"), object(""));
        }
    }

    fn newest(&self) -> Option<GuestKernel> {
        newest(&self.path("boot"), &self.path("modules"))
    }

    fn ledger(&self) -> Ledger {
        Ledger::create(&StateDirectory::at(self.path("state")), "run").unwrap()
    }
}

fn packed() -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"\x7fELF the kernel proper").unwrap();
    gzip.finish().unwrap()
}

const ALL: [&str; 2] = ["virtio_pci", "virtio_console"];

#[test]
fn the_newest_that_can_serve() {
    let base = Base::new();
    assert!(base.newest().is_none());
    base.kernel("6.1.0-9-cloud", &ALL);
    base.kernel("6.1.0-10-cloud", &ALL);
    base.kernel("6.9.0", &["virtio_pci"]);
    base.kernel("6.10.0", &[]);
    base.kernel("6.2.0", &ALL);
    base.file("boot/config-6.2.0", "CONFIG_BLK_DEV_INITRD=y\nCONFIG_DEVTMPFS=y\n# CONFIG_TMPFS is not set\n");
    assert_eq!(base.newest().unwrap().release, "6.1.0-10-cloud");
    let whole = "CONFIG_BLK_DEV_INITRD=y\nCONFIG_DEVTMPFS=y\nCONFIG_TMPFS=y\nCONFIG_SERIAL_8250_CONSOLE=y\n";
    base.file("boot/config-6.2.0", whole);
    assert_eq!(base.newest().unwrap().release, "6.2.0");
}

#[test]
fn versions_are_ordered_as_people_do() {
    let order = ["5.19", "6.1.0-rc1", "6.1.0-9", "6.1.0-10", "6.2.0", "6.10.0", "6.10.0-1"];
    let mut sorted = order.map(parts);
    sorted.sort();
    assert_eq!(sorted, order.map(parts));
}

#[test]
fn it_is_unpacked_once() {
    let base = Base::new();
    base.kernel("6.1.0", &ALL);
    let cache = CacheDirectory::at(base.path("cache"));
    let ledger = base.ledger();
    let kernel = base.newest().unwrap().decompressed(&cache, &ledger).unwrap();
    assert_eq!(fs::read(&kernel.boot).unwrap(), b"\x7fELF the kernel proper");
    assert!(kernel.has("virtio_pci") && !kernel.has("9p"));
    let made = kernel.boot.metadata().unwrap().modified().unwrap();
    let again = base.newest().unwrap().decompressed(&cache, &ledger).unwrap();
    assert_eq!(again.boot, kernel.boot);
    assert_eq!(again.boot.metadata().unwrap().modified().unwrap(), made);
    // Another kernel with the same name.
    let mut changed = image(&packed());
    changed.push(0);
    base.file("boot/vmlinuz-6.1.0", changed);
    assert_ne!(base.newest().unwrap().decompressed(&cache, &ledger).unwrap().boot, kernel.boot);
}

#[test]
fn one_that_cannot_be_unpacked_is_booted_as_it_is() {
    let base = Base::new();
    base.kernel("6.1.0", &ALL);
    let path = base.file("boot/vmlinuz-6.1.0", image(b"BZh91AY"));
    let cache = CacheDirectory::at(base.path("cache"));
    let kernel = base.newest().unwrap().decompressed(&cache, &base.ledger()).unwrap();
    assert_eq!(kernel.boot, path);
}

#[test]
fn a_named_kernel_brings_its_modules() {
    let base = Base::new();
    let named = |path: &Path| GuestKernel::named(path, Path::new("/no/such/place"));
    let path = base.file("k/boot/vmlinuz", image(&packed()));
    let alone = named(&path).unwrap();
    assert_eq!((alone.release.as_str(), alone.modules), ("6.1.0-9-cloud", None));
    base.file("k/lib/modules/6.1.0-9-cloud/virtio_pci.ko", object(""));
    let error = named(&path).err().unwrap().to_string();
    assert!(error.contains("virtio_console"), "{error}");
    base.file("k/lib/modules/6.1.0-9-cloud/virtio_console.ko", object(""));
    assert!(named(&path).unwrap().modules.unwrap().has("virtio_console"));
    let elf = base.file("vmlinux", b"\x7fELF....Linux version 6.7.8-mine (gcc)");
    assert_eq!(named(&elf).unwrap().release, "6.7.8-mine");
    let error = named(&base.file("rubbish", b"rubbish")).err().unwrap().to_string();
    assert!(error.contains("rubbish") && error.contains("release"), "{error}");
}

/// The real package, from the real archive. It is in the slow lane, because it fetches 30 MB.
#[test]
fn the_real_package() {
    if std::env::var_os("WEIGH_LONG").is_none() {
        return;
    }
    let base = Base::new();
    let cache = CacheDirectory::at(base.path("cache"));
    let (ledger, log) = (base.ledger(), base.path("log"));
    let fetching = Fetching { log: &log, until: None };
    let kernel = debian::kernel(&cache, &ledger, fetching).unwrap();
    assert!(kernel.release.contains("cloud") && kernel.boot.ends_with(VMLINUX), "{kernel:?}");
    let banner = payload::release_of_elf(&fs::read(&kernel.boot).unwrap());
    assert_eq!(banner.as_deref(), Some(kernel.release.as_str()));
    let modules = kernel.modules.as_ref().unwrap().resolve(&["virtio_pci", "virtio_console"]).unwrap();
    let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    let place = |name| names.iter().position(|other| *other == name);
    assert!(place("virtio") < place("virtio_pci") && place("virtio_pci").is_some(), "{names:?}");
    assert_eq!(debian::kernel(&cache, &ledger, fetching).unwrap(), kernel);
    assert_eq!(ledger.standing(), []);
}
