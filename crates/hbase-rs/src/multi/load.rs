//! Load of regions, as a server reports it with the response to a Multi.
//!
//! Servers report the load if `hbase.client.backpressure.enabled` is true in their configuration,
//! which is not the default. Compaction pressure is left out: it describes the busiest store of the
//! server, and a region that suffers from it shows that by its memstore.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::outcome::{FieldValue, field};

/// Field of the loads in the response.
const STATISTICS: u64 = 3;

/// Load of a region in percent, 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionLoad {
    /// Size of the memstore in percent of the flush size, at most 100. The server rejects writes
    /// only at a multiple of the flush size (`hbase.hregion.memstore.block.multiplier`, 4).
    pub(crate) memstore: u8,
    /// Used heap of the server.
    pub(crate) heap: u8,
}

impl RegionLoad {
    fn new(stats: &pb::RegionLoadStats) -> Self {
        let percent = |value: i32| value.clamp(0, 100) as u8;
        Self { memstore: percent(stats.mem_store_load()), heap: percent(stats.heap_occupancy()) }
    }
}

/// Returns the loads in an encoded response, with the names of their regions, in any order. Loads
/// are advice: missing or invalid loads give an empty list.
pub(super) fn region_loads(message: &[u8]) -> Vec<(Bytes, RegionLoad)> {
    let mut rest = message;
    while !rest.is_empty() {
        match field(&mut rest) {
            Some((STATISTICS, FieldValue::Bytes(bytes))) => {
                let Ok(loads) = pb::MultiRegionLoadStats::decode(bytes) else { break };
                let names = loads.region.into_iter().map(|region| region.value);
                return names.zip(loads.stat.iter().map(RegionLoad::new)).collect();
            }
            Some(_) => {}
            None => break,
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn response(regions: &[&'static str], loads: &[(i32, i32)]) -> Vec<u8> {
        let specifier = |name: &&'static str| pb::RegionSpecifier {
            r#type: pb::region_specifier::RegionSpecifierType::RegionName.into(),
            value: Bytes::from(*name),
        };
        let stat = |(memstore, heap): &(i32, i32)| pb::RegionLoadStats {
            mem_store_load: Some(*memstore),
            heap_occupancy: Some(*heap),
            compaction_pressure: Some(7),
        };
        let statistics = pb::MultiRegionLoadStats {
            region: regions.iter().map(specifier).collect(),
            stat: loads.iter().map(stat).collect(),
        };
        pb::MultiResponse {
            region_action_result: vec![pb::RegionActionResult::default(); 3],
            processed: Some(true),
            region_statistics: Some(statistics),
        }
        .encode_to_vec()
    }

    #[test]
    fn loads_are_those_of_the_named_regions() {
        let loads = region_loads(&response(&["b", "a"], &[(60, 0), (250, -1)]));
        let load = |memstore| RegionLoad { memstore, heap: 0 };
        assert_eq!(loads, [("b".into(), load(60)), ("a".into(), load(100))]);
        // A load without a region, and a response without loads.
        assert_eq!(region_loads(&response(&["b"], &[(60, 0), (70, 0)])).len(), 1);
        assert!(region_loads(&pb::MultiResponse::default().encode_to_vec()).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_have_loads_of_at_most_a_hundred_percent(bytes in vec(any::<u8>(), 0..60)) {
            for (_, load) in region_loads(&bytes) {
                prop_assert!(load.memstore <= 100 && load.heap <= 100);
            }
        }
    }
}
