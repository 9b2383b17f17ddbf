//! Scans.

use futures_util::TryStreamExt;
use hbase_rs::{Put, Scan, ScanRow};

use super::Fixture;

fn keys(rows: &[ScanRow]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8(row.row.key().to_vec()).unwrap()).collect()
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn scans_respect_ranges_limits_and_directions() {
    let fixture = Fixture::new("live_scans").await;
    let rows = fixture.fill().await;
    let collect = |scan: Scan| fixture.table.scan(scan).try_collect::<Vec<_>>();
    for per_call in [u32::MAX >> 1, 100, 7] {
        let scan = Scan::all().per_call(per_call, 1 << 20);
        assert_eq!(keys(&collect(scan.clone()).await.unwrap()), rows);
        let mut back = keys(&collect(scan.reversed()).await.unwrap());
        back.reverse();
        assert_eq!(back, rows);
    }
    let between = |from: &str, to: &str| -> Vec<String> {
        rows.iter().filter(|row| row.as_str() >= from && row.as_str() < to).cloned().collect()
    };
    assert_eq!(keys(&collect(Scan::range("e", "r")).await.unwrap()), between("e", "r"));
    assert_eq!(keys(&collect(Scan::range("a", "g")).await.unwrap()), between("a", "g"));
    assert_eq!(keys(&collect(Scan::prefix("p")).await.unwrap()), between("p", "q"));
    assert_eq!(keys(&collect(Scan::all().limit(500)).await.unwrap()), rows[..500]);
    assert_eq!(keys(&collect(Scan::range("h", "").limit(1)).await.unwrap()), ["h000"]);
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn long_rows_are_returned_whole_or_in_parts() {
    let fixture = Fixture::new("live_pieces").await;
    for row in ["a", "h", "z"] {
        let mut put = Put::try_new(row).unwrap();
        for at in 0..1_000_u32 {
            put = put.cell(b"f", &at.to_be_bytes(), 1, &[7; 100]).unwrap();
        }
        fixture.table.mutate(put).await.unwrap();
    }
    // Responses far smaller than a row.
    let small = Scan::all().per_call(u32::MAX >> 1, 10_000);
    let whole: Vec<_> = fixture.table.scan(small.clone()).try_collect().await.unwrap();
    assert!(whole.iter().all(|row| row.row.len() == 1_000 && !row.partial));
    assert_eq!(keys(&whole), ["a", "h", "z"]);
    for scan in [small.clone().batch(300), small.partial_rows()] {
        let parts: Vec<_> = fixture.table.scan(scan).try_collect().await.unwrap();
        let cells: Vec<_> = parts
            .iter()
            .flat_map(|part| {
                part.row.cells().map(|cell| (cell.row.to_vec(), cell.qualifier.to_vec()))
            })
            .collect();
        assert_eq!(cells.len(), 3_000);
        assert!(cells.is_sorted());
    }
    fixture.delete().await;
}
