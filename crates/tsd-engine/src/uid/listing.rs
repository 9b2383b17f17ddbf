//! Mappings as they are stored, for tools: bypasses the caches, and includes damaged mappings.

use bytes::Bytes;
use tsd_model::{Family, Row, UID_COUNTER_ROW, UidKind, decode_latin1};
use tsd_storage::{Get, Scan, StorageError};

use super::UidAdmin;

/// A mapping of the UID table, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMapping {
    /// Kind of the name.
    pub kind: UidKind,
    /// The name.
    pub name: String,
    /// Bytes of the UID; any length if the mapping is damaged.
    pub uid: Bytes,
    /// True for a counter, which is stored like the mapping of a name that consists of one zero byte.
    pub is_counter: bool,
}

/// A page of mappings from names, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingPage {
    /// The mappings that match.
    pub mappings: Vec<StoredMapping>,
    /// The name after which the next page begins; `None` on the last page.
    pub next: Option<String>,
}

impl UidAdmin {
    /// The mappings from names after `after` that `matches` accepts. To bound the work of one call, it returns about
    /// `limit` mappings and reads about `max_names` names at most. It never splits the mappings of a name, and
    /// includes counters.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn page(
        &self,
        kind: Option<UidKind>,
        after: Option<&str>,
        matches: impl Fn(&str) -> bool,
        (limit, max_names): (usize, usize),
    ) -> Result<MappingPage, StorageError> {
        let start = after.map(|after| [&tsd_model::encode_latin1_lossy(after)[..], &[0]].concat());
        let scan = Scan {
            start: start.unwrap_or_default().into(),
            family: Some(Family::Id),
            qualifier: kind.map(|kind| Bytes::from_static(kind.as_str().as_bytes())),
            limit: Some(max_names),
            ..Scan::default()
        };
        let mut rows = self.table.storage.scan(&self.table.table, scan);
        let mut page = MappingPage::default();
        let mut names = 0;
        while let Some(batch) = rows.next_rows().await? {
            for row in batch {
                names += 1;
                let name = decode_latin1(&row.key);
                if matches(&name) {
                    page.mappings.extend(mappings(row, Family::Id));
                }
                if names >= max_names || page.mappings.len() >= limit {
                    page.next = Some(name);
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }

    /// Calls `found` with each mapping from a name that `matches` accepts, in the order of the names, until `found`
    /// returns false. Without a `kind`, lists the names of all kinds. Includes counters.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn list(
        &self,
        kind: Option<UidKind>,
        matches: impl Fn(&str) -> bool,
        mut found: impl FnMut(StoredMapping) -> bool,
    ) -> Result<(), StorageError> {
        let scan = Scan {
            family: Some(Family::Id),
            qualifier: kind.map(|kind| Bytes::from_static(kind.as_str().as_bytes())),
            ..Scan::default()
        };
        let mut rows = self.table.storage.scan(&self.table.table, scan);
        while let Some(batch) = rows.next_rows().await? {
            for row in batch {
                if !matches(&decode_latin1(&row.key)) {
                    continue;
                }
                for mapping in mappings(row, Family::Id) {
                    if !found(mapping) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The mappings from a name: one for each kind that has it, or only the mapping of `kind`.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn mappings_of_name(
        &self,
        kind: Option<UidKind>,
        name: &str,
    ) -> Result<Vec<StoredMapping>, StorageError> {
        let row = tsd_model::encode_latin1_lossy(name);
        self.mappings_of_row(kind, Family::Id, row.into()).await
    }

    /// The mappings from a UID: one for each kind that has it, or only the mapping of `kind`. Finds UIDs of any
    /// length.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn mappings_of_uid(
        &self,
        kind: Option<UidKind>,
        uid: &[u8],
    ) -> Result<Vec<StoredMapping>, StorageError> {
        self.mappings_of_row(kind, Family::Name, Bytes::copy_from_slice(uid)).await
    }

    async fn mappings_of_row(
        &self,
        kind: Option<UidKind>,
        family: Family,
        row: Bytes,
    ) -> Result<Vec<StoredMapping>, StorageError> {
        let kinds = UidKind::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of));
        let qualifiers = kinds.map(|kind| Bytes::from_static(kind.as_str().as_bytes())).collect();
        let get = Get { family: Some(family), qualifiers, ..Get::row(row) };
        let row = self.table.storage.get(&self.table.table, get).await?;
        Ok(row.map(|row| mappings(row, family).collect()).unwrap_or_default())
    }
}

/// The mappings of a row in one of the two families. Skips cells of other columns.
fn mappings(row: Row, family: Family) -> impl Iterator<Item = StoredMapping> {
    let Row { key, cells, .. } = row;
    cells.into_iter().filter(move |cell| cell.family == family).filter_map(move |cell| {
        let kind = UidKind::of_column(&cell.qualifier)?;
        Some(if family == Family::Id {
            let is_counter = key.as_ref() == UID_COUNTER_ROW;
            StoredMapping { kind, name: decode_latin1(&key), uid: cell.value, is_counter }
        } else {
            let name = decode_latin1(&cell.value);
            StoredMapping { kind, name, uid: key.clone(), is_counter: false }
        })
    })
}
