//! The machine's files: host files that are shared with it, and its disks.

use super::Settings;
use super::disks::{DATA, DiskOptions, ROOT, seen};
use super::meter::Meter;
use super::part::{Line, Part, escape_path};
use super::prepare::Prepared;
use super::share::{self, Daemon, Share};
use crate::vm::disk::{DataDisk, GuestRoot, probe_words};
use crate::{DiskMeter, GuestRequest, Host, PlatformError, Result};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_host::command::{Invocation, Running};

/// Tag of the host's files in the guest.
pub(crate) const TAG: &str = "weighbridge";

/// The files and disks of one machine.
pub(super) struct Storage {
    share: Option<SharedFiles>,
    disks: Option<Disks>,
    /// Serves this guest's shared files.
    pub(super) daemon: Option<Running>,
}

/// Host files that the guest sees.
struct SharedFiles {
    kind: Share,
    /// Root of what is shared.
    path: PathBuf,
    /// For virtiofs, the connection to the daemon that serves the files: its number, and the
    /// descriptor until it is handed over.
    connection: Option<(i32, Option<OwnedFd>)>,
}

/// The disks of one guest.
struct Disks {
    data: Option<DataDisk>,
    root: Option<Root>,
    opening: DiskOptions,
    meter: Meter,
    /// The number of QEMU's end of the meter, and the descriptor until it is handed over.
    monitor: (i32, Option<OwnedFd>),
}

/// The guest's own root: an overlay of the root that all guests share.
struct Root {
    own: GuestRoot,
    below: PathBuf,
    /// Whether a full system boots from it.
    system: bool,
}

impl Storage {
    /// Makes everything that is the guest's own. A loop device enters the ledger here, before the
    /// machine, so that it is undone after the machine.
    ///
    /// # Errors
    /// A disk cannot be made, or is not available.
    pub(super) fn make(
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
        settings: &Settings<'_>,
    ) -> Result<Self> {
        let share = prepared.share.as_ref();
        let share =
            share.map(|(kind, path)| SharedFiles { kind: *kind, path: path.clone(), connection: None });
        let data = settings.disk.as_ref().map(|disk| disk.take(host, request.instance)).transpose()?;
        let root = prepared.root.as_ref().map(|disk| {
            let own = GuestRoot::overlay(host, disk, request.instance)?;
            Ok::<_, PlatformError>(Root { own, below: disk.path.clone(), system: settings.system })
        });
        let root = root.transpose()?;
        let disks = if data.is_some() || root.is_some() {
            let (meter, theirs) = Meter::new()?;
            let opening = settings.opening.clone();
            Some(Disks { data, root, opening, meter, monitor: (theirs.as_raw_fd(), Some(theirs)) })
        } else {
            None
        };
        Ok(Self { share, disks, daemon: None })
    }

    /// Whether a daemon reads and writes the guest's memory.
    pub(super) fn shares_memory(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.kind == Share::Virtiofs)
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disks.is_some()
    }

    /// Sets the thread that serves the disks; it is made elsewhere.
    pub(super) fn served_by(&mut self, iothread: Option<&'static str>) {
        if let Some(disks) = &mut self.disks {
            disks.opening.iothread = iothread;
        }
    }

    /// Counts what the guest reads from and writes to its disks.
    pub(super) fn meter(&self) -> Option<Box<dyn DiskMeter>> {
        let disks = self.disks.as_ref()?;
        Some(Box::new(disks.meter.clone()))
    }

    /// Gives the disks back after the machine has ended; further calls do nothing.
    ///
    /// # Errors
    /// A loop device could not be detached; it stays in the ledger.
    pub(super) fn give_back(&mut self) -> Result<()> {
        let data = self.disks.as_mut().and_then(|disks| disks.data.as_mut());
        data.map_or(Ok(()), DataDisk::give_back)
    }

    /// Starts the daemon that serves the files, if any, inside the measured launch: every user of
    /// such a machine pays for it.
    ///
    /// # Errors
    /// The daemon is missing or does not start.
    pub(super) fn serve(
        &mut self,
        root: &weigh_images::Root,
        cgroup: Option<&Cgroup>,
        log: &Path,
    ) -> Result<()> {
        if let Some(share) = &mut self.share
            && share.kind == Share::Virtiofs
        {
            let Daemon { running, connection } = Daemon::start(root, cgroup, log)?;
            self.daemon = Some(running);
            share.connection = Some((connection.as_raw_fd(), Some(connection)));
        }
        Ok(())
    }

    /// If QEMU itself serves a root's parts, lets QEMU see them at their places.
    pub(super) fn seen_by(&self, qemu: Invocation, host: &Host, root: &weigh_images::Root) -> Invocation {
        match &self.share {
            Some(SharedFiles { kind: Share::NineP, .. }) if host.is_root => share::with_parts(qemu, root),
            _ => qemu,
        }
    }

    fn shared_files(&self, line: &mut Line) {
        let Some(share) = &self.share else { return };
        match share.kind {
            Share::NineP => {
                let path = escape_path(&share.path);
                line.pair(
                    "-fsdev",
                    &format!("local,id=files,path={path},security_model=none,readonly=on,multidevs=remap"),
                );
                line.pair("-device", &format!("virtio-9p-pci,fsdev=files,mount_tag={TAG}"));
            }
            Share::Virtiofs => {
                if let Some((fd, _)) = share.connection {
                    line.pair("-chardev", &format!("socket,id=files,fd={fd}"));
                }
                line.pair("-device", &format!("vhost-user-fs-pci,chardev=files,tag={TAG}"));
            }
        }
    }

    fn disks(&self, line: &mut Line) {
        let Some(disks) = &self.disks else { return };
        line.pair("-chardev", &format!("socket,id=disks,fd={}", disks.monitor.0));
        line.pair("-mon", "chardev=disks,mode=control");
        if let Some(data) = &disks.data {
            disks.opening.data(data, line);
        }
        if let Some(root) = &disks.root {
            disks.opening.root(&root.own, &root.below, line);
        }
    }

    /// Where the root is, in a word.
    fn root_word(&self) -> &'static str {
        let on_disk = self.disks.as_ref().is_some_and(|disks| disks.root.is_some());
        match &self.share {
            _ if on_disk => "disk",
            Some(share) => share.kind.as_str(),
            None => "initramfs",
        }
    }
}

impl Part for Storage {
    fn arguments(&self, line: &mut Line) {
        self.shared_files(line);
        self.disks(line);
    }

    fn probe_arguments(&self) -> String {
        let Some(Disks { data, root: Some(root), .. }) = &self.disks else { return String::new() };
        // The kernel names the disks in the order of their slots.
        let device = if data.is_some() { "/dev/vdb" } else { "/dev/vda" };
        probe_words(device, root.system)
    }

    fn passed(&mut self) -> Vec<OwnedFd> {
        let connection = self.share.as_mut().and_then(|share| share.connection.as_mut());
        let connection = connection.and_then(|(_, descriptor)| descriptor.take());
        let monitor = self.disks.as_mut().and_then(|disks| disks.monitor.1.take());
        connection.into_iter().chain(monitor).collect()
    }

    /// Reports what QEMU says about the disks, not what was asked for. QEMU does not report the I/O
    /// mode, but would not have started without it.
    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::from([("root".to_string(), self.root_word().to_string())]);
        let Some(disks) = &self.disks else { return facts };
        let unknown = || ("unknown".to_string(), "unknown".to_string());
        let answer = disks.meter.ask("query-block");
        let of = |node: &str| answer.as_ref().and_then(|answer| seen(answer, node)).unwrap_or_else(unknown);
        if disks.root.is_some() {
            let (format, cache) = of(ROOT);
            facts.insert("root".into(), format!("disk, {format}"));
            facts.insert("cache".into(), cache);
        }
        if let Some(data) = &disks.data {
            let (format, cache) = of(DATA);
            let what = if data.is_device() { "block device" } else { "file" };
            facts.insert("disk".into(), format!("{format} {what}, aio={}", disks.opening.aio));
            facts.insert("cache".into(), cache);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;

    fn storage(share: SharedFiles) -> Storage {
        Storage { share: Some(share), disks: None, daemon: None }
    }

    #[test]
    fn shared_files_are_read_only_or_their_daemons() {
        let share = |kind, connection| SharedFiles { kind, path: "/x,y".into(), connection };
        let nine_p = line_of(&storage(share(Share::NineP, None)));
        assert!(nine_p.contains("path=/x,,y,security_model=none,readonly=on"), "{nine_p}");
        let virtiofs = line_of(&storage(share(Share::Virtiofs, Some((9, None)))));
        assert!(virtiofs.contains("socket,id=files,fd=9"), "{virtiofs}");
    }
}
