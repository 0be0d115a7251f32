//! The files: which exist, how long they are, and which are in use.

use super::content::{Content, Identity};
use crate::kernel::KernelError;
use crate::kernels::below;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files per directory, and subdirectories per directory: the averages of Filebench's personality.
const WIDTH: u32 = 20;

/// Of a hundred names, how many have a file when the work begins, as in the personality.
const THERE: u64 = 80;

/// A file that exists and that nobody else uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExistingFile {
    pub(super) file: Identity,
    pub(super) bytes: u64,
}

/// Names of files, some of which exist.
struct Names {
    there: Vec<ExistingFile>,
    /// With the generation that the next file of that name will have.
    absent: Vec<Identity>,
}

/// How long the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// All the same.
    Fixed(u64),
    /// A gamma distribution of this mean and shape 1.5, Filebench's default.
    Gamma(u64),
}

impl Sizes {
    /// The length of a new file, at least 1.
    pub(super) fn draw(self, random: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Gamma(mean) => {
                // A gamma number of shape 1.5 is the sum of one of shape 1 (an exponential) and one
                // of shape .5 (half the square of a normal number, by Box and Muller).
                let (one, half) = (-uniform(random).ln(), -uniform(random).ln());
                let turn = (uniform(random) * std::f64::consts::TAU).cos();
                let length = mean as f64 / 1.5 * (one + half * turn * turn);
                (length.round() as u64).clamp(1, mean.saturating_mul(50))
            }
        }
    }
}

/// A number in (0, 1].
fn uniform(random: &mut Pcg64Mcg) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

pub(super) struct Tree {
    root: PathBuf,
    paths: Vec<PathBuf>,
    names: Mutex<Names>,
    removed: bool,
}

impl Tree {
    /// Makes the directories and four fifths of the files, and waits until they are on the disk.
    pub(super) fn make(
        directory: &Path,
        files: u32,
        sizes: Sizes,
        random: &mut Pcg64Mcg,
        content: &mut Content,
        io_bytes: u64,
    ) -> Result<Self, KernelError> {
        let root = directory.join(format!("weigh-fileserver-{}", std::process::id()));
        let create = |path: &Path| {
            std::fs::create_dir(path)
                .map_err(KernelError::system(format!("make the directory {}", path.display())))
        };
        create(&root)?;
        // From here on the directory is removed whatever happens.
        let names = Names { there: Vec::new(), absent: Vec::new() };
        let mut tree = Self { root, paths: Vec::new(), names: Mutex::new(names), removed: false };
        let mut order: Vec<u32> = (0..files).collect();
        for number in 0..files {
            let folder = number / WIDTH;
            let outer = tree.root.join(format!("d{}", folder / WIDTH));
            let inner = outer.join(format!("d{}", folder % WIDTH));
            if number % (WIDTH * WIDTH) == 0 {
                create(&outer)?;
            }
            if number % WIDTH == 0 {
                create(&inner)?;
            }
            tree.paths.push(inner.join(format!("f{number}")));
            order.swap(number as usize, below(random, number as usize + 1));
        }
        let there = u64::from(files) * THERE / 100;
        for (index, number) in order.into_iter().enumerate() {
            let file = Identity { number, generation: 0 };
            if (index as u64) < there {
                let bytes = sizes.draw(random);
                tree.write(file, bytes, content, io_bytes)?;
                tree.lock().there.push(ExistingFile { file, bytes });
            } else {
                tree.lock().absent.push(file);
            }
        }
        tree.sync()?;
        Ok(tree)
    }

    fn write(
        &self,
        file: Identity,
        bytes: u64,
        content: &mut Content,
        io_bytes: u64,
    ) -> Result<(), KernelError> {
        let path = self.path(file);
        let failed = || KernelError::system(format!("write {}", path.display()));
        let mut open = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed())?;
        let mut place = 0;
        while place < bytes {
            let length = io_bytes.min(bytes - place);
            open.write_all(content.of(file, place, length)).map_err(failed())?;
            place += length;
        }
        Ok(())
    }

    /// Writes the file system's cached data to the disk, so that the measurement does not pay for
    /// the preparation.
    fn sync(&self) -> Result<(), KernelError> {
        let failed = || KernelError::system(format!("sync {}", self.root.display()));
        let root = File::open(&self.root).map_err(failed())?;
        match rustix::fs::syncfs(&root) {
            // If the kernel lacks the call, all file systems are synced.
            Err(rustix::io::Errno::NOSYS) => {
                rustix::fs::sync();
                Ok(())
            }
            result => result.map_err(|error| failed()(error.into())),
        }
    }

    pub(super) fn path(&self, file: Identity) -> &Path {
        &self.paths[file.number as usize]
    }

    /// Takes an existing file for this thread alone. There are several times as many files as
    /// threads.
    pub(super) fn take_file(&self, random: &mut Pcg64Mcg) -> ExistingFile {
        let mut names = self.lock();
        let at = below(random, names.there.len());
        names.there.swap_remove(at)
    }

    /// Takes a name without a file.
    pub(super) fn take_name(&self, random: &mut Pcg64Mcg) -> Identity {
        let mut names = self.lock();
        let at = below(random, names.absent.len());
        names.absent.swap_remove(at)
    }

    /// Returns a file that exists, so that others may use it.
    pub(super) fn put_file(&self, known: ExistingFile) {
        self.lock().there.push(known);
    }

    /// Returns the name of a file that was deleted.
    pub(super) fn put_name(&self, file: Identity) {
        self.lock().absent.push(Identity { generation: file.generation + 1, ..file });
    }

    /// The files that should exist. To be called when no thread uses any.
    pub(super) fn files(&self) -> Vec<ExistingFile> {
        self.lock().there.clone()
    }

    /// The number of existing files, according to the file system, and their total bytes.
    pub(super) fn count(&self) -> Result<(u64, u64), KernelError> {
        let mut folders = vec![self.root.clone()];
        let (mut files, mut bytes) = (0, 0);
        while let Some(folder) = folders.pop() {
            let failed = || KernelError::system(format!("list {}", folder.display()));
            for entry in std::fs::read_dir(&folder).map_err(failed())? {
                let entry = entry.map_err(failed())?;
                let there = entry.metadata().map_err(failed())?;
                if there.is_dir() {
                    folders.push(entry.path());
                } else {
                    files += 1;
                    bytes += there.len();
                }
            }
        }
        Ok((files, bytes))
    }

    /// Removes the whole tree.
    pub(super) fn remove(mut self) -> Result<(), KernelError> {
        self.removed = true;
        std::fs::remove_dir_all(&self.root)
            .map_err(KernelError::system(format!("remove {}", self.root.display())))
    }

    /// Locks the names; a panic never leaves them inconsistent.
    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.removed {
            // Something else has failed already, and that is what is reported.
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}
