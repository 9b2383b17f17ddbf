//! Meta objects (TSMeta and UIDMeta): JSON cells of the meta table and of the UID table.
//!
//! An edit reads the cell, merges, and writes the cell back by compare-and-set against the bytes it read. After a
//! conflict it retries, so that all concurrent edits are applied. Nothing is cached. Names are read together with the
//! objects, so an object never has a name that its UID no longer has.
//!
//! Lists of objects are in `meta_search`.

mod error;
mod stored;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_model::{
    Family, MetricUid, NamedUidMeta, Row, SeriesMeta, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER,
    TableSchema, TagkUid, TagvUid, TsMeta, TsMetaEdit, Tsuid, Uid, UidKind, UidMetaEdit,
    encode_counter,
};
use tsd_storage::{Column, Delete, Get, Storage, StorageError, StorageExt, Table};

pub use error::MetaError;
use stored::uid_meta_column;
pub use stored::{
    SeriesNames, StoredSeriesMeta, cell_of, named_uid_meta, uid_meta_get, uids_of_series,
};

use crate::names::Names;

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
    /// Names and their UIDs.
    pub names: Arc<dyn Names>,
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The UID table, which has the UIDMeta.
    pub uid_table: Table,
    /// The meta table, which has the TSMeta.
    pub table: Table,
    /// Widths of the UIDs.
    pub schema: TableSchema,
}

impl MetaObjects {
    /// The UIDMeta of a UID; an object with defaults if none is stored.
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
            if storage.compare_and_set(&self.uid_table, column, expected, value).await? {
                return Ok(MetaEditOutcome::Stored(NamedUidMeta { uid, name, meta }));
            }
        }
        Err(MetaError::Contended)
    }

    /// Deletes the UIDMeta of a UID, if there is one.
    pub async fn delete_uid_meta(&self, kind: UidKind, uid: &[u8]) -> Result<(), MetaError> {
        let Ok(uid) = self.uid(kind, uid) else {
            // A row of another width has no UIDMeta.
            return Ok(());
        };
        let Column { row, family, qualifier } = uid_meta_column(kind, uid);
        let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
        Ok(self.storage().delete(&self.uid_table, delete).await?)
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

    /// Like [`Self::edit_series_meta`], but creates a missing TSMeta. Also creates a counter of 0 if the series has no
    /// counter.
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
            // Another writer has just created it.
        }
        self.edit_series_meta(tsuid, edit, replace).await
    }

    /// Sets the creation time of a stored TSMeta to that of its oldest points, if that is earlier, and adds a missing
    /// TSUID. Does not read the names of the series.
    pub async fn correct_series_meta(&self, tsuid: &Tsuid, created: i64) -> Result<(), MetaError> {
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

    /// The TSUID of a series with these names. Fails if a name has no UID.
    pub async fn tsuid_of(
        &self,
        metric: &str,
        tags: &[(String, String)],
    ) -> Result<Vec<u8>, MetaError> {
        let mut pairs: Vec<(TagkUid, TagvUid)> = Vec::with_capacity(tags.len());
        for (tagk, tagv) in tags {
            pairs.push((self.names.uid(tagk).await?, self.names.uid(tagv).await?));
        }
        pairs.sort_unstable();
        let metric: MetricUid = self.names.uid(metric).await?;
        let mut tsuid = metric.as_bytes().to_vec();
        for (tagk, tagv) in pairs {
            tsuid.extend_from_slice(tagk.as_bytes());
            tsuid.extend_from_slice(tagv.as_bytes());
        }
        Ok(tsuid)
    }

    /// The UIDMeta of UIDs, in their order. Fails if a UID has no name.
    pub(crate) async fn uid_metas(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<NamedUidMeta>, MetaError> {
        let rows = self.uid_rows(uids).await?;
        let rows = uids.iter().zip(&rows);
        rows.map(|((kind, uid), row)| Ok(named_uid_meta(*kind, *uid, row.as_ref())?.0)).collect()
    }

    /// Like `uid_metas`, with `None` for UIDs without a name or with an invalid object.
    pub async fn known_uid_metas(
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
        self.storage().multi_get(&self.uid_table, gets).await
    }

    /// Widths of the UIDs.
    #[must_use]
    pub const fn schema(&self) -> &TableSchema {
        &self.schema
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
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
        let row = self.storage().get(&self.uid_table, get).await?;
        named_uid_meta(kind, uid, row.as_ref())
    }

    /// The UIDMeta of the metric and of the tags of a series.
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
            reads_past_losses: false,
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
