//! Conversions between rollup types of the protocol and of the engine.

use tsd_engine::{EngineConfig, RollupPlace};
use tsd_protocol::{RollupPlacement, RollupRules};

/// Returns the rules for rolled-up points; `None` if rollups are not configured.
pub(crate) fn rollup_rules(config: &EngineConfig) -> Option<RollupRules> {
    config.rollups.as_ref().map(|rollups| RollupRules {
        config: rollups.config.clone(),
        aggregate_tag_key: rollups.aggregate_tag_key.clone(),
        raw_tag_value: rollups.raw_tag_value.clone(),
        tag_raw: rollups.tag_raw,
        block_derived: rollups.block_derived,
    })
}

/// Converts a placement to the engine's type.
pub(crate) const fn rollup_target(placement: &RollupPlacement) -> RollupPlace {
    match placement.slot {
        None => RollupPlace::PreAggregate,
        Some((interval, aggregator_id)) => {
            RollupPlace::Slot { interval, aggregator_id, pre_aggregate: placement.pre_aggregate }
        }
    }
}
