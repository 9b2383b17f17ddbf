//! Names of the processes of a cluster.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A process of a cluster. Its text is used in commands and log file names: `zookeeper`, `master`,
/// `rs0`, `opentsdb`, `tsd0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Node {
    /// ZooKeeper, an ensemble of one.
    ZooKeeper,
    /// HBase's master.
    Master,
    /// A region server.
    RegionServer(usize),
    /// OpenTSDB.
    OpenTsdb,
    /// A second OpenTSDB on the same HBase.
    SecondOpenTsdb,
    /// A TSD of this repository.
    Tsd(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZooKeeper => out.write_str("zookeeper"),
            Self::Master => out.write_str("master"),
            Self::RegionServer(index) => write!(out, "rs{index}"),
            Self::OpenTsdb => out.write_str("opentsdb"),
            Self::SecondOpenTsdb => out.write_str("opentsdb1"),
            Self::Tsd(index) => write!(out, "tsd{index}"),
        }
    }
}

/// A text that is not the name of a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not one of zookeeper, master, rs0, rs1, ..., opentsdb, opentsdb1, tsd0, tsd1, ..."
)]
pub struct NodeError(String);

impl FromStr for Node {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        let numbered = |prefix| text.strip_prefix(prefix).and_then(|index| index.parse().ok());
        match text {
            "zookeeper" => Ok(Self::ZooKeeper),
            "master" => Ok(Self::Master),
            "opentsdb" => Ok(Self::OpenTsdb),
            "opentsdb1" => Ok(Self::SecondOpenTsdb),
            _ => numbered("rs")
                .map(Self::RegionServer)
                .or_else(|| numbered("tsd").map(Self::Tsd))
                .ok_or_else(|| NodeError(text.to_owned())),
        }
    }
}

impl From<Node> for String {
    fn from(node: Node) -> Self {
        node.to_string()
    }
}

impl TryFrom<String> for Node {
    type Error = NodeError;

    fn try_from(text: String) -> Result<Self, NodeError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_rendered() {
        for (text, node) in [
            ("zookeeper", Node::ZooKeeper),
            ("master", Node::Master),
            ("rs12", Node::RegionServer(12)),
            ("opentsdb", Node::OpenTsdb),
            ("opentsdb1", Node::SecondOpenTsdb),
            ("tsd0", Node::Tsd(0)),
        ] {
            assert_eq!(text.parse(), Ok(node));
            assert_eq!(node.to_string(), text);
        }
        for text in ["", "rs", "rs-1", "tsdx", "namenode"] {
            assert_eq!(text.parse::<Node>(), Err(NodeError(text.to_owned())));
        }
    }
}
