//! Kernel modules that a guest must load first, with their dependencies.
//!
//! depmod(8) writes `modules.dep` on installation, so a package that was only unpacked lacks it.
//! Then the dependencies are read from the section `.modinfo` of the modules
//! (`include/linux/module.h`, `MODULE_INFO`).

use crate::FileError;
use crate::kernel::{KernelError, decompress};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of one kernel: `/lib/modules/RELEASE`, or the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleTree {
    directory: PathBuf,
    /// The files by the kernel's name for the module, with `_` for every `-`.
    files: BTreeMap<String, PathBuf>,
    /// Modules that are built into the kernel.
    builtin: BTreeSet<String>,
    /// The content of `modules.dep`; empty if there is none.
    dependencies: BTreeMap<String, Vec<String>>,
}

/// A module, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The kernel's name for it.
    pub name: String,
    /// The object file, decompressed.
    pub content: Vec<u8>,
}

impl ModuleTree {
    /// Reads the modules of a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(directory: &Path) -> Result<Self, KernelError> {
        let mut tree = Self {
            directory: directory.into(),
            files: BTreeMap::new(),
            builtin: names(&directory.join("modules.builtin")),
            dependencies: BTreeMap::new(),
        };
        let mut pending = vec![directory.to_path_buf()];
        while let Some(at) = pending.pop() {
            for entry in fs::read_dir(&at).map_err(FileError::of("read the directory", &at))? {
                let entry = entry.map_err(FileError::of("read the directory", &at))?;
                let kind = entry.file_type().map_err(FileError::of("look at", &entry.path()))?;
                if kind.is_dir() {
                    pending.push(entry.path());
                } else if let Some(name) = module_name(&entry.path()) {
                    tree.files.insert(name, entry.path());
                }
            }
        }
        let dependencies = fs::read_to_string(directory.join("modules.dep")).unwrap_or_default();
        for line in dependencies.lines() {
            let Some((module, needs)) = line.split_once(':') else { continue };
            let Some(module) = module_name(Path::new(module)) else { continue };
            let needs = needs.split_whitespace().filter_map(|path| module_name(Path::new(path))).collect();
            tree.dependencies.insert(module, needs);
        }
        Ok(tree)
    }

    /// The directory of the modules.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the kernel has this driver, built in or as a module.
    pub fn has(&self, name: &str) -> bool {
        let name = canonical(name);
        self.builtin.contains(&name) || self.files.contains_key(&name)
    }

    /// These modules and their dependencies, in loading order, without those that are built in.
    ///
    /// # Errors
    /// [`KernelError::NoModule`], or a module cannot be read.
    pub fn resolve(&self, wanted: &[&str]) -> Result<Vec<Module>, KernelError> {
        let mut loaded = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            self.visit(&canonical(name), &mut seen, &mut loaded)?;
        }
        Ok(loaded)
    }

    /// Adds a module, depth first, so that dependencies come before it.
    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        loaded: &mut Vec<Module>,
    ) -> Result<(), KernelError> {
        if self.builtin.contains(name) || !seen.insert(name.into()) {
            return Ok(());
        }
        let path = self
            .files
            .get(name)
            .ok_or_else(|| KernelError::NoModule { name: name.into(), directory: self.directory.clone() })?;
        let packed = fs::read(path).map_err(FileError::of("read", path))?;
        let content = if packed.starts_with(b"\x7fELF") { packed } else { decompress(&packed, path)? };
        let needs = match self.dependencies.get(name) {
            // A line lists all dependencies, the first to load last (modules.dep(5)).
            Some(needs) => needs.iter().rev().cloned().collect(),
            None => dependencies_of(&content),
        };
        for need in needs {
            self.visit(&need, seen, loaded)?;
        }
        loaded.push(Module { name: name.into(), content });
        Ok(())
    }
}

/// The dependencies in a module: `depends=a,b` in `.modinfo`, which holds zero-terminated strings.
fn dependencies_of(module: &[u8]) -> Vec<String> {
    let info = section(module, b".modinfo").unwrap_or_default();
    let depends = info.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let text = String::from_utf8_lossy(depends.unwrap_or_default());
    text.split(',').filter(|name| !name.is_empty()).map(canonical).collect()
}

/// A section of a 64-bit little-endian object by its name (System V ABI, chapter 4; elf(5)).
fn section<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(object.get(at..at.checked_add(bytes)?)?);
        usize::try_from(u64::from_le_bytes(value)).ok()
    };
    let (headers, size, count, strings) =
        (number(0x28, 8)?, number(0x3A, 2)?, number(0x3C, 2)?, number(0x3E, 2)?);
    let header = |index: usize| headers.checked_add(size.checked_mul(index)?);
    let content = |at: usize| {
        let (offset, length) = (number(at + 0x18, 8)?, number(at + 0x20, 8)?);
        object.get(offset..offset.checked_add(length)?)
    };
    let names = content(header(strings)?)?;
    (0..count).find_map(|index| {
        let at = header(index)?;
        let of = names.get(number(at, 4)?..)?;
        (of.strip_prefix(name)?.first() == Some(&0)).then(|| content(at))?
    })
}

/// The names in a file with one path of a module per line.
fn names(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| module_name(Path::new(line))).collect()
}

/// The name of a module from its file: `virtio_pci` for `virtio-pci.ko.xz`; `None` for other files.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, ending) = name.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then(|| canonical(name))
}

fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    /// An object file that has only a `.modinfo`.
    pub(crate) fn object(depends: &str) -> Vec<u8> {
        let info = format!("license=GPL\0depends={depends}\0name=x\0").into_bytes();
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let info_at = file.len();
        file.extend_from_slice(&info);
        let names_at = file.len();
        file.extend_from_slice(names);
        let headers = file.len();
        for (name, offset, length) in [(0u32, 0, 0), (1, info_at, info.len()), (10, names_at, names.len())] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(length as u64).to_le_bytes());
            file.extend_from_slice(&header);
        }
        file[0x28..0x30].copy_from_slice(&(headers as u64).to_le_bytes());
        file[0x3A..0x40].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
        file
    }

    fn tree(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = base.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        base
    }

    fn order(tree: &ModuleTree, wanted: &[&str]) -> Vec<String> {
        tree.resolve(wanted).unwrap().into_iter().map(|module| module.name).collect()
    }

    #[test]
    fn dependencies_are_read_from_modules() {
        let base = tree(&[
            ("modules.builtin", b"kernel/lib/crc.ko\n".to_vec()),
            ("kernel/a/virtio-pci.ko", object("virtio_ring,virtio,crc")),
            ("kernel/a/virtio_ring.ko", object("virtio")),
            ("kernel/a/virtio.ko", object("")),
            ("kernel/a/other.ko", object("")),
            ("kernel/a/notes.txt", b"depends=virtio".to_vec()),
        ]);
        let tree = ModuleTree::open(base.path()).unwrap();
        assert_eq!(order(&tree, &["virtio-pci"]), ["virtio", "virtio_ring", "virtio_pci"]);
        assert_eq!(order(&tree, &["virtio", "virtio_pci", "crc"]), ["virtio", "virtio_ring", "virtio_pci"]);
        assert!(tree.has("crc") && tree.has("virtio_pci") && !tree.has("9p"));
        let error = tree.resolve(&["9p"]).unwrap_err().to_string();
        assert!(error.contains("9p") && error.contains(base.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn modules_dep_has_priority() {
        let base = tree(&[
            (
                "modules.dep",
                b"kernel/a/c.ko: kernel/a/b.ko kernel/a/a.ko\nkernel/a/b.ko: kernel/a/a.ko\nkernel/a/a.ko:\n"
                    .to_vec(),
            ),
            ("kernel/a/a.ko", object("")),
            ("kernel/a/b.ko", object("")),
            ("kernel/a/c.ko", object("")),
        ]);
        let tree = ModuleTree::open(base.path()).unwrap();
        assert_eq!(order(&tree, &["c"]), ["a", "b", "c"]);
    }

    #[test]
    fn compressed_modules_are_unpacked() {
        let plain = object("b");
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
        xz.write_all(&plain).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&plain).unwrap();
        let base = tree(&[
            ("a.ko.xz", xz.finish().unwrap()),
            ("b.ko.zst", zstd::encode_all(&object("c")[..], 3).unwrap()),
            ("c.ko.gz", gzip.finish().unwrap()),
            ("d.ko.xz", b"damaged".to_vec()),
        ]);
        let tree = ModuleTree::open(base.path()).unwrap();
        assert_eq!(order(&tree, &["a"]), ["c", "b", "a"]);
        assert_eq!(tree.resolve(&["a"]).unwrap()[2].content, plain);
        let error = tree.resolve(&["d"]).unwrap_err().to_string();
        assert!(error.contains("d.ko.xz"), "{error}");
    }

    #[test]
    fn damaged_objects_have_no_dependencies() {
        let whole = object("a");
        for length in 0..whole.len() {
            let _ = dependencies_of(&whole[..length]);
        }
        let mut wild = whole.clone();
        wild[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(dependencies_of(&wild), Vec::<String>::new());
        assert_eq!(dependencies_of(&whole), ["a"]);
    }
}
