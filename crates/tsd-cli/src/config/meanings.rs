//! The meaning of each key in a line, for `tsdb config list`, and why a key without effect has none.

/// Meaning of each key, sorted by name.
static MEANINGS: &[(&str, &str)] = &[
    ("hbase.client.retries.number", "Retries of a call to HBase, as pauses of HBase's own client"),
    ("hbase.increments.buffer_size", "Increments that are collected before they are sent"),
    ("hbase.increments.durable", "Whether increments are written to HBase's log"),
    ("hbase.ipc.client.connection.idle_timeout", "Age at which an idle connection is closed"),
    ("hbase.ipc.client.socket.receiveBufferSize", "Receive buffer of a connection"),
    ("hbase.ipc.client.socket.sendBufferSize", "Send buffer of a connection"),
    ("hbase.ipc.client.socket.timeout.connect", "Timeout of a connect"),
    (
        "hbase.ipc.client.socket.write.high_watermark",
        "Unsent bytes above which a connection is full",
    ),
    (
        "hbase.ipc.client.socket.write.low_watermark",
        "Unsent bytes below which it is not full any more",
    ),
    ("hbase.ipc.client.tcpkeepalive", "Keep-alive of connections to HBase"),
    ("hbase.ipc.client.tcpnodelay", "No delay of small packets to HBase"),
    ("hbase.kerberos.regionserver.principal", "Kerberos principal of region servers"),
    ("hbase.nsre.high_watermark", "Calls that wait for an unavailable region"),
    ("hbase.nsre.low_watermark", "Calls that wait for an unavailable region before a warning"),
    (
        "hbase.region_client.check_channel_write_status",
        "Whether calls fail while a connection is full",
    ),
    ("hbase.region_client.inflight_limit", "Most calls in flight per connection; 0 is automatic"),
    ("hbase.region_client.pending_limit", "Most calls that wait for a connection"),
    ("hbase.regionserver.kerberos.password", "Kerberos password"),
    ("hbase.rpc.protection", "Protection of calls with Kerberos"),
    ("hbase.rpc.timeout", "Timeout of one call, milliseconds; 0 is automatic"),
    ("hbase.rpcs.batch.size", "Most puts of one call"),
    ("hbase.rpcs.buffered_flush_interval", "How long puts are collected, milliseconds"),
    ("hbase.sasl.clientconfig", "Section of the Kerberos configuration"),
    ("hbase.security.auth.enable", "Kerberos; not supported, so the start fails with it"),
    ("hbase.security.authentication", "Kind of authentication"),
    ("hbase.timer.tick", "Tick of the timer of calls, milliseconds"),
    ("hbase.timer.ticks_per_wheel", "Size of the timer of calls"),
    ("hbase.workers.size", "Threads of the client"),
    ("hbase.zookeeper.getroot.retry_delay", "Pause between look-ups in ZooKeeper, milliseconds"),
    ("hbase.zookeeper.quorum", "ZooKeeper quorum"),
    ("hbase.zookeeper.session.timeout", "Timeout of the ZooKeeper session, milliseconds"),
    ("hbase.zookeeper.znode.parent", "Root znode of HBase"),
    (
        "tsd.cluster.advertise",
        "Where other nodes connect to with `ack = cluster`, host or host:port; by default found out",
    ),
    ("tsd.cluster.bind", "Where a node listens for the others with `ack = cluster`, address:port"),
    ("tsd.cluster.forward", "Each series is written by one node, whichever node gets its points"),
    (
        "tsd.cluster.forward_timeout",
        "How long a write waits for the node that owns its series, or the next owner, seconds",
    ),
    (
        "tsd.cluster.log_durability",
        "When the log of `ack = cluster` has a point: sync (in HBase's log) or fsync (on its disks)",
    ),
    ("tsd.cluster.log_table", "Table of the logs of all nodes of a cluster"),
    (
        "tsd.cluster.max_clock_skew",
        "How far the clock of a node may be off from the median of the others, milliseconds",
    ),
    ("tsd.cluster.name", "Name of the daemon in that table; by default that of the host"),
    (
        "tsd.cluster.new_names_per_second",
        "New names that this node assigns UIDs to in a second, further ones wait; 0 is no limit",
    ),
    (
        "tsd.cluster.read_timeout",
        "How long a read waits for a node that does not answer, or its recovery, seconds",
    ),
    (
        "tsd.cluster.reads",
        "Whether reads see what all nodes hold (held), or only what HBase and this one have (stored)",
    ),
    (
        "tsd.cluster.suspect_after",
        "How long heartbeats of a node are missed until another one recovers its log, seconds",
    ),
    ("tsd.cluster.tls.ca", "Authorities of the certificates of nodes, a file in PEM"),
    (
        "tsd.cluster.tls.cert",
        "Certificate of this node, a file in PEM; encrypts the connections between nodes",
    ),
    ("tsd.cluster.tls.key", "Private key of this node, a file in PEM"),
    ("tsd.core.admin.peers", "Addresses and networks of administrators, or *"),
    ("tsd.core.authentication.enable", "Clients must say who they are"),
    (
        "tsd.core.authentication.http_scope",
        "Whether a user is that of a request or of a connection",
    ),
    ("tsd.core.authentication.open_paths", "Paths that need no user"),
    ("tsd.core.authentication.plugin", "`file` (of users) or `allow_all`"),
    ("tsd.core.authentication.users_file", "File of users, roles and hashes; it is followed"),
    ("tsd.core.auto_create_metrics", "New metrics are created by their first put"),
    ("tsd.core.auto_create_tagks", "New tag keys are created by their first put"),
    ("tsd.core.auto_create_tagvs", "New tag values are created by their first put"),
    (
        "tsd.core.bulk.allow_out_of_order_timestamps",
        "Imported timestamps of a series need not increase",
    ),
    (
        "tsd.core.connections.limit",
        "Most connections; 0: as many as the limit on open files allows",
    ),
    ("tsd.core.enable_api", "The HTTP API answers; on only as the exact text true"),
    ("tsd.core.enable_ui", "The pages are served; on only as the exact text true"),
    (
        "tsd.core.histograms.config",
        "Codecs of histograms and their ids: JSON, or the name of a .json file",
    ),
    ("tsd.core.meta.cache.enable", "A plug-in counts the points of series"),
    ("tsd.core.meta.cache.plugin", "Class of that plug-in"),
    ("tsd.core.meta.enable_realtime_ts", "Meta data of series is created while points come in"),
    ("tsd.core.meta.enable_realtime_uid", "Meta data of names is created when they get UIDs"),
    ("tsd.core.meta.enable_tsuid_incrementing", "Points of series are counted in the meta table"),
    ("tsd.core.meta.enable_tsuid_tracking", "Series are recorded in the meta table"),
    ("tsd.core.plugin_path", "Directory of plug-ins"),
    ("tsd.core.preload_uid_cache", "Names are read at the start"),
    ("tsd.core.preload_uid_cache.max_entries", "Most names that are read at the start"),
    ("tsd.core.response.async", "Responses are rendered by threads of their own"),
    ("tsd.core.response.worker.num", "Number of those threads"),
    ("tsd.core.series_cache.size", "Series whose row keys are cached"),
    ("tsd.core.socket.timeout", "Age at which an idle connection is closed, seconds; 0: never"),
    ("tsd.core.stats_with_port", "Statistics have a tag with the port"),
    ("tsd.core.storage_exception_handler.directory", "Directory of the spool"),
    ("tsd.core.storage_exception_handler.enable", "A plug-in takes points that the store refuses"),
    ("tsd.core.storage_exception_handler.max_bytes", "Bound of the files of the spool, bytes"),
    (
        "tsd.core.storage_exception_handler.on_full",
        "Points are dropped, or their senders held, when the queue of that plug-in is full",
    ),
    ("tsd.core.storage_exception_handler.plugin", "`spool` (to files)"),
    (
        "tsd.core.storage_exception_handler.queue_size",
        "Points that wait for that plug-in at most, bytes",
    ),
    (
        "tsd.core.tag.allow_specialchars",
        "Characters that names may have beside letters, digits and -_./",
    ),
    ("tsd.core.timezone", "Zone of dates without one; UTC by default"),
    ("tsd.core.tree.enable_processing", "New series are put into the trees"),
    ("tsd.core.uid.random_metrics", "Metrics get random UIDs"),
    ("tsd.gnuplot.options.allowlist", "Options of gnuplot that requests may set"),
    ("tsd.http.cachedir", "Directory of drawn graphs"),
    ("tsd.http.header_tag", "HTTP header whose value becomes a tag of points"),
    ("tsd.http.query.allow_delete", "Queries may delete what they read"),
    ("tsd.http.request.cors_domains", "Domains that browsers may call from, or *"),
    ("tsd.http.request.cors_headers", "Headers that such calls may have"),
    ("tsd.http.request.enable_chunked", "Chunked and large request bodies are accepted"),
    ("tsd.http.request.max_chunk", "Largest request body, bytes"),
    ("tsd.http.request.max_inflated", "Largest request body after decompression, bytes"),
    ("tsd.http.request.max_total", "Memory of all request bodies, bytes"),
    ("tsd.http.request.timeout", "Longest time without progress inside a request, seconds"),
    ("tsd.http.rpc.plugins", "Classes of plug-ins with HTTP endpoints"),
    ("tsd.http.show_stack_trace", "Error responses have the field trace"),
    ("tsd.http.staticroot", "Directory of files below /s/, before those of the program"),
    ("tsd.limits.series_per_metric", "Most series of a metric; 0: no limit"),
    ("tsd.log.format", "Log lines as text, or as JSON"),
    ("tsd.log.level", "Log level, or directives such as info,tsd_engine=debug"),
    (
        "tsd.memory.limit",
        "Memory of the process, bytes; 0: 60 % of the machine's or its control group's",
    ),
    ("tsd.mode", "rw; ro: queries only; wo: puts only"),
    ("tsd.network.async_io", "One thread serves many connections"),
    ("tsd.network.backlog", "Length of the queue of connections not yet accepted"),
    ("tsd.network.bind", "Addresses to listen on, separated by commas; :: takes IPv4, too"),
    ("tsd.network.keep_alive", "Keep-alive of connections"),
    ("tsd.network.max_line_length", "Longest telnet line, bytes"),
    ("tsd.network.port", "Port to listen on; 0: one that the system chooses"),
    ("tsd.network.reuse_address", "The port may be reused at once after a stop"),
    ("tsd.network.tcp_no_delay", "No delay of small packets"),
    ("tsd.network.worker_threads", "Threads that serve connections; 0: the number of cores"),
    ("tsd.network.write_timeout", "Longest time without progress of a response, seconds"),
    ("tsd.no_diediedie", "diediedie is refused, unless this is the exact text false"),
    ("tsd.query.allow_simultaneous_duplicates", "Equal queries may run at the same time"),
    ("tsd.query.cache.size", "Cache of downsampled days of the embedded store, bytes; 0: none"),
    ("tsd.query.enable_fuzzy_filter", "Scans skip rows by the tags that a query names explicitly"),
    ("tsd.query.filter.expansion_limit", "Most tag values of a filter that the store compares"),
    ("tsd.query.limits.bytes.allow_override", "Queries may ignore the limit of bytes"),
    ("tsd.query.limits.bytes.default", "Most bytes of a query; 0: no limit"),
    ("tsd.query.limits.data_points.allow_override", "Queries may ignore the limit of points"),
    ("tsd.query.limits.data_points.default", "Most points of a query; 0: no limit"),
    ("tsd.query.limits.overrides.config", "File of limits by metric; it is followed"),
    ("tsd.query.limits.overrides.interval", "How often that file is read, seconds"),
    ("tsd.query.max_memory_bytes", "Memory of one query, bytes; 0: no limit"),
    ("tsd.query.max_running", "Heavy queries that run at once"),
    ("tsd.query.max_scans", "Scans of one query that run at once"),
    ("tsd.query.max_sub_queries", "Most sub queries of a query"),
    ("tsd.query.max_total_memory_bytes", "Memory of all queries, bytes; 0: by tsd.memory.limit"),
    ("tsd.query.max_waiting", "Queries that may wait for those that run"),
    ("tsd.query.multi_get.batch_size", "Rows of a batch of gets"),
    ("tsd.query.multi_get.concurrent", "Batches of gets at once"),
    ("tsd.query.multi_get.enable", "Rows are fetched by key where tags are explicit"),
    (
        "tsd.query.multi_get.get_all_salts",
        "Series are read from all salt buckets, after their number changed",
    ),
    ("tsd.query.multi_get.limit", "Most rows that are fetched by key"),
    ("tsd.query.partial_results", "Queries return what is left of damaged files, and name them"),
    ("tsd.query.series_index", "When queries read rows by the series index"),
    (
        "tsd.query.skip_unresolved_tagvs",
        "Values of a filter without UID match nothing, instead of an error",
    ),
    ("tsd.query.threads", "Threads of queries; 0: the number of cores"),
    ("tsd.query.timeout", "Longest time of a query, milliseconds; 0: no limit"),
    ("tsd.rollups.agg_tag_key", "Tag key of pre-aggregates"),
    ("tsd.rollups.block_derived", "Averages and deviations are refused as rollups"),
    ("tsd.rollups.config", "Intervals and tables of rollups: JSON, or the name of a .json file"),
    ("tsd.rollups.enable", "Rollups are accepted and read"),
    ("tsd.rollups.raw_agg_tag_value", "Value of that tag for raw data"),
    ("tsd.rollups.split_query.enable", "Queries join rollups and the raw data after them"),
    ("tsd.rollups.tag_raw", "Raw points get the tag of pre-aggregates"),
    ("tsd.rpc.plugins", "Classes of plug-ins with listeners of their own"),
    (
        "tsd.rpc.telnet.on_storage_error",
        "A telnet point that the store does not accept now is held, or closes its connection",
    ),
    ("tsd.rpc.telnet.return_errors", "Telnet connections are told of points that were not stored"),
    ("tsd.rtpublisher.address", "HOST:PORT of the receiver of the plug-in `tcp`"),
    ("tsd.rtpublisher.enable", "A plug-in gets every point"),
    ("tsd.rtpublisher.file", "File of the plug-in `file`"),
    ("tsd.rtpublisher.file.keep", "Full files that are kept"),
    ("tsd.rtpublisher.file.max_bytes", "Size at which the file is renamed, bytes"),
    (
        "tsd.rtpublisher.on_full",
        "Points are dropped, or their senders held, when the queue of that plug-in is full",
    ),
    ("tsd.rtpublisher.plugin", "`file`, `tcp` or `http`"),
    ("tsd.rtpublisher.queue_size", "Points that wait for that plug-in at most, bytes"),
    ("tsd.rtpublisher.url", "URL of the receiver of the plug-in `http`"),
    ("tsd.search.enable", "Searches of meta objects and annotations are answered"),
    ("tsd.search.plugin", "Has no effect: the search is built in"),
    ("tsd.shutdown.timeout", "Longest time of a shutdown, seconds"),
    ("tsd.startup.enable", "A plug-in runs at the start"),
    ("tsd.startup.plugin", "Class of that plug-in"),
    ("tsd.stats.canonical", "Statistics have a tag fqdn instead of host"),
    ("tsd.storage.accept_clock", "The clock is right, though it is far ahead of what was stored"),
    ("tsd.storage.accept_damage", "A damaged log is opened, without what is lost"),
    (
        "tsd.storage.ack",
        "Where a point on HBase is durable when it is acknowledged: storage, log, or cluster",
    ),
    ("tsd.storage.cache.size", "Block cache of the embedded store, bytes"),
    ("tsd.storage.compaction.flush_interval", "Time between two rounds of row compaction, seconds"),
    ("tsd.storage.compaction.flush_speed", "Pace of row compaction"),
    ("tsd.storage.compaction.max_concurrent_flushes", "Rows that are compacted at once"),
    ("tsd.storage.compaction.min_flush_threshold", "Rows that may wait for their compaction"),
    ("tsd.storage.compaction.on_read", "Queries request the compaction of rows that they read"),
    (
        "tsd.storage.data_directory",
        "Directory of the embedded store, or of the log in front of HBase",
    ),
    ("tsd.storage.enable_appends", "Points are appended to one column of their row"),
    ("tsd.storage.enable_compaction", "Rows of past hours are compacted"),
    ("tsd.storage.engine", "The store: embedded, hbase, or memory"),
    (
        "tsd.storage.fix_duplicates",
        "Of several points of an instant the newest is read, instead of an error",
    ),
    ("tsd.storage.flush_interval", "How long points are collected, milliseconds"),
    (
        "tsd.storage.get_date_tiered_compaction_start",
        "Time from which reads limit the times of cells, milliseconds",
    ),
    ("tsd.storage.hbase.connections", "Connections to each region server"),
    ("tsd.storage.hbase.data_table", "Table of points"),
    (
        "tsd.storage.hbase.hosts",
        "Other addresses of servers: name[:port]=address[:port], with commas between",
    ),
    ("tsd.storage.hbase.meta_table", "Table of series and their meta data"),
    (
        "tsd.storage.hbase.operation_timeout",
        "Timeout of an operation including retries, milliseconds",
    ),
    ("tsd.storage.hbase.prefetch_meta", "Regions are located at the start"),
    (
        "tsd.storage.hbase.read_back_delay",
        "After which time points of past hours are read back, seconds; 0: not (no OpenTSDB compacts)",
    ),
    ("tsd.storage.hbase.scanner.maxNumRows", "Rows of one call of a scan"),
    ("tsd.storage.hbase.series_index", "What the series index on HBase decides"),
    (
        "tsd.storage.hbase.series_index.scan_rate",
        "Rows per second of the scan that fills it; 0: no limit",
    ),
    (
        "tsd.storage.hbase.series_index.size",
        "Memory of it, bytes; 0: an eighth of tsd.memory.limit, at most 1 GiB",
    ),
    ("tsd.storage.hbase.series_table", "Table in which series are registered"),
    ("tsd.storage.hbase.start_timeout", "How long a start waits for ZooKeeper and HBase, seconds"),
    ("tsd.storage.hbase.tree_table", "Table of trees"),
    ("tsd.storage.hbase.uid_table", "Table of names and their UIDs"),
    ("tsd.storage.hbase.user", "User name sent to HBase; by default that of the process"),
    ("tsd.storage.hbase.zk_basedir", "Root znode of HBase"),
    ("tsd.storage.hbase.zk_quorum", "ZooKeeper quorum; where it is set, HBase is the store"),
    (
        "tsd.storage.hold_seconds",
        "How long the log holds a row before it is sent to HBase, seconds",
    ),
    ("tsd.storage.log.max_size", "Largest log in front of HBase, bytes"),
    ("tsd.storage.log.segment_size", "Size of the log at which its rows are flushed, bytes"),
    ("tsd.storage.max_tags", "Most tags of a point"),
    ("tsd.storage.memtable.max_age", "Longest time of a row in memory, seconds"),
    ("tsd.storage.memtable.size", "Memory of rows that are not flushed, bytes"),
    (
        "tsd.storage.repair_appends",
        "Append columns that are out of order are repaired when they are read",
    ),
    ("tsd.storage.reserve", "Disk space that stays free, bytes"),
    ("tsd.storage.retention", "How long points are kept, such as 400d; none: for ever"),
    ("tsd.storage.retention_file", "File of retentions by metric; it is followed"),
    ("tsd.storage.salt.buckets", "Number of salt buckets"),
    ("tsd.storage.salt.width", "Bytes of the salt of row keys; 0: none"),
    ("tsd.storage.uid.width.metric", "Bytes of the UIDs of metrics"),
    ("tsd.storage.uid.width.tagk", "Bytes of the UIDs of tag keys"),
    ("tsd.storage.uid.width.tagv", "Bytes of the UIDs of tag values"),
    (
        "tsd.storage.use_max_value",
        "With use_otsdb_timestamp, of several points of an instant the largest is read",
    ),
    ("tsd.storage.use_otsdb_timestamp", "Cells have the times of their points"),
    ("tsd.storage.write.deadline", "How long a point waits for a full queue, milliseconds"),
    ("tsd.storage.write.queue_size", "Writes that wait for the store, bytes per salt bucket"),
    ("tsd.timeseriesfilter.enable", "A plug-in decides which points are stored"),
    ("tsd.timeseriesfilter.plugin", "`rules` (of a file)"),
    ("tsd.timeseriesfilter.rules_file", "File of rules that allow and deny series; it is followed"),
    ("tsd.uid.lru.enable", "The caches of names are bounded"),
    ("tsd.uid.lru.id.size", "Names by UID that are cached"),
    ("tsd.uid.lru.name.size", "UIDs by name that are cached"),
    ("tsd.uid.use_mode", "Only the caches that the mode needs are kept"),
    ("tsd.uidfilter.enable", "New names must match patterns"),
    ("tsd.uidfilter.plugin", "Class of the filter of new names"),
    ("tsd.uidfilter.whitelist.delimiter", "Between two patterns"),
    ("tsd.uidfilter.whitelist.metric_patterns", "Regular expressions that new metrics must match"),
    ("tsd.uidfilter.whitelist.tagk_patterns", "Regular expressions that new tag keys must match"),
    ("tsd.uidfilter.whitelist.tagv_patterns", "Regular expressions that new tag values must match"),
];

/// The meaning of a key.
pub(crate) fn meaning(name: &str) -> Option<&'static str> {
    let at = MEANINGS.binary_search_by(|(key, _)| key.cmp(&name)).ok()?;
    MEANINGS.get(at).map(|(_, meaning)| *meaning)
}

/// Why a key that OpenTSDB has, has no effect here.
pub(crate) fn why_without_effect(name: &str) -> &'static str {
    match name {
        "hbase.zookeeper.quorum" => "tsd.storage.hbase.zk_quorum names the quorum",
        "hbase.zookeeper.znode.parent" => "tsd.storage.hbase.zk_basedir names the root znode",
        "hbase.rpcs.buffered_flush_interval" | "tsd.storage.flush_interval" => {
            "points are sent at once, in batches that grow with the load"
        }
        _ if name.contains("kerberos") || name.contains("security") || name.contains("sasl") => {
            "Kerberos is not supported"
        }
        _ if name.starts_with("hbase.") => {
            "the HBase client is another one and needs no such setting"
        }
        "tsd.http.cachedir" => "no files of graphs are kept",
        "tsd.network.async_io" => "connections never have threads of their own",
        "tsd.core.plugin_path" => "no plug-ins are loaded from files",
        "tsd.core.response.async" | "tsd.core.response.worker.num" => {
            "responses never block the threads that serve connections"
        }
        "tsd.core.preload_uid_cache" | "tsd.core.preload_uid_cache.max_entries" => {
            "names are cached when they are first used"
        }
        _ if name.starts_with("tsd.uid.") => {
            "the caches of names are always bounded, by tsd.memory.limit"
        }
        _ if name.starts_with("tsd.query.multi_get.") => {
            "rows are fetched by key whenever that is cheaper than a scan"
        }
        _ if name.contains("plugin") || name.ends_with(".enable") => "no such plug-in is built in",
        _ => "this version does not have what it configures",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS;

    #[test]
    fn every_key_has_a_meaning_in_a_line() {
        assert!(MEANINGS.is_sorted_by(|a, b| a.0 < b.0));
        let without: Vec<_> =
            KEYS.iter().map(|key| key.name).filter(|name| meaning(name).is_none()).collect();
        assert!(without.is_empty(), "add the meaning of {without:?} to MEANINGS");
        for (name, meaning) in MEANINGS {
            assert!(crate::config::keys::find(name).is_some(), "{name} is no key");
            assert!(meaning.len() <= 100 && !meaning.ends_with('.'), "{name}: {meaning}");
        }
    }
}
