//! Trees: rules sort series into branches, stored in the tree table.
//!
//! An actor of the engine places series as they come in; [`sync`] places them from their stored TSMeta. Both work in
//! batches. For each batch, the existing cells are read at once, and only missing cells are written, by
//! compare-and-set against an absent cell, parents first. So an interrupted run can be repeated, and several may run
//! at the same time. If two series have the same leaf, the first keeps it.
//!
//! Trees and rules are edited by compare-and-set against the bytes that were read. In this process a deletion excludes
//! placements, so it leaves no leaf below a deleted branch. Other daemons do not know of the deletion until they
//! re-read the definitions ([`definition_cache::DEFINITIONS_TTL`]).

mod branches;
mod build_error;
mod builder;
mod definition_cache;
mod definitions;
mod failures;
mod placement;
mod purge;
mod rule_match;
mod rules;
mod series;
mod series_names;
mod sync;
mod tester;

use std::{fmt, sync::Arc};

use tokio::sync::RwLock;
use tsd_model::{JsonError, TreeRuleError};
use tsd_storage::{StorageError, Table};

pub use branches::{BranchContents, TreeLeaf};
pub use build_error::TreeBuildError;
pub use builder::TreePlacement;
pub use definitions::TreeEditOutcome;
pub use failures::TreeFailureKind;
pub use placement::PlacementCounts;
pub use rules::RuleEditOutcome;
pub use sync::TreeSyncReport;
pub use tester::{TestedSeries, TreeTester};

use crate::{
    meta_objects::{MetaError, MetaObjects},
    trees::definition_cache::DefinitionCache,
    uid_error::UidError,
};

/// Most attempts of an edit before it fails with a conflict.
const MAX_ATTEMPTS: usize = 16;

/// Cause why an operation on trees failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TreeError {
    /// Every number up to the largest is taken.
    #[error("Exhausted all Tree IDs")]
    NoIdLeft,
    /// The tree has no name.
    #[error("Tree was missing the name")]
    NoName,
    /// The level is not valid for a rule.
    #[error("Invalid rule level")]
    InvalidLevel,
    /// The order is not valid for a rule.
    #[error("Invalid rule order")]
    InvalidOrder,
    /// A rule is incomplete.
    #[error(transparent)]
    Rule(#[from] TreeRuleError),
    /// A rule cannot be applied.
    #[error(transparent)]
    Build(#[from] TreeBuildError),
    /// More items than may be stored or returned.
    #[error("too many {what}: at most {most}")]
    TooMany {
        /// Kind of the items.
        what: &'static str,
        /// Most items.
        most: usize,
    },
    /// Every attempt conflicted with another writer.
    #[error("conflicting edits of the tree")]
    Contended,
    /// A cell is not a valid tree, rule or branch.
    #[error("a stored tree is invalid")]
    Unreadable(#[from] JsonError),
    /// A meta object was not read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A name was not resolved.
    #[error(transparent)]
    Uid(#[from] UidError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl TreeError {
    /// True if the storage failed and a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Storage(error)
            | Self::Uid(UidError::Storage(error))
            | Self::Meta(MetaError::Storage(error)) => error.is_transient(),
            _ => false,
        }
    }
}

/// The trees of a storage. Cheap to clone.
#[derive(Clone)]
pub struct Trees {
    pub(crate) meta: MetaObjects,
    /// The tree table.
    pub(crate) table: Table,
    pub(crate) definitions: Arc<DefinitionCache>,
    /// Placements share this lock; a deletion takes it exclusively.
    pub(crate) deletion: Arc<RwLock<()>>,
}

impl Trees {
    /// The trees in a table.
    #[must_use]
    pub fn new(meta: MetaObjects, table: Table) -> Self {
        Self { meta, table, definitions: Arc::default(), deletion: Arc::default() }
    }

    fn storage(&self) -> &dyn tsd_storage::Storage {
        self.meta.storage()
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trees").field("table", &self.table).finish_non_exhaustive()
    }
}
