#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use futures_util::future::join_all;
use tsd_engine::{
    EngineConfig, EngineHandle, MetaTracking,
    testing::{TestStore, config, dump, put_one, start, store},
};
use tsd_meta::{MetaEditOutcome, MetaError};
use tsd_model::{Family, TsMetaEdit, Tsuid, UidKind, UidMeta, UidMetaEdit};
use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageError, StorageExt};

const A: &[u8] = &[0, 0, 1, 0, 0, 1, 0, 0, 1];

/// A series, and its engine without tracking.
async fn with_series() -> (Arc<TestStore>, EngineHandle) {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    (store, engine)
}

fn tsuid() -> Tsuid {
    Tsuid::try_new(&EngineConfig::default().schema, A).unwrap()
}

fn noted(text: &str) -> UidMetaEdit {
    UidMetaEdit { notes: Some(text.to_owned()), ..UidMetaEdit::default() }
}

fn stored<T>(outcome: MetaEditOutcome<T>) -> T {
    match outcome {
        MetaEditOutcome::Stored(object) => object,
        MetaEditOutcome::Unchanged => panic!("nothing was stored"),
    }
}

async fn meta_cells(store: &TestStore) -> Vec<String> {
    let tables = EngineConfig::default().tables;
    let mut cells = dump(store, &tables.uid).await;
    cells.retain(|cell| cell.contains("_meta "));
    cells.extend(dump(store, &tables.meta).await);
    cells
}

#[tokio::test]
async fn a_name_without_uid_meta_has_defaults() {
    let (_store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let found = meta.uid_meta(UidKind::Tagk, &[0, 0, 1]).await.unwrap();
    assert_eq!((found.name.as_str(), found.uid.to_string().as_str()), ("host", "000001"));
    assert_eq!(found.meta, UidMeta::new(UidKind::Tagk, 0));
    let missing = meta.uid_meta(UidKind::Tagk, &[0, 0, 2]).await;
    assert!(matches!(missing, Err(MetaError::NoSuchUid { kind: UidKind::Tagk, .. })));
    let short = meta.uid_meta(UidKind::Tagk, &[1]).await;
    assert!(matches!(short, Err(MetaError::WrongWidth { found: 1, expected: 3, .. })));
}

#[tokio::test]
async fn edits_of_uid_meta_are_merged_or_replace_and_deletes_remove_them() {
    let (store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let edit = |edit, replace| async move {
        meta.edit_uid_meta(UidKind::Metric, &[0, 0, 1], &edit, replace).await
    };
    stored(edit(noted("n"), false).await.unwrap());
    let described = UidMetaEdit { description: Some("d".to_owned()), ..UidMetaEdit::default() };
    let merged = stored(edit(described.clone(), false).await.unwrap());
    assert_eq!((merged.meta.notes.as_str(), merged.meta.description.as_str()), ("n", "d"));
    let replaced = stored(edit(described, true).await.unwrap());
    assert_eq!((replaced.meta.notes.as_str(), replaced.meta.description.as_str()), ("", "d"));
    assert_eq!(meta.uid_meta(UidKind::Metric, &[0, 0, 1]).await.unwrap(), replaced);
    let unchanged = edit(UidMetaEdit::default(), true).await.unwrap();
    assert_eq!(unchanged, MetaEditOutcome::Unchanged);
    let unknown = meta.edit_uid_meta(UidKind::Metric, &[0, 0, 9], &noted("x"), false).await;
    assert!(matches!(unknown, Err(MetaError::NoSuchUid { .. })));
    meta.delete_uid_meta(UidKind::Metric, &[0, 0, 1]).await.unwrap();
    meta.delete_uid_meta(UidKind::Metric, &[1]).await.unwrap();
    assert_eq!(meta_cells(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn concurrent_edits_are_all_applied() {
    let (_store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let text = |text: &str| Some(text.to_owned());
    let edits = [
        noted("n"),
        UidMetaEdit { description: text("d"), ..UidMetaEdit::default() },
        UidMetaEdit { display_name: text("D"), ..UidMetaEdit::default() },
        UidMetaEdit { custom: Some(vec![("k".to_owned(), text("v"))]), ..UidMetaEdit::default() },
    ];
    let all = edits.iter().map(|edit| meta.edit_uid_meta(UidKind::Tagv, &[0, 0, 1], edit, false));
    for outcome in join_all(all).await {
        stored(outcome.unwrap());
    }
    let found = meta.uid_meta(UidKind::Tagv, &[0, 0, 1]).await.unwrap().meta;
    assert_eq!(
        found,
        UidMeta {
            notes: "n".to_owned(),
            description: "d".to_owned(),
            display_name: "D".to_owned(),
            custom: Some(vec![("k".to_owned(), text("v"))]),
            ..UidMeta::new(UidKind::Tagv, 0)
        }
    );
}

#[tokio::test]
async fn series_meta_is_created_edited_and_deleted() {
    let (store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let edit = TsMetaEdit { units: Some("s".to_owned()), ..TsMetaEdit::default() };
    let missing = meta.edit_series_meta(&tsuid(), &edit, false).await;
    assert!(matches!(missing, Err(MetaError::NotStored)), "{missing:?}");
    assert_eq!(meta.series_meta(A).await.unwrap(), None);
    let created = stored(meta.create_series_meta(&tsuid(), &edit, false).await.unwrap());
    assert_eq!((created.meta.units.as_str(), created.data_points), ("s", 0));
    assert_eq!(created.metric.name, "m");
    let names: Vec<&str> = created.tags.iter().map(|tag| tag.name.as_str()).collect();
    assert_eq!(names, ["host", "a"]);
    let maximum = TsMetaEdit { max: Some(1.5), ..TsMetaEdit::default() };
    // It exists now, so this is an edit.
    let edited = stored(meta.create_series_meta(&tsuid(), &maximum, false).await.unwrap());
    assert_eq!((edited.meta.units.as_str(), edited.meta.max), ("s", 1.5));
    let read = meta.series_meta(A).await.unwrap().unwrap();
    assert_eq!((read.meta.tsuid.as_str(), read.meta.max), ("000001000001000001", 1.5));
    meta.delete_series_meta(A).await.unwrap();
    assert_eq!(meta.series_meta(A).await.unwrap(), None);
    assert_eq!(meta_cells(&store).await, ["000001000001000001 name ts_ctr 0000000000000000"]);
}

#[tokio::test]
async fn a_series_whose_names_are_unknown_gets_no_meta() {
    let (store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let unknown = Tsuid::try_new(meta.schema(), &[0, 0, 1, 0, 0, 1, 0, 0, 7]).unwrap();
    let created = meta.create_series_meta(&unknown, &TsMetaEdit::default(), false).await;
    assert!(matches!(created, Err(MetaError::NoSuchUid { kind: UidKind::Tagv, .. })));
    assert_eq!(meta_cells(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn points_keep_an_object_that_was_created_before_them() {
    let store = store();
    let mut settings = config();
    settings.meta_tracking = MetaTracking::Count;
    let engine = start(settings, &store);
    for (kind, name) in [(UidKind::Metric, "m"), (UidKind::Tagk, "host"), (UidKind::Tagv, "a")] {
        engine.uids().assign(kind, name).await.unwrap();
    }
    let meta = engine.meta_objects();
    let edit = TsMetaEdit { units: Some("s".to_owned()), ..TsMetaEdit::default() };
    stored(meta.create_series_meta(&tsuid(), &edit, false).await.unwrap());
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    engine.drain_tracking().await;
    let read = meta.series_meta(A).await.unwrap().unwrap();
    assert_eq!((read.meta.units.as_str(), read.data_points), ("s", 1));
}

#[tokio::test]
async fn unreadable_objects_and_failed_stores_are_errors() {
    let (store, engine) = with_series().await;
    let meta = engine.meta_objects();
    let cell = CellRef {
        family: Family::Name,
        qualifier: b"ts_meta",
        value: b"no object",
        timestamp_ms: None,
    };
    store.put(&meta.table, CellBatch::single(A, cell).unwrap()).await.unwrap();
    assert!(matches!(meta.series_meta(A).await, Err(MetaError::Unreadable(_))));
    store.script(Operation::Get, [Fault::Error(StorageError::DiskFull)]);
    let failed = meta.uid_meta(UidKind::Metric, &[0, 0, 1]).await;
    assert!(matches!(failed, Err(MetaError::Storage(StorageError::DiskFull))), "{failed:?}");
}
