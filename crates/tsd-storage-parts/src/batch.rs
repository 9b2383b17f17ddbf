//! Rows of a flush, sorted and written as one part.

use std::collections::HashMap;

use bytes::Bytes;
use tsd_model::{Cell, ChunkPoint, Family, PackablePoint, PackedChunk};
use tsd_storage::{FlushCell, FlushRow, FlushRows, StoreDir};

use crate::{
    chunk::Tombstone, error::PartError, layout::PartLayout, series_encoder::SeriesEncoder,
    writer::PartWriter,
};

/// Collects the rows of a flush. It holds their points in memory, 40 bytes each.
#[derive(Debug)]
pub struct FlushBatch {
    layout: PartLayout,
    series: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    items: Vec<RowItem>,
    points: Vec<ChunkPoint>,
    cells: Vec<Cell>,
    tombstones: Vec<Tombstone>,
    scratch: Vec<u8>,
}

/// Some of a row: a range of one of the lists of the batch.
#[derive(Clone, Copy, Debug)]
struct RowItem {
    series: u32,
    base: u32,
    content: ItemContent,
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemContent {
    Singles,
    Column,
    Cells,
    Tombstones,
}

impl FlushBatch {
    /// An empty batch.
    #[must_use]
    pub fn new(layout: PartLayout) -> Self {
        Self {
            layout,
            series: HashMap::default(),
            items: Vec::new(),
            points: Vec::new(),
            cells: Vec::new(),
            tombstones: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// A batch of all rows of a flush.
    pub fn of_rows(layout: PartLayout, rows: &mut dyn FlushRows) -> Result<Self, PartError> {
        let mut batch = Self::new(layout);
        while let Some(row) = rows.next_row() {
            batch.add(&row)?;
        }
        Ok(batch)
    }

    /// True without rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes that [`Self::write`] writes at most, about.
    #[must_use]
    pub fn size_bound(&self) -> u64 {
        let cells = |cell: &Cell| cell.qualifier.len() + cell.value.len() + 32;
        let bytes = self.series.keys().map(|series| series.len() + 16).sum::<usize>()
            + self.items.len() * 24
            + self.points.len() * 28
            + self.cells.iter().map(cells).sum::<usize>()
            + self.tombstones.len() * 32;
        bytes as u64 + (64 << 10)
    }

    /// Adds a row, each key once. The timestamps of deletes are ignored: the log is the only writer,
    /// so all stored cells are older.
    pub fn add(&mut self, row: &FlushRow<'_>) -> Result<(), PartError> {
        self.scratch.clear();
        let base = self.layout.split_key(row.key, &mut self.scratch);
        let next = self.series.len() as u32;
        let series = match self.series.get(self.scratch.as_slice()) {
            Some(&series) => series,
            None => *self.series.entry(self.scratch.as_slice().into()).or_insert(next),
        };
        let tombstones = self.tombstones.len();
        if row.delete_row.is_some() {
            self.tombstones.push(Tombstone::Row);
        }
        for &(family, qualifier, _) in &row.deletes {
            self.tombstones.push(Tombstone::Column(family, Bytes::copy_from_slice(qualifier)));
        }
        let (points, cells) = (self.points.len(), self.cells.len());
        let mut columns = Vec::new();
        for cell in &row.cells {
            if cell.family == Family::T && self.add_single(base, cell, points) {
                continue;
            }
            if cell.family == Family::T && is_column(base, cell) {
                columns.push(*cell);
            } else {
                self.cells.push(owned(cell));
            }
        }
        let singles = self.points.len();
        let Ok(limit) = u32::try_from(singles) else {
            return Err(PartError::Row("more points in one flush than 32 bits count"));
        };
        let mut item = |content, start: usize, end: usize| {
            if start < end {
                let (start, end) = (start as u32, end as u32);
                self.items.push(RowItem { series, base, content, start, end });
            }
        };
        item(ItemContent::Tombstones, tombstones, self.tombstones.len());
        // Seconds sort before milliseconds, as their qualifiers do.
        let added = self.points.get(points..).unwrap_or_default();
        let seconds = points + added.partition_point(|p| !p.point.is_millis());
        item(ItemContent::Singles, points, seconds);
        item(ItemContent::Singles, seconds, limit as usize);
        for column in columns {
            let start = self.points.len();
            if push_column(base, &column, &mut self.points) {
                let (start, end) = (start as u32, self.points.len() as u32);
                self.items.push(RowItem { series, base, content: ItemContent::Column, start, end });
            } else {
                self.points.truncate(start);
                self.cells.push(owned(&column));
            }
        }
        if cells < self.cells.len() {
            let (start, end) = (cells as u32, self.cells.len() as u32);
            self.items.push(RowItem { series, base, content: ItemContent::Cells, start, end });
        }
        Ok(())
    }

    /// Adds the point of a cell; false if it does not pack, or its instant is that of the point before.
    fn add_single(&mut self, base: u32, cell: &FlushCell<'_>, row: usize) -> bool {
        if !base.is_multiple_of(3_600) {
            return false;
        }
        let Some(point) = PackablePoint::try_from_cell(cell.qualifier, cell.value) else {
            return false;
        };
        let before = self.points.get(row..).and_then(<[ChunkPoint]>::last);
        if let Some(before) = before
            && before.point.is_millis() == point.is_millis()
            && before.point.offset_ms() >= point.offset_ms()
        {
            return false;
        }
        self.points.push(ChunkPoint { base_secs: base, point, timestamp_ms: cell.timestamp_ms });
        true
    }

    /// Writes the part and makes it durable; returns its size in bytes. `sequences` are the first and
    /// the last flush in it.
    pub fn write(
        self,
        dir: &dyn StoreDir,
        name: &str,
        sequences: (u64, u64),
    ) -> Result<u64, PartError> {
        let mut series: Vec<(&[u8], u32)> = self.series.iter().map(|(k, &v)| (&**k, v)).collect();
        series.sort_unstable();
        let mut ranks = vec![0_u32; series.len()];
        for (rank, (_, id)) in series.iter().enumerate() {
            if let Some(slot) = ranks.get_mut(*id as usize) {
                *slot = rank as u32;
            }
        }
        let rank_of = |item: &RowItem| ranks.get(item.series as usize).copied().unwrap_or_default();
        let mut items: Vec<(u32, u32, &RowItem)> = self
            .items
            .iter()
            .map(|item| (self.layout.span_of(item.base), rank_of(item), item))
            .collect();
        items.sort_by_key(|(span, rank, item)| (*span, *rank, item.base));
        let mut writer = PartWriter::create(dir, name, self.layout, sequences)?;
        let mut encoder = SeriesEncoder::default();
        for section in items.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(span, _, _)) = section.first() else { continue };
            writer.begin_section(span)?;
            for of_series in section.chunk_by(|a, b| a.1 == b.1) {
                let Some(&(_, rank, _)) = of_series.first() else { continue };
                encoder.begin(span);
                for (_, _, item) in of_series {
                    self.encode(item, &mut encoder);
                }
                let name = series.get(rank as usize).map_or(&[][..], |(name, _)| name);
                writer.series(name, encoder.finish())?;
            }
        }
        writer.finish()
    }

    fn encode(&self, item: &RowItem, encoder: &mut SeriesEncoder) {
        let range = item.start as usize..item.end as usize;
        match item.content {
            ItemContent::Singles => {
                encoder.points(self.points.get(range).unwrap_or_default(), false);
            }
            ItemContent::Column => {
                encoder.points(self.points.get(range).unwrap_or_default(), true);
            }
            ItemContent::Cells => {
                for cell in self.cells.get(range).unwrap_or_default() {
                    encoder.cell(item.base, cell);
                }
            }
            ItemContent::Tombstones => {
                for tombstone in self.tombstones.get(range).unwrap_or_default() {
                    encoder.tombstone(item.base, tombstone);
                }
            }
        }
    }
}

fn owned(cell: &FlushCell<'_>) -> Cell {
    Cell {
        family: cell.family,
        qualifier: Bytes::copy_from_slice(cell.qualifier),
        value: Bytes::copy_from_slice(cell.value),
        timestamp_ms: cell.timestamp_ms,
    }
}

/// True if the cell may be a compacted column that packs.
const fn is_column(base: u32, cell: &FlushCell<'_>) -> bool {
    base.is_multiple_of(3_600)
        && cell.qualifier.len() >= 4
        && cell.qualifier.len() / 2 <= PackedChunk::MAX_POINTS
}

/// Appends the points of a compacted column in canonical form: two or more points, rising times of one
/// resolution, a trailing zero. Otherwise returns false, perhaps after it has appended some.
pub(crate) fn push_column(
    base_secs: u32,
    cell: &FlushCell<'_>,
    points: &mut Vec<ChunkPoint>,
) -> bool {
    let (mut qualifier, mut value) = (cell.qualifier, cell.value);
    let start = points.len();
    let timestamp_ms = cell.timestamp_ms;
    while let Some(&first) = qualifier.first() {
        let width = if first >= 0xF0 { 4 } else { 2 };
        let Some((head, rest)) = qualifier.split_at_checked(width) else { return false };
        let length = usize::from(head.last().copied().unwrap_or(0) & 7) + 1;
        let Some((number, tail)) = value.split_at_checked(length) else { return false };
        let Some(point) = PackablePoint::try_from_cell(head, number) else { return false };
        if let Some(before) = points.get(start..).and_then(<[ChunkPoint]>::last)
            && (before.point.is_millis() != point.is_millis()
                || before.point.offset_ms() >= point.offset_ms())
        {
            return false;
        }
        points.push(ChunkPoint { base_secs, point, timestamp_ms });
        (qualifier, value) = (rest, tail);
    }
    points.len() > start + 1 && value == [0]
}
