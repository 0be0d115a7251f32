//! Programs and mounts as the probe describes them.

use crate::driver::{Driver, command, shell};
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weigh_protocol::{Command, GuestFacts, ProgramFacts, Questions, Request};

fn facts(probe: &mut Driver, programs: &[&str], paths: &[&str]) -> GuestFacts {
    let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    probe.facts(Questions { programs: texts(programs), paths: texts(paths), ..Questions::default() })
}

fn sha256(path: &str) -> String {
    Sha256::digest(std::fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn executable(directory: &Path, name: &str, content: &[u8]) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn programs_are_those_that_would_run() {
    let mut probe = Driver::start();
    let facts = facts(&mut probe, &["sleep", "no-such-program"], &[]);
    let [sleep, missing] = &facts.programs[..] else { panic!("{:?}", facts.programs) };
    let path = sleep.path.clone().unwrap();
    // What `Run` starts for the same name, according to the running process's link to its file.
    let (id, pid) = probe.begin(Command {
        environment: vec![("PATH".into(), weigh_protocol::COMMAND_PATH.into())],
        ..command(&["sleep", "60"])
    });
    let runs = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    probe.send(&Request::Signal { id, signal: 9 });
    probe.finish(id);
    assert_eq!(Path::new(&path).canonicalize().unwrap(), runs.canonicalize().unwrap());
    assert_eq!(sleep.digest.as_deref(), Some(sha256(&path).as_str()));
    assert_eq!(missing, &ProgramFacts { name: "no-such-program".into(), ..ProgramFacts::default() });
}

#[test]
fn the_c_library_is_the_one_that_is_loaded() {
    let mut probe = Driver::start();
    let programs = facts(&mut probe, &["/bin/cat"], &[]).programs;
    // What the loader loaded.
    let maps = probe.output_of(shell("cat /proc/self/maps"));
    let loaded = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = loaded.into_iter().find(|path| {
        path.contains("/libc.so.6") || path.contains("/libc.musl-") || path.contains("/ld-musl-")
    });
    match library {
        Some(library) => assert_eq!(programs[0].libc.as_deref(), Some(sha256(library).as_str())),
        None => assert_eq!(programs[0].libc.as_deref(), Some("static"), "{maps}"),
    }
}

#[test]
fn a_program_without_a_loader_is_static() {
    let directory = tempfile::tempdir().unwrap();
    // The header of a 64-bit file without program headers, which is certainly static.
    let mut header = vec![0u8; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let path = executable(directory.path(), "static", &header);
    let text = executable(directory.path(), "text", b"neither a script nor a program\n");
    let mut probe = Driver::start();
    let programs = facts(&mut probe, &[&path, &text], &[]).programs;
    assert_eq!(programs[0].libc.as_deref(), Some("static"));
    assert_eq!(programs[1].libc, None);
    assert_eq!(programs[1].digest.as_deref(), Some(sha256(&text).as_str()));
}

#[test]
fn scripts_bring_their_interpreters_along() {
    let directory = tempfile::tempdir().unwrap();
    let shell = executable(directory.path(), "a", b"#!/bin/sh\ntrue\n");
    let env = executable(directory.path(), "b", b"#!/usr/bin/env cat\n");
    // An interpreter that is itself a script: the libc is that of the program at the end.
    let nested = executable(directory.path(), "c", format!("#!{shell} -e\n").as_bytes());
    let endless =
        executable(directory.path(), "d", format!("#!{}/d\n", directory.path().display()).as_bytes());
    let mut probe = Driver::start();
    let programs = facts(&mut probe, &[&shell, &env, &nested, &endless, "/bin/sh"], &[]).programs;
    let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    assert_eq!(
        names,
        [&shell, &env, &nested, &endless, "/bin/sh", "cat"],
        "each once, /bin/sh was asked for"
    );
    let of = |name: &str| programs.iter().find(|program| program.name == name).unwrap();
    assert_eq!(of(&shell).libc, of("/bin/sh").libc);
    assert_eq!(of(&nested).libc, of("/bin/sh").libc);
    assert_eq!(of(&env).libc, of("cat").libc);
    assert!(of("/bin/sh").libc.is_some());
    assert_eq!(of(&endless).libc, None);
    assert_eq!(of(&shell).digest.as_deref(), Some(sha256(&shell).as_str()), "its own, not the shell's");
}

#[test]
fn mounts_are_those_of_the_paths() {
    let mut probe = Driver::start();
    let mounts = facts(&mut probe, &[], &["/proc", "/", "/not/there", "/proc/self"]).mounts;
    let paths: Vec<&str> = mounts.iter().map(|mount| mount.path.as_str()).collect();
    assert_eq!(paths, ["/proc", "/", "/proc/self"]);
    assert_eq!((mounts[0].kind.as_str(), mounts[2].kind.as_str()), ("proc", "proc"));
    // The kernel's own merged list agrees for /proc.
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().rfind(|line| line.split(' ').nth(1) == Some("/proc")).unwrap();
    assert_eq!(mounts[0].options, line.split(' ').nth(3).unwrap());
}

#[test]
fn describing_a_large_program_takes_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = executable(directory.path(), "large", &vec![7u8; 64 << 20]);
    let mut probe = Driver::start();
    let before = probe.number("status", "VmHWM:");
    let started = std::time::Instant::now();
    let described = facts(&mut probe, &[&path], &["/"]);
    eprintln!("64 MiB described in {:?}", started.elapsed());
    let grown = probe.number("status", "VmHWM:") - before;
    eprintln!("peak memory grew by {grown} KiB");
    assert!(described.programs[0].digest.is_some());
    assert!(grown < 2 << 10, "{grown} KiB");
}
