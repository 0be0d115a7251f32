//! Tests of root file systems, each of a small image in a directory of its own.

mod archives;
mod host_root;
mod stored;

use crate::{Bind, ImageError, KERNELS, Mount, PROBE, Programs, Root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weigh_model::ImageSpec;

struct Bench {
    directory: TempDir,
    programs: Programs,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (probe, kernels) = (directory.path().join("p"), directory.path().join("k"));
        let programs = Programs { probe, kernels, module: None };
        fs::write(&programs.probe, "the probe").unwrap();
        fs::write(&programs.kernels, "the kernels").unwrap();
        Self { directory, programs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn prepare(&self, image: &ImageSpec, work: &str) -> Result<Root, ImageError> {
        Root::prepare(image, &self.programs, &self.path(work), None)
    }

    /// A small image: a merged-/usr link, a directory, a file, private entries, and an `/etc`.
    fn image(&self, name: &str) -> PathBuf {
        let image = self.path(name);
        for directory in ["usr/bin", "etc", "var/tmp", "tmp", "proc", "dev", "home/user"] {
            fs::create_dir_all(image.join(directory)).unwrap();
        }
        symlink("usr/bin", image.join("bin")).unwrap();
        fs::write(image.join("usr/bin/tool"), "a tool").unwrap();
        fs::write(image.join("vmlinuz"), "a file at the top").unwrap();
        for file in ["hosts", "hostname", "resolv.conf"] {
            fs::write(image.join("etc").join(file), "the image's").unwrap();
        }
        image
    }

    fn archive(&self, name: &str, fill: impl FnOnce(&mut tar::Builder<fs::File>)) -> PathBuf {
        let path = self.path(name);
        let mut builder = tar::Builder::new(fs::File::create(&path).unwrap());
        fill(&mut builder);
        builder.into_inner().unwrap();
        path
    }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn targets(root: &Root) -> Vec<&str> {
    root.binds.iter().map(|bind| bind.target.to_str().unwrap()).collect()
}

/// An entry whose name the library's own builder would refuse to write.
fn raw_entry(
    builder: &mut tar::Builder<fs::File>,
    name: &str,
    kind: tar::EntryType,
    link: &str,
    content: &[u8],
) {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

#[test]
fn probe_alone_is_a_whole_skeleton() {
    let bench = Bench::new();
    let root = bench.prepare(&ImageSpec::Probe, "work").unwrap();
    assert!(root.binds.is_empty() && !root.host && root.notes.is_empty());
    for directory in ["proc", "sys", "dev", "run", "etc", ".weighbridge"] {
        assert_eq!(mode(&root.skeleton.join(directory)), 0o755, "{directory}");
    }
    assert_eq!(mode(&root.skeleton.join("tmp")), 0o1777);
    assert_eq!(fs::read_to_string(root.skeleton.join(&PROBE[1..])).unwrap(), "the probe");
    assert_eq!(mode(&root.skeleton.join(&PROBE[1..])), 0o755);
    assert_eq!(fs::read_to_string(root.skeleton.join(&KERNELS[1..])).unwrap(), "the kernels");
    assert!(fs::read_to_string(root.skeleton.join("etc/passwd")).unwrap().starts_with("root:"));
    assert_eq!(root.scratch, [Path::new("/tmp"), Path::new("/run")]);
}

#[test]
fn directory_is_bound_entry_by_entry() {
    let bench = Bench::new();
    let image = bench.image("image");
    let root = bench.prepare(&ImageSpec::Path(image.clone()), "work").unwrap();
    assert_eq!(targets(&root), ["/etc", "/home", "/usr", "/var", "/vmlinuz"]);
    assert!(root.binds.iter().all(|bind| bind.read_only));
    assert_eq!(
        root.binds[4],
        Bind {
            source: image.canonicalize().unwrap().join("vmlinuz"),
            target: "/vmlinuz".into(),
            read_only: true
        }
    );
    assert_eq!(fs::read_link(root.skeleton.join("bin")).unwrap(), Path::new("usr/bin"));
    assert!(root.skeleton.join("usr").is_dir() && root.skeleton.join("vmlinuz").is_file());
    assert!(!root.skeleton.join("etc/passwd").exists(), "the image has its own");
    assert_eq!(root.scratch.last().unwrap(), Path::new("/var/tmp"));
    let order: Vec<_> = root.mounts().iter().map(|mount| mount.target().to_path_buf()).collect();
    assert_eq!(order.last().unwrap(), Path::new("/var/tmp"), "below a bind, so after it");
    assert!(matches!(root.mounts().last(), Some(Mount::Scratch(_))));
}

#[test]
fn etc_without_the_files_of_engines_is_placed_entry_by_entry() {
    let bench = Bench::new();
    let image = bench.image("image");
    fs::remove_file(image.join("etc/hostname")).unwrap();
    symlink("/usr/share/zone", image.join("etc/localtime")).unwrap();
    let root = bench.prepare(&ImageSpec::Path(image.clone()), "work").unwrap();
    assert!(targets(&root).contains(&"/etc/hosts") && !targets(&root).contains(&"/etc"));
    assert!(root.skeleton.join("etc/hostname").is_file());
    assert!(root.skeleton.join("etc/localtime").is_symlink());
    assert!(!image.join("etc/hostname").exists(), "the user's directory is left as it is");
}

#[test]
fn image_without_etc_gets_a_small_one() {
    let bench = Bench::new();
    let image = bench.image("image");
    fs::remove_dir_all(image.join("etc")).unwrap();
    let root = bench.prepare(&ImageSpec::Path(image), "work").unwrap();
    assert!(root.skeleton.join("etc/passwd").is_file());
}

#[test]
fn a_path_that_is_no_image_is_reported() {
    let bench = Bench::new();
    let missing = bench.prepare(&ImageSpec::Path(bench.path("nowhere")), "a").unwrap_err();
    assert!(matches!(missing, ImageError::NotFound { .. }), "{missing}");
    let junk = bench.path("junk");
    fs::write(&junk, "x".repeat(2000)).unwrap();
    let error = bench.prepare(&ImageSpec::Path(junk.clone()), "b").unwrap_err();
    assert!(matches!(error, ImageError::NotAnImage { .. }), "{error}");
    fs::write(&junk, "").unwrap();
    assert!(matches!(
        bench.prepare(&ImageSpec::Path(junk.clone()), "c").unwrap_err(),
        ImageError::NotAnImage { .. }
    ));
    fs::write(&junk, b"BZh9rest").unwrap();
    let error = bench.prepare(&ImageSpec::Path(junk.clone()), "d").unwrap_err();
    assert!(error.to_string().contains(&format!("`bzip2 -dk {}`", junk.display())), "{error}");
    fs::write(&junk, b"\x1f\x8b\x08rest").unwrap();
    assert!(bench.prepare(&ImageSpec::Path(junk.clone()), "g").is_err(), "damaged");
    let node = bench.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert!(matches!(bench.prepare(&ImageSpec::Path(node), "e").unwrap_err(), ImageError::NotAnImage { .. }));
    let cut = bench.path("cut.tar");
    let whole = bench.archive("whole.tar", |builder| {
        raw_entry(builder, "file", tar::EntryType::Regular, "", &[1; 4000]);
    });
    fs::write(&cut, &fs::read(whole).unwrap()[..2000]).unwrap();
    assert!(bench.prepare(&ImageSpec::Path(cut), "f").is_err(), "a cut archive is not half an image");
}

#[test]
fn a_missing_program_and_an_occupied_place_are_reported() {
    let mut bench = Bench::new();
    bench.prepare(&ImageSpec::Probe, "work").unwrap();
    assert!(matches!(bench.prepare(&ImageSpec::Probe, "work"), Err(ImageError::Occupied { .. })));
    bench.programs.kernels = bench.path("nowhere");
    assert!(matches!(bench.prepare(&ImageSpec::Probe, "other"), Err(ImageError::ProgramMissing { .. })));
}

#[test]
fn the_bind_that_holds_the_skeleton_is_first() {
    let bench = Bench::new();
    let image = bench.image("image");
    let root =
        Root::prepare(&ImageSpec::Path(image.clone()), &bench.programs, &image.join("var/lib/work"), None)
            .unwrap();
    assert_eq!(targets(&root)[0], "/var");
    assert_eq!(root.mounts()[0].target(), Path::new("/var"));
}

#[test]
fn digest_follows_the_content() {
    let bench = Bench::new();
    let image = bench.image("image");
    let spec = ImageSpec::Path(image.clone());
    let first = bench.prepare(&spec, "a").unwrap().digest;
    assert_eq!(first.len(), 64);
    assert_eq!(bench.prepare(&spec, "b").unwrap().digest, first);
    fs::write(image.join("usr/bin/tool"), "another tool").unwrap();
    let second = bench.prepare(&spec, "c").unwrap().digest;
    assert_ne!(second, first);
    fs::rename(image.join("usr/bin/tool"), image.join("usr/bin/other")).unwrap();
    assert_ne!(bench.prepare(&spec, "d").unwrap().digest, second);
    fs::rename(image.join("usr/bin/other"), image.join("usr/bin/tool")).unwrap();
    // Entries that the guest replaces with its own, and the work directory itself, are not part of
    // the image.
    fs::write(image.join("proc/1"), "").unwrap();
    let work = image.join("var/lib/work");
    fs::create_dir_all(image.join("var/lib")).unwrap();
    let third = bench.prepare(&spec, "g").unwrap().digest;
    fs::write(image.join("tmp/x"), "").unwrap();
    assert_eq!(Root::prepare(&spec, &bench.programs, &work, None).unwrap().digest, third);
    let probe = bench.prepare(&ImageSpec::Probe, "e").unwrap().digest;
    fs::write(&bench.programs.probe, "another probe").unwrap();
    assert_ne!(bench.prepare(&ImageSpec::Probe, "f").unwrap().digest, probe);
}
