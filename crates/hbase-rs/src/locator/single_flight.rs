//! Lookups under way, so that many callers make one.
//!
//! Rows that will be found together wait together. Which those are is known exactly for a region that
//! was known before and lost its server; otherwise it is all rows between known regions, one region or
//! many. Behind a lookup of such a stretch nobody waits long, since it may be of another region.
//!
//! A lookup runs by itself: whoever began it may leave. Its outcome, good or bad, reaches those who
//! waited and is kept for nobody else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{
    error::Failure,
    region::{
        cache::RowRange,
        meta::{Lookup, RegionTarget},
    },
    table_name::TableName,
};

/// What a lookup comes to.
pub(super) type Outcome = Result<Lookup, Failure>;

/// What waiting callers watch; nothing so far, or the outcome.
pub(super) type Watch = watch::Receiver<Option<Outcome>>;

/// Lookups under way, by table.
#[derive(Debug, Default)]
pub(super) struct Flights {
    tables: Mutex<HashMap<TableName, Vec<Flight>>>,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    of: Of,
    outcome: Watch,
}

/// What a lookup is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The region of any of these rows.
    Rows(RowRange),
    /// The region in front of a row.
    Before(RegionTarget),
}

impl Of {
    /// Whether its outcome is that of this caller, unless the region splits meanwhile.
    pub(super) const fn is_exact(&self) -> bool {
        match self {
            Self::Rows(span) => span.exact,
            Self::Before(_) => true,
        }
    }

    fn covers(&self, locate: &RegionTarget) -> bool {
        match (self, locate) {
            (Self::Rows(span), RegionTarget::Holding(row)) => span.contains(row),
            (Self::Before(of), RegionTarget::Before(_)) => of == locate,
            _ => false,
        }
    }
}

/// What a caller does about a lookup.
#[derive(Debug)]
pub(super) enum Part {
    /// Waits for one that is under way.
    Follow {
        /// Its outcome.
        outcome: Watch,
        /// Whether that is the caller's, unless the region splits meanwhile.
        exact: bool,
    },
    /// Begins it.
    Lead(Lead),
}

/// The task of making a lookup. Dropped without an outcome, those who wait look again.
#[derive(Debug)]
pub(super) struct Lead {
    flights: Arc<Flights>,
    table: TableName,
    id: u64,
    outcome: watch::Sender<Option<Outcome>>,
    pub(super) watch: Watch,
}

impl Flights {
    fn tables(&self) -> MutexGuard<'_, HashMap<TableName, Vec<Flight>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the lookup that will find the region, or begins one of `of`.
    pub(super) fn join(
        self: &Arc<Self>,
        table: &TableName,
        locate: &RegionTarget,
        of: impl FnOnce() -> Of,
    ) -> Part {
        let mut tables = self.tables();
        let flights = tables.entry(table.clone()).or_default();
        if let Some(flight) = flights.iter().find(|flight| flight.of.covers(locate)) {
            let exact = flight.of.is_exact();
            return Part::Follow { outcome: flight.outcome.clone(), exact };
        }
        let id = flights.last().map_or(0, |last| last.id.wrapping_add(1));
        let (sender, watch) = watch::channel(None);
        flights.push(Flight { id, of: of(), outcome: watch.clone() });
        let flights = Arc::clone(self);
        Part::Lead(Lead { flights, table: table.clone(), id, outcome: sender, watch })
    }

    /// Lookups under way.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.tables().values().map(Vec::len).sum()
    }
}

impl Lead {
    /// Ends the lookup for all who wait.
    pub(super) fn end(self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut tables = self.flights.tables();
        if let Some(flights) = tables.get_mut(&self.table) {
            flights.retain(|flight| flight.id != self.id);
            if flights.is_empty() {
                tables.remove(&self.table);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: &str, end: &str, exact: bool) -> Of {
        let (start, end) = (start.to_owned().into(), end.to_owned().into());
        Of::Rows(RowRange { start, end, exact })
    }

    fn holding(row: &str) -> RegionTarget {
        RegionTarget::Holding(row.to_owned().into())
    }

    fn lead(flights: &Arc<Flights>, row: &str, of: Of) -> Lead {
        match flights.join(&"t".parse().unwrap(), &holding(row), || of) {
            Part::Lead(lead) => lead,
            follow @ Part::Follow { .. } => panic!("{follow:?}"),
        }
    }

    fn follow(flights: &Arc<Flights>, locate: &RegionTarget) -> Option<bool> {
        let part = flights.join(&"t".parse().unwrap(), locate, || span("", "", false));
        match part {
            Part::Lead(_) => None,
            Part::Follow { exact, .. } => Some(exact),
        }
    }

    #[test]
    fn rows_of_a_span_wait_for_its_lookup_and_others_do_not() {
        let flights = Arc::new(Flights::default());
        let one = lead(&flights, "c", span("b", "d", true));
        let other = lead(&flights, "f", span("d", "", false));
        assert_eq!(follow(&flights, &holding("b")), Some(true));
        assert_eq!(follow(&flights, &holding("z")), Some(false));
        assert_eq!(follow(&flights, &holding("a")), None);
        assert_eq!(follow(&flights, &RegionTarget::Before("c".into())), None);
        drop(one);
        assert_eq!(follow(&flights, &holding("b")), None);
        drop(other);
        assert_eq!(flights.len(), 0);
    }

    #[tokio::test]
    async fn an_outcome_reaches_all_who_wait_and_nobody_later() {
        let flights = Arc::new(Flights::default());
        let lead = lead(&flights, "c", span("b", "d", true));
        let table = "t".parse().unwrap();
        let Part::Follow { mut outcome, .. } =
            flights.join(&table, &holding("c"), || span("", "", false))
        else {
            panic!()
        };
        let mut own = lead.watch.clone();
        lead.end(Err(Failure::Time));
        for watch in [&mut outcome, &mut own] {
            let seen = watch.wait_for(Option::is_some).await.unwrap().clone();
            assert!(matches!(seen, Some(Err(Failure::Time))));
        }
        assert_eq!(flights.len(), 0);
    }

    #[tokio::test]
    async fn who_leads_and_leaves_lets_the_others_look_again() {
        let flights = Arc::new(Flights::default());
        let lead = lead(&flights, "c", span("b", "d", true));
        let mut watch = lead.watch.clone();
        drop(lead);
        assert!(watch.wait_for(Option::is_some).await.is_err());
    }
}
