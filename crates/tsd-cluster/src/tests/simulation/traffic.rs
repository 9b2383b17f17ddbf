//! Counts the operations of the nodes on the log table, and their bytes: keys and values of the cells that are written,
//! compared and returned, in HBase's encoding, without the headers of calls.

use super::{
    looks::as_manifest,
    run, small,
    world::{QUIET, SimulationConfig, World},
};
use crate::{
    digest::{ClusterDigest, DigestBeat},
    manifest::{Manifest, Revision},
};

/// Bytes of a cell without its value: lengths 11, row 25, family 1, qualifier 1, timestamp 8, type 1.
const CELL: usize = 47;
/// Size of a scan's answer after which HBase sends the next one.
const ANSWER: usize = 2 << 20;

/// Operations on the log table, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableTraffic {
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

impl TableTraffic {
    pub(super) const fn since(self, before: Self) -> Self {
        Self { operations: self.operations - before.operations, bytes: self.bytes - before.bytes }
    }

    /// Adds one operation with the values of its cells.
    fn add(&mut self, values: &[usize]) {
        self.operations += 1;
        self.bytes += values.iter().map(|value| (CELL + value) as u64).sum::<u64>();
    }
}

fn beat_bytes() -> usize {
    DigestBeat::default().encode().len()
}

fn revision_bytes() -> usize {
    Revision::default().encode().len()
}

impl World {
    /// Counts a heartbeat: the expected revision, the new one, the manifest.
    pub(super) fn count_heartbeat(&mut self, run: u64) {
        let manifest = self.manifests.get(&run).and_then(|of| as_manifest(run, of));
        let manifest = manifest.map_or(0, |manifest| manifest.encode().len());
        self.cost.table.add(&[revision_bytes(), revision_bytes(), manifest]);
    }

    /// Counts a read of the beat and of the assignment's revision, and one of the digest if it has changed.
    pub(super) fn count_beat(&mut self, changed: Option<&ClusterDigest>) {
        self.cost.table.add(&[beat_bytes(), revision_bytes()]);
        if let Some(digest) = changed {
            self.cost.table.add(&[beat_bytes(), digest.encode().len()]);
        }
    }

    /// Counts a read of the assignment.
    pub(super) fn count_assignment(&mut self) {
        let generation = self.assignment.generation;
        if self.assignment_bytes.0 != generation {
            self.assignment_bytes = (generation, self.assignment.encode().len());
        }
        self.cost.table.add(&[revision_bytes(), self.assignment_bytes.1]);
    }

    /// Counts a scan of the manifests.
    pub(super) fn count_scan(&mut self, found: &[(u64, Manifest)]) {
        let sizes = found.iter().flat_map(|(_, of)| [revision_bytes(), of.encode().len()]);
        let sizes: Vec<usize> = sizes.collect();
        self.cost.table.add(&sizes);
        let answers = sizes.iter().map(|size| CELL + size).sum::<usize>() / ANSWER;
        self.cost.table.operations += answers as u64;
    }

    /// Counts a publication.
    pub(super) fn count_publication(&mut self, new: &ClusterDigest) {
        let mut cells = vec![beat_bytes(), beat_bytes()];
        if new.beat.version != self.digest.beat.version {
            cells.push(new.encode().len());
        }
        self.cost.table.add(&cells);
    }
}

/// Prints the load of a node on the table, without faults and without clients.
#[test]
fn an_idle_node_costs_the_table_as_much_however_many_there_are() {
    for nodes in [10, 100, 1_000] {
        let config = SimulationConfig { nodes, keys: 0, seconds: 20, is_calm: true, ..small(1) };
        let result = run(&config);
        assert_eq!(result.violation, None);
        let idle = result.cost.idle;
        let node_seconds = (nodes as u64 * QUIET / 1_000) as f64;
        let (operations, bytes) =
            (idle.operations as f64 / node_seconds, idle.bytes as f64 / node_seconds);
        println!(
            "{nodes} nodes: {operations:.2} operations and {bytes:.0} bytes a second and node"
        );
        assert!((1.0..=5.0).contains(&operations), "{operations} operations, {nodes} nodes");
        assert!((100.0..=2_000.0).contains(&bytes), "{bytes} bytes, {nodes} nodes");
    }
}
