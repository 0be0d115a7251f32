//! All workloads: the built-in ones and the user's.

use crate::manifest;
use crate::packed::unpack;
use crate::toml_file::{Fault, FileError};
use crate::workload::Workload;
use std::path::{Path, PathBuf};
use weigh_model::nearest;

/// The texts of the built-in manifests.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/manifests.xz"));

/// The built-in manifests, in the order in which they are listed and a bare `weigh` runs them: the
/// CPU first, then system calls, memory, work, network.
const EMBEDDED: &[&str] = &[
    "noploop",
    "syscall",
    "stream",
    "memory-latency",
    "lzma",
    "lu",
    "inference",
    "pi",
    "gups",
    "echo",
    "bulk",
    "block",
    "fileserver",
    "fio-sequential",
    "fio-random",
    "fio-latency",
    "fio-cloudspectator",
    "fio-cached",
    "open-close",
    "bonnie",
    "dd",
    "spin",
    "spawn",
    "allocation",
    "mapping",
    "python-import",
    "node-start",
    "build",
    "sqlite",
    "dgesv",
    "echo-remote",
    "echo-remote-udp",
    "bulk-remote",
    "nuttcp-transmit",
    "nuttcp-receive",
    "netperf-tcp-rr",
    "netperf-udp-rr",
    "netperf-tcp-stream",
    "netperf-udp-stream",
    "sockperf-tcp",
    "sockperf-udp",
    "sockperf-load",
    "qperf-tcp-lat",
    "qperf-udp-lat",
    "qperf-tcp-bw",
    "qperf-udp-bw",
    "redis",
    "redis-open",
    "redis-benchmark",
    "mariadb",
    "postgres",
    "nginx",
    "nginx-open",
    "nginx-wrk",
    "nginx-tls",
    "download",
    "xz",
    "linpack",
    "libquantum",
    "sjeng",
    "openssl-speed",
    "stress-ng",
    "hpcc-stream",
    "hpcc-gups",
    "y-cruncher",
    "geekbench",
    "nbench",
    "spec-cpu",
    "intel-linpack",
];

/// All workloads.
///
/// # A manifest
/// ```toml
/// name = "sha256"                                 # letters, digits and - ; unique
/// summary = "SHA-256 of zeros by OpenSSL"
/// description = "Rate of one thread at 16 KiB blocks."
/// command = ["openssl", "speed", "-mr", "-seconds", "{seconds}", "-evp", "sha256"]   # {param}; {{ and }} are braces
/// # prepare = [...]  cleanup = [...]              # before and after every run; {param} as above
/// # setup = [...]  teardown = [...]               # once in a fresh instance, before the warm-up and at the end; unmeasured
/// # setup_deadline = "10m"
/// packages = ["openssl"]                          # Debian packages with the programs, named when one is absent
/// # serves = ["felter-2014/table-1"]              # rows of the studies
/// # stand_in = "lzma"                             # the free workload, where the program may not be given away
/// warmup = 1                                      # unmeasured runs in a fresh instance (1)
/// iterations = 1                                  # measured runs per block (1), summarised by the median
/// # sliced = "iterations"                         # work that computes and does not wait may be measured in slices, run by run;
///                                                 # "marks": with --marks TIME the command works without end and reports it
/// deadline = "2m"                                 # default: 30 x expected, at least 1m; without expected 10m
/// expected = { quick = 1, standard = 3, paper = 3 }          # seconds
///
/// [params.seconds]
/// summary = "seconds per block size"
/// kind = "count"                                  # text (default), count, number (0.5), bytes (64MiB, llc*4)
/// quick = 1                                       # or: default = 3, for all sizes; or: required = "where to have it from"
/// standard = 3
/// paper = 3
///
/// [check]
/// statement = "openssl reports a rate"            # without json, regex or parser: exit status 0 is the check
/// regex = '^\+F:'
///
/// [operations]                                    # CPU time is charged per one of these; without it, per run
/// name = "hash"                                   # in the singular
/// regex = '^(\d+) hashes'                         # json, regex, or parser + field
///
/// # [tool_duration]                               # seconds by the command's own clock, checked against the host's
/// # [random_reads]                                # bytes read at random places of a disk: the host's device must have seen them
///
/// [[metric]]
/// name = "rate"
/// unit = "B/s"
/// better = "higher"
/// primary = true                                  # at least one is
/// regex = '^\+F:\d+:sha256:.*:([0-9.]+)$'         # or json = "/a/b", parser + field, duration = true,
///                                                 # user_time = true, system_time = true, cpu_time = true, maximum_resident_set = true
///                                                 # histogram = "/a/b" with quantile = 0.99: an HdrHistogram (V2, base64, ns),
///                                                 # merged over the iterations of a trial; or parser + field + quantile
/// # sizes = ["standard", "paper"]                 # when it does not exist at every size
/// ```
///
/// In every command the run fills in `{scratch}`, a directory in the guest for files, empty at the
/// set-up and removed with the guest, on the environment's `storage`; and `{seed}`, a number that
/// all environments of a block share and no other block has.
///
/// # A server
/// ```toml
/// command = ["redis-benchmark", "-h", "{address}", "-p", "{port}", "--csv"]   # the load generator, outside of the guest
/// [server]
/// command = ["redis-server", "--bind", "{listen}", "--port", "{port}", "--dir", "{scratch}"]   # in the guest
/// ports = 1                                       # 1 to 3: {port}, {port2}, {port3}
/// transport = ["tcp"]                             # tcp, udp
/// loop = "closed"                                 # or "open": requests leave by a schedule
/// ready = ["redis-cli", "-h", "{address}", "-p", "{port}", "ping"]   # until it exits with 0; default: a TCP connection to {port}
/// # fill = [...]                                  # on the loader's side, once, when the server is up
/// null = ["weigh-kernels", "null-server", "--protocol", "redis", "--listen", "{listen}:{port}"]   # answers at once: the loader's limit
/// # null_load = [...]                             # the load generator's command for it, where it is another
/// # saturate = [...]                              # of an open loop: the load in a closed one; then `[params.rate]` of kind = "rate" may be a
/// #                                               # share (`50%`) of what the slowest environment reaches so, filled in as {rate}
/// ```
///
/// The names of built-in workloads are reserved, because samples filed under them must mean the
/// same everywhere: a user's manifest with such a name is an error that asks for another name. A
/// file named explicitly (`--workload FILE`) replaces a manifest of the same name in the user's
/// directories.
#[derive(Debug, Clone)]
pub struct Library {
    workloads: Vec<Workload>,
}

/// A name that no workload has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload `{name}`")]
pub struct UnknownWorkload {
    /// The name as given.
    pub name: String,
    /// The name that was probably intended.
    pub nearest: Option<String>,
}

impl Library {
    /// Reads the built-in manifests, every `*.toml` of `user_directories` (one that does not exist
    /// is empty), and `files`.
    ///
    /// # Errors
    /// The first manifest that is wrong.
    pub fn load(user_directories: &[PathBuf], files: &[PathBuf]) -> Result<Self, FileError> {
        let mut library = Self::embedded()?;
        let built_in = library.workloads.len();
        let mut origins: Vec<PathBuf> = Vec::new();
        for directory in user_directories {
            for path in manifests_in(directory)? {
                library.add(&path, built_in, &mut origins, false)?;
            }
        }
        for path in files {
            library.add(path, built_in, &mut origins, true)?;
        }
        Ok(library)
    }

    fn embedded() -> Result<Self, FileError> {
        let texts = unpack(PACKED);
        let workloads = EMBEDDED
            .iter()
            .map(|name| format!("manifests/{name}.toml"))
            .map(|file| manifest::read(Path::new(&file), &texts[&file]))
            .collect::<Result<_, _>>()?;
        Ok(Self { workloads })
    }

    fn add(
        &mut self,
        path: &Path,
        built_in: usize,
        origins: &mut Vec<PathBuf>,
        replaces: bool,
    ) -> Result<(), FileError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            FileError::of_file(
                path,
                format!("cannot read the manifest: {error}"),
                "name a TOML file in UTF-8",
            )
        })?;
        let workload = manifest::read(path, &text)?;
        let taken = self.workloads.iter().position(|known| known.name == workload.name);
        let refuse = |message: String, help: &str| {
            Err(Fault::at_value(&text, "name", message, help).in_file(path, &text))
        };
        match taken {
            Some(at) if at < built_in => {
                let message = format!("`{}` is the name of a built-in workload", workload.name);
                refuse(message, "rename yours: samples under one name must mean the same everywhere")
            }
            Some(at) if replaces => {
                self.workloads[at] = workload;
                origins[at - built_in] = path.into();
                Ok(())
            }
            Some(at) => {
                let other = origins[at - built_in].display();
                refuse(format!("`{}` is also the name in {other}", workload.name), "rename one of them")
            }
            None => {
                self.workloads.push(workload);
                origins.push(path.into());
                Ok(())
            }
        }
    }

    /// Names of all workloads, the built-in ones first.
    pub fn names(&self) -> Vec<&str> {
        self.workloads.iter().map(Workload::name).collect()
    }

    /// All workloads, in the order of [`Self::names`].
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Returns the workload of this name.
    ///
    /// # Errors
    /// [`UnknownWorkload`] with the nearest name.
    pub fn get(&self, name: &str) -> Result<&Workload, UnknownWorkload> {
        self.workloads.iter().find(|workload| workload.name == name).ok_or_else(|| UnknownWorkload {
            name: name.into(),
            nearest: nearest(name, self.names()).map(Into::into),
        })
    }
}

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = |error: std::io::Error| {
        FileError::of_file(directory, format!("cannot list the directory of manifests: {error}"), "")
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
pub(crate) mod tests;
