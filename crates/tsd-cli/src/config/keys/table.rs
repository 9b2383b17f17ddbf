//! The table of keys: a setting, its default, its values, its scope and its meaning are one row.

use super::row::{Key, KeyEffect, Scope, Unit, ValueKind};

const INT_MAX: i64 = i32::MAX as i64;
const BYTES_MAX: i64 = 1 << 40;

// Reasons why keys of OpenTSDB have no effect.
const BATCHES: &str = "points are sent at once, in batches that grow with the load";
const CACHES: &str = "the caches of names are always bounded, by tsd.memory.limit";
const PEM: &str = "files are PEM, without a password";
const CLIENT: &str = "this program's HBase client does not need the setting";
const MULTI_GET: &str = "rows are fetched by key whenever that is cheaper than a scan";
const NAMES: &str = "names are cached when they are first used";
const NOT_HERE: &str = "this version does not have what it configures";
const PLUGIN: &str = "no such plug-in is built in";
const RESPONSES: &str = "responses never block the threads that serve connections";

const fn applied(
    name: &'static str,
    default: Option<&'static str>,
    kind: ValueKind,
    meaning: &'static str,
) -> Key {
    Key { name, kind, unit: Unit::None, default, effect: KeyEffect::Applied(Scope::All), meaning }
}

const fn bool(name: &'static str, default: &'static str, meaning: &'static str) -> Key {
    applied(name, Some(default), ValueKind::Bool, meaning)
}

const fn exactly(name: &'static str, word: &'static str, meaning: &'static str) -> Key {
    applied(name, Some(word), ValueKind::Exactly(word), meaning)
}

const fn int(
    name: &'static str,
    default: &'static str,
    min: i64,
    max: i64,
    meaning: &'static str,
) -> Key {
    applied(name, Some(default), ValueKind::Int { min, max }, meaning)
}

const fn bytes(
    name: &'static str,
    default: &'static str,
    min: i64,
    max: i64,
    meaning: &'static str,
) -> Key {
    let key = applied(name, Some(default), ValueKind::Size { min, max }, meaning);
    Key { unit: Unit::Bytes, ..key }
}

const fn millis(
    name: &'static str,
    default: &'static str,
    min: i64,
    max: i64,
    meaning: &'static str,
) -> Key {
    Key { unit: Unit::Milliseconds, ..int(name, default, min, max, meaning) }
}

/// Whole seconds.
const fn secs(
    name: &'static str,
    default: &'static str,
    min: i64,
    max: i64,
    meaning: &'static str,
) -> Key {
    Key { unit: Unit::Seconds, ..int(name, default, min, max, meaning) }
}

/// Seconds with decimals.
const fn seconds(
    name: &'static str,
    default: &'static str,
    min: f64,
    max: f64,
    meaning: &'static str,
) -> Key {
    let key = applied(name, Some(default), ValueKind::Seconds { min, max }, meaning);
    Key { unit: Unit::Seconds, ..key }
}

const fn text(name: &'static str, default: Option<&'static str>, meaning: &'static str) -> Key {
    applied(name, default, ValueKind::Text, meaning)
}

const fn one_of(
    name: &'static str,
    default: &'static str,
    words: &'static [&'static str],
    meaning: &'static str,
) -> Key {
    applied(name, Some(default), ValueKind::OneOf(words), meaning)
}

/// A key of OpenTSDB without effect here.
const fn without_effect(
    name: &'static str,
    default: Option<&'static str>,
    reason: &'static str,
    meaning: &'static str,
) -> Key {
    Key { effect: KeyEffect::None(reason), ..text(name, default, meaning) }
}

/// A switch of OpenTSDB for plug-ins that are not built in: it must be off (see `plugins`).
const fn no_plugin(name: &'static str, meaning: &'static str) -> Key {
    Key { kind: ValueKind::Bool, ..without_effect(name, Some("false"), PLUGIN, meaning) }
}

impl Key {
    const fn on(self, scope: Scope) -> Self {
        Self { effect: KeyEffect::Applied(scope), ..self }
    }

    /// The key without a default.
    const fn unset(self) -> Self {
        Self { default: None, ..self }
    }
}

/// All keys, sorted by name.
#[rustfmt::skip] // One key per line.
pub static KEYS: &[Key] = &[
    text("cloudtable.iam.accesskey", None, "Login of CloudTable by access key, which is not supported: the daemon does not start with it").on(Scope::HBase),
    text("hadoop.token.files", None, "File of the delegation token with hbase.security.authentication = token; or HADOOP_TOKEN_FILE_LOCATION").on(Scope::HBase),
    text("hbase.client.bootstrap.servers", None, "Masters or region servers that answer lookups, host:port,...; selects HBase, without ZooKeeper").on(Scope::HBase),
    text("hbase.client.connection.impl", None, "Class of Java's client; the daemon does not start with a class of Lindorm").on(Scope::HBase),
    text("hbase.client.endpoint", None, "Address of Lindorm, which is not supported: the daemon does not start with it").on(Scope::HBase),
    text("hbase.client.keytab.file", None, "Keytab of the Kerberos login, instead of a JAAS file").on(Scope::HBase),
    text("hbase.client.keytab.principal", None, "Principal in hbase.client.keytab.file; unset: the first one in it").on(Scope::HBase),
    bool("hbase.client.netty.tls.enabled", "", "TLS to HBase; false if unset").unset().on(Scope::HBase),
    millis("hbase.client.netty.tls.handshaketimeout", "", 1, INT_MAX, "Timeout of a TLS handshake with HBase; 5000 if unset").unset().on(Scope::HBase),
    bool("hbase.client.netty.tls.verify.server.hostname", "", "Certificates of HBase's servers must have their host names; true if unset").unset().on(Scope::HBase),
    text("hbase.client.registry.impl", None, "Class that finds the servers: ZKConnectionRegistry, RpcConnectionRegistry or MasterRegistry").on(Scope::HBase),
    int("hbase.client.retries.number", "", 1, INT_MAX, "Retries of a call; their pauses in HBase's own client extend the operation timeout").unset().on(Scope::HBase),
    text("hbase.client.username", None, "User of Lindorm, which is not supported: the daemon does not start with it").on(Scope::HBase),
    int("hbase.client.zookeeper.property.clientPort", "", 1, 65_535, "Port of the hosts of hbase.client.zookeeper.quorum without a port").unset().on(Scope::HBase),
    text("hbase.client.zookeeper.quorum", None, "ZooKeeper quorum for clients, before hbase.zookeeper.quorum, if tsd.storage.hbase.zk_quorum is unset").on(Scope::HBase),
    without_effect("hbase.increments.buffer_size", None, CLIENT, "Increments that are collected before they are sent"),
    without_effect("hbase.increments.durable", None, CLIENT, "Writes increments to HBase's log"),
    without_effect("hbase.ipc.client.connection.idle_timeout", None, CLIENT, "Age at which an idle connection is closed"),
    bool("hbase.ipc.client.fallback-to-simple-auth-allowed", "", "Goes on without authentication at servers that lack it; false if unset").unset().on(Scope::HBase),
    without_effect("hbase.ipc.client.socket.receiveBufferSize", None, CLIENT, "Receive buffer of a connection"),
    without_effect("hbase.ipc.client.socket.sendBufferSize", None, CLIENT, "Send buffer of a connection"),
    without_effect("hbase.ipc.client.socket.timeout.connect", None, CLIENT, "Timeout of a connect"),
    without_effect("hbase.ipc.client.socket.write.high_watermark", None, CLIENT, "Unsent bytes above which a connection counts as full"),
    without_effect("hbase.ipc.client.socket.write.low_watermark", None, CLIENT, "Unsent bytes below which a full connection takes calls again"),
    without_effect("hbase.ipc.client.tcpkeepalive", None, CLIENT, "TCP keep-alive of connections to HBase"),
    without_effect("hbase.ipc.client.tcpnodelay", None, CLIENT, "Sends small packets to HBase without delay"),
    text("hbase.kerberos.regionserver.principal", None, "Kerberos principal of region servers; _HOST is their host name").on(Scope::HBase),
    text("hbase.master.kerberos.principal", None, "Kerberos principal of masters; unset: as region servers").on(Scope::HBase),
    text("hbase.masters", None, "Masters that answer lookups, host[:port],...; selects HBase, without ZooKeeper").on(Scope::HBase),
    without_effect("hbase.nsre.high_watermark", None, CLIENT, "Maximum calls that wait for an unavailable region"),
    without_effect("hbase.nsre.low_watermark", None, CLIENT, "Calls that wait for an unavailable region before a warning"),
    without_effect("hbase.region_client.check_channel_write_status", None, CLIENT, "Fails calls while a connection is full"),
    int("hbase.region_client.inflight_limit", "", 0, INT_MAX, "Maximum calls in flight per connection; 0 is automatic").unset().on(Scope::HBase),
    without_effect("hbase.region_client.pending_limit", None, CLIENT, "Maximum calls that wait for a connection"),
    text("hbase.regionserver.kerberos.password", None, "Kerberos password, which is not supported: with Kerberos the daemon does not start with it").on(Scope::HBase),
    text("hbase.regionserver.kerberos.principal", None, "As hbase.kerberos.regionserver.principal, which comes first").on(Scope::HBase),
    text("hbase.rpc.protection", None, "authentication (default), integrity, privacy, or a list in order of preference; with Kerberos or a token").on(Scope::HBase),
    millis("hbase.rpc.timeout", "", 0, INT_MAX, "Timeout of one call; 0 is automatic").unset().on(Scope::HBase),
    text("hbase.rpc.tls.keystore.location", None, "Certificate and key of this client for HBase, PEM").on(Scope::HBase),
    without_effect("hbase.rpc.tls.keystore.password", None, PEM, "Password of hbase.rpc.tls.keystore.location"),
    without_effect("hbase.rpc.tls.keystore.type", None, PEM, "Type of hbase.rpc.tls.keystore.location"),
    text("hbase.rpc.tls.truststore.location", None, "Certificates of the authorities of HBase's servers, PEM; unset: the system's").on(Scope::HBase),
    without_effect("hbase.rpc.tls.truststore.password", None, PEM, "Password of hbase.rpc.tls.truststore.location"),
    without_effect("hbase.rpc.tls.truststore.type", None, PEM, "Type of hbase.rpc.tls.truststore.location"),
    without_effect("hbase.rpcs.batch.size", None, CLIENT, "Maximum puts of one call"),
    without_effect("hbase.rpcs.buffered_flush_interval", None, BATCHES, "Time that puts are collected, milliseconds"),
    text("hbase.sasl.clientconfig", None, "Section of the JAAS file; Client if unset").on(Scope::HBase),
    bool("hbase.security.auth.enable", "", "Authentication at HBase; false if unset, true with a site file that has Kerberos").unset().on(Scope::HBase),
    text("hbase.security.authentication", None, "simple (default), kerberos or token; needs hbase.security.auth.enable, or a site file that has it").on(Scope::HBase),
    text("hbase.security.simple.username", None, "User name sent to HBase, with hbase.security.auth.enable; tsd.storage.hbase.user comes first").on(Scope::HBase),
    without_effect("hbase.timer.tick", None, CLIENT, "Tick of the timer of calls, milliseconds"),
    without_effect("hbase.timer.ticks_per_wheel", None, CLIENT, "Size of the timer of calls"),
    without_effect("hbase.unsafe.client.kerberos.hostname.disable.reversedns", None, "host names are never looked up backwards", "Takes host names of servers without a reverse lookup"),
    without_effect("hbase.workers.size", None, CLIENT, "Threads of the client"),
    without_effect("hbase.zookeeper.getroot.retry_delay", None, CLIENT, "Pause between lookups in ZooKeeper, milliseconds"),
    int("hbase.zookeeper.property.clientPort", "", 1, 65_535, "Port of the hosts of hbase.zookeeper.quorum without a port; 2181 if unset").unset().on(Scope::HBase),
    text("hbase.zookeeper.quorum", None, "ZooKeeper quorum, if tsd.storage.hbase.zk_quorum is unset; does not select HBase as the store").on(Scope::HBase),
    without_effect("hbase.zookeeper.session.timeout", None, CLIENT, "Timeout of the ZooKeeper session, milliseconds"),
    without_effect("hbase.zookeeper.znode.parent", None, "tsd.storage.hbase.zk_basedir names the root znode", "Root znode of HBase"),
    text("java.security.auth.login.config", None, "JAAS file with the Kerberos login (a JVM flag of OpenTSDB)").on(Scope::HBase),
    text("java.security.krb5.conf", None, "krb5.conf of Kerberos (a JVM flag of OpenTSDB); the variable KRB5_CONFIG comes first").on(Scope::HBase),
    text("tsd.audit.file", None, "File with a JSON line for each act that changes or removes something, and each refused sign-in; unset: no audit log"),
    int("tsd.audit.keep", "30", 1, 10_000, "Renamed files of the audit log that are kept"),
    secs("tsd.audit.max_age", "86400", 0, INT_MAX, "Age at which the file of the audit log is renamed; 0: any"),
    bytes("tsd.audit.max_bytes", "104857600", 65_536, BYTES_MAX, "Size at which the file of the audit log is renamed"),
    bool("tsd.audit.required", "false", "Acts that the audit log cannot record are refused with 503"),
    text("tsd.cluster.advertise", Some(""), "Where other nodes connect, host or host:port; empty: the address of tsd.cluster.bind, or the host name").on(Scope::Cluster),
    text("tsd.cluster.bind", Some("0.0.0.0:4243"), "Where a node listens for its peers, address:port; port 0 picks a free port").on(Scope::Cluster),
    seconds("tsd.cluster.drain_linger", "3", 0.0, 3600.0, "How long a node that stops goes on to serve at least while it is unready, so that load balancers see it").on(Scope::Cluster),
    seconds("tsd.cluster.forward_timeout", "10", 0.1, 3600.0, "How long a write waits for the owner of its series, or for the next owner").on(Scope::Cluster),
    one_of("tsd.cluster.log_durability", "sync", &["sync", "fsync"], "When HBase has a record: sync (in the memory of its log's hosts) or fsync (on their disks)").on(Scope::Cluster),
    text("tsd.cluster.log_table", Some("tsdb-log"), "Table of the logs of all nodes; the first start creates it").on(Scope::Cluster),
    millis("tsd.cluster.max_clock_skew", "500", 1, 86_400_000, "How far a node's clock may differ from the median of the others").on(Scope::Cluster),
    int("tsd.cluster.max_connections", "4096", 2, INT_MAX, "Connections of other nodes that a node accepts, at least twice the nodes").on(Scope::Cluster),
    text("tsd.cluster.name", Some(""), "Name of the node in the log table; empty: the host name").on(Scope::Cluster),
    int("tsd.cluster.new_names_per_second", "5000", 0, INT_MAX, "New names per second that a node assigns UIDs to; further names wait; 0: no limit").on(Scope::Cluster),
    one_of("tsd.cluster.read_proof", "lease", &["lease", "append"], "How a node proves for a read that its log is its own: by its last heartbeat (lease), or a write to the log table (append)").on(Scope::Cluster),
    seconds("tsd.cluster.read_timeout", "30", 0.1, 3600.0, "How long a read waits for a silent node, or for the recovery of its log").on(Scope::Cluster),
    one_of("tsd.cluster.reads", "held", &["held", "stored"], "What reads see: the acknowledged points of all nodes (held), or what HBase and this node have (stored)").on(Scope::Cluster),
    text("tsd.cluster.slot_tags", Some("host, instance, pod"), "Tag keys of sources, the preferred one first: their series live on one node; empty: each is placed alone; all nodes alike").on(Scope::Cluster),
    seconds("tsd.cluster.suspect_after", "5", 1.0, 3600.0, "Time without heartbeats of a node after which another node recovers its log").on(Scope::Cluster),
    text("tsd.cluster.tls.ca", Some(""), "PEM file of the authorities that sign the certificates of nodes").on(Scope::Cluster),
    text("tsd.cluster.tls.cert", Some(""), "PEM file of this node's certificate; encrypts the connections between nodes; set on all nodes, with ca and key").on(Scope::Cluster),
    text("tsd.cluster.tls.key", Some(""), "PEM file of this node's private key").on(Scope::Cluster),
    text("tsd.core.admin.peers", Some("127.0.0.0/8,::1"), "Addresses and networks that may stop the daemon, change UIDs, delete data and cancel queries; or `*`"),
    bool("tsd.core.authentication.enable", "false", "Clients must authenticate"),
    // As in OpenTSDB with `connection`. A proxy may send requests of several users over one connection.
    one_of("tsd.core.authentication.http_scope", "request", &["request", "connection"], "What a login holds for: its request, or the later requests of its connection too"),
    text("tsd.core.authentication.jwt.audience", None, "Audience that a signed token must name (claim `aud`)"),
    text("tsd.core.authentication.jwt.issuer", None, "Issuer of signed tokens (claim `iss`)"),
    text("tsd.core.authentication.jwt.keys_file", None, "JSON file of the public keys (JWKS) that sign tokens of an identity provider; changes apply without a restart"),
    text("tsd.core.authentication.jwt.roles_claim", Some("roles"), "Claim of a signed token with the roles of its user; dots lead into objects, as in realm_access.roles"),
    text("tsd.core.authentication.jwt.user_claim", Some("sub"), "Claim of a signed token with the name of its user; dots lead into objects"),
    text("tsd.core.authentication.open_paths", Some("/api/health,/metrics"), "Paths that HTTP serves without credentials"),
    text("tsd.core.authentication.plugin", Some(""), "What authenticates clients: `file` (of users) or `allow_all`"),
    text("tsd.core.authentication.users_file", None, "File of users, roles and hashes; changes apply without a restart"),
    // OpenTSDB's default is false. A first put must work on an empty store.
    bool("tsd.core.auto_create_metrics", "true", "The first put of a metric creates it"),
    bool("tsd.core.auto_create_tagks", "true", "The first put of a tag key creates it"),
    bool("tsd.core.auto_create_tagvs", "true", "The first put of a tag value creates it"),
    bool("tsd.core.bulk.allow_out_of_order_timestamps", "false", "Imports accept timestamps of a series in any order"),
    int("tsd.core.connections.limit", "0", 0, INT_MAX, "Maximum connections; 0: as many as the limit on open files allows after the files of the store"),
    exactly("tsd.core.enable_api", "true", "The daemon answers the HTTP API; on only as the exact text true"),
    exactly("tsd.core.enable_ui", "true", "The daemon serves its pages; on only as the exact text true"),
    text("tsd.core.histograms.config", None, "Codecs of histograms and their ids: JSON, or the name of a .json file"),
    no_plugin("tsd.core.meta.cache.enable", "A plug-in counts the points of series"),
    without_effect("tsd.core.meta.cache.plugin", None, PLUGIN, "Class of the meta cache plug-in"),
    bool("tsd.core.meta.enable_realtime_ts", "false", "The first point of a series creates its meta data"),
    bool("tsd.core.meta.enable_realtime_uid", "false", "A name gets meta data together with its UID"),
    bool("tsd.core.meta.enable_tsuid_incrementing", "false", "The meta table counts the points of each series"),
    bool("tsd.core.meta.enable_tsuid_tracking", "false", "The meta table records each series"),
    without_effect("tsd.core.plugin_path", Some(""), "no plug-ins are loaded from files", "Directory of plug-ins"),
    without_effect("tsd.core.preload_uid_cache", Some("false"), NAMES, "Names are read at the start"),
    without_effect("tsd.core.preload_uid_cache.max_entries", Some("300000"), NAMES, "Maximum names that are read at the start"),
    without_effect("tsd.core.response.async", None, RESPONSES, "Separate threads render responses"),
    without_effect("tsd.core.response.worker.num", None, RESPONSES, "Number of threads that render responses"),
    int("tsd.core.series_cache.size", "1000000", 1, INT_MAX, "Series whose row keys are cached; the default shrinks with tsd.memory.limit"),
    secs("tsd.core.socket.timeout", "0", 0, INT_MAX, "Age at which an idle connection is closed; 0: never"),
    bool("tsd.core.stats_with_port", "false", "Statistics have a tag with the port"),
    text("tsd.core.storage_exception_handler.directory", None, "Directory of the spool"),
    bool("tsd.core.storage_exception_handler.enable", "false", "A plug-in gets the points that the store refuses"),
    bytes("tsd.core.storage_exception_handler.max_bytes", "1073741824", 1, BYTES_MAX, "Maximum size of the spool's files"),
    one_of("tsd.core.storage_exception_handler.on_full", "drop", &["drop", "hold"], "When the plug-in's queue is full: drop the points, or hold their senders"),
    text("tsd.core.storage_exception_handler.plugin", None, "`spool` (to files)"),
    bytes("tsd.core.storage_exception_handler.queue_size", "16777216", 65_536, BYTES_MAX, "Maximum size of the plug-in's queue"),
    text("tsd.core.tag.allow_specialchars", None, "Characters that names may have in addition to letters, digits and -_./"),
    text("tsd.core.timezone", None, "Time zone of dates without a zone; UTC if unset"),
    bool("tsd.core.tree.enable_processing", "false", "New series are added to the trees"),
    bool("tsd.core.uid.random_metrics", "false", "Metrics get random UIDs"),
    without_effect("tsd.gnuplot.options.allowlist", None, NOT_HERE, "Options of gnuplot that requests may set"),
    without_effect("tsd.http.cachedir", None, "no files of graphs are kept", "Directory of drawn graphs"),
    text("tsd.http.header_tag", Some(""), "HTTP header whose value becomes a tag of points"),
    text("tsd.http.hosts", Some(""), "Host names that browsers may use in addition to addresses and the machine's names (others get 421); or `*`"),
    bool("tsd.http.query.allow_delete", "false", "Queries may delete the points that they read"),
    bool("tsd.http.query.reject_unknown_options", "false", "Queries with unknown options between the colons of m= get 400"),
    text("tsd.http.request.cors_domains", Some(""), "Domains that browsers may call from; or `*`"),
    text("tsd.http.request.cors_headers", Some("Authorization, Content-Type, Accept, Origin, User-Agent, DNT, Cache-Control, X-Mx-ReqToken, Keep-Alive, X-Requested-With, If-Modified-Since"), "Headers that calls from other domains may have"),
    // OpenTSDB's default is false, which rejects every body over 8 KB.
    bool("tsd.http.request.enable_chunked", "true", "Accepts chunked request bodies, and bodies over 8 KB"),
    // OpenTSDB's default is 4096.
    bytes("tsd.http.request.max_chunk", "16777216", 1, BYTES_MAX, "Maximum request body, as sent"),
    bytes("tsd.http.request.max_inflated", "67108864", 1, BYTES_MAX, "Maximum request body after decompression; at least max_chunk"),
    bytes("tsd.http.request.max_total", "268435456", 1, BYTES_MAX, "Memory of all request bodies; beyond it requests get 503; the default shrinks with tsd.memory.limit"),
    secs("tsd.http.request.timeout", "60", 1, INT_MAX, "Maximum time without progress inside a request"),
    without_effect("tsd.http.rpc.plugins", None, PLUGIN, "Classes of plug-ins with HTTP endpoints"),
    bool("tsd.http.show_stack_trace", "true", "Error responses have the field trace"),
    text("tsd.http.staticroot", None, "Directory of files below /s/, which win over the program's own"),
    text("tsd.http.trusted_proxies", Some(""), "Addresses and networks of proxies whose X-Forwarded-For or Forwarded names the client"),
    int("tsd.limits.concurrent_queries", "0", 0, 65_536, "Maximum concurrent queries of a user, or of a network of clients without users; further ones get 429; 0: no limit"),
    bool("tsd.limits.measure", "false", "Counts points, new series and queries of each user or network, also without limits"),
    int("tsd.limits.new_series_per_hour", "0", 0, INT_MAX, "Maximum new series an hour of a user or network; points of further ones are refused; 0: no limit"),
    secs("tsd.limits.points_burst", "10", 0, 3_600, "After a rest, the points of this many seconds may come at once"),
    int("tsd.limits.points_per_second", "0", 0, 1_000_000_000, "Points a second of a user or network; above, telnet is read more slowly and HTTP gets 429; 0: no limit"),
    bytes("tsd.limits.query_bytes", "0", 0, BYTES_MAX, "Maximum bytes that a query of a user or network reads from storage; 0: no limit"),
    bytes("tsd.limits.query_memory", "0", 0, BYTES_MAX, "Memory of a query of a user or network; 0: only tsd.query.max_memory_bytes"),
    int("tsd.limits.series_per_metric", "0", 0, i64::MAX, "Maximum series of a metric, by the series index; points of further series are refused; 0: no limit"),
    one_of("tsd.log.format", "text", &["text", "json"], "Format of log lines"),
    text("tsd.log.level", Some("info"), "Log level, or directives such as info,tsd_engine=debug"),
    bytes("tsd.memory.limit", "0", 0, BYTES_MAX, "Memory of the process; unset sizes scale with it; 0: 60 % of the machine's, or of its control group's limit"),
    one_of("tsd.mode", "rw", &["rw", "ro", "wo"], "rw: queries and puts; ro: queries only; wo: puts only"),
    without_effect("tsd.network.async_io", Some("true"), "connections never have threads of their own", "One thread serves many connections"),
    int("tsd.network.backlog", "3072", 1, INT_MAX, "Maximum connections that are not yet accepted"),
    text("tsd.network.bind", Some("::"), "Addresses to listen on, separated by commas; :: includes IPv4, and is 0.0.0.0 without IPv6"),
    bool("tsd.network.keep_alive", "true", "TCP keep-alive of connections"),
    // 1024 in OpenTSDB.
    bytes("tsd.network.max_line_length", "16384", 64, 1 << 20, "Maximum telnet line; a longer line is skipped with an error"),
    int("tsd.network.port", "4242", 0, 65_535, "Port to listen on; 0 picks a free port"),
    bool("tsd.network.reuse_address", "true", "A restart may bind the port at once"),
    bool("tsd.network.tcp_no_delay", "true", "Sends small packets without delay"),
    int("tsd.network.worker_threads", "0", 0, 1024, "Threads that serve connections; 0: the number of cores"),
    secs("tsd.network.write_timeout", "60", 1, INT_MAX, "Maximum time without progress of a response; then its connection is closed"),
    exactly("tsd.no_diediedie", "false", "Refuses diediedie, unless this is the exact text false"),
    bool("tsd.query.allow_damaged", "false", "Queries return the readable points of damaged files and name the files, instead of an error"),
    bool("tsd.query.allow_simultaneous_duplicates", "true", "Equal queries may run at the same time"),
    bytes("tsd.query.cache.size", "134217728", 0, BYTES_MAX, "Cache of downsampled ended days, for repeated queries; 0: off").on(Scope::Embedded),
    bool("tsd.query.delete.whole_rows", "false", "Deletes by query delete whole rows (hours), as in OpenTSDB, not only the points of the range"),
    bool("tsd.query.enable_fuzzy_filter", "true", "Scans skip rows by the tags that a query names explicitly"),
    int("tsd.query.filter.expansion_limit", "4096", 0, INT_MAX, "Maximum tag values of a filter that the store compares"),
    bool("tsd.query.limits.bytes.allow_override", "false", "Queries may ignore the limit of bytes"),
    bytes("tsd.query.limits.bytes.default", "0", 0, i64::MAX, "Maximum bytes that a query reads; 0: no limit"),
    bool("tsd.query.limits.data_points.allow_override", "false", "Queries may ignore the limit of points"),
    // OpenTSDB's default is 0, no limit.
    int("tsd.query.limits.data_points.default", "500000000", 0, i64::MAX, "Maximum points that a query reads; 0: no limit"),
    text("tsd.query.limits.overrides.config", None, "File of limits by metric; changes apply without a restart"),
    // In seconds, as OpenTSDB counts it; its documentation says milliseconds, its default is 60000.
    secs("tsd.query.limits.overrides.interval", "60", 1, INT_MAX, "How often the file of limits is read again"),
    bytes("tsd.query.max_memory_bytes", "1073741824", 0, BYTES_MAX, "Memory of one query; 0: no limit"),
    int("tsd.query.max_running", "16", 1, 65_536, "Maximum wide queries that run at once; small queries are not counted"),
    int("tsd.query.max_scans", "8", 1, 1024, "Maximum concurrent scans of one query"),
    int("tsd.query.max_sub_queries", "1000", 1, INT_MAX, "Maximum sub queries of a query"),
    bytes("tsd.query.max_total_memory_bytes", "0", 0, BYTES_MAX, "Memory of all queries; 0: five twelfths of tsd.memory.limit, or what it leaves for queries if that is less"),
    int("tsd.query.max_waiting", "256", 0, 1 << 20, "Maximum queries that wait for a running one; beyond it queries get 503"),
    without_effect("tsd.query.multi_get.batch_size", Some("1024"), MULTI_GET, "Rows of a batch of gets"),
    without_effect("tsd.query.multi_get.concurrent", Some("20"), MULTI_GET, "Concurrent batches of gets"),
    without_effect("tsd.query.multi_get.enable", Some("false"), MULTI_GET, "Rows are fetched by key where tags are explicit"),
    bool("tsd.query.multi_get.get_all_salts", "false", "Series are read from all salt buckets; for tables whose number of buckets was changed"),
    without_effect("tsd.query.multi_get.limit", Some("131072"), MULTI_GET, "Maximum rows that are fetched by key"),
    one_of("tsd.query.series_index", "auto", &["auto", "always", "never"], "When queries read rows by the series index; auto: where it is cheaper than a scan").on(Scope::Embedded),
    bool("tsd.query.skip_unresolved_tagvs", "false", "Filter values without a UID match nothing, instead of an error"),
    millis("tsd.query.slow_log", "0", 0, INT_MAX, "Queries that take this time or longer are logged with their costs; 0: off"),
    int("tsd.query.threads", "0", 0, 1024, "Threads of queries; 0: the number of cores"),
    // OpenTSDB's default is 0, no limit.
    millis("tsd.query.timeout", "600000", 0, INT_MAX, "Maximum time of a query; 0: no limit"),
    text("tsd.rollups.agg_tag_key", Some("_aggregate"), "Tag key of pre-aggregates"),
    bool("tsd.rollups.block_derived", "true", "Refuses averages and deviations as rollups"),
    text("tsd.rollups.config", None, "Intervals and tables of rollups: JSON, or the name of a .json file"),
    bool("tsd.rollups.enable", "false", "Accepts and reads rollups"),
    text("tsd.rollups.raw_agg_tag_value", Some("RAW"), "Value of tsd.rollups.agg_tag_key for raw points"),
    bool("tsd.rollups.split_query.enable", "false", "Queries join rollups and the raw points after them"),
    bool("tsd.rollups.tag_raw", "false", "Raw points get the tag tsd.rollups.agg_tag_key"),
    without_effect("tsd.rpc.plugins", None, PLUGIN, "Classes of plug-ins with their own listeners"),
    one_of("tsd.rpc.telnet.on_storage_error", "hold", &["hold", "close"], "When the store does not accept a telnet point now: hold it and pause the connection, or close the connection"),
    bool("tsd.rpc.telnet.return_errors", "true", "Telnet clients get a line for each point that is not stored"),
    text("tsd.rtpublisher.address", None, "HOST:PORT of the receiver of the plug-in `tcp`"),
    text("tsd.rtpublisher.ca", None, "PEM file of the authorities of a receiver with https; unset: the system's"),
    bool("tsd.rtpublisher.enable", "false", "A plug-in gets every stored point"),
    text("tsd.rtpublisher.file", None, "File of the plug-in `file`"),
    int("tsd.rtpublisher.file.keep", "5", 0, 1_000, "Full files that are kept"),
    bytes("tsd.rtpublisher.file.max_bytes", "104857600", 1, BYTES_MAX, "Size at which the file is renamed"),
    one_of("tsd.rtpublisher.on_full", "drop", &["drop", "hold"], "When the plug-in's queue is full: drop the points, or hold their senders"),
    text("tsd.rtpublisher.plugin", Some(""), "Destination of points: `file`, `tcp` or `http`"),
    bytes("tsd.rtpublisher.queue_size", "16777216", 65_536, BYTES_MAX, "Maximum size of the plug-in's queue"),
    text("tsd.rtpublisher.url", None, "URL of the receiver of the plug-in `http`"),
    // OpenTSDB's default is false: it cannot search without a plug-in.
    bool("tsd.search.enable", "true", "Answers searches of meta objects and annotations"),
    without_effect("tsd.search.plugin", Some(""), PLUGIN, "Class of the search plug-in; the search is built in"),
    secs("tsd.shutdown.timeout", "20", 1, 3600, "Maximum time of a shutdown"),
    no_plugin("tsd.startup.enable", "A plug-in runs at the start"),
    without_effect("tsd.startup.plugin", Some(""), PLUGIN, "Class of the start-up plug-in"),
    bool("tsd.stats.canonical", "false", "Statistics have the tag fqdn instead of host"),
    secs("tsd.stats.self", "0", 0, 86_400, "Time between two writes of the daemon's own statistics as points; 0 writes none"),
    bool("tsd.storage.accept_clock", "false", "Trusts a clock that is far ahead of the newest stored time, so that retention follows it").on(Scope::Embedded),
    bool("tsd.storage.accept_damage", "false", "Opens a damaged log without its unreadable records").on(Scope::Persistent),
    one_of("tsd.storage.ack", "storage", &["storage", "log", "cluster"], "When a point is acknowledged: HBase has stored it, this host's log is synced, or a log in HBase has it").on(Scope::HBase),
    bytes("tsd.storage.cache.size", "67108864", 0, BYTES_MAX, "Block cache; the default shrinks with tsd.memory.limit").on(Scope::Embedded),
    secs("tsd.storage.compaction.flush_interval", "10", 1, INT_MAX, "Time between two rounds of row compaction").on(Scope::RowCompactor),
    int("tsd.storage.compaction.flush_speed", "2", 1, INT_MAX, "Pace of row compaction").on(Scope::RowCompactor),
    int("tsd.storage.compaction.max_concurrent_flushes", "10000", 1, INT_MAX, "Maximum rows that are compacted at once").on(Scope::RowCompactor),
    int("tsd.storage.compaction.min_flush_threshold", "100", 0, INT_MAX, "Rows that may wait for their compaction").on(Scope::RowCompactor),
    bool("tsd.storage.compaction.on_read", "true", "Queries request the compaction of old uncompacted rows that they read").on(Scope::RowCompactor),
    text("tsd.storage.data_directory", Some("tsdb-data"), "Directory of the embedded store, or of the log in front of HBase").on(Scope::Persistent),
    bool("tsd.storage.enable_appends", "false", "Points are appended to one column of their row"),
    bool("tsd.storage.enable_compaction", "true", "Rows of past hours are compacted"),
    one_of("tsd.storage.engine", "embedded", &["embedded", "memory", "hbase"], "Kind of the store; hbase by default if tsd.storage.hbase.zk_quorum or .site is set"),
    // OpenTSDB's default is false. A correction of a compacted or flushed row is a second cell for its instant.
    bool("tsd.storage.fix_duplicates", "true", "Of several points of an instant the newest is read, instead of an error"),
    without_effect("tsd.storage.flush_interval", Some("1000"), BATCHES, "Time that points are collected, milliseconds"),
    millis("tsd.storage.get_date_tiered_compaction_start", "0", 0, i64::MAX, "Time (Unix) from which reads limit the timestamps of cells"),
    int("tsd.storage.hbase.connections", "2", 1, 64, "Connections per region server for reads and writes; scans have one more").on(Scope::HBase),
    text("tsd.storage.hbase.data_table", Some("tsdb"), "Table of points"),
    text("tsd.storage.hbase.hosts", Some(""), "Addresses of servers whose names do not resolve: name[:port]=address[:port], separated by commas").on(Scope::HBase),
    text("tsd.storage.hbase.meta_table", Some("tsdb-meta"), "Table of series and their meta data"),
    millis("tsd.storage.hbase.operation_timeout", "180000", 100, INT_MAX, "Timeout of an operation including its retries; hbase.rpc.timeout limits one call").on(Scope::HBase),
    bool("tsd.storage.hbase.prefetch_meta", "false", "Locates all regions at the start").on(Scope::HBase),
    seconds("tsd.storage.hbase.read_back_delay", "30", 0.0, 3600.0, "When points of past hours are read back; longer than an OpenTSDB's compactions; 0 if no OpenTSDB uses the tables").on(Scope::HBase),
    int("tsd.storage.hbase.scanner.maxNumRows", "128", 1, INT_MAX, "Rows of one call of a scan"),
    one_of("tsd.storage.hbase.series_index", "off", &["off", "estimate", "register", "complete"], "Use of the series index: only statistics (estimate), register new series, or queries rely on it (complete)").on(Scope::HBase),
    int("tsd.storage.hbase.series_index.scan_rate", "100000", 0, INT_MAX, "Rows per second of the scan that fills the series index; 0: no limit").on(Scope::HBase),
    bytes("tsd.storage.hbase.series_index.size", "0", 0, BYTES_MAX, "Memory of the series index; 0: an eighth of tsd.memory.limit, at most 1 GiB").on(Scope::HBase),
    text("tsd.storage.hbase.series_table", Some("tsdb-series"), "Table in which series are registered").on(Scope::HBase),
    text("tsd.storage.hbase.site", None, "hbase-site.xml, or a directory with it and core-site.xml; selects HBase; own keys come first").on(Scope::HBase),
    secs("tsd.storage.hbase.start_timeout", "60", 0, INT_MAX, "How long a start waits for ZooKeeper and HBase").on(Scope::HBase),
    text("tsd.storage.hbase.tree_table", Some("tsdb-tree"), "Table of trees"),
    text("tsd.storage.hbase.uid_table", Some("tsdb-uid"), "Table of names and their UIDs"),
    text("tsd.storage.hbase.user", Some(""), "User name sent to HBase; empty: the user of the process").on(Scope::HBase),
    text("tsd.storage.hbase.zk_basedir", Some("/hbase"), "Root znode of HBase").on(Scope::HBase),
    text("tsd.storage.hbase.zk_quorum", Some("localhost"), "ZooKeeper quorum, hbase+zk://... or hbase+rpc://...; selects HBase as the store unless tsd.storage.engine is set").on(Scope::HBase),
    seconds("tsd.storage.hold_seconds", "60", 0.1, 3600.0, "How long the log holds a row before it is sent to HBase").on(Scope::HBase),
    bytes("tsd.storage.log.max_size", "4294967296", 1 << 20, BYTES_MAX, "Maximum size of the log; beyond it points are rejected; 1 GiB by default with ack = cluster").on(Scope::HBase),
    bytes("tsd.storage.log.segment_size", "67108864", 65_536, BYTES_MAX, "Size of the log at which its rows are flushed").on(Scope::Persistent),
    int("tsd.storage.max_tags", "8", 1, 1024, "Maximum tags of a point"),
    secs("tsd.storage.memtable.max_age", "600", 1, INT_MAX, "Maximum time of a row in memory").on(Scope::Embedded),
    bytes("tsd.storage.memtable.size", "134217728", 1 << 20, BYTES_MAX, "Memory of rows that are not flushed; unset: a tenth of tsd.memory.limit, at most the default (512 MiB on HBase)").on(Scope::Persistent),
    bool("tsd.storage.repair_appends", "false", "Reads repair append columns whose points are out of order"),
    bytes("tsd.storage.reserve", "67108864", 0, BYTES_MAX, "Disk space that stays free; below it writes fail and reads continue").on(Scope::Persistent),
    text("tsd.storage.retention", None, "How long points are kept, such as 400d; unset: for ever").on(Scope::Embedded),
    text("tsd.storage.retention_file", None, "File of retentions by metric; changes apply without a restart").on(Scope::Embedded),
    int("tsd.storage.salt.buckets", "20", 1, 65_536, "Number of salt buckets"),
    // OpenTSDB's default is 0. With salt from the start, one key layout serves every engine.
    int("tsd.storage.salt.width", "1", 0, 8, "Bytes of the salt of row keys; 0: no salt, the default on HBase"),
    int("tsd.storage.uid.width.metric", "3", 1, 8, "Bytes of the UIDs of metrics"),
    int("tsd.storage.uid.width.tagk", "3", 1, 8, "Bytes of the UIDs of tag keys"),
    int("tsd.storage.uid.width.tagv", "3", 1, 8, "Bytes of the UIDs of tag values"),
    bool("tsd.storage.use_max_value", "true", "With use_otsdb_timestamp, of several points of an instant the largest is read"),
    bool("tsd.storage.use_otsdb_timestamp", "false", "Cells have the timestamps of their points"),
    millis("tsd.storage.write.deadline", "10000", 1, INT_MAX, "How long a point waits for a full queue, and an HTTP request for the store, before it is rejected"),
    bytes("tsd.storage.write.queue_size", "8388608", 65_536, BYTES_MAX, "Maximum size of waiting writes per salt bucket; all buckets share the sum, beyond which senders wait"),
    bool("tsd.timeseriesfilter.enable", "false", "A plug-in decides which points are stored"),
    text("tsd.timeseriesfilter.plugin", None, "`rules` (of a file)"),
    text("tsd.timeseriesfilter.rules_file", None, "File of rules that allow and deny series; changes apply without a restart"),
    text("tsd.tls.certificate", None, "PEM file of the port's certificate, then its intermediate ones: enables TLS; changes apply without a restart"),
    one_of("tsd.tls.client_auth", "none", &["none", "optional", "required"], "Whether clients show certificates, which log in users"),
    text("tsd.tls.client_ca", None, "PEM file of the authorities of client certificates"),
    text("tsd.tls.key", None, "PEM file of the private key of tsd.tls.certificate"),
    one_of("tsd.tls.min_version", "1.2", &["1.2", "1.3"], "Oldest version of TLS that the port accepts"),
    bool("tsd.tls.required", "false", "Refuses clients of other hosts that do not use TLS"),
    without_effect("tsd.uid.lru.enable", Some("false"), CACHES, "Bounds the caches of names"),
    without_effect("tsd.uid.lru.id.size", Some("5000000"), CACHES, "Cached names by UID"),
    without_effect("tsd.uid.lru.name.size", Some("5000000"), CACHES, "Cached UIDs by name"),
    without_effect("tsd.uid.use_mode", Some("false"), CACHES, "Keeps only the caches that the mode needs"),
    bool("tsd.uidfilter.enable", "false", "New names must match patterns"),
    text("tsd.uidfilter.plugin", None, "Filter of new names; `whitelist` by default"),
    text("tsd.uidfilter.whitelist.delimiter", Some(","), "Text between two patterns"),
    text("tsd.uidfilter.whitelist.metric_patterns", None, "Regular expressions that new metrics must match"),
    text("tsd.uidfilter.whitelist.tagk_patterns", None, "Regular expressions that new tag keys must match"),
    text("tsd.uidfilter.whitelist.tagv_patterns", None, "Regular expressions that new tag values must match"),
    bool("zookeeper.client.secure", "", "TLS to ZooKeeper; false if unset").unset().on(Scope::HBase),
    bool("zookeeper.sasl.client", "", "Login at ZooKeeper; unset: tried with Kerberos at HBase, by the section of the JAAS file, or as at HBase").unset().on(Scope::HBase),
    text("zookeeper.sasl.client.username", None, "First part of the principals of ZooKeeper's servers; zookeeper if unset").on(Scope::HBase),
    text("zookeeper.sasl.clientconfig", None, "Section of the JAAS file for ZooKeeper; hbase.sasl.clientconfig if unset").on(Scope::HBase),
    text("zookeeper.server.principal", None, "Principal of all of ZooKeeper's servers, as it is; unset: by their host names").on(Scope::HBase),
    bool("zookeeper.ssl.hostnameVerification", "", "Certificates of ZooKeeper's servers must have their host names; true if unset").unset().on(Scope::HBase),
    text("zookeeper.ssl.keyStore.location", None, "Certificate and key of this client for ZooKeeper, PEM").on(Scope::HBase),
    without_effect("zookeeper.ssl.keyStore.password", None, PEM, "Password of zookeeper.ssl.keyStore.location"),
    without_effect("zookeeper.ssl.keyStore.type", None, PEM, "Type of zookeeper.ssl.keyStore.location"),
    text("zookeeper.ssl.trustStore.location", None, "Certificates of the authorities of ZooKeeper's servers, PEM; unset: the system's").on(Scope::HBase),
    without_effect("zookeeper.ssl.trustStore.password", None, PEM, "Password of zookeeper.ssl.trustStore.location"),
    without_effect("zookeeper.ssl.trustStore.type", None, PEM, "Type of zookeeper.ssl.trustStore.location"),
    text("zookeeper.znode.parent", None, "Root znode of HBase, if tsd.storage.hbase.zk_basedir is unset").on(Scope::HBase),
];
