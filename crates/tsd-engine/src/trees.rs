//! Trees: series sorted into branches by rules, in the tree table.
//!
//! A tree is built as series come in ([`processor`]), and from the stored TSMeta ([`sync`]). Both place
//! series in batches: what a batch needs of the tree is read at once, and only what is missing is written, by
//! compare-and-set against an absent cell, parents first. So a run that was interrupted can be repeated, and
//! several may run at the same time. Of two series with the same leaf the first one keeps it.
//!
//! Trees and rules are edited by compare-and-set against the bytes that were read. In this process a deletion
//! excludes placements, so it leaves no leaf below a branch that is gone; other daemons do not know of it
//! until they read the definitions again ([`definition_cache::DEFINITIONS_TTL`]).

mod branches;
mod build_error;
mod builder;
mod definition_cache;
mod definitions;
mod failures;
mod placement;
mod processor;
mod purge;
mod rule_match;
mod rules;
mod series;
mod series_names;
mod sync;
mod tester;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use tokio::sync::RwLock;
use tsd_model::{JsonError, TreeRuleError};
use tsd_storage::{StorageError, Table};

pub use branches::{BranchContents, TreeLeaf};
pub use build_error::TreeBuildError;
pub use builder::TreePlacement;
pub use definitions::TreeEditOutcome;
pub use failures::TreeFailureKind;
pub(crate) use processor::{TreeMetrics, TreeProcessor, TreeQueue};
pub use rules::RuleEditOutcome;
pub use sync::TreeSyncReport;
pub use tester::{TestedSeries, TreeTester};

use crate::{
    meta_objects::{MetaError, MetaObjects},
    trees::definition_cache::DefinitionCache,
    uid::UidError,
};

/// Attempts of an edit before it fails with a conflict.
const MAX_ATTEMPTS: usize = 16;

/// Why an operation on trees failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Every number up to the largest one is taken.
    #[error("Exhausted all Tree IDs")]
    NoIdLeft,
    /// A tree without a name.
    #[error("Tree was missing the name")]
    NoName,
    /// A level that no rule can have.
    #[error("Invalid rule level")]
    InvalidLevel,
    /// An order that no rule can have.
    #[error("Invalid rule order")]
    InvalidOrder,
    /// A rule is incomplete.
    #[error(transparent)]
    Rule(#[from] TreeRuleError),
    /// A rule cannot be applied.
    #[error(transparent)]
    Build(#[from] TreeBuildError),
    /// More than may be stored or returned.
    #[error("too many {what}: at most {most}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// Most of them.
        most: usize,
    },
    /// Every attempt conflicted with another writer.
    #[error("conflicting edits of the tree")]
    Contended,
    /// A cell is no valid tree, rule or branch.
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
    /// The error of the storage, if it is one that a retry may overcome.
    fn is_transient(&self) -> bool {
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
    /// Placements share it, a deletion has it alone.
    pub(crate) deletion: Arc<RwLock<()>>,
}

impl Trees {
    pub(crate) fn new(meta: MetaObjects, table: Table) -> Self {
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
