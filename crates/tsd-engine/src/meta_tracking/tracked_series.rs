//! The series that wait for their meta data.

use hashbrown::HashMap;
use smallvec::SmallVec;

/// Most series that wait for a pass. Further series are dropped.
pub(super) const MAX_SERIES: usize = 1 << 20;

/// Bytes of a TSUID.
pub(crate) type TsuidBytes = SmallVec<[u8; 32]>;
/// Points per series, by TSUID.
pub(crate) type TrackedSeries = HashMap<TsuidBytes, u64, foldhash::fast::RandomState>;
