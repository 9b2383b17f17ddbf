//! Divides a table into ranges of keys that do not depend on the contents, so that a repeated copy has the same
//! ranges.
//!
//! A salted table is divided by salt. An unsalted table is divided by metric UID, into ranges whose bounds grow by an
//! eighth. Whether UIDs were assigned in order or at random, several ranges then have rows. The first range begins with
//! the first row of the table, and the last one ends with the last row, whatever their keys are.

use std::collections::BTreeSet;

use bytes::Bytes;
use tsd_engine::EngineHandle;
use tsd_model::{MetricUid, TableSchema, Uid};
use tsd_storage::{Table, prefix_range, salts};

use super::{
    error::CopyError,
    options::{CopiedKind, CopySelection},
    tables::CopiedTable,
};

/// Bits of a metric number below its highest bit that the bounds of ranges have.
const BOUND_BITS: u32 = 3;

/// A range of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableRange {
    /// Name, the same in each run.
    pub(super) name: String,
    pub(super) kind: CopiedKind,
    pub(super) from: Table,
    pub(super) to: Table,
    pub(super) start: Bytes,
    pub(super) stop: Bytes,
    /// First and last base time.
    pub(super) bases: Option<(u32, u32)>,
    /// True if an earlier pass over its rows has counted them.
    pub(super) is_repeated: bool,
}

impl TableRange {
    /// A table as one range.
    pub(super) fn whole(table: &CopiedTable) -> Self {
        Self {
            name: table.from.to_string(),
            kind: table.kind,
            from: table.from.clone(),
            to: table.to.clone(),
            start: Bytes::new(),
            stop: Bytes::new(),
            bases: None,
            is_repeated: false,
        }
    }

    /// The same range under another name, to copy it once more.
    pub(super) fn again(self) -> Self {
        Self { name: format!("{} again", self.name), is_repeated: true, ..self }
    }
}

/// The selected metrics; `None` selects all.
pub(super) async fn selected_metrics(
    of: &EngineHandle,
    selection: &CopySelection,
    must_exist: bool,
) -> Result<Option<BTreeSet<MetricUid>>, CopyError> {
    if selection.metrics.is_empty() {
        return Ok(None);
    }
    let table = &of.config().tables.uid;
    let mut found = BTreeSet::new();
    for pattern in &selection.metrics {
        let before = found.len();
        let matches = |name: &str| matches_pattern(pattern, name);
        let listed = of.uids().list(Some(MetricUid::KIND), matches, |mapping| {
            if !mapping.is_counter
                && let Ok(uid) = MetricUid::try_new(&mapping.uid)
            {
                found.insert(uid);
            }
            true
        });
        listed.await.map_err(CopyError::source(table))?;
        if must_exist && found.len() == before {
            return Err(CopyError::NoSuchMetric(pattern.clone()));
        }
    }
    Ok(Some(found))
}

/// The selected ranges of a table.
pub(super) fn of_table(
    of: &EngineHandle,
    table: &CopiedTable,
    selection: &CopySelection,
    metrics: Option<&BTreeSet<MetricUid>>,
) -> Vec<TableRange> {
    let schema = of.config().schema;
    let bases = selection.seconds.filter(|_| table.kind.has_row_keys()).map(|(first, last)| {
        let first = table.spans.iter().map(|span| span.base_time(first).as_secs()).min();
        (first.unwrap_or_default(), last)
    });
    let ranges = match (table.kind, metrics) {
        (CopiedKind::Uid | CopiedKind::Tree, _) | (CopiedKind::Meta, None) => {
            vec![(Bytes::new(), Bytes::new())]
        }
        (CopiedKind::Meta, Some(metrics)) => {
            metrics.iter().map(|metric| prefix_range(metric.as_bytes())).collect()
        }
        (CopiedKind::Data | CopiedKind::Rollup, None) => {
            let mut bounds = bounds(schema);
            bounds.insert(0, Bytes::new());
            let stops = bounds.iter().skip(1).cloned().chain([Bytes::new()]);
            bounds.iter().cloned().zip(stops).collect()
        }
        (CopiedKind::Data | CopiedKind::Rollup, Some(metrics)) => {
            let prefixes = salts(schema).into_iter().flat_map(|salt| {
                metrics.iter().map(move |metric| [&salt[..], metric.as_bytes()].concat())
            });
            prefixes.map(|prefix| prefix_range(&prefix)).collect()
        }
    };
    let range = |(start, stop): (Bytes, Bytes)| TableRange {
        name: format!("{} {}", table.from, tsd_model::to_hex(&start)),
        kind: table.kind,
        from: table.from.clone(),
        to: table.to.clone(),
        start,
        stop,
        bases,
        is_repeated: false,
    };
    ranges.into_iter().map(range).collect()
}

/// Keys at which ranges begin, without the first range.
fn bounds(schema: TableSchema) -> Vec<Bytes> {
    if schema.salt_width() > 0 {
        return salts(schema).into_iter().skip(1).map(Bytes::from).collect();
    }
    let width = schema.metric_width();
    let first = 1_u64 << BOUND_BITS;
    let mut bounds = Vec::new();
    for shift in 0..64 - BOUND_BITS {
        for number in (first..2 * first).map(|number| u128::from(number) << shift) {
            let number = u64::try_from(number).unwrap_or(u64::MAX);
            if number <= Uid::max_number(width) {
                let bytes = number.to_be_bytes();
                bounds.push(Bytes::copy_from_slice(bytes.get(8 - width..).unwrap_or_default()));
            }
        }
    }
    bounds
}

/// True if a name matches a pattern of `*` and `?`.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = name.get(at) {
        match pattern.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(p) if *p == '?' || p == c => {
                (at, of) = (at + 1, of + 1);
            }
            _ => {
                // The last star takes one more character.
                let Some((star_of, star_at)) = star else { return false };
                star = Some((star_of, star_at + 1));
                (at, of) = (star_at + 1, star_of + 1);
            }
        }
    }
    pattern.iter().skip(of).all(|p| *p == '*')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn bounds_are_in_order_and_every_width_has_some() {
        for (width, count) in [(1, 6 * 8 - 8), (3, 22 * 8 - 8), (8, 60 * 8)] {
            let schema = TableSchema::try_new(width, 3, 3, 0, 20).unwrap();
            let bounds = bounds(schema);
            assert!(bounds.is_sorted_by(|a, b| a < b), "{width}");
            assert!(
                bounds.len() >= count && bounds.len() <= count + 16,
                "{width}: {}",
                bounds.len()
            );
            assert!(bounds.iter().all(|bound| bound.len() == width));
        }
        let salted =
            |width, buckets| bounds(TableSchema::try_new(3, 3, 3, width, buckets).unwrap());
        assert_eq!(salted(1, 3), [Bytes::from_static(&[1]), Bytes::from_static(&[2])]);
        assert_eq!(salted(1, 1_000).len(), 255, "buckets share their salts");
        assert!(salted(2, 1).is_empty());
    }

    #[test]
    fn patterns_match_whole_names() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        };
        check("sys.cpu", "sys.cpu", true);
        check("sys.cpu", "sys.cpu.user", false);
        check("sys.*", "sys.", true);
        check("*.user", "sys.cpu.user", true);
        check("s*c?u*r", "sys.cpu.user", true);
        check("?", "", false);
        check("*", "", true);
        check("a*b", "ab c", false);
        check("é?", "éx", true);
    }
}
