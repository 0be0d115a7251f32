//! The host itself, confined to the CPUs and the memory of a guest.
//!
//! Every other platform is compared with it: the same probe and the same programs, on the same
//! CPUs, under the same limits, with no isolation. With the host's root the guest sees the host as
//! it is. With any other image it gets that image as its root, in its own mount namespace, because
//! that is the only way to run the same files; nothing else is separated then either.

use crate::common_keys;
use crate::spawn::Start;
use crate::{About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result};
use rustix::thread::UnshareFlags;
use weigh_model::EnvironmentSpec;

/// The host itself.
pub struct Native;

impl Native {
    fn start<'a>(&self, request: &'a GuestRequest) -> Start<'a> {
        if request.root.host {
            Start { root: None, ..Start::new(self.name(), request, UnshareFlags::empty()) }
        } else {
            Start::new(self.name(), request, UnshareFlags::NEWNS)
        }
    }
}

const ABOUT: About = About {
    name: "native",
    summary: "the host itself, confined to the same CPUs and memory as the guests",
    keys: &[common_keys::CPUS, common_keys::MEMORY, common_keys::ROOTFS],
};

impl Platform for Native {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, _: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            needs_root: false,
            mounts_host_root: false,
            keeps_secrets: false,
            memory_limit: weigh_host::facts::is_root(),
            ..Capabilities::CONTAINER
        }
    }

    fn availability(&self, host: &Host) -> Availability {
        let start = Start::bare(self.name(), "native-availability".into());
        match start.launch(host).and_then(|mut guest| guest.stop()) {
            Ok(()) if host.hierarchy.usable().is_ok() => {
                Availability::Ready { detail: format!("control groups {}", host.hierarchy.layout()) }
            }
            Ok(()) => Availability::Ready { detail: "without control groups: no memory limit".into() },
            Err(error) => error.into(),
        }
    }

    fn prepare(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        Ok(())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        if !request.root.host && !host.is_root {
            return Err(PlatformError::unavailable(
                "running natively in an image requires root",
                "run as root, or with `--image host`",
            ));
        }
        Ok(Box::new(self.start(request).launch(host)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        self.start(request).host_changes()
    }
}
