//! Copies the intact blocks of a damaged data file to a new file.
//!
//! Every block has a checksum, and all data blocks come first, so they are found without the index,
//! the filter or the footer. Damage outside of the data loses nothing. The keys of a damaged block
//! are unknown, but lie between the keys of its neighbours.

use std::{
    io,
    path::{Path, PathBuf},
};

use lsm_tree::{
    CompressionType, InternalValue,
    coding::Decode,
    file::MAGIC_BYTES,
    table::{
        Block, DataBlock,
        block::{BlockType, Header, decoder::ParsedItem},
    },
};

use tsd_files::{DiskReader, ReadVia, StoreFileReader, is_medium_error};

use crate::{file_format::file_writer, quarantine::KeyRange};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Smallest read after an error of the disk.
const SECTOR_BYTES: usize = 4096;

/// Result of a salvage.
#[derive(Debug)]
pub(crate) struct Salvaged {
    /// The damage, such as `data block at offset 40960`.
    pub(crate) what: String,
    /// Key ranges whose entries may be lost; empty if all entries are in the new file.
    pub(crate) lost: Vec<KeyRange>,
    /// Checksum of the new file; `None` without an intact block.
    pub(crate) copy: Option<u128>,
    /// First and last key of the new file.
    pub(crate) range: Option<(Vec<u8>, Vec<u8>)>,
}

/// Location of the new file.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
    pub(crate) id: u64,
}

/// Copies the intact blocks of `source`. `range` is the range of its keys, if known.
pub(crate) fn salvage(
    source: &Path,
    range: Option<&(Vec<u8>, Vec<u8>)>,
    new: NewFile,
) -> lsm_tree::Result<Salvaged> {
    let bytes = match read(source) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let lost = KeyRange {
                start: range.map(|(first, _)| first.clone()).unwrap_or_default(),
                end: range.map(|(_, last)| after(last)),
            };
            let what = "the file is missing".to_owned();
            return Ok(Salvaged { what, lost: vec![lost], copy: None, range: None });
        }
        Err(error) => return Err(error.into()),
    };
    let mut writer = file_writer(new.path, new.id)?;
    let mut blocks = Blocks { bytes: &bytes, at: 0 };
    let mut fault: Option<String> = None;
    let mut lost = Vec::new();
    let mut first: Option<Vec<u8>> = None;
    let mut last: Option<Vec<u8>> = None;
    // True if a block may be missing since `last`.
    let mut gap = false;
    let ended;
    loop {
        match blocks.next() {
            Found::Data(items) => {
                for item in items {
                    let key = item.key.user_key.to_vec();
                    if std::mem::take(&mut gap) {
                        let start = last.as_deref().map(after);
                        let start = start.or_else(|| range.map(|(first, _)| first.clone()));
                        lost.push(KeyRange {
                            start: start.unwrap_or_default(),
                            end: Some(key.clone()),
                        });
                    }
                    first.get_or_insert_with(|| key.clone());
                    last = Some(key);
                    writer.write(item)?;
                }
            }
            Found::Damage(what, offset) => {
                gap = true;
                fault.get_or_insert(format!("{what} at offset {offset}"));
            }
            Found::End { whole } => {
                ended = whole;
                break;
            }
        }
    }
    // An intact file does not end before its last known key.
    let complete = match (range, &last) {
        (Some((_, known)), Some(last)) => known == last,
        (Some(_), None) => false,
        (None, _) => ended && !gap,
    };
    if !complete {
        let start = last.as_deref().map(after);
        let start = start.or_else(|| range.map(|(first, _)| first.clone())).unwrap_or_default();
        lost.push(KeyRange { start, end: range.map(|(_, known)| after(known)) });
    }
    let what = fault.unwrap_or_else(|| {
        if complete {
            format!("index, filter or footer after offset {}", blocks.at)
        } else {
            format!("truncated at offset {}", bytes.len())
        }
    });
    lost.retain(|range| range.end.as_ref().is_none_or(|end| range.start < *end));
    let copy = writer.finish()?.map(|(_, checksum)| checksum.into_u128());
    Ok(Salvaged { what, lost, copy, range: first.zip(last) })
}

/// The least key above `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

enum Found {
    Data(Vec<InternalValue>),
    Damage(&'static str, usize),
    /// The first block that is not data (`whole`), or the end of the file.
    End {
        whole: bool,
    },
}

/// The blocks of data of a file, in order.
struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Blocks<'_> {
    fn next(&mut self) -> Found {
        let at = self.at;
        let rest = self.bytes.get(at..).unwrap_or_default();
        let Some(header) = header(rest) else {
            if rest.len() < Header::serialized_len() {
                return Found::End { whole: false };
            }
            // The next block begins at the next intact header.
            let next = rest
                .windows(MAGIC_BYTES.len())
                .enumerate()
                .skip(1)
                .filter(|(_, bytes)| *bytes == MAGIC_BYTES)
                .find(|(skip, _)| rest.get(*skip..).and_then(header).is_some());
            self.at = next.map_or(self.bytes.len(), |(skip, _)| at + skip);
            return Found::Damage("block header", at);
        };
        if header.block_type != BlockType::Data {
            return Found::End { whole: true };
        }
        let length = Header::serialized_len().saturating_add(header.data_length as usize);
        let Some(block) = rest.get(..length) else {
            self.at = self.bytes.len();
            return Found::Damage("truncated data block", at);
        };
        self.at = at + length;
        match Block::from_reader(&mut &*block, CompressionType::Lz4) {
            Ok(block) => {
                let block = DataBlock::new(block);
                Found::Data(block.iter().map(|item| item.materialize(block.as_slice())).collect())
            }
            Err(_) => Found::Damage("data block", at),
        }
    }
}

fn header(bytes: &[u8]) -> Option<Header> {
    Header::decode_from(&mut &*bytes).ok()
}

/// Reads a file past the page cache; unreadable sectors become zeros.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = DiskReader::open(path)?;
    let length = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    let read = |offset, bytes: &mut [u8]| file.read_exact_via(ReadVia::Disk, offset, bytes);
    let mut bytes = vec![0; length];
    for (index, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
        let offset = index * READ_BYTES;
        match read(offset as u64, piece) {
            Ok(()) => {}
            Err(error) if is_medium_error(&error) => {
                for (index, sector) in piece.chunks_mut(SECTOR_BYTES).enumerate() {
                    let offset = offset + index * SECTOR_BYTES;
                    if read(offset as u64, sector).is_err() {
                        sector.fill(0);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
