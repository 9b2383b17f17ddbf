//! Pairs the tables of the source with those of the target.

use tsd_engine::{EngineConfig, EngineHandle, Rollups};
use tsd_model::{RollupInterval, RowSpan};
use tsd_storage::Table;

use super::{
    error::CopyError,
    options::{CopiedKind, CopySelection},
};

/// A table in both stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedTable {
    pub(super) kind: CopiedKind,
    pub(super) from: Table,
    pub(super) to: Table,
    /// Spans of the rows.
    pub(super) spans: Vec<RowSpan>,
}

/// The tables of a selection. Leaves out optional tables that are missing in the source, and those that are missing in
/// the target and empty in the source.
pub(super) async fn pairs(
    from: &EngineHandle,
    to: &EngineHandle,
    selection: &CopySelection,
) -> Result<Vec<CopiedTable>, CopyError> {
    let mut found = Vec::new();
    for table in configured(from.config(), to.config())? {
        let is_selected = selection.kinds.is_empty() || selection.kinds.contains(&table.kind);
        // Branches are not divided by metric, so a selection of metrics does not apply.
        let is_whole = table.kind == CopiedKind::Tree && !selection.metrics.is_empty();
        let is_named = selection.kinds.contains(&table.kind);
        if is_selected && (!is_whole || is_named) && exists(from, to, &table).await? {
            found.push(table);
        }
    }
    Ok(found)
}

fn configured(from: &EngineConfig, to: &EngineConfig) -> Result<Vec<CopiedTable>, CopyError> {
    let pair = |kind, from: &Table, to: &Table, spans| CopiedTable {
        kind,
        from: from.clone(),
        to: to.clone(),
        spans,
    };
    let (source, target) = (&from.tables, &to.tables);
    let mut tables = vec![
        pair(CopiedKind::Uid, &source.uid, &target.uid, Vec::new()),
        pair(CopiedKind::Data, &source.data, &target.data, vec![RowSpan::Hours(1)]),
        pair(CopiedKind::Meta, &source.meta, &target.meta, Vec::new()),
        pair(CopiedKind::Tree, &source.tree, &target.tree, Vec::new()),
    ];
    let Some(rollups) = &from.rollups else { return Ok(tables) };
    for interval in rollups.config.intervals() {
        let other = same_interval(rollups, interval, to.rollups.as_ref())?;
        for (from, to) in [
            (&interval.table, &other.table),
            (&interval.pre_aggregation_table, &other.pre_aggregation_table),
        ] {
            let (from, to) = (Table::new(from), Table::new(to));
            match tables.iter_mut().find(|table| table.from == from) {
                Some(table) if table.to == to => table.spans.push(interval.row_span),
                Some(table) => {
                    return Err(CopyError::Rollups(format!(
                        "table {from} of the source would be copied to {} and {to}",
                        table.to
                    )));
                }
                None => tables.push(pair(CopiedKind::Rollup, &from, &to, vec![interval.row_span])),
            }
        }
    }
    Ok(tables)
}

/// The interval of the target with the same rows.
fn same_interval<'t>(
    source: &Rollups,
    interval: &RollupInterval,
    target: Option<&'t Rollups>,
) -> Result<&'t RollupInterval, CopyError> {
    let failed = |what: &str| CopyError::Rollups(format!("interval {}: {what}", interval.interval));
    let target = target.ok_or_else(|| failed("the target has no rollups (tsd.rollups.config)"))?;
    let same = target.config.interval(&interval.interval);
    let same = same.ok_or_else(|| failed("the target has no such interval"))?;
    if same.row_span != interval.row_span {
        return Err(failed("its rows have another span in the target"));
    }
    let differs = |id| source.config.aggregator_name(id) != target.config.aggregator_name(id);
    if (0..=u8::MAX).any(differs) {
        return Err(failed("the target has other aggregator ids"));
    }
    Ok(same)
}

async fn exists(
    from: &EngineHandle,
    to: &EngineHandle,
    table: &CopiedTable,
) -> Result<bool, CopyError> {
    let is_optional = matches!(table.kind, CopiedKind::Meta | CopiedKind::Tree);
    let source = from.storage().table_exists(&table.from).await;
    if !source.map_err(CopyError::source(&table.from))? {
        if is_optional {
            return Ok(false);
        }
        let advice = "name the tables of the source as its daemons do";
        return Err(CopyError::NoTable { side: "source", table: table.from.clone(), advice });
    }
    let target = to.storage().table_exists(&table.to).await;
    if target.map_err(CopyError::target(&table.to))? {
        return Ok(true);
    }
    let scan = tsd_storage::Scan { limit: Some(1), ..Default::default() };
    let mut rows = from.storage().scan(&table.from, scan);
    let is_empty = rows.next_rows().await.map_err(CopyError::source(&table.from))?.is_none();
    if is_empty {
        return Ok(false);
    }
    let advice = "`tsdb table create` creates the tables";
    Err(CopyError::NoTable { side: "target", table: table.to.clone(), advice })
}
