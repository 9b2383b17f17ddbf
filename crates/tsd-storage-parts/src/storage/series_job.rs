//! Reads the blocks of a read of series.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tsd_model::{Cell, Family, Row};
use tsd_storage::{
    BatchReader, ReadSelection, SeriesBlock, SeriesRange, SeriesRead, StorageError,
    retain_points_family,
};

use super::table::PartTable;
use crate::{
    cursor::after_prefix,
    error::PartError,
    layout::PartLayout,
    read::{SeriesPoints, SeriesReader, SeriesStep},
    series_selection::SeriesSelection,
};

/// Memory of the blocks after which a batch ends, bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of blocks in a batch.
const BATCH_BLOCKS: usize = 4_096;
/// Number of unwanted series after which a batch ends.
const PASSED_SERIES: usize = 8_192;

/// Reads the batches of a read of series from one snapshot.
pub(crate) struct SeriesJob {
    table: Arc<PartTable>,
    read: SeriesRead,
    reader: Option<SeriesReader>,
}

impl SeriesJob {
    /// `None` if the table divides its keys or its time differently from the read.
    pub(crate) fn try_new(table: Arc<PartTable>, read: &SeriesRead) -> Option<Self> {
        Self::is_answered(table.store().layout(), read).then(|| Self {
            table,
            read: read.clone(),
            reader: None,
        })
    }

    /// True if a table with the layout can execute the read.
    pub(crate) fn is_answered(layout: PartLayout, read: &SeriesRead) -> bool {
        // Within a day, blocks are in order of series.
        let is_by_day = layout.span_secs().is_multiple_of(PartLayout::DAY_SECS);
        is_by_day && layout.prefix_len() == read.prefix_len
    }

    /// The series of the read, in the form that parts use.
    fn selection(&self) -> SeriesSelection {
        match &self.read.selection {
            ReadSelection::Keys(keys) => SeriesSelection::Some(
                keys.iter().map(|key| PartLayout::timed_series(key)).collect(),
            ),
            ReadSelection::Range(SeriesRange { prefix, from, to, .. }) => {
                let end = match to {
                    Some(to) => Some([&**prefix, to].concat()),
                    None => after_prefix(prefix),
                };
                SeriesSelection::Range([&**prefix, from].concat(), end)
            }
        }
    }

    fn read_batch(
        &self,
        reader: &mut SeriesReader,
        cancelled: &AtomicBool,
    ) -> Result<(Vec<SeriesBlock>, bool), PartError> {
        let snapshot = Arc::clone(reader.snapshot());
        let _reading = snapshot.resources().reading();
        let filter = match &self.read.selection {
            ReadSelection::Range(range) => range.filter.as_ref(),
            ReadSelection::Keys(_) => None,
        };
        let layout = self.table.store().layout();
        let metrics = self.table.store().metrics();
        let (mut blocks, mut bytes, mut passed) = (Vec::new(), 0, 0);
        let (mut names, mut key) = (Names::default(), Vec::new());
        while bytes < BATCH_BYTES && blocks.len() < BATCH_BLOCKS && passed < PASSED_SERIES {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PartError::Stopped);
            }
            let step = reader.step(|series| {
                PartLayout::has_time(series)
                    && filter.is_none_or(|filter| {
                        key.clear();
                        layout.join_key_into(series, 0, &mut key);
                        filter.matches(&key)
                    })
            })?;
            match step {
                SeriesStep::Series => {
                    let item = reader.item();
                    if !item.summaries.is_empty() {
                        metrics.summaries.increment(item.summaries.len() as u64);
                    }
                    let block = block(layout, item);
                    if !block.is_empty() {
                        bytes += block.memory_bytes() + item.series.len();
                        names.push(item.series.split_last().map_or(&[], |(_, key)| key));
                        blocks.push(block);
                    }
                }
                SeriesStep::Passed => passed += 1,
                SeriesStep::Ended => {
                    names.give_to(&mut blocks);
                    return Ok((blocks, false));
                }
            }
        }
        names.give_to(&mut blocks);
        Ok((blocks, true))
    }
}

impl BatchReader<SeriesBlock> for SeriesJob {
    fn read(&mut self, cancelled: &AtomicBool) -> Result<(Vec<SeriesBlock>, bool), StorageError> {
        let mut reader = if let Some(reader) = self.reader.take() {
            reader
        } else {
            let snapshot = self.table.snapshot(self.read.reads_past_losses)?;
            SeriesReader::of_rows(&snapshot, Arc::new(self.selection()), self.read.bases)
                .with_summaries(self.read.summaries)
                .with_joined_spans()
        };
        let batch = self.read_batch(&mut reader, cancelled);
        let batch = batch.map_err(|error| self.table.read_failed(error))?;
        self.table.record_found();
        self.reader = Some(reader);
        Ok(batch)
    }
}

/// The series names of the blocks of a batch, in one allocation.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    fn push(&mut self, series: &[u8]) {
        self.bytes.extend_from_slice(series);
        self.ends.push(self.bytes.len());
    }

    fn give_to(self, blocks: &mut [SeriesBlock]) {
        let bytes = Bytes::from(self.bytes);
        let mut start = 0;
        for (block, end) in blocks.iter_mut().zip(self.ends) {
            block.series = bytes.slice(start..end);
            start = end;
        }
    }
}

/// Moves the content of a series, without its name, out of a reader.
fn block(layout: PartLayout, item: &mut SeriesPoints) -> SeriesBlock {
    let mut rows = std::mem::take(&mut item.conflicts);
    let mut others = std::mem::take(&mut item.others);
    if !others.is_empty() {
        others.retain(|(_, cell)| cell.family == Family::T);
        others.sort_by_key(|(base, _)| *base);
        for group in others.chunk_by(|a, b| a.0 == b.0) {
            let Some((base, _)) = group.first() else { continue };
            add_cells(&mut rows, layout.join_key(&item.series, *base), group);
        }
    }
    rows.retain_mut(retain_points_family);
    SeriesBlock {
        series: Bytes::new(),
        columns: std::mem::take(&mut item.columns),
        summaries: std::mem::take(&mut item.summaries),
        rows,
        stored_bytes: item.stored_bytes,
    }
}

/// Adds cells to their row in a list that is sorted by key.
fn add_cells(rows: &mut Vec<Row>, key: Vec<u8>, cells: &[(u32, Cell)]) {
    let at = match rows.binary_search_by(|row| row.key.as_ref().cmp(&key)) {
        Ok(at) => at,
        Err(at) => {
            rows.insert(at, Row::from_cells(key.into(), Vec::new()));
            at
        }
    };
    let Some(row) = rows.get_mut(at) else { return };
    row.cells.extend(cells.iter().map(|(_, cell)| cell.clone()));
    row.cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
}
