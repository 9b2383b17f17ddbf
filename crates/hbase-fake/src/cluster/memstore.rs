//! Memstores: their size, the load that a server reports, and the limit on writes.

use std::{collections::HashMap, time::Instant};

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::call_result::RpcException;

/// Multiple of the flush size at which a region rejects writes.
const BLOCK_MULTIPLIER: f64 = 4.0;

/// Memstores of some regions, by region name.
#[derive(Debug, Default)]
pub(crate) struct Memstores(HashMap<Bytes, Memstore>);

#[derive(Debug)]
enum Memstore {
    /// The load is constant, percent.
    Constant(i32),
    /// Grows with the put cells, and shrinks continuously.
    Flushed { flush_size: f64, flushed_per_second: f64, size: f64, at: Instant },
}

impl Memstores {
    pub(crate) fn set_load(&mut self, region: Bytes, percent: i32) {
        self.0.insert(region, Memstore::Constant(percent));
    }

    pub(crate) fn set_flushes(&mut self, region: Bytes, flush_size: usize, per_second: usize) {
        let (flush_size, flushed_per_second) = (flush_size as f64, per_second as f64);
        let (size, at) = (0.0, Instant::now());
        self.0.insert(region, Memstore::Flushed { flush_size, flushed_per_second, size, at });
    }

    /// Adds the bytes of a request's cells.
    ///
    /// # Errors
    ///
    /// If the memstore is full. Nothing is added then.
    pub(crate) fn add(&mut self, region: &Bytes, bytes: usize) -> Result<(), RpcException> {
        if let Some(Memstore::Flushed { flush_size, flushed_per_second, size, at }) =
            self.0.get_mut(region)
        {
            let now = Instant::now();
            *size = (*size - *flushed_per_second * (now - *at).as_secs_f64()).max(0.0);
            *at = now;
            if *size > *flush_size * BLOCK_MULTIPLIER {
                return Err(("RegionTooBusyException", "Over memstore limit".to_owned()));
            }
            *size += bytes as f64;
        }
        Ok(())
    }

    fn load(&self, region: &Bytes) -> Option<i32> {
        Some(match self.0.get(region)? {
            Memstore::Constant(percent) => *percent,
            Memstore::Flushed { flush_size, size, .. } => {
                (*size * 100.0 / *flush_size).min(100.0) as i32
            }
        })
    }

    /// Returns the loads of a request's regions, if one is known. They are in reverse order, because
    /// HBase sends them in the order of a hash map.
    pub(crate) fn statistics(
        &self,
        request: &pb::MultiRequest,
    ) -> Option<pb::MultiRegionLoadStats> {
        let mut statistics = pb::MultiRegionLoadStats::default();
        for region in request.region_action.iter().rev().map(|action| &action.region) {
            if let Some(load) = self.load(&region.value) {
                statistics.region.push(region.clone());
                let stat = pb::RegionLoadStats {
                    mem_store_load: Some(load),
                    ..pb::RegionLoadStats::default()
                };
                statistics.stat.push(stat);
            }
        }
        (!statistics.region.is_empty()).then_some(statistics)
    }
}
