//! Requests of the state machines to the log table, and its answers.

use crate::{
    keys::{OpenSegment, SegmentId},
    manifest::{Manifest, Revision},
    record::LogRecord,
};

/// A request to the log table. Each is one call on one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableRequest {
    /// Reads a manifest: [`TableReply::Manifest`].
    ReadManifest {
        /// The owner of the manifest.
        incarnation: u64,
    },
    /// Puts a manifest if the stored manifest has the expected revision, or does not exist:
    /// [`TableReply::Applied`].
    SwapManifest {
        /// The owner of the manifest.
        incarnation: u64,
        /// The revision; `None`: there is no manifest.
        expected: Option<Revision>,
        /// The manifest to put.
        new: Manifest,
    },
    /// Deletes a manifest: [`TableReply::Applied`].
    RemoveManifest {
        /// The owner of the manifest.
        incarnation: u64,
    },
    /// Puts the owner's token if the segment has no token yet: [`TableReply::Applied`].
    OpenSegment {
        /// The segment, and the number of the attempt to open it.
        segment: OpenSegment,
    },
    /// Reads the token of a segment: [`TableReply::Token`].
    ReadToken {
        /// The segment.
        segment: SegmentId,
    },
    /// Puts a record if the segment has this token: [`TableReply::Applied`].
    Append {
        /// The segment.
        segment: OpenSegment,
        /// The record.
        record: LogRecord,
    },
    /// Puts the token of a segment again if the segment has it: [`TableReply::Applied`].
    ConfirmSegment {
        /// The segment.
        segment: OpenSegment,
    },
    /// Overwrites the token of a segment: [`TableReply::Applied`].
    FenceSegment {
        /// The segment.
        segment: SegmentId,
        /// The incarnation that fences.
        by: u64,
    },
    /// Reads all records of a segment: [`TableReply::Records`].
    ReadSegment {
        /// The segment.
        segment: SegmentId,
    },
    /// Deletes a segment: [`TableReply::Applied`].
    RemoveSegment {
        /// The segment.
        segment: SegmentId,
    },
}

/// Content of the cell in which a segment's owner puts the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentToken {
    /// No cell: the segment is not open yet, or was removed.
    Absent,
    /// The token of the owner's attempt to open it.
    Owner {
        /// The owner.
        incarnation: u64,
        /// The attempt.
        attempt: u32,
    },
    /// The fence of this incarnation.
    Fence(u64),
}

/// An answer of the log table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableReply {
    /// The change was made, or its condition did not hold. Changes without a condition are always made.
    Applied(bool),
    /// The answer was lost or late: the request was executed, will be, or never is.
    InDoubt,
    /// A manifest, if there is one.
    Manifest(Option<Manifest>),
    /// A token.
    Token(SegmentToken),
    /// The records of a segment.
    Records(Vec<LogRecord>),
}
