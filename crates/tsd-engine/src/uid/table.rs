//! The UID table: columns of counters and mappings, and their reads.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{Cell, Family, MAX_NAME_BYTES, Row, TableSchema, Uid, UidKind, decode_latin1};
use tsd_storage::{Column, Delete, Get, MAX_KEY_BYTES, Storage, StorageError, Table};

use super::UidError;

/// Row of the counters.
const COUNTER_ROW: &[u8] = &[0];

const _: () = assert!(MAX_NAME_BYTES <= MAX_KEY_BYTES, "every valid name is a row key");

/// The UID table of a storage.
#[derive(Clone, Debug)]
pub(crate) struct UidTable {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) schema: TableSchema,
}

impl UidTable {
    /// Column of a kind's counter.
    pub(crate) const fn counter(kind: UidKind) -> Column {
        Column {
            row: Bytes::from_static(COUNTER_ROW),
            family: Family::Id,
            qualifier: Bytes::from_static(kind.as_str().as_bytes()),
        }
    }

    /// Column of the mapping from a name.
    pub(crate) fn forward(kind: UidKind, name: &[u8]) -> Column {
        Column {
            row: Bytes::copy_from_slice(name),
            family: Family::Id,
            qualifier: Bytes::from_static(kind.as_str().as_bytes()),
        }
    }

    /// Column of the mapping from a UID.
    pub(crate) fn reverse(kind: UidKind, uid: Uid) -> Column {
        Column {
            row: Bytes::copy_from_slice(uid.as_bytes()),
            family: Family::Name,
            qualifier: Bytes::from_static(kind.as_str().as_bytes()),
        }
    }

    /// Reads the UID of a name.
    pub(crate) async fn uid(&self, kind: UidKind, name: &Bytes) -> Result<Option<Uid>, UidError> {
        if !is_storable(name) {
            return Ok(None);
        }
        let row = self.storage.get(&self.table, get(Self::forward(kind, name))).await?;
        row.and_then(first_cell).map(|cell| self.uid_in(kind, name, &cell)).transpose()
    }

    /// Reads the UIDs of names.
    pub(crate) async fn uids(
        &self,
        kind: UidKind,
        names: &[Bytes],
    ) -> Result<Vec<Result<Option<Uid>, UidError>>, StorageError> {
        let storable = names.iter().filter(|name| is_storable(name));
        let gets = storable.map(|name| get(Self::forward(kind, name))).collect();
        let mut rows = self.storage.multi_get(&self.table, gets).await?.into_iter();
        Ok(names
            .iter()
            .map(|name| {
                let row = if is_storable(name) { rows.next().flatten() } else { None };
                row.and_then(first_cell).map(|cell| self.uid_in(kind, name, &cell)).transpose()
            })
            .collect())
    }

    /// Reads the names of UIDs.
    pub(crate) async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
    ) -> Result<Vec<Option<Bytes>>, StorageError> {
        let gets = uids.iter().map(|&uid| get(Self::reverse(kind, uid))).collect();
        let rows = self.storage.multi_get(&self.table, gets).await?;
        Ok(rows.into_iter().map(|row| row.and_then(first_cell).map(|cell| cell.value)).collect())
    }

    /// Deletes the mapping from a UID, and its UIDMeta.
    pub(crate) async fn delete_reverse(
        &self,
        kind: UidKind,
        uid: Bytes,
    ) -> Result<(), StorageError> {
        let columns = [kind.as_str(), kind.meta_qualifier()]
            .map(|qualifier| (Family::Name, Bytes::from_static(qualifier.as_bytes())));
        let delete = Delete::Columns { row: uid, columns: columns.into() };
        self.storage.delete(&self.table, delete).await
    }

    /// Decodes the UID of a cell. Fails if its width is wrong.
    pub(crate) fn uid_in(&self, kind: UidKind, name: &[u8], cell: &Cell) -> Result<Uid, UidError> {
        let expected = kind.width(&self.schema);
        Uid::with_width(&cell.value, expected).map_err(|_| UidError::WrongWidth {
            kind,
            name: decode_latin1(name),
            found: cell.value.len(),
            expected,
        })
    }

    /// The highest assigned number of a kind.
    pub(crate) async fn used(&self, kind: UidKind) -> Result<i64, StorageError> {
        let row = self.storage.get(&self.table, get(Self::counter(kind))).await?;
        let Some(cell) = row.and_then(first_cell) else { return Ok(0) };
        <[u8; 8]>::try_from(&*cell.value)
            .map(i64::from_be_bytes)
            .map_err(|_| StorageError::NotACounter { length: cell.value.len() })
    }
}

/// False for a name that has no UID because it is no possible row key. A store refuses to read it, and with it
/// the other names of the call.
fn is_storable(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_BYTES
}

fn get(column: Column) -> Get {
    Get::column(column.row, column.family, column.qualifier)
}

fn first_cell(row: Row) -> Option<Cell> {
    row.cells.into_iter().next()
}
