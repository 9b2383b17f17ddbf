//! Single rows and batches.

use futures_util::TryStreamExt;
use hbase_rs::{
    Append, BufferConfig, Compressor, Delete, Get, Increment, Put, SERVER_TIME, Scan, Selection,
    TimeRange, condition::Condition, errors::ExceptionClass,
};

use super::{Fixture, client_with, put};

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn rows_are_written_read_changed_and_deleted() {
    let fixture = Fixture::new("live_rows").await;
    let table = &fixture.table;
    let get = |row: &str| Get::try_new(row.to_owned()).unwrap();
    for version in 1..=4_u64 {
        let put =
            Put::try_new("a").unwrap().cell(b"f", b"q", version, &version.to_be_bytes()).unwrap();
        table.mutate(put).await.unwrap();
    }
    assert_eq!(table.get(&get("a")).await.unwrap().len(), 1);
    let three = get("a").select(Selection::all().max_versions(9).unwrap());
    let row = table.get(&three).await.unwrap();
    assert_eq!(row.cells().map(|cell| cell.timestamp).collect::<Vec<_>>(), [4, 3, 2]);
    let range = TimeRange::try_new(2, 4).unwrap();
    let row = table.get(&get("a").select(Selection::all().time_range(range))).await.unwrap();
    assert_eq!(row.cells().next().unwrap().timestamp, 3);
    assert!(table.exists(get("a")).await.unwrap());
    table.mutate(Delete::try_new("a").unwrap().version(b"f", b"q", 4).unwrap()).await.unwrap();
    assert_eq!(table.get(&get("a")).await.unwrap().cells().next().unwrap().timestamp, 3);
    table.mutate(Delete::try_new("a").unwrap()).await.unwrap();
    assert!(!table.exists(get("a")).await.unwrap());
    for expected in [7_i64, 14] {
        let row = table
            .mutate(Increment::try_new("z").unwrap().counter(b"f", b"n", 7).unwrap())
            .await
            .unwrap();
        assert_eq!(row.value(b"f", b"n").unwrap(), expected.to_be_bytes());
    }
    for expected in ["x", "xx"] {
        let row = table
            .mutate(Append::try_new("z").unwrap().value(b"f", b"s", b"x").unwrap())
            .await
            .unwrap();
        assert_eq!(row.value(b"f", b"s").unwrap(), expected.as_bytes());
    }
    let silent = Append::try_new("z").unwrap().value(b"f", b"s", b"x").unwrap().without_result();
    assert!(table.mutate(silent).await.unwrap().is_empty());
    let absent = Condition::absent("f", "q");
    assert!(table.check_and_mutate(&absent, put("c", "1")).await.unwrap());
    assert!(!table.check_and_mutate(&absent, put("c", "2")).await.unwrap());
    let both = || {
        vec![
            put("c", "3").into(),
            Delete::try_new("c").unwrap().column(b"f", b"r", SERVER_TIME).unwrap().into(),
        ]
    };
    assert!(!table.mutate_row(both(), Some(&absent)).await.unwrap());
    assert!(table.mutate_row(both(), Some(&Condition::equals("f", "q", "1"))).await.unwrap());
    assert!(table.mutate_row(both(), None).await.unwrap());
    assert_eq!(table.get(&get("c")).await.unwrap().value(b"f", b"q"), Some(&b"3"[..]));
    let family = Put::try_new("a").unwrap().cell(b"nope", b"q", 1, b"v").unwrap();
    assert_eq!(table.mutate(family).await.unwrap_err().class(), Some(ExceptionClass::NoSuchFamily));
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn batches_combine_all_kinds_of_actions() {
    let fixture = Fixture::new("live_batch").await;
    let rows = fixture.fill().await;
    let gets = rows.iter().map(|row| Get::try_new(row.clone()).unwrap()).collect();
    let read = fixture.table.get_many(gets).await.unwrap();
    assert!(read.iter().zip(&rows).all(|(row, key)| row.value(b"f", b"q") == Some(key.as_bytes())));
    let actions = vec![
        Get::try_new("a000").unwrap().into(),
        Increment::try_new("h").unwrap().counter(b"f", b"n", 1).unwrap().into(),
        put("t", "t").into(),
        Put::try_new("a").unwrap().cell(b"nope", b"q", 1, b"v").unwrap().into(),
        Append::try_new("z000").unwrap().value(b"f", b"q", b"!").unwrap().into(),
        Delete::try_new("b000").unwrap().into(),
        Get::try_new("missing").unwrap().into(),
    ];
    let outcomes = fixture.table.batch(actions).await;
    assert_eq!(outcomes[0].as_ref().unwrap().row.value(b"f", b"q"), Some(&b"a000"[..]));
    assert_eq!(outcomes[1].as_ref().unwrap().row.value(b"f", b"n"), Some(&1_i64.to_be_bytes()[..]));
    assert!(outcomes[2].is_ok() && outcomes[5].is_ok());
    assert_eq!(outcomes[3].as_ref().unwrap_err().class(), Some(ExceptionClass::NoSuchFamily));
    assert_eq!(outcomes[4].as_ref().unwrap().row.value(b"f", b"q"), Some(&b"z000!"[..]));
    assert!(outcomes[6].as_ref().unwrap().row.is_empty());
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn cell_blocks_are_compressed() {
    let fixture = Fixture::new("live_compressed").await;
    let version = fixture.admin().cluster_status().await.unwrap().version;
    for compressor in [Compressor::Snappy, Compressor::Gzip, Compressor::Zlib] {
        // Servers of the tests with an older Hadoop lack its native library.
        let has_old_hadoop = version.starts_with("2.4.") || version.starts_with("3.0.0-alpha");
        if compressor == Compressor::Snappy && has_old_hadoop {
            continue;
        }
        let client = client_with(|config| config.compressor = Some(compressor));
        let table = client.table(fixture.table.name().clone());
        let value = format!("{compressor:?}").repeat(100_000);
        table.mutate(put("a", &value)).await.unwrap();
        let row = table.get(&Get::try_new("a").unwrap()).await.unwrap();
        assert_eq!(row.value(b"f", b"q"), Some(value.as_bytes()));
    }
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn buffer_writes_all_and_reports_rejected_mutations() {
    let fixture = Fixture::new("live_buffer").await;
    let writer = fixture.table.buffered(BufferConfig::default());
    let mut receipts = Vec::new();
    for letter in 'a'..='z' {
        let mut batch = writer.batch(100, 100 * 64);
        for at in 0..100 {
            let row = format!("{letter}{at:02}");
            batch.put(row.as_bytes(), b"f", b"q", 1, row.as_bytes()).unwrap();
        }
        if letter == 'm' {
            batch.put(b"m50", b"nope", b"q", 1, b"v").unwrap();
        }
        receipts.push((letter, writer.submit(batch).await.unwrap()));
    }
    for (letter, receipt) in receipts {
        match receipt.await {
            Ok(()) => assert_ne!(letter, 'm'),
            Err(error) => {
                let failed: Vec<_> = error.failed.iter().map(|(at, _)| *at).collect();
                assert_eq!((letter, &failed[..]), ('m', &[100][..]));
                assert_eq!(error.failed[0].1.class(), Some(ExceptionClass::NoSuchFamily));
            }
        }
    }
    writer.close().await;
    let rows: Vec<_> = fixture.table.scan(Scan::all()).try_collect().await.unwrap();
    assert_eq!(rows.len(), 2_600);
    assert!(rows.iter().all(|row| row.row.value(b"f", b"q") == Some(row.row.key())));
    fixture.delete().await;
}
