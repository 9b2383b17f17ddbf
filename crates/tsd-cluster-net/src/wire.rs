//! Frames between nodes: a length of four bytes (big-endian), then a message of protocol buffers.
//!
//! The node that connects sends requests with unique numbers. The other node responds with frames of the same number;
//! frames of several requests come in any order. The first request is the greeting. New versions may add fields. A
//! change of a field's meaning needs a new version number.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::{Message, Oneof};
use tokio_util::codec::{Decoder, LengthDelimitedCodec};
use tsd_cluster::SlotSet;
use tsd_model::{TagkUid, TagvUid};
use tsd_storage::{
    HeldColumn, HeldRow, KeyRange, RowFilter, SeriesSet, Table, TagCondition, TagPattern, boot_ms,
    decode_family,
};

use crate::{
    error::PeerError,
    forward::wire::{ForwardMessage, ForwardedMessage},
    held_query::HeldQuery,
    names::wire::{AssignUidsMessage, AssignedUidsMessage, ForgetMessage},
    node_report::{HotSlot, NodeReport},
};

/// Lowest and highest version of the messages that this node understands.
///
/// Nodes of version 2 wait for the leases of the nodes whose logs they take.
pub const VERSIONS: (u32, u32) = (2, 2);

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestFrame {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Time for which the requester waits for the response, milliseconds.
    #[prost(uint32, tag = "2")]
    pub(crate) timeout_ms: u32,
    #[prost(oneof = "RequestBody", tags = "3, 4, 5, 6, 7, 8, 20, 21, 22, 23, 24, 25, 26")]
    pub(crate) body: Option<RequestBody>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RequestBody {
    #[prost(message, tag = "3")]
    Hello(Hello),
    #[prost(message, tag = "4")]
    Held(HeldMessage),
    #[prost(message, tag = "5")]
    Probe(Nothing),
    #[prost(message, tag = "6")]
    Report(Nothing),
    #[prost(message, tag = "7")]
    Flush(Nothing),
    /// The requester no longer waits for the responses to the request with this number.
    #[prost(message, tag = "8")]
    Cancel(Nothing),
    /// Connect to the requesting node, as other nodes will.
    #[prost(message, tag = "20")]
    DialBack(DialBackMessage),
    /// Why the requesting node does not join.
    #[prost(string, tag = "21")]
    NoteRefusal(String),
    /// Asks for the running queries.
    #[prost(message, tag = "22")]
    Queries(Nothing),
    /// Cancel the query with this number.
    #[prost(uint64, tag = "23")]
    CancelQuery(u64),
    /// A write of series that the node owns.
    #[prost(message, tag = "24")]
    Forward(ForwardMessage),
    /// Names and UIDs that were changed in the store.
    #[prost(message, tag = "25")]
    Forget(ForgetMessage),
    /// New names of slots that the node owns.
    #[prost(message, tag = "26")]
    AssignUids(AssignUidsMessage),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct AliveMessage {
    /// True if the node's heartbeats to HBase succeed.
    #[prost(bool, tag = "1")]
    pub(crate) beats: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DialBackMessage {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(uint64, tag = "2")]
    pub(crate) incarnation: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseFrame {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Time since the boot of the responding machine, milliseconds.
    #[prost(uint64, tag = "24")]
    pub(crate) boot_ms: u64,
    #[prost(oneof = "ResponseBody", tags = "2, 3, 4, 5, 6, 7, 20, 22, 23, 25")]
    pub(crate) body: Option<ResponseBody>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ResponseBody {
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    #[prost(message, tag = "3")]
    Rows(RowsMessage),
    /// Follows all rows: the node was not fenced when it took them.
    #[prost(message, tag = "4")]
    Proven(ProvenMessage),
    #[prost(message, tag = "5")]
    Report(ReportMessage),
    #[prost(message, tag = "6")]
    Done(Nothing),
    #[prost(string, tag = "7")]
    Failed(String),
    /// Queries as JSON.
    #[prost(string, tag = "20")]
    Queries(String),
    #[prost(message, tag = "22")]
    Forwarded(ForwardedMessage),
    #[prost(message, tag = "23")]
    AssignedUids(AssignedUidsMessage),
    /// Response to a probe.
    #[prost(message, tag = "25")]
    Alive(AliveMessage),
}

impl ResponseFrame {
    /// Returns a response with the present time.
    pub(crate) fn new(id: u64, body: ResponseBody) -> Self {
        Self { id, boot_ms: boot_ms(), body: Some(body) }
    }
}

impl ResponseBody {
    /// True if no other response to the same request follows.
    pub(crate) const fn is_last(&self) -> bool {
        !matches!(self, Self::Rows(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) lowest_version: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) highest_version: u32,
    #[prost(string, tag = "3")]
    pub(crate) cluster: String,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
    #[prost(uint64, tag = "5")]
    pub(crate) incarnation: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(uint64, tag = "3")]
    pub(crate) incarnation: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeldMessage {
    #[prost(string, tag = "1")]
    pub(crate) table: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) ranges: Vec<RangeMessage>,
    /// A row must match all conditions.
    #[prost(message, repeated, tag = "3")]
    pub(crate) filters: Vec<FilterMessage>,
    /// Bytes of rows after which the response may end; 0 means that it has all rows.
    #[prost(uint64, tag = "20")]
    pub(crate) max_bytes: u64,
    /// The slots for which the node has to respond.
    #[prost(bytes = "bytes", tag = "21")]
    pub(crate) slots: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ProvenMessage {
    /// Requested slots that the node does not own. Its rows of them may be incomplete.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) not_owned: Bytes,
    /// If the node holds more rows than requested: it has sent all rows before this key.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) sent_before: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) start: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) stop: Bytes,
}

/// A condition on row keys: `keys`, or tags that begin at `tags_start`, as sets or by condition.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FilterMessage {
    #[prost(oneof = "FilterBody", tags = "1, 2, 3")]
    pub(crate) body: Option<FilterBody>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum FilterBody {
    #[prost(message, tag = "1")]
    Keys(KeysMessage),
    #[prost(message, tag = "2")]
    Series(SeriesMessage),
    #[prost(message, tag = "3")]
    Tags(TagsMessage),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeysMessage {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) keys: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SeriesMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) tags_start: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) tags: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TagsMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) tags_start: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) tagk_width: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) tagv_width: u32,
    #[prost(bool, tag = "4")]
    pub(crate) explicit: bool,
    #[prost(message, repeated, tag = "5")]
    pub(crate) conditions: Vec<ConditionMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConditionMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) tagk: Bytes,
    /// Ignored if `any_value` is set.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) tagvs: Vec<Bytes>,
    #[prost(bool, tag = "3")]
    pub(crate) any_value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RowsMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rows: Vec<RowMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RowMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(sfixed64, optional, tag = "2")]
    pub(crate) delete_row: Option<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) columns: Vec<ColumnMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ColumnMessage {
    #[prost(uint32, tag = "1")]
    pub(crate) family: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) qualifier: Bytes,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) value: Option<Bytes>,
    #[prost(sfixed64, tag = "4")]
    pub(crate) timestamp_ms: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ReportMessage {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(uint64, tag = "2")]
    pub(crate) log_bytes: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) rows: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) memtable_bytes: u64,
    #[prost(int64, tag = "5")]
    pub(crate) time_ms: i64,
    #[prost(string, repeated, tag = "6")]
    pub(crate) problems: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) hot_slots: Vec<HotSlotMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HotSlotMessage {
    #[prost(uint32, tag = "1")]
    slot: u32,
    #[prost(uint32, tag = "2")]
    percent: u32,
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
}

/// Returns the codec of a stream. A frame over the limit is an error of the stream.
pub(crate) fn codec(max_frame_bytes: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(max_frame_bytes).new_codec()
}

/// Encodes a message with its length in front.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(4 + length);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    // The buffer grows, so it never lacks space.
    let _ = message.encode(&mut out);
    out.freeze()
}

/// Reads a stream as both sides of a connection do, with frames of at most `max_frame_bytes`. Returns the number of
/// valid requests and responses up to the first invalid frame.
#[must_use]
pub fn check_frames(stream: &[u8], max_frame_bytes: usize) -> usize {
    let (mut frames, mut buffer) = (codec(max_frame_bytes), BytesMut::from(stream));
    let mut read = 0;
    while let Ok(Some(frame)) = frames.decode(&mut buffer) {
        let request = decode::<RequestFrame>(frame.clone());
        let response = decode::<ResponseFrame>(frame);
        if request.is_err() && response.is_err() {
            break;
        }
        read += 1;
        match request.ok().and_then(|request| request.body) {
            Some(RequestBody::Held(query)) => drop(query.into_query()),
            Some(RequestBody::Forget(names)) => drop(names.into_names()),
            Some(RequestBody::AssignUids(names)) => drop(names.into_names()),
            _ => {}
        }
        match response.ok().and_then(|response| response.body) {
            Some(ResponseBody::Rows(rows)) => {
                rows.rows.into_iter().for_each(|row| drop(row.into_row()));
            }
            Some(ResponseBody::Report(report)) => drop(report.into_report()),
            _ => {}
        }
    }
    read
}

/// Decodes the message of a frame.
pub(crate) fn decode<M: Message + Default>(frame: BytesMut) -> Result<M, PeerError> {
    M::decode(frame.freeze()).map_err(|error| PeerError::frame(&error))
}

impl HeldMessage {
    pub(crate) fn of(query: &HeldQuery, slots: &SlotSet, max_bytes: usize) -> Self {
        let range = |range: &KeyRange| RangeMessage {
            start: range.start.clone(),
            stop: range.stop.clone(),
        };
        let mut filters = Vec::new();
        if let Some(filter) = &query.filter {
            add_filter(filter, &mut filters);
        }
        let table = query.table.as_str().to_owned();
        let ranges = query.ranges.iter().map(range).collect();
        Self { table, ranges, filters, max_bytes: max_bytes as u64, slots: slots.encode().into() }
    }

    /// Decodes the query. Leaves out unknown conditions: the requesting node checks all of them.
    pub(crate) fn into_query(self) -> HeldQuery {
        let ranges = self.ranges.into_iter();
        let filters: Vec<RowFilter> =
            self.filters.into_iter().filter_map(FilterMessage::into_filter).collect();
        HeldQuery {
            table: Table::new(&self.table),
            ranges: ranges.map(|r| KeyRange { start: r.start, stop: r.stop }).collect(),
            filter: (!filters.is_empty()).then_some(RowFilter::All(filters)),
        }
    }
}

/// Adds the conditions of a filter that have messages.
fn add_filter(filter: &RowFilter, out: &mut Vec<FilterMessage>) {
    let body = match filter {
        RowFilter::All(filters) => {
            for filter in filters {
                add_filter(filter, out);
            }
            return;
        }
        RowFilter::Keys(keys) => FilterBody::Keys(KeysMessage { keys: keys.to_vec() }),
        RowFilter::Series(series) => FilterBody::Series(SeriesMessage {
            tags_start: series.tags_start as u32,
            tags: series.tags.clone(),
        }),
        RowFilter::Tags(pattern) => FilterBody::Tags(TagsMessage {
            tags_start: pattern.tags_start as u32,
            tagk_width: pattern.tagk_width as u32,
            tagv_width: pattern.tagv_width as u32,
            explicit: pattern.explicit,
            conditions: pattern.conditions.iter().map(condition).collect(),
        }),
        _ => return,
    };
    out.push(FilterMessage { body: Some(body) });
}

fn condition(of: &TagCondition) -> ConditionMessage {
    let tagvs = of.tagvs.iter().flatten();
    ConditionMessage {
        tagk: Bytes::copy_from_slice(of.tagk.as_bytes()),
        tagvs: tagvs.map(|tagv| Bytes::copy_from_slice(tagv.as_bytes())).collect(),
        any_value: of.tagvs.is_none(),
    }
}

impl FilterMessage {
    fn into_filter(self) -> Option<RowFilter> {
        Some(match self.body? {
            FilterBody::Keys(KeysMessage { mut keys }) => {
                keys.sort_unstable();
                RowFilter::Keys(Arc::new(keys))
            }
            FilterBody::Series(SeriesMessage { tags_start, mut tags }) => {
                tags.sort_unstable();
                let tags_start = tags_start as usize;
                RowFilter::Series(Arc::new(SeriesSet { tags_start, tags }))
            }
            FilterBody::Tags(tags) => RowFilter::Tags(Arc::new(TagPattern {
                tags_start: tags.tags_start as usize,
                tagk_width: tags.tagk_width as usize,
                tagv_width: tags.tagv_width as usize,
                explicit: tags.explicit,
                conditions: tags
                    .conditions
                    .into_iter()
                    .map(into_condition)
                    .collect::<Option<_>>()?,
            })),
        })
    }
}

/// The condition; `None` if a UID is malformed.
fn into_condition(of: ConditionMessage) -> Option<TagCondition> {
    let ConditionMessage { tagk, tagvs, any_value } = of;
    let mut tagvs: Vec<TagvUid> =
        tagvs.iter().map(|tagv| TagvUid::try_new(tagv).ok()).collect::<Option<_>>()?;
    tagvs.sort_unstable();
    let tagk = TagkUid::try_new(&tagk).ok()?;
    Some(TagCondition { tagk, tagvs: (!any_value).then_some(tagvs) })
}

impl RowMessage {
    pub(crate) fn of(row: HeldRow) -> Self {
        let column = |column: HeldColumn| ColumnMessage {
            family: column.family as u32,
            qualifier: column.qualifier,
            value: column.value,
            timestamp_ms: column.timestamp_ms,
        };
        let columns = row.columns.into_iter().map(column).collect();
        Self { key: row.key, delete_row: row.delete_row_ms, columns }
    }

    pub(crate) fn into_row(self) -> Result<HeldRow, PeerError> {
        let column = |column: ColumnMessage| {
            let family = u8::try_from(column.family).ok().and_then(decode_family);
            let family = family.ok_or_else(|| PeerError::Frame("unknown column family".into()))?;
            let ColumnMessage { qualifier, value, timestamp_ms, .. } = column;
            Ok(HeldColumn { family, qualifier, value, timestamp_ms })
        };
        let columns: Result<Vec<HeldColumn>, PeerError> =
            self.columns.into_iter().map(column).collect();
        let columns = columns?;
        let name = |column: &HeldColumn| (column.family, column.qualifier.clone());
        let is_rising = |(a, b): (&HeldColumn, &HeldColumn)| name(a) < name(b);
        if !columns.iter().zip(columns.iter().skip(1)).all(is_rising) {
            return Err(PeerError::Frame("columns out of order".into()));
        }
        Ok(HeldRow { key: self.key, delete_row_ms: self.delete_row, columns })
    }
}

impl ReportMessage {
    pub(crate) fn of(report: NodeReport) -> Self {
        let NodeReport { version, log_bytes, rows, memtable_bytes, time_ms, problems, hot_slots } =
            report;
        let hot_slot = |of: HotSlot| HotSlotMessage {
            slot: u32::try_from(of.slot).unwrap_or(u32::MAX),
            percent: of.percent,
            value: of.value,
        };
        let hot_slots = hot_slots.into_iter().map(hot_slot).collect();
        Self { version, log_bytes, rows, memtable_bytes, time_ms, problems, hot_slots }
    }

    pub(crate) fn into_report(self) -> NodeReport {
        let Self { version, log_bytes, rows, memtable_bytes, time_ms, problems, hot_slots } = self;
        let hot_slot = |of: HotSlotMessage| HotSlot {
            slot: of.slot as usize,
            percent: of.percent,
            value: of.value,
        };
        let hot_slots = hot_slots.into_iter().map(hot_slot).collect();
        NodeReport { version, log_bytes, rows, memtable_bytes, time_ms, problems, hot_slots }
    }
}
