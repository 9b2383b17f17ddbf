//! The UID table: columns of counters and mappings, and reads of them.

use std::sync::Arc;

use bytes::Bytes;
use tsd_meta::UidError;
use tsd_model::{
    Cell, Family, MAX_NAME_BYTES, Row, TableSchema, UID_COUNTER_ROW, Uid, UidKind, decode_latin1,
};
use tsd_storage::{Column, Get, MAX_KEY_BYTES, Scan, Storage, StorageError, Table};

/// Fewest UIDs whose names are read by a scan instead of gets.
const MIN_SCANNED: usize = 256;
/// Rows that a scan reads in the time of one get.
const ROWS_OF_A_GET: u64 = 8;
/// Lowest first byte of names, except for blanks where these are allowed.
const FIRST_BYTE_OF_NAMES: u8 = b'!';

const _: () = assert!(MAX_NAME_BYTES <= MAX_KEY_BYTES, "every valid name is a row key");

/// The UID table of a storage.
#[derive(Clone, Debug)]
pub struct UidTable {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// Name of the table.
    pub table: Table,
    /// Widths of the UIDs.
    pub schema: TableSchema,
}

impl UidTable {
    /// Column of a kind's counter.
    #[must_use]
    pub const fn counter(kind: UidKind) -> Column {
        Column {
            row: Bytes::from_static(&UID_COUNTER_ROW),
            family: Family::Id,
            qualifier: Bytes::from_static(kind.as_str().as_bytes()),
        }
    }

    /// Column of the mapping from a name.
    #[must_use]
    pub fn forward(kind: UidKind, name: &[u8]) -> Column {
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

    /// Reads the names of UIDs. Reads many adjacent UIDs by a scan, because a get costs as much as many rows of a
    /// scan.
    pub(crate) async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
    ) -> Result<Vec<Option<Bytes>>, StorageError> {
        if let Some(range) = dense_range(uids) {
            return self.scanned_names(kind, uids, range).await;
        }
        let gets = uids.iter().map(|&uid| get(Self::reverse(kind, uid))).collect();
        let rows = self.storage.multi_get(&self.table, gets).await?;
        Ok(rows.into_iter().map(|row| row.and_then(first_cell).map(|cell| cell.value)).collect())
    }

    /// Reads the names of ascending UIDs in a range of rows.
    async fn scanned_names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        (start, stop): (Bytes, Bytes),
    ) -> Result<Vec<Option<Bytes>>, StorageError> {
        let scan = Scan {
            start,
            stop,
            family: Some(Family::Name),
            qualifier: Some(Bytes::from_static(kind.as_str().as_bytes())),
            ..Scan::default()
        };
        let mut scanner = self.storage.scan(&self.table, scan);
        let mut names = vec![None; uids.len()];
        let mut wanted = uids.iter().zip(&mut names).peekable();
        while let Some(rows) = scanner.next_rows().await? {
            for row in rows {
                while wanted.next_if(|(uid, _)| *uid.as_bytes() < *row.key).is_some() {}
                if let Some((_, name)) = wanted.next_if(|(uid, _)| *uid.as_bytes() == *row.key) {
                    *name = first_cell(row).map(|cell| cell.value);
                }
            }
        }
        Ok(names)
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

/// The rows of ascending UIDs, if there are many of them with few other rows between them.
fn dense_range(uids: &[Uid]) -> Option<(Bytes, Bytes)> {
    let (first, last) = (uids.first()?, uids.last()?);
    let rows = last.to_number().checked_sub(first.to_number())?;
    let is_dense = uids.len() >= MIN_SCANNED && rows <= uids.len() as u64 * ROWS_OF_A_GET;
    // Rows of names lie outside of the range.
    let is_apart = *last.as_bytes().first()? < FIRST_BYTE_OF_NAMES;
    let is_ascending = || uids.is_sorted_by(|a, b| a.as_bytes() < b.as_bytes());
    (is_dense && is_apart && is_ascending()).then(|| {
        let stop = [last.as_bytes(), &[0]].concat();
        (Bytes::copy_from_slice(first.as_bytes()), stop.into())
    })
}

/// False for a name that cannot be a row key, and so has no UID. A store would reject the whole call that reads it.
fn is_storable(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_BYTES && name != UID_COUNTER_ROW
}

fn get(column: Column) -> Get {
    Get::column(column.row, column.family, column.qualifier)
}

fn first_cell(row: Row) -> Option<Cell> {
    row.cells.into_iter().next()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageExt};

    use super::*;
    use crate::{
        EngineConfig,
        testing::{TestStore, config, store},
    };

    const KIND: UidKind = UidKind::Tagv;

    fn uid(number: u64) -> Uid {
        Uid::from_number(number, 3).unwrap()
    }

    /// Names of tag values by numbers; each row has the name of a tag key too.
    async fn named(numbers: impl Iterator<Item = u64>) -> (Arc<TestStore>, UidTable) {
        let store = store();
        let mut batch = CellBatch::new();
        for number in numbers {
            batch.begin_row(uid(number).as_bytes()).unwrap();
            for (kind, name) in [(UidKind::Tagk, "key".to_owned()), (KIND, format!("v{number}"))] {
                let qualifier = kind.as_str().as_bytes();
                let value = name.as_bytes();
                let cell = CellRef { family: Family::Name, qualifier, value, timestamp_ms: None };
                batch.push(cell).unwrap();
            }
        }
        let table = EngineConfig::default().tables.uid;
        store.put(&table, batch).await.unwrap();
        let schema = config().schema;
        let storage: Arc<dyn Storage> = Arc::<TestStore>::clone(&store);
        (store, UidTable { storage, table, schema })
    }

    /// Reads the names without calling the operation `without`.
    async fn found(numbers: &[u64], without: Operation) -> Vec<Option<String>> {
        let (store, table) = named((1..3_000).filter(|number| number % 7 != 0)).await;
        store.script(without, [Fault::Error(StorageError::Timeout("not to be asked"))]);
        let uids: Vec<Uid> = numbers.iter().copied().map(uid).collect();
        let names = table.names(KIND, &uids).await.unwrap();
        assert!(!store.is_used_up(without));
        let text = |name: Bytes| String::from_utf8(name.to_vec()).unwrap();
        names.into_iter().map(|name| name.map(text)).collect()
    }

    #[tokio::test]
    async fn names_of_many_neighbours_are_scanned() {
        for step in [1, 3, 8] {
            let numbers: Vec<u64> = (5..3_100).step_by(step).collect();
            let expected = numbers
                .iter()
                .map(|number| (number % 7 != 0 && *number < 3_000).then(|| format!("v{number}")));
            assert_eq!(
                found(&numbers, Operation::MultiGet).await,
                expected.collect::<Vec<_>>(),
                "{step}"
            );
        }
    }

    #[tokio::test]
    async fn few_scattered_and_unordered_names_are_got() {
        let few: Vec<u64> = (1..200).collect();
        let scattered: Vec<u64> = (1..300).map(|number| number * 9).collect();
        let unordered: Vec<u64> = (1..2_999).map(|number| number * 2 % 2_999).collect();
        for numbers in [few, scattered, unordered] {
            let names = found(&numbers, Operation::ScanBatch).await;
            for (number, name) in numbers.iter().zip(names) {
                let expected = (number % 7 != 0 && *number < 3_000).then(|| format!("v{number}"));
                assert_eq!(name, expected);
            }
        }
    }

    #[test]
    fn rows_among_names_are_got() {
        let uids = |first: u64| (first..first + 300).map(uid).collect::<Vec<_>>();
        assert!(dense_range(&uids(0x20_0000)).is_some());
        assert_eq!(dense_range(&uids(0x61_6263)), None);
        assert_eq!(dense_range(&uids(0x20_FFF0)), None);
        assert_eq!(dense_range(&[]), None);
    }
}
