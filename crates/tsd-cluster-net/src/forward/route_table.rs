//! Routes of all slots by slot number, for the lookup of each written row.

use tsd_cluster::{SeriesKeyLayout, Slot, SlotHolder, SlotRoute};
use tsd_storage::CellBatch;

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
        let mut number = |slot| {
            let route = holder.route(slot);
            let known = routes.iter().position(|of| *of == route);
            let at = known.unwrap_or_else(|| {
                routes.push(route);
                routes.len() - 1
            });
            // The number of routes hardly exceeds the number of slots.
            at as u16
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

    pub(super) fn of_batch(&self, batch: &CellBatch, layout: &SeriesKeyLayout) -> BatchRoutes {
        let mut of_row = Vec::with_capacity(batch.row_count());
        let mut bytes = vec![0; self.routes.len()];
        for row in batch.rows() {
            let number = self.number(layout.slot_of(row.key));
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
