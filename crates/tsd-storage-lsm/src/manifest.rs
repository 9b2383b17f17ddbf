//! The manifest of a tree: its files and their order.
//!
//! The tree writes a manifest `v<N>` per version, and a file `current` with its name and checksum.
//! It does not verify that checksum, and one damaged manifest makes all files of the tree
//! unreadable. So the store also records each version in its own file, `FILES`, with the key range
//! of every file. This copy replaces a damaged manifest, and its ranges describe files whose own
//! metadata cannot be read.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use lsm_tree::{AbstractTree, AnyTree};
use tsd_files::{
    DiskReader, ReadVia, Reread, StoreFileReader, is_medium_error, read_file, read_file_via,
    read_repeatedly,
};
use tsd_storage::UnknownVersion;

use crate::checksum;

/// Version of the format of manifests and files that the tree writes.
const FORMAT_VERSION: u8 = 3;
/// Names the current version.
pub(crate) const CURRENT: &str = "current";
/// The copy of the list of files.
pub(crate) const FILES: &str = "FILES";
const FILES_HEADER: &str = "saltern files 1";
/// Directory of the tree's data files.
pub(crate) const TABLES: &str = "tables";

/// A data file of a tree. It is immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeFile {
    /// Name of the file in the directory `tables`.
    pub(crate) id: u64,
    /// Checksum of the whole file.
    pub(crate) checksum: u128,
    /// Offset of the sequence numbers in the file.
    pub(crate) seqno: u64,
    /// First and last key, if known.
    pub(crate) range: Option<(Vec<u8>, Vec<u8>)>,
}

/// The files of one version of a tree: levels of runs of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) version: u64,
    pub(crate) levels: Vec<Vec<Vec<TreeFile>>>,
}

/// Reason why a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum ManifestError {
    /// The directory lacks a manifest: it is new, or `current` was removed.
    Missing,
    /// Another release has written the manifest.
    UnknownVersion(UnknownVersion),
    /// The named file is damaged; `what` says how.
    Damaged { file: String, what: String },
    /// The file system failed.
    Io(io::Error),
}

impl Manifest {
    /// The current version of the tree.
    pub(crate) fn of_tree(tree: &AnyTree) -> Self {
        let version = tree.current_version();
        let levels = version
            .iter_levels()
            .map(|level| {
                level
                    .iter()
                    .map(|run| {
                        run.iter()
                            .map(|table| {
                                let range = &table.metadata.key_range;
                                TreeFile {
                                    id: table.id(),
                                    checksum: table.checksum().into_u128(),
                                    seqno: table.global_seqno(),
                                    range: Some((range.min().to_vec(), range.max().to_vec())),
                                }
                            })
                            .collect()
                    })
                    .collect()
            })
            .collect();
        Self { version: version.id(), levels }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &TreeFile> {
        self.levels.iter().flatten().flatten()
    }

    /// Copies the key ranges of equal files from `other`.
    pub(crate) fn set_ranges(&mut self, other: &Self) {
        for file in self.levels.iter_mut().flatten().flatten() {
            let known = other.files().find(|f| (f.id, f.checksum) == (file.id, file.checksum));
            if let Some(known) = known {
                file.range.clone_from(&known.range);
            }
        }
    }

    /// Replaces a file, or removes it.
    pub(crate) fn replace(&mut self, id: u64, by: Option<&TreeFile>) {
        for run in self.levels.iter_mut().flatten() {
            if let Some(at) = run.iter().position(|file| file.id == id) {
                run.splice(at..=at, by.cloned());
            }
        }
        for level in &mut self.levels {
            level.retain(|run| !run.is_empty());
        }
    }

    /// Reads the manifest that the tree in `dir` would open, and verifies it.
    pub(crate) fn read(dir: &Path) -> Result<Self, ManifestError> {
        let read = |via| Self::read_via(dir, via);
        read_repeatedly(&dir.display().to_string(), read, |error| match error {
            ManifestError::Damaged { .. } => Reread::AtOnce,
            ManifestError::Io(error) => Reread::after(error),
            ManifestError::Missing | ManifestError::UnknownVersion(_) => Reread::Never,
        })
    }

    fn read_via(dir: &Path, via: ReadVia) -> Result<Self, ManifestError> {
        let damaged = |file: &str, what: &str| ManifestError::Damaged {
            file: file.to_owned(),
            what: what.to_owned(),
        };
        let current = match read_file_via(&dir.join(CURRENT), via) {
            Ok(current) => current,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(ManifestError::Missing),
            Err(e) if is_medium_error(&e) => return Err(damaged(CURRENT, &e.to_string())),
            Err(e) => return Err(ManifestError::Io(e)),
        };
        let mut bytes = Bytes(&current);
        let (Some(version), Some(checksum), Some([0]), []) =
            (bytes.u64(), bytes.u128(), bytes.array::<1>(), bytes.0)
        else {
            return Err(damaged(CURRENT, "not a version and its checksum"));
        };
        let name = format!("v{version}");
        let path = dir.join(&name);
        let contents = match read_file_via(&path, via) {
            Ok(contents) => contents,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&name, "it is missing"));
            }
            Err(e) if is_medium_error(&e) => return Err(damaged(&name, &e.to_string())),
            Err(e) => return Err(ManifestError::Io(e)),
        };
        if checksum::of(&contents) != checksum {
            return Err(damaged(&name, "its checksum is wrong"));
        }
        let archive = sfa::Reader::from_reader(&mut io::Cursor::new(&contents)).ok();
        let section = |name: &[u8]| {
            let found = archive.as_ref()?.toc().section(name)?;
            let start = usize::try_from(found.pos()).ok()?;
            let len = usize::try_from(found.len()).ok()?;
            contents.get(start..start.checked_add(len)?)
        };
        if let Some([format]) = section(b"format_version")
            && *format != FORMAT_VERSION
        {
            let error = UnknownVersion::new("store file", path.display(), format, FORMAT_VERSION);
            return Err(ManifestError::UnknownVersion(error));
        }
        let section =
            section(b"tables").ok_or_else(|| damaged(&name, "it has no list of files"))?;
        let levels = parse_levels(section)
            .ok_or_else(|| damaged(&name, "its list of files cannot be decoded"))?;
        Ok(Self { version, levels })
    }

    /// Makes this version the current one of the tree in `dir`. Durable on return.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let (contents, current) = self.encode()?;
        let mut file = File::create(dir.join(format!("v{}", self.version)))?;
        file.write_all(&contents)?;
        file.sync_all()?;
        replace_file(&dir.join(CURRENT), &current, true)
    }

    /// The contents of the manifest, and of `current`.
    pub(crate) fn encode(&self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut archive = sfa::Writer::from_writer(io::Cursor::new(Vec::new()));
        // The sections and constants of format 3 of the tree.
        for (name, value) in [
            ("format_version", &[FORMAT_VERSION][..]),
            ("crate_version", b"saltern"),
            ("tree_type", &[0]),
            ("level_count", &[self.levels.len() as u8]),
            ("filter_hash_type", &[0]),
            ("tables", &self.encode_levels()),
            ("blob_files", &0_u32.to_le_bytes()),
            ("blob_gc_stats", &0_u32.to_le_bytes()),
        ] {
            archive.start(name)?;
            archive.write_all(value)?;
        }
        let contents =
            archive.into_inner().map_err(|e| io::Error::other(e.to_string()))?.into_inner();
        let mut current = self.version.to_le_bytes().to_vec();
        current.extend(checksum::of(&contents).to_le_bytes());
        current.push(0);
        Ok((contents, current))
    }

    pub(crate) fn encode_levels(&self) -> Vec<u8> {
        let mut out = vec![self.levels.len() as u8];
        for level in &self.levels {
            out.push(level.len() as u8);
            for run in level {
                out.extend((run.len() as u32).to_le_bytes());
                for file in run {
                    out.extend(file.id.to_le_bytes());
                    out.push(0);
                    out.extend(file.checksum.to_le_bytes());
                    out.extend(file.seqno.to_le_bytes());
                }
            }
        }
        out
    }

    /// Reads `FILES`; `None` if it is missing or damaged.
    pub(crate) fn read_copy(dir: &Path) -> Option<Self> {
        Self::parse_copy(&String::from_utf8(read_file(&dir.join(FILES)).ok()?).ok()?)
    }

    /// Parses the contents of `FILES`; `None` if they are damaged.
    pub(crate) fn parse_copy(text: &str) -> Option<Self> {
        let mut lines = checksum::unseal(text)?.lines();
        if lines.next()? != FILES_HEADER {
            return None;
        }
        let mut copy = Self::default();
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            match *words.as_slice() {
                ["version", version] => copy.version = version.parse().ok()?,
                ["level"] => copy.levels.push(Vec::new()),
                ["run"] => copy.levels.last_mut()?.push(Vec::new()),
                ["file", id, sum, seqno, first, last] => {
                    copy.levels.last_mut()?.last_mut()?.push(TreeFile {
                        id: id.parse().ok()?,
                        checksum: u128::from_str_radix(sum, 16).ok()?,
                        seqno: seqno.parse().ok()?,
                        range: parse_hex(first).zip(parse_hex(last)),
                    });
                }
                _ => return None,
            }
        }
        Some(copy)
    }

    /// Writes `FILES` without a sync: after a power failure the manifest itself remains.
    pub(crate) fn write_copy(&self, dir: &Path) -> io::Result<()> {
        replace_file(&dir.join(FILES), self.encode_copy().as_bytes(), false)
    }

    /// The contents of `FILES`.
    pub(crate) fn encode_copy(&self) -> String {
        let mut text = format!("{FILES_HEADER}\nversion {}\n", self.version);
        for level in &self.levels {
            text.push_str("level\n");
            for run in level {
                text.push_str("run\n");
                for file in run {
                    let _ = write!(text, "file {} {:x} {} ", file.id, file.checksum, file.seqno);
                    match &file.range {
                        Some((first, last)) => {
                            write_hex(&mut text, first);
                            text.push(' ');
                            write_hex(&mut text, last);
                        }
                        None => text.push_str("? ?"),
                    }
                    text.push('\n');
                }
            }
        }
        checksum::seal(&mut text);
        text
    }
}

/// The error of the copy in a directory, if another release has written it.
pub(crate) fn unknown_copy(dir: &Path) -> io::Result<Option<UnknownVersion>> {
    unknown_text(&dir.join(FILES), FILES_HEADER)
}

/// Number of the newest manifest in a directory, current or not.
pub(crate) fn newest_version(dir: &Path) -> Option<u64> {
    let names =
        fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix('v')?.parse().ok()).max()
}

/// Parses a list of files; ignores the bytes after it.
pub(crate) fn parse_levels(list: &[u8]) -> Option<Vec<Vec<Vec<TreeFile>>>> {
    let mut bytes = Bytes(list);
    let mut levels = Vec::new();
    for _ in 0..bytes.u8()? {
        let mut level = Vec::new();
        for _ in 0..bytes.u8()? {
            let mut run = Vec::new();
            for _ in 0..bytes.u32()? {
                let id = bytes.u64()?;
                // The type of the checksum.
                bytes.u8()?;
                let (checksum, seqno) = (bytes.u128()?, bytes.u64()?);
                run.push(TreeFile { id, checksum, seqno, range: None });
            }
            level.push(run);
        }
        levels.push(level);
    }
    Some(levels)
}

/// Little-endian numbers.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}

/// Appends bytes in hexadecimal; `-` for an empty sequence.
pub(crate) fn write_hex(text: &mut String, bytes: &[u8]) {
    if bytes.is_empty() {
        text.push('-');
    }
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

/// Parses the output of [`write_hex`].
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

/// Replaces a file atomically; durably if `sync`.
pub(crate) fn replace_file(path: &Path, contents: &[u8], sync: bool) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(contents)?;
    if sync {
        file.sync_all()?;
    }
    fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) if sync => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}

/// The error of a sealed text of another release, whose first line is another version of `line`.
pub(crate) fn unknown_text(path: &Path, line: &str) -> io::Result<Option<UnknownVersion>> {
    let text = match read_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_medium_error(&error) => {
            return Ok(None);
        }
        bytes => String::from_utf8(bytes?).ok(),
    };
    let text = text.as_deref().and_then(checksum::unseal);
    Ok(text.and_then(|text| UnknownVersion::of_text(path.display(), text, line)))
}

/// Computes the XXH3-128 of a whole file, as trees record it.
///
/// # Errors
///
/// An error of the disk.
pub fn file_checksum(path: &Path) -> io::Result<u128> {
    let read = |via| file_checksum_via(path, via, &mut |_| Ok(()));
    read_repeatedly(&path.display().to_string(), read, Reread::after)
}

/// Failure of the check of a file against its checksum.
#[derive(Debug)]
pub(crate) enum FileCheckError<E> {
    /// Its bytes differ.
    Mismatch,
    /// The file system failed.
    Io(io::Error),
    /// The caller ended the check.
    Ended(E),
}

impl<E> From<io::Error> for FileCheckError<E> {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Compares a whole file with its checksum. Reads the file again, past the page cache, before it
/// reports damage. `each` gets the number of bytes after each read; its error ends the check.
pub(crate) fn check_file<E>(
    path: &Path,
    checksum: u128,
    each: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<(), FileCheckError<E>> {
    let read = |via| {
        let found =
            file_checksum_via(path, via, &mut |bytes| each(bytes).map_err(FileCheckError::Ended))?;
        if found == checksum { Ok(()) } else { Err(FileCheckError::Mismatch) }
    };
    read_repeatedly(&path.display().to_string(), read, |error| match error {
        FileCheckError::Mismatch => Reread::AtOnce,
        FileCheckError::Io(error) => Reread::after(error),
        FileCheckError::Ended(_) => Reread::Never,
    })
}

fn file_checksum_via<E: From<io::Error>>(
    path: &Path,
    via: ReadVia,
    each: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<u128, E> {
    let (file, mut hasher) = (DiskReader::open(path)?, checksum::Hasher::new());
    let (mut at, len) = (0, file.size()?);
    let mut buffer = vec![0; 256 * 1024];
    while at < len {
        let piece = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.get_mut(..piece).unwrap_or_default();
        file.read_exact_via(via, at, piece)?;
        hasher.update(piece);
        at += piece.len() as u64;
        each(piece.len() as u64)?;
    }
    Ok(hasher.finish())
}
