//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use cluster::{ClusterConfig, Node};
use hbase_rs::TableName;

/// Starts HBase with its ZooKeeper, OpenTSDB and TSDs on this machine, each a process of its own, and
/// breaks them on purpose.
#[derive(Debug, Parser)]
#[command(name = "cluster", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  cluster up --region-servers 2        HBase, left running
  cluster up --tsds 2                  two TSDs on top of it
  cluster kill rs1                     as if its machine lost power
  cluster restart rs1
  cluster move tsdb '' rs0             the first region of a table
  cluster down                         leaves nothing behind")]
pub(crate) struct Cli {
    /// Where data, logs and configuration are, and by which a running cluster is found
    #[arg(long, short = 'D', global = true, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster, wait until it serves and leave it running
    Up(UpArgs),
    /// Stop it and remove its directory
    Down {
        /// Keep data and logs
        #[arg(long)]
        keep: bool,
    },
    /// Say which processes run and what the master knows
    Status,
    #[command(flatten)]
    Fault(Fault),
}

/// What a cluster is to be.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct UpArgs {
    /// Region servers
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count())]
    pub(crate) region_servers: u16,
    /// OpenTSDB too, with its tables
    #[arg(long)]
    pub(crate) opentsdb: bool,
    /// TSDs of ours; `cargo build` makes their command
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) tsds: u16,
    /// After so much silence a server counts as dead
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) session_timeout: u16,
    /// A further property of HBase
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) property: Vec<(String, String)>,
    /// A further setting of the TSDs
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) tsd_setting: Vec<(String, String)>,
    /// A further setting of OpenTSDB
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) opentsdb_setting: Vec<(String, String)>,
    /// Compile hot code as well as the JVM can: a slower start, faster servers
    #[arg(long)]
    pub(crate) bench: bool,
    /// Heap of a region server
    #[arg(long, value_name = "MEGABYTES", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) heap: u32,
    /// Where jars are kept [default: $CLUSTER_CACHE, else the user's cache directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cache: Option<PathBuf>,
    /// Stay, take commands from standard input, and stop the cluster at its end
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Put a link that can be cut in front of each server; TSDs use them
    #[arg(long, requires = "foreground")]
    pub(crate) proxied: bool,
}

impl UpArgs {
    pub(crate) fn config(self, directory: PathBuf) -> ClusterConfig {
        let mut config = ClusterConfig::new(self.region_servers.into());
        config.directory = Some(directory);
        config.opentsdb = self.opentsdb;
        config.tsds = self.tsds.into();
        config.session_timeout = Duration::from_secs(self.session_timeout.into());
        config.properties = self.property;
        config.tsd_settings = self.tsd_setting;
        config.opentsdb_settings = self.opentsdb_setting;
        config.bench = self.bench;
        config.region_server_heap_mb = self.heap;
        config.cache = self.cache;
        config.proxied = self.proxied;
        config
    }
}

/// What can be done to processes and regions.
#[derive(Debug, Subcommand)]
pub(crate) enum Fault {
    /// End a process at once (SIGKILL)
    Kill {
        /// zookeeper, master, rs0, rs1, ..., opentsdb, tsd0, ...
        node: Node,
    },
    /// Ask a process to end (SIGTERM) and wait for it
    Terminate {
        /// As for kill
        node: Node,
    },
    /// Hold a process (SIGSTOP)
    Pause {
        /// As for kill
        node: Node,
    },
    /// Let a process that is held go on
    Resume {
        /// As for kill
        node: Node,
    },
    /// Start a process again that was ended, and wait until it serves
    Restart {
        /// As for kill
        node: Node,
    },
    /// Move a region to a region server
    Move {
        /// Its table
        table: TableName,
        /// A row in it; `\x00` is a byte
        #[arg(value_parser = row)]
        row: Row,
        /// Where to
        node: Node,
    },
    /// Split a region
    Split {
        /// Its table
        table: TableName,
        /// Where the second half begins; `\x00` is a byte
        #[arg(value_parser = row)]
        row: Row,
    },
    /// Merge a region with the one behind it
    Merge {
        /// Its table
        table: TableName,
        /// A row in it; `\x00` is a byte
        #[arg(value_parser = row)]
        row: Row,
    },
}

/// What is typed into a cluster that stays in the foreground.
#[derive(Debug, Parser)]
#[command(name = "", multicall = true, disable_version_flag = true)]
pub(crate) enum Order {
    #[command(flatten)]
    Fault(Fault),
    /// Say which processes run and what the master knows
    Status,
    /// Let nothing pass to a server; connections stay open
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
    /// Hold up each byte to and from a server
    Delay {
        /// As for cut
        node: Node,
        /// For so long, in each direction
        milliseconds: u64,
    },
    /// Take all faults from a link
    Mend {
        /// As for cut
        node: Node,
    },
    /// Stop the cluster
    Quit,
}

/// Bytes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row(pub(crate) Vec<u8>);

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=100)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads a row as HBase's shell writes it: printable characters as they are, others as `\x00`.
fn row(text: &str) -> Result<Row, String> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or("\\x needs two digits")?;
        let rest = part.get(2..).unwrap_or_default();
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hexadecimal digits")?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(Row(bytes))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_lines_make_sense() {
        Cli::command().debug_assert();
        Order::command().debug_assert();
    }

    #[test]
    fn options_become_a_configuration() {
        let line = "cluster -D /d up --region-servers 3 --tsds 1 --opentsdb --property a=b=c \
                    --session-timeout 5 --foreground --proxied";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Up(up) = cli.command else { panic!("{:?}", cli.command) };
        let config = up.config(cli.directory.unwrap());
        assert_eq!((config.region_servers, config.tsds, config.opentsdb), (3, 1, true));
        assert_eq!(config.properties, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(config.session_timeout, Duration::from_secs(5));
        assert!(config.proxied && !config.bench);
    }

    #[test]
    fn wrong_lines_are_refused() {
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
    fn rows_may_hold_any_bytes() {
        for (text, bytes) in
            [("", &b""[..]), ("abc", b"abc"), ("a\\x00\\xFFb", b"a\0\xffb"), ("\\x41", b"A")]
        {
            assert_eq!(row(text), Ok(Row(bytes.to_vec())));
        }
        for text in ["\\x", "\\x4", "\\xzz", "\\x4\u{e9}"] {
            row(text).unwrap_err();
        }
    }

    #[test]
    fn orders_are_commands_too() {
        let order = Order::try_parse_from(["delay", "rs0", "50"]).unwrap();
        assert!(matches!(order, Order::Delay { node: Node::RegionServer(0), milliseconds: 50 }));
        let order = Order::try_parse_from(["kill", "master"]).unwrap();
        assert!(matches!(order, Order::Fault(Fault::Kill { node: Node::Master })));
    }
}
