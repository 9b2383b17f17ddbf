//! From TSUIDs to names, many at a time: what the last points and the look-up of series show.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use tsd_model::{TableSchema, Uid, UidKind};

use crate::uid::{UidAdmin, UidError};

/// UIDs in one read of the UID table.
const UIDS_A_READ: usize = 1_024;
/// Such reads at once.
const READS_AT_ONCE: usize = 4;

/// Metric and tags of a series; the tags by the UIDs of their keys.
pub(crate) type SeriesName = (String, Vec<(String, String)>);

/// A TSUID, taken apart.
struct SeriesUids {
    metric: Uid,
    tags: Vec<(Uid, Uid)>,
}

/// Names of series, in the order asked. A UID without a name fails them all.
pub(crate) async fn series_names(
    schema: &TableSchema,
    uids: &UidAdmin,
    tsuids: &[Bytes],
) -> Result<Vec<SeriesName>, UidError> {
    let series: Vec<SeriesUids> =
        tsuids.iter().map(|tsuid| split(*schema, tsuid)).collect::<Result<_, _>>()?;
    let metrics = names(uids, UidKind::Metric, series.iter().map(|s| s.metric)).await?;
    let pairs = || series.iter().flat_map(|s| s.tags.iter().copied());
    let tagks = names(uids, UidKind::Tagk, pairs().map(|(tagk, _)| tagk)).await?;
    let tagvs = names(uids, UidKind::Tagv, pairs().map(|(_, tagv)| tagv)).await?;
    // Each of them was looked up, and a UID without name is an error.
    let name = |names: &HashMap<Uid, String>, uid| names.get(uid).cloned().unwrap_or_default();
    Ok(series
        .iter()
        .map(|s| {
            let tags = s.tags.iter().map(|(k, v)| (name(&tagks, k), name(&tagvs, v))).collect();
            (name(&metrics, &s.metric), tags)
        })
        .collect())
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

async fn names(
    uids: &UidAdmin,
    kind: UidKind,
    wanted: impl Iterator<Item = Uid>,
) -> Result<HashMap<Uid, String>, UidError> {
    let distinct: Vec<Uid> = wanted.collect::<BTreeSet<_>>().into_iter().collect();
    let reads: Vec<Vec<Uid>> = distinct.chunks(UIDS_A_READ).map(<[Uid]>::to_vec).collect();
    let mut reads = stream::iter(reads)
        .map(|chunk| async move { (uids.names_of(kind, &chunk).await, chunk) })
        .buffer_unordered(READS_AT_ONCE);
    let mut found = HashMap::with_capacity(distinct.len());
    while let Some((names, chunk)) = reads.next().await {
        for (uid, name) in chunk.into_iter().zip(names?) {
            let unknown = || UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() };
            found.insert(uid, name.ok_or_else(unknown)?);
        }
    }
    Ok(found)
}
