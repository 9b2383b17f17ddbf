#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tsd_engine::{Engine, EngineConfig};
use tsd_storage::{Fault, FaultyStorage, MemoryStorage, Operation, Scan, Storage, StorageError};

use super::*;

/// The cells after an import: row, qualifier and value in hexadecimal.
struct Left {
    result: Result<Imported, ImportError>,
    cells: Vec<String>,
}

fn import_text(text: &str, auto_create_metrics: bool, options: ImportOptions) -> Left {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("points");
    fs::write(&path, text).unwrap();
    let mut config = EngineConfig::default();
    config.uids.auto_create_metrics = auto_create_metrics;
    let tables = config.tables.clone();
    let storage: Arc<dyn Storage> =
        Arc::new(MemoryStorage::new([tables.data.clone(), tables.uid, tables.meta, tables.tree]));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = Engine::start(config, Arc::clone(&storage)).unwrap();
    runtime.block_on(async {
        let result = import(&engine, &[path], options).await;
        let mut scanner = storage.scan(&tables.data, Scan::default());
        let mut cells = Vec::new();
        while let Some(rows) = scanner.next_rows().await.unwrap() {
            for row in rows {
                let key = hex(&row.key);
                let of_row = row.into_cells().unwrap();
                cells.extend(
                    of_row.iter().map(|c| format!("{key} {} {}", hex(&c.qualifier), hex(&c.value))),
                );
            }
        }
        Left { result, cells }
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().concat()
}

const FIRST: &str = "00000150E22700000001000001 0000 01";

#[test]
fn values_keep_their_digits_unless_asked_for_opentsdbs_floats() {
    let text = "m 1356998400 1 host=a\nm 1356998401 0.1 host=a\nm 1356998402 300 host=a\n\
                m 1356998403 0.5 host=a\n";
    let cell = |rest: &str| format!("00000150E22700000001000001 {rest}");
    for (as_opentsdb, tenth) in [(false, "001F 3FB999999999999A"), (true, "001B 3DCCCCCD")] {
        let left = import_text(text, true, ImportOptions { as_opentsdb, ..Default::default() });
        assert_eq!(left.result.unwrap(), Imported { points: 4, ..Imported::default() });
        let expected = [FIRST.to_owned(), cell(tenth), cell("0021 012C"), cell("003B 3F000000")];
        assert_eq!(left.cells, expected);
    }
}

#[test]
fn lines_of_json_are_read_from_a_spool_only() {
    let text = concat!(
        r#"{"type":"point","metric":"m","timestamp":1356998401,"value":2,"tags":{"host":"a"},"tsuid":""}"#,
        "\nm 1356998400 1 host=a\n"
    );
    let spool =
        ImportOptions { is_spool: true, allow_out_of_order: true, ..ImportOptions::default() };
    let left = import_text(text, true, spool);
    assert_eq!(left.result.unwrap(), Imported { points: 2, ..Imported::default() });
    assert_eq!(left.cells, [FIRST, "00000150E22700000001000001 0010 02"]);
    let left = import_text(text, true, ImportOptions::default());
    assert!(matches!(left.result, Err(ImportError::BadLine { line: 1, .. })));
    let rollup =
        r#"{"type":"rollup","metric":"m","timestamp":1,"value":2,"tags":{},"interval":"1h"}"#;
    let error = import_text(rollup, true, spool).result.unwrap_err().to_string();
    assert!(error.ends_with("line 1: rollups are not configured (tsd.rollups.config)"), "{error}");
}

#[test]
fn the_first_bad_line_ends_it_and_what_came_before_stays() {
    let text = "m 1356998400 1 host=a\nm 1356998400 2 host=a\nm 1356998401 3 host=a\n";
    let left = import_text(text, true, ImportOptions::default());
    let error = left.result.unwrap_err().to_string();
    assert!(
        error.ends_with(
            "line 2: new timestamp=1356998400 is less than or equal to previous=1356998400000"
        ),
        "{error}"
    );
    assert_eq!(left.cells, [FIRST]);
}

#[test]
fn bad_lines_are_skipped_on_demand() {
    let text = "m 1356998400 1 host=a\nm 1356998400 2 host=a\nnonsense\nm 1356998401 3 host=a";
    let options = ImportOptions { skip_errors: true, ..ImportOptions::default() };
    let left = import_text(text, true, options);
    assert_eq!(left.result.unwrap(), Imported { points: 2, bad_lines: 2, unconfirmed: 0 });
    assert_eq!(left.cells.len(), 2);
}

#[test]
fn an_overlong_line_is_a_bad_line() {
    for length in [source::MAX_LINE_BYTES + 1, source::MAX_LINE_BYTES * 2] {
        let tags = "x".repeat(length);
        let text = format!("m 1356998400 1 host=a\n{tags}\nm 1356998401 3 host=a\n");
        let error = import_text(&text, true, ImportOptions::default()).result.unwrap_err();
        assert!(
            error.to_string().ends_with("line 2: the line is longer than 1048576 bytes"),
            "{error}"
        );
        let options = ImportOptions { skip_errors: true, ..ImportOptions::default() };
        let left = import_text(&text, true, options);
        assert_eq!(left.result.unwrap(), Imported { points: 2, bad_lines: 1, unconfirmed: 0 });
    }
}

/// Issue 37: such a point was stored 2^32 seconds earlier.
#[test]
fn a_time_after_2106_is_a_bad_line() {
    let text = "m 1356998400 1 host=a\nm 9999999999999 2 host=a\n";
    for allow_out_of_order in [false, true] {
        let options = ImportOptions { allow_out_of_order, ..ImportOptions::default() };
        let left = import_text(text, true, options);
        let error = left.result.unwrap_err().to_string();
        assert!(error.contains("line 2: timestamp 9999999999999 is after 2106-02-07"), "{error}");
        assert_eq!(left.cells, [FIRST]);
    }
}

#[test]
fn times_may_fall_on_demand() {
    let text = "m 1356998401 1 host=a\nm 1356998400 1 host=a\n";
    let options = ImportOptions { allow_out_of_order: true, ..ImportOptions::default() };
    let left = import_text(text, true, options);
    assert_eq!(left.result.unwrap().points, 2);
}

#[test]
fn an_unknown_metric_ends_it_where_metrics_are_not_created() {
    let text = "m 1356998400 1 host=a\nm 1356998401 1 host=a\n";
    let options = ImportOptions { settle_new_series: true, ..ImportOptions::default() };
    let left = import_text(text, false, options);
    let error = left.result.unwrap_err();
    assert!(matches!(error, ImportError::BadLine { line: 1, .. }), "{error}");
    assert!(left.cells.is_empty());
    let options = ImportOptions { skip_errors: true, ..options };
    let left = import_text(text, false, options);
    assert_eq!(left.result.unwrap(), Imported { points: 0, bad_lines: 2, unconfirmed: 0 });
}

#[test]
fn a_missing_file_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tables = EngineConfig::default().tables;
    let storage = MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]);
    let engine = Engine::start(EngineConfig::default(), Arc::new(storage)).unwrap();
    let paths = ["/nowhere/points".into()];
    let error = runtime.block_on(import(&engine, &paths, ImportOptions::default())).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/points");
}

#[test]
fn a_failing_store_ends_it_with_its_line_and_the_stored_points_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("first"), dir.path().join("second")];
    fs::write(&paths[0], "m 1356998400 1 host=a\nm 1356998401 1 host=a\n").unwrap();
    let line = |n| format!("m {} 1 host=a\n", 1_356_998_402 + n);
    fs::write(&paths[1], (0..40_000).map(line).collect::<Vec<_>>().concat()).unwrap();
    let config = EngineConfig::default();
    let tables = config.tables.clone();
    let memory = MemoryStorage::new([tables.data.clone(), tables.uid, tables.meta, tables.tree]);
    let storage = Arc::new(FaultyStorage::new(Arc::new(memory)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut config = config;
    config.uids.auto_create_metrics = true;
    let engine = Engine::start(config, Arc::clone(&storage) as _).unwrap();
    runtime.block_on(async {
        let options = ImportOptions::default();
        let sink = EngineSink::new(&engine, options.settle_new_series);
        let console = Console::new("import", false, false);
        let mut importer = Importer::new(sink, options, None, &console);
        importer.import(&paths[0]).await.unwrap();
        assert_eq!(importer.done(), Imported { points: 2, ..Imported::default() });
        // More failures than a session reports one by one.
        let full = Fault::Error(StorageError::DiskFull);
        storage.script(Operation::Put, vec![full; 1_000]);
        let error = importer.import(&paths[1]).await.unwrap_err();
        assert!(matches!(error, ImportError::Store { .. }), "{error}");
        assert!(error.to_string().contains("no space left"), "{error}");
        assert_eq!(importer.done(), Imported { points: 2, ..Imported::default() });
    });
}
