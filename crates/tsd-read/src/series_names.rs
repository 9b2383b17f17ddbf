//! Resolves TSUIDs to the names of their series, in batches.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_meta::{Names, UidError};
use tsd_model::{TableSchema, Uid, UidKind};

use crate::query::QueryFailure;

/// UIDs per read of the UID table.
const UIDS_PER_READ: usize = 1_024;
/// Concurrent reads.
const CONCURRENT_READS: usize = 4;

/// Metric and tags of a series; the tags in order of the UIDs of their keys.
pub(crate) type SeriesName = (String, Vec<(String, String)>);

/// Series whose names are looked up together.
const SERIES_PER_STEP: usize = 4_096;

/// Bytes of memory of the texts of a name.
pub(crate) fn name_bytes(metric: &str, tags: &[(String, String)]) -> usize {
    let pair =
        |(tagk, tagv): &(String, String)| size_of::<(String, String)>() + tagk.len() + tagv.len();
    metric.len() + tags.iter().map(pair).sum::<usize>()
}

/// Names of series, in the order of `tsuids`; an error for a series with a UID that has no name. `reserve` gets the
/// memory of the names of a few thousand series at a time.
pub(crate) async fn reserved_names(
    schema: &TableSchema,
    uids: &dyn Names,
    tsuids: &[Bytes],
    mut reserve: impl FnMut(usize) -> Result<(), QueryFailure>,
) -> Result<Vec<Result<SeriesName, UidError>>, QueryFailure> {
    let mut names = Vec::new();
    for step in tsuids.chunks(SERIES_PER_STEP) {
        let found = series_names(schema, uids, step).await?;
        let named = found.iter().flatten();
        reserve(named.map(|(metric, tags)| name_bytes(metric, tags)).sum())?;
        names.extend(found);
    }
    Ok(names)
}

/// The UIDs of a TSUID.
struct SeriesUids {
    metric: Uid,
    tags: Vec<(Uid, Uid)>,
}

/// Names of series, in the order of `tsuids`.
async fn series_names(
    schema: &TableSchema,
    uids: &dyn Names,
    tsuids: &[Bytes],
) -> Result<Vec<Result<SeriesName, UidError>>, UidError> {
    let series: Vec<SeriesUids> =
        tsuids.iter().map(|tsuid| split(*schema, tsuid)).collect::<Result<_, _>>()?;
    let metrics = names(uids, UidKind::Metric, series.iter().map(|s| s.metric)).await?;
    let pairs = || series.iter().flat_map(|s| s.tags.iter().copied());
    let tagks = names(uids, UidKind::Tagk, pairs().map(|(tagk, _)| tagk)).await?;
    let tagvs = names(uids, UidKind::Tagv, pairs().map(|(_, tagv)| tagv)).await?;
    let named = |s: &SeriesUids| {
        let metric = name(&metrics, UidKind::Metric, &s.metric)?;
        let tag = |(k, v)| Ok((name(&tagks, UidKind::Tagk, k)?, name(&tagvs, UidKind::Tagv, v)?));
        let tags = s.tags.iter().map(|(k, v)| tag((k, v))).collect::<Result<_, UidError>>()?;
        Ok((metric, tags))
    };
    Ok(series.iter().map(named).collect())
}

fn name(names: &HashMap<Uid, String>, kind: UidKind, uid: &Uid) -> Result<String, UidError> {
    let unknown = || UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() };
    names.get(uid).cloned().ok_or_else(unknown)
}

fn split(schema: TableSchema, tsuid: &[u8]) -> Result<SeriesUids, UidError> {
    let uid = |kind, bytes: &[u8]| {
        Uid::try_new(bytes).map_err(|_| UidError::NoSuchUid { kind, uid: bytes.to_vec() })
    };
    let (metric, tags) =
        tsuid.split_at_checked(schema.metric_width()).unwrap_or((tsuid, Default::default()));
    let tags = tags
        .chunks_exact(schema.tag_pair_width())
        .map(|pair| {
            let (tagk, tagv) = pair.split_at(schema.tagk_width());
            Ok((uid(UidKind::Tagk, tagk)?, uid(UidKind::Tagv, tagv)?))
        })
        .collect::<Result<_, UidError>>()?;
    Ok(SeriesUids { metric: uid(UidKind::Metric, metric)?, tags })
}

/// The names of the UIDs that have one.
async fn names(
    uids: &dyn Names,
    kind: UidKind,
    requested: impl Iterator<Item = Uid>,
) -> Result<HashMap<Uid, String>, UidError> {
    let distinct: Vec<Uid> = requested.collect::<BTreeSet<_>>().into_iter().collect();
    let reads: Vec<Vec<Uid>> = distinct.chunks(UIDS_PER_READ).map(<[Uid]>::to_vec).collect();
    let mut reads = stream::iter(reads)
        .map(|chunk| async move { (uids.names_of(kind, &chunk).await, chunk) })
        .buffer_unordered(CONCURRENT_READS);
    let mut found = HashMap::with_capacity(distinct.len());
    while let Some((names, chunk)) = reads.next().await {
        for (uid, name) in chunk.into_iter().zip(names?) {
            found.extend(name.map(|name| (uid, name)));
        }
    }
    Ok(found)
}
