//! Names and their UIDs: caches, look-ups, assignment, changes.
//!
//! Correctness depends only on compare-and-set in the storage, by OpenTSDB's own protocol, so its
//! daemons and several of ours may assign concurrently. The actor only saves work: look-ups are
//! single-flight, and one increment serves many names. So do the nodes of a cluster, each of which assigns the
//! UIDs of a part of the names ([`NamePeers`]).

mod admin;
mod assign;
mod assign_rate;
mod assigner;
mod cache;
mod check;
mod creatable_names;
mod error;
mod filter;
mod listing;
mod loss_check;
mod name_peers;
mod pending_names;
mod per_kind;
mod resolver;
mod series_limit;
mod table;

pub use self::{
    admin::UidAdmin,
    check::{UidFsckObserver, UidFsckOptions, UidFsckReport},
    creatable_names::CreatableNames,
    error::UidError,
    filter::FilterError,
    listing::{MappingPage, StoredMapping},
    name_peers::NamePeers,
};
pub(crate) use self::{
    assigner::{AssignerSettings, AssignerStats, UidAssigner, UidAssigning, UidMessage},
    cache::UidCaches,
    filter::NameFilter,
    loss_check::LossCheck,
    per_kind::PerKind,
    resolver::{ResolvedSeries, Resolver},
    series_limit::SeriesLimit,
    table::UidTable,
};

#[cfg(test)]
mod tests;
