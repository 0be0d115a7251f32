//! Firecracker and Cloud Hypervisor, whose programs are the user's and need KVM: their drivers
//! against fake monitors that check every request against the published API description.
//! `docs/design/0024-firecracker-and-cloud-hypervisor.md` lists what no real monitor has shown.

mod fake_monitor;
mod fakes;
mod faults;
mod life;
mod real;
mod told;

use crate::common::Bench;
use fake_monitor::Program;
use weigh_model::ImageSpec;
use weigh_platforms::GuestRequest;

/// A monitor: the platform's name, and the requests that boot a machine, load a saved one, freeze,
/// save and end it, each of which can have a fault.
struct TestedMonitor {
    name: &'static str,
    boot: &'static [&'static str],
    load: &'static [&'static str],
    freeze: &'static [&'static str],
    save: &'static [&'static str],
    end: &'static [&'static str],
}

const KINDS: &[TestedMonitor] = &[FIRECRACKER, CLOUD_HYPERVISOR];

const FIRECRACKER: TestedMonitor = TestedMonitor {
    name: "firecracker",
    boot: &["PUT /machine-config", "PUT /boot-source", "PUT /vsock", "PUT /actions", "GET /machine-config"],
    load: &["PUT /snapshot/load", "GET /machine-config", "PATCH /vm"],
    freeze: &["PATCH /vm", "PATCH /vm"],
    save: &["PATCH /vm", "PUT /snapshot/create"],
    end: &[],
};

const CLOUD_HYPERVISOR: TestedMonitor = TestedMonitor {
    name: "cloud-hypervisor",
    boot: &["PUT /api/v1/vm.create", "PUT /api/v1/vm.boot", "GET /api/v1/vm.info"],
    load: &["PUT /api/v1/vm.restore", "GET /api/v1/vm.info", "PUT /api/v1/vm.resume"],
    freeze: &["PUT /api/v1/vm.pause", "PUT /api/v1/vm.resume"],
    save: &["PUT /api/v1/vm.pause", "PUT /api/v1/vm.snapshot"],
    // The guest powers its machine off, which ends the monitor.
    end: &[],
};

#[test]
#[ignore = "the monitor of other tests"]
fn fake_monitor() {
    fake_monitor::play();
}

/// A fake monitor, and an environment with it.
struct Place {
    base: tempfile::TempDir,
    program: Program,
    kind: &'static TestedMonitor,
}

impl Place {
    fn new(kind: &'static TestedMonitor, fault: &str) -> Self {
        let base = tempfile::tempdir_in(crate::common::processes::place()).unwrap();
        let program = Program::new(base.path(), kind.name, fault, crate::static_probe::path());
        // Nothing executes it; its name contains its release.
        std::fs::write(base.path().join("vmlinux-6.1.0-fake"), b"\x7fELF and nothing else").unwrap();
        Self { base, program, kind }
    }

    fn environment(&self) -> String {
        let (name, program) = (self.kind.name, self.program.path.display());
        format!("{name}:binary={program},kernel={}/vmlinux-6.1.0-fake", self.base.path().display())
    }

    /// Also makes a run that has the host to itself.
    fn with_bench(kind: &'static TestedMonitor, test: &str) -> (Self, Bench) {
        (Self::new(kind, ""), Bench::alone(test))
    }

    fn request(&self, bench: &Bench) -> GuestRequest {
        self.request_with(bench, "", &ImageSpec::Probe)
    }

    /// A request with further keys.
    fn request_with(&self, bench: &Bench, keys: &str, image: &ImageSpec) -> GuestRequest {
        let request = bench.request_with(&(self.environment() + keys), image, None);
        GuestRequest { cpus: vec![last_cpu()], memory_bytes: Some(300 << 20), ..request }
    }

    /// The requests since the last call, except those that only check whether the monitor is up.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let all = self.program.requests();
        let new = all[*seen..].iter();
        let asked = new.filter(|(request, _)| !is_greeting(request)).map(|(request, status)| {
            assert!((200..300).contains(status), "{request}: {status}");
            request.clone()
        });
        let asked = asked.collect();
        *seen = all.len();
        asked
    }
}

fn is_greeting(request: &str) -> bool {
    matches!(request, "GET /version" | "GET /api/v1/vmm.ping")
}

fn last_cpu() -> u32 {
    *weigh_host::facts::allowed_cpus().last().unwrap()
}

fn is_cpu(name: &str) -> bool {
    name.starts_with("fc_vcpu ") || name.strip_prefix("vcpu").is_some_and(|rest| rest.parse::<u32>().is_ok())
}

/// The kernel's command line that a monitor received.
fn line_told(place: &Place) -> String {
    let line = match place.kind.name {
        "firecracker" => place.program.bodies("PUT /boot-source")[0]["boot_args"].clone(),
        _ => place.program.bodies("PUT /api/v1/vm.create")[0]["payload"]["cmdline"].clone(),
    };
    line.as_str().unwrap().into()
}
