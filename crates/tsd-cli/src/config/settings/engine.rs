//! Settings of the engine.

use std::time::Duration;

use tsd_engine::{
    CompactionConfig, EngineConfig, IngestConfig, MetaTracking, RowConfig, Tables, UidConfig,
    WhiteList,
};
use tsd_model::TableSchema;
use tsd_storage_hbase::SeriesIndexMode;

use super::{extra_data, queries, table_names};
use crate::config::{Config, ConfigError};

/// Settings of the engine. `schema` is the schema of the store, which overrides the keys.
pub(super) fn engine(config: &Config, schema: TableSchema) -> Result<EngineConfig, ConfigError> {
    let defaults = EngineConfig::default();
    Ok(EngineConfig {
        schema,
        tables: tables(config)?,
        uids: uids(config)?,
        ingest: IngestConfig {
            max_tags: config.int("tsd.storage.max_tags"),
            enable_appends: config.bool("tsd.storage.enable_appends"),
            queue_deadline: Duration::from_millis(config.int("tsd.storage.write.deadline")),
            store_deadline: Duration::from_millis(config.int("tsd.storage.write.deadline")),
            ..defaults.ingest
        },
        compaction: CompactionConfig {
            enabled: config.bool("tsd.storage.enable_compaction"),
            flush_interval: Duration::from_secs(
                config.int("tsd.storage.compaction.flush_interval"),
            ),
            min_flush_threshold: config.int("tsd.storage.compaction.min_flush_threshold"),
            max_concurrent_flushes: config.int("tsd.storage.compaction.max_concurrent_flushes"),
            flush_speed: config.int("tsd.storage.compaction.flush_speed"),
            on_read: config.bool("tsd.storage.compaction.on_read"),
            ..defaults.compaction
        },
        rows: RowConfig {
            fix_duplicates: config.bool("tsd.storage.fix_duplicates"),
            use_otsdb_timestamp: config.bool("tsd.storage.use_otsdb_timestamp"),
            use_max_value: config.bool("tsd.storage.use_max_value"),
            repair_appends: config.bool("tsd.storage.repair_appends"),
            date_tiered_compaction_start_ms: config
                .int("tsd.storage.get_date_tiered_compaction_start"),
        },
        query: queries::queries(config),
        realtime_series_meta: config.bool("tsd.core.meta.enable_realtime_ts"),
        meta_tracking: MetaTracking::from_settings(
            config.bool("tsd.core.meta.enable_tsuid_tracking"),
            config.bool("tsd.core.meta.enable_realtime_ts"),
            config.bool("tsd.core.meta.enable_tsuid_incrementing"),
        ),
        tree_processing: config.bool("tsd.core.tree.enable_processing"),
        rollups: extra_data::rollups(config)?,
        histograms: extra_data::histograms(config)?,
        ..defaults
    })
}

fn tables(config: &Config) -> Result<Tables, ConfigError> {
    let [data, uid, meta, tree] = table_names::KEYS.map(|key| table_names::table(config, key));
    let tables = Tables { data: data?, uid: uid?, meta: meta?, tree: tree? };
    table_names::check_distinct(config)?;
    Ok(tables)
}

fn uids(config: &Config) -> Result<UidConfig, ConfigError> {
    let mut filter = None;
    if config.bool("tsd.uidfilter.enable") {
        filter = Some(WhiteList {
            metric_patterns: patterns(config, "tsd.uidfilter.whitelist.metric_patterns")?,
            tagk_patterns: patterns(config, "tsd.uidfilter.whitelist.tagk_patterns")?,
            tagv_patterns: patterns(config, "tsd.uidfilter.whitelist.tagv_patterns")?,
        });
    }
    Ok(UidConfig {
        auto_create_metrics: config.bool("tsd.core.auto_create_metrics"),
        auto_create_tagks: config.bool("tsd.core.auto_create_tagks"),
        auto_create_tagvs: config.bool("tsd.core.auto_create_tagvs"),
        random_metrics: config.bool("tsd.core.uid.random_metrics"),
        realtime_meta: config.bool("tsd.core.meta.enable_realtime_uid"),
        allow_specialchars: config.string("tsd.core.tag.allow_specialchars"),
        filter,
        max_series_per_metric: series_limit(config)?,
        ..UidConfig::default()
    })
}

/// The limit on the series of a metric, which the series index counts.
fn series_limit(config: &Config) -> Result<u64, ConfigError> {
    const KEY: &str = "tsd.limits.series_per_metric";
    let limit = config.int(KEY);
    let is_counted = super::hbase::series_index(config) == Some(SeriesIndexMode::Complete);
    if limit > 0 && config.is_on_hbase() && !is_counted {
        let expected = "expected 0 unless tsd.storage.hbase.series_index is complete: nothing else counts series";
        return Err(config.bad_value(KEY, expected));
    }
    Ok(limit)
}

/// A list of regular expressions, split at the delimiter.
fn patterns(config: &Config, key: &str) -> Result<Vec<String>, ConfigError> {
    let Some(list) = config.non_empty(key) else { return Ok(Vec::new()) };
    let delimiter = config.string("tsd.uidfilter.whitelist.delimiter");
    if delimiter.is_empty() {
        let expected = "expected the text between two patterns";
        return Err(config.bad_value("tsd.uidfilter.whitelist.delimiter", expected));
    }
    Ok(list.split(delimiter.as_str()).map(str::to_owned).collect())
}
