//! A part file that is open for reads.

mod check;
mod footer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tsd_files::{
    CheckedReadError, Reread, StoreDir, StoreFileReader, is_medium_error, read_checked,
    read_repeatedly,
};

use self::footer::OpenedFooter;
use crate::{
    block::{DataBlock, MarkedBlock},
    error::{Malformed, PartError},
    file_names::part_name,
    layout::PartLayout,
    manifest::FileRecord,
    resources::PartResources,
    section::{BlockRef, DataBlockRef, SectionHead},
    series_block::SeriesBlock,
    writer::SectionRef,
};

/// An open part. Readers keep it open while they use it. The file of a replaced part is removed when its last
/// reader is done.
#[derive(Debug)]
pub struct Part {
    dir: Arc<dyn StoreDir>,
    resources: Arc<PartResources>,
    /// Key of the part in the cache and in the table of open files.
    id: u64,
    number: u64,
    file_name: String,
    path: PathBuf,
    name: Arc<str>,
    len: u64,
    footer_crc: u32,
    layout: PartLayout,
    sequences: (u64, u64),
    sections: Vec<SectionRef>,
    /// Offsets of the copies of the heads and of the footer; `None` in a file without copies.
    copies: Option<(u64, u64)>,
    /// Offset and description of damage whose intact copy is used.
    damaged_copy: Option<(u64, &'static str)>,
    /// The file is removed with the last reference.
    is_retired: AtomicBool,
}

/// Whether a read uses the block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockUse {
    /// For queries.
    Cached,
    /// For merges and checks, which read each block once.
    Once,
}

/// A section as its part's footer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// Start of the span, epoch seconds.
    pub span: u32,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of packed points.
    pub points: u64,
    /// Size in the file, bytes.
    pub bytes: u64,
}

impl Part {
    /// Opens a part and verifies its footer, and that the manifest lists this very file. Blocks are verified when
    /// they are read.
    pub(crate) fn open(
        dir: &Arc<dyn StoreDir>,
        resources: &Arc<PartResources>,
        number: u64,
        listed: Option<&FileRecord>,
    ) -> Result<Self, PartError> {
        Self::open_named(dir, resources, (number, part_name(number)), listed)
    }

    /// As [`Self::open`], for a file whose name does not follow from its number.
    pub(crate) fn open_named(
        dir: &Arc<dyn StoreDir>,
        resources: &Arc<PartResources>,
        (number, file_name): (u64, String),
        listed: Option<&FileRecord>,
    ) -> Result<Self, PartError> {
        let path = dir.path().join(&file_name);
        let name: Arc<str> = path.display().to_string().into();
        let read = |via| OpenedFooter::read(&**dir, &file_name, &name, listed, via);
        let opened = read_repeatedly(&name, read, |error| match error {
            PartError::Io { source, .. } => Reread::after(source),
            error if error.is_damage() => Reread::AtOnce,
            _ => Reread::Never,
        });
        let OpenedFooter { len, crc, footer, damaged } = opened.map_err(|error| match error {
            PartError::Io { source, .. } if is_medium_error(&source) => PartError::Damaged {
                file: Arc::clone(&name),
                offset: 0,
                what: "the disk cannot read its footer",
            },
            error => error,
        })?;
        if let Some((offset, what)) = damaged {
            tracing::warn!(
                file = &*name,
                offset,
                what,
                "one copy of what tells where the blocks of a part are is damaged; the other one is used, \
                 `tsdb verify --repair` mends it"
            );
        }
        Ok(Self {
            dir: Arc::clone(dir),
            resources: Arc::clone(resources),
            id: resources.next_part(),
            number,
            file_name,
            path,
            name,
            len,
            footer_crc: crc,
            layout: footer.layout,
            sequences: footer.sequences,
            copies: footer.copies(),
            sections: footer.sections,
            damaged_copy: damaged,
            is_retired: AtomicBool::new(false),
        })
    }

    /// Number of the file in its store.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Path of the file as errors name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file as the manifest lists it.
    pub(crate) const fn record(&self) -> FileRecord {
        FileRecord { number: self.number, bytes: self.len, footer_crc: self.footer_crc }
    }

    /// The error of a file that is not the one in the manifest.
    pub(crate) fn differs(&self, what: &'static str) -> PartError {
        PartError::Damaged { file: Arc::clone(&self.name), offset: self.len, what }
    }

    /// Size of a section, bytes; 0 if the part lacks it.
    pub(crate) fn section_bytes(&self, index: usize) -> u64 {
        self.sections.get(index).map_or(0, |place| place.bytes)
    }

    /// Packed points of a section; 0 if the part lacks it.
    pub(crate) fn section_points(&self, index: usize) -> u64 {
        self.sections.get(index).map_or(0, |place| place.points)
    }

    /// Index of the section that contains an offset.
    pub(crate) fn section_at(&self, offset: u64) -> Option<usize> {
        let has = |place: &SectionRef| {
            let end = place.head.end();
            (end.saturating_sub(place.bytes)..end).contains(&offset)
        };
        self.sections.iter().position(has)
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file, bytes.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.len
    }

    /// The layout with which the part was written.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    /// First and last flush whose rows the part has.
    #[must_use]
    pub const fn sequences(&self) -> (u64, u64) {
        self.sequences
    }

    /// Sections of the part in ascending order of spans.
    #[must_use]
    pub fn sections(&self) -> Vec<SectionInfo> {
        self.sections
            .iter()
            .map(|place| SectionInfo {
                span: place.span,
                chunks: place.chunks,
                points: place.points,
                bytes: place.bytes,
            })
            .collect()
    }

    /// Removes the file when the last reader is done.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    pub(crate) fn malformed(&self, offset: u64) -> impl FnOnce(Malformed) -> PartError {
        let file = Arc::clone(&self.name);
        move |Malformed(what)| PartError::Damaged { file, offset, what }
    }

    /// Returns a verified block.
    pub(crate) fn read_block(&self, block: &BlockRef, how: BlockUse) -> Result<Bytes, PartError> {
        match how {
            BlockUse::Cached => {
                self.resources.block(self.id, block.offset, || self.read_verified(block))
            }
            BlockUse::Once => self.read_verified(block),
        }
    }

    fn file(&self) -> Result<Arc<dyn StoreFileReader>, PartError> {
        self.resources.file(self.id, || {
            let opened = self.dir.open_reader(&self.file_name);
            opened.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => self.malformed(0)(Malformed("the file is missing")),
                _ => PartError::io("open", &self.path)(error),
            })
        })
    }

    /// Reads a block and verifies it.
    fn read_verified(&self, block: &BlockRef) -> Result<Bytes, PartError> {
        let fail = |what| self.malformed(block.offset)(Malformed(what));
        if block.end() > self.len {
            return Err(fail("a block beyond the end of the file"));
        }
        let mut bytes = vec![0; block.len as usize];
        let is_intact = |bytes: &[u8]| crc32c::crc32c(bytes) == block.crc;
        let file = self.file()?;
        let read = |via, bytes: &mut [u8]| file.read_exact_via(via, block.offset, bytes);
        match read_checked(&self.name, &mut bytes, read, is_intact) {
            Ok(()) => Ok(bytes.into()),
            Err(CheckedReadError::Mismatch) => Err(fail("checksum of a block")),
            Err(CheckedReadError::Io(error)) => Err(match error.kind() {
                io::ErrorKind::UnexpectedEof => fail("the file was shortened"),
                _ if is_medium_error(&error) => fail("the disk cannot read a block"),
                _ => PartError::io("read", &self.path)(error),
            }),
        }
    }

    fn section(&self, index: usize) -> Result<&SectionRef, PartError> {
        self.sections.get(index).ok_or(PartError::Row("no such section"))
    }

    /// Start of the span of a section.
    pub(crate) fn span(&self, index: usize) -> Result<u32, PartError> {
        Ok(self.section(index)?.span)
    }

    /// The head of a section.
    pub(crate) fn head(&self, index: usize, how: BlockUse) -> Result<Arc<SectionHead>, PartError> {
        let place = self.section(index)?;
        let read = || {
            let decode = |block: &BlockRef| {
                let bytes = self.read_verified(block)?;
                SectionHead::decode(&bytes, place.span).map_err(self.malformed(block.offset))
            };
            match (decode(&place.head), self.head_copy(index)) {
                (Err(error), Some(copy)) if error.is_damage() => {
                    let head = decode(&copy).map_err(|_| error)?;
                    tracing::warn!(
                        file = self.name(),
                        span = place.span,
                        "the index of a section is damaged; its copy is used, `tsdb verify --repair` mends it"
                    );
                    Ok(head)
                }
                (head, _) => head,
            }
        };
        match how {
            BlockUse::Cached => self.resources.head(self.id, place.head.offset, read),
            BlockUse::Once => read().map(Arc::new),
        }
    }

    /// True if the footer, its copy or the start of the file is damaged.
    pub(crate) const fn is_footer_damaged(&self) -> bool {
        self.damaged_copy.is_some()
    }

    /// Position of the head of a section.
    #[cfg(test)]
    pub(crate) fn head_place(&self, index: usize) -> BlockRef {
        self.sections.get(index).map_or(BlockRef { offset: 0, len: 0, crc: 0 }, |place| place.head)
    }

    /// Position of the copy of a section's head.
    pub(crate) fn head_copy(&self, index: usize) -> Option<BlockRef> {
        let (at, _) = self.copies?;
        let before = self.sections.get(..index)?.iter().map(|place| u64::from(place.head.len));
        let head = self.sections.get(index)?.head;
        Some(BlockRef { offset: at + before.sum::<u64>(), ..head })
    }

    pub(crate) fn read_data(
        &self,
        span: u32,
        place: &DataBlockRef,
        how: BlockUse,
        block: &mut DataBlock,
    ) -> Result<(), PartError> {
        let bytes = self.read_block(&place.block, how)?;
        block
            .load(bytes, place.block.offset, span, &place.range)
            .map_err(self.malformed(place.block.offset))
    }

    /// A verified block of chunks, for readers of some of its series.
    pub(crate) fn read_marked(
        &self,
        span: u32,
        place: &DataBlockRef,
        how: BlockUse,
    ) -> Result<Arc<MarkedBlock>, PartError> {
        let offset = place.block.offset;
        let read = || {
            let bytes = self.read_verified(&place.block)?;
            let opened = MarkedBlock::open(bytes, offset, span, &place.range);
            opened.map(Arc::new).map_err(self.malformed(offset))
        };
        match how {
            BlockUse::Cached => self.resources.data(self.id, offset, read),
            BlockUse::Once => read(),
        }
    }

    pub(crate) fn read_series(
        &self,
        block: &BlockRef,
        how: BlockUse,
    ) -> Result<SeriesBlock, PartError> {
        SeriesBlock::open(self.read_block(block, how)?).map_err(self.malformed(block.offset))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.resources.close(self.id);
        if self.is_retired.load(Ordering::Acquire) {
            // The next start removes a file that remains.
            let _ = self.dir.remove(&self.file_name);
        }
    }
}
