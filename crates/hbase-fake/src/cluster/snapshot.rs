//! The regions of a table as a snapshot keeps them.

use hbase_rs::{TableName, region::Region};

use super::FakeCluster;

/// Regions of a table at one time, without their rows.
#[derive(Clone, Debug)]
pub struct RegionSnapshot {
    table: TableName,
    regions: Vec<Region>,
}

impl FakeCluster {
    /// Takes a snapshot of the regions of a table.
    #[must_use]
    pub fn snapshot_regions(&self, table: &TableName) -> RegionSnapshot {
        let state = self.state.lock();
        let regions = state.regions.iter().map(|one| &one.region);
        let regions = regions.filter(|region| region.table() == table).cloned().collect();
        RegionSnapshot { table: table.clone(), regions }
    }

    /// Replaces the regions of the table by the ones of the snapshot, which have their former ids. All of
    /// them open on this server. The rows stay.
    pub fn restore_regions(&self, snapshot: &RegionSnapshot, server: usize) {
        let mut state = self.state.lock();
        state.drop_regions(&snapshot.table);
        for region in &snapshot.regions {
            state.open_region(region.clone(), server);
        }
    }
}
