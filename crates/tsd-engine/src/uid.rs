//! Names and their UIDs: caches, look-ups, assignment, changes.
//!
//! Correctness rests on compare-and-set in the store, by OpenTSDB's own protocol, so that its
//! daemons and several of ours may assign at the same time. The actor only saves work: one flight
//! per name, one increment for many names.

mod admin;
mod assign;
mod assigner;
mod cache;
mod error;
mod filter;
mod per_kind;
mod resolver;
mod table;

pub(crate) use self::{
    admin::UidAdmin,
    assigner::{AssignerSettings, AssignerStats, UidAssigner, UidMessage},
    cache::UidCaches,
    filter::NameFilter,
    per_kind::PerKind,
    resolver::Resolver,
    table::UidTable,
};
pub use self::{error::UidError, filter::FilterError};

#[cfg(test)]
mod tests;
