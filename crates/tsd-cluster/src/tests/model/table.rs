//! The log table of the model.

use std::collections::BTreeMap;

use crate::{
    LogRecord, Manifest, OpenSegment, SegmentId, SegmentToken, TableReply, TableRequest,
    tests::model::world::Faults,
};

/// The rows of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelTable {
    pub(super) manifest: Option<Manifest>,
    pub(super) segments: BTreeMap<SegmentId, ModelSegment>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelSegment {
    token: Option<SegmentToken>,
    pub(super) records: BTreeMap<u64, LogRecord>,
}

impl ModelTable {
    /// Executes a request.
    pub(super) fn execute(&mut self, request: &TableRequest, faults: Faults) -> TableReply {
        match request {
            TableRequest::ReadManifest { .. } => TableReply::Manifest(self.manifest.clone()),
            TableRequest::SwapManifest { expected, new, .. } => {
                let found = self.manifest.as_ref().map(|manifest| manifest.revision);
                let holds = found == *expected;
                if holds {
                    self.manifest = Some(new.clone());
                }
                TableReply::Applied(holds)
            }
            TableRequest::RemoveManifest { .. } => {
                self.manifest = None;
                TableReply::Applied(true)
            }
            TableRequest::OpenSegment { segment } => {
                let row = self.segments.entry(segment.id).or_default();
                let holds = row.token.is_none();
                if holds {
                    row.token = Some(token(*segment, faults));
                }
                TableReply::Applied(holds)
            }
            TableRequest::ReadToken { segment } => {
                let row = self.segments.get(segment);
                TableReply::Token(row.and_then(|row| row.token).unwrap_or(SegmentToken::Absent))
            }
            TableRequest::Append { segment, record } => self.append(*segment, record, faults),
            TableRequest::ConfirmSegment { segment } => {
                let row = self.segments.get(&segment.id);
                let owner = Some(token(*segment, faults));
                TableReply::Applied(row.is_some_and(|row| row.token == owner))
            }
            TableRequest::FenceSegment { segment, by } => {
                if !faults.skips_fence {
                    self.segments.entry(*segment).or_default().token =
                        Some(SegmentToken::Fence(*by));
                }
                TableReply::Applied(true)
            }
            TableRequest::ReadSegment { segment } => {
                let row = self.segments.get(segment);
                let records = row.into_iter().flat_map(|row| row.records.values());
                TableReply::Records(records.cloned().collect())
            }
            TableRequest::RemoveSegment { segment } => {
                self.segments.remove(segment);
                TableReply::Applied(true)
            }
        }
    }

    fn append(&mut self, segment: OpenSegment, record: &LogRecord, faults: Faults) -> TableReply {
        let owner = Some(token(segment, faults));
        let holds = self.segments.get(&segment.id).is_some_and(|row| row.token == owner);
        let holds = holds || faults.ignores_fence;
        if holds {
            let row = self.segments.entry(segment.id).or_default();
            row.records.insert(record.sequence, record.clone());
        }
        TableReply::Applied(holds)
    }
}

/// The token of an attempt.
const fn token(segment: OpenSegment, faults: Faults) -> SegmentToken {
    let attempt = if faults.shares_tokens { 0 } else { segment.attempt };
    SegmentToken::Owner { incarnation: segment.id.incarnation, attempt }
}
