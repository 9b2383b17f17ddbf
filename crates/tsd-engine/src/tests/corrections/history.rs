//! Random histories.

use bytes::Bytes;
use tsd_model::{ColumnKind, Flags, Qualifier, Value, append_entry};

use super::{Ending, Mode};

/// Start of the hour of all points, epoch seconds.
pub(crate) const HOUR: u32 = 1_356_998_400;

/// Offsets of all points in milliseconds of their hour. Few, so that there are many corrections.
pub(crate) const OFFSETS_MS: [u32; 5] = [0, 1_000, 4_000, 4_001, 3_599_000];

/// Pseudo-random numbers (splitmix64).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64) as usize;
        *of.get(at).unwrap()
    }
}

/// A point in one of its spellings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) series: u8,
    pub(crate) offset_ms: u32,
    is_millis: bool,
    flags: u8,
    /// Small enough for every width.
    number: i8,
}

impl Point {
    fn random(rng: &mut Rng, number: &mut i8) -> Self {
        *number = (*number + 1) % 120;
        let offset_ms = rng.pick(&OFFSETS_MS);
        Self {
            series: rng.below(2) as u8,
            offset_ms,
            is_millis: !offset_ms.is_multiple_of(1_000) || rng.chance(40),
            flags: rng.pick(&[0, 1, 3, 7, 0xB, 0xF]),
            number: *number,
        }
    }

    /// Key of the row.
    pub(crate) fn row(series: u8) -> Bytes {
        let base = HOUR.to_be_bytes();
        [&[0, 0, series + 1][..], &base, &[0, 0, 1, 0, 0, 1]].concat().into()
    }

    /// The value that queries return.
    pub(crate) fn value(&self) -> Value {
        match self.flags {
            0xB | 0xF => Value::Float(f64::from(self.number) + 0.5),
            _ => Value::Integer(self.number.into()),
        }
    }

    fn qualifier(&self) -> Qualifier {
        let flags = Flags::from_bits(self.flags);
        let qualifier = if self.is_millis {
            Qualifier::at_millis(self.offset_ms, flags)
        } else {
            Qualifier::at_seconds(self.offset_ms / 1_000, flags)
        };
        qualifier.unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let number = i64::from(self.number);
        match self.flags {
            0xB => (f32::from(self.number) + 0.5).to_be_bytes().to_vec(),
            0xF => (f64::from(self.number) + 0.5).to_be_bytes().to_vec(),
            flags => number.to_be_bytes().to_vec().split_off(7 - usize::from(flags)),
        }
    }

    /// Qualifier and value of the cell, or of the entry of the append column.
    pub(crate) fn cell(&self, mode: Mode) -> (Vec<u8>, Vec<u8>) {
        if mode == Mode::Appends {
            let mut entry = Vec::new();
            append_entry(self.qualifier(), &self.bytes(), &mut entry);
            return (ColumnKind::APPEND_QUALIFIER.to_vec(), entry);
        }
        (self.qualifier().as_bytes().to_vec(), self.bytes())
    }
}

/// Where a row compaction waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gap {
    BeforeRead,
    WhileReading,
    AfterRead,
    WhileWriting,
}

/// A step that may also happen inside a row compaction.
#[derive(Clone, Debug)]
pub(crate) enum ShortStep {
    /// One batch.
    Put(Vec<Point>),
    Delete(u8),
    Flush,
}

#[derive(Clone, Debug)]
pub(crate) enum HistoryStep {
    Short(usize, ShortStep),
    /// A compaction of a series by a daemon, with steps of any daemon inside.
    Compact(usize, u8, Vec<(Gap, usize, ShortStep)>),
    /// A compaction of a series by OpenTSDB, which may overlap with others.
    BeginCompaction(u8),
    /// OpenTSDB sends the buffers of its compactions.
    SendCompactions,
    /// HBase flushes its memory. If true, it also compacts its files and forgets deleted cells.
    FlushRegions(bool),
    Restart(usize, Ending),
    MoveClock(i64),
    /// Sets the difference of a daemon's clock from the time.
    Skew(usize, i64),
    /// All compactions end, and daemons read back points that were written during one.
    Settle,
}

#[derive(Clone, Debug)]
pub(crate) struct History(pub(crate) Vec<HistoryStep>);

impl History {
    pub(crate) fn random(rng: &mut Rng, daemons: usize, max_skew_ms: i64) -> Self {
        let mut number = 0;
        let steps = 5 + rng.below(40);
        // In some histories the clock stands still unless it is moved.
        let can_move = rng.chance(60);
        let mut short = |rng: &mut Rng| match rng.below(20) {
            0 => ShortStep::Delete(rng.below(2) as u8),
            1..4 => ShortStep::Flush,
            _ => {
                let count = if rng.chance(70) { 1 } else { 1 + rng.below(4) };
                ShortStep::Put((0..count).map(|_| Point::random(rng, &mut number)).collect())
            }
        };
        let daemon = |rng: &mut Rng| rng.below(daemons as u64) as usize;
        let mut step = |rng: &mut Rng| match rng.below(20) {
            0..6 => {
                let gaps = [Gap::BeforeRead, Gap::WhileReading, Gap::AfterRead, Gap::WhileWriting];
                let inside = (0..rng.below(3)).map(|_| {
                    let (gap, daemon) = (rng.pick(&gaps), daemon(rng));
                    (gap, daemon, short(rng))
                });
                let inside = inside.collect();
                HistoryStep::Compact(daemon(rng), rng.below(2) as u8, inside)
            }
            6 => {
                let endings = [Ending::Clean, Ending::Kill, Ending::KillAfterFlush];
                HistoryStep::Restart(daemon(rng), rng.pick(&endings))
            }
            9 if daemons > 2 => HistoryStep::Settle,
            7..9 if can_move => HistoryStep::MoveClock(
                rng.pick(&[1, 1, 5, 1_000, 3_600_000, -1, -5, -1_000, -3_600_000]),
            ),
            _ => HistoryStep::Short(daemon(rng), short(rng)),
        };
        let mut all = Vec::new();
        for _ in 0..steps {
            if daemons > 1 {
                // With two daemons the clock decides, so it mostly moves between two steps.
                all.push(HistoryStep::MoveClock(rng.pick(&[0, 1, 100, 100, 100, 500, 3_000])));
                if max_skew_ms > 0 && rng.chance(20) {
                    let skew = rng.below(2 * max_skew_ms as u64 + 1) as i64 - max_skew_ms;
                    all.push(HistoryStep::Skew(daemon(rng), skew));
                }
            }
            all.push(step(rng));
        }
        if daemons > 2 {
            if rng.chance(60) {
                all = Self::with_overlaps(rng, all);
            }
            if rng.chance(50) {
                all = Self::with_flushes(rng, all);
            }
            all.push(HistoryStep::Settle);
        }
        Self(all)
    }

    /// Adds flushes of HBase.
    fn with_flushes(rng: &mut Rng, steps: Vec<HistoryStep>) -> Vec<HistoryStep> {
        let mut all = Vec::new();
        for step in steps {
            all.push(step);
            if rng.chance(25) {
                all.push(HistoryStep::FlushRegions(rng.chance(30)));
            }
        }
        all
    }

    /// Adds compactions of OpenTSDB that send later than they read, after or between other compactions.
    fn with_overlaps(rng: &mut Rng, steps: Vec<HistoryStep>) -> Vec<HistoryStep> {
        let mut all = Vec::new();
        for step in steps {
            all.push(step);
            while rng.chance(40) {
                all.push(match rng.below(5) {
                    0..2 => HistoryStep::BeginCompaction(rng.below(2) as u8),
                    2..4 => HistoryStep::SendCompactions,
                    _ => HistoryStep::MoveClock(rng.pick(&[1, 10, 300])),
                });
            }
        }
        all
    }
}
