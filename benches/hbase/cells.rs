//! Cells of the load, with the same bytes as in `cluster/java/BenchProgram.java`.
//!
//! They have OpenTSDB's format: a row key of salt, metric, base time and two tags; a qualifier of two
//! bytes and an integer of four bytes per point.

/// Family of the load.
pub(crate) const FAMILY: &[u8] = b"t";
/// Seconds between two points of a series.
pub(crate) const STEP_SECS: u32 = 10;
/// The start of an hour, so long ago that row compaction is due.
pub(crate) const FIRST_SECOND: u32 = 1_599_998_400;
/// Number of values of a row's first byte; each has its own region.
pub(crate) const BUCKETS: u32 = 8;
/// Flags of a four-byte integer.
const FLAGS: u32 = 3;

/// Row key of a series at a step.
pub(crate) fn row(series: u32, step: u32) -> [u8; 20] {
    let second = FIRST_SECOND + step * STEP_SECS;
    let mut row = [0; 20];
    row[0] = (series % BUCKETS) as u8;
    row[3] = 1;
    row[4..8].copy_from_slice(&(second - second % 3600).to_be_bytes());
    row[10] = 1;
    row[11..14].copy_from_slice(&(series + 1).to_be_bytes()[1..]);
    row[16] = 2;
    row[17..20].copy_from_slice(&(series % 16 + 1).to_be_bytes()[1..]);
    row
}

/// Qualifier of a step.
pub(crate) const fn qualifier(step: u32) -> [u8; 2] {
    let second = FIRST_SECOND + step * STEP_SECS;
    (((second % 3600) << 4 | FLAGS) as u16).to_be_bytes()
}

/// Cell timestamp of a step.
pub(crate) const fn timestamp(step: u32) -> u64 {
    (FIRST_SECOND as u64 + step as u64 * STEP_SECS as u64) * 1000
}

/// Value of a point.
pub(crate) const fn number(series: u32, step: u32) -> u32 {
    let mixed = ((series as u64) << 32 | step as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 33) as u32
}

/// Size of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellLoad {
    pub(crate) series: u32,
    pub(crate) steps: u32,
    /// Points of a row in one put.
    pub(crate) points_per_put: u32,
}

/// Count and sum of the cells of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellTotal {
    pub(crate) cells: u64,
    pub(crate) sum: u64,
}

impl CellLoad {
    pub(crate) const fn cells(self) -> u64 {
        self.series as u64 * self.steps as u64
    }

    /// Count and sum of the whole load.
    pub(crate) fn total(self) -> CellTotal {
        let each = |series| (0..self.steps).map(move |step| u64::from(number(series, step)));
        CellTotal { cells: self.cells(), sum: (0..self.series).flat_map(each).sum() }
    }
}
