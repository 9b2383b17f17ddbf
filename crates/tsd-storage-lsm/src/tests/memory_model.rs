//! Property tests: after any operations the store returns the same cells as the memory store.

use bytes::Bytes;
use proptest::prelude::*;
use tsd_model::{Cell, Family};
use tsd_storage::{
    CellBatch, CellRef, Column, Delete, FlushTarget, Get, MemoryStorage, OwnedFlushRow,
    ReadVersion, ReplacedColumn, RowRewrite, Scan, Storage, StorageError, StorageExt, Table,
};

use super::fixture::{self, all_cells, data, new_dir, open};
use crate::{LsmConfig, LsmStorage};

const fn clock() -> i64 {
    1_400_000_000_000
}

#[derive(Clone, Debug)]
enum ModelStep {
    Put(Vec<(usize, Vec<usize>)>),
    Flush(Vec<(usize, OwnedFlushRow)>),
    Delete(usize, Option<Vec<usize>>),
    Append(usize, usize),
    Increment(usize, usize, i64),
    CompareAndSet(usize, usize, Option<usize>, usize),
    /// Puts a column and deletes others; their timestamps as read, plus an offset.
    Rewrite(usize, Option<usize>, Vec<usize>, bool),
    Reopen,
}

/// Keys that are prefixes of each other, some with trailing zeros.
const KEYS: [&[u8]; 6] = [b"\0", b"\0\0", b"\0\0\x01", b"\0\x01", b"a", b"a\0"];

fn seconds(offset: usize, flags: u16) -> Vec<u8> {
    ((offset as u16) << 4 | flags).to_be_bytes().to_vec()
}

/// A possible column of a data row: family, qualifier and a valid value.
fn column(i: usize) -> (Family, Vec<u8>, Vec<u8>) {
    let t = Family::T;
    match i {
        // Points one second apart, in two widths. The memory store separates the times of two points of
        // one instant, as the log does.
        0..20 => (t, seconds(i, 0), vec![i as u8]),
        20..30 => (t, seconds(i + 20, 1), vec![1, i as u8]),
        // Floats.
        30..36 => {
            (t, vec![0x20, ((i - 30) as u8) << 4 | 0xF], (i as f64 / 10.0).to_be_bytes().to_vec())
        }
        // Milliseconds.
        36..42 => (t, vec![0xF0, 0, i as u8, 0x40], vec![7]),
        // An unusual width, an annotation, a column of two points, the same in another order.
        42 => (t, vec![0x30, 0x01], vec![0, 3]),
        43 => (t, vec![1, 0, 0], b"{}".to_vec()),
        44 => (t, vec![0, 0, 0, 0x10], vec![0, 1, 0]),
        45 => (t, vec![0, 0x10, 0, 0], vec![1, 0, 0]),
        46 => (t, vec![0, 0, 0, 0x20], vec![0, 2, 0]),
        // Other families.
        47 => (Family::Name, vec![0, 0], vec![1]),
        48 => (Family::Id, b"metrics".to_vec(), vec![0, 0, 1]),
        // An append column or a counter.
        _ => (t, vec![5, 0, 0], vec![0, 0, 0, 0, 0, 0, 0, 1]),
    }
}

const COLUMNS: usize = 50;

/// The value of [`column`] or a variant of it.
fn other_value(i: usize, variant: u8) -> Vec<u8> {
    let (_, _, mut value) = column(i);
    if let Some(last) = value.last_mut() {
        *last ^= variant % 3;
    }
    value
}

fn column_set() -> impl Strategy<Value = Vec<usize>> {
    // Consecutive points, or columns of all kinds.
    prop_oneof![
        (0_usize..18, 1_usize..8).prop_map(|(from, n)| (from..(from + n).min(20)).collect()),
        prop::collection::btree_set(0..COLUMNS, 0..6).prop_map(|s| s.into_iter().collect()),
    ]
}

fn test_row() -> impl Strategy<Value = OwnedFlushRow> {
    (column_set(), column_set(), any::<u8>(), any::<u8>(), 0_i64..5).prop_map(
        |(puts, deletes, kind, variant, ts)| {
            let mut cells: Vec<_> = puts
                .iter()
                .map(|&i| {
                    let (family, qualifier, _) = column(i);
                    (family, qualifier, other_value(i, variant), clock() + ts)
                })
                .collect();
            cells.sort();
            let delete_row = (kind < 20).then_some(i64::MAX);
            let mut deletes: Vec<_> = if (20..=80).contains(&kind) {
                deletes.iter().filter(|i| !puts.contains(i)).map(|&i| column(i)).collect()
            } else {
                Vec::new()
            };
            deletes.sort();
            let deletes = deletes.into_iter().map(|(family, q, _)| (family, q, i64::MAX)).collect();
            OwnedFlushRow { key: Vec::new(), delete_row, deletes, cells }
        },
    )
}

fn step() -> impl Strategy<Value = ModelStep> {
    let row = 0..KEYS.len();
    let one = 0..COLUMNS;
    prop_oneof![
        2 => prop::collection::vec((row.clone(), column_set()), 0..3).prop_map(ModelStep::Put),
        8 => prop::collection::btree_map(row.clone(), test_row(), 0..4)
            .prop_map(|rows| ModelStep::Flush(rows.into_iter().collect())),
        1 => (row.clone(), prop::option::weighted(0.8, column_set()))
            .prop_map(|(r, c)| ModelStep::Delete(r, c)),
        1 => (row.clone(), one.clone()).prop_map(|(r, c)| ModelStep::Append(r, c)),
        1 => (row.clone(), one.clone(), any::<i64>())
            .prop_map(|(r, c, n)| ModelStep::Increment(r, c, n)),
        1 => (row.clone(), one.clone(), prop::option::of(one.clone()), one.clone())
            .prop_map(|(r, c, e, v)| ModelStep::CompareAndSet(r, c, e, v)),
        1 => (row, prop::option::of(one), column_set(), prop::bool::weighted(0.1))
            .prop_map(|(r, p, d, late)| ModelStep::Rewrite(r, p, d, late)),
        1 => Just(ModelStep::Reopen),
    ]
}

fn column_of(row: usize, i: usize) -> Column {
    let (family, qualifier, _) = column(i);
    Column { row: Bytes::from_static(KEYS[row]), family, qualifier: qualifier.into() }
}

/// Executes the step and returns its result as text.
async fn execute(store: &dyn FlushTarget, table: &Table, step: &ModelStep) -> String {
    let result: Result<String, StorageError> = async {
        Ok(match step {
            ModelStep::Put(rows) => {
                let mut batch = CellBatch::new();
                for (row, columns) in rows {
                    batch.begin_row(KEYS[*row])?;
                    for &i in columns {
                        let (family, qualifier, value) = column(i);
                        let cell = CellRef {
                            family,
                            qualifier: &qualifier,
                            value: &value,
                            timestamp_ms: (i % 2 == 0).then_some(5),
                        };
                        batch.push(cell)?;
                    }
                }
                format!("{:?}", store.put(table, batch).await?)
            }
            ModelStep::Flush(rows) => {
                let rows = rows.iter().map(|(row, changes)| OwnedFlushRow {
                    key: KEYS[*row].to_vec(),
                    ..changes.clone()
                });
                format!("{:?}", store.flush_rows(table, OwnedFlushRow::flush_rows(rows)).await?)
            }
            ModelStep::Delete(row, columns) => {
                let row = Bytes::from_static(KEYS[*row]);
                let delete = match columns {
                    None => Delete::Row(row),
                    Some(columns) => Delete::Columns {
                        row,
                        columns: columns
                            .iter()
                            .map(|&i| column(i))
                            .map(|(family, q, _)| (family, q.into()))
                            .collect(),
                    },
                };
                format!("{:?}", store.delete(table, delete).await?)
            }
            ModelStep::Append(row, i) => {
                let (family, qualifier, value) = column(*i);
                let cell =
                    CellRef { family, qualifier: &qualifier, value: &value, timestamp_ms: None };
                format!("{:?}", store.append(table, CellBatch::single(KEYS[*row], cell)?).await?)
            }
            ModelStep::Increment(row, i, amount) => {
                format!("{:?}", store.increment(table, column_of(*row, *i), *amount).await?)
            }
            ModelStep::CompareAndSet(row, i, expected, value) => {
                let expected = expected.map(|i| column(i).2.into());
                let value = column(*value).2.into();
                let column = column_of(*row, *i);
                format!("{:?}", store.compare_and_set(table, column, expected, value).await?)
            }
            ModelStep::Rewrite(row, put, delete, late) => {
                let put = put.map(|i| {
                    let (family, qualifier, value) = column(i);
                    Cell {
                        family,
                        qualifier: qualifier.into(),
                        value: value.into(),
                        timestamp_ms: 77,
                    }
                });
                let row = Bytes::from_static(KEYS[*row]);
                let version = store.read_version(table);
                let read = store.get(table, Get::row(row.clone())).await?;
                let read = read.map_or_else(Vec::new, |row| row.into_cells().unwrap());
                let delete = delete
                    .iter()
                    .filter_map(|&i| {
                        let (family, qualifier, _) = column(i);
                        let is_it = |c: &&Cell| c.family == family && c.qualifier == qualifier;
                        let timestamp_ms = read.iter().find(is_it)?.timestamp_ms;
                        Some(ReplacedColumn { family, qualifier: qualifier.into(), timestamp_ms })
                    })
                    .collect();
                let read = if *late { ReadVersion::default() } else { version };
                let rewrite =
                    RowRewrite { row, put, superseded_ms: None, delete, read, whole_row: false };
                format!("{:?}", store.rewrite_row(table, rewrite).await?)
            }
            ModelStep::Reopen => String::from("()"),
        })
    }
    .await;
    result.unwrap_or_else(|error| error.to_string())
}

fn check(steps: &[ModelStep]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let table = data();
        let dir = new_dir();
        let mut config = LsmConfig::new(dir.path(), vec![table.clone()]);
        config.clock = clock;
        let memory = MemoryStorage::new([table.clone()]).with_clock(clock);
        let mut store = LsmStorage::open(&config).unwrap();
        for step in steps {
            if matches!(step, ModelStep::Reopen) {
                drop(store);
                store = LsmStorage::open(&config).unwrap();
            }
            let expected = execute(&memory, &table, step).await;
            assert_eq!(execute(&store, &table, step).await, expected, "{step:?}");
            assert_eq!(
                all_cells(&store, &table).await,
                all_cells(&memory, &table).await,
                "after {step:?}"
            );
        }
        compare_reads(&store, &memory, &table).await;
        drop(store);
        let store = open(&dir, vec![table.clone()]);
        assert_eq!(all_cells(&store, &table).await, all_cells(&memory, &table).await);
    });
}

/// Compares gets and scans that select columns, families or a time range.
async fn compare_reads(store: &LsmStorage, memory: &MemoryStorage, table: &Table) {
    let mut gets = Vec::new();
    let mut scans = vec![Scan { time_range_ms: Some((0, clock() + 2)), ..Scan::default() }];
    for i in 0..COLUMNS {
        let Column { row, family, qualifier } = column_of(i % KEYS.len(), i);
        gets.push(Get::column(row.clone(), family, qualifier.clone()));
        gets.push(Get { family: Some(family), ..Get::row(row) });
        let family = Some(family);
        scans.push(Scan { family, qualifier: Some(qualifier), ..Scan::default() });
        scans.push(Scan { family, ..Scan::default() });
    }
    for get in gets {
        let of =
            |row: Option<tsd_model::Row>| row.map(|r| (r.key.clone(), r.into_cells().unwrap()));
        let got = of(store.get(table, get.clone()).await.unwrap());
        assert_eq!(got, of(memory.get(table, get.clone()).await.unwrap()), "{get:?}");
    }
    for what in scans {
        let of = |rows: Vec<tsd_model::Row>| -> Vec<_> {
            rows.into_iter().map(|r| (r.key.clone(), r.into_cells().unwrap())).collect()
        };
        let got = of(fixture::scan(store, table, what.clone()).await);
        assert_eq!(got, of(fixture::scan(memory, table, what.clone()).await), "{what:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_memory_store(steps in prop::collection::vec(step(), 1..24)) {
        check(&steps);
    }
}
