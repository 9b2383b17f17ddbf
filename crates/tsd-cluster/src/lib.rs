//! The log of a TSD in a table of HBase: keys, records and state machines, without I/O, clock or runtime.
//!
//! HBase is log, fence and configuration. A **segment** is a row of the log table, a **record** one cell of
//! it. The owner of a log puts a record under the condition that the segment still has its token, so whoever
//! overwrites the token has fenced the owner. The **manifest** of an owner is a row that lists its segments
//! and says below which **watermark** records are not needed; it changes by compare-and-set.
//!
//! Every machine here says what it asks of the table next ([`TableRequest`]) and takes the answer
//! ([`TableReply`]), of which one may be lost: then the request may have been executed, or may be later. So
//! the driver is a loop, and a model executes the same machines in every order (`model`).
//!
//! What always holds:
//!
//! 1. No append is acknowledged after its fence.
//! 2. A record that is acknowledged and not flushed is in a listed segment, at or above the watermark.
//! 3. A record is below the watermark only if its rows are stored, and is never replayed afterwards.
//!
//! Several owners use a table at once, each with a manifest of its own. They see by each other's heartbeats who
//! is alive ([`MemberWatch`]); that a live one is taken for dead costs time, and no point.
//!
//! Each series has one owner among them: its **slot** is a hash, and the **assignment** says which node owns which
//! slot ([`SlotHolder`], [`SlotPlan`]). A simulation runs up to a thousand nodes by these machines (`simulation`).
//!
//! `docs/cluster.md` has the rows and cells.

mod assignment;
mod group;
mod keys;
mod manifest;
mod manifest_change;
mod member_watch;
mod membership;
#[cfg(test)]
mod model;
mod owner;
mod record;
mod record_merge;
mod recovery;
mod sealed_cell;
mod segment_opening;
mod shared_settings;
#[cfg(test)]
mod simulation;
mod slot;
mod slot_holder;
mod slot_plan;
mod slot_table;
mod table_request;

pub use self::{
    assignment::{Assignment, SlotOwner},
    group::{GroupAssembler, split_group},
    keys::{ClusterId, LogKeys, OpenSegment, SegmentId, StateRow},
    manifest::{Manifest, ManifestPhase, Revision, SegmentRef, StreamManifest},
    manifest_change::{ChangeOutcome, ManifestChange},
    member_watch::{MemberWatch, WatchTimes},
    membership::{Member, MemberState, Membership, MembershipFuture, ProofError, Settlement},
    owner::{LogOwner, SEGMENT_BYTES},
    record::{LogRecord, MAX_PAYLOAD, RecordError},
    record_merge::{HoleError, RecordMerge},
    recovery::{Recovery, RecoveryError},
    segment_opening::{OpeningOutcome, SegmentOpening},
    shared_settings::{FORWARD, SharedSettings, WIRE_VERSIONS},
    slot::{SLOTS, SeriesKeyLayout, Slot, SlotSet},
    slot_holder::{SlotHolder, SlotRoute},
    slot_plan::SlotPlan,
    slot_table::SlotTable,
    table_request::{SegmentToken, TableReply, TableRequest},
};
