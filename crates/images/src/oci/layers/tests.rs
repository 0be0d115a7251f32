use super::*;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use tempfile::TempDir;

/// What a layer has at a path.
pub(crate) enum Item<'a> {
    Directory,
    File(&'a str),
    Link(&'a str),
    HardLink(&'a str),
    Pipe,
}
use Item::{Directory, File as Text, HardLink, Link, Pipe};

/// A layer as an archive. The names are written as they are, also those that a library would
/// refuse.
pub(crate) fn layer(items: &[(&str, Item<'_>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, item) in items {
        let mut header = tar::Header::new_ustar();
        let (kind, link, content) = match item {
            Directory => (tar::EntryType::Directory, "", ""),
            Text(text) => (tar::EntryType::Regular, "", *text),
            Link(to) => (tar::EntryType::Symlink, *to, ""),
            HardLink(to) => (tar::EntryType::Link, *to, ""),
            Pipe => (tar::EntryType::Fifo, "", ""),
        };
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        let own = rustix::process::getuid().as_raw();
        header.set_uid(own.into());
        header.set_gid(rustix::process::getgid().as_raw().into());
        header.set_mtime(7);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Bench {
    base: TempDir,
    layers: Layers,
}

impl Bench {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("root")).unwrap();
        let layers = Layers::new(&base.path().join("root")).unwrap();
        Self { base, layers }
    }

    fn add(&self, items: &[(&str, Item<'_>)]) -> Result<(), PullError> {
        self.add_bytes(&layer(items))
    }

    fn add_bytes(&self, bytes: &[u8]) -> Result<(), PullError> {
        let path = self.base.path().join("layer");
        fs::write(&path, bytes).unwrap();
        self.layers.add(&path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join("root").join(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }
}

#[test]
fn a_higher_layer_changes_and_takes_away() {
    let bench = Bench::new();
    let lower = [
        ("etc/", Directory),
        ("etc/a", Text("old")),
        ("etc/b", Text("b")),
        ("var/lib/c", Text("c")),
        ("var/lib/keep/d", Text("d")),
        ("opt/e", Text("e")),
    ];
    bench.add(&lower).unwrap();
    let upper = [
        ("./etc/a", Text("new")),
        ("etc/.wh.b", Text("")),
        // What the same layer has survives its own opaque mark, whichever comes first.
        ("var/lib/f", Text("f")),
        ("var/lib/.wh..wh..opq", Text("")),
        (".wh.opt", Text("")),
        (".wh.not-there", Text("")),
        ("x/y/.wh.z", Text("")),
        (".wh..wh.plnk", Directory),
        ("etc/.wh.a-file-of-this-layer-too", Text("")),
        ("pipe", Pipe),
    ];
    bench.add(&upper).unwrap();
    assert_eq!(bench.text("etc/a").as_deref(), Some("new"));
    assert_eq!(bench.text("var/lib/f").as_deref(), Some("f"));
    for gone in ["etc/b", "var/lib/c", "var/lib/keep", "opt", ".wh..wh.plnk", "etc/.wh.b", "pipe", "x"] {
        assert!(bench.path(gone).symlink_metadata().is_err(), "{gone}");
    }
    let metadata = bench.path("etc/a").metadata().unwrap();
    assert_eq!((metadata.mtime(), metadata.mode() & 0o7777), (7, 0o755));
}

#[test]
fn kinds_replace_one_another() {
    let bench = Bench::new();
    bench.add(&[("a/b", Text("b")), ("c", Text("c")), ("d", Link("a"))]).unwrap();
    bench.add(&[("a", Text("a")), ("c", Directory), ("d", Directory), ("c/e", HardLink("a"))]).unwrap();
    assert_eq!(bench.text("a").as_deref(), Some("a"));
    assert!(bench.path("c").is_dir() && bench.path("d").is_dir() && !bench.path("d").is_symlink());
    assert_eq!(bench.path("c/e").metadata().unwrap().ino(), bench.path("a").metadata().unwrap().ino());
}

/// Links are followed as the guest would follow them: below the root, whatever they say.
#[test]
fn nothing_leads_out_of_the_root() {
    let bench = Bench::new();
    let outside = bench.base.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched").unwrap();
    let absolute = outside.to_str().unwrap();
    bench.add(&[("usr/lib/", Directory), ("lib", Link("/usr/lib")), ("lib/a", Text("a"))]).unwrap();
    assert_eq!(bench.text("usr/lib/a").as_deref(), Some("a"));
    bench.add(&[("out", Link(absolute)), ("up", Link("../../outside"))]).unwrap();
    // These directories are not there below the root.
    for name in ["out/file", "up/file", "out/.wh.victim", "up/.wh..wh..opq"] {
        let _refused_or_inside = bench.add(&[(name, Text("x"))]);
    }
    let _refused = bench.add(&[("stolen", HardLink("out/victim"))]);
    for name in ["../outside/file", "a/../../outside/file", ".wh..."] {
        assert!(bench.add(&[(name, Text("x"))]).is_err(), "{name}");
    }
    assert!(bench.add(&[("stolen", HardLink("../outside/victim"))]).is_err());
    // A file in place of a link does not write through it.
    bench.add(&[("v", Link(outside.join("victim").to_str().unwrap()))]).unwrap();
    bench.add(&[("v", Text("mine"))]).unwrap();
    assert_eq!(bench.text("v").as_deref(), Some("mine"));
    assert!(bench.path("stolen").symlink_metadata().is_err());
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["victim"]);
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched");
}

#[test]
fn every_compression_and_no_other_bytes() {
    let bytes = layer(&[("a", Text("text"))]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    for packed in [bytes.clone(), gzip.finish().unwrap(), zstd::encode_all(&bytes[..], 1).unwrap()] {
        let bench = Bench::new();
        bench.add_bytes(&packed).unwrap();
        assert_eq!(bench.text("a").as_deref(), Some("text"));
        assert!(bench.add_bytes(&packed[..packed.len() / 3]).is_err(), "cut off");
    }
}
