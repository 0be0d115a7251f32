use super::*;
use crate::bounds::has_room;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use tempfile::TempDir;

/// The entry of a layer at a path.
pub(crate) enum Item<'a> {
    Directory,
    File(&'a str),
    Link(&'a str),
    HardLink(&'a str),
    Pipe,
}
use Item::{Directory, File as Text, HardLink, Link, Pipe};

/// A layer as an archive. The names are written unchanged, even those that a library would refuse.
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
        // Entries of the same layer survive its own opaque mark, whichever comes first.
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

/// Links are followed as the guest would follow them: below the root, whatever their targets are.
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
    // These directories do not exist below the root.
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

fn excess(result: Result<(), PullError>) -> String {
    match result.unwrap_err() {
        PullError::Entry { source, .. } => source.to_string(),
        other => {
            let mut text = other.to_string();
            text.push_str(&std::error::Error::source(&other).map(ToString::to_string).unwrap_or_default());
            text
        }
    }
}

/// A header with a kind and a length, whatever follows it.
fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..1].copy_from_slice(b"a");
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(7);
    header.set_size(size);
    header.set_cksum();
    header
}

/// Names and extensions are held in memory, so they are limited to a megabyte.
#[test]
fn headers_that_fill_the_memory_are_refused() {
    for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
        let mut layer = header(kind, 64 << 20).as_bytes().to_vec();
        layer.resize(layer.len() + (64 << 20), b'x');
        layer.extend_from_slice(header(tar::EntryType::Regular, 0).as_bytes());
        let packed = zstd::encode_all(&layer[..], 1).unwrap();
        let text = excess(Bench::new().add_bytes(&packed));
        assert!(text.contains("headers of more than 1024 KiB"), "{text}");
    }
}

/// A file that does not fit is refused by the length that it claims, before anything is written. A
/// sparse file has its length without any content.
#[test]
fn files_that_fill_the_disk_are_refused() {
    let bench = Bench::new();
    let sparse = |octal: &[u8; 11]| {
        let mut header = header(tar::EntryType::GNUSparse, 0);
        let gnu = header.as_gnu_mut().unwrap();
        for field in [&mut gnu.realsize, &mut gnu.sparse[0].offset] {
            field[..11].copy_from_slice(octal);
        }
        gnu.sparse[0].numbytes = *b"00000000000\0";
        header.set_cksum();
        [header.as_bytes(), &[0; 1024][..]].concat()
    };
    bench.add_bytes(&sparse(b"00000010000")).unwrap();
    assert_eq!(bench.path("a").metadata().unwrap().len(), 4096);
    // Eight gibibytes repeatedly: some of them may fit, but never all together.
    let refused = (0..40).find_map(|_| bench.layers.bounds.entry(b"b", 8 << 30, &bench.path("")).err());
    let text = refused.unwrap().to_string();
    assert!(text.contains("do not fit") || text.contains("256 GiB together"), "{text}");
    let text = excess(bench.add_bytes(&sparse(b"77777777777")));
    assert!(text.contains("do not fit") || text.contains("256 GiB together"), "{text}");
    assert_eq!(bench.path("a").metadata().unwrap().len(), 4096, "it is as it was");
    let text = has_room(u64::MAX, &bench.path("")).unwrap_err().to_string();
    assert!(text.contains("do not fit") && text.contains("stay free"), "{text}");
}

/// Two gibibytes of zeros in 64 KiB.
#[test]
fn a_layer_that_is_compressed_too_well_is_refused() {
    let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
    packed.write_all(header(tar::EntryType::Regular, 2 << 30).as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..2 << 10 {
        packed.write_all(&zeros).unwrap();
    }
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 1 << 20, "{}", packed.len());
    let text = excess(Bench::new().add_bytes(&packed));
    assert!(text.contains("1100 times its length"), "{text}");
}

#[test]
fn layers_with_too_many_entries_are_refused() {
    let bounds = Bounds::new();
    let place = Path::new("/proc/self");
    let refused = (0..2_000_000).find_map(|n| Some((n, bounds.entry(b"a", 0, place).err()?)));
    let (n, error) = refused.unwrap();
    assert!(n == 1_000_000 && error.to_string().contains("more than 1000000 entries"), "{n}: {error}");
}

/// A tree so deep that nothing can remove it, made by its paths or by links into it.
#[test]
fn trees_have_a_bottom() {
    let bench = Bench::new();
    let deep = |levels: usize| "d/".repeat(levels);
    let name = format!("{}x", deep(45));
    bench.add(&[(name.as_str(), Text("x"))]).unwrap();
    let link = deep(45);
    let mut refused = None;
    // Each link leads to the bottom of the tree so far.
    let mut at = link.trim_end_matches('/').to_string();
    for n in 0..10 {
        let name = format!("l{n}");
        bench.add(&[(name.as_str(), Link(&at))]).unwrap();
        let deeper = format!("{name}/{}x", deep(45));
        if let Err(error) = bench.add(&[(deeper.as_str(), Text("x"))]) {
            refused = Some((n, excess(Err(error))));
            break;
        }
        at = format!("{name}/{}", deep(45)).trim_end_matches('/').to_string();
    }
    let (n, text) = refused.unwrap();
    assert!(n >= 3 && text.contains("below more than 256 directories"), "{n}: {text}");
    let text = excess(
        bench
            .layers
            .bounds
            .entry(deep(300).as_bytes(), 0, Path::new("/"))
            .map_err(|source| PullError::Entry { entry: String::new(), source }),
    );
    assert!(text.contains("256 directories"), "{text}");
    let long = vec![b'x'; 5000];
    assert!(bench.layers.bounds.entry(&long, 0, Path::new("/")).unwrap_err().to_string().contains("4095"));
    fs::remove_dir_all(bench.path("d")).unwrap();
}

/// A dictionary that needs gigabytes of memory to unpack a few bytes.
#[test]
fn a_large_dictionary_of_xz_is_refused() {
    let mut options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
    options.dict_size(1 << 30);
    let mut filters = liblzma::stream::Filters::new();
    filters.lzma2(&options);
    let stream = liblzma::stream::Stream::new_stream_encoder(&filters, liblzma::stream::Check::Crc32);
    // The encoder needs ten times the memory. If it cannot be made, there is nothing to unpack.
    let Ok(stream) = stream else { return };
    let mut packed = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    packed.write_all(&layer(&[("a", Text("text"))])).unwrap();
    let bench = Bench::new();
    assert!(bench.add_bytes(&packed.finish().unwrap()).is_err());
}
