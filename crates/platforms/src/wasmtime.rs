//! WebAssembly by wasmtime: an ordinary program of the host runs the builtin kernels, which were
//! compiled to WebAssembly, in the place of `native`.
//!
//! A WebAssembly program starts no other, so the probe is not one. It is that of a native guest, and
//! each command is one `wasmtime run`, as its users start it. No command but the kernels has a
//! WebAssembly form, and any other is refused.
//!
//! The module is compiled once for an environment, ahead of the run. Otherwise every command would
//! begin with a compiler, on the CPU of the guest, that costs more than most kernels do.

use crate::common_keys;
use crate::guest::with_tail;
use crate::helpers::{fnv_1a, version_line};
use crate::session::Interpreter;
use crate::spawn::{LocalGuest, Start};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, Session,
    SessionError,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::Invocation;
use weigh_model::EnvironmentSpec;
use weigh_protocol::{COMMAND_PATH, Command, Input, Status};

const REMEDY: &str =
    "install it with `cargo install wasmtime-cli --locked`, or name the file with `wasmtime:binary=PATH`";
const WITHOUT_MODULE: &str = "this weigh was built without the kernels in WebAssembly";
const MODULE_REMEDY: &str = "build it again after `rustup target add wasm32-wasip1`";

/// How long the module may take to compile. It takes a second.
const COMPILE_DEADLINE: Duration = Duration::from_secs(120);
/// How long the first program of a guest may take.
const FIRST_DEADLINE: Duration = Duration::from_secs(20);
/// The first program of a guest prints a line and ends.
const FIRST: [&str; 2] = ["weigh-kernels", "--version"];
/// Output kept of it, bytes.
const FIRST_OUTPUT: u64 = 4 << 10;

/// How a guest differs from the host by design: pairs of parity key and reason.
const IMPLIES: &[(&str, &str)] = &[
    ("binary:", "the same kernels, compiled to WebAssembly"),
    ("libc", "WASI's C library, within the WebAssembly module"),
    ("acceleration", "the processor runs what wasmtime made of WebAssembly, compiled ahead of the run"),
    ("network", "a WebAssembly program is given no network"),
    ("operating-system", "a WebAssembly program is given no files, of the host or of an image"),
    ("mounts:*", "a WebAssembly program is given no files"),
];

const ABOUT: About = About {
    name: "wasmtime",
    summary: "the builtin kernels as a WebAssembly program under wasmtime; one thread, builtin workloads only",
    keys: &[common_keys::MEMORY, common_keys::BINARY],
};

/// The platform `wasmtime`.
pub struct Wasmtime;

impl Platform for Wasmtime {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, _: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            network: "none",
            needs_root: false,
            memory_limit: weigh_host::facts::is_root(),
            fork: false,
            host_root: false,
            mounts_host_root: false,
            keeps_secrets: false,
            most_cpus: Some(1),
            implies: IMPLIES,
            ..Capabilities::CONTAINER
        }
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let compiled = Compiled::of(host, request)?;
            self.launch(host, request)?.stop()?;
            Ok(compiled.version)
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        Compiled::of(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let compiled = Compiled::of(host, request)?;
        let interpreter = compiled.interpreter();
        let start = Start { interpreter: Some(&interpreter), ..self.start(request) };
        let mut guest = start.launch(host)?;
        run_first(&mut guest)?;
        guest.core_mut().facts.insert("acceleration".into(), compiled.version);
        Ok(Box::new(guest))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let compile = "compile the builtin kernels by wasmtime into the run's work directory".into();
        self.start(request).host_changes().into_iter().chain([compile]).collect()
    }
}

impl Wasmtime {
    /// The program sees nothing of any root, so that the probe runs on the host's own. Whoever asks for
    /// several CPUs gets one, as the facts say then: there are no threads for others.
    fn start<'a>(&self, request: &'a GuestRequest) -> Start<'a> {
        let cpus = &request.cpus[..request.cpus.len().min(1)];
        Start { root: None, cpus, ..Start::new(self.name(), request, UnshareFlags::empty()) }
    }
}

/// The kernels as wasmtime compiled them for this machine.
struct Compiled {
    program: PathBuf,
    module: PathBuf,
    code: PathBuf,
    /// `wasmtime` and its version.
    version: String,
}

impl Compiled {
    /// Compiles them into the run's work directory, where they are not there yet.
    fn of(host: &Host, request: &GuestRequest) -> Result<Self> {
        let program = common_keys::program(&Wasmtime, &request.environment, "wasmtime", REMEDY)?;
        let module = host.programs.module.clone();
        let module = module.ok_or_else(|| PlatformError::unavailable(WITHOUT_MODULE, MODULE_REMEDY))?;
        // Other builds compile to other code.
        let name = format!("wasmtime-{:016x}", fnv_1a(program.as_os_str().as_bytes().iter().copied()));
        let code = host.work.join(&name).with_extension("cwasm");
        let known = host.work.join(&name).with_extension("version");
        if let Ok(version) = std::fs::read_to_string(&known) {
            return Ok(Self { program, module, code, version });
        }
        let version = name_and_version(&version_line(&program)?);
        compile(&program, &module, &code).run_ok()?;
        std::fs::write(&known, &version).map_err(PlatformError::at("write", &known))?;
        Ok(Self { program, module, code, version })
    }

    /// The kernels get the command's environment variables, and nothing else of the host.
    fn interpreter(&self) -> Interpreter {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let words = ["run", "--allow-precompiled", "-S", "inherit-env=y"].map(String::from);
        let argv = std::iter::once(path(&self.program)).chain(words).chain([path(&self.code)]).collect();
        Interpreter { argv, module: path(&self.module) }
    }
}

/// Compiles for the processor of this machine, with what it has.
fn compile(program: &Path, module: &Path, code: &Path) -> Invocation {
    let arguments: [&OsStr; 4] = ["compile".as_ref(), "-o".as_ref(), code.as_ref(), module.as_ref()];
    Invocation::new(program).args(arguments).deadline(COMPILE_DEADLINE)
}

/// Returns the first two words of what the program says of its version.
fn name_and_version(line: &str) -> String {
    line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Runs a first program in a guest, which begins with it: what users wait for is that a WebAssembly
/// program runs. The probe, which is there already, is the measurement's own.
fn run_first(guest: &mut LocalGuest) -> Result<()> {
    let spawned_ns = monotonic_ns();
    let reason = match first_status(guest.session()) {
        Ok(Status::Exited(0)) => {
            guest.core_mut().spawned_ns = spawned_ns;
            return Ok(());
        }
        Ok(status) => format!("its first program ended badly: {status:?}"),
        Err(error) => error.to_string(),
    };
    let core = guest.core_mut();
    Err(core.failed_as(with_tail(&reason, &core.log)))
}

/// Runs the first program to its end. The guest is up when it has printed its line.
fn first_status(session: &mut Session) -> Result<Status, SessionError> {
    let deadline = weigh_host::deadlines::scaled(FIRST_DEADLINE);
    let id = session.start(&Command {
        argv: FIRST.map(String::from).into(),
        environment: vec![("PATH".into(), COMMAND_PATH.into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: FIRST_OUTPUT,
    })?;
    let printed_ns = session.await_output(id, b"\n", deadline)?;
    session.arrived(printed_ns);
    Ok(session.finish(id, deadline)?.end.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    fn compiled() -> Compiled {
        Compiled {
            program: "/opt/wasmtime".into(),
            module: "/work/weigh-kernels.wasm".into(),
            code: "/work/wasmtime-1.cwasm".into(),
            version: "wasmtime 49.0.3".into(),
        }
    }

    #[test]
    fn kernels_run_precompiled_with_the_commands_variables_and_no_directory() {
        let argv = compiled().interpreter().argv(&["weigh-kernels".into(), "spin".into()]).unwrap();
        assert_eq!(
            argv.join(" "),
            "/opt/wasmtime run --allow-precompiled -S inherit-env=y /work/wasmtime-1.cwasm spin"
        );
        let compiled = compiled();
        let line = compile(&compiled.program, &compiled.module, &compiled.code).command_line();
        assert_eq!(line, "/opt/wasmtime compile -o /work/wasmtime-1.cwasm /work/weigh-kernels.wasm");
    }

    #[test]
    fn versions_are_two_words() {
        assert_eq!(name_and_version("wasmtime 49.0.3 (f96eabaa1 2026-10-14)"), "wasmtime 49.0.3");
        assert_eq!(name_and_version(""), "");
    }

    #[test]
    fn it_has_few_keys_and_is_no_default() {
        let resolved = |text: &str| resolve(&EnvironmentSpec::parse(text).unwrap()).map(|(_, spec)| spec);
        for text in ["wasmtime:cpus=1", "wasmtime:rootfs=debian", "wasmtime:net=host"] {
            assert!(resolved(text).is_err(), "{text}");
        }
        let spec = resolved("wasmtime:memory=1GiB,binary=/bin/sh").unwrap();
        let can = Wasmtime.capabilities(&spec);
        assert_eq!((can.fork, can.most_cpus, can.network), (false, Some(1), "none"));
        let is_it = |platform: &dyn Platform| platform.name() == ABOUT.name;
        assert!(crate::local().any(is_it) && !crate::defaults().any(is_it));
    }
}
