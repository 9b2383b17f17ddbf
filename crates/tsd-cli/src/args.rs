//! The command line.
//!
//! OpenTSDB's options keep their names. Every option that sets a configuration key is translated in
//! one place, [`Overrides::apply`], so flags have no effect that keys lack.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tsd_engine::FsckOptions;

use crate::config::Config;

/// A time series daemon that speaks OpenTSDB's protocols, and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "tsdb",
    version = crate::version::line(),
    about = "A time series daemon that speaks OpenTSDB's protocols, and its tools.",
    after_help = "\
Every setting is a key of opentsdb.conf. Its value comes from, in this order: a flag, the environment
(tsd.network.port is TSD_NETWORK_PORT), the file given by --config or found as ./opentsdb.conf,
/etc/opentsdb.conf, /etc/opentsdb/opentsdb.conf or /opt/opentsdb/opentsdb.conf, a default.

Start a daemon with its data in ./tsdb-data, put a point, query it:
  tsdb tsd
  curl localhost:4242/api/put -d '{\"metric\":\"sys.load\",\"timestamp\":'$(date +%s)',\"value\":0.5,\"tags\":{\"host\":\"a\"}}'
  curl 'localhost:4242/api/query?start=1h-ago&m=sum:sys.load'",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "\
On SIGTERM or SIGINT the daemon accepts no more requests, completes those in progress, flushes all
data and exits with 0; what cannot be flushed stays in the log until the next start. A second signal
exits at once. On SIGHUP it reads its configuration again and
applies tsd.log.level and the files that it follows. Logs are written to standard error.")]
    Tsd(Box<TsdArgs>),
    /// Import points from text files
    #[command(after_help = "\
A line is `<metric> <timestamp> <value> <tagk>=<tagv> ...`, as in `put` without the command.
Timestamps are whole seconds or milliseconds and must increase within a series, unless
tsd.core.bulk.allow_out_of_order_timestamps is set. Values with a point or an exponent are stored in
single precision, as by OpenTSDB's importer. Files named *.gz are decompressed; `-` is standard
input. The first invalid line ends the import with exit status 1; points before it are kept.
If the store fails, the status is 2; after Ctrl-C it is 130. The last line says what was stored.

If a daemon has the data directory open, or with --url, points are put over its HTTP API. Its
configuration then decides about new names, and values keep double precision.")]
    Import(ImportArgs),
    /// Print the points of a query
    #[command(after_help = "\
A query is `FUNC [rate [counter[,max[,reset]]]] [downsample MS FUNC] METRIC [TAGK=TAGV ...]`;
several may follow each other. Times are as in the HTTP API: 1h-ago, 2013/01/01-00:00:00,
seconds since 1970. Each point is one line: `METRIC MILLISECONDS VALUE {TAGK=TAGV, ...}`.
With --graph, arguments `+NAME=VALUE` set options of the graph, as those of /q: wxh, title,
ylabel, yrange, ylog, yformat, xformat, key, nokey, style, smooth, fgcolor, bgcolor. A BASE that
does not end in .png gets BASE.gnuplot and BASE_<n>.dat.

  tsdb query 1h-ago sum sys.load host=a
  tsdb query --graph - 1h-ago sum sys.load
  tsdb query 2013/01/01-00:00:00 2013/01/02-00:00:00 avg downsample 60000 avg sys.load

If a daemon has the data directory open, or with --url, its HTTP API is queried.")]
    Query(QueryArgs),
    /// Create the tables in HBase, or check them
    #[command(after_help = "\
The tables are those named by the settings: points, UIDs, meta data, trees and rollups. A data table
is created with one region per salt bucket. Existing tables are never changed.

  tsdb table create --zkquorum zk1,zk2,zk3 --dry-run
  tsdb table status --config /etc/opentsdb/opentsdb.conf")]
    Table(TableArgs),
    /// Show damaged store files, or accept their loss
    #[command(after_help = "\
A damaged file of the embedded store is quarantined: what is intact of it stays, and queries that
need the rest fail with its name. Put back a copy of the data directory, or accept the loss: then
queries return what is left. If a daemon has the data directory open, or with --url, its HTTP API is
used.

  tsdb quarantine list
  tsdb quarantine accept t.tsdb-7")]
    Quarantine(QuarantineArgs),
    /// Check all files of the store, and repair them
    #[command(after_help = "\
Reads every file of the embedded store and its log and compares checksums: parts block by block, files of
small tables, manifests and their copies, log segments, and the series index with the rows. Nothing is
changed without --repair and --yes. With both, what is intact of damaged files is kept, what is not is
given up, and queries return what is left. If a daemon has the data directory open, or with --url, it
does the work, and leaves queries and writes most of the processor and the disk.

Exit status: 0 if nothing is damaged, or all was repaired; 1 if something is damaged; 2 if it could not run.

  tsdb verify
  tsdb verify --repair          # lists what it would do
  tsdb verify --repair --yes")]
    Verify(VerifyArgs),
    /// Find damaged rows and cells of the data table, and repair them
    #[command(after_help = "\
Options, findings and counters are OpenTSDB's. Without --fix nothing is written, except append columns
that are out of order where tsd.storage.repair_appends is set. Cells and rows are deleted only with the
option that names them. A check of the whole table can be stopped at any time; with --checkpoint the same
command goes on where it stopped. Daemons may write to HBase meanwhile: a repair is written only if its row
has not changed. The embedded store is checked while no daemon has it open; `tsdb verify` checks its files.

Exit status: 0 if no errors were found; 1 if there were some, also if all were repaired; 2 if the check
could not run.

  tsdb fsck --full-scan
  tsdb fsck --full-scan --fix --resolve-duplicates --checkpoint fsck.json
  tsdb fsck --fix --compact 30d-ago sum sys.load host=a")]
    Fsck(FsckArgs),
    /// Take a snapshot of the embedded store, also while a daemon uses it
    #[command(after_help = "\
Every point that was acknowledged before the command is in the snapshot. TARGET gets its name when the
snapshot is complete. Files are linked where TARGET is on the file system of the data directory, and
copied elsewhere; --copy makes a snapshot that shares no file with the store. With --base, files that
are in a former snapshot beside TARGET are linked to those instead of copied. If a daemon has the data
directory open, or with --url, the daemon takes the snapshot, with its rights.

  tsdb snapshot --data /var/lib/tsdb /backup/monday
  tsdb snapshot --data /var/lib/tsdb /backup/tuesday --base /backup/monday")]
    Snapshot(SnapshotArgs),
    /// Restore a snapshot to a new data directory
    #[command(after_help = "\
Every file is verified before the data directory can be opened. An interrupted restore is repeated by
the same command. Keep a snapshot that --link was used with as it is: the store shares its files.

  tsdb restore --data /var/lib/tsdb-restored /backup/monday")]
    Restore(RestoreArgs),
    /// Names and their UIDs: find, assign, rename, delete
    #[command(after_help = "\
The arguments are those of OpenTSDB. KIND is metrics, tagk or tagv:
  grep [KIND] REGEXP      names that match; exit status 1 if none does
  assign KIND NAME...     UIDs of names, new ones for those that have none; neither characters
                          nor the UID filter are checked
  rename KIND OLD NEW     another name for a UID
  delete KIND NAME        removes a name with its UIDMeta; its points stay, without a name
  [KIND] NAME             the UID of a name
  [KIND] ID               the name of a UID; a word of digits is always an ID

Exit status: 0; 1 if a name or UID is not known; 2 for an invalid command line; 3 if the store
failed; 4 if a name was not deleted for another reason; 42 if the store failed in the end.

  tsdb uid grep metrics '^sys[.]'
  tsdb uid rename metrics sys.cpu system.cpu
  tsdb uid tagk 17")]
    Uid(UidArgs),
    /// Create metrics, as `tsdb uid assign metrics` does
    Mkmetric(MkmetricArgs),
    /// Print the version
    Version,
}

/// Arguments of `tsdb tsd`.
#[derive(Debug, Args)]
pub(crate) struct TsdArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// Port to listen on; 0 lets the system choose one [tsd.network.port]
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// Addresses to listen on, separated by commas; `::` takes IPv4, too [tsd.network.bind]
    #[arg(long, value_name = "ADDRESSES")]
    bind: Option<String>,
    /// Length of the queue of connections not yet accepted [tsd.network.backlog]
    #[arg(long, value_name = "COUNT")]
    backlog: Option<String>,
    /// Threads that serve connections [tsd.network.worker_threads]
    #[arg(long, value_name = "COUNT")]
    worker_threads: Option<String>,
    /// Maximum number of connections, 0 for no limit [tsd.core.connections.limit]
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<String>,
    /// rw, ro (queries only) or wo (puts only) [tsd.mode]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Create metrics on their first put [tsd.core.auto_create_metrics]
    #[arg(long)]
    auto_metric: bool,
    /// When a point is acknowledged on HBase: storage (HBase has stored it) or log (the log in the
    /// data directory is synced) [tsd.storage.ack]
    #[arg(long, value_name = "WHERE")]
    ack: Option<String>,
    #[command(flatten)]
    damage: DamageArgs,
    // OpenTSDB's start scripts pass these; they have no effect here.
    #[arg(long, hide = true)]
    staticroot: Option<String>,
    #[arg(long, hide = true)]
    cachedir: Option<String>,
    #[arg(long, hide = true)]
    flush_interval: Option<String>,
    #[arg(long, hide = true)]
    async_io: Option<String>,
}

/// Arguments of `tsdb import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Report invalid lines and continue
    #[arg(long)]
    pub(crate) skip_errors: bool,
    /// Create metrics that do not exist yet [tsd.core.auto_create_metrics]
    #[arg(long)]
    pub(crate) auto_metric: bool,
    /// Create the data directory if it does not exist
    #[arg(long)]
    pub(crate) create: bool,
    /// Files to import, in order
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Arguments of `tsdb query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log progress
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Draw a graph instead of lines: BASE.png, - is the terminal; any other BASE gets files for gnuplot
    #[arg(long, value_name = "BASE")]
    pub(crate) graph: Option<PathBuf>,
    /// With --graph -: draw a picture, for terminals that show sixels
    #[arg(long, requires = "graph")]
    pub(crate) sixel: bool,
    /// START [END] QUERY...
    #[arg(value_name = "WORD", required = true, num_args = 1.., allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

/// Arguments of `tsdb table`.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: TableCommand,
}

/// Sub-commands of `tsdb table`.
#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Create the missing tables
    Create(TableCreateArgs),
    /// Show the tables; fails if one is missing or differs from the settings
    Status(TableStatusArgs),
}

/// Arguments of `tsdb table create`.
#[derive(Debug, Args)]
pub(crate) struct TableCreateArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// Compression of files: auto (the best the cluster supports), snappy, lz4, zstd, gzip or none
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) compression: String,
    /// Data block encoding: DIFF, FAST_DIFF, PREFIX, ROW_INDEX_V1 or NONE
    #[arg(long, value_name = "NAME", default_value = "DIFF")]
    pub(crate) encoding: String,
    /// Bloom filters: ROW, ROWCOL or NONE
    #[arg(long, value_name = "NAME", default_value = "ROW")]
    pub(crate) bloom: String,
    /// Time to live of points in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<u32>,
    /// Print what would be done without doing it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `tsdb table status`.
#[derive(Debug, Args)]
pub(crate) struct TableStatusArgs {
    #[command(flatten)]
    overrides: Overrides,
}

/// Arguments of `tsdb quarantine`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: QuarantineCommand,
}

/// Sub-commands of `tsdb quarantine`.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the files: what was lost, why, since when
    List(QuarantineListArgs),
    /// Accept the loss of files and remove them
    Accept(QuarantineAcceptArgs),
}

/// Arguments of `tsdb quarantine list`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineListArgs {
    #[command(flatten)]
    pub(crate) place: QuarantinePlace,
}

/// Arguments of `tsdb quarantine accept`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineAcceptArgs {
    #[command(flatten)]
    pub(crate) place: QuarantinePlace,
    /// All files in quarantine
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Names of files, as listed
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
}

/// Where the files are, and how they are printed.
#[derive(Debug, Args)]
pub(crate) struct QuarantinePlace {
    #[command(flatten)]
    overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON, as /api/quarantine does
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON, as /api/verify does
    #[arg(long)]
    pub(crate) json: bool,
    /// List what would repair the damage; with --yes, do it
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair without a question; what cannot be read is given up
    #[arg(long, short, requires = "repair")]
    pub(crate) yes: bool,
}

/// Arguments of `tsdb fsck`.
#[expect(clippy::struct_excessive_bools, reason = "independent options, as in OpenTSDB")]
#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// Check the whole table
    #[arg(long)]
    pub(crate) full_scan: bool,
    /// Write repairs; the options below need it
    #[arg(long)]
    fix: bool,
    /// All repairs: those below, without --last-write-wins
    #[arg(long)]
    fix_all: bool,
    /// Write all points of a row as one column
    #[arg(long)]
    compact: bool,
    /// Of the points of an instant, remove all but the one that was written first
    #[arg(long)]
    resolve_duplicates: bool,
    /// Keep the one that was written last [tsd.storage.fix_duplicates]
    #[arg(long)]
    last_write_wins: bool,
    /// Delete rows with a UID that has no name
    #[arg(long)]
    delete_orphans: bool,
    /// Delete columns that no version of OpenTSDB writes
    #[arg(long)]
    delete_unknown_columns: bool,
    /// Delete points whose value cannot be read
    #[arg(long)]
    delete_bad_values: bool,
    /// Delete rows with an invalid key
    #[arg(long)]
    delete_bad_rows: bool,
    /// Delete compacted columns that cannot be split
    #[arg(long)]
    delete_bad_compacts: bool,
    /// Accepted for OpenTSDB's scripts: every repair is waited for
    #[arg(long)]
    sync: bool,
    /// Parts of the table that are read at once; twice the processors by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Most rows a second
    #[arg(long, value_name = "ROWS", value_parser = rows_per_second)]
    pub(crate) rate: Option<f64>,
    /// File that keeps how far the check came, until it is complete
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Print the counters as JSON, and findings to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// START [END] FUNC METRIC [TAGK=TAGV ...]: the rows to check
    #[arg(value_name = "WORD", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

fn rows_per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rows) if rows > 0.0 && f64::is_finite(rows) => Ok(rows),
        _ => Err("a number above 0 is expected".to_owned()),
    }
}

/// Arguments of `tsdb snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A former snapshot, of which files that did not change are linked
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) base: Option<PathBuf>,
    /// Copy files although they could be linked
    #[arg(long)]
    pub(crate) copy: bool,
    /// Take the snapshot although the store has damaged files in quarantine
    #[arg(long)]
    pub(crate) allow_damage: bool,
    /// Print JSON, as /api/snapshot does
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory of the snapshot; missing or empty
    #[arg(value_name = "TARGET")]
    pub(crate) target: PathBuf,
}

/// Arguments of `tsdb restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// Link files of the snapshot instead of copying them
    #[arg(long)]
    pub(crate) link: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,
}

/// Arguments of `tsdb uid`.
#[derive(Debug, Args)]
pub(crate) struct UidArgs {
    #[command(flatten)]
    pub(crate) place: UidPlace,
    /// Bytes of a UID that is given as a number; the default is the width of its kind
    #[arg(long = "idwidth", value_name = "BYTES", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) id_width: Option<u8>,
    /// grep: letters match those of the other case, too
    #[arg(long, short)]
    pub(crate) ignore_case: bool,
    /// A sub-command with its arguments, a name, or a UID
    #[arg(value_name = "WORD", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
}

/// Arguments of `tsdb mkmetric`.
#[derive(Debug, Args)]
pub(crate) struct MkmetricArgs {
    #[command(flatten)]
    pub(crate) place: UidPlace,
    /// Names of metrics
    #[arg(value_name = "NAME", required = true, num_args = 1..)]
    pub(crate) names: Vec<String>,
}

/// Where the names are, and how they are printed.
#[derive(Debug, Args)]
pub(crate) struct UidPlace {
    #[command(flatten)]
    overrides: Overrides,
    /// Log progress
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Permission to open a damaged log.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DamageArgs {
    /// Start although the write-ahead log is damaged, and lose the records that the error lists
    #[arg(long)]
    pub(crate) accept_damage: bool,
}

/// Flags of every sub-command.
#[derive(Debug, Args)]
pub(crate) struct Overrides {
    /// Configuration file; it must exist
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the embedded store, or of the log in front of HBase [tsd.storage.data_directory]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// error, warn, info, debug, trace or off, or directives such as `info,tsd_engine=debug`
    /// [tsd.log.level]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json [tsd.log.format]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Data table [tsd.storage.hbase.data_table]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    table: Option<String>,
    /// UID table [tsd.storage.hbase.uid_table]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    uidtable: Option<String>,
    /// ZooKeeper quorum of HBase, host[:port],...; selects HBase as the store
    /// [tsd.storage.hbase.zk_quorum]
    #[arg(long, value_name = "HOSTS")]
    zkquorum: Option<String>,
    /// Root znode of HBase [tsd.storage.hbase.zk_basedir]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    zkbasedir: Option<String>,
}

/// Returns a function that sets a key if its flag is given.
fn setter(config: &mut Config) -> impl FnMut(&'static str, &str, &Option<String>) {
    |flag, key, value| {
        if let Some(value) = value {
            config.set_flag(flag, key, value.as_str());
        }
    }
}

impl Overrides {
    fn load(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = Config::load(self.config.as_deref())?;
        config.add_environment(
            std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
        );
        let data = self.data.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut set = setter(&mut config);
        set("--data", "tsd.storage.data_directory", &data);
        set("--log-level", "tsd.log.level", &self.log_level);
        set("--log-format", "tsd.log.format", &self.log_format);
        set("--table", "tsd.storage.hbase.data_table", &self.table);
        set("--uidtable", "tsd.storage.hbase.uid_table", &self.uidtable);
        set("--zkquorum", "tsd.storage.hbase.zk_quorum", &self.zkquorum);
        set("--zkbasedir", "tsd.storage.hbase.zk_basedir", &self.zkbasedir);
        drop(set);
        Ok(config)
    }
}

impl TsdArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        let mut set = setter(&mut config);
        set("--port", "tsd.network.port", &self.port);
        set("--bind", "tsd.network.bind", &self.bind);
        set("--backlog", "tsd.network.backlog", &self.backlog);
        set("--worker-threads", "tsd.network.worker_threads", &self.worker_threads);
        set("--max-connections", "tsd.core.connections.limit", &self.max_connections);
        set("--mode", "tsd.mode", &self.mode);
        set("--ack", "tsd.storage.ack", &self.ack);
        set("--staticroot", "tsd.http.staticroot", &self.staticroot);
        set("--cachedir", "tsd.http.cachedir", &self.cachedir);
        set("--flush-interval", "tsd.storage.flush_interval", &self.flush_interval);
        set("--async-io", "tsd.network.async_io", &self.async_io);
        drop(set);
        if self.auto_metric {
            config.set_flag("--auto-metric", "tsd.core.auto_create_metrics", "true");
        }
        self.damage.apply(&mut config);
        Ok(config)
    }
}

impl ImportArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.auto_metric {
            config.set_flag("--auto-metric", "tsd.core.auto_create_metrics", "true");
        }
        self.damage.apply(&mut config);
        Ok(config)
    }
}

impl QueryArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() && !self.verbose {
            config.set_flag("tsdb query without --verbose", "tsd.log.level", "warn");
        }
        self.damage.apply(&mut config);
        Ok(config)
    }
}

impl QuarantinePlace {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() {
            config.set_flag("tsdb quarantine without --log-level", "tsd.log.level", "error");
        }
        Ok(config)
    }
}

impl VerifyArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() {
            config.set_flag("tsdb verify without --log-level", "tsd.log.level", "error");
        }
        Ok(config)
    }
}

impl FsckArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() {
            config.set_flag("tsdb fsck without --log-level", "tsd.log.level", "warn");
        }
        self.damage.apply(&mut config);
        Ok(config)
    }

    /// What is repaired.
    pub(crate) const fn options(&self) -> FsckOptions {
        let all = self.fix_all;
        FsckOptions {
            fix: self.fix || all,
            compact: self.compact || all,
            resolve_duplicates: self.resolve_duplicates || all,
            last_write_wins: self.last_write_wins,
            delete_orphans: self.delete_orphans || all,
            delete_unknown_columns: self.delete_unknown_columns || all,
            delete_bad_values: self.delete_bad_values || all,
            delete_bad_rows: self.delete_bad_rows || all,
            delete_bad_compacts: self.delete_bad_compacts || all,
        }
    }
}

impl SnapshotArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() {
            config.set_flag("tsdb snapshot without --log-level", "tsd.log.level", "error");
        }
        Ok(config)
    }
}

impl RestoreArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() {
            config.set_flag("tsdb restore without --log-level", "tsd.log.level", "error");
        }
        Ok(config)
    }
}

impl UidPlace {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let mut config = self.overrides.load()?;
        if self.overrides.log_level.is_none() && !self.verbose {
            config.set_flag("tsdb uid without --verbose", "tsd.log.level", "warn");
        }
        Ok(config)
    }
}

impl TableArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, crate::config::ConfigError> {
        let overrides = match &self.command {
            TableCommand::Create(args) => &args.overrides,
            TableCommand::Status(args) => &args.overrides,
        };
        let mut config = overrides.load()?;
        if overrides.log_level.is_none() {
            config.set_flag("tsdb table without --log-level", "tsd.log.level", "warn");
        }
        Ok(config)
    }
}

impl DamageArgs {
    fn apply(self, config: &mut Config) {
        if self.accept_damage {
            config.set_flag("--accept-damage", "tsd.storage.accept_damage", "true");
        }
    }
}

#[cfg(test)]
mod tests;
