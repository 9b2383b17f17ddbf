//! The command line.
//!
//! OpenTSDB's options keep their names. Each command has its arguments in a module of its own; flags that
//! set configuration keys are translated there, and those of every command in `overrides`.

mod cluster;
mod config;
mod copy;
mod fsck;
mod import;
mod overrides;
mod query;
mod scan;
mod search;
mod store_files;
mod table;
mod tsd;
mod uid;
mod user;

use clap::{Parser, Subcommand};

pub(crate) use self::{
    cluster::{ClusterCommand, ClusterPlace, ClusterQueriesArgs, ClusterSettingsArgs},
    config::{ConfigCheckArgs, ConfigCommand},
    copy::CopyArgs,
    fsck::FsckArgs,
    import::ImportArgs,
    query::QueryArgs,
    scan::ScanArgs,
    search::SearchArgs,
    store_files::{
        QuarantineAcceptArgs, QuarantineCommand, QuarantinePlace, RestoreArgs, SnapshotArgs,
        VerifyArgs,
    },
    table::{TableCommand, TableCreateArgs},
    tsd::TsdArgs,
    uid::{MkmetricArgs, UidArgs, UidPlace},
    user::UserCommand,
};

/// A time series daemon that speaks OpenTSDB's protocols, and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "tsdb",
    version = crate::version::line(),
    about = "A time series daemon that speaks OpenTSDB's protocols, and its tools.",
    after_help = "\
Every setting is a key of opentsdb.conf. Its value comes from, in this order: a flag, the environment \
(tsd.network.port is TSD_NETWORK_PORT), the file given by --config or found as ./opentsdb.conf, \
/etc/opentsdb.conf, /etc/opentsdb/opentsdb.conf or /opt/opentsdb/opentsdb.conf, a default.

Start a daemon with its data in ./tsdb-data, put a point, query it:
  tsdb tsd
  curl localhost:4242/api/put -d \\
  '{\"metric\":\"load\",\"timestamp\":'$(date +%s)',\"value\":1,\"tags\":{\"host\":\"a\"}}'
  curl 'localhost:4242/api/query?start=1h-ago&m=sum:load'

Tools that use a running daemon send the user given by --user NAME or TSDB_USER, with the password in \
TSDB_PASSWORD or asked for; or the token in TSDB_TOKEN.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// User of a running daemon; the password is in TSDB_PASSWORD, or asked for
    #[arg(long, value_name = "NAME", global = true, hide = true, env = "TSDB_USER")]
    pub(crate) user: Option<String>,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "\
On SIGTERM or SIGINT the daemon accepts no more requests, completes those in progress, flushes all data \
and exits with 0; what cannot be flushed stays in the log until the next start. A second signal exits at \
once. On SIGHUP it reads its configuration again and applies tsd.log.level and the files that it follows. \
Logs are written to standard error.")]
    Tsd(Box<TsdArgs>),
    /// Import points from text files
    #[command(after_help = "\
A line is `<metric> <timestamp> <value> <tagk>=<tagv> ...`, as in `put` without the command. Timestamps \
are whole seconds or milliseconds and must increase within a series, unless \
tsd.core.bulk.allow_out_of_order_timestamps is set. Values with a point or an exponent are stored in \
single precision, as by OpenTSDB's importer. Files named *.gz are decompressed; `-` is standard input. The \
first invalid line ends the import with exit status 1; points before it are kept. If the store fails, the \
status is 2; after Ctrl-C it is 130. The last line says what was stored.

If a daemon has the data directory open, or with --url, points are put over its HTTP API. Its \
configuration then decides about new names, and values keep double precision.

With --spool, files of a daemon's spool (tsd.core.storage_exception_handler.plugin = spool) are replayed: \
times need not increase, and values are stored as `put` stores them.")]
    Import(ImportArgs),
    /// Print the points of a query
    #[command(after_help = "\
A query is `FUNC [rate [counter[,max[,reset]]]] [downsample MS FUNC] METRIC [TAGK=TAGV ...]`; several may \
follow each other. Times are as in the HTTP API: 1h-ago, 2013/01/01-00:00:00, seconds since 1970. Each \
point is one line: `METRIC MILLISECONDS VALUE {TAGK=TAGV, ...}`. With --graph, arguments `+NAME=VALUE` set \
options of the graph, as those of /q: wxh, title, ylabel, yrange, ylog, yformat, xformat, key, nokey, \
style, smooth, fgcolor, bgcolor. A BASE that does not end in .png gets BASE.gnuplot and BASE_<n>.dat.

  tsdb query 1h-ago sum sys.load host=a
  tsdb query --graph - 1h-ago sum sys.load
  tsdb query 2013/01/01-00:00:00 2013/01/02-00:00:00 avg downsample 60000 avg sys.load

If a daemon has the data directory open, or with --url, its HTTP API is queried.")]
    Query(QueryArgs),
    /// Print rows as they are stored, or delete them
    #[command(after_help = "\
A query is written as for `tsdb query`; what it computes is ignored, and every row that it reads is \
printed, whole hours. Without END all later rows are. With --import each point is a line for `tsdb \
import`, and other columns are left out; points of double precision are read back in single precision by \
it. With --delete the rows are deleted, with their annotations and histograms, after their lines were \
written.

If a daemon has the data directory open, scan a copy: `tsdb snapshot`, then `tsdb restore`.
Exit status: 0; 1 if something could not be read, whose row is not deleted; 2 for an invalid query.

  tsdb scan 2013/01/01 2013/01/02 sum sys.load host=a
  tsdb scan --import 30d-ago sum sys.load > sys.load.txt")]
    Scan(ScanArgs),
    /// List series by metric and tags
    #[command(after_help = "\
Each series is a line: `TSUID METRIC TAGK=TAGV ... `. A side of a tag that is empty or `*` matches \
everything. Series are those recorded in the meta table, or those that have points (--use-data-table, or \
if none are recorded).
If a daemon has the data directory open, or with --url, its HTTP API is used.

  tsdb search lookup sys.load host=a
  tsdb search lookup --limit 0 dc=fra =a")]
    Search(SearchArgs),
    /// Create the tables in HBase, or check them
    #[command(
        subcommand,
        after_help = "\
The tables are those named by the settings: points, UIDs, meta data, trees and rollups. A data table is \
created with one region per salt bucket. Existing tables are never changed.

  tsdb table create --zkquorum zk1,zk2,zk3 --dry-run
  tsdb table status --config /etc/opentsdb/opentsdb.conf"
    )]
    Table(TableCommand),
    /// Show damaged store files, or accept their loss
    #[command(
        subcommand,
        after_help = "\
A damaged file of the embedded store is quarantined: what is intact of it stays, and queries that need the \
rest fail with its name. Put back a copy of the data directory, or accept the loss: then queries return \
what is left. If a daemon has the data directory open, or with --url, its HTTP API is used.

  tsdb quarantine list
  tsdb quarantine accept t.tsdb-7"
    )]
    Quarantine(QuarantineCommand),
    /// Check all files of the store, and repair them
    #[command(after_help = "\
Reads every file of the embedded store and its log and compares checksums: parts block by block, files of \
small tables, manifests and their copies, log segments, and the series index with the rows. Nothing is \
changed without --repair and --yes. With both, what is intact of damaged files is kept, what is not is \
given up, and queries return what is left. If a daemon has the data directory open, or with --url, it does \
the work, and leaves queries and writes most of the processor and the disk.

Exit status: 0 if nothing is damaged, or all was repaired; 1 if something is damaged; 2 if it could not \
run.

  tsdb verify
  tsdb verify --repair          # lists what it would do
  tsdb verify --repair --yes")]
    Verify(VerifyArgs),
    /// Find damaged rows and cells of the data table, and repair them
    #[command(after_help = "\
Options, findings and counters are OpenTSDB's. Without --fix nothing is written, except append columns \
that are out of order where tsd.storage.repair_appends is set. Cells and rows are deleted only with the \
option that names them. A check of the whole table can be stopped at any time; with --checkpoint the same \
command goes on where it stopped. Daemons may write to HBase meanwhile: a repair is written only if its \
row has not changed. The embedded store is checked while no daemon has it open; `tsdb verify` checks its \
files.

Exit status: 0 if no errors were found; 1 if there were some, also if all were repaired; 2 if the check \
could not run.

  tsdb fsck --full-scan
  tsdb fsck --full-scan --fix --resolve-duplicates --checkpoint fsck.json
  tsdb fsck --fix --compact 30d-ago sum sys.load host=a")]
    Fsck(FsckArgs),
    /// Copy a store to another one, catch up with it, and compare both
    #[command(after_help = "\
A PLACE is a data directory, a ZooKeeper quorum (zk1,zk2/hbase with its root znode; a single host as \
hbase:zk1), or a configuration file of a daemon. Cells are copied as they are, with their times. Where \
salting or widths of UIDs differ, or with --rekey, keys are rebuilt from names, for which UIDs of the \
target are used or assigned. An interrupted copy goes on where it stopped when the same command is run \
again.

To change over without loss: copy; copy --since last; stop the writers; copy --since last --verify; start \
the daemons on the target. Deletes are not caught up with: --compare names what only the target has, and \
--compare --repair deletes it there, while nothing writes to either.

Exit status: 0 if all was copied as it is and, with --verify or --compare, both places have the same; 1 if \
not; 2 if it failed.

  tsdb copy --from zk1,zk2,zk3 --to /var/lib/tsdb
  tsdb copy --from zk1,zk2,zk3 --to /var/lib/tsdb --since last --verify
  tsdb copy --from old.conf --to new.conf --rekey --metric 'sys.*' --start 30d-ago --rate 100000")]
    Copy(Box<CopyArgs>),
    /// Take a snapshot of the embedded store, also while a daemon uses it
    #[command(after_help = "\
Every point that was acknowledged before the command is in the snapshot. TARGET gets its name when the \
snapshot is complete. Files are linked where TARGET is on the file system of the data directory, and \
copied elsewhere; --copy makes a snapshot that shares no file with the store. With --base, files that are \
in a former snapshot beside TARGET are linked to those instead of copied. If a daemon has the data \
directory open, or with --url, the daemon takes the snapshot, with its rights.

  tsdb snapshot --data /var/lib/tsdb /backup/monday
  tsdb snapshot --data /var/lib/tsdb /backup/tuesday --base /backup/monday")]
    Snapshot(SnapshotArgs),
    /// Restore a snapshot to a new data directory
    #[command(after_help = "\
Every file is verified before the data directory can be opened. An interrupted restore is repeated by the \
same command. Keep a snapshot that --link was used with as it is: the store shares its files.

  tsdb restore --data /var/lib/tsdb-restored /backup/monday")]
    Restore(RestoreArgs),
    /// Show the nodes of a cluster, or flush what they hold
    #[command(
        subcommand,
        after_help = "\
The nodes are the daemons with tsd.storage.ack = cluster and one tsd.cluster.log_table. Any of them can be \
asked; its line has a star. HEARTBEAT is the time since the last one, SLOTS how many parts of the series \
the node writes, + those that it is to get and - those that it is to give away, LOG the size of the log \
that is not trimmed, HELD what is acknowledged and not flushed yet, CLOCK how far the clock is ahead of \
that of the node that is asked. Nodes that do not answer within a second are named.

After `flush`, programs that read HBase see all that was acknowledged before it: OpenTSDB, snapshots of \
HBase, tools without a daemon. Its exit status is 0 if all nodes have flushed, else 1.

`settings` reads HBase, as it is configured here. Its exit status is 1 if the cluster has others.

  tsdb cluster status --url http://tsd1:4242
  tsdb cluster flush
  tsdb cluster settings --config tsd.conf --adopt"
    )]
    Cluster(ClusterCommand),
    /// Names and their UIDs: find, assign, rename, delete, check
    #[command(after_help = "\
The arguments are those of OpenTSDB. KIND is metrics, tagk or tagv:
  grep [KIND] REGEXP      names that match; exit status 1 if none does
  assign KIND NAME...     UIDs of names, new ones for those that have none; neither characters
                          nor the UID filter are checked
  rename KIND OLD NEW     another name for a UID
  delete KIND NAME        removes a name with its UIDMeta; its points stay, without a name
  fsck [fix] [delete_unknown]
                          finds damaged mappings and counters; with fix repairs them, with
                          delete_unknown also deletes columns that no version of OpenTSDB writes
  [KIND] NAME             the UID of a name
  [KIND] ID               the name of a UID; a word of digits is always an ID
  metasync                writes the meta objects that names and series with points lack, and
                          corrects creation times; a series without counter gets one, and its
                          TSMeta only with tsd.core.meta.enable_realtime_ts; may be repeated and
                          interrupted
  metapurge               deletes all UIDMeta, TSMeta and counters of series
  treesync                places all series that have meta objects in the enabled trees; needs
                          tsd.core.tree.enable_processing
  treepurge TREE [true]   empties the tree with this number; with true, deletes it
If a daemon has the data directory open, or with --url, its HTTP API is used, which checks the characters \
of new names; delete, fsck and the commands of meta objects and trees need the store itself.

Exit status: 0; 1 if a name or UID is not known; 2 for an invalid command line; 3 if the store failed; 4 \
if a name was not deleted for another reason; 42 if the store failed in the end. That of fsck is the \
number of errors found, at most 255, or 42 if one cannot be repaired.

  tsdb uid grep metrics '^sys[.]'
  tsdb uid rename metrics sys.cpu system.cpu
  tsdb uid tagk 17")]
    Uid(UidArgs),
    /// Create metrics, as `tsdb uid assign metrics` does
    Mkmetric(MkmetricArgs),
    /// Check a configuration file, or list all keys
    #[command(
        subcommand,
        after_help = "\
A key of a file is honoured, ignored (with the reason), unknown, or wrong: a daemon does not start with \
it. Flags and the environment, which may set keys to other values, are not looked at.
Exit status of check: 0; 1 if something is wrong, with --strict also if a key is unknown; 2 if the file \
cannot be read.

  tsdb config check /etc/opentsdb/opentsdb.conf
  tsdb config list --json"
    )]
    Config(ConfigCommand),
    /// Make lines of the file of users
    #[command(
        subcommand,
        after_help = "\
A line has a name, the hash of a password or token, and roles or permissions separated by commas: \
ADMINISTRATOR, WRITER, PUTONLY, READER, CREATOR, GUEST; TELNET_PUT, HTTP_PUT, HTTP_QUERY, CREATE_METRIC, \
CREATE_TAGK, CREATE_TAGV. The file is named by tsd.core.authentication.users_file; a daemon follows it.

  tsdb user hash alice READER >> users
  tsdb user token collector WRITER >> users"
    )]
    User(UserCommand),
    /// Print the version
    Version,
}

#[cfg(test)]
mod tests;
