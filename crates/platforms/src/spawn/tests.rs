//! Tests of the launcher with ordinary programs of the host.

use super::*;
use std::fs;
use std::path::PathBuf;
use weigh_host::cgroup::{Hierarchy, Layout, Limits};
use weigh_host::ledger::{Ledger, NoPlatforms};
use weigh_host::state::StateDirectory;
use weigh_images::Programs;
use weigh_model::ImageSpec;

const CONTAINER: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWCGROUP)
    .union(UnshareFlags::NEWNET);

struct Place {
    base: tempfile::TempDir,
    log: PathBuf,
}

impl Place {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let log = base.path().join("log");
        Self { base, log }
    }

    /// The host's own root, with a working directory below `/tmp` that is bound into the guest.
    fn root(&self) -> Root {
        let program = self.base.path().join("program");
        fs::write(&program, "not run here").unwrap();
        let programs = Programs { probe: program.clone(), kernels: program, module: None };
        let files = self.base.path().join("files");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("mine"), "seen").unwrap();
        Root::prepare(&ImageSpec::Host, &programs, &self.base.path().join("work"), Some(&files)).unwrap()
    }

    fn request<'a>(&'a self, argv: &'a [OsString]) -> SpawnRequest<'a> {
        SpawnRequest::new(argv, &self.log)
    }
}

fn shell(script: &str) -> [OsString; 3] {
    ["/bin/sh", "-c", script].map(OsString::from)
}

/// Reads all of a program's output and reaps it.
fn output(spawned: Spawned) -> String {
    let mut text = String::new();
    drop(spawned.input);
    File::from(spawned.output).read_to_string(&mut text).unwrap();
    waitid(WaitId::PidFd(spawned.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    text
}

fn run(request: &SpawnRequest<'_>) -> String {
    output(spawn(request, |_| Ok(())).unwrap())
}

/// Whether a test that needs root has to be left out.
fn skipped(test: &str) -> bool {
    let skip = !weigh_host::facts::is_root();
    if skip {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "namespaces"), "{test} needs root");
        eprintln!("SKIPPED {test}: needs root");
    }
    skip
}

impl Place {
    /// The host's mounts below the place: those of a guest, if it had any here. (Others may mount
    /// elsewhere meanwhile.)
    fn mounts(&self) -> Vec<String> {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = self.base.path().to_string_lossy().into_owned();
        all.lines().filter(|line| line.contains(&ours)).map(str::to_string).collect()
    }
}

/// The limit of open files belongs to the process, so this test runs in its own.
#[test]
#[ignore = "run by a_process_keeps_the_original_limit_of_open_files"]
fn a_parent_with_a_raised_limit_of_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
    weigh_host::open_files::allow(201);
    // More than the child may open.
    let files: Vec<File> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
    let place = Place::new();
    assert_eq!(run(&place.request(&shell("ulimit -Sn"))), "200\n");
    drop(files);
}

#[test]
fn a_process_keeps_the_original_limit_of_open_files() {
    let process = weigh_host::command::Invocation::new(std::env::current_exe().unwrap());
    let test = "spawn::tests::a_parent_with_a_raised_limit_of_open_files";
    let done = process.args(["--exact", test, "--ignored"]).run_ok().unwrap();
    assert!(String::from_utf8_lossy(&done.output).contains("1 passed"), "{test} did not run");
}

/// Docker's filter of system calls answers so, and that of weighbridge's own containers.
fn deny_clone3() {
    let instruction = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let filter = [
        // "load" the number of the call, "jump" over the next if it is another, "return" (BPF).
        instruction(0x20, 0, 0),
        instruction(0x15, 1, libc::SYS_clone3 as u32),
        instruction(0x06, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(0x06, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    rustix::thread::set_no_new_privs(true).unwrap();
    // SAFETY: the program is valid for the call, which copies the instructions.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_process_starts_where_clone3_is_denied() {
    let place = Place::new();
    // A filter holds for its thread and what that starts.
    let start = || {
        deny_clone3();
        run(&place.request(&shell("echo started")))
    };
    let started = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    assert_eq!(started, "started\n");
}

#[test]
fn a_plain_process_has_pipes_a_session_and_default_signals() {
    let place = Place::new();
    let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
    let script = shell(
        "cat; echo; env; grep -E 'Sig(Blk|Ign)|Cpus_allowed_list' /proc/self/status; echo oops >&2; umask; pwd",
    );
    let request = SpawnRequest { cpus: &[cpu], ..place.request(&script) };
    let mut number = 0;
    let spawned = spawn(&request, |pid| {
        number = pid;
        Ok(())
    })
    .unwrap();
    assert_eq!(spawned.pid, number);
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(
        (fields[2], fields[3]),
        (number.to_string().as_str(), number.to_string().as_str()),
        "group and session"
    );
    rustix::io::write(&spawned.input, b"fed").unwrap();
    let text = output(spawned);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "fed");
    assert!(lines.contains(&"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), "{text}");
    assert!(!text.contains("CARGO"), "weighbridge's own environment must not leak: {text}");
    assert!(
        lines.contains(&"SigBlk:\t0000000000000000") && lines.contains(&"SigIgn:\t0000000000000000"),
        "{text}"
    );
    assert!(lines.contains(&format!("Cpus_allowed_list:\t{cpu}").as_str()), "{text}");
    assert!(lines.contains(&"0022") && lines.contains(&"/"), "{text}");
    assert_eq!(weigh_host::log::tail(&place.log, 100), b"oops\n");
}

#[test]
fn no_descriptor_leaks_into_the_program() {
    let place = Place::new();
    // `ls` itself opens the directory: 0, 1, 2 and that one.
    let text = run(&place.request(&shell("ls /proc/self/fd")));
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
}

#[test]
fn the_failed_step_is_reported_and_no_process_is_left() {
    let place = Place::new();
    let absent = [OsString::from("/no/such/program")];
    let error = spawn(&place.request(&absent), |_| Ok(())).unwrap_err();
    assert_eq!((error.step.as_str(), error.source.kind()), ("execute the program", io::ErrorKind::NotFound));
    let script = shell("echo never");
    let request = SpawnRequest { cpus: &[1023], ..place.request(&script) };
    let error = spawn(&request, |_| Ok(())).unwrap_err();
    assert_eq!(error.step, "run on the CPUs [1023]");
    assert!(error.to_string().starts_with("run on the CPUs [1023]: Invalid argument"), "{error}");
    // What was not written down does not run.
    let mut number = 0;
    let marker = place.base.path().join("marker");
    let script = shell(&format!("echo ran > {}", marker.display()));
    let error = spawn(&place.request(&script), |pid| {
        number = pid;
        Err(io::Error::other("the disk is full"))
    })
    .unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(!Path::new(&format!("/proc/{number}")).exists() && !marker.exists());
}

/// Its parent may die before the child has asked for a signal at its death.
#[test]
fn an_unstarted_child_ends_with_its_parent() {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
    let [(input, _input_write), (_output_read, output), (_report_read, report), (wait, go)] =
        [pipe(), pipe(), pipe(), pipe()];
    let argv = vec![c_string(&"/bin/true".into()).unwrap()];
    let ends = (wait.as_fd(), go.as_fd());
    let prepared = Prepared::new(
        &[],
        (None, [argv, Vec::new()]),
        ends,
        input.as_fd(),
        output.as_fd(),
        output.as_fd(),
        report.as_fd(),
    );
    let (_, pidfd) = clone(UnshareFlags::empty(), None, &prepared).unwrap();
    let child = UnstartedChild { pidfd: Some(pidfd) };
    drop(prepared);
    drop(go);
    assert!(is_readable(child.pidfd.as_ref().unwrap(), EXEC_DEADLINE), "it waits for ever");
}

#[test]
fn a_guest_has_a_root_and_namespaces_of_its_own() {
    if skipped("a_guest_has_a_root_and_namespaces_of_its_own") {
        return;
    }
    let place = Place::new();
    let root = place.root();
    let files = place.base.path().join("files");
    let script = shell(&format!(
        "echo pid $$; hostname; cat {}/mine; echo; ls -d /.weighbridge/*; ls /proc | grep -c '^[0-9]';
         for d in null zero full random urandom tty; do test -c /dev/$d && echo device $d; done;
         head -c 3 /dev/zero | wc -c; test -w /dev/shm && echo shm; ls /dev/pts /dev/fd/ >/dev/null && echo links;
         touch /tmp/x /run/x && echo scratch; touch /usr/x /etc/x /x {}/x 2>/dev/null || echo read-only;
         ls /sys/class/net; cat /sys/class/net/lo/flags; touch /sys/kernel/x 2>/dev/null || echo sys read-only;
         mount | grep -c ' on {} ' ; cat /proc/1/comm",
        files.display(),
        files.display(),
        place.base.path().join("work").display(),
    ));
    let request = SpawnRequest { namespaces: CONTAINER, root: Some(&root), ..place.request(&script) };
    let text = run(&request);
    let log = fs::read_to_string(&place.log).unwrap();
    let expected = "pid 1\nweigh\nseen\n/.weighbridge/probe\n/.weighbridge/weigh-kernels\n";
    assert!(text.starts_with(expected), "{text}\n{log}");
    for device in ["null", "zero", "full", "random", "urandom", "tty"] {
        assert!(text.contains(&format!("device {device}\n")), "{text}");
    }
    for line in
        ["\n3\n", "shm\n", "links\n", "scratch\n", "\nread-only\n", "\nlo\n", "sys read-only\n", "\nsh\n"]
    {
        assert!(text.contains(line), "{line:?} is missing in {text}\n{log}");
    }
    let flags = text.lines().find_map(|line| line.strip_prefix("0x")).unwrap();
    assert_eq!(u32::from_str_radix(flags, 16).unwrap() & 1, 1, "the loopback interface is down");
    assert_eq!(place.mounts(), Vec::<String>::new(), "the host sees the guest's mounts");
    assert!(!Path::new("/usr/x").exists() && !Path::new("/x").exists());
}

#[test]
fn any_user_is_root_in_a_user_namespace() {
    let place = Place::new();
    let root = place.root();
    let script = shell(
        "id -u; cat /proc/self/uid_map; ls / >/dev/null && echo root; touch /tmp/x && echo scratch; test -d /sys/kernel && echo sys",
    );
    let namespaces = CONTAINER | UnshareFlags::NEWUSER;
    for namespaces in [namespaces, namespaces - UnshareFlags::NEWNET] {
        let request = SpawnRequest { namespaces, root: Some(&root), ..place.request(&script) };
        let text = match spawn(&request, |_| Ok(())) {
            Ok(spawned) => output(spawned),
            Err(error) if !weigh_host::facts::is_root() => {
                eprintln!("SKIPPED any_user_is_root_in_a_user_namespace: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(text.starts_with("0\n"), "{text}");
        for word in ["root\n", "scratch\n", "sys\n"] {
            assert!(text.contains(word), "{text}\n{}", fs::read_to_string(&place.log).unwrap());
        }
    }
}

#[test]
fn a_root_without_other_namespaces_shows_the_host() {
    if skipped("a_root_without_other_namespaces_shows_the_host") {
        return;
    }
    let place = Place::new();
    let root = place.root();
    let script = shell(
        "echo $$; readlink /proc/self/ns/pid /proc/self/ns/net; ls -d /.weighbridge; test -c /dev/null && echo device",
    );
    let request =
        SpawnRequest { namespaces: UnshareFlags::NEWNS, root: Some(&root), ..place.request(&script) };
    let spawned = spawn(&request, |_| Ok(())).unwrap();
    let pid = spawned.pid;
    let ours = ["pid", "net"]
        .map(|name| fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string());
    assert_eq!(output(spawned), format!("{pid}\n{}\n{}\n/.weighbridge\ndevice\n", ours[0], ours[1]));
    assert_eq!(place.mounts(), Vec::<String>::new());
}

#[test]
fn users_are_mapped_to_themselves() {
    assert_eq!(same_users("         0          0 4294967295\n"), "0 0 4294967295\n");
    assert_eq!(same_users(" 0 100000 1000\n 1000 500 1\n"), "0 0 1000\n1000 1000 1\n");
}

/// Starts a program in a control group of the hierarchy; returns what it saw, after
/// `/proc/self/cgroup` its limits.
fn in_control_group(hierarchy: &Hierarchy, label: &str) -> String {
    let place = Place::new();
    let root = place.root();
    let run_name = format!("test-spawn-{label}-{}", std::process::id());
    let ledger = Ledger::create(&StateDirectory::at(place.base.path().join("state")), &run_name).unwrap();
    let limits = Limits { cpus: Vec::new(), memory_bytes: Some(256 << 20) };
    let name = format!("weighbridge-{run_name}/guest");
    let cgroup = hierarchy.create(&ledger, &name, &limits).unwrap();
    let script = shell(
        "cat /proc/self/cgroup; cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; ls; read x",
    );
    let request = SpawnRequest {
        namespaces: CONTAINER,
        root: Some(&root),
        cgroup: Some(&cgroup),
        ..place.request(&script)
    };
    let spawned = spawn(&request, |_| Ok(())).unwrap();
    assert!(cgroup.processes().contains(&spawned.pid));
    let text = output(spawned);
    assert!(!text.contains(&name), "the namespace shows the group as its root: {text}");
    if cgroup.unlimited().is_empty() {
        assert!(text.contains(&(256 << 20).to_string()), "the limit is not seen inside: {text}");
    }
    cgroup.remove().unwrap();
    ledger.close(&NoPlatforms).unwrap();
    text
}

#[test]
fn the_control_group_is_joined_before_anything_else_and_seen_inside() {
    let test = "the_control_group_is_joined_before_anything_else_and_seen_inside";
    let hierarchy = Hierarchy::detect();
    if skipped(test) {
        return;
    }
    match hierarchy.usable() {
        Ok(()) => drop(in_control_group(&hierarchy, "own")),
        Err(reason) => eprintln!("SKIPPED {test}: {reason}"),
    }
}

#[test]
fn a_process_is_born_into_a_group_of_version_2() {
    let unified = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .map(Path::new)
        .into_iter()
        .find(|path| path.join("cgroup.subtree_control").exists());
    let Some(unified) = unified.filter(|_| !skipped("a_process_is_born_into_a_group_of_version_2")) else {
        eprintln!(
            "SKIPPED a_process_is_born_into_a_group_of_version_2: no control groups of version 2, or no root"
        );
        return;
    };
    let text = in_control_group(&Hierarchy::at(unified, Layout::V2), "v2");
    assert!(text.contains("0::/\n") && text.contains("\ncgroup.procs\n"), "{text}");
}

/// The host's program runs in place of the one at the path of `argv`, and nobody can write to it by
/// way of the process once that has ended (as CVE-2019-5736 did with runc).
#[test]
fn a_program_of_the_host_cannot_be_written_through_its_process() {
    use std::os::unix::fs::OpenOptionsExt;
    if skipped("a_program_of_the_host_cannot_be_written_through_its_process") {
        return;
    }
    let place = Place::new();
    let program = place.base.path().join("program");
    fs::copy("/bin/cat", &program).unwrap();
    let argv = [OsString::from("/nowhere/cat")];
    let spawned =
        spawn(&SpawnRequest { program: Some(&program), ..place.request(&argv) }, |_| Ok(())).unwrap();
    let process = format!("/proc/{}/exe", spawned.pid);
    let exe = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(process).unwrap();
    rustix::io::write(&spawned.input, b"on").unwrap();
    assert_eq!(output(spawned), "on");
    let again = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", exe.as_raw_fd()));
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
}
