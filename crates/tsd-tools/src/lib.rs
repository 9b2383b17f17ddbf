//! Tools that read or repair whole tables: the check of points, the check of names, the dump of rows, and the copy.
//!
//! Each runs on a started engine, through its [`EngineHandle`](tsd_engine::EngineHandle), and reads the tables as they
//! are stored. The engine does not know this crate. The `tsdb` command adds arguments, progress and files.
//!
//! | stage | module |
//! |---|---|
//! | check and repair | `fsck`: rows of points; `uid_fsck`: names and UIDs |
//! | show | `row_dump`: rows as they are stored, or as lines for the importer |
//! | copy | `copy`: tables to another store, and their comparison |

mod copy;
mod fsck;
mod row_dump;
mod uid_fsck;

pub use copy::{
    CopiedKind, CopiedRange, CopiedRows, CopyError, CopyObserver, CopyRun, CopySelection,
    CopyStores, RangeProgress, TableComparison, TableDigest,
};
pub use fsck::{
    FsckError, FsckLevel, FsckObserver, FsckOptions, FsckReport, FsckRun, FsckSelection, fsck,
};
pub use row_dump::{DumpError, DumpOptions, DumpReport, DumpSink, dump_rows};
pub use uid_fsck::{UidFsckObserver, UidFsckOptions, UidFsckReport, uid_fsck};
