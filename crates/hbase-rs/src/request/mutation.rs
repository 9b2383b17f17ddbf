//! Mutations of one row: put, delete, increment, append.
//!
//! Cells are encoded once, when they are added. They are sent in the cell block.

use bytes::{Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;

use super::{RequestError, checked_row};
use crate::cell::{Cell, CellKind, Cells, SERVER_TIME};

/// A mutation of one row, of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    kind: MutationType,
    row: Bytes,
    cells: BytesMut,
    count: i32,
    /// Timestamp of a delete of the whole row.
    timestamp: Option<u64>,
    returns_result: bool,
}

/// Writes cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Put(Mutation);

/// Deletes cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete(Mutation);

/// Increments counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Increment(Mutation);

/// Appends to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Append(Mutation);

impl Put {
    /// Starts a put on `row`, without cells.
    ///
    /// # Errors
    ///
    /// When the row is empty or too long.
    pub fn try_new(row: impl Into<Bytes>) -> Result<Self, RequestError> {
        Mutation::try_new(MutationType::Put, row).map(Self)
    }

    /// Adds a cell; with [`SERVER_TIME`] the server sets the timestamp.
    ///
    /// A put with that timestamp that is retried after a lost response adds a second version, so prefer
    /// an explicit timestamp.
    ///
    /// # Errors
    ///
    /// When a part is too long or the timestamp too large.
    pub fn cell(
        mut self,
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
        value: &[u8],
    ) -> Result<Self, RequestError> {
        self.0.add(CellKind::Put, (family, qualifier), timestamp, value)?;
        Ok(self)
    }
}

impl Delete {
    /// Starts a delete on `row`. Without further calls it deletes the whole row.
    ///
    /// # Errors
    ///
    /// When the row is empty or too long.
    pub fn try_new(row: impl Into<Bytes>) -> Result<Self, RequestError> {
        Mutation::try_new(MutationType::Delete, row).map(Self)
    }

    /// Limits a delete of the whole row to cells up to `timestamp`.
    #[must_use]
    pub const fn up_to(mut self, timestamp: u64) -> Self {
        self.0.timestamp = Some(timestamp);
        self
    }

    /// Deletes one version. [`SERVER_TIME`] selects the newest version at execution time, which makes the
    /// delete not idempotent.
    ///
    /// # Errors
    ///
    /// When a part is too long or the timestamp too large.
    pub fn version(
        self,
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<Self, RequestError> {
        self.add(CellKind::Delete, family, qualifier, timestamp)
    }

    /// Deletes all versions up to `timestamp`.
    ///
    /// # Errors
    ///
    /// When a part is too long or the timestamp too large.
    pub fn column(
        self,
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<Self, RequestError> {
        self.add(CellKind::DeleteColumn, family, qualifier, timestamp)
    }

    /// Deletes all columns of the family up to `timestamp`.
    ///
    /// # Errors
    ///
    /// When a part is too long or the timestamp too large.
    pub fn family(self, family: &[u8], timestamp: u64) -> Result<Self, RequestError> {
        self.add(CellKind::DeleteFamily, family, &[], timestamp)
    }

    fn add(
        mut self,
        kind: CellKind,
        family: &[u8],
        qualifier: &[u8],
        timestamp: u64,
    ) -> Result<Self, RequestError> {
        self.0.add(kind, (family, qualifier), timestamp, &[])?;
        Ok(self)
    }
}

impl Increment {
    /// Starts an increment on `row`, without counters.
    ///
    /// # Errors
    ///
    /// When the row is empty or too long.
    pub fn try_new(row: impl Into<Bytes>) -> Result<Self, RequestError> {
        Mutation::try_new(MutationType::Increment, row).map(Self)
    }

    /// Adds to an eight-byte counter. An absent counter starts at 0 and is created even by an amount of
    /// 0; overflow wraps.
    ///
    /// # Errors
    ///
    /// When a part is too long.
    pub fn counter(
        mut self,
        family: &[u8],
        qualifier: &[u8],
        amount: i64,
    ) -> Result<Self, RequestError> {
        self.0.add(CellKind::Put, (family, qualifier), SERVER_TIME, &amount.to_be_bytes())?;
        Ok(self)
    }
}

impl Append {
    /// Starts an append on `row`, without values.
    ///
    /// # Errors
    ///
    /// When the row is empty or too long.
    pub fn try_new(row: impl Into<Bytes>) -> Result<Self, RequestError> {
        Mutation::try_new(MutationType::Append, row).map(Self)
    }

    /// Appends to the value of a column, which need not exist.
    ///
    /// # Errors
    ///
    /// When a part is too long.
    pub fn value(
        mut self,
        family: &[u8],
        qualifier: &[u8],
        value: &[u8],
    ) -> Result<Self, RequestError> {
        self.0.add(CellKind::Put, (family, qualifier), SERVER_TIME, value)?;
        Ok(self)
    }

    /// Does not request the new values.
    #[must_use]
    pub const fn without_result(mut self) -> Self {
        self.0.returns_result = false;
        self
    }
}

impl Mutation {
    fn try_new(kind: MutationType, row: impl Into<Bytes>) -> Result<Self, RequestError> {
        Ok(Self {
            kind,
            row: checked_row(row)?,
            cells: BytesMut::new(),
            count: 0,
            timestamp: None,
            returns_result: true,
        })
    }

    fn add(
        &mut self,
        kind: CellKind,
        (family, qualifier): (&[u8], &[u8]),
        timestamp: u64,
        value: &[u8],
    ) -> Result<(), RequestError> {
        let row = &self.row;
        Cell { row, family, qualifier, timestamp, kind, value }.encode(&mut self.cells)?;
        self.count += 1;
        Ok(())
    }

    /// Returns the row key.
    #[must_use]
    pub const fn row(&self) -> &Bytes {
        &self.row
    }

    /// Returns the encoded cells, as in a cell block.
    #[must_use]
    pub fn encoded_cells(&self) -> &[u8] {
        &self.cells
    }

    /// Returns the encoded length of the longest cell, which HBase compares with its limit.
    #[must_use]
    pub fn longest_cell(&self) -> usize {
        Cells::new(&self.cells)
            .map_while(Result::ok)
            .map(|cell| cell.encoded_len())
            .max()
            .unwrap_or(0)
    }

    /// True for a put with cells.
    pub(crate) const fn is_plain_put(&self) -> bool {
        matches!(self.kind, MutationType::Put) && self.count > 0
    }

    /// True if the server needs a nonce to detect a retry.
    #[must_use]
    pub const fn needs_nonce(&self) -> bool {
        matches!(self.kind, MutationType::Increment | MutationType::Append)
    }

    /// True if a retry is safe when it is unknown whether an attempt was executed. Increments and appends
    /// are safe because of their nonces.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        let newest =
            |cell: Cell<'_>| cell.kind == CellKind::Delete && cell.timestamp == SERVER_TIME;
        !Cells::new(&self.cells).map_while(Result::ok).any(newest)
    }

    /// Encodes the message, with the count of the cells.
    pub(crate) fn to_message(&self, nonce: Option<u64>) -> pb::MutationProto {
        let without_result = (!self.returns_result).then(|| pb::NameBytesPair {
            name: "_rr_".to_owned(),
            value: Some(Bytes::from_static(&[0])),
        });
        pb::MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(self.kind.into()),
            timestamp: self.timestamp,
            attribute: without_result.into_iter().collect(),
            // A delete of the whole row has no cells and must not have a count.
            associated_cell_count: (self.count > 0).then_some(self.count),
            nonce,
            ..pb::MutationProto::default()
        }
    }
}

macro_rules! mutations {
    ($($kind:ident),+) => {$(
        impl From<$kind> for Mutation {
            fn from(mutation: $kind) -> Self {
                mutation.0
            }
        }
    )+};
}

mutations!(Put, Delete, Increment, Append);

#[cfg(test)]
mod tests {
    use pb::mutation_proto::{ColumnValue, DeleteType, column_value::QualifierValue};
    use prost::Message;

    use super::*;
    use crate::recorded;

    /// Returns mutation and cell block of a recorded request.
    fn recorded_mutation(vector: &str) -> (pb::MutationProto, Bytes) {
        let mut rest = recorded::vector(vector).slice(4..);
        let header = prost::decode_length_delimiter(&mut rest).unwrap();
        let mut rest = rest.slice(header..);
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        let request = pb::MutateRequest::decode(rest.split_to(length)).unwrap();
        (request.mutation, rest)
    }

    /// Returns the message with the cells in it, as on a connection without a cell block.
    fn message_with_cells(mutation: &Mutation, nonce: Option<u64>) -> pb::MutationProto {
        pb::MutationProto {
            column_value: column_values(mutation),
            associated_cell_count: None,
            ..mutation.to_message(nonce)
        }
    }

    fn column_values(mutation: &Mutation) -> Vec<ColumnValue> {
        let mut families: Vec<ColumnValue> = Vec::new();
        for cell in Cells::new(&mutation.cells).map_while(Result::ok) {
            let delete_type = match cell.kind {
                CellKind::Put => None,
                CellKind::Delete => Some(DeleteType::DeleteOneVersion),
                CellKind::DeleteColumn => Some(DeleteType::DeleteMultipleVersions),
                CellKind::DeleteFamily => Some(DeleteType::DeleteFamily),
                CellKind::DeleteFamilyVersion => Some(DeleteType::DeleteFamilyVersion),
            };
            let value = QualifierValue {
                qualifier: Some(Bytes::copy_from_slice(cell.qualifier)),
                value: delete_type.is_none().then(|| Bytes::copy_from_slice(cell.value)),
                timestamp: (cell.timestamp != SERVER_TIME).then_some(cell.timestamp),
                delete_type: delete_type.map(Into::into),
                tags: None,
            };
            match families.last_mut() {
                Some(last) if last.family == cell.family => last.qualifier_value.push(value),
                _ => families.push(ColumnValue {
                    family: Bytes::copy_from_slice(cell.family),
                    qualifier_value: vec![value],
                }),
            }
        }
        families
    }

    /// Compares with a recorded mutation, without its explicit defaults. Its cells are in the message, or
    /// in the block.
    #[track_caller]
    fn check(vector: &str, mutation: &Mutation, nonce: Option<u64>) {
        let (mut expected, block) = recorded_mutation(vector);
        expected.timestamp = expected.timestamp.filter(|time| *time != SERVER_TIME);
        expected.durability = expected.durability.filter(|durability| *durability != 0);
        for value in expected.column_value.iter_mut().flat_map(|family| &mut family.qualifier_value)
        {
            value.timestamp = value.timestamp.filter(|time| *time != SERVER_TIME);
            if value.delete_type.is_some() {
                value.value = None;
            }
        }
        expected.time_range = expected.time_range.filter(|range| range.to != Some(SERVER_TIME));
        expected.nonce = expected.nonce.filter(|nonce| *nonce != 0);
        if expected.column_value.is_empty() {
            assert_eq!(mutation.to_message(nonce), expected);
            assert_eq!(mutation.encoded_cells(), block);
        } else {
            assert_eq!(message_with_cells(mutation, nonce), expected);
        }
    }

    const ROW: [u8; 13] = [0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2];
    const TIME: u64 = 1_700_000_000_123;

    fn put() -> Put {
        Put::try_new(ROW.to_vec()).unwrap().cell(b"t", &[0, 0xf3], TIME, &[0, 0, 0, 42]).unwrap()
    }

    #[test]
    fn puts_encode_as_recorded() {
        check("mutate-put-protobuf", &put().into(), None);
        check("mutate-put-cellblock", &put().into(), None);
    }

    #[test]
    fn deletes_encode_as_recorded() {
        let (expected, _) = recorded_mutation("mutate-delete-column");
        let time = expected.column_value[0].qualifier_value[0].timestamp.unwrap_or(SERVER_TIME);
        let delete = Delete::try_new(ROW.to_vec()).unwrap().column(b"t", &[0, 0xf3], time).unwrap();
        check("mutate-delete-column", &delete.into(), None);
    }

    #[test]
    fn increments_and_appends_encode_as_recorded() {
        let (expected, _) = recorded_mutation("mutate-increment");
        let increment = Increment::try_new(vec![0]).unwrap().counter(b"id", b"metrics", 1).unwrap();
        check("mutate-increment", &increment.into(), expected.nonce);
        let (expected, _) = recorded_mutation("mutate-append");
        let value = expected.column_value[0].qualifier_value[0].value.clone().unwrap();
        let append =
            Append::try_new(ROW.to_vec()).unwrap().value(b"t", &[5, 0, 0], &value).unwrap();
        check("mutate-append", &append.into(), expected.nonce.filter(|nonce| *nonce != 0));
    }

    #[test]
    fn delete_of_a_row_has_no_cells_and_no_count() {
        let delete: Mutation = Delete::try_new("r").unwrap().up_to(7).into();
        for message in [delete.to_message(None), message_with_cells(&delete, None)] {
            assert_eq!(message.associated_cell_count, None);
            assert_eq!(message.timestamp, Some(7));
            assert!(message.column_value.is_empty());
        }
        assert!(delete.encoded_cells().is_empty());
    }

    #[test]
    fn empty_value_of_a_put_is_encoded() {
        let put: Mutation = Put::try_new("r").unwrap().cell(b"f", b"", 1, b"").unwrap().into();
        let message = message_with_cells(&put, None);
        assert_eq!(message.column_value[0].qualifier_value[0].value, Some(Bytes::new()));
    }

    #[test]
    fn delete_of_the_newest_version_is_not_repeatable() {
        let delete = || Delete::try_new("r").unwrap();
        let newest: Mutation = delete().version(b"f", b"q", SERVER_TIME).unwrap().into();
        assert!(!newest.is_repeatable());
        let one: Mutation = delete().version(b"f", b"q", 5).unwrap().into();
        assert!(one.is_repeatable());
        let column: Mutation = delete().column(b"f", b"q", SERVER_TIME).unwrap().into();
        assert!(column.is_repeatable());
        assert!(Mutation::from(put()).is_repeatable());
        assert!(!Mutation::from(put()).needs_nonce());
    }

    #[test]
    fn without_result_sets_an_attribute() {
        let append =
            Append::try_new("r").unwrap().value(b"f", b"q", b"1").unwrap().without_result();
        let message = Mutation::from(append).to_message(Some(9));
        let names: Vec<_> =
            message.attribute.iter().map(|pair| (pair.name.as_str(), pair.value())).collect();
        assert_eq!(names, [("_rr_", &[0][..])]);
        assert_eq!(message.nonce, Some(9));
    }

    #[test]
    fn invalid_mutations_are_rejected() {
        assert_eq!(Put::try_new(""), Err(RequestError::EmptyRow));
        assert!(Put::try_new(vec![0; 40_000]).is_err());
        assert!(put().cell(&[b'f'; 128], b"q", 1, b"").is_err());
        assert!(put().cell(b"f", b"q", u64::MAX, b"").is_err());
        assert_eq!(Mutation::from(put()).longest_cell(), recorded::vector("cell-put").len());
    }
}
