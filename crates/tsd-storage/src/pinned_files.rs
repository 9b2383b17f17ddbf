//! The files of a store at one moment, for a snapshot.

use std::{any::Any, fmt, fs::File, path::PathBuf, str::FromStr, sync::Arc};

/// The files of a store at one moment. They stay readable until this is dropped.
#[derive(Default)]
pub struct PinnedFiles {
    /// Directory of the store's own files; no snapshot is written in or above it.
    pub root: PathBuf,
    /// The files.
    pub files: Vec<PinnedFile>,
    /// Names of files in quarantine whose loss was not accepted; the snapshot has the same losses.
    pub damaged: Vec<String>,
    pins: Vec<Box<dyn Any + Send + Sync>>,
}

/// A file of a snapshot.
#[derive(Clone, Debug)]
pub struct PinnedFile {
    /// Path below the directory of the snapshot, with `/`.
    pub path: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Checksum of the contents.
    pub checksum: FileChecksum,
    /// Location of the contents.
    pub source: PinnedSource,
}

/// Location of the contents of a file.
#[derive(Clone, Debug)]
pub enum PinnedSource {
    /// In memory.
    Bytes(Vec<u8>),
    /// In an immutable file, which is not removed while the files are pinned.
    Path(PathBuf),
    /// In an immutable open file, whose name may be removed.
    Open {
        /// Name of the file.
        path: PathBuf,
        /// The file.
        file: Arc<File>,
    },
}

impl fmt::Debug for PinnedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedFiles").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl PinnedFile {
    /// A file that is rendered for the snapshot.
    #[must_use]
    pub fn rendered(path: impl Into<String>, contents: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            bytes: contents.len() as u64,
            checksum: FileChecksum::Crc32c(crc32c::crc32c(&contents)),
            source: PinnedSource::Bytes(contents),
        }
    }
}

impl PinnedFiles {
    /// Keeps a value until the pinned files are dropped.
    pub fn pin(&mut self, pin: impl Any + Send + Sync) {
        self.pins.push(Box::new(pin));
    }

    /// Adds the files of a part of the store, below a directory.
    pub fn add(&mut self, directory: &str, other: Self) {
        let files = other.files.into_iter();
        self.files.extend(
            files.map(|file| PinnedFile { path: format!("{directory}/{}", file.path), ..file }),
        );
        self.damaged.extend(other.damaged);
        self.pins.extend(other.pins);
    }

    /// Size of all files, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Checksum of a file. Its type depends on the kind of file, so that a snapshot need not read the
/// files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChecksum {
    /// CRC-32C of the whole file.
    Crc32c(u32),
    /// CRC-32C of the footer of a part, which has the checksums of its blocks.
    Footer(u32),
    /// XXH3-128 of the whole file, as trees record it.
    Xxh3(u128),
}

impl fmt::Display for FileChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc32c(crc) => write!(f, "crc32c:{crc:08x}"),
            Self::Footer(crc) => write!(f, "footer:{crc:08x}"),
            Self::Xxh3(sum) => write!(f, "xxh3:{sum:032x}"),
        }
    }
}

impl FromStr for FileChecksum {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, digits) = text.split_once(':').ok_or(())?;
        let crc = || u32::from_str_radix(digits, 16).map_err(|_| ());
        match kind {
            "crc32c" => Ok(Self::Crc32c(crc()?)),
            "footer" => Ok(Self::Footer(crc()?)),
            "xxh3" => Ok(Self::Xxh3(u128::from_str_radix(digits, 16).map_err(|_| ())?)),
            _ => Err(()),
        }
    }
}
