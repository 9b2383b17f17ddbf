//! Generates flushes of arbitrary rows, and keeps the rows in a model.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use tsd_files::{DiskSpace, FaultyDisk};
use tsd_model::{Family, TableSchema};
use tsd_storage::{FlushCell, FlushRow, FlushRows};

use crate::{PartConfig, PartError, PartLayout, PartResources, PartStore};

/// A cell: family, qualifier, value, cell timestamp.
pub(super) type PlainCell = (Family, Vec<u8>, Vec<u8>, i64);

/// A row of a flush.
#[derive(Clone, Debug)]
pub(super) struct TestRow {
    pub(super) key: Vec<u8>,
    pub(super) delete_row: bool,
    pub(super) deletes: Vec<(Family, Vec<u8>)>,
    pub(super) cells: Vec<PlainCell>,
}

/// Rows by key, cells by column.
pub(super) type Model = BTreeMap<Vec<u8>, BTreeMap<(Family, Vec<u8>), (Vec<u8>, i64)>>;

/// Applies a flush to the model.
pub(super) fn apply(model: &mut Model, rows: &[TestRow]) {
    for row in rows {
        let columns = model.entry(row.key.clone()).or_default();
        if row.delete_row {
            columns.clear();
        }
        for (family, qualifier) in &row.deletes {
            columns.remove(&(*family, qualifier.clone()));
        }
        for (family, qualifier, value, timestamp_ms) in &row.cells {
            columns.insert((*family, qualifier.clone()), (value.clone(), *timestamp_ms));
        }
        if columns.is_empty() {
            model.remove(&row.key);
        }
    }
}

pub(super) struct TestRows<'a> {
    rows: std::vec::IntoIter<&'a TestRow>,
}

impl<'a> TestRows<'a> {
    pub(super) fn new(rows: &'a [TestRow]) -> Self {
        Self { rows: rows.iter().collect::<Vec<_>>().into_iter() }
    }
}

impl FlushRows for TestRows<'_> {
    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
        self.rows.as_mut_slice().sort_by(|a, b| compare(&a.key, &b.key));
    }

    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let row = self.rows.next()?;
        Some(FlushRow {
            key: &row.key,
            delete_row: row.delete_row.then_some(i64::MAX),
            deletes: row.deletes.iter().map(|(f, q)| (*f, q.as_slice(), i64::MAX)).collect(),
            cells: row
                .cells
                .iter()
                .map(|(family, qualifier, value, timestamp_ms)| FlushCell {
                    family: *family,
                    qualifier,
                    value,
                    timestamp_ms: *timestamp_ms,
                })
                .collect(),
        })
    }
}

pub(super) fn layout() -> PartLayout {
    PartLayout::try_new(&TableSchema::opentsdb_default(), PartLayout::DAY_SECS).unwrap()
}

/// Opens the store of a disk. Quarantined files are dated 5 ms after the epoch.
pub(super) fn try_open(disk: &FaultyDisk) -> Result<PartStore, PartError> {
    PartStore::open(Arc::new(disk.clone()), config(DiskSpace::new("/", 0)))
}

pub(super) fn resources(space: DiskSpace) -> Arc<PartResources> {
    Arc::new(PartResources::new(1 << 20, 2, Arc::new(space)))
}

pub(super) fn config(space: DiskSpace) -> PartConfig {
    PartConfig {
        table: tsd_storage::Table::new("tsdb"),
        layout: layout(),
        resources: resources(space),
        clock: || 5,
        compacts_rows: true,
    }
}

/// Creates a store on a new disk.
pub(super) fn new_store() -> (FaultyDisk, PartStore) {
    let disk = FaultyDisk::new(1);
    let store = try_open(&disk).unwrap();
    (disk, store)
}

/// Names of all files except the manifest.
pub(super) fn part_files(disk: &FaultyDisk) -> Vec<String> {
    disk.all_contents().into_keys().filter(|name| !name.starts_with("manifest")).collect()
}

pub(super) fn key(series: u8, base: u32) -> Vec<u8> {
    let mut key = vec![0, 0, 1];
    key.extend_from_slice(&base.to_be_bytes());
    key.extend_from_slice(&[0, 0, 1, 0, 0, series]);
    key
}

const START: u32 = 1_356_998_400;

/// Keys of few series and hours, so that flushes overlap, and unusual keys.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let base = prop_oneof![
        8 => (0_u32..6).prop_map(|hour| START + hour * 3_600),
        3 => (20_u32..28).prop_map(|hour| START + hour * 3_600),
        1 => Just(0),
        1 => Just(u32::MAX - u32::MAX % 3_600),
        1 => (0_u32..4).prop_map(|secs| START + secs),
    ];
    prop_oneof![
        12 => (0_u8..4, base).prop_map(|(series, base)| key(series, base)),
        1 => prop::collection::vec(0_u8..3, 0..9),
    ]
}

fn value(flags: u8) -> BoxedStrategy<Vec<u8>> {
    match flags {
        0 => (0_u8..20).prop_map(|v| vec![v]).boxed(),
        1 => (0x80_u16..0x90).prop_map(|v| v.to_be_bytes().to_vec()).boxed(),
        3 => (0x8000_u32..0x8010).prop_map(|v| v.to_be_bytes().to_vec()).boxed(),
        7 => any::<i64>().prop_map(|v| v.to_be_bytes().to_vec()).boxed(),
        0xB => prop_oneof![
            (0_i16..300).prop_map(|v| (f32::from(v) / 10.0).to_be_bytes().to_vec()),
            any::<f32>().prop_map(|v| v.to_be_bytes().to_vec())
        ]
        .boxed(),
        0xF => prop_oneof![
            (0_i16..300).prop_map(|v| (f64::from(v) / 10.0).to_be_bytes().to_vec()),
            any::<f64>().prop_map(|v| v.to_be_bytes().to_vec())
        ]
        .boxed(),
        // Flags without a canonical value.
        _ => prop::collection::vec(any::<u8>(), 0..5).boxed(),
    }
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0_u8), 2 => Just(0xF), 1 => Just(0xB), 1 => Just(1), 1 => Just(3), 1 => Just(7), 1 => Just(4)]
}

fn timestamps() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 1_356_998_400_000..1_356_998_500_000_i64, 1 => any::<i64>()]
}

fn qualifier(offset: u32, flags: u8, millis: bool) -> Vec<u8> {
    if millis {
        (0xF000_0000 | (offset * 100) << 6 | u32::from(flags)).to_be_bytes().to_vec()
    } else {
        ((offset << 4) as u16 | u16::from(flags)).to_be_bytes().to_vec()
    }
}

/// A cell of any kind.
fn cells() -> impl Strategy<Value = PlainCell> {
    let point = (0_u32..40, flags(), prop::bool::weighted(0.2)).prop_flat_map(|(o, flags, ms)| {
        (value(flags), timestamps())
            .prop_map(move |(v, t)| (Family::T, qualifier(o, flags, ms), v, t))
    });
    let column = (prop::collection::btree_set(0_u32..40, 1..6), any::<bool>(), timestamps())
        .prop_map(|(offsets, sorted, t)| {
            let mut offsets: Vec<u32> = offsets.into_iter().collect();
            if !sorted {
                offsets.reverse();
            }
            let q: Vec<u8> = offsets.iter().flat_map(|&o| qualifier(o, 0, false)).collect();
            let mut v: Vec<u8> = offsets.iter().map(|&o| o as u8 + 1).collect();
            v.extend((offsets.len() > 1).then_some(0));
            (Family::T, q, v, t)
        });
    let other = (
        prop_oneof![
            Just(vec![1, 0, 0]),
            Just(vec![5, 0, 0]),
            Just(vec![6, 0, 1]),
            Just(vec![7]),
            Just(vec![])
        ],
        prop::collection::vec(any::<u8>(), 0..6),
        timestamps(),
        prop_oneof![4 => Just(Family::T), 1 => Just(Family::Name)],
    )
        .prop_map(|(q, v, t, family)| (family, q, v, t));
    prop_oneof![12 => point, 3 => column, 2 => other]
}

fn rows() -> impl Strategy<Value = Vec<TestRow>> {
    let row = (
        keys(),
        prop::bool::weighted(0.08),
        prop::collection::vec(cells(), 0..2),
        prop::collection::vec(cells(), 0..20),
    );
    prop::collection::vec(row, 0..10).prop_map(|rows| {
        let mut by_key = BTreeMap::new();
        for (key, delete_row, deletes, cells) in rows {
            let mut columns = BTreeMap::new();
            for (family, qualifier, value, timestamp_ms) in cells {
                columns.insert((family, qualifier), (value, timestamp_ms));
            }
            let mut deletes: Vec<_> = deletes.into_iter().map(|(f, q, ..)| (f, q)).collect();
            // A column appears at most once, and a deleted row has no column deletes.
            deletes.retain(|column| !delete_row && !columns.contains_key(column));
            let cells =
                columns.into_iter().map(|((f, q), (v, t))| (f, q, v, t)).collect::<Vec<_>>();
            by_key.insert(key.clone(), TestRow { key, delete_row, deletes, cells });
        }
        by_key.into_values().collect()
    })
}

/// An operation on the store.
#[derive(Clone, Debug)]
pub(super) enum StoreAction {
    Flush(Vec<TestRow>),
    /// Runs all due merges.
    Merge,
    /// Merges all sections of each span.
    MergeAll,
}

pub(super) fn actions() -> impl Strategy<Value = Vec<StoreAction>> {
    let action = prop_oneof![
        8 => rows().prop_map(StoreAction::Flush),
        1 => Just(StoreAction::Merge),
        1 => Just(StoreAction::MergeAll),
    ];
    prop::collection::vec(action, 1..12)
}
