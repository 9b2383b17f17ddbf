//! A part file that is open for reads.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use bytes::Bytes;
use tsd_storage::{StoreDir, StoreFileReader, UnknownVersion};

use crate::{
    block::DataBlock,
    error::{Malformed, PartError},
    file_names::{aside_name, part_name},
    layout::PartLayout,
    manifest::FileRecord,
    resources::PartResources,
    section::{BlockRef, DataBlockRef, SectionHead},
    series_block::SeriesBlock,
    wire::Cursor,
    writer::{END_MAGIC, MAGIC, SectionRef, TAIL, VERSION, VERSION_SUMMARIES},
};

/// Error number of a disk that cannot return what it stored.
const EIO: i32 = 5;

/// An open part. Readers keep it open while they use it; a part that was replaced removes its file
/// when the last of them is done.
#[derive(Debug)]
pub struct Part {
    dir: Arc<dyn StoreDir>,
    resources: Arc<PartResources>,
    /// Its key in the cache and the table of open files.
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
    /// What happens to the file with the last reference: [`STAYS`], [`REMOVED`] or [`QUARANTINED`].
    end: AtomicU8,
}

const STAYS: u8 = 0;
const REMOVED: u8 = 1;
const QUARANTINED: u8 = 2;

/// Whether a read looks into the cache and leaves its block there.
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
    /// Opens a part and verifies its footer, and that it is the file that the manifest lists. Blocks are
    /// verified when they are read.
    pub(crate) fn open(
        dir: &Arc<dyn StoreDir>,
        resources: &Arc<PartResources>,
        number: u64,
        listed: Option<&FileRecord>,
    ) -> Result<Self, PartError> {
        Self::open_named(dir, resources, (number, part_name(number)), listed)
    }

    /// As [`Self::open`], for a file with another name than its number's.
    pub(crate) fn open_named(
        dir: &Arc<dyn StoreDir>,
        resources: &Arc<PartResources>,
        (number, file_name): (u64, String),
        listed: Option<&FileRecord>,
    ) -> Result<Self, PartError> {
        let path = dir.path().join(&file_name);
        let name: Arc<str> = path.display().to_string().into();
        let file = dir.open_reader(&file_name).map_err(PartError::io("open", &path))?;
        let len = file.size().map_err(PartError::io("open", &path))?;
        let damaged = |offset, what| PartError::Damaged { file: Arc::clone(&name), offset, what };
        if listed.is_some_and(|listed| listed.bytes != len) {
            return Err(damaged(len, "size of the file"));
        }
        if len < (MAGIC.len() + TAIL) as u64 {
            return Err(damaged(0, "too short for a part"));
        }
        let mut magic = [0; 8];
        file.read_exact_at(0, &mut magic).map_err(PartError::io("read", &path))?;
        let mut tail = [0; TAIL];
        let tail_at = len - TAIL as u64;
        file.read_exact_at(tail_at, &mut tail).map_err(PartError::io("read", &path))?;
        if magic != *MAGIC {
            return Err(damaged(0, "does not begin as a part"));
        }
        if !tail.ends_with(END_MAGIC) {
            return Err(damaged(tail_at, "does not end as a part"));
        }
        let mut cursor = Cursor::new(&tail);
        let read = |cursor: &mut Cursor<'_>| {
            cursor.u32().map_err(|Malformed(what)| damaged(tail_at, what))
        };
        let [footer_len, crc] = [read(&mut cursor)?, read(&mut cursor)?];
        let footer_at = tail_at
            .checked_sub(u64::from(footer_len))
            .filter(|&at| at >= MAGIC.len() as u64)
            .ok_or_else(|| damaged(tail_at, "length of the footer"))?;
        let mut footer = vec![0; footer_len as usize];
        file.read_exact_at(footer_at, &mut footer).map_err(PartError::io("read", &path))?;
        if crc32c::crc32c(&footer) != crc {
            return Err(damaged(footer_at, "checksum of the footer"));
        }
        if !footer.first().is_some_and(|v| (VERSION..=VERSION_SUMMARIES).contains(v)) {
            let version = footer.first().copied().unwrap_or_default();
            return Err(UnknownVersion::new("store file", name, version, "1 and 2").into());
        }
        if listed.is_some_and(|listed| listed.footer_crc != crc) {
            return Err(damaged(footer_at, "footer of another part"));
        }
        let footer = Footer::decode(&footer, footer_at)
            .map_err(|Malformed(what)| damaged(footer_at, what))?;
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
            sections: footer.sections,
            end: AtomicU8::new(STAYS),
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

    /// The error of a file that is not the one that the manifest lists.
    pub(crate) fn differs(&self, what: &'static str) -> PartError {
        PartError::Damaged { file: Arc::clone(&self.name), offset: self.len, what }
    }

    /// Size of a section, bytes; 0 if there is none.
    pub(crate) fn section_bytes(&self, index: usize) -> u64 {
        self.sections.get(index).map_or(0, |place| place.bytes)
    }

    /// Packed points of a section; 0 if there is none.
    pub(crate) fn section_points(&self, index: usize) -> u64 {
        self.sections.get(index).map_or(0, |place| place.points)
    }

    /// Index of the section that has the byte at an offset.
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

    /// The layout that it was written with.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    /// First and last flush whose rows it has.
    #[must_use]
    pub const fn sequences(&self) -> (u64, u64) {
        self.sequences
    }

    /// Its sections in ascending order of spans.
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
        self.end.store(REMOVED, Ordering::Release);
    }

    /// Moves the file to the quarantine when the last reader is done.
    pub(crate) fn quarantine_file(&self) {
        self.end.store(QUARANTINED, Ordering::Release);
    }

    pub(crate) fn malformed(&self, offset: u64) -> impl FnOnce(Malformed) -> PartError {
        let file = Arc::clone(&self.name);
        move |Malformed(what)| PartError::Damaged { file, offset, what }
    }

    /// A verified block.
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
        match self.file()?.read_exact_at(block.offset, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(fail("the file was shortened"));
            }
            // The disk cannot return what it stored.
            Err(error) if error.raw_os_error() == Some(EIO) => {
                return Err(fail("the disk cannot read a block"));
            }
            result => result.map_err(PartError::io("read", &self.path))?,
        }
        if crc32c::crc32c(&bytes) != block.crc {
            return Err(fail("checksum of a block"));
        }
        Ok(bytes.into())
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
            let bytes = self.read_verified(&place.head)?;
            SectionHead::decode(&bytes, place.span).map_err(self.malformed(place.head.offset))
        };
        match how {
            BlockUse::Cached => self.resources.head(self.id, place.head.offset, read),
            BlockUse::Once => read().map(Arc::new),
        }
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

    pub(crate) fn read_series(
        &self,
        block: &BlockRef,
        how: BlockUse,
    ) -> Result<SeriesBlock, PartError> {
        SeriesBlock::open(self.read_block(block, how)?).map_err(self.malformed(block.offset))
    }

    /// Reads and decodes every byte of the file. The error names the file and the place of the first
    /// damage.
    pub fn verify(&self) -> Result<(), PartError> {
        let mut next = MAGIC.len() as u64;
        for (index, section) in self.sections.iter().enumerate() {
            let end = section.head.end();
            if end.checked_sub(section.bytes) != Some(next) {
                return Err(self.malformed(next)(Malformed("bytes that belong to no block")));
            }
            self.verify_section(index, &mut |_| Ok(()))?;
            next = end;
        }
        Ok(())
    }

    /// Reads and decodes every byte of a section. The error names the file and the place of the first
    /// damage. `checkpoint` gets the bytes that were read since the last call; its error ends the check.
    pub(crate) fn verify_section(
        &self,
        index: usize,
        checkpoint: &mut dyn FnMut(u64) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        let section = *self.section(index)?;
        let head = self.head(index, BlockUse::Once)?;
        checkpoint(u64::from(section.head.len))?;
        let mut places = vec![section.head];
        for series in &head.series_blocks {
            let mut walk = self.read_series(&series.block, BlockUse::Once)?.walk();
            while walk.next().map_err(self.malformed(series.block.offset))?.is_some() {}
            checkpoint(u64::from(series.block.len))?;
            places.push(series.block);
        }
        for data in head.data_blocks.iter().chain(&head.summary_blocks) {
            self.verify_data(section.span, data)?;
            checkpoint(u64::from(data.block.len))?;
            places.push(data.block);
        }
        places.sort_by_key(|place| place.offset);
        let mut next = section.head.end().saturating_sub(section.bytes);
        for place in places {
            if place.offset != next {
                return Err(self.malformed(next)(Malformed("bytes that belong to no block")));
            }
            next = place.end();
        }
        Ok(())
    }

    fn verify_data(&self, span: u32, data: &DataBlockRef) -> Result<(), PartError> {
        let mut block = DataBlock::default();
        self.read_data(span, data, BlockUse::Once, &mut block)?;
        for entry in block.directory() {
            block.chunk(entry).check(span).map_err(self.malformed(data.block.offset))?;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.resources.close(self.id);
        // What cannot be done now is done at the next start.
        let _ = match self.end.load(Ordering::Acquire) {
            REMOVED => self.dir.remove(&self.file_name),
            QUARANTINED => self.dir.rename(&self.file_name, &aside_name(self.number)),
            _ => Ok(()),
        };
    }
}

struct Footer {
    layout: PartLayout,
    sequences: (u64, u64),
    sections: Vec<SectionRef>,
}

impl Footer {
    fn decode(bytes: &[u8], end: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        cursor.byte()?;
        let base_time_at = cursor.byte()?;
        let layout = PartLayout::from_stored(base_time_at, cursor.varint_u32()?)
            .ok_or(Malformed("seconds of a span"))?;
        let sequences = (cursor.varint()?, cursor.varint()?);
        let mut sections: Vec<SectionRef> = Vec::new();
        for _ in 0..cursor.varint()? {
            let section = SectionRef {
                span: cursor.varint_u32()?,
                chunks: cursor.varint()?,
                points: cursor.varint()?,
                bytes: cursor.varint()?,
                head: BlockRef::read(&mut cursor)?,
            };
            let ascends = sections.last().is_none_or(|last| last.span < section.span);
            let is_span = section.span.is_multiple_of(layout.span_secs());
            if !ascends || !is_span || section.head.end() > end {
                return Err(Malformed("section of the footer"));
            }
            sections.push(section);
        }
        if cursor.remaining() > 0 || sequences.0 > sequences.1 {
            return Err(Malformed("footer"));
        }
        Ok(Self { layout, sequences, sections })
    }
}
