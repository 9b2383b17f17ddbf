//! Writes the rows of a flush as one part, series by series.

use bytes::Bytes;
use tsd_model::{Cell, ChunkPoint, Family, PackablePoint, PackedChunk};
use tsd_storage::{FlushCell, FlushRow, FlushRows};

use crate::{
    chunk::Tombstone, error::PartError, layout::PartLayout, series_encoder::SeriesEncoder,
    writer::PartWriter,
};

/// Approximate bytes of index entries and summaries of a series.
const SERIES_BYTES: u64 = 4 << 10;

/// Where a flush writes its part.
pub(crate) trait FlushOutput {
    /// Creates the file of the part. Called once, before its first series.
    fn create(&mut self) -> Result<PartWriter, PartError>;

    /// Requests disk space for the next `next` bytes; `written` bytes are written already.
    fn reserve(&mut self, written: u64, next: u64) -> Result<(), PartError>;
}

/// Writes all rows of a flush as one durable part and returns its size in bytes; `None` if the rows have no
/// content. Holds the points of one series in memory.
pub(crate) fn write_rows(
    layout: PartLayout,
    rows: &mut dyn FlushRows,
    output: &mut dyn FlushOutput,
) -> Result<Option<u64>, PartError> {
    rows.sort_by(&|a, b| layout.compare_keys(a, b));
    let mut writer = RowWriter {
        layout,
        output,
        part: None,
        section: None,
        series: (0, Vec::new()),
        encoder: SeriesEncoder::default(),
        row: RowContent::default(),
    };
    while let Some(row) = rows.next_row() {
        writer.add(&row)?;
    }
    writer.end_series()?;
    writer.part.map(PartWriter::finish).transpose()
}

struct RowWriter<'a> {
    layout: PartLayout,
    output: &'a mut dyn FlushOutput,
    part: Option<PartWriter>,
    /// Span of the section that is being written.
    section: Option<u32>,
    /// Span and name of the series whose rows are being added.
    series: (u32, Vec<u8>),
    encoder: SeriesEncoder,
    row: RowContent,
}

/// Columns of a row, by how they are stored. Reused for all rows.
#[derive(Debug, Default)]
struct RowContent {
    series: Vec<u8>,
    points: Vec<ChunkPoint>,
    columns: Vec<ChunkPoint>,
    /// End of each compacted column in `columns`.
    column_ends: Vec<usize>,
    cells: Vec<Cell>,
}

impl RowWriter<'_> {
    /// Adds a row. Ignores the timestamps of deletes: the log is the only writer, so all stored cells are older.
    fn add(&mut self, row: &FlushRow<'_>) -> Result<(), PartError> {
        let base = self.row.take(self.layout, row);
        let span = self.layout.span_of(base);
        if (span, &self.row.series) != (self.series.0, &self.series.1) {
            if (span, &self.row.series) < (self.series.0, &self.series.1) {
                return Err(PartError::Row("the rows of a flush are not sorted by series"));
            }
            self.end_series()?;
            self.series.0 = span;
            self.series.1.clone_from(&self.row.series);
            self.encoder.begin(span);
        }
        if row.delete_row.is_some() {
            self.encoder.tombstone(base, &Tombstone::Row);
        }
        for &(family, qualifier, _) in &row.deletes {
            let column = Tombstone::Column(family, Bytes::copy_from_slice(qualifier));
            self.encoder.tombstone(base, &column);
        }
        self.row.encode(base, &mut self.encoder);
        Ok(())
    }

    fn end_series(&mut self) -> Result<(), PartError> {
        let (span, series) = (self.series.0, self.series.1.as_slice());
        let chunks = self.encoder.finish();
        if chunks.is_empty() {
            return Ok(());
        }
        let written = self.part.as_ref().map_or(0, PartWriter::size);
        let bytes: usize = chunks.iter().map(|chunk| chunk.payload.len()).sum();
        self.output.reserve(written, (bytes + series.len()) as u64 + SERIES_BYTES)?;
        let part = match &mut self.part {
            Some(part) => part,
            None => self.part.insert(self.output.create()?),
        };
        if self.section != Some(span) {
            part.begin_section(span)?;
            self.section = Some(span);
        }
        part.series(series, chunks)
    }
}

impl RowContent {
    /// Loads the series and the columns of a row, and returns the base time.
    fn take(&mut self, layout: PartLayout, row: &FlushRow<'_>) -> u32 {
        let Self { series, points, columns, column_ends, cells } = self;
        series.clear();
        points.clear();
        columns.clear();
        column_ends.clear();
        cells.clear();
        let base = layout.split_key(row.key, series);
        for cell in &row.cells {
            if cell.family != Family::T {
                cells.push(owned(cell));
                continue;
            }
            if add_single(base, cell, points) {
                continue;
            }
            let start = columns.len();
            if is_column(base, cell) && push_column(base, cell, columns) {
                column_ends.push(columns.len());
            } else {
                columns.truncate(start);
                cells.push(owned(cell));
            }
        }
        base
    }

    fn encode(&self, base: u32, encoder: &mut SeriesEncoder) {
        // Seconds sort before milliseconds, as their qualifiers do.
        let seconds = self.points.partition_point(|p| !p.point.is_millis());
        let (seconds, millis) = self.points.split_at_checked(seconds).unwrap_or_default();
        encoder.points(seconds, false);
        encoder.points(millis, false);
        let mut start = 0;
        for &end in &self.column_ends {
            encoder.points(self.columns.get(start..end).unwrap_or_default(), true);
            start = end;
        }
        for cell in &self.cells {
            encoder.cell(base, cell);
        }
    }
}

/// Adds the point of a cell; false if the point does not pack, or its instant is not after that of the previous
/// point.
fn add_single(base: u32, cell: &FlushCell<'_>, points: &mut Vec<ChunkPoint>) -> bool {
    if !base.is_multiple_of(3_600) {
        return false;
    }
    let Some(point) = PackablePoint::try_from_cell(cell.qualifier, cell.value) else {
        return false;
    };
    if let Some(before) = points.last()
        && before.point.is_millis() == point.is_millis()
        && before.point.offset_ms() >= point.offset_ms()
    {
        return false;
    }
    points.push(ChunkPoint { base_secs: base, point, timestamp_ms: cell.timestamp_ms });
    true
}

fn owned(cell: &FlushCell<'_>) -> Cell {
    Cell {
        family: cell.family,
        qualifier: Bytes::copy_from_slice(cell.qualifier),
        value: Bytes::copy_from_slice(cell.value),
        timestamp_ms: cell.timestamp_ms,
    }
}

/// True if the cell may be a compacted column that can be packed.
const fn is_column(base: u32, cell: &FlushCell<'_>) -> bool {
    base.is_multiple_of(3_600)
        && cell.qualifier.len() >= 4
        && cell.qualifier.len() / 2 <= PackedChunk::MAX_POINTS
}

/// Appends the points of a compacted column in canonical form: two or more points of one resolution, ascending
/// times, a trailing zero. Returns false for any other column, and may have appended some points then.
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
