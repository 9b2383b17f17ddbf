//! All configuration keys: type, default, and whether the key has an effect.
//!
//! OpenTSDB's keys are kept verbatim, so an existing `opentsdb.conf` works. Keys without an effect
//! here are listed too, so that warnings can distinguish them from misspelt ones.

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `true`, `1` and `yes` are true, `false`, `0`, `no` and the empty text are false, in any case.
    /// OpenTSDB reads any other text as false; here it is an error.
    Bool,
    /// A [`Self::Bool`] that has its effect only as this exact text, as in OpenTSDB: `true` enables
    /// the API and the pages, `false` enables `diediedie`.
    Exactly(&'static str),
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
    /// One of a few words, lower case.
    OneOf(&'static [&'static str]),
}

/// Whether a key has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    /// It is applied.
    Applied,
    /// OpenTSDB has it; it is accepted and shown by `/api/config`, without effect.
    None,
}

/// A configuration key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key, verbatim.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ValueKind,
    /// Default; `None` omits it from `/api/config` unless set.
    pub default: Option<&'static str>,
    /// Whether it has an effect.
    pub effect: KeyEffect,
}

const fn applied(name: &'static str, kind: ValueKind, default: Option<&'static str>) -> Key {
    Key { name, kind, default, effect: KeyEffect::Applied }
}

const fn bool(name: &'static str, default: &'static str) -> Key {
    applied(name, ValueKind::Bool, Some(default))
}

const fn int(name: &'static str, default: &'static str, min: i64, max: i64) -> Key {
    applied(name, ValueKind::Int { min, max }, Some(default))
}

const fn seconds(name: &'static str, default: &'static str, min: f64, max: f64) -> Key {
    applied(name, ValueKind::Seconds { min, max }, Some(default))
}

const fn text(name: &'static str, default: Option<&'static str>) -> Key {
    applied(name, ValueKind::Text, default)
}

const fn one_of(name: &'static str, default: &'static str, words: &'static [&'static str]) -> Key {
    applied(name, ValueKind::OneOf(words), Some(default))
}

const fn exactly(name: &'static str, word: &'static str) -> Key {
    applied(name, ValueKind::Exactly(word), Some(word))
}

/// A switch of OpenTSDB for plug-ins that are not built in: it must be off (see `plugins`).
const fn no_plugin(name: &'static str) -> Key {
    Key { kind: ValueKind::Bool, ..without_effect(name, Some("false")) }
}

/// A key of OpenTSDB without effect here.
const fn without_effect(name: &'static str, default: Option<&'static str>) -> Key {
    Key { name, kind: ValueKind::Text, default, effect: KeyEffect::None }
}

const INT_MAX: i64 = i32::MAX as i64;
const BYTES_MAX: i64 = 1 << 40;

/// All keys, sorted by name.
pub static KEYS: &[Key] = &[
    // Keys of OpenTSDB's HBase client. The number of retries stands for the sum of their pauses in
    // HBase's own client, in addition to the operation timeout.
    Key { default: None, ..int("hbase.client.retries.number", "", 1, INT_MAX) },
    without_effect("hbase.increments.buffer_size", None),
    without_effect("hbase.increments.durable", None),
    without_effect("hbase.ipc.client.connection.idle_timeout", None),
    without_effect("hbase.ipc.client.socket.receiveBufferSize", None),
    without_effect("hbase.ipc.client.socket.sendBufferSize", None),
    without_effect("hbase.ipc.client.socket.timeout.connect", None),
    without_effect("hbase.ipc.client.socket.write.high_watermark", None),
    without_effect("hbase.ipc.client.socket.write.low_watermark", None),
    without_effect("hbase.ipc.client.tcpkeepalive", None),
    without_effect("hbase.ipc.client.tcpnodelay", None),
    without_effect("hbase.kerberos.regionserver.principal", None),
    without_effect("hbase.nsre.high_watermark", None),
    without_effect("hbase.nsre.low_watermark", None),
    without_effect("hbase.region_client.check_channel_write_status", None),
    // Maximum calls in flight per connection; 0 is automatic.
    Key { default: None, ..int("hbase.region_client.inflight_limit", "", 0, INT_MAX) },
    without_effect("hbase.region_client.pending_limit", None),
    without_effect("hbase.regionserver.kerberos.password", None),
    without_effect("hbase.rpc.protection", None),
    // Timeout of one call, milliseconds; 0 is automatic.
    Key { default: None, ..int("hbase.rpc.timeout", "", 0, INT_MAX) },
    without_effect("hbase.rpcs.batch.size", None),
    // Points are sent at once, in batches that grow with the load.
    without_effect("hbase.rpcs.buffered_flush_interval", None),
    without_effect("hbase.sasl.clientconfig", None),
    // Read, since a cluster that requires it cannot be used.
    Key { default: None, ..bool("hbase.security.auth.enable", "") },
    without_effect("hbase.security.authentication", None),
    without_effect("hbase.timer.tick", None),
    without_effect("hbase.timer.ticks_per_wheel", None),
    without_effect("hbase.workers.size", None),
    without_effect("hbase.zookeeper.getroot.retry_delay", None),
    without_effect("hbase.zookeeper.quorum", None),
    without_effect("hbase.zookeeper.session.timeout", None),
    without_effect("hbase.zookeeper.znode.parent", None),
    // With `ack = cluster`: where other nodes connect to, `host` or `host:port`. By default the address of
    // `tsd.cluster.bind`, or the name of the host if that is all addresses.
    text("tsd.cluster.advertise", Some("")),
    // Where a node listens for the others; port 0 takes a free one.
    text("tsd.cluster.bind", Some("0.0.0.0:4243")),
    // Writes of a series are made by the node that owns it, whichever node gets them. All nodes have the same value.
    bool("tsd.cluster.forward", "true"),
    // How long a write waits for the node that owns its series, or for the next owner, seconds.
    seconds("tsd.cluster.forward_timeout", "10", 0.1, 3600.0),
    // When HBase has a record of the log, in the memory of the machines of its own log
    // (`sync`, HBase's default) or on their disks.
    one_of("tsd.cluster.log_durability", "sync", &["sync", "fsync"]),
    // The table of the log; it is created if it is missing.
    text("tsd.cluster.log_table", Some("tsdb-log")),
    // How far the clock of a node may be off from the median of the others, milliseconds.
    int("tsd.cluster.max_clock_skew", "500", 1, 86_400_000),
    // Name of this daemon in the log table; by default that of the host.
    text("tsd.cluster.name", Some("")),
    // New names that this node assigns UIDs to in a second, further ones wait; 0: no limit.
    int("tsd.cluster.new_names_per_second", "5000", 0, INT_MAX),
    // How long a read waits for a node that does not answer, or for the recovery of its log, seconds.
    seconds("tsd.cluster.read_timeout", "30", 0.1, 3600.0),
    // `held`: reads see what all nodes have acknowledged; `stored`: what this node has, and HBase.
    one_of("tsd.cluster.reads", "held", &["held", "stored"]),
    // How long the heartbeats of a node are missed until another one recovers its log, seconds.
    seconds("tsd.cluster.suspect_after", "5", 1.0, 3600.0),
    // Certificates of the connections between nodes, files in PEM: the authorities, the certificate of this node, and its
    // key. Set together, on all nodes; without them the connections are not encrypted.
    text("tsd.cluster.tls.ca", Some("")),
    text("tsd.cluster.tls.cert", Some("")),
    text("tsd.cluster.tls.key", Some("")),
    // Who may stop the daemon, drop its caches, change UIDs, delete data and cancel queries:
    // addresses, networks (10.0.0.0/8) or `*`.
    text("tsd.core.admin.peers", Some("127.0.0.0/8,::1")),
    bool("tsd.core.authentication.enable", "false"),
    // Whether an HTTP request without credentials has the user of the one before it on its connection, as in
    // OpenTSDB. A proxy may send requests of several users on one connection.
    one_of("tsd.core.authentication.http_scope", "request", &["request", "connection"]),
    // What HTTP serves without credentials.
    text("tsd.core.authentication.open_paths", Some("/api/health,/metrics")),
    // `file` or `allow_all`.
    text("tsd.core.authentication.plugin", Some("")),
    // File of users; it is followed.
    text("tsd.core.authentication.users_file", None),
    // OpenTSDB's default is false. A first put must work on an empty store.
    bool("tsd.core.auto_create_metrics", "true"),
    bool("tsd.core.auto_create_tagks", "true"),
    bool("tsd.core.auto_create_tagvs", "true"),
    bool("tsd.core.bulk.allow_out_of_order_timestamps", "false"),
    // 0: as many as the limit on open files allows beside those of the store.
    int("tsd.core.connections.limit", "0", 0, INT_MAX),
    exactly("tsd.core.enable_api", "true"),
    exactly("tsd.core.enable_ui", "true"),
    // JSON, or the name of a .json file: class names of codecs and their ids.
    text("tsd.core.histograms.config", None),
    no_plugin("tsd.core.meta.cache.enable"),
    without_effect("tsd.core.meta.cache.plugin", None),
    bool("tsd.core.meta.enable_realtime_ts", "false"),
    bool("tsd.core.meta.enable_realtime_uid", "false"),
    bool("tsd.core.meta.enable_tsuid_incrementing", "false"),
    bool("tsd.core.meta.enable_tsuid_tracking", "false"),
    without_effect("tsd.core.plugin_path", Some("")),
    without_effect("tsd.core.preload_uid_cache", Some("false")),
    without_effect("tsd.core.preload_uid_cache.max_entries", Some("300000")),
    without_effect("tsd.core.response.async", None),
    without_effect("tsd.core.response.worker.num", None),
    // Entries of the series cache.
    int("tsd.core.series_cache.size", "1000000", 1, INT_MAX),
    int("tsd.core.socket.timeout", "0", 0, INT_MAX),
    bool("tsd.core.stats_with_port", "false"),
    // Directory of the spool.
    text("tsd.core.storage_exception_handler.directory", None),
    bool("tsd.core.storage_exception_handler.enable", "false"),
    // Bound of the files of the spool, bytes.
    int("tsd.core.storage_exception_handler.max_bytes", "1073741824", 1, BYTES_MAX),
    // What happens when the queue of the plug-in is full.
    one_of("tsd.core.storage_exception_handler.on_full", "drop", &["drop", "hold"]),
    // `spool`.
    text("tsd.core.storage_exception_handler.plugin", None),
    // Bytes of points that wait for the plug-in.
    int("tsd.core.storage_exception_handler.queue_size", "16777216", 65_536, BYTES_MAX),
    text("tsd.core.tag.allow_specialchars", None),
    text("tsd.core.timezone", None),
    bool("tsd.core.tree.enable_processing", "false"),
    bool("tsd.core.uid.random_metrics", "false"),
    without_effect("tsd.gnuplot.options.allowlist", None),
    without_effect("tsd.http.cachedir", None),
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
    // OpenTSDB's default is false, which rejects every body over 8 KB.
    bool("tsd.http.request.enable_chunked", "true"),
    // OpenTSDB's default is 4096.
    int("tsd.http.request.max_chunk", "16777216", 1, BYTES_MAX),
    // Maximum size of a compressed body after decompression, bytes; at least max_chunk.
    int("tsd.http.request.max_inflated", "67108864", 1, BYTES_MAX),
    // Memory of all request bodies, bytes; more is answered with 503. Less by default if
    // `tsd.memory.limit` is small, as the other sizes in memory.
    int("tsd.http.request.max_total", "268435456", 1, BYTES_MAX),
    // Maximum time without progress inside a request, seconds.
    int("tsd.http.request.timeout", "60", 1, INT_MAX),
    without_effect("tsd.http.rpc.plugins", None),
    bool("tsd.http.show_stack_trace", "true"),
    // Files below /s/, before those of the program.
    text("tsd.http.staticroot", None),
    // Most series of a metric, by the series index; points of further series are refused. 0: no limit.
    int("tsd.limits.series_per_metric", "0", 0, i64::MAX),
    one_of("tsd.log.format", "text", &["text", "json"]),
    text("tsd.log.level", Some("info")),
    // Memory of the process, bytes; 0 is 60 % of the machine's, or of the control group's limit. Sizes
    // of its parts that are not set scale with it.
    int("tsd.memory.limit", "0", 0, BYTES_MAX),
    one_of("tsd.mode", "rw", &["rw", "ro", "wo"]),
    without_effect("tsd.network.async_io", Some("true")),
    int("tsd.network.backlog", "3072", 1, INT_MAX),
    // Addresses separated by commas. `::` takes IPv4, too, and is `0.0.0.0` without IPv6.
    text("tsd.network.bind", Some("::")),
    bool("tsd.network.keep_alive", "true"),
    // A telnet connection that sends more without a line end is closed; 1024 as in OpenTSDB.
    int("tsd.network.max_line_length", "1024", 64, 1 << 30),
    int("tsd.network.port", "4242", 0, 65_535),
    bool("tsd.network.reuse_address", "true"),
    bool("tsd.network.tcp_no_delay", "true"),
    // 0 is the number of cores.
    int("tsd.network.worker_threads", "0", 0, 1024),
    // Maximum time without write progress before a connection is closed, seconds.
    int("tsd.network.write_timeout", "60", 1, INT_MAX),
    exactly("tsd.no_diediedie", "false"),
    bool("tsd.query.allow_simultaneous_duplicates", "true"),
    // Cache of the embedded store for ended days, as repeated queries have downsampled them, bytes; 0 turns
    // it off.
    int("tsd.query.cache.size", "134217728", 0, BYTES_MAX),
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
    // Memory of one query, bytes; 0 is no limit per query.
    int("tsd.query.max_memory_bytes", "1073741824", 0, BYTES_MAX),
    // Concurrent heavy queries; small ones are not counted.
    int("tsd.query.max_running", "16", 1, 65_536),
    // Concurrent scans of one query.
    int("tsd.query.max_scans", "8", 1, 1024),
    int("tsd.query.max_sub_queries", "1000", 1, INT_MAX),
    // Memory of all queries, bytes; 0 is five twelfths of `tsd.memory.limit`, at most what it has for
    // queries.
    int("tsd.query.max_total_memory_bytes", "0", 0, BYTES_MAX),
    // Queries accepted beyond `max_running`; one more is answered with 503.
    int("tsd.query.max_waiting", "256", 0, 1 << 20),
    without_effect("tsd.query.multi_get.batch_size", Some("1024")),
    without_effect("tsd.query.multi_get.concurrent", Some("20")),
    without_effect("tsd.query.multi_get.enable", Some("false")),
    // For tables whose number of salt buckets was changed: series are read from all buckets.
    bool("tsd.query.multi_get.get_all_salts", "false"),
    without_effect("tsd.query.multi_get.limit", Some("131072")),
    // Queries return what is left of damaged files, and name them, instead of failing.
    bool("tsd.query.partial_results", "false"),
    // When queries of the embedded store read rows by the series index; `auto`: where it is cheaper.
    one_of("tsd.query.series_index", "auto", &["auto", "always", "never"]),
    bool("tsd.query.skip_unresolved_tagvs", "false"),
    // Query threads; 0 is the number of cores.
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
    without_effect("tsd.rpc.plugins", None),
    // A point that the store does not accept for now (full disk, timeout): the connection waits until
    // the store accepts it, or is closed with the reason.
    one_of("tsd.rpc.telnet.on_storage_error", "hold", &["hold", "close"]),
    bool("tsd.rpc.telnet.return_errors", "true"),
    // HOST:PORT of the receiver of the plug-in `tcp`.
    text("tsd.rtpublisher.address", None),
    bool("tsd.rtpublisher.enable", "false"),
    // File of the plug-in `file`, the size at which it is renamed, and how many renamed ones are kept.
    text("tsd.rtpublisher.file", None),
    int("tsd.rtpublisher.file.keep", "5", 0, 1_000),
    int("tsd.rtpublisher.file.max_bytes", "104857600", 1, BYTES_MAX),
    // What happens when the queue of the plug-in is full.
    one_of("tsd.rtpublisher.on_full", "drop", &["drop", "hold"]),
    // `file`, `tcp` or `http`.
    text("tsd.rtpublisher.plugin", Some("")),
    // Bytes of points that wait for the plug-in.
    int("tsd.rtpublisher.queue_size", "16777216", 65_536, BYTES_MAX),
    // URL of the receiver of the plug-in `http`.
    text("tsd.rtpublisher.url", None),
    // OpenTSDB's default is false: without a plug-in it cannot search.
    bool("tsd.search.enable", "true"),
    without_effect("tsd.search.plugin", Some("")),
    int("tsd.shutdown.timeout", "20", 1, 3600),
    no_plugin("tsd.startup.enable"),
    without_effect("tsd.startup.plugin", Some("")),
    bool("tsd.stats.canonical", "false"),
    // Says that the clock is right, though it is far ahead of the time that the store has seen.
    bool("tsd.storage.accept_clock", "false"),
    bool("tsd.storage.accept_damage", "false"),
    // When a point is acknowledged on HBase: after HBase has stored it, after the log of this host is synced, or
    // after a log in a table of HBase has it. The embedded store always acknowledges after its log is synced.
    one_of("tsd.storage.ack", "storage", &["storage", "log", "cluster"]),
    // Block cache of the embedded store, bytes.
    int("tsd.storage.cache.size", "67108864", 0, BYTES_MAX),
    // Row compaction; without effect on the embedded store, whose merges compact.
    int("tsd.storage.compaction.flush_interval", "10", 1, INT_MAX),
    int("tsd.storage.compaction.flush_speed", "2", 1, INT_MAX),
    int("tsd.storage.compaction.max_concurrent_flushes", "10000", 1, INT_MAX),
    int("tsd.storage.compaction.min_flush_threshold", "100", 0, INT_MAX),
    // Queries request compaction of old uncompacted rows that they read, as in OpenTSDB.
    bool("tsd.storage.compaction.on_read", "true"),
    text("tsd.storage.data_directory", Some("tsdb-data")),
    bool("tsd.storage.enable_appends", "false"),
    bool("tsd.storage.enable_compaction", "true"),
    one_of("tsd.storage.engine", "embedded", &["embedded", "memory", "hbase"]),
    // Off on HBase without a log, as in OpenTSDB: see `Config::default_by_engine`.
    bool("tsd.storage.fix_duplicates", "true"),
    without_effect("tsd.storage.flush_interval", Some("1000")),
    int("tsd.storage.get_date_tiered_compaction_start", "0", 0, i64::MAX),
    // Connections per region server for reads and writes; scans have one of their own.
    int("tsd.storage.hbase.connections", "2", 1, 64),
    text("tsd.storage.hbase.data_table", Some("tsdb")),
    // Address overrides of servers: `name[:port]=address[:port], ...`.
    text("tsd.storage.hbase.hosts", Some("")),
    text("tsd.storage.hbase.meta_table", Some("tsdb-meta")),
    // Timeout of an operation including retries, milliseconds; hbase.rpc.timeout limits one call.
    int("tsd.storage.hbase.operation_timeout", "180000", 100, INT_MAX),
    bool("tsd.storage.hbase.prefetch_meta", "false"),
    // Points that are written to past hours are read back again after this time, which is longer than a
    // compaction of OpenTSDB takes, seconds; 0 where no OpenTSDB writes the tables.
    seconds("tsd.storage.hbase.read_back_delay", "30", 0.0, 3600.0),
    int("tsd.storage.hbase.scanner.maxNumRows", "128", 1, INT_MAX),
    // The index of the series: `estimate` decides nothing; with `register` series are registered before their
    // first point is acknowledged; `complete` says that every writer registers, and queries rely on it.
    one_of("tsd.storage.hbase.series_index", "off", &["off", "estimate", "register", "complete"]),
    // Rows per second of the scan of keys that fills the series index; 0: no limit.
    int("tsd.storage.hbase.series_index.scan_rate", "100000", 0, INT_MAX),
    // Memory of the series index, bytes; 0: an eighth of tsd.memory.limit, at most 1 GiB.
    int("tsd.storage.hbase.series_index.size", "0", 0, BYTES_MAX),
    // The table in which series are registered.
    text("tsd.storage.hbase.series_table", Some("tsdb-series")),
    // How long a start waits for ZooKeeper and HBase, seconds.
    int("tsd.storage.hbase.start_timeout", "60", 0, INT_MAX),
    text("tsd.storage.hbase.tree_table", Some("tsdb-tree")),
    text("tsd.storage.hbase.uid_table", Some("tsdb-uid")),
    // User name sent to HBase; by default that of the process.
    text("tsd.storage.hbase.user", Some("")),
    text("tsd.storage.hbase.zk_basedir", Some("/hbase")),
    // Selects HBase as the engine unless `tsd.storage.engine` is set.
    text("tsd.storage.hbase.zk_quorum", Some("localhost")),
    // Hold time of a row before its flush to HBase with `ack = log` or `cluster`, seconds.
    seconds("tsd.storage.hold_seconds", "60", 0.1, 3600.0),
    // Maximum size of the log in front of HBase, bytes; beyond it points are rejected. Less by default with
    // `ack = cluster`: see `Config::default_by_engine`.
    int("tsd.storage.log.max_size", "4294967296", 1 << 20, BYTES_MAX),
    // Size of the log at which the memtable is rotated, bytes.
    int("tsd.storage.log.segment_size", "67108864", 65_536, BYTES_MAX),
    int("tsd.storage.max_tags", "8", 1, 1024),
    // Maximum age (seconds) and size (bytes) of the memtables.
    int("tsd.storage.memtable.max_age", "600", 1, INT_MAX),
    int("tsd.storage.memtable.size", "134217728", 1 << 20, BYTES_MAX),
    bool("tsd.storage.repair_appends", "false"),
    // Disk space that stays free, bytes; below it writes fail and reads continue.
    int("tsd.storage.reserve", "67108864", 0, BYTES_MAX),
    // How long the embedded store keeps points (400d); none: for ever.
    text("tsd.storage.retention", None),
    // File of retentions by metric; it is followed.
    text("tsd.storage.retention_file", None),
    int("tsd.storage.salt.buckets", "20", 1, 65_536),
    // OpenTSDB's default is 0. With salt from the start, one key layout serves every engine.
    int("tsd.storage.salt.width", "1", 0, 8),
    int("tsd.storage.uid.width.metric", "3", 1, 8),
    int("tsd.storage.uid.width.tagk", "3", 1, 8),
    int("tsd.storage.uid.width.tagv", "3", 1, 8),
    bool("tsd.storage.use_max_value", "true"),
    bool("tsd.storage.use_otsdb_timestamp", "false"),
    // How long a point waits for a full queue, and an HTTP request for the store, before they are
    // rejected, milliseconds.
    int("tsd.storage.write.deadline", "10000", 1, INT_MAX),
    // Maximum bytes of writes that wait for the store, for each salt bucket; all buckets share the
    // sum, beyond which senders wait.
    int("tsd.storage.write.queue_size", "8388608", 65_536, BYTES_MAX),
    bool("tsd.timeseriesfilter.enable", "false"),
    // `rules`.
    text("tsd.timeseriesfilter.plugin", None),
    // File of rules that allow and deny series; it is followed.
    text("tsd.timeseriesfilter.rules_file", None),
    without_effect("tsd.uid.lru.enable", Some("false")),
    without_effect("tsd.uid.lru.id.size", Some("5000000")),
    without_effect("tsd.uid.lru.name.size", Some("5000000")),
    without_effect("tsd.uid.use_mode", Some("false")),
    bool("tsd.uidfilter.enable", "false"),
    text("tsd.uidfilter.plugin", None),
    text("tsd.uidfilter.whitelist.delimiter", Some(",")),
    text("tsd.uidfilter.whitelist.metric_patterns", None),
    text("tsd.uidfilter.whitelist.tagk_patterns", None),
    text("tsd.uidfilter.whitelist.tagv_patterns", None),
];

/// Finds a key by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.binary_search_by(|key| key.name.cmp(name)).ok().and_then(|at| KEYS.get(at))
}

impl Key {
    /// The environment variable that sets it: upper case, `.` replaced by `_`.
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
