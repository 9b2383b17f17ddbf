//! Routes of all slots by slot number, for the lookup of each written row.

use std::collections::HashMap;

use tsd_cluster::{Slot, SlotHolder, SlotRoute, SlotRule};
use tsd_storage::CellBatch;

use super::slot_loads::SlotLoads;

/// Number of [`SlotRoute::Own`] in a table.
const OWN: u16 = 0;
/// Number of [`SlotRoute::Unsettled`].
const UNSETTLED: u16 = 1;

/// Routes of all slots.
#[derive(Debug)]
pub(super) struct RouteTable {
    /// The different routes.
    routes: Vec<SlotRoute>,
    /// Number of the route, for each slot.
    of_slot: Vec<u16>,
}

/// Routes of the rows of a batch.
#[derive(Debug)]
pub(super) struct BatchRoutes {
    /// Number of the route, for each row in order.
    pub(super) of_row: Vec<u16>,
    /// Bytes of the rows of each route.
    pub(super) bytes: Vec<usize>,
}

impl RouteTable {
    pub(super) fn new(holder: &SlotHolder) -> Self {
        let mut routes = vec![SlotRoute::Own, SlotRoute::Unsettled];
        let mut peers = HashMap::new();
        let mut number = |slot| match holder.route(slot) {
            SlotRoute::Own => OWN,
            SlotRoute::Unsettled => UNSETTLED,
            SlotRoute::Peer(peer) => *peers.entry(peer).or_insert_with(|| {
                routes.push(SlotRoute::Peer(peer));
                // There are at most two routes more than slots.
                (routes.len() - 1) as u16
            }),
        };
        let of_slot = Slot::all().map(&mut number).collect();
        Self { routes, of_slot }
    }

    fn number(&self, slot: Slot) -> u16 {
        // The table has all slots.
        self.of_slot.get(slot.number()).copied().unwrap_or(UNSETTLED)
    }

    /// True if all slots have owners.
    pub(super) fn is_settled(&self) -> bool {
        !self.of_slot.contains(&UNSETTLED)
    }

    /// Returns the different routes, by their numbers.
    pub(super) fn all(&self) -> &[SlotRoute] {
        &self.routes
    }

    pub(super) fn of_slot(&self, slot: Slot) -> SlotRoute {
        self.routes.get(usize::from(self.number(slot))).copied().unwrap_or(SlotRoute::Unsettled)
    }

    /// Returns the routes of a batch, and counts the cells of its own rows.
    pub(super) fn of_batch(
        &self,
        batch: &CellBatch,
        rule: &SlotRule,
        loads: &SlotLoads,
    ) -> BatchRoutes {
        let mut of_row = Vec::with_capacity(batch.row_count());
        let mut bytes = vec![0; self.routes.len()];
        for row in batch.rows() {
            let placement = rule.placement(row.key);
            let slot = placement.slot();
            let number = self.number(slot);
            if number == OWN {
                loads.count(slot, &placement, row.cell_count());
            }
            of_row.push(number);
            if let Some(bytes) = bytes.get_mut(usize::from(number)) {
                *bytes += row.byte_len();
            }
        }
        BatchRoutes { of_row, bytes }
    }
}

impl BatchRoutes {
    /// True if no row goes to another node.
    pub(super) fn are_own(&self) -> bool {
        self.of_row.iter().all(|number| *number == OWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_an_assignment_takes_nothing() {
        let table = RouteTable::new(&SlotHolder::new(1));
        assert!(Slot::all().all(|slot| table.of_slot(slot) == SlotRoute::Unsettled));
        assert!(!table.is_settled());
    }
}
