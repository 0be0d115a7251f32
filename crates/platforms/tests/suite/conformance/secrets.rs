//! What root in a guest must not see of the host.

use super::bench::{Bench, command, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_host::command::Invocation;
use weigh_host::state::StateDirectory;
use weigh_protocol::Status;

/// The content of every secret file of this check.
const SECRET: &str = "known to the host alone";
/// Prints a file. A guest that may mount also mounts the host's files again, by every way in which
/// a machine may have them, takes off what covers the file, and writes to what it sees read-only.
const READ: &str = r#"cat "$0"; mkdir /tmp/all && {
    mount -t virtiofs weighbridge /tmp/all || mount -t 9p -o trans=virtio weighbridge /tmp/all ||
    mount -t hostfs none /tmp/all -o /
} && { cat "/tmp/all$0"; touch "/tmp/all$1"; cp /bin/true "/tmp/all$1"; }
for place in /usr /etc; do mount -o remount,bind,rw "$place" && touch "$place/${1##*/}"; done
covered=$0; while [ "$covered" != / ]; do
    umount "$covered" && cat "$0"; covered=$(dirname "$covered")
done; true"#;
/// Prints the beginning of a disk of the host, with these numbers and this name, by every way in
/// which the kernel gives a node to somebody who may make or mount it. Somebody who may mount first
/// lifts the filter of devices of control groups of version 1.
const READ_DISK: &str = r#"at=$(mktemp -d); mount -t cgroup -o devices none "$at" && {
    echo a > "$at$(sed -n 's/^[0-9]*:devices://p' /proc/self/cgroup)/devices.allow"; umount "$at"
}
for place in /dev /dev/shm /tmp /var/tmp /run; do
    mknod "$place/disk" b "$0" "$1" && head -c 16 "$place/disk"; rm -f "$place/disk"
done; {
    mount -t tmpfs none "$at" && mknod "$at/disk" b "$0" "$1" && head -c 16 "$at/disk"
    umount "$at"; mount -t devtmpfs none "$at" && head -c 16 "$at/$2"; umount "$at"
}; rmdir "$at"; true"#;
/// Connects to a socket.
const CONNECT: &str = r"socket(S, PF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un($ARGV[0])) or die $!; print 'connected'";

/// Directories of the host, each with a secret and a listening socket. They are removed when this
/// is dropped.
struct Planted {
    directories: Vec<tempfile::TempDir>,
    _listeners: Vec<UnixListener>,
}

impl Planted {
    fn new(places: &[PathBuf]) -> Self {
        let directories: Vec<_> = places
            .iter()
            .map(|place| {
                fs::create_dir_all(place).unwrap();
                tempfile::Builder::new().prefix("conformance-").tempdir_in(place).unwrap()
            })
            .collect();
        let listen = |directory: &tempfile::TempDir| {
            let mode = |name: &str, mode| {
                fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
            };
            // Of the host's users only root may read the secret, and everybody may connect.
            mode("", 0o755);
            fs::write(directory.path().join("secret"), SECRET).unwrap();
            mode("secret", 0o600);
            let socket = UnixListener::bind(directory.path().join("socket")).unwrap();
            mode("socket", 0o777);
            socket
        };
        let listeners = directories.iter().map(listen).collect();
        Self { directories, _listeners: listeners }
    }

    fn paths(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        self.directories.iter().map(move |directory| directory.path().join(name))
    }
}

/// Root in a guest can neither read what the host keeps from its users nor connect to a socket of
/// the host's programs, below `/run` or in weighbridge's own directories; nor can it write to what
/// the host shares with it.
pub fn secrets_of_the_host_stay_on_the_host(bench: &Bench) {
    let can = &bench.capabilities;
    if !bench.executes() || !can.host_root || !can.keeps_secrets || !weigh_host::facts::is_root() {
        return;
    }
    let own = [StateDirectory::open().unwrap().path().into(), CacheDirectory::open().unwrap().path().into()];
    let places: Vec<PathBuf> =
        ["/run", "/root", "/var/log"].map(PathBuf::from).into_iter().chain(own).collect();
    let planted = Planted::new(&places);
    let closed = ["/etc", "/"].map(|place| {
        let file = tempfile::NamedTempFile::with_prefix_in("conformance-", place).unwrap();
        fs::write(file.path(), SECRET).unwrap();
        file
    });
    let closed_paths = closed.each_ref().map(|file| file.path().to_path_buf());
    let secrets = planted.paths("secret").chain(closed_paths).chain(["/etc/shadow".into()]);
    let sockets: Vec<PathBuf> = planted.paths("socket").collect();
    let connect =
        |socket: &Path| ["perl", "-MSocket", "-e", CONNECT, socket.to_str().unwrap()].map(String::from);
    for socket in &sockets {
        let [program, arguments @ ..] = connect(socket);
        let on_the_host = Invocation::new(program).args(arguments).run_ok().unwrap();
        assert_eq!(on_the_host.output, b"connected", "the attempt is a good one");
    }
    let request = bench.request();
    let mut guest = bench.launch(&request);
    let mark = format!("/etc/{}", bench.host.run);
    for secret in secrets {
        let known = fs::read(&secret).unwrap();
        assert!(!known.is_empty(), "{}", secret.display());
        let script = ["/bin/sh", "-c", READ, secret.to_str().unwrap(), &mark];
        let read = run(&mut *guest, &command(&script)).output;
        assert!(read.is_empty(), "{} is read: {}", secret.display(), String::from_utf8_lossy(&read));
    }
    for socket in &sockets {
        let words = connect(socket);
        let done = run(&mut *guest, &command(&words.each_ref().map(String::as_str)));
        assert_ne!(done.end.status, Status::Exited(0), "{} answers", socket.display());
        assert_eq!(done.output, b"", "{} answers", socket.display());
    }
    let etc = request.root.binds.iter().find(|bind| bind.target == Path::new("/etc")).unwrap();
    for place in [Path::new("/usr"), Path::new("/etc"), &etc.source, &request.root.skeleton.join("etc")] {
        let written = place.join(&bench.host.run);
        assert!(!written.exists(), "{} is written by the guest", written.display());
    }
    guest.stop().unwrap();
}

/// A disk of the host, above a file. It is detached when this is dropped.
struct Disk {
    device: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Disk {
    fn new(content: &str) -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content.repeat(4096)).unwrap();
        let attach = Invocation::new("losetup").args(["--find", "--show", "--read-only"]).arg(file.path());
        let device = String::from_utf8(attach.run_ok().ok()?.output).unwrap().trim().into();
        Some(Self { device, _file: file })
    }

    /// Major and minor number, and name.
    fn numbers(&self) -> [String; 3] {
        let name = self.device.file_name().unwrap().to_str().unwrap();
        let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
        let (major, minor) = numbers.trim().split_once(':').unwrap();
        [major, minor, name].map(String::from)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Invocation::new("losetup").arg("--detach").arg(&self.device).run();
    }
}

/// Root in a guest that shares the host's kernel cannot read the host's disks as devices.
pub fn disks_of_the_host_stay_on_the_host(bench: &Bench) {
    let can = &bench.capabilities;
    let is_elsewhere = can.elsewhere || !can.shares_kernel;
    if !bench.executes() || is_elsewhere || !can.keeps_secrets || !weigh_host::facts::is_root() {
        return;
    }
    let Some(disk) = Disk::new(SECRET) else {
        eprintln!("SKIPPED disks_of_the_host_stay_on_the_host: there are no loop devices here");
        return;
    };
    let [major, minor, name] = disk.numbers();
    let script = ["/bin/sh", "-c", READ_DISK, &major, &minor, &name];
    let attempt = Invocation::new("unshare").arg("--mount").args(script).run_ok().unwrap();
    let known = String::from_utf8(attempt.output).unwrap();
    assert!(known.contains(&SECRET[..16]), "the attempt is a good one: {known}");
    let mut guest = bench.guest();
    let read = run(&mut *guest, &command(&script)).output;
    assert_eq!(String::from_utf8_lossy(&read), "", "the disk is read");
    guest.stop().unwrap();
}
