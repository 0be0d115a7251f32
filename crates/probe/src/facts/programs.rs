//! Programs that a command would run: path, digest and C library.

use crate::command::look_up;
use crate::files::open;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, pread};
use sha2::{Digest, Sha256};
use weigh_protocol::{COMMAND_PATH, ProgramFacts};

/// Size of a read for a digest, bytes.
const PIECE: usize = 32 << 10;
/// Longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`,
/// include/uapi/linux/binfmts.h).
const SCRIPT_LINE: usize = 256;
/// The depth to which the kernel follows interpreters that are scripts (exec_binprm, fs/exec.c).
const DEEPEST: usize = 5;
/// Longest table of program headers and longest path of an interpreter, bytes.
const LONGEST: usize = 64 << 10;

/// Describes programs in order, then the interpreters of scripts among them, each once.
pub fn describe(names: &[String], own_directory: &str) -> Vec<ProgramFacts> {
    let mut digests = Digests(Vec::new());
    let mut facts: Vec<ProgramFacts> = Vec::new();
    let mut interpreters: Vec<String> = Vec::new();
    for name in names {
        let program = describe_one(name, own_directory, &mut digests, &mut interpreters);
        facts.push(program);
    }
    for name in interpreters {
        if !facts.iter().any(|program| program.name == name) {
            let program = describe_one(&name, own_directory, &mut digests, &mut Vec::new());
            facts.push(program);
        }
    }
    facts
}

/// Digests of files, each read once: many programs load the same library.
struct Digests(Vec<(String, Option<String>)>);

impl Digests {
    fn of(&mut self, path: &str) -> Option<String> {
        if let Some((_, digest)) = self.0.iter().find(|(known, _)| known == path) {
            return digest.clone();
        }
        let digest = open_regular(path).and_then(|file| digest(&file).ok());
        self.0.push((path.to_string(), digest.clone()));
        digest
    }
}

fn describe_one(
    name: &str,
    own_directory: &str,
    digests: &mut Digests,
    interpreters: &mut Vec<String>,
) -> ProgramFacts {
    let mut program = ProgramFacts { name: name.to_string(), ..ProgramFacts::default() };
    let Ok(path) = find(name, own_directory) else { return program };
    program.digest = digests.of(&path);
    program.libc = libc(&path, own_directory, digests, interpreters);
    program.path = Some(path);
    program
}

fn find(name: &str, own_directory: &str) -> Result<String, ()> {
    if name.contains('/') {
        return open_regular(name).map(|_| name.to_string()).ok_or(());
    }
    look_up(name, "/", COMMAND_PATH, own_directory).map_err(drop)
}

fn open_regular(path: &str) -> Option<OwnedFd> {
    let file = open(path).ok()?;
    let regular = FileType::from_raw_mode(fstat(&file).ok()?.st_mode) == FileType::RegularFile;
    regular.then_some(file)
}

fn digest(file: &OwnedFd) -> Result<String, Errno> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE];
    loop {
        match rustix::io::read(file, &mut buffer[..]) {
            Ok(0) => break,
            Ok(n) => hash.update(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    Ok(hash.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

/// `static`, or the digest of the C library, or the reason why there is none.
fn libc(
    path: &str,
    own_directory: &str,
    digests: &mut Digests,
    interpreters: &mut Vec<String>,
) -> Option<String> {
    let mut path = path.to_string();
    for _ in 0..DEEPEST {
        let file = open_regular(&path)?;
        let head = read_at(&file, 0, SCRIPT_LINE)?;
        match script_interpreter(&head) {
            Some(name) => {
                if !interpreters.contains(&name) {
                    interpreters.push(name.clone());
                }
                path = find(&name, own_directory).ok()?;
            }
            None => {
                let elf = Elf::read(&head)?;
                let Some(loader) = elf.interpreter(|at, length| read_at(&file, at, length))? else {
                    return Some("static".into());
                };
                let library = elf.c_library(&loader, |path| open_regular(path).is_some());
                let Some(library) = library else { return Some(format!("none for {loader}")) };
                return digests.of(&library);
            }
        }
    }
    None
}

/// Reads up to `length` bytes at an offset.
fn read_at(file: &OwnedFd, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length.min(LONGEST)];
    let mut filled = 0;
    while filled < bytes.len() {
        match pread(file, &mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(filled);
    Some(bytes)
}

/// The interpreter of a script; for `env(1)` the program that it runs.
fn script_interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    if interpreter.rsplit('/').next() != Some("env") {
        return Some(interpreter.to_string());
    }
    let mut words = words.skip_while(|word| word.starts_with('-') || word.contains('='));
    Some(words.next().unwrap_or(interpreter).to_string())
}

/// Fields of an ELF header (elf(5)).
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    wide: bool,
    big_endian: bool,
    machine: u16,
    headers_at: u64,
    header_length: usize,
    headers: usize,
}

/// `PT_INTERP`.
const INTERPRETER: u64 = 3;

impl Elf {
    fn read(head: &[u8]) -> Option<Self> {
        if !head.starts_with(b"\x7fELF") {
            return None;
        }
        let (wide, big_endian) = (*head.get(4)? == 2, *head.get(5)? == 2);
        let number = |at, length| number(head, at, length, big_endian);
        let (headers_at, sizes_at) = if wide { (number(0x20, 8)?, 0x36) } else { (number(0x1c, 4)?, 0x2a) };
        Some(Self {
            wide,
            big_endian,
            machine: number(0x12, 2)? as u16,
            headers_at,
            header_length: number(sizes_at, 2)? as usize,
            headers: number(sizes_at + 2, 2)? as usize,
        })
    }

    /// Its loader; `Some(None)` if it is static, `None` if the file is damaged.
    fn interpreter(&self, read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Option<String>> {
        let table = read(self.headers_at, self.header_length * self.headers)?;
        let (at_offset, at_size, length) = if self.wide { (0x08, 0x20, 8) } else { (0x04, 0x10, 4) };
        for header in table.chunks_exact(self.header_length.max(1)) {
            let number = |at, length| number(header, at, length, self.big_endian);
            if number(0, 4)? == INTERPRETER {
                let path = read(number(at_offset, length)?, number(at_size, length)? as usize)?;
                let path = path.split(|byte| *byte == 0).next()?;
                return Some(Some(String::from_utf8_lossy(path).into_owned()));
            }
        }
        Some(None)
    }

    /// The C library in the loader's usual directories. The program's own path (`DT_RUNPATH`) and
    /// the loader's configuration are ignored, because they rarely affect the C library.
    fn c_library(&self, loader: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
        // With musl the loader is the library.
        if loader.contains("/ld-musl-") {
            return exists(loader).then(|| loader.to_string());
        }
        let own = loader.rsplit_once('/').map_or("", |(directory, _)| directory);
        let triplet = match self.machine {
            3 => "i386-linux-gnu",
            40 => "arm-linux-gnueabihf",
            62 => "x86_64-linux-gnu",
            183 => "aarch64-linux-gnu",
            _ => "",
        };
        let multiarch = ["/lib", "/usr/lib"].map(|directory| format!("{directory}/{triplet}"));
        let plain: &[&str] =
            if self.wide { &["/lib64", "/usr/lib64", "/lib", "/usr/lib"] } else { &["/lib", "/usr/lib"] };
        let mut directories = multiarch.iter().map(String::as_str).chain([own]).chain(plain.iter().copied());
        directories.find_map(|directory| {
            let path = format!("{directory}/libc.so.6");
            exists(&path).then_some(path)
        })
    }
}

/// Reads an unsigned number of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize, big_endian: bool) -> Option<u64> {
    let field = bytes.get(at..at + length)?;
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    Some(if big_endian { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        let of = |head: &[u8]| script_interpreter(head);
        assert_eq!(of(b"#!/bin/sh -e\necho").as_deref(), Some("/bin/sh"));
        assert_eq!(of(b"#! /usr/bin/env python3\n").as_deref(), Some("python3"));
        assert_eq!(of(b"#!/usr/bin/env -S A=1 perl -w\n").as_deref(), Some("perl"));
        assert_eq!(of(b"#!/usr/bin/env"), Some("/usr/bin/env".to_string()));
        assert_eq!(of(b"#!"), None);
        assert_eq!(of(b"\x7fELF"), None);
    }

    /// A header with one program header at 64 (or 52) and the interpreter's path behind it.
    fn elf(wide: bool, big_endian: bool, kind: u32) -> Vec<u8> {
        let mut file = vec![0; 256];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1 + u8::from(wide), 1 + u8::from(big_endian)]);
        let mut put = |at: usize, length: usize, value: u64| {
            let bytes = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            let bytes = if big_endian { &bytes[8 - length..] } else { &bytes[..length] };
            file[at..at + length].copy_from_slice(bytes);
        };
        put(0x12, 2, 62);
        let table = if wide { 64 } else { 52 };
        if wide {
            put(0x20, 8, table);
            put(0x36, 2, 56);
            put(0x38, 2, 1);
            put(72, 8, 200);
            put(64 + 0x20, 8, 27);
        } else {
            put(0x1c, 4, table);
            put(0x2a, 2, 32);
            put(0x2c, 2, 1);
            put(56, 4, 200);
            put(52 + 0x10, 4, 27);
        }
        put(table as usize, 4, kind.into());
        file[200..227].copy_from_slice(b"/lib64/ld-linux-x86-64.so.2");
        file
    }

    fn interpreter(file: &[u8]) -> Option<Option<String>> {
        let read =
            |at: u64, length: usize| Some(file.get(at as usize..)?.iter().copied().take(length).collect());
        Elf::read(&file[..64])?.interpreter(read)
    }

    #[test]
    fn interpreters_are_read_in_every_class_and_order() {
        for (wide, big) in [(true, false), (true, true), (false, false), (false, true)] {
            let found = interpreter(&elf(wide, big, 3)).unwrap();
            assert_eq!(found.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"), "{wide} {big}");
            assert_eq!(interpreter(&elf(wide, big, 1)), Some(None), "{wide} {big}");
        }
        assert_eq!(Elf::read(b"#!/bin/sh"), None);
        assert_eq!(Elf::read(b"\x7fELF"), None, "cut short");
        // A table that is not in the file names no interpreter and ends nothing.
        let mut damaged = elf(true, false, 3);
        damaged[0x20..0x28].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(interpreter(&damaged), None);
    }

    #[test]
    fn c_libraries_are_found_where_loaders_look() {
        let elf = Elf::read(&elf(true, false, 3)).unwrap();
        let library = |loader: &str, there: &str| elf.c_library(loader, |path| path == there);
        let glibc = "/lib64/ld-linux-x86-64.so.2";
        for there in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"] {
            assert_eq!(library(glibc, there).as_deref(), Some(there));
        }
        assert_eq!(library("/opt/ld.so", "/opt/libc.so.6").as_deref(), Some("/opt/libc.so.6"));
        let musl = "/lib/ld-musl-x86_64.so.1";
        assert_eq!(library(musl, musl).as_deref(), Some(musl));
        assert_eq!(library(glibc, "/elsewhere/libc.so.6"), None);
    }

    #[test]
    fn digests_are_sha_256() {
        let file = open_regular("/proc/version").unwrap();
        assert_eq!(digest(&file).unwrap().len(), 64);
        let empty = open("/dev/null").unwrap();
        // FIPS 180-4, the empty message.
        assert_eq!(
            digest(&empty).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
