//! Walks over all or selected series of one section.

use std::sync::Arc;

use crate::{
    block::{BlockWalk, DataBlock},
    chunk::ChunkView,
    error::{Malformed, PartError},
    layout::PartLayout,
    listed::{ListedSeries, gallop},
    part::{BlockUse, Part},
    section::DataBlockRef,
    section_reader::{SectionReader, block_of},
    series_block::SeriesWalk,
    series_selection::SeriesSelection,
    snapshot::Snapshot,
};

/// Yields the series of a section in order, each with the chunks that overlap a range of base times.
#[derive(Debug)]
pub(crate) struct SectionCursor {
    section: SectionReader,
    /// First and last base time, inclusive.
    bases: (u32, u32),
    wanted: Wanted,
    /// The loaded data block, with its index in `loaded`; an index past the last block ends the walk. All entries
    /// that the walk has passed belong to the series at the cursor or to earlier ones.
    block: BlockWalk,
    loaded: Option<usize>,
    /// Ordinal at which the walk of a range starts; `None` once it has started.
    start: Option<u32>,
    names: Names,
    /// The loaded block of summaries and its index, if the read uses summaries and the section has some.
    summary_block: Option<(DataBlock, Option<usize>)>,
    /// The series at the cursor; `ordinal` is its ordinal.
    pub(crate) series: Vec<u8>,
    ordinal: u32,
    /// Chunks of the series, never empty while the cursor is at a series without summaries.
    pub(crate) chunks: Vec<ChunkView>,
    /// Summaries of the series. With summaries, only [`Self::read_chunks`] reads the chunks.
    pub(crate) summaries: Option<ChunkView>,
}

#[derive(Debug)]
enum Wanted {
    /// From the first ordinal to the last, exclusive.
    Range(u32, u32),
    /// The series of a list.
    Listed(ListedSeries),
}

/// Resolves ascending ordinals to series.
#[derive(Debug, Default)]
pub(crate) struct Names {
    block: Option<usize>,
    /// `None` if the names of the block are lost.
    walk: Option<SeriesWalk>,
    copy: Vec<u8>,
}

impl Names {
    /// The series of an ordinal greater than all earlier ones; `None` if its name cannot be read.
    pub(crate) fn known(&mut self, section: &SectionReader, ordinal: u32) -> Option<&[u8]> {
        // The head, too, has the first name of each block.
        if let Some(place) = section.head.series_blocks.iter().find(|b| b.first_ordinal == ordinal)
        {
            let named: &[u8] = &place.first;
            self.copy.clear();
            self.copy.extend_from_slice(named);
            return Some(&self.copy);
        }
        self.find(section, ordinal).ok().flatten()
    }

    /// The series of an ordinal greater than all earlier ones; `None` if its name is lost and the reader skips
    /// damage. The first name of a damaged block is not lost, because the head has it.
    pub(crate) fn find(
        &mut self,
        SectionReader { part, head, how, damage, .. }: &SectionReader,
        ordinal: u32,
    ) -> Result<Option<&[u8]>, PartError> {
        let blocks = &head.series_blocks;
        let index = blocks.partition_point(|b| b.first_ordinal <= ordinal).saturating_sub(1);
        let Some(place) = blocks.get(index) else {
            return Err(part.malformed(0)(Malformed("a series without a block")));
        };
        let malformed = || part.malformed(place.block.offset);
        if self.block != Some(index) {
            let read = || part.read_series(&place.block, *how);
            let block = damage.read(part, &place.block, read)?;
            self.walk = block.map(|block| block.walk());
            self.block = Some(index);
        }
        let Some(walk) = &mut self.walk else {
            self.copy.clear();
            self.copy.extend_from_slice(&place.first);
            return Ok((place.first_ordinal == ordinal).then_some(&*self.copy));
        };
        let index = ordinal.saturating_sub(place.first_ordinal) as usize;
        for _ in walk.skip_to(index).map_err(malformed())?..=index {
            if walk.next().map_err(malformed())?.is_none() {
                return Err(malformed()(Malformed("fewer series than ordinals")));
            }
        }
        Ok(Some(walk.current()))
    }
}

impl SectionCursor {
    pub(crate) fn open(
        section: SectionReader,
        selection: &Arc<SeriesSelection>,
        bases: (u32, u32),
    ) -> Result<Self, PartError> {
        let head = &section.head;
        let overlaps = |b: &DataBlockRef| overlaps(bases, b.range.first_base, b.range.last_base);
        let wanted = match &**selection {
            _ if !head.data_blocks.iter().any(overlaps) => Wanted::Range(0, 0),
            SeriesSelection::All => Wanted::Range(0, head.series),
            SeriesSelection::Prefix(prefix) => {
                let (from, to) = section.ordinals(prefix, after_prefix(prefix).as_deref())?;
                Wanted::Range(from, to)
            }
            SeriesSelection::Range(first, end) => {
                let (from, to) = section.ordinals(first, end.as_deref())?;
                Wanted::Range(from, to)
            }
            SeriesSelection::Some(_) => Wanted::Listed(ListedSeries::new(Arc::clone(selection))),
        };
        let start = match wanted {
            Wanted::Range(from, to) if from < to => Some(from),
            Wanted::Range(..) | Wanted::Listed(_) => None,
        };
        Ok(Self {
            section,
            bases,
            wanted,
            block: BlockWalk::default(),
            loaded: None,
            start,
            names: Names::default(),
            summary_block: None,
            series: Vec::new(),
            ordinal: 0,
            chunks: Vec::new(),
            summaries: None,
        })
    }

    /// Makes the cursor return summaries instead of chunks where a series has summaries.
    pub(crate) fn use_summaries(&mut self) {
        if !self.section.head.summary_blocks.is_empty() {
            self.summary_block = Some((DataBlock::default(), None));
        }
    }

    pub(crate) const fn span(&self) -> u32 {
        self.section.span
    }

    pub(crate) fn part(&self) -> &Part {
        &self.section.part
    }

    /// Moves to the next series with chunks in the range; false after the last.
    pub(crate) fn advance(&mut self) -> Result<bool, PartError> {
        loop {
            self.chunks.clear();
            self.summaries = None;
            match &mut self.wanted {
                Wanted::Range(next, to) if self.summary_block.is_some() => {
                    let ordinal = *next;
                    if ordinal >= *to {
                        return Ok(false);
                    }
                    *next += 1;
                    if self.read_summaries(ordinal)? && self.name(ordinal)? {
                        return Ok(true);
                    }
                }
                Wanted::Range(_, to) => {
                    let to = *to;
                    if let Some(start) = self.start.take() {
                        self.seek(start)?;
                    }
                    let Some(ordinal) = self.next_group(to)? else { return Ok(false) };
                    if !self.chunks.is_empty() && self.name(ordinal)? {
                        return Ok(true);
                    }
                }
                Wanted::Listed(listed) => {
                    let found = listed.next(&self.section)?;
                    let Some((ordinal, series)) = found else { return Ok(false) };
                    self.series.clear();
                    self.series.extend_from_slice(series);
                    if self.read_summaries(ordinal)? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Collects the summaries of an ordinal, or its chunks if it has no summaries. Ordinals never decrease. False
    /// if the ordinal has nothing in the range.
    fn read_summaries(&mut self, ordinal: u32) -> Result<bool, PartError> {
        self.ordinal = ordinal;
        if let Some((block, loaded)) = &mut self.summary_block {
            let places = &self.section.head.summary_blocks;
            let index = places.partition_point(|b| b.range.last_ordinal < ordinal);
            let place = places.get(index).filter(|place| place.range.first_ordinal <= ordinal);
            if let Some(place) = place {
                if *loaded != Some(index) {
                    let read = || {
                        self.section.part.read_data(
                            self.section.span,
                            place,
                            self.section.how,
                            block,
                        )
                    };
                    // Without summaries, the read uses the points.
                    if self.section.damage.read_optional(&place.block, read)?.is_none() {
                        *block = DataBlock::default();
                    }
                    *loaded = Some(index);
                }
                let directory = block.directory();
                let found = directory.binary_search_by_key(&ordinal, |entry| entry.ordinal);
                let found = found.ok().and_then(|at| directory.get(at));
                self.summaries = found.map(|entry| block.chunk(entry)).filter(|summaries| {
                    overlaps(self.bases, summaries.first_base, summaries.last_base)
                });
            }
        }
        if self.summaries.is_none() {
            self.read_one(ordinal)?;
        }
        Ok(self.summaries.is_some() || !self.chunks.is_empty())
    }

    /// Reads the chunks of a series that came with summaries. There may be no chunk in the range.
    pub(crate) fn read_chunks(&mut self) -> Result<(), PartError> {
        if self.summaries.is_some() && self.chunks.is_empty() {
            self.read_one(self.ordinal)?;
        }
        Ok(())
    }

    /// Loads block `index`.
    fn load(&mut self, index: usize) -> Result<bool, PartError> {
        if self.loaded == Some(index) {
            return Ok(true);
        }
        let Some(place) = self.section.head.data_blocks.get(index) else { return Ok(false) };
        let SectionReader { part, span, how, damage, .. } = &self.section;
        let read = || part.read_marked(*span, place, *how);
        let block = damage.read(part, &place.block, read)?;
        self.block = block.map(BlockWalk::new).unwrap_or_default();
        self.loaded = Some(index);
        Ok(true)
    }

    /// Loads the first block from `index` on that overlaps the range of base times.
    fn load_from(&mut self, index: usize) -> Result<bool, PartError> {
        let rest = self.section.head.data_blocks.get(index..).unwrap_or_default();
        let next =
            rest.iter().position(|b| overlaps(self.bases, b.range.first_base, b.range.last_base));
        match next {
            Some(skipped) => self.load(index + skipped),
            None => Ok(false),
        }
    }

    /// Positions the walk at the first chunk of `ordinal`.
    fn seek(&mut self, ordinal: u32) -> Result<(), PartError> {
        let index =
            self.section.head.data_blocks.partition_point(|b| b.range.last_ordinal < ordinal);
        if self.load_from(index)? {
            self.block.seek(ordinal);
        }
        Ok(())
    }

    /// Collects the chunks of the next ordinal below `to`.
    fn next_group(&mut self, to: u32) -> Result<Option<u32>, PartError> {
        let mut group = None;
        loop {
            let Some(index) = self.loaded else { return Ok(group) };
            let mut ended = false;
            while let Some(ordinal) = self.block.ordinal() {
                if ordinal >= to || group.is_some_and(|group| group != ordinal) {
                    ended = true;
                    break;
                }
                group = Some(ordinal);
                self.chunks.extend(self.block.chunk(self.bases));
                self.block.advance();
            }
            if ended || !self.load_from(index + 1)? {
                return Ok(group);
            }
        }
    }

    /// Collects the chunks of one ordinal. Ordinals never decrease.
    fn read_one(&mut self, ordinal: u32) -> Result<(), PartError> {
        let loaded = self.loaded.unwrap_or(0);
        let mut index =
            gallop(&self.section.head.data_blocks, loaded, |b| b.range.last_ordinal < ordinal);
        while let Some(place) = self.section.head.data_blocks.get(index) {
            let range = place.range;
            if range.first_ordinal > ordinal {
                break;
            }
            if overlaps(self.bases, range.first_base, range.last_base) {
                self.load(index)?;
                self.block.seek(ordinal);
                while self.block.ordinal() == Some(ordinal) {
                    self.chunks.extend(self.block.chunk(self.bases));
                    self.block.advance();
                }
            }
            if range.last_ordinal > ordinal {
                break;
            }
            index += 1;
        }
        Ok(())
    }

    /// Sets `series` to the name of an ordinal greater than all earlier ones; false if the name is lost and the
    /// reader skips damage.
    fn name(&mut self, ordinal: u32) -> Result<bool, PartError> {
        let names = &mut self.names;
        let series = names.find(&self.section, ordinal)?;
        let Some(series) = series else { return Ok(false) };
        self.series.clear();
        self.series.extend_from_slice(series);
        Ok(true)
    }
}

/// True if two ranges of base times overlap.
const fn overlaps(bases: (u32, u32), first: u32, last: u32) -> bool {
    first <= bases.1 && bases.0 <= last
}

/// The least byte string that is greater than every string with the prefix; `None` if the prefix is all 0xFF.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// The first series of a snapshot that is at or after `from` and whose keys have a base time.
pub(crate) fn next_series_from(
    snapshot: &Snapshot,
    from: &[u8],
) -> Result<Option<Vec<u8>>, PartError> {
    let mut least: Option<Vec<u8>> = None;
    for section in snapshot.spans().values().flatten() {
        let part = &section.part;
        let damage = snapshot.damage_use(section);
        let Some(head) = damage.head(part, section.section)? else { continue };
        let first = block_of(&head, from).unwrap_or_default();
        'blocks: for place in head.series_blocks.get(first..).unwrap_or_default() {
            if least.as_ref().is_some_and(|least| place.first.as_ref() >= least.as_slice()) {
                break;
            }
            let read = || part.read_series(&place.block, BlockUse::Cached);
            let Some(block) = damage.read(part, &place.block, read)? else {
                let series: &[u8] = &place.first;
                if series >= from && PartLayout::has_time(series) {
                    least = Some(series.to_vec());
                    break;
                }
                continue;
            };
            let mut walk = block.walk();
            while let Some(series) = walk.next().map_err(part.malformed(place.block.offset))? {
                if series >= from && PartLayout::has_time(series) {
                    if least.as_ref().is_none_or(|least| series < least.as_slice()) {
                        least = Some(series.to_vec());
                    }
                    break 'blocks;
                }
            }
        }
    }
    Ok(least)
}
