//! Data about series: annotations, meta objects and trees, as cells of their tables.
//!
//! Every edit is a compare-and-set against the bytes that were read, so daemons and tools may edit concurrently. The
//! crate has no actors and no caches of names: the engine gives it [`Names`], and calls it from its actors.
//!
//! | stage | module |
//! |---|---|
//! | shared | `names`: names of UIDs, as a trait; `uid_error`: why a name has no UID |
//! | objects | `annotations`: of series and global; `meta_objects`: TSMeta and UIDMeta |
//! | above the objects | `trees`: rules that sort series into branches, by names and meta objects |

mod annotations;
mod meta_objects;
mod names;
mod trees;
mod uid_error;

pub use annotations::{
    AnnotationEdit, AnnotationEditOutcome, AnnotationError, AnnotationObserver, Annotations,
    annotation_cells, memory_of,
};
pub use meta_objects::{
    MetaEditOutcome, MetaError, MetaObjects, SeriesNames, StoredSeriesMeta, cell_of,
    named_uid_meta, uid_meta_get, uids_of_series,
};
pub use names::Names;
pub use trees::{
    BranchContents, PlacementCounts, RuleEditOutcome, TestedSeries, TreeBuildError,
    TreeEditOutcome, TreeError, TreeFailureKind, TreeLeaf, TreePlacement, TreeSyncReport,
    TreeTester, Trees,
};
pub use uid_error::UidError;
