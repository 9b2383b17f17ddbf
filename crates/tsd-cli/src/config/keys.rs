//! Every key the configuration knows, once: its type, its default, and whether it does anything.
//!
//! OpenTSDB's keys stay verbatim, so an existing `opentsdb.conf` works. Those that are known but
//! have nothing to act on here are listed too: a reader of the log then learns the difference
//! between a key that is misspelt and one that this version does not use.

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `1`, `true` and `yes` are true, everything else is false.
    Bool,
    /// A whole number in a range, inclusive.
    Int {
        /// Smallest value allowed.
        min: i64,
        /// Largest value allowed.
        max: i64,
    },
    /// Seconds in a range, inclusive; decimals are allowed.
    Seconds {
        /// Smallest value allowed.
        min: f64,
        /// Largest value allowed.
        max: f64,
    },
    /// Any text.
    Text,
    /// One of a few words, in lower case.
    OneOf(&'static [&'static str]),
}

/// Whether a key does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is read.
    Applied,
    /// OpenTSDB has it; it is accepted, shown by `/api/config`, and changes nothing.
    None,
}

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key, verbatim.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Its value where nothing sets it; `None` leaves it out of `/api/config`.
    pub default: Option<&'static str>,
    /// Whether it does anything.
    pub effect: Effect,
}

const fn bool(name: &'static str, default: &'static str) -> Key {
    Key { name, kind: Kind::Bool, default: Some(default), effect: Effect::Applied }
}

const fn int(name: &'static str, default: &'static str, min: i64, max: i64) -> Key {
    Key { name, kind: Kind::Int { min, max }, default: Some(default), effect: Effect::Applied }
}

const fn seconds(name: &'static str, default: &'static str, min: f64, max: f64) -> Key {
    Key { name, kind: Kind::Seconds { min, max }, default: Some(default), effect: Effect::Applied }
}

const fn text(name: &'static str, default: Option<&'static str>) -> Key {
    Key { name, kind: Kind::Text, default, effect: Effect::Applied }
}

const fn one_of(name: &'static str, default: &'static str, words: &'static [&'static str]) -> Key {
    Key { name, kind: Kind::OneOf(words), default: Some(default), effect: Effect::Applied }
}

/// A key of OpenTSDB that changes nothing here.
const fn idle(name: &'static str, default: Option<&'static str>) -> Key {
    Key { name, kind: Kind::Text, default, effect: Effect::None }
}

const INT_MAX: i64 = i32::MAX as i64;
const BYTES_MAX: i64 = 1 << 40;

/// All keys, sorted by name.
pub static KEYS: &[Key] = &[
    // Keys of OpenTSDB's storage client. Pauses between attempts differ, so the number of attempts is
    // a bound beside the time of an operation.
    Key { default: None, ..int("hbase.client.retries.number", "", 1, INT_MAX) },
    idle("hbase.increments.buffer_size", None),
    idle("hbase.increments.durable", None),
    idle("hbase.ipc.client.connection.idle_timeout", None),
    idle("hbase.ipc.client.socket.receiveBufferSize", None),
    idle("hbase.ipc.client.socket.sendBufferSize", None),
    idle("hbase.ipc.client.socket.timeout.connect", None),
    idle("hbase.ipc.client.socket.write.high_watermark", None),
    idle("hbase.ipc.client.socket.write.low_watermark", None),
    idle("hbase.ipc.client.tcpkeepalive", None),
    idle("hbase.ipc.client.tcpnodelay", None),
    idle("hbase.kerberos.regionserver.principal", None),
    idle("hbase.nsre.high_watermark", None),
    idle("hbase.nsre.low_watermark", None),
    idle("hbase.region_client.check_channel_write_status", None),
    // Calls under way on one connection; 0 leaves it to this program.
    Key { default: None, ..int("hbase.region_client.inflight_limit", "", 0, INT_MAX) },
    idle("hbase.region_client.pending_limit", None),
    idle("hbase.regionserver.kerberos.password", None),
    idle("hbase.rpc.protection", None),
    // Most milliseconds for one call; 0 leaves it to this program.
    Key { default: None, ..int("hbase.rpc.timeout", "", 0, INT_MAX) },
    idle("hbase.rpcs.batch.size", None),
    // Points go out as they come, in batches that grow with the load.
    idle("hbase.rpcs.buffered_flush_interval", None),
    idle("hbase.sasl.clientconfig", None),
    // Checked, since a cluster that asks for it cannot be reached without.
    Key { default: None, ..bool("hbase.security.auth.enable", "") },
    idle("hbase.security.authentication", None),
    idle("hbase.timer.tick", None),
    idle("hbase.timer.ticks_per_wheel", None),
    idle("hbase.workers.size", None),
    idle("hbase.zookeeper.getroot.retry_delay", None),
    idle("hbase.zookeeper.quorum", None),
    idle("hbase.zookeeper.session.timeout", None),
    idle("hbase.zookeeper.znode.parent", None),
    idle("tsd.core.authentication.enable", Some("false")),
    idle("tsd.core.authentication.plugin", Some("")),
    // OpenTSDB's default is false. A first put must work on an empty store.
    bool("tsd.core.auto_create_metrics", "true"),
    bool("tsd.core.auto_create_tagks", "true"),
    bool("tsd.core.auto_create_tagvs", "true"),
    bool("tsd.core.bulk.allow_out_of_order_timestamps", "false"),
    int("tsd.core.connections.limit", "0", 0, INT_MAX),
    bool("tsd.core.enable_api", "true"),
    bool("tsd.core.enable_ui", "true"),
    // JSON, or the name of a .json file: class names of codecs and their ids.
    text("tsd.core.histograms.config", None),
    idle("tsd.core.meta.cache.enable", Some("false")),
    idle("tsd.core.meta.cache.plugin", None),
    bool("tsd.core.meta.enable_realtime_ts", "false"),
    bool("tsd.core.meta.enable_realtime_uid", "false"),
    bool("tsd.core.meta.enable_tsuid_incrementing", "false"),
    bool("tsd.core.meta.enable_tsuid_tracking", "false"),
    idle("tsd.core.plugin_path", Some("")),
    idle("tsd.core.preload_uid_cache", Some("false")),
    idle("tsd.core.preload_uid_cache.max_entries", Some("300000")),
    idle("tsd.core.response.async", None),
    idle("tsd.core.response.worker.num", None),
    // Series names as sent that are remembered with their row keys.
    int("tsd.core.series_cache.size", "1000000", 1, INT_MAX),
    int("tsd.core.socket.timeout", "0", 0, INT_MAX),
    bool("tsd.core.stats_with_port", "false"),
    idle("tsd.core.storage_exception_handler.enable", Some("false")),
    idle("tsd.core.storage_exception_handler.plugin", None),
    text("tsd.core.tag.allow_specialchars", None),
    text("tsd.core.timezone", None),
    idle("tsd.core.tree.enable_processing", Some("false")),
    bool("tsd.core.uid.random_metrics", "false"),
    idle("tsd.gnuplot.options.allowlist", None),
    idle("tsd.http.cachedir", None),
    text("tsd.http.header_tag", Some("")),
    bool("tsd.http.query.allow_delete", "false"),
    text("tsd.http.request.cors_domains", Some("")),
    text(
        "tsd.http.request.cors_headers",
        Some(
            "Authorization, Content-Type, Accept, Origin, User-Agent, DNT, Cache-Control, \
             X-Mx-ReqToken, Keep-Alive, X-Requested-With, If-Modified-Since",
        ),
    ),
    // OpenTSDB's default is false, which refuses every body over 8 KB.
    bool("tsd.http.request.enable_chunked", "true"),
    // OpenTSDB's default is 4096.
    int("tsd.http.request.max_chunk", "16777216", 1, BYTES_MAX),
    // All request bodies in memory at once; one more is answered with 503.
    int("tsd.http.request.max_total", "268435456", 1, BYTES_MAX),
    // Longest silence inside a request, in seconds.
    int("tsd.http.request.timeout", "60", 1, INT_MAX),
    idle("tsd.http.rpc.plugins", None),
    bool("tsd.http.show_stack_trace", "true"),
    idle("tsd.http.staticroot", None),
    one_of("tsd.log.format", "text", &["text", "json"]),
    text("tsd.log.level", Some("info")),
    one_of("tsd.mode", "rw", &["rw", "ro", "wo"]),
    idle("tsd.network.async_io", Some("true")),
    int("tsd.network.backlog", "3072", 1, INT_MAX),
    text("tsd.network.bind", Some("0.0.0.0")),
    bool("tsd.network.keep_alive", "true"),
    // A telnet connection that sends more without a line end is closed; 1024 as in OpenTSDB.
    int("tsd.network.max_line_length", "1024", 64, 1 << 30),
    int("tsd.network.port", "4242", 0, 65_535),
    bool("tsd.network.reuse_address", "true"),
    bool("tsd.network.tcp_no_delay", "true"),
    // 0 takes the number of cores.
    int("tsd.network.worker_threads", "0", 0, 1024),
    // Longest time in seconds an answer may stay unread before its connection is closed.
    int("tsd.network.write_timeout", "60", 1, INT_MAX),
    text("tsd.no_diediedie", Some("false")),
    bool("tsd.query.allow_simultaneous_duplicates", "true"),
    bool("tsd.query.enable_fuzzy_filter", "true"),
    int("tsd.query.filter.expansion_limit", "4096", 0, INT_MAX),
    bool("tsd.query.limits.bytes.allow_override", "false"),
    int("tsd.query.limits.bytes.default", "0", 0, i64::MAX),
    bool("tsd.query.limits.data_points.allow_override", "false"),
    // OpenTSDB's default is 0, no limit.
    int("tsd.query.limits.data_points.default", "500000000", 0, i64::MAX),
    text("tsd.query.limits.overrides.config", None),
    // In seconds, as OpenTSDB counts it; its documentation says milliseconds, its default is 60000.
    int("tsd.query.limits.overrides.interval", "60", 1, INT_MAX),
    // Bytes of memory that one query may take; 0 sets no limit of its own.
    int("tsd.query.max_memory_bytes", "1073741824", 0, BYTES_MAX),
    // Heavy queries that run at once; small ones run beside them.
    int("tsd.query.max_running", "16", 1, 65_536),
    // Scans that one query has open at once.
    int("tsd.query.max_scans", "8", 1, 1024),
    int("tsd.query.max_sub_queries", "1000", 1, INT_MAX),
    // Bytes of memory for all queries; 0 takes a quarter of the machine's.
    int("tsd.query.max_total_memory_bytes", "0", 0, BYTES_MAX),
    // Queries beyond `max_running` that are taken; one more is answered with 503.
    int("tsd.query.max_waiting", "256", 0, 1 << 20),
    idle("tsd.query.multi_get.batch_size", Some("1024")),
    idle("tsd.query.multi_get.concurrent", Some("20")),
    idle("tsd.query.multi_get.enable", Some("false")),
    // For tables whose number of salt buckets was changed: series are looked for in all of them.
    bool("tsd.query.multi_get.get_all_salts", "false"),
    idle("tsd.query.multi_get.limit", Some("131072")),
    bool("tsd.query.skip_unresolved_tagvs", "false"),
    // Threads for queries; 0 takes the number of cores.
    int("tsd.query.threads", "0", 0, 1024),
    // OpenTSDB's default is 0, no limit.
    int("tsd.query.timeout", "600000", 0, INT_MAX),
    text("tsd.rollups.agg_tag_key", Some("_aggregate")),
    bool("tsd.rollups.block_derived", "true"),
    // JSON, or the name of a .json file.
    text("tsd.rollups.config", None),
    bool("tsd.rollups.enable", "false"),
    text("tsd.rollups.raw_agg_tag_value", Some("RAW")),
    bool("tsd.rollups.split_query.enable", "false"),
    bool("tsd.rollups.tag_raw", "false"),
    idle("tsd.rpc.plugins", None),
    bool("tsd.rpc.telnet.return_errors", "true"),
    idle("tsd.rtpublisher.enable", Some("false")),
    idle("tsd.rtpublisher.plugin", Some("")),
    idle("tsd.search.enable", Some("false")),
    idle("tsd.search.plugin", Some("")),
    int("tsd.shutdown.timeout", "20", 1, 3600),
    idle("tsd.startup.enable", Some("false")),
    idle("tsd.startup.plugin", Some("")),
    bool("tsd.stats.canonical", "false"),
    bool("tsd.storage.accept_damage", "false"),
    // When a point in HBase counts as written: when HBase has it, or when the log of this host has.
    // The embedded store always answers when its log has it.
    one_of("tsd.storage.ack", "storage", &["storage", "log"]),
    // Memory for blocks of the embedded store.
    int("tsd.storage.cache.size", "67108864", 0, BYTES_MAX),
    int("tsd.storage.compaction.flush_interval", "10", 1, INT_MAX),
    int("tsd.storage.compaction.flush_speed", "2", 1, INT_MAX),
    int("tsd.storage.compaction.max_concurrent_flushes", "10000", 1, INT_MAX),
    int("tsd.storage.compaction.min_flush_threshold", "100", 0, INT_MAX),
    // Whether a query that meets an old row in pieces has it compacted, as OpenTSDB's queries do.
    bool("tsd.storage.compaction.on_read", "true"),
    text("tsd.storage.data_directory", Some("tsdb-data")),
    bool("tsd.storage.enable_appends", "false"),
    bool("tsd.storage.enable_compaction", "true"),
    one_of("tsd.storage.engine", "embedded", &["embedded", "memory", "hbase"]),
    bool("tsd.storage.fix_duplicates", "false"),
    idle("tsd.storage.flush_interval", Some("1000")),
    int("tsd.storage.get_date_tiered_compaction_start", "0", 0, i64::MAX),
    // Connections to each region server for reads and writes; scans have one of their own.
    int("tsd.storage.hbase.connections", "2", 1, 64),
    text("tsd.storage.hbase.data_table", Some("tsdb")),
    // Where servers are really: `name[:port]=address[:port], ...`.
    text("tsd.storage.hbase.hosts", Some("")),
    text("tsd.storage.hbase.meta_table", Some("tsdb-meta")),
    // Most milliseconds for one operation, with all its attempts; hbase.rpc.timeout bounds one call.
    int("tsd.storage.hbase.operation_timeout", "180000", 100, INT_MAX),
    bool("tsd.storage.hbase.prefetch_meta", "false"),
    int("tsd.storage.hbase.scanner.maxNumRows", "128", 1, INT_MAX),
    // How long in seconds a start waits for ZooKeeper and HBase.
    int("tsd.storage.hbase.start_timeout", "60", 0, INT_MAX),
    text("tsd.storage.hbase.tree_table", Some("tsdb-tree")),
    text("tsd.storage.hbase.uid_table", Some("tsdb-uid")),
    // Name that HBase is told; that of the process where it is empty.
    text("tsd.storage.hbase.user", Some("")),
    text("tsd.storage.hbase.zk_basedir", Some("/hbase")),
    // Set, it chooses HBase as the engine unless `tsd.storage.engine` is set too.
    text("tsd.storage.hbase.zk_quorum", Some("localhost")),
    // How long in seconds a row is held before it goes to HBase, where the log acknowledges.
    seconds("tsd.storage.hold_seconds", "60", 0.1, 3600.0),
    // Bytes of the log while HBase is away; beyond them points are refused.
    int("tsd.storage.log.max_size", "4294967296", 1 << 20, BYTES_MAX),
    // Bytes of the write-ahead log after which rows leave memory.
    int("tsd.storage.log.segment_size", "67108864", 65_536, BYTES_MAX),
    int("tsd.storage.max_tags", "8", 1, 1024),
    // How long in seconds, and in how many bytes, rows are held before they go to the tree.
    int("tsd.storage.memtable.max_age", "600", 1, INT_MAX),
    int("tsd.storage.memtable.size", "134217728", 1 << 20, BYTES_MAX),
    bool("tsd.storage.repair_appends", "false"),
    // Bytes of the disk that are left free; below, writes fail and reads go on.
    int("tsd.storage.reserve", "67108864", 0, BYTES_MAX),
    int("tsd.storage.salt.buckets", "20", 1, 65_536),
    // OpenTSDB's default is 0. Salted from the start, one shape serves every engine.
    int("tsd.storage.salt.width", "1", 0, 8),
    int("tsd.storage.uid.width.metric", "3", 1, 8),
    int("tsd.storage.uid.width.tagk", "3", 1, 8),
    int("tsd.storage.uid.width.tagv", "3", 1, 8),
    bool("tsd.storage.use_max_value", "true"),
    bool("tsd.storage.use_otsdb_timestamp", "false"),
    // How long in milliseconds a point waits for room in a full queue before it is refused, and an
    // HTTP request for the store before its client is told to send it again.
    int("tsd.storage.write.deadline", "10000", 1, INT_MAX),
    // Bytes of cells that wait per salt bucket before senders wait.
    int("tsd.storage.write.queue_size", "8388608", 65_536, BYTES_MAX),
    idle("tsd.timeseriesfilter.enable", Some("false")),
    idle("tsd.timeseriesfilter.plugin", None),
    idle("tsd.uid.lru.enable", Some("false")),
    idle("tsd.uid.lru.id.size", Some("5000000")),
    idle("tsd.uid.lru.name.size", Some("5000000")),
    idle("tsd.uid.use_mode", Some("false")),
    bool("tsd.uidfilter.enable", "false"),
    idle("tsd.uidfilter.plugin", None),
    text("tsd.uidfilter.whitelist.delimiter", Some(",")),
    text("tsd.uidfilter.whitelist.metric_patterns", None),
    text("tsd.uidfilter.whitelist.tagk_patterns", None),
    text("tsd.uidfilter.whitelist.tagv_patterns", None),
];

/// The key of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.binary_search_by(|key| key.name.cmp(name)).ok().and_then(|at| KEYS.get(at))
}

impl Key {
    /// The environment variable that sets it: upper case, every `.` an underscore.
    #[must_use]
    pub fn environment_variable(&self) -> String {
        self.name.to_ascii_uppercase().replace('.', "_")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_sorted_and_unique() {
        assert!(KEYS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn no_two_keys_share_an_environment_variable() {
        let names: HashSet<_> = KEYS.iter().map(Key::environment_variable).collect();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn every_default_is_a_value_its_kind_allows() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert_eq!(key.kind.check(default), Ok(()), "{}", key.name);
            }
        }
    }
}
