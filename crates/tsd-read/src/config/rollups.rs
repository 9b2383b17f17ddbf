//! Rollups and pre-aggregates.

use tsd_model::RollupConfig;
use tsd_storage::Table;

/// Settings of rollups and pre-aggregates, written and read.
#[derive(Clone, Debug)]
pub struct Rollups {
    /// Intervals, tables and aggregator ids (`tsd.rollups.config`).
    pub config: RollupConfig,
    /// Tag key of pre-aggregates (`tsd.rollups.agg_tag_key`).
    pub aggregate_tag_key: String,
    /// Value of that tag for other rollups (`tsd.rollups.raw_agg_tag_value`).
    pub raw_tag_value: String,
    /// Adds that tag to other rollups (`tsd.rollups.tag_raw`).
    pub tag_raw: bool,
    /// Rejects averages and deviations (`tsd.rollups.block_derived`).
    pub block_derived: bool,
    /// Reads recent data that is not rolled up yet from the data table (`tsd.rollups.split_query.enable`).
    pub split_queries: bool,
}

impl Rollups {
    /// OpenTSDB's defaults for these intervals.
    #[must_use]
    pub fn new(config: RollupConfig) -> Self {
        Self {
            config,
            aggregate_tag_key: "_aggregate".to_owned(),
            raw_tag_value: "RAW".to_owned(),
            tag_raw: false,
            block_derived: true,
            split_queries: false,
        }
    }

    /// The distinct tables of all intervals.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for interval in self.config.intervals() {
            for name in [&interval.table, &interval.pre_aggregation_table] {
                let table = Table::new(name);
                if !tables.contains(&table) {
                    tables.push(table);
                }
            }
        }
        tables
    }
}
