//! Makes renames and deletes of names safe against crashes.
//!
//! A change writes several rows, and no store changes several rows at once. So the change is first stored as an
//! intent: one cell, in a row of its own for each UID. Whoever finds an intent finishes it: a start, the next change
//! of a name, or `tsdb uid fsck fix`. Every step is a compare-and-set that has no effect when it is repeated, so
//! several daemons may finish one intent at once. docs/decisions/019-intents-of-name-changes.md has the format and the
//! reasons.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tsd_model::{Family, TS_COUNTER_QUALIFIER, Uid, UidKind, decode_latin1};
use tsd_storage::{Column, Delete, Get, Scan, StorageError, StorageExt, prefix_range};

use super::UidTable;

/// First bytes of the rows of intents. Names never begin with a zero byte, and UIDs are shorter than such a row.
const ROW_PREFIX: &[u8] = b"\0change.";
/// The column of an intent. OpenTSDB's tools skip it in every row of the UID table.
const QUALIFIER: &[u8] = TS_COUNTER_QUALIFIER.as_bytes();
/// First byte of a stored intent: its format.
const FORMAT: u8 = 1;

/// A change of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// The UID gets another name.
    Rename {
        /// The present name.
        from: Bytes,
        /// The new name.
        to: Bytes,
        /// The name to which the UID was mapped before: `from`, unless the table was damaged.
        named: Option<Bytes>,
    },
    /// The name is deleted, with the cells of its UID.
    Delete {
        /// The name.
        name: Bytes,
    },
}

/// A stored change of a name, to be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Kind of the name.
    pub kind: UidKind,
    /// The UID whose name changes.
    pub uid: Uid,
    /// The change.
    pub change: NameChange,
}

/// The intents of the UID table.
#[derive(Debug, Default)]
pub struct Intents {
    /// Intents that can be read.
    pub found: Vec<Intent>,
    /// Rows whose intent cannot be read, for example because a later version wrote it.
    pub unreadable: Vec<Bytes>,
}

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The change took effect, or the name was changed again since.
    Made,
    /// Nothing was changed, because another UID has the new name.
    Taken(Bytes),
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        match &self.change {
            NameChange::Rename { from, to, .. } => {
                write!(f, "rename of {kind} {} to {}", decode_latin1(from), decode_latin1(to))
            }
            NameChange::Delete { name } => write!(f, "delete of {kind} {}", decode_latin1(name)),
        }
    }
}

impl Intent {
    /// All names that the change concerns.
    pub(crate) fn names(&self) -> Vec<Bytes> {
        match &self.change {
            NameChange::Rename { from, to, .. } => vec![from.clone(), to.clone()],
            NameChange::Delete { name } => vec![name.clone()],
        }
    }

    fn column(&self) -> Column {
        let row = [ROW_PREFIX, self.kind.as_str().as_bytes(), b".", self.uid.as_bytes()].concat();
        Column { row: row.into(), family: Family::Name, qualifier: Bytes::from_static(QUALIFIER) }
    }

    fn encode(&self) -> Bytes {
        let mut to = BytesMut::new();
        to.put_u8(FORMAT);
        let mut put = |text: &[u8]| {
            to.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
            to.put_slice(text);
        };
        match &self.change {
            NameChange::Rename { from, to, named } => {
                put(b"rename");
                put(from);
                put(to);
                if let Some(name) = named {
                    put(name);
                }
            }
            NameChange::Delete { name } => {
                put(b"delete");
                put(name);
            }
        }
        to.freeze()
    }

    fn decode(row: &[u8], mut value: Bytes) -> Option<Self> {
        let key = row.strip_prefix(ROW_PREFIX)?;
        let kind_length = key.iter().position(|byte| *byte == b'.')?;
        let (kind, uid) = key.split_at_checked(kind_length)?;
        let kind = UidKind::ALL.into_iter().find(|of| of.as_str().as_bytes() == kind)?;
        let uid = Uid::try_new(uid.strip_prefix(b".")?).ok()?;
        if value.try_get_u8() != Ok(FORMAT) {
            return None;
        }
        let mut texts = Vec::new();
        while !value.is_empty() {
            let length = usize::try_from(value.try_get_u32().ok()?).ok()?;
            if length > value.len() {
                return None;
            }
            texts.push(value.split_to(length));
        }
        let change = match &*texts {
            [tag, from, to, named @ ..] if tag == "rename" && named.len() <= 1 => {
                let (from, to) = (from.clone(), to.clone());
                NameChange::Rename { from, to, named: named.first().cloned() }
            }
            [tag, name] if tag == "delete" => NameChange::Delete { name: name.clone() },
            _ => return None,
        };
        Some(Self { kind, uid, change })
    }
}

impl UidTable {
    /// All stored intents.
    pub async fn intents(&self) -> Result<Intents, StorageError> {
        let (start, stop) = prefix_range(ROW_PREFIX);
        let scan = Scan { start, stop, family: Some(Family::Name), ..Scan::default() };
        let mut rows = self.storage.scan(&self.table, scan);
        let mut intents = Intents::default();
        while let Some(batch) = rows.next_rows().await? {
            for row in batch {
                let cell = row.cells.into_iter().find(|cell| *cell.qualifier == *QUALIFIER);
                match cell.and_then(|cell| Intent::decode(&row.key, cell.value)) {
                    Some(intent) => intents.found.push(intent),
                    None => intents.unreadable.push(row.key),
                }
            }
        }
        Ok(intents)
    }

    /// Stores an intent. Returns false if the UID has another intent.
    pub async fn store_intent(&self, intent: &Intent) -> Result<bool, StorageError> {
        let (column, value) = (intent.column(), intent.encode());
        let (storage, table) = (&self.storage, &self.table);
        if storage.compare_and_set(table, column.clone(), None, value.clone()).await? {
            return Ok(true);
        }
        // An earlier attempt, or another daemon, may have stored the same intent.
        Ok(self.value(column).await?.as_ref() == Some(&value))
    }

    /// Makes the change of a stored intent, and removes the intent. May be repeated after an error, and may run
    /// several times at once.
    pub async fn finish_intent(&self, intent: &Intent) -> Result<Finished, StorageError> {
        let Intent { kind, uid, change } = intent;
        let finished = match change {
            NameChange::Rename { from, to, named } => {
                self.finish_rename(*kind, *uid, (from, to), named.as_ref()).await?
            }
            NameChange::Delete { name } => {
                self.finish_delete(*kind, *uid, name).await?;
                Finished::Made
            }
        };
        self.storage.compare_and_delete(&self.table, intent.column(), intent.encode()).await?;
        Ok(finished)
    }

    /// Maps the new name first: if another UID has it, nothing was changed yet. Removes the old name last, so the UID
    /// has a name at each step.
    async fn finish_rename(
        &self,
        kind: UidKind,
        uid: Uid,
        (from, to): (&Bytes, &Bytes),
        named: Option<&Bytes>,
    ) -> Result<Finished, StorageError> {
        let uid_bytes = Bytes::copy_from_slice(uid.as_bytes());
        let mut holder = self.value(Self::forward(kind, to)).await?;
        if holder.is_none()
            && self.value(Self::forward(kind, from)).await?.as_ref() == Some(&uid_bytes)
        {
            let column = Self::forward(kind, to);
            let (table, new) = (&self.table, uid_bytes.clone());
            holder = if self.storage.compare_and_set(table, column.clone(), None, new).await? {
                Some(uid_bytes.clone())
            } else {
                self.value(column).await?
            };
        }
        match holder {
            Some(holder) if holder != uid_bytes => return Ok(Finished::Taken(holder)),
            // The UID was renamed again, or its name was deleted.
            None => return Ok(Finished::Made),
            Some(_) => {}
        }
        let (storage, table) = (&self.storage, &self.table);
        let reverse = Self::reverse(kind, uid);
        if named != Some(to) {
            storage.compare_and_set(table, reverse, named.cloned(), to.clone()).await?;
        }
        storage.compare_and_delete(table, Self::forward(kind, from), uid_bytes).await?;
        Ok(Finished::Made)
    }

    /// Removes the name first, so that no name has a UID without a name. If the UID is mapped to another name, that
    /// mapping and the other cells of the UID stay.
    async fn finish_delete(
        &self,
        kind: UidKind,
        uid: Uid,
        name: &Bytes,
    ) -> Result<(), StorageError> {
        let (storage, table) = (&self.storage, &self.table);
        let uid_bytes = Bytes::copy_from_slice(uid.as_bytes());
        storage.compare_and_delete(table, Self::forward(kind, name), uid_bytes.clone()).await?;
        let reverse = Self::reverse(kind, uid);
        storage.compare_and_delete(table, reverse.clone(), name.clone()).await?;
        if self.value(reverse).await?.is_none() {
            let meta = Bytes::from_static(kind.meta_qualifier().as_bytes());
            let delete = Delete::Columns { row: uid_bytes, columns: vec![(Family::Name, meta)] };
            storage.delete(table, delete).await?;
        }
        Ok(())
    }

    /// The value of a column.
    pub(super) async fn value(&self, column: Column) -> Result<Option<Bytes>, StorageError> {
        let get = Get::column(column.row, column.family, column.qualifier);
        let row = self.storage.get(&self.table, get).await?;
        Ok(row.and_then(|row| row.cells.into_iter().next()).map(|cell| cell.value))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn decode_inverts_encode() {
        let uid = Uid::from_number(7, 3).unwrap();
        let name = |text: &'static [u8]| Bytes::from_static(text);
        for change in [
            NameChange::Rename { from: name(b"a"), to: name(b"\xe4 b"), named: None },
            NameChange::Rename { from: name(b"a"), to: name(b"b"), named: Some(name(b"c")) },
            NameChange::Delete { name: name(b"") },
        ] {
            let intent = Intent { kind: UidKind::Tagv, uid, change };
            let Column { row, .. } = intent.column();
            let value = intent.encode();
            for length in 0..value.len() {
                assert_ne!(Intent::decode(&row, value.slice(..length)).as_ref(), Some(&intent));
            }
            assert_eq!(Intent::decode(&row, value), Some(intent));
        }
    }
}
