//! Names of the processes of a cluster.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A process of a cluster. Its text is used in commands and log file names: `kdc`, `zookeeper`, `master`,
/// `master1`, `rs0`, `opentsdb`, `tsd0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Node {
    /// The Kerberos server.
    Kdc,
    /// ZooKeeper, an ensemble of one.
    ZooKeeper,
    /// HBase's master; the first of several.
    Master,
    /// A further master, from 1 on. One master is active at a time.
    OtherMaster(usize),
    /// A region server.
    RegionServer(usize),
    /// OpenTSDB.
    OpenTsdb,
    /// A second OpenTSDB on the same HBase.
    SecondOpenTsdb,
    /// A TSD of this repository.
    Tsd(usize),
}

impl Node {
    /// True for each of HBase's masters.
    #[must_use]
    pub const fn is_master(self) -> bool {
        matches!(self, Self::Master | Self::OtherMaster(_))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kdc => out.write_str("kdc"),
            Self::ZooKeeper => out.write_str("zookeeper"),
            Self::Master => out.write_str("master"),
            Self::OtherMaster(index) => write!(out, "master{index}"),
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
    "'{0}' is not one of kdc, zookeeper, master, master1, ..., rs0, rs1, ..., opentsdb, opentsdb1, tsd0, tsd1, ..."
)]
pub struct NodeError(String);

impl FromStr for Node {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        let numbered = |prefix| text.strip_prefix(prefix).and_then(|index| index.parse().ok());
        match text {
            "kdc" => Ok(Self::Kdc),
            "zookeeper" => Ok(Self::ZooKeeper),
            "master" => Ok(Self::Master),
            "opentsdb" => Ok(Self::OpenTsdb),
            "opentsdb1" => Ok(Self::SecondOpenTsdb),
            _ => numbered("rs")
                .map(Self::RegionServer)
                .or_else(|| numbered("tsd").map(Self::Tsd))
                .or_else(|| numbered("master").filter(|index| *index > 0).map(Self::OtherMaster))
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
            ("master1", Node::OtherMaster(1)),
            ("kdc", Node::Kdc),
            ("rs12", Node::RegionServer(12)),
            ("opentsdb", Node::OpenTsdb),
            ("opentsdb1", Node::SecondOpenTsdb),
            ("tsd0", Node::Tsd(0)),
        ] {
            assert_eq!(text.parse(), Ok(node));
            assert_eq!(node.to_string(), text);
        }
        for text in ["", "rs", "master0", "rs-1", "tsdx", "namenode"] {
            assert_eq!(text.parse::<Node>(), Err(NodeError(text.to_owned())));
        }
    }
}
