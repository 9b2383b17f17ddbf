//! Searches of what an engine has stored.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_meta::AnnotationEdit;
use tsd_model::{Family, SeriesMeta, TableSchema, TsMetaEdit, Tsuid, UidKind, UidMetaEdit, to_hex};
use tsd_query::{LimitError, QueryError, SearchText};
use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageExt};

use crate::{
    EngineConfig, EngineHandle, MetaSearch, QueryControl, QueryFailure, SearchPage, SearchResult,
    SearchTarget,
    testing::{TestStore, config, put_one, start, store},
};

const HOUR: i64 = 1_356_998_400;

/// Series `m host=h00 dc=x` to `h29`, each with a TSMeta; salted.
async fn filled(settings: EngineConfig) -> (Arc<TestStore>, EngineHandle) {
    let store = store();
    let mut settings = settings;
    settings.schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let engine = start(settings, &store);
    for host in 0..30 {
        let tags = format!("host=h{host:02} dc=x");
        put_one(&engine, "m", &tags, HOUR, 1).await.unwrap();
        let edit = TsMetaEdit {
            notes: Some(format!("number {host}")),
            custom: Some(vec![("Owner".to_owned(), Some("ops team".to_owned()))]),
            ..TsMetaEdit::default()
        };
        let tsuid = tsuid_of(&engine, &format!("h{host:02}")).await;
        engine.meta_objects().create_series_meta(&tsuid, &edit, false).await.unwrap();
    }
    (store, engine)
}

async fn tsuid_of(engine: &EngineHandle, host: &str) -> Tsuid {
    let tags = [("host", host), ("dc", "x")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let bytes = engine.meta_objects().tsuid_of("m", &tags).await.unwrap();
    Tsuid::try_new(&engine.config().schema, &bytes).unwrap()
}

async fn search(
    engine: &EngineHandle,
    target: SearchTarget,
    text: &str,
    (start_index, limit): (usize, usize),
) -> Result<SearchResult, QueryFailure> {
    let text = SearchText::parse(text).unwrap();
    let search = MetaSearch { target, text, start_index, limit };
    let result = engine.reads().search(search, QueryControl::default()).await?;
    Ok(result.0)
}

/// TSUIDs of matching series, and the total number.
async fn tsuids(engine: &EngineHandle, text: &str, page: (usize, usize)) -> (Vec<String>, u64) {
    let found = search(engine, SearchTarget::Tsuids, text, page).await.unwrap();
    let SearchPage::Tsuids(list) = found.page else { panic!("{found:?}") };
    (list.iter().map(|tsuid| to_hex(tsuid)).collect(), found.total)
}

#[tokio::test]
async fn series_are_found_by_names_tags_texts_and_custom_fields() {
    let (_store, engine) = filled(config()).await;
    let h07 = tsuid_of(&engine, "h07").await.to_string();
    for text in ["host:h07", "h07", "notes:7", "number\\ 7", "\"number 7\"", "name:m host:*07"] {
        let (found, total) = tsuids(&engine, text, (0, 25)).await;
        assert_eq!((found, total), (vec![h07.clone()], 1), "{text}");
    }
    for text in ["*", "name:m", "metric:M", "dc:x", "tagk:host", "owner:team", "custom.owner:ops*"]
    {
        assert_eq!(tsuids(&engine, text, (0, 1)).await.1, 30, "{text}");
    }
    for text in ["host:h0", "name:n", "other:*", "host:h07 host:h08", "description:*"] {
        assert_eq!(tsuids(&engine, text, (0, 25)).await, (Vec::new(), 0), "{text}");
    }
}

#[tokio::test]
async fn pages_together_are_all_matches_in_order() {
    let (_store, engine) = filled(config()).await;
    let (all, total) = tsuids(&engine, "host:h*", (0, 0)).await;
    assert_eq!((all.len(), total), (30, 30));
    assert!(all.is_sorted(), "{all:?}");
    let mut pages = Vec::new();
    for start in (0..40).step_by(7) {
        let (page, total) = tsuids(&engine, "host:h*", (start, 7)).await;
        assert!(page.len() <= 7 && total == 30, "{start}: {page:?}");
        pages.extend(page);
    }
    assert_eq!(pages, all);
    assert_eq!(tsuids(&engine, "*", (usize::MAX, usize::MAX)).await, (Vec::new(), 30));
}

#[tokio::test]
async fn a_search_of_series_returns_whole_objects_or_names() {
    let (_store, engine) = filled(config()).await;
    let found = search(&engine, SearchTarget::Series, "host:h03", (0, 25)).await.unwrap();
    let SearchPage::Series(series) = found.page else { panic!("{found:?}") };
    let [series] = series.as_slice() else { panic!("{series:?}") };
    assert_eq!((series.metric.name.as_str(), series.meta.notes.as_str()), ("m", "number 3"));
    let names: Vec<&str> = series.tags.iter().map(|tag| tag.name.as_str()).collect();
    assert_eq!(names.len(), 4);
    assert!(series.last_received > 0, "the counter's time");
    let found = search(&engine, SearchTarget::SeriesNames, "host:h03", (0, 25)).await.unwrap();
    let SearchPage::SeriesNames(names) = found.page else { panic!("{found:?}") };
    let host = ("host".to_owned(), "h03".to_owned());
    assert!(names.iter().all(|of| of.tags.contains(&host)) && names.len() == 1, "{names:?}");
    let tags = vec![("host".to_owned(), "h03".to_owned())];
    let listed =
        engine.reads().series_metas("m".to_owned(), tags, QueryControl::default()).await.unwrap();
    let json = |of: &SeriesMeta| of.meta.to_json();
    assert_eq!(listed.0.iter().map(json).collect::<Vec<_>>(), [json(series)]);
    let all =
        engine.reads().series_metas("m".to_owned(), Vec::new(), QueryControl::default()).await;
    assert_eq!(all.unwrap().0.len(), 30);
    let unknown =
        engine.reads().series_metas("x".to_owned(), Vec::new(), QueryControl::default()).await;
    assert!(matches!(unknown, Err(QueryFailure::Uid(tsd_meta::UidError::NoSuchName { .. }))));
}

#[tokio::test]
async fn objects_that_are_invalid_or_have_no_names_match_nothing() {
    let (store, engine) = filled(config()).await;
    let meta = EngineConfig::default().tables.meta;
    let put = async |row: &[u8], value: &[u8]| {
        let cell =
            CellRef { family: Family::Name, qualifier: b"ts_meta", value, timestamp_ms: None };
        store.put(&meta, CellBatch::single(row, cell).unwrap()).await.unwrap();
    };
    let first = tsuid_of(&engine, "h00").await;
    put(first.as_bytes(), b"{").await;
    put(&[0, 0, 1, 0, 0, 1, 0, 9, 9], b"{}").await;
    put(b"x", b"{}").await;
    assert_eq!(tsuids(&engine, "*", (0, 1)).await.1, 29);
    engine.delete_uid(UidKind::Tagv, "h01").await.unwrap();
    assert_eq!(tsuids(&engine, "*", (0, 1)).await.1, 28);
    let found = search(&engine, SearchTarget::Series, "*", (0, 0)).await.unwrap();
    assert!(matches!(found.page, SearchPage::Series(series) if series.len() == 28));
}

#[tokio::test]
async fn stored_uid_metas_are_found() {
    let (_store, engine) = filled(config()).await;
    let found = search(&engine, SearchTarget::UidMetas, "*", (0, 25)).await.unwrap();
    assert_eq!((found.page, found.total), (SearchPage::UidMetas(Vec::new()), 0));
    for (kind, notes) in
        [(UidKind::Metric, "load"), (UidKind::Tagk, "machine"), (UidKind::Tagv, "load")]
    {
        let edit = UidMetaEdit { notes: Some(notes.to_owned()), ..UidMetaEdit::default() };
        engine.meta_objects().edit_uid_meta(kind, &[0, 0, 1], &edit, false).await.unwrap();
    }
    for (text, expected) in [
        ("load", 2),
        ("load type:metric", 1),
        ("name:host", 1),
        ("uid:000001", 3),
        ("name:nothing", 0),
    ] {
        let found = search(&engine, SearchTarget::UidMetas, text, (0, 1)).await.unwrap();
        assert_eq!(found.total, expected, "{text}");
        let SearchPage::UidMetas(page) = found.page else { panic!("{text}") };
        assert_eq!(page.len() as u64, expected.min(1), "{text}");
    }
}

#[tokio::test]
async fn annotations_are_found_in_the_order_of_their_times() {
    let (_store, engine) = filled(config()).await;
    let series = tsuid_of(&engine, "h05").await;
    for (tsuid, start_time, description) in [
        (None, HOUR + 7_200, "deploy second"),
        (Some(series.clone()), HOUR + 10, "deploy first"),
        (Some(tsuid_of(&engine, "h06").await), HOUR + 7_300, "deploy third"),
        (None, HOUR + 20, "other"),
    ] {
        let description = Some(description.to_owned());
        let edit = AnnotationEdit { tsuid, start_time, description, ..AnnotationEdit::default() };
        engine.annotations().edit(edit, false).await.unwrap();
    }
    let found = async |text: &str, page| {
        let result = search(&engine, SearchTarget::Annotations, text, page).await.unwrap();
        let SearchPage::Annotations(list) = result.page else { panic!("{text}") };
        let texts: Vec<String> = list.into_iter().map(|found| found.description).collect();
        (texts.join(","), result.total)
    };
    let all = "deploy first,deploy second,deploy third";
    assert_eq!(found("description:deploy", (0, 25)).await, (all.to_owned(), 3));
    assert_eq!(found("deploy", (1, 1)).await, ("deploy second".to_owned(), 3));
    assert_eq!(found("*", (3, 0)).await, ("deploy third".to_owned(), 4));
    let of_series = format!("tsuid:{series} deploy");
    assert_eq!(found(&of_series, (0, 25)).await, ("deploy first".to_owned(), 1));
}

#[tokio::test]
async fn memory_and_time_of_a_search_are_limited() {
    let mut settings = config();
    settings.query.max_memory_bytes = 4_096;
    let (_store, engine) = filled(settings).await;
    let page = search(&engine, SearchTarget::Tsuids, "*", (0, 2)).await.unwrap();
    assert_eq!(page.total, 30);
    let all = search(&engine, SearchTarget::Tsuids, "*", (0, 0)).await;
    assert!(
        matches!(all, Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. })))),
        "{all:?}"
    );
}

/// A search reads the whole table, so its user must be able to see it and to cancel it.
#[tokio::test]
async fn a_search_of_annotations_is_listed_and_ends_when_it_is_cancelled_or_late() {
    for timeout in [None, Some(Duration::from_millis(300))] {
        let mut settings = config();
        settings.query.timeout = timeout;
        let (store, engine) = filled(settings).await;
        store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_hours(1)); 64]);
        let searched = engine.clone();
        let running = tokio::spawn(async move {
            search(&searched, SearchTarget::Annotations, "release", (0, 25)).await
        });
        if timeout.is_none() {
            let listed = loop {
                let list = engine.reads().queries().await.running;
                if let Some(listed) = list.into_iter().find(|query| query.scans.1 > 0) {
                    break listed;
                }
                tokio::task::yield_now().await;
            };
            assert_eq!(listed.scans, (0, 20), "one for each salt bucket");
            assert!(engine.reads().cancel_query(listed.id));
        }
        let failure = running.await.unwrap().unwrap_err();
        let is_late =
            matches!(failure, QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. })));
        let is_cancelled = matches!(failure, QueryFailure::CancelledByOperator);
        assert_eq!((is_late, is_cancelled), (timeout.is_some(), timeout.is_none()), "{failure}");
    }
}
