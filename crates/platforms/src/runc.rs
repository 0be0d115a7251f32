//! Containers by runc, the runtime below Docker, Podman and containerd, without an engine above it.

use crate::axes;
use crate::oci::Runtime;
use crate::{
    Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Values, setting,
};
use serde_json::Value;
use weigh_model::EnvironmentSpec;

const REMEDY: &str = "install it with `apt-get install runc`, or name the file with `runc:binary=PATH`";

/// In what a container differs from the host because of what it is.
const IMPLIES: &[(&str, &str)] = &[
    ("mounts:/tmp", "its /tmp is a tmpfs of its own"),
    ("mounts:", "its root is put together from read-only binds"),
    ("network", "a network namespace of its own, as `net` says"),
];

/// The platform `runc`.
pub struct Runc;

impl Platform for Runc {
    fn name(&self) -> &'static str {
        "runc"
    }

    fn summary(&self) -> &'static str {
        "a container by runc without an engine: all namespaces, Docker's capabilities, no system call filter"
    }

    fn keys(&self) -> &'static [KeySpec] {
        const KEYS: &[KeySpec] = &[
            KeySpec {
                name: "net",
                values: Values::Words(&["none", "host"]),
                default: "none",
                summary: "network: only loopback, or the host's own",
            },
            axes::CPUS,
            axes::MEMORY,
            axes::ROOTFS,
            axes::BINARY,
        ];
        KEYS
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        let networks: &[&str] =
            if setting(self, environment, "net") == "host" { &["host", "none"] } else { &["none", "host"] };
        Capabilities { networks, implies: IMPLIES, ..Capabilities::CONTAINER }
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let version = self.runtime(host, request)?.version()?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        self.runtime(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let own_network = setting(self, &request.environment, "net") != "host";
        Ok(Box::new(self.runtime(host, request)?.launch(host, request, own_network)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let network = match setting(self, &request.environment, "net") {
            "host" => "in the host's network",
            _ => "with a network of its own that has only loopback",
        };
        vec![
            "make a control group weighbridge-<run>/runc-<instance>".into(),
            format!(
                "run a container weighbridge-<run>-<instance> {network}, with runc's state in the run's work directory"
            ),
        ]
    }

    fn undo(&self, what: &str, id: &str, detail: &Value) -> Result<(), String> {
        crate::oci::undo(what, id, detail)
    }
}

impl Runc {
    fn runtime(&self, host: &Host, request: &GuestRequest) -> Result<Runtime, PlatformError> {
        Runtime::find("runc", host, setting(self, &request.environment, "binary"), REMEDY)
    }
}
