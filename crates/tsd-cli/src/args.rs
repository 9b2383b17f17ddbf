//! The command line.
//!
//! OpenTSDB's options keep their names. Each command has a module with its arguments, which translates flags to
//! configuration keys. `overrides` translates the flags of every command.

mod cluster;
mod config;
mod copy;
mod fsck;
mod health;
mod import;
mod overrides;
mod package_files;
mod query;
mod scan;
mod search;
mod store_files;
mod table;
mod tsd;
mod uid;
mod user;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub(crate) use self::{
    cluster::{
        ClusterCommand, ClusterLocation, ClusterMembersArgs, ClusterQueriesArgs,
        ClusterSettingsArgs,
    },
    config::{ConfigCheckArgs, ConfigCommand},
    copy::CopyArgs,
    fsck::FsckArgs,
    health::HealthArgs,
    import::ImportArgs,
    overrides::Overrides,
    package_files::{CompletionsArgs, ManArgs},
    query::QueryArgs,
    scan::ScanArgs,
    search::SearchArgs,
    store_files::{
        QuarantineAcceptArgs, QuarantineCommand, QuarantineLocation, RestoreArgs, SnapshotArgs,
        VerifyArgs,
    },
    table::{TableCommand, TableCreateArgs},
    tsd::TsdArgs,
    uid::{MkmetricArgs, UidArgs, UidLocation},
    user::{
        UserAddArgs, UserCheckArgs, UserCommand, UserFileArgs, UserListArgs, UserRemoveArgs,
        UserSetArgs,
    },
};

/// A time series daemon that speaks OpenTSDB's protocols, and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "tsdb",
    version = crate::version::line(),
    about = "A time series daemon that speaks OpenTSDB's protocols, and its tools.",
    after_help = "\
Every setting is a key of opentsdb.conf. The first source that has a value wins: a flag, the environment \
(tsd.network.port is TSD_NETWORK_PORT), the configuration file, the default. The file is the one given by \
--config, else the first of ./opentsdb.conf, /etc/opentsdb.conf, /etc/opentsdb/opentsdb.conf and \
/opt/opentsdb/opentsdb.conf.

Start a daemon with its data in ./tsdb-data, put a point, query it:
  tsdb tsd
  curl localhost:4242/api/put -d \\
  '{\"metric\":\"load\",\"timestamp\":'$(date +%s)',\"value\":1,\"tags\":{\"host\":\"a\"}}'
  curl 'localhost:4242/api/query?start=1h-ago&m=sum:load'

Tools that use a running daemon log in as --user NAME or TSDB_USER, with the password in TSDB_PASSWORD or from a \
prompt, or else with the token in TSDB_TOKEN. For a daemon at https://, --ca FILE or TSDB_CA names its authority, and \
--cert and --key, or TSDB_CERT and TSDB_KEY, a client certificate.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// User of a running daemon; the password comes from TSDB_PASSWORD or a prompt
    #[arg(long, value_name = "NAME", global = true, hide = true, env = "TSDB_USER")]
    pub(crate) user: Option<String>,
    /// PEM file of the authorities of a daemon at https://; the default are the system's
    #[arg(long, value_name = "FILE", global = true, hide = true, env = "TSDB_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file of the client certificate to show to a daemon at https://
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        hide = true,
        env = "TSDB_CERT",
        requires = "key"
    )]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file of the private key of --cert
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        hide = true,
        env = "TSDB_KEY",
        requires = "cert"
    )]
    pub(crate) key: Option<PathBuf>,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    #[command(after_help = "\
On SIGTERM or SIGINT the daemon stops accepting requests, completes the running ones, flushes all data and exits \
with 0. Rows that it cannot flush stay in the log until the next start. A second signal exits at once. On SIGHUP \
it reads its configuration again, and applies tsd.log.level and the files that it follows. Logs go to standard \
error.

If NOTIFY_SOCKET is set, as by systemd with Type=notify, the daemon reports there that it serves, reloads or stops. \
With WatchdogSec it also reports that its threads run.

Exit status: 0 after a stop; 78 if the configuration is wrong, so that another start would fail too; 2 for an \
invalid command line; 1 for any other failure.")]
    Tsd(Box<TsdArgs>),
    /// Import points from text files
    #[command(after_help = "\
A line is `<metric> <timestamp> <value> <tagk>=<tagv> ...`, as for `put` without the command. Timestamps are \
whole seconds or milliseconds. They must increase within a series, unless \
tsd.core.bulk.allow_out_of_order_timestamps is set. Values keep their digits, as with `put`; --as-opentsdb \
rounds values with a point or an exponent to single precision. Files named *.gz are decompressed; `-` is \
standard input. The first invalid line ends the import with exit status 1; earlier points are kept. If the store \
fails, the status is 2; after Ctrl-C it is 130. The last line reports how many points were stored.

If a daemon has the data directory open, or with --url, the import puts points over the daemon's HTTP API. The \
daemon's configuration then decides about new names, and values keep double precision.

With --spool, the import replays files of a daemon's spool (tsd.core.storage_exception_handler.plugin = spool): \
timestamps need not increase, and values are stored as `put` stores them.")]
    Import(ImportArgs),
    /// Print the points of a query
    #[command(after_help = "\
A query is `FUNC [rate [counter[,max[,reset]]]] [downsample MS FUNC] METRIC [TAGK=TAGV ...]`; several queries \
may follow each other. Times are as in the HTTP API: 1h-ago, 2013/01/01-00:00:00, seconds since 1970. Each point \
is one line: `METRIC MILLISECONDS VALUE {TAGK=TAGV, ...}`. With --graph, arguments `+NAME=VALUE` set options of \
the graph, as in /q: wxh, title, ylabel, yrange, ylog, yformat, xformat, key, nokey, style, smooth, fgcolor, \
bgcolor. A BASE that does not end in .png gets BASE.gnuplot and BASE_<n>.dat.

gexp evaluates functions over series, as /api/query/gexp does. last prints the newest point of each series, \
METRIC{TAGK=TAGV,...}, as /api/query/last does. exp reads the body of /api/query/exp from FILE, or from standard \
input if FILE is -, and prints the JSON of its response.

  tsdb query 1h-ago sum sys.load host=a
  tsdb query gexp 1h-ago 'movingAverage(avg:sys.load{host=*},3)'
  tsdb query last --back-scan 24 'sys.load{host=a}'
  tsdb query --graph - 1h-ago sum sys.load
  tsdb query 2013/01/01-00:00:00 2013/01/02-00:00:00 avg downsample 60000 avg sys.load

If a daemon has the data directory open, or with --url, the command queries the daemon's HTTP API.")]
    Query(QueryArgs),
    /// Print rows as they are stored, or delete them
    #[command(after_help = "\
A query is written as for `tsdb query`. The command ignores its computations, and prints every row that the \
query reads, as whole hours. Without END it prints all later rows. With --import it prints each point as a line \
for `tsdb import`, and leaves out other columns. With --delete it deletes the rows with their annotations and \
histograms, once it has written their lines.

If a daemon has the data directory open, scan a copy: `tsdb snapshot`, then `tsdb restore`.
Exit status: 0; 1 if a row could not be read, which is then not deleted; 2 for an invalid query.

  tsdb scan 2013/01/01 2013/01/02 sum sys.load host=a
  tsdb scan --import 30d-ago sum sys.load > sys.load.txt")]
    Scan(ScanArgs),
    /// List series by metric and tags
    #[command(after_help = "\
Each series is a line: `TSUID METRIC TAGK=TAGV ... `. An empty side of a tag, or `*`, matches everything. The \
command lists the series that the meta table records. With --use-data-table, or if the meta table records no \
series, it lists the series that have points.
If a daemon has the data directory open, or with --url, the command uses the daemon's HTTP API.

  tsdb search lookup sys.load host=a
  tsdb search lookup --limit 0 dc=fra =a")]
    Search(SearchArgs),
    /// Create tables in HBase, or check them
    #[command(
        subcommand,
        after_help = "\
The settings name the tables: points, UIDs, meta data, trees and rollups. A data table is created with one \
region per salt bucket. Existing tables are never changed.

  tsdb table create --zkquorum zk1,zk2,zk3 --dry-run
  tsdb table status --config /etc/opentsdb/opentsdb.conf"
    )]
    Table(TableCommand),
    /// Show damaged store files, or accept their loss
    #[command(
        subcommand,
        after_help = "\
The embedded store quarantines a damaged file: its intact points stay, and queries that need the others fail \
with the name of the file. Put back a copy of the data directory, or accept the loss: queries then return the \
intact points. If a daemon has the data directory open, or with --url, the command uses the daemon's HTTP API.

  tsdb quarantine list
  tsdb quarantine accept t.tsdb-7"
    )]
    Quarantine(QuarantineCommand),
    /// Check all files of the store, and repair them
    #[command(after_help = "\
Reads every file of the embedded store and its log, and compares checksums: parts block by block, files of small \
tables, manifests and their copies, log segments, and the series index with the rows. Without --repair and --yes \
the command changes nothing. With both, it keeps the intact contents of damaged files and gives up the rest, and \
queries return the intact points. If a daemon has the data directory open, or with --url, the daemon does the \
work, and leaves most of the processor and the disk to queries and writes.

Exit status: 0 if nothing is damaged, or everything was repaired; 1 if something is damaged; 2 if the command \
could not run.

  tsdb verify
  tsdb verify --repair          # lists what it would do
  tsdb verify --repair --yes")]
    Verify(VerifyArgs),
    /// Find damaged rows and cells of the data table, and repair them
    #[command(after_help = "\
Options, findings and counters are OpenTSDB's. Without --fix the check writes nothing, except that it repairs \
append columns whose points are out of order if tsd.storage.repair_appends is set. It deletes cells and rows \
only with the option that names them. A check of the whole table can be stopped at any time; with --checkpoint \
the same command continues where it stopped. Daemons may write to HBase meanwhile: the check writes a repair \
only if its row has not changed. The embedded store can be checked only while no daemon has it open; `tsdb \
verify` checks its files.

Exit status: 0 if there were no errors; 1 if there were errors, even if all were repaired, or if no rows are \
named; 2 if the check could not run.

  tsdb fsck --full-scan
  tsdb fsck --full-scan --fix --resolve-duplicates --checkpoint fsck.json
  tsdb fsck --fix --compact 30d-ago sum sys.load host=a")]
    Fsck(FsckArgs),
    /// Copy a store to another one, catch up with it, and compare both
    #[command(after_help = "\
A PLACE is a data directory, a ZooKeeper quorum (zk1,zk2/hbase with its root znode; a single host as hbase:zk1), \
or a configuration file of a daemon. Cells are copied unchanged, with their timestamps. If salting or UID widths \
differ, or with --rekey, keys are rebuilt from names, with the target's UIDs or newly assigned ones. To continue \
an interrupted copy, run the same command again.

To change over without loss: copy; copy --since last; stop the writers; copy --since last --verify; start the \
daemons on the target. A copy does not catch up with deletes: --compare lists the rows that only the target has, \
and --compare --repair deletes them there, while nothing writes to either place.

Exit status: 0 if everything was copied unchanged and, with --verify or --compare, both places are equal; 1 if \
not; 2 if the command failed.

  tsdb copy --from zk1,zk2,zk3 --to /var/lib/tsdb
  tsdb copy --from zk1,zk2,zk3 --to /var/lib/tsdb --since last --verify
  tsdb copy --from old.conf --to new.conf --rekey --metric 'sys.*' --start 30d-ago --rate 100000")]
    Copy(Box<CopyArgs>),
    /// Take a snapshot of the embedded store, also while a daemon uses it
    #[command(after_help = "\
The snapshot has every point that was acknowledged before the command. TARGET gets its name when the snapshot is \
complete. Files are linked if TARGET is on the file system of the data directory, and copied otherwise; --copy \
makes a snapshot that shares no file with the store. With --base, files that an earlier snapshot next to TARGET \
has already are linked to that snapshot instead of copied. If a daemon has the data directory open, or with \
--url, the daemon takes the snapshot, with its own permissions.

  tsdb snapshot --data /var/lib/tsdb /backup/monday
  tsdb snapshot --data /var/lib/tsdb /backup/tuesday --base /backup/monday")]
    Snapshot(SnapshotArgs),
    /// Restore a snapshot to a new data directory
    #[command(after_help = "\
The command verifies every file before the data directory can be opened. To repeat an interrupted restore, run \
the same command again. After a restore with --link, leave the snapshot as it is: the store shares its files.

  tsdb restore --data /var/lib/tsdb-restored /backup/monday")]
    Restore(RestoreArgs),
    /// Show the nodes of a cluster, or flush their rows
    #[command(
        subcommand,
        after_help = "\
The nodes are the daemons with tsd.storage.ack = cluster and the same tsd.cluster.log_table. The command asks \
one of them: the node at --url, else the node that uses the data directory (--data, --config), else the node on \
the configured port. A star marks its line. Nodes that do not respond within a second are named.

Columns of `status`:
  HEARTBEAT  time since the last heartbeat
  SLOTS      slots that the node owns, + slots that it will get, - slots that it will give away
  LOG        size of the log that is not trimmed
  HELD       rows that are acknowledged and not flushed yet
  CLOCK      how far the clock is ahead of the clock of the asked node

After `flush`, programs that read HBase see everything that was acknowledged before it: OpenTSDB, snapshots of \
HBase, tools without a daemon. Its exit status is 0 if all nodes have flushed, else 1.

`members` and `settings` read HBase as it is configured here, without a daemon. The heartbeats of `members` are as \
old as the clock of this host says. The exit status of `settings` is 1 if the cluster has other settings.

  tsdb cluster status --url http://tsd1:4242
  tsdb cluster flush
  tsdb cluster members --config tsd.conf
  tsdb cluster settings --config tsd.conf --adopt"
    )]
    Cluster(ClusterCommand),
    /// Names and their UIDs: find, assign, rename, delete, check
    #[command(after_help = "\
The arguments are OpenTSDB's. KIND is metrics, tagk or tagv:
  grep [KIND] REGEXP      lists names that match; exit status 1 if no name does
  assign KIND NAME...     prints the UIDs of names, and assigns a UID to each new name; checks
                          neither characters nor the UID filter
  rename KIND OLD NEW     gives a UID another name
  delete KIND NAME        removes a name with its UIDMeta; its points stay, without a name
  fsck [fix] [delete_unknown]
                          finds damaged mappings and counters; with fix repairs them, with
                          delete_unknown also deletes columns that no version of OpenTSDB writes
  [KIND] NAME             prints the UID of a name
  [KIND] ID               prints the name of a UID; a word of digits is always an ID
  metasync                writes missing meta objects of names and series with points, and
                          corrects creation times; a series without counter gets one, and its
                          TSMeta only with tsd.core.meta.enable_realtime_ts; may be repeated and
                          interrupted
  metapurge               deletes all UIDMeta, TSMeta and counters of series
  treesync                places all series that have meta objects in the enabled trees; needs
                          tsd.core.tree.enable_processing
  treepurge TREE [true]   empties the tree with this number; with true, deletes it
If a daemon has the data directory open, or with --url, the command uses the daemon's HTTP API, which checks the \
characters of new names. delete, fsck and the commands of meta objects and trees need the store itself.

Exit status: 0; 1 if a name or UID is unknown; 2 for an invalid command line; 3 if the store failed; 4 if a name \
was not deleted for another reason; 42 if the store failed at the end. The exit status of fsck is the number of \
errors found, at most 255, or 42 if an error cannot be repaired.

  tsdb uid grep metrics '^sys[.]'
  tsdb uid rename metrics sys.cpu system.cpu
  tsdb uid tagk 17")]
    Uid(UidArgs),
    /// Create metrics, as `tsdb uid assign metrics` does
    Mkmetric(MkmetricArgs),
    /// Check a configuration file, list all keys, or print an example
    #[command(
        subcommand,
        after_help = "\
A key of a file is honoured, ignored (with the reason), unknown, or wrong: a daemon does not start with a wrong \
value. The check ignores flags and the environment, which may set other values.
Exit status of check: 0; 1 if a value is wrong, with --strict also if a key is unknown; 2 if the file cannot be \
read.

  tsdb config check /etc/opentsdb/opentsdb.conf
  tsdb config list --json
  tsdb config example --data /var/lib/tsdb > opentsdb.conf"
    )]
    Config(ConfigCommand),
    /// List, add, change, remove or check the users of a daemon
    #[command(
        subcommand,
        after_help = "\
The commands work on the file of users: --file, or tsd.core.authentication.users_file of the configuration. The \
daemon follows the file, so a change is in force within ten seconds. Comments and the order of the lines stay. \
ROLES are roles or permissions separated by commas: ADMINISTRATOR, WRITER, PUTONLY, READER, CREATOR, GUEST; \
TELNET_PUT, HTTP_PUT, HTTP_QUERY, CREATE_METRIC, CREATE_TAGK, CREATE_TAGV.

Exit status of `check`: 0; 1 if the file has errors, or the credential is wrong or has expired; 2 if the file \
cannot be read.

  tsdb user add alice READER
  tsdb user add collector WRITER --token --expires 90d
  tsdb user add app READER --metrics 'read:app.*' --queries 4
  tsdb user set app --queries 8 --memory default
  tsdb user list --file /etc/opentsdb/users
  tsdb user remove collector --tokens
  tsdb user check alice"
    )]
    User(UserCommand),
    /// Ask a daemon whether it is ready
    #[command(after_help = "\
For health checks of containers, which may have no other HTTP client. A daemon is ready while clients should be \
sent to it. Prints the response.

Exit status: 0 if the daemon is ready, or alive with --live; else 1.

  tsdb health --url http://localhost:4242")]
    Health(HealthArgs),
    /// Print the version
    Version,
    /// Print the completions of a shell: bash, zsh or fish
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages to a directory
    #[command(hide = true)]
    Man(ManArgs),
}

#[cfg(test)]
mod tests;
