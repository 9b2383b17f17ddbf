//! Comparisons of two stores, and their repairs.

use super::*;
use tsd_storage::StorageExt;

#[tokio::test]
async fn deleted_rows_are_found_by_the_comparison() {
    let f = Fixture::new(unsalted(), salted());
    plant(&f.from).await;
    f.copy(run()).await.unwrap();
    let key = f.from.series("web", "a").await.row_key(BaseTime::containing(HOUR));
    f.from.store.delete(&Table::new("tsdb"), Delete::Row(key)).await.unwrap();
    let compared = f.compare(run()).await;
    let data = compared.iter().find(|table| table.from.as_str() == "tsdb").unwrap();
    assert_eq!((data.different, data.only_in_source, data.only_in_target), (0, 0, 1), "{data:?}");
    let found = f.progress.found();
    assert!(
        found.iter().any(|line| line.contains("(web host=a at 1356998400): only in the target"))
    );
    // A deleted point, a point that the target lacks, and a corrected point.
    let (source, target) = (f.from.first_row().await, f.to.first_row().await);
    let columns = |row, qualifier: [u8; 2]| {
        let columns = vec![(Family::T, Bytes::copy_from_slice(&qualifier))];
        Delete::Columns { row, columns }
    };
    let table = Table::new("tsdb");
    f.from.store.delete(&table, columns(source.clone(), [0, 0])).await.unwrap();
    f.to.store.delete(&table, columns(target.clone(), [0x03, 0xC0])).await.unwrap();
    f.from.put("tsdb", &source, Family::T, &[(&[0x07, 0x80], &[77], 9_000)]).await;
    let repairs = CopyRun { repairs: true, ..run() };
    let compared = f.compare(repairs).await;
    let data = compared.iter().find(|table| table.from.as_str() == "tsdb").unwrap();
    assert_eq!((data.different, data.only_in_target, data.repaired), (1, 1, 2), "{data:?}");
    f.assert_equal(run()).await;
}

#[tokio::test]
async fn compacted_rows_compare_equal() {
    let f = Fixture::new(unsalted(), unsalted());
    f.from.points("m", "a", HOUR, 3).await;
    f.copy(run()).await.unwrap();
    let key = f.to.series("m", "a").await.row_key(BaseTime::containing(HOUR));
    let row = f.to.store.get(&Table::new("tsdb"), Get::row(key.clone())).await.unwrap().unwrap();
    let cells = row.into_cells().unwrap();
    let qualifier: Vec<u8> = cells.iter().flat_map(|cell| cell.qualifier.to_vec()).collect();
    let mut value: Vec<u8> = cells.iter().flat_map(|cell| cell.value.to_vec()).collect();
    value.push(0);
    f.to.store.delete(&Table::new("tsdb"), Delete::Row(key.clone())).await.unwrap();
    f.to.put("tsdb", &key, Family::T, &[(&qualifier, &value, 1_002)]).await;
    f.assert_equal(run()).await;
    f.to.put("tsdb", &key, Family::T, &[(&[0, 0], &[9], 1_003)]).await;
    let compared = f.compare(run()).await;
    assert!(compared.iter().any(|table| table.different == 1));
}
