//! Names and their UIDs: caches, look-ups, assignment and changes.
//!
//! Correctness depends only on compare-and-set in the storage, by OpenTSDB's own protocol. So daemons of OpenTSDB and
//! several of Saltern may assign UIDs concurrently. The UID actor only saves work: look-ups are single-flight, and one
//! increment serves many names. Nodes of a cluster save work in the same way: each assigns the UIDs of the names that
//! it owns ([`NamePeers`]).

mod admin;
mod assign;
mod assign_rate;
mod assigner;
mod cache;
mod creatable_names;
mod engine_names;
mod filter;
mod intent;
mod listing;
mod loss_check;
mod name_peers;
mod name_search;
mod new_series;
mod pending_names;
mod resolver;
mod series_limit;
mod table;

pub use self::{
    admin::{ShownNames, Suggestions, UidAdmin},
    creatable_names::CreatableNames,
    filter::FilterError,
    intent::{Finished, Intent, Intents, NameChange},
    listing::{MappingPage, StoredMapping},
    name_peers::{NamePeers, UnconfirmedRemovalError},
    name_search::NameSearch,
    new_series::SeriesAllowance,
    table::UidTable,
};
pub(crate) use self::{
    assigner::{AssignerSettings, AssignerStats, UidAssigner, UidAssigning, UidMessage},
    cache::UidCaches,
    engine_names::EngineNames,
    filter::NameFilter,
    loss_check::LossCheck,
    new_series::NewSeriesCheck,
    resolver::{ResolvedSeries, Resolver},
    series_limit::{KnownSeries, SeriesLimit},
};

#[cfg(test)]
mod tests;
