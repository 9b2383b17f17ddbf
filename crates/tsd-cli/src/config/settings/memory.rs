//! Settings of the memory limit and its shares.

use tsd_engine::MEMORY_LIMIT_KEY;
use tsd_model::TableSchema;

use super::storage::EngineKind;
use crate::{
    config::{Config, ConfigError},
    memory_limit::{
        BLOCK_CACHE_KEY, BODIES_KEY, ConfiguredShares, MEMTABLES_KEY, MemoryPlan, PlanInput,
        QUERIES_KEY, QUERY_CACHE_KEY, SERIES_INDEX_SIZE_KEY, SERIES_KEY, SMALLEST_LIMIT,
        WRITE_QUEUE_KEY, find_limit,
    },
};

/// Default maximum of write actors of an engine.
const MAX_WRITE_SHARDS: u64 = 64;

/// Divides the limit into shares.
pub(super) fn memory(
    config: &Config,
    engine: EngineKind,
    schema: TableSchema,
    plugin_queues: u64,
) -> Result<MemoryPlan, ConfigError> {
    let limit: u64 = config.int(MEMORY_LIMIT_KEY);
    if limit > 0 && limit < SMALLEST_LIMIT {
        let expected = format!("expected at least {SMALLEST_LIMIT} bytes, or 0 for the default");
        return Err(config.bad_value(MEMORY_LIMIT_KEY, expected));
    }
    let set = |key: &str| config.is_set(key).then(|| config.int::<u64>(key));
    let input = PlanInput {
        limit: find_limit(Some(limit).filter(|limit| *limit > 0)),
        shares: ConfiguredShares {
            memtables: set(MEMTABLES_KEY),
            block_cache: set(BLOCK_CACHE_KEY),
            query_cache: set(QUERY_CACHE_KEY),
            series: set(SERIES_KEY),
            series_index: set(SERIES_INDEX_SIZE_KEY).filter(|bytes| *bytes > 0),
            write_queue: set(WRITE_QUEUE_KEY),
            bodies: set(BODIES_KEY),
            queries: set(QUERIES_KEY).filter(|bytes| *bytes > 0),
        },
        most_memtables: config.int(MEMTABLES_KEY),
        has_log: engine == EngineKind::Embedded
            || engine == EngineKind::HBase && !config.writes_directly(),
        has_block_cache: engine == EngineKind::Embedded,
        has_series_index: super::hbase::series_index(config).is_some(),
        write_shards: u64::from(schema.salt_buckets()).clamp(1, MAX_WRITE_SHARDS),
        plugin_queues,
    };
    MemoryPlan::try_new(input).map_err(|error| config.bad_value(error.key, error.text))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use crate::config::Settings;

    #[test]
    fn parts_follow_the_limit_and_are_shown_with_their_sizes() {
        let settings = Settings::with(&[("tsd.memory.limit", "268435456")]).unwrap();
        let plan = &settings.memory;
        assert_eq!(settings.storage.memtable_bytes, 26_843_545);
        assert_eq!(settings.storage.cache_bytes, 16 << 20);
        assert_eq!(settings.engine.ingest.series_cache_entries as u64, plan.series);
        assert_eq!(settings.engine.memory.limit(), 268_435_456);
        assert_eq!(settings.engine.query.max_total_memory_bytes, plan.queries);
        assert_eq!(settings.server.limits.all_bodies_bytes as u64, plan.bodies);
        let shown = |key: &str| settings.server.properties.get(key).map(String::as_str);
        assert_eq!(shown("tsd.storage.memtable.size"), Some("26843545"));
        assert_eq!(shown("tsd.storage.cache.size"), Some("16777216"));
    }

    #[test]
    fn configured_parts_that_do_not_fit_stop_the_start() {
        let limit = ("tsd.memory.limit", "268435456");
        let error =
            Settings::with(&[limit, ("tsd.storage.memtable.size", "268435456")]).unwrap_err();
        assert!(error.starts_with("tsd.storage.memtable.size = \"268435456\""), "{error}");
        assert!(error.contains("tsd.memory.limit = 268435456"), "{error}");
        let error =
            Settings::with(&[limit, ("tsd.http.request.max_total", "268435456")]).unwrap_err();
        assert!(error.contains("at most"), "{error}");
        let error = Settings::with(&[("tsd.memory.limit", "1000")]).unwrap_err();
        assert!(error.contains("expected at least 268435456 bytes"), "{error}");
    }
}
