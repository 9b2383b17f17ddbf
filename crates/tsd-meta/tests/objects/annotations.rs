#![expect(clippy::unwrap_used, reason = "tests")]

use tsd_engine::{
    EngineConfig, EngineHandle,
    testing::{TestStore, cells, config, dump, start, store},
};
use tsd_meta::{AnnotationEdit, AnnotationEditOutcome, AnnotationError};
use tsd_model::{Annotation, BaseTime, Family, SeriesKey, TableSchema, Tsuid};
use tsd_storage::{Fault, Operation, StorageError, StorageExt};

/// Limit of a stored annotation.
const MAX_ANNOTATION_BYTES: usize = 1 << 20;
const TSUID: [u8; 9] = [0, 0, 1, 0, 0, 1, 0, 0, 1];

fn tsuid() -> Tsuid {
    Tsuid::try_new(&TableSchema::opentsdb_default(), &TSUID).unwrap()
}

fn edit(start_time: i64, description: &str) -> AnnotationEdit {
    AnnotationEdit {
        start_time,
        description: Some(description.to_owned()),
        ..AnnotationEdit::default()
    }
}

async fn stored(engine: &EngineHandle, edit: AnnotationEdit) -> Annotation {
    match engine.annotations().edit(edit, false).await.unwrap() {
        AnnotationEditOutcome::Stored(annotation) => annotation,
        AnnotationEditOutcome::Unchanged => panic!("nothing was stored"),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as a reservation of memory")]
fn unlimited(_bytes: usize) -> Result<(), StorageError> {
    Ok(())
}

async fn starts(engine: &EngineHandle, range_ms: (i64, i64)) -> Vec<i64> {
    let annotations = engine.annotations().global(range_ms, unlimited).await.unwrap();
    annotations.into_iter().map(|annotation| annotation.start_time).collect()
}

async fn rows(store: &TestStore) -> Vec<String> {
    dump(store, &EngineConfig::default().tables.data).await
}

#[tokio::test]
async fn annotations_are_stored_as_in_opentsdb() {
    let store = store();
    let engine = start(config(), &store);
    stored(&engine, edit(1_356_998_405, "g")).await;
    stored(&engine, AnnotationEdit { tsuid: Some(tsuid()), ..edit(1_356_998_405, "l") }).await;
    let cells = rows(&store).await;
    let json = r#"{"startTime":1356998405,"endTime":0,"description":"g","notes":"","custom":null}"#;
    assert_eq!(
        cells.iter().map(|c| c.rsplit_once(' ').unwrap().0).collect::<Vec<_>>(),
        ["00000050E22700 t 010005", "00000150E22700000001000001 t 010005"]
    );
    assert!(cells.iter().any(|c| c.ends_with(&tsd_model::to_hex(json.as_bytes()))));
    let local = engine.annotations().get(Some(&tsuid()), 1_356_998_405).await.unwrap().unwrap();
    assert_eq!((local.description.as_str(), local.tsuid.as_str()), ("l", "000001000001000001"));
    assert_eq!(engine.annotations().get(None, 1_356_998_406).await.unwrap(), None);
}

#[tokio::test]
async fn annotations_of_series_are_salted_and_global_ones_are_not() {
    let store = store();
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let engine = start(settings, &store);
    stored(&engine, edit(7_200, "g")).await;
    stored(&engine, AnnotationEdit { tsuid: Some(tsuid()), ..edit(7_200, "l") }).await;
    let cells = rows(&store).await;
    assert!(cells.iter().any(|c| c.starts_with("0000000000001C20 t")), "{cells:?}");
    assert!(cells.iter().any(|c| c.starts_with("0800000100001C20000001000001 t")), "{cells:?}");
    assert_eq!(starts(&engine, (0, 10_000_000)).await, [7_200]);
    let deleted = engine.annotations().delete_range(&[tsuid()], true, (0, 10_000_000)).await;
    assert_eq!(deleted.unwrap(), 2);
    assert!(rows(&store).await.is_empty());
}

#[tokio::test]
async fn merging_keeps_unset_fields_and_replacing_does_not() {
    let engine = start(config(), &store());
    let custom = vec![("a".to_owned(), Some("1".to_owned()))];
    let first = AnnotationEdit {
        notes: Some("n".into()),
        custom: Some(custom.clone()),
        ..edit(1_356_998_400, "d")
    };
    stored(&engine, first).await;
    // The same second in milliseconds is the same cell; the smaller time is kept.
    let second = AnnotationEdit { end_time: Some(1_356_998_410), ..edit(1_356_998_400_000, "") };
    let merged = stored(&engine, second).await;
    let expected = Annotation {
        start_time: 1_356_998_400,
        end_time: 1_356_998_410,
        description: "d".into(),
        notes: "n".into(),
        custom: Some(custom),
        ..Annotation::default()
    };
    assert_eq!(merged, expected);
    let outcome = engine.annotations().edit(edit(1_356_998_400, "p"), true).await.unwrap();
    let expected =
        Annotation { start_time: 1_356_998_400, description: "p".into(), ..Annotation::default() };
    assert_eq!(outcome, AnnotationEditOutcome::Stored(expected));
}

#[tokio::test]
async fn edit_that_sets_no_field_writes_nothing() {
    let store = store();
    let engine = start(config(), &store);
    let nothing =
        AnnotationEdit { end_time: Some(0), notes: Some(String::new()), ..edit(1_356_998_400, "") };
    for replace in [false, true] {
        let outcome = engine.annotations().edit(nothing.clone(), replace).await.unwrap();
        assert_eq!(outcome, AnnotationEditOutcome::Unchanged);
    }
    assert!(rows(&store).await.is_empty());
    let error = engine.annotations().edit(edit(0, "d"), false).await.unwrap_err();
    assert_eq!(error.to_string(), "The start timestamp has not been set");
    assert!(engine.annotations().get(None, -1).await.is_err());
    assert!(engine.annotations().delete(None, 0).await.is_err());
}

#[tokio::test]
async fn concurrent_edits_are_all_applied() {
    let engine = start(config(), &store());
    let edits = (0..8).map(|i| {
        let engine = engine.clone();
        let mut edit = edit(1_356_998_400, "");
        match i % 4 {
            0 => edit.description = Some("d".into()),
            1 => edit.notes = Some("n".into()),
            2 => edit.end_time = Some(1_356_998_500),
            _ => edit.custom = Some(vec![("k".into(), Some("v".into()))]),
        }
        async move { engine.annotations().edit(edit, false).await.unwrap() }
    });
    futures_util::future::join_all(edits).await;
    let annotation = engine.annotations().get(None, 1_356_998_400).await.unwrap().unwrap();
    assert_eq!((annotation.description.as_str(), annotation.notes.as_str()), ("d", "n"));
    assert_eq!((annotation.end_time, annotation.custom.is_some()), (1_356_998_500, true));
}

#[tokio::test]
async fn annotation_of_another_writer_can_be_edited() {
    let store = store();
    let engine = start(config(), &store);
    let json = br#"{"endTime":0, "startTime": 1356998400, "description": "a b", "other": 1}"#;
    let cell = tsd_storage::CellRef {
        family: Family::T,
        qualifier: &[1, 0, 0],
        value: json,
        timestamp_ms: None,
    };
    let row = SeriesKey::global_annotations(&TableSchema::opentsdb_default())
        .row_key(BaseTime::containing(1_356_998_400));
    let batch = tsd_storage::CellBatch::single(&row, cell).unwrap();
    store.put(&config().tables.data, batch).await.unwrap();
    let edit = AnnotationEdit { notes: Some("n".into()), ..edit(1_356_998_400, "") };
    let annotation = stored(&engine, edit).await;
    assert_eq!((annotation.description.as_str(), annotation.notes.as_str()), ("a b", "n"));
}

#[tokio::test]
async fn global_annotations_outside_the_range_give_an_empty_list() {
    let engine = start(config(), &store());
    stored(&engine, edit(1_356_999_000, "x")).await;
    let ms = |secs: i64| secs * 1_000;
    let of_query = async |from: i64, to: i64| {
        let range = (ms(from), ms(to));
        let found = engine.annotations().global_of_query(range, unlimited).await.unwrap();
        found.map(|annotations| annotations.len())
    };
    assert_eq!(of_query(1_356_998_400, 1_356_999_000).await, Some(1));
    // In the last hour that is read, but after the end.
    assert_eq!(of_query(1_356_998_400, 1_356_998_999).await, Some(0));
    assert_eq!(of_query(1_356_999_001, 1_356_999_500).await, None);
    assert_eq!(of_query(1_357_002_000, 1_357_003_000).await, None);
}

#[tokio::test]
async fn global_annotations_are_selected_by_their_json_times() {
    let engine = start(config(), &store());
    // The second has a qualifier of another time; the last is in milliseconds.
    for start_time in [1_356_996_600, 1_356_998_000, 1_356_998_400, 1_357_001_999_500] {
        stored(&engine, edit(start_time, "x")).await;
    }
    let until = AnnotationEdit { end_time: Some(1_357_009_999), ..edit(1_356_998_401, "x") };
    stored(&engine, until).await;
    let ms = |secs: i64| secs * 1_000;
    assert_eq!(starts(&engine, (ms(1_356_998_000), ms(1_356_998_000))).await, [1_356_998_000]);
    assert_eq!(
        starts(&engine, (ms(1_356_998_000), ms(1_357_002_000))).await,
        [1_356_998_000, 1_356_998_400, 1_357_001_999_500]
    );
    assert_eq!(starts(&engine, (0, i64::MAX)).await.len(), 5);
    assert!(starts(&engine, (ms(1_356_998_402), ms(1_357_001_998))).await.is_empty());
}

#[tokio::test]
async fn range_delete_affects_only_the_given_series() {
    let store = store();
    let engine = start(config(), &store);
    tsd_engine::testing::put_one(&engine, "m", "host=a", 1_356_998_416, 7).await.unwrap();
    let other =
        Tsuid::try_new(&TableSchema::opentsdb_default(), &[0, 0, 1, 0, 0, 1, 0, 0, 2]).unwrap();
    for tsuid in [None, Some(tsuid()), Some(other)] {
        for start_time in [1_356_998_401, 1_357_005_600] {
            stored(&engine, AnnotationEdit { tsuid: tsuid.clone(), ..edit(start_time, "x") }).await;
        }
    }
    let range = (1_356_998_400_000, 1_357_006_400_000);
    assert_eq!(engine.annotations().delete_range(&[tsuid()], false, range).await.unwrap(), 2);
    assert_eq!(engine.annotations().delete_range(&[tsuid()], false, range).await.unwrap(), 0);
    assert_eq!(cells(&store, &config().tables.data).await.len(), 5, "a point and four annotations");
    assert_eq!(
        engine.annotations().delete_range(&[], true, (0, 1_356_998_401_000)).await.unwrap(),
        1
    );
    engine.annotations().delete(None, 1_357_005_600).await.unwrap();
    assert!(starts(&engine, (0, i64::MAX)).await.is_empty());
}

#[tokio::test]
async fn cell_timestamps_are_start_times_if_enabled() {
    let store = store();
    let mut settings = config();
    settings.rows.use_otsdb_timestamp = true;
    let engine = start(settings, &store);
    stored(&engine, edit(1_357_372_805, "s")).await;
    stored(&engine, edit(1_357_372_807_005, "ms")).await;
    let times: Vec<i64> = cells(&store, &config().tables.data)
        .await
        .into_iter()
        .map(|(_, cell)| cell.timestamp_ms)
        .collect();
    assert_eq!(times, [1_357_372_807_005, 1_357_372_805_000], "global rows come first");
}

#[tokio::test]
async fn storage_errors_are_returned() {
    let store = store();
    let engine = start(config(), &store);
    let fault = || Fault::Error(StorageError::Backend("region moved".into()));
    store.script(Operation::CompareAndSet, [fault()]);
    let error = engine.annotations().edit(edit(7_200, "x"), false).await.unwrap_err();
    assert_eq!(error.to_string(), "region moved");
    store.script(Operation::ScanBatch, [fault()]);
    assert!(engine.annotations().global((0, 1), unlimited).await.is_err());
}

/// Issue 37.
#[tokio::test]
async fn an_annotation_has_a_limit_of_bytes() {
    let engine = start(config(), &store());
    let edit_of = |length: usize| edit(7_200, &"d".repeat(length));
    stored(&engine, edit_of(MAX_ANNOTATION_BYTES - 100)).await;
    let more = AnnotationEdit { notes: Some("n".repeat(100)), ..edit(7_200, "") };
    for too_large in [edit_of(MAX_ANNOTATION_BYTES), more] {
        let error = engine.annotations().edit(too_large, false).await.unwrap_err();
        assert!(matches!(error, AnnotationError::TooLarge { bytes, limit } if bytes > limit));
    }
}

/// Issue 37: global annotations were read without an account of their memory.
#[tokio::test]
async fn global_annotations_are_reserved_as_they_are_read() {
    let engine = start(config(), &store());
    for start_time in 7_200..7_210 {
        stored(&engine, edit(start_time, &"d".repeat(1_000))).await;
    }
    let reserved = std::cell::Cell::new(0);
    let reserve = |bytes| {
        reserved.set(reserved.get() + bytes);
        if reserved.get() > 10_000 { Err(StorageError::DiskFull) } else { Ok(()) }
    };
    let range = (0, 10_000_000);
    let refused = engine.annotations().global(range, reserve).await;
    assert!(matches!(refused, Err(StorageError::DiskFull)));
    assert!((10_000..20_000).contains(&reserved.get()), "{}", reserved.get());
}
