//! Rows and cells of TSMeta and UIDMeta objects, decoded. It reads and writes none.

use bytes::Bytes;
use tsd_model::{
    Cell, Family, JsonError, NamedUidMeta, Row, SeriesMeta, TS_COUNTER_QUALIFIER,
    TS_META_QUALIFIER, TableSchema, TsMeta, Tsuid, Uid, UidKind, UidMeta, decode_counter,
    decode_latin1,
};
use tsd_storage::{Column, Get};

use super::error::MetaError;

/// The UIDMeta of the metric of a series, and those of its tags: key, value, key, value.
pub(crate) type SeriesNames = (NamedUidMeta, Vec<NamedUidMeta>);

/// A row of the meta table with a TSMeta.
#[derive(Clone, Debug)]
pub(crate) struct StoredSeriesMeta {
    pub(crate) tsuid: Tsuid,
    pub(crate) meta: TsMeta,
    pub(crate) last_received: i64,
    pub(crate) data_points: i64,
}

impl StoredSeriesMeta {
    /// Decodes a row; `None` if it has no TSMeta, or is that of no series.
    pub(crate) fn read(schema: TableSchema, row: &Row) -> Result<Option<Self>, JsonError> {
        let Ok(tsuid) = Tsuid::try_new(&schema, &row.key) else { return Ok(None) };
        let Some(cell) = cell_of(row, TS_META_QUALIFIER) else { return Ok(None) };
        let mut meta = TsMeta::from_json(&cell.value)?;
        if meta.tsuid.is_empty() {
            meta.tsuid = tsuid.to_string();
        }
        let counter = cell_of(row, TS_COUNTER_QUALIFIER);
        Ok(Some(Self {
            tsuid,
            meta,
            last_received: counter.map_or(0, |cell| cell.timestamp_ms / 1_000),
            data_points: counter.and_then(|cell| decode_counter(&cell.value)).unwrap_or(0),
        }))
    }

    /// Adds the UIDMeta of the metric and of the tags.
    pub(crate) fn with_names(self, (metric, tags): SeriesNames) -> SeriesMeta {
        let Self { meta, last_received, data_points, .. } = self;
        SeriesMeta { meta, metric, tags, last_received, data_points }
    }
}

/// The UIDs of a series: its metric, then key and value of each tag.
pub(crate) fn uids_of_series(schema: TableSchema, tsuid: &[u8]) -> Vec<(UidKind, Uid)> {
    let (metric, tags) =
        tsuid.split_at_checked(schema.metric_width()).unwrap_or((tsuid, Default::default()));
    let pairs = tags.chunks_exact(schema.tag_pair_width()).flat_map(|pair| {
        let (tagk, tagv) = pair.split_at(schema.tagk_width());
        [(UidKind::Tagk, tagk), (UidKind::Tagv, tagv)]
    });
    [(UidKind::Metric, metric)]
        .into_iter()
        .chain(pairs)
        // A schema has widths of one to eight bytes.
        .filter_map(|(kind, bytes)| Some((kind, Uid::try_new(bytes).ok()?)))
        .collect()
}

/// The cell of a column of the family `name`.
pub(crate) fn cell_of<'r>(row: &'r Row, qualifier: &str) -> Option<&'r Cell> {
    row.cells
        .iter()
        .find(|cell| cell.family == Family::Name && cell.qualifier == qualifier.as_bytes())
}

pub(crate) fn uid_meta_column(kind: UidKind, uid: Uid) -> Column {
    Column {
        row: Bytes::copy_from_slice(uid.as_bytes()),
        family: Family::Name,
        qualifier: Bytes::from_static(kind.meta_qualifier().as_bytes()),
    }
}

/// Reads the name of a UID and its UIDMeta.
pub(crate) fn uid_meta_get(kind: UidKind, uid: Uid) -> Get {
    Get {
        row: Bytes::copy_from_slice(uid.as_bytes()),
        family: Some(Family::Name),
        qualifiers: [kind.as_str(), kind.meta_qualifier()]
            .map(|qualifier| Bytes::from_static(qualifier.as_bytes()))
            .into(),
    }
}

/// Decodes the row of a UID: the object, and the bytes of its cell if it is stored.
pub(crate) fn named_uid_meta(
    kind: UidKind,
    uid: Uid,
    row: Option<&Row>,
) -> Result<(NamedUidMeta, Option<Bytes>), MetaError> {
    let no_such_uid = || MetaError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() };
    let row = row.ok_or_else(no_such_uid)?;
    let name = cell_of(row, kind.as_str()).ok_or_else(no_such_uid)?;
    let name = decode_latin1(&name.value);
    let stored = cell_of(row, kind.meta_qualifier()).map(|cell| cell.value.clone());
    let meta = match &stored {
        // The column says which kind it is.
        Some(bytes) => UidMeta { kind, ..UidMeta::from_json(kind, bytes)? },
        None => UidMeta::new(kind, 0),
    };
    Ok((NamedUidMeta { uid, name, meta }, stored))
}
