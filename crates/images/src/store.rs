//! The images that this host keeps: built or pulled once, used by every run.
//!
//! ```text
//! <cache>/images/debian-0123456789abcdef/        one image, whole from the moment that it has this name
//!                                        image.json   what it is
//!                                        tree/        its root file system
//! <cache>/images/debian-0123456789abcdef.use     runs that use it hold a shared flock(2) here
//! <cache>/images/oci-0123456789abcdef.names      further names of it, one a line: tags that a registry may give to another image
//! ```

mod record;

pub use record::{Kept, Record};

use crate::ImageError;
use crate::disk::DISKS;
use crate::oci::Reference;
use record::{NAMES, open};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weigh_host::cache::CacheDirectory;
use weigh_host::ledger::Ledger;
use weigh_model::ImageSpec;

/// Directory of the images in the cache.
const IMAGES: &str = "images";
/// Ending of the file of what was said while it was made.
pub(crate) const LOG: &str = "log";
/// How many digits of a digest an entry's name has.
const LABEL_DIGITS: usize = 16;

/// An image that cannot be removed while this, or a copy of it, is there.
#[derive(Debug, Clone)]
pub struct Hold {
    path: PathBuf,
    _lock: Arc<File>,
}

impl PartialEq for Hold {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Hold {}

/// The images that this user's runs on this host share.
#[derive(Debug, Clone)]
pub struct Store {
    cache: CacheDirectory,
}

impl Store {
    /// The images in a cache.
    pub fn at(cache: CacheDirectory) -> Self {
        Self { cache }
    }

    /// The images of this user; `None` when no place is known for a cache.
    pub fn open() -> Option<Self> {
        CacheDirectory::open().map(Self::at)
    }

    pub(crate) fn cache(&self) -> &CacheDirectory {
        &self.cache
    }

    /// Name in the cache of the image of this kind and identity.
    pub(crate) fn entry(kind: &str, identity: &str) -> String {
        format!("{IMAGES}/{kind}-{}", &identity[..identity.len().min(LABEL_DIGITS)])
    }

    /// The place of a file of an entry that is not in its directory.
    pub(crate) fn beside(&self, entry: &str, ending: &str) -> PathBuf {
        self.cache.path().join(format!("{entry}.{ending}"))
    }

    /// All images that are whole, by name, the newest of a name first.
    pub fn list(&self) -> Vec<Kept> {
        let entries = fs::read_dir(self.cache.path().join(IMAGES));
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut kept: Vec<Kept> =
            paths.filter(|path| path.extension().is_none()).filter_map(|path| open(&path)).collect();
        kept.sort_by(|a, b| a.name().cmp(b.name()).then(b.record.made.cmp(&a.record.made)));
        kept
    }

    /// The entry in the cache, if it is there.
    pub(crate) fn get(&self, entry: &str) -> Option<Kept> {
        open(&self.cache.path().join(entry))
    }

    /// The image that a name on the command line means; for `debian` the one of this version's
    /// recipe.
    pub fn find(&self, image: &ImageSpec) -> Option<Kept> {
        match image {
            ImageSpec::Debian => self.get(&crate::debian::Recipe::here().entry()),
            ImageSpec::Oci(text) => {
                let name = format!("oci:{}", text.parse::<Reference>().ok()?);
                self.list().into_iter().find(|kept| kept.is_named(&name))
            }
            ImageSpec::Host | ImageSpec::Probe | ImageSpec::Path(_) => None,
        }
    }

    /// Whether a run can have this image, as far as can be told without preparing it: so that it is
    /// refused before anything is done.
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
                let kept = Self::open().and_then(|store| store.find(image));
                kept.map(drop).ok_or_else(|| ImageError::NotBuilt { image: image.to_string() })
            }
            ImageSpec::Host | ImageSpec::Probe | ImageSpec::Path(_) => Ok(()),
        }
    }

    /// The image, which is not removed as long as the hold lives.
    ///
    /// # Errors
    /// [`ImageError::NotBuilt`]; the lock cannot be had.
    pub fn hold(&self, image: &ImageSpec) -> Result<(Kept, Hold), ImageError> {
        let not_built = || ImageError::NotBuilt { image: image.to_string() };
        let path = use_file(&self.find(image).ok_or_else(not_built)?.directory);
        let lock = open_lock(&path).map_err(ImageError::io("open", &path))?;
        // Who removes an image holds this for as long as a rename takes.
        lock.lock_shared().map_err(ImageError::io("lock", &path))?;
        let kept = self.find(image).ok_or_else(not_built)?;
        Ok((kept, Hold { path, _lock: Arc::new(lock) }))
    }

    /// Removes every image of this name, or the one whose identity begins so. Returns what was
    /// removed.
    ///
    /// # Errors
    /// There is none, one is in use, or it cannot be removed.
    pub fn remove(&self, name: &str, ledger: &Ledger) -> Result<Vec<Kept>, ImageError> {
        let whole = match ImageSpec::from(name.to_string()) {
            ImageSpec::Oci(text) => format!("oci:{}", text.parse::<Reference>()?),
            _ => name.to_string(),
        };
        let by_digest = |kept: &Kept| name.len() >= 8 && kept.record.identity.starts_with(name);
        let chosen: Vec<Kept> =
            self.list().into_iter().filter(|kept| kept.is_named(&whole) || by_digest(kept)).collect();
        if chosen.is_empty() {
            return Err(ImageError::NotKept { name: name.into() });
        }
        for kept in &chosen {
            self.remove_one(kept, ledger)?;
        }
        Ok(chosen)
    }

    fn remove_one(&self, kept: &Kept, ledger: &Ledger) -> Result<(), ImageError> {
        let path = use_file(&kept.directory);
        let lock = open_lock(&path).map_err(ImageError::io("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ImageError::InUse { name: kept.name().into() });
            }
            Err(TryLockError::Error(error)) => return Err(ImageError::io("lock", &path)(error)),
        }
        let label = kept.directory.file_name().unwrap_or_default().to_string_lossy();
        let removed = self.cache.remove(&format!("{IMAGES}/{label}"), ledger);
        removed.map_err(|error| ImageError::Cache(error.to_string()))?;
        self.remove_disks(&format!("{label}-"), ledger)?;
        for ending in [NAMES, LOG] {
            let path = kept.directory.with_extension(ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ImageError::io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the disks that were made of an image; who uses one holds the image.
    fn remove_disks(&self, of_image: &str, ledger: &Ledger) -> Result<(), ImageError> {
        let entries = fs::read_dir(self.cache.path().join(DISKS)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for name in names.filter(|name| name.starts_with(of_image) && !name.ends_with(".lock")) {
            let removed = self.cache.remove(&format!("{DISKS}/{name}"), ledger);
            removed.map_err(|error| ImageError::Cache(error.to_string()))?;
        }
        Ok(())
    }

    /// Gives an image one more name, and takes it from any other.
    pub(crate) fn name(&self, entry: &str, name: &str) -> io::Result<()> {
        let place = self.cache.path().join(entry);
        for kept in self.list() {
            let has = kept.tags.iter().any(|tag| tag == name);
            let gets = kept.directory == place;
            if has == gets {
                continue;
            }
            let mut tags = kept.tags;
            tags.retain(|tag| tag != name);
            tags.extend(gets.then(|| name.to_string()));
            let path = kept.directory.with_extension(NAMES);
            let staging = path.with_extension(format!("{NAMES}.{}", std::process::id()));
            fs::write(&staging, tags.iter().map(|tag| format!("{tag}\n")).collect::<String>())?;
            fs::rename(&staging, &path)?;
        }
        Ok(())
    }
}

/// The file whose lock says that the image is in use. It stays when the image is removed: two files
/// of one name would be two locks.
fn use_file(directory: &Path) -> PathBuf {
    directory.with_extension("use")
}

/// Opens a lock's file; for reading is enough, so that a user can use what root has built.
fn open_lock(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().create(true).append(true).open(path)
        }
        opened => opened,
    }
}
