//! Random operations and a model of their result.

use std::collections::BTreeMap;
use tsd_storage::StorageExt;

use super::*;

type ColumnKey = (Bytes, Bytes);

/// Cells of family `t` of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model(pub(super) BTreeMap<ColumnKey, Bytes>);

/// An operation. Conditional operations are chosen so that most of them succeed.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Put(Vec<(Bytes, Bytes, Bytes)>),
    Append(Vec<(Bytes, Bytes, Bytes)>),
    Increment(ColumnKey, i64),
    CompareAndSet(ColumnKey, Option<Bytes>, Bytes),
    CompareAndDelete(ColumnKey, Bytes),
    DeleteRow(Bytes),
    DeleteColumns(Bytes, Vec<Bytes>),
    /// Row, cell to put, columns to delete, and whether the row was read before its last change.
    Rewrite(Bytes, Option<(Bytes, Bytes)>, Vec<Bytes>, bool),
}

fn text(prefix: &str, number: u64) -> Bytes {
    format!("{prefix}{number}").into()
}

impl Operation {
    /// An operation on rows whose keys begin with `owner`.
    pub(super) fn random(owner: &str, rng: &mut TestRng, model: &Model) -> Self {
        let row = |rng: &mut TestRng| text(owner, rng.below(5));
        // Qualifiers of points, and other qualifiers.
        let qualifier = |rng: &mut TestRng| match rng.below(3) {
            0 => Bytes::copy_from_slice(&((rng.below(6) as u16) << 4).to_be_bytes()),
            1 => Bytes::copy_from_slice(&(0xf000_0000 | (rng.below(6) as u32) << 6).to_be_bytes()),
            _ => text("odd", rng.below(3)),
        };
        let value = |rng: &mut TestRng| match rng.below(12) {
            0 => Bytes::new(),
            1 => Bytes::from(vec![rng.below(256) as u8; 900]),
            2 => Bytes::from(vec![0; 1100]),
            _ => Bytes::copy_from_slice(&rng.below(1 << 40).to_be_bytes()),
        };
        let column = |rng: &mut TestRng| match rng.below(4) {
            0 => (row(rng), Bytes::from_static(b"counter")),
            _ => (row(rng), qualifier(rng)),
        };
        let present = |key: &ColumnKey| model.0.get(key).cloned();
        match rng.below(16) {
            0 => {
                let key = (row(rng), Bytes::from_static(b"counter"));
                Self::Increment(key, rng.below(100) as i64 - 50)
            }
            1 => {
                let key = column(rng);
                let expected =
                    if rng.chance(80) { present(&key) } else { Some(text("no", rng.below(3))) };
                let new = if key.1 == b"counter"[..] {
                    Bytes::copy_from_slice(&7_i64.to_be_bytes())
                } else {
                    value(rng)
                };
                Self::CompareAndSet(key, expected, new)
            }
            2 => {
                let key = column(rng);
                let expected = present(&key).unwrap_or_default();
                Self::CompareAndDelete(key, expected)
            }
            3 => Self::DeleteRow(row(rng)),
            4 => Self::DeleteColumns(row(rng), (0..3).map(|_| qualifier(rng)).collect()),
            5 => {
                let row = row(rng);
                let columns = model.0.keys().filter(|(r, _)| *r == row).map(|(_, q)| q.clone());
                let mut delete: Vec<_> = columns.filter(|_| rng.chance(50)).collect();
                if rng.chance(20) {
                    delete.push(qualifier(rng));
                }
                let put = rng.chance(80).then(|| (text("compacted", rng.below(2)), value(rng)));
                Self::Rewrite(row, put, delete, rng.chance(20))
            }
            6 | 7 => {
                let count = 1 + rng.below(4);
                Self::Append(
                    (0..count).map(|_| (row(rng), text("odd", rng.below(3)), value(rng))).collect(),
                )
            }
            _ => {
                let count = 1 + rng.below(12);
                Self::Put((0..count).map(|_| (row(rng), qualifier(rng), value(rng))).collect())
            }
        }
    }

    /// True if the operation writes unconditionally, so that its success proves that the log works.
    pub(super) const fn always_writes(&self) -> bool {
        // The row of a rewrite may have changed since it was planned.
        !matches!(self, Self::CompareAndSet(..) | Self::CompareAndDelete(..) | Self::Rewrite(..))
    }

    pub(super) async fn run(&self, store: &impl Storage) -> Result<(), StorageError> {
        let table = &data();
        let column = |(row, qualifier): &ColumnKey| Column {
            row: row.clone(),
            family: Family::T,
            qualifier: qualifier.clone(),
        };
        let batch = |cells: &[(Bytes, Bytes, Bytes)]| {
            let mut batch = CellBatch::new();
            for (row, qualifier, value) in cells {
                batch.begin_row(row).unwrap();
                let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
                batch.push(cell).unwrap();
            }
            batch
        };
        let of_t = |qualifiers: &[Bytes]| -> Vec<(Family, Bytes)> {
            qualifiers.iter().map(|q| (Family::T, q.clone())).collect()
        };
        match self {
            Self::Put(cells) => store.put(table, batch(cells)).await,
            Self::Append(cells) => store.append(table, batch(cells)).await,
            Self::Increment(key, by) => store.increment(table, column(key), *by).await.map(|_| ()),
            Self::CompareAndSet(key, expected, new) => store
                .compare_and_set(table, column(key), expected.clone(), new.clone())
                .await
                .map(|_| ()),
            Self::CompareAndDelete(key, expected) => {
                store.compare_and_delete(table, column(key), expected.clone()).await.map(|_| ())
            }
            Self::DeleteRow(row) => store.delete(table, Delete::Row(row.clone())).await,
            Self::DeleteColumns(row, columns) => {
                let columns = of_t(columns);
                store.delete(table, Delete::Columns { row: row.clone(), columns }).await
            }
            Self::Rewrite(row, put, delete, is_stale) => {
                let put = put.as_ref().map(|(qualifier, value)| Cell {
                    family: Family::T,
                    qualifier: qualifier.clone(),
                    value: value.clone(),
                    timestamp_ms: clock(),
                });
                let delete = of_t(delete)
                    .into_iter()
                    .map(|(family, qualifier)| ReplacedColumn {
                        family,
                        qualifier,
                        // Later than the put, which is deleted with these columns.
                        timestamp_ms: clock() + 3_600_000,
                    })
                    .collect::<Vec<_>>();
                loop {
                    let read =
                        if *is_stale { ReadVersion::default() } else { store.read_version(table) };
                    let (row, put, delete) = (row.clone(), put.clone(), delete.clone());
                    match store
                        .rewrite_row(
                            table,
                            RowRewrite {
                                row,
                                put,
                                superseded_ms: None,
                                delete,
                                read,
                                whole_row: false,
                            },
                        )
                        .await
                    {
                        Err(StorageError::Changed) if *is_stale => return Ok(()),
                        // A flush came between the read and the rewrite.
                        Err(StorageError::Changed) => {}
                        result => return result,
                    }
                }
            }
        }
    }
}

impl Model {
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Put(cells) => {
                for (row, qualifier, value) in cells {
                    self.0.insert((row.clone(), qualifier.clone()), value.clone());
                }
            }
            Operation::Append(cells) => {
                for (row, qualifier, value) in cells {
                    let present = self.0.entry((row.clone(), qualifier.clone())).or_default();
                    *present = [present.as_ref(), value].concat().into();
                }
            }
            Operation::Increment(key, by) => {
                let present = self
                    .0
                    .get(key)
                    .map_or(0, |value| i64::from_be_bytes(value.as_ref().try_into().unwrap()));
                self.0.insert(key.clone(), Bytes::copy_from_slice(&(present + by).to_be_bytes()));
            }
            Operation::CompareAndSet(key, expected, new) => {
                if self.0.get(key) == expected.as_ref() {
                    self.0.insert(key.clone(), new.clone());
                }
            }
            Operation::CompareAndDelete(key, expected) => {
                if self.0.get(key) == Some(expected) {
                    self.0.remove(key);
                }
            }
            Operation::DeleteRow(row) => self.0.retain(|(r, _), _| r != row),
            Operation::DeleteColumns(row, columns) => {
                self.0.retain(|(r, q), _| r != row || !columns.contains(q));
            }
            Operation::Rewrite(row, put, delete, is_stale) => {
                if !is_stale {
                    if let Some((qualifier, value)) = put {
                        self.0.insert((row.clone(), qualifier.clone()), value.clone());
                    }
                    self.0.retain(|(r, q), _| r != row || !delete.contains(q));
                }
            }
        }
    }

    /// Reads the rows of a store whose keys begin with `owner`.
    pub(super) async fn read(store: &impl Storage, owner: &str) -> Self {
        let mut model = Self::default();
        for (row, cells) in contents(store, &data()).await {
            if row.starts_with(owner.as_bytes()) {
                let columns = cells.into_iter().map(|c| ((row.clone(), c.qualifier), c.value));
                model.0.extend(columns);
            }
        }
        model
    }

    /// Describes the columns that differ between two models.
    pub(super) fn difference(&self, other: &Self) -> String {
        let of = |a: &Self, b: &Self, sign| {
            let differs = a.0.iter().filter(|(key, value)| b.0.get(*key) != Some(*value));
            let show = |((row, q), v): (&ColumnKey, &Bytes)| {
                format!("{sign}{row:?} {q:?} {} bytes; ", v.len())
            };
            differs.map(show).collect::<String>()
        };
        of(self, other, '+') + &of(other, self, '-')
    }
}
