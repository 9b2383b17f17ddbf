//! TSMeta and UIDMeta objects: JSON cells of the meta table and of the UID table.
//!
//! An edit reads the cell, merges, and writes it back by compare-and-set against the bytes it read. On a
//! conflict it retries, so concurrent edits are all applied. Nothing is cached, and names are read with
//! the objects, so an object never has a name that its UID no longer has.
//!
//! Lists of objects are in `meta_search`.

mod error;
mod stored;

use std::fmt;

use bytes::Bytes;
use tsd_model::{
    Family, NamedUidMeta, Row, SeriesMeta, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, TableSchema,
    TsMeta, TsMetaEdit, Tsuid, Uid, UidKind, UidMetaEdit, encode_counter,
};
use tsd_storage::{Column, Delete, Get, Storage, StorageError, Table};

pub use error::MetaError;
pub(crate) use stored::{
    SeriesNames, StoredSeriesMeta, cell_of, named_uid_meta, uid_meta_column, uid_meta_get,
    uids_of_series,
};

use crate::uid::UidAdmin;

/// Attempts of an edit before it fails with a conflict.
const MAX_ATTEMPTS: usize = 16;

/// Result of an edit.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaEditOutcome<T> {
    /// The object as stored now.
    Stored(T),
    /// The edit sets no field, so nothing was written.
    Unchanged,
}

/// The meta objects of a storage. Cheap to clone.
#[derive(Clone)]
pub struct MetaObjects {
    pub(crate) uids: UidAdmin,
    /// The meta table.
    pub(crate) table: Table,
}

impl MetaObjects {
    /// The UIDMeta of a UID; one with defaults if none is stored.
    pub async fn uid_meta(&self, kind: UidKind, uid: &[u8]) -> Result<NamedUidMeta, MetaError> {
        let uid = self.uid(kind, uid)?;
        Ok(self.read_uid_meta(kind, uid).await?.0)
    }

    /// Sets fields of the UIDMeta of a UID, or replaces it.
    pub async fn edit_uid_meta(
        &self,
        kind: UidKind,
        uid: &[u8],
        edit: &UidMetaEdit,
        replace: bool,
    ) -> Result<MetaEditOutcome<NamedUidMeta>, MetaError> {
        if edit.is_empty() {
            return Ok(MetaEditOutcome::Unchanged);
        }
        let uid = self.uid(kind, uid)?;
        for _ in 0..MAX_ATTEMPTS {
            let (NamedUidMeta { name, meta, .. }, expected) = self.read_uid_meta(kind, uid).await?;
            let stored = expected.is_some().then_some(meta);
            let meta = edit.merged(kind, stored, replace);
            let value = Bytes::from(meta.to_json());
            let column = uid_meta_column(kind, uid);
            let storage = self.storage();
            if storage.compare_and_set(&self.uids.table.table, column, expected, value).await? {
                return Ok(MetaEditOutcome::Stored(NamedUidMeta { uid, name, meta }));
            }
        }
        Err(MetaError::Contended)
    }

    /// Deletes the UIDMeta of a UID, if there is one.
    pub async fn delete_uid_meta(&self, kind: UidKind, uid: &[u8]) -> Result<(), MetaError> {
        let Ok(uid) = self.uid(kind, uid) else {
            // There is none in a row of another width.
            return Ok(());
        };
        let Column { row, family, qualifier } = uid_meta_column(kind, uid);
        let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
        Ok(self.storage().delete(&self.uids.table.table, delete).await?)
    }

    /// The TSMeta of a series with the UIDMeta of its names; `None` if none is stored.
    pub async fn series_meta(&self, tsuid: &[u8]) -> Result<Option<SeriesMeta>, MetaError> {
        let Ok(tsuid) = Tsuid::try_new(self.schema(), tsuid) else { return Ok(None) };
        let Some((stored, _)) = self.read_ts_meta(&tsuid).await? else { return Ok(None) };
        let names = self.names_of_series(&tsuid).await?;
        Ok(Some(stored.with_names(names)))
    }

    /// Sets fields of the TSMeta of a series that has one, or replaces it.
    pub async fn edit_series_meta(
        &self,
        tsuid: &Tsuid,
        edit: &TsMetaEdit,
        replace: bool,
    ) -> Result<MetaEditOutcome<SeriesMeta>, MetaError> {
        if edit.is_empty() {
            return Ok(MetaEditOutcome::Unchanged);
        }
        let names = self.names_of_series(tsuid).await?;
        for _ in 0..MAX_ATTEMPTS {
            let (mut stored, expected) =
                self.read_ts_meta(tsuid).await?.ok_or(MetaError::NotStored)?;
            stored.meta = edit.merged(stored.meta, replace);
            if self.swap_ts_meta(tsuid, Some(expected), &stored.meta).await? {
                return Ok(MetaEditOutcome::Stored(stored.with_names(names)));
            }
        }
        Err(MetaError::Contended)
    }

    /// As [`Self::edit_series_meta`], but creates the TSMeta if there is none, with a counter of 0 unless
    /// the series has one.
    pub async fn create_series_meta(
        &self,
        tsuid: &Tsuid,
        edit: &TsMetaEdit,
        replace: bool,
    ) -> Result<MetaEditOutcome<SeriesMeta>, MetaError> {
        if !self.has_series_meta(tsuid).await? {
            // Fails before anything is written if a UID has no name.
            self.names_of_series(tsuid).await?;
            let counter = Column {
                row: Bytes::copy_from_slice(tsuid.as_bytes()),
                family: Family::Name,
                qualifier: Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes()),
            };
            let zero = Bytes::copy_from_slice(&encode_counter(0));
            // False if the series has a counter.
            let _ = self.storage().compare_and_set(&self.table, counter, None, zero).await?;
            let meta = edit.merged(TsMeta::new(&tsuid.to_string(), 0), replace);
            if self.swap_ts_meta(tsuid, None, &meta).await? {
                let stored = self.series_meta(tsuid.as_bytes()).await?;
                return stored.map(MetaEditOutcome::Stored).ok_or(MetaError::Contended);
            }
            // Another writer has created it.
        }
        self.edit_series_meta(tsuid, edit, replace).await
    }

    /// Gives a stored TSMeta the creation time of its oldest points, if that is earlier, and its TSUID if it has
    /// none. The names of the series are not read.
    pub(crate) async fn correct_series_meta(
        &self,
        tsuid: &Tsuid,
        created: i64,
    ) -> Result<(), MetaError> {
        let edit = TsMetaEdit { created: Some(created), ..TsMetaEdit::default() };
        for _ in 0..MAX_ATTEMPTS {
            // Deleted meanwhile: there is nothing to correct.
            let Some((stored, expected)) = self.read_ts_meta(tsuid).await? else { return Ok(()) };
            let meta = edit.merged(stored.meta, false);
            if self.swap_ts_meta(tsuid, Some(expected), &meta).await? {
                return Ok(());
            }
        }
        Err(MetaError::Contended)
    }

    /// True if the series has a stored TSMeta.
    pub async fn has_series_meta(&self, tsuid: &Tsuid) -> Result<bool, MetaError> {
        let get = Get::column(
            Bytes::copy_from_slice(tsuid.as_bytes()),
            Family::Name,
            Bytes::from_static(TS_META_QUALIFIER.as_bytes()),
        );
        Ok(self.storage().get(&self.table, get).await?.is_some())
    }

    /// Deletes the TSMeta of a series, if there is one. Its counter stays.
    pub async fn delete_series_meta(&self, tsuid: &[u8]) -> Result<(), MetaError> {
        let columns = vec![(Family::Name, Bytes::from_static(TS_META_QUALIFIER.as_bytes()))];
        let delete = Delete::Columns { row: Bytes::copy_from_slice(tsuid), columns };
        Ok(self.storage().delete(&self.table, delete).await?)
    }

    /// The TSUID of a series by its names. Fails if one of them has no UID.
    pub async fn tsuid_of(
        &self,
        metric: &str,
        tags: &[(String, String)],
    ) -> Result<Vec<u8>, MetaError> {
        let mut pairs = Vec::with_capacity(tags.len());
        for (tagk, tagv) in tags {
            let tagk = self.uids.uid_of(UidKind::Tagk, tagk).await?;
            pairs.push((tagk, self.uids.uid_of(UidKind::Tagv, tagv).await?));
        }
        pairs.sort_unstable();
        let mut tsuid = self.uids.uid_of(UidKind::Metric, metric).await?.as_bytes().to_vec();
        for (tagk, tagv) in pairs {
            tsuid.extend_from_slice(tagk.as_bytes());
            tsuid.extend_from_slice(tagv.as_bytes());
        }
        Ok(tsuid)
    }

    /// The UIDMeta of UIDs, in their order. Fails if one of them has no name.
    pub(crate) async fn uid_metas(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<NamedUidMeta>, MetaError> {
        let rows = self.uid_rows(uids).await?;
        let rows = uids.iter().zip(&rows);
        rows.map(|((kind, uid), row)| Ok(named_uid_meta(*kind, *uid, row.as_ref())?.0)).collect()
    }

    /// As [`Self::uid_metas`]; `None` for UIDs without a name, and for those whose object is invalid.
    pub(crate) async fn known_uid_metas(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<Option<NamedUidMeta>>, StorageError> {
        let rows = self.uid_rows(uids).await?;
        let known = uids.iter().zip(&rows).map(|((kind, uid), row)| {
            match named_uid_meta(*kind, *uid, row.as_ref()) {
                Ok((object, _)) => Some(object),
                Err(MetaError::NoSuchUid { .. }) => None,
                Err(error) => {
                    tracing::warn!(%error, %kind, %uid, "ignored an invalid stored UIDMeta");
                    None
                }
            }
        });
        Ok(known.collect())
    }

    async fn uid_rows(&self, uids: &[(UidKind, Uid)]) -> Result<Vec<Option<Row>>, StorageError> {
        let gets = uids.iter().map(|(kind, uid)| uid_meta_get(*kind, *uid)).collect();
        self.storage().multi_get(&self.uids.table.table, gets).await
    }

    pub(crate) fn schema(&self) -> &TableSchema {
        &self.uids.table.schema
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.uids.table.storage
    }

    fn uid(&self, kind: UidKind, bytes: &[u8]) -> Result<Uid, MetaError> {
        let expected = kind.width(self.schema());
        Uid::with_width(bytes, expected).map_err(|_| MetaError::WrongWidth {
            kind,
            found: bytes.len(),
            expected,
        })
    }

    async fn read_uid_meta(
        &self,
        kind: UidKind,
        uid: Uid,
    ) -> Result<(NamedUidMeta, Option<Bytes>), MetaError> {
        let get = uid_meta_get(kind, uid);
        let row = self.storage().get(&self.uids.table.table, get).await?;
        named_uid_meta(kind, uid, row.as_ref())
    }

    /// The UIDMeta of the metric of a series, and those of its tags.
    async fn names_of_series(&self, tsuid: &Tsuid) -> Result<SeriesNames, MetaError> {
        let uids = uids_of_series(*self.schema(), tsuid.as_bytes());
        let mut names = self.uid_metas(&uids).await?.into_iter();
        // Every series has a metric.
        let metric = names.next().ok_or(MetaError::NotStored)?;
        Ok((metric, names.collect()))
    }

    async fn read_ts_meta(
        &self,
        tsuid: &Tsuid,
    ) -> Result<Option<(StoredSeriesMeta, Bytes)>, MetaError> {
        let get = Get {
            row: Bytes::copy_from_slice(tsuid.as_bytes()),
            family: Some(Family::Name),
            qualifiers: [TS_COUNTER_QUALIFIER, TS_META_QUALIFIER]
                .map(|qualifier| Bytes::from_static(qualifier.as_bytes()))
                .into(),
        };
        let Some(row) = self.storage().get(&self.table, get).await? else { return Ok(None) };
        let Some(cell) = cell_of(&row, TS_META_QUALIFIER) else { return Ok(None) };
        let bytes = cell.value.clone();
        Ok(StoredSeriesMeta::read(*self.schema(), &row)?.map(|stored| (stored, bytes)))
    }

    async fn swap_ts_meta(
        &self,
        tsuid: &Tsuid,
        expected: Option<Bytes>,
        meta: &TsMeta,
    ) -> Result<bool, StorageError> {
        let column = Column {
            row: Bytes::copy_from_slice(tsuid.as_bytes()),
            family: Family::Name,
            qualifier: Bytes::from_static(TS_META_QUALIFIER.as_bytes()),
        };
        let value = Bytes::from(meta.to_json());
        self.storage().compare_and_set(&self.table, column, expected, value).await
    }
}

impl fmt::Debug for MetaObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaObjects").field("table", &self.table).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
