//! Scans with filters: server filters do not change the result.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{Family, TagkUid, TagvUid};
use tsd_storage::{
    CellBatch, CellRef, RowFilter, Scan, SeriesSet, StorageExt, TagCondition, TagPattern,
};
use tsd_storage_hbase::HBaseStorage;

use crate::cells::{bytes, data, scan};

/// Keys of salt, metric, hour and up to three tags, one byte each.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for hour in [1_u8, b'\n', 200] {
        for host in [1_u8, 2, b'\n', 255] {
            for dc in [0_u8, 7, b'\\'] {
                let tags = [Some((b'a', host)), Some((b'd', dc)), Some((b'z', 1))];
                for present in 0..8_usize {
                    let mut key = vec![0, b'm', hour];
                    for (at, (tagk, tagv)) in tags.into_iter().flatten().enumerate() {
                        if present & (1 << at) != 0 {
                            key.extend([tagk, tagv]);
                        }
                    }
                    keys.push(key);
                }
            }
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

fn filters() -> Vec<RowFilter> {
    let condition = |tagk: u8, tagvs: Option<&[u8]>| TagCondition {
        tagk: TagkUid::try_new(&[tagk]).unwrap(),
        tagvs: tagvs
            .map(|values| values.iter().map(|v| TagvUid::try_new(&[*v]).unwrap()).collect()),
    };
    let tags = |conditions: &[TagCondition], explicit| {
        let conditions = conditions.to_vec();
        RowFilter::Tags(Arc::new(TagPattern {
            tags_start: 3,
            tagk_width: 1,
            tagv_width: 1,
            conditions,
            explicit,
        }))
    };
    let any_host = condition(b'a', None);
    let hosts = condition(b'a', Some(&[2, b'\n', 255]));
    let dcs = condition(b'd', Some(&[7, b'\\']));
    let series = RowFilter::Series(Arc::new(SeriesSet {
        tags_start: 3,
        tags: [&[b'a', 1][..], &[b'a', 2, b'd', 7], &[b'z', 1]].map(bytes).to_vec(),
    }));
    let some = RowFilter::Keys(Arc::new(keys().into_iter().step_by(7).map(Bytes::from).collect()));
    let mut all = vec![series.clone(), some.clone()];
    for explicit in [false, true] {
        all.push(tags(&[], explicit));
        all.push(tags(std::slice::from_ref(&any_host), explicit));
        all.push(tags(&[hosts.clone(), dcs.clone()], explicit));
        all.push(tags(&[dcs.clone(), condition(b'z', None)], explicit));
        all.push(tags(&[condition(b'a', Some(&[]))], explicit));
        all.push(RowFilter::All(vec![
            tags(std::slice::from_ref(&hosts), explicit),
            series.clone(),
        ]));
        all.push(RowFilter::All(vec![tags(std::slice::from_ref(&dcs), explicit), some.clone()]));
    }
    all
}

pub(crate) async fn filtered_scan_returns_the_matching_rows(store: &HBaseStorage) {
    let mut batch = CellBatch::new();
    for key in keys() {
        batch.begin_row(&key).unwrap();
        let cell = CellRef { family: Family::T, qualifier: b"q", value: b"", timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    store.put(&data(), batch).await.unwrap();
    for filter in filters() {
        for batch_rows in [None, Some(3)] {
            let what = Scan {
                start: bytes(b"\0m"),
                stop: bytes(b"\0n"),
                filter: Some(filter.clone()),
                batch_rows,
                ..Scan::default()
            };
            let expected: Vec<_> = keys().into_iter().filter(|key| filter.matches(key)).collect();
            let found: Vec<_> =
                scan(store, what.clone()).await.into_iter().map(|row| row.key).collect();
            assert_eq!(found, expected, "{filter:?}");
            let limited = scan(store, Scan { limit: Some(5), ..what }).await;
            assert_eq!(limited.len(), expected.len().min(5));
        }
    }
}
