//! The images in the cache: built or pulled once, used by every run.
//!
//! ```text
//! <cache>/images/debian-0123456789abcdef/        an image, complete from the moment that it has this name
//!                                        image.json   its record
//!                                        tree/        its root file system
//! <cache>/images/debian-0123456789abcdef.use     runs that use it hold a shared flock(2) here
//! <cache>/images/oci-0123456789abcdef.names      its tags, one a line, which the registry may move to another image
//! ```

mod record;

pub use record::{CachedImage, Record};

use crate::disk::DISKS;
use crate::oci::Reference;
use crate::{FileError, ImageError};
use record::{NAMES, open};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weigh_host::cache::CacheDirectory;
use weigh_host::ledger::Ledger;
use weigh_host::private::{UnsafePath, open_regular};
use weigh_model::ImageSpec;

/// Directory of the images in the cache.
const IMAGES: &str = "images";
/// Extension of the log of making an image.
pub(crate) const LOG: &str = "log";
/// The number of digest digits in the name of an entry.
const LABEL_DIGITS: usize = 16;

/// Prevents the removal of an image while this, or a clone of it, exists.
#[derive(Debug, Clone)]
pub struct ImageLock {
    path: PathBuf,
    _lock: Arc<File>,
}

impl PartialEq for ImageLock {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for ImageLock {}

/// The images shared by all runs of this user on this host.
#[derive(Debug, Clone)]
pub struct Store {
    cache: CacheDirectory,
}

impl Store {
    /// The images in a cache.
    pub fn at(cache: CacheDirectory) -> Self {
        Self { cache }
    }

    /// The images of this user; `None` if no directory is known for the cache.
    pub fn open() -> Option<Self> {
        CacheDirectory::open().map(Self::at)
    }

    /// Checks that nobody else can change the images, and denies others access to them: they hold
    /// programs with set-user-ID bits.
    ///
    /// # Errors
    /// [`UnsafePath`].
    pub fn secure(&self) -> Result<(), UnsafePath> {
        self.cache.check()?;
        [IMAGES, DISKS].iter().try_for_each(|name| self.cache.close(name))
    }

    pub(crate) fn cache(&self) -> &CacheDirectory {
        &self.cache
    }

    /// The name of an image in the cache.
    pub(crate) fn entry(kind: &str, identity: &str) -> String {
        format!("{IMAGES}/{kind}-{}", &identity[..identity.len().min(LABEL_DIGITS)])
    }

    /// The path of a file beside the directory of an entry.
    pub(crate) fn beside(&self, entry: &str, extension: &str) -> PathBuf {
        self.cache.path().join(format!("{entry}.{extension}"))
    }

    /// All images, sorted by name, the newest of a name first.
    pub fn list(&self) -> Vec<CachedImage> {
        let entries = fs::read_dir(self.cache.path().join(IMAGES));
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut images: Vec<CachedImage> =
            paths.filter(|path| path.extension().is_none()).filter_map(|path| open(&path)).collect();
        images.sort_by(|a, b| a.name().cmp(b.name()).then(b.record.made.cmp(&a.record.made)));
        images
    }

    /// The image of an entry, if it exists.
    pub(crate) fn get(&self, entry: &str) -> Option<CachedImage> {
        open(&self.cache.path().join(entry))
    }

    /// The image for a name on the command line. For `debian` it is the image of this version's
    /// recipe.
    pub fn find(&self, image: &ImageSpec) -> Option<CachedImage> {
        match image {
            ImageSpec::Debian => self.get(&crate::debian::Recipe::for_this_host().entry()),
            ImageSpec::Oci(text) => {
                let name = format!("oci:{}", text.parse::<Reference>().ok()?);
                self.list().into_iter().find(|image| image.is_named(&name))
            }
            ImageSpec::Host | ImageSpec::Probe | ImageSpec::Path(_) => None,
        }
    }

    /// Checks that an image is available without preparing it, so that a run can be refused early.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::NotBuilt`], [`ImageError::Reference`].
    pub fn check(image: &ImageSpec) -> Result<(), ImageError> {
        match image {
            ImageSpec::Path(path) if !path.exists() => Err(ImageError::NotFound { path: path.clone() }),
            ImageSpec::Debian | ImageSpec::Oci(_) => {
                if let ImageSpec::Oci(text) = image {
                    text.parse::<Reference>()?;
                }
                let found = Self::open().and_then(|store| store.find(image));
                found.map(drop).ok_or_else(|| ImageError::NotBuilt { image: image.to_string() })
            }
            ImageSpec::Host | ImageSpec::Probe | ImageSpec::Path(_) => Ok(()),
        }
    }

    /// The image, with a lock that prevents its removal.
    ///
    /// # Errors
    /// [`ImageError::NotBuilt`], or the lock cannot be taken.
    pub fn lock(&self, image: &ImageSpec) -> Result<(CachedImage, ImageLock), ImageError> {
        let not_built = || ImageError::NotBuilt { image: image.to_string() };
        let path = lock_file(&self.find(image).ok_or_else(not_built)?.directory);
        let lock = open_lock(&path).map_err(FileError::of("open", &path))?;
        // A removal holds the lock only for the duration of a rename.
        lock.lock_shared().map_err(FileError::of("lock", &path))?;
        let image = self.find(image).ok_or_else(not_built)?;
        Ok((image, ImageLock { path, _lock: Arc::new(lock) }))
    }

    /// Removes every image with this name, or whose identity begins with it. Returns the removed
    /// images.
    ///
    /// # Errors
    /// There is none, or one is in use or cannot be removed.
    pub fn remove(&self, name: &str, ledger: &Ledger) -> Result<Vec<CachedImage>, ImageError> {
        let whole = match ImageSpec::from(name.to_string()) {
            ImageSpec::Oci(text) => format!("oci:{}", text.parse::<Reference>()?),
            _ => name.to_string(),
        };
        let by_digest = |image: &CachedImage| name.len() >= 8 && image.record.identity.starts_with(name);
        let chosen: Vec<CachedImage> =
            self.list().into_iter().filter(|image| image.is_named(&whole) || by_digest(image)).collect();
        if chosen.is_empty() {
            return Err(ImageError::NotCached { name: name.into() });
        }
        for image in &chosen {
            self.remove_one(image, ledger)?;
        }
        Ok(chosen)
    }

    fn remove_one(&self, image: &CachedImage, ledger: &Ledger) -> Result<(), ImageError> {
        let path = lock_file(&image.directory);
        let lock = open_lock(&path).map_err(FileError::of("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ImageError::InUse { name: image.name().into() });
            }
            Err(TryLockError::Error(error)) => return Err(FileError::of("lock", &path)(error).into()),
        }
        let label = image.directory.file_name().unwrap_or_default().to_string_lossy();
        let removed = self.cache.remove(&format!("{IMAGES}/{label}"), ledger);
        removed.map_err(|error| ImageError::Cache(error.to_string()))?;
        self.remove_disks(&format!("{label}-"), ledger)?;
        for ending in [NAMES, LOG] {
            let path = image.directory.with_extension(ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::of("remove", &path)(error).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the disks of an image; a run that uses one holds the lock of the image.
    fn remove_disks(&self, of_image: &str, ledger: &Ledger) -> Result<(), ImageError> {
        let entries = fs::read_dir(self.cache.path().join(DISKS)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for name in names.filter(|name| name.starts_with(of_image) && !name.ends_with(".lock")) {
            let removed = self.cache.remove(&format!("{DISKS}/{name}"), ledger);
            removed.map_err(|error| ImageError::Cache(error.to_string()))?;
        }
        Ok(())
    }

    /// Assigns a tag to an image, and removes it from the others.
    pub(crate) fn name(&self, entry: &str, name: &str) -> io::Result<()> {
        let directory = self.cache.path().join(entry);
        for image in self.list() {
            let has = image.tags.iter().any(|tag| tag == name);
            let gets = image.directory == directory;
            if has == gets {
                continue;
            }
            let mut tags = image.tags;
            tags.retain(|tag| tag != name);
            tags.extend(gets.then(|| name.to_string()));
            let path = image.directory.with_extension(NAMES);
            let staging = path.with_extension(format!("{NAMES}.{}", std::process::id()));
            fs::write(&staging, tags.iter().map(|tag| format!("{tag}\n")).collect::<String>())?;
            fs::rename(&staging, &path)?;
        }
        Ok(())
    }
}

/// The lock file of an image. It is not removed with the image: otherwise two runs could hold the
/// locks of two files of the same name.
fn lock_file(directory: &Path) -> PathBuf {
    directory.with_extension("use")
}

/// Opens a lock file that nobody else can open.
fn open_lock(path: &Path) -> io::Result<File> {
    open_regular(path, File::options().create(true).append(true))
}
