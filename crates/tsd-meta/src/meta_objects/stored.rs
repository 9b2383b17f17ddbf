//! Decodes rows and cells of TSMeta and UIDMeta objects. It reads and writes nothing.

use bytes::Bytes;
use tsd_model::{
    Cell, Family, JsonError, NamedUidMeta, Row, SeriesMeta, TS_COUNTER_QUALIFIER,
    TS_META_QUALIFIER, TableSchema, TsMeta, Tsuid, Uid, UidKind, UidMeta, decode_counter,
    decode_latin1,
};
use tsd_storage::{Column, Get};

use super::error::MetaError;

/// The UIDMeta of the metric and of the tags of a series; for tags: key, value, key, value.
pub type SeriesNames = (NamedUidMeta, Vec<NamedUidMeta>);

/// A row of the meta table with a TSMeta.
#[derive(Clone, Debug)]
pub struct StoredSeriesMeta {
    /// The series.
    pub tsuid: Tsuid,
    /// The object.
    pub meta: TsMeta,
    /// Time of the last point, in epoch seconds.
    pub last_received: i64,
    /// Number of points that were counted.
    pub data_points: i64,
}

impl StoredSeriesMeta {
    /// Decodes a row; `None` if it has no TSMeta, or its key is not a series.
    pub fn read(schema: TableSchema, row: &Row) -> Result<Option<Self>, JsonError> {
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
    #[must_use]
    pub fn with_names(self, (metric, tags): SeriesNames) -> SeriesMeta {
        let Self { meta, last_received, data_points, .. } = self;
        SeriesMeta { meta, metric, tags, last_received, data_points }
    }
}

/// The UIDs of a series: its metric, then key and value of each tag.
#[must_use]
pub fn uids_of_series(schema: TableSchema, tsuid: &[u8]) -> Vec<(UidKind, Uid)> {
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
#[must_use]
pub fn cell_of<'r>(row: &'r Row, qualifier: &str) -> Option<&'r Cell> {
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
#[must_use]
pub fn uid_meta_get(kind: UidKind, uid: Uid) -> Get {
    Get {
        row: Bytes::copy_from_slice(uid.as_bytes()),
        family: Some(Family::Name),
        qualifiers: [kind.as_str(), kind.meta_qualifier()]
            .map(|qualifier| Bytes::from_static(qualifier.as_bytes()))
            .into(),
        reads_past_losses: false,
    }
}

/// Decodes the row of a UID: the object, and the bytes of its cell if it is stored.
pub fn named_uid_meta(
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
        // The column determines the kind.
        Some(bytes) => UidMeta { kind, ..UidMeta::from_json(kind, bytes)? },
        None => UidMeta::new(kind, 0),
    };
    Ok((NamedUidMeta { uid, name, meta }, stored))
}
