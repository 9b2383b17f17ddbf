//! Cells that are no ordinary points: rolled-up values, pre-aggregates and histograms.
//!
//! All of such a cell but the series is known before names are looked up, so it is made at once, and waits
//! like a point for its UIDs. Rolled-up values go to tables of their own, always as plain puts:
//! no appends, no row compaction. Histograms lie among the points of the data table, also as puts.

use std::sync::Arc;

use smallvec::SmallVec;
use tsd_model::{
    BaseTime, Flags, PointValue, Qualifier, RollupConfig, Timestamp, histogram_qualifier,
};
use tsd_storage::Table;

use crate::{
    config::{EngineConfig, Rollups},
    put_error::PutError,
};

/// Where a rolled-up value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupPlace {
    /// A slot of an interval's row.
    Slot {
        /// Which interval, as the configuration counts them from 0.
        interval: usize,
        /// Id of the aggregator over time.
        aggregator_id: u8,
        /// Whether the value is of a group of series: such go to a table of their own.
        pre_aggregate: bool,
    },
    /// A value of a group of series at one instant: a point in the default interval's table of
    /// pre-aggregates.
    PreAggregate,
}

/// A cell that waits for its series. Made by [`super::IngestSession::rollup_cell`] and
/// [`super::IngestSession::histogram_cell`].
#[derive(Clone, Debug)]
pub struct ExtraCell {
    pub(super) target: usize,
    pub(super) base: BaseTime,
    pub(super) qualifier: SmallVec<[u8; 8]>,
    pub(super) value: SmallVec<[u8; 24]>,
    /// Whether the meta table is told of it.
    pub(super) is_tracked: bool,
}

/// How cells of one kind are written.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    /// Where.
    pub(crate) table: Table,
    /// Whether values are appended to what is there.
    pub(crate) appends: bool,
}

/// Every way cells are written. The first is that of points.
#[derive(Clone, Debug)]
pub(crate) struct WriteTargets {
    list: Arc<[WriteTarget]>,
    rollups: Option<Arc<RollupTargets>>,
}

#[derive(Debug)]
struct RollupTargets {
    config: RollupConfig,
    /// For each interval its table and its table of pre-aggregates.
    of_interval: Vec<[usize; 2]>,
    /// Table of pre-aggregates of the default interval.
    pre_aggregates: usize,
}

impl WriteTargets {
    /// Ordinary points.
    pub(crate) const POINTS: usize = 0;
    /// What is put into the data table whatever becomes of points.
    const DATA_PUTS: usize = 1;

    pub(crate) fn new(config: &EngineConfig) -> Self {
        let data = &config.tables.data;
        let mut list = vec![
            WriteTarget { table: data.clone(), appends: config.ingest.enable_appends },
            WriteTarget { table: data.clone(), appends: false },
        ];
        let rollups = config.rollups.as_ref().map(|r| Arc::new(RollupTargets::new(r, &mut list)));
        Self { list: list.into(), rollups }
    }

    pub(crate) fn list(&self) -> &Arc<[WriteTarget]> {
        &self.list
    }

    /// The cell of a rolled-up value. Its time is in seconds.
    pub(super) fn rollup(
        &self,
        place: RollupPlace,
        timestamp: Timestamp,
        value: PointValue,
    ) -> Result<ExtraCell, PutError> {
        let secs = match u32::try_from(timestamp.as_given()) {
            Ok(secs) if !timestamp.is_millis() => secs,
            _ => return Err(PutError::BadTimestamp(timestamp.as_given())),
        };
        let rollups = self.rollups.as_ref().ok_or(PutError::NoRollups)?;
        let (flags, bytes) = value.encode();
        let (target, base, qualifier) = match place {
            RollupPlace::PreAggregate => {
                let qualifier = Qualifier::new(timestamp, flags);
                let base = timestamp.base_time();
                (rollups.pre_aggregates, base, SmallVec::from_slice(qualifier.as_bytes()))
            }
            RollupPlace::Slot { interval, aggregator_id, pre_aggregate } => {
                rollups.slot(interval, aggregator_id, pre_aggregate, secs, flags)?
            }
        };
        let value = SmallVec::from_slice(&bytes);
        Ok(ExtraCell { target, base, qualifier, value, is_tracked: false })
    }

    /// The cell of a histogram, given as it is stored.
    pub(super) fn histogram(&self, timestamp: Timestamp, value: &[u8]) -> ExtraCell {
        let appends = self.list.get(Self::POINTS).is_some_and(|target| target.appends);
        ExtraCell {
            // Beside the points of its row where those are puts too.
            target: if appends { Self::DATA_PUTS } else { Self::POINTS },
            base: timestamp.base_time(),
            qualifier: histogram_qualifier(timestamp),
            value: SmallVec::from_slice(value),
            is_tracked: true,
        }
    }
}

impl RollupTargets {
    fn new(rollups: &Rollups, list: &mut Vec<WriteTarget>) -> Self {
        let first = list.len();
        for table in rollups.tables() {
            list.push(WriteTarget { table, appends: false });
        }
        let target = |name: &str| {
            let at = list.iter().skip(first).position(|target| target.table.as_str() == name);
            at.map_or(first, |at| first + at)
        };
        let config = rollups.config.clone();
        let of_interval = config
            .intervals()
            .iter()
            .map(|i| [target(&i.table), target(&i.pre_aggregation_table)])
            .collect();
        let default = config.default_interval().map(|i| i.pre_aggregation_table.as_str());
        let pre_aggregates = target(default.unwrap_or_default());
        Self { config, of_interval, pre_aggregates }
    }

    fn slot(
        &self,
        interval: usize,
        aggregator_id: u8,
        pre_aggregate: bool,
        secs: u32,
        flags: Flags,
    ) -> Result<(usize, BaseTime, SmallVec<[u8; 8]>), PutError> {
        let (Some(rolled_up), Some([table, pre_aggregates])) =
            (self.config.intervals().get(interval), self.of_interval.get(interval))
        else {
            return Err(PutError::NoRollups);
        };
        let (base, qualifier) = rolled_up.place(secs, aggregator_id, flags);
        let target = if pre_aggregate { *pre_aggregates } else { *table };
        Ok((target, base, SmallVec::from_vec(qualifier.encode())))
    }
}

#[cfg(test)]
mod tests;
