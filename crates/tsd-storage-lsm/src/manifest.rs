//! The manifest of a tree: which files it has, in which order.
//!
//! The tree writes a manifest `v<N>` per version and a file `current` that names it with its
//! checksum, but it does not verify that checksum, and one damaged manifest makes all files of the
//! tree unreadable. So each version is also recorded in a file of ours, `FILES`, with the key range
//! of every file: the copy replaces a damaged manifest, and the ranges tell what a file contained
//! whose own metadata cannot be read.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use lsm_tree::{AbstractTree, AnyTree};
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
    /// Its name in the directory `tables`.
    pub(crate) id: u64,
    /// Checksum of the whole file.
    pub(crate) checksum: u128,
    /// Added to the sequence numbers in the file.
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

/// Why a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum ManifestError {
    /// There is none: the directory is new, or `current` was removed.
    Missing,
    /// Another release has written it.
    UnknownVersion(UnknownVersion),
    /// The named file is damaged; `what` says how.
    Damaged { file: String, what: String },
    /// The file system failed.
    Io(io::Error),
}

impl Manifest {
    /// The version that the tree has now.
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

    /// Sets the key ranges that `other` knows of the same files.
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
        let damaged = |file: &str, what: &str| ManifestError::Damaged {
            file: file.to_owned(),
            what: what.to_owned(),
        };
        let current = match fs::read(dir.join(CURRENT)) {
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
        let contents = match fs::read(&path) {
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
        let levels = parse_levels(&mut Bytes(section))
            .ok_or_else(|| damaged(&name, "its list of files cannot be decoded"))?;
        Ok(Self { version, levels })
    }

    /// Makes this the version that the tree in `dir` opens. Durable on return.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let (contents, current) = self.encode()?;
        let mut file = File::create(dir.join(format!("v{}", self.version)))?;
        file.write_all(&contents)?;
        file.sync_all()?;
        replace_file(&dir.join(CURRENT), &current, true)
    }

    /// The contents of the file of this version, and of the one that names it.
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

    fn encode_levels(&self) -> Vec<u8> {
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
        let text = fs::read_to_string(dir.join(FILES)).ok()?;
        let mut lines = checksum::unseal(&text)?.lines();
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

    /// Writes `FILES`. Not synced: after a power failure the manifest itself is there.
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

fn parse_levels(bytes: &mut Bytes<'_>) -> Option<Vec<Vec<Vec<TreeFile>>>> {
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

/// Appends bytes in hexadecimal; `-` for none.
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

/// The error of a file with a sealed text, if another release has written it: its first line is another
/// version of `line`.
pub(crate) fn unknown_text(path: &Path, line: &str) -> io::Result<Option<UnknownVersion>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_medium_error(&error) => {
            return Ok(None);
        }
        bytes => String::from_utf8(bytes?).ok(),
    };
    let text = text.as_deref().and_then(checksum::unseal);
    Ok(text.and_then(|text| UnknownVersion::of_text(path.display(), text, line)))
}

/// True if the disk cannot return what it stored.
pub(crate) fn is_medium_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// The XXH3-128 of a whole file, as trees record it; read in pieces.
///
/// # Errors
///
/// An error of the disk.
pub fn file_checksum(path: &Path) -> io::Result<u128> {
    file_checksum_with(path, &mut |_| Ok(()))
}

/// As [`file_checksum`]. `each` gets the bytes of each piece after it was read; its error ends the read.
pub(crate) fn file_checksum_with<E: From<io::Error>>(
    path: &Path,
    each: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<u128, E> {
    let (mut file, mut hasher) = (File::open(path)?, checksum::Hasher::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => {
                hasher.update(buffer.get(..n).unwrap_or_default());
                each(n as u64)?;
            }
        }
    }
}
