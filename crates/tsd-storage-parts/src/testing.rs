//! Decoders of part files, manifests and series indexes for the fuzz targets. They skip the checksums in front.

use std::sync::Arc;

use bytes::Bytes;
use tsd_files::StoreDir;
use tsd_model::{DaySummaries, SummaryFold, TableSchema};
use tsd_series_index::SeriesIndex;
use tsd_storage::{StorageError, Table};

use crate::{
    PartError, PartResources,
    block::{BlockRange, DataBlock},
    chunk::ChunkKind,
    manifest::decode_manifest,
    part::{BlockUse, Part},
    resolve::Resolver,
    section::SectionHead,
    series::TableSeries,
    series_block::SeriesBlock,
};

/// The blocks of the first section of a part, each with its kind: 0 the head, 1 data, 2 series, 3 summaries.
///
/// # Errors
///
/// The damage.
pub fn blocks(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
    number: u64,
) -> Result<Vec<(u8, Vec<u8>)>, PartError> {
    let part = Part::open(dir, resources, number, None)?;
    let head = part.head(0, BlockUse::Once)?;
    let mut encoded = Vec::new();
    head.encode(part.span(0)?, &mut encoded);
    let mut blocks = vec![(0, encoded)];
    let data = head.data_blocks.iter().map(|data| (1, &data.block));
    let series = head.series_blocks.iter().map(|series| (2, &series.block));
    let summaries = head.summary_blocks.iter().map(|summaries| (3, &summaries.block));
    for (kind, block) in data.chain(series).chain(summaries) {
        blocks.push((kind, part.read_block(block, BlockUse::Once)?.to_vec()));
    }
    Ok(blocks)
}

/// Reads and decodes every byte of a part.
///
/// # Errors
///
/// The first damage.
pub fn verify_part(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
    number: u64,
) -> Result<(), PartError> {
    Part::open(dir, resources, number, None)?.verify()
}

/// Decodes the head of a section and encodes it again; `None` if it is rejected.
#[must_use]
pub fn recode_head(head: &[u8], span: u32) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    SectionHead::decode(head, span).ok()?.encode(span, &mut again);
    Some(again)
}

/// Decodes a data block and merges its chunks. Returns the number of cells; `None` if it is rejected.
#[must_use]
pub fn count_cells(block: &[u8], span: u32) -> Option<usize> {
    let mut resolver = Resolver::default();
    let data = data_block(block, span)?;
    for entry in data.directory() {
        let chunk = data.chunk(entry);
        let _ = chunk.check(span);
        resolver.add(0, span, &chunk).ok()?;
    }
    let mut cells = 0;
    resolver.rows((0, u32::MAX), |row| {
        cells += row.to_cells().len();
        let _ = row.compacted();
    });
    Some(cells)
}

/// Decodes a block of summaries and returns the summaries of each series; `None` if the block is rejected.
#[must_use]
pub fn read_summaries(block: &[u8], span: u32, fold: SummaryFold) -> Option<Vec<DaySummaries>> {
    let data = data_block(block, span)?;
    let mut days = Vec::new();
    for entry in data.directory() {
        let chunk = data.chunk(entry);
        if chunk.kind != ChunkKind::Summaries {
            return None;
        }
        days.extend(DaySummaries::decode(&chunk.payload, span, fold).ok()?);
    }
    Some(days)
}

fn data_block(block: &[u8], span: u32) -> Option<DataBlock> {
    let range =
        BlockRange { first_ordinal: 0, last_ordinal: 1 << 20, first_base: 0, last_base: u32::MAX };
    let mut data = DataBlock::default();
    data.load(Bytes::copy_from_slice(block), 0, span, &range).ok()?;
    Some(data)
}

/// Number of series in a series block, and the result of a search for `wanted`: its index, and whether it is
/// present. `None` if the block is rejected.
#[must_use]
pub fn read_series_block(block: &[u8], wanted: &[u8]) -> Option<(usize, (usize, bool))> {
    let block = SeriesBlock::open(Bytes::copy_from_slice(block)).ok()?;
    let found = block.search(wanted, &mut Vec::new()).ok()?;
    let _ = block.walk().seek(wanted).ok()?;
    let (mut walk, mut count) = (block.walk(), 0);
    while walk.next().ok()?.is_some() {
        count += 1;
    }
    Some((count, found))
}

/// Decodes a manifest and encodes its state as a new one.
///
/// # Errors
///
/// Offset and description of the damage.
pub fn recode_manifest(file: &[u8]) -> Result<Vec<u8>, (usize, &'static str)> {
    decode_manifest(file)
}

/// Writes the files of a series index that has these rows.
///
/// # Errors
///
/// An error of the disk.
pub fn write_series_index(
    dir: Arc<dyn StoreDir>,
    table: &Table,
    schema: TableSchema,
    flushes: &[Vec<Vec<u8>>],
) -> Result<(), StorageError> {
    let series = TableSeries::open(dir, table, schema, true)?;
    for keys in flushes {
        series.index.add_rows(keys.iter().map(Vec::as_slice));
        series.persist()?;
    }
    Ok(())
}

/// Reads the series index of a table. If its files are unusable, returns a description of their damage.
///
/// # Errors
///
/// An error of the disk, or files of another release.
pub fn read_series_index(
    dir: &Arc<dyn StoreDir>,
    table: &Table,
    schema: TableSchema,
) -> Result<Result<SeriesIndex, String>, StorageError> {
    let read = TableSeries::read_file(dir, table, schema)?;
    Ok(read.map(|(index, _)| index).map_err(|(file, what)| format!("{file}: {what}")))
}
