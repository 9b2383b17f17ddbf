//! Files and records of the write-ahead log.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, LazyLock},
};

use tsd_files::FaultyDisk;
use tsd_model::{Cell, Family};
use tsd_storage::{
    CellBatch, CellRef, Fault, FaultyStorage, MemoryStorage, Operation, Scan, Storage,
    StorageError, StorageExt, Table,
};
use tsd_storage_wal::{OpenError, ReplayReport, WalConfig, WalStorage, testing};

use super::files::{Files, disk_with, pack, unpack};

const TABLE: &str = "tsdb";
/// Rows of the intact log, each in its own record.
const ROWS: u32 = 40;
const SEGMENTS: u64 = 4;
const SEGMENT_HEADER: usize = 64;
const RECORD_HEADER: usize = 48;
/// Slots of the state, with the identity of the log.
const SLOT: usize = 512;
const IDENTITY: std::ops::Range<usize> = 16..32;
const STATE: &str = "log.state";

/// Files of a log, in the order of an input.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let segments = (1..=SEGMENTS).map(|segment| format!("{segment:016}.wal"));
    std::iter::once(STATE.to_owned()).chain(segments).collect()
});
/// Files of an intact log.
static INTACT: LazyLock<Files> = LazyLock::new(killed_log);

type Store = WalStorage<FaultyStorage<MemoryStorage>>;

fn value_of(row: u32) -> String {
    format!("value {row}")
}

async fn open(disk: &FaultyDisk, accept_damage: bool) -> Result<(Store, ReplayReport), OpenError> {
    let memory = MemoryStorage::new([Table::new(TABLE)]);
    let backend = Arc::new(FaultyStorage::new(Arc::new(memory)));
    // The log keeps its records.
    let failure = Fault::Error(StorageError::Backend("failed".into()));
    backend.script(Operation::FlushRows, vec![failure; 100]);
    let config = WalConfig {
        segment_bytes: 1_536,
        memtable_bytes: 1 << 20,
        accept_damage,
        clock: || 1_356_998_400_000,
        ..WalConfig::new(Path::new("faulty"))
    };
    Store::open_in(config, Arc::new(disk.clone()), backend).await
}

/// A key and the cells of its row.
type StoredRow = (Vec<u8>, Vec<Cell>);

async fn rows(store: &Store) -> Vec<StoredRow> {
    let mut scanner = store.scan(&Table::new(TABLE), Scan::default());
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_rows().await.expect("a store in memory") {
        for row in batch {
            found.push((row.key.to_vec(), row.into_cells().expect("cells")));
        }
    }
    found
}

/// Numbers of the rows, each of which must have the written value.
fn written(rows: Vec<StoredRow>) -> BTreeSet<u32> {
    let number_of = |(key, cells): StoredRow| {
        let number = key.try_into().map(u32::from_be_bytes).expect("a row");
        assert!(number < ROWS && cells.len() == 1, "a row that was written");
        assert_eq!(cells[0].value, value_of(number).as_bytes(), "its value");
        number
    };
    rows.into_iter().map(number_of).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Files of a log. The first byte decides: after 0 the files are unchanged, and missing records
/// must be reported or incomplete. After another byte the checksums are corrected, so that any
/// records occur.
pub(crate) fn log(input: &[u8]) {
    let Some((kind, packed)) = input.split_first() else { return };
    let files = unpack(&NAMES, packed);
    if *kind == 0 {
        // Writes the intact log, outside of a runtime, before its first use.
        LazyLock::force(&INTACT);
        block_on(open_damaged(&files));
    } else {
        block_on(open_resealed(&resealed(files)));
    }
}

async fn open_damaged(files: &Files) {
    let differs = |name: &&String| files.get(*name) != INTACT.get(*name);
    let damaged: Vec<&String> = NAMES.iter().filter(differs).collect();
    let disk = disk_with(files);
    match open(&disk.after_kill(), false).await {
        Ok((store, report)) => {
            assert!(report.lost.is_empty(), "a loss needs consent");
            let found = written(rows(&store).await);
            store.stop().await;
            assert!(found.iter().copied().eq(0..found.len() as u32), "only an end may be missing");
            let least = match damaged.as_slice() {
                [] => ROWS as usize,
                [_] => rows_before_the_last_segment(),
                _ => 0,
            };
            assert!(found.len() >= least, "{} rows with damage of {damaged:?}", found.len());
        }
        Err(OpenError::Damaged { lost }) => {
            assert!(!damaged.is_empty(), "an intact log opens: {lost:?}");
            assert!(lost.iter().all(|lost| lost.to_string().contains("faulty")), "{lost:?}");
            let (store, report) = open(&disk.after_kill(), true).await.expect("with consent");
            assert!(!report.lost.is_empty(), "the loss is reported");
            written(rows(&store).await);
            store.stop().await;
        }
        Err(error) => assert!(error.to_string().contains("faulty"), "{error}"),
    }
}

/// Rows of the intact log that are not in its last segment.
fn rows_before_the_last_segment() -> usize {
    let segment = NAMES.last().and_then(|name| INTACT.get(name));
    // The sequence number of its first record; the first row has 1.
    let first = segment.and_then(|segment| segment.get(24..)?.first_chunk().copied());
    u64::from_be_bytes(first.expect("a header")) as usize - 1
}

async fn open_resealed(files: &Files) {
    let disk = disk_with(files).after_kill();
    match open(&disk, false).await {
        Ok((store, _)) => {
            let found = rows(&store).await;
            store.stop().await;
            let (store, _) = open(&disk.after_kill(), false).await.expect("it was open before");
            assert_eq!(rows(&store).await, found, "a log is replayed the same way twice");
            store.stop().await;
        }
        Err(OpenError::Damaged { lost }) => {
            assert!(!lost.is_empty(), "the damage is named");
            match open(&disk.after_kill(), true).await {
                Ok((store, report)) => {
                    assert!(!report.lost.is_empty(), "the loss is reported");
                    rows(&store).await;
                    store.stop().await;
                }
                Err(error) => assert!(!matches!(error, OpenError::Damaged { .. }), "{error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error says why"),
    }
}

/// Corrects the checksums of slots, headers and records.
fn resealed(mut files: Files) -> Files {
    for (name, file) in &mut files {
        if name == STATE {
            file.chunks_mut(SLOT).for_each(seal_slot);
        } else {
            seal_segment(file);
        }
    }
    files
}

/// Writes the checksum of the bytes before `at`.
fn seal(bytes: &mut [u8], at: usize) {
    if let Some((sealed, rest)) = bytes.split_at_mut_checked(at)
        && let Some(crc) = rest.first_chunk_mut()
    {
        *crc = crc32c::crc32c(sealed).to_be_bytes();
    }
}

fn seal_slot(slot: &mut [u8]) {
    let has_survivors = slot.starts_with(b"SWS2");
    seal(slot, if has_survivors { 88 } else { 72 });
}

fn seal_segment(segment: &mut [u8]) {
    seal(segment, SEGMENT_HEADER - 4);
    let mut rest = segment.get_mut(SEGMENT_HEADER..).unwrap_or_default();
    while rest.len() >= RECORD_HEADER {
        let mut len = 8;
        if rest.starts_with(b"SWR1") {
            let (header, payloads) = rest.split_at_mut(RECORD_HEADER);
            let stated = header.get(8..).and_then(|header| header.first_chunk().copied());
            let payload = payloads.get(..u32::from_be_bytes(stated.unwrap_or_default()) as usize);
            if let Some(payload) = payload {
                header[12..16].copy_from_slice(&crc32c::crc32c(payload).to_be_bytes());
                len = RECORD_HEADER + payload.len();
            }
            seal(header, RECORD_HEADER - 4);
        }
        rest = rest.split_at_mut(len.min(rest.len())).1;
    }
}

/// A record or a state of a log; the first byte selects the kind. A record has no checksum.
pub(crate) fn log_records(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    if *kind == 0 {
        let mut file = bytes.to_vec();
        file.chunks_mut(SLOT).for_each(seal_slot);
        if let Some((version, file)) = testing::recode_state(&file) {
            assert_eq!(testing::recode_state(&file), Some((version, file)), "one form");
        }
        return;
    }
    if let Some((kind, body)) = testing::recode_record(kind % 8, bytes) {
        assert_eq!(testing::recode_record(kind, &body), Some((kind, body)), "one form");
    }
}

/// The files of the log of a killed process.
fn killed_log() -> Files {
    let disk = FaultyDisk::new(3);
    block_on(async {
        let (store, _) = open(&disk, false).await.expect("a new log");
        for row in 0..ROWS {
            let batch = batch([&row.to_be_bytes()[..]], value_of(row).as_bytes());
            store.put(&Table::new(TABLE), batch).await.expect("a put");
        }
        store.stop().await;
    });
    let mut files = disk.after_kill().all_contents();
    assert!(files.keys().eq(NAMES.iter().collect::<BTreeSet<_>>()), "{:?}", files.keys());
    // The identity of a log is random; a seed needs a fixed one.
    for slot in files.get_mut(STATE).expect("a state").chunks_mut(SLOT) {
        if slot.starts_with(b"SWS") {
            slot[IDENTITY].fill(7);
            seal_slot(slot);
        }
    }
    files
}

fn batch<'k>(keys: impl IntoIterator<Item = &'k [u8]>, value: &[u8]) -> CellBatch {
    let mut batch = CellBatch::new();
    for key in keys {
        batch.begin_row(key).expect("a key");
        let cell = CellRef { family: Family::T, qualifier: &[0, 7], value, timestamp_ms: None };
        batch.push(cell).expect("a cell");
    }
    batch
}

/// Valid inputs, each with its target.
pub(crate) fn generated() -> Vec<(&'static str, Vec<u8>)> {
    let packed = pack(&NAMES, &INTACT);
    let mut inputs =
        vec![("log", [&[0][..], &packed].concat()), ("log", [&[1][..], &packed].concat())];
    for state in [&INTACT[STATE], &testing::written_state()] {
        assert!(testing::recode_state(state).is_some(), "a state that was written");
        inputs.push(("log_records", [&[0][..], state].concat()));
    }
    let two = batch([&b"row 1"[..], b"row 2"], b"value");
    let columns = b"\0\x03row\0\0\0\x01\x02\0\x02\0\x07";
    let bodies = [
        (1, two.as_bytes().to_vec()),
        (2, b"row".to_vec()),
        (3, columns.to_vec()),
        (4, [&columns[..], two.as_bytes()].concat()),
        (5, [&[0, 0, 0, 2][..], &[0; 16], two.as_bytes()].concat()),
    ];
    for (kind, body) in bodies {
        // A batch is written as the differences between its parts.
        let (written_kind, written) = testing::recode_record(kind, &body).expect("a record");
        assert!(written == body || (kind, written_kind) == (1, 6), "a record of kind {kind}");
        inputs.push(("log_records", [&[kind][..], &body].concat()));
        if written != body {
            inputs.push(("log_records", [&[written_kind][..], &written].concat()));
        }
    }
    inputs
}
