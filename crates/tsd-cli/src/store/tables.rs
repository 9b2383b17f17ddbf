//! Lists the configured tables of the store.

use tsd_engine::Rollups;
use tsd_storage::Table;
use tsd_storage_embedded::{EmbeddedTable, TableKind};

use crate::config::Settings;

/// Names of all configured tables.
pub(crate) fn all_tables(settings: &Settings) -> Vec<Table> {
    tables(settings).into_iter().map(|spec| spec.table).collect()
}

/// All configured tables, each once.
pub(super) fn tables(settings: &Settings) -> Vec<EmbeddedTable> {
    let tables = &settings.engine.tables;
    let mut specs = vec![
        EmbeddedTable::data(tables.data.clone()),
        EmbeddedTable::cells(tables.uid.clone()),
        EmbeddedTable::cells(tables.meta.clone()),
        EmbeddedTable::cells(tables.tree.clone()),
    ];
    for table in settings.engine.rollups.iter().flat_map(Rollups::tables) {
        if !specs.iter().any(|spec| spec.table == table) {
            let row_secs = row_secs(settings, &table);
            specs.push(EmbeddedTable { table, kind: TableKind::Rollups { row_secs } });
        }
    }
    specs
}

/// Seconds of the longest row of a table of rollups or pre-aggregates.
fn row_secs(settings: &Settings, table: &Table) -> u64 {
    let intervals = settings.engine.rollups.iter().flat_map(|rollups| rollups.config.intervals());
    let of_table = intervals.filter(|interval| {
        [&interval.table, &interval.pre_aggregation_table]
            .iter()
            .any(|name| *name == table.as_str())
    });
    of_table.map(|interval| interval.row_span.seconds()).max().unwrap_or_default()
}
