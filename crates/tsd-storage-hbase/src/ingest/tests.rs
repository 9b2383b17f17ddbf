use hbase_rs::MutationBatch;
use tsd_model::Family;
use tsd_storage::FlushCell;

use super::*;

fn held(delete_row: Option<i64>, times: &[i64]) -> (Option<i64>, usize, usize) {
    let qualifiers: Vec<[u8; 1]> = (0..times.len()).map(|at| [at as u8]).collect();
    let cells = qualifiers
        .iter()
        .zip(times)
        .map(|(qualifier, timestamp_ms)| FlushCell {
            family: Family::T,
            qualifier,
            value: b"",
            timestamp_ms: *timestamp_ms,
        })
        .collect();
    let row = FlushRow { key: b"row", delete_row, deletes: Vec::new(), cells };
    let (mut puts, mut deletes) = (MutationBatch::default(), MutationBatch::default());
    assert!(add_row(&row, &mut Coalescer::default(), &mut puts, &mut deletes).is_ok());
    (delete_time(&row), puts.len(), deletes.len())
}

#[test]
fn a_delete_reaches_up_to_its_time_and_never_over_what_came_after() {
    assert_eq!(held(None, &[5]), (None, 1, 0));
    assert_eq!(held(Some(4), &[5, 6]), (Some(4), 1, 1));
    assert_eq!(held(Some(4), &[]), (Some(4), 0, 1));
    assert_eq!(held(Some(i64::MAX), &[]), (Some(i64::MAX), 0, 1));
    assert_eq!(held(Some(i64::MAX), &[7, 9]), (Some(6), 1, 1));
}
