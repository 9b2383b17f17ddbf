//! The log of a TSD in a table of HBase, as keys, records and state machines without I/O, clock or runtime.
//!
//! HBase stores the log, the fences and the configuration. A **segment** is a row of the log table, and a
//! **record** is one of its cells. The owner of a log puts a record on condition that the segment still has its
//! token. So a process that overwrites the token has fenced the owner. The **manifest** of an owner is a row with
//! its segments and with the **watermark** below which records are not needed. It changes by compare-and-set.
//!
//! Every machine here returns its next request to the table ([`TableRequest`]) and takes the answer
//! ([`TableReply`]). An answer may be lost: then the request may have been executed, or may be later. So the
//! driver is a loop, and a model executes the same machines in every order (`tests/model.rs`).
//!
//! Invariants:
//!
//! 1. After a fence, no append is acknowledged.
//! 2. An acknowledged record that is not flushed is in a listed segment, at or above the watermark.
//! 3. A record is below the watermark only if its rows are stored, and is never replayed afterwards.
//!
//! Several owners use a table at once, each with its own manifest. They see by each other's heartbeats who is
//! alive ([`MemberWatch`]). If an owner is alive and counts as dead, that costs time and loses no point.
//!
//! Each series has one owner: its **slot** is a hash ([`SlotRule`]), and the **assignment** says which node owns which
//! slot ([`SlotHolder`], [`SlotPlan`]). A simulation runs up to a thousand nodes on these machines (`tests/simulation.rs`).
//!
//! `docs/decisions/017-nodes-over-one-log-table.md` describes the rows and cells.

mod assignment;
mod digest;
mod group;
mod keys;
mod lease;
mod links;
mod manifest;
mod manifest_change;
mod member_watch;
mod membership;
mod owner;
mod record;
mod record_merge;
mod recovery;
mod sealed_cell;
mod segment_opening;
mod shared_settings;
mod slot;
mod slot_holder;
mod slot_plan;
mod slot_rule;
mod slot_table;
mod table_request;

pub use self::{
    assignment::{Assignment, SlotCount, SlotOwner},
    digest::{ClusterDigest, DigestBeat, DigestMember},
    group::{GroupAssembler, split_group},
    keys::{ClusterId, LogKeys, OpenSegment, SegmentId, StateRow},
    lease::{LEASE, LEASE_WAIT, Lease, LeaseWatch},
    links::{BrokenLinks, Link, unreachable_nodes},
    manifest::{Manifest, ManifestPhase, Revision, SegmentRef, StreamManifest},
    manifest_change::{ChangeOutcome, ManifestChange},
    member_watch::{DeadLog, MemberWatch, WatchTimes},
    membership::{Member, MemberState, Membership, MembershipFuture, ProofError, Settlement},
    owner::{Heartbeat, LogOwner, SEGMENT_BYTES},
    record::{LogRecord, MAX_PAYLOAD, RecordError},
    record_merge::{HoleError, RecordMerge},
    recovery::{Recovery, RecoveryError},
    segment_opening::{OpeningOutcome, SegmentOpening},
    shared_settings::{
        MAX_SLOT_TAGS, SLOT_COUNT, SLOT_TAG_UIDS, SLOT_TAGS, SharedSettings, WIRE_VERSIONS,
    },
    slot::{SLOTS, Slot, SlotSet},
    slot_holder::{SlotHolder, SlotRoute},
    slot_plan::SlotPlan,
    slot_rule::{KeyWidths, Placement, SlotRule},
    slot_table::SlotTable,
    table_request::{SegmentToken, TableReply, TableRequest},
};

#[cfg(test)]
mod tests;
