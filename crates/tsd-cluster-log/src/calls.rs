//! Executes the requests of the state machines as calls to HBase.
//!
//! ```text
//! segment      l:<sequence u64>  record, with the sequence as timestamp
//!              s:t               token: "O" incarnation u64, attempt u32; or the fence: "F" incarnation u64
//! manifest     s:r, s:m          revision; manifest, with the number of the revision as timestamp
//! incarnations s:n               the last incarnation u64 | random number u128
//! settings     s:v               settings, with their number as timestamp
//! assignment   s:r, s:a          revision; assignment of slots, with its generation as timestamp
//!              s:b               beat of the digest, with its number as timestamp
//!              s:d               digest of the members, with its version as timestamp
//! identity     s:i               identity of the table (`identity.rs`), with the time of the last check as timestamp
//! ```
//!
//! An attempt that HBase executes late does no harm. For that reason each cell has its own timestamp, and each
//! put has a condition or always the same value.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hbase_rs::{
    Delete, Get, OperationError, Put, Row, Scan, Selection, Table,
    condition::Condition,
    errors::{Failure, RequestError},
};
use tokio::time::{Instant, sleep};
use tsd_cluster::{
    Assignment, ClusterDigest, DigestBeat, LogKeys, LogRecord, Manifest, OpenSegment, Revision,
    SegmentId, SegmentToken, StateRow, TableReply, TableRequest,
};
use tsd_storage::{StorageError, error_chain};

/// Family of the records.
pub(crate) const RECORDS: &[u8] = b"l";
/// Family of the tokens, the manifests and the counter of incarnations.
pub(crate) const STATE: &[u8] = b"s";
const TOKEN: &[u8] = b"t";
const REVISION: &[u8] = b"r";
const MANIFEST: &[u8] = b"m";
const BEAT: &[u8] = b"b";
const DIGEST: &[u8] = b"d";
const OWNER: u8 = b'O';
const FENCE: u8 = b'F';
const TOKEN_TIME: u64 = 1;
/// Timestamp of a fence, later than the token's.
const FENCE_TIME: u64 = 2;

/// A cell of a state row that is replaced as a whole.
pub(crate) type StateCell = (StateRow, &'static [u8]);

/// The last incarnation.
pub(crate) const INCARNATION: StateCell = (StateRow::Incarnations, b"n");
/// The settings of the cluster.
pub(crate) const SETTINGS: StateCell = (StateRow::Settings, b"v");
/// The assignment of slots, in the row of [`ASSIGNMENT_REVISION`].
const ASSIGNMENT: &[u8] = b"a";
/// The revision of the assignment.
const ASSIGNMENT_REVISION: StateCell = (StateRow::Assignment, REVISION);

/// Pause before a request is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The log table of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct LogTable {
    pub(crate) table: Table,
    pub(crate) keys: LogKeys,
    /// Random number that the table has kept since its first start.
    pub(crate) birth: u128,
}

/// What a look at the digest has found.
#[derive(Debug)]
pub(crate) struct ReadDigest {
    pub(crate) digest: ClusterDigest,
    /// Revision of the assignment; `None` before the first one.
    pub(crate) assignment: Option<Revision>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The request may be repeated; the text has the reason.
    Repeat(String),
    /// A retry does not help.
    Fail(StorageError),
}

impl LogTable {
    /// Repeats a request until it has an answer.
    pub(crate) async fn ask(
        &self,
        request: &TableRequest,
        deadline: Instant,
    ) -> Result<TableReply, StorageError> {
        loop {
            let failure = match self.execute(request, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let text = self.pause(failure, deadline).await?;
            tracing::debug!(table = %self.table.name(), error = text, "repeating a request");
        }
    }

    /// Pauses before a retry, and returns its reason. Fails if the request must not be repeated.
    async fn pause(&self, failure: CallFailure, deadline: Instant) -> Result<String, StorageError> {
        match failure {
            CallFailure::Repeat(text) if Instant::now() + RETRY_PAUSE < deadline => {
                sleep(RETRY_PAUSE).await;
                Ok(text)
            }
            failure => Err(self.error(failure)),
        }
    }

    /// Repeats an attempt without a pause until it succeeds. `None` means that another process was first;
    /// `raced` is the error text for that case.
    pub(crate) async fn repeat_raced<T>(
        &self,
        deadline: Instant,
        raced: &str,
        attempt: impl AsyncFn() -> Result<Option<T>, CallFailure>,
    ) -> Result<T, StorageError> {
        loop {
            let text = match attempt().await {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => raced.to_owned(),
                Err(CallFailure::Fail(error)) => return Err(error),
                Err(CallFailure::Repeat(text)) => text,
            };
            if Instant::now() >= deadline {
                return Err(self.unavailable(&text));
            }
        }
    }

    /// As [`Self::ask`], but does not repeat a request without an answer: the reply is then
    /// [`TableReply::InDoubt`].
    pub(crate) async fn ask_once(
        &self,
        request: &TableRequest,
        deadline: Instant,
    ) -> Result<TableReply, StorageError> {
        match self.execute(request, deadline).await {
            Ok(reply) => Ok(reply),
            Err(failure) => self.pause(failure, deadline).await.map(|_| TableReply::InDoubt),
        }
    }

    /// Returns the error of a call that is no longer repeated.
    pub(crate) fn error(&self, failure: CallFailure) -> StorageError {
        match failure {
            CallFailure::Fail(error) => error,
            CallFailure::Repeat(text) => self.unavailable(&text),
        }
    }

    pub(crate) fn unavailable(&self, text: &str) -> StorageError {
        let name = self.table.name();
        StorageError::Unavailable(format!("table {name} does not answer: {text}").into())
    }

    /// Returns the table with a timeout that ends at the deadline.
    pub(crate) fn until(&self, deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        Self { table: self.table.clone().with_timeout(left), ..*self }
    }

    /// Makes one attempt.
    pub(crate) async fn execute(
        &self,
        request: &TableRequest,
        deadline: Instant,
    ) -> Result<TableReply, CallFailure> {
        let to = self.until(deadline);
        match request {
            TableRequest::ReadManifest { incarnation } => {
                Ok(TableReply::Manifest(to.read_manifest(*incarnation).await?))
            }
            TableRequest::SwapManifest { incarnation, expected, new } => {
                to.swap_manifest(*incarnation, *expected, new).await
            }
            TableRequest::RemoveManifest { incarnation } => {
                to.delete(self.keys.state(StateRow::Manifest(*incarnation))).await
            }
            TableRequest::OpenSegment { segment } => {
                let put = to.token_put(segment.id, &token(*segment), TOKEN_TIME);
                to.check(&Condition::absent(STATE, TOKEN), put).await
            }
            TableRequest::ReadToken { segment } => Ok(TableReply::Token(to.token(*segment).await?)),
            TableRequest::Append { segment, record } => {
                to.append(*segment, record.sequence, &record.encode()).await
            }
            TableRequest::ConfirmSegment { segment } => {
                let put = to.token_put(segment.id, &token(*segment), TOKEN_TIME);
                to.check(&Condition::equals(STATE, TOKEN, token(*segment)), put).await
            }
            TableRequest::FenceSegment { segment, by } => {
                let fence = [&[FENCE][..], &by.to_be_bytes()].concat();
                let put = to.token_put(*segment, &fence, FENCE_TIME).map_err(invalid)?;
                to.table.mutate(put).await.map_err(failure)?;
                Ok(TableReply::Applied(true))
            }
            TableRequest::ReadSegment { segment } => {
                Ok(TableReply::Records(to.records(*segment).await?))
            }
            TableRequest::RemoveSegment { segment } => to.delete(self.keys.segment(*segment)).await,
        }
    }

    /// Puts an encoded record, in one attempt.
    pub(crate) async fn append_until(
        &self,
        segment: OpenSegment,
        sequence: u64,
        cell: &[u8],
        deadline: Instant,
    ) -> Result<TableReply, CallFailure> {
        self.until(deadline).append(segment, sequence, cell).await
    }

    async fn append(
        &self,
        segment: OpenSegment,
        sequence: u64,
        cell: &[u8],
    ) -> Result<TableReply, CallFailure> {
        let put = Put::try_new(self.keys.segment(segment.id))
            .and_then(|put| put.cell(RECORDS, &sequence.to_be_bytes(), sequence, cell));
        self.check(&Condition::equals(STATE, TOKEN, token(segment)), put).await
    }

    async fn check(
        &self,
        condition: &Condition,
        put: Result<Put, RequestError>,
    ) -> Result<TableReply, CallFailure> {
        let put = put.map_err(invalid)?;
        let done = self.table.check_and_mutate(condition, put).await.map_err(failure)?;
        Ok(TableReply::Applied(done))
    }

    async fn delete(&self, row: Bytes) -> Result<TableReply, CallFailure> {
        let delete = Delete::try_new(row).map_err(invalid)?;
        self.table.mutate(delete).await.map_err(failure)?;
        Ok(TableReply::Applied(true))
    }

    async fn swap_manifest(
        &self,
        incarnation: u64,
        expected: Option<Revision>,
        new: &Manifest,
    ) -> Result<TableReply, CallFailure> {
        let time = new.revision.number;
        let put = Put::try_new(self.keys.state(StateRow::Manifest(incarnation)))
            .and_then(|put| put.cell(STATE, REVISION, time, &new.revision.encode()))
            .and_then(|put| put.cell(STATE, MANIFEST, time, &new.encode()));
        let expected = expected.map(|revision| revision.encode());
        self.check(&is_expected(REVISION, expected), put).await
    }

    async fn read_manifest(&self, incarnation: u64) -> Result<Option<Manifest>, CallFailure> {
        let row = self.keys.state(StateRow::Manifest(incarnation));
        let get = Get::try_new(row).map_err(invalid)?;
        let row = self.table.get(&get.select(state())).await.map_err(failure)?;
        manifest_of(incarnation, &row)
    }

    /// Reads all manifests, by incarnation. The scan begins after the call.
    pub(crate) async fn manifests(
        &self,
        deadline: Instant,
    ) -> Result<Vec<(u64, Manifest)>, StorageError> {
        loop {
            match self.scan_manifests(deadline).await {
                Ok(found) => return Ok(found),
                Err(failure) => {
                    self.pause(failure, deadline).await?;
                }
            }
        }
    }

    /// Reads the digest. If its version is still that of `known`, only the small cells are read.
    pub(crate) async fn digest(
        &self,
        known: &ClusterDigest,
        deadline: Instant,
    ) -> Result<ReadDigest, StorageError> {
        loop {
            match self.until(deadline).read_digest(known).await {
                Ok(found) => return Ok(found),
                Err(failure) => {
                    self.pause(failure, deadline).await?;
                }
            }
        }
    }

    async fn scan_manifests(&self, deadline: Instant) -> Result<Vec<(u64, Manifest)>, CallFailure> {
        let scan = Scan::prefix(self.keys.manifests()).select(state());
        let mut rows = self.until(deadline).table.scan(scan);
        let mut found = Vec::new();
        while let Some(row) = rows.next().await {
            let row = row.map_err(failure)?.row;
            if let Some(incarnation) = self.keys.incarnation_of(row.key()) {
                let manifest = manifest_of(incarnation, &row)?;
                found.extend(manifest.map(|manifest| (incarnation, manifest)));
            }
        }
        found.sort_unstable_by_key(|(incarnation, _)| *incarnation);
        Ok(found)
    }

    async fn read_digest(&self, known: &ClusterDigest) -> Result<ReadDigest, CallFailure> {
        let row = self.assignment_cells([BEAT, REVISION]).await?;
        let assignment = row.value(STATE, REVISION).and_then(Revision::decode);
        let Some(beat) = beat_of(&row)? else {
            return Ok(ReadDigest { digest: ClusterDigest::default(), assignment });
        };
        if beat.version == known.beat.version {
            let digest = ClusterDigest { beat, ..known.clone() };
            return Ok(ReadDigest { digest, assignment });
        }
        let row = self.assignment_cells([BEAT, DIGEST]).await?;
        let digest = match beat_of(&row)?.zip(row.value(STATE, DIGEST)) {
            Some((beat, cell)) => ClusterDigest::decode(beat, cell),
            None => None,
        };
        let digest = digest.ok_or_else(|| damaged("the digest of the members"))?;
        Ok(ReadDigest { digest, assignment })
    }

    async fn assignment_cells<const N: usize>(
        &self,
        qualifiers: [&'static [u8]; N],
    ) -> Result<Row, CallFailure> {
        let get = Get::try_new(self.keys.state(StateRow::Assignment)).map_err(invalid)?;
        let columns = Selection::all().columns(STATE, qualifiers.map(Bytes::from_static));
        self.table.get(&get.select(columns)).await.map_err(failure)
    }

    /// Replaces the digest with the beat `expected`. Returns false if another node was first.
    pub(crate) async fn swap_digest(
        &self,
        expected: &DigestBeat,
        new: &ClusterDigest,
    ) -> Result<bool, CallFailure> {
        let DigestBeat { number, version, .. } = new.beat;
        let mut put = Put::try_new(self.keys.state(StateRow::Assignment))
            .and_then(|put| put.cell(STATE, BEAT, number, &new.beat.encode()));
        if version != expected.version {
            put = put.and_then(|put| put.cell(STATE, DIGEST, version, &new.encode()));
        }
        let before = (expected.number > 0).then(|| expected.encode());
        let reply = self.check(&is_expected(BEAT, before), put).await?;
        Ok(reply == TableReply::Applied(true))
    }

    /// Reads the assignment. If it has the revision of `known`, reads only the revision.
    pub(crate) async fn assignment(
        &self,
        known: Arc<Assignment>,
    ) -> Result<Option<Arc<Assignment>>, CallFailure> {
        let Some(revision) = self.state_cell(ASSIGNMENT_REVISION).await? else { return Ok(None) };
        if *revision == *known.revision().encode() {
            return Ok(Some(known));
        }
        let (row, _) = ASSIGNMENT_REVISION;
        let get = Get::try_new(self.keys.state(row)).map_err(invalid)?;
        let row = self.table.get(&get.select(state())).await.map_err(failure)?;
        // Both cells change together.
        let found = row.value(STATE, ASSIGNMENT).and_then(Assignment::decode).filter(|found| {
            row.value(STATE, REVISION).is_some_and(|cell| *cell == *found.revision().encode())
        });
        let other_version = || damaged("the assignment of slots is of another version");
        found.map(Arc::new).ok_or_else(other_version).map(Some)
    }

    /// Replaces the assignment that has the revision `expected`. Returns false if another node was first.
    pub(crate) async fn swap_assignment(
        &self,
        expected: Option<Revision>,
        new: &Assignment,
    ) -> Result<bool, CallFailure> {
        let time = new.generation;
        let (row, revision) = ASSIGNMENT_REVISION;
        let put = Put::try_new(self.keys.state(row))
            .and_then(|put| put.cell(STATE, revision, time, &new.revision().encode()))
            .and_then(|put| put.cell(STATE, ASSIGNMENT, time, &new.encode()));
        let expected = expected.map(|revision| revision.encode());
        let reply = self.check(&is_expected(revision, expected), put).await?;
        Ok(reply == TableReply::Applied(true))
    }

    async fn token(&self, segment: SegmentId) -> Result<SegmentToken, CallFailure> {
        let get = Get::try_new(self.keys.segment(segment)).map_err(invalid)?;
        let row = self.table.get(&get.select(state())).await.map_err(failure)?;
        let Some(found) = row.value(STATE, TOKEN) else { return Ok(SegmentToken::Absent) };
        decode_token(found).ok_or_else(|| damaged(format!("the token of {segment:?}")))
    }

    fn token_put(&self, segment: SegmentId, value: &[u8], time: u64) -> Result<Put, RequestError> {
        Put::try_new(self.keys.segment(segment)).and_then(|put| put.cell(STATE, TOKEN, time, value))
    }

    async fn records(&self, segment: SegmentId) -> Result<Vec<LogRecord>, CallFailure> {
        let row = self.keys.segment(segment);
        let selection = Selection::all().family(RECORDS.to_vec());
        let scan = Scan::range(row.clone(), row).inclusive(true, true).select(selection);
        let mut parts = self.table.scan(scan.partial_rows());
        let mut records = Vec::new();
        while let Some(part) = parts.next().await {
            for cell in part.map_err(failure)?.row.cells() {
                let record = LogRecord::decode(cell.value)
                    .map_err(|error| damaged(format!("a cell of {segment:?}: {error}")))?;
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Reads a cell of a state row.
    pub(crate) async fn state_cell(
        &self,
        (row, qualifier): StateCell,
    ) -> Result<Option<Bytes>, CallFailure> {
        Ok(self.timed_state_cell((row, qualifier)).await?.map(|(_, value)| value))
    }

    /// As [`Self::state_cell`], with the timestamp of the cell.
    pub(crate) async fn timed_state_cell(
        &self,
        (row, qualifier): StateCell,
    ) -> Result<Option<(u64, Bytes)>, CallFailure> {
        let get = Get::try_new(self.keys.state(row)).map_err(invalid)?;
        let column = Selection::all().columns(STATE, [Bytes::from_static(qualifier)]);
        let row = self.table.get(&get.select(column)).await.map_err(failure)?;
        let mut cells = row.cells();
        let found = cells.find(|cell| cell.family == STATE && cell.qualifier == qualifier);
        Ok(found.map(|cell| (cell.timestamp, Bytes::copy_from_slice(cell.value))))
    }

    /// Replaces a cell if it has the expected value. `new` has the timestamp, which must grow with each
    /// change, and the value.
    pub(crate) async fn swap_state_cell(
        &self,
        (row, qualifier): StateCell,
        expected: Option<Bytes>,
        (time, new): (u64, &[u8]),
    ) -> Result<TableReply, CallFailure> {
        let put = Put::try_new(self.keys.state(row))
            .and_then(|put| put.cell(STATE, qualifier, time, new));
        self.check(&is_expected(qualifier, expected), put).await
    }
}

/// Returns the condition that a cell of a state row has a value, or is absent.
pub(crate) fn is_expected(qualifier: &'static [u8], value: Option<Bytes>) -> Condition {
    match value {
        None => Condition::absent(STATE, qualifier),
        Some(value) => Condition::equals(STATE, qualifier, value),
    }
}

/// Decodes the manifest from its two cells.
fn manifest_of(incarnation: u64, row: &Row) -> Result<Option<Manifest>, CallFailure> {
    let cells = row.value(STATE, REVISION).zip(row.value(STATE, MANIFEST));
    let Some((revision, manifest)) = cells else { return Ok(None) };
    let manifest =
        Revision::decode(revision).and_then(|revision| Manifest::decode(revision, manifest));
    let what = || damaged(format!("the manifest of incarnation {incarnation}"));
    Ok(Some(manifest.ok_or_else(what)?))
}

fn beat_of(row: &Row) -> Result<Option<DigestBeat>, CallFailure> {
    let Some(cell) = row.value(STATE, BEAT) else { return Ok(None) };
    let beat = DigestBeat::decode(cell).ok_or_else(|| damaged("the beat of the digest"))?;
    Ok(Some(beat))
}

pub(crate) fn state() -> Selection {
    Selection::all().family(STATE.to_vec())
}

fn token(segment: OpenSegment) -> Bytes {
    let incarnation = segment.id.incarnation.to_be_bytes();
    [&[OWNER][..], &incarnation, &segment.attempt.to_be_bytes()].concat().into()
}

fn decode_token(cell: &[u8]) -> Option<SegmentToken> {
    let (kind, rest) = cell.split_first()?;
    let (incarnation, rest) = rest.split_first_chunk::<8>()?;
    let incarnation = u64::from_be_bytes(*incarnation);
    match *kind {
        OWNER => {
            let attempt = u32::from_be_bytes(rest.try_into().ok()?);
            Some(SegmentToken::Owner { incarnation, attempt })
        }
        FENCE => rest.is_empty().then_some(SegmentToken::Fence(incarnation)),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn invalid(error: RequestError) -> CallFailure {
    CallFailure::Fail(StorageError::backend(&error))
}

pub(crate) fn damaged(what: impl Into<Arc<str>>) -> CallFailure {
    CallFailure::Fail(StorageError::Damaged(what.into()))
}

/// Classifies an error: it is permanent if only another table, other permissions or another request help. All
/// other errors are retried.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn failure(error: OperationError) -> CallFailure {
    let text = error_chain(&error);
    if let Failure::NoTable(table) = &*error.cause {
        // Another node cannot use the table either, so the sender may repeat its request later.
        let text = format!("table {table} does not exist");
        return CallFailure::Fail(StorageError::Unavailable(text.into()));
    }
    let is_permanent = match &*error.cause {
        Failure::Request(_) | Failure::CellTooLong { .. } => true,
        Failure::Call(cause) => cause.recovery() == hbase_rs::errors::Recovery::Fail,
        _ => false,
    };
    if is_permanent && !error.in_doubt {
        CallFailure::Fail(StorageError::Backend(text.into()))
    } else {
        CallFailure::Repeat(text)
    }
}
