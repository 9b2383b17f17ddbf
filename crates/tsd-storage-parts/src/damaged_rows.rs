//! Finds the rows of damaged blocks, for errors and for the list of losses.

use std::sync::Arc;

use bytes::Bytes;
use tsd_storage::{LostRows, Table, UnreadableRows};

use crate::{
    cursor::Names,
    damage::DamageUse,
    file_names::{loss_name, shown_name},
    layout::PartLayout,
    part::{BlockUse, Part},
    section::BlockKind,
    section_reader::SectionReader,
};

/// Maximum number of listed ranges of a damaged block. Above it, one range from the first row to the last is
/// listed.
const MAX_LOST: usize = 64;
/// Maximum number of series of a damaged block in an error.
const NAMED_SERIES: u32 = 512;

/// The rows of a damaged block, as far as the head of its section and the names of its series tell.
pub(crate) struct BlockRows {
    section: SectionReader,
    /// Ordinals, with an exclusive end; empty if no row is lost.
    ordinals: std::ops::Range<u32>,
    /// First and last base time, epoch seconds.
    bases: (u32, u32),
}

impl BlockRows {
    /// `None` if no block of the section begins at the offset.
    pub(crate) fn find(part: Arc<Part>, index: usize, offset: u64) -> Option<Self> {
        let (how, damage) = (BlockUse::Cached, DamageUse::default());
        let section = SectionReader::open(part, index, how, damage).ok()?;
        let (ordinals, bases) = match section.head.block_at(offset)? {
            BlockKind::Data(range) => (
                range.first_ordinal..range.last_ordinal.saturating_add(1),
                (range.first_base, range.last_base),
            ),
            // Reads fall back to the points.
            BlockKind::Summaries => (0..0, (0, 0)),
            BlockKind::Series(ordinals) => {
                let blocks =
                    section.head.data_blocks.iter().map(|block| block.range).filter(|range| {
                        range.first_ordinal < ordinals.end && ordinals.start <= range.last_ordinal
                    });
                let first = blocks.clone().map(|range| range.first_base).min();
                let last = blocks.map(|range| range.last_base).max();
                (ordinals, (first.unwrap_or_default(), last.unwrap_or_default()))
            }
        };
        Some(Self { section, ordinals, bases })
    }

    /// Keys of the first `NAMED_SERIES` series, each with the first base time.
    fn keys(&self, layout: PartLayout) -> Vec<Bytes> {
        let mut names = Names::default();
        let mut keys = Vec::new();
        for ordinal in self.ordinals.clone().take(NAMED_SERIES as usize) {
            let Some(series) = names.known(&self.section, ordinal) else { continue };
            keys.push(layout.join_key(series, self.bases.0).into());
        }
        keys
    }

    /// The key of a series and a base time; `None` if the name of the series is lost, too.
    fn key(&self, layout: PartLayout, (ordinal, base): (u32, u32)) -> Option<Bytes> {
        let series = Names::default().known(&self.section, ordinal)?.to_vec();
        Some(layout.join_key(&series, base).into())
    }

    const fn time_secs(&self, row_secs: u32) -> (u64, u64) {
        (self.bases.0 as u64, self.bases.1 as u64 + row_secs as u64)
    }

    /// The lost rows for the list of losses, as one range for each key prefix (salt and metric). If there are
    /// more than `MAX_LOST` prefixes, or a name is lost, it is one range over all. Empty if no row is lost.
    pub(crate) fn lost(&self, layout: PartLayout) -> Vec<LostRows> {
        let mut lost: Vec<LostRows> = Vec::new();
        let mut names = Names::default();
        let time_secs = Some(self.time_secs(HOUR_SECS));
        let prefix = |key: &[u8]| key.get(..layout.prefix_len()).unwrap_or(key).to_vec();
        for ordinal in self.ordinals.clone() {
            let Some(series) = names.known(&self.section, ordinal) else {
                return self.lost_range(layout).into_iter().collect();
            };
            let first = Bytes::from(layout.join_key(series, self.bases.0));
            let last = Some(layout.join_key(series, self.bases.1).into());
            let has_prefix =
                |rows: &LostRows| rows.first.as_deref().map(prefix) == Some(prefix(&first));
            if let Some(rows) = lost.last_mut().filter(|rows| has_prefix(rows)) {
                rows.last = last;
            } else if lost.len() == MAX_LOST {
                return self.lost_range(layout).into_iter().collect();
            } else {
                lost.push(LostRows { first: Some(first), last, time_secs });
            }
        }
        lost
    }

    /// All rows of the block as one range; `None` if no row is lost.
    fn lost_range(&self, layout: PartLayout) -> Option<LostRows> {
        let last = self.ordinals.end.checked_sub(1).filter(|_| !self.ordinals.is_empty())?;
        // If the names are damaged, the head still has the first name of this block and of the next.
        let first = self.key(layout, (self.ordinals.start, self.bases.0));
        let last = self
            .key(layout, (last, self.bases.1))
            .or_else(|| self.key(layout, (self.ordinals.end, self.bases.1)));
        let time_secs = Some(self.time_secs(HOUR_SECS));
        Some(LostRows { first, last, time_secs })
    }
}

/// Length of a row of the data table. In a table with longer rows, the named time ends before the last row does.
const HOUR_SECS: u32 = tsd_model::BaseTime::SPAN_SECONDS;

/// The rows that a read needs and cannot get because of a damaged block.
pub(crate) fn unreadable_rows(
    table: &Table,
    part: &Arc<Part>,
    offset: u64,
    what: &str,
) -> Option<UnreadableRows> {
    let index = part.section_at(offset)?;
    let rows = BlockRows::find(Arc::clone(part), index, offset)?;
    let series = rows.keys(part.layout());
    let count = u64::from(rows.ordinals.end - rows.ordinals.start);
    Some(UnreadableRows {
        table: table.clone(),
        name: loss_name(table, part.number()),
        file: shown_name(table, part.number()),
        what: what.to_owned(),
        more_series: count.saturating_sub(series.len() as u64),
        series,
        time_secs: rows.time_secs(HOUR_SECS),
    })
}
