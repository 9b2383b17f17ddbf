//! The command line.

mod security;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use cluster::{ClusterConfig, HBaseVersion, Node};
use hbase_rs::TableName;

use self::security::SecurityArgs;
use crate::kerberos::KerberosCommand;

/// Starts HBase, ZooKeeper, OpenTSDB and TSDs as processes on this machine, and injects faults.
#[derive(Debug, Parser)]
#[command(name = "cluster", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  cluster up --region-servers 2        start HBase in the background
  cluster up --tsds 3                  start HBase and a cluster of three TSDs
  cluster up --kerberos --tls on       start a secured HBase, with a KDC
  cluster kill tsd2                    SIGKILL of one of them
  cluster kill rs1                     SIGKILL
  cluster restart rs1
  cluster move tsdb '' rs0             move the first region of a table
  cluster down                         stop everything and remove its files")]
pub(crate) struct Cli {
    /// Directory of the cluster: data, logs and configuration
    #[arg(long, short = 'D', global = true, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// Command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster in the background and wait until it serves
    Up(UpArgs),
    /// Stop the cluster and remove its directory
    Down {
        /// Keep data and logs
        #[arg(long)]
        keep: bool,
    },
    /// Show the processes and the region servers known to the master
    Status,
    #[command(flatten)]
    FaultCommand(FaultCommand),
    #[command(flatten)]
    KerberosCommand(KerberosCommand),
}

/// Options of a new cluster.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct UpArgs {
    /// Version of HBase: 2.4.18, 2.5.13-hadoop3, 2.6.4-hadoop3 or 3.0.0-alpha-4, or its first two numbers
    #[arg(long, default_value_t = HBaseVersion::default())]
    pub(crate) version: HBaseVersion,
    /// Number of masters, of which one is active at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = count())]
    pub(crate) masters: u16,
    /// Number of region servers
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count())]
    pub(crate) region_servers: u16,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Start OpenTSDB too, with its tables
    #[arg(long)]
    pub(crate) opentsdb: bool,
    /// Number of TSDs; `cargo build` builds their command. Several are nodes of one cluster
    /// (tsd.storage.ack = cluster), unless --tsd-setting says otherwise
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) tsds: u16,
    /// ZooKeeper session timeout after which a server counts as dead
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) session_timeout: u16,
    /// Additional property of HBase
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) property: Vec<(String, String)>,
    /// Additional setting of the TSDs
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) tsd_setting: Vec<(String, String)>,
    /// Additional setting of OpenTSDB
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) opentsdb_setting: Vec<(String, String)>,
    /// Use the optimizing JIT compiler: slower start, faster servers
    #[arg(long)]
    pub(crate) bench: bool,
    /// Heap of a region server
    #[arg(long, value_name = "MEGABYTES", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) heap: u32,
    /// Heap of a master
    #[arg(long, value_name = "MEGABYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..))]
    pub(crate) master_heap: u32,
    /// Longest duration of the start
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub(crate) start_timeout: u64,
    /// Cache of jars [default: $CLUSTER_CACHE, else the user's cache directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cache: Option<PathBuf>,
    /// Stay in the foreground, read commands from standard input, and stop the cluster at the end
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Put a proxy for network faults in front of each server; TSDs connect through them
    #[arg(long, requires = "foreground")]
    pub(crate) proxied: bool,
}

impl UpArgs {
    pub(crate) fn config(self, directory: PathBuf) -> ClusterConfig {
        let mut config = ClusterConfig::new(self.region_servers.into());
        config.version = self.version;
        config.masters = self.masters.into();
        config.security = self.security.security();
        config.directory = Some(directory);
        config.opentsdb = self.opentsdb;
        config.tsds = self.tsds.into();
        config.session_timeout = Duration::from_secs(self.session_timeout.into());
        config.properties = self.property;
        config.tsd_settings = tsd_settings(self.tsds, self.tsd_setting);
        config.opentsdb_settings = self.opentsdb_setting;
        config.bench = self.bench;
        config.region_server_heap_mb = self.heap;
        config.master_heap_mb = self.master_heap;
        config.start_timeout = Duration::from_secs(self.start_timeout);
        config.cache = self.cache;
        config.proxied = self.proxied;
        config
    }
}

/// Settings of the TSDs: several are nodes of one cluster, unless a setting says otherwise.
fn tsd_settings(tsds: u16, mut given: Vec<(String, String)>) -> Vec<(String, String)> {
    const ACK: &str = "tsd.storage.ack";
    if tsds > 1 && !given.iter().any(|(name, _)| name == ACK) {
        given.push((ACK.to_owned(), "cluster".to_owned()));
    }
    given
}

/// Faults of processes, and operations on regions.
#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Kill a process (SIGKILL)
    Kill {
        /// kdc, zookeeper, master, master1, ..., rs0, rs1, ..., opentsdb, tsd0, ...
        node: Node,
    },
    /// Terminate a process (SIGTERM) and wait until it exits
    Terminate {
        /// As for kill
        node: Node,
    },
    /// Pause a process (SIGSTOP)
    Pause {
        /// As for kill
        node: Node,
    },
    /// Resume a paused process (SIGCONT)
    Resume {
        /// As for kill
        node: Node,
    },
    /// Restart a stopped process and wait until it serves
    Restart {
        /// As for kill
        node: Node,
    },
    /// Move a region to a region server
    Move {
        /// Table of the region
        table: TableName,
        /// A row of the region; `\x00` is a byte
        #[arg(value_parser = row)]
        row: RowKey,
        /// Target region server
        node: Node,
    },
    /// Split a region
    Split {
        /// Table of the region
        table: TableName,
        /// First row of the second half; `\x00` is a byte
        #[arg(value_parser = row)]
        row: RowKey,
    },
    /// Merge a region with the next one
    Merge {
        /// Table of the region
        table: TableName,
        /// A row of the region; `\x00` is a byte
        #[arg(value_parser = row)]
        row: RowKey,
    },
}

/// Commands of a cluster in the foreground.
#[derive(Debug, Parser)]
#[command(name = "", multicall = true, disable_version_flag = true)]
pub(crate) enum ForegroundCommand {
    #[command(flatten)]
    FaultCommand(FaultCommand),
    #[command(flatten)]
    KerberosCommand(KerberosCommand),
    /// Show the processes and the region servers known to the master
    Status,
    /// Stop all traffic to a server; connections stay open
    Cut {
        /// zookeeper, master, rs0, rs1, ...
        node: Node,
    },
    /// Reset the connections to a server and refuse new ones
    Refuse {
        /// As for cut
        node: Node,
    },
    /// Reset the connections to a server
    Break {
        /// As for cut
        node: Node,
    },
    /// Delay the traffic to and from a server
    Delay {
        /// As for cut
        node: Node,
        /// Delay in each direction
        milliseconds: u64,
    },
    /// Remove all faults of a link
    Restore {
        /// As for cut
        node: Node,
    },
    /// Stop the cluster
    Quit,
}

/// Bytes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowKey(pub(crate) Vec<u8>);

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=100)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a row in the notation of HBase's shell: printable characters, and other bytes as `\x00`.
fn row(text: &str) -> Result<RowKey, String> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or("\\x needs two digits")?;
        let rest = part.get(2..).unwrap_or_default();
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hexadecimal digits")?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(RowKey(bytes))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_definitions_are_valid() {
        Cli::command().debug_assert();
        ForegroundCommand::command().debug_assert();
    }

    #[test]
    fn options_are_mapped_to_the_configuration() {
        let line = "cluster -D /d up --version 2.5 --masters 2 --region-servers 3 --tsds 1 --opentsdb --property a=b=c \
                    --session-timeout 5 --foreground --proxied";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Up(up) = cli.command else { panic!("{:?}", cli.command) };
        let config = up.config(cli.directory.unwrap());
        assert_eq!((config.region_servers, config.tsds, config.opentsdb), (3, 1, true));
        assert_eq!(config.properties, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(config.session_timeout, Duration::from_secs(5));
        assert_eq!((config.version, config.masters), (HBaseVersion::V2_5, 2));
        assert!(config.proxied && !config.bench);
        assert_eq!(config.tsd_settings, []);
    }

    #[test]
    fn several_tsds_are_a_cluster_by_default() {
        let settings = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Command::Up(up) = cli.command else { panic!("{:?}", cli.command) };
            up.config(PathBuf::new()).tsd_settings
        };
        let ack = |value: &str| [("tsd.storage.ack".to_owned(), value.to_owned())];
        assert_eq!(settings("cluster up --tsds 3"), ack("cluster"));
        let given = "cluster up --tsds 3 --tsd-setting tsd.storage.ack=log";
        assert_eq!(settings(given), ack("log"));
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            "cluster up --region-servers 0",
            "cluster up --proxied",
            "cluster up --property a",
            "cluster kill rs",
            "cluster split t \\xg0",
            "cluster cut rs0",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_err();
        }
    }

    #[test]
    fn rows_may_contain_any_byte() {
        for (text, bytes) in
            [("", &b""[..]), ("abc", b"abc"), ("a\\x00\\xFFb", b"a\0\xffb"), ("\\x41", b"A")]
        {
            assert_eq!(row(text), Ok(RowKey(bytes.to_vec())));
        }
        for text in ["\\x", "\\x4", "\\xzz", "\\x4\u{e9}"] {
            row(text).unwrap_err();
        }
    }

    #[test]
    fn foreground_commands_include_faults() {
        let command = ForegroundCommand::try_parse_from(["delay", "rs0", "50"]).unwrap();
        assert!(matches!(
            command,
            ForegroundCommand::Delay { node: Node::RegionServer(0), milliseconds: 50 }
        ));
        let command = ForegroundCommand::try_parse_from(["kill", "master"]).unwrap();
        assert!(matches!(
            command,
            ForegroundCommand::FaultCommand(FaultCommand::Kill { node: Node::Master })
        ));
    }
}
